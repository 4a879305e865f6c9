/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Tags of frames (section 11 of the protocol), for jobs that ask for them. The digests of all payloads that
 * are sent, and of all results that must come, are made once (check.c): a frame costs one short hash
 * more each way.
 */

#include <string.h>

#include <sodium.h>

#include "testps.h"

#define DOUBT_US 500000

void
lane_auth_end(struct lane *l)
{
	pbox_auth_job_destroy(l->auth);
	l->auth = NULL;
}

bool
auth_welcome(struct lane *l, unsigned worker, const struct pbox_hdr *h, const uint8_t *payload,
	const struct pbox_welcome *w)
{
	struct testps *t = l->t;
	const struct pbox_conf_secret *s = &t->opt.secret;

	if ((w->flags & PBOX_WELCOME_AUTH) == 0) {
		if (t->opt.auth)
			lane_fail(l,
				"job '%s' of the box has no auth, and --auth takes nothing less: "
				"auth "
				"= yes in its section of the box's configuration",
				t->opt.job);
		return !t->opt.auth;
	}
	if (l->auth == NULL)
		l->auth = pbox_auth_job_create(NULL, s->bytes, s->len, w->incarnation, w->job);
	if (l->auth == NULL) {
		lane_fail(l, "job '%s' has auth, and this CPU has no AES", t->opt.job);
		return false;
	}
	pbox_auth_keys(&t->keys[worker], s->bytes, s->len, w);
	return (h->flags & PBOX_F_AUTH) != 0 &&
	       pbox_auth_good(t->keys[worker].box, l->auth, payload, h->length);
}

bool
auth_good(struct lane *l, unsigned worker, const struct pbox_hdr *h, const uint8_t *payload)
{
	struct control *c = &l->c[worker / l->t->lanes];

	if (l->auth == NULL || c->level == LEVEL_NONE)
		return true;
	if (h->flags & PBOX_F_AUTH) {
		if (!pbox_auth_good(l->t->keys[worker].box, l->auth, payload, h->length))
			return false;
		c->doubt_us = 0;
		return true;
	}
	/* R11.6: anybody can send it. A box that is there answers the PING with a tag */
	if (h->type != PBOX_ERROR || h->length != 0 || h->aux != PBOX_E_SESSION)
		return false;
	if (c->doubt_us == 0) {
		c->doubt_us = l->now;
		control_ping(l, worker, NULL);
	}
	return l->now - c->doubt_us >= DOUBT_US;
}

bool
auth_tag_good(const struct lane *l, unsigned worker, const uint8_t *head, const uint8_t *payload,
	uint32_t length, const uint8_t *digest)
{
	uint8_t made[PBOX_AUTH_DIGEST_LEN], tag[PBOX_TAG_LEN];

	if (l->auth == NULL)
		return true;
	if ((head[PBOX_AT_FLAGS] & PBOX_F_AUTH) == 0)
		return false;
	if (digest == NULL) {
		pbox_auth_digest(l->auth, payload, length, made);
		digest = made;
	}
	pbox_auth_tag(l->t->keys[worker].box, head, digest, tag);
	return sodium_memcmp(tag, payload + length, sizeof(tag)) == 0;
}
