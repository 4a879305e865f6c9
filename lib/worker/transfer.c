/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <limits.h>
#include <stdio.h>

#include "worker_impl.h"

#define PUMP_TURN  8 /* frames at most, where none leave as one unit */
#define PUMP_PARTS 8 /* of what waits for an endpoint; one is a turn */

/* Data transfer (section 6 of the protocol): ready fragments become frames, answers become finished pieces, and
 * duplicates are found. */

/* ---- sending --------------------------------------------------------------------------- */

static bool
wants_failing(const struct pbox_worker_table *t, const struct frag *f)
{
	for (unsigned i = 0; i < f->pieces; i++) {
		const struct piece *p = &t->piece[f->piece + i];

		if (p->entry != NULL && op_fails(p->entry->op))
			return true;
	}
	return false;
}

/** Finish the pieces of failing operations; true if there was any. A push that has counted goes again, as it was: the next one has another clock. */
static bool
withdraw(struct pbox_worker *w, struct pbox_worker_table *t, struct frag *f)
{
	bool any = false;

	if (redo_counted(t, f))
		return false;
	for (unsigned i = 0; i < f->pieces; i++) {
		struct piece *p = &t->piece[f->piece + i];

		if (p->entry != NULL && op_fails(p->entry->op)) {
			queue_piece_finish(w, t, p);
			any = true;
		}
	}
	if (any)
		redo_withdrawn(t, f);
	return any;
}

static uint8_t
frame_type(const struct pbox_worker_table *t, const struct frag *f)
{
	assert(f->pulls > 0 || f->inits == f->pieces || f->states == f->pieces ||
		f->pushes == f->pieces); /* all pieces ask for the same */
	if (f->pulls > 0)
		return PBOX_PULL;
	if (f->inits == f->pieces)
		return PBOX_INIT;
	if (f->states == f->pieces)
		return table_first_op(t, f)->kind == PBOX_CLIENT_FETCH ? PBOX_FETCH : PBOX_INIT;
	for (unsigned i = 0; i < f->pieces; i++)
		if (t->piece[f->piece + i].entry->op->kind == PBOX_CLIENT_PUSHPULL)
			return PBOX_PUSHPULL;
	return redo_is_last(t, f) ? PBOX_PUSHPULL : PBOX_PUSH;
}

/** What may not be pushed fails. */
static void
may_launch(struct pbox_worker_table *t, struct frag *f)
{
	char why[256];

	if (t->discipline->may_push != NULL && f->pulls == 0 && f->pushes == f->pieces &&
		!t->discipline->may_push(t, f, why, sizeof(why)))
		queue_fail_fragment(t, f, PBOX_C_INVALID, why);
}

/**
 * Does an operation of it end without results (R15.8)? Then all of the fragment's do. All of the round do, too: the program brings
 * them again with the slots that this worker has got. One that went on until its result came could wait for others, and these
 * for those slots, with all the room that the box has for their fragments.
 */
static bool
has_no_more(const struct pbox_worker_table *t, const struct frag *f)
{
	bool first = f->state != FRAG_FLIGHT && !table_pushes_again(t, f);

	if (t->gained && f->round + first == t->gained_in)
		return true;
	for (unsigned i = 0; i < f->pieces; i++) {
		const struct pbox_worker_entry *e = t->piece[f->piece + i].entry;

		if (e != NULL && e->op->more)
			return true;
	}
	return false;
}

static void
mark_more(const struct pbox_worker_table *t, const struct frag *f)
{
	for (unsigned i = 0; i < f->pieces; i++) {
		struct pbox_worker_entry *e = t->piece[f->piece + i].entry;

		if (e != NULL)
			e->op->more = true;
	}
}

/** The operation brings it again, with the slots that this worker has got: until then it would only take room in the
 * box, which has records for a window of fragments, and these wait for those slots. */
static void
skip_fragment(struct pbox_worker *w, struct pbox_worker_table *t, struct frag *f)
{
	assert(w->planned && f->state == FRAG_IDLE && !f->owes);
	mark_more(t, f);
	if (!table_pushes_again(t, f))
		t->discipline->push(f);
	for (unsigned i = 0; i < f->pieces; i++)
		queue_piece_finish(w, t, &t->piece[f->piece + i]);
	queue_check(w, t, f);
}

