/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* All parts of a worker, one after the other (part.h). */

#include "worker_impl.h"

#define EACH_PART(w, p, member)                                                                   \
	for (unsigned i_ = 0; (w)->part[i_] != NULL; i_++)                                        \
		for (const struct worker_part *p = (w)->part[i_]; p != NULL && p->member != NULL; \
			p = NULL)

void
part_begin(struct pbox_worker *w, const struct worker_part *const *part)
{
	w->part = part;
	EACH_PART(w, p, begin)
	p->begin(w);
}

void
part_end(struct pbox_worker *w)
{
	EACH_PART(w, p, end)
	p->end(w);
}

void
part_heard(struct session *s, const struct pbox_hdr *h)
{
	EACH_PART(s->w, p, heard)
	p->heard(s, h);
}

bool
part_frame(struct session *s, const struct rx_frame *f)
{
	EACH_PART(s->w, p, frame)
	if (p->frame(s, f))
		return true;
	return false;
}

void
part_tick(struct pbox_worker *w, uint64_t drained)
{
	EACH_PART(w, p, tick)
	p->tick(w, drained);
}

uint64_t
part_due(const struct pbox_worker *w)
{
	uint64_t due = UINT64_MAX;

	EACH_PART(w, p, due)
	{
		uint64_t t = p->due(w);

		due = t < due ? t : due;
	}
	return due;
}

bool
part_steady(const struct pbox_worker *w)
{
	EACH_PART(w, p, steady)
	if (!p->steady(w))
		return false;
	return true;
}

void
part_fail(struct pbox_worker *w)
{
	EACH_PART(w, p, fail)
	p->fail(w);
}

bool
part_why(const struct pbox_worker *w, const struct pbox_worker_table *t, char *text, size_t cap)
{
	EACH_PART(w, p, why)
	if (p->why(w, t, text, cap))
		return true;
	return false;
}
