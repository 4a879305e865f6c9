/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The hyper-parameters of a group in a round, as its sum and its step take them. */

#include "rounds.h"

struct rounds_group *
rounds_scalars(struct pbox_shard_table *st, unsigned group, uint32_t round)
{
	struct rounds_group *k = (struct rounds_group *)(void *)st->state + 2 * group + (round & 1);
	struct pbox_schedule *sched = &st->t->schedule[group];
	uint32_t sets = atomic_load_explicit(&sched->count, memory_order_acquire);
	const struct pbox_hyper *h;

	/* a SET for this round may come after the first contribution to it */
	if (k->valid && k->round == round && k->sets == sets)
		return k;
	h = pbox_schedule_at(sched, round);
	k->round = round;
	k->sets = sets;
	k->valid = true;
	k->has_lr = h->has_lr != 0;
	k->clip = (float)h->clip_value;
	k->maximize = st->t->mode == PBOX_MODE_OPTIMISER && h->maximize != 0.0;
	k->plain = ((unsigned)h->plain & PBOX_PLAIN_SET) != 0;
	if (st->t->mode == PBOX_MODE_OPTIMISER && k->has_lr)
		pbox_optim_scalars(&k->k, h, st->t->optimiser, round);
	return k;
}
