/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What slots bring, and what results must be. There is one row of random numbers, and each slot brings a piece of it that begins
 * SHIFT elements after that of the slot before; rounds and tensors have one of SEEDS beginnings. So the sum over some slots in
 * succession is one row, too, whichever slot is the first: it is made once for each number of slots, along the tree of R5.2a, and all
 * workers send from there. In rounds a result must have each bit of the sum over all slots, or of the parameters that one step with
 * it makes. In clocks sums come in any order: numbers are -1, 0 and 1, whose sums are exact.
 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

#define EXACT 16777216.0 /* whole numbers up to that are fp32 */

static unsigned
seed_of(unsigned tensor, uint32_t round)
{
	return (round * 5 + tensor * 7) % SEEDS;
}

static float *
row_new(const struct library *b, unsigned slots, size_t *n)
{
	*n = b->longest + (size_t)SHIFT * (b->slots - slots + SEEDS);
	return aligned_alloc(64, (*n * sizeof(float) + 63) & ~(size_t)63);
}

/* The sums over so many slots. */
static const float *
row_of(struct library *b, unsigned slots)
{
	unsigned half = 1;
	const float *one, *other;
	float *row;
	size_t n;

	if (b->sum[slots] != NULL)
		return b->sum[slots];
	while (half * 2 < slots)
		half *= 2;
	one = row_of(b, half);
	other = row_of(b, slots - half);
	row = one != NULL && other != NULL ? row_new(b, slots, &n) : NULL;
	if (row == NULL)
		return NULL;
	for (size_t i = 0; i < n; i++)
		row[i] = one[i] + other[i + (size_t)SHIFT * half];
	return b->sum[slots] = row;
}

const float *
library_data(struct library *b, unsigned tensor, uint32_t round, unsigned first, unsigned slots)
{
	const float *row = row_of(b, slots);

	return row != NULL ? row + (size_t)SHIFT * (first + seed_of(tensor, round)) : NULL;
}

const float *
library_init(const struct library *b, unsigned tensor)
{
	return b->sum[1] + (size_t)SHIFT * (tensor % SEEDS);
}

int
library_data_make(struct lane *l, struct pbox_error *err)
{
	const struct testps *t = l->t;
	struct library *b = l->library;
	struct pbox_random r;
	struct plan whole = {0};
	const struct data how = {.optimiser = t->now.optimiser, .pull = PBOX_FMT_FP32};
	size_t n;

	b->slots = t->opt.slots != 0 ? t->opt.slots : t->workers;
	b->at = calloc(t->model.n + 1, sizeof(*b->at));
	b->crc = calloc((size_t)t->model.n * SEEDS, sizeof(*b->crc));
	b->known = calloc((size_t)t->model.n * SEEDS, sizeof(*b->known));
	for (unsigned i = 0; b->at != NULL && i < t->model.n; i++) {
		b->at[i + 1] = b->at[i] + ((t->model.tensor[i].elements + 15) & ~UINT64_C(15));
		b->longest = RTE_MAX(b->longest, t->model.tensor[i].elements);
	}
	b->sum[1] = row_new(b, 1, &n);
	if (b->at == NULL || b->crc == NULL || b->known == NULL || b->sum[1] == NULL)
		return pbox_fail(err, ENOMEM, "no memory for gradients: use a smaller model");
	b->elements = b->at[t->model.n];
	pbox_random_seed(&r, 20262);
	for (size_t i = 0; i < n; i++)
		b->sum[1][i] = t->opt.discipline == PBOX_DISCIPLINE_CLOCK
				       ? (float)pbox_random_below(&r, 3) - 1
				       : (float)pbox_random_unit(&r) - 0.5f;
	if (t->now.optimiser == PBOX_OPT_NONE || t->opt.discipline == PBOX_DISCIPLINE_CLOCK ||
		t->opt.no_check)
		return 0;
	whole.elements = b->elements;
	if (reference_make(&b->reference, &how, &whole, err) != 0)
		return -ENOMEM;
	for (unsigned i = 0; i < t->model.n; i++)
		memcpy(b->reference.param + b->at[i], library_init(b, i),
			t->model.tensor[i].elements * sizeof(float));
	b->stepped = b->base;
	return 0;
}

void
library_data_free(struct library *b)
{
	for (unsigned i = 0; i <= PBOX_MAX_SLOTS; i++)
		free(b->sum[i]);
	free(b->at);
	free(b->crc);
	free(b->known);
	reference_free(&b->reference);
}

