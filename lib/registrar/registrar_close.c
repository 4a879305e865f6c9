/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* How a session ends, and a job. */

#include "registrar_impl.h"

void
registrar_left(struct pbox_member *m, enum pbox_left how)
{
	if (m->left != PBOX_LEFT_REFUSED)
		m->left = (uint8_t)how;
}

void
registrar_end_session(struct pbox_registrar *r, struct pbox_job *job, unsigned worker)
{
	struct pbox_member *m = &job->member[worker];

	PBOX_ASSERT(worker < job->workers && registrar_has_session(job, worker));
	registrar_nonce_keep(r, job, worker);
	atomic_store_explicit(&job->token[worker], 0, memory_order_release);
	m->state = PBOX_MEMBER_LEFT;
	registrar_left(m, PBOX_LEFT_TAKEN); /* who knows better says so */
	m->welcome_owed = false;
	m->nonce = 0;
	m->declared = 0;
	registrar_parts_session_end(r, job, worker);
	pbox_stat_add(&r->stats[PBOX_RS_WORKERS], (uint64_t)-1);
}

void
registrar_free_job(struct pbox_registrar *r, struct pbox_job *job)
{
	PBOX_ASSERT(r->job[job->id] == job);
	registrar_parts_job_end(r, job);
	registrar_release_tables(r, job);
	for (unsigned i = 0; i < r->conf.n_shards; i++)
		pbox_shard_job_free(job->shard[i]);
	r->job[job->id] = NULL;
	pbox_stat_add(&r->stats[PBOX_RS_JOBS], (uint64_t)-1);
	pbox_job_free(job);
}

void
registrar_job_done(struct pbox_registrar *r, struct pbox_job *job)
{
	if (job->state == PBOX_JOB_CLOSING && job->shards_closed == r->conf.n_shards &&
		!registrar_loading(job))
		registrar_free_job(r, job);
}

static void
cancel_loading(struct pbox_registrar *r, struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++)
		if (job->table[i]->loading && r->conf.ops->restore_cancel != NULL)
			r->conf.ops->restore_cancel(r->conf.ctx, job, i);
}

void
registrar_close_job(struct pbox_registrar *r, struct pbox_job *job)
{
	if (job->state == PBOX_JOB_CLOSING)
		return;
	/* a shard that has not answered OPEN_JOB yet gets CLOSE_JOB after it, in order */
	job->state = PBOX_JOB_CLOSING;
	for (unsigned w = 0; w < job->workers; w++)
		if (registrar_has_session(job, w))
			registrar_end_session(r, job, w);
	PBOX_ASSERT(pbox_job_joined(job) == 0);
	registrar_event(r, PBOX_LOG_INFO, "job '%s' ends", job->name);
	cancel_loading(r, job);
	registrar_post(r, job, PBOX_MAIL_CLOSE_JOB);
}

/* A shard has let go of it. */
static void
job_closed(struct pbox_registrar *r, const struct pbox_mail *m)
{
	struct pbox_job *job = pbox_shard_job_of(m->job);

	job->shards_closed++;
	PBOX_ASSERT(job->state == PBOX_JOB_CLOSING && job->shards_closed <= r->conf.n_shards);
	registrar_job_done(r, job);
}

const struct registrar_part registrar_close_part = {
	.name = "ends",
	.mails = 1u << PBOX_MAIL_CLOSE_JOB,
	.mail = job_closed,
};
