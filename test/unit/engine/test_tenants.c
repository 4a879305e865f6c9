/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"

/* Tenants of one box: what one asks for leaves the others what is theirs. */

const char unit_suite[] = "engine: tenants";

static struct fx_worker w[16];

/* These sections from now on. */
static void
sections(const struct pbox_job_conf *conf, unsigned n)
{
	static struct pbox_job_conf now[16];

	CU_ASSERT_FATAL(n <= 16);
	for (unsigned i = 0; i < n; i++) {
		now[i] = conf[i];
		now[i].secret = "key";
		now[i].secret_len = 3;
	}
	pbox_registrar_reload(fx.registrar, now, n, 10000, 0, fx.now);
}

/* A box of eight jobs and 64 packets, with these sections. */
static void
begin_small(const struct pbox_job_conf *conf, unsigned n)
{
	fx.max_jobs = 8;
	fx.hold = 64;
	fx_begin();
	sections(conf, n);
}

/* Of the job's memory, beside its parameters. */
static size_t
charged(const struct pbox_job *job)
{
	return job->heap + job->round_bytes;
}

/* A JOIN that is refused: the code of the ERROR; 0: it was not. */
static unsigned
refusal(const char *job, uint16_t workers)
{
	struct fx_worker x = {.job = job,
		.workers = workers,
		.mtu = 1500,
		.ip = 0x0a000020u,
		.udp = 4100,
		.nonce = 0x1000u + 64 * ++fx.joins};
	const struct fx_sent *s;
	struct pbox_join m;

	fx_hello(&x);
	m = fx_join_message(&x);
	s = fx_join_with(&x, &m, "key");
	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	return s->hdr.type == PBOX_ERROR ? fx_error() : 0;
}

/* H4: few large jobs cannot take the packets that are kept for a section with a name. */
static void
test_named_sections_keep_their_packets(void)
{
	static const struct pbox_job_conf conf[] = {{.name = "*"}, {.name = "mine"}};

	begin_small(conf, 2);
	fx_join(&w[0], "a", 0, 16);
	fx_join(&w[1], "b", 0, 16);
	fx_join(&w[2], "c", 0, 16);
	UNIT_EQ_U64(refusal("d", 16), PBOX_E_FULL);
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"no packet buffers left for 16 workers (16 free, 4 of them kept for sections with a name): raise 'hold'");
	fx_join(&w[4], "mine", 0, 2);
	fx_end();
}

/* With the number of workers in its section a job has room for all of them. */
static void
test_room_for_all_its_workers(void)
{
	static const struct pbox_job_conf conf[] = {{.name = "*"}, {.name = "mine", .workers = 20}};

	begin_small(conf, 2);
	fx_join(&w[0], "a", 0, 40);
	UNIT_EQ_U64(refusal("b", 8), PBOX_E_FULL);
	fx_join(&w[2], "mine", 0, 20);
	fx_join(&w[3], "b", 0, 4);
	fx_end();
}

/* H4: as many names as one likes under [job *] leave a number to each section with a name. */
static void
test_named_sections_keep_their_number(void)
{
	static const struct pbox_job_conf conf[] = {
		{.name = "*"}, {.name = "mine"}, {.name = "yours"}};

	fx_begin(); /* four jobs */
	sections(conf, 3);
	fx_join(&w[0], "a", 0, 1);
	fx_join(&w[1], "b", 0, 1);
	UNIT_EQ_U64(refusal("c", 1), PBOX_E_FULL);
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"the box has 2 of its 4 jobs, and keeps the others for sections with a name: raise max-jobs, or give this job a section");
	fx_join(&w[4], "yours", 0, 1);
	fx_join(&w[5], "mine", 0, 1);
	/* one of them ends: its number is kept for it */
	fx_leave(&w[5]);
	UNIT_EQ_U64(refusal("c", 1), PBOX_E_FULL);
	fx_join(&w[7], "mine", 0, 1);
	/* and one of the others: that is free for all */
	fx_leave(&w[0]);
	fx_join(&w[8], "c", 0, 1);
	fx_end();
}

static void
test_any_has_its_own_bound(void)
{
	static const struct pbox_job_conf conf[] = {{.name = "*", .max_jobs = 2}, {.name = "mine"}};

	begin_small(conf, 2);
	fx_join(&w[0], "a", 0, 1);
	fx_join(&w[1], "mine", 0, 1);
	fx_join(&w[2], "b", 0, 1);
	UNIT_EQ_U64(refusal("c", 1), PBOX_E_FULL);
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"[job *] has its 2 jobs already: raise max-jobs in [job *], or give this job a section");
	fx_end();
}

