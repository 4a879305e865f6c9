/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/* Flights: fragments between their first transmission and their answer. Builds data frames, also for retransmissions
 * and probes. */

/** Header and payload of a contribution, at the node that is due. */
static unsigned
flight_contribution(const struct pbox_worker *w, const struct pbox_worker_table *t,
	const struct flight *fl, struct pbox_hdr *h, struct iovec *iov)
{
	const struct frag *f = fl->frag;
	uint32_t count = frag_elements(t, f);
	unsigned n;

	assert(flight_is_push(fl) && (!fl->redo || fl->node == 0));
	t->discipline->contribute(w, t, fl, h);
	h->flags |= PBOX_F_LAST;
	h->format = t->push_format;
	if (fl->redo || t->update != 0)
		return redo_payload(t, f, h, iov);
	if (t->block != 0 && encode_payload(w, t, fl, h, iov, &n))
		return n;
	if (fl->node > 0 && table_is_zero(t, f, fl->node)) {
		h->flags |= PBOX_F_ZERO;
		return 0;
	}
	h->length = (uint16_t)pbox_payload_bytes(t->push_format, count);
	return table_gather(t, f, fl->node, 0, count, t->push_format, iov, MAX_PIECES);
}

/** INIT: a piece of the parameters, or of another array. */
static unsigned
flight_init(const struct pbox_worker_table *t, const struct flight *fl, struct pbox_hdr *h,
	struct iovec *iov)
{
	const struct frag *f = fl->frag;
	struct pbox_part m = {.offset = fl->base};
	uint32_t count = frag_elements(t, f) - fl->base;

	assert(fl->base < frag_elements(t, f));
	if (count > t->init_elements)
		count = t->init_elements;
	h->format = PBOX_FMT_FP32;
	h->length = (uint16_t)pbox_payload_bytes(PBOX_FMT_FP32, count);
	if (table_first_op(t, f)->kind == PBOX_CLIENT_GIVE) {
		m.version = f->round;
		m.array = (uint16_t)table_first_op(t, f)->weight;
		h->flags |= PBOX_F_LATEST;
	}
	pbox_part_put(h, &m);
	return table_gather(t, f, 0, fl->base, count, PBOX_FMT_FP32, iov, MAX_PIECES);
}

static void
flight_fetch(const struct pbox_worker_table *t, const struct flight *fl, struct pbox_hdr *h)
{
	const struct pbox_part m = {.version = fl->frag->round,
		.offset = fl->base,
		.array = (uint16_t)table_first_op(t, fl->frag)->weight};

	pbox_part_put(h, &m);
}

static void
flight_header(struct ep *ep, const struct frag *f, struct pbox_hdr *h, uint8_t type)
{
	const struct chunk *k = &ep->s->w->table[f->table]->chunk[f->chunk];

	header_fill(ep->s, h, type, ep->lane->now);
	h->prio = f->prio;
	h->chunk = k->id;
	h->frag = f->index;
	h->map_epoch = k->epoch;
	if (ep->ece) {
		h->flags |= PBOX_F_ECE;
		ep->ece = false;
	}
}

