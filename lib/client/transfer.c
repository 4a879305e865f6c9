/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <limits.h>
#include <stdio.h>

#include "restart.h"

#define PUMP_TURN 8 /* frames */

/* Ready fragments become frames, answers become finished pieces (section 6 of the protocol). */

unsigned
transfer_gather(const struct table *t, const struct frag *f, uint32_t from, uint32_t count,
	unsigned size, struct iovec *iov, unsigned cap)
{
	uint32_t at = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < f->pieces && count > 0; i++) {
		const struct piece *p = &t->piece[f->piece + i];
		const struct entry *e = t->tensor[p->tensor].head;
		uint32_t skip, take;

		if (from >= at + p->elements) {
			at += p->elements;
			continue;
		}
		skip = from - at;
		take = p->elements - skip < count ? p->elements - skip : count;
		if (n > 0 && (const uint8_t *)iov[n - 1].iov_base + iov[n - 1].iov_len ==
				     e->in + (p->offset + skip) * size) {
			iov[n - 1].iov_len += (size_t)take * size;
		} else {
			if (n == cap)
				return 0;
			iov[n++] = (struct iovec){
				(void *)(uintptr_t)(e->in + (p->offset + skip) * size),
				(size_t)take * size};
		}
		from += take;
		count -= take;
		at += p->elements;
	}
	return n;
}

/** What of piece @p base of the fragment came goes to its tensors, in fp32. */
static void
scatter(const struct table *t, const struct frag *f, uint32_t from, uint32_t count,
	const uint8_t *payload)
{
	uint32_t at = 0;

	for (unsigned i = 0; i < f->pieces; i++) {
		const struct piece *p = &t->piece[f->piece + i];
		const struct entry *e = t->tensor[p->tensor].head;
		uint32_t first = from > at ? from : at;
		uint32_t end = from + count < at + p->elements ? from + count : at + p->elements;

		if (first < end && e->out != NULL)
			memcpy(e->out + (p->offset + first - at) * sizeof(float),
				payload + (size_t)(first - from) * sizeof(float),
				(size_t)(end - first) * sizeof(float));
		at += p->elements;
	}
}

static const struct op *
first_op(const struct table *t, const struct frag *f)
{
	return t->tensor[t->piece[f->piece].tensor].head->op;
}

/* ---- sending --------------------------------------------------------------------------- */

void
transfer_send(struct pbox_client *c, struct ep *ep, struct flight *fl, bool probe, bool again)
{
	struct frag *f = fl->frag;
	struct table *t = c->table_of[f->table];
	struct iovec iov[MAX_PIECES];
	unsigned n = 0;
	struct pbox_hdr h;

	session_header(c, &h, probe ? PBOX_PULL : fl->type);
	h.prio = f->prio;
	h.chunk = t->chunk[f->chunk].id;
	h.frag = f->index;
	h.map_epoch = t->map_epoch;
	h.round = f->round;
	if (ep->ece) {
		h.flags |= PBOX_F_ECE;
		ep->ece = false;
	}
	if (h.type == PBOX_RESTORE) {
		n = copy_restore(t, f, fl, &h, iov);
	} else if (h.type == PBOX_PULL) {
		if (!f->pushed && f->round > 0)
			h.flags |= PBOX_F_LATEST; /* joined a running job: any version will do */
	} else if (h.type == PBOX_FETCH) {
		h.base = fl->base;
		h.aux = (uint16_t)first_op(t, f)->weight;
	} else {
		bool init = h.type == PBOX_INIT;
		uint32_t count = frag_elements(t, f) - fl->base;
		unsigned size = init ? 4 : t->push_size;

		if (init && count > t->init_elements)
			count = t->init_elements;
		n = transfer_gather(t, f, fl->base, count, size, iov, MAX_PIECES);
		h.format = init ? PBOX_FMT_FP32 : t->push_format;
		h.length = (uint16_t)(count * size);
		h.base = init ? fl->base : f->round - 1;
		if (!init) {
			h.flags |= PBOX_F_LAST;
			h.aux = PBOX_LR_MUL_ONE;
			h.weight = first_op(t, f)->weight;
		} else if (first_op(t, f)->kind == PBOX_CLIENT_GIVE) {
			h.flags |= PBOX_F_LATEST;
			h.aux = (uint16_t)first_op(t, f)->weight;
		} else {
			h.round = 0;
		}
		fl->payload_ts = h.ts;
		if (again) {
			c->count.retransmitted_frames++;
			c->count.retransmitted_bytes += h.length;
		} else {
			c->count.useful_tx_bytes += h.length;
		}
	}
	if (again)
		h.flags |= PBOX_F_RETX;
	/* what goes for the first time stays until its answer is here; an answer to that may come
	 * while a repetition is still on its way out, and then the caller has the memory back */
	link_frame(&c->link, &ep->peer, &h, iov, n, n > 0 && !again);
	fl->ts = h.ts;
	fl->seq = ++ep->seq;
	if (fl->order == 0)
		fl->order = fl->seq;
	fl->sent_ns = c->now;
	recover_armed(ep, fl, c->now);
}

