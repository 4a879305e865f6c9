/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* All parts of a worker, one after the other (part.h). */

#include "worker_impl.h"

void
part_begin(struct pbox_worker *w, const struct worker_part *const *part)
{
	w->part = part;
	for (unsigned i = 0; w->part[i] != NULL; i++)
		if (w->part[i]->begin != NULL)
			w->part[i]->begin(w);
}

void
part_end(struct pbox_worker *w)
{
	for (unsigned i = 0; w->part[i] != NULL; i++)
		if (w->part[i]->end != NULL)
			w->part[i]->end(w);
}

void
part_heard(struct session *s, const struct pbox_hdr *h)
{
	const struct pbox_worker *w = s->w;

	for (unsigned i = 0; w->part[i] != NULL; i++)
		if (w->part[i]->heard != NULL)
			w->part[i]->heard(s, h);
}

bool
part_frame(struct session *s, const struct rx_frame *f)
{
	const struct pbox_worker *w = s->w;

	for (unsigned i = 0; w->part[i] != NULL; i++)
		if (w->part[i]->frame != NULL && w->part[i]->frame(s, f))
			return true;
	return false;
}

void
part_tick(struct pbox_worker *w, uint64_t drained)
{
	for (unsigned i = 0; w->part[i] != NULL; i++)
		if (w->part[i]->tick != NULL)
			w->part[i]->tick(w, drained);
}

uint64_t
part_due(const struct pbox_worker *w)
{
	uint64_t due = UINT64_MAX;

	for (unsigned i = 0; w->part[i] != NULL; i++) {
		uint64_t t = w->part[i]->due != NULL ? w->part[i]->due(w) : UINT64_MAX;

		due = t < due ? t : due;
	}
	return due;
}

bool
part_steady(const struct pbox_worker *w)
{
	for (unsigned i = 0; w->part[i] != NULL; i++)
		if (w->part[i]->steady != NULL && !w->part[i]->steady(w))
			return false;
	return true;
}

void
part_fail(struct pbox_worker *w)
{
	for (unsigned i = 0; w->part[i] != NULL; i++)
		if (w->part[i]->fail != NULL)
			w->part[i]->fail(w);
}

bool
part_why(const struct pbox_worker *w, const struct pbox_worker_table *t, char *text, size_t cap)
{
	for (unsigned i = 0; w->part[i] != NULL; i++)
		if (w->part[i]->why != NULL && w->part[i]->why(w, t, text, cap))
			return true;
	return false;
}
