/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>

#include "pbox_layout.h"

struct item {
	uint32_t elements, chunk;
};

static int
larger_first(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->elements != y->elements)
		return x->elements > y->elements ? -1 : 1;
	return x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

int
pbox_layout_place(struct pbox_layout *l, unsigned endpoints, uint64_t *load)
{
	struct item *item = reallocarray(NULL, l->n_chunks + 1, sizeof(*item));

	PBOX_ASSERT(endpoints > 0);
	if (item == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->n_chunks; i++)
		item[i] = (struct item){.elements = l->chunk[i].elements, .chunk = i};
	qsort(item, l->n_chunks, sizeof(*item), larger_first);
	for (uint32_t i = 0; i < l->n_chunks; i++) {
		unsigned best = 0;

		for (unsigned e = 1; e < endpoints; e++)
			if (load[e] < load[best])
				best = e;
		l->chunk[item[i].chunk].endpoint = (uint16_t)best;
		load[best] += item[i].elements;
	}
	free(item);
	return 0;
}
