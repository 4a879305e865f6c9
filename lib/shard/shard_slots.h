/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SHARD_SLOTS_H
#define SHARD_SLOTS_H

/* Slots of a job as a shard sees them: whose they are, and bitmaps of them (R5.2a, R5.2b). */

#include "shard_impl.h"

/* What a contribution brings: slots from `first` on, a node of that level. In jobs whose frames name no nodes it is one
 * slot: a constant where functions are inlined, so that these jobs pay nothing for those that do. */
struct slots {
	uint16_t first, n, level;
	bool named;
	bool late; /* they were its worker's, and are others' now (R15.7) */
};

/* A worker has all slots from its first one on, up to those of the next. */
static inline unsigned
slots_begin(const struct pbox_shard_job *j, unsigned worker)
{
	return pbox_slots_of(worker, j->job->workers, j->slots);
}

static inline unsigned
slots_end(const struct pbox_shard_job *j, unsigned worker)
{
	return slots_begin(j, worker + 1);
}

/*
 * Whose the slots are is a policy beside the discipline: all of a job's tables have the one that the job began with, and no
 * file but that of the policy asks which it is.
 */
struct slots_policy {
	/* Who has the slot in the round in progress of the fragment; PBOX_SLOT_NOBODY: nobody. */
	unsigned (*owner)(const struct target *g, unsigned slot);
	/* A worker brings a node: which slots may it be of, first to last - 1? Or some of it were the worker's, and have been
	 * given to others (n->late). False: it brings nothing. */
	bool (*range)(const struct target *g, const struct pbox_frame *f, struct pbox_node node,
		unsigned *first, unsigned *last, struct slots *n);
	/* Is a part of the slots there, which others cut otherwise? */
	bool (*partly_there)(const struct target *g, const struct pbox_frame *f, struct slots n);
	/* The first slot that the worker may bring and that is not there; j->slots: none. */
	unsigned (*own_missing)(const struct target *g, unsigned worker);
	/* The frame is about a round that is over. True: it ended without the worker, and that is answered and counted. */
	bool (*overtaken)(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
};

/* slots_fixed.c: a worker has the slots that it began with (R5.2a). slots_plan.c: owners change (section 15). */
extern const struct slots_policy slots_fixed, slots_by_plan;

static inline unsigned
slots_owner(const struct target *g, unsigned slot)
{
	return g->j->policy->owner(g, slot);
}

/* The bits of word `word` that are those of first to end - 1. In the functions below first may be end: then no word is
 * looked at. */
static inline uint64_t
bits_in(unsigned word, unsigned first, unsigned end)
{
	unsigned from = word * 64 > first ? 0 : first - word * 64;
	unsigned until = end > word * 64 + 64 ? 64 : end - word * 64;

	return UINT64_MAX >> (64 - (until - from)) << from;
}

static inline void
bits_set(uint64_t *map, unsigned first, unsigned end)
{
	for (unsigned i = first / 64; first < end && i * 64 < end; i++)
		map[i] |= bits_in(i, first, end);
}

static inline void
bits_clear(uint64_t *map, unsigned first, unsigned end)
{
	for (unsigned i = first / 64; first < end && i * 64 < end; i++)
		map[i] &= ~bits_in(i, first, end);
}

static inline unsigned
bits_count(const uint64_t *map, unsigned first, unsigned end)
{
	unsigned n = 0;

	for (unsigned i = first / 64; first < end && i * 64 < end; i++)
		n += (unsigned)__builtin_popcountll(map[i] & bits_in(i, first, end));
	return n;
}

/* The first of first to end - 1 that is set; end: none is. */
static inline unsigned
bits_next(const uint64_t *map, unsigned first, unsigned end)
{
	for (unsigned i = first / 64; first < end; i++) {
		uint64_t left = map[i] & bits_in(i, first, end);

		if (left != 0)
			return i * 64 + (unsigned)__builtin_ctzll(left);
		first = (i + 1) * 64;
	}
	return end;
}

/* The first that is not. */
static inline unsigned
bits_next_clear(const uint64_t *map, unsigned first, unsigned end)
{
	for (unsigned i = first / 64; first < end; i++) {
		uint64_t left = ~map[i] & bits_in(i, first, end);

		if (left != 0)
			return i * 64 + (unsigned)__builtin_ctzll(left);
		first = (i + 1) * 64;
	}
	return end;
}

#endif /* SHARD_SLOTS_H */
