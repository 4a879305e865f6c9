/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: tables in clocks";

#define N 4

static struct fx_worker w[4];
static unsigned in_job; /* workers: bytes after the elements of a RESULT */
static const float p0[N] = {1, 2, 3, 4}, one[N] = {1, 2, 3, 4}, two[N] = {10, 20, 30, 40};

static struct fx_table
table(void)
{
	return (struct fx_table){.elements = N,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_ADD,
		.discipline = PBOX_DISCIPLINE_CLOCK};
}

static void
init(const float *p)
{
	struct pbox_hdr h = fx_data(&w[0], PBOX_INIT, 0, 0, 0);

	h.format = PBOX_FMT_FP32;
	h.length = N * 4;
	fx_rx(0, &w[0], &h, p);
	CU_ASSERT_EQUAL_FATAL(fx_last()->hdr.type, PBOX_INIT_OK);
	fx_clear();
}

static void
begin(uint16_t workers)
{
	const struct fx_table t = table();

	fx_begin();
	fx_job(w, "vision", workers, &t);
	in_job = workers;
	init(p0);
}

static void
pull(unsigned i)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PULL, 0, 0, 0);

	h.flags = PBOX_F_LATEST;
	fx_rx(0, &w[i], &h, NULL);
}

static struct pbox_hdr
contribution(unsigned i, enum pbox_type type, uint32_t clock)
{
	struct pbox_hdr h = fx_data(&w[i], type, 0, 0, clock);

	h.format = PBOX_FMT_FP32;
	h.length = N * 4;
	return h;
}

static void
push(unsigned i, uint32_t clock, const float *v)
{
	struct pbox_hdr h = contribution(i, PBOX_PUSH, clock);

	CU_ASSERT_FALSE(fx_rx(0, &w[i], &h, v));
}

static void
expect_ok(unsigned i, uint32_t clock, uint32_t version, uint16_t flags, uint32_t slowest)
{
	const struct fx_sent *s = fx_last();

	UNIT_EQ_U64(s->hdr.type, PBOX_PUSH_OK);
	UNIT_EQ_U64(s->hdr.worker, i);
	UNIT_EQ_U64(s->hdr.round, clock);
	UNIT_EQ_U64(s->hdr.base, version);
	UNIT_EQ_U64(s->hdr.flags, flags);
	UNIT_EQ_U64(s->hdr.weight, slowest);
	UNIT_EQ_U64(s->hdr.aux, 0);
	UNIT_EQ_U64(s->hdr.length, 0);
}

static void
expect_result(uint32_t version, uint32_t own, unsigned members, uint32_t slowest, const float *want)
{
	const struct fx_sent *s = fx_last();

	UNIT_EQ_U64(s->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(s->hdr.round, version);
	UNIT_EQ_U64(s->hdr.base, own);
	UNIT_EQ_U64(s->hdr.aux, members);
	UNIT_EQ_U64(s->hdr.weight, slowest);
	UNIT_EQ_U64(s->hdr.length, N * 4 + in_job);
	UNIT_EQ_U64(s->payload[N * 4 + s->hdr.worker], own & 0xFF);
	UNIT_EQ_U64(s->hdr.flags, PBOX_F_LAST);
	CU_ASSERT_FALSE(s->shared); /* the next push changes it */
	CU_ASSERT_EQUAL(memcmp(s->payload, want, N * 4), 0);
}

static void
test_pushes(void)
{
	static const float a[N] = {2, 4, 6, 8}, c[N] = {13, 26, 39, 52};

	begin(2);
	pull(0);
	expect_result(0, 0, 2, 0, p0);
	fx_mark();
	push(0, 1, one);
	FX_ONLY(PBOX_SS_RX_CONTRIBUTION);
	expect_ok(0, 1, 1, 0, 0);
	UNIT_EQ_U64(fx_last()->hdr.ts, (uint32_t)(fx.now / 1000) + fx.stamps);
	pull(0);
	expect_result(1, 1, 2, 0, a);
	push(1, 1, two); /* nobody waits */
	expect_ok(1, 1, 2, 0, 1);
	push(0, 2, one);
	expect_ok(0, 2, 3, 0, 1);
	pull(1);
	expect_result(3, 1, 2, 1, c);
	pull(0);
	expect_result(3, 2, 2, 1, c);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS], 3);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_HELD], 0);
	fx_end();
}

