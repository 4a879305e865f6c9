/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "pbox_worker_norm.h"
#include "worker_impl.h"

/*
 * The norm of a round, of a table with two phases (R6.15). Each endpoint of each box is asked until it has summed all of its
 * fragments; what it answers are whole numbers, so the sum is the same in any order. A box that is started again has lost its
 * sums: it is asked again for all of them, and what this worker had pushed there is lost. Other boxes have theirs.
 */

#define AGAIN_FIRST (NS_PER_MS / 2) /* the sums may be there with the next frames of others */
#define AGAIN_LAST  (20 * NS_PER_MS)
#define NAMES_AFTER \
	6 /* tries: then the answer says who is missing, for which the box has to look */

static void
norm_end(struct pbox_worker *w, struct pbox_worker_norm *q)
{
	struct pbox_worker_norm **at = &w->norms.first;

	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	q->next = w->norms.ended;
	w->norms.ended = q;
}

/** The first chunk of the table at each endpoint of a box; a bit for each that has one. */
static uint64_t
chunks_at(
	const struct pbox_worker_norm *q, unsigned box, const struct chunk *at[PBOX_MAX_ENDPOINTS])
{
	const struct pbox_worker_table *t = q->table;
	uint64_t all = 0;

	for (uint32_t i = 0; i < t->chunks; i++) {
		const struct chunk *k = &t->chunk[i];

		if (k->box != box || (all >> k->endpoint & 1) != 0)
			continue;
		all |= UINT64_C(1) << k->endpoint;
		at[k->endpoint] = k;
	}
	return all;
}

/** Has the box lost what this worker had pushed to it? */
static bool
norm_has_lost(const struct pbox_worker_table *t, unsigned box)
{
	for (uint32_t i = 0; i < t->frags; i++)
		if (t->frag[i].lost && t->chunk[t->frag[i].chunk].box == box)
			return true;
	return false;
}

/*
 * Pushes that go on where they were would fill the records of the box with fragments that wait for pushes of other workers which
 * they had finished before, and do not bring again before these have ended (R6.9: all push in the same order).
 */
void
norm_box_restarted(struct pbox_worker *w)
{
	for (struct pbox_worker_op *op = w->ops; op != NULL; op = op->all_next)
		if ((op->table->flags & PBOX_DECLARE_HOLD) != 0 && op->kind == PBOX_CLIENT_PUSH)
			queue_fail(op, PBOX_C_LOST,
				"the box was restarted before the round of this push ended: push all of it again");
}

static bool
norm_may_ask(const struct session *s)
{
	return s->phase == SESSION_OPEN && !s->retired && !rejoin_pauses(s) && !rejoin_restoring(s);
}

/** What the box has said before it was started again is of sums that it has lost. False: the question has ended. */
static bool
norm_begin(struct pbox_worker *w, struct pbox_worker_norm *q, const struct session *s)
{
	q->box[s->index].sum = (struct pbox_norm){0};
	q->box[s->index].has = 0;
	q->box[s->index].gone = false;
	q->box[s->index].incarnation = s->incarnation;
	if (!norm_has_lost(q->table, s->index))
		return true;
	pbox_client_fail(&q->err, PBOX_C_LOST,
		"round %u of table %u: the box at %s was restarted before the round ended, and has lost this worker's push of it: push it again",
		q->round, q->table->number, s->name);
	norm_end(w, q);
	return false;
}

/** Endpoints of the box that have not answered, with a chunk of each. */
static uint64_t
norm_left(
	const struct pbox_worker_norm *q, unsigned box, const struct chunk *at[PBOX_MAX_ENDPOINTS])
{
	return chunks_at(q, box, at) & ~q->box[box].has;
}

/** Ends it once all boxes have answered. */
static void
norm_whole(struct pbox_worker *w, struct pbox_worker_norm *q)
{
	const struct chunk *at[PBOX_MAX_ENDPOINTS];
	bool gone = false;

	for (unsigned b = 0; b < w->boxes; b++)
		if (norm_left(q, b, at) != 0)
			return;
	for (unsigned b = 0; b < w->boxes; b++) {
		const struct pbox_norm *m = &q->box[b].sum;

		gone |= q->box[b].gone;
		q->sum.fragments += m->fragments;
		q->sum.non_finite += m->non_finite + pbox_norm_add(q->sum.square, m->square);
	}
	if (gone)
		q->sum.fragments = 0;
	norm_end(w, q);
}

static void
norm_send_to(struct pbox_worker *w, const struct pbox_worker_norm *q, struct session *s)
{
	const struct chunk *at[PBOX_MAX_ENDPOINTS];

	for (uint64_t left = norm_left(q, s->index, at); left != 0; left &= left - 1) {
		unsigned e = (unsigned)__builtin_ctzll(left);
		struct ep *ep = &s->ep[e];
		struct pbox_hdr h;

		header_fill(s, &h, PBOX_NORM, w->now);
		h.flags |= q->tries >= NAMES_AFTER ? PBOX_F_RETX : 0;
		h.chunk = at[e]->id;
		h.map_epoch = at[e]->epoch;
		h.round = q->round;
		link_frame(&ep->lane->link, s, &ep->peer, &h, NULL, 0, false);
	}
}

