/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Whether a new plan is worth it, the plan, and why. */

#include <errno.h>
#include <math.h>

#include "work_impl.h"

#define GAIN        0.05
#define GAIN_ERRORS 5
#define GAIN_ROUNDS 3
/* a worker is said to be slower or faster from here on */
#define RATIO_SAID 1.05

/* A slot is so much of the rest of a worker's round at least: less is not to be seen there. So a search ends after some steps, and what is
 * too much at its end are single slots, whatever workers report. */
#define PART_LEAST 1e-7

/* What a call does, in steps: looks at a worker, most of them. */
#define MEDIAN_STEPS 10
#define NODES_STEPS  4
#define ALIGN_STEPS  (PBOX_WORK_PIECE / 8)

/* A worker that nobody has measured is as the median of the others; false: they are not either. */
static bool
fill_unmeasured(struct pbox_work *work, unsigned f)
{
	double value, noise;
	unsigned n = 0;

	for (unsigned i = 0; i < work->conf.workers; i++)
		if (work->worker[i].member && work->worker[i].figure[f].samples > 0)
			work->load[n++] = work->worker[i].figure[f].value;
	if (n == 0 && f == WORK_SLOT)
		return false;
	value = n > 0 ? work_median(work->load, n) : 0;
	noise = 0.1 * value;
	for (unsigned i = 0; i < work->conf.workers; i++)
		if (work->worker[i].member && !work->worker[i].figure[f].known)
			work_estimate_begin(&work->worker[i].figure[f], value, noise);
	return true;
}

static double
error_of(const struct pbox_work *work, unsigned i)
{
	const struct work_estimate *f = work->worker[i].figure;
	double slot = work->count[i] * work_estimate_error(&f[WORK_SLOT]);
	double up = work->nodes[i] * work_estimate_error(&f[WORK_UP]);
	double fixed = work_estimate_error(&f[WORK_FIXED]);
	double down = work_estimate_error(&f[WORK_DOWN]);

	return sqrt(slot * slot + up * up + fixed * fixed + down * down);
}

/* Borders at multiples of 2^level, and a slot at least for who must have one; the seconds of a round then. */
static double
round_borders(struct pbox_work *work, unsigned level, unsigned *nodes)
{
	unsigned n = work->conf.workers, v = work->conf.slots, half = 1u << level >> 1, rest = 0;

	for (unsigned i = 0; i < n; i++)
		rest += work->cost[i].least;
	for (unsigned i = 1; i < n; i++) {
		unsigned at = (work->first[i] + half) >> level << level;
		unsigned least = work->first[i - 1] + work->cost[i - 1].least;

		rest -= work->cost[i - 1].least;
		at = at < least ? least : at;
		work->first[i] = (uint16_t)(at > v - rest ? v - rest : at);
	}
	return work_predict(work->cost, n, work->first, nodes);
}

/* Its costs, in bounds; *late: they are what it has not reported yet. */
static void
bounded_cost(struct pbox_work *work, unsigned i, double at, bool *late)
{
	struct pbox_work_cost *c = &work->cost[i];

	*late = false;
	work_cost_of(work, i, c);
	if (at > 0)
		c->slot = work_max(c->slot, work_slot_if_late(work, i, at, late));
	if (!work->decision.weighed.measured)
		c->slot = 1;
	c->slot = work_max(c->slot, PART_LEAST * (c->fixed + c->up + c->down));
}

/* The plan in force. */
static void
weigh_plan(struct pbox_work *work, double at)
{
	struct work_weighed *g = &work->decision.weighed;
	unsigned last = 0;

	work_count_owned(work, work->plan[work->current].owner);
	for (unsigned i = 0; i < work->conf.workers; i++) {
		struct work_worker *w = &work->worker[i];
		bool late;
		double t;

		bounded_cost(work, i, at, &late);
		w->weighed = w->changed;
		g->changed |= late || w->changed;
		t = work_time(&work->cost[i], work->count[i], work->nodes[i]);
		g->nodes_now += work->nodes[i];
		if (t > g->now) {
			g->now = t;
			last = i;
		}
	}
	g->error = error_of(work, last);
	work_search_begin(&work->decision.search, work->cost, work->conf.workers, work->conf.slots);
}

