/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_base.h>
#include <pbox_reduce.h>

#include "unit.h"

const char unit_suite[] = "reduce: pushes, one after the other";

#define SOURCES 20
#define ELEMS   4700
#define HEADER  62
#define MARK    1234.5f

static struct pbox_random r;
static uint8_t memory[SOURCES][HEADER + 64 + ELEMS * sizeof(float)];
static float unpacked[SOURCES][ELEMS]; /* what the payloads say */
static float weight[SOURCES], acc[ELEMS], want[ELEMS], got[ELEMS + 16];
static const void *src[SOURCES];
static const float *const before[] = {acc};

/* Some of any bits at all; the others are sums that round and cancel. */
static float
number(bool wild)
{
	uint32_t u = (uint32_t)pbox_random_u64(&r);
	float x;

	if (!wild)
		u = (u & 0x807FFFFF) | (uint32_t)(110 + pbox_random_below(&r, 20)) << 23;
	memcpy(&x, &u, sizeof(x));
	return x;
}

/* A frame at some alignment, or (flag ZERO) none. */
static void
frame(unsigned k, enum pbox_format elem, size_t n, bool wild)
{
	uint8_t *p = memory[k] + HEADER + pbox_random_below(&r, 64);
	size_t bytes = pbox_payload_bytes(elem, n);
	uint32_t crc;

	for (size_t i = 0; i < n; i++)
		unpacked[k][i] = number(wild);
	if (elem >= PBOX_FMT_INT8)
		pbox_reduce_scalar.encode(p, elem, unpacked[k], NULL, n);
	else
		pbox_reduce_scalar.pack(p, elem, unpacked[k], n);
	if (elem >= PBOX_FMT_INT8)
		pbox_reduce_scalar.decode(unpacked[k], p, elem, n);
	else
		pbox_reduce_scalar.unpack(unpacked[k], p, elem, n);
	for (int i = 1; i <= HEADER; i++)
		p[-i] = (uint8_t)pbox_random_u64(&r);
	crc = pbox_reduce_crc32c(pbox_reduce_crc32c(0, p, bytes), p - HEADER, HEADER - 4);
	memcpy(p - 4, &crc, 4);
	src[k] = pbox_random_below(&r, 8) == 0 ? NULL : p;
	weight[k] = pbox_random_below(&r, 4) == 0 ? 1.0f : number(wild);
}

/* R14.4: each product and each sum is rounded once. */
static float
one_element(const struct pbox_sources *s, size_t i)
{
	volatile float sum = acc[i], product;

	for (unsigned k = 0; k < s->n; k++) {
		float x = src[k] != NULL ? unpacked[k][i] : 0.0f;

		product = weight[k] * x;
		sum = sum + product;
	}
	return sum;
}

static void
compare(const char *name, const struct pbox_sources *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(&got[i], &want[i], sizeof(*got)) != 0 &&
			!(isnan(got[i]) && isnan(want[i]))) {
			printf("\n  %s: n=%u format=%d, element %zu of %zu is %a, not %a\n", name,
				s->n, s->elem, i, n, (double)got[i], (double)want[i]);
			CU_FAIL("an implementation differs from the rule");
			return;
		}
	CU_ASSERT_EQUAL(got[n], MARK);
}

static void
check(const struct pbox_reduce_ops *ops, struct pbox_sources *s, size_t n)
{
	const float *const itself[] = {got};
	struct pbox_sources in_place = *s;
	uint8_t *p = (uint8_t *)(uintptr_t)src[pbox_random_below(&r, s->n)];
	size_t bytes = pbox_payload_bytes(s->elem, n), bit;
	bool intact = false;

	got[n] = MARK;
	ops->add(got, s, n);
	compare(ops->name, s, n);
	memcpy(got, acc, n * sizeof(*got));
	in_place.acc = itself;
	ops->add(got, &in_place, n);
	compare(ops->name, s, n);

	s->intact = &intact;
	s->header = HEADER;
	memset(got, 0, n * sizeof(*got));
	ops->add(got, s, n);
	compare(ops->name, s, n);
	CU_ASSERT_TRUE(intact);
	if (p != NULL) { /* any bit of a header or payload */
		bit = pbox_random_below(&r, 8 * (HEADER + bytes));
		p += (ptrdiff_t)(bit / 8) - HEADER;
		*p ^= (uint8_t)(1 << bit % 8);
		ops->add(got, s, n);
		CU_ASSERT_FALSE(intact);
		*p ^= (uint8_t)(1 << bit % 8);
	}
	s->intact = NULL;
}

static void
test_all_alike(void)
{
	static const enum pbox_format formats[] = {
		PBOX_FMT_FP32, PBOX_FMT_BF16, PBOX_FMT_FP16, PBOX_FMT_INT8, PBOX_FMT_MXFP4};
	static const size_t lengths[] = {
		1, 7, 16, 31, 32, 63, 64, 65, 96, 129, 352, 2224, 4448, 4690};

	pbox_random_seed(&r, 14);
	for (unsigned i = 0; i < 2500; i++) {
		size_t n = i % 10 == 0 ? lengths[pbox_random_below(&r, 14)]
				       : 1 + pbox_random_below(&r, 300);
		struct pbox_sources s = {.src = src,
			.weight = weight,
			.n = 1 + (unsigned)pbox_random_below(&r, i % 3 == 0 ? SOURCES : 9),
			.elem = formats[pbox_random_below(&r, 5)],
			.acc = before,
			.n_acc = 1};

		for (size_t e = 0; e < n; e++)
			acc[e] = number(i % 5 == 0);
		for (unsigned k = 0; k < s.n; k++)
			frame(k, s.elem, n, i % 5 == 0);
		for (size_t e = 0; e < n; e++)
			want[e] = one_element(&s, e);
		for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++)
			if (pbox_reduce_at(j)->usable())
				check(pbox_reduce_at(j), &s, n);
	}
}

const struct unit_test unit_tests[] = {
	{"all implementations have the bits of R14.4, and see damage", test_all_alike},
	{NULL, NULL},
};
