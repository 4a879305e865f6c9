/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include <pbox_reduce.h>

#include "worker_impl.h"

/*
 * The discipline of clocks (section 14 of the protocol): the box applies a push when it comes, and answers a pull at once.
 * Two lanes: the clock of a fragment is that of its lane of pushes.
 *
 * A pull may lack pushes of this worker: the one that is in flight, and those that wait for it. They are in the buffers of
 * their operations, and are added to what the pull brings. So are those that a restarted box has lost, and gets again: they are in the
 * redo log (redo.c). An answer that lacks one that the box has already confirmed was overtaken on its way, and is not taken.
 */

static struct frag_clock *
clock_of(const struct pbox_worker_table *t, const struct frag *f)
{
	return &t->clock[table_frag_number(t, f)];
}

/** The same fragment, in the lane of pushes. */
static struct frag *
pushes_of(const struct pbox_worker_table *t, const struct frag *f)
{
	return &t->frag[table_frag_number(t, f)];
}

/* ---- frames and answers ------------------------------------------------------------------------ */

static void
clock_push(struct frag *f)
{
	f->round++;
	f->pushed = true;
}

static void
clock_withdraw(struct frag *f)
{
	assert(f->pushed);
	f->round--;
}

static uint16_t
push_factor(const struct pbox_worker_op *op)
{
	return op->factor != 0 ? op->factor : PBOX_LR_MUL_ONE;
}

static bool
clock_may_push(struct pbox_worker_table *t, const struct frag *f, char *why, size_t cap)
{
	const struct tensor *x = &t->tensor[t->piece[f->piece].tensor];
	const struct pbox_worker_op *first = table_first_op(t, f);

	if ((t->flags & PBOX_DECLARE_CONTINUE) != 0 && !f->pushed && clock_of(t, f)->pulls == 0) {
		snprintf(why, cap,
			"push of tensor '%s' before its first pull: a worker that goes on in a run learns from a pull which pushes the box has had from it",
			x->name);
		return false;
	}
	for (unsigned i = 1; i < f->pieces; i++) {
		const struct pbox_worker_entry *e = t->piece[f->piece + i].entry;

		if (push_factor(e->op) == push_factor(first))
			continue;
		snprintf(why, cap,
			"tensors '%s' and '%s' share a frame, and are pushed with different factors: give them the same one",
			x->name, t->tensor[t->piece[f->piece + i].tensor].name);
		return false;
	}
	return true;
}

/** Pushes that a box has answered: all but the one in flight. */
static uint32_t
acknowledged(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f)
{
	return f->round - flight_pushes(w, t, f);
}

/** And that the box has, as far as is known: it may have been restarted since. */
static uint32_t
confirmed(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f)
{
	return acknowledged(w, t, f) - redo_owed(t, f);
}

/** The entry that the piece is at, or comes to first; NULL: nothing is submitted. */
static const struct pbox_worker_entry *
first_entry(const struct pbox_worker_table *t, const struct piece *p)
{
	const struct queue *x = table_queue_of(t, p);

	if (p->entry != NULL || x->starts == NULL)
		return p->entry;
	return p->offset < x->started_to ? x->starts->next : x->starts;
}

/** The clock of the piece once all pushes have ended that were submitted before the operation. */
static uint32_t
clock_before(const struct pbox_worker *w, const struct pbox_worker_table *t,
	const struct piece *push, const struct pbox_worker_op *op)
{
	uint32_t clock = acknowledged(w, t, &t->frag[push->frag]);

	assert(push < t->piece + t->pieces);
	for (const struct pbox_worker_entry *e = first_entry(t, push);
		e != NULL && e->op->order < op->order; e = e->next)
		clock += op_pushes(e->op) && !op_fails(e->op);
	return clock;
}

/** The clock that all workers must have before the pull of the fragment is answered; false: it brings the latest. */
static bool
clock_bound(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f,
	uint32_t *bound)
{
	bool any = false;

	assert(table_is_pull_lane(t, f));
	/* it goes on in a run, and does not know its clock yet */
	if ((t->flags & PBOX_DECLARE_CONTINUE) != 0 && !pushes_of(t, f)->pushed &&
		clock_of(t, f)->pulls == 0)
		return false;
	for (unsigned i = 0; i < f->pieces; i++) {
		const struct piece *p = &t->piece[f->piece + i];
		uint32_t b;

		if (p->entry == NULL || p->entry->op->kind != PBOX_CLIENT_PULL)
			continue;
		if (!p->entry->op
				->bounded) /* the strictest of all that are answered with it counts */
			continue;
		b = clock_before(w, t, p - t->pieces, p->entry->op) - p->entry->op->bound;
		if (!any || rounds_apart(b, *bound) > 0)
			*bound = b;
		any = true;
	}
	return any;
}

