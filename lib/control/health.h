/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef HEALTH_H
#define HEALTH_H

/*
 * Samples of the counters, twice a second, and what follows from the last half to whole second: who is
 * busy, slow, lossy, short of something. All with the control's lock.
 */

#include "control_priv.h"

#define HEALTH_STAGES   5
#define HEALTH_FINDINGS 24

struct rte_tel_data;

/* Of the window that ends now; counters since the start. */
struct health_core {
	uint64_t heartbeat_ns; /* since it was last seen turning */
	uint64_t stolen_ns;    /* counter: it could have run, and something else did */
	uint32_t busy_permille, stolen_permille;
	uint64_t cycles_per_packet;             /* TSC cycles of turns with work; 0: no packets */
	uint32_t stage_permille[HEALTH_STAGES]; /* of these cycles: PBOX_CS_STAGE_MAIL ... */
};
void health_core(struct pbox_control *c, unsigned i, struct health_core *out);

struct health_pool {
	char name[32];
	uint32_t size, free, cached; /* cached: free, but one core's alone */
	uint32_t low, window_low;    /* fewest free ones that were ever seen, and in the window */
	int node;
};
/* false: there are no more. */
bool health_pool(struct pbox_control *c, unsigned i, struct health_pool *out);

/* Something that is wrong, or bounds the rate. Texts are for persons, the rest is for programs. */
struct health_finding {
	const char *cause; /* "slow_worker", ...: doc/telemetry.md */
	bool harmful;      /* else it says what bounds the rate */
	char job[64];      /* "": not of one job */
	int worker;        /* -1: not of one worker */
	char text[280], next[160];
};
/* The worst first. */
unsigned health_findings(struct pbox_control *c, struct health_finding *f, unsigned max);
void health_reply(const struct health_finding *f, unsigned number, struct rte_tel_data *d);

/* agent.c: what pbox-agent says, or that it says nothing. False: all is well, or there is to be none. */
bool agent_finding(const struct pbox_control *c, uint64_t now_ns, struct health_finding *f);
void control_agent(struct pbox_control *c, const char *params, struct rte_tel_data *d);

/* refused.c: the i-th worker that was refused within the last minute. False: there are no more. */
bool refused_finding(
	const struct pbox_control *c, unsigned i, uint64_t now_ns, struct health_finding *f);

/* Length of the window; 0: there is none yet. */
uint64_t health_window_ns(const struct pbox_control *c);
/* NULL: out of memory */
struct health *health_create(void);
void health_destroy(struct health *h);
/* Often; takes a sample when one is due. */
void health_step(struct pbox_control *c);

#endif /* HEALTH_H */
