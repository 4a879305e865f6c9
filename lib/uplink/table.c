/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Tables of the rack as the upper box gets them: a tensor for each fragment. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "uplink_impl.h"

/* R5.1a */
#define TENSORS_MAX (1u << 20)

static void
table_destroy(struct uplink_table *t)
{
	if (t == NULL)
		return;
	free(t->first);
	free(t->begun);
	free(t->tensor);
	free(t);
}

void
uplink_tables_free(struct pbox_uplink *u)
{
	for (uint32_t i = 0; i < u->n_tables; i++)
		table_destroy(u->table[i]);
	free(u->table);
}

/* The rack's sum of weighted contributions is one over samples: the box above has nothing to multiply. The mean is one over
 * slots, and it counts those. */
static uint8_t
op_above(uint8_t op)
{
	return op == PBOX_OP_WEIGHTED_MEAN ? PBOX_OP_SAMPLE_MEAN : op;
}

static struct uplink_table *
table_create(const struct pbox_table *from, bool restored)
{
	struct uplink_table *t = calloc(1, sizeof(*t));
	uint32_t n = 0;

	if (t == NULL)
		return NULL;
	for (uint32_t i = 0; i < from->n_chunks; i++)
		n += from->chunk[i].fragments;
	t->number = from->id;
	t->restored = restored;
	t->op = op_above(from->op);
	t->frag_elements = from->frag_elements;
	t->n = n;
	t->n_chunks = from->n_chunks;
	t->first = calloc(from->n_chunks + 1u, sizeof(*t->first));
	t->begun = calloc((n + 63) / 64 + 1, sizeof(*t->begun));
	t->tensor = calloc(n + 1u, sizeof(*t->tensor));
	if (t->first == NULL || t->begun == NULL || t->tensor == NULL) {
		table_destroy(t);
		return NULL;
	}
	for (uint32_t i = 0; i < from->n_chunks; i++)
		t->first[i + 1] = t->first[i] + from->chunk[i].fragments;
	for (uint32_t i = 0; i < n; i++)
		t->tensor[i].elements = from->frag_elements;
	/* nothing else of it is compared above, where all racks declare fp32 and fragments */
	snprintf(t->meaning, sizeof(t->meaning), "workers push %s, pull %s, %s, tensors %08x",
		pbox_format_name(from->push_format), pbox_format_name(from->pull_format),
		pbox_op_name(from->op), from->tensors_crc);
	if (n > 0)
		t->tensor[0].name = t->meaning;
	t->what = (struct pbox_client_table){
		.size = sizeof(t->what),
		.mode = PBOX_MODE_ALLREDUCE,
		.op = t->op,
		.optimiser = PBOX_OPT_NONE,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = n,
		.tensors = t->tensor,
		/* a rack's box has no state: its workers do */
		.first_round = PBOX_CLIENT_ROUND_ANY,
	};
	return t;
}

int
pbox_uplink_table(
	struct pbox_uplink *u, const struct pbox_table *t, bool restored, struct pbox_error *err)
{
	struct uplink_table **grown, *x;

	if (t->n_fragments > TENSORS_MAX)
		return pbox_fail(err, EOPNOTSUPP,
			"table %u has %llu fragments, and a rack sends %u at most up: raise the MTU, or declare several tables",
			t->id, (unsigned long long)t->n_fragments, TENSORS_MAX);
	grown = realloc(u->table, (u->n_tables > t->id ? u->n_tables : t->id + 1) * sizeof(*grown));
	if (grown != NULL)
		u->table = grown;
	x = table_create(t, restored);
	if (grown == NULL || x == NULL) {
		table_destroy(x);
		return pbox_fail(err, ENOMEM, "no memory for table %u at the uplink", t->id);
	}
	while (u->n_tables <= t->id)
		u->table[u->n_tables++] = NULL;
	table_destroy(u->table[t->id]);
	u->table[t->id] = x;
	x->state = TABLE_WAITS;
	return 0;
}

int
pbox_uplink_table_state(const struct pbox_uplink *u, uint32_t table, struct pbox_error *err)
{
	const struct uplink_table *t = table < u->n_tables ? u->table[table] : NULL;

	if (u->failed)
		return pbox_fail(err, EIO, "%s", u->error);
	if (t == NULL || t->state == TABLE_WAITS || t->state == TABLE_ASKED)
		return 0;
	if (t->state == TABLE_REFUSED)
		return pbox_fail(err, EIO, "the upper box: %s", t->d.err.text);
	return 1;
}

/* Each tensor must have fragments of its own there: of two that share one, each would wait for the other. */
static void
table_mapped(struct pbox_uplink *u, struct uplink_table *t)
{
	struct pbox_worker_table_info info;

	pbox_worker_table_info(t->d.table, &info);
	if (info.frag_elements > t->frag_elements) {
		uplink_fail(u,
			"table %u has fragments of %u elements at the upper box, and of %u in this rack: the MTU between the boxes is the larger one, set mtu of the rack's job or port there",
			t->number, info.frag_elements, t->frag_elements);
		return;
	}
	t->state = TABLE_MAPPED;
}

void
uplink_tables_step(struct pbox_uplink *u)
{
	while (!u->failed && u->asked < u->n_tables && u->table[u->asked] != NULL) {
		struct uplink_table *t = u->table[u->asked];

		if (t->state == TABLE_WAITS) {
			t->d = (struct pbox_worker_declaration){
				.what = &t->what, .restores = t->restored, .own_rounds = true};
			t->state = TABLE_ASKED;
			pbox_worker_declare(u->w, &t->d);
		}
		if (t->state == TABLE_ASKED && t->d.state == PBOX_WORKER_DECLARING)
			return;
		if (t->d.state == PBOX_WORKER_DECLARED)
			table_mapped(u, t);
		else
			uplink_fail(u, "table %u at the upper box: %s", t->number, t->d.err.text);
		u->asked++;
	}
}

void
pbox_uplink_restored(struct pbox_uplink *u, const struct pbox_table *from)
{
	struct uplink_table *t = from->id < u->n_tables ? u->table[from->id] : NULL;

	if (u->failed || u->left)
		return;
	PBOX_ASSERT(t != NULL && t->state == TABLE_MAPPED && t->restored);
	for (uint32_t i = 0; i < from->n_chunks; i++) {
		const struct pbox_chunk *c = &from->chunk[i];

		for (unsigned k = 0; k < c->fragments; k++) {
			const struct pbox_fragment *f = &c->fragment[k];
			const struct pbox_worker_tensor_result holds = {.version = f->version,
				.samples = f->samples,
				.contributors = f->contributors};

			pbox_worker_tensor_holds(t->d.table, uplink_tensor(t, i, k), &holds,
				f->has_result != 0 ? pbox_chunk_frag_param(from, c, k) : NULL,
				pbox_chunk_frag_elements(from, c, k));
		}
	}
	pbox_worker_table_told(t->d.table);
}

uint32_t
uplink_tensor(const struct uplink_table *t, uint32_t chunk, unsigned frag)
{
	PBOX_ASSERT(chunk < t->n_chunks && t->first[chunk] + frag < t->first[chunk + 1]);
	return t->first[chunk] + frag;
}
