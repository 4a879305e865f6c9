/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: optimisers";

static struct fx_worker w[2];
static const float g[2][4] = {{0.5f, -1, 2, 0.25f}, {1.5f, 3, -4, 0.125f}};
static const float p0[32] = {1, 2, 3, 4};

static void
init(unsigned base, unsigned n, const float *p)
{
	struct pbox_hdr h = fx_data(&w[0], PBOX_INIT, 0, 0, 0);

	h.format = PBOX_FMT_FP32;
	h.base = base;
	h.length = (uint16_t)(n * 4);
	CU_ASSERT_FALSE(fx_rx(0, &w[0], &h, p));
}

static void
pull(unsigned i, uint32_t round)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PULL, 0, 0, round);

	fx_rx(0, &w[i], &h, NULL);
}

/* Ten rounds of each optimiser against lib/optim's scalar steps. */
static void
test_against_the_scalar_steps(void)
{
	for (unsigned kind = PBOX_OPT_SGD; kind <= PBOX_OPT_ADAMW; kind++) {
		struct fx_table t = {.elements = 4,
			.mode = PBOX_MODE_OPTIMISER,
			.op = PBOX_OP_MEAN,
			.optimiser = (uint8_t)kind};
		float p[16] __attribute__((aligned(64))) = {1, 2, 3, 4}, s0[16] = {0}, s1[16] = {0};
		struct pbox_hyper hyper;

		fx_begin();
		fx_job(w, "vision", 2, &t);
		init(0, 4, p0);
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
		pbox_hyper_defaults(&hyper, kind);
		hyper.lr = 0.125;
		if (kind == PBOX_OPT_MOMENTUM || kind == PBOX_OPT_NESTEROV) {
			hyper.momentum = 0.9; /* first: nesterov is nothing without it */
			fx_set(&w[1], 0, 1, PBOX_HYPER_MOMENTUM, 0.9);
			UNIT_EQ_U64(fx_last()->hdr.type, PBOX_SET_OK);
		}
		fx_set(&w[1], 0, 1, PBOX_HYPER_LR, 0.125);
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_SET_OK);
		for (uint32_t r = 1; r <= 10; r++) {
			struct pbox_optim_scalars k;
			float mean[16] __attribute__((aligned(64)));

			if (r == 6) { /* another lr from here on */
				hyper.lr = 0.5;
				fx_set(&w[0], 0, 6, PBOX_HYPER_LR, 0.5);
			}
			if (r == 8) /* up from here on */
				fx_set(&w[0], 0, 8, PBOX_HYPER_MAXIMIZE, 1);
			for (unsigned i = 0; i < 4; i++)
				mean[i] = (g[0][i] + g[1][i]) * (r < 8 ? 0.5f : -0.5f);
			pbox_optim_scalars(&k, &hyper, kind, r);
			pbox_optim_scalar.of[kind]->step(p, mean, s0, s1, &k, 4);
			fx_pushpull(&w[1], r, g[1], 4);
			fx_pushpull(&w[0], r, g[0], 4);
			UNIT_EQ_U64(fx_last()->hdr.round, r);
			CU_ASSERT_EQUAL(memcmp(fx_last()->payload, p, 16), 0);
		}
		fx_end();
	}
}

static void
test_before_init(void)
{
	struct fx_table t = {
		.elements = 4, .mode = PBOX_MODE_OPTIMISER, .optimiser = PBOX_OPT_ADAM};

	fx_begin();
	fx_job(w, "vision", 2, &t);
	fx_mark();
	CU_ASSERT_FALSE(fx_pushpull(&w[0], 1, g[0], 4)); /* answered, not kept */
	FX_ONLY(PBOX_SS_RX_EARLY);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.flags, 0);
	UNIT_EQ_U64(fx_last()->hdr.weight, 0);
	pull(1, 0);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	fx_clear();
	init(0, 4, p0);
	UNIT_EQ_U64(fx.n_sent, 2); /* the one who waits gets version 0 */
	UNIT_EQ_U64(fx_nth(0)->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(fx_nth(0)->hdr.worker, 1);
	UNIT_EQ_U64(fx_nth(0)->hdr.round, 0);
	CU_ASSERT_EQUAL(memcmp(fx_nth(0)->payload, p0, 16), 0);
	fx_clear();
	init(0, 4, g[0]); /* repeated with other values: changes nothing */
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
	pull(0, 0);
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, p0, 16), 0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_RX_CONTRIBUTION], 0);
	fx_end();
}

