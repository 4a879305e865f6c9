/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Tables with two phases a round (R6.15): sums that wait, their squares, and the step. */

#include <math.h>
#include <string.h>

#include "hold.h"
#include "verdict.h"

/* ---- squares ------------------------------------------------------------------------------------ */

/* Each square is rounded down to a whole number of the unit by itself, so their sum does not depend on where and in which
 * order it is made. */
/* An element beyond 2^55 x 2^e counts as non-finite: its square has 190 bits. */
#define BEYOND_LOG 55

/* x * 2^up, squared and rounded down, where that has more than 63 bits. */
static unsigned
hold_add_large(uint64_t square[3], double y)
{
	uint64_t part[3] = {0};
	int e;
	double m = frexp(y * y, &e); /* y has 24 bits, so this is exact */
	uint64_t bits = (uint64_t)ldexp(m, 53);
	unsigned shift = (unsigned)(e - 53), word = shift / 64, rest = shift % 64;

	PBOX_ASSERT(e > 53 && word < 3);
	part[word] = bits << rest;
	if (rest > 0 && word < 2)
		part[word + 1] = bits >> (64 - rest);
	return pbox_norm_add(square, part);
}

static void
add_squares(struct hold_norm *n, const float *x, uint32_t elements, double max_norm)
{
	double up = ldexp(1.0, -pbox_norm_unit(max_norm) / 2),
	       beyond = ldexp(1.0, PBOX_NORM_UNIT_LOG / 2 + BEYOND_LOG);
	unsigned __int128 sum = 0;
	uint64_t part[3];

	for (uint32_t i = 0; i < elements; i++) {
		double y = fabs((double)x[i] * up);

		if (y < 0x1p31) {
			sum += (uint64_t)(y * y);
		} else if (y <= beyond) {
			n->non_finite += hold_add_large(n->square, y);
		} else {
			n->non_finite++;
		}
	}
	part[0] = (uint64_t)sum;
	part[1] = (uint64_t)(sum >> 64);
	part[2] = 0;
	n->non_finite += pbox_norm_add(n->square, part);
}

/* Fragments of the table at the endpoint. */
static uint32_t
hold_fragments_at(const struct pbox_table *t, unsigned endpoint)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->n_chunks; i++)
		if (t->chunk[i].endpoint == endpoint)
			n += t->chunk[i].fragments;
	return n;
}

/* ---- sums --------------------------------------------------------------------------------------- */

static struct pbox_held *
held_of(const struct target *g)
{
	return &g->c->held[g->frag];
}

float *
hold_store(const struct target *g)
{
	return g->c->hold + (size_t)g->frag * g->st->t->frag_elements;
}

/* What a SET has said for just this round; false: nobody knows it yet. */
static bool
coefficient_of(const struct target *g, uint32_t round, double *coefficient)
{
	return pbox_schedule_exact(&g->st->t->schedule[g->c->group], round, PBOX_HYPER_COEFFICIENT,
		       coefficient) &&
	       *coefficient != 0.0;
}

/* The version of the next round, of its sum: with a coefficient of -1 it is the one that is there. */
static void
step(struct pbox_shard *s, const struct target *g, double coefficient)
{
	const struct pbox_table *t = g->st->t;
	struct pbox_fragment *fragment = g->fragment;
	struct pbox_held *held = held_of(g);
	uint32_t round = fragment->version + 1;
	struct rounds_group *k = rounds_scalars(g->st, g->c->group, round);
	size_t at = (size_t)g->frag * t->frag_elements;
	float *param = pbox_chunk_frag_param(t, g->c, g->frag);
	uint8_t *wire = pbox_chunk_frag_wire(t, g->c, g->frag);

	PBOX_ASSERT(held->summed && held->contributors > 0 && initialised(g));
	if (coefficient > 0.0) {
		struct pbox_optim_scalars scalars = k->k;

		scalars.factor = (float)coefficient;
		scalars.clip = k->clip;
		s->conf.optim->of[t->optimiser]->step(param, hold_store(g),
			g->c->s0 != NULL ? g->c->s0 + at : NULL,
			g->c->s1 != NULL ? g->c->s1 + at : NULL, &scalars, g->elements);
		if (wire != NULL)
			s->conf.reduce->pack(wire, t->pull_format, param, g->elements);
		fragment->payload_crc =
			s->conf.reduce->crc32c(0, wire != NULL ? (const void *)wire : param,
				pbox_payload_bytes(t->pull_format, g->elements));
	}
	held->summed = false;
	fragment->version = round;
	fragment->samples = held->samples;
	fragment->contributors = held->contributors;
	fragment->has_result = 1;
	fragment->plain = 0;
	fragment->late = 0;
	shard_count(s, PBOX_SS_ROUNDS);
	shard_finished(g->st, round);
}

static void
make_step(struct pbox_shard *s, const struct target *g, double coefficient)
{
	struct pbox_staging *staging = g->st->staging;

	if (staging != NULL)
		shard_staging_before(staging, g);
	shard_send_batch(s); /* results of the version before may wait to be sent */
	step(s, g, coefficient);
	if (staging != NULL)
		shard_staging_after(s, staging, g);
}

