/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_REFLECT_H
#define TESTPS_REFLECT_H

/** @file A peer that reflects, in this process. Main thread. */

#include <stdint.h>

struct pbox_error;
struct reflect;

/** Make the port that is to be ours. -EIO and @p err. */
int reflect_open(uint16_t *port, struct pbox_error *err);
/** Its other side on @p lcore; the port is started, with so many queue pairs. NULL and @p err. */
struct reflect *reflect_start(
	uint16_t port, unsigned queues, unsigned lcore, struct pbox_error *err);
/** The memory of payloads that were sent is no longer what it was: no lane
 * sends now. Waits for it. */
void reflect_forget(struct reflect *r);
/** Frames that were sent back, and how many of their payloads were copied. */
void reflect_counts(const struct reflect *r, uint64_t *frames, uint64_t *copies);
/** Before the port is closed. NULL is allowed. */
void reflect_stop(struct reflect *r);

#endif /* TESTPS_REFLECT_H */
