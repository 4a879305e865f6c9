/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "sim.h"

/*
 * The order of a lane in a round is random, but the same for all workers: a window is released by
 * others' contributions to the same fragments, so that workers with different orders and full
 * windows would wait for one another for ever.
 */
static void
shuffle(const struct sim *s, const struct sim_worker *w, unsigned e)
{
	const struct sim_job *j = &s->job[w->job];
	struct sim_lane *l = &((struct sim_worker *)w)->lane[e];
	struct pbox_random r;
	uint32_t n = 0;

	pbox_random_seed(&r, sim_mix(sim_mix(s->sc.seed, w->job), (uint64_t)l->round << 8 | e));
	for (uint32_t i = 0; i < j->n_fragments; i++)
		if (j->fragment[i].endpoint == e)
			l->order[n++] = i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t k = (uint32_t)pbox_random_below(&r, i), t = l->order[k];

		l->order[k] = l->order[i - 1];
		l->order[i - 1] = t;
	}
}

void
sim_data_begin(struct sim *s, struct sim_worker *w)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	struct sim_job *j = &s->job[w->job];
	uint32_t n = j->n_fragments;

	w->n_copies = n;
	w->copy = calloc(n + 1, sizeof(*w->copy));
	w->work = calloc(n + 1, sizeof(*w->work));
	w->flying = calloc(n + 1, sizeof(*w->flying));
	PBOX_ASSERT(w->work != NULL && w->flying != NULL && w->copy != NULL);
	/* Windows are what keeps the box from running out of packets and records. Where all
	 * fragments have a record anyway, a worker that does not care makes the box fold. */
	if (spec->greedy && n <= 64 && n <= spec->workers * w->window)
		w->window = 64;
	for (unsigned e = 0; e < s->sc.endpoints; e++) {
		struct sim_lane *l = &w->lane[e];

		for (uint32_t i = 0; i < n; i++)
			l->n += j->fragment[i].endpoint == e;
		l->order = calloc(l->n + 1, sizeof(*l->order));
		PBOX_ASSERT(l->order != NULL);
		l->sync = w->restarted;
		shuffle(s, w, e);
	}
	for (uint32_t i = 0; i < n; i++) {
		w->work[i].version = spec->first_round;
		w->work[i].known =
			!w->restarted && sim_spec(&s->sc, w->job, &j->fragment[i])->fixed.mode ==
						 PBOX_MODE_ALLREDUCE;
	}
	sim_data_go(s, w);
}

/* The lanes anew: endpoints have changed, or what is known of fragments. */
void
sim_data_lanes(struct sim *s, struct sim_worker *w)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	struct sim_job *j = &s->job[w->job];
	uint32_t lowest = UINT32_MAX;
	bool unknown = false;

	for (uint32_t i = 0; i < j->n_fragments; i++) {
		unknown |= !w->work[i].known;
		if (w->work[i].version < lowest)
			lowest = w->work[i].version;
	}
	w->n_flying = 0;
	for (unsigned e = 0; e < s->sc.endpoints; e++) {
		struct sim_lane *l = &w->lane[e];

		free(l->order);
		*l = (struct sim_lane){.sync = w->restarted && unknown};
		for (uint32_t i = 0; i < j->n_fragments; i++)
			l->n += j->fragment[i].endpoint == e;
		l->order = calloc(l->n + 1, sizeof(*l->order));
		PBOX_ASSERT(l->order != NULL);
		if (!unknown && j->n_fragments > 0)
			l->round = lowest < spec->rounds ? lowest : spec->rounds;
		shuffle(s, w, e);
	}
}

static void
header(const struct sim *s, const struct sim_worker *w, const struct sim_fragment *f,
	enum pbox_type type, struct pbox_hdr *h)
{
	const struct sim_work *k = &w->work[f->number];

	*h = (struct pbox_hdr){
		.type = (uint8_t)type,
		.token = w->token,
		.job = w->job_no,
		.worker = w->id,
		.incarnation = w->incarnation,
		.chunk = f->chunk,
		.frag = f->frag,
		.round = k->round,
		.base = k->version,
		.map_epoch = PBOX_MAP_EPOCH,
		.ts = sim_us(s),
		.flags = k->tries > 0 ? PBOX_F_RETX : 0,
	};
}

static void
send_contribution(
	struct sim *s, struct sim_worker *w, const struct sim_fragment *f, enum pbox_type type)
{
	uint8_t payload[SIM_MTU];
	struct pbox_hdr h;
	bool zero;

	header(s, w, f, type, &h);
	h.flags |= PBOX_F_LAST;
	h.format = sim_spec(&s->sc, w->job, f)->fixed.push_format;
	h.aux = PBOX_LR_MUL_ONE;
	h.length = (uint16_t)sim_contribution(
		&s->sc, w->job, s->job[w->job].life, f, w->id, h.round, payload, &h.weight, &zero);
	if (zero)
		h.flags |= PBOX_F_ZERO;
	sim_worker_send(s, w, &h, payload, f->endpoint);
}

