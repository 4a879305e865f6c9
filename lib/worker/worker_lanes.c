/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>

#include "worker_impl.h"

/* The interface to a host with a thread for each lane: the cut, and what a lane does by itself. */

#define LONGEST_SLEEP NS_PER_S

int
pbox_worker_cut(struct pbox_worker *w, struct pbox_worker_ops *const *port, unsigned n)
{
	if (n < 1 || n > pbox_worker_endpoints(w, PBOX_WORKER_LANES, NULL, 0) ||
		n > PBOX_WORKER_LANES || w->lanes != 1 || w->tables > 0)
		return -EINVAL;
	for (unsigned i = 1; i < n; i++) {
		w->lane[i] = lane_new(w, i, port[i]);
		if (w->lane[i] == NULL) {
			while (--i > 0)
				free(w->lane[i]);
			return -ENOMEM;
		}
		port[i]->train = port[0]->train;
	}
	w->lanes = n;
	for (unsigned b = 0; b < w->boxes; b++)
		for (unsigned i = 0; i < w->box[b]->endpoints; i++)
			w->box[b]->ep[i].lane = lane_of(w->box[b], i);
	lane_settle_all(w);
	return 0;
}

unsigned
pbox_worker_lanes(const struct pbox_worker *w)
{
	return w->lanes;
}

unsigned
pbox_worker_endpoints(
	const struct pbox_worker *w, unsigned lane, const struct sockaddr_in **addr, unsigned cap)
{
	unsigned n = 0;

	for (unsigned b = 0; b < w->boxes; b++)
		for (unsigned i = 0; i < w->box[b]->endpoints; i++) {
			const struct ep *ep = &w->box[b]->ep[i];

			if (lane < PBOX_WORKER_LANES && ep->lane->number != lane)
				continue;
			if (n < cap)
				addr[n] = &ep->peer.addr;
			n++;
		}
	return n;
}

/* ---- with the lane's lock ------------------------------------------------------------------ */

void
pbox_worker_together(struct pbox_worker *w, uint64_t now)
{
	lane_gather_all(w, now);
}

bool
pbox_worker_steady(struct pbox_worker *w, unsigned lane, uint64_t now)
{
	for (unsigned i = 0; lane == 0 && i < w->boxes; i++) {
		struct session *s = w->box[i];

		if (s->retired)
			continue;
		if (now > s->last_rx + REJOIN_SILENCE && now > lane_heard(s) + REJOIN_SILENCE)
			return false;
	}
	return w->steady && !w->mixed;
}

/** Is it data of an endpoint of the lane? */
static bool
is_own(const struct session *s, const struct rx_frame *f)
{
	const struct pbox_hdr *h = &f->hdr;
	const struct chunk_ref *ref;

	if (!f->sure || h->type < PBOX_FIRST_DATA_TYPE || h->type == PBOX_MOVED ||
		h->type == PBOX_NORM_OK || h->token != s->token ||
		h->incarnation != s->incarnation || h->job != s->job_number ||
		h->worker != s->w->worker || !session_from(s, &f->from))
		return false;
	ref = chunks_find(s->w, h->chunk);
	return ref != NULL && ref->table->chunk[ref->chunk].box == s->index &&
	       worker_endpoint(s->w, &ref->table->chunk[ref->chunk])->lane == f->lane;
}

static void
lane_frame(struct session *s, const struct rx_frame *f)
{
	struct lane *l = f->lane;

	if (is_own(s, f)) {
		transfer_frame(s, f);
	} else if (l->rests < LANE_REST) {
		l->rest_of[l->rests] = s;
		l->rest[l->rests++] = *f;
	} else { /* as if the network had lost it */
		l->count.rx_dropped++;
	}
}

static void
lane_time(struct lane *l, uint64_t now)
{
	if (now > l->now)
		l->now = now;
}

bool
pbox_worker_lane_rx(struct pbox_worker *w, unsigned lane, const struct pbox_client_rx *d,
	unsigned n, uint64_t now)
{
	struct lane *l = w->lane[lane];

	lane_time(l, now);
	for (unsigned i = 0; i < n; i++) {
		l->link.rx_bytes += d[i].len;
		link_datagram(l, session_of(w, &d[i]), &d[i], lane_frame);
	}
	return l->rests > 0;
}

uint64_t
pbox_worker_lane_tick(struct pbox_worker *w, unsigned lane, uint64_t now, uint64_t drained)
{
	struct lane *l = w->lane[lane];
	uint64_t due = now + LONGEST_SLEEP;

	lane_time(l, now);
	if (lane == 0)
		w->now = l->now;
	queue_inbox(l);
	queue_start(l, START_BATCH);
	for (unsigned i = 0; i < w->boxes; i++)
		session_after(w->box[i], l, drained);
	link_flush(&l->link);
	if (l->starting != NULL)
		return 0;
	for (unsigned i = 0; i < w->boxes; i++) {
		uint64_t t = session_due(w->box[i], l);

		due = t < due ? t : due;
	}
	return due;
}

uint64_t
pbox_worker_lane_gather(const struct pbox_worker *w, unsigned lane)
{
	uint64_t least = UINT64_MAX;

	if (w->shut || w->failed)
		return 0;
	for (unsigned b = 0; b < w->boxes; b++)
		for (unsigned i = 0; i < w->box[b]->endpoints; i++) {
			const struct ep *ep = &w->box[b]->ep[i];
			uint64_t t;

			if (ep->lane != w->lane[lane])
				continue;
			t = window_gather(&ep->win, ep->in_flight - ep->waiting);
			if (ep->in_flight > ep->waiting && t < least)
				least = t;
		}
	return least != UINT64_MAX ? least : 0;
}

/** Any thread. */
bool
pbox_worker_ended(const struct pbox_worker *w)
{
	return __atomic_load_n(&w->ended_ops, __ATOMIC_RELAXED) != NULL;
}
