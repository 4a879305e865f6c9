/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_SICK_H
#define PBOX_SICK_H

/**
 * @file
 * Contributions with a NaN or an infinity (doc/protocol.md R6.16), as a shard has found them.
 */

#include <stdint.h>

/** What an element is; 0: nothing was found. */
enum pbox_sick_kind {
	PBOX_SICK_NAN = 1,
	PBOX_SICK_INFINITE = 2,
	PBOX_SICK_MINUS_INFINITE = 3,
};

/**
 * Of one worker, or of sums that overflow though all that was summed is finite. A series are rounds that follow each other without one in
 * between where nothing was found: what made parameters NaN is in its first round, since all workers send NaN from the next one on.
 */
struct pbox_sick {
	uint64_t fragments;         /**< in which it was found since the job began */
	uint64_t begun_ns, last_ns; /**< of the latest series: when it was found first, and last */
	uint32_t first, last;       /**< rounds of that */
	uint32_t chunk, element;    /**< the first one that was found in it; element of the chunk */
	uint32_t kind;              /**< enum pbox_sick_kind */
};

#endif /* PBOX_SICK_H */
