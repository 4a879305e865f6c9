/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "payload.h"

const char unit_suite[] = "wire: payloads of control";

PAYLOAD_FACE(set)
PAYLOAD_FACE(status)
PAYLOAD_FACE(error)

static int
face_status_ok(const void *buf, size_t len, void *any)
{
	struct pbox_status_ok *m = any;
	struct pbox_member_entry e;
	struct pbox_cursor cur;

	if (pbox_status_ok_decode(buf, len, m, &cur) != 0)
		return -1;
	for (unsigned i = 0; i < m->count; i++)
		CU_ASSERT_EQUAL(pbox_status_ok_next(&cur, &e), 0);
	CU_ASSERT_EQUAL(pbox_status_ok_next(&cur, &e), -1);
	return 0;
}

static void
test_set(void)
{
	static struct pbox_set m, got;
	const uint8_t want[48] = {1, 2, 3, 4, 0xFF, 0xFF, 2, 0, 9, 10, 11, 12, 0, 0, 0, 0, 1, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xE0, 0x3F, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0xC0};
	uint8_t b[16 + 16 * 20];

	m.table = 0x04030201;
	m.group = PBOX_ALL_GROUPS;
	m.count = 2;
	m.from_round = 0x0C0B0A09;
	m.param[0].id = PBOX_HYPER_LR;
	m.param[0].value = 0.5;
	m.param[1].id = PBOX_HYPER_BETA1;
	m.param[1].value = -2.0;
	UNIT_EQ_U64(pbox_set_encode(b, sizeof(b), &m), 48);
	CU_ASSERT_EQUAL(memcmp(b, want, 48), 0);
	CU_ASSERT_EQUAL(pbox_set_decode(b, 48, &got), 0);
	UNIT_EQ_U64(got.table, m.table);
	UNIT_EQ_U64(got.group, m.group);
	UNIT_EQ_U64(got.count, 2);
	UNIT_EQ_U64(got.from_round, m.from_round);
	UNIT_EQ_U64(got.param[1].id, PBOX_HYPER_BETA1);
	CU_ASSERT(got.param[0].value == 0.5 && got.param[1].value == -2.0);
	payload_lengths(b, 48, face_set);
	PAYLOAD_ROOM(pbox_set_encode, 48, &m);
}

static void
test_set_limits(void)
{
	static struct pbox_set m, got;
	static uint8_t b[16 + 16 * 20];

	m.count = PBOX_SET_MAX;
	UNIT_EQ_U64(pbox_set_encode(b, sizeof(b), &m), 16 + 16 * 16);
	CU_ASSERT_EQUAL(pbox_set_decode(b, sizeof(b), &got), 0);
	b[6] = PBOX_SET_MAX + 1;
	CU_ASSERT_EQUAL(pbox_set_decode(b, sizeof(b), &got), -1);
	m.count = PBOX_SET_MAX + 1;
	UNIT_EQ_U64(pbox_set_encode(b, sizeof(b), &m), 0);
	m.count = 0;
	UNIT_EQ_U64(pbox_set_encode(b, 16, &m), 16);
	CU_ASSERT_EQUAL(pbox_set_decode(b, 16, &got), 0);
}

static void
test_status(void)
{
	const struct pbox_status m = {0x0201};
	const uint8_t want[4] = {1, 2, 0, 0};
	struct pbox_status got;
	uint8_t b[4];

	UNIT_EQ_U64(pbox_status_encode(b, sizeof(b), &m), 4);
	CU_ASSERT_EQUAL(memcmp(b, want, 4), 0);
	CU_ASSERT_EQUAL(pbox_status_decode(b, 4, &got), 0);
	UNIT_EQ_U64(got.first, m.first);
	payload_lengths(b, 4, face_status);
	PAYLOAD_ROOM(pbox_status_encode, 4, &m);
}

/* R8.3a: what is waited for follows. */
static void
test_status_waits(void)
{
	const struct pbox_status m = {0x0201, PBOX_STATUS_WAITS, 0x14131211, 0x18171615, 0x1A19};
	const uint8_t want[16] = {
		1, 2, 1, 0, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1A, 0, 0};
	struct pbox_status got;
	uint8_t b[16];

	UNIT_EQ_U64(pbox_status_encode(b, sizeof(b), &m), 16);
	CU_ASSERT_EQUAL(memcmp(b, want, 16), 0);
	CU_ASSERT_EQUAL(pbox_status_decode(b, 16, &got), 0);
	UNIT_EQ_U64(got.first, m.first);
	UNIT_EQ_U64(got.chunk, m.chunk);
	UNIT_EQ_U64(got.round, m.round);
	UNIT_EQ_U64(got.frag, m.frag);
	payload_lengths(b, 16, face_status);
	PAYLOAD_ROOM(pbox_status_encode, 16, &m);
}

