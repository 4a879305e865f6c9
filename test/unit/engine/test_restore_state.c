/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* R10.4, R10.8: parameters, optimiser state and hyper-parameters after a restart of the box. */

#include <errno.h>
#include <string.h>

#include "restorers.h"

const char unit_suite[] = "engine: state after a restart";

static void
init(const float *v)
{
	struct pbox_hdr h = fx_data(&w[0], PBOX_INIT, 0, 0, 0);

	h.format = PBOX_FMT_FP32;
	h.length = 16;
	fx_rx(0, &w[0], &h, v);
}

/* Mode 1, in the middle of INIT: it follows as for a new table. */
static void
test_nobody_has_parameters(void)
{
	fx_begin();
	begin(2, adam, ALL);
	tell(0, 0, false);
	tell(1, 0, false);
	EXPECT(0, DONE, 0, 0);
	EXPECT(1, DONE, 0, 0);
	fx_mark();
	fx_pushpull(&w[1], 1, g[1], 4);
	FX_ONLY(PBOX_SS_RX_EARLY);
	pull(1, 0);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	fx_clear();
	init(v4);
	EXPECT_RESULT(1, 0, v4);
	fx_end();
}

/* Mode 1: the initial parameters are there, from one that pulled them. */
static void
test_initial_parameters(void)
{
	fx_begin();
	begin(2, adam, ALL);
	tell(0, 0, false);
	tell(1, 0, true);
	EXPECT(1, GIVE, 0, 0);
	give(1, 0, v4);
	EXPECT(0, DONE, 0, 0);
	fx_clear();
	init(v5); /* changes nothing */
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
	pull(0, 0);
	EXPECT_RESULT(0, 0, v4);
	fx_mark();
	fx_pushpull(&w[1], 1, g[1], 4);
	FX_ONLY(PBOX_SS_RX_CONTRIBUTION);
	fx_end();
}

/* One round of Adam by hand: from parameters p and state s0, s1 of version round - 1. */
static void
by_hand(float *p, float *s0, float *s1, uint32_t round)
{
	struct pbox_hyper hyper;
	struct pbox_optim_scalars k;
	float mean[16] __attribute__((aligned(64)));

	pbox_hyper_defaults(&hyper, PBOX_OPT_ADAM);
	for (unsigned i = 0; i < 4; i++)
		mean[i] = (g[0][i] + g[1][i]) * 0.5f;
	pbox_optim_scalars(&k, &hyper, PBOX_OPT_ADAM, round);
	pbox_optim_scalar.of[PBOX_OPT_ADAM]->step(p, mean, s0, s1, &k, 4);
}

/* Mode 1 without a snapshot: parameters of version 5, state of zeros. */
static void
test_parameters_without_state(void)
{
	float p[16] __attribute__((aligned(64))), s0[16] = {0}, s1[16] = {0};

	memcpy(p, v5, sizeof(v5));
	fx_begin();
	begin(2, adam, ALL);
	tell(1, 5, true);
	tell(0, 5, true);
	EXPECT(0, GIVE, 5, 0);
	give(0, 5, v5);
	EXPECT(1, DONE, 5, 0);
	fx_tick();
	CU_ASSERT_PTR_NOT_NULL(
		strstr(fx.event, "from round 5, but what its optimiser had gathered is 0"));
	fx_clear();
	fx_pushpull(&w[0], 6, g[0], 4);
	fx_pushpull(&w[1], 6, g[1], 4);
	by_hand(p, s0, s1, 6);
	EXPECT_RESULT(0, 6, p);
	fx_end();
}

/* ---- snapshots ------------------------------------------------------------------------ */

static const float m1[4] = {0.5f, 0.25f, -1, 2}, m2[4] = {0.125f, 1, 2, 0.5f};
static unsigned hook_calls;
static uint32_t snapshot;

static int
from_snapshot(const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	struct pbox_chunk *c = &t->chunk[0];

	CU_ASSERT_STRING_EQUAL(job->name, "vision");
	hook_calls++;
	if (!restoring) /* nobody has asked for it */
		return -ENOENT;
	if (snapshot == UINT32_MAX)
		return -EIO;
	memcpy(c->param, v5, sizeof(v5));
	if (c->s0 != NULL) {
		memcpy(c->s0, m1, sizeof(m1));
		memcpy(c->s1, m2, sizeof(m2));
	}
	c->fragment->version = snapshot;
	c->fragment->samples = 77;
	c->fragment->contributors = 2;
	c->fragment->payload_crc = pbox_crc32c(0, v5, sizeof(v5));
	c->fragment->has_result = 1;
	return 0;
}

