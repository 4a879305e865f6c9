/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Plans of jobs that work by plan: when one is looked for, from which round on it holds, and who hears of it.
 *
 * What a decision costs depends on workers and slots of a job, and all jobs have one control thread: so it is made in pieces, one a tick
 * at most, and all jobs together have two of them a tick, by turns.
 */

#include <string.h>

#include "registrar_work.h"

#define AHEAD 3 /* rounds from the last finished one to a new plan */

void
registrar_work_publish(struct pbox_registrar *r, struct pbox_job *job)
{
	PBOX_ASSERT(job->policy == PBOX_POLICY_REASSIGN);
	job->owners.edition++;
	registrar_post(r, job, PBOX_MAIL_OWNERS);
}

void
registrar_work_note(
	struct pbox_registrar *r, struct pbox_job *job, const struct pbox_work_reason *why)
{
	struct work *k = work_of(job);
	struct registrar_work_change *c = &k->change[k->n_changes++ % CHANGES];

	c->round = k->round;
	c->ns = r->now_ns;
	pbox_work_reason_text(why, c->text, sizeof(c->text));
	registrar_event(r, PBOX_LOG_INFO, "job '%s': round %u: %s", job->name, k->round, c->text);
}

bool
registrar_work_finished(struct pbox_job *job, uint32_t round)
{
	struct pbox_job_table *jt = job->table[TABLE];

	return registrar_rounds_look(jt) != REGISTRAR_LOOK_GOES_ON && jt->finished.known &&
	       pbox_serial_diff(jt->finished.lowest, round) >= 0;
}

/* Has every fragment finished the round from which the newest plan holds? */
static bool
all_have_begun(struct pbox_job *job)
{
	return job->owners.from == 0 || registrar_work_finished(job, job->owners.from);
}

static void
announce(struct pbox_registrar *r, struct pbox_job *job, const struct pbox_work_reason *why)
{
	const struct pbox_work_plan *next;
	struct work *k = work_of(job);
	struct pbox_job_owners *o = &job->owners;

	next = pbox_work_next(k->room);
	/* of no round that workers may have begun (R15.5) */
	PBOX_ASSERT(
		!k->announced && next != NULL && pbox_serial_diff(next->from_round, k->round) > 0);
	if (o->from != 0) { /* the one before holds in all rounds now */
		memcpy(o->map[0], o->map[1], job->slots * sizeof(*o->map[0]));
		k->plan[0] = k->plan[1];
	}
	for (unsigned slot = 0; slot < job->slots; slot++)
		o->map[1][slot] = next->owner[slot] == PBOX_WORK_NOBODY ? PBOX_SLOT_NOBODY
									: next->owner[slot];
	k->plan[1] = next->number;
	o->from = next->from_round;
	o->plan = next->number;
	k->announced = true;
	if (why->before != why->after) /* else it makes a death for good, which was noted */
		registrar_work_note(r, job, why);
	registrar_work_publish(r, job);
}

/* All shards say the new edition: from which round on does the plan hold? */
static void
fix_round(struct pbox_registrar *r, struct pbox_job *job)
{
	struct work *k = work_of(job);
	uint32_t finished = 0, least;

	PBOX_ASSERT(k->announced);
	registrar_finished(r, job, TABLE, &finished);
	least = finished + 2;
	if (pbox_serial_diff(least, job->owners.from) > 0) {
		job->owners.from = least;
		pbox_work_postpone(k->room, least);
		registrar_post(r, job, PBOX_MAIL_OWNERS);
		return;
	}
	PBOX_ASSERT(pbox_serial_diff(job->owners.from, k->round) > 0);
	k->announced = false;
	work_room_round(k);
}

void
registrar_plan_fix(struct pbox_registrar *r, struct pbox_job *job)
{
	if (work_of(job)->announced)
		fix_round(r, job);
}

void
registrar_plan_begin(struct pbox_registrar *r)
{
	struct registrar_plans *p = registrar_state(r, PART_work);

	p->turn = p->short_of;
	p->short_of = 0;
	p->done = 0;
}

/* Jobs for which nothing was left come first in the next tick. Job 0 is the first in the one after it. */
static bool
has_turn(struct pbox_registrar *r, const struct pbox_job *job)
{
	struct registrar_plans *p = registrar_state(r, PART_work);

	if (job->id < p->turn)
		return false;
	if (p->done >= PBOX_WORK_PIECE && p->short_of == 0)
		p->short_of = job->id;
	return p->done < PBOX_WORK_PIECE;
}

void
registrar_plan_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	struct work *k = work_of(job);
	struct pbox_work_reason why;
	struct pbox_error err;
	bool any = false;
	int ret;

	if (k->announced) {
		fix_round(r, job);
		return;
	}
	if (pbox_work_next(k->room) != NULL || !all_have_begun(job) || !has_turn(r, job))
		return;
	ret = pbox_work_decide(k->room, k->round - 1 + AHEAD, work_seconds(r, k), &why, &err);
	((struct registrar_plans *)registrar_state(r, PART_work))->done += pbox_work_steps(k->room);
	if (ret == 1)
		announce(r, job, &why);
	for (unsigned w = 0; ret < 0 && w < job->workers; w++)
		any |= work_is_member(k, w);
	if (any && !k->stuck)
		registrar_event(r, PBOX_LOG_WARN,
			"job '%s': round %u: no worker says that its memory holds a slot, so slots stay where they are: free memory, or start the job again with more slots",
			job->name, k->round);
	k->stuck = any;
}
