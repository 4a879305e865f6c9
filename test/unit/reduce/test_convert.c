/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_base.h>
#include <pbox_reduce.h>

#include "unit.h"

const char unit_suite[] = "reduce: conversions and scale";

#define HALVES 65536

static uint32_t
bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
}

static float
from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

/* The value of a half by the definition of the format: sign, exponent, fraction. */
static double
half_value(uint16_t h, enum pbox_format elem)
{
	int fraction_bits = elem == PBOX_FMT_BF16 ? 7 : 10;
	int exponent = (h & 0x7FFF) >> fraction_bits;
	int all = (1 << (15 - fraction_bits)) - 1, bias = all / 2;
	int fraction = h & ((1 << fraction_bits) - 1);
	double v;

	if (exponent == all)
		v = fraction ? NAN : INFINITY;
	else if (exponent == 0)
		v = ldexp(fraction, 1 - bias - fraction_bits);
	else
		v = ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
	return h & 0x8000 ? -v : v;
}

static void
test_unpack_is_the_definition_of_the_formats(void)
{
	for (enum pbox_format e = PBOX_FMT_BF16; e <= PBOX_FMT_FP16; e++) {
		unsigned wrong = 0;

		for (unsigned h = 0; h < HALVES; h++) {
			uint16_t in = (uint16_t)h, back;
			double v = half_value(in, e);
			float f;

			pbox_reduce_scalar.unpack(&f, &in, e, 1);
			if (isnan(v)) {
				wrong += !isnan(f);
				continue;
			}
			pbox_reduce_scalar.pack(&back, e, &f, 1);
			wrong += (double)f != v || !signbit(f) != !signbit(v) || back != in;
		}
		UNIT_EQ_U64(wrong, 0);
	}
}

static void
test_nan_becomes_what_pytorch_makes_of_it(void)
{
	static const uint32_t nans[] = {0x7F800001, 0xFF800001, 0x7FC00000, 0xFFC00000, 0x7FFFFFFF,
		0xFFFFFFFF, 0x7F802000, 0xFFABCDEF};
	uint16_t h, signalling = 0x7C01;
	float f;

	for (unsigned i = 0; i < sizeof(nans) / sizeof(nans[0]); i++) {
		f = from_bits(nans[i]);
		pbox_reduce_scalar.pack(&h, PBOX_FMT_BF16, &f, 1);
		UNIT_EQ_U64(h, 0x7FC0);
		pbox_reduce_scalar.pack(&h, PBOX_FMT_FP16, &f, 1);
		UNIT_EQ_U64(h, nans[i] >> 31 ? 0xFE00 : 0x7E00);
	}
	pbox_reduce_scalar.unpack(&f, &signalling, PBOX_FMT_FP16, 1);
	UNIT_EQ_U64(bits(f), 0x7FC02000);
	signalling = 0xFF81; /* bf16: the bits are only moved */
	pbox_reduce_scalar.unpack(&f, &signalling, PBOX_FMT_BF16, 1);
	UNIT_EQ_U64(bits(f), 0xFF810000);
}

/* All upper halves with lower halves at and around every rounding boundary of both formats. */
static size_t
patterns(float **out)
{
	static const uint16_t low[] = {0, 1, 2, 0x0FFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x2FFF,
		0x3000, 0x3001, 0x5000, 0x7FFF, 0x8000, 0x8001, 0xF000, 0xEFFF, 0xFFFF};
	size_t lows = sizeof(low) / sizeof(low[0]), n = 0;
	struct pbox_random r;

	pbox_random_seed(&r, 7);
	*out = malloc(HALVES * (lows + 14) * sizeof(float));
	CU_ASSERT_PTR_NOT_NULL_FATAL(*out);
	for (uint32_t h = 0; h < HALVES; h++) {
		for (size_t i = 0; i < lows; i++)
			(*out)[n++] = from_bits(h << 16 | low[i]);
		for (unsigned i = 0; i < 14; i++)
			(*out)[n++] = from_bits(h << 16 | (pbox_random_u64(&r) & 0xFFFF));
	}
	return n;
}

