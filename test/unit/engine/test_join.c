/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: joining";

static struct fx_worker w[4];

static struct fx_worker
stranger(const char *job, uint16_t worker, uint16_t workers)
{
	return (struct fx_worker){.job = job,
		.worker = worker,
		.workers = workers,
		.ip = 0x0A000200u + worker,
		.udp = 6000,
		.mtu = 1500,
		.nonce = 55u + worker};
}

static void
test_hello(void)
{
	struct pbox_hello m = {2, 3};
	uint8_t payload[PBOX_HELLO_LEN];

	fx_begin();
	w[0] = stranger("vision", 0, 1);
	fx_hello(&w[0]);
	pbox_hello_encode(payload, sizeof(payload), &m);
	fx_control(&w[0], PBOX_HELLO, payload, sizeof(payload));
	UNIT_EQ_U64(fx_error(), PBOX_E_VERSION);
	CU_ASSERT_PTR_NULL(fx_control(&w[0], PBOX_HELLO, payload, 63));
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_MALFORMED], 1);
	UNIT_EQ_U64(fx.rs[PBOX_RS_JOBS], 0); /* nothing is kept */
	fx_end();
}

static void
test_version(void)
{
	struct pbox_frame f = {.hdr = {.type = 0x77, .length = PBOX_HELLO_LEN, .token = 5},
		.peer = {.ip = htonl(0x0a000009), .udp = 4009}};
	struct pbox_hello hello = {2, 4};
	uint8_t payload[PBOX_HELLO_LEN];

	fx_begin();
	fx_tick();
	pbox_registrar_version(fx.registrar, &f, 7);
	UNIT_EQ_U64(fx_error(), PBOX_E_VERSION);
	UNIT_EQ_U64(fx.rs[PBOX_RS_REFUSED], 0); /* it is counted as frame_version */
	CU_ASSERT(fx_last()->hdr.length <= PBOX_HELLO_LEN);
	CU_ASSERT_STRING_EQUAL(fx.event,
		"10.0.0.9:4009 speaks protocol version 7, this box version 1: install the same release there");
	/* a flood of them is answered, and not logged */
	fx.event[0] = '\0';
	for (unsigned i = 0; i < 1000; i++)
		pbox_registrar_version(fx.registrar, &f, 7);
	CU_ASSERT_STRING_EQUAL(fx.event, "");
	fx.now += UINT64_C(10000000000);
	w[0] = (struct fx_worker){.ip = 0x0a00000b, .udp = 4011};
	pbox_hello_encode(payload, sizeof(payload), &hello);
	fx_control(&w[0], PBOX_HELLO, payload, sizeof(payload));
	UNIT_EQ_U64(fx_error(), PBOX_E_VERSION);
	CU_ASSERT_STRING_EQUAL(fx.event,
		"10.0.0.11:4011 speaks protocol version 2 to 4, this box version 1: install the same release there (and 1000 more before it)");
	fx_end();
}

/* R4.4, R4.5: no secret is wrong for a job that has none, and WELCOME says so. */
static void
test_insecure(void)
{
	static const char *const secret[] = {"", "any"};
	struct pbox_welcome m;
	struct pbox_join j;
	struct fx_sent *s;

	fx_begin();
	for (uint16_t i = 0; i < 2; i++) {
		w[i] = stranger("open", i, 2);
		fx_hello(&w[i]);
		j = fx_join_message(&w[i]);
		s = fx_join_with(&w[i], &j, secret[i]);
		CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_WELCOME);
		UNIT_EQ_U64(pbox_welcome_decode(s->payload, s->hdr.length, &m), 0);
		UNIT_EQ_U64(m.flags, PBOX_WELCOME_INSECURE | 1u << PBOX_CAN_SLOTS |
					     1u << PBOX_CAN_CLOCK | 1u << PBOX_CAN_WORK |
					     1u << PBOX_CAN_BLOCK | 1u << PBOX_CAN_NORM);
		CU_ASSERT(pbox_proof_good("", 0, PBOX_WELCOME_PROOF_PREFIX, s->payload,
			s->hdr.length, PBOX_WELCOME_PROOF_AT));
	}
	fx_end();
}

/* R3.4 */
static void
test_names(void)
{
	struct pbox_join m;

	fx_begin();
	w[0] = stranger("nobody", 0, 1);
	fx_hello(&w[0]);
	m = fx_join_message(&w[0]);
	strcpy(m.job, "vis\xff");
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_JOB);
	CU_ASSERT_STRING_EQUAL(fx_error_text(), "the job's name is not UTF-8 (R3.4)");
	fx_end();
}

