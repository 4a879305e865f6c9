/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "snapshot_impl.h"

#define LIVE  ".snap"
#define ASIDE ".old"
#define TMP   ".tmp"

void
store_escape(char out[3 * PBOX_SNAPSHOT_NAME], const char *name)
{
	static const char hex[] = "0123456789ABCDEF";

	for (; *name != '\0'; name++) {
		unsigned char c = (unsigned char)*name;

		if ((c < 128 && isalnum(c)) || c == '-' || c == '_') {
			*out++ = (char)c;
		} else {
			*out++ = '%';
			*out++ = hex[c >> 4];
			*out++ = hex[c & 15];
		}
	}
	*out = '\0';
}

int
store_path(char *out, size_t size, const char *dir, const struct pbox_snapshot_meta *m,
	uint64_t sequence)
{
	char name[3 * PBOX_SNAPSHOT_NAME];
	int n;

	store_escape(name, m->job);
	n = snprintf(out, size, "%s/%s.%u.%010llu.%010u.%08x" LIVE, dir, name, m->table,
		(unsigned long long)sequence, m->round, m->incarnation);
	/* room for the suffix of a draft */
	return n > 0 && (size_t)n + sizeof(TMP) < size ? 0 : -ENAMETOOLONG;
}

static bool
ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), e = strlen(end);

	return n > e && strcmp(name + n - e, end) == 0;
}

/* Is it a file of table @p table (-1: any) of the job whose escaped name is @p job (NULL: any)? */
static bool
belongs(const char *name, const char *job, int64_t table)
{
	size_t n = strcspn(name, ".");
	char *end;

	if (job != NULL && (strncmp(name, job, n) != 0 || job[n] != '\0'))
		return false;
	if (name[n] != '.' || !isdigit((unsigned char)name[n + 1]))
		return false;
	return (int64_t)strtoul(name + n + 1, &end, 10) == table || table < 0;
}

static bool
store_look_at(struct pbox_snapshot_file *f)
{
	int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	unsigned damaged;
	struct super s;
	struct stat st;
	bool ok;

	if (fd < 0)
		return false;
	ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	     super_read(&s, fd, (uint64_t)st.st_size, &damaged, NULL) == 0;
	close(fd);
	if (!ok)
		return false;
	memcpy(f->job, s.job, sizeof(f->job));
	f->table = s.table;
	f->round = s.round;
	f->incarnation = s.incarnation;
	f->created_ns = s.created_ns;
	f->sequence = s.sequence;
	f->run = s.run;
	f->box = s.box;
	f->boxes = s.boxes;
	f->bytes = (uint64_t)st.st_size;
	return true;
}

static int
newer_first(const void *a, const void *b)
{
	const struct pbox_snapshot_file *x = a, *y = b;

	if (x->sequence != y->sequence)
		return x->sequence > y->sequence ? -1 : 1;
	if (x->created_ns != y->created_ns)
		return x->created_ns > y->created_ns ? -1 : 1;
	return strcmp(x->path, y->path);
}

static struct pbox_snapshot_file *
more(struct pbox_snapshot_file *all, int n)
{
	if (n % 64 != 0)
		return all;
	return realloc(all, (size_t)(n + 64) * sizeof(*all));
}

int
pbox_snapshot_list(const char *dir, const char *job, int64_t table, struct pbox_snapshot_file **out,
	struct pbox_error *err)
{
	struct pbox_snapshot_file *all = NULL, *grown;
	char name[3 * PBOX_SNAPSHOT_NAME];
	struct dirent *e;
	DIR *d = opendir(dir);
	int n = 0;

	*out = NULL;
	if (d == NULL) {
		int code = errno;

		return pbox_fail(err, code, "cannot read directory %s: %s", dir, strerror(code));
	}
	if (job != NULL && strlen(job) >= PBOX_SNAPSHOT_NAME) {
		closedir(d);
		return 0; /* no job can have that name, but a caller may give it */
	}
	if (job != NULL)
		store_escape(name, job);
	while (n < PBOX_SNAPSHOT_FILES && (e = readdir(d)) != NULL) {
		bool aside = ends_with(e->d_name, ASIDE);
		struct pbox_snapshot_file *f;
		int len;

		if ((!aside && !ends_with(e->d_name, LIVE)) ||
			!belongs(e->d_name, job != NULL ? name : NULL, table))
			continue;
		grown = more(all, n);
		if (grown == NULL) {
			free(all);
			closedir(d);
			return pbox_fail(err, ENOMEM, "out of memory");
		}
		all = grown;
		f = &all[n];
		*f = (struct pbox_snapshot_file){.aside = aside};
		len = snprintf(f->path, sizeof(f->path), "%s/%s", dir, e->d_name);
		if (len > 0 && (size_t)len < sizeof(f->path) && store_look_at(f))
			n++;
	}
	closedir(d);
	if (n > 1)
		qsort(all, (size_t)n, sizeof(*all), newer_first);
	*out = all;
	return n;
}

/* What its name says, as JOB.TABLE.SEQUENCE.ROUND.INCARNATION does; 0: nothing. */
static uint64_t
named_sequence(const char *name)
{
	unsigned long long n;
	unsigned dots = 0;
	const char *at = name + strcspn(name, ".") + 1;

	at += strcspn(at, ".");
	for (const char *p = at; *p != '\0'; p++)
		dots += *p == '.';
	if (dots < 4 || !isdigit((unsigned char)at[1]))
		return 0;
	n = strtoull(at + 1, NULL, 10);
	return n <= FORMAT_SEQUENCE_MAX ? n : 0;
}

