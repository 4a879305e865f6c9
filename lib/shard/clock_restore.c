/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Tables in clocks after a restart of the box (R14.11): the newest version that a worker holds is taken up, with the clocks
 * of all workers' pushes that are in it. Of these the vector has the low 8 bits. A worker says which of its own pushes its version
 * has, and lets go of none before a version has shown it; so of a worker that reports the newest version has that push or a few later
 * ones, and 8 bits say which.
 */

#include <string.h>

#include "clock.h"

/* By how much a version is later than another: the epoch counts first. */
static int
later(uint16_t epoch, uint32_t version, uint16_t than_epoch, uint32_t than)
{
	if (epoch != than_epoch)
		return (int16_t)(epoch - than_epoch);
	return pbox_serial_diff(version, than);
}

/* The first clock from `from` on that ends in these bits. */
static uint32_t
clock_from(uint32_t from, uint8_t bits)
{
	return from + (uint8_t)(bits - from);
}

static bool
is_restorer(const struct target *g, unsigned worker)
{
	return (restorers(g, worker / 64) >> worker % 64 & 1) != 0;
}

static bool
is_same(const struct report *a, const struct report *b)
{
	return a->clock.epoch == b->clock.epoch && a->version == b->version;
}

/* All restorers have reported: who has the newest version? PBOX_NO_WORKER: nobody has any. */
static unsigned
newest_held(const struct target *g)
{
	const struct pbox_record *r = g->fragment->record;
	unsigned best = PBOX_NO_WORKER;

	for (unsigned w = 0; r != NULL && w < g->j->job->workers; w++) {
		const struct report *a = &r->report[w], *b;

		if (!is_restorer(g, w) || !pbox_bit_get(r->want, w))
			continue;
		b = best != PBOX_NO_WORKER ? &r->report[best] : NULL;
		if (b == NULL || later(a->clock.epoch, a->version, b->clock.epoch, b->version) > 0)
			best = w;
	}
	return best;
}

/* Nobody has a version: the table begins, unless somebody's pushes to it were taken. */
static void
begin(struct pbox_shard *s, const struct target *g)
{
	const struct pbox_record *r = g->fragment->record;
	bool any = false;

	for (unsigned w = 0; r != NULL && w < g->j->job->workers; w++)
		any |= is_restorer(g, w) && r->report[w].clock.answered != 0;
	g->fragment->version = 0;
	g->fragment->has_result = 0;
	shard_restored(s, g, any);
}

/* Parameters and clocks of the version that the frame brings. */
static void
take_up(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_table *t = g->st->t;
	const struct pbox_restore_clock m = pbox_restore_clock_get(&f->hdr);
	const struct pbox_record *r = g->fragment->record;
	const uint8_t *vector = f->payload + f->hdr.length - t->vector;
	uint8_t *wire = pbox_chunk_frag_wire(t, g->c, g->frag);
	struct slowest *low = slowest_of(g);

	s->conf.reduce->unpack(
		pbox_chunk_frag_param(t, g->c, g->frag), f->payload, t->pull_format, g->elements);
	if (wire != NULL)
		memcpy(wire, f->payload, f->hdr.length - (size_t)t->vector);
	g->fragment->crc_is_old = true;
	g->fragment->version = m.version;
	g->fragment->has_result = 1;
	for (unsigned w = 0; w < t->vector;
		w++) /* of others no more is known than who is slowest */
		clocks_of(g)[w] = clock_from(
			is_restorer(g, w) ? r->report[w].clock.own : m.slowest, vector[w]);
	low->clock = m.slowest;
	slowest_unknown(g);
	low->restored = true;
	low->version = m.version;
	low->epoch = m.epoch;
	shard_restored(s, g, false);
}

static void
note_clocks(const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_restore_clock m = pbox_restore_clock_get(&f->hdr);
	struct report *c = shard_note_report(g, f);

	c->clock.own = m.own;
	c->clock.answered = m.answered;
	c->clock.epoch = m.epoch;
}

void
clock_report(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_restore_ok give = {.state = PBOX_RESTORE_GIVE};
	struct pbox_record *r = g->fragment->record;
	unsigned silent, best, w = f != NULL ? f->hdr.worker : PBOX_NO_WORKER;

	if (f != NULL)
		note_clocks(g, f);
	silent = shard_first_silent(g);
	if (silent != PBOX_NO_WORKER) {
		if (f != NULL)
			shard_answer_noted(s, g, w, silent);
		return;
	}
	best = newest_held(g);
	if (best == PBOX_NO_WORKER) {
		begin(s, g);
		return;
	}
	r->restoring.highest = r->report[best].version;
	if (f != NULL && pbox_bit_get(r->want, w) && is_same(&r->report[w], &r->report[best])) {
		if (f->hdr.length > 0)
			take_up(s, g, f);
		else
			shard_answer_report(s, g, w, give);
		return;
	}
	shard_answer_report(s, g, best, give);
	if (f != NULL)
		shard_answer_noted(s, g, w, best);
}

/*
 * It comes with what it held before, and was no restorer when the fragment was restored. Where the box has not been restarted since,
 * its clock is known. Else its low bits are.
 */
void
clock_late(const struct target *g, const struct pbox_frame *f)
{
	const struct slowest *low = slowest_of(g);
	const struct pbox_restore_clock m = pbox_restore_clock_get(&f->hdr);
	uint32_t *clock = &clocks_of(g)[f->hdr.worker];

	if (!low->restored || (m.have && m.epoch == g->c->epoch) ||
		*clock - m.own < UINT8_MAX) /* it is what that says */
		return;
	if (m.have && later(m.epoch, m.version, low->epoch, low->version) > 0)
		*clock = m.own - (uint8_t)(m.own - *clock); /* it alone had these pushes */
	else
		*clock = clock_from(m.own, (uint8_t)*clock);
	slowest_unknown(g);
}

void
clock_done(const struct target *g, unsigned worker, struct pbox_restore_ok *m)
{
	m->own = clocks_of(g)[worker];
}
