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
#include "chaos_faults.h"

/*
 * A packet passes, in this order: blackhole, target, loss, burst, Gilbert-Elliott; duplication;
 * then, each copy for itself: ECN marks, damage, truncation, reordering, delay; the ready ring.
 */

uint64_t
chaos_queue_count(const struct chaos_queue *q, enum chaos_counter c)
{
	return __atomic_load_n(&q->n[c], __ATOMIC_RELAXED) - q->base[c];
}

static void
seed(struct chaos_queue *q)
{
	for (unsigned f = 0; f < CHAOS_FAULTS; f++) {
		uint64_t s = q->conf.seed ^ ((uint64_t)q->dir << 32 | (uint64_t)q->id << 8 | f) *
						    UINT64_C(0xD6E8FEB86659FD93);

		q->rng[f] = chaos_random(&s);
	}
	q->burst_left = 0;
	q->gilbert_bad = false;
	q->passed = 0;
}

/* Take over new settings, or go on with the old ones while they are being written. */
static void
take_settings(struct chaos_queue *q)
{
	const struct chaos_side *side = q->side;
	uint64_t words[CHAOS_CONF_WORDS], seq = __atomic_load_n(&side->seq, __ATOMIC_ACQUIRE);
	uint64_t reseed = q->conf.reseed;

	if (likely(seq == q->conf_seq) || seq % 2 != 0)
		return;
	for (unsigned i = 0; i < CHAOS_CONF_WORDS; i++)
		words[i] = __atomic_load_n(&side->words[i], __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(&side->seq, __ATOMIC_RELAXED) != seq)
		return;
	memcpy(&q->conf, words, sizeof(words));
	q->conf_seq = seq;
	q->active = chaos_conf_active(&q->conf);
	if (q->conf.reseed != reseed)
		seed(q);
}

void
chaos_side_publish(struct chaos_side *side, bool target_again)
{
	uint64_t words[CHAOS_CONF_WORDS], seq = side->seq;

	memcpy(words, &side->conf, sizeof(words));
	__atomic_store_n(&side->seq, seq + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (unsigned i = 0; i < CHAOS_CONF_WORDS; i++)
		__atomic_store_n(&side->words[i], words[i], __ATOMIC_RELAXED);
	if (target_again)
		__atomic_store_n(&side->target_left, side->conf.target_first, __ATOMIC_RELAXED);
	__atomic_store_n(&side->seq, seq + 2, __ATOMIC_RELEASE);
}

/* The ready ring: what leaves with this burst or the next. */

static inline uint32_t
ready_count(const struct chaos_queue *q)
{
	return q->ready_tail - q->ready_head;
}

static inline uint32_t
ready_room(const struct chaos_queue *q)
{
	return CHAOS_READY - ready_count(q);
}

static inline void
ready_put(struct chaos_queue *q, struct rte_mbuf *m)
{
	q->ready[q->ready_tail++ % CHAOS_READY] = m;
}

/* The heap of delayed packets. */

static inline bool
before(const struct chaos_delayed *a, const struct chaos_delayed *b)
{
	return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void
heap_put(struct chaos_queue *q, struct chaos_delayed d)
{
	uint32_t i = q->n_delayed++;

	for (; i > 0 && before(&d, &q->delayed[(i - 1) / 2]); i = (i - 1) / 2)
		q->delayed[i] = q->delayed[(i - 1) / 2];
	q->delayed[i] = d;
}

static struct rte_mbuf *
heap_take(struct chaos_queue *q)
{
	struct rte_mbuf *m = q->delayed[0].m;
	struct chaos_delayed last = q->delayed[--q->n_delayed];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < q->n_delayed) {
		if (child + 1 < q->n_delayed && before(&q->delayed[child + 1], &q->delayed[child]))
			child++;
		if (!before(&q->delayed[child], &last))
			break;
		q->delayed[i] = q->delayed[child];
		i = child;
	}
	q->delayed[i] = last;
	return m;
}

static void
delay(struct chaos_queue *q, struct rte_mbuf *m, uint64_t now)
{
	uint64_t us = q->conf.delay_us;

	if (q->conf.jitter_us > 0)
		us += chaos_random_below(q, CHAOS_F_DELAY, q->conf.jitter_us + 1);
	if (us == 0) {
		ready_put(q, m);
		return;
	}
	if (q->n_delayed == q->limit) {
		rte_pktmbuf_free(m);
		chaos_count(q, CHAOS_N_overflow, 1);
		return;
	}
	m = chaos_fit_to_hold(q, m);
	if (m == NULL)
		return;
	heap_put(q, (struct chaos_delayed){
			    .due = now + us * q->port->tsc_per_us, .order = q->order++, .m = m});
	chaos_count(q, CHAOS_N_delayed, 1);
}

static void
reorder(struct chaos_queue *q, struct rte_mbuf *m, uint64_t now)
{
	const struct chaos_conf *c = &q->conf;
	uint32_t others;

	if (!chaos_strikes(q, CHAOS_F_REORDER, c->reorder)) {
		q->passed++;
		delay(q, m, now);
		return;
	}
	others = 1 + chaos_random_below(q, CHAOS_F_REORDER, c->reorder_window);
	if (q->n_held == RTE_MIN(q->limit, (uint32_t)CHAOS_WINDOW_MAX)) {
		rte_pktmbuf_free(m);
		chaos_count(q, CHAOS_N_overflow, 1);
		return;
	}
	m = chaos_fit_to_hold(q, m);
	if (m == NULL)
		return;
	q->held[q->n_held++] = (struct chaos_held){.passed = q->passed + others,
		.due = now + c->reorder_us * q->port->tsc_per_us,
		.m = m};
	chaos_count(q, CHAOS_N_reordered, 1);
}

/* Let go what has waited long enough, while @p reserve places of the ready ring stay free. */
static void
release_held(struct chaos_queue *q, uint64_t now, uint32_t reserve)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < q->n_held; i++) {
		struct chaos_held h = q->held[i];

		if ((h.passed <= q->passed || h.due <= now) && ready_room(q) > reserve)
			delay(q, h.m, now);
		else
			q->held[kept++] = h;
	}
	q->n_held = kept;
}

