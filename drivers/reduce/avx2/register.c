/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <cpuid.h>

#include "kernels.h"

static int
avx2_is_usable(void)
{
	unsigned a, b, c = 0, d;

	/* clang 14 does not know the name f16c; that the system saves AVX registers avx2 tells */
	return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static const struct pbox_reduce_ops ops = {
	.name = "avx2",
	.rank = 20,
	.usable = avx2_is_usable,
	.sum = avx2_sum,
	.add = avx2_add,
	.scale = avx2_scale,
	.pack = avx2_pack,
	.unpack = avx2_unpack,
	.encode = avx2_encode,
	.decode = avx2_decode,
	.crc32c = pbox_reduce_crc32c,
};

__attribute__((constructor)) static void
enrol(void)
{
	pbox_reduce_register(&ops);
}
