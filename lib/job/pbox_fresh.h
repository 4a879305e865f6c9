/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_FRESH_H
#define PBOX_FRESH_H

/*
 * What is a worker's newest frame, and from where it comes (R4.9). `ts` has 32 bits and begins again after 71
 * minutes, so a worker sends the 32 bits above them as well. Of one that does not, they are made of the box's clock: a
 * frame of a session was sent after WELCOME and is not from the future, so it is the latest time with these 32 bits
 * that is not ahead of what the worker's clock can show by now. What was recorded in the life of a session stays old
 * forever; but of a worker that sends only 32 bits it is new again when just 71.58 minutes have passed.
 *
 * struct pbox_job_fresh: the control thread begins it; any core of the box may move it on.
 */

#include <pbox_job.h>

#define PBOX_FRESH_NS_PER_US UINT64_C(1000)
/* Two clocks differ by less, between two looks at them. */
#define PBOX_FRESH_SLACK_US UINT64_C(2000000)
/* Frames of one worker overtake each other by less, on their ways to several cores. */
#define PBOX_FRESH_ORDER_US UINT64_C(1000000)
/* An address is asked for its proof, and a worker that answers PINGs without one is not asked on and on. */
#define PBOX_FRESH_ASK_NS UINT64_C(20000000)
/* Where ts begins, so that nothing is below 0. */
#define PBOX_FRESH_ORIGIN (UINT64_C(1) << 33)

static inline uint64_t
pbox_fresh_address(const struct pbox_peer *p)
{
	return (uint64_t)p->udp << 32 | p->ip;
}

/* A session begins, at an address that its cookie has proven. No core knows it yet. */
static inline void
pbox_fresh_begin(struct pbox_job_fresh *c, const struct pbox_peer *at, uint64_t now_ns)
{
	atomic_store_explicit(&c->ahead, 0, memory_order_relaxed);
	atomic_store_explicit(&c->newest, 0, memory_order_relaxed);
	atomic_store_explicit(&c->home, pbox_fresh_address(at), memory_order_relaxed);
	atomic_store_explicit(&c->asked, 0, memory_order_relaxed);
	atomic_store_explicit(&c->at_once, 0, memory_order_relaxed);
	atomic_store_explicit(&c->declared, false, memory_order_relaxed);
	c->begun_us = now_ns / PBOX_FRESH_NS_PER_US;
}

/* The worker's first frame, sent at that time since WELCOME. */
static inline uint64_t
pbox_fresh_first(struct pbox_job_fresh *c, uint64_t at)
{
	uint64_t none = 0, ahead = at - c->begun_us;

	if (ahead == 0)
		ahead = 1;
	return atomic_compare_exchange_strong_explicit(
		       &c->ahead, &none, ahead, memory_order_relaxed, memory_order_relaxed)
		       ? ahead
		       : none;
}

/* When a frame that is intact was sent, by the worker's clock, in us. upper: bits 32 to 63 of it, 0: it sends none. */
static inline uint64_t
pbox_fresh_time(struct pbox_job_fresh *c, uint32_t ts, uint32_t upper, uint64_t now_ns)
{
	uint64_t ahead = atomic_load_explicit(&c->ahead, memory_order_relaxed), latest, at;

	at = upper != 0 ? (uint64_t)upper << 32 | ts : PBOX_FRESH_ORIGIN + ts;
	if (ahead == 0)
		ahead = pbox_fresh_first(c, at);
	latest = now_ns / PBOX_FRESH_NS_PER_US + ahead + PBOX_FRESH_SLACK_US;
	if (upper == 0)
		at = latest - (uint32_t)((uint32_t)latest - ts);
	if (at > latest - PBOX_FRESH_SLACK_US) /* its clock is the faster one */
		atomic_store_explicit(&c->ahead, ahead + at - (latest - PBOX_FRESH_SLACK_US),
			memory_order_relaxed);
	return at;
}

#endif /* PBOX_FRESH_H */
