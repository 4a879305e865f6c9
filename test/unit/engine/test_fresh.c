/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "fixture.h"

/* Recordings of a session, sent again in it (R4.9, R8.2), with and without tags. */

const char unit_suite[] = "engine: recordings";

#define N      4
#define MINUTE UINT64_C(60000000000)
#define THIEF  6666

static struct fx_worker w[2];
static const float ones[N] = {1, 1, 1, 1};

static void
begin(const char *job)
{
	struct fx_table t = {.elements = N, .op = PBOX_OP_SUM};

	fx_begin();
	fx_job(w, job, 2, &t);
}

/* A frame as it left its worker, tag and all. */
struct recording {
	struct pbox_hdr hdr;
	uint8_t bytes[PBOX_HDR_LEN + sizeof(ones) + PBOX_TAG_LEN];
};

static void
record(struct recording *r, unsigned i, enum pbox_type type, uint32_t round)
{
	r->hdr = fx_data(&w[i], type, 0, 0, round);
	if (type == PBOX_PUSHPULL || type == PBOX_PUSH) {
		r->hdr.format = PBOX_FMT_FP32;
		r->hdr.length = sizeof(ones);
	}
	memcpy(r->bytes + PBOX_HDR_LEN, ones, r->hdr.length);
	if (w[i].tagged)
		memcpy(r->bytes, fx_tagged(&w[i], &r->hdr, ones) - PBOX_HDR_LEN, sizeof(r->bytes));
}

/* To the data endpoint of a core, or to the control thread. */
#define CONTROL FX_SHARDS

static void
replay_at(const struct recording *r, unsigned i, uint16_t udp, unsigned core)
{
	struct pbox_frame f = {.hdr = r->hdr,
		.payload = r->bytes + PBOX_HDR_LEN,
		.handle = (void *)(uintptr_t)r->bytes,
		.peer = {.ip = htonl(w[i].ip), .udp = udp}};

	fx_listen();
	fx_clear();
	fx_at(core < CONTROL ? core : 0, &f.peer);
	if (core == CONTROL)
		pbox_registrar_rx(fx.registrar, &f, fx.now);
	else
		pbox_shard_rx(fx.shard[core], &f, 1, fx.now);
}

static void
replay(const struct recording *r, unsigned i, uint16_t udp, bool control)
{
	replay_at(r, i, udp, control ? CONTROL : 0);
}

static uint64_t
silence(unsigned i)
{
	return pbox_registrar_silence(fx.registrar, pbox_registrar_job(fx.registrar, 0), i, fx.now);
}

/* A worker dies. An enemy that has recorded it sends all of it again, from its own address and from others. */
static void
leases(const char *job)
{
	struct recording ping, pull, push, control[3];
	uint64_t died;

	begin(job);
	record(&push, 0, PBOX_PUSHPULL, 1);
	replay(&push, 0, w[0].udp, false);
	record(&ping, 0, PBOX_PING, 0);
	replay(&ping, 0, w[0].udp, false);
	record(&pull, 0, PBOX_PULL, 1);
	replay(&pull, 0, w[0].udp, false);
	fx_pushpull(&w[1], 1, ones, N);
	for (unsigned i = 0; i < 3; i++) {
		fx.now += 100000000;
		record(&control[i], 0, PBOX_PING, 0);
		replay(&control[i], 0, w[0].udp, true);
		UNIT_EQ_U64(fx_count(PBOX_PONG), 1);
	}
	died = fx.now;
	UNIT_EQ_U64(silence(0), 0);
	for (unsigned i = 0; i < 50; i++) {
		uint16_t udp = i % 2 == 0 ? w[0].udp : THIEF;

		fx.now += 100000000;
		replay(&push, 0, udp, false);
		replay(&ping, 0, udp, false);
		replay(&pull, 0, udp, false);
		replay(&ping, 0, udp, true);
		for (unsigned k = 0; k < 3; k++)
			replay(&control[k], 0, udp, k != 0);
		UNIT_EQ_U64(silence(0), fx.now - died);
	}
	fx_end();
}

static void
test_leases(void)
{
	leases("vision");
}

static void
test_leases_tagged(void)
{
	leases("tagged");
}

/* The last frame of a worker that dies was a PING to one data endpoint: copies of it at the others keep no lease. */
static void
test_leases_at_other_cores(void)
{
	struct recording ping;

	begin("tagged");
	record(&ping, 0, PBOX_PING, 0);
	replay_at(&ping, 0, w[0].udp, FX_SHARDS - 1);
	for (unsigned i = 1; i <= 2 * FX_SHARDS; i++) {
		fx.now += UINT64_C(1000000000);
		replay_at(&ping, 0, w[0].udp, i % FX_SHARDS);
		replay_at(&ping, 0, THIEF, i % FX_SHARDS);
		UNIT_EQ_U64(silence(0), i * UINT64_C(1000000000));
	}
	replay_at(&ping, 0, w[0].udp, CONTROL);
	UNIT_EQ_U64(silence(0), 2 * FX_SHARDS * UINT64_C(1000000000));
	fx_end();
}