static void
test_welcome(void)
{
	fx_begin();
	fx_join(&w[0], "vision", 1, 2);
	UNIT_EQ_U64(w[0].welcome.worker, 1);
	UNIT_EQ_U64(w[0].welcome.workers, 2);
	UNIT_EQ_U64(w[0].welcome.endpoints, 2);
	UNIT_EQ_U64(w[0].welcome.endpoint[1].udp, 7271);
	UNIT_EQ_U64(w[0].welcome.lease_ms, 10000);
	CU_ASSERT(w[0].welcome.token != 0);
	CU_ASSERT(w[0].welcome.window > 0 && w[0].welcome.window <= 100);
	UNIT_EQ_U64(fx.rs[PBOX_RS_WORKERS], 1);
	fx_end();
}

/* R9.2: the last answer is a refusal of this JOIN, by somebody who has the secret. */
static bool
refused_by(const char *secret, const struct pbox_join *m)
{
	const struct fx_sent *s = fx_last();
	struct pbox_error_tail t;
	size_t end = pbox_error_tail_decode(s->payload, s->hdr.length, &t);

	return end > 0 && end <= PBOX_JOIN_LEN && t.nonce == m->nonce &&
	       t.request == s->hdr.chunk &&
	       pbox_proof_good(secret, strlen(secret), PBOX_ERROR_PROOF_PREFIX, s->payload, end,
		       PBOX_ERROR_PROOF_AT(end));
}

/* Everything is wrong; one thing after the other is put right (R4.4). */
static void
test_errors_come_in_order(void)
{
	struct pbox_join m;

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	w[1] = stranger("nobody", 0, 3);
	m = fx_join_message(&w[1]);
	fx_join_with(&w[1], &m, "wrong");
	UNIT_EQ_U64(fx_error(), PBOX_E_COOKIE);
	fx_hello(&w[1]);
	m = fx_join_message(&w[1]);
	fx_join_with(&w[1], &m, "wrong");
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_JOB);
	CU_ASSERT_STRING_EQUAL(fx_error_text(), "no job 'nobody' is configured here");
	strcpy(m.job, "vision");
	fx_join_with(&w[1], &m, "wrong");
	UNIT_EQ_U64(fx_error(), PBOX_E_SECRET);
	CU_ASSERT_STRING_EQUAL(fx_error_text(), "the secret of job 'vision' is another one");
	CU_ASSERT_FALSE(refused_by("key", &m));
	fx_join_with(&w[1], &m, "");
	UNIT_EQ_U64(fx_error(), PBOX_E_SECRET);
	CU_ASSERT_STRING_EQUAL(
		fx_error_text(), "job 'vision' has a secret, and this worker was given none");
	CU_ASSERT_FALSE(refused_by("key", &m));
	CU_ASSERT_FALSE(refused_by("", &m));
	fx_join_with(&w[1], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKERS);
	CU_ASSERT_TRUE(refused_by("key", &m));
	CU_ASSERT_FALSE(refused_by("wrong", &m));
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "job 'vision' has 2 workers"));
	m.workers = 2;
	fx_join_with(&w[1], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(fx_error_text(), "worker 0 of job 'vision' is taken by host0"));
	m.worker = 1;
	CU_ASSERT_EQUAL(fx_join_with(&w[1], &m, "key")->hdr.type, PBOX_WELCOME);
	UNIT_EQ_U64(fx.rs[PBOX_RS_REFUSED], 6);
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_COOKIE], 1);
	fx_end();
}

static void
test_fields_out_of_range(void)
{
	struct pbox_join m;

	fx_begin();
	w[0] = stranger("vision", 2, 2);
	fx_hello(&w[0]);
	m = fx_join_message(&w[0]);
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	m.worker = 0;
	m.workers = 0;
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	m.workers = 65; /* of at most 64 */
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	m.workers = 2;
	m.mtu = 153;
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	strcpy(m.job, "three"); /* configured for three */
	m.mtu = 1500;
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKERS);
	UNIT_EQ_U64(fx.rs[PBOX_RS_JOBS], 0);
	fx_end();
}

