/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/*
 * Runs: neighbouring fragments of a chunk that one operation pushes, or pulls, and that are sent at one time.
 *
 * A run is flights in one record, and nothing else: all that its fragments' own flights would say is in the record, or follows from it,
 * so the worker sends the same frames at the same times with runs as without (the simulator's traces are the same). The record is that of
 * the first fragment without its answer (frag, seq, order); `left` has a bit for it, bit 0, and for each later one whose answer is not
 * here. Of fragment frag + i sequence numbers are i more; times, timer and evidence (due_ns, gap) are the same: all were sent at one
 * time, and nothing has been sent again. A record with bit 0 alone is a flight as any other.
 *
 * Who owns what. The record is the endpoint's, from its list of free ones, and in its list in the order of the last transmission, where
 * the flights would be in a row. Each fragment is in flight, and names the record (frag.flight) until its answer is here. In the window, and
 * among those that overtake, each has its place: so after any answer there is a free record for each fragment but one of a run.
 *
 * Begin (run_most, run_is_next; flight_launch_run): the queue's first fragment, and those that follow it in the queue and in the
 * chunk, have one entry of one operation, lie one after the other in its buffers, are of one round, and for which the queue would decide
 * the same: same order, and room in windows. In rounds without plan, of one node, not of a format of blocks, with one tensor in each
 * fragment. Not what is pushed again, lost, moved or carried from box to box, nor what asks for any version. Shortly after a loss the timer
 * looks at how many are in flight: a run begins where that makes no difference.
 *
 * Answers (run_land): RESULT and PUSH_OK that name the time of the frame end their fragment in place. The flight is found by the fragment,
 * and the round is checked, as of every answer.
 *
 * Cut (run_cut): before anything that is of one fragment alone. WAIT, ERROR, answers that name another time; a fragment of it seems
 * lost, or its timer expires; flights are withdrawn, as sessions end, chunks move, or a box is started again. Each fragment without its
 * answer gets its flight, at the place of the run in the list, with the timer that it would have; all goes on with those.
 */

/** How many fragments a run that begins with @p f may have, of the queue's first; 1: it is none. */
unsigned
run_most(const struct ep *ep, const struct pbox_worker_table *t, const struct frag *f, uint8_t type,
	bool overtakes)
{
	const struct pbox_worker *w = ep->s->w;
	const struct pbox_worker_entry *e = t->piece[f->piece].entry;
	uint32_t out = ep->in_flight - ep->waiting, most = RUN_MOST;

	if (!t->discipline->runs || t->block != 0 || w->planned || ep->s->pulls != NULL ||
		f->pieces != 1 || f->lost || f->moving || f->owes || f->carried ||
		nodes_of(w, t) != 1)
		return 1;
	if (type == PBOX_PULL ? !f->pushed
			      : (type != PBOX_PUSHPULL && type != PBOX_PUSH) || e->op->again ||
					table_in(e, 0) == NULL)
		return 1;
	if (out + 1 < PBOX_RECOVERY_FEW && timer_is_lossy(ep, ep->lane->now))
		return 1; /* time-outs depend on how many are out */
	if (most > ep->win.max - ep->in_flight)
		most = ep->win.max - ep->in_flight;
	if (most > window_frames(&ep->win) - out)
		most = window_frames(&ep->win) - out;
	if (!overtakes)
		return most;
	if (most > ep->win.max / 2 - ep->overtaking)
		most = ep->win.max / 2 - ep->overtaking;
	return most < ep->win.max - 1 - ep->in_flight ? most : ep->win.max - 1 - ep->in_flight;
}

/** May fragment f + 1, which is the next one in the queue as well, be in the run of f? */
bool
run_is_next(const struct pbox_worker_table *t, const struct frag *f)
{
	const struct frag *g = f + 1;
	const struct piece *p = &t->piece[f->piece], *q = &t->piece[g->piece];

	return g->chunk == f->chunk && g->pieces == 1 && g->order == f->order &&
	       g->round == f->round && q->entry == p->entry &&
	       q->offset == p->offset + p->elements && g->pushed == f->pushed && !g->lost &&
	       !g->moving && !g->owes && !g->carried;
}

void
run_land(struct ep *ep, struct flight *fl, struct frag *f)
{
	unsigned i = run_place(fl, f);

	assert(fl->left > 1 && fl->state == FLIGHT_SENT && f->state == FRAG_FLIGHT);
	assert((fl->left >> i & 1) != 0 && ep->in_flight > 1);
	ep->in_flight--;
	ep->overtaking -= fl->overtakes;
	f->state = FRAG_IDLE;
	fl->left &= ~(UINT64_C(1) << i);
	if (i > 0)
		return;
	i = (unsigned)__builtin_ctzll(fl->left);
	fl->left >>= i;
	fl->frag += i;
	fl->seq += i;
	fl->order += i;
}

struct flight *
run_cut(struct ep *ep, struct flight *fl)
{
	struct flight *last = fl;

	assert(fl->state == FLIGHT_SENT && (fl->left & 1) != 0);
	for (uint64_t left = fl->left & ~UINT64_C(1); left != 0; left &= left - 1) {
		unsigned i = (unsigned)__builtin_ctzll(left);
		struct flight *one = ep->free;

		assert(one != NULL && fl->frag[i].state == FRAG_FLIGHT);
		ep->free = one->next;
		*one = *fl;
		one->left = 1;
		one->frag += i;
		one->seq += i;
		one->order += i;
		one->frag->flight = (uint16_t)(one - ep->flight);
		timer_insert(ep, one, last);
		last = one;
	}
	fl->left = 1;
	return last;
}

void
run_cut_all(struct session *s)
{
	for (unsigned i = 0; i < s->endpoints; i++)
		for (struct flight *fl = s->ep[i].first; fl != NULL; fl = fl->next)
			if (fl->left > 1)
				run_cut(&s->ep[i], fl);
}
