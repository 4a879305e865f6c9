/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TABLE_MEMORY_H
#define TABLE_MEMORY_H

/* Private to lib/model: the memory of a chunk in its extent. */

#include "pbox_table.h"

static inline uint32_t
table_fragments_of(const struct pbox_table *t, uint32_t elements)
{
	return (elements + t->frag_elements - 1) / t->frag_elements;
}

/* Bytes of one chunk in its endpoint's extent. */
size_t table_chunk_bytes(const struct pbox_table *t, uint32_t elements);
/* Place a chunk, whose elements and fragments are set, at that address; returns the one after it. */
uint8_t *table_carve(uint8_t *at, const struct pbox_table *t, struct pbox_chunk *c);

#endif /* TABLE_MEMORY_H */
