/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "fixture.h"

/* Complete rounds that wait for the rate of their job (R6.12), and what happens to them meanwhile. */

const char unit_suite[] = "engine: rounds that wait for a rate";

#define MS        UINT64_C(1000000)
#define ELEMENTS  64 /* of a fragment, the only one of its chunk: as many as are verified late */
#define FRAGMENTS 4  /* of the table, those of shard 0 */

struct datagram {
	uint8_t hdr[PBOX_HDR_LEN];
	uint8_t payload[ELEMENTS * 4];
};

static struct fx_worker w[3], other[2];
static float v[ELEMENTS];

static void
rates(uint64_t frames_per_s)
{
	static struct pbox_job_conf section[3];
	static const char *const name[3] = {"speech", "vision", "six"};

	for (unsigned i = 0; i < 3; i++)
		section[i] = (struct pbox_job_conf){.name = name[i],
			.secret = "key",
			.secret_len = 3,
			.bounds.rate = frames_per_s,
			.policy = i == 2 ? PBOX_POLICY_SHRINK : PBOX_POLICY_ANY};
	pbox_registrar_reload(fx.registrar, section, 3, 10000, 0, fx.now);
}

/* Id of the n-th chunk that is shard 0's. */
static uint32_t
own(const struct fx_worker *x, unsigned n)
{
	const struct pbox_table *t = &pbox_registrar_job(fx.registrar, x->job_no)->table[0]->t;

	for (uint32_t i = 0; i < t->n_chunks; i++)
		if (t->chunk[i].endpoint == 0 && n-- == 0)
			return t->first_chunk_id + i;
	return UINT32_MAX;
}

static void
push(const struct fx_worker *x, unsigned frag, uint32_t round)
{
	struct pbox_hdr h = fx_data(x, PBOX_PUSHPULL, own(x, frag), 0, round);

	h.format = PBOX_FMT_FP32;
	h.length = sizeof(v);
	CU_ASSERT_TRUE(fx_rx(0, x, &h, v));
}

static void
push_all(const struct fx_worker *x, unsigned n, unsigned frag, uint32_t round)
{
	for (unsigned i = 0; i < n; i++)
		push(&x[i], frag, round);
}

/* A job of 2 or 3 workers, and 1000 frames a second. What 10 ms save up, and a part of a round on credit, is
 * used up: the next round may end in 2 ms. */
static void
use_up(struct fx_worker *x, const char *job, uint16_t n)
{
	static const struct fx_table table = {.elements = 2 * ELEMENTS * FRAGMENTS};
	unsigned rounds = 10 / n + 1;

	fx_job(x, job, n, &table);
	for (uint32_t round = 1; round <= rounds; round++)
		push_all(x, n, 0, round);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), n * rounds);
	UNIT_EQ_U64(n * rounds, 12);
	fx_clear();
}

static void
begin(struct fx_worker *x, const char *job, uint16_t n)
{
	fx.mtu = 346;
	fx.chunk_elements = ELEMENTS;
	fx_begin();
	for (unsigned k = 0; k < ELEMENTS; k++)
		v[k] = (float)k;
	rates(1000);
	use_up(x, job, n);
}

static uint64_t
waiting(void)
{
	return fx.ss[0][PBOX_SS_ROUNDS_PACED];
}

/* So many rounds end after so long. */
static void
pace(uint64_t after_ns, unsigned rounds)
{
	fx.now += after_ns;
	UNIT_EQ_U64(pbox_shard_pace(fx.shard[0], fx.now), rounds);
}

static void
test_in_order(void)
{
	begin(w, "speech", 2);
	push_all(w, 2, 2, 1);
	push_all(w, 2, 0, 7);
	push_all(w, 2, 3, 1);
	UNIT_EQ_U64(waiting(), 3);
	UNIT_EQ_U64(fx.n_sent, 0);
	pace(2 * MS, 1);
	UNIT_EQ_U64(fx_last()->hdr.chunk, own(w, 2));
	pace(2 * MS, 1);
	UNIT_EQ_U64(fx_last()->hdr.chunk, own(w, 0));
	pace(2 * MS - 1, 0);
	pace(1, 1);
	UNIT_EQ_U64(fx_last()->hdr.chunk, own(w, 3));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 6);
	UNIT_EQ_U64(waiting(), 0);
	fx_end();
}

