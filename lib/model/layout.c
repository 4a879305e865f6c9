/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Tensors to chunks and segments (R5.9). */

#include <errno.h>
#include <stdlib.h>

#include "pbox_layout.h"

#define NONE UINT32_MAX

struct builder {
	struct pbox_layout *l;
	uint32_t chunk_cap, segment_cap;
	uint32_t tensor; /* the last one that was laid out, or did not fit */
};

/* Room for one more of either kind; the layout stays valid when it fails. */
static int
layout_grow(struct builder *b)
{
	struct pbox_layout *l = b->l;

	if (l->n_chunks == b->chunk_cap) {
		uint32_t cap = b->chunk_cap < 64 ? 64 : b->chunk_cap * 2;
		void *p =
			cap > b->chunk_cap ? reallocarray(l->chunk, cap, sizeof(*l->chunk)) : NULL;

		if (p == NULL)
			return -ENOMEM;
		l->chunk = p;
		b->chunk_cap = cap;
	}
	if (l->n_segments == b->segment_cap) {
		uint32_t cap = b->segment_cap < 64 ? 64 : b->segment_cap * 2;
		void *p = cap > b->segment_cap ? reallocarray(l->segment, cap, sizeof(*l->segment))
					       : NULL;

		if (p == NULL)
			return -ENOMEM;
		l->segment = p;
		b->segment_cap = cap;
	}
	return 0;
}

static int
add_segment(struct builder *b, bool new_chunk, uint32_t tensor, uint16_t group, uint64_t offset,
	uint32_t elements)
{
	struct pbox_layout *l = b->l;
	struct pbox_layout_chunk *c;

	b->tensor = tensor;
	if (new_chunk && l->n_chunks == 1u << PBOX_CHUNK_BITS)
		return -E2BIG;
	if (layout_grow(b) < 0)
		return -ENOMEM;
	if (new_chunk)
		l->chunk[l->n_chunks++] =
			(struct pbox_layout_chunk){.first_segment = l->n_segments, .group = group};
	c = &l->chunk[l->n_chunks - 1];
	l->segment[l->n_segments++] =
		(struct pbox_segment){.offset = offset, .tensor = tensor, .elements = elements};
	c->segments++;
	c->elements += elements;
	l->elements += elements;
	return 0;
}

static int
add_large(struct builder *b, const struct pbox_tensor *t, uint32_t i, uint32_t chunk_elements,
	uint32_t frag_elements)
{
	for (uint64_t at = 0; at < t->elements;) {
		uint64_t left = t->elements - at;
		/* a rest that is no fragment goes with the chunk before it */
		uint32_t n = left < (uint64_t)chunk_elements + frag_elements ? (uint32_t)left
									     : chunk_elements;
		int ret = add_segment(b, true, i, t->group, at, n);

		if (ret < 0)
			return ret;
		at += n;
	}
	return 0;
}

/* The last chunk joins the one before it if it is no whole fragment, as in add_large(). */
static void
join_rest(struct pbox_layout *l, uint32_t first_chunk, uint32_t frag_elements)
{
	struct pbox_layout_chunk *last = l->chunk + l->n_chunks - 1;

	if (l->n_chunks - first_chunk < 2 || last->elements >= frag_elements ||
		last[-1].segments + last->segments > PBOX_MAX_SEGMENTS)
		return;
	last[-1].elements += last->elements;
	last[-1].segments = (uint16_t)(last[-1].segments + last->segments);
	l->n_chunks--;
}

/* All small tensors of one group, in order; a tensor may straddle two chunks. */
static int
add_small_of_group(struct builder *b, const struct pbox_tensor *t, const uint32_t *next,
	uint32_t first, uint32_t chunk_elements, uint32_t frag_elements)
{
	uint32_t first_chunk = b->l->n_chunks;
	bool open = false;

	for (uint32_t i = first; i != NONE; i = next[i]) {
		uint64_t at = 0;

		while (at < t[i].elements) {
			const struct pbox_layout_chunk *c =
				open ? &b->l->chunk[b->l->n_chunks - 1] : NULL;
			uint32_t room = open ? chunk_elements - c->elements : 0;
			uint64_t left = t[i].elements - at;
			bool fresh = room == 0 || c->segments == PBOX_MAX_SEGMENTS;
			uint32_t take;
			int ret;

			if (fresh)
				room = chunk_elements;
			take = left < room ? (uint32_t)left : room;
			ret = add_segment(b, fresh, i, t[i].group, at, take);
			if (ret < 0)
				return ret;
			open = true;
			at += take;
		}
	}
	join_rest(b->l, first_chunk, frag_elements);
	return 0;
}

