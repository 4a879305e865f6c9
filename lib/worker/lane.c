/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "worker_impl.h"

/* Lanes: struct lane says what they are, and who holds which locks. */

struct lane *
lane_new(struct pbox_worker *w, unsigned number, struct pbox_worker_ops *port)
{
	struct lane *l = aligned_alloc(_Alignof(struct lane), sizeof(*l));

	if (l == NULL)
		return NULL;
	memset(l, 0, sizeof(*l));
	l->w = w;
	l->number = number;
	l->now = w->now;
	l->link.port = port;
	return l;
}

struct lane *
lane_of(const struct session *s, unsigned i)
{
	const struct pbox_worker *w = s->w;

	assert(i < PBOX_MAX_ENDPOINTS);

	return w->lane[(s->index + i) % w->lanes];
}

void
lane_gather_all(struct pbox_worker *w, uint64_t now)
{
	if (now > w->now) /* threads read the clock before they get the locks */
		w->now = now;
	for (unsigned i = 0; i < w->lanes; i++) {
		struct lane *l = w->lane[i];

		if (w->now < l->now)
			w->now = l->now;
		queue_inbox(l);
	}
	for (unsigned i = 0; i < w->lanes; i++)
		w->lane[i]->now = w->now;
	queue_collect(w);
}

static bool
is_of_other(const struct pbox_worker *w, const struct chunk *k)
{
	return worker_endpoint(w, k)->lane->number != k->lane;
}

void
lane_moved(struct pbox_worker *w, const struct chunk *k)
{
	w->mixed |= is_of_other(w, k);
}

/** It may have been, and be no longer. */
static bool
is_mixed(const struct pbox_worker *w)
{
	for (uint32_t i = 0; i < w->tables; i++)
		for (uint32_t k = 0; k < w->table[i]->chunks; k++)
			if (is_of_other(w, &w->table[i]->chunk[k]))
				return true;
	return false;
}

void
lane_settle_all(struct pbox_worker *w)
{
	bool steady = w->lanes > 1 && !w->failed && !w->shut && w->declaring.d == NULL;

	if (w->lanes == 1)
		return;
	steady = steady && part_steady(w);
	for (unsigned i = 0; i < w->boxes; i++) {
		const struct session *s = w->box[i];

		if (s->out && s->retired)
			continue;
		steady &= s->out == s->retired && s->phase == SESSION_OPEN && s->listed &&
			  !s->rejoin.joining && s->rejoin.phase == PHASE_NONE && s->doubt_ns == 0 &&
			  s->last_rx != 0;
	}
	if (steady && !w->steady)
		w->mixed = w->mixed && is_mixed(w);
	w->steady = steady;
}

void
lane_flush_all(struct pbox_worker *w)
{
	for (unsigned i = 0; i < w->lanes; i++)
		link_flush(&w->lane[i]->link);
}

uint64_t
lane_heard(struct session *s)
{
	for (unsigned i = 0; i < s->endpoints; i++)
		if (ep_heard(&s->ep[i]) > s->last_rx)
			s->last_rx = ep_heard(&s->ep[i]);
	return s->last_rx;
}

void
lane_stats(const struct lane *l, struct pbox_client_stats *m)
{
	const struct pbox_client_stats *c = &l->count;

	m->tx_frames += l->link.tx_frames;
	m->tx_bytes += l->link.tx_bytes;
	m->rx_frames += l->link.rx_frames;
	m->rx_bytes += l->link.rx_bytes;
	m->rx_dropped += l->link.rx_dropped + c->rx_dropped;
	m->rx_drop_auth += l->link.rx_drop_auth;
	m->useful_tx_bytes += c->useful_tx_bytes;
	m->useful_rx_bytes += c->useful_rx_bytes;
	m->retransmitted_frames += c->retransmitted_frames;
	m->retransmitted_bytes += c->retransmitted_bytes;
	m->probes += c->probes;
	m->rx_duplicates += c->rx_duplicates;
	m->fragments_done += c->fragments_done;
	m->held_ns_sum += c->held_ns_sum;
	m->partial_results += c->partial_results;
	m->redone_pushes += c->redone_pushes;
	m->lost_pushes += c->lost_pushes;
	m->restored_fragments += c->restored_fragments;
	m->stateless_fragments += c->stateless_fragments;
	if (c->contributors > 0) { /* of the latest result of some lane */
		m->contributors = c->contributors;
		m->samples = c->samples;
	}
}
