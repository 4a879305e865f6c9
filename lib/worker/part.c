/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* All parts of a worker, one after the other (part.h). */

#include "worker_impl.h"

const struct worker_part *const worker_parts[WORKER_PARTS] = {
	&boxes_part,
	&homes_part,
	&carry_part,
	&plan_part,
};

#define EACH_PART(p, member)                                         \
	for (unsigned i_ = 0; i_ < WORKER_PARTS; i_++)               \
		for (const struct worker_part *p = worker_parts[i_]; \
			p != NULL && p->member != NULL; p = NULL)

void
parts_begin(struct pbox_worker *w)
{
	EACH_PART(p, begin)
	p->begin(w);
}

void
parts_end(struct pbox_worker *w)
{
	EACH_PART(p, end)
	p->end(w);
}

void
parts_heard(struct session *s, const struct pbox_hdr *h)
{
	EACH_PART(p, heard)
	p->heard(s, h);
}

bool
parts_frame(struct session *s, const struct rx_frame *f)
{
	EACH_PART(p, frame)
	if (p->frame(s, f))
		return true;
	return false;
}

void
parts_tick(struct pbox_worker *w, uint64_t drained)
{
	EACH_PART(p, tick)
	p->tick(w, drained);
}

uint64_t
parts_due(const struct pbox_worker *w)
{
	uint64_t due = UINT64_MAX;

	EACH_PART(p, due)
	{
		uint64_t t = p->due(w);

		due = t < due ? t : due;
	}
	return due;
}

bool
parts_steady(const struct pbox_worker *w)
{
	EACH_PART(p, steady)
	if (!p->steady(w))
		return false;
	return true;
}

void
parts_fail(struct pbox_worker *w)
{
	EACH_PART(p, fail)
	p->fail(w);
}

bool
parts_why(const struct pbox_worker *w, const struct pbox_worker_table *t, char *text, size_t cap)
{
	EACH_PART(p, why)
	if (p->why(w, t, text, cap))
		return true;
	return false;
}
