/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "law.h"

/*
 * What a worker must not do, however right its results are: repeat a request more often than its timers allow, or ask
 * about a fragment again and again, or leave a session that its box has. Faults that cost only frames show here.
 */

#define REPEATED  (40 * MS) /* R3.1: a request, at the earliest */
#define HEARD     SEC       /* R10.1: a box that is silent for longer may have been restarted */
#define FORGOTTEN (3 * SEC) /* R6.10: no timer is longer than a second */
#define SETTLED   SEC       /* after the last loss; by then it is known */
#define ASKED     150       /* frames about one round of a fragment in a second, */
#define NODE      50        /* and for each node of a worker, on average */

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
has_ended(const struct sim_box *b)
{
	const uint64_t *v = b->stats;

	return b->generation > 0 || v[PBOX_RS_EXPIRED] != 0 || v[PBOX_RS_REMOVED] != 0 ||
	       v[PBOX_RS_TAKEN_OVER] != 0 || v[PBOX_RS_RUNS_ENDED] != 0;
}

static bool
any_ended(const struct sim *s, unsigned job)
{
	for (unsigned b = 0; b < s->sc.boxes; b++)
		if (sim_is_at(&s->sc, &s->sc.job[job], b) && has_ended(&s->boxes[b]))
			return true;
	return false;
}

/* A worker that has a session, and hears from its box, has no reason to join again: nothing that happens elsewhere is
 * one. Forged frames may be: the box answers them with an ERROR that is believed (R4.8). */
static void
check_hello(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h, unsigned box)
{
	if (s->sc.noise > 0 || s->sc.recorded > 0 || s->sc.first == SIM_FIRST_CUT)
		return;
	if (h->type == PBOX_HELLO && w->state > SIM_OPENING && w->number < SIM_WORKERS &&
		s->now - w->heard[box] < HEARD && !any_ended(s, w->job))
		sim_fail(s, "worker %u/%u asks to join again, %llu us after box %u answered it",
			w->job, w->number, (unsigned long long)((s->now - w->heard[box]) / US),
			box);
}

static void
check_asked(struct sim *s, struct sim_worker *w, struct sim_fragment *f, const struct pbox_hdr *h)
{
	if (f->asked[w->number].round != h->round || s->now - f->asked[w->number].since > SEC) {
		f->asked[w->number].round = h->round;
		f->asked[w->number].since = s->now;
		f->asked[w->number].n = 0;
	}
	if (++f->asked[w->number].n >
		ASKED + (s->sc.job[w->job].slots != 0
					? NODE * slots_nodes(f) / s->sc.job[w->job].workers
					: 0))
		sim_fail(s,
			"worker %u/%u sends more than %u frames a second about round %u of chunk %x frag %u",
			w->job, w->number, ASKED, h->round, h->chunk, h->frag);
}

/* R6.2: nodes go one after the other, each once the box has said that it has those before it. */
static void
check_order(
	struct sim *s, const struct sim_worker *w, struct sim_fragment *f, const struct pbox_hdr *h)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	unsigned first, end;

	if (!slots_of_frame(spec, h, &first, &end)) {
		sim_fail(s, "worker %u/%u sends node %x", w->job, w->number, h->base);
		return;
	}
	if (f->asked[w->number].taken_round != h->round && first == sim_slots_of(spec, h->worker)) {
		f->asked[w->number].taken_round = h->round;
		f->asked[w->number].taken = 0;
	}
	if (first > sim_slots_of(spec, h->worker) &&
		(f->asked[w->number].taken_round != h->round || f->asked[w->number].taken < first))
		sim_fail(s,
			"worker %u/%u sends node %x of round %u of chunk %x frag %u, and does not know that the box has those before it",
			w->job, w->number, h->base, h->round, h->chunk, h->frag);
	if (h->type == PBOX_PUSHPULL && end < sim_slots_of(spec, h->worker + 1))
		sim_fail(s,
			"worker %u/%u asks for the result with node %x, which is not its last one",
			w->job, w->number, h->base);
}

/* The box has said which of its slots are there. */
static void
order_heard(struct sim *s, const struct sim_worker *w, const struct pbox_hdr *h)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	struct sim_fragment *f = spec->slots != 0 && !spec->plan
					 ? sim_find(&s->job[w->job], h->chunk, h->frag)
					 : NULL;
	unsigned first, end;

	if (f == NULL)
		return;
	if (h->type == PBOX_WAIT && (h->flags & PBOX_F_HAVE) == 0)
		end = h->base;
	else if (h->type != PBOX_PUSH_OK || !slots_of_frame(spec, h, &first, &end))
		return;
	if (f->asked[w->number].taken_round == h->round && end > f->asked[w->number].taken)
		f->asked[w->number].taken = (uint16_t)end;
}

