/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/*
 * Which box a worker without tables joins first (R16.3, R16.17): the one that decides in the run that it is of. It begins with an address of the
 * program. A box refers it to another one; and where one is silent, another box of the list says whom to ask. A worker that has a table goes by
 * maps alone (homes.c).
 */

#define DECIDER_SILENT (5 * NS_PER_S) /* HELLOs so long without an answer */

/** The session's join begins again: what it asks for may be another run. */
static void
session_again(struct session *s, bool first)
{
	out_drop(s);
	s->listed = false;
	if (s->phase != SESSION_OPEN) {
		path_end(s);
		s->phase = SESSION_CLOSED; /* session_tick() opens it */
	} else if (first || s->rejoin.joining) {
		rejoin_renew(s);
	}
}

/** From now on that box is asked for the worker's number and run; the others when it has given them. */
static void
decider_turn(struct pbox_worker *w, unsigned box)
{
	struct session *to = w->box[box];

	assert(w->tables == 0 && box < w->boxes);
	out_set(w, 0, box); /* what the box says that is asked now */
	w->homes.epoch = w->homes.seen = w->homes.first = w->homes.decided = HOMES_FIRST;
	w->turned = true;
	w->refers++;
	for (unsigned i = 0; i < w->boxes; i++)
		if (!w->box[i]->retired)
			session_again(w->box[i], w->box[i] == to);
	if (to->phase == SESSION_OPEN && !to->retired)
		to->join.worker = w->conf.worker;
}

/** The address of the program after that of the session. */
static struct sockaddr_in
next_named(const struct pbox_worker *w)
{
	const struct sockaddr_in *at = &w->box[0]->box.addr;
	unsigned k = 0;

	while (k < w->n_named && (w->named[k].sin_addr.s_addr != at->sin_addr.s_addr ||
					 w->named[k].sin_port != at->sin_port))
		k++;
	return w->named[k + 1 < w->n_named ? k + 1 : 0];
}

void
decider_tick(struct pbox_worker *w)
{
	struct session *s = worker_decider(w);
	unsigned turn = w->turn;

	w->turn = 0;
	if (w->tables > 0 || w->failed || w->shut)
		return;
	if (turn > 0) {
		decider_turn(w, turn - 1);
		return;
	}
	if ((s->phase != SESSION_JOINING && !(s->phase == SESSION_OPEN && s->rejoin.joining)) ||
		s->join.answered || s->join.done || w->now - s->join.asked_ns < DECIDER_SILENT)
		return;
	if (w->boxes > 1) {
		decider_turn(w, (s->index + 1) % w->boxes);
	} else {
		struct sockaddr_in at = next_named(w);

		/* also to the only one that is named, where that has referred it to a dead one: by now it may know who decides */
		if (at.sin_addr.s_addr != s->box.addr.sin_addr.s_addr ||
			at.sin_port != s->box.addr.sin_port)
			refer_to(&s->join, &at);
	}
}
