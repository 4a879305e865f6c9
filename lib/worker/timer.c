/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "endpoint.h"

/* Retransmission timers: the flights of an endpoint, in order of last transmission, and when each is probed; rtt.c computes the time-out. */

#define WAITING_LOSSY  (4 * NS_PER_MS) /* the result may be among the lost ones */
#define DEFERRED_FIRST (4 * NS_PER_MS)
#define DEFERRED_MAX   (256 * NS_PER_MS)
#define INTERVAL_MAX   (PBOX_RECOVERY_LONGEST * NS_PER_MS)
#define FEW_INTERVAL   (50 * NS_PER_MS)
#define LOSSY          (PBOX_RECOVERY_LOSSY * NS_PER_MS)

uint64_t
timer_shifted(uint64_t base, unsigned shift, uint64_t max)
{
	uint64_t v = base << (shift < TIMER_MAX_SHIFT ? shift : TIMER_MAX_SHIFT);

	return v < max ? v : max;
}

/** How long an answer may take. Shortly after a loss, no longer than answers have taken. Where few frames are in
 * flight, so that all of them may be lost, no longer than the variance says: a pause of the box is less likely
 * then. */
uint64_t
timer_patience(const struct ep *ep, bool lossy)
{
	if (!lossy)
		return ep->win.rto;
	return ep->in_flight - ep->waiting < PBOX_RECOVERY_FEW ? ep->win.pto : ep->win.pause;
}

bool
timer_is_lossy(const struct ep *ep, uint64_t now)
{
	return ep->lost_ns != 0 && now < ep->lost_ns + LOSSY;
}

/** To probe a few fragments costs next to nothing, and may be all that a job waits for. */
static uint64_t
interval_max(const struct ep *ep, uint64_t least)
{
	uint64_t most = ep->in_flight * FEW_INTERVAL;

	most = most > least ? most : least;
	return most < INTERVAL_MAX ? most : INTERVAL_MAX;
}

/** Timer and evidence for the state that the flight is in. */
void
timer_arm(struct ep *ep, struct flight *fl, uint64_t now)
{
	bool lossy = timer_is_lossy(ep, now);
	uint64_t rto = timer_patience(ep, lossy), wait;
	uint64_t least = lossy ? WAITING_LOSSY : TIMER_WAITING;
	uint32_t gap, window = window_frames(&ep->win);

	assert(fl->state != FLIGHT_FREE);
	switch (fl->state) {
	case FLIGHT_WAITING:
		wait = (lossy ? 2 : 4) * rto;
		wait = wait > least ? wait : least;
		wait = timer_shifted(wait, fl->backoff / 2, interval_max(ep, wait));
		gap = (uint32_t)timer_shifted(
			(lossy ? window : 2 * window) + MIN_THRESH, fl->tries, UINT32_MAX);
		break;
	case FLIGHT_DEFERRED:
		wait = timer_shifted(DEFERRED_FIRST, fl->backoff, DEFERRED_MAX);
		gap = UINT32_MAX;
		break;
	default:
		wait = timer_shifted(rto, fl->backoff / 2, rto > TIMER_PROBED ? rto : TIMER_PROBED);
		gap = (uint32_t)timer_shifted(ep->thresh, fl->tries, UINT32_MAX);
	}
	fl->due_ns = now + wait;
	fl->gap = gap;
	if (ep->next_due > fl->due_ns)
		ep->next_due = fl->due_ns;
}

void
timer_unlist(struct ep *ep, struct flight *fl)
{
	assert(fl->prev != NULL ? fl->prev->next == fl : ep->first == fl);
	assert(fl->next != NULL ? fl->next->prev == fl : ep->last == fl);
	if (fl->prev != NULL)
		fl->prev->next = fl->next;
	else
		ep->first = fl->next;
	if (fl->next != NULL)
		fl->next->prev = fl->prev;
	else
		ep->last = fl->prev;
}

void
timer_insert(struct ep *ep, struct flight *fl, struct flight *after)
{
	fl->prev = after;
	fl->next = after->next;
	if (fl->next != NULL)
		fl->next->prev = fl;
	else
		ep->last = fl;
	after->next = fl;
}

void
timer_append(struct ep *ep, struct flight *fl, uint64_t now)
{
	if (fl->prev != NULL || fl->next != NULL || ep->first == fl) /* in the list */
		timer_unlist(ep, fl);
	fl->next = NULL;
	fl->prev = ep->last;
	if (ep->last != NULL)
		ep->last->next = fl;
	else
		ep->first = fl;
	ep->last = fl;
	if (ep->asked_ns <= ep->last_rx)
		ep->asked_ns = now;
	timer_arm(ep, fl, now);
}
