/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Chunks that come to this box while their table is in use get their places and their memory. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "table_memory.h"

/* Where the next one goes: the endpoint whose core has least, there the one that has least. */
static unsigned
least_loaded(const struct pbox_place *place, unsigned endpoints, const uint64_t *load)
{
	uint64_t least = UINT64_MAX, least_here = UINT64_MAX;
	unsigned best = 0;

	for (unsigned e = 0; e < endpoints; e++) {
		uint64_t core = 0;

		for (unsigned i = 0; i < endpoints; i++)
			core += place[i].core == place[e].core ? load[i] : 0;
		if (core > least || (core == least && load[e] >= least_here))
			continue;
		best = e;
		least = core;
		least_here = load[e];
	}
	return best;
}

/* Endpoints for those that have none here; bytes that they need at each. */
static void
moves_place(const struct pbox_table *t, const uint32_t *index, uint32_t n,
	const struct pbox_place *place, unsigned endpoints, uint64_t *load, struct pbox_chunk *out,
	size_t *need)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct pbox_layout_chunk *lc = &t->layout.chunk[index[i]];

		out[i] = t->chunk[index[i]];
		if (out[i].endpoint != PBOX_ELSEWHERE)
			continue;
		out[i].endpoint = (uint16_t)least_loaded(place, endpoints, load);
		out[i].fragments = (uint16_t)table_fragments_of(t, lc->elements);
		load[out[i].endpoint] += lc->elements;
		need[out[i].endpoint] += table_chunk_bytes(t, lc->elements);
	}
}

/* One extent an endpoint. */
static int
moves_extents(struct pbox_table *t, const struct pbox_place *place, unsigned endpoints,
	const size_t *need, uint8_t **at, struct pbox_error *err)
{
	struct pbox_table_extent *list =
		reallocarray(t->extent, t->n_extents + endpoints, sizeof(*list));

	if (list == NULL)
		return pbox_fail(
			err, ENOMEM, "out of memory for chunks of table %u that come", t->id);
	t->extent = list;
	for (unsigned e = 0; e < endpoints; e++) {
		struct pbox_arena *a = t->arena[place[e].node];

		if (need[e] == 0)
			continue;
		at[e] = pbox_arena_alloc(a, need[e]);
		if (at[e] == NULL)
			return pbox_fail(err, pbox_arena_later(a, need[e]) ? EAGAIN : ENOSPC,
				"chunks of table %u that come need %zu bytes on NUMA node %u, where the largest free piece of %zu has %zu: raise 'memory', or move them elsewhere",
				t->id, need[e], place[e].node, pbox_arena_size(a),
				pbox_arena_largest(a));
		t->extent[t->n_extents++] = (struct pbox_table_extent){
			.at = at[e], .bytes = need[e], .node = place[e].node};
	}
	return 0;
}

/* Nothing has come. */
static void
moves_undo(struct pbox_table *t, uint32_t extents, const uint32_t *index, uint32_t n,
	const struct pbox_chunk *out, uint64_t *load)
{
	while (t->n_extents > extents) {
		t->n_extents--;
		pbox_arena_free(t->arena[t->extent[t->n_extents].node], t->extent[t->n_extents].at);
	}
	for (uint32_t i = 0; i < n; i++)
		if (t->chunk[index[i]].endpoint == PBOX_ELSEWHERE)
			load[out[i].endpoint] -= out[i].elements;
}

int
pbox_table_take(struct pbox_table *t, const uint32_t *index, uint32_t n,
	const struct pbox_place *place, unsigned endpoints, uint64_t *load, size_t quota,
	struct pbox_chunk *out, struct pbox_error *err)
{
	size_t need[PBOX_MAX_ENDPOINTS] = {0}, total = 0;
	uint8_t *at[PBOX_MAX_ENDPOINTS] = {NULL};
	uint32_t extents = t->n_extents;
	int ret;

	moves_place(t, index, n, place, endpoints, load, out, need);
	for (unsigned e = 0; e < endpoints; e++)
		total += need[e];
	if (total > quota)
		ret = pbox_fail(err, ENOMEM,
			"chunks of table %u that come need %zu bytes and the job may still take %zu: raise 'memory' of the job",
			t->id, total, quota);
	else
		ret = total > 0 ? moves_extents(t, place, endpoints, need, at, err) : 0;
	if (ret < 0) {
		moves_undo(t, extents, index, n, out, load);
		return ret;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (t->chunk[index[i]].endpoint != PBOX_ELSEWHERE)
			continue;
		at[out[i].endpoint] = table_carve(at[out[i].endpoint], t, &out[i]);
		t->layout.chunk[index[i]].endpoint = out[i].endpoint;
	}
	t->bytes += total;
	return 0;
}
