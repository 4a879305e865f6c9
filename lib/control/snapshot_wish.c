/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control_priv.h"

/*
 * Jobs that an operator wants to begin with their snapshots. The directory of the snapshots remembers them, so that a
 * box which is killed knows them when it is back. A wish holds for one run of the job. It is fulfilled, and off the
 * disk, when that run has gone beyond what it began with, or has ended after its tables were read. Until then a box
 * that is killed begins with it again; a run that ended before leaves it to the next.
 */

void
snapshot_wishes_read(struct snapshots *s)
{
	struct pbox_snapshot_wished x[SNAPSHOT_ASKED];

	s->n_wishes = pbox_snapshot_wishes(s->conf->dir, x, SNAPSHOT_ASKED);
	for (unsigned i = 0; i < s->n_wishes; i++) {
		s->wish[i] = (struct snapshot_wish){.exact = x[i].exact, .of_round = x[i].round};
		memcpy(s->wish[i].job, x[i].job, sizeof(x[i].job));
		if (x[i].exact)
			s->wish[i].homes = snapshot_homes_read(s->conf->dir, x[i].job, x[i].round);
		pbox_log(PBOX_LOG_INFO,
			"job '%s' will begin with its snapshot, as an operator asked for before the box ended",
			x[i].job);
	}
}

struct snapshot_wish *
snapshot_wish_of(struct snapshots *s, const char *job)
{
	for (unsigned i = 0; i < s->n_wishes; i++)
		if (strcmp(s->wish[i].job, job) == 0)
			return &s->wish[i];
	return NULL;
}

/* Another one takes its place in the list. */
static void
wish_drop(struct snapshots *s, struct snapshot_wish *w)
{
	snapshot_homes_free(w->homes);
	*w = s->wish[--s->n_wishes];
}

void
snapshot_wishes_drop(struct snapshots *s)
{
	while (s->n_wishes > 0)
		wish_drop(s, &s->wish[s->n_wishes - 1]);
}

/* The loader takes it off the disk: control waits for no disk. */
static void
wish_forget(struct snapshots *s, struct snapshot_wish *w)
{
	pthread_mutex_lock(&s->lock);
	if (s->n_forget < SNAPSHOT_ASKED) {
		memcpy(s->forget[s->n_forget++], w->job, sizeof(w->job));
		w->forgotten = true;
		pthread_cond_signal(&s->wake_loader);
	}
	pthread_mutex_unlock(&s->lock);
}

/* Not when it is wanted again meanwhile. */
void
snapshot_wishes_forget(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;
	char job[PBOX_NAME_LEN];
	struct pbox_error err;
	bool more = true;

	while (more) {
		const struct snapshot_wish *w;
		bool wanted;

		pthread_mutex_lock(&s->lock);
		more = s->n_forget > 0;
		if (more)
			memcpy(job, s->forget[--s->n_forget], sizeof(job));
		pthread_mutex_unlock(&s->lock);
		if (!more)
			return;
		pthread_mutex_lock(&s->wish_lock);
		pthread_mutex_lock(&c->lock);
		w = snapshot_wish_of(s, job);
		wanted = w != NULL && !w->forgotten;
		pthread_mutex_unlock(&c->lock);
		if (!wanted && pbox_snapshot_wish_end(s->conf->dir, job, &err) != 0)
			pbox_log(PBOX_LOG_WARN, "job '%s': %s", job, err.text);
		pthread_mutex_unlock(&s->wish_lock);
	}
}

static bool
moved_on(struct pbox_control *c, const struct pbox_job_view *j, const struct snapshot_wish *w)
{
	return w->loaded && !w->broken && w->table < j->tables &&
	       pbox_serial_diff(pbox_registrar_round(c->registrar, j->job, w->table), w->round) > 0;
}

void
snapshot_wishes_step(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;

	for (unsigned i = 0; i < s->n_wishes; i++) {
		struct snapshot_wish *w = &s->wish[i];
		struct pbox_job_view j;

		if (!w->begun)
			continue;
		if (snapshot_job(c, w->job, &j) && j.id == w->id) {
			if (!w->forgotten && moved_on(c, &j, w))
				wish_forget(s, w);
			continue;
		}
		if (!w->loaded || w->broken) { /* the next run shall have it */
			w->begun = w->loaded = w->broken = false;
			continue;
		}
		if (!w->forgotten)
			wish_forget(s, w);
		if (w->forgotten)
			wish_drop(s, &s->wish[i--]);
	}
}

/* With the control's lock. 0 or -errno with text. */
static int
may_wish(struct pbox_control *c, const char *name, char *text, size_t cap)
{
	struct snapshots *s = &c->snapshots;
	struct pbox_job_view j = {.tables = 0};
	bool there = snapshot_job(c, name, &j);

	for (uint32_t i = 0; there && i < j.tables; i++) {
		struct pbox_table_view t;

		pbox_registrar_view_table(c->registrar, j.job, i, &t);
		if (!t.built)
			continue;
		snprintf(text, cap, "job '%s' is running: end it first", name);
		return -EBUSY;
	}
	if (snapshot_wish_of(s, name) == NULL && s->n_wishes == SNAPSHOT_ASKED) {
		snprintf(text, cap, "%u jobs wait to be restored already", s->n_wishes);
		return -EBUSY;
	}
	return 0;
}