static void
test_repeated_join(void)
{
	struct pbox_join m;
	uint64_t token;

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	token = w[0].token;
	m = fx_join_message(&w[0]);
	w[0].token = 0;
	CU_ASSERT_EQUAL(fx_join_with(&w[0], &m, "key")->hdr.type, PBOX_WELCOME);
	UNIT_EQ_U64(fx_last()->hdr.token, token);
	m.worker = PBOX_NO_WORKER; /* also when it asked for any */
	CU_ASSERT_EQUAL(fx_join_with(&w[0], &m, "key")->hdr.type, PBOX_WELCOME);
	UNIT_EQ_U64(fx_last()->hdr.token, token);
	UNIT_EQ_U64(fx.rs[PBOX_RS_WORKERS], 1);
	w[0].token = token;
	fx_end();
}

static void
test_any_number(void)
{
	fx_begin();
	fx_join(&w[0], "vision", 1, 3);
	for (unsigned i = 1; i < 3; i++) {
		struct pbox_join m;
		struct pbox_welcome a;
		struct fx_sent *s;

		w[i] = stranger("vision", PBOX_NO_WORKER, 3);
		w[i].nonce = i;
		w[i].udp = (uint16_t)(100 + i);
		fx_hello(&w[i]);
		m = fx_join_message(&w[i]);
		if (i == 1) { /* R4.6b: worker 0 or 2 may come again */
			fx_join_with(&w[i], &m, "key");
			UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
			CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "before a restart"));
			fx.now += UINT64_C(2000000000);
		}
		s = fx_join_with(&w[i], &m, "key");
		CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_WELCOME);
		pbox_welcome_decode(s->payload, s->hdr.length, &a);
		UNIT_EQ_U64(a.worker, i == 1 ? 0 : 2);
		if (i == 2) {
			m.nonce = 99;
			fx_join_with(&w[i], &m, "key");
			UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
			CU_ASSERT_PTR_NOT_NULL(strstr(
				fx_error_text(), "all 3 workers of job 'vision' have joined"));
		}
	}
	fx_end();
}

static struct fx_sent *
join_any(unsigned i)
{
	struct pbox_join m;

	w[i] = stranger("vision", PBOX_NO_WORKER, 3);
	w[i].nonce = 70 + i;
	w[i].udp = (uint16_t)(100 + i);
	fx_hello(&w[i]);
	m = fx_join_message(&w[i]);
	return fx_join_with(&w[i], &m, "key");
}

/* R4.6b: they wait for two seconds and no longer, and only where somebody has come with a number. */
static void
test_numbers_are_kept(void)
{
	fx_begin();
	for (unsigned i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(join_any(i)->hdr.type, PBOX_WELCOME);
	fx_end();

	fx_begin();
	CU_ASSERT_EQUAL(
		join_any(0)->hdr.type, PBOX_WELCOME); /* the first one, before anybody has */
	fx_join(&w[1], "vision", 2, 3);
	fx.now += UINT64_C(1999999999);
	join_any(2);
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	fx_join(&w[3], "vision", 1, 3); /* who has one does not wait */
	join_any(2);                    /* and where none is free, that is said */
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "have joined"));
	fx_leave(&w[3]);
	join_any(2);
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "before a restart"));
	fx.now++;
	CU_ASSERT_EQUAL(join_any(2)->hdr.type, PBOX_WELCOME);
	fx_end();
}

/* R4.6: another nonce gets the number when the session has been silent beyond its lease. */
static void
test_takeover_after_the_lease(void)
{
	struct pbox_join m;
	uint64_t old;

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	fx_join(&w[1], "vision", 1, 2);
	old = w[0].token;
	fx.now += UINT64_C(9999000000);
	fx_control(&w[1], PBOX_PING, NULL, 0);
	w[2] = stranger("vision", 0, 2);
	fx_hello(&w[2]);
	m = fx_join_message(&w[2]);
	fx_join_with(&w[2], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	fx.now += UINT64_C(2000000);
	fx_tick();
	UNIT_EQ_U64(fx.rs[PBOX_RS_EXPIRED], 1);
	CU_ASSERT_EQUAL(fx_join_with(&w[2], &m, "key")->hdr.type, PBOX_WELCOME);
	CU_ASSERT(fx_last()->hdr.token != old);
	CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_SESSION_TOKEN], 1);
	UNIT_EQ_U64(fx.rs[PBOX_RS_WORKERS], 2);
	fx_end();
}

