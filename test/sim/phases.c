/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "law.h"
#include "operations.h"

/*
 * Tables with two phases a round (R6.15), and what a program does with them: it pushes, asks for the norm, sets the
 * coefficient, and pulls. Whatever a restarted box has lost of that it begins again with its pushes.
 */

bool
sim_is_held(const struct sim_table_spec *t)
{
	return (t->fixed.flags & PBOX_DECLARE_HOLD) != 0;
}

bool
sim_any_held(const struct sim_scenario *sc, unsigned job)
{
	for (unsigned t = 0; t < sc->job[job].tables; t++)
		if (sim_is_held(&sc->job[job].table[t]))
			return true;
	return false;
}

/* Of some no element is clipped, and of some the squares have more digits than their unit. */
double
sim_max_norm(const struct sim_scenario *sc, unsigned job, unsigned table)
{
	static const double norm[] = {0.25, 0.3, 5.0, 1e10, 0.0};

	return norm[sim_mix(sc->seed ^ 0x40, job * SIM_TABLES + table) % 5];
}

void
sim_scenario_hold(struct sim_scenario *sc, uint64_t seed, const struct sim_limits *limits)
{
	for (unsigned i = 0; limits->hold && i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];

		if (j->plan)
			continue;
		j->shrink = false;
		j->first_round = 0;
		j->barrier = true;
		for (unsigned t = 0; t < j->tables; t++) {
			struct sim_table_spec *x = &j->table[t];
			uint64_t r = sim_mix(seed ^ 0x401D, i * SIM_TABLES + t);

			if (sim_is_clock(x) || (t > 0 && r % 3 == 0))
				continue;
			if (x->fixed.mode != PBOX_MODE_OPTIMISER)
				x->fixed.optimiser = (uint8_t)(PBOX_OPT_SGD + (r >> 8) % 5);
			x->fixed.mode = PBOX_MODE_OPTIMISER;
			x->fixed.flags |= PBOX_DECLARE_HOLD;
			x->law = &sim_law_rounds;
		}
	}
}

/* ---- a program's round -------------------------------------------------------------------------- */

void
sim_hold_begin(struct sim_worker *w, unsigned table, uint32_t round, unsigned pushes)
{
	struct sim_phase *p = &w->phase[table];

	*p = (struct sim_phase){.state = SIM_PHASE_PUSH, .round = round, .pushes = pushes};
}

static void
push_again(struct sim *s, struct sim_worker *w, unsigned table)
{
	struct sim_phase *p = &w->phase[table];

	sim_note(s, "worker %u/%u: pushes of round %u are lost", w->job, w->id, p->round);
	p->again = true;
	sim_submit_round(s, w, table, p->round, true);
}

/* What ends the round is open from its beginning, and is the pull now. */
static void
pull(struct sim *s, struct sim_worker *w, unsigned table)
{
	struct sim_phase *p = &w->phase[table];

	p->state = SIM_PHASE_PULL;
	w->open[p->round & 1][table]--;
	sim_submit_table(s, w, table, PBOX_CLIENT_PULL, p->round);
}

bool
sim_hold_ended(struct sim *s, struct sim_worker *w, const struct sim_op *o)
{
	struct sim_phase *p = &w->phase[o->table];
	bool lost = o->op.code == PBOX_C_LOST && sim_was_restarted(s, w->job), pulls;

	if (!sim_is_held(sim_table_spec_of(s, w, o->table)) || p->state == SIM_PHASE_NONE ||
		(o->op.kind != PBOX_CLIENT_PUSH && o->op.kind != PBOX_CLIENT_PULL))
		return false;
	pulls = o->op.kind == PBOX_CLIENT_PULL;
	if (pulls && lost) {
		/* its end would have been that of the round: sim_submit_round() begins that again */
		push_again(s, w, o->table);
	} else if (pulls) {
		p->state = SIM_PHASE_NONE;
	} else if (o->op.code == 0 || lost) {
		p->lost |= lost;
		p->pushes--;
	}
	return lost;
}

