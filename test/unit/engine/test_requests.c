/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: requests, leases, the end";

static struct fx_worker w[4];
static const struct fx_table sgd = {
	.elements = 4, .mode = PBOX_MODE_OPTIMISER, .optimiser = PBOX_OPT_SGD};

static void
test_set(void)
{
	fx_begin();
	fx_job(w, "vision", 2, &sgd);
	CU_ASSERT_EQUAL(fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 0.5)->hdr.type, PBOX_SET_OK);
	CU_ASSERT_EQUAL(fx_set(&w[1], 0, 1, PBOX_HYPER_LR, 0.5)->hdr.type, PBOX_SET_OK);
	fx_set(&w[1], 0, 1, PBOX_HYPER_LR, 0.25);
	UNIT_EQ_U64(fx_error(), PBOX_E_SET_CONFLICT);
	CU_ASSERT_EQUAL(fx_set(&w[0], 0, 3, PBOX_HYPER_LR, 0.5)->hdr.type, PBOX_SET_OK);
	fx_set(&w[1], 0, 2, PBOX_HYPER_LR, 0.5);
	UNIT_EQ_U64(fx_error(), PBOX_E_SET_ORDER);
	fx_set(&w[1], 0, 0, PBOX_HYPER_LR, 0.5);
	UNIT_EQ_U64(fx_error(), PBOX_E_SET_LATE);
	fx_set(&w[1], 0, 3, PBOX_HYPER_LR, -1.0);
	UNIT_EQ_U64(fx_error(), PBOX_E_SET_CONFLICT);
	fx_set(&w[1], 0, 4, PBOX_HYPER_LR, -1.0);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx_set(&w[1], 7, 4, PBOX_HYPER_LR, 1.0);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_STRING_EQUAL(fx_error_text(), "table 7 is not mapped yet");
	CU_ASSERT_PTR_NULL(fx_control(&w[0], PBOX_SET, "short", 5));
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_MALFORMED], 1);
	fx_end();
}

static void
test_set_of_unknown_group(void)
{
	struct pbox_set m = {.group = 1, .from_round = 1};
	uint8_t payload[64];

	fx_begin();
	fx_job(w, "vision", 1, &sgd);
	fx_control(&w[0], PBOX_SET, payload, pbox_set_encode(payload, sizeof(payload), &m));
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_STRING_EQUAL(fx_error_text(), "table 0 has groups 0 to 0, not 1");
	fx_end();
}

static void
test_status(void)
{
	struct pbox_status m = {0};
	struct pbox_status_ok a;
	struct pbox_member_entry e;
	struct pbox_cursor cur;
	uint8_t payload[8];
	struct fx_sent *s;
	size_t len = pbox_status_encode(payload, sizeof(payload), &m);

	fx_begin();
	fx_join(&w[0], "vision", 0, 3);
	fx_join(&w[1], "vision", 1, 3);
	fx_leave(&w[1]);
	fx.now += UINT64_C(250000000);
	s = fx_control(&w[0], PBOX_STATUS, payload, len);
	CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_STATUS_OK);
	CU_ASSERT_EQUAL_FATAL(pbox_status_ok_decode(s->payload, s->hdr.length, &a, &cur), 0);
	UNIT_EQ_U64(a.workers, 3);
	UNIT_EQ_U64(a.joined, 1);
	UNIT_EQ_U64(a.count, 3);
	CU_ASSERT_STRING_EQUAL(
		a.text, "job 'vision': 1 of 3 workers have joined; first missing: worker 1 (left)");
	pbox_status_ok_next(&cur, &e);
	UNIT_EQ_U64(e.state, PBOX_MEMBER_JOINED);
	UNIT_EQ_U64(e.silent_ms, 0);
	CU_ASSERT_STRING_EQUAL(e.host, "host0");
	pbox_status_ok_next(&cur, &e);
	UNIT_EQ_U64(e.state, PBOX_MEMBER_LEFT);
	UNIT_EQ_U64(e.silent_ms, 250);
	pbox_status_ok_next(&cur, &e);
	UNIT_EQ_U64(e.state, PBOX_MEMBER_ABSENT);
	UNIT_EQ_U64(e.silent_ms, UINT32_MAX);
	CU_ASSERT_PTR_NULL(fx_control(&w[0], PBOX_STATUS, payload, 1));
	/* from a worker on that there is not: a page of it would contradict itself (R3.3) */
	for (m.first = w[0].workers + 1; m.first < 60000; m.first += 29999) {
		pbox_status_encode(payload, sizeof(payload), &m);
		s = fx_control(&w[0], PBOX_STATUS, payload, len);
		CU_ASSERT_PTR_NOT_NULL_FATAL(s);
		UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	}
	fx_end();
}

