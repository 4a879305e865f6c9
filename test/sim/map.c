/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "box.h"
#include "law.h"

#define UNKNOWN UINT32_MAX
#define PLACES  256 /* endpoints of a box, where there are several */

struct sim_fragment *
sim_find(struct sim_job *j, uint32_t chunk, uint32_t frag)
{
	uint32_t table = chunk >> PBOX_CHUNK_BITS, index = chunk & ((1u << PBOX_CHUNK_BITS) - 1);
	uint32_t first;

	if (table >= SIM_TABLES || j->first_number[table] == NULL || index >= j->chunks[table])
		return NULL;
	first = j->first_number[table][index];
	if (first == UNKNOWN || first + frag >= j->n_fragments ||
		j->fragment[first + frag].chunk != chunk)
		return NULL;
	return &j->fragment[first + frag];
}

static void
add_piece(struct sim_job *j, unsigned table, struct sim_fragment *f, const struct sim_piece *p)
{
	unsigned n = j->tensor[table][p->tensor].n++;
	struct sim_piece **list = &j->tensor[table][p->tensor].piece;

	f->piece = reallocarray(f->piece, f->pieces + 1, sizeof(*f->piece));
	*list = reallocarray(*list, n + 1, sizeof(**list));
	PBOX_ASSERT(f->piece != NULL && *list != NULL);
	f->piece[f->pieces++] = (*list)[n] = *p;
}

/* What the fragment, whose first element is `from` of the chunk, has of the chunk's segments. */
static void
add_pieces(struct sim_job *j, unsigned table, struct sim_fragment *f,
	const struct pbox_chunk_entry *e, uint32_t from)
{
	uint32_t at = 0, end = from + f->elements;

	for (unsigned i = 0; i < e->segments; at += e->segment[i++].elements) {
		const struct pbox_segment *g = &e->segment[i];
		uint32_t first = at > from ? at : from;
		uint32_t last = at + g->elements < end ? at + g->elements : end;
		struct sim_piece p = {.fragment = f->number,
			.tensor = g->tensor,
			.at = first - from,
			.elements = last - first,
			.offset = g->offset + (first - at)};

		if (first < last)
			add_piece(j, table, f, &p);
	}
}

/* Which placement it is: each incarnation of the box has one, for each run. */
static uint32_t
map_of(struct sim *s, unsigned job)
{
	return s->box->incarnation ^ (uint32_t)sim_part(s, job)->run * 0x9E3779B1u;
}

/* R16.5: a box says which of the others has a chunk, and where it has its own ones. */
static unsigned
owner_of(const struct sim *s, unsigned job, const struct pbox_chunk_entry *e)
{
	return sim_is_fleet(&s->sc, &s->sc.job[job]) ? e->endpoint / PLACES : s->box->number;
}

static void
add_fragments(struct sim *s, unsigned job, const struct pbox_chunk_entry *e, uint32_t table)
{
	struct sim_job *j = &s->job[job];
	uint32_t f = j->frag_elements[table];
	const struct sim_table_spec *t = &s->sc.job[job].table[table];
	unsigned box = owner_of(s, job, e);

	j->first_number[table][e->chunk_id & ((1u << PBOX_CHUNK_BITS) - 1)] = j->n_fragments;
	for (uint32_t at = 0, i = 0; at < e->elements; at += f, i++) {
		struct sim_fragment *n;

		j->fragment = reallocarray(j->fragment, j->n_fragments + 1, sizeof(*j->fragment));
		PBOX_ASSERT(j->fragment != NULL);
		n = &j->fragment[j->n_fragments];
		*n = (struct sim_fragment){
			.chunk = e->chunk_id,
			.elements = e->elements - at < f ? e->elements - at : f,
			.number = j->n_fragments++,
			.frag = (uint16_t)i,
			.box = (uint8_t)box,
			.first_box = (uint8_t)box,
			.epoch = PBOX_MAP_EPOCH,
			.endpoint = e->endpoint % PLACES,
			.map_of = box == s->box->number ? map_of(s, job) : 0,
			.group = t->tensor[e->segment[0].tensor].group,
			.table = (uint8_t)table,
			.published = s->sc.job[job].first_round,
			.slots = sim_slots(&s->sc.job[job]),
		};
		n->slot = calloc(n->slots, sizeof(*n->slot));
		PBOX_ASSERT(n->slot != NULL);
		slots_reset(n, s->sc.job[job].first_round);
		add_pieces(j, table, n, e, at);
		hold_begin(s, job, n);
	}
}

