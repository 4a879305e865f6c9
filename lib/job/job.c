/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

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

struct pbox_job *
pbox_job_create(uint16_t id, const char *name, const struct pbox_job_conf *conf, uint16_t workers)
{
	struct pbox_job *job = calloc(1, sizeof(*job));

	if (job == NULL)
		return NULL;
	job->id = id;
	job->workers = workers;
	job->conf = conf_copy(conf);
	snprintf(job->name, sizeof(job->name), "%s", name);
	job->token = calloc(workers, sizeof(*job->token));
	job->member = calloc(workers, sizeof(*job->member));
	if (conf->auth)
		job->key = calloc(workers, sizeof(*job->key));
	if (job->conf == NULL || job->token == NULL || job->member == NULL ||
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
		pbox_job_table_free(job->table[i], job->workers);
	free((void *)job->token);
	free((void *)job->key);
	pbox_auth_job_destroy(job->auth);
	free(job->member);
	conf_free(job->conf);
	free(job);
}

const char *
pbox_policy_name(unsigned policy)
{
	static const char *const name[] = {"wait", "shrink", "any"};

	return policy < sizeof(name) / sizeof(name[0]) ? name[policy] : "?";
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

struct pbox_job_table *
pbox_job_table_create(const struct pbox_declare *fixed, uint16_t workers)
{
	struct pbox_job_table *jt = calloc(1, sizeof(*jt));

	if (jt == NULL)
		return NULL;
	jt->fixed = *fixed;
	jt->tensor = calloc((size_t)fixed->tensors + 1, sizeof(*jt->tensor));
	jt->known = calloc((size_t)fixed->tensors + 1, 1);
	jt->has = calloc(workers, sizeof(*jt->has));
	jt->n_has = calloc(workers, sizeof(*jt->n_has));
	if (jt->tensor == NULL || jt->known == NULL || jt->has == NULL || jt->n_has == NULL) {
		pbox_job_table_free(jt, workers);
		return NULL;
	}
	return jt;
}

void
pbox_job_table_settle(struct pbox_job_table *jt, uint16_t workers)
{
	for (unsigned w = 0; jt->has != NULL && w < workers; w++) {
		free(jt->has[w]);
		jt->has[w] = NULL;
	}
}

void
pbox_job_table_free(struct pbox_job_table *jt, uint16_t workers)
{
	if (jt == NULL)
		return;
	pbox_job_table_settle(jt, workers);
	free(jt->has);
	free(jt->n_has);
	free(jt->tensor);
	free(jt->known);
	free(jt);
}

bool
pbox_job_table_forget(struct pbox_job_table *jt, uint16_t worker, uint16_t workers)
{
	bool any = false;

	free(jt->has[worker]);
	jt->has[worker] = NULL;
	jt->n_has[worker] = 0;
	for (unsigned w = 0; w < workers; w++)
		any |= jt->n_has[w] > 0;
	return any;
}

int
pbox_job_table_same(const struct pbox_job_table *jt, uint16_t worker, const struct pbox_declare *m,
	struct pbox_error *err)
{
	const struct pbox_declare *f = &jt->fixed;

	if (m->tensors != f->tensors)
		return pbox_fail(err, EEXIST,
			"table %u: worker %u declares %u tensors, worker %u declared %u", m->table,
			worker, m->tensors, jt->declared_by, f->tensors);
	if (m->mode != f->mode || m->op != f->op || m->optimiser != f->optimiser)
		return pbox_fail(err, EEXIST,
			"table %u: worker %u wants %s/%s, worker %u declared %s/%s", m->table,
			worker, pbox_op_name(m->op), pbox_optimiser_name(m->optimiser),
			jt->declared_by, pbox_op_name(f->op), pbox_optimiser_name(f->optimiser));
	if (m->push_format != f->push_format || m->pull_format != f->pull_format)
		return pbox_fail(err, EEXIST,
			"table %u: worker %u pushes %s and pulls %s, worker %u declared %s and %s",
			m->table, worker, pbox_format_name(m->push_format),
			pbox_format_name(m->pull_format), jt->declared_by,
			pbox_format_name(f->push_format), pbox_format_name(f->pull_format));
	return 0;
}

int
pbox_job_table_declare(struct pbox_job_table *jt, uint16_t worker, uint32_t index,
	const struct pbox_tensor_entry *e, struct pbox_error *err)
{
	struct pbox_tensor *t = &jt->tensor[index];

	PBOX_ASSERT(index < jt->fixed.tensors);
	if (!jt->known[index]) {
		t->elements = e->elements;
		t->group = e->group;
		memcpy(t->name, e->name, sizeof(t->name));
		jt->known[index] = 1;
	} else if (t->elements != e->elements) {
		return pbox_fail(err, EEXIST,
			"table %u, tensor %u: worker %u declares '%s' with %llu elements, another "
			"worker declared '%s' with %llu: all workers must declare the same tensors",
			jt->fixed.table, index, worker, e->name, (unsigned long long)e->elements,
			t->name, (unsigned long long)t->elements);
	} else if (t->group != e->group || strcmp(t->name, e->name) != 0) {
		return pbox_fail(err, EEXIST,
			"table %u, tensor %u: worker %u declares '%s' in group %u, another worker "
			"declared '%s' in group %u: all workers must declare the same tensors",
			jt->fixed.table, index, worker, e->name, e->group, t->name, t->group);
	}
	if (jt->has == NULL || jt->n_has[worker] == jt->fixed.tensors)
		return 0;
	if (jt->has[worker] == NULL) {
		jt->has[worker] = calloc(jt->fixed.tensors, 1);
		if (jt->has[worker] == NULL)
			return pbox_fail(
				err, ENOMEM, "out of memory for table %u", jt->fixed.table);
	}
	if (!jt->has[worker][index]) {
		jt->has[worker][index] = 1;
		jt->n_has[worker]++;
	}
	return 0;
}
