/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/*
 * Chunks move from box to box while the program trains (R16.9 to R16.11). A box says that there is a new map; the worker asks for it, shows
 * it to all boxes, and then reports what it has of each chunk that has moved to the box that has it now, as after a restart.
 */

/** Its fragments wait until the new box has heard of all workers what they have. */
static void
chunk_moves(
	struct pbox_worker *w, struct pbox_worker_table *t, uint32_t i, const struct pbox_home *n)
{
	struct chunk *k = &t->chunk[i];

	assert(n->box < w->boxes && !w->box[n->box]->out && n->epoch != k->epoch);
	k->box = n->box;
	k->endpoint = n->endpoint;
	k->epoch = n->epoch;
	lane_moved(w, k);
	for (uint32_t f = k->frag; f < t->frags && t->frag[f].chunk == i; f++)
		t->frag[f].moving = true;
	t->restoring |= FRAGS_MOVING;
}

/** Count again what is to be reported to each box. */
static void
homes_recount(struct pbox_worker *w)
{
	assert(w->boxes > 1);
	w->homes.left = 0;
	for (unsigned b = 0; b < w->boxes; b++)
		w->box[b]->moving = (struct moving){0};
	for (uint32_t i = 0; i < w->tables; i++)
		for (uint32_t f = 0; f < w->table[i]->frags; f++) {
			const struct frag *x = &w->table[i]->frag[f];

			if (!x->moving)
				continue;
			w->homes.left++;
			w->box[w->table[i]->chunk[x->chunk].box]->moving.left++;
		}
}

static bool
is_sound(struct pbox_worker *w, const struct pbox_home *n)
{
	if (n->box < w->boxes && n->endpoint < w->box[n->box]->endpoints &&
		(w->homes.spread.out >> n->box & 1) == 0)
		return true;
	text_fail(w, PBOX_C_REFUSED,
		"the map of job '%s' is not sound: a chunk at endpoint %u of box %u", w->job,
		n->endpoint, n->box);
	return false;
}

static bool
homes_leaves(const struct pbox_worker *w, const struct frag *f)
{
	const struct spread *x = &w->homes.spread; /* a table may have come since it began */

	return f->table < x->tables &&
	       x->next[f->table][f->chunk].epoch != w->table[f->table]->chunk[f->chunk].epoch;
}

/**
 * What is on its way of chunks that move is withdrawn. It takes its place in windows that may be full of later frames, and these of other
 * workers would wait for those (R6.9): so no more than half of a window stays taken, or nothing.
 */
static void
withdraw_moving(struct session *s)
{
	bool all = s->rejoin.phase != PHASE_NONE || s->moving.left > 0;

	run_cut_all(s);
	for (unsigned i = 0; i < s->endpoints && !all; i++) {
		uint32_t stay = 0;

		for (const struct flight *fl = s->ep[i].first; fl != NULL; fl = fl->next)
			stay += !homes_leaves(s->w, fl->frag);
		all = stay > s->ep[i].win.max / 2;
	}
	if (all) {
		flight_withdraw_all(s);
		return;
	}
	for (unsigned i = 0; i < s->endpoints; i++)
		for (struct flight *next, *fl = s->ep[i].first; fl != NULL; fl = next) {
			next = fl->next;
			if (!homes_leaves(s->w, fl->frag))
				continue;
			flight_withdraw(s->w->table[fl->frag->table], fl);
			flight_land(&s->ep[i], fl);
		}
}

/** All boxes know the map. */
static void
homes_switch(struct pbox_worker *w)
{
	struct spread *x = &w->homes.spread;
	uint32_t moved = 0;

	assert(x->next != NULL && !x->only && x->phase == SPREAD_SHOW && x->tables <= w->tables);
	for (uint32_t i = 0; i < x->tables; i++)
		for (uint32_t k = 0; k < w->table[i]->chunks; k++) {
			moved += x->next[i][k].epoch != w->table[i]->chunk[k].epoch;
			if (!is_sound(w, &x->next[i][k]))
				return;
		}
	if (moved > 0 && !w->conf.keep_copies) {
		text_fail(w, PBOX_C_LOST,
			"chunks of job '%s' move to other boxes, and this worker keeps no copies to give them: open the client with keep_copies",
			w->job);
		return;
	}
	if (moved > 0) /* where it has moved to next, its box asks again */
		carry_drop(w, NULL);
	for (unsigned b = 0; moved > 0 && b < w->boxes; b++)
		withdraw_moving(w->box[b]);
	for (uint32_t i = 0; moved > 0 && i < x->tables; i++)
		for (uint32_t k = 0; k < w->table[i]->chunks; k++)
			if (x->next[i][k].epoch != w->table[i]->chunk[k].epoch)
				chunk_moves(w, w->table[i], k, &x->next[i][k]);
	/* what is later is known to nobody: a box has heard only that there was one, before the one that decides was started again */
	w->homes.epoch = w->homes.seen = x->epoch;
	out_set(w, x->out, x->decider);
	spread_end(x);
	if (moved == 0)
		return;
	homes_recount(w);
	for (unsigned b = 0; b < w->boxes; b++)
		if (w->box[b]->rejoin.reporting != NULL)
			restore_begin(w->box[b], w->box[b]->rejoin.reporting);
	queue_rebuild(w);
}

/** The one that decides is silent, and another box of the run knows a later map, perhaps one by which another decides (R16.14). */
static bool
homes_asks_another(const struct pbox_worker *w)
{
	const struct homes *h = &w->homes;
	const struct session *s = w->box[h->from], *first = worker_decider(w);

	return s != first && first->rejoin.joining && (int16_t)(h->seen - h->epoch) > 0 &&
	       s->phase == SESSION_OPEN && !s->retired && !s->rejoin.joining &&
	       s->number == first->number;
}

