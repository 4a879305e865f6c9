/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "law.h"
#include "law_blocks.h"
#include "law_replica.h"

/*
 * Rounds and a restart of the box: the checker knows from the frames that reach the box what each fragment must be
 * restored to, and the reference goes on from there.
 */

static float *
copy(float *to, const float *from, uint32_t n)
{
	if (to == NULL)
		to = calloc(n, sizeof(*to));
	PBOX_ASSERT(to != NULL);
	memcpy(to, from, n * sizeof(*to));
	return to;
}

/* The disk gets what the fragment has. */
void
rounds_keep(struct sim *s, unsigned job, struct sim_fragment *f)
{
	if (!f->ready || f->version != f->published || f->no_result || sim_chance(s, 0.1))
		return; /* some blocks are lost */
	if (f->version == 0 && sim_spec(&s->sc, job, f)->fixed.mode == PBOX_MODE_ALLREDUCE)
		return;
	f->has_snapshot = true;
	f->snapshot.version = f->version;
	f->snapshot.weight = f->weight[f->version & 1];
	f->snapshot.param = copy(f->snapshot.param, f->param, f->elements);
	f->snapshot.s0 = copy(f->snapshot.s0, f->s0, f->elements);
	f->snapshot.s1 = copy(f->snapshot.s1, f->s1, f->elements);
	if (replica_is(&s->sc, job, f))
		replica_keep(f);
}

/* Another run of the job begins: nobody holds anything. */
void
rounds_forget(struct sim_fragment *f)
{
	sim_reference_forget(f);
	f->published = 0;
	f->has_snapshot = f->used_snapshot = f->no_result = false;
	slots_reset(f, 0);
}

bool
rounds_load(struct sim *s, unsigned job, struct sim_fragment *f, struct pbox_table *t,
	struct pbox_chunk *c)
{
	size_t first = (size_t)f->frag * t->frag_elements;
	struct pbox_fragment *fragment = &c->fragment[f->frag];
	size_t bytes = (size_t)f->elements * pbox_format_wide(t->pull_format);
	uint8_t *wire = c->wire != NULL ? c->wire + first * 2 : (uint8_t *)(c->param + first);

	(void)s;
	(void)job;
	f->used_snapshot = f->has_snapshot;
	if (!f->has_snapshot)
		return false;
	memcpy(c->param + first, f->snapshot.param, f->elements * sizeof(float));
	if (c->s0 != NULL)
		memcpy(c->s0 + first, f->snapshot.s0, f->elements * sizeof(float));
	if (c->s1 != NULL)
		memcpy(c->s1 + first, f->snapshot.s1, f->elements * sizeof(float));
	if (c->replica != NULL) {
		replica_load(f, c->replica + first);
		wire = (uint8_t *)(c->replica + first);
		fragment->plain = PBOX_PLAIN_NEXT;
	} else if (pbox_format_is_block(t->pull_format)) {
		wire = (uint8_t *)(c->param + first);
		fragment->plain = 1;
	} else if (c->wire != NULL)
		sim_narrow(wire, t->pull_format, f->snapshot.param, f->elements);
	fragment->version = f->snapshot.version;
	fragment->samples = f->snapshot.weight;
	fragment->contributors = (uint16_t)f->slots;
	fragment->payload_crc = pbox_crc32c(0, wire, bytes);
	fragment->has_result = 1;
	return true;
}

/* ---- what the workers report --------------------------------------------------------------- */

void
rounds_note_given(struct sim_fragment *f, const struct pbox_hdr *h, const uint8_t *payload)
{
	if (h->length == 0)
		return;
	if (f->given == NULL)
		f->given = malloc((size_t)f->elements * 4);
	PBOX_ASSERT(f->given != NULL);
	memcpy(f->given, payload, h->length);
	f->given_version = h->round;
}

void
rounds_told(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	(void)s;
	(void)job;
	f->told[h->worker].token = h->token;
	f->told[h->worker].version = h->round;
	f->told[h->worker].have = (h->flags & PBOX_F_HAVE) != 0;
	rounds_note_given(f, h, payload);
}

/* R10.6, from what has reached the box. */
static uint32_t
must_be(struct sim *s, unsigned job, const struct sim_fragment *f, bool *have)
{
	const struct sim_part *j = sim_part(s, job);
	uint32_t v = 0;

	*have = false;
	for (unsigned w = 0; w < s->sc.job[job].workers; w++) {
		if (j->token[w] == 0 || j->restorer[f->table][w] != j->token[w])
			continue;
		if (f->told[w].token != j->token[w]) {
			if (sim_restart_may_end(s, job, w))
				continue;
			sim_fail(s,
				"job %u chunk %x frag %u is restored before worker %u has reported",
				job, f->chunk, f->frag, w);
			return 0;
		}
		if (f->told[w].version > v)
			*have = false;
		if (f->told[w].version >= v) {
			v = f->told[w].version;
			*have |= f->told[w].have;
		}
	}
	return v;
}

