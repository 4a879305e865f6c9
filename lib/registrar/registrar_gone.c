/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

/*
 * R8.3: why a worker is not there, for those that wait for it. It was refused, or an operator ended it: the others
 * get the same words as it did.
 */

static void
gone(struct pbox_job *job, unsigned w, enum pbox_left how, const char *text)
{
	PBOX_ASSERT(w < job->workers);
	job->member[w].left = (uint8_t)how;
	job->gone.worker = (uint16_t)w;
	snprintf(job->gone.text, sizeof(job->gone.text), "%s", text);
}

void
registrar_gone_kicked(struct pbox_job *job, unsigned w, const char *why)
{
	gone(job, w, PBOX_LEFT_KICKED, why);
}

/* Only who has proven to know the secret was refused for these. A number with a session is that of another process; a
 * worker of another run is none that this one waits for. */
void
registrar_gone_join(struct pbox_registrar *r, const struct pbox_frame *f)
{
	int code = r->request.refusal.code;
	struct pbox_join m;
	struct pbox_job *job;
	struct pbox_member *mb;

	if ((code != PBOX_E_WORKERS && code != PBOX_E_BAD_REQUEST && code != PBOX_E_UNSUPPORTED) ||
		pbox_join_decode(f->payload, f->hdr.length, &m) < 0)
		return;
	job = registrar_find_job(r, m.job);
	if (job == NULL || job->state == PBOX_JOB_CLOSING || m.worker >= job->workers ||
		!registrar_run_is(&job->run, &m) || registrar_has_session(job, m.worker))
		return;
	mb = &job->member[m.worker];
	mb->last_seen = r->now_ns;
	snprintf(mb->host, sizeof(mb->host), "%s", m.host);
	gone(job, m.worker, PBOX_LEFT_REFUSED, r->request.refusal.text);
}

void
registrar_gone_declare(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	struct pbox_member *mb = &job->member[f->hdr.worker];

	if (r->request.refusal.code == PBOX_E_RUNNING)
		return; /* it asks again */
	if (r->request.refusal.code != 0)
		gone(job, f->hdr.worker, PBOX_LEFT_REFUSED, r->request.refusal.text);
	else if (mb->left == PBOX_LEFT_REFUSED)
		mb->left = PBOX_LEFT_UNKNOWN;
}

const char *
registrar_gone_why(const struct pbox_job *job, unsigned w)
{
	uint8_t left = w < job->workers ? job->member[w].left : PBOX_LEFT_UNKNOWN;

	return (left == PBOX_LEFT_REFUSED || left == PBOX_LEFT_KICKED) && job->gone.worker == w
		       ? job->gone.text
		       : NULL;
}
