/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The reference of the formats of blocks: every other implementation is held to its bits. */

#include <math.h>
#include <stdbool.h>

#include <pbox_base.h>

#include "pbox_block.h"

static const float e2m1[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f,
	-1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

static float
element_of(const uint8_t *src, enum pbox_format format, size_t i)
{
	const uint8_t *unit = pbox_block_unit(src, format, i);
	const uint8_t *codes = unit + PBOX_UNIT_SCALES;

	i %= PBOX_UNIT;
	if (format == PBOX_FMT_INT8)
		return pbox_block_int8_scale(unit) * (float)(int8_t)codes[i];
	return pbox_block_mx_scale(unit[i / PBOX_MX_BLOCK]) * e2m1[codes[i / 2] >> i % 2 * 4 & 15];
}

void
pbox_block_take(float *dst, const uint8_t *src, enum pbox_format format, const float *weight,
	size_t first, size_t elems)
{
	for (size_t i = 0; i < elems; i++) {
		float x = element_of(src, format, first + i);

		dst[i] = weight != NULL ? *weight * x : x;
	}
}

void
pbox_block_decode(float *dst, const void *src, enum pbox_format format, size_t elems)
{
	pbox_block_take(dst, src, format, NULL, 0, elems);
}

bool
pbox_block_is_finite(const void *payload, enum pbox_format format, size_t elems)
{
	bool finite = true;

	for (size_t i = 0; i < elems; i += PBOX_UNIT) {
		const uint8_t *unit = pbox_block_unit(payload, format, i);

		if (format == PBOX_FMT_INT8)
			finite &= !isnan(pbox_block_int8_scale(unit));
		for (unsigned b = 0; format != PBOX_FMT_INT8 && b < PBOX_UNIT_SCALES; b++)
			finite &= unit[b] != 255;
	}
	return finite;
}

/* The bits of the largest magnitude: a NaN's are above infinity's. */
static uint32_t
largest_of(const float *u, size_t n)
{
	uint32_t largest = 0, bits;

	for (size_t i = 0; i < n; i++) {
		memcpy(&bits, &u[i], sizeof(bits));
		bits &= INT32_MAX;
		largest = bits > largest ? bits : largest;
	}
	return largest;
}

/* Whether the unit is finite. n: to PBOX_UNIT */
static bool
encode_int8(uint8_t *unit, const float *u, size_t n)
{
	uint32_t largest = largest_of(u, n);
	bool finite = largest < PBOX_BLOCK_HUGE;
	float max, scale = 0, by = 0;

	memcpy(&max, &largest, sizeof(max));
	if (!finite)
		scale = NAN;
	else if (largest >= PBOX_INT8_TINY)
		scale = max / 127.0f, by = 127.0f / max;
	memcpy(unit, &scale, sizeof(scale));
	for (size_t i = 0; i < n; i++)
		unit[PBOX_UNIT_SCALES + i] = finite ? (uint8_t)(int8_t)rintf(u[i] * by) : 0;
	return finite;
}

/* Nearest, ties to even, |x| at most 8. Neighbouring values are 0.5 apart up to 2, 1 up to 4, 2 up to 8, and a code is
 * even where its value's fraction is. */
static uint8_t
e2m1_code_of(float x)
{
	float m = fabsf(x);
	int code = m < 2 ? (int)rintf(2 * m) : m < 4 ? (int)rintf(m) + 2 : (int)rintf(m / 2) + 4;

	return (uint8_t)((code < 7 ? code : 7) | (signbit(x) ? 8 : 0));
}

/* n: to PBOX_MX_BLOCK. `codes` has room for whole bytes; the upper half of the last is 0 where n is odd. */
static bool
encode_mx(uint8_t *scale, uint8_t *codes, const float *u, size_t n)
{
	uint32_t inverse;
	float by;

	*scale = pbox_block_mx_byte(largest_of(u, n));
	inverse = (254u - *scale) << 23;
	memcpy(&by, &inverse, sizeof(by));
	memset(codes, 0, (n + 1) / 2);
	for (size_t i = 0; i < n && *scale != 255; i++)
		codes[i / 2] |= (uint8_t)(e2m1_code_of(u[i] * by) << i % 2 * 4);
	return *scale != 255;
}

static void
keep_residual(float *residual, const uint8_t *unit, enum pbox_format format, const float *u,
	size_t from, size_t n)
{
	for (size_t i = from; i < from + n; i++)
		residual[i] = u[i] - element_of(unit, format, i);
}

static void
encode_unit(uint8_t *unit, enum pbox_format format, const float *src, float *residual, size_t n)
{
	size_t block = format == PBOX_FMT_INT8 ? PBOX_UNIT : PBOX_MX_BLOCK;
	float u[PBOX_UNIT];

	for (size_t i = 0; i < n; i++)
		u[i] = residual != NULL ? src[i] + residual[i] : src[i];
	memset(unit, 0, PBOX_UNIT_SCALES); /* those of blocks that are not there stay so */
	for (size_t i = 0; i < n; i += block) {
		size_t here = n - i < block ? n - i : block;
		bool finite = format == PBOX_FMT_INT8
				      ? encode_int8(unit, u, here)
				      : encode_mx(unit + i / PBOX_MX_BLOCK,
						unit + PBOX_UNIT_SCALES + i / 2, u + i, here);

		if (residual != NULL && finite)
			keep_residual(residual, unit, format, u, i, here);
	}
}

void
pbox_block_encode(
	void *dst, enum pbox_format format, const float *src, float *residual, size_t elems)
{
	uint8_t *out = dst;

	PBOX_ASSERT(format == PBOX_FMT_INT8 || format == PBOX_FMT_MXFP4);
	for (size_t i = 0; i < elems; i += PBOX_UNIT)
		encode_unit(out + pbox_payload_bytes(format, i), format, src + i,
			residual == NULL ? NULL : residual + i,
			elems - i < PBOX_UNIT ? elems - i : PBOX_UNIT);
}
