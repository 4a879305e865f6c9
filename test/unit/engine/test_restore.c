/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Section 10 of the protocol: the box has been restarted, and its workers report what they hold. */

#include <string.h>

#include "restorers.h"

const char unit_suite[] = "engine: restart of the box";

/* R10.2, R10.3 */
static void
test_who_is_a_restorer(void)
{
	struct pbox_declare d = {.tensors = 2,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.flags = PBOX_DECLARE_RESTORE};
	struct pbox_tensor_entry e[2] = {
		{.elements = 4, .name = "weight"}, {.elements = 3, .name = "bias"}};
	struct pbox_not_ready m;

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	fx_join(&w[1], "vision", 1, 2);
	UNIT_EQ_U64(fx_declare_list(&w[0], &d, e, 1)->hdr.type, PBOX_DECLARED);
	d.first = 1;
	d.flags = 0;
	fx_declare_list(&w[0], &d, e + 1, 1); /* its pages disagree */
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "RESTORE"));
	d.flags = PBOX_DECLARE_RESTORE;
	UNIT_EQ_U64(fx_declare_list(&w[0], &d, e + 1, 1)->hdr.type, PBOX_DECLARED);
	d.first = d.flags = 0;
	UNIT_EQ_U64(fx_declare_list(&w[1], &d, e, 2)->hdr.type, PBOX_DECLARED);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "mapped"));
	UNIT_EQ_U64(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	UNIT_EQ_U64(fx_map(&w[1], 0, 0)->hdr.type, PBOX_NOT_READY);
	CU_ASSERT_EQUAL(pbox_not_ready_decode(fx_last()->payload, fx_last()->hdr.length, &m), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(m.text, "being restored"));
	tell(0, 0, false); /* one fragment, all of chunk 0 */
	EXPECT(0, DONE, 0, 0);
	UNIT_EQ_U64(fx_map(&w[1], 0, 0)->hdr.type, PBOX_MAPPED);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "is restored"));
	tell(1, 7, true); /* a session that was lost, not the box: R10.2 */
	EXPECT(1, DONE, 0, 0);
	fx_end();
}

/* The same in a job that was never restarted, or not for this table. */
static void
test_nothing_to_restore(void)
{
	fx_begin();
	fx_job(w, "vision", 2, &reduce);
	fx_mark();
	tell(0, 3, true);
	EXPECT(0, DONE, 0, 0);
	FX_ONLY(PBOX_SS_RX_RESTORE);
	fx_pushpull(&w[0], 1, g[0], 4);
	fx_pushpull(&w[1], 1, g[1], 4);
	tell(1, 1, false);
	EXPECT(1, DONE, 1, 0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_RESTORED], 0);
	fx_end();
}

/* Mode 0: one holds version 5, the other still works on it. */
static void
test_two_versions(void)
{
	const float sum6[4] = {1.5f, 1, 5, 4.25f};

	fx_begin();
	begin(2, reduce, ALL);
	tell(1, 4, true);
	EXPECT(1, NOTED, 4, 0);
	tell(0, 5, true);
	EXPECT(0, GIVE, 5, 0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_RESTORED], 0);
	tell(1, 4, true); /* again: the other is asked again */
	EXPECT(0, GIVE, 5, 0);
	EXPECT(1, NOTED, 5, 0);
	give(1, 4, v4); /* not that version */
	EXPECT(0, GIVE, 5, 0);
	give(0, 5, v5);
	EXPECT(0, DONE, 5, 0);
	EXPECT(1, DONE, 5, 0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_RESTORED], 1);
	fx_clear();
	fx_pushpull(&w[1], 5, g[1], 4); /* what it still had in hands */
	EXPECT_RESULT(1, 5, v5);
	UNIT_EQ_U64(fx_last()->hdr.aux, 2);
	UNIT_EQ_U64(fx_last()->hdr.weight, 10);
	fx_clear();
	fx_pushpull(&w[0], 6, g[0], 4);
	fx_pushpull(&w[1], 6, g[1], 4);
	EXPECT_RESULT(0, 6, sum6);
	EXPECT_RESULT(1, 6, sum6);
	tell(0, 5, true); /* late */
	EXPECT(0, DONE, 6, 0);
	fx_end();
}

