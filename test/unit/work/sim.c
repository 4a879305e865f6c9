/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <string.h>

#include "../unit.h"
#include "sim.h"

/* rounds from the last finished one to the first of a plan: all cores must have it before */
#define LAG  2
#define LATE 1.2
/* a question and its answer */
#define ASK_SECONDS 0.005

struct sim_worker {
	double t;        /* of its next step */
	double computed; /* when its last slot was done */
	unsigned slots, next;
	double spent; /* seconds of computation */
	bool ended;
};

void
sim_begin(struct sim *s, const struct sim_conf *conf, double slot, double up, double down)
{
	struct pbox_work_conf c = {.workers = conf->workers, .slots = conf->slots};
	struct pbox_error err;

	memset(s, 0, sizeof(*s));
	s->conf = *conf;
	s->work = pbox_work_create(&c, &err);
	CU_ASSERT_FATAL(s->work != NULL && conf->workers <= SIM_WORKERS);
	pbox_random_seed(&s->random, conf->seed);
	for (unsigned i = 0; i < conf->workers; i++) {
		s->cost[i] = (struct pbox_work_cost){
			.slot = slot, .up = up, .down = down, .most = (uint16_t)conf->slots};
		s->member[i] = true;
		s->fits[i] = true;
	}
}

void
sim_end(struct sim *s)
{
	pbox_work_destroy(s->work);
}

static double
lognormal(struct pbox_random *r, double sigma)
{
	double u = 1 - pbox_random_unit(r), v = pbox_random_unit(r);

	return exp(sigma * sqrt(-2 * log(u)) * cos(2 * M_PI * v));
}

static void
draw_factors(struct sim *s)
{
	for (unsigned i = 0; i < s->conf.workers; i++) {
		s->factor[i] = lognormal(&s->random, s->conf.jitter);
		if (pbox_random_unit(&s->random) < s->conf.spike)
			s->factor[i] *= 3 + 7 * pbox_random_unit(&s->random);
		if (!s->fits[i])
			s->factor[i] *= 4;
	}
}

/* Whole slots by someone who knows what each worker will take in this round. */
static double
plan_of_oracle(struct sim *s)
{
	struct pbox_work_cost cost[SIM_WORKERS];
	uint16_t first[SIM_WORKERS + 1], spare[3 * (SIM_WORKERS + 1)];
	double best, moved;

	for (unsigned i = 0; i < s->conf.workers; i++) {
		cost[i] = s->cost[i];
		cost[i].slot *= s->factor[i];
		cost[i].most = s->member[i] ? (uint16_t)s->conf.slots : 0;
	}
	best = work_share_unaligned(cost, s->conf.workers, s->conf.slots, first);
	if (!s->conf.oracle)
		return best;
	moved = work_share(cost, s->conf.workers, s->conf.slots, first, spare);
	return moved < best ? moved : best;
}

static bool
has_owner(const struct sim *s, unsigned owner)
{
	return owner < s->conf.workers && s->member[owner];
}

void
sim_check_owners(const struct sim *s)
{
	const struct pbox_work_plan *plan = pbox_work_plan(s->work),
				    *next = pbox_work_next(s->work);
	const uint16_t *owner = pbox_work_owners(s->work);
	unsigned without = 0;

	for (unsigned i = 0; i < s->conf.slots; i++) {
		without += !has_owner(s, owner[i]) + !has_owner(s, plan->owner[i]);
		without += next != NULL && !has_owner(s, next->owner[i]);
	}
	UNIT_EQ_U64(without, 0);
}

/* The first of its slots after the last one that it computed, and then those before. */
static unsigned
next_slot(const struct sim *s, unsigned worker, unsigned from, const bool *done)
{
	const uint16_t *owner = pbox_work_owners(s->work);
	unsigned v = s->conf.slots;

	for (unsigned i = 0; i < v; i++) {
		unsigned slot = from + i < v ? from + i : from + i - v;

		if (owner[slot] == worker && !done[slot])
			return slot;
	}
	return v;
}

static void
decide(struct sim *s, double at)
{
	struct pbox_work_reason why;
	struct pbox_error err;

	/* the last one that has finished: while a round runs, the one before it */
	uint32_t finished = at > 0 ? s->round - 1 : s->round;
	int ret = s->conf.fixed_plan ? 0 : PBOX_WORK_GOES_ON;

	while (ret == PBOX_WORK_GOES_ON)
		ret = pbox_work_decide(s->work, finished + LAG, at, &why, &err);
	if (ret != 1)
		return;
	s->plans++;
	s->why = why;
}

/* A worker has no slot left: it asks for more, and again as long as others have some. */
static void
ask(struct sim *s, struct sim_worker *w, unsigned i, double again)
{
	struct pbox_work_move move, same;
	struct pbox_work_reason why;
	double at = w[i].t;

	if (s->conf.steal && pbox_work_task(s->work, i, at, &move, &why)) {
		CU_ASSERT(move.first < move.end && move.to == i);
		CU_ASSERT(pbox_work_task(s->work, i, at, &same, &why));
		CU_ASSERT(same.first == move.first && same.end == move.end);
		s->steals++;
		w[i].t += ASK_SECONDS;
		sim_check_owners(s);
		return;
	}
	for (unsigned j = 0; j < s->conf.workers; j++) {
		struct pbox_work_view v;

		pbox_work_view(s->work, j, &v);
		if (v.member && v.begun < v.slots) {
			/* a timer of the registrar: somebody is late */
			if (at > LATE * s->oracle)
				decide(s, at);
			w[i].t += again;
			return;
		}
	}
	w[i].ended = true;
}

