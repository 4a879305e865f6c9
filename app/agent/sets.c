/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Sets of snapshots (R16.16, pbox_fleet_set.h): this agent has its box take its part, and says what came of it; the agent
 * whose box decides in the job chooses rounds and sees when a set is whole. What a box has done is at the box: an agent
 * that was started again finds it there.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent.h"

#define SETS_EVERY (200 * AGENT_MS) /* a part that is being taken is looked at */

/* What the box says of the latest snapshots of a job's tables. */
struct sets_found {
	unsigned good; /* tables whose latest one is of the round, in the run that is there */
	json_int_t failed;
	bool late;
	char why[200];
};

static int
sets_find(struct agent *a, const char *job, uint32_t round, struct sets_found *f,
	struct pbox_error *err)
{
	char name[PBOX_FLEET_NAME];
	json_t *answer, *x;
	const char *key;
	int ret = box_ask(&a->box, "/pbox/snapshots", &answer, err);

	*f = (struct sets_found){.good = 0};
	if (ret != 0)
		return ret;
	json_object_foreach(answer, key, x)
	{
		if (!json_is_object(x))
			continue;
		box_text(x, "job", name, sizeof(name));
		if (strcmp(name, job) != 0)
			continue;
		f->failed += json_integer_value(json_object_get(x, "failed"));
		if (json_object_get(x, "error") != NULL) {
			f->late = json_integer_value(json_object_get(x, "late")) != 0;
			box_text(x, "error", f->why, sizeof(f->why));
		} else if (json_integer_value(json_object_get(x, "round")) == round &&
			   json_object_get(x, "of_this_run") != NULL) {
			f->good++;
		}
	}
	json_decref(answer);
	return 0;
}

static void
part_end(struct pbox_fleet_part *p, enum pbox_fleet_part_state state, const char *why)
{
	p->state = state;
	snprintf(p->why, sizeof(p->why), "%.*s", (int)sizeof(p->why) - 1, why);
}

/* The box is asked for its part. */
static void
part_begin(struct agent *a, const struct pbox_fleet_set *set, struct pbox_fleet_part *p)
{
	struct agent_part *mine = &a->part;
	char command[PBOX_FLEET_NAME + 64];
	struct pbox_error err = {0};
	struct sets_found f = {.good = 0};
	json_t *answer = NULL;
	int ret = set->restore ? 0 : sets_find(a, set->job, set->round, &f, &err);

	if (ret == 0) {
		snprintf(command, sizeof(command), "/pbox/%s,%s,%" PRIu32,
			set->restore ? "restore" : "snapshot", set->job, set->round);
		ret = f.good > 0 ? 0 : box_ask(&a->box, command, &answer, &err);
	}
	if (ret == -ENOENT) /* the box is away: its lease ends, if it stays so */
		return;
	if (ret != 0) {
		part_end(p, PBOX_FLEET_PART_FAILED, err.text);
		return;
	}
	mine->tables = (unsigned)json_integer_value(json_object_get(answer, "tables"));
	json_decref(answer);
	mine->id = set->id;
	mine->round = set->round;
	mine->failed = f.failed;
	snprintf(mine->job, sizeof(mine->job), "%s", set->job);
	/* a box without a chunk of the job has nothing to take */
	if (set->restore || f.good > 0 || mine->tables == 0)
		part_end(p, PBOX_FLEET_PART_DONE, "");
}

static void
part_look(struct agent *a, const struct pbox_fleet_set *set, struct pbox_fleet_part *p)
{
	struct pbox_error err = {0};
	struct sets_found f;

	if (sets_find(a, set->job, set->round, &f, &err) != 0)
		return;
	if (f.good >= a->part.tables)
		part_end(p, PBOX_FLEET_PART_DONE, "");
	else if (f.failed > a->part.failed)
		part_end(p, f.late ? PBOX_FLEET_PART_LATE : PBOX_FLEET_PART_FAILED, f.why);
}

