/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What is lost, and what is done about it: rules R6.4, R6.9 and R6.10 of the protocol, in the manner of
 * lib/client. A suspected contribution is not repeated: a header asks what the box knows of it. Answers to what was
 * sent later are evidence, at once for each fragment and after one round trip; timers are for what has nothing after it,
 * and ask for a few while nothing is answered. A window counts what is under way and not known to be at the box, so that it goes
 * on while any number of fragments are recovered. Where frames were lost of late, timers are as long as round trips are,
 * and are looked at as often: a sweep over losses is to show the box and the network, and not how long the tester waits.
 */

#include <rte_common.h>

#include "rounds.h"

#define PTO_MIN    200 /* us */
#define RTO_MIN    20000
#define RTO_FIRST  100000
#define HELD_FIRST (PBOX_RECOVERY_HELD * US_MS)
#define HELD_LOSSY 1000 /* the result may be among the lost ones */
#define WAIT_MAX   (PBOX_RECOVERY_LONGEST * US_MS)
#define ASKED_MAX  (PBOX_RECOVERY_PROBED * US_MS)
#define SCAN_LOSSY 100
#define ASK_LOSSY  16
#define ASK        4   /* time-outs of a stream that may ask at once */
#define ALL        256 /* frames under way of all workers, at an endpoint */
#define LEAST      4   /* of each */

/* Who only reflects answers no question: the contribution goes again. */
static void
reflect_again(struct lane *l, unsigned worker, uint32_t i, uint32_t round)
{
	struct rte_mbuf *m = rounds_contribution(l, worker, i, round, PBOX_F_RETX);

	if (m == NULL)
		return;
	lane_count(l, LS_REPEATED, 1);
	lane_out(l, worker, m);
}

/* A suspected loss: a header asks what the box knows of it (R6.4). */
static void
probe(struct lane *l, struct stream *x, uint64_t position, struct flight *flight)
{
	const struct plan *p = &l->t->plan;
	unsigned e = x->e, worker = worker_of(l, x->k);
	uint32_t n = fragments_at(p, e);
	const struct fragment *f = &p->f[p->first[e] + position % n];
	uint32_t round = p->round + 1 + (uint32_t)(position / n);
	struct pbox_hdr h = rounds_header(l, worker, f, PBOX_PULL, round);

	flight->sent = (uint32_t)l->now;
	flight->behind = (uint32_t)x->next;
	if (flight->tries < UINT8_MAX)
		flight->tries++;
	if (l->t->opt.reflected) {
		reflect_again(l, worker, p->first[e] + (uint32_t)(position % n), round);
		return;
	}
	if (flight->state != FLIGHT_AT_BOX)
		flight_enter(x, flight, x->newest > position ? FLIGHT_PROBED : FLIGHT_ASKED);
	lane_count(l, LS_PROBES, 1);
	lane_frame(l, worker, &l->t->data_to[worker * p->endpoints + e], &h, NULL);
}

static uint32_t
backed_off(uint32_t wait, unsigned shift, uint32_t most)
{
	uint64_t v = (uint64_t)wait << (shift < 10 ? shift : 10);

	return v < most ? (uint32_t)v : most;
}

/* As evidence: so many results of what was sent later. Workers send in the same order, so that results come in it. */
static uint32_t
timers_gap(const struct path *p, const struct flight *flight)
{
	uint32_t most =
		flight->state == FLIGHT_AT_BOX ? p->thresh + (uint32_t)p->window : p->thresh;

	return most << RTE_MIN((unsigned)flight->tries, (unsigned)PBOX_RECOVERY_SHIFT);
}

static bool
timers_is_proven(const struct path *p, const struct stream *x, const struct flight *flight)
{
	return p->srtt != 0 &&
	       (int32_t)((uint32_t)x->newest - flight->behind) > (int32_t)timers_gap(p, flight);
}

/* How long the answer to what was sent last of a fragment may take. */
static uint32_t
patience(const struct lane *l, const struct stream *x, const struct flight *flight)
{
	const struct path *p = &l->path[x->e];
	uint32_t pto = RTE_MAX(p->srtt + 4 * p->rttvar, (uint32_t)PTO_MIN), rto, wait;
	bool lossy = l->now < p->lossy_us, few = x->under_way - x->at_box < PBOX_RECOVERY_FEW;

	if (flight->tries > 0 && timers_is_proven(p, x, flight))
		return p->srtt;
	/* where few are under way all may be lost; else the box pauses, as it did before */
	rto = lossy && few ? pto : RTE_MAX(pto, p->peak + p->peak / 4);
	if (!lossy || p->srtt == 0)
		rto = p->srtt == 0 ? RTO_FIRST : RTE_MAX(rto, (uint32_t)RTO_MIN);
	if (flight->state == FLIGHT_AT_BOX) {
		wait = lossy ? RTE_MAX(2 * rto, (uint32_t)HELD_LOSSY)
			     : RTE_MAX(4 * rto, (uint32_t)HELD_FIRST);
		/* where the result is lost after many questions about a late worker, they are no reason to wait longer */
		return lossy ? wait : backed_off(wait, flight->tries / 2, WAIT_MAX);
	}
	return backed_off(rto, flight->tries / 2, RTE_MAX(rto, (uint32_t)ASKED_MAX));
}

