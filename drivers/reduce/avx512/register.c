/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "kernels.h"

static int
avx512_is_usable(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl");
}

static const struct pbox_reduce_ops ops = {
	.name = "avx512",
	.rank = 30,
	.usable = avx512_is_usable,
	.sum = avx512_sum,
	.add = avx512_add,
	.scale = avx512_scale,
	.pack = avx512_pack,
	.unpack = avx512_unpack,
	.encode = avx512_encode,
	.decode = avx512_decode,
	.crc32c = pbox_reduce_crc32c,
};

__attribute__((constructor)) static void
enrol(void)
{
	pbox_reduce_register(&ops);
}
