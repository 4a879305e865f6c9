/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "made.h"
#include "unit.h"

/* ---- the disk under the writer --------------------------------------------------------------- */

static int calls, dies_at = -1; /* from this call on nothing is done any more */
static int fails_at = -1, fails_with;
static bool halves; /* the call at which it dies does half of its work */

ssize_t __real_write(int fd, const void *at, size_t n);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
ssize_t __wrap_write(int fd, const void *at, size_t n);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);

/* 0: do it; 1: it fails; 2: half of it is done */
static int
what_now(void)
{
	int now = calls++;

	if (now == fails_at) {
		errno = fails_with;
		return 1;
	}
	if (dies_at < 0 || now < dies_at)
		return 0;
	errno = EIO;
	return now == dies_at && halves ? 2 : 1;
}

ssize_t
__wrap_write(int fd, const void *at, size_t n)
{
	int now;

	if (fd <= 2)
		return __real_write(fd, at, n);
	now = what_now();
	if (now == 2) {
		ssize_t half = __real_write(fd, at, n / 2);

		(void)half;
	}
	return now == 0 ? __real_write(fd, at, n) : -1;
}

int
__wrap_fsync(int fd)
{
	return what_now() == 0 ? __real_fsync(fd) : -1;
}

int
__wrap_rename(const char *from, const char *to)
{
	return what_now() == 0 ? __real_rename(from, to) : -1;
}

