/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Any text as the parameters of a command: the words that it is taken apart into, and where these go
 * that are not only compared: numbers, and names of jobs that become names of files. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pbox_snapshot.h>
#include <words.h>

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

	if (tell_number(word, max, &n)) {
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
	char word[WORDS][TELL_WORD];
	const char *at = text;
	int n;

	memset(word, 'x', sizeof(word));
	n = tell_words(text, word, most);
	PBOX_ASSERT(n >= -1 && n <= (int)most && (n != 0) == (*text != '\0'));
	for (int i = 0; i < n; i++) {
		const char *end = memchr(word[i], '\0', TELL_WORD);

		PBOX_ASSERT(end != NULL && strncmp(at, word[i], (size_t)(end - word[i])) == 0);
		PBOX_ASSERT(i + 1 == (int)most || strchr(word[i], ',') == NULL);
		at += end - word[i];
		PBOX_ASSERT(*at == (i + 1 < n ? ',' : '\0'));
		at++;
		number(word[i]);
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
	PBOX_ASSERT(pbox_snapshot_list(dir, text, -1, &f, &err) == 0 && f == NULL);
	free(text);
	return 0;
}
