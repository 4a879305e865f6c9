/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <math.h>
#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: rounds";

static struct fx_worker w[4];
static const float one[4] = {1, 2, 3, 4}, two[4] = {10, 20, 30, 40}, three[4] = {0.5f, 0, -1, 8};

static void
begin(uint16_t workers, uint8_t op)
{
	struct fx_table t = {.elements = 4, .op = op};

	fx_begin();
	fx_job(w, "vision", workers, &t);
}

static void
expect_result(const struct fx_sent *s, uint32_t round, const float *want)
{
	UNIT_EQ_U64(s->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(s->hdr.round, round);
	UNIT_EQ_U64(s->hdr.base, round);
	UNIT_EQ_U64(s->hdr.length, 16);
	CU_ASSERT_TRUE(s->shared);
	CU_ASSERT_EQUAL(memcmp(s->payload, want, 16), 0);
}

static struct pbox_hdr
frame(unsigned i, enum pbox_type type, uint32_t round)
{
	struct pbox_hdr h = fx_data(&w[i], type, 0, 0, round);

	if (type != PBOX_PULL) {
		h.format = PBOX_FMT_FP32;
		h.length = 16;
	}
	return h;
}

static void
rx(unsigned i, enum pbox_type type, uint32_t round, const float *v)
{
	struct pbox_hdr h = frame(i, type, round);

	fx_rx(0, &w[i], &h, v);
}

static void
test_a_round(void)
{
	static const float sum[4] = {11, 22, 33, 44};

	begin(2, PBOX_OP_SUM);
	CU_ASSERT_TRUE(fx_pushpull(&w[1], 1, two, 4));
	UNIT_EQ_U64(fx.n_sent, 0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 1);
	fx.now += 250000;
	fx_mark();
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 1, one, 4));
	FX_ONLY(PBOX_SS_RX_CONTRIBUTION);
	UNIT_EQ_U64(fx.n_sent, 2);
	expect_result(fx_nth(0), 1, sum);
	expect_result(fx_nth(1), 1, sum);
	UNIT_EQ_U64(fx_nth(0)->hdr.worker, 0);
	UNIT_EQ_U64(fx_nth(0)->hdr.held, 0);
	UNIT_EQ_U64(fx_nth(1)->hdr.held, 250);
	UNIT_EQ_U64(fx_nth(1)->hdr.ts, (uint32_t)(fx.now / 1000) + fx.stamps - 251);
	UNIT_EQ_U64(fx_nth(1)->hdr.token, w[1].token);
	UNIT_EQ_U64(fx_nth(0)->hdr.aux, 2);
	UNIT_EQ_U64(fx_nth(0)->hdr.weight, 2);
	UNIT_EQ_U64(fx.released, 2);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS], 1);
	fx_end();
}

/* Exactly once (R6.7). */
static void
test_repetitions(void)
{
	static const float sum[4] = {11, 22, 33, 44};

	begin(2, PBOX_OP_SUM);
	fx_pushpull(&w[0], 1, one, 4);
	fx_mark();
	CU_ASSERT_FALSE(fx_pushpull(&w[0], 1, two, 4)); /* the first one counts */
	FX_ONLY(PBOX_SS_RX_DUP_PENDING);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.flags, PBOX_F_HAVE);
	UNIT_EQ_U64(fx_last()->hdr.aux, 1);
	UNIT_EQ_U64(fx_last()->hdr.weight, 1); /* first missing */
	fx_pushpull(&w[1], 1, two, 4);
	expect_result(fx_last(), 1, sum);
	fx_clear();
	fx_mark();
	CU_ASSERT_FALSE(fx_pushpull(&w[0], 1, two, 4));
	FX_ONLY(PBOX_SS_RX_DUP_DONE);
	expect_result(fx_last(), 1, sum);
	fx_pushpull(&w[0], 2, two, 4); /* the next round: the answer is still there */
	fx_clear();
	fx_pushpull(&w[1], 1, two, 4);
	expect_result(fx_last(), 1, sum);
	fx_pushpull(&w[1], 2, two, 4);
	fx_mark();
	fx_pushpull(&w[1], 1, two, 4);
	FX_ONLY(PBOX_SS_DROP_ROUND_STALE);
	UNIT_EQ_U64(fx.released, 4);
	fx_end();
}

static uint64_t
repeats(unsigned worker)
{
	struct pbox_worker_stats s;

	pbox_registrar_worker(fx.registrar, pbox_registrar_job(fx.registrar, 0), worker, &s);
	return s.repeats;
}

