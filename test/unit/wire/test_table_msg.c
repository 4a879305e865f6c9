/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "payload.h"

const char unit_suite[] = "wire: payloads of tables";

PAYLOAD_FACE(declared)
PAYLOAD_FACE(map)
PAYLOAD_FACE(not_ready)

/* A page with the common face: decode, then read all entries, and none more. */
static int
face_declare(const void *buf, size_t len, void *any)
{
	struct pbox_declare *m = any;
	struct pbox_tensor_entry *e = (void *)((uint8_t *)any + 64);
	struct pbox_cursor cur;

	if (pbox_declare_decode(buf, len, m, &cur) != 0)
		return -1;
	for (unsigned i = 0; i < m->count; i++)
		CU_ASSERT_EQUAL(pbox_declare_next(&cur, e), 0);
	CU_ASSERT_EQUAL(pbox_declare_next(&cur, e), -1);
	return 0;
}

static int
face_mapped(const void *buf, size_t len, void *any)
{
	struct pbox_mapped *m = any;
	struct pbox_chunk_entry *e = (void *)((uint8_t *)any + 64);
	struct pbox_cursor cur;

	if (pbox_mapped_decode(buf, len, m, &cur) != 0)
		return -1;
	for (unsigned i = 0; i < m->count; i++)
		CU_ASSERT_EQUAL(pbox_mapped_next(&cur, e), 0);
	CU_ASSERT_EQUAL(pbox_mapped_next(&cur, e), -1);
	return 0;
}

static const struct pbox_declare declare = {
	.table = 0x04030201,
	.tensors = 0x08070605,
	.first = 3,
	.mode = PBOX_MODE_OPTIMISER,
	.op = PBOX_OP_MEAN,
	.optimiser = PBOX_OPT_ADAM,
	.push_format = PBOX_FMT_BF16,
	.pull_format = PBOX_FMT_FP32,
	.discipline = PBOX_DISCIPLINE_TURN,
};

static void
test_declare(void)
{
	const struct pbox_tensor_entry in[3] = {
		{0x1817161514131211, 0x1A19, "w"}, {0, 0, ""}, {10, 1, "layer.bias"}};
	const uint8_t want[24 + 13] = {1, 2, 3, 4, 5, 6, 7, 8, 3, 0, 0, 0, 3, 0, 1, 1, 4, 2, 1, 2,
		0, 0, 0, 0, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1A, 1, 0, 'w'};
	struct pbox_tensor_entry e;
	struct pbox_declare got;
	struct pbox_cursor cur;
	uint8_t b[256];
	size_t len;

	CU_ASSERT_EQUAL(pbox_declare_begin(b, sizeof(b), &declare, &cur), 0);
	UNIT_EQ_U64(pbox_page_len(b, &cur), 24);
	for (unsigned i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(pbox_declare_add(b, &cur, &in[i]), 0);
	len = pbox_page_len(b, &cur);
	UNIT_EQ_U64(len, 24 + 3 * 12 + 1 + 10);
	CU_ASSERT_EQUAL(memcmp(b, want, sizeof(want)), 0);
	CU_ASSERT_EQUAL(pbox_declare_decode(b, len, &got, &cur), 0);
	UNIT_EQ_U64(got.table, declare.table);
	UNIT_EQ_U64(got.tensors, declare.tensors);
	UNIT_EQ_U64(got.first, 3);
	UNIT_EQ_U64(got.count, 3);
	UNIT_EQ_U64(got.mode, declare.mode);
	UNIT_EQ_U64(got.op, declare.op);
	UNIT_EQ_U64(got.optimiser, declare.optimiser);
	UNIT_EQ_U64(got.push_format, declare.push_format);
	UNIT_EQ_U64(got.pull_format, declare.pull_format);
	UNIT_EQ_U64(got.discipline, declare.discipline);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(pbox_declare_next(&cur, &e), 0);
		UNIT_EQ_U64(e.elements, in[i].elements);
		UNIT_EQ_U64(e.group, in[i].group);
		CU_ASSERT_STRING_EQUAL(e.name, in[i].name);
	}
	CU_ASSERT_EQUAL(pbox_declare_next(&cur, &e), -1);
	payload_lengths(b, len, face_declare);
}

