/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <pbox_base.h>
#include <pbox_block.h>
#include <pbox_reduce.h>

#include "unit.h"

const char unit_suite[] = "reduce: formats of blocks";

#define ELEMS   300
#define LONG    5000 /* more than a tile of the sums */
#define SOURCES 19
#define HEADER  62
#define PAGE    4096
#define MARK    0xA5
#define STRETCH (8 * PAGE)
#define SAMPLES (1 << 20)
#define ROUNDS  1000

static const enum pbox_format formats[] = {PBOX_FMT_INT8, PBOX_FMT_MXFP4};
static struct pbox_random r;

/* Memory that ends with a page which must not be touched: its last byte is `gap` before that. */
static uint8_t *
guarded(unsigned k, size_t bytes, size_t gap)
{
	static uint8_t *memory;

	if (memory == NULL) {
		memory = mmap(NULL, (SOURCES + 4) * STRETCH, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CU_ASSERT_FATAL(memory != MAP_FAILED);
		for (unsigned i = 1; i <= SOURCES + 4; i++)
			mprotect(memory + i * STRETCH - PAGE, PAGE, PROT_NONE);
	}
	CU_ASSERT_FATAL(bytes + gap + PAGE + HEADER < STRETCH);
	return memory + (k + 1) * STRETCH - PAGE - gap - bytes;
}

static float
from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static double
gauss(void)
{
	double u = 1 - pbox_random_unit(&r), v = pbox_random_unit(&r);

	return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

/* kind: 0 numbers, 1 any bits, 2 zeros and subnormal ones, 3 around the limits, 4 ties */
static float
element(unsigned kind)
{
	uint32_t x = (uint32_t)pbox_random_u64(&r);
	float sign = x & 1 ? -1.0f : 1.0f;

	switch (kind) {
	case 1:
		return from_bits(x);
	case 2:
		return x & 6 ? from_bits(x & 0x807FFFFF) : sign * 0.0f;
	case 3:
		return sign * (float)ldexp(pbox_random_unit(&r), x & 64 ? 128 : x & 128 ? -99 : 0);
	case 4:
		return sign * (float)(x >> 8 & 63) / 8;
	default:
		return x % 997 == 3 ? NAN : (float)gauss();
	}
}

static void
fill(float *p, size_t n, unsigned kind)
{
	for (size_t i = 0; i < n; i++)
		p[i] = element(kind);
}

/* One encoding, against the reference: bytes, residual, and what is after both. */
static void
check_encode(const struct pbox_reduce_ops *ops, enum pbox_format f, const float *in,
	const float *residual, size_t n, size_t gap)
{
	static float want_left[ELEMS];
	static uint8_t want[2 * ELEMS];
	size_t bytes = pbox_payload_bytes(f, n);
	float *src = (float *)(void *)guarded(0, n * 4, gap / 4 * 4);
	float *left = (float *)(void *)guarded(1, n * 4, gap / 4 * 4);
	uint8_t *got = guarded(2, bytes, gap);

	memcpy(src, in, n * 4);
	memcpy(left, residual, n * 4);
	memcpy(want_left, residual, n * 4);
	pbox_reduce_scalar.encode(want, f, in, want_left, n);
	memset(got, MARK, bytes + gap);
	ops->encode(got, f, src, left, n);
	CU_ASSERT_EQUAL(memcmp(got, want, bytes), 0);
	CU_ASSERT_EQUAL(memcmp(left, want_left, n * 4), 0);
	for (size_t i = 0; i < gap; i++)
		CU_ASSERT_EQUAL(got[bytes + i], MARK);
	pbox_reduce_scalar.encode(want, f, in, NULL, n);
	ops->encode(got, f, src, NULL, n);
	CU_ASSERT_EQUAL(memcmp(got, want, bytes), 0);
}

static void
test_every_implementation_encodes_alike(void)
{
	static float in[ELEMS], residual[ELEMS];

	pbox_random_seed(&r, 53);
	for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++) {
		if (!pbox_reduce_at(j)->usable())
			continue;
		for (size_t n = 0; n <= ELEMS; n++)
			for (unsigned k = 0; k < 10; k++) {
				fill(in, n, k % 5);
				fill(residual, n, k / 5);
				for (unsigned f = 0; f < 2; f++)
					check_encode(pbox_reduce_at(j), formats[f], in, residual, n,
						(n + 7 * k) % 64);
			}
	}
}

/* Any bytes: bits are equal, but that of two NaNs either may come out. */
static void
check_same(const float *want, const float *got, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(&want[i], &got[i], 4) != 0 && !(isnan(want[i]) && isnan(got[i]))) {
			printf("\n  element %zu of %zu is %a, not %a\n", i, n, got[i], want[i]);
			CU_FAIL("an implementation differs from the reference");
			return;
		}
}

