/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "sim.h"

/*
 * What a worker must not do, however right its results are: repeat a request more often than its timers allow, or ask
 * about a fragment again and again. Faults that cost only frames show here.
 */

#define REPEATED (40 * MS) /* R3.1: a request, at the earliest */
#define ASKED    150       /* frames about one round of a fragment in a second */

/* Requests of one session, by id. PINGs answer, and joins follow what RETRY says. */
static void
check_request(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h)
{
	struct sim_law *l = &w->law[h->chunk % SIM_LAWS];

	if (h->type == PBOX_HELLO || h->type == PBOX_JOIN || h->type == PBOX_PING || h->chunk == 0)
		return;
	if (h->type == PBOX_LEAVE && h->chunk == 1) /* of a session that could not be used */
		return;
	if (l->id == h->chunk && l->token == h->token && s->now - l->at < REPEATED)
		sim_fail(s, "worker %u/%u repeats a %s after %llu us", w->job, w->number,
			pbox_type_name(h->type), (unsigned long long)((s->now - l->at) / US));
	*l = (struct sim_law){.id = h->chunk, .token = h->token, .at = s->now};
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
sim_law_sent(struct sim *s, struct sim_worker *w, const struct sim_packet *p)
{
	size_t at = 0, size = 0;
	struct pbox_hdr h;

	for (; at < p->len; at += size) {
		if (pbox_frame_decode(p->data + at, p->len - at, at == 0, &h, &size) !=
			PBOX_WIRE_OK) {
			sim_fail(s, "worker %u/%u sends what cannot be read", w->job, w->number);
			return;
		}
		if (h.type < PBOX_FIRST_DATA_TYPE)
			check_request(s, w, &h);
		else
			check_asked(s, w, &h);
	}
}
