/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Formats of blocks (R13.5, R13.6): what the codes of a payload decode to, what error feedback keeps, and where fragments begin,
 * as units begin again in each. As with the other formats, nothing of lib/reduce is used: a mistake there shows here.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_wire.h>

#include "perf.h"

#define MX_BLOCK 32u

/** Magnitudes of E2M1, with the codes 0 to 7. */
static const double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

/** The largest magnitude; infinity: the block is not finite. */
static float
block_largest(const float *u, unsigned n)
{
	float most = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!(fabsf(u[i]) < 0x1p127f))
			return INFINITY;
		most = fmaxf(most, fabsf(u[i]));
	}
	return most;
}

/** The value of a code, by the scale of @p most. */
static float
int8_value(float u, float most)
{
	float code;

	if (most < 0x1p-100f)
		return 0; /* scale and codes are 0 */
	code = rintf(u * (127.0f / most));
	/* a code is an integer: there is no -0 */
	return (most / 127.0f) * (code == 0 ? 0.0f : code);
}

/** In fp64, where neither the quotient nor the product is rounded. */
static float
mx_value(float u, float most)
{
	int e = most > 0 ? ilogbf(most) - 2 : -127;
	double x = ldexp(fabs((double)u), -(e < -127 ? -127 : e));
	unsigned code = 0;

	/* beyond the middle between a code and the next one; of two as near the even one */
	while (code < 7) {
		double middle = (magnitude[code] + magnitude[code + 1]) / 2;

		if (x < middle || (x == middle && code % 2 == 0))
			break;
		code++;
	}
	x = ldexp(magnitude[code], e < -127 ? -127 : e);
	return (float)copysign(x, (double)u);
}

void
block_pass(unsigned format, float *v, float *residual, uint64_t n)
{
	unsigned size = format == PBOX_FMT_INT8 ? PBOX_UNIT : MX_BLOCK;

	for (uint64_t at = 0; at < n; at += size) {
		unsigned m = n - at < size ? (unsigned)(n - at) : size;
		float *x = v + at, *r = residual + at, most;

		for (unsigned i = 0; i < m; i++)
			x[i] += r[i];
		most = block_largest(x, m);
		for (unsigned i = 0; i < m; i++) {
			float u = x[i];

			x[i] = isinf(most)               ? NAN
			       : format == PBOX_FMT_INT8 ? int8_value(u, most)
							 : mx_value(u, most);
			if (!isinf(most))
				r[i] = u - x[i];
		}
	}
}

/* ---- fragments ------------------------------------------------------------------------------------ */

/**
 * R5.9: tensors of a fragment or more have their own; the smaller ones are packed, in order, into as many as they fill. That is so while a
 * chunk has room for all of them: with more, where the box begins the next one depends on its chunk size.
 */
int
blocks_cut(struct blocks *b, const struct model *m, uint32_t fragment, char *err, size_t cap)
{
	unsigned small = 0;

	b->m = m;
	b->fragment = fragment;
	for (unsigned i = 0; i < m->n; i++)
		small += m->tensor[i].elements > 0 && m->tensor[i].elements < fragment;
	if (fragment == 0 || small > PBOX_MAX_SEGMENTS) {
		snprintf(err, cap,
			"%u tensors are smaller than a fragment of %u elements: where more than %u of them are cut depends on the box's chunk-size, so results in a format of blocks cannot be checked: use --check none, or pbox-testps",
			small, fragment, PBOX_MAX_SEGMENTS);
		return -1;
	}
	b->packed = malloc(((uint64_t)small * fragment + 1) * sizeof(*b->packed));
	if (b->packed == NULL) {
		snprintf(err, cap, "no memory for the order of %u tensors", small);
		return -1;
	}
	for (unsigned i = 0; i < m->n; i++)
		for (uint64_t k = 0; m->tensor[i].elements < fragment && k < m->tensor[i].elements;
			k++)
			b->packed[b->n_packed++] = m->first[i] + k;
	return 0;
}

void
blocks_each(const struct blocks *b, unsigned first, unsigned step, blocks_fn *fn, void *arg)
{
	uint64_t number = 0, all;

	for (unsigned i = 0; i <= b->m->n; i++) {
		bool last = i == b->m->n;

		all = last ? b->n_packed : b->m->tensor[i].elements;
		if (!last && all < b->fragment)
			continue;
		for (uint64_t at = 0; at < all; at += b->fragment, number++) {
			uint64_t n = all - at < b->fragment ? all - at : b->fragment;
			struct place p = {.first = last ? 0 : b->m->first[i] + at,
				.scattered = last ? b->packed + at : NULL};

			if (number % step == first)
				fn(arg, p, n);
		}
	}
}
