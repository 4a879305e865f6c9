/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The first box decides which box has which chunk (R16.9, R16.11, R16.12). */

#include <errno.h>
#include <string.h>

#include "homes.h"

const char unit_suite[] = "engine: the first box of several";

static struct pbox_error err;

static int
move(uint32_t table, uint32_t first, uint32_t last, unsigned box)
{
	fx_clear();
	return pbox_registrar_move(fx.registrar, 0, table, first, last, box, fx.now, &err);
}

static int
failover(unsigned box, unsigned *stateless)
{
	fx_clear();
	return pbox_registrar_failover(fx.registrar, 0, box, false, fx.now, stateless, &err);
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
	CU_ASSERT_STRING_EQUAL(err.text,
		"chunks of job 'vision' move by a command to the box that decides: box 0, at 10.0.0.1");
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

/* Whom the first box answers cannot change what it has decided: it makes the maps, and says who is out. */
static void
test_the_first_box_decides(void)
{
	static const struct {
		uint16_t epoch, home_epoch, out;
		uint8_t box; /* 9: the one that the chunk is at */
	} lie[] = {
		{2, 2, 0xffff, 9},
		{3, 3, 0xffff, 9},
		{3, 3, 6, 9},
		{2, 2, 1, 9},
		{2, 2, 8, 9},
		{3, 3, 0, 9},
		{2, 3, 0, 9},
		{3, 2, 0, 9},
		{2, 2, 0, 0},
		{2 + 32767, 2, 0, 9},
		{2, 2 + 32767, 0, 9},
		{2, 2, 0x8000, 9},
	};
	uint32_t chunk;
	struct pbox_homes_view view;
	uint8_t payload[64];

	begin(0, &reduce);
	chunk = chunk_of(0, 0);
	UNIT_EQ_U64(move(0, chunk, chunk, 1), 1);
	for (unsigned i = 0; i < sizeof(lie) / sizeof(lie[0]); i++) {
		struct pbox_homes q = {.chunks = 12,
			.first = chunk,
			.count = 1,
			.epoch = lie[i].epoch,
			.flags = PBOX_HOMES_RESTORE,
			.out = lie[i].out,
			.home = {{.box = lie[i].box == 9 ? 1 : lie[i].box,
				.epoch = lie[i].home_epoch}}};

		fx_control(&w[0], PBOX_HOMES, payload,
			pbox_homes_encode(payload, sizeof(payload), &q));
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
		UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	}
	pbox_registrar_view_homes(pbox_registrar_job(fx.registrar, 0), &view);
	UNIT_EQ_U64(view.epoch, 2);
	UNIT_EQ_U64(view.out, 0);
	UNIT_EQ_U64(view.chunks[0], 3);
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 7, fx.now, &err), 1);
	/* it is shown its own map; nothing of that is new */
	ask(0);
	UNIT_EQ_U64(say(0, chunk, m.home[chunk].box, 4, PBOX_HOMES_RESTORE), PBOX_ERROR);
	UNIT_EQ_U64(say(0, chunk, m.home[chunk].box, m.home[chunk].epoch, PBOX_HOMES_RESTORE),
		PBOX_HOMES_OK);
	fx_end();
	/* others believe of that only what can be */
	begin(1, &reduce);
	for (unsigned i = 0; i < 4; i++) {
		static const uint16_t out[] = {0xffff, 1, 8, 0x8000};
		struct pbox_homes q = {.chunks = 12,
			.count = 1,
			.epoch = 2,
			.out = out[i],
			.home = {{.box = home[0], .epoch = 2}}};

		fx_control(&w[0], PBOX_HOMES, payload,
			pbox_homes_encode(payload, sizeof(payload), &q));
		UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	}
	fx_end();
}

/* A first box that was started again learns the map from workers, and gives numbers beyond it. */
static void
test_the_first_box_again(void)
{
	struct pbox_homes all = {
		.chunks = 12, .count = 12, .epoch = 9, .flags = PBOX_HOMES_RESTORE};
	uint8_t payload[200];

	begin_again();
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
	fx_end();
}

