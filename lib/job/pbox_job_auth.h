/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_JOB_AUTH_H
#define PBOX_JOB_AUTH_H

/* Tags of sessions (section 11 of the protocol), and whom cookies and challenges are for. */

#include <pbox_auth.h>
#include <pbox_job.h>
#include <pbox_proof.h>

#include "pbox_engine.h"

/* What a frame needs that is being sent. */
struct pbox_job_tag {
	uint64_t key[2];
	uint8_t digest[PBOX_AUTH_DIGEST_LEN];
};

static inline struct pbox_proof_from
pbox_job_from(const struct pbox_peer *p)
{
	return (struct pbox_proof_from){p->ip, p->udp};
}

/* What the sender of a frame has to echo; at another endpoint it is another nonce. */
static inline uint64_t
pbox_job_challenge(const struct pbox_job *job, const struct pbox_frame *f)
{
	uint64_t endpoint = (uint64_t)f->peer.local_ip << 16 | f->peer.local_udp;

	return pbox_challenge(job->challenge, pbox_job_from(&f->peer), f->hdr.token ^ endpoint);
}

/* A session of a job with auth is about to begin: its keys. The control thread, before the token is
 * published. */
void pbox_job_auth_begin(
	struct pbox_job *job, unsigned worker, uint64_t token, uint32_t incarnation);
/* A frame of a worker that the job has: with the right tag, or rightly without? */
bool pbox_job_auth_good(const struct pbox_job *job, const struct pbox_frame *f);
/* A frame to a worker of a job with auth. Its digest is made unless it has one: of the same payload to
 * another worker. @p t lives until it is sent. */
void pbox_job_auth_seal(
	const struct pbox_job *job, unsigned worker, struct pbox_job_tag *t, struct pbox_send *out);

#endif /* PBOX_JOB_AUTH_H */
