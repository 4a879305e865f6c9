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

static uint32_t
remembered(const struct pbox_schedule *s)
{
	uint32_t n = atomic_load_explicit(&s->count, memory_order_relaxed);

	return n < PBOX_SCHEDULE ? n : PBOX_SCHEDULE;
}

static void
take_schedules(struct pbox_snapshot_meta *m, const struct pbox_table *t)
{
	uint32_t at = 0;

	for (unsigned g = 0; g < t->n_groups; g++) {
		const struct pbox_schedule *s = &t->schedule[g];
		uint32_t count = atomic_load_explicit(&s->count, memory_order_relaxed);

		for (uint32_t k = remembered(s); k-- > 0;) {
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

/* The i-th of tensors, chunks and segments. */
static void
take_one(struct pbox_snapshot_meta *m, const struct pbox_table_parts *of, uint32_t i)
{
	const struct pbox_layout *l = &of->t->layout;

	if (i < m->n_tensors) {
		take_tensor(&m->tensor[i], &of->tensor[i]);
		return;
	}
	i -= m->n_tensors;
	if (i < m->n_chunks) {
		m->chunk[i] = (struct pbox_snapshot_chunk){
			.elements = l->chunk[i].elements,
			.first_segment = l->chunk[i].first_segment,
			.segments = l->chunk[i].segments,
			.group = l->chunk[i].group,
		};
		return;
	}
	i -= m->n_chunks;
	m->segment[i] = (struct pbox_snapshot_segment){
		.offset = l->segment[i].offset,
		.tensor = l->segment[i].tensor,
		.elements = l->segment[i].elements,
	};
}

bool
snapshot_describe_more(
	struct pbox_snapshot_meta *m, const struct pbox_table_parts *of, uint32_t *at)
{
	uint32_t all = m->n_tensors + m->n_chunks + m->n_segments;

	for (unsigned n = 0; n < SLICE && *at < all; n++)
		take_one(m, of, (*at)++);
	return *at == all;
}

void
snapshot_describe_copy(struct pbox_snapshot_meta *m, const struct pbox_staging *staging)
{
	for (uint32_t i = 0; i < m->n_fragments; i++)
		m->fragment[i] = (struct pbox_snapshot_fragment){staging->fragment[i].version,
			staging->fragment[i].samples, staging->fragment[i].contributors};
}

int
snapshot_describe(struct pbox_snapshot_meta *m, const struct pbox_table_parts *of,
	const struct pbox_staging *staging, uint32_t incarnation)
{
	const struct pbox_table *t = of->t;

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
		m->n_entries += remembered(&t->schedule[g]);
	if (pbox_snapshot_meta_alloc(m) != 0)
		return -ENOMEM;
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
same_chunks(const struct pbox_snapshot_meta *m, const struct pbox_table *t)
{
	if (m->n_chunks != t->n_chunks || m->n_segments != t->layout.n_segments ||
		m->frag_elements != t->frag_elements)
		return false;
	for (uint32_t i = 0; i < m->n_chunks; i++)
		if (m->chunk[i].elements != t->layout.chunk[i].elements ||
			m->chunk[i].segments != t->layout.chunk[i].segments)
			return false;
	for (uint32_t i = 0; i < m->n_segments; i++) {
		const struct pbox_segment *s = &t->layout.segment[i];

		if (m->segment[i].offset != s->offset || m->segment[i].tensor != s->tensor ||
			m->segment[i].elements != s->elements)
			return false;
	}
	return true;
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
	if (!same_chunks(m, t)) {
		snprintf(text, cap,
			"its %u chunks have fragments of %u elements, the table's %u of %u: the MTU, chunk-bytes or the number of cores has changed",
			m->n_chunks, m->frag_elements, t->n_chunks, t->frag_elements);
		return text;
	}
	return NULL;
}
