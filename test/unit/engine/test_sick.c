/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <string.h>

#include "fixture.h"

/* R6.16: contributions that are not finite are found and named, and nothing else is. */

const char unit_suite[] = "engine: sums that are not finite";

#define WORKERS   3
#define FRAGMENT  16
#define FRAGMENTS 3

static struct fx_worker w[WORKERS];
static float x[WORKERS][FRAGMENTS][FRAGMENT];
static struct pbox_sick_view v;

static void
begin(unsigned hold, unsigned op)
{
	const struct fx_table t = {.elements = 64 * 50, .op = (uint8_t)op};

	fx.mtu = 154;
	fx.hold = hold;
	fx_begin();
	fx_job(w, "vision", WORKERS, &t);
	for (unsigned i = 0; i < WORKERS; i++)
		for (unsigned f = 0; f < FRAGMENTS; f++)
			for (unsigned k = 0; k < FRAGMENT; k++)
				x[i][f][k] = (float)(i + f + k);
}

static void
push(unsigned i, unsigned frag, uint32_t round, uint32_t weight)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PUSHPULL, 0, (uint16_t)frag, round);

	h.format = PBOX_FMT_FP32;
	h.length = sizeof(x[0][0]);
	h.weight = weight;
	CU_ASSERT_TRUE(fx_rx(0, &w[i], &h, x[i][frag]));
}

static void
round_of_all(uint32_t round)
{
	for (unsigned f = 0; f < FRAGMENTS; f++)
		for (unsigned i = 0; i < WORKERS; i++)
			push(i, f, round, 1);
}

static bool
found(void)
{
	return pbox_registrar_sick(fx.registrar, pbox_registrar_job(fx.registrar, 0), &v);
}

static void
counted(uint64_t contributions, uint64_t overflows)
{
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_NOT_FINITE], contributions);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_OVERFLOWED], overflows);
}

static void
test_all_finite(void)
{
	begin(0, PBOX_OP_SUM);
	x[1][2][3] = 3.0e38f;
	x[2][0][0] = 1e-44f;
	round_of_all(1);
	CU_ASSERT_FALSE(found());
	counted(0, 0);
	fx_end();
}

/* Each worker, each fragment, the first and the last element. */
static void
test_one(void)
{
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	static const char *const what[] = {"a NaN", "an infinity", "a negative infinity"};

	for (unsigned i = 0; i < WORKERS * FRAGMENTS * 2; i++) {
		unsigned who = i % WORKERS, f = i / WORKERS % FRAGMENTS,
			 k = i < WORKERS * FRAGMENTS ? 0 : FRAGMENT - 1;

		begin(0, PBOX_OP_SUM);
		round_of_all(1);
		CU_ASSERT_FALSE(found());
		x[who][f][k] = bad[i % 3];
		round_of_all(2);
		CU_ASSERT_TRUE(found());
		UNIT_EQ_U64((unsigned)v.worker, who);
		UNIT_EQ_U64(v.round, 2);
		UNIT_EQ_U64(v.element, f * FRAGMENT + k);
		CU_ASSERT_STRING_EQUAL(v.what, what[i % 3]);
		CU_ASSERT_PTR_NOT_NULL(strstr(v.text, v.tensor));
		counted(1, 0);
		fx_end();
	}
}

/* From round 3 on all send NaN: the one of round 2 began. A gap, and it is somebody else. */
static void
test_series(void)
{
	begin(0, PBOX_OP_SUM);
	round_of_all(1);
	x[2][1][5] = NAN;
	round_of_all(2);
	for (unsigned i = 0; i < WORKERS; i++)
		x[i][0][0] = NAN;
	round_of_all(3);
	round_of_all(4);
	CU_ASSERT_TRUE(found());
	UNIT_EQ_U64((unsigned)v.worker, 2);
	UNIT_EQ_U64(v.round, 2);
	UNIT_EQ_U64(v.element, FRAGMENT + 5);
	CU_ASSERT_PTR_NOT_NULL(strstr(v.text, "2 others"));
	for (unsigned i = 0; i < WORKERS; i++)
		x[i][0][0] = 0;
	x[2][1][5] = 0;
	round_of_all(5);
	round_of_all(6);
	x[1][2][0] = INFINITY;
	round_of_all(7);
	CU_ASSERT_TRUE(found());
	UNIT_EQ_U64((unsigned)v.worker, 1);
	UNIT_EQ_U64(v.round, 7);
	fx_end();
}