/* What was sent once is judged once: in order, as results come. */
void
timers_evidence(struct lane *l, unsigned s)
{
	struct stream *x = &l->stream[s];
	const struct path *p = &l->path[x->e];

	x->judged = RTE_MAX(x->judged, x->oldest);
	for (; x->judged + p->thresh < x->newest; x->judged++) {
		struct flight *flight = lane_flight_of(l, s, x->judged);

		if (flight->state != FLIGHT_SENT || flight->tries > 0)
			continue;
		if ((uint32_t)l->now - flight->sent < p->srtt)
			return;
		probe(l, x, x->judged, flight);
		x->due = RTE_MIN(x->due, l->now + SCAN_LOSSY);
	}
}

static void
scan(struct lane *l, unsigned s)
{
	struct stream *x = &l->stream[s];
	bool lossy = l->now < l->path[x->e].lossy_us;
	unsigned asked = 0, doubts = 0, most = lossy ? ASK_LOSSY : ASK;
	uint64_t next = l->now + WAIT_MAX;

	for (uint64_t at = x->oldest; at != x->next; at++) {
		struct flight *flight = lane_flight_of(l, s, at);
		bool fresh = flight->state == FLIGHT_SENT && flight->tries == 0;
		uint32_t age, wait;

		if (flight->state == FLIGHT_DONE)
			continue;
		age = (uint32_t)l->now - flight->sent;
		if (fresh) /* while results come, they are evidence */
			age = RTE_MIN(age, (uint32_t)l->now - x->quiet_us);
		wait = patience(l, x, flight);
		if (age >= wait && asked < most && (!fresh || doubts < ASK)) {
			probe(l, x, at, flight);
			asked++;
			doubts += fresh;
			wait = patience(l, x, flight);
			age = 0;
		}
		if (l->now + (age < wait ? wait - age : SCAN_US) < next)
			next = l->now + (age < wait ? wait - age : SCAN_US);
	}
	if (doubts > 0) /* the answers to these say something about the others */
		x->quiet_us = (uint32_t)l->now;
	/* evidence and samples may make it sooner */
	x->due = RTE_MIN(next, l->now + (lossy ? SCAN_LOSSY : 4 * SCAN_US));
}

/* Windows grow while nothing gets lost, and shrink by half of what is lost beyond what a bad link
 * explains (R6.10). */
static void
pace(const struct lane *l, struct path *p, double most)
{
	double all = (double)p->answered + p->lost, bad;

	if (l->now - p->epoch_us < RTE_MAX(p->srtt, (uint32_t)SCAN_US) || all < p->window)
		return;
	if (l->now > p->epoch_us && p->rtt_min < UINT32_MAX)
		p->holds = (double)p->answered * p->rtt_min / (double)(l->now - p->epoch_us);
	p->rtt_min = p->rtt_least; /* of the epoch before and this one */
	p->rtt_least = UINT32_MAX;
	bad = p->lost / all - PBOX_RECOVERY_TOLERATED;
	bad = (bad > 0 ? bad : 0) + p->marked / all;
	if (bad > 0) {
		/* an eighth of what the box has granted is safe, and most of it is not used anyway */
		double least = RTE_MAX(1.0, RTE_MIN(most, l->most / 8.0));

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

/* What a worker may have under way. Without a word of the user: as much of all workers together as the way holds
 * twice (rate by shortest round trip), and at least ALL. More waits in queues, where it falls out of caches. */
static double
granted(const struct lane *l, const struct path *p)
{
	const struct testps *t = l->t;
	double most = l->most, all;

	if (t->now.window != 0)
		return RTE_MIN(most, (double)t->now.window);
	all = RTE_MAX((double)ALL, 2 * p->holds) / RTE_MAX(l->streams, 1u);
	return RTE_MIN(most, RTE_MAX(all, (double)LEAST));
}

void
timers_look(struct lane *l)
{
	const struct testps *t = l->t;
	uint32_t limit = atomic_load(&t->limit);
	bool idle = true, lossy = false;

	for (unsigned e = 0; e < t->plan.endpoints; e++) {
		pace(l, &l->path[e], granted(l, &l->path[e]));
		lossy |= l->now < l->path[e].lossy_us;
	}
	l->scan_us = l->now + (lossy ? SCAN_LOSSY : SCAN_US);
	for (unsigned s = 0; s < l->streams; s++) {
		const struct stream *x = &l->stream[s];
		bool empty = x->next == x->oldest;

		idle &= empty && (x->next_round > limit || fragments_at(&t->plan, x->e) == 0);
		if (!empty && l->now >= x->due)
			scan(l, s);
		/* the window or the limit may have grown */
		if (!x->queued && rounds_may_send(l, s))
			rounds_ready(l, s);
	}
	atomic_store(&l->idle, idle);
}
