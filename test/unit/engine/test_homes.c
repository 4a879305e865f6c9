/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Chunks of a job at several boxes come and leave (R16.9 to R16.11). */

#include <string.h>

#include "homes.h"

const char unit_suite[] = "engine: chunks that move";

static uint64_t
counted(enum pbox_shard_stat what)
{
	return fx.ss[0][what] + fx.ss[1][what];
}

static void
test_a_chunk_leaves(void)
{
	uint32_t chunk;

	begin(1, &reduce);
	chunk = chunk_of(1, 0);
	CU_ASSERT_TRUE(push(0, chunk, 1, 1));
	UNIT_EQ_U64(counted(PBOX_SS_HELD), 1);
	/* it takes what it gets, and loses nothing yet */
	UNIT_EQ_U64(say(0, chunk, 2, 2, PBOX_HOMES_RESTORE | PBOX_HOMES_PREPARE), PBOX_HOMES_OK);
	UNIT_EQ_U64(m.home[0].box, 1);
	UNIT_EQ_U64(m.home[0].epoch, 1);
	UNIT_EQ_U64(counted(PBOX_SS_HELD), 1);
	/* closed: the round is given up, and who comes late hears so */
	UNIT_EQ_U64(say(0, chunk, 2, 2, PBOX_HOMES_RESTORE), PBOX_HOMES_OK);
	UNIT_EQ_U64(m.home[0].box, 2);
	UNIT_EQ_U64(m.epoch, 2);
	UNIT_EQ_U64(counted(PBOX_SS_HELD), 0);
	UNIT_EQ_U64(counted(PBOX_SS_ROUNDS_OPEN), 0);
	CU_ASSERT_FALSE(push(0, chunk, 1, 1));
	UNIT_EQ_U64(counted(PBOX_SS_DROP_MAP_EPOCH), 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_MOVED);
	UNIT_EQ_U64(fx_last()->hdr.map_epoch, 2);
	UNIT_EQ_U64(fx_last()->hdr.chunk, chunk);
	CU_ASSERT_EQUAL(fx_control(&w[1], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	UNIT_EQ_U64(fx_last()->hdr.map_epoch, 2);
	/* nor does anything count that says the new epoch */
	CU_ASSERT_FALSE(push(1, chunk, 1, 2));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.flags & PBOX_F_HAVE, 0);
	/* an older map changes nothing */
	UNIT_EQ_U64(say(1, chunk, 1, 1, PBOX_HOMES_RESTORE), PBOX_HOMES_OK);
	UNIT_EQ_U64(m.home[0].box, 2);
	/* others go on */
	chunk = chunk_of(1, 1);
	push(0, chunk, 1, 1);
	push(1, chunk, 1, 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	CU_ASSERT(memcmp(fx_last()->payload, sum, sizeof(sum)) == 0);
	fx_end();
}

/* Version 4 of a chunk that comes is given by worker 1, which alone has it. */
static void
test_a_chunk_comes(void)
{
	uint32_t chunk;
	size_t bytes;

	begin(1, &reduce);
	chunk = chunk_of(2, 0);
	bytes = pbox_registrar_job(fx.registrar, 0)->bytes;
	UNIT_EQ_U64(say(0, chunk, 1, 2, PBOX_HOMES_RESTORE | PBOX_HOMES_PREPARE), PBOX_HOMES_OK);
	UNIT_EQ_U64(m.home[0].box, 1);
	UNIT_EQ_U64(m.home[0].epoch, 2);
	CU_ASSERT(pbox_registrar_job(fx.registrar, 0)->bytes > bytes);
	bytes = pbox_registrar_job(fx.registrar, 0)->bytes;
	UNIT_EQ_U64(say(1, chunk, 1, 2, PBOX_HOMES_RESTORE), PBOX_HOMES_OK);
	CU_ASSERT_EQUAL(pbox_registrar_job(fx.registrar, 0)->bytes, bytes);
	CU_ASSERT_FALSE(push(0, chunk, 4, 2));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	send(0, PBOX_RESTORE, chunk, 3, 2, PBOX_F_HAVE, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESTORE_OK);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_NOTED);
	send(1, PBOX_RESTORE, chunk, 4, 2, PBOX_F_HAVE, NULL);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_GIVE);
	send(1, PBOX_RESTORE, chunk, 4, 2, PBOX_F_HAVE, sum);
	UNIT_EQ_U64(fx_count(PBOX_RESTORE_OK), 2);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_DONE);
	UNIT_EQ_U64(fx_last()->hdr.base, 4);
	/* a late frame of its former epoch is none of it */
	CU_ASSERT_FALSE(push(0, chunk, 5, 1));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_MOVED);
	CU_ASSERT_FALSE(push(0, chunk, 4, 2)); /* it had not got version 4 */
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	CU_ASSERT(memcmp(fx_last()->payload, sum, sizeof(sum)) == 0);
	push(0, chunk, 5, 2);
	push(1, chunk, 5, 2);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(fx_last()->hdr.round, 5);
	UNIT_EQ_U64(fx_last()->hdr.map_epoch, 2);
	/* it leaves, and comes again, to the same memory; version 5 is there still */
	UNIT_EQ_U64(say(0, chunk, 0, 3, PBOX_HOMES_RESTORE), PBOX_HOMES_OK);
	UNIT_EQ_U64(say(0, chunk, 1, 4, PBOX_HOMES_RESTORE), PBOX_HOMES_OK);
	CU_ASSERT_EQUAL(pbox_registrar_job(fx.registrar, 0)->bytes, bytes);
	send(0, PBOX_RESTORE, chunk, 4, 4, 0, NULL);
	send(1, PBOX_RESTORE, chunk, 5, 4, 0, NULL); /* without a payload */
	UNIT_EQ_U64(fx_count(PBOX_RESTORE_OK), 2);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_DONE);
	UNIT_EQ_U64(fx_last()->hdr.base, 5);
	fx_tick();
	fx_end();
}

