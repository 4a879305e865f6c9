/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/* A box that the job goes on without (R16.12): who it is, what can be done, and that it is asked no more. */

void
out_set(struct pbox_worker *w, uint16_t out, unsigned decider)
{
	assert(decider < w->boxes && (out >> decider & 1) == 0);
	w->homes.out = out;
	if (w->homes.decider != decider)
		w->homes.first = w->homes.epoch;
	w->homes.decider = (uint8_t)decider;
	for (unsigned i = 0; i < w->boxes; i++)
		w->box[i]->out = (out >> i & 1) != 0;
}

/** The box that takes the place of one that decides. */
static const struct session *
out_next(const struct session *s)
{
	const struct pbox_worker *w = s->w;
	unsigned next = (s->index + 1) % w->boxes;

	while (w->box[next]->out)
		next = (next + 1) % w->boxes;
	return w->box[next];
}

void
out_drop(struct session *s)
{
	request_drop(s, &s->boxes.request);
	s->boxes.asked = false;
}

void
out_why(const struct session *s, char *text, size_t cap)
{
	const struct pbox_worker *w = s->w;

	if (s != worker_decider(w) && w->boxes > 1)
		pbox_text_add(text, cap,
			"; the job waits until it is started again, or goes on without it after 'pbox-ctl failover %s %u' at the box that decides (%s)",
			w->job, s->index, worker_decider(w)->name);
	else if (w->boxes > 1)
		pbox_text_add(text, cap,
			"; it is the one that decides: the job waits until it is started again, or goes on without it after 'pbox-ctl failover %s %u' at the next box of the list (%s)",
			w->job, s->index, out_next(s)->name);
}
