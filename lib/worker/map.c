/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "worker_impl.h"

/* Pages of DECLARE and MAPPED, to and from tables (section 5 of the protocol). */

/* ---- DECLARE ------------------------------------------------------------------------------ */

unsigned
map_declare(const struct pbox_worker_table *t, uint32_t flags, unsigned first, uint8_t *payload,
	size_t cap, size_t *length)
{
	struct pbox_declare m = {.table = t->number,
		.tensors = t->n,
		.first = first,
		.mode = t->mode,
		.op = t->op,
		.optimiser = t->optimiser,
		.push_format = t->block != 0    ? t->block
			       : t->update != 0 ? t->update
						: t->push_format,
		.pull_format = t->value != 0        ? t->value
			       : t->difference != 0 ? t->difference
						    : t->pull_format,
		.discipline = (uint8_t)t->discipline->number,
		.flags = flags | pbox_declare_args(t->block + t->update, t->value + t->difference)};
	struct pbox_cursor cur;
	unsigned n = 0;

	*length = 0;
	if (pbox_declare_begin(payload, cap, &m, &cur) != 0)
		return 0;
	for (; first + n < t->n && n < UINT16_MAX; n++) {
		const struct tensor *x = &t->tensor[first + n];
		struct pbox_tensor_entry e = {.elements = x->elements, .group = x->group};

		memcpy(e.name, x->name, strlen(x->name) + 1);
		if (pbox_declare_add(payload, &cur, &e) != 0)
			break;
	}
	*length = pbox_page_len(payload, &cur);
	return n;
}

/* ---- MAPPED ------------------------------------------------------------------------------- */

static int
map_begin(struct pbox_worker_table *t, struct table_map *m, const struct pbox_mapped *h,
	struct pbox_client_error *err)
{
	uint64_t elements = 0;

	for (unsigned i = 0; i < t->n; i++)
		elements += t->tensor[i].elements;
	if (h->chunks > elements || h->chunks > UINT32_MAX / 2 ||
		(h->chunks == 0) != (elements == 0))
		return pbox_client_fail(err, PBOX_C_REFUSED,
			"the box's map is not sound: %u chunks for %llu elements", h->chunks,
			(unsigned long long)elements);
	t->chunks = h->chunks;
	t->frag_elements = h->frag_elements;
	t->first_chunk_id = h->first_chunk_id;
	t->chunk = calloc(h->chunks + 1, sizeof(*t->chunk));
	m->first = calloc(h->chunks + 1, sizeof(*m->first));
	m->count = calloc(h->chunks + 1, sizeof(*m->count));
	m->seen.got = calloc(h->chunks + 1, 1);
	if (t->chunk == NULL || m->first == NULL || m->count == NULL || m->seen.got == NULL)
		return pbox_client_fail(
			err, PBOX_C_MEMORY, "no memory for a map of %u chunks", h->chunks);
	return 0;
}

/** Box and endpoint of a chunk (R16.5); -1: there is none such. */
static int
map_endpoint(const struct pbox_worker *w, const struct pbox_chunk_entry *e, uint8_t *box,
	uint16_t *endpoint)
{
	*box = (uint8_t)(e->endpoint >> 8);
	*endpoint = e->endpoint & 0xFF;
	if (*box >= w->boxes || *endpoint >= PBOX_MAX_ENDPOINTS)
		return -1;
	/* this worker may have had no session with a box that is out, or that the job has just taken in again */
	return w->box[*box]->out || *endpoint == 0 || *endpoint < w->box[*box]->endpoints ? 0 : -1;
}

static int
map_chunk(const struct session *s, struct pbox_worker_table *t, struct table_map *m, uint32_t i,
	struct pbox_client_error *err)
{
	const struct pbox_chunk_entry *e = &m->entry;
	uint16_t endpoint;
	uint8_t box;

