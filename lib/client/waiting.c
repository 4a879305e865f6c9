/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "client_impl.h"

/*
 * How long a wait goes on. The time-out of the configuration counts from the last sign of life of the
 * worker that is missing, as the box has it, up to a bound (patience_ms); and a wait ends early when that worker has
 * left. A time-out that a call names is a time-out, but for the latter.
 */

#define ASK_FIRST  (500 * NS_PER_MS)
#define ASK_EVERY  (500 * NS_PER_MS)
#define ASK_ANSWER (400 * NS_PER_MS)
/* Clocks of box and client tell silence to a millisecond, and answers take their time. */
#define TOLD_SINCE (100 * NS_PER_MS)

void
waiting_begin(const struct pbox_client *c, struct waiting *w, unsigned timeout_ms)
{
	uint64_t now = clock_ns();

	*w = (struct waiting){.began = now, .next_ask = now + ASK_FIRST};
	w->exact = timeout_ms != 0;
	w->timeout = (timeout_ms != 0 ? timeout_ms : c->conf.timeout_ms) * NS_PER_MS;
	w->last = now + (timeout_ms != 0 ? timeout_ms : c->conf.patience_ms) * NS_PER_MS;
	if (w->last < now + w->timeout)
		w->last = now + w->timeout;
	w->deadline = now + w->timeout;
}

bool
waiting_member(
	struct pbox_client *c, unsigned worker, struct pbox_member_entry *e, char *told, size_t cap)
{
	struct pbox_status q = {.first = (uint16_t)worker};
	uint8_t buf[64], *answer = malloc(MAX_FRAME);
	struct pbox_status_ok m;
	struct pbox_cursor cur;
	size_t len = 0;
	bool good;

	if (answer == NULL)
		return false;
	good = request_call(c, PBOX_STATUS, PBOX_STATUS_OK, buf,
		       pbox_status_encode(buf, sizeof(buf), &q), answer, MAX_FRAME, &len,
		       clock_ns() + ASK_ANSWER, NULL) == 0 &&
	       pbox_status_ok_decode(answer, len, &m, &cur) == 0 &&
	       pbox_status_ok_next(&cur, e) == 0 && e->worker == worker;
	if (good && cap > 0) {
		text_tame(m.text);
		snprintf(told, cap, "%s", m.text);
	}
	free(answer);
	return good;
}

/** It was refused for the table that is waited for, or has not got so far as to declare one. */
static bool
refused(const struct pbox_member_entry *e, uint32_t table, unsigned left_ms)
{
	return e->reason == PBOX_LEFT_REFUSED && e->declared <= table &&
	       (e->state == PBOX_MEMBER_JOINED ||
		       (e->silent_ms != UINT32_MAX && e->silent_ms >= left_ms));
}

bool
waiting_ask(struct pbox_client *c, struct waiting *w, const struct waiting_for *f, unsigned left_ms)
{
	uint64_t now = clock_ns(), heard;
	struct pbox_member_entry e;

	w->next_ask = now + ASK_EVERY;
	if (f->missing < 0 || !waiting_member(c, (unsigned)f->missing, &e, NULL, 0))
		return false;
	now = clock_ns();
	heard = e.silent_ms == UINT32_MAX ? 0 : now - e.silent_ms * NS_PER_MS;
	if (e.state == PBOX_MEMBER_JOINED && !w->exact && heard + w->timeout > w->deadline)
		w->deadline = heard + w->timeout < w->last ? heard + w->timeout : w->last;
	if (refused(&e, f->table, left_ms))
		return true;
	/* it may have brought what is waited for before it left: the box said since that it has not */
	return e.state == PBOX_MEMBER_LEFT && e.silent_ms != UINT32_MAX && e.silent_ms >= left_ms &&
	       f->told_ns > heard + TOLD_SINCE;
}

double
waiting_seconds(const struct waiting *w)
{
	return (double)(clock_ns() - w->began) / NS_PER_S;
}
