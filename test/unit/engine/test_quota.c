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
	if (type == PBOX_RESULT) /* means: repeated, and finished */
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

static void
begin_slow(uint32_t hold)
{
	fx.hold = hold;
	begin("slow"); /* 1000 frames a second, saved up for 10 ms */
	fx.now += 1000000000;
}

/* What moves no round is bounded by the rate, and a window in advance; what moves one is not refused. */
static void
test_rate_of_a_job(void)
{
	struct pbox_hdr h;

	begin_slow(16); /* half of it is for the other job: the window is 2 */
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 1, v, 16));
	h = pushpull(&w[0], 1);
	UNIT_EQ_U64(flood(&w[0], &h, 100), 10);
	/* of the job, not of the worker */
	h = plain(PBOX_PING);
	h.worker = w[1].worker;
	h.token = w[1].token;
	UNIT_EQ_U64(flood(&w[1], &h, 100), 0);
	/* good for no round */
	h = pushpull(&w[1], 1);
	h.map_epoch++;
	UNIT_EQ_U64(flood(&w[1], &h, 100), 0);
	/* other jobs do not feel it */
	fx_job(other, "vision", 2, &sum);
	h = pushpull(&other[0], 1);
	CU_ASSERT_TRUE(fx_rx(0, &other[0], &h, v));
	fx_mark();
	CU_ASSERT_TRUE(fx_pushpull(&w[1], 1, v, 16));
	FX_ONLY(PBOX_SS_RX_CONTRIBUTION);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	fx_end();
}

/* Rounds end as the rate has room for their contributions, in the order in which they were complete. */
static void
test_rounds_wait(void)
{
	begin_slow(0);
	/* 12 are more than what was saved up, and the next waits for the debt */
	for (uint32_t round = 1; round <= 7; round++) {
		struct pbox_hdr h = pushpull(&w[0], round);

		fx_clear();
		fx_mark();
		CU_ASSERT_TRUE(fx_pushpull(&w[1], round, v, 16));
		CU_ASSERT_TRUE(fx_rx(0, &w[0], &h, v));
		UNIT_EQ_U64(fx_count(PBOX_RESULT), round <= 6 ? 2 : 0);
	}
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_PACED], 1);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_PACED], 1);
	/* a worker that asks hears that the box has it */
	fx_pushpull(&w[1], 7, v, 16);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	CU_ASSERT_TRUE((fx_last()->hdr.flags & PBOX_F_HAVE) != 0);
	UNIT_EQ_U64(fx_last()->hdr.weight, UINT32_MAX);
	fx_clear();
	fx.now += 1999999;
	UNIT_EQ_U64(pbox_shard_pace(fx.shard[0], fx.now), 0);
	fx.now += 2;
	UNIT_EQ_U64(pbox_shard_pace(fx.shard[0], fx.now), 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	UNIT_EQ_U64(fx_last()->hdr.round, 7);
	UNIT_EQ_U64(fx_last()->hdr.held, 2000);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_PACED], 0);
	fx_end();
}

/* A job ends, or its rate is lifted, while rounds wait. */
static void
test_waiting_rounds_end(void)
{
	begin_slow(0);
	for (uint32_t round = 1; round <= 7; round++)
		for (unsigned i = 0; i < 2; i++)
			CU_ASSERT_TRUE(fx_pushpull(&w[i], round, v, 16));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_PACED], 1);
	fx_leave(&w[0]);
	fx_leave(&w[1]);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_PACED], 0);
	UNIT_EQ_U64(pbox_shard_pace(fx.shard[0], fx.now + 1000000000), 0);
	fx_end();
}

/* ---- a job that wants more than its rate: workers as R6.9 and R6.4 have them ------------------- */

#define MANY      4  /* workers */
#define FRAGMENTS 32 /* of the table, those of shard 0 */
#define WINDOW    16
#define TIMEOUT   20000000 /* ns */
#define TURN      100000   /* ns: of the box, and of the network */

/* What a worker knows of a fragment. */
struct asked {
	uint32_t round; /* in progress */
	bool flying, lost;
	uint64_t due;
};

static struct fx_worker crowd[MANY];
static uint32_t chunks[FRAGMENTS]; /* of one fragment each */
static struct asked asked[MANY][FRAGMENTS];
static uint64_t launched;

