/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef VARIANTS_H
#define VARIANTS_H

/** @file What is measured: ways to get from the payloads of a fragment to its result. */

#include "measure.h"

#define VARIANTS_MAX 32

struct context {
	const struct pbox_reduce_ops *reduce;
	struct pbox_update update;
	struct pbox_optim_scalars scalars;
	int checked;
	uint64_t sink; /**< so that reading is not optimised away */
	unsigned refused;
};

struct variant {
	char name[32];
	work run;
	struct context ctx;
	int base;      /**< index of the variant whose time a ratio compares with; -1: none */
	int optimiser; /**< more than a sum */
};

/** Fills v for one implementation; returns how many. few: without optimisers and memcpy. */
unsigned variants_make(
	struct variant *v, const struct pbox_reduce_ops *reduce, unsigned workers, int few);

#endif /* VARIANTS_H */
