/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "fixture.h"

/* Sessions that have ended, and what copies of their frames are worth (R4.6, R4.8). */

const char unit_suite[] = "engine: sessions that have ended";

#define N 4

static const float ones[N] = {1, 1, 1, 1};

static struct fx_sent *
join_again(struct fx_worker *w)
{
	struct pbox_join m = fx_join_message(w);
	uint64_t token = w->token;
	struct fx_sent *s;

	w->token = 0;
	s = fx_join_with(w, &m, "key");
	w->token = token;
	return s;
}

/* Somebody saw the JOIN of a worker of another job, and used its nonce. */
static void
test_nonces_are_a_jobs(void)
{
	struct fx_worker v, e, late;
	struct pbox_join m;

	fx_begin();
	fx_join(&v, "vision", 0, 2);
	fx_join(&e, "speech", 1, 2);
	fx_leave(&e);
	e.nonce = v.nonce;
	e.token = 0;
	m = fx_join_message(&e);
	UNIT_EQ_U64(fx_join_with(&e, &m, "key")->hdr.type, PBOX_WELCOME);
	CU_ASSERT_EQUAL(
		pbox_welcome_decode(fx_last()->payload, fx_last()->hdr.length, &e.welcome), 0);
	e.token = e.welcome.token;
	fx_leave(&e);
	/* the session lives: the same WELCOME, as R4.6 says */
	UNIT_EQ_U64(join_again(&v)->hdr.type, PBOX_WELCOME);
	CU_ASSERT_EQUAL(
		pbox_welcome_decode(fx_last()->payload, fx_last()->hdr.length, &e.welcome), 0);
	UNIT_EQ_U64(e.welcome.token, v.token);
	/* and a nonce that has ended there is none that has ended here */
	fx_join(&late, "speech", 0, 2);
	late.token = 0;
	late.worker = 1;
	late.nonce = v.nonce + 1;
	m = fx_join_message(&late);
	UNIT_EQ_U64(fx_join_with(&late, &m, "key")->hdr.type, PBOX_WELCOME);
	fx_end();
}

/* Somebody has a copy of its JOIN; and it joins again itself, with its nonce (R10.1). */
static void
copy_is_none(struct fx_worker *v)
{
	struct fx_worker copy = *v;
	unsigned jobs = pbox_registrar_jobs(fx.registrar);

	UNIT_EQ_U64(join_again(v)->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_error(), PBOX_E_COOKIE);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), jobs);
	fx.now += 1000000;
	v->token = 0;
	fx_hello(v);
	fx_clear();
	UNIT_EQ_U64(join_again(v)->hdr.type, PBOX_WELCOME);
	CU_ASSERT_EQUAL(
		pbox_welcome_decode(fx_last()->payload, fx_last()->hdr.length, &v->welcome), 0);
	CU_ASSERT(v->welcome.token != copy.token);
	/* while it lives a copy of either gets it nothing new */
	UNIT_EQ_U64(join_again(&copy)->hdr.type, PBOX_WELCOME);
	UNIT_EQ_U64(fx_last()->hdr.token, v->welcome.token);
	v->token = v->welcome.token;
	v->job_no = v->welcome.job;
}

/* All workers of a job are silent for longer than their leases, and it ends. */
static void
test_job_without_leases(void)
{
	struct fx_worker v;

	fx.lease_ms = 3000;
	fx_begin();
	fx_join(&v, "vision", 0, 2);
	for (unsigned i = 0; i < 4; i++) {
		fx.now += UINT64_C(3100000000);
		fx_tick();
		UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
		copy_is_none(&v);
	}
	fx_end();
}

/* Its session makes way: for a newcomer, by policy shrink, or since its run ends. */
static void
test_sessions_that_made_way(void)
{
	struct fx_table t = {.elements = N, .op = PBOX_OP_SUM};
	struct fx_worker v[2], other;

	fx.lease_ms = 3000;
	fx.max_jobs = 8;
	fx_begin();
	fx_job(v, "six", 2, &t);
	fx.now += UINT64_C(3100000000);
	fx_control(&v[1], PBOX_PING, NULL, 0);
	fx_tick();
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 1);
	copy_is_none(&v[0]);

	fx_job(v, "speech", 2, &t);
	fx.now += UINT64_C(3100000000);
	fx_control(&v[1], PBOX_PING, NULL, 0);
	fx_tick();
	fx_join(&other, "speech", 0, 2);
	fx_leave(&other);
	copy_is_none(&v[0]);

	fx_job(v, "seven", 2, &t);
	other = v[0];
	memset(other.run, 7, sizeof(other.run));
	other.worker = 1;
	CU_ASSERT_FALSE(fx_try_join(&other)); /* another run: that which is there ends */
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	UNIT_EQ_U64(join_again(&v[0])->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_error(), PBOX_E_COOKIE);
	fx_end();
}