/* How many pushes a push has not seen: counted in classes of 0, 1, 2 to 3, ... */
static void
test_staleness(void)
{
	static const uint32_t base[] = {0, 0, 2, 0, 1, 5, 9}; /* of versions 0 to 6 */
	static const uint64_t want[PBOX_STALE_CLASSES] = {4, 1, 2};
	struct pbox_worker_stats s;

	begin(2);
	for (uint32_t i = 0; i < 7; i++) {
		struct pbox_hdr h = contribution(1, PBOX_PUSH, i + 1);

		h.base = base[i];
		CU_ASSERT_FALSE(fx_rx(0, &w[1], &h, one));
	}
	pbox_registrar_worker(fx.registrar, pbox_registrar_job(fx.registrar, 0), 1, &s);
	UNIT_EQ_U64(s.contributions, 7);
	for (unsigned i = 0; i < PBOX_STALE_CLASSES; i++)
		UNIT_EQ_U64(s.stale[i], want[i]);
	pbox_registrar_worker(fx.registrar, pbox_registrar_job(fx.registrar, 0), 0, &s);
	UNIT_EQ_U64(s.stale[0], 0);
	fx_end();
}

/* Exactly once (R14.3). */
static void
test_repetitions(void)
{
	static const float a[N] = {2, 4, 6, 8};
	struct pbox_hdr h;

	begin(2);
	push(0, 0, two); /* 0 is nobody's clock */
	UNIT_EQ_U64(fx.n_sent, 0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_DROP_ROUND_STALE], 1);
	push(0, 1, one);
	fx_mark();
	push(0, 1, two);
	FX_ONLY(PBOX_SS_RX_DUP_DONE);
	expect_ok(0, 1, 1, PBOX_F_HAVE, 0);
	pull(0);
	expect_result(1, 1, 2, 0, a);
	push(1, 1, two);
	push(0, 1, two);
	expect_ok(0, 1, 2, PBOX_F_HAVE, 1); /* the current version */
	fx_clear();
	fx_mark();
	push(0, 3, two);
	FX_ONLY(PBOX_SS_DROP_ROUND_FUTURE);
	UNIT_EQ_U64(fx.n_sent, 0);
	push(0, 2, one);
	fx_clear();
	fx_mark();
	push(0, 1, two);
	FX_ONLY(PBOX_SS_DROP_ROUND_STALE);
	UNIT_EQ_U64(fx.n_sent, 0);
	h = contribution(1, PBOX_PUSHPULL, 1); /* repeated as the other type */
	fx_rx(0, &w[1], &h, one);
	UNIT_EQ_U64(fx_last()->hdr.round, 3);
	UNIT_EQ_U64(fx_last()->hdr.base, 1);
	fx_end();
}

static void
test_pushpull(void)
{
	static const float a[N] = {2, 4, 6, 8};
	struct pbox_hdr h;

	begin(2);
	h = contribution(0, PBOX_PUSHPULL, 1);
	CU_ASSERT_FALSE(fx_rx(0, &w[0], &h, one));
	UNIT_EQ_U64(fx.n_sent, 1);
	expect_result(1, 1, 2, 0, a);
	h = contribution(0, PBOX_PUSHPULL, 1);
	fx_rx(0, &w[0], &h, one);
	expect_result(1, 1, 2, 0, a);
	fx_end();
}

