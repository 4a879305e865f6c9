/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "fixture.h"

/* Where answers go, and who can turn them elsewhere (R4.9). */

const char unit_suite[] = "engine: addresses of workers";

#define N 8

static struct fx_worker w[2];
static uint32_t origin;
static const float values[N] = {1, 2, 3, 4, 5, 6, 7, 8};

/* A frame of worker i from an Ethernet and UDP address. */
static struct pbox_frame
frame(unsigned i, enum pbox_type type, uint32_t round, uint32_t ts, uint8_t mac, uint16_t udp)
{
	struct pbox_frame f = {
		.hdr = fx_data(&w[i], type, 0, 0, round),
		.payload = (const void *)values,
		.handle = (void *)(uintptr_t)values,
		.peer = {.ip = htonl(w[i].ip), .udp = udp, .mac = {2, 0, 0, 0, 0, mac}},
	};

	f.hdr.ts = origin + ts;
	fx_at(0, &f.peer);
	if (type == PBOX_PUSHPULL || type == PBOX_PUSH || type == PBOX_INIT) {
		f.hdr.format = PBOX_FMT_FP32;
		f.hdr.length = sizeof(values);
	}
	return f;
}

/* True: it is held. */
static bool
arrive(unsigned i, enum pbox_type type, uint32_t round, uint32_t ts, uint8_t mac, uint16_t udp)
{
	struct pbox_frame f = frame(i, type, round, ts, mac, udp);

	return pbox_shard_rx(fx.shard[0], &f, 1, fx.now) != 0;
}

static void
begin(void)
{
	struct fx_table t = {.elements = N, .op = PBOX_OP_SUM};

	fx_begin();
	fx_job(w, "vision", 2, &t);
	origin = fx_ts();
	CU_ASSERT_TRUE(arrive(0, PBOX_PUSHPULL, 1, 100, 10, 5000));
	CU_ASSERT_TRUE(arrive(1, PBOX_PUSHPULL, 1, 100, 11, 5001));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	fx_clear();
}

/* Both results went to these addresses. */
static void
results(uint8_t mac0, uint16_t udp0)
{
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	for (unsigned i = 0; i < fx.n_sent; i++) {
		const struct fx_sent *s = fx_nth(i);

		if (s->hdr.type != PBOX_RESULT)
			continue;
		UNIT_EQ_U64(s->peer.mac[5], s->hdr.worker == 0 ? mac0 : 11);
		UNIT_EQ_U64(s->peer.udp, s->hdr.worker == 0 ? udp0 : 5001);
	}
	fx_clear();
}

static void
test_copies_turn_nothing(void)
{
	begin();
	/* of the round before, of this one, and PULLs of both; from a foreign MAC, and port */
	CU_ASSERT_TRUE(arrive(0, PBOX_PULL, 1, 200, 10, 5000) == 0);
	fx_clear();
	CU_ASSERT_TRUE(arrive(0, PBOX_PUSHPULL, 2, 300, 10, 5000));
	CU_ASSERT_FALSE(arrive(0, PBOX_PUSHPULL, 1, 100, 66, 5000));
	CU_ASSERT_FALSE(arrive(0, PBOX_PUSHPULL, 2, 300, 66, 6666));
	fx_clear();
	fx_mark();
	CU_ASSERT_FALSE(arrive(0, PBOX_PULL, 2, 200, 66, 5000));
	FX_ONLY(PBOX_SS_DROP_REPLAYED);
	UNIT_EQ_U64(fx.n_sent, 0);
	fx_mark();
	CU_ASSERT_FALSE(arrive(0, PBOX_PULL, 1, 150, 10, 6666));
	FX_ONLY(PBOX_SS_DROP_UNPROVEN); /* it may only have been overtaken */
	fx_clear();
	CU_ASSERT_TRUE(arrive(1, PBOX_PUSHPULL, 2, 300, 11, 5001));
	results(10, 5000);
	fx_end();
}

