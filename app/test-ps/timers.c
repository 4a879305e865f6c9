/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What is lost, and what is done about it: rules R6.4, R6.9 and R6.10 of the protocol, in the manner of
 * lib/client. A suspected contribution is not repeated: a header asks what the box knows of it.
 */

#include <rte_common.h>

#include "rounds.h"

#define PTO_MIN    1000 /* us */
#define RTO_MIN    20000
#define RTO_FIRST  100000
#define HELD_FIRST 20000
#define HELD_LOSSY 4000
#define WAIT_MAX   1000000
#define EVIDENCE   8 /* answers to later ones: it is lost, not late */
#define ASK_LOSSY  16
#define ASK        4          /* time-outs of a stream that may ask at once */
#define TOLERATED  (1.0 / 32) /* of the frames; beyond that the window shrinks (R6.10) */

/* Who only reflects answers no question: the contribution goes again. */
static void
reflect_again(struct lane *l, unsigned worker, uint32_t i, uint32_t round)
{
	struct rte_mbuf *m = rounds_contribution(l, worker, i, round, PBOX_F_RETX);

	if (m == NULL)
		return;
	count(l, LS_REPEATED, 1);
	lane_out(l, worker, m);
}

/* A suspected loss: a header asks what the box knows of it (R6.4). */
static void
probe(struct lane *l, unsigned s, uint64_t position, size_t slot)
{
	const struct plan *p = &l->t->plan;
	unsigned e = s % p->endpoints, worker = worker_of(l, s / p->endpoints);
	uint32_t n = fragments_at(p, e);
	const struct fragment *f = &p->f[p->first[e] + position % n];
	uint32_t round = p->round + 1 + (uint32_t)(position / n);
	struct pbox_hdr h = rounds_header(l, worker, f, PBOX_PULL, round);

	l->sent[slot] = (uint32_t)l->now;
	if (l->tries[slot] < UINT8_MAX)
		l->tries[slot]++;
	if (l->t->opt.reflected) {
		reflect_again(l, worker, p->first[e] + (uint32_t)(position % n), round);
		return;
	}
	if (l->state[slot] != SLOT_HELD)
		l->state[slot] = l->newest[s] > position ? SLOT_PROBED : SLOT_ASKED;
	count(l, LS_PROBES, 1);
	lane_frame(l, worker, &l->t->data_to[worker * p->endpoints + e], &h, NULL);
}

static uint32_t
backed_off(uint32_t wait, unsigned shift)
{
	uint64_t v = (uint64_t)wait << (shift < 10 ? shift : 10);

	return v < WAIT_MAX ? (uint32_t)v : WAIT_MAX;
}

/* How long the answer to what a slot sent last may take. */
static uint32_t
patience(const struct lane *l, unsigned s, uint64_t position, size_t slot)
{
	const struct path *p = &l->path[s % l->t->plan.endpoints];
	uint32_t pto = RTE_MAX(p->srtt + 4 * p->rttvar, (uint32_t)PTO_MIN), rto;
	bool lossy = l->now < p->lossy_us;

	rto = RTE_MAX(pto, p->peak + p->peak / 4);
	rto = p->srtt == 0 ? RTO_FIRST : RTE_MAX(rto, (uint32_t)RTO_MIN);
	if (lossy)
		rto = pto;
	if (l->state[slot] == SLOT_HELD)
		return backed_off(
			RTE_MAX(4 * rto, lossy ? (uint32_t)HELD_LOSSY : (uint32_t)HELD_FIRST),
			l->tries[slot] / 2);
	if (p->srtt != 0 && l->newest[s] > position + EVIDENCE && l->tries[slot] == 0)
		return pto;
	return backed_off(rto, l->tries[slot] / 2);
}

static void
scan(struct lane *l, unsigned s)
{
	bool lossy = l->now < l->path[s % l->t->plan.endpoints].lossy_us;
	unsigned asked = 0, most = lossy ? ASK_LOSSY : ASK;
	uint64_t next = l->now + WAIT_MAX;

	for (uint64_t at = l->oldest[s]; at != l->next[s]; at++) {
		size_t slot = (size_t)s * l->slots + (at & (l->slots - 1));
		uint32_t age = (uint32_t)l->now - l->sent[slot], wait;

		if (l->state[slot] == SLOT_DONE)
			continue;
		wait = patience(l, s, at, slot);
		if (age >= wait && asked < most) {
			probe(l, s, at, slot);
			asked++;
			wait = patience(l, s, at, slot);
			age = 0;
		}
		if (l->now + (age < wait ? wait - age : SCAN_US) < next)
			next = l->now + (age < wait ? wait - age : SCAN_US);
	}
	/* evidence and samples may make it sooner */
	l->due[s] = RTE_MIN(next, l->now + 4 * SCAN_US);
}

/* Windows grow while nothing gets lost, and shrink by half of what is lost beyond what a bad link
 * explains (R6.10). */
static void
pace(struct lane *l, struct path *p, double most)
{
	double all = (double)p->answered + p->lost, bad;

	if (l->now - p->epoch_us < RTE_MAX(p->srtt, (uint32_t)SCAN_US) || all < p->window)
		return;
	bad = p->lost / all - TOLERATED;
	bad = (bad > 0 ? bad : 0) + p->marked / all;
	if (bad > 0) {
		double least = most / 8 > 1 ? most / 8 : 1;

		p->window *= 1 - (bad < 1 ? bad : 1) / 2;
		p->window = p->window > least ? p->window : least;
		p->threshold = p->window;
	} else {
		p->window += p->window < p->threshold ? p->window / 2 + 1 : 1;
		p->window = p->window < most ? p->window : most;
	}
	p->answered = p->lost = p->marked = 0;
	p->epoch_us = l->now;
}

static double
granted(const struct lane *l)
{
	const struct testps *t = l->t;
	unsigned most = t->session.window;

	if (t->now.window != 0 && t->now.window < most)
		most = t->now.window;
	return most < l->slots ? most : l->slots;
}

void
timers_look(struct lane *l)
{
	const struct testps *t = l->t;
	uint32_t limit = atomic_load(&t->limit);
	bool idle = true;

	for (unsigned e = 0; e < t->plan.endpoints; e++)
		pace(l, &l->path[e], granted(l));
	for (unsigned s = 0; s < l->streams; s++) {
		bool empty = l->next[s] == l->oldest[s];

		idle &= empty && (l->next_round[s] > limit ||
					 fragments_at(&t->plan, s % t->plan.endpoints) == 0);
		if (!empty && l->now >= l->due[s])
			scan(l, s);
		/* the window or the limit may have grown */
		if (!l->queued[s] && rounds_may_send(l, s))
			rounds_ready(l, s);
	}
	atomic_store(&l->idle, idle);
}
