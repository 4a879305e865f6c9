/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pbox_arp.h>

#include "unit.h"
#include "frames.h"

const char unit_suite[] = "net_arp";

#define S UINT64_C(1000000)

static struct pbox_arp arp;

static void
start(void)
{
	struct pbox_net_if nif = box_if();

	pbox_arp_init(&arp, &nif, ip4(10, 0, 0, 254));
}

static bool
reply(uint32_t ip, uint8_t last, uint64_t now)
{
	struct pbox_net_pkt pkt = {.src_ip = ip, .arp_mac = {2, 0, 0, 0, 0, last}};

	return pbox_arp_reply(&arp, &pkt, now);
}

static void
test_resolve_and_expire(void)
{
	struct pbox_arp_answer a;
	uint32_t host = ip4(10, 0, 0, 7);

	start();
	a = pbox_arp_lookup(&arp, host, 1 * S);
	CU_ASSERT(a.state == PBOX_ARP_WAIT && a.ask && a.next_hop == host);
	a = pbox_arp_lookup(&arp, host, 1 * S + 10);
	CU_ASSERT(a.state == PBOX_ARP_WAIT && !a.ask);
	CU_ASSERT_TRUE(reply(host, 7, 1 * S + 20));
	a = pbox_arp_lookup(&arp, host, 1 * S + 30);
	CU_ASSERT(a.state == PBOX_ARP_RESOLVED && !a.ask && a.mac[5] == 7);
	/* refreshed while in use */
	a = pbox_arp_lookup(&arp, host, 50 * S);
	CU_ASSERT(a.state == PBOX_ARP_RESOLVED && a.ask && a.mac[5] == 7);
	CU_ASSERT_TRUE(reply(host, 8, 50 * S + 5)); /* it has moved */
	a = pbox_arp_lookup(&arp, host, 50 * S + 10);
	CU_ASSERT(a.state == PBOX_ARP_RESOLVED && !a.ask && a.mac[5] == 8);
	/* forgotten in time */
	a = pbox_arp_lookup(&arp, host, 111 * S);
	CU_ASSERT(a.state == PBOX_ARP_WAIT && a.ask);
}

static void
test_next_hop(void)
{
	struct pbox_net_if nif = box_if();
	struct pbox_arp_answer a;

	start();
	a = pbox_arp_lookup(&arp, ip4(10, 0, 1, 7), 0);
	CU_ASSERT(a.ask && a.next_hop == ip4(10, 0, 0, 254));
	a = pbox_arp_lookup(&arp, ip4(192, 168, 0, 1), 1);
	CU_ASSERT(!a.ask && a.state == PBOX_ARP_WAIT && a.next_hop == ip4(10, 0, 0, 254));
	CU_ASSERT_EQUAL(pbox_arp_lookup(&arp, nif.ip, 2).state, PBOX_ARP_NO_ROUTE);
	nif.prefix_len = 20;
	pbox_arp_init(&arp, &nif, 0);
	CU_ASSERT_EQUAL(pbox_arp_lookup(&arp, ip4(10, 0, 15, 1), 0).state, PBOX_ARP_WAIT);
	a = pbox_arp_lookup(&arp, ip4(10, 0, 16, 1), 0);
	CU_ASSERT(a.state == PBOX_ARP_NO_ROUTE && !a.ask && a.next_hop == 0);
}

static void
test_poison(void)
{
	uint32_t host = ip4(10, 0, 0, 7);
	struct pbox_arp_answer a;

	start();
	/* never asked */
	CU_ASSERT_FALSE(reply(host, 66, 0));
	CU_ASSERT_FALSE(reply(0, 66, 0));
	a = pbox_arp_lookup(&arp, host, 1);
	CU_ASSERT(a.state == PBOX_ARP_WAIT && a.ask);
	CU_ASSERT_TRUE(reply(host, 7, 2));
	/* asked, but answered already */
	CU_ASSERT_FALSE(reply(host, 66, 3));
	/* asked for another */
	CU_ASSERT_FALSE(reply(ip4(10, 0, 0, 8), 66, 3));
	UNIT_EQ_U64(pbox_arp_lookup(&arp, host, 4).mac[5], 7);
	/* asked too long ago */
	CU_ASSERT_TRUE(pbox_arp_lookup(&arp, ip4(10, 0, 0, 9), 5).ask);
	CU_ASSERT_FALSE(reply(ip4(10, 0, 0, 9), 66, 5 + PBOX_ARP_RETRY_US));
	UNIT_EQ_U64(arp.refused, 5);
	UNIT_EQ_U64(arp.learned, 1);
}

static void
test_requests_are_bounded(void)
{
	uint32_t host = ip4(10, 0, 0, 7);
	unsigned asks = 0, dead = 0;

	start();
	/* one silent host, looked up every millisecond for a minute: 3 requests in 3 s, then 5 s */
	for (uint64_t now = 0; now < 60 * S; now += 1000) {
		struct pbox_arp_answer a = pbox_arp_lookup(&arp, host, now);

		asks += a.ask;
		dead += a.state == PBOX_ARP_UNREACHABLE;
	}
	CU_ASSERT(asks >= 24 && asks <= 27);
	CU_ASSERT(dead > 30000 && dead < 40000);
	/* a thousand hosts within a second */
	start();
	asks = 0;
	for (unsigned i = 2; i < 1000; i++)
		asks += pbox_arp_lookup(&arp, ip4(10, 0, 0, (uint8_t)(2 + i % 200)), i).ask;
	UNIT_EQ_U64(asks, PBOX_ARP_REQUESTS_PER_S);
}

static void
test_room(void)
{
	uint64_t now = 0;
	unsigned full = 0;

	start();
	/* the longest unused entry goes: one that is in use stays */
	CU_ASSERT_TRUE(pbox_arp_lookup(&arp, ip4(10, 0, 0, 2), now).ask);
	CU_ASSERT_TRUE(reply(ip4(10, 0, 0, 2), 2, now));
	for (unsigned i = 3; i < 253; i++, now += S / 10) {
		struct pbox_arp_answer a = pbox_arp_lookup(&arp, ip4(10, 0, 0, (uint8_t)i), now);

		CU_ASSERT_TRUE(a.ask);
		CU_ASSERT_TRUE(reply(a.next_hop, (uint8_t)i, now));
		CU_ASSERT_EQUAL(
			pbox_arp_lookup(&arp, ip4(10, 0, 0, 2), now).state, PBOX_ARP_RESOLVED);
	}
	CU_ASSERT_EQUAL(pbox_arp_lookup(&arp, ip4(10, 0, 0, 252), now).state, PBOX_ARP_RESOLVED);
	/* entries that wait for a reply are not taken away; 16 requests a second, open for one:
	 * with a budget of that size the table cannot fill up, so fill it by hand */
	for (unsigned i = 0; i < PBOX_ARP_ENTRIES; i++) {
		arp.entries[i].tries = 1;
		arp.entries[i].asked = now;
	}
	for (unsigned i = 3; i < 253; i++)
		full += pbox_arp_lookup(&arp, ip4(10, 0, 0, (uint8_t)i), now).state ==
			PBOX_ARP_FULL;
	UNIT_EQ_U64(full, 250 - (PBOX_ARP_ENTRIES - 1));
}

const struct unit_test unit_tests[] = {
	{"resolve, refresh, expire", test_resolve_and_expire},
	{"next hop", test_next_hop},
	{"poisoning", test_poison},
	{"requests are bounded", test_requests_are_bounded},
	{"room", test_room},
	{NULL, NULL},
};