/* S9: who comes while the job ends has to ask again, and counted. */
static void
test_join_of_an_ending_job(void)
{
	uint64_t before;

	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	fx.hold_mail = true;
	fx_leave(&w[0]);
	before = fx.rs[PBOX_RS_REFUSED];
	UNIT_EQ_U64(refusal("vision", 1), PBOX_E_WORKER_TAKEN);
	CU_ASSERT_STRING_EQUAL(
		fx_error_text(), "job 'vision' is ending: its memory is being released");
	UNIT_EQ_U64(fx.rs[PBOX_RS_REFUSED], before + 1);
	fx.hold_mail = false;
	fx_mail();
	fx_join(&w[2], "vision", 0, 1);
	fx_end();
}

/* One tensor of a table of n, which has none of them yet. */
static unsigned
declare_one(struct fx_worker *x, uint32_t table, uint32_t n, uint32_t index, uint16_t group)
{
	struct pbox_declare m = {.table = table,
		.tensors = n,
		.first = index,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32};
	struct pbox_tensor_entry e = {.elements = 1, .group = group, .name = "t"};
	const struct fx_sent *s = fx_declare_list(x, &m, &e, 1);

	return s->hdr.type == PBOX_DECLARED ? 0 : fx_error();
}

/* H3, S1: what a member declares is charged to the memory of its job, before it is there. */
static void
test_declarations_are_charged(void)
{
	const struct pbox_job *job;
	size_t begun;

	fx_begin(); /* "quota" has 1 MiB */
	fx_join(&w[0], "quota", 0, 2);
	job = pbox_registrar_job(fx.registrar, 0);
	begun = charged(job);
	CU_ASSERT(begun > sizeof(*job) && begun < FX_QUOTA / 2);
	UNIT_EQ_U64(declare_one(&w[0], 0, 1u << 20, 0, 0), PBOX_E_NO_MEMORY);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "the declaration of table 0 needs 251"));
	UNIT_EQ_U64(charged(job), begun);
	UNIT_EQ_U64(declare_one(&w[0], 0, 10000, 0, 0), 0);
	CU_ASSERT(charged(job) > begun + 10000 * sizeof(struct pbox_tensor));
	CU_ASSERT(charged(job) < FX_QUOTA);
	/* the next one not before this one is complete */
	UNIT_EQ_U64(declare_one(&w[0], 1, 10000, 0, 0), PBOX_E_BAD_REQUEST);
	CU_ASSERT_STRING_EQUAL(
		fx_error_text(), "table 1: the one before it is not declared completely");
	/* nobody has declared it any more */
	fx_join(&w[1], "quota", 1, 2);
	fx_leave(&w[0]);
	UNIT_EQ_U64(charged(job), begun);
	UNIT_EQ_U64(job->tensors, 0);
	fx_end();
}

/* Small tables with many groups: schedules and descriptions are charged as well. */
static void
test_tables_are_charged(void)
{
	const struct pbox_job *job;
	unsigned n = 0, code = 0;

	fx.memory = 4u << 20;
	fx_begin();
	fx_join(&w[0], "quota", 0, 1);
	job = pbox_registrar_job(fx.registrar, 0);
	while (code == 0 && n < 100) {
		code = declare_one(&w[0], n, 1, 0, PBOX_MAX_GROUPS - 1);
		if (code == 0 && fx_map(&w[0], n++, 0)->hdr.type == PBOX_ERROR)
			code = fx_error();
	}
	UNIT_EQ_U64(code, PBOX_E_NO_MEMORY);
	CU_ASSERT(n < 4);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "the map of table "));
	CU_ASSERT(job->bytes + charged(job) <= fx.memory);
	fx_end();
}

/* Without memory in its section a job has a share of the box's. */
static void
test_heap_without_a_quota(void)
{
	const struct pbox_job *job;

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	job = pbox_registrar_job(fx.registrar, 0);
	UNIT_EQ_U64(declare_one(&w[0], 0, 1u << 20, 0, 0), PBOX_E_NO_MEMORY);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(fx_error_text(), "beside its parameters: declare less, or raise"));
	CU_ASSERT(job->heap_most >= 4u << 20 && job->heap < job->heap_most);
	UNIT_EQ_U64(declare_one(&w[0], 0, 100000, 0, 0), 0);
	fx_end();
}

