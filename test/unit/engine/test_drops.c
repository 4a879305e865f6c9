/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: what a shard drops";

static struct fx_worker w[3];
static const float v[64] = {1, 2, 3, 4};
static const struct fx_table sum = {.elements = 64};       /* fragments of 16 */
static const struct fx_table wide = {.elements = 64 * 50}; /* enough for chunks of 64 */

static void
begin(const struct fx_table *t)
{
	fx.mtu = 154;
	fx_begin();
	fx_job(w, "vision", 2, t);
}

static struct pbox_hdr
good(void)
{
	struct pbox_hdr h = fx_data(&w[0], PBOX_PUSHPULL, 0, 0, 1);

	h.format = PBOX_FMT_FP32;
	h.length = 64;
	return h;
}

static void
expect(const struct pbox_hdr *h, enum pbox_shard_stat what)
{
	fx_mark();
	CU_ASSERT_FALSE(fx_rx(0, &w[0], h, v));
	FX_ONLY(what);
}

/* Everything is wrong with the frame; one field after the other is put right (R6.11). */
static void
test_order_of_checks(void)
{
	struct pbox_hdr h = good();

	begin(&sum);
	h = good();
	h.job = 4;
	h.token++;
	h.incarnation++;
	h.map_epoch++;
	h.chunk = 5;
	h.frag = 4;
	h.format = PBOX_FMT_BF16;
	h.length = 60;
	h.flags = 0;
	h.round = 0;
	expect(&h, PBOX_SS_DROP_SESSION_UNKNOWN);
	h.job = w[0].job_no;
	h.worker = 2;
	expect(&h, PBOX_SS_DROP_SESSION_UNKNOWN);
	h.worker = 0;
	expect(&h, PBOX_SS_DROP_SESSION_TOKEN);
	h.token--;
	expect(&h, PBOX_SS_DROP_SESSION_INCARNATION);
	h.incarnation--;
	expect(&h, PBOX_SS_DROP_CHUNK_UNKNOWN);
	h.chunk = 1u << PBOX_CHUNK_BITS; /* a table that does not exist */
	expect(&h, PBOX_SS_DROP_CHUNK_UNKNOWN);
	h.chunk = UINT32_MAX;
	expect(&h, PBOX_SS_DROP_CHUNK_UNKNOWN);
	h.chunk = 0;
	expect(&h, PBOX_SS_DROP_MAP_EPOCH);
	h.map_epoch--;
	expect(&h, PBOX_SS_DROP_FRAG_RANGE);
	h.frag = 0;
	expect(&h, PBOX_SS_DROP_FORMAT);
	h.format = PBOX_FMT_FP32;
	expect(&h, PBOX_SS_DROP_LENGTH);
	h.length = 64;
	expect(&h, PBOX_SS_DROP_PARTIAL);
	h.flags = PBOX_F_LAST;
	h.round = UINT32_MAX;
	expect(&h, PBOX_SS_DROP_ROUND_STALE);
	h.round = 0;
	expect(&h, PBOX_SS_DROP_ROUND_STALE);
	h.round = 2;
	expect(&h, PBOX_SS_DROP_ROUND_FUTURE);
	h.round = 1;
	fx_mark();
	CU_ASSERT_TRUE(fx_rx(0, &w[0], &h, v));
	FX_ONLY(PBOX_SS_RX_CONTRIBUTION);
	fx_end();
}

static void
test_a_chunk_of_another_shard(void)
{
	struct fx_table t = {.elements = 128}; /* two chunks */
	struct pbox_hdr h;

	begin(&t);
	h = good();
	h.chunk = 1;
	expect(&h, PBOX_SS_DROP_CHUNK_UNKNOWN);
	CU_ASSERT_TRUE(fx_rx(1, &w[0], &h, v));
	fx_end();
}

