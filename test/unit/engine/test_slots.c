/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "slots.h"

/* A job whose workers bring nodes of the tree over its slots (R5.2b). Job "six" goes on without workers. */

const char unit_suite[] = "engine: slots";

/* R4.4: what a JOIN may ask, and that all ask for the same. */
static void
test_join(void)
{
	struct pbox_job_view v;

	fx_begin();
	w[0] = (struct fx_worker){.job = "speech", .workers = 3, .slots = 2};
	CU_ASSERT_FALSE(fx_try_join(&w[0]));
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"2 slots for 3 workers: each worker needs one at least, so give more slots or start fewer workers");
	w[0].slots = PBOX_MAX_SLOTS + 1;
	CU_ASSERT_FALSE(fx_try_join(&w[0]));
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_STRING_EQUAL(fx_error_text(), "4097 slots: a job has 4096 at most");
	UNIT_EQ_U64(fx.rs[PBOX_RS_JOBS], 0);
	w[0].slots = 12;
	CU_ASSERT_TRUE(fx_try_join(&w[0]));
	UNIT_EQ_U64(w[0].welcome.flags & 1u << PBOX_CAN_SLOTS, 1u << PBOX_CAN_SLOTS);
	pbox_registrar_view_job(fx.registrar, pbox_registrar_job(fx.registrar, 0), &v);
	UNIT_EQ_U64(v.slots, 12);
	w[1] = (struct fx_worker){.job = "speech", .worker = 1, .workers = 3, .slots = 13};
	CU_ASSERT_FALSE(fx_try_join(&w[1]));
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"job 'speech': a worker (host1) asks for 13 slots, the others for 12 (0: as many as workers): give all the same number");
	w[1].slots = 0;
	CU_ASSERT_FALSE(fx_try_join(&w[1]));
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	w[1].slots = 12;
	CU_ASSERT_TRUE(fx_try_join(&w[1]));
	/* as many as workers are names all the same; and a job without them has these */
	w[2] = (struct fx_worker){.job = "seven", .workers = 2, .slots = 2};
	CU_ASSERT_TRUE(fx_try_join(&w[2]));
	w[3] = (struct fx_worker){.job = "seven", .worker = 1, .workers = 2};
	CU_ASSERT_FALSE(fx_try_join(&w[3]));
	w[4] = (struct fx_worker){.job = "eight", .workers = 2};
	CU_ASSERT_TRUE(fx_try_join(&w[4]));
	pbox_registrar_view_job(fx.registrar, pbox_registrar_job_named(fx.registrar, "eight"), &v);
	UNIT_EQ_U64(v.slots, 2);
	fx_end();
}

/* Another run may have other slots (R12.5): the one that is kept makes way. */
static void
test_another_run(void)
{
	const struct fx_table t = {.elements = ELEMENTS};
	struct pbox_job_view v;

	fx.grace_ms = 60000;
	fx_begin();
	join_all("speech", 2, 4);
	declare_all(0, &t);
	fx.now += 100000 * MS; /* both are dead, and the run is kept */
	fx_tick();
	w[0].slots = 6;
	fx_hello(&w[0]);
	fx_try_join(&w[0]);
	fx_work();
	CU_ASSERT_TRUE(fx_try_join(&w[0]));
	pbox_registrar_view_job(fx.registrar, pbox_registrar_job(fx.registrar, 0), &v);
	UNIT_EQ_U64(v.slots, 6);
	fx_end();
}

/* The sum has the same bits, whatever workers bring it in whatever order. */
static void
test_sums(void)
{
	static const unsigned count[][2] = {{1, 1}, {1, 7}, {2, 2}, {2, 3}, {3, 7}, {3, 5}, {3, 32},
		{4, 16}, {5, 13}, {7, 100}, {8, 64}, {5, 257}, {3, 1001}, {3, 4096}};

	for (unsigned c = 0; c < sizeof(count) / sizeof(count[0]); c++) {
		unsigned n = count[c][0], order[WORKERS];

		seed = c + 1;
		begin("speech", n, count[c][1]);
		for (uint32_t round = 1; round <= 3; round++) {
			for (unsigned i = 0; i < n; i++)
				order[i] = i;
			for (unsigned i = n; i > 1; i--) {
				unsigned k = chance(i), x = order[k];

				order[k] = order[i - 1];
				order[i - 1] = x;
			}
			for (unsigned i = 0; i < n; i++) {
				UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
				bring(order[i], 0, 0, round);
			}
			UNIT_EQ_U64(fx_count(PBOX_RESULT), n);
			expect_result(round, -1);
			UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 0);
			fx_clear();
		}
		UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 0);
		fx_end();
	}
}

