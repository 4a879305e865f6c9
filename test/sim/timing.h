/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TIMING_H
#define TIMING_H

/* Time and frames of a worker (timing.c). */

#include <stdint.h>

struct sim;
struct sim_packet;
struct sim_worker;

#define SIM_ASKED 64
/* A request that a worker has sent. */
struct sim_asked {
	uint32_t id;
	uint64_t token, at;
};

/* What a worker has under way at an endpoint: fragments whose PUSHPULL has no result yet. */
struct sim_flow {
	uint32_t fragments, sent; /* of its latest round: those that there are, that it has sent */
	uint32_t in_flight, peak; /* the highest since the network became clean, */
	uint32_t answers;         /* and results since then that came while more was to be sent */
	uint64_t tx;              /* the latest data frame */
};

void sim_timing_sent(struct sim *s, struct sim_worker *w, const struct sim_packet *p);
void sim_timing_heard(struct sim *s, struct sim_worker *w, const struct sim_packet *p);
/* Now and then; when the process has ended. */
void sim_timing_look(struct sim *s, struct sim_worker *w);
void sim_timing_forget(struct sim *s, struct sim_worker *w);

#endif /* TIMING_H */
