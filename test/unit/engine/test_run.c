/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: runs";

#define MS UINT64_C(1000000)

static struct fx_worker w[4], other[4];
static const struct fx_table table = {.elements = 4, .op = PBOX_OP_SUM};
static const float one[4] = {1, 2, 3, 4};

/* A worker of "vision" as it will join: its run as a text. */
static struct fx_worker
worker(uint16_t number, uint16_t workers, const char *run)
{
	struct fx_worker x = {.job = "vision", .worker = number, .workers = workers};

	memcpy(x.run, run, strlen(run));
	return x;
}

static void
job(struct fx_worker *to, uint16_t n, const char *run)
{
	for (uint16_t i = 0; i < n; i++) {
		to[i] = worker(i, n, run);
		CU_ASSERT_TRUE_FATAL(fx_try_join(&to[i]));
	}
}

static void
map(struct fx_worker *of, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		CU_ASSERT_EQUAL(fx_declare(&of[i], 0, &table)->hdr.type, PBOX_DECLARED);
	for (unsigned i = 0; i < n; i++)
		CU_ASSERT_EQUAL(fx_map(&of[i], 0, 0)->hdr.type, PBOX_MAPPED);
}

static bool
joins(uint16_t number, uint16_t workers, const char *run, uint64_t again)
{
	struct fx_worker x = worker(number, workers, run);
	bool taken;

	x.number = again;
	taken = fx_try_join(&x);
	if (taken)
		other[number] = x;
	return taken;
}

static void
refused(uint16_t number, uint16_t workers, const char *run, uint64_t again, unsigned code)
{
	CU_ASSERT_FALSE(joins(number, workers, run, again));
	UNIT_EQ_U64(fx_error(), code);
}

/* R12.2 */
static void
test_numbers(void)
{
	uint64_t first;

	fx.first_run = 5000;
	fx_begin();
	job(w, 2, "");
	first = w[0].welcome.number;
	CU_ASSERT(first > 5000);
	UNIT_EQ_U64(w[1].welcome.number, first);
	fx_leave(&w[0]);
	fx_leave(&w[1]);
	job(w, 2, "");
	CU_ASSERT(w[0].welcome.number > first);
	fx_join(&w[2], "speech", 0, 1);
	CU_ASSERT(w[2].welcome.number > w[0].welcome.number);
	fx_end();
	fx.first_run = 0;
}

/* R12.3: another identity ends the run at once, its lease or not, and begins with nothing. */
static void
test_another_run(void)
{
	static const float sum[4] = {101, 202, 303, 404}, hundred[4] = {100, 200, 300, 400};
	uint64_t old;

	fx_begin();
	job(w, 2, "monday");
	map(w, 2);
	old = w[0].welcome.number;
	fx_pushpull(&w[0], 1, one, 4); /* in mid-round */
	refused(0, 3, "tuesday", 0, PBOX_E_WORKER_TAKEN);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "makes way"));
	CU_ASSERT_PTR_NOT_NULL(
		strstr(fx.event, "of job 'vision' ended: a new run began from host host0"));
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 1);
	CU_ASSERT_EQUAL(fx_control(&w[1], PBOX_PING, NULL, 0)->hdr.aux, PBOX_E_SESSION);
	/* with its own number of workers, and policy */
	for (uint16_t i = 0; i < 3; i++) {
		other[i] = worker(i, 3, "tuesday");
		other[i].policy = PBOX_POLICY_SHRINK;
		CU_ASSERT_TRUE_FATAL(fx_try_join(&other[i]));
	}
	CU_ASSERT(other[0].welcome.number > old);
	map(other, 3);
	fx_pushpull(&other[0], 1, one, 4);
	fx_pushpull(&w[1], 1, one, 4); /* a straggler's frame, under its old token */
	fx_pushpull(&other[1], 1, hundred, 4);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
	fx_pushpull(&other[2], 1, (const float[4]){0, 0, 0, 0}, 4);
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, sum, sizeof(sum)), 0);
	/* and comes too late in any way */
	refused(0, 2, "monday", 0, PBOX_E_RUN_ENDED);
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"the run of job 'vision' that this worker belongs to was ended 0 s ago: a new run began from host host0 (two trainings at once want two names of jobs)");
	refused(0, 2, "monday", old, PBOX_E_RUN_ENDED);
	refused(0, 2, "", old, PBOX_E_RUN_ENDED);
	UNIT_EQ_U64(pbox_job_joined(pbox_registrar_job(fx.registrar, 0)), 3);
	fx_end();
}

