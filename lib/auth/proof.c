/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Proofs of the handshake, by HMAC, and cookies. */

#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "pbox_proof.h"

_Static_assert(PBOX_COOKIE_KEY_LEN == crypto_shorthash_KEYBYTES, "SipHash key");
_Static_assert(PBOX_COOKIE_LIFE <= UINT16_MAX, "its bits say when it was given");
_Static_assert(PBOX_PROOF_LEN == crypto_auth_hmacsha256_BYTES, "HMAC-SHA-256");

#define COOKIE_HASH UINT64_C(0xFFFFFFFFFFFF)

/* Of an address and a number. */
static uint64_t
hash_of(const uint8_t key[PBOX_COOKIE_KEY_LEN], struct pbox_proof_from from, uint64_t number)
{
	uint8_t in[14], out[crypto_shorthash_BYTES];
	uint64_t hash;

	memcpy(in, &from.ip, 4);
	memcpy(in + 4, &from.udp, 2);
	memcpy(in + 6, &number, 8);
	crypto_shorthash(out, in, sizeof(in), key);
	memcpy(&hash, out, sizeof(hash));
	return hash;
}

uint64_t
pbox_cookie(const uint8_t key[PBOX_COOKIE_KEY_LEN], struct pbox_proof_from from, uint64_t tick)
{
	return (hash_of(key, from, tick) & COOKIE_HASH) | tick << 48;
}

uint64_t
pbox_cookie_given(uint64_t now, uint64_t cookie)
{
	return now - ((now - (cookie >> 48)) & UINT16_MAX);
}

bool
pbox_cookie_good(const uint8_t key[PBOX_COOKIE_KEY_LEN], struct pbox_proof_from from, uint64_t now,
	uint64_t cookie)
{
	uint64_t given = pbox_cookie_given(now, cookie);

	return given <= now && now - given < PBOX_COOKIE_LIFE &&
	       cookie == pbox_cookie(key, from, given);
}

uint64_t
pbox_challenge(const uint8_t key[PBOX_COOKIE_KEY_LEN], struct pbox_proof_from from, uint64_t token)
{
	uint64_t nonce = hash_of(key, from, token);

	return nonce != 0 ? nonce : 1;
}

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
