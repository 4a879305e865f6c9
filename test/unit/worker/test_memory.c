/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "unit.h"
#include "worker_impl.h"

const char unit_suite[] = "worker: copies past the caches, memory of a model's size";

#define MOST  4096
#define GUARD 128

static uint8_t from[MOST + GUARD], to[MOST + 2 * GUARD];

/** All bytes, and none before or after them. */
static bool
copies(unsigned to_at, unsigned from_at, size_t n)
{
	memset(to, 0xEE, sizeof(to));
	aside_copy(to + GUARD + to_at, from + from_at, n);
	aside_end();
	for (size_t i = 0; i < sizeof(to); i++) {
		bool inside = i >= GUARD + to_at && i < GUARD + to_at + n;

		if (to[i] != (inside ? from[from_at + i - GUARD - to_at] : 0xEE))
			return false;
	}
	return true;
}

static void
test_copies_at_any_place(void)
{
	static const size_t sizes[] = {
		0, 1, 63, 64, 1023, 1024, 1025, 1087, 1088, 1407, 1408, 4000};

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 31 + i / 256);
	for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (unsigned at = 0; at < 64; at++)
			CU_ASSERT(copies(at, at * 7 % 64, sizes[s]) && copies(at, 0, sizes[s]));
}

static void
test_room(void)
{
	static const size_t sizes[] = {0, 1, 4095, (4 << 20) - 1, 4 << 20, (9 << 20) + 5};

	for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint8_t *room = pbox_worker_room(sizes[s]);

		CU_ASSERT_FATAL(room != NULL);
		UNIT_EQ_U64((uintptr_t)room % 64, 0);
		if (sizes[s] >= 4 << 20)
			UNIT_EQ_U64((uintptr_t)room % (2 << 20), 0);
		memset(room, 0x5A, sizes[s]);
		free(room);
	}
	CU_ASSERT(pbox_worker_room(SIZE_MAX) == NULL && pbox_worker_room(SIZE_MAX - 64) == NULL);
}

const struct unit_test unit_tests[] = {
	{"a copy writes its bytes and no others, wherever they lie", test_copies_at_any_place},
	{"room is aligned, large room to hugepages, and too much is refused", test_room},
	{NULL, NULL},
};
