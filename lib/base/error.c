/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "pbox_base.h"

void
pbox_assert_failed(const char *cond, const char *file, int line)
{
	fprintf(stderr, "pbox: broken invariant: %s (%s:%d)\n", cond, file, line);
	abort();
}

int
pbox_fail(struct pbox_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (err != NULL) {
		err->code = code;
		va_start(ap, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
		va_end(ap);
	}
	return -code;
}
