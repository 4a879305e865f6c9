/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "law.h"
#include "operations.h"

/*
 * The program that uses a worker: it declares its tables, sets hyper-parameters, gives and fetches initial parameters,
 * pushes and pulls round after round, and leaves. What completes must have the bytes that the reference has.
 *
 * A process that was killed and starts again has a checkpoint: the rounds of each table that were complete.
 */

/* ---- what completes ------------------------------------------------------------------------------- */

static void
check(struct sim *s, const struct sim_worker *w, const struct sim_op *o)
{
	struct sim_job *j = &s->job[w->job];
	const struct sim_table_spec *t = sim_table_spec_of(s, w, o->table);
	unsigned size = pbox_format_wide(t->fixed.pull_format);

	/* one that came back into a run that went on without it does not know which versions it gets */
	if (o->out == NULL || (s->sc.job[w->job].shrink && w->restarted))
		return;
	for (unsigned i = 0; i < o->op.n; i++) {
		uint32_t tensor = o->op.e[i].tensor;

		for (unsigned k = 0; k < j->tensor[o->table][tensor].n && !s->failed; k++) {
			const struct sim_piece *p = &j->tensor[o->table][tensor].piece[k];

			t->law->completed(s, w, o, p, o->op.e[i].out + p->offset * size);
		}
	}
}

/* What a worker may not be able to go on from: a box that lost what only the dead had, or rounds that went on
 * without it. Then the process ends, and is started again from its checkpoint. */
static bool
may_be_lost(const struct sim *s, const struct sim_worker *w)
{
	return sim_was_restarted(s, w->job) || s->sc.job[w->job].shrink;
}

static bool
finished_ops(struct sim *s, struct sim_worker *w)
{
	struct pbox_worker_op *op = s->code->worker_finished(w->w), *next;
	bool any = op != NULL;

	for (; op != NULL && !s->failed; op = next) {
		struct sim_op *o = (struct sim_op *)((char *)op - offsetof(struct sim_op, op));

		next = op->next;
		if (op->code != 0 && sim_plan_ends(s, w, op->code))
			return false;
		if (sim_hold_ended(s, w, o)) {
			sim_op_free(o);
			continue;
		}
		if (op->code == PBOX_C_LOST && may_be_lost(s, w)) {
			sim_worker_again(s, w);
			return false;
		}
		if (op->code != 0 && !(w->plan.left && op->code == PBOX_C_CLOSED)) {
			sim_fail(s, "job %u worker %u: an operation of round %u ends with %d: %s",
				w->job, w->id, o->round, op->code, op->text);
			return false;
		}
		if (op->more)
			w->plan.more = true;
		else if (op->code == 0) /* else it has left */
			check(s, w, o);
		s->box->progress_at = s->now;
		if (o->counts && --w->open[o->round & 1][o->table] == 0 && o->round > 0)
			w->done[o->table] = o->round;
		sim_op_free(o);
	}
	return any;
}

/* ---- its steps -------------------------------------------------------------------------------------- */

static void
declare(struct sim *s, struct sim_worker *w)
{
	const struct sim_table_spec *t = sim_table_spec_of(s, w, w->tables);
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	const struct pbox_declare *d = &t->fixed;

	for (uint32_t i = 0; i < d->tensors; i++)
		w->tensor[i] = (struct pbox_client_tensor){.name = t->tensor[i].name,
			.elements = t->tensor[i].elements,
			.group = t->tensor[i].group};
	w->what = (struct pbox_client_table){.size = sizeof(w->what),
		.mode = d->mode,
		.op = d->op,
		.optimiser = d->optimiser,
		.push_format = d->push_format,
		.pull_format = d->pull_format,
		.n = d->tensors,
		.tensors = w->tensor,
		.discipline = d->discipline,
		.hold = sim_is_held(t),
		.mixed = (d->flags & PBOX_DECLARE_MIXED) != 0};
	if (w->restarted)
		w->what.first_round = spec->shrink ? PBOX_CLIENT_ROUND_ANY
						   : spec->first_round + w->done[w->tables] + 1;
	w->declaration = (struct pbox_worker_declaration){.what = &w->what};
	w->state = SIM_DECLARE;
	s->code->worker_declare(w->w, &w->declaration);
}