/* Records of rounds are charged: a job of little memory has a smaller window, or is refused. */
static void
test_rounds_are_charged(void)
{
	fx.hold = 4096;
	fx.memory = 1u << 18;
	fx_begin();
	fx_join(&w[0], "vision", 0, 8);
	fx_join(&w[1], "quota", 0, 8);
	CU_ASSERT(w[1].welcome.window < w[0].welcome.window);
	CU_ASSERT(w[1].welcome.window >= 1);
	fx_leave(&w[1]);
	UNIT_EQ_U64(refusal("quota", 64), PBOX_E_NO_MEMORY);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "section [job quota] has memory = 262144"));
	fx_end();
}

/* A job of one worker with one table: how its MAP is answered. */
static unsigned
alone(struct fx_worker *x, const char *job, const struct fx_table *t)
{
	fx_join(x, job, 0, 1);
	UNIT_EQ_U64(fx_declare(x, 0, t)->hdr.type, PBOX_DECLARED);
	return fx_map(x, 0, 0)->hdr.type;
}

/* R8.2c: what is kept of a section with a name gives its place to another such, and to none of [job *]. */
static void
test_kept_for_a_name(void)
{
	static const struct pbox_job_conf conf[] = {{.name = "*"},
		{.name = "mine", .bounds.grace_ns = UINT64_C(600000000000)}, {.name = "yours"}};
	const struct fx_table half = {.elements = FX_ARENA / 4 / 2, .op = PBOX_OP_SUM},
			      most = {.elements = (FX_ARENA - 638976) / 4, .op = PBOX_OP_SUM};

	fx.chunk_elements = 8192;
	fx_begin();
	sections(conf, 3);
	UNIT_EQ_U64(alone(&w[0], "mine", &half), PBOX_NOT_READY); /* in slices */
	fx_work();
	UNIT_EQ_U64(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx.now += UINT64_C(11000000000);
	fx_tick();
	UNIT_EQ_U64(alone(&w[1], "a", &half), PBOX_ERROR);
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 2);
	UNIT_EQ_U64(alone(&w[2], "yours", &half), PBOX_NOT_READY);
	for (unsigned i = 0; i < 10; i++)
		fx_tick();
	UNIT_EQ_U64(fx_map(&w[2], 0, 0)->hdr.type, PBOX_MAPPED);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 2);
	fx_end();

	/* nor for the records of rounds */
	fx.chunk_elements = 8192;
	fx_begin();
	sections(conf, 3);
	UNIT_EQ_U64(alone(&w[0], "mine", &most), PBOX_NOT_READY);
	fx_work();
	UNIT_EQ_U64(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx.now += UINT64_C(11000000000);
	fx_tick();
	UNIT_EQ_U64(refusal("a", 1), PBOX_E_NO_MEMORY);
	UNIT_EQ_U64(refusal("yours", 1), PBOX_E_WORKER_TAKEN);
	fx_end();
}

#define CYCLES 100000u
#define SETTLE \
	10000u /* until then what the box remembers of sessions that have ended has grown to what it stays */
#define CYCLE UINT64_C(10000000)

