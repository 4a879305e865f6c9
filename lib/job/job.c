/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A job: its members, and the memory that is charged to it. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_auth.h>

#include "pbox_job.h"

static struct pbox_job_conf *
conf_copy(const struct pbox_job_conf *conf)
{
	size_t name = strlen(conf->name) + 1;
	struct pbox_job_conf *own = malloc(sizeof(*own) + name + conf->secret_len);
	char *at = (char *)(own + 1);

	if (own == NULL)
		return NULL;
	*own = *conf;
	own->name = memcpy(at, conf->name, name);
	if (conf->secret_len > 0)
		own->secret = memcpy(at + name, conf->secret, conf->secret_len);
	return own;
}

static void
conf_free(struct pbox_job_conf *own)
{
	if (own == NULL)
		return;
	explicit_bzero((char *)(own + 1) + strlen(own->name) + 1, own->secret_len);
	free(own);
}

size_t
pbox_job_heap(const struct pbox_job_conf *conf, uint16_t workers)
{
	const struct pbox_job *job = NULL;

	return sizeof(*job) +
	       workers * (sizeof(*job->token) + sizeof(*job->member) + sizeof(*job->fresh) +
				 (conf->auth ? sizeof(*job->key) : 0));
}

struct pbox_job *
pbox_job_create(uint16_t id, const char *name, const struct pbox_job_conf *conf, uint16_t workers)
{
	struct pbox_job *job = calloc(1, sizeof(*job));

	PBOX_ASSERT(workers > 0 && workers <= PBOX_MAX_WORKERS && id < PBOX_MAX_JOBS);
	if (job == NULL)
		return NULL;
	job->id = id;
	job->workers = job->slots = workers;
	job->nodes = workers;
	atomic_store_explicit(&job->map_epoch, PBOX_MAP_EPOCH, memory_order_relaxed);
	job->conf = conf_copy(conf);
	job->heap = pbox_job_heap(conf, workers);
	snprintf(job->name, sizeof(job->name), "%s", name);
	job->token = calloc(workers, sizeof(*job->token));
	job->member = calloc(workers, sizeof(*job->member));
	job->fresh = calloc(workers, sizeof(*job->fresh));
	if (conf->auth)
		job->key = calloc(workers, sizeof(*job->key));
	if (job->conf == NULL || job->token == NULL || job->member == NULL || job->fresh == NULL ||
		(conf->auth && job->key == NULL)) {
		pbox_job_free(job);
		return NULL;
	}
	return job;
}

void
pbox_job_free(struct pbox_job *job)
{
	if (job == NULL)
		return;
	for (uint32_t i = 0; i < job->n_tables; i++)
		pbox_job_table_free(job->table[i]);
	free((void *)job->token);
	if (job->key != NULL)
		explicit_bzero((void *)job->key, job->workers * sizeof(*job->key));
	free((void *)job->key);
	pbox_auth_job_destroy(job->auth);
	free(job->member);
	free(job->fresh);
	conf_free(job->conf);
	free(job);
}

const char *
pbox_job_tensor(const struct pbox_job *job, uint32_t chunk, unsigned frag)
{
	uint32_t table = chunk >> PBOX_CHUNK_BITS, at;
	uint32_t index = chunk & ((1u << PBOX_CHUNK_BITS) - 1);
	const struct pbox_job_table *jt = table < job->n_tables ? job->table[table] : NULL;
	const struct pbox_layout_chunk *lc;

	if (jt == NULL || !jt->built || index >= jt->t.n_chunks)
		return "?";
	lc = &jt->t.layout.chunk[index];
	at = frag * jt->t.frag_elements;
	for (unsigned i = 0; i < lc->segments; i++) {
		const struct pbox_segment *s = &jt->t.layout.segment[lc->first_segment + i];

		if (at < s->elements)
			return jt->tensor[s->tensor].name;
		at -= s->elements;
	}
	return "?";
}

unsigned
pbox_job_joined(const struct pbox_job *job)
{
	unsigned n = 0;

	for (unsigned w = 0; w < job->workers; w++)
		n += job->member[w].state == PBOX_MEMBER_JOINED ||
		     job->member[w].state == PBOX_MEMBER_SILENT;
	return n;
}

size_t
pbox_job_left(const struct pbox_job *job)
{
	size_t used = job->bytes + job->round_bytes + job->heap;

	if (job->conf->bounds.memory == 0)
		return SIZE_MAX;
	return job->conf->bounds.memory > used ? job->conf->bounds.memory - used : 0;
}

bool
pbox_job_charge(struct pbox_job *job, size_t bytes)
{
	if (bytes > pbox_job_left(job) || bytes > pbox_job_heap_left(job))
		return false;
	job->heap += bytes;
	return true;
}

void
pbox_job_refund(struct pbox_job *job, size_t bytes)
{
	PBOX_ASSERT(bytes <= job->heap);
	job->heap -= bytes;
}

size_t
pbox_job_heap_left(const struct pbox_job *job)
{
	if (job->heap_most == 0)
		return SIZE_MAX;
	return job->heap_most > job->heap ? job->heap_most - job->heap : 0;
}

int
pbox_job_short(const struct pbox_job *job, size_t need, const char *what, struct pbox_error *err)
{
	size_t left = pbox_job_left(job), heap = pbox_job_heap_left(job);

	if (need > left)
		return pbox_fail(err, ENOMEM,
			"%s needs %zu bytes and the job may still take %zu: raise 'memory' of the job",
			what, need, left);
	if (need > heap)
		return pbox_fail(err, ENOMEM,
			"%s needs %zu bytes and this box lets a job take %zu more beside its parameters: declare less, or raise the box's 'memory'",
			what, need, heap);
	return pbox_fail(err, ENOMEM, "out of memory for %s (%zu bytes)", what, need);
}
