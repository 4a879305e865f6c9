/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_slots.h>
#include <work_impl.h>

#include "../unit.h"

const char unit_suite[] = "work: shares";

static double
draw(struct pbox_random *r, double low, double high)
{
	return low + (high - low) * pbox_random_unit(r);
}

static void
draw_costs(struct pbox_random *r, struct pbox_work_cost *cost, unsigned workers, unsigned slots)
{
	bool one = false;

	for (unsigned i = 0; i < workers; i++) {
		cost[i] = (struct pbox_work_cost){.slot = exp(draw(r, -2, 2)),
			.fixed = draw(r, 0, 2),
			.up = draw(r, 0, 1),
			.down = draw(r, 0, 1),
			.most = pbox_random_below(r, 10) > 0 ? (uint16_t)slots : 0};
		one |= cost[i].most > 0;
	}
	if (!one)
		cost[0].most = (uint16_t)slots;
}

/* Seconds of the round by the definition, and whether the shares are ranges in order that are all slots. */
static double
check_shares(const struct pbox_work_cost *cost, unsigned workers, unsigned slots,
	const uint16_t *first, unsigned *nodes)
{
	struct pbox_node node[PBOX_RANGE_NODES];
	unsigned bad = first[0] != 0 || first[workers] != slots;
	double last = 0;

	*nodes = 0;
	for (unsigned i = 0; i < workers; i++) {
		unsigned k = first[i + 1] - first[i];
		unsigned n = pbox_range_nodes(first[i], first[i + 1], slots, node);
		double t = work_time(&cost[i], k, n);

		bad += first[i + 1] < first[i] || k > cost[i].most || k < cost[i].least;
		last = t > last ? t : last;
		*nodes += n;
	}
	UNIT_EQ_U64(bad, 0);
	return last;
}

/* The earliest end of any shares of whole slots, by trying all: each worker takes 0 to left slots, one node each. */
static double
best_of_all(const struct pbox_work_cost *cost, unsigned workers, unsigned left)
{
	double best = INFINITY;

	if (workers == 1)
		return left <= cost->most ? work_time(cost, left, 1) : INFINITY;
	for (unsigned k = 0; k <= left && k <= cost->most; k++) {
		double t = work_time(cost, k, 1);
		double rest = best_of_all(cost + 1, workers - 1, left - k);

		t = t > rest ? t : rest;
		best = t < best ? t : best;
	}
	return best;
}

/* Without payloads of their own nodes cost nothing, and no whole slots end earlier. */
static void
test_optimum(void)
{
	struct pbox_random r;

	pbox_random_seed(&r, 1);
	for (unsigned i = 0; i < 300; i++) {
		unsigned workers = 1 + (unsigned)pbox_random_below(&r, 4), nodes;
		unsigned slots = workers + (unsigned)pbox_random_below(&r, 14);
		struct pbox_work_cost cost[4];
		uint16_t first[5];
		double t, best;

		draw_costs(&r, cost, workers, slots);
		for (unsigned w = 0; w < workers; w++)
			cost[w].up = 0;
		t = work_share_unaligned(cost, workers, slots, first);
		best = best_of_all(cost, workers, slots);
		CU_ASSERT(fabs(t - best) < 1e-6 * best);
		CU_ASSERT(t == check_shares(cost, workers, slots, first, &nodes));
	}
}

/* Moved borders: the round stays below 1.05 times that of the others, and has no more nodes unless it is shorter. */
static void
test_borders(void)
{
	unsigned saved = 0, all = 0;
	struct pbox_random r;
	double worst = 0;

	pbox_random_seed(&r, 2);
	for (unsigned i = 0; i < 600; i++) {
		unsigned workers = 1 + (unsigned)pbox_random_below(&r, i % 10 == 0 ? 300 : 20);
		unsigned slots = workers +
				 (unsigned)pbox_random_below(&r, i % 2 == 0 ? 200 : 4096 - workers);
		uint16_t plain[301], first[301], spare[3 * 301];
		unsigned nodes[2];
		struct pbox_work_cost cost[300];
		double t[2];

		draw_costs(&r, cost, workers, slots);
		t[0] = work_share_unaligned(cost, workers, slots, plain);
		t[1] = work_share(cost, workers, slots, first, spare);
		CU_ASSERT(t[0] == check_shares(cost, workers, slots, plain, &nodes[0]));
		CU_ASSERT(t[1] == check_shares(cost, workers, slots, first, &nodes[1]));
		CU_ASSERT(t[1] < 1.05 * t[0]);
		CU_ASSERT(nodes[1] <= nodes[0] || t[1] < t[0]);
		worst = t[1] / t[0] > worst ? t[1] / t[0] : worst;
		saved += nodes[0] > nodes[1] ? nodes[0] - nodes[1] : 0;
		all += nodes[0];
	}
	printf("\n    nodes: %u of %u saved; the longest round: %.3f of the one without", saved,
		all, worst);
	CU_ASSERT(saved > all / 5);
}

