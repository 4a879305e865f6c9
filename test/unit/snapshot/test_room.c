/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Which snapshots go to make room for one. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_snapshot.h>

#include "unit.h"

#define N 12

/* A directory, newest first, as letters: job, then what is known of it. */
struct row {
	const char *job;
	unsigned table;
	bool aside, named, busy;
	unsigned bytes;
	unsigned space; /* of its section */
	bool wished;
};

static void
fill(const struct row *rows, int n, struct pbox_snapshot_file *f, struct pbox_snapshot_claim *claim)
{
	memset(f, 0, (size_t)n * sizeof(*f));
	for (int i = 0; i < n; i++) {
		snprintf(f[i].job, sizeof(f[i].job), "%s", rows[i].job);
		f[i].table = rows[i].table;
		f[i].aside = rows[i].aside;
		f[i].bytes = rows[i].bytes;
		f[i].sequence = (uint64_t)(n - i);
		claim[i] = (struct pbox_snapshot_claim){
			rows[i].named, rows[i].busy, rows[i].wished, rows[i].space};
	}
}

static void
show(const bool *gone, int n, char *out)
{
	for (int i = 0; i < n; i++)
		out[i] = gone[i] ? 'x' : '.';
	out[n] = '\0';
}

static int
room(const struct row *rows, int n, const struct pbox_snapshot_who *who, uint64_t bytes, char *out,
	struct pbox_error *err)
{
	struct pbox_snapshot_file f[N];
	struct pbox_snapshot_claim claim[N];
	bool gone[N] = {false};
	int ret;

	fill(rows, n, f, claim);
	err->text[0] = '\0';
	ret = pbox_snapshot_room(f, claim, n, who, bytes, gone, err);
	show(gone, n, out);
	return ret;
}

#define ROOM(rows, who, bytes) \
	room(rows, sizeof(rows) / sizeof((rows)[0]), &(who), bytes, out, &err)

static char out[N + 1];
static struct pbox_error err;

static void
of_one_section_in_turn(void)
{
	/* its job runs; one more table, an older file of table 0, an earlier run's */
	static const struct row rows[] = {
		{"a", 0, false, true, true, 10},
		{"b", 0, false, true, false, 10},
		{"a", 1, false, true, true, 10},
		{"a", 0, false, true, true, 10},
		{"a", 0, true, true, true, 10},
		{"a", 0, true, true, true, 10},
	};
	struct pbox_snapshot_who who = {.job = "a", .named = true, .space = 60};

	UNIT_EQ_U64(ROOM(rows, who, 10), 0);
	CU_ASSERT_STRING_EQUAL(out, "......");
	UNIT_EQ_U64(ROOM(rows, who, 11), 0);
	CU_ASSERT_STRING_EQUAL(out, ".....x");
	UNIT_EQ_U64(ROOM(rows, who, 25), 0);
	CU_ASSERT_STRING_EQUAL(out, "....xx");
	UNIT_EQ_U64(ROOM(rows, who, 40), 0);
	CU_ASSERT_STRING_EQUAL(out, "...xxx");
	/* the newest of its tables stay while it runs, and another section has nothing to do with it */
	UNIT_EQ_U64(ROOM(rows, who, 41), (unsigned long long)-EDQUOT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text,
		"snapshot-space of [job a] is 60 bytes: this one has 41, what must stay (the newest of each table of a job that runs) 20: raise it to 61"));
}

static void
names_that_are_made_up_share_one(void)
{
	static const struct row rows[] = {
		{"n4", 0, false, false, true, 10},
		{"n3", 0, false, false, false, 10},
		{"mine", 0, false, true, false, 10},
		{"n2", 0, false, false, false, 10},
		{"n1", 0, false, false, true, 10},
	};
	struct pbox_snapshot_who who = {.job = "n5", .space = 40};

	UNIT_EQ_U64(ROOM(rows, who, 10), 0);
	CU_ASSERT_STRING_EQUAL(out, "...x.");
	UNIT_EQ_U64(ROOM(rows, who, 20), 0);
	CU_ASSERT_STRING_EQUAL(out, ".x.x.");
	UNIT_EQ_U64(ROOM(rows, who, 21), (unsigned long long)-EDQUOT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "snapshot-space of [job *] is 40 bytes"));
}

