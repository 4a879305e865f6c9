/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "kernels.h"

void
avx2_scale(float *dst, float factor, float clip, size_t elems)
{
	__m256 f = _mm256_set1_ps(factor), high = _mm256_set1_ps(clip), low = _mm256_set1_ps(-clip);
	size_t i = 0;

	for (; i + 8 <= elems; i += 8) {
		__m256 x = _mm256_mul_ps(_mm256_loadu_ps(dst + i), f);

		/* of a NaN and a number these give the second operand: NaN stays NaN */
		if (clip > 0.0f)
			x = _mm256_min_ps(high, _mm256_max_ps(low, x));
		_mm256_storeu_ps(dst + i, x);
	}
	pbox_reduce_scalar.scale(dst + i, factor, clip, elems - i);
}

static inline __m128i
avx2_bf16(__m256 x)
{
	__m256i u = _mm256_castps_si256(x), odd, r;
	__m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);

	odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
	r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
	r = _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7FC00000), _mm256_castps_si256(nan));
	r = _mm256_srli_epi32(r, 16);
	return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}

static inline __m128i
avx2_fp16(__m256 x)
{
	/* vcvtps2ph keeps upper bits of a NaN's payload: give it one that has none */
	__m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q),
	       sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f)),
	       quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));

	x = _mm256_blendv_ps(x, _mm256_or_ps(sign, quiet), nan);
	return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

void
avx2_pack(void *dst, enum pbox_format elem, const float *src, size_t elems)
{
	uint8_t *out = dst;
	size_t i = 0;

	if (elem == PBOX_FMT_FP32) {
		memcpy(dst, src, elems * sizeof(*src));
		return;
	}
	for (; i + 8 <= elems; i += 8) {
		__m256 x = _mm256_loadu_ps(src + i);

		_mm_storeu_si128((__m128i *)(void *)(out + i * 2),
			elem == PBOX_FMT_BF16 ? avx2_bf16(x) : avx2_fp16(x));
	}
	pbox_reduce_scalar.pack(out + i * 2, elem, src + i, elems - i);
}

void
avx2_unpack(float *dst, const void *src, enum pbox_format elem, size_t elems)
{
	size_t i = 0;

	if (elem == PBOX_FMT_FP32) {
		memcpy(dst, src, elems * sizeof(*dst));
		return;
	}
	for (; i + 8 <= elems; i += 8)
		_mm256_storeu_ps(dst + i, elem == PBOX_FMT_BF16 ? avx2_load(src, PBOX_FMT_BF16, i)
								: avx2_load(src, PBOX_FMT_FP16, i));
	pbox_reduce_scalar.unpack(dst + i, (const uint8_t *)src + i * 2, elem, elems - i);
}
