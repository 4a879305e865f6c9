/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Tags of frames (section 11): SipHash-2-4, by one of several implementations. */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "pbox_auth.h"

#define IMPLEMENTATIONS_MAX 4
#define LINE                64
#define JOB_PREFIX          "PBOX-AUTH-JOB-1"
#define SESSION_PREFIX      "PBOX-AUTH-SESSION-1"

static_assert(PBOX_AUTH_KEY_LEN == crypto_shorthash_siphashx24_KEYBYTES, "SipHash key");
static_assert(PBOX_TAG_LEN == crypto_shorthash_siphashx24_BYTES, "SipHash-2-4, 128 bits");
static_assert(sizeof(struct pbox_auth_keys) == crypto_auth_hmacsha256_BYTES, "R11.2");

static const struct pbox_auth_ops *auth_implementations[IMPLEMENTATIONS_MAX] = {&pbox_auth_sodium};
static unsigned auth_count = 1;

struct pbox_auth_job {
	const struct pbox_auth_ops *ops;
	uint8_t state[] __attribute__((aligned(LINE)));
};

void
pbox_auth_register(const struct pbox_auth_ops *ops)
{
	if (auth_count < IMPLEMENTATIONS_MAX)
		auth_implementations[auth_count++] = ops;
}

const struct pbox_auth_ops *
pbox_auth_select(const char *name)
{
	const struct pbox_auth_ops *best = NULL;

	for (unsigned i = 0; i < auth_count; i++) {
		const struct pbox_auth_ops *ops = auth_implementations[i];

		if (name != NULL && strcmp(name, ops->name) != 0)
			continue;
		if (ops->usable() && (best == NULL || ops->rank > best->rank))
			best = ops;
	}
	return best;
}

const struct pbox_auth_ops *
pbox_auth_at(unsigned i)
{
	return i < auth_count ? auth_implementations[i] : NULL;
}

/* ---- keys ---------------------------------------------------------------------------------- */

static uint8_t *
auth_put(uint8_t *p, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		*p++ = (uint8_t)(v >> 8 * i);
	return p;
}

static void
derive(uint8_t out[crypto_auth_hmacsha256_BYTES], const void *secret, size_t secret_len,
	const char *prefix, const uint8_t *fields, size_t len)
{
	crypto_auth_hmacsha256_state st;

	crypto_auth_hmacsha256_init(&st, secret, secret_len);
	crypto_auth_hmacsha256_update(&st, (const uint8_t *)prefix, strlen(prefix));
	crypto_auth_hmacsha256_update(&st, fields, len);
	crypto_auth_hmacsha256_final(&st, out);
	sodium_memzero(&st, sizeof(st));
}

struct pbox_auth_job *
pbox_auth_job_create(const struct pbox_auth_ops *ops, const void *secret, size_t secret_len,
	uint32_t incarnation, uint16_t job)
{
	uint8_t fields[6], key[PBOX_AUTH_JOB_KEY_LEN];
	struct pbox_auth_job *j;
	size_t size;

	if (ops == NULL)
		ops = pbox_auth_select(NULL);
	if (ops == NULL)
		return NULL;
	size = (sizeof(*j) + ops->state_len + LINE - 1) & ~(size_t)(LINE - 1);
	j = aligned_alloc(LINE, size);
	if (j == NULL)
		return NULL;
	memset(j, 0, size);
	j->ops = ops;
	auth_put(auth_put(fields, incarnation, 4), job, 2);
	derive(key, secret, secret_len, JOB_PREFIX, fields, sizeof(fields));
	ops->init(j->state, key);
	sodium_memzero(key, sizeof(key));
	return j;
}

void
pbox_auth_job_destroy(struct pbox_auth_job *j)
{
	if (j == NULL)
		return;
	sodium_memzero(j->state, j->ops->state_len);
	free(j);
}

void
pbox_auth_keys(struct pbox_auth_keys *out, const void *secret, size_t secret_len,
	const struct pbox_welcome *w)
{
	uint8_t fields[24], *p = fields, key[sizeof(*out)];

	p = auth_put(p, w->nonce, 8);
	p = auth_put(p, w->token, 8);
	p = auth_put(p, w->incarnation, 4);
	p = auth_put(p, w->job, 2);
	auth_put(p, w->worker, 2);
	derive(key, secret, secret_len, SESSION_PREFIX, fields, sizeof(fields));
	memcpy(out, key, sizeof(key));
	sodium_memzero(key, sizeof(key));
}

/* ---- frames -------------------------------------------------------------------------------- */

void
pbox_auth_digest(const struct pbox_auth_job *j, const void *payload, size_t len,
	uint8_t out[PBOX_AUTH_DIGEST_LEN])
{
	if (len == 0)
		memset(out, 0, PBOX_AUTH_DIGEST_LEN);
	else
		j->ops->digest(j->state, payload, len, out);
}

void
pbox_auth_tag(const uint8_t key[PBOX_AUTH_KEY_LEN], const void *header,
	const uint8_t digest[PBOX_AUTH_DIGEST_LEN], void *tag)
{
	uint8_t in[PBOX_HDR_LEN + PBOX_AUTH_DIGEST_LEN];

	memcpy(in, header, PBOX_HDR_LEN);
	memcpy(in + PBOX_HDR_LEN, digest, PBOX_AUTH_DIGEST_LEN);
	crypto_shorthash_siphashx24(tag, in, sizeof(in), key);
}

bool
pbox_auth_good(const uint8_t key[PBOX_AUTH_KEY_LEN], const struct pbox_auth_job *j,
	const void *payload, size_t len)
{
	const uint8_t *p = payload;
	uint8_t digest[PBOX_AUTH_DIGEST_LEN], tag[PBOX_TAG_LEN];

	pbox_auth_digest(j, p, len, digest);
	pbox_auth_tag(key, p - PBOX_HDR_LEN, digest, tag);
	return crypto_verify_16(tag, p + len) == 0;
}

size_t
pbox_auth_seal(const uint8_t key[PBOX_AUTH_KEY_LEN], const struct pbox_auth_job *j, void *buf,
	const struct pbox_hdr *hdr)
{
	uint8_t *p = buf, digest[PBOX_AUTH_DIGEST_LEN];
	size_t size = pbox_frame_seal(buf, hdr);

	pbox_auth_digest(j, p + PBOX_HDR_LEN, hdr->length, digest);
	pbox_auth_tag(key, p, digest, p + PBOX_HDR_LEN + hdr->length);
	return size;
}
