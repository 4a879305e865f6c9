/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Chunks of a table, shared out again by weights of boxes. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pbox_spread.h"

struct spread_size {
	uint32_t elements, chunk;
};

static int
spread_order(const void *x, const void *y)
{
	const struct spread_size *a = x, *b = y;

	if (a->elements != b->elements)
		return a->elements > b->elements ? -1 : 1;
	return a->chunk < b->chunk ? -1 : a->chunk > b->chunk;
}

static unsigned
spread_most_wanting(unsigned boxes, const uint32_t *weight, const int64_t *lack)
{
	unsigned best = boxes;

	for (unsigned b = 0; b < boxes; b++)
		if (weight[b] > 0 && (best == boxes || lack[b] > lack[best]))
			best = b;
	return best;
}

int
pbox_spread(const struct pbox_layout *l, unsigned boxes, const uint32_t *weight, uint8_t *home,
	int64_t *lack)
{
	struct spread_size *size = calloc(l->n_chunks > 0 ? l->n_chunks : 1, sizeof(*size));
	uint64_t sum = 0;
	int moved = 0;

	PBOX_ASSERT(boxes >= 1 && boxes <= PBOX_MAX_BOXES);
	if (size == NULL)
		return -ENOMEM;
	for (unsigned b = 0; b < boxes; b++)
		sum += weight[b];
	PBOX_ASSERT(sum > 0);
	for (unsigned b = 0; b < boxes; b++) /* elements are below 2^43, weights at most 2^20 */
		lack[b] += (int64_t)(l->elements * weight[b] / sum);
	for (uint32_t i = 0; i < l->n_chunks; i++) {
		PBOX_ASSERT(home[i] < boxes);
		size[i] = (struct spread_size){l->chunk[i].elements, i};
		lack[home[i]] -= l->chunk[i].elements;
	}
	qsort(size, l->n_chunks, sizeof(*size), spread_order);
	for (uint32_t k = 0; k < l->n_chunks; k++) {
		unsigned from = home[size[k].chunk];
		unsigned to = spread_most_wanting(boxes, weight, lack);
		int64_t elements = size[k].elements, half = (elements + 1) / 2;

		if (weight[from] > 0 && (from == to || -lack[from] <= half || lack[to] < half))
			continue;
		home[size[k].chunk] = (uint8_t)to;
		lack[from] += elements;
		lack[to] -= elements;
		moved++;
	}
	free(size);
	return moved;
}
