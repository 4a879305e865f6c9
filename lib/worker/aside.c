/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "worker_impl.h"

/*
 * Copies past the caches, of what nobody reads soon: a whole line is written without being read first, and takes no place from
 * what is under way. Each line is written by one call alone, whatever its neighbours are. A fence for each copy would wait
 * for the memory: there is one for each operation (aside_end).
 */

#define ASIDE_LEAST 1024 /* bytes: less is not worth it */
#define LINE        64

#ifdef __x86_64__

static bool wide;

__attribute__((constructor)) static void
aside_begin(void)
{
	__builtin_cpu_init();
	wide = __builtin_cpu_supports("avx512f");
}

__attribute__((target("avx512f"))) static void
aside_wide(uint8_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i += LINE)
		_mm512_stream_si512(
			(__m512i *)(void *)(to + i), _mm512_loadu_si512((const void *)(from + i)));
}

static void
aside_lines(uint8_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i += 16)
		_mm_stream_si128((__m128i *)(void *)(to + i),
			_mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

void
aside_copy(void *to_, const void *from_, size_t n)
{
	const uint8_t *from = from_;
	uint8_t *to = to_;
	size_t head = -(uintptr_t)to & (LINE - 1), whole;

	if (n >= ASIDE_LEAST) {
		memcpy(to, from, head);
		to += head;
		from += head;
		n -= head;
		whole = n & ~(size_t)(LINE - 1);
		(wide ? aside_wide : aside_lines)(to, from, whole);
		to += whole;
		from += whole;
		n -= whole;
	}
	memcpy(to, from, n);
}

void
aside_end(void)
{
	_mm_sfence();
}

#else

void
aside_copy(void *to, const void *from, size_t n)
{
	memcpy(to, from, n);
}

void
aside_end(void)
{
}

#endif
