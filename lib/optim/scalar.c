/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The reference: the optimisers of optim_steps.h with one element as the vector, in the order of operations of
 * torch.optim 1.13's single-tensor implementations (doc/optimisers.md). Every other implementation is held to the
 * bits of these. */

#include <math.h>

#define INLINE static inline __attribute__((always_inline))

#define VECTOR 1
typedef float vec;

#define load(p)       (*(p))
#define store(p, x)   (*(p) = (x))
#define all(x)        (x)
#define root(a)       sqrtf(a)
#define minimum(a, b) ((a) < (b) ? (a) : (b))
#define maximum(a, b) ((a) > (b) ? (a) : (b))

static int
scalar_is_usable(void)
{
	return 1;
}

#define NAME   "scalar"
#define RANK   0
#define USABLE scalar_is_usable
#include "optim_steps.h"

const struct pbox_optim_ops pbox_optim_scalar = OPTIM_OPS;
