/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: a worker begins in a run that has begun";

#define MS UINT64_C(1000000)

static struct fx_worker w[4];
static struct fx_table table = {.elements = 4, .op = PBOX_OP_SUM};
static const float one[4] = {1, 2, 3, 4};

static void
begin(unsigned rounds)
{
	fx_begin();
	table.flags = 0;
	fx_job(w, "vision", 2, &table);
	CU_ASSERT_EQUAL(fx_map(&w[1], 0, 0)->hdr.type, PBOX_MAPPED);
	for (uint32_t round = 1; round <= rounds; round++)
		for (unsigned i = 0; i < 2; i++)
			fx_pushpull(&w[i], round, one, 4);
}

/* The process of worker i is killed, and started again. */
static void
restart(unsigned i)
{
	fx_leave(&w[i]);
	fx_join(&w[i], "vision", (uint16_t)i, 2);
}

static unsigned
declare(unsigned i, uint32_t flags)
{
	table.flags = flags;
	fx_clear();
	fx_declare(&w[i], 0, &table);
	for (unsigned k = 0; k < fx.n_sent; k++)
		if (fx.sent[k].hdr.type == PBOX_DECLARED)
			return 0;
	return fx_error();
}

static uint32_t
detail(void)
{
	struct pbox_error_msg e;

	CU_ASSERT_EQUAL(pbox_error_decode(fx_last()->payload, fx_last()->hdr.length, &e), 0);
	return e.detail;
}

static void
pass(unsigned ms)
{
	for (unsigned t = 0; t < ms; t += 20) {
		fx.now += 20 * MS;
		fx_tick();
	}
}

static void
alive(unsigned i)
{
	fx.now += MS;
	CU_ASSERT_EQUAL(fx_control(&w[i], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
}

/* R12.6: RUNNING, while another lives; nothing is compared, and nothing changes. */
static void
test_running(void)
{
	static const struct fx_table different = {.elements = 5, .op = PBOX_OP_SUM};

	begin(3);
	restart(0);
	UNIT_EQ_U64(declare(0, 0), PBOX_E_RUNNING);
	UNIT_EQ_U64(detail(), 3);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "past its beginning (round 3): asking"));
	UNIT_EQ_U64(fx_count(PBOX_PING), 1);
	alive(1);
	UNIT_EQ_U64(declare(0, 0), PBOX_E_RUNNING);
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"the run of job 'vision' is past round 3 and worker 1 (host1) lives in it: a worker that goes on in it with its checkpoint says first_round; else stop the old run first");
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "worker 1 (host1) alive in it"));
	fx_declare(&w[0], 0, &different);
	UNIT_EQ_U64(fx_error(), PBOX_E_RUNNING);
	/* it asks on for long, and the other lives on */
	for (unsigned i = 0; i < 20; i++) {
		pass(200);
		UNIT_EQ_U64(declare(0, 0), PBOX_E_RUNNING);
		alive(1);
	}
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_ERROR);
	fx_pushpull(&w[1], 4, one, 4);
	UNIT_EQ_U64(declare(0, PBOX_DECLARE_CONTINUE), 0);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_clear();
	fx_pushpull(&w[0], 4, one, 4);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 0);
	fx_end();
}

/* What it sends all the same does not count: it would be 101 in the place of 2. */
static void
test_refused_contributes_nothing(void)
{
	static const float hundred[4] = {100, 100, 100, 100};
	float sum;

	begin(3);
	restart(0);
	UNIT_EQ_U64(declare(0, 0), PBOX_E_RUNNING);
	alive(1);
	UNIT_EQ_U64(declare(0, 0), PBOX_E_RUNNING);
	for (unsigned i = 0; i < 2; i++) {
		struct pbox_hdr ping = fx_data(&w[0], PBOX_PING, 0, 0, 0),
				pull = fx_data(&w[0], PBOX_PULL, 0, 0, 4);

		fx_clear();
		fx_mark();
		CU_ASSERT_FALSE(fx_pushpull(&w[0], 4, hundred, 4));
		FX_ONLY(PBOX_SS_DROP_CHUNK_UNKNOWN);
		fx_mark();
		fx_rx(0, &w[0], &pull, NULL);
		FX_ONLY(PBOX_SS_DROP_CHUNK_UNKNOWN);
		UNIT_EQ_U64(fx.n_sent, 0);
		ping.flags = 0; /* it tries its path, from elsewhere too */
		fx_rx(0, &w[0], &ping, NULL);
		UNIT_EQ_U64(fx_count(PBOX_PONG), 1);
		w[0].udp++;
		ping.ts = fx_ts();
		fx_rx(0, &w[0], &ping, NULL);
		ping.round = fx_last()->hdr.round;
		ping.base = fx_last()->hdr.base;
		CU_ASSERT(ping.round != 0 || ping.base != 0);
		ping.ts = fx_ts();
		fx_rx(0, &w[0], &ping, NULL);
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PONG);
		UNIT_EQ_U64(fx_last()->hdr.round, 0);
	}
	CU_ASSERT_TRUE(fx_pushpull(&w[1], 4, one, 4));
	w[0].udp -= 2;
	fx.now += MS;
	UNIT_EQ_U64(declare(0, PBOX_DECLARE_CONTINUE), 0);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_clear();
	CU_ASSERT_TRUE(fx_pushpull(&w[0], 4, one, 4));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	memcpy(&sum, fx_last()->payload, sizeof(sum));
	CU_ASSERT_EQUAL(sum, 2);
	fx_end();
}

