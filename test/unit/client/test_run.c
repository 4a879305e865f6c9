/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <pbox_wire.h>

#include "harness.h"
#include "unit.h"

/* Section 12 of the protocol: a worker says which run it belongs to, and what becomes of it when that
 * has ended, or has begun without it. */

const char unit_suite[] = "client: runs";

static struct pbox_client_error err;
static const struct pbox_client_tensor model[] = {{"fc.weight", 1000, 0}};

/** One worker of one; @p run may be NULL. */
static struct pbox_client *
must_open(struct box *b, const char *run, int keep_copies)
{
	struct pbox_client_conf conf = harness_conf(b, 0, 1);
	struct pbox_client *c = NULL;

	conf.run = run;
	conf.keep_copies = keep_copies;
	if (pbox_client_open(&c, &conf, &err) != 0)
		CU_assertImplementation(CU_FALSE, __LINE__, err.text, __FILE__, "", CU_TRUE);
	return c;
}

static int
declare(struct pbox_client *c, uint32_t first_round, unsigned timeout_ms)
{
	struct pbox_client_table d = {.size = sizeof(d),
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 1,
		.tensors = model,
		.first_round = first_round};
	uint32_t table;

	return pbox_client_declare(c, &d, timeout_ms, &table, &err);
}

static int
one_round(struct pbox_client *c)
{
	float v[1000] = {0};
	struct pbox_client_io io = {0, v, v};

	return pbox_client_run(c, 0, PBOX_CLIENT_PUSHPULL, &io, 1, 1, 0, &err);
}

/** Until so many JOINs were sent, or 60 s. */
static void
await_joins(struct box *b, unsigned joins)
{
	for (double t0 = harness_seconds();
		box_said(b).joins < joins && harness_seconds() - t0 < 120;)
		usleep(1000);
}

/* ---- what is reported ------------------------------------------------------------------------------- */

static void
test_identity(void)
{
	/* SHA-256("PBOX-RUN-1" "monday 1"), its first 16 bytes */
	static const uint8_t monday[16] = {0x1c, 0x70, 0xe3, 0x8e, 0x9d, 0x02, 0x0f, 0x40, 0xe4,
		0x69, 0x8d, 0x70, 0xc0, 0x14, 0x22, 0x8b};
	static const uint8_t none[16];
	static const struct {
		const char *run;
		uint32_t first_round;
		const uint8_t *identity;
		uint32_t flags;
	} cases[] = {
		{NULL, 0, none, 0},
		{"", 0, none, 0},
		{NULL, 7, none, PBOX_DECLARE_CONTINUE},
		{"monday 1", 0, monday, 0}, /* it may be started again, alone, with nothing */
		{"monday 1", 7, monday, PBOX_DECLARE_CONTINUE},
		{NULL, PBOX_CLIENT_ROUND_ANY, none, PBOX_DECLARE_CONTINUE},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct box *b = box_start(&(struct box_conf){.workers = 1});
		struct pbox_client *c = must_open(b, cases[i].run, 1);
		struct box_said said;

		CU_ASSERT_EQUAL(declare(c, cases[i].first_round, 0), 0);
		said = box_said(b);
		CU_ASSERT_EQUAL(memcmp(said.run, cases[i].identity, 16), 0);
		UNIT_EQ_U64(said.number, 0);
		UNIT_EQ_U64(said.flags, cases[i].flags);
		pbox_client_close(c);
		box_stop(b);
	}
}

static unsigned
flags_under(unsigned policy, const char *run, uint32_t first, uint32_t second)
{
	struct box *b = box_start(&(struct box_conf){.workers = 1});
	struct pbox_client_conf conf = harness_conf(b, 0, 1);
	struct pbox_client *c = NULL;
	unsigned flags;

	conf.run = run;
	conf.policy = policy;
	CU_ASSERT_EQUAL_FATAL(pbox_client_open(&c, &conf, &err), 0);
	CU_ASSERT_EQUAL(declare(c, first, 0), 0);
	flags = box_said(b).flags;
	if (second != 0) {
		CU_ASSERT_EQUAL(declare(c, 0, 0), 0);
		flags = box_said(b).flags;
	}
	pbox_client_close(c);
	box_stop(b);
	return flags;
}

