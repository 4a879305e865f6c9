/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include <pbox_base.h>

#include "unit.h"
#include "frames.h"

const char unit_suite[] = "net_parse";

static unsigned seen[PBOX_NET_VERDICTS];

/* Parse a copy that ends where its memory ends, so that sanitizers see a read beyond. */
static enum pbox_net_verdict
parse_flags(const uint8_t *f, size_t len, unsigned flags, struct pbox_net_pkt *out)
{
	struct pbox_net_if nif = box_if();
	uint8_t *copy = malloc(len ? len : 1);
	enum pbox_net_verdict v;

	memcpy(copy, f, len);
	v = pbox_net_parse(copy, len, &nif, flags, out);
	free(copy);
	seen[v]++;
	return v;
}

static enum pbox_net_verdict
parse(const uint8_t *f, size_t len)
{
	struct pbox_net_pkt out;

	return parse_flags(f, len, 0, &out);
}

static void
test_udp(void)
{
	static const uint8_t host[6] = HOST_MAC, box[6] = BOX_MAC;
	uint8_t f[128];
	struct pbox_net_pkt out;
	size_t len = make_udp(f, "gradient", 8);

	CU_ASSERT_EQUAL(parse_flags(f, len, 0, &out), PBOX_NET_UDP);
	CU_ASSERT_EQUAL(memcmp(out.src_mac, host, 6), 0);
	CU_ASSERT_EQUAL(memcmp(out.dst_mac, box, 6), 0);
	UNIT_EQ_U64(out.src_ip, ip4(10, 0, 0, 7));
	UNIT_EQ_U64(out.dst_ip, ip4(10, 0, 0, 1));
	UNIT_EQ_U64(out.src_port, 4242);
	UNIT_EQ_U64(out.dst_port, 7269);
	UNIT_EQ_U64(out.payload_offset, 42);
	UNIT_EQ_U64(out.payload_len, 8);
	UNIT_EQ_U64(out.ecn, PBOX_NET_ECN_CE);
	UNIT_EQ_U64(out.ttl, 33);
	UNIT_EQ_U64(out.tagged, 0);
	UNIT_EQ_U64(out.udp_checksum, PBOX_NET_UDP_GOOD);
	/* no payload is a datagram too; padding is not payload */
	len = make_udp(f, "", 0);
	memset(f + len, 0xEE, 18);
	CU_ASSERT_EQUAL(parse_flags(f, 60, 0, &out), PBOX_NET_UDP);
	UNIT_EQ_U64(out.payload_len, 0);
	UNIT_EQ_U64(out.udp_checksum, PBOX_NET_UDP_GOOD);
}

static void
test_udp_checksum_states(void)
{
	uint8_t f[128];
	struct pbox_net_pkt out;
	size_t len = make_udp(f, "gradients", 9);

	CU_ASSERT_EQUAL(parse_flags(f, len, PBOX_NET_F_UDP_DEFER, &out), PBOX_NET_UDP);
	UNIT_EQ_U64(out.udp_checksum, PBOX_NET_UDP_UNCHECKED);
	UNIT_EQ_U64(pbox_net_udp_check(f, &out), PBOX_NET_UDP_GOOD);
	f[len - 1] ^= 1;
	CU_ASSERT_EQUAL(parse_flags(f, len, 0, &out), PBOX_NET_UDP);
	UNIT_EQ_U64(out.udp_checksum, PBOX_NET_UDP_BAD);
	CU_ASSERT_EQUAL(parse_flags(f, len, PBOX_NET_F_UDP_GOOD, &out), PBOX_NET_UDP);
	UNIT_EQ_U64(out.udp_checksum, PBOX_NET_UDP_GOOD);
	f[40] = f[41] = 0;
	CU_ASSERT_EQUAL(parse_flags(f, len, PBOX_NET_F_UDP_GOOD, &out), PBOX_NET_UDP);
	UNIT_EQ_U64(out.udp_checksum, PBOX_NET_UDP_ZERO);
	UNIT_EQ_U64(pbox_net_udp_check(f, &out), PBOX_NET_UDP_ZERO);
}

