/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Load of the boxes: the agent of the box that decides in a job asks it what workers measure, lib/balance says which box is slow
 * and what each should have, and the box moves chunks: one action of a job at a time. The weights go into the map, so that
 * they hold for who comes later. Weights that a person has set stay.
 *
 * First the box, then the map: a box that refuses (tables whose chunks cannot move) leaves nothing in the map. If
 * the map is changed by another one in between, the weights of that map hold, and apply.c makes them so.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

#define EVERY AGENT_S
/* Windows in which an action is left out, after one that moved nothing: chunks are too large for it, or the box refuses it. */
#define PAUSE      2
#define PAUSE_MOST 64
#define PATIENT    (5 * AGENT_S) /* tables are mapped, workers come back */
/* Windows in which a box must be slow before a person reads of it, and so many times as slow as the others. */
#define WINDOWS 2
#define WORTH   1.5

static struct load_job *
load_entry(struct agent *a, const struct box_job *job)
{
	unsigned i = 0;

	while (i < a->n_load && !box_same_run(&a->load[i].job, job))
		i++;
	if (i == AGENT_JOBS) { /* never more than the box has, but for begins that are computed */
		measure_free(&a->load[--i]);
		a->n_load = i;
	}
	if (i == a->n_load) {
		memset(&a->load[i], 0, sizeof(a->load[i]));
		a->load[i].pause = PAUSE;
		a->n_load++;
	}
	if (a->load[i].job.tables != job->tables)
		a->load[i].refused[0] = '\0';
	a->load[i].job = *job;
	return &a->load[i];
}

/* What is known of a job ends with it. */
static void
load_forget(struct agent *a)
{
	for (unsigned i = 0; i < a->n_load;) {
		if (box_has_run(&a->box, &a->load[i].job)) {
			i++;
			continue;
		}
		measure_free(&a->load[i]);
		a->load[i] = a->load[--a->n_load];
	}
}

/* Once, until there is something else to say of the job. */
static void
load_say(struct load_job *j, enum pbox_log_level level, const char *what, const char *why)
{
	char text[sizeof(j->said)];

	snprintf(text, sizeof(text), "job '%s': %s%s%s", j->job.name, what,
		why[0] != '\0' ? ": " : "", why);
	if (strcmp(text, j->said) == 0)
		return;
	memcpy(j->said, text, sizeof(text));
	pbox_log(level, "%s", text);
}

/* The box with most has the weight of a box that nothing is said of. */
static void
load_weights(const struct pbox_balance_action *act, unsigned n, uint32_t *weight)
{
	uint64_t most = 1;

	for (unsigned i = 0; i < n; i++)
		most = act->bytes[i] > most ? act->bytes[i] : most;
	for (unsigned i = 0; i < n; i++) {
		weight[i] =
			(uint32_t)((double)act->bytes[i] * PBOX_FLEET_FULL / (double)most + 0.5);
		if (weight[i] == 0 && act->bytes[i] > 0)
			weight[i] = 1;
	}
}

static bool
load_same(const struct pbox_fleet_map *map, const char *job, const uint32_t *weight)
{
	for (unsigned i = 0; i < map->n_boxes; i++)
		if (pbox_fleet_weight(map, job, i) != weight[i])
			return false;
	return true;
}

/* The map with these weights; errors as pbox_fleet_map_balance(). */
static int
load_map(const struct agent *a, const struct load_job *j, const uint32_t *weight, const char *why,
	struct pbox_fleet_map *next, struct pbox_error *err)
{
	static char names[AGENT_JOBS][PBOX_FLEET_NAME];
	uint32_t measured[PBOX_FLEET_BOXES];

	/* of a box that the job goes on without nothing was measured */
	for (unsigned i = 0; i < a->view.map.n_boxes; i++)
		measured[i] = (j->job.out >> i & 1) != 0 ? PBOX_FLEET_KEEP : weight[i];
	for (unsigned i = 0; i < a->box.n_jobs; i++)
		memcpy(names[i], a->box.job[i].name, sizeof(names[i]));
	*next = a->view.map;
	return pbox_fleet_map_balance(next, j->job.name, measured, why,
		(const char(*)[PBOX_FLEET_NAME])names, a->box.n_jobs, err);
}

/* 1: it is the map now; 0: another one has changed it. */
static int
load_put(struct agent *a, const struct pbox_fleet_map *next, struct pbox_error *err)
{
	struct pbox_etcd_compare compare[2] = {{.revision = a->view.map_revision},
		{.revision = a->view.member[a->box.number].revision}};
	char key[PBOX_FLEET_KEY], own[PBOX_FLEET_KEY];
	int ret;

	compare[0].key = pbox_fleet_key(key, a->fleet, "map");
	compare[1].key = pbox_fleet_key_box(own, a->fleet, a->box.number);
	ret = ask_put(&a->etcd, compare, 2, key, pbox_fleet_map_write(next), 0, err);
	if (ret >= 0)
		a->etcd.watch.dirty = true;
	if (ret == 1)
		pbox_log(PBOX_LOG_INFO, "map of epoch %" PRIu64 ": %s", next->epoch, next->why);
	return ret;
}

