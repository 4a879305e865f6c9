/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "snapshot.h"

#define SLICE 4096u /* tensors, chunks and segments that are described at once */

_Static_assert(PBOX_SNAPSHOT_NAME == PBOX_NAME_LEN, "names are copied whole");
_Static_assert(PBOX_SNAPSHOT_HYPERS >= PBOX_HYPER_IDS - 1, "all hyper-parameters are kept");

uint64_t
snapshot_real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* By id: neither side goes by the order of the other's members. */
struct pbox_hyper
snapshot_hyper(const struct pbox_snapshot_entry *e)
{
	struct pbox_hyper h = {.has_lr = e->has_lr};

	for (unsigned id = 1; id < PBOX_HYPER_IDS; id++)
		if (pbox_hyper_at(&h, id) != NULL)
			*pbox_hyper_at(&h, id) = e->value[id - 1];
	return h;
}

/* Entries, and how many of the newest of them the file has not. A SET goes to one box after the other: of those for later
 * rounds than the snapshot's one box may know and another not yet, so files of several boxes have none. */
static uint32_t
remembered(const struct pbox_table *t, unsigned group, uint32_t round, uint32_t *left_out)
{
	const struct pbox_schedule *s = &t->schedule[group];
	uint32_t count = atomic_load_explicit(&s->count, memory_order_relaxed);
	uint32_t n = count < PBOX_SCHEDULE ? count : PBOX_SCHEDULE;

	*left_out = 0;
	while (t->boxes > 1 && *left_out + 1 < n &&
		pbox_serial_diff(
			s->entry[(count - 1 - *left_out) % PBOX_SCHEDULE].from_round, round) > 0)
		++*left_out;
	return n;
}

static void
take_schedules(struct pbox_snapshot_meta *m, const struct pbox_table *t)
{
	uint32_t at = 0;

	for (unsigned g = 0; g < t->n_groups; g++) {
		const struct pbox_schedule *s = &t->schedule[g];
		uint32_t count = atomic_load_explicit(&s->count, memory_order_relaxed);
		uint32_t left_out, k = remembered(t, g, m->round, &left_out);

		while (k-- > left_out) {
			const struct pbox_schedule_entry *e =
				&s->entry[(count - 1 - k) % PBOX_SCHEDULE];
			struct pbox_hyper h = e->hyper;

			m->entry[at] = (struct pbox_snapshot_entry){
				.from_round = e->from_round,
				.set = e->set,
				.group = (uint16_t)g,
				.has_lr = h.has_lr != 0,
			};
			for (unsigned id = 1; id < PBOX_HYPER_IDS; id++)
				if (pbox_hyper_at(&h, id) != NULL)
					m->entry[at].value[id - 1] = *pbox_hyper_at(&h, id);
			at++;
		}
	}
}

static void
take_tensor(struct pbox_snapshot_tensor *to, const struct pbox_tensor *t)
{
	to->elements = t->elements;
	to->group = t->group;
	snprintf(to->name, sizeof(to->name), "%s", t->name);
}

/* Is a chunk in the file of this box? One of several has a part of the table. */
static bool
has_chunk(const struct pbox_table *t, uint32_t i)
{
	return t->boxes < 2 || t->home[i].box == t->box;
}

/* The i-th of the table, with its segments. */
static void
take_chunk(struct pbox_snapshot_meta *m, const struct pbox_layout *l, uint32_t i,
	struct snapshot_described *d)
{
	const struct pbox_layout_chunk *c = &l->chunk[i];

	m->chunk[d->chunks++] = (struct pbox_snapshot_chunk){
		.elements = c->elements,
		.first_segment = d->segments,
		.segments = c->segments,
		.group = c->group,
	};
	for (uint32_t k = 0; k < c->segments; k++) {
		const struct pbox_segment *x = &l->segment[c->first_segment + k];

		m->segment[d->segments++] = (struct pbox_snapshot_segment){
			.offset = x->offset, .tensor = x->tensor, .elements = x->elements};
	}
}

bool
snapshot_describe_more(struct pbox_snapshot_meta *m, const struct pbox_table_parts *of,
	struct snapshot_described *d)
{
	const struct pbox_table *t = of->t;
	uint32_t all = m->n_tensors + t->n_chunks, before = d->segments, n;

