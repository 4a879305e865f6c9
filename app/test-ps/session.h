/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_SESSION_H
#define TESTPS_SESSION_H

/** @file What session.c and rejoin.c share. Main thread; every wait has a deadline. */

#include "testps.h"

/** Until @p done says so for all lanes: 0, -EIO and @p err if one fails, -ETIMEDOUT. */
int session_await(struct testps *t, bool (*done)(const struct lane *l, int want), int want,
	uint64_t patience, struct pbox_error *err);
/** All workers at a level. */
int session_reach(struct testps *t, enum level want, const char *what, struct pbox_error *err);
/** The box's addresses, by ARP, and the headers of frames to them. */
int session_find_box(struct testps *t, struct pbox_error *err);
int session_find_endpoints(struct testps *t, struct pbox_error *err);

#endif /* TESTPS_SESSION_H */
