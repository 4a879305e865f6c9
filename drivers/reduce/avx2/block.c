/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* As ../avx512/block.c. A unit of int8 has more than the registers: its first pass finds the largest magnitude, the second one
 * has what it needs in L1. */

#include <math.h>

#include "kernels.h"

#define INLINE    static inline __attribute__((always_inline))
#define LANES     8
#define MAGNITUDE INT32_MAX
#define AHEAD     1024 /* elements that are fetched early */

INLINE __m256
update(const float *src, const float *residual)
{
	__m256 u = _mm256_loadu_ps(src);

	return residual == NULL ? u : _mm256_add_ps(u, _mm256_loadu_ps(residual));
}

/* Of n elements, a constant. */
INLINE uint32_t
largest_of(const float *src, const float *residual, unsigned n)
{
	__m256i largest = _mm256_setzero_si256();
	__m128i four;

	for (unsigned i = 0; i < n; i += LANES) {
		__m256 u = update(src + i, residual == NULL ? NULL : residual + i);

		__builtin_prefetch(src + i + AHEAD);
		if (residual != NULL)
			__builtin_prefetch(residual + i + AHEAD, 1);
		largest = _mm256_max_epu32(largest,
			_mm256_and_si256(_mm256_castps_si256(u), _mm256_set1_epi32(MAGNITUDE)));
	}
	four = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
	four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
	four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xB1));
	return (uint32_t)_mm_cvtsi128_si32(four);
}

/* 8 numbers that fit, to bytes. */
INLINE __m128i
bytes_of(__m256i q)
{
	__m128i w = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));

	return _mm_packs_epi16(w, w);
}

INLINE void
encode_int8(uint8_t *unit, const float *src, float *residual)
{
	uint32_t largest = largest_of(src, residual, PBOX_UNIT);
	float max, scale = 0, by = 0;

	memcpy(&max, &largest, sizeof(max));
	if (largest >= PBOX_BLOCK_HUGE) {
		scale = NAN;
		memcpy(unit, &scale, sizeof(scale));
		memset(unit + PBOX_UNIT_SCALES, 0, PBOX_UNIT);
		return;
	}
	if (largest >= PBOX_INT8_TINY)
		scale = max / 127.0f, by = 127.0f / max;
	memcpy(unit, &scale, sizeof(scale));
	for (unsigned i = 0; i < PBOX_UNIT; i += LANES) {
		__m256 u = update(src + i, residual == NULL ? NULL : residual + i);
		__m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(u, _mm256_set1_ps(by)));

		_mm_storel_epi64((__m128i *)(void *)(unit + PBOX_UNIT_SCALES + i), bytes_of(q));
		if (residual != NULL)
			_mm256_storeu_ps(
				residual + i, _mm256_sub_ps(u, _mm256_mul_ps(_mm256_set1_ps(scale),
								       _mm256_cvtepi32_ps(q))));
	}
}

/* As in ../avx512/block.c. */
INLINE __m256i
magnitude_code(__m256i x)
{
	__m256 big = _mm256_set1_ps(0x1p22f);
	__m256i small, odd, code;

	small = _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(x), big)),
		_mm256_castps_si256(big));
	odd = _mm256_and_si256(_mm256_srli_epi32(x, 22), _mm256_set1_epi32(1));
	code = _mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x1FFFFF)));
	code = _mm256_sub_epi32(_mm256_srli_epi32(code, 22), _mm256_set1_epi32(252));
	code = _mm256_blendv_epi8(
		code, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3F800000), x));
	return _mm256_min_epi32(code, _mm256_set1_epi32(7));
}

INLINE void
store_nibbles(uint8_t *to, __m256i code)
{
	__m128i pairs = _mm_maddubs_epi16(bytes_of(code), _mm_set1_epi16(0x1001));
	uint32_t four = (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(pairs, pairs));

	memcpy(to, &four, sizeof(four));
}

INLINE void
encode_mx(uint8_t *scale, uint8_t *codes, const float *src, float *residual)
{
	uint32_t inverse;
	float by;

	*scale = pbox_block_mx_byte(largest_of(src, residual, PBOX_MX_BLOCK));
	if (*scale == 255) {
		memset(codes, 0, PBOX_MX_BLOCK / 2);
		return;
	}
	inverse = (254u - *scale) << 23;
	memcpy(&by, &inverse, sizeof(by));
	for (unsigned i = 0; i < PBOX_MX_BLOCK; i += LANES) {
		__m256 u = update(src + i, residual == NULL ? NULL : residual + i);
		__m256i x = _mm256_castps_si256(_mm256_mul_ps(u, _mm256_set1_ps(by)));
		__m256i code = magnitude_code(_mm256_and_si256(x, _mm256_set1_epi32(MAGNITUDE)));

		code = _mm256_or_si256(
			code, _mm256_and_si256(_mm256_srli_epi32(x, 28), _mm256_set1_epi32(8)));
		store_nibbles(codes + i / 2, code);
		if (residual != NULL)
			_mm256_storeu_ps(residual + i,
				_mm256_sub_ps(u,
					_mm256_mul_ps(_mm256_set1_ps(pbox_block_mx_scale(*scale)),
						avx2_e2m1(code))));
	}
}

#include "../units.h"

void
avx2_encode(void *dst, enum pbox_format elem, const float *src, float *residual, size_t elems)
{
	encode_all(dst, elem, src, residual, elems);
}

void
avx2_decode(float *dst, const void *src, enum pbox_format elem, size_t elems)
{
	size_t i = 0;

	for (; i + LANES <= elems; i += LANES)
		_mm256_storeu_ps(dst + i, elem == PBOX_FMT_INT8
						  ? avx2_load(src, PBOX_FMT_INT8, i)
						  : avx2_load(src, PBOX_FMT_MXFP4, i));
	pbox_block_take(dst + i, src, elem, NULL, i, elems - i);
}
