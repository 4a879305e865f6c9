/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>

#include "snapshot_impl.h"

/* What files are to their tables: in this order they go. LAST: the newest of a job of [job *] that runs. */
enum worth { STAYS, ASIDE, OLDER, NEWEST, LAST = 2 * NEWEST + 1, RANKS };

static bool
same_table(const struct pbox_snapshot_file *a, const struct pbox_snapshot_file *b)
{
	return a->table == b->table && strcmp(a->job, b->job) == 0;
}

static enum worth
worth(const struct pbox_snapshot_file *f, int i)
{
	if (f[i].aside)
		return ASIDE;
	for (int k = 0; k < i; k++)
		if (!f[k].aside && same_table(&f[k], &f[i]))
			return OLDER;
	return NEWEST;
}

static bool
in_section(const struct pbox_snapshot_file *f, const struct pbox_snapshot_claim *k,
	const struct pbox_snapshot_who *who)
{
	return who->job != NULL && who->named == k->named &&
	       (!k->named || strcmp(f->job, who->job) == 0);
}

/* In which turn may it go for the bound? [job *] gives way to the others, never the other way round. */
static uint8_t
rank(const struct pbox_snapshot_file *f, const struct pbox_snapshot_claim *k, int i,
	const struct pbox_snapshot_who *who, bool section)
{
	bool mine = in_section(&f[i], &k[i], who), named = who->job != NULL && who->named;
	enum worth w;

	if (section && !mine)
		return STAYS;
	w = worth(f, i);
	if (w == NEWEST && k[i].wished)
		return STAYS;
	if (w == NEWEST && k[i].busy)
		return !section && named && !k[i].named ? LAST : STAYS;
	if (section || !k[i].named)
		return w;
	if (who->job != NULL && !who->named)
		return STAYS;
	return w < NEWEST || mine ? NEWEST + w : STAYS;
}

/* Until so many bytes are free: the lowest rank first, and of one the oldest. False: they never are. */
static bool
room_choose(
	const struct pbox_snapshot_file *f, const uint8_t *ranks, int n, uint64_t bytes, bool *gone)
{
	for (unsigned r = STAYS + 1; r < RANKS; r++)
		for (int i = n; i-- > 0 && bytes > 0;)
			if (ranks[i] == r && !gone[i]) {
				gone[i] = true;
				bytes -= f[i].bytes < bytes ? f[i].bytes : bytes;
			}
	return bytes == 0;
}

static int
room_refuse(const struct pbox_snapshot_who *who, bool section, uint64_t stay, uint64_t bytes,
	uint64_t bound, struct pbox_error *err)
{
	const unsigned long long s = stay, b = bytes, most = bound, need = stay + bytes;

	if (section)
		return pbox_fail(err, EDQUOT,
			"snapshot-space of [job %.63s] is %llu bytes: this one has %llu, what must stay (the newest of each table of a job that runs) %llu: raise it to %llu",
			who->named ? who->job : "*", most, b, s, need);
	return pbox_fail(err, EDQUOT,
		"snapshot-space is %llu bytes: this one has %llu, what must stay for it %llu: raise it to %llu, set snapshot-age, or remove files of jobs that are over",
		most, b, s, need);
}

static int
keep_to(const struct pbox_snapshot_file *f, const struct pbox_snapshot_claim *k, int n,
	const struct pbox_snapshot_who *who, bool section, uint64_t bytes, bool *gone,
	struct pbox_error *err)
{
	uint64_t used = 0, stay = 0, bound = section ? who->space : who->dir_space;
	uint8_t *ranks = malloc((size_t)n + 1);
	bool enough = true;

	if (ranks == NULL)
		return pbox_fail(err, ENOMEM, "out of memory to look for room");
	for (int i = 0; i < n; i++) {
		ranks[i] = rank(f, k, i, who, section);
		if (!gone[i] && (!section || in_section(&f[i], &k[i], who))) {
			used += f[i].bytes;
			stay += ranks[i] == STAYS ? f[i].bytes : 0;
		}
	}
	if (bound > 0 && used + bytes > bound)
		enough = room_choose(f, ranks, n, used + bytes - bound, gone);
	free(ranks);
	return enough ? 0 : room_refuse(who, section, stay, bytes, bound, err);
}

