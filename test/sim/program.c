/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "law.h"

/*
 * The program that uses a worker: it declares its tables, sets hyper-parameters, gives and fetches initial parameters,
 * pushes and pulls round after round, and leaves. What completes must have the bytes that the reference has.
 *
 * A process that was killed and starts again has a checkpoint: the rounds of each table that were complete.
 */

/* ---- operations ----------------------------------------------------------------------------------- */

static void
op_free(struct sim_op *o)
{
	*o->prev = o->next;
	if (o->next != NULL)
		o->next->prev = o->prev;
	free(o->in);
	free(o->node_in);
	free(o->node_weight);
	free(o->out);
	free(o);
}

void
sim_program_drop(struct sim_worker *w)
{
	while (w->ops != NULL)
		op_free(w->ops);
}

static const struct sim_table_spec *
table_spec(const struct sim *s, const struct sim_worker *w, unsigned table)
{
	return &s->sc.job[w->job].table[table];
}

static struct sim_push
push_of(const struct sim *s, const struct sim_worker *w, const struct sim_op *o)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];

	return (struct sim_push){.job = w->job,
		.life = s->job[w->job].life,
		.table = o->table,
		.slot = sim_slots_of(spec, w->id),
		.round = spec->first_round + o->round};
}

/* The bytes of a tensor in an operation: contribution, of a node of this width, or initial parameters. */
static void
fill(struct sim *s, const struct sim_worker *w, const struct sim_op *o, const struct sim_push *k,
	unsigned width, uint32_t tensor, uint8_t *to)
{
	struct sim_job *j = &s->job[w->job];
	unsigned size = pbox_format_size(table_spec(s, w, o->table)->fixed.push_format);

	for (unsigned i = 0; i < j->tensor[o->table][tensor].n; i++) {
		const struct sim_piece *p = &j->tensor[o->table][tensor].piece[i];

		if (o->op.kind == PBOX_CLIENT_INIT)
			sim_initial(&s->sc, w->job, j->life, o->table, p,
				(float *)(void *)to + p->offset);
		else
			sim_node(&s->sc, k, width, p, to + p->offset * size);
	}
}

/* The contributions of its nodes, which it sums itself. */
static void
bring_nodes(struct sim *s, struct sim_worker *w, struct sim_op *o, uint64_t elements)
{
	unsigned size = pbox_format_size(table_spec(s, w, o->table)->fixed.push_format);
	unsigned nodes = s->code->worker_table_nodes(w->w, o->op.table), n = o->op.n;
	struct sim_push k = push_of(s, w, o);
	uint64_t at = 0;

	o->in = calloc(nodes * elements + 1, size);
	o->node_in = calloc(nodes * n + 1, sizeof(*o->node_in));
	o->node_weight = calloc(nodes, sizeof(*o->node_weight));
	PBOX_ASSERT(o->in != NULL && o->node_in != NULL && o->node_weight != NULL);
	for (unsigned d = 0; d < nodes; d++) {
		struct pbox_node node = s->code->worker_table_node(w->w, o->op.table, d);
		unsigned width = 1u << node.level;

		k.slot = node.first;
		o->node_weight[d] = sim_node_weight(&s->sc, k, width);
		for (unsigned i = 0; i < n; i++) {
			uint32_t tensor = o->op.e[i].tensor;

			o->node_in[d * n + i] = o->in + at * size;
			fill(s, w, o, &k, width, tensor, o->in + at * size);
			at += table_spec(s, w, o->table)->tensor[tensor].elements;
		}
	}
	o->op.nodes = nodes;
	o->op.node_in = o->node_in;
	o->op.node_weight = o->node_weight;
}