/* R4.6c: while memory is released the name is the new run's. */
static void
test_meanwhile(void)
{
	uint64_t old;

	fx_begin();
	job(w, 1, "monday");
	map(w, 1);
	old = w[0].welcome.number;
	fx.hold_mail = true;
	refused(0, 1, "tuesday", 0, PBOX_E_WORKER_TAKEN);
	refused(0, 1, "tuesday", 0, PBOX_E_WORKER_TAKEN);
	refused(0, 1, "monday", 0, PBOX_E_RUN_ENDED);
	refused(0, 1, "monday", old, PBOX_E_RUN_ENDED);
	refused(0, 1, "", 0, PBOX_E_WORKER_TAKEN);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 1);
	fx_mail();
	fx.hold_mail = false;
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	refused(0, 1, "monday", old, PBOX_E_RUN_ENDED);
	refused(0, 1, "", old + 1, PBOX_E_RUN_ENDED); /* of an incarnation before */
	/* who names none is none of those that it waits for: it begins, and makes way when they come */
	CU_ASSERT_TRUE(joins(0, 2, "", 0));
	refused(1, 2, "tuesday", 0, PBOX_E_WORKER_TAKEN);
	CU_ASSERT_TRUE(joins(1, 2, "tuesday", 0));
	CU_ASSERT(other[1].welcome.number > other[0].welcome.number);
	fx_end();
}

/* Two that take turns: who came last has it, and one that was ended stays so. */
static void
test_three_runs(void)
{
	fx_begin();
	job(w, 1, "monday");
	map(w, 1);
	fx.hold_mail = true;
	refused(0, 1, "tuesday", 0, PBOX_E_WORKER_TAKEN);
	refused(0, 1, "wednesday", 0, PBOX_E_WORKER_TAKEN);
	refused(0, 1, "tuesday", 0, PBOX_E_RUN_ENDED);
	fx_mail();
	fx.hold_mail = false;
	refused(0, 1, "monday", 0, PBOX_E_RUN_ENDED);
	CU_ASSERT_TRUE(joins(0, 1, "wednesday", 0));
	fx_end();
}

/* The same identity joins; another one, or one where there was none, ends the run, whatever that has. */
static void
test_identities(void)
{
	fx_begin();
	job(w, 1, "");
	fx_leave(&w[0]);
	w[0] = worker(0, 3, "");
	CU_ASSERT_TRUE(fx_try_join(&w[0]));
	refused(1, 3, "monday", 0, PBOX_E_WORKER_TAKEN);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 1);
	CU_ASSERT_TRUE(joins(1, 3, "monday", 0));
	CU_ASSERT_TRUE(joins(2, 3, "monday", 0));
	UNIT_EQ_U64(other[2].welcome.number, other[1].welcome.number);
	CU_ASSERT(other[2].welcome.number > w[0].welcome.number);
	refused(0, 3, "tuesday", 0, PBOX_E_WORKER_TAKEN);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 2);
	fx_end();

	fx_begin();
	job(w, 1, "");
	map(w, 1);
	refused(0, 1, "monday", 0, PBOX_E_WORKER_TAKEN);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 1);
	CU_ASSERT_TRUE(joins(0, 1, "monday", 0));
	fx_end();
}

/* Who would be refused anyway ends nothing. */
static void
test_refused_anyway(void)
{
	struct fx_worker x = worker(0, 1, "tuesday");
	struct pbox_join m;

	fx_begin();
	job(w, 1, "monday");
	refused(0, 65, "tuesday", 0, PBOX_E_BAD_REQUEST);
	refused(3, 3, "tuesday", 0, PBOX_E_BAD_REQUEST);
	refused(0, 1, "", UINT64_MAX, PBOX_E_BAD_REQUEST);
	x.ip = 0x0A000200u;
	x.mtu = 100;
	fx_hello(&x);
	m = fx_join_message(&x);
	fx_join_with(&x, &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	m.mtu = 1500;
	fx_join_with(&x, &m, "wrong");
	UNIT_EQ_U64(fx_error(), PBOX_E_SECRET);
	pbox_registrar_drain(fx.registrar, true);
	fx_join_with(&x, &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_FULL);
	pbox_registrar_drain(fx.registrar, false);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 0);
	CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	/* nor the copy of a JOIN whose session has left */
	m = fx_join_message(&w[0]);
	fx_leave(&w[0]);
	job(&w[1], 1, "tuesday");
	w[0].token = 0;
	fx_join_with(&w[0], &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 1);
	fx_end();
}

