/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The workers' data side (section 6 of the protocol). A *stream* is what one worker sends to one
 * endpoint: fragments in the order of the plan, round after round, counted by one position. Between
 * `oldest` (the first that is not answered) and `next` lies its window. A stream that may send
 * stands in the ring `ready`; an answer, or the clock of a compute time, puts it there again. So a
 * turn costs what is sent and received, however many workers there are.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_wire_at.h>
#include <rte_common.h>

#include "rounds.h"

#define TURN      8 /* fragments of one worker in a row */
#define SLOTS_MAX 4096
#define GATE_US   20
#define LOSSY_US  200000
#define FIRST_ALL 1024  /* frames of a lane under way at first */
#define SAVED_US  20000 /* of the rate, while nothing can be sent */

/* ---- what may be sent ------------------------------------------------------------------------- */

/* Workers with compute times take one round after another; the others one fragment after another. */
static inline bool
is_gated(const struct lane *l, unsigned k)
{
	return l->t->plan.timed || l->slowest_us[k] > 0 ||
	       atomic_load_explicit(&l->t->straggler, memory_order_relaxed) == (int)worker_of(l, k);
}

bool
rounds_may_send(const struct lane *l, unsigned s)
{
	const struct plan *p = &l->t->plan;
	unsigned e = s % p->endpoints, k = s / p->endpoints;
	uint64_t out = l->next[s] - l->oldest[s];
	uint32_t round = l->next_round[s];

	if (out >= l->slots || out >= fragments_at(p, e) || (double)out >= l->path[e].window)
		return false;
	if (round > l->cap || round > atomic_load_explicit(&l->t->limit, memory_order_relaxed))
		return false;
	if (!is_gated(l, k))
		return true;
	return round == l->round_of[k] &&
	       l->now >= l->start_us[k] + p->f[p->first[e] + l->next_frag[s]].release_us;
}

void
rounds_ready(struct lane *l, unsigned s)
{
	if (l->queued[s])
		return;
	l->queued[s] = 1;
	l->ready[l->ready_tail++ & l->ready_mask] = s;
}

/* ---- sending ------------------------------------------------------------------------------------ */

struct pbox_hdr
rounds_header(const struct lane *l, unsigned worker, const struct fragment *f, enum pbox_type type,
	uint32_t round)
{
	const struct testps *t = l->t;

	return (struct pbox_hdr){.type = (uint8_t)type,
		.token = t->token[worker],
		.job = t->session.job,
		.worker = (uint16_t)worker,
		.incarnation = t->session.incarnation,
		.chunk = f->chunk,
		.frag = f->frag,
		.round = round,
		.map_epoch = t->plan.map_epoch,
		.ts = (uint32_t)l->now};
}

struct rte_mbuf *
rounds_contribution(struct lane *l, unsigned worker, uint32_t i, uint32_t round, unsigned flags)
{
	const struct testps *t = l->t;
	const struct plan *p = &t->plan;
	const struct fragment *f = &p->f[i];
	unsigned pattern = (data_seed(round, i) + worker) % PATTERNS;
	unsigned at = f->length * PATTERNS + pattern;
	struct pbox_hdr h = rounds_header(l, worker, f, PBOX_PUSHPULL, round);
	struct rte_mbuf *m = lane_packet(l, t->copy ? l->frames : l->heads);
	uint8_t *b;

	if (__builtin_expect(m == NULL, 0))
		return NULL;
	h.flags = (uint16_t)(PBOX_F_LAST | flags);
	h.length = (uint16_t)(f->elements * t->data.push_size);
	h.base = round - 1;
	h.format = t->data.push;
	h.aux = PBOX_LR_MUL_ONE;
	h.weight = worker + 1;
	b = rte_pktmbuf_mtod(m, uint8_t *);
	pbox_net_udp_header(&t->data_to[worker * p->endpoints + f->endpoint], b,
		(uint16_t)(PBOX_HDR_LEN + h.length), l->ip_id++);
	pbox_frame_encode(b + PBOX_NET_HEADERS_LEN, &h, t->data.pattern_crc[at]);
	if (t->copy) {
		memcpy(b + FRAME_HEADERS, t->data.pattern[pattern], h.length);
		m->data_len = (uint16_t)(FRAME_HEADERS + h.length);
	} else {
		m->data_len = FRAME_HEADERS;
		m->nb_segs = 2;
		m->next = l->payload[at];
		rte_mbuf_refcnt_update(m->next, 1);
	}
	m->pkt_len = FRAME_HEADERS + h.length;
	return m;
}

