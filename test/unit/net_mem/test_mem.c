/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include <pbox_mem_peer.h>

#include "eal.h"
#include "unit.h"

const char unit_suite[] = "net_mem";

#define NAME    "net_memory0"
#define POOL    1023
#define DESCS   128
#define BURST   32
#define LIMIT   1000000 /* turns without progress */
#define CROSSED 200000  /* packets of the two threads */

static struct rte_mempool *pool;
static uint16_t port;

static void
start_eal(void)
{
	static const char *const args[] = {
		"-m", "128", "--no-telemetry", "--lcores", "0@0,1@0-1", NULL};

	if (pool != NULL)
		return;
	unit_eal(args);
	pool = rte_pktmbuf_pool_create("mem", POOL, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
}

static void
open_port(uint16_t queues, uint16_t descs)
{
	struct rte_eth_conf conf = {.txmode.offloads = RTE_ETH_TX_OFFLOAD_MULTI_SEGS};

	start_eal();
	CU_ASSERT_FATAL(rte_vdev_init(NAME, "") == 0);
	CU_ASSERT_FATAL(rte_eth_dev_get_port_by_name(NAME, &port) == 0);
	CU_ASSERT_FATAL(rte_eth_dev_configure(port, queues, queues, &conf) == 0);
	for (uint16_t q = 0; q < queues; q++) {
		CU_ASSERT_FATAL(
			rte_eth_rx_queue_setup(port, q, descs, SOCKET_ID_ANY, NULL, pool) == 0);
		CU_ASSERT_FATAL(rte_eth_tx_queue_setup(port, q, descs, SOCKET_ID_ANY, NULL) == 0);
	}
	CU_ASSERT_FATAL(rte_eth_dev_start(port) == 0);
}

/* Whatever lies where: every mbuf comes back. */
static void
close_port(void)
{
	CU_ASSERT_EQUAL(rte_eth_dev_stop(port), 0);
	UNIT_EQ_U64(rte_mempool_in_use_count(pool), 0);
	CU_ASSERT_EQUAL(rte_eth_dev_close(port), 0);
	CU_ASSERT_EQUAL(rte_vdev_uninit(NAME), 0);
	UNIT_EQ_U64(rte_mempool_in_use_count(pool), 0);
}

/* The peer completes @p n buffers with the numbers first, first + 1, ... and a length of their own;
 * returns how many there was room for. */
static uint32_t
deliver(struct pbox_mem_peer *p, uint32_t first, uint32_t n)
{
	uint32_t room = pbox_mem_peer_room(p, n), size;

	n = n < room ? n : room;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t number = first + i;

		memcpy(pbox_mem_peer_buffer(p, i, &size), &number, sizeof(number));
		CU_ASSERT(size == RTE_MBUF_DEFAULT_BUF_SIZE - RTE_PKTMBUF_HEADROOM);
		pbox_mem_peer_fill(
			p, i, 60 + number % 1000, number % 2 ? PBOX_MEM_IP_GOOD : PBOX_MEM_L4_BAD);
	}
	pbox_mem_peer_send(p, n);
	return n;
}

static void
expect(const struct rte_mbuf *m, uint32_t number)
{
	uint32_t got;

	memcpy(&got, rte_pktmbuf_mtod(m, void *), sizeof(got));
	UNIT_EQ_U64(got, number);
	UNIT_EQ_U64(m->pkt_len, 60 + number % 1000);
	UNIT_EQ_U64(m->data_len, m->pkt_len);
	UNIT_EQ_U64(m->nb_segs, 1);
	UNIT_EQ_U64(m->port, port);
	UNIT_EQ_U64(
		m->ol_flags, number % 2 ? RTE_MBUF_F_RX_IP_CKSUM_GOOD : RTE_MBUF_F_RX_L4_CKSUM_BAD);
}

/* Numbers in order, many times round the ring. */
static void
receive(void)
{
	struct rte_mbuf *m[BURST];
	struct pbox_mem_peer p;
	uint32_t sent = 0, got = 0;

	open_port(1, DESCS);
	CU_ASSERT_FATAL(pbox_mem_peer_open(&p, port, 0) == 0);
	UNIT_EQ_U64(pbox_mem_peer_room(&p, 1), DESCS);
	while (got < 20 * DESCS) {
		unsigned n;

		sent += deliver(&p, sent, 1 + sent % 40);
		n = rte_eth_rx_burst(port, 0, m, BURST);
		for (unsigned i = 0; i < n; i++)
			expect(m[i], got++);
		rte_pktmbuf_free_bulk(m, n);
	}
	close_port();
}

