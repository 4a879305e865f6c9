/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "fixture.h"

/* H2: what may come to the control thread (R6.12). Job "vision" may send 1000 requests a second. */

const char unit_suite[] = "engine: the way to the control thread";

static struct fx_worker v[2], t;

static size_t
frame(uint8_t *at, const struct fx_worker *w, enum pbox_type type, uint16_t length)
{
	struct pbox_hdr h = {.type = (uint8_t)type,
		.token = w->token,
		.job = w->job_no,
		.worker = w->worker,
		.incarnation = w->welcome.incarnation,
		.chunk = 77,
		.ts = fx_ts(),
		.length = length};

	memset(at + PBOX_HDR_LEN, 0, length);
	return pbox_frame_seal(at, &h);
}

/* The same with the session's tag, if it has one. */
static size_t
request(uint8_t *at, const struct fx_worker *w, enum pbox_type type)
{
	struct pbox_hdr h = {.type = (uint8_t)type,
		.token = w->token,
		.job = w->job_no,
		.worker = w->worker,
		.incarnation = w->welcome.incarnation,
		.chunk = 77,
		.ts = fx_ts(),
		.length = type == PBOX_MAP ? 8 : 0};
	const uint8_t none[8] = {0};
	size_t len = PBOX_HDR_LEN + h.length + PBOX_TAG_LEN;

	if (!w->tagged)
		return frame(at, w, type, h.length);
	memcpy(at, fx_tagged(w, &h, none) - PBOX_HDR_LEN, len);
	return len;
}

static uint16_t port = 4000;

static enum pbox_gate
pass(const uint8_t *at, size_t len, uint32_t ip)
{
	const struct pbox_peer peer = {.ip = ip, .udp = port};

	return pbox_shard_gate(fx.shard[0], at, len, &peer, fx.now);
}

/* How many of n pass at this moment. */
static unsigned
passes_from(const struct fx_worker *w, unsigned n, uint32_t ip)
{
	uint8_t at[128];
	unsigned passed = 0;

	for (unsigned i = 0; i < n; i++) {
		size_t len = frame(at, w, PBOX_MAP, 8);

		passed += pass(at, len, ip) != PBOX_GATE_RATE;
	}
	return passed;
}

static unsigned
passes(const struct fx_worker *w, unsigned n)
{
	return passes_from(w, n, 1);
}

static void
test_a_session_has_its_rate(void)
{
	uint8_t at[128];
	size_t len;

	fx_begin();
	fx_join(&v[0], "vision", 0, 2);
	fx_join(&v[1], "vision", 1, 2);
	len = frame(at, &v[0], PBOX_MAP, 8);
	CU_ASSERT_EQUAL(pass(at, len, 1), PBOX_GATE_QUIET);
	UNIT_EQ_U64(passes(&v[0], 10000), 8191);
	fx.now += 100000000;
	len = frame(at, &v[0], PBOX_MAP, 8);
	CU_ASSERT_EQUAL(pass(at, len, 1), PBOX_GATE_SESSION); /* others before it */
	UNIT_EQ_U64(passes(&v[0], 200), 99);
	/* the others of its job have theirs */
	len = frame(at, &v[1], PBOX_STATUS, 4);
	CU_ASSERT_EQUAL(pass(at, len, 1), PBOX_GATE_QUIET);
	/* and after a while it is as good as new */
	fx.now += 10000000000;
	len = frame(at, &v[0], PBOX_MAP, 8);
	CU_ASSERT_EQUAL(pass(at, len, 1), PBOX_GATE_QUIET);
	fx_end();
}

/* A job of many sessions has ten times the rate of one. */
static void
test_a_job_has_its_rate(void)
{
	static struct fx_worker w[8];
	unsigned passed = 0;

	fx_begin();
	for (uint16_t i = 0; i < 8; i++)
		fx_join(&w[i], "vision", i, 8);
	for (unsigned i = 0; i < 8; i++)
		passed += passes(&w[i], 8192);
	UNIT_EQ_U64(passed, 32768);
	fx_end();
}

/* All frames of a datagram count. */
static void
test_trains(void)
{
	uint8_t at[1024];
	size_t len = 0;
	unsigned passed = 0;

	fx_begin();
	fx_join(&v[0], "vision", 0, 1);
	for (unsigned i = 0; i < 1000; i++, len = 0) {
		for (unsigned k = 0; k < 10; k++)
			len += frame(at + len, &v[0], PBOX_MAP, 8);
		passed += pass(at, len, 1) != PBOX_GATE_RATE;
	}
	UNIT_EQ_U64(passed, 819);
	fx_end();
}

