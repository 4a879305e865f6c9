/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CLOCK_H
#define CLOCK_H

/*
 * The discipline of clocks: a version is one more push (section 14 of the protocol). What its files share.
 */

#include "shard_impl.h"

/* After the clocks of the workers (pbox_chunk_frag_clocks). */
struct slowest {
	/* The lowest clock of a member, and how many have none that is higher. It never falls: who comes back below it counts as if
	 * it had it, or all would wait for what it has not done meanwhile. */
	uint32_t clock, n;
	uint32_t members; /* of that pbox_shard_job.members_set; else it is to be found again */
	/* pbox_shard.pushed: the first and the last one of this burst, 1 + its number, and how many; 0: none */
	uint8_t first, last, pushes;
	bool restored; /* after a restart of the box, from a version that a worker held: */
	uint32_t version;
	uint16_t epoch, unused;
};

static inline uint32_t *
clocks_of(const struct target *g)
{
	return pbox_chunk_frag_clocks(g->st->t, g->c, g->frag);
}

static inline struct slowest *
slowest_of(const struct target *g)
{
	return (struct slowest *)(void *)(clocks_of(g) + g->j->job->workers);
}

/* The clocks or the members are others: which one is slowest is found again. */
static inline void
slowest_unknown(const struct target *g)
{
	slowest_of(g)->members = g->j->members_set - 1;
}

/* clock_restore.c: struct discipline */
void clock_report(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
void clock_late(const struct target *g, const struct pbox_frame *f);
void clock_done(const struct target *g, unsigned worker, struct pbox_restore_ok *m);

#endif /* CLOCK_H */
