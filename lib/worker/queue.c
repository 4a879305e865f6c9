/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "worker_impl.h"

/*
 * From operations to fragments that are ready to go.
 *
 * A tensor works on one operation at a time: the first of its queue. All its fragments are then
 * at the same round, and a fragment shared by several tensors is ready when each of them has an
 * operation of the kind that it needs. Pulls need nobody else.
 */

void
queue_fail(struct pbox_worker_op *op, int code, const char *text)
{
	op->failing = true;
	if (op->code == 0) {
		op->code = code;
		snprintf(op->text, sizeof(op->text), "%s", text);
	}
}

static void
behind_append(struct pbox_worker *w, struct pbox_worker_op *op)
{
	op->behind_prev = w->behind_last;
	op->behind_next = NULL;
	if (w->behind_last != NULL)
		w->behind_last->behind_next = op;
	else
		w->behind = op;
	w->behind_last = op;
}

static void
behind_remove(struct pbox_worker *w, struct pbox_worker_op *op)
{
	op->behind = 0;
	if (op->behind_prev != NULL)
		op->behind_prev->behind_next = op->behind_next;
	else
		w->behind = op->behind_next;
	if (op->behind_next != NULL)
		op->behind_next->behind_prev = op->behind_prev;
	else
		w->behind_last = op->behind_prev;
}

void
queue_finish(struct pbox_worker *w, struct pbox_worker_op *op)
{
	if (op->behind > 0)
		behind_remove(w, op);
	if (op->all_prev != NULL)
		op->all_prev->all_next = op->all_next;
	else if (w->ops == op)
		w->ops = op->all_next;
	if (op->all_next != NULL)
		op->all_next->all_prev = op->all_prev;
	else if (w->ops_last == op)
		w->ops_last = op->all_prev;
	op->next = NULL;
	*w->finished_tail = op;
	w->finished_tail = &op->next;
	if (op->code == 0)
		w->count.operations_done++;
}

static void
finish_entry(struct pbox_worker *w, struct tensor *x)
{
	struct pbox_worker_entry *e = x->head;

	x->head = e->next;
	if (x->head == NULL)
		x->tail = &x->head;
	else if (x->head->op->behind == 1)
		behind_remove(w, x->head->op);
	else
		x->head->op->behind--;
	if (--e->op->open == 0)
		queue_finish(w, e->op);
}

/** Begin the first operation of the queue; those without anything to do end here. */
static void
tensor_start(struct pbox_worker *w, struct tensor *x)
{
	struct tensor **at = &w->activating;

	while (x->head != NULL && (x->by_count == 0 || x->head->op->failing))
		finish_entry(w, x);
	if (x->head == NULL)
		return;
	x->left = x->by_count;
	x->active_at = 0;
	while (*at != NULL && (*at)->head->op->prio <= x->head->op->prio)
		at = &(*at)->active_next;
	x->active_next = *at;
	*at = x;
}

void
pbox_worker_submit(struct pbox_worker *w, struct pbox_worker_op *op)
{
	struct pbox_worker_table *t = op->table;

	op->next = NULL;
	op->order = w->next_order++;
	op->all_prev = w->ops_last;
	op->all_next = NULL;
	if (w->ops_last != NULL)
		w->ops_last->all_next = op;
	else
		w->ops = op;
	w->ops_last = op;
	if (w->failed || w->shut) {
		queue_fail(op, w->failed ? w->fatal.code : PBOX_C_CLOSED,
			w->failed ? w->fatal.text : "the client was closed");
		queue_finish(w, op);
		return;
	}
	op->open = op->n + 1; /* one of our own: it must not end before all are queued */
	for (unsigned i = 0; i < op->n; i++) {
		struct tensor *x = &t->tensor[op->e[i].tensor];
		bool first = x->head == NULL;

		*x->tail = &op->e[i];
		x->tail = &op->e[i].next;
		if (first)
			tensor_start(w, x);
		else
			op->behind++;
	}
	if (op->behind > 0)
		behind_append(w, op);
	if (--op->open == 0)
		queue_finish(w, op);
}