static void
test_every_implementation_decodes_alike(void)
{
	static float want[ELEMS], got[ELEMS + 1];

	pbox_random_seed(&r, 54);
	for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++)
		for (size_t n = 0; n <= ELEMS && pbox_reduce_at(j)->usable(); n++)
			for (unsigned k = 0; k < 8; k++) {
				size_t bytes = pbox_payload_bytes(formats[k % 2], n);
				uint8_t *p = guarded(0, bytes, (n * k) % 64);

				for (size_t i = 0; i < bytes; i++)
					p[i] = (uint8_t)pbox_random_u64(&r);
				pbox_reduce_scalar.decode(want, p, formats[k % 2], n);
				got[n] = 4711;
				pbox_reduce_at(j)->decode(got, p, formats[k % 2], n);
				check_same(want, got, n);
				CU_ASSERT_EQUAL(got[n], 4711);
			}
}

struct sums {
	const void *block[SOURCES], *wide[SOURCES];
	float weight[SOURCES];
	float values[SOURCES][LONG];
};

/* Sources in a format, some of them absent, zero or without weight, and what they decode to. */
static void
make_sources(struct sums *s, enum pbox_format f, unsigned n, size_t elems, unsigned kind)
{
	static float in[LONG];
	size_t bytes = pbox_payload_bytes(f, elems);

	for (unsigned k = 0; k < n; k++) {
		unsigned what = (unsigned)pbox_random_below(&r, 12);
		uint8_t *p = guarded(k, bytes, (size_t)pbox_random_below(&r, 64));
		uint32_t crc;

		fill(in, elems, kind == 0 && what == 3 ? 4 : kind);
		pbox_reduce_scalar.encode(p, f, in, NULL, elems);
		crc = pbox_reduce_crc32c(pbox_reduce_crc32c(0, p, bytes), p - HEADER, HEADER - 4);
		memcpy(p - 4, &crc, 4);
		pbox_reduce_scalar.decode(s->values[k], p, f, elems);
		s->weight[k] = what == 2 ? 0 : (float)(1 + pbox_random_below(&r, 1000));
		s->block[k] = what == 0 ? NULL : what == 1 ? (const void *)pbox_reduce_absent : p;
		s->wide[k] = what < 2 ? s->block[k] : s->values[k];
	}
}

static void
check_sum(const struct pbox_reduce_ops *ops, const struct sums *m, enum pbox_format f, unsigned n,
	int weighted, size_t first, size_t elems)
{
	static float want[LONG] __attribute__((aligned(64))),
		got[LONG] __attribute__((aligned(64)));
	struct pbox_sources s = {.src = m->wide, .n = n, .elem = PBOX_FMT_FP32};
	bool intact = false;
	uint32_t crc;

	s.weight = weighted ? m->weight : NULL;
	pbox_reduce_scalar.sum(want, &s, first, elems);
	s.src = m->block;
	s.elem = f;
	ops->sum(got, &s, first, elems);
	check_same(want, got, elems);
	if (first != 0)
		return;
	s.intact = &intact;
	s.header = HEADER;
	s.crc_dst = &crc;
	ops->sum(got, &s, 0, elems);
	check_same(want, got, elems);
	CU_ASSERT_TRUE(intact);
	UNIT_EQ_U64(crc, pbox_reduce_crc32c(0, got, elems * 4));
	for (unsigned k = 0; k < n && elems > 0; k++) {
		uint8_t *last =
			(uint8_t *)(uintptr_t)m->block[k] + pbox_payload_bytes(f, elems) - 1;

		if (m->block[k] == NULL || m->block[k] == pbox_reduce_absent)
			continue;
		*last ^= 0x10;
		ops->sum(got, &s, 0, elems);
		CU_ASSERT_FALSE(intact);
		*last ^= 0x10;
		break;
	}
}