static void
test_declare_limits(void)
{
	struct pbox_tensor_entry e = {1, 0, ""};
	struct pbox_declare m = declare;
	struct pbox_cursor cur;
	uint8_t b[24 + 12 + 100];

	/* an empty table (R5.1) */
	m.first = m.tensors = 0;
	for (size_t cap = 0; cap < 24; cap++)
		CU_ASSERT_EQUAL(pbox_declare_begin(b, cap, &m, &cur), -1);
	CU_ASSERT_EQUAL(pbox_declare_begin(b, 24, &m, &cur), 0);
	CU_ASSERT_EQUAL(pbox_declare_add(b, &cur, &e), -1);
	payload_lengths(b, 24, face_declare);
	/* more entries than the table has tensors */
	m.tensors = 1;
	pbox_declare_begin(b, sizeof(b), &m, &cur);
	CU_ASSERT_EQUAL(pbox_declare_add(b, &cur, &e), 0);
	CU_ASSERT_EQUAL(pbox_declare_decode(b, 36, &m, &cur), 0);
	b[8] = 1;
	CU_ASSERT_EQUAL(pbox_declare_decode(b, 36, &m, &cur), -1);
	memset(b + 8, 0xFF, 4); /* first + 1 would wrap */
	CU_ASSERT_EQUAL(pbox_declare_decode(b, 36, &m, &cur), -1);
	/* a name without NUL is not read beyond its array, a long one of a peer is cut */
	memset(e.name, 'n', sizeof(e.name));
	m.first = 0;
	pbox_declare_begin(b, sizeof(b), &m, &cur);
	CU_ASSERT_EQUAL(pbox_declare_add(b, &cur, &e), 0);
	UNIT_EQ_U64(pbox_page_len(b, &cur), 24 + 12 + 63);
	memset(b + 36, 'n', 100);
	b[34] = 100;
	CU_ASSERT_EQUAL(pbox_declare_decode(b, sizeof(b), &m, &cur), 0);
	CU_ASSERT_EQUAL(pbox_declare_next(&cur, &e), 0);
	UNIT_EQ_U64(strlen(e.name), 63);
	CU_ASSERT_EQUAL(pbox_declare_next(&cur, &e), -1);
}

/* As a sender does it: a full page is sent, the entry goes to the next. */
static void
test_declare_pages(void)
{
	enum { TENSORS = 1000, PAGE = 1410 };
	uint8_t b[PAGE + 8];
	struct pbox_declare m = declare, got;
	struct pbox_tensor_entry e, back;
	struct pbox_cursor cur;
	unsigned seen = 0, pages = 0;

	m.tensors = TENSORS;
	while (seen < TENSORS) {
		m.first = seen;
		memset(b, 0xEE, sizeof(b));
		pbox_declare_begin(b, PAGE, &m, &cur);
		for (unsigned i = seen; i < TENSORS; i++) {
			e.elements = i;
			e.group = (uint16_t)(i % 3);
			snprintf(e.name, sizeof(e.name), "tensor.%u", i);
			if (pbox_declare_add(b, &cur, &e) != 0)
				break;
		}
		CU_ASSERT(pbox_page_len(b, &cur) <= PAGE);
		CU_ASSERT_EQUAL(b[PAGE], 0xEE);
		CU_ASSERT_EQUAL(pbox_declare_decode(b, pbox_page_len(b, &cur), &got, &cur), 0);
		CU_ASSERT_FATAL(got.count > 0);
		for (unsigned i = 0; i < got.count; i++, seen++) {
			CU_ASSERT_EQUAL(pbox_declare_next(&cur, &back), 0);
			UNIT_EQ_U64(back.elements, seen);
		}
		pages++;
	}
	UNIT_EQ_U64(seen, TENSORS);
	CU_ASSERT(pages > 10);
}

static void
test_declare_count_is_full(void)
{
	/* entries without names in the largest page end at the length a header can say */
	static uint8_t b[1 << 20];
	const struct pbox_tensor_entry e = {1, 0, ""};
	struct pbox_cursor cur;
	unsigned n = 0;

	pbox_declare_begin(b, sizeof(b), &declare, &cur);
	while (pbox_declare_add(b, &cur, &e) == 0)
		n++;
	UNIT_EQ_U64(n, (65535 - 24) / 12);
	CU_ASSERT(pbox_page_len(b, &cur) <= 65535);
}

