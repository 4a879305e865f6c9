/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_CRC_FOLD_H
#define PBOX_CRC_FOLD_H

/**
 * @file
 * Steps of a CRC32C by carry-less multiplications of 64 bytes, a column, for x86_64 CPUs that have them: of pbox_crc32c(), and of sums
 * that verify their sources on the way. A CRC is the residue of a polynomial ("Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ", Gopal et al., Intel 2009).
 *
 * Residues are bit-reflected: bit 31 is x^0. A product of two reflected numbers is one bit lower than it should be; exponents
 * of constants make up for it.
 */

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define PBOX_CRC_COLUMN     64
#define PBOX_CRC_CHAINS     4 /**< columns under way: a fold takes as long as four begin in */
#define PBOX_CRC_POLYNOMIAL 0x82F63B78u
#define PBOX_CRC_VECTORS    __attribute__((target("avx512f,avx512bw,vpclmulqdq,pclmul,sse4.2")))

/** What a column is multiplied by: each 64 bytes, of vectors. */
struct pbox_crc_by {
	uint64_t fold[8]; /**< to the next column, for both halves of each lane */
	uint64_t far[8];  /**< by PBOX_CRC_CHAINS columns */
	uint64_t last[8]; /**< each lane to the end of its column */
} __attribute__((aligned(64)));

/** Can this CPU do what follows from pbox_crc_fold() on? */
static inline bool
pbox_crc_folds(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul") &&
	       __builtin_cpu_supports("sse4.2");
}

/** x^n modulo P. */
static inline uint32_t
pbox_crc_power(int n)
{
	uint32_t r = 0x80000000u;

	for (; n > 0; n--)
		r = r & 1 ? r >> 1 ^ PBOX_CRC_POLYNOMIAL : r >> 1;
	for (; n < 0; n++)
		r = r & 0x80000000u ? (r ^ PBOX_CRC_POLYNOMIAL) << 1 | 1 : r << 1;
	return r;
}

static inline void
pbox_crc_by_begin(struct pbox_crc_by *by)
{
	for (int i = 0; i < 8; i++) {
		int half = i % 2 == 0 ? 31 : -33; /* the first of two words has the higher powers */

		by->fold[i] = pbox_crc_power(8 * PBOX_CRC_COLUMN + half);
		by->far[i] = pbox_crc_power(8 * PBOX_CRC_COLUMN * PBOX_CRC_CHAINS + half);
		by->last[i] = pbox_crc_power(128 * (3 - i / 2) + half);
	}
}

/** (@p a moved to the front) + @p d; @p by: fold or far. */
PBOX_CRC_VECTORS static inline __attribute__((always_inline)) __m512i
pbox_crc_fold(__m512i a, __m512i d, __m512i by)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, by, 0x00),
		_mm512_clmulepi64_epi128(a, by, 0x11), d, 0x96);
}

/** What a column is modulo P, times x^32 as a CRC has it. */
PBOX_CRC_VECTORS static inline uint32_t
pbox_crc_residue(__m512i a, __m512i last)
{
	__m512i x = _mm512_xor_si512(
		_mm512_clmulepi64_epi128(a, last, 0x00), _mm512_clmulepi64_epi128(a, last, 0x11));
	__m256i y = _mm256_xor_si256(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
	__m128i z = _mm_xor_si128(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
	uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(z));

	return (uint32_t)_mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(z, 1));
}

#endif /* PBOX_CRC_FOLD_H */
