/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef BALANCE_IMPL_H
#define BALANCE_IMPL_H

/*
 * The room's own: calls go down this list.
 *     decide.c   one action at a time, and whether the last one held what it promised
 *     detect.c   a window's figures; who is slow; who has changed
 *     target.c   bytes that end at the same time
 *     balance.c  memory, reports
 *     reason.c   sentences
 */

#include <pbox_balance.h>

/* Sums of what a worker reported in this window: means are weighted by rounds. */
struct balance_sum {
	double rounds, mean, var, exposed;
};

/* A figure of a window, over the workers. */
struct balance_figure {
	double rounds, mean, sd, exposed;
};

struct balance_box {
	struct balance_figure last;
	bool measured, known, slow;
	unsigned windows; /* slow in a row */
	double per_byte;  /* seconds; when known */
	uint64_t bytes;   /* of the last window */
};

/* What an action promised, until windows have shown whether it holds. */
struct balance_trial {
	bool open;
	unsigned windows; /* that it has been watched for */
	double tolerance; /* the round may be so much longer (as a share); negative: must be shorter */
	struct balance_figure before, after;
	struct pbox_balance_action action;
	uint64_t bytes[PBOX_BALANCE_BOXES]; /* to go back to */
};

struct pbox_balance {
	struct pbox_balance_conf conf;
	struct pbox_random random;
	struct balance_sum *round; /* of each worker */
	struct balance_sum *sum;   /* of each worker and box */
	double *sorted;            /* room for a number of each worker */
	struct balance_box box[PBOX_BALANCE_BOXES];
	struct balance_figure step; /* rounds of the last window */
	struct balance_trial trial;
	struct pbox_balance_action action;
	double explore;           /* probability of a trial in a window */
	unsigned cool, cool_next; /* windows without trials; after the next failed one */
};

/* detect.c */
bool balance_window_full(const struct pbox_balance *b);
/* Takes the window's figures in, and begins the next one. True: a box has changed. */
bool balance_take_window(struct pbox_balance *b, const struct pbox_balance_box *box);
/* The box that has been slow for two windows, and most; boxes: none. */
unsigned balance_straggler(const struct pbox_balance *b, double *ratio);

#endif /* BALANCE_IMPL_H */
