/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "worker_impl.h"

/* A session, one a box: its phases, its frames, keep-alive within the lease, and its end. */

#define PING_EVERY   NS_PER_S
#define DOUBTFUL     (100 * NS_PER_MS)
#define ASKED_TIME   (20 * NS_PER_MS)
#define FOLLOW_AGAIN (250 * NS_PER_MS)
#define ASKED_MOST   8 /* PINGs of the box that are answered in that time */

/* ---- its beginning ------------------------------------------------------------------------ */

void
session_open(struct session *s, uint64_t deadline)
{
	assert(s->phase != SESSION_OPEN && !s->retired);
	s->phase = SESSION_JOINING;
	s->deadline = deadline;
	join_begin(&s->join, s, s != worker_decider(s->w) ? s->w->worker : s->w->conf.worker);
}

/** The worker leaves all its boxes, so that its number is free for the next attempt. */
static void
open_fails(struct session *s, const struct pbox_client_error *err)
{
	if (s != worker_decider(s->w))
		text_fail(s->w, err->code,
			"the box at %s took this worker in, and another of the job's did not: %s",
			worker_decider(s->w)->name, err->text);
	else
		text_fail(s->w, err->code, "%s", err->text);
	for (unsigned i = 0; i < s->w->boxes; i++)
		header_leave(s->w->box[i]);
}

/** Another box than the one that decides has a later run than this worker was given. That one has it too, and gives it. */
static bool
open_follows(struct session *s)
{
	if (s == worker_decider(s->w) || s->join.rc != PBOX_C_RUN_ENDED || s->w->now >= s->deadline)
		return false;
	s->w->astray = true;
	session_open(s, s->deadline);
	s->join.next_tx = s->w->now + FOLLOW_AGAIN;
	return true;
}

static void
tick_joining(struct session *s)
{
	struct join *j = &s->join;

	if (!j->done && s->w->now >= s->deadline)
		join_finish(j, join_expired(j));
	if (!j->done && !rejoin_waits(s))
		join_tick(j);
	if (!j->done || open_follows(s))
		return;
	if (j->rc == 0)
		j->rc = join_settle(j);
	if (j->rc == 0 && !s->w->lane[0]->link.port->path_known)
		j->rc = path_begin(s, s->deadline);
	if (j->rc != 0)
		open_fails(s, &j->err);
	else
		s->phase = s->w->lane[0]->link.port->path_known ? SESSION_OPEN : SESSION_PATH;
	s->pinged_ns = s->w->now;
}

/* The session ended at once, because its run made way for another one: this worker joins that. */
static void
join_next(struct session *s)
{
	struct pbox_error_msg refused = {.code = PBOX_E_SESSION};

	snprintf(refused.text, sizeof(refused.text), "%s",
		s->path.why_ended.text[0] != 0
			? s->path.why_ended.text
			: "it ended this worker's session, as the job's run ended, or another one began");
	session_open(s, s->deadline);
	s->join.refused = refused;
	s->join.next_tx = s->w->now + JOIN_INTERVAL;
}

static void
tick_path(struct session *s)
{
	path_tick(s);
	if (!s->path.ended && !s->path.done)
		return;
	if (s->path.ended)
		join_next(s);
	else if (s->path.rc != 0)
		open_fails(s, &s->path.err);
	else
		s->phase = SESSION_OPEN;
	path_end(s);
}

/* ---- receiving --------------------------------------------------------------------------- */

bool
session_from(const struct session *s, const struct sockaddr_in *a)
{
	if (a->sin_addr.s_addr == s->box.addr.sin_addr.s_addr)
		return true;
	for (unsigned i = 0; i < s->endpoints; i++)
		if (a->sin_addr.s_addr == s->ep[i].peer.addr.sin_addr.s_addr)
			return true;
	return false;
}

struct session *
session_of(const struct pbox_worker *w, const struct pbox_client_rx *d)
{
	struct session *s = w->box[0];

	for (unsigned k = 1; k < w->boxes && !session_from(s, &d->from); k++)
		s = w->box[k];
	return s;
}