/* All nodes of all workers, in any order. */
static void
test_any_order(void)
{
	for (unsigned run = 0; run < 30; run++) {
		unsigned left = 0;
		struct {
			unsigned worker;
			struct pbox_node n;
		} todo[64];

		seed = run + 1;
		begin("speech", 3, 22);
		for (unsigned i = 0; i < 3; i++) {
			struct pbox_node n[PBOX_RANGE_NODES];
			unsigned k = nodes_of(i, n);

			while (k-- > 0) {
				todo[left].worker = i;
				todo[left++].n = n[k];
			}
		}
		while (left > 0) {
			unsigned k = chance(left);

			CU_ASSERT_TRUE(push_at(
				todo[k].worker, PBOX_PUSHPULL, 0, 0, 1, todo[k].n, true, false));
			todo[k] = todo[--left];
		}
		expect_result(1, -1);
		fx_end();
	}
}

/* Exactly once (R6.7), and what WAIT says (R6.6). */
static void
test_repetitions(void)
{
	begin("speech", 2, 7); /* 0 to 2, 3 to 6 */
	ask(1, 1);
	expect_wait(false, 3, 0, 0);
	CU_ASSERT_TRUE(push(1, PBOX_PUSH, 1, 3, 0));
	UNIT_EQ_U64(fx_last()->hdr.base, 3);
	fx_mark();
	CU_ASSERT_FALSE(push(1, PBOX_PUSH, 1, 3, 0));
	FX_ONLY(PBOX_SS_RX_DUP_PENDING);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PUSH_OK);
	UNIT_EQ_U64(fx_last()->hdr.base, 3);
	ask(1, 1);
	expect_wait(false, 4, 1, 0);
	CU_ASSERT_FALSE(push(1, PBOX_PUSHPULL, 1, 3, 0));
	expect_wait(false, 4, 1, 0);
	CU_ASSERT_TRUE(push(1, PBOX_PUSHPULL, 1, 4, 2)); /* cut: 4 to 6 */
	ask(1, 1);
	expect_wait(true, 0, 4, 0);
	CU_ASSERT_TRUE(push(0, PBOX_PUSH, 1, 0, 1));
	ask(0, 1);
	expect_wait(false, 2, 6, 0);
	ask(1, 1);
	expect_wait(true, 0, 6, 0);
	fx_mark();
	CU_ASSERT_FALSE(push(0, PBOX_PUSH, 1, 0, 1));
	FX_ONLY(PBOX_SS_RX_DUP_PENDING);
	UNIT_EQ_U64(fx_last()->hdr.base, 0 | 1 << 16);
	fx_clear();
	CU_ASSERT_TRUE(push(0, PBOX_PUSHPULL, 1, 2, 0));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	expect_result(1, -1);
	/* of a round that is finished */
	fx_mark();
	CU_ASSERT_FALSE(push(0, PBOX_PUSH, 1, 0, 1));
	FX_ONLY(PBOX_SS_RX_DUP_DONE);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PUSH_OK);
	UNIT_EQ_U64(fx_last()->hdr.base, 0 | 1 << 16);
	CU_ASSERT_FALSE(push(0, PBOX_PUSHPULL, 1, 2, 0));
	expect_result(1, -1);
	ask(0, 2);
	expect_wait(false, 0, 0, 0);
	fx_end();
}

static void
wrong(unsigned i, uint32_t code)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PUSH, 0, 0, 1);

	h.format = PBOX_FMT_FP32;
	h.length = sizeof(value[0]);
	h.base = code;
	fx_clear();
	fx_mark();
	CU_ASSERT_FALSE(fx_rx(0, &w[i], &h, value[0]));
	FX_ONLY(PBOX_SS_DROP_NODE);
	UNIT_EQ_U64(fx.n_sent, 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(fx_last()->hdr.length, 0);
}

