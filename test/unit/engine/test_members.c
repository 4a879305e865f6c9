/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <math.h>
#include <string.h>

#include "fixture.h"

/* Policy shrink (R8.5); job "six" has it, whatever its workers ask for. What a job waits for. */

const char unit_suite[] = "engine: going on without a worker";

#define MS UINT64_C(1000000)

static struct fx_worker w[4];
static float v[4][4];

static void
begin(const char *job, uint16_t workers, uint8_t op)
{
	struct fx_table t = {.elements = 4, .op = op};

	fx_begin();
	fx_job(w, job, workers, &t);
}

static void
ping(unsigned i)
{
	CU_ASSERT_EQUAL(fx_control(&w[i], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
}

/* All of a set stay alive for so long, the others are silent; what the box sent in the end is kept. */
static void
pass(unsigned ms, unsigned alive)
{
	for (unsigned t = 0; t < ms; t += 20) {
		fx.now += 20 * MS;
		for (unsigned i = 0; i < 4; i++)
			if ((alive >> i & 1) != 0)
				ping(i);
		fx_clear();
		fx_tick();
	}
}

static bool
push(unsigned i, uint32_t round, float a, float b, uint32_t weight)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PUSHPULL, 0, 0, round);

	v[i][0] = a;
	v[i][1] = b;
	v[i][2] = -0.0f;
	v[i][3] = (float)weight;
	h.format = PBOX_FMT_FP32;
	h.length = 16;
	h.weight = weight;
	return fx_rx(0, &w[i], &h, v[i]);
}

static void
expect(uint32_t round, unsigned contributors, uint32_t samples, float a, float b)
{
	const struct fx_sent *s = fx_last();
	float got[4];

	UNIT_EQ_U64(s->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(s->hdr.round, round);
	UNIT_EQ_U64(s->hdr.aux, contributors);
	UNIT_EQ_U64(s->hdr.weight, samples);
	memcpy(got, s->payload, 16);
	CU_ASSERT_EQUAL(memcmp(&got[0], &a, 4), 0);
	CU_ASSERT_EQUAL(memcmp(&got[1], &b, 4), 0);
	CU_ASSERT_EQUAL(signbit(got[2]) != 0, true); /* nobody's zero was added */
}

/* The round in progress ends without the dead one, within its lease and one tick. */
static void
test_round_goes_on(void)
{
	uint64_t last;

	begin("six", 3, PBOX_OP_SUM);
	last = fx.now;
	push(0, 1, 1e8f, 1, 3);
	push(2, 1, -1e8f, 2, 4);
	UNIT_EQ_U64(fx.n_sent, 0);
	pass(9980, 5);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
	pass(20, 5);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 0); /* just its lease */
	pass(20, 5);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	UNIT_EQ_U64((fx.now - last) / MS, 10020);
	expect(1, 2, 7, 0, 3);
	CU_ASSERT_STRING_EQUAL(fx.event,
		"job 'six' goes on without worker 1 (host1), which is silent: 2 of 3 contribute");
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 1);
	UNIT_EQ_U64(fx.rs[PBOX_RS_WORKERS], 2);
	/* the next rounds wait for two */
	fx_clear();
	push(2, 2, 5, 6, 1);
	UNIT_EQ_U64(fx.n_sent, 0);
	push(0, 2, 1, 1, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	expect(2, 2, 2, 6, 7);
	/* it hears that its session is gone */
	fx_clear();
	push(1, 1, 1, 1, 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_SESSION);
	fx_end();
}

/* Means are of those that were there; factors belong to their worker. */
static void
test_operations(void)
{
	static const struct {
		uint8_t op;
		float a;
	} c[] = {{PBOX_OP_MEAN, 7.5f}, {PBOX_OP_SAMPLE_MEAN, 15.0f / 4.0f},
		{PBOX_OP_WEIGHTED_MEAN, (1.0f * 5 + 3.0f * 10) / 4.0f}};

	for (unsigned i = 0; i < 3; i++) {
		begin("six", 3, c[i].op);
		pass(10020, 6);
		push(2, 1, 10, 10, 3);
		push(1, 1, 5, 5, 1);
		expect(1, 2, 4, c[i].a, c[i].a);
		fx_end();
	}
}

/* What it had sent before it died counts, in its place. */
static void
test_contributed_before(void)
{
	begin("six", 4, PBOX_OP_SUM);
	push(1, 1, 3, 0, 1);
	push(2, 1, 1e8f, 0, 1);
	push(3, 1, -1e8f, 0, 1);
	pass(10020, 12); /* workers 0 and 1 die */
	expect(1, 3, 3, 3, 0);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2); /* to those that live */
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 2);
	fx_end();
}

