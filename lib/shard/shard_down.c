/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What the upper box has made of a rack's sum comes back. */

#include "rounds.h"

void
pbox_shard_down(struct pbox_shard *s, const struct pbox_up *up, uint64_t now_ns)
{
	struct pbox_shard_job *j = up->job < s->conf.max_jobs ? s->job[up->job] : NULL;
	uint32_t table = up->chunk >> PBOX_CHUNK_BITS;
	struct target g = {.j = j, .chunk = up->chunk, .frag = up->frag};
	struct pbox_record *r;

	PBOX_ASSERT(!s->inside && s->n_ready == 0 && s->n_batched == 0);
	/* its job has ended meanwhile; another one may have its number */
	if (j == NULL || j->job->begun_ns != up->begun_ns)
		return;
	PBOX_ASSERT(table < PBOX_MAX_TABLES && j->table[table] != NULL);
	g.st = j->table[table];
	g.c = &g.st->t->chunk[up->chunk & ((1u << PBOX_CHUNK_BITS) - 1)];
	g.fragment = &g.c->fragment[up->frag];
	g.elements = pbox_chunk_frag_elements(g.st->t, g.c, up->frag);
	r = g.fragment->record;
	/* what went up waits for its own answer, and takes no other's */
	PBOX_ASSERT(r != NULL && r->open && !is_restoring(&g) && r->round.up &&
		    up->round == g.fragment->version + 1 && up->value == up_value(j, r));
	s->now_ns = now_ns;
	s->inside = true;
	rounds_down(s, &g, up);
	s->inside = false;
}
