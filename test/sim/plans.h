/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PLANS_H
#define PLANS_H

/* Work by plan (section 15 of the protocol): programs (plans.c), and what must hold (law_plan.c). */

#include <pbox_engine.h>
#include <pbox_slots.h>
#include <pbox_worker_plan.h>

struct sim;
struct sim_job;
struct sim_packet;
struct sim_worker;

/* Where a program that works by plan is (plans.c). */
struct sim_planned {
	enum {
		SIM_PLAN_BEGINS,
		SIM_PLAN_ASKS,
		SIM_PLAN_PULLS, /* a newcomer: the version with which it begins */
		SIM_PLAN_COMPUTES,
		SIM_PLAN_STEALS,
		SIM_PLAN_PUSHES
	} phase;
	bool more;  /* the round waits for slots that it has got */
	bool again; /* it has pushed this round before */
	/* the nodes of this round, or of the last one; they took that long, which WORK is to say */
	struct pbox_node node[PBOX_RANGE_NODES];
	unsigned nodes;
	uint64_t computed_ns;
	bool measured;
	bool turns;                           /* a round has ended: the next question says so */
	struct pbox_worker_question question; /* under way, if the worker is busy */
	bool left;                            /* it has left before the end */
	uint64_t pushed_at; /* its round; slots of the next one may have begun then */
	/* where slots are stolen: those of this round that are computed or begun */
	uint64_t begun[PBOX_MAX_SLOTS / 64];
	bool stolen; /* it has asked for slots of others, and there are no more */
};

/* It is killed, and not started again, or leaves; it stops for so long; it gets a datagram: true, p was taken, as it is stopped. */
void sim_plan_kill(struct sim *s, struct sim_worker *w);
void sim_plan_stop(struct sim *s, struct sim_worker *w, uint64_t ns);
bool sim_plan_is_stopped(struct sim *s, struct sim_worker *w, struct sim_packet *p);
/* A mail with owners reaches its shard; a worker hears what it owns; it is dead; the box has crashed; now and then; the
 * job has ended. */
void sim_plan_mail(struct sim *s, const struct pbox_mail *m);
void sim_plan_tasked(struct sim *s, unsigned job, const struct pbox_send *out);
void sim_plan_gives(struct sim *s, unsigned job, const struct pbox_hdr *h, const uint8_t *payload);
void sim_plan_said(struct sim *s, unsigned job, const struct pbox_send *out);
void sim_plan_dead(struct sim *s, unsigned job, unsigned worker);
void sim_plan_forget(struct sim *s, unsigned job);
void sim_plan_look(struct sim *s, unsigned job);
void sim_plan_end(struct sim_job *j);
/* Have its slots been given to others at some time? */
bool sim_plan_was_passed_over(struct sim *s, unsigned job, unsigned worker);

#endif /* PLANS_H */
