/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * CRC32C with carry-less multiplications of 64 bytes at a time, where the CPU has them. A CRC is the residue of a polynomial: CHAINS columns
 * of 64 bytes are folded onto those that follow as far after, until one is left ("Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ", Gopal et al., Intel 2009).
 *
 * Residues are bit-reflected: bit 31 is x^0. A product of two reflected numbers is one bit lower than it should be; exponents
 * of constants make up for it.
 */

#include "crc.h"

size_t crc_vector_least = SIZE_MAX;

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

#define COLUMN     64
#define CHAINS     4 /* a fold takes as long as four begin in */
#define POLYNOMIAL 0x82F63B78u
#define VECTORS    __attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,sse4.2")))
#define UNROLL     _Pragma("GCC unroll 4")
#define INLINE     VECTORS static inline __attribute__((always_inline))

/* What a column is multiplied by; computed at start. */
static struct {
	uint64_t fold[8]; /* to the next one, for both halves of each lane */
	uint64_t far[8];  /* by CHAINS */
	uint64_t last[8]; /* each lane to the end of its column */
} by __attribute__((aligned(64)));

/* x^n modulo P */
static uint32_t
power_of_x(int n)
{
	uint32_t r = 0x80000000u;

	for (; n > 0; n--)
		r = r & 1 ? r >> 1 ^ POLYNOMIAL : r >> 1;
	for (; n < 0; n++)
		r = r & 0x80000000u ? (r ^ POLYNOMIAL) << 1 | 1 : r << 1;
	return r;
}

__attribute__((constructor)) static void
crc_begin(void)
{
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
		!__builtin_cpu_supports("vpclmulqdq") || !__builtin_cpu_supports("pclmul") ||
		!__builtin_cpu_supports("sse4.2"))
		return;
	crc_vector_least = 2 * CHAINS * COLUMN;
	for (int i = 0; i < 8; i++) {
		int half = i % 2 == 0 ? 31 : -33; /* the first of two words has the higher powers */

		by.fold[i] = power_of_x(8 * COLUMN + half);
		by.far[i] = power_of_x(8 * COLUMN * CHAINS + half);
		by.last[i] = power_of_x(128 * (3 - i / 2) + half);
	}
}

/* (a moved by a column or more to the front) + d */
INLINE __m512i
fold_onto(__m512i a, __m512i d, __m512i far)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, far, 0x00),
		_mm512_clmulepi64_epi128(a, far, 0x11), d, 0x96);
}

/* What a column is modulo P, times x^32 as a CRC has it. */
INLINE uint32_t
column_residue(__m512i a)
{
	__m512i last = _mm512_load_si512(by.last);
	__m512i x = _mm512_xor_si512(
		_mm512_clmulepi64_epi128(a, last, 0x00), _mm512_clmulepi64_epi128(a, last, 0x11));
	__m256i y = _mm256_xor_si256(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
	__m128i z = _mm_xor_si128(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
	uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(z));

	return (uint32_t)_mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(z, 1));
}

VECTORS uint32_t
crc_vector(uint32_t crc, const void *buf, size_t len)
{
	const uint8_t *p = buf, *end = p + len;
	__m512i far = _mm512_load_si512(by.far), next = _mm512_load_si512(by.fold), a[CHAINS];
	uint64_t state;

	UNROLL for (unsigned v = 0; v < CHAINS; v++) a[v] = _mm512_loadu_si512(p + v * COLUMN);
	a[0] = _mm512_xor_si512(a[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
	for (p += CHAINS * COLUMN; p + CHAINS * COLUMN <= end; p += CHAINS * COLUMN)
		UNROLL for (unsigned v = 0; v < CHAINS; v++) a[v] =
			fold_onto(a[v], _mm512_loadu_si512(p + v * COLUMN), far);
	UNROLL for (unsigned v = 1; v < CHAINS; v++) a[0] = fold_onto(a[0], a[v], next);
	for (; p + COLUMN <= end; p += COLUMN)
		a[0] = fold_onto(a[0], _mm512_loadu_si512(p), next);
	state = column_residue(a[0]);
	for (uint64_t word; p + sizeof(word) <= end; p += sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		state = _mm_crc32_u64(state, word);
	}
	for (; p < end; p++)
		state = _mm_crc32_u8((uint32_t)state, *p);
	return ~(uint32_t)state;
}

#else

uint32_t
crc_vector(uint32_t crc, const void *buf, size_t len)
{
	(void)buf;
	(void)len;
	return crc;
}

#endif
