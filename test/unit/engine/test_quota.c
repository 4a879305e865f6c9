/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "fixture.h"

const char unit_suite[] = "engine: what a job and a worker may ask";

static struct fx_worker w[2], other[2];
static const float v[64] = {1, 2, 3, 4};
static const struct fx_table sum = {.elements = 64}; /* fragments of 16 */

static void
begin(const char *job)
{
	fx.mtu = 154;
	fx.max_jobs = 2;
	fx_begin();
	fx_job(w, job, 2, &sum);
}

/* Send one frame up to n times; how many were taken before the first drop for rate. */
static unsigned
flood(const struct fx_worker *from, const struct pbox_hdr *h, unsigned n)
{
	uint64_t before = fx.ss[0][PBOX_SS_DROP_RATE];

	for (unsigned i = 0; i < n; i++) {
		fx_clear();
		fx_rx(0, from, h, h->length > 0 ? v : NULL);
		if (fx.ss[0][PBOX_SS_DROP_RATE] != before) {
			UNIT_EQ_U64(fx.n_sent, 0); /* without an answer */
			return i;
		}
	}
	return n;
}

static struct pbox_hdr
pushpull(const struct fx_worker *from, uint32_t round)
{
	struct pbox_hdr h = fx_data(from, PBOX_PUSHPULL, 0, 0, round);

	h.format = PBOX_FMT_FP32;
	h.length = 64;
	return h;
}

static struct pbox_hdr
plain(enum pbox_type type)
{
	struct pbox_hdr h = fx_data(&w[0], type, 0, 0, 1);

	if (type == PBOX_PING)
		h.chunk = h.round = 0;
	return h;
}

/* Worker 0 sends each kind of frame that moves nothing: all draw on the same credit. */
static void
test_credit(enum pbox_type type)
{
	struct pbox_hdr h, next;

	begin("vision");
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 1, v, 16));
	if (type == PBOX_RESULT) /* stands for: repeated, and finished */
		CU_ASSERT_TRUE(fx_pushpull(&w[1], 1, v, 16));
	h = type == PBOX_PULL || type == PBOX_PING ? plain(type) : pushpull(&w[0], 1);
	UNIT_EQ_U64(flood(&w[0], &h, 20000), 16384);
	fx_mark();
	fx_rx(0, &w[0], &h, v);
	FX_ONLY(PBOX_SS_DROP_RATE);
	/* time gives it back: 50 in a millisecond */
	fx.now += 1000000;
	UNIT_EQ_U64(flood(&w[0], &h, 1000), 50);
	/* the other worker has its own */
	next = h.type == PBOX_PUSHPULL ? pushpull(&w[1], 1)
				       : fx_data(&w[1], (enum pbox_type)h.type, 0, 0, h.round);
	if (type == PBOX_PING)
		next.chunk = 0;
	UNIT_EQ_U64(flood(&w[1], &next, 100), 100);
	fx_end();
}

static void
test_repeated_in_progress(void)
{
	test_credit(PBOX_PUSHPULL);
}

static void
test_repeated_and_finished(void)
{
	test_credit(PBOX_RESULT);
}

static void
test_pulls(void)
{
	test_credit(PBOX_PULL);
}

static void
test_pings(void)
{
	test_credit(PBOX_PING);
}

/* Who contributes may repeat as much; and never is a contribution itself refused. */
static void
test_contributions_earn(void)
{
	struct pbox_hdr h = {0};

	begin("vision");
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 1, v, 16));
	h = pushpull(&w[0], 1);
	UNIT_EQ_U64(flood(&w[0], &h, 20000), 16384);
	for (uint32_t round = 2; round < 102; round++) {
		fx_clear();
		fx_pushpull(&w[1], round - 1, v, 16);
		fx_mark();
		CU_ASSERT_TRUE(fx_pushpull(&w[0], round, v, 16));
		FX_ONLY(PBOX_SS_RX_CONTRIBUTION);
	}
	h = pushpull(&w[0], 101);
	UNIT_EQ_U64(flood(&w[0], &h, 1000), 100);
	fx_end();
}

/* 1000 frames a second, saved up for 10 ms. */
static void
test_rate_of_a_job(void)
{
	struct pbox_hdr h;

	begin("slow");
	fx.now += 1000000000;
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 1, v, 16));
	h = pushpull(&w[0], 1);
	UNIT_EQ_U64(flood(&w[0], &h, 100), 9);
	/* of the job, not of the worker */
	h = pushpull(&w[1], 1);
	fx_mark();
	CU_ASSERT_FALSE(fx_rx(0, &w[1], &h, v));
	FX_ONLY(PBOX_SS_DROP_RATE);
	/* other jobs do not feel it */
	fx_job(other, "vision", 2, &sum);
	h = pushpull(&other[0], 1);
	CU_ASSERT_TRUE(fx_rx(0, &other[0], &h, v));
	/* the refused one comes again, and counts */
	fx.now += 1000000;
	fx_mark();
	CU_ASSERT_TRUE(fx_pushpull(&w[1], 1, v, 16));
	FX_ONLY(PBOX_SS_RX_CONTRIBUTION);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	fx_end();
}

static void
test_lease_of_a_job(void)
{
	begin("slow");
	UNIT_EQ_U64(w[0].welcome.lease_ms, 700);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"repetitions of a round in progress", test_repeated_in_progress},
	{"repetitions of a finished round", test_repeated_and_finished},
	{"pulls", test_pulls},
	{"pings", test_pings},
	{"contributions earn credit", test_contributions_earn},
	{"rate of a job", test_rate_of_a_job},
	{"lease of a job", test_lease_of_a_job},
	{NULL, NULL},
};
