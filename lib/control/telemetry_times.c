/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stdio.h>

#include "control_priv.h"
#include "reply.h"

/* Telemetry's /pbox/times,JOB: what workers have measured of the boxes of a job (R16.8). */

#define PAGE 12 /* workers: an answer has 16 KiB */

static void
add_times(const struct pbox_stats_msg *m, struct rte_tel_data *d)
{
	char name[16];

	reply_text(d, "rounds", "%u %.9g %.9g", m->rounds, m->seconds, m->squares);
	for (unsigned i = 0; i < m->boxes; i++) {
		snprintf(name, sizeof(name), "box_%u", i);
		reply_text(d, name, "%u %.9g %.9g %.9g", m->box[i].rounds, m->box[i].seconds,
			m->box[i].squares, m->box[i].exposed);
	}
}

/* How much of the job each box is to have, by the newest map. */
static void
add_shares(const struct pbox_job *job, unsigned boxes, struct rte_tel_data *d)
{
	char text[24 * PBOX_MAX_BOXES] = "";
	struct pbox_homes_view v;
	size_t n = 0;

	pbox_registrar_view_homes(job, &v);
	for (unsigned i = 0; i < boxes; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, i > 0 ? " %" PRIu64 : "%" PRIu64,
			v.elements[i]);
	rte_tel_data_add_dict_u64(d, "map", v.epoch);
	reply_text(d, "elements", "%s", text);
}

static void
on_times(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	const struct pbox_registrar_boxes *b = &c->conf.registrar.boxes;
	const struct pbox_job *job;
	struct pbox_homes_view homes;
	struct pbox_job_view j;
	unsigned first = 0, end;

	job = reply_job_workers(c, "times", n, word, &j, &first, d);
	if (job == NULL)
		return;
	if (b->boxes < 2) {
		reply_error(d, "this box is alone: nobody compares it");
		return;
	}
	pbox_registrar_view_homes(job, &homes);
	if (b->box != homes.decider) {
		reply_error(d, "box %u decides in job '%s', and knows it: ask there (/pbox/boxes)",
			homes.decider, j.name);
		return;
	}
	end = first + PAGE < j.workers ? first + PAGE : j.workers;
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	reply_text(d, "job", "%s", j.name);
	rte_tel_data_add_dict_u64(d, "workers", j.workers);
	rte_tel_data_add_dict_u64(d, "boxes", b->boxes);
	add_shares(job, b->boxes, d);
	if (end < j.workers)
		rte_tel_data_add_dict_u64(d, "next", end);
	for (unsigned w = first; w < end; w++) {
		struct pbox_stats_msg m;
		struct rte_tel_data *e;

		if (!pbox_registrar_view_times(c->registrar, job, w, &m))
			continue;
		e = reply_dict();
		add_times(&m, e);
		reply_add_numbered(d, "worker", w, e);
	}
}

const struct telemetry_command telemetry_times_commands[] = {
	{"/pbox/times", 2, on_times,
		"Rounds and seconds of each worker at each box of a job. Parameters: JOB[,FIRST]."},
	{0},
};
