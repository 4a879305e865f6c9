/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/*
 * Loss recovery: which frames seem lost, probes, and retransmission.
 *
 * The worker suspects that a frame is lost when final answers to frames that it sent later to the same endpoint
 * have come (at a busy endpoint), or when its timer expires (at the tail of a round). It does not retransmit a
 * suspected PUSHPULL: a PULL of its round, a header only, asks what the box knows (a probe). If RESULT was lost, the
 * box sends it again. WAIT with HAVE means a slower worker, and no loss. After WAIT without HAVE the push was lost, or
 * was found damaged (R2.5), and the worker retransmits it. So a slow worker costs its peers a header and not a
 * payload, and a payload goes twice only where it was lost.
 *
 * A box that answers nothing for a while is more often short of CPU, or waits for a slower worker, than dead, and
 * all frames in flight are in its queue. So while final answers come, only evidence counts. When none come, timers may
 * probe a few frames, not a window full of them, and ever more rarely. After the next final answer or proven
 * loss they may probe the next few at once. Where frames were lost a short time ago, they may probe as many more as
 * that rate of losses makes likely, since each answer is evidence then.
 */

#define DOUBTS       4  /* flights that timers probe at once, */
#define DOUBTS_PER   32 /* and one more for so many in flight; */
#define DOUBTS_LOSSY 4  /* or so many for each that the loss rate makes likely */
/* Time-outs double at every second try: a header costs little, and where 30 % of the frames are
 * lost each way, eight tries in a row fail for one fragment in 250. */
#define MAX_BACKOFF   (2 * TIMER_MAX_SHIFT)
#define PAUSE_BACKOFF 3
#define MANY_LOSSES   4  /* of one fragment: the box may have no room for it; slow down */
#define MANY_ON_BAD   16 /* but where one in ten is lost, so are some fragments many times */
#define BAD_LINK      0.1

/* ---- answers as evidence ----------------------------------------------------------------- */

/** A round goes on after a pause. Flights that were probed ever more rarely in the pause are probed soon: their
 * answers may be among the lost ones. */
static void
loss_resume(struct ep *ep, uint64_t now)
{
	ep->paused = false;
	for (struct flight *fl = ep->first; fl != NULL; fl = fl->next)
		if (fl->backoff >= PAUSE_BACKOFF && fl->state != FLIGHT_DEFERRED) {
			fl->backoff = fl->tries = 0;
			timer_arm(ep, fl, now);
		}
}

/** A final answer or a proven loss has come: timers may probe again. */
static void
doubts_end(struct ep *ep, uint64_t now)
{
	if (ep->doubts > 0 && ep->next_due > now)
		ep->next_due = now; /* some were put off */
	ep->doubts = ep->doubt_shift = 0;
}

static void
probed_early(struct ep *ep)
{
	uint32_t max = window_frames(&ep->win) / 2;

	if (ep->thresh < max)
		ep->thresh++;
}

void
loss_answer(struct ep *ep, const struct flight *fl, unsigned place, const struct pbox_hdr *h,
	uint64_t now)
{
	uint32_t us = (uint32_t)(now / NS_PER_US) - h->ts - h->held;
	/* PUSH_OK waits for no other worker, so it says nothing of frames that do */
	uint64_t *answered = h->type == PBOX_PUSH_OK && flight_is_between(ep->s->w, fl)
				     ? &ep->taken_seq
				     : &ep->answered_seq;

	/* the ts of a WAIT without HAVE may be that of a damaged frame (R2.5) */
	if (us < 60u * 1000000u && (h->type != PBOX_WAIT || (h->flags & PBOX_F_HAVE) != 0))
		rtt_sample(&ep->win, (us > 0 ? us : 1) * NS_PER_US, now);
	if (timer_is_lossy(ep, now) && h->ts == fl->ts && fl->seq + place > *answered)
		*answered = fl->seq + place;
	if (h->type == PBOX_WAIT)
		return;
	/* Workers send in the same order, so that rounds end in it. A retransmitted frame counts as
	 * of its first transmission: that is when the others sent theirs. */
	if (fl->order + place > *answered)
		*answered = fl->order + place;
	if (answered == &ep->taken_seq && h->ts != fl->ts)
		probed_early(ep); /* it was not lost: frames overtake each other */
	ep->final_ns = now;
	doubts_end(ep, now);
	if (ep->paused)
		loss_resume(ep, now);
}

static void
was_lost(struct ep *ep, uint64_t now)
{
	window_lost(&ep->win, now);
	ep->lost_ns = now;
	if (ep->thresh > MIN_THRESH)
		ep->thresh--;
}

void
loss_result(struct ep *ep, struct flight *fl, const struct pbox_hdr *h, uint64_t now)
{
	if (fl->state != FLIGHT_PROBED && fl->state != FLIGHT_WAITING)
		return;
	if (h->ts == fl->ts && h->held == 0)
		was_lost(ep, now); /* the box had answered before: that answer was lost */
	else if (h->ts != fl->ts && fl->state == FLIGHT_PROBED)
		probed_early(ep); /* it is the answer to the push itself */
}