/* The next fragment of a stream; false: no packet was to be had. */
static bool
send_next(struct lane *l, unsigned s)
{
	const struct plan *p = &l->t->plan;
	unsigned e = s % p->endpoints, worker = worker_of(l, s / p->endpoints);
	uint32_t i = p->first[e] + l->next_frag[s], round = l->next_round[s];
	size_t slot = (size_t)s * l->slots + (l->next[s] & (l->slots - 1));
	struct rte_mbuf *m = rounds_contribution(l, worker, i, round, 0);

	if (m == NULL)
		return false;
	l->sent[slot] = l->begun[slot] = (uint32_t)l->now;
	l->state[slot] = SLOT_SENT;
	l->tries[slot] = 0;
	if (l->next[s] == l->oldest[s])
		l->due[s] = 0; /* a timer has something to look at */
	l->next[s]++;
	if (++l->next_frag[s] == fragments_at(p, e)) {
		l->next_frag[s] = 0;
		l->next_round[s]++;
	}
	if (round > atomic_load_explicit(&l->round, memory_order_relaxed))
		atomic_store_explicit(&l->round, round, memory_order_relaxed);
	count(l, LS_CONTRIBUTIONS, 1);
	count(l, LS_PUSH_BYTES, p->f[i].elements * l->t->data.push_size);
	lane_out(l, worker, m);
	return true;
}

static void
refill(struct lane *l)
{
	uint64_t rate = atomic_load_explicit(&l->t->rate, memory_order_relaxed);
	double each = (double)rate / l->t->lanes / US_SECOND, most = each * SAVED_US;

	if (rate == 0) {
		l->tokens = 1e9;
		return;
	}
	l->tokens += each * (double)(l->now - l->tokens_us);
	if (l->tokens > (most > 64 ? most : 64))
		l->tokens = most > 64 ? most : 64;
	l->tokens_us = l->now;
}

static bool
room(const struct lane *l)
{
	unsigned most = l->t->opt.burst;

	for (unsigned p = 0; p < l->t->n_ports; p++)
		if (l->out[p].n >= most)
			return false;
	return true;
}

static void
send_ready(struct lane *l)
{
	unsigned budget = l->t->opt.burst;
	uint32_t waiting = l->ready_tail - l->ready_head;

	/* each stream once in a turn, so that one that is stopped by something else does not spin */
	while (waiting-- > 0 && budget > 0 && l->tokens >= 1 && room(l)) {
		unsigned s = l->ready[l->ready_head++ & l->ready_mask], n = 0;

		while (n < TURN && budget > 0 && l->tokens >= 1 && rounds_may_send(l, s)) {
			if (!send_next(l, s)) {
				budget = 0;
				break;
			}
			n++;
			budget--;
			l->tokens -= 1;
		}
		l->queued[s] = 0;
		if (rounds_may_send(l, s))
			rounds_ready(l, s);
	}
}

/* ---- answers -------------------------------------------------------------------------------------- */

struct answer {
	unsigned s, e;
	uint32_t i; /* fragment */
	uint64_t position;
	size_t slot;
};

/* What an answer is about; false: nothing that is under way. */
static bool
find(struct lane *l, unsigned worker, uint32_t chunk, uint32_t frag, uint32_t round,
	struct answer *a)
{
	const struct plan *p = &l->t->plan;
	uint32_t c = chunk - p->first_chunk;

	if (c >= p->chunks || l->next == NULL)
		return false;
	a->i = p->chunk_first[c] + frag;
	if (a->i >= p->n || p->f[a->i].chunk != chunk)
		return false;
	a->e = p->f[a->i].endpoint;
	a->s = worker / l->t->lanes * p->endpoints + a->e;
	a->position =
		(uint64_t)(round - 1 - p->round) * fragments_at(p, a->e) + (a->i - p->first[a->e]);
	if (a->position - l->oldest[a->s] >= l->next[a->s] - l->oldest[a->s])
		return false;
	a->slot = (size_t)a->s * l->slots + (a->position & (l->slots - 1));
	return l->state[a->slot] != SLOT_DONE;
}

