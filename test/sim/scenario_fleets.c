/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "law.h"

/*
 * Jobs at several boxes (section 16 of the protocol), from a generator of its own: it takes a scenario of one box a job, and
 * gives its boxes one list. Boxes crash each alone and several at once, and the network loses what goes to some of them.
 */

static uint64_t
range(struct pbox_random *r, uint64_t low, uint64_t high)
{
	return low + pbox_random_below(r, high - low + 1);
}

static bool
one_in(struct pbox_random *r, unsigned n)
{
	return pbox_random_below(r, n) == 0;
}

/* R16.2; and a box knows no version that a job begins with but 0. */
static void
fleet_job(struct sim_job_spec *j)
{
	j->box = 0;
	j->shrink = false;
	j->first_round = 0;
	/* a worker keeps the number that it has got, and in the next life's run another may have got it before it comes again */
	j->any_number &= j->lives == 1;
}

/* One box, or some of them at almost the same time. */
static void
crash(struct pbox_random *r, struct sim_scenario *sc)
{
	uint64_t at = range(r, 1, one_in(r, 2) ? 60 : 600) * MS;
	unsigned n = one_in(r, 3) ? (unsigned)range(r, 2, sc->fleet) : 1;
	unsigned first = one_in(r, 3) ? 0 : (unsigned)range(r, 0, sc->fleet - 1);

	for (unsigned i = 0; i < n && sc->crashes < SIM_CRASHES; i++, sc->crashes++) {
		uint64_t later = one_in(r, 2) ? 0 : range(r, 0, 20 * MS);

		sc->crash[sc->crashes].box = (first + i) % sc->fleet;
		sc->crash[sc->crashes].at = at + later;
		sc->crash[sc->crashes].down_ns = range(r, 0, one_in(r, 3) ? 2000 : 50) * MS;
	}
}

/* As of one box: scenario.c says why. */
static void
job_survives(struct sim_job_spec *j)
{
	j->setters = j->workers;
	j->push_percent = 0;
	j->any_number = false;
	j->replaced = 0;
}

static void
fleet_crashes(struct pbox_random *r, struct sim_scenario *sc)
{
	unsigned times = one_in(r, 2) ? 0 : (unsigned)range(r, 1, one_in(r, 3) ? 3 : 1);

	sc->crashes = sc->snapshots = 0;
	for (unsigned i = 0; i < times; i++)
		crash(r, sc);
	for (unsigned i = 0; i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];

		if (!sim_job_crashes(sc, j))
			continue;
		job_survives(j);
	}
}

static void
fleet_network(struct pbox_random *r, struct sim_scenario *sc)
{
	struct sim_network_spec *n = &sc->net;

	if (one_in(r, 5))
		n->loss = 0.3 * pbox_random_unit(r);
	n->bad_box = (unsigned)range(r, 0, sc->fleet - 1);
	n->bad_loss = one_in(r, 3) ? 0.3 * pbox_random_unit(r) : 0.0;
	n->holes = one_in(r, 3) ? (unsigned)range(r, 1, 4) : 0;
	for (unsigned i = 0; i < n->holes; i++) {
		n->hole[i].boxes = 1u << range(r, 0, sc->fleet - 1);
		if (one_in(r, 3))
			n->hole[i].boxes |= 1u << range(r, 0, sc->fleet - 1);
		n->hole[i].from = range(r, 0, one_in(r, 2) ? 100 : 2000) * MS;
		n->hole[i].to = n->hole[i].from + range(r, 1, one_in(r, 3) ? 2000 : 100) * MS;
	}
}

/* Rounds go on for a while, and what they are of moves. */
static void
moving_job(struct pbox_random *r, struct sim_job_spec *j)
{
	for (unsigned t = 0; t < j->tables; t++) {
		struct pbox_declare *d = &j->table[t].fixed;

		if (one_in(r, 8)) /* all that a box has of it moves (R16.13) */
			continue;
		d->pull_format = PBOX_FMT_FP32;
		if (d->mode == PBOX_MODE_OPTIMISER)
			d->optimiser = PBOX_OPT_SGD;
	}
	j->lives = 1;
	j->push_percent = 0; /* R16.9: what was acknowledged may be lost */
	j->rounds += j->rounds < 6 ? 6 : 0;
	j->compute_ns = range(r, 1, one_in(r, 3) ? 60 : 20) * MS;
}

