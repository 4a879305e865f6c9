/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "law_blocks.h"
#include "operations.h"

/* What programs ask of their workers: operations, with the bytes that they bring, and requests. */

/* ---- operations ----------------------------------------------------------------------------------- */

void
sim_op_free(struct sim_op *o)
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
		sim_op_free(w->ops);
}

const struct sim_table_spec *
sim_table_spec_of(const struct sim *s, const struct sim_worker *w, unsigned table)
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
	unsigned size = pbox_format_wide(sim_table_spec_of(s, w, o->table)->fixed.push_format);

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
	unsigned size = pbox_format_wide(sim_table_spec_of(s, w, o->table)->fixed.push_format);
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
			at += sim_table_spec_of(s, w, o->table)->tensor[tensor].elements;
		}
	}
	o->op.nodes = nodes;
	o->op.node_in = o->node_in;
	o->op.node_weight = o->node_weight;
}

static void
bring_plain(struct sim *s, struct sim_worker *w, struct sim_op *o, uint64_t elements)
{
	const struct sim_table_spec *t = sim_table_spec_of(s, w, o->table);
	bool init = o->op.kind == PBOX_CLIENT_INIT;
	unsigned size = init ? 4 : pbox_format_wide(t->fixed.push_format);
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
	const struct sim_table_spec *t = sim_table_spec_of(s, w, table);
	bool in = kind != PBOX_CLIENT_PULL,
	     out = kind == PBOX_CLIENT_PULL || kind == PBOX_CLIENT_PUSHPULL;
	struct sim_op *o = calloc(1, sizeof(*o) + SIM_LANES * n * sizeof(o->op.e[0]));
	unsigned out_size = pbox_format_wide(t->fixed.pull_format);
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
	o->op.bounded = kind == PBOX_CLIENT_PULL && sim_is_clock(t) && spec->lag > 0;
	o->op.bound = spec->lag - 1;
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
	o->op.again = w->plan.again || w->phase[table].again;
	s->code->worker_submit(w->w, &o->op);
}

void
sim_submit_table(struct sim *s, struct sim_worker *w, unsigned table, enum pbox_client_kind kind,
	uint32_t round)
{
	uint32_t tensor[SIM_TENSORS];
	unsigned n = sim_table_spec_of(s, w, table)->fixed.tensors;

	for (unsigned i = 0; i < n; i++)
		tensor[i] = i;
	w->open[round & 1][table]++;
	submit(s, w, table, kind, round, tensor, n, true);
}

/* Of a table whose results are differences, one that nobody pulls: the next result is of two rounds at once. */
static bool
is_pushed_alone(const struct sim *s, unsigned job, const struct sim_table_spec *t, uint32_t round)
{
	const struct sim_job_spec *j = &s->sc.job[job];

	return t->fixed.mode == PBOX_MODE_OPTIMISER && pbox_format_is_block(t->fixed.pull_format) &&
	       j->push_percent > 0 && round % 3 == 1 && round < j->rounds;
}

/*
 * The tensors of a table in some order and in some groups, the same at all workers: a window is released by others'
 * contributions to the same fragments. Where one may come back in the middle of a round, its first one is of two rounds
 * (R6.9): the order is that of all rounds.
 */
void
sim_submit_round(struct sim *s, struct sim_worker *w, unsigned table, uint32_t round, bool again)
{
	const struct sim_table_spec *t = sim_table_spec_of(s, w, table);
	unsigned n = t->fixed.tensors, parity = round & 1;
	uint32_t tensor[SIM_TENSORS], next;
	bool held = sim_is_held(t);
	unsigned pushes = 0;
	uint64_t of = round;
	struct pbox_random r;
	bool restoring;

	next = s->code->worker_next_round(w->w, w->table[table], &restoring);
	/* a push that is brought again is the next one where only a box that has crashed had it */
	next += again && sim_was_restarted(s, w->job) &&
		next == s->sc.job[w->job].first_round + round;
	if (next != s->sc.job[w->job].first_round + round + again && !restoring &&
		!sim_is_empty(t) && !(sim_is_clock(t) && w->restarted) && !s->sc.job[w->job].shrink)
		sim_fail(s,
			"job %u worker %u: it submits round %u of table %u, and says that the next one is %u",
			w->job, w->id, round, table, next);

	if (t->fixed.flags & PBOX_DECLARE_MIXED)
		s->code->worker_plain(w->table[table], s->sc.job[w->job].first_round + round,
			blocks_plain(&s->sc, w->job, table, w->id,
				s->sc.job[w->job].first_round + round));
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

		if (held) {
			submit(s, w, table, PBOX_CLIENT_PUSH, round, tensor + at, group, false);
			pushes++;
		} else if ((sim_is_clock(t) && round % (s->sc.job[w->job].pulls_each + 1) != 0) ||
			   is_pushed_alone(s, w->job, t, round)) {
			submit(s, w, table, PBOX_CLIENT_PUSH, round, tensor + at, group, true);
		} else if (pbox_random_below(&r, 100) < s->sc.job[w->job].push_percent) {
			w->open[parity][table] += sim_is_clock(t);
			submit(s, w, table, PBOX_CLIENT_PUSH, round, tensor + at, group,
				sim_is_clock(t));
			submit(s, w, table, PBOX_CLIENT_PULL, round, tensor + at, group, true);
		} else {
			submit(s, w, table, PBOX_CLIENT_PUSHPULL, round, tensor + at, group, true);
		}
		w->open[parity][table] += !held;
		at += group;
	}
	if (held) {
		w->open[parity][table] += !again;
		sim_hold_begin(w, table, round, pushes);
	}
}

/* ---- requests ---- */

void
sim_request(struct sim *s, struct sim_worker *w, enum pbox_type type, size_t length)
{
	w->request = (struct pbox_worker_request){.type = (uint8_t)type,
		.payload = w->payload,
		.length = (uint16_t)length,
		.answer = w->answer,
		.answer_cap = sizeof(w->answer)};
	w->busy = true;
	s->code->worker_request(w->w, &w->request);
}
