/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * After a restart of the box its workers report what they hold (section 10 of the protocol), and a fragment's
 * record remembers it.
 */

#include <string.h>

#include "shard_impl.h"

static void
answer_restore(struct pbox_shard *s, const struct target *g, unsigned worker, uint32_t round,
	uint32_t ts, struct pbox_restore_ok m)
{
	const struct pbox_record *r = g->fragment->record;
	struct pbox_send out = shard_answer(g, PBOX_RESTORE_OK, ts);

	out.hdr.round = round;
	m.version = g->fragment->version;
	if (is_restoring(g) && r != NULL && shard_is_newer(r->restoring.highest, m.version))
		m.version = r->restoring.highest;
	if (m.state == PBOX_RESTORE_DONE)
		g->st->discipline->done(g, worker, &m);
	pbox_restore_ok_put(&out.hdr, &m);
	shard_send_to(s, g, &out, worker);
}

void
shard_answer_report(
	struct pbox_shard *s, const struct target *g, unsigned worker, struct pbox_restore_ok m)
{
	const struct report *c = &g->fragment->record->report[worker];

	PBOX_ASSERT(worker < g->j->job->workers && pbox_bit_get(g->fragment->record->has, worker));
	answer_restore(s, g, worker, c->version, c->ts, m);
}

void
shard_answer_noted(struct pbox_shard *s, const struct target *g, unsigned worker, uint32_t missing)
{
	shard_answer_report(s, g, worker,
		(struct pbox_restore_ok){.state = PBOX_RESTORE_NOTED, .missing = missing});
}

struct report *
shard_note_report(const struct target *g, const struct pbox_frame *f)
{
	struct pbox_record *r = g->fragment->record;
	unsigned w = f->hdr.worker;

	PBOX_ASSERT(r->open && is_restoring(g));
	r->report[w] = (struct report){.version = f->hdr.round, .ts = f->hdr.ts};
	r->arrived += !pbox_bit_get(r->has, w);
	pbox_bit_set(r->has, w);
	pbox_bit_clear(r->want, w);
	if ((f->hdr.flags & PBOX_F_HAVE) != 0)
		pbox_bit_set(r->want, w);
	return &r->report[w];
}

unsigned
shard_first_silent(const struct target *g)
{
	const struct pbox_record *r = g->fragment->record;

	for (unsigned i = 0; i < words_of(g->j); i++) {
		uint64_t missing = restorers(g, i) & ~(r != NULL ? r->has[i] : 0);

		if (missing != 0)
			return i * 64 + (unsigned)__builtin_ctzll(missing);
	}
	return PBOX_NO_WORKER;
}

static struct pbox_restore_ok
how_it_is(const struct pbox_fragment *fragment)
{
	if ((fragment->closed & PBOX_FRAGMENT_LATE) != 0)
		return (struct pbox_restore_ok){.state = PBOX_RESTORE_LATE};
	if ((fragment->closed & PBOX_FRAGMENT_LOST) != 0)
		return (struct pbox_restore_ok){.state = PBOX_RESTORE_LOST};
	return (struct pbox_restore_ok){.state = PBOX_RESTORE_DONE};
}

/* It has come from another box, and this one has given up the SETs of its next round: no fragment here needed them. */
static bool
is_late(const struct target *g)
{
	return g->c->epoch != PBOX_MAP_EPOCH &&
	       !pbox_schedule_reaches(&g->st->t->schedule[g->c->group], g->fragment->version + 1);
}

void
shard_restored(struct pbox_shard *s, const struct target *g, bool lost)
{
	struct pbox_shard_table *st = g->st;
	struct pbox_fragment *fragment = g->fragment;
	struct pbox_record *r = fragment->record;
	bool empty = st->t->mode == PBOX_MODE_OPTIMISER && !fragment->has_result;
	bool late = !lost && is_late(g);

	/* a fragment is restored once: nobody waits for it after that (R10.6) */
	PBOX_ASSERT(
		is_restoring(g) && atomic_load_explicit(&st->restoring, memory_order_relaxed) > 0);
	lost |= late;
	fragment->closed = lost ? PBOX_FRAGMENT_LOST : empty ? PBOX_FRAGMENT_UNINITIALISED : 0;
	fragment->closed |= late ? PBOX_FRAGMENT_LATE : 0;
	fragment->init = 0;
	if (lost) {
		if (atomic_load_explicit(&st->lost, memory_order_relaxed) == 0) {
			st->lost_chunk = g->chunk;
			st->lost_frag = g->frag;
			st->lost_late = late;
		}
		atomic_fetch_add_explicit(&st->lost, 1, memory_order_release);
	}
	if (fragment->version != 0)
		shard_finished(st, fragment->version);
	shard_count(s, lost ? PBOX_SS_RESTORE_LOST : PBOX_SS_RESTORED);
	if (r != NULL) {
		for (unsigned i = 0; i < words_of(g->j); i++)
			for (uint64_t left = r->has[i] & restorers(g, i); left != 0;
				left &= left - 1)
				shard_answer_report(s, g, i * 64 + (unsigned)__builtin_ctzll(left),
					how_it_is(fragment));
		shard_record_close(s, g->j, fragment);
	}
	atomic_fetch_sub_explicit(&st->restoring, 1, memory_order_release);
}

void
shard_restore(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_fragment *fragment = g->fragment;
	unsigned w = f->hdr.worker;

	if ((fragment->closed & PBOX_FRAGMENT_MOVED) != 0) {
		shard_count(s, PBOX_SS_DROP_MAP_EPOCH);
		return;
	}
	if (!is_restoring(g)) {
		shard_count(s, PBOX_SS_RX_RESTORE);
		if (g->st->discipline->late != NULL && fragment->closed == 0)
			g->st->discipline->late(g, f);
		answer_restore(s, g, w, f->hdr.round, f->hdr.ts, how_it_is(fragment));
		return;
	}
	if ((restorers(g, w / 64) >> w % 64 & 1) == 0) {
		unsigned silent = shard_first_silent(g);

		shard_count(s, PBOX_SS_RX_RESTORE);
		answer_restore(s, g, w, f->hdr.round, f->hdr.ts,
			(struct pbox_restore_ok){.state = PBOX_RESTORE_NOTED,
				.missing = silent != PBOX_NO_WORKER ? silent : PBOX_WAIT_NOBODY});
		return;
	}
	if (fragment->record == NULL && shard_record_open(s, g) == NULL) {
		shard_count(s, PBOX_SS_DROP_NO_RECORD);
		return;
	}
	shard_count(s, PBOX_SS_RX_RESTORE);
	g->st->discipline->report(s, g, f);
}

static void
decide_all(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_shard_table *st)
{
	const struct pbox_table *t = st->t;

	for (uint32_t i = 0; i < t->n_chunks; i++) {
		struct target g = {.j = j, .st = st, .c = &t->chunk[i]};

		if (!s->own_endpoint[g.c->endpoint])
			continue;
		g.chunk = t->first_chunk_id + i;
		for (g.frag = 0; g.frag < g.c->fragments; g.frag++) {
			g.fragment = &g.c->fragment[g.frag];
			g.elements = pbox_chunk_frag_elements(t, g.c, g.frag);
			if (is_restoring(&g))
				st->discipline->report(s, &g, NULL);
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
			decide_all(s, j, j->table[i]);
}
