/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Rounds of a table's fragments: apart, and beyond 2^31. */

#include <errno.h>
#include <string.h>

#include <pbox_staging.h>

#include "fixture.h"

const char unit_suite[] = "engine: rounds that are apart, or large";

#define ELEMENTS 352

static struct fx_worker w[2];
static const struct fx_table sgd = {
	.elements = 2 * ELEMENTS, .mode = PBOX_MODE_OPTIMISER, .optimiser = PBOX_OPT_SGD};
static uint32_t base; /* the table begins with this version */

static struct pbox_table *
table(void)
{
	return &pbox_registrar_job(fx.registrar, 0)->table[0]->t;
}

static int
at_base(const struct pbox_job *j, struct pbox_table *t, bool restoring)
{
	(void)j;
	(void)restoring;
	for (uint32_t i = 0; i < t->n_chunks; i++)
		for (unsigned f = 0; f < t->chunk[i].fragments; f++) {
			t->chunk[i].fragment[f].version = base;
			t->chunk[i].fragment[f].contributors = 1;
			t->chunk[i].fragment[f].has_result = 1;
		}
	return 0;
}

static void
begin(unsigned workers)
{
	fx_begin();
	fx.restore = at_base;
	fx_job(w, "vision", (uint16_t)workers, &sgd);
	fx.restore = NULL;
	UNIT_EQ_U64(table()->n_chunks, 2);
}

/* Chunk 0 or 1 goes a round further, with gradients of 1. */
static void
advance(uint32_t chunk)
{
	static float one[ELEMENTS];
	const struct pbox_chunk *c = &table()->chunk[chunk];
	uint32_t round = c->fragment[0].version + 1;
	struct pbox_hdr h = fx_data(&w[0], PBOX_PUSHPULL, chunk, 0, round);

	for (unsigned i = 0; i < ELEMENTS; i++)
		one[i] = 1.0f;
	h.format = PBOX_FMT_FP32;
	h.length = sizeof(one);
	h.weight = 1;
	fx_clear();
	fx_rx(c->endpoint, &w[0], &h, one);
	UNIT_EQ_U64(c->fragment[0].version, round);
}

/* A SET a round, and one fragment lags: its rounds have the values that were set for them. */
static void
test_who_lags_keeps_its_values(void)
{
	unsigned full = 0;

	base = 0;
	begin(1);
	for (uint32_t r = 1; r <= 100; r++) {
		fx_set(&w[0], 0, r, PBOX_HYPER_LR, r);
		full += fx_error() == PBOX_E_FULL;
		advance(0);
		if (r <= 3)
			advance(1);
	}
	CU_ASSERT(full > 0);
	CU_ASSERT_EQUAL(pbox_schedule_at(&table()->schedule[0], 4)->lr, 4.0);
	advance(1);
	/* 0 - 1 - 2 - 3 - 4 */
	CU_ASSERT_EQUAL(*pbox_chunk_frag_param(table(), &table()->chunk[1], 0), -10.0f);
	/* it comes after, and there is room again */
	while (table()->chunk[1].fragment[0].version < 100)
		advance(1);
	CU_ASSERT_EQUAL(fx_set(&w[0], 0, 101, PBOX_HYPER_LR, 0.5)->hdr.type, PBOX_SET_OK);
	fx_end();
}

/* Epochs ahead. */
static void
test_a_schedule_in_advance(void)
{
	base = 0;
	begin(1);
	for (uint32_t r = 1; r < 60; r++)
		CU_ASSERT_EQUAL(
			fx_set(&w[0], 0, 1000 * r, PBOX_HYPER_LR, r)->hdr.type, PBOX_SET_OK);
	CU_ASSERT_EQUAL(pbox_schedule_at(&table()->schedule[0], 2500)->lr, 2.0);
	fx_end();
}

static void
test_beyond_2_31(void)
{
	static const uint32_t bases[] = {0x80000001, 0xfffffff0, UINT32_MAX};
	static uint8_t memory[1 << 16] __attribute__((aligned(64)));
	static struct pbox_staging staging;
	struct pbox_status m = {0};
	uint8_t payload[8];

	for (unsigned i = 0; i < 3; i++) {
		struct pbox_worker_stats ws;
		struct pbox_status_ok a;
		struct pbox_cursor cur;
		struct pbox_error err;
		struct fx_sent *s;

		base = bases[i];
		begin(1);
		if (base < UINT32_MAX - UINT16_MAX) {
			fx_set(&w[0], 0, 5, PBOX_HYPER_LR, 1);
			UNIT_EQ_U64(fx_error(), PBOX_E_SET_LATE);
		}
		fx_set(&w[0], 0, base, PBOX_HYPER_LR, 1);
		UNIT_EQ_U64(fx_error(), PBOX_E_SET_LATE);
		CU_ASSERT_EQUAL(
			fx_set(&w[0], 0, base + 1, PBOX_HYPER_LR, 1)->hdr.type, PBOX_SET_OK);
		CU_ASSERT_EQUAL(
			fx_set(&w[0], 0, base + 4, PBOX_HYPER_LR, 2)->hdr.type, PBOX_SET_OK);
		advance(0);
		advance(1);
		CU_ASSERT_EQUAL(*table()->chunk[1].param, -1.0f);
		pbox_registrar_worker(fx.registrar, pbox_registrar_job(fx.registrar, 0), 0, &ws);
		UNIT_EQ_U64(ws.round, base + 1);
		UNIT_EQ_U64(
			pbox_registrar_round(fx.registrar, pbox_registrar_job(fx.registrar, 0), 0),
			base + 1);
		s = fx_control(&w[0], PBOX_STATUS, payload,
			pbox_status_encode(payload, sizeof(payload), &m));
		CU_ASSERT_EQUAL(pbox_status_ok_decode(s->payload, s->hdr.length, &a, &cur), 0);
		UNIT_EQ_U64(a.max_round, table()->chunk[1].fragment[0].version);
		UNIT_EQ_U64(
			pbox_registrar_staging(fx.registrar, pbox_registrar_job(fx.registrar, 0), 0,
				0, &staging, memory, sizeof(memory), fx.now, &err),
			0);
		while (pbox_registrar_staging_step(fx.registrar, fx.now) == -EINPROGRESS)
			fx.now += 3000000;
		UNIT_EQ_U64(staging.round, table()->chunk[1].fragment[0].version);
		fx_end();
	}
}

const struct unit_test unit_tests[] = {
	{"a fragment that lags keeps its values", test_who_lags_keeps_its_values},
	{"a schedule in advance", test_a_schedule_in_advance},
	{"beyond 2^31", test_beyond_2_31},
	{NULL, NULL},
};
