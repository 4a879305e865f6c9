/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Slots to workers by bisection on the time at which all have finished. */

#include <string.h>

#include "work_impl.h"

double
pbox_work_time(const struct pbox_work_cost *c, enum pbox_work_pipeline pipeline, unsigned slots,
	unsigned nodes)
{
	double compute = c->fixed + slots * c->slot, up = nodes * c->up;

	if (slots == 0)
		return 0;
	if (pipeline == PBOX_WORK_NO_OVERLAP)
		return compute + up + c->down;
	if (pipeline == PBOX_WORK_SEND_EARLY)
		return work_max(compute, up - c->up) + c->up + c->down;
	return work_max(work_max(compute, up), c->down);
}

unsigned
work_slots_within(const struct pbox_work_cost *c, enum pbox_work_pipeline pipeline, double t)
{
	bool full = pipeline == PBOX_WORK_FULL;
	double left = t - c->fixed - (full ? 0 : c->up + c->down), k;

	if (full && t < work_max(c->up, c->down))
		left = 0;
	k = left / c->slot + 1e-9;
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
pbox_work_predict(const struct pbox_work_cost *cost, unsigned workers,
	enum pbox_work_pipeline pipeline, const uint16_t *first, unsigned *nodes)
{
	double last = 0;
	unsigned sum = 0;

	for (unsigned i = 0; i < workers; i++) {
		unsigned n = work_nodes(first[i], first[i + 1], first[workers]);

		sum += n;
		last = work_max(
			last, pbox_work_time(&cost[i], pipeline, first[i + 1] - first[i], n));
	}
	if (nodes != NULL)
		*nodes = sum;
	return last;
}

static unsigned
slots_of_all_within(const struct pbox_work_cost *cost, unsigned workers, unsigned slots,
	enum pbox_work_pipeline pipeline, double t)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < workers; i++) {
		unsigned k = work_slots_within(&cost[i], pipeline, t);

		sum += k < slots ? k : slots;
	}
	return sum;
}

double
work_bisect(const struct pbox_work_cost *cost, unsigned workers, unsigned slots,
	enum pbox_work_pipeline pipeline)
{
	double low = 0, high = -1;

	/* when one worker could do all */
	for (unsigned i = 0; i < workers; i++) {
		double t = pbox_work_time(&cost[i], pipeline, slots, 1) * (1 + 1e-9);

		if (cost[i].most >= slots && (high < 0 || t < high))
			high = t;
	}
	PBOX_ASSERT(high > 0);
	while (high - low > 1e-9 * high) {
		double t = (low + high) / 2;

		if (slots_of_all_within(cost, workers, slots, pipeline, t) >= slots)
			high = t;
		else
			low = t;
	}
	return high;
}

/* Take what is too much from those that end last; of equal ones from the later. first[i] has the slots of worker i. */
static void
take_excess(const struct pbox_work_cost *cost, unsigned workers, enum pbox_work_pipeline pipeline,
	uint16_t *first, unsigned excess, double t)
{
	for (unsigned i = workers; i-- > 0 && excess > 0;)
		if (first[i] > cost[i].least &&
			pbox_work_time(&cost[i], pipeline, first[i], 1) > t * (1 - 1e-6)) {
			first[i]--;
			excess--;
		}
	while (excess > 0) {
		unsigned last = workers;
		double end = -1;

		for (unsigned i = 0; i < workers; i++) {
			double e = pbox_work_time(&cost[i], pipeline, first[i], 1);

			if (first[i] > cost[i].least && e > end) {
				end = e;
				last = i;
			}
		}
		PBOX_ASSERT(last < workers);
		first[last]--;
		excess--;
	}
}

double
pbox_work_share_unaligned(const struct pbox_work_cost *cost, unsigned workers, unsigned slots,
	enum pbox_work_pipeline pipeline, uint16_t *first)
{
	double t = work_bisect(cost, workers, slots, pipeline);
	unsigned sum = 0, at = 0;

	for (unsigned i = 0; i < workers; i++) {
		unsigned k = work_slots_within(&cost[i], pipeline, t);

		first[i] = (uint16_t)(k < slots ? k : slots);
		sum += first[i];
	}
	PBOX_ASSERT(sum >= slots);
	take_excess(cost, workers, pipeline, first, sum - slots, t);
	for (unsigned i = 0; i < workers; i++) {
		unsigned k = first[i];

		first[i] = (uint16_t)at;
		at += k;
	}
	first[workers] = (uint16_t)at;
	PBOX_ASSERT(at == slots);
	return pbox_work_predict(cost, workers, pipeline, first, NULL);
}