static void
shutting_down(struct session *s)
{
	if (rejoin_possible(s))
		rejoin_begin(s, REJOIN_SHUTDOWN);
	else
		text_fail(s->w, PBOX_C_LOST,
			"the box at %s is shutting down: open the client again when it is back",
			s->name);
}

static void
session_unknown(struct session *s, bool restarted, const char *why)
{
	if (rejoin_possible(s))
		rejoin_begin(s, restarted ? REJOIN_RESTARTED : REJOIN_FORGOTTEN);
	else if (why[0] != 0)
		text_fail(s->w, PBOX_C_LOST, "the box at %s: %s", s->name, why);
	else
		text_fail(s->w, PBOX_C_LOST,
			restarted
				? "the box at %s was restarted, and the job's state went with it: open the client again"
				: "the box at %s does not know this session any more (silent for longer than its lease, or the job ended): open the client again",
			s->name);
}

static bool
error_ends_session(struct session *s, const struct rx_frame *f)
{
	const struct pbox_hdr *h = &f->hdr;
	uint16_t code = pbox_code_get(h);
	struct pbox_error_msg m = {0};

	if (h->length > 0 && pbox_error_decode(f->payload, h->length, &m) == 0)
		code = m.code;
	if (code == PBOX_E_SESSION)
		session_unknown(s, h->incarnation != s->incarnation, m.text);
	else if (code == PBOX_E_SHUTDOWN)
		shutting_down(s);
	return code == PBOX_E_SESSION || code == PBOX_E_SHUTDOWN;
}

/** ERRORs and LEFT that end the session. */
static inline bool
ends_session(struct session *s, const struct rx_frame *f)
{
	const struct pbox_hdr *h = &f->hdr;

	if (h->type == PBOX_LEFT && pbox_shutdown_get(h)) {
		shutting_down(s);
		return true;
	}
	return h->type == PBOX_ERROR && error_ends_session(s, f);
}

/** ERROR SESSION: a box that does not have the session has no key for a tag either (R11.6). */
static bool
unsure_session(const struct session *s, const struct rx_frame *f)
{
	return f->hdr.type == PBOX_ERROR && f->hdr.length == 0 &&
	       pbox_code_get(&f->hdr) == PBOX_E_SESSION && f->hdr.token == s->token;
}

/** A PING of the box has no clock, so a replayed copy looks like the first one. Answers are new frames, and count in the
 * quota of this session: so there are few answers in a time. The box asks again. */
static bool
may_answer(struct session *s)
{
	if (s->w->now - s->asked_ns >= ASKED_TIME) {
		s->asked_ns = s->w->now;
		s->asked = 0;
	}
	return s->asked++ < ASKED_MOST;
}

static void
open_frame(struct session *s, const struct rx_frame *f)
{
	const struct pbox_hdr *h = &f->hdr;
	bool error = h->type == PBOX_ERROR;

	if (rejoin_frame(s, f))
		return;
	if (!f->sure && !unsure_session(s, f)) {
		s->w->lane[0]->link.rx_drop_auth++;
		return;
	}
	/* a restarted box knows nothing of the session: its ERROR SESSION echoes the token, and has no more */
	if (!session_from(s, &f->from) || h->token != s->token ||
		(!error && (h->incarnation != s->incarnation || h->job != s->job_number ||
				   h->worker != s->w->worker))) {
		s->w->count.rx_dropped++;
		return;
	}
	if (!f->sure && auth_doubts(s)) /* session_keep_alive() asks */
		return;
	s->last_rx = s->w->now;
	s->doubt_ns = 0;
	if (session_asks(h) && may_answer(s)) /* is this where our answers may go (R4.9)? */
		header_echo(s, f);
	else if (h->type == PBOX_PING && !session_asks(h) && may_answer(s))
		header_ping(s); /* another process claims our number, and the box asks (R4.6) */
	part_heard(s, h);
	if (h->type == PBOX_PING || ends_session(s, f))
		return;
	rejoin_heard(s);
	if (h->type == PBOX_MOVED)
		return;
	if (h->type == PBOX_NORM_OK)
		part_frame(s, f);
	else if (h->type >= PBOX_FIRST_DATA_TYPE || (error && h->length == 0))
		transfer_frame(s, f);
	else if (h->type != PBOX_PONG && !part_frame(s, f))
		request_frame(s, f);
}