/** Launch the fragment, and those that may be in a run with it, up to @p most by the count of pump_endpoint(), which is returned. */
static unsigned
launch(struct ep *ep, const struct pbox_worker_table *t, struct frag *f, unsigned most,
	bool overtakes, unsigned *light)
{
	uint8_t type = frame_type(t, f);
	unsigned run = run_most(ep, t, f, type, overtakes), before = *light / PUMP_TURN;

	if (type == PBOX_PULL && most < RUN_MOST)
		most = most * PUMP_TURN - *light % PUMP_TURN;
	run = queue_follow(ep, t, f, run < most ? run : most);
	if (run > 1)
		flight_launch_run(ep, f, run, type, overtakes);
	else
		flight_launch(ep, f, type, overtakes);
	if (type != PBOX_PULL)
		return run;
	*light += run;
	return *light / PUMP_TURN - before;
}

/** Launch up to @p most fragments; their number. Of those without a payload, which share datagrams, a turn's most count
 * as one. */
static unsigned
pump_endpoint(struct ep *ep, unsigned most)
{
	struct pbox_worker *w = ep->s->w;
	uint32_t window = window_frames(&ep->win);
	unsigned n = restore_pump(ep, most), light = 0;

	/* a flight that waits at the box for slower workers is not in the network, but counts
	 * in the window that the box has granted (R6.9) */
	while (n < most && ep->in_flight < ep->win.max && ep->in_flight - ep->waiting < window) {
		bool overtakes;
		struct frag *f = queue_pop(ep, &overtakes);
		struct pbox_worker_table *t;

		if (f == NULL)
			break;
		t = w->table[f->table];
		assert(f->state == FRAG_QUEUED && worker_endpoint(w, &t->chunk[f->chunk]) == ep);
		f->state = FRAG_IDLE;
		if (redo_owed(t, f) > 0) {
			flight_launch(ep, f, PBOX_PUSH, overtakes);
			n++;
			continue;
		}
		may_launch(t, f);
		if (withdraw(w, t, f)) {
			queue_check(w, t, f);
		} else if (w->planned && frame_type(t, f) == PBOX_PUSHPULL && has_no_more(t, f)) {
			skip_fragment(w, t, f);
		} else {
			n += launch(ep, t, f, most - n, overtakes, &light);
		}
	}
	ep->limited = queue_has(ep);
	return n;
}

/*
 * Endpoints take turns, and each worker begins with another one. Where they are ports with links of their own, a whole
 * window for the first one would leave the others idle, and all workers would send to the same one. A turn is a train of
 * frames (GSO), which costs the kernel little more than one frame, but short beside what waits: a fragment is summed once the last worker has sent
 * it, and of two workers that begin at different endpoints the second comes to the first one's fragments a turn of each
 * endpoint later.
 */
static unsigned
pump_turn(const struct session *s, const struct lane *l)
{
	uint32_t n = 0, endpoints = 0, train = l->link.port->train;

	for (unsigned i = 0; i < s->endpoints; i++)
		if (s->ep[i].lane == l) {
			n += s->ep[i].ready.n;
			endpoints++;
		}
	if (endpoints < 2)
		return UINT_MAX;
	n /= endpoints * PUMP_PARTS;
	if (train < 2)
		train = PUMP_TURN;
	return n < 1 ? 1 : n < train ? n : train;
}

void
transfer_pump(struct session *s, const struct lane *l)
{
	unsigned turn = pump_turn(s, l);
	bool more = true;

	while (more) {
		more = false;
		for (unsigned i = 0; i < s->endpoints; i++) {
			struct ep *ep = &s->ep[(s->w->worker + i) % s->endpoints];

			more |= ep->lane == l && pump_endpoint(ep, turn) == turn;
		}
	}
}

/* ---- answers --------------------------------------------------------------------------- */

/** Of a large table the first results have left the caches before the operation ends, and the caller looks. */
static void
deliver(const struct pbox_worker_table *t, uint8_t *out, const uint8_t *payload, size_t bytes)
{
	if (t->large)
		aside_copy(out, payload, bytes);
	else
		memcpy(out, payload, bytes);
}

