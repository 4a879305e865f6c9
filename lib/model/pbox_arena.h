/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_ARENA_H
#define PBOX_ARENA_H

/**
 * @file
 * The parameter memory of one NUMA node: a region taken at start, handed out to tables in large
 * extents. First fit, best for few long-lived allocations. Control thread only.
 *
 * Memory given out is zero: the region must be zero at creation, and freed extents are cleared at
 * once, so that nothing of a job is left for the next.
 */

#include <stddef.h>

struct pbox_arena;

/** @p base must be 64-byte aligned, zeroed and live as long as the arena. NULL: out of memory. */
struct pbox_arena *pbox_arena_create(void *base, size_t size);
void pbox_arena_destroy(struct pbox_arena *a);

/** 64-byte aligned zeroed memory, or NULL when no gap is large enough. size 0 gives NULL. */
void *pbox_arena_alloc(struct pbox_arena *a, size_t size);
/** Clear and give back; NULL is allowed. */
void pbox_arena_free(struct pbox_arena *a, void *p);

size_t pbox_arena_size(const struct pbox_arena *a);
size_t pbox_arena_used(const struct pbox_arena *a);
/** Largest allocation that would succeed now. */
size_t pbox_arena_largest(const struct pbox_arena *a);

#endif /* PBOX_ARENA_H */