/* A worker that comes again, says that it has had the table, and never asks for a map: this box has forgotten nothing. */
static void
test_silent_restorer(void)
{
	struct fx_table t = reduce;

	begin(0, &reduce);
	CU_ASSERT_EQUAL(
		pbox_registrar_kick(fx.registrar, 0, 1, "", fx.now, &(struct pbox_error){0}), 0);
	fx_tick();
	w[1] = (struct fx_worker){.job = "vision",
		.worker = 1,
		.workers = 2,
		.number = pbox_registrar_job(fx.registrar, 0)->run.number,
		.boxes = true};
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[1]));
	t.flags = PBOX_DECLARE_RESTORE;
	UNIT_EQ_U64(fx_declare(&w[1], 0, &t)->hdr.type, PBOX_DECLARED);
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 3, fx.now, &err), 4);
	fx_end();
}

/* HOMES of chunks 1 to 11 by a map, restoring; the type of the answer. */
static enum pbox_type
shows(unsigned worker, uint16_t epoch, uint16_t home_epoch, uint8_t box)
{
	struct pbox_homes q = {
		.chunks = 12, .first = 1, .count = 11, .epoch = epoch, .flags = PBOX_HOMES_RESTORE};
	uint8_t payload[200];

	for (unsigned k = 0; k < q.count; k++)
		q.home[k] = (struct pbox_home){.box = box, .epoch = home_epoch};
	fx_control(
		&w[worker], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &q));
	return fx_last()->hdr.type;
}

static uint16_t
epoch_now(void)
{
	struct pbox_homes_view view;

	pbox_registrar_view_homes(pbox_registrar_job(fx.registrar, 0), &view);
	return view.epoch;
}

/* What is far away would keep it from making maps; and what it has made itself is as on a box that was not started again. */
static void
test_far_epochs(void)
{
	static const uint16_t far[] = {0, 31234, 32767, 32768, 32769, 9 + 32767, 9 + 32768, 65535};
	unsigned stateless;

	begin_again();
	UNIT_EQ_U64(shows(0, 9, 9, 2), PBOX_HOMES_OK);
	for (unsigned i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
		UNIT_EQ_U64(shows(1, far[i], 9, 2), PBOX_ERROR);
		UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
		UNIT_EQ_U64(shows(1, 9, far[i], 2), PBOX_ERROR);
	}
	UNIT_EQ_U64(epoch_now(), 9);
	/* the latest that it believes: the commands go on all the same */
	UNIT_EQ_U64(shows(1, 9, 31233, 2), PBOX_HOMES_OK);
	UNIT_EQ_U64(epoch_now(), 31233);
	for (unsigned i = 0; i < 2; i++)
		ask(i);
	send(0, PBOX_RESTORE, 0, 2, 1, 0, NULL);
	send(1, PBOX_RESTORE, 0, 2, 1, 0, NULL);
	fx_tick();
	UNIT_EQ_U64(move(0, 6, 6, 1), 1);
	UNIT_EQ_U64(epoch_now(), 31233 + 256);
	fx.now += 3000 * MS;
	UNIT_EQ_U64(failover(2, &stateless), 10);
	/* now it has decided */
	UNIT_EQ_U64(shows(1, 31491, 9, 2), PBOX_ERROR);
	UNIT_EQ_U64(shows(1, 9, 31491, 2), PBOX_ERROR);
	UNIT_EQ_U64(shows(1, 9, 31490, 2), PBOX_ERROR); /* this map has them elsewhere */
	UNIT_EQ_U64(shows(1, 31490, 31233, 2), PBOX_HOMES_OK);
	UNIT_EQ_U64(epoch_now(), 31490);
	fx_end();
}

/* Epochs that cannot be compared are refused, and a move of the chunk helps. */
static void
test_many_maps(void)
{
	begin_again();
	for (unsigned i = 0; i < 2; i++)
		UNIT_EQ_U64(shows(i, 31233, 31233, 2), PBOX_HOMES_OK);
	for (unsigned i = 0; i < 2; i++)
		ask(i);
	send(0, PBOX_RESTORE, 0, 2, 1, 0, NULL);
	send(1, PBOX_RESTORE, 0, 2, 1, 0, NULL);
	fx_tick();
	for (unsigned i = 0; epoch_now() <= 32000; i++) {
		if (move(0, 6, 6, i % 2) != 1)
			CU_FAIL_FATAL("a move");
		if (i % 200 == 199) /* workers go by maps meanwhile (R16.17) */
			UNIT_EQ_U64(shows(0, epoch_now(), 31233, 2), PBOX_HOMES_OK);
	}
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 2, fx.now, &err), (uint64_t)-ERANGE);
	CU_ASSERT_STRING_EQUAL(err.text,
		"job 'vision' has had more than 32000 maps since chunk 0 of table 0 moved, and the box cannot compare more: move that chunk first: pbox-ctl moves vision 0 0 BOX");
	UNIT_EQ_U64(move(0, 0, 0, 1), 1);
	CU_ASSERT(pbox_registrar_scale(fx.registrar, 0, 2, fx.now, &err) > 0);
	fx_end();
}