static void
clock_contribution(const struct pbox_worker *w, const struct pbox_worker_table *t,
	const struct flight *fl, struct pbox_hdr *h)
{
	const struct frag *f = fl->frag;
	const struct frag_clock *k = clock_of(t, f);
	struct pbox_push_clock m = {
		.clock = f->round, .from = k->last.version, .factor = PBOX_LR_MUL_ONE};

	(void)w;
	if (redo_owed(t, f) > 0) {
		m.clock = f->round - redo_owed(t, f) + 1;
	} else {
		if (table_first_op(t, f)->pulls_ago)
			m.from = k->before.version;
		m.factor = push_factor(table_first_op(t, f));
	}
	if (fl->redo)
		redo_push(t, f, &m);
	else
		m.samples = table_weight(t, f, fl->node);
	pbox_push_clock_put(h, &m);
}

static void
clock_ask(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f,
	struct pbox_hdr *h)
{
	struct pbox_pull_clock m = {.bound = 0};

	m.latest = !clock_bound(w, t, f, &m.bound);
	pbox_pull_clock_put(h, &m);
}

static bool
clock_waits_for_own(
	const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f)
{
	uint32_t bound;

	return clock_bound(w, t, f, &bound) &&
	       rounds_apart(bound, confirmed(w, t, pushes_of(t, f))) > 0;
}

static bool
clock_answers(const struct pbox_worker *w, const struct pbox_worker_table *t,
	const struct flight *fl, const struct pbox_hdr *h)
{
	const struct frag_clock *k = clock_of(t, fl->frag);
	const struct frag *f = pushes_of(t, fl->frag);
	const struct pbox_result_clock m = pbox_result_clock_get(h);
	bool pull = fl->type == PBOX_PULL;
	uint32_t bound;

	if (h->type != PBOX_RESULT)
		return pull ? h->round == 0 && flight_is_since(fl, h)
			    : h->round == f->round - redo_owed(t, f) + fl->redo;
	if (k->epoch == t->chunk[f->chunk].epoch && rounds_apart(m.version, k->seen.version) < 0)
		return false;
	if (!pull)
		return rounds_apart(m.own, f->round) >= 0;
	if (clock_bound(w, t, fl->frag, &bound) && rounds_apart(m.slowest, bound) < 0)
		return false; /* the answer to an earlier pull */
	return flight_is_since(fl, h) &&
	       (!f->pushed || rounds_apart(m.own, confirmed(w, t, f)) >= 0);
}

/** By an operation: the RESULT of a push that was the last one for which the redo log had room is for that alone. */
static bool
is_asked_for(const struct pbox_worker_table *t, const struct frag *f)
{
	if (table_is_pull_lane(t, f))
		return true;
	for (unsigned i = 0; i < f->pieces; i++)
		if (t->piece[f->piece + i].entry->op->kind == PBOX_CLIENT_PUSHPULL)
			return true;
	return false;
}

/** Own pushes that the log needs not keep: one in codes may go again from there until it is answered. */
static uint32_t
shown_up_to(const struct pbox_worker_table *t, const struct frag *f, uint32_t own)
{
	const struct frag *pushes = pushes_of(t, f);
	uint32_t answered = pushes->round - (pushes->state == FRAG_FLIGHT);

	if (t->update == 0 || !table_is_pull_lane(t, f) || rounds_apart(own, answered) <= 0)
		return own;
	return answered;
}

static void
clock_result(struct pbox_worker_table *t, struct frag *f, const struct pbox_hdr *h,
	struct retained *kept, struct pbox_client_stats *count)
{
	const struct pbox_result_clock m = pbox_result_clock_get(h);
	struct frag_clock *k = clock_of(t, f);
	struct frag *pushes = pushes_of(t, f);
	/* of a line of versions that this worker has not seen before: it was away while the box was restored */
	bool other = k->epoch != t->chunk[f->chunk].epoch &&
		     rounds_apart(m.version, k->seen.version) < 0;

