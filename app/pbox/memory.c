/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>

#include <rte_malloc.h>

#include "box.h"

/* What the cores still take after the arenas: pools for answers, rings. */
#define CORE_NEEDS ((size_t)6 << 20)
#define BASE_NEEDS ((size_t)8 << 20)
#define LEAST      ((size_t)1 << 20)
#define ALIGN      64

/* All that is left but for a quarter, and less where it is in pieces. */
static void *
take_auto(const struct box *b, int node, size_t *size)
{
	size_t page, left = pbox_memory_free(node, &page);
	size_t keep = BASE_NEEDS + b->n_cores * CORE_NEEDS;

	left = left > keep ? (left - keep) / 4 * 3 : 0;
	for (; left >= LEAST; left = left / 4 * 3) {
		void *p =
			rte_zmalloc_socket("pbox_arena", left & ~(size_t)(ALIGN - 1), ALIGN, node);

		if (p != NULL) {
			*size = left & ~(size_t)(ALIGN - 1);
			return p;
		}
	}
	*size = LEAST;
	return NULL;
}

int
memory_take(struct box *b, struct pbox_error *err)
{
	for (unsigned i = 0; i < b->n_nodes; i++) {
		size_t size = b->opt.memory & ~(uint64_t)(ALIGN - 1);
		char what[64];

		if (size > 0)
			b->memory[i] = rte_zmalloc_socket("pbox_arena", size, ALIGN, b->node[i]);
		else
			b->memory[i] = take_auto(b, b->node[i], &size);
		if (b->memory[i] == NULL) {
			snprintf(what, sizeof(what), "parameter memory of NUMA node %d needs",
				b->node[i]);
			return pbox_memory_fail(err, what, b->node[i], size);
		}
		b->memory_size[i] = size;
		b->arena[i] = pbox_arena_create(b->memory[i], size);
		if (b->arena[i] == NULL)
			return pbox_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}

void
memory_give_back(struct box *b)
{
	for (unsigned i = 0; i < b->n_nodes; i++) {
		if (b->arena[i] != NULL)
			pbox_arena_destroy(b->arena[i]);
		rte_free(b->memory[i]);
	}
}
