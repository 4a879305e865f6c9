/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Mails to a shard that does not answer: their number is bounded, whatever workers and the operator do. */

#include "fixture.h"

const char unit_suite[] = "engine: mails under way";

static struct fx_worker w[3];

/* Mails of a kind that are held back, for one shard. */
static unsigned
held(enum pbox_mail_kind kind, unsigned shard)
{
	unsigned n = 0;

	for (unsigned i = 0; i < fx.n_mail; i++)
		n += fx.mail[i].kind == kind && fx.mail[i].shard == shard;
	return n;
}

static void
test_tables_wait(void)
{
	enum {
		TABLES = 3 * PBOX_OPENING + 1,
	};
	const struct fx_table t = {.elements = 4, .op = PBOX_OP_SUM};

	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	fx.hold_mail = true;
	for (unsigned i = 0; i < TABLES; i++)
		UNIT_EQ_U64(fx_declare(&w[0], i, &t)->hdr.type, PBOX_DECLARED);
	for (unsigned open = 0; open < TABLES; open += PBOX_OPENING) {
		unsigned left = TABLES - open;

		for (unsigned s = 0; s < FX_SHARDS; s++)
			UNIT_EQ_U64(held(PBOX_MAIL_OPEN_TABLE, s),
				left < PBOX_OPENING ? left : PBOX_OPENING);
		UNIT_EQ_U64(fx_map(&w[0], TABLES - 1, 0)->hdr.type, PBOX_NOT_READY);
		fx_mail();
		fx_work();
	}
	fx_clear();
	UNIT_EQ_U64(fx_map(&w[0], TABLES - 1, 0)->hdr.type, PBOX_MAPPED);
	fx.hold_mail = false;
	fx_end();
}

/* Policy shrink, a section that changes, questions, tables, and its end: all that a job can have under way at once. */
static void
test_all_kinds(void)
{
	const struct fx_table t = {.elements = 4, .op = PBOX_OP_SUM};
	struct pbox_job_conf conf = {
		.name = "six", .secret = "key", .secret_len = 3, .policy = PBOX_POLICY_SHRINK};
	struct pbox_why *why[4];
	const struct pbox_job *job;

	fx_begin();
	fx_job(w, "six", 3, &t);
	fx_work();
	job = pbox_registrar_job(fx.registrar, w[0].job_no);
	fx.hold_mail = true;
	for (unsigned i = 0; i < 9; i++) {
		fx_clear();
		fx_leave(&w[2]);
		fx_join(&w[2], "six", 2, 3);
		conf.bounds.rate = 1000 + i;
		pbox_registrar_reload(fx.registrar, &conf, 1, 10000, 0, fx.now);
	}
	for (unsigned i = 0; i < 4; i++)
		why[i] = pbox_registrar_why(fx.registrar, job);
	CU_ASSERT(why[0] != NULL && why[1] != NULL && why[2] == NULL && why[3] == NULL);
	for (unsigned s = 0; s < FX_SHARDS; s++) {
		UNIT_EQ_U64(held(PBOX_MAIL_MEMBERS, s), 1);
		UNIT_EQ_U64(held(PBOX_MAIL_QUOTA, s), 1);
		UNIT_EQ_U64(held(PBOX_MAIL_WHY, s), 2);
	}
	CU_ASSERT(fx.n_mail <= FX_SHARDS * PBOX_MAILS_OF_JOB);
	/* what has changed meanwhile follows */
	fx_mail();
	for (unsigned i = 0; i < 2; i++) {
		UNIT_EQ_U64(why[i]->answered, FX_SHARDS);
		pbox_registrar_why_end(why[i]);
	}
	why[0] = pbox_registrar_why(fx.registrar, job);
	CU_ASSERT_PTR_NOT_NULL(why[0]);
	fx_mail();
	pbox_registrar_why_end(why[0]);
	fx.hold_mail = false;
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"tables are opened a few at a time", test_tables_wait},
	{"a job has so many under way, and no more", test_all_kinds},
	{NULL, NULL},
};