/* Payloads that cost nothing: 26, 13, 13, 12 slots of 64 consist of many nodes, and 5 % is enough for fewer. */
static void
test_border_by_hand(void)
{
	struct pbox_work_cost cost[4];
	uint16_t first[5], spare[15], plain[5];
	unsigned nodes, before;

	for (unsigned i = 0; i < 4; i++)
		cost[i] = (struct pbox_work_cost){.slot = i == 0 ? 1 : 2, .most = 1000};
	work_share_unaligned(cost, 4, 1000, plain);
	UNIT_EQ_U64(plain[1], 400);
	UNIT_EQ_U64(plain[2], 600);
	UNIT_EQ_U64(plain[3], 800);
	work_predict(cost, 4, plain, &before);
	work_share(cost, 4, 1000, first, spare);
	work_predict(cost, 4, first, &nodes);
	CU_ASSERT(nodes < before);
	CU_ASSERT(first[1] > 380 && first[1] < 420 && first[1] % 16 == 0);
}

static void
test_limits(void)
{
	static struct pbox_work_cost cost[PBOX_WORK_MAX_WORKERS];
	static uint16_t first[PBOX_WORK_MAX_WORKERS + 1], spare[3 * (PBOX_WORK_MAX_WORKERS + 1)];
	static const unsigned workers[] = {1, 2, 3, 64, 1000, 4095, 4096};
	struct pbox_random r;
	unsigned nodes;

	pbox_random_seed(&r, 3);
	for (unsigned i = 0; i < sizeof(workers) / sizeof(workers[0]); i++)
		for (unsigned k = 0; k < 3; k++) {
			unsigned n = workers[i];
			unsigned slots = k == 0   ? n
					 : k == 1 ? PBOX_MAX_SLOTS
						  : (n + PBOX_MAX_SLOTS) / 2;

			draw_costs(&r, cost, n, slots);
			work_share(cost, n, slots, first, spare);
			check_shares(cost, n, slots, first, &nodes);
			/* all alike, as many slots as workers: one each */
			for (unsigned w = 0; w < n; w++)
				cost[w] = (struct pbox_work_cost){
					.slot = 1, .up = 1, .most = (uint16_t)n};
			work_share(cost, n, n, first, spare);
			for (unsigned w = 0; w < n; w++)
				if (first[w] != w)
					CU_FAIL("one slot each");
		}
}

static void
test_least(void)
{
	struct pbox_work_cost cost[3] = {
		{.slot = 1, .most = 8}, {.slot = 1000, .most = 8}, {.slot = 1, .most = 0}};
	uint16_t first[4], spare[12];

	work_share(cost, 3, 8, first, spare);
	UNIT_EQ_U64(first[1], 8);
	cost[1].least = 1;
	work_share(cost, 3, 8, first, spare);
	UNIT_EQ_U64(first[1], 7);
	UNIT_EQ_U64(first[2], 8);
}

static void
test_time(void)
{
	struct pbox_work_cost c = {.slot = 2, .fixed = 1, .up = 3, .down = 4};

	CU_ASSERT(work_time(&c, 5, 2) == 1 + 10 + 6 + 4);
	CU_ASSERT(work_time(&c, 0, 0) == 0);
}

const struct unit_test unit_tests[] = {
	{"no whole slots end earlier", test_optimum},
	{"moved borders", test_borders},
	{"moved borders by hand", test_border_by_hand},
	{"from 1 to 4096 workers", test_limits},
	{"least and most", test_least},
	{"the time of a round", test_time},
	{NULL, NULL},
};
