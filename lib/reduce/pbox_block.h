/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_BLOCK_H
#define PBOX_BLOCK_H

/**
 * @file
 * Formats of blocks (doc/protocol.md R13.3): what all implementations of the kernels have in common, and the scalar reference.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <pbox_wire_enums.h>

/** Elements that share a scale in MX. */
#define PBOX_MX_BLOCK 32u

/** Magnitudes from here on (2^127, as bits) make a block that is not finite; int8 has zero below 2^-100. */
#define PBOX_BLOCK_HUGE 0x7F000000u
#define PBOX_INT8_TINY  0x0D800000u

/** The unit that has element i of a payload. */
static inline __attribute__((always_inline)) const uint8_t *
pbox_block_unit(const uint8_t *payload, enum pbox_format format, size_t i)
{
	return payload + i / PBOX_UNIT * pbox_payload_bytes(format, PBOX_UNIT);
}

static inline float
pbox_block_int8_scale(const uint8_t *unit)
{
	float s;

	memcpy(&s, unit, sizeof(s));
	return s;
}

/** E8M0: 2^(byte - 127); 255 is NaN. */
static inline float
pbox_block_mx_scale(uint8_t byte)
{
	/* 0 is subnormal in fp32, and 255 would be infinity: both take the highest bit of the fraction. */
	uint32_t u = (uint32_t)byte << 23 | (uint32_t)((uint8_t)(byte + 1) < 2) << 22;
	float s;

	memcpy(&s, &u, sizeof(s));
	return s;
}

/** The scale of a block whose largest magnitude has these bits. */
static inline uint8_t
pbox_block_mx_byte(uint32_t largest)
{
	uint32_t exponent = largest >> 23;

	if (largest >= PBOX_BLOCK_HUGE)
		return 255;
	return (uint8_t)(exponent < 2 ? 0 : exponent - 2);
}

/** Are all blocks of the payload finite? */
bool pbox_block_is_finite(const void *payload, enum pbox_format format, size_t elems);
/** dst = (weight *) elements first to first + elems - 1 of src, any first. */
void pbox_block_take(float *dst, const uint8_t *src, enum pbox_format format, const float *weight,
	size_t first, size_t elems);
/** pbox_reduce_ops.encode, decode */
void pbox_block_encode(
	void *dst, enum pbox_format format, const float *src, float *residual, size_t elems);
void pbox_block_decode(float *dst, const void *src, enum pbox_format format, size_t elems);

#endif /* PBOX_BLOCK_H */