void
queue_piece_finish(struct pbox_worker *w, struct pbox_worker_table *t, struct piece *p)
{
	struct tensor *x = &t->tensor[p->tensor];
	struct frag *f = &t->frag[p->frag];

	switch (x->head->op->kind) {
	case PBOX_CLIENT_PULL:
		f->pulls--;
		break;
	case PBOX_CLIENT_INIT:
		f->inits--;
		break;
	case PBOX_CLIENT_FETCH:
	case PBOX_CLIENT_GIVE:
		f->states--;
		break;
	default:
		f->pushes--;
	}
	p->want = false;
	if (--x->left == 0) {
		finish_entry(w, x);
		tensor_start(w, x);
	}
}

/* All workers send what is of one priority in this order. */
static int
by_order(const struct frag *x, const struct frag *y)
{
	int32_t d = (int32_t)(x->order - y->order);

	if (d != 0)
		return d < 0 ? -1 : 1;
	if (x->table != y->table)
		return x->table < y->table ? -1 : 1;
	return x->piece < y->piece ? -1 : x->piece > y->piece;
}

/* Mostly at the end: operations become ready in their order, but where several rounds of a tensor wait. */
static void
push_ready(struct ep *ep, struct frag *f)
{
	struct frag *last = ep->ready[f->prio] != NULL ? ep->ready_last[f->prio] : NULL;
	struct frag **at = &ep->ready[f->prio];

	if (last != NULL && by_order(last, f) <= 0)
		at = &last->next;
	while (*at != NULL && by_order(*at, f) <= 0)
		at = &(*at)->next;
	f->state = FRAG_QUEUED;
	f->next = *at;
	*at = f;
	if (f->next == NULL)
		ep->ready_last[f->prio] = f;
	ep->ready_order[f->prio] = ep->ready[f->prio]->order;
	ep->ready_map[f->prio / 64] |= 1ull << (f->prio % 64);
}

static struct frag *
take(struct ep *ep, unsigned prio)
{
	struct frag *f = ep->ready[prio];

	ep->ready[prio] = f->next;
	if (f->next == NULL)
		ep->ready_map[prio / 64] &= ~(1ull << (prio % 64));
	else
		ep->ready_order[prio] = f->next->order;
	return f;
}

/*
 * The most urgent fragment goes first, but fragments that overtake older ones may fill only half
 * of the window. Otherwise one worker's window could be full of fragments that wait for a second
 * worker, whose window is full of more urgent ones that wait for the first. As it is, the oldest
 * unfinished fragment of all (workers submit in the same order) finds room everywhere. While tables
 * are told of after a restart, the oldest is one of these, and all others overtake it: half of the
 * window is left to RESTORE, or that of a worker full of pushes and that of another full of RESTOREs
 * would wait for each other.
 */
struct frag *
queue_pop(struct pbox_worker *w, struct ep *ep, bool *urgent)
{
	unsigned first = 256, oldest = 256;
	uint32_t pending = w->next_order; /* oldest operation whose fragments are not all here */
	bool older; /* than all that is ready, and not here: that operation, or a table to tell of */

	for (unsigned k = 0; k < 4; k++)
		for (uint64_t map = ep->ready_map[k]; map != 0; map &= map - 1) {
			unsigned prio = k * 64 + (unsigned)__builtin_ctzll(map);

			if (first == 256)
				first = prio;
			if (oldest == 256 ||
				(int32_t)(ep->ready_order[prio] - ep->ready_order[oldest]) < 0)
				oldest = prio;
		}
	if (first == 256)
		return NULL;
	/* one that has begun in some of its tensors only is older than its own fragments */
	if (w->behind != NULL)
		pending = w->behind->order - 1;
	for (const struct tensor *x = w->activating; x != NULL; x = x->active_next)
		if ((int32_t)(x->head->op->order - pending) < 0)
			pending = x->head->op->order;
	older = rejoin_restoring(ep->s) || (int32_t)(ep->ready_order[oldest] - pending) > 0;
	*urgent = older || ep->ready_order[first] != ep->ready_order[oldest];
	if (!*urgent || ep->urgent < ep->win.max / 2)
		return take(ep, first);
	if (older)
		return NULL;
	*urgent = false;
	return take(ep, oldest);
}