	/* in one home of the chunk no version falls that a worker has seen (R14.8) */
	assert(k->epoch != t->chunk[f->chunk].epoch ||
		rounds_apart(m.version, k->seen.version) >= 0);
	k->seen = (struct frag_version){.version = m.version, .own = m.own};
	k->epoch = t->chunk[f->chunk].epoch;
	k->slowest = m.slowest;
	k->members = m.members;
	count->contributors = m.members; /* it says no samples */
	if (kept != NULL)
		kept->slowest = m.slowest;
	if (t->redo != NULL)
		redo_shown(t, pushes, shown_up_to(t, f, m.own));
	if (!is_asked_for(t, f))
		return;
	k->before = other ? k->seen : k->last;
	k->last = k->seen;
	k->pulls += k->pulls < 2;
	/* what another process has pushed that had this worker's number */
	if (!pushes->pushed && pushes->round != m.own) {
		pushes->round = m.own;
		table_recounts(t);
	}
}

static void
clock_pushed(struct pbox_worker_table *t, struct frag *f, const struct pbox_hdr *h)
{
	clock_of(t, f)->slowest = pbox_push_ok_clock_get(h).slowest;
}

static void
clock_on_wait(const struct pbox_worker *w, struct flight *fl, const struct pbox_hdr *h)
{
	const struct pbox_wait_clock m = pbox_wait_clock_get(h);

	(void)w;
	fl->wait_lacks = m.lacks;
	fl->wait_missing = m.missing;
}

static bool
clock_waits_for(const struct pbox_worker *w, const struct pbox_worker_table *t,
	const struct flight *fl, char *text, size_t cap)
{
	uint32_t bound;

	if (fl->type != PBOX_PULL || fl->wait_missing >= w->workers ||
		!clock_bound(w, t, fl->frag, &bound))
		return false;
	pbox_text_add(text, cap,
		": a pull with a bound, until all workers have pushed %u times; worker %u is slowest, with %u",
		bound, fl->wait_missing, bound - fl->wait_lacks);
	return true;
}

static bool
clock_defers(const struct pbox_worker_table *t, const struct frag *f)
{
	(void)t;
	(void)f;
	return true; /* before INIT, or beyond the rate of the job */
}

/* ---- own pushes that a pull lacks ------------------------------------------------------------------- */

static float
widened(const uint8_t *at, unsigned format)
{
	uint16_t half;
	float x;

	if (format == PBOX_FMT_FP32) {
		memcpy(&x, at, sizeof(x));
		return x;
	}
	memcpy(&half, at, sizeof(half));
	return half_widen(half, format);
}

/** As the box does it: the product and the sum are rounded once each (R14.4). */
static void
add_push(uint8_t *out, unsigned out_format, const uint8_t *in, unsigned in_format, float factor,
	uint32_t n)
{
	size_t out_size = pbox_payload_bytes(out_format, 1);
	size_t in_size = pbox_payload_bytes(in_format, 1);

	for (uint32_t i = 0; i < n; i++, out += out_size, in += in_size) {
		float product = factor * widened(in, in_format);
		float sum = widened(out, out_format) + product;
		uint16_t half;

		if (out_format == PBOX_FMT_FP32) {
			memcpy(out, &sum, sizeof(sum));
			continue;
		}
		half = half_narrow(sum, out_format);
		memcpy(out, &half, sizeof(half));
	}
}

#define ADDED (8 * PBOX_UNIT) /* elements that are decoded at a time */

/** The same to @p n elements from @p at on of a fragment, of its codes. */
static void
add_codes_of(const struct pbox_worker_table *t, uint8_t *out, const uint8_t *codes, uint64_t at,
	float factor, uint32_t n)
{
	float value[ADDED];

	while (n > 0) {
		uint32_t skip = at % PBOX_UNIT, k = n < ADDED - skip ? n : ADDED - skip;

		t->reduce->decode(value, codes + pbox_payload_bytes(t->update, at - skip),
			t->update, skip + k);
		add_push(out, t->pull_format, (const uint8_t *)(value + skip), PBOX_FMT_FP32,
			factor, k);
		out += pbox_payload_bytes(t->pull_format, k);
		at += k;
		n -= k;
	}
}