/* ---- what is under way ---------------------------------------------------------------------------- */

/* While this holds, a PUSHPULL ends with RESULT and with nothing else. */
static bool
is_plain(const struct sim *s, const struct sim_worker *w)
{
	return w->number < SIM_WORKERS && w->state == SIM_WORK && s->sc.commands == 0 &&
	       !any_ended(s, w->job);
}

static struct sim_flow *
flow_of(struct sim_worker *w, const struct sim_fragment *f)
{
	return &w->flow[f->first_box][f->endpoint];
}

static void
flow_count(struct sim *s, struct sim_worker *w)
{
	const struct sim_job *j = &s->job[w->job];

	if (w->flow_round == w->round)
		return;
	w->flow_round = w->round;
	for (unsigned b = 0; b < s->sc.boxes; b++)
		for (unsigned e = 0; e < s->sc.endpoints; e++)
			w->flow[b][e].fragments = w->flow[b][e].sent = 0;
	for (uint32_t i = 0; i < j->n_fragments; i++)
		flow_of(w, &j->fragment[i])->fragments +=
			!sim_is_clock(sim_spec(&s->sc, w->job, &j->fragment[i]));
}

static void
there(struct sim_worker *w, struct sim_fragment *f)
{
	w->missing -= f->asked[w->number].missing != 0;
	f->asked[w->number].missing = 0;
}

static void
data_sent(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h)
{
	bool named = s->sc.job[w->job].slots != 0;
	struct sim_fragment *f = sim_find(&s->job[w->job], h->chunk, h->frag);
	struct sim_flow *l;

	if (f == NULL || w->number >= SIM_WORKERS)
		return;
	check_asked(s, w, f, h);
	l = flow_of(w, f);
	l->tx = s->now;
	if (sim_is_clock(sim_spec(&s->sc, w->job, f)))
		return;
	if (s->sc.job[w->job].plan) /* rounds end without results */
		return;
	if (named && (h->type == PBOX_PUSHPULL || h->type == PBOX_PUSH))
		check_order(s, w, f, h);
	/* where all ask for results, a PUSH is a node before the one that does */
	if (h->type != PBOX_PUSHPULL && (h->type != PBOX_PUSH || !named || f->held != NULL ||
						s->sc.job[w->job].push_percent > 0))
		return;
	/* made before its result was heard, in a datagram that leaves only now */
	if (!f->asked[w->number].flying && f->asked[w->number].flying_round == h->round &&
		is_plain(s, w))
		return;
	there(w, f);
	flow_count(s, w);
	f->asked[w->number].payload_ts = h->ts;
	f->asked[w->number].flying_round = h->round;
	if (f->asked[w->number].flying)
		return;
	f->asked[w->number].flying = true;
	l->sent += h->round == s->sc.job[w->job].first_round + w->round;
	/* R6.9 */
	if (++l->in_flight > sim_part(s, w->job)->window && is_plain(s, w))
		sim_fail(s, "worker %u/%u has %u fragments under way at an endpoint, of %u", w->job,
			w->number, l->in_flight, sim_part(s, w->job)->window);
	if (l->in_flight > l->peak && sim_net_is_calm(s, SETTLED))
		l->peak = l->in_flight;
}

/* A window of n frames grows by one with n results that come while more is to be sent, at the least: from any size it has
 * become the granted one after the square of that. */
static void
check_growth(struct sim *s, const struct sim_worker *w, struct sim_flow *l)
{
	uint32_t most = sim_part(s, w->job)->window;

	if (!sim_net_is_calm(s, SETTLED) || l->sent == l->fragments || !is_plain(s, w))
		return;
	if (++l->answers > most * most && l->peak < most)
		sim_fail(s,
			"worker %u/%u has had %u results while the network was clean, and at most %u frames in flight, of %u",
			w->job, w->number, l->answers, l->peak, most);
}