/* The application keeps all it gets: the peer finds no more room, nothing is overwritten, and when
 * the packets come back it goes on. */
static void
pool_empty(void)
{
	static struct rte_mbuf *kept[POOL];
	struct rte_eth_stats st;
	struct pbox_mem_peer p;
	uint32_t sent = 0, n, got = 0;

	open_port(1, DESCS);
	CU_ASSERT_FATAL(pbox_mem_peer_open(&p, port, 0) == 0);
	do {
		n = deliver(&p, sent, BURST);
		sent += n;
		got += rte_eth_rx_burst(port, 0, &kept[got], BURST);
	} while (n > 0 && got + BURST <= POOL);
	got += rte_eth_rx_burst(port, 0, &kept[got], (uint16_t)(POOL - got));
	UNIT_EQ_U64(got, sent);
	CU_ASSERT(got > POOL - DESCS);
	CU_ASSERT(rte_eth_stats_get(port, &st) == 0);
	CU_ASSERT(st.rx_nombuf > 0);
	UNIT_EQ_U64(st.ipackets, got);
	for (uint32_t i = 0; i < got; i++)
		expect(kept[i], i);
	UNIT_EQ_U64(pbox_mem_peer_room(&p, DESCS), 0);
	rte_pktmbuf_free_bulk(kept, got);
	UNIT_EQ_U64(rte_eth_rx_burst(port, 0, kept, BURST), 0); /* posts again */
	CU_ASSERT(pbox_mem_peer_room(&p, DESCS) >= DESCS - BURST);
	UNIT_EQ_U64(deliver(&p, sent, 1), 1);
	UNIT_EQ_U64(rte_eth_rx_burst(port, 0, kept, BURST), 1);
	expect(kept[0], sent);
	rte_pktmbuf_free(kept[0]);
	close_port();
}

/* A frame of @p segs segments: bytes number, segment. */
static struct rte_mbuf *
frame(uint32_t number, unsigned segs)
{
	struct rte_mbuf *head = NULL;

	for (unsigned k = 0; k < segs; k++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
		uint32_t v[2] = {number, k};

		CU_ASSERT_PTR_NOT_NULL_FATAL(m);
		memcpy(rte_pktmbuf_append(m, (uint16_t)(sizeof(v) + k)), v, sizeof(v));
		if (head == NULL)
			head = m;
		else
			CU_ASSERT_FATAL(rte_pktmbuf_chain(head, m) == 0);
	}
	return head;
}

/* Read whole frames; each must have 1 + number % 3 segments, in order. Not released. */
static uint32_t
read_frames(struct pbox_mem_peer *p, uint32_t first)
{
	uint32_t n = pbox_mem_peer_waiting(p), number = first, k = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct pbox_mem_seg s = pbox_mem_peer_segment(p, i);
		uint32_t v[2];

		memcpy(v, s.addr, sizeof(v));
		UNIT_EQ_U64(v[0], number);
		UNIT_EQ_U64(v[1], k);
		UNIT_EQ_U64(s.len, sizeof(v) + k);
		UNIT_EQ_U64(s.end, k == number % 3);
		k = s.end ? 0 : k + 1;
		number += s.end;
	}
	UNIT_EQ_U64(k, 0);
	pbox_mem_peer_read(p, n);
	return number - first;
}

static void
transmit(void)
{
	struct rte_mbuf *m[BURST];
	struct pbox_mem_peer p;
	struct rte_eth_stats st;
	uint32_t sent = 0, seen = 0;

	open_port(1, DESCS);
	CU_ASSERT_FATAL(pbox_mem_peer_open(&p, port, 0) == 0);
	while (sent < 10 * DESCS) {
		unsigned n = 1 + sent % BURST, took;

		for (unsigned i = 0; i < n; i++)
			m[i] = frame(sent + i, 1 + (sent + i) % 3);
		took = rte_eth_tx_burst(port, 0, m, (uint16_t)n);
		UNIT_EQ_U64(took, n); /* all is read and released in between */
		sent += took;
		seen += read_frames(&p, seen);
		UNIT_EQ_U64(seen, sent);
		pbox_mem_peer_release(&p);
	}
	CU_ASSERT(rte_eth_stats_get(port, &st) == 0);
	UNIT_EQ_U64(st.opackets, sent);
	close_port();
}