/** Take back what belongs to failing operations; true if there was any. */
static bool
withdraw(struct pbox_client *c, struct table *t, struct frag *f)
{
	bool any = false;

	for (unsigned i = 0; i < f->pieces; i++) {
		struct piece *p = &t->piece[f->piece + i];

		if (p->want && t->tensor[p->tensor].head->op->failing) {
			piece_finish(c, t, p);
			any = true;
		}
	}
	return any;
}

static bool
wants_failing(const struct table *t, const struct frag *f)
{
	for (unsigned i = 0; i < f->pieces; i++) {
		const struct piece *p = &t->piece[f->piece + i];

		if (p->want && t->tensor[p->tensor].head->op->failing)
			return true;
	}
	return false;
}

static uint8_t
frame_type(const struct table *t, const struct frag *f)
{
	if (f->pulls > 0)
		return PBOX_PULL;
	if (f->inits == f->pieces)
		return PBOX_INIT;
	if (f->states == f->pieces)
		return first_op(t, f)->kind == PBOX_CLIENT_FETCH ? PBOX_FETCH : PBOX_INIT;
	for (unsigned i = 0; i < f->pieces; i++)
		if (t->tensor[t->piece[f->piece + i].tensor].head->op->kind == PBOX_CLIENT_PUSHPULL)
			return PBOX_PUSHPULL;
	return PBOX_PUSH;
}

struct flight *
transfer_launch(struct pbox_client *c, struct ep *ep, struct frag *f, uint8_t type, bool urgent)
{
	struct flight *fl = ep->free;

	ep->free = fl->next;
	*fl = (struct flight){.frag = f,
		.type = type,
		.state = FLIGHT_SENT,
		.urgent = urgent,
		.first_ns = c->now};
	f->state = FRAG_FLIGHT;
	f->flight = (uint16_t)(fl - ep->flight);
	if (fl->type == PBOX_PUSHPULL || fl->type == PBOX_PUSH) {
		f->round++;
		f->pushed = true;
	}
	ep->in_flight++;
	ep->urgent += urgent;
	transfer_send(c, ep, fl, false, false);
	return fl;
}

static bool
any_ready(const struct ep *ep)
{
	return (ep->ready_map[0] | ep->ready_map[1] | ep->ready_map[2] | ep->ready_map[3]) != 0;
}

