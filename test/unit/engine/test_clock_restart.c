/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: tables in clocks after a restart of the box";

#define N 4

static struct fx_worker w[3];
static unsigned in_job; /* workers: bytes after the elements of a RESULT */
static const float one[N] = {1, 2, 3, 4}, two[N] = {10, 20, 30, 40};

static struct fx_table
table(void)
{
	return (struct fx_table){.elements = N,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_ADD,
		.discipline = PBOX_DISCIPLINE_CLOCK};
}

static const uint8_t clocks[3] = {0x02, 0x01, 0xFE}; /* of workers 0, 1 and 2 */

/* Of n workers all come back, and their tables had these epochs. */
static void
restart(uint16_t n, const uint16_t *epoch)
{
	struct fx_table t = table();

	fx_begin();
	in_job = n;
	t.flags = PBOX_DECLARE_RESTORE;
	for (uint16_t i = 0; i < n; i++)
		fx_join(&w[i], "vision", i, n);
	for (uint16_t i = 0; i < n; i++) {
		fx.map_epoch = epoch[i];
		UNIT_EQ_U64(fx_declare(&w[i], 0, &t)->hdr.type, PBOX_DECLARED);
	}
	fx.map_epoch = 0;
	fx_work();
}

struct held {
	uint16_t epoch;
	uint32_t version, own, slowest;
	const float *param; /* NULL: without the payload */
	bool none;
};

static const struct fx_sent *
restore(unsigned i, struct held v, uint16_t map_epoch)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_RESTORE, 0, 0, v.version);
	uint8_t payload[N * 4 + sizeof(clocks)];

	h.flags = v.none ? 0 : PBOX_F_HAVE;
	h.format = PBOX_FMT_FP32;
	h.aux = v.epoch;
	h.base = v.own;
	h.weight = v.slowest;
	h.map_epoch = map_epoch;
	if (v.param != NULL) {
		memcpy(payload, v.param, N * 4);
		memcpy(payload + N * 4, clocks, in_job);
		h.length = (uint16_t)(N * 4 + in_job);
	}
	fx_clear();
	fx_rx(0, &w[i], &h, payload);
	return fx_last();
}

static void
pull_in(unsigned i, uint16_t map_epoch)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PULL, 0, 0, 0);

	h.flags = PBOX_F_LATEST;
	h.map_epoch = map_epoch;
	fx_rx(0, &w[i], &h, NULL);
}

/* The newest version wins, by its epoch first; its vector says which pushes of each worker it has. */
static void
test_restored(void)
{
	static const uint16_t epoch[3] = {7, 8, 8};
	/* worker 0 was away when the box was restored before, and has a version with a higher number */
	const struct held v0 = {7, 700, 0x102, 3, NULL, false};
	const struct held v1 = {8, 690, 0x2FF, 0x1FE, NULL, false};
	const struct held v2 = {8, 695, 0x1FE, 0x1FE, NULL, false};
	struct held given = v2;
	const struct fx_sent *s;

	restart(3, epoch);
	s = fx_map(&w[0], 0, 0);
	UNIT_EQ_U64(s->hdr.type, PBOX_MAPPED);
	UNIT_EQ_U64(s->hdr.map_epoch, 9);
	UNIT_EQ_U64(restore(0, v0, 9)->hdr.aux, PBOX_RESTORE_NOTED);
	UNIT_EQ_U64(fx_last()->hdr.weight, 1); /* waits for it */
	UNIT_EQ_U64(restore(1, v1, 9)->hdr.aux, PBOX_RESTORE_NOTED);
	s = restore(2, v2, 9);
	UNIT_EQ_U64(s->hdr.aux, PBOX_RESTORE_GIVE);
	UNIT_EQ_U64(s->hdr.worker, 2);
	given.param = two;
	restore(2, given, 9);
	UNIT_EQ_U64(fx.n_sent, 3);
	for (unsigned i = 0; i < 3; i++) {
		static const uint32_t own[3] = {0x102, 0x301, 0x1FE};

		s = &fx.sent[i];
		UNIT_EQ_U64(s->hdr.type, PBOX_RESTORE_OK);
		UNIT_EQ_U64(s->hdr.aux, PBOX_RESTORE_DONE);
		UNIT_EQ_U64(s->hdr.base, 695);
		UNIT_EQ_U64(s->hdr.weight, own[s->hdr.worker]);
	}
	fx_clear();
	pull_in(1, 9);
	s = fx_last();
	UNIT_EQ_U64(s->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(s->hdr.round, 695);
	UNIT_EQ_U64(s->hdr.base, 0x301);
	UNIT_EQ_U64(s->hdr.weight, 0x1FE); /* as it was said once, though worker 0 has less */
	UNIT_EQ_U64(s->hdr.length, N * 4 + in_job);
	CU_ASSERT_EQUAL(memcmp(s->payload, two, N * 4), 0);
	CU_ASSERT_EQUAL(memcmp(s->payload + N * 4, clocks, in_job), 0);
	fx_end();
}

/* Nobody has a version: the table begins, unless pushes were taken. */
static void
test_nothing_held(void)
{
	static const uint16_t epoch[2] = {1, 1};
	const struct held none = {.none = true}, pushed = {.none = true, .slowest = 2};

	restart(2, epoch);
	restore(0, none, 2);
	UNIT_EQ_U64(restore(1, none, 2)->hdr.aux, PBOX_RESTORE_DONE);
	fx_end();

	restart(2, epoch);
	restore(0, none, 2);
	UNIT_EQ_U64(restore(1, pushed, 2)->hdr.aux, PBOX_RESTORE_LOST);
	fx_end();
}

/* One comes when the fragment is restored: what the box has of its pushes is known by 8 bits. */
static void
test_back_late(void)
{
	static const uint16_t epoch[2] = {4, 4};
	const struct held v0 = {4, 50, 0x102, 0x101, one, false};
	struct fx_table t = table();

	t.flags = PBOX_DECLARE_RESTORE;
	for (unsigned k = 0; k < 2; k++) {
		/* 3 more pushes than the version of worker 0 has, which are lost; or 3 fewer */
		const struct held late = {
			4, k == 0 ? 60 : 40, k == 0 ? 0x304 : 0x2FE, 0x101, NULL, false};

		restart(2, epoch);
		fx_leave(&w[1]);
		UNIT_EQ_U64(restore(0, v0, 5)->hdr.aux, PBOX_RESTORE_DONE);
		fx_join(&w[1], "vision", 1, 2);
		UNIT_EQ_U64(fx_declare(&w[1], 0, &t)->hdr.type, PBOX_DECLARED);
		UNIT_EQ_U64(fx_map(&w[1], 0, 0)->hdr.type, PBOX_MAPPED);
		UNIT_EQ_U64(restore(1, late, 5)->hdr.aux, PBOX_RESTORE_DONE);
		UNIT_EQ_U64(fx_last()->hdr.weight, 0x301);
		/* and once more, by what it holds then */
		UNIT_EQ_U64(restore(1, late, 5)->hdr.weight, 0x301);
		fx_end();
	}
}

const struct unit_test unit_tests[] = {
	{"restored", test_restored},
	{"nothing is held", test_nothing_held},
	{"back late", test_back_late},
	{NULL, NULL},
};
