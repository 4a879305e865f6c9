/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "racks.h"

/*
 * What is around a worker, and the program that uses it: it joins the box of its rack, declares its tables, pushes and pulls round after
 * round, and leaves. One that was killed and starts again has a checkpoint: the rounds of each table that were complete.
 */

#define PATIENCE_MS 3600000
#define WAKES       (20 * US)
#define TURNS       100 /* of a program and its worker at one time */

static void
wake(struct racks *w, struct racks_worker *x, uint64_t at)
{
	if (at < w->now)
		at = w->now;
	if (x->timer != 0 && x->timer <= at)
		return;
	x->timer = at;
	racks_at(w, at, RACKS_WORKER, 0, x->number, NULL);
}

/* ---- its port ---------------------------------------------------------------------------------- */

static void
port_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	struct racks_worker *x = ctx;

	for (unsigned i = 0; i < n; i++) {
		struct racks_packet *p = racks_packet_of(&d[i]);

		p->from_ip = RACKS_WORKER_IP + x->number;
		p->from = x->udp;
		if (x->world->verbose)
			racks_note(x->world, "worker %u -> %x:%u %s, %u bytes", x->number, p->to_ip,
				p->to, pbox_type_name(p->data[2]), p->len);
		racks_net_send(x->world, p);
	}
}

static uint64_t
port_random(void *ctx)
{
	struct racks_worker *x = ctx;

	return pbox_random_u64(&x->world->random);
}

/* ---- its process --------------------------------------------------------------------------------- */

static void
op_free(struct racks_op *o)
{
	*o->prev = o->next;
	if (o->next != NULL)
		o->next->prev = o->prev;
	free(o->in);
	free(o->out);
	free(o->node_in);
	free(o->node_weight);
	free(o);
}

void
racks_worker_start(struct racks *w, struct racks_worker *x, bool restarted)
{
	char run[32], host[16];
	struct pbox_client_conf conf = {.size = sizeof(conf),
		.job = "job",
		.secret = "key",
		.host = host,
		.worker = (int)x->number,
		.workers = w->sp.workers,
		.slots = w->sp.slots,
		.timeout_ms = PATIENCE_MS,
		.join_timeout_ms = PATIENCE_MS,
		.keep_copies = 1,
		.auth = w->sp.auth,
		.run = run};
	struct sockaddr_in box = {.sin_family = AF_INET, .sin_port = htons(PBOX_CONTROL_PORT)};

	snprintf(run, sizeof(run), "run %u", w->life);
	snprintf(host, sizeof(host), "host%u", x->number);
	box.sin_addr.s_addr = htonl(RACKS_BOX_IP + racks_box_of(w, x->number));
	x->world = w;
	x->restarted = restarted;
	x->udp = (uint16_t)(10000 + racks_below(w, 50000));
	x->port = (struct pbox_worker_ops){.send = port_send,
		.random = port_random,
		.ctx = x,
		.mtu = w->sp.mtu,
		.batch = 16,
		.window = 1000};
	x->w = w->code->worker_create(&conf, &box, &x->port);
	PBOX_ASSERT(x->w != NULL);
	x->state = RACKS_OPENING;
	w->code->worker_open(x->w, w->now, w->now + PATIENCE_MS * MS);
	wake(w, x, w->now);
}

void
racks_worker_kill(struct racks *w, struct racks_worker *x)
{
	struct racks_worker old = *x;

	while (x->ops != NULL)
		op_free(x->ops);
	if (x->w != NULL)
		w->code->worker_destroy(x->w);
	*x = (struct racks_worker){.number = old.number, .timer = old.timer};
	memcpy(x->done, old.done, sizeof(x->done));
	memcpy(x->since, old.since, sizeof(x->since));
}

/* ---- operations ------------------------------------------------------------------------------------ */

