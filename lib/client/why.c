/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "restart.h"

/* What is waited for, in words. */

#define MEMBER_PATIENCE (400 * NS_PER_MS)
#define QUIET           (500 * NS_PER_MS)

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
why_flight(const struct pbox_client *c, const struct ep *ep, const struct table *t,
	const struct flight *fl, char *text, size_t cap)
{
	const struct frag *f = fl->frag;
	const struct piece *p = &t->piece[f->piece];
	const char *name = t->tensor[p->tensor].name;
	char addr[INET_ADDRSTRLEN];

	if (fl->type == PBOX_INIT)
		text_add(text, cap, "init of tensor '%s'", name);
	else
		text_add(text, cap, "%s %u of tensor '%s'", f->round == 0 ? "version" : "round",
			f->round, name);
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
why_op(struct pbox_client *c, struct op *op, char *text, size_t cap)
{
	const struct table *t = op->table;
	const struct flight *oldest = NULL;
	const struct frag *local = NULL, *queued = NULL;
	const struct tensor *local_x = NULL, *behind = NULL;
	struct ep *ep = NULL;
	int missing;

	text[0] = 0;
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
		return why_flight(c, ep, c->table_of[oldest->frag->table], oldest, text, cap);
	if (local != NULL)
		why_local(t, local, local_x, text, cap);
	else if (behind != NULL)
		text_add(text, cap, "an earlier operation on tensor '%s' is not complete",
			behind->name);
	return -1;
}

static const char *
next_step(unsigned state)
{
	if (state == PBOX_MEMBER_JOINED)
		return "it is alive, so its own log tells what keeps it";
	return "if its process is dead, start it again with this number";
}

void
why_member(struct pbox_client *c, unsigned worker, char *text, size_t cap)
{
	struct pbox_status q = {.first = (uint16_t)worker};
	uint8_t buf[64], *answer = malloc(MAX_FRAME);
	struct pbox_member_entry e;
	struct pbox_status_ok m;
	struct pbox_cursor cur;
	char host[TEXT_NAME];
	size_t len = 0;

	if (answer == NULL)
		return;
	if (request_call(c, PBOX_STATUS, PBOX_STATUS_OK, buf,
		    pbox_status_encode(buf, sizeof(buf), &q), answer, MAX_FRAME, &len,
		    clock_ns() + MEMBER_PATIENCE, NULL) == 0 &&
		pbox_status_ok_decode(answer, len, &m, &cur) == 0 &&
		pbox_status_ok_next(&cur, &e) == 0 && e.worker == worker) {
		if (e.state == PBOX_MEMBER_ABSENT)
			text_add(text, cap, " (has not joined): start it");
		else
			text_add(text, cap, " (host %s, %s %.1f s): %s", text_name(host, e.host),
				e.state == PBOX_MEMBER_LEFT ? "left, last heard" : "silent for",
				e.silent_ms / 1000.0, next_step(e.state));
	}
	free(answer);
}
