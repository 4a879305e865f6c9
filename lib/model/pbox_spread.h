/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_SPREAD_H
#define PBOX_SPREAD_H

/**
 * @file
 * Chunks of a table that is at several boxes, shared out again by weights. Pure; allocates while it works.
 */

#include "pbox_layout.h"

/**
 * Move as little as may be, so that each box has its share of the table's elements: largest chunks first, ties to the lower index,
 * from boxes that have too much to the one that lacks most (ties to the lower number), and only where it comes nearer to the
 * shares. All chunks of a box without weight move. What it has made it leaves as it is, asked again with the same weights.
 *
 * @param boxes   1 to PBOX_MAX_BOXES
 * @param weight  of each box, up to 2^20; one at least is above 0
 * @param home    in/out, by chunk: its box
 * @param lack    in/out, per box: elements of the job's earlier tables that it lacks; below 0: that it has too much
 * @return how many chunks move, or -ENOMEM
 */
int pbox_spread(const struct pbox_layout *l, unsigned boxes, const uint32_t *weight, uint8_t *home,
	int64_t *lack);

#endif /* PBOX_SPREAD_H */
