/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef KERNELS_TORCH_H
#define KERNELS_TORCH_H

#include <stddef.h>

/** The i-th implementation, NULL after the last; whether this CPU runs its kernels. */
const char *kt_name(unsigned i);
int kt_usable(const char *name);
/** elem: 2 bf16, 3 fp16. name must be usable. */
void kt_pack(const char *name, int elem, void *dst, const float *src, size_t n);
void kt_unpack(const char *name, int elem, float *dst, const void *src, size_t n);
/**
 * Step t of an optimiser on n elements. hyper: lr, momentum, dampening, weight_decay, beta1, beta2,
 * eps, clip_value. NULL, or what is wrong with them.
 */
const char *kt_update(const char *name, int kind, const double *hyper, unsigned t, float *p,
	const float *g, float *s0, float *s1, size_t n);

#endif /* KERNELS_TORCH_H */