/** Launch up to @p most fragments; their number. */
static unsigned
pump_endpoint(struct pbox_client *c, struct ep *ep, unsigned most)
{
	uint32_t window = window_frames(&ep->win);
	unsigned n = restore_pump(c, ep, most);

	/* what the box holds for slower workers is not in the network, but counts
	 * towards what the box has granted (R6.9) */
	while (n < most && ep->in_flight < ep->win.max && ep->in_flight - ep->held < window) {
		bool urgent;
		struct frag *f = queue_pop(c, ep, &urgent);
		struct table *t;

		if (f == NULL)
			break;
		t = c->table_of[f->table];
		f->state = FRAG_IDLE;
		if (withdraw(c, t, f)) {
			queue_check(c, t, f);
		} else {
			transfer_launch(c, ep, f, frame_type(t, f), urgent);
			n++;
		}
	}
	ep->limited = any_ready(ep);
	return n;
}

/*
 * Endpoints in turn, each worker beginning with another: where they are ports with links of their
 * own, a whole window for the first while the others get nothing would leave those idle, and all
 * workers would meet at the same one. A turn is long enough for a train of frames (GSO).
 */
void
transfer_pump(struct pbox_client *c)
{
	unsigned turn = c->endpoints > 1 ? PUMP_TURN : UINT_MAX;
	bool more = true;

	while (more) {
		more = false;
		for (unsigned i = 0; i < c->endpoints; i++) {
			struct ep *ep = &c->ep[(c->worker + i) % c->endpoints];

			more |= pump_endpoint(c, ep, turn) == turn;
		}
	}
}

/* ---- answers --------------------------------------------------------------------------- */

void
transfer_land(struct ep *ep, struct flight *fl)
{
	struct frag *f = fl->frag;

	recover_unlist(ep, fl);
	ep->held -= fl->state == FLIGHT_HELD;
	ep->urgent -= fl->urgent;
	fl->state = FLIGHT_FREE;
	fl->prev = NULL;
	fl->next = ep->free;
	ep->free = fl;
	ep->in_flight--;
	f->state = FRAG_IDLE;
}

void
transfer_withdraw_all(struct pbox_client *c)
{
	for (unsigned i = 0; i < c->endpoints; i++)
		while (c->ep[i].first != NULL) {
			struct flight *fl = c->ep[i].first;

			if (fl->type == PBOX_PUSH || fl->type == PBOX_PUSHPULL)
				fl->frag->round--;
			transfer_land(&c->ep[i], fl);
		}
}

void
transfer_fail(struct pbox_client *c, struct table *t, struct frag *f, int code, const char *text)
{
	for (unsigned i = 0; i < f->pieces; i++) {
		struct piece *p = &t->piece[f->piece + i];

		if (p->want)
			op_fail(c, t->tensor[p->tensor].head->op, code, text);
	}
}

/** The flight has done its work: finish its pieces, with @p payload (NULL: nothing to deliver,
 * or zeroes if @p zero). */
static void
complete(struct pbox_client *c, struct table *t, struct flight *fl, struct ep *ep,
	const uint8_t *payload, bool zero)
{
	struct frag *f = fl->frag;
	bool pull = fl->type == PBOX_PULL;
	size_t at = 0;

	transfer_land(ep, fl);
	for (unsigned i = 0; i < f->pieces; i++) {
		struct piece *p = &t->piece[f->piece + i];
		size_t bytes = (size_t)p->elements * t->pull_size;
		struct entry *e = p->want ? t->tensor[p->tensor].head : NULL;

		if (e != NULL && (e->op->kind == PBOX_CLIENT_PULL) == pull) {
			if (e->out != NULL && payload != NULL)
				memcpy(e->out + p->offset * t->pull_size, payload + at, bytes);
			else if (e->out != NULL && zero)
				memset(e->out + p->offset * t->pull_size, 0, bytes);
			piece_finish(c, t, p);
		}
		at += bytes;
	}
	c->count.fragments_done++;
	queue_check(c, t, f);
}