/* Its jobs train longer than without, and none of it is lost but what an optimiser had. */
static void
outlives(struct pbox_random *r, struct sim_scenario *sc)
{
	for (unsigned i = 0; i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];

		if (!sim_is_fleet(sc, j))
			continue;
		for (unsigned t = 0; t < j->tables;
			t++) { /* others lose what their optimiser had */
			if (one_in(r, 2))
				continue;
			j->table[t].fixed.pull_format = PBOX_FMT_FP32;
			if (j->table[t].fixed.mode == PBOX_MODE_OPTIMISER)
				j->table[t].fixed.optimiser = PBOX_OPT_SGD;
		}
		job_survives(j);
	}
}

/* A box of some fleets dies for longer than anybody waits (R16.12). From a generator of its own. */
static void
box_dies(struct sim_scenario *sc, uint64_t seed)
{
	struct pbox_random r;

	pbox_random_seed(&r, seed ^ UINT64_C(0xDEADB0));
	if (!one_in(&r, 3))
		return;
	sc->dead_box = (unsigned)range(&r, 1, sc->fleet - 1);
	sc->dies_ns = range(&r, 1, one_in(&r, 2) ? 60 : 600) * MS;
	sc->told_ns = range(&r, 0, one_in(&r, 3) ? 3000 : 200) * MS;
	sc->back_ns = one_in(&r, 2) ? 0 : range(&r, 1, 500) * MS;
	outlives(&r, sc);
}

/*
 * The first box dies, or is cut off from all workers, and another one takes its place (R16.17). A job all of whose workers are
 * started again has nobody left who knows of that.
 */
static void
decider_dies(struct sim_scenario *sc, uint64_t seed)
{
	struct sim_network_spec *n = &sc->net;
	unsigned most = (unsigned)(sizeof(n->hole) / sizeof(n->hole[0])) - 1;
	struct pbox_random r;

	pbox_random_seed(&r, seed ^ UINT64_C(0xDEC1DE));
	sc->dead_box = 0;
	sc->first = one_in(&r, 3) ? SIM_FIRST_CUT : SIM_FIRST_DIES;
	if (sc->fleet > 2 && one_in(&r, 3))
		sc->first = SIM_FIRST_TWO;
	sc->dies_ns = range(&r, 20, one_in(&r, 2) ? 100 : 600) * MS;
	sc->told_ns = range(&r, 0, one_in(&r, 3) ? 3000 : 200) * MS;
	sc->back_ns = one_in(&r, 3) ? 0 : range(&r, 1, one_in(&r, 2) ? 3000 : 300) * MS;
	n->holes = n->holes > most ? most : n->holes; /* one is of its own */
	for (unsigned i = 0; i < sc->jobs; i++)
		if (sc->job[i].workers < 2)
			sc->job[i].restarts = 0;
	outlives(&r, sc);
}

/* Half of the scenarios: optimisers with state, and results that are less precise than parameters. All of that moves (R16.13). Boxes are
 * started again at about the time of the commands. From a generator of its own. */
static void
moves_states(struct sim_scenario *sc, uint64_t seed)
{
	static const uint8_t format[] = {
		PBOX_FMT_FP32, PBOX_FMT_FP32, PBOX_FMT_BF16, PBOX_FMT_FP16};
	struct pbox_random r;
	bool slots = false;

	pbox_random_seed(&r, seed ^ UINT64_C(0x57A7E));
	if (!one_in(&r, 2))
		return;
	for (unsigned i = 0; i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];

		slots |= j->slots > 0;
		if (!sim_is_fleet(sc, j))
			continue;
		j->rounds += (unsigned)range(&r, 5, 15);
		for (unsigned t = 0; t < j->tables; t++) {
			struct pbox_declare *d = &j->table[t].fixed;

			d->mode = PBOX_MODE_OPTIMISER;
			d->optimiser = (uint8_t)range(&r, PBOX_OPT_MOMENTUM, PBOX_OPT_ADAMW);
			d->pull_format = format[range(&r, 0, 3)];
		}
	}
	/* with a window of 1 nothing moves (R16.11) */
	if (!slots)
		sc->hold *= 4;
	for (unsigned i = 0; i < sc->crashes && one_in(&r, 2); i++)
		if (sc->crash[i].box != 0)
			sc->crash[i].at = sc->command[range(&r, 0, sc->commands - 1)].at +
					  range(&r, 0, one_in(&r, 2) ? 10 : 200) * MS;
}

