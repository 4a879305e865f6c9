/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pbox_base.h>

#include "pbox_optim.h"

/* Half a jumbo frame of gradient (8896 bytes is its longest payload): with as much of parameters and
 * state it stays in any L1 data cache. Shorter blocks lose more by the start of each sum than they
 * gain. */
#define BLOCK 1152

/*
 * Payloads have just arrived and are in a cache; parameters and state were last used a round ago
 * and are in memory. They are on their way while the sum runs. (Measured: 10 % to 15 % faster so, 7 %
 * slower where all of it is in the L2 cache.)
 */
static void
fetch(const float *x, size_t n)
{
	for (size_t i = 0; x != NULL && i < n; i += PBOX_CACHE_LINE / sizeof(*x))
		__builtin_prefetch(x + i, 1);
}

static void
update_block(const struct pbox_update *u, const struct pbox_sources *s, size_t first, size_t n)
{
	float gradient[BLOCK] __attribute__((aligned(PBOX_CACHE_LINE)));
	float *p = u->param + first, *g = u->kind == PBOX_OPTIM_NONE ? p : gradient;
	float *s0 = u->s0 == NULL ? NULL : u->s0 + first;
	float *s1 = u->s1 == NULL ? NULL : u->s1 + first;

	if (u->kind != PBOX_OPTIM_NONE) {
		fetch(p, n);
		fetch(s0, n);
		fetch(s1, n);
	}
	u->reduce->sum(g, s, first, n);
	if (u->factor != 1.0f || u->clip > 0.0f)
		u->reduce->scale(g, u->factor, u->clip, n);
	if (u->kind != PBOX_OPTIM_NONE)
		u->optim->step[u->kind](p, g, s0, s1, u->k, n);
	if (u->wire != NULL)
		u->reduce->pack((uint8_t *)u->wire + first * pbox_elem_size(u->wire_elem),
			u->wire_elem, p, n);
}

void
pbox_optim_update(const struct pbox_update *u, const struct pbox_sources *s, size_t elems)
{
	for (size_t first = 0; first < elems; first += BLOCK)
		update_block(u, s, first, elems - first < BLOCK ? elems - first : BLOCK);
}
