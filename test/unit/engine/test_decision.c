/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What the workers of a plan decide before a round (R15.11). */

#include <string.h>

#include "slots.h"

const char unit_suite[] = "engine: a decision of all workers";

static struct pbox_work_ok said;

static void
begin_planned(void)
{
	const struct fx_table t = {.elements = ELEMENTS,
		.mode = PBOX_MODE_OPTIMISER,
		.op = PBOX_OP_SUM,
		.optimiser = PBOX_OPT_SGD};

	fx_begin();
	n_workers = 3;
	slots = 8;
	for (unsigned i = 0; i < 3; i++) {
		w[i] = (struct fx_worker){.job = "five",
			.worker = (uint16_t)i,
			.workers = 3,
			.policy = PBOX_POLICY_REASSIGN,
			.slots = 8};
		CU_ASSERT_TRUE_FATAL(fx_try_join(&w[i]));
	}
	declare_all(0, &t);
}

static void
hear(unsigned i, uint32_t round)
{
	const struct pbox_work_ask m = {.round = round,
		.fits = UINT32_MAX,
		.seed = PBOX_WORK_NONE,
		.samples = PBOX_WORK_NONE};
	uint8_t payload[512];
	size_t n = pbox_work_ask_encode(payload, sizeof(payload), &m);
	const struct fx_sent *s = fx_control(&w[i], PBOX_WORK, payload, n);

	CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_WORK_OK);
	CU_ASSERT_EQUAL_FATAL(pbox_work_ok_decode(s->payload, s->hdr.length, &said), 0);
}

/* 0, or an error. */
static unsigned
decide(unsigned i, uint32_t round, double number)
{
	return fx_set(&w[i], 0, round, PBOX_SET_DECISION, number)->hdr.type == PBOX_SET_OK
		       ? 0
		       : fx_error();
}

static void
test_one_for_all(void)
{
	begin_planned();
	hear(1, 1);
	UNIT_EQ_U64(said.decided, 0);
	UNIT_EQ_U64(decide(0, 2, 0.25), 0);
	hear(1, 2);
	CU_ASSERT(said.decided == 2 && said.decision == 0.25);
	/* who has heard it says the same; two that lead do not decide apart */
	UNIT_EQ_U64(decide(1, 2, 0.25), 0);
	UNIT_EQ_U64(decide(2, 2, 0.5), PBOX_E_SET_CONFLICT);
	hear(2, 2);
	CU_ASSERT(said.decided == 2 && said.decision == 0.25);
	hear(2, 1); /* none of round 1: the latest */
	UNIT_EQ_U64(said.decided, 2);
	UNIT_EQ_U64(decide(0, 0, 1), PBOX_E_SET_LATE);
	fx_end();
}

static void
test_those_that_are_kept(void)
{
	begin_planned();
	for (uint32_t round = 2; round < 6; round++)
		UNIT_EQ_U64(decide(0, round, round), 0);
	hear(1, 2);
	CU_ASSERT(said.decided == 2 && said.decision == 2);
	UNIT_EQ_U64(decide(0, 6, 6), 0);
	hear(1, 2); /* the oldest is gone */
	CU_ASSERT(said.decided == 6 && said.decision == 6);
	fx_end();
}

static void
test_with_hyper_parameters(void)
{
	struct pbox_set m = {.group = PBOX_ALL_GROUPS, .count = 2, .from_round = 2};
	uint8_t payload[64];

	begin_planned();
	m.param[0].id = PBOX_SET_DECISION;
	m.param[0].value = 7;
	m.param[1].id = PBOX_HYPER_LR;
	m.param[1].value = -1; /* is none: the decision is not taken either */
	fx_control(&w[0], PBOX_SET, payload, pbox_set_encode(payload, sizeof(payload), &m));
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	hear(1, 2);
	UNIT_EQ_U64(said.decided, 0);
	m.param[1].value = 0.5;
	fx_control(&w[0], PBOX_SET, payload, pbox_set_encode(payload, sizeof(payload), &m));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_SET_OK);
	hear(1, 2);
	CU_ASSERT(said.decided == 2 && said.decision == 7);
	fx_end();
}

static void
test_without_a_plan(void)
{
	struct fx_table t = {.elements = 100};

	fx_begin();
	fx_job(w, "vision", 2, &t);
	UNIT_EQ_U64(decide(0, 1, 1), PBOX_E_BAD_REQUEST);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "decide by an all-reduce"));
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"one for all", test_one_for_all},
	{"those that are kept", test_those_that_are_kept},
	{"with hyper-parameters", test_with_hyper_parameters},
	{"without a plan", test_without_a_plan},
	{NULL, NULL},
};
