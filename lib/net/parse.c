/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>

#include "pbox_net.h"
#include "format.h"

static const uint8_t broadcast[6] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};

static bool
mac_is_host(const uint8_t mac[6])
{
	static const uint8_t zero[6];

	return (mac[0] & 1) == 0 && memcmp(mac, zero, 6) != 0;
}

/* Never an answer to an address of many hosts, of nobody, or of ourselves. */
static bool
ip_is_host(uint32_t ip, const struct pbox_net_if *nif)
{
	uint32_t addr = ntohl(ip), first = addr >> 24, mask;

	/* 224 to 239 multicast, 240 and up reserved */
	if (ip == nif->ip || first == 0 || first == 127 || first >= 224)
		return false;
	/* in a /31 and a /32 all addresses are hosts (RFC 3021) */
	if (nif->prefix_len == 0 || nif->prefix_len >= 31)
		return true;
	mask = UINT32_MAX << (32 - nif->prefix_len);
	return ((addr ^ ntohl(nif->ip)) & mask) != 0 ||
	       ((addr & ~mask) != ~mask && (addr & ~mask) != 0);
}

static enum pbox_net_verdict
parse_arp(const uint8_t *p, size_t len, const struct pbox_net_if *nif, struct pbox_net_pkt *out)
{
	/* Ethernet, IPv4, address lengths 6 and 4 */
	static const uint8_t start[6] = {0, 1, 8, 0, 6, 4};
	uint16_t op;

	if (len < ARP_PACKET_LEN)
		return PBOX_NET_DROP_ARP_SHORT;
	if (memcmp(p, start, sizeof(start)) != 0)
		return PBOX_NET_DROP_ARP_MALFORMED;
	op = pbox_net_get_be16(p + 6);
	if (op != ARP_REQUEST && op != ARP_REPLY)
		return PBOX_NET_DROP_ARP_OPERATION;
	memcpy(out->arp_mac, p + 8, 6);
	out->src_ip = get_u32(p + 14);
	out->dst_ip = get_u32(p + 24);
	/* The sender may differ from the Ethernet source: routers that share an address do that. */
	if (!mac_is_host(out->arp_mac))
		return PBOX_NET_DROP_ARP_MALFORMED;
	if (out->src_ip == nif->ip)
		return PBOX_NET_DROP_ARP_CONFLICT;
	/* A sender without address asks whether ours is free (RFC 5227): it must get an answer. */
	if (!ip_is_host(out->src_ip, nif) && !(op == ARP_REQUEST && out->src_ip == 0))
		return PBOX_NET_DROP_ARP_MALFORMED;
	if (out->dst_ip != nif->ip)
		return PBOX_NET_DROP_NOT_OURS_IP;
	if (op == ARP_REQUEST)
		return PBOX_NET_ARP_REQUEST;
	/* a reply is sent to the one who asked, never to all */
	return memcmp(out->dst_mac, nif->mac, 6) == 0 ? PBOX_NET_ARP_REPLY
						      : PBOX_NET_DROP_NOT_OURS_MAC;
}

static enum pbox_net_verdict
parse_icmp(const uint8_t *p, size_t len, struct pbox_net_pkt *out)
{
	if (len < ICMP_ECHO_LEN)
		return PBOX_NET_DROP_ICMP_SHORT;
	if (p[0] != ICMP_ECHO_REQUEST || p[1] != 0)
		return PBOX_NET_DROP_ICMP_OTHER;
	if (pbox_net_checksum(p, len) != 0)
		return PBOX_NET_DROP_ICMP_CHECKSUM;
	out->payload_offset += ICMP_ECHO_LEN;
	out->payload_len -= ICMP_ECHO_LEN;
	return PBOX_NET_ICMP_ECHO;
}

static enum pbox_net_verdict
parse_udp(const uint8_t *frame, const uint8_t *p, size_t len, unsigned flags,
	struct pbox_net_pkt *out)
{
	if (len < PBOX_NET_UDP_LEN)
		return PBOX_NET_DROP_UDP_SHORT;
	if (pbox_net_get_be16(p + 4) != len)
		return PBOX_NET_DROP_UDP_LENGTH;
	out->src_port = pbox_net_get_be16(p);
	out->dst_port = pbox_net_get_be16(p + 2);
	if (out->src_port == 0 || out->dst_port == 0)
		return PBOX_NET_DROP_UDP_PORT;
	out->payload_offset += PBOX_NET_UDP_LEN;
	out->payload_len -= PBOX_NET_UDP_LEN;
	if ((p[6] | p[7]) == 0)
		out->udp_checksum = PBOX_NET_UDP_ZERO;
	else if (flags & PBOX_NET_F_UDP_GOOD)
		out->udp_checksum = PBOX_NET_UDP_GOOD;
	else if (flags & PBOX_NET_F_UDP_DEFER)
		out->udp_checksum = PBOX_NET_UDP_UNCHECKED;
	else
		out->udp_checksum = pbox_net_udp_check(frame, out);
	return PBOX_NET_UDP;
}

