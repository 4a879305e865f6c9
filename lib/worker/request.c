/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/* Control requests and their retransmission (R3.1). */

#define FIRST_INTERVAL (50 * NS_PER_MS)
#define MAX_INTERVAL   NS_PER_S
#define MAX_TRIES      9

static void
request_unlist(struct session *s, struct pbox_worker_request *r)
{
	struct pbox_worker_request **p = &s->requests;

	while (*p != NULL && *p != r)
		p = &(*p)->next;
	assert(*p == r); /* a request is of one session */
	if (*p == r)
		*p = r->next;
	r->listed = false;
}

/** It has its answer, or gets none any more. */
static void
request_end(struct pbox_worker *w, struct pbox_worker_request *r)
{
	if (r->own || r->watched)
		return;
	r->next = NULL;
	*w->answered_tail = r;
	w->answered_tail = &r->next;
}

static void
request_send(struct session *s, struct pbox_worker_request *r, bool again)
{
	struct iovec iov = {(void *)(uintptr_t)r->payload, r->length};
	struct pbox_hdr h;

	header_fill(s, &h, r->type, s->w->now);
	h.chunk = r->id;
	h.length = r->length;
	h.map_epoch = r->map_epoch;
	if (again)
		h.flags |= PBOX_F_RETX;
	link_frame(&s->w->lane[0]->link, s, &s->box, &h, &iov, r->length > 0, false);
	/* double at every second try: see loss_recovery.c */
	r->next_tx =
		s->w->now + (r->tries < MAX_TRIES ? FIRST_INTERVAL << r->tries / 2 : MAX_INTERVAL);
	r->tries++;
}

static void
request_start(struct session *s, struct pbox_worker_request *r)
{
	struct pbox_worker_request **end = &s->requests;
	struct pbox_worker *w = s->w;

	assert(!r->listed);
	r->id = w->next_id++;
	if (w->failed || (w->shut && r->type != PBOX_LEAVE)) {
		request_end(w, r);
		return;
	}
	while (*end != NULL)
		end = &(*end)->next;
	r->next = NULL;
	*end = r;
	r->listed = true;
	r->next_tx = 0;
	r->tries = 0;
	/* a request of the host waits for the tick: only then does the worker know the time */
	if (r->own && rejoin_admits(s, r))
		request_send(s, r, false);
}

void
request_begin(struct session *s, struct pbox_worker_request *r, uint8_t type, const void *payload,
	size_t length, uint16_t map_epoch, void *answer, size_t cap)
{
	*r = (struct pbox_worker_request){.type = type,
		.map_epoch = map_epoch,
		.payload = payload,
		.length = (uint16_t)length,
		.answer = answer,
		.answer_cap = cap,
		.own = true};
	request_start(s, r);
}

void
request_ask(struct session *s, struct pbox_worker_request *r)
{
	assert(r->watched && !r->listed);
	request_start(s, r);
}

void
request_drop(struct session *s, struct pbox_worker_request *r)
{
	if (!r->listed)
		return;
	request_unlist(s, r);
	/* its payload may be in a batch, and is the caller's now */
	link_flush(&s->w->lane[0]->link);
}

void
request_renew(struct session *s)
{
	for (struct pbox_worker_request *r = s->requests; r != NULL; r = r->next) {
		r->next_tx = s->w->now;
		r->tries = 0;
	}
}

void
request_tick(struct session *s)
{
	for (struct pbox_worker_request *r = s->requests; r != NULL; r = r->next)
		if (r->next_tx <= s->w->now && rejoin_admits(s, r))
			request_send(s, r, r->tries > 0);
}

uint64_t
request_due(const struct session *s)
{
	uint64_t due = UINT64_MAX;

	for (const struct pbox_worker_request *r = s->requests; r != NULL; r = r->next)
		if (r->next_tx < due && rejoin_admits(s, r))
			due = r->next_tx;
	return due;
}