/* A worker of another run is refused so, and the one that is there goes on. */
static void
ends_nothing(const char *job_name, uint16_t workers, unsigned code, const char *text)
{
	struct fx_worker x = worker(0, workers, "tuesday");

	x.job = job_name;
	CU_ASSERT_FALSE(fx_try_join(&x));
	UNIT_EQ_U64(fx_error(), code);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), text));
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 0);
	CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	x = worker(1, 2, "monday");
	x.job = job_name;
	CU_ASSERT_TRUE(fx_try_join(&x));
	UNIT_EQ_U64(x.welcome.number, w[0].welcome.number);
	fx_leave(&x);
}

/* What that one has is room for the other: it makes way, and the other begins. */
static void
takes_its_place(const char *job_name, uint16_t workers)
{
	struct fx_worker x = worker(0, workers, "wednesday");

	x.job = job_name;
	CU_ASSERT_FALSE(fx_try_join(&x));
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 1);
	fx_work(); /* memory is cleared */
	CU_ASSERT_TRUE(fx_try_join(&x));
}

static void
test_no_packets_for_another(void)
{
	fx.hold = 32;
	fx_begin();
	w[0] = worker(0, 2, "monday");
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	fx_join(&w[2], "speech", 0, 8);
	ends_nothing("vision", 24, PBOX_E_FULL, "no packet buffers left for 24 workers");
	takes_its_place("vision", 16);
	fx_end();
}

static void
test_no_quota_for_another(void)
{
	fx.memory = 1u << 18;
	fx_begin();
	w[0] = worker(0, 2, "monday");
	w[0].job = "quota";
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	ends_nothing("quota", 64, PBOX_E_NO_MEMORY, "[job quota] has memory = 262144: raise it");
	takes_its_place("quota", 3);
	fx_end();
}

/* Another job has nearly all parameter memory. */
static void
test_no_memory_for_another(void)
{
	struct fx_table most = table;

	fx.chunk_elements = 8192;
	fx_begin();
	w[0] = worker(0, 2, "monday");
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	fx_join(&w[2], "speech", 0, 1);
	/* fragments of fragments take a part */
	most.elements = (uint32_t)((FX_ARENA - pbox_arena_used(fx.arena)) / 4 * 39 / 40);
	UNIT_EQ_U64(fx_declare(&w[2], 0, &most)->hdr.type, PBOX_DECLARED);
	fx_work();
	UNIT_EQ_U64(fx_map(&w[2], 0, 0)->hdr.type, PBOX_MAPPED);
	ends_nothing("vision", 60, PBOX_E_NO_MEMORY, "no memory for the rounds of 60 workers");
	takes_its_place("vision", 3);
	fx_end();
}

/* A new run begins by the section of now, whatever the one that is there began by. */
static void
test_another_section(void)
{
	struct pbox_job_conf now = {
		.name = "vision", .secret = "key", .secret_len = 3, .workers = 3};

	fx_begin();
	w[0] = worker(0, 2, "monday");
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	pbox_registrar_reload(fx.registrar, &now, 1, 10000, 0, fx.now);
	ends_nothing("vision", 2, PBOX_E_WORKERS, "has 3 workers, and a worker");
	now.workers = 0;
	now.secret = "new";
	pbox_registrar_reload(fx.registrar, &now, 1, 10000, 0, fx.now);
	ends_nothing("vision", 2, PBOX_E_SECRET, "the secret of job 'vision' is another one");
	now.secret = "key";
	pbox_registrar_reload(fx.registrar, &now, 1, 10000, 0, fx.now);
	takes_its_place("vision", 2);
	fx_end();
}

