/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* When snapshots are made: job after job is copied by its shards, then described and written. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_lcore.h>

#include "control_priv.h"

/* Fragments come to the round together or not at all: a worker is missing. */
#define COPY_DEADLINE (60 * ONE_SECOND)
/* How far ahead of the highest finished round to try in turn. */
static const uint32_t ahead[] = {0, 1, 2, 2, 4};
#define TRIES (sizeof(ahead) / sizeof(ahead[0]))

void
snapshot_runs(struct pbox_control_conf *conf)
{
	struct pbox_error err;

	if (conf->snapshot.dir != NULL &&
		pbox_snapshot_runs(conf->snapshot.dir, &conf->registrar.first_run, &err) != 0)
		pbox_log(PBOX_LOG_WARN,
			"%s: if the clock is set back, runs of jobs may get numbers again",
			err.text);
}

int
snapshot_create(struct pbox_control *c, struct pbox_error *err)
{
	struct snapshots *s = &c->snapshots;
	int ret;

	s->conf = &c->conf.snapshot;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->wake, NULL);
	pthread_cond_init(&s->wake_loader, NULL);
	pthread_mutex_init(&s->wish_lock, NULL);
	if (s->conf->dir == NULL)
		return 0;
	ret = pbox_snapshot_dir_check(s->conf->dir, err);
	if (ret == 0)
		pbox_snapshot_clean(s->conf->dir);
	if (ret == 0) {
		snapshot_look_at_clock(s);
		snapshot_wishes_read(s);
	}
	return ret;
}

int
snapshot_start(struct pbox_control *c, struct pbox_error *err)
{
	struct snapshots *s = &c->snapshots;
	int ret;

	if (s->conf->dir == NULL)
		return 0;
	ret = rte_ctrl_thread_create(&s->thread, "pbox-snapshot", NULL, snapshot_writer, c);
	if (ret != 0)
		return pbox_fail(err, -ret, "the thread that writes snapshots does not start: %s",
			strerror(-ret));
	s->started = true;
	return snapshot_loader_start(c, err);
}

void
snapshot_stop(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;

	if (!s->started)
		return;
	pthread_mutex_lock(&s->lock);
	s->quit = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	s->started = false;
}

void
snapshot_destroy(struct pbox_control *c)
{
	if (c->snapshots.conf == NULL)
		return;
	pbox_snapshot_meta_free(&c->snapshots.order.meta);
	snapshot_wishes_drop(&c->snapshots);
	pthread_cond_destroy(&c->snapshots.wake);
	pthread_cond_destroy(&c->snapshots.wake_loader);
	pthread_mutex_destroy(&c->snapshots.wish_lock);
	pthread_mutex_destroy(&c->snapshots.lock);
}

static void
failed(struct pbox_control *c, const char *text)
{
	struct snapshots *s = &c->snapshots;
	struct snapshot_result *x = snapshot_result(s, s->job, s->table);

	x->failed++;
	x->failed_ns = c->now_ns;
	x->code = 0;
	x->bound = x->late = false;
	snprintf(x->error, sizeof(x->error), "%s", text);
	tally(c, PBOX_CT_SNAPSHOTS_FAILED);
	pbox_log(PBOX_LOG_WARN, "job '%s': no snapshot of table %u: %s", s->job, s->table, text);
	s->state = SNAPSHOT_IDLE;
}

/* The round that an operator named has passed: a later one may do. */
static void
round_has_passed(struct pbox_control *c, const char *text)
{
	struct snapshots *s = &c->snapshots;

	PBOX_ASSERT(s->only.exact);
	failed(c, text);
	snapshot_result(s, s->job, s->table)->late = true;
}

/* The job of what is at hand; NULL: it has ended. */
static const struct pbox_job *
job_at_hand(struct pbox_control *c)
{
	struct pbox_job_view j;

	return snapshot_job(c, c->snapshots.job, &j) && j.begun_ns == c->snapshots.begun_ns ? j.job
											    : NULL;
}

