/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/* A box that the job goes on without (R16.12): who it is, what can be done, and that it is asked no more. */

void
out_set(struct pbox_worker *w, uint16_t out)
{
	w->homes.out = out;
	for (unsigned i = 1; i < w->boxes; i++)
		w->box[i]->out = (out >> i & 1) != 0;
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

	if (s->index > 0)
		pbox_text_add(text, cap,
			"; the job waits until it is started again, or goes on without it after 'pbox-ctl failover %s %u' at the first box (%s)",
			w->job, s->index, w->box[0]->name);
	else if (w->boxes > 1)
		pbox_text_add(text, cap,
			"; it is the first one, and no other can take its place: start it again");
}
