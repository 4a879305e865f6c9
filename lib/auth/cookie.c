/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Cookies of the handshake, and challenges to an address that is new in its session: SipHash of the address. */

#include <string.h>

#include <sodium.h>

#include "pbox_proof.h"

_Static_assert(PBOX_COOKIE_KEY_LEN == crypto_shorthash_KEYBYTES, "SipHash key");
_Static_assert(PBOX_COOKIE_LIFE <= UINT16_MAX, "its bits say when it was given");

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
