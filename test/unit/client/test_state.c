/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include <pbox_wire.h>

#include "harness.h"
#include "unit.h"

/* FETCH and GIVE (R6.13, R6.14): what the box keeps, to the worker and back: the parameters (array 0) and, of
 * momentum 1, the sum of all gradients (array 1), of which half is subtracted from the parameters in each round. */

const char unit_suite[] = "client: fetching and giving back state";

#define BIG   7000 /* several fragments */
#define SMALL 30
#define ALL   (BIG + 2 * SMALL)

static struct pbox_client_error err;
static const struct pbox_client_tensor model[] = {
	{"w", BIG, 0}, {"none", 0, 0}, {"b", SMALL, 0}, {"c", SMALL, 0}};

struct peer {
	struct box *b;
	struct pbox_client *c;
	uint8_t format;
	uint8_t wire[4 * ALL]; /* gradients, results: in the format */
	float value[ALL];      /* fp32: INIT, FETCH, GIVE */
};

/** One list of tensors that are one after the other. */
static void
lay(struct pbox_client_io *io, void *in, void *out, unsigned size)
{
	size_t at = 0;

	for (uint32_t i = 0; i < 4; i++) {
		io[i] = (struct pbox_client_io){i, in != NULL ? (uint8_t *)in + at : NULL,
			out != NULL ? (uint8_t *)out + at : NULL};
		at += model[i].elements * size;
	}
}

static int
run(struct peer *p, enum pbox_client_kind kind, uint32_t array, unsigned timeout_ms)
{
	bool fp32 = kind >= PBOX_CLIENT_INIT;
	void *at = fp32 ? (void *)p->value : (void *)p->wire;
	struct pbox_client_io io[4];

	lay(io, at, at, fp32 ? 4 : pbox_format_size(p->format));
	return pbox_client_run(p->c, 0, kind, io, 4, array, timeout_ms, &err);
}

static void
fill(struct peer *p, float v)
{
	for (uint32_t i = 0; i < ALL; i++) {
		uint16_t h = to_bf16(v);

		if (p->format == PBOX_FMT_BF16)
			memcpy(p->wire + 2 * i, &h, 2);
		else
			memcpy(p->wire + 4 * i, &v, 4);
	}
}

static void
open_peer(struct peer *p, struct box *b, uint8_t format)
{
	struct pbox_client_conf conf = harness_conf(b, 0, 1);
	const struct pbox_client_hyper h[] = {{PBOX_HYPER_LR, 0.5}, {PBOX_HYPER_MOMENTUM, 1}};
	struct pbox_client_table d = {.size = sizeof(d),
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_MOMENTUM,
		.push_format = format,
		.pull_format = format,
		.n = 4,
		.tensors = model};
	uint32_t table;

	*p = (struct peer){.b = b, .format = format};
	conf.timeout_ms = 60000;
	CU_ASSERT_EQUAL_FATAL(pbox_client_open(&p->c, &conf, &err), 0);
	CU_ASSERT_EQUAL_FATAL(pbox_client_declare(p->c, &d, 0, &table, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_set(p->c, 0, PBOX_ALL_GROUPS, 0, h, 2, &err), 0);
	for (uint32_t i = 0; i < ALL; i++)
		p->value[i] = (float)i;
	CU_ASSERT_EQUAL(run(p, PBOX_CLIENT_INIT, 0, 0), 0);
}

/** Array @p array is a + b * i, all of it. */
static void
expect(struct peer *p, uint32_t array, float a, float b)
{
	uint64_t wrong = 0;

	memset(p->value, 0xFF, sizeof(p->value));
	CU_ASSERT_EQUAL(run(p, PBOX_CLIENT_FETCH, array, 0), 0);
	for (uint32_t i = 0; i < ALL; i++)
		wrong += p->value[i] != a + b * (float)i;
	UNIT_EQ_U64(wrong, 0);
}

/** The result is a + b * i, all of it, as the format has it. */
static void
expect_wire(const struct peer *p, float a, float b)
{
	uint64_t wrong = 0;

	for (uint32_t i = 0; i < ALL; i++) {
		float v = a + b * (float)i, f;
		uint16_t h;

		memcpy(&h, p->wire + 2 * i, 2);
		memcpy(&f, p->wire + 4 * i, 4);
		wrong += p->format == PBOX_FMT_BF16 ? h != to_bf16(v) : f != v;
	}
	UNIT_EQ_U64(wrong, 0);
}

static void
give(struct peer *p, uint32_t array, float a, float b)
{
	for (uint32_t i = 0; i < ALL; i++)
		p->value[i] = a + b * (float)i;
	CU_ASSERT_EQUAL(run(p, PBOX_CLIENT_GIVE, array, 0), 0);
}

/** There and back, before the first round and between rounds. */
static void
there_and_back(const struct box_conf *conf, uint8_t format)
{
	struct box *b = box_start(conf);
	struct peer *p = malloc(sizeof(*p));

	open_peer(p, b, format);
	expect(p, 0, 0, 1);
	expect(p, 1, 0, 0);
	for (unsigned i = 0; i < 2; i++) {
		fill(p, 2);
		CU_ASSERT_EQUAL(run(p, PBOX_CLIENT_PUSHPULL, 1, 0), 0);
	}
	expect(p, 0, -3, 1); /* exact also where results are rounded */
	expect(p, 1, 4, 0);
	give(p, 1, 100, 3);
	expect(p, 1, 100, 3);
	expect(p, 0, -3, 1);
	give(p, 0, 64, 0);
	expect(p, 0, 64, 0);
	expect(p, 1, 100, 3);
	fill(p, 2);
	CU_ASSERT_EQUAL(run(p, PBOX_CLIENT_PUSHPULL, 1, 0), 0);
	expect(p, 0, 13, -1.5f);
	expect(p, 1, 102, 3);
	fill(p, 7);
	CU_ASSERT_EQUAL(run(p, PBOX_CLIENT_PULL, 0, 0), 0);
	expect_wire(p, 13, -1.5f);
	fill(p, 2);
	CU_ASSERT_EQUAL(run(p, PBOX_CLIENT_PUSHPULL, 1, 0), 0);
	expect_wire(p, -39, -3);
	UNIT_EQ_U64(box_counts(b).malformed, 0);
	pbox_client_close(p->c);
	free(p);
	box_stop(b);
}

static void
test_there_and_back(void)
{
	there_and_back(&(struct box_conf){.workers = 1}, PBOX_FMT_FP32);
	/* fragments of two pieces each; several endpoints; a small window */
	there_and_back(&(struct box_conf){.workers = 1}, PBOX_FMT_BF16);
	there_and_back(&(struct box_conf){.workers = 1, .endpoints = 3, .window = 2, .mtu = 700},
		PBOX_FMT_BF16);
}

/** An answer to an earlier request of the same piece is not taken for that of this one. */
static void
test_stale(void)
{
	there_and_back(&(struct box_conf){.workers = 1, .stale = true}, PBOX_FMT_FP32);
	there_and_back(&(struct box_conf){.workers = 1, .stale = true}, PBOX_FMT_BF16);
}

static void
test_lossy(void)
{
	for (unsigned seed = 1; seed <= 3; seed++)
		there_and_back(&(struct box_conf){.workers = 1,
				       .loss = 0.05,
				       .dup = 0.2,
				       .reorder = 0.2,
				       .seed = seed},
			seed == 2 ? PBOX_FMT_FP32 : PBOX_FMT_BF16);
}

/** A box that is restarted has the parameters again, and so has who asks on. */
static void
test_restart(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 1});
	struct peer *p = malloc(sizeof(*p));

	open_peer(p, b, PBOX_FMT_FP32);
	fill(p, 2);
	CU_ASSERT_EQUAL(run(p, PBOX_CLIENT_PUSHPULL, 1, 0), 0);
	box_restart(b);
	expect(p, 0, -1, 1);
	box_silence(b, true);
	CU_ASSERT_EQUAL(run(p, PBOX_CLIENT_FETCH, 0, 300), PBOX_C_DEADLINE);
	box_silence(b, false);
	box_restart(b);
	expect(p, 0, -1, 1); /* after the one whose time was over */
	give(p, 1, 7, 0);
	expect(p, 1, 7, 0);
	pbox_client_close(p->c);
	free(p);
	box_stop(b);
}

