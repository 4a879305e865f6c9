/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>

#include "snapshot_impl.h"

/* Bytes of the fixed part and of one record of each kind; of names at least their length. */
#define FIXED    (PBOX_SNAPSHOT_NAME + 64)
#define TENSOR   12
#define CHUNK    8
#define SEGMENT  16
#define FRAGMENT 12
#define ENTRY(n) (12 + 8 * (n)) /* with the values of n hyper-parameters */
#define BOXES    8              /* after the fixed part from version 5 on */
#define HOME     4

static const struct pbox_field fixed_fields[] = {
	PBOX_FIELD_BYTES(pbox_snapshot_meta, job, 0),
	PBOX_FIELD(pbox_snapshot_meta, table, PBOX_SNAPSHOT_NAME),
	PBOX_FIELD(pbox_snapshot_meta, round, PBOX_SNAPSHOT_NAME + 4),
	PBOX_FIELD(pbox_snapshot_meta, incarnation, PBOX_SNAPSHOT_NAME + 8),
	PBOX_FIELD(pbox_snapshot_meta, created_ns, PBOX_SNAPSHOT_NAME + 12),
	PBOX_FIELD(pbox_snapshot_meta, workers, PBOX_SNAPSHOT_NAME + 20),
	PBOX_FIELD(pbox_snapshot_meta, mode, PBOX_SNAPSHOT_NAME + 22),
	PBOX_FIELD(pbox_snapshot_meta, op, PBOX_SNAPSHOT_NAME + 23),
	PBOX_FIELD(pbox_snapshot_meta, optimiser, PBOX_SNAPSHOT_NAME + 24),
	PBOX_FIELD(pbox_snapshot_meta, push_format, PBOX_SNAPSHOT_NAME + 25),
	PBOX_FIELD(pbox_snapshot_meta, pull_format, PBOX_SNAPSHOT_NAME + 26),
	PBOX_FIELD(pbox_snapshot_meta, arrays, PBOX_SNAPSHOT_NAME + 27),
	PBOX_FIELD(pbox_snapshot_meta, frag_elements, PBOX_SNAPSHOT_NAME + 28),
	PBOX_FIELD(pbox_snapshot_meta, elements, PBOX_SNAPSHOT_NAME + 32),
	PBOX_FIELD(pbox_snapshot_meta, n_tensors, PBOX_SNAPSHOT_NAME + 40),
	PBOX_FIELD(pbox_snapshot_meta, n_chunks, PBOX_SNAPSHOT_NAME + 44),
	PBOX_FIELD(pbox_snapshot_meta, n_segments, PBOX_SNAPSHOT_NAME + 48),
	PBOX_FIELD(pbox_snapshot_meta, n_fragments, PBOX_SNAPSHOT_NAME + 52),
	PBOX_FIELD(pbox_snapshot_meta, n_groups, PBOX_SNAPSHOT_NAME + 56),
	PBOX_FIELD(pbox_snapshot_meta, n_entries, PBOX_SNAPSHOT_NAME + 60),
	{0},
};
static const struct pbox_field tensor_fields[] = {
	PBOX_FIELD(pbox_snapshot_tensor, elements, 0),
	PBOX_FIELD(pbox_snapshot_tensor, group, 8),
	{0},
};
static const struct pbox_field chunk_fields[] = {
	PBOX_FIELD(pbox_snapshot_chunk, elements, 0),
	PBOX_FIELD(pbox_snapshot_chunk, segments, 4),
	PBOX_FIELD(pbox_snapshot_chunk, group, 6),
	{0},
};
static const struct pbox_field segment_fields[] = {
	PBOX_FIELD(pbox_snapshot_segment, offset, 0),
	PBOX_FIELD(pbox_snapshot_segment, tensor, 8),
	PBOX_FIELD(pbox_snapshot_segment, elements, 12),
	{0},
};
static const struct pbox_field fragment_fields[] = {
	PBOX_FIELD(pbox_snapshot_fragment, version, 0),
	PBOX_FIELD(pbox_snapshot_fragment, samples, 4),
	PBOX_FIELD(pbox_snapshot_fragment, contributors, 8),
	{0},
};
static const struct pbox_field entry_fields[] = {
	PBOX_FIELD(pbox_snapshot_entry, from_round, 0),
	PBOX_FIELD(pbox_snapshot_entry, set, 4),
	PBOX_FIELD(pbox_snapshot_entry, group, 8),
	{0},
};