static void
sample(struct lane *l, struct path *p, uint32_t ts, uint32_t held)
{
	uint32_t rtt = (uint32_t)l->now - ts - held, dev;

	if (rtt > 60 * US_SECOND) /* held is rounded up */
		rtt = 0;
	if (p->srtt == 0) {
		p->srtt = rtt;
		p->rttvar = rtt / 2;
	}
	dev = rtt > p->srtt ? rtt - p->srtt : p->srtt - rtt;
	p->rttvar = p->rttvar - p->rttvar / 4 + dev / 4;
	p->srtt = p->srtt - p->srtt / 8 + rtt / 8;
	if (l->now - p->peak_us > 50000) {
		p->peak -= p->peak / 8;
		p->peak_us = l->now;
	}
	if (rtt > p->peak) {
		p->peak = rtt;
		p->peak_us = l->now;
	}
}

static void
lost(struct lane *l, unsigned e)
{
	l->path[e].lost++;
	l->path[e].lossy_us = l->now + LOSSY_US;
}

/* A worker's result is complete: its round may be. */
static void
land(struct lane *l, const struct answer *a)
{
	const struct plan *p = &l->t->plan;
	unsigned s = a->s, k = s / p->endpoints;

	l->state[a->slot] = SLOT_DONE;
	if (a->position > l->newest[s])
		l->newest[s] = a->position;
	while (l->oldest[s] != l->next[s] &&
		l->state[(size_t)s * l->slots + (l->oldest[s] & (l->slots - 1))] == SLOT_DONE)
		l->oldest[s]++;
	if (--l->left_of_round[k] == 0) {
		l->left_of_round[k] = p->n;
		l->round_of[k]++;
		l->start_us[k] = l->now + l->slowest_us[k];
		count(l, LS_ROUNDS, 1);
	}
	if (!l->queued[s] && rounds_may_send(l, s))
		rounds_ready(l, s);
}

/* The payload is what it must be and the CRC says so too; else *damaged: or it was not sent so. */
static bool
right(struct lane *l, unsigned worker, const struct answer *a, const uint8_t *head,
	const uint8_t *payload, uint32_t length, bool *damaged)
{
	const struct testps *t = l->t;
	uint32_t crc, round = pbox_ld32(head + PBOX_AT_ROUND);
	const uint8_t *want = NULL;

	if (!t->opt.no_check) {
		want = data_want(&t->data, &l->mirror, &t->plan, a->i, round, worker, &crc);
		if (memcmp(payload, want, length) == 0 &&
			pbox_crc32c(crc, head, PBOX_AT_CRC) == pbox_ld32(head + PBOX_AT_CRC)) {
			*damaged = false;
			count(l, LS_CHECKED, 1);
			return t->opt.reflected ||
			       (pbox_ld16(head + PBOX_AT_AUX) == t->workers &&
				       pbox_ld32(head + PBOX_AT_WEIGHT) ==
					       t->workers * (t->workers + 1) / 2);
		}
	}
	crc = pbox_crc32c(pbox_crc32c(0, payload, length), head, PBOX_AT_CRC);
	*damaged = crc != pbox_ld32(head + PBOX_AT_CRC);
	return !*damaged && t->opt.no_check;
}

