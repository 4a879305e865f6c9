/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include <pbox_table.h>

#include "unit.h"

const char unit_suite[] = "model: schedule";

static struct pbox_schedule s;
static struct pbox_error err;

static void
begin(enum pbox_optimiser kind)
{
	memset(&s, 0, sizeof(s));
	pbox_hyper_defaults(&s.entry[0].hyper, kind);
	atomic_store(&s.count, 1);
}

/* All fragments have finished that round. */
static const struct pbox_finished *
all_at(uint32_t round)
{
	static struct pbox_finished all;

	all = (struct pbox_finished){.highest = round, .lowest = round, .known = true};
	return &all;
}

static int
set1(uint32_t round, unsigned id, double value, uint32_t finished)
{
	struct pbox_set m = {.table = 4, .group = 9, .count = 1, .from_round = round};

	m.param[0].id = (uint16_t)id;
	m.param[0].value = value;
	return pbox_schedule_add(&s, PBOX_OPT_MOMENTUM, &m, all_at(finished), &err);
}

#define LR(round) pbox_schedule_at(&s, round)->lr

static void
test_holds_from_its_round_on(void)
{
	begin(PBOX_OPT_MOMENTUM);
	CU_ASSERT_FALSE(pbox_schedule_at(&s, 1)->has_lr);
	UNIT_EQ_U64(set1(1, PBOX_HYPER_LR, 0.5, 0), 0);
	UNIT_EQ_U64(set1(5, PBOX_HYPER_LR, 0.25, 0), 0);
	CU_ASSERT_TRUE(pbox_schedule_at(&s, 1)->has_lr);
	CU_ASSERT_EQUAL(LR(1), 0.5);
	CU_ASSERT_EQUAL(LR(4), 0.5);
	CU_ASSERT_EQUAL(LR(5), 0.25);
	CU_ASSERT_EQUAL(LR(1000), 0.25);
	CU_ASSERT_EQUAL(LR(0), 0.0);
}

static void
test_order_and_late(void)
{
	begin(PBOX_OPT_MOMENTUM);
	UNIT_EQ_U64(set1(0, PBOX_HYPER_LR, 1, 0), PBOX_E_SET_LATE);
	UNIT_EQ_U64(set1(5, PBOX_HYPER_LR, 1, 0), 0);
	UNIT_EQ_U64(set1(4, PBOX_HYPER_LR, 2, 0), PBOX_E_SET_ORDER);
	CU_ASSERT_STRING_EQUAL(err.text,
		"SET of group 9 of table 4 from round 4 on: an earlier SET holds from a later round on");
	UNIT_EQ_U64(set1(5, PBOX_HYPER_MOMENTUM, 0.9, 5), PBOX_E_SET_LATE);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text,
		"SET of group 9 of table 4 from round 5 on: that round is already finished: set it"));
	UNIT_EQ_U64(set1(6 + (1u << 30), PBOX_HYPER_LR, 1, 5), PBOX_E_FULL);
	UNIT_EQ_U64(set1(100000, PBOX_HYPER_LR, 2, 5), 0);
	CU_ASSERT_EQUAL(LR(99999), 1.0);
	CU_ASSERT_EQUAL(LR(100000), 2.0);
}

static void
test_repeat_and_conflict(void)
{
	begin(PBOX_OPT_MOMENTUM);
	UNIT_EQ_U64(set1(3, PBOX_HYPER_LR, 1, 0), 0);
	UNIT_EQ_U64(set1(3, PBOX_HYPER_LR, 1, 0), 0);
	UNIT_EQ_U64(atomic_load(&s.count), 2);
	UNIT_EQ_U64(set1(3, PBOX_HYPER_LR, 2, 0), PBOX_E_SET_CONFLICT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "lr is 2 here, and "));
	UNIT_EQ_U64(set1(6, PBOX_HYPER_LR, 3, 0), 0);
	/* a repetition arrives after a later SET, and when its round is long finished */
	UNIT_EQ_U64(set1(3, PBOX_HYPER_LR, 1, 0), 0);
	UNIT_EQ_U64(set1(3, PBOX_HYPER_LR, 1, 7), 0);
	UNIT_EQ_U64(atomic_load(&s.count), 3);
	CU_ASSERT_EQUAL(LR(3), 1.0);
	CU_ASSERT_EQUAL(LR(6), 3.0);
}