/* The copy begins, or begins again for a later round. */
static void
snapshot_begin(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;
	const struct pbox_job *job = job_at_hand(c);
	struct pbox_error err = {.text = "the job has ended"};
	int ret = -ENOENT;

	if (job != NULL && s->only.exact)
		ret = pbox_registrar_staging_at(c->registrar, job, s->table, s->only.round,
			&s->staging, s->conf->memory, s->conf->size, c->now_ns, &err);
	else if (job != NULL)
		ret = pbox_registrar_staging(c->registrar, job, s->table, ahead[s->ahead],
			&s->staging, s->conf->memory, s->conf->size, c->now_ns, &err);
	if (ret == -ESTALE && s->only.exact) {
		round_has_passed(c, err.text);
		return;
	}
	if (ret == -EBUSY && s->state != SNAPSHOT_MOVING) {
		s->waits_since = c->now_ns;
		s->state = SNAPSHOT_MOVING;
	} else if (ret == 0) {
		s->state = SNAPSHOT_COPYING;
	} else if (ret != -EBUSY) {
		failed(c, err.text);
	}
}

/* All fragments are there: what of the job belongs to them is taken in slices, then it is the writer's. */
static void
snapshot_describe_table(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;
	const struct pbox_job *job = job_at_hand(c);
	struct snapshot_order *o = &s->order;
	struct pbox_table_parts of;

	*o = (struct snapshot_order){.data = (uint8_t *)s->staging.array[0]};
	if (job != NULL)
		of = pbox_registrar_parts(job, s->table);
	if (job != NULL && of.map_epoch != s->staging.map_epoch) {
		failed(c, "chunks have moved meanwhile");
		return;
	}
	if (job == NULL ||
		snapshot_describe(&o->meta, &of, &s->staging, c->conf.registrar.incarnation) != 0) {
		failed(c, "out of memory for its description, or the job has ended");
		return;
	}
	s->copy_us = (c->now_ns - s->since) / 1000;
	s->state = SNAPSHOT_DESCRIBING;
}

static void
describing(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;
	const struct pbox_job *job = job_at_hand(c);
	struct pbox_table_parts of;

	if (job == NULL) {
		pbox_snapshot_meta_free(&s->order.meta);
		failed(c, "the job has ended");
		return;
	}
	of = pbox_registrar_parts(job, s->table);
	if (snapshot_describe_more(&s->order.meta, &of, &s->order.described)) {
		s->state = SNAPSHOT_WRITING;
		snapshot_order(s);
	}
}

/* A round that is to come takes as long as those before it: have there been some since? */
static bool
rounds_go_on(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;
	const struct pbox_job *job = s->only.exact ? job_at_hand(c) : NULL;
	uint32_t round = job != NULL ? pbox_registrar_round(c->registrar, job, s->table) : 0;
	bool more = job != NULL && round != s->waits_at;

	s->waits_at = round;
	return more;
}

/* Of several boxes one that waits for a round to come waits until chunks are where they are to be. */
static void
moving(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;

	if (rounds_go_on(c))
		s->waits_since = c->now_ns;
	if (c->now_ns - s->waits_since > COPY_DEADLINE)
		failed(c, "chunks move, and no round has ended for a minute: do workers wait?");
	else
		snapshot_begin(c);
}

static void
copying(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;
	int ret = pbox_registrar_staging_step(c->registrar, c->now_ns);
	char text[128];

	if (ret == -EINPROGRESS) {
		/* a large table, or a busy machine, takes the time that it takes */
		if (!pbox_registrar_staging_waits(c->registrar) || rounds_go_on(c))
			s->waits_since = c->now_ns;
		else if (c->now_ns - s->waits_since > COPY_DEADLINE)
			pbox_registrar_staging_cancel(c->registrar, c->now_ns);
		return;
	}
	if (ret == 0) {
		snapshot_describe_table(c);
	} else if (ret == -EBUSY || (ret == -ESTALE && !s->only.exact && ++s->ahead < TRIES)) {
		snapshot_begin(c);
	} else if (ret == -ESTALE && s->only.exact) {
		round_has_passed(c, pbox_registrar_staging_why(c->registrar));
	} else if (ret == -EAGAIN) {
		failed(c, pbox_registrar_staging_why(c->registrar));
	} else {
		snprintf(text, sizeof(text),
			ret == -ECANCELED ? "the job has ended"
			: ret == -ETIMEDOUT
				? "not all fragments came to round %u within a minute: do workers wait?"
				: "rounds were faster than the copy (round %u)",
			s->staging.round);
		failed(c, text);
	}
}