/* The operator lifts the rate: all that waits ends with the core's next turn. */
static void
test_rate_is_lifted(void)
{
	begin(w, "speech", 2);
	push_all(w, 2, 0, 7);
	push_all(w, 2, 1, 1);
	push_all(w, 2, 2, 1);
	UNIT_EQ_U64(waiting(), 3);
	rates(0);
	pace(0, 3);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 6);
	UNIT_EQ_U64(waiting(), 0);
	fx_clear();
	push_all(w, 2, 0, 8);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	UNIT_EQ_U64(waiting(), 0);
	fx_end();
}

/* And one that is set while a job runs holds from then on. */
static void
test_rate_is_set(void)
{
	static const struct fx_table table = {.elements = 2 * ELEMENTS * FRAGMENTS};

	fx.mtu = 346;
	fx.chunk_elements = ELEMENTS;
	fx_begin();
	rates(0);
	fx_job(w, "speech", 2, &table);
	for (uint32_t round = 1; round <= 50; round++)
		push_all(w, 2, 0, round);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 100);
	rates(1000);
	for (uint32_t round = 51; round <= 57; round++)
		push_all(w, 2, 0, round);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 112);
	UNIT_EQ_U64(waiting(), 1);
	pace(2 * MS, 1);
	fx_end();
}

/* Two jobs have rounds that wait; the one that began to first ends. */
static void
test_jobs_wait_each_for_itself(void)
{
	begin(w, "speech", 2);
	use_up(other, "vision", 2);
	push_all(w, 2, 0, 7);
	push_all(other, 2, 0, 7);
	push_all(other, 2, 1, 1);
	UNIT_EQ_U64(waiting(), 3);
	fx_leave(&w[0]);
	fx_leave(&w[1]);
	UNIT_EQ_U64(waiting(), 2);
	fx_clear();
	pace(2 * MS, 1);
	UNIT_EQ_U64(fx_last()->hdr.job, other[0].job_no);
	pace(2 * MS, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 4);
	UNIT_EQ_U64(waiting(), 0);
	fx_end();
}

/* As many at once as a burst has, and the others with the next turn. */
static void
test_no_more_than_a_burst(void)
{
	static struct fx_worker one;
	static const struct fx_table table = {.elements = 2 * ELEMENTS * 100};

	fx.mtu = 346;
	fx.chunk_elements = ELEMENTS;
	fx.hold = 2048;
	fx_begin();
	rates(1000);
	fx_job(&one, "speech", 1, &table);
	for (unsigned i = 0; i < 100; i++) {
		fx_clear();
		push(&one, i, 1);
	}
	UNIT_EQ_U64(waiting(), 100 - 11);
	rates(0);
	pace(0, PBOX_SHARD_BURST);
	UNIT_EQ_U64(waiting(), 100 - 11 - PBOX_SHARD_BURST);
	pace(0, 100 - 11 - PBOX_SHARD_BURST);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS], 100);
	fx_end();
}

/* A contribution as it arrives, not verified yet. */
static void
arrive(const struct fx_worker *x, struct datagram *d, uint32_t round, bool damaged)
{
	struct pbox_hdr h = fx_data(x, PBOX_PUSHPULL, own(x, 0), 0, round);
	struct pbox_frame f = {
		.payload = d->payload, .handle = d, .peer = {.ip = htonl(x->ip), .udp = x->udp}};
	size_t size;

	fx_at(0, &f.peer);
	h.format = PBOX_FMT_FP32;
	h.length = sizeof(v);
	memcpy(d->payload, v, sizeof(v));
	UNIT_EQ_U64(pbox_frame_seal(d, &h), sizeof(*d));
	d->payload[17] ^= damaged ? 4 : 0;
	UNIT_EQ_U64(pbox_frame_open(d, sizeof(*d), &f.hdr, &size, &f.unverified), 0);
	CU_ASSERT_TRUE_FATAL(f.unverified);
	CU_ASSERT_TRUE(pbox_shard_rx(fx.shard[0], &f, 1, fx.now) != 0);
}

/* The damaged one is asked for when it is to be summed. */
static void
test_damaged_while_it_waits(void)
{
	static struct datagram d[3];
	float sum[ELEMENTS];

	begin(w, "speech", 2);
	arrive(&w[1], &d[1], 7, false);
	arrive(&w[0], &d[0], 7, true);
	UNIT_EQ_U64(waiting(), 1);
	UNIT_EQ_U64(fx.n_sent, 0);
	pace(2 * MS, 1);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 1);
	UNIT_EQ_U64(fx.n_sent, 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.worker, 0);
	CU_ASSERT_TRUE((fx_last()->hdr.flags & PBOX_F_HAVE) == 0);
	UNIT_EQ_U64(waiting(), 0);
	pace(100 * MS, 0);
	fx_clear();
	arrive(&w[0], &d[2], 7, false);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	for (unsigned k = 0; k < ELEMENTS; k++)
		sum[k] = 2 * v[k];
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, sum, sizeof(sum)), 0);
	fx_end();
}