/* Who is waited for: all whose sessions are there or not, but those that have left, and new processes. */
static void
test_restorers(void)
{
	struct fx_worker again;
	uint32_t chunk;

	begin(1, &reduce);
	chunk = chunk_of(2, 0);
	UNIT_EQ_U64(say(0, chunk, 1, 2, PBOX_HOMES_RESTORE), PBOX_HOMES_OK);
	send(0, PBOX_RESTORE, chunk, 3, 2, PBOX_F_HAVE, NULL);
	CU_ASSERT_EQUAL(
		pbox_registrar_kick(fx.registrar, 0, 1, "", fx.now, &(struct pbox_error){0}), 0);
	fx_tick();
	send(0, PBOX_RESTORE, chunk, 3, 2, PBOX_F_HAVE, NULL);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_NOTED);
	UNIT_EQ_U64(fx_last()->hdr.weight, 1);
	again = (struct fx_worker){
		.job = "vision", .worker = 1, .workers = 2, .number = 7, .boxes = true};
	CU_ASSERT_TRUE_FATAL(fx_try_join(&again));
	{
		struct fx_table t = reduce;

		t.flags = PBOX_DECLARE_CONTINUE;
		UNIT_EQ_U64(fx_declare(&again, 0, &t)->hdr.type, PBOX_DECLARED);
	}
	w[1] = again;
	/* it has nothing: nobody else is waited for now, and then it has the map of what is restored */
	UNIT_EQ_U64(say(1, chunk, 1, 2, 0), PBOX_NOT_READY);
	send(0, PBOX_RESTORE, chunk, 3, 2, PBOX_F_HAVE, sum);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_DONE);
	UNIT_EQ_U64(say(1, chunk, 1, 2, 0), PBOX_HOMES_OK);
	UNIT_EQ_U64(m.home[0].version, 3);
	/* who leaves has no more to say */
	chunk = chunk_of(2, 1);
	UNIT_EQ_U64(say(0, chunk, 1, 3, PBOX_HOMES_RESTORE), PBOX_HOMES_OK);
	send(0, PBOX_RESTORE, chunk, 1, 3, PBOX_F_HAVE, sum);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_NOTED);
	fx_leave(&w[1]);
	fx_tick();
	send(0, PBOX_RESTORE, chunk, 1, 3, PBOX_F_HAVE, sum);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_DONE);
	fx_end();
}

