/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A table gets its layout, its places and its memory, or nothing of it. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "table_memory.h"

static bool
has_wire_copy(const struct pbox_table *t)
{
	return t->pull_format != PBOX_FMT_FP32;
}

static size_t
clock_bytes(const struct pbox_table *t, uint32_t fragments)
{
	return pbox_pad_line((size_t)fragments * t->clocks * sizeof(uint32_t));
}

/* Each fragment has a payload of its own. */
static size_t
wire_bytes(const struct pbox_table *t, uint32_t elements)
{
	size_t full =
		elements / t->frag_elements * pbox_payload_bytes(t->pull_format, t->frag_elements);

	return pbox_pad_line(
		full + pbox_payload_bytes(t->pull_format, elements % t->frag_elements));
}

/* The sums of a table with two phases. */
static size_t
hold_bytes(const struct pbox_table *t, uint32_t elements)
{
	return t->hold ? pbox_pad_line((size_t)elements * sizeof(float)) +
				 pbox_pad_line(
					 table_fragments_of(t, elements) * sizeof(struct pbox_held))
		       : 0;
}

size_t
table_chunk_bytes(const struct pbox_table *t, uint32_t elements)
{
	size_t array = pbox_pad_line((size_t)elements * sizeof(float));
	size_t n = array * (1 + pbox_table_states(t));

	if (has_wire_copy(t))
		n += wire_bytes(t, elements);
	return n + hold_bytes(t, elements) + clock_bytes(t, table_fragments_of(t, elements)) +
	       pbox_pad_line(table_fragments_of(t, elements) * sizeof(struct pbox_fragment));
}

/* One fragment, where nothing is done to a sum but to send it, or a push is verified while it is added. */
static size_t
spare_bytes(const struct pbox_table *t)
{
	return t->clocks > 0 || (t->mode == PBOX_MODE_ALLREDUCE && !has_wire_copy(t))
		       ? pbox_pad_line((size_t)t->frag_elements * sizeof(float))
		       : 0;
}

uint8_t *
table_carve(uint8_t *at, const struct pbox_table *t, struct pbox_chunk *c)
{
	size_t array = pbox_pad_line((size_t)c->elements * sizeof(float));
	unsigned differs = pbox_table_differs(t), states = pbox_table_states(t) - differs;

	c->param = (float *)(void *)at;
	at += array;
	if (states > 0) {
		c->s0 = (float *)(void *)at;
		at += array;
	}
	if (states > 1) {
		c->s1 = (float *)(void *)at;
		at += array;
	}
	if (differs) {
		c->replica = (float *)(void *)at;
		at += array;
	}
	if (has_wire_copy(t)) {
		c->wire = at;
		at += wire_bytes(t, c->elements);
	}
	if (t->hold) {
		c->hold = (float *)(void *)at;
		at += array;
		c->held = (struct pbox_held *)(void *)at;
		at += pbox_pad_line(c->fragments * sizeof(struct pbox_held));
	}
	if (t->clocks > 0) {
		c->clocks = (uint32_t *)(void *)at;
		at += clock_bytes(t, c->fragments);
	}
	c->fragment = (struct pbox_fragment *)(void *)at;
	return at + pbox_pad_line(c->fragments * sizeof(struct pbox_fragment));
}

static int
take_extents(struct pbox_table *t, const struct pbox_place *place, unsigned endpoints, size_t quota,
	struct pbox_error *err)
{
	size_t need[PBOX_MAX_ENDPOINTS] = {0}, total = 0;

