/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The workers' data side (section 6 of the protocol). A *stream* is what one worker sends to one
 * endpoint: fragments in the order of the plan, round after round, counted by one position. Between
 * `oldest` (the first that is not answered) and `next` lies its window. A stream that may send
 * is in the ring `ready`; an answer, or the clock of a compute time, puts it there again. So a
 * turn costs what is sent and received, however many workers there are.
 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "rounds.h"

#define TURN        8 /* fragments of one worker in a row */
#define FLIGHTS_MAX 4096
#define SPAN \
	8 /* windows that a worker may go ahead of its oldest fragment, while that is recovered */
#define GATE_US   20
#define FIRST_ALL 1024  /* frames of a lane under way at first */
#define SAVED_US  20000 /* of the rate, while nothing can be sent */
#define SAVED     8     /* contributions of each worker, at least */
#define PAUSE_US  1000  /* no turn takes so long */

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
	const struct stream *x = &l->stream[s];
	uint64_t span = x->next - x->oldest;
	uint32_t round = x->next_round;

	if (span >= l->flights || span >= fragments_at(p, x->e) || x->under_way >= l->most ||
		(double)(x->under_way - x->at_box) >= l->path[x->e].window)
		return false;
	if (round > l->cap || round > atomic_load_explicit(&l->t->limit, memory_order_relaxed))
		return false;
	if (!is_gated(l, x->k))
		return true;
	return round == l->round_of[x->k] &&
	       l->now >= l->start_us[x->k] + p->f[p->first[x->e] + x->next_frag].release_us;
}

void
rounds_ready(struct lane *l, unsigned s)
{
	if (l->stream[s].queued)
		return;
	l->stream[s].queued = true;
	l->need = 0;
	l->ready[l->ready_tail++ & l->ready_mask] = s;
}

/* ---- sending ------------------------------------------------------------------------------------ */

/* The tag after a payload that others share, in segments that only this frame has. */
static bool
tagged_payload(struct lane *l, struct rte_mbuf *m, struct rte_mbuf *shared, const uint8_t *tag)
{
	struct rte_mbuf *payload = lane_packet(l, l->heads), *last = lane_packet(l, l->heads);

	if (payload == NULL || last == NULL) {
		rte_pktmbuf_free(payload);
		rte_pktmbuf_free(last);
		return false;
	}
	rte_pktmbuf_attach(payload, shared);
	memcpy(rte_pktmbuf_mtod(last, uint8_t *), tag, PBOX_TAG_LEN);
	last->data_len = PBOX_TAG_LEN;
	payload->next = last;
	m->next = payload;
	m->nb_segs = 3;
	return true;
}

/* What a worker sends; @p at: which packet has it (lane.payload), but in formats of blocks. */
static inline struct wanted
own_payload(const struct lane *l, unsigned worker, uint32_t i, uint32_t round, unsigned *at)
{
	const struct data *d = &l->t->data;
	unsigned pattern = (data_seed(round, i) + worker) % PATTERNS;
	struct wanted own;

	*at = l->t->plan.f[i].length * PATTERNS + pattern;
	if (l->blocks == NULL)
		return (struct wanted){
			d->pattern[pattern], d->pattern_digest[*at], d->pattern_crc[*at], pattern};
	blocks_payload(l->blocks, i, round, worker, &own);
	return own;
}

struct rte_mbuf *
rounds_contribution(struct lane *l, unsigned worker, uint32_t i, uint32_t round, unsigned flags)
{
	const struct testps *t = l->t;
	const struct plan *p = &t->plan;
	const struct fragment *f = &p->f[i];
	bool copy = t->copy || l->blocks != NULL;
	unsigned at;
	const struct wanted own = own_payload(l, worker, i, round, &at);
	const struct pbox_push_rounds push = {
		.round = round, .from = round - 1, .samples = worker + 1};
	struct pbox_hdr h = rounds_header(l, worker, f, PBOX_PUSHPULL, round);
	struct rte_mbuf *m = copy ? lane_packet(l, l->frames) : lane_head(l);
	unsigned len = tag_of(l);
	uint8_t *b, tag[PBOX_TAG_LEN];

	if (__builtin_expect(m == NULL, 0))
		return NULL;
	h.flags = (uint16_t)(PBOX_F_LAST | flags | (len > 0 ? PBOX_F_AUTH : 0));
	h.length = (uint16_t)pbox_payload_bytes(t->data.push, f->elements);
	h.format = t->data.push;
	h.fmt_arg = (uint8_t)pbox_format_arg(t->data.push);
	pbox_push_rounds_put(&h, &push);
	b = rte_pktmbuf_mtod(m, uint8_t *);
	pbox_net_udp_header(&t->data_to[worker * p->endpoints + f->endpoint], b,
		(uint16_t)(PBOX_HDR_LEN + h.length + len), l->ip_id++);
	pbox_frame_encode(b + PBOX_NET_HEADERS_LEN, &h, own.crc);
	if (len > 0)
		pbox_auth_tag(t->keys[worker].worker, b + PBOX_NET_HEADERS_LEN, own.digest, tag);
	if (copy) {
		memcpy(b + FRAME_HEADERS, own.payload, h.length);
		memcpy(b + FRAME_HEADERS + h.length, tag, len);
		m->data_len = (uint16_t)(FRAME_HEADERS + h.length + len);
	} else if (len > 0) {
		m->data_len = FRAME_HEADERS;
		if (!tagged_payload(l, m, l->payload[at], tag)) {
			rte_pktmbuf_free(m);
			return NULL;
		}
	} else {
		m->data_len = FRAME_HEADERS;
		m->nb_segs = 2;
		m->next = l->payload[at];
		rte_mbuf_refcnt_update(m->next, 1);
	}
	m->pkt_len = FRAME_HEADERS + h.length + len;
	return m;
}

