/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: runs that are kept";

#define MS    UINT64_C(1000000)
#define S     (1000 * MS)
#define LEASE 10
#define GRACE 60

static struct fx_worker w[16], other[4];
static const struct fx_table table = {.elements = 4, .op = PBOX_OP_SUM};
static const float one[4] = {1, 2, 3, 4};

static void
pass(unsigned seconds)
{
	for (unsigned i = 0; i < seconds * 10; i++) {
		fx.now += 100 * MS;
		fx_tick();
	}
}

static void
begin(const char *job, uint16_t n)
{
	fx.grace_ms = GRACE * 1000;
	fx_begin();
	fx_job(w, job, n, &table);
	for (uint16_t i = 1; i < n; i++)
		fx_map(&w[i], 0, 0);
	for (uint16_t i = 0; i < n; i++)
		fx_pushpull(&w[i], 1, one, 4);
	pass(1);
}

static unsigned
jobs(void)
{
	return pbox_registrar_jobs(fx.registrar);
}

static const struct pbox_job *
the_job(void)
{
	return pbox_registrar_job(fx.registrar, 0);
}

static uint64_t
kept_ns(void)
{
	struct pbox_job_view v;

	pbox_registrar_view_job(fx.registrar, the_job(), &v);
	return v.kept_ns;
}

static bool
alive(unsigned i)
{
	return fx_control(&w[i], PBOX_PING, NULL, 0)->hdr.type == PBOX_PONG;
}

static bool
joins(unsigned i, const char *job, uint16_t workers)
{
	other[i] = (struct fx_worker){.job = job, .worker = (uint16_t)i, .workers = workers};
	return fx_try_join(&other[i]);
}

/* R8.2b: its parameters and its sessions stay, and it goes on with a frame of one of them. */
static void
test_goes_on(void)
{
	begin("vision", 2);
	fx_pushpull(&w[0], 2, one, 4);
	pass(LEASE + 1);
	UNIT_EQ_U64(jobs(), 1);
	CU_ASSERT(kept_ns() != 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "is kept for 60 s"));
	pass(GRACE - 5);
	CU_ASSERT_TRUE(alive(1));
	pass(1);
	UNIT_EQ_U64(kept_ns(), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "goes on"));
	/* worker 0 has its lease from now on */
	UNIT_EQ_U64(the_job()->member[0].state, PBOX_MEMBER_JOINED);
	for (unsigned i = 0; i <= LEASE; i++) {
		pass(1);
		CU_ASSERT_TRUE(alive(1));
	}
	UNIT_EQ_U64(the_job()->member[0].state, PBOX_MEMBER_SILENT);
	CU_ASSERT_TRUE(alive(0));
	fx_clear();
	fx_pushpull(&w[1], 2, one, 4);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	fx_end();
}

static void
test_grace_is_over(void)
{
	begin("vision", 2);
	fx_leave(&w[1]); /* one has left, the other is silent */
	pass(LEASE + GRACE - 2);
	UNIT_EQ_U64(jobs(), 1);
	pass(4);
	UNIT_EQ_U64(jobs(), 0);
	fx_end();
}

/* The grace counts only time in which the box listened, as leases do. */
static void
test_a_box_that_was_away(void)
{
	begin("vision", 1);
	pass(LEASE + 1);
	fx.now += 3600 * S;
	fx.heard = fx.now;
	pbox_registrar_tick(fx.registrar, fx.now);
	UNIT_EQ_U64(jobs(), 1);
	pass(GRACE - 3);
	UNIT_EQ_U64(jobs(), 1);
	pass(4);
	UNIT_EQ_U64(jobs(), 0);
	fx_end();
}

/* All have left; nothing is mapped; nothing is kept here; the box is drained. */
static void
test_ends_at_once(void)
{
	begin("vision", 2);
	fx_leave(&w[0]);
	fx_leave(&w[1]);
	UNIT_EQ_U64(jobs(), 0);
	fx_end();

	fx.grace_ms = GRACE * 1000;
	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	pass(LEASE + 1);
	UNIT_EQ_U64(jobs(), 0);
	fx_end();

	begin("brief", 1); /* its section has a grace of its own */
	pass(LEASE + 1);
	UNIT_EQ_U64(jobs(), 1);
	pass(2);
	UNIT_EQ_U64(jobs(), 0);
	fx_end();

	begin("vision", 1);
	pass(LEASE + 1);
	UNIT_EQ_U64(jobs(), 1);
	pbox_registrar_drain(fx.registrar, true);
	pass(1);
	UNIT_EQ_U64(jobs(), 0);
	fx_end();
}