static void
on_result(struct pbox_client *c, struct table *t, struct ep *ep, struct flight *fl,
	const struct rx_frame *r)
{
	const struct pbox_hdr *h = &r->hdr;
	struct frag *f = fl->frag;
	size_t bytes = (size_t)frag_elements(t, f) * t->pull_size;
	bool zero = (h->flags & PBOX_F_ZERO) != 0 && h->length == 0;
	bool latest = fl->type == PBOX_PULL && !f->pushed && f->round > 0;

	if (fl->type != PBOX_PUSHPULL && fl->type != PBOX_PULL) {
		c->count.rx_duplicates++;
		return;
	}
	if (h->round != f->round && !latest) {
		c->count.rx_duplicates++;
		return;
	}
	if (!zero && (h->length != bytes || h->format != t->pull_format)) {
		c->count.rx_dropped++;
		return;
	}
	recover_answer(ep, fl, h, c->now);
	recover_result(ep, fl, h, c->now);
	window_answered(&ep->win, ep->limited, c->now);
	f->round = h->round;
	copy_result(t, f, h, zero ? NULL : r->payload);
	c->count.useful_rx_bytes += bytes;
	c->count.held_ns_sum += h->held * NS_PER_US;
	c->count.contributors = h->aux;
	c->count.samples = h->weight;
	complete(c, t, fl, ep, zero ? NULL : r->payload, zero);
}

static void
on_wait(struct pbox_client *c, struct table *t, struct ep *ep, struct flight *fl,
	const struct pbox_hdr *h)
{
	struct frag *f = fl->frag;

	if (h->round != f->round || fl->type == PBOX_INIT || fl->type == PBOX_FETCH) {
		c->count.rx_duplicates++;
		return;
	}
	recover_answer(ep, fl, h, c->now);
	if (wants_failing(t, f)) {
		/* nobody waits for the round any more; what matters is whether it counts */
		if ((h->flags & PBOX_F_HAVE) == 0 && fl->type != PBOX_PULL)
			f->round--;
		complete(c, t, fl, ep, NULL, false);
		return;
	}
	recover_wait(c, ep, fl, h);
}

/** Does it answer this flight, and not an earlier one (another array, the same piece)? */
static bool
of_this(const struct flight *fl, const struct pbox_hdr *h)
{
	return (int32_t)(h->ts - (uint32_t)(fl->first_ns / NS_PER_US)) >= 0;
}

/** A piece of the fragment is done: go on with the next one, false if it was the last. */
static bool
next_piece(struct pbox_client *c, struct table *t, struct ep *ep, struct flight *fl,
	const struct pbox_hdr *h)
{
	recover_answer(ep, fl, h, c->now);
	window_answered(&ep->win, ep->limited, c->now);
	if (frag_elements(t, fl->frag) - fl->base <= t->init_elements)
		return false;
	fl->base += t->init_elements;
	fl->state = FLIGHT_SENT;
	fl->backoff = fl->tries = 0;
	fl->order = 0;
	transfer_send(c, ep, fl, false, false);
	return true;
}

static void
on_init_ok(struct pbox_client *c, struct table *t, struct ep *ep, struct flight *fl,
	const struct pbox_hdr *h)
{
	bool give = fl->frag->states > 0;

	if (fl->type != PBOX_INIT || h->base != fl->base || !of_this(fl, h)) {
		c->count.rx_duplicates++;
		return;
	}
	if (next_piece(c, t, ep, fl, h))
		return;
	if (!give) /* what was given is everybody's once it is pulled */
		copy_init(t, fl->frag);
	complete(c, t, fl, ep, NULL, false);
}

static void
on_fetched(struct pbox_client *c, struct table *t, struct ep *ep, struct flight *fl,
	const struct rx_frame *r)
{
	const struct pbox_hdr *h = &r->hdr;
	struct frag *f = fl->frag;
	uint32_t count = frag_elements(t, f) - fl->base;

	if (fl->type != PBOX_FETCH || h->base != fl->base || h->round != f->round ||
		h->aux != first_op(t, f)->weight || !of_this(fl, h)) {
		c->count.rx_duplicates++;
		return;
	}
	if (count > t->init_elements)
		count = t->init_elements;
	if (h->format != PBOX_FMT_FP32 || h->length != count * sizeof(float)) {
		c->count.rx_dropped++;
		return;
	}
	scatter(t, f, fl->base, count, r->payload);
	c->count.useful_rx_bytes += h->length;
	if (!next_piece(c, t, ep, fl, h))
		complete(c, t, fl, ep, NULL, false);
}

