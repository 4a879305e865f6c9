/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>

#include "worker_impl.h"

/* The tables of a worker, and a hash from the number of a chunk to its table. */

static uint32_t
ref_hash(uint32_t id, uint32_t cap)
{
	return (uint32_t)((id * 0x9E3779B97F4A7C15ull) >> 32) & (cap - 1);
}

static void
ref_put(struct chunk_ref *refs, uint32_t cap, struct chunk_ref r)
{
	uint32_t i = ref_hash(r.id, cap);

	while (refs[i].table != NULL && refs[i].id != r.id)
		i = (i + 1) & (cap - 1);
	refs[i] = r;
}

const struct chunk_ref *
chunks_find(const struct pbox_worker *w, uint32_t id)
{
	uint32_t i;

	if (w->refs_cap == 0)
		return NULL;
	for (i = ref_hash(id, w->refs_cap); w->refs[i].table != NULL;
		i = (i + 1) & (w->refs_cap - 1))
		if (w->refs[i].id == id)
			return &w->refs[i];
	return NULL;
}

static int
add_refs(struct pbox_worker *w, struct pbox_worker_table *t)
{
	uint32_t cap = w->refs_cap > 0 ? w->refs_cap : 1024;
	uint64_t need = 2ull * ((uint64_t)w->refs_used + t->chunks);

	while (cap < need && cap < 1u << 31)
		cap *= 2;
	if (cap < need)
		return -ENOMEM;
	if (cap != w->refs_cap) {
		struct chunk_ref *refs = calloc(cap, sizeof(*refs));

		if (refs == NULL)
			return -ENOMEM;
		for (uint32_t i = 0; i < w->refs_cap; i++)
			if (w->refs[i].table != NULL)
				ref_put(refs, cap, w->refs[i]);
		free(w->refs);
		w->refs = refs;
		w->refs_cap = cap;
	}
	for (uint32_t i = 0; i < t->chunks; i++)
		ref_put(w->refs, cap, (struct chunk_ref){t->chunk[i].id, i, t});
	w->refs_used += t->chunks;
	return 0;
}

int
chunks_add_table(struct pbox_worker *w, struct pbox_worker_table *t)
{
	assert(t->number == w->tables);
	if (w->tables == w->tables_cap) {
		uint32_t cap = w->tables_cap * 2 + 8;
		struct pbox_worker_table **list = reallocarray(w->table, cap, sizeof(*list));

		if (list == NULL)
			return -ENOMEM;
		w->table = list;
		w->tables_cap = cap;
	}
	if (add_refs(w, t) != 0)
		return -ENOMEM;
	w->table[w->tables++] = t;
	for (unsigned b = 0; b < w->boxes; b++)
		for (unsigned i = 0; i < w->box[b]->endpoints; i++)
			window_limit(&w->box[b]->ep[i].win, nodes_window(w, w->box[b]->window));
	return 0;
}
