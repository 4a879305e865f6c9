/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "pbox_pairs.h"

const char *
pbox_use_name(unsigned at)
{
#define NAMED(symbol, column, name, ...) [PBOX_USE_AT_##symbol] = (name),
	static const char *const name_of[] = {PBOX_USES(NAMED)};
#undef NAMED

	return at < PBOX_USES_END ? name_of[at] : "?";
}

uint32_t
pbox_use_needs(unsigned at)
{
#define NEEDS(use, what) {PBOX_USES_##use, PBOX_USES_##what},
	static const uint32_t needs[][2] = {PBOX_USE_NEEDS(NEEDS)};
#undef NEEDS
	uint32_t uses = UINT32_C(1) << at, before;

	do {
		before = uses;
		for (unsigned i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
			uses |= (uses & needs[i][0]) != 0 ? needs[i][1] : 0;
	} while (uses != before);
	return uses;
}

const struct pbox_pair *
pbox_pair_in(uint32_t uses)
{
#define PAIR(a, b, who, reason) {PBOX_USE_AT_##a, PBOX_USE_AT_##b, PBOX_PAIR_##who, reason},
	static const struct pbox_pair pair[] = {PBOX_PAIRS(PAIR)};
#undef PAIR

	for (unsigned i = 0; i < sizeof(pair) / sizeof(pair[0]); i++)
		if ((uses >> pair[i].one & uses >> pair[i].other & 1) != 0)
			return &pair[i];
	return NULL;
}

unsigned
pbox_pair_format(const struct pbox_pair *p, unsigned push_format, unsigned pull_format)
{
	uint32_t uses = UINT32_C(1) << p->one | UINT32_C(1) << p->other;

	if ((uses & PBOX_USES_UP) != 0 && pbox_format_is_block(push_format))
		return push_format;
	return (uses & (PBOX_USES_UP | PBOX_USES_DOWN)) != 0 ? pull_format : PBOX_FMT_NONE;
}

uint32_t
pbox_uses_of_policy(unsigned policy)
{
	return policy == PBOX_POLICY_REASSIGN ? PBOX_USES_PLAN
	       : policy == PBOX_POLICY_SHRINK ? PBOX_USES_SHRINK
					      : 0;
}

uint32_t
pbox_uses_of_table(
	bool optimiser, unsigned discipline, bool hold, unsigned push_format, unsigned pull_format)
{
	bool clocks = discipline == PBOX_DISCIPLINE_CLOCK;
	uint32_t uses = clocks ? PBOX_USES_CLOCKS : PBOX_USES_ROUNDS;

	/* without an optimiser results are sums, and both ways are in one format */
	if (pbox_format_is_block(push_format) && !clocks)
		uses |= PBOX_USES_UP;
	if (pbox_format_is_block(pull_format))
		uses |= optimiser ? PBOX_USES_DOWN : PBOX_USES_UP;
	return uses | (optimiser ? PBOX_USES_OPTIMISER : 0) | (hold ? PBOX_USES_HOLD : 0);
}
