/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Formats of blocks, a whole unit at a time: it is read, encoded and its residual written while it is in registers. What
 * is after the last whole unit the scalar reference does. */

#include <math.h>

#include "kernels.h"

#define INLINE    static inline __attribute__((always_inline))
#define UNROLL    _Pragma("GCC unroll 8")
#define LANES     16
#define IN_UNIT   (PBOX_UNIT / LANES)
#define IN_BLOCK  (PBOX_MX_BLOCK / LANES)
#define MAGNITUDE INT32_MAX
#define AHEAD     1024 /* elements that are fetched early */

/* vectors: a constant */
INLINE uint32_t
take(__m512 *u, const float *src, const float *residual, unsigned vectors)
{
	__m512i largest = _mm512_setzero_si512();

	UNROLL for (unsigned v = 0; v < vectors; v++)
	{
		u[v] = _mm512_loadu_ps(src + v * LANES);
		__builtin_prefetch(src + v * LANES + AHEAD);
		if (residual != NULL) {
			__builtin_prefetch(residual + v * LANES + AHEAD, 1);
			u[v] = _mm512_add_ps(u[v], _mm512_loadu_ps(residual + v * LANES));
		}
		largest = _mm512_max_epu32(largest,
			_mm512_and_si512(_mm512_castps_si512(u[v]), _mm512_set1_epi32(MAGNITUDE)));
	}
	return _mm512_reduce_max_epu32(largest);
}

INLINE void
encode_int8(uint8_t *unit, const float *src, float *residual)
{
	__m512 u[IN_UNIT];
	uint32_t largest = take(u, src, residual, IN_UNIT);
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
	UNROLL for (unsigned v = 0; v < IN_UNIT; v++)
	{
		__m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(u[v], _mm512_set1_ps(by)));

		_mm_storeu_si128((__m128i *)(void *)(unit + PBOX_UNIT_SCALES + v * LANES),
			_mm512_cvtepi32_epi8(q));
		if (residual != NULL)
			_mm512_storeu_ps(residual + v * LANES,
				_mm512_sub_ps(u[v], _mm512_mul_ps(_mm512_set1_ps(scale),
							    _mm512_cvtepi32_ps(q))));
	}
}

/* Codes of x, at most 8, without the sign. Below 1 the FPU rounds to halves where it adds 2^22; from there on the exponent
 * and the highest bit of the fraction are the code. */
INLINE __m512i
magnitude_code(__m512i x)
{
	__m512 big = _mm512_set1_ps(0x1p22f);
	__m512i small, odd, code;

	small = _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(x), big)),
		_mm512_castps_si512(big));
	odd = _mm512_and_si512(_mm512_srli_epi32(x, 22), _mm512_set1_epi32(1));
	code = _mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x1FFFFF)));
	code = _mm512_sub_epi32(_mm512_srli_epi32(code, 22), _mm512_set1_epi32(252));
	code = _mm512_mask_mov_epi32(
		code, _mm512_cmplt_epi32_mask(x, _mm512_set1_epi32(0x3F800000)), small);
	return _mm512_min_epi32(code, _mm512_set1_epi32(7));
}

INLINE void
store_nibbles(uint8_t *to, __m512i code)
{
	__m128i pairs = _mm_maddubs_epi16(_mm512_cvtepi32_epi8(code), _mm_set1_epi16(0x1001));

	_mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(pairs, pairs));
}

INLINE void
encode_mx(uint8_t *scale, uint8_t *codes, const float *src, float *residual)
{
	__m512 u[IN_BLOCK], value;
	uint32_t inverse;
	float by;

	*scale = pbox_block_mx_byte(take(u, src, residual, IN_BLOCK));
	if (*scale == 255) {
		memset(codes, 0, PBOX_MX_BLOCK / 2);
		return;
	}
	inverse = (254u - *scale) << 23;
	memcpy(&by, &inverse, sizeof(by));
	value = _mm512_set1_ps(pbox_block_mx_scale(*scale));
	UNROLL for (unsigned v = 0; v < IN_BLOCK; v++)
	{
		__m512i x = _mm512_castps_si512(_mm512_mul_ps(u[v], _mm512_set1_ps(by)));
		__m512i code = magnitude_code(_mm512_and_si512(x, _mm512_set1_epi32(MAGNITUDE)));

		code = _mm512_or_si512(
			code, _mm512_and_si512(_mm512_srli_epi32(x, 28), _mm512_set1_epi32(8)));
		store_nibbles(codes + v * LANES / 2, code);
		if (residual != NULL)
			_mm512_storeu_ps(residual + v * LANES,
				_mm512_sub_ps(u[v], _mm512_mul_ps(value, _mm512_permutexvar_ps(code,
										 avx512_e2m1()))));
	}
}

#include "../units.h"

void
avx512_encode(void *dst, enum pbox_format elem, const float *src, float *residual, size_t elems)
{
	encode_all(dst, elem, src, residual, elems);
}

void
avx512_decode(float *dst, const void *src, enum pbox_format elem, size_t elems)
{
	for (size_t i = 0; i < elems; i += LANES) {
		__mmask16 m = avx512_lanes(elems - i);

		_mm512_mask_storeu_ps(dst + i, m,
			elem == PBOX_FMT_INT8 ? avx512_load(src, PBOX_FMT_INT8, i, m)
					      : avx512_load(src, PBOX_FMT_MXFP4, i, m));
	}
}