static void
check_sums(const struct pbox_reduce_ops *ops, unsigned n, size_t elems, unsigned kind)
{
	static struct sums m;

	for (unsigned f = 0; f < 2; f++) {
		make_sources(&m, formats[f], n, elems, kind);
		for (int weighted = 0; weighted < 2; weighted++) {
			check_sum(ops, &m, formats[f], n, weighted, 0, elems);
			for (size_t first = PBOX_UNIT; first < elems; first *= 3)
				check_sum(ops, &m, formats[f], n, weighted, first, elems - first);
		}
	}
}

/* Some of the sources are fp32 themselves. */
static void
check_mixed(const struct pbox_reduce_ops *ops, enum pbox_format f, unsigned n, size_t elems)
{
	static float want[LONG] __attribute__((aligned(64))),
		got[LONG] __attribute__((aligned(64)));
	static struct sums m;
	static uint8_t frame[SOURCES][HEADER + LONG * sizeof(float)];
	struct pbox_sources s = {.src = m.wide, .n = n, .elem = PBOX_FMT_FP32};
	bool wide[SOURCES], intact = false, finite = true, all = true;
	size_t bytes = elems * sizeof(float);

	make_sources(&m, f, n, elems, 0);
	pbox_reduce_scalar.sum(want, &s, 0, elems);
	for (unsigned k = 0; k < n; k++) {
		uint8_t *p = frame[k] + HEADER;
		uint32_t crc;

		wide[k] = pbox_random_below(&r, 3) == 0 && m.block[k] != NULL &&
			  m.block[k] != pbox_reduce_absent;
		if (!wide[k])
			continue;
		memcpy(p, m.values[k], bytes);
		crc = pbox_reduce_crc32c(pbox_reduce_crc32c(0, p, bytes), p - HEADER, HEADER - 4);
		memcpy(p - 4, &crc, 4);
		m.block[k] = p;
	}
	s.src = m.block;
	s.elem = f;
	s.wide = wide;
	ops->sum(got, &s, 0, elems);
	check_same(want, got, elems);
	for (size_t first = PBOX_UNIT; first < elems; first *= 3) {
		ops->sum(got, &s, first, elems - first);
		check_same(want + first, got, elems - first);
	}
	s.intact = &intact;
	s.finite = &finite;
	s.header = HEADER;
	ops->sum(got, &s, 0, elems);
	check_same(want, got, elems);
	CU_ASSERT_TRUE(intact);
	for (size_t i = 0; i < elems; i++)
		all &= isfinite(want[i]) != 0;
	CU_ASSERT_EQUAL(finite, all);
	for (unsigned k = 0; k < n && elems > 0; k++)
		if (wide[k]) {
			frame[k][HEADER + bytes - 1] ^= 0x10;
			ops->sum(got, &s, 0, elems);
			CU_ASSERT_FALSE(intact);
			frame[k][HEADER + bytes - 1] ^= 0x10;
		}
}

static void
test_sums_of_both(void)
{
	pbox_random_seed(&r, 56);
	for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++)
		for (unsigned k = 0; k < 600 && pbox_reduce_at(j)->usable(); k++)
			check_mixed(pbox_reduce_at(j), formats[k % 2], 1 + k % SOURCES,
				k < 20 ? LONG - k : k);
}

static void
test_sums_are_those_of_what_was_decoded(void)
{
	pbox_random_seed(&r, 55);
	for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++) {
		if (!pbox_reduce_at(j)->usable())
			continue;
		for (size_t elems = 0; elems <= ELEMS; elems++)
			check_sums(pbox_reduce_at(j), 1 + (unsigned)elems % SOURCES, elems,
				(unsigned)elems % 3);
		for (unsigned n = 1; n <= SOURCES; n++)
			check_sums(pbox_reduce_at(j), n, LONG - n, 0);
	}
}

