/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "racks.h"

/*
 * What must hold. Every bit of every element of every round at every worker is that of R5.2 over all slots of the job, as one flat
 * box would have it; it is computed again here, one element after the other, without lib/reduce. What boxes count is what
 * workers have brought, once. In the end nothing is left anywhere.
 */

/* ---- what workers bring ------------------------------------------------------------------------ */

static uint64_t
key(const struct racks *w, unsigned table, uint32_t round, unsigned slot)
{
	return sim_mix(
		sim_mix(w->sp.seed, (uint64_t)w->life << 32 | table), (uint64_t)slot << 32 | round);
}

/* Sign, an exponent within some powers of two of 1 (so that order matters), random mantissa. */
static float
leaf(const struct racks *w, unsigned table, uint32_t round, unsigned slot, uint32_t tensor,
	uint32_t i)
{
	uint64_t x = sim_mix(key(w, table, round, slot), (uint64_t)tensor << 32 | i);
	uint32_t bits = (uint32_t)(x & 0x807FFFFF) | (119u + (uint32_t)(x >> 40 & 15)) << 23;
	float out;

	if (i % 61 == 7) /* of all workers: a rack that adds zeros would show it */
		bits = 0x80000000;
	if (w->sp.table[table].push == PBOX_FMT_BF16)
		bits &= 0xFFFF0000;
	memcpy(&out, &bits, sizeof(out));
	return out;
}

static uint32_t
samples(const struct racks *w, unsigned table, uint32_t round, unsigned slot)
{
	uint64_t x = key(w, table, round, slot);

	return x % 11 == 0 ? 0 : (uint32_t)(x >> 8 & 63);
}

/* The value of a node of the tree (R5.2a), of which some slots are there; @p weighted  of slots n_i p_i. */
static float
node(const struct racks *w, unsigned table, uint32_t round, unsigned first, unsigned width,
	uint32_t tensor, uint32_t i, bool weighted)
{
	float left, right;

	if (width == 1) {
		uint32_t n = samples(w, table, round, first);
		float x = leaf(w, table, round, first, tensor, i);

		if (!weighted)
			return x;
		return n == 0 ? 0.0f : (float)n * x;
	}
	width /= 2;
	left = node(w, table, round, first, width, tensor, i, weighted);
	if (first + width >= racks_slots(&w->sp))
		return left;
	right = node(w, table, round, first + width, width, tensor, i, weighted);
	return left + right;
}

/* To nearest, ties to even. */
static uint16_t
to_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static void
put(uint8_t *to, uint32_t i, float x, uint8_t format)
{
	uint16_t half = to_bf16(x);

	if (format == PBOX_FMT_FP32)
		memcpy(to + (size_t)i * 4, &x, 4);
	else
		memcpy(to + (size_t)i * 2, &half, 2);
}

void
racks_fill(const struct racks *w, unsigned table, uint32_t round, unsigned first, unsigned width,
	uint32_t tensor, uint8_t *to)
{
	const struct racks_table *t = &w->sp.table[table];

	for (uint32_t i = 0; i < t->elements[tensor]; i++)
		put(to, i, node(w, table, round, first, width, tensor, i, false), t->push);
}

uint32_t
racks_weight(const struct racks *w, unsigned table, uint32_t round, unsigned first, unsigned width)
{
	uint32_t n = 0;

	for (unsigned i = first; i < first + width && i < racks_slots(&w->sp); i++)
		n += samples(w, table, round, i);
	return n;
}

/* ---- what they must get ------------------------------------------------------------------------ */

static float
factor(const struct racks *w, unsigned table, uint32_t round)
{
	unsigned op = w->sp.table[table].op;
	uint64_t n = racks_weight(w, table, round, 0, racks_slots(&w->sp));

	if (op == PBOX_OP_SUM)
		return 1.0f;
	if (op == PBOX_OP_MEAN)
		return (float)(1.0 / racks_slots(&w->sp));
	return n == 0 ? 0.0f : (float)(1.0 / (double)n);
}

/* All tensors of a table, one after the other. */
static const float *
expected(struct racks *w, unsigned table, uint32_t round)
{
	const struct racks_table *t = &w->sp.table[table];
	float **at = &w->expected[table][round], by = factor(w, table, round);
	size_t n = 0, k = 0;
	unsigned width = 1;

	if (*at != NULL)
		return *at;
	while (width < racks_slots(&w->sp))
		width *= 2;
	for (unsigned i = 0; i < t->tensors; i++)
		n += t->elements[i];
	*at = malloc((n + 1) * sizeof(**at));
	PBOX_ASSERT(*at != NULL);
	for (unsigned i = 0; i < t->tensors; i++)
		for (uint32_t e = 0; e < t->elements[i]; e++) {
			float x = node(
				w, table, round, 0, width, i, e, t->op == PBOX_OP_WEIGHTED_MEAN);

			(*at)[k++] = t->op == PBOX_OP_SUM ? x : x * by;
		}
	return *at;
}