/* Worker 1 as STATUS has it, and its text. */
static struct pbox_member_entry
told_of(struct fx_worker *x, uint16_t number, char text[512])
{
	struct pbox_status m = {.first = number};
	struct pbox_member_entry e = {0};
	struct pbox_status_ok a;
	struct pbox_cursor cur;
	uint8_t payload[8];
	struct fx_sent *s = fx_control(
		x, PBOX_STATUS, payload, pbox_status_encode(payload, sizeof(payload), &m));

	CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_STATUS_OK);
	CU_ASSERT_EQUAL_FATAL(pbox_status_ok_decode(s->payload, s->hdr.length, &a, &cur), 0);
	pbox_status_ok_next(&cur, &e);
	snprintf(text, 512, "%s", a.text);
	return e;
}

/* What worker x hears of worker `first`, having said that it waits for it. */
static bool
in_circle(struct fx_worker *x, uint16_t first, uint16_t flags, char text[512])
{
	struct pbox_status m = {.first = first, .flags = flags, .round = 2 + first};
	uint8_t payload[PBOX_STATUS_MAX];
	struct pbox_status_ok a = {0};
	struct pbox_cursor cur;
	struct fx_sent *s = fx_control(
		x, PBOX_STATUS, payload, pbox_status_encode(payload, sizeof(payload), &m));

	CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_STATUS_OK);
	CU_ASSERT_EQUAL_FATAL(pbox_status_ok_decode(s->payload, s->hdr.length, &a, &cur), 0);
	snprintf(text, 512, "%s", a.text);
	return a.flags == PBOX_STATUS_CIRCLE;
}

/* R8.3a: workers that wait for each other, though all live. */
static void
test_circle(void)
{
	char text[512];

	fx_begin();
	fx_job(w, "vision", 4, &sgd);
	CU_ASSERT_FALSE(in_circle(&w[0], 1, PBOX_STATUS_WAITS, text));
	CU_ASSERT_STRING_EQUAL(text, "job 'vision': all 4 workers have joined");
	CU_ASSERT_FALSE(in_circle(&w[1], 2, PBOX_STATUS_WAITS, text));
	CU_ASSERT_FALSE(in_circle(&w[2], 0, 0, text)); /* asks, and does not wait */
	CU_ASSERT_FALSE(in_circle(&w[0], 1, PBOX_STATUS_WAITS, text));
	CU_ASSERT(in_circle(&w[2], 0, PBOX_STATUS_WAITS, text));
	CU_ASSERT_STRING_EQUAL(
		text, "worker 0 waits for worker 1, with round 3 of tensor 'weight' of table 0");
	CU_ASSERT(in_circle(&w[1], 2, PBOX_STATUS_WAITS, text));
	/* one outside of it waits for one of them; one that waits for nobody is in none */
	CU_ASSERT(in_circle(&w[3], 1, PBOX_STATUS_WAITS, text));
	CU_ASSERT_STRING_EQUAL(
		text, "worker 1 waits for worker 2, with round 4 of tensor 'weight' of table 0");
	CU_ASSERT(in_circle(&w[2], 1, 0, text));
	CU_ASSERT_FALSE(in_circle(&w[2], 4, PBOX_STATUS_WAITS, text)); /* there is no worker 4 */
	fx.now += UINT64_C(1900000000);
	CU_ASSERT(in_circle(&w[2], 1, 0, text));
	fx.now += UINT64_C(200000000);
	CU_ASSERT_FALSE(in_circle(&w[2], 1, 0, text)); /* none has said so lately */
	/* a circle of one; and who has left waits for nobody */
	CU_ASSERT(in_circle(&w[2], 2, PBOX_STATUS_WAITS, text));
	CU_ASSERT(in_circle(&w[1], 2, PBOX_STATUS_WAITS, text));
	fx_leave(&w[2]);
	CU_ASSERT_FALSE(in_circle(&w[1], 2, PBOX_STATUS_WAITS, text));
	fx_end();
}

