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

#define load(p)              _mm256_loadu_ps(p)
#define store(p, x)          _mm256_storeu_ps(p, x)
#define load_lanes(p, m)     _mm256_maskload_ps(p, m)
#define store_lanes(p, m, x) _mm256_maskstore_ps(p, m, x)
#define all(x)               _mm256_set1_ps(x)
#define root(a)              _mm256_sqrt_ps(a)
#define minimum(a, b)        _mm256_min_ps(a, b)
#define maximum(a, b)        _mm256_max_ps(a, b)

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
