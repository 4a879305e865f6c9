/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef WORK_SIM_H
#define WORK_SIM_H

/**
 * @file
 * Rounds of a room in virtual time: workers with true costs and jitter compute slot by slot, report, and follow the plan. The
 * same seed gives the same rounds.
 */

#include <pbox_slots.h>
#include <pbox_work.h>
#include <work_impl.h>

#define SIM_WORKERS 64

struct sim_conf {
	unsigned workers, slots;
	double jitter;   /* of a worker's round: sigma of the log */
	double spike;    /* probability that a worker's round takes 3 to 10 times as long */
	bool steal;      /* workers that are done ask for more */
	bool fixed_plan; /* never plan: the equal shares */
	bool oracle;     /* compare with the best of its plans, not with any */
	uint64_t seed;
};

struct sim {
	struct sim_conf conf;
	struct pbox_work *work;
	struct pbox_random random;
	struct pbox_work_cost cost[SIM_WORKERS]; /* the truth */
	bool fits[SIM_WORKERS]; /* a micro-batch; else a slot takes 4 times as long */
	bool member[SIM_WORKERS];
	uint32_t round;
	/* of the last round */
	double factor[SIM_WORKERS], seconds, oracle;
	/* sums */
	double total, oracle_total;
	unsigned plans, steals;
	struct pbox_work_reason why; /* of the last plan */
};

/* All workers alike, with these seconds a slot, a payload, and a result. */
void sim_begin(struct sim *s, const struct sim_conf *conf, double slot, double up, double down);
void sim_end(struct sim *s);
/* One round; checks that each slot is computed once, by a member. Seconds. */
double sim_round(struct sim *s);
/* The next round, with a death of a worker after so many seconds. */
double sim_round_with_death(struct sim *s, unsigned worker, double at);
void sim_rounds(struct sim *s, unsigned n);
/* Every slot of the round and of the plans has an owner, who is a member. */
void sim_check_owners(const struct sim *s);

#endif /* WORK_SIM_H */