/* The IPv4 header: lengths before all else, so that nothing beyond them is read. */
static enum pbox_net_verdict
parse_ip_header(const uint8_t *p, size_t len, const struct pbox_net_if *nif, unsigned flags,
	struct pbox_net_pkt *out)
{
	uint16_t total;

	if (len < PBOX_NET_IP_LEN)
		return PBOX_NET_DROP_IP_SHORT;
	if (p[0] >> 4 != 4)
		return PBOX_NET_DROP_IP_VERSION;
	if ((p[0] & 15) < 5)
		return PBOX_NET_DROP_IP_HEADER_LENGTH;
	if ((p[0] & 15) > 5)
		return PBOX_NET_DROP_IP_OPTIONS;
	total = pbox_net_get_be16(p + 2);
	if (total < PBOX_NET_IP_LEN)
		return PBOX_NET_DROP_IP_TOTAL_LENGTH;
	/* before the lengths are used for more than a name: are they what the sender wrote? */
	if ((flags & PBOX_NET_F_IP_GOOD) == 0 && pbox_net_checksum(p, PBOX_NET_IP_LEN) != 0)
		return PBOX_NET_DROP_IP_CHECKSUM;
	if (total > len)
		return PBOX_NET_DROP_IP_TRUNCATED;
	out->ecn = p[1] & 3;
	out->ttl = p[8];
	out->src_ip = get_u32(p + 12);
	out->dst_ip = get_u32(p + 16);
	if (out->dst_ip != nif->ip)
		return PBOX_NET_DROP_NOT_OURS_IP;
	if (!ip_is_host(out->src_ip, nif))
		return PBOX_NET_DROP_IP_SOURCE;
	if ((pbox_net_get_be16(p + 6) & 0x3FFF) != 0) /* more fragments, or an offset */
		return PBOX_NET_DROP_IP_FRAGMENT;
	out->payload_offset = (uint16_t)(out->l3_offset + PBOX_NET_IP_LEN);
	out->payload_len = (uint16_t)(total - PBOX_NET_IP_LEN);
	return PBOX_NET_UDP; /* or ICMP: any accept will do */
}

static enum pbox_net_verdict
parse_ip(const uint8_t *frame, size_t len, const struct pbox_net_if *nif, unsigned flags,
	struct pbox_net_pkt *out)
{
	const uint8_t *p = frame + out->l3_offset;
	enum pbox_net_verdict v;

	if (memcmp(out->dst_mac, nif->mac, 6) != 0)
		return PBOX_NET_DROP_NOT_OURS_MAC;
	v = parse_ip_header(p, len - out->l3_offset, nif, flags, out);
	if (pbox_net_is_drop(v))
		return v;
	switch (p[9]) {
	case IP_PROTO_UDP:
		return parse_udp(frame, p + PBOX_NET_IP_LEN, out->payload_len, flags, out);
	case IP_PROTO_ICMP:
		return parse_icmp(p + PBOX_NET_IP_LEN, out->payload_len, out);
	default:
		return PBOX_NET_DROP_IP_PROTOCOL;
	}
}

static inline uint64_t
mac48(const uint8_t *p)
{
	uint32_t low;
	uint16_t high;

	memcpy(&low, p, 4);
	memcpy(&high, p + 4, 2);
	return (uint64_t)high << 32 | low;
}

/*
 * What nearly every frame is: an untagged datagram from a host to this port, without IP options. One
 * look at each field, without the order of verdicts; true only where what follows would say UDP.
 */
static inline bool
plain_udp(const uint8_t *p, size_t len, const struct pbox_net_if *nif, unsigned flags,
	struct pbox_net_pkt *out)
{
	uint64_t own = mac48(nif->mac), from, a, b, sum;
	uint32_t c, total, udp_len;