/* Nearest, ties to even, worked out in binary64 with rint(). */
static double
rounded(float f, enum pbox_format elem)
{
	int fraction_bits = elem == PBOX_FMT_BF16 ? 7 : 10,
	    least = elem == PBOX_FMT_BF16 ? -126 : -14, exponent;
	double quantum, v;

	if (f == 0 || isinf(f))
		return f;
	frexp(f, &exponent);
	exponent = exponent - 1 < least ? least : exponent - 1;
	quantum = ldexp(1.0, exponent - fraction_bits);
	v = rint(f / quantum) * quantum;
	if (fabs(v) >= ldexp(1.0, elem == PBOX_FMT_BF16 ? 128 : 16))
		v = copysign(INFINITY, v);
	return v;
}

static void
test_pack_rounds_to_nearest_even(void)
{
	float *f;
	size_t n = patterns(&f);

	for (enum pbox_format e = PBOX_FMT_BF16; e <= PBOX_FMT_FP16; e++) {
		unsigned wrong = 0;

		for (size_t i = 0; i < n; i++) {
			uint16_t h;
			double v;

			if (isnan(f[i]))
				continue;
			pbox_reduce_scalar.pack(&h, e, &f[i], 1);
			v = half_value(h, e);
			wrong += v != rounded(f[i], e) || h >> 15 != bits(f[i]) >> 31;
		}
		UNIT_EQ_U64(wrong, 0);
	}
	free(f);
}

static void
test_every_implementation_converts_alike(void)
{
	float *f;
	size_t n = patterns(&f);
	uint16_t *want = malloc(n * 2), *got = malloc(n * 2), *halves = malloc(HALVES * 2);
	float *wide_want = malloc(HALVES * 4), *wide_got = malloc(HALVES * 4);

	for (unsigned h = 0; h < HALVES; h++)
		halves[h] = (uint16_t)h;
	for (unsigned i = 1; pbox_reduce_at(i) != NULL; i++) {
		const struct pbox_reduce_ops *ops = pbox_reduce_at(i);

		if (!ops->usable())
			continue;
		for (enum pbox_format e = PBOX_FMT_BF16; e <= PBOX_FMT_FP16; e++) {
			pbox_reduce_scalar.pack(want, e, f, n);
			ops->pack(got, e, f, n);
			CU_ASSERT_EQUAL(memcmp(want, got, n * 2), 0);
			pbox_reduce_scalar.unpack(wide_want, halves, e, HALVES);
			ops->unpack(wide_got, halves, e, HALVES);
			CU_ASSERT_EQUAL(memcmp(wide_want, wide_got, HALVES * 4), 0);
		}
	}
	free(f);
	free(want);
	free(got);
	free(halves);
	free(wide_want);
	free(wide_got);
}

/* Any length, any alignment of the packed side, nothing written beyond the end. */
static void
check_lengths(const struct pbox_reduce_ops *ops, enum pbox_format e, const float *f)
{
	static uint8_t want[2048], got[2048];
	size_t size = pbox_format_size(e);

	for (size_t n = 0; n <= 257; n++) {
		size_t at = n * 7 % 64;
		static float wide[320] __attribute__((aligned(64)));

		memset(want, 0xA5, sizeof(want));
		memset(got, 0xA5, sizeof(got));
		pbox_reduce_scalar.pack(want + at, e, f, n);
		ops->pack(got + at, e, f, n);
		CU_ASSERT_EQUAL(memcmp(want, got, sizeof(want)), 0);
		for (unsigned i = 0; i < 320; i++)
			wide[i] = -77.0f;
		ops->unpack(wide, got + at, e, n);
		pbox_reduce_scalar.pack(want + at, e, wide, n);
		CU_ASSERT_EQUAL(memcmp(want + at, got + at, n * size), 0);
		CU_ASSERT_EQUAL(wide[n], -77.0f);
	}
}