static void
test_wrong_nodes(void)
{
	const struct fx_table weighted = {.elements = ELEMENTS, .op = PBOX_OP_WEIGHTED_MEAN};

	begin("speech", 3, 10); /* 0 to 2, 3 to 5, 6 to 9 */
	wrong(0, 3);            /* another's */
	wrong(0, 0 | 2 << 16);  /* a part is */
	wrong(1, 2);
	wrong(1, 4 | 2 << 16);
	wrong(0, 1 | 1 << 16); /* it does not begin there */
	wrong(2, 10);          /* no such slot */
	wrong(2, 8 | 13 << 16);
	wrong(2, 6 | 1u << 31);
	wrong(2, UINT32_MAX);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 0);
	bring(0, 0, 0, 1);
	for (uint32_t slot = 0; slot < 16; slot++) /* also while the round has something */
		wrong(slot < 6 ? 2 : 1, slot);
	for (unsigned i = 1; i < 3; i++)
		bring(i, 0, 0, 1);
	expect_result(1, -1);
	wrong(0, 3); /* whatever the round */
	fx_end();

	begin_with("speech", 2, 4, &weighted);
	wrong(0, 0 | 1 << 16);
	wrong(1, 2 | 1 << 16);
	for (unsigned slot = 0; slot < 4; slot++)
		CU_ASSERT_TRUE(push(slot / 2, PBOX_PUSHPULL, 1, slot, 0));
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	fx_end();
}

/* What another process brought, which had the number before, and does not bring the fewest nodes (R5.2b): it is refused, and
 * the worker does not wait for itself. */
static void
test_predecessor(void)
{
	begin("speech", 2, 16);
	for (uint32_t slot = 0; slot < 8; slot++)
		for (uint32_t level = 0; level < 3; level++)
			wrong(0, slot | level << 16);
	wrong(1, 8 | 4 << 16); /* as many slots as the node below */
	fx_leave(&w[0]);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	fx_declare(
		&w[0], 0, &(struct fx_table){.elements = ELEMENTS, .flags = PBOX_DECLARE_CONTINUE});
	fx_clear();
	bring(0, 0, 0, 1);
	bring(1, 0, 0, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	expect_result(1, -1);
	fx_end();
}

/* A frame came damaged, and its node was another one of its worker: that one takes its place. */
static void
test_damaged_node(void)
{
	begin("speech", 2, 11); /* 0 to 4, 5 to 10 */
	bring(0, 0, 0, 1);
	bring(1, 0, 0, 1);
	CU_ASSERT_TRUE(late(1, 0, 2, 6, 1, true)); /* was another */
	CU_ASSERT_TRUE(late(1, 0, 2, 6, 1, false));
	CU_ASSERT_TRUE(late(1, 0, 2, 5, 0, false));
	CU_ASSERT_TRUE(late(1, 0, 2, 8, 2, false));
	bring(0, 0, 0, 2);
	expect_result(2, -1);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 0);
	fx_end();
}

/* A damaged node is asked for again by its slot, and the others of its worker stay (R2.5). */
static void
test_taken_back(void)
{
	begin("speech", 2, 22); /* 0 to 10, 11 to 21 */
	bring(0, 0, 0, 1);
	bring(1, 0, 0, 1);
	for (uint32_t round = 2; round < 12; round++) {
		struct pbox_node n[PBOX_RANGE_NODES], *bad = &n[round % 3];
		unsigned k = nodes_of(1, n), has = pbox_node_end(*bad, 22) - bad->first;

		CU_ASSERT_EQUAL_FATAL(k, 3);
		fx_clear();
		while (k-- > 0)
			CU_ASSERT_TRUE(late(1, 0, round, n[k].first, n[k].level, &n[k] == bad));
		CU_ASSERT_TRUE(late(0, 0, round, 0, 3, false));
		CU_ASSERT_TRUE(late(0, 0, round, 8, 1, false));
		UNIT_EQ_U64(fx.n_sent, 0);
		CU_ASSERT_TRUE(late(0, 0, round, 10, 0, false));
		UNIT_EQ_U64(fx.n_sent, 1);
		UNIT_EQ_U64(fx_last()->hdr.worker, 1);
		UNIT_EQ_U64(fx_last()->hdr.round, round);
		expect_wait(false, bad->first, 22 - has, 1);
		UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 5);
		CU_ASSERT_TRUE(late(1, 0, round, bad->first, bad->level, false));
		UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
		expect_result(round, -1);
		UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 0);
		UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], round - 1);
	}
	fx_end();
}