void
flight_send(struct ep *ep, struct flight *fl, bool probe, bool again)
{
	struct pbox_worker *w = ep->s->w;
	struct frag *f = fl->frag;
	struct pbox_worker_table *t = w->table[f->table];
	struct iovec iov[MAX_PIECES];
	unsigned n = 0;
	struct pbox_hdr h;

	assert(fl->state != FLIGHT_FREE && f->state == FRAG_FLIGHT && &ep->flight[f->flight] == fl);
	/* a worker without slots in this round only asks for its result */
	probe |= flight_is_push(fl) && nodes_of(w, t) == 0;
	flight_header(ep, f, &h, probe ? PBOX_PULL : flight_frame_type(w, fl));
	if (h.type == PBOX_RESTORE) {
		h.format = t->pull_format;
		if (t->discipline->report(w, t, f, &h) && fl->give)
			n = retained_give(t, f, &h, iov);
	} else if (h.type == PBOX_PULL) {
		t->discipline->ask(w, t, f, &h);
	} else if (h.type == PBOX_FETCH) {
		flight_fetch(t, fl, &h);
	} else {
		n = h.type == PBOX_INIT ? flight_init(t, fl, &h, iov)
					: flight_contribution(w, t, fl, &h, iov);
		if (fl->fresh == fl->node)
			fl->fresh++;
		fl->payload_ts = h.ts;
		if (again) {
			ep->lane->count.retransmitted_frames++;
			ep->lane->count.retransmitted_bytes += h.length;
		} else {
			ep->lane->count.useful_tx_bytes += h.length;
		}
	}
	if (again)
		h.flags |= PBOX_F_RETX;
	/* Zero copy: the payload of a first transmission stays until its answer is here. That answer may come
	 * while a retransmission waits to be sent, and then the caller has the memory again: so those are copied. */
	link_frame(&ep->lane->link, ep->s, &ep->peer, &h, iov, n, n > 0 && !again);
	fl->ts = h.ts;
	fl->seq = ++ep->seq;
	if (fl->order == 0)
		fl->order = fl->seq;
	fl->sent_ns = ep->lane->now;
	timer_append(ep, fl, ep->lane->now);
}

/** Reports of chunks that have moved and other fragments have a half of the window each. */
static uint32_t *
overtaking_of(struct ep *ep, const struct flight *fl)
{
	return fl->type == PBOX_RESTORE ? &ep->reports : &ep->overtaking;
}

struct flight *
flight_launch(struct ep *ep, struct frag *f, uint8_t type, bool overtakes)
{
	struct pbox_worker *w = ep->s->w;
	struct flight *fl = ep->free;

	assert(f->state == FRAG_IDLE && ep->in_flight < ep->win.max && fl != NULL);
	/* a box hears what the worker has before anything else of the fragment (R10.5, R16.10) */
	assert(type == PBOX_RESTORE || !frag_restoring(w->table[f->table], f));
	ep->free = fl->next;
	*fl = (struct flight){.frag = f,
		.type = type,
		.state = FLIGHT_SENT,
		.left = 1,
		.overtakes = overtakes,
		.first_ns = ep->lane->now};
	f->state = FRAG_FLIGHT;
	f->flight = (uint16_t)(fl - ep->flight);
	/* codes and copies are made anew below, where those before them may wait in a retransmission whose answer came meanwhile */
	if (ep->lane->link.loose &&
		(w->table[f->table]->block != 0 || w->table[f->table]->redo != NULL))
		link_flush(&ep->lane->link);
	fl->redo = flight_is_push(fl) && f->owes;
	fl->again = flight_is_push(fl) && !fl->redo && table_pushes_again(w->table[f->table], f);
	if (flight_is_push(fl) && !fl->again && !fl->redo) {
		w->table[f->table]->discipline->push(f);
		if (w->table[f->table]->redo != NULL)
			redo_keep(w->table[f->table], f);
	}
	if (ep->in_flight++ == 0)
		ep->busy.from = ep->lane->now;
	*overtaking_of(ep, fl) += overtakes;
	flight_send(ep, fl, false, false);
	return fl;
}

/** The frames of a run: what they say differs in the fragment, and in the length of a chunk's last one. */
static void
flight_send_run(struct ep *ep, struct flight *fl, unsigned n)
{
	struct pbox_worker *w = ep->s->w;
	const struct frag *f = fl->frag;
	const struct pbox_worker_table *t = w->table[f->table];
	struct iovec iov[MAX_PIECES];
	unsigned parts = 0;
	struct pbox_hdr h;

	flight_header(ep, f, &h, fl->type);
	if (fl->type == PBOX_PULL) {
		t->discipline->ask(w, t, f, &h);
	} else {
		parts = flight_contribution(w, t, fl, &h, iov);
		assert(parts == 1 && h.length == iov[0].iov_len);
		fl->fresh = 1;
		fl->payload_ts = h.ts;
	}
	for (unsigned i = 0; i < n; i++) {
		if (i > 0) { /* the next one's elements follow */
			h.frag++;
			h.flags &= (uint16_t)~PBOX_F_ECE;
			if (t->difference != 0)
				pbox_copy_age_put(&h, encode_age(t, f + i));
			if (parts > 0)
				iov[0].iov_base = (uint8_t *)iov[0].iov_base + iov[0].iov_len;
		}
		if (parts > 0 && i + 1 == n) {
			h.length = (uint16_t)pbox_payload_bytes(
				t->push_format, frag_elements(t, f + i));
			iov[0].iov_len = h.length;
		}
		link_frame(&ep->lane->link, ep->s, &ep->peer, &h, iov, parts, parts > 0);
		ep->lane->count.useful_tx_bytes += h.length;
	}
	fl->ts = h.ts;
	fl->order = fl->seq = ep->seq + 1;
	ep->seq += n;
	fl->sent_ns = ep->lane->now;
	timer_append(ep, fl, ep->lane->now);
}

