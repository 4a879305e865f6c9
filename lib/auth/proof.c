/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Proofs of the handshake, by HMAC. */

#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "pbox_proof.h"

_Static_assert(PBOX_PROOF_LEN == crypto_auth_hmacsha256_BYTES, "HMAC-SHA-256");

void
pbox_proof(uint8_t out[PBOX_PROOF_LEN], const void *secret, size_t secret_len, const char *prefix,
	const void *payload, size_t len, size_t at)
{
	static const uint8_t zero[PBOX_PROOF_LEN];
	const uint8_t *p = payload;
	crypto_auth_hmacsha256_state st;

	assert(at + PBOX_PROOF_LEN <= len);
	crypto_auth_hmacsha256_init(&st, secret, secret_len);
	crypto_auth_hmacsha256_update(&st, (const uint8_t *)prefix, strlen(prefix));
	crypto_auth_hmacsha256_update(&st, p, at);
	crypto_auth_hmacsha256_update(&st, zero, sizeof(zero));
	crypto_auth_hmacsha256_update(&st, p + at + PBOX_PROOF_LEN, len - at - PBOX_PROOF_LEN);
	crypto_auth_hmacsha256_final(&st, out);
	sodium_memzero(&st, sizeof(st));
}

bool
pbox_proof_good(const void *secret, size_t secret_len, const char *prefix, const void *payload,
	size_t len, size_t at)
{
	uint8_t want[PBOX_PROOF_LEN];

	pbox_proof(want, secret, secret_len, prefix, payload, len, at);
	return crypto_verify_32(want, (const uint8_t *)payload + at) == 0;
}