/* The small tensors of each group as a list, so that a table of a million takes no longer than it
 * must. Returns what follows each one, for free(). */
static uint32_t *
chain_small(const struct pbox_tensor *t, uint32_t n, uint32_t frag_elements,
	uint32_t first[PBOX_MAX_GROUPS])
{
	uint32_t *next = reallocarray(NULL, (size_t)n + 1, sizeof(*next));

	for (unsigned g = 0; g < PBOX_MAX_GROUPS; g++)
		first[g] = NONE;
	for (uint32_t i = n; next != NULL && i-- > 0;) {
		PBOX_ASSERT(t[i].group < PBOX_MAX_GROUPS);
		if (t[i].elements == 0 || t[i].elements >= frag_elements)
			continue;
		next[i] = first[t[i].group];
		first[t[i].group] = i;
	}
	return next;
}

/* A frame says in 16 bits which fragment it is, and the last chunk of a tensor may have one more. */
static uint32_t
whole_fragments(uint64_t elements, uint32_t frag_elements)
{
	const uint64_t most = (uint64_t)(UINT16_MAX - 1) * frag_elements;

	if (elements > most)
		elements = most;
	return elements < frag_elements ? frag_elements
					: (uint32_t)(elements - elements % frag_elements);
}

uint32_t
pbox_layout_chunk(const struct pbox_tensor *t, uint32_t n, unsigned cores, uint32_t wanted,
	uint32_t frag_elements)
{
	uint64_t all = 0, most;

	PBOX_ASSERT(frag_elements > 0);
	if (cores < 2)
		return whole_fragments(wanted, frag_elements);
	for (uint32_t i = 0; i < n; i++)
		if (__builtin_add_overflow(all, t[i].elements, &all))
			all = UINT64_MAX;
	/* the last chunk of a tensor may be larger by less than a fragment */
	most = all / cores / PBOX_LAYOUT_PARTS;
	most = most >= frag_elements ? most - (frag_elements - 1) : 0;
	return whole_fragments(most < wanted ? most : wanted, frag_elements);
}

/* It lives as long as its table: give back what it grew by. */
static void
layout_shrink(struct pbox_layout *l)
{
	void *p = l->n_chunks > 0 ? reallocarray(l->chunk, l->n_chunks, sizeof(*l->chunk)) : NULL;

	if (p != NULL)
		l->chunk = p;
	p = l->n_segments > 0 ? reallocarray(l->segment, l->n_segments, sizeof(*l->segment)) : NULL;
	if (p != NULL)
		l->segment = p;
}

int
pbox_layout_build(struct pbox_layout *out, const struct pbox_tensor *t, uint32_t n,
	uint32_t chunk_elements, uint32_t frag_elements, struct pbox_error *err)
{
	struct pbox_layout l = {0};
	struct builder b = {.l = &l};
	uint32_t first[PBOX_MAX_GROUPS], *next;
	int ret = 0;

	PBOX_ASSERT(frag_elements > 0);
	chunk_elements = whole_fragments(chunk_elements, frag_elements);
	next = chain_small(t, n, frag_elements, first);
	if (next == NULL)
		ret = -ENOMEM;
	for (uint32_t i = 0; i < n && ret == 0; i++) {
		if (t[i].elements >= frag_elements)
			ret = add_large(&b, &t[i], i, chunk_elements, frag_elements);
		else if (first[t[i].group] == i)
			ret = add_small_of_group(&b, t, next, i, chunk_elements, frag_elements);
	}
	free(next);
	if (ret == 0) {
		layout_shrink(&l);
		*out = l;
		return 0;
	}
	pbox_layout_free(&l);
	if (ret == -E2BIG)
		return pbox_fail(err, E2BIG,
			"tensor %u ('%s', %llu elements) makes the table too large: at most %u chunks of %u elements: raise 'chunk-bytes'",
			b.tensor, t[b.tensor].name, (unsigned long long)t[b.tensor].elements,
			1u << PBOX_CHUNK_BITS, chunk_elements);
	return pbox_fail(err, ENOMEM, "out of memory for the map of %u tensors", n);
}

void
pbox_layout_free(struct pbox_layout *l)
{
	free(l->chunk);
	free(l->segment);
	*l = (struct pbox_layout){0};
}