/* Its session was lost, and the box was not. */
static void
test_restore(void)
{
	begin(3);
	restart(0);
	UNIT_EQ_U64(declare(0, PBOX_DECLARE_RESTORE), 0);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	/* a repeated page of who is in it */
	UNIT_EQ_U64(declare(0, 0), 0);
	UNIT_EQ_U64(declare(1, 0), 0);
	fx_end();
}

/* Before the end of round 1: who was given a map may have contributed, or initialised. */
static void
test_before_the_first_round(void)
{
	begin(0);
	fx_pushpull(&w[0], 1, one, 4);
	restart(0);
	UNIT_EQ_U64(declare(0, 0), PBOX_E_RUNNING);
	UNIT_EQ_U64(detail(), 0);
	UNIT_EQ_U64(declare(0, PBOX_DECLARE_CONTINUE), 0);
	fx_end();

	/* and who was given none has done nothing */
	fx_begin();
	table.flags = 0;
	fx_job(w, "vision", 2, &table);
	restart(1);
	UNIT_EQ_U64(declare(1, 0), 0);
	CU_ASSERT_EQUAL(fx_map(&w[1], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_end();
}

/* R12.7: all of them were killed, and are started again at once: half a second, not a lease. */
static void
test_dead_run(void)
{
	uint64_t old, began;

	begin(3);
	old = w[0].welcome.number;
	/* worker 0's number is claimed first: that takes as long */
	fx_leave(&w[0]);
	fx_join(&w[0], "vision", 0, 2);
	began = fx.now;
	UNIT_EQ_U64(declare(0, 0), PBOX_E_RUNNING);
	pass(480);
	UNIT_EQ_U64(declare(0, 0), PBOX_E_RUNNING);
	pass(20);
	UNIT_EQ_U64(declare(0, 0), PBOX_E_SESSION);
	UNIT_EQ_U64((fx.now - began) / MS, 500);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "is over after round 3"));
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 1);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.aux, PBOX_E_SESSION);
	fx_join(&w[0], "vision", 0, 3);
	CU_ASSERT(w[0].welcome.number > old);
	UNIT_EQ_U64(declare(0, 0), 0);
	/* one of the dead was only asleep */
	w[1].number = old;
	w[1].workers = 3;
	CU_ASSERT_FALSE(fx_try_join(&w[1]));
	UNIT_EQ_U64(fx_error(), PBOX_E_RUN_ENDED);
	fx_end();
}

/* All that were in it have been replaced, or have left. */
static void
test_nobody_is_left(void)
{
	begin(3);
	restart(0);
	restart(1);
	UNIT_EQ_U64(declare(1, 0), PBOX_E_SESSION);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	fx_end();
}

/* One answers in the last moment. */
static void
test_last_moment(void)
{
	begin(1);
	restart(0);
	UNIT_EQ_U64(declare(0, 0), PBOX_E_RUNNING);
	pass(480);
	alive(1);
	pass(40);
	UNIT_EQ_U64(declare(0, 0), PBOX_E_RUNNING);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "worker 1 (host1) lives"));
	fx_end();
}

/* Somebody who is silent beyond his lease is not asked; the others are. */
static void
test_beyond_the_lease(void)
{
	begin(1);
	restart(0);
	for (unsigned t = 0; t < 10100; t += 100) {
		pass(100);
		alive(0);
	}
	UNIT_EQ_U64(declare(0, 0), PBOX_E_SESSION);
	fx_end();
}