static void
test_arp_and_echo(void)
{
	static const uint8_t host[6] = HOST_MAC;
	uint8_t f[128];
	struct pbox_net_pkt out;
	size_t len = make_arp(f, 1);

	CU_ASSERT_EQUAL(parse_flags(f, len, 0, &out), PBOX_NET_ARP_REQUEST);
	CU_ASSERT_EQUAL(memcmp(out.arp_mac, host, 6), 0);
	UNIT_EQ_U64(out.src_ip, ip4(10, 0, 0, 7));
	memset(f + 28, 0, 4); /* a probe whether the address is free */
	CU_ASSERT_EQUAL(parse(f, len), PBOX_NET_ARP_REQUEST);
	len = make_arp(f, 2);
	CU_ASSERT_EQUAL(parse(f, len), PBOX_NET_ARP_REPLY);
	memset(f, 0xFF, 6); /* a reply to everybody answers nobody */
	CU_ASSERT_EQUAL(parse(f, len), PBOX_NET_DROP_NOT_OURS_MAC);
	len = make_echo(f, "ping", 4);
	CU_ASSERT_EQUAL(parse_flags(f, len, 0, &out), PBOX_NET_ICMP_ECHO);
	UNIT_EQ_U64(out.payload_offset, 42);
	UNIT_EQ_U64(out.payload_len, 4);
}

static void
test_tag(void)
{
	uint8_t f[128];
	struct pbox_net_pkt out;
	size_t len = add_tag(f, make_udp(f, "gradient", 8), 0xE000);

	CU_ASSERT_EQUAL(parse_flags(f, len, 0, &out), PBOX_NET_UDP);
	UNIT_EQ_U64(out.vlan_tci, 0xE000);
	UNIT_EQ_U64(out.tagged, 1);
	UNIT_EQ_U64(out.l3_offset, 18);
	UNIT_EQ_U64(out.payload_offset, 46);
	UNIT_EQ_U64(out.udp_checksum, PBOX_NET_UDP_GOOD);
	f[15] = 5; /* VLAN 5 */
	CU_ASSERT_EQUAL(parse(f, len), PBOX_NET_DROP_ETH_VLAN);
	f[15] = 0;
	CU_ASSERT_EQUAL(parse(f, add_tag(f, len, 0)), PBOX_NET_DROP_ETH_VLAN);
	len = make_udp(f, "gradient", 8);
	f[12] = 0x88;
	f[13] = 0xA8;
	CU_ASSERT_EQUAL(parse(f, len), PBOX_NET_DROP_ETH_VLAN);
}