static const struct pbox_field boxes_fields[] = {
	PBOX_FIELD(pbox_snapshot_meta, box, 0),
	PBOX_FIELD(pbox_snapshot_meta, boxes, 1),
	PBOX_FIELD(pbox_snapshot_meta, map_epoch, 2),
	PBOX_FIELD(pbox_snapshot_meta, n_homes, 4),
	{0},
};
static const struct pbox_field home_fields[] = {
	PBOX_FIELD(pbox_snapshot_home, box, 0),
	PBOX_FIELD(pbox_snapshot_home, epoch, 2),
	{0},
};

/* Those that entries of a format have. */
static unsigned
hypers_of(uint32_t version)
{
	return version == 1 ? 8 : version < 4 ? 9 : PBOX_SNAPSHOT_HYPERS;
}

void
pbox_snapshot_meta_free(struct pbox_snapshot_meta *m)
{
	free(m->tensor);
	free(m->chunk);
	free(m->segment);
	free(m->fragment);
	free(m->entry);
	free(m->home);
	m->tensor = NULL;
	m->chunk = NULL;
	m->segment = NULL;
	m->fragment = NULL;
	m->entry = NULL;
	m->home = NULL;
}

int
pbox_snapshot_meta_alloc(struct pbox_snapshot_meta *m)
{
	/* one more: never a NULL for nothing */
	m->tensor = calloc(m->n_tensors + (size_t)1, sizeof(*m->tensor));
	m->chunk = calloc(m->n_chunks + (size_t)1, sizeof(*m->chunk));
	m->segment = calloc(m->n_segments + (size_t)1, sizeof(*m->segment));
	m->fragment = calloc(m->n_fragments + (size_t)1, sizeof(*m->fragment));
	m->entry = calloc(m->n_entries + (size_t)1, sizeof(*m->entry));
	m->home = calloc(m->n_homes + (size_t)1, sizeof(*m->home));
	if (m->tensor != NULL && m->chunk != NULL && m->segment != NULL && m->fragment != NULL &&
		m->entry != NULL && m->home != NULL)
		return 0;
	pbox_snapshot_meta_free(m);
	return -ENOMEM;
}

/* Bytes of all records whose number is in the fixed part, without the tensors' names. In 64 bits nothing overflows. */
static uint64_t
records_size(const struct pbox_snapshot_meta *m, unsigned hypers)
{
	return (uint64_t)m->n_tensors * TENSOR + (uint64_t)m->n_chunks * CHUNK +
	       (uint64_t)m->n_segments * SEGMENT + (uint64_t)m->n_fragments * FRAGMENT +
	       (uint64_t)m->n_entries * ENTRY(hypers) + (uint64_t)m->n_homes * HOME;
}

