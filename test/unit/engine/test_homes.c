/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Chunks of a job at several boxes come and leave (R16.9 to R16.11). */

#include <errno.h>
#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: chunks that move";

#define MS UINT64_C(1000000)
#define F  352 /* elements of a fragment, and of a chunk */

static const struct pbox_registrar_boxes list = {
	.boxes = 3,
	.at = {{{10, 0, 0, 1}, 7269}, {{10, 0, 0, 2}, 7269}, {{10, 0, 0, 3}, 7269}},
	.release = "0.1.0",
};
static const struct fx_table reduce = {.elements = 12 * F, .op = PBOX_OP_SUM};
static struct fx_worker w[2];
static float v[F], sum[F];
static uint8_t home[12]; /* of each chunk by the first map */
static struct pbox_homes m;

/* Two workers have the map of a table at that box. */
static void
begin(uint8_t box, const struct fx_table *t)
{
	struct pbox_chunk_entry e;
	struct pbox_mapped page;
	struct pbox_cursor cur;
	const struct fx_sent *s;

	fx.boxes = list;
	fx.boxes.box = box;
	fx_begin();
	for (uint16_t i = 0; i < 2; i++) {
		w[i] = (struct fx_worker){.job = "vision",
			.worker = i,
			.workers = 2,
			.number = box == 0 ? 0 : 7,
			.boxes = true};
		CU_ASSERT_TRUE_FATAL(fx_try_join(&w[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		UNIT_EQ_U64(fx_declare(&w[i], 0, t)->hdr.type, PBOX_DECLARED);
	fx_work();
	for (unsigned i = 0; i < 2; i++) {
		s = fx_map(&w[i], 0, 0);
		CU_ASSERT_EQUAL_FATAL(
			pbox_mapped_decode(s->payload, s->hdr.length, &page, &cur), 0);
		UNIT_EQ_U64(page.chunks, 12);
		for (unsigned k = 0; k < page.count; k++) {
			CU_ASSERT_EQUAL(pbox_mapped_next(&cur, &e), 0);
			home[k] = (uint8_t)(e.endpoint >> 8);
		}
	}
	for (unsigned i = 0; i < F; i++) {
		v[i] = (float)i;
		sum[i] = 2 * v[i];
	}
}

/* The n-th chunk that is at the box at first. */
static uint32_t
chunk_of(uint8_t box, unsigned n)
{
	for (uint32_t i = 0; i < 12; i++)
		if (home[i] == box && n-- == 0)
			return i;
	CU_FAIL_FATAL("no such chunk");
	return 0;
}

/* HOMES of one chunk; the answer is in m, if it is HOMES_OK. Its type. */
static enum pbox_type
say(unsigned worker, uint32_t chunk, uint8_t box, uint16_t epoch, uint16_t flags)
{
	struct pbox_homes ask = {.chunks = 12,
		.first = chunk,
		.count = 1,
		.epoch = epoch,
		.flags = flags,
		.home = {{.box = box, .epoch = epoch}}};
	uint8_t payload[64];
	const struct fx_sent *s = fx_control(
		&w[worker], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &ask));

	if (s->hdr.type == PBOX_HOMES_OK)
		CU_ASSERT_EQUAL(pbox_homes_decode(s->payload, s->hdr.length, &m), 0);
	return s->hdr.type;
}

/* A data frame to whichever shard has the chunk. */
static bool
send(unsigned worker, enum pbox_type type, uint32_t chunk, uint32_t round, uint16_t epoch,
	uint16_t flags, const float *payload)
{
	struct pbox_hdr h = fx_data(&w[worker], type, chunk, 0, round);
	bool held = false;

	h.map_epoch = epoch;
	h.flags = flags;
	h.format = type == PBOX_PULL ? 0 : PBOX_FMT_FP32;
	h.length = payload != NULL ? sizeof(v) : 0;
	fx_clear();
	for (unsigned s = 0; s < FX_SHARDS; s++)
		held |= fx_rx(s, &w[worker], &h, payload);
	return held;
}

static bool
push(unsigned worker, uint32_t chunk, uint32_t round, uint16_t epoch)
{
	return send(worker, PBOX_PUSHPULL, chunk, round, epoch, PBOX_F_LAST, v);
}

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
		UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST); /* the first box is asked */
	}
	fx_control(&w[0], PBOX_HOMES, "short", 5);
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_MALFORMED], 1);
	fx_end();
}

/* ---- the first box ---------------------------------------------------------------------------- */

static struct pbox_error err;

static int
move(uint32_t table, uint32_t first, uint32_t last, unsigned box)
{
	fx_clear();
	return pbox_registrar_move(fx.registrar, 0, table, first, last, box, fx.now, &err);
}

