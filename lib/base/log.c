/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "pbox_base.h"

static struct {
	pbox_log_sink sink;
	void *ctx;
	void (*follow)(enum pbox_log_level max);
	_Atomic int max;
} log_to;

void
pbox_log_to(pbox_log_sink sink, void *ctx, enum pbox_log_level max)
{
	log_to.sink = sink;
	log_to.ctx = ctx;
	pbox_log_level(max);
}

void
pbox_log_level(enum pbox_log_level max)
{
	atomic_store_explicit(&log_to.max, (int)max, memory_order_relaxed);
	if (log_to.follow != NULL)
		log_to.follow(max);
}

void
pbox_log_follow(void (*follow)(enum pbox_log_level max))
{
	log_to.follow = follow;
	if (follow != NULL)
		follow(pbox_log_level_get());
}

enum pbox_log_level
pbox_log_level_get(void)
{
	return (enum pbox_log_level)atomic_load_explicit(&log_to.max, memory_order_relaxed);
}

const char *
pbox_log_level_name(unsigned level)
{
	static const char *const name[] = {"error", "warn", "info", "debug"};

	return level < sizeof(name) / sizeof(name[0]) ? name[level] : NULL;
}

bool
pbox_log_level_named(const char *name, enum pbox_log_level *level)
{
	const char *known;

	if (strcmp(name, "warning") == 0)
		name = "warn";
	for (unsigned i = 0; (known = pbox_log_level_name(i)) != NULL; i++)
		if (strcmp(name, known) == 0) {
			*level = (enum pbox_log_level)i;
			return true;
		}
	return false;
}

/* Bytes of the UTF-8 character at p; 0: it is none. */
static unsigned
character(const unsigned char *p)
{
	static const unsigned char least[] = {
		0, 0, 0xa0, 0x90}; /* of the second byte, after e0, f0 */
	unsigned n = *p < 0x80    ? 1
		     : *p < 0xc2  ? 0
		     : *p < 0xe0  ? 2
		     : *p < 0xf0  ? 3
		     : *p <= 0xf4 ? 4
				  : 0;

	if (n > 2 && (*p & 0x0f) == 0 && p[1] < least[n - 1])
		return 0;
	for (unsigned i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

void
pbox_mask(char *text)
{
	unsigned char *p = (unsigned char *)text;

	while (*p != '\0') {
		unsigned n = character(p);

		if (n == 0 || (n == 1 && (*p < ' ' || *p == 0x7f)))
			*p = '?'; /* a byte by itself as well, where terminals read bytes */
		else if (n == 2 && *p == 0xc2 && p[1] <= 0x9f)
			memset(p, '?', n); /* U+0080 to U+009F */
		p += n > 0 ? n : 1;
	}
}

void
pbox_log(enum pbox_log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	if (log_to.sink == NULL || level > pbox_log_level_get())
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* names that others chose are in it: no line of theirs, and nothing that steers a terminal */
	pbox_mask(line);
	log_to.sink(level, line, log_to.ctx);
}