/** The flight has done its work for the fragment: finish its pieces, with @p payload (NULL: nothing to deliver,
 * or zeroes if @p zero). */
static void
transfer_end(struct pbox_worker_table *t, struct flight *fl, struct frag *f, struct ep *ep,
	const uint8_t *payload, bool zero)
{
	struct pbox_worker *w = ep->s->w;
	bool pull = fl->type == PBOX_PULL;
	size_t at = 0;

	/* a push of the redo log is of no operation: nothing ends with it */
	assert(!fl->redo && f->state == FRAG_FLIGHT && &ep->flight[f->flight] == fl);
	if (fl->left > 1)
		run_land(ep, fl, f);
	else
		flight_land(ep, fl);
	for (unsigned i = 0; i < f->pieces; i++) {
		struct piece *p = &t->piece[f->piece + i];
		size_t bytes = pbox_payload_bytes(t->pull_format, p->elements);
		const struct pbox_worker_entry *e = p->entry;

		if (e != NULL && (e->op->kind == PBOX_CLIENT_PULL) == pull) {
			if (e->out != NULL && payload != NULL)
				deliver(t, e->out + pbox_payload_bytes(t->pull_format, p->offset),
					payload + at, bytes);
			else if (e->out != NULL && zero)
				memset(e->out + pbox_payload_bytes(t->pull_format, p->offset), 0,
					bytes);
			if (pull && (payload != NULL || zero) && t->discipline->deliver != NULL)
				t->discipline->deliver(w, t, p);
			queue_piece_finish(w, t, p);
		}
		at += bytes;
	}
	ep->lane->count.fragments_done++;
	queue_check(w, t, f);
}

static void
transfer_complete(struct pbox_worker_table *t, struct flight *fl, struct ep *ep,
	const uint8_t *payload, bool zero)
{
	assert(fl->left == 1);
	transfer_end(t, fl, fl->frag, ep, payload, zero);
}

/** Does the frame answer what the flight carries? If not, it is a duplicate. */
static bool
is_answer(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct flight *fl,
	const struct pbox_hdr *h)
{
	const struct worker_discipline *d = t->discipline;

	switch (h->type) {
	case PBOX_RESULT:
		return (fl->type == PBOX_PUSHPULL || fl->type == PBOX_PULL) &&
		       d->answers(w, t, fl, h);
	case PBOX_WAIT:
		return (fl->type == PBOX_PULL || flight_is_push(fl)) && d->answers(w, t, fl, h);
	case PBOX_PUSH_OK:
		return flight_frame_type(w, fl) == PBOX_PUSH && d->answers(w, t, fl, h) &&
		       (w->conf.slots == 0 || pbox_push_ok_slots_get(h).node ==
						      pbox_node_code(nodes_at(w, t, fl->node)));
	case PBOX_INIT_OK:
		return fl->type == PBOX_INIT && pbox_part_get(h).offset == fl->base &&
		       flight_is_since(fl, h);
	case PBOX_FETCHED:
		return fl->type == PBOX_FETCH && pbox_part_get(h).offset == fl->base &&
		       flight_is_since(fl, h) &&
		       pbox_part_get(h).array == table_first_op(t, fl->frag)->weight &&
		       d->answers(w, t, fl, h);
	case PBOX_RESTORE_OK:
		return fl->type == PBOX_RESTORE && h->round == d->version(t, fl->frag);
	case PBOX_ERROR:
		if (fl->type == PBOX_RESTORE)
			return h->round == d->version(t, fl->frag);
		return flight_is_since(fl, h) && (fl->type == PBOX_INIT || d->answers(w, t, fl, h));
	default:
		return false;
	}
}