/* Mostly there is nothing to gain, and no need to look for borders. */
static enum work_phase
end_bound(struct pbox_work *work)
{
	struct work_decision *d = &work->decision;
	struct work_weighed *g = &d->weighed;

	g->next = d->search.high;
	if (!work->forced && g->now - g->next <= GAIN * g->now)
		return WORK_DECIDED;
	work->steps += work_align_begin(&d->align, work->cost, work->conf.workers, work->conf.slots,
		work->first, work->spare, g->next);
	return WORK_ALIGNS;
}

static enum work_phase
end_aligning(struct pbox_work *work)
{
	struct work_decision *d = &work->decision;

	d->weighed.next = d->align.seconds;
	d->weighed.nodes_next = d->align.nodes;
	d->at = 1;
	return WORK_LEVELS;
}

/* For more nodes there is no room: borders at multiples of ever larger powers of 2. */
static bool
are_too_many(const struct pbox_work *work)
{
	const struct work_decision *d = &work->decision;

	return work->conf.nodes_most != 0 && d->weighed.nodes_next > work->conf.nodes_most &&
	       d->at <= PBOX_MAX_LEVEL;
}

/* One step of a decision, or some that are cheap. */
static enum work_phase
decide_step(struct pbox_work *work, double at)
{
	struct work_decision *d = &work->decision;
	unsigned n = work->conf.workers, v = work->conf.slots;

	switch (d->phase) {
	case WORK_FILLS:
		work->steps += MEDIAN_STEPS * n;
		d->weighed.measured = fill_unmeasured(work, d->at);
		return d->weighed.measured && ++d->at < WORK_FIGURES ? WORK_FILLS : WORK_WEIGHS;
	case WORK_WEIGHS:
		work->steps += NODES_STEPS * n + v;
		weigh_plan(work, at);
		return WORK_BOUND;
	case WORK_BOUND:
		work->steps += n;
		if (work_search_step(&d->search, work->cost, n, v))
			return WORK_BOUND;
		return end_bound(work);
	case WORK_ALIGNS:
		return work_align_step(&d->align, ALIGN_STEPS, &work->steps) ? WORK_ALIGNS
									     : end_aligning(work);
	case WORK_LEVELS:
		if (!are_too_many(work))
			return WORK_DECIDED;
		work->steps += (1 + NODES_STEPS) * n;
		d->weighed.next = round_borders(work, d->at++, &d->weighed.nodes_next);
		return WORK_LEVELS;
	default:
		return WORK_DECIDED;
	}
}

/* More than a little, more than the noise, and not once alone. */
static bool
is_due(struct pbox_work *work, const struct work_weighed *g)
{
	double gain = g->now - g->next;

	if (!g->measured || gain <= GAIN * g->now || gain <= GAIN_ERRORS * g->error) {
		work->gained = 0;
		return false;
	}
	if (g->changed)
		return true;
	if (work->gained == 0 || work->gained_round != work->round)
		work->gained++;
	work->gained_round = work->round;
	return work->gained >= GAIN_ROUNDS;
}

static double
ratio_to_others(struct pbox_work *work, unsigned worker, bool slots)
{
	const struct pbox_work_cost *c = work->cost;
	double own = slots ? c[worker].slot : c[worker].fixed + c[worker].up + c[worker].down;
	double median;
	unsigned n = 0;

	for (unsigned i = 0; i < work->conf.workers; i++)
		if (i != worker && work->worker[i].member)
			work->load[n++] = slots ? c[i].slot : c[i].fixed + c[i].up + c[i].down;
	if (n == 0)
		return 1;
	median = work_median(work->load, n);
	return median > 0 ? own / median : own > 0 ? INFINITY : 1;
}

static unsigned
next_slots(const struct pbox_work *work, unsigned i)
{
	return work->first[i + 1] - work->first[i];
}

/* Of the workers whose slots change, the one with the largest part of its time; those that changed their speed come first. */
static unsigned
most_changed(const struct pbox_work *work)
{
	double most = -1;
	unsigned worker = 0;

	for (unsigned i = 0; i < work->conf.workers; i++) {
		double d = fabs((double)next_slots(work, i) - work->count[i]) * work->cost[i].slot;

		if (work->worker[i].changed && d > 0)
			d += 1e9;
		if (d > most) {
			most = d;
			worker = i;
		}
	}
	return worker;
}

static bool
is_other(double ratio)
{
	return ratio > RATIO_SAID || ratio * RATIO_SAID < 1;
}

