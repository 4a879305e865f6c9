/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>

#include "restart.h"

/* What is waited for, in words. */

#define QUIET (500 * NS_PER_MS)

static void
missing_worker(char *text, size_t cap, unsigned have, uint32_t missing, unsigned workers)
{
	text_add(text, cap, ": %u of %u workers have pushed; ", have, workers);
	if (missing < workers)
		text_add(text, cap, "missing worker %u", missing);
	else
		text_add(text, cap,
			"the result is on its way, or comes when the job's rate on the box has "
			"room for it");
}

static int
why_flight(const struct pbox_client *c, struct ep *ep, const struct table *t, struct flight *fl,
	char *text, size_t cap)
{
	const struct frag *f = fl->frag;
	const struct piece *p = &t->piece[f->piece];
	const char *name = t->tensor[p->tensor].name;
	char addr[INET_ADDRSTRLEN];

	if (fl->type == PBOX_INIT || fl->type == PBOX_FETCH)
		text_add(text, cap, "%s of tensor '%s'", fl->type == PBOX_INIT ? "init" : "fetch",
			name);
	else
		text_add(text, cap, "%s %u of tensor '%s'", f->round == 0 ? "version" : "round",
			f->round, name);
	recover_ask(ep, fl, c->now);
	if (!fl->waited && (ep->asked_ns <= ep->last_rx || c->now - ep->asked_ns <= QUIET)) {
		text_add(text, cap,
			": the box answers, but not yet for this: its data core, or this host, is "
			"overloaded");
		return -1;
	}
	if (!fl->waited || (ep->asked_ns > ep->last_rx && c->now - ep->asked_ns > QUIET)) {
		inet_ntop(AF_INET, &ep->peer.addr.sin_addr, addr, sizeof(addr));
		text_add(text, cap,
			": no answer from the box's endpoint %s:%u for %.1f s%s%s: check that the "
			"box is up ('ping' reaches it?)",
			addr, ntohs(ep->peer.addr.sin_port),
			(double)(c->now - ep->asked_ns) / NS_PER_S,
			c->link.t->path_errno != 0 ? ", last error: " : "",
			c->link.t->path_errno != 0 ? strerror(c->link.t->path_errno) : "");
		return -1;
	}
	if (fl->state == FLIGHT_UNKEPT || (f->round == 0 && fl->type == PBOX_PULL)) {
		text_add(text, cap,
			": the box has no initial parameters for it yet; missing worker 0's init: "
			"its own log tells what keeps it");
		return 0;
	}
	missing_worker(text, cap, fl->wait_have, fl->wait_missing, c->workers);
	return fl->wait_missing < c->workers ? (int)fl->wait_missing : -1;
}

/** A fragment that other tensors of this worker keep from going. */
static void
why_local(
	const struct table *t, const struct frag *f, const struct tensor *x, char *text, size_t cap)
{
	text_add(text, cap, "tensor '%s' shares a fragment with", x->name);
	for (unsigned i = 0, n = 0; i < f->pieces; i++) {
		const struct piece *p = &t->piece[f->piece + i];

		if (p->want || n == 4)
			continue;
		text_add(text, cap, "%s '%s'", n == 0 ? "" : ",", t->tensor[p->tensor].name);
		n++;
	}
	text_add(text, cap,
		", not submitted by this worker for round %u: submit all tensors of a table in "
		"each round",
		f->round + 1);
}

int
why_op(struct pbox_client *c, struct op *op, uint64_t *told_ns, char *text, size_t cap)
{
	const struct table *t = op->table;
	struct flight *oldest = NULL;
	const struct frag *local = NULL, *queued = NULL;
	const struct tensor *local_x = NULL, *behind = NULL;
	struct ep *ep = NULL;
	int missing;

	text[0] = 0;
	*told_ns = c->now;
	if (rejoin_why(c, t, &missing, text, cap))
		return missing;
	for (unsigned i = 0; i < op->n; i++) {
		const struct tensor *x = &t->tensor[op->e[i].tensor];

		if (x->head != &op->e[i]) {
			if (x->head != NULL && x->head->op != op)
				behind = x;
			continue;
		}
		for (uint32_t k = 0; k < x->active_at; k++) {
			const struct piece *p = &t->piece[t->by_tensor[x->by_first + k]];
			const struct frag *f = &t->frag[p->frag];
			struct ep *fe = &c->ep[t->chunk[f->chunk].endpoint];

			if (!p->want)
				continue;
			if (f->state == FRAG_QUEUED) {
				queued = f;
			} else if (f->state == FRAG_IDLE) {
				local = f;
				local_x = x;
			} else if (oldest == NULL ||
				   fe->flight[f->flight].first_ns < oldest->first_ns) {
				oldest = &fe->flight[f->flight];
				ep = fe;
			}
		}
	}
	if (oldest == NULL && queued != NULL) { /* what is before it in the window? */
		ep = &c->ep[t->chunk[queued->chunk].endpoint];
		oldest = ep->first;
	}
	if (oldest != NULL)
		*told_ns = oldest->wait_ns;
	if (oldest != NULL)
		return why_flight(c, ep, c->table_of[oldest->frag->table], oldest, text, cap);
	if (local != NULL)
		why_local(t, local, local_x, text, cap);
	else if (behind != NULL)
		text_add(text, cap, "an earlier operation on tensor '%s' is not complete",
			behind->name);
	return -1;
}

/* A worker that lives is heard of each second (R8.2a). */
#define LIVES_MS 3000

static const char *
next_step(const struct pbox_member_entry *e)
{
	if (e->reason == PBOX_LEFT_REFUSED)
		return "correct that, and start it again with this number";
	if (e->state == PBOX_MEMBER_JOINED && e->silent_ms < LIVES_MS)
		return "it is alive, so its own log tells what keeps it";
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

void
why_member(struct pbox_client *c, unsigned worker, char *text, size_t cap)
{
	struct pbox_member_entry e;
	char host[TEXT_NAME], told[240] = "";

	if (!waiting_member(c, worker, &e, told, sizeof(told)))
		return;
	if (e.state == PBOX_MEMBER_ABSENT && e.reason == PBOX_LEFT_UNKNOWN) {
		text_add(text, cap, " (has not joined): start it");
		return;
	}
	text_add(text, cap, " (host %s, %s %.1f s): %s", text_name(host, e.host), why_left(&e),
		e.silent_ms / 1000.0, next_step(&e));
	/* the box said the same to the worker itself (R8.3) */
	if (e.reason == PBOX_LEFT_REFUSED || e.reason == PBOX_LEFT_KICKED)
		text_add(text, cap, "; the box says: %s", told);
}