/* A chunk that comes too late for the SETs of its new box has no hyper-parameters there: it is lost, and said to be. */
static void
test_a_chunk_is_late(void)
{
	uint32_t late, alike;

	begin(1, &reduce);
	for (uint32_t r = 1; r <= 70; r++) {
		UNIT_EQ_U64(
			fx_set(&w[0], 0, r, PBOX_HYPER_CLIP_VALUE, 1e6 + r)->hdr.type, PBOX_SET_OK);
		for (unsigned n = 0; n < 4; n++)
			for (unsigned i = 0; i < 2; i++)
				push(i, chunk_of(1, n), r, 1);
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	}
	late = chunk_of(2, 0);
	alike = chunk_of(2, 1);
	for (unsigned i = 0; i < 2; i++) {
		UNIT_EQ_U64(say(i, late, 1, 2, PBOX_HOMES_RESTORE), PBOX_HOMES_OK);
		UNIT_EQ_U64(say(i, alike, 1, 2, PBOX_HOMES_RESTORE), PBOX_HOMES_OK);
	}
	/* as long as they come nothing is given up for a SET, and none is refused */
	fx_clear();
	CU_ASSERT_PTR_NULL(fx_set(&w[0], 0, 71, PBOX_HYPER_CLIP_VALUE, 9e6));
	send(0, PBOX_RESTORE, late, 4, 2, PBOX_F_HAVE, NULL);
	send(1, PBOX_RESTORE, late, 4, 2, PBOX_F_HAVE, sum);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_LATE);
	UNIT_EQ_U64(fx_last()->hdr.base, 4);
	send(0, PBOX_RESTORE, late, 4, 2, PBOX_F_HAVE, NULL);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_LATE);
	push(0, late, 5, 2);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_LOST);
	/* of the oldest SET that is left; and no new one takes its place */
	send(0, PBOX_RESTORE, alike, 6, 2, PBOX_F_HAVE, NULL);
	send(1, PBOX_RESTORE, alike, 6, 2, PBOX_F_HAVE, sum);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_DONE);
	CU_ASSERT_EQUAL(
		pbox_schedule_at(&pbox_registrar_job(fx.registrar, 0)->table[0]->t.schedule[0], 7)
			->clip_value,
		1e6 + 7);
	fx_tick();
	CU_ASSERT_PTR_NOT_NULL(strstr(pbox_registrar_job(fx.registrar, 0)->table[0]->error.text,
		"more than 64 SETs earlier"));
	fx_end();
}

static struct pbox_moving_view
moving(void)
{
	struct pbox_moving_view view;

	pbox_registrar_view_moving(fx.registrar, pbox_registrar_job(fx.registrar, 0), &view);
	return view;
}

static void
fetch(uint32_t chunk, uint16_t epoch, uint16_t array)
{
	struct pbox_hdr h = fx_data(&w[0], PBOX_FETCH, chunk, 0, 0);

	h.map_epoch = epoch;
	h.flags = PBOX_F_LATEST;
	h.aux = array;
	fx_clear();
	for (unsigned s = 0; s < FX_SHARDS; s++)
		fx_rx(s, &w[0], &h, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_FETCHED);
}