uint8_t *
pbox_snapshot_meta_encode(const struct pbox_snapshot_meta *m, size_t *len)
{
	uint8_t *out, *p;

	*len = FIXED + BOXES + records_size(m, PBOX_SNAPSHOT_HYPERS);
	for (uint32_t i = 0; i < m->n_tensors; i++)
		*len += strlen(m->tensor[i].name);
	if (*len > FORMAT_META_MAX)
		return NULL;
	p = out = calloc(1, *len);
	if (out == NULL)
		return NULL;
	pbox_fields_put(p, FIXED, fixed_fields, m);
	p += FIXED;
	pbox_fields_put(p, BOXES, boxes_fields, m);
	p += BOXES;
	for (uint32_t i = 0; i < m->n_tensors; i++) {
		size_t n = strlen(m->tensor[i].name);

		pbox_fields_put(p, TENSOR, tensor_fields, &m->tensor[i]);
		pbox_st16(p + 10, (uint16_t)n);
		memcpy(p + TENSOR, m->tensor[i].name, n);
		p += TENSOR + n;
	}
	for (uint32_t i = 0; i < m->n_chunks; i++, p += CHUNK)
		pbox_fields_put(p, CHUNK, chunk_fields, &m->chunk[i]);
	for (uint32_t i = 0; i < m->n_segments; i++, p += SEGMENT)
		pbox_fields_put(p, SEGMENT, segment_fields, &m->segment[i]);
	for (uint32_t i = 0; i < m->n_fragments; i++, p += FRAGMENT)
		pbox_fields_put(p, FRAGMENT, fragment_fields, &m->fragment[i]);
	for (uint32_t i = 0; i < m->n_entries; i++, p += ENTRY(PBOX_SNAPSHOT_HYPERS)) {
		pbox_fields_put(p, ENTRY(0), entry_fields, &m->entry[i]);
		pbox_st16(p + 10, m->entry[i].has_lr);
		for (unsigned k = 0; k < PBOX_SNAPSHOT_HYPERS; k++) {
			uint64_t bits;

			memcpy(&bits, &m->entry[i].value[k], 8);
			pbox_st64(p + 12 + 8 * k, bits);
		}
	}
	for (uint32_t i = 0; i < m->n_homes; i++, p += HOME)
		pbox_fields_put(p, HOME, home_fields, &m->home[i]);
	PBOX_ASSERT((size_t)(p - out) == *len);
	return out;
}

static const uint8_t *
decode_tensors(struct pbox_snapshot_meta *m, const uint8_t *p, const uint8_t *end)
{
	for (uint32_t i = 0; i < m->n_tensors; i++) {
		uint16_t n;

		if (end - p < TENSOR)
			return NULL;
		pbox_fields_get(p, tensor_fields, &m->tensor[i]);
		n = pbox_ld16(p + 10);
		p += TENSOR;
		if (n >= PBOX_SNAPSHOT_NAME || end - p < n || memchr(p, 0, n) != NULL)
			return NULL;
		memcpy(m->tensor[i].name, p, n);
		p += n;
	}
	return p;
}

static const uint8_t *
decode_rest(struct pbox_snapshot_meta *m, unsigned hypers, const uint8_t *p)
{
	uint32_t segment = 0;

	for (uint32_t i = 0; i < m->n_chunks; i++, p += CHUNK) {
		pbox_fields_get(p, chunk_fields, &m->chunk[i]);
		m->chunk[i].first_segment = segment;
		if (m->chunk[i].segments > m->n_segments - segment)
			return NULL;
		segment += m->chunk[i].segments;
	}
	for (uint32_t i = 0; i < m->n_segments; i++, p += SEGMENT)
		pbox_fields_get(p, segment_fields, &m->segment[i]);
	for (uint32_t i = 0; i < m->n_fragments; i++, p += FRAGMENT)
		pbox_fields_get(p, fragment_fields, &m->fragment[i]);
	for (uint32_t i = 0; i < m->n_entries; i++, p += ENTRY(hypers)) {
		pbox_fields_get(p, entry_fields, &m->entry[i]);
		m->entry[i].has_lr = pbox_ld16(p + 10) != 0;
		for (unsigned k = 0; k < hypers; k++) {
			uint64_t bits = pbox_ld64(p + 12 + 8 * k);

			memcpy(&m->entry[i].value[k], &bits, 8);
		}
	}
	for (uint32_t i = 0; i < m->n_homes; i++, p += HOME)
		pbox_fields_get(p, home_fields, &m->home[i]);
	return segment == m->n_segments ? p : NULL;
}

/* What files of one box, and older ones, do not have. */
static const char *
contradicting_boxes(const struct pbox_snapshot_meta *m)
{
	uint32_t here = 0;

	if (m->boxes == 0)
		return m->box == 0 && m->map_epoch == 0 && m->n_homes == 0
			       ? NULL
			       : "a box of none, or homes of chunks at one box";
	if (m->boxes == 1 || m->boxes > PBOX_SNAPSHOT_BOXES_MAX || m->box >= m->boxes)
		return "its box of the job's boxes";
	for (uint32_t i = 0; i < m->n_homes; i++) {
		if (m->home[i].box >= m->boxes)
			return "a chunk is at a box that there is not";
		here += m->home[i].box == m->box;
	}
	return here == m->n_chunks ? NULL : "another number of chunks is at its box";
}

