/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* How a table ends: it fails, is forgotten with the workers that declared it, or is released with its job. */

#include "registrar_impl.h"

void
registrar_fail_table(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt,
	const struct pbox_error *err, int code, uint16_t by)
{
	if (jt->failed)
		return;
	jt->failed = true;
	jt->error = *err;
	jt->error.code = code;
	jt->failed_by = by;
	registrar_event(r, PBOX_LOG_WARN, "job '%s': %s", job->name, err->text);
}

/* R5.4: a worker that comes back may declare again; until then the others learn why they wait. */
void
registrar_forgive_tables(struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++)
		if (job->table[i]->failed && job->table[i]->failed_by != PBOX_NO_WORKER)
			job->table[i]->failed = false;
}

/* Nobody has declared any of the last table: its number is free. */
static void
drop_last(struct pbox_job *job)
{
	uint32_t last = --job->n_tables;

	pbox_job_table_free(job->table[last]);
	job->table[last] = NULL;
}

/*
 * R5.4: it could not be built, and another one may have its number once all that declared it have the error. What failed while it was
 * loaded has its memory until the job ends, and with several boxes the others may have built it.
 */
bool
registrar_number_returns(
	const struct pbox_registrar *r, const struct pbox_job *job, const struct pbox_job_table *jt)
{
	return jt->failed && !jt->built && jt->failed_by == PBOX_NO_WORKER &&
	       jt->fixed.table + 1 == job->n_tables && r->conf.boxes.boxes <= 1;
}

/* The worker has the error. */
void
registrar_failure_heard(const struct pbox_registrar *r, struct pbox_job *job,
	struct pbox_job_table *jt, uint16_t worker)
{
	uint32_t table = jt->fixed.table;
	bool any;

	if (!registrar_number_returns(r, job, jt))
		return;
	any = pbox_job_table_forget(jt, worker);
	if (job->member[worker].declared > table)
		job->member[worker].declared = table;
	for (unsigned w = 0; w < job->workers; w++)
		any |= job->member[w].declared > table;
	if (any)
		return;
	job->refused.table = table;
	job->refused.error = jt->error;
	drop_last(job);
}

/* What only a worker that is gone declared binds nobody. */
void
registrar_forget_tables(struct pbox_job *job, unsigned worker)
{
	bool last = true;

	PBOX_ASSERT(!registrar_has_session(job, worker) && job->member[worker].declared == 0);
	for (uint32_t i = job->n_tables; i-- > 0;) {
		struct pbox_job_table *jt = job->table[i];

		if (jt->built) {
			last = false;
			continue;
		}
		last &= !pbox_job_table_forget(jt, (uint16_t)worker);
		for (unsigned w = 0; w < job->workers;
			w++) /* an empty table leaves no other trace */
			last &= job->member[w].declared <= i;
		if (last)
			drop_last(job);
	}
}

void
registrar_free_shard_tables(const struct pbox_registrar *r, struct pbox_shard_table **st)
{
	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		pbox_arena_free(r->conf.arena[registrar_node_of_shard(r, i)], st[i]);
		st[i] = NULL;
	}
}

void
registrar_release_tables(struct pbox_registrar *r, struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++) {
		if (!job->table[i]->built)
			continue;
		pbox_table_release(&job->table[i]->t, r->load);
		registrar_free_shard_tables(r, job->table[i]->shard);
		job->table[i]->built = false;
		pbox_stat_add(&r->stats[PBOX_RS_TABLES], (uint64_t)-1);
	}
}
