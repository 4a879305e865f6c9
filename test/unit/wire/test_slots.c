/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pbox_slots.h>

#include "payload.h"

const char unit_suite[] = "wire: nodes of the tree over the slots";

/* Is it one of the tree, by R5.2a: aligned and cut? */
static bool
in_tree(struct pbox_node n, unsigned slots)
{
	return n.first < slots && n.first % (1u << n.level) == 0;
}

/* Each range of a tree of up to 40 slots: adjacent nodes, all of the tree, none of which could be joined to the next. */
static void
test_ranges(void)
{
	for (unsigned slots = 1; slots <= 40; slots++)
		for (unsigned first = 0; first < slots; first++)
			for (unsigned end = first; end <= slots; end++) {
				struct pbox_node n[PBOX_RANGE_NODES];
				unsigned k = pbox_range_nodes(first, end, slots, n), at = first;

				CU_ASSERT(k <= PBOX_RANGE_NODES && (k == 0) == (first == end));
				for (unsigned i = 0; i < k; i++) {
					struct pbox_node up = {n[i].first, n[i].level + 1};

					UNIT_EQ_U64(n[i].first, at);
					CU_ASSERT(in_tree(n[i], slots));
					at = pbox_node_end(n[i], slots);
					CU_ASSERT(at > n[i].first && at <= end);
					/* the node above has more than the range, or begins before */
					CU_ASSERT(!in_tree(up, slots) ||
						  pbox_node_end(up, slots) > end ||
						  pbox_node_end(up, slots) == at);
					if (n[i].level > 0)
						CU_ASSERT(at - n[i].first > 1u << (n[i].level - 1));
				}
				UNIT_EQ_U64(at, end);
			}
}

/* Of all nodes of a tree these alone are of the range. */
static void
test_of_range(void)
{
	for (unsigned slots = 1; slots <= 20; slots++)
		for (unsigned first = 0; first < slots; first++)
			for (unsigned end = first + 1; end <= slots; end++) {
				struct pbox_node n[PBOX_RANGE_NODES], x;
				unsigned k = pbox_range_nodes(first, end, slots, n), found = 0;

				for (unsigned i = 0; i < slots * (PBOX_MAX_LEVEL + 1); i++) {
					uint32_t code = i % slots + (i / slots << 16);
					bool is = false;

					if (!pbox_node_decode(code, slots, &x))
						continue;
					for (unsigned j = 0; j < k; j++)
						is |= pbox_node_code(n[j]) == code;
					CU_ASSERT_EQUAL(pbox_node_is_of(x, first, end, slots), is);
					found += is;
				}
				UNIT_EQ_U64(found, k);
			}
}

static void
test_largest(void)
{
	struct pbox_node n[PBOX_RANGE_NODES];

	UNIT_EQ_U64(pbox_range_nodes(0, 4096, 4096, n), 1);
	UNIT_EQ_U64(n[0].level, 12);
	UNIT_EQ_U64(pbox_range_nodes(1, 4095, 4096, n), 22);
	UNIT_EQ_U64(pbox_node_end(n[21], 4096), 4095);
	UNIT_EQ_U64(pbox_range_nodes(4095, 4096, 4096, n), 1);
	UNIT_EQ_U64(pbox_node_code(n[0]), 4095);
}

static void
test_code(void)
{
	struct pbox_node n = {8, 3}, got;

	UNIT_EQ_U64(pbox_node_code(n), 8 + 65536 * 3);
	CU_ASSERT(pbox_node_decode(8 + 65536 * 3, 9, &got));
	UNIT_EQ_U64(got.first, 8);
	UNIT_EQ_U64(got.level, 3);
	UNIT_EQ_U64(pbox_node_end(got, 9), 9);
	UNIT_EQ_U64(pbox_node_end(got, 16), 16);
	CU_ASSERT(!pbox_node_decode(8 + 65536 * 3, 8, &got));
	CU_ASSERT(!pbox_node_decode(8 + 65536 * 4, 32, &got));
	CU_ASSERT(!pbox_node_decode(65536 * 13, 4096, &got));
	CU_ASSERT(!pbox_node_decode(UINT32_MAX, 4096, &got));
	CU_ASSERT(pbox_node_decode(65536 * 12, 1, &got));
}

/* Every slot has one owner, and every worker one slot at least where there are as many. */
static void
test_owners(void)
{
	for (unsigned slots = 1; slots <= 70; slots++)
		for (unsigned workers = 1; workers <= slots; workers++) {
			UNIT_EQ_U64(pbox_slots_of(0, workers, slots), 0);
			UNIT_EQ_U64(pbox_slots_of(workers, workers, slots), slots);
			for (unsigned w = 0; w < workers; w++) {
				unsigned n = pbox_slots_of(w + 1, workers, slots) -
					     pbox_slots_of(w, workers, slots);

				CU_ASSERT(n == slots / workers || n == slots / workers + 1);
			}
		}
	UNIT_EQ_U64(pbox_slots_of(4096, 4096, 4096), 4096);
}

const struct unit_test unit_tests[] = {
	{"the nodes of every range", test_ranges},
	{"nodes of a range, and others", test_of_range},
	{"the largest ranges", test_largest},
	{"the code of a node", test_code},
	{"who owns a slot", test_owners},
	{NULL, NULL},
};
