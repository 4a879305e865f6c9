/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef HOLD_H
#define HOLD_H

/*
 * Tables with two phases a round (R6.15): a sum that is complete waits in a store of its own until the coefficient of its
 * round is known, and the first PULL after that makes the step. What this has of a table follows what rounds have of it in
 * pbox_shard_table.state: the sums of squares by endpoint, of two rounds, since fragments may be a round apart.
 */

#include "rounds.h"

struct hold_norm {
	uint64_t square[3]; /* of the fragments that are summed */
	uint32_t round, fragments, non_finite;
	bool used;
};

/* Of an endpoint: round & 1. */
struct hold_norms {
	struct hold_norm round[2];
	uint32_t fragments; /* that the table has there; 0: not counted yet */
};

static inline struct hold_norms *
hold_norms_of(const struct target *g)
{
	return (struct hold_norms *)(void *)((struct rounds_group *)(void *)g->st->state +
					     2 * g->st->t->n_groups) +
	       g->c->endpoint;
}

static inline size_t
hold_bytes_of(const struct pbox_table *t)
{
	return t->hold ? PBOX_MAX_ENDPOINTS * sizeof(struct hold_norms) : 0;
}

/* Is the sum of the fragment's next round here? Then it has no record that counts. */
static inline bool
hold_is_summed(const struct target *g)
{
	return g->st->t->hold && g->c->held[g->frag].summed;
}

/* A PUSH or PUSHPULL; own: of slots that its worker is to bring. False: it is one as in any other table of rounds. */
bool hold_contribute(
	struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, bool own);
/* A PULL; false: the same. */
bool hold_pull(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
/* The sum of all contributions, scaled, is in the store: it counts. Who waits for the version gets it, if its coefficient is known. */
void hold_summed(
	struct pbox_shard *s, const struct target *g, unsigned contributors, uint64_t samples);
/* Where the sum is made. */
float *hold_store(const struct target *g);
/* A NORM: the discipline's. */
void hold_norm(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);

#endif /* HOLD_H */