/* Contributions alone keep the lease, and a copy of one does not. */
static void
contributions(enum pbox_type type)
{
	struct recording r[4];

	begin("tagged");
	for (uint32_t round = 1; round <= 4; round++) {
		fx.now += UINT64_C(500000000);
		record(&r[round - 1], 0, type, round);
		replay(&r[round - 1], 0, w[0].udp, false);
		UNIT_EQ_U64(silence(0), 0);
		fx_pushpull(&w[1], round, ones, N);
	}
	for (unsigned i = 0; i < 4; i++) {
		fx.now += UINT64_C(500000000);
		replay(&r[i], 0, w[0].udp, false);
		UNIT_EQ_U64(silence(0), (i + 1) * UINT64_C(500000000));
	}
	fx_end();
}

static void
test_contributions(void)
{
	contributions(PBOX_PUSHPULL);
	contributions(PBOX_PUSH);
}

/* `ts` begins again every 71 minutes: a PULL of 36 to 71 minutes ago looks newer than the last one. */
static void
test_wrap(void)
{
	struct recording r[5];

	begin("tagged");
	for (unsigned i = 0; i < 2; i++)
		fx_pushpull(&w[i], 1, ones, N);
	for (unsigned i = 0; i < 4; i++) {
		record(&r[i], 0, PBOX_PULL, 1);
		replay(&r[i], 0, w[0].udp, false);
		UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
		fx.now += 20 * MINUTE;
		for (unsigned k = 0; k <= i; k++) {
			fx_mark();
			replay(&r[k], 0, THIEF, false);
			UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
			CU_ASSERT(fx.n_sent <= 1);
		}
	}
	/* the worker's own go on, also after an hour of silence, and also from elsewhere */
	fx.now += 40 * MINUTE;
	record(&r[4], 0, PBOX_PULL, 1);
	for (unsigned k = 0; k < 4; k++)
		replay(&r[k], 0, THIEF, false);
	replay(&r[4], 0, w[0].udp, false);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
	for (unsigned k = 0; k < 4; k++) {
		fx_mark();
		replay(&r[k], 0, THIEF, false);
		FX_ONLY(PBOX_SS_DROP_REPLAYED);
		UNIT_EQ_U64(fx.n_sent, 0);
	}
	w[0].udp = 7000;
	fx.now += 40 * MINUTE;
	record(&r[4], 0, PBOX_PULL, 1);
	replay(&r[4], 0, 7000, false);
	fx_prove(0, &w[0]);
	record(&r[4], 0, PBOX_PULL, 1);
	replay(&r[4], 0, 7000, false);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
	fx_end();
}

/* What was sent 71.58 minutes ago has the `ts` of now: of a worker that is dead, and of one that lives. */
static void
test_ghost(void)
{
	const uint64_t wrap = (UINT64_C(1) << 32) * 1000, second = UINT64_C(1000000000);
	struct recording ping, pull, last;
	uint64_t sent, died;

	fx.tells = true;
	begin("tagged");
	for (unsigned i = 0; i < 2; i++)
		fx_pushpull(&w[i], 1, ones, N);
	sent = fx.now;
	record(&ping, 0, PBOX_PING, 0);
	replay(&ping, 0, w[0].udp, true);
	record(&pull, 0, PBOX_PULL, 1);
	replay(&pull, 0, w[0].udp, false);
	for (unsigned i = 1; i <= 3; i++) {
		fx.now = sent + i * 20 * MINUTE;
		record(&last, 0, PBOX_PING, 0);
		replay(&last, 0, w[0].udp, true);
		UNIT_EQ_U64(silence(0), 0);
	}
	fx.now = sent + wrap - 10 * second;
	record(&last, 0, PBOX_PING, 0);
	replay(&last, 0, w[0].udp, true);
	died = fx.now;
	for (unsigned i = 0; i <= 16; i++) {
		fx.now = sent + wrap - 2 * second + i * second / 4;
		replay(&ping, 0, w[0].udp, true);
		replay(&pull, 0, w[0].udp, false);
		replay(&ping, 0, w[0].udp, false);
		UNIT_EQ_U64(silence(0), fx.now - died);
	}
	/* its clock is where it was: what it sends now is new, and what came before is not, from elsewhere */
	record(&last, 0, PBOX_PING, 0);
	replay(&last, 0, w[0].udp, true);
	UNIT_EQ_U64(silence(0), 0);
	replay(&pull, 0, THIEF, false);
	UNIT_EQ_U64(fx.n_sent, 0);
	fx_end();
}