/* Of policy shrink a worker of the run comes and goes; who has said its round goes on in later tables too. */
static void
test_goes_on(void)
{
	UNIT_EQ_U64(flags_under(1, NULL, 0, 0), 0);
	UNIT_EQ_U64(flags_under(1, "monday 1", 0, 0), PBOX_DECLARE_CONTINUE);
	UNIT_EQ_U64(flags_under(0, "monday 1", 0, 1), 0);
	UNIT_EQ_U64(flags_under(0, NULL, 7, 1), PBOX_DECLARE_CONTINUE);
}

/* Structures that are smaller than what the library knows. */
static void
test_sizes(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 1});
	struct pbox_client *c = must_open(b, NULL, 1), *none = NULL;
	struct pbox_client_conf conf = harness_conf(b, 0, 1);
	struct pbox_client_table t = {.size = sizeof(t) - 1};
	struct pbox_client_work work = {.size = sizeof(work) - 1};
	struct pbox_client_norm norm = {.size = sizeof(norm) - 1};
	uint32_t table;

	conf.size--;
	CU_ASSERT_EQUAL(pbox_client_open(&none, &conf, &err), PBOX_C_INVALID);
	HAS("pbox_client_conf_init");
	CU_ASSERT_EQUAL(pbox_client_declare(c, &t, 0, &table, &err), PBOX_C_INVALID);
	HAS("size field");
	CU_ASSERT_EQUAL(pbox_client_work(c, 0, &work, 0, &err), PBOX_C_INVALID);
	HAS("sizeof(struct pbox_client_work)");
	CU_ASSERT_EQUAL(pbox_client_norm(c, 0, 1, 1, &norm, 0, &err), PBOX_C_INVALID);
	HAS("size field");
	pbox_client_close(c);
	box_stop(b);
}

/* A worker that comes again names the number of its run if it has something of it, else it begins. */
static void
test_number(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 1});
	struct pbox_client *c = must_open(b, "monday 1", 1);
	struct box_said said;

	box_restart(b);
	CU_ASSERT_EQUAL(declare(c, 0, 0), 0);
	UNIT_EQ_U64(box_said(b).number, 0);
	CU_ASSERT_EQUAL(one_round(c), 0);
	for (unsigned i = 0; i < 2; i++) { /* the second WELCOME has the same */
		said = box_said(b);
		box_restart(b);
		CU_ASSERT_EQUAL(one_round(c), 0);
		CU_ASSERT(box_said(b).joins > said.joins);
		UNIT_EQ_U64(box_said(b).number, 102); /* of the second session */
		CU_ASSERT_EQUAL(memcmp(box_said(b).run, said.run, 16), 0);
		UNIT_EQ_U64(box_said(b).flags, PBOX_DECLARE_RESTORE);
	}
	pbox_client_close(c);
	box_stop(b);
}

/* ---- a run that has ended ------------------------------------------------------------------------ */

static void
test_run_ended(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 1});
	struct pbox_client *c = must_open(b, NULL, 1), *other;

	CU_ASSERT_EQUAL(declare(c, 0, 0), 0);
	CU_ASSERT_EQUAL(one_round(c), 0);
	other = must_open(b, "tuesday", 1); /* takes the number, too */
	CU_ASSERT_EQUAL(declare(other, 0, 0), 0);
	CU_ASSERT_EQUAL(one_round(c), PBOX_C_RUN_ENDED);
	HAS("the run of job 'job' that this worker belongs to was ended ");
	HAS(" s ago: a new run began from host gpu0");
	CU_ASSERT_STRING_EQUAL(pbox_client_code_name(err.code), "RUN_ENDED");
	CU_ASSERT_EQUAL(one_round(c), PBOX_C_RUN_ENDED); /* for good */
	CU_ASSERT_EQUAL(declare(c, 0, 0), PBOX_C_RUN_ENDED);
	pbox_client_close(c);
	CU_ASSERT_EQUAL(one_round(other), 0);
	UNIT_EQ_U64(pbox_client_next_round(other, 0), 2);
	pbox_client_close(other);
	box_stop(b);
}

/* With nothing of its own, it could not have gone on. */
static void
test_without_copies(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 1});
	struct pbox_client *c = must_open(b, NULL, 0);

	box_run_begins(b); /* before it has a table: it joins that */
	CU_ASSERT_EQUAL(declare(c, 0, 0), 0);
	CU_ASSERT_EQUAL(one_round(c), 0);
	box_run_begins(b);
	CU_ASSERT_EQUAL(one_round(c), PBOX_C_LOST);
	pbox_client_close(c);
	box_stop(b);
}

