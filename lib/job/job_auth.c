/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "pbox_job_auth.h"

/* Shards and the registrar, on threads of their own, with the keys that the registrar writes: all
 * through atomic words (struct pbox_job_keys). */

static void
key_load(uint64_t out[2], const _Atomic uint64_t word[2])
{
	out[0] = atomic_load_explicit(&word[0], memory_order_relaxed);
	out[1] = atomic_load_explicit(&word[1], memory_order_relaxed);
}

static void
key_store(_Atomic uint64_t word[2], const uint8_t key[PBOX_AUTH_KEY_LEN])
{
	uint64_t in[2];

	memcpy(in, key, sizeof(in));
	atomic_store_explicit(&word[0], in[0], memory_order_relaxed);
	atomic_store_explicit(&word[1], in[1], memory_order_relaxed);
}

void
pbox_job_auth_begin(struct pbox_job *job, unsigned worker, uint64_t token, uint32_t incarnation)
{
	const struct pbox_welcome w = {.nonce = job->member[worker].nonce,
		.token = token,
		.incarnation = incarnation,
		.job = job->id,
		.worker = (uint16_t)worker};
	struct pbox_auth_keys k;

	pbox_auth_keys(&k, job->conf->secret, job->conf->secret_len, &w);
	key_store(job->key[worker].worker, k.worker);
	key_store(job->key[worker].box, k.box);
	explicit_bzero(&k, sizeof(k));
}

bool
pbox_job_auth_good(const struct pbox_job *job, const struct pbox_frame *f)
{
	bool tagged = (f->hdr.flags & PBOX_F_AUTH) != 0;
	uint64_t key[2];

	if (job->auth == NULL || !tagged)
		return job->auth == NULL && !tagged;
	key_load(key, job->key[f->hdr.worker].worker);
	return pbox_auth_good((const uint8_t *)key, job->auth, f->payload, f->hdr.length);
}

void
pbox_job_auth_seal(
	const struct pbox_job *job, unsigned worker, struct pbox_job_tag *t, struct pbox_send *out)
{
	out->hdr.flags |= PBOX_F_AUTH;
	key_load(t->key, job->key[worker].box);
	out->tag_key = (const uint8_t *)t->key;
	if (out->digest == NULL) {
		pbox_auth_digest(job->auth, out->payload, out->hdr.length, t->digest);
		out->digest = t->digest;
	}
}
