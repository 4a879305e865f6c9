/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The programs of the workers: join, declare, then round after round, as main wants it. Each does one thing after another; what it
 * waits for is lib/worker's. By plan it asks before each round which slots are its own, as pbox.torch does, and where a round
 * waits for slots that it has got it pushes once more. In clocks it pushes and pulls, and at the end of a run pulls what has the
 * pushes of all.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

#define AT_ONCE  32                      /* workers that join, or declare: a box refuses too many */
#define SCAN_US  100                     /* between two looks at all timers */
#define TURNS    16                      /* things that a worker does in a turn */
#define JOIN_NS  UINT64_C(3600000000000) /* main has deadlines of its own */
#define SECOND   1e-9
#define LIVES_NS UINT64_C(30000000000) /* of a question: as long as --timeout */

static bool
is_clock(const struct lane *l)
{
	return l->t->opt.discipline == PBOX_DISCIPLINE_CLOCK;
}

static bool
by_plan(const struct lane *l)
{
	return l->t->opt.policy == PBOX_POLICY_REASSIGN;
}

static bool
by_nodes(const struct lane *l)
{
	return l->t->opt.slots != 0 || by_plan(l);
}

uint64_t
library_slot_ns(const struct testps *t, unsigned worker)
{
	return t->opt.n_slot_times > 0 ? t->opt.slot_time_us[worker % t->opt.n_slot_times] * 1000
				       : 0;
}

/* ---- operations --------------------------------------------------------------------------------- */

static void
submit(struct library_worker *x, struct pbox_worker_op *op, enum pbox_client_kind kind)
{
	struct lane *l = x->l;
	struct library *b = l->library;
	unsigned n = l->t->model.n;
	bool pushes = kind == PBOX_CLIENT_PUSHPULL || kind == PBOX_CLIENT_PUSH;
	bool wrong = pushes && x->number == 0 && x->round + 1 == l->t->opt.wrong_round;

	memset(op, 0, sizeof(*op) + n * sizeof(op->e[0]));
	op->table = x->declaration.table;
	op->kind = (uint8_t)kind;
	op->weight = 1;
	op->n = n;
	op->again = pushes && x->again;
	/* the last pull of a run has the pushes of all, as often as this worker has pushed */
	op->bounded =
		kind == PBOX_CLIENT_PULL && (x->program == PROGRAM_SETTLES || l->t->opt.bounded);
	op->bound = x->program == PROGRAM_SETTLES ? 0 : l->t->opt.bound_steps;
	for (unsigned i = 0; i < n; i++) {
		const float *in = kind == PBOX_CLIENT_INIT ? library_init(b, i) : NULL;

		if (pushes && !by_nodes(l))
			in = library_data(b, i, b->base + x->round + 1 + wrong, x->number, 1);
		op->e[i] = (struct pbox_worker_entry){.op = op,
			.tensor = i,
			.in = (const uint8_t *)in,
			.out = kind == PBOX_CLIENT_PUSHPULL || kind == PBOX_CLIENT_PULL
				       ? (uint8_t *)(x->out + b->at[i])
				       : NULL};
	}
	if (pushes && by_nodes(l)) {
		op->nodes = pbox_worker_table_nodes(x->w, op->table);
		op->node_in = x->node_in;
		op->node_weight = x->node_weight;
	}
	for (unsigned k = 0; k < op->nodes; k++) {
		struct pbox_node node = pbox_worker_table_node(x->w, op->table, k);
		unsigned slots = pbox_node_end(node, b->slots) - node.first;

		x->node_weight[k] = slots;
		for (unsigned i = 0; i < n; i++) {
			const float *in = library_data(
				b, i, b->base + x->round + 1 + wrong, node.first, slots);

			x->node_in[k * n + i] = (const uint8_t *)in;
			if (in == NULL)
				lane_fail(l,
					"no memory for the sums over %u slots: use a smaller model",
					slots);
		}
	}
	if (atomic_load(&l->failed))
		return;
	x->open++;
	pbox_worker_submit(x->w, op);
}

/* ---- rounds -------------------------------------------------------------------------------------- */

