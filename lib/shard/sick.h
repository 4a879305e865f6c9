/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SICK_H
#define SICK_H

/* Sums that are not finite: whose contributions are it? (R6.16) */

#include "shard_slots.h"

/*
 * A sum of contributions from slot record->round.folded to end - 1, all of them intact, is not finite, and their packets are still
 * here. src: what it is made of. Its fragment comes to `round` with it.
 */
void sick_look(struct pbox_shard *s, const struct target *g, const struct pbox_sources *src,
	unsigned end, uint32_t round) __attribute__((cold));

#endif /* SICK_H */