/* STATS of worker 1: it has ended so many rounds with each box. */
static void
rounds_with(const uint32_t *rounds)
{
	struct pbox_stats_msg told = {.boxes = 3, .rounds = rounds[0], .seconds = 1, .squares = 1};
	uint8_t payload[PBOX_STATS_MOST];

	for (unsigned b = 0; b < 3; b++)
		told.box[b] = (struct pbox_box_times){.rounds = rounds[b], .seconds = 1};
	UNIT_EQ_U64(fx_control(&w[1], PBOX_STATS, payload,
			    pbox_stats_encode(payload, sizeof(payload), &told))
			    ->hdr.type,
		PBOX_STATS_OK);
}

/* What only a box has is not given up while a worker ends rounds with it. */
static void
test_a_box_that_lives(void)
{
	const struct pbox_job *job;
	unsigned stateless;

	begin(0, &reduce);
	job = pbox_registrar_job(fx.registrar, 0);
	rounds_with((const uint32_t[]){5, 5, 5}); /* when those were, it does not say */
	fx.now += 300 * MS;
	rounds_with((const uint32_t[]){9, 9, 5});
	fx.now += 1200 * MS;
	UNIT_EQ_U64(failover(1, &stateless), (uint64_t)-EBUSY);
	CU_ASSERT_STRING_EQUAL(err.text,
		"box 1 of job 'vision' lives: worker 1 has ended a round with it 1.2 s ago, and what its optimiser has gathered there would be lost. To empty it: pbox-ctl drain vision 1. If it is dead: again in 3 s, or with --force");
	UNIT_EQ_U64(job->out, 0);
	UNIT_EQ_U64(pbox_registrar_failover(fx.registrar, 0, 1, true, fx.now, &stateless, &err), 4);
	UNIT_EQ_U64(job->out, 2);
	/* rounds of 10 s */
	rounds_with((const uint32_t[]){9, 9, 6});
	fx.now += 10000 * MS;
	rounds_with((const uint32_t[]){9, 9, 7});
	fx.now += 29000 * MS;
	UNIT_EQ_U64(failover(2, &stateless), (uint64_t)-EBUSY);
	fx.now += 1000 * MS;
	UNIT_EQ_U64(failover(2, &stateless), 6);
	fx_end();
}

/* R16.17: the next box of the list takes the place of the one that decided. Its maps are later than all that that one has made, and it makes no
 * more than workers go by. */
