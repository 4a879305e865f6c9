/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "worker_impl.h"

#define LARGE_TABLE \
	((size_t)8 << 20) /* bytes of results: about what a CPU has in caches for a program */

/* A declared table in memory: tensors, the fragments that the box's map makes of them, and gather and scatter of their
 * elements. */

void
table_free(struct pbox_worker_table *t)
{
	if (t == NULL)
		return;
	for (unsigned i = 0; t->tensor != NULL && i < t->n; i++)
		free(t->tensor[i].name);
	free(t->tensor);
	free(t->queue);
	free(t->chunk);
	free(t->frag);
	free(t->piece);
	free(t->by_tensor);
	free(t->retained_payload);
	free(t->retained);
	free(t->clock);
	free(t->redo);
	free(t->redo_payload);
	free(t->retained_vector);
	free(t->encoded);
	for (unsigned i = 0; i < t->n_coded; i++) {
		free(t->coded[i].codes);
		free(t->coded[i].of);
	}
	free(t->coded);
	free(t->residual[0]);
	free(t->residual[1]);
	sets_free(t);
	free(t);
}

struct pbox_worker_table *
table_new(const struct pbox_client_table *d, uint32_t number,
	const struct worker_discipline *discipline)
{
	struct pbox_worker_table *t = calloc(1, sizeof(*t));
	char name[PBOX_NAME_LEN];

	if (t == NULL)
		return NULL;
	t->discipline = discipline;
	t->number = number;
	t->mode = d->mode;
	t->op = d->op;
	t->optimiser = d->optimiser;
	t->push_format = d->push_format;
	t->pull_format = d->pull_format;
	if (pbox_format_is_block(d->push_format) && d->discipline == PBOX_DISCIPLINE_CLOCK) {
		t->update = d->push_format;
		t->push_format = PBOX_FMT_FP32;
	} else if (pbox_format_is_block(d->push_format)) {
		t->block = d->push_format;
		t->push_format = PBOX_FMT_FP32;
		t->weighs = d->op == PBOX_OP_WEIGHTED_MEAN;
		t->op = t->weighs ? PBOX_OP_SAMPLE_MEAN : d->op;
	}
	if (pbox_format_is_block(d->pull_format)) {
		*(d->mode == PBOX_MODE_OPTIMISER ? &t->difference : &t->value) = d->pull_format;
		t->pull_format = PBOX_FMT_FP32;
	}
	t->tensor = calloc(d->n > 0 ? d->n * (size_t)discipline->lanes : 1, sizeof(*t->tensor));
	if (t->tensor == NULL)
		goto fail;
	t->n = d->n;
	for (unsigned i = 0; i < d->n; i++) {
		const struct pbox_client_tensor *s = &d->tensors[i];
		struct tensor *x = &t->tensor[i];

		snprintf(name, sizeof(name), "%u", i);
		const char *from = s->name != NULL ? s->name : name;
		size_t len = strnlen(from, PBOX_NAME_LEN);

		if (len == PBOX_NAME_LEN) /* R3.4: cut at a character */
			for (len--; len > 0 && ((uint8_t)from[len] & 0xc0) == 0x80; len--)
				;
		x->name = strndup(from, len);
		if (x->name == NULL)
			goto fail;
		x->elements = s->elements;
		x->group = s->group;
	}
	return t;
fail:
	table_free(t);
	return NULL;
}

/* ---- layout ------------------------------------------------------------------------------ */

/** Check the chunks' segments; count fragments and pieces. */
static int
measure(struct pbox_worker_table *t, const struct table_map *m, struct pbox_client_error *err)
{
	uint64_t frags = 0, pieces = 0;

	for (uint32_t i = 0; i < t->chunks; i++) {
		const struct pbox_segment *s = &m->segment[m->first[i]];
		uint64_t at = 0;

		for (unsigned k = 0; k < m->count[i]; k++) {
			if (s[k].elements == 0 || s[k].tensor >= t->n ||
				s[k].offset > t->tensor[s[k].tensor].elements ||
				s[k].elements > t->tensor[s[k].tensor].elements - s[k].offset)
				return pbox_client_fail(err, PBOX_C_REFUSED,
					"the box's map is not sound: chunk %u, segment %u", i, k);
			/* a segment lies in this many fragments */
			pieces += (at + s[k].elements - 1) / t->frag_elements -
				  at / t->frag_elements + 1;
			at += s[k].elements;
		}
		if (at != t->chunk[i].elements || at == 0 || at / t->frag_elements > UINT16_MAX)
			return pbox_client_fail(err, PBOX_C_REFUSED,
				"the box's map is not sound: chunk %u of %u elements", i,
				t->chunk[i].elements);
		frags += (at - 1) / t->frag_elements + 1;
	}
	if (frags > UINT32_MAX / 2 || pieces > UINT32_MAX / 2)
		return pbox_client_fail(err, PBOX_C_MEMORY, "the table has too many fragments");
	t->frags = (uint32_t)frags;
	t->pieces = (uint32_t)pieces;
	return 0;
}

