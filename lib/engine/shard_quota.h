/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SHARD_QUOTA_H
#define SHARD_QUOTA_H

/*
 * What a job, and a worker of it, may ask of a core (R6.12). Contributions that move a round are
 * bounded by the window; frames that move nothing (repetitions, pulls, pings) are answered with up
 * to a full frame each, and are bounded here: each costs a credit, and a worker earns one with every
 * contribution and with time.
 */

#include <stdbool.h>
#include <stdint.h>

#define REPEAT_CREDIT 16384 /* most that is saved up */

/* Of one worker: a token bucket in units of time. */
struct repeat_credit {
	uint64_t empty_ns; /* when it was, or would have been, last empty; 0: full */
};

/* A contribution has come. */
static inline void
repeat_earn(struct repeat_credit *c, uint32_t interval_ns)
{
	c->empty_ns -= c->empty_ns > interval_ns ? interval_ns : 0;
}

/* May one more frame that moves nothing be answered? Rare, and kept out of the way of others.
 * interval_ns: of one frame; 0: as many as come. */
static __attribute__((noinline, unused)) bool
repeat_spend(struct repeat_credit *c, uint32_t interval_ns, uint64_t now_ns)
{
	uint64_t full = (uint64_t)REPEAT_CREDIT * interval_ns;

	if (c->empty_ns == 0 || now_ns - c->empty_ns > full)
		c->empty_ns = now_ns - full;
	if (now_ns - c->empty_ns < interval_ns)
		return false;
	c->empty_ns += interval_ns;
	return true;
}

/* Frames a second of one job on one core: the operator's limit. interval_ns 0: none. */
struct job_rate {
	uint64_t
		empty; /* when it was, or would have been, last empty; in units of RATE_UNIT a ns */
	uint32_t interval; /* of one frame, in the same unit */
};

/* 2^-6 ns: up to 64 G frames a second, and nine years of uptime. */
#define RATE_UNIT 64
/* How long a job may have been idle and still send what it saved up at once. */
#define RATE_BURST_NS UINT64_C(10000000)

static inline void
job_rate_set(struct job_rate *r, uint64_t frames_per_s)
{
	r->empty = 0;
	r->interval = frames_per_s == 0
			      ? 0
			      : (uint32_t)((UINT64_C(1000000000) * RATE_UNIT + frames_per_s - 1) /
					   frames_per_s);
}

static __attribute__((noinline, unused)) bool
job_rate_limit(struct job_rate *r, uint64_t now_ns)
{
	uint64_t now = now_ns * RATE_UNIT, burst = RATE_BURST_NS * RATE_UNIT;

	if (burst < r->interval) /* a slow job still gets its one */
		burst = r->interval;
	if (now > burst && r->empty < now - burst)
		r->empty = now - burst;
	if (now < r->empty + r->interval)
		return false;
	r->empty += r->interval;
	return true;
}

static inline bool
job_rate_take(struct job_rate *r, uint64_t now_ns)
{
	return r->interval == 0 || job_rate_limit(r, now_ns);
}

#endif /* SHARD_QUOTA_H */
