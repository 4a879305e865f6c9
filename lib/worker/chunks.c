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
	assert((cap & (cap - 1)) == 0 && w->refs_used + t->chunks <= cap / 2);
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

/** The pieces of a tensor, sorted by lane; @p list has room for them. */
static void
cut_tensor(struct pbox_worker *w, struct pbox_worker_table *t, uint32_t tensor, uint32_t *list)
{
	const struct tensor *x = &t->tensor[tensor];
	uint32_t *by = &t->by_tensor[x->by_first], n = 0;

	for (unsigned lane = 0; lane < w->lanes; lane++) {
		struct queue *q = table_queue(t, lane, tensor);

		q->by_first = x->by_first + n;
		for (uint32_t i = 0; i < x->by_count; i++)
			if (t->chunk[t->frag[t->piece[by[i]].frag].chunk].lane == lane)
				list[n++] = by[i];
		q->by_count = x->by_first + n - q->by_first;
	}
	assert(n == x->by_count); /* each piece is of one lane */
	memcpy(by, list, n * sizeof(*by));
}

/** The queues of the table, by lane. */
static int
cut_table(struct pbox_worker *w, struct pbox_worker_table *t)
{
	size_t tensors = (size_t)t->n * t->discipline->lanes;
	uint32_t *list = malloc(t->pieces > 0 ? t->pieces * sizeof(*list) : 1);

	t->queue = calloc(tensors > 0 ? tensors * w->lanes : 1, sizeof(*t->queue));
	if (t->queue != NULL && list != NULL) {
		for (uint32_t i = 0; i < t->chunks; i++)
			t->chunk[i].lane = (uint16_t)worker_endpoint(w, &t->chunk[i])->lane->number;
		for (uint32_t i = 0; i < tensors && t->pieces > 0; i++)
			cut_tensor(w, t, i, list);
	}
	free(list);
	return t->queue != NULL && list != NULL ? 0 : -ENOMEM;
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
	if (cut_table(w, t) != 0 || add_refs(w, t) != 0)
		return -ENOMEM;
	w->table[w->tables++] = t;
	for (unsigned b = 0; b < w->boxes; b++)
		for (unsigned i = 0; i < w->box[b]->endpoints; i++)
			window_limit(&w->box[b]->ep[i].win, nodes_window(w, w->box[b]->window));
	return 0;
}