/* A chunk that an earlier worker got a map of. */
static void
compare(struct sim *s, unsigned job, const struct pbox_chunk_entry *e, uint32_t table)
{
	struct sim_job *j = &s->job[job];
	struct sim_fragment *f = sim_find(j, e->chunk_id, 0);
	uint32_t frags = (e->elements + j->frag_elements[table] - 1) / j->frag_elements[table];
	struct sim_fragment *last = sim_find(j, e->chunk_id, frags - 1);
	unsigned box = owner_of(s, job, e), endpoint = e->endpoint % PLACES;
	bool own = box == s->box->number;

	/* after a restart the box may place them again (R10.3) */
	for (uint32_t i = 0; own && f != NULL && f->map_of != map_of(s, job) && i < frags; i++) {
		struct sim_fragment *g = sim_find(j, e->chunk_id, i);

		if (g == NULL)
			break;
		g->endpoint = (uint16_t)endpoint;
		if (i > 0)
			g->map_of = map_of(s, job);
	}
	if (own && f != NULL)
		f->map_of = map_of(s, job);
	if (f != NULL && f->first_box != box)
		sim_fail(s, "box %u says that chunk %x is at box %u, and others that it is at %u",
			s->box->number, e->chunk_id, box, f->first_box);
	if (f == NULL || last == NULL || (own && f->endpoint != endpoint) ||
		(!own && endpoint != 0) ||
		last->elements != e->elements - (frags - 1) * j->frag_elements[table])
		sim_fail(s,
			"the map of chunk %x differs between workers: endpoint %u and %u, %u elements",
			e->chunk_id, f != NULL ? f->endpoint : 0, endpoint, e->elements);
}

static void
check_chunk(struct sim *s, unsigned job, const struct pbox_chunk_entry *e, uint32_t table)
{
	const struct sim_table_spec *t = &s->sc.job[job].table[table];
	uint64_t sum = 0;

	for (unsigned i = 0; i < e->segments; i++) {
		const struct pbox_segment *g = &e->segment[i];

		if (g->tensor >= t->fixed.tensors ||
			g->offset + g->elements > t->tensor[g->tensor].elements) {
			sim_fail(s, "chunk %x has a segment beyond tensor %u", e->chunk_id,
				g->tensor);
			return;
		}
		sum += g->elements;
	}
	if (sum != e->elements || e->segments == 0 || e->endpoint % PLACES >= s->sc.endpoints ||
		!sim_is_at(&s->sc, &s->sc.job[job], owner_of(s, job, e)))
		sim_fail(s, "chunk %x has %u elements in segments of %llu", e->chunk_id,
			e->elements, (unsigned long long)sum);
}

void
sim_map_page(struct sim *s, unsigned job, const struct pbox_mapped *m, struct pbox_cursor *cur)
{
	struct sim_job *j = &s->job[job];
	uint32_t t = m->table;

	if (t >= s->sc.job[job].tables) {
		sim_fail(s, "MAPPED of table %u", t);
		return;
	}
	if (j->first_number[t] == NULL) {
		j->chunks[t] = m->chunks;
		j->frag_elements[t] = m->frag_elements;
		j->first_number[t] = malloc((m->chunks + 1) * sizeof(uint32_t));
		PBOX_ASSERT(j->first_number[t] != NULL);
		for (uint32_t i = 0; i <= m->chunks; i++)
			j->first_number[t][i] = UNKNOWN;
	}
	if (j->chunks[t] != m->chunks || j->frag_elements[t] != m->frag_elements)
		sim_fail(s, "the map of table %u differs between workers", t);
	for (unsigned i = 0; i < m->count && !s->failed; i++) {
		struct pbox_chunk_entry e;

		if (pbox_mapped_next(cur, &e) < 0 ||
			e.chunk_id != m->first_chunk_id + m->first + i ||
			m->first + i >= m->chunks || e.elements == 0) {
			sim_fail(s, "MAPPED: entry %u cannot be read", i);
			return;
		}
		check_chunk(s, job, &e, t);
		if (s->failed)
			return;
		if (j->first_number[t][m->first + i] == UNKNOWN)
			add_fragments(s, job, &e, t);
		else
			compare(s, job, &e, t);
	}
}

void
sim_box_advance_rounds(struct sim *s)
{
	const struct pbox_job *job;

	for (unsigned i = 0; (job = s->code->registrar_job(s->box->registrar, i)) != NULL; i++) {
		unsigned sim_job = (unsigned)(job->name[3] - '0');
		uint32_t first = s->sc.job[sim_job].first_round;

		for (uint32_t t = 0; first != 0 && t < job->n_tables; t++) {
			struct pbox_table *table = &job->table[t]->t;

			/* no shard has it yet, or it is as it should be already */
			for (uint32_t c = 0; job->table[t]->built && c < table->n_chunks; c++)
				for (unsigned f = 0; f < table->chunk[c].fragments; f++)
					if (table->chunk[c].fragment[f].version == 0 &&
						table->chunk[c].fragment[f].has_result == 0)
						table->chunk[c].fragment[f].version = first;
		}
	}
}
