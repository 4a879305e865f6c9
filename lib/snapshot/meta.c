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

/* Those that entries of a format have. */
static unsigned
hypers_of(uint32_t version)
{
	return version == 1 ? 8 : PBOX_SNAPSHOT_HYPERS;
}

void
pbox_snapshot_meta_free(struct pbox_snapshot_meta *m)
{
	free(m->tensor);
	free(m->chunk);
	free(m->segment);
	free(m->fragment);
	free(m->entry);
	m->tensor = NULL;
	m->chunk = NULL;
	m->segment = NULL;
	m->fragment = NULL;
	m->entry = NULL;
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
	if (m->tensor != NULL && m->chunk != NULL && m->segment != NULL && m->fragment != NULL &&
		m->entry != NULL)
		return 0;
	pbox_snapshot_meta_free(m);
	return -ENOMEM;
}

static size_t
encoded_size(const struct pbox_snapshot_meta *m)
{
	size_t n = FIXED;

	n += (size_t)m->n_chunks * CHUNK + (size_t)m->n_segments * SEGMENT +
	     (size_t)m->n_fragments * FRAGMENT + (size_t)m->n_entries * ENTRY(PBOX_SNAPSHOT_HYPERS);
	for (uint32_t i = 0; i < m->n_tensors; i++)
		n += TENSOR + strlen(m->tensor[i].name);
	return n;
}

static uint8_t *
encode_fixed(uint8_t *p, const struct pbox_snapshot_meta *m)
{
	memcpy(p, m->job, PBOX_SNAPSHOT_NAME);
	p += PBOX_SNAPSHOT_NAME;
	put32(p, m->table);
	put32(p + 4, m->round);
	put32(p + 8, m->incarnation);
	put64(p + 12, m->created_ns);
	put16(p + 20, m->workers);
	p[22] = m->mode;
	p[23] = m->op;
	p[24] = m->optimiser;
	p[25] = m->push_format;
	p[26] = m->pull_format;
	p[27] = m->arrays;
	put32(p + 28, m->frag_elements);
	put64(p + 32, m->elements);
	put32(p + 40, m->n_tensors);
	put32(p + 44, m->n_chunks);
	put32(p + 48, m->n_segments);
	put32(p + 52, m->n_fragments);
	put32(p + 56, m->n_groups);
	put32(p + 60, m->n_entries);
	return p + 64;
}

static uint8_t *
encode_layout(uint8_t *p, const struct pbox_snapshot_meta *m)
{
	for (uint32_t i = 0; i < m->n_tensors; i++) {
		size_t n = strlen(m->tensor[i].name);

		put64(p, m->tensor[i].elements);
		put16(p + 8, m->tensor[i].group);
		put16(p + 10, (uint16_t)n);
		memcpy(p + TENSOR, m->tensor[i].name, n);
		p += TENSOR + n;
	}
	for (uint32_t i = 0; i < m->n_chunks; i++, p += CHUNK) {
		put32(p, m->chunk[i].elements);
		put16(p + 4, m->chunk[i].segments);
		put16(p + 6, m->chunk[i].group);
	}
	for (uint32_t i = 0; i < m->n_segments; i++, p += SEGMENT) {
		put64(p, m->segment[i].offset);
		put32(p + 8, m->segment[i].tensor);
		put32(p + 12, m->segment[i].elements);
	}
	return p;
}

uint8_t *
pbox_snapshot_meta_encode(const struct pbox_snapshot_meta *m, size_t *len)
{
	uint8_t *out, *p;

	*len = encoded_size(m);
	if (*len > FORMAT_META_MAX)
		return NULL;
	out = calloc(1, *len);
	if (out == NULL)
		return NULL;
	p = encode_layout(encode_fixed(out, m), m);
	for (uint32_t i = 0; i < m->n_fragments; i++, p += FRAGMENT) {
		put32(p, m->fragment[i].version);
		put32(p + 4, m->fragment[i].samples);
		put16(p + 8, m->fragment[i].contributors);
	}
	for (uint32_t i = 0; i < m->n_entries; i++, p += ENTRY(PBOX_SNAPSHOT_HYPERS)) {
		put32(p, m->entry[i].from_round);
		put32(p + 4, m->entry[i].set);
		put16(p + 8, m->entry[i].group);
		put16(p + 10, m->entry[i].has_lr);
		for (unsigned k = 0; k < PBOX_SNAPSHOT_HYPERS; k++) {
			uint64_t bits;

			memcpy(&bits, &m->entry[i].value[k], 8);
			put64(p + 12 + 8 * k, bits);
		}
	}
	PBOX_ASSERT((size_t)(p - out) == *len);
	return out;
}

