/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "law.h"

/*
 * Tables with two phases a round (R6.15), a part of the law of rounds. What workers push does not depend on what they pull, so the
 * checker knows the sums of each round, their squares, and the coefficient, whatever is lost on the way: each fragment must
 * make its step with that one, or, where it is -1, none at all.
 */

#define ROUNDS   64
#define UNIT_LOG 80
#define LARGEST  55

struct sim_held {
	struct sim *s;
	unsigned job, life, known; /* rounds of this life that are */
	struct sim_round round[ROUNDS];
};

void
hold_begin(struct sim *s, unsigned job, struct sim_fragment *f)
{
	struct sim_job *j = &s->job[job];

	if (!sim_is_held(sim_spec(&s->sc, job, f)))
		return;
	if (j->held[f->table] == NULL) {
		j->held[f->table] = calloc(1, sizeof(struct sim_held));
		PBOX_ASSERT(j->held[f->table] != NULL);
		j->held[f->table]->s = s;
		j->held[f->table]->job = job;
		j->held[f->table]->life = j->life;
	}
	f->held = j->held[f->table];
}

void
hold_forget(struct sim_job *j)
{
	for (unsigned t = 0; t < SIM_TABLES; t++) {
		free(j->held[t]);
		j->held[t] = NULL;
	}
}

uint32_t
hold_bad(const struct sim_scenario *sc, const struct sim_push *k, uint32_t tensor, uint64_t at)
{
	const struct sim_table_spec *t = &sc->job[k->job].table[k->table];
	uint64_t x = sim_mix(sim_mix(sc->seed ^ 0xBAD, k->job * SIM_TABLES + k->table), k->round);
	uint32_t which;

	if (!sim_is_held(t) || x % 5 != 0 || k->slot >= sim_slots(&sc->job[k->job]))
		return 0;
	which = (uint32_t)(x >> 8) % t->fixed.tensors;
	if (k->slot != (x >> 24) % sim_slots(&sc->job[k->job]) || tensor != which ||
		at != (x >> 32) % t->tensor[which].elements)
		return 0;
	return x % 2 == 0 ? 0x7F800000 : 0x7FC00000;
}

/* ---- squares ------------------------------------------------------------------------------------- */

static int
unit_log(double max_norm)
{
	return max_norm == 0.0 ? 0 : (int)ceil(log2(max_norm));
}

/* Digit by digit: x^2 = m * 2^e with a whole m of 48 bits. */
static void
add_square(struct sim_round *r, float x, int unit)
{
	int e, at;
	double m;
	uint64_t whole;

	if (!isfinite(x) || fabs((double)x) > ldexp(1.0, LARGEST + unit)) {
		r->non_finite++;
		return;
	}
	if (x == 0.0f)
		return;
	m = frexp(x, &e);
	whole = (uint64_t)ldexp(fabs(m), 24);
	whole *= whole;
	at = 2 * (e - 24 - unit) + UNIT_LOG; /* of its lowest bit */
	if (at < 0) {
		whole = at > -64 ? whole >> -at : 0;
		at = 0;
	}
	for (unsigned i = 0; i < 64; i++) {
		unsigned bit = (unsigned)at + i;

		if ((whole >> i & 1) == 0)
			continue;
		for (; bit < 192; bit++) { /* with its carry */
			r->square[bit / 64] ^= UINT64_C(1) << bit % 64;
			if ((r->square[bit / 64] >> bit % 64 & 1) != 0)
				break;
		}
	}
}

static void
add_fragment(struct sim_held *h, struct sim_fragment *f, uint32_t round, struct sim_round *r)
{
	int unit = unit_log(sim_max_norm(&h->s->sc, h->job, f->table));
	float sum[SIM_MTU / 2];
	uint64_t samples;

	sim_mean(&h->s->sc, h->job, h->life, f, round, sum, &samples);
	for (uint32_t i = 0; i < f->elements; i++)
		add_square(r, sum[i], unit);
}

double
hold_coefficient(const uint64_t square[3], uint32_t non_finite, double max_norm)
{
	double sum = 0.0, norm;

	if (non_finite > 0)
		return -1.0;
	if (max_norm == 0.0)
		return 1.0;
	for (unsigned i = 3; i-- > 0;)
		sum = sum * 0x1p64 + (double)square[i];
	norm = sqrt(ldexp(sum, 2 * unit_log(max_norm) - UNIT_LOG));
	return (float)fmin(1.0, max_norm / (norm + 1e-6));
}

static void
begin_life(struct sim_held *h)
{
	if (h->life != h->s->job[h->job].life)
		h->known = 0;
	h->life = h->s->job[h->job].life;
}

/* Rounds become known in their order: all contributions have come, so it is known in which nodes. */
static const struct sim_round *
round_of(struct sim_held *h, unsigned table, uint32_t round)
{
	const struct sim_job *j = &h->s->job[h->job];

	begin_life(h);
	PBOX_ASSERT(round > 0 && round < ROUNDS);
	while (h->known < round) {
		struct sim_round *r = &h->round[h->known + 1];

		*r = (struct sim_round){.steps = h->known > 0 ? r[-1].steps : 0};
		h->known++;
		for (uint32_t i = 0; i < j->n_fragments; i++)
			if (j->fragment[i].table == table)
				add_fragment(h, &j->fragment[i], h->known, r);
		r->coefficient = hold_coefficient(
			r->square, r->non_finite, sim_max_norm(&h->s->sc, h->job, table));
		r->steps += r->coefficient < 0.0;
	}
	return &h->round[round];
}