	for (uint32_t i = 0; i < t->n_chunks; i++)
		if (t->layout.chunk[i].endpoint != PBOX_ELSEWHERE)
			need[t->layout.chunk[i].endpoint] +=
				table_chunk_bytes(t, t->layout.chunk[i].elements);
	for (unsigned e = 0; e < endpoints; e++) {
		need[e] += need[e] > 0 ? spare_bytes(t) : 0;
		total += need[e];
	}
	t->needs = total;
	if (total > quota)
		return pbox_fail(err, ENOMEM,
			"table %u needs %zu bytes and the job may still take %zu: raise 'memory' of the job",
			t->id, total, quota);
	for (unsigned e = 0; e < endpoints; e++) {
		struct pbox_arena *a = t->arena[place[e].node];

		if (need[e] == 0)
			continue;
		t->block_node[e] = place[e].node;
		t->block_bytes[e] = need[e];
		t->block[e] = pbox_arena_alloc(a, need[e]);
		if (t->block[e] == NULL && pbox_arena_later(a, need[e]))
			return pbox_fail(err, EAGAIN,
				"table %u waits for memory of a job that has ended: %zu MB of it are still to be cleared",
				t->id, (pbox_arena_uncleared(a) >> 20) + 1);
		if (t->block[e] == NULL)
			return pbox_fail(err, need[e] > pbox_arena_size(a) ? ENOMEM : ENOSPC,
				"table %u needs %zu bytes on NUMA node %u, where the largest free piece of %zu has %zu: raise 'memory'",
				t->id, need[e], place[e].node, pbox_arena_size(a),
				pbox_arena_largest(a));
	}
	t->bytes = total;
	return 0;
}

static void
fill_chunks(struct pbox_table *t)
{
	uint8_t *at[PBOX_MAX_ENDPOINTS];

	for (unsigned e = 0; e < PBOX_MAX_ENDPOINTS; e++)
		at[e] = t->block[e];
	t->n_fragments = 0;
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		const struct pbox_layout_chunk *lc = &t->layout.chunk[i];
		struct pbox_chunk *c = &t->chunk[i];

		c->elements = lc->elements;
		c->group = lc->group;
		c->endpoint = lc->endpoint;
		c->epoch = t->home != NULL && t->home[i].epoch != PBOX_MAP_EPOCH ? t->home[i].epoch
										 : t->epoch;
		if (c->endpoint == PBOX_ELSEWHERE)
			continue;
		c->fragments = (uint16_t)table_fragments_of(t, lc->elements);
		t->n_fragments += c->fragments;
		at[lc->endpoint] = table_carve(at[lc->endpoint], t, c);
	}
	/* fragments say in 32 bits where they have exchanged it to */
	for (unsigned e = 0; e < PBOX_MAX_ENDPOINTS; e++)
		t->spare[e] = spare_bytes(t) > 0 && t->block[e] != NULL &&
					      (size_t)(at[e] - (uint8_t *)t->block[e]) <
						      UINT32_MAX * sizeof(float)
				      ? (float *)(void *)at[e]
				      : NULL;
}

/* What the table takes wherever it is placed; fragments and padding come on top. */
static size_t
table_least_bytes(const struct pbox_table *t, const struct pbox_tensor *tensors, uint32_t n)
{
	size_t element = sizeof(float) * (1 + pbox_table_states(t) + t->hold);
	uint64_t all = 0;
	size_t bytes;

	element += has_wire_copy(t) ? pbox_format_size(t->pull_format)
				    : 0; /* of blocks: less than 2 */
	for (uint32_t i = 0; i < n; i++)
		if (__builtin_add_overflow(all, tensors[i].elements, &all))
			return SIZE_MAX;
	/* a box of several gets its part, or less by a chunk */
	return pbox_size_madd(t->boxes > 1 ? all / t->boxes / 2 : all, element, 0, &bytes)
		       ? bytes
		       : SIZE_MAX;
}

/* Before it is laid out: a table of more chunks than memory would keep the control thread busy, and
 * other jobs' requests waiting. */
static int
refuse_hopeless(struct pbox_table *t, const struct pbox_tensor *tensors, uint32_t n,
	const struct pbox_place *place, unsigned endpoints, size_t quota, struct pbox_error *err)
{
	/* of chunks that are given to it a box may have none */
	size_t need = t->given != NULL ? 0 : table_least_bytes(t, tensors, n), left = 0, all = 0;
	bool counted[PBOX_MAX_NODES] = {false};

	t->needs = need;
	if (need > quota)
		return pbox_fail(err, ENOMEM,
			"table %u needs at least %zu bytes and the job may still take %zu: raise 'memory' of the job",
			t->id, need, quota);
	for (unsigned e = 0; e < endpoints; e++) {
		const struct pbox_arena *a = t->arena[place[e].node];

		if (!counted[place[e].node])
			all += pbox_arena_size(a);
		if (!counted[place[e].node])
			left += pbox_arena_size(a) - pbox_arena_used(a);
		counted[place[e].node] = true;
	}
	if (need > left)
		return pbox_fail(err, need > all ? ENOMEM : ENOSPC,
			"table %u needs at least %zu bytes and %zu are left: raise 'memory'", t->id,
			need, left);
	return 0;
}