static void
nobody_loses_his_last_one_to_another_section(void)
{
	static const struct row rows[] = {
		{"a", 0, false, true, false, 10}, /* the newest of a job with a section */
		{"n2", 0, false, false, false, 10},
		{"n1", 0, false, false, true, 10},
		{"b", 0, false, true, true, 10},
		{"a", 0, false, true, false, 10}, /* an older one */
		{"n1", 0, true, false, true, 10},
	};
	struct pbox_snapshot_who b = {.job = "b", .named = true, .dir_space = 60};
	struct pbox_snapshot_who made_up = {.job = "n9", .dir_space = 60};
	struct pbox_snapshot_who a = {.job = "a", .named = true, .dir_space = 60};

	/* [job *] gives way first, all of it that may */
	UNIT_EQ_U64(ROOM(rows, b, 20), 0);
	CU_ASSERT_STRING_EQUAL(out, ".x...x");
	UNIT_EQ_U64(ROOM(rows, b, 30), 0);
	CU_ASSERT_STRING_EQUAL(out, ".x..xx");
	UNIT_EQ_U64(ROOM(rows, b, 41), (unsigned long long)-EDQUOT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text,
		"snapshot-space is 60 bytes: this one has 41, what must stay for it 20: raise it to 61, set snapshot-age"));
	/* but takes nothing of others */
	UNIT_EQ_U64(ROOM(rows, made_up, 20), 0);
	CU_ASSERT_STRING_EQUAL(out, ".x...x");
	UNIT_EQ_U64(ROOM(rows, made_up, 21), (unsigned long long)-EDQUOT);
	/* its own it may replace */
	UNIT_EQ_U64(ROOM(rows, a, 40), 0);
	CU_ASSERT_STRING_EQUAL(out, "xx..xx");
}

static void
both_bounds_hold_and_none_is_none(void)
{
	static const struct row rows[] = {
		{"a", 0, false, true, true, 10},
		{"a", 0, false, true, true, 10},
		{"b", 0, true, true, true, 10},
	};
	struct pbox_snapshot_who who = {.job = "a", .named = true, .space = 25, .dir_space = 25};

	UNIT_EQ_U64(ROOM(rows, who, 10), 0);
	CU_ASSERT_STRING_EQUAL(out, ".xx");
	who.space = 0;
	UNIT_EQ_U64(ROOM(rows, who, 5), 0);
	CU_ASSERT_STRING_EQUAL(out, "..x");
	who.dir_space = 0;
	UNIT_EQ_U64(ROOM(rows, who, UINT64_MAX), 0);
	CU_ASSERT_STRING_EQUAL(out, "...");
	/* nobody asks: what is there keeps to the bound again */
	who = (struct pbox_snapshot_who){.dir_space = 10};
	UNIT_EQ_U64(ROOM(rows, who, 0), 0);
	CU_ASSERT_STRING_EQUAL(out, ".xx");
}

/* The first snapshot of a job with a section finds room, whatever jobs of made-up names run. */
static void
a_section_comes_first(void)
{
	static const struct row rows[] = {
		{"n3", 0, false, false, true, 10},
		{"n2", 0, false, false, true, 10, .wished = true},
		{"n1", 0, false, false, true, 10},
		{"other", 0, false, true, true, 10},
		{"other", 0, false, true, true, 10},
	};
	struct pbox_snapshot_who a = {.job = "a", .named = true, .dir_space = 50};
	struct pbox_snapshot_who made_up = {.job = "n9", .dir_space = 50};
	struct pbox_snapshot_who nobody = {.dir_space = 20};

	UNIT_EQ_U64(ROOM(rows, a, 10), 0);
	CU_ASSERT_STRING_EQUAL(out, "....x");
	UNIT_EQ_U64(ROOM(rows, a, 20), 0);
	CU_ASSERT_STRING_EQUAL(out, "..x.x");
	UNIT_EQ_U64(ROOM(rows, a, 30), 0);
	CU_ASSERT_STRING_EQUAL(out, "x.x.x");
	/* not what an operator wants, nor the last one of another section */
	UNIT_EQ_U64(ROOM(rows, a, 31), (unsigned long long)-EDQUOT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "what must stay for it 20: raise it to 51"));
	/* for nobody else, and not for the bound of a section */
	UNIT_EQ_U64(ROOM(rows, made_up, 1), (unsigned long long)-EDQUOT);
	UNIT_EQ_U64(ROOM(rows, nobody, 0), (unsigned long long)-EDQUOT);
	made_up = (struct pbox_snapshot_who){.job = "n9", .space = 30};
	UNIT_EQ_U64(ROOM(rows, made_up, 1), (unsigned long long)-EDQUOT);
}

/* Of each section once, however many files and names there are; what cannot be helped changes nothing. */
static void
what_is_there_keeps_to_the_bounds(void)
{
	static const struct row rows[] = {
		{"a", 0, false, true, false, 10, .space = 15},
		{"n2", 0, false, false, false, 10, .space = 20},
		{"b", 0, false, true, true, 10, .space = 5},
		{"a", 0, false, true, false, 10, .space = 15},
		{"n1", 0, false, false, false, 10, .space = 20},
		{"n2", 0, true, false, false, 10, .space = 20},
		{"b", 0, true, true, true, 10, .space = 5},
	};
	const int n = sizeof(rows) / sizeof(rows[0]);
	struct pbox_snapshot_file f[N];
	struct pbox_snapshot_claim claim[N];
	bool gone[N] = {false};

	fill(rows, n, f, claim);
	UNIT_EQ_U64(pbox_snapshot_sweep(f, claim, n, 0, gone), 3);
	show(gone, n, out);
	CU_ASSERT_STRING_EQUAL(out, "...x.x.");
	memset(gone, 0, sizeof(gone));
	UNIT_EQ_U64(pbox_snapshot_sweep(f, claim, n, 30, gone), 3);
	show(gone, n, out);
	CU_ASSERT_STRING_EQUAL(out, ".x.xxxx");
	UNIT_EQ_U64(pbox_snapshot_sweep(f, claim, 0, 30, gone), 0);
}