/* A bf16 table: a fragment of 32 elements comes in two pieces of fp32. */
static void
test_pieces_of_init(void)
{
	struct fx_table t = {.elements = 40,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_SGD,
		.push = PBOX_FMT_BF16,
		.pull = PBOX_FMT_BF16};
	static const uint16_t bf16[4] = {0x3F80, 0x4000, 0x4040, 0x4080};
	struct pbox_hdr h;

	fx.mtu = 154;
	fx_begin();
	fx_job(w, "vision", 2, &t);
	init(16, 16, p0);
	UNIT_EQ_U64(fx_last()->hdr.base, 16);
	init(16, 16, p0);
	pull(1, 0);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	h = fx_data(&w[0], PBOX_INIT, 0, 0, 0); /* the other piece is all zeros */
	h.format = PBOX_FMT_FP32;
	h.flags |= PBOX_F_ZERO;
	fx_clear();
	fx_rx(0, &w[0], &h, NULL);
	UNIT_EQ_U64(fx_nth(0)->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(fx_nth(0)->hdr.length, 64);
	for (unsigned i = 0; i < 32; i++)
		CU_ASSERT(i == 16 || fx_nth(0)->payload[i] == 0);
	CU_ASSERT_EQUAL(memcmp(fx_nth(0)->payload + 32, bf16, 8), 0);
	/* the last fragment has 8 elements: one short piece */
	h = fx_data(&w[0], PBOX_INIT, 0, 1, 0);
	h.format = PBOX_FMT_FP32;
	h.length = 32;
	fx_rx(0, &w[0], &h, p0);
	h = fx_data(&w[1], PBOX_PULL, 0, 1, 0);
	fx_rx(0, &w[1], &h, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(fx_last()->hdr.length, 16);
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, bf16, 8), 0);
	fx_end();
}

static void
test_no_lr(void)
{
	struct fx_table t = {.elements = 4, .mode = PBOX_MODE_OPTIMISER, .optimiser = PBOX_OPT_SGD};
	float want[4];

	fx_begin();
	fx_job(w, "vision", 1, &t);
	init(0, 4, p0);
	fx_mark();
	CU_ASSERT_FALSE(fx_pushpull(&w[0], 1, g[0], 4));
	FX_ONLY(PBOX_SS_RX_EARLY);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_NO_LR);
	UNIT_EQ_U64(fx_last()->hdr.round, 1);
	UNIT_EQ_U64(fx_last()->hdr.length, 0);
	fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 0.5);
	fx_pushpull(&w[0], 1, g[0], 4);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	for (unsigned i = 0; i < 4; i++)
		want[i] = p0[i] - 0.5f * g[0][i];
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, want, 16), 0);
	fx_end();
}

/* R7.3: a SET after the first contribution of a round still holds for it. */
static void
test_set_in_mid_round(void)
{
	struct fx_table t = {.elements = 4, .mode = PBOX_MODE_OPTIMISER, .optimiser = PBOX_OPT_SGD};
	float want[4];

	fx_begin();
	fx_job(w, "vision", 2, &t);
	init(0, 4, p0);
	fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 0.5);
	fx_pushpull(&w[0], 1, g[0], 4);
	fx_set(&w[1], 0, 1, PBOX_HYPER_CLIP_VALUE, 1.0);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_SET_OK);
	fx_pushpull(&w[1], 1, g[1], 4);
	for (unsigned i = 0; i < 4; i++) {
		float sum = g[0][i] + g[1][i];

		sum = sum > 1 ? 1 : sum < -1 ? -1 : sum;
		want[i] = p0[i] - 0.5f * sum;
	}
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, want, 16), 0);
	/* and now round 1 is over */
	fx_set(&w[0], 0, 1, PBOX_HYPER_WEIGHT_DECAY, 0.5);
	UNIT_EQ_U64(fx_error(), PBOX_E_SET_LATE);
	fx_end();
}