/* 2 x FRAGMENTS chunks, of which half are at shard 0. */
static void
map_crowd(void)
{
	static struct pbox_chunk_entry e;
	struct pbox_mapped m;
	struct pbox_cursor cur;
	unsigned n = 0;

	for (uint32_t first = 0; n < FRAGMENTS; first += m.count) {
		const struct fx_sent *s = fx_map(&crowd[0], 0, first);

		CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_MAPPED);
		CU_ASSERT_EQUAL_FATAL(pbox_mapped_decode(s->payload, s->hdr.length, &m, &cur), 0);
		CU_ASSERT_FATAL(m.count > 0);
		for (unsigned i = 0; i < m.count; i++) {
			CU_ASSERT_EQUAL_FATAL(pbox_mapped_next(&cur, &e), 0);
			UNIT_EQ_U64(e.elements, 16);
			if (e.endpoint == 0 && n < FRAGMENTS)
				chunks[n++] = e.chunk_id;
		}
	}
	fx_clear();
}

static void
ask(unsigned i, unsigned frag, bool probe)
{
	struct asked *a = &asked[i][frag];
	struct pbox_hdr h =
		fx_data(&crowd[i], probe ? PBOX_PULL : PBOX_PUSHPULL, chunks[frag], 0, a->round);

	h.format = PBOX_FMT_FP32;
	h.length = probe ? 0 : 64;
	a->flying = true;
	a->lost = false;
	a->due = fx.now + TIMEOUT;
	fx_rx(0, &crowd[i], &h, probe ? NULL : v);
}

/* Answers since fx_clear(). Returns how many are results. */
static unsigned
listen(void)
{
	unsigned results = 0;

	CU_ASSERT_FATAL(fx.n_sent < FX_SENT);
	for (unsigned k = 0; k < fx.n_sent; k++) {
		const struct pbox_hdr *h = &fx.sent[k].hdr;
		struct asked *a = asked[h->worker];

		while (chunks[a - asked[h->worker]] != h->chunk)
			a++;
		if (h->round != a->round || !a->flying)
			continue;
		if (h->type == PBOX_RESULT) {
			a->flying = false;
			results++;
		} else if ((h->flags & PBOX_F_HAVE) == 0) {
			a->lost = true;
		}
	}
	fx_clear();
	return results;
}

/* One worker's turn. */
static void
go_on(unsigned i, unsigned *next)
{
	unsigned flying = 0;

	for (unsigned f = 0; f < FRAGMENTS; f++) {
		flying += asked[i][f].flying;
		if (asked[i][f].flying && (asked[i][f].lost || asked[i][f].due <= fx.now))
			ask(i, f, !asked[i][f].lost);
	}
	for (; flying < WINDOW && !asked[i][*next].flying; flying++) {
		asked[i][*next].round++;
		ask(i, *next, false);
		*next = (*next + 1) % FRAGMENTS;
		launched++;
	}
}

static void
test_exceeded(void)
{
	static const struct fx_table table = {.elements = 2 * 16 * FRAGMENTS};
	unsigned next[MANY] = {0}, results = 0;

	fx.mtu = 154;
	fx.max_jobs = 2;
	fx.chunk_elements = 16;
	fx_begin();
	fx_job(crowd, "slow", MANY, &table);
	map_crowd();
	memset(asked, 0, sizeof(asked));
	launched = 0;
	for (unsigned turn = 0; turn < 20000; turn++) { /* 2 s */
		fx.now += TURN;
		for (unsigned i = 0; i < MANY; i++)
			go_on(i, &next[i]);
		pbox_shard_pace(fx.shard[0], fx.now);
		results += listen();
	}
	CU_ASSERT_TRUE(results >= 2000 * 98 / 100);
	CU_ASSERT_TRUE(results <= 2000 + 10 + MANY);
	/* each was taken when it came first */
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_RX_CONTRIBUTION], launched);
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
	{"rounds wait for the rate", test_rounds_wait},
	{"waiting rounds of a job that ends", test_waiting_rounds_end},
	{"a job that exceeds its rate gets all of it", test_exceeded},
	{"lease of a job", test_lease_of_a_job},
	{NULL, NULL},
};
