/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "fixture.h"

/* Late verification (R2.5): contributions whose CRC is looked at when they are summed. */

const char unit_suite[] = "engine: late verification";

/* No clock has come so far. */
#define FX_TS_MOST ((uint32_t)(fx.now / 1000) + 1000)

#define ELEMENTS 64 /* 256 bytes: the shortest payload that is verified late */

struct datagram {
	uint8_t hdr[PBOX_HDR_LEN];
	uint8_t payload[ELEMENTS * 4];
};

static struct fx_worker w[4];
static struct datagram d[4];

static void
begin(uint16_t workers, uint8_t mode)
{
	struct fx_table t = {.elements = ELEMENTS, .op = PBOX_OP_SUM, .mode = mode};

	fx_begin();
	fx_job(w, "vision", workers, &t);
	fx_clear();
}

/* Worker i's contribution to a fragment and round: all elements are v. */
static void
fill_at(struct datagram *at, unsigned i, uint16_t frag, uint32_t round, float v)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PUSHPULL, 0, frag, round);

	for (unsigned k = 0; k < ELEMENTS; k++)
		memcpy(at->payload + 4 * k, &v, 4);
	h.format = PBOX_FMT_FP32;
	h.length = ELEMENTS * 4;
	UNIT_EQ_U64(pbox_frame_seal(at, &h), sizeof(*at));
}

static void
fill(unsigned i, uint32_t round, float v)
{
	fill_at(&d[i], i, 0, round, v);
}

/* As it arrives, from UDP port udp. True: it is held. */
static bool
arrive_at(struct datagram *at, unsigned i, uint16_t udp)
{
	struct pbox_frame f = {
		.payload = at->payload, .handle = at, .peer = {.ip = htonl(w[i].ip), .udp = udp}};
	size_t size;

	UNIT_EQ_U64(pbox_frame_open(at, sizeof(*at), &f.hdr, &size, &f.unverified), 0);
	CU_ASSERT_TRUE(f.unverified);
	return pbox_shard_rx(fx.shard[0], &f, 1, fx.now) != 0;
}

static bool
arrive(unsigned i, uint16_t udp)
{
	return arrive_at(&d[i], i, udp);
}

static void
expect_result(const struct fx_sent *s, uint32_t round, float v)
{
	UNIT_EQ_U64(s->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(s->hdr.round, round);
	for (unsigned k = 0; k < ELEMENTS; k++)
		CU_ASSERT_EQUAL(memcmp(s->payload + 4 * k, &v, 4), 0);
}

/* A first round, so that all addresses are known: from a new one nothing is taken unverified. */
static void
settle(unsigned workers)
{
	for (unsigned i = 0; i < workers; i++) {
		fill(i, 1, 0.0f);
		arrive(i, w[i].udp);
	}
	UNIT_EQ_U64(fx_count(PBOX_RESULT), workers);
	fx_clear();
	fx.released = 0;
}

static void
test_intact(void)
{
	begin(2, PBOX_MODE_ALLREDUCE);
	fill(0, 1, 1.0f);
	fill(1, 1, 2.5f);
	CU_ASSERT_TRUE(arrive(1, w[1].udp));
	CU_ASSERT_TRUE(arrive(0, w[0].udp));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	expect_result(fx_last(), 1, 3.5f);
	UNIT_EQ_U64(fx.released, 2);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 0);
	fx_end();
}

/* It says that it has no samples, and that is the damage: its payload is looked at although it brings nothing. */
static void
test_damaged_weight(void)
{
	struct fx_table t = {.elements = ELEMENTS, .op = PBOX_OP_WEIGHTED_MEAN};

	fx_begin();
	fx_job(w, "vision", 2, &t);
	fx_clear();
	settle(2);
	for (unsigned bit = 0; bit < 2; bit++) {
		for (unsigned i = 0; i < 2; i++) {
			struct pbox_hdr h;
			size_t size;

			fill(i, 2 + bit, 8.0f);
			pbox_frame_decode(&d[i], sizeof(d[i]), true, &h, &size);
			h.weight = 1u << bit;
			pbox_frame_seal(&d[i], &h);
		}
		d[0].hdr[46] ^= (uint8_t)(1 << bit);
		fx_clear();
		CU_ASSERT_TRUE(arrive(0, w[0].udp));
		CU_ASSERT_TRUE(arrive(1, w[1].udp));
		UNIT_EQ_U64(fx.n_sent, 1);
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
		UNIT_EQ_U64(fx_last()->hdr.worker, 0);
		d[0].hdr[46] ^= (uint8_t)(1 << bit);
		CU_ASSERT_TRUE(arrive(0, w[0].udp));
		expect_result(fx_last(), 2 + bit, 8.0f);
	}
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 2);
	fx_end();
}

