/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "client_impl.h"

/* Operations are checked, and go to the progress thread. */

static const char *
kind_name(unsigned kind)
{
	static const char *const name[] = {"push-pull", "push", "pull", "init", "fetch", "give"};

	return kind <= PBOX_CLIENT_GIVE ? name[kind] : "?";
}

static int
check_io(const struct pbox_client *c, const struct table *t, const struct pbox_client_op *o,
	struct pbox_client_error *err)
{
	enum pbox_client_kind kind = o->kind;
	const struct pbox_client_io *io = o->io;
	unsigned n = o->n;
	bool in = kind != PBOX_CLIENT_PULL && kind != PBOX_CLIENT_FETCH && !o->by_nodes;
	bool out = kind == PBOX_CLIENT_PUSHPULL || kind == PBOX_CLIENT_PULL ||
		   kind == PBOX_CLIENT_FETCH;

	if ((unsigned)kind > PBOX_CLIENT_GIVE)
		return pbox_client_fail(
			err, PBOX_C_INVALID, "operation kind %u does not exist", kind);
	if (n > 0 && io == NULL)
		return pbox_client_fail(
			err, PBOX_C_INVALID, "%u tensors given without their list", n);
	/* only who waits for the result hears that it has got slots in the round (R15.8) */
	if (kind == PBOX_CLIENT_PUSH && c->conf.policy == PBOX_POLICY_REASSIGN)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"push alone, in a job with policy reassign, does not learn that this worker has got slots of a dead one: use push-pull");
	if (kind >= PBOX_CLIENT_FETCH &&
		(n != t->info.tensors || t->info.mode != PBOX_MODE_OPTIMISER))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"%s is of all %u tensors of a table with parameters on the box (mode 1)",
			kind_name(kind), t->info.tensors);
	if (kind >= PBOX_CLIENT_FETCH && t->info.discipline != PBOX_DISCIPLINE_ROUNDS)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"%s of a table in clocks: its versions do not wait for it; pull the parameters, and have worker 0 init a table of the next job",
			kind_name(kind));
	if (kind == PBOX_CLIENT_GIVE && pbox_worker_number(c->w) != 0)
		return pbox_client_fail(err, PBOX_C_INVALID, "give is for worker 0 alone");
	if (kind == PBOX_CLIENT_INIT &&
		(pbox_worker_number(c->w) != 0 || t->info.mode != PBOX_MODE_OPTIMISER))
		return pbox_client_fail(err, PBOX_C_INVALID,
			pbox_worker_number(c->w) != 0
				? "init is for worker 0 alone; the others pull"
				: "init is for tables with parameters on the box (mode 1)");
	for (unsigned i = 0; i < n; i++) {
		const char *name;

		if (io[i].tensor >= t->info.tensors)
			return pbox_client_fail(err, PBOX_C_INVALID,
				"tensor %u does not exist: table %u has %u", io[i].tensor,
				t->info.number, t->info.tensors);
		if (pbox_worker_tensor(t->t, io[i].tensor, &name) == 0)
			continue;
		if ((in && io[i].in == NULL) || (out && io[i].out == NULL))
			return pbox_client_fail(err, PBOX_C_INVALID,
				"%s of tensor '%s' without %s buffer", kind_name(kind), name,
				in && io[i].in == NULL ? "an input" : "an output");
	}
	return 0;
}

static void
nodes_text(const struct pbox_client *c, const struct table *t, char *text, size_t cap)
{
	unsigned n = pbox_worker_table_nodes(c->w, t->t), slots = pbox_worker_slots(c->w);

	for (unsigned i = 0; i < n; i++) {
		struct pbox_node node = pbox_worker_table_node(c->w, t->t, i);
		unsigned last = pbox_node_end(node, slots) - 1;

		if (i > 0)
			pbox_text_add(text, cap, "%s", i + 1 < n ? ", " : " and ");
		if (last == node.first)
			pbox_text_add(text, cap, "%u", last);
		else
			pbox_text_add(text, cap, "%u to %u", node.first, last);
	}
}

static int
check_nodes(const struct pbox_client *c, const struct table *t, const struct pbox_client_op *o,
	struct pbox_client_error *err)
{
	unsigned wanted = pbox_worker_table_nodes(c->w, t->t);
	char list[256] = "";
	const char *name;

