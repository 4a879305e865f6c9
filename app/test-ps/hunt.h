/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_HUNT_H
#define TESTPS_HUNT_H

/**
 * @file
 * Which rate to try next, and what the trials say together. No clock, no box: pure arithmetic.
 *
 * A trial is a witness that may be wrong. For each step of the rate there is a probability that the highest good
 * rate is there; each trial makes it larger on the side that it speaks for, and the next trial is held where half of it lies
 * on each side. So no trial is final: one that contradicts the others is outvoted, and rates that were given up are
 * tried again when later trials speak for them. Now and then a rate that was good is tried once more: on a machine that
 * changes its speed it fails. The number of trials that contradict the result says whether it is a figure, or a range.
 */

#include <stdbool.h>

#define HUNT_STEPS  1280
#define HUNT_TRIALS 64 /**< that are remembered */

struct hunt_trial {
	double rate;
	bool good;
};

struct hunt {
	double first;         /**< rate of step 0 */
	double p[HUNT_STEPS]; /**< sum: 1 */
	struct hunt_trial trial[HUNT_TRIALS];
	unsigned trials, good, again; /**< again: of rates that were good before */
};

/** @param most  what went through without a limit, more than 0: the rate is most likely up to that, less likely up to
 * eight times of it (full windows may be slower than a rate is), and at least a seventieth. */
void hunt_begin(struct hunt *h, double most);
/** The rate to try next: one in eight was good before. */
double hunt_next(const struct hunt *h);
/** The highest rate up to hunt_best() that was good in a trial; if none was, the lowest that was good at all. 0: no trial was. */
double hunt_good(const struct hunt *h);
/** Trials that contradict hunt_between(): good above it, or failed below it.
 * @param low, high  made wider, to the rates of these trials */
unsigned hunt_disagree(const struct hunt *h, double *low, double *high);
/** The highest good rate: as likely below as above. */
double hunt_best(const struct hunt *h);
/** What a trial at @p rate said. */
void hunt_add(struct hunt *h, double rate, bool good);
/** The highest good rate is between them, as far as trials can be believed. */
void hunt_between(const struct hunt *h, double *low, double *high);
/** @p low and @p high of hunt_between() are closer than @p precision, or @p trials were reported (at most HUNT_TRIALS), those of rates
 * that were good before not counted. */
bool hunt_done(const struct hunt *h, double precision, unsigned trials);

#endif /* TESTPS_HUNT_H */