static void
small_mtu(const char *run)
{
	struct fx_worker x = worker(1, 2, run);
	struct pbox_join m;

	x.ip = 0x0A000200u;
	x.mtu = 100;
	x.nonce = 7 + 64 * ++fx.joins;
	fx_hello(&x);
	m = fx_join_message(&x);
	fx_join_with(&x, &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
}

/* R8.3: those that wait hear that their worker was refused, not another run's. */
static void
test_refused_of_another_run(void)
{
	const struct pbox_job *job;

	fx_begin();
	w[0] = worker(0, 2, "monday");
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	job = pbox_registrar_job(fx.registrar, 0);
	small_mtu("tuesday");
	UNIT_EQ_U64(job->member[1].left, PBOX_LEFT_UNKNOWN);
	CU_ASSERT_STRING_EQUAL(job->member[1].host, "");
	small_mtu("monday");
	UNIT_EQ_U64(job->member[1].left, PBOX_LEFT_REFUSED);
	fx_end();
}

/* R12.4: what ended by itself may come again by name; its number may not when another has begun. */
static void
test_ended_by_itself(void)
{
	uint64_t first;

	fx_begin();
	job(w, 1, "monday");
	first = w[0].welcome.number;
	fx_leave(&w[0]);
	CU_ASSERT_TRUE(joins(0, 1, "monday", first)); /* it was cut off */
	UNIT_EQ_U64(other[0].welcome.number, first);
	fx_leave(&other[0]);
	job(w, 1, "monday");
	CU_ASSERT(w[0].welcome.number > first);
	refused(0, 1, "monday", first, PBOX_E_RUN_ENDED);
	fx_leave(&w[0]);
	fx_end();
}

/* R12.4: eight are remembered, and of the older ones that they are older. */
static void
test_many_ended(void)
{
	uint64_t number[12];
	char name[16];

	fx_begin();
	for (unsigned i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "run%u", i);
		if (i > 0)
			refused(0, 1, name, 0, PBOX_E_WORKER_TAKEN);
		job(w, 1, name);
		map(w, 1);
		number[i] = w[0].welcome.number;
		fx_tick(); /* memory is cleared */
	}
	for (unsigned i = 3; i < 11; i++) {
		snprintf(name, sizeof(name), "run%u", i);
		refused(0, 1, name, 0, PBOX_E_RUN_ENDED);
	}
	for (unsigned i = 0; i < 11; i++)
		refused(0, 1, "", number[i], PBOX_E_RUN_ENDED);
	CU_ASSERT_TRUE(joins(0, 1, "run11", number[11]) || fx_error() == PBOX_E_WORKER_TAKEN);
	fx_end();
}

/* One worker's run of a job with any name. */
static bool
begins(const char *name, const char *run)
{
	struct fx_worker x = worker(0, 1, run);
	bool taken;

	x.job = name;
	taken = fx_try_join(&x);
	if (taken)
		fx_leave(&x);
	return taken;
}

/* R12.4: runs are remembered of the jobs that are there, and of 64 names and more that were there last. */
static void
test_many_names(void)
{
	static const struct pbox_job_conf any = {.name = "*", .secret = "key", .secret_len = 3};
	static char name[100][16];

	fx_begin();
	pbox_registrar_reload(fx.registrar, &any, 1, 10000, 0, fx.now);
	job(w, 1, "monday");
	refused(0, 1, "tuesday", 0, PBOX_E_WORKER_TAKEN);
	job(w, 1, "tuesday");
	for (unsigned i = 0; i < 100; i++) {
		struct fx_worker x = worker(0, 1, "monday");

		snprintf(name[i], sizeof(name[i]), "job%u", i);
		x.job = name[i];
		CU_ASSERT_TRUE_FATAL(fx_try_join(&x));
		CU_ASSERT_FALSE(begins(name[i], "tuesday")); /* that makes way */
		CU_ASSERT_TRUE(begins(name[i], "tuesday"));
		fx.now += 100 * MS; /* R6.12a */
		fx_tick();
	}
	refused(0, 1, "monday", 0, PBOX_E_RUN_ENDED); /* it is there all the time */
	for (unsigned i = 100 - 64; i < 100; i++) {
		CU_ASSERT_FALSE(begins(name[i], "monday"));
		UNIT_EQ_U64(fx_error(), PBOX_E_RUN_ENDED);
		fx.now += 100 * MS;
	}
	/* of the others nothing is known, and each may begin */
	for (unsigned i = 0; i < 30; i++) {
		CU_ASSERT_TRUE(begins(name[i], "monday"));
		fx.now += 100 * MS;
		fx_tick(); /* memory is cleared */
	}
	fx_end();
}