static void
ask(unsigned worker)
{
	struct pbox_homes q = {0};
	uint8_t payload[64];
	const struct fx_sent *s = fx_control(
		&w[worker], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &q));

	UNIT_EQ_U64(s->hdr.type, PBOX_HOMES_OK);
	CU_ASSERT_EQUAL(pbox_homes_decode(s->payload, s->hdr.length, &m), 0);
}

static void
test_the_command(void)
{
	begin(0, &reduce);
	ask(0);
	UNIT_EQ_U64(m.epoch, 1);
	UNIT_EQ_U64(m.count, 12);
	UNIT_EQ_U64(move(0, 0, 12, 1), (uint64_t)-ENOENT);
	CU_ASSERT_STRING_EQUAL(err.text, "table 0 of job 'vision' has chunks 0 to 11");
	UNIT_EQ_U64(move(1, 0, 0, 1), (uint64_t)-ENOENT);
	UNIT_EQ_U64(move(0, 0, 0, 3), (uint64_t)-ENOENT);
	CU_ASSERT_STRING_EQUAL(err.text, "job 'vision' is at boxes 0 to 2");
	UNIT_EQ_U64(move(0, chunk_of(1, 0), chunk_of(1, 0), 1), 0);
	/* all but those that are there; the workers hear of it */
	UNIT_EQ_U64(move(0, 0, 11, 1), 8);
	UNIT_EQ_U64(fx_count(PBOX_PING), 2);
	UNIT_EQ_U64(fx_last()->hdr.map_epoch, 2);
	ask(0);
	UNIT_EQ_U64(m.epoch, 2);
	for (unsigned i = 0; i < 12; i++) {
		UNIT_EQ_U64(m.home[i].box, 1);
		UNIT_EQ_U64(m.home[i].epoch, home[i] == 1 ? 1 : 2);
	}
	fx_clear();
	fx.now += 200 * MS;
	fx_tick();
	UNIT_EQ_U64(fx_count(PBOX_PING), 1); /* who has not asked */
	/* nothing has left before a worker says so */
	CU_ASSERT_TRUE(push(0, chunk_of(0, 0), 1, 1));
	UNIT_EQ_U64(say(0, chunk_of(0, 0), 1, 2, PBOX_HOMES_RESTORE), PBOX_HOMES_OK);
	CU_ASSERT_FALSE(push(0, chunk_of(0, 0), 1, 1));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_MOVED);
	fx_end();
	begin(1, &reduce);
	UNIT_EQ_U64(move(0, 0, 0, 0), (uint64_t)-EINVAL);
	CU_ASSERT_STRING_EQUAL(err.text, "chunks move by a command to the first box, at 10.0.0.1");
	fx_end();
}

static int
weigh(const uint32_t *weight, unsigned n)
{
	fx_clear();
	return pbox_registrar_weigh(fx.registrar, 0, weight, n, fx.now, &err);
}

/* All tables by weights: one map, and as little as may be. */
static void
test_weights(void)
{
	begin(0, &reduce);
	UNIT_EQ_U64(weigh((const uint32_t[]){1, 1, 1}, 3), 0);
	UNIT_EQ_U64(fx.n_sent, 0);
	UNIT_EQ_U64(weigh((const uint32_t[]){1, 1}, 2), (uint64_t)-EINVAL);
	CU_ASSERT_STRING_EQUAL(
		err.text, "write a weight for each of the 3 boxes, not 0 for all of them");
	UNIT_EQ_U64(weigh((const uint32_t[]){0, 0, 0}, 3), (uint64_t)-EINVAL);
	UNIT_EQ_U64(weigh((const uint32_t[]){1, 1, (1u << 20) + 1}, 3), (uint64_t)-EINVAL);
	UNIT_EQ_U64(weigh((const uint32_t[]){1, 1, 0}, 3), 4);
	UNIT_EQ_U64(fx_count(PBOX_PING), 2);
	UNIT_EQ_U64(fx_last()->hdr.map_epoch, 2);
	UNIT_EQ_U64(weigh((const uint32_t[]){7, 7, 0}, 3), 0);
	ask(0);
	UNIT_EQ_U64(m.epoch, 2);
	for (unsigned i = 0; i < 12; i++) {
		CU_ASSERT(home[i] == 2 ? m.home[i].box < 2 : m.home[i].box == home[i]);
		UNIT_EQ_U64(m.home[i].epoch, home[i] == 2 ? 2 : 1);
	}
	UNIT_EQ_U64(weigh((const uint32_t[]){0, 0, 3}, 3), 12);
	UNIT_EQ_U64(fx_last()->hdr.map_epoch, 3);
	fx_end();
	begin(1, &reduce);
	UNIT_EQ_U64(weigh((const uint32_t[]){1, 1, 0}, 3), (uint64_t)-EINVAL);
	fx_end();
}