/* aux is exact, the product and the sum are rounded once each (R14.4). */
static void
test_factors(void)
{
	static const uint16_t aux[] = {0x3F80, 0x3F00, 0x3EAB, 0x0000, 0xBF80, 0x3C23};
	static const float u[N] = {0.1f, -3.3f, 1e-8f, 12345.678f};
	float want[N];

	begin(1);
	memcpy(want, p0, sizeof(want));
	for (uint32_t i = 0; i < 6; i++) {
		struct pbox_hdr h = contribution(0, PBOX_PUSH, i + 1);
		uint32_t bits = (uint32_t)aux[i] << 16;
		float a;

		memcpy(&a, &bits, sizeof(a));
		h.aux = aux[i];
		fx_rx(0, &w[0], &h, u);
		expect_ok(0, i + 1, i + 1, 0, i + 1);
		for (unsigned k = 0; k < N; k++) {
			volatile float product = a * u[k];

			want[k] = want[k] + product;
		}
		pull(0);
		expect_result(i + 1, i + 1, 1, i + 1, want);
	}
	fx_end();
}

static void
test_zero(void)
{
	struct pbox_hdr h;

	begin(1);
	h = contribution(0, PBOX_PUSH, 1);
	h.flags |= PBOX_F_ZERO;
	h.length = 0;
	fx_rx(0, &w[0], &h, NULL);
	expect_ok(0, 1, 1, 0, 1);
	pull(0);
	expect_result(1, 1, 1, 1, p0);
	fx_end();
}

/* Verified before it is applied: what is damaged leaves no trace, and its clock is still to come. */
static void
test_damaged(void)
{
	static const float a[N] = {2, 4, 6, 8};

	for (unsigned type = 0; type < 2; type++) {
		struct {
			uint8_t header[PBOX_HDR_LEN];
			float payload[N];
		} __attribute__((packed)) f;
		struct pbox_frame frame = {.unverified = true};
		struct pbox_hdr h;

		begin(1);
		for (unsigned good = 0; good < 2; good++) {
			h = contribution(0, type ? PBOX_PUSHPULL : PBOX_PUSH, 1);
			memcpy(f.payload, one, sizeof(f.payload));
			pbox_frame_encode(
				f.header, &h, pbox_crc32c(0, f.payload, sizeof(f.payload)));
			if (!good)
				f.payload[2] = 3.5f;
			frame.hdr = h;
			frame.payload = (const uint8_t *)f.payload;
			fx_at(0, &frame.peer);
			frame.peer.ip = w[0].ip;
			frame.peer.udp = w[0].udp;
			fx_mark();
			CU_ASSERT_EQUAL(pbox_shard_rx(fx.shard[0], &frame, 1, fx.now), 0);
			if (good) {
				FX_ONLY(PBOX_SS_RX_CONTRIBUTION);
			} else {
				FX_ONLY(PBOX_SS_DROP_CRC);
				UNIT_EQ_U64(fx.n_sent, 0);
			}
		}
		pull(0);
		expect_result(1, 1, 1, 1, a);
		fx_end();
	}
}

static void
test_before_init(void)
{
	const struct fx_table t = table();

	fx_begin();
	fx_job(w, "vision", 2, &t);
	push(1, 1, one);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.flags, 0);
	UNIT_EQ_U64(fx_last()->hdr.round, 1);
	UNIT_EQ_U64(fx_last()->hdr.weight, 0); /* whom it waits for */
	pull(1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.round, 0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 0);
	init(p0);
	UNIT_EQ_U64(fx.n_sent, 0); /* and nothing follows */
	push(1, 1, one);
	expect_ok(1, 1, 1, 0, 0);
	fx_end();
}

static void
test_formats(void)
{
	static const uint16_t u[N] = {0x3F80, 0x4000, 0x4040, 0x4080}; /* bf16 of 1, 2, 3, 4 */
	static const uint16_t want[N] = {0x4000, 0x4080, 0x40C0, 0x4100};
	struct fx_table t = table();
	struct pbox_hdr h;

	t.push = t.pull = PBOX_FMT_BF16;
	fx_begin();
	fx_job(w, "vision", 1, &t);
	init(p0);
	h = contribution(0, PBOX_PUSHPULL, 1);
	h.format = PBOX_FMT_BF16;
	h.length = N * 2;
	fx_rx(0, &w[0], &h, u);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(fx_last()->hdr.length, N * 2 + in_job);
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, want, sizeof(want)), 0);
	fx_end();
}