	if (i >= t->chunks || map_endpoint(s->w, e, &box, &endpoint) != 0)
		return pbox_client_fail(err, PBOX_C_REFUSED,
			"the box's map is not sound: chunk %u at endpoint %u", i, e->endpoint);
	if (m->seen.got[i])
		return 0;
	if (m->used + e->segments > m->cap) {
		size_t cap = m->cap * 2 + t->chunks + PBOX_MAX_SEGMENTS;
		struct pbox_segment *list = reallocarray(m->segment, cap, sizeof(*list));

		if (list == NULL || cap > UINT32_MAX)
			return pbox_client_fail(err, PBOX_C_MEMORY, "no memory for the map");
		m->segment = list;
		m->cap = cap;
	}
	t->chunk[i] = (struct chunk){.id = e->chunk_id,
		.elements = e->elements,
		.version = e->version,
		.endpoint = endpoint,
		.epoch = t->map_epoch[s->index],
		.box = box,
		.home = box};
	m->first[i] = (uint32_t)m->used;
	m->count[i] = e->segments;
	memcpy(m->segment + m->used, e->segment, e->segments * sizeof(e->segment[0]));
	m->used += e->segments;
	m->seen.got[i] = 1;
	m->seen.n_got++;
	return 0;
}

int
map_take(const struct session *s, struct pbox_worker_table *t, struct table_map *m,
	const struct pbox_worker_request *r, uint32_t *count, struct pbox_client_error *err)
{
	struct pbox_mapped h;
	struct pbox_cursor cur;
	int rc = 0;

	if (pbox_mapped_decode(r->answer, r->answer_len, &h, &cur) != 0 || h.table != t->number)
		return pbox_client_fail(err, PBOX_C_REFUSED, "the box's MAPPED is malformed");
	if (m->seen.got == NULL) {
		t->map_epoch[s->index] = r->map_epoch;
		t->mark[s->index] = h.mark;
		rc = map_begin(t, m, &h, err);
	}
	for (unsigned i = 0; rc == 0 && i < h.count; i++) {
		if (pbox_mapped_next(&cur, &m->entry) != 0)
			return pbox_client_fail(
				err, PBOX_C_REFUSED, "the box's MAPPED is malformed");
		rc = map_chunk(s, t, m, h.first + i, err);
	}
	*count = h.count;
	if (rc == 0 && h.count == 0 && t->chunks > 0)
		return pbox_client_fail(err, PBOX_C_REFUSED, "the box's MAPPED is empty");
	return rc;
}

/* ---- the same map at another box? (section 16) -------------------------------------------- */

static int
map_differs(const struct session *s, const struct pbox_worker_table *t, uint32_t chunk,
	struct pbox_client_error *err)
{
	return pbox_client_fail(err, PBOX_C_MISMATCH,
		"the boxes at %s and %s lay table %u out differently (chunk %u of %u): give all boxes of a job the same cores, chunk-bytes and 'boxes'",
		s->w->box[worker_first_box(s->w)]->name, s->name, t->number, chunk, t->chunks);
}

int
map_agree(const struct session *s, struct pbox_worker_table *t, struct table_map *m,
	struct map_seen *seen, const struct pbox_worker_request *r, uint32_t *count,
	struct pbox_client_error *err)
{
	struct pbox_chunk_entry *e = &m->entry;
	struct pbox_mapped h;
	struct pbox_cursor cur;

	if (pbox_mapped_decode(r->answer, r->answer_len, &h, &cur) != 0 || h.table != t->number)
		return pbox_client_fail(err, PBOX_C_REFUSED, "the box's MAPPED is malformed");
	if (h.chunks != t->chunks || h.frag_elements != t->frag_elements ||
		h.first_chunk_id != t->first_chunk_id)
		return map_differs(s, t, 0, err);
	*count = h.count;
	if (h.count == 0 && t->chunks > 0)
		return pbox_client_fail(err, PBOX_C_REFUSED, "the box's MAPPED is empty");
	t->map_epoch[s->index] = r->map_epoch;
	t->mark[s->index] = h.mark;
	for (uint32_t i = h.first; i < h.first + h.count; i++) {
		struct chunk *k = &t->chunk[i];
		uint16_t endpoint;
		uint8_t box;

		if (pbox_mapped_next(&cur, e) != 0 || i >= t->chunks)
			return pbox_client_fail(
				err, PBOX_C_REFUSED, "the box's MAPPED is malformed");
		if (map_endpoint(s->w, e, &box, &endpoint) != 0 || box != k->box ||
			e->chunk_id != k->id || e->elements != k->elements ||
			e->segments != m->count[i] ||
			memcmp(e->segment, m->segment + m->first[i],
				e->segments * sizeof(e->segment[0])) != 0)
			return map_differs(s, t, i, err);
		if (seen->got[i])
			continue;
		seen->got[i] = 1;
		seen->n_got++;
		if (box != s->index)
			continue;
		k->endpoint = endpoint;
		k->version = e->version;
		k->epoch = r->map_epoch;
	}
	return 0;
}

