/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: rounds in two phases";

static struct fx_worker w[2];
static const float g[2][4] = {{0.5f, -1, 2, 0.25f}, {1.5f, 3, -4, 0.125f}};
static const float p0[4] = {1, 2, 3, 4};
static const struct fx_table hold = {.elements = 4,
	.mode = PBOX_MODE_OPTIMISER,
	.op = PBOX_OP_MEAN,
	.optimiser = PBOX_OPT_MOMENTUM,
	.flags = PBOX_DECLARE_HOLD};

static void
begin(void)
{
	struct pbox_hdr h;

	fx_begin();
	fx_job(w, "vision", 2, &hold);
	h = fx_data(&w[0], PBOX_INIT, 0, 0, 0);
	h.format = PBOX_FMT_FP32;
	h.length = 16;
	fx_rx(0, &w[0], &h, p0);
	fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 0.5);
	fx_set(&w[0], 0, 1, PBOX_HYPER_MOMENTUM, 0.5);
	UNIT_EQ_U64(fx_set(&w[0], 0, 1, PBOX_HYPER_MAX_NORM, 0.5)->hdr.type, PBOX_SET_OK);
}

static bool
push(unsigned i, uint32_t round, const float *v)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PUSH, 0, 0, round);

	h.format = PBOX_FMT_FP32;
	h.flags |= PBOX_F_LAST;
	h.length = 16;
	h.weight = 1;
	return fx_rx(0, &w[i], &h, v);
}

static void
pull(unsigned i, uint32_t round)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PULL, 0, 0, round);

	fx_rx(0, &w[i], &h, NULL);
}

static struct pbox_norm
norm(unsigned i, uint32_t round, uint16_t flags)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_NORM, 0, 0, round);

	h.flags |= flags;
	fx_rx(0, &w[i], &h, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_NORM_OK);
	UNIT_EQ_U64(fx_last()->hdr.round, round);
	if (fx_last()->hdr.length == 0)
		return (struct pbox_norm){.fragments = UINT32_MAX};
	UNIT_EQ_U64(fx_last()->hdr.length, PBOX_NORM_LEN);
	return pbox_norm_get(fx_last()->payload);
}

/* max_norm 0.5: the unit is 2^-82. */
static double
root(const struct pbox_norm *m)
{
	return sqrt(ldexp(((double)m->square[2] * 0x1p64 + (double)m->square[1]) * 0x1p64 +
				  (double)m->square[0],
		-82));
}

static bool
answer_is(const float *want)
{
	return fx_last()->hdr.type == PBOX_RESULT && memcmp(fx_last()->payload, want, 16) == 0;
}

/* R6.15: four squares of 2^190 are one bit too many. The sum would be 0, and a step of 2^55 not clipped. */
static void
test_a_sum_that_overflows(void)
{
	static const float big[4] = {0x1p54f, 0x1p54f, 0x1p54f, 0x1p54f},
			   three[4] = {0x1p54f, 0x1p54f, 0x1p54f, 0};
	struct pbox_norm m;

	begin();
	push(0, 1, big);
	push(1, 1, big);
	m = norm(0, 1, 0);
	UNIT_EQ_U64(m.non_finite, 1);
	fx_set(&w[0], 0, 1, PBOX_HYPER_COEFFICIENT, -1);
	pull(0, 1);
	CU_ASSERT(answer_is(p0));
	push(0, 2, three);
	push(1, 2, three);
	m = norm(0, 2, 0);
	UNIT_EQ_U64(m.non_finite, 0);
	CU_ASSERT(root(&m) == sqrt(3) * 0x1p54);
	fx_end();
}

