/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker_impl.h"

/*
 * The send queue: operations become fragments that are ready, in the order of their priority.
 *
 * Each piece of a tensor goes through the entries of its operations in the order of submission (of the pulls, and of
 * all others, if the discipline of the table has two lanes), and waits for no other piece. A fragment is ready when all its
 * pieces have an entry of the kind that it needs; a PULL needs one piece alone.
 *
 * Deadlock: a round ends when all workers have sent their part, so two workers whose windows are full
 * of different fragments would wait for each other forever (R6.9). The pushes of all fragments
 * therefore have an order that is the same at all workers: that of the last entry of its pieces (they
 * submit in the same order), then that of the map. What overtakes an earlier one leaves at least one
 * place of the window free. So the first unfinished push of all finds room everywhere. It is ready,
 * or its fragment's previous round is in flight, and then its place is that one's.
 */

void
queue_fail(struct pbox_worker_op *op, int code, const char *text)
{
	if (op_pushes(op))
		table_recounts(op->table);
	/* its code is there before it ends: the piece for which it fails has not ended */
	if (__atomic_exchange_n(&op->failing, true, __ATOMIC_RELAXED))
		return;
	op->code = code;
	snprintf(op->text, sizeof(op->text), "%s", text);
}

static void
queue_unlink(struct pbox_worker *w, struct pbox_worker_op *op)
{
	assert(op->failing || op->open == 0); /* no piece of it is under way */
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
	if (w->ops == NULL)
		times_ended(w);
	if (op->code == 0)
		w->count.operations_done++;
}

void
queue_collect(struct pbox_worker *w)
{
	struct pbox_worker_op *list = NULL, *op;

	if (__atomic_load_n(&w->ended_ops, __ATOMIC_RELAXED) == NULL)
		return;
	op = __atomic_exchange_n(&w->ended_ops, NULL, __ATOMIC_ACQUIRE);
	while (op != NULL) { /* in the order in which they have ended */
		struct pbox_worker_op *next = op->next;

		op->next = list;
		list = op;
		op = next;
	}
	while (list != NULL) {
		op = list;
		list = op->next;
		queue_unlink(w, op);
	}
}