static void
test_leave(void)
{
	begin("six", 2, PBOX_OP_SUM);
	push(0, 1, 1, 2, 9);
	fx_leave(&w[1]);
	expect(1, 1, 9, 1, 2);
	CU_ASSERT_STRING_EQUAL(fx.event,
		"job 'six' goes on without worker 1 (host1), which left: 1 of 2 contribute");
	fx_end();
}

/* Policy wait, and shrink before the first table is mapped: everybody is waited for. */
static void
test_waits(void)
{
	struct fx_table t = {.elements = 4};

	begin("vision", 2, PBOX_OP_SUM);
	push(0, 1, 1, 2, 9);
	pass(10020, 1);
	UNIT_EQ_U64(fx.rs[PBOX_RS_EXPIRED], 1);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 1);
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 0);
	fx_end();
	fx_begin();
	fx_join(&w[0], "six", 0, 2);
	fx_join(&w[1], "six", 1, 2);
	fx_declare(&w[0], 0, &t);
	fx_leave(&w[1]);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_NOT_READY);
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 0);
	fx_end();
}

/* A worker comes back: the round in progress does not wait for it, the next does. */
static void
test_back_at_a_round_boundary(void)
{
	struct fx_table t = {.elements = 4};

	begin("six", 3, PBOX_OP_SUM);
	pass(10020, 3);
	push(0, 1, 1, 2, 1);
	fx.hold_mail = true;
	fx_join(&w[2], "six", 2, 3);
	fx_declare(&w[2], 0, &t);
	CU_ASSERT_EQUAL(fx_map(&w[2], 0, 0)->hdr.type, PBOX_NOT_READY);
	CU_ASSERT_STRING_EQUAL(
		fx.event, "job 'six': worker 2 (host2) is waited for again from the next round on");
	push(1, 1, 3, 4, 1);
	expect(1, 2, 2, 4, 6);
	push(0, 2, 1, 2, 1); /* round 2 began before the shard knew */
	fx_mail();
	fx.hold_mail = false;
	CU_ASSERT_EQUAL(fx_map(&w[2], 0, 0)->hdr.type, PBOX_MAPPED);
	push(1, 2, 1, 1, 1);
	expect(2, 2, 2, 2, 3);
	fx_clear();
	push(2, 2, 1, 1, 1); /* it is one round behind, and gets what the others made */
	expect(2, 2, 2, 2, 3);
	fx_clear();
	push(0, 3, 1, 1, 1);
	push(1, 3, 1, 1, 1);
	UNIT_EQ_U64(fx.n_sent, 0);
	push(2, 3, 1, 2, 1);
	expect(3, 3, 3, 3, 4);
	fx_end();
}

/* It contributes to a round that does not wait for it, before its end: that counts. */
static void
test_unexpected_contribution(void)
{
	struct fx_table t = {.elements = 4, .flags = PBOX_DECLARE_CONTINUE};

	begin("six", 3, PBOX_OP_SUM);
	pass(10020, 6);
	push(1, 1, 1, 2, 1);
	fx_join(&w[0], "six", 0, 3);
	fx_declare(&w[0], 0, &t);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_clear();
	push(0, 1, 10, 20, 1);
	UNIT_EQ_U64(fx.n_sent, 0);
	push(0, 1, 10, 20, 1); /* repeated: WAIT names who is waited for */
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.aux, 2);
	UNIT_EQ_U64(fx_last()->hdr.weight, 2);
	fx_clear();
	push(2, 1, 100, 200, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 3);
	expect(1, 3, 3, 111, 222);
	/* it dies again, and takes nobody with it */
	push(1, 2, 1, 1, 1);
	push(2, 2, 1, 1, 1);
	pass(10020, 6);
	expect(2, 2, 2, 2, 2);
	fx_end();
}

/* A contribution that nobody waits for completes nothing, nor is a complete round finished twice. */
static void
test_complete_once(void)
{
	struct fx_table t = {.elements = 4, .flags = PBOX_DECLARE_CONTINUE};
	struct pbox_frame f[3];

	begin("six", 3, PBOX_OP_SUM);
	pass(10020, 6);
	push(1, 1, 1, 2, 1);
	fx_join(&w[0], "six", 0, 3);
	fx_declare(&w[0], 0, &t);
	fx_map(&w[0], 0, 0);
	fx_clear();
	for (unsigned i = 0; i < 2; i++) { /* the last one, and then the extra one, in a burst */
		unsigned who = i == 0 ? 2 : 0;

		f[i] = (struct pbox_frame){.hdr = fx_data(&w[who], PBOX_PUSHPULL, 0, 0, 1),
			.payload = (uint8_t *)v[who],
			.handle = v[who],
			.peer = {.ip = htonl(w[who].ip), .udp = w[who].udp}};
		f[i].hdr.format = PBOX_FMT_FP32;
		f[i].hdr.length = 16;
	}
	pbox_shard_rx(fx.shard[0], f, 2, fx.now);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 3);
	UNIT_EQ_U64(fx_last()->hdr.aux, 3);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS], 1);
	fx_end();
}

