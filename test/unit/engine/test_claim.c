/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: a number that is claimed";

#define MS UINT64_C(1000000)

static struct fx_worker w[4], late;

/* A process that wants a number which is taken. */
static struct pbox_join
claimant(uint16_t worker, uint16_t workers)
{
	late = (struct fx_worker){.job = "vision",
		.worker = worker,
		.workers = workers,
		.ip = 0x0A000300u,
		.udp = 6000,
		.mtu = 1500,
		.nonce = 7777};
	fx_hello(&late);
	return fx_join_message(&late);
}

/* PINGs in a step of 20 ms, as the control thread ticks; each must go to worker 0's address. */
static unsigned
tick(void)
{
	unsigned n;

	fx_clear();
	fx.now += 20 * MS;
	fx_tick();
	n = fx_count(PBOX_PING);
	for (unsigned i = 0; i < fx.n_sent; i++)
		if (fx.sent[i].hdr.type == PBOX_PING) {
			UNIT_EQ_U64(fx.sent[i].hdr.chunk, 0);
			UNIT_EQ_U64(fx.sent[i].hdr.token, w[0].token);
			UNIT_EQ_U64(fx.sent[i].hdr.length, 0);
			UNIT_EQ_U64(fx.sent[i].peer.udp, w[0].udp);
		}
	return n;
}

static unsigned
ticks(unsigned ms)
{
	unsigned n = 0;

	for (unsigned t = 0; t < ms; t += 20)
		n += tick();
	return n;
}

/* Ask: WORKER_TAKEN, or nothing of the kind. The request of fx_control() names PING's id as well. */
static bool
taken(const struct pbox_join *m)
{
	uint8_t payload[PBOX_JOIN_LEN];
	struct pbox_error_msg e;
	struct pbox_frame f = {.hdr = {.type = PBOX_JOIN, .chunk = 9, .length = PBOX_JOIN_LEN},
		.payload = payload,
		.peer = {.ip = w[1].ip, .udp = late.udp}};

	fx_listen();
	f.peer.ip = __builtin_bswap32(late.ip);
	join_payload(payload, m, "key");
	fx_clear();
	pbox_registrar_rx(fx.registrar, &f, fx.now);
	CU_ASSERT_FATAL(fx.n_sent > 0);
	if (fx_last()->hdr.type == PBOX_WELCOME)
		return false;
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	CU_ASSERT_EQUAL(pbox_error_decode(fx_last()->payload, fx_last()->hdr.length, &e), 0);
	UNIT_EQ_U64(e.detail, 200);
	return true;
}

static void
alive(void)
{
	CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
}

static void
begin(void)
{
	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	fx_join(&w[1], "vision", 1, 2);
	fx.now += 30 * MS;
}

/* Nobody answers: five PINGs, and after half a second the number is free; its lease is 10 s. */
static void
test_dead(void)
{
	struct pbox_join m;
	uint64_t old, began;
	unsigned pings;

	begin();
	old = w[0].token;
	m = claimant(0, 2);
	began = fx.now;
	CU_ASSERT_TRUE(taken(&m));
	UNIT_EQ_U64(fx_count(PBOX_PING), 1);
	pings = 1 + ticks(200);
	CU_ASSERT_TRUE(taken(&m));
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "asking whether it still lives"));
	UNIT_EQ_U64(fx_count(PBOX_PING), 0); /* the tick's work, not the claimant's */
	pings += ticks(280);
	CU_ASSERT_TRUE(taken(&m)); /* 480 ms */
	pings += ticks(20);
	UNIT_EQ_U64(pings, 5);
	CU_ASSERT_FALSE(taken(&m));
	UNIT_EQ_U64((fx.now - began) / MS, 500);
	CU_ASSERT(fx_last()->hdr.token != old);
	CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx.rs[PBOX_RS_TAKEN_OVER], 1);
	UNIT_EQ_U64(fx.rs[PBOX_RS_PINGS], 5);
	UNIT_EQ_U64(fx.rs[PBOX_RS_WORKERS], 2);
	UNIT_EQ_U64(ticks(1000), 0);
	fx_end();
}

/* It answers each time: it keeps its number however long the other asks, and a claim costs a PING. */
static void
test_alive(void)
{
	struct pbox_join m;
	unsigned asked = 0;

	begin();
	m = claimant(0, 2);
	for (unsigned t = 0; t < 100; t++) { /* 20 s, twice its lease */
		if (t % 25 == 24) {
			fx_hello(&late);
			m.cookie = late.cookie;
		}
		CU_ASSERT_TRUE(taken(&m));
		if (fx_count(PBOX_PING) > 0) {
			asked++;
			fx.now += MS;
			alive();
		}
		UNIT_EQ_U64(ticks(200), 0);
	}
	CU_ASSERT(asked > 20 && asked <= 40); /* one in half a second or more */
	CU_ASSERT_TRUE(taken(&m));
	UNIT_EQ_U64(fx.rs[PBOX_RS_PINGS], asked + (fx_count(PBOX_PING) > 0));
	UNIT_EQ_U64(fx.rs[PBOX_RS_TAKEN_OVER], 0);
	alive();
	fx_end();
}

