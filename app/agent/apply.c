/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The map, made so: these are the weights of a job's boxes. One box decides where chunks of a job are (R16.14), so its
 * agent alone has something to do. It asks once for each run of a job, its tables and an epoch of the map: the box moves what
 * is not where it should be, and nothing if all is.
 */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "agent.h"

#define AGAIN (5 * AGENT_S)
#define PATIENT \
	(15 * AGENT_S) /* before a person hears of it: tables are mapped, workers come back */

/* Those of jobs that are over make room. */
static void
apply_forget(struct agent *a)
{
	for (unsigned i = 0; i < a->n_done;) {
		if (box_has_run(&a->box, &a->done[i].job))
			i++;
		else
			a->done[i] = a->done[--a->n_done];
	}
}

static unsigned
apply_entry(struct agent *a, const struct box_job *job)
{
	unsigned i = 0;

	PBOX_ASSERT(a->n_done <= AGENT_JOBS);
	while (i < a->n_done && !box_same_run(&a->done[i].job, job))
		i++;
	if (i == AGENT_JOBS) /* never more than the box has, but for begins that are computed */
		a->n_done = --i;
	if (i == a->n_done) {
		memset(&a->done[i], 0, sizeof(a->done[i]));
		a->done[i].job = *job;
		a->n_done++;
	}
	return i;
}

/* Does this box decide in that job? One that was cut off thinks so, and the map says that another one does. */
bool
apply_decides(const struct agent *a, const struct box_job *job)
{
	unsigned said = pbox_fleet_map_decides(&a->view.map, job->name, job->run);

	return a->box.number == job->decider && (said == UINT_MAX || said == a->box.number);
}

/* Do all boxes have one weight? Then a job that never moved is as it should be. */
static bool
apply_even(const struct agent *a, const char *job)
{
	for (unsigned i = 0; i < a->box.n; i++)
		if (pbox_fleet_weight(&a->view.map, job, i) != PBOX_FLEET_FULL)
			return false;
	return true;
}

uint32_t
apply_back(const struct agent *a, const struct box_job *job)
{
	uint32_t back = 0;

	for (unsigned i = 0; i < a->box.n && i < a->view.map.n_boxes; i++)
		if (a->view.map.box[i].state == PBOX_FLEET_SERVES && a->here_ns[i] != 0)
			back |= 1u << i;
	return back & a->drained & job->out;
}

int
apply_weights(struct agent *a, const struct box_job *job, const uint32_t *weight, int64_t *moved,
	struct pbox_error *err)
{
	char command[256];
	size_t n = (size_t)snprintf(command, sizeof(command), "/pbox/weigh,#%u", job->number);
	uint32_t out = job->out & ~apply_back(a, job);
	json_t *answer;
	int ret;

	/* one box alone says where chunks are (R16.14) */
	PBOX_ASSERT(a->box.number == job->decider && a->box.n <= PBOX_FLEET_BOXES);
	for (unsigned i = 0; i < a->box.n && n < sizeof(command); i++)
		/* one that is out comes back when a person has started it again (R16.12) */
		n += (size_t)snprintf(command + n, sizeof(command) - n, ",%" PRIu32,
			(out >> i & 1) != 0 ? 0 : weight[i]);
	ret = box_ask(&a->box, command, &answer, err);
	*moved = json_integer_value(json_object_get(answer, "chunks"));
	json_decref(answer);
	return ret;
}

static int
apply_job(struct agent *a, const struct box_job *job, struct pbox_error *err)
{
	uint32_t weight[PBOX_FLEET_BOXES];
	int64_t moved;
	int ret;

	for (unsigned i = 0; i < a->box.n; i++)
		weight[i] = pbox_fleet_weight(&a->view.map, job->name, i);
	ret = apply_weights(a, job, weight, &moved, err);
	if (ret == 0 && moved > 0)
		pbox_log(PBOX_LOG_INFO,
			"map of epoch %" PRIu64 ": %" PRId64 " chunks of job '%s' move",
			a->view.map.epoch, moved, job->name);
	return ret;
}

bool
apply_done(const struct agent *a, const struct box_job *job, uint64_t *refused_ns)
{
	*refused_ns = 0;
	for (unsigned i = 0; i < a->n_done; i++) {
		if (!box_same_run(&a->done[i].job, job))
			continue;
		*refused_ns = a->done[i].bad_ns;
		return a->done[i].serial == a->history.serial &&
		       a->done[i].job.tables == job->tables && a->done[i].bad_ns == 0;
	}
	return false;
}