static void
on_error(struct pbox_client *c, struct table *t, struct ep *ep, struct flight *fl,
	const struct pbox_hdr *h)
{
	struct frag *f = fl->frag;
	const struct tensor *x = &t->tensor[t->piece[f->piece].tensor];
	char text[256];

	if (h->round != f->round && fl->type != PBOX_INIT) {
		c->count.rx_duplicates++;
		return;
	}
	if (h->aux == PBOX_E_NO_LR)
		snprintf(text, sizeof(text),
			"tensor '%s': its group %u has no learning rate yet: set lr "
			"(pbox_client_set, id 1) before the first push",
			x->name, x->group);
	else if (h->aux == PBOX_E_LOST)
		snprintf(text, sizeof(text),
			"round %u of tensor '%s': the box was restarted, and no worker could give "
			"it the "
			"round before it back: start the job again from a checkpoint",
			f->round, x->name);
	else
		snprintf(text, sizeof(text), "round %u of tensor '%s': the box answered %s (%u)",
			f->round, x->name, pbox_errcode_name(h->aux), h->aux);
	transfer_fail(c, t, f, h->aux == PBOX_E_LOST ? PBOX_C_LOST : PBOX_C_REFUSED, text);
	if (fl->type == PBOX_PUSH || fl->type == PBOX_PUSHPULL)
		f->round--; /* the box has not taken it: the next push is this round again */
	complete(c, t, fl, ep, NULL, false);
}

void
transfer_frame(struct pbox_client *c, const struct rx_frame *r)
{
	const struct pbox_hdr *h = &r->hdr;
	const struct chunk_ref *ref = c->shut ? NULL : refs_find(c, h->chunk);
	struct table *t;
	struct chunk *k;
	struct frag *f;
	struct ep *ep;
	struct flight *fl;

	if (ref == NULL || h->frag * (uint64_t)ref->table->frag_elements >=
				   ref->table->chunk[ref->chunk].elements) {
		c->count.rx_dropped++;
		return;
	}
	t = ref->table;
	k = &t->chunk[ref->chunk];
	f = &t->frag[k->frag + h->frag];
	ep = &c->ep[k->endpoint];
	ep->last_rx = c->now;
	if (r->ce)
		ep->ece = true;
	if (r->ce || (h->flags & PBOX_F_ECE) != 0)
		window_marked(&ep->win, c->now);
	if (f->state != FRAG_FLIGHT) {
		c->count.rx_duplicates++;
		return;
	}
	fl = &ep->flight[f->flight];
	if (fl->type == PBOX_RESTORE)
		restore_answer(c, t, ep, fl, h);
	else if (h->type == PBOX_RESULT)
		on_result(c, t, ep, fl, r);
	else if (h->type == PBOX_WAIT)
		on_wait(c, t, ep, fl, h);
	else if (h->type == PBOX_INIT_OK)
		on_init_ok(c, t, ep, fl, h);
	else if (h->type == PBOX_FETCHED)
		on_fetched(c, t, ep, fl, r);
	else if (h->type == PBOX_ERROR)
		on_error(c, t, ep, fl, h);
	else if (h->type == PBOX_PUSH_OK && fl->type == PBOX_PUSH && h->round == f->round) {
		recover_answer(ep, fl, h, c->now);
		window_answered(&ep->win, ep->limited, c->now);
		complete(c, t, fl, ep, NULL, false);
	} else
		c->count.rx_duplicates++;
}