/** To the piece of a pull: the push of that clock as it was sent; false: it is not kept. */
static bool
add_sent(const struct pbox_worker_table *t, const struct frag *f, const struct piece *p,
	uint32_t clock)
{
	const struct piece *push = p - t->pieces;
	uint8_t *out = p->entry->out + pbox_payload_bytes(t->pull_format, p->offset);
	uint64_t before = 0;
	float factor;
	const uint8_t *in = redo_find(t, f, clock, &factor);

	assert(p >= t->piece + t->pieces);
	if (in == NULL)
		return false;
	for (const struct piece *x = &t->piece[f->piece]; x != push; x++)
		before += x->elements;
	if (t->update != 0)
		add_codes_of(t, out, in, before, factor, p->elements);
	else
		add_push(out, t->pull_format, in + pbox_payload_bytes(t->push_format, before),
			t->push_format, factor, p->elements);
	return true;
}

/** Those after clock @p has, up to @p last, that a restarted box has lost. */
static void
add_owed(const struct pbox_worker_table *t, const struct frag *f, const struct piece *p,
	uint32_t has, uint32_t last)
{
	assert(t->redo != NULL);
	while (rounds_apart(last, has) > 0)
		add_sent(t, f, p, ++has);
}

static void
clock_deliver(const struct pbox_worker *w, struct pbox_worker_table *t, const struct piece *p)
{
	const struct pbox_worker_entry *to = p->entry;
	const struct piece *push = p - t->pieces;
	const struct frag *f = &t->frag[push->frag];
	uint32_t clock = acknowledged(w, t, f), has = clock_of(t, f)->last.own;
	size_t at = pbox_payload_bytes(t->push_format, p->offset);

	assert(p >= t->piece + t->pieces && to->op->kind == PBOX_CLIENT_PULL);
	if (to->out == NULL)
		return;
	if (redo_owed(t, f) > 0)
		add_owed(t, f, p, has, clock);
	for (const struct pbox_worker_entry *e = first_entry(t, push); e != NULL; e = e->next) {
		if (e->op->order >= to->op->order)
			return;
		if (!op_pushes(e->op) || op_fails(e->op) || rounds_apart(++clock, has) <= 0)
			continue;
		/* what the box will add; what has not been sent yet counts as the program has pushed it */
		if (t->update != 0 && add_sent(t, f, p, clock))
			continue;
		add_push(to->out + pbox_payload_bytes(t->pull_format, p->offset), t->pull_format,
			table_in(e, 0) + at, t->push_format, pbox_worker_factor(push_factor(e->op)),
			p->elements);
	}
}

/* ---- DECLARE, and a lost session -------------------------------------------------------------------- */

static int
clock_begin(struct session *s, struct pbox_worker_table *t, uint32_t first_round,
	struct pbox_client_error *err)
{
	(void)s;
	(void)first_round; /* that it goes on is all that it says */
	assert(t->clock == NULL);
	t->base_version = 0;
	for (uint32_t i = 0; i < t->frags * t->discipline->lanes; i++)
		t->frag[i].round = 0;
	t->clock = calloc(t->frags > 0 ? t->frags : 1, sizeof(*t->clock));
	for (uint32_t i = 0; t->clock != NULL && i < t->frags; i++)
		t->clock[i].epoch = t->chunk[t->frag[i].chunk].epoch;
	if (t->clock == NULL)
		return pbox_client_fail(err, PBOX_C_MEMORY,
			"no memory for the clocks of the %u fragments of table %u", t->frags,
			t->number);
	return 0;
}

/** Of what is retained. */
static uint32_t
clock_version(const struct pbox_worker_table *t, const struct frag *f)
{
	return clock_of(t, f)->seen.version;
}

static bool
clock_report(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f,
	struct pbox_hdr *h)
{
	const struct frag_clock *k = clock_of(t, f);
	struct pbox_restore_clock m = {.version = clock_version(t, f)};
	const struct retained *kept = retained_at(t, f, m.version);

	assert(!table_is_pull_lane(t, f)); /* it is of a fragment, not of a lane */
	(void)w;
	if (kept != NULL) {
		m.have = true;
		m.epoch = k->epoch;
		m.own = k->seen.own;
		m.slowest = kept->slowest;
	} else {
		m.own = t->redo != NULL && redo_of(t, f)->n > 0 ? redo_of(t, f)->first - 1
								: f->round;
		m.answered = f->round;
	}
	pbox_restore_clock_put(h, &m);
	return m.have;
}

