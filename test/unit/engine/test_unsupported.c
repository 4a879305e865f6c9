/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: what a later release does";

static struct fx_worker w[2];

/* R4.10, R13: refused, and the text names it and says what to do. */
static void
refused(const char *what)
{
	char want[160];

	snprintf(want, sizeof(want),
		"this box does not know %s: install the release of this worker's library there",
		what);
	UNIT_EQ_U64(fx_error(), PBOX_E_UNSUPPORTED);
	CU_ASSERT_STRING_EQUAL(fx_error_text(), want);
	fx_clear();
}

static void
join(uint8_t policy, uint32_t can, uint32_t needs)
{
	struct pbox_join m;

	w[0] = (struct fx_worker){.job = "vision",
		.workers = 1,
		.ip = 0x0A000200,
		.udp = 6000,
		.mtu = 1500,
		.nonce = 55};
	fx_hello(&w[0]);
	m = fx_join_message(&w[0]);
	m.policy = policy;
	m.can = can;
	m.needs = needs;
	fx_join_with(&w[0], &m, "key");
}

static void
test_join(void)
{
	fx_begin();
	join(PBOX_POLICY_WAIT, 0, 1u << PBOX_CAN_SLOTS | 1u << PBOX_CAN_BOXES);
	refused("boxes");
	join(PBOX_POLICY_WAIT, UINT32_MAX, 1u << PBOX_CAN_CLOCK | 1u << 8 | 1u << 31);
	refused("capability 8, capability 31");
	join(PBOX_POLICY_REASSIGN, 0, 1u << PBOX_CAN_WORK); /* and no slots */
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	join(PBOX_POLICY_REASSIGN + 1, 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	join(PBOX_POLICY_WAIT, 0, UINT32_MAX); /* more than a text has room for */
	UNIT_EQ_U64(fx_error(), PBOX_E_UNSUPPORTED);
	UNIT_EQ_U64(fx.rs[PBOX_RS_JOBS], 0);
	/* one that can do more does what this box does */
	join(PBOX_POLICY_WAIT, UINT32_MAX, 0);
	UNIT_EQ_U64(fx_error(), 0);
	UNIT_EQ_U64(fx.rs[PBOX_RS_JOBS], 1);
	fx_end();
}

static void
test_declare(void)
{
	const struct pbox_tensor_entry e = {.elements = 100, .name = "weight"};
	const struct pbox_declare good = {
		.tensors = 1, .push_format = PBOX_FMT_FP32, .pull_format = PBOX_FMT_FP32};
	struct pbox_declare d;

	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
#define WITH(field, value, what)           \
	d = good;                          \
	d.field = value;                   \
	fx_declare_list(&w[0], &d, &e, 1); \
	refused(what)
	WITH(discipline, PBOX_DISCIPLINE_TURN, "discipline turn");
	WITH(push_format, PBOX_FMT_INT4, "format int4");
	WITH(pull_format, PBOX_FMT_MXFP8, "format mxfp8");
	WITH(flags, 0x00070000, "flags 0x70000 of DECLARE");
#undef WITH
	d = good;
	d.discipline = PBOX_DISCIPLINE_TURN + 1;
	fx_declare_list(&w[0], &d, &e, 1);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	/* nothing of them was kept */
	CU_ASSERT_EQUAL(fx_declare_list(&w[0], &good, &e, 1)->hdr.type, PBOX_DECLARED);
	fx_end();
}

/* R13.6: what tables in a format of blocks cannot be, by its name. */
static void
test_blocks(void)
{
	const struct pbox_tensor_entry e = {.elements = 100, .name = "weight"};
	const struct pbox_declare good = {.tensors = 1,
		.push_format = PBOX_FMT_INT8,
		.pull_format = PBOX_FMT_INT8,
		.flags = 0x070700};
	struct pbox_declare d;

	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
#define WITH(what, ...)                                   \
	d = good;                                         \
	__VA_ARGS__;                                      \
	fx_declare_list(&w[0], &d, &e, 1);                \
	UNIT_EQ_U64(fx_error(), PBOX_E_UNSUPPORTED);      \
	CU_ASSERT(strstr(fx_error_text(), what) != NULL); \
	fx_clear()
	WITH("format int8 and another one", d.pull_format = PBOX_FMT_FP32, d.flags = 0x0700);
	WITH("format int8 and another one", d.pull_format = PBOX_FMT_MXFP4, d.flags = 0x050700);
	WITH("format mxfp4 and another one", d.push_format = PBOX_FMT_FP32,
		d.pull_format = PBOX_FMT_MXFP4, d.flags = 0x050000);
	WITH("format int8: pushes in blocks with two phases", d.mode = PBOX_MODE_OPTIMISER,
		d.optimiser = PBOX_OPT_SGD, d.pull_format = PBOX_FMT_FP32,
		d.flags = 0x0700 | PBOX_DECLARE_HOLD);
	WITH("format int8 with op weighted_mean", d.mode = PBOX_MODE_OPTIMISER,
		d.optimiser = PBOX_OPT_SGD, d.op = PBOX_OP_WEIGHTED_MEAN);
	WITH("format int8: results in blocks with two phases", d.mode = PBOX_MODE_OPTIMISER,
		d.optimiser = PBOX_OPT_SGD, d.push_format = PBOX_FMT_FP32,
		d.flags = 0x070000 | PBOX_DECLARE_HOLD);
	WITH("format int8: clocks with results in blocks", d.discipline = PBOX_DISCIPLINE_CLOCK,
		d.mode = PBOX_MODE_OPTIMISER, d.optimiser = PBOX_OPT_ADD);
	WITH("format mxfp4: clocks with results in blocks", d.discipline = PBOX_DISCIPLINE_CLOCK,
		d.mode = PBOX_MODE_OPTIMISER, d.optimiser = PBOX_OPT_ADD,
		d.push_format = PBOX_FMT_FP32, d.pull_format = PBOX_FMT_MXFP4, d.flags = 0x050000);
	WITH("format int8 with op weighted_mean", d.op = PBOX_OP_WEIGHTED_MEAN);
	WITH("flag MIXED goes with pushes", d.push_format = d.pull_format = PBOX_FMT_FP32,
		d.flags = PBOX_DECLARE_MIXED);
	WITH("flag MIXED goes with pushes", d.discipline = PBOX_DISCIPLINE_CLOCK,
		d.mode = PBOX_MODE_OPTIMISER, d.optimiser = PBOX_OPT_ADD,
		d.pull_format = PBOX_FMT_FP32, d.flags = 0x0700 | PBOX_DECLARE_MIXED);
	WITH("fmt_arg 5 and 7, but with 7 and 7", d.flags = 0x070500);
	WITH("fmt_arg 0 and 0, but with 7 and 7", d.flags = 0);
#undef WITH
	CU_ASSERT_EQUAL(fx_declare_list(&w[0], &good, &e, 1)->hdr.type, PBOX_DECLARED);
	fx_end();
}

/* R13.6 to R13.8, R14.14: by who is in the job, or where it is. */
static void
test_blocks_of_jobs(void)
{
	const struct pbox_tensor_entry e = {.elements = 100, .name = "weight"};
	const struct pbox_declare down = {.tensors = 1,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_SGD,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_INT8,
		.flags = 0x070000};
	const struct pbox_declare up = {.tensors = 1,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_ADD,
		.discipline = PBOX_DISCIPLINE_CLOCK,
		.push_format = PBOX_FMT_MXFP4,
		.pull_format = PBOX_FMT_BF16,
		.flags = 0x0500};

	struct pbox_declare nodes = down;

	nodes.push_format = PBOX_FMT_INT8;
	nodes.pull_format = PBOX_FMT_FP32;
	nodes.flags = 0x0700 | PBOX_DECLARE_MIXED;
	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	CU_ASSERT_EQUAL(fx_declare_list(&w[0], &up, &e, 1)->hdr.type, PBOX_DECLARED);
	fx_end();
	fx_begin();
	w[0] = (struct fx_worker){.job = "vision", .workers = 1, .slots = 4};
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[0]));
	fx_declare_list(&w[0], &down, &e, 1);
	UNIT_EQ_U64(fx_error(), PBOX_E_UNSUPPORTED);
	CU_ASSERT(strstr(fx_error_text(), "format int8: slots with results in blocks") != NULL);
	fx_clear();
	CU_ASSERT_EQUAL(fx_declare_list(&w[0], &nodes, &e, 1)->hdr.type, PBOX_DECLARED);
	fx_end();
}

