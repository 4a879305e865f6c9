/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Calls the hooks of the registrar's parts, and keeps their memory. It knows none of them: they are above it. */

#include <stdlib.h>
#include <string.h>

#include "registrar_impl.h"

/* A worker's state begins at a multiple of this. */
#define ALIGN 16

/* Of a job: where each part has its own, of the job and of the first worker. */
struct pbox_job_parts {
	const struct registrar_part *const *part;
	void *job[REGISTRAR_PARTS_END], *member[REGISTRAR_PARTS_END];
	uint8_t memory[] __attribute__((aligned(ALIGN)));
};

static size_t
state_bytes(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

bool
registrar_parts_create(struct pbox_registrar *r, const struct registrar_part *const *parts)
{
	r->part = parts;
	for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++) {
		const struct registrar_part *p = parts[i];

		for (const struct registrar_type *t = p->types; t->on != NULL; t++) {
			PBOX_ASSERT(t->type < REGISTRAR_TYPES && r->on[t->type] == NULL);
			r->on[t->type] = t->on;
		}
		if (p->state == 0)
			continue;
		r->state[i] = calloc(1, p->state);
		if (r->state[i] == NULL) {
			registrar_parts_destroy(r);
			return false;
		}
	}
	return true;
}

void
registrar_parts_destroy(struct pbox_registrar *r)
{
	for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++) {
		if (r->part[i]->end != NULL && r->state[i] != NULL)
			r->part[i]->end(r);
		free(r->state[i]);
		r->state[i] = NULL;
	}
}

size_t
registrar_parts_heap(const struct pbox_registrar *r, unsigned workers)
{
	size_t bytes = sizeof(struct pbox_job_parts);

	for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++)
		bytes += state_bytes(r->part[i]->job_state) +
			 workers * state_bytes(r->part[i]->member_state);
	return bytes;
}

bool
registrar_parts_job_begin(const struct pbox_registrar *r, struct pbox_job *job)
{
	struct pbox_job_parts *p = calloc(1, registrar_parts_heap(r, job->workers));
	uint8_t *at;

	job->parts = p;
	if (p == NULL)
		return false;
	at = p->memory;
	p->part = r->part;
	for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++) {
		p->job[i] = at;
		p->member[i] = at + state_bytes(r->part[i]->job_state);
		at = (uint8_t *)p->member[i] + job->workers * state_bytes(r->part[i]->member_state);
	}
	return true;
}

void
registrar_parts_job_end(struct pbox_registrar *r, struct pbox_job *job)
{
	PBOX_ASSERT(job->parts != NULL);
	for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++)
		if (r->part[i]->job_end != NULL)
			r->part[i]->job_end(r, job);
	free(job->parts);
	job->parts = NULL;
}

registrar_handler
registrar_parts_handler(const struct pbox_registrar *r, unsigned type)
{
	return type < REGISTRAR_TYPES ? r->on[type] : NULL;
}

bool
registrar_parts_mail(struct pbox_registrar *r, const struct pbox_mail *m)
{
	for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++)
		if ((r->part[i]->mails >> m->kind & 1) != 0) {
			r->part[i]->mail(r, m);
			return true;
		}
	return false;
}

void
registrar_parts_session_begin(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++) {
		memset(registrar_member_state(job, i, w), 0, r->part[i]->member_state);
		if (r->part[i]->session_begin != NULL)
			r->part[i]->session_begin(r, job, w);
	}
}

void
registrar_parts_session_end(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++)
		if (r->part[i]->session_end != NULL)
			r->part[i]->session_end(r, job, w);
}

void
registrar_parts_members(struct pbox_registrar *r, struct pbox_job *job)
{
	for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++)
		if (r->part[i]->members != NULL)
			r->part[i]->members(r, job);
}

void
registrar_parts_tick(struct pbox_registrar *r)
{
	for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++)
		if (r->part[i]->tick_all != NULL)
			r->part[i]->tick_all(r);
	for (unsigned n = 0; n < r->conf.max_jobs; n++) {
		struct pbox_job *job = r->job[n];

		if (job == NULL || job->state != PBOX_JOB_OPEN)
			continue;
		for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++)
			if (r->part[i]->tick != NULL && r->job[n] == job)
				r->part[i]->tick(r, job);
	}
}

bool
registrar_parts_why(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_job_table *jt, char *text, size_t cap)
{
	for (unsigned i = 0; i < REGISTRAR_PARTS_END; i++)
		if (r->part[i]->why != NULL && r->part[i]->why(r, job, jt, text, cap))
			return true;
	return false;
}

void *
registrar_state(const struct pbox_registrar *r, enum registrar_part_id part)
{
	return r->state[part];
}

void *
registrar_job_state(const struct pbox_job *job, enum registrar_part_id part)
{
	return job->parts->job[part];
}

void *
registrar_member_state(const struct pbox_job *job, enum registrar_part_id part, unsigned w)
{
	const struct pbox_job_parts *p = job->parts;

	PBOX_ASSERT(w < job->workers);
	return (uint8_t *)p->member[part] + w * state_bytes(p->part[part]->member_state);
}