/* One change to a good frame, and the reason it must give. ip: repair the header checksum after. */
enum kind { K_UDP, K_ECHO, K_ARP };
static const struct change {
	enum kind kind;
	uint16_t at;
	uint8_t n;
	uint8_t bytes[6];
	bool ip;
	enum pbox_net_verdict want;
} changes[] = {
	{K_UDP, 0, 6, {2, 0, 0, 0, 0, 9}, false, PBOX_NET_DROP_NOT_OURS_MAC},
	{K_UDP, 0, 6, {255, 255, 255, 255, 255, 255}, false, PBOX_NET_DROP_NOT_OURS_MAC},
	{K_UDP, 0, 6, {1, 0, 0x5E, 0, 0, 1}, false, PBOX_NET_DROP_NOT_OURS_MAC},
	{K_UDP, 6, 6, {0, 0, 0, 0, 0, 0}, false, PBOX_NET_DROP_ETH_SOURCE},
	{K_UDP, 6, 6, {3, 0, 0, 0, 0, 7}, false, PBOX_NET_DROP_ETH_SOURCE},
	{K_UDP, 6, 6, BOX_MAC, false, PBOX_NET_DROP_ETH_SOURCE},
	{K_UDP, 12, 2, {0x86, 0xDD}, false, PBOX_NET_DROP_ETH_TYPE},
	{K_UDP, 12, 2, {0x00, 0x40}, false, PBOX_NET_DROP_ETH_TYPE},
	{K_UDP, 14, 1, {0x65}, true, PBOX_NET_DROP_IP_VERSION},
	{K_UDP, 14, 1, {0x44}, true, PBOX_NET_DROP_IP_HEADER_LENGTH},
	{K_UDP, 14, 1, {0x46}, true, PBOX_NET_DROP_IP_OPTIONS},
	{K_UDP, 16, 2, {0, 19}, true, PBOX_NET_DROP_IP_TOTAL_LENGTH},
	{K_UDP, 16, 2, {0, 37}, true, PBOX_NET_DROP_IP_TRUNCATED},
	{K_UDP, 16, 2, {0xFF, 0xFF}, true, PBOX_NET_DROP_IP_TRUNCATED},
	{K_UDP, 16, 2, {0, 27}, true, PBOX_NET_DROP_UDP_SHORT},
	{K_UDP, 16, 2, {0, 35}, true, PBOX_NET_DROP_UDP_LENGTH},
	{K_UDP, 18, 1, {0x13}, false, PBOX_NET_DROP_IP_CHECKSUM},
	{K_UDP, 20, 1, {0x20}, true, PBOX_NET_DROP_IP_FRAGMENT},
	{K_UDP, 21, 1, {0x01}, true, PBOX_NET_DROP_IP_FRAGMENT},
	{K_UDP, 22, 1, {0}, true, PBOX_NET_UDP}, /* TTL 0 has arrived */
	{K_UDP, 23, 1, {6}, true, PBOX_NET_DROP_IP_PROTOCOL},
	{K_UDP, 26, 4, {0, 0, 0, 0}, true, PBOX_NET_DROP_IP_SOURCE},
	{K_UDP, 26, 4, {127, 0, 0, 1}, true, PBOX_NET_DROP_IP_SOURCE},
	{K_UDP, 26, 4, {224, 0, 0, 1}, true, PBOX_NET_DROP_IP_SOURCE},
	{K_UDP, 26, 4, {255, 255, 255, 255}, true, PBOX_NET_DROP_IP_SOURCE},
	{K_UDP, 26, 4, {10, 0, 0, 255}, true, PBOX_NET_DROP_IP_SOURCE},
	{K_UDP, 26, 4, {10, 0, 0, 0}, true, PBOX_NET_DROP_IP_SOURCE},
	{K_UDP, 26, 4, {10, 0, 0, 1}, true, PBOX_NET_DROP_IP_SOURCE},
	{K_UDP, 26, 4, {10, 0, 1, 255}, true, PBOX_NET_UDP}, /* a host of another subnet */
	{K_UDP, 30, 4, {10, 0, 0, 2}, true, PBOX_NET_DROP_NOT_OURS_IP},
	{K_UDP, 30, 4, {10, 0, 0, 255}, true, PBOX_NET_DROP_NOT_OURS_IP},
	{K_UDP, 34, 2, {0, 0}, false, PBOX_NET_DROP_UDP_PORT},
	{K_UDP, 36, 2, {0, 0}, false, PBOX_NET_DROP_UDP_PORT},
	{K_UDP, 38, 2, {0, 7}, false, PBOX_NET_DROP_UDP_LENGTH},
	{K_UDP, 38, 2, {0, 17}, false, PBOX_NET_DROP_UDP_LENGTH},
	{K_UDP, 38, 2, {0, 15}, false, PBOX_NET_DROP_UDP_LENGTH},
	{K_ECHO, 16, 2, {0, 27}, true, PBOX_NET_DROP_ICMP_SHORT},
	{K_ECHO, 34, 1, {0}, false, PBOX_NET_DROP_ICMP_OTHER},
	{K_ECHO, 34, 1, {3}, false, PBOX_NET_DROP_ICMP_OTHER},
	{K_ECHO, 35, 1, {1}, false, PBOX_NET_DROP_ICMP_OTHER},
	{K_ECHO, 40, 1, {1}, false, PBOX_NET_DROP_ICMP_CHECKSUM},
	{K_ECHO, 49, 1, {1}, false, PBOX_NET_DROP_ICMP_CHECKSUM},
	{K_ARP, 15, 1, {6}, false, PBOX_NET_DROP_ARP_MALFORMED},
	{K_ARP, 16, 2, {0x86, 0xDD}, false, PBOX_NET_DROP_ARP_MALFORMED},
	{K_ARP, 18, 1, {8}, false, PBOX_NET_DROP_ARP_MALFORMED},
	{K_ARP, 19, 1, {16}, false, PBOX_NET_DROP_ARP_MALFORMED},
	{K_ARP, 21, 1, {3}, false, PBOX_NET_DROP_ARP_OPERATION},
	{K_ARP, 20, 1, {1}, false, PBOX_NET_DROP_ARP_OPERATION},
	{K_ARP, 22, 6, {255, 255, 255, 255, 255, 255}, false, PBOX_NET_DROP_ARP_MALFORMED},
	{K_ARP, 22, 6, {0}, false, PBOX_NET_DROP_ARP_MALFORMED},
	{K_ARP, 28, 4, {224, 0, 0, 1}, false, PBOX_NET_DROP_ARP_MALFORMED},
	{K_ARP, 28, 4, {10, 0, 0, 1}, false, PBOX_NET_DROP_ARP_CONFLICT},
	{K_ARP, 38, 4, {10, 0, 0, 2}, false, PBOX_NET_DROP_NOT_OURS_IP},
};