static void
library_ask(struct library_worker *x, enum pbox_worker_asks kind)
{
	struct pbox_work_ask *m = &x->question.work;
	uint64_t now = library_clock_ns(x->l);

	x->question = (struct pbox_worker_question){.kind = kind,
		.table = x->declaration.table,
		.deadline = now + RTE_MAX(x->l->t->opt.timeout_ns, LIVES_NS),
		.work = {.round = x->l->library->base + x->round + 1,
			.fits = UINT32_MAX,
			.seed = PBOX_WORK_NONE,
			.samples = PBOX_WORK_NONE}};
	if (x->measured) {
		m->slots = (uint16_t)x->slots;
		m->compute = (double)x->compute_ns * SECOND;
		/* a round trip for each payload: what an exchange takes besides is waiting for others */
		m->down = (double)x->counted.srtt_ns * SECOND;
		m->up = m->down * x->nodes;
	}
	x->program = PROGRAM_ASKS;
	pbox_worker_ask(x->w, &x->question);
}

static unsigned
slots_now(struct library_worker *x)
{
	const struct pbox_worker_table *t = x->declaration.table;
	unsigned slots = 0;

	x->nodes = by_nodes(x->l) ? pbox_worker_table_nodes(x->w, t) : 1;
	for (unsigned k = 0; by_nodes(x->l) && k < x->nodes; k++) {
		struct pbox_node node = pbox_worker_table_node(x->w, t, k);

		slots += pbox_node_end(node, x->l->library->slots) - node.first;
	}
	return by_nodes(x->l) ? slots : 1;
}

/* Its slots are known now; what it brings is ready after the time that they take. */
static void
library_compute(struct library_worker *x)
{
	struct lane *l = x->l;

	x->slots = slots_now(x);
	x->compute_ns = x->slots * library_slot_ns(l->t, x->number);
	if (atomic_load(&l->t->straggler) == (int)x->number)
		x->compute_ns += (uint64_t)atomic_load(&l->t->straggler_us) * 1000;
	x->not_before_ns = library_clock_ns(l) + x->compute_ns;
	x->program = PROGRAM_COMPUTES;
}

static void
library_exchange(struct library_worker *x)
{
	struct lane *l = x->l;

	if (x->round + 1 > atomic_load_explicit(&l->round, memory_order_relaxed))
		atomic_store_explicit(&l->round, x->round + 1, memory_order_relaxed);
	x->begun_ns = library_clock_ns(l);
	x->program = PROGRAM_EXCHANGES;
	if (!is_clock(l)) {
		submit(x, x->op, PBOX_CLIENT_PUSHPULL);
		return;
	}
	submit(x, x->op, PBOX_CLIENT_PUSH);
	submit(x, x->pull, PBOX_CLIENT_PULL);
}

static bool
may_begin(const struct library_worker *x)
{
	const struct lane *l = x->l;

	return atomic_load_explicit(&l->running, memory_order_relaxed) && x->round < l->cap &&
	       x->round < atomic_load_explicit(&l->t->limit, memory_order_relaxed);
}

static bool
is_settled(const struct library_worker *x)
{
	return !is_clock(x->l) || x->settled == x->round;
}

static void
library_check(struct library_worker *x)
{
	struct lane *l = x->l;
	unsigned first = 0;
	int wrong;

	if (l->t->opt.no_check)
		return;
	wrong = library_wrong(l, x->out, l->library->base + x->round, &first);
	if (wrong < 0)
		return;
	lane_count(l, LS_CHECKED, l->t->plan.n);
	if (wrong > 0 && l->stats[LS_WRONG] == 0)
		snprintf(l->err.text, sizeof(l->err.text),
			is_clock(l)
				? "worker %u, after %u pushes of each, tensor %s: not the sum of all"
				: "worker %u, round %u, tensor %s: not the sum over all slots",
			x->number, x->round, l->t->model.tensor[first].name);
	lane_count(l, LS_WRONG, (unsigned)wrong);
}

/* What lib/worker has counted since the last time. */
static void
count(struct library_worker *x)
{
	struct pbox_client_stats s = {.size = sizeof(s)}, *was = &x->counted;
	struct lane *l = x->l;

	pbox_worker_stats(x->w, &s);
	lane_count(l, LS_PUSH_BYTES, s.useful_tx_bytes - was->useful_tx_bytes);
	lane_count(l, LS_PULL_BYTES, s.useful_rx_bytes - was->useful_rx_bytes);
	lane_count(l, LS_REPEATED, s.retransmitted_frames - was->retransmitted_frames);
	lane_count(l, LS_PROBES, s.probes - was->probes);
	lane_count(l, LS_DUPLICATES, s.rx_duplicates - was->rx_duplicates);
	lane_count(l, LS_DROP_FRAME, s.rx_dropped - was->rx_dropped);
	lane_count(l, LS_DROP_AUTH, s.rx_drop_auth - was->rx_drop_auth);
	lane_count(l, LS_RESTORED, s.restored_fragments - was->restored_fragments);
	if (x->number == 0)
		l->t->rejoined = (unsigned)s.restarts;
	*was = s;
}