/* ---- tables that begin with a version ------------------------------------------------------ */

static int
snapshot(const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	(void)job;
	CU_ASSERT_FALSE(restoring);
	for (uint32_t i = 0; i < t->n_chunks; i++)
		for (unsigned f = 0; f < t->chunk[i].fragments; f++) {
			t->chunk[i].fragment[f].version = 7;
			t->chunk[i].fragment[f].has_result = 1;
			t->chunk[i].fragment[f].contributors = 2;
		}
	return 0;
}

static void
test_snapshot(void)
{
	fx_begin();
	fx.restore = snapshot;
	table.flags = 0;
	fx_job(w, "vision", 2, &table);
	UNIT_EQ_U64(pbox_registrar_round(fx.registrar, pbox_registrar_job(fx.registrar, 0), 0), 7);
	restart(1);
	UNIT_EQ_U64(declare(1, 0), 0); /* no round has ended in this run */
	CU_ASSERT_EQUAL(fx_map(&w[1], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_pushpull(&w[0], 8, one, 4);
	fx_pushpull(&w[1], 8, one, 4);
	restart(1);
	UNIT_EQ_U64(declare(1, 0), PBOX_E_RUNNING);
	UNIT_EQ_U64(detail(), 8);
	fx.restore = NULL;
	fx_end();
}

static void
restore(unsigned i, uint32_t round)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_RESTORE, 0, 0, round);

	h.flags = PBOX_F_HAVE;
	h.format = PBOX_FMT_FP32;
	h.length = 16;
	fx_rx(0, &w[i], &h, one);
}

/* After a restart of the box, from what worker 1 holds: worker 0 begins. MAP says so, when it is known. */
static void
test_restored(void)
{
	for (uint32_t version = 0; version < 6; version += 5) {
		fx_begin();
		table.flags = 0;
		fx_join(&w[0], "vision", 0, 2);
		fx_join(&w[1], "vision", 1, 2);
		UNIT_EQ_U64(declare(0, 0), 0);
		UNIT_EQ_U64(declare(1, PBOX_DECLARE_RESTORE), 0);
		CU_ASSERT_EQUAL(fx_map(&w[1], 0, 0)->hdr.type, PBOX_MAPPED);
		CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_NOT_READY);
		restore(1, version);
		fx_map(&w[0], 0, 0);
		if (version == 0) {
			UNIT_EQ_U64(fx_last()->hdr.type, PBOX_MAPPED);
		} else {
			UNIT_EQ_U64(fx_error(), PBOX_E_RUNNING);
			UNIT_EQ_U64(detail(), 5);
			alive(1);
			fx_map(&w[0], 0, 0);
			CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "worker 1 (host1) lives"));
			restart(0);
			UNIT_EQ_U64(declare(0, PBOX_DECLARE_CONTINUE), 0);
			CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
		}
		fx_end();
	}
}

/* With tags: the answer has one as well, and the keys are gone only after it. */
static void
test_with_tags(void)
{
	const struct fx_table t = {.elements = 4, .op = PBOX_OP_SUM};

	fx_begin();
	fx_job(w, "tagged", 1, &t);
	fx_pushpull(&w[0], 1, one, 4);
	fx_leave(&w[0]);
	fx_join(&w[0], "tagged", 0, 2);
	fx_join(&w[1], "tagged", 1, 2);
	fx_declare(&w[0], 0, &t);
	fx_declare(&w[1], 0, &t);
	fx_map(&w[0], 0, 0);
	fx_pushpull(&w[0], 1, one, 4);
	fx_pushpull(&w[1], 1, one, 4);
	fx_leave(&w[0]);
	fx_join(&w[0], "tagged", 0, 2);
	fx_clear();
	fx_declare(&w[0], 0, &t);
	UNIT_EQ_U64(fx_error(), PBOX_E_SESSION);
	CU_ASSERT((fx_last()->hdr.flags & PBOX_F_AUTH) != 0);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"RUNNING, while another lives", test_running},
	{"who was refused contributes nothing", test_refused_contributes_nothing},
	{"a session that was lost", test_restore},
	{"before the first round", test_before_the_first_round},
	{"a dead run", test_dead_run},
	{"nobody is left", test_nobody_is_left},
	{"an answer in the last moment", test_last_moment},
	{"beyond its lease", test_beyond_the_lease},
	{"a table that begins with a snapshot", test_snapshot},
	{"a table that is restored", test_restored},
	{"with tags", test_with_tags},
	{NULL, NULL},
};
