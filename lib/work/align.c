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
/* a border that is tried, as steps */
#define BORDER_STEPS 4

/* A border of worker i that begins at a slot. */
struct border {
	unsigned worker, at;
	double t;
	unsigned best;
	int score;
	unsigned tried;
};

/* Nodes on this side of the border, and those that the border saves on the other side. */
static int
border_score(const struct work_walk *w, unsigned nodes, unsigned end)
{
	int saved = end == 0 || end == w->slots ? PBOX_MAX_LEVEL : __builtin_ctz(end);

	return (int)nodes - (saved < PBOX_MAX_LEVEL ? saved : PBOX_MAX_LEVEL);
}

static void
try_border(const struct work_walk *w, struct border *b, unsigned end)
{
	unsigned nodes = work_nodes(b->at, end, w->slots);
	int score = border_score(w, nodes, end);

	b->tried++;
	if (work_time(&w->cost[b->worker], end - b->at, nodes) > b->t)
		return;
	if (b->best == UINT32_MAX || score < b->score) {
		b->best = end;
		b->score = score;
	}
}

/* The best end of the worker's range in [low, high]: at each level the multiples next to where it is without moves. The nearest
 * come first, so that of equal ones they win. */
static bool
find_border(const struct work_walk *w, struct border *b, unsigned low, unsigned high)
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
kept(const struct work_walk *w, unsigned i)
{
	unsigned k = w->base[i + 1] - w->base[i];

	return k < w->cost[i].least ? k : k > 0 ? work_umax(w->cost[i].least, 1) : 0;
}

/* Borders from left to right, each worker within t. */
static void
walk_begin(struct work_walk *w, double t)
{
	unsigned sum = 0;

	w->t = t;
	w->need = w->worker = w->at = 0;
	for (unsigned i = w->workers; i-- > 0;) {
		w->after[i] = (uint16_t)sum;
		sum += work_slots_within(&w->cost[i], t);
		sum = sum < w->slots ? sum : w->slots;
		w->need += kept(w, i);
	}
	w->first[0] = 0;
}

/* On by one worker, in so many steps; false: it does not work out. */
static bool
walk_step(struct work_walk *w, unsigned *steps)
{
	unsigned i = w->worker++, high = w->at + work_slots_within(&w->cost[i], w->t);
	struct border b = {.worker = i, .at = w->at, .t = w->t};
	unsigned low = work_umax(w->at + kept(w, i), w->slots - w->after[i]);
	bool good;

	w->need -= kept(w, i);
	high = high < w->slots - w->need ? high : w->slots - w->need;
	good = low <= high && find_border(w, &b, low, high);
	*steps += 1 + BORDER_STEPS * b.tried;
	if (good)
		w->first[i + 1] = (uint16_t)(w->at = b.best);
	return good;
}

unsigned
work_align_begin(struct work_align *a, const struct pbox_work_cost *cost, unsigned workers,
	unsigned slots, uint16_t *first, uint16_t *spare, double t)
{
	unsigned steps;

	*a = (struct work_align){
		.walk = {.cost = cost,
			.workers = workers,
			.slots = slots,
			.base = spare,
			.after = spare + workers + 1,
			.first = spare + 2 * ((size_t)workers + 1)},
		.first = first,
		.low = t,
	};
	steps = work_share_within(cost, workers, slots, first, t);
	a->seconds = work_predict(cost, workers, first, &a->nodes);
	a->high = a->seconds;
	memcpy(spare, first, (workers + 1) * sizeof(*first));
	return steps + (2 + BORDER_STEPS) * workers;
}

static void
keep_walk(struct work_align *a, double seconds, unsigned nodes)
{
	memcpy(a->first, a->walk.first, (a->walk.workers + 1) * sizeof(*a->first));
	a->seconds = seconds;
	a->nodes = nodes;
}

/* First the shortest round, for payloads cost time as well; then the fewest nodes, in a round that is a little longer. */
static double
seconds_to_try(const struct work_align *a)
{
	if (a->tried > HALVINGS)
		return a->shortest * (1 + (a->tried - HALVINGS) * GROWTH_STEP);
	return a->tried == 0 ? a->high : (a->low + a->high) / 2;
}

/* A walk has come to its end. */
static void
judge_walk(struct work_align *a, bool good)
{
	const struct work_walk *w = &a->walk;
	bool growing = a->tried > HALVINGS;
	double seconds;
	unsigned nodes;

	if (good) {
		seconds = work_predict(w->cost, w->workers, w->first, &nodes);
		if (growing ? nodes < a->nodes
			    : seconds < a->seconds || (seconds <= a->seconds && nodes < a->nodes))
			keep_walk(a, seconds, nodes);
		if (!growing && w->t < a->high)
			a->high = w->t;
	} else if (!growing && a->tried > 0) {
		a->low = work_max(a->low, w->t);
	}
	if (a->tried++ == HALVINGS)
		a->shortest = a->seconds;
}

bool
work_align_step(struct work_align *a, unsigned most, unsigned *steps)
{
	struct work_walk *w = &a->walk;
	unsigned done = 0;
	bool good = true;

	if (a->tried > HALVINGS + GROWTH_STEPS)
		return false;
	if (!a->walking) {
		walk_begin(w, seconds_to_try(a));
		done += w->workers;
	}
	while (good && w->worker < w->workers && done < most)
		good = walk_step(w, &done);
	a->walking = good && w->worker < w->workers;
	if (!a->walking) {
		judge_walk(a, good && w->at == w->slots);
		done += BORDER_STEPS * w->workers;
	}
	*steps += done;
	return true;
}

double
work_share(const struct pbox_work_cost *cost, unsigned workers, unsigned slots, uint16_t *first,
	uint16_t *spare)
{
	struct work_align a;
	unsigned steps = 0;

	work_align_begin(&a, cost, workers, slots, first, spare, work_search(cost, workers, slots));
	while (work_align_step(&a, UINT32_MAX, &steps))
		;
	return a.seconds;
}