static void
status(struct sim *s, struct sim_worker *w)
{
	/* to the one after the last: none follow */
	struct pbox_status m = {
		.first = (uint16_t)(sim_below(s, 4) % (s->sc.job[w->job].workers + 1u))};

	w->state = SIM_STATUS;
	sim_request(s, w, PBOX_STATUS, pbox_status_encode(w->payload, sizeof(w->payload), &m));
}

static uint32_t
least_done(const struct sim *s, const struct sim_worker *w)
{
	uint32_t least = UINT32_MAX;

	for (unsigned t = 0; t < s->sc.job[w->job].tables; t++)
		least = w->done[t] < least ? w->done[t] : least;
	return least;
}

static bool
declared(struct sim *s, struct sim_worker *w)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	const struct pbox_worker_declaration *d = &w->declaration;
	struct pbox_worker_table_info info;

	if (d->state == PBOX_WORKER_DECLARING)
		return false;
	if (d->state == PBOX_WORKER_REFUSED) {
		/* the box has lost the round that this one has: one checkpoint back */
		if (d->err.code == PBOX_C_MISMATCH && sim_was_restarted(s, w->job) &&
			w->restarted && w->done[w->tables] > 0) {
			w->done[w->tables]--;
			declare(s, w);
			return true;
		}
		if (d->err.code == PBOX_C_LOST && may_be_lost(s, w)) {
			sim_job_lost(s, w->job);
			return false;
		}
		sim_fail(s, "job %u worker %u: its table is refused: %s", w->job, w->id,
			d->err.text);
		return false;
	}
	s->code->worker_table_info(d->table, &info);
	w->table[w->tables] = d->table;
	if (spec->shrink && w->restarted)
		w->done[w->tables] = 0;
	else if (!sim_is_empty(sim_table_spec_of(s, w, w->tables)) &&
		 !sim_is_clock(sim_table_spec_of(s, w, w->tables)))
		w->done[w->tables] = info.base - spec->first_round;
	if (w->done[w->tables] > spec->rounds)
		sim_fail(s, "job %u worker %u: table %u begins with version %u", w->job, w->id,
			w->tables, info.base);
	if (++w->tables < spec->tables)
		declare(s, w);
	else
		status(s, w);
	return true;
}

/* Are all fragments of the table at this version, or beyond it? */
static bool
all_have(const struct sim *s, unsigned job, unsigned table, uint32_t version)
{
	const struct sim_job *j = &s->job[job];

	for (uint32_t i = 0; i < j->n_fragments; i++)
		if (j->fragment[i].table == table && j->fragment[i].published < version)
			return false;
	return true;
}

/* One that was started again fetches what it goes on from, where nothing is left of what its earlier life has
 * contributed after that: then the latest version is the one that it means. */
static bool
may_fetch(const struct sim *s, const struct sim_worker *w, unsigned table)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	const struct sim_job *j = &s->job[w->job];
	uint32_t version = spec->first_round + w->done[table];

	if (!w->restarted || w->done[table] == 0 || sim_job_crashes(&s->sc, &s->sc.job[w->job]))
		return false;
	for (uint32_t i = 0; i < j->n_fragments; i++)
		for (unsigned l = sim_slots_of(spec, w->id); l < sim_slots_of(spec, w->id + 1u);
			l++)
			if (j->fragment[i].table == table &&
				j->fragment[i].slot[l].arrived != version)
				return false;
	return true;
}

/* After SETs of the first round, by worker 0; the others fetch what it gives. The map of one that comes back is at
 * most one version old, and of version 0 there is nothing to fetch. */
