/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A result against what it must be: the one pass over its payload. */

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "compare.h"

#define LINE  64
#define CHUNK 1024 /* bytes; hardware does not ask ahead across pages of 4 KiB */

bool
compare_plain(const uint8_t *a, const uint8_t *b, uint32_t n, const uint8_t *ahead)
{
	for (uint32_t at = 0; at < n; at += CHUNK) {
		uint32_t part = n - at < CHUNK ? n - at : CHUNK;

		for (uint32_t i = at; i < at + part; i += LINE)
			__builtin_prefetch(ahead + i);
		if (memcmp(a + at, b + at, part) != 0)
			return false;
	}
	return true;
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bw"))) static inline __m512i
differences(__m512i d, const uint8_t *a, const uint8_t *b)
{
	return _mm512_ternarylogic_epi64(
		d, _mm512_loadu_si512(a), _mm512_loadu_si512(b), 0xF6); /* d | (a ^ b) */
}

__attribute__((target("avx512f,avx512bw"))) static bool
compare_avx512(const uint8_t *a, const uint8_t *b, uint32_t n, const uint8_t *ahead)
{
	__m512i d = _mm512_setzero_si512(), e = d;
	uint32_t i = 0;

	for (; n - i >= 2 * LINE; i += 2 * LINE) {
		__builtin_prefetch(ahead + i);
		__builtin_prefetch(ahead + i + LINE);
		d = differences(d, a + i, b + i);
		e = differences(e, a + i + LINE, b + i + LINE);
	}
	for (; i < n; i += LINE) {
		__mmask64 m = n - i < LINE ? ((__mmask64)1 << (n - i)) - 1 : ~(__mmask64)0;

		__builtin_prefetch(ahead + i);
		d = _mm512_ternarylogic_epi64(d, _mm512_maskz_loadu_epi8(m, a + i),
			_mm512_maskz_loadu_epi8(m, b + i), 0xF6);
	}
	d = _mm512_or_si512(d, e);
	return _mm512_test_epi64_mask(d, d) == 0;
}
#endif

compare_fn *
compare_select(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
		return compare_avx512;
#endif
	return compare_plain;
}
