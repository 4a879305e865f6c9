/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_BALANCE_H
#define PBOX_BALANCE_H

/**
 * @file
 * Load of the boxes of a fleet (doc/protocol.md, section 16): which box is slow, and how many bytes of a job's tables each one
 * should have. It finds boxes that straggle by confidence intervals over windows of rounds, moves load away from them, takes spare
 * boxes in and lets others go, and tries out what it cannot know, with one action at a time and a cool-down.
 * Source: PSLD (SoCC 2020), as its abstract and figures describe it; the rules that those leave open are said at the functions.
 *
 * A *room* belongs to one job and one thread. No function does I/O or reads a clock; pbox_balance_create() alone allocates.
 * Units: seconds as double, bytes as uint64_t. Broken preconditions (a box's number) are assertions; what workers report is
 * input and gets errors.
 *
 * The order: reports of the workers, pbox_balance_decide() now and then; it does nothing until a window is full. The caller moves
 * chunks as the action says, and calls pbox_balance_discard() when they have moved.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pbox_base.h"

#define PBOX_BALANCE_BOXES   16
#define PBOX_BALANCE_WORKERS 4096
#define PBOX_BALANCE_WINDOW  20

struct pbox_balance;

struct pbox_balance_conf {
	unsigned boxes, workers; /**< 1 to PBOX_BALANCE_BOXES, PBOX_BALANCE_WORKERS */
	unsigned window;         /**< rounds; 0: PBOX_BALANCE_WINDOW */
	uint64_t seed;           /**< of what it tries out */
	bool scales;             /**< takes spare boxes in, and lets boxes go */
};

/** @return the caller's; NULL: @p err says why */
struct pbox_balance *pbox_balance_create(
	const struct pbox_balance_conf *conf, struct pbox_error *err);
void pbox_balance_destroy(struct pbox_balance *b);

/** What a worker measured in some rounds. */
struct pbox_balance_times {
	uint32_t rounds;
	double mean, sd; /**< seconds of a round */
	double exposed;  /**< of these, seconds in which its program waited */
};
/**
 * Learn from a worker.
 *
 * @param round  its whole rounds, from one end to the next; `exposed` does not count
 * @param box    for each box, from the first frame of a round to the last result, without what the box was held up by other workers;
 *               `rounds` 0: it had no part in them
 * @return 0, or -EINVAL with the figure in @p err, and then nothing has changed
 */
int pbox_balance_report(struct pbox_balance *b, unsigned worker,
	const struct pbox_balance_times *round, const struct pbox_balance_times *box,
	struct pbox_error *err);
/** What was reported up to now is of a time in which chunks moved: it counts for nothing. */
void pbox_balance_discard(struct pbox_balance *b);

/** A box, as the map has it. */
struct pbox_balance_box {
	uint64_t bytes; /**< of the job's tables */
	bool able;      /**< lives, and may have chunks */
};

enum pbox_balance_cause {
	PBOX_BALANCE_LOST, /**< `box` has chunks, and is not able */
	PBOX_BALANCE_STRAGGLER, /**< `box` is slower than the others; each gets what ends at the same time */
	PBOX_BALANCE_OUT,  /**< `box`, a spare one, is taken in */
	PBOX_BALANCE_IN,   /**< `box` is let go */
	PBOX_BALANCE_TRY,  /**< a part of `box`'s load goes to `to`, to see what comes of it */
	PBOX_BALANCE_BACK, /**< the last one of the three before did not hold what it promised */
};

/** Load moves: each box should have `bytes[box]` bytes; they add up to what all have now. */
struct pbox_balance_action {
	enum pbox_balance_cause cause;
	unsigned box, to;
	double ratio;   /**< STRAGGLER: its time over that of the others */
	double before;  /**< seconds of a round, measured */
	double after;   /**< predicted; BACK: measured */
	uint64_t moves; /**< bytes that change their box */
	uint64_t bytes[PBOX_BALANCE_BOXES];
};
/**
 * What to do now.
 *
 * @param box  of each box; its figures are of the time of the reports
 * @return valid until the next call; NULL: nothing, also while the window is not full
 */
const struct pbox_balance_action *pbox_balance_decide(
	struct pbox_balance *b, const struct pbox_balance_box *box);

struct pbox_balance_view {
	bool measured; /**< the others say nothing before */
	double mean,
		ci; /**< seconds of a round at this box in the last window; half of the interval of 95 % */
	double exposed;   /**< of these, what programs waited for */
	double per_mib;   /**< estimated seconds for 1 MiB */
	bool slow;        /**< slower than the others in the last window */
	unsigned windows; /**< in a row in which it was */
};
void pbox_balance_view(const struct pbox_balance *b, unsigned box, struct pbox_balance_view *view);

#define PBOX_BALANCE_TEXT 200
/** A sentence for an operator, such as "box 2 takes 3.9 times as long as the others: 25 % -> 8 % of the bytes, a round 0.41 s -> 0.19 s". */
void pbox_balance_text(const struct pbox_balance_action *action, char *text, size_t n);

/**
 * Bytes of each box so that all end at the same time: in proportion to 1 / seconds[box]. Sums up to @p total exactly.
 * @param seconds  for a byte; 0: the box gets nothing. One at least is above 0
 */
void pbox_balance_target(uint64_t total, unsigned boxes, const double *seconds, uint64_t *bytes);

#endif /* PBOX_BALANCE_H */
