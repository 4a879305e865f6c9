/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CODEC_H
#define CODEC_H

/**
 * @file
 * Private to lib/wire: records, texts and pages of payloads.
 */

#include <stdint.h>
#include <string.h>

#include "pbox_wire_at.h"
#include "pbox_wire_fields.h"

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

/** A payload that is one record: its length, or 0 when it does not fit. */
static inline size_t
record_encode(void *buf, size_t cap, size_t len, const struct pbox_field *f, const void *m)
{
	if (cap < len)
		return 0;
	pbox_fields_put(buf, len, f, m);
	return len;
}

static inline int
record_decode(const void *buf, size_t have, size_t len, const struct pbox_field *f, void *m)
{
	if (have < len)
		return -1;
	pbox_fields_get(buf, f, m);
	return 0;
}

#define TEXT_SIZE 512 /* of the text in a message, with its NUL */

/** A record of @p len bytes with a text after it, the text's length at @p at: the whole length, or 0. */
static inline size_t
record_text_encode(void *buf, size_t cap, size_t len, const struct pbox_field *f, const void *m,
	size_t at, const char text[TEXT_SIZE])
{
	uint8_t *p = buf;
	size_t n;

	if (record_encode(buf, cap, len, f, m) == 0)
		return 0;
	n = text_fit(text, TEXT_SIZE - 1, cap - len);
	pbox_st16(p + at, (uint16_t)n);
	memcpy(p + len, text, n);
	return len + n;
}

static inline int
record_text_decode(const void *buf, size_t have, size_t len, const struct pbox_field *f, void *m,
	size_t at, char text[TEXT_SIZE])
{
	const uint8_t *p = buf;

	if (have < len || pbox_ld16(p + at) > have - len)
		return -1;
	pbox_fields_get(p, f, m);
	text_get(text, TEXT_SIZE, p + len, pbox_ld16(p + at));
	return 0;
}

/** Bytes of a page that the header's length can still say. */
static inline size_t
page_cap(size_t cap)
{
	return cap < UINT16_MAX ? cap : UINT16_MAX;
}

#endif /* CODEC_H */
