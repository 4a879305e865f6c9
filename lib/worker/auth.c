/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "worker_impl.h"

/* Authentication of frames by tags (section 11 of the protocol): the keys of a session, and how long a worker ignores
 * an ERROR without a tag. */

/** R11.6: the time without any frame with a tag, after which an ERROR SESSION without one counts. */
#define DOUBT (500 * NS_PER_MS)

void
auth_end(struct auth *a)
{
	if (a == NULL)
		return;
	pbox_auth_job_destroy(a->job);
	sodium_memzero(a, sizeof(*a));
	free(a);
}

bool
auth_possible(void)
{
	return pbox_auth_select(NULL) != NULL;
}

static struct auth *
auth_begin(const struct session *s, const struct pbox_welcome *w)
{
	struct auth *a = calloc(1, sizeof(*a));
	size_t len = strlen(s->w->secret);

	if (a == NULL)
		return NULL;
	a->job = pbox_auth_job_create(NULL, s->w->secret, len, w->incarnation, w->job);
	if (a->job == NULL) {
		auth_end(a);
		return NULL;
	}
	pbox_auth_keys(&a->keys, s->w->secret, len, w);
	return a;
}

int
auth_welcome(struct join *j, const struct rx_frame *f)
{
	struct session *s = j->s;
	const struct pbox_welcome *w = &j->welcome;

	auth_end(j->auth);
	j->auth = NULL;
	if ((w->flags & PBOX_WELCOME_AUTH) == 0) {
		if (s->w->conf.auth == 0)
			return 0;
		return pbox_client_fail(&j->err, PBOX_C_REFUSED,
			"this worker requires auth, and job '%s' at %s has none: set auth = yes in the job's section of the box's configuration",
			s->w->job, s->name);
	}
	j->auth = auth_begin(s, w);
	if (j->auth == NULL)
		return pbox_client_fail(&j->err, PBOX_C_MEMORY,
			"job '%s' has auth, and there is no memory for its keys, or no AES in this CPU",
			s->w->job);
	return auth_good(j->auth, f) ? 0 : AUTH_IGNORE;
}

bool
auth_good(const struct auth *a, const struct rx_frame *f)
{
	return (f->hdr.flags & PBOX_F_AUTH) != 0 &&
	       pbox_auth_good(a->keys.box, a->job, f->payload, f->hdr.length);
}

void
auth_tag(const struct auth *a, const void *header, const struct iovec *iov, unsigned n,
	uint8_t *gathered, uint8_t *tag)
{
	uint8_t digest[PBOX_AUTH_DIGEST_LEN];
	size_t at = 0;

	if (n == 1) {
		pbox_auth_digest(a->job, iov->iov_base, iov->iov_len, digest);
	} else {
		for (unsigned i = 0; i < n; i++) {
			memcpy(gathered + at, iov[i].iov_base, iov[i].iov_len);
			at += iov[i].iov_len;
		}
		pbox_auth_digest(a->job, gathered, at, digest);
	}
	pbox_auth_tag(a->keys.worker, header, digest, tag);
}

bool
auth_doubts(struct session *s)
{
	if (s->doubt_ns == 0)
		s->doubt_ns = s->w->now;
	return !s->w->shut && s->w->now - s->doubt_ns < DOUBT;
}