/* R4.9: its address has changed since it reported. */
static void
test_another_address(void)
{
	struct pbox_hdr h;
	uint16_t old;

	fx_begin();
	begin(2, reduce, ALL);
	tell(0, 5, true);
	old = w[0].udp;
	w[0].udp = 9999;
	h = restore(0, 5, true);
	h.ts += 1000;
	fx_clear();
	fx_rx(0, &w[0], &h, NULL);
	fx_prove(0, &w[0]);
	h = restore(0, 5, true);
	h.ts += 1001;
	fx_rx(0, &w[0], &h, NULL);
	EXPECT(0, NOTED, 5, 1);
	UNIT_EQ_U64(fx_last()->peer.udp, 9999);
	w[0].udp = old; /* a copy of the first one, from where it came */
	fx_mark();
	tell(0, 5, true);
	FX_ONLY(PBOX_SS_DROP_REPLAYED);
	UNIT_EQ_U64(fx.n_sent, 0);
	give(1, 5, v5);
	EXPECT(0, DONE, 5, 0);
	UNIT_EQ_U64(fx_nth(0)->hdr.worker, 0);
	UNIT_EQ_U64(fx_nth(0)->peer.udp, 9999);
	fx_end();
}

/* Mode 0: all hold the same version, and one of them is killed afterwards: it goes on from the version before. */
static void
test_one_version(void)
{
	fx_begin();
	begin(2, reduce, ALL);
	tell(0, 5, true);
	EXPECT(0, NOTED, 5, 1);
	tell(1, 5, true);
	EXPECT(1, GIVE, 5, 0);
	give(1, 5, v5);
	EXPECT(0, DONE, 5, 0);
	EXPECT(1, DONE, 5, 0);
	fx_clear();
	fx_pushpull(&w[1], 5, g[1], 4);
	EXPECT_RESULT(1, 5, v5);
	pull(1, 5);
	EXPECT_RESULT(1, 5, v5);
	fx_end();
}

/* Mode 0: all have pushed a version that nobody has pulled. */
static void
test_version_of_nobody(void)
{
	struct pbox_hdr h;

	fx_begin();
	begin(2, reduce, ALL);
	tell(0, 5, false);
	tell(1, 5, false);
	EXPECT(0, DONE, 5, 0);
	EXPECT(1, DONE, 5, 0);
	fx_clear();
	h = fx_data(&w[1], PBOX_PUSH, 0, 0, 5);
	h.format = PBOX_FMT_FP32;
	h.flags = PBOX_F_LAST;
	h.length = 16;
	fx_rx(0, &w[1], &h, g[1]);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PUSH_OK);
	fx_pushpull(&w[1], 5, g[1], 4);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_LOST);
	pull(1, 5);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_LOST);
	h = fx_data(&w[0], PBOX_PULL, 0, 0, 0);
	h.flags = PBOX_F_LATEST;
	fx_clear();
	fx_rx(0, &w[0], &h, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_LOST);
	fx_mark();
	fx_pushpull(&w[1], 6, g[1], 4);
	FX_ONLY(PBOX_SS_RX_CONTRIBUTION);
	fx_pushpull(&w[0], 6, g[0], 4);
	fx_clear();
	h.ts = fx_ts();
	fx_rx(0, &w[0], &h, NULL);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(fx_last()->hdr.round, 6);
	fx_end();
}

/* A member that holds nothing may have to get the version. */
static void
test_a_member_without_copies(void)
{
	fx_begin();
	begin(2, reduce, 1);
	UNIT_EQ_U64(fx_map(&w[1], 0, 0)->hdr.type, PBOX_NOT_READY);
	fx_mark();
	tell(1, 9, true); /* it was not asked */
	EXPECT(1, NOTED, 0, 0);
	FX_ONLY(PBOX_SS_RX_RESTORE);
	tell(0, 5, true);
	EXPECT(0, GIVE, 5, 0);
	give(0, 5, v5);
	EXPECT(0, DONE, 5, 0);
	UNIT_EQ_U64(fx_map(&w[1], 0, 0)->hdr.type, PBOX_MAPPED);
	pull(1, 5);
	EXPECT_RESULT(1, 5, v5);
	fx_end();
}

