/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Any text as the parameters of a command: the words that it is taken apart into, and where these go
 * that are not only compared: numbers, and names of jobs that become names of files; and as a name
 * that leaves through telemetry. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <params.h>
#include <pbox_snapshot.h>
#include <pbox_wire.h>
#include <utf7.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORDS 3

static char dir[] = "/tmp/pbox-fuzz-XXXXXX";

static void
remove_dir(void)
{
	rmdir(dir);
}

static void
number(const char *word)
{
	unsigned max = 1u << strlen(word) % 32, n = max + 1;
	bool digits = word[0] != '\0' && word[strspn(word, "0123456789")] == '\0';

	if (params_number(word, max, &n)) {
		PBOX_ASSERT(digits && n <= max && n == strtoul(word, NULL, 10));
		return;
	}
	errno = 0;
	PBOX_ASSERT(n == max + 1);
	PBOX_ASSERT(!digits || strtoul(word, NULL, 10) > max || errno == ERANGE);
}

/* What was cut is the text again. */
static void
words(const char *text, unsigned most)
{
	char word[WORDS][PARAM_SIZE];
	const char *at = text;
	int n;

	memset(word, 'x', sizeof(word));
	n = params_split(text, word, most);
	PBOX_ASSERT(n >= -1 && n <= (int)most && (n != 0) == (*text != '\0'));
	for (int i = 0; i < n; i++) {
		const char *end = memchr(word[i], '\0', PARAM_SIZE);

		PBOX_ASSERT(end != NULL && strncmp(at, word[i], (size_t)(end - word[i])) == 0);
		PBOX_ASSERT(i + 1 == (int)most || strchr(word[i], ',') == NULL);
		at += end - word[i];
		PBOX_ASSERT(*at == (i + 1 < n ? ',' : '\0'));
		at++;
		number(word[i]);
	}
}

/* 16 bits of the Base64 at *at; false at its end. */
static bool
unit_of(const char **at, uint32_t *bits, unsigned *n, uint32_t *out)
{
	static const char digit[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	while (*n < 16) {
		const char *d = strchr(digit, **at);

		if (d == NULL || *d == '\0') {
			PBOX_ASSERT(**at == '-' && *bits == 0 && *n < 6);
			(*at)++;
			return false;
		}
		*bits = *bits << 6 | (uint32_t)(d - digit);
		*n += 6;
		(*at)++;
	}
	*n -= 16;
	*out = *bits >> *n;
	*bits &= (1u << *n) - 1;
	return true;
}

static const char *
expect(const char *text, uint32_t code)
{
	uint32_t want;
	size_t n = pbox_utf8_char(text, &want);

	PBOX_ASSERT(*text != '\0' && code == (n > 0 ? want : 0xfffd));
	return text + (n > 0 ? n : 1);
}

/* What leaves is printable ASCII without quotes and backslashes, and says the text. */
static void
ascii(const char *text, size_t cap)
{
	char out[128];

	while (*text != '\0') {
		const char *rest = utf7_encode(text, out, cap);

		PBOX_ASSERT(rest > text && strlen(out) < cap);
		for (const char *p = out; *p != '\0';) {
			uint32_t bits = 0, high, low;
			unsigned n = 0;

			PBOX_ASSERT(*p >= 0x20 && *p < 0x7f && *p != '"' && *p != '\\');
			if (*p != '+') {
				text = expect(text, (uint32_t)*p++);
			} else if (*++p == '-') {
				text = expect(text, '+');
				p++;
			} else {
				while (unit_of(&p, &bits, &n, &high)) {
					if (high >= 0xd800 && high < 0xdc00) {
						PBOX_ASSERT(unit_of(&p, &bits, &n, &low));
						high = 0x10000 + ((high - 0xd800) << 10) + low -
						       0xdc00;
					}
					text = expect(text, high);
				}
			}
		}
		PBOX_ASSERT(text == rest);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool begun;
	struct pbox_snapshot_file *f;
	struct pbox_error err;
	char *text;

	if (!begun) {
		PBOX_ASSERT(mkdtemp(dir) != NULL);
		atexit(remove_dir);
		begun = true;
	}
	text = malloc(size + 1);
	PBOX_ASSERT(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	for (unsigned most = 1; most <= WORDS; most++)
		words(text, most);
	ascii(text, sizeof((char[128]){0}));
	ascii(text, 16 + size % 32);
	PBOX_ASSERT(pbox_snapshot_list(dir, text, -1, &f, &err) == 0 && f == NULL);
	free(text);
	return 0;
}
