/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pbox_base.h>

#include "unit.h"
#include "frames.h"

const char unit_suite[] = "net_build";

static uint16_t
be(uint16_t memory_order)
{
	uint8_t b[2];

	memcpy(b, &memory_order, 2);
	return pbox_net_get_be16(b);
}

static void
test_rfc1071(void)
{
	/* section 3: the sum of these bytes is ddf2 */
	static const uint8_t bytes[8] = {0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7};
	/* an IPv4 header as the literature has it; its checksum is b861 */
	uint8_t ip[20] = {0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xC0, 0xA8, 0, 1, 0xC0,
		0xA8, 0, 0xC7};

	UNIT_EQ_U64(be(pbox_net_sum_fold(pbox_net_sum(bytes, 8, 0))), 0xDDF2);
	UNIT_EQ_U64(be(pbox_net_checksum(bytes, 8)), 0x220D);
	UNIT_EQ_U64(be(pbox_net_checksum(ip, 20)), 0xB861);
	ip[10] = 0xB8;
	ip[11] = 0x61;
	UNIT_EQ_U64(pbox_net_checksum(ip, 20), 0);
	UNIT_EQ_U64(pbox_net_checksum(bytes, 0), 0xFFFF);
}

static void
test_checksum_equals_the_plain_one(void)
{
	uint8_t data[512 + 16];
	struct pbox_random r;

	pbox_random_seed(&r, 1);
	for (unsigned fill = 0; fill < 3; fill++) {
		for (unsigned i = 0; i < sizeof(data); i++)
			data[i] = fill == 0 ? 0xFF : fill == 1 ? 0 : (uint8_t)pbox_random_u64(&r);
		for (unsigned at = 0; at < 16; at++) {
			for (unsigned len = 0; len <= 512; len++) {
				uint16_t got = be(pbox_net_checksum(data + at, len));

				if (got != plain_checksum(data + at, len, 0))
					UNIT_EQ_U64(got, plain_checksum(data + at, len, 0));
			}
		}
	}
	/* in pieces */
	UNIT_EQ_U64(pbox_net_sum_fold(pbox_net_sum(data + 100, 51, pbox_net_sum(data, 100, 0))),
		pbox_net_sum_fold(pbox_net_sum(data, 151, 0)));
	/* the largest sum there is folds right */
	UNIT_EQ_U64(pbox_net_sum_fold(UINT64_MAX), 0xFFFF);
	UNIT_EQ_U64(pbox_net_sum_fold(UINT64_MAX - 1), 0xFFFE);
}

static void
test_udp_header(void)
{
	struct pbox_net_if box = box_if();
	struct pbox_net_if host = {.mac = HOST_MAC, .prefix_len = 24, .ip = ip4(10, 0, 0, 7)};
	struct pbox_net_to to = {
		.mac = HOST_MAC, .src_port = 7270, .dst_port = 4242, .ip = host.ip};
	struct pbox_net_udp_template t;
	struct pbox_net_udp_origin origin, sized;
	uint8_t from_origin[PBOX_NET_HEADERS_LEN];
	uint16_t id;
	struct pbox_net_pkt out;
	static uint8_t f[65600], payload[PBOX_NET_PAYLOAD_MAX];
	struct pbox_random r;

	pbox_random_seed(&r, 7);
	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)pbox_random_u64(&r);
	pbox_net_udp_template(&t, &box, 7270, host.mac, host.ip, 4242, 0xB9);
	pbox_net_udp_origin(&origin, &box, 0xB9);
	for (unsigned i = 0; i < 2000; i++) {
		uint16_t len =
			(uint16_t)(i == 0 ? PBOX_NET_PAYLOAD_MAX : pbox_random_below(&r, 9000));

		id = (uint16_t)pbox_random_u64(&r);
		pbox_net_udp_header(&t, f, len, id);
		pbox_net_udp_header_to(&origin, from_origin, &to, len, id);
		CU_ASSERT_EQUAL(memcmp(f, from_origin, sizeof(from_origin)), 0);
		memset(from_origin, 0xEE, sizeof(from_origin));
		pbox_net_udp_origin_sized(&sized, &origin, len);
		pbox_net_udp_header_sized(&sized, from_origin, &to, len, id);
		CU_ASSERT_EQUAL(memcmp(f, from_origin, sizeof(from_origin)), 0);
		memcpy(f + PBOX_NET_HEADERS_LEN, payload, len);
		if (i % 2 == 0)
			pbox_net_udp_checksum_set(f, payload, len);
		UNIT_EQ_U64(pbox_net_parse(f, 42 + (size_t)len, &host, 0, &out), PBOX_NET_UDP);
		UNIT_EQ_U64(out.udp_checksum, i % 2 == 0 ? PBOX_NET_UDP_GOOD : PBOX_NET_UDP_ZERO);
		UNIT_EQ_U64(out.payload_len, len);
		UNIT_EQ_U64(out.src_port, 7270);
		UNIT_EQ_U64(out.dst_port, 4242);
		UNIT_EQ_U64(out.ecn, 1);
		UNIT_EQ_U64(out.src_ip, box.ip);
		UNIT_EQ_U64(f[15], 0xB9);
		UNIT_EQ_U64(f[20], 0x40); /* Don't Fragment */
	}
}