static void
disk_is_well(void)
{
	calls = 0;
	dies_at = fails_at = -1;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static unsigned
count_files(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	CU_ASSERT_FATAL(d != NULL);
	while ((e = readdir(d)) != NULL)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* Whatever the moment, the old snapshot is there and good, and the new one is whole or not there. */
static void
power_cut_at_every_call(void)
{
	struct pbox_snapshot_report rep;
	struct pbox_error err = {0};
	struct pbox_snapshot_file *f;
	char old_path[PBOX_SNAPSHOT_PATH];
	struct made t;
	int all, n;

	made_new(&t, 400000);
	disk_is_well();
	CU_ASSERT_FATAL(made_write(&t, 16, 2, true, &err) == 0);
	all = calls;
	CU_ASSERT(all > 4);
	snprintf(old_path, sizeof(old_path), "%s", t.path);
	for (int cut = 0; cut < 2 * all; cut++) {
		disk_is_well();
		dies_at = cut / 2;
		halves = cut % 2 == 1;
		t.m.round = 8;
		t.m.created_ns = 2000;
		CU_ASSERT(made_write(&t, 16, 2, true, &err) != 0);
		CU_ASSERT(err.text[0] != '\0');
		disk_is_well();
		n = pbox_snapshot_list(t.dir, t.m.job, t.m.table, &f, &err);
		CU_ASSERT(n == 1 || n == 2);
		for (int i = 0; i < n; i++) {
			snprintf(t.path, sizeof(t.path), "%s", f[i].path);
			t.m.round = f[i].round;
			t.m.created_ns = f[i].created_ns;
			UNIT_EQ_U64(made_compare(&t, &rep, &err), 0);
		}
		CU_ASSERT(strcmp(f[n - 1].path, old_path) == 0);
		if (n == 2)
			unlink(f[0].path);
		free(f);
	}
	made_free(&t);
}

static void
a_full_disk_is_named(void)
{
	struct pbox_snapshot_report rep;
	struct pbox_error err = {0};
	struct made t;
	char path[PBOX_SNAPSHOT_PATH];

	made_new(&t, 400000);
	disk_is_well();
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	snprintf(path, sizeof(path), "%s", t.path);
	for (int at = 0; at < 3; at++) {
		disk_is_well();
		fails_at = at;
		fails_with = ENOSPC;
		t.m.round = 9;
		UNIT_EQ_U64(made_write(&t, 16, 2, false, &err), (unsigned long long)-ENOSPC);
		CU_ASSERT(strstr(err.text, "No space left") != NULL);
		CU_ASSERT(strstr(err.text, t.dir) != NULL);
		UNIT_EQ_U64(count_files(t.dir), 1);
	}
	disk_is_well();
	t.m.round = 7;
	snprintf(t.path, sizeof(t.path), "%s", path);
	UNIT_EQ_U64(made_compare(&t, &rep, &err), 0);
	made_free(&t);
}

static void
a_draft_left_behind_is_cleaned(void)
{
	struct pbox_error err = {0};
	struct made t;
	char tmp[PBOX_SNAPSHOT_PATH + 8], other[PBOX_SNAPSHOT_PATH];
	FILE *f;

	made_new(&t, 1000);
	disk_is_well();
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	snprintf(tmp, sizeof(tmp), "%s.tmp", t.path);
	snprintf(other, sizeof(other), "%s/notes.tmp", t.dir);
	f = fopen(tmp, "w");
	CU_ASSERT_FATAL(f != NULL);
	fclose(f);
	f = fopen(other, "w");
	CU_ASSERT_FATAL(f != NULL);
	fclose(f);
	UNIT_EQ_U64(pbox_snapshot_clean(t.dir), 1);
	UNIT_EQ_U64(access(tmp, F_OK) == 0, 0);
	UNIT_EQ_U64(access(other, F_OK), 0);
	made_free(&t);
}

static void
the_newest_are_kept(void)
{
	struct pbox_snapshot_file *f;
	struct pbox_error err = {0};
	struct made t;
	int n;

	made_new(&t, 1000);
	disk_is_well();
	for (unsigned i = 0; i < 5; i++) {
		t.m.round = 10 + i;
		t.m.created_ns = 100 * (i + 1);
		CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	}
	t.m.table = 3;
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	/* a job whose name begins alike is another */
	snprintf(t.m.job, sizeof(t.m.job), "a/job");
	t.m.table = 2;
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	UNIT_EQ_U64(pbox_snapshot_prune(t.dir, "a/job.1", 2, 2, NULL), 3);
	n = pbox_snapshot_list(t.dir, "a/job.1", 2, &f, &err);
	CU_ASSERT_FATAL(n == 2);
	UNIT_EQ_U64(f[0].round, 14);
	UNIT_EQ_U64(f[1].round, 13);
	CU_ASSERT_STRING_EQUAL(f[0].job, "a/job.1");
	CU_ASSERT(!f[0].aside && f[0].bytes > 8192);
	free(f);
	UNIT_EQ_U64(pbox_snapshot_list(t.dir, NULL, -1, &f, &err), 4);
	free(f);
	UNIT_EQ_U64(pbox_snapshot_set_aside(t.dir, "a/job.1", 2, &err), 2);
	n = pbox_snapshot_list(t.dir, "a/job.1", 2, &f, &err);
	CU_ASSERT_FATAL(n == 2);
	CU_ASSERT(f[0].aside && f[1].aside);
	free(f);
	UNIT_EQ_U64(pbox_snapshot_prune(t.dir, "a/job.1", 2, 1, NULL), 1);
	UNIT_EQ_U64(pbox_snapshot_set_aside(t.dir, "a/job.1", 2, &err), 0);
	made_free(&t);
}

/* A run that was ended and goes on after a restart of the box takes no file from the one after it. */
static void
runs_apart(void)
{
	struct pbox_snapshot_file *f;
	struct pbox_error err = {0};
	struct made t;

	made_new(&t, 1000);
	disk_is_well();
	for (unsigned i = 0; i < 6; i++) {
		t.m.round = 10 + i;
		t.m.run = i < 2 ? 7 : 6;
		CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	}
	UNIT_EQ_U64(pbox_snapshot_prune(t.dir, t.m.job, t.m.table, 2, NULL), 2);
	CU_ASSERT_FATAL(pbox_snapshot_list(t.dir, t.m.job, t.m.table, &f, &err) == 4);
	CU_ASSERT(f[0].run == 6 && f[0].round == 15 && f[1].run == 6 && f[1].round == 14);
	CU_ASSERT(f[2].run == 7 && f[2].round == 11 && f[3].run == 7 && f[3].round == 10);
	free(f);
	made_free(&t);
}

/* A file that is no snapshot, by whatever name. */
static void
put_empty(const char *path)
{
	int fd = creat(path, 0600);

	CU_ASSERT_FATAL(fd >= 0);
	close(fd);
}

/* Who does not know of it takes them for the new run's. */
static void
what_is_not_set_aside_is_told(void)
{
	struct pbox_snapshot_file *f;
	struct pbox_error err = {0};
	char path[PBOX_SNAPSHOT_PATH];
	struct made t;

	made_new(&t, 1000);
	disk_is_well();
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	disk_is_well();
	fails_at = 0; /* the rename */
	fails_with = EROFS;
	UNIT_EQ_U64(pbox_snapshot_set_aside(t.dir, t.m.job, t.m.table, &err),
		(unsigned long long)-EROFS);
	CU_ASSERT(strstr(err.text, ".snap of an earlier run cannot be renamed to a%2Fjob%2E1.2.") !=
		  NULL);
	CU_ASSERT(strstr(err.text, "Read-only file system") != NULL);
	disk_is_well();
	fails_at = 1; /* the directory's sync: it may come back with the next start */
	fails_with = EIO;
	UNIT_EQ_U64(
		pbox_snapshot_set_aside(t.dir, t.m.job, t.m.table, &err), (unsigned long long)-EIO);
	disk_is_well();
	/* one that nobody can read now, but perhaps later */
	snprintf(path, sizeof(path), "%s/a%%2Fjob%%2E1.2.0000000041.0000000009.0badcafe.snap",
		t.dir);
	put_empty(path);
	UNIT_EQ_U64(pbox_snapshot_set_aside(t.dir, t.m.job, t.m.table, &err), 1);
	UNIT_EQ_U64(access(path, F_OK), (unsigned long long)-1);
	memcpy(strstr(path, ".snap"), ".old", sizeof(".old"));
	UNIT_EQ_U64(access(path, F_OK), 0);
	CU_ASSERT_FATAL(pbox_snapshot_list(t.dir, NULL, -1, &f, &err) == 1);
	CU_ASSERT(f[0].aside);
	free(f);
	/* no directory, no files of an earlier run */
	UNIT_EQ_U64(pbox_snapshot_set_aside("/nowhere/at/all", "j", 0, &err), 0);
	UNIT_EQ_U64(pbox_snapshot_set_aside(path, "j", 0, &err), (unsigned long long)-ENOTDIR);
	made_free(&t);
}

/* The clock goes back by a day between two snapshots: the later one is the newest all the same, and
 * stays. */
static void
a_clock_set_back_changes_no_order(void)
{
	static const struct {
		uint32_t round;
		uint64_t created_ns;
	} taken[] = {{5, 9000}, {10, 9100}, {20, 100}, {30, 200}, {40, 300}};
	struct pbox_snapshot_file *f;
	struct pbox_error err = {0};
	struct made t;

	made_new(&t, 1000);
	disk_is_well();
	for (unsigned i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		t.m.round = taken[i].round;
		t.m.created_ns = taken[i].created_ns;
		CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
		pbox_snapshot_prune(t.dir, t.m.job, t.m.table, 2, t.path);
		CU_ASSERT_FATAL(pbox_snapshot_list(t.dir, t.m.job, t.m.table, &f, &err) >= 1);
		UNIT_EQ_U64(f[0].round, taken[i].round);
		UNIT_EQ_U64(f[0].sequence, i + 1);
		CU_ASSERT_STRING_EQUAL(f[0].path, t.path);
		free(f);
	}
	CU_ASSERT_FATAL(pbox_snapshot_list(t.dir, t.m.job, t.m.table, &f, &err) == 2);
	UNIT_EQ_U64(f[1].round, 30);
	free(f);
	/* the file just written stays, whatever else is there */
	UNIT_EQ_U64(pbox_snapshot_prune(t.dir, t.m.job, t.m.table, 0, t.path), 1);
	UNIT_EQ_U64(access(t.path, F_OK), 0);
	made_free(&t);
}

/* Numbers go on after a file that nobody can read, and one of a round that was taken before replaces it. */
static void
numbers_are_given_once(void)
{
	struct pbox_snapshot_file *f;
	struct pbox_error err = {0};
	char path[PBOX_SNAPSHOT_PATH];
	struct made t;

	made_new(&t, 1000);
	disk_is_well();
	snprintf(path, sizeof(path), "%s/other.7.0000000041.0000000009.0badcafe.old", t.dir);
	put_empty(path);
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	CU_ASSERT(strstr(t.path, "/a%2Fjob%2E1.2.0000000042.0000000007.abcd1234.snap") != NULL);
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	UNIT_EQ_U64(pbox_snapshot_prune(t.dir, t.m.job, t.m.table, 9, t.path), 1);
	CU_ASSERT_FATAL(pbox_snapshot_list(t.dir, NULL, -1, &f, &err) == 1);
	UNIT_EQ_U64(f[0].sequence, 43);
	free(f);
	unlink(path);
	snprintf(path, sizeof(path), "%s/other.7.%llu.0000000009.0badcafe.old", t.dir,
		(unsigned long long)(UINT64_MAX / 2));
	put_empty(path);
	UNIT_EQ_U64(made_write(&t, 16, 2, false, &err), (unsigned long long)-EOVERFLOW);
	CU_ASSERT(strstr(err.text, "move it elsewhere") != NULL);
	made_free(&t);
}

static void
directories_are_checked(void)
{
	struct pbox_snapshot_file *f;
	struct pbox_error err = {0};
	struct made t;

	made_new(&t, 1000);
	disk_is_well();
	UNIT_EQ_U64(pbox_snapshot_dir_check(t.dir, &err), 0);
	UNIT_EQ_U64(count_files(t.dir), 0);
	UNIT_EQ_U64(pbox_snapshot_dir_check("/nowhere/at/all", &err), (unsigned long long)-ENOENT);
	CU_ASSERT(strstr(err.text, "/nowhere/at/all") != NULL);
	UNIT_EQ_U64(pbox_snapshot_list("/nowhere/at/all", NULL, -1, &f, &err),
		(unsigned long long)-ENOENT);
	made_free(&t);
}

static uint64_t
first_run(const char *dir, uint64_t clock)
{
	struct pbox_error err;

	UNIT_EQ_U64(pbox_snapshot_runs(dir, &clock, &err), 0);
	return clock;
}

static void
put_runs(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs(text, f);
	fclose(f);
}

/* A box gives numbers from there on: no other does again, whatever the clock says. */
static void
numbers_of_runs_grow(void)
{
	static const char *const bad[] = {"", "x\n", "7", "-\n", "99999999999999999999\n"};
	const uint64_t clock = UINT64_C(2000000000) << 20, most = 1000000;
	uint64_t last = 0, next;
	char path[PBOX_SNAPSHOT_PATH];
	struct pbox_snapshot_file *f;
	struct pbox_error err;
	struct made t;

	made_new(&t, 100);
	UNIT_EQ_U64(first_run(t.dir, clock), clock);
	for (int i = 0; i < 3; i++) { /* a day back, at each start */
		next = first_run(t.dir, clock - ((uint64_t)i * 86400 << 20));
		CU_ASSERT(next > last + most && next > clock + most);
		last = next;
	}
	/* and the clock's again when that is right */
	UNIT_EQ_U64(first_run(t.dir, clock * 2), clock * 2);
	UNIT_EQ_U64(pbox_snapshot_list(t.dir, NULL, -1, &f, &err), 0);
	free(f);
	snprintf(path, sizeof(path), "%s/runs", t.dir);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		put_runs(path, bad[i]);
		next = clock;
		UNIT_EQ_U64(pbox_snapshot_runs(t.dir, &next, &err), (unsigned long long)-EINVAL);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "no number of a run"));
		UNIT_EQ_U64(next, clock);
		CU_ASSERT(first_run(t.dir, clock) > clock + most); /* it was written again */
	}
	unlink(path);
	made_free(&t);
	next = clock;
	CU_ASSERT(pbox_snapshot_runs(t.dir, &next, &err) < 0); /* no such directory */
	UNIT_EQ_U64(next, clock);
}