void
request_fail_all(struct session *s)
{
	while (s->requests != NULL) {
		struct pbox_worker_request *r = s->requests;

		request_unlist(s, r);
		request_end(s->w, r);
	}
}

static bool
is_coefficient(const struct pbox_worker_request *r)
{
	struct pbox_set m;

	return pbox_set_decode(r->payload, r->length, &m) == 0 && m.count > 0 &&
	       m.param[0].id == PBOX_HYPER_COEFFICIENT;
}

/** Has the box a later version than the coefficient is for (R6.15)? It has that from a worker that has set it, after a restart; the
 * other boxes may need it. */
static bool
is_late_coefficient(const struct pbox_worker_request *r)
{
	return r->answer_type == PBOX_ERROR && r->answer_code == PBOX_E_SET_LATE &&
	       is_coefficient(r);
}

/** Taken by its box, or not needed there. */
static bool
is_set(const struct pbox_worker_request *r)
{
	return !r->own && r->type == PBOX_SET &&
	       (r->answer_type == PBOX_SET_OK || is_late_coefficient(r));
}

/** From the first box on that has taken it, one that is started again, or taken in, needs it (R10.4). That box may not be the first one that
 * is not out any more: another one was taken in meanwhile. */
static void
remember_set(struct session *s, struct pbox_worker_request *r)
{
	struct pbox_worker *w = s->w;
	struct pbox_set m;

	if (!is_set(r) || r->taken != 0)
		return;
	r->taken = (uint8_t)(s->index + 1);
	if (!w->conf.keep_copies || pbox_set_decode(r->payload, r->length, &m) != 0 ||
		m.table >= w->tables)
		return;
	if (sets_add(w->table[m.table], &m) != 0)
		text_fail(w, PBOX_C_MEMORY, "no memory to remember hyper-parameters");
}

/** Hyper-parameters are set at all boxes, at one after the other: from the one that has taken them first to the last, and then at those before,
 * if there are any by now. @return w->boxes: no other one */
static unsigned
set_next(const struct session *s, const struct pbox_worker_request *r)
{
	const struct pbox_worker *w = s->w;
	unsigned next = worker_next_box(w, s->index), begin = r->taken - 1u;

	if (s->index >= begin && next == w->boxes)
		next = worker_first_box(w);
	else if (s->index >= begin)
		return next;
	return next < begin ? next : w->boxes;
}

/** Its box has answered, the last one that is asked or not. */
static void
request_next(struct session *s, struct pbox_worker_request *r)
{
	unsigned next = is_set(r) ? set_next(s, r) : s->w->boxes;

	if (next == s->w->boxes) {
		request_end(s->w, r);
		return;
	}
	r->map_epoch = 0;
	request_start(s->w->box[next], r);
}

void
request_frame(struct session *s, const struct rx_frame *f)
{
	struct pbox_worker_request *r = s->requests;

	while (r != NULL && r->id != f->hdr.chunk)
		r = r->next;
	if (r == NULL) {
		s->w->count.rx_duplicates++;
		return;
	}
	if (f->hdr.length > r->answer_cap) {
		s->w->count.rx_dropped++;
		return;
	}
	if (f->hdr.length > 0)
		memcpy(r->answer, f->payload, f->hdr.length);
	r->answer_len = f->hdr.length;
	r->answer_type = f->hdr.type;
	r->answer_code = pbox_code_get(&f->hdr);
	r->map_epoch = f->hdr.map_epoch;
	request_unlist(s, r);
	remember_set(s, r);
	request_next(s, r);
}

void
request_retire(struct session *s)
{
	struct pbox_worker_request *r = s->requests, *next;

	for (; r != NULL; r = next) {
		next = r->next;
		if (r->type == PBOX_LEAVE)
			continue;
		request_unlist(s, r);
		if (r->own)
			continue;
		if (r->type == PBOX_SET && r->taken == 0) /* the first box has not answered */
			request_start(s->w->box[worker_first_box(s->w)], r);
		else if (r->type != PBOX_SET)
			request_start(worker_decider(s->w), r);
		else
			request_next(s, r);
	}
}

