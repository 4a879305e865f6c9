/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Parameters and state of a fragment: worker 0 gives the first ones (INIT). For checkpoints workers FETCH those
 * of a finished version, and worker 0 gives them back by an INIT with flag LATEST (R6.13, R6.14).
 */

#include <string.h>

#include "verdict.h"

/* Where the piece at `offset` of an array of the fragment is; NULL: there is no such array. */
static float *
piece_of(const struct target *g, unsigned array, uint32_t offset)
{
	const struct pbox_table *t = g->st->t;
	size_t at = (size_t)g->frag * t->frag_elements;

	if (array > pbox_table_states(t))
		return NULL;
	if (array == 0)
		return pbox_chunk_frag_param(t, g->c, g->frag) + offset;
	return pbox_chunk_state(t, g->c, array) + at + offset;
}

static uint32_t
shard_piece_elements(const struct target *g, uint32_t offset)
{
	uint32_t left = g->elements - offset, most = g->st->t->init_elements;

	return left < most ? left : most;
}

/* Is the fragment open, is it about the current version, and does such an array exist? Else answered or counted. */
static bool
stands(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_part m = pbox_part_get(&f->hdr);
	int32_t ahead = pbox_serial_diff(m.version, g->fragment->version);

	if (g->fragment->closed != 0)
		shard_send_unready(s, g, f);
	else if (ahead != 0)
		shard_count(s, ahead < 0 ? PBOX_SS_DROP_ROUND_STALE : PBOX_SS_DROP_ROUND_FUTURE);
	else if (m.array > pbox_optim_states(g->st->t->optimiser)) /* a replica is no worker's */
		shard_count(s, PBOX_SS_DROP_INIT_FORBIDDEN);
	else
		return true;
	return false;
}

/* The answer to a FETCH; nothing of a fragment that is not here. False: none is sent. */
static bool
send_fetched(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, bool here)
{
	const struct pbox_part asked = pbox_part_get(&f->hdr);
	const struct pbox_part m = {.version = here ? g->fragment->version : 0,
		.offset = asked.offset,
		.samples = g->fragment->samples,
		.array = asked.array};
	struct pbox_send out = shard_answer(g, PBOX_FETCHED, f->hdr.ts);

	if (!verdict_payload(s, g))
		return false;
	shard_count(s, PBOX_SS_RX_FETCH);
	out.hdr.flags = f->hdr.flags & PBOX_F_LATEST;
	out.hdr.format = PBOX_FMT_FP32;
	pbox_part_put(&out.hdr, &m);
	if (here) {
		/* not shared: the next round changes it while a copy of this answer may still be queued */
		out.payload = piece_of(g, m.array, m.offset);
		out.hdr.length = (uint16_t)pbox_payload_bytes(
			PBOX_FMT_FP32, shard_piece_elements(g, m.offset));
		out.payload_crc = pbox_crc32c(0, out.payload, out.hdr.length);
	}
	shard_send_to(s, g, &out, f->hdr.worker);
	return true;
}

/* Workers fetch part after part, each when the new home has the one before. */
static bool
is_last_part(const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_part m = pbox_part_get(&f->hdr);

	return m.array == pbox_table_states(g->st->t) &&
	       m.offset + shard_piece_elements(g, m.offset) == g->elements;
}

void
shard_fetch(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	if (stands(s, g, f))
		send_fetched(s, g, f, true);
}

void
shard_fetch_left(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	unsigned closed = g->fragment->closed;

	if ((closed & PBOX_FRAGMENT_MOVED) == 0) /* a contribution could change it still */
		shard_send_unready(s, g, f);
	else if (piece_of(g, pbox_part_get(&f->hdr).array, 0) == NULL)
		shard_count(s, PBOX_SS_DROP_INIT_FORBIDDEN);
	else if (send_fetched(s, g, f,
			 (closed & PBOX_FRAGMENT_LOST) == 0 && g->fragment->has_result != 0) &&
		 is_last_part(g, f))
		shard_not_needed(g);
}

