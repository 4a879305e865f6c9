/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "kernels.h"

void
avx512_scale(float *dst, float factor, float clip, size_t elems)
{
	__m512 f = _mm512_set1_ps(factor), high = _mm512_set1_ps(clip), low = _mm512_set1_ps(-clip);

	for (size_t i = 0; i < elems; i += 16) {
		__mmask16 m = avx512_lanes(elems - i);
		__m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, dst + i), f);

		/* of a NaN and a number these give the second operand: NaN stays NaN */
		if (clip > 0.0f)
			x = _mm512_min_ps(high, _mm512_max_ps(low, x));
		_mm512_mask_storeu_ps(dst + i, m, x);
	}
}

/* vcvtneps2bf16 (AVX512_BF16) would be one instruction, but it takes subnormal numbers for zero and
 * keeps the sign and payload of a NaN. */
static inline __m256i
avx512_bf16(__m512 x)
{
	__m512i u = _mm512_castps_si512(x), odd, r;
	__mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

	odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
	r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
	r = _mm512_mask_mov_epi32(r, nan, _mm512_set1_epi32(0x7FC00000));
	return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}

static inline __m256i
avx512_fp16(__m512 x)
{
	/* vcvtps2ph keeps upper bits of a NaN's payload: give it one that has none */
	__mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
	__m512i u = _mm512_castps_si512(x), quiet = _mm512_set1_epi32(0x7FC00000),
		sign = _mm512_and_si512(u, _mm512_set1_epi32(INT32_MIN));

	u = _mm512_mask_or_epi32(u, nan, sign, quiet);
	return _mm512_cvtps_ph(_mm512_castsi512_ps(u), _MM_FROUND_TO_NEAREST_INT);
}

void
avx512_pack(void *dst, enum pbox_format elem, const float *src, size_t elems)
{
	uint8_t *out = dst;

	if (elem == PBOX_FMT_FP32) {
		memcpy(dst, src, elems * sizeof(*src));
		return;
	}
	for (size_t i = 0; i < elems; i += 16) {
		__mmask16 m = avx512_lanes(elems - i);
		__m512 x = _mm512_maskz_loadu_ps(m, src + i);

		_mm256_mask_storeu_epi16(
			out + i * 2, m, elem == PBOX_FMT_BF16 ? avx512_bf16(x) : avx512_fp16(x));
	}
}

void
avx512_unpack(float *dst, const void *src, enum pbox_format elem, size_t elems)
{
	if (elem == PBOX_FMT_FP32) {
		memcpy(dst, src, elems * sizeof(*dst));
		return;
	}
	for (size_t i = 0; i < elems; i += 16) {
		__mmask16 m = avx512_lanes(elems - i);

		_mm512_mask_storeu_ps(dst + i, m,
			elem == PBOX_FMT_BF16 ? avx512_load(src, PBOX_FMT_BF16, i, m)
					      : avx512_load(src, PBOX_FMT_FP16, i, m));
	}
}
