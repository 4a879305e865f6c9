/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WORK_H
#define PBOX_WORK_H

/**
 * @file
 * Work by plan: which worker does which slots of a round (doc/protocol.md R5.2b), so that all end at the same time.
 *
 * A *room* belongs to one job and one thread, and nothing in it is shared. Time is an argument: `at` is seconds since the round in
 * progress began. No function does I/O; pbox_work_create() alone allocates. Pointers that the room returns stay its own and are
 * valid until the next call of the function that is named with them. Broken preconditions (a worker's number, a range) are
 * assertions; what workers report is input and gets errors.
 *
 * Units: seconds as double; slots and nodes as counts.
 *
 * The order of a round: pbox_work_round(); pbox_work_begun(), pbox_work_task(), pbox_work_gone() and pbox_work_join() while it
 * runs; pbox_work_report() of each worker; pbox_work_decide(), at any time, once a round at least.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pbox_base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PBOX_WORK_MAX_WORKERS 4096
/** The owner of a slot while no worker is there that could compute it. */
#define PBOX_WORK_NOBODY UINT16_MAX

/** What a round costs a worker. */
struct pbox_work_cost {
	double slot;          /**< seconds a slot, > 0 */
	double fixed;         /**< seconds a round before its first slot */
	double up;            /**< seconds to send one node's payload */
	double down;          /**< seconds a round to receive the result */
	uint16_t least, most; /**< slots; most = 0: it gets none */
};

/* ---- the room (work.c) ----------------------------------------------------------------------- */

struct pbox_work;

struct pbox_work_conf {
	unsigned workers;    /**< 1 to PBOX_WORK_MAX_WORKERS */
	unsigned slots;      /**< workers to PBOX_MAX_SLOTS */
	bool everyone;       /**< each member that can has a slot at least, by plan */
	unsigned nodes_most; /**< nodes of all ranges of a plan together; 0: no limit */
	const bool *
		here; /**< by worker: who is a member at the start, one at least; NULL: all. Read by create alone */
};

/** The workers that are here are members and share the slots by pbox_slots_of(), in their order: plan 0. @return the caller's; NULL: @p err says why */
struct pbox_work *pbox_work_create(const struct pbox_work_conf *conf, struct pbox_error *err);
void pbox_work_destroy(struct pbox_work *work);

struct pbox_work_plan {
	uint32_t number;     /**< 0: the shares at the start */
	uint32_t from_round; /**< of the first round that it is for */
	double seconds;      /**< predicted; 0: nothing is known */
	const double *
		finish; /**< predicted seconds of each worker; 0: it has no slots, or nothing is known */
	const uint16_t *owner; /**< of each slot */
};
/** The plan that waits holds from a later round on. */
void pbox_work_postpone(struct pbox_work *work, uint32_t from_round);
/** A member without slots is none, and no plan is made for that. */
void pbox_work_absent(struct pbox_work *work, unsigned worker);
/** Plan 0 has other owners: `owner` & `mask` of each slot, a worker's number. No plan waits. */
void pbox_work_adopt(struct pbox_work *work, const uint16_t *owner, uint16_t mask);
/** Of the round in progress, without what deaths and steals moved in this round; valid until pbox_work_round(). */
const struct pbox_work_plan *pbox_work_plan(const struct pbox_work *work);
/** The one that waits for its round; NULL: none. Valid until pbox_work_round() or pbox_work_decide(). */
const struct pbox_work_plan *pbox_work_next(const struct pbox_work *work);
/** Who brings each slot of the round in progress, now. Valid for the life of the room. */
const uint16_t *pbox_work_owners(const struct pbox_work *work);

/** A round begins; a plan that waits for it is in force from here on. Rounds wrap (RFC 1982), each is begun once. */
void pbox_work_round(struct pbox_work *work, uint32_t round);

/* ---- what workers report (report.c) ---------------------------------------------------------- */