/** m->own: the clock of the last own push that the box has. */
static void
clock_restored(struct session *s, struct pbox_worker_table *t, struct frag *f,
	const struct pbox_restore_ok *m)
{
	uint32_t lost;

	assert(!table_is_pull_lane(t, f));
	if (t->redo == NULL ||
		(!f->pushed && f->round == 0)) /* it learns its clock from a RESULT */
		return;
	if (rounds_apart(m->own, f->round) > 1) {
		text_fail(s->w, PBOX_C_LOST,
			"the box at %s was restarted, and has %u pushes of tensor '%s' of worker %u, which has sent %u: another process has its number",
			s->name, m->own, t->tensor[t->piece[f->piece].tensor].name, s->w->worker,
			f->round);
		return;
	}
	lost = redo_begin(t, f, m->own);
	s->w->lane[0]->count.lost_pushes += lost;
}

static bool
clock_needs_from(const struct pbox_worker_table *t, uint32_t *round)
{
	(void)t;
	(void)round;
	return false;
}

const struct worker_discipline worker_clock = {
	.number = PBOX_DISCIPLINE_CLOCK,
	.survives = PBOX_CLOCK_VECTOR,
	.vector = pbox_clock_vector,
	.lanes = 2,
	.unit = "push",
	.stays = true,
	.needs = 1u << PBOX_CAN_CLOCK,
	.begin = clock_begin,
	.push = clock_push,
	.withdraw = clock_withdraw,
	.may_push = clock_may_push,
	.contribute = clock_contribution,
	.ask = clock_ask,
	.waits_for_own = clock_waits_for_own,
	.answers = clock_answers,
	.result = clock_result,
	.pushed = clock_pushed,
	.wait = clock_on_wait,
	.deliver = clock_deliver,
	.why = clock_waits_for,
	.defers = clock_defers,
	.version = clock_version,
	.report = clock_report,
	.restored = clock_restored,
	.needs_from = clock_needs_from,
};

/* ---- the host's --------------------------------------------------------------------------------------- */

uint16_t
pbox_worker_factor_code(float factor)
{
	return half_narrow(factor, PBOX_FMT_BF16);
}

float
pbox_worker_factor(uint16_t code)
{
	return half_widen(code, PBOX_FMT_BF16);
}

bool
pbox_worker_versions(
	const struct pbox_worker_table *t, uint32_t tensor, struct pbox_client_versions *out)
{
	uint32_t first = 0, end = t->pieces, n = 0, clock;
	double version = 0, others = 0;

	if (t->clock == NULL || (tensor != PBOX_CLIENT_ALL_TENSORS && tensor >= t->n))
		return false;
	if (tensor != PBOX_CLIENT_ALL_TENSORS) {
		first = t->tensor[tensor].by_first;
		end = first + t->tensor[tensor].by_count;
	}
	*out = (struct pbox_client_versions){.pulls = 2};
	for (uint32_t i = first; i < end; i++) {
		const struct frag *f = &t->frag[t->piece[t->by_tensor[i]].frag];
		const struct frag_clock *k = clock_of(t, f);

		version += k->last.version;
		others += (double)(uint32_t)(k->last.version - k->before.version) -
			  (double)(uint32_t)(k->last.own - k->before.own);
		clock = f->round;
		if (n == 0 || rounds_apart(k->last.version, out->lowest) < 0)
			out->lowest = k->last.version;
		if (n == 0 || rounds_apart(k->last.version, out->highest) > 0)
			out->highest = k->last.version;
		if (n == 0 || rounds_apart(clock, out->own) > 0)
			out->own = clock;
		if (n == 0 || rounds_apart(k->last.own, out->own_seen) < 0)
			out->own_seen = k->last.own;
		if (n == 0 || rounds_apart(k->slowest, out->slowest) < 0)
			out->slowest = k->slowest;
		out->members = k->members;
		if (k->pulls < out->pulls)
			out->pulls = k->pulls;
		n++;
	}
	if (n > 0) {
		out->version = version / n;
		out->others = others / n;
	}
	return true;
}
