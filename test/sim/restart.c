/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "box.h"
#include "law.h"

/*
 * The box crashes and is started again (section 10 of the protocol). All that it had is gone, but for
 * what the disk has: copies of some fragments at some earlier version. What a fragment must be restored to is the law of
 * its table.
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
	if (sim_box_dies(&s->sc) && s->sc.dead_box == box) {
		struct sim_fault k = {.job = box, .nth = SIM_DEATH, .value = {s->sc.dies_ns}};

		if (sim_fault(s, &k, SIM_FAULT_CRASH, true))
			sim_at(s, s->now + k.value[0], SIM_CRASH, 0, SIM_DEATH, NULL);
	}
	for (unsigned i = 0; i < s->sc.snapshots; i++) {
		struct sim_fault k = {.job = box, .nth = i, .value = {sim_below(s, 300 * MS)}};

		if (sim_fault(s, &k, SIM_FAULT_SNAPSHOT, true))
			sim_at(s, s->now + k.value[0], SIM_SNAPSHOT, 0, 0, NULL);
	}
}

/* Do all workers of all jobs of the list train, or have they done so? A job that has not begun begins again at the first box. */
static bool
all_train(const struct sim *s)
{
	for (unsigned j = 0; j < s->sc.jobs; j++)
		for (unsigned w = 0; w < s->sc.job[j].workers; w++)
			if (sim_is_fleet(&s->sc, &s->sc.job[j]) && !s->job[j].over &&
				s->job[j].worker[w]->state < SIM_WORK)
				return false;
	return true;
}

/* The first box dies, or is cut off from now on; true: not yet. */
static bool
first_goes(struct sim *s)
{
	struct sim_network_spec *n = &s->sc.net;

	if (s->sc.first == SIM_FIRST_STAYS)
		return false;
	if (!all_train(s)) {
		sim_at(s, s->now + 10 * MS, SIM_CRASH, 0, SIM_DEATH, NULL);
		return true;
	}
	sim_moves_goes(s);
	if (s->sc.first != SIM_FIRST_CUT)
		return false;
	sim_note(s, "box 0 is cut off");
	n->hole[n->holes].boxes = 1;
	n->hole[n->holes].from = s->now;
	n->hole[n->holes++].to = UINT64_MAX; /* until it comes back (moves.c) */
	return true;
}

void
sim_restart_crash(struct sim *s, unsigned crash)
{
	struct sim_box *b = s->box;

	if (crash == SIM_DEATH && first_goes(s))
		return;
	if (crash == SIM_REVIVE && !b->up) {
		sim_restart_start(s);
		return;
	}
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
	b->exact = false;
	s->box->progress_at = s->now;
	for (unsigned j = 0; j < s->sc.jobs; j++) {
		for (unsigned w = 0; w < SIM_WORKERS && sim_is_here(s, j); w++) {
			sim_part(s, j)->token[w] = 0;
			for (unsigned t = 0; t < SIM_TABLES; t++)
				sim_part(s, j)->restorer[t][w] = 0;
		}
		if (sim_is_here(s, j))
			sim_plan_forget(s, j);
	}
	if (crash == SIM_DEATH)
		b->dead = true;
	else
		sim_at(s, s->now + (crash == SIM_REVIVE ? MS : s->sc.crash[crash].down_ns),
			SIM_BOX_START, 0, 0, NULL);
}

void
sim_restart_start(struct sim *s)
{
	if (s->box->up) /* somebody has started it already */
		return;
	s->box->dead = false;
	sim_box_start(s);
	s->box->progress_at = s->now;
	sim_note(s, "box %u starts again: incarnation %x", s->box->number, s->box->incarnation);
}

void
sim_restart_snapshot(struct sim *s)
{
	for (unsigned j = 0; j < s->sc.jobs; j++)
		/* R16.2: jobs at several boxes are in none */
		for (uint32_t i = 0; s->box->up && !sim_is_fleet(&s->sc, &s->sc.job[j]) &&
				     sim_is_here(s, j) && i < s->job[j].n_fragments;
			i++) {
			struct sim_fragment *f = &s->job[j].fragment[i];

			/* while it is restored from what the disk has, that stays */
			if (s->box->generation > 0 && f->restored_in != s->box->incarnation)
				continue;
			sim_spec(&s->sc, j, f)->law->keep(s, j, f);
		}
}

bool
sim_restart_may_end(const struct sim *s, unsigned job, unsigned w)
{
	return s->now - s->job[job].part[s->box->number].arrived[w] > s->sc.lease_ms * MS;
}

int
sim_restart_load(struct sim *s, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	unsigned number = (unsigned)(job->name[3] - '0');
	struct sim_job *j = &s->job[number];
	const struct sim_law *law = s->sc.job[number].table[t->id].law;
	bool any = false;

	for (uint32_t i = 0; !restoring && s->box->generation > 0 && i < j->n_fragments; i++)
		if (j->fragment[i].table == t->id && j->fragment[i].box == s->box->number)
			law->forget(&j->fragment[i]);
	if (sim_is_fleet(&s->sc, &s->sc.job[number]))
		return -1;
	for (uint32_t i = 0; restoring && i < t->n_chunks; i++)
		for (unsigned k = 0; k < t->chunk[i].fragments; k++) {
			struct sim_fragment *f = sim_find(j, t->first_chunk_id + i, k);

			if (f == NULL ||
				f->elements != pbox_chunk_frag_elements(t, &t->chunk[i], k)) {
				sim_fail(s, "chunk %x is another one after a restart", i);
				return -1;
			}
			any |= law->load(s, number, f, t, &t->chunk[i]);
		}
	return any ? 0 : -1;
}

void
sim_restart_arrival(struct sim *s, const struct pbox_hdr *h, const uint8_t *payload, unsigned job)
{
	struct sim_part *j = sim_part(s, job);
	struct sim_fragment *f;
	struct pbox_declare m;
	struct pbox_homes homes;
	struct pbox_cursor cur;

	if (h->worker >= SIM_WORKERS || h->token == 0 || h->token != j->token[h->worker] ||
		h->incarnation != s->box->incarnation)
		return;
	j->arrived[h->worker] = s->now;
	if (h->type == PBOX_HOMES && pbox_homes_decode(payload, h->length, &homes) == 0)
		s->box->shown = homes.count > 0 ? homes.flags : 0xFFFF;
	if (h->type == PBOX_RESTORE) {
		f = sim_find(&s->job[job], h->chunk, h->frag);
		if (f != NULL && !sim_frame_fits(s, job, f, h))
			sim_moves_told(s, job, f, h, payload);
		else if (f != NULL)
			sim_spec(&s->sc, job, f)->law->told(s, job, f, h, payload);
	} else if (h->type == PBOX_DECLARE &&
		   pbox_declare_decode(payload, h->length, &m, &cur) == 0 &&
		   (m.flags & PBOX_DECLARE_RESTORE) != 0 && m.table < SIM_TABLES) {
		j->restorer[m.table][h->worker] = h->token;
	}
}
