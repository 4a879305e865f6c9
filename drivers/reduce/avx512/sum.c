/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m512
term(const struct group *g, unsigned k, enum pbox_format elem, int weighted, size_t i, __mmask16 m)
{
	__m512 x = avx512_load(g->src[k], elem, i, m);

	return weighted ? _mm512_mul_ps(_mm512_set1_ps(g->weight[k]), x) : x;
}

/* What element i starts with when it does not start with source 0 itself. */
INLINE __m512
start(const struct group *g, size_t i, __mmask16 m)
{
	__m512 x = _mm512_setzero_ps();

	if (g->acc == NULL)
		return x;
	return g->zero ? _mm512_add_ps(_mm512_maskz_loadu_ps(m, g->acc + i), x)
		       : _mm512_maskz_loadu_ps(m, g->acc + i);
}

/* Four vectors at a time through all sources, then one at a time, the last one masked. n and fresh
 * are constants where this is inlined. fresh: the sum starts with source 0. */
INLINE void
sum_vectors(float *dst, const struct group *g, size_t elems, enum pbox_format elem, int weighted,
	unsigned n, int fresh)
{
	size_t i = 0;

	for (; i + 64 <= elems; i += 64) {
		__m512 a[4];

		for (unsigned v = 0; v < 4; v++)
			a[v] = fresh ? term(g, 0, elem, weighted, i + 16 * v, 0xFFFF)
				     : start(g, i + 16 * v, 0xFFFF);
		for (unsigned k = fresh; k < n; k++)
			for (unsigned v = 0; v < 4; v++)
				a[v] = _mm512_add_ps(
					a[v], term(g, k, elem, weighted, i + 16 * v, 0xFFFF));
		for (unsigned v = 0; v < 4; v++)
			_mm512_storeu_ps(dst + i + 16 * v, a[v]);
	}
	for (; i < elems; i += 16) {
		__mmask16 m = avx512_lanes(elems - i);
		__m512 a = fresh ? term(g, 0, elem, weighted, i, m) : start(g, i, m);

		for (unsigned k = fresh; k < n; k++)
			a = _mm512_add_ps(a, term(g, k, elem, weighted, i, m));
		_mm512_mask_storeu_ps(dst + i, m, a);
	}
}

INLINE void
sum_group(float *dst, const struct group *g, size_t elems, enum pbox_format elem, int weighted)
{
	int fresh = g->acc == NULL && !g->zero;

	if (fresh && g->n == 8)
		sum_vectors(dst, g, elems, elem, weighted, 8, 1);
	else if (fresh)
		sum_vectors(dst, g, elems, elem, weighted, g->n, 1);
	else
		sum_vectors(dst, g, elems, elem, weighted, g->n, 0);
}

#include "../sum.h"

void
avx512_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems)
{
	groups_sum(dst, s, first, elems, pass_of(s), avx512_checked(s));
}
