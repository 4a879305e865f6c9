/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "client_impl.h"

/*
 * What is lost, and what is done about it.
 *
 * A frame is suspected lost when answers to frames sent later at the same endpoint have come (the
 * clock of a busy endpoint), or when its timer runs out (the tail of a round). A suspected
 * PUSHPULL is not repeated: a PULL of its round, a header only, asks what the box knows. RESULT
 * was lost: it comes again. WAIT with HAVE: a slower worker, not a loss. WAIT without HAVE: the
 * push was lost, and now is repeated. So a late worker costs its peers a header and not a
 * payload, and bytes go twice only where they were lost.
 */

#define HELD_FIRST   (20 * NS_PER_MS)
#define UNKEPT_FIRST (4 * NS_PER_MS)
#define UNKEPT_MAX   (256 * NS_PER_MS)
#define INTERVAL_MAX NS_PER_S
#define MAX_SHIFT    8
/* Time-outs double at every second try: a header costs little, and where 30 % of the frames are
 * lost each way, eight tries in a row fail for one fragment in 250. */
#define MAX_BACKOFF   (2 * MAX_SHIFT)
#define PAUSE_BACKOFF 3
#define MANY_LOSSES   4 /* of one fragment: the box may be unable to keep it; slow down */

static uint64_t
shifted(uint64_t base, unsigned shift, uint64_t max)
{
	uint64_t v = base << (shift < MAX_SHIFT ? shift : MAX_SHIFT);

	return v < max ? v : max;
}

/** Timer and evidence for the state that the flight is in. */
static void
arm(struct ep *ep, struct flight *fl, uint64_t now)
{
	uint64_t rto = ep->win.rto, wait;
	uint32_t gap;

	switch (fl->state) {
	case FLIGHT_HELD:
		wait = shifted(
			4 * rto > HELD_FIRST ? 4 * rto : HELD_FIRST, fl->backoff / 2, INTERVAL_MAX);
		gap = (uint32_t)shifted(
			2 * window_frames(&ep->win) + MIN_THRESH, fl->tries, UINT32_MAX);
		break;
	case FLIGHT_UNKEPT:
		wait = shifted(UNKEPT_FIRST, fl->backoff, UNKEPT_MAX);
		gap = UINT32_MAX;
		break;
	default:
		wait = shifted(rto, fl->backoff / 2, INTERVAL_MAX);
		gap = (uint32_t)shifted(ep->thresh, fl->tries, UINT32_MAX);
	}
	fl->due_ns = now + wait;
	fl->gap = gap;
	if (ep->next_due > fl->due_ns)
		ep->next_due = fl->due_ns;
}

void
recover_armed(struct ep *ep, struct flight *fl, uint64_t now)
{
	if (fl->prev != NULL || fl->next != NULL || ep->first == fl) { /* in the list */
		if (fl->prev != NULL)
			fl->prev->next = fl->next;
		else
			ep->first = fl->next;
		if (fl->next != NULL)
			fl->next->prev = fl->prev;
		else
			ep->last = fl->prev;
	}
	fl->next = NULL;
	fl->prev = ep->last;
	if (ep->last != NULL)
		ep->last->next = fl;
	else
		ep->first = fl;
	ep->last = fl;
	if (ep->asked_ns <= ep->last_rx)
		ep->asked_ns = now;
	arm(ep, fl, now);
}

/* ---- what answers tell ------------------------------------------------------------------- */

/** A round goes on again after a pause: what was asked about ever more rarely in the pause is asked
 * about soon, for its answer may be among the lost ones. */
static void
resume(struct ep *ep, uint64_t now)
{
	ep->paused = false;
	for (struct flight *fl = ep->first; fl != NULL; fl = fl->next)
		if (fl->backoff >= PAUSE_BACKOFF && fl->state != FLIGHT_UNKEPT) {
			fl->backoff = fl->tries = 0;
			arm(ep, fl, now);
		}
}

void
recover_answer(struct ep *ep, struct flight *fl, const struct pbox_hdr *h, uint64_t now)
{
	uint32_t us = (uint32_t)(now / NS_PER_US) - h->ts - h->held;

	/* the ts of a WAIT without HAVE may be that of a damaged frame (R2.5) */
	if (us < 60u * 1000000u && (h->type != PBOX_WAIT || (h->flags & PBOX_F_HAVE) != 0))
		window_sample(&ep->win, (us > 0 ? us : 1) * NS_PER_US, now);
	if (h->ts == fl->ts && fl->seq > ep->answered_seq)
		ep->answered_seq = fl->seq;
	if (ep->paused && h->type != PBOX_WAIT)
		resume(ep, now);
}

static void
was_lost(struct ep *ep, uint64_t now)
{
	window_lost(&ep->win, now);
	if (ep->thresh > MIN_THRESH)
		ep->thresh--;
}