/* Names count as well: a damaged file's number is not given again. */
int
store_next(const char *dir, uint64_t *sequence, uint64_t *newest_ns, struct pbox_error *err)
{
	struct pbox_snapshot_file *f;
	int n = pbox_snapshot_list(dir, NULL, -1, &f, err);
	uint64_t highest = 0;
	struct dirent *e;
	DIR *d;

	if (n < 0)
		return n;
	*newest_ns = n > 0 ? f[0].created_ns : 0;
	highest = n > 0 ? f[0].sequence : 0;
	free(f);
	d = opendir(dir);
	while (d != NULL && (e = readdir(d)) != NULL) {
		uint64_t s;

		if ((!ends_with(e->d_name, ASIDE) && !ends_with(e->d_name, LIVE)) ||
			!belongs(e->d_name, NULL, -1))
			continue;
		s = named_sequence(e->d_name);
		highest = s > highest ? s : highest;
	}
	if (d != NULL)
		closedir(d);
	if (highest == FORMAT_SEQUENCE_MAX)
		return pbox_fail(err, EOVERFLOW,
			"a file in %s has the highest sequence number there is: move it elsewhere",
			dir);
	*sequence = highest + 1;
	return 0;
}

/* Are @p keep of the files before it, which are younger, of the same run, or one of the same round of it? */
static bool
replaced(const struct pbox_snapshot_file *f, int i, unsigned keep)
{
	unsigned younger = 0;

	for (int k = 0; k < i; k++) {
		if (f[k].aside != f[i].aside || (!f[i].aside && f[k].run != f[i].run))
			continue;
		if (f[k].round == f[i].round && f[k].incarnation == f[i].incarnation)
			return true;
		younger++;
	}
	return younger >= keep;
}

int
pbox_snapshot_prune(
	const char *dir, const char *job, uint32_t table, unsigned keep, const char *spare)
{
	struct pbox_snapshot_file *f;
	int n = pbox_snapshot_list(dir, job, table, &f, NULL), gone = 0;

	for (int i = 0; i < n; i++) {
		if (replaced(f, i, keep) && (spare == NULL || strcmp(f[i].path, spare) != 0))
			gone += unlink(f[i].path) == 0;
	}
	free(f);
	return gone;
}

/* By its name alone: one that cannot be read now may be readable later. */
static int
set_aside(const char *dir, const char *name, struct pbox_error *err)
{
	size_t stem = strlen(name) - strlen(LIVE);
	char from[PBOX_SNAPSHOT_PATH], to[PBOX_SNAPSHOT_PATH];
	int code, n = snprintf(from, sizeof(from), "%s/%s", dir, name);

	if (n < 0 || (size_t)n >= sizeof(from))
		return 0; /* pbox_snapshot_list() leaves it out as well, always */
	snprintf(to, sizeof(to), "%s/%.*s" ASIDE, dir, (int)stem, name);
	if (rename(from, to) == 0)
		return 0;
	code = errno;
	return pbox_fail(err, code, "%s of an earlier run cannot be renamed to %.*s" ASIDE ": %s",
		from, (int)stem, name, strerror(code));
}

int
pbox_snapshot_set_aside(const char *dir, const char *job, uint32_t table, struct pbox_error *err)
{
	char name[3 * PBOX_SNAPSHOT_NAME];
	int ret = 0, moved = 0, code;
	struct dirent *e;
	DIR *d;

	if (strlen(job) >= PBOX_SNAPSHOT_NAME)
		return 0; /* no job can have that name */
	store_escape(name, job);
	d = opendir(dir);
	if (d == NULL && errno == ENOENT)
		return 0;
	while (d != NULL && ret == 0 && (errno = 0, e = readdir(d)) != NULL) {
		if (!ends_with(e->d_name, LIVE) || !belongs(e->d_name, name, table))
			continue;
		ret = set_aside(dir, e->d_name, err);
		moved += ret == 0;
	}
	code = errno;
	if (d != NULL)
		closedir(d);
	if (ret == 0 && (d == NULL || code != 0))
		ret = pbox_fail(err, code, "cannot read directory %s: %s", dir, strerror(code));
	if (ret == 0 && moved > 0)
		ret = write_sync_dir(dir, err);
	return ret == 0 ? moved : ret;
}

int
pbox_snapshot_clean(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	while (d != NULL && (e = readdir(d)) != NULL) {
		char path[PBOX_SNAPSHOT_PATH];
		int len;

		if ((!ends_with(e->d_name, LIVE TMP) || !belongs(e->d_name, NULL, -1)) &&
			!ends_with(e->d_name, STORE_WISH TMP))
			continue;
		len = snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		n += len > 0 && (size_t)len < sizeof(path) && unlink(path) == 0;
	}
	if (d != NULL)
		closedir(d);
	return n;
}

int
pbox_snapshot_dir_check(const char *dir, struct pbox_error *err)
{
	char path[PBOX_SNAPSHOT_PATH];
	int fd, n = snprintf(path, sizeof(path), "%s/.pbox-XXXXXX", dir);

	if (n < 0 || (size_t)n >= sizeof(path))
		return pbox_fail(err, ENAMETOOLONG, "the name of directory %s is too long", dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0) {
		int code = errno;

		return pbox_fail(
			err, code, "snapshots cannot be written to %s: %s", dir, strerror(code));
	}
	close(fd);
	unlink(path);
	return 0;
}
