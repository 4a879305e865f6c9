/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WORKER_PLAN_H
#define PBOX_WORKER_PLAN_H

/**
 * @file
 * Work by plan (section 15 of doc/protocol.md), the worker's side of the dialogue: which slots are this worker's?
 *
 * A host asks a question. The worker sends WORK or TASK for it, again and again where the box says so, takes over the slots
 * that the answer gives it, and ends the question: by its answer, by a failure, or at its deadline. Questions of one worker
 * are answered one after the other, in the order in which they were asked.
 *
 *     pbox_worker_ask(w, q);
 *     ... pbox_worker_rx(), pbox_worker_tick() ...
 *     pbox_worker_replied(w)      those that have ended, linked by next
 *
 * Threads: as pbox_worker.h; all locks are held. A job by plan has no other steady time.
 */

#include <stdbool.h>
#include <stdint.h>

#include <pbox_wire.h>

#include "pbox_worker.h"

enum pbox_worker_asks {
	/** R15.4: report the last round, and learn which slots are this worker's in `round`. No push may be unfinished. */
	PBOX_WORKER_WORK,
	/** Report alone: the slots stay what they are, and a push may be unfinished. The first answer ends it. */
	PBOX_WORKER_REPORT,
	/** A round has ended. Where slots may be others in the next one: as WORK. Else the worker reports by itself, 20 times a second at
	 * the most (R15.4), and the question ends at once. What the box thinks of that report ends a later question. */
	PBOX_WORKER_TURN,
	/** R15.7a: what is going on in the job? Nobody waits for this worker yet. */
	PBOX_WORKER_LOOK,
	/** R15.7a: slots for a newcomer, which has not pushed. Ends when the job is at the first round in which it has some. */
	PBOX_WORKER_ENTER,
	/** R15.10: all slots of `round` are computed and not pushed: get some that another worker has not begun. */
	PBOX_WORKER_STEAL,
};

/** The host's memory, the worker's from pbox_worker_ask() until it is one of those replied. */
struct pbox_worker_question {
	struct pbox_worker_question *next;
	/* the host's; the rest is zero */
	enum pbox_worker_asks kind;
	struct pbox_worker_table *table;
	uint64_t deadline; /**< ns */
	uint64_t most;     /**< STEAL: ns from the first TASK on in which it asks again */
	/** round (0: the next one), slots, fits, trained, compute, fixed, up, down, seed, samples, batch and group are the host's. ENTER counts
	 * `round` and `trained` on, to those of the first round with slots. STEAL: round alone. */
	struct pbox_work_ask work;
	/* once it has ended */
	/** code PBOX_C_OK, or a failure. PBOX_C_DEADLINE without a text: the box has not answered. */
	struct pbox_client_error err;
	bool changed; /**< which slots are this worker's was taken over from `ok`; TURN, WORK, ENTER */
	bool open;    /**< REPORT, STEAL: the box had no answer yet */
	unsigned nodes; /**< with `changed`: of this worker */
	unsigned
		gained; /**< STEAL: nodes of this worker in the round, if it has got slots; else 0 */
	struct pbox_work_ok
		ok; /**< the last answer; of TURN plan, members and leads are those of the last report */
	/* the worker's */
	enum { QUESTION_NEW, QUESTION_SENT, QUESTION_PAUSED } state;
	uint64_t again_at, began;
	uint32_t
		later; /* the round in progress, which the box is asked about instead; 0: about `round` */
	struct pbox_worker_request request;
	uint8_t payload[256], answer[1024];
};

/** In jobs with policy reassign alone. */
void pbox_worker_ask(struct pbox_worker *w, struct pbox_worker_question *q);
/** A list of those that have ended since the last call. */
struct pbox_worker_question *pbox_worker_replied(struct pbox_worker *w);

#endif /* PBOX_WORKER_PLAN_H */