/* R8.2b with R8.5: nobody is removed while all are silent; then the others have a lease to come back. */
static void
test_shrink(void)
{
	begin("six", 3);
	pass(LEASE + 20);
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 0);
	CU_ASSERT_TRUE(alive(0));
	pass(LEASE / 2);
	CU_ASSERT_TRUE(alive(0));
	CU_ASSERT_TRUE(alive(1));
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 0);
	pass(LEASE / 2 + 1);
	CU_ASSERT_TRUE(alive(0));
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 1);
	CU_ASSERT_TRUE(the_job()->member[2].removed);
	fx_clear();
	fx_pushpull(&w[0], 2, one, 4);
	fx_pushpull(&w[1], 2, one, 4);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	fx_end();
}

/* R12.5, R12.7: what comes after it without an identity. */
static void
test_another_run(void)
{
	begin("vision", 2);
	pass(LEASE + 1);
	CU_ASSERT_FALSE(joins(0, "vision", 3)); /* another number of workers: at once */
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	UNIT_EQ_U64(jobs(), 0);
	CU_ASSERT_TRUE(joins(0, "vision", 3));
	w[0].number = w[0].welcome.number;
	CU_ASSERT_FALSE(fx_try_join(&w[0]));
	UNIT_EQ_U64(fx_error(), PBOX_E_RUN_ENDED);
	fx_end();

	begin("vision", 2);
	pass(LEASE + 1);
	CU_ASSERT_TRUE(joins(0, "vision", 2)); /* the same: it might go on */
	fx_declare(&other[0], 0, &table);
	UNIT_EQ_U64(fx_error(), PBOX_E_SESSION);
	UNIT_EQ_U64(jobs(), 0);
	CU_ASSERT_TRUE(joins(0, "vision", 2));
	fx_end();
}

/* ---- R8.2c: it gives way --------------------------------------------------------------------- */

/* The oldest of two, and no other. */
static void
test_room_for_a_job(void)
{
	fx.max_jobs = 2;
	begin("vision", 1);
	pass(2);
	fx_job(&w[1], "speech", 1, &table);
	pass(LEASE + 2);
	UNIT_EQ_U64(jobs(), 2);
	CU_ASSERT_FALSE(joins(0, "seven", 1));
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "makes room"));
	CU_ASSERT_TRUE(joins(0, "seven", 1));
	UNIT_EQ_U64(jobs(), 2);
	CU_ASSERT_FALSE(alive(0));
	CU_ASSERT_TRUE(alive(1));
	/* both live now */
	CU_ASSERT_FALSE(joins(0, "eight", 1));
	UNIT_EQ_U64(fx_error(), PBOX_E_FULL);
	fx_end();
}

/* While its memory is released nobody else ends. */
static void
test_one_at_a_time(void)
{
	fx.max_jobs = 2;
	begin("vision", 1);
	fx_job(&w[1], "speech", 1, &table);
	pass(LEASE + 2);
	fx.hold_mail = true;
	CU_ASSERT_FALSE(joins(0, "seven", 1));
	CU_ASSERT_FALSE(joins(0, "seven", 1));
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 1);
	fx_mail();
	fx.hold_mail = false;
	CU_ASSERT_TRUE(joins(0, "seven", 1));
	UNIT_EQ_U64(jobs(), 2);
	fx_end();
}

static void
test_room_for_packets(void)
{
	fx.hold = 32;
	fx.max_jobs = 2;
	begin("vision", 16);
	pass(LEASE + 2);
	CU_ASSERT_FALSE(joins(0, "seven", 24));
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	CU_ASSERT_TRUE(joins(0, "seven", 24));
	fx_end();
}

/* Of another size: large for an arena of 8 MiB. */
static void
declare_alone(struct fx_worker *x, const char *job, uint32_t elements)
{
	struct fx_table t = table;

	t.elements = elements;
	fx_join(x, job, 0, 1);
	UNIT_EQ_U64(fx_declare(x, 0, &t)->hdr.type, PBOX_DECLARED);
}

