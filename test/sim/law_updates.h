/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef LAW_UPDATES_H
#define LAW_UPDATES_H

#include "sim.h"

/*
 * Tables in clocks whose pushes are in formats of blocks (R14.14), a part of the law of clocks: what pushes say, by the residuals that
 * processes must have, and which of them a program gets as they were sent.
 */

/** With --updates: all tables in clocks. */
void updates_scenario(struct sim_scenario *sc, uint64_t seed, const struct sim_limits *limits);
bool updates_are(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f);
/** A process sends a datagram of one frame: are these the codes that its update, factor and residual make? */
void updates_sent(struct sim *s, const struct sim_worker *w, const uint8_t *frame, uint32_t bytes);
/** The box sends the worker that version: what the worker has sent before that, it has when it gets it. */
void updates_shown(struct sim_fragment *f, unsigned worker, uint32_t version);
/** The last push that was sent before the box sent that version to the worker; `least`: nobody knows. */
uint32_t updates_known(
	const struct sim_fragment *f, unsigned worker, uint32_t version, uint32_t least);
/** Elements of a push from @p at on, as it was sent; false: it was not, or that is forgotten. */
bool updates_value(const struct sim *s, unsigned job, const struct sim_fragment *f, unsigned worker,
	uint32_t clock, const struct sim_piece *p, float *out);
/** θ + a u, rounded twice; a push in any format. */
void updates_add(
	float *to, const uint8_t *push, unsigned format, uint16_t aux, bool zero, uint32_t n);
void updates_free(struct sim_fragment *f);
/** law_clock.c: the box was restored without the worker, and its clocks may be others. */
bool clock_was_away(const struct sim_fragment *f, unsigned worker);

#endif /* LAW_UPDATES_H */
