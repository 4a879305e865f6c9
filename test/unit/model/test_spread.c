/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include <pbox_spread.h>

#include "unit.h"

const char unit_suite[] = "model: chunks shared out again";

#define CHUNKS 300

static struct pbox_layout_chunk chunk[CHUNKS];
static uint8_t home[CHUNKS], was[CHUNKS];

static struct pbox_layout
chunks(uint32_t n, uint32_t elements)
{
	struct pbox_layout l = {.n_chunks = n, .chunk = chunk};

	for (uint32_t i = 0; i < n; i++) {
		chunk[i] = (struct pbox_layout_chunk){.elements = elements};
		l.elements += elements;
	}
	return l;
}

static void
sums(const struct pbox_layout *l, unsigned boxes, uint64_t *sum)
{
	memset(sum, 0, boxes * sizeof(*sum));
	for (uint32_t i = 0; i < l->n_chunks; i++)
		sum[home[i]] += chunk[i].elements;
}

static int
again(const struct pbox_layout *l, unsigned boxes, const uint32_t *weight)
{
	int64_t lack[PBOX_MAX_BOXES] = {0};

	memcpy(was, home, sizeof(was));
	return pbox_spread(l, boxes, weight, home, lack);
}

static void
test_equal_chunks(void)
{
	struct pbox_layout l = chunks(12, 100);
	uint64_t sum[3];

	for (unsigned i = 0; i < 12; i++)
		home[i] = (uint8_t)(i % 3);
	CU_ASSERT_EQUAL(again(&l, 3, (const uint32_t[]){1000, 1000, 1000}), 0);
	/* box 1 is drained: its four go to both others, and no others move */
	CU_ASSERT_EQUAL(again(&l, 3, (const uint32_t[]){1000, 0, 1000}), 4);
	for (unsigned i = 0; i < 12; i++)
		CU_ASSERT(was[i] == 1 ? home[i] != 1 : home[i] == was[i]);
	sums(&l, 3, sum);
	CU_ASSERT(sum[0] == 600 && sum[1] == 0 && sum[2] == 600);
	/* and it comes back */
	CU_ASSERT_EQUAL(again(&l, 3, (const uint32_t[]){1, 1, 1}), 4);
	sums(&l, 3, sum);
	CU_ASSERT(sum[0] == 400 && sum[1] == 400 && sum[2] == 400);
	CU_ASSERT_EQUAL(again(&l, 3, (const uint32_t[]){2000, 1000, 0}), 4);
	sums(&l, 3, sum);
	CU_ASSERT(sum[0] == 800 && sum[1] == 400 && sum[2] == 0);
}

/* Small tables: what one of them leaves uneven, the next ones make up for. */
static void
test_tables_of_one_chunk(void)
{
	struct pbox_layout l = chunks(1, 100);
	int64_t lack[3] = {0};
	unsigned n[3] = {0};

	for (unsigned t = 0; t < 30; t++) {
		home[0] = 2;
		CU_ASSERT(pbox_spread(&l, 3, (const uint32_t[]){1, 1, 0}, home, lack) == 1);
		n[home[0]]++;
	}
	CU_ASSERT(n[0] == 15 && n[1] == 15 && n[2] == 0);
}

static void
test_nothing(void)
{
	struct pbox_layout l = chunks(0, 0);

	CU_ASSERT_EQUAL(again(&l, 1, (const uint32_t[]){1}), 0);
}

/* Whatever the chunks, the homes and the weights: who has no weight has nothing; nobody is further from its share than a chunk, or than
 * it was; asked again, nothing moves. */
static void
test_any(void)
{
	struct pbox_random r;

	pbox_random_seed(&r, 45);
	for (unsigned k = 0; k < 20000; k++) {
		unsigned boxes = 1 + (unsigned)pbox_random_below(&r, PBOX_MAX_BOXES);
		struct pbox_layout l = chunks((uint32_t)pbox_random_below(&r, CHUNKS), 0);
		uint32_t weight[PBOX_MAX_BOXES], largest = 0;
		uint64_t before[PBOX_MAX_BOXES], after[PBOX_MAX_BOXES], all = 0;
		int moved, differ = 0;

		for (unsigned b = 0; b < boxes; b++)
			all += weight[b] =
				(uint32_t)(pbox_random_below(&r, 3) * pbox_random_below(&r, 1000));
		if (all == 0)
			all = weight[0] = 1;
		for (uint32_t i = 0; i < l.n_chunks; i++) {
			home[i] = (uint8_t)pbox_random_below(
				&r, k % 2 == 0 ? boxes : (boxes + 2) / 3);
			chunk[i].elements = pbox_random_below(&r, 4) == 0
						    ? 1 + (uint32_t)pbox_random_below(&r, 8192)
						    : 8192;
			largest = chunk[i].elements > largest ? chunk[i].elements : largest;
			l.elements += chunk[i].elements;
		}
		sums(&l, boxes, before);
		moved = again(&l, boxes, weight);
		sums(&l, boxes, after);
		for (uint32_t i = 0; i < l.n_chunks; i++)
			differ += home[i] != was[i];
		CU_ASSERT_FATAL(moved == differ);
		for (unsigned b = 0; b < boxes; b++) {
			double want = (double)l.elements * weight[b] / (double)all;

			if (weight[b] == 0)
				CU_ASSERT_FATAL(after[b] == 0);
			if ((double)after[b] > want + largest + 1)
				CU_ASSERT_FATAL(after[b] <= before[b]);
			if ((double)after[b] < want - (double)boxes * largest)
				printf("\nbox %u of %u: %f and not %f\n", b, boxes,
					(double)after[b], want);
			CU_ASSERT_FATAL((double)after[b] >= want - (double)boxes * largest);
		}
		CU_ASSERT_FATAL(again(&l, boxes, weight) == 0);
	}
}

const struct unit_test unit_tests[] = {
	{"equal chunks: a box goes, and comes back", test_equal_chunks},
	{"tables of one chunk", test_tables_of_one_chunk},
	{"a table without chunks", test_nothing},
	{"any chunks, homes and weights", test_any},
	{NULL, NULL},
};