/* the checksum 0 is written as ffff, which means the same sum (RFC 768) */
static void
test_udp_checksum_is_never_0(void)
{
	struct pbox_net_if box = box_if();
	struct pbox_net_if host = {.mac = HOST_MAC, .prefix_len = 24, .ip = ip4(10, 0, 0, 7)};
	struct pbox_net_udp_template t;
	struct pbox_net_pkt out;
	uint8_t f[64];

	pbox_net_udp_template(&t, &box, 7270, host.mac, host.ip, 4242, 0);
	pbox_net_udp_header(&t, f, 2, 0);
	memset(f + 42, 0, 2);
	pbox_net_udp_checksum_set(f, f + 42, 2);
	memcpy(f + 42, f + 40, 2); /* the payload that brings the sum to ffff */
	pbox_net_udp_checksum_set(f, f + 42, 2);
	UNIT_EQ_U64(f[40] << 8 | f[41], 0xFFFF);
	UNIT_EQ_U64(pbox_net_parse(f, 44, &host, 0, &out), PBOX_NET_UDP);
	UNIT_EQ_U64(out.udp_checksum, PBOX_NET_UDP_GOOD);
}

static void
test_arp_reply(void)
{
	struct pbox_net_if box = box_if();
	struct pbox_net_if host = {.mac = HOST_MAC, .prefix_len = 24, .ip = ip4(10, 0, 0, 7)};
	struct pbox_net_pkt out;
	uint8_t f[64];
	size_t len;

	/* in place over a request of the same writers */
	len = pbox_net_arp_request(f, sizeof(f), &host, box.ip);
	UNIT_EQ_U64(len, PBOX_NET_ARP_LEN);
	CU_ASSERT_EQUAL(pbox_net_parse(f, len, &box, 0, &out), PBOX_NET_ARP_REQUEST);
	len = pbox_net_arp_reply(f, sizeof(f), &box, &out);
	CU_ASSERT_EQUAL(pbox_net_parse(f, len, &host, 0, &out), PBOX_NET_ARP_REPLY);
	UNIT_EQ_U64(out.src_ip, box.ip);
	CU_ASSERT_EQUAL(memcmp(out.arp_mac, box.mac, 6), 0);
	UNIT_EQ_U64(pbox_net_arp_reply(f, PBOX_NET_ARP_LEN - 1, &box, &out), 0);
	UNIT_EQ_U64(pbox_net_arp_request(f, PBOX_NET_ARP_LEN - 1, &box, host.ip), 0);
}

static void
test_echo_reply(void)
{
	struct pbox_net_if box = box_if();
	struct pbox_net_pkt out;
	uint8_t f[1600], payload[1400];

	for (unsigned n = 0; n <= sizeof(payload); n += 7) {
		size_t len, got;

		for (unsigned i = 0; i < sizeof(payload); i++)
			payload[i] = (uint8_t)(n * i + i / 3);
		len = make_echo(f, payload, n);
		memset(f + len, 0xEE, 18); /* padding is not echoed */
		if (n % 2)
			len = add_tag(f, len, 0xA000);
		CU_ASSERT_EQUAL(pbox_net_parse(f, len + 18, &box, 0, &out), PBOX_NET_ICMP_ECHO);
		got = pbox_net_icmp_echo_reply(f, &box, &out);
		UNIT_EQ_U64(got, len);
		UNIT_EQ_U64(f[5], 7);
		UNIT_EQ_U64(f[11], 1);
		UNIT_EQ_U64(plain_checksum(f + out.l3_offset, 20, 0), 0);
		UNIT_EQ_U64(f[out.l3_offset + 15], 1);
		UNIT_EQ_U64(f[out.l3_offset + 19], 7);
		UNIT_EQ_U64(f[out.l3_offset + 20], 0);
		UNIT_EQ_U64(plain_checksum(f + out.l3_offset + 20, n + 8, 0), 0);
		CU_ASSERT_EQUAL(memcmp(f + out.payload_offset, payload, n), 0);
	}
}

/* found by the fuzzer: the incremental update gave 0 where the plain sum gives ffff */
static void
test_echo_reply_of_zeros(void)
{
	static const uint8_t zeros[8];
	struct pbox_net_if box = box_if();
	struct pbox_net_pkt out;
	uint8_t f[64];
	size_t len = make_echo(f, zeros, sizeof(zeros));

	memset(f + 34 + 4, 0, 4);
	f[36] = 0xF7;
	f[37] = 0xFF;
	CU_ASSERT_EQUAL(pbox_net_parse(f, len, &box, 0, &out), PBOX_NET_ICMP_ECHO);
	pbox_net_icmp_echo_reply(f, &box, &out);
	UNIT_EQ_U64(f[36] << 8 | f[37], 0xFFFF);
	UNIT_EQ_U64(plain_checksum(f + 34, len - 34, 0), 0);
}

const struct unit_test unit_tests[] = {
	{"RFC 1071 and other known sums", test_rfc1071},
	{"the checksum is the plain one", test_checksum_equals_the_plain_one},
	{"UDP headers parse back", test_udp_header},
	{"a UDP checksum is never 0", test_udp_checksum_is_never_0},
	{"ARP request and reply", test_arp_reply},
	{"echo reply in place", test_echo_reply},
	{"echo reply of zeros", test_echo_reply_of_zeros},
	{NULL, NULL},
};
