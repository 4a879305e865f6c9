/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Input: one byte of flags (bit 7: repair the checksums first, so that the fuzzer gets past them;
 * bits 4 to 6: prefix length), then a frame. The sanitizers watch the reads; here is checked
 * what is found, and that the answers of the box parse at the other end.
 */

#include <stdint.h>
#include <stdlib.h>

#include <pbox_arp.h>
#include <pbox_base.h>
#include <pbox_net.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct pbox_net_if box = {
	.mac = {2, 0, 0, 0, 0, 1},
	.prefix_len = 24,
	.ip = 0x0100000A, /* 10.0.0.1 on a little-endian host */
};

static void
repair(uint8_t *f, size_t len)
{
	size_t at = len > 13 && f[12] == 0x81 && f[13] == 0 ? 18 : 14;
	uint16_t check;

	if (len < at + 28)
		return;
	memset(f + at + 10, 0, 2);
	check = pbox_net_checksum(f + at, 20);
	memcpy(f + at + 10, &check, 2);
	if (f[at + 9] == 1) {
		size_t total = pbox_net_get_be16(f + at + 2);

		if (total < 28 || total > len - at)
			return;
		memset(f + at + 22, 0, 2);
		check = pbox_net_checksum(f + at + 20, total - 20);
		memcpy(f + at + 22, &check, 2);
	}
}

/* the parser at the other end, as the host that sent the frame */
static struct pbox_net_if
peer(const struct pbox_net_pkt *pkt)
{
	struct pbox_net_if nif = {.prefix_len = 0, .ip = pkt->src_ip};

	memcpy(nif.mac, pkt->src_mac, 6);
	return nif;
}

static void
answer_udp(const uint8_t *f, size_t len, const struct pbox_net_pkt *pkt)
{
	struct pbox_net_if host = peer(pkt);
	struct pbox_net_udp_template t;
	struct pbox_net_pkt back;
	size_t n = (size_t)pkt->payload_len + PBOX_NET_HEADERS_LEN;
	uint8_t *out = malloc(n);

	PBOX_ASSERT((size_t)pkt->payload_offset + pkt->payload_len <= len);
	PBOX_ASSERT(pkt->src_port != 0 && pkt->dst_port != 0);
	pbox_net_udp_template(&t, &box, pkt->dst_port, pkt->src_mac, pkt->src_ip, pkt->src_port, 0);
	pbox_net_udp_header(&t, out, pkt->payload_len, pkt->ttl);
	memcpy(out + PBOX_NET_HEADERS_LEN, f + pkt->payload_offset, pkt->payload_len);
	if (pkt->ecn & 1)
		pbox_net_udp_checksum_set(out, out + PBOX_NET_HEADERS_LEN, pkt->payload_len);
	PBOX_ASSERT(pbox_net_parse(out, n, &host, 0, &back) == PBOX_NET_UDP);
	PBOX_ASSERT(back.udp_checksum == (pkt->ecn & 1 ? PBOX_NET_UDP_GOOD : PBOX_NET_UDP_ZERO));
	PBOX_ASSERT(back.payload_len == pkt->payload_len && back.dst_port == pkt->src_port);
	free(out);
}

static void
answer_arp(const struct pbox_net_pkt *pkt)
{
	struct pbox_net_if host = peer(pkt);
	struct pbox_net_pkt back;
	uint8_t out[PBOX_NET_ARP_LEN];

	PBOX_ASSERT(pbox_net_arp_reply(out, sizeof(out), &box, pkt) == sizeof(out));
	PBOX_ASSERT(pbox_net_parse(out, sizeof(out), &host, 0, &back) == PBOX_NET_ARP_REPLY);
	PBOX_ASSERT(back.src_ip == box.ip);
}

static void
answer_echo(uint8_t *f, size_t len, const struct pbox_net_pkt *pkt)
{
	struct pbox_net_if host = peer(pkt);
	struct pbox_net_pkt back;
	size_t n = pbox_net_icmp_echo_reply(f, &box, pkt);

	PBOX_ASSERT(n <= len);
	PBOX_ASSERT(pbox_net_checksum(f + pkt->l3_offset, PBOX_NET_IP_LEN) == 0);
	PBOX_ASSERT(pbox_net_checksum(f + pkt->payload_offset - 8, pkt->payload_len + 8u) == 0);
	/* replies are not for a box, but all before the type must be right */
	PBOX_ASSERT(pbox_net_parse(f, n, &host, 0, &back) == PBOX_NET_DROP_ICMP_OTHER);
}

static void
resolve(const struct pbox_net_pkt *pkt)
{
	struct pbox_arp arp;

	pbox_arp_init(&arp, &box, 0);
	PBOX_ASSERT(!pbox_arp_reply(&arp, pkt, 0));
	PBOX_ASSERT(pbox_arp_lookup(&arp, pkt->src_ip, 1).state == PBOX_ARP_WAIT ||
		    pbox_arp_lookup(&arp, pkt->src_ip, 1).state == PBOX_ARP_NO_ROUTE);
	if (pbox_arp_reply(&arp, pkt, 2))
		PBOX_ASSERT(pbox_arp_lookup(&arp, pkt->src_ip, 3).state == PBOX_ARP_RESOLVED);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pbox_net_if nif = box;
	struct pbox_net_pkt pkt;
	enum pbox_net_verdict v;
	size_t len;
	uint8_t *f;

	if (size < 1)
		return 0;
	len = size - 1;
	f = malloc(len ? len : 1); /* of the exact size: a read beyond is seen */
	memcpy(f, data + 1, len);
	nif.prefix_len = (uint8_t)(32 - (data[0] >> 4 & 7));
	if (data[0] & 0x80)
		repair(f, len);
	v = pbox_net_parse(f, len, &nif, data[0] & 7, &pkt);
	PBOX_ASSERT(v < PBOX_NET_VERDICTS);
	if (v == PBOX_NET_UDP)
		answer_udp(f, len, &pkt);
	else if (v == PBOX_NET_ARP_REQUEST && pkt.src_ip != 0)
		answer_arp(&pkt);
	else if (v == PBOX_NET_ARP_REPLY)
		resolve(&pkt);
	else if (v == PBOX_NET_ICMP_ECHO && (data[0] & PBOX_NET_F_IP_GOOD) == 0)
		answer_echo(f, len, &pkt);
	free(f);
	return 0;
}