/* Both ends hear it: the log with both hosts, the second process with the first one's. */
static void
test_named(void)
{
	struct pbox_join m;

	begin();
	m = claimant(0, 2);
	snprintf(m.host, sizeof(m.host), "gpu7");
	CU_ASSERT_TRUE(taken(&m));
	fx.now += MS;
	alive();
	fx.now += 199 * MS;
	fx.event[0] = '\0';
	CU_ASSERT_TRUE(taken(&m));
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"worker 0 of job 'vision' is taken by host0, which answers (heard 199 ms ago): give each worker its own number");
	CU_ASSERT_STRING_EQUAL(fx.event,
		"job 'vision': a second process (gpu7, 10.0.3.0) wants to be worker 0, which host0 is and answers: give each worker its own number");
	fx.event[0] = '\0';
	CU_ASSERT_TRUE(taken(&m));
	CU_ASSERT_STRING_EQUAL(fx.event, ""); /* not each time */
	fx_end();
}

/* An answer in the last moment counts, data as well as PING, and the count begins again. */
static void
test_last_moment(void)
{
	const struct fx_table t = {.elements = 4};
	static const float v[4] = {1, 2, 3, 4};
	struct pbox_join m;

	fx_begin();
	fx_job(w, "vision", 2, &t);
	m = claimant(0, 2);
	CU_ASSERT_TRUE(taken(&m));
	ticks(480);
	fx_pushpull(&w[0], 1, v, 4); /* to a data core */
	ticks(40);
	CU_ASSERT_TRUE(taken(&m));
	UNIT_EQ_U64(fx_count(PBOX_PING), 1); /* dead from now on */
	ticks(480);
	CU_ASSERT_TRUE(taken(&m));
	ticks(20);
	CU_ASSERT_FALSE(taken(&m));
	fx_end();
}

/* A box that did not come to send three PINGs has not asked. */
static void
test_box_was_busy(void)
{
	struct pbox_join m;

	begin();
	m = claimant(0, 2);
	CU_ASSERT_TRUE(taken(&m));
	fx.now += 3000 * MS;
	CU_ASSERT_TRUE(taken(&m));
	UNIT_EQ_U64(tick(), 1);
	CU_ASSERT_TRUE(taken(&m)); /* two */
	ticks(80);
	CU_ASSERT_TRUE(taken(&m));
	UNIT_EQ_U64(tick(), 1);
	CU_ASSERT_FALSE(taken(&m));
	fx_end();
}

/* Who does not know the secret makes nobody send anything but refusals. */
static void
test_flood_without_the_secret(void)
{
	struct pbox_join m;

	begin();
	m = claimant(0, 2);
	for (unsigned i = 0; i < 10000; i++) {
		m.nonce = i;
		fx_join_with(&late, &m, "wrong");
		UNIT_EQ_U64(fx_error(), PBOX_E_SECRET);
		UNIT_EQ_U64(fx.n_sent, 1);
		fx.now += MS / 10;
	}
	UNIT_EQ_U64(ticks(1000), 0);
	UNIT_EQ_U64(fx.rs[PBOX_RS_PINGS], 0);
	fx_end();
}

/* Nor does who knows it, beyond five PINGs each half second, whatever he makes up. */
static void
test_flood_with_the_secret(void)
{
	struct pbox_join m;

	begin();
	m = claimant(0, 2);
	for (unsigned i = 0; i < 2400; i++) { /* less than 500 ms */
		m.nonce = 100000 + i;
		m.worker = i % 2;
		if (i % 2 == 0)
			CU_ASSERT_TRUE(taken(&m));
		fx.now += MS / 11;
		if (i % 220 == 0)
			tick();
	}
	CU_ASSERT(fx.rs[PBOX_RS_PINGS] <= 5 && fx.rs[PBOX_RS_PINGS] >= 4);
	fx_end();
}