static void
test_different_parameters_of_one_round_merge(void)
{
	struct pbox_set m = {.from_round = 2,
		.count = 2,
		.param = {{PBOX_HYPER_LR, 0.1}, {PBOX_HYPER_MOMENTUM, 0.9}}};

	begin(PBOX_OPT_MOMENTUM);
	UNIT_EQ_U64(set1(2, PBOX_HYPER_WEIGHT_DECAY, 0.5, 0), 0);
	UNIT_EQ_U64(pbox_schedule_add(&s, PBOX_OPT_MOMENTUM, &m, all_at(0), &err), 0);
	UNIT_EQ_U64(set1(2, PBOX_HYPER_MOMENTUM, 0.9, 0), 0);
	UNIT_EQ_U64(set1(2, PBOX_HYPER_WEIGHT_DECAY, 0.6, 0), PBOX_E_SET_CONFLICT);
	CU_ASSERT_EQUAL(pbox_schedule_at(&s, 2)->lr, 0.1);
	CU_ASSERT_EQUAL(pbox_schedule_at(&s, 2)->momentum, 0.9);
	CU_ASSERT_EQUAL(pbox_schedule_at(&s, 2)->weight_decay, 0.5);
	CU_ASSERT_EQUAL(pbox_schedule_at(&s, 1)->weight_decay, 0.0);
	/* half new, half a contradiction: nothing of it holds */
	m.param[0] = (typeof(m.param[0])){PBOX_HYPER_DAMPENING, 0.5};
	m.param[1].value = 0.8;
	UNIT_EQ_U64(
		pbox_schedule_add(&s, PBOX_OPT_MOMENTUM, &m, all_at(0), &err), PBOX_E_SET_CONFLICT);
	CU_ASSERT_EQUAL(pbox_schedule_at(&s, 2)->dampening, 0.0);
}

