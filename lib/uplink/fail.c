/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdarg.h>
#include <stdio.h>

#include "uplink_impl.h"

void
uplink_fail(struct pbox_uplink *u, const char *fmt, ...)
{
	va_list ap;

	if (u->failed)
		return;
	u->failed = true;
	va_start(ap, fmt);
	vsnprintf(u->error, sizeof(u->error), fmt, ap);
	va_end(ap);
}
