/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "sim.h"

/*
 * What a worker must not do, however right its results are: repeat a request more often than its timers allow, or ask
 * about a fragment again and again, or leave a session that its box has. Faults that cost only frames show here.
 */

#define REPEATED (40 * MS) /* R3.1: a request, at the earliest */
#define HEARD    SEC       /* R10.1: a box that is silent for longer may have been restarted */
#define ASKED    150       /* frames about one round of a fragment in a second */

/* Requests of one session, by id. PINGs answer, and joins follow what RETRY says. */
static void
check_request(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h)
{
	struct sim_asked *l = &w->asked[h->chunk % SIM_ASKED];

	if (h->type == PBOX_HELLO || h->type == PBOX_JOIN || h->type == PBOX_PING || h->chunk == 0)
		return;
	if (h->type == PBOX_LEAVE && h->chunk == 1) /* of a session that could not be used */
		return;
	if (l->id == h->chunk && l->token == h->token && s->now - l->at < REPEATED)
		sim_fail(s, "worker %u/%u repeats a %s after %llu us", w->job, w->number,
			pbox_type_name(h->type), (unsigned long long)((s->now - l->at) / US));
	*l = (struct sim_asked){.id = h->chunk, .token = h->token, .at = s->now};
}

/* The box has lost or ended a session that it had. */
static bool
any_ended(const struct sim_box *b)
{
	const uint64_t *v = b->stats;

	return b->generation > 0 || v[PBOX_RS_EXPIRED] != 0 || v[PBOX_RS_REMOVED] != 0 ||
	       v[PBOX_RS_TAKEN_OVER] != 0 || v[PBOX_RS_RUNS_ENDED] != 0;
}

/* A worker that has a session, and hears from its box, has no reason to join again: nothing that happens elsewhere is
 * one. Forged frames may be: the box answers them with an ERROR that is believed (R4.8). */
static void
check_hello(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h)
{
	if (s->sc.noise > 0 || s->sc.recorded > 0)
		return;
	if (h->type == PBOX_HELLO && w->state > SIM_OPENING && w->number < SIM_WORKERS &&
		s->now - w->heard < HEARD && !any_ended(s->box))
		sim_fail(s, "worker %u/%u asks to join again, %llu us after box %u answered it",
			w->job, w->number, (unsigned long long)((s->now - w->heard) / US),
			s->box->number);
}

void
sim_timing_heard(struct sim *s, struct sim_worker *w, const struct sim_packet *p)
{
	struct pbox_hdr h;
	size_t size;

	if (p->box == s->box->number && !p->damaged && !p->forged && w->number < SIM_WORKERS &&
		pbox_frame_decode(p->data, p->len, true, &h, &size) == PBOX_WIRE_OK &&
		h.type != PBOX_ERROR && h.token != 0 && h.token == s->job[w->job].token[w->id])
		w->heard = s->now;
}

static void
check_asked(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h)
{
	struct sim_fragment *f = sim_find(&s->job[w->job], h->chunk, h->frag);

	if (f == NULL || w->number >= SIM_WORKERS)
		return;
	if (f->asked[w->number].round != h->round || s->now - f->asked[w->number].since > SEC) {
		f->asked[w->number].round = h->round;
		f->asked[w->number].since = s->now;
		f->asked[w->number].n = 0;
	}
	if (++f->asked[w->number].n > ASKED)
		sim_fail(s,
			"worker %u/%u sends more than %u frames a second about round %u of chunk %x frag %u",
			w->job, w->number, ASKED, h->round, h->chunk, h->frag);
}

void
sim_timing_sent(struct sim *s, struct sim_worker *w, const struct sim_packet *p)
{
	size_t at = 0, size = 0;
	struct pbox_hdr h;

	for (; at < p->len; at += size) {
		if (pbox_frame_decode(p->data + at, p->len - at, at == 0, &h, &size) !=
			PBOX_WIRE_OK) {
			sim_fail(s, "worker %u/%u sends what cannot be read", w->job, w->number);
			return;
		}
		check_hello(s, w, &h);
		if (h.type < PBOX_FIRST_DATA_TYPE)
			check_request(s, w, &h);
		else
			check_asked(s, w, &h);
	}
}