/* Do the parts agree with each other? */
static const char *
contradiction(const struct pbox_snapshot_meta *m)
{
	uint64_t elements = 0, fragments = 0;

	if (m->arrays == 0 || m->arrays > PBOX_SNAPSHOT_ARRAYS || m->frag_elements == 0)
		return "arrays or fragments";
	for (uint32_t i = 0; i < m->n_chunks; i++) {
		const struct pbox_snapshot_chunk *c = &m->chunk[i];
		uint64_t of_segments = 0;

		for (unsigned k = 0; k < c->segments; k++) {
			const struct pbox_snapshot_segment *s = &m->segment[c->first_segment + k];

			if (s->tensor >= m->n_tensors || s->elements == 0 ||
				s->offset > m->tensor[s->tensor].elements ||
				s->elements > m->tensor[s->tensor].elements - s->offset)
				return "a chunk lies beyond its tensor";
			of_segments += s->elements;
		}
		if (of_segments != c->elements)
			return "a chunk is not what its segments are";
		elements += c->elements;
		fragments += (c->elements + (uint64_t)m->frag_elements - 1) / m->frag_elements;
	}
	if (elements != m->elements || elements > UINT64_MAX / 16)
		return "the chunks have another number of elements";
	if (fragments != m->n_fragments)
		return "the chunks have another number of fragments";
	for (uint32_t i = 0; i < m->n_entries; i++)
		if (m->entry[i].group >= m->n_groups)
			return "a hyper-parameter of no group";
	return contradicting_boxes(m);
}

int
pbox_snapshot_meta_decode(struct pbox_snapshot_meta *m, uint32_t version, const uint8_t *at,
	size_t len, struct pbox_error *err)
{
	unsigned hypers = hypers_of(version);
	size_t fixed = FIXED + (version >= 5 ? BOXES : 0);
	const uint8_t *p = NULL;
	const char *wrong;

	if (len < fixed)
		return pbox_fail(err, EINVAL, "the description is too short");
	*m = (struct pbox_snapshot_meta){0};
	pbox_fields_get(at, fixed_fields, m);
	if (version >= 5)
		pbox_fields_get(at + FIXED, boxes_fields, m);
	if (fixed + records_size(m, hypers) > len || m->job[PBOX_SNAPSHOT_NAME - 1] != '\0')
		return pbox_fail(err, EINVAL, "the description is shorter than it says");
	if (pbox_snapshot_meta_alloc(m) != 0)
		return pbox_fail(err, ENOMEM, "out of memory for the description");
	p = decode_tensors(m, at + fixed, at + len);
	/* names have taken room: what is left must be just the rest */
	if (p != NULL && (uint64_t)(at + len - p) ==
				 records_size(m, hypers) - (uint64_t)m->n_tensors * TENSOR)
		p = decode_rest(m, hypers, p);
	else
		p = NULL;
	wrong = p == NULL ? "records and counts" : contradiction(m);
	if (wrong == NULL)
		return 0;
	pbox_snapshot_meta_free(m);
	return pbox_fail(err, EINVAL, "the description contradicts itself: %s", wrong);
}

struct pbox_snapshot_piece *
pbox_snapshot_pieces(const struct pbox_snapshot_meta *m)
{
	struct pbox_snapshot_piece *p = calloc(m->n_segments + (size_t)1, sizeof(*p));
	uint64_t at = 0;

	for (uint32_t i = 0; p != NULL && i < m->n_segments; i++) {
		p[i] = (struct pbox_snapshot_piece){.at = at,
			.offset = m->segment[i].offset,
			.tensor = m->segment[i].tensor,
			.elements = m->segment[i].elements};
		at += m->segment[i].elements;
	}
	return p;
}

const struct pbox_snapshot_piece *
pbox_snapshot_piece_at(const struct pbox_snapshot_piece *p, uint32_t n, uint64_t at)
{
	uint32_t low = 0, high = n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (p[mid].at + p[mid].elements <= at)
			low = mid + 1;
		else
			high = mid;
	}
	return low < n ? &p[low] : NULL;
}