static void
test_a_round(void)
{
	float want[4], buffer[4];
	struct pbox_norm m;
	double square = 0;

	begin();
	CU_ASSERT_TRUE(push(0, 1, g[0]));
	m = norm(0, 1, 0);
	UNIT_EQ_U64(m.fragments, UINT32_MAX);
	UNIT_EQ_U64(norm(0, 1, PBOX_F_RETX).fragments, UINT32_MAX);
	UNIT_EQ_U64(pbox_norm_missing_get(&fx_last()->hdr), 1);
	push(1, 1, g[1]);
	UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 0); /* the packets are back */
	for (unsigned i = 0; i < 4; i++) {
		buffer[i] = (g[0][i] + g[1][i]) * 0.5f;
		square += (double)buffer[i] * buffer[i];
	}
	m = norm(0, 1, 0);
	UNIT_EQ_U64(m.fragments, 1);
	UNIT_EQ_U64(m.non_finite, 0);
	CU_ASSERT(m.coefficient == 0 && root(&m) == sqrt(square));
	pull(0, 1); /* no step before the coefficient */
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	pull(0, 0);
	CU_ASSERT(answer_is(p0));
	push(1, 1, g[0]); /* a repetition is taken, and is not one of values */
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PUSH_OK);
	fx_set(&w[1], 0, 1, PBOX_HYPER_COEFFICIENT, 0.25);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_SET_OK);
	UNIT_EQ_U64(fx_set(&w[0], 0, 1, PBOX_HYPER_COEFFICIENT, 0.25)->hdr.type, PBOX_SET_OK);
	fx_set(&w[0], 0, 1, PBOX_HYPER_COEFFICIENT, 0.5);
	UNIT_EQ_U64(fx_error(), PBOX_E_SET_CONFLICT);
	for (unsigned i = 0; i < 4; i++) {
		buffer[i] *= 0.25f;
		want[i] = p0[i] - 0.5f * buffer[i];
	}
	pull(0, 1);
	CU_ASSERT(answer_is(want));
	pull(1, 1);
	CU_ASSERT(answer_is(want)); /* once */
	m = norm(1, 1, 0);          /* who is late hears the same */
	CU_ASSERT(m.fragments == 1 && m.coefficient == 0.25 && root(&m) == sqrt(square));
	/* the coefficient of round 1 is none of round 2 */
	push(0, 2, g[0]);
	push(1, 2, g[0]);
	pull(0, 2);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	CU_ASSERT(norm(0, 2, 0).coefficient == 0);
	fx_set(&w[0], 0, 2, PBOX_HYPER_COEFFICIENT, 1);
	pull(0, 2);
	for (unsigned i = 0; i < 4; i++) {
		buffer[i] = buffer[i] * 0.5f + g[0][i];
		want[i] = want[i] - 0.5f * buffer[i];
	}
	CU_ASSERT(answer_is(want));
	fx_end();
}

/* A step that is left out is none: neither parameters nor state, nor the first step of the state. */
static void
test_skip(void)
{
	static const float bad[4] = {1, INFINITY, NAN, 1e30f};
	float want[4];
	struct pbox_norm m;

	begin();
	push(0, 1, bad);
	push(1, 1, g[1]);
	m = norm(0, 1, 0);
	UNIT_EQ_U64(m.non_finite, 3); /* 5e29 is beyond 2^54 */
	fx_set(&w[0], 0, 1, PBOX_HYPER_STEPS, -1);
	fx_set(&w[0], 0, 1, PBOX_HYPER_COEFFICIENT, -1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_SET_OK);
	pull(0, 1);
	CU_ASSERT(answer_is(p0));
	UNIT_EQ_U64(fx_last()->hdr.round, 1);
	push(0, 2, g[0]);
	push(1, 2, g[0]);
	fx_set(&w[0], 0, 2, PBOX_HYPER_COEFFICIENT, 1);
	pull(1, 2);
	for (unsigned i = 0; i < 4; i++) /* the first step: the buffer is the gradient */
		want[i] = p0[i] - 0.5f * g[0][i];
	CU_ASSERT(answer_is(want));
	fx_end();
}

static void
test_refused(void)
{
	struct fx_table t = hold;
	struct pbox_hdr h;

	begin();
	fx_pushpull(&w[0], 1, g[0], 4);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_BAD_REQUEST);
	push(0, 1, g[0]);
	push(1, 1, g[1]);
	h = fx_data(&w[0], PBOX_INIT, 0, 0, 0); /* the sum was computed with what is here */
	h.aux = 0;
	h.base = 0;
	h.flags |= PBOX_F_LATEST;
	h.format = PBOX_FMT_FP32;
	h.length = 16;
	fx_rx(0, &w[0], &h, p0);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	fx_set(&w[0], 0, 1, PBOX_HYPER_COEFFICIENT, 1.5);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx_end();

	t.flags = 0;
	fx_begin();
	fx_job(w, "vision", 2, &t);
	fx_set(&w[0], 0, 1, PBOX_HYPER_MAX_NORM, 1);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx_end();
	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	fx_join(&w[1], "vision", 1, 2);
	UNIT_EQ_U64(fx_declare(&w[0], 0, &hold)->hdr.type, PBOX_DECLARED);
	fx_declare(&w[1], 0, &t);
	UNIT_EQ_U64(fx_error(), PBOX_E_MISMATCH);
	fx_end();
	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	t = (struct fx_table){.elements = 4, .flags = PBOX_DECLARE_HOLD};
	fx_declare(&w[0], 0, &t);
	UNIT_EQ_U64(fx_error(), PBOX_E_UNSUPPORTED);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"sum, norm, coefficient, step", test_a_round},
	{"a sum that overflows", test_a_sum_that_overflows},
	{"a step that is left out", test_skip},
	{"what is refused", test_refused},
	{NULL, NULL},
};