void
session_frame(struct session *s, const struct rx_frame *f)
{
	if (s->w->failed || s->retired)
		return;
	switch (s->phase) {
	case SESSION_JOINING:
		join_frame(&s->join, f);
		break;
	case SESSION_PATH:
		if (session_from(s, &f->from))
			path_frame(s, f);
		break;
	case SESSION_OPEN:
		open_frame(s, f);
		break;
	default:
		break;
	}
}

/* ---- time ----------------------------------------------------------------------------------- */

/** How often the session sends a PING, also while it sends data: all of that may be lost. A worker that survives a
 * restart of the box notices it by an answer. */
static uint64_t
ping_interval(const struct session *s)
{
	uint64_t t = s->lease_ms * NS_PER_MS / 4;

	if (s->doubt_ns != 0 && t > DOUBTFUL)
		return DOUBTFUL;
	return t < PING_EVERY || !s->w->conf.keep_copies ? t : PING_EVERY;
}

static void
keep_alive(struct session *s)
{
	if (s->w->now - s->pinged_ns < ping_interval(s))
		return;
	s->pinged_ns = s->w->now;
	header_ping(s);
}

void
session_tick(struct session *s)
{
	if (s->out != s->retired && !s->w->failed && !s->w->shut)
		rejoin_turn(s);
	if (s->retired)
		return;
	if (s->phase == SESSION_CLOSED && s->w->boxes > 1) /* boxes.c has found it */
		session_open(s, s->deadline);
	if (s->phase == SESSION_JOINING)
		tick_joining(s);
	if (s->phase == SESSION_PATH && !s->w->failed)
		tick_path(s);
	if (s->phase != SESSION_OPEN || s->w->failed || s->w->shut)
		return;
	rejoin_tick(s);
	if (!s->listed && !s->w->failed) {
		boxes_tick(s);
		if (s->listed) /* it has waited for that */
			rejoin_tick(s);
	}
	if (!s->w->failed && s->w->opened && s->listed)
		declare_tick(s);
}

void
session_after(struct session *s, const struct lane *l, uint64_t drained)
{
	if (s->phase != SESSION_OPEN || s->retired)
		return;
	if (!s->w->shut && !rejoin_pauses(s)) {
		for (unsigned i = 0; i < s->endpoints; i++) {
			if (s->ep[i].lane != l)
				continue;
			loss_evidence(&s->ep[i]);
			if (drained != 0)
				loss_timers(&s->ep[i], drained);
		}
		transfer_pump(s, l);
	}
	if (l->number > 0)
		return;
	if (s == worker_decider(s->w))
		times_tick(s->w);
	request_tick(s);
	keep_alive(s);
}

static uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t
session_due(const struct session *s, const struct lane *l)
{
	uint64_t due = UINT64_MAX;

	if (s->out != s->retired && !s->w->shut)
		return 0;
	if (s->retired)
		return due;
	if (s->phase == SESSION_CLOSED)
		return s->w->boxes > 1 ? 0 : UINT64_MAX;
	if (s->phase == SESSION_JOINING)
		return s->join.done      ? 0
		       : rejoin_waits(s) ? s->deadline
					 : least(join_due(&s->join), s->deadline);
	if (s->phase == SESSION_PATH)
		return s->path.next;
	if (l->number == 0)
		due = least(s->pinged_ns + ping_interval(s), request_due(s));
	if (s->w->shut)
		return due;
	for (unsigned i = 0; i < s->endpoints && !rejoin_pauses(s); i++)
		if (s->ep[i].lane == l && s->ep[i].first != NULL)
			due = least(due, s->ep[i].next_due);
	return l->number > 0 ? due : least(due, least(rejoin_due(s), declare_due(s)));
}

void
session_close(struct session *s)
{
	rejoin_close(s);
	join_end(&s->join);
	free(s->path.payload); /* nothing is sent any more */
	auth_end(s->auth);
	for (unsigned i = 0; s->ep != NULL && i < PBOX_MAX_ENDPOINTS; i++)
		free(s->ep[i].flight);
	free(s->ep);
	free(s->pulls);
}
