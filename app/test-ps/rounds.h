/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_ROUNDS_H
#define TESTPS_ROUNDS_H

/** @file What rounds.c and timers.c share. A lane's own thread. */

#include <pbox_worker_recovery.h>

#include "testps.h"

#define US_MS    1000u
#define SCAN_US  1000 /* between two looks at the timers */
#define EVIDENCE 8    /* answers to later ones at least: it is lost, not late */

static inline uint32_t
fragments_at(const struct plan *p, unsigned e)
{
	return p->first[e + 1] - p->first[e];
}

/** The only way from one state to another of a fragment that is under way. */
static inline void
flight_enter(struct stream *x, struct flight *flight, enum flight_state state)
{
	x->at_box =
		(uint16_t)(x->at_box + (state == FLIGHT_AT_BOX) - (flight->state == FLIGHT_AT_BOX));
	x->under_way = (uint16_t)(x->under_way - (state == FLIGHT_DONE));
	flight->state = (uint8_t)state;
}

/** May stream @p s send its next fragment? */
bool rounds_may_send(const struct lane *l, unsigned s);
/** Put it into the ring of those that may. */
void rounds_ready(struct lane *l, unsigned s);
/** The frame of fragment @p i; NULL: no packet was to be had. */
struct rte_mbuf *rounds_contribution(
	struct lane *l, unsigned worker, uint32_t i, uint32_t round, unsigned flags);

/* timers.c */
/** A later result has come to stream @p s: ask about what it proves lost. */
void timers_evidence(struct lane *l, unsigned s);
/** Every SCAN_US: ask about what is late, adapt the windows, find out whether all is done. */
void timers_look(struct lane *l);

#endif /* TESTPS_ROUNDS_H */
