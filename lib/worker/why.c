/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>

#include "worker_impl.h"

/* Diagnosis: what an operation waits for, and which worker is missing, as a text. */

#define QUIET (500 * NS_PER_MS)

/** How many have pushed, of those that it waits for. */
static void
pushed_so_far(const struct pbox_worker *w, char *text, size_t cap, unsigned have, const char *verb)
{
	if (w->conf.slots != 0)
		pbox_text_add(text, cap, "%u of %u slots %s there", have, w->slots, verb);
	else
		pbox_text_add(text, cap, "%u of %u workers %s pushed", have, w->workers,
			strcmp(verb, "were") == 0 ? "had"
			: have == 1               ? "has"
						  : "have");
}

/** The box waits for what this worker has sent: it is not to be waited for. */
static int
missing_itself(const struct flight *fl, char *text, size_t cap)
{
	pbox_text_add(text, cap,
		fl->state == FLIGHT_DEFERRED
			? "this worker's own part is missing: the box does not take it, though it is sent again and again ('pbox-ctl drops' says why)"
			: "this worker's own part is missing, and is sent again");
	return -1;
}

static int
missing_worker(const struct pbox_worker *w, const struct flight *fl, char *text, size_t cap)
{
	pbox_text_add(text, cap, ": ");
	pushed_so_far(w, text, cap, fl->wait_have, fl->wait_have == 1 ? "is" : "are");
	pbox_text_add(text, cap, "; ");
	if (fl->state == FLIGHT_DEFERRED || fl->wait_missing == w->worker)
		return missing_itself(fl, text, cap);
	if (fl->wait_missing >= w->workers) {
		pbox_text_add(text, cap,
			"the result is on its way, or comes when the job's rate on the box has room for it");
		return -1;
	}
	pbox_text_add(text, cap, "missing worker %u", fl->wait_missing);
	return (int)fl->wait_missing;
}

/** The box is silent: the reason is that, or the worker of which it has said before that it is missing. */
static int
why_silent(const struct ep *ep, const struct flight *fl, char *text, size_t cap)
{
	const struct pbox_worker *w = ep->s->w;
	int path_errno = ep->lane->link.port->path_errno;
	char addr[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &ep->peer.addr.sin_addr, addr, sizeof(addr));
	pbox_text_add(text, cap,
		": no answer from the box's endpoint %s:%u for %.1f s%s%s: check that the box is up ('ping' reaches it?)",
		addr, ntohs(ep->peer.addr.sin_port), (double)(w->now - ep->asked_ns) / NS_PER_S,
		path_errno != 0 ? ", last error: " : "",
		path_errno != 0 ? strerror(path_errno) : "");
	out_why(ep->s, text, cap);
	if (!fl->waited || fl->state == FLIGHT_DEFERRED || fl->wait_missing >= w->workers)
		return -1;
	pbox_text_add(text, cap, "; when it last answered, ");
	pushed_so_far(w, text, cap, fl->wait_have, "were");
	pbox_text_add(text, cap, "; ");
	if (fl->wait_missing == w->worker)
		return missing_itself(fl, text, cap);
	pbox_text_add(text, cap, "missing worker %u", fl->wait_missing);
	return (int)fl->wait_missing;
}

/** A fragment that has no parameters yet; it may be worker 0 itself that asks. */
static int
missing_init(const struct pbox_worker *w, char *text, size_t cap)
{
	pbox_text_add(text, cap, ": the box has no initial parameters for it yet; ");
	if (w->worker == 0) {
		pbox_text_add(text, cap, "this worker gives them (init), and has not");
		return -1;
	}
	pbox_text_add(text, cap, "missing worker 0's init: see its own log");
	return 0;
}

static int
why_flight(
	struct ep *ep, const struct pbox_worker_table *t, struct flight *fl, char *text, size_t cap)
{
	const struct pbox_worker *w = ep->s->w;
	const struct frag *f = fl->frag;
	const struct piece *p = &t->piece[f->piece];
	const char *name = t->tensor[p->tensor].name;

	if (fl->type == PBOX_INIT || fl->type == PBOX_FETCH)
		pbox_text_add(text, cap, "%s of tensor '%s'",
			fl->type == PBOX_INIT ? "init" : "fetch", name);
	else
		pbox_text_add(text, cap, "%s %u of tensor '%s'",
			f->round == 0 ? "version" : t->discipline->unit, f->round, name);
	loss_ask(ep, fl, w->now);
	if (!fl->waited && (ep->asked_ns <= ep->last_rx || w->now - ep->asked_ns <= QUIET)) {
		pbox_text_add(text, cap,
			": the box answers, but not yet for this: its data core, this host, or the link between them is overloaded");
		return -1;
	}
	if (!fl->waited || (ep->asked_ns > ep->last_rx && w->now - ep->asked_ns > QUIET))
		return why_silent(ep, fl, text, cap);
	if (t->discipline->why != NULL && t->discipline->why(w, t, fl, text, cap))
		return fl->wait_missing == w->worker ? -1 : (int)fl->wait_missing;
	if ((fl->state == FLIGHT_DEFERRED && t->discipline->defers(t, f)) ||
		(f->round == 0 && fl->type == PBOX_PULL))
		return missing_init(w, text, cap);
	return missing_worker(w, fl, text, cap);
}