/* The contributions of its nodes, which it sums itself; @p elements  of all tensors of the operation. */
static void
bring_nodes(struct racks *w, struct racks_worker *x, struct racks_op *o, uint64_t elements)
{
	const struct racks_table *t = &w->sp.table[o->table];
	unsigned nodes = w->code->worker_table_nodes(x->w, o->op.table), n = o->op.n;
	size_t size = t->push == PBOX_FMT_FP32 ? 4 : 2, at = 0;

	o->in = malloc(nodes * elements * size + 1);
	o->node_in = calloc(nodes * n + 1, sizeof(*o->node_in));
	o->node_weight = calloc(nodes, sizeof(*o->node_weight));
	PBOX_ASSERT(o->in != NULL && o->node_in != NULL && o->node_weight != NULL);
	for (unsigned d = 0; d < nodes; d++) {
		struct pbox_node node = w->code->worker_table_node(x->w, o->op.table, d);
		unsigned width = 1u << node.level;

		o->node_weight[d] = racks_weight(w, o->table, o->round, node.first, width);
		for (unsigned i = 0; i < n; i++) {
			uint32_t tensor = o->op.e[i].tensor;

			o->node_in[d * n + i] = o->in + at * size;
			racks_fill(w, o->table, o->round, node.first, width, tensor,
				o->in + at * size);
			at += t->elements[tensor];
		}
	}
	o->op.nodes = nodes;
	o->op.node_in = o->node_in;
	o->op.node_weight = o->node_weight;
}

static void
bring_plain(struct racks *w, struct racks_worker *x, struct racks_op *o, uint64_t elements)
{
	const struct racks_table *t = &w->sp.table[o->table];
	size_t size = t->push == PBOX_FMT_FP32 ? 4 : 2, at = 0;

	o->in = malloc(elements * size + 1);
	PBOX_ASSERT(o->in != NULL);
	o->op.weight = racks_weight(w, o->table, o->round, x->number, 1);
	for (unsigned i = 0; i < o->op.n; i++) {
		o->op.e[i].in = o->in + at * size;
		racks_fill(
			w, o->table, o->round, x->number, 1, o->op.e[i].tensor, o->in + at * size);
		at += t->elements[o->op.e[i].tensor];
	}
}

static void
submit(struct racks *w, struct racks_worker *x, unsigned table, const uint32_t *tensor, unsigned n)
{
	const struct racks_table *t = &w->sp.table[table];
	size_t size = t->pull == PBOX_FMT_FP32 ? 4 : 2;
	struct racks_op *o = calloc(1, sizeof(*o) + n * sizeof(o->op.e[0]));
	uint64_t elements = 0, at = 0;

	PBOX_ASSERT(o != NULL);
	for (unsigned i = 0; i < n; i++)
		elements += t->elements[tensor[i]];
	o->out = malloc((elements + 1) * size);
	PBOX_ASSERT(o->out != NULL);
	o->table = table;
	o->round = x->round;
	o->next = x->ops;
	o->prev = &x->ops;
	if (x->ops != NULL)
		x->ops->prev = &o->next;
	x->ops = o;
	o->op.table = x->table[table];
	o->op.kind = PBOX_CLIENT_PUSHPULL;
	o->op.n = n;
	for (unsigned i = 0; i < n; i++) {
		o->op.e[i] = (struct pbox_worker_entry){
			.op = &o->op, .tensor = tensor[i], .out = o->out + at * size};
		at += t->elements[tensor[i]];
	}
	if (w->sp.slots != 0)
		bring_nodes(w, x, o, elements);
	else
		bring_plain(w, x, o, elements);
	x->open[x->round & 1][table]++;
	w->code->worker_submit(x->w, &o->op);
}

/* The tensors of a table in some order and in some groups, the same at all workers (R6.9). */
static void
submit_table(struct racks *w, struct racks_worker *x, unsigned table)
{
	unsigned n = w->sp.table[table].tensors;
	uint32_t tensor[RACKS_TENSORS];
	struct pbox_random r;

	pbox_random_seed(&r, sim_mix(w->sp.seed, (uint64_t)x->round << 8 | table));
	for (unsigned i = 0; i < n; i++)
		tensor[i] = i;
	for (unsigned i = n; i > 1; i--) {
		unsigned k = (unsigned)pbox_random_below(&r, i);
		uint32_t one = tensor[k];

		tensor[k] = tensor[i - 1];
		tensor[i - 1] = one;
	}
	for (unsigned at = 0; at < n;) {
		unsigned left = n - at, group = left;

		if (pbox_random_below(&r, 2) == 0)
			group = 1 + (unsigned)pbox_random_below(&r, left);
		submit(w, x, table, tensor + at, group);
		at += group;
	}
}