static void
test_refused(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 1});
	struct pbox_client_table sums = {.size = sizeof(sums),
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 4,
		.tensors = model};
	struct peer *p = malloc(sizeof(*p));
	struct pbox_client_io io[4];
	uint32_t table = 0;

	open_peer(p, b, PBOX_FMT_FP32);
	lay(io, p->value, p->value, 4);
	for (unsigned kind = PBOX_CLIENT_FETCH; kind <= PBOX_CLIENT_GIVE; kind++) {
		CU_ASSERT_EQUAL(pbox_client_run(p->c, 0, kind, io, 3, 0, 0, &err), PBOX_C_INVALID);
		HAS("of all 4 tensors");
	}
	CU_ASSERT_EQUAL(pbox_client_declare(p->c, &sums, 0, &table, &err), 0);
	CU_ASSERT_EQUAL(
		pbox_client_run(p->c, table, PBOX_CLIENT_FETCH, io, 4, 0, 0, &err), PBOX_C_INVALID);
	HAS("parameters on the box (mode 1)");
	/* an array that the optimiser has not: the box drops it */
	CU_ASSERT_EQUAL(run(p, PBOX_CLIENT_FETCH, 2, 500), PBOX_C_DEADLINE);
	HAS("fetch of tensor '");
	pbox_client_close(p->c);
	free(p);
	box_stop(b);
}

static void
test_give_is_of_worker_0(void)
{
	struct box *b = box_start(&(struct box_conf){.workers = 2});
	struct pbox_client *c[2];
	struct pbox_client_table d = {.size = sizeof(d),
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_SGD,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32};
	uint32_t table;

	for (int i = 0; i < 2; i++) {
		struct pbox_client_conf conf = harness_conf(b, i, 2);

		CU_ASSERT_EQUAL_FATAL(pbox_client_open(&c[i], &conf, &err), 0);
	}
	CU_ASSERT_EQUAL(pbox_client_declare(c[0], &d, 1, &table, &err), PBOX_C_DEADLINE);
	CU_ASSERT_EQUAL_FATAL(pbox_client_declare(c[1], &d, 0, &table, &err), 0);
	CU_ASSERT_EQUAL(
		pbox_client_run(c[1], 0, PBOX_CLIENT_GIVE, NULL, 0, 0, 0, &err), PBOX_C_INVALID);
	HAS("worker 0 alone");
	for (int i = 0; i < 2; i++)
		pbox_client_close(c[i]);
	box_stop(b);
}

const struct unit_test unit_tests[] = {
	{"there and back", test_there_and_back},
	{"answers to earlier requests", test_stale},
	{"with loss, repetition and reordering", test_lossy},
	{"over a restart of the box", test_restart},
	{"what is refused", test_refused},
	{"only worker 0 gives", test_give_is_of_worker_0},
	{NULL, NULL},
};
