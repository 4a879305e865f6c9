/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "fixture.h"

/* Sessions with tags (section 11 of the protocol): who has no key changes nothing. */

const char unit_suite[] = "engine: authentication";

#define N 8

static struct fx_worker w[2];
static const float v[N] = {1, 2, 3, 4, 5, 6, 7, 8};
static const struct fx_table sum = {.elements = N, .op = PBOX_OP_SUM};

static void
begin(void)
{
	fx_begin();
	fx_job(w, "tagged", 2, &sum);
}

static struct pbox_hdr
contribution(unsigned i, uint32_t round)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PUSHPULL, 0, 0, round);

	h.format = PBOX_FMT_FP32;
	h.length = sizeof(v);
	return h;
}

/* Frames with a tag of the box, which the worker can check. */
static void
expect_tags(const struct fx_worker *to, unsigned n)
{
	unsigned good = 0;

	for (unsigned i = 0; i < fx.n_sent; i++) {
		struct fx_sent *s = fx_nth(i);
		uint8_t frame[PBOX_HDR_LEN + sizeof(s->payload) + PBOX_TAG_LEN];

		if (s->hdr.worker != to->worker || s->hdr.token != to->token)
			continue;
		CU_ASSERT((s->hdr.flags & PBOX_F_AUTH) != 0);
		pbox_frame_encode(frame, &s->hdr, pbox_crc32c(0, s->payload, s->hdr.length));
		memcpy(frame + PBOX_HDR_LEN, s->payload, s->hdr.length);
		memcpy(frame + PBOX_HDR_LEN + s->hdr.length, s->tag, PBOX_TAG_LEN);
		good += pbox_auth_good(to->keys.box, fx.auth, frame + PBOX_HDR_LEN, s->hdr.length);
	}
	UNIT_EQ_U64(good, n);
}

/* A whole frame as it came from the network. */
static bool
arrive(const struct pbox_hdr *h, const uint8_t *payload, bool unverified)
{
	struct pbox_frame f = {
		.hdr = *h,
		.payload = payload,
		.handle = (void *)(uintptr_t)payload,
		.peer = {.ip = htonl(w[0].ip), .udp = w[0].udp},
		.unverified = unverified,
	};

	return pbox_shard_rx(fx.shard[0], &f, 1, fx.now) != 0;
}

/* It is counted so, is not answered, and keeps no lease. */
static void
expect_drop(const struct pbox_hdr *h, const uint8_t *payload, bool unverified,
	enum pbox_shard_stat what)
{
	const struct pbox_job *job = pbox_registrar_job(fx.registrar, 0);
	uint64_t silence = pbox_registrar_silence(fx.registrar, job, 0, fx.now);

	fx.now++;
	fx_clear();
	fx_mark();
	CU_ASSERT_FALSE(arrive(h, payload, unverified));
	FX_ONLY(what);
	UNIT_EQ_U64(fx.n_sent, 0);
	UNIT_EQ_U64(pbox_registrar_silence(fx.registrar, job, 0, fx.now), silence + 1);
}

static void
test_rounds(void)
{
	begin();
	expect_tags(&w[0], 0);
	for (uint32_t round = 1; round <= 3; round++) {
		fx_clear();
		CU_ASSERT_TRUE(fx_pushpull(&w[0], round, v, N));
		CU_ASSERT_TRUE(fx_pushpull(&w[1], round, v, N));
		UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
		expect_tags(&w[0], 1);
		expect_tags(&w[1], 1);
		CU_ASSERT_EQUAL(((float *)(void *)fx_last()->payload)[3], 8.0f);
		CU_ASSERT_TRUE(fx_last()->shared);
	}
	/* answered from memory, with a tag of its own */
	fx_clear();
	CU_ASSERT_FALSE(fx_pushpull(&w[1], 3, v, N));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
	expect_tags(&w[1], 1);
	fx_end();
}

/* A tag takes room in each frame (R5.8): 1500 - 106 bytes are 1344 in whole lines. */
static void
test_fragments_leave_room(void)
{
	struct fx_table t = {.elements = 2000};
	struct pbox_mapped m;
	struct pbox_cursor cur;
	struct fx_sent *s;

	fx.chunk_elements = 4096;
	fx_begin();
	fx_job(w, "tagged", 1, &t);
	s = fx_map(&w[0], 0, 0);
	CU_ASSERT_EQUAL_FATAL(pbox_mapped_decode(s->payload, s->hdr.length, &m, &cur), 0);
	UNIT_EQ_U64(m.frag_elements, 1344 / 4);
	fx_end();
}

