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

#define DECLARE_COUNT_AT 12
#define MAPPED_COUNT_AT  12

static_assert(MAPPED_LEN + CHUNK_LEN + PBOX_MAX_SEGMENTS * SEGMENT_LEN <= 1500 - PBOX_MTU_OVERHEAD,
	"a chunk of the most segments fits the page of a common MTU");

/** Count one more entry of a page; false when the count is full. */
static bool
count_up(uint8_t *count)
{
	unsigned n = pbox_ld16(count);

	if (n == UINT16_MAX)
		return false;
	st16(count, (uint16_t)(n + 1));
	return true;
}

/* ---- DECLARE ------------------------------------------------------------------------- */

int
pbox_declare_begin(void *buf, size_t cap, const struct pbox_declare *m, struct pbox_cursor *cur)
{
	uint8_t *p = buf;

	if (cap < DECLARE_LEN)
		return -1;
	st32(p, m->table);
	st32(p + 4, m->tensors);
	st32(p + 8, m->first);
	st16(p + DECLARE_COUNT_AT, 0);
	p[14] = m->mode;
	p[15] = m->op;
	p[16] = m->optimiser;
	p[17] = m->push_format;
	p[18] = m->pull_format;
	p[19] = m->discipline;
	st32(p + 20, m->flags);
	cur->at = p + DECLARE_LEN;
	cur->end = p + page_cap(cap);
	return 0;
}

int
pbox_declare_add(void *buf, struct pbox_cursor *cur, const struct pbox_tensor_entry *e)
{
	size_t name = text_fit(e->name, sizeof(e->name), PBOX_NAME_LEN - 1);
	uint8_t *p = cur->at;

	if ((size_t)(cur->end - p) < TENSOR_LEN + name)
		return -1;
	if (!count_up((uint8_t *)buf + DECLARE_COUNT_AT))
		return -1;
	st64(p, e->elements);
	st16(p + 8, e->group);
	st16(p + 10, (uint16_t)name);
	memcpy(p + TENSOR_LEN, e->name, name);
	cur->at = p + TENSOR_LEN + name;
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
	uint8_t *p = (uint8_t *)(uintptr_t)buf; /* a reading cursor is not written through */
	uint8_t *at, *end = p + len;
	uint32_t tensors, first;
	unsigned count;

	if (len < DECLARE_LEN)
		return -1;
	tensors = pbox_ld32(p + 4);
	first = pbox_ld32(p + 8);
	count = pbox_ld16(p + DECLARE_COUNT_AT);
	if ((uint64_t)first + count > tensors)
		return -1;
	at = p + DECLARE_LEN;
	for (unsigned i = 0; i < count; i++) {
		size_t size = tensor_size(at, end);

		if (size == 0)
			return -1;
		at += size;
	}
	m->table = pbox_ld32(p);
	m->tensors = tensors;
	m->first = first;
	m->count = (uint16_t)count;
	m->mode = p[14];
	m->op = p[15];
	m->optimiser = p[16];
	m->push_format = p[17];
	m->pull_format = p[18];
	m->discipline = p[19];
	m->flags = pbox_ld32(p + 20);
	cur->at = p + DECLARE_LEN;
	cur->end = at;
	return 0;
}

int
pbox_declare_next(struct pbox_cursor *cur, struct pbox_tensor_entry *e)
{
	const uint8_t *p = cur->at;
	size_t size = tensor_size(p, cur->end);

	if (size == 0)
		return -1;
	e->elements = pbox_ld64(p);
	e->group = pbox_ld16(p + 8);
	text_get(e->name, sizeof(e->name), p + TENSOR_LEN, size - TENSOR_LEN);
	cur->at += size;
	return 0;
}

size_t
pbox_declared_encode(void *buf, size_t cap, const struct pbox_declared *m)
{
	uint8_t *p = buf;

	if (cap < DECLARED_LEN)
		return 0;
	st32(p, m->table);
	st32(p + 4, m->first);
	st16(p + 8, m->count);
	st16(p + 10, 0);
	return DECLARED_LEN;
}

int
pbox_declared_decode(const void *buf, size_t len, struct pbox_declared *m)
{
	const uint8_t *p = buf;

	if (len < DECLARED_LEN)
		return -1;
	m->table = pbox_ld32(p);
	m->first = pbox_ld32(p + 4);
	m->count = pbox_ld16(p + 8);
	return 0;
}

/* ---- MAP ----------------------------------------------------------------------------- */

size_t
pbox_map_encode(void *buf, size_t cap, const struct pbox_map *m)
{
	uint8_t *p = buf;

	if (cap < MAP_LEN)
		return 0;
	st32(p, m->table);
	st32(p + 4, m->first);
	return MAP_LEN;
}

int
pbox_map_decode(const void *buf, size_t len, struct pbox_map *m)
{
	const uint8_t *p = buf;

	if (len < MAP_LEN)
		return -1;
	m->table = pbox_ld32(p);
	m->first = pbox_ld32(p + 4);
	return 0;
}

