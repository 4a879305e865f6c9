/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* The worker after a restart of the box (section 10 of the protocol). */

void
sim_restore_keep(struct sim_worker *w, const struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct sim_copy *c = &w->copy[f->number];

	if (c->bytes == NULL)
		c->bytes = malloc((size_t)f->elements * 4);
	PBOX_ASSERT(c->bytes != NULL && h->length <= f->elements * 4);
	memcpy(c->bytes, payload, h->length);
	c->version = h->round;
	c->contributors = h->aux;
	c->weight = h->weight;
}

void
sim_restore_keep_initial(struct sim *s, struct sim_worker *w, const struct sim_fragment *f)
{
	unsigned format = sim_spec(&s->sc, w->job, f)->fixed.pull_format;
	struct pbox_hdr h = {.length = (uint16_t)(f->elements * pbox_format_size(format))};
	uint8_t bytes[SIM_MTU * 4];
	float param[SIM_MTU];

	sim_initial(&s->sc, w->job, s->job[w->job].life, f, param);
	sim_narrow(bytes, format, param, f->elements);
	sim_restore_keep(w, f, &h, bytes);
}

/* The session is gone with the box. */
void
sim_restore_rejoin(struct sim *s, struct sim_worker *w)
{
	struct sim_job *j = &s->job[w->job];
	struct pbox_hello m = {.min_version = 1, .max_version = 1};

	if (w->finished && j->finished == s->sc.job[w->job].workers) {
		sim_worker_finished(s, w); /* nobody needs it any more */
		return;
	}
	sim_note(s, "worker %u/%u has lost its session", w->job, w->number);
	w->rejoins = w->work != NULL;
	if (sim_replaces(s, w) && s->sc.job[w->job].any_number)
		w->id = PBOX_NO_WORKER; /* it begins: the one that it had is anybody's */
	w->restoring = false;
	w->token = 0;
	w->set_busy = false;
	w->state = SIM_HELLO;
	sim_control_request(
		s, w, PBOX_HELLO, pbox_hello_encode(w->payload, sizeof(w->payload), &m));
}

/* MAPPED: first the SETs, then all fragments in the order of chunks. */
void
sim_restore_begin(struct sim *s, struct sim_worker *w)
{
	uint32_t n = s->job[w->job].n_fragments;

	w->restoring = true;
	w->set_done = w->set_round;
	w->set_round = w->set_table = w->set_group = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct sim_work *k = &w->work[i];

		*k = (struct sim_work){.version = k->version, .known = k->known};
		if (k->known && k->version > w->set_done)
			w->set_done = k->version;
	}
	sim_data_lanes(s, w);
	sim_restore_go(s, w);
}

static void
end(struct sim *s, struct sim_worker *w)
{
	w->restoring = w->rejoins = false;
	s->progress_at = s->now;
	sim_note(s, "worker %u/%u has told all", w->job, w->number);
	sim_data_lanes(s, w);
	sim_data_go(s, w);
}

void
sim_restore_go(struct sim *s, struct sim_worker *w)
{
	struct sim_job *j = &s->job[w->job];
	bool all = w->n_flying == 0;

	if (w->id < s->sc.job[w->job].setters && !sim_control_set(s, w, w->set_done))
		return;
	for (unsigned e = 0; e < s->sc.endpoints; e++) {
		struct sim_lane *l = &w->lane[e];

		/* a lane's order is a shuffled one: here fragments go by their numbers */
		while (l->told < j->n_fragments && l->in_flight < w->window) {
			if (j->fragment[l->told].endpoint == e) {
				sim_data_tell(s, w, l->told);
				all = false;
			}
			l->told++;
		}
		all &= l->told == j->n_fragments;
	}
	if (all)
		end(s, w);
}

void
sim_restore_send(struct sim *s, struct sim_worker *w, const struct sim_fragment *f)
{
	const struct sim_work *k = &w->work[f->number];
	const struct sim_copy *c = &w->copy[f->number];
	unsigned format = sim_spec(&s->sc, w->job, f)->fixed.pull_format;
	struct pbox_hdr h = {
		.type = PBOX_RESTORE,
		.token = w->token,
		.job = w->job_no,
		.worker = w->id,
		.incarnation = w->incarnation,
		.chunk = f->chunk,
		.frag = f->frag,
		.round = k->round,
		.map_epoch = PBOX_MAP_EPOCH,
		.ts = sim_us(s),
		.format = (uint8_t)format,
	};

	if (c->bytes != NULL && k->known && c->version == k->round) {
		h.flags = PBOX_F_HAVE;
		h.aux = c->contributors;
		h.weight = c->weight;
		if (k->give)
			h.length = (uint16_t)(f->elements * pbox_format_size(format));
	}
	sim_worker_send(s, w, &h, c->bytes, f->endpoint);
}

void
sim_restore_answer(
	struct sim *s, struct sim_worker *w, const struct sim_fragment *f, const struct pbox_hdr *h)
{
	struct sim_work *k = &w->work[f->number];
	struct sim_job *j = &s->job[w->job];

	if (k->phase != SIM_TELL || h->round != k->round)
		return;
	if (h->aux == PBOX_RESTORE_NOTED) {
		k->deadline = s->now + 20 * MS + sim_below(s, 20 * MS);
		sim_worker_wake(s, w, k->deadline);
	} else if (h->aux == PBOX_RESTORE_GIVE) {
		if (w->copy[f->number].bytes == NULL)
			sim_fail(s, "job %u worker %u is asked for what it has not", w->job, w->id);
		k->give = true;
		sim_data_transmit(s, w, f);
		sim_worker_wake(s, w, k->deadline);
	} else if (h->aux == PBOX_RESTORE_DONE) {
		if (k->known && pbox_serial_diff(h->base, k->version) < 0)
			sim_fail(s, "job %u worker %u holds version %u, and it is restored at %u",
				w->job, w->id, k->version, h->base);
		sim_data_finish(s, w, f, k->version);
	} else {
		j->lost = true;
		for (unsigned i = 0; i < s->sc.job[w->job].workers; i++)
			sim_at(s, s->now, SIM_KILL, w->job, i, s);
	}
}
