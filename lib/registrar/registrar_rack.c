/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A rack's box (section 18): whose JOIN it takes, the uplink that must be a member of the run first, and what it refuses. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registrar_impl.h"

/* When who joins is to ask again while the uplink joins. */
#define UPLINK_AGAIN_MS 50
/* Fragments of the upper table for one of the rack's, at most: push formats of 2 bytes make a fragment of twice the elements. */
#define PIECES 2
/* What a rack has said holds for so long (R18.8): it says it twice a second. */
#define SAID_NS (3000 * NS_PER_MS)

static bool
is_rack(const struct pbox_registrar *r)
{
	return r->conf.rack.racks > 0;
}

/* ---- JOIN ------------------------------------------------------------------------------------ */

/* Without a name two runs could not be kept apart above: an uplink of this one would go on in another rack's old one. */
static bool
rack_run(struct pbox_registrar *r, struct registrar_join *q)
{
	static const uint8_t none[PBOX_RUN_LEN];

	return memcmp(q->m.run, none, PBOX_RUN_LEN) != 0 ||
	       registrar_refuse(r, q->f, PBOX_E_UNSUPPORTED, 0,
		       "job '%s' is in %u racks, and its workers name no run: give all of them the same one, and another at each start (run=, PBOX_RUN, --run)",
		       q->m.job, r->conf.rack.racks);
}

static unsigned
slots_of(const struct pbox_join *m)
{
	return m->slots != 0 ? m->slots : m->workers;
}

/* A rack's part is one node of the tree, so that its sum is that node's value. */
static bool
rack_parts(struct pbox_registrar *r, struct registrar_join *q)
{
	unsigned racks = r->conf.rack.racks, slots = slots_of(&q->m), part = slots / racks,
		 next = 1;

	if (q->m.workers % racks != 0)
		return registrar_refuse(r, q->f, PBOX_E_UNSUPPORTED, racks,
			"job '%s' has %u workers in %u racks: racks are equal, so give it a multiple of %u",
			q->m.job, q->m.workers, racks, racks);
	while (next < part)
		next *= 2;
	return (slots % racks == 0 && (part & (part - 1)) == 0) ||
	       registrar_refuse(r, q->f, PBOX_E_UNSUPPORTED, next * racks,
		       "job '%s' has %u slots in %u racks: a rack's part is a power of two, so give it slots=%u",
		       q->m.job, slots, racks, next * racks);
}

static bool
rack_number(struct pbox_registrar *r, struct registrar_join *q)
{
	unsigned part = q->m.workers / r->conf.rack.racks, rack = r->conf.rack.rack;

	if (q->m.worker == PBOX_NO_WORKER)
		return registrar_refuse(r, q->f, PBOX_E_UNSUPPORTED, 0,
			"job '%s' is in %u racks, and a worker asks for any number: say which (worker=), this is rack %u with workers %u to %u",
			q->m.job, r->conf.rack.racks, rack, rack * part, (rack + 1) * part - 1);
	return q->m.worker / part == rack ||
	       registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, q->m.worker / part,
		       "worker %u of job '%s' is of rack %u, and this box is rack %u, with workers %u to %u: let it join its own rack's box",
		       q->m.worker, q->m.job, q->m.worker / part, rack, rack * part,
		       (rack + 1) * part - 1);
}

/* All that the rack's workers can have complete fits one endpoint above: full windows of disjoint fragments would wait for each
 * other forever (R6.9). */
static bool
rack_window(struct pbox_registrar *r, struct registrar_join *q, unsigned above)
{
	unsigned share = r->conf.n_endpoints * PIECES;

	q->up_window = above / share;
	return q->up_window > 0 ||
	       registrar_refuse(r, q->f, PBOX_E_FULL, share,
		       "the upper box grants job '%s' a window of %u frames, and this rack needs %u, %u for each of its %u endpoints: raise hold at the upper box, or give this one fewer cores",
		       q->m.job, above, share, PIECES, r->conf.n_endpoints);
}

