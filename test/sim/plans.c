/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "box.h"
#include "operations.h"

/*
 * A program that works by plan (section 15 of the protocol), as pbox.torch does it: after a round its worker asks the box, if there is
 * something to ask (pbox_worker_plan.h); it computes its slots, each in its time, and pushes all of its nodes; where the round waits for
 * slots that it has got it asks again, computes these, and pushes all once more. In some jobs it says which slots it begins, and steals
 * some when it has none left.
 */

#define EXCHANGE   MS          /* that it reports for a payload, whatever it took */
#define PATIENCE   (600 * SEC) /* of a question */
#define STEALS_FOR (100 * MS)
/* A process that is stopped: what its socket holds */
#define SOCKET 64

/* How much slower than the fastest a worker is, in percent. From some round on it may be another. */
static uint64_t
slowness(const struct sim_scenario *sc, unsigned job, unsigned worker, uint32_t round)
{
	const struct sim_job_spec *j = &sc->job[job];
	uint64_t x = sim_mix(sc->seed ^ UINT64_C(0x510), (uint64_t)job << 16 | worker);
	uint32_t changes = (uint32_t)(x >> 32) % (2 * j->rounds + 1);

	if (round > changes)
		x = sim_mix(x, 1);
	return 100 + (x % 3 == 0 ? 0 : x / 4 % 400);
}

static unsigned
slots_of_nodes(const struct sim_job_spec *spec, const struct pbox_node *node, unsigned n)
{
	unsigned slots = 0;

	for (unsigned i = 0; i < n; i++)
		slots += pbox_node_end(node[i], spec->slots) - node[i].first;
	return slots;
}

static unsigned
nodes_now(const struct sim *s, const struct sim_worker *w, struct pbox_node *node)
{
	unsigned n = s->code->worker_table_nodes(w->w, w->table[0]);

	PBOX_ASSERT(n <= PBOX_RANGE_NODES);
	for (unsigned i = 0; i < n; i++)
		node[i] = s->code->worker_table_node(w->w, w->table[0], i);
	return n;
}

/* ---- questions ---------------------------------------------------------------------------------------- */

static void
ask(struct sim *s, struct sim_worker *w, enum pbox_worker_asks what, uint32_t round)
{
	struct sim_planned *p = &w->plan;
	struct pbox_work_ask *m = &p->question.work;

	p->question = (struct pbox_worker_question){.kind = what,
		.table = w->table[0],
		.deadline = s->now + PATIENCE,
		.most = STEALS_FOR,
		.work = {.round = round,
			.fits = UINT32_MAX,
			.seed = PBOX_WORK_NONE,
			.samples = PBOX_WORK_NONE}};
	if (p->measured) {
		m->slots = (uint16_t)slots_of_nodes(&s->sc.job[w->job], p->node, p->nodes);
		m->compute = (double)p->computed_ns * 1e-9;
		m->up = (double)(p->nodes * EXCHANGE) * 1e-9;
		m->down = (double)EXCHANGE * 1e-9;
	}
	w->busy = true;
	s->code->worker_ask(w->w, &p->question);
}

static bool
has_node(const struct pbox_node *list, unsigned n, struct pbox_node node)
{
	for (unsigned i = 0; i < n; i++)
		if (list[i].first == node.first && list[i].level == node.level)
			return true;
	return false;
}

static unsigned
slow_ns(const struct sim *s, const struct sim_worker *w, uint32_t round)
{
	return (unsigned)(s->sc.job[w->job].slot_ns * slowness(&s->sc, w->job, w->id, round) / 100);
}

static bool
is_begun(const struct sim_planned *p, unsigned slot)
{
	return (p->begun[slot / 64] >> slot % 64 & 1) != 0;
}

static uint32_t
round_of(const struct sim_worker *w)
{
	return w->plan.more ? w->round : w->round + 1;
}

/* The first of its slots that is not begun; the job's slots: all are. */
static unsigned
next_of(const struct sim *s, const struct sim_worker *w)
{
	unsigned slots = s->sc.job[w->job].slots, n;
	struct pbox_node node[PBOX_RANGE_NODES];

	n = nodes_now(s, w, node);
	for (unsigned i = 0; i < n; i++)
		for (unsigned slot = node[i].first; slot < pbox_node_end(node[i], slots); slot++)
			if (!is_begun(&w->plan, slot))
				return slot;
	return slots;
}

