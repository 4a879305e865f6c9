/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_RUN_H
#define TESTPS_RUN_H

/** @file What the program does once it has its ports. Main thread. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct testps;
struct testps_load;
struct pbox_error;
struct figures;

/** SIGINT and SIGTERM end what runs. */
void run_stop_signals(void);
/** Was there one? */
bool run_stop_wanted(void);

/** Settings of the load that lanes read while they run. */
void run_settings(struct testps *t);
/** A line for each port. */
void run_ports(const struct testps *t, FILE *to);
/** Rounds, a search, or the prompt, as the options say; the exit status. */
int run(struct testps *t);

/** Join if need be, and begin; says what was agreed. */
int run_start(struct testps *t, struct pbox_error *err);
/** Finish the round in progress, and say what came of it. */
int run_stop(struct testps *t, struct pbox_error *err);
/** Rounds for so long, measured from @p warm_us on. */
int run_trial(
	struct testps *t, uint64_t warm_us, uint64_t us, struct figures *f, struct pbox_error *err);
void run_summary(const struct figures *f, FILE *to);

/* set.c */
/** "set WHAT TEXT" in @p l. 1: it holds at once, 0: for the next session, -EINVAL and @p err. */
int run_set(struct testps *t, struct testps_load *l, const char *what, const char *text,
	struct pbox_error *err);

/* stolen.c */
/** Time that all lcores together could have run and did not, as others had their CPUs, since the start: the kernel
 * keeps it. 0: it is not known. */
uint64_t run_stolen_us(void);

/* search.c */
/** What --search and --sweep-workers say. 0 or -errno. */
int search(struct testps *t, struct pbox_error *err);

/* prompt.c */
/** Until quit. @p fd: a terminal or a file of commands. */
int prompt(struct testps *t, int fd, bool echo);

#endif /* TESTPS_RUN_H */