/* Somebody sends in the name of a host: a worker there can join that has the cookie. */
static void
test_cookies(void)
{
	uint8_t at[PBOX_HDR_LEN + PBOX_JOIN_LEN];
	size_t len;

	fx_begin();
	memset(&v[0], 0, sizeof(v[0]));
	v[0] = (struct fx_worker){.ip = 0x0A000007, .udp = 5007};
	fx_hello(&v[0]);
	port = v[0].udp;
	UNIT_EQ_U64(passes_from(&t, 5000, htonl(v[0].ip)), 4096);
	len = frame(at, &t, PBOX_JOIN, PBOX_JOIN_LEN);
	CU_ASSERT_EQUAL(pass(at, len, htonl(v[0].ip)), PBOX_GATE_RATE); /* no cookie */
	memcpy(at + PBOX_HDR_LEN, &v[0].cookie, sizeof(v[0].cookie));
	pbox_frame_seal(at, &(struct pbox_hdr){.type = PBOX_JOIN, .length = PBOX_JOIN_LEN});
	for (unsigned i = 0; i < 4096; i++)
		CU_ASSERT_EQUAL(pass(at, len, htonl(v[0].ip)), PBOX_GATE_STRANGER);
	CU_ASSERT_EQUAL(pass(at, len, htonl(v[0].ip)), PBOX_GATE_RATE);
	fx.now += 2100000000;
	port++; /* it is good for one address */
	UNIT_EQ_U64(passes_from(&t, 5000, htonl(v[0].ip)), 4096);
	CU_ASSERT_EQUAL(pass(at, len, htonl(v[0].ip)), PBOX_GATE_RATE);
	port = 4000;
	fx_end();
}

static void
test_keep_alives(void)
{
	uint8_t at[256];
	size_t len;

	fx_begin();
	fx_join(&v[0], "vision", 0, 1);
	port = v[0].udp;
	fx.now += 5000000000;
	UNIT_EQ_U64(pbox_registrar_silence(
			    fx.registrar, pbox_registrar_job(fx.registrar, 0), 0, fx.now),
		5000000000);
	fx_clear();
	len = frame(at, &v[0], PBOX_PING, 0);
	CU_ASSERT_EQUAL(pass(at, len, htonl(v[0].ip)), PBOX_GATE_ANSWERED);
	UNIT_EQ_U64(fx_count(PBOX_PONG), 1);
	UNIT_EQ_U64(fx_last()->hdr.chunk, 77);
	UNIT_EQ_U64(fx_last()->hdr.token, v[0].token);
	UNIT_EQ_U64(fx_last()->peer.ip, htonl(v[0].ip));
	UNIT_EQ_U64(pbox_registrar_silence(
			    fx.registrar, pbox_registrar_job(fx.registrar, 0), 0, fx.now),
		0);
	/* one with a payload is the control thread's */
	len = frame(at, &v[0], PBOX_PING, 100);
	CU_ASSERT_EQUAL(pass(at, len, htonl(v[0].ip)), PBOX_GATE_QUIET);
	UNIT_EQ_U64(fx_count(PBOX_PONG), 1);
	/* and one from an address that has proven nothing */
	len = frame(at, &v[0], PBOX_PING, 0);
	CU_ASSERT_EQUAL(pass(at, len, 9), PBOX_GATE_QUIET);
	UNIT_EQ_U64(fx_count(PBOX_PONG), 1);
	fx_end();
}

/* Who is not in a session has what his address has, and takes nothing from those that are. */
static void
test_strangers(void)
{
	struct fx_worker liar;
	uint8_t at[256];
	size_t len;
	unsigned passed = 0;

	fx_begin();
	fx_join(&v[0], "vision", 0, 1);
	fx_join(&t, "tagged", 0, 1);
	liar = v[0];
	liar.token ^= 1;
	len = frame(at, &liar, PBOX_MAP, 8);
	for (unsigned i = 0; i < 10000; i++) {
		enum pbox_gate gate = pass(at, len, 7);

		CU_ASSERT(gate == PBOX_GATE_STRANGER || gate == PBOX_GATE_RATE);
		passed += gate == PBOX_GATE_STRANGER;
	}
	UNIT_EQ_U64(passed, 4096);
	CU_ASSERT_EQUAL(pass(at, len, 8), PBOX_GATE_STRANGER);
	len = frame(at, &v[0], PBOX_MAP, 8);
	CU_ASSERT_EQUAL(pass(at, len, 7), PBOX_GATE_QUIET);
	/* with the right token, but without a tag */
	len = frame(at, &t, PBOX_PING, 0);
	CU_ASSERT_EQUAL(pass(at, len, 8), PBOX_GATE_STRANGER);
	/* what is no frame at all */
	memset(at, 0xA5, sizeof(at));
	CU_ASSERT_EQUAL(pass(at, 5, 8), PBOX_GATE_STRANGER);
	CU_ASSERT_EQUAL(pass(at, sizeof(at), 8), PBOX_GATE_STRANGER);
	fx_end();
}