	for (n = 0; n + d->segments - before < SLICE && d->at < all; n++, d->at++) {
		uint32_t i = d->at - m->n_tensors;

		if (d->at < m->n_tensors)
			take_tensor(&m->tensor[d->at], &of->tensor[d->at]);
		else if (i < t->n_chunks && (m->boxes == 0 || m->home[i].box == m->box))
			take_chunk(m, &t->layout, i, d);
	}
	return d->at == all;
}

void
snapshot_describe_copy(struct pbox_snapshot_meta *m, const struct pbox_staging *staging)
{
	for (uint32_t i = 0; i < m->n_fragments; i++)
		m->fragment[i] = (struct pbox_snapshot_fragment){staging->fragment[i].version,
			staging->fragment[i].samples, staging->fragment[i].contributors};
}

/* The part of one box of several. */
static void
describe_boxes(struct pbox_snapshot_meta *m, const struct pbox_table_parts *of)
{
	const struct pbox_table *t = of->t;

	m->box = t->box;
	m->boxes = t->boxes;
	m->map_epoch = of->map_epoch;
	m->n_homes = t->n_chunks;
	m->n_chunks = m->n_segments = 0;
	for (uint32_t i = 0; i < t->n_chunks; i++)
		if (has_chunk(t, i)) {
			m->n_chunks++;
			m->n_segments += t->layout.chunk[i].segments;
		}
}

int
snapshot_describe(struct pbox_snapshot_meta *m, const struct pbox_table_parts *of,
	const struct pbox_staging *staging, uint32_t incarnation)
{
	const struct pbox_table *t = of->t;
	uint32_t left_out;

	*m = (struct pbox_snapshot_meta){
		.table = t->id,
		.round = staging->round,
		.incarnation = incarnation,
		.created_ns = snapshot_real_ns(),
		.run = of->run,
		.workers = of->workers,
		.mode = t->mode,
		.op = t->op,
		.optimiser = t->optimiser,
		.push_format = t->push_format,
		.pull_format = t->pull_format,
		.arrays = (uint8_t)staging->arrays,
		.frag_elements = t->frag_elements,
		.elements = staging->elements,
		.n_tensors = of->n_tensors,
		.n_chunks = t->n_chunks,
		.n_segments = t->layout.n_segments,
		.n_fragments = staging->n_fragments,
		.n_groups = t->n_groups,
	};
	snprintf(m->job, sizeof(m->job), "%s", of->name);
	for (unsigned g = 0; g < t->n_groups; g++)
		m->n_entries += remembered(t, g, m->round, &left_out) - left_out;
	if (t->boxes > 1)
		describe_boxes(m, of);
	if (pbox_snapshot_meta_alloc(m) != 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->n_homes; i++)
		m->home[i] = (struct pbox_snapshot_home){t->home[i].box, t->home[i].epoch};
	take_schedules(m, t);
	return 0;
}

static const char *
different_tensors(const struct pbox_snapshot_meta *m, const struct pbox_table_parts *of, char *text,
	size_t cap)
{
	if (m->n_tensors != of->n_tensors) {
		snprintf(text, cap, "it has %u tensors, the table %u", m->n_tensors, of->n_tensors);
		return text;
	}
	for (uint32_t i = 0; i < m->n_tensors; i++) {
		const struct pbox_snapshot_tensor *a = &m->tensor[i];
		const struct pbox_tensor *b = &of->tensor[i];

		if (a->elements == b->elements && a->group == b->group &&
			strcmp(a->name, b->name) == 0)
			continue;
		snprintf(text, cap,
			"its tensor %u is '%s' with %llu elements in group %u, the table's is '%s' with %llu in group %u",
			i, a->name, (unsigned long long)a->elements, a->group, b->name,
			(unsigned long long)b->elements, b->group);
		return text;
	}
	return NULL;
}

