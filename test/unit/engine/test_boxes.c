/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A box of a job at several boxes (section 16). */

#include <math.h>
#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: several boxes";

#define MS UINT64_C(1000000)

static const struct pbox_registrar_boxes list = {
	.boxes = 3,
	.at = {{{10, 0, 0, 1}, 7269}, {{10, 0, 0, 2}, 7269}, {{10, 0, 0, 3}, 7269}},
	.release = "0.1.0",
};
static const struct fx_table table = {.elements = 4000, .op = PBOX_OP_SUM};
static struct fx_worker w[2], other;

static void
begin(uint8_t box)
{
	fx.boxes = list;
	fx.boxes.box = box;
	fx_begin();
}

static struct fx_worker
worker(uint16_t number, uint64_t run)
{
	return (struct fx_worker){
		.job = "vision", .worker = number, .workers = 2, .number = run, .boxes = true};
}

static void
test_who_may_join(void)
{
	begin(1);
	w[0] = worker(0, 0);
	CU_ASSERT_FALSE(fx_try_join(&w[0]));
	UNIT_EQ_U64(fx_error(), PBOX_E_ELSEWHERE);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "its first one is 10.0.0.1: join there"));
	w[0] = worker(0, 7);
	w[0].boxes = false;
	CU_ASSERT_FALSE(fx_try_join(&w[0]));
	UNIT_EQ_U64(fx_error(), PBOX_E_UNSUPPORTED);
	w[0] = worker(0, 7);
	w[0].job = "five";
	w[0].policy = PBOX_POLICY_SHRINK;
	CU_ASSERT_FALSE(fx_try_join(&w[0]));
	UNIT_EQ_U64(fx_error(), PBOX_E_UNSUPPORTED);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "policy shrink"));
	w[0] = worker(0, 7);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	UNIT_EQ_U64(w[0].welcome.number, 7);
	CU_ASSERT((w[0].welcome.flags & 1u << PBOX_CAN_BOXES) != 0);
	fx_end();
	begin(0);
	w[0] = worker(0, 0);
	CU_ASSERT_TRUE(fx_try_join(&w[0]));
	fx_end();
}

static void
test_the_list(void)
{
	struct pbox_boxes_ok m;
	const struct fx_sent *s;

	begin(2);
	w[0] = worker(0, 7);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	s = fx_control(&w[0], PBOX_BOXES, NULL, 0);
	CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_BOXES_OK);
	CU_ASSERT_EQUAL(pbox_boxes_ok_decode(s->payload, s->hdr.length, &m), 0);
	UNIT_EQ_U64(m.boxes, 3);
	UNIT_EQ_U64(m.box, 2);
	UNIT_EQ_U64(m.cores, FX_SHARDS);
	UNIT_EQ_U64(m.chunk_elements, 64);
	UNIT_EQ_U64(m.mtu, 1500);
	CU_ASSERT_STRING_EQUAL(m.release, "0.1.0");
	CU_ASSERT(memcmp(m.at, list.at, sizeof(m.at)) == 0);
	fx_end();
}