/* Into the map, under the condition that it is the one that was read, and that this agent is still the one of its box. */
static void
load_publish(struct agent *a, struct load_job *j)
{
	static struct pbox_fleet_map next;
	struct pbox_error err = {0};
	int ret;

	if (j->pending != a->history.serial ||
		load_map(a, j, j->weight, j->text, &next, &err) != 0) {
		j->pending = 0; /* the map has changed: its weights hold */
		return;
	}
	ret = load_put(a, &next, &err);
	if (ret < 0) {
		load_say(j, PBOX_LOG_WARN, "the weights are not in the map yet", err.text);
		return;
	}
	j->pending = 0;
	if (ret == 0)
		pbox_log(PBOX_LOG_INFO,
			"job '%s': another one has changed the map meanwhile: its weights hold",
			j->job.name);
}

static void
load_later(struct load_job *j)
{
	j->wait = j->pause;
	j->pause = j->pause * 2 < PAUSE_MOST ? j->pause * 2 : PAUSE_MOST;
}

static void
load_move(struct agent *a, struct load_job *j)
{
	struct pbox_error err = {0};
	int64_t moved = 0;
	int ret = apply_weights(a, &j->job, j->weight, &moved, &err);

	if (ret == 0 && moved > 0) {
		pbox_log(PBOX_LOG_INFO, "job '%s': %s: %" PRId64 " chunks move", j->job.name,
			j->text, moved);
		j->pause = PAUSE;
		j->refused[0] = '\0';
		j->pending = a->history.serial;
		measure_moved(j);
		load_publish(a, j);
		return;
	}
	if (ret != 0)
		snprintf(j->refused, sizeof(j->refused), "%.199s", err.text);
	if (ret != 0)
		load_say(j, PBOX_LOG_WARN, "its load stays as it is", err.text);
	load_later(j);
}

/* A slow box is named once for each reason for which nothing is done: its figures are others in each window. */
static void
load_leave(struct load_job *j, const struct pbox_balance_action *act, const char *why)
{
	if (j->left_for != why)
		j->left = 0;
	j->left_for = why;
	/* trials are for who moves load */
	if (act->cause != PBOX_BALANCE_STRAGGLER || (j->left >> act->box & 1) != 0)
		return;
	j->left |= 1u << act->box;
	load_say(j, PBOX_LOG_INFO, why, j->text);
}

static void
load_act(struct agent *a, struct load_job *j, const struct pbox_balance_action *act)
{
	static struct pbox_fleet_map next;
	struct pbox_error err = {0};

	pbox_balance_text(act, j->text, sizeof(j->text));
	load_weights(act, a->box.n, j->weight);
	if (!a->conf->balance) {
		load_leave(j, act, "not done, as balance = no in the configuration");
		return;
	}
	if (!pbox_fleet_balances(&a->view.map, j->job.name)) {
		load_leave(j, act,
			"not done, as a person has set its weights (pbox-agent balance leaves them to this agent)");
		return;
	}
	if (j->wait > 0) {
		j->wait--;
		return;
	}
	if (load_same(&a->view.map, j->job.name, j->weight)) {
		load_later(j);
		return;
	}
	if (load_map(a, j, j->weight, j->text, &next, &err) != 0) {
		snprintf(j->refused, sizeof(j->refused), "%.199s", err.text);
		load_say(j, PBOX_LOG_WARN, "its load stays as it is", err.text);
		return;
	}
	load_move(a, j);
}

/* Weights that an earlier run has left, of a job whose chunks cannot move now: nobody has asked for them. */
static void
load_withdraw(struct agent *a, struct load_job *j, uint64_t refused_ns)
{
	static struct pbox_fleet_map next;
	struct pbox_error err = {0};

	if (refused_ns == 0 || agent_now() < refused_ns + PATIENT)
		return;
	next = a->view.map;
	if (pbox_fleet_map_forget(&next, j->job.name,
		    "its chunks cannot move now: weights of an earlier run go", &err) == 0)
		load_put(a, &next, &err);
}

/* Its chunks are where the map has them, at boxes that serve: what remains is load. */
static bool
load_boxes(struct agent *a, struct load_job *j, struct pbox_balance_box *box)
{
	uint64_t all = 0, refused_ns;

	if (!apply_done(a, &j->job, &refused_ns)) {
		load_withdraw(a, j, refused_ns);
		return false;
	}

	for (unsigned i = 0; i < a->box.n; i++) {
		box[i].bytes = j->elements[i] * 4;
		box[i].able = a->view.map.box[i].state == PBOX_FLEET_SERVES;
		if (!box[i].able && box[i].bytes > 0)
			return false;
		all += box[i].bytes;
	}
	return all > 0 && j->pending == 0;
}