	if (len < PBOX_NET_HEADERS_LEN)
		return false;
	from = mac48(p + 6);
	total = pbox_net_get_be16(p + 16);
	udp_len = pbox_net_get_be16(p + 38);
	/* address of this port; of a host; IPv4, 20 bytes of header; no fragment; UDP */
	if (mac48(p) != own || from == own || from == 0 || (from & 1) != 0 ||
		pbox_net_get_be16(p + 12) != ETH_TYPE_IP || p[14] != 0x45 ||
		(pbox_net_get_be16(p + 20) & 0x3FFF) != 0 || p[23] != IP_PROTO_UDP ||
		get_u32(p + 30) != nif->ip || total > len - PBOX_NET_ETH_LEN ||
		udp_len < PBOX_NET_UDP_LEN || total != udp_len + PBOX_NET_IP_LEN ||
		(flags & PBOX_NET_F_UDP_DEFER) == 0)
		return false;
	if ((flags & PBOX_NET_F_IP_GOOD) == 0) {
		memcpy(&a, p + 14, 8);
		memcpy(&b, p + 22, 8);
		memcpy(&c, p + 30, 4);
		sum = (a & UINT32_MAX) + (a >> 32) + (b & UINT32_MAX) + (b >> 32) + c;
		if (pbox_net_sum_fold(sum) != 0xFFFF)
			return false;
	}
	out->src_port = pbox_net_get_be16(p + 34);
	out->dst_port = pbox_net_get_be16(p + 36);
	out->src_ip = get_u32(p + 26);
	if (out->src_port == 0 || out->dst_port == 0 || !ip_is_host(out->src_ip, nif))
		return false;
	memcpy(out->src_mac, p + 6, 6);
	memcpy(out->dst_mac, p, 6);
	out->dst_ip = nif->ip;
	out->l3_offset = PBOX_NET_ETH_LEN;
	out->payload_offset = PBOX_NET_HEADERS_LEN;
	out->payload_len = (uint16_t)(udp_len - PBOX_NET_UDP_LEN);
	out->vlan_tci = 0;
	out->tagged = 0;
	out->ecn = p[15] & 3;
	out->ttl = p[22];
	out->udp_checksum = (p[40] | p[41]) == 0                 ? PBOX_NET_UDP_ZERO
			    : (flags & PBOX_NET_F_UDP_GOOD) != 0 ? PBOX_NET_UDP_GOOD
								 : PBOX_NET_UDP_UNCHECKED;
	return true;
}

enum pbox_net_verdict
pbox_net_parse(const void *frame, size_t len, const struct pbox_net_if *nif, unsigned flags,
	struct pbox_net_pkt *out)
{
	const uint8_t *p = (const uint8_t *)frame;
	uint16_t type;

	if (__builtin_expect(plain_udp(p, len, nif, flags, out), 1))
		return PBOX_NET_UDP;
	if (len < PBOX_NET_ETH_LEN)
		return PBOX_NET_DROP_ETH_SHORT;
	memcpy(out->dst_mac, p, 6);
	memcpy(out->src_mac, p + 6, 6);
	out->l3_offset = PBOX_NET_ETH_LEN;
	out->vlan_tci = 0;
	out->tagged = 0;
	if (memcmp(out->dst_mac, nif->mac, 6) != 0 && memcmp(out->dst_mac, broadcast, 6) != 0)
		return PBOX_NET_DROP_NOT_OURS_MAC;
	if (!mac_is_host(out->src_mac) || memcmp(out->src_mac, nif->mac, 6) == 0)
		return PBOX_NET_DROP_ETH_SOURCE;
	type = pbox_net_get_be16(p + 12);
	if (type == ETH_TYPE_VLAN) {
		if (len < PBOX_NET_ETH_LEN + VLAN_LEN)
			return PBOX_NET_DROP_ETH_SHORT;
		out->vlan_tci = pbox_net_get_be16(p + 14);
		out->tagged = 1;
		out->l3_offset += VLAN_LEN;
		type = pbox_net_get_be16(p + 16);
		if ((out->vlan_tci & 0xFFF) != 0 || type == ETH_TYPE_VLAN)
			return PBOX_NET_DROP_ETH_VLAN;
	}
	switch (type) {
	case ETH_TYPE_IP:
		return parse_ip(p, len, nif, flags, out);
	case ETH_TYPE_ARP:
		return parse_arp(p + out->l3_offset, len - out->l3_offset, nif, out);
	case ETH_TYPE_QINQ:
		return PBOX_NET_DROP_ETH_VLAN;
	default:
		return PBOX_NET_DROP_ETH_TYPE;
	}
}

enum pbox_net_udp_checksum
pbox_net_udp_check(const void *frame, const struct pbox_net_pkt *pkt)
{
	const uint8_t *udp = (const uint8_t *)frame + pkt->payload_offset - PBOX_NET_UDP_LEN;
	size_t len = (size_t)pkt->payload_len + PBOX_NET_UDP_LEN;
	uint8_t pseudo[12];
	uint64_t sum;

	if ((udp[6] | udp[7]) == 0)
		return PBOX_NET_UDP_ZERO;
	memcpy(pseudo, &pkt->src_ip, 4);
	memcpy(pseudo + 4, &pkt->dst_ip, 4);
	pseudo[8] = 0;
	pseudo[9] = IP_PROTO_UDP;
	pbox_net_put_be16(pseudo + 10, (uint16_t)len);
	sum = pbox_net_sum(udp, len, pbox_net_sum(pseudo, sizeof(pseudo), 0));
	return pbox_net_sum_fold(sum) == 0xFFFF ? PBOX_NET_UDP_GOOD : PBOX_NET_UDP_BAD;
}
