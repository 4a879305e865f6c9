/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <string.h>

#include <pbox_base.h>
#include <pbox_reduce.h>

#include "unit.h"

/* pbox_sources.finite: every implementation, format, number of sources and length, checked or not. */

const char unit_suite[] = "reduce: is a sum finite?";

#define SOURCES 19
#define MOST    2300
#define HEADER  62

static const enum pbox_format formats[] = {
	PBOX_FMT_FP32, PBOX_FMT_BF16, PBOX_FMT_FP16, PBOX_FMT_INT8, PBOX_FMT_MXFP4};
static float x[MOST], dst[MOST] __attribute__((aligned(64)));
static float acc[MOST] __attribute__((aligned(64)));
static uint8_t frame[SOURCES][HEADER + MOST * 4];
static const void *src[SOURCES];

/* Source k, with `bad` as its element at; at = n: it has none. */
static void
source(unsigned k, enum pbox_format elem, size_t n, size_t at, float bad)
{
	uint8_t *payload = frame[k] + HEADER;
	size_t bytes = pbox_payload_bytes(elem, n);
	uint32_t crc;

	for (size_t i = 0; i < n; i++)
		x[i] = i == at ? bad : (float)((int)(i % 13) - 6 + (int)k);
	if (pbox_format_is_block(elem))
		pbox_reduce_scalar.encode(payload, elem, x, NULL, n);
	else
		pbox_reduce_scalar.pack(payload, elem, x, n);
	crc = pbox_reduce_crc32c(pbox_reduce_crc32c(0, payload, bytes), frame[k], HEADER - 4);
	memcpy(payload - 4, &crc, 4);
	src[k] = payload;
}

static bool
is_finite(const struct pbox_reduce_ops *ops, struct pbox_sources s, size_t n, bool checked)
{
	bool finite = true, intact = false;
	uint32_t crc;

	s.finite = &finite;
	s.intact = checked ? &intact : NULL;
	s.header = HEADER;
	s.crc_dst = checked ? &crc : NULL;
	ops->sum(dst, &s, 0, n);
	CU_ASSERT_EQUAL(intact, checked);
	return finite;
}

static void
of_one(const struct pbox_reduce_ops *ops, enum pbox_format elem, unsigned n, size_t elems)
{
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	static const float weight[SOURCES] = {
		1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1};
	struct pbox_sources s = {.src = src, .n = n, .elem = elem};

	for (unsigned k = 0; k < n; k++)
		source(k, elem, elems, elems, 0);
	for (unsigned i = 0; i < 4; i++) {
		s.weight = i / 2 != 0 ? weight : NULL;
		CU_ASSERT_TRUE(is_finite(ops, s, elems, i % 2 != 0));
	}
	for (unsigned i = 0; i < 3 * 4; i++) {
		unsigned k = i * 7 % n;
		size_t at = i < 4 ? 0 : i < 8 ? elems - 1 : elems / 2;

		source(k, elem, elems, at, bad[i % 3]);
		s.weight = i / 2 % 2 != 0 ? weight : NULL;
		CU_ASSERT_FALSE(is_finite(ops, s, elems, i % 2 != 0));
		source(k, elem, elems, elems, 0);
	}
}

static void
test_all(void)
{
	static const size_t lengths[] = {1, 7, 16, 37, 128, 352, 2240, MOST};
	const struct pbox_reduce_ops *ops;

	for (unsigned i = 0; (ops = pbox_reduce_at(i)) != NULL; i++)
		for (unsigned f = 0; ops->usable() && f < 5; f++)
			for (unsigned n = 1; n <= SOURCES; n++)
				for (unsigned l = 0; l < 8; l++)
					of_one(ops, formats[f], n, lengths[l]);
}

/* What waits for its sum; a sum that overflows; and false stays false. */
static void
test_sums(void)
{
	const float *const accs[] = {acc};
	struct pbox_sources s = {
		.src = src, .n = 8, .elem = PBOX_FMT_FP32, .base = 8, .acc = accs, .n_acc = 1};
	const struct pbox_reduce_ops *ops;

	for (unsigned i = 0; (ops = pbox_reduce_at(i)) != NULL; i++) {
		bool finite = false;

		if (!ops->usable())
			continue;
		for (unsigned k = 0; k < 8; k++)
			source(k, PBOX_FMT_FP32, 100, 100, 0);
		memset(acc, 0, sizeof(acc));
		CU_ASSERT_TRUE(is_finite(ops, s, 100, true));
		acc[99] = NAN;
		CU_ASSERT_FALSE(is_finite(ops, s, 100, true));
		CU_ASSERT_FALSE(is_finite(ops, s, 100, false));
		acc[99] = 3e38f;
		source(5, PBOX_FMT_FP32, 100, 99, 3e38f);
		CU_ASSERT_FALSE(is_finite(ops, s, 100, true));
		acc[99] = -3e38f;
		CU_ASSERT_TRUE(is_finite(ops, s, 100, true));
		s.finite = &finite;
		ops->sum(dst, &s, 0, 100);
		CU_ASSERT_FALSE(finite);
	}
}

const struct unit_test unit_tests[] = {
	{"one element of one source", test_all},
	{"sums", test_sums},
	{NULL, NULL},
};