static void
bring_plain(struct sim *s, struct sim_worker *w, struct sim_op *o, uint64_t elements)
{
	const struct sim_table_spec *t = table_spec(s, w, o->table);
	bool init = o->op.kind == PBOX_CLIENT_INIT;
	unsigned size = init ? 4 : pbox_format_size(t->fixed.push_format);
	struct sim_push k = push_of(s, w, o);
	uint64_t at = 0;

	o->in = calloc(elements + 1, size);
	PBOX_ASSERT(o->in != NULL);
	o->op.weight = init ? 0 : sim_weight(&s->sc, &k);
	if (!init && sim_is_clock(t))
		o->op.factor = sim_factor(&s->sc, &k);
	for (unsigned i = 0; i < o->op.n; i++) {
		o->op.e[i].in = o->in + at * size;
		fill(s, w, o, &k, 1, o->op.e[i].tensor, o->in + at * size);
		at += t->tensor[o->op.e[i].tensor].elements;
	}
}

/* One operation on some tensors of a table. */
static void
submit(struct sim *s, struct sim_worker *w, unsigned table, enum pbox_client_kind kind,
	uint32_t round, const uint32_t *tensor, unsigned n, bool counts)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	const struct sim_table_spec *t = table_spec(s, w, table);
	bool in = kind != PBOX_CLIENT_PULL,
	     out = kind == PBOX_CLIENT_PULL || kind == PBOX_CLIENT_PUSHPULL;
	struct sim_op *o = calloc(1, sizeof(*o) + SIM_LANES * n * sizeof(o->op.e[0]));
	unsigned out_size = pbox_format_size(t->fixed.pull_format);
	uint64_t elements = 0, at = 0;

	PBOX_ASSERT(o != NULL);
	for (unsigned i = 0; i < n; i++)
		elements += t->tensor[tensor[i]].elements;
	o->out = out ? malloc((elements + 1) * out_size) : NULL;
	o->table = table;
	o->round = round;
	o->counts = counts;
	o->next = w->ops;
	o->prev = &w->ops;
	if (w->ops != NULL)
		w->ops->prev = &o->next;
	w->ops = o;
	o->op.table = w->table[table];
	o->op.kind = (uint8_t)kind;
	o->op.n = n;
	for (unsigned i = 0; i < n; i++) {
		o->op.e[i] = (struct pbox_worker_entry){.op = &o->op,
			.tensor = tensor[i],
			.out = out ? o->out + at * out_size : NULL};
		at += t->tensor[tensor[i]].elements;
	}
	if (in && kind != PBOX_CLIENT_INIT && spec->slots != 0 && !spec->plain)
		bring_nodes(s, w, o, elements);
	else if (in)
		bring_plain(s, w, o, elements);
	s->code->worker_submit(w->w, &o->op);
}

static void
submit_table(struct sim *s, struct sim_worker *w, unsigned table, enum pbox_client_kind kind,
	uint32_t round)
{
	uint32_t tensor[SIM_TENSORS];
	unsigned n = table_spec(s, w, table)->fixed.tensors;

	for (unsigned i = 0; i < n; i++)
		tensor[i] = i;
	w->open[round & 1][table]++;
	submit(s, w, table, kind, round, tensor, n, true);
}

/*
 * The tensors of a table in some order and in some groups, the same at all workers: a window is released by others'
 * contributions to the same fragments. Where one may come back in the middle of a round, its first one is of two rounds
 * (R6.9): the order is that of all rounds.
 */