static void
decide(struct sim *s, struct sim_worker *w, unsigned table)
{
	struct sim_phase *p = &w->phase[table];
	const struct pbox_norm *m = &p->norm.sum;

	if (p->norm.err.code == PBOX_C_LOST && sim_was_restarted(s, w->job)) {
		push_again(s, w, table);
		return;
	}
	if (p->norm.err.code != 0) {
		sim_fail(s, "job %u worker %u: the norm of round %u of table %u ends with %d: %s",
			w->job, w->id, p->round, table, p->norm.err.code, p->norm.err.text);
		return;
	}
	p->coefficient = m->fragments > 0 || m->coefficient == 0.0 ? 0.0 : m->coefficient;
	if (m->fragments > 0)
		p->coefficient = hold_coefficient(
			m->square, m->non_finite, sim_max_norm(&s->sc, w->job, table));
	p->skipped = false;
	/* neither: the box has that version of all fragments */
	if (p->coefficient != 0.0)
		p->state = SIM_PHASE_SET;
	else
		pull(s, w, table);
}

static void
say(struct sim *s, struct sim_worker *w, unsigned table)
{
	struct sim_phase *p = &w->phase[table];
	struct pbox_set m = {.table = table,
		.group = PBOX_ALL_GROUPS,
		.from_round = p->round,
		.count = 1,
		.param = {{PBOX_HYPER_COEFFICIENT, p->coefficient}}};

	/* in the round itself nothing is computed with it */
	if (p->skipped) {
		m.from_round++;
		m.param[0].id = PBOX_HYPER_STEPS;
		m.param[0].value = -(double)hold_steps(s, w->job, table, p->round);
	}
	p->state = SIM_PHASE_SAID;
	sim_request(s, w, PBOX_SET, pbox_set_encode(w->payload, sizeof(w->payload), &m));
}

bool
sim_hold_said(struct sim *s, struct sim_worker *w, unsigned code)
{
	for (unsigned t = 0; t < w->tables; t++) {
		struct sim_phase *p = &w->phase[t];

		if (p->state != SIM_PHASE_SAID)
			continue;
		/* a restarted box has the version already, of somebody who had set it */
		if (code != 0 && (code != PBOX_E_SET_LATE ||
					 (!sim_was_restarted(s, w->job) && !w->restarted)))
			return false;
		if (p->coefficient < 0.0 && !p->skipped) {
			p->skipped = true;
			p->state = SIM_PHASE_SET;
		} else {
			pull(s, w, t);
		}
		return true;
	}
	return false;
}

bool
sim_hold_between(const struct sim *s, const struct sim_worker *w)
{
	for (unsigned t = 0; t < w->tables; t++)
		if (w->phase[t].state != SIM_PHASE_NONE &&
			!sim_is_empty(sim_table_spec_of(s, w, t)))
			return true;
	return false;
}

bool
sim_hold_asks(const struct sim *s, const struct sim_worker *w)
{
	for (unsigned t = 0; t < w->tables; t++)
		if (w->phase[t].state == SIM_PHASE_NORM &&
			!sim_is_empty(sim_table_spec_of(s, w, t)))
			return true;
	return false;
}

bool
sim_hold_step(struct sim *s, struct sim_worker *w)
{
	struct pbox_worker_norm *q = s->code->worker_normed(w->w), *next;
	bool any = q != NULL;

	for (; q != NULL && !s->failed; q = next) {
		next = q->next;
		for (unsigned t = 0; t < w->tables; t++)
			if (q == &w->phase[t].norm)
				decide(s, w, t);
	}
	for (unsigned t = 0; t < w->tables && w->state == SIM_WORK && !s->failed; t++) {
		struct sim_phase *p = &w->phase[t];

		if (p->state == SIM_PHASE_PUSH && p->pushes == 0 && p->lost) {
			push_again(s, w, t);
		} else if (p->state == SIM_PHASE_PUSH && p->pushes == 0) {
			p->state = SIM_PHASE_NORM;
			p->norm = (struct pbox_worker_norm){.table = w->table[t],
				.round = s->sc.job[w->job].first_round + p->round,
				.deadline = UINT64_MAX};
			s->code->worker_norm_ask(w->w, &p->norm);
		} else if (p->state == SIM_PHASE_SET && !w->busy) {
			say(s, w, t);
		} else {
			continue;
		}
		any = true;
	}
	return any;
}
