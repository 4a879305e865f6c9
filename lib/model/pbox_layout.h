/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_LAYOUT_H
#define PBOX_LAYOUT_H

/**
 * @file
 * From tensors to chunks, and from chunks to endpoints. Control thread only; allocates with
 * malloc.
 *
 * A tensor of at least one full fragment has chunks of its own; smaller ones of the same group
 * are laid one behind the other and share chunks, so that no chunk is a 40-byte packet
 * (doc/protocol.md R5.9). All chunks but the last of a tensor, or of a packed run, are whole
 * numbers of fragments.
 */

#include <stdint.h>

#include <pbox_base.h>
#include <pbox_wire.h>

struct pbox_tensor {
	uint64_t elements;
	uint16_t group;
	char name[PBOX_NAME_LEN];
};

struct pbox_layout_chunk {
	uint32_t elements, first_segment;
	uint16_t segments, group, endpoint;
};

struct pbox_layout {
	uint32_t n_chunks, n_segments;
	uint64_t elements; /**< of all chunks together */
	struct pbox_layout_chunk *chunk;
	struct pbox_segment *segment;
};

/**
 * @param chunk_elements  wanted size of a chunk; rounded down to whole fragments, at least one
 * @param frag_elements   elements of a full fragment, > 0
 * @return 0, or -errno with @p err filled: -ENOMEM, -E2BIG (more than 2^32 - 1 chunks)
 */
int pbox_layout_build(struct pbox_layout *out, const struct pbox_tensor *t, uint32_t n,
	uint32_t chunk_elements, uint32_t frag_elements, struct pbox_error *err);
void pbox_layout_free(struct pbox_layout *l);

/**
 * Set partition of the chunks over @p endpoints by elements, largest first, each to the least
 * loaded one (Graham's LPT rule, 1969: at most 4/3 of the optimum, and close to it for many small
 * items). Ties go to the lower number, so that every box places alike.
 *
 * @param load  in/out, per endpoint: elements already placed there by other tables
 * @return 0 or -ENOMEM
 */
int pbox_layout_place(struct pbox_layout *l, unsigned endpoints, uint64_t *load);

#endif /* PBOX_LAYOUT_H */
