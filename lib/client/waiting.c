/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "client_impl.h"

/*
 * How long a wait goes on. The time-out of the configuration counts from the last sign of life of the missing worker, as
 * the box knows it, up to a bound (patience_ms). A call's own time-out is the bound itself. Either wait ends early when
 * that worker has left.
 */

#define ASK_FIRST  (500 * NS_PER_MS)
#define ASK_EVERY  (500 * NS_PER_MS)
#define ASK_ANSWER (400 * NS_PER_MS)
/* For the words of an error: the wait is over, and a busy box may still know why. */
#define ASK_TEXT (2 * NS_PER_S)
#define ASK_ALL  NS_PER_S /* of several boxes, after each other */
/* The box reports silence in milliseconds, and its answer takes time: an earlier WAIT may be older than the worker's end. */
#define AFTER_END (100 * NS_PER_MS)
/* A worker was refused: the box may refuse this one for the same reason, in its next answer, with a better error. */
#define OWN_ANSWER (3 * NS_PER_S)

void
waiting_begin(const struct pbox_client *c, struct waiting *w, unsigned timeout_ms)
{
	uint64_t now = client_clock_ns();

	*w = (struct waiting){.began = now, .next_ask = now + ASK_FIRST};
	w->exact = timeout_ms != 0;
	w->timeout = (timeout_ms != 0 ? timeout_ms : c->conf.timeout_ms) * NS_PER_MS;
	w->last = now + (timeout_ms != 0 ? timeout_ms : c->conf.patience_ms) * NS_PER_MS;
	if (w->last < now + w->timeout)
		w->last = now + w->timeout;
	w->deadline = now + w->timeout;
}

/** What the box knows of a worker, and its text. @p on: what is waited for. @p circle: it waits itself, for somebody who
 * waits for it, or for others in a circle (R8.3a). @p words: for an error's text; NULL while the wait goes on. */
static bool
waiting_member(struct pbox_client *c, unsigned worker, const struct pbox_worker_wait *on,
	struct pbox_member_entry *e, bool *circle, char *words, size_t cap)
{
	uint8_t buf[64], *answer = malloc(MAX_FRAME);
	struct pbox_status_ok m;
	struct pbox_cursor cur;
	uint64_t until = client_clock_ns() + (words != NULL ? ASK_TEXT : ASK_ANSWER);
	size_t len = 0;
	bool good;

	if (answer == NULL)
		return false;
	good = request_call(c, PBOX_STATUS, PBOX_STATUS_OK, buf,
		       pbox_worker_status(buf, sizeof(buf), worker, on), answer, MAX_FRAME, &len,
		       NULL, until, NULL) == 0 &&
	       pbox_status_ok_decode(answer, len, &m, &cur) == 0 &&
	       pbox_status_ok_next(&cur, e) == 0 && e->worker == worker;
	*circle = good && (m.flags & PBOX_STATUS_CIRCLE) != 0;
	if (good)
		pbox_text_tame(m.text);
	if (good && cap > 0) {
		words[0] = 0;
		pbox_text_add(words, cap, "%s", m.text);
	}
	if (good) {
		pthread_mutex_lock(&c->lock);
		/* the first of a circle that gives up leaves: why it did is what the others have to hear then */
		if (e->state == PBOX_MEMBER_JOINED || e->worker != c->heard.worker)
			snprintf(c->circle, sizeof(c->circle), "%.239s", *circle ? m.text : "");
		c->heard = *e;
		pthread_mutex_unlock(&c->lock);
	}
	free(answer);
	return good;
}

/** The box is silent: what it said before. */
static void
waiting_heard_text(struct pbox_client *c, unsigned worker, char *text, size_t cap)
{
	char host[PBOX_TEXT_NAME];

	pthread_mutex_lock(&c->lock);
	if (c->heard.worker == worker && c->heard.host[0] != 0)
		pbox_text_add(text, cap, " (host %s)", pbox_text_name(host, c->heard.host));
	pthread_mutex_unlock(&c->lock);
}

/** It was refused for the table that is waited for, or has not got so far as to declare one. */
static bool
waiting_refused(const struct pbox_member_entry *e, uint32_t table, unsigned left_ms)
{
	return e->reason == PBOX_LEFT_REFUSED && e->declared <= table &&
	       (e->state == PBOX_MEMBER_JOINED ||
		       (e->silent_ms != UINT32_MAX && e->silent_ms >= left_ms));
}