static void
on_result(struct pbox_worker_table *t, struct ep *ep, struct flight *fl, struct frag *f,
	const struct rx_frame *r)
{
	struct pbox_worker *w = ep->s->w;
	const struct pbox_hdr *h = &r->hdr;
	unsigned format = encode_format(t, h);
	size_t bytes = pbox_payload_bytes(format, frag_elements(t, f));
	bool zero = (h->flags & PBOX_F_ZERO) != 0 && h->length == 0 && t->vector == 0;
	const uint8_t *payload;

	if (!zero &&
		(h->length != bytes + t->vector || h->format != format || !encode_fits(t, f, h))) {
		ep->lane->count.rx_dropped++;
		return;
	}
	if (__atomic_load_n(&w->edition_seen, __ATOMIC_RELAXED) != h->prio)
		__atomic_store_n(&w->edition_seen, h->prio, __ATOMIC_RELAXED);
	loss_answer(ep, fl, run_place(fl, f), h, ep->lane->now);
	loss_result(ep, fl, h, ep->lane->now);
	window_answered(&ep->win, ep->limited, ep->lane->now);
	payload = zero ? NULL : encode_value(t, f, h, r->payload);
	t->discipline->result(t, f, h, retained_result(t, f, h, payload), &ep->lane->count);
	ep->lane->count.useful_rx_bytes += bytes;
	ep->lane->count.held_ns_sum += h->held * NS_PER_US;
	ep->busy.asked += ep->lane->now - fl->first_ns;
	ep->busy.held += h->held * NS_PER_US;
	ep->busy.answers++;
	ep->busy.last = ep->lane->now;
	ep->lane->count.partial_results +=
		fl->type == PBOX_PUSHPULL && ep->lane->count.contributors < w->slots;
	transfer_end(t, fl, f, ep, payload, zero);
}

/** The operations of the fragment end without their results, as soon as the box has what was pushed. */
static void
wants_no_more(struct session *s, struct pbox_worker_table *t, const struct frag *f)
{
	assert(s->w->planned); /* else slots have the owners that they were given at first */
	mark_more(t, f);
	t->gained = true;
	t->gained_in = f->round;
	for (unsigned i = 0; i < s->endpoints; i++)
		for (struct flight *fl = s->ep[i].first; fl != NULL; fl = fl->next) {
			loss_ask(&s->ep[i], fl, s->ep[i].lane->now);
			if (fl == s->ep[i].last)
				break;
		}
}

/** R15.8: the box waits for slots that this worker did not know to be its own. True: the flight has ended. */
static bool
on_wait_planned(
	struct pbox_worker_table *t, struct ep *ep, struct flight *fl, const struct pbox_hdr *h)
{
	struct pbox_worker *w = ep->s->w;
	bool have = (h->flags & PBOX_F_HAVE) != 0;
	bool others = !have && nodes_find(w, t, pbox_wait_slots_get(h).slot, UINT_MAX) == UINT_MAX;

	assert(w->planned && !fl->redo);
	if (fl->type != PBOX_PUSHPULL || flight_is_between(w, fl))
		return false;
	if (others)
		wants_no_more(ep->s, t, fl->frag);
	if (!has_no_more(t, fl->frag) || (!have && !others))
		return false;
	mark_more(t, fl->frag);
	transfer_complete(t, fl, ep, NULL, false);
	return true;
}

static void
on_wait(struct pbox_worker_table *t, struct ep *ep, struct flight *fl, const struct pbox_hdr *h)
{
	loss_answer(ep, fl, 0, h, ep->lane->now);
	if (!fl->redo && wants_failing(t, fl->frag) &&
		(t->redo == NULL || table_is_pull_lane(t, fl->frag))) {
		/* no operation waits for it any more: only whether it counts still matters. (A push of a table in clocks is sent until it
		 * does: a copy that is late would take the clock of the next one.) */
		if ((h->flags & PBOX_F_HAVE) == 0)
			flight_withdraw(t, fl);
		transfer_complete(t, fl, ep, NULL, false);
		return;
	}
	if (!ep->s->w->planned || !on_wait_planned(t, ep, fl, h))
		loss_wait(ep, fl, h);
}

/** A piece of the fragment is done: go on with the next one, false if it was the last. */
static bool
next_piece(struct pbox_worker_table *t, struct ep *ep, struct flight *fl, const struct pbox_hdr *h)
{
	assert(fl->base < frag_elements(t, fl->frag) && fl->base % t->init_elements == 0);
	loss_answer(ep, fl, 0, h, ep->lane->now);
	window_answered(&ep->win, ep->limited, ep->lane->now);
	if (frag_elements(t, fl->frag) - fl->base <= t->init_elements)
		return false;
	fl->base += t->init_elements;
	fl->state = FLIGHT_SENT;
	fl->backoff = fl->tries = 0;
	fl->order = 0;
	flight_send(ep, fl, false, false);
	return true;
}

