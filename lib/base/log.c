/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "pbox_base.h"

static struct {
	pbox_log_sink sink;
	void *ctx;
	enum pbox_log_level max;
} log_to;

void
pbox_log_to(pbox_log_sink sink, void *ctx, enum pbox_log_level max)
{
	log_to.sink = sink;
	log_to.ctx = ctx;
	log_to.max = max;
}

void
pbox_log(enum pbox_log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	if (log_to.sink == NULL || level > log_to.max)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	log_to.sink(level, line, log_to.ctx);
}