static void
writing(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;
	const struct snapshot_order *o = &s->order;
	struct snapshot_result *x;

	if (!snapshot_written(s))
		return;
	if (o->ret != 0) {
		failed(c, o->err.text);
		x = snapshot_result(s, s->job, s->table);
		x->code = o->err.code;
		x->free_bytes = o->free_bytes;
		x->bound = o->bound;
		return;
	}
	x = snapshot_result(s, s->job, s->table);
	x->taken++;
	x->begun_ns = s->begun_ns;
	x->round = o->meta.round;
	x->at_ns = c->now_ns;
	x->bytes = o->written.bytes;
	x->copy_us = s->copy_us;
	x->write_us = o->us;
	x->error[0] = '\0';
	snapshot_clock(s, o->written.newest_ns, o->meta.created_ns);
	tally(c, PBOX_CT_SNAPSHOTS);
	pbox_log(PBOX_LOG_INFO,
		"job '%s': snapshot of table %u at round %u: %llu bytes, copied in %llu ms, written in %llu ms",
		s->job, s->table, x->round, (unsigned long long)x->bytes,
		(unsigned long long)(x->copy_us / 1000), (unsigned long long)(x->write_us / 1000));
	s->state = SNAPSHOT_IDLE;
}

/* At several boxes: has the table more than its workers, and is some of it here? When chunks have moved each box says where. */
static bool
is_of_a_set(const struct pbox_job *job, uint32_t table)
{
	const struct pbox_table_parts of = pbox_registrar_parts(job, table);

	return of.t->mode == PBOX_MODE_OPTIMISER && of.t->discipline == PBOX_DISCIPLINE_ROUNDS &&
	       (of.map_epoch != PBOX_MAP_EPOCH || pbox_table_own_chunk(of.t) != NULL);
}

/* Is it worth it? All-reduce keeps nothing that workers do not have; what has not moved is on disk. */
static bool
snapshot_wanted(struct pbox_control *c, const struct pbox_job_view *j, uint32_t table)
{
	struct pbox_table_view t;

	pbox_registrar_view_table(c->registrar, j->job, table, &t);
	/* while it is loading, its memory is the loader's */
	if (j->state != PBOX_JOB_OPEN || !t.open)
		return false;
	if (c->conf.registrar.boxes.boxes > 1)
		return c->snapshots.only.exact && is_of_a_set(j->job, table);
	if (c->snapshots.forced)
		return true;
	return j->snapshots && t.mode == PBOX_MODE_OPTIMISER &&
	       snapshot_moved(&c->snapshots, j, table, &t);
}

/* The next table of the walk, if any. */
static void
walk(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;
	const struct pbox_job *job;
	struct pbox_job_view j;

	for (; (job = pbox_registrar_job(c->registrar, s->job_i)) != NULL; s->job_i++) {
		pbox_registrar_view_job(c->registrar, job, &j);
		if (s->only.job[0] != '\0' && strcmp(j.name, s->only.job) != 0)
			continue;
		while (s->next_table < j.tables) {
			uint32_t t = s->next_table++;

			if (!snapshot_wanted(c, &j, t))
				continue;
			s->begun_ns = j.begun_ns;
			snprintf(s->job, sizeof(s->job), "%s", j.name);
			s->table = t;
			s->ahead = 0;
			s->since = c->now_ns;
			snapshot_begin(c);
			return;
		}
		s->next_table = 0;
	}
	s->walking = false;
}

static void
idle(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;

	if (!s->walking && s->n_asked > 0) {
		s->walking = s->forced = true;
		s->only = s->asked[0];
		memmove(s->asked, s->asked + 1, --s->n_asked * sizeof(s->asked[0]));
	} else if (!s->walking && s->final_due) {
		s->walking = true;
		s->forced = s->final_due = false;
		s->only = (struct snapshot_asked){.exact = false};
	} else if (!s->walking && s->final_by == 0 && s->conf->interval_ns > 0 &&
		   c->now_ns >= s->due_at) {
		s->walking = s->due_at > 0; /* not at the very start */
		s->forced = false;
		s->only = (struct snapshot_asked){.exact = false};
		s->due_at = c->now_ns + s->conf->interval_ns;
	} else if (s->walking) {
		walk(c);
		return;
	}
	s->job_i = 0;
	s->next_table = 0;
}