static void
submit_round(struct sim *s, struct sim_worker *w, unsigned table, uint32_t round)
{
	const struct sim_table_spec *t = table_spec(s, w, table);
	unsigned n = t->fixed.tensors, parity = round & 1;
	uint32_t tensor[SIM_TENSORS], next;
	uint64_t of = round;
	struct pbox_random r;
	bool restoring;

	next = s->code->worker_next_round(w->w, w->table[table], &restoring);
	if (next != s->sc.job[w->job].first_round + round && !restoring && !sim_is_empty(t) &&
		!(sim_is_clock(t) && w->restarted) && !s->sc.job[w->job].shrink)
		sim_fail(s,
			"job %u worker %u: it submits round %u of table %u, and says that the next one is %u",
			w->job, w->id, round, table, next);

	if (s->sc.job[w->job].shrink)
		of = 0;
	pbox_random_seed(&r, sim_mix(sim_mix(s->sc.seed, w->job), of << 8 | table));
	for (unsigned i = 0; i < n; i++)
		tensor[i] = i;
	for (unsigned i = n; i > 1; i--) {
		unsigned k = (unsigned)pbox_random_below(&r, i);
		uint32_t x = tensor[k];

		tensor[k] = tensor[i - 1];
		tensor[i - 1] = x;
	}
	for (unsigned at = 0; at < n;) {
		unsigned left = n - at;
		unsigned group = pbox_random_below(&r, 2) == 0
					 ? left
					 : 1 + (unsigned)pbox_random_below(&r, left);

		if (pbox_random_below(&r, 100) < s->sc.job[w->job].push_percent) {
			w->open[parity][table] += sim_is_clock(t);
			submit(s, w, table, PBOX_CLIENT_PUSH, round, tensor + at, group,
				sim_is_clock(t));
			submit(s, w, table, PBOX_CLIENT_PULL, round, tensor + at, group, true);
		} else {
			submit(s, w, table, PBOX_CLIENT_PUSHPULL, round, tensor + at, group, true);
		}
		w->open[parity][table]++;
		at += group;
	}
}

/* ---- what completes ------------------------------------------------------------------------------- */

static void
check(struct sim *s, const struct sim_worker *w, const struct sim_op *o)
{
	struct sim_job *j = &s->job[w->job];
	const struct sim_table_spec *t = table_spec(s, w, o->table);
	unsigned size = pbox_format_size(t->fixed.pull_format);

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
	return s->box->generation > 0 || s->sc.job[w->job].shrink;
}

static bool
finished_ops(struct sim *s, struct sim_worker *w)
{
	struct pbox_worker_op *op = s->code->worker_finished(w->w), *next;
	bool any = op != NULL;

	for (; op != NULL && !s->failed; op = next) {
		struct sim_op *o = (struct sim_op *)((char *)op - offsetof(struct sim_op, op));

		next = op->next;
		if (op->code == PBOX_C_LOST && may_be_lost(s, w)) {
			sim_worker_again(s, w);
			return false;
		}
		if (op->code != 0) {
			sim_fail(s, "job %u worker %u: an operation of round %u ends with %d: %s",
				w->job, w->id, o->round, op->code, op->text);
			return false;
		}
		check(s, w, o);
		s->box->progress_at = s->now;
		if (o->counts && --w->open[o->round & 1][o->table] == 0 && o->round > 0)
			w->done[o->table] = o->round;
		op_free(o);
	}
	return any;
}

/* ---- its steps -------------------------------------------------------------------------------------- */

static void
request(struct sim *s, struct sim_worker *w, enum pbox_type type, size_t length)
{
	w->request = (struct pbox_worker_request){.type = (uint8_t)type,
		.payload = w->payload,
		.length = (uint16_t)length,
		.answer = w->answer,
		.answer_cap = sizeof(w->answer)};
	w->busy = true;
	s->code->worker_request(w->w, &w->request);
}