/* The ring is full: whole frames stay with the application. Segments are given back only when they
 * were released, not when they were read. */
static void
ring_full(void)
{
	struct rte_mbuf *m[DESCS];
	struct pbox_mem_peer p;
	uint32_t took, again, used;

	open_port(1, DESCS);
	CU_ASSERT_FATAL(pbox_mem_peer_open(&p, port, 0) == 0);
	for (unsigned i = 0; i < DESCS; i++)
		m[i] = frame(i, 1 + i % 3);
	used = rte_mempool_in_use_count(pool);
	took = rte_eth_tx_burst(port, 0, m, DESCS);
	CU_ASSERT(took < DESCS && took >= DESCS / 2 - 1);
	UNIT_EQ_U64(rte_eth_tx_burst(port, 0, m + took, DESCS - took), 0);
	UNIT_EQ_U64(read_frames(&p, 0), took);
	UNIT_EQ_U64(rte_eth_tx_burst(port, 0, m + took, DESCS - took), 0);
	UNIT_EQ_U64(rte_mempool_in_use_count(pool), used);
	pbox_mem_peer_release(&p);
	again = rte_eth_tx_burst(port, 0, m + took, DESCS - took);
	UNIT_EQ_U64(took + again, DESCS);
	CU_ASSERT(rte_mempool_in_use_count(pool) < used);
	UNIT_EQ_U64(read_frames(&p, took), again);
	close_port(); /* some of it not released */
}

/* More segments than the ring has: it can never be sent, and is not lost either. */
static void
too_long(void)
{
	struct rte_eth_stats st;
	struct rte_mbuf *m;
	struct pbox_mem_peer p;

	open_port(1, 32);
	CU_ASSERT_FATAL(pbox_mem_peer_open(&p, port, 0) == 0);
	m = frame(0, 33);
	UNIT_EQ_U64(rte_eth_tx_burst(port, 0, &m, 1), 1);
	CU_ASSERT(rte_eth_stats_get(port, &st) == 0);
	UNIT_EQ_U64(st.oerrors, 1);
	UNIT_EQ_U64(st.opackets, 0);
	UNIT_EQ_U64(pbox_mem_peer_waiting(&p), 0);
	close_port();
}

/* Queues do not know of each other. */
static void
queues(void)
{
	struct pbox_mem_peer p[3];
	struct rte_mbuf *m[BURST];

	open_port(3, 64);
	CU_ASSERT(pbox_mem_peer_open(&p[0], port, 3) == -EINVAL);
	CU_ASSERT(pbox_mem_peer_open(&p[0], RTE_MAX_ETHPORTS, 0) == -ENODEV);
	for (uint16_t q = 0; q < 3; q++)
		CU_ASSERT_FATAL(pbox_mem_peer_open(&p[q], port, q) == 0);
	for (uint16_t q = 0; q < 3; q++)
		UNIT_EQ_U64(deliver(&p[q], 100u * q, 5u + q), 5u + q);
	for (uint16_t q = 0; q < 3; q++) {
		UNIT_EQ_U64(rte_eth_rx_queue_count(port, q), 5u + q);
		UNIT_EQ_U64(rte_eth_rx_burst(port, q, m, BURST), 5u + q);
		for (unsigned i = 0; i < 5u + q; i++)
			expect(m[i], 100u * q + i);
		rte_pktmbuf_free_bulk(m, 5u + q);
	}
	m[0] = frame(1, 2);
	UNIT_EQ_U64(rte_eth_tx_burst(port, 1, m, 1), 1);
	UNIT_EQ_U64(pbox_mem_peer_waiting(&p[0]), 0);
	UNIT_EQ_U64(pbox_mem_peer_waiting(&p[1]), 2);
	UNIT_EQ_U64(pbox_mem_peer_waiting(&p[2]), 0);
	close_port();
}