static void
start(struct sim *s, struct sim_worker *w)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];

	sim_fleet_maps(s, w->job);
	w->state = SIM_INITIAL;
	w->round = w->set_round = least_done(s, w);
	w->last = spec->rounds;
	for (unsigned t = 0; t < spec->tables && spec->least == 0; t++) {
		bool mode1 = spec->table[t].fixed.mode == PBOX_MODE_OPTIMISER;

		/* it learns which of its pushes have counted; that may be before there is anything */
		if (sim_is_clock(&spec->table[t]) &&
			(w->restarted || sim_was_restarted(s, w->job))) {
			if (w->id == 0)
				sim_submit_table(s, w, t, PBOX_CLIENT_INIT, 0);
			sim_submit_table(s, w, t, PBOX_CLIENT_PULL, 0);
		} else if (spec->shrink && w->restarted && all_have(s, w->job, t, 2))
			sim_submit_table(s, w, t, PBOX_CLIENT_PULL, 0);
		else if (mode1 && w->done[t] == 0 && w->id != 0 && spec->pull0 && !w->restarted)
			sim_submit_table(s, w, t, PBOX_CLIENT_PULL, 0);
		else if ((spec->plan && w->done[t] > 0) || (!spec->shrink && may_fetch(s, w, t)))
			sim_submit_table(s, w, t, PBOX_CLIENT_PULL, w->done[t]);
	}
}

static bool
none_open(const struct sim_worker *w, unsigned parity)
{
	for (unsigned t = 0; t < SIM_TABLES; t++)
		if (w->open[parity][t] > 0)
			return false;
	return w->pending == 0;
}

/*
 * Hyper-parameters of rounds up to this one are set: true. Else the next SET is under way. What its earlier life has
 * set, or the others have after it, comes too late.
 */
static bool
sets(struct sim *s, struct sim_worker *w, uint32_t round)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	struct pbox_set m;

	if (w->id >= spec->setters)
		return true;
	while (w->set_round < round && !w->busy) {
		if (w->set_table == spec->tables) {
			w->set_round++;
			w->set_table = w->set_group = 0;
		} else if (w->set_group == sim_groups(&s->sc, w->job, w->set_table)) {
			w->set_table++;
			w->set_group = 0;
		} else if (sim_hyper_change(&s->sc, w->job, w->set_table, w->set_group++,
				   spec->first_round + w->set_round + 1, &m) > 0) {
			sim_request(s, w, PBOX_SET,
				pbox_set_encode(w->payload, sizeof(w->payload), &m));
		}
	}
	return !w->busy;
}

static void
initial(struct sim *s, struct sim_worker *w)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];

	for (unsigned t = 0; t < spec->tables; t++)
		if (spec->table[t].fixed.mode == PBOX_MODE_OPTIMISER && w->done[t] == 0)
			sim_submit_table(s, w, t, PBOX_CLIENT_INIT, 0);
}

/* Rounds that are left to one that has come back under policy shrink: no fragment may go beyond the last one. */
static void
count_rounds(struct sim *s, struct sim_worker *w)
{
	const struct sim_job *j = &s->job[w->job];
	uint32_t most = 0;

	for (uint32_t i = 0; i < j->n_fragments; i++)
		most = j->fragment[i].published > most ? j->fragment[i].published : most;
	w->last = s->sc.job[w->job].rounds - most;
}

/* Where pulls have a bound, one that was started again brings no push twice: the others, which have all done their rounds, or wait for what
 * it is to bring next, would never reach its clock. */
static void
skip_pushed(struct sim *s, struct sim_worker *w)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];

	for (unsigned t = 0; t < spec->tables && w->restarted && spec->lag > 0; t++) {
		bool restoring;
		uint32_t done = s->code->worker_next_round(w->w, w->table[t], &restoring) - 1 -
				spec->first_round;

		if (sim_is_clock(&spec->table[t]) && !restoring && done > w->done[t])
			w->done[t] = done < spec->rounds ? done : spec->rounds;
	}
}

static bool
started(struct sim *s, struct sim_worker *w)
{
	bool back = s->sc.job[w->job].shrink && w->restarted;

	if (!none_open(w, 0) || !none_open(w, 1) || !sets(s, w, w->round + 1))
		return false;
	if (back)
		count_rounds(s, w);
	skip_pushed(s, w);
	w->state = SIM_WORK;
	w->not_before = s->now;
	if (w->id == 0 && !back)
		initial(s, w);
	return true;
}