/* Copies of control frames bring about no more bytes than they have, and in the end none. */
static void
control(const char *job, enum pbox_type type)
{
	struct pbox_map map = {0};
	struct pbox_status status = {0};
	uint8_t payload[16];
	size_t len = type == PBOX_MAP ? pbox_map_encode(payload, sizeof(payload), &map)
				      : pbox_status_encode(payload, sizeof(payload), &status);
	struct recording r = {0};
	struct pbox_frame f = {
		.payload = r.bytes + PBOX_HDR_LEN, .peer = {.ip = htonl(0x0A0A0A0A), .udp = 5}};

	begin(job);
	r.hdr = fx_data(&w[0], type, 0, 0, 0);
	r.hdr.flags = 0;
	r.hdr.chunk = 99;
	r.hdr.length = (uint16_t)len;
	if (w[0].tagged)
		memcpy(r.bytes, fx_tagged(&w[0], &r.hdr, payload) - PBOX_HDR_LEN,
			PBOX_HDR_LEN + len + PBOX_TAG_LEN);
	else
		memcpy(r.bytes + PBOX_HDR_LEN, payload, len);
	f.hdr = r.hdr;
	fx_listen();
	fx_clear();
	pbox_registrar_rx(fx.registrar, &f, fx.now);
	UNIT_EQ_U64(fx.n_sent, 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PING);
	UNIT_EQ_U64(fx_last()->hdr.length, 0);
	fx.now += UINT64_C(5000000000);
	fx_control(&w[0], PBOX_PING, NULL, 0);
	fx_clear();
	for (unsigned i = 0; i < 100; i++)
		pbox_registrar_rx(fx.registrar, &f, fx.now);
	UNIT_EQ_U64(fx.n_sent, 0);
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_REPLAYED], 100);
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_UNPROVEN], 1);
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_AUTH], 0);
	/* and its worker is answered with all of it, where it is */
	fx_control(&w[0], type, payload, len);
	UNIT_EQ_U64(fx_last()->hdr.type, type == PBOX_MAP ? PBOX_MAPPED : PBOX_STATUS_OK);
	UNIT_EQ_U64(fx_last()->peer.udp, w[0].udp);
	fx_end();
}

static void
test_control(void)
{
	control("vision", PBOX_MAP);
	control("vision", PBOX_STATUS);
	control("tagged", PBOX_MAP);
	control("tagged", PBOX_STATUS);
}

/* The first PULL at an endpoint, older than the PUSHPULL that came there (or, without a round in progress, than
 * JOIN): from another address it turns nothing, and gets nothing. */
static void
first_pull(const char *job)
{
	struct recording pull, push, ancient;

	begin(job);
	record(&ancient, 0, PBOX_PULL, 1);
	fx.now += UINT64_C(10000000000);
	fx_control(&w[0], PBOX_PING, NULL, 0);
	fx_control(&w[1], PBOX_PING, NULL, 0);
	record(&pull, 0, PBOX_PULL, 1);
	fx.now += UINT64_C(1500000000);
	record(&push, 0, PBOX_PUSHPULL, 1);
	replay(&push, 0, w[0].udp, false);
	for (unsigned i = 0; i < 2; i++) {
		fx_mark();
		replay(i == 0 ? &pull : &ancient, 0, THIEF, false);
		FX_ONLY(PBOX_SS_DROP_REPLAYED);
		UNIT_EQ_U64(fx.n_sent, 0);
	}
	fx_clear();
	CU_ASSERT_TRUE(fx_pushpull(&w[1], 1, ones, N));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	for (unsigned i = 0; i < fx.n_sent; i++)
		UNIT_EQ_U64(fx.sent[i].peer.udp, w[fx.sent[i].hdr.worker].udp);
	/* the round is over: there would be a RESULT for it */
	fx_mark();
	replay(&ancient, 0, THIEF, false);
	FX_ONLY(PBOX_SS_DROP_REPLAYED);
	UNIT_EQ_U64(fx.n_sent, 0);
	fx_end();
}

static void
test_first_pull(void)
{
	first_pull("vision");
	first_pull("tagged");
}

