/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Bytes of each box that end at the same time. */

#include "balance_impl.h"

void
pbox_balance_target(uint64_t total, unsigned boxes, const double *seconds, uint64_t *bytes)
{
	double speed = 0;
	uint64_t left = total;
	unsigned fastest = boxes;

	for (unsigned i = 0; i < boxes; i++) {
		if (seconds[i] <= 0)
			continue;
		speed += 1 / seconds[i];
		if (fastest == boxes || seconds[i] < seconds[fastest])
			fastest = i;
	}
	PBOX_ASSERT(fastest < boxes);
	for (unsigned i = 0; i < boxes; i++) {
		double share = seconds[i] > 0 ? (double)total / seconds[i] / speed : 0;

		bytes[i] = (uint64_t)share;
		bytes[i] = bytes[i] < left ? bytes[i] : left;
		left -= bytes[i];
	}
	bytes[fastest] += left;
}
