/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The optimisers of lib/optim/optim_steps.h, 16 elements at a time. Division and square
 * root are rounded correctly in vectors as well, so the bits are the same. */

#include <immintrin.h>
#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))

#define VECTOR 16
typedef __m512 vec;
typedef __mmask16 lanes;

INLINE lanes
lanes_of(size_t n)
{
	return n < VECTOR ? (lanes)((1u << n) - 1) : 0xFFFF;
}

#define load(p)              _mm512_loadu_ps(p)
#define store(p, x)          _mm512_storeu_ps(p, x)
#define load_lanes(p, m)     _mm512_maskz_loadu_ps(m, p)
#define store_lanes(p, m, x) _mm512_mask_storeu_ps(p, m, x)
#define all(x)               _mm512_set1_ps(x)
#define root(a)              _mm512_sqrt_ps(a)
#define minimum(a, b)        _mm512_min_ps(a, b)
#define maximum(a, b)        _mm512_max_ps(a, b)

static int
avx512_steps_usable(void)
{
	return __builtin_cpu_supports("avx512f");
}

#define NAME   "avx512"
#define RANK   30
#define USABLE avx512_steps_usable
#include <optim_steps.h>

static const struct pbox_optim_ops ops = OPTIM_OPS;

__attribute__((constructor)) static void
enrol(void)
{
	pbox_optim_register(&ops);
}
