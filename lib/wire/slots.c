/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <assert.h>

#include "pbox_slots.h"

struct pbox_node
pbox_node_at(unsigned first, unsigned end, unsigned slots)
{
	unsigned level = first == 0 ? PBOX_MAX_LEVEL : (unsigned)__builtin_ctz(first);
	struct pbox_node n = {.first = (uint16_t)first};

	assert(first < end && end <= slots && slots <= PBOX_MAX_SLOTS);
	n.level = (uint16_t)(level < PBOX_MAX_LEVEL ? level : PBOX_MAX_LEVEL);
	while (pbox_node_end(n, slots) > end)
		n.level--;
	while (n.level > 0 && first + (1u << (n.level - 1)) >= end)
		n.level--;
	return n;
}

unsigned
pbox_range_nodes(unsigned first, unsigned end, unsigned slots, struct pbox_node *nodes)
{
	unsigned n = 0;

	while (first < end) {
		nodes[n] = pbox_node_at(first, end, slots);
		first = pbox_node_end(nodes[n++], slots);
	}
	return n;
}

bool
pbox_node_is_of(struct pbox_node n, unsigned first, unsigned end, unsigned slots)
{
	unsigned has = pbox_node_end(n, slots);

	if (n.first < first || has > end ||
		(n.level > 0 &&
			n.first + (1u << (n.level - 1)) >= has)) /* its left half has as many */
		return false;
	/* of the nodes above it, those of the range have the same slots */
	for (unsigned level = n.level + 1u; level <= PBOX_MAX_LEVEL; level++) {
		struct pbox_node up = {(uint16_t)(n.first >> level << level), (uint16_t)level};

		if (up.first < first || pbox_node_end(up, slots) > end)
			break;
		if (up.first < n.first || pbox_node_end(up, slots) > has)
			return false;
	}
	return true;
}