static void
test_lengths_with_zero_and_pull(void)
{
	struct pbox_hdr h;

	begin(&sum);
	h = good();
	h.flags |= PBOX_F_ZERO;
	expect(&h, PBOX_SS_DROP_LENGTH);
	h = good();
	h.length = 0;
	expect(&h, PBOX_SS_DROP_LENGTH);
	h.length = 68;
	expect(&h, PBOX_SS_DROP_LENGTH);
	h = good();
	h.type = PBOX_PULL;
	expect(&h, PBOX_SS_DROP_LENGTH);
	h.length = 0;
	h.round = 2;
	expect(&h, PBOX_SS_DROP_ROUND_FUTURE);
	h.round = 0; /* void in mode 0 */
	expect(&h, PBOX_SS_DROP_ROUND_STALE);
	h.round = UINT32_MAX;
	expect(&h, PBOX_SS_DROP_ROUND_STALE);
	fx_end();
}

static void
test_init_drops(void)
{
	struct fx_table t = {.elements = 64,
		.mode = 1,
		.optimiser = PBOX_OPT_ADAM,
		.push = PBOX_FMT_BF16,
		.pull = PBOX_FMT_BF16}; /* 32 elements, INIT pieces of 16 */
	struct fx_worker first;
	struct pbox_hdr h;

	begin(&sum);
	h = good();
	h.type = PBOX_INIT;
	expect(&h, PBOX_SS_DROP_INIT_FORBIDDEN); /* an all-reduce */
	fx_end();
	begin(&t);
	h = good();
	h.type = PBOX_INIT;
	h.format = PBOX_FMT_BF16;
	h.base = 8;
	expect(&h, PBOX_SS_DROP_FORMAT);
	h.format = PBOX_FMT_FP32;
	expect(&h, PBOX_SS_DROP_LENGTH);
	h.base = 32;
	expect(&h, PBOX_SS_DROP_LENGTH);
	h.base = 16;
	h.length = 60;
	expect(&h, PBOX_SS_DROP_LENGTH);
	h.length = 64;
	h.worker = 1;
	h.token = w[1].token;
	h.ts += 1000;
	first = w[0];
	w[0].ip = w[1].ip;
	w[0].udp = w[1].udp;
	expect(&h, PBOX_SS_DROP_INIT_FORBIDDEN);
	h.worker = 0;
	h.token = w[0].token;
	w[0] = first;
	expect(&h, PBOX_SS_RX_INIT);
	fx_end();
}

static void
test_types(void)
{
	struct pbox_hdr h;

	begin(&sum);
	h = good();
	h.type = PBOX_RESULT;
	expect(&h, PBOX_SS_DROP_TYPE);
	h.type = PBOX_HELLO;
	expect(&h, PBOX_SS_DROP_TYPE);
	h.type = PBOX_PING;
	fx_clear();
	expect(&h, PBOX_SS_RX_PING);
	CU_ASSERT_EQUAL(fx_last()->hdr.type, PBOX_PONG);
	UNIT_EQ_U64(fx_last()->hdr.length, 64);
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, v, 64), 0);
	h.token++;
	expect(&h, PBOX_SS_DROP_SESSION_TOKEN);
	fx_end();
}

/* What a session cannot send brings at most a header, and those at a bounded rate (R4.8). */
static void
test_answers_to_strangers(void)
{
	struct pbox_hdr h;

	begin(&sum);
	h = good();
	h.token++;
	expect(&h, PBOX_SS_DROP_SESSION_TOKEN);
	UNIT_EQ_U64(fx.n_sent, 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_SESSION);
	UNIT_EQ_U64(fx_last()->hdr.length, 0);
	UNIT_EQ_U64(fx_last()->hdr.chunk, h.chunk);
	for (unsigned i = 0; i < 200; i++)
		expect(&h, PBOX_SS_DROP_SESSION_TOKEN);
	UNIT_EQ_U64(fx.n_sent, 64);
	fx.now += UINT64_C(1000000000);
	for (unsigned i = 0; i < 100; i++)
		expect(&h, PBOX_SS_DROP_SESSION_TOKEN);
	CU_ASSERT(fx.n_sent <= 128);
	/* other drops are not answered */
	fx_clear();
	h = good();
	h.map_epoch = 9;
	expect(&h, PBOX_SS_DROP_MAP_EPOCH);
	UNIT_EQ_U64(fx.n_sent, 0);
	fx_end();
}

