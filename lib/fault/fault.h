/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FAULT_H
#define FAULT_H

/* A line inside: what happens to one frame (strike.c), and its way (line.c). */

#include "pbox_fault.h"

#define FAULT_READY 1024 /* frames on their way out; a power of two */

/* One independent sequence of random numbers a fault: switching one on does not shift another. */
enum fault_kind {
	FAULT_LOSS,
	FAULT_BURST,
	FAULT_GILBERT,
	FAULT_DUP,
	FAULT_CORRUPT,
	FAULT_TRUNCATE,
	FAULT_REORDER,
	FAULT_DELAY,
	FAULT_MARK,
	FAULT_KINDS
};

struct fault_delayed {
	uint64_t due; /* ticks */
	uint64_t order;
	void *frame;
};

struct fault_held {
	uint64_t due;    /* ticks, at the latest */
	uint64_t passed; /* when that many have passed */
	void *frame;
};

struct pbox_fault_line {
	const struct pbox_fault_ops *ops;
	void *ctx;
	uint32_t *target_left;
	uint64_t ticks_per_us;
	uint64_t stream; /* direction and number: part of the seed */
	uint32_t limit;
	uint32_t burst_left;
	bool active;
	bool gilbert_bad;
	uint64_t rng[FAULT_KINDS];
	uint64_t passed;
	uint64_t order;
	uint32_t n_held, n_delayed, ready_head, ready_tail;
	uint32_t waiting; /* all of them; read by others */
	uint64_t n[PBOX_FAULT_COUNTER_MAX];
	struct pbox_fault_conf conf;
	struct fault_held held[PBOX_FAULT_WINDOW_MAX];
	void *ready[FAULT_READY];
	struct fault_delayed delayed[]; /* heap by due and order */
};

static inline void
fault_count(struct pbox_fault_line *l, enum pbox_fault_counter c, uint64_t n)
{
	/* one writer: no need for an atomic addition, only for a store in one piece */
	__atomic_store_n(&l->n[c], l->n[c] + n, __ATOMIC_RELAXED);
}

/* splitmix64 */
static inline uint64_t
fault_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* Draws a number only where the fault is on, so that the sequence starts when it is switched on. */
static inline bool
fault_strikes(struct pbox_fault_line *l, enum fault_kind f, double p)
{
	return p > 0 && (double)(fault_random(&l->rng[f]) >> 11) * 0x1p-53 < p;
}

/* Uniform in 0 to n - 1; the bias of 2^-32 does not matter here. */
static inline uint32_t
fault_random_below(struct pbox_fault_line *l, enum fault_kind f, uint32_t n)
{
	return (uint32_t)(((fault_random(&l->rng[f]) >> 32) * n) >> 32);
}

/* Start the sequences of the line. */
void fault_seed(struct pbox_fault_line *l);
/* PBOX_FAULT_COUNTER_MAX: it lives. Each model sees each frame that the ones before let live. */
enum pbox_fault_counter fault_cause_of_death(struct pbox_fault_line *l, const void *frame);
/* Mark, damage, cut: the frame, or the one in its place. */
void *fault_spoil(struct pbox_fault_line *l, void *frame);

#endif /* FAULT_H */