static void
was_late(struct ep *ep)
{
	uint32_t max = window_frames(&ep->win) / 2;

	if (ep->thresh < max)
		ep->thresh++;
}

void
recover_result(struct ep *ep, struct flight *fl, const struct pbox_hdr *h, uint64_t now)
{
	if (fl->state != FLIGHT_PROBED && fl->state != FLIGHT_HELD)
		return;
	if (h->ts == fl->ts && h->held == 0)
		was_lost(ep, now); /* it had been answered before: that answer was lost */
	else if (h->ts != fl->ts && fl->state == FLIGHT_PROBED)
		was_late(ep); /* the answer to the push itself: we asked too early */
}

static void
enter(struct ep *ep, struct flight *fl, enum flight_state state)
{
	ep->held += (state == FLIGHT_HELD) - (fl->state == FLIGHT_HELD);
	fl->state = state;
}

static void
resend(struct pbox_client *c, struct ep *ep, struct flight *fl)
{
	transfer_send(c, ep, fl, fl->type == PBOX_PULL, true);
}

void
recover_wait(struct pbox_client *c, struct ep *ep, struct flight *fl, const struct pbox_hdr *h)
{
	bool probed = fl->state == FLIGHT_PROBED || fl->state == FLIGHT_HELD;

	fl->waited = true;
	fl->wait_have = h->aux;
	fl->wait_missing = h->weight;
	if ((h->flags & PBOX_F_HAVE) != 0 || fl->type == PBOX_PULL) {
		if (fl->state == FLIGHT_PROBED && h->ts == fl->ts)
			was_late(ep);
		if (fl->state != FLIGHT_HELD) {
			enter(ep, fl, FLIGHT_HELD);
			fl->backoff = fl->tries = 0;
		}
		arm(ep, fl, c->now);
		return;
	}
	if (h->ts != fl->ts)
		return; /* about the time before the latest transmission */
	if (probed) {
		was_lost(ep, c->now);
		fl->tries = fl->backoff = 0;
		if (++fl->losses < MANY_LOSSES) {
			enter(ep, fl, FLIGHT_SENT);
			resend(c, ep, fl);
			return;
		}
		fl->losses = MANY_LOSSES;
	}
	if (fl->state != FLIGHT_UNKEPT)
		fl->backoff = 0;
	enter(ep, fl, FLIGHT_UNKEPT);
	arm(ep, fl, c->now);
}

/* ---- suspicion --------------------------------------------------------------------------- */

static void
suspect(struct pbox_client *c, struct ep *ep, struct flight *fl)
{
	switch (fl->type) {
	case PBOX_PUSHPULL:
		if (fl->state == FLIGHT_UNKEPT) {
			resend(c, ep, fl);
			return;
		}
		if (fl->state == FLIGHT_SENT)
			fl->state = FLIGHT_PROBED;
		c->count.probes++;
		transfer_send(c, ep, fl, true, false);
		return;
	case PBOX_PULL:
		if (fl->state == FLIGHT_SENT)
			fl->state = FLIGHT_PROBED;
		c->count.probes++;
		transfer_send(c, ep, fl, true, true);
		return;
	default: /* answered at once: what is not answered was lost */
		if (fl->state != FLIGHT_UNKEPT)
			was_lost(ep, c->now);
		resend(c, ep, fl);
	}
}

void
recover_evidence(struct pbox_client *c, struct ep *ep)
{
	struct flight *last = ep->last, *next;

	for (struct flight *fl = ep->first; fl != NULL; fl = next) {
		bool end = fl == last;

		next = end ? NULL : fl->next;
		if (fl->seq + MIN_THRESH > ep->answered_seq)
			return;
		if (fl->seq + fl->gap > ep->answered_seq || c->now - fl->sent_ns < ep->win.srtt)
			continue;
		if (fl->tries < MAX_SHIFT)
			fl->tries++;
		suspect(c, ep, fl);
	}
}

void
recover_timers(struct pbox_client *c, struct ep *ep)
{
	struct flight *last = ep->last, *next;
	uint64_t due = UINT64_MAX;
	bool silent = false;

	if (ep->first == NULL || c->now < ep->next_due)
		return;
	for (struct flight *fl = ep->first; fl != NULL; fl = next) {
		bool end = fl == last;

		next = end ? NULL : fl->next;
		if (fl->due_ns <= c->now) {
			if (fl->backoff < MAX_BACKOFF)
				fl->backoff++;
			ep->paused |= fl->backoff >= PAUSE_BACKOFF;
			silent |= fl->state == FLIGHT_PROBED; /* the probe as well */
			suspect(c, ep, fl);
		}
		if (fl->due_ns < due)
			due = fl->due_ns;
	}
	ep->next_due = due;
	if (silent && c->now - ep->last_rx > ep->win.rto && c->now - ep->silent_at > ep->win.rto) {
		window_silent(&ep->win);
		ep->silent_at = c->now;
	}
}
