/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PLAN_H
#define PLAN_H

/* Work by plan: plan.c and task.c. pbox_worker_plan.h has what a host asks. */

#include <stdbool.h>
#include <stdint.h>

#include "pbox_worker_plan.h"

struct rx_frame;
struct session;

/* plan.c */
struct worker_plan {
	struct pbox_worker_question *first,
		*last; /* those that are not answered; the first one is under way */
	struct pbox_worker_question *replied, **replied_tail; /* for the host */
	struct pbox_worker_question report;                   /* that nobody waits for */
	bool reporting;                                       /* it is under way */
	struct pbox_client_error late; /* of the last one: it ends the next question */
	uint64_t asked_at;             /* the last WORK */
	uint32_t edition, next_from;   /* of the answer that the slots are from */
	uint16_t next_ranges;          /* ... which are the worker's from next_from on: */
	struct pbox_slot_range next[PBOX_WORK_RANGES];
	uint32_t number, members, leads; /* of the last answer */
	bool again; /* the round of the last push was pushed again: its slots have changed in it */
};

/** Slots that others may do (R15.10). */
struct worker_task {
	bool on; /* the program says which slots it begins, in ... */
	uint32_t round;
	bool moved;                                    /* its nodes are those of this round alone */
	uint64_t begun[PBOX_MAX_SLOTS / 64], begun_at; /* the last one */
	/* the last wish of the box, in that session, and what was given up for it */
	uint32_t wish;
	uint64_t token;
	uint16_t first, end;
};
/** task.c: TASK. The box wishes to know which slots the program has begun, or for some of the others. */
bool task_frame(struct session *s, const struct rx_frame *f);

#endif /* PLAN_H */
