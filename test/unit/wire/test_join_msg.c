/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "payload.h"

const char unit_suite[] = "wire: payloads of joining";

PAYLOAD_FACE(hello)
PAYLOAD_FACE(retry)
PAYLOAD_FACE(join)
PAYLOAD_FACE(welcome)

static void
test_hello(void)
{
	const struct pbox_hello m = {1, 3};
	struct pbox_hello got;
	uint8_t b[64], want[64] = {1, 3};

	memset(b, 0xEE, sizeof(b));
	UNIT_EQ_U64(pbox_hello_encode(b, sizeof(b), &m), 64);
	CU_ASSERT_EQUAL(memcmp(b, want, 64), 0);
	CU_ASSERT_EQUAL(pbox_hello_decode(b, 64, &got), 0);
	UNIT_EQ_U64(got.min_version, 1);
	UNIT_EQ_U64(got.max_version, 3);
	payload_lengths(b, 64, face_hello);
	PAYLOAD_ROOM(pbox_hello_encode, 64, &m);
}

static void
test_retry(void)
{
	const struct pbox_retry m = {0x0807060504030201, 0x0C0B0A09};
	const uint8_t want[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0};
	struct pbox_retry got;
	uint8_t b[16];

	UNIT_EQ_U64(pbox_retry_encode(b, sizeof(b), &m), 16);
	CU_ASSERT_EQUAL(memcmp(b, want, 16), 0);
	CU_ASSERT_EQUAL(pbox_retry_decode(b, 16, &got), 0);
	UNIT_EQ_U64(got.cookie, m.cookie);
	UNIT_EQ_U64(got.incarnation, m.incarnation);
	payload_lengths(b, 16, face_retry);
	PAYLOAD_ROOM(pbox_retry_encode, 16, &m);
}

static struct pbox_join
sample_join(void)
{
	struct pbox_join m;

	memset(&m, 0, sizeof(m));
	m.cookie = 0x0807060504030201;
	m.nonce = 0x100F0E0D0C0B0A09;
	m.worker = 0x1211;
	m.workers = 0x1413;
	m.mtu = 9000;
	m.window = 512;
	m.policy = 1;
	m.revision = 0x1B;
	m.lease_ms = 0x201F1E1D;
	strcpy(m.job, "resnet");
	strcpy(m.host, "node7");
	for (unsigned i = 0; i < PBOX_PROOF_LEN; i++)
		m.proof[i] = (uint8_t)(0xA0 + i);
	for (unsigned i = 0; i < PBOX_RUN_LEN; i++)
		m.run[i] = (uint8_t)(0xD0 + i);
	m.number = 0xF8F7F6F5F4F3F2F1;
	m.can = 0x84838281;
	m.needs = 0x88878685;
	m.slots = 0x8A89;
	return m;
}

static void
test_join(void)
{
	const struct pbox_join m = sample_join();
	struct pbox_join got;
	uint8_t b[512],
		want[512] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0x11, 0x12,
			0x13, 0x14, 0x28, 0x23, 0x00, 0x02, 1, 0, 0x1B, 0, 0x1D, 0x1E, 0x1F, 0x20};

	memcpy(want + 32, "resnet", 6);
	memcpy(want + 96, "node7", 5);
	for (unsigned i = 0; i < PBOX_PROOF_LEN; i++)
		want[160 + i] = (uint8_t)(0xA0 + i);
	for (unsigned i = 0; i < PBOX_RUN_LEN; i++)
		want[192 + i] = (uint8_t)(0xD0 + i);
	for (unsigned i = 0; i < 8; i++)
		want[208 + i] = (uint8_t)(0xF1 + i), want[216 + i] = (uint8_t)(0x81 + i);
	want[224] = 0x89, want[225] = 0x8A;
	memset(b, 0xEE, sizeof(b));
	UNIT_EQ_U64(pbox_join_encode(b, sizeof(b), &m), 512);
	CU_ASSERT_EQUAL(memcmp(b, want, 512), 0);
	memset(&got, 0, sizeof(got));
	CU_ASSERT_EQUAL(pbox_join_decode(b, 512, &got), 0);
	CU_ASSERT_EQUAL(memcmp(&got, &m, sizeof(m)), 0);
	payload_lengths(b, 512, face_join);
	PAYLOAD_ROOM(pbox_join_encode, 512, &m);
}

