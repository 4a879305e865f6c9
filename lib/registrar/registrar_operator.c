/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

#define KICKED 64

/* A session that an operator has ended. */
struct kicked {
	uint64_t nonce;
	char job[PBOX_NAME_LEN];
	char why[256];
};

struct operated {
	struct kicked kicked[KICKED]; /* the latest ones */
	unsigned n_kicked;
};

/*
 * What an operator sees of jobs, and does to them.
 */

/* The nonce of a session that was ended: its process joins again, and learns why. */
bool
registrar_not_kicked(struct pbox_registrar *r, struct registrar_join *q)
{
	const struct operated *o = registrar_state(r, PART_operator);

	for (unsigned i = 0; i < KICKED && i < o->n_kicked; i++)
		if (o->kicked[i].nonce == q->m.nonce && strcmp(o->kicked[i].job, q->m.job) == 0)
			return registrar_refuse(r, q->f, PBOX_E_NO_JOB, 0, "%s", o->kicked[i].why);
	return true;
}

/* As to a frame of the session, without one: its client then joins again, and hears the rest. */
static void
send_kicked(struct pbox_registrar *r, const struct pbox_job *job, unsigned w, const char *why)
{
	struct pbox_error_msg m = {.code = PBOX_E_SESSION};
	struct pbox_send out = {
		.hdr =
			{
				.type = PBOX_ERROR,
				.map_epoch = PBOX_MAP_EPOCH,
			},
		.payload = r->scratch,
	};
	size_t len;

	pbox_code_put(&out.hdr, PBOX_E_SESSION);
	snprintf(m.text, sizeof(m.text), "%s", why);
	len = pbox_error_encode(r->scratch, sizeof(r->scratch), &m);
	out.hdr.length = (uint16_t)len;
	out.payload_crc = pbox_crc32c(0, r->scratch, len);
	registrar_send(r, job, w, &out);
}

int
pbox_registrar_kick(struct pbox_registrar *r, uint16_t id, unsigned w, const char *why,
	uint64_t now_ns, struct pbox_error *err)
{
	struct pbox_job *job = id < r->conf.max_jobs ? r->job[id] : NULL;
	struct operated *o = registrar_state(r, PART_operator);
	struct kicked *k;

	r->now_ns = now_ns;
	if (job == NULL)
		return pbox_fail(err, ENOENT, "there is no job %u", id);
	if (w >= job->workers)
		return pbox_fail(
			err, ENOENT, "job '%s' has workers 0 to %u", job->name, job->workers - 1u);
	if (!registrar_has_session(job, w))
		return pbox_fail(err, ENOENT, "worker %u of job '%s' has no session", w, job->name);
	k = &o->kicked[o->n_kicked++ % KICKED];
	k->nonce = job->member[w].nonce;
	snprintf(k->job, sizeof(k->job), "%s", job->name);
	snprintf(k->why, sizeof(k->why), "the operator of the box ended worker %u of job '%s'%s%s",
		w, job->name, why[0] != '\0' ? ": " : "", why);
	send_kicked(r, job, w, k->why);
	registrar_end_session(r, job, w);
	registrar_gone_kicked(job, w, k->why);
	registrar_event(r, PBOX_LOG_WARN, "%s (its host: %s)", k->why, job->member[w].host);
	if (pbox_job_joined(job) == 0 && job->state == PBOX_JOB_OPEN)
		registrar_close_job(r, job);
	else if (registrar_remove(r, job, w))
		registrar_removed(r, job);
	return 0;
}

void
pbox_registrar_drain(struct pbox_registrar *r, bool on)
{
	if (r->draining != on)
		registrar_event(r, PBOX_LOG_INFO,
			on ? "draining: no new jobs from now on; %u are left"
			   : "new jobs are taken again; %u are there",
			pbox_registrar_jobs(r));
	r->draining = on;
}

bool
pbox_registrar_draining(const struct pbox_registrar *r)
{
	return r->draining;
}

static void
take_over(struct pbox_registrar *r, struct pbox_job *job, const struct pbox_job_conf *now)
{
	const struct pbox_job_bounds *b = &now->bounds, was = job->conf->bounds;
	bool quota =
		was.rate != b->rate || was.repeats != b->repeats || was.requests != b->requests;

	job->conf->bounds = *b;
	job->conf->snapshot = now->snapshot;
	if (quota)
		registrar_post(r, job, PBOX_MAIL_QUOTA);
}

void
pbox_registrar_reload(struct pbox_registrar *r, const struct pbox_job_conf *job, unsigned n_jobs,
	uint32_t lease_ms, uint32_t grace_ms, uint64_t now_ns)
{
	r->now_ns = now_ns;
	r->conf.job = job;
	r->conf.n_jobs = n_jobs;
	r->conf.lease_ms = lease_ms;
	r->conf.grace_ms = grace_ms;
	for (unsigned i = 0; i < r->conf.max_jobs; i++) {
		const struct pbox_job_conf *now;

		if (r->job[i] == NULL || r->job[i]->state == PBOX_JOB_CLOSING)
			continue;
		now = pbox_registrar_section(r, r->job[i]->name);
		if (now != NULL)
			take_over(r, r->job[i], now);
		else
			registrar_event(r, PBOX_LOG_WARN,
				"job '%s' has no section any more: it runs on, and does not begin again",
				r->job[i]->name);
	}
}

void
pbox_registrar_uplink_failed(
	struct pbox_registrar *r, const struct pbox_job *job, const char *why, uint64_t now_ns)
{
	unsigned id = job->id, workers = job->workers;
	struct pbox_error err;

	/* the job may be gone with its last worker */
	for (unsigned w = 0; w < workers && r->job[id] == job; w++)
		if (registrar_has_session(job, w))
			pbox_registrar_kick(r, id, w, why, now_ns, &err);
}

const struct registrar_part registrar_operator_part = {
	.name = "operator",
	.state = sizeof(struct operated),
};
