/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_AUTH_H
#define PBOX_AUTH_H

/**
 * @file
 * Tags of frames (doc/protocol.md, section 11): keys, digests of payloads, tags.
 *
 * Any thread; what is created is read only until it is destroyed. Call sodium_init() first. Nothing
 * here allocates but pbox_auth_job_create().
 */

#include <pbox_wire.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PBOX_AUTH_KEY_LEN     16
#define PBOX_AUTH_JOB_KEY_LEN 32
#define PBOX_AUTH_DIGEST_LEN  16

/** What makes digests (R11.3). Drivers register theirs from a constructor. */
struct pbox_auth_ops {
	const char *name;
	int rank; /**< the highest that is usable is taken */
	bool (*usable)(void);
	size_t state_len; /**< bytes of a job's key as the implementation wants it, 64-byte aligned */
	void (*init)(void *state, const uint8_t key[PBOX_AUTH_JOB_KEY_LEN]);
	/** Of 1 to 65535 bytes. */
	void (*digest)(const void *state, const void *payload, size_t len,
		uint8_t out[PBOX_AUTH_DIGEST_LEN]);
};

extern const struct pbox_auth_ops pbox_auth_sodium;

/** Before main(). */
void pbox_auth_register(const struct pbox_auth_ops *ops);
/** By name, or the best one (NULL); NULL: this CPU has none. */
const struct pbox_auth_ops *pbox_auth_select(const char *name);
/** The i-th registered, usable or not; NULL after the last. */
const struct pbox_auth_ops *pbox_auth_at(unsigned i);

/** The key of a job, ready for digests. */
struct pbox_auth_job;

/** @param ops  NULL: the best one. Returns NULL without memory, or where none is usable. */
struct pbox_auth_job *pbox_auth_job_create(const struct pbox_auth_ops *ops, const void *secret,
	size_t secret_len, uint32_t incarnation, uint16_t job);
/** Wipes the key. NULL is allowed. */
void pbox_auth_job_destroy(struct pbox_auth_job *j);

/** Of a session: of the frames of the worker, and of those of the box. */
struct pbox_auth_keys {
	uint8_t worker[PBOX_AUTH_KEY_LEN], box[PBOX_AUTH_KEY_LEN];
};

/** R11.2. @param w  as sent: nonce, token, incarnation, job and worker count. */
void pbox_auth_keys(struct pbox_auth_keys *out, const void *secret, size_t secret_len,
	const struct pbox_welcome *w);

/** R11.3; of an empty payload too. */
void pbox_auth_digest(const struct pbox_auth_job *j, const void *payload, size_t len,
	uint8_t out[PBOX_AUTH_DIGEST_LEN]);
/** R11.4: write the tag of the frame whose encoded header is at @p header. */
void pbox_auth_tag(const uint8_t key[PBOX_AUTH_KEY_LEN], const void *header,
	const uint8_t digest[PBOX_AUTH_DIGEST_LEN], void *tag);
/** Has the frame with flag AUTH, decoded or opened, whose payload is at @p payload with its
 * header before it, the right tag after it? In constant time. */
bool pbox_auth_good(const uint8_t key[PBOX_AUTH_KEY_LEN], const struct pbox_auth_job *j,
	const void *payload, size_t len);
/** pbox_frame_seal() and the tag after it; hdr->flags has AUTH. Returns the frame's size. */
size_t pbox_auth_seal(const uint8_t key[PBOX_AUTH_KEY_LEN], const struct pbox_auth_job *j,
	void *buf, const struct pbox_hdr *hdr);

#ifdef __cplusplus
}
#endif

#endif /* PBOX_AUTH_H */
