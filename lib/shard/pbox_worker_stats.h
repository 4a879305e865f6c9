/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WORKER_STATS_H
#define PBOX_WORKER_STATS_H

/**
 * @file
 * Counters of a worker.
 */

#include <stdbool.h>
#include <stdint.h>

/** Classes of staleness: 0, 1, 2 to 3, 4 to 7, ..., 64 and more. */
#define PBOX_STALE_CLASSES 8

/** What shards have counted of a worker since the job began, one of them or all. They grow only; sessions of its
 * number add up. */
struct pbox_worker_stats {
	uint64_t contributions; /**< fragments that it brought to a round */
	uint64_t bytes;         /**< payload of these */
	uint64_t repeats;       /**< what it sent or asked for again: packets were lost */
	uint64_t pulls;         /**< pulls and probes */
	uint64_t last;          /**< fragments that were complete with its contribution */
	uint64_t waited_ns;     /**< sum over these: since the first contribution came, without
				* the time in which its core looked for none (pbox_shard_away()) */
	/** Pushes to tables in clocks, by how many pushes to the fragment came between the version they were made from and them. */
	uint64_t stale[PBOX_STALE_CLASSES];
	uint32_t round; /**< the newest one that it contributed to, of any table */
	bool wide; /**< its newest contribution to a table whose pushes are in two formats was fp32 */
};

#endif /* PBOX_WORKER_STATS_H */