/* A table that only the dead one has not declared is mapped when it is removed. */
static void
test_later_table(void)
{
	struct fx_table t = {.elements = 4};

	begin("six", 3, PBOX_OP_SUM);
	fx_declare(&w[0], 1, &t);
	fx_declare(&w[2], 1, &t);
	CU_ASSERT_EQUAL(fx_map(&w[0], 1, 0)->hdr.type, PBOX_NOT_READY);
	pass(10020, 5);
	CU_ASSERT_EQUAL(fx_map(&w[0], 1, 0)->hdr.type, PBOX_MAPPED);
	fx_declare(&w[0], 2, &t);
	CU_ASSERT_EQUAL(fx_map(&w[0], 2, 0)->hdr.type, PBOX_NOT_READY);
	fx_declare(&w[2], 2, &t);
	CU_ASSERT_EQUAL(fx_map(&w[0], 2, 0)->hdr.type, PBOX_MAPPED);
	fx_end();
}

/* All that live have been folded into one: nothing is left to add when the last one is removed. */
static void
test_folded(void)
{
	struct fx_table t = {.elements = 64 * 50};
	static float x[2][2][16];

	fx.mtu = 154;
	fx.hold = 3;
	fx_begin();
	fx_job(w, "six", 3, &t);
	for (uint16_t frag = 0; frag < 2; frag++)
		for (unsigned i = 0; i < 2; i++) {
			struct pbox_hdr h = fx_data(&w[i], PBOX_PUSHPULL, 0, frag, 1);

			x[frag][i][0] = (float)(1 + frag * 10 + i * 100);
			h.format = PBOX_FMT_FP32;
			h.length = 64;
			CU_ASSERT_TRUE(fx_rx(0, &w[i], &h, x[frag][i]));
		}
	CU_ASSERT(fx.ss[0][PBOX_SS_FOLDS] > 0);
	pass(10020, 3);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 4);
	for (unsigned i = 0; i < fx.n_sent; i++) {
		float got;

		memcpy(&got, fx.sent[i].payload, 4);
		CU_ASSERT_EQUAL(got, (float)(102 + fx.sent[i].hdr.frag * 20));
		UNIT_EQ_U64(fx.sent[i].hdr.aux, 2);
	}
	fx_end();
}

static float wide[3][4][16];

static bool
push_frag(unsigned i, uint16_t frag)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PUSHPULL, 0, frag, 1);

	for (unsigned k = 0; k < 16; k++)
		wide[frag][i][k] = (float)(1 + i) * 0.1f;
	h.format = PBOX_FMT_FP32;
	h.length = 64;
	return fx_rx(0, &w[i], &h, wide[frag][i]);
}

/* The job holds all packets that it may: sums begin past the place of a worker that is gone, and what that brings after
 * all is too late for them. */
static void
test_folded_without(void)
{
	struct fx_table t = {.elements = 64 * 50, .flags = PBOX_DECLARE_CONTINUE};
	float got, want;

	fx.mtu = 154;
	fx.hold = 4;
	fx_begin();
	fx_job(w, "six", 4, &t);
	fx_leave(&w[0]);
	for (uint16_t frag = 0; frag < 2; frag++)
		for (unsigned i = 1; i < 3; i++)
			CU_ASSERT_TRUE(push_frag(i, frag));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_FOLDS], 0);
	CU_ASSERT_TRUE(push_frag(1, 2));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_FOLDS], 1);
	UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 4);
	w[0].policy = PBOX_POLICY_SHRINK;
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	fx_declare(&w[0], 0, &t);
	fx_clear();
	fx_mark();
	CU_ASSERT_FALSE(push_frag(0, 2));
	FX_ONLY(PBOX_SS_DROP_NO_BUFFER);
	CU_ASSERT_TRUE(push_frag(0, 1)); /* of which nothing is summed yet */
	CU_ASSERT_TRUE(push_frag(2, 2));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
	push_frag(3, 2);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 3);
	UNIT_EQ_U64(fx_last()->hdr.frag, 2);
	UNIT_EQ_U64(fx_last()->hdr.aux, 3);
	memcpy(&got, fx_last()->payload, 4);
	want = wide[2][2][0] + wide[2][3][0];
	want = wide[2][1][0] + want;
	CU_ASSERT_EQUAL(got, want);
	fx_end();
}