static void
test_the_worker_moves(void)
{
	begin();
	/* through another router: a contribution to the round in progress, then a probe with a newer clock */
	CU_ASSERT_TRUE(arrive(0, PBOX_PUSHPULL, 2, 300, 12, 5000));
	CU_ASSERT_TRUE(arrive(1, PBOX_PUSHPULL, 2, 300, 11, 5001));
	results(12, 5000);
	CU_ASSERT_TRUE(arrive(0, PBOX_PUSHPULL, 3, 400, 12, 5000));
	CU_ASSERT_FALSE(arrive(0, PBOX_PULL, 3, 401, 13, 5000));
	fx_clear();
	CU_ASSERT_TRUE(arrive(1, PBOX_PUSHPULL, 3, 400, 11, 5001));
	results(13, 5000);
	fx_end();
}

/* A contribution that its worker's probe has overtaken on the way through another router: it counts, so answers follow it. A copy
 * of it does not count, and turns nothing. */
static void
test_overtaken(void)
{
	begin();
	CU_ASSERT_FALSE(arrive(0, PBOX_PULL, 2, 301, 10, 5000));
	fx_clear();
	CU_ASSERT_TRUE(arrive(0, PBOX_PUSHPULL, 2, 300, 12, 5000));
	CU_ASSERT_FALSE(arrive(0, PBOX_PUSHPULL, 2, 300, 66, 5000));
	fx_clear();
	CU_ASSERT_TRUE(arrive(1, PBOX_PUSHPULL, 2, 300, 11, 5001));
	results(12, 5000);
	fx_end();
}

/* The same of pushes in clocks, which count at the end of their burst: each has the verdict on its own frame. */
static void
test_overtaken_in_clocks(void)
{
	struct fx_table t = {.elements = N,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_ADD,
		.discipline = PBOX_DISCIPLINE_CLOCK};
	struct pbox_frame f[2];

	fx_begin();
	fx_job(w, "vision", 2, &t);
	origin = fx_ts();
	CU_ASSERT_FALSE(arrive(0, PBOX_INIT, 0, 100, 10, 5000));
	CU_ASSERT_FALSE(arrive(1, PBOX_PULL, 0, 100, 11, 5001));
	CU_ASSERT_FALSE(arrive(0, PBOX_PULL, 0, 301, 10, 5000));
	for (unsigned first = 0; first < 2; first++) {
		uint8_t mac = (uint8_t)(12 + first);

		fx_clear();
		f[first] = frame(0, PBOX_PUSH, 1 + first, 300 - first, mac, 5000);
		f[1 - first] = frame(1, PBOX_PUSH, 1 + first, 300 + first, 11, 5001);
		UNIT_EQ_U64(pbox_shard_rx(fx.shard[0], f, 2, fx.now), 0);
		UNIT_EQ_U64(fx_count(PBOX_PUSH_OK), 2);
		for (unsigned i = 0; i < fx.n_sent; i++)
			UNIT_EQ_U64(fx_nth(i)->peer.mac[5], fx_nth(i)->hdr.worker == 0 ? mac : 11);
	}
	fx_end();
}

/* Frames of one burst: those after the one that moves their worker come from where it is now. An address without a proof gets
 * nothing, whatever the frames before it were. */
static void
test_moves_in_a_burst(void)
{
	struct pbox_frame f[3];

	begin();
	f[0] = frame(0, PBOX_PULL, 2, 400, 13, 5000);
	f[1] = frame(0, PBOX_PUSHPULL, 2, 401, 13, 5000);
	f[2] = frame(0, PBOX_PULL, 1, 402, 14, 8000);
	UNIT_EQ_U64(pbox_shard_rx(fx.shard[0], f, 3, fx.now), 2);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
	fx_clear();
	CU_ASSERT_TRUE(arrive(1, PBOX_PUSHPULL, 2, 400, 11, 5001));
	results(13, 5000);
	fx_end();
}

