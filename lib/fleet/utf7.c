/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Texts of telemetry come in UTF-7 (RFC 2152). */

#include <string.h>

#include "pbox_fleet.h"

struct fleet_out {
	char *to;
	size_t n, cap;
	uint32_t high; /* first half of a pair; 0: none */
};

static void
utf8_put(struct fleet_out *o, uint32_t code)
{
	unsigned more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
	static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};

	if (o->n + more + 1 >= o->cap)
		return;
	o->to[o->n++] = (char)(lead[more] | code >> 6 * more);
	while (more-- > 0)
		o->to[o->n++] = (char)(0x80 | (code >> 6 * more & 0x3f));
}

static void
utf16_put(struct fleet_out *o, uint32_t unit)
{
	if (unit >= 0xd800 && unit < 0xdc00) {
		o->high = unit;
		return;
	}
	if (o->high != 0 && unit >= 0xdc00 && unit < 0xe000)
		unit = 0x10000 + ((o->high - 0xd800) << 10) + (unit - 0xdc00);
	o->high = 0;
	utf8_put(o, unit);
}

static int
sextet_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

void
pbox_fleet_utf7(const char *text, char *out, size_t cap)
{
	struct fleet_out o = {.to = out, .cap = cap};

	while (*text != '\0') {
		uint32_t bits = 0;
		unsigned n = 0;

		if (*text != '+') {
			if (o.n + 1 < o.cap)
				o.to[o.n++] = *text;
			text++;
			continue;
		}
		text++;
		if (*text == '-')
			utf8_put(&o, '+');
		for (; sextet_of(*text) >= 0; text++) {
			bits = bits << 6 | (uint32_t)sextet_of(*text);
			n += 6;
			if (n >= 16) {
				n -= 16;
				utf16_put(&o, bits >> n & 0xffff);
			}
		}
		text += *text == '-';
	}
	o.to[o.n] = '\0';
}
