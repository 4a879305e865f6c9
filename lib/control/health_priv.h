/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef HEALTH_PRIV_H
#define HEALTH_PRIV_H

#include "health.h"

#define HEALTH_HALF  (500 * NS_PER_MS) /* between two samples */
#define HEALTH_TICK  (20 * NS_PER_MS)  /* between two looks at heartbeats and pools */
#define HEALTH_POOLS 256

/* All counters at one moment. */
struct health_sample {
	uint64_t at_ns;
	uint64_t core[PBOX_PORT_CORES][PBOX_CS_STATS];
	uint64_t stolen_ns[PBOX_PORT_CORES];
	uint64_t shard[PBOX_SS_STATS]; /* sum over all */
	uint64_t port[RTE_MAX_ETHPORTS][PORT_STATS];
};

/* The workers of one job, at the times of the samples. */
struct health_job {
	uint64_t begun_ns; /* the job's: with another one it is another job */
	uint16_t workers;
	struct pbox_worker_stats *at[2];
	uint32_t round[2];
	/* While nothing comes: whom its oldest rounds wait for, as its data cores said. */
	struct pbox_why *asked; /* not answered yet; or NULL */
	uint64_t answered_ns;   /* 0: nobody was asked */
	unsigned n_missing, missing;
	bool clocks; /* pulls wait for it, which is so many clocks behind; */
	uint32_t lag, bound;
};

struct health_pool_seen {
	struct rte_mempool *pool;
	uint32_t low, window_low[2]; /* ever; in the two halves of the window */
};

struct health {
	struct health_sample *sample; /* [2] and one to compare them with */
	unsigned young;               /* index of the younger one of the two */
	uint64_t tick_at;
	uint64_t loops[PBOX_PORT_CORES], turned_ns[PBOX_PORT_CORES];
	int stat_fd
		[PBOX_PORT_CORES]; /* /proc/self/task/TID/schedstat; -1: not open yet, or not there */
	struct health_job job[PBOX_MAX_JOBS];
	struct health_pool_seen pool[HEALTH_POOLS];
	unsigned n_pools;
};

/* What the window begins with: the older sample; NULL: there is none yet. */
const struct health_sample *health_begin(const struct health *h);
/* Fill the third one with what is now. */
const struct health_sample *health_now(struct pbox_control *c);
/* The job's workers when the window began: NULL when it is younger than that. */
const struct pbox_worker_stats *health_job_begin(
	const struct health *h, const struct pbox_job_view *job, uint32_t *round);
/* Workers that the job's oldest rounds wait for, *who is the first; 0: not known, or something came. */
unsigned health_job_missing(const struct health *h, const struct pbox_job_view *job, unsigned *who);
/* Do pulls with a bound wait for it? It is so many clocks behind the worker that asks. */
bool health_job_clocks(
	const struct health *h, const struct pbox_job_view *job, uint32_t *lag, uint32_t *bound);

#endif /* HEALTH_PRIV_H */
