/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pthread.h>

#include <pbox_wire.h>

#include "harness.h"
#include "unit.h"

/* Jobs with slots: what a program asks for, what it pushes by nodes, and what is refused. */

const char unit_suite[] = "client: slots";

#define WORKERS  3
#define SLOTS    8 /* of worker 1: 2 to 4, nodes 2 to 3 and 4 */
#define ELEMENTS 1000

static struct pbox_client_error err;
static const struct pbox_client_tensor model[] = {
	{"a", 700, 0}, {"none", 0, 0}, {"b", ELEMENTS - 700, 0}};

static int
open_with(struct pbox_client **c, const struct box *b, int worker, unsigned workers, unsigned slots)
{
	struct pbox_client_conf conf = harness_conf(b, worker, workers);

	conf.slots = slots;
	return pbox_client_open(c, &conf, &err);
}

/** What a slot brings: sums of these are exact. */
static float
slot_value(unsigned slot, unsigned i)
{
	return (float)((slot + 1) * 1000 + i % 7);
}

struct member {
	pthread_t thread;
	struct box *box;
	unsigned number;
	uint8_t op;
	float out[ELEMENTS];
	int rc;
	struct pbox_client_error err;
	void (*more)(struct member *m, struct pbox_client *c); /* with a table, before the round */
};

static int
push_nodes(struct member *m, struct pbox_client *c)
{
	struct pbox_client_node node[SLOTS];
	float in[SLOTS][ELEMENTS];
	const void *list[SLOTS * 3];
	struct pbox_client_io io[3];
	uint32_t weight[SLOTS];
	pbox_client_handle h;
	unsigned n = (unsigned)pbox_client_nodes(c, 0, node, SLOTS);

	if (m->op == PBOX_OP_WEIGHTED_MEAN) {
		unsigned first = node[0].first, end = node[n - 1].first + node[n - 1].slots;

		for (n = 0; n < end - first; n++)
			node[n] = (struct pbox_client_node){(uint16_t)(first + n), 1};
	}
	for (unsigned k = 0; k < n; k++) {
		weight[k] = 0;
		memset(in[k], 0, sizeof(in[k]));
		for (unsigned s = node[k].first; s < node[k].first + node[k].slots; s++) {
			weight[k] += s + 1;
			for (unsigned i = 0; i < ELEMENTS; i++)
				in[k][i] += slot_value(s, i);
		}
		list[k * 3] = in[k];
		list[k * 3 + 1] = NULL; /* it has no elements */
		list[k * 3 + 2] = in[k] + 700;
	}
	for (unsigned t = 0; t < 3; t++)
		io[t] = (struct pbox_client_io){t, NULL, m->out + (t == 2 ? 700 : 0)};
	m->rc = pbox_client_submit(c,
		&(struct pbox_client_op){.size = sizeof(struct pbox_client_op),
			.kind = PBOX_CLIENT_PUSHPULL,
			.io = io,
			.n = 3,
			.by_nodes = 1,
			.nodes = n,
			.node_in = list,
			.node_weight = weight},
		&h, &m->err);
	memset(list, 0, sizeof(list)); /* they are copied */
	memset(weight, 0, sizeof(weight));
	return m->rc == 0 ? pbox_client_wait(c, h, 0, &m->err) : m->rc;
}

static void *
member_main(void *arg)
{
	struct member *m = arg;
	struct pbox_client_conf conf = harness_conf(m->box, (int)m->number, WORKERS);
	struct pbox_client_table d = {.size = sizeof(d),
		.op = m->op,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 3,
		.tensors = model};
	struct pbox_client *c = NULL;
	uint32_t table;

	conf.slots = SLOTS;
	m->rc = pbox_client_open(&c, &conf, &m->err);
	if (m->rc == 0)
		m->rc = pbox_client_declare(c, &d, 0, &table, &m->err);
	if (m->rc == 0 && m->more != NULL)
		m->more(m, c);
	if (m->rc == 0)
		m->rc = push_nodes(m, c);
	pbox_client_close(c);
	return NULL;
}

