/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pbox_job.h"

/*
 * What workers declare. All of it is charged to the job before it is allocated: a member can have as many
 * tensors, with names as long, as its job may take memory, and no more.
 */

/* Names of tensors, one after the other; those that are there stay where they are. */
struct pbox_job_names {
	struct pbox_job_names *next;
	uint32_t used, cap;
	char text[];
};

#define NAMES_MIN 256u
#define NAMES_MAX 65536u

static void *
declaration_take(struct pbox_job_table *jt, size_t n, size_t size)
{
	size_t bytes;
	void *p;

	if (!pbox_size_madd(n, size, 0, &bytes) || !pbox_job_charge(jt->job, bytes))
		return NULL;
	p = calloc(1, bytes > 0 ? bytes : 1);
	if (p == NULL)
		pbox_job_refund(jt->job, bytes);
	else
		jt->heap += bytes;
	return p;
}

static void
declaration_give_back(struct pbox_job_table *jt, void *p, size_t bytes)
{
	if (p == NULL)
		return;
	free(p);
	pbox_job_refund(jt->job, bytes);
	jt->heap -= bytes;
}

static size_t
map_bytes(const struct pbox_job_table *jt)
{
	return ((size_t)jt->fixed.tensors + 63) / 64 * sizeof(uint64_t);
}

static size_t
declaration_least_bytes(const struct pbox_job *job, uint32_t tensors)
{
	return sizeof(struct pbox_job_table) + (size_t)tensors * sizeof(struct pbox_tensor) +
	       job->workers * (sizeof(uint64_t *) + sizeof(uint32_t));
}

struct pbox_job_table *
pbox_job_table_create(
	struct pbox_job *job, const struct pbox_declare *fixed, struct pbox_error *err)
{
	struct pbox_job_table *jt;
	char what[64];

	if (fixed->tensors > PBOX_MAX_JOB_TENSORS - job->tensors) {
		pbox_fail(err, ENOSPC,
			"table %u has %u tensors, and the others of the job %u: %u at most in all",
			fixed->table, fixed->tensors, job->tensors, PBOX_MAX_JOB_TENSORS);
		return NULL;
	}
	snprintf(what, sizeof(what), "the declaration of table %u", fixed->table);
	if (!pbox_job_charge(job, sizeof(*jt))) {
		pbox_job_short(job, declaration_least_bytes(job, fixed->tensors), what, err);
		return NULL;
	}
	jt = calloc(1, sizeof(*jt));
	if (jt == NULL) {
		pbox_job_refund(job, sizeof(*jt));
		pbox_job_short(job, 0, what, err);
		return NULL;
	}
	jt->job = job;
	jt->heap = sizeof(*jt);
	jt->fixed = *fixed;
	job->tensors += fixed->tensors;
	jt->tensor = declaration_take(jt, fixed->tensors, sizeof(*jt->tensor));
	jt->has = declaration_take(jt, job->workers, sizeof(*jt->has));
	jt->n_has = declaration_take(jt, job->workers, sizeof(*jt->n_has));
	if (jt->tensor == NULL || jt->has == NULL || jt->n_has == NULL) {
		pbox_job_table_free(jt);
		pbox_job_short(job, declaration_least_bytes(job, fixed->tensors), what, err);
		return NULL;
	}
	return jt;
}

static void
forget_map(struct pbox_job_table *jt, unsigned worker)
{
	declaration_give_back(jt, jt->has[worker], map_bytes(jt));
	jt->has[worker] = NULL;
}

void
pbox_job_table_settle(struct pbox_job_table *jt)
{
	for (unsigned w = 0; jt->has != NULL && w < jt->job->workers; w++)
		forget_map(jt, w);
}

void
pbox_job_table_free(struct pbox_job_table *jt)
{
	if (jt == NULL)
		return;
	pbox_job_table_settle(jt);
	while (jt->names != NULL) {
		struct pbox_job_names *next = jt->names->next;

		free(jt->names);
		jt->names = next;
	}
	free(jt->has);
	free(jt->n_has);
	free(jt->tensor);
	jt->job->tensors -= jt->fixed.tensors;
	pbox_job_refund(jt->job, jt->heap);
	free(jt);
}

bool
pbox_job_table_forget(struct pbox_job_table *jt, uint16_t worker)
{
	bool any = false;

	forget_map(jt, worker);
	jt->n_has[worker] = 0;
	for (unsigned w = 0; w < jt->job->workers; w++)
		any |= jt->n_has[w] > 0;
	return any;
}