/* With the control's lock. */
static int
take_wish(struct pbox_control *c, const char *name, const uint32_t *round,
	struct snapshot_homes *homes, char *text, size_t cap)
{
	struct snapshots *s = &c->snapshots;
	int ret = may_wish(c, name, text, cap);
	struct snapshot_wish *w = snapshot_wish_of(s, name);

	if (ret != 0)
		return ret;
	if (w == NULL)
		w = &s->wish[s->n_wishes++];
	else
		snapshot_homes_free(w->homes);
	*w = (struct snapshot_wish){
		.exact = round != NULL, .of_round = round != NULL ? *round : 0, .homes = homes};
	snprintf(w->job, sizeof(w->job), "%s", name);
	return 0;
}

/* Memory last: what it says is on disk. */
static int
wish(struct pbox_control *c, const char *name, const uint32_t *of, char *text, size_t cap)
{
	const char *dir = c->snapshots.conf->dir;
	struct pbox_snapshot_file *f = NULL;
	struct snapshot_homes *homes;
	struct pbox_error err;
	uint32_t round;
	uint64_t run;
	int n = pbox_snapshot_list(dir, name, -1, &f, &err), i = 0, ret;

	if (n <= 0) {
		snprintf(text, cap, "%s has no snapshot of job '%s'", dir, name);
		return -ENOENT;
	}
	while (of != NULL && i < n && f[i].round != *of)
		i++;
	round = f[i < n ? i : 0].round;
	run = f[i < n ? i : 0].run;
	free(f);
	if (i == n) {
		snprintf(text, cap,
			"%s has no snapshot of round %u of job '%s': the newest is of round %u",
			dir, *of, name, round);
		return -ENOENT;
	}
	if (of == NULL && c->conf.registrar.boxes.boxes > 1) {
		snprintf(text, cap,
			"the box is one of %u: name the same round at all of them (pbox-ctl restore %s --round R): the newest here is of round %u",
			c->conf.registrar.boxes.boxes, name, round);
		return -EINVAL;
	}
	pthread_mutex_lock(&c->lock);
	ret = may_wish(c, name, text, cap);
	pthread_mutex_unlock(&c->lock);
	if (ret == 0 && pbox_snapshot_wish(dir, name, of, &err) != 0) {
		snprintf(text, cap, "%s", err.text);
		return -err.code;
	}
	if (ret != 0)
		return ret;
	homes = of != NULL ? snapshot_homes_read(dir, name, *of) : NULL;
	pthread_mutex_lock(&c->lock);
	ret = take_wish(c, name, of, homes, text, cap);
	pthread_mutex_unlock(&c->lock);
	if (ret != 0) {
		snapshot_homes_free(homes);
		pbox_snapshot_wish_end(dir, name, NULL);
	} else if (of == NULL)
		snprintf(text, cap, "its newest snapshot is of round %u", round);
	else
		snprintf(text, cap, "its snapshot of round %u, of run %" PRIu64, round, run);
	return ret;
}

static int
withdraw_it(struct pbox_control *c, const char *name, char *text, size_t cap)
{
	struct snapshots *s = &c->snapshots;
	struct snapshot_wish *w;
	struct pbox_error err;
	bool begun;

	pthread_mutex_lock(&c->lock);
	w = snapshot_wish_of(s, name);
	begun = w != NULL && w->begun && !w->broken;
	if (w != NULL && !begun)
		wish_drop(s, w);
	pthread_mutex_unlock(&c->lock);
	if (w == NULL || begun) {
		snprintf(text, cap,
			begun ? "job '%s' has begun with its snapshot"
			      : "nobody wants job '%s' to be restored",
			name);
		return -ENOENT;
	}
	if (pbox_snapshot_wish_end(s->conf->dir, name, &err) != 0) {
		snprintf(text, cap, "%s", err.text);
		return -err.code;
	}
	snprintf(text, cap, "the next run of job '%s' begins without a snapshot", name);
	return 0;
}

int
snapshot_wish(struct pbox_control *c, const char *name, const uint32_t *round, bool withdraw,
	char *text, size_t cap)
{
	struct snapshots *s = &c->snapshots;
	int ret;

	if (s->conf->dir == NULL) {
		snprintf(text, cap,
			"the box takes no snapshots: set snapshot-dir and snapshot-memory");
		return -ENOTSUP;
	}
	if (strlen(name) >= PBOX_NAME_LEN) {
		snprintf(
			text, cap, "%s has no snapshot of a job with so long a name", s->conf->dir);
		return -ENOENT;
	}
	pthread_mutex_lock(&s->wish_lock);
	ret = withdraw ? withdraw_it(c, name, text, cap) : wish(c, name, round, text, cap);
	pthread_mutex_unlock(&s->wish_lock);
	return ret;
}
