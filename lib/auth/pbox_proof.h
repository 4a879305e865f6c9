/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_PROOF_H
#define PBOX_PROOF_H

/**
 * @file
 * Cookies, challenges and proofs (doc/protocol.md R4.2, R4.3, R4.5, R4.9, R9.2), for the box and its workers.
 *
 * Pure: bytes in, bytes out; who has which key is the caller's. Any thread. Call sodium_init() first.
 */

#include <pbox_wire.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PBOX_COOKIE_KEY_LEN 16
#define PBOX_COOKIE_TICK_NS UINT64_C(250000)
#define PBOX_COOKIE_LIFE    UINT64_C(64000) /**< in ticks: 16 s */

/** Where a worker's frames come from: address in network byte order, port in the host's. */
struct pbox_proof_from {
	uint32_t ip;
	uint16_t udp;
};

/** The lower 16 bits of @p tick (its time, in PBOX_COOKIE_TICK_NS), and 48 bits of SipHash-2-4 of address, port and
 * tick. */
uint64_t pbox_cookie(
	const uint8_t key[PBOX_COOKIE_KEY_LEN], struct pbox_proof_from from, uint64_t tick);
/** The tick in which a good one was given, by that of now. */
uint64_t pbox_cookie_given(uint64_t now, uint64_t cookie);
/** Was it given to that address, within its life? */
bool pbox_cookie_good(const uint8_t key[PBOX_COOKIE_KEY_LEN], struct pbox_proof_from from,
	uint64_t now, uint64_t cookie);

/** What a worker has to echo from an address that is new in its session (R4.9); never 0. */
uint64_t pbox_challenge(
	const uint8_t key[PBOX_COOKIE_KEY_LEN], struct pbox_proof_from from, uint64_t token);

/**
 * HMAC-SHA-256(secret, prefix ‖ payload with the 32 bytes at @p at zeroed).
 * @p payload is not changed.
 */
void pbox_proof(uint8_t out[PBOX_PROOF_LEN], const void *secret, size_t secret_len,
	const char *prefix, const void *payload, size_t len, size_t at);
/** Is that the proof at @p at of @p payload? In constant time. */
bool pbox_proof_good(const void *secret, size_t secret_len, const char *prefix, const void *payload,
	size_t len, size_t at);

#ifdef __cplusplus
}
#endif

#endif /* PBOX_PROOF_H */