/* Each bit of a contribution, one at a time: the sum never has it. */
static void
test_damaged(void)
{
	begin(3, PBOX_MODE_ALLREDUCE);
	settle(3);
	for (uint32_t round = 2; round <= 40; round++) {
		unsigned bad = round % 3, at = (unsigned)(round * 7919 % sizeof(d[0].payload));

		for (unsigned i = 0; i < 3; i++)
			fill(i, round, (float)(i + round));
		d[bad].payload[at] ^= (uint8_t)(1 << round % 8);
		fx_clear();
		fx.released = 0;
		for (unsigned i = 0; i < 3; i++)
			CU_ASSERT_TRUE(arrive(i, w[i].udp));
		/* nothing but a request to send it again */
		UNIT_EQ_U64(fx.n_sent, 1);
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
		UNIT_EQ_U64(fx_last()->hdr.flags & PBOX_F_HAVE, 0);
		UNIT_EQ_U64(fx_last()->hdr.worker, bad);
		UNIT_EQ_U64(fx_last()->hdr.weight, bad);
		UNIT_EQ_U64(fx_last()->hdr.aux, 2);
		UNIT_EQ_U64(fx_last()->hdr.round, round);
		UNIT_EQ_U64(fx.released, 1);
		CU_ASSERT_PTR_EQUAL(fx.last_released, &d[bad]);
		UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], round - 1);
		UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 2);
		fill(bad, round, (float)(bad + round));
		CU_ASSERT_TRUE(arrive(bad, w[bad].udp));
		UNIT_EQ_U64(fx_count(PBOX_RESULT), 3);
		expect_result(fx_last(), round, (float)(3 * round + 3));
		UNIT_EQ_U64(fx.released, 4);
	}
	fx_end();
}

/* The wish for an answer goes with the damaged frame, and its timestamp. */
static void
test_nothing_stays(void)
{
	begin(2, PBOX_MODE_ALLREDUCE);
	settle(2);
	fill(0, 2, 1.0f);
	fill(1, 2, 2.0f);
	d[0].hdr[50] ^= 0x40; /* ts */
	arrive(0, w[0].udp);
	arrive(1, w[1].udp);
	UNIT_EQ_U64(fx_count(PBOX_WAIT), 1);
	fill(0, 2, 1.0f);
	arrive(0, w[0].udp);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	for (unsigned i = 1; i < 3; i++)
		CU_ASSERT(fx_nth(i)->hdr.ts < FX_TS_MOST); /* not the damaged one */
	fx_end();
}

/* What is not a first contribution is verified before it is answered, counted or refused. */
static void
test_damaged_repetitions(void)
{
	begin(2, PBOX_MODE_ALLREDUCE);
	fill(0, 1, 1.0f);
	arrive(0, w[0].udp);
	d[0].payload[9] ^= 4; /* the buffer that is held as well: repaired below */
	fx_clear();
	fx_mark();
	CU_ASSERT_FALSE(arrive(0, w[0].udp));
	FX_ONLY(PBOX_SS_DROP_CRC);
	UNIT_EQ_U64(fx.n_sent, 0);
	d[0].payload[9] ^= 4;
	fill(1, 1, 1.0f);
	arrive(1, w[1].udp);
	expect_result(fx_last(), 1, 2.0f);
	fx_clear();
	fx_mark();
	d[0].payload[0] ^= 1;
	CU_ASSERT_FALSE(arrive(0, w[0].udp)); /* of a finished round */
	FX_ONLY(PBOX_SS_DROP_CRC);
	fill(0, 9, 1.0f);
	d[0].payload[0] ^= 1;
	fx_mark();
	CU_ASSERT_FALSE(arrive(0, w[0].udp)); /* of a future one */
	FX_ONLY(PBOX_SS_DROP_CRC);
	fill(0, 9, 1.0f);
	fx_mark();
	CU_ASSERT_FALSE(arrive(0, w[0].udp));
	FX_ONLY(PBOX_SS_DROP_ROUND_FUTURE);
	fill(0, 2, 1.0f);
	d[0].hdr[6] ^= 1; /* token */
	fx_mark();
	CU_ASSERT_FALSE(arrive(0, w[0].udp));
	FX_ONLY(PBOX_SS_DROP_CRC);
	UNIT_EQ_U64(fx.n_sent, 0); /* no ERROR SESSION for noise */
	fx_end();
}