static void
test_takes_the_place(void)
{
	struct pbox_homes_view view;
	unsigned stateless, maps = 0;

	begin(1, &reduce);
	UNIT_EQ_U64(failover(0, &stateless), (uint64_t)-EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "box 0 of job 'vision' may live"));
	fx.now += 3000 * MS;
	UNIT_EQ_U64(failover(0, &stateless), 4);
	pbox_registrar_view_homes(pbox_registrar_job(fx.registrar, 0), &view);
	UNIT_EQ_U64(view.epoch, 513);
	UNIT_EQ_U64(view.out, 1);
	UNIT_EQ_U64(view.decider, 1);
	UNIT_EQ_U64(view.chunks[0], 0);
	UNIT_EQ_U64(move(0, 6, 6, 2), (uint64_t)-EAGAIN); /* no worker has said what it knows */
	ask(0);
	ask(1);
	UNIT_EQ_U64(m.epoch, 513);
	UNIT_EQ_U64(m.out, 1);
	UNIT_EQ_U64(pbox_homes_decides(&m), 1);
	UNIT_EQ_U64(
		failover(2, &stateless), (uint64_t)-EBUSY); /* nobody has said yet that it lives */
	for (unsigned i = 0; i < 300; i++)
		maps += move(0, 6, 6, 1 + i % 2) == 1;
	UNIT_EQ_U64(maps, 255);
	UNIT_EQ_U64(epoch_now(), 513 + 255);
	UNIT_EQ_U64(shows(0, epoch_now(), 1, 2), PBOX_HOMES_OK);
	UNIT_EQ_U64(move(0, 6, 6, 1) + move(0, 6, 6, 2), 2);
	UNIT_EQ_U64(epoch_now(), 513 + 257);
	fx_end();
	/* the one after the next says who is; and where that one is dead, too, its map is later still */
	begin(2, &reduce);
	fx.now += 3000 * MS;
	UNIT_EQ_U64(failover(0, &stateless), (uint64_t)-EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "box 1 of job 'vision' takes the place of box 0"));
	UNIT_EQ_U64(homes_take(0, 0, false), (uint64_t)-EINVAL);
	UNIT_EQ_U64(homes_take(1, 2, false), (uint64_t)-EINVAL); /* that one does not decide */
	UNIT_EQ_U64(homes_take(0, 2, true) + epoch_now(), 1);
	UNIT_EQ_U64(homes_take(0, 2, false), 4 + 4);
	UNIT_EQ_U64(epoch_now(), 1025);
	UNIT_EQ_U64(homes_take(0, 2, true), (uint64_t)-EINVAL); /* this one decides */
	fx_end();
	begin(2, &reduce);
	fx.now += 1000 * MS; /* pbox-agent is no person with --force */
	UNIT_EQ_U64(homes_take(0, 2, true), (uint64_t)-EBUSY);
	UNIT_EQ_U64(homes_take(0, 2, false), (uint64_t)-EBUSY);
	CU_ASSERT(pbox_registrar_failover(fx.registrar, 0, 0, true, fx.now, &stateless, &err) > 0);
	UNIT_EQ_U64(epoch_now(), 1025);
	fx_end();
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
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "is the one that is asked"));
	UNIT_EQ_U64(failover(3, &stateless), (uint64_t)-ENOENT);
	/* no worker has had the time to say with which boxes it ends rounds */
	UNIT_EQ_U64(failover(2, &stateless), (uint64_t)-EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "box 2 of job 'vision' may live"));
	UNIT_EQ_U64(job->out, 0);
	fx.now += 3000 * MS;
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
	UNIT_EQ_U64(fx_last()->hdr.map_epoch, 2); /* by that map */
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

	begin_again();
	for (unsigned i = 0; i < 3; i++) {
		static const struct {
			uint16_t epoch, out, is;
		} said[] = {{7, 4, 4}, {6, 2, 4}, {8, 0, 0}};

		q.epoch = q.home[0].epoch = said[i].epoch;
		q.home[0].box = 1;
		q.out = said[i].out;
		fx_control(&w[0], PBOX_HOMES, payload,
			pbox_homes_encode(payload, sizeof(payload), &q));
		UNIT_EQ_U64(boxes_out(0), said[i].is);
	}
	fx_end();
}

/* Which box decides is part of the map (R16.14). */
static void
test_another_box_decides(void)
{
	struct pbox_homes q = {.chunks = 12,
		.count = 1,
		.epoch = 257,
		.out = 1,
		.flags = PBOX_HOMES_RESTORE | pbox_homes_decided(1)};
	uint8_t payload[64];

	begin(1, &reduce);
	q.home[0] = (struct pbox_home){.box = home[0], .epoch = 1};
	/* no map is without the box that decides, and that is one of the list */
	q.out = 2;
	fx_control(&w[0], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &q));
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	q.out = 1;
	q.flags = PBOX_HOMES_RESTORE | pbox_homes_decided(3);
	fx_control(&w[0], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &q));
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(move(0, 0, 0, 0), (uint64_t)-EINVAL);
	q.flags = PBOX_HOMES_RESTORE | pbox_homes_decided(1);
	fx_control(&w[0], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &q));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_HOMES_OK);
	ask(1);
	UNIT_EQ_U64(m.epoch, 257);
	UNIT_EQ_U64(m.out, 1);
	UNIT_EQ_U64(pbox_homes_decides(&m), 1);
	UNIT_EQ_U64(move(0, chunk_of(1, 0), chunk_of(1, 0), 2), 1);
	UNIT_EQ_U64(move(0, 0, 0, 0), (uint64_t)-EINVAL); /* it is out */
	fx_end();
}

static const struct fx_table clock_table = {.elements = 12 * F,
	.mode = PBOX_MODE_OPTIMISER,
	.optimiser = PBOX_OPT_ADD,
	.op = PBOX_OP_SUM,
	.discipline = PBOX_DISCIPLINE_CLOCK};