static void
decode_fixed(struct pbox_snapshot_meta *m, const uint8_t *p)
{
	*m = (struct pbox_snapshot_meta){0};
	memcpy(m->job, p, PBOX_SNAPSHOT_NAME);
	p += PBOX_SNAPSHOT_NAME;
	m->table = get32(p);
	m->round = get32(p + 4);
	m->incarnation = get32(p + 8);
	m->created_ns = get64(p + 12);
	m->workers = get16(p + 20);
	m->mode = p[22];
	m->op = p[23];
	m->optimiser = p[24];
	m->push_format = p[25];
	m->pull_format = p[26];
	m->arrays = p[27];
	m->frag_elements = get32(p + 28);
	m->elements = get64(p + 32);
	m->n_tensors = get32(p + 40);
	m->n_chunks = get32(p + 44);
	m->n_segments = get32(p + 48);
	m->n_fragments = get32(p + 52);
	m->n_groups = get32(p + 56);
	m->n_entries = get32(p + 60);
}

/* Do the records that the counts promise fit at all? In 64 bits none of this overflows. */
static bool
counts_fit(const struct pbox_snapshot_meta *m, unsigned hypers, size_t len)
{
	uint64_t least = (uint64_t)FIXED + (uint64_t)m->n_tensors * TENSOR +
			 (uint64_t)m->n_chunks * CHUNK + (uint64_t)m->n_segments * SEGMENT +
			 (uint64_t)m->n_fragments * FRAGMENT +
			 (uint64_t)m->n_entries * ENTRY(hypers);

	return least <= len;
}

static const uint8_t *
decode_tensors(struct pbox_snapshot_meta *m, const uint8_t *p, const uint8_t *end)
{
	for (uint32_t i = 0; i < m->n_tensors; i++) {
		uint16_t n;

		if (end - p < TENSOR)
			return NULL;
		m->tensor[i].elements = get64(p);
		m->tensor[i].group = get16(p + 8);
		n = get16(p + 10);
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
		m->chunk[i].elements = get32(p);
		m->chunk[i].segments = get16(p + 4);
		m->chunk[i].group = get16(p + 6);
		m->chunk[i].first_segment = segment;
		if (m->chunk[i].segments > m->n_segments - segment)
			return NULL;
		segment += m->chunk[i].segments;
	}
	for (uint32_t i = 0; i < m->n_segments; i++, p += SEGMENT) {
		m->segment[i].offset = get64(p);
		m->segment[i].tensor = get32(p + 8);
		m->segment[i].elements = get32(p + 12);
	}
	for (uint32_t i = 0; i < m->n_fragments; i++, p += FRAGMENT) {
		m->fragment[i].version = get32(p);
		m->fragment[i].samples = get32(p + 4);
		m->fragment[i].contributors = get16(p + 8);
	}
	for (uint32_t i = 0; i < m->n_entries; i++, p += ENTRY(hypers)) {
		m->entry[i].from_round = get32(p);
		m->entry[i].set = get32(p + 4);
		m->entry[i].group = get16(p + 8);
		m->entry[i].has_lr = get16(p + 10) != 0;
		for (unsigned k = 0; k < hypers; k++) {
			uint64_t bits = get64(p + 12 + 8 * k);

			memcpy(&m->entry[i].value[k], &bits, 8);
		}
	}
	return segment == m->n_segments ? p : NULL;
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
	return NULL;
}

int
pbox_snapshot_meta_decode(struct pbox_snapshot_meta *m, uint32_t version, const uint8_t *at,
	size_t len, struct pbox_error *err)
{
	unsigned hypers = hypers_of(version);
	const uint8_t *p = NULL;
	const char *wrong;

	if (len < FIXED)
		return pbox_fail(err, EINVAL, "the description is too short");
	decode_fixed(m, at);
	if (!counts_fit(m, hypers, len) || m->job[PBOX_SNAPSHOT_NAME - 1] != '\0')
		return pbox_fail(err, EINVAL, "the description is shorter than it says");
	if (pbox_snapshot_meta_alloc(m) != 0)
		return pbox_fail(err, ENOMEM, "out of memory for the description");
	p = decode_tensors(m, at + FIXED, at + len);
	/* names have taken room: what is left must be just the rest */
	if (p != NULL && (uint64_t)(at + len - p) == (uint64_t)m->n_chunks * CHUNK +
							     (uint64_t)m->n_segments * SEGMENT +
							     (uint64_t)m->n_fragments * FRAGMENT +
							     (uint64_t)m->n_entries * ENTRY(hypers))
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