static void
test_conversion_of_every_length(void)
{
	static float f[512] __attribute__((aligned(64)));
	struct pbox_random r;

	pbox_random_seed(&r, 9);
	for (unsigned i = 0; i < 512; i++)
		f[i] = (float)(pbox_random_unit(&r) * 200 - 100);
	for (unsigned i = 0; pbox_reduce_at(i) != NULL; i++)
		for (enum pbox_format e = PBOX_FMT_FP32; e <= PBOX_FMT_FP16; e++)
			if (pbox_reduce_at(i)->usable())
				check_lengths(pbox_reduce_at(i), e, f);
}

static void
test_scale_multiplies_and_clamps(void)
{
	float x[] = {1, -3, 100, -100, NAN, INFINITY, -INFINITY, -0.0f, 0x1p-149f};
	static const float want[] = {0.5f, -1.5f, 2, -2, NAN, 2, -2, -0.0f, 0};
	float y[] = {8, -8, INFINITY, NAN};

	pbox_reduce_scalar.scale(x, 0.5f, 2.0f, 9);
	for (unsigned i = 0; i < 9; i++)
		CU_ASSERT(isnan(want[i]) ? isnan(x[i]) : bits(x[i]) == bits(want[i]));
	pbox_reduce_scalar.scale(y, 0.25f, 0.0f, 4);
	CU_ASSERT(y[0] == 2 && y[1] == -2 && isinf(y[2]) && isnan(y[3]));
}

static void
test_every_implementation_scales_alike(void)
{
	static float want[320] __attribute__((aligned(64))), got[320] __attribute__((aligned(64)));
	struct pbox_random r;

	pbox_random_seed(&r, 11);
	for (unsigned i = 1; pbox_reduce_at(i) != NULL; i++) {
		const struct pbox_reduce_ops *ops = pbox_reduce_at(i);

		for (size_t n = 0; ops->usable() && n <= 257; n++) {
			float clip = n % 3 ? from_bits((uint32_t)(n % 3) << 29) : 0.0f;

			for (unsigned j = 0; j < 320; j++)
				want[j] = from_bits((uint32_t)pbox_random_u64(&r));
			memcpy(got, want, sizeof(got));
			pbox_reduce_scalar.scale(want, 0.37f, clip, n);
			ops->scale(got, 0.37f, clip, n);
			CU_ASSERT_EQUAL(memcmp(want, got, sizeof(want)), 0);
		}
	}
}

/* Any length and alignment, and what one call returns the next goes on with. */
static void
test_every_implementation_has_one_crc(void)
{
	static uint8_t bytes[5000];
	struct pbox_random r;

	pbox_random_seed(&r, 13);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)pbox_random_u64(&r);
	for (unsigned i = 0; pbox_reduce_at(i) != NULL; i++) {
		const struct pbox_reduce_ops *ops = pbox_reduce_at(i);
		uint32_t crc = 0;

		if (!ops->usable())
			continue;
		UNIT_EQ_U64(ops->crc32c(0, "123456789", 9), 0xE3069283);
		for (size_t n = 0; n <= 4800; n += n < 1100 ? 1 : 37) {
			uint32_t want = pbox_reduce_crc32c(crc, bytes + n % 64, n);

			crc = ops->crc32c(crc, bytes + n % 64, n);
			UNIT_EQ_U64(crc, want);
		}
	}
}

const struct unit_test unit_tests[] = {
	{"every implementation has one CRC", test_every_implementation_has_one_crc},
	{"unpack is the definition of the formats", test_unpack_is_the_definition_of_the_formats},
	{"NaN becomes what PyTorch makes of it", test_nan_becomes_what_pytorch_makes_of_it},
	{"pack rounds to nearest even", test_pack_rounds_to_nearest_even},
	{"every implementation converts alike", test_every_implementation_converts_alike},
	{"conversion of every length and alignment", test_conversion_of_every_length},
	{"scale multiplies and clamps", test_scale_multiplies_and_clamps},
	{"every implementation scales alike", test_every_implementation_scales_alike},
	{NULL, NULL},
};