static void
test_cookie_ages(void)
{
	struct pbox_join m;

	fx_begin();
	w[0] = stranger("vision", 0, 1);
	fx_hello(&w[0]);
	m = fx_join_message(&w[0]);
	fx.now += UINT64_C(16000000000);
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_COOKIE);
	fx_hello(&w[0]);
	m = fx_join_message(&w[0]);
	w[0].udp++; /* from another port */
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_COOKIE);
	w[0].udp--;
	fx.now += UINT64_C(7900000000);
	CU_ASSERT_EQUAL(fx_join_with(&w[0], &m, "key")->hdr.type, PBOX_WELCOME);
	fx_end();
}

/* The WELCOME waits until all shards know the job. */
static void
test_welcome_waits_for_the_shards(void)
{
	struct pbox_join m;

	fx.hold_mail = true;
	fx_begin();
	w[0] = stranger("vision", 0, 1);
	fx_hello(&w[0]);
	m = fx_join_message(&w[0]);
	CU_ASSERT_PTR_NULL(fx_join_with(&w[0], &m, "key"));
	CU_ASSERT_PTR_NULL(fx_join_with(&w[0], &m, "key")); /* repeated meanwhile */
	fx_mail();
	UNIT_EQ_U64(fx_count(PBOX_WELCOME), 1);
	UNIT_EQ_U64(fx_last()->hdr.chunk, w[0].request);
	fx_end();
}

/* As many jobs as there may be find room, the last ones with less. */
static void
test_max_jobs_find_room(void)
{
	static const char *const name[] = {
		"vision", "speech", "three", "quota", "five", "six", "seven", "eight"};
	static const unsigned window[] = {8, 8, 4, 2, 2, 2, 2, 2};
	static struct fx_worker j[8];

	fx.max_jobs = 8;
	fx.hold = 64;
	fx_begin();
	for (unsigned i = 0; i < 8; i++) {
		fx_join(&j[i], name[i], 0, i == 2 ? 3 : 2);
		UNIT_EQ_U64(j[i].welcome.window, window[i]);
	}
	fx_end();
}

static void
test_full(void)
{
	struct pbox_join m;

	fx.max_jobs = 1;
	fx.hold = 4;
	fx_begin();
	w[0] = stranger("vision", 0, 5);
	fx_hello(&w[0]);
	m = fx_join_message(&w[0]);
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_FULL);
	CU_ASSERT_STRING_EQUAL(
		fx_error_text(), "no packet buffers left for 5 workers (4 free): raise 'hold'");
	fx_join(&w[1], "vision", 0, 1);
	w[2] = stranger("speech", 0, 1);
	fx_hello(&w[2]);
	m = fx_join_message(&w[2]);
	fx_join_with(&w[2], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_FULL);
	CU_ASSERT_STRING_EQUAL(fx_error_text(), "the box has its 1 jobs already: raise max-jobs");
	fx_end();
}

static void
test_no_memory_for_rounds(void)
{
	struct pbox_join m;

	fx.arena_size = 2048;
	fx_begin();
	w[0] = stranger("vision", 0, 4);
	fx_hello(&w[0]);
	m = fx_join_message(&w[0]);
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	UNIT_EQ_U64(pbox_arena_used(fx.arena), 0);
	fx_end();
}

/* Who knows no secret is refused as often as it asks, and fills no log. */
static void
test_refusals_do_not_fill_the_log(void)
{
	struct fx_worker stranger = {.job = "vision", .worker = 0, .workers = 2, .ip = 1, .udp = 1};
	struct pbox_join m;

	fx_begin();
	fx_hello(&stranger);
	m = fx_join_message(&stranger);
	fx.events = 0;
	for (unsigned i = 0; i < 5000; i++) {
		fx_join_with(&stranger, &m, "wrong");
		UNIT_EQ_U64(fx_error(), PBOX_E_SECRET);
		fx_clear();
	}
	CU_ASSERT(fx.events > 0 && fx.events <= 128);
	fx.now += 1000000000;
	pbox_registrar_tick(fx.registrar, fx.now);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "and 4872 more lines like"));
	fx_end();
}

/* Has nothing but the lines of a bucket been logged, in no time, of so many refusals? */
static void
lines_are_bounded(unsigned n, const char *like)
{
	char more[64];

	CU_ASSERT(fx.events > 0 && fx.events <= 128);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, like));
	snprintf(more, sizeof(more), "and %u more lines like", n - 128);
	fx.now += 1000000000;
	fx_tick();
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, more));
}

