/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Chunks of a job at several boxes come and leave while it trains (R16.10). One that leaves is closed for good in its epoch: what it was
 * stays in its memory. One that comes is restored, as all are after a restart of the box.
 */

#include "shard_impl.h"

/* Is there anything of the fragment that workers cannot give its new home? */
static bool
has_what_only_boxes_have(const struct target *g)
{
	const struct pbox_table *t = g->st->t;
	const struct pbox_fragment *fragment = g->fragment;

	return pbox_table_has_more(t) && fragment->has_result != 0 &&
	       (fragment->closed & PBOX_FRAGMENT_LOST) == 0 &&
	       (fragment->version != 0 || t->pull_format != PBOX_FMT_FP32);
}

void
shard_not_needed(const struct target *g)
{
	if ((g->fragment->closed & PBOX_FRAGMENT_NEEDED) == 0)
		return;
	g->fragment->closed &= (uint8_t)~PBOX_FRAGMENT_NEEDED;
	atomic_fetch_sub_explicit(&g->st->needed, 1, memory_order_release);
}

static void
fragment_leaves(struct pbox_shard *s, struct target *g)
{
	struct pbox_fragment *fragment = g->fragment;
	bool needed = !is_restoring(g) && has_what_only_boxes_have(g);

	if (is_restoring(g)) {
		if (fragment->record != NULL)
			shard_record_close(s, g->j, fragment);
		atomic_fetch_sub_explicit(&g->st->restoring, 1, memory_order_release);
	} else if (fragment->record != NULL) {
		g->st->discipline->leave(s, g);
	}
	fragment->closed =
		(uint8_t)((fragment->closed & ~PBOX_FRAGMENT_RESTORING) | PBOX_FRAGMENT_MOVED);
	if (needed) {
		fragment->closed |= PBOX_FRAGMENT_NEEDED;
		atomic_fetch_add_explicit(&g->st->needed, 1, memory_order_release);
	}
}

static void
leaves(struct pbox_shard *s, struct target *g, const struct pbox_move *m)
{
	for (g->frag = 0; g->frag < g->c->fragments; g->frag++) {
		g->fragment = &g->c->fragment[g->frag];
		if ((g->fragment->closed & PBOX_FRAGMENT_MOVED) == 0)
			fragment_leaves(s, g);
	}
	g->c->epoch = m->epoch;
}

/* Where it has been here before, its last version may be the one that it has now: that is kept then (R10.6). */
static void
comes(struct pbox_shard *s, struct target *g, const struct pbox_move *m)
{
	struct pbox_chunk *c = g->c;

	PBOX_ASSERT(s->own_endpoint[m->memory.endpoint] && m->epoch != c->epoch);
	if (c->endpoint != PBOX_ELSEWHERE) {
		leaves(s, g, m);
	} else {
		c->param = m->memory.param;
		c->s0 = m->memory.s0;
		c->s1 = m->memory.s1;
		c->replica = m->memory.replica;
		c->wire = m->memory.wire;
		c->fragment = m->memory.fragment;
	}
	for (unsigned f = 0; f < m->memory.fragments; f++) {
		struct pbox_fragment *fragment = &c->fragment[f];

		PBOX_ASSERT(fragment->record == NULL);
		g->fragment = fragment;
		shard_not_needed(g);
		fragment->closed = PBOX_FRAGMENT_RESTORING;
		if (g->st->t->mode == PBOX_MODE_OPTIMISER && !fragment->has_result)
			fragment->closed |= PBOX_FRAGMENT_UNINITIALISED;
	}
	/* the room of the extent is exchanged with fragments that lie there alone */
	if (m->apart)
		g->st->spare[m->memory.endpoint] = NULL;
	atomic_fetch_add_explicit(&g->st->restoring, m->memory.fragments, memory_order_release);
	c->epoch = m->epoch;
	/* other cores, and the control thread, look whose it is */
	__atomic_store_n(&c->fragments, m->memory.fragments, __ATOMIC_RELEASE);
	__atomic_store_n(&c->endpoint, m->memory.endpoint, __ATOMIC_RELEASE);
}

void
shard_moves(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_shard_table *st,
	const struct pbox_moves *moves)
{
	PBOX_ASSERT(s->n_ready == 0 && st->discipline->leave != NULL);
	for (uint32_t i = 0; i < moves->n; i++) {
		const struct pbox_move *m = &moves->move[i];
		struct target g = {.j = j,
			.st = st,
			.c = &st->t->chunk[m->chunk],
			.chunk = st->t->first_chunk_id + m->chunk};

		if (m->comes)
			comes(s, &g, m);
		else
			leaves(s, &g, m);
	}
}

bool
shard_is_of_left(const struct pbox_chunk *c, const struct pbox_frame *f)
{
	/* by a later map than the one that this box has heard of it may have gone on from there */
	return f->hdr.type == PBOX_FETCH && (f->hdr.flags & PBOX_F_LATEST) != 0 &&
	       (c->fragment[0].closed & PBOX_FRAGMENT_MOVED) != 0 &&
	       (int16_t)(f->hdr.map_epoch - c->epoch) > 0;
}

void
shard_moved_away(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_send out = shard_answer(g, PBOX_MOVED, f->hdr.ts);

	/* the epoch of a table in clocks is of no map: a worker would ask for one that there is not (R16.15) */
	if (g->st->discipline->leave == NULL)
		return;
	out.hdr.round = f->hdr.round;
	/* the other way round this box has not heard of it yet, and the worker goes on asking */
	if ((int16_t)(g->c->epoch - f->hdr.map_epoch) > 0)
		shard_send_to(s, g, &out, f->hdr.worker);
}