static void
test_requests(void)
{
	const enum pbox_type request[] = {PBOX_BOXES, PBOX_STATS}; /* this one is alone */
	const enum pbox_type other[] = {PBOX_BOXES_OK, PBOX_STATS_OK};

	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	fx_clear();
	for (unsigned i = 0; i < 2; i++) {
		uint64_t dropped = fx.rs[PBOX_RS_DROP_TYPE];

		fx_control(&w[0], request[i], "12345678", 8);
		refused(pbox_type_name(request[i]));
		fx_control(&w[0], other[i], "", 0); /* an answer asks nothing */
		UNIT_EQ_U64(fx_count(PBOX_ERROR), 0);
		UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_TYPE], dropped + 2);
	}
	w[1] = w[0];
	w[1].token++; /* and nobody asks without a session */
	fx_control(&w[1], PBOX_BOXES, "", 0);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_SESSION);
	fx_end();
}

static void
test_data(void)
{
	const struct fx_table sum = {.elements = 16};
	const float v[16] = {1};
	struct pbox_hdr h;

	fx_begin();
	fx_job(w, "vision", 1, &sum);
	h = fx_data(&w[0], PBOX_PULL, 0, 0, 1);
	h.flags = PBOX_F_CUT; /* not the answer to another question */
	CU_ASSERT_FALSE(fx_rx(0, &w[0], &h, NULL));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_UNSUPPORTED);
	UNIT_EQ_U64(fx_last()->hdr.round, 1);
	h = fx_data(&w[0], PBOX_MOVED, 0, 0, 1);
	fx_mark();
	CU_ASSERT_FALSE(fx_rx(0, &w[0], &h, NULL));
	fx_only(PBOX_SS_DROP_TYPE, __FILE__, __LINE__);
	fx_clear();
	fx_pushpull(&w[0], 1, v, 16);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_RESULT);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"what a JOIN needs", test_join},
	{"tables", test_declare},
	{"tables in formats of blocks", test_blocks},
	{"tables in formats of blocks, by their job", test_blocks_of_jobs},
	{"requests", test_requests},
	{"data", test_data},
	{NULL, NULL},
};