/* Stop with packets everywhere, start again, and it works as at first. */
static void
restart(void)
{
	struct rte_mbuf *m[BURST];
	struct pbox_mem_peer p;

	open_port(1, DESCS);
	for (int k = 0; k < 3; k++) {
		CU_ASSERT_FATAL(pbox_mem_peer_open(&p, port, 0) == 0);
		UNIT_EQ_U64(deliver(&p, 0, 50), 50);
		UNIT_EQ_U64(rte_eth_rx_burst(port, 0, m, 10), 10);
		for (unsigned i = 0; i < 10; i++)
			expect(m[i], i);
		UNIT_EQ_U64(rte_eth_tx_burst(port, 0, m, 10), 10);
		UNIT_EQ_U64(pbox_mem_peer_waiting(&p), 10);
		CU_ASSERT_EQUAL(rte_eth_dev_stop(port), 0);
		UNIT_EQ_U64(rte_mempool_in_use_count(pool), 0);
		CU_ASSERT(pbox_mem_peer_open(&p, port, 0) == -EINVAL);
		CU_ASSERT_EQUAL(rte_eth_dev_start(port), 0);
	}
	close_port();
}

/* Not more buffers than the pool has. */
static void
pool_too_small(void)
{
	struct rte_eth_conf conf = {0};

	start_eal();
	CU_ASSERT_FATAL(rte_vdev_init(NAME, "") == 0);
	CU_ASSERT_FATAL(rte_eth_dev_get_port_by_name(NAME, &port) == 0);
	CU_ASSERT_FATAL(rte_eth_dev_configure(port, 1, 1, &conf) == 0);
	CU_ASSERT_FATAL(rte_eth_rx_queue_setup(port, 0, 2048, SOCKET_ID_ANY, NULL, pool) == 0);
	CU_ASSERT_FATAL(rte_eth_tx_queue_setup(port, 0, 64, SOCKET_ID_ANY, NULL) == 0);
	CU_ASSERT(rte_eth_dev_start(port) != 0);
	UNIT_EQ_U64(rte_mempool_in_use_count(pool), 0);
	CU_ASSERT_EQUAL(rte_eth_dev_close(port), 0);
	CU_ASSERT_EQUAL(rte_vdev_uninit(NAME), 0);
	CU_ASSERT(rte_vdev_init(NAME, "what=this") != 0);
}

/* The peer of the threads' test: sends numbers, and takes them back. */
static int
peer_main(void *arg)
{
	struct pbox_mem_peer *p = arg;
	uint32_t sent = 0, back = 0, idle = 0;

	while (back < CROSSED && idle++ < LIMIT) {
		uint32_t room = pbox_mem_peer_room(p, 1), n, size;

		room = room < CROSSED - sent ? room : CROSSED - sent;
		for (uint32_t i = 0; i < room; i++, sent++) {
			memcpy(pbox_mem_peer_buffer(p, i, &size), &sent, sizeof(sent));
			pbox_mem_peer_fill(p, i, 64, 0);
		}
		if (room > 0)
			pbox_mem_peer_send(p, room);
		n = pbox_mem_peer_waiting(p);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t v;

			memcpy(&v, pbox_mem_peer_segment(p, i).addr, sizeof(v));
			if (v != back++)
				return -1;
		}
		pbox_mem_peer_read(p, n);
		pbox_mem_peer_release(p);
		if (room + n > 0)
			idle = 0;
		else
			sched_yield();
	}
	return back == CROSSED ? 0 : -1;
}

/* Driver and peer on threads of their own: all that goes in comes out, in order. */
static void
threads(void)
{
	struct rte_mbuf *m[BURST];
	struct pbox_mem_peer p;
	uint32_t done = 0, idle = 0;

	open_port(1, DESCS);
	CU_ASSERT_FATAL(pbox_mem_peer_open(&p, port, 0) == 0);
	CU_ASSERT_FATAL(rte_eal_remote_launch(peer_main, &p, 1) == 0);
	while (done < CROSSED && idle++ < LIMIT) {
		uint16_t n = rte_eth_rx_burst(port, 0, m, BURST), sent = 0;

		while (sent < n && idle++ < LIMIT) {
			sent += rte_eth_tx_burst(port, 0, m + sent, n - sent);
			if (sent < n)
				sched_yield();
		}
		done += n;
		if (n > 0)
			idle = 0;
		else
			sched_yield();
	}
	UNIT_EQ_U64(done, CROSSED);
	UNIT_EQ_U64(rte_eal_wait_lcore(1), 0);
	close_port();
}

const struct unit_test unit_tests[] = {
	{"receive", receive},
	{"the pool is empty", pool_empty},
	{"transmit", transmit},
	{"the ring is full", ring_full},
	{"a frame longer than the ring", too_long},
	{"queues", queues},
	{"stop and start", restart},
	{"the pool is too small", pool_too_small},
	{"two threads", threads},
	{NULL, NULL},
};
