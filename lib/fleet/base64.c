/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Base64, in which etcd's gateway has keys and values. */

#include <stdlib.h>
#include <string.h>

#include "pbox_fleet.h"

static const char base64_digit[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *
pbox_base64(const void *bytes, size_t n)
{
	const uint8_t *b = bytes;
	char *out = malloc((n + 2) / 3 * 4 + 1), *p = out;

	if (out == NULL)
		return NULL;
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)b[i] << 16 | (i + 1 < n ? (uint32_t)b[i + 1] << 8 : 0) |
			     (i + 2 < n ? b[i + 2] : 0);

		for (unsigned k = 0; k < 4; k++)
			*p++ = i + k > n ? '=' : base64_digit[v >> (18 - 6 * k) & 63];
	}
	*p = '\0';
	return out;
}

char *
pbox_unbase64(const char *text, size_t *n)
{
	size_t len = strlen(text), pad = 0;
	char *out = len % 4 == 0 ? malloc(len / 4 * 3 + 1) : NULL;

	if (out == NULL)
		return NULL;
	while (pad < 2 && pad < len && text[len - 1 - pad] == '=')
		pad++;
	*n = 0;
	for (size_t i = 0; i < len; i += 4) {
		uint32_t v = 0;

		for (size_t k = 0; k < 4; k++) {
			const char *at = i + k < len - pad ? memchr(base64_digit, text[i + k], 64)
							   : base64_digit;

			if (at == NULL) {
				free(out);
				return NULL;
			}
			v = v << 6 | (uint32_t)(at - base64_digit);
		}
		for (int shift = 16; shift >= 0; shift -= 8)
			out[(*n)++] = (char)(v >> shift);
	}
	*n -= pad;
	out[*n] = '\0';
	return out;
}