static void
begin_with_snapshot(struct fx_table t, uint32_t version)
{
	hook_calls = 0;
	snapshot = version;
	fx.restore = from_snapshot;
	fx_begin();
	begin(2, t, ALL);
	UNIT_EQ_U64(hook_calls, 1);
}

static void
finish_round(uint32_t round, const float *before)
{
	float p[16] __attribute__((aligned(64))), s0[16], s1[16];

	memcpy(p, before, 16);
	memcpy(s0, m1, sizeof(m1));
	memcpy(s1, m2, sizeof(m2));
	by_hand(p, s0, s1, round);
	fx_clear();
	fx_pushpull(&w[0], round, g[0], 4);
	fx_pushpull(&w[1], round, g[1], 4);
	EXPECT_RESULT(1, round, p);
}

/* S = V: nothing is asked for, and the next step is that of an undisturbed run. */
static void
test_snapshot_of_the_last_round(void)
{
	begin_with_snapshot(adam, 5);
	tell(0, 5, true);
	tell(1, 4, true);
	EXPECT(0, DONE, 5, 0);
	EXPECT(1, DONE, 5, 0);
	fx_tick();
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.event, "is restored"));
	fx_clear();
	fx_pushpull(&w[1], 5, g[1], 4);
	EXPECT_RESULT(1, 5, v5);
	UNIT_EQ_U64(fx_last()->hdr.weight, 77);
	finish_round(6, v5);
	fx_end();
}

/* S = V + 1: the snapshot stays, those in its round get its result. */
static void
test_snapshot_ahead(void)
{
	begin_with_snapshot(adam, 6);
	tell(0, 5, true);
	tell(1, 5, true);
	EXPECT(0, DONE, 6, 0);
	EXPECT(1, DONE, 6, 0);
	fx_clear();
	fx_pushpull(&w[0], 6, g[0], 4);
	EXPECT_RESULT(0, 6, v5);
	finish_round(7, v5);
	fx_end();
}

/* S < V: parameters from a worker, the state of the snapshot. */
static void
test_snapshot_behind(void)
{
	begin_with_snapshot(adam, 3);
	tell(0, 5, true);
	tell(1, 5, true);
	EXPECT(1, GIVE, 5, 0);
	give(1, 5, v4);
	EXPECT(0, DONE, 5, 0);
	finish_round(6, v4);
	fx_end();
}

static void
test_snapshot_of_all_reduce(void)
{
	begin_with_snapshot(reduce, 5);
	tell(0, 5, false);
	tell(1, 4, false); /* nobody can give it, nobody has to */
	EXPECT(0, DONE, 5, 0);
	fx_clear();
	fx_pushpull(&w[1], 5, g[1], 4);
	EXPECT_RESULT(1, 5, v5);
	fx_end();
}

static void
test_snapshot_that_cannot_be_read(void)
{
	begin_with_snapshot(adam, UINT32_MAX);
	tell(0, 5, true);
	tell(1, 5, true);
	EXPECT(1, GIVE, 5, 0);
	fx_end();
	fx.restore = from_snapshot;
	hook_calls = 0;
	fx_begin();
	begin(2, adam, 0); /* nobody restores: a new run */
	UNIT_EQ_U64(hook_calls, 1);
	fx_clear();
	init(v4);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
	fx_end();
}

static const struct pbox_job *loads_job;

static int
loads_elsewhere(const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	CU_ASSERT(!restoring && t->n_chunks > 0);
	loads_job = job;
	return -EINPROGRESS;
}

static void
begin_loading(void)
{
	fx.restore = loads_elsewhere;
	fx_begin();
	for (uint16_t i = 0; i < 2; i++)
		fx_join(&w[i], "vision", i, 2);
	for (uint16_t i = 0; i < 2; i++)
		UNIT_EQ_U64(fx_declare(&w[i], 0, &adam)->hdr.type, PBOX_DECLARED);
	UNIT_EQ_U64(fx_map(&w[0], 0, 0)->hdr.type, PBOX_NOT_READY);
	/* nobody else touches what is being filled */
	fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 0.5);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx.now += 1000000;
	pbox_registrar_tick(fx.registrar, fx.now);
	UNIT_EQ_U64(fx_map(&w[1], 0, 0)->hdr.type, PBOX_NOT_READY);
	/* and who has lost its session declares it again */
	UNIT_EQ_U64(fx_declare(&w[1], 0, &adam)->hdr.type, PBOX_DECLARED);
}