static bool
rack_uplink(struct pbox_registrar *r, struct registrar_join *q)
{
	const struct pbox_registrar_uplink run = {.job = q->m.job,
		.conf = q->conf,
		.run = q->m.run,
		.workers = q->m.workers,
		.slots = (uint16_t)slots_of(&q->m)};
	struct pbox_error err;
	unsigned above = 0;
	int ret = r->conf.ops->uplink(r->conf.ctx, &run, &above, &err);

	if (ret == -EAGAIN)
		return registrar_refuse(
			r, q->f, PBOX_E_WORKER_TAKEN, UPLINK_AGAIN_MS, "%s", err.text);
	if (ret != 0)
		return registrar_refuse(r, q->f, PBOX_E_RUN_ENDED, 0, "%s", err.text);
	return rack_window(r, q, above);
}

static const struct registrar_check rack_check[] = {
	{registrar_pairs_join, PBOX_E_UNSUPPORTED},
	{rack_run, PBOX_E_UNSUPPORTED},
	{rack_parts, PBOX_E_UNSUPPORTED},
	{rack_number, 0},
	{rack_uplink, 0},
	{NULL, 0},
};

bool
registrar_rack_join(struct pbox_registrar *r, struct registrar_join *q)
{
	return !is_rack(r) || registrar_checks(r, q, rack_check);
}

/* ---- jobs and tables ------------------------------------------------------------------------- */

void
registrar_rack_begin(struct pbox_registrar *r, const struct registrar_join *q, struct pbox_job *job)
{
	unsigned part;

	if (!is_rack(r))
		return;
	part = job->workers / r->conf.rack.racks;
	for (unsigned w = 0; w < job->workers; w++)
		job->member[w].removed = w / part != r->conf.rack.rack;
	r->conf.ops->uplink_begin(r->conf.ctx, job, q->m.run);
}

void
registrar_rack_restored(
	struct pbox_registrar *r, const struct pbox_job *job, const struct pbox_job_table *jt)
{
	if (is_rack(r))
		r->conf.ops->uplink_restored(r->conf.ctx, job, &jt->t);
}

bool
registrar_rack_set(struct pbox_registrar *r, const struct pbox_frame *f)
{
	return !is_rack(r) ||
	       registrar_refuse(r, f, PBOX_E_UNSUPPORTED, 0,
		       "hyper-parameters of a job in %u racks: with racks the workers scale and clip themselves",
		       r->conf.rack.racks);
}

/* ---- what racks say at the upper box ----------------------------------------------------------- */

void
registrar_rack_says(
	struct pbox_registrar *r, struct pbox_job *job, unsigned worker, const char *text)
{
	struct pbox_job_rack *rack;

	if (job->rack == NULL) /* without memory it is left out of what operators see */
		job->rack = calloc(job->workers, sizeof(*job->rack));
	if (job->rack == NULL)
		return;
	rack = &job->rack[worker];
	rack->at_ns = r->now_ns;
	snprintf(rack->text, sizeof(rack->text), "%s", text);
}

const char *
registrar_rack_waits(const struct pbox_job *job, unsigned worker, uint64_t now_ns)
{
	const struct pbox_job_rack *rack = job->rack != NULL ? &job->rack[worker] : NULL;

	return rack != NULL && rack->at_ns != 0 &&
			       (now_ns < rack->at_ns || now_ns - rack->at_ns < SAID_NS)
		       ? rack->text
		       : NULL;
}

static void
rack_job_end(struct pbox_registrar *r, struct pbox_job *job)
{
	free(job->rack);
	job->rack = NULL;
	if (is_rack(r) && r->conf.ops->uplink_end != NULL)
		r->conf.ops->uplink_end(r->conf.ctx, job);
}

const struct registrar_part registrar_rack_part = {
	.name = "rack",
	.job_end = rack_job_end,
};