static int
load_one(struct agent *a, const struct box_job *job)
{
	struct load_job *j = load_entry(a, job);
	struct pbox_balance_box box[PBOX_BALANCE_BOXES] = {0};
	const struct pbox_balance_action *act;
	struct pbox_error err = {0};
	int ret;

	if (j->pending != 0)
		load_publish(a, j);
	ret = measure_job(a, j, &err);
	if (ret < 0) {
		pbox_log(PBOX_LOG_DEBUG, "job '%s': %s", job->name, err.text);
		return ret;
	}
	if (ret == 0)
		return 0;
	if (!load_boxes(a, j, box)) {
		pbox_balance_discard(j->room);
		return 0;
	}
	act = pbox_balance_decide(j->room, box);
	if (act != NULL && act->cause != PBOX_BALANCE_LOST)
		load_act(a, j, act);
	return 0;
}

void
load_step(struct agent *a)
{
	uint64_t now = agent_now();

	if (now < a->load_ns || !pbox_fleet_same_list(&a->view.map, AGENT_LIST(a), a->box.n))
		return;
	a->load_ns = now + EVERY;
	load_forget(a);
	for (unsigned i = 0; i < a->box.n_jobs; i++)
		/* a box that answers nothing keeps the lease waiting: once is enough */
		if (a->box.job[i].tables > 0 && apply_decides(a, &a->box.job[i]) &&
			load_one(a, &a->box.job[i]) == -ENOENT)
			break;
}

/* ---- what people see ------------------------------------------------------------------------------ */

const char *
load_rule(const struct agent *a, const struct load_job *j)
{
	if (!pbox_fleet_balances(&a->view.map, j->job.name))
		return "set by a person";
	if (!a->conf->balance)
		return "balance = no";
	return j->refused[0] != '\0' ? "cannot move" : "balanced";
}

/* How long a round takes at a box, over that of the other boxes. */
static double
load_ratio(const struct load_job *j, unsigned box, double *mean)
{
	struct pbox_balance_view v;
	double others = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < j->boxes; i++) {
		pbox_balance_view(j->room, i, &v);
		if (i == box)
			*mean = v.mean;
		if (i == box || !v.measured)
			continue;
		others += v.mean;
		n++;
	}
	return n > 0 && others > 0 ? *mean / (others / n) : 1;
}

bool
load_finding(const struct agent *a, char *text, size_t size)
{
	for (unsigned k = 0; k < a->n_load; k++) {
		const struct load_job *j = &a->load[k];

		for (unsigned i = 0; j->room != NULL && i < j->boxes; i++) {
			struct pbox_balance_view v;
			double mean = 0, ratio;

			pbox_balance_view(j->room, i, &v);
			if (!v.measured || v.windows < WINDOWS)
				continue;
			ratio = load_ratio(j, i, &mean);
			if (ratio < WORTH)
				continue;
			snprintf(text, size,
				"box %u (%s) takes %.1f times as long as the others for job '%s' (%s)",
				i, a->box.address[i], ratio, j->job.name, load_rule(a, j));
			return true;
		}
	}
	return false;
}

static json_t *
load_state_box(const struct load_job *j, unsigned box)
{
	struct pbox_balance_view v;
	uint64_t all = 0;
	json_t *d;

	for (unsigned i = 0; i < j->boxes; i++)
		all += j->elements[i];
	d = json_pack("{s:f}", "share", all > 0 ? 100 * (double)j->elements[box] / (double)all : 0);
	pbox_balance_view(j->room, box, &v);
	if (d == NULL || !v.measured)
		return d;
	json_object_set_new(d, "ms", json_real(1e3 * v.mean));
	json_object_set_new(d, "ci_ms", json_real(1e3 * v.ci));
	json_object_set_new(d, "exposed_ms", json_real(1e3 * v.exposed));
	json_object_set_new(d, "slow", json_boolean(v.slow));
	json_object_set_new(d, "windows", json_integer(v.windows));
	return d;
}

json_t *
load_state(const struct agent *a)
{
	json_t *jobs = json_object();

	for (unsigned k = 0; k < a->n_load; k++) {
		const struct load_job *j = &a->load[k];
		json_t *boxes = json_array();

		for (unsigned i = 0; j->room != NULL && i < j->boxes; i++)
			json_array_append_new(boxes, load_state_box(j, i));
		json_object_set_new(jobs, j->job.name,
			json_pack("{s:s, s:s, s:s, s:o}", "rule", load_rule(a, j), "last", j->text,
				"refused", j->refused, "boxes", boxes));
	}
	return jobs;
}
