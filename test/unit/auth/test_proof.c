/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include <pbox_proof.h>

#include "unit.h"

const char unit_suite[] = "auth: cookies and proofs";

static const uint8_t key[PBOX_COOKIE_KEY_LEN] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static void
test_cookie_depends_on_address_port_time_and_key(void)
{
	struct pbox_proof_from p = {.ip = 0x0100007F, .udp = 5000}, q = p;
	uint8_t other[PBOX_COOKIE_KEY_LEN] = {1};
	uint64_t c = pbox_cookie(key, p, 10);

	UNIT_EQ_U64(pbox_cookie(key, p, 10), c);
	q.ip++;
	CU_ASSERT(pbox_cookie(key, q, 10) != c);
	q = p;
	q.udp++;
	CU_ASSERT(pbox_cookie(key, q, 10) != c);
	CU_ASSERT(pbox_cookie(key, p, 11) != c);
	CU_ASSERT(pbox_cookie(key, p, 10 + (UINT64_C(1) << 32)) != c);
	CU_ASSERT(pbox_cookie(other, p, 10) != c);
}

static void
test_challenge_depends_on_address_token_and_key(void)
{
	struct pbox_proof_from p = {.ip = 0x0100007F, .udp = 5000}, q = p;
	uint8_t other[PBOX_COOKIE_KEY_LEN] = {1};
	uint64_t c = pbox_challenge(key, p, 10);

	UNIT_EQ_U64(pbox_challenge(key, p, 10), c);
	q.ip++;
	CU_ASSERT(pbox_challenge(key, q, 10) != c);
	q = p;
	q.udp++;
	CU_ASSERT(pbox_challenge(key, q, 10) != c);
	CU_ASSERT(pbox_challenge(key, p, 11) != c);
	CU_ASSERT(pbox_challenge(other, p, 10) != c);
	CU_ASSERT(c != 0);
}

static void
test_cookie_tells_when_it_was_given(void)
{
	static const uint64_t at[] = {0, 10, 65535, 65536, 100000, UINT64_C(1) << 40};
	struct pbox_proof_from p = {.ip = 1, .udp = 2};

	for (unsigned i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		uint64_t c = pbox_cookie(key, p, at[i]), end = at[i] + PBOX_COOKIE_LIFE;

		for (uint64_t now = at[i]; now < end; now += 7999) {
			CU_ASSERT_TRUE(pbox_cookie_good(key, p, now, c));
			UNIT_EQ_U64(pbox_cookie_given(now, c), at[i]);
		}
		CU_ASSERT_TRUE(pbox_cookie_good(key, p, end - 1, c));
		CU_ASSERT_FALSE(pbox_cookie_good(key, p, end, c));
		CU_ASSERT_FALSE(pbox_cookie_good(key, p, at[i] + 65536, c));
		CU_ASSERT_FALSE(pbox_cookie_good(key, p, at[i] - 1, c));
		for (unsigned bit = 0; bit < 64; bit++)
			CU_ASSERT_FALSE(pbox_cookie_good(key, p, at[i], c ^ UINT64_C(1) << bit));
	}
	UNIT_EQ_U64(PBOX_COOKIE_LIFE * PBOX_COOKIE_TICK_NS, UINT64_C(16000000000)); /* R4.2 */
}

/*
 * The message of a proof always has 32 zero bytes where the proof is, so that no published
 * vector of HMAC-SHA-256 fits. These were computed with Python's hmac and hashlib:
 * hmac.new(key, prefix + payload, 'sha256').hexdigest()
 */