/* What counts as lost: not the question that met a late result on its way. */
static void
test_lost_or_late(void)
{
	begin(2, PBOX_OP_SUM);
	fx_pushpull(&w[0], 1, one, 4);
	rx(0, PBOX_PULL, 1, NULL); /* it waits for the other */
	UNIT_EQ_U64(repeats(0), 0);
	rx(1, PBOX_PULL, 1, NULL); /* it has never contributed: it may only pull */
	UNIT_EQ_U64(repeats(1), 0);
	fx_pushpull(&w[1], 1, two, 4);
	rx(0, PBOX_PULL, 1, NULL); /* the result was lost */
	UNIT_EQ_U64(repeats(0), 1);
	rx(1, PBOX_PULL, 2, NULL); /* its contribution was lost */
	UNIT_EQ_U64(repeats(1), 1);
	fx_pushpull(&w[0], 2, one, 4);
	fx.now += 30 * 1000000;
	fx_pushpull(&w[1], 2, two, 4);
	rx(0, PBOX_PULL, 2, NULL);
	UNIT_EQ_U64(repeats(0), 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT); /* it gets it, whatever that was */
	fx_pushpull(&w[1], 2, two, 4);                 /* but this costs a frame in any case */
	UNIT_EQ_U64(repeats(1), 2);
	fx_pushpull(&w[0], 3, one, 4);
	fx_pushpull(&w[1], 3, two, 4);
	rx(0, PBOX_PULL, 3, NULL);
	UNIT_EQ_U64(repeats(0), 2);
	fx_end();
}

static void
test_push_and_pull(void)
{
	static const float sum[4] = {11, 22, 33, 44};

	begin(2, PBOX_OP_SUM);
	rx(0, PBOX_PUSH, 1, one);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PUSH_OK);
	UNIT_EQ_U64(fx_last()->hdr.round, 1);
	rx(0, PBOX_PUSH, 1, one);
	UNIT_EQ_U64(fx_count(PBOX_PUSH_OK), 2);
	rx(1, PBOX_PULL, 1, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.flags & PBOX_F_HAVE, 0);
	UNIT_EQ_U64(fx_last()->hdr.weight, 1);
	fx_clear();
	rx(1, PBOX_PUSH, 1, two);
	UNIT_EQ_U64(fx.n_sent, 2); /* PUSH_OK, and RESULT for the PULL that waits */
	UNIT_EQ_U64(fx_nth(0)->hdr.type, PBOX_PUSH_OK);
	expect_result(fx_nth(1), 1, sum);
	UNIT_EQ_U64(fx_nth(1)->hdr.worker, 1);
	rx(0, PBOX_PULL, 1, NULL);
	expect_result(fx_last(), 1, sum);
	fx_clear();
	rx(0, PBOX_PUSH, 1, one); /* repeated after the end */
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PUSH_OK);
	fx_end();
}