static void
send_pull(struct sim *s, struct sim_worker *w, const struct sim_fragment *f)
{
	struct pbox_hdr h;

	header(s, w, f, PBOX_PULL, &h);
	if (w->work[f->number].phase == SIM_SYNC)
		h.flags |= PBOX_F_LATEST;
	sim_worker_send(s, w, &h, NULL, f->endpoint);
}

static void
send_init(struct sim *s, struct sim_worker *w, const struct sim_fragment *f)
{
	uint32_t piece_elements = s->job[w->job].init_elements;
	float param[SIM_MTU];

	sim_initial(&s->sc, w->job, s->job[w->job].life, f, param);
	for (uint32_t at = 0, i = 0; at < f->elements; at += piece_elements, i++) {
		uint32_t n = f->elements - at < piece_elements ? f->elements - at : piece_elements;
		struct pbox_hdr h;

		if ((w->work[f->number].init & 1u << i) != 0)
			continue;
		header(s, w, f, PBOX_INIT, &h);
		h.base = at;
		h.format = PBOX_FMT_FP32;
		h.length = (uint16_t)(n * 4);
		sim_worker_send(s, w, &h, param + at, f->endpoint);
	}
}

/* Retransmission timer: from the round trip, doubled with each try (R6.10). */
static uint64_t
timeout(struct sim *s, const struct sim_worker *w, const struct sim_work *k)
{
	unsigned shift = k->tries < 6 ? k->tries : 6;
	uint64_t ns = (uint64_t)w->srtt_us * 3 * US << shift;

	if (ns < 500 * US)
		ns = 500 * US;
	if (ns > 60 * MS)
		ns = 60 * MS;
	return ns + sim_below(s, ns / 2);
}

void
sim_data_transmit(struct sim *s, struct sim_worker *w, const struct sim_fragment *f)
{
	struct sim_work *k = &w->work[f->number];

	switch (k->phase) {
	case SIM_SYNC:
	case SIM_PULL:
		send_pull(s, w, f);
		break;
	case SIM_PUSHPULL:
		/* after a loss a probe is cheaper than the payload */
		if (k->have || (k->tries > 0 && sim_chance(s, 0.5)))
			send_pull(s, w, f);
		else
			send_contribution(s, w, f, PBOX_PUSHPULL);
		break;
	case SIM_PUSH:
		send_contribution(s, w, f, PBOX_PUSH);
		break;
	case SIM_INIT:
		send_init(s, w, f);
		break;
	case SIM_TELL:
		sim_restore_send(s, w, f);
		break;
	case SIM_IDLE:
		return;
	}
	k->deadline = s->now + timeout(s, w, k);
}

static void
begin(struct sim *s, struct sim_worker *w, uint32_t number, enum sim_phase phase, uint32_t round)
{
	const struct sim_fragment *f = &s->job[w->job].fragment[number];
	struct sim_work *k = &w->work[number];

	*k = (struct sim_work){
		.version = k->version, .known = k->known, .phase = phase, .round = round};
	w->flying[w->n_flying++] = number;
	w->lane[f->endpoint].in_flight++;
	sim_data_transmit(s, w, f);
	sim_worker_wake(s, w, k->deadline);
}

void
sim_data_tell(struct sim *s, struct sim_worker *w, uint32_t number)
{
	const struct sim_work *k = &w->work[number];

	begin(s, w, number, SIM_TELL, k->known ? k->version : 0);
}

void
sim_data_finish(struct sim *s, struct sim_worker *w, const struct sim_fragment *f, uint32_t version)
{
	struct sim_work *k = &w->work[f->number];

	k->known |= k->phase != SIM_TELL;
	k->phase = SIM_IDLE;
	k->version = version;
	for (uint32_t i = 0; i < w->n_flying; i++)
		if (w->flying[i] == f->number) {
			w->flying[i] = w->flying[--w->n_flying];
			break;
		}
	w->lane[f->endpoint].in_flight--;
	s->progress_at = s->now;
	sim_data_go(s, w);
}

/* Round 0: parameters, in mode 1. */
static bool
issue_initial(struct sim *s, struct sim_worker *w, uint32_t number)
{
	if (w->work[number].known)
		return true;
	if (w->id == 0)
		begin(s, w, number, SIM_INIT, 0);
	else if (s->sc.job[w->job].pull0)
		begin(s, w, number, SIM_PULL, 0);
	else
		w->work[number].known = true;
	return true;
}