static void
norm_send(struct pbox_worker *w, struct pbox_worker_norm *q)
{
	uint64_t pause = AGAIN_FIRST << (q->tries < 6 ? q->tries : 6);
	bool asked = false;

	q->again_at = w->now + (pause < AGAIN_LAST ? pause : AGAIN_LAST);
	for (unsigned b = 0; b < w->boxes; b++) {
		struct session *s = w->box[b];

		if (!norm_may_ask(s))
			continue;
		if (q->box[b].incarnation != s->incarnation && !norm_begin(w, q, s))
			return;
		norm_send_to(w, q, s);
		asked = true;
	}
	q->tries += asked;
	if (asked && q->table->chunks == 0) /* nobody has anything to say */
		norm_end(w, q);
}

/** A box that has not heard of all of it names one that it waits for. */
static void
norm_late(struct pbox_worker *w, struct pbox_worker_norm *q)
{
	q->err = (struct pbox_client_error){.code = PBOX_C_DEADLINE};
	if (q->missing < w->workers)
		pbox_client_fail(&q->err, PBOX_C_DEADLINE,
			"norm of round %u of table %u: the box waits for the push of worker %u: does it live?",
			q->round, q->table->number, q->missing);
	norm_end(w, q);
}

static void
norm_tick(struct pbox_worker *w, uint64_t drained)
{
	struct pbox_worker_norm *q = w->norms.first, *next;

	(void)drained;
	for (; q != NULL; q = next) {
		next = q->next;
		if (w->now >= q->deadline)
			norm_late(w, q);
		else if (w->now >= q->again_at)
			norm_send(w, q);
	}
}

static uint64_t
norm_due(const struct pbox_worker *w)
{
	uint64_t due = UINT64_MAX;

	for (const struct pbox_worker_norm *q = w->norms.first; q != NULL; q = q->next) {
		uint64_t at = q->again_at < q->deadline ? q->again_at : q->deadline;

		due = at < due ? at : due;
	}
	return due;
}

static bool
norm_frame(struct session *s, const struct rx_frame *f)
{
	struct pbox_worker *w = s->w;
	const struct pbox_hdr *h = &f->hdr;
	const struct chunk_ref *ref = h->type == PBOX_NORM_OK ? chunks_find(w, h->chunk) : NULL;
	struct pbox_worker_norm *q = w->norms.first;
	struct pbox_norm m, *sum;
	unsigned e;

	if (h->type != PBOX_NORM_OK)
		return false;
	while (q != NULL && (ref == NULL || q->table != ref->table || q->round != h->round ||
				    q->box[s->index].incarnation != s->incarnation ||
				    ref->table->chunk[ref->chunk].box != s->index))
		q = q->next;
	e = q != NULL ? ref->table->chunk[ref->chunk].endpoint : 0;
	if (q == NULL || (q->box[s->index].has >> e & 1) != 0) {
		w->count.rx_duplicates++;
		return true;
	}
	if (h->length == 0) {
		q->missing = pbox_norm_missing_get(h);
		return true;
	}
	if (h->length != PBOX_NORM_LEN) {
		w->count.rx_dropped++;
		return true;
	}
	m = pbox_norm_get(f->payload);
	if (m.coefficient != 0) /* of one round there is one */
		q->sum.coefficient = m.coefficient;
	if (m.fragments == 0 && m.coefficient != 0) { /* and the sum is no longer needed */
		q->sum.fragments = 0;
		norm_end(w, q);
		return true;
	}
	sum = &q->box[s->index].sum;
	q->box[s->index].has |= UINT64_C(1) << e;
	q->box[s->index].gone |= m.fragments == 0;
	sum->fragments += m.fragments;
	sum->non_finite += m.non_finite + pbox_norm_add(sum->square, m.square);
	norm_whole(w, q);
	return true;
}

/** Endpoints answer to the part, not to a lane. */
static bool
norm_steady(const struct pbox_worker *w)
{
	return w->norms.first == NULL;
}

static void
norm_fail(struct pbox_worker *w)
{
	while (w->norms.first != NULL) {
		struct pbox_worker_norm *q = w->norms.first;

		if (w->failed)
			q->err = w->fatal;
		else
			pbox_client_fail(&q->err, PBOX_C_CLOSED, "the client was closed");
		norm_end(w, q);
	}
}

const struct worker_part norm_part = {
	.name = "norms",
	.frame = norm_frame,
	.tick = norm_tick,
	.due = norm_due,
	.steady = norm_steady,
	.fail = norm_fail,
};

void
pbox_worker_norm_ask(struct pbox_worker *w, struct pbox_worker_norm *q)
{
	q->missing = PBOX_NO_WORKER;
	q->again_at = 0;
	for (unsigned b = 0; b < w->boxes; b++)
		q->box[b].incarnation = 0; /* none has it */
	q->next = w->norms.first;
	w->norms.first = q;
	if (w->failed || w->shut)
		norm_fail(w);
	lane_settle_all(w); /* or ticks of lanes alone would follow, which do not ask */
}

struct pbox_worker_norm *
pbox_worker_normed(struct pbox_worker *w)
{
	struct pbox_worker_norm *q = w->norms.ended;

	w->norms.ended = NULL;
	return q;
}
