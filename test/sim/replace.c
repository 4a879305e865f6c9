/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "sim.h"

/*
 * All workers of a run are killed, and another run starts at once, with other data, perhaps with another number of
 * workers. One of the run before was only asleep: what it sends comes later, under its old token, and it joins again.
 * Every result must be of the new run's contributions alone (section 12 of the protocol); the reference knows no other.
 */

#define PLACE  200        /* its place in the network, beside the workers */
#define ENDS   (60 * SEC) /* it has found out, so long after it woke up */
#define LOOKED (50 * MS)
#define LATE   (500 * MS) /* the network delivers nothing that is older */

void
sim_replace_plan(struct sim *s, unsigned job)
{
	struct sim_fault k = {.job = (uint8_t)job};

	if (s->sc.job[job].replaced == 0 || s->job[job].life > 0)
		return;
	k.value[0] = 25 * MS + sim_below(s, 300 * MS);
	if (sim_fault(s, &k, SIM_FAULT_REPLACE, true))
		sim_at(s, s->now + k.value[0], SIM_REPLACE, job, 0, NULL);
}

/* Without identities the box knows a run by its maps: all workers have them. */
static bool
may_be_replaced(const struct sim *s, unsigned job)
{
	const struct sim_job *j = &s->job[job];
	bool working = true, leaving = j->done > 0 || j->finished > 0 || j->over;

	for (unsigned w = 0; w < s->sc.job[job].workers; w++) {
		working &= j->worker[w]->state == SIM_WORK;
		leaving |= j->worker[w]->state == SIM_LEAVE;
	}
	return !leaving && (working || s->sc.job[job].named);
}

/* One that has a map. It sleeps, and has another address when it wakes up. */
static void
choose_straggler(struct sim *s, unsigned job)
{
	struct sim_job *j = &s->job[job];
	unsigned number = (unsigned)sim_below(s, s->sc.job[job].workers);
	struct sim_worker *w = j->worker[number], *other = j->worker[SIM_STRAGGLER];

	if (w->state != SIM_WORK)
		return;
	j->worker[number] = other;
	j->worker[SIM_STRAGGLER] = w;
	other->number = number;
	other->ip = w->ip;
	w->number = SIM_STRAGGLER;
	w->ip = 0x0A000001u + (job << 8) + PLACE;
	w->udp = 4000;
	w->timer = UINT64_MAX;
	j->run_before = sim_part(s, job)->run;
	j->woken = 0;
	sim_at(s, s->now + sim_below(s, 100 * MS), SIM_STRAGGLER_GO, job, 0, NULL);
}

void
sim_replace(struct sim *s, unsigned job)
{
	struct sim_job *j = &s->job[job];
	struct sim_job_spec *spec = &s->sc.job[job];

	if (!may_be_replaced(s, job))
		return;
	sim_note(s, "all workers of job %u are killed, and %u of another run start", job,
		spec->replaced);
	choose_straggler(s, job);
	for (unsigned w = 0; w < SIM_WORKERS; w++)
		sim_worker_kill(s, j->worker[w]);
	sim_forget_map(j);
	for (unsigned b = 0; b < SIM_BOXES; b++) {
		memset(j->part[b].token, 0, sizeof(j->part[b].token));
		j->part[b].run = 0;
	}
	j->done = j->finished = j->down = 0;
	j->life++;
	sim_inexact(s, job);
	s->box->progress_at = s->now;
	spec->workers = spec->replaced;
	if (spec->setters > spec->workers)
		spec->setters = spec->workers;
	for (unsigned w = 0; w < spec->workers; w++)
		sim_at(s, s->now + sim_below(s, 20 * MS), SIM_START, job, w, NULL);
}

static bool
was_replaced(const struct sim *s, unsigned job)
{
	return s->sc.job[job].replaced != 0 && s->job[job].life > 0;
}

static bool
of_now(const struct sim_job *j, uint64_t nonce)
{
	bool any = false;

	for (unsigned w = 0; w < SIM_WORKERS; w++)
		any |= j->worker[w]->state != SIM_OFF && j->worker[w]->nonce == nonce;
	return any;
}

bool
sim_is_of_before(const struct sim *s, unsigned job, const struct pbox_send *out)
{
	const struct sim_job *j = &s->job[job];
	const uint64_t *token = j->part[s->box->number].token;
	struct pbox_welcome m;
	bool now = false;

	if (!was_replaced(s, job))
		return false;
	if (out->hdr.type == PBOX_WELCOME)
		return pbox_welcome_decode(out->payload, out->hdr.length, &m) == 0 &&
		       !of_now(j, m.nonce);
	for (unsigned w = 0; w < SIM_WORKERS; w++)
		now |= token[w] != 0 && token[w] == out->hdr.token;
	return !now;
}

/* ---- the straggler --------------------------------------------------------------------------------- */

/* Before that the box cannot know that it is late. */
static bool
another_has_begun(struct sim *s, unsigned job)
{
	uint64_t run = sim_part(s, job)->run;

	return run != 0 && run != s->job[job].run_before;
}

/* What it has under way goes again, under its old token; then it joins again, and learns that its run has ended. */
void
sim_straggler_go(struct sim *s, unsigned job)
{
	struct sim_job *j = &s->job[job];
	struct sim_worker *w = j->worker[SIM_STRAGGLER];
	enum pbox_worker_state state;

	if (w->w == NULL || s->box->unfinished == 0 || j->over)
		return;
	state = s->code->worker_state(w->w);
	if (j->woken == 0 && another_has_begun(s, job)) {
		sim_note(s, "the worker of the run before wakes up");
		j->woken = s->now;
		w->timer = 0;
		sim_worker_wake(s, w, s->now);
	} else if (state == PBOX_WORKER_FAILED) {
		if (s->code->worker_error(w->w)->code != PBOX_C_RUN_ENDED)
			sim_fail(s, "job %u: a worker of a run that has ended gives up: %s", job,
				s->code->worker_error(w->w)->text);
		return;
	} else if (j->woken != 0 && s->now - j->woken > ENDS) {
		sim_fail(s, "job %u: a worker of a run that has ended has not found out", job);
	}
	sim_at(s, s->now + LOOKED, SIM_STRAGGLER_GO, job, 0, NULL);
}

void
sim_straggler_receive(struct sim *s, unsigned job, const struct sim_packet *p)
{
	struct sim_job *j = &s->job[job];
	struct pbox_welcome w;
	struct pbox_hdr h;
	size_t size;

	if (p->forged || pbox_frame_decode(p->data, p->len, true, &h, &size) != PBOX_WIRE_OK)
		return;
	/* one of several boxes may not know yet that another run has begun */
	if (sim_is_fleet(&s->sc, &s->sc.job[job]) &&
		(j->part[p->box].run == 0 || s->now - j->part[p->box].begun < LATE))
		sim_worker_receive(s, j->worker[SIM_STRAGGLER], p);
	else if (h.type == PBOX_WELCOME &&
		 pbox_welcome_decode(p->data + PBOX_HDR_LEN, h.length, &w) == 0)
		sim_fail(s, "job %u: a worker of a run that has ended gets into run %llu", job,
			(unsigned long long)w.number);
	else if (h.type == PBOX_RESULT || h.type == PBOX_WAIT || h.type == PBOX_PONG)
		sim_fail(s, "job %u: a worker of a run that has ended gets %s", job,
			pbox_type_name(h.type));
	else
		sim_worker_receive(s, j->worker[SIM_STRAGGLER], p);
}
