/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdarg.h>
#include <string.h>

#include "../../../lib/control/numbers.h"

#include "../unit.h"

const char unit_suite[] = "control: numbers of workers";

#define N 200

static uint64_t map[(N + 63) / 64];

/* Of these alone; -1 ends them. */
static void
bits(int first, ...)
{
	va_list ap;

	memset(map, 0, sizeof(map));
	va_start(ap, first);
	for (int i = first; i >= 0; i = va_arg(ap, int))
		map[i / 64] |= UINT64_C(1) << i % 64;
	va_end(ap);
}

static void
are(const char *ranges, const char *words)
{
	char text[100];

	numbers_ranges(map, N, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, ranges);
	numbers_workers(map, N, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, words);
}

static void
texts(void)
{
	bits(0, -1);
	are("0", "worker 0");
	bits(199, -1);
	are("199", "worker 199");
	bits(0, 2, -1);
	are("0,2", "workers 0 and 2");
	bits(63, 64, -1);
	are("63-64", "workers 63 and 64");
	bits(1, 2, 3, -1);
	are("1-3", "workers 1-3");
	bits(1, 3, 4, 5, 9, -1);
	are("1,3-5,9", "workers 1, 3-5 and 9");
	bits(0, 1, 5, -1);
	are("0-1,5", "workers 0, 1 and 5");
}

/* More than there is room for. */
static void
no_room(void)
{
	char text[64];

	memset(map, 0x55, sizeof(map));
	memset(text, 'x', sizeof(text));
	numbers_ranges(map, N, text, 40);
	CU_ASSERT_STRING_EQUAL(text, "0,2,4,6,8,10,12,14,...");
	CU_ASSERT_EQUAL(text[40], 'x');
	numbers_workers(map, N, text, 48);
	CU_ASSERT_STRING_EQUAL(text, "workers 0, 2, 4, 6, 8, 10, ...");
	CU_ASSERT_EQUAL(text[48], 'x');
}

/* Bits from n on are not the caller's. */
static void
beyond_the_last(void)
{
	char text[100];

	memset(map, 0xff, sizeof(map));
	numbers_ranges(map, 3, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, "0-2");
	numbers_workers(map, 1, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, "worker 0");
	numbers_ranges(map, 0, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, "");
}

const struct unit_test unit_tests[] = {
	{"ranges and words", texts},
	{"no room", no_room},
	{"beyond the last", beyond_the_last},
	{NULL, NULL},
};