static struct pbox_hdr
fetch(unsigned i, unsigned array, uint32_t version)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_FETCH, 0, 0, version);

	h.aux = (uint16_t)array;
	return h;
}

static struct pbox_hdr
give(unsigned array, uint32_t version)
{
	struct pbox_hdr h = fx_data(&w[0], PBOX_INIT, 0, 0, version);

	h.flags |= PBOX_F_LATEST;
	h.aux = (uint16_t)array;
	h.base = 0;
	h.format = PBOX_FMT_FP32;
	h.length = 16;
	return h;
}

/* What one training has fetched goes on in another as if nothing had been between (R6.13, R6.14). */
static void
test_state_goes_round(void)
{
	struct fx_table t = {.elements = 4,
		.mode = PBOX_MODE_OPTIMISER,
		.op = PBOX_OP_SUM,
		.optimiser = PBOX_OPT_ADAM};
	float kept[3][4], want[4];
	struct pbox_hdr h;

	fx_begin();
	fx_job(w, "vision", 2, &t);
	h = fetch(1, 0, 0);
	fx_mark();
	fx_rx(0, &w[1], &h, NULL);
	FX_ONLY(PBOX_SS_RX_EARLY); /* nothing is there yet */
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	init(0, 4, p0);
	for (uint32_t r = 1; r <= 3; r++) {
		fx_pushpull(&w[1], r, g[1], 4);
		fx_pushpull(&w[0], r, g[0], 4);
	}
	for (unsigned a = 0; a < 3; a++) {
		h = fetch(1, a, 3);
		fx_mark();
		fx_rx(0, &w[1], &h, NULL);
		FX_ONLY(PBOX_SS_RX_FETCH);
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_FETCHED);
		UNIT_EQ_U64(fx_last()->hdr.aux, a);
		UNIT_EQ_U64(fx_last()->hdr.round, 3);
		UNIT_EQ_U64(fx_last()->hdr.length, 16);
		memcpy(kept[a], fx_last()->payload, 16);
	}
	for (uint32_t r = 4; r <= 5; r++) {
		fx_pushpull(&w[1], r, g[1], 4);
		fx_pushpull(&w[0], r, g[0], 4);
	}
	memcpy(want, fx_last()->payload, 16);
	fx_end();

	fx_begin();
	fx_job(w, "vision", 2, &t);
	init(0, 4, g[0]);
	for (unsigned a = 0; a < 3; a++) {
		h = give(a, 0);
		fx_rx(0, &w[0], &h, kept[a]);
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
	}
	fx_set(&w[0], 0, 1, PBOX_HYPER_STEPS, 3);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_SET_OK);
	pull(1, 0); /* the answer with the same version is another one now */
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, kept[0], 16), 0);
	for (uint32_t r = 1; r <= 2; r++) {
		fx_pushpull(&w[1], r, g[1], 4);
		fx_pushpull(&w[0], r, g[0], 4);
	}
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, want, 16), 0);
	fx_end();
}

/* A copy of an array that was given before another one changes nothing. */
static void
test_state_is_not_given_again(void)
{
	struct fx_table t = {.elements = 4,
		.mode = PBOX_MODE_OPTIMISER,
		.op = PBOX_OP_SUM,
		.optimiser = PBOX_OPT_ADAM};
	struct pbox_hdr first, h;

	fx_begin();
	fx_job(w, "vision", 2, &t);
	init(0, 4, p0);
	first = give(0, 0);
	fx_rx(0, &w[0], &first, g[0]);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
	fx_rx(0, &w[0], &first, g[0]); /* one of the newest gives the same */
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
	h = give(0, 0);
	fx_rx(0, &w[0], &h, g[1]);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
	fx_mark(); /* late by however little */
	fx_rx(0, &w[0], &first, g[0]);
	FX_ONLY(PBOX_SS_DROP_REPLAYED);
	pull(1, 0);
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, g[1], 16), 0);
	/* a repetition of its own is answered */
	fx.now += UINT64_C(1500000000);
	h = give(0, 0);
	fx_rx(0, &w[0], &h, g[1]);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
	fx_end();
}