/* ---- R12.5: the box was started again ---------------------------------------------------- */

static void
test_comes_again(void)
{
	fx_begin();
	CU_ASSERT_TRUE(joins(0, 2, "monday", 777));
	UNIT_EQ_U64(other[0].welcome.number, 777);
	CU_ASSERT_TRUE(joins(1, 2, "monday", 777));
	refused(0, 2, "", 776, PBOX_E_RUN_ENDED);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "run 777 has begun"));
	/* of two that were named the higher one is newer */
	refused(0, 1, "tuesday", 778, PBOX_E_WORKER_TAKEN);
	refused(0, 2, "monday", 777, PBOX_E_RUN_ENDED);
	CU_ASSERT_TRUE(joins(0, 1, "tuesday", 778));
	UNIT_EQ_U64(other[0].welcome.number, 778);
	refused(0, 2, "monday", 777, PBOX_E_RUN_ENDED);
	fx_end();
}

/* Runs that begin after it have higher numbers, whatever the clock says. */
static void
test_clock_set_back(void)
{
	fx_begin();
	CU_ASSERT_TRUE(joins(0, 1, "", 777));
	fx_leave(&other[0]);
	CU_ASSERT_TRUE(joins(0, 1, "", 0));
	CU_ASSERT(other[0].welcome.number > 777);
	fx_end();
}

/* Also after one that was named made way; else its own workers would be taken for those of an ended one. */
static void
test_numbers_grow(void)
{
	uint64_t last = 777;
	char name[16];

	fx_begin();
	CU_ASSERT_TRUE(joins(0, 1, "monday", last));
	for (unsigned i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "run%u", i);
		refused(0, 1, name, 0, PBOX_E_WORKER_TAKEN);
		job(w, 1, name);
		CU_ASSERT(w[0].welcome.number > last);
		last = w[0].welcome.number;
		fx_tick(); /* memory is cleared */
	}
	fx_leave(&w[0]);
	CU_ASSERT_TRUE(joins(0, 1, name, last));
	fx_end();
}

/* What a worker makes up is a number of its own job: those of others go on as before. And its own job's next run is
 * none that cannot come again, at this box or when that was started again. */
static void
test_made_up_number(void)
{
	const uint64_t most = (UINT64_C(5000) << 20) + (UINT64_C(1) << 52);

	fx.first_run = UINT64_C(5000) << 20;
	fx_begin();
	for (unsigned bit = 53; bit < 64; bit++)
		refused(0, 1, "", UINT64_C(1) << bit, PBOX_E_BAD_REQUEST);
	refused(0, 1, "", most + 1, PBOX_E_BAD_REQUEST);
	CU_ASSERT_TRUE(joins(0, 1, "", most));
	fx_leave(&other[0]);
	for (unsigned i = 1; i < 4; i++) {
		CU_ASSERT_TRUE(joins(0, 1, "", 0));
		UNIT_EQ_U64(other[0].welcome.number, most + i);
		fx_leave(&other[0]);
		CU_ASSERT_TRUE(joins(0, 1, "", most + i)); /* it was cut off */
		fx_leave(&other[0]);
		fx_tick(); /* memory is cleared */
	}
	fx_join(&w[2], "speech", 0, 1);
	CU_ASSERT(w[2].welcome.number < most);
	fx_leave(&w[2]);
	w[2].number = w[2].welcome.number;
	CU_ASSERT_TRUE(fx_try_join(&w[2])); /* its box was cut off */
	fx_end();

	fx.first_run = UINT64_C(5001) << 20;
	fx_begin();
	CU_ASSERT_TRUE(joins(0, 1, "", most + 3));
	fx_end();

	/* its clock was set back by years */
	fx.first_run = 1;
	fx_begin();
	CU_ASSERT_TRUE(joins(0, 1, "", pbox_registrar_first_run(UINT64_C(2000000000) << 30)));
	fx_end();
}

/* R12.2: a box that is started again within a second gives no number again. */
static void
test_first_numbers(void)
{
	uint64_t ns = UINT64_C(1800000000123456789), last = pbox_registrar_first_run(ns);

	for (unsigned i = 0; i < 3000; i++) {
		uint64_t next = pbox_registrar_first_run(ns += 999999);

		CU_ASSERT(next - last > 1000 && next - last < 1100);
		last = next;
	}
	/* older boxes had whole seconds */
	UNIT_EQ_U64(last >> 20, ns / 1000000000);
}