/* An intact repetition takes the place of the same node; no other one that begins with the same slot does. */
static void
test_replaced(void)
{
	static struct datagram other;
	struct pbox_hdr h;
	struct pbox_frame f = {.payload = other.payload, .handle = &other};

	begin("speech", 2, 8);
	bring(0, 0, 0, 1);
	bring(1, 0, 0, 1);
	CU_ASSERT_TRUE(late(0, 0, 2, 0, 2, true));
	for (unsigned level = 0; level < 3; level++) {
		h = fx_data(&w[0], PBOX_PUSHPULL, 0, 0, 2);
		h.format = PBOX_FMT_FP32;
		h.length = sizeof(other.payload);
		h.base = level << 16;
		UNIT_EQ_U64(pbox_frame_seal(&other, &h), sizeof(other));
		f.hdr = h;
		f.peer = (struct pbox_peer){.ip = htonl(w[0].ip), .udp = w[0].udp};
		fx_at(0, &f.peer);
		fx_mark();
		UNIT_EQ_U64(pbox_shard_rx(fx.shard[0], &f, 1, fx.now), level == 2);
		FX_ONLY(level == 2 ? PBOX_SS_RX_DUP_PENDING : PBOX_SS_DROP_NODE);
	}
	expect_wait(true, 1, 4, 1);
	CU_ASSERT_TRUE(push(1, PBOX_PUSHPULL, 2, 4, 2));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 0);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(fx_last()->hdr.round, 2);
	fx_end();
}

/* The job goes on without a worker: its slots are absent, or those of them that have come count (R8.5). */
static void
test_shrink(void)
{
	for (unsigned some = 0; some < 2; some++) {
		begin("six", 3, 10); /* 0 to 2, 3 to 5, 6 to 9 */
		bring(0, 0, 0, 1);
		if (some != 0)
			CU_ASSERT_TRUE(push(1, PBOX_PUSHPULL, 1, 3, 0));
		bring(2, 0, 0, 1);
		fx_leave(&w[1]);
		UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
		if (some == 0)
			expect_result(1, 1);
		else
			UNIT_EQ_U64(fx_last()->hdr.aux, 8);
		fx_clear();
		bring(2, 0, 0, 2);
		ask(0, 2);
		expect_wait(false, 0, 4, 0);
		CU_ASSERT_TRUE(push(0, PBOX_PUSH, 2, 0, 1));
		ask(2, 2);
		expect_wait(true, 1, 6, 0);
		fx_clear();
		CU_ASSERT_TRUE(push(0, PBOX_PUSHPULL, 2, 2, 0));
		UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
		expect_result(2, 1);
		fx_end();
	}
}

/* A worker that the round does not wait for any more, and that is back. */
static void
back(unsigned i)
{
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[i]));
	CU_ASSERT_EQUAL_FATAL(
		fx_declare(&w[i], 0,
			&(struct fx_table){.elements = ELEMENTS, .flags = PBOX_DECLARE_CONTINUE})
			->hdr.type,
		PBOX_DECLARED);
	fx_clear();
}

/* What nobody waits for counts if it comes in time, node by node. */
static void
test_late_worker(void)
{
	begin("six", 3, 10);
	fx_leave(&w[1]);
	bring(0, 0, 0, 1);
	back(1);
	bring(1, 0, 0, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
	bring(2, 0, 0, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 3);
	expect_result(1, -1);
	fx_end();
}

/* All that are waited for have left, and one is back: a round is what it brings, once all of that is there. */
static void
test_alone(void)
{
	begin("six", 2, 6); /* 0 to 2, 3 to 5 */
	fx_leave(&w[0]);
	back(0);
	fx_leave(&w[1]);
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 2);
	CU_ASSERT_TRUE(push(0, PBOX_PUSH, 1, 0, 1));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS], 0);
	CU_ASSERT_TRUE(push(0, PBOX_PUSHPULL, 1, 2, 0));
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS], 1);
	expect_result(1, 1);
	fx_end();
}

/* A round that somebody asked for, and in which nothing is there when the last that it waits for has gone, is none: it would
 * not wait for those that are back. */