static void
declare(struct sim *s, struct sim_worker *w)
{
	const struct sim_table_spec *t = table_spec(s, w, w->tables);
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
		.discipline = d->discipline};
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
	request(s, w, PBOX_STATUS, pbox_status_encode(w->payload, sizeof(w->payload), &m));
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
		if (d->err.code == PBOX_C_MISMATCH && s->box->generation > 0 && w->restarted &&
			w->done[w->tables] > 0) {
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
	else if (!sim_is_empty(table_spec(s, w, w->tables)) &&
		 !sim_is_clock(table_spec(s, w, w->tables)))
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

	if (!w->restarted || w->done[table] == 0 || sim_crashes(&s->sc, s->box->number))
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

	w->state = SIM_INITIAL;
	w->round = w->set_round = least_done(s, w);
	w->last = spec->rounds;
	for (unsigned t = 0; t < spec->tables; t++) {
		bool mode1 = spec->table[t].fixed.mode == PBOX_MODE_OPTIMISER;

		/* it learns which of its pushes have counted; that may be before there is anything */
		if (sim_is_clock(&spec->table[t]) && w->restarted) {
			if (w->id == 0)
				submit_table(s, w, t, PBOX_CLIENT_INIT, 0);
			submit_table(s, w, t, PBOX_CLIENT_PULL, 0);
		} else if (spec->shrink && w->restarted && all_have(s, w->job, t, 2))
			submit_table(s, w, t, PBOX_CLIENT_PULL, 0);
		else if (mode1 && w->done[t] == 0 && w->id != 0 && spec->pull0 && !w->restarted)
			submit_table(s, w, t, PBOX_CLIENT_PULL, 0);
		else if (!spec->shrink && may_fetch(s, w, t))
			submit_table(s, w, t, PBOX_CLIENT_PULL, w->done[t]);
	}
}

static bool
none_open(const struct sim_worker *w, unsigned parity)
{
	for (unsigned t = 0; t < SIM_TABLES; t++)
		if (w->open[parity][t] > 0)
			return false;
	return true;
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
			request(s, w, PBOX_SET,
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
			submit_table(s, w, t, PBOX_CLIENT_INIT, 0);
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

static bool
started(struct sim *s, struct sim_worker *w)
{
	bool back = s->sc.job[w->job].shrink && w->restarted;

	if (!none_open(w, 0) || !none_open(w, 1) || !sets(s, w, w->round + 1))
		return false;
	if (back)
		count_rounds(s, w);
	w->state = SIM_WORK;
	w->not_before = s->now;
	if (w->id == 0 && !back)
		initial(s, w);
	return true;
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
		return false;
	w->round = round;
	w->not_before = s->now + sim_below(s, spec->compute_ns);
	for (unsigned t = 0; t < spec->tables; t++)
		if (w->done[t] < round)
			submit_round(s, w, t, round);
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
	return (spec->restarts == 0 && !sim_crashes(&s->sc, spec->box)) ||
	       j->finished == spec->workers;
}

static bool
work(struct sim *s, struct sim_worker *w)
{
	struct sim_job *j = &s->job[w->job];

	if (next_round(s, w))
		return true;
	if (w->round < w->last || !none_open(w, 0) || !none_open(w, 1) || w->busy)
		return false;
	w->state = SIM_FINISHED;
	if (!w->finished) {
		w->finished = true;
		j->finished++;
		s->box->progress_at = s->now;
	}
	return true;
}

static bool
leave(struct sim *s, struct sim_worker *w)
{
	if (!may_leave(s, w)) {
		sim_worker_wake(s, w, s->now + 100 * MS);
		return false;
	}
	w->state = SIM_LEAVE;
	s->code->worker_shut(w->w);
	request(s, w, PBOX_LEAVE, 0);
	return true;
}

static bool
answered(struct sim *s, struct sim_worker *w)
{
	const struct pbox_worker_request *r = &w->request;
	struct pbox_error_msg m = {.code = r->answer_aux};

	if (s->code->worker_answered(w->w) == NULL)
		return false;
	w->busy = false;
	if (r->answer_type == PBOX_ERROR && r->answer_len > 0)
		pbox_error_decode(w->answer, r->answer_len, &m);
	if (w->state == SIM_LEAVE) {
		sim_worker_finished(s, w);
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
	else if (e->code == PBOX_C_LOST && s->box->generation > 0 && !s->sc.job[w->job].shrink)
		sim_job_lost(s, w->job);
	else if (e->code == PBOX_C_LOST && may_be_lost(s, w))
		sim_worker_again(s, w);
	else if (w->state == SIM_OPENING &&
		 (e->code == PBOX_C_MTU || e->code == PBOX_C_UNREACHABLE) &&
		 (n->holes > 0 || sim_crashes(&s->sc, s->box->number) ||
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