/* R16.15: no command moves a chunk of the job, and what is refused has changed nothing. */
static void
test_chunks_stay(void)
{
	struct pbox_homes_view view;
	unsigned stateless;

	begin(0, &clock_table);
	UNIT_EQ_U64(move(0, 0, 11, 1), (uint64_t)-ENOTSUP);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "table 0 of job 'vision' is in clocks"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "start a box that is dead again"));
	UNIT_EQ_U64(weigh((const uint32_t[]){1, 1, 0}, 3), (uint64_t)-ENOTSUP);
	UNIT_EQ_U64(pbox_registrar_scale(fx.registrar, 0, 3, fx.now, &err), (uint64_t)-ENOTSUP);
	UNIT_EQ_U64(failover(2, &stateless), (uint64_t)-ENOTSUP);
	UNIT_EQ_U64(fx.n_sent, 0);
	pbox_registrar_view_homes(pbox_registrar_job(fx.registrar, 0), &view);
	UNIT_EQ_U64(view.epoch, 1);
	UNIT_EQ_U64(view.out, 0);
	for (unsigned i = 0; i < 3; i++)
		UNIT_EQ_U64(view.chunks[i], 4);
	/* nor does what a worker shows */
	UNIT_EQ_U64(say(0, chunk_of(0, 0), 1, 2, PBOX_HOMES_RESTORE), PBOX_ERROR);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	UNIT_EQ_U64(say(0, chunk_of(1, 0), 0, 2, 0), PBOX_ERROR);
	UNIT_EQ_U64(fx_count(PBOX_MOVED), 0);
	fx_end();
}

/* The epoch of a table in clocks is the box's own, and no map's: frames of another one are dropped without a word. */
static void
test_epoch_of_clocks(void)
{
	const struct pbox_job *job;
	uint32_t chunk;
	uint16_t epoch;

	begin(1, &clock_table);
	job = pbox_registrar_job(fx.registrar, 0);
	epoch = fx_map(&w[0], 0, 0)->hdr.map_epoch;
	UNIT_EQ_U64(epoch, job->table[0]->t.epoch);
	UNIT_EQ_U64(job->map_epoch, PBOX_MAP_EPOCH);
	chunk = chunk_of(1, 0);
	send(0, PBOX_INIT, chunk, 0, epoch, 0, v);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
	for (unsigned i = 1; i < 4; i++) {
		uint64_t had = fx.ss[0][PBOX_SS_DROP_MAP_EPOCH] + fx.ss[1][PBOX_SS_DROP_MAP_EPOCH];

		push(0, chunk, 1, (uint16_t)(epoch - i));
		UNIT_EQ_U64(fx.n_sent, 0);
		UNIT_EQ_U64(
			fx.ss[0][PBOX_SS_DROP_MAP_EPOCH] + fx.ss[1][PBOX_SS_DROP_MAP_EPOCH] - had,
			1);
	}
	push(0, chunk, 1, epoch);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.map_epoch, PBOX_MAP_EPOCH);
	fx_end();
}

/* It is declared before anything has moved, or not at all. */
static void
test_clocks_after_a_move(void)
{
	unsigned stateless;

	begin(0, &reduce);
	UNIT_EQ_U64(move(0, 0, 0, home[0] == 1 ? 2 : 1), 1);
	UNIT_EQ_U64(fx_declare(&w[0], 1, &clock_table)->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_error(), PBOX_E_UNSUPPORTED);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(fx_error_text(), "chunks of job 'vision' have moved (map 2)"));
	fx_end();
	begin(0, &reduce);
	UNIT_EQ_U64(fx_declare(&w[0], 1, &clock_table)->hdr.type, PBOX_DECLARED);
	UNIT_EQ_U64(move(0, 0, 0, 1), (uint64_t)-ENOTSUP); /* also before it is mapped */
	UNIT_EQ_U64(failover(1, &stateless), (uint64_t)-ENOTSUP);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"the command", test_the_command},
	{"scale", test_scale},
	{"weights of the boxes", test_weights},
	{"failover", test_failover},
	{"a box that lives", test_a_box_that_lives},
	{"the first box decides", test_the_first_box_decides},
	{"one that never asks", test_silent_restorer},
	{"epochs that are far away", test_far_epochs},
	{"more maps than can be compared", test_many_maps},
	{"who is out is learned", test_who_is_out_is_learned},
	{"the first box, started again", test_the_first_box_again},
	{"another box decides", test_another_box_decides},
	{"a box takes the place of the one that decided", test_takes_the_place},
	{"chunks of tables in clocks stay", test_chunks_stay},
	{"the epoch of a table in clocks", test_epoch_of_clocks},
	{"a table in clocks after a move", test_clocks_after_a_move},
	{NULL, NULL},
};
