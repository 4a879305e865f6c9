/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FLEET_H
#define FLEET_H

/* Jobs at several boxes (section 16 of the protocol). */

#include <stdbool.h>
#include <stdint.h>

/* crashes that are none of the scenario's list: of the box that dies, and of the one that is to be started again */
#define SIM_DEATH  (SIM_CRASHES + 0)
#define SIM_REVIVE (SIM_CRASHES + 1)

/* What becomes of the first box of the list: another one takes its place by a command (R16.17). */
enum sim_first {
	SIM_FIRST_STAYS,
	SIM_FIRST_DIES,
	SIM_FIRST_TWO, /* and then that one */
	SIM_FIRST_CUT, /* nothing reaches it, and nothing that it sends arrives, until it is back */
};

struct pbox_welcome;
struct sim;
struct sim_job_spec;
struct sim_part;
struct sim_scenario;

/* All its jobs, or nearly all, are at several boxes (scenario_fleets.c); with tables in clocks. */
void sim_scenario_fleets(struct sim_scenario *sc, uint64_t seed, bool clocks);
/* ... and their chunks move; and the box that decides dies. */
void sim_scenario_moves(struct sim_scenario *sc, uint64_t seed, bool deciders);
/* Does one of them die, or is taken for dead? */
bool sim_box_dies(const struct sim_scenario *sc);
/* Is the job at this box? At several ones? Does one of its boxes crash? */
bool sim_is_at(const struct sim_scenario *sc, const struct sim_job_spec *j, unsigned box);
bool sim_is_fleet(const struct sim_scenario *sc, const struct sim_job_spec *j);
bool sim_job_crashes(const struct sim_scenario *sc, const struct sim_job_spec *j);
/* Is the job at the box whose event it is? Is that the one where events of its workers happen? */
bool sim_is_here(const struct sim *s, unsigned job);
bool sim_is_home(const struct sim *s, unsigned job);
/* What it is there. */
struct sim_part *sim_part(struct sim *s, unsigned job);
/* Its contributions cannot be counted any more. */
void sim_inexact(struct sim *s, unsigned job);
/* Has a box that it is at been started again? */
bool sim_was_restarted(const struct sim *s, unsigned job);
/* When something has last moved at the box whose event it is, or at the others of its list. */
uint64_t sim_progress(const struct sim *s);
/* Of jobs at several boxes (fleet.c): WELCOME of one of them; a worker has the maps of all tables. */
void sim_fleet_welcome(struct sim *s, unsigned job, const struct pbox_welcome *m);
void sim_fleet_maps(struct sim *s, unsigned job);

/* Chunks move (moves.c): a command is given; a box answers HOMES_OK; RESTORE reaches a box that is not the owner, or was not in
 * this epoch; such a box sends something of the fragment; the fragment is forgotten. */
struct pbox_hdr;
struct pbox_send;
struct sim_fragment;
void sim_moves_plan(struct sim *s);
/* The box that decides is gone: another one is to take its place. */
void sim_moves_goes(struct sim *s);
void sim_moves_command(struct sim *s, unsigned command, unsigned tries);
void sim_moves_homes(struct sim *s, unsigned job, const struct pbox_send *out);
void sim_moves_told(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload);
void sim_moves_answer(
	struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_send *out);
void sim_moves_forget(struct sim_fragment *f);
/* A box answers MAPPED: where it is of another run, nothing has moved. */
void sim_moves_run(struct sim *s, unsigned job);

#endif /* FLEET_H */