static void
test_after_leave_and_close(void)
{
	struct pbox_hdr h;

	begin(&sum);
	h = good();
	fx_leave(&w[0]);
	expect(&h, PBOX_SS_DROP_SESSION_UNKNOWN);
	fx_leave(&w[1]);
	expect(&h, PBOX_SS_DROP_SESSION_UNKNOWN);
	fx_end();
}

/* More fragments under way than the job's windows allow: no record is left. */
static void
test_no_record(void)
{
	struct pbox_hdr h;

	fx.hold = 2; /* two workers, a window of one */
	begin(&wide);
	h = good();
	UNIT_EQ_U64(w[0].welcome.window, 1);
	CU_ASSERT_TRUE(fx_rx(0, &w[0], &h, v));
	h.frag = 1;
	CU_ASSERT_TRUE(fx_rx(0, &w[0], &h, v));
	h.frag = 2;
	expect(&h, PBOX_SS_DROP_NO_RECORD);
	/* a PULL finds none either and has to wait */
	fx_clear();
	h.type = PBOX_PULL;
	h.length = 0;
	expect(&h, PBOX_SS_RX_PULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	fx_end();
}

/* A PONG is as large as its PING, and never larger than the MTU, here with a wire that carries more. */
static void
test_large_ping(void)
{
	struct pbox_hdr h;

	begin(&sum);
	h = fx_data(&w[0], PBOX_PING, 5, 0, 0);
	h.length = 154 - PBOX_MTU_OVERHEAD;
	fx_clear();
	expect(&h, PBOX_SS_RX_PING);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PONG);
	UNIT_EQ_U64(fx_last()->hdr.length, h.length);
	h.length++;
	fx_clear();
	expect(&h, PBOX_SS_DROP_LENGTH);
	UNIT_EQ_U64(fx.n_sent, 0);
	fx_end();
}

/* The share is used up and nothing can be folded: the prefix of worker 0 is missing. */
static void
test_no_buffer(void)
{
	struct pbox_hdr h;

	fx.mtu = 154;
	fx.hold = 3;
	fx_begin();
	fx_job(w, "vision", 3, &wide);
	for (uint16_t i = 0; i < 3; i++) {
		h = fx_data(&w[1], PBOX_PUSHPULL, 0, i, 1);
		h.format = PBOX_FMT_FP32;
		h.length = 64;
		CU_ASSERT_TRUE(fx_rx(0, &w[1], &h, v));
	}
	h = fx_data(&w[2], PBOX_PUSHPULL, 0, 0, 1);
	h.format = PBOX_FMT_FP32;
	h.length = 64;
	fx_mark();
	CU_ASSERT_FALSE(fx_rx(0, &w[2], &h, v));
	FX_ONLY(PBOX_SS_DROP_NO_BUFFER);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_HELD], 3);
	/* the box says that it has it not */
	h.type = PBOX_PULL;
	h.length = 0;
	fx_rx(0, &w[2], &h, NULL);
	UNIT_EQ_U64(fx_last()->hdr.flags & PBOX_F_HAVE, 0);
	UNIT_EQ_U64(fx_last()->hdr.aux, 1);
	/* worker 0 makes the prefix complete: folded, and room for all */
	h = good();
	CU_ASSERT_TRUE(fx_rx(0, &w[0], &h, v));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_FOLDS], 1);
	UNIT_EQ_U64(fx.released, 2);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_HELD], 2);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"drops in the order of R6.11", test_order_of_checks},
	{"a chunk of another shard", test_a_chunk_of_another_shard},
	{"lengths with ZERO, and of PULL", test_lengths_with_zero_and_pull},
	{"INIT", test_init_drops},
	{"types", test_types},
	{"a PING larger than the MTU", test_large_ping},
	{"answers to strangers", test_answers_to_strangers},
	{"after LEAVE", test_after_leave_and_close},
	{"no record", test_no_record},
	{"no buffer", test_no_buffer},
	{NULL, NULL},
};