size_t
pbox_not_ready_encode(void *buf, size_t cap, const struct pbox_not_ready *m)
{
	uint8_t *p = buf;
	size_t text;

	if (cap < NOT_READY_LEN)
		return 0;
	text = text_fit(m->text, sizeof(m->text) - 1, cap - NOT_READY_LEN);
	st16(p, m->expected);
	st16(p + 2, m->joined);
	st16(p + 4, m->declared);
	st16(p + 6, m->first_missing);
	st32(p + 8, m->silent_ms);
	st16(p + 12, (uint16_t)text);
	st16(p + 14, 0);
	memcpy(p + NOT_READY_LEN, m->text, text);
	return NOT_READY_LEN + text;
}

int
pbox_not_ready_decode(const void *buf, size_t len, struct pbox_not_ready *m)
{
	const uint8_t *p = buf;
	size_t text;

	if (len < NOT_READY_LEN)
		return -1;
	text = pbox_ld16(p + 12);
	if (text > len - NOT_READY_LEN)
		return -1;
	m->expected = pbox_ld16(p);
	m->joined = pbox_ld16(p + 2);
	m->declared = pbox_ld16(p + 4);
	m->first_missing = pbox_ld16(p + 6);
	m->silent_ms = pbox_ld32(p + 8);
	text_get(m->text, sizeof(m->text), p + NOT_READY_LEN, text);
	return 0;
}

/* ---- MAPPED -------------------------------------------------------------------------- */

int
pbox_mapped_begin(void *buf, size_t cap, const struct pbox_mapped *m, struct pbox_cursor *cur)
{
	uint8_t *p = buf;

	if (cap < MAPPED_LEN)
		return -1;
	st32(p, m->table);
	st32(p + 4, m->chunks);
	st32(p + 8, m->first);
	st16(p + MAPPED_COUNT_AT, 0);
	st16(p + 14, 0);
	st32(p + 16, m->frag_elements);
	st32(p + 20, m->first_chunk_id);
	cur->at = p + MAPPED_LEN;
	cur->end = p + page_cap(cap);
	return 0;
}

int
pbox_mapped_add(void *buf, struct pbox_cursor *cur, const struct pbox_chunk_entry *e)
{
	uint8_t *p = cur->at;
	size_t size = CHUNK_LEN + (size_t)e->segments * SEGMENT_LEN;

	assert(e->segments >= 1 && e->segments <= PBOX_MAX_SEGMENTS);
	if ((size_t)(cur->end - p) < size)
		return -1;
	if (!count_up((uint8_t *)buf + MAPPED_COUNT_AT))
		return -1;
	st32(p, e->chunk_id);
	st16(p + 4, e->endpoint);
	st16(p + 6, e->segments);
	st32(p + 8, e->elements);
	st32(p + 12, e->version);
	cur->at = p + size;
	p += CHUNK_LEN;
	for (unsigned i = 0; i < e->segments; i++, p += SEGMENT_LEN) {
		st64(p, e->segment[i].offset);
		st32(p + 8, e->segment[i].tensor);
		st32(p + 12, e->segment[i].elements);
	}
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
	uint8_t *p = (uint8_t *)(uintptr_t)buf; /* a reading cursor is not written through */
	uint8_t *at, *end = p + len;
	uint32_t chunks, first;
	unsigned count;

	if (len < MAPPED_LEN)
		return -1;
	chunks = pbox_ld32(p + 4);
	first = pbox_ld32(p + 8);
	count = pbox_ld16(p + MAPPED_COUNT_AT);
	if ((uint64_t)first + count > chunks)
		return -1;
	at = p + MAPPED_LEN;
	for (unsigned i = 0; i < count; i++) {
		size_t size = chunk_size(at, end);

		if (size == 0)
			return -1;
		at += size;
	}
	m->table = pbox_ld32(p);
	m->chunks = chunks;
	m->first = first;
	m->count = (uint16_t)count;
	m->frag_elements = pbox_ld32(p + 16);
	m->first_chunk_id = pbox_ld32(p + 20);
	cur->at = p + MAPPED_LEN;
	cur->end = at;
	return 0;
}

int
pbox_mapped_next(struct pbox_cursor *cur, struct pbox_chunk_entry *e)
{
	const uint8_t *p = cur->at;
	size_t size = chunk_size(p, cur->end);

	if (size == 0)
		return -1;
	e->chunk_id = pbox_ld32(p);
	e->endpoint = pbox_ld16(p + 4);
	e->segments = pbox_ld16(p + 6);
	e->elements = pbox_ld32(p + 8);
	e->version = pbox_ld32(p + 12);
	p += CHUNK_LEN;
	for (unsigned i = 0; i < e->segments; i++, p += SEGMENT_LEN) {
		e->segment[i].offset = pbox_ld64(p);
		e->segment[i].tensor = pbox_ld32(p + 8);
		e->segment[i].elements = pbox_ld32(p + 12);
	}
	cur->at += size;
	return 0;
}