/* A job has ended, and begins again with another number of workers. Copies of JOINs of then say nothing of the workers
 * that it waits for now (R8.3). */
static void
test_copies_say_nothing(void)
{
	struct fx_worker v[2], now;
	const struct pbox_job *job;

	fx_begin();
	fx_join(&v[0], "vision", 0, 2);
	fx_join(&v[1], "vision", 1, 2);
	fx_leave(&v[0]);
	fx.now += UINT64_C(11000000000);
	fx_tick(); /* one has left, and the lease of the other is over */
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	fx_join(&now, "vision", 2, 3);
	job = pbox_registrar_job(fx.registrar, 0);
	for (unsigned i = 0; i < 2; i++) {
		UNIT_EQ_U64(join_again(&v[i])->hdr.type, PBOX_ERROR);
		UNIT_EQ_U64(fx_error(), PBOX_E_WORKERS);
		UNIT_EQ_U64(job->member[i].state, PBOX_MEMBER_ABSENT);
		UNIT_EQ_U64(job->member[i].left, PBOX_LEFT_UNKNOWN);
		UNIT_EQ_U64(job->member[i].last_seen, 0);
	}
	fx_end();
}

/* As long as a cookie is good, however many come and go. */
static void
test_many_come_and_go(void)
{
	struct fx_worker stay, w, first;

	fx_begin();
	fx_join(&stay, "vision", 0, 2);
	fx_join(&first, "vision", 1, 2);
	fx_leave(&first);
	for (unsigned i = 0; i < 5000; i++) {
		fx_join(&w, "vision", 1, 2);
		fx_leave(&w);
	}
	first.token = 0;
	UNIT_EQ_U64(join_again(&first)->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx.now += UINT64_C(4000000000);
	fx_hello(&first); /* the cookie is all that is newer */
	UNIT_EQ_U64(join_again(&first)->hdr.type, PBOX_ERROR);
	fx.now += UINT64_C(16000000000);
	fx_join(&stay, "speech", 0, 2);
	fx_tick();
	fx_hello(&first);
	UNIT_EQ_U64(join_again(&first)->hdr.type, PBOX_WELCOME);
	fx_end();
}

/* What the box remembers counts as the job's, and the job ends there. */
static void
test_what_is_remembered_is_charged(void)
{
	struct fx_worker stay, w;
	size_t before;
	unsigned n = 0;

	fx_begin();
	fx_join(&stay, "quota", 0, 2);
	before = pbox_registrar_job(fx.registrar, 0)->heap;
	for (struct fx_sent *s = NULL; n < 100000; n++) {
		struct pbox_join m;

		w = (struct fx_worker){.job = "quota",
			.worker = 1,
			.workers = 2,
			.ip = 1,
			.udp = 2,
			.mtu = 1500,
			.nonce = 5000 + n};
		fx_hello(&w);
		m = fx_join_message(&w);
		s = fx_join_with(&w, &m, "key");
		if (s->hdr.type != PBOX_WELCOME)
			break;
		CU_ASSERT_EQUAL(pbox_welcome_decode(s->payload, s->hdr.length, &w.welcome), 0);
		w.token = w.welcome.token;
		w.job_no = w.welcome.job;
		fx_leave(&w);
	}
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	CU_ASSERT(n > 1000 && n < 100000);
	CU_ASSERT(pbox_registrar_job(fx.registrar, 0)->heap >= before + n * 15);
	fx_end();
}

/* Another process, at another address. */
static void
join_from(struct fx_worker *w, uint16_t udp)
{
	struct pbox_join m;
	struct fx_sent *s;

	*w = (struct fx_worker){.job = "vision",
		.worker = 1,
		.workers = 2,
		.ip = 0x0A000909,
		.udp = udp,
		.mtu = 1500,
		.nonce = 4711u + udp};
	fx_hello(w);
	m = fx_join_message(w);
	s = fx_join_with(w, &m, "key");
	CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_WELCOME);
	CU_ASSERT_EQUAL(pbox_welcome_decode(s->payload, s->hdr.length, &w->welcome), 0);
	w->token = w->welcome.token;
	w->job_no = w->welcome.job;
}

