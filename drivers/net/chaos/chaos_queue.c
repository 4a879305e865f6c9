/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_pause.h>

#include "chaos.h"

static inline void
chaos_count(struct chaos_queue *q, enum chaos_counter c, uint64_t n)
{
	uint64_t *at = &q->n[c - PBOX_FAULT_COUNTER_MAX];

	/* one writer: no need for an atomic addition, only for a store in one piece */
	__atomic_store_n(at, *at + n, __ATOMIC_RELAXED);
}

uint64_t
chaos_queue_count(const struct chaos_queue *q, unsigned int c)
{
	uint64_t n = c < PBOX_FAULT_COUNTER_MAX
			     ? pbox_fault_line_count(q->line, (enum pbox_fault_counter)c)
			     : __atomic_load_n(&q->n[c - PBOX_FAULT_COUNTER_MAX], __ATOMIC_RELAXED);

	return n - q->base[c];
}

/* Take over new settings, or go on with the old ones while they are being written. */
static void
take_settings(struct chaos_queue *q)
{
	const struct chaos_side *side = q->side;
	uint64_t words[PBOX_FAULT_CONF_WORDS], seq = __atomic_load_n(&side->seq, __ATOMIC_ACQUIRE);
	struct pbox_fault_conf conf;

	if (likely(seq == q->conf_seq) || seq % 2 != 0)
		return;
	for (unsigned i = 0; i < PBOX_FAULT_CONF_WORDS; i++)
		words[i] = __atomic_load_n(&side->words[i], __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(&side->seq, __ATOMIC_RELAXED) != seq)
		return;
	memcpy(&conf, words, sizeof(words));
	pbox_fault_line_set(q->line, &conf);
	q->conf_seq = seq;
}

void
chaos_side_publish(struct chaos_side *side, bool target_again)
{
	uint64_t words[PBOX_FAULT_CONF_WORDS], seq = side->seq;

	memcpy(words, &side->conf, sizeof(words));
	__atomic_store_n(&side->seq, seq + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (unsigned i = 0; i < PBOX_FAULT_CONF_WORDS; i++)
		__atomic_store_n(&side->words[i], words[i], __ATOMIC_RELAXED);
	if (target_again)
		__atomic_store_n(&side->target_left, side->conf.target_first, __ATOMIC_RELAXED);
	__atomic_store_n(&side->seq, seq + 2, __ATOMIC_RELEASE);
}

static inline uint64_t
bytes_of(struct rte_mbuf **pkts, uint16_t n)
{
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < n; i++)
		bytes += pkts[i]->pkt_len;
	return bytes;
}

/* Send what has waited long enough, as far as the wrapped port takes it. */
static void
tx_work(struct chaos_queue *q)
{
	void **frames;
	uint32_t n;

	pbox_fault_line_release(q->line, rte_rdtsc());
	while ((n = pbox_fault_line_ready(q->line, &frames)) > 0) {
		uint16_t sent = rte_eth_tx_burst(
			q->port->wrapped, q->id, (struct rte_mbuf **)frames, (uint16_t)n);

		pbox_fault_line_taken(q->line, sent);
		chaos_count(q, CHAOS_N_port_packets, sent);
		if (sent < n)
			break;
	}
}

uint16_t
chaos_tx_burst(void *txq, struct rte_mbuf **pkts, uint16_t n)
{
	struct chaos_queue *q = txq;
	uint64_t now;
	uint16_t i = 0;

	/* taken only while the rx queue of this number sends our due packets */
	while (__atomic_exchange_n(&q->busy, 1, __ATOMIC_ACQUIRE))
		rte_pause();
	take_settings(q);
	if (likely(pbox_fault_line_passive(q->line))) {
		uint64_t bytes = bytes_of(pkts, n);

		/* the port may free what it takes: subtract what it did not */
		i = rte_eth_tx_burst(q->port->wrapped, q->id, pkts, n);
		chaos_count(q, CHAOS_N_port_packets, i);
		chaos_count(q, CHAOS_N_packets, i);
		chaos_count(q, CHAOS_N_bytes, bytes - bytes_of(pkts + i, n - i));
		goto out;
	}
	tx_work(q);
	now = rte_rdtsc();
	for (; i < n && pbox_fault_line_room(q->line) >= 4; i++) {
		chaos_count(q, CHAOS_N_packets, 1);
		chaos_count(q, CHAOS_N_bytes, pkts[i]->pkt_len);
		pbox_fault_line_put(q->line, pkts[i], now, 2);
	}
	tx_work(q);
out:
	__atomic_store_n(&q->busy, 0, __ATOMIC_RELEASE);
	return i;
}

