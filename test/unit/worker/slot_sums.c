/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "slot_sums.h"

#include <pbox_slots.h>
#include <pbox_wire.h>

float
slot_value(unsigned slot, unsigned round, unsigned i)
{
	uint32_t x = (slot * 8191 + round * 131 + i) * 0x9E3779B1u;

	x = (x ^ x >> 15) * 0x85EBCA77u;
	x ^= x >> 13;
	return x % 16 == 0 ? -0.0f : (float)(int32_t)x * 0x1p-31f;
}

uint32_t
slot_weight(unsigned slot)
{
	return 1 + slot % 5;
}

static float
slot_part(const struct how *how, unsigned slot, unsigned round, unsigned i)
{
	float v = slot_value(slot, round, i);

	if (how->plain) {
		bool first = false;

		for (unsigned w = 0; w < how->workers; w++)
			first |= pbox_slots_of(w, how->workers, how->slots) == slot;
		return first ? v : 0;
	}
	return v;
}

float
slot_tree(const struct how *how, unsigned first, unsigned level, unsigned round, unsigned i,
	bool weighted)
{
	unsigned right = first + (1u << level) / 2;
	float v;

	if (level == 0) {
		v = slot_part(how, first, round, i);
		return weighted ? v * (float)slot_weight(first) : v;
	}
	v = slot_tree(how, first, level - 1, round, i, weighted);
	return right < how->slots ? v + slot_tree(how, right, level - 1, round, i, weighted) : v;
}

float
slot_sum(const struct how *how, unsigned round, unsigned i)
{
	bool weighted = how->op == PBOX_OP_WEIGHTED_MEAN;
	float v = slot_tree(how, 0, 4, round, i, weighted);
	double by = how->slots;

	if (how->op == PBOX_OP_SUM)
		return v;
	if (weighted) {
		by = 0;
		for (unsigned s = 0; s < how->slots; s++)
			by += slot_weight(s);
	}
	return v * (float)(1.0 / by);
}
