/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "box.h"

/*
 * The box crashes and is started again (section 10 of the protocol). All that it had is gone, but for
 * what the disk has: copies of some fragments at some earlier version. The checker knows from the
 * frames that reach the box what each fragment must be restored to, and the reference goes on from
 * there.
 */

void
sim_restart_plan(struct sim *s)
{
	uint8_t box = (uint8_t)s->box->number;

	for (unsigned i = 0; i < s->sc.crashes; i++) {
		struct sim_fault k = {.job = box, .nth = i, .value = {s->sc.crash[i].at}};

		if (s->sc.crash[i].box != box)
			continue;
		if (sim_fault(s, &k, SIM_FAULT_CRASH, true))
			sim_at(s, s->now + k.value[0], SIM_CRASH, 0, i, NULL);
	}
	for (unsigned i = 0; i < s->sc.snapshots; i++) {
		struct sim_fault k = {.job = box, .nth = i, .value = {sim_below(s, 300 * MS)}};

		if (sim_fault(s, &k, SIM_FAULT_SNAPSHOT, true))
			sim_at(s, s->now + k.value[0], SIM_SNAPSHOT, 0, 0, NULL);
	}
}

void
sim_restart_crash(struct sim *s, unsigned crash)
{
	struct sim_box *b = s->box;

	if (!b->up || s->box->unfinished == 0)
		return; /* it is down already, or has nothing to lose */
	sim_note(s, "box %u crashes", b->number);
	sim_box_check_counters(s);
	sim_box_stop(s);
	for (unsigned i = 0; i < s->sc.shards; i++) {
		for (unsigned k = 0; k < PBOX_SS_STATS; k++)
			b->past_shard[k] += b->shard[i].stats[k];
		b->shard[i] = (struct sim_shard){0};
	}
	for (unsigned k = 0; k < PBOX_RS_STATS; k++)
		b->past_registrar[k] += b->stats[k];
	memset(b->stats, 0, sizeof(b->stats));
	b->frames = 0;
	b->generation++;
	s->box->exact = false;
	s->box->progress_at = s->now;
	for (unsigned j = 0; j < s->sc.jobs; j++)
		for (unsigned w = 0; w < SIM_WORKERS && sim_is_here(s, j); w++) {
			s->job[j].token[w] = 0;
			for (unsigned t = 0; t < SIM_TABLES; t++)
				s->job[j].restorer[t][w] = 0;
		}
	sim_at(s, s->now + s->sc.crash[crash].down_ns, SIM_BOX_START, 0, 0, NULL);
}

void
sim_restart_start(struct sim *s)
{
	sim_box_start(s);
	s->box->progress_at = s->now;
	sim_note(s, "box %u starts again: incarnation %x", s->box->number, s->box->incarnation);
}

static float *
copy(float *to, const float *from, uint32_t n)
{
	if (to == NULL)
		to = calloc(n, sizeof(*to));
	PBOX_ASSERT(to != NULL);
	memcpy(to, from, n * sizeof(*to));
	return to;
}

void
sim_restart_snapshot(struct sim *s)
{
	for (unsigned j = 0; j < s->sc.jobs; j++)
		for (uint32_t i = 0; s->box->up && sim_is_here(s, j) && i < s->job[j].n_fragments;
			i++) {
			struct sim_fragment *f = &s->job[j].fragment[i];

			/* while it is restored from what the disk has, that stays */
			if (s->box->generation > 0 && f->restored_in != s->box->incarnation)
				continue;
			if (!f->ready || f->version != f->published || f->no_result ||
				sim_chance(s, 0.1))
				continue; /* some blocks are lost */
			if (f->version == 0 &&
				sim_spec(&s->sc, j, f)->fixed.mode == PBOX_MODE_ALLREDUCE)
				continue;
			f->has_snapshot = true;
			f->snapshot.version = f->version;
			f->snapshot.weight = f->weight[f->version & 1];
			f->snapshot.param = copy(f->snapshot.param, f->param, f->elements);
			f->snapshot.s0 = copy(f->snapshot.s0, f->s0, f->elements);
			f->snapshot.s1 = copy(f->snapshot.s1, f->s1, f->elements);
		}
}

