/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TABLES_H
#define TABLES_H

/* Figures that are not counted in blocks, but made when somebody asks: each answer of telemetry has all of
 * its table. */

#include "control_priv.h"

enum job_stat {
	JOB_CONTRIBUTIONS,
	JOB_CONTRIBUTED_BYTES,
	JOB_REPEATS,
	JOB_PULLS,
	JOB_LAST,
	JOB_WAITED_NS,
	JOB_WORKERS,
	JOB_JOINED,
	JOB_SILENT,
	JOB_TABLES,
	JOB_BYTES,
	JOB_WINDOW,
	JOB_ROUND,
	JOB_AGE_MS,
	JOB_KEPT_MS,
	JOB_STATS
};

enum worker_stat {
	WORKER_CONTRIBUTIONS, /* as those of jobs */
	WORKER_CONTRIBUTED_BYTES,
	WORKER_REPEATS,
	WORKER_PULLS,
	WORKER_LAST,
	WORKER_WAITED_NS,
	WORKER_SILENT_MS,
	WORKER_LEASE_MS,
	WORKER_WINDOW,
	WORKER_TABLES,
	WORKER_ROUND,
	WORKER_LAG,
	WORKER_RTT_US,
	WORKER_STATS
};
#define WORKER_COUNTERS WORKER_SILENT_MS

enum pool_stat { POOL_SIZE, POOL_IN_USE, POOL_FREE, POOL_CACHED, POOL_LOW_WATER, POOL_STATS };

enum load_stat {
	LOAD_HEARTBEAT_MS,
	LOAD_BUSY,
	LOAD_STOLEN,
	LOAD_CYCLES_PER_PACKET,
	LOAD_MAIL, /* the stages, in the order of the core's counters */
	LOAD_RECEIVE,
	LOAD_ENGINE,
	LOAD_ANSWER,
	LOAD_TRANSMIT,
	LOAD_STOLEN_NS,
	LOAD_STATS
};

#endif /* TABLES_H */
