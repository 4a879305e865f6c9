/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <sodium.h>

#include "pbox_auth.h"

/* Digests by libsodium: on any CPU with the instructions of AES. */

/* R11.3 says why it may be the same for all. */
static const uint8_t sodium_nonce[crypto_aead_aes256gcm_NPUBBYTES];

_Static_assert(PBOX_AUTH_JOB_KEY_LEN == crypto_aead_aes256gcm_KEYBYTES, "AES-256");
_Static_assert(PBOX_AUTH_DIGEST_LEN == crypto_aead_aes256gcm_ABYTES, "GMAC");

static bool
sodium_is_usable(void)
{
	return crypto_aead_aes256gcm_is_available() != 0;
}

static void
sodium_start(void *state, const uint8_t key[PBOX_AUTH_JOB_KEY_LEN])
{
	crypto_aead_aes256gcm_beforenm(state, key);
}

static void
sodium_digest(const void *state, const void *payload, size_t len, uint8_t out[PBOX_AUTH_DIGEST_LEN])
{
	uint8_t nothing;

	crypto_aead_aes256gcm_encrypt_detached_afternm(
		&nothing, out, NULL, NULL, 0, payload, len, NULL, sodium_nonce, state);
}

const struct pbox_auth_ops pbox_auth_sodium = {
	.name = "sodium",
	.rank = 0,
	.usable = sodium_is_usable,
	.state_len = sizeof(crypto_aead_aes256gcm_state),
	.init = sodium_start,
	.digest = sodium_digest,
};
