/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The same tests, with clients of two progress threads. */

#include "box.h"

static void __attribute__((constructor)) threads_2(void)
{
	box_threads = 2;
}