/* +inf of one and -inf of another one are a NaN: both sent what is not finite. */
static void
test_two(void)
{
	begin(0, PBOX_OP_SUM);
	x[0][1][5] = INFINITY;
	x[2][1][5] = -INFINITY;
	round_of_all(1);
	CU_ASSERT_TRUE(found());
	UNIT_EQ_U64((unsigned)v.worker, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(v.text, "1 other "));
	counted(2, 0);
	fx_end();
}

static void
test_overflow(void)
{
	begin(0, PBOX_OP_SUM);
	for (unsigned i = 0; i < WORKERS; i++)
		x[i][1][7] = -3e38f;
	round_of_all(1);
	CU_ASSERT_TRUE(found());
	UNIT_EQ_U64((unsigned)v.worker, (unsigned)-1);
	UNIT_EQ_U64(v.element, FRAGMENT + 7);
	CU_ASSERT_STRING_EQUAL(v.what, "a negative infinity");
	CU_ASSERT_PTR_NOT_NULL(strstr(v.text, "overflowed"));
	counted(0, 1);
	fx_end();
}

/* The packets of a sum that is folded early are gone when the round ends. */
static void
test_folded(void)
{
	begin(3, PBOX_OP_SUM);
	x[1][0][4] = x[1][1][4] = NAN;
	for (unsigned f = 0; f < 2; f++)
		for (unsigned i = 0; i < 2; i++)
			push(i, f, 1, 1);
	CU_ASSERT(fx.ss[0][PBOX_SS_FOLDS] > 0);
	CU_ASSERT_TRUE(found());
	UNIT_EQ_U64((unsigned)v.worker, 1);
	UNIT_EQ_U64(v.element % FRAGMENT, 4);
	counted(1, 0);
	push(2, 0, 1, 1);
	push(2, 1, 1, 1);
	CU_ASSERT_TRUE(found());
	UNIT_EQ_U64((unsigned)v.worker, 1);
	counted(2, 0); /* the sum of the round is no overflow */
	fx_end();
}

/* R5.2: of a contribution of weight 0 nothing is summed. */
static void
test_weight_0(void)
{
	begin(0, PBOX_OP_WEIGHTED_MEAN);
	x[1][0][4] = NAN;
	push(0, 0, 1, 2);
	push(1, 0, 1, 0);
	push(2, 0, 1, 3);
	CU_ASSERT_FALSE(found());
	counted(0, 0);
	x[0][1][0] = 3e38f;
	for (unsigned i = 0; i < WORKERS; i++)
		push(i, 1, 1, 2);
	CU_ASSERT_TRUE(found());
	UNIT_EQ_U64((unsigned)v.worker, (unsigned)-1);
	counted(0, 1);
	fx_end();
}

/* What is old is not said any more. */
static void
test_old(void)
{
	begin(0, PBOX_OP_SUM);
	x[1][0][4] = NAN;
	round_of_all(1);
	CU_ASSERT_TRUE(found());
	for (unsigned s = 0; s < 61; s++) {
		fx.now += UINT64_C(1000) * 1000 * 1000;
		for (unsigned i = 0; i < WORKERS; i++)
			fx_control(&w[i], PBOX_PING, NULL, 0);
		if (s == 50)
			CU_ASSERT_TRUE(found());
	}
	CU_ASSERT_FALSE(found());
	fx_end();
}

/* STATUS with FINITE. */
static void
test_status(void)
{
	struct pbox_status m = {.flags = PBOX_STATUS_FINITE};
	struct pbox_status_ok a;
	struct pbox_cursor cur;
	uint8_t buf[PBOX_STATUS_MAX];

	begin(0, PBOX_OP_SUM);
	for (unsigned round = 1; round < 3; round++) {
		round_of_all(round);
		fx_control(&w[0], PBOX_STATUS, buf, pbox_status_encode(buf, sizeof(buf), &m));
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_STATUS_OK);
		CU_ASSERT_EQUAL(
			pbox_status_ok_decode(fx_last()->payload, fx_last()->hdr.length, &a, &cur),
			0);
		UNIT_EQ_U64(a.flags, round == 1 ? 0 : PBOX_STATUS_FINITE);
		CU_ASSERT_EQUAL(strstr(a.text, "worker 1 ") != NULL, round == 2);
		x[1][0][4] = NAN;
	}
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"all finite", test_all_finite},
	{"one element", test_one},
	{"who began", test_series},
	{"plus and minus infinity", test_two},
	{"overflow", test_overflow},
	{"folded early", test_folded},
	{"weight 0", test_weight_0},
	{"old", test_old},
	{"STATUS", test_status},
	{NULL, NULL},
};