static void
on_init_ok(struct pbox_worker_table *t, struct ep *ep, struct flight *fl, const struct pbox_hdr *h)
{
	bool give = fl->frag->states > 0;

	if (next_piece(t, ep, fl, h))
		return;
	if (!give) /* others know a given version once they have pulled it */
		retained_init(t, fl->frag);
	transfer_complete(t, fl, ep, NULL, false);
}

static void
on_fetched(struct pbox_worker_table *t, struct ep *ep, struct flight *fl, const struct rx_frame *r)
{
	const struct pbox_hdr *h = &r->hdr;
	struct frag *f = fl->frag;
	uint32_t count = frag_elements(t, f) - fl->base;

	if (count > t->init_elements)
		count = t->init_elements;
	if (h->format != PBOX_FMT_FP32 || h->length != pbox_payload_bytes(PBOX_FMT_FP32, count)) {
		ep->lane->count.rx_dropped++;
		return;
	}
	table_scatter(t, f, fl->base, count, r->payload);
	ep->lane->count.useful_rx_bytes += h->length;
	if (!next_piece(t, ep, fl, h))
		transfer_complete(t, fl, ep, NULL, false);
}

static void
transfer_on_error(
	struct pbox_worker_table *t, struct ep *ep, struct flight *fl, const struct pbox_hdr *h)
{
	const struct pbox_worker *w = ep->s->w;
	struct frag *f = fl->frag;
	const struct tensor *x = &t->tensor[t->piece[f->piece].tensor];
	unsigned code = pbox_code_get(h);
	char text[256];

	if (fl->redo) {
		text_fail(ep->s->w, PBOX_C_LOST,
			"the box at %s was restarted, and does not take push %u of tensor '%s' again: it answered %s (%u); start the job again from a checkpoint",
			ep->s->name, h->round, x->name, pbox_errcode_name(code), code);
		return;
	}
	if (code == PBOX_E_NO_LR)
		snprintf(text, sizeof(text),
			"tensor '%s': its group %u has no learning rate yet: set lr (pbox_client_set, id 1) before the first push",
			x->name, x->group);
	else if (code == PBOX_E_LOST)
		snprintf(text, sizeof(text),
			"%s %u of tensor '%s': the box was restarted, and no worker could give it the one before it back: start the job again from a checkpoint",
			t->discipline->unit, f->round, x->name);
	else if (code == PBOX_E_RUNNING)
		snprintf(text, sizeof(text),
			"%s %u of tensor '%s' is over, and later ones too: this worker was silent for so long that others have done its slots, and go on without it: end this process",
			t->discipline->unit, f->round, x->name);
	else if (fl->type == PBOX_INIT && code == PBOX_E_BAD_REQUEST)
		snprintf(text, sizeof(text),
			"tensor '%s': another worker has pushed %s %u of it before this one had given the box what it loads: no worker may push before that",
			x->name, t->discipline->unit, h->round + 1);
	else if (w->conf.slots != 0 && flight_is_push(fl) && code == PBOX_E_BAD_REQUEST)
		snprintf(text, sizeof(text),
			"%s %u of tensor '%s': the box does not take slots %u to %u of %u from worker %u of %u: box and worker do not agree on whose they are",
			t->discipline->unit, f->round, x->name, nodes_at(w, t, fl->node).first,
			pbox_node_end(nodes_at(w, t, fl->node), w->slots) - 1, w->slots, w->worker,
			w->workers);
	else
		snprintf(text, sizeof(text), "%s %u of tensor '%s': the box answered %s (%u)",
			t->discipline->unit, f->round, x->name, pbox_errcode_name(code), code);
	queue_fail_fragment(t, f,
		code == PBOX_E_LOST      ? PBOX_C_LOST
		: code == PBOX_E_RUNNING ? PBOX_C_RUNNING
					 : PBOX_C_REFUSED,
		text);
	flight_withdraw(t, fl);
	if (flight_is_push(fl) && !fl->redo) {
		redo_refused(t, f);
		encode_refused(t, f, f->round + 1);
	}
	transfer_complete(t, fl, ep, NULL, false);
}

