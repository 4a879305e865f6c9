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

/* ---- share.c, align.c: a function of costs alone ----------------------------------------------- */

/**
 * Seconds that a round takes a worker with k slots in n nodes, 0 without slots: it computes, sends, and receives, fixed + k slot +
 * n up + down. H-PS's `up` is that of all payloads. Here a worker sends a payload for each node that its range consists of.
 */
double work_time(const struct pbox_work_cost *cost, unsigned slots, unsigned nodes);

/**
 * Give @p slots slots to @p workers workers: worker w gets first[w] to first[w + 1] - 1.
 *
 * Bisection on the finish time T, with whole slots: T is the least at which floor(k_i(T)) sum to the slots or more, where k_i(T)
 * solves T_i(k) = T with one node; what is too much is taken from those that end at T. No other whole slots end earlier,
 * which is not so of real shares that are rounded by largest remainder: a slot more of a slow worker costs more.
 * Then borders move to where ranges consist of fewer nodes, as long as the predicted round stays below 1.05 times that of
 * the shares without moves, both with their true nodes. The room does it in pieces (decide.c); this is all of it.
 *
 * Measured once, 4096 slots on one core of a virtual machine: 8 workers 0.05 ms, 512 0.7 ms, 4096 4 ms.
 *
 * @param cost   of each worker; one at least has most = slots, and the sum of `least` is @p slots at most
 * @param first  room for workers + 1
 * @param spare  room for 3 x (workers + 1); scratch
 * @return the predicted seconds of the round
 */
double work_share(const struct pbox_work_cost *cost, unsigned workers, unsigned slots,
	uint16_t *first, uint16_t *spare);
/** The same without the moves; @p first alone is written. */
double work_share_unaligned(
	const struct pbox_work_cost *cost, unsigned workers, unsigned slots, uint16_t *first);
/** The predicted seconds of a round with these shares, and in @p nodes (unless NULL) the nodes of all ranges. */
double work_predict(const struct pbox_work_cost *cost, unsigned workers, const uint16_t *first,
	unsigned *nodes);

/* the most slots, in one node, with which the worker has finished at t */
unsigned work_slots_within(const struct pbox_work_cost *cost, double t);
/* of a range: 0 if it is empty */
unsigned work_nodes(unsigned first, unsigned end, unsigned slots);
/* When all slots are computed at the earliest, whatever the nodes: `high`, when no step is left. */
struct work_search {
	double low, high;
	unsigned steps;
};
/* 12 to where somebody has its first slot or all, 30 more to nine digits */
#define WORK_SEARCH_STEPS 64
void work_search_begin(
	struct work_search *s, const struct pbox_work_cost *cost, unsigned workers, unsigned slots);
bool work_search_step(
	struct work_search *s, const struct pbox_work_cost *cost, unsigned workers, unsigned slots);
double work_search(const struct pbox_work_cost *cost, unsigned workers, unsigned slots);
/* Shares that end then. How many steps it took beside a look at all workers: none between the bounds of costs in decide.c. */
unsigned work_share_within(const struct pbox_work_cost *cost, unsigned workers, unsigned slots,
	uint16_t *first, double t);

/* ---- align.c --------------------------------------------------------------------------------- */

struct work_walk {
	const struct pbox_work_cost *cost;
	unsigned workers, slots;
	const uint16_t *base; /* the borders without moves */
	uint16_t *after; /* slots that the workers after this one can do in time, one node each */
	uint16_t *first; /* the result */
	double t;        /* no worker takes longer */
	unsigned worker, at, need;
};

/* Borders that are being moved, from shares that end at t. */
struct work_align {
	struct work_walk walk;
	bool walking;
	uint16_t *first; /* the best so far, */
	double seconds;  /* its round, */
	unsigned nodes;  /* and its nodes */
	double low, high, shortest;
	unsigned tried;
};
/* How many steps it took. */
unsigned work_align_begin(struct work_align *a, const struct pbox_work_cost *cost, unsigned workers,
	unsigned slots, uint16_t *first, uint16_t *spare, double t);
/* About so many steps more, which are counted; false: there are none. */
bool work_align_step(struct work_align *a, unsigned most, unsigned *steps);

/* ---- decide.c -------------------------------------------------------------------------------- */

/* The plan in force, and the one that may follow, by the estimates of when the decision began. */
struct work_weighed {
	double now, next; /* predicted seconds of a round */
	double error;     /* standard error of now */
	unsigned nodes_now, nodes_next;
	bool measured, changed;
};

enum work_phase {
	WORK_NOT_DECIDING,
	WORK_FILLS,  /* those of workers that nobody has measured */
	WORK_WEIGHS, /* costs, and the plan in force */
	WORK_BOUND,  /* no shares can end earlier than this */
	WORK_ALIGNS, /* borders move */
	WORK_LEVELS, /* to fewer nodes */
	WORK_DECIDED,
};

/* A decision, in pieces. */
struct work_decision {
	enum work_phase phase;
	unsigned at; /* which figure, which level */
	struct work_weighed weighed;
	struct work_search search;
	struct work_align align;
};

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
	uint16_t quiet,
		quiet_enough; /* rounds in which a slot would have fitted; how many are enough */
	uint32_t grown;       /* round in which it did again */
	uint16_t idle, probe_after; /* rounds without slots; how many are enough */
	bool member, reported, no_memory, probe;
	bool fresh;   /* it has not the model of the round in progress yet */
	bool changed; /* since the last plan; weighed: before the decision under way began */
	bool weighed;
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
	uint32_t round, numbered; /* plans made */
	struct work_plan plan[2];
	unsigned current; /* plan in force */
	bool pending;     /* the other one waits for its round */
	struct work_decision decision;
	unsigned steps; /* of the last call of pbox_work_decide() */
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
	return w->member && !w->no_memory;
}

#define WORK_SLOT_LEAST 1e-9 /* seconds */
/* estimates as costs; `most` is 0 for who gets none */
void work_cost_of(const struct pbox_work *work, unsigned worker, struct pbox_work_cost *cost);
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