/** A fragment that waits for other tensors of this worker. */
static void
why_local(const struct pbox_worker_table *t, const struct frag *f, const struct tensor *x,
	char *text, size_t cap)
{
	pbox_text_add(text, cap, "tensor '%s' shares a fragment with", x->name);
	for (unsigned i = 0, n = 0; i < f->pieces; i++) {
		const struct piece *p = &t->piece[f->piece + i];

		if (p->entry != NULL || n == 4)
			continue;
		pbox_text_add(text, cap, "%s '%s'", n == 0 ? "" : ",", t->tensor[p->tensor].name);
		n++;
	}
	pbox_text_add(text, cap,
		", not submitted by this worker for %s %u: submit all tensors of a table in each",
		t->discipline->unit, f->round + 1);
}

/** Has the entry pieces left in the lane of the fragment? */
static bool
is_left(const struct pbox_worker_table *t, const struct pbox_worker_entry *e, const struct frag *f)
{
	return e[(size_t)t->chunk[f->chunk].lane * e->op->n].left > 0;
}

/** What of an operation is through, piece by piece. */
static void
why_bytes(const struct pbox_worker_op *op, const struct pbox_worker_entry *e, const struct frag *f,
	const struct piece *p, struct pbox_worker_wait *wait)
{
	const struct pbox_worker_table *t = op->table;
	uint8_t format = op->kind == PBOX_CLIENT_PULL ? t->pull_format
			 : op->kind == PBOX_CLIENT_PUSH || op->kind == PBOX_CLIENT_PUSHPULL
				 ? t->push_format
				 : PBOX_FMT_FP32;
	uint64_t bytes = pbox_payload_bytes(format, p->elements);
	bool earlier = p->entry != NULL && p->entry->op->order < op->order && is_left(t, e, f);

	wait->bytes += bytes;
	if ((p->entry != NULL && p->entry->op == op) || earlier)
		wait->left += bytes;
}

static int
why_op(struct pbox_worker *w, struct pbox_worker_op *op, struct pbox_worker_wait *wait, char *text,
	size_t cap)
{
	const struct pbox_worker_table *t = op->table;
	struct flight *oldest = NULL;
	const struct frag *local = NULL, *queued = NULL;
	const struct tensor *local_x = NULL, *earlier = NULL;
	struct ep *ep = NULL;
	int missing;

	text[0] = 0;
	for (unsigned i = 0; i < w->boxes; i++)
		if (rejoin_why(w->box[i], t, &missing, text, cap))
			return missing;
	if (part_why(w, t, text, cap))
		return -1;
	for (unsigned i = 0; i < op->n; i++) {
		const struct pbox_worker_entry *e = &op->e[i];
		const struct tensor *x = &t->tensor[table_tensor(t, op, e->tensor)];

		for (uint32_t k = 0; k < x->by_count; k++) {
			const struct piece *p = &t->piece[t->by_tensor[x->by_first + k]];
			const struct frag *f = &t->frag[p->frag];
			struct ep *fe = worker_endpoint(w, &t->chunk[f->chunk]);

			why_bytes(op, e, f, p, wait);
			if (p->entry == NULL || p->entry->op != op) {
				if (p->entry != NULL && is_left(t, e, f) &&
					p->entry->op->order < op->order)
					earlier = x;
				continue;
			}
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
		ep = worker_endpoint(w, &t->chunk[queued->chunk]);
		oldest = ep->first;
	}
	if (oldest != NULL) {
		const struct frag *f = oldest->frag;

		t = w->table[f->table];
		wait->answered_ns = oldest->wait_ns;
		if (f->round != 0)
			wait->chunk = t->chunk[f->chunk].id;
		wait->frag = f->index;
		wait->round = f->round;
		return why_flight(ep, t, oldest, text, cap);
	}
	if (local != NULL)
		why_local(t, local, local_x, text, cap);
	else if (earlier != NULL)
		pbox_text_add(text, cap, "an earlier operation on tensor '%s' is not complete",
			earlier->name);
	return -1;
}

void
pbox_worker_why(struct pbox_worker *w, struct pbox_worker_op *op, struct pbox_worker_wait *wait,
	char *text, size_t cap)
{
	*wait = (struct pbox_worker_wait){.missing = -1, .answered_ns = w->now};
	text[0] = 0;
	if (op == NULL) {
		for (unsigned i = 0; i < w->boxes; i++)
			if (rejoin_why(w->box[i], NULL, &wait->missing, text, cap))
				return;
		return;
	}
	wait->table = op->table->number;
	wait->chunk = wait->table;
	wait->missing = why_op(w, op, wait, text, cap);
}