static void
on_push_ok(struct pbox_worker_table *t, struct ep *ep, struct flight *fl, struct frag *f,
	const struct pbox_hdr *h)
{
	const struct pbox_worker *w = ep->s->w;
	bool between = flight_is_between(w, fl);

	assert(flight_is_push(fl) && fl->redo <= f->owes);
	loss_answer(ep, fl, run_place(fl, f), h, ep->lane->now);
	window_answered(&ep->win, ep->limited, ep->lane->now);
	if (t->discipline->pushed != NULL)
		t->discipline->pushed(t, f, h);
	if (fl->redo) {
		ep->lane->count.redone_pushes++;
		redo_done(t, f);
		flight_land(ep, fl);
		queue_check(ep->s->w, t, f);
		return;
	}
	if (between && !wants_failing(t, f)) {
		flight_next_node(ep, fl);
		return;
	}
	if (between) /* nothing more is sent for it, and so the box does not have all of it */
		flight_withdraw(t, fl);
	transfer_end(t, fl, f, ep, NULL, false);
}

/** The flight of the fragment, in whatever lane, that the frame answers; NULL: none. */
static struct flight *
answered(const struct pbox_worker_table *t, const struct ep *ep, const struct frag *f,
	const struct pbox_hdr *h)
{
	assert(f < t->frag + t->frags && worker_endpoint(ep->s->w, &t->chunk[f->chunk]) == ep);
	for (unsigned lane = 0; lane < t->discipline->lanes; lane++, f += t->frags)
		if (f->state == FRAG_FLIGHT && is_answer(ep->s->w, t, &ep->flight[f->flight], h))
			return &ep->flight[f->flight];
	return NULL;
}

/** Does the run go on after the answer? It ends the fragment, and it is that to the frame that was sent. */
static bool
run_takes(const struct flight *fl, const struct pbox_hdr *h)
{
	return (h->type == PBOX_RESULT || h->type == PBOX_PUSH_OK) && h->ts == fl->ts;
}

void
transfer_frame(struct session *s, const struct rx_frame *r)
{
	struct pbox_worker *w = s->w;
	const struct pbox_hdr *h = &r->hdr;
	const struct chunk_ref *ref = w->shut ? NULL : chunks_find(w, h->chunk);
	struct pbox_worker_table *t;
	struct chunk *k;
	struct frag *f;
	struct ep *ep;
	struct flight *fl;

	if (ref == NULL || h->frag * (uint64_t)ref->table->frag_elements >=
				   ref->table->chunk[ref->chunk].elements) {
		r->lane->count.rx_dropped++;
		return;
	}
	t = ref->table;
	k = &t->chunk[ref->chunk];
	f = &t->frag[k->frag + h->frag];
	if (carry_frame(s, t, f, r))
		return;
	if (k->box != s->index) {
		r->lane->count.rx_dropped++;
		return;
	}
	assert(f->chunk == ref->chunk && f->index == h->frag && k->endpoint < PBOX_MAX_ENDPOINTS);
	ep = &s->ep[k->endpoint];
	__atomic_store_n(&ep->last_rx, ep->lane->now, __ATOMIC_RELAXED);
	if (r->ce)
		ep->ece = true;
	if (r->ce || (h->flags & PBOX_F_ECE) != 0)
		window_marked(&ep->win, ep->lane->now);
	fl = answered(t, ep, f, h);
	if (fl != NULL && fl->left > 1 && !run_takes(fl, h)) {
		run_cut(ep, fl);
		fl = &ep->flight[f->flight];
	}
	if (fl == NULL)
		ep->lane->count.rx_duplicates++;
	else if (fl->type == PBOX_RESTORE)
		restore_answer(t, ep, fl, h);
	else if (h->type == PBOX_RESULT)
		on_result(t, ep, fl, fl->left > 1 ? f : fl->frag, r);
	else if (h->type == PBOX_WAIT)
		on_wait(t, ep, fl, h);
	else if (h->type == PBOX_INIT_OK)
		on_init_ok(t, ep, fl, h);
	else if (h->type == PBOX_FETCHED)
		on_fetched(t, ep, fl, r);
	else if (h->type == PBOX_ERROR)
		transfer_on_error(t, ep, fl, h);
	else
		on_push_ok(t, ep, fl, fl->left > 1 ? f : fl->frag, h);
}