/* The slowest of those that the job goes on with. */
static void
test_slowest(void)
{
	const struct fx_table t = table();

	fx_begin();
	for (unsigned i = 0; i < 4; i++) {
		w[i] = (struct fx_worker){.job = "six",
			.worker = (uint16_t)i,
			.workers = 4,
			.policy = PBOX_POLICY_SHRINK};
		CU_ASSERT_TRUE_FATAL(fx_try_join(&w[i]));
	}
	for (unsigned i = 0; i < 4; i++)
		UNIT_EQ_U64(fx_declare(&w[i], 0, &t)->hdr.type, PBOX_DECLARED);
	fx_work();
	for (unsigned i = 0; i < 4; i++)
		CU_ASSERT_EQUAL_FATAL(fx_map(&w[i], 0, 0)->hdr.type, PBOX_MAPPED);
	init(p0);
	for (uint32_t s = 1; s <= 3; s++)
		push(0, s, one);
	expect_ok(0, 3, 3, 0, 0);
	for (unsigned i = 1; i < 4; i++)
		push(i, 1, one);
	expect_ok(3, 1, 6, 0, 1);
	push(1, 2, one);
	push(2, 2, one);
	expect_ok(2, 2, 8, 0, 1);
	fx_leave(&w[3]);
	fx_clear();
	pull(0);
	UNIT_EQ_U64(fx_last()->hdr.aux, 3);
	UNIT_EQ_U64(fx_last()->hdr.weight, 2);
	push(1, 3, one);
	expect_ok(1, 3, 9, 0, 2);
	push(2, 3, one);
	expect_ok(2, 3, 10, 0, 3);
	/* it comes back: its pushes have counted, and its clock goes on */
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[3]));
	{
		struct fx_table again = t;

		again.flags = PBOX_DECLARE_CONTINUE;
		UNIT_EQ_U64(fx_declare(&w[3], 0, &again)->hdr.type, PBOX_DECLARED);
	}
	UNIT_EQ_U64(fx_map(&w[3], 0, 0)->hdr.type, PBOX_MAPPED);
	pull(3);
	UNIT_EQ_U64(fx_last()->hdr.aux, 4);
	UNIT_EQ_U64(fx_last()->hdr.weight, 3); /* it does not fall */
	UNIT_EQ_U64(fx_last()->hdr.base, 1);
	push(3, 2, one);
	expect_ok(3, 2, 11, 0, 3);
	for (unsigned i = 0; i < 3; i++)
		push(i, 4, one);
	expect_ok(2, 4, 14, 0, 3); /* it is waited for again */
	push(3, 3, one);
	expect_ok(3, 3, 15, 0, 3);
	push(3, 4, one);
	expect_ok(3, 4, 16, 0, 4);
	fx_end();
}

static void
ask(unsigned i, uint32_t bound)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PULL, 0, 0, 0);

	h.base = bound;
	fx_clear();
	fx_rx(0, &w[i], &h, NULL);
}

