/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_JSON_H
#define TESTPS_JSON_H

/** @file Results as JSON: what a run and a search have in common. Main thread. */

#include <jansson.h>

#include <pbox_base.h>

struct testps;
struct figures;

/** Program, machine, settings, ports. */
json_t *json_results(struct testps *t);
json_t *json_figures(const struct figures *f);
void json_counters(json_t *results, const struct figures *f);
/** Whether it can be written there, before a run that takes long; what is there stays. */
int json_try(const char *path, struct pbox_error *err);
/** Write and let go of it. */
int json_save(json_t *results, const char *path, struct pbox_error *err);
/** All of a run, where --json says. */
int json_write(struct testps *t, const struct figures *f, struct pbox_error *err);

#endif /* TESTPS_JSON_H */
