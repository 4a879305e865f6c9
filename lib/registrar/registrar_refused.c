/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

/*
 * Who was refused lately, for the operator: the worker's own program has the reason, and a job that waits for this worker shows
 * only that it is missing. A stranger may be one of them; so few are kept, and each for a minute.
 */

#define REFUSED_MOST 4
#define REFUSED_NS   (60000 * NS_PER_MS)

struct refused {
	struct pbox_refused_view v;
	uint64_t at_ns; /* 0: none */
};

struct all_refused {
	struct refused of[REFUSED_MOST];
};

/* Those of which the worker, or its operator, must change something; others ask again by themselves. */
static bool
refused_for_good(int code)
{
	static const enum pbox_errcode codes[] = {PBOX_E_VERSION, PBOX_E_NO_JOB, PBOX_E_SECRET,
		PBOX_E_WORKERS, PBOX_E_FULL, PBOX_E_MISMATCH, PBOX_E_BAD_REQUEST, PBOX_E_NO_MEMORY,
		PBOX_E_UNSUPPORTED};

	for (unsigned i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (code == (int)codes[i])
			return true;
	return false;
}

/* The same address and job again take the place that they have; else the oldest one goes. */
static void
refused_add(struct pbox_registrar *r, uint32_t ip, const char *job, const char *host, int worker)
{
	struct all_refused *all = registrar_state(r, PART_refused);
	struct refused *at = &all->of[0];

	for (unsigned i = 0; i < REFUSED_MOST; i++) {
		struct refused *k = &all->of[i];

		if (k->at_ns != 0 && k->v.ip == ip && k->v.worker == worker &&
			strcmp(k->v.job, job) == 0) {
			at = k;
			break;
		}
		if (k->at_ns < at->at_ns)
			at = k;
	}
	at->at_ns = r->now_ns > 0 ? r->now_ns : 1;
	at->v = (struct pbox_refused_view){
		.ip = ip, .worker = worker, .code = r->request.refusal.code};
	snprintf(at->v.job, sizeof(at->v.job), "%s", job);
	snprintf(at->v.host, sizeof(at->v.host), "%s", host);
	snprintf(at->v.text, sizeof(at->v.text), "%s", r->request.refusal.text);
}

void
registrar_refused_join(struct pbox_registrar *r, const struct pbox_frame *f)
{
	struct pbox_join m;

	if (!refused_for_good(r->request.refusal.code) ||
		pbox_join_decode(f->payload, f->hdr.length, &m) < 0)
		return;
	/* an operator ended this session, and knows it */
	if (r->request.refusal.code == PBOX_E_NO_JOB && registrar_find_job(r, m.job) != NULL)
		return;
	refused_add(r, f->peer.ip, m.job, m.host, m.worker == PBOX_NO_WORKER ? -1 : (int)m.worker);
}

void
registrar_refused_declare(
	struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_job *job)
{
	if (refused_for_good(r->request.refusal.code))
		refused_add(r, job->member[f->hdr.worker].peer.ip, job->name,
			job->member[f->hdr.worker].host, f->hdr.worker);
}

/* What it was refused for is right now. */
static void
refused_session_begin(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	struct all_refused *all = registrar_state(r, PART_refused);

	for (unsigned i = 0; i < REFUSED_MOST; i++) {
		struct refused *k = &all->of[i];

		if (k->at_ns != 0 && strcmp(k->v.job, job->name) == 0 &&
			(k->v.worker == (int)w ||
				(k->v.worker < 0 && k->v.ip == job->member[w].peer.ip)))
			k->at_ns = 0;
	}
}

/* Does its job run without it? */
static bool
refused_is_missed(const struct pbox_registrar *r, const struct pbox_refused_view *v)
{
	const struct pbox_job *job = registrar_find_job(r, v->job);

	return job != NULL && job->state == PBOX_JOB_OPEN && pbox_job_joined(job) < job->workers &&
	       (v->worker < 0 || v->worker >= job->workers ||
		       !registrar_has_session(job, (unsigned)v->worker));
}

bool
pbox_registrar_refused(
	const struct pbox_registrar *r, unsigned i, uint64_t now_ns, struct pbox_refused_view *out)
{
	const struct all_refused *all = registrar_state(r, PART_refused);

	for (unsigned k = 0; k < REFUSED_MOST; k++) {
		const struct refused *at = &all->of[k];

		if (at->at_ns == 0 || now_ns > at->at_ns + REFUSED_NS || i-- > 0)
			continue;
		*out = at->v;
		out->ago_ns = now_ns > at->at_ns ? now_ns - at->at_ns : 0;
		out->missed = refused_is_missed(r, &at->v);
		return true;
	}
	return false;
}

const struct registrar_part registrar_refused_part = {
	.name = "refused workers",
	.session_begin = refused_session_begin,
	.state = sizeof(struct all_refused),
};