/* Somebody else reads a snapshot for as long as it takes, and the registrar goes on meanwhile. */
static void
test_loading(void)
{
	struct pbox_error err = {.text = "no snapshot is good"};

	begin_loading();
	snapshot = 5;
	from_snapshot(loads_job, &loads_job->table[0]->t, true);
	pbox_registrar_loaded(fx.registrar, loads_job, 0, NULL, fx.now);
	UNIT_EQ_U64(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	UNIT_EQ_U64(pbox_registrar_round(fx.registrar, loads_job, 0), 5);
	fx_end();
	begin_loading();
	pbox_registrar_loaded(fx.registrar, loads_job, 0, &err, fx.now);
	fx_map(&w[0], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_LOST);
	CU_ASSERT_STRING_EQUAL(fx_error_text(), "no snapshot is good");
	fx_end();
}

/* The job ends before: it stays, and its memory with it, until he who fills it has let go. */
static void
test_job_ends_while_loading(void)
{
	begin_loading();
	fx_leave(&w[0]);
	fx_leave(&w[1]);
	pbox_registrar_close(fx.registrar, fx.now);
	fx_mail();
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 1);
	CU_ASSERT(pbox_arena_used(fx.arena) > 0);
	from_snapshot(loads_job, &loads_job->table[0]->t, true); /* still its own */
	pbox_registrar_loaded(fx.registrar, loads_job, 0, NULL, fx.now);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	fx_end();
}

static int
first_loads_elsewhere(const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	CU_ASSERT(restoring);
	loads_job = job;
	return t->id == 0 ? -EINPROGRESS : -ENOENT;
}

/* A restorer whose session is lost while its table is loading comes back, and is one again. */
static void
test_comes_back_while_loading(void)
{
	struct fx_table t = reduce;

	fx.restore = first_loads_elsewhere;
	fx_begin();
	begin(2, reduce, ALL);
	fx_leave(&w[1]);
	fx_join(&w[1], "vision", 1, 2);
	t.flags = PBOX_DECLARE_RESTORE;
	UNIT_EQ_U64(fx_declare(&w[1], 0, &t)->hdr.type, PBOX_DECLARED);
	UNIT_EQ_U64(fx_declare(&w[1], 0, &t)->hdr.type, PBOX_DECLARED);
	t.flags = 0; /* but not both */
	fx_declare(&w[1], 0, &t);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	pbox_registrar_loaded(fx.registrar, loads_job, 0, NULL, fx.now);
	tell(0, 5, true);
	EXPECT(0, NOTED, 5, 1);
	give(1, 5, v5);
	EXPECT(0, DONE, 5, 0);
	EXPECT(1, DONE, 5, 0);
	fx_end();
}

/* All who could restore a table are gone while one before it is loading: nobody waits for them. */
static void
test_restorers_leave_while_another_loads(void)
{
	struct fx_table t = reduce;

	fx.restore = first_loads_elsewhere;
	fx_begin();
	begin(2, reduce, ALL);
	t.flags = PBOX_DECLARE_CONTINUE;
	UNIT_EQ_U64(fx_declare(&w[0], 1, &t)->hdr.type, PBOX_DECLARED);
	t.flags = PBOX_DECLARE_RESTORE;
	UNIT_EQ_U64(fx_declare(&w[1], 1, &t)->hdr.type, PBOX_DECLARED);
	UNIT_EQ_U64(fx_map(&w[0], 1, 0)->hdr.type, PBOX_NOT_READY);
	fx_leave(&w[1]);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_RESTORED] + fx.ss[1][PBOX_SS_RESTORED], 1);
	UNIT_EQ_U64(fx_map(&w[0], 1, 0)->hdr.type, PBOX_MAPPED);
	pbox_registrar_loaded(fx.registrar, loads_job, 0, NULL, fx.now);
	fx_end();
}

/* A narrow pull format: the answer is what was given, bit for bit, whatever the box makes of it. */
static void
test_fp16(void)
{
	static const uint16_t half[4] = {0x3C00, 0x7D01, 0x8001, 0x0400}; /* 1, a NaN, subnormal */
	struct fx_table t = adam;
	struct pbox_hdr h;

	t.pull = PBOX_FMT_FP16;
	fx_begin();
	begin(2, t, ALL);
	for (unsigned i = 0; i < 2; i++) {
		h = restore(i, 5, true);
		h.format = PBOX_FMT_FP16;
		fx_rx(0, &w[i], &h, NULL);
	}
	h.length = sizeof(half);
	fx_clear();
	fx_rx(0, &w[1], &h, half);
	EXPECT(0, DONE, 5, 0);
	pull(0, 5);
	UNIT_EQ_U64(fx_last()->hdr.length, sizeof(half));
	CU_ASSERT_EQUAL(memcmp(fx_last()->payload, half, sizeof(half)), 0);
	fx_end();
}