/* ---- the same map again? (R10.3) ------------------------------------------------------------ */

/** Do the segments say what the chunk's pieces say? How they were cut does not matter. */
static bool
same_segments(const struct pbox_worker_table *t, uint32_t chunk, const struct pbox_chunk_entry *e)
{
	const struct piece *p = &t->piece[t->frag[t->chunk[chunk].frag].piece];
	uint32_t used = 0, at = 0; /* of *p; of the chunk */

	if (e->elements != t->chunk[chunk].elements)
		return false;
	for (unsigned i = 0; i < e->segments; i++) {
		uint32_t done = 0;

		if (e->segment[i].elements > e->elements - at)
			return false;
		at += e->segment[i].elements;
		while (done < e->segment[i].elements) {
			uint32_t left = e->segment[i].elements - done, room = p->elements - used;
			uint32_t n = left < room ? left : room;

			if (p->tensor != e->segment[i].tensor ||
				p->offset + used != e->segment[i].offset + done)
				return false;
			done += n;
			used += n;
			if (used == p->elements) {
				p++;
				used = 0;
			}
		}
	}
	return true;
}

static int
other_map(const struct session *s, const struct pbox_worker_table *t, const struct pbox_mapped *h,
	struct pbox_client_error *err)
{
	if (h->frag_elements != t->frag_elements)
		return pbox_client_fail(err, PBOX_C_MISMATCH,
			"the box at %s came back with fragments of %u elements in table %u, they had %u: its MTU, or that of a worker, is another one now; set it back, or start the job again from a checkpoint",
			s->name, h->frag_elements, t->number, t->frag_elements);
	return pbox_client_fail(err, PBOX_C_MISMATCH,
		"the box at %s came back with another layout of table %u (%u chunks, there were %u): its number of data cores, its chunk size or the order of its jobs is another one now; set it back, or start the job again from a checkpoint",
		s->name, t->number, h->chunks, t->chunks);
}

int
map_compare(struct session *s, struct pbox_worker_table *t, struct map_again *m,
	const struct pbox_worker_request *r, uint32_t *count, struct pbox_client_error *err)
{
	struct pbox_mapped h;
	struct pbox_cursor cur;

	if (pbox_mapped_decode(r->answer, r->answer_len, &h, &cur) != 0 || h.table != t->number)
		return pbox_client_fail(err, PBOX_C_REFUSED, "the box's MAPPED is malformed");
	if (h.chunks != t->chunks || h.frag_elements != t->frag_elements ||
		h.first_chunk_id != t->first_chunk_id)
		return other_map(s, t, &h, err);
	if (!table_fits(t, h.frag_elements, s->mtu - PBOX_MTU_OVERHEAD))
		return pbox_client_fail(err, PBOX_C_REFUSED,
			"the box at %s came back with an MTU of %u, and with fragments of %u elements in table %u as before, which do not fit into it",
			s->name, s->mtu + s->tag, h.frag_elements, t->number);
	*count = h.count;
	if (h.count == 0 && t->chunks > 0)
		return pbox_client_fail(err, PBOX_C_REFUSED, "the box's MAPPED is empty");
	t->map_epoch[s->index] = r->map_epoch;
	for (unsigned k = 0; k < h.count; k++) {
		uint32_t i = h.first + k;
		uint16_t endpoint;
		uint8_t box;

		if (pbox_mapped_next(&cur, &m->entry) != 0 || i >= t->chunks ||
			map_endpoint(s->w, &m->entry, &box, &endpoint) != 0)
			return pbox_client_fail(
				err, PBOX_C_REFUSED, "the box's MAPPED is malformed");
		if (m->seen.got[i])
			continue;
		if (m->entry.chunk_id != t->chunk[i].id || box != t->chunk[i].home ||
			!same_segments(t, i, &m->entry))
			return other_map(s, t, &h, err);
		/* or it has moved: the box says where it is then (R16.9) */
		if (box == s->index && t->chunk[i].box == box &&
			(s->w->boxes == 1 || t->discipline->stays ||
				t->chunk[i].epoch == r->map_epoch)) {
			t->chunk[i].endpoint = endpoint;
			t->chunk[i].epoch = r->map_epoch;
			lane_moved(s->w, &t->chunk[i]);
		}
		m->seen.got[i] = 1;
		m->seen.n_got++;
	}
	return 0;
}
