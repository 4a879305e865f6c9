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
 * are laid one after the other and share chunks, so that no chunk is a 40-byte packet
 * (doc/protocol.md R5.9). All chunks but the last of a tensor, or of a packed run, are whole
 * numbers of fragments; what is left after them and is no whole fragment belongs to the last
 * one. It does not join other tensors' rests: that would save less than one packet a tensor, and
 * make operations on large tensors wait for each other.
 */

#include <stdint.h>

#include <pbox_base.h>
#include <pbox_wire.h>

#define PBOX_MAX_GROUPS 1024 /**< hyper-parameter groups of a table */
/** A chunk id is table << PBOX_CHUNK_BITS | index. */
#define PBOX_CHUNK_BITS 20
/** map_epoch of chunks that were never moved. */
#define PBOX_MAP_EPOCH 1

struct pbox_tensor {
	uint64_t elements;
	const char *name; /**< at most PBOX_NAME_LEN - 1 bytes */
	uint16_t group;   /**< below PBOX_MAX_GROUPS */
};

/** Endpoint of a chunk that another box has. */
#define PBOX_ELSEWHERE PBOX_MAX_ENDPOINTS

struct pbox_layout_chunk {
	uint32_t elements, first_segment;
	uint16_t segments, group;
	uint16_t endpoint; /**< of this box, or PBOX_ELSEWHERE */
	uint16_t box;      /**< that has it; 0 where there is one */
};

struct pbox_layout {
	uint32_t n_chunks, n_segments;
	uint64_t elements; /**< of all chunks together */
	struct pbox_layout_chunk *chunk;
	struct pbox_segment *segment;
};

/**
 * @param chunk_elements  wanted size of a chunk; rounded down to whole fragments, at least one.
 *                        The last one of a tensor may be larger by less than a fragment
 * @param frag_elements   elements of a full fragment, > 0
 * @return 0, or -errno with @p err filled: -ENOMEM, -E2BIG (more chunks than ids: found before
 *         much is done)
 */
int pbox_layout_build(struct pbox_layout *out, const struct pbox_tensor *t, uint32_t n,
	uint32_t chunk_elements, uint32_t frag_elements, struct pbox_error *err);
void pbox_layout_free(struct pbox_layout *l);

/** A chunk is at most this part of what one core should get: 1 / 20 keeps max / mean below 1.05. */
#define PBOX_LAYOUT_PARTS 20

/**
 * Size of the chunks of a table, in elements: @p wanted, or less where a table is so small, or has
 * to be spread over so many @p cores, that chunks of that size could not be shared out evenly.
 * Never less than a fragment, which nothing spreads further. @p wanted where one core has all.
 *
 * With chunks of this size pbox_layout_place() gives no core more than the mean plus one chunk:
 * max / mean < 1.05 from 20 x (2 x fragment - 1) elements a core on.
 */
uint32_t pbox_layout_chunk(const struct pbox_tensor *t, uint32_t n, unsigned cores, uint32_t wanted,
	uint32_t frag_elements);

/** What an endpoint is: one core at one port. */
struct pbox_place {
	uint8_t node;  /**< of the core: index into the arenas */
	uint8_t port;  /**< any numbers, as long as they differ */
	uint16_t core; /**< in the same way */
};

/** Different cores of @p endpoints places. */
unsigned pbox_place_cores(const struct pbox_place *place, unsigned endpoints);

/**
 * Which box has which chunk, of a job that is at several: by elements, largest first, each to the box that has
 * least, ties to the lower number (pbox_layout_place). Chunks of other boxes are PBOX_ELSEWHERE then. Pure: all boxes
 * share the same tables out alike, whatever else they have.
 *
 * @param boxes  1 to PBOX_MAX_BOXES
 * @param box    this one
 * @param load   in/out, per box: elements of the job's earlier tables
 * @return 0 or -ENOMEM
 */
int pbox_layout_share(struct pbox_layout *l, unsigned boxes, unsigned box, uint64_t *load);

/**
 * Set partition of the chunks that are not PBOX_ELSEWHERE over endpoints by elements, largest first, each to the core that has
 * least (Graham's LPT rule, 1969: at most 4/3 of the optimum, and at most the mean plus one of the
 * smaller items), there to the endpoint that has least of its share. Cores come first because a
 * core at two ports is no faster than one at one; shares are such that ports get the same
 * where their cores allow it. Ties go to the lower endpoint, so that every box places alike. Pure.
 *
 * @param place      of each endpoint
 * @param endpoints  1 to PBOX_MAX_ENDPOINTS
 * @param load       in/out, per endpoint: elements already placed there by other tables
 * @return 0 or -ENOMEM
 */
int pbox_layout_place(
	struct pbox_layout *l, const struct pbox_place *place, unsigned endpoints, uint64_t *load);

#endif /* PBOX_LAYOUT_H */