/* R10.4: in any order, each from where its worker is, and far from round 0. */
static void
test_sets(void)
{
	float p[16] __attribute__((aligned(64))), mean[16] __attribute__((aligned(64)));
	struct fx_table t = adam;
	struct pbox_hyper hyper;
	struct pbox_optim_scalars k;

	t.optimiser = PBOX_OPT_SGD;
	memcpy(p, v5, sizeof(v5));
	fx_begin();
	begin(2, t, ALL);
	UNIT_EQ_U64(fx_set(&w[0], 0, 1005, PBOX_HYPER_LR, 0.5)->hdr.type, PBOX_SET_OK);
	UNIT_EQ_U64(fx_set(&w[1], 0, 1, PBOX_HYPER_WEIGHT_DECAY, 0.25)->hdr.type, PBOX_SET_OK);
	UNIT_EQ_U64(fx_set(&w[1], 0, 1002, PBOX_HYPER_LR, 0.125)->hdr.type, PBOX_SET_OK);
	UNIT_EQ_U64(fx_set(&w[1], 0, 1005, PBOX_HYPER_LR, 0.5)->hdr.type, PBOX_SET_OK);
	fx_set(&w[1], 0, 1005, PBOX_HYPER_LR, 0.25);
	UNIT_EQ_U64(fx_error(), PBOX_E_SET_CONFLICT);
	fx_set(&w[1], 0, 3, PBOX_HYPER_LR, -1.0);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	tell(0, 1004, true);
	tell(1, 1004, true);
	give(1, 1004, v5);
	EXPECT(0, DONE, 1004, 0);
	fx_set(&w[1], 0, 1004, PBOX_HYPER_LR, 1.0); /* as usual from here on */
	UNIT_EQ_U64(fx_error(), PBOX_E_SET_LATE);
	pbox_hyper_defaults(&hyper, PBOX_OPT_SGD);
	hyper.lr = 0.5;
	hyper.weight_decay = 0.25;
	for (unsigned i = 0; i < 4; i++)
		mean[i] = (g[0][i] + g[1][i]) * 0.5f;
	pbox_optim_scalars(&k, &hyper, PBOX_OPT_SGD, 1005);
	pbox_optim_scalar.of[PBOX_OPT_SGD]->step(p, mean, NULL, NULL, &k, 4);
	fx_clear();
	fx_pushpull(&w[0], 1005, g[0], 4);
	fx_pushpull(&w[1], 1005, g[1], 4);
	EXPECT_RESULT(0, 1005, p);
	fx_end();
}

static void
test_too_many_sets(void)
{
	unsigned n = 0;

	fx_begin();
	begin(2, adam, ALL);
	for (uint32_t r = 100;
		r > 10 && fx_set(&w[0], 0, r, PBOX_HYPER_LR, r)->hdr.type == PBOX_SET_OK; r--)
		n++;
	UNIT_EQ_U64(n, PBOX_SCHEDULE - 1);
	UNIT_EQ_U64(fx_error(), PBOX_E_FULL);
	UNIT_EQ_U64(fx_set(&w[1], 0, 90, PBOX_HYPER_BETA1, 0.5)->hdr.type, PBOX_SET_OK);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"a table that somebody else fills", test_loading},
	{"its job ends meanwhile", test_job_ends_while_loading},
	{"a restorer comes back meanwhile", test_comes_back_while_loading},
	{"restorers leave while another table loads", test_restorers_leave_while_another_loads},
	{"nobody has parameters", test_nobody_has_parameters},
	{"initial parameters", test_initial_parameters},
	{"parameters without state", test_parameters_without_state},
	{"snapshot of the last round", test_snapshot_of_the_last_round},
	{"snapshot ahead", test_snapshot_ahead},
	{"a snapshot that is older", test_snapshot_behind},
	{"snapshot of an all-reduce", test_snapshot_of_all_reduce},
	{"snapshot that cannot be read", test_snapshot_that_cannot_be_read},
	{"fp16", test_fp16},
	{"SETs in any order", test_sets},
	{"too many SETs", test_too_many_sets},
	{NULL, NULL},
};
