/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A job at several boxes (section 16): what this one asks of a JOIN, its part of the tables, and who the others are. */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

/* What is kept of a job: elements of its tables so far, by box. */
struct job_boxes {
	uint64_t load[PBOX_MAX_BOXES];
};

static bool
are_several(const struct pbox_registrar *r)
{
	return r->conf.boxes.boxes > 1;
}

bool
registrar_boxes_gives(const struct pbox_registrar *r)
{
	return r->conf.boxes.box == 0;
}

bool
registrar_decides(const struct pbox_registrar *r, const struct pbox_job *job)
{
	return r->conf.boxes.box == job->decider;
}

/* ---- JOIN ------------------------------------------------------------------------------------ */

bool
registrar_boxes_refer(struct pbox_registrar *r, const struct registrar_join *q, unsigned box)
{
	const struct pbox_endpoint *e = &r->conf.boxes.at[box];
	uint32_t at;

	PBOX_ASSERT(box < r->conf.boxes.boxes);
	memcpy(&at, e->ipv4, sizeof(at));
	return registrar_refuse(r, q->f, PBOX_E_ELSEWHERE, at,
		"job '%s' is at %u boxes, and %s is %u.%u.%u.%u: join there", q->m.job,
		r->conf.boxes.boxes, box == 0 ? "its first one" : "the one that decides",
		e->ipv4[0], e->ipv4[1], e->ipv4[2], e->ipv4[3]);
}

/* R16.3: who begins gets its number from the box that decides in the run that it is of; a run that is to begin, from box 0. */
static bool
has_number(struct pbox_registrar *r, struct registrar_join *q)
{
	const struct pbox_job *job = registrar_find_job(r, q->m.job);
	unsigned decider = 0;

	if (job != NULL && job->state != PBOX_JOB_CLOSING &&
		memcmp(job->run.id, q->m.run, sizeof(job->run.id)) == 0)
		decider = job->decider;
	return q->m.number != 0 || r->conf.boxes.box == decider ||
	       registrar_boxes_refer(r, q, decider);
}

static bool
knows_boxes(struct pbox_registrar *r, struct registrar_join *q)
{
	return (q->m.can & 1u << PBOX_CAN_BOXES) != 0 ||
	       registrar_refuse(r, q->f, PBOX_E_UNSUPPORTED, 0,
		       "job '%s' is at %u boxes, and this worker's library knows jobs at one box alone: install the box's release there",
		       q->m.job, r->conf.boxes.boxes);
}

static const struct registrar_check boxes_check[] = {
	{knows_boxes, PBOX_E_UNSUPPORTED},
	{registrar_pairs_join, PBOX_E_UNSUPPORTED},
	{has_number, PBOX_E_ELSEWHERE},
	{NULL, 0},
};

bool
registrar_boxes_join(struct pbox_registrar *r, struct registrar_join *q)
{
	return !are_several(r) || registrar_checks(r, q, boxes_check);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Why chunks of the table stay where they are (R16.15, R6.15); NULL: they may move. */
static const char *
stays(const struct pbox_declare *m)
{
	if (m->discipline != PBOX_DISCIPLINE_ROUNDS)
		return "is in clocks";
	return (m->flags & PBOX_DECLARE_HOLD) != 0 ? "has two phases a round (HOLD, max_norm=)"
						   : NULL;
}

bool
registrar_boxes_declare(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_declare *m, struct pbox_error *what)
{
	if (!are_several(r) || stays(m) == NULL ||
		(job->map_epoch == PBOX_MAP_EPOCH && job->out == 0))
		return false;
	pbox_fail(what, PBOX_E_UNSUPPORTED,
		"table %u %s, and chunks of job '%s' have moved (map %u), or a box is out: chunks of such tables stay where they are; declare it before, or start the job again",
		m->table, stays(m), job->name, job->map_epoch);
	return true;
}

int
registrar_boxes_stay(const struct pbox_job *job, struct pbox_error *err)
{
	for (uint32_t i = 0; i < job->n_tables; i++) {
		const struct pbox_job_table *jt = job->table[i];

		if (stays(&jt->fixed) != NULL && !jt->failed)
			return pbox_fail(err, ENOTSUP,
				"table %u of job '%s' %s, and in such a job chunks stay at the boxes that have them: start a box that is dead again, workers give it back what it had; for other boxes start the job again",
				i, job->name, stays(&jt->fixed));
	}
	return 0;
}

bool
registrar_boxes_share(const struct pbox_registrar *r, struct pbox_job *job, struct pbox_table *t)
{
	struct job_boxes *b = registrar_job_state(job, PART_boxes);

	if (!are_several(r))
		return true;
	/* all boxes share tables out in one order */
	for (uint32_t i = 0; i < t->id; i++)
		if (!job->table[i]->built && !job->table[i]->failed)
			return false;
	t->boxes = r->conf.boxes.boxes;
	t->box = r->conf.boxes.box;
	t->box_load = b->load;
	return true;
}

/* ---- BOXES ------------------------------------------------------------------------------------- */

static void
on_boxes(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	const struct pbox_registrar_boxes *b = &r->conf.boxes;
	struct pbox_boxes_ok m = {.boxes = b->boxes,
		.box = b->box,
		.decides = job->decider,
		.cores = pbox_place_cores(r->place, r->conf.n_endpoints),
		.chunk_elements = r->conf.chunk_elements,
		.mtu = r->conf.mtu,
		.out = job->out};

	if (!are_several(r)) {
		count_control(r, PBOX_RS_DROP_TYPE);
		registrar_unsupported(r, f, pbox_type_name(f->hdr.type));
		return;
	}
	count_control(r, PBOX_RS_RX_BOXES);
	snprintf(m.release, sizeof(m.release), "%s", b->release);
	memcpy(m.at, b->at, b->boxes * sizeof(m.at[0]));
	registrar_reply(
		r, f, PBOX_BOXES_OK, pbox_boxes_ok_encode(r->scratch, sizeof(r->scratch), &m));
}

const struct registrar_part registrar_boxes_part = {
	.name = "several boxes",
	.types = {{on_boxes, PBOX_BOXES}},
	.job_state = sizeof(struct job_boxes),
};
