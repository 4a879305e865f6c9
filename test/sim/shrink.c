/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "shrink.h"

/*
 * First the parameters, with other faults drawn each time: many a bug needs none in particular. Then
 * the faults of the run that is left, as a list, by delta debugging: halves, quarters, ... are left
 * out while it still fails by the same invariant. Then both again. Whatever is tried is judged by a
 * run; a change that makes it fail otherwise, or not at all, is taken back.
 */

#define SALTS 3      /* draws that are tried for a scenario */
#define LARGE 100000 /* from here on all or nothing: bits of a double, nanoseconds */
#define EACH  5000   /* effort of a run beside its events */

struct shrink {
	struct sim_case *c;
	struct sim_outcome best;
	char invariant[256];
	uint64_t effort;
};

static void
keep_list(struct sim_faults *l, const struct sim_faults *from)
{
	l->n = 0;
	for (size_t i = 0; i < from->n; i++)
		sim_faults_add(l, &from->f[i]);
	sim_faults_sort(l);
}

/* Does this case fail in the same way, and not much later? Then it is the best so far. */
static bool
fails(struct shrink *z, struct sim_case *c)
{
	struct sim_outcome out;

	if (z->effort == 0)
		return false;
	c->events = z->best.run.events + z->best.run.events / 4 + 100;
	sim_isolated(c, &out);
	c->events = 0;
	z->effort -= out.run.events + EACH < z->effort ? out.run.events + EACH : z->effort;
	if (out.ok || strcmp(out.invariant, z->invariant) != 0)
		return false;
	z->best = out;
	return true;
}

/* ---- parameters -------------------------------------------------------------------------- */

static bool
smaller_by(struct shrink *z, const struct sim_smaller *step)
{
	struct sim_case *c = z->c;
	uint64_t salt = c->salt;
	struct sim_scenario sc;

	sim_case_scenario(c, &sc);
	if (c->n_smaller == SIM_SMALLER || !sim_smaller_apply(&sc, step))
		return false;
	c->smaller[c->n_smaller++] = *step;
	for (unsigned i = 0; i < SALTS; i++) {
		c->salt = salt + i;
		if (!fails(z, c))
			continue;
		if (c->listed)
			keep_list(&c->faults, &z->best.made);
		return true;
	}
	c->n_smaller--;
	c->salt = salt;
	return false;
}

/* One parameter, of one job, table or tensor: the least that does, by halves. */
static bool
parameter(struct shrink *z, struct sim_smaller *step)
{
	struct sim_scenario sc;
	uint64_t least, now;
	bool any = false;

	sim_case_scenario(z->c, &sc);
	while (sim_smaller_range(&sc, step, &least, &now)) {
		step->value = least;
		while (!smaller_by(z, step)) {
			step->value += (now - step->value + 1) / 2;
			if (step->value >= now || now > LARGE || z->effort == 0)
				return any;
		}
		any = true;
		sim_case_scenario(z->c, &sc);
	}
	return any;
}

static bool
parameters(struct shrink *z)
{
	bool any = false;

	for (unsigned what = 0; what < sim_smaller_count(); what++) {
		struct sim_smaller step = {.what = what};
		struct sim_scenario sc;

		do {
			any |= parameter(z, &step);
			sim_case_scenario(z->c, &sc);
		} while (z->effort > 0 && sim_smaller_next(&sc, &step));
	}
	return any;
}

/* ---- faults ------------------------------------------------------------------------------ */

/* Without those from .. to - 1, or with these alone. */
static bool
part(struct shrink *z, size_t from, size_t to, bool alone)
{
	struct sim_case part = *z->c;
	size_t n = z->c->faults.n;
	bool good = false;

	part.faults = (struct sim_faults){0};
	for (size_t i = 0; i < n; i++)
		if ((i >= from && i < to) == alone)
			sim_faults_add(&part.faults, &z->c->faults.f[i]);
	/* where much changes the times do too: they are worth more than one draw */
	for (unsigned i = 0; !good && i < (part.faults.n < n / 2 ? SALTS : 1); i++) {
		part.salt = z->c->salt + i;
		good = fails(z, &part);
	}
	free(part.faults.f);
	if (good) {
		z->c->salt = part.salt;
		keep_list(&z->c->faults, &z->best.made);
	}
	return good;
}

/* All of a kind at once: the list is sorted by kind. */
static bool
kinds(struct shrink *z)
{
	struct sim_faults *l = &z->c->faults;
	bool any = false;

	for (unsigned kind = 0; kind < SIM_FAULT_KINDS; kind++) {
		size_t from = 0, to;

		while (from < l->n && l->f[from].kind < kind)
			from++;
		for (to = from; to < l->n && l->f[to].kind == kind;)
			to++;
		any |= to > from && part(z, from, to, false);
	}
	return any;
}

/* One of few parts may do alone. */
static bool
halves(struct shrink *z)
{
	struct sim_faults *l = &z->c->faults;
	bool any = false;

	for (size_t parts = 2, i = 0; parts <= 8 && l->n >= 2 * parts;) {
		if (part(z, l->n * i / parts, l->n * (i + 1) / parts, true)) {
			any = true;
			parts = 2;
			i = 0;
		} else if (++i == parts) {
			parts *= 2;
			i = 0;
		}
	}
	return any;
}

static bool
faults(struct shrink *z)
{
	struct sim_faults *l = &z->c->faults;
	bool any = l->n > 0 && part(z, 0, l->n, false);
	size_t parts = 2;

	any |= kinds(z);
	any |= halves(z);
	while (l->n > 0 && z->effort > 0) {
		size_t each = (l->n + parts - 1) / parts, at = 0;
		bool less = false;

		while (at < l->n && z->effort > 0) {
			if (part(z, at, at + each, false))
				less = true; /* what is there now is tried next */
			else
				at += each;
		}
		any |= less;
		if (each == 1 && !less)
			break;
		if (each > 1)
			parts = parts * 2 < l->n ? parts * 2 : l->n;
	}
	return any;
}

bool
sim_shrink(struct sim_case *c, uint64_t effort, struct sim_outcome *out)
{
	struct shrink z = {.c = c, .effort = effort};

	sim_isolated(c, out);
	if (out->ok)
		return false;
	memcpy(z.invariant, out->invariant, sizeof(z.invariant));
	z.best = *out;
	if (!c->listed) {
		z.effort = effort / 3;
		while (parameters(&z))
			;
		z.effort += effort - effort / 3;
		/* this run again: its faults are wanted, not those of the last that was tried */
		sim_isolated(c, &z.best);
		c->listed = true;
		keep_list(&c->faults, &z.best.made);
	}
	bool again = true;

	while (again) {
		again = faults(&z);
		again = parameters(&z) || again;
	}
	sim_isolated(c, out);
	return true;
}