/* Workers may come back for the newest of a table as long as it would be kept, from the start of the box on. */
static void
what_is_old_goes(void)
{
	static const struct row rows[] = {
		{"a", 0, false, true, false, 10},
		{"b", 0, false, true, true, 10},
		{"c", 0, false, true, false, 10, .wished = true},
		{"a", 0, false, true, false, 10},
		{"a", 0, true, true, false, 10},
		{"new", 0, false, true, false, 10},
		{"ahead", 0, false, true, false, 10},
	};
	const int n = sizeof(rows) / sizeof(rows[0]);
	struct pbox_snapshot_age age = {.most_ns = 50, .now_ns = 1000};
	struct pbox_snapshot_file f[N];
	struct pbox_snapshot_claim claim[N];
	bool gone[N] = {false};

	fill(rows, n, f, claim);
	for (int i = 0; i < n; i++)
		f[i].created_ns = i < 5 ? 949 : i == 5 ? 950 : 1001;
	pbox_snapshot_old(f, claim, n, &age, gone); /* at the start */
	show(gone, n, out);
	CU_ASSERT_STRING_EQUAL(out, "...xx..");
	age.up_ns = 51;
	pbox_snapshot_old(f, claim, n, &age, gone);
	show(gone, n, out);
	CU_ASSERT_STRING_EQUAL(out, "x..xx..");
}

/* As many as are looked at: older ones go, those of [job *] first, and such a job adds none where none may go. */
static void
no_more_files_than_are_looked_at(void)
{
	const struct pbox_snapshot_who any = {.job = "n9", .space = 1000000},
				       mine = {.job = "a", .named = true, .dir_space = 1000000};
	const int n = PBOX_SNAPSHOT_FILES;
	struct pbox_snapshot_file *f = calloc((size_t)n, sizeof(*f));
	struct pbox_snapshot_claim *claim = calloc((size_t)n, sizeof(*claim));
	bool *gone = calloc((size_t)n, sizeof(*gone));

	CU_ASSERT_FATAL(f != NULL && claim != NULL && gone != NULL);
	for (int i = 0; i < n; i++) {
		snprintf(f[i].job, sizeof(f[i].job), i % 2 == 0 ? "a" : "n%d", i);
		f[i].table = (uint32_t)i;
		f[i].bytes = 1;
		claim[i] = (struct pbox_snapshot_claim){.named = i % 2 == 0, .busy = i < n - 2};
	}
	UNIT_EQ_U64(pbox_snapshot_room(f, claim, n - 1, &any, 1, gone, &err), 0);
	CU_ASSERT_FALSE(gone[n - 3]);
	UNIT_EQ_U64(pbox_snapshot_room(f, claim, n, &any, 1, gone, &err), 0);
	CU_ASSERT(gone[n - 1] && !gone[n - 2]);
	gone[n - 1] = false;
	UNIT_EQ_U64(pbox_snapshot_room(f, claim, n, &mine, 1, gone, &err), 0);
	CU_ASSERT(gone[n - 1] && !gone[n - 2]);
	/* all of them stay */
	gone[n - 1] = false;
	claim[n - 1].busy = true;
	UNIT_EQ_U64((uint64_t)-pbox_snapshot_room(f, claim, n, &any, 1, gone, &err), EDQUOT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "4096 files"));
	for (int i = 0; i < n; i++)
		CU_ASSERT_FALSE(gone[i]);
	/* what is looked after now and then adds none */
	UNIT_EQ_U64(pbox_snapshot_room(f, claim, n, &any, 0, gone, &err), 0);
	free(f);
	free(claim);
	free(gone);
}

const char unit_suite[] = "snapshot room";
const struct unit_test unit_tests[] = {
	{"of one section, in turn", of_one_section_in_turn},
	{"made-up names share one", names_that_are_made_up_share_one},
	{"nobody loses the last one to another section",
		nobody_loses_his_last_one_to_another_section},
	{"a section comes first", a_section_comes_first},
	{"what is there keeps to the bounds", what_is_there_keeps_to_the_bounds},
	{"what is old goes", what_is_old_goes},
	{"both bounds hold, and none is none", both_bounds_hold_and_none_is_none},
	{"no more files than are looked at", no_more_files_than_are_looked_at},
	{0},
};
