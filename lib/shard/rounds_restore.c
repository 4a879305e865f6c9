/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * After a restart of the box: which version a fragment goes on from, by what its workers hold (R10.6). Their
 * versions differ by one at most, and the highest one is taken.
 */

#include <string.h>

#include "rounds.h"

/* What the restorers that are left hold of a fragment. */
struct holding {
	uint32_t version, samples;
	uint16_t contributors;
	bool lower;     /* somebody holds less, or a member is no restorer */
	unsigned giver; /* who can give the version, or PBOX_NO_WORKER */
};

static void
note_report(const struct target *g, const struct pbox_frame *f)
{
	struct pbox_record *r = g->fragment->record;
	const struct pbox_restore_rounds m = pbox_restore_rounds_get(&f->hdr);
	struct report *c;

	if (r->arrived == 0)
		rounds_carry_begin(g);
	if (r->arrived == 0 || shard_is_newer(m.version, r->restoring.highest))
		r->restoring.highest = m.version;
	rounds_carry_report(g, f->hdr.worker, m.source);
	c = shard_note_report(g, f);
	c->rounds.samples = m.samples;
	c->rounds.source = m.source;
	c->rounds.contributors = m.contributors;
}

/* All restorers have reported: what do they hold? */
static struct holding
highest(const struct target *g)
{
	const struct pbox_record *r = g->fragment->record;
	struct holding h = {.giver = PBOX_NO_WORKER};
	unsigned n = 0;

	for (unsigned i = 0; i < words_of(g->j); i++)
		for (uint64_t left = restorers(g, i); left != 0; left &= left - 1) {
			unsigned w = i * 64 + (unsigned)__builtin_ctzll(left);
			const struct report *c = &r->report[w];

			if (n++ > 0 && c->version != h.version)
				h.lower = true;
			if (n > 1 && shard_is_newer(h.version, c->version))
				continue;
			if (n == 1 || shard_is_newer(c->version, h.version)) {
				h.version = c->version;
				h.samples = c->rounds.samples;
				h.contributors = c->rounds.contributors;
				h.giver = PBOX_NO_WORKER;
			}
			if (h.giver == PBOX_NO_WORKER && pbox_bit_get(r->want, w))
				h.giver = w;
		}
	h.lower |= n < g->j->job->workers;
	return h;
}

uint32_t
rounds_highest(const struct target *g)
{
	return highest(g).version;
}

/* What the optimiser had gathered is where the chunk was; here it may be of an earlier time. */
static void
forget_state(const struct target *g)
{
	size_t at = (size_t)g->frag * g->st->t->frag_elements, bytes = g->elements * sizeof(float);

	if (g->c->s0 != NULL)
		memset(g->c->s0 + at, 0, bytes);
	if (g->c->s1 != NULL)
		memset(g->c->s1 + at, 0, bytes);
}

/* The payload of the version that the fragment shall have, in the format of copies. */
static void
take_payload(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_table *t = g->st->t;
	uint8_t *wire = pbox_chunk_frag_wire(t, g->c, g->frag);
	unsigned format = shard_copy_format(t);

	s->conf.reduce->unpack(
		pbox_chunk_frag_param(t, g->c, g->frag), f->payload, format, g->elements);
	if (pbox_table_differs(t)) { /* workers may hold something else as this version */
		shard_replica_begins(g);
		g->fragment->plain = PBOX_PLAIN_NEXT;
	} else if (format != t->pull_format)
		g->fragment->plain = PBOX_PLAIN_THIS;
	else if (wire != NULL)
		memcpy(wire, f->payload, f->hdr.length);
	g->fragment->payload_crc = pbox_crc32c(0, f->payload, f->hdr.length);
}

/*
 * Decide, if all restorers have reported (R10.6). f: what the last one reported, or NULL. True: restored, and
 * answered.
 */
static bool
decide(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_fragment *fragment = g->fragment;
	struct holding h = highest(g);
	bool has = h.giver != PBOX_NO_WORKER, needed;

	/* nothing newer than the snapshot has; or nobody has anything */
	if (fragment->has_result && !shard_is_newer(h.version, fragment->version)) {
		fragment->stateless = 0;
		shard_restored(s, g, false);
		return true;
	}
	/* then a worker that can bring all of it does */
	if (rounds_may_be_carried(g))
		return false;
	/* also if all hold it: one that is killed now may go on from the version before */
	if (has && (f == NULL || f->hdr.length == 0 || f->hdr.round != h.version))
		return false;
	if (has)
		take_payload(s, g, f);
	/* a residual of an earlier version has been said since */
	if (g->st->t->boxes > 1 || (g->st->t->mode == PBOX_MODE_ALLREDUCE &&
					   pbox_format_is_block(g->st->t->pull_format)))
		forget_state(g);
	needed = h.version != 0 && (h.lower || g->st->t->mode == PBOX_MODE_OPTIMISER);
	fragment->version = h.version;
	fragment->has_result = has;
	fragment->samples = has ? h.samples : 0;
	fragment->contributors = has ? h.contributors : 0;
	if (has)
		rounds_carry_none(g);
	shard_restored(s, g, needed && !has);
	return true;
}

/* The payload is needed: from the one who asks, if it has it, else from the first who has. */
static void
ask_for_payload(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_restore_ok give = {.state = PBOX_RESTORE_GIVE};
	struct holding h = highest(g);
	struct pbox_record *r = g->fragment->record;

	r->restoring.highest = h.version; /* who reported more may be gone */
	if (rounds_may_be_carried(g)) {
		rounds_carry_ask(s, g, f);
		return;
	}
	if (f != NULL && f->hdr.round == h.version && pbox_bit_get(r->want, f->hdr.worker)) {
		shard_answer_report(s, g, f->hdr.worker, give);
		return;
	}
	shard_answer_report(s, g, h.giver, give);
	if (f != NULL)
		shard_answer_noted(s, g, f->hdr.worker, h.giver);
}

void
rounds_report(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	unsigned silent;

	if (f != NULL)
		note_report(g, f);
	silent = shard_first_silent(g);
	if (silent == PBOX_NO_WORKER && !decide(s, g, f))
		ask_for_payload(s, g, f);
	else if (silent != PBOX_NO_WORKER && f != NULL)
		shard_answer_noted(s, g, f->hdr.worker, silent);
}

/* A snapshot is of one round. A fragment that was restored to it without a result has none to give: all workers
 * hold it. */
enum discipline_cut
rounds_at_cut(const struct pbox_fragment *fragment, const struct pbox_staging *staging)
{
	int32_t ahead = pbox_serial_diff(fragment->version, staging->round);

	if (ahead < 0)
		return pbox_serial_diff(fragment->version, staging->oldest) < 0 ? CUT_LAGS
										: CUT_AHEAD;
	return ahead == 0 && fragment->has_result != 0 ? CUT_HERE : CUT_PASSED;
}