/** Cut one chunk's segments into the pieces of its fragments. */
static void
cut_chunk(struct pbox_worker_table *t, const struct table_map *m, uint32_t i, uint32_t *frag,
	uint32_t *piece)
{
	const struct pbox_segment *s = &m->segment[m->first[i]];
	uint32_t left = t->chunk[i].elements, used = 0;

	t->chunk[i].frag = *frag;
	for (unsigned index = 0; left > 0; index++) {
		struct frag *f = &t->frag[*frag];
		uint32_t room = left < t->frag_elements ? left : t->frag_elements;

		*f = (struct frag){.chunk = i,
			.piece = *piece,
			.round = t->chunk[i].version,
			.index = (uint16_t)index,
			.table = (uint16_t)t->number};
		left -= room;
		while (room > 0) {
			uint32_t take = s->elements - used < room ? s->elements - used : room;

			t->piece[*piece] = (struct piece){.offset = s->offset + used,
				.tensor = s->tensor,
				.elements = take,
				.frag = *frag};
			(*piece)++;
			f->pieces++;
			room -= take;
			used += take;
			if (used == s->elements) {
				s++;
				used = 0;
			}
		}
		(*frag)++;
	}
}

static int
by_offset(const void *a, const void *b, void *ctx)
{
	const struct pbox_worker_table *t = ctx;
	uint64_t x = t->piece[*(const uint32_t *)a].offset;
	uint64_t y = t->piece[*(const uint32_t *)b].offset;

	return x < y ? -1 : x > y;
}

/** Group the pieces by tensor, in order; each tensor must be covered exactly once. */
static int
index_tensors(struct pbox_worker_table *t, struct pbox_client_error *err)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < t->pieces; i++)
		t->tensor[t->piece[i].tensor].by_count++;
	for (unsigned i = 0; i < t->n; i++) {
		t->tensor[i].by_first = at;
		at += t->tensor[i].by_count;
		t->tensor[i].by_count = 0;
	}
	for (uint32_t i = 0; i < t->pieces; i++) {
		struct tensor *x = &t->tensor[t->piece[i].tensor];

		t->by_tensor[x->by_first + x->by_count++] = i;
	}
	for (unsigned i = 0; i < t->n; i++) {
		struct tensor *x = &t->tensor[i];
		uint64_t next = 0;
		bool sorted = true;

		for (uint32_t k = 1; k < x->by_count && sorted; k++)
			sorted = t->piece[t->by_tensor[x->by_first + k - 1]].offset <
				 t->piece[t->by_tensor[x->by_first + k]].offset;
		if (!sorted)
			qsort_r(&t->by_tensor[x->by_first], x->by_count, sizeof(uint32_t),
				by_offset, t);
		for (uint32_t k = 0; k < x->by_count; k++) {
			const struct piece *p = &t->piece[t->by_tensor[x->by_first + k]];

			if (p->offset != next)
				break;
			next += p->elements;
		}
		if (next != x->elements)
			return pbox_client_fail(err, PBOX_C_REFUSED,
				"the box's map does not cover tensor '%s' exactly once", x->name);
	}
	return 0;
}

/** The second lane is the first one once more. */
static void
add_pull_lane(struct pbox_worker_table *t)
{
	memcpy(&t->tensor[t->n], t->tensor, t->n * sizeof(*t->tensor));
	memcpy(&t->frag[t->frags], t->frag, t->frags * sizeof(*t->frag));
	memcpy(&t->piece[t->pieces], t->piece, t->pieces * sizeof(*t->piece));
	for (unsigned i = 0; i < t->n; i++)
		t->tensor[t->n + i].by_first += t->pieces;
	for (uint32_t i = 0; i < t->frags; i++)
		t->frag[t->frags + i].piece += t->pieces;
	for (uint32_t i = 0; i < t->pieces; i++) {
		t->piece[t->pieces + i].frag += t->frags;
		t->piece[t->pieces + i].tensor += t->n;
		t->by_tensor[t->pieces + i] = t->by_tensor[i] + t->pieces;
	}
}

/** The bytes of so many elements, in the larger one of the two formats. */
static size_t
larger_payload(const struct pbox_worker_table *t, uint32_t elements)
{
	size_t push = pbox_payload_bytes(t->push_format, elements);
	size_t pull = pbox_payload_bytes(t->pull_format, elements);

	return push > pull ? push : pull;
}

bool
table_fits(const struct pbox_worker_table *t, uint32_t frag_elements, uint32_t cap)
{
	return larger_payload(t, frag_elements) <= cap;
}

int
table_layout(struct pbox_worker_table *t, const struct table_map *m, uint32_t cap,
	struct pbox_client_error *err)
{
	uint32_t frag = 0, piece = 0;
	uint64_t at = 0;
	int rc;