/* R10.6: nothing is taken before all have reported, and nothing is kept. */
static void
test_closed_meanwhile(void)
{
	struct pbox_hdr h;

	fx_begin();
	begin(2, reduce, ALL);
	tell(0, 5, true);
	fx_mark();
	fx_clear();
	CU_ASSERT_FALSE(fx_pushpull(&w[0], 6, g[0], 4));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.flags, 0);
	UNIT_EQ_U64(fx_last()->hdr.aux, 0);
	FX_ONLY(PBOX_SS_RX_EARLY);
	fx_mark();
	pull(1, 5);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	FX_ONLY(PBOX_SS_RX_EARLY);
	fx_end();
	fx_begin();
	begin(2, adam, ALL);
	h = fx_data(&w[0], PBOX_INIT, 0, 0, 0);
	h.format = PBOX_FMT_FP32;
	h.length = 16;
	fx_mark();
	fx_rx(0, &w[0], &h, g[0]);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	FX_ONLY(PBOX_SS_RX_EARLY);
	fx_end();
}

static void
test_refusals(void)
{
	struct pbox_hdr h;

	fx_begin();
	begin(2, reduce, ALL);
	h = restore(0, 5, true);
	h.format = PBOX_FMT_BF16;
	fx_mark();
	fx_rx(0, &w[0], &h, NULL);
	FX_ONLY(PBOX_SS_DROP_FORMAT);
	h = restore(0, 5, true);
	h.length = 12;
	fx_mark();
	fx_rx(0, &w[0], &h, v5);
	FX_ONLY(PBOX_SS_DROP_LENGTH);
	h = restore(0, 5, true);
	h.frag = 1;
	fx_mark();
	fx_rx(0, &w[0], &h, NULL);
	FX_ONLY(PBOX_SS_DROP_FRAG_RANGE);
	h = restore(0, 5, true);
	h.incarnation++;
	fx_mark();
	fx_rx(0, &w[0], &h, NULL);
	FX_ONLY(PBOX_SS_DROP_SESSION_INCARNATION);
	h = restore(0, 5, true);
	h.token++;
	fx_mark();
	fx_rx(0, &w[0], &h, NULL);
	FX_ONLY(PBOX_SS_DROP_SESSION_TOKEN);
	tell(1, 4, true); /* none of them has reported anything */
	EXPECT(1, NOTED, 4, 0);
	fx_end();
}

static void
tell_chunk(unsigned i, uint32_t chunk)
{
	struct pbox_hdr h = restore(i, 5, false);

	h.chunk = chunk;
	fx_rx(0, &w[i], &h, NULL);
}

/* All records are taken by fragments that others have reported. */
static void
test_no_record(void)
{
	struct fx_table t = {.elements = 1024};
	unsigned records, mine;

	fx.hold = 32;
	fx.mtu = 154; /* 16 elements a fragment */
	fx_begin();
	begin(2, t, ALL);
	records = 2u * w[0].welcome.window;
	for (uint32_t c = 0; c < 64; c++) /* chunks of one fragment: each core gets 20 */
		tell_chunk(0, c);
	mine = 64 - (unsigned)fx.ss[0][PBOX_SS_DROP_CHUNK_UNKNOWN];
	CU_ASSERT(mine > records);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_RX_RESTORE], records);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_DROP_NO_RECORD], mine - records);
	for (uint32_t c = 0; c < 64 && fx.ss[0][PBOX_SS_RESTORED] == 0; c++)
		tell_chunk(1, c); /* the first of them is restored: its record is free */
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_RESTORED], 1);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], records - 1);
	fx_end();
}

/* R10.7 */
static void
test_a_restorer_leaves(void)
{
	fx_begin();
	begin(3, reduce, ALL);
	tell(0, 5, true);
	tell(2, 6, true); /* it alone has it, and takes it along */
	EXPECT(2, NOTED, 6, 1);
	tell(1, 4, true);
	EXPECT(2, GIVE, 6, 0);
	EXPECT(1, NOTED, 6, 2);
	fx_leave(&w[2]);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "left"));
	tell(1, 4, true);
	EXPECT(0, GIVE, 5, 0);
	EXPECT(1, NOTED, 5, 0);
	give(0, 5, v5);
	EXPECT(0, DONE, 5, 0);
	EXPECT(1, DONE, 5, 0);
	fx_end();
}

static void
test_the_last_that_is_missing_leaves(void)
{
	fx_begin();
	begin(3, reduce, 3);
	tell(0, 5, true);
	EXPECT(0, NOTED, 5, 1);
	fx_leave(&w[1]); /* the mail of it makes the box ask: there are members without copies */
	EXPECT(0, GIVE, 5, 0);
	give(0, 5, v5);
	EXPECT(0, DONE, 5, 0);
	fx_end();
}