/* One address that asks without end takes nothing from its neighbours: in its network, and in the next one. */
static void
test_neighbours(void)
{
	static const uint32_t network[] = {0x0A000000u, 0x0A000100u, 0x0A010000u, 0xC0A80000u};
	uint8_t at[256];
	size_t len;
	unsigned passed = 0, refused = 0;

	fx_begin();
	fx_join(&v[0], "vision", 0, 1);
	v[0].token ^= 1;
	len = frame(at, &v[0], PBOX_MAP, 8);
	for (unsigned i = 0; i < 5000; i++)
		passed += pass(at, len, htonl(0x0A000042u)) == PBOX_GATE_STRANGER;
	UNIT_EQ_U64(passed, 4096);
	for (unsigned i = 0; i < sizeof(network) / sizeof(network[0]); i++)
		for (uint32_t host = 1; host < 255; host++)
			refused += pass(at, len, htonl(network[i] + host)) == PBOX_GATE_RATE;
	CU_ASSERT(refused >= 1); /* itself */
	CU_ASSERT(refused <= 4);
	v[0].token ^= 1;
	fx_end();
}

/* Who has recorded a session sends all of that again, from where it came and from elsewhere, also the newest frame.
 * What the worker asks goes on, and its keep-alives. With tags nobody can make newer ones. */
static void
copies(const char *job)
{
	static uint8_t recorded[8][128];
	size_t len[8];
	unsigned n[PBOX_GATE_RATE + 1] = {0};

	fx_begin();
	fx_join(&t, job, 0, 1);
	port = t.udp;
	for (unsigned i = 0; i < 8; i++) {
		len[i] = request(recorded[i], &t, i % 2 != 0 ? PBOX_MAP : PBOX_PING);
		CU_ASSERT(pass(recorded[i], len[i], htonl(t.ip)) != PBOX_GATE_RATE);
	}
	for (unsigned turn = 1; turn <= 2000; turn++) {
		fx.now += UINT64_C(10000000);
		for (unsigned i = 0; i < 50; i++)
			n[pass(recorded[i % 8], len[i % 8], htonl(t.ip + i % 2))]++;
		if (turn % 100 != 0)
			continue;
		len[0] = request(recorded[0], &t, PBOX_PING);
		CU_ASSERT_EQUAL(pass(recorded[0], len[0], htonl(t.ip)), PBOX_GATE_ANSWERED);
		len[1] = request(recorded[1], &t, PBOX_MAP);
		CU_ASSERT_EQUAL(pass(recorded[1], len[1], htonl(t.ip)), PBOX_GATE_QUIET);
	}
	UNIT_EQ_U64(n[PBOX_GATE_ANSWERED], 0);
	CU_ASSERT(n[PBOX_GATE_QUIET] + n[PBOX_GATE_SESSION] <= 64 * 20);
	UNIT_EQ_U64(pbox_registrar_silence(
			    fx.registrar, pbox_registrar_job(fx.registrar, 0), 0, fx.now),
		0);
	port = 4000;
	fx_end();
}

static void
test_copies(void)
{
	copies("vision");
	copies("tagged");
}

/* A MAPPED looks at so many fragments: where they are small it has fewer chunks. */
static void
test_pages_of_small_fragments(void)
{
	struct fx_table many = {.elements = 200000};
	struct pbox_mapped m;
	struct pbox_cursor cur;
	const struct fx_sent *s;

	fx.mtu = 160;
	fx.chunk_elements = 8192;
	fx_begin();
	fx_join(&v[0], "vision", 0, 1);
	fx_declare(&v[0], 0, &many);
	fx_work();
	s = fx_map(&v[0], 0, 0);
	CU_ASSERT_EQUAL(s->hdr.type, PBOX_MAPPED);
	UNIT_EQ_U64(pbox_mapped_decode(s->payload, s->hdr.length, &m, &cur), 0);
	CU_ASSERT(m.count >= 1 && m.count < 10 && m.chunks > 20);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"a session has its rate", test_a_session_has_its_rate},
	{"a job has its rate", test_a_job_has_its_rate},
	{"all frames of a datagram count", test_trains},
	{"cookies have an account of their own", test_cookies},
	{"keep-alives are answered", test_keep_alives},
	{"strangers", test_strangers},
	{"neighbours of one who asks too much", test_neighbours},
	{"copies use up nothing", test_copies},
	{"pages of small fragments", test_pages_of_small_fragments},
	{NULL, NULL},
};
