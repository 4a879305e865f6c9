/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef KERNELS_H
#define KERNELS_H

#include <immintrin.h>

#include <pbox_block.h>
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

/** block.c */
void avx512_encode(
	void *dst, enum pbox_format elem, const float *src, float *residual, size_t elems);
void avx512_decode(float *dst, const void *src, enum pbox_format elem, size_t elems);

/** The lowest n of 16 lanes. */
static inline __attribute__((always_inline)) __mmask16
avx512_lanes(size_t n)
{
	return n < 16 ? (__mmask16)((1u << n) - 1) : 0xFFFF;
}

static inline __attribute__((always_inline)) __m512
avx512_load_int8(const uint8_t *src, size_t i, __mmask16 m)
{
	const uint8_t *unit = pbox_block_unit(src, PBOX_FMT_INT8, i);
	__m128i q = _mm_maskz_loadu_epi8(m, unit + PBOX_UNIT_SCALES + i % PBOX_UNIT);

	return _mm512_mul_ps(_mm512_set1_ps(pbox_block_int8_scale(unit)),
		_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)));
}

/** The 16 values of E2M1, by code. */
static inline __attribute__((always_inline)) __m512
avx512_e2m1(void)
{
	return _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f,
		-1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
}

/* i: a multiple of 16 */
static inline __attribute__((always_inline)) __m512
avx512_load_mxfp4(const uint8_t *src, size_t i, __mmask16 m)
{
	const uint8_t *unit = pbox_block_unit(src, PBOX_FMT_MXFP4, i);
	const uint8_t *p = unit + PBOX_UNIT_SCALES + i % PBOX_UNIT / 2;
	__m512i code,
		shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
	uint32_t half[2] = {0, 0};

	if (m == 0xFFFF)
		memcpy(half, p, 8);
	else
		memcpy(half, p, ((unsigned)__builtin_popcount(m) + 1) / 2);
	code = _mm512_mask_set1_epi32(_mm512_set1_epi32((int)half[0]), 0xFF00, (int)half[1]);
	/* the lowest 4 bits choose */
	return _mm512_mul_ps(
		_mm512_set1_ps(pbox_block_mx_scale(unit[i % PBOX_UNIT / PBOX_MX_BLOCK])),
		_mm512_permutexvar_ps(_mm512_srlv_epi32(code, shift), avx512_e2m1()));
}

/** Up to 16 elements from element i of src, as fp32; memory of the other lanes is not touched. */
static inline __attribute__((always_inline)) __m512
avx512_load(const uint8_t *src, enum pbox_format elem, size_t i, __mmask16 m)
{
	__m256i h;

	if (elem == PBOX_FMT_INT8)
		return avx512_load_int8(src, i, m);
	if (elem == PBOX_FMT_MXFP4)
		return avx512_load_mxfp4(src, i, m);
	if (elem == PBOX_FMT_FP32)
		return _mm512_maskz_loadu_ps(m, src + i * 4);
	h = _mm256_maskz_loadu_epi16(m, src + i * 2);
	if (elem == PBOX_FMT_FP16)
		return _mm512_cvtph_ps(h);
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

#endif /* KERNELS_H */