/* Nobody has his answers sent to somebody else: an address that is new gets a question, and no more. */
static void
test_an_address_is_proven(void)
{
	unsigned before;

	begin();
	w[0].udp = 8000;
	fx_mark();
	CU_ASSERT_FALSE(arrive(0, PBOX_PULL, 1, 402, 14, 8000));
	FX_ONLY(PBOX_SS_DROP_UNPROVEN);
	UNIT_EQ_U64(fx.n_sent, 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PING);
	UNIT_EQ_U64(fx_last()->hdr.length, 0);
	/* a contribution counts, and what it asks for goes where the worker was */
	CU_ASSERT_TRUE(arrive(0, PBOX_PUSHPULL, 2, 500, 14, 8000));
	CU_ASSERT_TRUE(arrive(1, PBOX_PUSHPULL, 2, 500, 11, 5001));
	results(10, 5000);
	/* a hundred questions: one more answer at most */
	fx.now += 20000000;
	before = fx.n_sent;
	for (unsigned i = 0; i < 100; i++)
		arrive(0, PBOX_PULL, 1, 501 + i, 14, 8000);
	UNIT_EQ_U64(fx.n_sent, before + 1);
	fx_prove(0, &w[0]);
	CU_ASSERT_FALSE(arrive(0, PBOX_PULL, 2, fx_ts() - origin, 0, 8000));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(fx_last()->peer.udp, 8000);
	fx_end();
}

/* What a worker answers to a question, to a core or (-1) to the registrar; true: its address is proven with that. */
static bool
echo(int core, const struct pbox_hdr *ask, uint32_t ts, uint8_t mac, uint16_t udp)
{
	struct pbox_frame f = {
		.hdr = fx_data(&w[0], PBOX_PING, 0, 0, ask->round),
		.payload = (const uint8_t *)"",
		.peer = {.ip = htonl(w[0].ip), .udp = udp, .mac = {2, 0, 0, 0, 0, mac}},
	};

	f.hdr.flags = 0;
	f.hdr.base = ask->base;
	f.hdr.ts = origin + ts;
	fx_clear();
	if (core < 0) {
		pbox_registrar_rx(fx.registrar, &f, fx.now);
		return fx_count(PBOX_PONG) == 1;
	}
	fx_at((unsigned)core, &f.peer);
	pbox_shard_rx(fx.shard[core], &f, 1, fx.now);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PONG);
	return fx_last()->hdr.round == 0 && fx_last()->hdr.base == 0;
}

/* An echo that was recorded, sent again when the worker has moved on, or to another endpoint: it turns nothing to the
 * thief's link address. */
static void
test_old_echoes(void)
{
	struct pbox_hdr first, second;

	begin();
	arrive(0, PBOX_PULL, 2, 1000, 14, 8000);
	first = fx_last()->hdr;
	CU_ASSERT_FALSE(echo(1, &first, 1001, 66, 8000));
	CU_ASSERT_TRUE(echo(0, &first, 1001, 14, 8000));
	fx.now += 20000000;
	CU_ASSERT_TRUE(arrive(0, PBOX_PUSHPULL, 2, 1002, 14, 8000));
	arrive(0, PBOX_PULL, 2, 21000, 15, 9000);
	second = fx_last()->hdr;
	CU_ASSERT_TRUE(echo(0, &second, 21001, 15, 9000));
	CU_ASSERT_FALSE(echo(0, &first, 1001, 66, 8000));
	CU_ASSERT_TRUE(arrive(1, PBOX_PUSHPULL, 2, 21000, 11, 5001));
	results(15, 9000);
	fx_end();
}

static const struct pbox_hdr *
ask_control(uint32_t ts, uint16_t udp)
{
	echo(-1, &(struct pbox_hdr){0}, ts, 14, udp);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PING);
	return &fx_last()->hdr;
}