struct pbox_work_report {
	uint32_t round;
	uint32_t slots;    /**< that it computed in this round; 0: `compute` and `up` say nothing */
	uint32_t payloads; /**< nodes that it sent */
	bool fits;         /**< its memory holds a slot's micro-batch */
	double compute;    /**< seconds for all these slots */
	double fixed;      /**< seconds of the round before them */
	double up;         /**< seconds to send all these payloads */
	double down;       /**< seconds to receive the result */
};
/**
 * Learn from a worker's round. A report of a round that is not newer than its last one changes nothing.
 *
 * Of each figure the room keeps the median of the last 5 samples, and the mean of these medians with weight 1 / n, 1 / 32 at least
 * (EWMA). Its noise is the mean absolute deviation. If the median is farther from the mean than 5 standard errors (and 10 %), the
 * worker has changed: the mean begins again at the median. So one or two bad rounds of five change nothing.
 * Memory: a slot does not fit at once, and fits again after 5 rounds in which it would (10, 20 and so on up to 160 if it has fitted again, and
 * no more, within 64).
 *
 * @return 0, or -EINVAL with the worker and the figure in @p err, and then nothing has changed
 */
int pbox_work_report(struct pbox_work *work, unsigned worker, const struct pbox_work_report *report,
	struct pbox_error *err);
/** Learn only what its memory holds, from a worker that has computed nothing: as by a report of that round. */
void pbox_work_fits(struct pbox_work *work, unsigned worker, uint32_t round, bool fits);
/** The worker has begun its slots first to end - 1 of the round in progress; any subset, repeated or late: those that are not its own
 * (any more) do not count. */
void pbox_work_begun(
	struct pbox_work *work, unsigned worker, unsigned first, unsigned end, double at);

struct pbox_work_view {
	bool member, fresh, fits_none;
	struct pbox_work_cost cost; /**< estimates */
	double noise;   /**< standard deviation of `slot` from round to round, seconds */
	uint32_t since; /**< the round in which its speed changed last */
	unsigned slots; /**< in the round in progress */
	unsigned begun; /**< of these */
};
void pbox_work_view(const struct pbox_work *work, unsigned worker, struct pbox_work_view *view);

/* ---- why (reason.c) -------------------------------------------------------------------------- */

enum pbox_work_cause {
	PBOX_WORK_SPEED,    /**< ratio: its seconds a slot over the others' median */
	PBOX_WORK_TRAFFIC,  /**< ratio: its seconds beside slots over the others' median */
	PBOX_WORK_PAYLOADS, /**< the same work in fewer nodes: before, after */
	PBOX_WORK_MEMORY,   /**< fits */
	PBOX_WORK_JOINED,
	PBOX_WORK_GONE,
	PBOX_WORK_STOLEN, /**< it would end last: before - after of its slots go to `to` */
	PBOX_WORK_PROBE,  /**< it had no slots for long, and gets one so that it is measured */
};

/** Why slots changed hands. */
struct pbox_work_reason {
	enum pbox_work_cause cause;
	uint16_t worker, to;
	uint16_t before, after; /**< slots of `worker` */
	uint32_t since;         /**< the round from which on it is so */
	bool fits;
	double ratio;
	double gain; /**< predicted: 1 - new / old seconds of a round */
};
#define PBOX_WORK_REASON_TEXT 160
/** A sentence for an operator, such as "worker 2 takes 1.9 times as long a slot as the others since round 120: 11 -> 6 slots". */
void pbox_work_reason_text(const struct pbox_work_reason *reason, char *text, size_t n);

/* ---- the next plan (decide.c) ---------------------------------------------------------------- */

