/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What the registrar does in slices: it clears memory, and goes on with tables that wait for it or are made ready. */

#include "registrar_impl.h"

static void
go_on(struct pbox_registrar *r, struct pbox_job *job, bool memory)
{
	for (uint32_t i = 0; i < job->n_tables; i++) {
		struct pbox_job_table *jt = job->table[i];

		if (jt->built && jt->preparing && !jt->loading && !jt->failed)
			registrar_open_work(r, job, jt);
		else if (jt->built)
			registrar_rounds_work(r, jt);
		else if (jt->waits_memory && memory) {
			jt->waits_memory = false;
			registrar_build_tables(r, job);
		}
		r->unfinished |= jt->waits_memory;
	}
}

bool
pbox_registrar_work(struct pbox_registrar *r, uint64_t now_ns)
{
	size_t left = 0, room = PBOX_ARENA_SLICE;
	bool memory;

	PBOX_ASSERT(!r->inside);
	r->now_ns = now_ns;
	for (unsigned i = 0; i < PBOX_MAX_NODES; i++) {
		struct pbox_arena *a = r->conf.arena[i];
		size_t before;

		if (a == NULL)
			continue;
		before = pbox_arena_uncleared(a);
		left += pbox_arena_clear(a, room);
		room -= before - pbox_arena_uncleared(a);
	}
	if (!r->unfinished)
		return left > 0;
	memory = left <= r->retry_below;
	r->unfinished = false;
	for (unsigned i = 0; i < r->conf.max_jobs; i++)
		if (r->job[i] != NULL && r->job[i]->state == PBOX_JOB_OPEN)
			go_on(r, r->job[i], memory);
	return left > 0 || r->unfinished;
}