/* A box that takes a worker of run 101 into run 102. */
static void
test_other_number(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 1});
	struct pbox_client *c = must_open(b, NULL, 1);

	CU_ASSERT_EQUAL(declare(c, 0, 0), 0);
	CU_ASSERT_EQUAL(one_round(c), 0);
	box_misnumber(b);
	box_restart(b);
	CU_ASSERT_EQUAL(one_round(c), PBOX_C_RUN_ENDED);
	HAS("has another run of job 'job' now (102, this worker's is 101)");
	pbox_client_close(c);
	box_stop(b);
}

/* ---- a run that has begun without this worker ----------------------------------------------------- */

static void
test_running(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 1});
	struct pbox_client *c = must_open(b, NULL, 1);
	unsigned asked = 0, before;
	double began = 0;

	box_running(b, true);
	for (unsigned ms = 3000; ms < 100000; ms *= 4) {
		began = harness_seconds();
		before = box_said(b).declares;
		CU_ASSERT_EQUAL(declare(c, 0, ms), PBOX_C_RUNNING);
		asked = box_said(b).declares - before;
		if (asked >= 2)
			break;
	}
	HAS("the run of job 'job' is past round 37, and worker 1 (gpu1) lives in it");
	CU_ASSERT_STRING_EQUAL(pbox_client_code_name(err.code), "RUNNING");
	CU_ASSERT(asked >= 2 && asked <= 4 * (harness_seconds() - began));
	CU_ASSERT_EQUAL(declare(c, 38, 0), 0); /* from a checkpoint */
	pbox_client_close(c);
	c = must_open(b, "monday 1", 1); /* it belongs to it, and has nothing of it */
	CU_ASSERT_EQUAL(declare(c, 0, 3000), PBOX_C_RUNNING);
	CU_ASSERT_EQUAL(declare(c, PBOX_CLIENT_ROUND_ANY, 0), 0);
	pbox_client_close(c);
	box_stop(b);
}

/* A run that goes on without it: it hears that before the others give up, however long tables may take. */
static void
test_running_for_long(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 1});
	struct pbox_client_conf conf = harness_conf(b, 0, 1);
	struct pbox_client *c = NULL;
	double began, took;

	conf.timeout_ms = 4000;
	CU_ASSERT_EQUAL_FATAL(pbox_client_open(&c, &conf, &err), 0);
	box_running(b, true);
	began = harness_seconds();
	CU_ASSERT_EQUAL(declare(c, 0, 600000), PBOX_C_RUNNING);
	took = harness_seconds() - began;
	HAS("the run of job 'job' is past round 37, and worker 1 (gpu1) lives in it");
	CU_ASSERT(took >= 2 && took < 300);
	CU_ASSERT_EQUAL(declare(c, 38, 120000), 0);
	pbox_client_close(c);
	box_stop(b);
}

struct later {
	struct box *b;
	struct pbox_client *c;
	void (*then)(struct box *b);
	char status[2048];
};

/** When RUNNING was heard. */
static void *
later_main(void *arg)
{
	struct later *l = arg;

	for (double t0 = harness_seconds(); harness_seconds() - t0 < 120;) {
		if (pbox_client_status(l->c, l->status, sizeof(l->status), NULL) == 0 &&
			strstr(l->status, "this worker asks again") != NULL)
			break;
		usleep(1000);
	}
	l->then(l->b);
	box_running(l->b, false);
	return NULL;
}

static void
nothing(struct box *b)
{
	(void)b;
}

static void
silence(struct box *b)
{
	box_silence(b, true);
}

/* A box that is silent at the deadline: what it had said is the reason. */
static void
test_running_silent(void)
{
	int rc = 0;

	for (unsigned ms = 2000; ms < 100000 && rc != PBOX_C_RUNNING; ms *= 4) {
		struct box *b = box_start(&(struct box_conf){.workers = 1});
		struct later l = {.b = b, .c = must_open(b, NULL, 1), .then = silence};
		pthread_t thread;

		box_running(b, true);
		pthread_create(&thread, NULL, later_main, &l);
		rc = declare(l.c, 0, ms);
		pthread_join(thread, NULL);
		pbox_client_close(l.c);
		box_stop(b);
	}
	CU_ASSERT_EQUAL(rc, PBOX_C_RUNNING);
	HAS("is past round 37");
}