/* R8.3: why a worker is missing is said to those that wait for it. */
static void
test_refused(void)
{
	struct fx_table other = sgd;
	struct pbox_member_entry e;
	struct pbox_join m;
	struct pbox_error err;
	char text[512];

	fx_begin();
	fx_job(w, "vision", 2, &sgd);
	fx_leave(&w[1]);
	/* a JOIN of another process, with another number of workers; nobody else has the number */
	w[1].nonce += 1000;
	fx_hello(&w[1]);
	m = fx_join_message(&w[1]);
	m.workers = 3;
	fx_join_with(&w[1], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKERS);
	e = told_of(&w[0], 1, text);
	UNIT_EQ_U64(e.state, PBOX_MEMBER_LEFT);
	UNIT_EQ_U64(e.reason, PBOX_LEFT_REFUSED);
	CU_ASSERT_STRING_EQUAL(text,
		"job 'vision' has 2 workers, and a worker (host1) says 3: give all the same number");
	/* one that is in, and declares other tables */
	fx_join(&w[1], "vision", 1, 2);
	UNIT_EQ_U64(told_of(&w[0], 1, text).reason, PBOX_LEFT_UNKNOWN);
	other.elements = 5;
	fx_declare(&w[1], 0, &other);
	UNIT_EQ_U64(fx_error(), PBOX_E_MISMATCH);
	e = told_of(&w[0], 1, text);
	UNIT_EQ_U64(e.state, PBOX_MEMBER_JOINED);
	UNIT_EQ_U64(e.reason, PBOX_LEFT_REFUSED);
	UNIT_EQ_U64(e.declared, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "with 5 elements"));
	/* text of who is not concerned */
	UNIT_EQ_U64(told_of(&w[0], 0, text).reason, PBOX_LEFT_UNKNOWN);
	CU_ASSERT_STRING_EQUAL(text, "job 'vision': all 2 workers have joined");
	/* it leaves for that; or declares what it should */
	fx_leave(&w[1]);
	e = told_of(&w[0], 1, text);
	UNIT_EQ_U64(e.state, PBOX_MEMBER_LEFT);
	UNIT_EQ_U64(e.reason, PBOX_LEFT_REFUSED);
	fx_join(&w[1], "vision", 1, 2);
	fx_declare(&w[1], 0, &other);
	CU_ASSERT_EQUAL(fx_declare(&w[1], 0, &sgd)->hdr.type, PBOX_DECLARED);
	UNIT_EQ_U64(told_of(&w[0], 1, text).reason, PBOX_LEFT_UNKNOWN);
	/* an operator's words */
	CU_ASSERT_EQUAL(pbox_registrar_kick(
				fx.registrar, w[0].job_no, 1, "its fan is broken", fx.now, &err),
		0);
	e = told_of(&w[0], 1, text);
	UNIT_EQ_U64(e.reason, PBOX_LEFT_KICKED);
	CU_ASSERT_STRING_EQUAL(
		text, "the operator of the box ended worker 1 of job 'vision': its fan is broken");
	/* without the secret nobody says anything about a worker */
	fx_hello(&w[1]);
	m = fx_join_message(&w[1]);
	m.workers = 3;
	fx_join_with(&w[1], &m, "wrong");
	UNIT_EQ_U64(fx_error(), PBOX_E_SECRET);
	UNIT_EQ_U64(told_of(&w[0], 1, text).reason, PBOX_LEFT_KICKED);
	fx_end();
}

static void
test_ping_and_unknown_types(void)
{
	static char long_text[1500];
	struct fx_sent *s;

	for (unsigned i = 0; i < sizeof(long_text); i++)
		long_text[i] = (char)(i % 251);
	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	s = fx_control(&w[0], PBOX_PING, "hello", 5);
	CU_ASSERT_EQUAL(s->hdr.type, PBOX_PONG);
	UNIT_EQ_U64(s->hdr.length, 5);
	UNIT_EQ_U64(s->hdr.ts, (uint32_t)(fx.now / 1000) + fx.stamps);
	CU_ASSERT_EQUAL(memcmp(s->payload, "hello", 5), 0);
	/* as much as fits an MTU of 1500 (R8.1) */
	s = fx_control(&w[0], PBOX_PING, long_text, sizeof(long_text));
	UNIT_EQ_U64(s->hdr.length, 1500 - PBOX_MTU_OVERHEAD);
	CU_ASSERT_EQUAL(memcmp(s->payload, long_text, s->hdr.length), 0);
	CU_ASSERT_PTR_NULL(fx_control(&w[0], PBOX_WELCOME, NULL, 0));
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_TYPE], 1);
	fx_end();
}

