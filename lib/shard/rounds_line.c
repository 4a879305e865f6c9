/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "rounds.h"

/*
 * Which round is the oldest. A worker that uses PUSH alone sends ahead of the others, and its contributions fill what the
 * job may hold. Then rounds end only if what comes is folded into sums, and if many rounds had a few of these each,
 * none could end. So some are kept for the oldest round, as many as it can need: all workers send in the same order, each
 * sends its contribution to that round until the box takes it, and the front of the round always has room.
 */

void
rounds_line_enter(struct pbox_shard_job *j, struct pbox_record *r)
{
	PBOX_ASSERT(!r->listed);
	r->listed = true;
	r->newer = NULL;
	r->older = j->newest;
	*(j->newest != NULL ? &j->newest->newer : &j->oldest) = r;
	j->newest = r;
}

void
rounds_line_leave(struct pbox_shard_job *j, struct pbox_record *r)
{
	PBOX_ASSERT(r->listed);
	r->listed = false;
	*(r->older != NULL ? &r->older->newer : &j->oldest) = r->newer;
	*(r->newer != NULL ? &r->newer->older : &j->newest) = r->older;
}

void *
rounds_free_acc(const struct pbox_shard_job *j, const struct pbox_record *r)
{
	return r == j->oldest || j->n_free_acc > j->acc_kept ? j->free_acc : NULL;
}