/* Policy shrink: a worker goes. What it gave to a round that waits counts, and nothing comes sooner; what
 * waited for nobody else waits for the rate now. */
static void
test_worker_goes(void)
{
	begin(w, "six", 3);
	push_all(w, 3, 0, 5);
	push_all(w, 2, 1, 1);
	UNIT_EQ_U64(waiting(), 1);
	fx_leave(&w[2]);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
	UNIT_EQ_U64(waiting(), 2);
	fx_clear();
	pace(2 * MS, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	UNIT_EQ_U64(fx_last()->hdr.round, 5);
	UNIT_EQ_U64(fx_last()->hdr.aux, 3);
	fx_clear();
	pace(3 * MS - 1, 0);
	pace(1, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	UNIT_EQ_U64(fx_last()->hdr.chunk, own(w, 1));
	UNIT_EQ_U64(fx_last()->hdr.aux, 2);
	fx_end();
}

/* pbox-ctl why: nobody is missing, the rate is what it waits for. */
static void
test_why(void)
{
	struct pbox_why *y;
	const struct pbox_why_page *p;

	begin(w, "speech", 2);
	push_all(w, 2, 0, 7);
	y = pbox_registrar_why(fx.registrar, pbox_registrar_job(fx.registrar, 0));
	CU_ASSERT_PTR_NOT_NULL_FATAL(y);
	p = &y->page[0];
	UNIT_EQ_U64(p->open, 1);
	UNIT_EQ_U64(p->n, 1);
	UNIT_EQ_U64(p->round[0].round, 7);
	UNIT_EQ_U64(p->round[0].arrived, 2);
	UNIT_EQ_U64(p->round[0].missing[0], 0);
	CU_ASSERT_TRUE(p->round[0].paced);
	pbox_registrar_why_end(y);
	fx_end();
}

/* Who only pulls, and more than the rate, gets all of it: what is refused costs nothing, however often it is asked
 * for. */
static void
test_pulls_alone(void)
{
	uint64_t due[FRAGMENTS] = {0};
	unsigned results = 0, refused = 0;

	begin(w, "speech", 2);
	for (unsigned frag = 1; frag < FRAGMENTS; frag++) {
		push_all(w, 2, frag, 1);
		pace(2 * MS, 1);
	}
	for (unsigned turn = 0; turn < 20000; turn++) { /* 2 s */
		for (unsigned frag = 0; frag < FRAGMENTS; frag++) {
			struct pbox_hdr h = fx_data(&w[0], PBOX_PULL, own(w, frag), 0, 0);

			h.flags = PBOX_F_LATEST;
			if (due[frag] > fx.now)
				continue;
			fx_clear();
			fx_rx(0, &w[0], &h, NULL);
			results += fx_count(PBOX_RESULT);
			refused += fx.n_sent == 0;
			due[frag] = fx.now + (fx.n_sent > 0 ? 0 : MS / 2);
		}
		fx.now += MS / 10;
	}
	/* what was saved up: a window of all */
	CU_ASSERT_TRUE(results >= 2000 * 98 / 100);
	CU_ASSERT_TRUE(results <= 2000 + 64);
	CU_ASSERT_TRUE(refused > 2 * results);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_DROP_RATE], refused);
	/* questions that get no payload are bounded, too: an eighth each */
	for (unsigned i = 0; i < 1000; i++) {
		struct pbox_hdr h = fx_data(&w[0], PBOX_PULL, own(w, 0), 0, 7);

		fx_clear();
		fx_rx(0, &w[0], &h, NULL);
		if (fx.n_sent > 0)
			UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	}
	CU_ASSERT_TRUE(fx.ss[0][PBOX_SS_DROP_RATE] >= refused + 1000 - 8 * 64);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"in the order in which they were complete", test_in_order},
	{"the rate is lifted", test_rate_is_lifted},
	{"a rate is set while the job runs", test_rate_is_set},
	{"jobs wait each for itself", test_jobs_wait_each_for_itself},
	{"no more than a burst at once", test_no_more_than_a_burst},
	{"damaged while it waits", test_damaged_while_it_waits},
	{"a worker goes", test_worker_goes},
	{"why", test_why},
	{"pulls alone", test_pulls_alone},
	{NULL, NULL},
};