static void
test_sessions_are_checked(void)
{
	struct fx_worker x;

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	x = w[0];
	x.token++;
	CU_ASSERT_EQUAL(fx_control(&x, PBOX_LEAVE, NULL, 0)->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_SESSION);
	UNIT_EQ_U64(fx_last()->hdr.length, 0);
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_SESSION_TOKEN], 1);
	x = w[0];
	x.worker = 1;
	fx_control(&x, PBOX_LEAVE, NULL, 0);
	x.worker = 2;
	fx_control(&x, PBOX_LEAVE, NULL, 0);
	x = w[0];
	x.job_no = 3;
	fx_control(&x, PBOX_LEAVE, NULL, 0);
	x.job_no = 60000;
	fx_control(&x, PBOX_LEAVE, NULL, 0);
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_SESSION_UNKNOWN], 4);
	UNIT_EQ_U64(fx.rs[PBOX_RS_WORKERS], 1);
	fx_end();
}

/* R4.8: a sender that guesses tokens, or forges senders, gets few answers; a restarted worker gets one. */
static void
test_session_errors_are_few(void)
{
	struct fx_worker x;
	unsigned answers = 0;

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	x = w[0];
	x.token++;
	for (unsigned i = 0; i < 1000; i++)
		answers += fx_control(&x, PBOX_LEAVE, NULL, 0) != NULL;
	UNIT_EQ_U64(answers, 64);
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_SESSION_TOKEN], 1000);
	fx.now += UINT64_C(5000000);
	CU_ASSERT_PTR_NOT_NULL(fx_control(&x, PBOX_LEAVE, NULL, 0));
	CU_ASSERT_PTR_NULL(fx_control(&x, PBOX_LEAVE, NULL, 0));
	/* those with a session do not suffer from it */
	CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	fx_end();
}

/* A SET for all groups that one of them refuses leaves the others as they were. */
static void
test_set_of_all_groups_is_whole(void)
{
	static const struct fx_table two = {
		.elements = 4, .mode = PBOX_MODE_OPTIMISER, .optimiser = PBOX_OPT_SGD, .group = 1};
	struct pbox_set m = {
		.group = 1, .from_round = 3, .count = 1, .param = {{PBOX_HYPER_LR, 0.5}}};
	struct pbox_schedule *s;
	uint8_t payload[64];

	fx_begin();
	fx_job(w, "vision", 1, &two);
	s = pbox_registrar_job(fx.registrar, 0)->table[0]->t.schedule;
	UNIT_EQ_U64(pbox_registrar_job(fx.registrar, 0)->table[0]->t.n_groups, 2);
	fx_control(&w[0], PBOX_SET, payload, pbox_set_encode(payload, sizeof(payload), &m));
	CU_ASSERT_EQUAL(fx_last()->hdr.type, PBOX_SET_OK);
	/* group 0 would take it, group 1 has another value */
	m.group = PBOX_ALL_GROUPS;
	m.param[0].value = 0.25;
	fx_control(&w[0], PBOX_SET, payload, pbox_set_encode(payload, sizeof(payload), &m));
	UNIT_EQ_U64(fx_error(), PBOX_E_SET_CONFLICT);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "SET of group 1 of table 0"));
	CU_ASSERT_FALSE(pbox_schedule_at(&s[0], 3)->has_lr);
	m.from_round = 4;
	fx_control(&w[0], PBOX_SET, payload, pbox_set_encode(payload, sizeof(payload), &m));
	CU_ASSERT_EQUAL(fx_last()->hdr.type, PBOX_SET_OK);
	CU_ASSERT_EQUAL(pbox_schedule_at(&s[0], 4)->lr, 0.25);
	CU_ASSERT_EQUAL(pbox_schedule_at(&s[1], 4)->lr, 0.25);
	fx_end();
}