/* "Any number": who has been silent for longest is asked. */
static void
test_any(void)
{
	struct pbox_join m;

	begin();
	fx.now += 1000 * MS;
	CU_ASSERT_EQUAL(fx_control(&w[1], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	fx.now += MS;
	m = claimant(PBOX_NO_WORKER, 2);
	CU_ASSERT_TRUE(taken(&m));
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"all 2 workers of job 'vision' have joined; worker 0 (host0), heard 1031 ms ago, is being asked whether it still lives");
	UNIT_EQ_U64(fx_count(PBOX_PING), 1);
	for (unsigned i = 0; i < 25; i++) {
		UNIT_EQ_U64(tick(), i % 5 == 4 && i < 24);
		fx_control(&w[1], PBOX_PING, NULL, 0);
	}
	CU_ASSERT_FALSE(taken(&m));
	UNIT_EQ_U64(fx_last()->hdr.worker, 0);
	fx_end();
}

/* A JOIN that was under way for long opens no session when its session has left. */
static void
test_join_after_leave(void)
{
	struct pbox_join m;

	begin();
	m = fx_join_message(&w[0]);
	fx_leave(&w[0]);
	w[0].token = 0;
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "has left"));
	UNIT_EQ_U64(fx.rs[PBOX_RS_WORKERS], 1);
	m.nonce++;
	CU_ASSERT_EQUAL(fx_join_with(&w[0], &m, "key")->hdr.type, PBOX_WELCOME);
	fx_end();
}

/* Also when the job ended with it. */
static void
test_join_after_the_job(void)
{
	struct pbox_join m;

	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	m = fx_join_message(&w[0]);
	fx_leave(&w[0]);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	w[0].token = 0;
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	fx_end();
}

/* Who cannot take the frames of the tables that are there hears it at once. */
static void
test_smaller_mtu(void)
{
	const struct fx_table t = {.elements = 1000};
	struct pbox_join m;

	fx_begin();
	fx_job(w, "vision", 2, &t);
	fx_leave(&w[0]);
	m = claimant(0, 2);
	m.mtu = 1499;
	fx_join_with(&late, &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"the tables of job 'vision' are mapped for an MTU of 1500, and a worker (host0) has 1499: raise it there, or end the job");
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "a worker (host0) has 1499"));
	m.mtu = 1500;
	CU_ASSERT_EQUAL(fx_join_with(&late, &m, "key")->hdr.type, PBOX_WELCOME);
	fx_end();
}

static uint32_t
rtt_us(const struct pbox_job *job, unsigned worker)
{
	struct pbox_member_view v;

	pbox_registrar_view_member(fx.registrar, job, worker, fx.now, &v);
	return v.rtt_us;
}

/* An operator asks for a round trip: a PING of the box, once a second at most. */
static void
test_round_trip(void)
{
	const struct pbox_job *job;

	begin();
	job = pbox_registrar_job(fx.registrar, 0);
	UNIT_EQ_U64(ticks(40), 0); /* nobody has asked */
	CU_ASSERT_FALSE(pbox_registrar_measuring(fx.registrar, fx.now));
	pbox_registrar_measure(fx.registrar, job->id, 0);
	UNIT_EQ_U64(tick(), 1);
	CU_ASSERT_TRUE(pbox_registrar_measuring(fx.registrar, fx.now));
	UNIT_EQ_U64(rtt_us(job, 0), 0);
	fx.now += 250 * 1000;
	alive();
	UNIT_EQ_U64(rtt_us(job, 0), 250);
	UNIT_EQ_U64(rtt_us(job, 1), 0);
	/* a PING that was not asked for says nothing */
	fx.now += 100 * MS;
	CU_ASSERT_FALSE(pbox_registrar_measuring(fx.registrar, fx.now));
	alive();
	UNIT_EQ_U64(rtt_us(job, 0), 250);
	pbox_registrar_measure(fx.registrar, job->id, 0);
	UNIT_EQ_U64(ticks(800), 0); /* asked again too early */
	UNIT_EQ_U64(ticks(100), 1);
	/* a session that has ended, no worker, no job */
	CU_ASSERT_EQUAL(fx_control(&w[1], PBOX_LEAVE, NULL, 0)->hdr.type, PBOX_LEFT);
	pbox_registrar_measure(fx.registrar, job->id, 1);
	pbox_registrar_measure(fx.registrar, job->id, job->workers);
	pbox_registrar_measure(fx.registrar, UINT16_MAX, 0);
	UNIT_EQ_U64(ticks(40), 0);
	fx_end();
}

/* The lease of a job's section bounds what its workers get. */
static void
test_lease_of_the_section(void)
{
	fx_begin();
	fx_join(&w[0], "three", 0, 3);
	UNIT_EQ_U64(w[0].welcome.lease_ms, 4000);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"nobody answers: half a second", test_dead},
	{"who answers keeps its number", test_alive},
	{"both ends hear it", test_named},
	{"an answer in the last moment", test_last_moment},
	{"a box that was busy asks three times", test_box_was_busy},
	{"a flood without the secret", test_flood_without_the_secret},
	{"a flood with the secret", test_flood_with_the_secret},
	{"any number", test_any},
	{"a JOIN that comes after LEAVE", test_join_after_leave},
	{"a JOIN that comes after the job", test_join_after_the_job},
	{"a worker that comes back with a smaller MTU", test_smaller_mtu},
	{"the round trip of a worker", test_round_trip},
	{"the lease of a job's section", test_lease_of_the_section},
	{NULL, NULL},
};