static void
test_nothing_changes_what_an_absent_slot_is_beside(void)
{
	for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++)
		for (unsigned f = 0; f < 2 && pbox_reduce_at(j)->usable(); f++) {
			const float minus[3] = {-0.0f, -0.0f, -0.0f}, scale = -1.0f;
			float got[3];
			uint8_t p[7] = {0};
			const void *src[] = {pbox_reduce_absent, p, pbox_reduce_absent};
			struct pbox_sources s = {.src = src, .n = 3, .elem = formats[f]};

			if (formats[f] == PBOX_FMT_INT8)
				memcpy(p, &scale, 4);
			else
				p[4] = 0x88, p[5] = 0x08;
			pbox_reduce_at(j)->sum(got, &s, 0, 3);
			CU_ASSERT_EQUAL(memcmp(got, minus, sizeof(got)), 0);
		}
}

/* OCP Microscaling Formats (MX) 1.0: E2M1 has these values, E8M0 the powers of two from 2^-127 to 2^127 and a NaN. */
static void
test_mx_is_the_table_of_ocp(void)
{
	static const float values[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
	static const float from[] = {.25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 5.5f, 6.5f, 7.9f};
	static const uint8_t to[] = {0, 2, 2, 4, 4, 6, 6, 7, 7, 7};
	uint8_t p[20] = {0};
	float x[32] = {4};

	for (unsigned e = 0; e < 255; e++)
		for (unsigned c = 0; c < 16; c++) {
			p[0] = (uint8_t)e;
			p[4] = (uint8_t)c;
			pbox_reduce_scalar.decode(x, p, PBOX_FMT_MXFP4, 1);
			CU_ASSERT_EQUAL(fabsf(x[0]), (float)ldexp(values[c & 7], (int)e - 127));
			CU_ASSERT_EQUAL(signbit(x[0]) != 0, c >> 3);
		}
	p[0] = 255;
	pbox_reduce_scalar.decode(x, p, PBOX_FMT_MXFP4, 1);
	CU_ASSERT(isnan(x[0]));
	memset(x, 0, sizeof(x));
	x[0] = 4; /* so the scale is 1 */
	for (unsigned i = 0; i < 10; i++) {
		x[1] = from[i];
		x[2] = -from[i];
		pbox_reduce_scalar.encode(p, PBOX_FMT_MXFP4, x, NULL, 32);
		UNIT_EQ_U64(p[0], 127);
		UNIT_EQ_U64(p[4] >> 4, to[i]);
		UNIT_EQ_U64(p[5] & 15, to[i] | 8);
	}
}

static void
test_a_block_that_is_not_finite_keeps_its_residual(void)
{
	static const float bad[] = {NAN, INFINITY, -INFINITY, 0x1p127f};

	for (unsigned f = 0; f < 2; f++)
		for (unsigned k = 0; k < 4; k++) {
			float x[129], residual[129], y[129];
			uint8_t p[256];

			for (unsigned i = 0; i < 129; i++)
				x[i] = 1.0f + (float)i, residual[i] = 0.25f;
			x[40] = bad[k];
			pbox_reduce_scalar.encode(p, formats[f], x, residual, 129);
			pbox_reduce_scalar.decode(y, p, formats[f], 129);
			CU_ASSERT(isnan(y[40]) && isnan(y[63]) && residual[40] == 0.25f);
			CU_ASSERT_EQUAL(isnan(y[0]) != 0, formats[f] == PBOX_FMT_INT8);
			CU_ASSERT(!isnan(y[128]) && residual[128] == 129.25f - y[128]);
		}
}

static double
draw(unsigned law)
{
	double a = gauss(), u = pbox_random_unit(&r) - 0.5, chi = 0;

	if (law == 0)
		return a;
	if (law == 1)
		return copysign(log(1 - 2 * fabs(u)), u);
	for (unsigned i = 0; i < 3; i++) {
		double b = gauss();

		chi += b * b;
	}
	return a / sqrt(chi / 3);
}

static void
test_the_error_is_that_of_the_format(void)
{
	static const double want[2][3] = {{4.2e-5, 8.0e-5, 1.9e-4}, {.0132, .0161, .0206}};
	const struct pbox_reduce_ops *ops = pbox_reduce_select(NULL);
	float *x = malloc(SAMPLES * 4), *y = malloc(SAMPLES * 4);
	uint8_t *p = malloc(2 * SAMPLES);

	pbox_random_seed(&r, 56);
	for (unsigned law = 0; law < 3; law++) {
		for (size_t i = 0; i < SAMPLES; i++)
			x[i] = (float)draw(law);
		for (unsigned f = 0; f < 2; f++) {
			double error = 0, power = 0, ratio;

			ops->encode(p, formats[f], x, NULL, SAMPLES);
			ops->decode(y, p, formats[f], SAMPLES);
			for (size_t i = 0; i < SAMPLES; i++) {
				error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
				power += (double)x[i] * x[i];
			}
			ratio = error / power / want[f][law];
			if (fabs(ratio - 1) > (law == 2 ? .2 : .05)) {
				printf("\n  format %u, law %u: NMSE %g\n", formats[f], law,
					error / power);
				CU_FAIL("NMSE");
			}
		}
	}
	free(x);
	free(y);
	free(p);
}

/* What was said of an element is what was pushed of it, within a step, however small it is beside the others. */
static void
test_nothing_is_lost_over_many_rounds(void)
{
	const struct pbox_reduce_ops *ops = pbox_reduce_select(NULL);

	for (unsigned f = 0; f < 2; f++) {
		float x[ELEMS], y[ELEMS], residual[ELEMS] = {0};
		double pushed[ELEMS] = {0}, got[ELEMS] = {0};
		/* of E2M1's largest values, at the scale of 1, and what a residual may add to it */
		double step = formats[f] == PBOX_FMT_INT8 ? 1.5 / 127 : 0.5;
		uint8_t p[2 * ELEMS];

		for (unsigned round = 0; round < ROUNDS; round++) {
			for (unsigned i = 0; i < ELEMS; i++) {
				x[i] = i % 32 == 0 ? 1 : (float)(i % 7) * 0.01f / 6;
				pushed[i] += x[i];
			}
			ops->encode(p, formats[f], x, residual, ELEMS);
			ops->decode(y, p, formats[f], ELEMS);
			for (unsigned i = 0; i < ELEMS; i++)
				got[i] += y[i];
		}
		for (unsigned i = 0; i < ELEMS; i++)
			CU_ASSERT(fabs(pushed[i] - got[i]) <= step);
	}
}

static void
test_bytes(void)
{
	UNIT_EQ_U64(pbox_payload_bytes(PBOX_FMT_INT8, 0), 0);
	UNIT_EQ_U64(pbox_payload_bytes(PBOX_FMT_INT8, 1), 5);
	UNIT_EQ_U64(pbox_payload_bytes(PBOX_FMT_INT8, 2224), 2224 + 18 * 4);
	UNIT_EQ_U64(pbox_payload_bytes(PBOX_FMT_MXFP4, 1), 5);
	UNIT_EQ_U64(pbox_payload_bytes(PBOX_FMT_MXFP4, 129), 65 + 8);
	UNIT_EQ_U64(pbox_payload_bytes(PBOX_FMT_MXFP4, 2224), 1112 + 18 * 4);
}

const struct unit_test unit_tests[] = {
	{"bytes", test_bytes},
	{"MX is the table of OCP", test_mx_is_the_table_of_ocp},
	{"every implementation encodes alike", test_every_implementation_encodes_alike},
	{"every implementation decodes alike", test_every_implementation_decodes_alike},
	{"sums of sources in both formats", test_sums_of_both},
	{"sums are those of what was decoded", test_sums_are_those_of_what_was_decoded},
	{"an absent slot changes nothing", test_nothing_changes_what_an_absent_slot_is_beside},
	{"a block that is not finite keeps its residual",
		test_a_block_that_is_not_finite_keeps_its_residual},
	{"the error is that of the format", test_the_error_is_that_of_the_format},
	{"nothing is lost over many rounds", test_nothing_is_lost_over_many_rounds},
	{NULL, NULL},
};
