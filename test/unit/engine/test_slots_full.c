/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "slots.h"

/* A job that holds as much as it may, or has as many rounds: one worker sends ahead of others, and the rounds end (R6.9). */

const char unit_suite[] = "engine: slots, at the bound";

static bool
push_frag(unsigned i, uint16_t frag, unsigned first, unsigned level)
{
	return push_at(i, PBOX_PUSHPULL, 0, frag, 1,
		(struct pbox_node){.first = (uint16_t)first, .level = (uint16_t)level}, false,
		false);
}

/* As many packets may be held as workers bring nodes, and are, of fragments 0 and 1. */
static void
begin_full(const char *job)
{
	const struct fx_table t = {.elements = 64 * 50, .op = PBOX_OP_SUM};

	fx.mtu = 154;
	fx.hold = 4;
	begin_with(job, 4, 16, &t); /* 0 to 3, 4 to 7, 8 to 11, 12 to 15 */
	CU_ASSERT_TRUE(push_frag(1, 0, 4, 2));
	CU_ASSERT_TRUE(push_frag(2, 0, 8, 2));
	CU_ASSERT_TRUE(push_frag(1, 1, 4, 2));
	CU_ASSERT_TRUE(push_frag(3, 1, 12, 2));
	UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 4);
}

/* A job that holds as much as it may sums the front of a round, by nodes, and gives their packets back. */
static void
test_fold(void)
{
	begin_full("speech");
	fx_mark();
	CU_ASSERT_FALSE(push_frag(1, 2, 4, 2)); /* worker 0 is waited for */
	FX_ONLY(PBOX_SS_DROP_NO_BUFFER);
	CU_ASSERT_TRUE(push_frag(0, 2, 0, 2));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_FOLDS], 1);
	CU_ASSERT_TRUE(push_frag(1, 2, 4, 2));
	CU_ASSERT_TRUE(push_frag(2, 2, 8, 2));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_FOLDS], 3);
	UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 4);
	CU_ASSERT_FALSE(push_frag(1, 2, 4, 2)); /* summed, and there */
	fx_clear();
	CU_ASSERT_TRUE(push_frag(3, 2, 12, 2));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 4);
	expect_result(1, -1);
	for (uint16_t frag = 0; frag < 2; frag++) {
		CU_ASSERT_TRUE(push_frag(0, frag, 0, 2));
		CU_ASSERT_FALSE(push_frag(1, frag, 4, 2));
		CU_ASSERT_TRUE(push_frag(frag == 0 ? 3 : 2, frag, frag == 0 ? 12 : 8, 2));
		expect_result(1, -1);
	}
	fx_end();
}

/* Slots that nobody waits for do not keep it from that; and what they bring after that is too late. */
static void
test_fold_without_a_worker(void)
{
	begin_full("six");
	fx_leave(&w[0]);
	CU_ASSERT_TRUE(push_frag(1, 2, 4, 2));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_FOLDS], 1);
	UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 4);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	fx_declare(
		&w[0], 0, &(struct fx_table){.elements = 64 * 50, .flags = PBOX_DECLARE_CONTINUE});
	fx_clear();
	fx_mark();
	CU_ASSERT_FALSE(push_frag(0, 2, 0, 2));
	FX_ONLY(PBOX_SS_DROP_NO_BUFFER);
	CU_ASSERT_TRUE(push_frag(2, 2, 8, 2));
	CU_ASSERT_TRUE(push_frag(3, 2, 12, 2));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 3);
	expect_result(1, 0);
	fx_end();
}

/* The first chunk is used. Each core has 20 at least. */
#define CHUNKS    44
#define FRAGMENTS 300

/* Which node of which fragment a worker sends next; with PUSH alone it waits for no round. */
static struct {
	uint16_t frag;
	unsigned node;
} at[WORKERS];

struct run {
	unsigned workers, slots, hold;
	enum pbox_op op;
	bool last_first; /* the last worker is ahead of all */
};

/* The worker's nodes, or (weighted) its slots. */
static unsigned
brings(const struct run *r, unsigned i, struct pbox_node *n)
{
	unsigned first = pbox_slots_of(i, r->workers, r->slots), count = 0;

	if (r->op != PBOX_OP_WEIGHTED_MEAN)
		return nodes_of(i, n);
	for (unsigned slot = first; slot < pbox_slots_of(i + 1, r->workers, r->slots); slot++)
		n[count++] = (struct pbox_node){.first = (uint16_t)slot};
	return count;
}

