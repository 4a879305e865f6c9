/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <malloc.h>

#include "pbox_base.h"

/* Blocks up to here come from heaps, which keep so much before they give any of it back. */
#define BLOCK_MOST (1 << 20)
#define KEEP       (256 << 20)

void
pbox_keep_heap(void)
{
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, BLOCK_MOST);
	mallopt(M_TRIM_THRESHOLD, KEEP);
#endif
}