/* That the map gives a box no chunk does not say that it may be stopped. */
static void
test_what_is_still_here(void)
{
	struct fx_table t = reduce;
	uint32_t chunk, last;

	t.mode = PBOX_MODE_OPTIMISER;
	t.optimiser = PBOX_OPT_MOMENTUM;
	begin(1, &t);
	chunk = chunk_of(1, 0);
	last = chunk_of(1, 3);
	for (unsigned i = 0; i < 2; i++)
		fx_set(&w[i], 0, 1, PBOX_HYPER_LR, 0.5);
	for (unsigned i = 0; i < 4; i++)
		send(0, PBOX_INIT, chunk_of(1, i), 0, 1, 0, v);
	push(0, chunk, 1, 1);
	push(1, chunk, 1, 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(moving().here, 4);
	UNIT_EQ_U64(moving().unshown, 0);
	UNIT_EQ_U64(say(0, chunk, 2, 2, PBOX_HOMES_RESTORE | PBOX_HOMES_PREPARE), PBOX_HOMES_OK);
	UNIT_EQ_U64(moving().here, 4);
	for (unsigned i = 0; i < 4; i++)
		say(0, chunk_of(1, i), 2, 2, PBOX_HOMES_RESTORE);
	/* no chunk is here, but two workers have not shown the whole map, and the momentum of one is nowhere else */
	UNIT_EQ_U64(moving().here, 0);
	UNIT_EQ_U64(moving().unshown, last == 11 ? 1 : 2);
	for (unsigned i = 0; i < 2; i++)
		say(i, 11, home[11] == 1 ? 2 : home[11], home[11] == 1 ? 2 : 1, PBOX_HOMES_RESTORE);
	UNIT_EQ_U64(moving().needed, 1);
	fetch(chunk, 2, 0);
	UNIT_EQ_U64(moving().needed, 1);
	fetch(chunk, 2, 1);
	UNIT_EQ_U64(moving().needed, 0);
	fetch(chunk, 2, 1);
	UNIT_EQ_U64(moving().needed, 0);
	fx_end();
}

static void
test_what_is_refused(void)
{
	begin(1, &reduce);
	UNIT_EQ_U64(say(0, 3, 5, 2, PBOX_HOMES_RESTORE), PBOX_ERROR); /* there are boxes 0 to 2 */
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	{
		struct pbox_homes ask = {0};
		uint8_t payload[64];

		fx_control(&w[0], PBOX_HOMES, payload,
			pbox_homes_encode(payload, sizeof(payload), &ask));
		UNIT_EQ_U64(fx_last()->hdr.type,
			PBOX_HOMES_OK); /* any box says what it knows (R16.17) */
	}
	fx_control(&w[0], PBOX_HOMES, "short", 5);
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_MALFORMED], 1);
	fx_end();
}

/* A new process asks a box that was started again: it hears nothing before the worker that has had the table has shown what has moved. */
static void
test_asked_before_it_is_shown(void)
{
	struct pbox_homes all = {.chunks = 12,
				  .count = 12,
				  .epoch = 9,
				  .flags = PBOX_HOMES_RESTORE},
			  question = {.chunks = 12};
	struct fx_table t = reduce;
	uint8_t payload[256];

	join_again();
	t.flags = PBOX_DECLARE_RESTORE;
	fx_declare(&w[0], 0, &t);
	fx_declare(&w[1], 0, &reduce);
	fx_work();
	for (unsigned n = 0; n < 2; n++) {
		fx_control(&w[1], PBOX_HOMES, payload,
			pbox_homes_encode(payload, sizeof(payload), &question));
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_NOT_READY);
	}
	for (unsigned k = 0; k < 12; k++)
		all.home[k] = (struct pbox_home){.box = k == 5 ? 0 : 2, .epoch = 9};
	/* a part of it is not enough */
	all.count = 11;
	fx_control(&w[0], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &all));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_HOMES_OK);
	fx_control(
		&w[1], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &question));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_NOT_READY);
	all.count = 12;
	fx_control(&w[0], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &all));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_HOMES_OK);
	fx_control(
		&w[1], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &question));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_HOMES_OK);
	CU_ASSERT_EQUAL(pbox_homes_decode(fx_last()->payload, fx_last()->hdr.length, &m), 0);
	UNIT_EQ_U64(m.epoch, 9);
	UNIT_EQ_U64(m.home[5].box, 0);
	UNIT_EQ_U64(m.home[6].box, 2);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"a chunk leaves", test_a_chunk_leaves},
	{"a chunk comes", test_a_chunk_comes},
	{"whom a chunk waits for", test_restorers},
	{"a chunk that comes too late for SETs", test_a_chunk_is_late},
	{"what is still here", test_what_is_still_here},
	{"what is refused", test_what_is_refused},
	{"asked before it is shown", test_asked_before_it_is_shown},
	{NULL, NULL},
};