/* Nor does who knows it: with a number of workers, a policy or an MTU that is another. */
static void
test_refusals_of_workers_do_not_fill_the_log(void)
{
	enum {
		MANY = 3000,
	};
	static const char *const like[] = {"says 3", "asks for policy", "has 1000"};
	struct fx_table t = {.elements = 4, .op = PBOX_OP_SUM};
	struct fx_worker member[2];

	for (unsigned kind = 0; kind < 3; kind++) {
		struct pbox_join m;

		fx_begin();
		fx_job(member, "five", 2, &t);
		fx_leave(&member[1]);
		w[0] = stranger("five", 1, 2);
		fx_hello(&w[0]);
		m = fx_join_message(&w[0]);
		m.nonce = 1u << 20; /* of no session */
		m.workers += kind == 0;
		m.policy = kind == 1 ? PBOX_POLICY_SHRINK : m.policy;
		m.mtu = kind == 2 ? 1000 : m.mtu;
		fx.events = 0;
		for (unsigned i = 0; i < MANY; i++) {
			m.nonce++;
			fx_join_with(&w[0], &m, "key");
			UNIT_EQ_U64(fx_error(), kind == 0 ? PBOX_E_WORKERS : PBOX_E_BAD_REQUEST);
		}
		lines_are_bounded(MANY, like[kind]);
		fx_end();
	}
}

/* Nor who joins and leaves in turn: alone, so that its job begins and ends each time, and beside another. */
static void
test_joins_and_leaves_do_not_fill_the_log(void)
{
	enum {
		MANY = 3000,
		KINDS = 4, /* begins, joined, left, ends */
	};
	struct fx_worker other;

	for (unsigned beside = 0; beside < 2; beside++) {
		fx_begin();
		if (beside != 0)
			fx_join(&other, "vision", 0, 2);
		fx.events = 0;
		for (unsigned i = 0; i < MANY; i++) {
			fx_join(&w[1], "vision", 1, 2);
			fx_leave(&w[1]);
			fx_work();
			fx_tick();
		}
		CU_ASSERT(fx.events > 0 && fx.events <= KINDS * 128);
		fx.now += 1000000000;
		fx_tick();
		CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "and 2872 more lines like"));
		fx_end();
	}
}

/* R4.4: a worker that does not know that WELCOME has a number would take it for an endpoint. And what a later one says is
 * not known: its bytes may mean something else. */
static void
test_revision(void)
{
	struct pbox_join m;

	fx_begin();
	w[0] = stranger("vision", 0, 1);
	fx_hello(&w[0]);
	m = fx_join_message(&w[0]);
	m.revision = 0;
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_VERSION);
	CU_ASSERT(strstr(fx_error_text(), "an earlier release than the box") != NULL);
	CU_ASSERT(strstr(fx.event, "earlier release") != NULL);
	fx.event[0] = 0;
	fx_join_with(&w[0], &m, "key");
	CU_ASSERT_STRING_EQUAL(fx.event, ""); /* answered again, not logged */
	UNIT_EQ_U64(fx.rs[PBOX_RS_JOBS], 0);
	for (unsigned revision = PBOX_REVISION + 1; revision < 256; revision++) {
		m.revision = (uint8_t)revision;
		fx_join_with(&w[0], &m, "key");
		UNIT_EQ_U64(fx_error(), PBOX_E_VERSION);
		CU_ASSERT(strstr(fx_error_text(), "a later release than the box") != NULL);
	}
	UNIT_EQ_U64(fx.rs[PBOX_RS_JOBS], 0);
	m.revision = PBOX_REVISION;
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx.rs[PBOX_RS_JOBS], 1);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"refusals do not fill the log", test_refusals_do_not_fill_the_log},
	{"nor those of workers", test_refusals_of_workers_do_not_fill_the_log},
	{"nor joins and leaves in turn", test_joins_and_leaves_do_not_fill_the_log},
	{"a job without a secret", test_insecure},
	{"names", test_names},
	{"HELLO", test_hello},
	{"another version", test_version},
	{"WELCOME", test_welcome},
	{"errors in the order of R4.4", test_errors_come_in_order},
	{"fields out of range", test_fields_out_of_range},
	{"a repeated JOIN", test_repeated_join},
	{"any number", test_any_number},
	{"numbers are kept for those that had them", test_numbers_are_kept},
	{"a number is free when its lease is over", test_takeover_after_the_lease},
	{"a cookie ages, and belongs to an address", test_cookie_ages},
	{"WELCOME waits for the shards", test_welcome_waits_for_the_shards},
	{"as many jobs as there may be find room", test_max_jobs_find_room},
	{"no room", test_full},
	{"no memory for rounds", test_no_memory_for_rounds},
	{"a library of another release", test_revision},
	{NULL, NULL},
};
