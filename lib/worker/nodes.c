/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>

#include "encode.h"
#include "worker_impl.h"

/* Which slots of the job are this worker's, and the nodes of the tree that it brings for them (R5.2b). */

void
nodes_settle(struct pbox_worker *w)
{
	/* mostly the session is another, and the numbers are the same: a worker that takes any gets another one only before it
	 * has opened */
	if (w->settled && w->settled_as == w->worker)
		return;
	w->settled = true;
	w->settled_as = w->worker;
	w->planned = w->conf.policy == PBOX_POLICY_REASSIGN;
	w->slots = w->conf.slots != 0 ? (uint16_t)w->conf.slots : w->workers;
	w->slot = (uint16_t)pbox_slots_of(w->worker, w->workers, w->slots);
	w->slot_end = (uint16_t)pbox_slots_of(w->worker + 1u, w->workers, w->slots);
	w->nodes = (uint16_t)pbox_range_nodes(w->slot, w->slot_end, w->slots, w->node);
	assert(w->nodes > 0);
}

void
nodes_begin_round(struct pbox_worker *w, uint32_t round)
{
	if (w->kept.round == round)
		return;
	w->kept.round = round;
	memset(w->kept.slot, 0, sizeof(w->kept.slot));
	for (unsigned k = 0; k < w->nodes; k++)
		for (unsigned i = w->node[k].first; i < pbox_node_end(w->node[k], w->slots); i++)
			w->kept.slot[i / 64] |= UINT64_C(1) << i % 64;
}

uint32_t
nodes_window(const struct pbox_worker *w, uint32_t window)
{
	unsigned most = w->nodes;

	for (uint32_t i = 0; i < w->tables; i++)
		if (nodes_of(w, w->table[i]) > most)
			most = nodes_of(w, w->table[i]);
	if (most > 0)
		window = window * w->nodes / most;
	return window > 0 ? window : 1;
}

unsigned
nodes_find(const struct pbox_worker *w, const struct pbox_worker_table *t, uint32_t slot,
	unsigned otherwise)
{
	for (unsigned i = 0; i < nodes_of(w, t); i++) {
		struct pbox_node n = nodes_at(w, t, i);

		if (slot >= n.first && slot < pbox_node_end(n, w->slots))
			return i;
	}
	return otherwise;
}

/* ---- the host's -------------------------------------------------------------------------------- */

int
pbox_worker_gain(struct pbox_worker *w, const struct pbox_slot_range *range, unsigned n)
{
	struct pbox_node node[PBOX_RANGE_NODES], part[PBOX_RANGE_NODES];
	unsigned nodes = 0;

	for (const struct pbox_worker_op *op = w->ops; op != NULL; op = op->all_next)
		if (op->kind == PBOX_CLIENT_PUSHPULL || op->kind == PBOX_CLIENT_PUSH)
			return -EBUSY;
	for (unsigned i = 0; i < n; i++) {
		unsigned k;

		if (range[i].first >= range[i].end || range[i].end > w->slots)
			return -EINVAL;
		k = pbox_range_nodes(range[i].first, range[i].end, w->slots, part);
		if (nodes + k > PBOX_RANGE_NODES)
			return -EINVAL;
		memcpy(&node[nodes], part, k * sizeof(*part));
		nodes += k;
	}
	for (uint32_t i = 0; i < w->tables; i++)
		if (encode_room(w->table[i], nodes) != 0)
			return -ENOMEM;
	w->nodes = (uint16_t)nodes;
	memcpy(w->node, node, nodes * sizeof(*node));
	for (uint32_t i = 0; i < w->tables; i++)
		w->table[i]->gained = false;
	w->task.moved = true;
	return 0;
}

int
pbox_worker_own(
	struct pbox_worker *w, uint32_t edition, const struct pbox_slot_range *range, unsigned n)
{
	int rc = pbox_worker_gain(w, range, n);

	if (rc != 0)
		return rc;
	w->edition = w->edition_seen = (uint8_t)edition;
	w->task.moved = false;
	return 0;
}

int
pbox_worker_begin_at(struct pbox_worker *w, struct pbox_worker_table *t, uint32_t round)
{
	for (const struct pbox_worker_op *op = w->ops; op != NULL; op = op->all_next)
		if (op->table == t)
			return -EBUSY;
	for (uint32_t i = 0; i < t->frags; i++)
		if (t->frag[i].pushed)
			return -EINVAL;
	for (uint32_t i = 0; i < t->frags; i++)
		t->frag[i].round = round - 1;
	t->base_version = round - 1;
	next_begin(t);
	return 0;
}

bool
pbox_worker_owners_changed(const struct pbox_worker *w)
{
	return w->planned && (w->edition != w->edition_seen || w->task.moved);
}

unsigned
pbox_worker_slots(const struct pbox_worker *w)
{
	return w->slots;
}

unsigned
pbox_worker_nodes(const struct pbox_worker *w, uint32_t round, struct pbox_node *nodes)
{
	(void)round; /* no plan gives the slots to others */
	memcpy(nodes, w->node, w->nodes * sizeof(*nodes));
	return w->nodes;
}

unsigned
pbox_worker_table_nodes(const struct pbox_worker *w, const struct pbox_worker_table *t)
{
	return nodes_of(w, t);
}

struct pbox_node
pbox_worker_table_node(const struct pbox_worker *w, const struct pbox_worker_table *t, unsigned i)
{
	assert(i < nodes_of(w, t));
	return nodes_at(w, t, i);
}
