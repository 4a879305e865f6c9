/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CODEC_H
#define CODEC_H

/**
 * @file
 * Private to lib/wire: unaligned little-endian stores, and the texts in payloads.
 */

#include <endian.h>
#include <stdint.h>
#include <string.h>

#include "pbox_wire_at.h"

static inline void
st16(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, sizeof(v));
}

static inline void
st32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void
st64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

/** Length of @p text of at most @p have bytes, cut to @p max so that no UTF-8 character is split. */
static inline size_t
text_fit(const char *text, size_t have, size_t max)
{
	size_t n = strnlen(text, have), floor;

	if (n <= max)
		return n;
	floor = max > 3 ? max - 3 : 0; /* a character has 3 continuation bytes at most */
	for (n = max; n > floor && ((uint8_t)text[n] & 0xC0) == 0x80; n--)
		;
	return n;
}

/** A string of @p dst_size bytes (with NUL) from @p len bytes of a payload; the rest is zeroed, so
 * that decoded messages compare with memcmp. */
static inline void
text_get(char *dst, size_t dst_size, const uint8_t *src, size_t len)
{
	size_t n = text_fit((const char *)src, len, dst_size - 1);

	memcpy(dst, src, n);
	memset(dst + n, 0, dst_size - n);
}

/** A NUL-padded field of @p field bytes from a string of at most @p max bytes. */
static inline void
text_pad(uint8_t *dst, size_t field, const char *src, size_t src_size, size_t max)
{
	size_t n = text_fit(src, src_size, max);

	memcpy(dst, src, n);
	memset(dst + n, 0, field - n);
}

/** Bytes of a page that the header's length can still say. */
static inline size_t
page_cap(size_t cap)
{
	return cap < UINT16_MAX ? cap : UINT16_MAX;
}

#endif /* CODEC_H */
