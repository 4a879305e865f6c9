/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/**
 * @file
 * One function a format, with and without weights, of a pass that is written once: to be included at
 * the end of a file that has defined sum_group(dst, group, elems, elem, weighted), always inlined.
 */

#define PASS(name, elem, weighted)                                        \
	static void name(float *dst, const struct group *g, size_t elems) \
	{                                                                 \
		sum_group(dst, g, elems, elem, weighted);                 \
	}

PASS(sum_fp32, PBOX_FMT_FP32, 0)
PASS(sum_fp32_weighted, PBOX_FMT_FP32, 1)
PASS(sum_bf16, PBOX_FMT_BF16, 0)
PASS(sum_bf16_weighted, PBOX_FMT_BF16, 1)
PASS(sum_fp16, PBOX_FMT_FP16, 0)
PASS(sum_fp16_weighted, PBOX_FMT_FP16, 1)

static inline group_sum
pass_of(const struct pbox_sources *s)
{
	static const group_sum passes[][2] = {
		[PBOX_FMT_FP32] = {sum_fp32, sum_fp32_weighted},
		[PBOX_FMT_BF16] = {sum_bf16, sum_bf16_weighted},
		[PBOX_FMT_FP16] = {sum_fp16, sum_fp16_weighted},
	};

	return passes[s->elem][s->weight != NULL];
}