/* Who asks for snapshots may give any name: telemetry's parameters come from outside. */
static void
a_name_too_long_for_a_job_has_no_snapshots(void)
{
	char name[1024];
	struct pbox_snapshot_file *f;
	struct pbox_error err = {0};
	struct made t;

	made_new(&t, 100);
	memset(name, '%', sizeof(name));
	for (size_t n = PBOX_SNAPSHOT_NAME - 1; n < sizeof(name); n *= 2) {
		name[n] = '\0';
		UNIT_EQ_U64(pbox_snapshot_list(t.dir, name, -1, &f, &err), 0);
		CU_ASSERT_PTR_NULL(f);
		UNIT_EQ_U64(pbox_snapshot_prune(t.dir, name, 0, 0, NULL), 0);
		UNIT_EQ_U64(pbox_snapshot_set_aside(t.dir, name, 0, &err), 0);
		name[n] = '%';
	}
	made_free(&t);
}

const char unit_suite[] = "snapshot store";
const struct unit_test unit_tests[] = {
	{"a power cut at every call of the writer", power_cut_at_every_call},
	{"a full disk is named, and the old snapshot stays", a_full_disk_is_named},
	{"old drafts are cleaned, other files are not", a_draft_left_behind_is_cleaned},
	{"the newest are kept, others set aside", the_newest_are_kept},
	{"runs take no files from each other", runs_apart},
	{"a clock that is set back changes no order", a_clock_set_back_changes_no_order},
	{"sequence numbers are given once", numbers_are_given_once},
	{"numbers of runs grow over a clock that is set back", numbers_of_runs_grow},
	{"a name too long for a job has no snapshots", a_name_too_long_for_a_job_has_no_snapshots},
	{"what is not set aside is reported", what_is_not_set_aside_is_told},
	{"directories are checked", directories_are_checked},
	{0},
};