	if (!o->by_nodes && o->again)
		return pbox_client_fail(
			err, PBOX_C_INVALID, "a push once more (again) is by nodes");
	if (!o->by_nodes)
		return 0;
	if (o->kind > PBOX_CLIENT_PUSH)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"%s has no nodes: push and push-pull do", kind_name(o->kind));
	if (o->again && (o->kind == PBOX_CLIENT_PUSH) != t->info.hold)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"once more goes what the round is pushed with: %s in table %u",
			kind_name(t->info.hold ? PBOX_CLIENT_PUSH : PBOX_CLIENT_PUSHPULL),
			t->info.number);
	if (o->nodes != wanted) {
		nodes_text(c, t, list, sizeof(list));
		return pbox_client_fail(err, PBOX_C_INVALID,
			"%u node%s given; worker %u of %u, in a job of %u slots, brings %u%s: slots %s",
			o->nodes, o->nodes == 1 ? " is" : "s are", pbox_worker_number(c->w),
			pbox_worker_workers(c->w), pbox_worker_slots(c->w), wanted,
			t->info.op == PBOX_OP_WEIGHTED_MEAN ? ", each slot by itself" : "", list);
	}
	if (o->node_weight == NULL || (o->n > 0 && o->node_in == NULL))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"%u nodes are given without the list of their %s", o->nodes,
			o->node_weight == NULL ? "weights" : "inputs");
	for (size_t i = 0; i < (size_t)o->nodes * o->n; i++)
		if (o->node_in[i] == NULL &&
			pbox_worker_tensor(t->t, o->io[i % o->n].tensor, &name) > 0)
			return pbox_client_fail(err, PBOX_C_INVALID,
				"node %zu of tensor '%s' is without an input buffer", i / o->n,
				name);
	return 0;
}

/** Is there something to pull? Lock held. */
static int
check_order(struct table *t, struct pbox_worker_op *op, struct pbox_client_error *err)
{
	const char *name;

	for (unsigned i = 0; op->kind == PBOX_CLIENT_PULL && i < op->n; i++) {
		if (t->pushed[op->e[i].tensor] ||
			pbox_worker_tensor(t->t, op->e[i].tensor, &name) == 0)
			continue;
		if (t->info.mode == PBOX_MODE_ALLREDUCE)
			return pbox_client_fail(err, PBOX_C_INVALID,
				"pull of tensor '%s' before its first push: there is no sum yet",
				name);
		if (t->info.resumed)
			return pbox_client_fail(err, PBOX_C_INVALID,
				"pull of tensor '%s' before its first push: a worker that goes on with round %u has the version before it from its checkpoint",
				name, t->info.base + 1);
	}
	for (unsigned i = 0; i < op->n; i++)
		t->pushed[op->e[i].tensor] |= op->kind <= PBOX_CLIENT_PUSH;
	return 0;
}

/** No worker is so many pushes behind another. */
#define BOUND_MAX (1u << 30)

/** What is for tables in clocks. */
static int
check_clock(const struct table *t, const struct pbox_client_op *o, struct pbox_client_error *err)
{
	bool push = o->factor != 0 || o->pulls_ago != 0;
	bool clock = t->info.discipline == PBOX_DISCIPLINE_CLOCK;
	float factor;

	if (push && (!clock || o->kind > PBOX_CLIENT_PUSH))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"a factor, and what a push was computed on, are for pushes to tables in clocks; this is a %s to table %u, which is in %s",
			kind_name(o->kind), t->info.number,
			pbox_discipline_name(t->info.discipline));
	if (o->bounded && (!clock || o->kind != PBOX_CLIENT_PULL))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"a bound is for pulls of tables in clocks; this is a %s of table %u, which is in %s",
			kind_name(o->kind), t->info.number,
			pbox_discipline_name(t->info.discipline));
	factor = pbox_worker_factor(pbox_worker_factor_code(o->factor)); /* as the box has it */
	if (!(factor >= -FLT_MAX && factor <= FLT_MAX) || (factor == 0 && o->factor != 0) ||
		o->pulls_ago > 1)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"factor %g, pulls_ago %u: a factor is a finite number that bf16 has (1e-38 to 3e38), and pulls_ago is 0 or 1",
			(double)o->factor, o->pulls_ago);
	if (o->bounded > 1 || (o->bounded && o->bound >= BOUND_MAX))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"bounded %u, bound %u: bounded is 0 or 1, and a bound is below 2^30",
			o->bounded, o->bound);
	return 0;
}

