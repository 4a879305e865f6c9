/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The reference: plain C, one operation after the other. Every other implementation is held to its
 * bits. It is also what runs on a CPU without AVX2, so loops are kept such that compilers can
 * vectorise them. */

#include <string.h>

#include "pbox_block.h"
#include "pbox_reduce.h"

static uint32_t
scalar_bits_of(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static float
scalar_float_of(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static inline float
fp32_from_bf16(uint16_t h)
{
	return scalar_float_of((uint32_t)h << 16);
}

static inline float
fp32_from_fp16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t magnitude = (uint32_t)(h & 0x7FFF) << 13; /* the exponent is 112 too small */

	if (magnitude >= 0x7C00u << 13) { /* infinity stays, every NaN is quiet */
		uint32_t quiet = magnitude > 0x7C00u << 13 ? 0x00400000 : 0;

		return scalar_float_of(sign | 0x7F800000 | magnitude | quiet);
	}
	/* Multiplying by 2^112 is exact, for subnormal halves too. */
	return scalar_float_of(sign | scalar_bits_of(scalar_float_of(magnitude) * 0x1p112f));
}

static inline uint16_t
bf16_from_fp32(float f)
{
	uint32_t u = scalar_bits_of(f);

	if (f != f)
		return 0x7FC0;
	return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

static inline uint16_t
fp16_from_fp32(float f)
{
	uint32_t u = scalar_bits_of(f), sign = u >> 16 & 0x8000, m = u & 0x7FFFFFFF;

	if (m > 0x7F800000)
		return (uint16_t)(sign | 0x7E00);
	if (m >= 0x47800000) /* 2^16 and more; 65520 and more round up to infinity below */
		return (uint16_t)(sign | 0x7C00);
	if (m < 0x38800000) {
		/* Below 2^-14 the result is subnormal, a multiple of 2^-24. Adding 0.5, whose last
		 * place is 2^-24, makes the FPU round to that, to nearest even. */
		uint32_t r = scalar_bits_of(scalar_float_of(m) + 0.5f);

		return (uint16_t)(sign | (r - 0x3F000000));
	}
	m += 0x0FFF + (m >> 13 & 1);
	return (uint16_t)(sign | (m - 0x38000000) >> 13);
}

/* Element i of a source of any alignment. */
static inline __attribute__((always_inline)) float
element(const uint8_t *src, enum pbox_format elem, size_t i)
{
	uint16_t h;
	float f;

	if (elem == PBOX_FMT_FP32) {
		memcpy(&f, src + i * 4, sizeof(f));
		return f;
	}
	memcpy(&h, src + i * 2, sizeof(h));
	return elem == PBOX_FMT_BF16 ? fp32_from_bf16(h) : fp32_from_fp16(h);
}

const char pbox_reduce_absent[1];

/* dst = (weight *) src */
static inline __attribute__((always_inline)) void
take_source(
	float *dst, const uint8_t *src, enum pbox_format elem, const float *weight, size_t elems)
{
	for (size_t i = 0; i < elems; i++) {
		float x = element(src, elem, i);

		dst[i] = weight != NULL ? *weight * x : x;
	}
}

static void
take_any(float *dst, const uint8_t *src, enum pbox_format elem, const float *weight, size_t elems)
{
	switch (elem) {
	case PBOX_FMT_FP32:
		take_source(dst, src, PBOX_FMT_FP32, weight, elems);
		break;
	case PBOX_FMT_BF16:
		take_source(dst, src, PBOX_FMT_BF16, weight, elems);
		break;
	case PBOX_FMT_FP16:
		take_source(dst, src, PBOX_FMT_FP16, weight, elems);
		break;
	default: /* none, or one of a later release, which no table has */
		return;
	}
}

static void
scalar_prefetch_next(const struct pbox_sources *s, size_t at)
{
	for (unsigned j = 0; j < s->n_next; j++)
		if (s->next[j] != NULL)
			__builtin_prefetch((const uint8_t *)s->next[j] + at);
}

/* All ones in the exponent: a NaN or an infinity. */
#define SCALAR_EXPONENT 0x7F800000u

static bool
scalar_finite(const float *x, size_t elems)
{
	uint32_t any = 0;

	for (size_t i = 0; i < elems; i++)
		any |= (scalar_bits_of(x[i]) & SCALAR_EXPONENT) == SCALAR_EXPONENT;
	return any == 0;
}

#define TILE 256 /* elements */

static void
scalar_slot(float *dst, const struct pbox_sources *s, unsigned k, size_t first, size_t elems)
{
	const uint8_t *src = s->src[k];

	enum pbox_format elem = pbox_reduce_format(s, k);
	bool absent = src == (const void *)pbox_reduce_absent;
	bool zero = src == NULL || (s->weight != NULL && s->weight[k] == 0.0f && !absent);

	if (!absent && !zero && elem >= PBOX_FMT_INT8)
		pbox_block_take(
			dst, src, elem, s->weight == NULL ? NULL : &s->weight[k], first, elems);
	else if (!absent && !zero)
		take_any(dst, src + pbox_payload_bytes(elem, first), elem,
			s->weight == NULL ? NULL : &s->weight[k], elems);
	else
		for (size_t i = 0; i < elems; i++)
			dst[i] = zero ? 0.0f : -0.0f;
}

/* R5.2a: the node of `slots` slots that begins with slot `from`. It is there already if base in bits has it. */
static void
scalar_node(float *dst, const struct pbox_sources *s, unsigned from, unsigned slots, size_t first,
	size_t elems)
{
	unsigned half = slots / 2;
	float right[TILE];

	if (s->base & slots && from == (s->base & -(2 * slots))) {
		unsigned after = (unsigned)__builtin_popcount(s->base & (slots - 1));

		memmove(dst, s->acc[s->n_acc - 1 - after] + first, elems * sizeof(*dst));
		return;
	}
	if (slots == 1) {
		scalar_slot(dst, s, from - s->base, first, elems);
		return;
	}
	scalar_node(dst, s, from, half, first, elems);
	if (from + half >= s->base + s->n)
		return;
	scalar_node(right, s, from + half, half, first, elems);
	for (size_t i = 0; i < elems; i++)
		dst[i] = dst[i] + right[i];
}

static void
scalar_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems)
{
	unsigned slots = 1, from = s->base;

	if (s->next != NULL)
		scalar_prefetch_next(s, pbox_payload_bytes(s->elem, first));
	if (s->intact != NULL)
		*s->intact = true;
	for (unsigned k = 0; k < s->n && s->intact != NULL; k++)
		if (s->src[k] != NULL && s->src[k] != pbox_reduce_absent)
			*s->intact &= pbox_reduce_intact(s->src[k],
				pbox_payload_bytes(pbox_reduce_format(s, k), elems), s->header);
	for (unsigned j = 0; j < s->n_acc; j++)
		from &= from - 1;
	while (from + slots < s->base + s->n)
		slots *= 2;
	for (size_t i = 0; i < elems; i += TILE) {
		size_t n = elems - i < TILE ? elems - i : TILE;

		if (s->n_acc + s->n == 0)
			memset(dst + i, 0, n * sizeof(*dst));
		else
			scalar_node(dst + i, s, from, slots, first + i, n);
		if (s->finite != NULL)
			*s->finite &= scalar_finite(dst + i, n);
	}
	if (s->crc_dst != NULL)
		*s->crc_dst = pbox_reduce_crc32c(0, dst, elems * sizeof(*dst));
}

static void
scalar_add(float *dst, const struct pbox_sources *s, size_t elems)
{
	const float *acc = s->acc[0];
	bool intact = true;

	if (s->next != NULL)
		scalar_prefetch_next(s, 0);
	for (unsigned k = 0; k < s->n; k++, acc = dst) {
		float x[TILE];

		if (s->intact != NULL && s->src[k] != NULL)
			intact &= pbox_reduce_intact(
				s->src[k], pbox_payload_bytes(s->elem, elems), s->header);
		for (size_t i = 0; i < elems; i += TILE) {
			size_t n = elems - i < TILE ? elems - i : TILE;
			const uint8_t *src = s->src[k];

			if (src != NULL && s->elem >= PBOX_FMT_INT8)
				pbox_block_take(x, src, s->elem, &s->weight[k], i, n);
			else if (src != NULL)
				take_any(x, src + pbox_payload_bytes(s->elem, i), s->elem,
					&s->weight[k], n);
			for (size_t e = 0; e < n; e++)
				dst[i + e] =
					acc[i + e] + (src != NULL ? x[e] : s->weight[k] * 0.0f);
		}
	}
	if (s->intact != NULL)
		*s->intact = intact;
	if (s->finite != NULL)
		*s->finite &= scalar_finite(dst, elems);
}

static void
scalar_scale(float *dst, float factor, float clip, size_t elems)
{
	for (size_t i = 0; i < elems; i++) {
		float x = dst[i] * factor;

		if (clip > 0.0f)
			x = x < -clip ? -clip : x > clip ? clip : x;
		dst[i] = x;
	}
}

static void
scalar_pack(void *dst, enum pbox_format elem, const float *src, size_t elems)
{
	uint8_t *out = dst;

	if (elem == PBOX_FMT_FP32) {
		memcpy(dst, src, elems * sizeof(*src));
		return;
	}
	for (size_t i = 0; i < elems; i++) {
		uint16_t h =
			elem == PBOX_FMT_BF16 ? bf16_from_fp32(src[i]) : fp16_from_fp32(src[i]);

		memcpy(out + i * 2, &h, sizeof(h));
	}
}

static void
scalar_unpack(float *dst, const void *src, enum pbox_format elem, size_t elems)
{
	if (elem == PBOX_FMT_FP32)
		memcpy(dst, src, elems * sizeof(*dst));
	else
		take_any(dst, src, elem, NULL, elems);
}

static int
scalar_usable(void)
{
	return 1;
}

const struct pbox_reduce_ops pbox_reduce_scalar = {
	.name = "scalar",
	.rank = 0,
	.usable = scalar_usable,
	.sum = scalar_sum,
	.add = scalar_add,
	.scale = scalar_scale,
	.pack = scalar_pack,
	.unpack = scalar_unpack,
	.encode = pbox_block_encode,
	.decode = pbox_block_decode,
	.crc32c = pbox_reduce_crc32c,
};