static size_t
make(enum kind kind, uint8_t *f)
{
	switch (kind) {
	case K_UDP:
		return make_udp(f, "gradient", 8);
	case K_ECHO:
		return make_echo(f, "gradient", 8);
	default:
		return make_arp(f, 1);
	}
}

static void
test_changes(void)
{
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		const struct change *c = &changes[i];
		uint8_t f[128];
		size_t len = make(c->kind, f);
		char what[64];
		enum pbox_net_verdict v;

		memcpy(f + c->at, c->bytes, c->n);
		if (c->ip)
			fix_ip_checksum(f + 14);
		v = parse(f, len);
		snprintf(what, sizeof(what), "change %zu: %s, not %s", i, pbox_net_verdicts[v].name,
			pbox_net_verdicts[c->want].name);
		CU_assertImplementation(v == c->want, __LINE__, what, __FILE__, "", CU_FALSE);
	}
}

static void
test_port_found_the_ip_checksum_good(void)
{
	struct pbox_net_pkt out;
	uint8_t f[128];
	size_t len = make_udp(f, "gradient", 8);

	f[24] ^= 0xFF;
	CU_ASSERT_EQUAL(parse(f, len), PBOX_NET_DROP_IP_CHECKSUM);
	CU_ASSERT_EQUAL(parse_flags(f, len, PBOX_NET_F_IP_GOOD, &out), PBOX_NET_UDP);
}

/* The reason that a frame cut off after n bytes must give. */
static enum pbox_net_verdict
cut(enum kind kind, size_t tag, size_t n)
{
	if (n < 14 + tag)
		return PBOX_NET_DROP_ETH_SHORT;
	if (kind == K_ARP)
		return n < 14 + tag + 28 ? PBOX_NET_DROP_ARP_SHORT : PBOX_NET_ARP_REQUEST;
	if (n < 14 + tag + 20)
		return PBOX_NET_DROP_IP_SHORT;
	return PBOX_NET_DROP_IP_TRUNCATED;
}

static void
test_truncation(void)
{
	for (int tagged = 0; tagged <= 1; tagged++) {
		for (enum kind kind = K_UDP; kind <= K_ARP; kind++) {
			uint8_t f[128];
			size_t len = make(kind, f);

			if (tagged)
				len = add_tag(f, len, 0);
			for (size_t n = 0; n < len; n++)
				UNIT_EQ_U64(parse(f, n), cut(kind, tagged ? 4 : 0, n));
		}
	}
}

static void
test_small_subnets(void)
{
	struct pbox_net_if nif = box_if();
	struct pbox_net_pkt out;
	uint8_t f[128];
	size_t len = make_udp(f, "gradient", 8);

	memcpy(f + 26, (const uint8_t[]){10, 0, 0, 0}, 4);
	fix_ip_checksum(f + 14);
	nif.prefix_len = 31; /* both addresses are hosts */
	CU_ASSERT_EQUAL(pbox_net_parse(f, len, &nif, 0, &out), PBOX_NET_UDP);
	nif.prefix_len = 32;
	CU_ASSERT_EQUAL(pbox_net_parse(f, len, &nif, 0, &out), PBOX_NET_UDP);
	nif.prefix_len = 30;
	CU_ASSERT_EQUAL(pbox_net_parse(f, len, &nif, 0, &out), PBOX_NET_DROP_IP_SOURCE);
	nif.prefix_len = 0; /* no subnet known */
	CU_ASSERT_EQUAL(pbox_net_parse(f, len, &nif, 0, &out), PBOX_NET_UDP);
}

