/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SIM_PHASES_H
#define SIM_PHASES_H

#include <pbox_worker_norm.h>

/* Tables with two phases a round (R6.15): phases.c is what a program does with them, law_hold.c what must hold. */

struct pbox_hdr;
struct pbox_send;
struct sim;
struct sim_fragment;
struct sim_job;
struct sim_limits;
struct sim_op;
struct sim_push;
struct sim_scenario;
struct sim_table_spec;
struct sim_worker;

enum sim_phase_state {
	SIM_PHASE_NONE,
	SIM_PHASE_PUSH,
	SIM_PHASE_NORM,
	SIM_PHASE_SET,  /* to be sent, */
	SIM_PHASE_SAID, /* and sent */
	SIM_PHASE_PULL,
};

/* A table of a program. */
struct sim_phase {
	enum sim_phase_state state;
	uint32_t round;  /* since first_round */
	unsigned pushes; /* that have not ended */
	bool again;      /* what is submitted now */
	bool lost;       /* the box was started again: all are pushed once more */
	bool skipped;    /* and that is set: the number of steps comes next */
	double coefficient;
	struct pbox_worker_norm norm;
};

/* What a round of a table must come to, from contributions alone. */
struct sim_round {
	uint64_t square[3];
	uint32_t non_finite, steps; /* steps: left out so far, with this one */
	double coefficient;
};

/* Some tables of the scenario get two phases. */
void sim_scenario_hold(struct sim_scenario *sc, uint64_t seed, const struct sim_limits *limits);
bool sim_is_held(const struct sim_table_spec *t);
bool sim_any_held(const struct sim_scenario *sc, unsigned job);
double sim_max_norm(const struct sim_scenario *sc, unsigned job, unsigned table);

/* The program: round `round` begins; again: its pushes are brought once more. */
void sim_hold_begin(struct sim_worker *w, unsigned table, uint32_t round, unsigned pushes);
/* A push of it has ended, or something that a restarted box has lost: true, then the program goes on with that. */
bool sim_hold_ended(struct sim *s, struct sim_worker *w, const struct sim_op *o);
/* An answer to a SET of its own. */
bool sim_hold_said(struct sim *s, struct sim_worker *w, unsigned code);
/* Does it wait for a norm? */
/* Has a round of one of its tables begun, and not ended? */
bool sim_hold_between(const struct sim *s, const struct sim_worker *w);
bool sim_hold_asks(const struct sim *s, const struct sim_worker *w);
/* What comes next; true: there is something. */
bool sim_hold_step(struct sim *s, struct sim_worker *w);

/* What the box sums of a round of a fragment, scaled (reference.c); returns how many slots it is of. */
unsigned sim_mean(const struct sim_scenario *sc, unsigned job, unsigned life,
	const struct sim_fragment *f, uint32_t round, float *g, uint64_t *samples);

/* The law. */
/* A fragment is known; none is any more. */
void hold_begin(struct sim *s, unsigned job, struct sim_fragment *f);
void hold_forget(struct sim_job *j);
const struct sim_round *hold_round(const struct sim_fragment *f, uint32_t round);
/* Rounds up to this one that were left out. */
uint32_t hold_steps(struct sim *s, unsigned job, unsigned table, uint32_t round);
/* An element of a contribution that is no finite number; else 0. */
uint32_t hold_bad(
	const struct sim_scenario *sc, const struct sim_push *k, uint32_t tensor, uint64_t at);
/* The box answers NORM. */
void hold_normed(struct sim *s, unsigned job, const struct pbox_send *out);
/* A RESULT of a round. */
void hold_result(struct sim *s, unsigned job, const struct sim_fragment *f, uint32_t round);
double hold_coefficient(const uint64_t square[3], uint32_t non_finite, double max_norm);

#endif /* SIM_PHASES_H */
