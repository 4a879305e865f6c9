/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include <pbox_base.h>

#include "pbox_reduce.h"

#define IMPLEMENTATIONS_MAX 8

/* The scalar one needs no constructor: it is there whatever is linked. */
static const struct pbox_reduce_ops *implementations[IMPLEMENTATIONS_MAX] = {&pbox_reduce_scalar};
static unsigned count = 1;

void
pbox_reduce_register(const struct pbox_reduce_ops *ops)
{
	PBOX_ASSERT(count < IMPLEMENTATIONS_MAX);
	implementations[count++] = ops;
}

const struct pbox_reduce_ops *
pbox_reduce_select(const char *name)
{
	const struct pbox_reduce_ops *best = NULL;

	for (unsigned i = 0; i < count; i++) {
		const struct pbox_reduce_ops *ops = implementations[i];

		if (name != NULL && strcmp(name, ops->name) != 0)
			continue;
		if (ops->usable() && (best == NULL || ops->rank > best->rank))
			best = ops;
	}
	return best;
}

const struct pbox_reduce_ops *
pbox_reduce_at(unsigned i)
{
	return i < count ? implementations[i] : NULL;
}
