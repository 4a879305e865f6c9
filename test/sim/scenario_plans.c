/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "law.h"

/*
 * Jobs by plan (policy reassign), from a generator of its own: one that gives none to those seeds of regressions.txt that are
 * older, and takes jobs to which nothing else happens that plans do not know.
 */

#define SUMMED  400000 /* elements of all slots in all rounds, */
#define FRAMES  6000   /* frames that bring them, roughly */
#define RECORDS 24000  /* slots of all fragments in flight */

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

static bool
may_plan(const struct sim_job_spec *j)
{
	return j->slots == 0 && !j->shrink && j->first_round == 0 && j->replaced == 0 && !j->dies &&
	       j->table[0].law == &sim_law_rounds;
}

/* R15.1: one table, with the optimiser on the box. Payloads are fp32: a node that was rounded once says how it was cut. */
static void
plan_table(struct pbox_random *r, struct sim_job_spec *j)
{
	struct sim_table_spec *t = &j->table[0];
	struct pbox_declare *d = &t->fixed;
	uint8_t optimiser = (uint8_t)range(r, PBOX_OPT_SGD, PBOX_OPT_ADAMW);
	uint64_t elements = range(r, 1, 200);

	j->tables = 1;
	t->law = &sim_law_plan;
	if (d->mode != PBOX_MODE_OPTIMISER)
		d->optimiser = optimiser;
	d->mode = PBOX_MODE_OPTIMISER;
	d->push_format = PBOX_FMT_FP32;
	if (d->op == PBOX_OP_WEIGHTED_MEAN)
		d->op = PBOX_OP_SAMPLE_MEAN;
	if (!sim_is_empty(t))
		return;
	d->tensors = 1;
	snprintf(t->tensor[0].name, sizeof(t->tensor[0].name), "layer0.weight");
	t->tensor[0].elements = elements;
}

/* Nodes of all workers by plan 0, and the most that there may be. */
static unsigned
nodes_of(const struct sim_job_spec *j)
{
	struct pbox_node node[PBOX_RANGE_NODES];
	unsigned n = 0;

	for (unsigned w = 0; w < j->workers; w++)
		n += pbox_range_nodes(sim_slots_of(j, w), sim_slots_of(j, w + 1), j->slots, node);
	return n;
}

static unsigned
most_nodes(const struct sim_job_spec *j)
{
	unsigned n = 2 * nodes_of(j) + 8;

	return n < j->slots ? n : j->slots;
}

static void
fit(const struct sim_scenario *sc, struct sim_job_spec *j)
{
	const struct pbox_declare *d = &j->table[0].fixed;
	uint32_t f = pbox_frag_elements(j->mtu, d->push_format, d->pull_format);
	uint64_t elements = 0, frames = 1;

	for (uint32_t i = 0; i < d->tensors; i++) {
		elements += j->table[0].tensor[i].elements;
		frames += j->table[0].tensor[i].elements / f + 1;
	}
	while (j->slots / 2 >= j->workers &&
		((uint64_t)j->slots * j->workers * sc->endpoints * sc->jobs > RECORDS ||
			6 * j->slots * elements > SUMMED))
		j->slots /= 2;
	while (j->rounds > 3 && (j->rounds * j->slots * elements > SUMMED ||
					j->rounds * frames * nodes_of(j) > FRAMES))
		j->rounds--;
}

static unsigned
draw_slots(struct pbox_random *r, unsigned workers)
{
	unsigned n = workers;

	switch (range(r, 0, 5)) {
	case 0:
		return n;
	case 1:
		while ((n & (n - 1)) != 0)
			n++;
		return n << range(r, 0, 3);
	case 2:
		return (unsigned)range(r, n, 512);
	default:
		return (unsigned)range(r, n, 64);
	}
}

static void
plan_job(struct pbox_random *r, struct sim_scenario *sc, struct sim_job_spec *j)
{
	unsigned most = j->workers - 1 < 3 ? j->workers - 1 : 3;

	plan_table(r, j);
	j->plan = true;
	j->slots = draw_slots(r, j->workers);
	j->rounds = (unsigned)range(r, 3, 40);
	fit(sc, j);
	j->restarts = j->push_percent = 0;
	j->sets = false;
	j->setters = j->workers;
	j->lives = 1;
	j->deaths = one_in(r, 2) && most > 0 ? (unsigned)range(r, 1, most) : 0;
	j->stops = one_in(r, 3) ? (unsigned)range(r, 1, 3) : 0;
	j->slot_ns = range(r, 1, 100) * MS * j->workers / j->slots;
	j->steals = j->slot_ns >= MS && sim_mix(sc->seed ^ UINT64_C(0x57EA1), j->slots) % 2 == 0;
}

/* Drawn apart, so that jobs without these stay what they were. */
static void
plan_more(struct sim_scenario *sc, struct sim_job_spec *j)
{
	uint64_t x = sim_mix(sc->seed ^ UINT64_C(0xC0ED5), j->slots);

	j->ahead = !j->steals && x % 3 == 0;
	x = sim_mix(x, 1);
	if (j->workers < 2 || x % 3 != 0 || sim_is_empty(&j->table[0]))
		return;
	j->least = 1 + (unsigned)(x / 3 % (j->workers - 1));
	j->named = true;
	/* of the time that the rounds take, more or less */
	j->later_ns = 1 + sim_mix(x, 2) % (j->rounds * j->slot_ns * j->slots / j->least + 200 * MS);
}

unsigned
sim_scenario_plans(struct sim_scenario *sc, uint64_t seed)
{
	bool wanted[SIM_JOBS];
	struct pbox_random r;
	unsigned units = 0;

	pbox_random_seed(&r, seed ^ UINT64_C(0x1B5BF));
	for (unsigned i = 0; i < SIM_JOBS; i++)
		wanted[i] = one_in(&r, 5);
	for (unsigned i = 0; i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];

		if (!wanted[i] || !may_plan(j))
			continue;
		plan_job(&r, sc, j);
		plan_more(sc, j);
		sc->rate = 0;
		/* of several jobs the first ones may take more than they need */
		units += (sc->jobs > 1 ? 4 : 2) * (most_nodes(j) - j->workers);
		/* plans are made after some rounds */
		for (unsigned k = 0; k < sc->crashes; k++)
			if (sc->crash[k].box == j->box)
				sc->crash[k].at *= range(&r, 1, 8);
	}
	return units;
}