static void
release_delayed(struct chaos_queue *q, uint64_t now)
{
	while (q->n_delayed > 0 && q->delayed[0].due <= now && ready_room(q) > 0)
		ready_put(q, heap_take(q));
}

static void
emit(struct chaos_queue *q, struct rte_mbuf *m, uint64_t now)
{
	if (chaos_strikes(q, CHAOS_F_MARK, q->conf.mark))
		m = chaos_mark(q, m);
	if (chaos_strikes(q, CHAOS_F_CORRUPT, q->conf.corrupt))
		m = chaos_corrupt(q, m);
	if (chaos_strikes(q, CHAOS_F_TRUNCATE, q->conf.truncate))
		m = chaos_cut_short(q, m);
	reorder(q, m, now);
}

/* Puts at most two packets into the ready ring. */
static void
process(struct chaos_queue *q, struct rte_mbuf *m, uint64_t now)
{
	enum chaos_counter cause = chaos_cause_of_death(q, m);
	struct rte_mbuf *copy = NULL;

	if (cause != CHAOS_COUNTER_MAX) {
		rte_pktmbuf_free(m);
		chaos_count(q, cause, 1);
		return;
	}
	if (chaos_strikes(q, CHAOS_F_DUP, q->conf.dup)) {
		copy = chaos_copy(q, m, m->pkt_len);
		chaos_count(q, copy != NULL ? CHAOS_N_duplicated : CHAOS_N_nombuf, 1);
	}
	emit(q, m, now);
	if (copy != NULL)
		emit(q, copy, now);
}

static inline void
update_waiting(struct chaos_queue *q)
{
	__atomic_store_n(&q->waiting, q->n_held + q->n_delayed + ready_count(q), __ATOMIC_RELAXED);
}

static inline uint64_t
bytes_of(struct rte_mbuf **pkts, uint16_t n)
{
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < n; i++)
		bytes += pkts[i]->pkt_len;
	return bytes;
}