/* The run that it was kept out of ends: by itself, or with all sessions. */
static void
test_running_ends(void)
{
	void (*const then[])(struct box * b) = {nothing, box_end_sessions, box_run_begins};

	for (unsigned i = 0; i < 3; i++) {
		struct box *b = box_start(&(struct box_conf){.workers = 1});
		struct later l = {.b = b, .c = must_open(b, NULL, (int)i % 2), .then = then[i]};
		pthread_t thread;

		box_running(b, true);
		pthread_create(&thread, NULL, later_main, &l);
		CU_ASSERT_EQUAL(declare(l.c, 0, 0), 0);
		pthread_join(thread, NULL);
		CU_ASSERT(strstr(l.status, "is past round 37") != NULL);
		UNIT_EQ_U64(box_said(b).number, 0);
		UNIT_EQ_U64(box_said(b).asked, i == 0 ? 1 : 2);
		CU_ASSERT_EQUAL(one_round(l.c), 0);
		CU_ASSERT_EQUAL(pbox_client_status(l.c, l.status, sizeof(l.status), NULL), 0);
		CU_ASSERT(strstr(l.status, "asks again") == NULL);
		pbox_client_close(l.c);
		box_stop(b);
	}
}

/* ---- sessions that end while they are opened ------------------------------------------------------ */

static void
test_short_lived(void)
{
	struct box_conf conf = {.workers = 1, .short_lived = 3};
	struct box *b = box_start(&conf);
	struct pbox_client_conf cc;
	struct pbox_client *c = must_open(b, NULL, 1);

	CU_ASSERT(box_said(b).joins >= 4 && box_said(b).asked <= 4); /* a JOIN may be sent again */
	CU_ASSERT_EQUAL(declare(c, 0, 0), 0);
	pbox_client_close(c);
	box_stop(b);
	conf.short_lived = UINT32_MAX;
	b = box_start(&conf);
	cc = harness_conf(b, 0, 1);
	for (cc.join_timeout_ms = 1500; cc.join_timeout_ms < 100000; cc.join_timeout_ms *= 6)
		if (pbox_client_open(&c, &cc, &err) == PBOX_C_REFUSED)
			break;
	UNIT_EQ_U64(err.code, PBOX_C_REFUSED);
	HAS("it ended this worker's session");
	CU_ASSERT(strstr(err.text, "firewall") == NULL);
	box_stop(b);
}

/* The error is the box's last sentence. */
static void
test_ending(void)
{
	struct box_conf conf = {.workers = 1, .ending = true};
	struct box *b = box_start(&conf);
	struct pbox_client_conf cc = harness_conf(b, 0, 1);
	struct pbox_client *c;
	char text[128];

	for (cc.join_timeout_ms = 1500; cc.join_timeout_ms < 100000; cc.join_timeout_ms *= 6)
		if (pbox_client_open(&c, &cc, &err) == PBOX_C_REFUSED)
			break;
	UNIT_EQ_U64(err.code, PBOX_C_REFUSED);
	snprintf(text, sizeof(text),
		"still not taken in after %.1f s: job 'job' is ending: its memory is being released",
		cc.join_timeout_ms / 1e3);
	HAS(text);
	await_joins(b, 2);
	CU_ASSERT(box_said(b).joins >= 2);
	box_stop(b);
}

/* A box of an earlier release: its WELCOME has no number of a run, and is shorter. */
static void
test_older_box(void)
{
	struct box_conf conf = {.workers = 1, .older = true};
	struct box *b = box_start(&conf);
	struct pbox_client_conf cc = harness_conf(b, 0, 1);
	struct pbox_client *c;

	cc.join_timeout_ms = 100000;
	CU_ASSERT_EQUAL(pbox_client_open(&c, &cc, &err), PBOX_C_VERSION);
	HAS("of another release than this library");
	box_stop(b);
}

const struct unit_test unit_tests[] = {
	{"structures that are too small", test_sizes},
	{"identity and CONTINUE are sent", test_identity},
	{"who goes on", test_goes_on},
	{"the number is named by who comes again", test_number},
	{"a run that has ended", test_run_ended},
	{"without copies", test_without_copies},
	{"another number than that of the run", test_other_number},
	{"a run that has begun", test_running},
	{"and goes on for long", test_running_for_long},
	{"a run that has begun, and ends", test_running_ends},
	{"a run that has begun, and a silent box", test_running_silent},
	{"sessions that end at once", test_short_lived},
	{"a job that is ending", test_ending},
	{"a box of an earlier release", test_older_box},
	{NULL, NULL},
};
