/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "sim.h"

/* What a worker makes of the answers to its data frames. */

static void
on_result(struct sim *s, struct sim_worker *w, const struct sim_fragment *f,
	const struct pbox_hdr *h, const uint8_t *payload)
{
	struct sim_work *k = &w->work[f->number];
	uint32_t weight;
	const uint8_t *want;

	if (pbox_serial_diff(h->round, f->published) > 0) {
		sim_fail(s, "RESULT of round %u, which the box never sent", h->round);
		return;
	}
	want = sim_expected(
		&s->sc, w->job, s->job[w->job].life, (struct sim_fragment *)f, h->round, &weight);
	if (want != NULL && memcmp(want, payload, h->length) != 0) {
		sim_fail(s, "job %u worker %u: RESULT of round %u arrives with other bytes", w->job,
			w->id, h->round);
		return;
	}
	if (k->phase == SIM_TELL)
		return; /* a result that it has */
	if (k->phase == SIM_SYNC) {
		sim_restore_keep(w, f, h, payload);
		sim_data_finish(s, w, f, h->round);
		return;
	}
	if (k->phase == SIM_IDLE || pbox_serial_diff(h->round, k->round) < 0)
		return; /* repeated */
	if (h->round != k->round)
		sim_fail(s, "job %u worker %u: RESULT of round %u, while it works on %u", w->job,
			w->id, h->round, k->round);
	else if (k->phase == SIM_PULL || k->phase == SIM_PUSHPULL) {
		sim_restore_keep(w, f, h, payload);
		sim_data_finish(s, w, f, h->round);
	}
}

/* In mode 1 worker 0 learns that a fragment has no parameters, in mode 0 that no round is done. */
static void
on_wait_in_sync(
	struct sim *s, struct sim_worker *w, const struct sim_fragment *f, const struct pbox_hdr *h)
{
	struct sim_work *k = &w->work[f->number];

	if (sim_spec(&s->sc, w->job, f)->fixed.mode == PBOX_MODE_ALLREDUCE) {
		if (h->base != s->sc.job[w->job].first_round &&
			!(f->no_result && h->base == f->version))
			sim_fail(s, "PULL LATEST is told to wait at version %u", h->base);
		sim_data_finish(s, w, f, h->base);
	} else if (w->id == 0) {
		k->phase = SIM_INIT;
		k->round = 0;
		k->deadline = s->now;
	} else {
		k->deadline = s->now + SIM_PROBE;
	}
}

static void
on_wait(struct sim *s, struct sim_worker *w, const struct sim_fragment *f, const struct pbox_hdr *h)
{
	struct sim_work *k = &w->work[f->number];
	bool have = (h->flags & PBOX_F_HAVE) != 0;

	if (k->phase == SIM_SYNC) {
		on_wait_in_sync(s, w, f, h);
		return;
	}
	if (k->phase == SIM_IDLE || k->phase == SIM_INIT || k->phase == SIM_TELL ||
		h->round != k->round)
		return;
	/* asked after it had been said that the contribution is there */
	if (!have && k->have && !k->pushed && s->sc.net.corrupt > 0.0 &&
		pbox_serial_diff(h->ts, k->ok_ts) > 0)
		k->have = false; /* it was damaged, and has been taken back (R2.5) */
	if (!have && (k->have || k->pushed) && pbox_serial_diff(h->ts, k->ok_ts) > 0) {
		sim_fail(s,
			"job %u worker %u chunk %x frag %u: the box has lost its contribution to "
			"round %u",
			w->job, w->id, f->chunk, f->frag, k->round);
		return;
	}
	if (have && !k->have) {
		k->have = true;
		k->ok_ts = sim_us(s);
	}
	if (k->phase == SIM_PULL || k->have) {
		k->deadline = s->now + SIM_PROBE + sim_below(s, SIM_PROBE / 4);
	} else { /* lost, or before INIT */
		k->tries = k->tries > 0 ? k->tries : 1;
		k->deadline = s->now + 200 * US + sim_below(s, 5 * MS);
	}
	sim_worker_wake(s, w, k->deadline);
}

static void
on_init_ok(
	struct sim *s, struct sim_worker *w, const struct sim_fragment *f, const struct pbox_hdr *h)
{
	struct sim_work *k = &w->work[f->number];
	uint32_t piece = s->job[w->job].init_elements;
	unsigned pieces = (f->elements + piece - 1) / piece;

	if (k->phase != SIM_INIT)
		return;
	if (h->base % piece != 0 || h->base >= f->elements) {
		sim_fail(s, "INIT_OK of element %u", h->base);
		return;
	}
	k->init |= (uint8_t)(1u << h->base / piece);
	if (k->init == (1u << pieces) - 1) {
		sim_restore_keep_initial(s, w, f);
		sim_data_finish(s, w, f, 0);
	}
}

static void
on_push_ok(
	struct sim *s, struct sim_worker *w, const struct sim_fragment *f, const struct pbox_hdr *h)
{
	struct sim_work *k = &w->work[f->number];

	if (k->phase != SIM_PUSH || h->round != k->round)
		return;
	k->phase = SIM_PULL;
	k->pushed = true;
	k->ok_ts = sim_us(s);
	k->tries = 0;
	sim_data_transmit(s, w, f);
	sim_worker_wake(s, w, k->deadline);
}

static void
measure(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h)
{
	int32_t rtt = pbox_serial_diff(sim_us(s), h->ts);

	if (h->type == PBOX_WAIT && (h->flags & PBOX_F_HAVE) == 0)
		return; /* R2.5 */
	/* both sides round down to whole microseconds */
	if (rtt < 0 || (int64_t)h->held > (int64_t)rtt + 1) {
		sim_fail(s, "%s: sent %d us ago, held for %u us", pbox_type_name(h->type), rtt,
			h->held);
		return;
	}
	rtt -= (int32_t)h->held;
	w->srtt_us = (uint32_t)((w->srtt_us * 7 + (rtt > 0 ? (uint32_t)rtt : 1)) / 8);
}

void
sim_data_answer(
	struct sim *s, struct sim_worker *w, const struct pbox_hdr *h, const uint8_t *payload)
{
	const struct sim_fragment *f = sim_find(&s->job[w->job], h->chunk, h->frag);

	if (f == NULL) {
		sim_fail(s, "%s of a fragment that nobody knows", pbox_type_name(h->type));
		return;
	}
	if (h->type == PBOX_RESTORE_OK) { /* also unasked: no round trip is taken from it */
		sim_restore_answer(s, w, f, h);
		return;
	}
	measure(s, w, h);
	if (h->type == PBOX_RESULT) {
		on_result(s, w, f, h, payload);
	} else if (h->type == PBOX_WAIT) {
		on_wait(s, w, f, h);
	} else if (h->type == PBOX_INIT_OK) {
		on_init_ok(s, w, f, h);
	} else if (h->type == PBOX_PUSH_OK) {
		on_push_ok(s, w, f, h);
	} else if (h->type == PBOX_ERROR && w->work[f->number].phase != SIM_IDLE) {
		/* NO_LR: the worker that sets it is late */
		w->work[f->number].deadline = s->now + 1 * MS + sim_below(s, 5 * MS);
		sim_worker_wake(s, w, w->work[f->number].deadline);
	}
}