static void
test_room_for_a_table(void)
{
	const uint32_t most = FX_ARENA / 4 / 2;

	fx.grace_ms = GRACE * 1000;
	fx.chunk_elements = 8192;
	fx_begin();
	declare_alone(&w[0], "vision", most);
	fx_work();
	UNIT_EQ_U64(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	pass(LEASE + 1);
	UNIT_EQ_U64(jobs(), 1);
	/* what would never fit ends nobody */
	declare_alone(&w[1], "speech", 4 * most);
	fx_map(&w[1], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	UNIT_EQ_U64(jobs(), 2);
	declare_alone(&w[2], "seven", most);
	CU_ASSERT_EQUAL(fx_map(&w[2], 0, 0)->hdr.type, PBOX_NOT_READY);
	pass(1);
	UNIT_EQ_U64(jobs(), 2);
	UNIT_EQ_U64(fx_map(&w[2], 0, 0)->hdr.type, PBOX_MAPPED);
	CU_ASSERT_FALSE(alive(0));
	/* and the quota of a job is its own */
	fx_end();
}

/* The first is kept for longest, the others live. */
static void
begin_with(const char *kept, uint16_t n, const char *lives, uint16_t m)
{
	begin(kept, n);
	fx_join(&w[8], lives, 0, m);
	for (unsigned i = 0; i < LEASE + 1; i++) {
		pass(1);
		fx_control(&w[8], PBOX_PING, NULL, 0);
	}
	CU_ASSERT(kept_ns() != 0);
}

/* Refused so, and nobody has ended. */
static void
in_vain(enum pbox_errcode code)
{
	UNIT_EQ_U64(fx_error(), code);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 0);
	CU_ASSERT_TRUE(alive(0));
	fx_end();
}

/* Who finds no room beside those that live ends nobody: packets. */
static void
test_packets_in_vain(void)
{
	fx.hold = 32;
	begin_with("vision", 4, "speech", 16);
	CU_ASSERT_FALSE(joins(0, "seven", 24));
	in_vain(PBOX_E_FULL);
}

/* Nor who asks for more than its section lets it have. */
static void
test_a_quota_in_vain(void)
{
	fx.memory = 1u << 18;
	fx.max_jobs = 2;
	begin_with("vision", 1, "speech", 1);
	CU_ASSERT_FALSE(joins(0, "quota", 64));
	in_vain(PBOX_E_NO_MEMORY);
}

/* The same, of memory. */
static void
test_a_table_in_vain(void)
{
	const uint32_t most = FX_ARENA / 4 / 2;

	fx.chunk_elements = 8192;
	begin_with("vision", 1, "speech", 1);
	declare_alone(&w[1], "seven", most);
	fx_work();
	UNIT_EQ_U64(fx_map(&w[1], 0, 0)->hdr.type, PBOX_MAPPED);
	UNIT_EQ_U64(jobs(), 3);
	declare_alone(&w[2], "eight", most);
	fx_map(&w[2], 0, 0);
	in_vain(PBOX_E_NO_MEMORY);
}

/* R8.2c: a job of [job *] ends none of a section with a name, for memory either. */
static void
test_any_ends_no_named(void)
{
	static const struct pbox_job_conf conf[] = {{.name = "*", .secret = "key", .secret_len = 3},
		{.name = "vision", .secret = "key", .secret_len = 3}};
	const uint32_t most = FX_ARENA / 4 / 2;

	fx.grace_ms = GRACE * 1000;
	fx.chunk_elements = 8192;
	fx_begin();
	pbox_registrar_reload(fx.registrar, conf, 2, LEASE * 1000, GRACE * 1000, fx.now);
	declare_alone(&w[0], "vision", most);
	fx_work();
	UNIT_EQ_U64(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	pass(LEASE + 1);
	declare_alone(&w[1], "stranger", most);
	fx_map(&w[1], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 0);
	CU_ASSERT_TRUE(alive(0));
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"it goes on", test_goes_on},
	{"the grace is over", test_grace_is_over},
	{"a box that was away", test_a_box_that_was_away},
	{"jobs that end at once", test_ends_at_once},
	{"policy shrink", test_shrink},
	{"another run", test_another_run},
	{"room for a job", test_room_for_a_job},
	{"one at a time", test_one_at_a_time},
	{"room for packets", test_room_for_packets},
	{"room for a table", test_room_for_a_table},
	{"packets in vain", test_packets_in_vain},
	{"a quota in vain", test_a_quota_in_vain},
	{"a table in vain", test_a_table_in_vain},
	{"any ends no named", test_any_ends_no_named},
	{NULL, NULL},
};