static void
explain(struct pbox_work *work, const struct work_weighed *g, struct pbox_work_reason *why)
{
	unsigned w = work->forced ? work->force.worker : most_changed(work);
	double slots = ratio_to_others(work, w, true), traffic;

	*why = work->force;
	if (!work->forced)
		*why = (struct pbox_work_reason){
			.cause = PBOX_WORK_SPEED, .since = work->worker[w].since, .ratio = slots};
	why->worker = (uint16_t)w;
	why->before = work->count[w];
	why->after = (uint16_t)next_slots(work, w);
	why->gain = g->measured && g->now > 0 ? 1 - g->next / g->now : 0;
	why->fits = !work->worker[w].no_memory;
	if (why->cause != PBOX_WORK_SPEED || is_other(slots))
		return;
	traffic = ratio_to_others(work, w, false);
	if (is_other(traffic)) {
		why->cause = PBOX_WORK_TRAFFIC;
		why->ratio = traffic;
	} else if (g->nodes_now != g->nodes_next) {
		why->cause = PBOX_WORK_PAYLOADS;
		why->before = (uint16_t)g->nodes_now;
		why->after = (uint16_t)g->nodes_next;
	}
}

static void
write_plan(struct pbox_work *work, const struct work_weighed *g, uint32_t from_round)
{
	struct work_plan *p = &work->plan[!work->current];

	p->pub.number = ++work->numbered;
	p->pub.from_round = from_round;
	p->pub.seconds = g->measured ? g->next : 0;
	for (unsigned i = 0; i < work->conf.workers; i++) {
		unsigned first = work->first[i], end = work->first[i + 1];
		double finish = work_time(
			&work->cost[i], end - first, work_nodes(first, end, work->conf.slots));

		p->finish[i] = g->measured ? finish : 0;
		for (unsigned s = first; s < end; s++)
			p->owner[s] = (uint16_t)i;
		work->worker[i].changed &= !work->worker[i].weighed;
	}
	work->pending = true;
	work->forced = false;
	work->gained = 0;
}

static int
fail_without_memory(const struct pbox_work *work, struct pbox_error *err)
{
	unsigned members = 0;

	for (unsigned i = 0; i < work->conf.workers; i++)
		members += work->worker[i].member;
	if (members == 0)
		return pbox_fail(err, ENOMEM, "no worker is there to do the slots: start one");
	return pbox_fail(err, ENOMEM,
		"none of %u workers has memory for a micro-batch: free some, or let micro-batches be smaller",
		members);
}

/* The most that is done in one step. */
static unsigned
step_most(const struct pbox_work *work)
{
	return MEDIAN_STEPS * work->conf.workers + work->conf.slots;
}

static int
end_decision(struct pbox_work *work, uint32_t from_round, struct pbox_work_reason *why)
{
	const struct work_weighed *g = &work->decision.weighed;

	work->decision.phase = WORK_NOT_DECIDING;
	if (!work->forced && !is_due(work, g)) {
		for (unsigned i = 0; g->changed && i < work->conf.workers; i++)
			work->worker[i].changed &= !work->worker[i].weighed;
		return 0;
	}
	work->steps += (2 * MEDIAN_STEPS + NODES_STEPS) * work->conf.workers + work->conf.slots;
	work_count_owned(work, work->plan[work->current].owner);
	explain(work, g, why);
	write_plan(work, g, from_round);
	return 1;
}

int
pbox_work_decide(struct pbox_work *work, uint32_t from_round, double at,
	struct pbox_work_reason *why, struct pbox_error *err)
{
	struct work_decision *d = &work->decision;
	bool able = false;

	work->steps = work->conf.workers;
	if (work->pending)
		return 0;
	for (unsigned i = 0; i < work->conf.workers; i++)
		able |= work_is_able(&work->worker[i]);
	if (!able) {
		d->phase = WORK_NOT_DECIDING;
		return fail_without_memory(work, err);
	}
	if (d->phase == WORK_NOT_DECIDING)
		*d = (struct work_decision){.phase = WORK_FILLS};
	for (bool first = true; d->phase != WORK_DECIDED; first = false) {
		if (!first && work->steps + step_most(work) > PBOX_WORK_PIECE)
			return PBOX_WORK_GOES_ON;
		d->phase = decide_step(work, at);
	}
	/* the plan is written in a piece of its own if there is much */
	if (work->steps + 3 * step_most(work) > PBOX_WORK_PIECE && work->steps > work->conf.workers)
		return PBOX_WORK_GOES_ON;
	return end_decision(work, from_round, why);
}

unsigned
pbox_work_steps(const struct pbox_work *work)
{
	return work->steps;
}