/* One set after the other: a box copies one table at a time. */
static void
sets_part(struct agent *a, const struct pbox_fleet_set *set, struct pbox_fleet_part *part)
{
	struct pbox_fleet_part p = {.id = set->id, .round = set->round};
	char key[PBOX_FLEET_KEY];
	struct pbox_error err;

	if (a->part.id == set->id && a->part.round == set->round &&
		strcmp(a->part.job, set->job) == 0)
		part_look(a, set, &p);
	else
		part_begin(a, set, &p);
	if (p.state == PBOX_FLEET_PART_NONE)
		return;
	pbox_fleet_key_part(key, a->fleet, a->box.number, set->job);
	if (ask_put(&a->etcd, NULL, 0, key, pbox_fleet_part_write(&p), a->lease, &err) != 1)
		return;
	*part = p;
	a->part.id = 0;
	pbox_log(p.state == PBOX_FLEET_PART_FAILED ? PBOX_LOG_WARN : PBOX_LOG_INFO,
		"job '%s': %s of round %" PRIu32 ": %s%s%s", set->job,
		set->restore ? "restore" : "snapshot", set->round,
		p.state == PBOX_FLEET_PART_DONE   ? "this box has it"
		: p.state == PBOX_FLEET_PART_LATE ? "late"
						  : "failed",
		p.why[0] != '\0' ? ": " : "", p.why);
}

static const struct box_job *
sets_job(const struct agent *a, const char *name)
{
	for (unsigned i = 0; i < a->box.n_jobs; i++)
		if (strcmp(a->box.job[i].name, name) == 0)
			return &a->box.job[i];
	return NULL;
}

/* The next state of a set, if this agent is the one to say it: the fleet's for a run to come, else that of the box that decides. */
static void
sets_go_on(struct agent *a, unsigned i, bool decides)
{
	const struct pbox_fleet_set *set = &a->sets.of[i].set;
	const struct box_job *job;
	struct pbox_fleet_set_facts f = {
		.set = set, .part = a->sets.of[i].part, .n_boxes = a->box.n};
	struct pbox_fleet_set next;
	struct pbox_etcd_compare compare = {.revision = a->sets.of[i].revision};
	char key[PBOX_FLEET_KEY];
	struct pbox_error err;

	/* what was seen a second ago may be another run of the job, at another round */
	if (!set->restore && box_look(&a->box, &err) != 0)
		return;
	job = set->restore ? NULL : sets_job(a, set->job);
	if (set->restore ? !decides : job == NULL || !apply_decides(a, job))
		return;
	for (unsigned b = 0; b < a->box.n; b++)
		if (a->here_ns[b] == 0 || (job != NULL && (job->out >> b & 1) != 0))
			f.away |= 1u << b;
	f.newest = job != NULL ? job->round : 0;
	if (pbox_fleet_set_decide(&f, &next) == 0)
		return;
	compare.key = pbox_fleet_key_set(key, a->fleet, set->job);
	if (ask_put(&a->etcd, &compare, 1, key, pbox_fleet_set_write(&next), 0, &err) != 1)
		return;
	a->etcd.watch.dirty = true;
	if (next.state == PBOX_FLEET_SET_ASKED)
		pbox_log(PBOX_LOG_INFO, "job '%s': a set of snapshots is to be of round %" PRIu32,
			next.job, next.round);
	else
		pbox_log(next.state == PBOX_FLEET_SET_DONE ? PBOX_LOG_INFO : PBOX_LOG_WARN,
			"job '%s': %s%s", next.job,
			next.state == PBOX_FLEET_SET_DONE ? "" : "no set of snapshots: ", next.why);
}

uint64_t
sets_step(struct agent *a, bool decides, uint64_t now)
{
	uint64_t due = UINT64_MAX;

	if (!a->registered || a->box.answered_ns == 0)
		return due;
	PBOX_ASSERT(a->box.number < a->box.n && a->box.n <= PBOX_FLEET_BOXES);
	for (unsigned i = 0; i < a->sets.n; i++) {
		const struct pbox_fleet_set *set = &a->sets.of[i].set;
		struct pbox_fleet_part *part = &a->sets.of[i].part[a->box.number];

		if (set->state != PBOX_FLEET_SET_ASKED)
			continue;
		due = now + SETS_EVERY;
		if (set->round != 0 && (part->id != set->id || part->round != set->round ||
					       part->state == PBOX_FLEET_PART_NONE))
			sets_part(a, set, part);
		sets_go_on(a, i, decides);
	}
	return due;
}
