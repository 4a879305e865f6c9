/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "../groups.h"
#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES  8
#define ALL    0

typedef __m256 vec;
typedef int lanes; /* always all */

INLINE vec
vec_add(vec a, vec b)
{
	return _mm256_add_ps(a, b);
}

INLINE vec
vec_load(const float *p, lanes m)
{
	(void)m;
	return _mm256_loadu_ps(p);
}

INLINE void
vec_store(float *p, lanes m, vec x)
{
	(void)m;
	_mm256_storeu_ps(p, x);
}

INLINE vec
vec_zero(void)
{
	return _mm256_setzero_ps();
}

/* Not every CPU with AVX2 multiplies and adds in one instruction. */
INLINE vec
vec_look(vec z, vec x, lanes m)
{
	(void)m;
	return _mm256_add_ps(_mm256_mul_ps(x, z), z);
}

INLINE bool
vec_finite(vec z)
{
	return _mm256_movemask_ps(_mm256_cmp_ps(z, z, _CMP_UNORD_Q)) == 0;
}

INLINE vec
term(const struct group *g, unsigned k, enum pbox_format elem, int weighted, size_t i, lanes m)
{
	__m256 x = avx2_load(g->src[k], elem, i);

	(void)m;
	return weighted ? _mm256_mul_ps(_mm256_set1_ps(g->weight[k]), x) : x;
}

/* The last 7 elements or fewer: the scalar reference adds the same things in the same order. */
static bool
sum_rest(float *dst, const struct group *g, size_t done, size_t elems, enum pbox_format elem,
	int weighted)
{
	bool finite = true;
	struct pbox_sources s = {
		.src = (const void *const *)g->src,
		.weight = weighted ? g->weight : NULL,
		.n = g->n,
		.elem = elem,
		.finite = &finite,
		.acc = &g->acc,
		.n_acc = g->acc != NULL,
		.base = g->acc != NULL ? GROUP_MAX : 0,
	};

	pbox_reduce_scalar.sum(dst + done, &s, done, elems - done);
	return finite;
}

#define SUM_REST sum_rest
#include "../sum.h"

void
avx2_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems)
{
	groups_sum(dst, s, first, elems, pass_of(s), sum_fp32, (struct checked_passes){NULL, NULL});
}

void
avx2_add(float *dst, const struct pbox_sources *s, size_t elems)
{
	groups_add(dst, s, elems, add_pass_of(s), NULL);
}