/* Send what is ready, as far as the wrapped port takes it. */
static void
flush(struct chaos_queue *q)
{
	while (ready_count(q) > 0) {
		uint32_t at = q->ready_head % CHAOS_READY;
		uint16_t n = (uint16_t)RTE_MIN(ready_count(q), CHAOS_READY - at), sent;

		sent = rte_eth_tx_burst(q->port->wrapped, q->id, &q->ready[at], n);
		q->ready_head += sent;
		chaos_count(q, CHAOS_N_port_packets, sent);
		if (sent < n)
			break;
	}
}

static inline void
tx_work(struct chaos_queue *q)
{
	uint64_t now = rte_rdtsc();

	release_held(q, now, 0);
	release_delayed(q, now);
	flush(q);
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
	if (likely(!q->active && q->waiting == 0)) {
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
	for (; i < n && ready_room(q) >= 4; i++) {
		chaos_count(q, CHAOS_N_packets, 1);
		chaos_count(q, CHAOS_N_bytes, pkts[i]->pkt_len);
		process(q, pkts[i], now);
		release_held(q, now, 2);
	}
	tx_work(q);
	update_waiting(q);
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

		if (likely(__atomic_load_n(&q->waiting, __ATOMIC_RELAXED) == 0) ||
			__atomic_exchange_n(&q->busy, 1, __ATOMIC_ACQUIRE))
			continue;
		tx_work(q);
		update_waiting(q);
		__atomic_store_n(&q->busy, 0, __ATOMIC_RELEASE);
	}
}

uint16_t
chaos_rx_burst(void *rxq, struct rte_mbuf **pkts, uint16_t n)
{
	struct chaos_queue *q = rxq;
	uint16_t got, want, out = 0;
	uint64_t now;

	help_tx(q);
	take_settings(q);
	if (likely(!q->active && q->waiting == 0)) {
		out = rte_eth_rx_burst(q->port->wrapped, q->id, pkts, n);
		chaos_count(q, CHAOS_N_port_packets, out);
		goto out;
	}
	/* two places for each packet that comes, so that none is dropped for want of them */
	want = (uint16_t)RTE_MIN((uint32_t)n, ready_room(q) / 2);
	got = want > 0 ? rte_eth_rx_burst(q->port->wrapped, q->id, pkts, want) : 0;
	chaos_count(q, CHAOS_N_port_packets, got);
	now = rte_rdtsc();
	for (uint16_t i = 0; i < got; i++) {
		process(q, pkts[i], now);
		release_held(q, now, 2u * (got - i - 1));
	}
	release_held(q, now, 0);
	release_delayed(q, now);
	while (out < n && ready_count(q) > 0)
		pkts[out++] = q->ready[q->ready_head++ % CHAOS_READY];
	update_waiting(q);
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
chaos_queue_create(struct chaos_port *port, enum chaos_dir dir, uint16_t id, int socket)
{
	struct chaos_queue *q;

	q = rte_zmalloc_socket("net_chaos", sizeof(*q) + port->limit * sizeof(q->delayed[0]),
		RTE_CACHE_LINE_SIZE, socket);
	if (q == NULL)
		return NULL;
	q->port = port;
	q->side = &port->side[dir];
	q->dir = (uint8_t)dir;
	q->id = id;
	q->limit = port->limit;
	chaos_queue_reset(q);
	return q;
}

void
chaos_queue_reset(struct chaos_queue *q)
{
	for (uint32_t i = 0; i < q->n_held; i++)
		rte_pktmbuf_free(q->held[i].m);
	for (uint32_t i = 0; i < q->n_delayed; i++)
		rte_pktmbuf_free(q->delayed[i].m);
	while (ready_count(q) > 0)
		rte_pktmbuf_free(q->ready[q->ready_head++ % CHAOS_READY]);
	q->n_held = 0;
	q->n_delayed = 0;
	q->order = 0;
	update_waiting(q);
	take_settings(q);
	seed(q);
}

void
chaos_queue_free(struct chaos_queue *q)
{
	if (q == NULL)
		return;
	chaos_queue_reset(q);
	rte_free(q);
}