static void
two_mapped(uint64_t run)
{
	for (uint16_t i = 0; i < 2; i++) {
		w[i] = worker(i, run);
		CU_ASSERT_TRUE_FATAL(fx_try_join(&w[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		UNIT_EQ_U64(fx_declare(&w[i], 0, &table)->hdr.type, PBOX_DECLARED);
	for (unsigned i = 0; i < 2; i++)
		UNIT_EQ_U64(fx_map(&w[i], 0, 0)->hdr.type, PBOX_MAPPED);
}

/* The map has all chunks, and each is of the same box at all boxes. Memory is that of one box's chunks. */
static void
test_parts(void)
{
	uint32_t elements[3] = {0}, whose[1024], all;
	size_t bytes[4];

	for (uint8_t box = 0; box < 3; box++) {
		struct pbox_chunk_entry e;
		struct pbox_mapped m;
		struct pbox_cursor cur;
		const struct fx_sent *s;

		begin(box);
		two_mapped(box == 0 ? 0 : 7);
		bytes[box] = pbox_registrar_job(fx.registrar, 0)->bytes;
		all = 1;
		for (uint32_t i = 0; i < all;) {
			s = fx_map(&w[0], 0, i);
			CU_ASSERT_EQUAL_FATAL(
				pbox_mapped_decode(s->payload, s->hdr.length, &m, &cur), 0);
			all = m.chunks;
			CU_ASSERT_FATAL(all < 1024 && m.count > 0);
			for (unsigned k = 0; k < m.count; k++, i++) {
				CU_ASSERT_EQUAL(pbox_mapped_next(&cur, &e), 0);
				CU_ASSERT_FATAL(e.endpoint >> 8 < 3);
				CU_ASSERT(box == 0 || whose[i] == e.endpoint >> 8);
				whose[i] = e.endpoint >> 8;
				CU_ASSERT(e.endpoint >> 8 == box || (e.endpoint & 0xFF) == 0);
				elements[box] += e.endpoint >> 8 == box ? e.elements : 0;
			}
		}
		fx_end();
	}
	UNIT_EQ_U64(elements[0] + elements[1] + elements[2], table.elements);
	for (unsigned i = 0; i < 3; i++)
		CU_ASSERT(elements[i] > table.elements / 4 && elements[i] < table.elements / 2);
	fx_begin();
	two_mapped(0);
	bytes[3] = pbox_registrar_job(fx.registrar, 0)->bytes;
	fx_end();
	CU_ASSERT(bytes[0] < bytes[3] / 2 && bytes[1] < bytes[3] / 2 && bytes[2] < bytes[3] / 2);
}

/* A chunk of another box is not here. */
static void
test_another_chunk(void)
{
	static const float v[16];
	unsigned here = 0, elsewhere = 0;

	begin(1);
	two_mapped(7);
	for (uint32_t chunk = 0; chunk < 9; chunk++) {
		struct pbox_hdr h = fx_data(&w[0], PBOX_PUSHPULL, chunk, 0, 1);
		uint64_t before =
			fx.ss[0][PBOX_SS_DROP_CHUNK_UNKNOWN] + fx.ss[1][PBOX_SS_DROP_CHUNK_UNKNOWN];

		h.length = sizeof(v);
		h.format = PBOX_FMT_FP32;
		for (unsigned shard = 0; shard < FX_SHARDS; shard++)
			fx_rx(shard, &w[0], &h, v);
		if (fx.ss[0][PBOX_SS_DROP_CHUNK_UNKNOWN] + fx.ss[1][PBOX_SS_DROP_CHUNK_UNKNOWN] ==
			before + FX_SHARDS)
			elsewhere++;
		else
			here++;
	}
	CU_ASSERT(here >= 2 && elsewhere >= 4);
	fx_end();
}

static bool said; /* the box, that it has an earlier run */

/* What lives answers the box. */
static bool
asks(bool lives)
{
	for (unsigned i = 0; i < 40; i++) {
		other = worker(1, 9);
		if (fx_try_join(&other))
			return true;
		UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
		said |= strstr(fx_error_text(), "is later than the one that is here") != NULL;
		for (unsigned k = 0; k < 2 && lives; k++)
			fx_control(&w[k], PBOX_PING, NULL, 0);
		fx_mail();
		fx.now += 100 * MS;
		fx_tick();
	}
	return false;
}

/* R16.3: the first box was started again, and gives a new number to a worker that has nothing. A run that lives goes on;
 * one that is dead makes way. */
static void
test_a_later_run(void)
{
	begin(1);
	two_mapped(7);
	CU_ASSERT_FALSE(asks(true));
	CU_ASSERT_TRUE(said);
	CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 0);
	CU_ASSERT_TRUE(asks(false));
	UNIT_EQ_U64(other.welcome.number, 9);
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 1);
	/* its workers hear that, and one that was in it without a map follows */
	w[0] = worker(0, 7);
	CU_ASSERT_FALSE(fx_try_join(&w[0]));
	UNIT_EQ_U64(fx_error(), PBOX_E_RUN_ENDED);
	fx_end();
	/* who had a map before the first box was started again, and had no round yet, is of the later one itself */
	begin(1);
	two_mapped(7);
	for (unsigned i = 0; i < 2; i++) {
		struct pbox_join m;

		fx_hello(&w[i]);
		m = fx_join_message(&w[i]);
		m.number = 9;
		CU_ASSERT_EQUAL(fx_join_with(&w[i], &m, "key")->hdr.type, PBOX_ERROR);
		UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
		CU_ASSERT_EQUAL(fx_control(&w[i], PBOX_PING, NULL, 0)->hdr.type, PBOX_ERROR);
	}
	fx_mail();
	CU_ASSERT_TRUE(asks(true));
	fx_end();
	/* nobody has a map: at once */
	begin(1);
	w[0] = worker(0, 7);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	w[1] = worker(1, 7);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[1]));
	CU_ASSERT_TRUE(asks(true));
	/* with the nonce of its session in the older one */
	w[0].number = 9;
	fx_hello(&w[0]);
	{
		struct pbox_join m = fx_join_message(&w[0]);

		CU_ASSERT_EQUAL(fx_join_with(&w[0], &m, "key")->hdr.type, PBOX_WELCOME);
	}
	fx_end();
}