static void
test_forgotten(void)
{
	begin("six", 2, 6);
	fx_leave(&w[0]);
	ask(1, 1);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 1);
	back(0);
	fx_leave(&w[1]);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 0);
	back(1);
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_EQUAL(fx_map(&w[i], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_clear();
	bring(0, 0, 0, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
	bring(1, 0, 0, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	expect_result(1, -1);
	fx_end();
}

/* Weights are of slots (WEIGHTED_MEAN), also where the last one is alone. */
static void
test_weights(void)
{
	const struct fx_table t = {.elements = ELEMENTS, .op = PBOX_OP_WEIGHTED_MEAN};
	struct pbox_hdr h;
	float got[ELEMENTS];

	begin_with("six", 2, 7, &t);                 /* 0 to 2, 3 to 6 */
	CU_ASSERT_TRUE(push(0, PBOX_PUSH, 1, 0, 0)); /* of weight 1 */
	h = fx_data(&w[1], PBOX_PUSHPULL, 0, 0, 1);
	h.format = PBOX_FMT_FP32;
	h.length = sizeof(value[6]);
	h.base = 6;
	h.weight = 3;
	CU_ASSERT_TRUE(fx_rx(0, &w[1], &h, value[6]));
	fx_leave(&w[0]);
	for (unsigned slot = 3; slot < 6; slot++)
		CU_ASSERT_TRUE(push(1, PBOX_PUSH, 1, slot, 0));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(fx_last()->hdr.weight, 7);
	memcpy(got, fx_last()->payload, sizeof(got));
	for (unsigned k = 0; k < ELEMENTS; k++) {
		float left = value[0][k] + value[3][k], right = value[4][k] + value[5][k];

		right = right + 3.0f * value[6][k];
		CU_ASSERT_EQUAL(got[k], (left + right) * (float)(1.0 / 7));
	}
	fx_end();

	begin_with("six", 7, 7, &t);
	for (unsigned i = 0; i < 6; i++)
		fx_leave(&w[i]);
	h = fx_data(&w[6], PBOX_PUSHPULL, 0, 0, 1);
	h.format = PBOX_FMT_FP32;
	h.length = sizeof(value[6]);
	h.base = 6;
	h.weight = 4;
	CU_ASSERT_TRUE(fx_rx(0, &w[6], &h, value[6]));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, value[6], sizeof(value[6])), 0);
	fx_end();
}

/* Tables do not meet: the same fragment number and round, other slots that are missing. */
static void
test_two_tables(void)
{
	const struct fx_table t = {.elements = ELEMENTS, .op = PBOX_OP_SUM};
	uint32_t second = 1u << PBOX_CHUNK_BITS;

	begin("speech", 2, 6);
	declare_all(1, &t);
	bring(0, 0, 0, 1);
	bring(1, second, 0, 1);
	ask(0, 1);
	expect_wait(true, 0, 3, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 0);
	bring(0, second, 0, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	expect_result(1, -1);
	UNIT_EQ_U64(fx_last()->hdr.chunk, second);
	fx_clear();
	bring(1, 0, 0, 1);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
	expect_result(1, -1);
	fx_end();
}

static const struct pbox_job *
job_of(const char *name)
{
	return pbox_registrar_job_named(fx.registrar, name);
}

/* What the rounds of a job take is its own, by its slots. */
static void
test_memory(void)
{
	size_t few, many;

	fx.arena_size = FX_ARENA;
	fx_begin();
	w[0] = (struct fx_worker){.job = "speech", .workers = 2};
	CU_ASSERT_TRUE(fx_try_join(&w[0]));
	few = job_of("speech")->round_bytes;
	fx_end();
	fx_begin();
	w[0].slots = PBOX_MAX_SLOTS;
	w[0].number = 0;
	CU_ASSERT_TRUE(fx_try_join(&w[0]));
	many = job_of("speech")->round_bytes;
	/* at least one record on each shard, of a pointer and a contribution a slot */
	CU_ASSERT(many > FX_SHARDS * PBOX_MAX_SLOTS * 24);
	CU_ASSERT(many > few / job_of("speech")->hold_share);
	CU_ASSERT(pbox_arena_used(fx.arena) >= many);
	fx_end();
	/* a section that has less refuses it */
	fx.memory = FX_SHARDS * 2 * PBOX_MAX_SLOTS *
		    32; /* a record for each worker and shard, without what is in it */
	fx_begin();
	w[1] = (struct fx_worker){.job = "quota", .workers = 2, .slots = PBOX_MAX_SLOTS};
	CU_ASSERT_FALSE(fx_try_join(&w[1]));
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "2 workers with 4096 slots need "));
	w[1].slots = 4;
	CU_ASSERT_TRUE(fx_try_join(&w[1]));
	fx_end();
	/* packets are of nodes */
	fx.hold = 5;
	fx_begin();
	w[2] = (struct fx_worker){.job = "speech", .workers = 3, .slots = 14};
	CU_ASSERT_FALSE(fx_try_join(&w[2]));
	UNIT_EQ_U64(fx_error(), PBOX_E_FULL);
	CU_ASSERT_STRING_EQUAL(fx_error_text(),
		"no packet buffers left for 3 workers that bring 6 nodes of 14 slots a round (5 free): raise 'hold', or let the slots be the workers times a power of 2");
	w[2].slots = 12;
	CU_ASSERT_TRUE(fx_try_join(&w[2]));
	fx_end();
}