/* An intact repetition takes the place of what may be damaged, and is what is summed. */
static void
test_replaced(void)
{
	static struct datagram damaged;

	begin(2, PBOX_MODE_ALLREDUCE);
	settle(2);
	fill_at(&damaged, 0, 0, 2, 1.0f);
	damaged.payload[17] ^= 8;
	CU_ASSERT_TRUE(arrive_at(&damaged, 0, w[0].udp));
	fill(0, 2, 1.0f);
	CU_ASSERT_TRUE(arrive(0, w[0].udp));
	UNIT_EQ_U64(fx.released, 1);
	CU_ASSERT_PTR_EQUAL(fx.last_released, &damaged);
	UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.flags & PBOX_F_HAVE, PBOX_F_HAVE);
	fill_at(&damaged, 0, 0, 2, 1.0f);
	CU_ASSERT_FALSE(arrive_at(&damaged, 0, w[0].udp)); /* that one is verified */
	fill(1, 2, 2.0f);
	CU_ASSERT_TRUE(arrive(1, w[1].udp));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 0);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	expect_result(fx_last(), 2, 3.0f);
	UNIT_EQ_U64(fx.released, 3);
	UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 0);
	fx_end();
}

/* A damaged frame does not move its worker. */
static void
test_address(void)
{
	begin(2, PBOX_MODE_ALLREDUCE);
	fill(0, 1, 1.0f);
	fill(1, 1, 1.0f);
	arrive(0, w[0].udp);
	d[0].payload[0] ^= 1;
	fx_mark();
	CU_ASSERT_FALSE(arrive(0, 999));
	FX_ONLY(PBOX_SS_DROP_CRC);
	d[0].payload[0] ^= 1;
	fx_clear();
	arrive(1, 1001); /* intact: it is asked for a proof, and its contribution counts */
	UNIT_EQ_U64(fx_count(PBOX_PING), 1);
	UNIT_EQ_U64(fx_nth(0)->peer.udp, 1001);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
	UNIT_EQ_U64(fx_last()->peer.udp, w[0].udp);
	fx_end();
}

/* Parameters and state stay as they are while a contribution is damaged. */
static void
test_parameters(void)
{
	struct fx_table t = {.elements = ELEMENTS,
		.op = PBOX_OP_SUM,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_SGD};
	struct pbox_hdr h;
	float zero[ELEMENTS] = {0};

	fx_begin();
	fx_job(w, "vision", 2, &t);
	fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 0.5);
	h = fx_data(&w[0], PBOX_INIT, 0, 0, 0);
	h.format = PBOX_FMT_FP32;
	h.length = sizeof(zero);
	fx_rx(0, &w[0], &h, zero);
	h = fx_data(&w[1], PBOX_PULL, 0, 0, 0);
	fx_rx(0, &w[1], &h, NULL);
	fx_clear();
	fill(0, 1, 1.0f);
	fill(1, 1, 1.0f);
	d[1].payload[3] ^= 0x80; /* a sign */
	arrive(0, w[0].udp);
	arrive(1, w[1].udp);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
	h = fx_data(&w[1], PBOX_PULL, 0, 0, 0);
	h.flags |= PBOX_F_LATEST;
	fx_rx(0, &w[1], &h, NULL);
	expect_result(fx_last(), 0, 0.0f);
	fill(1, 1, 1.0f);
	arrive(1, w[1].udp);
	expect_result(fx_last(), 1, -1.0f);
	fx_end();
}