/** All workers, each with a thread; the elements of all results. */
static void
all(uint8_t op, void (*more)(struct member *, struct pbox_client *), float (*wanted)(unsigned i))
{
	struct box *b = box_start(&(struct box_conf){.workers = WORKERS});
	static struct member m[WORKERS];
	unsigned wrong = 0;

	for (unsigned i = 0; i < WORKERS; i++) {
		m[i] = (struct member){
			.box = b, .number = i, .op = op, .more = i == 1 ? more : NULL};
		pthread_create(&m[i].thread, NULL, member_main, &m[i]);
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		pthread_join(m[i].thread, NULL);
		if (m[i].rc != 0)
			CU_assertImplementation(
				CU_FALSE, __LINE__, m[i].err.text, __FILE__, "", CU_FALSE);
		for (unsigned k = 0; k < ELEMENTS; k++)
			wrong += m[i].out[k] != wanted(k);
	}
	UNIT_EQ_U64(wrong, 0);
	box_stop(b);
}

static float
wanted_sum(unsigned i)
{
	float v = 0;

	for (unsigned s = 0; s < SLOTS; s++)
		v += slot_value(s, i);
	return v;
}

static float
wanted_weighted(unsigned i)
{
	float v = 0;

	for (unsigned s = 0; s < SLOTS; s++)
		v += (float)(s + 1) * slot_value(s, i);
	return v * (float)(1.0 / (SLOTS * (SLOTS + 1) / 2));
}

static void
test_nodes(void)
{
	all(PBOX_OP_SUM, NULL, wanted_sum);
	all(PBOX_OP_WEIGHTED_MEAN, NULL, wanted_weighted);
}

/* ---- what is refused ----------------------------------------------------------------------------- */

/** Is it refused, with a text that has this in it? */
#define REFUSED(op, part)                                                                 \
	do {                                                                              \
		pbox_client_handle h_;                                                    \
		CU_ASSERT_EQUAL(pbox_client_submit(c, &(op), &h_, &err), PBOX_C_INVALID); \
		HAS(part);                                                                \
	} while (0)

static void
refuse_sum(struct member *m, struct pbox_client *c)
{
	float x[ELEMENTS] = {0};
	const struct pbox_client_io io[3] = {{0, NULL, x}, {1, NULL, NULL}, {2, NULL, x}};
	const void *in[9] = {x, x, x, x, x, x, NULL, x, x};
	const uint32_t weight[3] = {1, 1, 1};
	const struct pbox_client_op good = {.size = sizeof(good),
		.kind = PBOX_CLIENT_PUSHPULL,
		.io = io,
		.n = 3,
		.by_nodes = 1,
		.nodes = 2,
		.node_in = in,
		.node_weight = weight};
	struct pbox_client_node node[2] = {{9, 9}, {9, 9}};
	struct pbox_client_op op = good;

	(void)m;
	UNIT_EQ_U64(pbox_client_slots(c), SLOTS);
	UNIT_EQ_U64((unsigned)pbox_client_nodes(c, 0, node, 1), 2); /* no room for the second */
	CU_ASSERT(node[0].first == 2 && node[0].slots == 2 && node[1].slots == 9);
	UNIT_EQ_U64((unsigned)pbox_client_nodes(c, 5, NULL, 0), 2);
	op.nodes = 3;
	REFUSED(op,
		"3 nodes are given; worker 1 of 3, in a job of 8 slots, brings 2: slots 2 to 3 and 4");
	op.nodes = 1;
	op.kind = PBOX_CLIENT_PUSH;
	REFUSED(op, "1 node is given");
	op = good;
	op.kind = PBOX_CLIENT_PULL;
	REFUSED(op, "pull has no nodes");
	op = good;
	op.node_in = NULL;
	REFUSED(op, "without the list of their inputs");
	op = good;
	op.node_weight = NULL;
	REFUSED(op, "without the list of their weights");
	in[5] = NULL;
	REFUSED(good, "node 1 of tensor 'b' is without an input buffer");
	op = good;
	op.table = 9;
	REFUSED(op, "table 9");
	op = good;
	op.size--;
	REFUSED(op, "its size is not sizeof(struct pbox_client_op)");
	op = good;
	op.again = 1;
	op.kind = PBOX_CLIENT_PUSH;
	REFUSED(op, "once more goes what the round is pushed with: push-pull in table 0");
	op.by_nodes = 0;
	op.kind = PBOX_CLIENT_PULL;
	REFUSED(op, "a push once more (again) is by nodes");
	op.again = 0;
	op.bounded = 1;
	REFUSED(op,
		"a bound is for pulls of tables in clocks; this is a pull of table 0, which is in rounds");
	in[5] = x;
	op = good;
	op.factor = 0.5f;
	REFUSED(op,
		"are for pushes to tables in clocks; this is a push-pull to table 0, which is in rounds");
}

