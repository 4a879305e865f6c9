/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Looking up jobs, their sections and tables. */

#include <string.h>

#include "registrar_impl.h"

const struct pbox_job_conf *
pbox_registrar_section(const struct pbox_registrar *r, const char *name)
{
	const struct pbox_job_conf *any = NULL;

	for (unsigned i = 0; i < r->conf.n_jobs; i++) {
		if (strcmp(r->conf.job[i].name, name) == 0)
			return &r->conf.job[i];
		if (strcmp(r->conf.job[i].name, "*") == 0)
			any = &r->conf.job[i];
	}
	return any;
}

struct pbox_job *
registrar_find_job(const struct pbox_registrar *r, const char *name)
{
	for (unsigned i = 0; i < r->conf.max_jobs; i++)
		if (r->job[i] != NULL && strcmp(r->job[i]->name, name) == 0)
			return r->job[i];
	return NULL;
}

unsigned
pbox_registrar_jobs(const struct pbox_registrar *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->conf.max_jobs; i++)
		n += r->job[i] != NULL;
	return n;
}

const struct pbox_job *
pbox_registrar_job(const struct pbox_registrar *r, unsigned i)
{
	for (unsigned k = 0; k < r->conf.max_jobs; k++)
		if (r->job[k] != NULL && i-- == 0)
			return r->job[k];
	return NULL;
}

size_t
registrar_arenas(const struct pbox_registrar *r, size_t (*of)(const struct pbox_arena *a))
{
	size_t all = 0;

	for (unsigned i = 0; i < PBOX_MAX_NODES; i++)
		if (r->conf.arena[i] != NULL)
			all += of(r->conf.arena[i]);
	return all;
}

bool
registrar_has_built(const struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++)
		if (job->table[i]->built)
			return true;
	return false;
}

bool
registrar_loading(const struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++)
		if (job->table[i]->loading)
			return true;
	return false;
}

bool
registrar_is_any(const struct pbox_job_conf *conf)
{
	return strcmp(conf->name, "*") == 0;
}

struct pbox_shard_restoring
registrar_restoring_of(const struct pbox_registrar *r, const struct pbox_job *job, uint32_t table)
{
	struct pbox_shard_restoring all = {0};

	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		const struct pbox_shard_table *st = pbox_shard_table_of(job->shard[i], table);
		struct pbox_shard_restoring x;

		if (st == NULL)
			continue;
		x = pbox_shard_table_restoring(st);
		all.left += x.left;
		all.lost += x.lost;
		all.needed += x.needed;
		all.stateless += x.stateless;
	}
	return all;
}

uint32_t
pbox_registrar_stateless(const struct pbox_registrar *r, const struct pbox_job *job)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < job->n_tables; k++)
		if (job->table[k]->built)
			n += registrar_restoring_of(r, job, k).stateless;
	return n;
}