static void
enter(struct ep *ep, struct flight *fl, enum flight_state state)
{
	assert(state != FLIGHT_FREE && fl->state != FLIGHT_FREE);
	ep->waiting += (state == FLIGHT_WAITING) - (fl->state == FLIGHT_WAITING);
	fl->state = state;
}

static void
resend(struct ep *ep, struct flight *fl)
{
	flight_send(ep, fl, fl->type == PBOX_PULL, true);
}

static const struct pbox_worker_table *
loss_table(const struct ep *ep, const struct flight *fl)
{
	return ep->s->w->table[fl->frag->table];
}

static void
suspect(struct ep *ep, struct flight *fl)
{
	struct pbox_worker *w = ep->s->w;
	uint8_t type = flight_frame_type(w, fl);

	assert(fl->frag->state == FRAG_FLIGHT);
	if (type == PBOX_PULL || (type == PBOX_PUSHPULL && fl->state != FLIGHT_DEFERRED &&
					 loss_table(ep, fl)->discipline->probes)) {
		if (fl->state == FLIGHT_SENT)
			fl->state = FLIGHT_PROBED;
		ep->lane->count.probes++;
		flight_send(ep, fl, true, fl->type == PBOX_PULL);
		return;
	}
	/* answered at once: what is not answered was lost; RESTORE may wait for other workers */
	if (fl->type == PBOX_RESTORE ? fl->state == FLIGHT_SENT : fl->state != FLIGHT_DEFERRED)
		was_lost(ep, ep->lane->now);
	resend(ep, fl);
}

/**
 * WAIT without HAVE: back to the node that the box misses first, if it is an earlier one (R6.6). Never on to a later one:
 * the PUSH_OK of the node in flight does that. True: the node in flight is missing.
 */
static bool
step_back(struct ep *ep, struct flight *fl, const struct pbox_hdr *h)
{
	const struct pbox_worker *w = ep->s->w;
	unsigned node;

	if (w->conf.slots == 0)
		return true;
	node = nodes_find(w, loss_table(ep, fl), pbox_wait_slots_get(h).slot, fl->node);
	if (node < fl->node)
		fl->node = (uint16_t)node;
	return node <= fl->node;
}

void
loss_wait(struct ep *ep, struct flight *fl, const struct pbox_hdr *h)
{
	struct pbox_worker *w = ep->s->w;
	const struct pbox_worker_table *t = loss_table(ep, fl);
	bool probed = fl->state == FLIGHT_PROBED || fl->state == FLIGHT_WAITING;

	fl->waited = true;
	t->discipline->wait(w, fl, h);
	fl->wait_ns = ep->lane->now;
	if ((h->flags & PBOX_F_HAVE) != 0 && flight_is_between(w, fl))
		return; /* of a time before it stepped back: PUSH_OK goes on */
	if ((h->flags & PBOX_F_HAVE) != 0 || fl->type == PBOX_PULL) {
		if (fl->state == FLIGHT_PROBED && h->ts == fl->ts)
			probed_early(ep);
		if (fl->state != FLIGHT_WAITING) {
			enter(ep, fl, FLIGHT_WAITING);
			fl->backoff = fl->tries = 0;
		}
		timer_arm(ep, fl, ep->lane->now);
		return;
	}
	if ((int32_t)(h->ts - fl->payload_ts) < 0 || (int32_t)(fl->ts - h->ts) < 0) {
		/* it is older than the latest payload; or a contribution with a damaged ts was taken back: a
		 * probe shows which */
		if (fl->state == FLIGHT_WAITING)
			suspect(ep, fl);
		return;
	}
	if (!step_back(ep, fl, h))
		return;
	/* a node that was taken shows that the box takes them */
	if (probed || fl->fresh > 1 || !t->discipline->defers(t, fl->frag)) {
		was_lost(ep, ep->lane->now);
		doubts_end(ep, ep->lane->now);
		fl->tries = fl->backoff = 0;
		if (++fl->losses < (ep->win.loss_rate > BAD_LINK ? MANY_ON_BAD : MANY_LOSSES)) {
			enter(ep, fl, FLIGHT_SENT);
			resend(ep, fl);
			return;
		}
		fl->losses--;
	}
	if (fl->state != FLIGHT_DEFERRED)
		fl->backoff = 0;
	enter(ep, fl, FLIGHT_DEFERRED);
	timer_arm(ep, fl, ep->lane->now);
}

void
loss_waiting(struct ep *ep, struct flight *fl, uint64_t now)
{
	if (fl->state != FLIGHT_WAITING) {
		enter(ep, fl, FLIGHT_WAITING);
		fl->backoff = fl->tries = 0;
	}
	timer_arm(ep, fl, now);
}