static void
refuse_weighted(struct member *m, struct pbox_client *c)
{
	const struct pbox_client_io io = {1, NULL, NULL};
	const void *in[2] = {NULL, NULL};
	const uint32_t weight[2] = {1, 1};
	const struct pbox_client_op op = {.size = sizeof(op),
		.kind = PBOX_CLIENT_PUSH,
		.io = &io,
		.n = 1,
		.by_nodes = 1,
		.nodes = 2,
		.node_in = in,
		.node_weight = weight};

	(void)m;
	REFUSED(op, "brings 3, each slot by itself: slots 2, 3 and 4");
}

static void
test_invalid(void)
{
	all(PBOX_OP_SUM, refuse_sum, wanted_sum);
	all(PBOX_OP_WEIGHTED_MEAN, refuse_weighted, wanted_weighted);
}

/* Who has got slots in the round would not hear of it. */
static void
test_push_by_plan(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 1});
	struct pbox_client_conf conf = harness_conf(b, 0, 1);
	const struct pbox_client_hyper lr = {PBOX_HYPER_LR, 0.5};
	struct pbox_client_table d = {.size = sizeof(d),
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_SGD,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 3,
		.tensors = model};
	float x[ELEMENTS] = {0};
	const struct pbox_client_io io[3] = {{0, NULL, x}, {1, NULL, NULL}, {2, NULL, x}};
	const struct pbox_client_io init[3] = {{0, x, NULL}, {1, NULL, NULL}, {2, x, NULL}};
	const void *in[3] = {x, NULL, x};
	const uint32_t weight = 2;
	struct pbox_client_op op = {.size = sizeof(op),
		.kind = PBOX_CLIENT_PUSH,
		.io = io,
		.n = 3,
		.by_nodes = 1,
		.nodes = 1,
		.node_in = in,
		.node_weight = &weight};
	struct pbox_client *c = NULL;
	pbox_client_handle h;
	uint32_t table;

	conf.slots = 2;
	conf.policy = PBOX_POLICY_REASSIGN;
	CU_ASSERT_EQUAL_FATAL(pbox_client_open(&c, &conf, &err), 0);
	CU_ASSERT_EQUAL_FATAL(pbox_client_declare(c, &d, 0, &table, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_set(c, 0, PBOX_ALL_GROUPS, 0, &lr, 1, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_run(c, 0, PBOX_CLIENT_INIT, init, 3, 1, 0, &err), 0);
	REFUSED(op,
		"push alone, in a job with policy reassign, does not learn that this worker has got slots");
	op.kind = PBOX_CLIENT_PUSHPULL;
	CU_ASSERT_EQUAL(pbox_client_submit(c, &op, &h, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_wait(c, h, 0, &err), 0);
	pbox_client_close(c);
	box_stop(b);
}

static void
test_configuration(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 3, .no_slots = true});
	struct pbox_client *c = NULL;

	CU_ASSERT_EQUAL(open_with(&c, b, 0, 3, 2), PBOX_C_INVALID);
	HAS("slots is 2; with 3 workers 3 to 4096 are taken, or 0 for as many as workers");
	CU_ASSERT_EQUAL(open_with(&c, b, 0, 3, 4097), PBOX_C_INVALID);
	HAS("slots is 4097");
	CU_ASSERT_EQUAL(open_with(&c, b, 0, 3, 0), 0); /* who asks for none needs no such box */
	UNIT_EQ_U64(pbox_client_slots(c), 3);
	UNIT_EQ_U64((unsigned)pbox_client_nodes(c, 0, NULL, 0), 1);
	pbox_client_close(c);
	box_stop(b);
}

/* Boxes that do not know slots: one says so, the other takes the JOIN. */
static void
test_box_without(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 3, .no_slots = true});
	struct pbox_client *c = NULL;

	CU_ASSERT_EQUAL(open_with(&c, b, 0, 3, SLOTS), PBOX_C_VERSION);
	HAS("joining job 'job' at 127.0.0.1:");
	HAS("this box does not know slots: install the release of this worker's library there");
	box_refuse(b, PBOX_E_UNSUPPORTED, 1000, "secret");
	CU_ASSERT_EQUAL(open_with(&c, b, 0, 3, SLOTS), PBOX_C_VERSION);
	box_stop(b);
}

const struct unit_test unit_tests[] = {
	{"pushes by nodes", test_nodes},
	{"other numbers of nodes", test_invalid},
	{"push alone by plan", test_push_by_plan},
	{"configurations", test_configuration},
	{"a box without slots", test_box_without},
	{NULL, NULL},
};
