/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Payloads of section 5: DECLARE, DECLARED, MAP, MAPPED, NOT_READY. */

#include <assert.h>

#include "codec.h"
#include "pbox_wire.h"

#define DECLARE_LEN   24 /* without the tensors */
#define TENSOR_LEN    12 /* without the name */
#define DECLARED_LEN  12
#define MAP_LEN       8
#define NOT_READY_LEN 16 /* without the text */
#define MAPPED_LEN    24 /* without the chunks */
#define CHUNK_LEN     16 /* without the segments */
#define SEGMENT_LEN   16

/* DECLARE and MAPPED are pages: of all entries, of the first one here, and of those here there is a number at the same place. */
#define PAGE_ALL_AT       4
#define PAGE_FIRST_AT     8
#define PAGE_COUNT_AT     12
#define NOT_READY_TEXT_AT 12

static_assert(MAPPED_LEN + CHUNK_LEN + PBOX_MAX_SEGMENTS * SEGMENT_LEN <= 1500 - PBOX_MTU_OVERHEAD,
	"a chunk of the most segments fits the page of a common MTU");
static_assert(sizeof(((struct pbox_not_ready *)0)->text) == TEXT_SIZE, "texts of messages");

/* Those of pages are without the count, which entries raise. */
static const struct pbox_field declare_fields[] = {
	PBOX_FIELD(pbox_declare, table, 0),
	PBOX_FIELD(pbox_declare, tensors, PAGE_ALL_AT),
	PBOX_FIELD(pbox_declare, first, PAGE_FIRST_AT),
	PBOX_FIELD(pbox_declare, mode, 14),
	PBOX_FIELD(pbox_declare, op, 15),
	PBOX_FIELD(pbox_declare, optimiser, 16),
	PBOX_FIELD(pbox_declare, push_format, 17),
	PBOX_FIELD(pbox_declare, pull_format, 18),
	PBOX_FIELD(pbox_declare, discipline, 19),
	PBOX_FIELD(pbox_declare, flags, 20),
	{0},
};
static const struct pbox_field tensor_fields[] = {
	PBOX_FIELD(pbox_tensor_entry, elements, 0),
	PBOX_FIELD(pbox_tensor_entry, group, 8),
	{0},
};
static const struct pbox_field declared_fields[] = {
	PBOX_FIELD(pbox_declared, table, 0),
	PBOX_FIELD(pbox_declared, first, 4),
	PBOX_FIELD(pbox_declared, count, 8),
	{0},
};
static const struct pbox_field map_fields[] = {
	PBOX_FIELD(pbox_map, table, 0),
	PBOX_FIELD(pbox_map, first, 4),
	{0},
};
static const struct pbox_field not_ready_fields[] = {
	PBOX_FIELD(pbox_not_ready, expected, 0),
	PBOX_FIELD(pbox_not_ready, joined, 2),
	PBOX_FIELD(pbox_not_ready, declared, 4),
	PBOX_FIELD(pbox_not_ready, first_missing, 6),
	PBOX_FIELD(pbox_not_ready, silent_ms, 8),
	{0},
};
static const struct pbox_field mapped_fields[] = {
	PBOX_FIELD(pbox_mapped, table, 0),
	PBOX_FIELD(pbox_mapped, chunks, PAGE_ALL_AT),
	PBOX_FIELD(pbox_mapped, first, PAGE_FIRST_AT),
	PBOX_FIELD(pbox_mapped, mark, 14),
	PBOX_FIELD(pbox_mapped, frag_elements, 16),
	PBOX_FIELD(pbox_mapped, first_chunk_id, 20),
	{0},
};
static const struct pbox_field chunk_fields[] = {
	PBOX_FIELD(pbox_chunk_entry, chunk_id, 0),
	PBOX_FIELD(pbox_chunk_entry, endpoint, 4),
	PBOX_FIELD(pbox_chunk_entry, segments, 6),
	PBOX_FIELD(pbox_chunk_entry, elements, 8),
	PBOX_FIELD(pbox_chunk_entry, version, 12),
	{0},
};
static const struct pbox_field segment_fields[] = {
	PBOX_FIELD(pbox_segment, offset, 0),
	PBOX_FIELD(pbox_segment, tensor, 8),
	PBOX_FIELD(pbox_segment, elements, 12),
	{0},
};