/* Send due packets of the tx queues that go with an rx queue, for an application that sends only
 * when it has something to send; never waits for a sender. */
static void
help_tx(const struct chaos_queue *rx)
{
	const struct chaos_port *port = rx->port;

	for (uint16_t id = rx->id; id < port->n_tx; id += port->n_rx) {
		struct chaos_queue *q = port->tx[id];

		if (likely(pbox_fault_line_waiting(q->line) == 0) ||
			__atomic_exchange_n(&q->busy, 1, __ATOMIC_ACQUIRE))
			continue;
		tx_work(q);
		__atomic_store_n(&q->busy, 0, __ATOMIC_RELEASE);
	}
}

uint16_t
chaos_rx_burst(void *rxq, struct rte_mbuf **pkts, uint16_t n)
{
	struct chaos_queue *q = rxq;
	uint16_t got, want, out = 0;
	uint32_t ready;
	void **frames;
	uint64_t now;

	help_tx(q);
	take_settings(q);
	if (likely(pbox_fault_line_passive(q->line))) {
		out = rte_eth_rx_burst(q->port->wrapped, q->id, pkts, n);
		chaos_count(q, CHAOS_N_port_packets, out);
		goto out;
	}
	/* two places for each packet that comes, so that none is dropped for want of them */
	want = (uint16_t)RTE_MIN((uint32_t)n, pbox_fault_line_room(q->line) / 2);
	got = want > 0 ? rte_eth_rx_burst(q->port->wrapped, q->id, pkts, want) : 0;
	chaos_count(q, CHAOS_N_port_packets, got);
	now = rte_rdtsc();
	for (uint16_t i = 0; i < got; i++)
		pbox_fault_line_put(q->line, pkts[i], now, 2u * (got - i - 1));
	pbox_fault_line_release(q->line, now);
	while (out < n && (ready = pbox_fault_line_ready(q->line, &frames)) > 0) {
		ready = RTE_MIN(ready, (uint32_t)n - out);
		memcpy(&pkts[out], frames, ready * sizeof(pkts[0]));
		pbox_fault_line_taken(q->line, ready);
		out += (uint16_t)ready;
	}
out:
	chaos_count(q, CHAOS_N_packets, out);
	chaos_count(q, CHAOS_N_bytes, bytes_of(pkts, out));
	return out;
}

uint16_t
chaos_tx_prepare(void *txq, struct rte_mbuf **pkts, uint16_t n)
{
	struct chaos_queue *q = txq;

	return rte_eth_tx_prepare(q->port->wrapped, q->id, pkts, n);
}

struct chaos_queue *
chaos_queue_create(struct chaos_port *port, enum pbox_fault_dir dir, uint16_t id, int socket)
{
	struct pbox_fault_line_conf line = {.ops = &chaos_frames,
		.dir = dir,
		.number = id,
		.limit = port->limit,
		.ticks_per_us = port->tsc_per_us,
		.target_left = &port->side[dir].target_left};
	struct chaos_queue *q;

	q = rte_zmalloc_socket("net_chaos", sizeof(*q) + pbox_fault_line_size(port->limit),
		RTE_CACHE_LINE_SIZE, socket);
	if (q == NULL)
		return NULL;
	q->port = port;
	q->side = &port->side[dir];
	q->dir = (uint8_t)dir;
	q->id = id;
	line.ctx = q;
	q->line = pbox_fault_line_init(q + 1, &line);
	chaos_queue_reset(q);
	return q;
}

void
chaos_queue_reset(struct chaos_queue *q)
{
	take_settings(q);
	pbox_fault_line_reset(q->line);
}

void
chaos_queue_free(struct chaos_queue *q)
{
	if (q == NULL)
		return;
	pbox_fault_line_reset(q->line);
	rte_free(q);
}
