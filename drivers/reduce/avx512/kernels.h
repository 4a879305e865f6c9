/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef KERNELS_H
#define KERNELS_H

#include <immintrin.h>

#include <pbox_reduce.h>

#include "../groups.h"

/** sum.c */
void avx512_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems);

void avx512_add(float *dst, const struct pbox_sources *s, size_t elems);

/** checked.c; none without VPCLMULQDQ */
struct checked_passes avx512_checked(const struct pbox_sources *s);
group_sum_checked avx512_add_checked(enum pbox_format elem);

/** convert.c */
void avx512_scale(float *dst, float factor, float clip, size_t elems);
void avx512_pack(void *dst, enum pbox_format elem, const float *src, size_t elems);
void avx512_unpack(float *dst, const void *src, enum pbox_format elem, size_t elems);

/** The lowest n of 16 lanes. */
static inline __attribute__((always_inline)) __mmask16
avx512_lanes(size_t n)
{
	return n < 16 ? (__mmask16)((1u << n) - 1) : 0xFFFF;
}

/** Up to 16 elements from element i of src, as fp32; memory of the other lanes is not touched. */
static inline __attribute__((always_inline)) __m512
avx512_load(const uint8_t *src, enum pbox_format elem, size_t i, __mmask16 m)
{
	__m256i h;

	if (elem == PBOX_FMT_FP32)
		return _mm512_maskz_loadu_ps(m, src + i * 4);
	h = _mm256_maskz_loadu_epi16(m, src + i * 2);
	if (elem == PBOX_FMT_FP16)
		return _mm512_cvtph_ps(h);
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

#endif /* KERNELS_H */
