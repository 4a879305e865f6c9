/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "shard_slots.h"

/* What is kept of a fragment while something goes on there: a round, or its restoring. And membership (R8.5). */

struct pbox_record *
shard_record_open(struct pbox_shard *s, const struct target *g)
{
	struct pbox_shard_job *j = g->j;
	struct pbox_record *r = j->free_record;

	PBOX_ASSERT(g->fragment->record == NULL);
	if (r == NULL)
		return NULL;
	j->free_record = r->next;
	r->arrived = 0;
	r->open = true;
	r->since_ns = s->now_ns;
	r->chunk = g->chunk;
	r->frag = g->frag;
	memset(r->has, 0, slot_words(j) * sizeof(*r->has));
	memset(r->want, 0, words_of(j) * sizeof(*r->want));
	g->fragment->record = r;
	pbox_stat_add(&s->stats[PBOX_SS_ROUNDS_OPEN], 1);
	return r;
}

void
shard_record_close(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_fragment *fragment)
{
	struct pbox_record *r = fragment->record;

	PBOX_ASSERT(r != NULL && r->open);
	r->open = false;
	r->next = j->free_record;
	j->free_record = r;
	fragment->record = NULL;
	pbox_stat_add(&s->stats[PBOX_SS_ROUNDS_OPEN], (uint64_t)-1);
}

/* Those of fragments that are not being restored, from number *at on; NULL: there is none left. */
struct pbox_record *
shard_record_next(struct pbox_shard_job *j, uint32_t *at, struct target *g)
{
	while (*at < j->n_records) {
		struct pbox_record *r = record_at(j, (*at)++);

		if (!r->open)
			continue;
		shard_target_of(j, r, g);
		if (!is_restoring(g))
			return r;
	}
	return NULL;
}

void
shard_target_of(struct pbox_shard_job *j, const struct pbox_record *r, struct target *g)
{
	uint32_t index = r->chunk & ((1u << PBOX_CHUNK_BITS) - 1);

	PBOX_ASSERT(r->open);
	PBOX_ASSERT(j->table[r->chunk >> PBOX_CHUNK_BITS] != NULL);
	g->j = j;
	g->st = j->table[r->chunk >> PBOX_CHUNK_BITS];
	g->c = &g->st->t->chunk[index];
	g->fragment = &g->c->fragment[r->frag];
	g->chunk = r->chunk;
	g->frag = r->frag;
	g->elements = pbox_chunk_frag_elements(g->st->t, g->c, r->frag);
}

/* The slots of the members. */
static void
expect_members(struct pbox_shard_job *j)
{
	memset(j->expected, 0, slot_words(j) * sizeof(*j->expected));
	for (unsigned w = 0; w < j->job->workers; w++)
		if (pbox_bit_get(j->inbox.members, w))
			bits_set(j->expected, slots_begin(j, w), slots_end(j, w));
	memcpy(j->left, j->inbox.left, words_of(j) * sizeof(*j->left));
	j->n_expected = (uint16_t)bits_count(j->expected, 0, j->slots);
	j->members_set++;
}

void
shard_members(struct pbox_shard *s, struct pbox_shard_job *j)
{
	struct target g;

	expect_members(j);
	for (uint32_t i = 0; shard_record_next(j, &i, &g) != NULL;)
		g.st->discipline->members(s, &g);
	shard_finish_ready(s);
}

void
shard_drop_records(struct pbox_shard *s, struct pbox_shard_job *j)
{
	struct target g;

	for (uint32_t i = 0; shard_record_next(j, &i, &g) != NULL;)
		g.st->discipline->drop(s, &g);
	for (uint32_t i = 0; i < j->n_records; i++) {
		if (record_at(j, i)->open)
			pbox_stat_add(&s->stats[PBOX_SS_ROUNDS_OPEN], (uint64_t)-1);
		record_at(j, i)->open = false;
	}
	PBOX_ASSERT(j->held == 0);
}

void
shard_why(struct pbox_shard_job *j, struct pbox_why_page *page)
{
	const struct pbox_record *oldest[PBOX_WHY_ROUNDS], *r;
	struct target g;
	unsigned n = 0;

	page->open = 0;
	for (uint32_t i = 0; (r = shard_record_next(j, &i, &g)) != NULL;) {
		unsigned k;

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
		struct pbox_why_round *out = &page->round[k];

		r = oldest[k];
		shard_target_of(j, r, &g);
		*out = (struct pbox_why_round){
			.chunk = r->chunk,
			.frag = r->frag,
			.round = g.fragment->version + 1,
			.arrived = r->arrived,
			.uninitialised = !initialised(&g),
			.paced = g.st->discipline->why == NULL && r->round.paced,
			.up = g.st->discipline->why == NULL && r->round.up,
			.since_ns = r->since_ns,
		};
		g.st->discipline->missing(&g, out->missing);
		if (g.st->discipline->why != NULL)
			g.st->discipline->why(&g, out);
	}
}
