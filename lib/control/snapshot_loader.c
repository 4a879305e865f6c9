/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <rte_lcore.h>

#include "control_priv.h"

/*
 * The thread that reads snapshots into tables. A table is its alone from snapshot_restore(), where the control thread
 * hands it over, to snapshot_loader_step(), where it is given back: shards do not know it yet, the registrar leaves its
 * memory alone while it is loading, and keeps its job.
 */

#define NICE      5 /* after data cores that share its CPU, before the writer */
#define STOP_TIME 5 /* seconds: a disk that does not answer holds nobody up forever */

static void
loader_add(struct snapshot_load **list, struct snapshot_load *l)
{
	while (*list != NULL)
		list = &(*list)->next;
	l->next = NULL;
	*list = l;
}

static void *
loader(void *arg)
{
	struct pbox_control *c = arg;
	struct snapshots *s = &c->snapshots;

	setpriority(PRIO_PROCESS, 0, NICE); /* of this thread, on Linux */
	pthread_mutex_lock(&s->lock);
	while (!s->quit || s->loads != NULL || s->n_forget > 0) {
		struct snapshot_load *l = s->loads;
		bool forget = s->n_forget > 0;

		if (l == NULL && !forget) {
			pthread_cond_wait(&s->wake_loader, &s->lock);
			continue;
		}
		if (l != NULL) {
			s->loads = l->next;
			s->loading = l;
		}
		pthread_mutex_unlock(&s->lock);
		if (forget)
			snapshot_wishes_forget(c);
		if (l != NULL && atomic_load(&l->give_up))
			l->ret = -ECANCELED;
		else if (l != NULL)
			snapshot_load(s->conf->dir, l);
		pthread_mutex_lock(&s->lock);
		s->loading = NULL;
		if (l != NULL) {
			loader_add(&s->loaded, l);
			pbox_dp_control_call(c->conf.dp);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int
snapshot_loader_start(struct pbox_control *c, struct pbox_error *err)
{
	struct snapshots *s = &c->snapshots;
	int ret = rte_ctrl_thread_create(&s->loader, "pbox-restore", NULL, loader, c);

	if (ret != 0)
		return pbox_fail(err, -ret, "the thread that reads snapshots does not start: %s",
			strerror(-ret));
	s->loader_started = true;
	return 0;
}

bool
snapshot_loader_stop(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;
	struct timespec until;

	if (!s->loader_started)
		return true;
	pthread_mutex_lock(&s->lock);
	s->quit = true;
	for (struct snapshot_load *l = s->loads; l != NULL; l = l->next)
		atomic_store(&l->give_up, true);
	if (s->loading != NULL)
		atomic_store(&s->loading->give_up, true);
	pthread_cond_signal(&s->wake_loader);
	pthread_mutex_unlock(&s->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STOP_TIME;
	if (pthread_timedjoin_np(s->loader, NULL, &until) != 0) {
		pbox_log(PBOX_LOG_ERROR,
			"a snapshot is still being read %d s after it was given up: does the disk of %s answer? The box ends without it",
			STOP_TIME, s->conf->dir);
		return false;
	}
	s->loader_started = false;
	for (struct snapshot_load *l = s->loaded, *next; l != NULL; l = next) {
		next = l->next;
		free(l);
	}
	s->loaded = NULL;
	return true;
}

int
snapshot_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	struct pbox_control *c = ctx;
	struct snapshots *s = &c->snapshots;
	struct pbox_job_view view;
	struct snapshot_wish *w;
	struct snapshot_load *l;

	if (!s->loader_started)
		return -ENOENT;
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return -ENOMEM;
	pbox_registrar_view_job(c->registrar, job, &view);
	w = restoring ? NULL : snapshot_wish_of(s, view.name);
	if (w != NULL) {
		w->begun = true;
		w->id = view.id;
	}
	l->of = pbox_registrar_parts(job, t->id);
	l->restoring = restoring;
	l->wished = w != NULL;
	l->exact = w != NULL && w->exact;
	l->of_round = w != NULL ? w->of_round : 0;
	pthread_mutex_lock(&s->lock);
	loader_add(&s->loads, l);
	pthread_cond_signal(&s->wake_loader);
	pthread_mutex_unlock(&s->lock);
	return -EINPROGRESS;
}

/* The load of a table, and how many come before it. The lock is the caller's to give back. */
static struct snapshot_load *
lock_and_find(struct snapshots *s, const struct pbox_job *job, uint32_t table, unsigned *before)
{
	struct snapshot_load *l;

	pthread_mutex_lock(&s->lock);
	l = s->loading;
	*before = 0;
	if (l != NULL && l->of.job == job && l->of.t->id == table)
		return l;
	*before = l != NULL;
	for (l = s->loads; l != NULL; l = l->next, ++*before)
		if (l->of.job == job && l->of.t->id == table)
			return l;
	return NULL;
}

void
snapshot_restore_cancel(void *ctx, const struct pbox_job *job, uint32_t table)
{
	struct snapshots *s = &((struct pbox_control *)ctx)->snapshots;
	unsigned before;
	struct snapshot_load *l = lock_and_find(s, job, table, &before);

	if (l != NULL)
		atomic_store(&l->give_up, true);
	pthread_mutex_unlock(&s->lock);
}

static void
loader_report(const struct snapshot_load *l, unsigned before, char *text, size_t cap)
{
	uint64_t at = atomic_load_explicit(&l->at, memory_order_relaxed);
	uint64_t bytes = atomic_load_explicit(&l->bytes, memory_order_relaxed);
	uint32_t table = l->of.t->id;

	if (before > 0)
		snprintf(text, cap, "table %u waits while snapshots of %u other tables are read",
			table, before);
	else if (bytes == 0)
		snprintf(text, cap, "the box looks for a snapshot of table %u", table);
	else
		snprintf(text, cap,
			"table %u is loading from its snapshot: %" PRIu64 " %%, %" PRIu64
			" of %" PRIu64 " bytes",
			table, at * 100 / bytes, at, bytes);
}

void
snapshot_restore_text(void *ctx, const struct pbox_job *job, uint32_t table, char *text, size_t cap)
{
	struct snapshots *s = &((struct pbox_control *)ctx)->snapshots;
	unsigned before;
	const struct snapshot_load *l = lock_and_find(s, job, table, &before);

	if (l != NULL)
		loader_report(l, before, text, cap);
	else
		snprintf(text, cap, "table %u has been read, and is made ready", table);
	pthread_mutex_unlock(&s->lock);
}

unsigned
snapshot_loads(struct snapshots *s)
{
	unsigned n;

	pthread_mutex_lock(&s->lock);
	n = s->loading != NULL;
	for (const struct snapshot_load *l = s->loads; l != NULL; l = l->next)
		n++;
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* All-reduce keeps nothing that workers do not have: files of one round are those of tables with an optimiser. */
static bool
lacks_round(const struct snapshot_load *l)
{
	return l->exact && l->ret == -ENOENT && l->of.t->mode == PBOX_MODE_OPTIMISER &&
	       pbox_table_own_chunk(l->of.t) != NULL;
}

/* Why a table cannot begin; false: it can. */
static bool
loader_refused(const struct snapshot_load *l, const char *dir, struct pbox_error *err)
{
	uint32_t table = l->of.t->id;

	if (l->ret == -EEXIST)
		pbox_fail(err, EEXIST,
			"table %u: %.250s: make snapshot-dir writable, or move that file away: after a restart of the box it would be taken for one of this run",
			table, l->err.text);
	else if (lacks_round(l))
		pbox_fail(err, ENOENT,
			"table %u was to begin with its snapshot of round %u (pbox-ctl restore), and %s has none: bring the file of that round, or name another one at all boxes; pbox-ctl restore --withdraw lets it begin without one",
			table, l->of_round, dir);
	else if (l->wished && l->ret == -EIO)
		pbox_fail(err, EIO,
			"table %u was to begin with a snapshot (pbox-ctl restore), and none can be used: %.200s: pbox-ctl restore --withdraw lets it begin without one",
			table, l->err.text);
	else
		return false;
	return true;
}

/* A wish that finds no good file is not forgotten, nor does its job begin with nothing and without a word. */
static void
loader_give_back(struct pbox_control *c, struct snapshot_load *l)
{
	struct snapshot_wish *w = l->wished ? snapshot_wish_of(&c->snapshots, l->of.name) : NULL;
	struct pbox_error err;

	if (w != NULL && (l->ret == 0 || l->ret == -ENOENT) && !lacks_round(l)) {
		w->loaded = true;
		w->table = l->of.t->id;
		w->round = l->round;
	} else if (w != NULL) {
		w->broken = true;
	}
	pbox_registrar_loaded(c->registrar, l->of.job, l->of.t->id,
		loader_refused(l, c->snapshots.conf->dir, &err) ? &err : NULL, c->now_ns);
	free(l);
}

void
snapshot_loader_step(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;
	struct snapshot_load *l, *next;

	pthread_mutex_lock(&s->lock);
	l = s->loaded;
	s->loaded = NULL;
	pthread_mutex_unlock(&s->lock);
	for (; l != NULL; l = next) {
		next = l->next;
		loader_give_back(c, l);
	}
}