/**
 * Make the plan for @p from_round and later, if one is due: members or memory have changed, a worker without slots is to be measured, or
 * the predicted round gets shorter by more than 5 % and by more than 5 standard errors of the prediction, at once after a
 * change of speed and else in 3 rounds one after the other. Not while a plan waits for its round.
 * A worker that has not reported yet is taken to be as slow as it must be at least.
 *
 * A call does at most about PBOX_WORK_PIECE steps, whatever workers report; a decision that needs more goes on with the next call, by the
 * estimates of its first one. It begins again when members, memory or owners change. Measured once: a piece of 1,024 workers with 4,096 slots
 * 0.1 to 0.9 ms on one core of a virtual machine.
 *
 * @param at  0: do not look at who is late
 * @return 1: pbox_work_next() is new, and @p why filled; 0: none is due; PBOX_WORK_GOES_ON: call it again; -ENOMEM, with an
 *         error: no member can hold a micro-batch
 */
int pbox_work_decide(struct pbox_work *work, uint32_t from_round, double at,
	struct pbox_work_reason *why, struct pbox_error *err);
/** Steps that the last call has done. One looks at a worker: 40 times at each of 1,024 is PBOX_WORK_PIECE. */
unsigned pbox_work_steps(const struct pbox_work *work);
#define PBOX_WORK_PIECE   (40 * 1024)
#define PBOX_WORK_GOES_ON 2

/* ---- within a round (members.c, steal.c) ----------------------------------------------------- */

/** Slots first to end - 1 of the round in progress change hands. */
struct pbox_work_move {
	uint16_t first, end, from, to;
};

/**
 * A member is gone. Its slots of the round in progress, begun or not, go to others at once, and so do those of the plans.
 * Moves are the nodes of its own ranges, or children of these where they are large: each of its contributions is there or not, and a
 * replacement brings such a node, or a part of it. So until the next plan a replacement must not join one with slots of its own. The largest goes first, to
 * the member with the earliest predicted finish of the round in progress (of the plan, for plans).
 *
 * In a round with steals the moves are those of this round alone, and pbox_work_plan() has who does the slots in the rounds after it.
 *
 * @param moves  the room's, until the next call of this function or of pbox_work_join()
 * @return their number; 0 with slots left to PBOX_WORK_NOBODY if no member could take them
 */
unsigned pbox_work_gone(struct pbox_work *work, unsigned worker, double at,
	const struct pbox_work_move **moves, struct pbox_work_reason *why);
/** A worker comes (back). It begins with the median of the others' estimates, and gets slots by the next plan; those of nobody at once. */
unsigned pbox_work_join(
	struct pbox_work *work, unsigned worker, const struct pbox_work_move **moves);

/** A newcomer has not begun, or has: until then it takes slots of the round in progress only where nobody else can. pbox_work_join() says that
 * it has. */
void pbox_work_fresh(struct pbox_work *work, unsigned worker, bool fresh);

/**
 * A worker asks for work. If it has slots that it has not begun these are the answer, so a repeated question has the same answer.
 * Else it gets the last of the not-begun slots of the member that would end last, as many as let both end earliest (moved to
 * where fewer nodes are cut, up to 5 % of that), if the later of the two then ends earlier by 5 % of the round or more.
 * What was taken so is not taken again before one of it is begun, or could have been. Slots of nobody come first. Where nothing is known
 * of a worker's speed it takes none. First say with pbox_work_begun() what the worker has begun; it reports after its last task.
 *
 * @param why  filled if the slots are another one's: move->from differs from move->to
 * @return false: there is nothing for it
 */
bool pbox_work_task(struct pbox_work *work, unsigned worker, double at, struct pbox_work_move *move,
	struct pbox_work_reason *why);

/** Slots first to end - 1 of the round in progress are another worker's, as by a steal: the caller knows it (a victim has not given up
 * all that pbox_work_task() has moved). They count as not begun. */
void pbox_work_hand(struct pbox_work *work, unsigned first, unsigned end, unsigned to);
/** Nothing is stolen from this worker, or something may be again; that holds until it is said otherwise. */
void pbox_work_keeps(struct pbox_work *work, unsigned worker, bool keeps);

#ifdef __cplusplus
}
#endif

#endif /* PBOX_WORK_H */