/* Between the pushes of a round with two phases and its end nothing of another table begins (R6.15). */
static bool
submit_pending(struct sim *s, struct sim_worker *w)
{
	bool any = false;

	while (w->pending != 0 && !sim_hold_between(s, w)) {
		unsigned t = (unsigned)__builtin_ctz(w->pending);

		w->pending &= w->pending - 1;
		sim_submit_round(s, w, t, w->round, false);
		any = true;
	}
	return any;
}

/* The next round, if it may begin: true if it does. */
static bool
next_round(struct sim *s, struct sim_worker *w)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	uint32_t round = w->round + 1;
	/* one that comes back may find its window full of rounds that others have not begun */
	bool ahead =
		!spec->barrier && spec->restarts == 0 && !spec->shrink && spec->push_percent == 0;
	bool busy = w->busy;

	if (w->round == w->last || !none_open(w, round & 1) ||
		(!ahead && !none_open(w, w->round & 1)))
		return false;
	/* all have pushed the round before, and so have set what holds in it */
	if (ahead && spec->sets && !none_open(w, w->round & 1))
		return false;
	if (s->now < w->not_before) {
		sim_worker_wake(s, w, w->not_before);
		return false;
	}
	if (!sets(s, w, round))
		return busy != w->busy &&
		       sim_any_held(&s->sc, w->job); /* it waits for the worker's tick */
	w->round = round;
	w->not_before = s->now + sim_below(s, spec->compute_ns);
	for (unsigned t = 0; t < spec->tables; t++)
		w->pending |= w->done[t] < round ? 1u << t : 0;
	submit_pending(s, w);
	return true;
}

/* Workers that are to come would find another run; those that are there, and wait for slots of rounds after the last one, get them when
 * the others have left. */
static bool
all_have_come(const struct sim *s, unsigned job)
{
	for (unsigned i = 0; i < s->sc.job[job].workers; i++) {
		const struct sim_worker *o = s->job[job].worker[i];

		if (o->state < SIM_WORK || (o->state == SIM_WORK && !sim_plan_enters(o)))
			return false;
	}
	return true;
}

/*
 * A worker that is started again needs the others: where that happens nobody leaves before all have finished. With
 * policy shrink nobody does while one is about to come back.
 */
static bool
may_leave(const struct sim *s, const struct sim_worker *w)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	const struct sim_job *j = &s->job[w->job];

	if (spec->shrink) {
		for (unsigned i = 0; i < spec->workers; i++)
			if (j->worker[i]->state > SIM_OFF && j->worker[i]->state < SIM_WORK)
				return false;
		return j->down == 0;
	}
	if (spec->least > 0)
		return all_have_come(s, w->job);
	return (spec->restarts == 0 && !sim_job_crashes(&s->sc, spec)) ||
	       j->finished + j->gone == spec->workers;
}

static bool
work(struct sim *s, struct sim_worker *w)
{
	struct sim_job *j = &s->job[w->job];

	if (submit_pending(s, w))
		return true;
	if (s->sc.job[w->job].plan ? sim_plan_step(s, w) : next_round(s, w))
		return true;
	if (w->round < w->last || !none_open(w, 0) || !none_open(w, 1) || w->busy || w->plan.more)
		return false;
	w->state = SIM_FINISHED;
	if (!w->finished) {
		w->finished = true;
		j->finished++;
		s->box->progress_at = s->now;
	}
	return true;
}

/* Has a box that was started again not got all that this worker holds of its pushes? */
static bool
owes(struct sim *s, const struct sim_worker *w)
{
	bool any = false, restoring;

	for (unsigned t = 0; t < w->tables; t++) {
		s->code->worker_next_round(w->w, w->table[t], &restoring);
		any |= restoring && sim_is_clock(sim_table_spec_of(s, w, t));
	}
	return any;
}

/* All had finished, and some have left: a box that was started again since then gets its tables from nobody, and nobody wants them. */
static bool
have_left(const struct sim *s, unsigned job)
{
	bool any = false;

	for (unsigned i = 0; i < s->sc.job[job].workers; i++)
		any |= s->job[job].worker[i]->state >= SIM_LEAVE;
	return any;
}