static void
test_declared_and_map(void)
{
	const struct pbox_declared d = {0x04030201, 0x08070605, 0x0A09};
	const uint8_t want[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0};
	const struct pbox_map m = {0x04030201, 0x08070605};
	struct pbox_declared d2;
	struct pbox_map m2;
	uint8_t b[12];

	UNIT_EQ_U64(pbox_declared_encode(b, sizeof(b), &d), 12);
	CU_ASSERT_EQUAL(memcmp(b, want, 12), 0);
	CU_ASSERT_EQUAL(pbox_declared_decode(b, 12, &d2), 0);
	CU_ASSERT(d2.table == d.table && d2.first == d.first && d2.count == d.count);
	payload_lengths(b, 12, face_declared);
	PAYLOAD_ROOM(pbox_declared_encode, 12, &d);

	UNIT_EQ_U64(pbox_map_encode(b, sizeof(b), &m), 8);
	CU_ASSERT_EQUAL(memcmp(b, want, 8), 0);
	CU_ASSERT_EQUAL(pbox_map_decode(b, 8, &m2), 0);
	CU_ASSERT(m2.table == m.table && m2.first == m.first);
	payload_lengths(b, 8, face_map);
	PAYLOAD_ROOM(pbox_map_encode, 8, &m);
}

static void
test_not_ready(void)
{
	static struct pbox_not_ready m, got;
	const uint8_t want[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 0, 0, 0};
	uint8_t b[600];

	m.expected = 0x0201;
	m.joined = 0x0403;
	m.declared = 0x0605;
	m.first_missing = 0x0807;
	m.silent_ms = 0x0C0B0A09;
	strcpy(m.text, "worker 2 missing");
	UNIT_EQ_U64(pbox_not_ready_encode(b, sizeof(b), &m), 32);
	CU_ASSERT_EQUAL(memcmp(b, want, 16), 0);
	CU_ASSERT_EQUAL(pbox_not_ready_decode(b, 32, &got), 0);
	CU_ASSERT_EQUAL(memcmp(&got, &m, sizeof(m)), 0);
	payload_lengths(b, 32, face_not_ready);
	PAYLOAD_ROOM(pbox_not_ready_encode, 16, &m);
	/* the text is cut to the room, and to the array of the receiver */
	UNIT_EQ_U64(pbox_not_ready_encode(b, 22, &m), 22);
	CU_ASSERT_EQUAL(pbox_not_ready_decode(b, 22, &got), 0);
	CU_ASSERT_STRING_EQUAL(got.text, "worker");
	memset(b + 16, 't', 584);
	b[12] = 584 & 0xFF;
	b[13] = 584 >> 8;
	CU_ASSERT_EQUAL(pbox_not_ready_decode(b, 600, &got), 0);
	UNIT_EQ_U64(strlen(got.text), 511);
	memset(m.text, 't', sizeof(m.text));
	UNIT_EQ_U64(pbox_not_ready_encode(b, sizeof(b), &m), 16 + 511);
}

static const struct pbox_mapped mapped = {
	.table = 0x04030201,
	.chunks = 0x08070605,
	.first = 2,
	.frag_elements = 352,
	.first_chunk_id = 0x18171615,
};

static void
test_mapped(void)
{
	const uint8_t want[24 + 32] = {1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0, 0, 2, 0, 0, 0, 0x60, 1, 0,
		0, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 1, 0, 0x29, 0x2A,
		0x2B, 0x2C, 0x2D, 0x2E, 0x2F, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38,
		0x39, 0x3A, 0x3B, 0x3C, 0x29, 0x2A, 0x2B, 0x2C};
	static struct pbox_chunk_entry in[2], e;
	struct pbox_mapped got;
	struct pbox_cursor cur;
	uint8_t b[256];
	size_t len;

	in[0] = (struct pbox_chunk_entry){0x24232221, 0x2625, 1, 0x2C2B2A29, 0x302F2E2D,
		{{0x3837363534333231, 0x3C3B3A39, 0x2C2B2A29}}};
	in[1] = (struct pbox_chunk_entry){
		9, 1, 3, 60, 7, {{0, 1, 10}, {1ull << 40, 2, 20}, {3, 3, 30}}};
	CU_ASSERT_EQUAL(pbox_mapped_begin(b, sizeof(b), &mapped, &cur), 0);
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_EQUAL(pbox_mapped_add(b, &cur, &in[i]), 0);
	len = pbox_page_len(b, &cur);
	UNIT_EQ_U64(len, 24 + 2 * 16 + 4 * 16);
	CU_ASSERT_EQUAL(memcmp(b, want, sizeof(want)), 0);
	CU_ASSERT_EQUAL(pbox_mapped_decode(b, len, &got, &cur), 0);
	UNIT_EQ_U64(got.table, mapped.table);
	UNIT_EQ_U64(got.chunks, mapped.chunks);
	UNIT_EQ_U64(got.first, 2);
	UNIT_EQ_U64(got.count, 2);
	UNIT_EQ_U64(got.frag_elements, 352);
	UNIT_EQ_U64(got.first_chunk_id, mapped.first_chunk_id);
	for (unsigned i = 0; i < 2; i++) {
		memset(&e, 0, sizeof(e));
		CU_ASSERT_EQUAL(pbox_mapped_next(&cur, &e), 0);
		CU_ASSERT_EQUAL(memcmp(&e, &in[i], sizeof(e)), 0);
	}
	CU_ASSERT_EQUAL(pbox_mapped_next(&cur, &e), -1);
	payload_lengths(b, len, face_mapped);
}

