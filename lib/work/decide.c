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

/* The plan in force, and the one that may follow, by today's estimates. */
struct weighed {
	double now, next; /* predicted seconds of a round */
	double error;     /* standard error of now */
	unsigned nodes_now, nodes_next;
	bool measured, changed;
};

/* A worker that nobody has measured is as the median of the others. */
static bool
fill_unmeasured(struct pbox_work *work)
{
	for (unsigned f = 0; f < WORK_FIGURES; f++) {
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
	}
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
	unsigned n = work->conf.workers, v = work->conf.slots, half = 1u << level >> 1;

	for (unsigned i = 1; i < n; i++) {
		unsigned at = (work->first[i] + half) >> level << level;
		unsigned least = work->first[i - 1] + work->cost[i - 1].least, rest = 0;

		for (unsigned k = i; k < n; k++)
			rest += work->cost[k].least;
		at = at < least ? least : at;
		work->first[i] = (uint16_t)(at > v - rest ? v - rest : at);
	}
	return pbox_work_predict(work->cost, n, work->pipeline, work->first, nodes);
}

static void
weigh_plans(struct pbox_work *work, double at, struct weighed *g)
{
	unsigned n = work->conf.workers, last = 0;

	*g = (struct weighed){.measured = fill_unmeasured(work)};
	work_count_owned(work, work->plan[work->current].owner);
	for (unsigned i = 0; i < n; i++) {
		bool late = false;
		double t;

		work_cost_of(work, i, &work->cost[i]);
		if (at > 0)
			work->cost[i].slot =
				work_max(work->cost[i].slot, work_slot_if_late(work, i, at, &late));
		if (!g->measured)
			work->cost[i].slot = 1;
		g->changed |= late || work->worker[i].changed;
		t = pbox_work_time(&work->cost[i], work->pipeline, work->count[i], work->nodes[i]);
		g->nodes_now += work->nodes[i];
		if (t > g->now) {
			g->now = t;
			last = i;
		}
	}
	g->error = error_of(work, last);
	/* no shares can end earlier than this: mostly there is nothing to gain, and no need to look for borders */
	g->next = work_bisect(work->cost, n, work->conf.slots, work->pipeline);
	if (!work->forced && g->now - g->next <= GAIN * g->now)
		return;
	g->next = pbox_work_share(
		work->cost, n, work->conf.slots, work->pipeline, work->first, work->spare);
	pbox_work_predict(work->cost, n, work->pipeline, work->first, &g->nodes_next);
	/* for more nodes there is no room: borders at multiples of ever larger powers of 2 */
	for (unsigned level = 1; work->conf.nodes_most != 0 &&
				 g->nodes_next > work->conf.nodes_most && level <= PBOX_MAX_LEVEL;
		level++)
		g->next = round_borders(work, level, &g->nodes_next);
}

/* More than a little, more than the noise, and not once alone. */
static bool
is_due(struct pbox_work *work, const struct weighed *g)
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
explain(struct pbox_work *work, const struct weighed *g, struct pbox_work_reason *why)
{
	unsigned w = work->forced ? work->force.worker : most_changed(work);
	double slots = ratio_to_others(work, w, true), traffic = ratio_to_others(work, w, false);

	*why = work->force;
	if (!work->forced)
		*why = (struct pbox_work_reason){
			.cause = PBOX_WORK_SPEED, .since = work->worker[w].since, .ratio = slots};
	why->worker = (uint16_t)w;
	why->before = work->count[w];
	why->after = (uint16_t)next_slots(work, w);
	why->gain = g->measured && g->now > 0 ? 1 - g->next / g->now : 0;
	why->micro_before = work->plan[work->current].pub.micro;
	why->micro = work->worker[w].micro;
	if (why->cause != PBOX_WORK_SPEED || is_other(slots))
		return;
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
write_plan(struct pbox_work *work, const struct weighed *g, uint32_t from_round, uint32_t micro)
{
	struct work_plan *p = &work->plan[!work->current];

	p->pub.number = ++work->numbered;
	p->pub.from_round = from_round;
	p->pub.micro = micro;
	p->pub.seconds = g->measured ? g->next : 0;
	for (unsigned i = 0; i < work->conf.workers; i++) {
		unsigned first = work->first[i], end = work->first[i + 1];
		double finish = pbox_work_time(&work->cost[i], work->pipeline, end - first,
			work_nodes(first, end, work->conf.slots));

		p->finish[i] = g->measured ? finish : 0;
		for (unsigned s = first; s < end; s++)
			p->owner[s] = (uint16_t)i;
		work->worker[i].changed = false;
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
		"none of %u workers has memory for a micro-batch of %u samples: free some, or let micro-batches be smaller",
		members, work->conf.micro_min);
}

int
pbox_work_decide(struct pbox_work *work, uint32_t from_round, double at,
	struct pbox_work_reason *why, struct pbox_error *err)
{
	uint32_t micro = work_common_micro(work);
	struct weighed g;

	if (work->pending)
		return 0;
	if (micro == 0)
		return fail_without_memory(work, err);
	weigh_plans(work, at, &g);
	if (!work->forced && !is_due(work, &g)) {
		if (!g.changed)
			return 0;
		for (unsigned i = 0; i < work->conf.workers; i++)
			work->worker[i].changed = false;
		return 0;
	}
	explain(work, &g, why);
	write_plan(work, &g, from_round, micro);
	return 1;
}