/* Worker i sends until one is not taken, `most` at most. */
static unsigned
send(const struct run *r, unsigned i, unsigned most)
{
	static struct pbox_node n[PBOX_MAX_SLOTS];
	unsigned count = brings(r, i, n), sent = 0;

	while (sent < most && at[i].frag < FRAGMENTS &&
		push_at(i, PBOX_PUSH, 0, at[i].frag, 1, n[at[i].node], false, false)) {
		fx_clear();
		sent++;
		if (++at[i].node == count) {
			at[i].node = 0;
			at[i].frag++;
		}
	}
	fx_clear();
	return sent;
}

/* Each worker goes as far ahead as it can; then they send by turns, or (seed) by chance. */
static void
push_alone(const struct run *r, unsigned by_chance)
{
	const struct fx_table t = {.elements = CHUNKS * 64 / 4 * FRAGMENTS, .op = r->op};
	unsigned sent = 1;

	fx.mtu = 154;
	fx.chunk_elements = 64 / 4 * FRAGMENTS;
	fx.hold = r->hold;
	memset(at, 0, sizeof(at));
	begin_with("speech", r->workers, r->slots, &t);
	seed = by_chance;
	for (unsigned i = 0; i < r->workers && by_chance == 0; i++)
		send(r, r->last_first ? r->workers - 1 - i : i, UINT32_MAX);
	while (sent > 0) {
		sent = 0;
		for (unsigned i = 0; i < r->workers; i++)
			sent += send(r, i, by_chance != 0 ? 1 + chance(50) : 1);
	}
	for (unsigned i = 0; i < r->workers; i++)
		UNIT_EQ_U64(at[i].frag, FRAGMENTS);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS], FRAGMENTS);
	fx_end();
}

static void
test_push_alone(void)
{
	static const struct run run[] = {{2, 22, 256, PBOX_OP_SUM, false},
		{3, 22, 256, PBOX_OP_SUM, false}, {3, 22, 256, PBOX_OP_SUM, true},
		{4, 4, 2048, PBOX_OP_SUM, false}, {5, 61, 1024, PBOX_OP_SUM, true},
		{8, 64, 256, PBOX_OP_SUM, true}, {8, 61, 1024, PBOX_OP_SUM, false},
		{2, 64, 4, PBOX_OP_WEIGHTED_MEAN, true}, {3, 50, 64, PBOX_OP_WEIGHTED_MEAN, true}};

	for (unsigned i = 0; i < sizeof(run) / sizeof(run[0]); i++)
		for (unsigned by_chance = 0; by_chance < 3; by_chance++)
			push_alone(&run[i], by_chance);
}

/* Rounds that were opened by a PULL, and of which nobody is waited for any more: what they hold is within the bound, too. */
static void
test_bound_alone(void)
{
	const struct fx_table t = {.elements = CHUNKS * 64 / 4 * FRAGMENTS, .op = PBOX_OP_SUM};
	struct pbox_node n[PBOX_RANGE_NODES];
	unsigned most;

	fx.mtu = 154;
	fx.hold = 64;
	fx.chunk_elements = 64 / 4 * FRAGMENTS;
	begin_with("six", 2, 94, &t); /* 0 to 46: five nodes */
	UNIT_EQ_U64(nodes_of(0, n), 5);
	most = pbox_registrar_job_named(fx.registrar, "six")->hold_share;
	fx_leave(&w[0]);
	for (unsigned frag = 0; frag < most; frag++) {
		struct pbox_hdr h = fx_data(&w[1], PBOX_PULL, 0, (uint16_t)frag, 1);

		fx_rx(0, &w[1], &h, NULL);
	}
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	fx_declare(&w[0], 0,
		&(struct fx_table){.elements = t.elements, .flags = PBOX_DECLARE_CONTINUE});
	fx_leave(&w[1]);
	fx_clear();
	for (unsigned frag = 0; frag < most; frag++)
		for (unsigned k = 0; k < 4; k++) {
			push_at(0, PBOX_PUSH, 0, (uint16_t)frag, 1, n[k], false, false);
			fx_clear();
		}
	UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), most);
	/* it ends where a worker has brought all of its own */
	CU_ASSERT_TRUE(push_at(0, PBOX_PUSHPULL, 0, 0, 1, n[4], false, false));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"summed early", test_fold},
	{"summed early, without a worker", test_fold_without_a_worker},
	{"PUSH alone", test_push_alone},
	{"nobody is waited for", test_bound_alone},
	{NULL, NULL},
};