/* ---- its program ------------------------------------------------------------------------------------- */

static bool
none_open(const struct racks_worker *x, unsigned parity)
{
	for (unsigned t = 0; t < RACKS_TABLES; t++)
		if (x->open[parity][t] > 0)
			return false;
	return true;
}

static void
declare(struct racks *w, struct racks_worker *x)
{
	const struct racks_table *t = &w->sp.table[x->tables];

	for (unsigned i = 0; i < t->tensors; i++)
		x->tensor[i] = (struct pbox_client_tensor){.elements = t->elements[i]};
	x->what = (struct pbox_client_table){.size = sizeof(x->what),
		.mode = PBOX_MODE_ALLREDUCE,
		.op = t->op,
		.optimiser = PBOX_OPT_NONE,
		.push_format = t->push,
		.pull_format = t->pull,
		.n = t->tensors,
		.tensors = x->tensor};
	if (x->restarted)
		x->what.first_round = x->done[x->tables] + 1;
	x->declaration = (struct pbox_worker_declaration){.what = &x->what};
	x->state = RACKS_DECLARE;
	w->code->worker_declare(x->w, &x->declaration);
}

static bool
declared(struct racks *w, struct racks_worker *x)
{
	const struct pbox_worker_declaration *d = &x->declaration;
	struct pbox_worker_table_info info;

	if (d->state == PBOX_WORKER_DECLARING)
		return false;
	if (d->state == PBOX_WORKER_REFUSED) {
		racks_fail(w, "worker %u: its table is refused: %s", x->number, d->err.text);
		return false;
	}
	w->code->worker_table_info(d->table, &info);
	x->table[x->tables] = d->table;
	if (info.base != x->done[x->tables])
		racks_fail(w, "worker %u: table %u begins with version %u, and it has done %u",
			x->number, x->tables, info.base, x->done[x->tables]);
	if (++x->tables < w->sp.tables) {
		declare(w, x);
		return true;
	}
	x->state = RACKS_WORK;
	x->round = x->done[0];
	for (unsigned t = 1; t < w->sp.tables; t++)
		x->round = x->done[t] < x->round ? x->done[t] : x->round;
	return true;
}

static void
finished_ops(struct racks *w, struct racks_worker *x)
{
	struct pbox_worker_op *op = w->code->worker_finished(x->w), *next;

	for (; op != NULL && !w->failed; op = next) {
		struct racks_op *o =
			(struct racks_op *)(void *)((char *)op - offsetof(struct racks_op, op));

		next = op->next;
		if (op->code != 0) {
			racks_fail(w, "worker %u: an operation of round %u ends with %d: %s",
				x->number, o->round, op->code, op->text);
			return;
		}
		racks_law_completed(w, x, o);
		w->progress_at = w->now;
		if (--x->open[o->round & 1][o->table] == 0)
			x->done[o->table] = o->round;
		if (o->round == w->sp.rounds)
			racks_law_mapped(w);
		op_free(o);
	}
}

static bool
next_round(struct racks *w, struct racks_worker *x)
{
	uint32_t round = x->round + 1;

	if (x->round == w->sp.rounds || !none_open(x, round & 1) ||
		(!w->sp.ahead && !none_open(x, x->round & 1)))
		return false;
	if (w->now < x->not_before) {
		wake(w, x, x->not_before);
		return false;
	}
	x->round = round;
	x->not_before = w->now + racks_below(w, w->sp.compute_ns);
	for (unsigned t = 0; t < w->sp.tables; t++)
		if (x->done[t] < round)
			submit_table(w, x, t);
	return true;
}

