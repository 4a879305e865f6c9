/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include <pbox_pairs.h>

#include "fixture.h"

/*
 * What goes together (doc/modes.md), over the wire: for each two modes a box is asked by JOIN and DECLARE, and answers as the lists of
 * lib/wire/pbox_pairs.h say, with their code and words. What a box does not see (steal, ahead, a GPU, threads, its snapshots) it takes.
 */

const char unit_suite[] = "engine: what goes together";

#define ROWS PBOX_USE_AT_OPTIMISER /* of the page; what comes after are columns alone */

static const struct pbox_pair row[] = {
#define ROW(a, b, by, text) {PBOX_USE_AT_##a, PBOX_USE_AT_##b, PBOX_PAIR_##by, text},
	PBOX_PAIRS(ROW)
#undef ROW
};

/* As the page has it: its own row, or the first one of what these two need. */
static const struct pbox_pair *
row_of(unsigned a, unsigned b)
{
	uint32_t all = pbox_use_needs(a) | pbox_use_needs(b);

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		if ((row[i].one == a && row[i].other == b) ||
			(row[i].one == b && row[i].other == a))
			return &row[i];
	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		if ((all >> row[i].one & all >> row[i].other & 1) != 0)
			return &row[i];
	return NULL;
}

static struct fx_worker
worker_of(uint32_t uses, uint16_t number)
{
	struct fx_worker w = {
		.job = "five", .worker = number, .workers = 4, .boxes = true, .run = {1}};

	if ((uses & PBOX_USES_SLOTS) != 0)
		w.slots = 8;
	if ((uses & PBOX_USES_PLAN) != 0)
		w.policy = PBOX_POLICY_REASSIGN;
	if ((uses & PBOX_USES_SHRINK) != 0)
		w.policy = PBOX_POLICY_SHRINK;
	return w;
}

static struct fx_table
table_of(uint32_t uses)
{
	struct fx_table t = {.elements = 100, .op = PBOX_OP_SUM};
	bool optimiser = (uses & (PBOX_USES_OPTIMISER | PBOX_USES_DOWN)) != 0;

	if (optimiser) {
		t.mode = PBOX_MODE_OPTIMISER;
		t.optimiser = PBOX_OPT_SGD;
	}
	if ((uses & PBOX_USES_CLOCKS) != 0) {
		t.discipline = PBOX_DISCIPLINE_CLOCK;
		t.optimiser = PBOX_OPT_ADD;
	}
	if ((uses & PBOX_USES_UP) != 0) {
		t.push = PBOX_FMT_INT8;
		t.flags |= 0x0700 | ((uses & PBOX_USES_PLAN) != 0 ? PBOX_DECLARE_MIXED : 0);
	}
	if ((uses & PBOX_USES_DOWN) != 0 || (!optimiser && (uses & PBOX_USES_UP) != 0)) {
		t.pull = PBOX_FMT_INT8;
		t.flags |= 0x070000;
	}
	if ((uses & PBOX_USES_HOLD) != 0)
		t.flags |= PBOX_DECLARE_HOLD;
	return t;
}

/* What a JOIN says, and what the box itself is. */
#define OF_JOIN \
	(PBOX_USES_SLOTS | PBOX_USES_PLAN | PBOX_USES_SHRINK | PBOX_USES_BOXES | PBOX_USES_RACKS)

enum answer { NOT_JOINED, NOT_DECLARED, TAKEN };

/* Where it is not taken, the last answer is the refusal. */
static enum answer
asked(uint32_t uses, bool both_tables)
{
	bool both = (uses & PBOX_USES_PLAN) != 0 && (uses & PBOX_USES_SHRINK) != 0;
	struct fx_worker w = worker_of(both ? uses & ~PBOX_USES_SHRINK : uses, 0), next;
	const struct fx_table t = table_of(uses), rounds = table_of(uses & PBOX_USES_ROUNDS);
	uint32_t n = 0;

	if (!fx_try_join(&w))
		return NOT_JOINED;
	if (both) { /* a JOIN says one policy */
		next = worker_of(uses & ~PBOX_USES_PLAN, 1);
		if (!fx_try_join(&next))
			return NOT_JOINED;
	}
	if (both_tables && fx_declare(&w, n++, &rounds)->hdr.type != PBOX_DECLARED)
		return NOT_DECLARED;
	return fx_declare(&w, n, &t)->hdr.type == PBOX_DECLARED ? TAKEN : NOT_DECLARED;
}

static enum answer
wanted(const struct pbox_pair *p)
{
	if (p == NULL || p->by < 0)
		return TAKEN;
	return ((1u << p->one | 1u << p->other) & ~OF_JOIN) == 0 ? NOT_JOINED : NOT_DECLARED;
}

static void
ask(unsigned a, unsigned b)
{
	static const struct pbox_registrar_boxes list = {.boxes = 2,
		.at = {{{10, 0, 0, 1}, 7269}, {{10, 0, 0, 2}, 7269}},
		.release = "0.1.0"};
	uint32_t uses = pbox_use_needs(a) | pbox_use_needs(b);
	const struct pbox_pair *p = row_of(a, b);
	enum answer got, want = wanted(p);
	bool good;

	if (p != NULL && p->by == PBOX_PAIR_CONF)
		return; /* no such box is started: test/unit/conf */
	if ((uses & PBOX_USES_BOXES) != 0)
		fx.boxes = list;
	if ((uses & PBOX_USES_RACKS) != 0)
		fx.rack = (struct pbox_registrar_rack){.racks = 2};
	fx_begin();
	got = asked(uses, a == PBOX_USE_AT_ROUNDS && b == PBOX_USE_AT_CLOCKS);
	good = got == want && (got == TAKEN || (fx_error() == (unsigned)p->by &&
						       strstr(fx_error_text(), p->text) != NULL));
	if (!good)
		printf("\n%s with %s: %u, not %u: %s", pbox_use_name(a), pbox_use_name(b), got,
			want, got != TAKEN ? fx_error_text() : "");
	CU_ASSERT_TRUE(good);
	fx_end();
}

static void
test_pairs(void)
{
	unsigned pairs = 0;

	for (unsigned a = 0; a < ROWS; a++)
		for (unsigned b = a + 1; b < ROWS; b++, pairs++)
			ask(a, b);
	UNIT_EQ_U64(pairs, 55);
}

static void
test_columns(void)
{
	for (unsigned a = 0; a < PBOX_USES_END; a++)
		for (unsigned b = a < ROWS ? ROWS : a + 1; b < PBOX_USES_END; b++)
			ask(a, b);
}

/* A section of the box's configuration has the last word on the policy. */
static void
test_section(void)
{
	struct fx_worker w = {.job = "six", .workers = 2, .boxes = true};

	fx.boxes = (struct pbox_registrar_boxes){.boxes = 2, .release = "0.1.0"};
	fx_begin();
	CU_ASSERT_FALSE(fx_try_join(&w));
	UNIT_EQ_U64(fx_error(), PBOX_E_UNSUPPORTED);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(fx_error_text(), "job 'six': several boxes with policy shrink: "));
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"each two of the first eleven", test_pairs},
	{"the columns", test_columns},
	{"the section's policy", test_section},
	{NULL, NULL},
};
