/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "../groups.h"
#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m256
term(const struct group *g, unsigned k, enum pbox_format elem, int weighted, size_t i)
{
	__m256 x = avx2_load(g->src[k], elem, i);

	return weighted ? _mm256_mul_ps(_mm256_broadcast_ss(&g->weight[k]), x) : x;
}

/* What element i starts with when it does not start with source 0 itself. */
INLINE __m256
start(const struct group *g, size_t i)
{
	__m256 x = _mm256_setzero_ps();

	if (g->acc == NULL)
		return x;
	return g->zero ? _mm256_add_ps(_mm256_loadu_ps(g->acc + i), x)
		       : _mm256_loadu_ps(g->acc + i);
}

/* Four vectors at a time through all sources, then one at a time. n and fresh are constants where
 * this is inlined. fresh: the sum starts with source 0. */
INLINE size_t
sum_vectors(float *dst, const struct group *g, size_t elems, enum pbox_format elem, int weighted,
	unsigned n, int fresh)
{
	size_t i = 0;

	for (; i + 32 <= elems; i += 32) {
		__m256 a[4];

		for (unsigned v = 0; v < 4; v++)
			a[v] = fresh ? term(g, 0, elem, weighted, i + 8 * v) : start(g, i + 8 * v);
		for (unsigned k = fresh; k < n; k++)
			for (unsigned v = 0; v < 4; v++)
				a[v] = _mm256_add_ps(a[v], term(g, k, elem, weighted, i + 8 * v));
		for (unsigned v = 0; v < 4; v++)
			_mm256_storeu_ps(dst + i + 8 * v, a[v]);
	}
	for (; i + 8 <= elems; i += 8) {
		__m256 a = fresh ? term(g, 0, elem, weighted, i) : start(g, i);

		for (unsigned k = fresh; k < n; k++)
			a = _mm256_add_ps(a, term(g, k, elem, weighted, i));
		_mm256_storeu_ps(dst + i, a);
	}
	return i;
}

/* The last 7 elements or fewer: the scalar reference adds the same things in the same order. */
static void
sum_rest(float *dst, const struct group *g, size_t done, size_t elems, enum pbox_format elem,
	int weighted)
{
	struct pbox_sources s = {
		.src = (const void *const *)g->src,
		.weight = weighted ? g->weight : NULL,
		.n = g->n,
		.elem = elem,
		.acc = g->acc,
	};

	pbox_reduce_scalar.sum(dst + done, &s, done, elems - done);
	for (size_t i = done; g->zero && i < elems; i++)
		dst[i] = dst[i] + 0.0f;
}

INLINE void
sum_group(float *dst, const struct group *g, size_t elems, enum pbox_format elem, int weighted)
{
	int fresh = g->acc == NULL && !g->zero;
	size_t done;

	if (fresh && g->n == 8)
		done = sum_vectors(dst, g, elems, elem, weighted, 8, 1);
	else if (fresh)
		done = sum_vectors(dst, g, elems, elem, weighted, g->n, 1);
	else
		done = sum_vectors(dst, g, elems, elem, weighted, g->n, 0);
	if (done < elems)
		sum_rest(dst, g, done, elems, elem, weighted);
}

#include "../sum.h"

void
avx2_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems)
{
	groups_sum(dst, s, first, elems, pass_of(s), (struct checked_passes){NULL, NULL});
}