/* Few moves, and equal shares. */
static void
test_scale(void)
{
	struct pbox_homes_view view;
	const struct pbox_job *job;

	begin(0, &reduce);
	job = pbox_registrar_job(fx.registrar, 0);
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 0, fx.now, &err), (uint64_t)-ENOENT);
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 8, fx.now, &err), (uint64_t)-ENOENT);
	CU_ASSERT_STRING_EQUAL(err.text, "job 'vision' is at boxes 0 to 2: name some of them");
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 7, fx.now, &err), 0);
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 3, fx.now, &err), 4);
	pbox_registrar_view_homes(job, &view);
	UNIT_EQ_U64(view.epoch, 2);
	UNIT_EQ_U64(view.chunks[0], 6);
	UNIT_EQ_U64(view.chunks[1], 6);
	UNIT_EQ_U64(view.chunks[2], 0);
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 1, fx.now, &err), 6);
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 7, fx.now, &err), 8);
	pbox_registrar_view_homes(job, &view);
	for (unsigned i = 0; i < 3; i++) {
		UNIT_EQ_U64(view.chunks[i], 4);
		UNIT_EQ_U64(view.elements[i], 4 * F);
	}
	fx_end();
}

/* A first box that was started again learns the map from workers, and gives numbers beyond it. */
static void
test_the_first_box_again(void)
{
	struct pbox_homes all = {
		.chunks = 12, .count = 12, .epoch = 9, .flags = PBOX_HOMES_RESTORE};
	struct fx_table t = reduce;
	uint8_t payload[200];

	t.flags = PBOX_DECLARE_RESTORE;
	fx.boxes = list;
	fx_begin();
	for (uint16_t i = 0; i < 2; i++) {
		w[i] = (struct fx_worker){
			.job = "vision", .worker = i, .workers = 2, .number = 7, .boxes = true};
		CU_ASSERT_TRUE_FATAL(fx_try_join(&w[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		fx_declare(&w[i], 0, &t);
	fx_work();
	UNIT_EQ_U64(move(0, 0, 0, 1), (uint64_t)-EAGAIN);
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned k = 0; k < 12; k++)
			all.home[k] = (struct pbox_home){.box = k == 5 ? 0 : 2, .epoch = 9};
		fx_control(&w[i], PBOX_HOMES, payload,
			pbox_homes_encode(payload, sizeof(payload), &all));
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_HOMES_OK);
	}
	ask(0);
	UNIT_EQ_U64(m.epoch, 9);
	UNIT_EQ_U64(m.home[5].box, 0);
	UNIT_EQ_U64(m.home[6].box, 2);
	/* the chunk that is here is restored */
	send(0, PBOX_RESTORE, 5, 2, 9, 0, NULL);
	send(1, PBOX_RESTORE, 5, 2, 9, 0, NULL);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_RESTORE_DONE);
	fx_tick();
	UNIT_EQ_U64(move(0, 5, 5, 1), 1);
	UNIT_EQ_U64(fx_last()->hdr.map_epoch, 9 + 256);
	/* what it has made itself it knows */
	UNIT_EQ_U64(move(0, 6, 6, 1), 1);
	UNIT_EQ_U64(fx_last()->hdr.map_epoch, 9 + 257);
	/* epochs that cannot be compared are refused, and a move of the chunk helps */
	all.epoch = 32500;
	for (unsigned k = 1; k < 12; k++)
		all.home[k].epoch = 32500;
	fx_control(&w[0], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &all));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_HOMES_OK);
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 2, fx.now, &err), (uint64_t)-ERANGE);
	CU_ASSERT_STRING_EQUAL(err.text,
		"job 'vision' has had more than 32000 maps since chunk 0 of table 0 moved, and the box cannot compare more: move that chunk first: pbox-ctl moves vision 0 0 BOX");
	UNIT_EQ_U64(move(0, 0, 0, 1), 1);
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 2, fx.now, &err), 11);
	fx_end();
}

static int
failover(unsigned box, unsigned *stateless)
{
	fx_clear();
	return pbox_registrar_failover(fx.registrar, 0, box, fx.now, stateless, &err);
}

