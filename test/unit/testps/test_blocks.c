/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What blocks.c says of rounds in formats of blocks, against workers and a box that keep a residual for each worker and fragment. In another
 * order of fragments and workers it is the same.
 */

#include <stdlib.h>
#include <string.h>

#include "eal.h"
#include "testps.h"
#include "unit.h"

const char unit_suite[] = "testps: formats of blocks";

#define WORKERS 5
#define ROUNDS  40
#define MOST    2224
#define FRAMES  23

static struct pbox_error err;
static struct data d;
static struct plan p;
static float up[WORKERS][FRAMES][MOST], down[FRAMES][MOST];
static uint8_t sent[WORKERS][MOST * 4], said[MOST * 4];

static void
begin(uint8_t format, uint32_t elements)
{
	static const char *const args[] = {"-m", "64", "--no-telemetry", "--lcores", "0@0", NULL};
	/* the last one is short */
	const struct model m = {.n = 1,
		.tensor = &(struct tensor){.elements = elements * FRAMES - 77},
		.elements = elements * FRAMES - 77};
	const struct testps_load load = {.workers = WORKERS, .push = format, .pull = format};

	unit_eal(args);
	CU_ASSERT_FATAL(plan_reflected(&p, elements, &m, &load, &err) == 0);
	CU_ASSERT_EQUAL_FATAL(p.n, FRAMES);
	CU_ASSERT_FATAL(data_make(&d, &p, &load, false, NULL, &err) == 0);
	memset(up, 0, sizeof(up));
	memset(down, 0, sizeof(down));
}

static void
end(void)
{
	data_free(&d);
	plan_free(&p);
}

/* A round of a fragment, as a box and workers that know nothing of classes have it. */
static void
really(uint32_t f, uint32_t round)
{
	static float sum[MOST];
	const void *src[WORKERS];
	struct pbox_sources s = {.src = src, .n = WORKERS, .elem = d.push};
	uint32_t n = p.f[f].elements;

	for (unsigned w = 0; w < WORKERS; w++) {
		const void *pattern = d.pattern[(data_seed(round, f) + w) % PATTERNS];

		pbox_reduce_scalar.encode(sent[w], d.push, pattern, up[w][f], n);
		src[w] = sent[w];
	}
	pbox_reduce_scalar.sum(sum, &s, 0, n);
	pbox_reduce_scalar.encode(said, d.pull, sum, down[f], n);
}

static bool
is(const struct wanted *w, const uint8_t *bytes, uint32_t f)
{
	size_t n = pbox_payload_bytes(d.push, p.f[f].elements);

	return memcmp(w->payload, bytes, n) == 0 && w->crc == pbox_crc32c(0, bytes, n);
}

static void
compare(uint8_t format, uint32_t elements)
{
	struct blocks *b;
	unsigned bad = 0;

	begin(format, elements);
	b = blocks_make(&d, &p);
	CU_ASSERT_PTR_NOT_NULL_FATAL(b);
	for (uint32_t round = p.round + 1; round <= p.round + ROUNDS; round++)
		for (uint32_t i = 0; i < FRAMES; i++) {
			uint32_t f = (i * 7 + round) % FRAMES;
			struct wanted w;

			really(f, round);
			for (unsigned k = 0; k < WORKERS; k++) {
				unsigned worker = (k * 3 + round) % WORKERS;

				blocks_payload(b, f, round, worker, &w);
				bad += !is(&w, sent[worker], f);
				blocks_payload(b, f, round, worker, &w); /* a repetition */
				bad += !is(&w, sent[worker], f);
			}
			blocks_want(b, f, round, 0, &w);
			bad += !is(&w, said, f);
			blocks_want(b, f, round, WORKERS - 1, &w);
			bad += !is(&w, said, f);
		}
	UNIT_EQ_U64(bad, 0);
	/* it sees a residual that is not carried, of one worker, and of the box */
	memset(up[3][5], 0, sizeof(up[3][5]));
	really(5, p.round + ROUNDS + 1);
	for (unsigned w = 0; w < WORKERS; w++) {
		struct wanted out;

		blocks_payload(b, 5, p.round + ROUNDS + 1, w, &out);
		CU_ASSERT_EQUAL(is(&out, sent[w], 5), w != 3);
	}
	memset(down[6], 0, sizeof(down[6]));
	really(6, p.round + ROUNDS + 1);
	for (unsigned w = 0; w < WORKERS; w++) {
		struct wanted out;

		blocks_want(b, 6, p.round + ROUNDS + 1, w, &out);
		CU_ASSERT_FALSE(is(&out, said, 6));
	}
	blocks_free(b, &p);
	end();
}

static void
test_int8(void)
{
	compare(PBOX_FMT_INT8, 352);
	compare(PBOX_FMT_INT8, 2224);
}

static void
test_mxfp4(void)
{
	compare(PBOX_FMT_MXFP4, 352);
	compare(PBOX_FMT_MXFP4, 2224);
}

const struct unit_test unit_tests[] = {
	{"int8", test_int8},
	{"mxfp4", test_mxfp4},
	{NULL, NULL},
};