/* A wrong bit anywhere in the headers of a UDP frame is a drop or is seen by the UDP checksum. */
static void
test_no_bit_goes_unnoticed(void)
{
	uint8_t f[128];
	struct pbox_net_pkt out;
	size_t len = make_udp(f, "gradient", 8);

	for (size_t bit = 0; bit < len * 8; bit++) {
		enum pbox_net_verdict v;

		if (bit / 8 >= 6 && bit / 8 < 12)
			continue; /* the source MAC has the Ethernet checksum alone */
		f[bit / 8] ^= (uint8_t)(1u << bit % 8);
		v = parse_flags(f, len, 0, &out);
		CU_ASSERT(pbox_net_is_drop(v) || out.udp_checksum == PBOX_NET_UDP_BAD);
		f[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

/* Runs last: the tests above have met every verdict, and each has a name and a help of its own. */
/* The short way that most frames take says what the long one says: every value of every byte. */
static void
test_short_way(void)
{
	uint8_t f[64];
	size_t len = make_udp(f, "gradient", 8);
	unsigned accepted = 0;

	for (unsigned good = 0; good <= PBOX_NET_F_IP_GOOD; good += PBOX_NET_F_IP_GOOD)
		for (size_t at = 0; at < PBOX_NET_HEADERS_LEN; at++)
			for (unsigned v = 0; v < 256; v++) {
				struct pbox_net_pkt a = {0}, b = {0};
				uint8_t was = f[at];
				enum pbox_net_verdict strict, quick;

				f[at] = (uint8_t)v;
				strict = parse_flags(f, len, good, &a);
				quick = parse_flags(f, len, good | PBOX_NET_F_UDP_DEFER, &b);
				f[at] = was;
				UNIT_EQ_U64(strict, quick);
				if (strict != PBOX_NET_UDP || quick != PBOX_NET_UDP)
					continue;
				accepted++;
				CU_ASSERT((a.udp_checksum == PBOX_NET_UDP_ZERO) ==
					  (b.udp_checksum == PBOX_NET_UDP_ZERO));
				a.udp_checksum = b.udp_checksum;
				memset(a.arp_mac, 0, 6);
				memset(b.arp_mac, 0, 6);
				CU_ASSERT_EQUAL(memcmp(&a, &b, sizeof(a)), 0);
			}
	CU_ASSERT(accepted > 2000); /* addresses, ports, TTL, checksums */
}

static void
test_every_verdict(void)
{
	for (unsigned i = 0; i < PBOX_NET_VERDICTS; i++) {
		const struct pbox_net_verdict_info *info = &pbox_net_verdicts[i];

		CU_assertImplementation(
			seen[i] > 0, __LINE__, info->name, __FILE__, "never seen", CU_FALSE);
		CU_ASSERT(strlen(info->name) > 0 && strlen(info->help) > 10);
		for (unsigned j = 0; j < i; j++)
			CU_ASSERT_STRING_NOT_EQUAL(info->name, pbox_net_verdicts[j].name);
	}
	CU_ASSERT_STRING_EQUAL(pbox_net_verdicts[PBOX_NET_DROP_IP_TRUNCATED].name, "ip_truncated");
	CU_ASSERT_FALSE(pbox_net_is_drop(PBOX_NET_ICMP_ECHO));
	CU_ASSERT_TRUE(pbox_net_is_drop(PBOX_NET_DROP_ETH_SHORT));
}

const struct unit_test unit_tests[] = {
	{"a UDP datagram", test_udp},
	{"states of the UDP checksum", test_udp_checksum_states},
	{"ARP and echo", test_arp_and_echo},
	{"802.1Q tags", test_tag},
	{"one change, one reason", test_changes},
	{"the port found the IP checksum good", test_port_found_the_ip_checksum_good},
	{"frames cut off at every byte", test_truncation},
	{"subnets of one and two addresses", test_small_subnets},
	{"no wrong bit goes unnoticed", test_no_bit_goes_unnoticed},
	{"the short way", test_short_way},
	{"every verdict was met", test_every_verdict},
	{NULL, NULL},
};
