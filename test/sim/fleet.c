/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "law.h"

/*
 * What must hold of a job at several boxes beside what holds at each of them (section 16 of the protocol): numbers of workers
 * and of runs are those that the first box has given (R16.3), and each chunk is at the box that R16.5 says.
 */

/* ---- numbers ----------------------------------------------------------------------------------- */

static bool
was_given(const struct sim_job *j, const struct pbox_welcome *m)
{
	unsigned n = j->n_given < SIM_GIVEN ? j->n_given : SIM_GIVEN;

	for (unsigned i = 0; i < n; i++)
		if (j->given[i].nonce == m->nonce && j->given[i].run == m->number &&
			j->given[i].worker == m->worker)
			return true;
	return false;
}

void
sim_fleet_welcome(struct sim *s, unsigned job, const struct pbox_welcome *m)
{
	struct sim_job *j = &s->job[job];
	unsigned i = j->n_given % SIM_GIVEN;

	if (!sim_is_fleet(&s->sc, &s->sc.job[job]))
		return;
	/* a first box that nobody follows any more gives numbers of the run that goes on; in one of its own nobody else takes part */
	if (s->box->number < j->decider && m->number != j->part[j->decider].run)
		return;
	if (!was_given(j, m) && s->box->number > j->decider) {
		sim_fail(s,
			"job %u: box %u takes worker %u into run %llu, which the box that decides has not given it",
			job, s->box->number, m->worker, (unsigned long long)m->number);
	} else if (!was_given(j, m)) {
		j->given[i].nonce = m->nonce;
		j->given[i].run = m->number;
		j->given[i].worker = m->worker;
		j->n_given++;
	}
}

bool
sim_box_dies(const struct sim_scenario *sc)
{
	return sc->dead_box != 0 || sc->first != SIM_FIRST_STAYS;
}

/* ---- chunks ------------------------------------------------------------------------------------ */

struct chunk {
	uint32_t index, elements;
	const struct sim_fragment *first;
};

/* The largest first, of equal ones that with the lower index. */
static int
larger_first(const void *a, const void *b)
{
	const struct chunk *x = a, *y = b;

	if (x->elements != y->elements)
		return x->elements > y->elements ? -1 : 1;
	return x->index < y->index ? -1 : 1;
}

static unsigned
least_loaded(const uint64_t *load, unsigned boxes)
{
	unsigned least = 0;

	for (unsigned b = 1; b < boxes; b++)
		if (load[b] < load[least])
			least = b;
	return least;
}

/* The boxes' elements after this table. */
static void
share(struct sim *s, unsigned job, unsigned table, uint64_t *load)
{
	struct sim_job *j = &s->job[job];
	uint32_t n = j->chunks[table], known = 0;
	struct chunk *chunk = calloc(n + 1, sizeof(*chunk));

	PBOX_ASSERT(chunk != NULL);
	for (uint32_t i = 0; i < n; i++)
		chunk[i].index = i;
	for (uint32_t i = 0; i < j->n_fragments; i++) {
		const struct sim_fragment *f = &j->fragment[i];
		struct chunk *k = &chunk[f->chunk & ((1u << PBOX_CHUNK_BITS) - 1)];

		if (f->table != table)
			continue;
		known += k->first == NULL;
		k->first = k->first == NULL ? f : k->first;
		k->elements += f->elements;
	}
	if (known != n)
		sim_fail(s, "job %u table %u: a worker goes on with %u chunks of %u", job, table,
			known, n);
	qsort(chunk, n, sizeof(*chunk), larger_first);
	for (uint32_t i = 0; i < n && !s->failed; i++) {
		unsigned box = least_loaded(load, s->sc.fleet);

		load[box] += chunk[i].elements;
		if (chunk[i].first->first_box != box)
			sim_fail(s, "job %u: chunk %x is at box %u, not at box %u", job,
				chunk[i].first->chunk, chunk[i].first->first_box, box);
	}
	free(chunk);
}

void
sim_fleet_maps(struct sim *s, unsigned job)
{
	struct sim_job *j = &s->job[job];
	uint64_t load[SIM_BOXES] = {0};

	if (!sim_is_fleet(&s->sc, &s->sc.job[job]) || j->shared)
		return;
	j->shared = true;
	for (unsigned t = 0; t < s->sc.job[job].tables && !s->failed; t++)
		share(s, job, t, load);
}
