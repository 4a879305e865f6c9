/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_FLEET_SET_H
#define PBOX_FLEET_SET_H

/**
 * @file
 * Sets of snapshots of a fleet's jobs (R16.16): a person asks for one, an agent chooses the round, each agent has its box
 * take it, and says what came of it. Pure, as pbox_fleet.h.
 *
 * Keys of fleet F besides:
 *
 *     /pbox/F/sets/JOB         what is asked for of the job, and how far it is; written by compare-and-swap
 *     /pbox/F/set-parts/N/JOB  what box N has done for it; under the lease of its agent
 */

#include <pbox_fleet.h>

#define PBOX_FLEET_SETS 32 /**< jobs of which etcd has sets */
/** A round is chosen so far ahead of the newest, and twice as far each time when a box was late. */
#define PBOX_FLEET_SET_AHEAD 64
#define PBOX_FLEET_SET_TRIES 7

enum pbox_fleet_set_state { PBOX_FLEET_SET_ASKED, PBOX_FLEET_SET_DONE, PBOX_FLEET_SET_FAILED };

/** The value of the key sets/JOB. */
struct pbox_fleet_set {
	char job[PBOX_FLEET_NAME];
	int64_t id;   /**< of what is asked for: one more each time */
	bool restore; /**< the next run of the job is to begin with the set; else it is to be taken */
	uint32_t round; /**< of the set; 0: it is not chosen yet */
	unsigned tries; /**< rounds that were chosen */
	enum pbox_fleet_set_state state;
	uint32_t whole; /**< round of the last set that is whole; 0: there is none */
	char why[256];  /**< of DONE and FAILED, a sentence */
};

enum pbox_fleet_part_state {
	PBOX_FLEET_PART_NONE,
	PBOX_FLEET_PART_DONE,
	PBOX_FLEET_PART_LATE,
	PBOX_FLEET_PART_FAILED
};

/** The value of the key set-parts/N/JOB. */
struct pbox_fleet_part {
	int64_t id;
	uint32_t round;
	enum pbox_fleet_part_state state; /**< NONE: there is no such key */
	char why[200];                    /**< of FAILED */
};

struct pbox_fleet_sets {
	unsigned n;
	struct {
		struct pbox_fleet_set set;
		int64_t revision; /**< of the last change of its key */
		struct pbox_fleet_part part[PBOX_FLEET_BOXES];
	} of[PBOX_FLEET_SETS];
};

/** From the answer to pbox_etcd_range() of a fleet's keys, which pbox_fleet_view_read() reads as well. Keys that make no
 * sense are left out. */
void pbox_fleet_sets_read(const json_t *answer, const char *fleet, struct pbox_fleet_sets *sets);
/** The one of a job; UINT_MAX: there is none. */
unsigned pbox_fleet_set_of(const struct pbox_fleet_sets *sets, const char *job);
/** Values, to be freed; NULL: no memory. */
char *pbox_fleet_set_write(const struct pbox_fleet_set *set);
char *pbox_fleet_part_write(const struct pbox_fleet_part *part);
const char *pbox_fleet_key_set(char key[PBOX_FLEET_KEY], const char *fleet, const char *job);
const char *pbox_fleet_key_part(
	char key[PBOX_FLEET_KEY], const char *fleet, unsigned box, const char *job);

/**
 * A person asks. @p before: what the key has, or NULL. @p round: with that set (restore), 0: with the last that is whole.
 *
 * @return 0; -EBUSY: another one is under way; -ENOENT: there is no whole set
 */
int pbox_fleet_set_ask(const struct pbox_fleet_set *before, const char *job, bool restore,
	uint32_t round, struct pbox_fleet_set *next, struct pbox_error *err);

/** What the agent knows that says how it goes on. */
struct pbox_fleet_set_facts {
	const struct pbox_fleet_set *set;
	const struct pbox_fleet_part *part; /**< of each box */
	unsigned n_boxes;
	uint32_t away;   /**< bit by box: it has no lease, or the job goes on without it */
	uint32_t newest; /**< round of the job, where a set is taken */
};

/**
 * How does it go on? A set is whole when all boxes have it; where one was late another round is chosen once all have
 * answered; a box that is away, or cannot, ends the attempt, and the last whole set stays.
 *
 * @return 1: @p next is to be written; 0: boxes are waited for, or it is over
 */
int pbox_fleet_set_decide(const struct pbox_fleet_set_facts *f, struct pbox_fleet_set *next);

#endif /* PBOX_FLEET_SET_H */