static bool
is_ready(const struct frag *f)
{
	return f->state == FRAG_IDLE && (f->pulls > 0 || f->pushes == f->pieces ||
						f->inits == f->pieces || f->states == f->pieces);
}

void
queue_check(struct pbox_worker *w, struct pbox_worker_table *t, struct frag *f)
{
	if (!t->restoring && is_ready(f))
		push_ready(worker_endpoint(w, &t->chunk[f->chunk]), f);
}

void
queue_clear(struct session *s)
{
	for (unsigned i = 0; i < s->endpoints; i++)
		for (unsigned prio = 0; prio < 256; prio++)
			while ((s->ep[i].ready_map[prio / 64] >> prio % 64 & 1) != 0)
				take(&s->ep[i], prio)->state = FRAG_IDLE;
}

static int
compare(const void *a, const void *b)
{
	return by_order(*(struct frag *const *)a, *(struct frag *const *)b);
}

void
queue_rebuild(struct pbox_worker *w)
{
	struct frag **list = NULL;
	size_t n = 0, cap = 0;

	for (unsigned i = 0; i < w->boxes; i++)
		queue_clear(&w->box[i]);
	for (uint32_t i = 0; i < w->tables; i++) {
		struct pbox_worker_table *t = w->table[i];

		for (uint32_t k = 0; k < t->frags && !t->restoring; k++) {
			if (!is_ready(&t->frag[k]))
				continue;
			if (n == cap) {
				struct frag **more =
					reallocarray(list, cap * 2 + 1024, sizeof(*list));

				if (more == NULL) { /* in another order than the other workers */
					queue_check(w, t, &t->frag[k]);
					continue;
				}
				list = more;
				cap = cap * 2 + 1024;
			}
			list[n++] = &t->frag[k];
		}
	}
	if (n > 0)
		qsort(list, n, sizeof(*list), compare);
	for (size_t i = 0; i < n; i++)
		queue_check(w, w->table[list[i]->table], list[i]);
	free(list);
}

static void
activate_piece(struct pbox_worker *w, struct pbox_worker_table *t, struct piece *p,
	struct pbox_worker_op *op)
{
	struct frag *f = &t->frag[p->frag];

	if (f->state != FRAG_QUEUED) { /* its queue is that of its priority */
		bool first = f->pushes + f->pulls + f->inits + f->states == 0;

		if (first || op->prio < f->prio)
			f->prio = op->prio;
		/* in whatever order they begin */
		if (first || (int32_t)(op->order - f->order) < 0)
			f->order = op->order;
	}
	p->want = true;
	switch (op->kind) {
	case PBOX_CLIENT_PULL:
		f->pulls++;
		if (f->lost)
			queue_fail(op, PBOX_C_LOST,
				"the box was restarted after this worker's last push and before "
				"the round "
				"ended, and has lost it: push it again");
		break;
	case PBOX_CLIENT_INIT:
		f->inits++;
		break;
	case PBOX_CLIENT_FETCH:
	case PBOX_CLIENT_GIVE:
		f->states++;
		break;
	default:
		f->pushes++;
	}
	queue_check(w, t, f);
}

void
queue_activate(struct pbox_worker *w, unsigned budget)
{
	while (w->activating != NULL && budget > 0) {
		struct tensor *x = w->activating;
		struct pbox_worker_op *op = x->head->op;
		struct pbox_worker_table *t = op->table;

		while (x->active_at < x->by_count && budget > 0 && !op->failing) {
			uint32_t i = t->by_tensor[x->by_first + x->active_at++];

			activate_piece(w, t, &t->piece[i], op);
			budget--;
		}
		if (x->active_at < x->by_count && !op->failing)
			return;
		w->activating = x->active_next;
		if (x->active_at == x->by_count)
			continue;
		x->left -= x->by_count - x->active_at;
		x->active_at = x->by_count;
		if (x->left == 0) {
			finish_entry(w, x);
			tensor_start(w, x);
		}
	}
}

void
queue_fail_fragment(struct pbox_worker_table *t, struct frag *f, int code, const char *text)
{
	for (unsigned i = 0; i < f->pieces; i++) {
		struct piece *p = &t->piece[f->piece + i];

		if (p->want)
			queue_fail(t->tensor[p->tensor].head->op, code, text);
	}
}