static bool
is_given(const struct pbox_table *t)
{
	bool given = t->given != NULL && t->n_given == t->n_chunks;

	for (uint32_t i = 0; given && i < t->n_chunks; i++)
		given = t->given[i] < t->boxes;
	return given;
}

/* All chunks are where they were placed, or given to; of the latter this box has those that are given to it. */
static int
init_homes(struct pbox_table *t)
{
	bool given = is_given(t);

	if (t->boxes < 2)
		return 0;
	t->home = calloc(2 * ((size_t)t->n_chunks + 1), sizeof(*t->home));
	if (t->home == NULL)
		return -ENOMEM;
	t->plan = t->home + t->n_chunks + 1;
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		struct pbox_layout_chunk *c = &t->layout.chunk[i];

		t->home[i] = t->plan[i] =
			(struct pbox_table_home){.box = given ? t->given[i] : (uint8_t)c->box,
				.epoch = given ? t->given_epoch : PBOX_MAP_EPOCH};
		c->endpoint = t->home[i].box == t->box ? 0 : PBOX_ELSEWHERE;
	}
	t->begun_map = given ? t->begun_map : PBOX_MAP_EPOCH;
	return 0;
}

static int
init_schedules(struct pbox_table *t, const struct pbox_tensor *tensors, uint32_t n)
{
	unsigned highest = 0;

	for (uint32_t i = 0; i < n; i++)
		if (tensors[i].group > highest)
			highest = tensors[i].group;
	t->n_groups = (uint16_t)(highest + 1);
	t->schedule = calloc(t->n_groups, sizeof(*t->schedule));
	if (t->schedule == NULL)
		return -ENOMEM;
	for (unsigned g = 0; g < t->n_groups; g++) {
		pbox_hyper_defaults(&t->schedule[g].entry[0].hyper, t->optimiser);
		atomic_store_explicit(&t->schedule[g].count, 1, memory_order_relaxed);
	}
	return 0;
}

/** Two tables of which it is the same have the same tensors, in the same order. */
static uint32_t
crc_of_tensors(const struct pbox_tensor *tensors, uint32_t n)
{
	uint32_t crc = 0;

	for (uint32_t i = 0; i < n; i++) {
		const char *name = tensors[i].name != NULL ? tensors[i].name : "";

		crc = pbox_crc32c(crc, name, strlen(name) + 1);
		crc = pbox_crc32c(crc, &tensors[i].elements, sizeof(tensors[i].elements));
		crc = pbox_crc32c(crc, &tensors[i].group, sizeof(tensors[i].group));
	}
	return crc;
}

int
pbox_table_build(struct pbox_table *t, const struct pbox_tensor *tensors, uint32_t n,
	uint32_t chunk_elements, const struct pbox_place *place, unsigned endpoints,
	struct pbox_arena *const arena[PBOX_MAX_NODES], uint64_t *load, size_t quota,
	struct pbox_error *err)
{
	uint64_t undo[PBOX_MAX_ENDPOINTS], undo_boxes[PBOX_MAX_BOXES];
	unsigned pieces;
	int ret;

