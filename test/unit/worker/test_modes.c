/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include <pbox_pairs.h>

#include "unit.h"

#include "peers.h"

/*
 * What goes together (doc/modes.md), asked of the client library with the engine as its box: for each two modes that a worker's
 * configuration and tables can say. The library refuses what it knows itself, and else the box does, in the same words. Several boxes are
 * said to the library alone: this world has one.
 */

const char unit_suite[] = "worker: what goes together";

static const unsigned at[] = {PBOX_USE_AT_ROUNDS, PBOX_USE_AT_SLOTS, PBOX_USE_AT_PLAN,
	PBOX_USE_AT_CLOCKS, PBOX_USE_AT_SHRINK, PBOX_USE_AT_OPTIMISER, PBOX_USE_AT_UP,
	PBOX_USE_AT_DOWN, PBOX_USE_AT_HOLD};
#define USES (sizeof(at) / sizeof(at[0]))

static const struct pbox_client_tensor tensor[] = {{.elements = 100, .name = "weight"}};

static struct pbox_client_table
table_of(uint32_t uses)
{
	struct pbox_client_table t = {.size = sizeof(t),
		.op = PBOX_OP_SUM,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 1,
		.tensors = tensor,
		.hold = (uses & PBOX_USES_HOLD) != 0};
	bool clocks = (uses & PBOX_USES_CLOCKS) != 0;

	if ((uses & (PBOX_USES_OPTIMISER | PBOX_USES_DOWN)) != 0) {
		t.mode = PBOX_MODE_OPTIMISER;
		t.optimiser = clocks ? PBOX_OPT_ADD : PBOX_OPT_SGD;
	}
	t.discipline = clocks ? PBOX_DISCIPLINE_CLOCK : PBOX_DISCIPLINE_ROUNDS;
	if ((uses & PBOX_USES_UP) != 0)
		t.push_format = PBOX_FMT_INT8;
	if ((uses & PBOX_USES_DOWN) != 0 || (t.mode == 0 && (uses & PBOX_USES_UP) != 0))
		t.pull_format = PBOX_FMT_INT8;
	return t;
}

/* 0, or the code, with why. */
static int
declared(const struct pbox_client_table *t, struct pbox_client_error *err)
{
	struct pbox_worker_declaration d = {.what = t};
	uint64_t tick = world.now;
	int rc = pbox_worker_check_table(t, err);

	if (rc != 0)
		return rc;
	pbox_worker_declare(peer[0].w, &d);
	peer[0].due = world.now;
	while (d.state == PBOX_WORKER_DECLARING)
		peers_step(&tick);
	*err = d.err;
	return d.state == PBOX_WORKER_DECLARED ? 0 : d.err.code;
}

static void
ask(unsigned a, unsigned b)
{
	uint32_t uses = pbox_use_needs(a) | pbox_use_needs(b);
	bool plan = (uses & PBOX_USES_PLAN) != 0, shrink = (uses & PBOX_USES_SHRINK) != 0;
	const struct pbox_pair *p = pbox_pair_in(1u << a | 1u << b);
	struct pbox_client_error err = {0};
	struct pbox_client_table t = table_of(uses);
	struct peers_conf conf = {.workers = 1,
		.path_known = true,
		.slots = (uses & PBOX_USES_SLOTS) != 0 ? 4 : 0,
		.policy = plan     ? PBOX_POLICY_REASSIGN
			  : shrink ? PBOX_POLICY_SHRINK
				   : PBOX_POLICY_WAIT};
	uint64_t tick;
	int code;

	if (plan && shrink)
		return; /* a configuration has one policy; test/unit/engine asks the box */
	if (p == NULL)
		p = pbox_pair_in(uses);
	peers_begin(&conf);
	tick = world.now;
	peers_await_sessions(1, &tick);
	code = declared(&t, &err);
	if ((code != 0) != (p != NULL) || (p != NULL && strstr(err.text, p->text) == NULL))
		printf("\n%s with %s: %d %s", pbox_use_name(a), pbox_use_name(b), code, err.text);
	CU_ASSERT_EQUAL(code != 0, p != NULL);
	if (p != NULL) {
		/* who lives is the box's to know */
		CU_ASSERT_EQUAL(code, shrink ? PBOX_C_VERSION : PBOX_C_INVALID);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, p->text));
	}
	peers_end();
}

static void
test_pairs(void)
{
	for (unsigned i = 0; i < USES; i++)
		for (unsigned k = i + 1; k < USES; k++)
			ask(at[i], at[k]);
}

static void
test_boxes(void)
{
	for (unsigned i = 0; i < USES; i++) {
		uint32_t uses = pbox_use_needs(at[i]) | PBOX_USES_BOXES;
		const struct pbox_pair *p = pbox_pair_in(uses);
		const struct pbox_client_table t = table_of(uses);
		struct pbox_client_error err = {0};
		int code = check_pairs(&t,
			uses & (PBOX_USES_BOXES | PBOX_USES_SLOTS | PBOX_USES_PLAN |
				       PBOX_USES_SHRINK),
			"table 7", &err);

		CU_ASSERT_EQUAL(code, p != NULL ? PBOX_C_INVALID : 0);
		CU_ASSERT(p == NULL || (strncmp(err.text, "table 7", 7) == 0 &&
					       strstr(err.text, p->text) != NULL));
	}
}

const struct unit_test unit_tests[] = {
	{"each two that a worker can say", test_pairs},
	{"several boxes", test_boxes},
	{NULL, NULL},
};