void
snapshot_step(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;

	if (s->conf->dir == NULL)
		return;
	snapshot_loader_step(c);
	snapshot_wishes_step(c);
	snapshot_sweep_step(c);
	if (s->state == SNAPSHOT_MOVING)
		moving(c);
	else if (s->state == SNAPSHOT_COPYING)
		copying(c);
	else if (s->state == SNAPSHOT_DESCRIBING)
		describing(c);
	else if (s->state == SNAPSHOT_WRITING)
		writing(c);
	else
		idle(c);
}

bool
snapshot_busy(const struct pbox_control *c)
{
	return c->snapshots.walking || c->snapshots.state != SNAPSHOT_IDLE;
}

bool
snapshot_final(struct pbox_control *c, uint64_t now)
{
	struct snapshots *s = &c->snapshots;
	bool busy;

	if (!s->started || s->conf->final_ns == 0)
		return true;
	if (s->final_by == 0) {
		s->final_by = now + s->conf->final_ns;
		s->final_due = true;
	}
	busy = s->final_due || s->walking || s->n_asked > 0 || s->state != SNAPSHOT_IDLE;
	if (busy && now < s->final_by)
		return false;
	if (busy) {
		pbox_log(PBOX_LOG_WARN,
			"the last snapshots are not all there after %u s (snapshot-final): what was %s, table %u of job '%s', is given up",
			(unsigned)(s->conf->final_ns / ONE_SECOND),
			s->state == SNAPSHOT_WRITING ? "being written" : "waited for", s->table,
			s->job);
		s->n_asked = 0;
		s->walking = s->final_due = false;
		atomic_store(&s->give_up, true);
		if (s->state == SNAPSHOT_COPYING)
			pbox_registrar_staging_cancel(c->registrar, now);
	}
	return true;
}

static int
no_dir(struct pbox_error *err)
{
	return pbox_fail(
		err, ENOTSUP, "the box takes no snapshots: set snapshot-dir and snapshot-memory");
}

/* Of the job's tables one is copied after the other, and each box needs the same round of all. */
static int
ask_boxes(struct pbox_control *c, const struct pbox_job_view *j, const uint32_t *round,
	unsigned *tables, struct pbox_error *err)
{
	unsigned boxes = c->conf.registrar.boxes.boxes;

	*tables = 0;
	if (round == NULL)
		return pbox_fail(err, EINVAL,
			"job '%s' is at %u boxes, and a snapshot of it is of a round that all of them know before: pbox-ctl snapshot %s --round R, with the same R at each",
			j->name, boxes, j->name);
	for (uint32_t i = 0; i < j->tables; i++) {
		struct pbox_table_view t;

		pbox_registrar_view_table(c->registrar, j->job, i, &t);
		if (t.open)
			*tables += is_of_a_set(j->job, i);
	}
	if (*tables > 1)
		return pbox_fail(err, ENOTSUP,
			"job '%s' has %u tables with an optimiser, and is at %u boxes: snapshots there are of jobs with one such table",
			j->name, *tables, boxes);
	return 0;
}

int
snapshot_ask(struct pbox_control *c, const char *name, const uint32_t *round, unsigned *tables,
	struct pbox_error *err)
{
	struct snapshots *s = &c->snapshots;
	struct snapshot_asked *a;
	struct pbox_job_view j;
	int ret;

	if (s->conf->dir == NULL)
		return no_dir(err);
	if (!snapshot_job(c, name, &j))
		return pbox_fail(err, ENOENT, "there is no job '%s' now", name);
	if (s->n_asked == SNAPSHOT_ASKED)
		return pbox_fail(
			err, EBUSY, "%u jobs wait for their snapshots already", s->n_asked);
	*tables = j.tables;
	ret = c->conf.registrar.boxes.boxes > 1 ? ask_boxes(c, &j, round, tables, err) : 0;
	if (ret != 0)
		return ret;
	for (unsigned i = 0; i < s->n_asked; i++)
		if (strcmp(s->asked[i].job, name) == 0 && s->asked[i].exact == (round != NULL) &&
			(round == NULL || s->asked[i].round == *round))
			return 0; /* one that has not begun serves both */
	a = &s->asked[s->n_asked++];
	*a = (struct snapshot_asked){.exact = round != NULL, .round = round != NULL ? *round : 0};
	snprintf(a->job, sizeof(a->job), "%s", name);
	return 0;
}
