/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <string.h>

#include <pbox_reduce.h>

#include "fixture.h"

/* R13.7: whose result is a difference to what workers have, and what it says. */

const char unit_suite[] = "engine: results as differences";

#define N 4
static struct fx_worker w[2];
static const float g[2][N] = {{0.5f, -1, 2, 0.25f}, {1.5f, 3, -4, 0.125f}};
static const float p0[N] = {1, 2, 3, 4};
static const struct fx_table table = {.elements = N,
	.mode = PBOX_MODE_OPTIMISER,
	.optimiser = PBOX_OPT_SGD,
	.pull = PBOX_FMT_INT8,
	.flags = 0x070000};
static float p[N], x[N]; /* parameters, and what workers have of them */

static void
give(unsigned type_flags, uint32_t round, const float *v)
{
	struct pbox_hdr h = fx_data(&w[0], PBOX_INIT, 0, 0, round);

	h.format = PBOX_FMT_FP32;
	h.flags |= (uint16_t)type_flags;
	h.base = h.aux = 0;
	h.length = N * 4;
	CU_ASSERT_FALSE(fx_rx(0, &w[0], &h, v));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
	memcpy(p, v, sizeof(p));
	memcpy(x, v, sizeof(x));
}

static void
pull(unsigned i, uint32_t round, uint16_t age, unsigned flags)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PULL, 0, 0, round);

	pbox_copy_age_put(&h, age);
	h.flags |= (uint16_t)flags;
	fx_clear();
	fx_rx(0, &w[i], &h, NULL);
	UNIT_EQ_U64(fx.n_sent, 1);
}

static void
push(unsigned i, uint32_t round, uint16_t age)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PUSHPULL, 0, 0, round);

	h.format = PBOX_FMT_FP32;
	h.length = N * 4;
	pbox_copy_age_put(&h, age);
	fx_rx(0, &w[i], &h, g[i]);
}

/* What the step makes, and the codes that say it. */
static void
step(uint8_t *codes)
{
	float by[N];

	for (unsigned k = 0; k < N; k++) {
		float sum = g[0][k] + g[1][k], part = sum * 0.125f;

		p[k] = p[k] - part;
		by[k] = p[k] - x[k];
	}
	pbox_reduce_scalar.encode(codes, PBOX_FMT_INT8, by, NULL, N);
	pbox_reduce_scalar.decode(by, codes, PBOX_FMT_INT8, N);
	for (unsigned k = 0; k < N; k++)
		x[k] = x[k] + by[k];
}

static void
is_whole(const struct fx_sent *s, unsigned worker, uint32_t round)
{
	UNIT_EQ_U64(s->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(s->hdr.worker, worker);
	UNIT_EQ_U64(s->hdr.round, round);
	UNIT_EQ_U64(s->hdr.format, PBOX_FMT_FP32);
	UNIT_EQ_U64(s->hdr.fmt_arg, 0);
	UNIT_EQ_U64(s->hdr.length, N * 4);
	CU_ASSERT_EQUAL(memcmp(s->payload, x, sizeof(x)), 0);
}

static void
is_difference(const struct fx_sent *s, unsigned worker, uint32_t round, const uint8_t *codes)
{
	UNIT_EQ_U64(s->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(s->hdr.worker, worker);
	UNIT_EQ_U64(s->hdr.round, round);
	UNIT_EQ_U64(s->hdr.format, PBOX_FMT_INT8);
	UNIT_EQ_U64(s->hdr.fmt_arg, 7);
	UNIT_EQ_U64(s->hdr.length, 4 + N);
	CU_ASSERT_EQUAL(memcmp(s->payload, codes, 4 + N), 0);
}

/* Rounds 1 to 2 of both, the second one with codes. */
static void
begin(uint8_t *codes)
{
	fx_begin();
	fx_job(w, "vision", 2, &table);
	give(0, 0, p0);
	fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 0.125);
	pull(1, 0, 0, 0);
	is_whole(fx_last(), 1, 0);
	for (uint32_t round = 1; round <= 2; round++) {
		fx_clear();
		push(0, round, 1);
		push(1, round, 1);
		step(codes);
		UNIT_EQ_U64(fx.n_sent, 2);
		for (unsigned i = 0; i < 2; i++)
			if (round == 1) /* that of INIT may be another process's */
				is_whole(fx_nth(i), i, round);
			else
				is_difference(fx_nth(i), i, round, codes);
	}
}

static void
test_who(void)
{
	uint8_t codes[4 + N];

	begin(codes);
	/* of the current version */
	pull(0, 2, 1, 0);
	is_difference(fx_last(), 0, 2, codes);
	for (unsigned age = 0; age < 3; age += 2) {
		pull(0, 2, (uint16_t)age, 0);
		is_whole(fx_last(), 0, 2);
	}
	pull(0, 2, 1, PBOX_F_LATEST);
	is_whole(fx_last(), 0, 2);
	pull(0, 2, PBOX_LR_MUL_ONE, 0); /* as PUSHPULL has it that says nothing */
	is_whole(fx_last(), 0, 2);
	/* of the next one: each as it has asked last */
	fx_clear();
	push(0, 3, 1);
	push(1, 3, 2);
	step(codes);
	UNIT_EQ_U64(fx.n_sent, 2);
	is_difference(fx_nth(0), 0, 3, codes);
	is_whole(fx_nth(1), 1, 3);
	fx_clear();
	push(0, 4, 2);
	pull(0, 4, 1, 0);
	fx_clear();
	push(1, 4, 1);
	step(codes);
	is_difference(fx_nth(0), 0, 4, codes);
	is_difference(fx_nth(1), 1, 4, codes);
	fx_clear();
	push(0, 5, 1);
	pull(0, 5, 0, 0);
	fx_clear();
	push(1, 5, 1);
	step(codes);
	is_difference(fx_nth(0), 1, 5, codes);
	is_whole(fx_nth(1), 0, 5);
	fx_end();
}

/* What a worker gives in place of the parameters is theirs and the replica's, and there are no codes of it, nor of the next one. */
static void
test_given(void)
{
	static const float other[N] = {-1, 0.5f, 100, 3};
	uint8_t codes[4 + N];
	struct pbox_hdr h;

	begin(codes);
	give(PBOX_F_LATEST, 2, other);
	pull(1, 2, 1, 0);
	is_whole(fx_last(), 1, 2);
	for (uint32_t round = 3; round <= 4; round++) {
		fx_clear();
		push(0, round, 1);
		push(1, round, 1);
		step(codes);
		if (round == 3)
			is_whole(fx_nth(1), 1, 3);
		else
			is_difference(fx_nth(1), 1, 4, codes);
	}
	/* a replica is neither given nor fetched; parameters are the box's */
	h = fx_data(&w[0], PBOX_FETCH, 0, 0, 4);
	h.base = h.aux = 0;
	fx_rx(0, &w[0], &h, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_FETCHED);
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, p, sizeof(p)), 0);
	h.aux = 1;
	fx_mark();
	fx_rx(0, &w[0], &h, NULL);
	FX_ONLY(PBOX_SS_DROP_INIT_FORBIDDEN);
	fx_end();
}

