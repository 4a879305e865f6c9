/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TIMES_H
#define TIMES_H

/**
 * @file
 * Inside of lib/worker: how long each box of the job takes (R16.8).
 */

#include "endpoint.h"

struct times {
	bool fresh;         /* something was submitted since the last turn */
	bool spoiled;       /* a session was lost in this round */
	uint64_t submitted; /* when the last operation was */
	uint64_t end;       /* of the round before; 0: there was none */
	uint64_t most;      /* answers of a round, lately */
	uint64_t next;      /* when STATS may leave */
	uint32_t told;      /* rounds in the last one */
	struct busy busy[WORKER_BOXES];
	struct pbox_stats_msg all;
	struct pbox_worker_request request;
	uint8_t payload[PBOX_STATS_MOST], answer[512];
};
/** An operation was submitted; the last one has ended. With the first lane's lock. */
void times_submitted(struct pbox_worker *w);
void times_ended(struct pbox_worker *w);
/** STATS to the box that decides, if there is something new. */
void times_tick(struct pbox_worker *w);

#endif /* TIMES_H */
