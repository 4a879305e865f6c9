/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <pbox_wire.h>

#include "utf7.h"

#define MASK 0xfffd

struct utf7 {
	char *out;
	size_t len, cap;
	bool open;     /* in Base64 */
	uint32_t bits; /* of it that are not written yet, the last ones */
	unsigned n;
};

/* A bad byte is a character of its own. */
static uint32_t
utf7_next(const char *text, size_t *bytes)
{
	uint32_t code;

	*bytes = pbox_utf8_char(text, &code);
	if (*bytes == 0) {
		*bytes = 1;
		code = MASK;
	}
	return code;
}

static bool
direct(uint32_t code)
{
	return code >= 0x20 && code < 0x7f && code != '"' && code != '\\' && code != '+';
}

static void
sextet(struct utf7 *u, uint32_t v)
{
	static const char digit[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	u->out[u->len++] = digit[v & 0x3f];
}

static void
unit(struct utf7 *u, uint32_t v)
{
	u->bits = u->bits << 16 | v;
	for (u->n += 16; u->n >= 6; u->n -= 6)
		sextet(u, u->bits >> (u->n - 6));
	u->bits &= (1u << u->n) - 1;
}

static void
shut(struct utf7 *u)
{
	if (!u->open)
		return;
	if (u->n > 0)
		sextet(u, u->bits << (6 - u->n));
	u->out[u->len++] = '-';
	u->open = false;
	u->n = 0;
}

/* false: there is no room */
static bool
put_base64(struct utf7 *u, uint32_t code)
{
	unsigned units = code >= 0x10000 ? 2 : 1;

	/* with what begins and ends it, and the NUL */
	if (u->len + !u->open + (u->n + 16 * units + 5) / 6 + 2 > u->cap)
		return false;
	if (!u->open) {
		u->out[u->len++] = '+';
		u->open = true;
	}
	if (units == 2) {
		unit(u, 0xd800 + ((code - 0x10000) >> 10));
		code = 0xdc00 + ((code - 0x10000) & 0x3ff);
	}
	unit(u, code);
	return true;
}

static bool
put_direct(struct utf7 *u, uint32_t code)
{
	shut(u); /* its room was kept */
	if (u->len + 3 > u->cap)
		return false;
	u->out[u->len++] = (char)code;
	if (code == '+')
		u->out[u->len++] = '-';
	return true;
}

const char *
utf7_encode(const char *text, char *out, size_t cap)
{
	struct utf7 u = {.out = out, .cap = cap};

	while (*text != '\0') {
		size_t bytes, more;
		uint32_t code = utf7_next(text, &bytes);
		/* one direct character between two others is shorter among them */
		bool alone = text[bytes] == '\0' || direct(utf7_next(text + bytes, &more));

		if (u.open ? direct(code) && alone : direct(code) || (code == '+' && alone)) {
			if (!put_direct(&u, code))
				break;
		} else if (!put_base64(&u, code)) {
			break;
		}
		text += bytes;
	}
	shut(&u);
	out[u.len] = '\0';
	return text;
}

const char *
utf7_brief(char out[UTF7_BRIEF], const char *name, size_t max)
{
	size_t at = 0, n;
	uint32_t code;

	for (; name[at] != '\0'; at += n) {
		n = pbox_utf8_char(name + at, &code);
		n += n == 0;
		if (at + n > max)
			break;
	}
	memcpy(out, name, at);
	out[at] = '\0';
	return out;
}