static void
round_ended(struct library_worker *x)
{
	struct lane *l = x->l;
	uint64_t took = library_clock_ns(l) - x->begun_ns;

	x->round++;
	x->again = false;
	x->all_slots += x->slots;
	x->measured = x->slots > 0 && x->compute_ns > 0;
	pbox_hist_add(&l->latency, took);
	lane_count(l, LS_ROUNDS, 1);
	lane_count(l, LS_CONTRIBUTIONS, (uint64_t)x->nodes * l->t->plan.n);
	lane_count(l, LS_RESULTS, l->t->plan.n);
	if (!is_clock(l))
		library_check(x);
	count(x);
	x->program = PROGRAM_RESTS;
}

static void
op_ended(struct library_worker *x, const struct pbox_worker_op *op)
{
	x->open--;
	if (op->more) {
		x->again = true;
		x->measured = false;
		library_ask(x, PBOX_WORKER_WORK);
		return;
	}
	if (op->code != PBOX_C_OK) {
		lane_fail(x->l, "worker %u, round %u: %s", x->number, x->round + 1, op->text);
		return;
	}
	if (x->open > 0)
		return;
	if (x->program == PROGRAM_GIVING) {
		pbox_worker_stats(x->w, &x->counted); /* of rounds alone */
		x->program = PROGRAM_RESTS;
	} else if (x->program == PROGRAM_SETTLES) {
		x->settled = x->round;
		library_check(x);
		x->program = PROGRAM_RESTS;
	} else {
		round_ended(x);
	}
}

/* ---- before and after rounds -------------------------------------------------------------------- */

static void
library_request(struct library_worker *x, enum pbox_type type, size_t length)
{
	x->request = (struct pbox_worker_request){.type = (uint8_t)type,
		.payload = x->payload,
		.length = (uint16_t)length,
		.answer = x->answer,
		.answer_cap = sizeof(x->answer)};
	pbox_worker_request(x->w, &x->request);
}

static void
set_hyper(struct library_worker *x)
{
	struct pbox_set m = {
		.group = PBOX_ALL_GROUPS, .from_round = x->l->library->base + 1, .count = 1};
	struct pbox_hyper h;

	reference_hyper(&h, x->l->t->now.optimiser);
	m.param[0].id = PBOX_HYPER_LR;
	m.param[0].value = h.lr;
	if (h.momentum > 0)
		m.param[m.count++] = (struct pbox_param){PBOX_HYPER_MOMENTUM, h.momentum};
	library_request(x, PBOX_SET, pbox_set_encode(x->payload, sizeof(x->payload), &m));
	x->program = PROGRAM_SETTING;
}

static void
library_give(struct library_worker *x)
{
	x->program = PROGRAM_GIVING;
	submit(x, x->op, PBOX_CLIENT_INIT);
}

/* The same for all workers: worker 0 says it. */
static void
take_table(struct library_worker *x)
{
	const struct pbox_worker_table *table = x->declaration.table;
	const struct sockaddr_in *a[PBOX_MAX_ENDPOINTS];
	struct testps *t = x->l->t;
	struct session *s = &t->session;
	struct pbox_worker_session now = {0};
	struct pbox_worker_table_info info;
	struct plan *p = &t->plan;

	pbox_worker_table_info(table, &info);
	pbox_worker_session(x->w, &now);
	*p = (struct plan){
		.chunks = info.chunks, .frag_elements = info.frag_elements, .round = info.base};
	for (uint32_t i = 0; i < info.chunks; i++) {
		struct pbox_worker_chunk c;

		pbox_worker_chunk(table, i, &c);
		p->n += (c.elements + info.frag_elements - 1) / info.frag_elements;
	}
	p->endpoints = pbox_worker_endpoints(x->w, PBOX_WORKER_LANES, a, PBOX_MAX_ENDPOINTS);
	*s = (struct session){.job = now.job,
		.endpoints = (uint16_t)p->endpoints,
		.window = now.window,
		.mtu = now.mtu,
		.incarnation = now.incarnation,
		.lease_ms = now.lease_ms,
		.tags = now.keys != NULL};
	for (unsigned e = 0; e < p->endpoints && e < PBOX_MAX_ENDPOINTS; e++)
		s->endpoint[e] = *a[e];
}