/* It begins the next slot, or asks for some of others. */
static void
begin_slot(struct sim *s, struct sim_worker *w)
{
	unsigned slots = s->sc.job[w->job].slots, slot = next_of(s, w);
	struct sim_planned *p = &w->plan;
	uint32_t round = round_of(w);

	p->nodes = nodes_now(s, w, p->node);
	if (slot == slots) {
		p->phase = SIM_PLAN_STEALS;
		return;
	}
	if (!s->code->worker_slot_begin(w->w, round, slot, s->now)) {
		sim_fail(s,
			"job %u worker %u: slot %u of round %u is of its nodes, and not its own",
			w->job, w->id, slot, round);
		return;
	}
	p->begun[slot / 64] |= UINT64_C(1) << slot % 64;
	p->computed_ns += slow_ns(s, w, round);
	w->not_before = s->now + slow_ns(s, w, round);
	p->phase = SIM_PLAN_COMPUTES;
}

static void
note_pushed(struct sim *s, struct sim_worker *w, struct pbox_node node, unsigned *kept)
{
	(*kept)++;
	for (unsigned slot = node.first; slot < pbox_node_end(node, s->sc.job[w->job].slots);
		slot++)
		w->plan.begun[slot / 64] |= UINT64_C(1) << slot % 64;
}

/* Its slots are known: it computes those that it has not pushed in this round yet. */
static void
compute(struct sim *s, struct sim_worker *w)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	struct pbox_node now[PBOX_RANGE_NODES], added[PBOX_RANGE_NODES];
	struct sim_planned *p = &w->plan;
	unsigned n = nodes_now(s, w, now), n_added = 0, kept = 0;
	uint32_t round = round_of(w);
	uint64_t early;

	memset(p->begun, 0, sizeof(p->begun));
	for (unsigned i = 0; i < n; i++) {
		if (p->more && has_node(p->node, p->nodes, now[i]))
			note_pushed(s, w, now[i], &kept);
		else
			added[n_added++] = now[i];
	}
	/* a thief of the round before may claim what it had stolen then, where the box was started again before it asked (R15.10d) */
	if (p->more && kept < p->nodes && !sim_plan_was_passed_over(s, w->job, w->id) &&
		!(spec->steals && s->box->generation > 0))
		sim_fail(s,
			"job %u worker %u has pushed %u nodes of round %u, and then %u of them are not its own",
			w->job, w->id, p->nodes, round, p->nodes - kept);
	memcpy(p->node, now, n * sizeof(*now));
	p->nodes = n;
	if (spec->steals) {
		p->computed_ns = 0;
		begin_slot(s, w);
		return;
	}
	p->computed_ns = slots_of_nodes(spec, added, n_added) * spec->slot_ns *
			 slowness(&s->sc, w->job, w->id, round) / 100;
	early = spec->ahead && !p->more && p->pushed_at != 0 ? s->now - p->pushed_at : 0;
	w->not_before = s->now + (p->computed_ns > early ? p->computed_ns - early : 0);
	p->phase = SIM_PLAN_COMPUTES;
}

/* It has looked whether the job has begun (R15.7a). */
static void
looked(struct sim *s, struct sim_worker *w)
{
	const struct pbox_work_ok *ok = &w->plan.question.ok;

	if (ok->ranges > 0 && ok->now <= 1) /* it begins with the others */
		w->plan.phase = SIM_PLAN_ASKS;
	else if (pbox_serial_diff(ok->now, w->last) > 0) /* they have done all of it */
		w->round = w->last;
	else
		ask(s, w, PBOX_WORKER_ENTER, ok->now);
}

/* A newcomer has slots in a round, and is to begin with the version before that. */
static void
entered(struct sim *s, struct sim_worker *w)
{
	uint32_t round = w->plan.question.work.round;

	w->round = w->done[0] = round - 1 < w->last ? round - 1 : w->last;
	w->plan.phase = SIM_PLAN_PULLS;
	if (round <= w->last)
		sim_submit_table(s, w, 0, PBOX_CLIENT_PULL, w->round);
}