static void
test_proof_vectors(void)
{
	static const uint8_t want_join[PBOX_PROOF_LEN] = {0x24, 0x76, 0x2e, 0x01, 0x60, 0x31, 0x7d,
		0x48, 0xec, 0xc4, 0xf4, 0xe7, 0x59, 0x70, 0x85, 0xa7, 0xbd, 0xa1, 0x50, 0xc7, 0xd0,
		0x72, 0xf2, 0x05, 0xef, 0xb1, 0xb4, 0x5f, 0x4f, 0x5e, 0x01, 0xd2};
	static const uint8_t want_long[PBOX_PROOF_LEN] = {0x42, 0x61, 0x65, 0xe6, 0x8b, 0x9a, 0x4c,
		0xc1, 0x3e, 0xb6, 0x43, 0xe1, 0x3a, 0xd2, 0x2e, 0x47, 0x3a, 0x07, 0x15, 0xe6, 0x46,
		0xba, 0xa5, 0xf8, 0x47, 0x33, 0x35, 0x8b, 0x49, 0x7d, 0xbe, 0x8d};
	static const uint8_t want_empty[PBOX_PROOF_LEN] = {0x33, 0xad, 0x0a, 0x1c, 0x60, 0x7e, 0xc0,
		0x3b, 0x09, 0xe6, 0xcd, 0x98, 0x93, 0x68, 0x0c, 0xe2, 0x10, 0xad, 0xf3, 0x00, 0xaa,
		0x1f, 0x26, 0x60, 0xe1, 0xb2, 0x2e, 0x10, 0xf1, 0x70, 0xf9, 0x2a};
	uint8_t payload[512], secret[131], out[PBOX_PROOF_LEN];

	for (unsigned i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)i;
	pbox_proof(out, "secret", 6, PBOX_JOIN_PROOF_PREFIX, payload, 512, PBOX_JOIN_PROOF_AT);
	CU_ASSERT_EQUAL(memcmp(out, want_join, sizeof(out)), 0);
	/* a secret longer than a block of SHA-256 is hashed first */
	memset(secret, 0xAA, sizeof(secret));
	pbox_proof(out, secret, sizeof(secret), PBOX_WELCOME_PROOF_PREFIX, payload, 80,
		PBOX_WELCOME_PROOF_AT);
	CU_ASSERT_EQUAL(memcmp(out, want_long, sizeof(out)), 0);
	pbox_proof(out, "", 0, "", payload, 32, 0);
	CU_ASSERT_EQUAL(memcmp(out, want_empty, sizeof(out)), 0);
	UNIT_EQ_U64(payload[PBOX_JOIN_PROOF_AT], PBOX_JOIN_PROOF_AT); /* unchanged */
}

static void
test_proof_is_checked_bit_by_bit(void)
{
	uint8_t payload[PBOX_JOIN_LEN] = {7};

	pbox_proof(payload + PBOX_JOIN_PROOF_AT, "k", 1, PBOX_JOIN_PROOF_PREFIX, payload,
		sizeof(payload), PBOX_JOIN_PROOF_AT);
	CU_ASSERT_TRUE(pbox_proof_good(
		"k", 1, PBOX_JOIN_PROOF_PREFIX, payload, sizeof(payload), PBOX_JOIN_PROOF_AT));
	for (unsigned bit = 0; bit < 8 * sizeof(payload); bit++) {
		payload[bit / 8] ^= (uint8_t)(1 << bit % 8);
		CU_ASSERT_FALSE(pbox_proof_good("k", 1, PBOX_JOIN_PROOF_PREFIX, payload,
			sizeof(payload), PBOX_JOIN_PROOF_AT));
		payload[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	CU_ASSERT_FALSE(pbox_proof_good(
		"K", 1, PBOX_JOIN_PROOF_PREFIX, payload, sizeof(payload), PBOX_JOIN_PROOF_AT));
	CU_ASSERT_FALSE(pbox_proof_good(
		"k", 1, PBOX_WELCOME_PROOF_PREFIX, payload, sizeof(payload), PBOX_JOIN_PROOF_AT));
}

const struct unit_test unit_tests[] = {
	{"a cookie depends on address, port, time, key",
		test_cookie_depends_on_address_port_time_and_key},
	{"a challenge depends on address, token, key",
		test_challenge_depends_on_address_token_and_key},
	{"a cookie shows when it was given", test_cookie_tells_when_it_was_given},
	{"proofs against another implementation", test_proof_vectors},
	{"a proof is checked bit by bit", test_proof_is_checked_bit_by_bit},
	{NULL, NULL},
};