/* A job that may hold 3 packets holds 2 of another fragment: the second one of fragment 0 makes it fold. */
static void
one_below_the_bound(void)
{
	struct fx_table t = {.elements = 200 * ELEMENTS, .op = PBOX_OP_SUM};
	static struct datagram other[2];

	fx.mtu = 90 + ELEMENTS * 4;
	fx.chunk_elements = 2 * ELEMENTS;
	fx.hold = 3;
	fx_begin();
	fx_job(w, "vision", 3, &t);
	fx_clear();
	for (unsigned i = 0; i < 2; i++) {
		fill_at(&other[i], i, 1, 1, 5.0f);
		CU_ASSERT_TRUE(arrive_at(&other[i], i, w[i].udp));
	}
	for (unsigned i = 0; i < 3; i++)
		fill(i, 1, (float)(1 << i));
}

/* The prefix that is folded early is verified then. */
static void
test_fold(void)
{
	one_below_the_bound();
	d[0].payload[5] ^= 2;
	arrive(0, w[0].udp);
	arrive(1, w[1].udp); /* over the bound: folds 0 and 1, finds 0 damaged */
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_FOLDS], 0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.worker, 0);
	fill(0, 1, 1.0f);
	arrive(0, w[0].udp);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_FOLDS], 1);
	arrive(2, w[2].udp);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS], 1);
	expect_result(fx_last(), 1, 7.0f);
	fx_end();
}

/* The one that brings its job over the bound is damaged itself: nothing of it stays either. */
static void
test_fold_finds_the_last(void)
{
	one_below_the_bound();
	arrive(0, w[0].udp);
	d[1].hdr[50] ^= 0x40; /* ts */
	CU_ASSERT_TRUE(arrive(1, w[1].udp));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 1);
	CU_ASSERT_PTR_EQUAL(fx.last_released, &d[1]);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.flags & PBOX_F_HAVE, 0);
	fx_clear();
	fill(1, 1, 2.0f);
	arrive(1, w[1].udp);
	arrive(2, w[2].udp);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 3);
	for (unsigned i = 0; i < 3; i++)
		CU_ASSERT(fx_nth(i)->hdr.ts < FX_TS_MOST); /* not the damaged one */
	expect_result(fx_last(), 1, 7.0f);
	fx_end();
}

static bool lie;

static void
sum_that_lies(float *dst, const struct pbox_sources *s, size_t first, size_t elems)
{
	pbox_reduce_scalar.sum(dst, s, first, elems);
	if (lie && s->intact != NULL)
		*s->intact = false;
}

/* Memory that changed while it was summed: each contribution by itself is intact, and their sum is not. All are
 * asked for again; without that the round would stay complete, and never end. */
static void
test_none_alone(void)
{
	struct pbox_reduce_ops ops = pbox_reduce_scalar;

	ops.sum = sum_that_lies;
	fx.reduce = &ops;
	begin(2, PBOX_MODE_ALLREDUCE);
	settle(2);
	lie = true;
	for (unsigned i = 0; i < 2; i++) {
		fill(i, 2, 1.0f);
		arrive(i, w[i].udp);
	}
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
	UNIT_EQ_U64(fx_count(PBOX_WAIT), 2);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 2);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_HELD], 0);
	lie = false;
	fx_clear();
	for (unsigned i = 0; i < 2; i++) {
		fill(i, 2, 1.0f);
		arrive(i, w[i].udp);
	}
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	expect_result(fx_last(), 2, 2.0f);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"intact ones", test_intact},
	{"a damaged one is taken back", test_damaged},
	{"a weight that is damaged", test_damaged_weight},
	{"an intact repetition takes its place", test_replaced},
	{"found by the fold that it causes", test_fold_finds_the_last},
	{"nothing of it stays", test_nothing_stays},
	{"damaged repetitions", test_damaged_repetitions},
	{"the worker's address", test_address},
	{"parameters", test_parameters},
	{"folding", test_fold},
	{"damage of no single one", test_none_alone},
	{NULL, NULL},
};