static void
test_old_echoes_at_control(void)
{
	struct pbox_hdr first, second;

	begin();
	first = *ask_control(1000, 8000);
	CU_ASSERT_TRUE(echo(-1, &first, 1001, 14, 8000));
	fx.now += 20000000;
	second = *ask_control(21000, 9000);
	CU_ASSERT_TRUE(echo(-1, &second, 21001, 14, 9000));
	CU_ASSERT_FALSE(echo(-1, &first, 1001, 66, 8000));
	fx_clear();
	pbox_registrar_shutdown(fx.registrar, fx.now);
	UNIT_EQ_U64(fx_nth(0)->hdr.type, PBOX_LEFT);
	UNIT_EQ_U64(fx_nth(0)->peer.udp, 9000);
	UNIT_EQ_U64(fx_nth(0)->peer.mac[5], 14);
	fx_end();
}

/* A PING that was recorded, sent with the worker's IP address and the thief's link address. */
static void
test_old_pings(void)
{
	begin();
	CU_ASSERT_FALSE(arrive(0, PBOX_PING, 0, 1000, 10, 5000));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PONG);
	UNIT_EQ_U64(fx_last()->peer.mac[5], 10);
	fx_clear();
	CU_ASSERT_FALSE(arrive(0, PBOX_PING, 0, 1000, 66, 5000));
	for (unsigned i = 0; i < fx.n_sent; i++) /* at once: to the worker, if at all */
		UNIT_EQ_U64(fx_nth(i)->peer.mac[5], 10);
	fx.now += UINT64_C(5000000000);
	CU_ASSERT_FALSE(arrive(0, PBOX_PING, 0, 5000000, 10, 5000));
	fx_clear();
	fx_mark();
	CU_ASSERT_FALSE(arrive(0, PBOX_PING, 0, 1000, 66, 5000));
	FX_ONLY(PBOX_SS_DROP_REPLAYED);
	UNIT_EQ_U64(fx.n_sent, 0);
	/* its answers stay where they were */
	CU_ASSERT_TRUE(arrive(0, PBOX_PUSHPULL, 2, 5000100, 10, 5000));
	CU_ASSERT_TRUE(arrive(1, PBOX_PUSHPULL, 2, 5000100, 11, 5001));
	results(10, 5000);
	fx_end();
}

/* What the box says unasked, and what a copy of a JOIN and of a PING are worth. */
static void
test_control(void)
{
	struct pbox_frame f = {.hdr = {.type = PBOX_PING}, .payload = (const uint8_t *)""};

	begin();
	f.hdr.token = w[0].token;
	f.hdr.job = w[0].job_no;
	f.hdr.incarnation = w[0].welcome.incarnation;
	f.peer = (struct pbox_peer){
		.ip = htonl(w[0].ip), .udp = w[0].udp, .mac = {2, 0, 0, 0, 0, 10}};
	f.hdr.ts = origin + 1000;
	pbox_registrar_rx(fx.registrar, &f, fx.now);
	f.peer.mac[5] = 66;
	pbox_registrar_rx(fx.registrar, &f, fx.now);
	fx_clear();
	pbox_registrar_shutdown(fx.registrar, fx.now);
	UNIT_EQ_U64(fx_nth(0)->hdr.type, PBOX_LEFT);
	UNIT_EQ_U64(fx_nth(0)->peer.mac[5], 10);
	f.hdr.ts = origin + 1001;
	pbox_registrar_rx(fx.registrar, &f, fx.now);
	fx_clear();
	pbox_registrar_shutdown(fx.registrar, fx.now);
	UNIT_EQ_U64(fx_nth(0)->peer.mac[5], 66);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"copies of frames turn nothing", test_copies_turn_nothing},
	{"a worker may move", test_the_worker_moves},
	{"a contribution that was overtaken", test_overtaken},
	{"pushes in clocks that were overtaken", test_overtaken_in_clocks},
	{"a worker moves within a burst", test_moves_in_a_burst},
	{"an address is proven", test_an_address_is_proven},
	{"echoes that were recorded", test_old_echoes},
	{"echoes that were recorded, at the control endpoint", test_old_echoes_at_control},
	{"PINGs that were recorded", test_old_pings},
	{"what the box says unasked", test_control},
	{NULL, NULL},
};