/* The reference goes on from a snapshot. */
static void
from_snapshot(struct sim *s, unsigned job, struct sim_fragment *f)
{
	uint32_t v = f->snapshot.version;

	f->version = v;
	copy(f->param, f->snapshot.param, f->elements);
	copy(f->s0, f->snapshot.s0, f->elements);
	copy(f->s1, f->snapshot.s1, f->elements);
	f->weight[v & 1] = f->snapshot.weight;
	sim_narrow(f->answer[v & 1], sim_spec(&s->sc, job, f)->fixed.pull_format,
		replica_is(&s->sc, job, f) ? replica_from_snapshot(f) : f->param, f->elements);
}

/* From what a worker gave: parameters as the pull format has them, and the state of a snapshot. */
void
rounds_from_worker(struct sim *s, unsigned job, struct sim_fragment *f, uint32_t v)
{
	unsigned format = sim_spec(&s->sc, job, f)->fixed.pull_format;
	size_t bytes = (size_t)f->elements * pbox_format_wide(format);

	if (f->version >= v && f->version - v <= 1 && v > 0 &&
		memcmp(f->answer[v & 1], f->given, bytes) != 0)
		sim_fail(s, "a worker gives other bytes of version %u than it was sent", v);
	f->version = v;
	memcpy(f->answer[v & 1], f->given, bytes);
	for (uint32_t i = 0; i < f->elements; i++)
		f->param[i] = sim_widen(f->given, format, i);
	if (replica_is(&s->sc, job, f))
		replica_begins(f);
	memset(f->s0, 0, f->elements * sizeof(float));
	memset(f->s1, 0, f->elements * sizeof(float));
	if (f->used_snapshot && !blocks_answer(&s->sc, job, f)) {
		copy(f->s0, f->snapshot.s0, f->elements);
		copy(f->s1, f->snapshot.s1, f->elements);
	}
}

bool
rounds_has_more(const struct sim *s, unsigned job, const struct sim_fragment *f)
{
	const struct pbox_declare *d = &sim_spec(&s->sc, job, f)->fixed;

	return d->mode == PBOX_MODE_OPTIMISER &&
	       (d->optimiser != PBOX_OPT_SGD || d->pull_format != PBOX_FMT_FP32);
}

static void
restored(struct sim *s, unsigned job, struct sim_fragment *f, uint32_t base, bool without)
{
	bool mode1 = sim_spec(&s->sc, job, f)->fixed.mode == PBOX_MODE_OPTIMISER, have, exact;
	uint32_t v = must_be(s, job, f, &have), want = v;

	if (f->used_snapshot && f->snapshot.version >= v)
		want = f->snapshot.version;
	if (s->failed)
		return;
	/* a move had not ended there: arrays that its former home still has are those of one box, of this version or the next */
	exact = !without && sim_is_fleet(&s->sc, &s->sc.job[job]) && rounds_has_more(s, job, f) &&
		(v > 0 || have || base > 0);
	if (base != want && !(exact && base == want + 1)) {
		sim_fail(s, "job %u chunk %x frag %u is restored at version %u, not %u", job,
			f->chunk, f->frag, base, want);
		return;
	}
	sim_reference_begin(&s->sc, job, s->job[job].life, f);
	f->restored_in = s->box->incarnation;
	f->no_result = false;
	if (f->used_snapshot && f->snapshot.version >= v) {
		from_snapshot(s, job, f);
	} else if (exact) {
		sim_note(s, "chunk %x frag %u of job %u has all that it had, at version %u",
			f->chunk, f->frag, job, base);
	} else if (v == 0 && !(mode1 && have)) {
		sim_reference_forget(f);
	} else if (f->given != NULL && f->given_version == v) {
		rounds_from_worker(s, job, f, v);
	} else {
		if (mode1 || have)
			sim_fail(s, "version %u is restored without its payload", v);
		if (blocks_answer(&s->sc, job, f))
			memset(f->s0, 0, f->elements * sizeof(float));
		f->no_result = true; /* all have pushed it, and nobody has pulled it */
		f->version = v;
	}
	f->published = base;
	slots_reset(f, base);
	/* what the disk has of a later version than this is of a run that is no more */
	if (f->has_snapshot && f->snapshot.version > base)
		f->has_snapshot = false;
}

void
rounds_restored(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	bool have;

	if (f->restored_in == s->box->incarnation)
		return;
	if (h->aux == PBOX_RESTORE_DONE) {
		restored(s, job, f, h->base, h->weight == 1);
	} else if (h->aux == PBOX_RESTORE_LOST) {
		must_be(s, job, f, &have);
		if (have)
			sim_fail(s, "job %u chunk %x frag %u is lost, and a worker has it", job,
				f->chunk, f->frag);
	}
}
