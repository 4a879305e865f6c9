/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "worker_impl.h"

#define ANCIENT_US 100000000u

/*
 * RESTORE of the fragments of one table, in the order of chunks, as all workers do (R10.5). These flights have the
 * window, timers and loss recovery of all others.
 */

void
restore_begin(struct session *s, struct pbox_worker_table *t)
{
	struct rejoin *r = &s->rejoin;

	assert((t->restoring >> s->index & 1) != 0);
	r->reporting = t;
	r->left = table_frags_at(t, s->index);
	memset(r->chunk, 0, sizeof(r->chunk));
	memset(r->frag, 0, sizeof(r->frag));
}

/** The next fragment of this endpoint, or NULL. */
static struct frag *
next_of(struct session *s, const struct pbox_worker_table *t, unsigned endpoint)
{
	struct rejoin *r = &s->rejoin;
	uint32_t *chunk = &r->chunk[endpoint], *index = &r->frag[endpoint];

	assert(endpoint < s->endpoints);
	for (; *chunk < t->chunks; (*chunk)++, *index = 0) {
		const struct chunk *k = &t->chunk[*chunk];

		if (k->endpoint != endpoint || k->box != s->index ||
			*index * t->frag_elements >= k->elements || t->frag[k->frag].moving)
			continue;
		return &t->frag[k->frag + (*index)++];
	}
	return NULL;
}

/** The next one that has moved to this endpoint, or NULL. */
static struct frag *
next_moving(struct session *s, unsigned endpoint)
{
	struct pbox_worker *w = s->w;
	struct moving *m = &s->moving;
	uint32_t *table = &m->table[endpoint], *chunk = &m->chunk[endpoint],
		 *index = &m->frag[endpoint];

	for (; *table < w->tables; (*table)++, *chunk = *index = 0) {
		const struct pbox_worker_table *t = w->table[*table];

		/* a box that was started again hears of its hyper-parameters first */
		if ((t->restoring >> s->index & 1) != 0)
			return NULL;
		for (; *chunk < t->chunks; (*chunk)++, *index = 0) {
			const struct chunk *k = &t->chunk[*chunk];

			if (k->endpoint != endpoint || k->box != s->index)
				continue;
			while (*index * (uint64_t)t->frag_elements < k->elements) {
				struct frag *f = &t->frag[k->frag + (*index)++];

				if (f->moving && f->state == FRAG_IDLE)
					return f;
			}
		}
	}
	return NULL;
}

/** A window of 1, which may be a worker's share of a larger one, is free after the switch (homes.c), and all workers report in one order. */
static bool
may_report(const struct ep *ep)
{
	if (ep->win.max == 1)
		return ep->in_flight == 0;
	return ep->reports < ep->win.max / 2 && ep->in_flight < ep->win.max;
}

/**
 * By the losses. One RESTORE of each kind leaves without: pushes may have it all that wait for initial parameters, which a new process
 * gives when all have reported. Each worker reports the first fragment that is left, so they get on.
 */
static bool
has_room(const struct ep *ep)
{
	return ep->in_flight - ep->waiting < window_frames(&ep->win);
}

/** Those of chunks that have moved take half of the window: the other half is for pushes, which other workers may wait for
 * before they hear of the move (R16.10). */
static unsigned
moving_pump(struct ep *ep, unsigned most)
{
	struct session *s = ep->s;
	unsigned n = 0;

	while (s->moving.left > 0 && n < most && may_report(ep) &&
		(ep->reports == 0 || has_room(ep))) {
		struct frag *f = next_moving(s, (unsigned)(ep - s->ep));

		if (f == NULL)
			break;
		flight_launch(ep, f, PBOX_RESTORE, true);
		n++;
	}
	return n;
}

unsigned
restore_pump(struct ep *ep, unsigned most)
{
	struct session *s = ep->s;
	struct rejoin *r = &s->rejoin;
	unsigned n = moving_pump(ep, most);

	if (r->reporting == NULL)
		return n;
	while (n < most && ep->in_flight < ep->win.max &&
		(ep->in_flight == ep->overtaking + ep->reports || has_room(ep))) {
		struct frag *f = next_of(s, r->reporting, (unsigned)(ep - s->ep));

		if (f == NULL)
			break;
		flight_launch(ep, f, PBOX_RESTORE, false);
		n++;
	}
	return n;
}

static void
fragment_done(struct session *s, struct ep *ep, struct flight *fl, const struct pbox_hdr *h)
{
	struct pbox_hdr answer = *h;

	/* the box sends it unasked as well, and then ts is that of an earlier RESTORE: no sample of the
	 * round trip (one of more than a minute is none) */
	assert(fl->type == PBOX_RESTORE && fl->frag->state == FRAG_FLIGHT);
	if (fl->waited)
		answer.ts = (uint32_t)(s->w->now / NS_PER_US) - h->held - ANCIENT_US;
	loss_answer(ep, fl, 0, &answer, s->w->now);
	window_answered(&ep->win, ep->limited, s->w->now);
	flight_land(ep, fl);
	ep->lane->count.restored_fragments++;
}

