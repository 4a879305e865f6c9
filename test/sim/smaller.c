/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "law.h"
#include "shrink.h"

/* Parameters of a scenario that can be made smaller, by name. */

enum scope {
	ALL, /* of the scenario */
	JOB,
	TABLE,
	TENSOR,
};

#define G(name, field, least)                                            \
	{                                                                \
		name, ALL, offsetof(struct sim_scenario, field),         \
			sizeof(((struct sim_scenario *)0)->field), least \
	}
#define J(name, field, least)                                            \
	{                                                                \
		name, JOB, offsetof(struct sim_job_spec, field),         \
			sizeof(((struct sim_job_spec *)0)->field), least \
	}

/* The first three take something away; of the others the value is set. */
static const struct parameter {
	const char *name;
	enum scope scope;
	size_t at, size;
	uint64_t least;
} parameters[] = {
	{"without-job", JOB, 0, 0, 0},
	{"without-table", TABLE, 0, 0, 0},
	{"without-tensor", TENSOR, 0, 0, 0},
	G("boxes", boxes, 1),
	G("fleet", fleet, 0),
	G("named", named, 0),
	G("shards", shards, 1),
	G("endpoints", endpoints, 1),
	G("crashes", crashes, 0),
	G("commands", commands, 0),
	G("death", dead_box, 0),
	G("first", first, SIM_FIRST_STAYS),
	G("snapshots", snapshots, 0),
	G("noise", noise, 0),
	G("recorded", recorded, 0),
	G("moves", moves, 0),
	G("stray", stray, 0),
	G("rate", rate, 0),
	G("train", train, 1),
	G("lanes", lanes, 0),
	G("late-dma", late_dma, 0),
	G("holes", net.holes, 0),
	G("burst", net.burst, 1),
	/* of these the least is 0.0, whose bits are 0 */
	G("loss", net.loss, 0),
	G("target-loss", net.target_loss, 0),
	G("bad-loss", net.bad_loss, 0),
	G("repeat", net.dup, 0),
	G("damage", net.corrupt, 0),
	G("cut", net.truncate, 0),
	G("reorder", net.reorder, 0),
	J("box", box, 0),
	J("lives", lives, 1),
	J("rounds", rounds, 1),
	J("workers", workers, 1),
	J("slots", slots, 0),
	J("plain", plain, 0),
	J("plan", plan, 0),
	J("steals", steals, 0),
	J("ahead", ahead, 0),
	J("least", least, 0),
	J("later-ns", later_ns, 0),
	J("deaths", deaths, 0),
	J("stops", stops, 0),
	J("slot-ns", slot_ns, 1000),
	J("restarts", restarts, 0),
	J("rebinds", rebinds, 0),
	J("dies", dies, 0),
	J("shrink", shrink, 0),
	J("push", push_percent, 0),
	J("sets", sets, 0),
	J("zeros", zeros, 0),
	J("any-number", any_number, 0),
	J("pull0", pull0, 0),
	J("barrier", barrier, 0),
	J("compute-ns", compute_ns, 0),
	{"elements", TENSOR, offsetof(struct pbox_tensor_entry, elements), 8, 1},
	{"group", TENSOR, offsetof(struct pbox_tensor_entry, group), 2, 0},
};
#define PARAMETERS (sizeof(parameters) / sizeof(*parameters))

static uint64_t
get(const void *p, size_t size)
{
	uint64_t v = 0;

	memcpy(&v, p, size); /* little endian, as the box is */
	return v;
}

/* Where the parameter is, or NULL. */
static uint8_t *
place(struct sim_scenario *sc, const struct sim_smaller *c)
{
	const struct parameter *p = &parameters[c->what];
	uint8_t *base = (uint8_t *)sc;

	if (p->scope != ALL && c->job >= sc->jobs)
		return NULL;
	if (p->scope >= TABLE && c->table >= sc->job[c->job].tables)
		return NULL;
	if (p->scope == TENSOR && c->tensor >= sc->job[c->job].table[c->table].fixed.tensors)
		return NULL;
	if (p->scope == JOB)
		base = (uint8_t *)&sc->job[c->job];
	else if (p->scope == TENSOR)
		base = (uint8_t *)&sc->job[c->job].table[c->table].tensor[c->tensor];
	return base + p->at;
}