/*
 * No more files than pbox_snapshot_list() looks at: others would be bounded by nothing. A job of [job *] adds none to so
 * many; one with a section of its own does, where no other may go.
 */
static int
keep_count(const struct pbox_snapshot_file *f, const struct pbox_snapshot_claim *k, int n,
	const struct pbox_snapshot_who *who, bool *gone, struct pbox_error *err)
{
	uint8_t *ranks;
	int left = 1; /* with the new one */

	for (int i = 0; i < n; i++)
		left += !gone[i];
	if (left <= PBOX_SNAPSHOT_FILES)
		return 0;
	ranks = malloc((size_t)n);
	if (ranks == NULL)
		return pbox_fail(err, ENOMEM, "out of memory to look for room");
	for (int i = 0; i < n; i++)
		ranks[i] = rank(f, k, i, who, false);
	for (unsigned r = STAYS + 1; r < RANKS; r++)
		for (int i = n; i-- > 0 && left > PBOX_SNAPSHOT_FILES;)
			if (ranks[i] == r && !gone[i]) {
				gone[i] = true;
				left--;
			}
	free(ranks);
	if (left <= PBOX_SNAPSHOT_FILES || who->named)
		return 0;
	return pbox_fail(err, EDQUOT,
		"snapshot-dir has %d files, as many as the box looks at, and what must stay for this one is all of them: set snapshot-age, or remove files of jobs that are over",
		PBOX_SNAPSHOT_FILES);
}

int
pbox_snapshot_room(const struct pbox_snapshot_file *f, const struct pbox_snapshot_claim *k, int n,
	const struct pbox_snapshot_who *who, uint64_t bytes, bool *gone, struct pbox_error *err)
{
	int ret = 0;

	if (who->job != NULL && who->space > 0)
		ret = keep_to(f, k, n, who, true, bytes, gone, err);
	if (ret == 0 && who->dir_space > 0)
		ret = keep_to(f, k, n, who, false, bytes, gone, err);
	if (ret == 0 && who->job != NULL && bytes > 0)
		ret = keep_count(f, k, n, who, gone, err);
	return ret;
}

void
pbox_snapshot_old(const struct pbox_snapshot_file *f, const struct pbox_snapshot_claim *k, int n,
	const struct pbox_snapshot_age *a, bool *gone)
{
	for (int i = 0; i < n; i++)
		gone[i] |= !k[i].busy && !k[i].wished && f[i].created_ns < a->now_ns &&
			   a->now_ns - f[i].created_ns > a->most_ns &&
			   (a->up_ns > a->most_ns || worth(f, i) < NEWEST);
}

/* All jobs of [job *] are of one. */
static bool
first_of_section(const struct pbox_snapshot_file *f, const struct pbox_snapshot_claim *k, int i)
{
	for (int j = 0; j < i; j++)
		if (k[j].named == k[i].named && (!k[i].named || strcmp(f[j].job, f[i].job) == 0))
			return false;
	return true;
}

int
pbox_snapshot_sweep(const struct pbox_snapshot_file *f, const struct pbox_snapshot_claim *k, int n,
	uint64_t dir_space, bool *gone)
{
	struct pbox_snapshot_who who = {.dir_space = dir_space};
	bool *before = calloc((size_t)n + 1, sizeof(*before));
	struct pbox_error err;
	int sections = 0;

	if (before == NULL)
		return -ENOMEM;
	for (int i = -1; i < n; i++) {
		if (i >= 0 && !first_of_section(f, k, i))
			continue;
		if (i >= 0)
			who = (struct pbox_snapshot_who){
				.job = f[i].job, .named = k[i].named, .space = k[i].space};
		sections += i >= 0;
		memcpy(before, gone, (size_t)n);
		if (pbox_snapshot_room(f, k, n, &who, 0, gone, &err) != 0)
			memcpy(gone, before, (size_t)n);
	}
	free(before);
	return sections;
}