static void
test_mapped_limits(void)
{
	static struct pbox_chunk_entry e;
	static uint8_t b[24 + 16 + 16 * 70];
	struct pbox_mapped m = mapped;
	struct pbox_cursor cur;
	size_t len = 24 + 16 + 16 * PBOX_MAX_SEGMENTS;

	e.segments = PBOX_MAX_SEGMENTS;
	for (unsigned i = 0; i < PBOX_MAX_SEGMENTS; i++)
		e.elements += e.segment[i].elements = i;
	for (size_t cap = 0; cap < 24; cap++)
		CU_ASSERT_EQUAL(pbox_mapped_begin(b, cap, &m, &cur), -1);
	CU_ASSERT_EQUAL(pbox_mapped_begin(b, len - 1, &m, &cur), 0);
	CU_ASSERT_EQUAL(pbox_mapped_add(b, &cur, &e), -1);
	UNIT_EQ_U64(pbox_page_len(b, &cur), 24);
	UNIT_EQ_U64(b[12], 0);
	CU_ASSERT_EQUAL(pbox_mapped_begin(b, len, &m, &cur), 0);
	CU_ASSERT_EQUAL(pbox_mapped_add(b, &cur, &e), 0);
	payload_lengths(b, len, face_mapped);
	/* segments out of range, or that do not add up to the chunk */
	b[24 + 6] = PBOX_MAX_SEGMENTS + 1;
	CU_ASSERT_EQUAL(pbox_mapped_decode(b, sizeof(b), &m, &cur), -1);
	b[24 + 6] = 0;
	CU_ASSERT_EQUAL(pbox_mapped_decode(b, sizeof(b), &m, &cur), -1);
	b[24 + 6] = PBOX_MAX_SEGMENTS;
	b[24 + 8]++;
	CU_ASSERT_EQUAL(pbox_mapped_decode(b, sizeof(b), &m, &cur), -1);
	b[24 + 8]--;
	/* more chunks than the table has */
	CU_ASSERT_EQUAL(pbox_mapped_decode(b, len, &m, &cur), 0);
	memset(b + 4, 0, 4);
	CU_ASSERT_EQUAL(pbox_mapped_decode(b, len, &m, &cur), -1);
	memset(b + 4, 0xFF, 8);
	CU_ASSERT_EQUAL(pbox_mapped_decode(b, len, &m, &cur), -1);
}

static void
test_mapped_sum_does_not_wrap(void)
{
	/* 2^32 elements in two segments are not the 0 elements of the chunk */
	struct pbox_mapped m = mapped;
	struct pbox_cursor cur;
	uint8_t b[24 + 16 + 32] = {0};

	pbox_mapped_begin(b, sizeof(b), &m, &cur);
	b[12] = 1;
	b[24 + 6] = 2;
	b[24 + 16 + 15] = 0x80;
	b[24 + 32 + 15] = 0x80;
	CU_ASSERT_EQUAL(pbox_mapped_decode(b, sizeof(b), &m, &cur), -1);
	b[24 + 16 + 15] = 0;
	b[24 + 32 + 15] = 0;
	CU_ASSERT_EQUAL(pbox_mapped_decode(b, sizeof(b), &m, &cur), 0);
}

const struct unit_test unit_tests[] = {
	{"DECLARE", test_declare},
	{"the limits of DECLARE", test_declare_limits},
	{"DECLARE in pages", test_declare_pages},
	{"DECLARE of the largest page", test_declare_count_is_full},
	{"DECLARED and MAP", test_declared_and_map},
	{"NOT_READY", test_not_ready},
	{"MAPPED", test_mapped},
	{"the limits of MAPPED", test_mapped_limits},
	{"segments do not wrap", test_mapped_sum_does_not_wrap},
	{NULL, NULL},
};
