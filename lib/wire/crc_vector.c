/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * CRC32C of a buffer by carry-less multiplications, where the CPU has them: CHAINS columns of 64 bytes are folded onto those that follow as
 * far after, until one is left.
 */

#include "crc.h"

size_t crc_vector_least = SIZE_MAX;

#ifdef __x86_64__

#include <string.h>

#include "pbox_crc_fold.h"

#define COLUMN PBOX_CRC_COLUMN
#define CHAINS PBOX_CRC_CHAINS
#define UNROLL _Pragma("GCC unroll 4")

static struct pbox_crc_by by;

__attribute__((constructor)) static void
crc_begin(void)
{
	if (!pbox_crc_folds())
		return;
	pbox_crc_by_begin(&by);
	crc_vector_least = 2 * CHAINS * COLUMN;
}

/** Column @p v from p on; with a place to copy to, that is written. */
PBOX_CRC_VECTORS static inline __attribute__((always_inline)) __m512i
column(const uint8_t *p, uint8_t *to, size_t v)
{
	__m512i x = _mm512_loadu_si512(p + v * COLUMN);

	if (to != NULL)
		_mm512_storeu_si512(to + v * COLUMN, x);
	return x;
}

/** @p copy: from @p buf to there, each byte read once; NULL: no copy. */
PBOX_CRC_VECTORS static inline __attribute__((always_inline)) uint32_t
pass(uint32_t crc, uint8_t *copy, const void *buf, size_t len)
{
	const uint8_t *begin = buf, *p = begin, *end = p + len;
	__m512i far = _mm512_load_si512(by.far), next = _mm512_load_si512(by.fold), a[CHAINS];
	uint64_t state;

#define TO (copy != NULL ? copy + (p - begin) : NULL)
	UNROLL for (unsigned v = 0; v < CHAINS; v++) a[v] = column(p, TO, v);
	a[0] = _mm512_xor_si512(a[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
	for (p += CHAINS * COLUMN; p + CHAINS * COLUMN <= end; p += CHAINS * COLUMN)
		UNROLL for (unsigned v = 0; v < CHAINS; v++) a[v] =
			pbox_crc_fold(a[v], column(p, TO, v), far);
	UNROLL for (unsigned v = 1; v < CHAINS; v++) a[0] = pbox_crc_fold(a[0], a[v], next);
	for (; p + COLUMN <= end; p += COLUMN)
		a[0] = pbox_crc_fold(a[0], column(p, TO, 0), next);
	state = pbox_crc_residue(a[0], _mm512_load_si512(by.last));
	for (uint64_t word; p + sizeof(word) <= end; p += sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		if (copy != NULL)
			memcpy(copy + (p - begin), &word, sizeof(word));
		state = _mm_crc32_u64(state, word);
	}
	for (uint8_t byte; p < end; p++) {
		byte = *p;
		if (copy != NULL)
			copy[p - begin] = byte;
		state = _mm_crc32_u8((uint32_t)state, byte);
	}
#undef TO
	return ~(uint32_t)state;
}

PBOX_CRC_VECTORS uint32_t
crc_vector(uint32_t crc, const void *buf, size_t len)
{
	return pass(crc, NULL, buf, len);
}

PBOX_CRC_VECTORS uint32_t
crc_vector_copy(uint32_t crc, void *to, const void *buf, size_t len)
{
	return pass(crc, to, buf, len);
}

#else

uint32_t
crc_vector(uint32_t crc, const void *buf, size_t len)
{
	(void)buf;
	(void)len;
	return crc;
}

uint32_t
crc_vector_copy(uint32_t crc, void *to, const void *buf, size_t len)
{
	(void)to;
	(void)buf;
	(void)len;
	return crc;
}

#endif