/* BOXES_OK for a worker: boxes that are out. */
static unsigned
boxes_out(unsigned worker)
{
	struct pbox_boxes_ok b;
	const struct fx_sent *s = fx_control(&w[worker], PBOX_BOXES, NULL, 0);

	CU_ASSERT_EQUAL(pbox_boxes_ok_decode(s->payload, s->hdr.length, &b), 0);
	return b.out;
}

/* A box is dead: the others have its chunks by the next map, nothing else moves, and all hear that it is out. */
static void
test_failover(void)
{
	struct pbox_homes_view view;
	const struct pbox_job *job;
	unsigned stateless = 9;
	struct fx_table t = reduce;

	begin(1, &reduce);
	UNIT_EQ_U64(failover(2, &stateless), (uint64_t)-EINVAL);
	fx_end();
	begin(0, &reduce);
	job = pbox_registrar_job(fx.registrar, 0);
	UNIT_EQ_U64(boxes_out(0), 0);
	UNIT_EQ_U64(failover(0, &stateless), (uint64_t)-EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "start it again"));
	UNIT_EQ_U64(failover(3, &stateless), (uint64_t)-ENOENT);
	UNIT_EQ_U64(failover(2, &stateless), 4);
	UNIT_EQ_U64(stateless, 0);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PING); /* they hear of it at once */
	UNIT_EQ_U64(failover(2, &stateless), 0);
	pbox_registrar_view_homes(job, &view);
	UNIT_EQ_U64(view.epoch, 2);
	UNIT_EQ_U64(view.out, 4);
	UNIT_EQ_U64(view.chunks[0], 6);
	UNIT_EQ_U64(view.chunks[1], 6);
	UNIT_EQ_U64(boxes_out(1), 4);
	ask(0);
	UNIT_EQ_U64(m.out, 4);
	for (unsigned i = 0; i < 12; i++) {
		CU_ASSERT_NOT_EQUAL(m.home[i].box, 2);
		UNIT_EQ_U64(m.home[i].epoch, home[i] == 2 ? 2 : 1);
	}
	ask(1);
	/* nothing goes there, and a new table has nothing there either */
	UNIT_EQ_U64(move(0, 0, 0, 2), (uint64_t)-EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "box 2 is out of job 'vision'"));
	for (unsigned i = 0; i < 2; i++)
		UNIT_EQ_U64(fx_declare(&w[i], 1, &t)->hdr.type, PBOX_DECLARED);
	fx_work();
	pbox_registrar_view_homes(job, &view);
	UNIT_EQ_U64(view.chunks[0] + view.chunks[1], 24);
	/* it comes back with the next map */
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 7, fx.now, &err), 8);
	ask(0);
	UNIT_EQ_U64(m.epoch, 3);
	UNIT_EQ_U64(m.out, 0);
	UNIT_EQ_U64(boxes_out(0), 0);
	/* one with nothing is out, too; weights take it in */
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 5, fx.now, &err), 8);
	UNIT_EQ_U64(failover(1, &stateless), 0);
	ask(0);
	UNIT_EQ_U64(m.epoch, 5);
	UNIT_EQ_U64(m.out, 2);
	CU_ASSERT(pbox_registrar_weigh(
			  fx.registrar, 0, (const uint32_t[]){1, 1, 1}, 3, fx.now, &err) > 0);
	UNIT_EQ_U64(boxes_out(0), 0);
	fx_end();
}

/* A first box that was started again learns who is out with the homes; of two words the later map's counts. */
static void
test_who_is_out_is_learned(void)
{
	struct pbox_homes q = {.chunks = 12, .count = 1, .flags = PBOX_HOMES_RESTORE};
	uint8_t payload[64];

	begin(0, &reduce);
	for (unsigned i = 0; i < 3; i++) {
		static const struct {
			uint16_t epoch, out, is;
		} said[] = {{7, 4, 4}, {6, 2, 4}, {8, 0, 0}};

		q.epoch = q.home[0].epoch = said[i].epoch;
		q.home[0].box = home[0];
		q.out = said[i].out;
		fx_control(&w[0], PBOX_HOMES, payload,
			pbox_homes_encode(payload, sizeof(payload), &q));
		UNIT_EQ_U64(boxes_out(0), said[i].is);
	}
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"a chunk leaves", test_a_chunk_leaves},
	{"a chunk comes", test_a_chunk_comes},
	{"whom a chunk waits for", test_restorers},
	{"a chunk that comes too late for SETs", test_a_chunk_is_late},
	{"what is refused", test_what_is_refused},
	{"the command", test_the_command},
	{"scale", test_scale},
	{"weights of the boxes", test_weights},
	{"failover", test_failover},
	{"who is out is learned", test_who_is_out_is_learned},
	{"the first box, started again", test_the_first_box_again},
	{NULL, NULL},
};
