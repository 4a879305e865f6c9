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

PBOX_CRC_VECTORS uint32_t
crc_vector(uint32_t crc, const void *buf, size_t len)
{
	const uint8_t *p = buf, *end = p + len;
	__m512i far = _mm512_load_si512(by.far), next = _mm512_load_si512(by.fold), a[CHAINS];
	uint64_t state;

	UNROLL for (unsigned v = 0; v < CHAINS; v++) a[v] = _mm512_loadu_si512(p + v * COLUMN);
	a[0] = _mm512_xor_si512(a[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
	for (p += CHAINS * COLUMN; p + CHAINS * COLUMN <= end; p += CHAINS * COLUMN)
		UNROLL for (unsigned v = 0; v < CHAINS; v++) a[v] =
			pbox_crc_fold(a[v], _mm512_loadu_si512(p + v * COLUMN), far);
	UNROLL for (unsigned v = 1; v < CHAINS; v++) a[0] = pbox_crc_fold(a[0], a[v], next);
	for (; p + COLUMN <= end; p += COLUMN)
		a[0] = pbox_crc_fold(a[0], _mm512_loadu_si512(p), next);
	state = pbox_crc_residue(a[0], _mm512_load_si512(by.last));
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