bool
sim_plan_replied(struct sim *s, struct sim_worker *w)
{
	struct pbox_worker_question *q = s->code->worker_replied(w->w);
	struct sim_planned *p = &w->plan;

	if (q == NULL)
		return false;
	w->busy = false;
	if (q->err.code != PBOX_C_OK) {
		if (strstr(q->err.text, "in more than 24 pieces") != NULL || /* R15.7: FULL */
			(q->err.code == PBOX_C_LOST && s->sc.job[w->job].least > 0)) /* R15.7a */
			sim_job_lost(s, w->job);
		else if (!p->left)
			sim_fail(s, "job %u worker %u: a question ends with %d: %s", w->job, w->id,
				q->err.code, q->err.text);
		return true;
	}
	if (q->kind == PBOX_WORKER_LOOK) {
		looked(s, w);
	} else if (q->kind == PBOX_WORKER_ENTER) {
		entered(s, w);
	} else if (q->kind != PBOX_WORKER_STEAL) {
		p->measured &= !q->changed;
		p->stolen = false;
		compute(s, w);
	} else if (q->gained > 0) {
		begin_slot(s, w);
	} else { /* all of its slots are computed */
		p->stolen = true;
		p->phase = SIM_PLAN_COMPUTES;
		w->not_before = s->now;
	}
	return true;
}

/* ---- a round ------------------------------------------------------------------------------------------ */

static bool
push(struct sim *s, struct sim_worker *w)
{
	struct sim_planned *p = &w->plan;

	if (s->now < w->not_before) {
		sim_worker_wake(s, w, w->not_before);
		return false;
	}
	if (s->sc.job[w->job].steals && !p->stolen) {
		begin_slot(s, w);
		return true;
	}
	p->nodes = nodes_now(s, w, p->node);
	p->again = p->more;
	p->more = false;
	w->round += !p->again;
	sim_submit_round(s, w, 0, w->round, p->again);
	p->pushed_at = s->now;
	p->phase = SIM_PLAN_PUSHES;
	return true;
}

/* All operations of the round have ended: with their results, or because there is more to do in it. */
static void
ended(struct sim_worker *w)
{
	struct sim_planned *p = &w->plan;

	p->phase = SIM_PLAN_ASKS;
	p->turns = !p->more;
	if (p->more) {
		p->measured = false;
		return;
	}
	w->done[0] = w->round;
	p->measured = !p->again && p->nodes > 0;
}

bool
sim_plan_step(struct sim *s, struct sim_worker *w)
{
	struct sim_planned *p = &w->plan;

	switch (p->phase) {
	case SIM_PLAN_BEGINS:
		if (w->busy || w->round == w->last)
			return false;
		if (s->sc.job[w->job].least > 0)
			ask(s, w, PBOX_WORKER_LOOK, w->round + 1);
		else
			p->phase = SIM_PLAN_ASKS;
		return true;
	case SIM_PLAN_PULLS:
		if (w->round == w->last || w->open[w->round & 1][0] > 0)
			return false;
		compute(s, w);
		return true;
	case SIM_PLAN_ASKS:
		if (w->busy || (w->round == w->last && !p->more))
			return false;
		ask(s, w, p->turns ? PBOX_WORKER_TURN : PBOX_WORKER_WORK, round_of(w));
		return true;
	case SIM_PLAN_COMPUTES:
		return push(s, w);
	case SIM_PLAN_STEALS:
		if (w->busy)
			return false;
		ask(s, w, PBOX_WORKER_STEAL, round_of(w));
		return true;
	default:
		if (w->open[w->round & 1][0] > 0)
			return false;
		ended(w);
		return true;
	}
}

bool
sim_plan_enters(const struct sim_worker *w)
{
	return w->busy && w->plan.question.kind == PBOX_WORKER_ENTER;
}

/* ---- fates -------------------------------------------------------------------------------------------- */

static unsigned
left_of(const struct sim *s, unsigned job)
{
	return s->sc.job[job].workers - s->job[job].gone;
}