static void
expect_wait(unsigned i, uint32_t version, unsigned behind, unsigned lacks)
{
	const struct fx_sent *s = fx_last();

	UNIT_EQ_U64(fx.n_sent, 1);
	UNIT_EQ_U64(s->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(s->hdr.worker, i);
	UNIT_EQ_U64(s->hdr.round, 0);
	UNIT_EQ_U64(s->hdr.base, version);
	UNIT_EQ_U64(s->hdr.weight, behind);
	UNIT_EQ_U64(s->hdr.aux, lacks);
}

/* R14.6: a pull with a bound waits for the slowest worker. */
static void
test_bounds(void)
{
	static const float sum[N] = {13, 26, 39, 52};
	struct pbox_hdr h;

	begin(3);
	ask(0, UINT32_MAX - 2); /* 0 - 3 */
	expect_result(0, 0, 3, 0, p0);
	push(0, 1, one);
	push(0, 2, one);
	ask(0, 1);
	expect_wait(0, 2, 1, 1);
	ask(0, 2); /* asked again, and more strictly */
	expect_wait(0, 2, 1, 2);
	ask(0, 1);
	expect_wait(0, 2, 1, 1);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 1);
	push(1, 1, two);
	expect_ok(1, 1, 3, 0, 0);
	h = contribution(2, PBOX_PUSH, 1);
	h.flags |= PBOX_F_ZERO;
	h.length = 0;
	fx.now += 1000000;
	fx_clear();
	fx_rx(0, &w[2], &h, NULL);
	UNIT_EQ_U64(fx.n_sent, 2);
	UNIT_EQ_U64(fx_nth(0)->hdr.type, PBOX_PUSH_OK);
	UNIT_EQ_U64(fx_last()->hdr.worker, 0);
	UNIT_EQ_U64(fx_last()->hdr.held, 1000);
	expect_result(4, 2, 3, 1, sum);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 0);
	/* two that wait, and one who asks for the latest instead */
	ask(0, 2);
	expect_wait(0, 4, 1, 1);
	ask(1, 3);
	expect_wait(1, 4, 1, 2);
	fx_clear();
	pull(0);
	expect_result(4, 2, 3, 1, sum);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 1);
	push(1, 2, one);
	fx_clear();
	push(2, 2, one);
	UNIT_EQ_U64(fx.n_sent, 1); /* worker 1 waits for clock 3 */
	fx_end();
}

/* Who leaves is waited for no more, under any policy. */
static void
test_leaving(void)
{
	static const float sum[N] = {2, 4, 6, 8};

	begin(3);
	push(0, 1, one);
	push(1, 1, (const float[N]){0});
	ask(0, 1);
	expect_wait(0, 2, 2, 1);
	fx_clear();
	fx_leave(&w[2]);
	expect_result(2, 1, 3, 1, sum);
	UNIT_EQ_U64(fx_last()->hdr.worker, 0);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[2]));
	ask(0, 1);
	expect_result(2, 1, 3, 1, sum);
	push(0, 2, one);
	push(1, 2, one);
	ask(0, 2);
	expect_wait(0, 4, 2, 1);
	fx_end();
}

static void
test_rate(void)
{
	const struct fx_table t = table();
	unsigned taken = 0, waited = 0;

	fx_begin();
	fx_job(w, "slow", 1, &t);
	init(p0);
	for (unsigned k = 0; k < 400; k++) {
		fx.now += 100000;
		fx_clear();
		push(0, taken + 1, one);
		if (fx.n_sent == 0)
			continue;
		if (fx_last()->hdr.type == PBOX_PUSH_OK) {
			taken++;
		} else {
			UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
			UNIT_EQ_U64(fx_last()->hdr.flags, 0);
			UNIT_EQ_U64(fx_last()->hdr.weight, UINT32_MAX);
			waited++;
		}
	}
	CU_ASSERT(taken >= 30 && taken <= 60); /* 1000 a second, 40 ms */
	CU_ASSERT(waited > 0);
	fx_end();
}

static void
refused(const struct fx_sent *s, unsigned code, const char *text)
{
	UNIT_EQ_U64(s->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_error(), code);
	if (strstr(fx_error_text(), text) == NULL)
		printf("\n  %s\n", fx_error_text());
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), text));
}