static bool
barrier_open(const struct sim *s, const struct sim_worker *w, uint32_t round)
{
	if (!s->sc.job[w->job].barrier)
		return true;
	for (uint32_t i = 0; i < s->job[w->job].n_fragments; i++)
		if (pbox_serial_diff(w->work[i].version, round) < 0)
			return false;
	return true;
}

/* Send the lane's next fragment; false when it must wait. */
static bool
issue(struct sim *s, struct sim_worker *w, struct sim_lane *l)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	uint32_t number = l->order[l->at], round = spec->first_round + l->round;
	struct sim_work *k = &w->work[number];

	if (l->in_flight >= w->window || k->phase != SIM_IDLE)
		return false;
	if (l->sync && k->known)
		return true;
	if (l->sync) {
		begin(s, w, number, SIM_SYNC, spec->first_round);
		return true;
	}
	if (l->round == 0)
		return issue_initial(s, w, number);
	if (pbox_serial_diff(k->version, round) >= 0)
		return true; /* an earlier life has done it */
	if (!k->known || k->version != round - 1 || !barrier_open(s, w, round - 1))
		return false;
	if (w->id < spec->setters && !sim_control_set(s, w, round))
		return false;
	if (s->now < l->not_before) {
		sim_worker_wake(s, w, l->not_before);
		return false;
	}
	begin(s, w, number, sim_below(s, 100) < spec->push_percent ? SIM_PUSH : SIM_PUSHPULL,
		round);
	return true;
}

static void
go_lane(struct sim *s, struct sim_worker *w, unsigned e)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	struct sim_lane *l = &w->lane[e];

	while (!l->finished) {
		if (l->at < l->n) {
			if (!issue(s, w, l))
				return;
			l->at++;
			continue;
		}
		l->at = 0;
		if (l->sync) {
			if (l->in_flight > 0) { /* what is known decides what to do */
				l->at = l->n;
				return;
			}
			l->sync = false;
		} else if (l->round == spec->rounds) {
			l->finished = true;
		} else {
			l->round++;
			l->not_before = s->now + sim_below(s, spec->compute_ns);
		}
		shuffle(s, w, e);
	}
}

/* PING goes to data endpoints as well; its PONG is a control frame to nobody's request. */
static void
ping_endpoint(struct sim *s, struct sim_worker *w)
{
	uint8_t payload[64] = {1, 2, 3};
	struct pbox_hdr h = {.type = PBOX_PING,
		.token = w->token,
		.job = w->job_no,
		.worker = w->id,
		.incarnation = w->incarnation,
		.length = (uint16_t)sim_below(s, sizeof(payload))};

	sim_worker_send(s, w, &h, payload, (uint16_t)sim_below(s, s->sc.endpoints));
}

/*
 * A worker that is started again needs the others: where that happens nobody leaves before all
 * have finished. Those who wait keep their sessions alive.
 */
static void
finish_job(struct sim *s, struct sim_worker *w)
{
	struct sim_job *j = &s->job[w->job];

	if (!w->finished) {
		w->finished = true;
		j->finished++;
	}
	if ((s->sc.job[w->job].restarts == 0 && s->sc.crashes == 0) ||
		j->finished == s->sc.job[w->job].workers) {
		sim_control_leave(s, w);
		return;
	}
	ping_endpoint(s, w);
	sim_control_request(s, w, PBOX_PING, 0);
}

void
sim_data_go(struct sim *s, struct sim_worker *w)
{
	bool finished = true;

	if (w->state != SIM_WORK || w->work == NULL)
		return;
	if (w->restoring) {
		sim_restore_go(s, w);
		return;
	}
	for (unsigned e = 0; e < s->sc.endpoints; e++) {
		go_lane(s, w, e);
		finished &= w->lane[e].finished;
	}
	if (finished && w->n_flying == 0 && w->state == SIM_WORK && w->type == 0)
		finish_job(s, w);
}

uint64_t
sim_data_timer(struct sim *s, struct sim_worker *w)
{
	const struct sim_job *j = &s->job[w->job];
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < w->n_flying; i++) {
		struct sim_work *k = &w->work[w->flying[i]];

		if (k->deadline <= s->now) {
			k->tries++;
			sim_data_transmit(s, w, &j->fragment[w->flying[i]]);
			if (k->have)
				k->deadline = s->now + SIM_PROBE + sim_below(s, SIM_PROBE);
		}
		if (k->deadline < next)
			next = k->deadline;
	}
	sim_data_go(s, w); /* computing may be over */
	for (uint32_t i = 0; w->state == SIM_WORK && i < w->n_flying; i++)
		if (w->work[w->flying[i]].deadline < next)
			next = w->work[w->flying[i]].deadline;
	for (unsigned e = 0; e < s->sc.endpoints; e++)
		if (w->lane[e].not_before > s->now && w->lane[e].not_before < next)
			next = w->lane[e].not_before;
	return next;
}
