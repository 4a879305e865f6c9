/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pbox_base.h>

#include "pbox_optim.h"

/* 4 KiB of gradient: with as much of parameters and state it stays in any L1 data cache, and is long
 * enough for the sources to be read in streams. */
#define BLOCK 1024

static void
update_block(const struct pbox_update *u, const struct pbox_sources *s, size_t first, size_t n)
{
	float gradient[BLOCK] __attribute__((aligned(PBOX_CACHE_LINE)));
	float *p = u->param + first, *g = u->kind == PBOX_OPTIM_NONE ? p : gradient;

	u->reduce->sum(g, s, first, n);
	if (u->factor != 1.0f || u->clip > 0.0f)
		u->reduce->scale(g, u->factor, u->clip, n);
	if (u->kind != PBOX_OPTIM_NONE)
		u->optim->step[u->kind](p, g, u->s0 == NULL ? NULL : u->s0 + first,
			u->s1 == NULL ? NULL : u->s1 + first, u->k, n);
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