static uint32_t
crc_of(const float *x, uint64_t n)
{
	return pbox_crc32c(0, x, n * sizeof(*x));
}

/* The parameters after the round that follows. */
static void
library_step(struct lane *l, const float *sum, unsigned tensor, uint32_t round)
{
	struct library *b = l->library;
	struct reference *m = &b->reference;
	uint64_t at = b->at[tensor], n = l->t->model.tensor[tensor].elements;
	const void *src = sum;
	const struct pbox_sources s = {.src = &src, .n = 1, .elem = PBOX_FMT_FP32};
	struct pbox_update u = {.reduce = &pbox_reduce_scalar,
		.optim = &pbox_optim_scalar,
		.kind = l->t->now.optimiser,
		.k = &m->k,
		.factor = (float)(1.0 / b->slots),
		.wire_elem = PBOX_FMT_FP32,
		.param = m->param + at,
		.s0 = m->s0 != NULL ? m->s0 + at : NULL,
		.s1 = m->s1 != NULL ? m->s1 + at : NULL};

	if (m->k_round != round) {
		pbox_optim_scalars(&m->k, &m->hyper, l->t->now.optimiser, round);
		m->k_round = round;
	}
	pbox_optim_update(&u, &s, n);
	b->crc[tensor * SEEDS + round % SEEDS] = crc_of(m->param + at, n);
}

/* Of clocks: what all pushes up to that clock make of it. Not finite: sums as large as that are not exact. */
static uint32_t
settled_crc(struct lane *l, unsigned tensor, uint32_t round)
{
	struct library *b = l->library;
	const float *init = library_init(b, tensor);
	uint64_t n = l->t->model.tensor[tensor].elements;
	uint32_t crc = 0, times[SEEDS] = {0};

	for (uint32_t r = 0; r < SEEDS; r++) /* rounds 1 to `round` */
		times[seed_of(tensor, r + 1)] += round / SEEDS + (r < round % SEEDS);
	for (uint64_t i = 0; i < n; i++) {
		const float *all = row_of(b, b->slots) + i;
		double v = init[i];
		float x;

		for (unsigned s = 0; s < SEEDS; s++)
			v += (double)times[s] * all[SHIFT * s];
		if (fabs(v) > EXACT)
			lane_fail(l,
				"sums of so many pushes are not exact in fp32: take fewer --rounds, or --no-check");
		x = (float)v;
		crc = pbox_crc32c(crc, &x, sizeof(x));
	}
	return crc;
}

/* By tensor, as b->crc has it. */
static uint32_t
crc_wanted(struct lane *l, unsigned tensor, uint32_t round)
{
	const struct testps *t = l->t;
	struct library *b = l->library;
	unsigned i = tensor * SEEDS + seed_of(tensor, round);

	if (t->opt.discipline == PBOX_DISCIPLINE_CLOCK || b->reference.param != NULL)
		return b->crc[tensor * SEEDS + round % SEEDS];
	if (!b->known[i])
		b->crc[i] = crc_of(library_data(b, tensor, round, 0, b->slots),
			t->model.tensor[tensor].elements);
	b->known[i] = true;
	return b->crc[i];
}

/* All rounds up to that one. */
static void
step_to(struct lane *l, uint32_t round)
{
	struct library *b = l->library;

	if (l->t->opt.discipline == PBOX_DISCIPLINE_CLOCK) {
		for (unsigned i = 0; b->stepped != round && i < l->t->model.n; i++)
			b->crc[i * SEEDS + round % SEEDS] = settled_crc(l, i, round);
		b->stepped = round;
	}
	for (; b->reference.param != NULL && (int32_t)(round - b->stepped) > 0; b->stepped++)
		for (unsigned i = 0; i < l->t->model.n; i++)
			library_step(l, library_data(b, i, b->stepped + 1, 0, b->slots), i,
				b->stepped + 1);
}

int
library_wrong(struct lane *l, const float *out, uint32_t round, unsigned *first)
{
	const struct model *m = &l->t->model;
	struct library *b = l->library;
	int wrong = 0;

	if (row_of(b, b->slots) == NULL) {
		lane_fail(l, "no memory for the sums over %u slots: use a smaller model", b->slots);
		return -1;
	}
	step_to(l, round);
	if (b->reference.param != NULL && b->stepped - round >= SEEDS)
		return -1;
	for (unsigned i = m->n; i-- > 0;)
		if (crc_of(out + b->at[i], m->tensor[i].elements) != crc_wanted(l, i, round)) {
			*first = i;
			wrong++;
		}
	return wrong;
}