/* A run of the job begins anew: nobody holds anything. */
static void
forget(struct sim *s, unsigned job, unsigned table)
{
	struct sim_job *j = &s->job[job];

	for (uint32_t i = 0; i < j->n_fragments; i++) {
		struct sim_fragment *f = &j->fragment[i];

		if (f->table != table)
			continue;
		sim_reference_forget(f);
		f->published = 0;
		f->has_snapshot = f->used_snapshot = f->no_result = false;
		memset(f->arrived, 0, sizeof(f->arrived));
	}
}

static void
load(struct sim *s, unsigned job, struct pbox_table *t, struct pbox_chunk *c,
	struct sim_fragment *f)
{
	size_t first = (size_t)f->frag * t->frag_elements;
	struct pbox_fragment *fragment = &c->fragment[f->frag];
	size_t bytes = (size_t)f->elements * pbox_format_size(t->pull_format);
	uint8_t *wire = c->wire != NULL ? c->wire + first * 2 : (uint8_t *)(c->param + first);

	f->used_snapshot = true;
	memcpy(c->param + first, f->snapshot.param, f->elements * sizeof(float));
	if (c->s0 != NULL)
		memcpy(c->s0 + first, f->snapshot.s0, f->elements * sizeof(float));
	if (c->s1 != NULL)
		memcpy(c->s1 + first, f->snapshot.s1, f->elements * sizeof(float));
	if (c->wire != NULL)
		sim_narrow(wire, t->pull_format, f->snapshot.param, f->elements);
	fragment->version = f->snapshot.version;
	fragment->samples = f->snapshot.weight;
	fragment->contributors = (uint16_t)s->sc.job[job].workers;
	fragment->payload_crc = pbox_crc32c(0, wire, bytes);
	fragment->has_result = 1;
}

int
sim_restart_load(struct sim *s, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	unsigned number = (unsigned)(job->name[3] - '0');
	struct sim_job *j = &s->job[number];
	bool any = false;

	if (!restoring) {
		if (s->box->generation > 0)
			forget(s, number, t->id);
		return -1;
	}
	for (uint32_t i = 0; i < t->n_chunks; i++)
		for (unsigned k = 0; k < t->chunk[i].fragments; k++) {
			struct sim_fragment *f = sim_find(j, t->first_chunk_id + i, k);

			if (f == NULL ||
				f->elements != pbox_chunk_frag_elements(t, &t->chunk[i], k)) {
				sim_fail(s, "chunk %x is another one after a restart", i);
				return -1;
			}
			f->used_snapshot = false;
			if (f->has_snapshot)
				load(s, number, t, &t->chunk[i], f);
			any |= f->has_snapshot;
		}
	return any ? 0 : -1;
}

/* ---- what the workers tell --------------------------------------------------------------- */

static void
told(struct sim *s, struct sim_job *j, const struct pbox_hdr *h, const uint8_t *payload)
{
	struct sim_fragment *f = sim_find(j, h->chunk, h->frag);

	(void)s;
	if (f == NULL)
		return;
	f->told[h->worker].token = h->token;
	f->told[h->worker].version = h->round;
	f->told[h->worker].have = (h->flags & PBOX_F_HAVE) != 0;
	if (h->length == 0)
		return;
	if (f->given == NULL)
		f->given = malloc((size_t)f->elements * 4);
	PBOX_ASSERT(f->given != NULL);
	memcpy(f->given, payload, h->length);
	f->given_version = h->round;
}

void
sim_restart_arrival(struct sim *s, const struct pbox_hdr *h, const uint8_t *payload, unsigned job)
{
	struct sim_job *j = &s->job[job];
	struct pbox_declare m;
	struct pbox_cursor cur;

	if (h->worker >= SIM_WORKERS || h->token == 0 || h->token != j->token[h->worker] ||
		h->incarnation != s->box->incarnation)
		return;
	if (h->type == PBOX_RESTORE)
		told(s, j, h, payload);
	else if (h->type == PBOX_DECLARE &&
		 pbox_declare_decode(payload, h->length, &m, &cur) == 0 &&
		 (m.flags & PBOX_DECLARE_RESTORE) != 0 && m.table < SIM_TABLES)
		j->restorer[m.table][h->worker] = h->token;
}

