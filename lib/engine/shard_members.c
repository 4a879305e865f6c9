/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "shard_impl.h"

/*
 * Policy shrink (R8.5): which workers a round waits for. All of them is the rule, and then a round
 * has no set of its own: it is complete when as many have contributed as the job has workers. Else
 * (partial) it has one, and `need` counts those of the set and everybody else who has contributed,
 * so that the comparison stays the same.
 */

static struct pbox_round *
round_at(const struct pbox_shard_job *j, uint32_t i)
{
	return (struct pbox_round *)(void *)(j->round_mem + i * j->round_size);
}

static unsigned
words_of(const struct pbox_shard_job *j)
{
	return (j->job->workers + 63u) / 64;
}

void
shard_members_all(const struct pbox_shard_job *j, uint64_t *set)
{
	unsigned n = j->job->workers, words = words_of(j);

	memset(set, 0xFF, words * sizeof(*set));
	if (n % 64 != 0)
		set[words - 1] = (UINT64_C(1) << n % 64) - 1;
}

void
shard_target_of(struct pbox_shard_job *j, const struct pbox_round *r, struct target *g)
{
	uint32_t index = r->chunk & ((1u << PBOX_CHUNK_BITS) - 1);

	g->j = j;
	g->st = j->table[r->chunk >> PBOX_CHUNK_BITS];
	g->c = &g->st->t->chunk[index];
	g->slot = &g->c->slot[r->frag];
	g->chunk = r->chunk;
	g->frag = r->frag;
	g->elements = pbox_chunk_frag_elements(g->st->t, g->c, r->frag);
}

/* Then its record holds what was told instead (shard_restore.c). */
static bool
is_restoring(const struct target *g)
{
	return (g->slot->closed & PBOX_SLOT_RESTORING) != 0;
}

/* Wait no more for those of the round's set that are not in the new one; true: for nobody now. */
static bool
shrink(struct pbox_shard_job *j, struct pbox_round *r)
{
	bool fewer = false;

	if (!r->partial) {
		shard_members_all(j, r->expect);
		r->partial = true;
	}
	for (unsigned i = 0; i < words_of(j); i++) {
		uint64_t gone = r->expect[i] & ~j->expected[i];

		/* what they have contributed counts: they are some of the others now */
		r->need -= (uint16_t)__builtin_popcountll(gone & ~r->has[i]);
		r->expect[i] &= ~gone;
		r->want[i] &= ~gone;
		fewer |= gone != 0;
	}
	return fewer && r->arrived > 0 && r->arrived == r->need;
}

void
shard_members(struct pbox_shard *s, struct pbox_shard_job *j)
{
	unsigned n = 0;

	memcpy(j->expected, j->members, words_of(j) * sizeof(*j->expected));
	for (unsigned i = 0; i < words_of(j); i++)
		n += (unsigned)__builtin_popcountll(j->expected[i]);
	j->n_expected = (uint16_t)n;
	for (uint32_t i = 0; i < j->n_rounds; i++) {
		struct pbox_round *r = round_at(j, i);
		struct target g;

		if (!r->open)
			continue;
		shard_target_of(j, r, &g);
		/* who comes back is waited for from the next round on */
		if (is_restoring(&g) || !shrink(j, r))
			continue;
		if (s->n_ready == PBOX_SHARD_BURST)
			shard_finish_ready(s);
		shard_complete(s, &g);
	}
	shard_finish_ready(s);
}

void
shard_why(struct pbox_shard_job *j, struct pbox_why_page *page)
{
	const struct pbox_round *oldest[PBOX_WHY_ROUNDS];
	unsigned n = 0;

	page->open = 0;
	for (uint32_t i = 0; i < j->n_rounds; i++) {
		const struct pbox_round *r = round_at(j, i);
		struct target g;
		unsigned k;

		if (!r->open)
			continue;
		shard_target_of(j, r, &g);
		if (is_restoring(&g))
			continue;
		page->open++;
		for (k = n; k > 0 && oldest[k - 1]->since_ns > r->since_ns; k--)
			if (k < PBOX_WHY_ROUNDS)
				oldest[k] = oldest[k - 1];
		if (k == PBOX_WHY_ROUNDS)
			continue;
		oldest[k] = r;
		n += n < PBOX_WHY_ROUNDS;
	}
	page->n = n;
	for (unsigned k = 0; k < n; k++) {
		const struct pbox_round *r = oldest[k];
		struct pbox_why_round *out = &page->round[k];
		struct target g;

		shard_target_of(j, r, &g);
		*out = (struct pbox_why_round){
			.chunk = r->chunk,
			.frag = r->frag,
			.round = g.slot->version + 1,
			.arrived = r->arrived,
			.uninitialised = !initialised(&g),
			.paced = r->paced,
			.since_ns = r->since_ns,
		};
		shard_members_all(j, out->missing);
		for (unsigned i = 0; i < words_of(j); i++)
			out->missing[i] &= (r->partial ? r->expect[i] : UINT64_MAX) & ~r->has[i];
	}
}
