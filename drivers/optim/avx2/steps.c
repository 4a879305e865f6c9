/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The optimisers of lib/optim/optim_steps.h, 8 elements at a time. Division and square
 * root are rounded correctly in vectors as well, so the bits are the same. */

#include <immintrin.h>
#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))

#define VECTOR 8
typedef __m256 vec;
typedef __m256i lanes;

INLINE lanes
lanes_of(size_t n)
{
	__m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < VECTOR ? (int)n : VECTOR), i);
}

INLINE vec
load(const float *p)
{
	return _mm256_loadu_ps(p);
}

INLINE void
store(float *p, vec x)
{
	_mm256_storeu_ps(p, x);
}

INLINE vec
load_lanes(const float *p, lanes m)
{
	return _mm256_maskload_ps(p, m);
}

INLINE void
store_lanes(float *p, lanes m, vec x)
{
	_mm256_maskstore_ps(p, m, x);
}

INLINE vec
all(float x)
{
	return _mm256_set1_ps(x);
}

INLINE vec
add(vec a, vec b)
{
	return _mm256_add_ps(a, b);
}

INLINE vec
sub(vec a, vec b)
{
	return _mm256_sub_ps(a, b);
}

INLINE vec
mul(vec a, vec b)
{
	return _mm256_mul_ps(a, b);
}

INLINE vec
divide(vec a, vec b)
{
	return _mm256_div_ps(a, b);
}

INLINE vec
root(vec a)
{
	return _mm256_sqrt_ps(a);
}

INLINE vec
minimum(vec a, vec b)
{
	return _mm256_min_ps(a, b);
}

INLINE vec
maximum(vec a, vec b)
{
	return _mm256_max_ps(a, b);
}

static int
avx2_steps_usable(void)
{
	return __builtin_cpu_supports("avx2");
}

#define NAME   "avx2"
#define RANK   20
#define USABLE avx2_steps_usable
#include <optim_steps.h>

static const struct pbox_optim_ops ops = OPTIM_OPS;

__attribute__((constructor)) static void
enrol(void)
{
	pbox_optim_register(&ops);
}
