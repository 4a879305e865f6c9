/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A decision is made in pieces that have a bound, whatever workers report. */

#include <math.h>

#include <pbox_slots.h>
#include <pbox_work.h>

#include "../unit.h"

const char unit_suite[] = "work: decisions in pieces";

#define WORKERS 1024
#define PIECES  40 /* of a decision: with a piece each tick less than a second */

struct seconds {
	double compute, fixed, up, down;
};

/* What liars report, and the honest. 0 seconds a slot are refused. */
static struct seconds
reported(unsigned kind, unsigned worker, struct pbox_random *r)
{
	double x = pbox_random_unit(r);

	switch (kind) {
	case 0: /* all alike, or almost */
		return (struct seconds){1 + x / 10, .1, .01, .1};
	case 1: /* one is as fast as can be said, the others as slow */
		return (struct seconds){worker == 0 ? 1e-9 : 1e6};
	case 2: /* the other way round */
		return (struct seconds){worker == 0 ? 1e6 : 1e-9};
	case 3: /* everything between these */
		return (struct seconds){exp(-20 + 33 * x), exp(-20 + 33 * pbox_random_unit(r))};
	case 4: /* slots are hardly to be seen in the round */
		return (struct seconds){1e-9, 1e6};
	case 5:
		return (struct seconds){1e-9, 1e6 * x, 1e6 * x, 1e6};
	case 6: /* the smallest numbers that there are */
		return (struct seconds){5e-324, 5e-324, 5e-324, 5e-324};
	default: /* half of them are twice as slow: honest, and much to gain */
		return (struct seconds){worker % 2 + 1 + x / 100, 0, .001, 0};
	}
}

static void
report_all(struct pbox_work *w, unsigned kind, uint32_t round, struct pbox_random *r)
{
	struct pbox_error err;

	for (unsigned i = 0; i < WORKERS; i++) {
		struct seconds s = reported(kind, i, r);
		struct pbox_work_report m = {.round = round,
			.slots = 1,
			.payloads = 1,
			.fits = true,
			.compute = s.compute,
			.fixed = s.fixed,
			.up = s.up,
			.down = s.down};

		/* who was measured may be gone, so that a plan is to be made in any case */
		m.fits = i != 1 || round != 3;
		UNIT_EQ_U64(pbox_work_report(w, i, &m, &err), 0);
	}
}

static bool
is_whole(const struct pbox_work_plan *p, unsigned slots)
{
	for (unsigned s = 0; s < slots; s++)
		if (p->owner[s] >= WORKERS || (s > 0 && p->owner[s] < p->owner[s - 1]))
			return false;
	return true;
}

static void
decide(unsigned kind, unsigned slots, unsigned nodes_most, bool late)
{
	const struct pbox_work_conf conf = {
		.workers = WORKERS, .slots = slots, .everyone = true, .nodes_most = nodes_most};
	struct pbox_work_reason why;
	struct pbox_random r;
	struct pbox_error err;
	struct pbox_work *w = pbox_work_create(&conf, &err);
	unsigned plans = 0;

	CU_ASSERT_FATAL(w != NULL);
	pbox_random_seed(&r, kind);
	for (uint32_t round = 1; round < 5; round++) {
		unsigned pieces = 0, steps = 0;
		int ret;

		pbox_work_round(w, round);
		report_all(w, kind, round, &r);
		do {
			ret = pbox_work_decide(w, round + 1, late ? 1e6 : 0, &why, &err);
			CU_ASSERT(pbox_work_steps(w) <= 40 * WORKERS);
			steps += pbox_work_steps(w);
		} while (ret == PBOX_WORK_GOES_ON && ++pieces < 10 * PIECES);
		CU_ASSERT(pieces < PIECES);
		/* nobody can have more than one slot: there is nothing to look for */
		if (slots == WORKERS && round == 1 && kind == 0)
			CU_ASSERT(steps < 60 * WORKERS);
		if (ret != 1)
			continue;
		plans++;
		CU_ASSERT(is_whole(pbox_work_next(w), slots));
	}
	CU_ASSERT(plans > 0);
	pbox_work_destroy(w);
}

static void
test_pieces(void)
{
	for (unsigned kind = 0; kind < 8; kind++)
		for (unsigned late = 0; late < 2; late++) {
			decide(kind, 4096, 0, late != 0);
			decide(kind, 4096, WORKERS + WORKERS / 8, late != 0);
			decide(kind, WORKERS, 0, late != 0);
			decide(kind, WORKERS + 1, 0, late != 0);
		}
}

/* What it has begun with changes: it begins again, and a worker that is gone gets nothing. */
static void
test_begins_again(void)
{
	const struct pbox_work_conf conf = {.workers = WORKERS, .slots = 4096, .everyone = true};
	struct pbox_work *w = pbox_work_create(&conf, NULL);
	const struct pbox_work_move *moves;
	struct pbox_work_reason why;
	struct pbox_random r;
	unsigned pieces = 0;
	int ret;

	CU_ASSERT_FATAL(w != NULL);
	pbox_random_seed(&r, 1);
	pbox_work_round(w, 1);
	report_all(w, 7, 1, &r);
	UNIT_EQ_U64(pbox_work_decide(w, 3, 0, &why, NULL), PBOX_WORK_GOES_ON);
	CU_ASSERT(pbox_work_gone(w, 5, 0, &moves, &why) > 0);
	do
		ret = pbox_work_decide(w, 3, 0, &why, NULL);
	while (ret == PBOX_WORK_GOES_ON && ++pieces < PIECES);
	UNIT_EQ_U64(ret, 1);
	UNIT_EQ_U64(why.cause, PBOX_WORK_GONE);
	for (unsigned s = 0; s < 4096; s++)
		if (pbox_work_next(w)->owner[s] == 5)
			CU_FAIL("a slot of one that is gone");
	pbox_work_destroy(w);
}

const struct unit_test unit_tests[] = {
	{"40 looks at each worker a piece", test_pieces},
	{"it begins again", test_begins_again},
	{NULL, NULL},
};