/* By a clock that was set back a number was given twice: identities separate the runs. */
static void
test_a_number_given_twice(void)
{
	uint64_t number;

	fx_begin();
	job(w, 2, "tuesday");
	map(w, 2);
	number = w[0].welcome.number;
	fx_leave(&w[1]);
	refused(1, 2, "monday", number, PBOX_E_RUN_ENDED);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "another has its number"));
	CU_ASSERT_TRUE(joins(1, 2, "tuesday", number));
	fx_leave(&other[1]);
	refused(1, 2, "", number,
		PBOX_E_RUN_ENDED); /* nor has one that names none an identity later */
	fx_end();
}

/* A worker that was started again together with the box is there first. */
static void
test_a_fresh_one_first(void)
{
	fx_begin();
	job(w, 2, "");
	CU_ASSERT_EQUAL(fx_declare(&w[1], 0, &table)->hdr.type, PBOX_DECLARED);
	CU_ASSERT_TRUE(joins(0, 2, "", 777));
	UNIT_EQ_U64(other[0].welcome.number, 777);
	CU_ASSERT_EQUAL(fx_control(&w[1], PBOX_PING, NULL, 0)->hdr.aux, PBOX_E_SESSION);
	CU_ASSERT_TRUE(joins(1, 2, "", 0));
	UNIT_EQ_U64(other[1].welcome.number, 777);
	map(other, 2);
	fx_end();

	/* who is refused for its number of workers changes nothing of it */
	fx_begin();
	job(w, 2, "");
	refused(0, 3, "", 777, PBOX_E_WORKERS);
	refused(0, 3, "", 0, PBOX_E_WORKERS);
	CU_ASSERT_EQUAL(fx_control(&w[1], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	fx_leave(&w[1]);
	CU_ASSERT_TRUE(joins(1, 2, "", 0));
	UNIT_EQ_U64(other[1].welcome.number, w[0].welcome.number);
	fx_end();

	/* another run's, or one that has begun: it comes too late */
	fx_begin();
	job(w, 2, "tuesday");
	refused(0, 2, "", 777, PBOX_E_RUN_ENDED);
	refused(0, 2, "monday", 777, PBOX_E_RUN_ENDED);
	CU_ASSERT_EQUAL(fx_control(&w[1], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	fx_end();
	fx_begin();
	job(w, 2, "");
	map(w, 2);
	refused(0, 2, "", 777, PBOX_E_RUN_ENDED);
	fx_end();
}

/* A run that was named has begun: another identity does not take it, but its place. */
static void
test_identity_of_a_told_run(void)
{
	fx_begin();
	CU_ASSERT_TRUE(joins(0, 2, "", 777));
	CU_ASSERT_TRUE(joins(1, 2, "", 0));
	refused(0, 1, "tuesday", 0, PBOX_E_WORKER_TAKEN);
	CU_ASSERT_TRUE(joins(0, 1, "tuesday", 0));
	refused(0, 2, "", 777, PBOX_E_RUN_ENDED);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"numbers", test_numbers},
	{"another run begins", test_another_run},
	{"while memory is released", test_meanwhile},
	{"three runs", test_three_runs},
	{"identities", test_identities},
	{"who would be refused anyway", test_refused_anyway},
	{"no packets for another run", test_no_packets_for_another},
	{"no quota for another run", test_no_quota_for_another},
	{"no memory for another run", test_no_memory_for_another},
	{"another section for another run", test_another_section},
	{"who is refused of another run", test_refused_of_another_run},
	{"a run that ended by itself", test_ended_by_itself},
	{"many that ended", test_many_ended},
	{"many names", test_many_names},
	{"workers that come again", test_comes_again},
	{"a clock that was set back", test_clock_set_back},
	{"numbers grow", test_numbers_grow},
	{"a number that somebody made up", test_made_up_number},
	{"first numbers", test_first_numbers},
	{"a number given twice", test_a_number_given_twice},
	{"a worker that was started with the box", test_a_fresh_one_first},
	{"the identity of a run that was named", test_identity_of_a_told_run},
	{NULL, NULL},
};
