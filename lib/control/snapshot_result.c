/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What became of the snapshots of tables, and of the jobs that they are of. */

#include <stdio.h>
#include <string.h>

#include "control_priv.h"

struct snapshot_result *
snapshot_result(struct snapshots *s, const char *job, uint32_t table)
{
	struct snapshot_result *oldest = &s->result[0];

	for (unsigned i = 0; i < s->n_results; i++) {
		struct snapshot_result *x = &s->result[i];

		if (x->table == table && strcmp(x->job, job) == 0)
			return x;
		if (x->at_ns < oldest->at_ns)
			oldest = x;
	}
	if (s->n_results < SNAPSHOT_RESULTS)
		oldest = &s->result[s->n_results++];
	*oldest = (struct snapshot_result){.table = table};
	snprintf(oldest->job, sizeof(oldest->job), "%s", job);
	return oldest;
}

bool
snapshot_moved(const struct snapshots *s, const struct pbox_job_view *j, uint32_t table,
	const struct pbox_table_view *t)
{
	uint32_t written = 0;

	for (unsigned i = 0; i < s->n_results; i++)
		if (s->result[i].table == table && strcmp(s->result[i].job, j->name) == 0 &&
			s->result[i].at_ns > 0 && s->result[i].begun_ns == j->begun_ns)
			written = s->result[i].round;
	return t->chunks > 0 && t->version != written;
}

bool
snapshot_job(struct pbox_control *c, const char *name, struct pbox_job_view *out)
{
	const struct pbox_job *job = pbox_registrar_job_named(c->registrar, name);

	if (job != NULL)
		pbox_registrar_view_job(c->registrar, job, out);
	return job != NULL && out->state != PBOX_JOB_CLOSING;
}