/** Nothing is at a box, but one may be dead that this worker is to join, or to declare at. The one that decides knows which; what others say may be
 * of the run before. */
static void
homes_without_table(struct pbox_worker *w)
{
	struct homes *h = &w->homes;
	struct session *s = worker_decider(w);

	if (homes_asks_another(w))
		s = w->box[h->from];
	else
		h->seen = h->first;
	if (!homes_behind(h) || s->phase != SESSION_OPEN)
		return;
	h->epoch = h->seen;
	out_drop(s); /* an answer that nobody has looked at may be older */
	s->listed = h->again = false;
}

static void
homes_go_on(struct pbox_worker *w, uint64_t drained)
{
	struct homes *h = &w->homes;
	int rc;

	(void)drained;
	if (w->boxes < 2 || w->shut || w->failed)
		return;
	if (w->tables == 0) {
		homes_without_table(w);
		return;
	}
	if (!w->opened)
		return;
	if (h->spread.next == NULL) {
		if (!homes_behind(h))
			return;
		h->again = false;
		if (spread_begin(w, &h->spread, w->table, w->tables, PBOX_HOMES_RESTORE) != 0) {
			text_fail(w, PBOX_C_MEMORY, "no memory for another map");
			return;
		}
		h->spread.epoch = h->seen;
	}
	rc = spread_step(w, &h->spread);
	if (rc != 0)
		return;
	/* there is a newer one already */
	if (h->spread.changed || h->spread.newer || (int16_t)(h->first - h->spread.epoch) > 0) {
		spread_again(&h->spread);
		return;
	}
	if (spread_is_out(&h->spread)) {
		spread_again(&h->spread);
		h->spread.again_ns = w->now + SPREAD_OUT_AGAIN;
		return;
	}
	homes_switch(w);
}

static uint64_t
homes_due(const struct pbox_worker *w)
{
	if (w->boxes < 2 || w->shut || (!w->opened && w->tables > 0))
		return UINT64_MAX;
	if (w->tables == 0 && worker_decider(w)->phase != SESSION_OPEN)
		return UINT64_MAX;
	if (w->homes.spread.next == NULL)
		return homes_behind(&w->homes) ? 0 : UINT64_MAX;
	return spread_due(w, &w->homes.spread);
}

void
homes_renew(struct session *s)
{
	struct pbox_worker *w = s->w;

	if (w->homes.spread.next != NULL) {
		spread_end(&w->homes.spread);
		w->homes.again = true;
	}
	if (s == worker_decider(w) && w->tables == 0) /* the run may be another one */
		w->homes.epoch = w->homes.seen = HOMES_FIRST;
	if (s == worker_decider(w))
		w->homes.first = w->homes.epoch;
	/* what moves there is reported with all that the box has had */
	for (uint32_t i = 0; i < w->tables; i++)
		for (uint32_t f = 0; f < w->table[i]->frags; f++)
			if (w->table[i]->chunk[w->table[i]->frag[f].chunk].box == s->index)
				w->table[i]->frag[f].moving = false;
	if (w->boxes > 1)
		homes_recount(w);
}

static bool
homes_why(const struct pbox_worker *w, const struct pbox_worker_table *t, char *text, size_t cap)
{
	const struct session *from;

	if (w->boxes < 2 || t == NULL || w->failed)
		return false;
	if (w->homes.spread.next != NULL) {
		const struct session *s =
			w->box[w->homes.spread.phase == SPREAD_ASK ? w->homes.spread.asks
								   : w->homes.spread.box];

		pbox_text_add(text, cap, "chunks of the job move (map %u), and the box at %s %s",
			w->homes.seen, s->name,
			w->homes.spread.request.answer_type == PBOX_NOT_READY
				? "is not ready for that"
				: "has not answered to that yet");
		return true;
	}
	if (w->homes.left == 0 || (t->restoring & FRAGS_MOVING) == 0)
		return false;
	from = carry_waits(w);
	if (from != NULL) {
		pbox_text_add(text, cap,
			"chunks of the job have moved (map %u), and the box at %s, which still has what the optimiser has gathered of them, does not answer",
			w->homes.epoch, from->name);
		out_why(from, text, cap);
		return true;
	}
	pbox_text_add(text, cap,
		"chunks of the job have moved (map %u), and %llu fragments wait until all workers have reported to their new boxes what they have",
		w->homes.epoch, (unsigned long long)w->homes.left);
	return true;
}

static void
homes_begin(struct pbox_worker *w)
{
	w->homes.epoch = w->homes.seen = w->homes.first = w->homes.decided = HOMES_FIRST;
}

static void
homes_end(struct pbox_worker *w)
{
	spread_end(&w->homes.spread);
}

static void
homes_frame_heard(struct session *s, const struct pbox_hdr *h)
{
	if (s->w->boxes > 1 &&
		(h->type == PBOX_PING || h->type == PBOX_PONG || h->type == PBOX_MOVED))
		homes_heard(&s->w->homes, h->map_epoch, s->index,
			s->index == (s->w->homes.spread.next != NULL ? s->w->homes.spread.decider
								     : s->w->homes.decider));
}

static bool
homes_are_steady(const struct pbox_worker *w)
{
	return homes_steady(&w->homes);
}

const struct worker_part homes_part = {
	.name = "chunks that move",
	.begin = homes_begin,
	.end = homes_end,
	.heard = homes_frame_heard,
	.tick = homes_go_on,
	.due = homes_due,
	.steady = homes_are_steady,
	.why = homes_why,
};
