/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <sys/mman.h>

#include "worker_impl.h"

/*
 * Memory of a model's size. A worker goes through all of it in each round, so that none of it is in a cache when its turn comes: with
 * small pages each 4 KiB begin with a miss of the TLB, and the CPU fetches nothing ahead across their borders.
 */

#define ROOM_PAGE  ((size_t)2 << 20)
#define ROOM_LEAST (2 * ROOM_PAGE) /* less has no use for it */
#define ROOM_ALIGN 64

void *
pbox_worker_room(size_t bytes)
{
	size_t align = bytes >= ROOM_LEAST ? ROOM_PAGE : ROOM_ALIGN;
	void *room;

	if (bytes > SIZE_MAX - ROOM_PAGE)
		return NULL;
	if (posix_memalign(&room, align, bytes > 0 ? bytes : 1) != 0)
		return NULL;
#ifdef MADV_HUGEPAGE
	if (bytes >= ROOM_LEAST) /* without them it is as good as any */
		(void)madvise(room, bytes & ~(ROOM_PAGE - 1), MADV_HUGEPAGE);
#endif
	return room;
}
