/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SLOT_SUMS_H
#define SLOT_SUMS_H

/* What slots bring in tests, and what comes of it: a reference that knows slots, and no workers or frames. */

#include <stdbool.h>
#include <stdint.h>

struct how {
	unsigned workers, slots;
	uint8_t mode, op;
	bool plain; /* each worker pushes once: what its first slot would bring */
	bool large;
};

/** Sums of these depend on their order; one in 16 is -0.0, to which an absent slot must not be added as zero. */
float slot_value(unsigned slot, unsigned round, unsigned i);
uint32_t slot_weight(unsigned slot);
/** Along the tree (R5.2a), over slots first to first + 2^level - 1. */
float slot_tree(const struct how *how, unsigned first, unsigned level, unsigned round, unsigned i,
	bool weighted);
/** Element i of the result of a round. */
float slot_sum(const struct how *how, unsigned round, unsigned i);

#endif /* SLOT_SUMS_H */