const struct sim_round *
hold_round(const struct sim_fragment *f, uint32_t round)
{
	return round_of(f->held, f->table, round);
}

uint32_t
hold_steps(struct sim *s, unsigned job, unsigned table, uint32_t round)
{
	return round_of(s->job[job].held[table], table, round)->steps;
}

/* ---- what the box says ----------------------------------------------------------------------------- */

static bool
is_there(const struct sim *s, const struct sim_fragment *f, uint32_t round)
{
	(void)s;
	for (unsigned i = 0; i < f->slots; i++)
		if (pbox_serial_diff(f->slot[i].arrived, round) < 0)
			return false;
	return true;
}

void
hold_result(struct sim *s, unsigned job, const struct sim_fragment *f, uint32_t round)
{
	const struct sim_job *j = &s->job[job];

	/* a restarted box has it of one who knows the coefficient, and what was pushed is lost with it */
	if (f->held == NULL || round == 0 || sim_was_restarted(s, job))
		return;
	for (uint32_t i = 0; i < j->n_fragments; i++)
		if (j->fragment[i].table == f->table && !is_there(s, &j->fragment[i], round))
			sim_fail(s,
				"job %u chunk %x frag %u: RESULT of round %u before chunk %x frag %u was summed",
				job, f->chunk, f->frag, round, j->fragment[i].chunk,
				j->fragment[i].frag);
}

static void
check_missing(struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h)
{
	const struct sim_job *j = &s->job[job];
	const struct sim_job_spec *spec = &s->sc.job[job];
	uint32_t worker = pbox_norm_missing_get(h);
	bool known = true, missing = false;

	if (worker == PBOX_WAIT_NOBODY)
		return;
	for (uint32_t i = 0; i < j->n_fragments && worker < spec->workers; i++) {
		const struct sim_fragment *g = &j->fragment[i];

		if (g->table != f->table || g->endpoint != f->endpoint || g->box != f->box)
			continue;
		known &= slots_all_taken(s, job, g, h->round);
		for (unsigned k = sim_slots_of(spec, worker); k < sim_slots_of(spec, worker + 1);
			k++)
			missing |= pbox_serial_diff(g->slot[k].arrived, h->round) < 0 ||
				   g->slot[k].at == s->now;
	}
	if (!missing && known)
		sim_fail(s,
			"job %u endpoint %u: NORM_OK of round %u names worker %u, and all that it has has come",
			job, f->endpoint, h->round, worker);
}

static void
check_sum(struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_norm *m,
	uint32_t round)
{
	const struct sim_job *j = &s->job[job];
	struct sim_round want = {0};
	uint32_t n = 0;

	for (uint32_t i = 0; i < j->n_fragments; i++) {
		struct sim_fragment *g = &j->fragment[i];

		if (g->table != f->table || g->endpoint != f->endpoint || g->box != f->box)
			continue;
		n++;
		if (!is_there(s, g, round)) {
			sim_fail(s,
				"job %u endpoint %u: NORM_OK of round %u before chunk %x frag %u was summed",
				job, f->endpoint, round, g->chunk, g->frag);
			return;
		}
		add_fragment(f->held, g, round, &want);
	}
	if (m->fragments != n || m->non_finite != want.non_finite ||
		memcmp(m->square, want.square, sizeof(want.square)) != 0)
		sim_fail(s,
			"job %u endpoint %u: NORM_OK of round %u has %u fragments, %u elements that are not finite, %llx; not %u, %u, %llx",
			job, f->endpoint, round, m->fragments, m->non_finite,
			(unsigned long long)m->square[0], n, want.non_finite,
			(unsigned long long)want.square[0]);
}

void
hold_normed(struct sim *s, unsigned job, const struct pbox_send *out)
{
	const struct pbox_hdr *h = &out->hdr;
	const struct sim_fragment *f = sim_find(&s->job[job], h->chunk, h->frag);
	struct pbox_norm m;

	if (f == NULL && s->job[job].n_fragments == 0)
		return;
	if (f == NULL || f->held == NULL || (h->length != 0 && h->length != PBOX_NORM_LEN)) {
		sim_fail(s, "NORM_OK of a table that has none, or of %u bytes", h->length);
		return;
	}
	begin_life(f->held);
	if (h->length == 0) {
		check_missing(s, job, f, h);
		return;
	}
	m = pbox_norm_get(out->payload);
	if (m.fragments > 0)
		check_sum(s, job, f, &m, h->round);
	if (m.coefficient != 0.0 && m.coefficient != hold_round(f, h->round)->coefficient)
		sim_fail(s, "job %u: NORM_OK of round %u says coefficient %g, not %g", job,
			h->round, m.coefficient, hold_round(f, h->round)->coefficient);
}