static bool
leave(struct sim *s, struct sim_worker *w)
{
	if (!may_leave(s, w) || (owes(s, w) && !have_left(s, w->job))) {
		sim_worker_wake(s, w, s->now + 100 * MS);
		return false;
	}
	w->owed = owes(s, w);
	w->state = SIM_LEAVE;
	s->code->worker_shut(w->w);
	sim_request(s, w, PBOX_LEAVE, 0);
	return true;
}

static bool
answered(struct sim *s, struct sim_worker *w)
{
	const struct pbox_worker_request *r = &w->request;
	struct pbox_error_msg m = {.code = r->answer_code};

	if (s->code->worker_answered(w->w) == NULL)
		return false;
	w->busy = false;
	if (r->answer_type == PBOX_ERROR && r->answer_len > 0)
		pbox_error_decode(w->answer, r->answer_len, &m);
	if (w->state == SIM_LEAVE) {
		sim_worker_finished(s, w);
	} else if (r->type == PBOX_SET &&
		   sim_hold_said(s, w, r->answer_type == PBOX_ERROR ? m.code : 0)) {
		return true;
	} else if (r->answer_type == PBOX_ERROR && r->type == PBOX_SET && w->restarted &&
		   (m.code == PBOX_E_SET_LATE || m.code == PBOX_E_SET_ORDER)) {
		return true; /* done in an earlier life */
	} else if (r->answer_type != r->type + 1) {
		sim_fail(s, "job %u worker %u in state %u: %s is answered %s %s: %s", w->job, w->id,
			w->state, pbox_type_name(r->type), pbox_type_name(r->answer_type),
			pbox_errcode_name(m.code), m.text);
	} else if (w->state == SIM_STATUS) {
		start(s, w);
	}
	return true;
}

/* The worker has given up. */
static void
gave_up(struct sim *s, struct sim_worker *w)
{
	const struct pbox_client_error *e = s->code->worker_error(w->w);
	const struct sim_network_spec *n = &s->sc.net;

	if (w->state == SIM_LEAVE) /* its session had ended already: LEFT was lost */
		sim_worker_finished(s, w);
	else if (sim_plan_ends(s, w, e->code))
		return;
	else if (e->code == PBOX_C_LOST && sim_was_restarted(s, w->job) &&
		 !s->sc.job[w->job].shrink)
		sim_job_lost(s, w->job);
	else if (e->code == PBOX_C_LOST && may_be_lost(s, w))
		sim_worker_again(s, w);
	else if (w->state == SIM_OPENING &&
		 (e->code == PBOX_C_MTU || e->code == PBOX_C_UNREACHABLE) &&
		 (n->holes > 0 || sim_job_crashes(&s->sc, &s->sc.job[w->job]) ||
			 n->loss + n->corrupt + n->truncate > 0.1))
		sim_worker_again(s, w);
	else
		sim_fail(s, "job %u worker %u in state %u gives up: %s", w->job, w->id, w->state,
			e->text);
}

bool
sim_program_step(struct sim *s, struct sim_worker *w)
{
	bool any;

	if (w->number == SIM_STRAGGLER) /* its program only waits */
		return false;
	if (s->code->worker_state(w->w) == PBOX_WORKER_FAILED) {
		gave_up(s, w);
		return false;
	}
	any = finished_ops(s, w);
	if (w->w == NULL || s->failed)
		return false;
	any |= answered(s, w);
	if (s->sc.job[w->job].plan && !s->failed)
		any |= sim_plan_replied(s, w);
	if (!s->failed)
		any |= sim_hold_step(s, w);
	if (s->failed)
		return false;
	switch (w->state) {
	case SIM_OPENING:
		if (s->code->worker_state(w->w) != PBOX_WORKER_OPEN)
			return any;
		w->id = (uint16_t)s->code->worker_number(w->w);
		declare(s, w);
		return true;
	case SIM_DECLARE:
		return declared(s, w) || any;
	case SIM_INITIAL:
		return started(s, w) || any;
	case SIM_WORK:
		return work(s, w) || any;
	case SIM_FINISHED:
		return leave(s, w) || any;
	default:
		return any;
	}
}
