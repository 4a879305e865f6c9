/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CHAOS_FAULTS_H
#define CHAOS_FAULTS_H

#include "chaos.h"

/* What befalls one packet (chaos_faults.c); called by the thread that has the queue. */

static inline void
chaos_count(struct chaos_queue *q, enum chaos_counter c, uint64_t n)
{
	/* one writer: no need for an atomic addition, only for a store in one piece */
	__atomic_store_n(&q->n[c], q->n[c] + n, __ATOMIC_RELAXED);
}

/* splitmix64 */
static inline uint64_t
chaos_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* Draws a number only where the fault is on, so that the sequence starts when it is switched on. */
static inline bool
chaos_strikes(struct chaos_queue *q, enum chaos_fault f, double p)
{
	return p > 0 && (double)(chaos_random(&q->rng[f]) >> 11) * 0x1p-53 < p;
}

/* Uniform in 0 to n - 1; the bias of 2^-32 does not matter here. */
static inline uint32_t
chaos_random_below(struct chaos_queue *q, enum chaos_fault f, uint32_t n)
{
	return (uint32_t)(((chaos_random(&q->rng[f]) >> 32) * n) >> 32);
}

/* CHAOS_COUNTER_MAX: it lives. */
enum chaos_counter chaos_cause_of_death(struct chaos_queue *q, const struct rte_mbuf *m);
/* The packet for another delivery; NULL without an mbuf. */
struct rte_mbuf *chaos_copy(struct chaos_queue *q, struct rte_mbuf *m, uint32_t len);
/* These take the packet and return it or what stands for it. */
struct rte_mbuf *chaos_corrupt(struct chaos_queue *q, struct rte_mbuf *m);
struct rte_mbuf *chaos_mark(struct chaos_queue *q, struct rte_mbuf *m);
struct rte_mbuf *chaos_cut_short(struct chaos_queue *q, struct rte_mbuf *m);
/* NULL: dropped for want of an mbuf, and counted. */
struct rte_mbuf *chaos_fit_to_hold(struct chaos_queue *q, struct rte_mbuf *m);

#endif /* CHAOS_FAULTS_H */
