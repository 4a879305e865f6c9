/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control_priv.h"

/*
 * How much snapshots take on disk, and how old they become. All of it on the writer: before it begins a file it makes
 * room for it, and now and then it looks whether what is there still keeps to the bounds.
 */

#define SWEEP (300 * ONE_SECOND)

/* All that is there, and what is known of each. */
struct files {
	struct pbox_snapshot_file *f;
	struct pbox_snapshot_claim *claim;
	bool *gone;
	int n;
};

/* The control's lock is not held for longer than one name takes. */
static struct pbox_snapshot_claim
space_look_up(struct pbox_control *c, const char *job)
{
	const struct pbox_job_conf *section;
	struct pbox_snapshot_claim k;
	struct pbox_job_view j;

	pthread_mutex_lock(&c->lock);
	section = pbox_registrar_section(c->registrar, job);
	k.named = section == NULL || strcmp(section->name, "*") != 0;
	k.busy = snapshot_job(c, job, &j);
	k.wished = snapshot_wish_of(&c->snapshots, job) != NULL;
	k.space = section != NULL ? section->snapshot_space : 0;
	pthread_mutex_unlock(&c->lock);
	return k;
}

/* Of many files of a job only the first needs the lock. */
static struct pbox_snapshot_claim
claim_of(struct pbox_control *c, const struct files *all, int i)
{
	for (int k = 0; k < i; k++)
		if (strcmp(all->f[k].job, all->f[i].job) == 0)
			return all->claim[k];
	return space_look_up(c, all->f[i].job);
}

static int
space_look(struct pbox_control *c, struct files *all, struct pbox_error *err)
{
	*all = (struct files){.n = 0};
	all->n = pbox_snapshot_list(c->conf.snapshot.dir, NULL, -1, &all->f, err);
	if (all->n < 0)
		return all->n;
	all->claim = calloc((size_t)all->n + 1, sizeof(*all->claim));
	all->gone = calloc((size_t)all->n + 1, sizeof(*all->gone));
	if (all->claim == NULL || all->gone == NULL)
		return pbox_fail(err, ENOMEM, "out of memory to look for room");
	for (int i = 0; i < all->n; i++)
		all->claim[i] = claim_of(c, all, i);
	return 0;
}

static void
space_forget(struct files *all)
{
	free(all->f);
	free(all->claim);
	free(all->gone);
}

static uint64_t
dir_space(struct pbox_control *c)
{
	uint64_t space;

	pthread_mutex_lock(&c->lock);
	space = c->conf.snapshot.space;
	pthread_mutex_unlock(&c->lock);
	return space;
}

static bool
newest(const struct files *all, int i)
{
	for (int k = 0; k < i; k++)
		if (!all->f[k].aside && all->f[k].table == all->f[i].table &&
			strcmp(all->f[k].job, all->f[i].job) == 0)
			return false;
	return !all->f[i].aside;
}

/* The last one of a table is worth a finding. */
static void
space_note(struct snapshots *s, const struct pbox_snapshot_file *f, uint64_t now)
{
	pthread_mutex_lock(&s->lock);
	s->pruned.tables++;
	s->pruned.table = f->table;
	s->pruned.round = f->round;
	s->pruned.at_ns = now;
	memcpy(s->pruned.job, f->job, sizeof(s->pruned.job));
	pthread_mutex_unlock(&s->lock);
}

/* Is there somebody now who needs it, and was not when it was chosen? */
static bool
needed(struct pbox_control *c, const struct files *all, int i)
{
	struct pbox_snapshot_claim now = space_look_up(c, all->f[i].job);

	return now.wished || (now.busy && !all->claim[i].busy);
}

/* Those that go, the oldest first. */
static void
clear_out(struct pbox_control *c, const struct files *all, const char *why)
{
	const struct pbox_snapshot_file *last = NULL;
	uint64_t bytes = 0, now = pbox_dp_now(c->conf.dp);
	unsigned files = 0;

	for (int i = all->n; i-- > 0;) {
		const struct pbox_snapshot_file *f = &all->f[i];
		bool only = newest(all, i);

		if (!all->gone[i] || (only && needed(c, all, i)) || unlink(f->path) != 0)
			continue;
		files++;
		bytes += f->bytes;
		if (!only)
			continue;
		last = f;
		space_note(&c->snapshots, f, now);
	}
	if (last != NULL)
		pbox_log(PBOX_LOG_WARN,
			"%s: %u snapshots removed, %" PRIu64
			" bytes, newest ones of their tables among them: the last is of job '%s', table %u, round %u",
			why, files, bytes, last->job, last->table, last->round);
	else if (files > 0)
		pbox_log(PBOX_LOG_INFO, "%s: %u snapshots removed, %" PRIu64 " bytes", why, files,
			bytes);
}

int
snapshot_room(void *ctx, uint64_t bytes, struct pbox_error *err)
{
	struct pbox_control *c = ctx;
	const char *job = c->snapshots.order.meta.job;
	struct pbox_snapshot_claim mine = space_look_up(c, job);
	struct pbox_snapshot_who who = {
		.job = job, .named = mine.named, .space = mine.space, .dir_space = dir_space(c)};
	struct files all;
	int ret;

	if (who.space == 0 && who.dir_space == 0)
		return 0;
	ret = space_look(c, &all, err);
	if (ret == 0)
		ret = pbox_snapshot_room(all.f, all.claim, all.n, &who, bytes, all.gone, err);
	if (ret == 0)
		clear_out(c, &all, "room for a new snapshot (snapshot-space)");
	space_forget(&all);
	c->snapshots.order.bound = ret == -EDQUOT;
	return ret;
}

static void
sweep_age(struct pbox_control *c, struct files *all)
{
	struct pbox_snapshot_age age = {.now_ns = snapshot_real_ns()};

	pthread_mutex_lock(&c->lock);
	age.most_ns = c->conf.snapshot.age_ns;
	age.up_ns = c->now_ns - c->snapshots.began_at;
	pthread_mutex_unlock(&c->lock);
	if (age.most_ns > 0)
		pbox_snapshot_old(all->f, all->claim, all->n, &age, all->gone);
}

void
snapshot_sweep(struct pbox_control *c)
{
	struct pbox_error err;
	struct files all;

	if (space_look(c, &all, &err) == 0) {
		sweep_age(c, &all);
		clear_out(c, &all, "older than snapshot-age");
	}
	space_forget(&all);
	if (space_look(c, &all, &err) == 0) {
		pbox_snapshot_sweep(all.f, all.claim, all.n, dir_space(c), all.gone);
		clear_out(c, &all, "more than snapshot-space");
	}
	space_forget(&all);
}

/* Control: is it time to? */
void
snapshot_sweep_step(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;

	if (c->now_ns < s->sweep_at)
		return;
	if (s->sweep_at == 0)
		s->began_at = c->now_ns;
	s->sweep_at = c->now_ns + SWEEP;
	pthread_mutex_lock(&s->lock);
	s->sweep = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}