bool
waiting_ask(struct pbox_client *c, struct waiting *w, const struct pbox_worker_wait *f,
	unsigned left_ms)
{
	uint64_t now = client_clock_ns(), heard;
	struct pbox_member_entry e;
	bool circle;

	w->next_ask = now + ASK_EVERY;
	/* that this worker itself lives is no reason to wait */
	if (f->missing < 0 || (unsigned)f->missing == pbox_worker_number(c->w) ||
		!waiting_member(c, (unsigned)f->missing, f, &e, &circle, NULL, 0))
		return false;
	now = client_clock_ns();
	heard = e.silent_ms == UINT32_MAX || e.silent_ms * NS_PER_MS > now
			? 0 /* never, or before this host was started */
			: now - e.silent_ms * NS_PER_MS;
	/* who waits for this worker does not come, though it lives */
	if (e.state == PBOX_MEMBER_JOINED && !w->exact && !circle &&
		heard + w->timeout > w->deadline)
		w->deadline = heard + w->timeout < w->last ? heard + w->timeout : w->last;
	if (waiting_refused(&e, f->table, left_ms)) {
		if (w->refused == 0)
			w->refused = now;
		return f->answered_ns > w->refused || now - w->refused >= OWN_ANSWER;
	}
	/* it may have pushed before it left, unless the box has answered after that that it has not */
	return e.state == PBOX_MEMBER_LEFT && e.silent_ms != UINT32_MAX && e.silent_ms >= left_ms &&
	       f->answered_ns > heard + AFTER_END;
}

/* ns that a byte takes on the slowest link that is waited for. */
#define SLOWEST 8000

void
waiting_progress(struct waiting *w, uint64_t bytes, uint64_t left, uint64_t now)
{
	uint64_t most = w->began + w->timeout + bytes * SLOWEST, until = now + w->timeout;

	if (w->exact || left > bytes || bytes - left <= w->moved)
		return;
	w->moved = bytes - left;
	if (until > most)
		until = most;
	if (until > w->deadline)
		w->deadline = until;
}

double
waiting_seconds(const struct waiting *w)
{
	return (double)(client_clock_ns() - w->began) / NS_PER_S;
}

/* ---- texts ------------------------------------------------------------------------------ */

/* The box hears a worker that lives each second (R8.2a). */
#define LIVES_MS 3000

static const char *
next_step(const struct pbox_member_entry *e)
{
	if (e->reason == PBOX_LEFT_REFUSED)
		return "correct that, and start it again with this number";
	if (e->state == PBOX_MEMBER_JOINED && e->silent_ms < LIVES_MS)
		return "it is alive, and may be in another call than this worker: see its own log";
	return "if its process is dead, start it again with this number";
}

static const char *
why_left(const struct pbox_member_entry *e)
{
	if (e->reason == PBOX_LEFT_REFUSED)
		return "refused by the box, last heard";
	if (e->state != PBOX_MEMBER_LEFT)
		return "silent for";
	switch (e->reason) {
	case PBOX_LEFT_KICKED:
		return "ended by the operator of the box, last heard";
	case PBOX_LEFT_TAKEN:
		return "its number was taken from it, last heard";
	default:
		return "left, last heard";
	}
}

static void
host_text(const struct pbox_member_entry *e, char *text, size_t cap)
{
	char host[PBOX_TEXT_NAME];

	pbox_text_add(text, cap, " (host %s, %s %.1f s): %s", pbox_text_name(host, e->host),
		why_left(e), e->silent_ms / 1000.0, next_step(e));
}

bool
waiting_is_silent(struct pbox_client *c, unsigned worker, char *text, size_t cap)
{
	struct pbox_member_entry e;
	bool circle;

	if (!waiting_member(c, worker, NULL, &e, &circle, NULL, 0) ||
		(e.state != PBOX_MEMBER_JOINED && e.state != PBOX_MEMBER_SILENT) ||
		e.silent_ms == UINT32_MAX || e.silent_ms < LIVES_MS)
		return false;
	pbox_text_add(text, cap, "worker %u", worker);
	host_text(&e, text, cap);
	return true;
}

/** What the worker that was asked about last waited for, when it waited in a circle. */
static bool
waiting_circle(struct pbox_client *c, char *text, size_t cap)
{
	pthread_mutex_lock(&c->lock);
	snprintf(text, cap, "%s", c->circle);
	pthread_mutex_unlock(&c->lock);
	return text[0] != 0;
}

