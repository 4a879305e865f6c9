/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/*
 * The round of a table's next push. Each push is counted when it is submitted. A push that the box did not take, a round
 * that only a restarted box had, and rounds that ended without this worker move that number: what the fragments say is true
 * then, with the pushes that wait for them.
 */

/** The round of the last push of the piece, also if it waits for earlier ones. */
static uint32_t
piece_round(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct piece *p)
{
	const struct frag *f = &t->frag[p->frag];
	const struct queue *x = table_queue_of(t, p);
	const struct pbox_worker_entry *e = p->entry;
	bool sent = flight_pushes(w, t, f);
	uint32_t round = f->round;

	if (w->failed || w->shut) /* no operation is left, and what was on its way has not ended */
		return round - sent;
	if (e == NULL)
		e = x->starts != NULL && p->offset < x->started_to ? x->starts->next : x->starts;
	else if (sent) /* the round of the fragment is its own */
		e = e->next;
	for (; e != NULL; e = e->next)
		round += op_pushes(e->op) && !op_fails(e->op) && !table_is_again(t, f, e->op);
	return round;
}

void
next_recount(const struct pbox_worker *w, struct pbox_worker_table *t)
{
	bool any = false;

	if (!t->recount)
		return;
	for (unsigned i = 0; i < t->n; i++) {
		struct tensor *x = &t->tensor[i];

		for (uint32_t k = 0; k < x->by_count; k++) {
			uint32_t round =
				piece_round(w, t, &t->piece[t->by_tensor[x->by_first + k]]);

			if (k == 0 || rounds_apart(round, x->pushed_to) > 0)
				x->pushed_to = round;
		}
		if (x->by_count == 0 || (any && rounds_apart(x->pushed_to, t->pushed_to) <= 0))
			continue;
		t->pushed_to = x->pushed_to;
		any = true;
	}
	t->recount = false;
}

void
next_begin(struct pbox_worker_table *t)
{
	t->pushed_to = t->base_version;
	for (unsigned i = 0; i < t->n; i++)
		t->tensor[i].pushed_to = t->base_version;
	t->recount = true;
}

void
next_push(struct pbox_worker_table *t, unsigned tensor)
{
	struct tensor *x = &t->tensor[tensor];

	/* an empty tensor has no rounds, unless there is nothing else */
	if (rounds_apart(++x->pushed_to, t->pushed_to) > 0 && (x->by_count > 0 || t->frags == 0))
		t->pushed_to = x->pushed_to;
}

uint32_t
pbox_worker_next_round(const struct pbox_worker *w, struct pbox_worker_table *t, bool *restoring)
{
	next_recount(w, t);
	/* a table of 0 elements has nothing that a box could lose: nobody waits until all have declared it again, and some of them
	 * may have left */
	*restoring = t->frags > 0 &&
		     (t->restoring != 0 || __atomic_load_n(&t->owing, __ATOMIC_RELAXED) > 0) &&
		     !w->failed && !w->shut;
	return t->pushed_to + 1;
}

bool
pbox_worker_owes(const struct pbox_worker *w)
{
	bool owes = false;

	for (unsigned i = 0; i < w->tables && !w->failed && !w->shut; i++)
		owes |= w->table[i]->redo != NULL &&
			(w->table[i]->restoring != 0 ||
				__atomic_load_n(&w->table[i]->owing, __ATOMIC_RELAXED) > 0);
	return owes;
}