static bool
work(struct racks *w, struct racks_worker *x)
{
	if (next_round(w, x))
		return true;
	if (x->round < w->sp.rounds || !none_open(x, 0) || !none_open(x, 1))
		return false;
	x->state = RACKS_FINISHED;
	w->finished++;
	w->progress_at = w->now;
	return true;
}

static void
done(struct racks *w, struct racks_worker *x)
{
	x->state = RACKS_DONE;
	w->done++;
	w->progress_at = w->now;
}

/* One that is started again, or a box, needs what the others hold: then nobody leaves before all have finished. */
static bool
leave(struct racks *w, struct racks_worker *x)
{
	if (w->sp.mishaps > 0 && w->finished < w->sp.workers) {
		wake(w, x, w->now + 20 * MS);
		return false;
	}
	x->state = RACKS_LEAVE;
	w->code->worker_shut(x->w);
	x->request = (struct pbox_worker_request){
		.type = PBOX_LEAVE, .answer = x->answer, .answer_cap = sizeof(x->answer)};
	w->code->worker_request(x->w, &x->request);
	return true;
}

static bool
step(struct racks *w, struct racks_worker *x)
{
	if (w->code->worker_state(x->w) == PBOX_WORKER_FAILED) {
		int code = w->code->worker_error(x->w)->code;

		if (x->state == RACKS_LEAVE) { /* its session had ended already: LEFT was lost */
			done(w, x);
		} else if (x->state == RACKS_OPENING &&
			   (w->sp.mishaps > 0 || w->sp.within.loss + w->sp.within.damage > 0.05) &&
			   (code == PBOX_C_MTU || code == PBOX_C_UNREACHABLE)) {
			bool restarted = x->restarted;

			racks_worker_kill(w, x);
			racks_at(w, w->now + 100 * MS, RACKS_START, w->life, x->number,
				restarted ? w : NULL);
		} else {
			racks_fail(w, "worker %u in state %u gives up: %s", x->number, x->state,
				w->code->worker_error(x->w)->text);
		}
		return false;
	}
	finished_ops(w, x);
	if (w->failed)
		return false;
	if (w->code->worker_answered(x->w) != NULL && x->state == RACKS_LEAVE) {
		done(w, x);
		return false;
	}
	switch (x->state) {
	case RACKS_OPENING:
		if (w->code->worker_state(x->w) != PBOX_WORKER_OPEN)
			return false;
		declare(w, x);
		return true;
	case RACKS_DECLARE:
		return declared(w, x);
	case RACKS_WORK:
		return work(w, x);
	case RACKS_FINISHED:
		return leave(w, x);
	default:
		return false;
	}
}

void
racks_worker_timer(struct racks *w, struct racks_worker *x)
{
	unsigned turns = 0;
	uint64_t due = 0;
	bool more;

	if (x->timer != w->now)
		return; /* an earlier one has replaced it */
	x->timer = 0;
	if (x->w == NULL || x->state == RACKS_DONE)
		return;
	do {
		due = w->code->worker_tick(x->w, w->now, w->now);
		more = step(w, x);
		if (w->failed || x->w == NULL || x->state == RACKS_DONE)
			return;
		if (++turns > TURNS)
			racks_fail(w, "worker %u is never done", x->number);
	} while (more && !w->failed);
	wake(w, x, due > w->now ? due : w->now + WAKES);
}

void
racks_worker_receive(struct racks *w, struct racks_worker *x, const struct racks_packet *p)
{
	struct pbox_client_rx rx = {.data = (uint8_t *)(uintptr_t)p->data, .len = p->len};

	if (x->w == NULL || x->state == RACKS_DONE || p->to != x->udp)
		return;
	rx.from.sin_family = AF_INET;
	rx.from.sin_addr.s_addr = htonl(p->from_ip);
	rx.from.sin_port = htons(p->from);
	w->code->worker_rx(x->w, &rx, 1, w->now);
	wake(w, x, w->now + racks_below(w, WAKES));
}