static void
table_ended(struct library_worker *x)
{
	struct lane *l = x->l;
	struct pbox_worker_table_info info;

	if (x->declaration.state == PBOX_WORKER_REFUSED) {
		lane_fail(l, "worker %u: %s", x->number, x->declaration.err.text);
		return;
	}
	pbox_worker_table_info(x->declaration.table, &info);
	l->library->base = info.base;
	if (x->number == 0)
		take_table(x);
	x->program = PROGRAM_MAPPED;
}

static void
library_leave(struct library_worker *x)
{
	struct pbox_worker_session s;
	bool there = x->program > PROGRAM_OPENING && pbox_worker_session(x->w, &s);

	if (x->program == PROGRAM_DECLARING)
		pbox_worker_declare_cancel(x->w, &x->declaration);
	x->program = there ? PROGRAM_LEAVING : PROGRAM_LEFT;
	pbox_worker_shut(x->w);
	if (there)
		library_request(x, PBOX_LEAVE, 0);
}

/* ---- what a worker does next ---------------------------------------------------------------------- */

/* What it has asked for has come. False: nothing has. */
static bool
library_look(struct library_worker *x)
{
	struct lane *l = x->l;
	struct pbox_worker_request *r = pbox_worker_answered(x->w);
	struct pbox_worker_question *q = pbox_worker_replied(x->w);
	struct pbox_worker_op *op = pbox_worker_finished(x->w), *next;
	bool any = r != NULL || q != NULL || op != NULL;
	struct pbox_client_error err;

	if (x->program == PROGRAM_LEAVING) {
		if (r != NULL || pbox_worker_state(x->w) == PBOX_WORKER_FAILED)
			x->program = PROGRAM_LEFT;
		return false;
	}
	if (pbox_worker_state(x->w) == PBOX_WORKER_FAILED) {
		lane_fail(l, "worker %u: %s", x->number, pbox_worker_error(x->w)->text);
		return false;
	}
	if (r != NULL && pbox_worker_result(r, PBOX_SET_OK, "setting the learning rate",
				 pbox_worker_error(x->w), &err) != 0) {
		lane_fail(l, "worker %u: %s", x->number, err.text);
		return false;
	}
	if (r != NULL)
		library_give(x);
	if (q != NULL && q->err.code != PBOX_C_OK) {
		lane_fail(l, "worker %u, round %u: %s", x->number, x->round + 1,
			q->err.text[0] != '\0' ? q->err.text
					       : "the box does not say which slots are its own");
		return false;
	}
	if (q != NULL) {
		l->library->plan = RTE_MAX(l->library->plan, q->ok.plan);
		x->measured &= !q->changed;
		library_compute(x);
	}
	for (; op != NULL; op = next) {
		next = op->next;
		op_ended(x, op);
	}
	return any;
}

/* False: it waits for something, or for main. */
static bool
library_step_on(struct library_worker *x, int wanted)
{
	struct lane *l = x->l;
	uint64_t now = library_clock_ns(l);
	uint8_t was = x->program;

	switch ((enum program)x->program) {
	case PROGRAM_CLOSED:
		if (wanted < LEVEL_JOINED || l->waiting >= AT_ONCE)
			break;
		l->waiting++;
		pbox_worker_open(x->w, now, now + JOIN_NS);
		x->program = PROGRAM_OPENING;
		break;
	case PROGRAM_OPENING:
		if (pbox_worker_state(x->w) == PBOX_WORKER_OPEN)
			x->program = PROGRAM_JOINED;
		break;
	case PROGRAM_JOINED:
		if (wanted < LEVEL_MAPPED || l->waiting >= AT_ONCE)
			break;
		l->waiting++;
		x->declaration = (struct pbox_worker_declaration){.what = &l->t->table};
		pbox_worker_declare(x->w, &x->declaration);
		x->program = PROGRAM_DECLARING;
		break;
	case PROGRAM_DECLARING:
		if (x->declaration.state != PBOX_WORKER_DECLARING)
			table_ended(x);
		break;
	case PROGRAM_MAPPED:
		if (wanted < LEVEL_READY)
			break;
		if (x->number != 0 || l->t->now.optimiser == PBOX_OPT_NONE)
			x->program = PROGRAM_RESTS;
		else if (is_clock(l))
			library_give(x);
		else
			set_hyper(x);
		break;
	case PROGRAM_RESTS:
		if (may_begin(x) && by_plan(l))
			library_ask(x, x->round > 0 ? PBOX_WORKER_TURN : PBOX_WORKER_WORK);
		else if (may_begin(x))
			library_compute(x);
		else if (!is_settled(x) && x->round >= atomic_load(&l->t->limit)) {
			x->program = PROGRAM_SETTLES;
			submit(x, x->pull, PBOX_CLIENT_PULL);
		}
		break;
	case PROGRAM_COMPUTES:
		if (now >= x->not_before_ns)
			library_exchange(x);
		break;
	default:
		break;
	}
	return x->program != was;
}

