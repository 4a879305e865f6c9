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

#define DECISIONS 4 /* that are kept: all ask before the same round */
struct decision {
	uint32_t round;
	double value;
};

struct work {
	struct pbox_work *room; /* NULL: it has not begun */
	uint16_t *memory;       /* of the maps */
	uint64_t round_ns;      /* when the round in progress began */
	uint64_t begun_ns;      /* when the room did */
	uint32_t round;
	uint32_t in_room; /* the round that it is in */
	bool tell;      /* slots of the round in progress have changed hands: members are to ask */
	bool announced; /* from_round of the plan that waits is not known yet */
	bool stuck;     /* no plan can be made */
	bool any_fresh; /* some member may be */
	bool claiming;  /* the box was started again: workers say what they own */
	struct registrar_training training;
	uint32_t plan[2];   /* numbers of the maps */
	unsigned decisions; /* of which the last ones are here: */
	struct decision decision[DECISIONS];
	unsigned n_changes;
	struct registrar_work_change change[CHANGES];
};

struct work_member {
	bool entered;   /* it had the model before it had slots, or began with the job */
	bool fresh;     /* a newcomer that has not begun: it has no slots yet */
	bool had_begun; /* ... in the session before this one, */
	uint64_t nonce; /* which was of the process with this one */
	bool claimed;
	uint32_t claim_round, edition; /* that it claimed for, and by */
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

static inline bool
work_is_member(const struct work *k, unsigned w)
{
	struct pbox_work_view v;

	pbox_work_view(k->room, w, &v);
	return v.member;
}

/* What was stolen in a round goes when another one begins, and not before. */
static inline void
work_room_round(struct work *k)
{
	if (k->in_room == k->round)
		return;
	pbox_work_round(k->room, k->round);
	k->in_room = k->round;
}

/* Since the round in progress began. */
static inline double
work_seconds(const struct pbox_registrar *r, const struct work *k)
{
	return (double)(r->now_ns - k->round_ns) / 1e9;
}

/* Which of the two maps of plans holds in a round: 1 is the newer one. */
static inline unsigned
work_map_in(const struct pbox_job *job, uint32_t round)
{
	const struct pbox_job_owners *o = &job->owners;

	return o->from != 0 && pbox_serial_diff(round, o->from) >= 0;
}

/* Who owns the slots in a round, stolen ones too. */
static inline uint16_t *
work_map(const struct pbox_job *job, uint32_t round)
{
	const struct pbox_job_owners *o = &job->owners;

	return o->map[o->only != 0 && o->only == round ? 2 : work_map_in(job, round)];
}

/* registrar_work.c */
bool registrar_work_is_open(const struct pbox_registrar *r, const struct pbox_job *job);
/* Have all shards the owners of now? */
bool registrar_work_settled(const struct pbox_registrar *r, const struct pbox_job *job);
/* Which round is in progress? */
void registrar_work_look(struct pbox_registrar *r, struct pbox_job *job);

/* registrar_plan.c */
/* A change of owners, for the log and those who look. */
void registrar_work_note(
	struct pbox_registrar *r, struct pbox_job *job, const struct pbox_work_reason *why);
/* The shards get the owners of now. */
void registrar_work_publish(struct pbox_registrar *r, struct pbox_job *job);
/* Has every fragment finished that round? */
bool registrar_work_finished(struct pbox_job *job, uint32_t round);
/* Of the box: whose turn it is to have a plan looked for. */
struct registrar_plans {
	unsigned done;     /* steps of this tick */
	uint16_t turn;     /* not jobs with lower numbers, in this tick */
	uint16_t short_of; /* the first job for which nothing was left; 0: none */
};
/* A tick begins. */
void registrar_plan_begin(struct pbox_registrar *r);
/* Look for a plan, or go on with that. The owners of now are with all shards. */
void registrar_plan_tick(struct pbox_registrar *r, struct pbox_job *job);
/* The round from which on one holds that all shards have heard of, if there is one. */
void registrar_plan_fix(struct pbox_registrar *r, struct pbox_job *job);

/* What is known of slots that are stolen (R15.10): registrar_task.c talks about them, registrar_steal.c has them. */
struct task {
	uint32_t round;  /* that all this is of */
	uint32_t wishes; /* numbered so far */
	uint64_t steals, stolen;
};

struct task_member {
	uint32_t wish;       /* that is open; 0: none */
	uint16_t first, end; /* and wishes these slots; first = end: none */
	uint64_t sent_ns;    /* it, or the last one */
	uint64_t heard_ns;   /* the last answer in this round */
	uint8_t tries;       /* questions that it has not answered */
	bool done;           /* it has said in this round that it has computed all */
	bool tell;           /* it has got slots, and is to be pinged when all shards know it */
	uint64_t got, gave;  /* slots, in all rounds of its session */
};

static inline struct task *
task_of(const struct pbox_job *job)
{
	return registrar_job_state(job, PART_task);
}

static inline struct task_member *
task_member_of(const struct pbox_job *job, unsigned w)
{
	return registrar_member_state(job, PART_task, w);
}

/* registrar_steal.c */
/* Has somebody been asked for slots in the round in progress? Then it has a map of its own. */
bool registrar_steal_is_on(const struct pbox_job *job);
void registrar_steal_begin(struct pbox_job *job);
/* Is this worker asked for slots that it may have given up by now? */
bool registrar_steal_waits(const struct pbox_job *job, unsigned w);
/* Has any worker been asked for slots, and has not answered? */
bool registrar_steal_is_asking(const struct pbox_job *job);
/* So many slots from `first` on are those of whom the room says. */
void registrar_steal_settle(struct pbox_job *job, unsigned first, unsigned end);
/* A worker is gone, and its slots of the round in progress go to others as the room says. False: nothing was stolen in
 * this round. */
bool registrar_steal_gone(
	struct pbox_job *job, unsigned w, const struct pbox_work_move *move, unsigned n);
/* It had slots of an earlier round with steals, which is not finished everywhere: they are whose they are by its plan. */
void registrar_steal_gone_before(struct pbox_job *job, unsigned w);

/* registrar_claims.c: R15.8a */
/* The first round that some fragment has not finished; `otherwise` where that is not known yet, or there is no fragment. */
uint32_t registrar_claims_round(struct pbox_job *job, uint32_t otherwise);
/* What a worker says that it owns in that round. Of another one, or before that is known, nothing is noted: it says so again. */
void registrar_claims_take(struct pbox_job *job, unsigned w, const struct pbox_work_ask *m);
/* Has everybody had the time to? Then the owners are known: true. waits: one that lives has not said what it owns. */
bool registrar_claims_end(const struct pbox_registrar *r, struct pbox_job *job, bool waits);

/* registrar_decision.c: R15.11. WORK_OK has the decision before that round, or the latest one. */
void registrar_decision_say(const struct pbox_job *job, uint32_t round, struct pbox_work_ok *a);

#endif /* REGISTRAR_WORK_H */
