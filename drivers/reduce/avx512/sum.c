/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES  16
#define ALL    0xFFFF

typedef __m512 vec;
typedef __mmask16 lanes;

INLINE vec
vec_add(vec a, vec b)
{
	return _mm512_add_ps(a, b);
}

INLINE vec
vec_load(const float *p, lanes m)
{
	return _mm512_maskz_loadu_ps(m, p);
}

INLINE void
vec_store(float *p, lanes m, vec x)
{
	_mm512_mask_storeu_ps(p, m, x);
}

INLINE vec
vec_zero(void)
{
	return _mm512_setzero_ps();
}

/* z stays +0.0 while x is finite. In lanes that are not there a block's scale may have made something else of 0. */
INLINE vec
vec_look(vec z, vec x, lanes m)
{
	return _mm512_mask3_fmadd_ps(x, z, z, m);
}

INLINE bool
vec_finite(vec z)
{
	return _mm512_cmp_ps_mask(z, z, _CMP_UNORD_Q) == 0;
}

INLINE vec
term(const struct group *g, unsigned k, enum pbox_format elem, int weighted, size_t i, lanes m)
{
	__m512 x = avx512_load(g->src[k], elem, i, m);

	return weighted ? _mm512_mul_ps(_mm512_set1_ps(g->weight[k]), x) : x;
}

#define SUM_REST(dst, g, done, elems, elem, weighted) \
	sum_part(dst, g, (g)->n, (g)->acc, elem, weighted, done, avx512_lanes((elems) - (done)))
#include "../sum.h"

void
avx512_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems)
{
	groups_sum(dst, s, first, elems, pass_of(s), sum_fp32, avx512_checked(s));
}

void
avx512_add(float *dst, const struct pbox_sources *s, size_t elems)
{
	groups_add(dst, s, elems, add_pass_of(s), avx512_add_checked(s->elem));
}