/* This box was started again, too: a worker that restores is of the run that goes on, which came back before the later one, or
 * comes after it. */
static void
test_an_earlier_run(void)
{
	struct fx_table restores = table;

	restores.flags = PBOX_DECLARE_RESTORE;
	begin(1);
	w[0] = worker(0, 7);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	w[1] = worker(1, 7);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[1]));
	CU_ASSERT_EQUAL(fx_declare(&w[0], 0, &restores)->hdr.type, PBOX_DECLARED);
	CU_ASSERT_FALSE(asks(true));
	UNIT_EQ_U64(fx.rs[PBOX_RS_RUNS_ENDED], 0);
	fx_end();
	begin(1);
	CU_ASSERT_TRUE_FATAL(asks(true));
	w[0] = worker(0, 7);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	UNIT_EQ_U64(w[0].welcome.number, 7);
	CU_ASSERT_EQUAL(fx_control(&other, PBOX_PING, NULL, 0)->hdr.type, PBOX_ERROR);
	/* nothing was here of it, so it may go on after that again */
	CU_ASSERT_TRUE_FATAL(asks(true));
	w[0] = worker(0, 7);
	CU_ASSERT_TRUE(fx_try_join(&w[0]));
	/* but not with a table of the later one */
	CU_ASSERT_TRUE_FATAL(asks(true));
	CU_ASSERT_EQUAL(fx_declare(&other, 0, &restores)->hdr.type, PBOX_DECLARED);
	w[0] = worker(0, 7);
	CU_ASSERT_FALSE(fx_try_join(&w[0]));
	UNIT_EQ_U64(fx_error(), PBOX_E_RUN_ENDED);
	fx_end();
	/* the first one gives numbers, and remembers what has ended */
	begin(0);
	w[0] = worker(0, 9);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	w[1] = worker(1, 7);
	CU_ASSERT_FALSE(fx_try_join(&w[1]));
	UNIT_EQ_U64(fx_error(), PBOX_E_RUN_ENDED);
	fx_end();
}

static uint8_t
tell(const struct pbox_stats_msg *m)
{
	uint8_t payload[PBOX_STATS_MOST];

	return fx_control(
		&w[0], PBOX_STATS, payload, pbox_stats_encode(payload, sizeof(payload), m))
		->hdr.type;
}

/* R16.8: the first box keeps the latest word of each worker; what is no sum of seconds changes nothing. */
static void
test_times(void)
{
	struct pbox_stats_msg m = {.boxes = 3,
				      .rounds = 20,
				      .seconds = 2.5,
				      .squares = 0.5,
				      .box = {{20, 1.5, 0.25, 0.125}, {20, 1, 0.1, 0}, {0}}},
			      got;
	const struct pbox_job *job;
	const double bad[] = {NAN, INFINITY, -1};

	begin(0);
	w[0] = worker(0, 0);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	job = pbox_registrar_job(fx.registrar, 0);
	CU_ASSERT_FALSE(pbox_registrar_view_times(fx.registrar, job, 0, &got));
	CU_ASSERT_EQUAL(tell(&m), PBOX_STATS_OK);
	CU_ASSERT_TRUE(pbox_registrar_view_times(fx.registrar, job, 0, &got));
	CU_ASSERT(memcmp(&m, &got, sizeof(m)) == 0);
	CU_ASSERT_FALSE(pbox_registrar_view_times(fx.registrar, job, 1, &got));
	for (unsigned i = 0; i < 3; i++) {
		struct pbox_stats_msg wrong = m;

		wrong.box[2].exposed = bad[i];
		CU_ASSERT_EQUAL(tell(&wrong), PBOX_ERROR);
		UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
		wrong = m;
		wrong.squares = bad[i];
		CU_ASSERT_EQUAL(tell(&wrong), PBOX_ERROR);
		wrong = m;
		wrong.boxes = (uint16_t)(i == 0 ? 2 : 4);
		CU_ASSERT_EQUAL(tell(&wrong), PBOX_ERROR);
	}
	CU_ASSERT_TRUE(pbox_registrar_view_times(fx.registrar, job, 0, &got));
	CU_ASSERT(memcmp(&m, &got, sizeof(m)) == 0);
	fx_end();
	begin(1);
	w[0] = worker(0, 7);
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	CU_ASSERT_EQUAL(tell(&m), PBOX_ERROR);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"times of boxes", test_times},
	{"who may join", test_who_may_join},
	{"the list", test_the_list},
	{"each box has its part", test_parts},
	{"chunks of other boxes", test_another_chunk},
	{"a later run", test_a_later_run},
	{"an earlier run", test_an_earlier_run},
	{NULL, NULL},
};