/* R18.8: the fields of who waits, and what a rack waits for. */
static void
test_status_rack(void)
{
	struct pbox_status m = {.first = 0x0201, .flags = PBOX_STATUS_RACK, .rack = "worker 3"};
	const uint8_t want[28] = {1, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 'w',
		'o', 'r', 'k', 'e', 'r', ' ', '3'};
	struct pbox_status got;
	uint8_t b[PBOX_STATUS_RACK_MAX];

	UNIT_EQ_U64(pbox_status_encode(b, sizeof(b), &m), 28);
	CU_ASSERT_EQUAL(memcmp(b, want, 28), 0);
	CU_ASSERT_EQUAL(pbox_status_decode(b, 28, &got), 0);
	CU_ASSERT_STRING_EQUAL(got.rack, "worker 3");
	payload_lengths(b, 28, face_status);
	UNIT_EQ_U64(pbox_status_encode(b, 19, &m), 0);
	UNIT_EQ_U64(pbox_status_encode(b, 26, &m), 26); /* the text is cut */
	CU_ASSERT_EQUAL(pbox_status_decode(b, 26, &got), 0);
	CU_ASSERT_STRING_EQUAL(got.rack, "worker");
	memset(m.rack, 'x', sizeof(m.rack) - 1);
	UNIT_EQ_U64(pbox_status_encode(b, sizeof(b), &m), sizeof(b));
}

static void
test_status_ok(void)
{
	static struct pbox_status_ok m, got;
	const struct pbox_member_entry in[2] = {
		{0x2221, PBOX_MEMBER_SILENT, PBOX_LEFT_KICKED, 0x28272625, 0x2C2B2A29, "node7"},
		{1, PBOX_MEMBER_JOINED, 0, 0, 2, "a-host-of-20-bytes--"}};
	const uint8_t want[22 + 32] = {4, 0, 3, 4, 1, 0, 2, 0, 9, 10, 11, 12, 13, 14, 15, 16, 2, 0,
		0, 0, 'o', 'k', 0x21, 0x22, 3, 2, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x2B, 0x2C,
		'n', 'o', 'd', 'e', '7'};
	struct pbox_member_entry e;
	struct pbox_cursor cur;
	uint8_t b[256];
	size_t len;

	m.workers = 4;
	m.joined = 0x0403;
	m.first = 1;
	m.tables = 0x0C0B0A09;
	m.max_round = 0x100F0E0D;
	strcpy(m.text, "ok");
	memset(b, 0xEE, sizeof(b));
	CU_ASSERT_EQUAL(pbox_status_ok_begin(b, sizeof(b), &m, &cur), 0);
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_EQUAL(pbox_status_ok_add(b, &cur, &in[i]), 0);
	len = pbox_page_len(b, &cur);
	UNIT_EQ_U64(len, 20 + 2 + 2 * 32);
	CU_ASSERT_EQUAL(memcmp(b, want, sizeof(want)), 0);
	CU_ASSERT_EQUAL(pbox_status_ok_decode(b, len, &got, &cur), 0);
	m.count = 2;
	CU_ASSERT_EQUAL(memcmp(&got, &m, sizeof(m)), 0);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(pbox_status_ok_next(&cur, &e), 0);
		UNIT_EQ_U64(e.worker, in[i].worker);
		UNIT_EQ_U64(e.state, in[i].state);
		UNIT_EQ_U64(e.silent_ms, in[i].silent_ms);
		UNIT_EQ_U64(e.declared, in[i].declared);
		CU_ASSERT_STRING_EQUAL(e.host, in[i].host);
	}
	payload_lengths(b, len, face_status_ok);
	b[0] = 2; /* fewer workers than first + count */
	CU_ASSERT_EQUAL(pbox_status_ok_decode(b, len, &got, &cur), -1);
}