/* R10.6, from what has reached the box. */
static uint32_t
must_be(struct sim *s, unsigned job, const struct sim_fragment *f, bool *have)
{
	const struct sim_job *j = &s->job[job];
	uint32_t v = 0;

	*have = false;
	for (unsigned w = 0; w < s->sc.job[job].workers; w++) {
		if (j->token[w] == 0 || j->restorer[f->table][w] != j->token[w])
			continue;
		if (f->told[w].token != j->token[w]) {
			sim_fail(s, "job %u chunk %x frag %u is restored before worker %u has told",
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
	sim_narrow(f->answer[v & 1], sim_spec(&s->sc, job, f)->fixed.pull_format, f->param,
		f->elements);
}

/* From what a worker gave: parameters as the pull format has them, and the state of a snapshot. */
static void
from_worker(struct sim *s, unsigned job, struct sim_fragment *f, uint32_t v)
{
	unsigned format = sim_spec(&s->sc, job, f)->fixed.pull_format;
	size_t bytes = (size_t)f->elements * pbox_format_size(format);

	if (f->version >= v && f->version - v <= 1 && v > 0 &&
		memcmp(f->answer[v & 1], f->given, bytes) != 0)
		sim_fail(s, "a worker gives other bytes of version %u than it was told", v);
	f->version = v;
	memcpy(f->answer[v & 1], f->given, bytes);
	for (uint32_t i = 0; i < f->elements; i++)
		f->param[i] = sim_widen(f->given, format, i);
	memset(f->s0, 0, f->elements * sizeof(float));
	memset(f->s1, 0, f->elements * sizeof(float));
	if (f->used_snapshot) {
		copy(f->s0, f->snapshot.s0, f->elements);
		copy(f->s1, f->snapshot.s1, f->elements);
	}
}

static void
restored(struct sim *s, unsigned job, struct sim_fragment *f, uint32_t base)
{
	bool mode1 = sim_spec(&s->sc, job, f)->fixed.mode == PBOX_MODE_OPTIMISER, have;
	uint32_t v = must_be(s, job, f, &have), want = v;

	if (f->used_snapshot && f->snapshot.version >= v)
		want = f->snapshot.version;
	if (s->failed)
		return;
	if (base != want) {
		sim_fail(s, "job %u chunk %x frag %u is restored at version %u, not %u", job,
			f->chunk, f->frag, base, want);
		return;
	}
	sim_reference_begin(&s->sc, job, s->job[job].life, f);
	f->restored_in = s->box->incarnation;
	f->no_result = false;
	if (f->used_snapshot && f->snapshot.version >= v) {
		from_snapshot(s, job, f);
	} else if (v == 0 && !(mode1 && have)) {
		sim_reference_forget(f);
	} else if (f->given != NULL && f->given_version == v) {
		from_worker(s, job, f, v);
	} else {
		if (mode1)
			sim_fail(s, "version %u is restored without its parameters", v);
		f->no_result = true; /* all hold it */
		f->version = v;
	}
	f->published = base;
	for (unsigned w = 0; w < SIM_WORKERS; w++)
		f->arrived[w] = base;
	/* what the disk has of a later version than this is of a run that is no more */
	if (f->has_snapshot && f->snapshot.version > base)
		f->has_snapshot = false;
}

void
sim_restart_check(struct sim *s, const struct pbox_hdr *h, unsigned job)
{
	struct sim_fragment *f = sim_find(&s->job[job], h->chunk, h->frag);
	bool have;

	if (f == NULL) {
		sim_fail(s, "RESTORE_OK of a fragment that nobody knows");
		return;
	}
	if (f->restored_in == s->box->incarnation)
		return;
	if (h->aux == PBOX_RESTORE_DONE) {
		restored(s, job, f, h->base);
	} else if (h->aux == PBOX_RESTORE_LOST) {
		must_be(s, job, f, &have);
		if (have)
			sim_fail(s, "job %u chunk %x frag %u is lost, and a worker has it", job,
				f->chunk, f->frag);
	}
}
