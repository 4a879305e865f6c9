/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include <pbox_arena.h>
#include <pbox_base.h>

#include "unit.h"

const char unit_suite[] = "model: arena";

#define SIZE 4096

static uint8_t region[SIZE] __attribute__((aligned(PBOX_CACHE_LINE)));

static struct pbox_arena *
fresh(size_t size)
{
	memset(region, 0, sizeof(region));
	return pbox_arena_create(region, size);
}

static bool
all_zero(void)
{
	for (size_t i = 0; i < SIZE; i++)
		if (region[i] != 0)
			return false;
	return true;
}

static void
test_fills_to_the_last_byte(void)
{
	struct pbox_arena *a = fresh(SIZE);

	UNIT_EQ_U64(pbox_arena_size(a), SIZE);
	UNIT_EQ_U64(pbox_arena_largest(a), SIZE);
	for (unsigned i = 0; i < SIZE / 64; i++)
		CU_ASSERT_PTR_EQUAL(pbox_arena_alloc(a, 1 + i % 64), region + (size_t)i * 64);
	UNIT_EQ_U64(pbox_arena_used(a), SIZE);
	UNIT_EQ_U64(pbox_arena_largest(a), 0);
	CU_ASSERT_PTR_NULL(pbox_arena_alloc(a, 1));
	pbox_arena_destroy(a);
}

static void
test_odd_sizes(void)
{
	struct pbox_arena *a = fresh(1000); /* 15 lines and a rest that cannot be used */

	UNIT_EQ_U64(pbox_arena_size(a), 960);
	CU_ASSERT_PTR_NULL(pbox_arena_alloc(a, 0));
	CU_ASSERT_PTR_NULL(pbox_arena_alloc(a, 961));
	CU_ASSERT_PTR_NULL(pbox_arena_alloc(a, SIZE_MAX));
	CU_ASSERT_PTR_NULL(pbox_arena_alloc(a, SIZE_MAX - 62));
	CU_ASSERT_PTR_EQUAL(pbox_arena_alloc(a, 897), region);
	UNIT_EQ_U64(pbox_arena_used(a), 960);
	pbox_arena_free(a, NULL);
	pbox_arena_free(a, region);
	UNIT_EQ_U64(pbox_arena_used(a), 0);
	pbox_arena_destroy(a);
	pbox_arena_destroy(NULL);
}

static void
test_freed_neighbours_join(void)
{
	struct pbox_arena *a = fresh(SIZE);
	void *p[4];

	for (unsigned i = 0; i < 4; i++)
		p[i] = pbox_arena_alloc(a, SIZE / 4);
	pbox_arena_free(a, p[0]);
	pbox_arena_free(a, p[2]);
	UNIT_EQ_U64(pbox_arena_largest(a), SIZE / 4);
	CU_ASSERT_PTR_NULL(pbox_arena_alloc(a, SIZE / 2));
	pbox_arena_free(a, p[1]); /* joins with both sides */
	UNIT_EQ_U64(pbox_arena_largest(a), SIZE / 4 * 3);
	CU_ASSERT_PTR_EQUAL(pbox_arena_alloc(a, SIZE / 4 * 3), region);
	pbox_arena_destroy(a);
}

static void
test_first_gap_is_taken(void)
{
	struct pbox_arena *a = fresh(SIZE);
	void *p[4];

	for (unsigned i = 0; i < 4; i++)
		p[i] = pbox_arena_alloc(a, SIZE / 4);
	pbox_arena_free(a, p[3]);
	pbox_arena_free(a, p[1]);
	CU_ASSERT_PTR_EQUAL(pbox_arena_alloc(a, 64), p[1]);
	CU_ASSERT_PTR_EQUAL(pbox_arena_alloc(a, SIZE / 4), p[3]);
	pbox_arena_destroy(a);
}

static void
test_memory_is_zero_again(void)
{
	struct pbox_arena *a = fresh(SIZE);
	uint8_t *p = pbox_arena_alloc(a, 100), *q = pbox_arena_alloc(a, 200);

	memset(p, 0xA5, 128); /* the padding is the owner's as well */
	memset(q, 0x5A, 256);
	pbox_arena_free(a, p);
	for (unsigned i = 0; i < 256; i++)
		UNIT_EQ_U64(q[i], 0x5A);
	pbox_arena_free(a, q);
	CU_ASSERT_TRUE(all_zero());
	pbox_arena_destroy(a);
}

#define BIG (3 * PBOX_ARENA_SLICE)

static unsigned discards;

static bool
discard(void *at, size_t len)
{
	discards++;
	memset(at, 0, len);
	return discards % 2 == 0; /* where it did nothing, it is written */
}

