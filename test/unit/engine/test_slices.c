/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What the control thread does for a large table, it does in slices: of work, which is what is counted here. */

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include <pbox_staging.h>

#include "fixture.h"

const char unit_suite[] = "engine: slices of the control thread's work";

#define ELEMENTS 200000
#define SLICE    4096u /* fragments that one call looks at, at most, but for the rest of a chunk */
#define PAGES    64    /* new ones that one call writes to */

static struct fx_worker w[1];
static const struct fx_table many = {.elements = ELEMENTS};
static struct pbox_staging staging;
static uint8_t memory[2 << 20] __attribute__((aligned(64)));

static struct pbox_job_table *
table(void)
{
	return pbox_registrar_job(fx.registrar, 0)->table[0];
}

static uint32_t
fragments_before(uint32_t chunk)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < chunk; i++)
		n += table()->t.chunk[i].fragments;
	return n;
}

static void
begin(uint32_t chunk_elements)
{
	fx.mtu = 160;
	fx.chunk_elements = chunk_elements;
	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	fx_declare(&w[0], 0, &many);
}

static void
begin_mapped(void)
{
	begin(1024);
	fx_work();
	CU_ASSERT_FATAL(table()->shards_open == FX_SHARDS);
	CU_ASSERT_FATAL(table()->t.n_fragments > 2 * SLICE);
}

/* One fragment goes a round further. */
static void
advance(uint32_t chunk, uint16_t frag)
{
	static const float zero[64];
	const struct pbox_chunk *c = &table()->t.chunk[chunk];
	struct pbox_hdr h =
		fx_data(&w[0], PBOX_PUSHPULL, chunk, frag, c->fragment[frag].version + 1);

	h.format = PBOX_FMT_FP32;
	h.length = (uint16_t)(pbox_chunk_frag_elements(&table()->t, c, frag) * 4);
	fx_clear();
	fx_rx(c->endpoint, &w[0], &h, zero);
	UNIT_EQ_U64(c->fragment[frag].version, h.round);
}

static void
advance_all(void)
{
	for (uint32_t i = 0; i < table()->t.n_chunks; i++)
		for (uint16_t f = 0; f < table()->t.chunk[i].fragments; f++)
			advance(i, f);
	fx_clear();
}

/* A chunk's fragments are on pages of their own. */
static void
test_made_ready(void)
{
	unsigned slices = 0;
	uint32_t at;

	begin(64);
	CU_ASSERT(table()->t.n_chunks > 10 * PAGES);
	CU_ASSERT(table()->next_chunk <= PAGES);
	do {
		at = table()->next_chunk;
		pbox_registrar_work(fx.registrar, fx.now);
		CU_ASSERT_FATAL(table()->next_chunk - at <= PAGES);
		slices++;
	} while (table()->preparing);
	CU_ASSERT(slices > 10);
	UNIT_EQ_U64(table()->shards_open, FX_SHARDS);
	fx_end();
}

static uint32_t
all_fragments(void)
{
	return fragments_before(table()->t.n_chunks);
}

/* The copy is laid out, and then its round is chosen: what finishes meanwhile is not missed. */
static void
test_a_copy_is_laid_out(void)
{
	struct pbox_error err;
	unsigned slices = 1;
	uint32_t at;
	int ret;

	begin_mapped();
	UNIT_EQ_U64(table()->t.n_fragments, all_fragments());
	advance_all();
	fx.hold_mail = true;
	memset(memory, 0x77, sizeof(memory));
	UNIT_EQ_U64(pbox_registrar_staging(fx.registrar, pbox_registrar_job(fx.registrar, 0), 0, 0,
			    &staging, memory, sizeof(memory), fx.now, &err),
		0);
	CU_ASSERT(fragments_before(staging.laid_out) < SLICE + table()->t.chunk[0].fragments);
	do {
		UNIT_EQ_U64(fx.n_mail, 0);
		CU_ASSERT_FALSE(pbox_registrar_staging_waits(fx.registrar));
		if (slices == 2)
			advance_all();
		at = staging.laid_out;
		CU_ASSERT_FATAL(pbox_registrar_staging_step(fx.registrar, fx.now) == -EINPROGRESS);
		CU_ASSERT(fragments_before(staging.laid_out) - fragments_before(at) <
			  SLICE + table()->t.chunk[0].fragments);
		slices++;
	} while (staging.laid_out < table()->t.n_chunks);
	CU_ASSERT(slices > 2);
	UNIT_EQ_U64(fx.n_mail, FX_SHARDS);
	UNIT_EQ_U64(staging.round, 2);
	fx.hold_mail = false;
	fx_mail();
	while ((ret = pbox_registrar_staging_step(fx.registrar, fx.now)) == -EINPROGRESS)
		fx.now += 3000000;
	UNIT_EQ_U64(ret, 0);
	for (uint32_t i = 0; i < staging.n_fragments; i++)
		CU_ASSERT_FATAL(staging.fragment[i].copied && staging.fragment[i].version == 2);
	fx_end();
}

