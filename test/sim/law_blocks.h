/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef LAW_BLOCKS_H
#define LAW_BLOCKS_H

#include "sim.h"

/*
 * Tables in formats of blocks (R13.6, R13.8), a part of the law of rounds: what contributions say, by the residuals that processes must
 * have, and what the box's answer says.
 */

/** Which tables are in such formats: with --blocks those that sum alone, and all do; with --replicas results of the others are;
 * with --nodes pushes of all are, also in jobs with slots. */
void blocks_scenario(struct sim_scenario *sc, uint64_t seed, const struct sim_limits *limits);
/** Does the worker push the table's round in fp32, as it may with MIXED (R13.10)? Two rounds at a time. */
bool blocks_plain(const struct sim_scenario *sc, unsigned job, unsigned table, unsigned worker,
	uint32_t round);
bool blocks_are(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f);
/** ... and so are its results, of the version itself? */
bool blocks_answer(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f);
/** A process sends a datagram of one frame: are these the codes that its gradient and residual make? */
void blocks_sent(struct sim *s, const struct sim_worker *w, const uint8_t *frame, uint32_t bytes);
/** An intact contribution reaches the box, before slots_contribution() hears of it. */
void blocks_contribution(struct sim *s, unsigned job, struct sim_fragment *f,
	const struct pbox_hdr *h, const uint8_t *payload);
/** What the node that begins with the slot has brought to that round: the one that is summed, or the next one. */
const float *blocks_value(const struct sim_fragment *f, unsigned slot, uint32_t round);
/** The version that is made of this sum: it becomes the parameters, and the box keeps a residual. */
void blocks_version(
	const struct sim_scenario *sc, unsigned job, struct sim_fragment *f, float *sum);
/** Is it what a RESULT with that header says? */
bool blocks_says(const struct sim_fragment *f, unsigned format, const struct pbox_hdr *h,
	const void *payload, const uint8_t *want);
void blocks_forget(struct sim_fragment *f);

#endif /* LAW_BLOCKS_H */