	PBOX_ASSERT(endpoints > 0 && endpoints <= PBOX_MAX_ENDPOINTS);
	PBOX_ASSERT(t->frag_elements > 0 && t->init_elements > 0 && chunk_elements > 0);
	memcpy(undo, load, endpoints * sizeof(*load));
	if (t->boxes > 1)
		memcpy(undo_boxes, t->box_load, t->boxes * sizeof(*t->box_load));
	memcpy(t->arena, arena, sizeof(t->arena));
	memset(t->block, 0, sizeof(t->block));
	t->chunk = NULL;
	t->schedule = NULL;
	t->home = t->plan = NULL;
	t->extent = NULL;
	t->n_extents = 0;
	ret = refuse_hopeless(t, tensors, n, place, endpoints, quota, err);
	if (ret < 0)
		return ret;
	pieces = (t->frag_elements + t->init_elements - 1) / t->init_elements;
	if (pieces > PBOX_INIT_PIECES)
		return pbox_fail(err, EINVAL,
			"table %u: INIT of a fragment takes %u frames, at most %u: use a wider element format for push or pull",
			t->id, pieces, PBOX_INIT_PIECES);
	chunk_elements = pbox_layout_chunk(tensors, n,
		pbox_place_cores(place, endpoints) * (t->boxes > 1 ? t->boxes : 1), chunk_elements,
		t->frag_elements);
	ret = pbox_layout_build(&t->layout, tensors, n, chunk_elements, t->frag_elements, err);
	if (ret < 0)
		return ret;
	t->tensors_crc = crc_of_tensors(tensors, n);
	t->n_chunks = t->layout.n_chunks;
	t->init_mask = (uint8_t)((1u << pieces) - 1);
	t->chunk = calloc(t->n_chunks + 1, sizeof(*t->chunk));
	if (t->chunk == NULL || init_schedules(t, tensors, n) < 0 ||
		(t->boxes > 1 &&
			pbox_layout_share(&t->layout, t->boxes, t->box, t->box_load) < 0) ||
		init_homes(t) < 0 || pbox_layout_place(&t->layout, place, endpoints, load) < 0) {
		ret = pbox_fail(err, ENOMEM, "out of memory for the %u chunks of table %u",
			t->n_chunks, t->id);
		goto fail;
	}
	ret = take_extents(t, place, endpoints, quota, err);
	if (ret < 0)
		goto fail;
	fill_chunks(t);
	PBOX_ASSERT(t->n_groups > 0 && (t->boxes > 1 || t->n_fragments >= t->n_chunks));
	t->heap = t->n_chunks * (sizeof(*t->chunk) + sizeof(*t->layout.chunk)) +
		  (t->home != NULL ? 2 * t->n_chunks * sizeof(*t->home) : 0) +
		  t->layout.n_segments * sizeof(*t->layout.segment) +
		  t->n_groups * sizeof(*t->schedule);
	return 0;
fail:
	pbox_table_release(t, NULL);
	memcpy(load, undo, endpoints * sizeof(*load));
	if (t->boxes > 1)
		memcpy(t->box_load, undo_boxes, t->boxes * sizeof(*t->box_load));
	return ret;
}

void
pbox_table_release(struct pbox_table *t, uint64_t *load)
{
	for (uint32_t i = 0; load != NULL && i < t->n_chunks; i++) {
		if (t->box_load != NULL)
			t->box_load[t->layout.chunk[i].box] -= t->layout.chunk[i].elements;
		if (t->layout.chunk[i].endpoint == PBOX_ELSEWHERE)
			continue;
		PBOX_ASSERT(load[t->layout.chunk[i].endpoint] >= t->layout.chunk[i].elements);
		load[t->layout.chunk[i].endpoint] -= t->layout.chunk[i].elements;
	}
	for (unsigned e = 0; e < PBOX_MAX_ENDPOINTS; e++) {
		if (t->block[e] != NULL)
			pbox_arena_free(t->arena[t->block_node[e]], t->block[e]);
		t->block[e] = NULL;
	}
	for (uint32_t i = 0; i < t->n_extents; i++)
		pbox_arena_free(t->arena[t->extent[i].node], t->extent[i].at);
	free(t->extent);
	t->extent = NULL;
	t->n_extents = 0;
	free(t->home);
	t->home = t->plan = NULL;
	free(t->chunk);
	t->chunk = NULL;
	free(t->schedule);
	t->schedule = NULL;
	pbox_layout_free(&t->layout);
	t->n_chunks = t->n_fragments = 0;
	t->bytes = t->heap = 0;
}

const struct pbox_chunk *
pbox_table_own_chunk(const struct pbox_table *t)
{
	for (uint32_t i = 0; i < t->n_chunks; i++)
		if (t->chunk[i].endpoint != PBOX_ELSEWHERE)
			return &t->chunk[i];
	return NULL;
}

size_t
pbox_table_bytes_on(const struct pbox_table *t, unsigned node)
{
	size_t bytes = 0;

	for (unsigned e = 0; e < PBOX_MAX_ENDPOINTS; e++)
		if (t->block[e] != NULL && t->block_node[e] == node)
			bytes += t->block_bytes[e];
	for (uint32_t i = 0; i < t->n_extents; i++)
		if (t->extent[i].node == node)
			bytes += t->extent[i].bytes;
	return bytes;
}