static void
die(struct sim *s, unsigned worker, double at, bool *done)
{
	const struct pbox_work_move *move;
	struct pbox_work_reason why;
	unsigned n;

	s->member[worker] = false;
	n = pbox_work_gone(s->work, worker, at, &move, &why);
	for (unsigned m = 0; m < n; m++) {
		CU_ASSERT(move[m].from == worker && s->member[move[m].to]);
		for (unsigned i = move[m].first; i < move[m].end; i++)
			done[i] = false;
	}
	sim_check_owners(s);
}

static double
end_of(const struct sim *s, const struct sim_worker *w, unsigned i, unsigned *nodes)
{
	const uint16_t *owner = pbox_work_owners(s->work);
	struct pbox_work_cost c = s->cost[i];
	struct pbox_node node[PBOX_RANGE_NODES];

	*nodes = 0;
	for (unsigned a = 0, b; a < s->conf.slots; a = b) {
		b = a + 1;
		while (b < s->conf.slots && owner[b] == owner[a])
			b++;
		if (owner[a] == i)
			*nodes += pbox_range_nodes(a, b, s->conf.slots, node);
	}
	if (w->slots == 0 || *nodes == 0)
		return w->computed;
	c.fixed = w->computed;
	c.slot = 0;
	return work_time(&c, 1, *nodes);
}

static void
report(struct sim *s, const struct sim_worker *w, unsigned i, unsigned nodes)
{
	struct pbox_work_report r = {.round = s->round,
		.slots = nodes > 0 ? w->slots : 0,
		.payloads = w->slots > 0 ? nodes : 0,
		.fits = s->fits[i],
		.compute = w->spent,
		.fixed = s->cost[i].fixed,
		.up = nodes * s->cost[i].up * lognormal(&s->random, s->conf.jitter),
		.down = s->cost[i].down * lognormal(&s->random, s->conf.jitter)};
	struct pbox_error err;

	if (r.payloads > r.slots)
		r.payloads = r.slots;
	CU_ASSERT(pbox_work_report(s->work, i, &r, &err) == 0);
}

static unsigned
earliest(const struct sim *s, const struct sim_worker *w)
{
	unsigned first = UINT32_MAX;

	for (unsigned i = 0; i < s->conf.workers; i++)
		if (s->member[i] && !w[i].ended && (first == UINT32_MAX || w[i].t < w[first].t))
			first = i;
	return first;
}

static void
compute(struct sim *s, struct sim_worker *w, unsigned i, unsigned slot, bool *done)
{
	double d = s->cost[i].slot * s->factor[i];

	done[slot] = true;
	pbox_work_begun(s->work, i, slot, slot + 1, w[i].t);
	w[i].t += d;
	w[i].computed = w[i].t;
	w[i].spent += d;
	w[i].slots++;
	w[i].next = slot + 1;
}

double
sim_round_with_death(struct sim *s, unsigned worker, double at)
{
	struct sim_worker w[SIM_WORKERS] = {0};
	bool done[PBOX_MAX_SLOTS] = {false};
	unsigned computed = 0;
	double again;

	pbox_work_round(s->work, ++s->round);
	sim_check_owners(s);
	draw_factors(s);
	s->oracle = plan_of_oracle(s);
	again = s->oracle / 10;
	for (unsigned i = 0; i < s->conf.workers; i++)
		w[i].t = w[i].computed = s->cost[i].fixed;
	for (unsigned i; (i = earliest(s, w)) != UINT32_MAX;) {
		unsigned slot;

		if (worker < s->conf.workers && s->member[worker] && w[i].t >= at) {
			die(s, worker, at, done);
			for (unsigned j = 0; j < s->conf.workers; j++)
				w[j].ended = false;
			continue;
		}
		slot = next_slot(s, i, w[i].next, done);
		if (slot < s->conf.slots)
			compute(s, w, i, slot, done);
		else
			ask(s, w, i, again);
	}
	for (unsigned i = 0; i < s->conf.slots; i++)
		computed += done[i];
	UNIT_EQ_U64(computed, s->conf.slots);
	s->seconds = 0;
	for (unsigned i = 0; i < s->conf.workers; i++) {
		unsigned nodes;
		double t = s->member[i] ? end_of(s, &w[i], i, &nodes) : 0;

		s->seconds = t > s->seconds ? t : s->seconds;
		if (s->member[i])
			report(s, &w[i], i, nodes);
	}
	decide(s, 0);
	s->total += s->seconds;
	s->oracle_total += s->oracle;
	return s->seconds;
}

double
sim_round(struct sim *s)
{
	return sim_round_with_death(s, UINT32_MAX, 0);
}

void
sim_rounds(struct sim *s, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		sim_round(s);
}
