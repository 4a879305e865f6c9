/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SHRINK_H
#define SHRINK_H

#include "sim.h"

/* A change that makes a scenario smaller (smaller.c). */
struct sim_smaller {
	unsigned what, job, table, tensor;
	uint64_t value;
};

/* False: it changes nothing. */
bool sim_smaller_apply(struct sim_scenario *sc, const struct sim_smaller *c);
unsigned sim_smaller_count(void);
/* The same parameter of the next job, table, tensor; false when there is none. */
bool sim_smaller_next(struct sim_scenario *sc, struct sim_smaller *c);
/* False: it cannot be made smaller. */
bool sim_smaller_range(
	struct sim_scenario *sc, const struct sim_smaller *c, uint64_t *least, uint64_t *now);
void sim_smaller_print(const struct sim_smaller *c, FILE *to);
bool sim_smaller_line(struct sim_smaller *c, const char *line);

#define SIM_SMALLER 400 /* changes of one case at most */

/* A run that can be repeated: a seed, what was made smaller, and the faults that are left. */
struct sim_case {
	uint64_t seed, salt;
	struct sim_limits limits;
	struct sim_smaller smaller[SIM_SMALLER];
	unsigned n_smaller;
	uint64_t events; /* of a run at most; 0: no limit */
	bool listed;     /* these faults and no others; else as they are drawn */
	struct sim_faults faults;
};

/* The outcome of a run in a process of its own, so that one that dies is an outcome too. */
struct sim_outcome {
	bool ok;
	struct sim_result run;
	char why[512], invariant[256]; /* also of a process that died */
	struct sim_faults made;        /* belongs to the next run */
};

void sim_case_scenario(const struct sim_case *c, struct sim_scenario *sc);
void sim_isolated(const struct sim_case *c, struct sim_outcome *out);
/* As it is, in words, in this process. */
void sim_case_tell(const struct sim_case *c, bool verbose);
void sim_case_print(const struct sim_case *c, FILE *to);
/* What is left, in words, and the file that --replay takes. False: that does not do the same. */
bool sim_case_report(const struct sim_case *c, const struct sim_outcome *out);
bool sim_case_read(struct sim_case *c, FILE *from);

/*
 * Make a case that fails smaller: by the same invariant, with fewer faults and smaller parameters.
 * `effort` bounds what it takes: events of all runs. The same case becomes the same. False: it does
 * not fail.
 */
bool sim_shrink(struct sim_case *c, uint64_t effort, struct sim_outcome *out);

#endif /* SHRINK_H */
