/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Borders of shares, moved to where ranges consist of fewer nodes. */

#include <string.h>

#include "work_impl.h"

/* what the moves may cost: 5 % in all */
#define GROWTH_STEP  0.0098
#define GROWTH_STEPS 5
#define HALVINGS     6

struct walk {
	const struct pbox_work_cost *cost;
	enum pbox_work_pipeline pipeline;
	unsigned workers, slots;
	const uint16_t *base; /* the borders without moves */
	uint16_t *after; /* slots that the workers after this one can do in time, one node each */
	uint16_t *first; /* the result */
};

/* A border of worker i that begins at a slot. */
struct border {
	unsigned worker, at;
	double t;
	unsigned best;
	int score;
};

/* Nodes on this side of the border, and those that the border saves on the other side. */
static int
border_score(const struct walk *w, unsigned nodes, unsigned end)
{
	int saved = end == 0 || end == w->slots ? PBOX_MAX_LEVEL : __builtin_ctz(end);

	return (int)nodes - (saved < PBOX_MAX_LEVEL ? saved : PBOX_MAX_LEVEL);
}

static void
try_border(const struct walk *w, struct border *b, unsigned end)
{
	unsigned nodes = work_nodes(b->at, end, w->slots);
	int score = border_score(w, nodes, end);

	if (pbox_work_time(&w->cost[b->worker], w->pipeline, end - b->at, nodes) > b->t)
		return;
	if (b->best == UINT32_MAX || score < b->score) {
		b->best = end;
		b->score = score;
	}
}

/* The best end of the worker's range in [low, high]: at each level the multiples next to where it is without moves. The nearest
 * come first, so that of equal ones they win. */
static bool
find_border(const struct walk *w, struct border *b, unsigned low, unsigned high)
{
	unsigned want = w->base[b->worker + 1];

	want = want < low ? low : want > high ? high : want;
	b->best = UINT32_MAX;
	for (unsigned level = 0; level <= PBOX_MAX_LEVEL; level++) {
		unsigned below = want >> level << level, above = below + (1u << level);

		if (below >= low)
			try_border(w, b, below);
		if (above <= high)
			try_border(w, b, above);
		if (below < low && above > high)
			break;
	}
	if (low < want)
		try_border(w, b, low);
	return b->best != UINT32_MAX;
}

/* A worker that has slots without moves keeps one. */
static unsigned
kept(const struct walk *w, unsigned i)
{
	unsigned k = w->base[i + 1] - w->base[i];

	return k < w->cost[i].least ? k : k > 0 ? work_umax(w->cost[i].least, 1) : 0;
}

/* Borders from left to right, each worker within t. False: it does not work out. */
static bool
walk_within(const struct walk *w, double t)
{
	unsigned sum = 0, need = 0, at = 0;

	for (unsigned i = w->workers; i-- > 0;) {
		w->after[i] = (uint16_t)sum;
		sum += work_slots_within(&w->cost[i], w->pipeline, t);
		sum = sum < w->slots ? sum : w->slots;
		need += kept(w, i);
	}
	w->first[0] = 0;
	for (unsigned i = 0; i < w->workers; i++) {
		unsigned high = at + work_slots_within(&w->cost[i], w->pipeline, t);
		struct border b = {.worker = i, .at = at, .t = t};
		unsigned low = work_umax(at + kept(w, i), w->slots - w->after[i]);

		need -= kept(w, i);
		high = high < w->slots - need ? high : w->slots - need;
		if (low > high || !find_border(w, &b, low, high))
			return false;
		at = b.best;
		w->first[i + 1] = (uint16_t)at;
	}
	return at == w->slots;
}

struct found {
	uint16_t *first;
	double seconds;
	unsigned nodes;
};

static void
keep_walk(const struct walk *w, struct found *f, double seconds, unsigned nodes)
{
	memcpy(f->first, w->first, (w->workers + 1) * sizeof(*f->first));
	f->seconds = seconds;
	f->nodes = nodes;
}

/* The shortest round: payloads cost time as well. */
static void
find_shortest(const struct walk *w, struct found *f, double low)
{
	double high = f->seconds;

	for (unsigned i = 0; i <= HALVINGS; i++) {
		double t = i == 0 ? high : (low + high) / 2, seconds;
		unsigned nodes;

		if (!walk_within(w, t)) {
			low = work_max(low, i == 0 ? low : t);
			continue;
		}
		seconds = pbox_work_predict(w->cost, w->workers, w->pipeline, w->first, &nodes);
		high = t < high ? t : high;
		if (seconds < f->seconds || (seconds <= f->seconds && nodes < f->nodes))
			keep_walk(w, f, seconds, nodes);
	}
}

/* The fewest nodes, in a round that is a little longer. */
static void
find_fewest(const struct walk *w, struct found *f)
{
	double shortest = f->seconds;

	for (unsigned i = 1; i <= GROWTH_STEPS; i++) {
		double seconds;
		unsigned nodes;

		if (!walk_within(w, shortest * (1 + i * GROWTH_STEP)))
			continue;
		seconds = pbox_work_predict(w->cost, w->workers, w->pipeline, w->first, &nodes);
		if (nodes < f->nodes)
			keep_walk(w, f, seconds, nodes);
	}
}

double
pbox_work_share(const struct pbox_work_cost *cost, unsigned workers, unsigned slots,
	enum pbox_work_pipeline pipeline, uint16_t *first, uint16_t *spare)
{
	struct walk w = {.cost = cost,
		.pipeline = pipeline,
		.workers = workers,
		.slots = slots,
		.base = spare,
		.after = spare + workers + 1,
		.first = spare + 2 * ((size_t)workers + 1)};
	struct found f = {.first = first};

	pbox_work_share_unaligned(cost, workers, slots, pipeline, first);
	f.seconds = pbox_work_predict(cost, workers, pipeline, first, &f.nodes);
	memcpy(spare, first, (workers + 1) * sizeof(*first));
	find_shortest(&w, &f, work_bisect(cost, workers, slots, pipeline));
	find_fewest(&w, &f);
	return f.seconds;
}