static void
test_all_answers_have_tags(void)
{
	struct pbox_status status = {0};
	uint8_t payload[16];
	struct pbox_hdr h;

	begin();
	fx_control(&w[0], PBOX_PING, "ping", 4);
	expect_tags(&w[0], 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PONG);
	fx_control(&w[0], PBOX_STATUS, payload, pbox_status_encode(payload, 16, &status));
	expect_tags(&w[0], 1);
	UNIT_EQ_U64(fx_set(&w[0], 0, 1, PBOX_HYPER_CLIP_VALUE, 0)->hdr.type, PBOX_SET_OK);
	expect_tags(&w[0], 1);
	fx_set(&w[0], 7, 1, PBOX_HYPER_CLIP_VALUE, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	expect_tags(&w[0], 1);
	/* of a shard: WAIT, PUSH_OK, PONG */
	fx_clear();
	h = fx_data(&w[0], PBOX_PULL, 0, 0, 1);
	fx_rx(0, &w[0], &h, NULL);
	h = contribution(0, 1);
	h.type = PBOX_PUSH;
	CU_ASSERT_TRUE(fx_rx(0, &w[0], &h, v));
	h = fx_data(&w[0], PBOX_PING, 5, 0, 0);
	h.length = 8;
	fx_rx(0, &w[0], &h, v);
	UNIT_EQ_U64(fx.n_sent, 3);
	expect_tags(&w[0], 3);
	/* unasked */
	fx_clear();
	pbox_registrar_shutdown(fx.registrar, fx.now);
	UNIT_EQ_U64(fx_count(PBOX_LEFT), 2);
	expect_tags(&w[0], 1);
	expect_tags(&w[1], 1);
	fx_leave(&w[0]);
	expect_tags(&w[0], 1);
	fx_end();
}

/* ERRORs to data frames have tags, but those to who has no session. */
static void
test_errors(void)
{
	struct fx_table t = {.elements = N, .mode = PBOX_MODE_OPTIMISER, .optimiser = PBOX_OPT_SGD};
	struct pbox_hdr h;

	fx_begin();
	fx_job(w, "tagged", 1, &t);
	h = fx_data(&w[0], PBOX_INIT, 0, 0, 0);
	h.format = PBOX_FMT_FP32;
	h.length = sizeof(v);
	fx_rx(0, &w[0], &h, v);
	UNIT_EQ_U64(fx_count(PBOX_INIT_OK), 1);
	fx_clear();
	CU_ASSERT_FALSE(fx_pushpull(&w[0], 1, v, N));
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_NO_LR);
	expect_tags(&w[0], 1);
	fx_clear();
	h = contribution(0, 1);
	h.token++;
	fx_rx(0, &w[0], &h, v);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_SESSION);
	UNIT_EQ_U64(fx_last()->hdr.flags, 0);
	fx_end();
}

/* An enemy that sees everything, and can make CRCs, but no tags. */
static void
test_forged(void)
{
	struct pbox_hdr h, g;
	uint8_t *p, *other;
	float x[N] = {66};

	begin();
	h = contribution(0, 1);
	for (unsigned late = 0; late < 2; late++) {
		/* another payload under the old header and tag */
		p = fx_tagged(&w[0], &h, v);
		memcpy(p, x, sizeof(x));
		pbox_frame_seal(p - PBOX_HDR_LEN, &h);
		expect_drop(&h, p, late, PBOX_SS_DROP_AUTH);
		/* any field of the header */
		p = fx_tagged(&w[0], &h, v);
		g = h;
		g.weight = 7;
		pbox_frame_seal(p - PBOX_HDR_LEN, &g);
		expect_drop(&g, p, late, PBOX_SS_DROP_AUTH);
		g = h;
		g.worker = 1;
		g.token = w[1].token;
		p = fx_tagged(&w[0], &g, v); /* the key of worker 0 */
		expect_drop(&g, p, late, PBOX_SS_DROP_AUTH);
		/* a frame of the box, turned around: its key is another */
		p = fx_tagged(&w[0], &h, v);
		pbox_auth_seal(w[0].keys.box, fx.auth, p - PBOX_HDR_LEN, &h);
		expect_drop(&h, p, late, PBOX_SS_DROP_AUTH);
		/* no tag at all */
		g = h;
		g.flags &= (uint16_t)~PBOX_F_AUTH;
		pbox_frame_seal(p - PBOX_HDR_LEN, &g);
		expect_drop(&g, p, late, PBOX_SS_DROP_AUTH);
	}
	/* damaged by the network: that is what it is called */
	p = fx_tagged(&w[0], &h, v);
	p[5] ^= 1;
	expect_drop(&h, p, true, PBOX_SS_DROP_CRC);
	/* nothing of it has counted, and it has cost the job no credit: its rate is 1000 a second */
	p = fx_tagged(&w[0], &h, v);
	p[sizeof(v)] ^= 1;
	for (unsigned i = 0; i < 3000; i++)
		expect_drop(&h, p, false, PBOX_SS_DROP_AUTH);
	fx_clear();
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 1, v, N));
	CU_ASSERT_TRUE(fx_pushpull(&w[1], 1, v, N));
	CU_ASSERT_EQUAL(((float *)(void *)fx_last()->payload)[0], 2.0f);
	/* a job without auth takes no tags */
	h = contribution(0, 2);
	other = fx_tagged(&w[0], &h, v);
	fx_leave(&w[0]);
	fx_leave(&w[1]);
	fx_job(w, "vision", 1, &sum);
	g = contribution(0, 1);
	g.flags |= PBOX_F_AUTH;
	expect_drop(&g, other, false, PBOX_SS_DROP_AUTH);
	fx_end();
}

