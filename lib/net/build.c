/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pbox_base.h>

#include "pbox_net.h"
#include "format.h"

/* An ARP frame without padding; @p target_mac NULL: not known, ask everybody. */
static size_t
put_arp(uint8_t *p, size_t room, const struct pbox_net_if *nif, uint16_t op,
	const uint8_t eth_dst[6], const uint8_t target_mac[6], uint32_t target)
{
	static const uint8_t start[8] = {ETH_TYPE_ARP >> 8, ETH_TYPE_ARP & 0xFF, 0, 1, 8, 0, 6, 4};

	if (room < PBOX_NET_ARP_LEN)
		return 0;
	memcpy(p, eth_dst, 6);
	memcpy(p + 6, nif->mac, 6);
	memcpy(p + 12, start, sizeof(start));
	p += 12 + sizeof(start);
	pbox_net_put_be16(p, op);
	memcpy(p + 2, nif->mac, 6);
	memcpy(p + 8, &nif->ip, 4);
	if (target_mac != NULL)
		memcpy(p + 12, target_mac, 6);
	else
		memset(p + 12, 0, 6);
	memcpy(p + 18, &target, 4);
	return PBOX_NET_ARP_LEN;
}

size_t
pbox_net_arp_reply(
	void *frame, size_t room, const struct pbox_net_if *nif, const struct pbox_net_pkt *request)
{
	return put_arp(
		frame, room, nif, ARP_REPLY, request->src_mac, request->arp_mac, request->src_ip);
}

size_t
pbox_net_arp_request(void *frame, size_t room, const struct pbox_net_if *nif, uint32_t target)
{
	static const uint8_t all[6] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};

	return put_arp(frame, room, nif, ARP_REQUEST, all, NULL, target);
}

size_t
pbox_net_icmp_echo_reply(
	void *frame, const struct pbox_net_if *nif, const struct pbox_net_pkt *request)
{
	uint8_t *p = (uint8_t *)frame, *ip = p + request->l3_offset, *icmp = ip + PBOX_NET_IP_LEN;
	uint16_t check, word;

	memcpy(p, request->src_mac, 6);
	memcpy(p + 6, nif->mac, 6);
	ip[1] &= 0xFC; /* no ECN on answers: nobody reacts to a mark on them */
	ip[8] = IP_TTL_SENT;
	memcpy(ip + 12, &nif->ip, 4);
	memcpy(ip + 16, &request->src_ip, 4);
	memset(ip + 10, 0, 2);
	check = pbox_net_checksum(ip, PBOX_NET_IP_LEN);
	memcpy(ip + 10, &check, 2);
	/* RFC 1624, equation 3: HC' = ~(~HC + ~m + m'), m the word of type 8 that becomes 0 */
	memcpy(&word, icmp, 2);
	memcpy(&check, icmp + 2, 2);
	icmp[0] = 0;
	check = (uint16_t)~pbox_net_sum_fold((uint64_t)(uint16_t)~check + (uint16_t)~word);
	/* Both zeros of one's complement are right, but over bytes that are all zero (id, sequence
	 * and payload 0) only this one is. */
	if (check == 0)
		check = 0xFFFF;
	memcpy(icmp + 2, &check, 2);
	return (size_t)request->payload_offset + request->payload_len;
}

void
pbox_net_udp_template(struct pbox_net_udp_template *t, const struct pbox_net_if *nif,
	uint16_t src_port, const uint8_t dst_mac[6], uint32_t dst_ip, uint16_t dst_port,
	uint8_t tos)
{
	uint8_t *ip = t->bytes + PBOX_NET_ETH_LEN, *udp = ip + PBOX_NET_IP_LEN;

	memset(t, 0, sizeof(*t));
	memcpy(t->bytes, dst_mac, 6);
	memcpy(t->bytes + 6, nif->mac, 6);
	pbox_net_put_be16(t->bytes + 12, ETH_TYPE_IP);
	ip[0] = 0x45;
	ip[1] = tos;
	pbox_net_put_be16(ip + 6, IP_DF);
	ip[8] = IP_TTL_SENT;
	ip[9] = IP_PROTO_UDP;
	memcpy(ip + 12, &nif->ip, 4);
	memcpy(ip + 16, &dst_ip, 4);
	pbox_net_put_be16(udp, src_port);
	pbox_net_put_be16(udp + 2, dst_port);
	t->ip_sum = pbox_net_sum_fold(pbox_net_sum(ip, PBOX_NET_IP_LEN, 0));
}

void
pbox_net_udp_origin(struct pbox_net_udp_origin *o, const struct pbox_net_if *nif, uint8_t tos)
{
	static const uint8_t nobody[6];
	struct pbox_net_udp_template t;

	pbox_net_udp_template(&t, nif, 0, nobody, 0, 0, tos);
	memcpy(o->bytes, t.bytes, sizeof(o->bytes));
	o->ip_sum = t.ip_sum;
}

void
pbox_net_udp_checksum_set(void *frame, const void *payload, size_t payload_len)
{
	uint8_t *p = (uint8_t *)frame, *udp = p + PBOX_NET_ETH_LEN + PBOX_NET_IP_LEN;
	uint8_t pseudo[4] = {0, IP_PROTO_UDP, udp[4], udp[5]};
	uint16_t check;
	uint64_t sum;

	PBOX_ASSERT(pbox_net_get_be16(udp + 4) == payload_len + PBOX_NET_UDP_LEN);
	memset(udp + 6, 0, 2);
	/* the addresses are right before the UDP header: 16 bytes in one go */
	sum = pbox_net_sum(pseudo, sizeof(pseudo), 0);
	sum = pbox_net_sum(udp - 8, 8 + PBOX_NET_UDP_LEN, sum);
	check = (uint16_t)~pbox_net_sum_fold(pbox_net_sum(payload, payload_len, sum));
	if (check == 0)
		check = 0xFFFF; /* 0 would say that there is none (RFC 768) */
	memcpy(udp + 6, &check, 2);
}