/* The node of a worker, as codes or in fp32; sum: what the box has of it. */
static void
push_mixed(unsigned i, uint32_t round, bool wide, float *sum)
{
	static uint8_t payload[2][4 * ELEMENTS];
	struct pbox_hdr h = fx_data(&w[i], PBOX_PUSHPULL, 0, 0, round);
	unsigned end = 2 * i + 2;

	sum_of(sum, 2 * i, end, -1);
	memcpy(payload[i], sum, 4 * ELEMENTS);
	h.format = wide ? PBOX_FMT_FP32 : PBOX_FMT_INT8;
	h.fmt_arg = wide ? 0 : 7;
	h.length = (uint16_t)pbox_payload_bytes(h.format, ELEMENTS);
	h.base = pbox_node_code((struct pbox_node){.first = (uint16_t)(2 * i), .level = 1});
	if (!wide) {
		pbox_reduce_scalar.encode(payload[i], PBOX_FMT_INT8, sum, NULL, ELEMENTS);
		pbox_reduce_scalar.decode(sum, payload[i], PBOX_FMT_INT8, ELEMENTS);
	}
	fx_rx(0, &w[i], &h, payload[i]);
}

/* R13.9: each contribution is of the format that it says, in tables that have the flag alone. */
static void
test_mixed(void)
{
	struct fx_table t = {.elements = ELEMENTS,
		.push = PBOX_FMT_INT8,
		.pull = PBOX_FMT_INT8,
		.flags = 0x070700 | PBOX_DECLARE_MIXED};
	float sum[2][ELEMENTS], residual[ELEMENTS] = {0};
	uint8_t want[4 * ELEMENTS];

	begin_with("speech", 2, 4, &t);
	for (uint32_t round = 1; round <= 4; round++) {
		for (unsigned i = 0; i < 2; i++)
			push_mixed(i, round, (round >> i & 1) != 0, sum[i]);
		UNIT_EQ_U64(fx_count(PBOX_RESULT), 2);
		for (unsigned k = 0; k < ELEMENTS; k++)
			sum[0][k] = sum[0][k] + sum[1][k];
		pbox_reduce_scalar.encode(want, PBOX_FMT_INT8, sum[0], residual, ELEMENTS);
		UNIT_EQ_U64(fx_last()->hdr.length, pbox_payload_bytes(PBOX_FMT_INT8, ELEMENTS));
		CU_ASSERT(memcmp(fx_last()->payload, want, fx_last()->hdr.length) == 0);
		fx_clear();
	}
	UNIT_EQ_U64(pbox_shard_held(fx.shard[0]), 0);
	fx_end();
	t.flags = 0x070700;
	begin_with("speech", 2, 4, &t);
	push_mixed(0, 1, true, sum[0]);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_DROP_FORMAT], 1);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"codes and fp32 in one round", test_mixed},
	{"JOIN", test_join},
	{"another run", test_another_run},
	{"sums", test_sums},
	{"nodes in any order", test_any_order},
	{"repetitions and WAIT", test_repetitions},
	{"wrong nodes", test_wrong_nodes},
	{"another process had the number", test_predecessor},
	{"a node that is damaged", test_damaged_node},
	{"taken back", test_taken_back},
	{"replaced", test_replaced},
	{"without a worker", test_shrink},
	{"a worker that nobody waits for", test_late_worker},
	{"alone", test_alone},
	{"forgotten", test_forgotten},
	{"weights", test_weights},
	{"two tables", test_two_tables},
	{"memory", test_memory},
	{NULL, NULL},
};
