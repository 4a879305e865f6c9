/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WHY_H
#define PBOX_WHY_H

/**
 * @file
 * What a job waits for, as its shards say. pbox_registrar_why() makes one and asks; a page is its shard's to write until
 * the mail is back. Then all of it is the asker's, who reads it until pbox_registrar_why_end().
 */

#include <pbox_job_types.h>
#include <pbox_wire.h>

/** Rounds of one shard that pbox_registrar_why() reports. */
#define PBOX_WHY_ROUNDS 64

/** A round in progress: what it waits for. */
struct pbox_why_round {
	uint32_t chunk, round;
	uint16_t frag, arrived; /**< arrived: slots that are there */
	bool uninitialised;     /**< it waits for INIT, and this is who asked for it */
	bool paced;             /**< it is complete, and waits for the job's rate */
	bool up;                /**< of a rack: its sum is at the upper box, or on its way there */
	/** Of a table in clocks: a pull waits for `missing`, whose clock is this one. It is `lag` clocks behind the worker that asks most,
	 * which takes `bound`. */
	bool clocks;
	uint32_t clock, lag, bound;
	uint64_t since_ns; /**< its first contribution, or the first wish for its result */
	uint64_t missing[PBOX_MAX_WORKERS / 64]; /**< bitmap of workers */
};

/** What one shard says, oldest rounds first. */
struct pbox_why_page {
	struct pbox_why *of;
	uint32_t open; /**< rounds in progress */
	unsigned n;    /**< entries of round */
	struct pbox_why_round round[PBOX_WHY_ROUNDS];
};

/** What a job waits for; complete when answered == shards. */
struct pbox_why {
	unsigned shards, answered;
	bool abandoned;
	struct pbox_why_page page[];
};

/** The oldest rounds that all shards have reported, the oldest first: how many, at most @p max. */
unsigned pbox_why_oldest(
	const struct pbox_why *why, unsigned max, const struct pbox_why_round **out);

#endif /* PBOX_WHY_H */