static bool
without(struct sim_scenario *sc, const struct sim_smaller *c)
{
	struct sim_job_spec *j = &sc->job[c->job];
	struct sim_table_spec *t = &j->table[c->table];

	switch (parameters[c->what].scope) {
	case JOB:
		if (sc->jobs == 1)
			return false;
		sc->jobs--;
		memmove(j, j + 1, (sc->jobs - c->job) * sizeof(*j));
		return true;
	case TABLE:
		if (j->tables == 1)
			return false;
		j->tables--;
		memmove(t, t + 1, (j->tables - c->table) * sizeof(*t));
		for (unsigned i = 0; i < j->tables; i++)
			j->table[i].fixed.table = i;
		return true;
	default:
		if (t->fixed.tensors == 1)
			return false;
		t->fixed.tensors--;
		memmove(&t->tensor[c->tensor], &t->tensor[c->tensor + 1],
			(t->fixed.tensors - c->tensor) * sizeof(t->tensor[0]));
		return true;
	}
}

/* What depends on others. */
static void
mend(struct sim_scenario *sc)
{
	if (sc->fleet > sc->boxes)
		sc->fleet = sc->boxes;
	if (sc->fleet == 1)
		sc->fleet = 0;
	for (unsigned i = 0; i < SIM_CRASHES; i++)
		if (sc->crash[i].box >= sc->boxes)
			sc->crash[i].box = 0;
	for (unsigned i = 0; i < sc->net.holes; i++)
		if (sc->net.hole[i].boxes >> sc->boxes != 0)
			sc->net.hole[i].boxes &= (1u << sc->boxes) - 1;
	if (sc->endpoints > 2 * sc->shards || sc->endpoints % sc->shards != 0)
		sc->endpoints = sc->shards;
	for (unsigned i = 0; i < sc->jobs; i++) {
		/* a round of two phases ends before the next one begins (phases.c) */
		sc->job[i].barrier |= sim_any_held(sc, i);
		struct sim_job_spec *j = &sc->job[i];

		if (j->box >= sc->boxes)
			j->box = 0;
		if (j->setters > j->workers || sim_job_crashes(sc, j))
			j->setters = j->workers;
		if (j->restarts >= j->workers)
			j->restarts = j->workers - 1;
		j->shrink &= j->restarts > 0;
		if ((j->slots > 0 || j->plan) && j->slots < j->workers)
			j->slots = j->workers;
		if (!j->plan && j->table[0].law == &sim_law_plan)
			j->table[0].law = &sim_law_rounds;
		if (!j->plan)
			j->deaths = j->stops = 0;
	}
}

bool
sim_smaller_apply(struct sim_scenario *sc, const struct sim_smaller *c)
{
	const struct parameter *p = &parameters[c->what];
	uint8_t *at = place(sc, c);

	if (at == NULL)
		return false;
	if (p->size == 0) {
		if (!without(sc, c))
			return false;
	} else {
		if (get(at, p->size) <= c->value)
			return false;
		memcpy(at, &c->value, p->size);
	}
	mend(sc);
	return true;
}

unsigned
sim_smaller_count(void)
{
	return PARAMETERS;
}

bool
sim_smaller_next(struct sim_scenario *sc, struct sim_smaller *c)
{
	enum scope scope = parameters[c->what].scope;

	if (scope == TENSOR) {
		c->tensor++;
		if (place(sc, c) != NULL)
			return true;
		c->tensor = 0;
	}
	if (scope >= TABLE) {
		c->table++;
		if (place(sc, c) != NULL)
			return true;
		c->table = 0;
	}
	if (scope >= JOB) {
		c->job++;
		if (place(sc, c) != NULL)
			return true;
	}
	return false;
}

bool
sim_smaller_range(
	struct sim_scenario *sc, const struct sim_smaller *c, uint64_t *least, uint64_t *now)
{
	const struct parameter *p = &parameters[c->what];
	const uint8_t *at = place(sc, c);

	if (at == NULL)
		return false;
	*least = p->least;
	*now = p->size > 0 ? get(at, p->size) : p->least + 1;
	return *now > *least;
}

void
sim_smaller_print(const struct sim_smaller *c, FILE *to)
{
	fprintf(to, "set %s %u.%u.%u %" PRIu64 "\n", parameters[c->what].name, c->job, c->table,
		c->tensor, c->value);
}

bool
sim_smaller_line(struct sim_smaller *c, const char *line)
{
	char name[32];

	*c = (struct sim_smaller){0};
	if (sscanf(line, "set %31s %u.%u.%u %" SCNu64, name, &c->job, &c->table, &c->tensor,
		    &c->value) != 5)
		return false;
	for (c->what = 0; c->what < PARAMETERS; c->what++)
		if (strcmp(parameters[c->what].name, name) == 0)
			return true;
	return false;
}