static void
apply_one(struct agent *a, const struct box_job *job, uint64_t now)
{
	unsigned i = apply_entry(a, job);
	uint32_t back = apply_back(a, job);
	struct pbox_error err = {0};
	int ret;

	if (a->done[i].serial == a->history.serial && a->done[i].job.tables == job->tables &&
		(back & ~a->done[i].back) == 0 &&
		(a->done[i].bad_ns == 0 || now < a->done[i].tried_ns + AGAIN))
		return;
	if (job->tables == 0)
		return;
	a->done[i].tried_ns = now;
	a->done[i].serial = a->history.serial;
	a->done[i].job.tables = job->tables;
	a->done[i].back = back;
	ret = apply_job(a, job, &err);
	if (ret == 0) {
		a->done[i].bad_ns = 0;
		return;
	}
	if (a->done[i].bad_ns == 0)
		a->done[i].bad_ns = now;
	if (now - a->done[i].bad_ns >= PATIENT && !apply_even(a, job->name))
		pbox_fail(&a->unable, -ret, "job '%s': %s", job->name, err.text);
}

static void
apply_lost_job(struct agent *a, struct box_job *job, unsigned box, uint64_t now)
{
	struct pbox_error err = {0};
	char command[64];
	json_t *answer;
	int ret;

	PBOX_ASSERT(a->view.map.box[box].state != PBOX_FLEET_SERVES);
	snprintf(command, sizeof(command), "/pbox/failover,#%u,%u", job->number, box);
	ret = box_ask(&a->box, command, &answer, &err);
	if (ret == 0) {
		json_int_t chunks = json_integer_value(json_object_get(answer, "chunks"));
		bool drained = a->view.map.box[box].state == PBOX_FLEET_DRAINED && chunks == 0;

		job->out |= 1u << box;
		pbox_log(drained ? PBOX_LOG_INFO : PBOX_LOG_WARN,
			drained ? "box %u is drained, and has had no lease for %" PRIu64
				  " s: job '%s' waits for it no more, and loses nothing (%lld chunks were there)"
				: "box %u has had no lease for %" PRIu64
				  " s: job '%s' goes on without it, %lld of its chunks go to the others",
			box, (now - a->away_ns[box]) / AGENT_S, job->name, chunks);
	} else {
		pbox_fail(&a->lost, -ret, "job '%s' cannot go on without box %u: %s", job->name,
			box, err.text);
	}
	json_decref(answer);
}

/* Boxes that a person has drained. One is forgotten when it serves, and no job goes on without it. */
static void
apply_drained(struct agent *a)
{
	for (unsigned i = 0; i < a->box.n; i++) {
		bool out = false;

		if (a->view.map.box[i].state == PBOX_FLEET_DRAINED)
			a->drained |= 1u << i;
		if (a->view.map.box[i].state != PBOX_FLEET_SERVES || a->here_ns[i] == 0)
			continue;
		for (unsigned k = 0; k < a->box.n_jobs; k++)
			out = out || (a->box.job[k].out >> i & 1) != 0;
		if (!out)
			a->drained &= ~(1u << i);
	}
}

/*
 * Boxes that have been dead for so long that jobs go on without them. One that a person has drained as well: it has no chunk, so nothing is lost, but
 * the next map, SET or worker would wait for it for as long as it is stopped.
 */
static void
apply_lost(struct agent *a, uint64_t now)
{
	if (now < a->lost_ns)
		return;
	a->lost_ns = now + AGAIN;
	a->lost.code = 0;
	for (unsigned box = 0; box < a->box.n && box < a->view.map.n_boxes; box++) {
		if (!take_is_lost(a, box, now))
			continue;
		for (unsigned i = 0; i < a->box.n_jobs; i++)
			if (apply_decides(a, &a->box.job[i]) && box != a->box.number &&
				(a->box.job[i].out >> box & 1) == 0)
				apply_lost_job(a, &a->box.job[i], box, now);
	}
	/* one job after the other: each changes the map */
	if (take_step(a, now)) {
		a->lost_ns = now;
		a->etcd.watch.dirty = true;
	}
}

void
apply_map(struct agent *a)
{
	char difference[PBOX_FLEET_DIFFERENCE];
	uint64_t now = agent_now();
	bool all = true;

	/* weights and states go by place: in another order they would be those of other boxes */
	if (!pbox_fleet_same_list(&a->view.map, AGENT_LIST(a), a->box.n)) {
		pbox_fleet_list_text(&a->view.map, AGENT_LIST(a), a->box.n, difference);
		pbox_fail(&a->unable, EINVAL,
			"%s: nothing is moved before all have the same list (boxes in pbox.conf)",
			difference);
		return;
	}
	PBOX_ASSERT(a->box.n == a->view.map.n_boxes);
	apply_drained(a);
	apply_lost(a, now);
	apply_forget(a);
	for (unsigned i = 0; i < a->box.n_jobs; i++)
		if (apply_decides(a, &a->box.job[i]))
			apply_one(a, &a->box.job[i], now);
	for (unsigned i = 0; i < a->n_done; i++)
		all = all && (a->done[i].bad_ns == 0 || apply_even(a, a->done[i].job.name));
	if (!all)
		return;
	a->unable.code = 0;
	a->applied = a->history.serial;
}