void
shard_refresh_answer(struct pbox_shard *s, const struct target *g)
{
	PBOX_ASSERT((g->fragment->closed & PBOX_FRAGMENT_MOVED) == 0);
	const struct pbox_table *t = g->st->t;
	uint8_t *wire = pbox_chunk_frag_wire(t, g->c, g->frag);

	if (pbox_table_differs(t))
		g->fragment->plain = PBOX_PLAIN_NEXT;
	else if (pbox_format_is_block(t->pull_format)) /* codes are made once, of a sum */
		g->fragment->plain = PBOX_PLAIN_THIS;
	else if (wire != NULL)
		s->conf.reduce->pack(
			wire, t->pull_format, pbox_chunk_frag_param(t, g->c, g->frag), g->elements);
	g->fragment->payload_crc = pbox_crc32c(0, shard_answer_at(g, shard_answer_format(g)),
		pbox_payload_bytes(shard_answer_format(g), g->elements));
}

/* Write the elements that an INIT brings. */
static void
write_piece(const struct target *g, const struct pbox_frame *f, float *to)
{
	size_t bytes = shard_piece_elements(g, pbox_part_get(&f->hdr).offset) * sizeof(*to);

	if ((f->hdr.flags & PBOX_F_ZERO) != 0)
		memset(to, 0, bytes);
	else
		memcpy(to, f->payload, bytes);
}

bool
shard_write_part(const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_part m = pbox_part_get(&f->hdr);
	float *to = piece_of(g, m.array, m.offset);

	if (to != NULL)
		write_piece(g, f, to);
	return to != NULL;
}

/* All pieces are here: who waits for the version that they are gets it. */
static void
open_fragment(struct pbox_shard *s, const struct target *g)
{
	PBOX_ASSERT(g->st->t->mode == PBOX_MODE_OPTIMISER && !g->fragment->has_result);
	if (g->c->replica != NULL)
		shard_replica_begins(g);
	shard_refresh_answer(s, g);
	g->fragment->has_result = 1;
	g->fragment->closed = 0;
	if (g->fragment->record != NULL) {
		shard_send_results(s, g);
		shard_record_close(s, g->j, g->fragment);
	}
}

static void
send_init_ok(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_part given = pbox_part_get(&f->hdr);
	const struct pbox_part m = {.version = given.version, .offset = given.offset};
	struct pbox_send out = shard_answer(g, PBOX_INIT_OK, f->hdr.ts);

	pbox_part_put(&out.hdr, &m);
	shard_send_to(s, g, &out, f->hdr.worker);
}

void
shard_initialise(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_table *t = g->st->t;
	uint32_t offset = pbox_part_get(&f->hdr).offset;
	unsigned which = offset / t->init_elements;
	unsigned pieces = (g->elements + t->init_elements - 1) / t->init_elements;

	if ((g->fragment->closed & PBOX_FRAGMENT_NOT_HERE) != 0) {
		shard_send_unready(s, g, f); /* what the workers hold comes first */
		return;
	}
	shard_count(s, PBOX_SS_RX_INIT);
	if (!g->fragment->has_result && (g->fragment->init & 1u << which) == 0) {
		write_piece(g, f, piece_of(g, 0, offset));
		g->fragment->init |= (uint8_t)(1u << which);
		if (g->fragment->init == (1u << pieces) - 1)
			open_fragment(s, g);
	}
	send_init_ok(s, g, f);
}

/* Has its session given something since, here? Then this is a copy of what that replaces, or has been overtaken by it,
 * and comes again. */
static bool
is_given_since(const struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
{
	uint64_t at = verdict_sent_at(s, j, f);

	if (j->given_token == f->hdr.token && at < j->given_at)
		return true;
	j->given_token = f->hdr.token;
	j->given_at = at;
	return false;
}

void
shard_give(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_record *r = g->fragment->record;
	const struct pbox_part m = pbox_part_get(&f->hdr);

	if (!stands(s, g, f))
		return;
	if ((r != NULL && r->arrived > 0) ||
		(g->c->held != NULL &&
			g->c->held[g->frag].summed)) { /* it was computed with what is here */
		shard_count(s, PBOX_SS_DROP_INIT_FORBIDDEN);
		shard_send_error(s, g, f, PBOX_E_BAD_REQUEST);
		return;
	}
	if (is_given_since(s, g->j, f)) {
		shard_count(s, PBOX_SS_DROP_REPLAYED);
		return;
	}
	shard_count(s, PBOX_SS_RX_INIT);
	shard_send_batch(s);
	PBOX_ASSERT(g->fragment->closed == 0 && m.version == g->fragment->version);
	write_piece(g, f, piece_of(g, m.array, m.offset));
	if (m.array == 0 && g->c->replica != NULL)
		shard_replica_begins(g);
	if (m.array == 0)
		shard_refresh_answer(s, g);
	send_init_ok(s, g, f);
}
