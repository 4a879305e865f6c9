/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdatomic.h>
#include <stdio.h>

#include "pbox_base.h"

static struct {
	pbox_log_sink sink;
	void *ctx;
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
	for (char *p = line; *p != '\0'; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	log_to.sink(level, line, log_to.ctx);
}