static void
library_serve(struct library_worker *x, int wanted, bool more)
{
	uint64_t now = library_clock_ns(x->l);
	bool on = true;

	if (wanted == LEVEL_LEFT && x->program == PROGRAM_CLOSED)
		x->program = PROGRAM_LEFT;
	else if (wanted == LEVEL_LEFT && x->program < PROGRAM_LEAVING)
		library_leave(x);
	for (unsigned i = 0; on && i < TURNS && x->program != PROGRAM_LEFT; i++) {
		if (x->program != PROGRAM_CLOSED)
			x->due_ns = pbox_worker_tick(x->w, now, more ? 0 : now);
		on = x->program != PROGRAM_CLOSED && library_look(x);
		if (atomic_load_explicit(&x->l->failed, memory_order_relaxed))
			return;
		if (wanted != LEVEL_LEFT)
			on |= library_step_on(x, wanted);
	}
	if (x->program == PROGRAM_COMPUTES)
		x->due_ns = RTE_MIN(x->due_ns, x->not_before_ns);
	if (on || x->due_ns <= now)
		library_wake(x->l, x);
}

static int
level_of(const struct library_worker *x)
{
	return x->program >= PROGRAM_RESTS    ? LEVEL_READY
	       : x->program >= PROGRAM_MAPPED ? LEVEL_MAPPED
	       : x->program >= PROGRAM_JOINED ? LEVEL_JOINED
					      : LEVEL_NONE;
}

/* All workers: timers, what main wants, and what main wants to know. */
static void
library_scan(struct lane *l, int wanted, bool running, bool more)
{
	struct library *b = l->library;
	int lowest = LEVEL_READY;
	unsigned left = 0;
	bool idle = true;

	l->waiting = 0;
	for (unsigned k = 0; k < l->workers; k++)
		l->waiting +=
			b->x[k].program == PROGRAM_OPENING ||
			(b->x[k].program == PROGRAM_DECLARING && !b->x[k].declaration.asks_map);
	for (unsigned k = 0; k < l->workers; k++) {
		struct library_worker *x = &b->x[k];

		if (!x->dirty && (library_clock_ns(l) >= x->due_ns || wanted == LEVEL_LEFT ||
					 library_step_on(x, wanted)))
			library_serve(x, wanted, more);
		lowest = RTE_MIN(lowest, level_of(x));
		left += x->program == PROGRAM_LEFT;
		idle &= x->program == PROGRAM_RESTS && is_settled(x) &&
			x->round >= atomic_load(&l->t->limit);
	}
	atomic_store(&l->level, lowest);
	atomic_store(&l->left, left);
	if (running)
		atomic_store(&l->idle, idle);
}

void
library_turn(struct lane *l, bool running, bool more)
{
	struct library *b = l->library;
	bool frozen = atomic_load_explicit(&l->frozen, memory_order_relaxed);
	int wanted = atomic_load_explicit(&l->level_wanted, memory_order_acquire);
	unsigned n = b->n_dirty;

	/* main looks for the last round: until it has found it, none begins here */
	if (frozen != atomic_load_explicit(&l->acknowledged, memory_order_relaxed)) {
		l->cap = frozen ? atomic_load(&l->round) : NO_LIMIT;
		atomic_store(&l->acknowledged, frozen);
	}
	b->side ^= 1;
	b->n_dirty = 0;
	for (unsigned i = 0; i < n; i++) {
		struct library_worker *x = &b->x[b->dirty[b->side ^ 1][i]];

		x->dirty = false;
		library_serve(x, wanted, more);
	}
	if (l->now >= b->scan_us) {
		b->scan_us = l->now + SCAN_US;
		library_scan(l, wanted, running, more);
	}
}