static bool
same_chunk(const struct pbox_snapshot_meta *m, const struct pbox_snapshot_chunk *a,
	const struct pbox_layout *l, uint32_t i)
{
	const struct pbox_layout_chunk *b = &l->chunk[i];

	if (a->elements != b->elements || a->segments != b->segments)
		return false;
	for (unsigned k = 0; k < b->segments; k++) {
		const struct pbox_snapshot_segment *x = &m->segment[a->first_segment + k];
		const struct pbox_segment *y = &l->segment[b->first_segment + k];

		if (x->offset != y->offset || x->tensor != y->tensor || x->elements != y->elements)
			return false;
	}
	return true;
}

static bool
same_chunks(const struct pbox_snapshot_meta *m, const struct pbox_table *t)
{
	uint32_t at = 0;

	if (m->frag_elements != t->frag_elements)
		return false;
	for (uint32_t i = 0; i < t->n_chunks; i++)
		if (has_chunk(t, i) &&
			(at == m->n_chunks || !same_chunk(m, &m->chunk[at++], &t->layout, i)))
			return false;
	return at == m->n_chunks;
}

static const char *
other_homes(const struct pbox_snapshot_meta *m, const struct pbox_table *t, char *text, size_t cap)
{
	if (m->n_homes != t->n_chunks) {
		snprintf(text, cap, "it is of a table of %u chunks, and the table has %u",
			m->n_homes, t->n_chunks);
		return text;
	}
	for (uint32_t i = 0; i < t->n_chunks; i++)
		if (m->home[i].box != t->home[i].box) {
			snprintf(text, cap,
				"it is of another map: chunk %u is at box %u there (map %u), and at box %u now",
				i, m->home[i].box, m->home[i].epoch, t->home[i].box);
			return text;
		}
	return NULL;
}

/* A file of one box of several is for this box, and for the chunks that it has now (R16.16). */
static const char *
different_boxes(
	const struct pbox_snapshot_meta *m, const struct pbox_table *t, char *text, size_t cap)
{
	unsigned boxes = t->boxes < 2 ? 0 : t->boxes;

	if (m->boxes == 0 && boxes == 0)
		return NULL;
	if (m->boxes == 0 || boxes == 0)
		snprintf(text, cap, "it is of a job at %u boxes, and the job is at %u now",
			m->boxes == 0 ? 1u : m->boxes, boxes == 0 ? 1u : boxes);
	else if (m->boxes != boxes || m->box != t->box)
		snprintf(text, cap, "it is of box %u of %u, and this one is box %u of %u", m->box,
			m->boxes, t->box, boxes);
	else if (m->map_epoch != t->begun_map)
		snprintf(text, cap,
			"it is of map %u, and the table has been laid out by map %u: give pbox-ctl restore again, with all files in place",
			m->map_epoch, t->begun_map);
	else
		return other_homes(m, t, text, cap);
	return text;
}

const char *
snapshot_difference(const struct pbox_snapshot_meta *m, const struct pbox_table_parts *of,
	char *text, size_t cap)
{
	const struct pbox_table *t = of->t;

	if (m->mode != t->mode || m->op != t->op) {
		snprintf(text, cap, "its mode and operation are %u and %u, the table's %u and %u",
			m->mode, m->op, t->mode, t->op);
		return text;
	}
	if (m->optimiser != t->optimiser || m->arrays != 1 + pbox_table_states(t)) {
		snprintf(text, cap, "its optimiser is %s, the table's %s",
			pbox_optimiser_name(m->optimiser), pbox_optimiser_name(t->optimiser));
		return text;
	}
	if (m->push_format != t->push_format || m->pull_format != t->pull_format) {
		snprintf(text, cap,
			"its push and pull formats are %u and %u, the table's %u and %u",
			m->push_format, m->pull_format, t->push_format, t->pull_format);
		return text;
	}
	if (different_tensors(m, of, text, cap) != NULL)
		return text;
	if (m->n_groups != t->n_groups)
		return "its groups of hyper-parameters are others";
	if (different_boxes(m, t, text, cap) != NULL)
		return text;
	if (!same_chunks(m, t)) {
		snprintf(text, cap,
			"its %u chunks have fragments of %u elements, the table's %u of %u: the MTU, chunk-bytes or the number of cores has changed",
			m->n_chunks, m->frag_elements, t->n_chunks, t->frag_elements);
		return text;
	}
	return NULL;
}
