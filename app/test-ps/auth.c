/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Tags of frames (section 11 of the protocol), for jobs that ask for them. The digests of all payloads that
 * are sent, and of all results that must come, are made once (check.c): a frame costs one short hash
 * more each way.
 */

#include <errno.h>
#include <string.h>

#include <sodium.h>

#include "testps.h"

int
auth_make(struct testps *t, struct pbox_error *err)
{
	const struct pbox_conf_secret *s = &t->opt.secret;
	const struct session *x = &t->session;

	/* who still has its session may be reading them */
	if (t->auth != NULL && x->incarnation == t->auth_of.incarnation && x->job == t->auth_of.job)
		return 0;
	auth_free(t);
	if (!x->tags)
		return 0;
	t->auth = pbox_auth_job_create(NULL, s->bytes, s->len, x->incarnation, x->job);
	t->auth_of.incarnation = x->incarnation;
	t->auth_of.job = x->job;
	return t->auth != NULL ? 0 : pbox_fail(err, ENOMEM, "no memory for the keys of the job");
}

void
auth_free(struct testps *t)
{
	pbox_auth_job_destroy(t->auth);
	t->auth = NULL;
}

bool
auth_data_good(
	const struct lane *l, unsigned worker, const struct pbox_hdr *h, const uint8_t *payload)
{
	return l->t->auth == NULL ||
	       ((h->flags & PBOX_F_AUTH) != 0 &&
		       pbox_auth_good(l->t->keys[worker].box, l->t->auth, payload, h->length));
}

bool
auth_tag_good(const struct lane *l, unsigned worker, const uint8_t *head, const uint8_t *payload,
	uint32_t length, const uint8_t *digest)
{
	uint8_t made[PBOX_AUTH_DIGEST_LEN], tag[PBOX_TAG_LEN];

	if (l->t->auth == NULL)
		return true;
	if ((head[PBOX_AT_FLAGS] & PBOX_F_AUTH) == 0)
		return false;
	if (digest == NULL) {
		pbox_auth_digest(l->t->auth, payload, length, made);
		digest = made;
	}
	pbox_auth_tag(l->t->keys[worker].box, head, digest, tag);
	return sodium_memcmp(tag, payload + length, sizeof(tag)) == 0;
}