void
waiting_member_text(struct pbox_client *c, unsigned worker, char *text, size_t cap)
{
	struct pbox_member_entry e;
	char host[PBOX_TEXT_NAME], words[240] = "", before[sizeof(c->circle)];
	bool circle;

	if (!waiting_member(c, worker, NULL, &e, &circle, words, sizeof(words))) {
		waiting_heard_text(c, worker, text, cap);
		return;
	}
	if (e.state == PBOX_MEMBER_ABSENT && e.reason == PBOX_LEFT_UNKNOWN) {
		pbox_text_add(text, cap, " (has not joined): start it");
		return;
	}
	if (circle) {
		pbox_text_add(text, cap,
			" (host %s), and nobody goes on: %s. All workers must push and reduce in one order",
			pbox_text_name(host, e.host), words);
		return;
	}
	if (e.state == PBOX_MEMBER_LEFT && e.reason != PBOX_LEFT_KICKED &&
		waiting_circle(c, before, sizeof(before))) {
		pbox_text_add(text, cap,
			" (host %s, %s %.1f s), and nobody went on before: %s. All workers must push and reduce in one order",
			pbox_text_name(host, e.host), why_left(&e), e.silent_ms / 1000.0, before);
		return;
	}
	host_text(&e, text, cap);
	/* the box said the same to the worker itself (R8.3) */
	if (e.reason == PBOX_LEFT_REFUSED || e.reason == PBOX_LEFT_KICKED)
		pbox_text_add(text, cap, "; the box says: %s", words);
}

/** What a box has found of it: the round with which the newest series began, the last one of that so far, and a text. False: nothing, or it does not
 * answer. */
static bool
not_finite_at(struct pbox_client *c, unsigned box, uint64_t deadline, void *answer,
	struct pbox_status_ok *m)
{
	const struct pbox_status ask = {.flags = PBOX_STATUS_FINITE};
	uint8_t buf[64];
	struct pbox_cursor cur;
	size_t len = 0;

	return request_call_at(c, box, PBOX_STATUS, PBOX_STATUS_OK, buf,
		       pbox_status_encode(buf, sizeof(buf), &ask), answer, MAX_FRAME, &len, NULL,
		       deadline, NULL) == 0 &&
	       pbox_status_ok_decode(answer, len, m, &cur) == 0 &&
	       (m->flags & PBOX_STATUS_FINITE) != 0;
}

static int32_t
rounds_since(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b);
}

/** Is it the cause of what another box has found? What began first of one series, else the newer series. */
static bool
not_finite_before(const struct pbox_status_ok *m, const struct pbox_status_ok *other)
{
	if (rounds_since(m->max_round, other->tables) > 1)
		return true;
	return rounds_since(other->max_round, m->tables) <= 1 &&
	       rounds_since(m->max_round, other->max_round) < 0;
}

bool
waiting_not_finite(struct pbox_client *c, char *text, size_t cap)
{
	uint64_t last = client_clock_ns() + ASK_ALL;
	uint8_t *answer = malloc(MAX_FRAME);
	struct pbox_status_ok first = {0}, m = {0};
	bool found = false;

	if (answer == NULL)
		return false;
	for (unsigned box = 1; box <= PBOX_WORKER_BOXES; box++) {
		uint64_t until = client_clock_ns() + ASK_ANSWER;

		if (!not_finite_at(c, box, until < last ? until : last, answer, &m) ||
			(found && !not_finite_before(&m, &first)))
			continue;
		first = m;
		found = true;
	}
	free(answer);
	if (found) {
		pbox_text_tame(first.text);
		pbox_text_add(text, cap, "%s", first.text);
	}
	return found;
}

static void
why_run(struct pbox_client *c, struct cmd *cmd)
{
	struct waiting_why *w = (struct waiting_why *)cmd;
	struct pbox_worker_op *op = w->session ? NULL : pbox_worker_oldest(c->w);

	while (op != NULL && w->handle != 0 && op_of(op)->handle != w->handle)
		op = op->all_next;
	w->on.missing = -1;
	if (op != NULL || w->session)
		pbox_worker_why(c->w, op, &w->on, w->text, sizeof(w->text));
}

void
waiting_why(struct pbox_client *c, struct waiting_why *w)
{
	w->cmd.run = why_run;
	cmd_call(c, &w->cmd);
}

int
waiting_no_answer(struct pbox_client *c, const char *what, struct pbox_client_error *err)
{
	struct waiting_why w = {.session = true};

	if (err == NULL)
		return PBOX_C_DEADLINE;
	waiting_why(c, &w);
	if (w.on.missing >= 0)
		waiting_member_text(c, (unsigned)w.on.missing, w.text, sizeof(w.text));
	if (w.text[0] != 0)
		return pbox_client_fail(err, PBOX_C_DEADLINE, "%s: %s", what, w.text);
	return pbox_client_fail(err, PBOX_C_DEADLINE,
		"%s: no answer from the box at %s; check that it is up ('ping' reaches it?)", what,
		pbox_worker_box(c->w));
}
