/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Slots of a job without a plan: a worker has those that it began with, and each round waits for it (R5.2a, R5.2b). */

#include "shard_slots.h"

/* The last worker whose first slot is not after this one. */
static unsigned
fixed_owner(const struct target *g, unsigned slot)
{
	return ((slot + 1) * g->j->job->workers - 1) / g->j->slots;
}

static bool
fixed_range(const struct target *g, const struct pbox_frame *f, struct pbox_node node,
	unsigned *first, unsigned *last, struct slots *n)
{
	(void)node;
	(void)n;
	*first = slots_begin(g->j, f->hdr.worker);
	*last = slots_end(g->j, f->hdr.worker);
	return true;
}

static bool
fixed_partly_there(const struct target *g, const struct pbox_frame *f, struct slots n)
{
	(void)g;
	(void)f;
	(void)n;
	return false;
}

static unsigned
fixed_own_missing(const struct target *g, unsigned worker)
{
	const struct pbox_shard_job *j = g->j;
	const struct pbox_record *r = initialised(g) ? g->fragment->record : NULL;
	unsigned slot = slots_begin(j, worker), end = slots_end(j, worker);

	PBOX_ASSERT(slot < end);
	if (r != NULL)
		slot = bits_next_clear(r->has, slot, end);
	return slot == end ? j->slots : slot;
}

static bool
fixed_overtaken(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	(void)s;
	(void)g;
	(void)f;
	return false;
}

const struct slots_policy slots_fixed = {
	.owner = fixed_owner,
	.range = fixed_range,
	.partly_there = fixed_partly_there,
	.own_missing = fixed_own_missing,
	.overtaken = fixed_overtaken,
};
