/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SHARD_QUOTA_H
#define SHARD_QUOTA_H

/*
 * What a job, and a worker of it, may ask of a core (R6.12).
 *
 * Contributions that move a round are bounded by the window. Where a job has a rate its rounds end no
 * faster (rounds_pace.c): the answer to one lets the next be sent, so that senders follow the rate
 * without losing a frame.
 *
 * All other frames (repetitions, pulls, pings) are answered with up to a full frame each, and what is
 * too much is dropped: each costs a credit of the job, which it gets at its rate, and one of the worker,
 * which earns it with every contribution and with time. A question without payload costs the job an
 * eighth, as long as its answer has none either: while rounds wait, workers ask about them.
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

/* Less than half of it is left: then it is worth a look whether a frame was recorded. */
static inline bool
repeat_is_low(const struct repeat_credit *c, uint32_t interval_ns, uint64_t now_ns)
{
	return c->empty_ns != 0 && now_ns - c->empty_ns < (uint64_t)REPEAT_CREDIT / 2 * interval_ns;
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

/* Frames a second of one job on one core: the operator's limit. Times in units of RATE_UNIT a ns. */
struct job_rate {
	uint64_t due;    /* when the next round may end */
	uint64_t empty;  /* when the credit for other frames was, or would have been, last empty */
	uint64_t window; /* that credit in full, if it is more than RATE_BURST_NS */
	uint32_t interval; /* of one frame; 0: no limit */
};

/* 2^-6 ns: up to 64 G frames a second, and nine years of uptime. */
#define RATE_UNIT 64
/* How long a job may have been idle and still use what it saved up at once. */
#define RATE_BURST_NS UINT64_C(10000000)

/* frames: as many as the job's workers may have under way */
static inline void
job_rate_set(struct job_rate *r, uint64_t frames_per_s, uint32_t frames)
{
	r->due = r->empty = 0;
	r->interval = frames_per_s == 0
			      ? 0
			      : (uint32_t)((UINT64_C(1000000000) * RATE_UNIT + frames_per_s - 1) /
					   frames_per_s);
	r->window = (uint64_t)frames * r->interval;
}

/* May a round end? */
static inline bool
job_rate_due(const struct job_rate *r, uint64_t now_ns)
{
	return now_ns * RATE_UNIT >= r->due;
}

/* One of so many contributions ends. */
static inline void
job_rate_ended(struct job_rate *r, unsigned contributions, uint64_t now_ns)
{
	uint64_t now = now_ns * RATE_UNIT, burst = RATE_BURST_NS * RATE_UNIT;

	if (now > burst && r->due < now - burst)
		r->due = now - burst;
	r->due += (uint64_t)contributions * r->interval;
}

static __attribute__((noinline, unused)) bool
job_rate_limit(struct job_rate *r, uint32_t cost, uint64_t now_ns)
{
	uint64_t now = now_ns * RATE_UNIT, burst = RATE_BURST_NS * RATE_UNIT;

	if (burst < r->window) /* a slow job still gets its window */
		burst = r->window;
	if (now > burst && r->empty < now - burst)
		r->empty = now - burst;
	if (now < r->empty + cost)
		return false;
	r->empty += cost;
	return true;
}

/* May one more frame that moves no round be answered? */
static inline bool
job_rate_take(struct job_rate *r, uint64_t now_ns)
{
	return r->interval == 0 || job_rate_limit(r, r->interval, now_ns);
}

static inline uint32_t
job_rate_question(const struct job_rate *r)
{
	return r->interval / 8 + 1;
}

/* One that has no payload, if its answer has none. */
static inline bool
job_rate_ask(struct job_rate *r, uint64_t now_ns)
{
	return r->interval == 0 || job_rate_limit(r, job_rate_question(r), now_ns);
}

/* Its answer would have one: it costs as much as others then. False: it is too much, and has cost nothing, or
 * those that are refused would use up what others are answered by. */
static inline bool
job_rate_answer(struct job_rate *r, uint64_t now_ns)
{
	if (r->interval == 0 || job_rate_limit(r, r->interval - job_rate_question(r), now_ns))
		return true;
	r->empty -= job_rate_question(r);
	return false;
}

#endif /* SHARD_QUOTA_H */
