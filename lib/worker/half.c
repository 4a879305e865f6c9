/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/* Elements of 16 bits, as the box rounds what it sends: to nearest, ties to even (R5.2). */

static uint16_t
to_bf16(uint32_t bits)
{
	if ((bits & 0x7FFFFFFF) > 0x7F800000)
		return 0x7FC0;
	return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static uint16_t
to_fp16(uint32_t bits)
{
	uint32_t sign = bits >> 16 & 0x8000, v = bits & 0x7FFFFFFF, shift;

	if (v > 0x7F800000)
		return (uint16_t)(sign | 0x7E00);
	if (v >= 0x477FF000) /* 65520 */
		return (uint16_t)(sign | 0x7C00);
	if (v >= 0x38800000) /* 2^-14: a normal number */
		return (uint16_t)(sign | (v - 0x38000000 + 0xFFF + (v >> 13 & 1)) >> 13);
	shift = 126 - (v >> 23);
	if (shift > 24)
		return (uint16_t)sign;
	v = (v & 0x7FFFFF) | 0x800000;
	return (uint16_t)(sign | (v + (1u << (shift - 1)) - 1 + (v >> shift & 1)) >> shift);
}

uint16_t
half_narrow(float x, unsigned format)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return format == PBOX_FMT_BF16 ? to_bf16(bits) : to_fp16(bits);
}

float
half_widen(uint16_t half, unsigned format)
{
	uint32_t bits = (uint32_t)half << 16, sign = bits & 0x80000000;
	uint32_t exponent = half >> 10 & 0x1F, fraction = half & 0x3FF;
	float x;

	if (format != PBOX_FMT_BF16 && exponent == 0) {
		x = (float)fraction / 16777216.0f; /* 2^-24 */
		return sign != 0 ? -x : x;
	}
	if (format != PBOX_FMT_BF16)
		bits = sign | (exponent == 0x1F ? 0xFFu : exponent + 112) << 23 | fraction << 13;
	memcpy(&x, &bits, sizeof(x));
	return x;
}
