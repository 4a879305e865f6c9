/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef REGISTRAR_WORK_H
#define REGISTRAR_WORK_H

/* What the parts of work by plan share (section 15 of the protocol): registrar_work.c makes plans, registrar_claims.c learns
 * after a restart of the box who owns what. */

#include <pbox_slots.h>
#include <pbox_work.h>

#include "registrar_impl.h"
#include "registrar_owners.h"

#define TABLE       0 /* the job's only one */
#define CHANGES     REGISTRAR_WORK_CHANGES
#define CLAIM_AGAIN 20 /* ms */

struct work {
	struct pbox_work *room; /* NULL: it has not begun */
	uint16_t *memory;       /* of the maps */
	uint64_t round_ns;      /* when the round in progress began */
	uint64_t begun_ns;      /* when the room did */
	uint32_t round;
	bool tell;      /* slots of the round in progress have changed hands: members are to ask */
	bool announced; /* from_round of the plan that waits is not known yet */
	bool stuck;     /* no plan can be made */
	bool claiming;  /* the box was started again: workers say what they own */
	struct registrar_training training;
	uint32_t plan[2]; /* numbers of the maps */
	unsigned n_changes;
	struct registrar_work_change change[CHANGES];
};

struct work_member {
	bool entered; /* it had the model before it had slots, or began with the job */
	bool claimed;
	uint32_t edition; /* that it claimed by */
	struct registrar_work_seen seen;
};

static inline struct work *
work_of(const struct pbox_job *job)
{
	return registrar_job_state(job, PART_work);
}

static inline struct work_member *
work_member_of(const struct pbox_job *job, unsigned w)
{
	return registrar_member_state(job, PART_work, w);
}

/* registrar_claims.c: R15.8a */
/* What a worker says that it owns. */
void registrar_claims_take(struct pbox_job *job, unsigned w, const struct pbox_work_ask *m);
/* Has everybody had the time to? Then the owners are known: true. waits: one that lives has not said what it owns. */
bool registrar_claims_end(const struct pbox_registrar *r, struct pbox_job *job, bool waits);

#endif /* REGISTRAR_WORK_H */