static void
test_last_leave_ends_the_job(void)
{
	static const float v[4] = {1, 2, 3, 4};
	struct fx_table t = {.elements = 4};

	fx_begin();
	fx_job(w, "vision", 2, &t);
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 1, v, 4)); /* held in an open round */
	CU_ASSERT(pbox_arena_used(fx.arena) > 0);
	fx_leave(&w[0]);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 1);
	UNIT_EQ_U64(fx.released, 0);
	fx_leave(&w[1]);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	UNIT_EQ_U64(fx.released, 1);
	UNIT_EQ_U64(pbox_arena_used(fx.arena), 0);
	/* a repeated LEAVE: the session is gone */
	CU_ASSERT_EQUAL(fx_control(&w[1], PBOX_LEAVE, NULL, 0)->hdr.type, PBOX_ERROR);
	fx_end();
}

static void
test_lease_end_ends_the_job(void)
{
	static const float v[4] = {1, 2, 3, 4};
	struct fx_table t = {.elements = 4};

	fx_begin();
	fx_job(w, "vision", 2, &t);
	fx.now += UINT64_C(8000000000);
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 1, v, 4)); /* data keep a session alive too */
	fx_tick();
	fx.now += UINT64_C(8000000000);
	fx_tick();
	UNIT_EQ_U64(fx.rs[PBOX_RS_EXPIRED], 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "worker 1 (host1) has been silent for 16000 ms"));
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 1);
	UNIT_EQ_U64(pbox_registrar_silence(
			    fx.registrar, pbox_registrar_job(fx.registrar, 0), 0, fx.now),
		UINT64_C(8000000000));
	fx_tick(); /* said once */
	UNIT_EQ_U64(fx.rs[PBOX_RS_EXPIRED], 1);
	fx.now += UINT64_C(3000000000);
	fx_tick();
	UNIT_EQ_U64(fx.rs[PBOX_RS_EXPIRED], 2);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	UNIT_EQ_U64(fx.released, 1);
	fx_end();
}

static void
test_a_silent_worker_comes_back(void)
{
	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	fx_join(&w[1], "vision", 1, 2);
	fx.now += UINT64_C(9000000000);
	fx_control(&w[1], PBOX_PING, NULL, 0);
	fx.now += UINT64_C(2000000000);
	fx_tick();
	UNIT_EQ_U64(fx.rs[PBOX_RS_EXPIRED], 1);
	CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	UNIT_EQ_U64(pbox_registrar_job(fx.registrar, 0)->member[0].state, PBOX_MEMBER_JOINED);
	fx_end();
}

static void
test_shutdown(void)
{
	struct pbox_join m;

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	fx_join(&w[1], "speech", 0, 1);
	fx_clear();
	pbox_registrar_shutdown(fx.registrar, fx.now);
	UNIT_EQ_U64(fx.n_sent, 2);
	UNIT_EQ_U64(fx_count(PBOX_LEFT), 2);
	UNIT_EQ_U64(fx_nth(0)->hdr.chunk, 0);
	UNIT_EQ_U64(fx_nth(0)->hdr.aux, 1);
	UNIT_EQ_U64(fx_nth(0)->hdr.token, w[0].token);
	fx_clear();
	pbox_registrar_shutdown(fx.registrar, fx.now); /* frames get lost */
	UNIT_EQ_U64(fx_count(PBOX_LEFT), 2);
	w[2] = (struct fx_worker){
		.job = "vision", .worker = 1, .workers = 2, .mtu = 1500, .nonce = 9};
	fx_hello(&w[2]);
	m = fx_join_message(&w[2]);
	fx_join_with(&w[2], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_SHUTDOWN);
	pbox_registrar_close(fx.registrar, fx.now);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"SET and its errors", test_set},
	{"SET of a group that does not exist", test_set_of_unknown_group},
	{"STATUS", test_status},
	{"workers that wait for each other", test_circle},
	{"why a worker is missing", test_refused},
	{"PING, and types that are not for the box", test_ping_and_unknown_types},
	{"sessions are checked", test_sessions_are_checked},
	{"errors to strangers are few", test_session_errors_are_few},
	{"SET of all groups: of all or of none", test_set_of_all_groups_is_whole},
	{"the last LEAVE ends the job", test_last_leave_ends_the_job},
	{"the end of all leases ends the job", test_lease_end_ends_the_job},
	{"a silent worker comes back", test_a_silent_worker_comes_back},
	{"shutdown", test_shutdown},
	{NULL, NULL},
};
