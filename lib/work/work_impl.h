/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef WORK_IMPL_H
#define WORK_IMPL_H

#include "pbox_slots.h"
#include "pbox_work.h"

static inline double
work_max(double a, double b)
{
	return a > b ? a : b;
}

static inline double
work_min(double a, double b)
{
	return a < b ? a : b;
}

static inline unsigned
work_umax(unsigned a, unsigned b)
{
	return a > b ? a : b;
}

/* ---- share.c --------------------------------------------------------------------------------- */

/* the most slots, in one node, with which the worker has finished at t */
unsigned work_slots_within(
	const struct pbox_work_cost *cost, enum pbox_work_pipeline pipeline, double t);
/* of a range: 0 if it is empty */
unsigned work_nodes(unsigned first, unsigned end, unsigned slots);
/* when all slots are computed at the earliest, whatever the nodes */
double work_bisect(const struct pbox_work_cost *cost, unsigned workers, unsigned slots,
	enum pbox_work_pipeline pipeline);

/* ---- estimate.c ------------------------------------------------------------------------------ */

#define WORK_WINDOW 5

/* one figure of a worker, from round to round */
struct work_estimate {
	double value, noise; /* noise: standard deviation of a sample */
	double window[WORK_WINDOW];
	uint32_t samples; /* since the value began, saturating at the weight of the mean */
	uint8_t filled, at;
	bool known; /* measured once */
};

/* nothing measured yet: take these */
void work_estimate_begin(struct work_estimate *e, double value, double noise);
/* the next samples replace the value; it stays until then */
void work_estimate_forget(struct work_estimate *e);
/* true: the value has changed, and begins again at the median */
bool work_estimate_add(struct work_estimate *e, double x);
/* the value, if x is the next sample; *changed as above. Nothing is learnt. */
double work_estimate_with(const struct work_estimate *e, double x, bool *changed);
/* standard error of the value */
double work_estimate_error(const struct work_estimate *e);
/* of n values, which are put in order; of an even number the lower one in the middle */
double work_median(double *v, unsigned n);

/* ---- the room -------------------------------------------------------------------------------- */

enum { WORK_SLOT, WORK_FIXED, WORK_UP, WORK_DOWN, WORK_FIGURES };

struct work_worker {
	struct work_estimate figure[WORK_FIGURES];
	uint32_t since;      /* round of the first sample of its speed */
	uint32_t last_round; /* that it reported */
	uint32_t micro;      /* samples that fit; 0: none */
	uint16_t quiet,
		quiet_enough; /* rounds in which more would have fitted; how many are enough */
	uint32_t grown;       /* round in which micro grew last */
	uint16_t idle, probe_after; /* rounds without slots; how many are enough */
	bool member, reported, micro_known, probe;
	bool changed; /* since the last plan */
	/* the round in progress */
	bool done;             /* reported it */
	bool keeps;            /* nothing is stolen from it */
	uint16_t slots, begun; /* its own now */
	double begun_at;
	bool took; /* slots of another one, and it has begun none of them */
	double took_at;
};

struct work_plan {
	struct pbox_work_plan pub;
	double *finish;
	uint16_t *owner;
};

struct pbox_work {
	struct pbox_work_conf conf;
	enum pbox_work_pipeline pipeline;
	uint32_t round, numbered; /* plans made */
	struct work_plan plan[2];
	unsigned current; /* plan in force */
	bool pending;     /* the other one waits for its round */
	/* what the next plan is for, whatever it gains */
	bool forced;
	struct pbox_work_reason force;
	/* rounds one after the other in which a plan would have gained enough */
	uint32_t gained, gained_round;
	bool parted;     /* owner differs from the plan's by steals */
	uint16_t *owner; /* of the round in progress */
	uint8_t *begun;  /* a slot of it */
	struct work_worker *worker;
	struct pbox_work_move *move;
	/* scratch */
	struct pbox_work_cost *cost;
	uint16_t *first, *spare, *count, *nodes;
	double *load;
};

/* ---- work.c ---------------------------------------------------------------------------------- */

static inline bool
work_is_able(const struct work_worker *w)
{
	return w->member && !(w->micro_known && w->micro == 0);
}

/* estimates as costs; `most` is 0 for who gets none */
void work_cost_of(const struct pbox_work *work, unsigned worker, struct pbox_work_cost *cost);
/* of the members that can do something */
uint32_t work_common_micro(const struct pbox_work *work);
/* the newest: the one that waits, or the one in force */
struct work_plan *work_newest(struct pbox_work *work);
/* slots and nodes of each worker, into count and nodes */
void work_count_owned(struct pbox_work *work, const uint16_t *owner);
/* slots of the round in progress change hands; they count as not begun */
void work_hand_over(struct pbox_work *work, unsigned first, unsigned end, unsigned to);
void work_force(struct pbox_work *work, enum pbox_work_cause cause, unsigned worker);

/* ---- late.c ---------------------------------------------------------------------------------- */

/* seconds a slot in this round, of the slots that are to come */
double work_pace(const struct work_worker *w, double at);
/* seconds after the begin of the round at which a member has computed and sent its slots of it */
double work_finish(const struct pbox_work *work, unsigned worker, double at);
/* seconds a slot, if what it has not reported yet counts; *changed: so much more that its speed has changed */
double work_slot_if_late(const struct pbox_work *work, unsigned worker, double at, bool *changed);

#endif /* WORK_IMPL_H */
