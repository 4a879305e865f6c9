/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * After a restart of the box its workers tell what they hold (section 10 of the protocol). Who has
 * told stands in the record of the fragment's round, which cannot be in progress meanwhile: has is
 * who told, want who can give the payload.
 */

#include <string.h>

#include "shard_impl.h"

/* What the restorers that are left hold of a fragment. */
struct holding {
	uint32_t version, samples;
	uint16_t contributors;
	bool lower;     /* somebody holds less, or a member is no restorer */
	unsigned giver; /* who can give the version, or PBOX_NO_WORKER */
};

static uint64_t
restorers(const struct target *g, unsigned word)
{
	return atomic_load_explicit(&g->st->restorer[word], memory_order_acquire);
}

/* Is version a later than b? 0 is what nobody has finished. */
static bool
newer(uint32_t a, uint32_t b)
{
	return a != 0 && (b == 0 || pbox_serial_diff(a, b) > 0);
}

static void
answer(struct pbox_shard *s, const struct target *g, unsigned worker, uint32_t round, uint32_t ts,
	enum pbox_restore how, uint32_t missing)
{
	const struct pbox_round *r = g->slot->round;
	struct pbox_send out = {
		.hdr =
			{
				.type = PBOX_RESTORE_OK,
				.chunk = g->chunk,
				.frag = g->frag,
				.round = round,
				.base = g->slot->version,
				.aux = (uint16_t)how,
				.weight = missing,
				.ts = ts,
			},
	};

	if ((g->slot->closed & PBOX_SLOT_RESTORING) != 0 && r != NULL &&
		newer(r->told, out.hdr.base))
		out.hdr.base = r->told;
	shard_send_to(s, g, &out, worker);
}

/* An answer to what a worker told last, asked for or not. */
static void
answer_told(struct pbox_shard *s, const struct target *g, unsigned worker, enum pbox_restore how,
	uint32_t missing)
{
	const struct contribution *c = &g->slot->round->from[worker];

	answer(s, g, worker, c->told.round, c->ts, how, missing);
}

static void
note(const struct target *g, const struct pbox_frame *f)
{
	struct pbox_round *r = g->slot->round;
	unsigned w = f->hdr.worker;

	r->from[w] = (struct contribution){
		.told = {.round = f->hdr.round, .contributors = f->hdr.aux},
		.weight = f->hdr.weight,
		.ts = f->hdr.ts,
	};
	if (r->arrived == 0 || newer(f->hdr.round, r->told))
		r->told = f->hdr.round;
	r->arrived += !bit_get(r->has, w);
	bit_set(r->has, w);
	bit_clear(r->want, w);
	if ((f->hdr.flags & PBOX_F_HAVE) != 0)
		bit_set(r->want, w);
}

/* The first restorer that has not told, or PBOX_NO_WORKER. */
static unsigned
first_silent(const struct target *g)
{
	const struct pbox_round *r = g->slot->round;

	for (unsigned i = 0; i < (g->j->job->workers + 63u) / 64; i++) {
		uint64_t missing = restorers(g, i) & ~(r != NULL ? r->has[i] : 0);

		if (missing != 0)
			return i * 64 + (unsigned)__builtin_ctzll(missing);
	}
	return PBOX_NO_WORKER;
}

/* All restorers have told: what do they hold? */
static struct holding
highest(const struct target *g)
{
	const struct pbox_round *r = g->slot->round;
	struct holding h = {.giver = PBOX_NO_WORKER};
	unsigned n = 0;

	for (unsigned i = 0; i < (g->j->job->workers + 63u) / 64; i++)
		for (uint64_t left = restorers(g, i); left != 0; left &= left - 1) {
			unsigned w = i * 64 + (unsigned)__builtin_ctzll(left);
			const struct contribution *c = &r->from[w];

			if (n++ > 0 && c->told.round != h.version)
				h.lower = true;
			if (n > 1 && newer(h.version, c->told.round))
				continue;
			if (n == 1 || newer(c->told.round, h.version)) {
				h.version = c->told.round;
				h.samples = c->weight;
				h.contributors = c->told.contributors;
				h.giver = PBOX_NO_WORKER;
			}
			if (h.giver == PBOX_NO_WORKER && bit_get(r->want, w))
				h.giver = w;
		}
	h.lower |= n < g->j->job->workers;
	return h;
}

/* The payload of the version that the fragment shall have, in the pull format. */
static void
take(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_table *t = g->st->t;
	size_t first = (size_t)g->frag * t->frag_elements;

	s->conf.reduce->unpack(pbox_chunk_frag_param(t, g->c, g->frag), f->payload,
		(enum pbox_elem)t->pull_format, g->elements);
	if (g->c->wire != NULL)
		memcpy(g->c->wire + first * 2, f->payload, f->hdr.length);
	g->slot->payload_crc = pbox_crc32c(0, f->payload, f->hdr.length);
}