/* A contribution that was refused is void (R6.7): a copy of it does not come before what its worker sends then. */
static void
test_refused_is_void(void)
{
	struct fx_table t = {.elements = 4,
		.mode = PBOX_MODE_OPTIMISER,
		.op = PBOX_OP_SUM,
		.optimiser = PBOX_OPT_SGD};
	struct pbox_hdr early, late;
	float want[4];

	fx_begin();
	fx_job(w, "vision", 2, &t);
	early = fx_data(&w[0], PBOX_PUSHPULL, 0, 0, 1);
	early.format = PBOX_FMT_FP32;
	early.length = 16;
	fx_rx(0, &w[0], &early, g[1]);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	init(0, 4, p0);
	late = fx_data(&w[0], PBOX_PUSHPULL, 0, 0, 1);
	late.format = PBOX_FMT_FP32;
	late.length = 16;
	fx_rx(0, &w[0], &late, g[1]);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_NO_LR);
	fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 0.5);
	for (unsigned i = 0; i < 2; i++) {
		fx_mark();
		CU_ASSERT_FALSE(fx_rx(0, &w[0], i == 0 ? &early : &late, g[1]));
		FX_ONLY(PBOX_SS_DROP_REPLAYED);
	}
	/* others have refused nothing, and what it sends now counts */
	CU_ASSERT_TRUE(fx_pushpull(&w[1], 1, g[1], 4));
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 1, g[0], 4));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	for (unsigned i = 0; i < 4; i++)
		want[i] = p0[i] - 0.5f * (g[0][i] + g[1][i]);
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, want, 16), 0);
	fx_end();
}

static void
test_state_is_refused(void)
{
	struct fx_table t = {
		.elements = 4, .mode = PBOX_MODE_OPTIMISER, .optimiser = PBOX_OPT_MOMENTUM};
	struct fx_table sum = {.elements = 4};
	struct pbox_hdr h;

	fx_begin();
	fx_job(w, "vision", 2, &t);
	init(0, 4, p0);
	fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 0.5);
	fx_pushpull(&w[1], 1, g[1], 4);
	fx_pushpull(&w[0], 1, g[0], 4);
#define REFUSED(frame, from, payload, why)       \
	do {                                     \
		h = frame;                       \
		fx_mark();                       \
		fx_rx(0, &w[from], &h, payload); \
		FX_ONLY(why);                    \
	} while (0)
	REFUSED(fetch(0, 1, 0), 0, NULL, PBOX_SS_DROP_ROUND_STALE);
	REFUSED(fetch(0, 1, 2), 0, NULL, PBOX_SS_DROP_ROUND_FUTURE);
	REFUSED(fetch(0, 2, 1), 0, NULL, PBOX_SS_DROP_INIT_FORBIDDEN); /* no such array */
	REFUSED(give(2, 1), 0, g[0], PBOX_SS_DROP_INIT_FORBIDDEN);
	REFUSED(give(1, 0), 0, g[0], PBOX_SS_DROP_ROUND_STALE);
	fx_pushpull(&w[1], 2, g[1], 4); /* somebody has pushed: too late */
	REFUSED(give(1, 1), 0, g[0], PBOX_SS_DROP_INIT_FORBIDDEN);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_BAD_REQUEST);
	REFUSED(fetch(0, 1, 1), 0, NULL, PBOX_SS_RX_FETCH);
	fx_set(&w[0], 0, 3, PBOX_HYPER_STEPS, 0.5);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx_end();
	fx_begin();
	fx_job(w, "vision", 2, &sum);
	REFUSED(fetch(0, 0, 0), 0, NULL, PBOX_SS_DROP_INIT_FORBIDDEN);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"each optimiser against the scalar steps", test_against_the_scalar_steps},
	{"before INIT", test_before_init},
	{"pieces of INIT", test_pieces_of_init},
	{"no learning rate", test_no_lr},
	{"SET in mid-round", test_set_in_mid_round},
	{"state that is fetched and given", test_state_goes_round},
	{"nor given again by a copy", test_state_is_not_given_again},
	{"what was refused is void", test_refused_is_void},
	{"state that is not", test_state_is_refused},
	{NULL, NULL},
};