static void
test_all_restorers_leave(void)
{
	fx_begin();
	begin(3, reduce, 3);
	tell(0, 5, true);
	fx_leave(&w[0]);
	UNIT_EQ_U64(fx_map(&w[2], 0, 0)->hdr.type, PBOX_NOT_READY);
	fx_leave(&w[1]);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_RESTORED] + fx.ss[1][PBOX_SS_RESTORED], 1);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_ROUNDS_OPEN], 0);
	UNIT_EQ_U64(fx_map(&w[2], 0, 0)->hdr.type, PBOX_MAPPED); /* from the beginning */
	fx_mark();
	fx_pushpull(&w[2], 1, g[2], 4);
	FX_ONLY(PBOX_SS_RX_CONTRIBUTION);
	fx_end();
}

/* Who leaves before the table is built never was one. */
/* However many leave: a shard that is busy has one such mail before it, and one follows. */
static void
test_many_leave(void)
{
	fx_begin();
	begin(4, reduce, ALL);
	tell(0, 5, true);
	fx.hold_mail = true;
	for (unsigned i = 1; i < 4; i++)
		fx_leave(&w[i]);
	UNIT_EQ_U64(fx.n_mail, FX_SHARDS);
	fx_clear();
	fx_mail();
	fx.hold_mail = false;
	EXPECT(0, GIVE, 5, 0);
	UNIT_EQ_U64(fx.n_sent, 2); /* asked with each mail */
	give(0, 5, v5);
	EXPECT(0, DONE, 5, 0);
	fx_end();
}

static void
test_leaves_before_it_is_built(void)
{
	struct fx_table t = reduce;

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	fx_join(&w[1], "vision", 1, 2);
	t.flags = PBOX_DECLARE_RESTORE;
	fx_declare(&w[0], 0, &t);
	fx_leave(&w[0]);
	fx_join(&w[0], "vision", 0, 2);
	t.flags = 0;
	fx_declare(&w[0], 0, &t);
	fx_declare(&w[1], 0, &t);
	UNIT_EQ_U64(fx_map(&w[1], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_end();
}

static void
test_who_is_asked(void)
{
	fx_begin();
	begin(3, reduce, ALL);
	tell(0, 5, false); /* knows it, cannot give it */
	tell(1, 5, true);
	tell(2, 4, true);
	EXPECT(1, GIVE, 5, 0);
	EXPECT(2, NOTED, 5, 1);
	tell(0, 5, false);
	EXPECT(1, GIVE, 5, 0);
	EXPECT(0, NOTED, 5, 1);
	give(1, 5, v5);
	EXPECT(0, DONE, 5, 0);
	EXPECT(1, DONE, 5, 0);
	EXPECT(2, DONE, 5, 0);
	fx_end();
}

static void
test_lost(void)
{
	fx_begin();
	begin(2, reduce, ALL);
	tell(0, 5, false);
	tell(1, 4, true);
	EXPECT(0, LOST, 5, 0);
	EXPECT(1, LOST, 5, 0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_RESTORE_LOST], 1);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_RESTORED], 0);
	tell(1, 4, true);
	EXPECT(1, LOST, 5, 0);
	fx_mark();
	fx_pushpull(&w[1], 5, g[0], 4);
	FX_ONLY(PBOX_SS_RX_EARLY);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_LOST);
	UNIT_EQ_U64(fx_last()->hdr.round, 5);
	UNIT_EQ_U64(fx_last()->hdr.length, 0);
	pull(1, 5);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_LOST);
	fx_tick();
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "lost"));
	fx_map(&w[0], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_LOST);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "fragment 0 of chunk 0"));
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"who is a restorer", test_who_is_a_restorer},
	{"nothing to restore", test_nothing_to_restore},
	{"two versions", test_two_versions},
	{"another address", test_another_address},
	{"one version", test_one_version},
	{"version of nobody", test_version_of_nobody},
	{"a member without copies", test_a_member_without_copies},
	{"closed meanwhile", test_closed_meanwhile},
	{"refusals", test_refusals},
	{"no record", test_no_record},
	{"a restorer leaves", test_a_restorer_leaves},
	{"the last that is missing leaves", test_the_last_that_is_missing_leaves},
	{"all restorers leave", test_all_restorers_leave},
	{"many restorers leave", test_many_leave},
	{"a restorer leaves before the table is built", test_leaves_before_it_is_built},
	{"who is asked for the payload", test_who_is_asked},
	{"lost", test_lost},
	{NULL, NULL},
};
