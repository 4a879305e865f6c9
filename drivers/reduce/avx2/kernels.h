/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef KERNELS_H
#define KERNELS_H

#include <immintrin.h>

#include <pbox_reduce.h>

/** sum.c */
void avx2_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems);
void avx2_add(float *dst, const struct pbox_sources *s, size_t elems);

/** convert.c */
void avx2_scale(float *dst, float factor, float clip, size_t elems);
void avx2_pack(void *dst, enum pbox_format elem, const float *src, size_t elems);
void avx2_unpack(float *dst, const void *src, enum pbox_format elem, size_t elems);

/** 8 elements from element i of src, as fp32. */
static inline __attribute__((always_inline)) __m256
avx2_load(const uint8_t *src, enum pbox_format elem, size_t i)
{
	__m128i h;

	if (elem == PBOX_FMT_FP32)
		return _mm256_loadu_ps((const float *)(const void *)(src + i * 4));
	h = _mm_loadu_si128((const __m128i *)(const void *)(src + i * 2));
	if (elem == PBOX_FMT_FP16)
		return _mm256_cvtph_ps(h);
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

#endif /* KERNELS_H */