void
hold_summed(struct pbox_shard *s, const struct target *g, unsigned contributors, uint64_t samples)
{
	struct pbox_held *held = held_of(g);
	uint32_t round = g->fragment->version + 1;
	struct hold_norm *n = &hold_norms_of(g)->round[round & 1];
	double coefficient;

	PBOX_ASSERT(!held->summed && contributors > 0);
	if (!n->used || n->round != round)
		*n = (struct hold_norm){.round = round, .used = true};
	add_squares(n, hold_store(g), g->elements,
		pbox_schedule_at(&g->st->t->schedule[g->c->group], round)->max_norm);
	n->fragments++;
	held->samples = samples > UINT32_MAX ? UINT32_MAX : (uint32_t)samples;
	held->contributors = (uint16_t)contributors;
	held->summed = true;
	/* after a restart of the box the coefficient may be there before the sum */
	if (coefficient_of(g, round, &coefficient)) {
		make_step(s, g, coefficient);
		shard_send_results(s, g);
	}
}

/* ---- frames ------------------------------------------------------------------------------------- */

bool
hold_contribute(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, bool own)
{
	int32_t ahead = pbox_serial_diff(f->hdr.round, g->fragment->version);

	/* its flight would fill a window until the norm is known, and that waits for fragments beyond the window */
	if (f->hdr.type == PBOX_PUSHPULL) {
		if (!verdict_repeat(s, g, f))
			return true;
		shard_count(s, PBOX_SS_DROP_NODE);
		shard_send_error(s, g, f, PBOX_E_BAD_REQUEST);
		return true;
	}
	if (!initialised(g) || ahead != 1 || !hold_is_summed(g))
		return false;
	if (!verdict_repeat(s, g, f))
		return true;
	if (!own) {
		shard_count(s, PBOX_SS_DROP_NODE);
		shard_send_error(s, g, f, PBOX_E_BAD_REQUEST);
		return true;
	}
	shard_count(s, PBOX_SS_RX_DUP_PENDING);
	pbox_stat_add(&g->j->member[f->hdr.worker].repeats, 1);
	rounds_push_ok(s, g, f);
	return true;
}

bool
hold_pull(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	uint32_t round = g->fragment->version + 1;
	double coefficient;

	if ((f->hdr.flags & PBOX_F_LATEST) != 0 || f->hdr.round != round || !hold_is_summed(g))
		return false;
	if (!coefficient_of(g, round, &coefficient)) {
		shard_count(s, PBOX_SS_RX_PULL);
		shard_send_wait(s, g, f);
		return true;
	}
	if (!verdict_payload(s, g))
		return true;
	make_step(s, g, coefficient);
	shard_count(s, PBOX_SS_RX_PULL);
	pbox_stat_add(&g->j->member[f->hdr.worker].pulls, 1);
	shard_send_result(s, g, f->hdr.worker, f->hdr.ts, true);
	return true;
}

/* The first worker that a fragment of the endpoint waits for in the round. */
static uint32_t
hold_first_missing(const struct target *g, uint32_t round)
{
	const struct pbox_table *t = g->st->t;

	for (uint32_t i = 0; i < t->n_chunks; i++) {
		struct pbox_chunk *c = &t->chunk[i];

		for (unsigned k = 0; c->endpoint == g->c->endpoint && k < c->fragments; k++) {
			struct target one = *g;
			struct pbox_hdr h = {0};

			if (c->held[k].summed || c->fragment[k].version + 1 != round)
				continue;
			one.c = c;
			one.frag = (uint16_t)k;
			one.fragment = &c->fragment[k];
			g->st->discipline->wait(&one, 0, &h);
			return c->fragment[k].record != NULL ? pbox_wait_rounds_get(&h).missing : 0;
		}
	}
	return PBOX_WAIT_NOBODY;
}

/* Has each fragment of the endpoint that version, or a later one? */
static bool
all_have(const struct target *g, uint32_t round)
{
	const struct pbox_table *t = g->st->t;

	for (uint32_t i = 0; i < t->n_chunks; i++)
		for (unsigned k = 0;
			t->chunk[i].endpoint == g->c->endpoint && k < t->chunk[i].fragments; k++)
			if (pbox_serial_diff(t->chunk[i].fragment[k].version, round) < 0)
				return false;
	return true;
}

void
hold_norm(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct hold_norms *all = hold_norms_of(g);
	uint32_t round = f->hdr.round;
	const struct hold_norm *n = &all->round[round & 1];
	struct pbox_norm m = {0};
	uint8_t payload[PBOX_NORM_LEN];
	struct pbox_send out = {
		.hdr = {.type = PBOX_NORM_OK,
			.chunk = g->chunk,
			.frag = g->frag,
			.round = round,
			.ts = f->hdr.ts},
	};
	bool complete, looks = (f->hdr.flags & PBOX_F_RETX) != 0;

	shard_count(s, PBOX_SS_RX_PULL);
	if (!g->st->t->hold) {
		shard_send_error(s, g, f, PBOX_E_BAD_REQUEST);
		return;
	}
	if (all->fragments == 0)
		all->fragments = hold_fragments_at(g->st->t, g->c->endpoint);
	complete = n->used && n->round == round && n->fragments == all->fragments;
	/* a fragment that a restarted box has from its workers was summed before: the sum of the others is another norm */
	if (complete) {
		memcpy(m.square, n->square, sizeof(m.square));
		m.fragments = n->fragments;
		m.non_finite = n->non_finite;
	}
	/* where all are, the coefficient is not needed any more: who had it may have gone on (R10.4) */
	if (coefficient_of(g, round, &m.coefficient) || complete || (looks && all_have(g, round))) {
		pbox_norm_put(payload, &m);
		out.hdr.length = sizeof(payload);
		out.payload = payload;
		out.payload_crc = pbox_crc32c(0, payload, sizeof(payload));
	} else {
		pbox_norm_missing_put(
			&out.hdr, looks ? hold_first_missing(g, round) : PBOX_WAIT_NOBODY);
	}
	shard_send_to(s, g, &out, f->hdr.worker);
}