static void
test_nonsense(void)
{
	begin(PBOX_OPT_MOMENTUM);
	UNIT_EQ_U64(set1(1, 0, 1, 0), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(set1(1, PBOX_HYPER_IDS, 1, 0), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(set1(1, PBOX_HYPER_PLAIN, 2 * PBOX_PLAIN_WHYS_END, 0), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(set1(1, PBOX_HYPER_PLAIN, 0.5, 0), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(set1(1, PBOX_HYPER_PLAIN, -1, 0), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(set1(1, 77, 1, 0), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(set1(1, PBOX_HYPER_LR, -1, 0), PBOX_E_BAD_REQUEST);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "lr must be a finite number, 0 or more"));
	UNIT_EQ_U64(set1(1, PBOX_HYPER_BETA1, 1, 0), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(atomic_load(&s.count), 1);
}

/* The check says what add would, and changes nothing. */
static void
test_check_changes_nothing(void)
{
	struct pbox_set m = {.count = 1, .from_round = 2, .param = {{PBOX_HYPER_LR, 0.5}}};

	begin(PBOX_OPT_MOMENTUM);
	UNIT_EQ_U64(pbox_schedule_check(&s, PBOX_OPT_MOMENTUM, &m, all_at(0), &err), 0);
	UNIT_EQ_U64(atomic_load(&s.count), 1);
	CU_ASSERT_FALSE(pbox_schedule_at(&s, 2)->has_lr);
	UNIT_EQ_U64(
		pbox_schedule_check(&s, PBOX_OPT_MOMENTUM, &m, all_at(2), &err), PBOX_E_SET_LATE);
	UNIT_EQ_U64(pbox_schedule_add(&s, PBOX_OPT_MOMENTUM, &m, all_at(0), &err), 0);
	m.param[0].value = 1;
	UNIT_EQ_U64(pbox_schedule_check(&s, PBOX_OPT_MOMENTUM, &m, all_at(0), &err),
		PBOX_E_SET_CONFLICT);
}

/* Nesterov without momentum is nothing that PyTorch has: the text shows the way. */
static void
test_nesterov(void)
{
	struct pbox_set m = {.count = 1, .from_round = 1, .param = {{PBOX_HYPER_LR, 0.5}}};

	begin(PBOX_OPT_NESTEROV);
	UNIT_EQ_U64(
		pbox_schedule_add(&s, PBOX_OPT_NESTEROV, &m, all_at(0), &err), PBOX_E_BAD_REQUEST);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "set momentum and lr in one SET"));
	m.count = 2;
	m.param[1] = (typeof(m.param[1])){PBOX_HYPER_MOMENTUM, 0.9};
	UNIT_EQ_U64(pbox_schedule_add(&s, PBOX_OPT_NESTEROV, &m, all_at(0), &err), 0);
}

/* A new lr every round for far more rounds than are remembered. */
static void
test_many_rounds(void)
{
	begin(PBOX_OPT_MOMENTUM);
	for (uint32_t r = 1; r < 1000; r++) {
		UNIT_EQ_U64(set1(r + 31, PBOX_HYPER_LR, r + 31, r == 1 ? 0 : r - 1), 0);
		if (r > 31)
			CU_ASSERT_EQUAL(LR(r), (double)r);
	}
}

/* The count of SETs wraps around: nothing of it is to be seen. */
static void
test_count_wraps(void)
{
	uint32_t many;

	begin(PBOX_OPT_MOMENTUM);
	for (uint32_t r = 1; r <= 3 * PBOX_SCHEDULE; r++)
		UNIT_EQ_U64(set1(r, PBOX_HYPER_LR, r, r - 1), 0);
	many = atomic_load(&s.count) % PBOX_SCHEDULE + (UINT32_MAX - 2 * PBOX_SCHEDULE + 1);
	atomic_store(&s.count, many);
	for (uint32_t r = 3 * PBOX_SCHEDULE + 1; r <= 9 * PBOX_SCHEDULE; r++) {
		uint32_t before = atomic_load(&s.count);

		UNIT_EQ_U64(set1(r, PBOX_HYPER_LR, r, r - PBOX_SCHEDULE + 2), 0);
		CU_ASSERT(atomic_load(&s.count) != before);
		CU_ASSERT(atomic_load(&s.count) > PBOX_SCHEDULE);
		for (uint32_t k = 0; k < PBOX_SCHEDULE; k++)
			CU_ASSERT_EQUAL(LR(r - k), (double)(r - k));
		pbox_schedule_age(&s, r - PBOX_SCHEDULE + 2);
		CU_ASSERT_EQUAL(LR(r - PBOX_SCHEDULE + 1), (double)(r - PBOX_SCHEDULE + 1));
	}
	CU_ASSERT(atomic_load(&s.count) < many);
	/* a fragment that lags still bounds what is overwritten */
	UNIT_EQ_U64(set1(10 * PBOX_SCHEDULE, PBOX_HYPER_LR, 1, 8 * PBOX_SCHEDULE - 1), PBOX_E_FULL);
}

/* Several SETs a round, far ahead: what holds now must not be overwritten by what comes. */
static void
test_what_holds_now_stays(void)
{
	unsigned full = 0;

	begin(PBOX_OPT_MOMENTUM);
	UNIT_EQ_U64(set1(1, PBOX_HYPER_LR, 42, 0), 0);
	for (uint32_t r = 2; r < 32; r++)
		for (unsigned id = PBOX_HYPER_LR; id <= PBOX_HYPER_WEIGHT_DECAY; id++)
			full += set1(r, id, 0.5, 0) == PBOX_E_FULL;
	CU_ASSERT(full > 0);
	CU_ASSERT_EQUAL(LR(1), 42.0);
}

static void
test_rounds_wrap(void)
{
	begin(PBOX_OPT_MOMENTUM);
	s.entry[0].from_round = UINT32_MAX - 10;
	UNIT_EQ_U64(set1(UINT32_MAX - 1, PBOX_HYPER_LR, 1, UINT32_MAX - 5), 0);
	UNIT_EQ_U64(set1(3, PBOX_HYPER_LR, 2, UINT32_MAX - 5), 0);
	CU_ASSERT_EQUAL(LR(UINT32_MAX - 2), 0.0);
	CU_ASSERT_EQUAL(LR(UINT32_MAX), 1.0);
	CU_ASSERT_EQUAL(LR(2), 1.0);
	CU_ASSERT_EQUAL(LR(3), 2.0);
	UNIT_EQ_U64(set1(UINT32_MAX, PBOX_HYPER_LR, 3, 1), PBOX_E_SET_LATE);
	UNIT_EQ_U64(set1(2, PBOX_HYPER_LR, 3, 1), PBOX_E_SET_ORDER);
}

/* A fragment that lags keeps what holds for it, however many SETs there are. */
static void
test_who_lags_keeps_its_values(void)
{
	struct pbox_finished at = {.lowest = 3, .known = true};
	struct pbox_set m = {.count = 1, .param = {{PBOX_HYPER_LR, 0}}};
	unsigned full = 0;

	begin(PBOX_OPT_MOMENTUM);
	for (uint32_t r = 1; r <= 200; r++) {
		int ret;

		m.from_round = r;
		m.param[0].value = r;
		at.highest = r - 1;
		ret = pbox_schedule_add(&s, PBOX_OPT_MOMENTUM, &m, &at, &err);
		CU_ASSERT(ret == 0 || ret == PBOX_E_FULL);
		full += ret != 0;
		if (r >= 4)
			CU_ASSERT_EQUAL(LR(4), 4.0);
	}
	CU_ASSERT(full > 100);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "keeps 64 SETs of a group"));
	/* nothing is overwritten while it is not known who lags; then it goes on */
	at = (struct pbox_finished){.highest = 200};
	UNIT_EQ_U64(pbox_schedule_add(&s, PBOX_OPT_MOMENTUM,
			    &(struct pbox_set){
				    .from_round = 201, .count = 1, .param = {{PBOX_HYPER_LR, 201}}},
			    &at, &err),
		PBOX_E_FULL);
	UNIT_EQ_U64(set1(201, PBOX_HYPER_LR, 201, 200), 0);
	CU_ASSERT_EQUAL(LR(201), 201.0);
}

/* What was set once holds, also when its round seems to be one of the future. */
static void
test_sets_age(void)
{
	uint32_t round = 1;

	begin(PBOX_OPT_MOMENTUM);
	UNIT_EQ_U64(set1(1, PBOX_HYPER_LR, 1, 0), 0);
	UNIT_EQ_U64(set1(2, PBOX_HYPER_LR, 2, 0), 0);
	for (unsigned i = 0; i < 40; i++) {
		round += PBOX_SCHEDULE_AGE;
		CU_ASSERT_EQUAL(LR(round), 2.0);
		pbox_schedule_age(&s, round - 1);
		CU_ASSERT_EQUAL(LR(round), 2.0);
		if (i == 12) /* beyond 2^31 */
			UNIT_EQ_U64(set1(round + 5, PBOX_HYPER_LR, 2, round - 1), 0);
	}
}

/* The first SET of a table that begins where another one ended. */
static void
test_first_set_in_any_round(void)
{
	static const uint32_t base[] = {0x7ffffff0, 0x80000000, 0x80000001, 0xfffffff0, UINT32_MAX};

	for (unsigned i = 0; i < 5; i++) {
		begin(PBOX_OPT_MOMENTUM);
		UNIT_EQ_U64(set1(base[i] + 1, PBOX_HYPER_LR, 1, base[i]), 0);
		UNIT_EQ_U64(set1(base[i] + 5, PBOX_HYPER_LR, 2, base[i]), 0);
		CU_ASSERT_EQUAL(LR(base[i] + 1), 1.0);
		CU_ASSERT_EQUAL(LR(base[i] + 4), 1.0);
		CU_ASSERT_EQUAL(LR(base[i] + 5), 2.0);
		UNIT_EQ_U64(set1(base[i], PBOX_HYPER_LR, 3, base[i]), PBOX_E_SET_LATE);
	}
}

const struct unit_test unit_tests[] = {
	{"a SET holds from its round on", test_holds_from_its_round_on},
	{"order, late, too far ahead", test_order_and_late},
	{"repetition and conflict", test_repeat_and_conflict},
	{"different parameters of one round merge", test_different_parameters_of_one_round_merge},
	{"values out of range and unknown ids", test_nonsense},
	{"a check changes nothing", test_check_changes_nothing},
	{"nesterov wants momentum and lr together", test_nesterov},
	{"a SET every round for a long time", test_many_rounds},
	{"the count of SETs wraps around", test_count_wraps},
	{"what holds now is never overwritten", test_what_holds_now_stays},
	{"rounds wrap around", test_rounds_wrap},
	{"who lags keeps its values", test_who_lags_keeps_its_values},
	{"SETs age", test_sets_age},
	{"the first SET in any round", test_first_set_in_any_round},
	{NULL, NULL},
};