void
flight_launch_run(struct ep *ep, struct frag *f, unsigned n, uint8_t type, bool overtakes)
{
	const struct worker_discipline *d = ep->s->w->table[f->table]->discipline;
	struct flight *fl = ep->free;

	assert(n > 1 && n <= RUN_MOST && ep->in_flight + n <= ep->win.max && fl != NULL);
	assert(!frag_restoring(ep->s->w->table[f->table], f));
	ep->free = fl->next;
	*fl = (struct flight){.frag = f,
		.type = type,
		.state = FLIGHT_SENT,
		.left = UINT64_MAX >> (RUN_MOST - n),
		.overtakes = overtakes,
		.first_ns = ep->lane->now};
	for (unsigned i = 0; i < n; i++) {
		assert(f[i].state != FRAG_FLIGHT);
		f[i].state = FRAG_FLIGHT;
		f[i].flight = (uint16_t)(fl - ep->flight);
		if (flight_is_push(fl))
			d->push(&f[i]);
	}
	if (ep->in_flight == 0)
		ep->busy.from = ep->lane->now;
	ep->in_flight += n;
	ep->overtaking += overtakes ? n : 0;
	flight_send_run(ep, fl, n);
}

void
flight_next_node(struct ep *ep, struct flight *fl)
{
	assert(flight_is_between(ep->s->w, fl) && fl->state != FLIGHT_WAITING);
	fl->node++;
	fl->state = FLIGHT_SENT;
	fl->backoff = fl->tries = fl->losses = 0;
	fl->order = 0;
	/* after a step back some were sent before */
	flight_send(ep, fl, false, fl->node < fl->fresh);
}

void
flight_land(struct ep *ep, struct flight *fl)
{
	struct frag *f = fl->frag;

	assert(fl->state != FLIGHT_FREE && f->state == FRAG_FLIGHT && ep->in_flight > 0);
	assert(*overtaking_of(ep, fl) >= fl->overtakes && ep->waiting <= ep->in_flight);
	timer_unlist(ep, fl);
	ep->waiting -= fl->state == FLIGHT_WAITING;
	*overtaking_of(ep, fl) -= fl->overtakes;
	fl->state = FLIGHT_FREE;
	fl->prev = NULL;
	fl->next = ep->free;
	ep->free = fl;
	if (--ep->in_flight == 0)
		ep->busy.ns += ep->lane->now - ep->busy.from;
	f->state = FRAG_IDLE;
}

void
flight_withdraw(struct pbox_worker_table *t, struct flight *fl)
{
	assert(fl->state != FLIGHT_FREE && fl->frag->state == FRAG_FLIGHT);
	if (!flight_is_push(fl) || fl->again || fl->redo)
		return;
	t->discipline->withdraw(fl->frag);
	table_recounts(t);
}

void
flight_withdraw_all(struct session *s)
{
	run_cut_all(s);
	for (unsigned i = 0; i < s->endpoints; i++)
		while (s->ep[i].first != NULL) {
			struct flight *fl = s->ep[i].first;

			flight_withdraw(s->w->table[fl->frag->table], fl);
			flight_land(&s->ep[i], fl);
		}
	for (unsigned i = 0; i < s->endpoints; i++)
		assert(s->ep[i].in_flight == 0 && s->ep[i].waiting == 0 &&
			s->ep[i].overtaking == 0 && s->ep[i].reports == 0);
}