/* The next fragment of a stream; false: no packet was to be had. */
static bool
send_next(struct lane *l, unsigned s)
{
	const struct plan *p = &l->t->plan;
	struct stream *x = &l->stream[s];
	unsigned worker = worker_of(l, x->k);
	uint32_t i = p->first[x->e] + x->next_frag, round = x->next_round;
	struct rte_mbuf *m = rounds_contribution(l, worker, i, round, 0);

	if (m == NULL)
		return false;
	*lane_flight_of(l, s, x->next) = (struct flight){.sent = (uint32_t)l->now,
		.begun = (uint32_t)l->now,
		.behind = (uint32_t)x->next,
		.state = FLIGHT_SENT};
	if (x->next == x->oldest)
		x->due = 0; /* a timer has something to look at */
	x->next++;
	x->under_way++;
	if (++x->next_frag == fragments_at(p, x->e)) {
		x->next_frag = 0;
		x->next_round++;
	}
	if (round > atomic_load_explicit(&l->round, memory_order_relaxed))
		atomic_store_explicit(&l->round, round, memory_order_relaxed);
	lane_count(l, LS_CONTRIBUTIONS, 1);
	lane_count(l, LS_PUSH_BYTES, pbox_payload_bytes(l->t->data.push, p->f[i].elements));
	lane_out(l, worker, m);
	return true;
}

/* A rate begins to count. */
static void
pace_begin(struct lane *l)
{
	for (unsigned s = 0; s < l->streams; s++) {
		const struct stream *x = &l->stream[s];
		uint64_t *from = &l->pace_from[x->e];

		if (x->k == 0 || x->next < *from)
			*from = x->next;
	}
	l->allowance = 0;
	l->paced = 0;
	l->need = 0;
	l->tokens_us = l->now;
}

/* At a given rate all workers send the same fragments at the same time: none may run ahead, or what is measured is
 * how long the others take. Without one there is no allowance. */
static double
allowance_for_next(const struct lane *l, unsigned s)
{
	const struct plan *p = &l->t->plan;
	const struct stream *x = &l->stream[s];

	if (isinf(l->allowance))
		return 0;
	return (double)(x->next - l->pace_from[x->e] + 1) * p->n / fragments_at(p, x->e);
}

static void
rounds_refill(struct lane *l)
{
	uint64_t rate = atomic_load_explicit(&l->t->rate, memory_order_relaxed);
	double each = (double)rate / l->t->workers / US_SECOND, most = each * SAVED_US, sent;

	if (rate == 0) {
		l->tokens = 1e9;
		l->allowance = INFINITY;
		return;
	}
	if (isinf(l->allowance))
		pace_begin(l);
	sent = (double)l->paced / l->workers;
	l->allowance += each * (double)(l->now - l->tokens_us);
	l->allowance = fmin(l->allowance, sent + fmax(most, SAVED));
	l->tokens = (l->allowance - sent) * l->workers;
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
	double need = INFINITY;

	if (l->allowance < l->need)
		return;
	/* each stream once in a turn, so that one that is stopped by something else does not spin */
	for (; waiting > 0 && budget > 0 && l->tokens >= 1 && room(l); waiting--) {
		unsigned s = l->ready[l->ready_head++ & l->ready_mask], n = 0;

		while (n < TURN && budget > 0 && l->tokens >= 1 && rounds_may_send(l, s) &&
			allowance_for_next(l, s) <= l->allowance) {
			if (!send_next(l, s)) {
				budget = 0;
				break;
			}
			n++;
			budget--;
			l->tokens -= 1;
			l->paced++;
		}
		l->stream[s].queued = false;
		if (rounds_may_send(l, s)) {
			need = fmin(need, allowance_for_next(l, s));
			rounds_ready(l, s);
		}
	}
	l->need = waiting == 0 ? need : 0;
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
			if (!l->stream[k * endpoints + e].queued &&
				rounds_may_send(l, k * endpoints + e))
				rounds_ready(l, k * endpoints + e);
	}
}

