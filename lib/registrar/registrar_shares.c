/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Homes for the chunks of boxes that are out (R16.12). */

#include "registrar_impl.h"

/* Elements that each box is to have by the plans of all tables. */
static void
plan_load(const struct pbox_job *job, uint64_t load[PBOX_MAX_BOXES])
{
	for (uint32_t k = 0; k < job->n_tables; k++) {
		const struct pbox_table *t = &job->table[k]->t;

		if (t->plan == NULL) /* not built */
			continue;
		for (uint32_t i = 0; i < t->n_chunks; i++)
			load[t->plan[i].box] += t->layout.chunk[i].elements;
	}
}

/* Of the boxes of the set, which is not empty, the one that has least. */
static unsigned
least_of(uint16_t set, const uint64_t load[PBOX_MAX_BOXES])
{
	unsigned best = PBOX_MAX_BOXES;

	for (unsigned b = 0; b < PBOX_MAX_BOXES; b++)
		if ((set >> b & 1) != 0 && (best == PBOX_MAX_BOXES || load[b] < load[best]))
			best = b;
	return best;
}

/* Chunks of boxes outside of the set go to the one that has least; where nobody is in it they stay. */
static int
plan_table(struct pbox_table *t, uint16_t set, uint16_t epoch, uint64_t load[PBOX_MAX_BOXES])
{
	int n = 0;

	for (uint32_t i = 0; set != 0 && t->plan != NULL && i < t->n_chunks; i++) {
		uint64_t size = t->layout.chunk[i].elements;
		unsigned from = t->plan[i].box, to;

		if ((set >> from & 1) != 0)
			continue;
		to = least_of(set, load);
		load[from] -= size;
		load[to] += size;
		t->plan[i] = (struct pbox_table_home){.box = (uint8_t)to, .epoch = epoch};
		n++;
	}
	return n;
}

/* Boxes that are not out and have chunks; if none has: all that are not out. */
static uint16_t
living(uint16_t out, unsigned boxes, const uint64_t load[PBOX_MAX_BOXES])
{
	uint16_t all = (uint16_t)(((1u << boxes) - 1) & ~(unsigned)out), some = 0;

	for (unsigned b = 0; b < boxes; b++)
		if (load[b] > 0)
			some |= (uint16_t)(all & 1u << b);
	return some != 0 ? some : all;
}

int
registrar_share_lost(struct pbox_job *job, uint16_t out, unsigned boxes, uint16_t epoch)
{
	uint64_t load[PBOX_MAX_BOXES] = {0};
	uint16_t set;
	int n = 0;

	plan_load(job, load);
	set = living(out, boxes, load);
	for (uint32_t k = 0; k < job->n_tables; k++)
		n += plan_table(&job->table[k]->t, set, epoch, load);
	return n;
}

void
registrar_share_new(const struct pbox_registrar *r, struct pbox_job *job, uint32_t table)
{
	uint64_t load[PBOX_MAX_BOXES] = {0};

	if (job->out == 0 || !registrar_decides(r, job) || job->table[table]->restorers > 0)
		return;
	plan_load(job, load);
	plan_table(&job->table[table]->t, living(job->out, r->conf.boxes.boxes, load),
		job->map_epoch, load);
}