static void
test_pull_variants(void)
{
	static const float sum[4] = {1, 2, 3, 4};
	struct pbox_hdr h;

	begin(1, PBOX_OP_SUM);
	h = frame(0, PBOX_PULL, 7);
	h.flags = PBOX_F_LATEST;
	fx_rx(0, &w[0], &h, NULL); /* nothing is there yet */
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.base, 0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 0); /* and nothing is kept */
	rx(0, PBOX_PULL, 1, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	fx_pushpull(&w[0], 1, one, 4);
	fx_clear();
	fx_rx(0, &w[0], &h, NULL);
	expect_result(fx_last(), 1, sum);
	rx(0, PBOX_PULL, 2, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	fx_clear();
	fx_rx(0, &w[0], &h, NULL); /* round 2 is open, version 1 is the latest */
	expect_result(fx_last(), 1, sum);
	fx_end();
}

static void
test_zero(void)
{
	static const float sum[4] = {1.5f, 2, 2, 12}, none[4] = {0};
	struct pbox_hdr h;

	begin(3, PBOX_OP_SUM);
	fx_pushpull(&w[0], 1, one, 4);
	fx_pushpull(&w[2], 1, three, 4);
	h = frame(1, PBOX_PUSHPULL, 1);
	h.flags |= PBOX_F_ZERO;
	h.length = 0;
	fx_mark();
	CU_ASSERT_FALSE(fx_rx(0, &w[1], &h, NULL)); /* counted, but there is nothing to hold */
	FX_ONLY(PBOX_SS_RX_CONTRIBUTION);
	expect_result(fx_last(), 1, sum);
	for (unsigned i = 0; i < 3; i++) {
		h = frame(i, PBOX_PUSHPULL, 2);
		h.flags |= PBOX_F_ZERO;
		h.length = 0;
		fx_rx(0, &w[i], &h, NULL);
	}
	expect_result(fx_last(), 2, none);
	UNIT_EQ_U64(fx.released, 2);
	fx_end();
}

static void
weighted(unsigned i, const float *v, uint32_t weight, uint32_t round)
{
	struct pbox_hdr h = frame(i, PBOX_PUSHPULL, round);

	h.weight = weight;
	fx_rx(0, &w[i], &h, v);
}

/* R5.2, each operation computed here in the same order. */
static void
test_operations(void)
{
	static const uint32_t n[3] = {3, 0, 5};

	for (unsigned op = PBOX_OP_SUM; op <= PBOX_OP_WEIGHTED_MEAN; op++) {
		const float *v[3] = {one, two, three};
		float want[4];

		begin(3, (uint8_t)op);
		for (unsigned i = 0; i < 3; i++)
			weighted(2 - i, v[2 - i], n[2 - i], 1);
		for (unsigned k = 0; k < 4; k++) {
			float s = op == PBOX_OP_WEIGHTED_MEAN
					  ? 3.0f * one[k] + 0.0f * two[k] + 5.0f * three[k]
					  : one[k] + two[k] + three[k];

			want[k] = op == PBOX_OP_SUM    ? s
				  : op == PBOX_OP_MEAN ? s * (float)(1.0 / 3)
						       : s * (float)(1.0 / 8);
		}
		expect_result(fx_last(), 1, want);
		UNIT_EQ_U64(fx_last()->hdr.weight, 8);
		fx_end();
	}
}

static void
test_samples_without_sum(void)
{
	static const float none[4] = {0};

	begin(2, PBOX_OP_SAMPLE_MEAN);
	weighted(0, one, 0, 1);
	weighted(1, two, 0, 1);
	expect_result(fx_last(), 1, none);
	weighted(0, one, UINT32_MAX, 2);
	weighted(1, two, UINT32_MAX, 2);
	UNIT_EQ_U64(fx_last()->hdr.weight, UINT32_MAX); /* saturated */
	fx_end();
}

/* R5.2: the mean of no samples may be NaN, and brings nothing. */
static void
test_mean_of_nothing(void)
{
	static const float nothing[4] = {NAN, INFINITY, -INFINITY, -1}, none[4] = {0};

	begin(2, PBOX_OP_WEIGHTED_MEAN);
	weighted(0, nothing, 0, 1);
	weighted(1, two, 3, 1);
	/* 3 x / 3 is not always x */
	for (unsigned k = 0; k < 4; k++) {
		float got;

		memcpy(&got, fx_last()->payload + 4 * k, 4);
		CU_ASSERT_EQUAL(got, 3.0f * two[k] * (float)(1.0 / 3));
	}
	UNIT_EQ_U64(fx_last()->hdr.weight, 3);
	UNIT_EQ_U64(fx_last()->hdr.aux, 2);
	weighted(0, nothing, 0, 2);
	weighted(1, nothing, 0, 2);
	expect_result(fx_last(), 2, none);
	fx_end();
}

static void
test_formats(void)
{
	/* 1.5 and 2.25 in bf16 and fp16 */
	static const uint16_t in[2][2] = {{0x3FC0, 0x4010}, {0x3E00, 0x4080}};
	static const uint16_t out[2][2] = {{0x4040, 0x4090}, {0x4200, 0x4480}}; /* twice as much */
	static const float wide[2] = {3.0f, 4.5f};

	for (unsigned push = PBOX_FMT_FP32; push <= PBOX_FMT_FP16; push++)
		for (unsigned pull = PBOX_FMT_FP32; pull <= PBOX_FMT_FP16; pull++) {
			struct fx_table t = {
				.elements = 2, .push = (uint8_t)push, .pull = (uint8_t)pull};
			static const float full[2] = {1.5f, 2.25f};

			fx_begin();
			fx_job(w, "vision", 2, &t);
			for (unsigned i = 0; i < 2; i++) {
				struct pbox_hdr h = frame(i, PBOX_PUSHPULL, 1);

				h.format = (uint8_t)push;
				h.length = (uint16_t)(2 * pbox_format_size(push));
				fx_rx(0, &w[i], &h,
					push == PBOX_FMT_FP32 ? (const void *)full : in[push - 2]);
			}
			UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
			UNIT_EQ_U64(fx_last()->hdr.format, pull);
			UNIT_EQ_U64(fx_last()->hdr.length, 2 * pbox_format_size(pull));
			CU_ASSERT_EQUAL(
				memcmp(fx_last()->payload,
					pull == PBOX_FMT_FP32 ? (const void *)wide : out[pull - 2],
					fx_last()->hdr.length),
				0);
			fx_end();
		}
}

static void
test_rounds_wrap(void)
{
	static const float sum[4] = {11, 22, 33, 44};

	begin(2, PBOX_OP_SUM);
	/* where a very long run would be */
	pbox_registrar_job(fx.registrar, 0)->table[0]->t.chunk[0].fragment[0].version =
		UINT32_MAX - 2;
	for (uint32_t r = UINT32_MAX - 1; r != 4; r++) {
		fx_pushpull(&w[0], r, one, 4);
		fx_pushpull(&w[0], r, one, 4);
		UNIT_EQ_U64(fx_last()->hdr.flags, PBOX_F_HAVE);
		fx_pushpull(&w[1], r, two, 4);
		expect_result(fx_last(), r, sum);
		fx_clear();
		fx_pushpull(&w[1], r, two, 4);
		expect_result(fx_last(), r, sum);
		fx_mark();
		fx_pushpull(&w[1], r - 1, two, 4);
		FX_ONLY(PBOX_SS_DROP_ROUND_STALE);
		fx_mark();
		fx_pushpull(&w[1], r + 2, two, 4);
		FX_ONLY(PBOX_SS_DROP_ROUND_FUTURE);
	}
	fx_end();
}

/* A worker moves in the middle of a round: answers go to where it was heard last. */
static void
test_a_worker_moves(void)
{
	begin(2, PBOX_OP_SUM);
	fx_pushpull(&w[0], 1, one, 4);
	w[0].udp = 9999;
	rx(0, PBOX_PULL, 1, NULL);
	fx_prove(0, &w[0]);
	fx_pushpull(&w[1], 1, two, 4);
	UNIT_EQ_U64(fx_nth(0)->hdr.worker, 0);
	UNIT_EQ_U64(fx_nth(0)->peer.udp, 9999);
	UNIT_EQ_U64(ntohl(fx_nth(0)->peer.ip), w[0].ip);
	UNIT_EQ_U64(fx_nth(1)->peer.udp, 5001);
	fx_end();
}

static void
test_jobs_do_not_meet(void)
{
	static const float sum[4] = {11, 22, 33, 44}, other[4] = {1.5f, 2, 2, 12};
	struct fx_table t = {.elements = 4};

	fx_begin();
	fx_job(w, "vision", 2, &t);
	fx_job(w + 2, "speech", 2, &t);
	CU_ASSERT(w[0].job_no != w[2].job_no);
	fx_pushpull(&w[0], 1, one, 4);
	/* the only chunk of the second job lies on the endpoint that has less to do */
	for (unsigned i = 2; i < 4; i++) {
		struct pbox_hdr h = frame(i, PBOX_PUSHPULL, 1);

		CU_ASSERT_FALSE(fx_rx(0, &w[i], &h, one));
		CU_ASSERT_TRUE(fx_rx(1, &w[i], &h, i == 2 ? one : three));
	}
	expect_result(fx_last(), 1, other);
	fx_pushpull(&w[1], 1, two, 4);
	expect_result(fx_last(), 1, sum);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_DROP_CHUNK_UNKNOWN], 2);
	fx_end();
}