/* The box does not know what was under way, or it does: timers ask about all of it. */
static void
ask_again(struct lane *l)
{
	for (unsigned s = 0; s < l->streams; s++) {
		struct stream *x = &l->stream[s];

		x->due = 0;
		x->judged = x->oldest;
		for (uint64_t at = x->oldest; at != x->next; at++) {
			struct flight *flight = lane_flight_of(l, s, at);

			if (flight->state == FLIGHT_DONE)
				continue;
			flight_enter(x, flight, FLIGHT_SENT);
			flight->sent = (uint32_t)l->now;
			flight->tries = 0;
		}
	}
	for (unsigned e = 0; e < l->t->plan.endpoints; e++) {
		struct path *p = &l->path[e];

		*p = (struct path){.window = p->window,
			.threshold = p->threshold,
			.thresh = EVIDENCE,
			.rtt_min = UINT32_MAX,
			.rtt_least = UINT32_MAX,
			.epoch_us = l->now};
	}
	atomic_store(&l->again, false);
}

void
rounds_begin(struct lane *l)
{
	if (atomic_load(&l->again))
		ask_again(l);
	l->tokens = 0;
	pace_begin(l);
	l->turn_us = l->now;
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

	if (__builtin_expect(l->now - l->turn_us >= PAUSE_US, 0))
		lane_count(l, LS_STOOD_STILL, l->now - l->turn_us);
	l->turn_us = l->now;
	/* main looks for the last round: until it has found it, none begins here */
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
	rounds_refill(l);
	send_ready(l);
	if (l->now >= l->scan_us)
		timers_look(l);
}

static void *
zeroed(size_t n, size_t size, bool *good)
{
	size_t bytes = RTE_ALIGN_CEIL((n > 0 ? n : 1) * size, (size_t)RTE_CACHE_LINE_SIZE);
	void *p = aligned_alloc(RTE_CACHE_LINE_SIZE, bytes);

	*good = *good && p != NULL;
	return p != NULL ? memset(p, 0, bytes) : NULL;
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
	l->most = RTE_MIN(RTE_MAX(most, 1u), (unsigned)FLIGHTS_MAX);
	l->flights = rte_align32pow2(RTE_MIN(l->most * SPAN, (unsigned)FLIGHTS_MAX));
	l->ready_mask = rte_align32pow2(n + 1) - 1;
	l->ready_head = l->ready_tail = 0;
	l->stream = zeroed(n, sizeof(*l->stream), &good);
	l->ready = zeroed(l->ready_mask + 1, sizeof(*l->ready), &good);
	l->flight = zeroed((size_t)n * l->flights, sizeof(*l->flight), &good);
	l->left_of_round = zeroed(l->workers, sizeof(*l->left_of_round), &good);
	l->round_of = zeroed(l->workers, sizeof(*l->round_of), &good);
	l->start_us = zeroed(l->workers, sizeof(*l->start_us), &good);
	l->slowest_us = zeroed(l->workers, sizeof(*l->slowest_us), &good);
	if (good && t->data.made != t->data.push) {
		l->blocks = blocks_make(&t->data, &t->plan);
		good = l->blocks != NULL;
	}
	if (!good ||
		(!t->opt.no_check && reference_make(&l->reference, &t->data, &t->plan, err) != 0)) {
		rounds_free(l);
		return good ? -ENOMEM
			    : pbox_fail(err, ENOMEM, "no memory for %u workers", t->workers);
	}
	all = n > 0 ? (double)FIRST_ALL / n : 1;
	for (unsigned e = 0; e < t->plan.endpoints; e++)
		l->path[e] = (struct path){.window = RTE_MIN(all > 1 ? all : 1, (double)most),
			.threshold = most,
			.thresh = EVIDENCE,
			.rtt_min = UINT32_MAX,
			.rtt_least = UINT32_MAX,
			.epoch_us = l->now};
	for (unsigned s = 0; s < n; s++)
		l->stream[s] = (struct stream){.next_round = t->plan.round + 1,
			.k = (uint16_t)(s / t->plan.endpoints),
			.e = (uint16_t)(s % t->plan.endpoints)};
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
	free(l->stream);
	free(l->ready);
	free(l->flight);
	free(l->left_of_round);
	free(l->round_of);
	free(l->start_us);
	free(l->slowest_us);
	reference_free(&l->reference);
	blocks_free(l->blocks, &l->t->plan);
	l->blocks = NULL;
	l->stream = NULL;
	l->flight = NULL;
	l->start_us = NULL;
	l->ready = l->left_of_round = l->round_of = l->slowest_us = NULL;
	l->streams = 0;
}