/* A worker pushes, leaves, and another process gets its number, at another address. */
static void
test_results_are_the_sessions(void)
{
	struct fx_table t = {.elements = N, .op = PBOX_OP_SUM};
	struct fx_worker w[2], other;

	fx_begin();
	fx_job(w, "vision", 2, &t);
	CU_ASSERT_TRUE(fx_pushpull(&w[1], 1, ones, N));
	fx_leave(&w[1]);
	fx_clear();
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 1, ones, N));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
	UNIT_EQ_U64(fx_last()->hdr.worker, 0);
	t.flags = PBOX_DECLARE_CONTINUE;
	join_from(&other, 7777);
	fx_declare(&other, 0, &t);
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 2, ones, N));
	CU_ASSERT_TRUE(fx_pushpull(&other, 2, ones, N));
	fx_leave(&other);
	fx_join(&w[1], "vision", 1, 2);
	fx_declare(&w[1], 0, &t);
	CU_ASSERT_TRUE(fx_pushpull(&w[1], 3, ones, N));
	fx_leave(&w[1]);
	join_from(&other, 7778);
	fx_clear();
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 3, ones, N));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 1);
	UNIT_EQ_U64(fx_last()->hdr.worker, 0);
	fx_end();
}

static unsigned
errors_to(uint32_t ip, unsigned n)
{
	struct pbox_frame f = {.hdr = {.type = PBOX_PULL, .token = 99},
		.payload = (const uint8_t *)"",
		.peer = {.ip = htonl(ip), .udp = 5000}};
	unsigned got = 0;

	fx_clear();
	for (unsigned i = 0; i < n; i++) {
		pbox_shard_rx(fx.shard[0], &f, 1, fx.now);
		got += fx_count(PBOX_ERROR);
		fx_clear();
		f.hdr.type = PBOX_PING;
		pbox_registrar_rx(fx.registrar, &f, fx.now);
		f.hdr.type = PBOX_PULL;
		got += fx_count(PBOX_ERROR);
		fx_clear();
	}
	return got;
}

/* A stranger hears as much as is good for it, and a worker of an earlier box hears it all the same. */
static void
test_errors_have_sources(void)
{
	fx_begin();
	UNIT_EQ_U64(errors_to(0x0A000001, 1000), 128);
	UNIT_EQ_U64(errors_to(0x0A000002, 10), 20);
	fx_end();
}

/* One RETRY for a datagram of HELLOs (R4.7). */
static void
test_one_retry(void)
{
	uint8_t payload[PBOX_HELLO_LEN];
	struct pbox_hello m = {1, 1};
	struct pbox_frame f = {.hdr = {.type = PBOX_HELLO, .length = sizeof(payload)},
		.payload = payload,
		.peer = {.ip = htonl(1), .udp = 5000}};

	fx_begin();
	pbox_hello_encode(payload, sizeof(payload), &m);
	for (unsigned i = 0; i < 71; i++) {
		f.follows = i > 0;
		pbox_registrar_rx(fx.registrar, &f, fx.now);
	}
	UNIT_EQ_U64(fx_count(PBOX_RETRY), 1);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"nonces of one job say nothing of another", test_nonces_are_a_jobs},
	{"no copy of a JOIN opens a session whose lease has ended", test_job_without_leases},
	{"nor one that has made way", test_sessions_that_made_way},
	{"copies of JOINs say nothing of workers that are waited for", test_copies_say_nothing},
	{"nonces are kept as long as a cookie is good", test_many_come_and_go},
	{"what is remembered is charged", test_what_is_remembered_is_charged},
	{"results go to the session that asked", test_results_are_the_sessions},
	{"ERROR SESSION has a bound for each source", test_errors_have_sources},
	{"one RETRY a datagram", test_one_retry},
	{NULL, NULL},
};