void
loss_ask(struct ep *ep, struct flight *fl, uint64_t now)
{
	if (fl->state != FLIGHT_WAITING || now - fl->sent_ns < TIMER_WAITING)
		return;
	fl->due_ns = now;
	ep->next_due = ep->next_due < now ? ep->next_due : now;
}

/* ---- suspicion --------------------------------------------------------------------------- */

/** If it is a run: cut it, while the endpoint's flights are looked at, up to *@p last and with *@p next after this one. */
static void
loss_cut(struct ep *ep, struct flight *fl, struct flight **last, struct flight **next)
{
	struct flight *end;

	if (fl->left <= 1)
		return;
	end = run_cut(ep, fl);
	if (*last == fl)
		*last = end;
	*next = fl->next;
}

void
loss_evidence(struct ep *ep)
{
	struct pbox_worker *w = ep->s->w;
	struct flight *last = ep->last, *next;
	/* what is answered at once is lost if anything after it was answered */
	uint64_t any = ep->taken_seq > ep->answered_seq ? ep->taken_seq : ep->answered_seq;

	for (struct flight *fl = ep->first; fl != NULL; fl = next) {
		uint64_t answered;
		bool end = fl == last;

		next = end ? NULL : fl->next;
		if (fl->seq + MIN_THRESH > any)
			return;
		answered = flight_is_between(w, fl) ? any : ep->answered_seq;
		if (fl->seq + fl->gap > answered || ep->lane->now - fl->sent_ns < ep->win.srtt)
			continue;
		loss_cut(ep, fl, &last, &next);
		if (fl->tries < TIMER_MAX_SHIFT)
			fl->tries++;
		suspect(ep, fl);
	}
}

/** May a timer that has expired probe? If not: *@p later, look again then. */
static bool
loss_may_ask(struct ep *ep, const struct flight *fl, uint64_t now, uint64_t *later)
{
	bool lossy = timer_is_lossy(ep, now);
	uint64_t rto = timer_patience(ep, lossy);
	uint32_t most;

	*later = ep->final_ns + rto;
	if (fl->state == FLIGHT_SENT && *later > now)
		return false; /* final answers are coming, and they are evidence */
	*later = ep->doubt_ns +
		 timer_shifted(rto, ep->doubt_shift, rto > TIMER_PROBED ? rto : TIMER_PROBED);
	if (ep->doubts == 0 || *later <= now) {
		if (ep->doubts > 0 && ep->doubt_shift < TIMER_MAX_SHIFT)
			ep->doubt_shift++;
		ep->doubts = 0;
		ep->doubt_ns = now;
	}
	*later = ep->doubt_ns +
		 timer_shifted(rto, ep->doubt_shift, rto > TIMER_PROBED ? rto : TIMER_PROBED);
	most = DOUBTS + ep->in_flight / DOUBTS_PER;
	if (lossy && ep->win.loss_rate * DOUBTS_LOSSY * ep->in_flight > most)
		most = (uint32_t)(ep->win.loss_rate * DOUBTS_LOSSY * ep->in_flight);
	if (ep->doubts >= most)
		return false;
	ep->doubts++;
	return true;
}

void
loss_asked(struct ep *ep, uint64_t now)
{
	unsigned n = 0;

	for (struct flight *fl = ep->first; fl != NULL && n < DOUBTS; fl = fl->next) {
		if (fl->state == FLIGHT_DEFERRED || now - fl->sent_ns < ep->win.srtt)
			continue;
		fl->due_ns = now;
		n++;
	}
	if (n > 0) {
		doubts_end(ep, now);
		ep->next_due = now;
	}
}

void
loss_timers(struct ep *ep, uint64_t now)
{
	struct flight *last = ep->last, *next;
	uint64_t due = UINT64_MAX;
	bool silent = false;

	if (ep->first == NULL || now < ep->next_due)
		return;
	for (struct flight *fl = ep->first; fl != NULL; fl = next) {
		uint64_t when = fl->due_ns;
		bool end = fl == last;

		next = end ? NULL : fl->next;
		if (when <= now &&
			(fl->state == FLIGHT_DEFERRED || loss_may_ask(ep, fl, now, &when))) {
			loss_cut(ep, fl, &last, &next);
			if (fl->backoff < MAX_BACKOFF)
				fl->backoff++;
			ep->paused |= fl->backoff >= PAUSE_BACKOFF;
			silent |= fl->state == FLIGHT_PROBED; /* the probe as well */
			suspect(ep, fl);
			when = fl->due_ns;
		}
		if (when < due)
			due = when;
	}
	ep->next_due = due;
	if (silent && now - ep->last_rx > ep->win.rto && now - ep->silent_at > ep->win.rto) {
		window_silent(&ep->win);
		ep->silent_at = now;
	}
}