/* Workers are waited for, for a time that has an end, only when all else is copied. */
static void
test_what_a_copy_waits_for(void)
{
	struct pbox_error err;
	int ret;

	begin_mapped();
	advance(0, 0);
	UNIT_EQ_U64(pbox_registrar_staging(fx.registrar, pbox_registrar_job(fx.registrar, 0), 0, 0,
			    &staging, memory, sizeof(memory), fx.now, &err),
		0);
	for (unsigned i = 0; i < 100 && !pbox_registrar_staging_waits(fx.registrar); i++) {
		bool all = staging.shard[0].looked && staging.shard[1].looked;

		CU_ASSERT_FATAL(pbox_registrar_staging_step(fx.registrar, fx.now) == -EINPROGRESS);
		UNIT_EQ_U64(pbox_registrar_staging_waits(fx.registrar), all);
		fx.now += 3000000;
	}
	CU_ASSERT_TRUE(pbox_registrar_staging_waits(fx.registrar));
	pbox_registrar_staging_cancel(fx.registrar, fx.now);
	while ((ret = pbox_registrar_staging_step(fx.registrar, fx.now)) == -EINPROGRESS)
		;
	CU_ASSERT_EQUAL(ret, -ETIMEDOUT);
	CU_ASSERT_FALSE(pbox_registrar_staging_waits(fx.registrar));
	fx_end();
}

/* What a SET of the lr is answered: PBOX_SET_OK, PBOX_ERROR with its code in *code, or 0 for nothing. */
static unsigned
ask(uint32_t round, unsigned *code)
{
	struct pbox_set m = {.group = PBOX_ALL_GROUPS, .count = 1, .from_round = round};
	uint8_t payload[64];
	struct pbox_frame f = {
		.hdr = {.type = PBOX_SET,
			.token = w[0].token,
			.job = w[0].job_no,
			.incarnation = fx_data(&w[0], PBOX_PULL, 0, 0, 0).incarnation,
			.chunk = ++w[0].request},
		.payload = payload,
		.peer = {.ip = htonl(w[0].ip), .udp = w[0].udp}};

	m.param[0].id = PBOX_HYPER_LR;
	m.param[0].value = round;
	f.hdr.length = (uint16_t)pbox_set_encode(payload, sizeof(payload), &m);
	f.hdr.ts = fx_ts();
	fx_clear();
	pbox_registrar_rx(fx.registrar, &f, fx.now);
	*code = fx.n_sent > 0 && fx_last()->hdr.type == PBOX_ERROR ? fx_error() : 0;

	return fx.n_sent > 0 ? fx_last()->hdr.type : 0;
}

/* A look at all fragments goes on while others are served, and no SET is refused for what was before. */
static void
test_a_look(void)
{
	unsigned code, slices = 0, answer, n;
	uint32_t at, r = 1;

	begin_mapped();
	for (; r <= 64; r++) {
		UNIT_EQ_U64(ask(r, &code), PBOX_SET_OK);
		/* before they are needed: so that it is known then */
		CU_ASSERT_EQUAL(table()->look.on, r == 31);
		for (; table()->look.on; slices++) {
			at = fragments_before(table()->look.chunk) + table()->look.frag;
			CU_ASSERT_TRUE(
				pbox_registrar_work(fx.registrar, fx.now) || !table()->look.on);
			if (table()->look.on)
				CU_ASSERT(fragments_before(table()->look.chunk) +
						  table()->look.frag - at <=
					  SLICE);
		}
	}
	CU_ASSERT(slices >= 2);
	CU_ASSERT_TRUE(table()->finished.known);
	/* the fragment that was last still is */
	UNIT_EQ_U64(ask(r, &code), PBOX_ERROR);
	UNIT_EQ_U64(code, PBOX_E_FULL);
	CU_ASSERT_FALSE(table()->look.on);
	/* it goes on, others are still there: looked at before that is said */
	advance(table()->last_chunk, table()->last_frag);
	UNIT_EQ_U64(ask(r, &code), 0);
	CU_ASSERT_TRUE(table()->look.on);
	fx_work();
	UNIT_EQ_U64(ask(r, &code), PBOX_ERROR);
	UNIT_EQ_U64(code, PBOX_E_FULL);
	/* all have gone on */
	advance_all();
	for (n = 0; (answer = ask(r, &code)) == 0; n++)
		CU_ASSERT_FATAL(n < all_fragments() / SLICE + 2);
	UNIT_EQ_U64(answer, PBOX_SET_OK);
	CU_ASSERT(n >= 1);
	fx_end();
}

/* Somebody asks, and is away; much later somebody else asks: what was found then is not what is. */
static void
test_an_old_look(void)
{
	unsigned code;
	uint32_t r = 1;

	begin_mapped();
	for (; r <= 64; r++) {
		UNIT_EQ_U64(ask(r, &code), PBOX_SET_OK);
		fx_work();
	}
	advance(table()->last_chunk, table()->last_frag);
	UNIT_EQ_U64(ask(r, &code), 0);
	fx_work();
	advance_all();
	fx.now += UINT64_C(60000000000);
	fx_listen();
	UNIT_EQ_U64(ask(r, &code), 0);
	fx_work();
	UNIT_EQ_U64(ask(r, &code), PBOX_SET_OK);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"a table is made ready", test_made_ready},
	{"a copy is laid out", test_a_copy_is_laid_out},
	{"what a copy waits for", test_what_a_copy_waits_for},
	{"a look at all fragments", test_a_look},
	{"a look of long ago", test_an_old_look},
	{NULL, NULL},
};