void
racks_law_completed(struct racks *w, const struct racks_worker *x, const struct racks_op *o)
{
	const struct racks_table *t = &w->sp.table[o->table];
	const float *all = expected(w, o->table, o->round);
	unsigned size = t->pull == PBOX_FMT_FP32 ? 4 : 2;

	for (unsigned i = 0; i < o->op.n; i++) {
		uint32_t tensor = o->op.e[i].tensor;
		const float *want = all;

		for (uint32_t k = 0; k < tensor; k++)
			want += t->elements[k];
		for (uint32_t e = 0; e < t->elements[tensor]; e++) {
			uint8_t one[4];

			put(one, 0, want[e], t->pull);
			if (memcmp(one, o->op.e[i].out + (size_t)e * size, size) == 0)
				continue;
			racks_fail(w,
				"worker %u: table %u round %u tensor %u element %u is not the sum of all slots",
				x->number, o->table, o->round, tensor, e);
			return;
		}
	}
}

/* ---- what boxes count ---------------------------------------------------------------------------- */

/* Nodes that the workers of a box bring of a fragment. */
static unsigned
nodes_at(const struct racks *w, unsigned box, unsigned table)
{
	unsigned slots = racks_slots(&w->sp), workers = w->sp.workers, n = 0;

	if (box == 0)
		return w->sp.racks;
	if (w->sp.table[table].op == PBOX_OP_WEIGHTED_MEAN)
		return slots / w->sp.racks;
	for (unsigned x = 0; x < workers; x++) {
		unsigned at = x * slots / workers, end = (x + 1) * slots / workers;

		while (racks_box_of(w, x) == box &&
			at < end) { /* the widest node that begins here */
			unsigned width = 1;

			while (at % (2 * width) == 0 && at + 2 * width <= end)
				width *= 2;
			at += width;
			n++;
		}
	}
	return n;
}

static const struct pbox_job *
job_at(const struct racks *w, const struct racks_box *b)
{
	return b->up && w->code->registrar_jobs(b->registrar) > 0
		       ? w->code->registrar_job(b->registrar, 0)
		       : NULL;
}

void
racks_law_mapped(struct racks *w)
{
	for (unsigned i = 0; i <= w->sp.racks && w->exact; i++) {
		struct racks_box *b = &w->box[i];
		const struct pbox_job *job = job_at(w, b);

		if (b->fragments > 0) /* others may have left meanwhile */
			continue;
		for (unsigned t = 0; job != NULL && t < w->sp.tables; t++) {
			const struct pbox_job_table *jt = job->table[t];

			if (jt == NULL || !jt->built) {
				racks_fail(w,
					"box %u has no table %u, and a worker has got its results",
					i, t);
				return;
			}
			b->fragments += jt->t.n_fragments;
			b->expected[0] += (uint64_t)jt->t.n_fragments * w->sp.rounds;
			b->expected[1] +=
				(uint64_t)jt->t.n_fragments * w->sp.rounds * nodes_at(w, i, t);
		}
	}
}

bool
racks_law_empty(const struct racks *w)
{
	for (unsigned i = 0; i <= w->sp.racks; i++)
		if (!w->box[i].up || w->code->registrar_jobs(w->box[i].registrar) > 0 ||
			(w->box[i].uplinks != NULL &&
				w->code->uplinks_pending(w->box[i].uplinks) > 0))
			return false;
	return true;
}

static void
box_end(struct racks *w, const struct racks_box *b)
{
	uint64_t contributions = 0, rounds = 0, refused = 0;

	for (unsigned i = 0; i < b->n_shards; i++) {
		const uint64_t *s = b->shard[i].stats;

		if (b->shard[i].held != 0 || s[PBOX_SS_HELD] != 0 || s[PBOX_SS_ROUNDS_OPEN] != 0)
			racks_fail(w, "box %u, shard %u: %llu packets and %llu rounds are left",
				b->number, i, (unsigned long long)b->shard[i].held,
				(unsigned long long)s[PBOX_SS_ROUNDS_OPEN]);
		contributions += s[PBOX_SS_RX_CONTRIBUTION] - s[PBOX_SS_TAKEN_BACK];
		rounds += s[PBOX_SS_ROUNDS];
		refused += s[PBOX_SS_DROP_NO_RECORD] + s[PBOX_SS_DROP_NO_BUFFER];
	}
	if (pbox_arena_used(b->arena) != 0)
		racks_fail(w, "box %u: %zu bytes are still in use", b->number,
			pbox_arena_used(b->arena));
	if (!w->exact || b->fragments == 0)
		return;
	if (contributions != b->expected[1] || rounds != b->expected[0])
		racks_fail(w,
			"box %u: %llu contributions counted, %llu brought; %llu rounds of %llu",
			b->number, (unsigned long long)contributions,
			(unsigned long long)b->expected[1], (unsigned long long)rounds,
			(unsigned long long)b->expected[0]);
	if (refused != 0)
		racks_fail(w, "box %u: %llu contributions within the window found no room",
			b->number, (unsigned long long)refused);
}

void
racks_law_end(struct racks *w)
{
	for (unsigned i = 0; i <= w->sp.racks && !w->failed; i++)
		box_end(w, &w->box[i]);
}

void
racks_law_forget(struct racks *w)
{
	for (unsigned t = 0; t < RACKS_TABLES; t++)
		for (unsigned r = 0; r <= RACKS_ROUNDS; r++) {
			free(w->expected[t][r]);
			w->expected[t][r] = NULL;
		}
}