/** The box goes on with a fragment that has moved there, and so does the program. */
static void
moving_done(struct session *s, struct pbox_worker_table *t, struct frag *f)
{
	struct pbox_worker *w = s->w;

	assert(f->moving && !f->carried && t->chunk[f->chunk].box == s->index);
	assert(s->moving.left > 0 && w->homes.left > 0);
	f->moving = false;
	s->moving.left--;
	w->homes.left--;
	for (uint32_t i = 0; w->homes.left == 0 && i < w->tables; i++)
		w->table[i]->restoring &= ~FRAGS_MOVING;
	queue_check(w, t, f);
}

/** The box has the report, and waits for others, or for what is carried to it. */
static void
waits(struct ep *ep, struct flight *fl, const struct pbox_hdr *h, uint32_t missing)
{
	struct pbox_hdr wait = *h;

	assert(fl->type == PBOX_RESTORE);
	wait.type = PBOX_WAIT;
	wait.flags = PBOX_F_HAVE;
	loss_answer(ep, fl, 0, &wait, ep->s->w->now);
	fl->give = false;
	fl->waited = true;
	fl->wait_missing = missing;
	fl->wait_ns = ep->s->w->now;
	loss_waiting(ep, fl, ep->s->w->now);
}

void
restore_answer(
	struct pbox_worker_table *t, struct ep *ep, struct flight *fl, const struct pbox_hdr *h)
{
	struct session *s = ep->s;
	struct frag *f = fl->frag;
	const char *name = t->tensor[t->piece[f->piece].tensor].name;
	const struct pbox_restore_ok m = pbox_restore_ok_get(h);

	assert(f->moving || (t == s->rejoin.reporting && s->rejoin.left > 0));
	if (h->type == PBOX_ERROR) {
		text_fail(s->w, PBOX_C_REFUSED,
			"RESTORE of tensor '%s' to the box at %s, %s: it answered %s (%u)", name,
			s->name, f->moving ? "to which it has moved" : "which was restarted",
			pbox_errcode_name(pbox_code_get(h)), pbox_code_get(h));
		return;
	}
	switch (m.state) {
	case PBOX_RESTORE_DONE:
		fragment_done(s, ep, fl, h);
		carry_end(s->w, f);
		carry_is_home(s->w, t, f);
		ep->lane->count.stateless_fragments +=
			s->w->boxes > 1 && t->clock == NULL && m.stateless == 1;
		t->discipline->restored(s, t, f, &m);
		table_recounts(t);
		if (f->moving)
			moving_done(s, t, f);
		else
			s->rejoin.left--;
		return;
	case PBOX_RESTORE_LOST:
		text_fail(s->w, PBOX_C_LOST,
			f->moving
				? "a chunk has moved to the box at %s, and no worker could give it %s %u of tensor '%s' (a worker without keep_copies, or one that was killed as well): start the job again from a checkpoint"
				: "the box at %s was restarted, and no worker could give it %s %u of tensor '%s' back (a worker without keep_copies, or one that was killed as well): start the job again from a checkpoint",
			s->name, t->clock != NULL ? "version" : t->discipline->unit, m.version,
			name);
		return;
	case PBOX_RESTORE_LATE:
		text_fail(s->w, PBOX_C_LOST,
			"a chunk has moved to the box at %s, where hyper-parameters were set more than 64 times since %s %u of tensor '%s', and those of the next one are gone: start the job again from a checkpoint, and push all tensors of a table in each round",
			s->name, t->discipline->unit, m.version, name);
		return;
	case PBOX_RESTORE_FETCH:
		waits(ep, fl, h, PBOX_WAIT_NOBODY);
		if (carry_source(s->w, t, f) ==
			0) { /* no longer: the box has it from an earlier report */
			flight_send(ep, fl, false, false);
			return;
		}
		if (carry_begin(s->w, t, f, m.arrays) != 0)
			text_fail(s->w, PBOX_C_MEMORY, "no memory to carry chunks that move");
		return;
	case PBOX_RESTORE_GIVE:
		if (fl->give && fl->ts != h->ts && s->w->now - fl->sent_ns < ep->win.rto)
			return; /* it is on its way */
		fl->give = true;
		fl->backoff = fl->tries = 0;
		flight_send(ep, fl, false, false);
		return;
	default:
		waits(ep, fl, h, m.missing);
	}
}