/* Of the process, its test and the box. (With a sanitizer's allocator 0: that reports leaks by itself.) */
static size_t
heap_in_use(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* Forms of tables, in turn: tensors, their elements, groups. */
static void
declare_some(struct fx_worker *x, unsigned cycle)
{
	static const uint32_t most = 12;
	struct pbox_declare m = {.tensors = 1 + cycle % most,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_BF16};
	struct pbox_tensor_entry e[12];

	for (uint32_t i = 0; i < m.tensors; i++) {
		e[i] = (struct pbox_tensor_entry){
			.elements = 1 + (cycle * 7 + i) % 500, .group = (uint16_t)(i % 3)};
		snprintf(e[i].name, sizeof(e[i].name), "layer%u.%u.weight", cycle % 1000, i);
	}
	CU_ASSERT_EQUAL_FATAL(fx_declare_list(x, &m, e, m.tensors)->hdr.type, PBOX_DECLARED);
}

/* A tenant that lives beside it, and what it got at its first join. */
static struct pbox_welcome
neighbour(struct fx_worker *x)
{
	static const struct fx_table sum = {.elements = 1000};

	fx_join(x, "speech", 0, 1);
	UNIT_EQ_U64(fx_declare(x, 0, &sum)->hdr.type, PBOX_DECLARED);
	fx_work();
	UNIT_EQ_U64(fx_map(x, 0, 0)->hdr.type, PBOX_MAPPED);
	return x->welcome;
}

/* Nothing of all that was declared and released is left, neither of memory nor of what others may have. */
static void
nothing_is_left(struct fx_worker *beside, const struct pbox_welcome *first, size_t arena)
{
	fx_work();
	UNIT_EQ_U64(pbox_arena_used(fx.arena), arena);
	CU_ASSERT_EQUAL(fx_control(beside, PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	fx_leave(beside);
	neighbour(beside);
	UNIT_EQ_U64(beside->welcome.window, first->window);
	UNIT_EQ_U64(beside->welcome.job, first->job);
}

static void
a_while(struct fx_worker *beside, unsigned cycle)
{
	fx.now += CYCLE;
	if (cycle % 16 != 0)
		return;
	fx_tick();
	fx_work();
	if (cycle % 256 == 0)
		CU_ASSERT_EQUAL(fx_control(beside, PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
}

/* Jobs of one tenant that declare a table each, mapped or not, and end: by LEAVE, or for another run. */
static void
test_jobs_in_turn(void)
{
	struct pbox_welcome first;
	size_t heap = 0, arena;

	fx.hold = 16;
	fx_begin();
	first = neighbour(&w[1]);
	arena = pbox_arena_used(fx.arena);
	for (unsigned i = 0; i < CYCLES; i++) {
		w[0] = (struct fx_worker){.job = "quota", .workers = 1};
		memcpy(w[0].run, &i, sizeof(i));
		w[0].run[15] = 1;
		if (i % 3 == 1) /* the one before has not left */
			CU_ASSERT_FALSE(fx_try_join(&w[0]));
		CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
		declare_some(&w[0], i);
		if (i % 2 == 0)
			fx_map(&w[0], 0, 0);
		if (i % 3 != 0)
			fx_leave(&w[0]);
		a_while(&w[1], i);
		if (i == SETTLE)
			heap = heap_in_use();
	}
	fx_leave(&w[0]);
	CU_ASSERT(heap_in_use() < heap + 65536);
	nothing_is_left(&w[1], &first, arena);
	fx_end();
}

/* One job of two workers, of which one declares and leaves, again and again: nobody has declared it then. */
static void
test_declarations_in_turn(void)
{
	const struct pbox_job *job;
	struct pbox_welcome first;
	size_t begun = 0, heap = 0, arena;

	fx.hold = 16;
	fx_begin();
	first = neighbour(&w[1]);
	fx_join(&w[0], "quota", 0, 2);
	arena = pbox_arena_used(fx.arena);
	job = pbox_registrar_job(fx.registrar, 1);
	for (unsigned i = 0; i < CYCLES; i++) {
		fx_join(&w[2], "quota", 1, 2);
		declare_some(&w[2], i);
		fx_leave(&w[2]);
		a_while(&w[1], i);
		if (i % 256 == 0)
			CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
		if (i == SETTLE) {
			heap = heap_in_use();
			begun = charged(job);
		}
	}
	UNIT_EQ_U64(charged(job), begun);
	UNIT_EQ_U64(job->tensors, 0);
	CU_ASSERT(heap_in_use() < heap + 65536);
	nothing_is_left(&w[1], &first, arena);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"declarations are charged", test_declarations_are_charged},
	{"tables are charged", test_tables_are_charged},
	{"jobs that declare and end in turn", test_jobs_in_turn},
	{"declarations in turn", test_declarations_in_turn},
	{"heap without a quota", test_heap_without_a_quota},
	{"rounds are charged", test_rounds_are_charged},
	{"sections with a name keep their packets", test_named_sections_keep_their_packets},
	{"room for all workers of a section", test_room_for_all_its_workers},
	{"sections with a name keep their number", test_named_sections_keep_their_number},
	{"[job *] has a bound of its own", test_any_has_its_own_bound},
	{"a JOIN of a job that is ending", test_join_of_an_ending_job},
	{"runs kept for a name", test_kept_for_a_name},
	{NULL, NULL},
};