	if (t->chunks == 0)
		return index_tensors(t, err);
	/* of an INIT; a fragment has 64 bytes at least (R5.8), so 0 is no size of a box */
	t->init_elements = (uint32_t)(larger_payload(t, t->frag_elements) / sizeof(float));
	if (t->init_elements == 0 || !table_fits(t, t->frag_elements, cap))
		return pbox_client_fail(err, PBOX_C_REFUSED,
			"the box's map has fragments of %u elements, and a frame has room for %u bytes",
			t->frag_elements, cap);
	rc = measure(t, m, err);
	if (rc != 0)
		return rc;
	t->frag = calloc(t->frags, t->discipline->lanes * sizeof(*t->frag));
	t->piece = calloc(t->pieces, t->discipline->lanes * sizeof(*t->piece));
	t->by_tensor = calloc(t->pieces, t->discipline->lanes * sizeof(*t->by_tensor));
	if (t->frag == NULL || t->piece == NULL || t->by_tensor == NULL)
		return pbox_client_fail(err, PBOX_C_MEMORY,
			"no memory for the %u fragments of table %u", t->frags, t->number);
	for (uint32_t i = 0; i < t->chunks; i++) {
		cut_chunk(t, m, i, &frag, &piece);
		t->chunk[i].at = at;
		at += t->chunk[i].elements;
	}
	assert(frag == t->frags && piece == t->pieces);
	t->large = pbox_payload_bytes(t->pull_format, at) >= LARGE_TABLE;
	rc = index_tensors(t, err);
	if (rc == 0 && t->discipline->lanes > 1)
		add_pull_lane(t);
	return rc;
}

uint32_t
table_frags_at(const struct pbox_worker_table *t, unsigned box)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->frags; i++)
		n += t->chunk[t->frag[i].chunk].box == box && !t->frag[i].moving;
	return n;
}

/* ---- elements of a fragment ----------------------------------------------------------------- */

/** What plain operations push at all nodes but their own. */
static uint8_t zeros[UINT16_MAX + 1];

const uint8_t *
table_in(const struct pbox_worker_entry *e, unsigned node)
{
	const struct pbox_worker_op *op = e->op;

	if (op->nodes > 0)
		return op->node_in[(size_t)node * op->n + e->index];
	return node == 0 ? e->in : NULL;
}

bool
table_is_zero(const struct pbox_worker_table *t, const struct frag *f, unsigned node)
{
	for (unsigned i = 0; i < f->pieces; i++)
		if (table_in(t->piece[f->piece + i].entry, node) != NULL)
			return false;
	return true;
}

uint32_t
table_weight(const struct pbox_worker_table *t, const struct frag *f, unsigned node)
{
	const struct pbox_worker_op *op = table_first_op(t, f);

	if (op->nodes > 0)
		return op->node_weight[node];
	return node == 0 ? op->weight : 0;
}

unsigned
table_gather(const struct pbox_worker_table *t, const struct frag *f, unsigned node, uint32_t from,
	uint32_t count, unsigned format, struct iovec *iov, unsigned cap)
{
	uint32_t at = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < f->pieces && count > 0; i++) {
		const struct piece *p = &t->piece[f->piece + i];
		const struct pbox_worker_entry *e = p->entry;
		const uint8_t *in;
		uint32_t skip, take;

		if (from >= at + p->elements) {
			at += p->elements;
			continue;
		}
		skip = from - at;
		take = p->elements - skip < count ? p->elements - skip : count;
		in = table_in(e, node);
		in = in != NULL ? in + pbox_payload_bytes(format, p->offset + skip) : zeros;
		if (n > 0 && (const uint8_t *)iov[n - 1].iov_base + iov[n - 1].iov_len == in) {
			iov[n - 1].iov_len += pbox_payload_bytes(format, take);
		} else {
			if (n == cap)
				return 0;
			iov[n++] = (struct iovec){
				(void *)(uintptr_t)in, pbox_payload_bytes(format, take)};
		}
		from += take;
		count -= take;
		at += p->elements;
	}
	return n;
}

void
table_scatter(const struct pbox_worker_table *t, const struct frag *f, uint32_t from,
	uint32_t count, const uint8_t *payload)
{
	uint32_t at = 0;

	assert(from + count <= frag_elements(t, f));
	for (unsigned i = 0; i < f->pieces; i++) {
		const struct piece *p = &t->piece[f->piece + i];
		const struct pbox_worker_entry *e = p->entry;
		uint32_t first = from > at ? from : at;
		uint32_t end = from + count < at + p->elements ? from + count : at + p->elements;

		if (first < end && e->out != NULL)
			memcpy(e->out + (p->offset + first - at) * sizeof(float),
				payload + (size_t)(first - from) * sizeof(float),
				(size_t)(end - first) * sizeof(float));
		at += p->elements;
	}
}

const struct pbox_worker_op *
table_first_op(const struct pbox_worker_table *t, const struct frag *f)
{
	assert(t->piece[f->piece].entry != NULL);
	return t->piece[f->piece].entry->op;
}