/* What the dead one sent was damaged: the others are complete without it. */
static void
test_damaged_and_gone(void)
{
	static struct {
		uint8_t hdr[PBOX_HDR_LEN], payload[256];
	} d[3];
	struct fx_table t = {.elements = 64};

	fx_begin();
	fx_job(w, "six", 3, &t);
	for (unsigned i = 0; i < 2; i++) {
		struct pbox_hdr h = fx_data(&w[i], PBOX_PUSHPULL, 0, 0, 1);
		struct pbox_frame f = {.payload = d[i].payload,
			.handle = &d[i],
			.peer = {.ip = htonl(w[i].ip), .udp = w[i].udp}};
		size_t size;

		for (unsigned k = 0; k < 64; k++)
			memcpy(d[i].payload + 4 * k, &(float){2.0f + (float)i}, 4);
		h.format = PBOX_FMT_FP32;
		h.length = 256;
		pbox_frame_seal(&d[i], &h);
		pbox_frame_open(&d[i], sizeof(d[i]), &f.hdr, &size, &f.unverified);
		CU_ASSERT_TRUE(pbox_shard_rx(fx.shard[0], &f, 1, fx.now) != 0);
	}
	d[0].payload[77] ^= 1; /* as if it had come so */
	pass(10020, 2);        /* workers 0 and 2 are gone */
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
	UNIT_EQ_U64(fx_count(PBOX_WAIT), 0);
	UNIT_EQ_U64(fx_last()->hdr.aux, 1);
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, d[1].payload, 256), 0);
	fx_end();
}

/* All ask for the same policy, unless the job's section has one. */
static void
test_policies_are_named(void)
{
	struct pbox_join m;

	fx_begin();
	fx_join(&w[0], "five", 0, 2);
	w[1] = (struct fx_worker){
		.job = "five", .worker = 1, .workers = 2, .udp = 9, .mtu = 1500, .nonce = 5};
	fx_hello(&w[1]);
	m = fx_join_message(&w[1]);
	m.policy = 1;
	fx_join_with(&w[1], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"job 'five': a worker (host1) asks for policy shrink, the others for wait: a job has one policy: give all workers the same, or set policy in the job's section");
	CU_ASSERT_STRING_EQUAL(fx.event, fx_error_text());
	m.policy = 3;
	fx_join_with(&w[1], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	m.policy = 1;
	strcpy(m.job, "vision");
	CU_ASSERT_EQUAL(fx_join_with(&w[1], &m, "key")->hdr.type, PBOX_WELCOME);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "worker 1"));
	fx_end();
}

static struct pbox_why *
why(void)
{
	struct pbox_why *y = pbox_registrar_why(fx.registrar, pbox_registrar_job(fx.registrar, 0));

	CU_ASSERT_PTR_NOT_NULL_FATAL(y);
	UNIT_EQ_U64(y->shards, FX_SHARDS);
	return y;
}

/* Id of the n-th chunk of shard 0. */
static uint32_t
own(unsigned n)
{
	const struct pbox_table *t = &pbox_registrar_job(fx.registrar, 0)->table[0]->t;

	for (uint32_t i = 0; i < t->n_chunks; i++)
		if (t->chunk[i].endpoint == 0 && n-- == 0)
			return t->first_chunk_id + i;
	return UINT32_MAX;
}

static void
test_why(void)
{
	struct fx_table t = {.elements = 64000};
	const struct pbox_why_page *p;
	struct pbox_why *y;

	fx_begin();
	fx_job(w, "vision", 3, &t);
	y = why();
	UNIT_EQ_U64(y->answered, FX_SHARDS);
	UNIT_EQ_U64(y->page[0].n + y->page[1].n, 0);
	pbox_registrar_why_end(y);
	for (unsigned i = 0; i < 2; i++) {
		struct pbox_hdr h = fx_data(&w[1 + i], PBOX_PUSHPULL, own(0), 0, 1);

		h.flags |= PBOX_F_ZERO;
		h.format = PBOX_FMT_FP32;
		fx_rx(0, &w[1 + i], &h, NULL);
		h.chunk = own(1);
		fx.now += 5 * MS;
		if (i == 0)
			fx_rx(0, &w[1], &h, NULL);
	}
	y = why();
	p = &y->page[0];
	UNIT_EQ_U64(p->open, 2);
	UNIT_EQ_U64(p->n, 2);
	UNIT_EQ_U64(p->round[0].chunk, own(0));
	UNIT_EQ_U64(p->round[0].round, 1);
	UNIT_EQ_U64(p->round[0].arrived, 2);
	UNIT_EQ_U64(p->round[0].missing[0], 1);
	UNIT_EQ_U64(p->round[1].chunk, own(1));
	UNIT_EQ_U64(p->round[1].missing[0], 5);
	UNIT_EQ_U64(p->round[1].since_ns - p->round[0].since_ns, 5 * MS);
	CU_ASSERT_STRING_EQUAL(
		pbox_job_tensor(pbox_registrar_job(fx.registrar, 0), p->round[1].chunk, 0),
		"weight");
	pbox_registrar_why_end(y);
	/* given up before the shards have answered: freed by the last answer */
	fx.hold_mail = true;
	y = why();
	UNIT_EQ_U64(y->answered, 0);
	pbox_registrar_why_end(y);
	fx_mail();
	fx_end();
}

