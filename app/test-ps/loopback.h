/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_LOOPBACK_H
#define TESTPS_LOOPBACK_H

/** @file The other side in this process. Main thread. */

#include <stdbool.h>
#include <stdint.h>

#include <pbox_base.h>

struct testps;
struct loopback;

/** A pair of ports, before ours is opened. */
int loopback_open(struct testps *t, struct pbox_error *err);
/** The one of them that is ours. */
uint16_t loopback_port(const struct loopback *b);
/** The box, or the reflector, on an lcore of its own; our port and lanes are there. */
int loopback_start(struct testps *t, struct pbox_error *err);
/** Lanes have stopped, and what they sent goes: a reflector must not know it any more. */
void loopback_forget(const struct loopback *b);
/** What a reflector has done (reflect_counts()); false: it is a box. */
bool loopback_reflected(const struct loopback *b, uint64_t *frames, uint64_t *copies);
void loopback_stop(struct testps *t);

#endif /* TESTPS_LOOPBACK_H */