/* A version of which a block is not finite has no codes: elements are what they are in fp32. */
static void
test_not_finite(void)
{
	static const float large[N] = {1, 3e38f, 2, 3}, back[N] = {1, 2, 3, 4};
	uint8_t codes[4 + N];

	begin(codes);
	give(PBOX_F_LATEST, 2, large);
	for (uint32_t round = 3; round <= 4; round++) {
		fx_clear();
		push(0, round, 1);
		push(1, round, 1);
		step(codes);
	}
	is_difference(fx_nth(1), 1, 4, codes);
	fx_set(&w[0], 0, 5, PBOX_HYPER_LR, 1e38);
	fx_clear();
	push(0, 5, 1);
	push(1, 5, 1);
	UNIT_EQ_U64(fx_nth(1)->hdr.format, PBOX_FMT_FP32);
	for (unsigned k = 0; k < N; k++) {
		float sum = g[0][k] + g[1][k], part = sum * 1e38f;

		p[k] = p[k] - part;
	}
	memcpy(x, p, sizeof(x));
	is_whole(fx_nth(1), 1, 5);
	CU_ASSERT_FALSE(isnan(x[3]));
	/* and it recovers, as fp32 does */
	give(PBOX_F_LATEST, 5, back);
	fx_set(&w[0], 0, 6, PBOX_HYPER_LR, 0.125);
	for (uint32_t round = 6; round <= 7; round++) {
		fx_clear();
		push(0, round, 1);
		push(1, round, 1);
		step(codes);
	}
	is_difference(fx_nth(1), 1, 7, codes);
	fx_end();
}

/* R13.10: versions of rounds for which SET says so have no codes, and x is p; the next one may have some, and a restart comes to the same. */
static void
test_plain(void)
{
	uint8_t codes[4 + N];

	begin(codes);
	UNIT_EQ_U64(fx_set(&w[0], 0, 3, PBOX_HYPER_PLAIN, PBOX_WHY_HIDDEN << 1 | PBOX_PLAIN_SET)
			    ->hdr.type,
		PBOX_SET_OK);
	for (uint32_t round = 3; round <= 4; round++) {
		fx_clear();
		push(0, round, 1);
		push(1, round, 1);
		step(codes);
		memcpy(x, p, sizeof(x));
		UNIT_EQ_U64(fx.n_sent, 2);
		is_whole(fx_nth(0), 0, round);
		is_whole(fx_nth(1), 1, round);
		pull(0, round, 1, 0);
		is_whole(fx_last(), 0, round);
	}
	UNIT_EQ_U64(fx_set(&w[0], 0, 5, PBOX_HYPER_PLAIN, PBOX_WHY_EXPOSED << 1)->hdr.type,
		PBOX_SET_OK);
	fx_clear();
	push(0, 5, 1);
	push(1, 5, 1);
	step(codes);
	is_difference(fx_nth(0), 0, 5, codes);
	is_difference(fx_nth(1), 1, 5, codes);
	fx_end();
}

/* A table whose results have no codes cannot be without. */
static void
test_plain_refused(void)
{
	static const struct fx_table fp32 = {
		.elements = N, .mode = PBOX_MODE_OPTIMISER, .optimiser = PBOX_OPT_SGD};

	fx_begin();
	fx_job(w, "vision", 2, &fp32);
	fx_clear();
	fx_set(&w[0], 0, 1, PBOX_HYPER_PLAIN, 1);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"who gets a difference", test_who},
	{"parameters that are given", test_given},
	{"NaN and infinity", test_not_finite},
	{"rounds without codes", test_plain},
	{"no codes to be without", test_plain_refused},
	{NULL, NULL},
};