/* The contribution of a worker that left counts, and its number may go on. */
static void
test_a_worker_is_replaced_in_mid_round(void)
{
	static const float sum[4] = {11, 22, 33, 44};
	struct fx_table t = {.elements = 4, .flags = PBOX_DECLARE_CONTINUE};

	begin(2, PBOX_OP_SUM);
	fx_pushpull(&w[0], 1, one, 4);
	fx_leave(&w[0]);
	fx_join(&w[0], "vision", 0, 2);
	fx_declare(&w[0], 0, &t);
	fx_clear();
	fx_pushpull(&w[0], 1, three, 4);
	UNIT_EQ_U64(fx_last()->hdr.flags, PBOX_F_HAVE);
	UNIT_EQ_U64(fx_last()->hdr.token, w[0].token);
	fx_pushpull(&w[1], 1, two, 4);
	expect_result(fx_last(), 1, sum);
	fx_end();
}

static void
test_a_burst(void)
{
	static const float sum[4] = {11, 22, 33, 44};
	struct pbox_frame f[4] = {{.payload = (const uint8_t *)two, .handle = &f[0]},
		{.payload = (const uint8_t *)one, .handle = &f[1]},
		{.payload = (const uint8_t *)one, .handle = &f[2]},
		{.payload = (const uint8_t *)three, .handle = &f[3]}};

	begin(2, PBOX_OP_SUM);
	f[0].hdr = frame(1, PBOX_PUSHPULL, 1);
	f[1].hdr = frame(1, PBOX_PUSHPULL, 1); /* repeated */
	f[2].hdr = frame(0, PBOX_PUSHPULL, 1); /* ends the round */
	f[3].hdr = frame(0, PBOX_PUSHPULL, 2);
	for (unsigned i = 0; i < 4; i++)
		f[i].peer = (struct pbox_peer){.ip = htonl(w[i < 2].ip), .udp = w[i < 2].udp};
	UNIT_EQ_U64(pbox_shard_rx(fx.shard[0], f, 4, fx.now), 0xD);
	UNIT_EQ_U64(fx.released, 2); /* within the call that took them */
	UNIT_EQ_U64(fx_count(PBOX_WAIT), 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	expect_result(fx_last(), 1, sum);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_HELD], 1);
	fx_end();
	UNIT_EQ_U64(fx.released, 0);
}