void
rounds_result(struct lane *l, unsigned worker, const uint8_t *head, const uint8_t *payload, bool ce)
{
	const struct testps *t = l->t;
	uint32_t round = pbox_ld32(head + PBOX_AT_ROUND), length = pbox_ld16(head + PBOX_AT_LENGTH),
		 ts;
	struct answer a;
	bool damaged;

	if (pbox_ld64(head + PBOX_AT_TOKEN) != t->token[worker] ||
		pbox_ld16(head + PBOX_AT_WORKER) != worker) {
		count(l, LS_DROP_SESSION, 1);
		return;
	}
	if (!find(l, worker, pbox_ld32(head + PBOX_AT_CHUNK), pbox_ld16(head + PBOX_AT_FRAG), round,
		    &a)) {
		count(l, LS_DUPLICATES, 1);
		return;
	}
	if (length != t->plan.f[a.i].elements * t->data.pull_size) {
		count(l, LS_WRONG, 1);
		return;
	}
	if (!right(l, worker, &a, head, payload, length, &damaged)) {
		if (damaged) { /* on its way: it is asked for again */
			count(l, LS_DROP_FRAME, 1);
			return;
		}
		if (l->stats[LS_WRONG] == 0)
			snprintf(l->err.text, sizeof(l->err.text),
				"worker %u, round %u, fragment %u of chunk %u: not the sum", worker,
				round, pbox_ld16(head + PBOX_AT_FRAG),
				pbox_ld32(head + PBOX_AT_CHUNK));
		count(l, LS_WRONG, 1);
	}
	ts = pbox_ld32(head + PBOX_AT_TS);
	if (l->state[a.slot] == SLOT_PROBED && ts == l->sent[a.slot]) {
		count(l, LS_LOST_RESULTS, 1);
		lost(l, a.e);
	}
	l->path[a.e].answered++;
	l->path[a.e].marked += ce || (pbox_ld16(head + PBOX_AT_FLAGS) & PBOX_F_ECE) != 0;
	sample(l, &l->path[a.e], ts, pbox_ld32(head + PBOX_AT_HELD));
	pbox_hist_add(&l->latency, (uint64_t)((uint32_t)l->now - l->begun[a.slot]) * 1000);
	count(l, LS_RESULTS, 1);
	count(l, LS_PULL_BYTES, length);
	land(l, &a);
}

void
rounds_wait(struct lane *l, unsigned worker, const struct pbox_hdr *h)
{
	struct rte_mbuf *m;
	struct answer a;

	count(l, LS_WAITS, 1);
	if (!find(l, worker, h->chunk, h->frag, h->round, &a)) {
		count(l, LS_DUPLICATES, 1);
		return;
	}
	if (h->flags & PBOX_F_HAVE) {
		l->state[a.slot] = SLOT_HELD;
		return;
	}
	/* the contribution was lost (R6.4), or found damaged (R2.5) */
	m = rounds_contribution(l, worker, a.i, h->round, PBOX_F_RETX);
	if (m == NULL)
		return;
	l->sent[a.slot] = (uint32_t)l->now;
	l->state[a.slot] = SLOT_SENT;
	if (l->tries[a.slot] < UINT8_MAX)
		l->tries[a.slot]++;
	l->due[a.s] = 0;
	count(l, LS_REPEATED, 1);
	lost(l, a.e);
	lane_out(l, worker, m);
}

/* ---- a run ---------------------------------------------------------------------------------------- */

/* Compute times that have passed. */
static void
open_gates(struct lane *l)
{
	int straggler = atomic_load(&l->t->straggler);
	unsigned endpoints = l->t->plan.endpoints;

	for (unsigned k = 0; k < l->workers; k++) {
		l->slowest_us[k] =
			straggler == (int)worker_of(l, k) ? atomic_load(&l->t->straggler_us) : 0;
		for (unsigned e = 0; e < endpoints && is_gated(l, k); e++)
			if (!l->queued[k * endpoints + e] && rounds_may_send(l, k * endpoints + e))
				rounds_ready(l, k * endpoints + e);
	}
}

void
rounds_begin(struct lane *l)
{
	l->tokens = 0;
	l->tokens_us = l->now;
	l->cap = NO_LIMIT;
	atomic_store(&l->idle, false);
	for (unsigned k = 0; k < l->workers; k++)
		l->start_us[k] = l->now;
	open_gates(l);
	timers_look(l);
}

void
rounds_turn(struct lane *l)
{
	bool frozen = atomic_load_explicit(&l->frozen, memory_order_relaxed);

	/* main looks for the round to stop behind: until it has told, none begins here */
	if (frozen != atomic_load_explicit(&l->acknowledged, memory_order_relaxed)) {
		l->cap = frozen ? atomic_load(&l->round) : NO_LIMIT;
		atomic_store(&l->acknowledged, frozen);
	}
	if (atomic_load_explicit(&l->t->straggler, memory_order_relaxed) >= 0 || l->t->plan.timed) {
		if (l->now >= l->gate_us) {
			l->gate_us = l->now + GATE_US;
			open_gates(l);
		}
	}
	refill(l);
	send_ready(l);
	if (l->now >= l->scan_us) {
		l->scan_us = l->now + SCAN_US;
		timers_look(l);
	}
}