/* More rounds than an answer holds: the oldest are named. */
static void
test_why_tells_the_oldest(void)
{
	struct fx_table t = {.elements = 64000};
	struct pbox_why *y;
	unsigned n = 0;

	fx.hold = 1024;
	fx_begin();
	fx_job(w, "vision", 2, &t);
	for (unsigned c = 80; c-- > 0;) {
		struct pbox_hdr h = fx_data(&w[0], PBOX_PUSHPULL, own(c), 0, 1);

		h.flags |= PBOX_F_ZERO;
		h.format = PBOX_FMT_FP32;
		fx.now += MS;
		fx_rx(0, &w[0], &h, NULL);
	}
	y = why();
	UNIT_EQ_U64(y->page[0].open, 80);
	UNIT_EQ_U64(y->page[0].n, PBOX_WHY_ROUNDS);
	for (unsigned i = 1; i < PBOX_WHY_ROUNDS; i++)
		n += y->page[0].round[i].since_ns > y->page[0].round[i - 1].since_ns &&
		     y->page[0].round[i].chunk < y->page[0].round[i - 1].chunk;
	UNIT_EQ_U64(n, PBOX_WHY_ROUNDS - 1);
	UNIT_EQ_U64(y->page[0].round[0].chunk, own(79));
	pbox_registrar_why_end(y);
	fx_end();
}

/* R8.5: the box was started again, and one of three workers is dead by then. That somebody restores proves that
 * the job had begun: it goes on without who does not come within a lease. */
static void
test_shrink_survives_a_restart(void)
{
	struct fx_table t = {.elements = 4, .flags = PBOX_DECLARE_RESTORE};

	fx_begin();
	for (uint16_t i = 0; i < 2; i++) {
		fx_join(&w[i], "six", i, 3);
		CU_ASSERT_EQUAL(fx_declare(&w[i], 0, &t)->hdr.type, PBOX_DECLARED);
	}
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_NOT_READY);
	pass(w[0].welcome.lease_ms - 500, 3);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_NOT_READY);
	pass(1000, 3);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 1);
	/* it may come back */
	fx_join(&w[2], "six", 2, 3);
	CU_ASSERT_EQUAL(fx_declare(&w[2], 0, &t)->hdr.type, PBOX_DECLARED);
	CU_ASSERT_EQUAL(fx_map(&w[2], 0, 0)->hdr.type, PBOX_NOT_READY); /* the others restore */
	CU_ASSERT_FALSE(pbox_registrar_job(fx.registrar, 0)->member[2].removed);
	fx_end();
	/* a job that begins waits for all */
	t.flags = 0;
	fx_begin();
	for (uint16_t i = 0; i < 2; i++) {
		fx_join(&w[i], "six", i, 3);
		fx_declare(&w[i], 0, &t);
	}
	pass(w[0].welcome.lease_ms + 5000, 3);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_NOT_READY);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"the round goes on", test_round_goes_on},
	{"means and weights", test_operations},
	{"what was sent before counts", test_contributed_before},
	{"LEAVE", test_leave},
	{"when everybody is waited for", test_waits},
	{"back at a round boundary", test_back_at_a_round_boundary},
	{"a contribution that nobody waits for", test_unexpected_contribution},
	{"complete once", test_complete_once},
	{"a table declared later", test_later_table},
	{"all is folded", test_folded},
	{"folded without a worker", test_folded_without},
	{"damaged, and gone", test_damaged_and_gone},
	{"policies are named", test_policies_are_named},
	{"what a job waits for", test_why},
	{"the oldest are named", test_why_tells_the_oldest},
	{"shrink survives a restart of the box", test_shrink_survives_a_restart},
	{NULL, NULL},
};