/* Gigabytes are not cleared while somebody waits: in slices, and nobody gets them before. */
static void
test_large_pieces_are_cleared_in_slices(void)
{
	uint8_t *big = aligned_alloc(PBOX_CACHE_LINE, BIG);
	size_t left = BIG - PBOX_CACHE_LINE;
	struct pbox_arena *a;
	uint8_t *p;

	CU_ASSERT_PTR_NOT_NULL_FATAL(big);
	memset(big, 0, BIG);
	a = pbox_arena_create(big, BIG);
	p = pbox_arena_alloc(a, left);
	memset(p, 0xA5, left);
	CU_ASSERT_FALSE(pbox_arena_later(a, PBOX_CACHE_LINE + 1));
	pbox_arena_free(a, p);
	UNIT_EQ_U64(p[0], 0xA5); /* it was given back and not written to */
	UNIT_EQ_U64(pbox_arena_used(a), 0);
	UNIT_EQ_U64(pbox_arena_uncleared(a), left);
	CU_ASSERT_PTR_NULL(pbox_arena_alloc(a, BIG));
	CU_ASSERT_TRUE(pbox_arena_later(a, BIG));
	CU_ASSERT_FALSE(pbox_arena_later(a, BIG + 1));
	pbox_arena_clear_by(a, discard);
	while (left > PBOX_ARENA_SLICE) {
		left -= PBOX_ARENA_SLICE;
		UNIT_EQ_U64(pbox_arena_clear(a, PBOX_ARENA_SLICE), left);
		p = pbox_arena_alloc(a, PBOX_ARENA_SLICE); /* what is clear is there, no more */
		CU_ASSERT_PTR_NOT_NULL_FATAL(p);
		CU_ASSERT_PTR_NULL(pbox_arena_alloc(a, 2 * PBOX_CACHE_LINE));
		for (size_t i = 0; i < PBOX_ARENA_SLICE; i++)
			CU_ASSERT_EQUAL_FATAL(p[i], 0);
	}
	UNIT_EQ_U64(pbox_arena_clear(a, BIG), 0);
	CU_ASSERT(discards >= 3);
	pbox_arena_destroy(a);
	free(big);
}

/* Random takes and gives against a map of the lines in use. */
static void
test_random_takes_and_gives(void)
{
	struct pbox_arena *a = fresh(SIZE);
	uint8_t owner[SIZE / 64] = {0};
	uint8_t *held[16] = {NULL};
	size_t len[16] = {0}, used = 0;
	struct pbox_random r;

	pbox_random_seed(&r, 1);
	for (unsigned step = 0; step < 20000; step++) {
		unsigned i = (unsigned)pbox_random_below(&r, 16);
		size_t first, lines;

		if (held[i] == NULL) {
			len[i] = 1 + pbox_random_below(&r, 700);
			held[i] = pbox_arena_alloc(a, len[i]);
			if (held[i] == NULL) {
				CU_ASSERT(pbox_arena_largest(a) < len[i]);
				/* what is given back waits now and then until it is cleared */
				pbox_arena_clear(a, SIZE / 4);
				continue;
			}
		}
		first = (size_t)(held[i] - region) / 64;
		lines = (len[i] + 63) / 64;
		if (owner[first] == 0) {
			for (size_t k = 0; k < lines; k++) {
				CU_ASSERT_EQUAL_FATAL(owner[first + k], 0);
				owner[first + k] = (uint8_t)(i + 1);
			}
			for (size_t k = 0; k < len[i]; k++)
				CU_ASSERT_EQUAL_FATAL(held[i][k], 0);
			memset(held[i], 0xEE, lines * 64);
			used += lines * 64;
		} else {
			memset(owner + first, 0, lines);
			pbox_arena_free(a, held[i]);
			held[i] = NULL;
			used -= lines * 64;
		}
		CU_ASSERT_EQUAL_FATAL(pbox_arena_used(a), used);
	}
	for (unsigned i = 0; i < 16; i++)
		pbox_arena_free(a, held[i]);
	UNIT_EQ_U64(pbox_arena_clear(a, SIZE), 0);
	UNIT_EQ_U64(pbox_arena_largest(a), SIZE);
	CU_ASSERT_TRUE(all_zero());
	pbox_arena_destroy(a);
}

const struct unit_test unit_tests[] = {
	{"fills to the last byte", test_fills_to_the_last_byte},
	{"odd sizes", test_odd_sizes},
	{"freed neighbours join", test_freed_neighbours_join},
	{"large pieces are cleared in slices", test_large_pieces_are_cleared_in_slices},
	{"the first gap is taken", test_first_gap_is_taken},
	{"memory is zero again", test_memory_is_zero_again},
	{"random takes and gives", test_random_takes_and_gives},
	{NULL, NULL},
};