static void *
zeroed(size_t n, size_t size, bool *good)
{
	void *p = calloc(n > 0 ? n : 1, size);

	*good = *good && p != NULL;
	return p;
}

int
rounds_make(struct lane *l, struct pbox_error *err)
{
	const struct testps *t = l->t;
	unsigned n = l->workers * t->plan.endpoints, most = t->session.window;
	bool good = true;
	double all;

	if (t->now.window != 0 && t->now.window < most)
		most = t->now.window;
	l->streams = n;
	l->slots = rte_align32pow2(RTE_MIN(RTE_MAX(most, 1u), (unsigned)SLOTS_MAX));
	l->ready_mask = rte_align32pow2(n + 1) - 1;
	l->ready_head = l->ready_tail = 0;
	l->next = zeroed(n, sizeof(*l->next), &good);
	l->oldest = zeroed(n, sizeof(*l->oldest), &good);
	l->newest = zeroed(n, sizeof(*l->newest), &good);
	l->due = zeroed(n, sizeof(*l->due), &good);
	l->next_round = zeroed(n, sizeof(*l->next_round), &good);
	l->next_frag = zeroed(n, sizeof(*l->next_frag), &good);
	l->queued = zeroed(n, sizeof(*l->queued), &good);
	l->ready = zeroed(l->ready_mask + 1, sizeof(*l->ready), &good);
	l->sent = zeroed((size_t)n * l->slots, sizeof(*l->sent), &good);
	l->begun = zeroed((size_t)n * l->slots, sizeof(*l->begun), &good);
	l->state = zeroed((size_t)n * l->slots, 1, &good);
	l->tries = zeroed((size_t)n * l->slots, 1, &good);
	l->left_of_round = zeroed(l->workers, sizeof(*l->left_of_round), &good);
	l->round_of = zeroed(l->workers, sizeof(*l->round_of), &good);
	l->start_us = zeroed(l->workers, sizeof(*l->start_us), &good);
	l->slowest_us = zeroed(l->workers, sizeof(*l->slowest_us), &good);
	if (!good || (!t->opt.no_check && mirror_make(&l->mirror, &t->data, &t->plan, err) != 0)) {
		rounds_free(l);
		return good ? -ENOMEM
			    : pbox_fail(err, ENOMEM, "no memory for %u workers", t->workers);
	}
	all = n > 0 ? (double)FIRST_ALL / n : 1;
	for (unsigned e = 0; e < t->plan.endpoints; e++)
		l->path[e] = (struct path){.window = RTE_MIN(all > 1 ? all : 1, (double)most),
			.threshold = most,
			.epoch_us = l->now};
	for (unsigned s = 0; s < n; s++)
		l->next_round[s] = t->plan.round + 1;
	for (unsigned k = 0; k < l->workers; k++) {
		l->left_of_round[k] = t->plan.n;
		l->round_of[k] = t->plan.round + 1;
	}
	atomic_store(&l->round, t->plan.round);
	return 0;
}

void
rounds_free(struct lane *l)
{
	free(l->next);
	free(l->oldest);
	free(l->newest);
	free(l->due);
	free(l->next_round);
	free(l->next_frag);
	free(l->queued);
	free(l->ready);
	free(l->sent);
	free(l->begun);
	free(l->state);
	free(l->tries);
	free(l->left_of_round);
	free(l->round_of);
	free(l->start_us);
	free(l->slowest_us);
	mirror_free(&l->mirror);
	l->next = l->oldest = l->newest = l->due = l->start_us = NULL;
	l->next_round = l->next_frag = l->sent = l->begun = l->ready = NULL;
	l->left_of_round = l->round_of = l->slowest_us = NULL;
	l->queued = l->state = l->tries = NULL;
	l->streams = 0;
}
