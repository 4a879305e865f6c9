/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * A chunk has moved here, and of its fragments there is more than what workers hold as results: the state of an optimiser, or
 * parameters in full precision. The former home has closed it for good, and keeps all of it. A worker that can reach that home
 * fetches it there and brings it here, part by part (R16.13).
 */

#include "rounds.h"

/* A worker that brings nothing for so long loses its turn to one that asks. */
#define PATIENCE_MS 300

static uint16_t
now_ms(const struct pbox_shard *s)
{
	return (uint16_t)(s->now_ns / 1000000);
}

void
rounds_carry_begin(const struct target *g)
{
	struct pbox_record *r = g->fragment->record;

	PBOX_ASSERT(is_restoring(g) && r->open);
	r->restoring.brought = r->restoring.parts = 0;
	r->restoring.carrier = PBOX_NO_WORKER;
	memset(r->expect, 0, slot_words(g->j) * sizeof(*r->expect));
}

void
rounds_carry_report(const struct target *g, unsigned worker, uint32_t source)
{
	const struct pbox_record *r = g->fragment->record;

	if (!pbox_bit_get(r->has, worker) || r->report[worker].rounds.source != source)
		pbox_bit_clear(r->expect, worker);
}

static bool
may_carry(const struct target *g, unsigned w)
{
	const struct pbox_record *r = g->fragment->record;

	return (restorers(g, w / 64) >> w % 64 & 1) != 0 && pbox_bit_get(r->has, w) &&
	       r->report[w].rounds.source != 0 && !pbox_bit_get(r->expect, w);
}

/* The first one, seen from a worker that differs from fragment to fragment; PBOX_NO_WORKER: none. */
static unsigned
first_carrier(const struct target *g)
{
	unsigned n = g->j->job->workers, from = (g->chunk + g->frag) % n;

	for (unsigned i = 0; i < n; i++)
		if (may_carry(g, (from + i) % n))
			return (from + i) % n;
	return PBOX_NO_WORKER;
}

bool
rounds_may_be_carried(const struct target *g)
{
	return g->fragment->record != NULL && pbox_table_has_more(g->st->t) &&
	       first_carrier(g) != PBOX_NO_WORKER;
}

static void
ask(struct pbox_shard *s, const struct target *g)
{
	PBOX_ASSERT(is_restoring(g) && g->fragment->record->restoring.carrier != PBOX_NO_WORKER);
	shard_answer_report(s, g, g->fragment->record->restoring.carrier,
		(struct pbox_restore_ok){
			.state = PBOX_RESTORE_FETCH, .arrays = 1 + pbox_table_states(g->st->t)});
}

void
rounds_carry_ask(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct record_restoring *r = &g->fragment->record->restoring;
	unsigned carrier = r->carrier, asker = f != NULL ? f->hdr.worker : PBOX_NO_WORKER;

	if (carrier == PBOX_NO_WORKER || !may_carry(g, carrier))
		carrier = first_carrier(g);
	else if (f != NULL && may_carry(g, asker) &&
		 (uint16_t)(now_ms(s) - r->asked_ms) > PATIENCE_MS)
		carrier = asker;
	if (carrier != r->carrier)
		r->asked_ms = now_ms(s);
	if (carrier != r->carrier || carrier == asker) {
		r->carrier = (uint16_t)carrier;
		ask(s, g);
	}
	if (f != NULL && asker != carrier)
		shard_answer_noted(s, g, asker, carrier);
}

void
rounds_carry_none(const struct target *g)
{
	struct pbox_shard_table *st = g->st;

	g->fragment->stateless = 0;
	/* one box alone says so for the whole table (R10.8) */
	if (st->t->boxes < 2 || !pbox_table_has_more(st->t) ||
		(g->fragment->version == 0 && st->t->pull_format == PBOX_FMT_FP32))
		return;
	g->fragment->stateless = 1;
	if (atomic_load_explicit(&st->stateless, memory_order_relaxed) == 0)
		st->stateless_chunk = g->chunk;
	atomic_fetch_add_explicit(&st->stateless, 1, memory_order_release);
}

void
rounds_done(const struct target *g, unsigned worker, struct pbox_restore_ok *m)
{
	(void)worker;
	m->stateless = g->fragment->stateless;
}

/* All of it is here. */
static void
complete(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_fragment *fragment = g->fragment;
	const struct pbox_part m = pbox_part_get(&f->hdr);

	PBOX_ASSERT(is_restoring(g) && shard_first_silent(g) == PBOX_NO_WORKER);
	fragment->version = m.version;
	fragment->has_result = 1;
	fragment->stateless = 0;
	fragment->samples = m.samples;
	fragment->contributors = m.version == 0 ? 0 : g->j->slots; /* all, at several boxes */
	shard_refresh_answer(s, g);
	shard_restored(s, g, false);
}

static void
answer_part(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_part m = pbox_part_get(&f->hdr);
	struct pbox_send out = shard_answer(g, PBOX_INIT_OK, f->hdr.ts);

	out.hdr.flags = PBOX_F_HAVE;
	m.samples = 0;
	pbox_part_put(&out.hdr, &m);
	shard_send_to(s, g, &out, f->hdr.worker);
}

static bool
take_part(const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_table *t = g->st->t;
	struct record_restoring *r = &g->fragment->record->restoring;
	const struct pbox_part m = pbox_part_get(&f->hdr);
	unsigned pieces = (g->elements + t->init_elements - 1) / t->init_elements;
	unsigned part = m.array * pieces + m.offset / t->init_elements;
	unsigned parts = (1 + pbox_table_states(t)) * pieces;

	_Static_assert(PBOX_INIT_PIECES * 3 < 32, "a bit for each part");
	PBOX_ASSERT(part < parts && parts < 32 && is_restoring(g));
	if (r->parts == 0 || r->brought != m.version)
		r->parts = 0;
	r->brought = m.version;
	/* what was here is of an earlier version, and no copy of that any more */
	g->fragment->has_result = 0;
	shard_write_part(g, f);
	r->parts |= 1u << part;
	return r->parts == (1u << parts) - 1;
}

void
rounds_bring(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_record *r = g->fragment->record;
	const struct pbox_part m = pbox_part_get(&f->hdr);
	uint32_t version;

	if (m.array > pbox_table_states(g->st->t)) {
		shard_count(s, PBOX_SS_DROP_INIT_FORBIDDEN);
		return;
	}
	if (is_restoring(g) && (r == NULL || shard_first_silent(g) != PBOX_NO_WORKER ||
				       !may_carry(g, f->hdr.worker))) {
		shard_count(s,
			PBOX_SS_RX_EARLY); /* of another time: its worker reports again, and hears more */
		return;
	}
	shard_count(s, PBOX_SS_RX_INIT);
	answer_part(s, g, f);
	if (!is_restoring(g))
		return;
	version = rounds_highest(g);
	if (m.version != version && m.version != version + 1) {
		/* a home that the fragment has gone on from: nothing that its workers could go on with */
		pbox_bit_set(r->expect, f->hdr.worker);
		rounds_report(s, g, NULL);
		return;
	}
	g->fragment->record->restoring.asked_ms = now_ms(s);
	if (take_part(g, f))
		complete(s, g, f);
}
