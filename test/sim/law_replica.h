/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef LAW_REPLICA_H
#define LAW_REPLICA_H

#include "sim.h"

/*
 * Tables whose results are differences (R13.7), a part of the law of rounds: the reference keeps a replica of its own, and a RESULT
 * says the version before by just its codes, or the replica itself.
 */

bool replica_is(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f);
/** The reference begins with what its parameters are: no round has made that at this box. */
void replica_begins(struct sim_fragment *f);
/** Its parameters are those of the next version: what workers have of it. plain: it has no codes (R13.10). */
const float *replica_version(
	const struct sim_scenario *sc, unsigned job, struct sim_fragment *f, bool plain);
/** Is it what a RESULT of version @p v may say? want: the replica. */
bool replica_says(const struct sim_fragment *f, unsigned format, uint32_t v,
	const struct pbox_hdr *h, const void *payload, const uint8_t *want);
/** A snapshot is taken; the box, and the reference, go on from that. */
void replica_keep(struct sim_fragment *f);
void replica_load(const struct sim_fragment *f, float *to);
const float *replica_from_snapshot(struct sim_fragment *f);
void replica_free(struct sim_fragment *f);

#endif /* LAW_REPLICA_H */
