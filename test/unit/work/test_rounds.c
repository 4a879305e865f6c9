/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What plans bring, in virtual time. Each figure is printed with the bound that arithmetic gives it. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../unit.h"
#include "sim.h"

const char unit_suite[] = "work: rounds in virtual time";

#define SEEDS  5
#define SETTLE 60 /* rounds until a plan is there */

/* Four workers whose seconds a slot are in proportion to cost[]; the slowest one's equal share takes 1 - traffic seconds, its
 * transfers take the rest, half of it up and half down. */
static void
begin_four(struct sim *s, const struct sim_conf *conf, const double *cost, double traffic)
{
	double slowest = 0, equal = conf->slots / 4.0;

	sim_begin(s, conf, 1, traffic / 2, traffic / 2);
	for (unsigned i = 0; i < 4; i++)
		slowest = cost[i] > slowest ? cost[i] : slowest;
	for (unsigned i = 0; i < 4; i++)
		s->cost[i].slot = (1 - traffic) * cost[i] / (slowest * equal);
}

/* Seconds of 200 rounds with equal shares over those with plans. */
static double
gain_by_plans(const double *cost, double traffic, unsigned slots, uint64_t seed)
{
	struct sim_conf equal = {4, slots, 0.05, 0, false, true, false, seed};
	struct sim_conf plans = {4, slots, 0.05, 0, false, false, false, seed};
	double seconds[2];

	for (unsigned i = 0; i < 2; i++) {
		struct sim s;

		begin_four(&s, i == 0 ? &equal : &plans, cost, traffic);
		sim_rounds(&s, SETTLE);
		s.total = 0;
		sim_rounds(&s, 200);
		seconds[i] = s.total;
		sim_end(&s);
	}
	return seconds[0] / seconds[1];
}

/* The mean over seeds. */
static double
mean_gain(const char *what, const double *cost, double traffic, unsigned slots, double bound)
{
	double sum = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		sum += gain_by_plans(cost, traffic, slots, seed);
	printf("\n    %s, traffic %.0f %%, %u slots: %.2fx (bound %.2fx)", what, 100 * traffic,
		slots, sum / SEEDS, bound);
	return sum / SEEDS;
}

/* With speeds 2:1:1:1 shares by speed bring 5 / 4 at most, and with 10 % of traffic 1 / (0.9 x 4 / 5 + 0.1) = 1.22; with
 * seconds a slot 2:1:1:1 they bring 1 / (0.9 x 4 / 7 + 0.1) = 1.63. */
static void
test_one_other(void)
{
	static const double slow[] = {2, 1, 1, 1}, fast[] = {1, 2, 2, 2};

	/* all payloads after all slots: here a second node costs half of what a better share brings */
	CU_ASSERT(mean_gain("seconds 2:1:1:1", slow, 0.1, 64, 1.63) >= 1.20);
	CU_ASSERT(mean_gain("speeds 2:1:1:1", fast, 0.1, 64, 1.22) >= 0.98);
}

/* Traffic of 45 % of the slowest one's round: 1 / (0.55 x 4 / 9 + 0.45) = 1.44 at most. Of the mean worker's round, that is 31 % of
 * the slowest one's: 1 / (0.69 x 4 / 9 + 0.31) = 1.61. Shares of 8:4:4:2 in 18 would need several payloads: 8:4:2:2 have one. */
static void
test_four_speeds(void)
{
	static const double cost[] = {1, 2, 2, 4};

	for (unsigned slots = 16; slots <= 1024; slots *= 8) {
		CU_ASSERT(mean_gain("speeds 4:2:2:1", cost, 0.45, slots, 1.44) >= 1.33);
		CU_ASSERT(mean_gain("speeds 4:2:2:1", cost, 0.315, slots, 1.61) >= 1.45);
	}
}

static unsigned
plans_when_quiet(unsigned workers, unsigned slots, double jitter, uint64_t seed)
{
	struct sim_conf conf = {workers, slots, jitter, 0.002, true, false, false, seed};
	struct sim s;
	unsigned plans;

	sim_begin(&s, &conf, 0.9 * workers / slots, 0.05, 0.05);
	sim_rounds(&s, 1000);
	plans = s.plans;
	for (unsigned i = 0; i < workers && jitter <= 0.1; i++) {
		struct pbox_work_view v;

		/* nobody's speed has changed since it was known */
		pbox_work_view(s.work, i, &v);
		UNIT_EQ_U64(v.since, 1);
	}
	if (plans > 0) {
		char text[PBOX_WORK_REASON_TEXT];

		pbox_work_reason_text(&s.why, text, sizeof(text));
		printf("\n    %u workers, %u slots, jitter %.2f, seed %u: %u plans: %s", workers,
			slots, jitter, (unsigned)seed, plans, text);
	}
	sim_end(&s);
	return plans;
}

static void
test_quiet(void)
{
	static const unsigned workers[] = {2, 4, 8, 16}, each[] = {1, 4, 16, 64};

	for (unsigned w = 0; w < 4; w++)
		for (unsigned e = 0; e < 4; e++)
			for (uint64_t seed = 1; workers[w] * each[e] <= 256 && seed <= 2 * SEEDS;
				seed++) {
				unsigned slots = workers[w] * each[e];

				UNIT_EQ_U64(plans_when_quiet(workers[w], slots, 0.05, seed), 0);
				UNIT_EQ_U64(plans_when_quiet(workers[w], slots, 0.1, seed), 0);
			}
}