void
queue_finish(struct pbox_worker *w, struct pbox_worker_op *op)
{
	op->next = __atomic_load_n(&w->ended_ops, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(
		&w->ended_ops, &op->next, op, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	if (w->lanes == 1)
		queue_collect(w);
}

/* A worker that joins a running job in the middle of a round finds fragments in different rounds, and its operations
 * are of two rounds from then on. The others push in the order of rounds: those that lag come first. */
#define ORDER_LATEST (1ull << 63)

/** The same at all workers, which may pull as they like. */
static uint64_t
entry_order(const struct pbox_worker_entry *e)
{
	return e->op->order + (op_pushes(e->op) ? e->index : 0);
}

/** Insert it in the list of queues with entries to start, after those of the same priority. */
static void
starting_insert(struct lane *l, struct queue *x)
{
	struct queue **at = &l->starting;

	while (*at != NULL && (*at)->starts->op->prio <= x->starts->op->prio)
		at = &(*at)->starts_next;
	x->starts_next = *at;
	*at = x;
}

/* ---- operations -------------------------------------------------------------------------- */

/** The entries of an operation that are of one lane begin with @p first. */
static void
queue_append(struct lane *l, struct pbox_worker_entry *first)
{
	const struct pbox_worker_op *op = first->op;
	const struct pbox_worker_table *t = op->table;

	for (unsigned i = 0; i < op->n; i++) {
		struct pbox_worker_entry *e = &first[i];
		struct queue *x;

		e->next = NULL;
		if (e->left == 0)
			continue;
		x = table_queue(t, l->number, table_tensor(t, op, e->tensor));
		if (x->last != NULL)
			x->last->next = e;
		x->last = e;
		if (x->starts == NULL) {
			x->starts = e;
			starting_insert(l, x);
		}
	}
}

void
queue_inbox(struct lane *l)
{
	struct pbox_worker_entry *list = NULL, *e;

	if (__atomic_load_n(&l->inbox, __ATOMIC_RELAXED) == NULL)
		return;
	e = __atomic_exchange_n(&l->inbox, NULL, __ATOMIC_ACQUIRE);
	while (e != NULL) { /* in the order of submission */
		struct pbox_worker_entry *next = e->next;

		e->next = list;
		list = e;
		e = next;
	}
	while (list != NULL) {
		e = list;
		list = e->next;
		queue_append(l, e);
	}
}

/** Fill in the entries of a lane; how many have something there. */
static unsigned
entries_begin(struct pbox_worker_op *op, unsigned lane)
{
	struct pbox_worker_entry *first = &op->e[(size_t)lane * op->n];
	unsigned open = 0;

	for (unsigned i = 0; i < op->n; i++) {
		struct pbox_worker_entry *e = &first[i];

		if (lane > 0)
			*e = op->e[i];
		e->index = i;
		e->left = table_queue(op->table, lane, table_tensor(op->table, op, e->tensor))
				  ->by_count;
		e->started = false;
		open += e->left > 0;
	}
	return open;
}

static void
inbox_put(struct lane *l, struct pbox_worker_entry *first)
{
	first->next = __atomic_load_n(&l->inbox, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(
		&l->inbox, &first->next, first, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

void
pbox_worker_submit(struct pbox_worker *w, struct pbox_worker_op *op)
{
	unsigned open[PBOX_WORKER_LANES];

	struct pbox_worker_table *t = op->table;

	assert(t != NULL && op->kind <= PBOX_CLIENT_GIVE && op->code == 0 && !op->failing);
	assert(op->nodes == 0 || (op_pushes(op) && op->nodes == nodes_of(w, t)));
	op->next = NULL;
	times_submitted(w);
	op->order = w->next_order;
	/* contributions must not fill the window before INIT has been sent; pulls have no place in the order */
	w->next_order += op_pushes(op) ? op->n : op->kind != PBOX_CLIENT_PULL;
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
	if ((t->flags & PBOX_DECLARE_HOLD) != 0)
		next_recount(w, t);
	for (unsigned i = 0; i < op->n; i++) {
		assert(op->e[i].op == op && op->e[i].tensor < t->n);
		if (!op_pushes(op) || op->again)
			continue;
		next_push(t, op->e[i].tensor);
		if (t->tensor[op->e[i].tensor].by_count > 0)
			t->held_round = t->tensor[op->e[i].tensor].pushed_to;
	}
	if (op->again) { /* what the box has lost is a push of its own */
		table_recounts(t);
		w->plan.again = true;
	}
	op->open = 0;
	for (unsigned i = 0; i < w->lanes; i++) {
		open[i] = entries_begin(op, i);
		op->open += open[i];
	}
	if (op->open == 0)
		queue_finish(w, op);
	else if (w->lanes == 1)
		queue_append(w->lane[0], op->e);
	else /* once a lane has it, it may end: no more is read of it than there is left to put */
		for (unsigned i = 0, n = op->n; i < w->lanes; i++)
			if (open[i] > 0)
				inbox_put(w->lane[i], &op->e[(size_t)i * n]);
}

/** The counter of the fragment's pieces that have an operation of this kind. */
static uint16_t *
queue_wanted(struct frag *f, const struct pbox_worker_op *op)
{
	switch (op->kind) {
	case PBOX_CLIENT_PULL:
		return &f->pulls;
	case PBOX_CLIENT_INIT:
		return &f->inits;
	case PBOX_CLIENT_FETCH:
	case PBOX_CLIENT_GIVE:
		return &f->states;
	default:
		return &f->pushes;
	}
}

static void
piece_begin(struct pbox_worker_table *t, struct piece *p, struct pbox_worker_entry *e)
{
	struct frag *f = &t->frag[p->frag];

	assert(p->entry == NULL && e->left > 0);
	p->entry = e;
	(*queue_wanted(f, e->op))++;
	if (e->op->kind == PBOX_CLIENT_PULL && f->lost)
		queue_fail(e->op, PBOX_C_LOST,
			"the box was restarted before the round of this worker's last push ended, and has lost it: push it again");
}

static void
piece_end(struct pbox_worker *w, struct queue *x, struct pbox_worker_entry *e)
{
	struct pbox_worker_op *op = e->op;

	assert(e->left > 0);
	if (--e->left > 0)
		return;
	if (x->last == e)
		x->last = NULL;
	aside_end();
	if (__atomic_sub_fetch(&op->open, 1, __ATOMIC_ACQ_REL) == 0)
		queue_finish(w, op);
}

/** To the first entry from @p e on that goes on, of those that the piece knows of. */
static void
piece_advance(struct pbox_worker *w, struct pbox_worker_table *t, struct piece *p,
	struct pbox_worker_entry *e)
{
	struct queue *x = table_queue_of(t, p);

	assert(p->entry == NULL);
	while (e != NULL && (e->started || (e == x->starts && p->offset < x->started_to))) {
		struct pbox_worker_entry *next = e->next;

		if (!op_fails(e->op)) {
			piece_begin(t, p, e);
			return;
		}
		piece_end(w, x, e);
		e = next;
	}
}

void
queue_piece_finish(struct pbox_worker *w, struct pbox_worker_table *t, struct piece *p)
{
	struct pbox_worker_entry *e = p->entry, *next = e->next;

	assert(*queue_wanted(&t->frag[p->frag], e->op) > 0);
	(*queue_wanted(&t->frag[p->frag], e->op))--;
	p->entry = NULL;
	piece_end(w, table_queue_of(t, p), e);
	piece_advance(w, t, p, next);
}

void
queue_start(struct lane *l, unsigned budget)
{
	struct pbox_worker *w = l->w;

	while (l->starting != NULL && budget > 0) {
		struct queue *x = l->starting;
		struct pbox_worker_entry *e = x->starts;
		struct pbox_worker_table *t = e->op->table;

		for (; x->started < x->by_count && budget > 0; budget--) {
			struct piece *p = &t->piece[t->by_tensor[x->by_first + x->started++]];

			x->started_to = p->offset + p->elements;
			if (p->entry == NULL) /* else it comes to this one later */
				piece_advance(w, t, p, e);
			queue_check(w, t, &t->frag[p->frag]);
		}
		if (x->started < x->by_count)
			return;
		e->started = true;
		l->starting = x->starts_next;
		x->starts = e->next;
		x->started = 0;
		x->started_to = 0;
		if (x->starts != NULL)
			starting_insert(l, x);
	}
}

/* ---- ready fragments -------------------------------------------------------------------- */

static int
by_order(const struct frag *x, const struct frag *y)
{
	if (x->order != y->order)
		return x->order < y->order ? -1 : 1;
	if (x->table != y->table)
		return x->table < y->table ? -1 : 1;
	return x->piece < y->piece ? -1 : x->piece > y->piece;
}

/** Those of the pull lanes; NULL: no table has one. */
static struct ready *
queue_pulls(const struct ep *ep)
{
	return ep->s->pulls != NULL ? &ep->s->pulls[ep - ep->s->ep] : NULL;
}

/** Insert it by its order: mostly at the end of its list, near the beginning if it waited for long. */
static void
push_ready(struct pbox_worker *w, const struct pbox_worker_table *t, struct frag *f)
{
	struct ep *ep = worker_endpoint(w, &t->chunk[f->chunk]);
	struct ready *r = table_is_pull_lane(t, f) ? queue_pulls(ep) : &ep->ready;
	struct frag **at = &r->first[f->prio];

	assert(f->state == FRAG_IDLE && r != NULL);

	if (*at != NULL && by_order(r->last[f->prio], f) <= 0)
		at = &r->last[f->prio]->next;
	while (*at != NULL && by_order(*at, f) <= 0)
		at = &(*at)->next;
	f->state = FRAG_QUEUED;
	f->next = *at;
	*at = f;
	if (f->next == NULL)
		r->last[f->prio] = f;
	r->map[f->prio / 64] |= 1ull << (f->prio % 64);
	r->n++;
}

static struct frag *
queue_take(struct ready *r, unsigned prio)
{
	struct frag *f = r->first[prio];

	assert(f != NULL && f->state == FRAG_QUEUED && f->prio == prio && r->n > 0);
	r->first[prio] = f->next;
	r->n--;
	if (f->next == NULL)
		r->map[prio / 64] &= ~(1ull << (prio % 64));
	return f;
}

/** The most urgent one, and in *@p oldest (may be NULL) the one that is first in order; NULL: there is none. */
static struct frag *
queue_first(const struct ready *r, struct frag **oldest)
{
	struct frag *first = NULL;

	for (unsigned k = 0; k < 4; k++)
		for (uint64_t map = r->map[k]; map != 0; map &= map - 1) {
			struct frag *f = r->first[k * 64 + (unsigned)__builtin_ctzll(map)];

			if (oldest == NULL)
				return f;
			if (first == NULL || by_order(f, *oldest) < 0)
				*oldest = f;
			if (first == NULL)
				first = f;
		}
	return first;
}

/** Is something of the lane earlier than @p f, and not ready? */
static bool
starts_before(const struct lane *l, const struct frag *f)
{
	for (const struct queue *x = l->starting; x != NULL; x = x->starts_next)
		if (entry_order(x->starts) < (f->order & ~ORDER_LATEST))
			return true;
	return false;
}

/** Is something of the endpoint earlier than @p f, and not ready? */
static bool
is_early(const struct ep *ep, const struct frag *f)
{
	const struct session *s = ep->s;

	if (rejoin_restoring(s) || s->moving.left > 0) /* RESTOREs come before all operations */
		return true;
	if ((f->order & ORDER_LATEST) != 0 && s->w->lagging > 0)
		return true;
	for (unsigned i = 0; i < s->w->lanes; i++)
		if ((s->w->lane[i] == ep->lane || s->w->mixed) && starts_before(s->w->lane[i], f))
			return true;
	return false;
}

bool
queue_has(const struct ep *ep)
{
	const struct ready *pulls = queue_pulls(ep);

	return queue_first(&ep->ready, NULL) != NULL ||
	       (pulls != NULL && queue_first(pulls, NULL) != NULL);
}

static bool
waits_for_own(const struct ep *ep, const struct frag *f)
{
	const struct pbox_worker *w = ep->s->w;
	const struct pbox_worker_table *t = w->table[f->table];

	return t->discipline->waits_for_own != NULL && t->discipline->waits_for_own(w, t, f);
}

/*
 * Half of the window is for the fragments in order, as the protocol asks (R6.9), so that many small urgent tensors
 * delay the others, and do not block them. The other half is the most that a pull lane gets: its pulls may all wait
 * for other workers, and these for a push of this one.
 */
struct frag *
queue_pop(struct ep *ep, bool *overtakes)
{
	bool room = ep->overtaking < ep->win.max / 2 && ep->in_flight + 1 < ep->win.max;
	struct ready *pulls = queue_pulls(ep);
	struct frag *oldest = NULL, *first = queue_first(&ep->ready, &oldest), *pull = NULL;
	bool early;

	/* without room, in a window of 1, which all is for RESTOREs until the last is answered: a pull may wait for a worker that waits for these */
	if (pulls != NULL && (room || (ep->in_flight == 0 && !rejoin_restoring(ep->s))))
		pull = queue_first(pulls, NULL);
	if (pull != NULL && !room && waits_for_own(ep, pull))
		pull = NULL; /* that push needs the window */
	if (pull != NULL && (first == NULL || pull->prio < first->prio ||
				    (pull->prio == first->prio && by_order(pull, first) < 0))) {
		*overtakes = true;
		return queue_take(pulls, pull->prio);
	}
	if (first == NULL)
		return NULL;
	early = is_early(ep, oldest);
	*overtakes = early || first != oldest;
	if (!*overtakes || room)
		return queue_take(&ep->ready, first->prio);
	if (early)
		return NULL;
	*overtakes = false;
	return queue_take(&ep->ready, oldest->prio);
}

unsigned
queue_follow(struct ep *ep, const struct pbox_worker_table *t, const struct frag *f, unsigned most)
{
	struct ready *r = &ep->ready;
	unsigned n = 1;

	while (n < most && (r->map[f->prio / 64] >> f->prio % 64 & 1) != 0 &&
		r->first[f->prio] == f + n && run_is_next(t, f + n - 1))
		queue_take(r, f[n++].prio);
	return n;
}

static bool
is_ready(const struct frag *f)
{
	return f->state == FRAG_IDLE && (f->owes || f->pulls > 0 || f->pushes == f->pieces ||
						f->inits == f->pieces || f->states == f->pieces);
}

/** Set its order and priority in the queue. */
static void
frag_rank(const struct pbox_worker_table *t, struct frag *f)
{
	bool pull = f->pulls > 0;

	f->order = 0;
	f->prio = f->owes ? 0 : UINT8_MAX;
	for (unsigned i = 0; i < f->pieces; i++) {
		const struct pbox_worker_entry *e = t->piece[f->piece + i].entry;

		if (e == NULL || (e->op->kind == PBOX_CLIENT_PULL) != pull)
			continue;
		if (entry_order(e) > f->order)
			f->order = entry_order(e);
		if (e->op->prio < f->prio)
			f->prio = e->op->prio;
	}
	if (!f->lags)
		f->order |= ORDER_LATEST;
}

void
queue_check(struct pbox_worker *w, struct pbox_worker_table *t, struct frag *f)
{
	assert(f->pushes <= f->pieces && f->inits <= f->pieces && f->states <= f->pieces);
	if (frag_restoring(t, f) || !is_ready(f))
		return;
	frag_rank(t, f);
	push_ready(w, t, f);
}

static void
ready_clear(struct ready *r)
{
	for (struct frag *f; (f = queue_first(r, NULL)) != NULL;)
		queue_take(r, f->prio)->state = FRAG_IDLE;
	assert(r->n == 0);
}

void
queue_clear(struct session *s)
{
	for (unsigned i = 0; i < s->endpoints; i++) {
		ready_clear(&s->ep[i].ready);
		if (s->pulls != NULL)
			ready_clear(&s->pulls[i]);
	}
}

int
queue_open_pulls(struct session *s)
{
	if (s->pulls == NULL)
		s->pulls = calloc(PBOX_MAX_ENDPOINTS, sizeof(*s->pulls));
	return s->pulls != NULL ? 0 : -ENOMEM;
}

static struct frag *
queue_merge(struct frag *a, struct frag *b)
{
	struct frag *all, **tail = &all;

	while (a != NULL && b != NULL) {
		struct frag **less = by_order(a, b) <= 0 ? &a : &b;

		*tail = *less;
		tail = &(*less)->next;
		*less = *tail;
	}
	*tail = a != NULL ? a : b;
	return all;
}

/** Cut @p n fragments off *@p list; they are returned in order. */
static struct frag *
sort(struct frag **list, size_t n)
{
	struct frag *f = *list;

	if (n < 2) {
		if (f != NULL) {
			*list = f->next;
			f->next = NULL;
		}
		return f;
	}
	f = sort(list, n / 2);
	return queue_merge(f, sort(list, n - n / 2));
}

void
queue_rebuild(struct pbox_worker *w)
{
	struct frag *list = NULL;
	size_t n = 0;

	for (unsigned i = 0; i < w->boxes; i++)
		queue_clear(w->box[i]);
	for (uint32_t i = 0; i < w->tables; i++) {
		struct pbox_worker_table *t = w->table[i];

		for (uint32_t k = 0; k < t->frags * t->discipline->lanes; k++) {
			struct frag *f = &t->frag[k];

			if (frag_restoring(t, f) || !is_ready(f))
				continue;
			frag_rank(t, f);
			f->next = list;
			list = f;
			n++;
		}
	}
	for (struct frag *next, *f = sort(&list, n); f != NULL; f = next) {
		next = f->next;
		push_ready(w, w->table[f->table], f);
	}
}

void
queue_fail_fragment(struct pbox_worker_table *t, struct frag *f, int code, const char *text)
{
	for (unsigned i = 0; i < f->pieces; i++) {
		struct piece *p = &t->piece[f->piece + i];

		if (p->entry != NULL)
			queue_fail(p->entry->op, code, text);
	}
}