/* ---- the host's ----------------------------------------------------------------------------- */

/** The one that the host asks. NULL: it is not there. */
static struct session *
request_box(const struct pbox_worker *w, const struct pbox_worker_request *r)
{
	if (r->box > 0)
		return r->box <= w->boxes && !w->box[r->box - 1]->out ? w->box[r->box - 1] : NULL;
	return r->type == PBOX_SET ? w->box[worker_first_box(w)] : worker_decider(w);
}

void
pbox_worker_request(struct pbox_worker *w, struct pbox_worker_request *r)
{
	struct session *s = request_box(w, r);

	assert(!r->listed && (r->answer != NULL || r->answer_cap == 0));
	r->own = false;
	r->taken = 0;
	for (unsigned i = 0; i < w->boxes && r->type == PBOX_LEAVE; i++)
		if (w->box[i] != worker_decider(w))
			header_leave(w->box[i]);
	if (s != NULL)
		request_start(s, r);
	else
		request_end(w, r);
}

static bool
request_is_of(const struct session *s, const struct pbox_worker_request *r)
{
	const struct pbox_worker_request *p = s->requests;

	while (p != NULL && p != r)
		p = p->next;
	return p != NULL;
}

void
pbox_worker_request_cancel(struct pbox_worker *w, struct pbox_worker_request *r)
{
	struct pbox_worker_request **p = &w->answered;

	/* any box may have been asked */
	for (unsigned i = 0; i < w->boxes && r->listed; i++)
		if (request_is_of(w->box[i], r))
			request_drop(w->box[i], r);
	while (*p != NULL && *p != r)
		p = &(*p)->next;
	if (*p == NULL)
		return;
	*p = r->next;
	if (w->answered_tail == &r->next)
		w->answered_tail = p;
}

struct pbox_worker_request *
pbox_worker_answered(struct pbox_worker *w)
{
	struct pbox_worker_request *r = w->answered;

	w->answered = NULL;
	w->answered_tail = &w->answered;
	return r;
}

size_t
pbox_worker_set(void *buf, size_t cap, const struct pbox_worker_table *t, uint16_t group,
	uint32_t round, const struct pbox_client_hyper *h, unsigned n)
{
	struct pbox_set m = {
		.table = t->number, .group = group, .from_round = round, .count = (uint16_t)n};

	assert(n > 0 && n <= PBOX_SET_MAX);
	for (unsigned i = 0; i < n; i++) {
		m.param[i].id = h[i].id;
		m.param[i].value = h[i].value;
	}
	return pbox_set_encode(buf, cap, &m);
}

size_t
pbox_worker_status(void *buf, size_t cap, unsigned first, const struct pbox_worker_wait *on)
{
	struct pbox_status m = {.first = (uint16_t)first};

	if (on != NULL) {
		m.flags = PBOX_STATUS_WAITS;
		m.chunk = on->chunk;
		m.round = on->round;
		m.frag = on->frag;
	}
	return pbox_status_encode(buf, cap, &m);
}

int
pbox_worker_result(const struct pbox_worker_request *r, uint8_t want, const char *what,
	const struct pbox_client_error *ended, struct pbox_client_error *err)
{
	struct pbox_error_msg m;

	if (r->answer_type == want)
		return 0;
	if (r->answer_type == PBOX_ERROR) {
		if (pbox_error_decode(r->answer, r->answer_len, &m) != 0)
			m = (struct pbox_error_msg){.code = r->answer_code};
		return refusal_error(err, &m, what);
	}
	if (r->answer_type != 0)
		return pbox_client_fail(err, PBOX_C_REFUSED, "%s: the box answered %s, not %s",
			what, pbox_type_name(r->answer_type), pbox_type_name(want));
	return pbox_client_fail(err, ended->code, "%s", ended->text);
}
