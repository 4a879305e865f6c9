/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_STAGING_H
#define PBOX_STAGING_H

/**
 * @file
 * A copy of one table at one round, taken while its rounds go on.
 *
 * The control thread gives the memory, lays the copy out in slices, and chooses the round. Each shard copies its own fragments when
 * they are at just that round: a few with each mail (those that are there already), one when it
 * finishes it, and one before it goes beyond it. Nobody waits. A fragment that was beyond already is
 * missed, and then all of it is done again for a later round.
 */

#include <pbox_job_types.h>
#include <pbox_table.h>

/** One fragment, in the order of chunks. Its shard writes it. */
struct pbox_staging_fragment {
	uint32_t version, samples;
	uint16_t contributors;
	bool copied;
};

/** Where a chunk's copy is; of a chunk that is at another box there is none. */
struct pbox_staging_chunk {
	uint64_t element;  /**< of an array */
	uint32_t fragment; /**< its first one */
	bool here;
};

/** What a shard has done; its own until it has answered the mail. */
struct pbox_staging_shard {
	uint32_t chunk, fragment; /**< where it looks next */
	uint32_t waiting;         /**< looked at, and not at the round yet */
	uint32_t missed;
	uint32_t behind; /**< of those looked at: they are older than pbox_staging.oldest, */
	uint32_t lowest; /**< and the first of them is here */
	bool looked;     /**< at all of them */
} __attribute__((aligned(PBOX_CACHE_LINE)));

struct pbox_staging {
	const struct pbox_table *table;
	uint32_t round;
	uint32_t
		oldest; /**< round of the least finished fragment of a table whose tensors go on together */
	uint32_t laid_out;  /**< chunks */
	uint16_t map_epoch; /**< of the job when it began: of a later map it is no copy */
	unsigned arrays;    /**< parameters, and pbox_table_states() */
	uint64_t elements;  /**< of an array: those of chunks that are here */
	uint32_t n_chunks, n_fragments;
	struct pbox_staging_chunk *chunk;
	struct pbox_staging_fragment *fragment;
	float *array[4]; /**< one after the other */
	struct pbox_staging_shard shard[PBOX_MAX_SHARDS];
};

/** What the copy of a table needs: arrays, fragments, chunks. */
size_t pbox_staging_bytes(const struct pbox_table *t);
/** A copy of @p t in @p memory, 64-byte aligned, of pbox_staging_bytes(). Control thread. */
void pbox_staging_begin(struct pbox_staging *staging, const struct pbox_table *t, void *memory);
/** So many fragments, and chunks, are laid out by one call: others' requests wait meanwhile. */
#define PBOX_STAGING_SLICE 4096u
/** Lay some more of it out. Control thread; no shard knows it yet. False: call it again. */
bool pbox_staging_lay_out(struct pbox_staging *staging);

#endif /* PBOX_STAGING_H */