static void
test_join_names(void)
{
	struct pbox_join m = sample_join(), got;
	uint8_t b[512];

	/* 63 bytes are the most; a 64th has no NUL after it */
	memset(m.job, 'j', 63);
	m.job[63] = 0;
	pbox_join_encode(b, sizeof(b), &m);
	CU_ASSERT_EQUAL(pbox_join_decode(b, 512, &got), 0);
	CU_ASSERT_STRING_EQUAL(got.job, m.job);
	b[32 + 63] = 'j';
	CU_ASSERT_EQUAL(pbox_join_decode(b, 512, &got), -1);
	b[32 + 63] = 0;
	/* a host name is cut instead, here within a two-byte character */
	memset(b + 96, 'h', 62);
	memcpy(b + 96 + 62, "\xC3\xA9", 2);
	CU_ASSERT_EQUAL(pbox_join_decode(b, 512, &got), 0);
	UNIT_EQ_U64(strlen(got.host), 62);
	/* a caller's string without NUL is not read beyond its array */
	memset(m.job, 'j', 64);
	memset(m.host, 'h', 64);
	UNIT_EQ_U64(pbox_join_encode(b, sizeof(b), &m), 512);
	CU_ASSERT_EQUAL(pbox_join_decode(b, 512, &got), 0);
	UNIT_EQ_U64(strlen(got.job), 63);
	UNIT_EQ_U64(strlen(got.host), 63);
}

static void
test_welcome(void)
{
	static struct pbox_welcome m, got;
	uint8_t b[80 + 8 * PBOX_MAX_ENDPOINTS];
	const uint8_t want[40] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
		20, 21, 22, 2, 0, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 0, 0, 0, 0};
	const uint8_t number[8] = {0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8};
	const uint8_t ends[16] = {10, 0, 0, 1, 0x66, 0x1C, 0, 0, 10, 0, 0, 2, 0x67, 0x1C, 0, 0};

	memset(&m, 0, sizeof(m));
	m.token = 0x0807060504030201;
	m.nonce = 0x100F0E0D0C0B0A09;
	m.job = 0x1211;
	m.worker = 0x1413;
	m.workers = 0x1615;
	m.endpoints = 2;
	m.incarnation = 0x1C1B1A19;
	m.lease_ms = 0x201F1E1D;
	m.mtu = 0x2221;
	m.window = 0x2423;
	memset(m.proof, 0x5A, sizeof(m.proof));
	m.number = 0xF8F7F6F5F4F3F2F1;
	m.endpoint[0] = (struct pbox_endpoint){{10, 0, 0, 1}, 7270};
	m.endpoint[1] = (struct pbox_endpoint){{10, 0, 0, 2}, 7271};
	memset(b, 0xEE, sizeof(b));
	UNIT_EQ_U64(pbox_welcome_encode(b, sizeof(b), &m), 96);
	CU_ASSERT_EQUAL(memcmp(b, want, sizeof(want)), 0);
	CU_ASSERT_EQUAL(b[PBOX_WELCOME_PROOF_AT], 0x5A);
	CU_ASSERT_EQUAL(memcmp(b + 72, number, sizeof(number)), 0);
	CU_ASSERT_EQUAL(memcmp(b + 80, ends, sizeof(ends)), 0);
	CU_ASSERT_EQUAL(pbox_welcome_decode(b, 96, &got), 0);
	CU_ASSERT_EQUAL(memcmp(&got, &m, sizeof(m)), 0);
	payload_lengths(b, 96, face_welcome);
	PAYLOAD_ROOM(pbox_welcome_encode, 96, &m);
}

static void
test_welcome_limits(void)
{
	static struct pbox_welcome m, got;
	static uint8_t b[80 + 8 * 70];

	m.endpoints = 0;
	UNIT_EQ_U64(pbox_welcome_encode(b, sizeof(b), &m), 80);
	CU_ASSERT_EQUAL(pbox_welcome_decode(b, 80, &got), 0);
	m.endpoints = PBOX_MAX_ENDPOINTS;
	UNIT_EQ_U64(pbox_welcome_encode(b, sizeof(b), &m), 80 + 8 * 64);
	CU_ASSERT_EQUAL(pbox_welcome_decode(b, sizeof(b), &got), 0);
	b[22] = PBOX_MAX_ENDPOINTS + 1;
	CU_ASSERT_EQUAL(pbox_welcome_decode(b, sizeof(b), &got), -1);
	b[22] = b[23] = 0xFF;
	CU_ASSERT_EQUAL(pbox_welcome_decode(b, sizeof(b), &got), -1);
	m.endpoints = PBOX_MAX_ENDPOINTS + 1;
	UNIT_EQ_U64(pbox_welcome_encode(b, sizeof(b), &m), 0);
}

const struct unit_test unit_tests[] = {
	{"HELLO", test_hello},
	{"RETRY", test_retry},
	{"JOIN", test_join},
	{"names in JOIN", test_join_names},
	{"WELCOME", test_welcome},
	{"the limits of WELCOME", test_welcome_limits},
	{NULL, NULL},
};