/* Does another one live, to whom the job goes on? */
static bool
is_not_alone(struct sim *s, const struct sim_worker *w)
{
	for (unsigned i = 0; i < s->sc.job[w->job].workers; i++) {
		const struct sim_worker *o = s->job[w->job].worker[i];

		if (o != w && o->state == SIM_WORK && s->now >= o->stopped &&
			!sim_plan_was_passed_over(s, w->job, o->id))
			return true;
	}
	return false;
}

static void
dies(struct sim *s, struct sim_worker *w, const char *how)
{
	struct sim_job *j = &s->job[w->job];

	sim_note(s, "worker %u/%u %s", w->job, w->number, how);
	sim_plan_dead(s, w->job, w->id);
	sim_worker_kill(s, w);
	w->state = SIM_DEAD;
	s->box->progress_at = s->now;
	sim_inexact(s, w->job);
	j->gone++;
	if (j->done == 0 && left_of(s, w->job) == 0 && s->box->generation == 0)
		sim_fail(s, "job %u: all workers were passed over", w->job);
	if (j->done + j->gone == s->sc.job[w->job].workers)
		sim_at(s, s->now, SIM_START, w->job, SIM_ALL, NULL);
}

/* Its slots go to others at once, as those of a dead one. */
static void
leaves(struct sim *s, struct sim_worker *w)
{
	struct sim_job *j = &s->job[w->job];

	sim_note(s, "worker %u/%u leaves in round %u", w->job, w->number, w->round);
	sim_plan_dead(s, w->job, w->id);
	s->box->progress_at = s->now;
	s->box->exact = false;
	w->plan.left = true;
	j->gone++;
	w->state = SIM_LEAVE;
	s->code->worker_shut(w->w);
	sim_request(s, w, PBOX_LEAVE, 0);
}

void
sim_plan_kill(struct sim *s, struct sim_worker *w)
{
	/* one stays, and finishes; the initial parameters are worker 0's alone, until all have a version after them */
	if (w->state != SIM_WORK || (w->id == 0 && w->done[0] == 0) || !is_not_alone(s, w))
		return;
	if (!w->busy &&
		sim_mix(s->sc.seed ^ UINT64_C(0x1EA7E), (uint64_t)w->job << 16 | w->id) % 2 == 0)
		leaves(s, w);
	else
		dies(s, w, "is killed, and nobody takes its place");
}

void
sim_plan_stop(struct sim *s, struct sim_worker *w, uint64_t ns)
{
	if (w->state != SIM_WORK || s->now < w->stopped)
		return;
	sim_note(s, "worker %u/%u stops for %llu ms", w->job, w->number,
		(unsigned long long)(ns / MS));
	w->stopped = s->now + ns;
	w->in_socket = 0;
}

/* R12.5: the box was started again, and as many fresh workers as the training begins with have begun another run, and have
 * its map, before this one came again. */
static bool
has_begun_anew(const struct sim *s, unsigned job)
{
	const struct pbox_job *j = sim_box_job(s, job);

	return s->box->generation > 0 && s->sc.job[job].least > 0 && j != NULL &&
	       !j->run.reported && sim_box_table(s, job, 0) != NULL;
}

/* The others have gone on without it: an operation of it has failed. True: so it ends. */
bool
sim_plan_ends(struct sim *s, struct sim_worker *w, int code)
{
	bool plan = s->sc.job[w->job].plan;

	if (plan && code == PBOX_C_RUN_ENDED && has_begun_anew(s, w->job)) {
		dies(s, w, "is of a run that has ended, and ends");
		return true;
	}
	if (!plan || (code != PBOX_C_RUNNING && code != PBOX_C_LOST) ||
		(s->box->generation == 0 && !sim_plan_was_passed_over(s, w->job, w->id)))
		return false;
	dies(s, w, "was passed over, and ends");
	return true;
}

bool
sim_plan_is_stopped(struct sim *s, struct sim_worker *w, struct sim_packet *p)
{
	if (s->now >= w->stopped)
		return false;
	if (w->in_socket++ < SOCKET)
		sim_at(s, w->stopped, SIM_TO_WORKER, 0, 0, p);
	else
		sim_packet_free(p);
	return true;
}