static int
page_begin(void *buf, size_t cap, size_t len, const struct pbox_field *f, const void *m,
	struct pbox_cursor *cur)
{
	uint8_t *p = buf;

	if (record_encode(buf, cap, len, f, m) == 0)
		return -1;
	cur->at = p + len;
	cur->end = p + page_cap(cap);
	return 0;
}

/** Room for an entry of @p size bytes, counted; NULL: the page is full. */
static uint8_t *
page_add(void *buf, struct pbox_cursor *cur, size_t size)
{
	uint8_t *count = (uint8_t *)buf + PAGE_COUNT_AT, *p = cur->at;
	unsigned n = pbox_ld16(count);

	if ((size_t)(cur->end - p) < size || n == UINT16_MAX)
		return NULL;
	pbox_st16(count, (uint16_t)(n + 1));
	cur->at += size;
	return p;
}

/** The fixed part and a cursor over the entries, all of which are there. @p entry_size: of the one at a place, 0 if it
 * is not all there. */
static int
page_decode(const void *buf, size_t have, size_t len, const struct pbox_field *f, void *m,
	uint16_t *count, size_t (*entry_size)(const uint8_t *p, const uint8_t *end),
	struct pbox_cursor *cur)
{
	uint8_t *p = (uint8_t *)(uintptr_t)buf; /* a reading cursor is not written through */

	if (record_decode(buf, have, len, f, m) != 0)
		return -1;
	*count = pbox_ld16(p + PAGE_COUNT_AT);
	if ((uint64_t)pbox_ld32(p + PAGE_FIRST_AT) + *count > pbox_ld32(p + PAGE_ALL_AT))
		return -1;
	cur->at = cur->end = p + len;
	for (unsigned i = 0; i < *count; i++) {
		size_t size = entry_size(cur->end, p + have);

		if (size == 0)
			return -1;
		cur->end += size;
	}
	return 0;
}

/* ---- DECLARE ------------------------------------------------------------------------- */

int
pbox_declare_begin(void *buf, size_t cap, const struct pbox_declare *m, struct pbox_cursor *cur)
{
	return page_begin(buf, cap, DECLARE_LEN, declare_fields, m, cur);
}

int
pbox_declare_add(void *buf, struct pbox_cursor *cur, const struct pbox_tensor_entry *e)
{
	size_t name = text_fit(e->name, sizeof(e->name), PBOX_NAME_LEN - 1);
	uint8_t *p = page_add(buf, cur, TENSOR_LEN + name);

	if (p == NULL)
		return -1;
	pbox_fields_put(p, TENSOR_LEN, tensor_fields, e);
	pbox_st16(p + 10, (uint16_t)name);
	memcpy(p + TENSOR_LEN, e->name, name);
	return 0;
}

/** Bytes of the tensor entry at @p p, 0 if it is not all there. */
static size_t
tensor_size(const uint8_t *p, const uint8_t *end)
{
	size_t have = (size_t)(end - p), size;

	if (have < TENSOR_LEN)
		return 0;
	size = TENSOR_LEN + (size_t)pbox_ld16(p + 10);
	return size <= have ? size : 0;
}

int
pbox_declare_decode(const void *buf, size_t len, struct pbox_declare *m, struct pbox_cursor *cur)
{
	return page_decode(buf, len, DECLARE_LEN, declare_fields, m, &m->count, tensor_size, cur);
}

int
pbox_declare_next(struct pbox_cursor *cur, struct pbox_tensor_entry *e)
{
	const uint8_t *p = cur->at;
	size_t size = tensor_size(p, cur->end);

	if (size == 0)
		return -1;
	pbox_fields_get(p, tensor_fields, e);
	text_get(e->name, sizeof(e->name), p + TENSOR_LEN, size - TENSOR_LEN);
	cur->at += size;
	return 0;
}

