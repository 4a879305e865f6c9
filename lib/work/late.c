/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What a worker's silence says: when it will have finished, and how slow it is at least. */

#include "work_impl.h"

/* Seconds a slot in this round. The estimate counts as one slot more; the slot in work takes as long as it has taken. */
double
work_pace(const struct work_worker *w, double at)
{
	double slot = w->figure[WORK_SLOT].value, fixed = w->figure[WORK_FIXED].value;
	double since = w->begun > 0 ? w->begun_at : fixed;

	if (w->begun > 1)
		slot = (slot + work_max(w->begun_at - fixed, 0)) / w->begun;
	return work_max(slot, at - since);
}

double
work_finish(const struct pbox_work *work, unsigned worker, double at)
{
	const struct work_worker *w = &work->worker[worker];
	double since = w->begun > 0 ? w->begun_at : w->figure[WORK_FIXED].value;
	unsigned left = w->slots - w->begun + (w->begun > 0);

	if (w->slots == 0 || w->done)
		return at;
	return work_max(at, since + left * work_pace(w, at)) + w->figure[WORK_UP].value;
}

double
work_slot_if_late(const struct pbox_work *work, unsigned worker, double at, bool *changed)
{
	const struct work_worker *w = &work->worker[worker];
	const struct work_estimate *e = &w->figure[WORK_SLOT];
	bool computing = w->begun > 0 && w->begun < w->slots;
	double left = at - w->figure[WORK_FIXED].value, x;

	*changed = false;
	if (!w->member || w->done || w->slots == 0)
		return e->value;
	if (!computing)
		left -= w->figure[WORK_UP].value * work_umax(work->nodes[worker], 1);
	x = left / (computing ? w->begun : w->slots);
	return x > e->value ? work_estimate_with(e, x, changed) : e->value;
}
