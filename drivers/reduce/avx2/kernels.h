/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef KERNELS_H
#define KERNELS_H

#include <immintrin.h>

#include <string.h>

#include <pbox_block.h>
#include <pbox_reduce.h>

/** sum.c */
void avx2_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems);
void avx2_add(float *dst, const struct pbox_sources *s, size_t elems);

/** convert.c */
void avx2_scale(float *dst, float factor, float clip, size_t elems);
void avx2_pack(void *dst, enum pbox_format elem, const float *src, size_t elems);
void avx2_unpack(float *dst, const void *src, enum pbox_format elem, size_t elems);

/** block.c */
void avx2_encode(void *dst, enum pbox_format elem, const float *src, float *residual, size_t elems);
void avx2_decode(float *dst, const void *src, enum pbox_format elem, size_t elems);

static inline __attribute__((always_inline)) __m256
avx2_load_int8(const uint8_t *src, size_t i)
{
	const uint8_t *unit = pbox_block_unit(src, PBOX_FMT_INT8, i);
	__m128i q = _mm_loadl_epi64(
		(const __m128i *)(const void *)(unit + PBOX_UNIT_SCALES + i % PBOX_UNIT));

	return _mm256_mul_ps(_mm256_set1_ps(pbox_block_int8_scale(unit)),
		_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)));
}

/** Codes of E2M1 in the lowest 4 bits of each lane. */
static inline __attribute__((always_inline)) __m256
avx2_e2m1(__m256i code)
{
	__m256 sign = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)), value;

	value = _mm256_permutevar8x32_ps(
		_mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f), code);
	return _mm256_or_ps(value, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}

/* i: a multiple of 8 */
static inline __attribute__((always_inline)) __m256
avx2_load_mxfp4(const uint8_t *src, size_t i)
{
	const uint8_t *unit = pbox_block_unit(src, PBOX_FMT_MXFP4, i);
	__m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
	uint32_t codes;

	memcpy(&codes, unit + PBOX_UNIT_SCALES + i % PBOX_UNIT / 2, sizeof(codes));
	return _mm256_mul_ps(
		_mm256_set1_ps(pbox_block_mx_scale(unit[i % PBOX_UNIT / PBOX_MX_BLOCK])),
		avx2_e2m1(_mm256_srlv_epi32(_mm256_set1_epi32((int)codes), shift)));
}

/** 8 elements from element i of src, as fp32. */
static inline __attribute__((always_inline)) __m256
avx2_load(const uint8_t *src, enum pbox_format elem, size_t i)
{
	__m128i h;

	if (elem == PBOX_FMT_INT8)
		return avx2_load_int8(src, i);
	if (elem == PBOX_FMT_MXFP4)
		return avx2_load_mxfp4(src, i);
	if (elem == PBOX_FMT_FP32)
		return _mm256_loadu_ps((const float *)(const void *)(src + i * 4));
	h = _mm_loadu_si128((const __m128i *)(const void *)(src + i * 2));
	if (elem == PBOX_FMT_FP16)
		return _mm256_cvtph_ps(h);
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

#endif /* KERNELS_H */
