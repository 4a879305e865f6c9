/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WORKER_NORM_H
#define PBOX_WORKER_NORM_H

/**
 * @file
 * The norm of a round, of a table with two phases (R6.15): a host asks, the worker asks all endpoints, and adds up what they
 * answer. It ends by an answer, by a failure (PBOX_C_LOST: the box has lost this worker's push of the round, as it was
 * restarted: push it again), or at its deadline.
 *
 *     pbox_worker_norm_ask(w, q);
 *     ... pbox_worker_rx(), pbox_worker_tick() ...
 *     pbox_worker_normed(w)      those that have ended, linked by next
 *
 * Threads: as pbox_worker.h; all locks are held.
 */

#include <stdbool.h>
#include <stdint.h>

#include <pbox_wire_data.h>

#include "pbox_worker.h"

/** The host's memory, the worker's from pbox_worker_norm_ask() until it is one of those that have ended. */
struct pbox_worker_norm {
	struct pbox_worker_norm *next;
	/* the host's; the rest is zero */
	struct pbox_worker_table *table;
	uint32_t round;
	uint64_t deadline; /**< ns */
	/* once it has ended */
	/** PBOX_C_OK, or a failure. PBOX_C_DEADLINE without a text: the box has not answered. */
	struct pbox_client_error err;
	/** Of all endpoints of all boxes. `fragments` 0: the sum is not there any more after a restart of a box, which has the
	 * coefficient; or it is 0, and that box has the round's version of all its fragments. */
	struct pbox_norm sum;
	/* the worker's */
	uint64_t again_at;
	uint32_t missing;
	unsigned tries;
	struct {
		uint32_t incarnation;
		bool gone;    /* some endpoints have answered without a sum */
		uint64_t has; /* endpoints that have answered */
		struct pbox_norm sum;
	} box[PBOX_WORKER_BOXES];
};

void pbox_worker_norm_ask(struct pbox_worker *w, struct pbox_worker_norm *q);
/** A list of those that have ended since the last call. */
struct pbox_worker_norm *pbox_worker_normed(struct pbox_worker *w);

#endif /* PBOX_WORKER_NORM_H */