static void
test_status_ok_full(void)
{
	static struct pbox_status_ok m;
	const struct pbox_member_entry e = {0};
	struct pbox_cursor cur;
	uint8_t b[20 + 511 + 64];

	memset(m.text, 't', sizeof(m.text)); /* no NUL in it */
	for (size_t cap = 0; cap < 20; cap++)
		CU_ASSERT_EQUAL(pbox_status_ok_begin(b, cap, &m, &cur), -1);
	CU_ASSERT_EQUAL(pbox_status_ok_begin(b, 100, &m, &cur), 0);
	UNIT_EQ_U64(pbox_page_len(b, &cur), 100);
	CU_ASSERT_EQUAL(pbox_status_ok_add(b, &cur, &e), -1);
	m.workers = 2;
	CU_ASSERT_EQUAL(pbox_status_ok_begin(b, sizeof(b), &m, &cur), 0);
	UNIT_EQ_U64(pbox_page_len(b, &cur), 531);
	CU_ASSERT_EQUAL(pbox_status_ok_add(b, &cur, &e), 0);
	CU_ASSERT_EQUAL(pbox_status_ok_add(b, &cur, &e), 0);
	CU_ASSERT_EQUAL(pbox_status_ok_add(b, &cur, &e), -1);
	payload_lengths(b, sizeof(b), face_status_ok);
}

static void
test_error(void)
{
	static struct pbox_error_msg m, got;
	const uint8_t want[17] = {1, 2, 3, 0, 5, 6, 7, 8, 5, 0, 0, 0, 'c', 'a', 'f', 0xC3, 0xA9};
	uint8_t b[600];

	m.code = 0x0201;
	m.type = 3;
	m.detail = 0x08070605;
	strcpy(m.text, "caf\xC3\xA9");
	UNIT_EQ_U64(pbox_error_encode(b, sizeof(b), &m), 17);
	CU_ASSERT_EQUAL(memcmp(b, want, 17), 0);
	CU_ASSERT_EQUAL(pbox_error_decode(b, 17, &got), 0);
	CU_ASSERT_EQUAL(memcmp(&got, &m, sizeof(m)), 0);
	payload_lengths(b, 17, face_error);
	PAYLOAD_ROOM(pbox_error_encode, 12, &m);
	/* a character is not split */
	UNIT_EQ_U64(pbox_error_encode(b, 16, &m), 15);
	UNIT_EQ_U64(pbox_error_encode(b, 12, &m), 12);
	/* bytes that are no UTF-8 are cut where they must be */
	memset(m.text, 0x80, sizeof(m.text));
	UNIT_EQ_U64(pbox_error_encode(b, 20, &m), 12 + 5);
	UNIT_EQ_U64(pbox_error_encode(b, 14, &m), 12);
}

/* R9.2 */
static void
test_error_tail(void)
{
	const struct pbox_error_tail t = {0x1122334455667788, 0x99aabbcc};
	const struct pbox_error_msg m = {.code = PBOX_E_WORKERS, .text = "two"};
	struct pbox_error_tail got;
	struct pbox_error_msg back;
	uint8_t b[80];
	size_t len = pbox_error_encode(b, 32, &m);

	UNIT_EQ_U64(pbox_error_tail_decode(b, len, &got), 0);
	len = pbox_error_tail_encode(b, len, &t);
	UNIT_EQ_U64(len, 12 + 3 + 48);
	UNIT_EQ_U64(pbox_error_tail_decode(b, len, &got), len);
	UNIT_EQ_U64(pbox_error_tail_decode(b, sizeof(b), &got), len); /* later fields */
	UNIT_EQ_U64(got.nonce, t.nonce);
	UNIT_EQ_U64(got.request, t.request);
	UNIT_EQ_U64(pbox_error_tail_decode(b, len - 1, &got), 0);
	CU_ASSERT_EQUAL(pbox_error_decode(b, len, &back), 0);
	CU_ASSERT_STRING_EQUAL(back.text, "two");
}

const struct unit_test unit_tests[] = {
	{"SET", test_set},
	{"the limits of SET", test_set_limits},
	{"STATUS", test_status},
	{"STATUS of who waits", test_status_waits},
	{"STATUS of a rack", test_status_rack},
	{"STATUS_OK", test_status_ok},
	{"a full STATUS_OK", test_status_ok_full},
	{"ERROR", test_error},
	{"ERROR, proven", test_error_tail},
	{NULL, NULL},
};