static void
data_heard(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h)
{
	struct sim_fragment *f = sim_find(&s->job[w->job], h->chunk, h->frag);

	/* copies of its frames are answered, too: it need not ask meanwhile */
	if (f != NULL && s->sc.recorded > 0)
		w->tx = flow_of(w, f)->tx = s->now;
	if (f == NULL || !f->asked[w->number].flying ||
		f->asked[w->number].flying_round != h->round)
		return;
	if (h->type == PBOX_RESULT) {
		there(w, f);
		f->asked[w->number].flying = false;
		flow_of(w, f)->in_flight--;
		check_growth(s, w, flow_of(w, f));
	} else if (h->type == PBOX_WAIT && (h->flags & PBOX_F_HAVE) != 0) {
		there(w, f);
	} else if (h->type == PBOX_WAIT && f->asked[w->number].missing == 0 &&
		   (int32_t)(h->ts - f->asked[w->number].payload_ts) >= 0) {
		f->asked[w->number].missing = s->now;
		w->missing++;
	}
}

void
sim_timing_heard(struct sim *s, struct sim_worker *w, const struct sim_packet *p)
{
	struct pbox_hdr h;
	size_t size;

	if (!sim_is_at(&s->sc, &s->sc.job[w->job], p->box) || p->forged ||
		w->number >= SIM_WORKERS || w->id >= SIM_WORKERS ||
		pbox_frame_decode(p->data, p->len, true, &h, &size) != PBOX_WIRE_OK)
		return;
	/* of a box that is no more, too, and where two damages are none */
	order_heard(s, w, &h);
	if (p->damaged || h.type == PBOX_ERROR || h.token == 0 ||
		h.token != s->job[w->job].part[p->box].token[w->id])
		return;
	w->heard[p->box] = s->now;
	data_heard(s, w, &h);
}

static void
check_flow(struct sim *s, const struct sim_worker *w, unsigned box, unsigned endpoint)
{
	const struct sim_flow *l = &w->flow[box][endpoint];

	if (l->in_flight > 0 && s->now - l->tx > FORGOTTEN)
		sim_fail(s,
			"worker %u/%u has %u fragments under way at endpoint %u of box %u, and has not asked for %llu ms",
			w->job, w->number, l->in_flight, endpoint, box,
			(unsigned long long)((s->now - l->tx) / MS));
}

/* A timer that was forgotten, and a probe that no payload follows. */
void
sim_timing_look(struct sim *s, struct sim_worker *w)
{
	struct sim_job *j = &s->job[w->job];
	/* it joins and declares again; until then its endpoints wait */
	bool joins = s->now - w->tx_control <= FORGOTTEN;

	if (s->now < w->stopped)
		w->tx = s->now;
	if (w->number < SIM_WORKERS && w->state > SIM_OPENING && w->state < SIM_DONE &&
		(w->ops != NULL || w->busy || sim_hold_asks(s, w)) && s->now - w->tx > FORGOTTEN)
		sim_fail(s, "worker %u/%u has something to do, and has sent nothing for %llu ms",
			w->job, w->number, (unsigned long long)((s->now - w->tx) / MS));
	if (!is_plain(s, w))
		return;
	for (unsigned b = 0; b < s->sc.boxes && !joins; b++)
		for (unsigned e = 0; e < s->sc.endpoints; e++)
			check_flow(s, w, b, e);
	for (uint32_t i = 0; w->missing > 0 && i < j->n_fragments; i++) {
		const struct sim_fragment *f = &j->fragment[i];
		uint64_t since = f->asked[w->number].missing;

		if (since != 0 && s->now - since > FORGOTTEN && !joins)
			sim_fail(s,
				"worker %u/%u knows that its contribution to round %u of chunk %x frag %u was lost, and has not repeated it for %llu ms",
				w->job, w->number, f->asked[w->number].flying_round, f->chunk,
				f->frag, (unsigned long long)((s->now - since) / MS));
	}
}

void
sim_timing_forget(struct sim *s, struct sim_worker *w)
{
	struct sim_job *j = &s->job[w->job];

	for (uint32_t i = 0; w->number < SIM_WORKERS && i < j->n_fragments; i++) {
		j->fragment[i].asked[w->number].flying = false;
		j->fragment[i].asked[w->number].missing = 0;
		j->fragment[i].asked[w->number].taken = 0;
	}
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
		if (h.type != PBOX_PING)
			w->tx = s->now;
		if (h.type != PBOX_PING && h.type < PBOX_FIRST_DATA_TYPE)
			w->tx_control = s->now;
		check_hello(s, w, &h, p->box);
		if (h.type < PBOX_FIRST_DATA_TYPE)
			check_request(s, w, &h);
		else
			data_sent(s, w, &h);
	}
}