static void
test_refused_tables(void)
{
	struct fx_table t = table();

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	fx_join(&w[1], "vision", 1, 2);
	t.op = PBOX_OP_MEAN;
	refused(fx_declare(&w[0], 0, &t), PBOX_E_BAD_REQUEST, "discipline clock takes op sum");
	t = table();
	t.optimiser = PBOX_OPT_SGD;
	refused(fx_declare(&w[0], 0, &t), PBOX_E_BAD_REQUEST, "takes optimiser add");
	t = table();
	t.mode = PBOX_MODE_ALLREDUCE;
	t.optimiser = PBOX_OPT_NONE;
	refused(fx_declare(&w[0], 0, &t), PBOX_E_BAD_REQUEST, "takes optimiser add");
	t = table();
	UNIT_EQ_U64(fx_declare(&w[0], 0, &t)->hdr.type, PBOX_DECLARED);
	t.discipline = PBOX_DISCIPLINE_ROUNDS;
	refused(fx_declare(&w[1], 0, &t), PBOX_E_MISMATCH,
		"worker 1 wants discipline rounds, worker 0 declared clock");
	fx_end();

	fx_begin();
	w[0] = (struct fx_worker){.job = "vision", .workers = 1, .slots = 4};
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	t = table();
	refused(fx_declare(&w[0], 0, &t), PBOX_E_BAD_REQUEST, "table 0: slots with clocks: ");
	t.discipline = PBOX_DISCIPLINE_ROUNDS; /* and add in rounds is an optimiser like others */
	UNIT_EQ_U64(fx_declare(&w[0], 0, &t)->hdr.type, PBOX_DECLARED);
	fx_end();
}

static void
test_refused_requests(void)
{
	static uint8_t room[4096];
	struct pbox_staging staging;
	struct pbox_error err;
	struct pbox_hdr h;

	begin(1);
	refused(fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 0.5), PBOX_E_BAD_REQUEST, "is in clocks");
	fx_clear();
	h = fx_data(&w[0], PBOX_FETCH, 0, 0, 0);
	fx_rx(0, &w[0], &h, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_UNSUPPORTED);
	h = fx_data(&w[0], PBOX_INIT, 0, 0, 0);
	h.flags |= PBOX_F_LATEST;
	h.format = PBOX_FMT_FP32;
	h.length = N * 4;
	fx_rx(0, &w[0], &h, two);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_UNSUPPORTED);
	pull(0);
	expect_result(0, 0, 1, 0, p0);
	CU_ASSERT(pbox_registrar_staging(fx.registrar, pbox_registrar_job(fx.registrar, 0), 0, 1,
			  &staging, room, sizeof(room), fx.now, &err) < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "is in clocks"));
	fx_end();
}

/* The session was lost, the box was not: all is as it was. */
static void
test_new_session(void)
{
	struct fx_table t = table();
	struct pbox_hdr h;

	begin(2);
	push(0, 1, one);
	fx_leave(&w[0]);
	fx_join(&w[0], "vision", 0, 2);
	t.flags = PBOX_DECLARE_RESTORE;
	UNIT_EQ_U64(fx_declare(&w[0], 0, &t)->hdr.type, PBOX_DECLARED);
	UNIT_EQ_U64(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_clear();
	h = fx_data(&w[0], PBOX_RESTORE, 0, 0, 0);
	h.format = PBOX_FMT_FP32;
	fx_rx(0, &w[0], &h, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESTORE_OK);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_DONE);
	push(0, 1, one);
	expect_ok(0, 1, 1, PBOX_F_HAVE, 0);
	push(0, 2, one);
	expect_ok(0, 2, 2, 0, 0);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"pushes are applied as they come", test_pushes},
	{"staleness", test_staleness},
	{"exactly once", test_repetitions},
	{"pushpull", test_pushpull},
	{"factors", test_factors},
	{"zeros", test_zero},
	{"damaged", test_damaged},
	{"before INIT", test_before_init},
	{"narrow formats", test_formats},
	{"the slowest clock", test_slowest},
	{"pulls with a bound", test_bounds},
	{"a worker that leaves", test_leaving},
	{"a rate", test_rate},
	{"tables that are refused", test_refused_tables},
	{"requests that are refused", test_refused_requests},
	{"a new session", test_new_session},
	{NULL, NULL},
};
