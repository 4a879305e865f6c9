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
 * Memory given out is zero: the region must be zero at creation, and what is freed waits until it is
 * cleared, slice by slice, before anybody gets it: nothing of a job is left for the next, and nobody
 * waits while gigabytes are cleared.
 */

#include <stdbool.h>
#include <stddef.h>

#define PBOX_MAX_NODES 8 /**< NUMA nodes: an arena each */

/** Cleared at once of what is freed between two pbox_arena_clear(); the rest waits. */
#define PBOX_ARENA_SLICE ((size_t)2 << 20)

struct pbox_arena;

/** @p base must be 64-byte aligned, zeroed and live as long as the arena. NULL: out of memory. */
struct pbox_arena *pbox_arena_create(void *base, size_t size);
void pbox_arena_destroy(struct pbox_arena *a);

/** 64-byte aligned zeroed memory, or NULL when no gap is large enough. size 0 gives NULL. */
void *pbox_arena_alloc(struct pbox_arena *a, size_t size);
/** Give back; NULL is allowed. Small pieces are cleared at once, others by pbox_arena_clear(). */
void pbox_arena_free(struct pbox_arena *a, void *p);
/** Clear up to @p bytes of what was given back. @return bytes that still wait */
size_t pbox_arena_clear(struct pbox_arena *a, size_t bytes);
/** Given back and not cleared yet. */
size_t pbox_arena_uncleared(const struct pbox_arena *a);
/** Would an allocation succeed when all that was given back is cleared? */
bool pbox_arena_later(const struct pbox_arena *a, size_t size);
/** How to clear: makes @p len bytes at @p at zero, pages that were never touched without touching them,
 * or says false: then they are written. NULL: all are written. */
typedef bool (*pbox_arena_discard)(void *at, size_t len);
void pbox_arena_clear_by(struct pbox_arena *a, pbox_arena_discard discard);

size_t pbox_arena_size(const struct pbox_arena *a);
/** Without what waits to be cleared. */
size_t pbox_arena_used(const struct pbox_arena *a);
/** Largest allocation that would succeed now. */
size_t pbox_arena_largest(const struct pbox_arena *a);

#endif /* PBOX_ARENA_H */