size_t
pbox_declared_encode(void *buf, size_t cap, const struct pbox_declared *m)
{
	return record_encode(buf, cap, DECLARED_LEN, declared_fields, m);
}

int
pbox_declared_decode(const void *buf, size_t len, struct pbox_declared *m)
{
	return record_decode(buf, len, DECLARED_LEN, declared_fields, m);
}

/* ---- MAP ----------------------------------------------------------------------------- */

size_t
pbox_map_encode(void *buf, size_t cap, const struct pbox_map *m)
{
	return record_encode(buf, cap, MAP_LEN, map_fields, m);
}

int
pbox_map_decode(const void *buf, size_t len, struct pbox_map *m)
{
	return record_decode(buf, len, MAP_LEN, map_fields, m);
}

size_t
pbox_not_ready_encode(void *buf, size_t cap, const struct pbox_not_ready *m)
{
	return record_text_encode(
		buf, cap, NOT_READY_LEN, not_ready_fields, m, NOT_READY_TEXT_AT, m->text);
}

int
pbox_not_ready_decode(const void *buf, size_t len, struct pbox_not_ready *m)
{
	return record_text_decode(
		buf, len, NOT_READY_LEN, not_ready_fields, m, NOT_READY_TEXT_AT, m->text);
}

/* ---- MAPPED -------------------------------------------------------------------------- */

int
pbox_mapped_begin(void *buf, size_t cap, const struct pbox_mapped *m, struct pbox_cursor *cur)
{
	return page_begin(buf, cap, MAPPED_LEN, mapped_fields, m, cur);
}

int
pbox_mapped_add(void *buf, struct pbox_cursor *cur, const struct pbox_chunk_entry *e)
{
	uint8_t *p;

	assert(e->segments >= 1 && e->segments <= PBOX_MAX_SEGMENTS);
	p = page_add(buf, cur, CHUNK_LEN + (size_t)e->segments * SEGMENT_LEN);
	if (p == NULL)
		return -1;
	pbox_fields_put(p, CHUNK_LEN, chunk_fields, e);
	for (unsigned i = 0; i < e->segments; i++)
		pbox_fields_put(p + CHUNK_LEN + i * SEGMENT_LEN, SEGMENT_LEN, segment_fields,
			&e->segment[i]);
	return 0;
}

/** Bytes of the chunk entry at @p p, 0 if it is not all there or contradicts itself. */
static size_t
chunk_size(const uint8_t *p, const uint8_t *end)
{
	size_t have = (size_t)(end - p), size;
	uint64_t sum = 0;
	unsigned segments;

	if (have < CHUNK_LEN)
		return 0;
	segments = pbox_ld16(p + 6);
	size = CHUNK_LEN + (size_t)segments * SEGMENT_LEN;
	if (segments == 0 || segments > PBOX_MAX_SEGMENTS || size > have)
		return 0;
	for (unsigned i = 0; i < segments; i++)
		sum += pbox_ld32(p + CHUNK_LEN + i * SEGMENT_LEN + 12);
	return sum == pbox_ld32(p + 8) ? size : 0;
}

int
pbox_mapped_decode(const void *buf, size_t len, struct pbox_mapped *m, struct pbox_cursor *cur)
{
	return page_decode(buf, len, MAPPED_LEN, mapped_fields, m, &m->count, chunk_size, cur);
}

int
pbox_mapped_next(struct pbox_cursor *cur, struct pbox_chunk_entry *e)
{
	const uint8_t *p = cur->at;
	size_t size = chunk_size(p, cur->end);

	if (size == 0)
		return -1;
	pbox_fields_get(p, chunk_fields, e);
	for (unsigned i = 0; i < e->segments; i++)
		pbox_fields_get(p + CHUNK_LEN + i * SEGMENT_LEN, segment_fields, &e->segment[i]);
	cur->at += size;
	return 0;
}