/* ECN: what arrived marked is echoed once (flag ECE). */
static void
test_congestion_is_echoed(void)
{
	struct pbox_frame f = {.payload = (const uint8_t *)one, .ce = true};

	begin(1, PBOX_OP_SUM);
	f.hdr = frame(0, PBOX_PUSHPULL, 1);
	f.handle = &f;
	pbox_shard_rx(fx.shard[0], &f, 1, fx.now);
	UNIT_EQ_U64(fx_last()->hdr.flags & PBOX_F_ECE, PBOX_F_ECE);
	fx_pushpull(&w[0], 2, one, 4);
	UNIT_EQ_U64(fx_last()->hdr.flags & PBOX_F_ECE, 0);
	fx_end();
}

/* Folding gives the bits of the one pass. */
static void
test_fold(void)
{
	static const float tiny[4] = {1e-8f, 1e8f, 3, -1}, big[4] = {1, -1e8f, 1e-7f, 1};
	struct fx_table t = {.elements = 64 * 50, .op = PBOX_OP_WEIGHTED_MEAN};
	float want[4];

	fx.mtu = 154;
	fx.hold = 3;
	fx_begin();
	fx_job(w, "vision", 3, &t);
	for (uint16_t frag = 0; frag < 3; frag++)
		for (unsigned i = 0; i < 3; i++) {
			static float v[3][16];
			struct pbox_hdr h = fx_data(&w[i], PBOX_PUSHPULL, 0, frag, 1);

			memcpy(v[0], tiny, 16);
			memcpy(v[1], big, 16);
			memcpy(v[2], three, 16);
			h.format = PBOX_FMT_FP32;
			h.length = 64;
			h.weight = i + 1;
			if (frag < 2 && i == 2)
				continue; /* two rounds stay open: four packets, of three */
			CU_ASSERT_TRUE(fx_rx(0, &w[i], &h, v[i]));
		}
	CU_ASSERT(fx.ss[0][PBOX_SS_FOLDS] > 0);
	for (unsigned k = 0; k < 4; k++) {
		float a = 1.0f * tiny[k], b = 2.0f * big[k], c = 3.0f * three[k], s = a + b;

		s = s + c;
		want[k] = s * (float)(1.0 / 6);
	}
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, want, 16), 0);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"a round", test_a_round},
	{"repetitions", test_repetitions},
	{"lost, or late", test_lost_or_late},
	{"PUSH and PULL", test_push_and_pull},
	{"variants of PULL", test_pull_variants},
	{"contributions of zeros", test_zero},
	{"operations", test_operations},
	{"sample counts of 0, and too many", test_samples_without_sum},
	{"the mean of nothing", test_mean_of_nothing},
	{"formats", test_formats},
	{"rounds wrap around", test_rounds_wrap},
	{"a worker moves", test_a_worker_moves},
	{"jobs do not meet", test_jobs_do_not_meet},
	{"a worker is replaced in mid-round", test_a_worker_is_replaced_in_mid_round},
	{"a burst", test_a_burst},
	{"congestion is echoed", test_congestion_is_echoed},
	{"folding early", test_fold},
	{NULL, NULL},
};
