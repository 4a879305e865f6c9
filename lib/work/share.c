/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Slots to workers by bisection on the time at which all have finished. */

#include <string.h>

#include "work_impl.h"

double
work_time(const struct pbox_work_cost *c, unsigned slots, unsigned nodes)
{
	return slots == 0 ? 0 : c->fixed + slots * c->slot + nodes * c->up + c->down;
}

unsigned
work_slots_within(const struct pbox_work_cost *c, double t)
{
	double left = t - c->fixed - (c->up + c->down), k = left / c->slot + 1e-9;

	if (k < c->least)
		return c->least;
	return k > c->most ? c->most : (unsigned)k;
}

unsigned
work_nodes(unsigned first, unsigned end, unsigned slots)
{
	struct pbox_node node[PBOX_RANGE_NODES];

	return pbox_range_nodes(first, end, slots, node);
}

double
work_predict(
	const struct pbox_work_cost *cost, unsigned workers, const uint16_t *first, unsigned *nodes)
{
	double last = 0;
	unsigned sum = 0;

	for (unsigned i = 0; i < workers; i++) {
		unsigned n = work_nodes(first[i], first[i + 1], first[workers]);

		sum += n;
		last = work_max(last, work_time(&cost[i], first[i + 1] - first[i], n));
	}
	if (nodes != NULL)
		*nodes = sum;
	return last;
}

static unsigned
slots_of_all_within(const struct pbox_work_cost *cost, unsigned workers, unsigned slots, double t)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < workers; i++) {
		unsigned k = work_slots_within(&cost[i], t);

		sum += k < slots ? k : slots;
	}
	return sum;
}

/* Nobody does more than its least: the end is that of the last one. */
static bool
least_is_all(const struct pbox_work_cost *cost, unsigned workers, unsigned slots)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < workers; i++)
		sum += cost[i].least;
	return sum >= slots;
}

void
work_search_begin(
	struct work_search *s, const struct pbox_work_cost *cost, unsigned workers, unsigned slots)
{
	bool least = least_is_all(cost, workers, slots);

	*s = (struct work_search){.low = 0, .high = -1};
	/* when one worker could do all */
	for (unsigned i = 0; i < workers; i++) {
		double t =
			work_time(&cost[i], least ? cost[i].least : slots, cost[i].least || !least);

		t *= least ? 1 : 1 + 1e-9;
		if (least ? t > s->high : cost[i].most >= slots && (s->high < 0 || t < s->high))
			s->high = t;
	}
	PBOX_ASSERT(s->high > 0);
	if (least)
		s->low = s->high;
}

bool
work_search_step(
	struct work_search *s, const struct pbox_work_cost *cost, unsigned workers, unsigned slots)
{
	double t = (s->low + s->high) / 2;

	if (s->high - s->low <= 1e-9 * s->high || s->steps++ == WORK_SEARCH_STEPS)
		return false;
	if (slots_of_all_within(cost, workers, slots, t) >= slots)
		s->high = t;
	else
		s->low = t;
	return true;
}

/* Workers by when they end, a heap: the last is the first, of equal ones that with the lower number. */
struct ends {
	const struct pbox_work_cost *cost;
	const uint16_t *slots; /* of each worker */
	uint16_t heap[PBOX_WORK_MAX_WORKERS];
	unsigned n;
};

static double
end_of(const struct ends *e, unsigned worker)
{
	return work_time(&e->cost[worker], e->slots[worker], 1);
}

static bool
ends_later(const struct ends *e, unsigned a, unsigned b)
{
	double x = end_of(e, a), y = end_of(e, b);

	return x > y || (x >= y && a < b);
}

static void
ends_sink(struct ends *e, unsigned at)
{
	for (unsigned k; (k = 2 * at + 1) < e->n; at = k) {
		uint16_t x = e->heap[at];

		k += k + 1 < e->n && ends_later(e, e->heap[k + 1], e->heap[k]);
		if (!ends_later(e, e->heap[k], x))
			return;
		e->heap[at] = e->heap[k];
		e->heap[k] = x;
	}
}

/* So many slots, one after the other, from who ends last then. How many steps that were. */
static unsigned
take_from_last(
	const struct pbox_work_cost *cost, unsigned workers, uint16_t *first, unsigned excess)
{
	struct ends e = {.cost = cost, .slots = first};
	unsigned steps = 0;

	if (excess == 0)
		return 0;
	for (unsigned i = 0; i < workers; i++)
		if (first[i] > cost[i].least)
			e.heap[e.n++] = (uint16_t)i;
	for (unsigned i = e.n / 2; i-- > 0;)
		ends_sink(&e, i);
	for (; excess > 0; excess--, steps += PBOX_MAX_LEVEL) {
		PBOX_ASSERT(e.n > 0);
		if (--first[e.heap[0]] <= cost[e.heap[0]].least)
			e.heap[0] = e.heap[--e.n];
		ends_sink(&e, 0);
	}
	return steps;
}

/* Take what is too much from those that end at t; of equal ones from the later. first[i] has the slots of worker i. */
static unsigned
take_excess(const struct pbox_work_cost *cost, unsigned workers, uint16_t *first, unsigned excess,
	double t)
{
	for (unsigned i = workers; i-- > 0 && excess > 0;)
		if (first[i] > cost[i].least && work_time(&cost[i], first[i], 1) > t * (1 - 1e-6)) {
			first[i]--;
			excess--;
		}
	return take_from_last(cost, workers, first, excess);
}

unsigned
work_share_within(const struct pbox_work_cost *cost, unsigned workers, unsigned slots,
	uint16_t *first, double t)
{
	bool least = least_is_all(cost, workers, slots);
	unsigned sum = 0, at = 0, steps;

	for (unsigned i = 0; i < workers; i++) {
		unsigned k = least ? cost[i].least : work_slots_within(&cost[i], t);

		first[i] = (uint16_t)(k < slots ? k : slots);
		sum += first[i];
	}
	PBOX_ASSERT(sum >= slots);
	steps = take_excess(cost, workers, first, sum - slots, t);
	for (unsigned i = 0; i < workers; i++) {
		unsigned k = first[i];

		first[i] = (uint16_t)at;
		at += k;
	}
	first[workers] = (uint16_t)at;
	PBOX_ASSERT(at == slots);
	return steps;
}

double
work_search(const struct pbox_work_cost *cost, unsigned workers, unsigned slots)
{
	struct work_search s;

	work_search_begin(&s, cost, workers, slots);
	while (work_search_step(&s, cost, workers, slots))
		;
	return s.high;
}

double
work_share_unaligned(
	const struct pbox_work_cost *cost, unsigned workers, unsigned slots, uint16_t *first)
{
	work_share_within(cost, workers, slots, first, work_search(cost, workers, slots));
	return work_predict(cost, workers, first, NULL);
}
