/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "kernels.h"

static int
usable(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}

static const struct pbox_reduce_ops ops = {
	.name = "avx2",
	.rank = 20,
	.usable = usable,
	.sum = avx2_sum,
	.scale = avx2_scale,
	.pack = avx2_pack,
	.unpack = avx2_unpack,
};

__attribute__((constructor)) static void
enrol(void)
{
	pbox_reduce_register(&ops);
}