/* Small slots and much jitter: what a plan seems to gain is noise. */
static void
test_noisy(void)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		UNIT_EQ_U64(plans_when_quiet(16, 256, 0.2, seed), 0);
		UNIT_EQ_U64(plans_when_quiet(4, 256, 0.3, seed), 0);
	}
}

/* A random worker is 6 times slower; every 20 rounds it is another one. Throughput over that of the oracle. */
static double
follow(unsigned workers, unsigned slots, bool steal, uint64_t seed, bool fixed)
{
	struct sim_conf conf = {workers, slots, 0.05, 0.002, steal, fixed, true, seed};
	struct pbox_random random;
	double slot = 0.9 * workers / slots;
	struct sim s;
	unsigned slow = 0;
	double ratio;

	pbox_random_seed(&random, seed + 1000);
	sim_begin(&s, &conf, slot, 0.05, 0.05);
	for (unsigned i = 0; i < 500; i++) {
		if (i % 20 == 0) {
			s.cost[slow].slot = slot;
			slow = (slow + 1 + (unsigned)pbox_random_below(&random, workers - 1)) %
			       workers;
			s.cost[slow].slot = 6 * slot;
		}
		sim_round(&s);
	}
	ratio = s.oracle_total / s.total;
	sim_end(&s);
	return ratio;
}

static void
test_moving(void)
{
	static const unsigned workers[] = {4, 8, 16};

	for (unsigned w = 0; w < 3; w++) {
		double steal = 0, plans, equal;

		for (uint64_t seed = 1; seed <= SEEDS; seed++) {
			double x = follow(workers[w], 16 * workers[w], true, seed, false);

			CU_ASSERT(x >= 0.8);
			steal += x / SEEDS;
		}
		plans = follow(workers[w], 16 * workers[w], false, 1, false);
		equal = follow(workers[w], 16 * workers[w], false, 1, true);
		CU_ASSERT(plans > 1.5 * equal);
		printf("\n    %u workers: %.2f of the oracle; without steals %.2f, equal shares %.2f",
			workers[w], steal, plans, equal);
	}
}

/* A worker's memory does not hold a micro-batch any more: it has no slots, and the others go on; then it does again. */
static void
test_memory(void)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim_conf conf = {4, 64, 0.05, 0, true, false, false, seed};
		struct sim s;
		double before = 0;

		sim_begin(&s, &conf, 0.9 / 16, 0.05, 0.05);
		for (unsigned i = 0; i < 40; i++)
			before += sim_round(&s) / 40;
		s.fits[2] = false;
		sim_rounds(&s, 3);
		UNIT_EQ_U64(s.plans, 1);
		CU_ASSERT(s.why.cause == PBOX_WORK_MEMORY && s.why.worker == 2 && !s.why.fits);
		for (unsigned i = 0; i < 64; i++)
			CU_ASSERT(pbox_work_plan(s.work)->owner[i] != 2);
		for (unsigned i = 0; i < 5; i++)
			CU_ASSERT(sim_round(&s) < 1.25 * before * 4 / 3);
		/* it comes back after 5 rounds */
		s.fits[2] = true;
		sim_rounds(&s, 4);
		UNIT_EQ_U64(s.plans, 1);
		sim_rounds(&s, 16);
		CU_ASSERT(s.plans >= 2);
		for (unsigned i = 0; i < 5; i++)
			CU_ASSERT(sim_round(&s) < 1.25 * before);
		sim_end(&s);
	}
}

static void
test_deaths(void)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct sim_conf conf = {8, 100, 0.1, 0.01, seed % 2 > 0, false, false, seed};
		unsigned members = 8;
		struct sim s;

		sim_begin(&s, &conf, 0.07, 0.05, 0.05);
		for (unsigned i = 0; i < 8; i++)
			s.cost[i].slot *= 1 + 2 * pbox_random_unit(&s.random);
		for (unsigned r = 0; r < 300; r++) {
			unsigned w = (unsigned)pbox_random_below(&s.random, 8);
			const struct pbox_work_move *move;

			if (r % 10 == 3 && s.member[w] && members > 1) {
				sim_round_with_death(&s, w, pbox_random_unit(&s.random));
				members -= !s.member[w];
			} else {
				sim_round(&s);
			}
			if (r % 10 == 8 && !s.member[w]) {
				UNIT_EQ_U64(pbox_work_join(s.work, w, &move), 0);
				s.member[w] = true;
				members++;
			}
			sim_check_owners(&s);
		}
		sim_end(&s);
	}
}

const struct unit_test unit_tests[] = {
	{"one of four is slower, or faster", test_one_other},
	{"speeds 4:2:2:1 with much traffic", test_four_speeds},
	{"no plan while all is quiet", test_quiet},
	{"no plan for noise", test_noisy},
	{"a slowdown that moves", test_moving},
	{"memory is cut", test_memory},
	{"deaths and joins", test_deaths},
	{NULL, NULL},
};
