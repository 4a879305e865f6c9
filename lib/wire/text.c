/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* R3.4: texts and names are UTF-8. */

#include <string.h>

#include "pbox_wire.h"

size_t
pbox_utf8_char(const char *text, uint32_t *code)
{
	/* by the number of bytes: what a first byte has, and the smallest code that needs so many */
	static const struct {
		uint8_t mask, lead;
		uint32_t least;
	} form[] = {
		{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
	const uint8_t *p = (const uint8_t *)text;

	for (size_t n = 1; n <= sizeof(form) / sizeof(form[0]); n++) {
		uint32_t c = p[0] & (uint8_t)~form[n - 1].mask;

		if ((p[0] & form[n - 1].mask) != form[n - 1].lead)
			continue;
		for (size_t i = 1; i < n; i++) {
			if ((p[i] & 0xc0) != 0x80)
				return 0; /* the end of the text as well: nothing after it is read */
			c = c << 6 | (p[i] & 0x3f);
		}
		/* no second way to write a character, no halves of UTF-16 */
		if (c < form[n - 1].least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
			return 0;
		*code = c;
		return n;
	}
	return 0;
}

bool
pbox_utf8_good(const char *text)
{
	uint32_t code;
	size_t n;

	for (; *text != '\0'; text += n) {
		n = pbox_utf8_char(text, &code);
		if (n == 0)
			return false;
	}
	return true;
}