/* A copy of a name that lives as long as the table. */
static const char *
keep_name(struct pbox_job_table *jt, const char *name)
{
	uint32_t n = (uint32_t)strlen(name) + 1;
	struct pbox_job_names *b = jt->names;
	char *at;

	if (b == NULL || b->cap - b->used < n) {
		uint32_t cap = b == NULL || b->cap < NAMES_MIN ? NAMES_MIN : b->cap * 2;

		cap = cap < NAMES_MAX ? cap : NAMES_MAX;
		b = declaration_take(jt, 1, sizeof(*b) + cap);
		if (b == NULL) { /* a job near its limit gets as much as it needs */
			cap = n;
			b = declaration_take(jt, 1, sizeof(*b) + cap);
		}
		if (b == NULL)
			return NULL;
		b->cap = cap;
		b->next = jt->names;
		jt->names = b;
	}
	at = b->text + b->used;
	b->used += n;
	return memcpy(at, name, n);
}

/* The worker has declared this one. */
static int
declaration_note(struct pbox_job_table *jt, uint16_t worker, uint32_t index, struct pbox_error *err)
{
	char what[64];

	if (jt->n_has[worker] == jt->fixed.tensors)
		return 0;
	if (jt->has[worker] == NULL)
		jt->has[worker] = declaration_take(jt, 1, map_bytes(jt));
	if (jt->has[worker] == NULL) {
		snprintf(what, sizeof(what), "the declaration of table %u", jt->fixed.table);
		return pbox_job_short(jt->job, map_bytes(jt), what, err);
	}
	if ((jt->has[worker][index / 64] >> index % 64 & 1) != 0)
		return 0;
	jt->has[worker][index / 64] |= UINT64_C(1) << index % 64;
	if (++jt->n_has[worker] == jt->fixed.tensors)
		forget_map(jt, worker);
	return 0;
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
	if (m->discipline != f->discipline)
		return pbox_fail(err, EEXIST,
			"table %u: worker %u wants discipline %s, worker %u declared %s", m->table,
			worker, pbox_discipline_name(m->discipline), jt->declared_by,
			pbox_discipline_name(f->discipline));
	if (((m->flags ^ f->flags) & PBOX_DECLARE_HOLD) != 0)
		return pbox_fail(err, EEXIST,
			"table %u: worker %u declares it %s two phases a round (HOLD, max_norm=), worker %u %s",
			m->table, worker, (m->flags & PBOX_DECLARE_HOLD) != 0 ? "with" : "without",
			jt->declared_by, (f->flags & PBOX_DECLARE_HOLD) != 0 ? "with" : "without");
	if (((m->flags ^ f->flags) & PBOX_DECLARE_MIXED) != 0)
		return pbox_fail(err, EEXIST,
			"table %u: worker %u declares it %s pushes that may be fp32 as well (MIXED), worker %u %s",
			m->table, worker, (m->flags & PBOX_DECLARE_MIXED) != 0 ? "with" : "without",
			jt->declared_by, (f->flags & PBOX_DECLARE_MIXED) != 0 ? "with" : "without");
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
	char what[64];

	PBOX_ASSERT(index < jt->fixed.tensors);
	if (t->name == NULL) {
		t->name = keep_name(jt, e->name);
		if (t->name == NULL) {
			snprintf(what, sizeof(what), "names of the tensors of table %u",
				jt->fixed.table);
			return pbox_job_short(jt->job,
				sizeof(struct pbox_job_names) + strlen(e->name) + 1, what, err);
		}
		t->elements = e->elements;
		t->group = e->group;
	} else if (t->elements != e->elements) {
		return pbox_fail(err, EEXIST,
			"table %u, tensor %u: worker %u declares '%s' with %llu elements, another worker declared '%s' with %llu: all workers must declare the same tensors",
			jt->fixed.table, index, worker, e->name, (unsigned long long)e->elements,
			t->name, (unsigned long long)t->elements);
	} else if (t->group != e->group || strcmp(t->name, e->name) != 0) {
		return pbox_fail(err, EEXIST,
			"table %u, tensor %u: worker %u declares '%s' in group %u, another worker declared '%s' in group %u: all workers must declare the same tensors",
			jt->fixed.table, index, worker, e->name, e->group, t->name, t->group);
	}
	return declaration_note(jt, worker, index, err);
}