/* The fragment stands at slot->version: tell all that told. */
static void
restored(struct pbox_shard *s, const struct target *g, bool lost)
{
	struct pbox_shard_table *st = g->st;
	struct pbox_slot *slot = g->slot;
	struct pbox_round *r = slot->round;
	bool empty = st->t->mode == PBOX_MODE_OPTIMISER && !slot->has_result;

	slot->closed = lost ? PBOX_SLOT_LOST : empty ? PBOX_SLOT_UNINITIALISED : 0;
	slot->init = 0;
	if (lost) {
		if (atomic_load_explicit(&st->lost, memory_order_relaxed) == 0) {
			st->lost_chunk = g->chunk;
			st->lost_frag = g->frag;
		}
		atomic_fetch_add_explicit(&st->lost, 1, memory_order_release);
	}
	if (slot->version != 0)
		shard_finished(st, slot->version);
	count(s, lost ? PBOX_SS_RESTORE_LOST : PBOX_SS_RESTORED);
	if (r != NULL) {
		for (unsigned i = 0; i < (g->j->job->workers + 63u) / 64; i++)
			for (uint64_t left = r->has[i] & restorers(g, i); left != 0;
				left &= left - 1)
				answer_told(s, g, i * 64 + (unsigned)__builtin_ctzll(left),
					lost ? PBOX_RESTORE_LOST : PBOX_RESTORE_DONE, 0);
		shard_round_close(s, g->j, slot);
	}
	atomic_fetch_sub_explicit(&st->restoring, 1, memory_order_release);
}

/*
 * Decide, if all restorers have told (R10.6). f: what the last one told, or NULL. True: restored, and
 * answered.
 */
static bool
settle(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_slot *slot = g->slot;
	struct holding h = highest(g);
	bool needed = h.version != 0 ? h.lower : false;

	/* nothing newer than the snapshot has; or nobody has anything */
	if (slot->has_result && !newer(h.version, slot->version)) {
		restored(s, g, false);
		return true;
	}
	if (g->st->t->mode == PBOX_MODE_OPTIMISER)
		needed = h.version != 0 || h.giver != PBOX_NO_WORKER;
	if (needed && h.giver != PBOX_NO_WORKER) {
		bool given = f != NULL && f->hdr.length > 0 && f->hdr.round == h.version;

		if (!given)
			return false;
		take(s, g, f);
	}
	slot->version = h.version;
	slot->has_result = needed && h.giver != PBOX_NO_WORKER;
	/* without a result a contribution to this version is answered by nothing */
	slot->samples = slot->has_result ? h.samples : 0;
	slot->contributors = slot->has_result ? h.contributors : 0;
	restored(s, g, needed && !slot->has_result);
	return true;
}

/* The payload is needed: from the one who asks, if it has it, else from the first who has. */
static void
ask_for_payload(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct holding h = highest(g);
	struct pbox_round *r = g->slot->round;

	r->told = h.version; /* who told more may be gone */
	if (f != NULL && f->hdr.round == h.version && bit_get(r->want, f->hdr.worker)) {
		answer_told(s, g, f->hdr.worker, PBOX_RESTORE_GIVE, 0);
		return;
	}
	answer_told(s, g, h.giver, PBOX_RESTORE_GIVE, 0);
	if (f != NULL)
		answer_told(s, g, f->hdr.worker, PBOX_RESTORE_NOTED, h.giver);
}

void
shard_restore(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_slot *slot = g->slot;
	unsigned w = f->hdr.worker, silent;

	if ((slot->closed & PBOX_SLOT_RESTORING) == 0) {
		count(s, PBOX_SS_RX_RESTORE);
		answer(s, g, w, f->hdr.round, f->hdr.ts,
			(slot->closed & PBOX_SLOT_LOST) != 0 ? PBOX_RESTORE_LOST
							     : PBOX_RESTORE_DONE,
			0);
		return;
	}
	silent = first_silent(g);
	if ((restorers(g, w / 64) >> w % 64 & 1) == 0) {
		count(s, PBOX_SS_RX_RESTORE);
		answer(s, g, w, f->hdr.round, f->hdr.ts, PBOX_RESTORE_NOTED,
			silent != PBOX_NO_WORKER ? silent : UINT32_MAX);
		return;
	}
	if (shard_round_open(s, g) == NULL) {
		count(s, PBOX_SS_DROP_NO_SLOT);
		return;
	}
	count(s, PBOX_SS_RX_RESTORE);
	slot->round->folded = g->j->job->workers; /* none of its packets are held */
	note(g, f);
	silent = first_silent(g);
	if (silent != PBOX_NO_WORKER)
		answer_told(s, g, w, PBOX_RESTORE_NOTED, silent);
	else if (!settle(s, g, f))
		ask_for_payload(s, g, f);
}

static void
settle_all(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_shard_table *st)
{
	const struct pbox_table *t = st->t;

	for (uint32_t i = 0; i < t->n_chunks; i++) {
		struct target g = {.j = j, .st = st, .c = &t->chunk[i]};

		if (!s->own_endpoint[g.c->endpoint])
			continue;
		g.chunk = t->first_chunk_id + i;
		for (g.frag = 0; g.frag < g.c->fragments; g.frag++) {
			g.slot = &g.c->slot[g.frag];
			g.elements = pbox_chunk_frag_elements(t, g.c, g.frag);
			if ((g.slot->closed & PBOX_SLOT_RESTORING) != 0 &&
				first_silent(&g) == PBOX_NO_WORKER && !settle(s, &g, NULL))
				ask_for_payload(s, &g, NULL);
		}
	}
}

/* Fewer restorers than before: some fragments wait for nobody any more. Tables do not come in their order: one that
 * is loading may be missing before others. */
void
shard_restorers_changed(struct pbox_shard *s, struct pbox_shard_job *j)
{
	for (unsigned i = 0; i < PBOX_MAX_TABLES; i++)
		if (j->table[i] != NULL &&
			atomic_load_explicit(&j->table[i]->restoring, memory_order_relaxed) > 0)
			settle_all(s, j, j->table[i]);
}