/** The lists of the nodes come after the entries, which each lane has. */
static void
op_nodes(struct op *op, unsigned lanes, const struct pbox_client_op *o)
{
	const uint8_t **in = (const uint8_t **)(void *)&op->w.e[(size_t)lanes * o->n];
	uint32_t *weight = (uint32_t *)(void *)(in + (size_t)o->nodes * o->n);

	for (size_t i = 0; i < (size_t)o->nodes * o->n; i++)
		in[i] = o->node_in[i];
	memcpy(weight, o->node_weight, o->nodes * sizeof(*weight));
	op->w.nodes = o->nodes;
	op->w.node_in = in;
	op->w.node_weight = weight;
}

static struct op *
op_new(const struct pbox_client *c, struct table *t, const struct pbox_client_op *o)
{
	enum pbox_client_kind kind = o->kind;
	const struct pbox_client_io *io = o->io;
	unsigned n = o->n;
	unsigned nodes = o->by_nodes ? o->nodes : 0;
	size_t each = c->lanes * sizeof(struct pbox_worker_entry) + nodes * sizeof(void *), bytes;
	struct op *op;

	if (__builtin_mul_overflow((size_t)n, each, &bytes) ||
		__builtin_add_overflow(bytes, sizeof(*op) + nodes * sizeof(uint32_t), &bytes))
		return NULL;
	op = calloc(1, bytes);
	if (op == NULL)
		return NULL;
	op->w.table = t->t;
	op->w.kind = (uint8_t)kind;
	op->w.prio = o->priority;
	op->w.weight = !o->by_nodes ? o->weight : o->nodes > 0 ? o->node_weight[0] : 0;
	op->w.n = n;
	op->w.again = o->again != 0;
	op->w.factor = o->factor != 0 ? pbox_worker_factor_code(o->factor) : 0;
	op->w.pulls_ago = o->pulls_ago != 0;
	op->w.bounded = o->bounded != 0;
	op->w.bound = o->bound;
	if (o->by_nodes)
		op_nodes(op, c->lanes, o);
	for (unsigned i = 0; i < n; i++) {
		struct pbox_worker_entry *e = &op->w.e[i];

		e->op = &op->w;
		e->tensor = io[i].tensor;
		if (kind != PBOX_CLIENT_PULL && kind != PBOX_CLIENT_FETCH)
			e->in = io[i].in;
		if (kind == PBOX_CLIENT_PUSHPULL || kind == PBOX_CLIENT_PULL ||
			kind == PBOX_CLIENT_FETCH)
			e->out = io[i].out;
	}
	return op;
}

int
pbox_client_submit(struct pbox_client *c, const struct pbox_client_op *o,
	pbox_client_handle *handle, struct pbox_client_error *err)
{
	struct table *t;
	struct op *op;
	int rc;

	if (o == NULL || o->size < sizeof(*o))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"no operation, or its size is not sizeof(struct pbox_client_op)");
	t = client_table(c, o->table);
	if (t == NULL)
		return pbox_client_fail(
			err, PBOX_C_INVALID, "table %u has not been declared", o->table);
	rc = check_io(c, t, o, err);
	if (rc == 0)
		rc = check_nodes(c, t, o, err);
	if (rc == 0)
		rc = check_clock(t, o, err);
	if (rc != 0)
		return rc;
	op = op_new(c, t, o);
	if (op == NULL)
		return pbox_client_fail(
			err, PBOX_C_MEMORY, "no memory for an operation on %u tensors", o->n);
	pthread_mutex_lock(&c->lock);
	if (c->closing || c->fatal.code != 0)
		rc = c->closing ? pbox_client_fail(err, PBOX_C_CLOSED, "the client was closed")
				: pbox_client_fail(err, c->fatal.code, "%s", c->fatal.text);
	if (rc == 0)
		rc = check_order(t, &op->w, err);
	if (rc == 0 && handle_give(c, op) != 0)
		rc = pbox_client_fail(err, PBOX_C_MEMORY, "too many operations in flight");
	if (rc == 0) {
		*handle = op->handle;
		*c->submitted_tail = &op->w;
		c->submitted_tail = &op->w.next;
		c->users++; /* the client must not go away before the kick */
	}
	pthread_mutex_unlock(&c->lock);
	if (rc != 0) {
		free(op);
		return rc;
	}
	cmd_kick(c);
	client_leave(c);
	return 0;
}

float
pbox_client_factor(float factor)
{
	return pbox_worker_factor(pbox_worker_factor_code(factor));
}