/* What was recorded in one session is worth nothing in another. */
static void
test_replayed(void)
{
	struct pbox_hdr h, g;
	uint8_t old[PBOX_HDR_LEN + sizeof(v) + PBOX_TAG_LEN], *p;
	struct fx_worker before;

	begin();
	h = contribution(0, 1);
	p = fx_tagged(&w[0], &h, v);
	memcpy(old, p - PBOX_HDR_LEN, sizeof(old));
	/* in the same session a copy is a repetition */
	CU_ASSERT_TRUE(arrive(&h, p, false));
	fx_mark();
	CU_ASSERT_FALSE(arrive(&h, p, false));
	FX_ONLY(PBOX_SS_RX_DUP_PENDING);
	before = w[0];
	fx_leave(&w[0]);
	fx_join(&w[0], "tagged", 0, 2);
	CU_ASSERT_NOT_EQUAL(memcmp(&before.keys, &w[0].keys, sizeof(before.keys)), 0);
	fx_clear();
	fx_mark();
	CU_ASSERT_FALSE(arrive(&h, p, false));
	FX_ONLY(PBOX_SS_DROP_SESSION_TOKEN);
	/* with the new session's token, and the old one's key */
	g = h;
	g.token = w[0].token;
	before.token = w[0].token;
	p = fx_tagged(&before, &g, v);
	expect_drop(&g, p, false, PBOX_SS_DROP_AUTH);
	memcpy(p + sizeof(v), old + PBOX_HDR_LEN + sizeof(v), PBOX_TAG_LEN);
	expect_drop(&g, p, true, PBOX_SS_DROP_AUTH);
	fx_end();
}

static void
test_control(void)
{
	const enum pbox_type types[] = {
		PBOX_DECLARE, PBOX_MAP, PBOX_SET, PBOX_STATUS, PBOX_LEAVE, PBOX_PING};
	struct fx_worker thief;
	uint64_t drops;

	begin();
	drops = fx.rs[PBOX_RS_DROP_AUTH];
	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		static const uint8_t payload[64];
		uint64_t silence;

		fx.now += 1000;
		silence = pbox_registrar_silence(
			fx.registrar, pbox_registrar_job(fx.registrar, 0), 0, fx.now);
		thief = w[0];
		thief.tagged = false;
		CU_ASSERT_PTR_NULL(fx_control(&thief, types[i], payload, sizeof(payload)));
		thief = w[0];
		thief.keys = w[1].keys;
		CU_ASSERT_PTR_NULL(fx_control(&thief, types[i], payload, sizeof(payload)));
		UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_AUTH], drops += 2);
		UNIT_EQ_U64(pbox_registrar_silence(
				    fx.registrar, pbox_registrar_job(fx.registrar, 0), 0, fx.now),
			silence);
	}
	UNIT_EQ_U64(fx.rs[PBOX_RS_WORKERS], 2);
	CU_ASSERT_PTR_NOT_NULL(fx_control(&w[0], PBOX_PING, NULL, 0));
	fx_end();
}

/* Another process claims the number: the PING to the session has a tag, and so must its answer. */
static void
test_claim(void)
{
	struct fx_worker second = {.job = "tagged",
		.worker = 0,
		.workers = 2,
		.ip = 0x0A000200,
		.udp = 9,
		.mtu = 1500,
		.nonce = 99};
	struct pbox_join m;

	begin();
	fx_hello(&second);
	m = fx_join_message(&second);
	fx_join_with(&second, &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	UNIT_EQ_U64(fx_count(PBOX_PING), 1);
	expect_tags(&w[0], 1);
	fx_end();
}

static void
test_join(void)
{
	struct fx_worker old = {
		.job = "tagged", .workers = 2, .ip = 0x0A000100, .udp = 5, .mtu = 1500, .nonce = 9};
	struct pbox_join m;

	fx_begin();
	fx_hello(&old);
	m = fx_join_message(&old);
	m.auth = 0;
	fx_join_with(&old, &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "cannot send tags"));
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "auth = yes"));
	m.auth = 1;
	m.mtu = PBOX_MTU_OVERHEAD + 64 + PBOX_TAG_LEN - 1;
	fx_join_with(&old, &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(fx.rs[PBOX_RS_JOBS], 0);
	/* a repeated JOIN gets the same session, and keys */
	fx_join(&w[0], "tagged", 0, 2);
	m = fx_join_message(&w[0]);
	m.cookie = w[0].cookie;
	w[0].tagged = false;
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WELCOME);
	UNIT_EQ_U64(fx_last()->hdr.token, w[0].token);
	expect_tags(&w[0], 1);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"rounds, and answers with tags", test_rounds},
	{"fragments leave room for the tag", test_fragments_leave_room},
	{"all answers have tags", test_all_answers_have_tags},
	{"errors", test_errors},
	{"forged frames", test_forged},
	{"replayed frames", test_replayed},
	{"control frames", test_control},
	{"a claim of the number", test_claim},
	{"joining", test_join},
	{NULL, NULL},
};
