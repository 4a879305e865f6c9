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

/* Of a job with a plan: who owns each slot in that round. */
static inline const uint16_t *
slots_map(const struct pbox_shard_job *j, uint32_t round)
{
	bool newer;

	if (__builtin_expect(j->owners.only != 0 && round == j->owners.only, 0))
		return j->owners.map[2]; /* slots were stolen */
	newer = j->owners.from != 0 && pbox_serial_diff(round, j->owners.from) >= 0;

	return j->owners.map[newer];
}

/* In the round in progress of the fragment: without a plan the last worker whose first slot is not after this one. */
static inline unsigned
slots_owner(const struct target *g, unsigned slot)
{
	const struct pbox_shard_job *j = g->j;

	if (j->planned)
		return slots_map(j, g->fragment->version + 1)[slot] & PBOX_SLOT_WORKER;
	return ((slot + 1) * j->job->workers - 1) / j->slots;
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