void
sim_scenario_moves(struct sim_scenario *sc, uint64_t seed, bool deciders)
{
	struct pbox_random r;
	uint64_t at;

	pbox_random_seed(&r, seed ^ UINT64_C(0x30FE5));
	for (unsigned i = 0; i < sc->jobs; i++)
		if (sim_is_fleet(sc, &sc->job[i]))
			moving_job(&r, &sc->job[i]);
	sc->rate = 0;
	sc->commands = (unsigned)range(&r, 1, one_in(&r, 3) ? SIM_COMMANDS : 3);
	at = range(&r, 20, 100) * MS;
	for (unsigned i = 0; i < sc->commands; i++) {
		sc->command[i].at = at;
		sc->command[i].what = (uint32_t)range(&r, 0, 3);
		sc->command[i].x = (uint32_t)pbox_random_u64(&r);
		sc->command[i].box = (unsigned)range(&r, 0, sc->fleet - 1);
		at += range(&r, 0, one_in(&r, 2) ? 5 : 300) * MS;
	}
	moves_states(sc, seed);
	if (deciders)
		decider_dies(sc, seed);
	else
		box_dies(sc, seed);
}

#define CRASHES_OFTEN 3

/* A job that lasts. Its boxes crash again when workers have come back, each alone or in turns. */
static void
crash_often(struct pbox_random *r, struct sim_scenario *sc, struct sim_job_spec *j)
{
	uint64_t at = range(r, 20, 400) * MS;
	unsigned box = (unsigned)range(r, 0, sc->fleet - 1), next = one_in(r, 2) ? 1 : 0;

	j->compute_ns = range(r, 5, 300) * MS;
	j->rounds = (unsigned)range(r, 5, 20);
	j->pulls_each = (unsigned)range(r, 0, 7);
	sc->crashes = (unsigned)range(r, 1, 2 * CRASHES_OFTEN);
	for (unsigned i = 0; i < sc->crashes; i++, box += next) {
		sc->crash[i].box = box % sc->fleet;
		sc->crash[i].at = at;
		sc->crash[i].down_ns = range(r, 0, 100) * MS;
		at += range(r, one_in(r, 3) ? 1 : 900, 3500) * MS;
	}
	/* all boxes of the list crash that are in it: what jobs beside it have is none of these */
	for (unsigned i = 0; i < sc->jobs; i++)
		if (sim_job_crashes(sc, &sc->job[i]))
			job_survives(&sc->job[i]);
}

/* Tables in clocks, beside some in rounds (R16.15). From a generator of its own. */
static void
fleet_clocks(struct sim_scenario *sc, uint64_t seed)
{
	struct pbox_random r;
	bool often;

	pbox_random_seed(&r, seed ^ UINT64_C(0xC10C5F));
	often = one_in(&r, 2);
	sc->snapshots = 0;
	for (unsigned i = 0; i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];
		bool any = false;

		j->slots = 0;
		if (!sim_is_fleet(sc, j) || j->replaced > 0 || j->first_round != 0)
			continue;
		for (unsigned t = 0; t < j->tables; t++) {
			struct pbox_declare *d = &j->table[t].fixed;

			if (one_in(&r, 4))
				continue;
			d->mode = PBOX_MODE_OPTIMISER;
			d->op = PBOX_OP_SUM;
			d->optimiser = PBOX_OPT_ADD;
			d->discipline = PBOX_DISCIPLINE_CLOCK;
			j->table[t].law = &sim_law_clock;
			any = true;
		}
		if (any && often)
			crash_often(&r, sc, j);
		often &= !any;
	}
}

void
sim_scenario_fleets(struct sim_scenario *sc, uint64_t seed, bool clocks)
{
	struct pbox_random r;

	pbox_random_seed(&r, seed ^ UINT64_C(0xF1EE7));
	sc->fleet = (unsigned)range(&r, 2, SIM_BOXES);
	sc->boxes = sc->fleet;
	sc->named = (unsigned)range(&r, 0, 100);
	for (unsigned i = 0; i < sc->jobs; i++)
		fleet_job(&sc->job[i]);
	/* a box that knows of no others beside them */
	if (sc->jobs > 1 && sc->fleet < SIM_BOXES && one_in(&r, 3))
		sc->job[sc->jobs - 1].box = sc->boxes++;
	fleet_crashes(&r, sc);
	fleet_network(&r, sc);
	if (clocks)
		fleet_clocks(sc, seed);
}
