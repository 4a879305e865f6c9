/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_SHOW_H
#define TESTPS_SHOW_H

/** @file Tables of the prompt, on standard output. Main thread. */

#include <stdbool.h>

struct testps;

/** Rates of show_port() count from now on. */
void show_port_begin(const struct testps *t);
/** @p what: stats, xstats or info; @p id: of ethdev, -1: all. false: there is no such port. */
bool show_port(const struct testps *t, const char *what, int id);
void show_workers(const struct testps *t);
void show_jobs(const struct testps *t);
/** Fragments under way at each endpoint of the box. */
void show_flights(const struct testps *t);
void show_settings(const struct testps *t);

#endif /* TESTPS_SHOW_H */
