/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The room: its limits, what it refuses, targets, and its sentences. */

#include <errno.h>
#include <math.h>
#include <string.h>

#include <pbox_balance.h>

#include "../unit.h"

const char unit_suite[] = "balance: the room";

static void
test_conf(void)
{
	struct pbox_error err;

	CU_ASSERT(pbox_balance_create(
			  &(struct pbox_balance_conf){.boxes = 17, .workers = 1}, &err) == NULL);
	CU_ASSERT(strstr(err.text, "17 boxes") != NULL);
	CU_ASSERT(pbox_balance_create(
			  &(struct pbox_balance_conf){.boxes = 0, .workers = 1}, &err) == NULL);
	CU_ASSERT(pbox_balance_create(
			  &(struct pbox_balance_conf){.boxes = 1, .workers = 4097}, &err) == NULL);
}

/* What is no time of a round is refused whole: the figures before and after count. */
static void
test_refused(void)
{
	struct pbox_balance *b =
		pbox_balance_create(&(struct pbox_balance_conf){.boxes = 2, .workers = 2}, NULL);
	struct pbox_balance_times round = {.rounds = 20, .mean = 0.3, .sd = 0.01};
	struct pbox_balance_times box[2] = {round, round};
	const double bad[] = {NAN, -1, INFINITY, 1e9};
	struct pbox_balance_box map[2] = {{100, true}, {100, true}};
	struct pbox_balance_view view;
	struct pbox_error err;

	CU_ASSERT_FATAL(b != NULL);
	for (unsigned i = 0; i < 4; i++) {
		struct pbox_balance_times wrong = round;

		wrong.mean = bad[i];
		CU_ASSERT(pbox_balance_report(b, 1, &wrong, box, &err) == -EINVAL);
		CU_ASSERT(strstr(err.text, "worker 1") != NULL);
		wrong = box[1];
		box[1].sd = bad[i];
		CU_ASSERT(pbox_balance_report(b, 1, &round, box, &err) == -EINVAL);
		box[1] = wrong;
	}
	CU_ASSERT(pbox_balance_decide(b, map) == NULL);
	pbox_balance_view(b, 0, &view);
	CU_ASSERT(!view.measured);
	CU_ASSERT(pbox_balance_report(b, 0, &round, box, NULL) == 0);
	pbox_balance_decide(b, map);
	pbox_balance_view(b, 0, &view);
	CU_ASSERT(view.measured && fabs(view.mean - 0.3) < 1e-9);
	pbox_balance_destroy(b);
}

static void
test_target(void)
{
	uint64_t bytes[4];
	struct pbox_random r;

	pbox_balance_target(1000, 3, (const double[]){1, 2, 0}, bytes);
	UNIT_EQ_U64(bytes[0], 667);
	UNIT_EQ_U64(bytes[1], 333);
	UNIT_EQ_U64(bytes[2], 0);
	pbox_random_seed(&r, 4);
	for (unsigned k = 0; k < 1000; k++) {
		double seconds[4];
		uint64_t total = pbox_random_below(&r, UINT64_C(1) << 40), sum = 0;

		for (unsigned i = 0; i < 4; i++)
			seconds[i] = i == k % 4 ? 1 : pbox_random_unit(&r) * 10;
		pbox_balance_target(total, 4, seconds, bytes);
		for (unsigned i = 0; i < 4; i++)
			sum += bytes[i];
		UNIT_EQ_U64(sum, total);
	}
}

static void
test_text(void)
{
	struct pbox_balance_action a = {.cause = PBOX_BALANCE_STRAGGLER,
		.box = 1,
		.to = 2,
		.ratio = 3.9,
		.before = 0.41,
		.after = 0.19,
		.moves = 17000000,
		.bytes = {92, 8}};
	static const char *const text[] = {"box 1 does not serve: the other boxes take its 17 MB",
		"box 1 takes 3.9 times as long as the others: 8 % of the bytes from now on, a round 0.41 s -> 0.19 s",
		"spare box 1 is taken in with 8 % of the bytes: a round 0.41 s -> 0.19 s",
		"box 1 is let go: a round without it 0.41 s -> 0.19 s",
		"17 MB go from box 1 to box 2 to see whether a round gets shorter than 0.41 s",
		"the last change did not make a round as short as predicted (0.41 s before, 0.19 s after): 17 MB go back"};

	char said[PBOX_BALANCE_TEXT];

	a.bytes[0] = 1363, a.bytes[1] = 4;
	pbox_balance_text(&a, said, sizeof(said));
	CU_ASSERT(strstr(said, "others: less than 1 % of the bytes") != NULL);
	a.bytes[0] = 92, a.bytes[1] = 8;
	for (unsigned i = 0; i <= PBOX_BALANCE_BACK; i++) {
		char got[PBOX_BALANCE_TEXT];

		a.cause = (enum pbox_balance_cause)i;
		pbox_balance_text(&a, got, sizeof(got));
		CU_ASSERT_STRING_EQUAL(got, text[i]);
	}
}

const struct unit_test unit_tests[] = {
	{"what cannot be", test_conf},
	{"what is refused", test_refused},
	{"bytes that end at the same time", test_target},
	{"sentences", test_text},
	{NULL, NULL},
};