/* Copies from long ago use up nothing of what a job with a rate may ask: its workers are answered as before. */
static void
test_a_rate(void)
{
	struct recording r[4];

	begin("tagged");
	record(&r[0], 0, PBOX_PUSHPULL, 1);
	record(&r[1], 0, PBOX_PULL, 1);
	record(&r[2], 0, PBOX_PING, 0);
	for (unsigned k = 0; k < 3; k++)
		replay(&r[k], 0, w[0].udp, false);
	fx_pushpull(&w[1], 1, ones, N);
	fx.now += UINT64_C(3000000000);
	fx_control(&w[0], PBOX_PING, NULL, 0);
	for (unsigned i = 0; i < 3000; i++)
		for (unsigned k = 0; k < 3; k++) {
			fx_mark();
			replay(&r[k], 0, w[0].udp, false);
			FX_ONLY(PBOX_SS_DROP_REPLAYED);
			UNIT_EQ_U64(fx.n_sent, 0);
		}
	for (unsigned i = 0; i < 2; i++) {
		record(&r[3], i, PBOX_PULL, 1);
		replay(&r[3], i, w[i].udp, false);
		UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
	}
	fx_end();
}

/* Nor of what a worker may repeat: the last half of it is its own. */
static void
test_repeats(void)
{
	struct recording r[4];

	begin("vision");
	record(&r[0], 0, PBOX_PUSHPULL, 1);
	record(&r[1], 0, PBOX_PULL, 1);
	record(&r[2], 0, PBOX_PING, 0);
	for (unsigned k = 0; k < 3; k++)
		replay(&r[k], 0, w[0].udp, false);
	fx_pushpull(&w[1], 1, ones, N);
	fx.now += UINT64_C(3000000000);
	fx_control(&w[0], PBOX_PING, NULL, 0);
	for (unsigned i = 0; i < 20000; i++)
		for (unsigned k = 0; k < 3; k++)
			replay(&r[k], 0, w[0].udp, false);
	for (unsigned i = 0; i < 8000; i++) {
		record(&r[3], 0, PBOX_PULL, 1);
		replay(&r[3], 0, w[0].udp, false);
		UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
	}
	fx_end();
}

/* Copies of questions, with the worker's own address: the box sends it no full frame for each of them. */
static void
bytes(const char *job)
{
	struct recording r[3];

	begin(job);
	for (unsigned i = 0; i < 2; i++)
		fx_pushpull(&w[i], 1, ones, N);
	record(&r[0], 0, PBOX_PULL, 1);
	r[1].hdr = fx_data(&w[0], PBOX_PULL, 0, 0, 7);
	r[1].hdr.flags = PBOX_F_LATEST;
	if (w[0].tagged)
		memcpy(r[1].bytes, fx_tagged(&w[0], &r[1].hdr, NULL) - PBOX_HDR_LEN,
			sizeof(r[1].bytes));
	for (unsigned k = 0; k < 2; k++) {
		replay(&r[k], 0, w[0].udp, false);
		UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
	}
	fx.now += UINT64_C(2000000000);
	record(&r[2], 0, PBOX_PULL, 1);
	replay(&r[2], 0, w[0].udp, false);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
	for (unsigned k = 0; k < 2; k++) {
		fx_mark();
		replay(&r[k], 0, w[0].udp, false);
		FX_ONLY(PBOX_SS_DROP_REPLAYED);
		UNIT_EQ_U64(fx.n_sent, 0);
	}
	fx_end();
}

/* The time of a result that a worker wanted says nothing of its PUSHes since, and nothing is from the future. */
static void
result_of_long_ago(bool tells)
{
	struct recording r;

	fx.tells = tells;
	begin("vision");
	for (uint32_t round = 1; round <= 2; round++) {
		for (unsigned i = 0; i < 2; i++) {
			record(&r, i, round == 1 ? PBOX_PUSHPULL : PBOX_PUSH, round);
			replay(&r, i, w[i].udp, false);
		}
		/* just before the lower half of their clocks is what it was */
		fx.now += ((UINT64_C(1) << 32) - 1900000) * 1000 * (round == 1);
	}
	record(&r, 0, PBOX_PING, 0);
	fx_mark();
	replay(&r, 0, w[0].udp, false);
	FX_ONLY(PBOX_SS_RX_PING);
	UNIT_EQ_U64(fx_count(PBOX_PONG), 1);
	fx.tells = false;
	fx_end();
}

static void
test_result_of_long_ago(void)
{
	result_of_long_ago(false);
	result_of_long_ago(true);
}

static void
test_bytes(void)
{
	bytes("vision");
	bytes("tagged");
}

const struct unit_test unit_tests[] = {
	{"recordings keep no lease", test_leases},
	{"recordings keep no lease, with tags", test_leases_tagged},
	{"nor do copies at other cores", test_leases_at_other_cores},
	{"contributions keep a lease, once", test_contributions},
	{"clocks that begin again", test_wrap},
	{"a frame as old as a clock goes", test_ghost},
	{"control frames", test_control},
	{"a first PULL that is old", test_first_pull},
	{"recordings of a job with a rate", test_a_rate},
	{"recordings and what a worker may repeat", test_repeats},
	{"recordings of questions", test_bytes},
	{"a result of long ago", test_result_of_long_ago},
	{NULL, NULL},
};
