/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The reflector of --loopback --reflected: whatever it copies, and whatever it finds where it is needed, each
 * frame comes back once, with the payload that it was sent with. */

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_ethdev.h>
#include <rte_lcore.h>

#include "eal.h"
#include "reflect.h"
#include "testps.h"
#include "unit.h"

const char unit_suite[] = "testps_reflect";

#define DESCS    256
#define BURST    32
#define FRAMES   6000
#define WINDOW   200
#define PAYLOADS 300 /* more than it remembers */
#define ROOM     4096
#define AT       PBOX_NET_HEADERS_LEN /* of a frame's number */
#define PATIENCE 60                   /* seconds */

static struct rte_mempool *pool, *received; /* nobody else writes into what is received */
static struct rte_mbuf *payload[PAYLOADS];
static struct reflect *mirror;
static uint16_t port;
static struct pbox_error err;

/* Of a payload: long ones, and short ones, that it copies at once. */
static unsigned
length(unsigned i)
{
	return i % 4 == 3 ? 700 : 3000 - i;
}

static struct rte_mbuf *
packet(unsigned len)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rte_pktmbuf_append(m, (uint16_t)len));
	return m;
}

static void
fill(unsigned salt)
{
	for (unsigned i = 0; i < PAYLOADS; i++) {
		uint8_t *p = rte_pktmbuf_mtod(payload[i], uint8_t *);

		for (unsigned k = 0; k < length(i); k++)
			p[k] = (uint8_t)(i * 31 + k * 7 + (k >> 8) + salt);
	}
}

static void
start(void)
{
	static const char *const args[] = {
		"-m", "128", "--no-telemetry", "--lcores", "0@0,1@0-1", NULL};
	struct rte_eth_conf conf = {.txmode.offloads = RTE_ETH_TX_OFFLOAD_MULTI_SEGS};

	unit_eal(args);
	pool = rte_pktmbuf_pool_create("sent", 2047, 32, 0, ROOM, SOCKET_ID_ANY);
	received = rte_pktmbuf_pool_create("received", 1023, 32, 0, ROOM, SOCKET_ID_ANY);
	CU_ASSERT_FATAL(pool != NULL && received != NULL);
	CU_ASSERT_FATAL(reflect_open(&port, &err) == 0);
	CU_ASSERT_FATAL(rte_eth_dev_configure(port, 1, 1, &conf) == 0);
	CU_ASSERT_FATAL(rte_eth_rx_queue_setup(port, 0, DESCS, SOCKET_ID_ANY, NULL, received) == 0);
	CU_ASSERT_FATAL(rte_eth_tx_queue_setup(port, 0, DESCS, SOCKET_ID_ANY, NULL) == 0);
	CU_ASSERT_FATAL(rte_eth_dev_start(port) == 0);
	for (unsigned i = 0; i < PAYLOADS; i++)
		payload[i] = packet(length(i));
	mirror = reflect_start(port, 1, rte_get_next_lcore(-1, 1, 0), &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(mirror);
}

/* Frame @p number: addresses, its number, and one of @p kinds payloads after it; some are in one piece. */
static struct rte_mbuf *
frame(uint32_t number, unsigned kinds)
{
	unsigned i = number * 7 % kinds;
	struct rte_mbuf *m = packet(FRAME_HEADERS), *p = payload[i];
	uint8_t *b = rte_pktmbuf_mtod(m, uint8_t *);

	for (unsigned k = 0; k < FRAME_HEADERS; k++)
		b[k] = (uint8_t)k;
	memcpy(b + AT, &number, sizeof(number));
	if (number % 50 == 49) {
		memcpy(rte_pktmbuf_append(m, (uint16_t)length(i)), rte_pktmbuf_mtod(p, void *),
			length(i));
		return m;
	}
	rte_mbuf_refcnt_update(p, 1);
	m->next = p;
	m->nb_segs = 2;
	m->pkt_len = FRAME_HEADERS + length(i);
	return m;
}

static void
expect(const struct rte_mbuf *m, unsigned kinds, uint8_t *seen)
{
	const uint8_t *b = rte_pktmbuf_mtod(m, const uint8_t *);
	uint32_t number;
	unsigned kind;

	memcpy(&number, b + AT, sizeof(number));
	CU_ASSERT_FATAL(number < FRAMES);
	kind = number * 7 % kinds;
	UNIT_EQ_U64(m->pkt_len, FRAME_HEADERS + length(kind));
	UNIT_EQ_U64(seen[number]++, 0);
	for (unsigned i = 0; i < AT; i++) {
		unsigned from = i < 6                ? i + 6
				: i < 12             ? i - 6
				: i >= 26 && i < 30  ? i + 4
				: i >= 30 && i < 34  ? i - 4
				: i == 34 || i == 35 ? i + 2
				: i == 36 || i == 37 ? i - 2
						     : i;

		UNIT_EQ_U64(b[i], from);
	}
	CU_ASSERT(memcmp(b + FRAME_HEADERS, rte_pktmbuf_mtod(payload[kind], const void *),
			  length(kind)) == 0);
}

/* FRAMES of them, WINDOW at most under way. */
static void
pass(unsigned kinds)
{
	static uint8_t seen[FRAMES];
	uint64_t frames, copies, before, begun = (uint64_t)time(NULL);
	uint32_t sent = 0, got = 0;

	memset(seen, 0, sizeof(seen));
	reflect_counts(mirror, &before, &copies);
	while (got < FRAMES) {
		struct rte_mbuf *m[BURST];
		unsigned n = 0;

		CU_ASSERT_FATAL((uint64_t)time(NULL) - begun < PATIENCE);
		if (sent < FRAMES && sent - got < WINDOW) {
			m[0] = frame(sent, kinds);
			if (rte_eth_tx_burst(port, 0, m, 1) == 1)
				sent++;
			else
				rte_pktmbuf_free(m[0]);
		}
		n = rte_eth_rx_burst(port, 0, m, BURST);
		for (unsigned i = 0; i < n; i++, got++)
			expect(m[i], kinds, seen);
		rte_pktmbuf_free_bulk(m, n);
	}
	reflect_counts(mirror, &frames, &copies);
	UNIT_EQ_U64(frames - before, FRAMES);
	CU_ASSERT(copies > 0 && copies <= frames);
}

/* One payload, a few, as many as a tester has, more than it remembers; then others at the same places. */
static void
test_mirror(void)
{
	start();
	fill(0);
	pass(1);
	pass(3);
	pass(16);
	pass(PAYLOADS);
	reflect_forget(mirror);
	fill(1);
	pass(16);
	pass(1);
	reflect_stop(mirror);
	CU_ASSERT_EQUAL(rte_eth_dev_stop(port), 0);
	for (unsigned i = 0; i < PAYLOADS; i++)
		rte_pktmbuf_free(payload[i]);
	UNIT_EQ_U64(rte_mempool_in_use_count(pool) + rte_mempool_in_use_count(received), 0);
	CU_ASSERT_EQUAL(rte_eth_dev_close(port), 0);
	reflect_stop(NULL);
}

const struct unit_test unit_tests[] = {
	{"reflector", test_mirror},
	{NULL, NULL},
};
