/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdlib.h>

#include "unit.h"

#include "peers.h"
#include "slot_sums.h"

/*
 * Workers of a job with slots, and the engine as their box: whichever worker brings a slot, each round's result is the sum along
 * the tree over them, and so it stays when frames get lost, nodes are taken back, or the box is started again.
 */

const char unit_suite[] = "worker: slots with the engine";

#define TENSORS 3
#define SLOTS   13 /* at most */
#define SMALL   1000
#define LARGE   40000 /* more fragments than the first window has */

static struct pbox_client_tensor tensor[TENSORS] = {{.elements = 700}, {.elements = 1}};
static const uint32_t tensor_at[TENSORS] = {0, 700, 701};
static unsigned elements;

/* ---- a worker's program --------------------------------------------------------------------------- */

struct program {
	struct pbox_worker_declaration declaration;
	struct pbox_worker_table *table;
	struct pbox_worker_op *op;
	float node[SLOTS][701 + LARGE], out[701 + LARGE];
	const uint8_t *in[SLOTS * TENSORS];
	uint32_t weight[SLOTS];
	bool done;
};

static struct program program[WORLD_WORKERS];
static uint64_t tick;

/** The result of an operation that has ended. */
static void
collect(void)
{
	for (unsigned i = 0; i < WORLD_WORKERS && peer[i].w != NULL; i++)
		if (pbox_worker_finished(peer[i].w) != NULL)
			program[i].done = true;
}

static void
step(void)
{
	peers_step(&tick);
	collect();
}

/** Join, and declare the table. */
static void
begin(const struct how *how)
{
	const struct pbox_client_table table = {.size = sizeof(table),
		.mode = how->mode,
		.op = how->op,
		.optimiser = how->mode == PBOX_MODE_OPTIMISER ? PBOX_OPT_SGD : PBOX_OPT_NONE,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = TENSORS,
		.tensors = tensor};

	memset(program, 0, sizeof(program));
	tensor[2].elements = how->large ? LARGE : SMALL;
	elements = 701 + (unsigned)tensor[2].elements;
	peers_begin(&(struct peers_conf){.workers = how->workers, .slots = how->slots});
	tick = world.now;
	peers_await_sessions(1, &tick);
	for (unsigned i = 0; i < how->workers; i++) {
		program[i].declaration.what = &table;
		pbox_worker_declare(peer[i].w, &program[i].declaration);
		peer[i].due = world.now;
	}
	for (unsigned i = 0; i < how->workers; i++) {
		while (program[i].declaration.state == PBOX_WORKER_DECLARING)
			step();
		CU_ASSERT_FATAL(program[i].declaration.state == PBOX_WORKER_DECLARED);
		program[i].table = program[i].declaration.table;
	}
}

static void
end(void)
{
	for (unsigned i = 0; i < WORLD_WORKERS; i++)
		free(program[i].op);
	peers_end();
}

/** The worker sums the slots of its nodes, and submits. */
static void
submit(const struct how *how, unsigned i, unsigned kind, unsigned round)
{
	struct program *p = &program[i];
	const struct pbox_worker *w = peer[i].w;
	struct pbox_worker_op *op;
	unsigned nodes = pbox_worker_table_nodes(w, p->table);

	CU_ASSERT_FATAL(nodes <= SLOTS);
	free(p->op);
	p->op = op = calloc(1, sizeof(*op) + TENSORS * sizeof(op->e[0]));
	CU_ASSERT_FATAL(op != NULL);
	for (unsigned k = 0; k < nodes; k++) {
		struct pbox_node n = pbox_worker_table_node(w, p->table, k);

		p->weight[k] = 0;
		for (unsigned s = n.first; s < pbox_node_end(n, how->slots); s++)
			p->weight[k] += slot_weight(s);
		for (unsigned e = 0; e < elements; e++)
			p->node[k][e] = how->plain
						? slot_value(n.first, round, e)
						: slot_tree(how, n.first, n.level, round, e, false);
		for (unsigned t = 0; t < TENSORS; t++)
			p->in[k * TENSORS + t] = (const uint8_t *)&p->node[k][tensor_at[t]];
	}
	op->table = p->table;
	op->kind = (uint8_t)kind;
	op->weight = 1;
	op->n = TENSORS;
	if (!how->plain && kind <= PBOX_CLIENT_PUSH) {
		op->nodes = nodes;
		op->node_in = p->in;
		op->node_weight = p->weight;
	}
	for (unsigned t = 0; t < TENSORS; t++)
		op->e[t] = (struct pbox_worker_entry){.op = op,
			.tensor = t,
			.in = (const uint8_t *)&p->node[0][tensor_at[t]],
			.out = (uint8_t *)&p->out[tensor_at[t]]};
	p->done = false;
	pbox_worker_submit(peer[i].w, op);
	peer[i].due = world.now;
}

static void
await(unsigned i)
{
	uint64_t until = world.now + 60 * SEC;

	while (!program[i].done && world.now < until)
		step();
	CU_ASSERT_FATAL(program[i].done);
}

/** It has ended well, with the bits of the tree. */
static void
check(const struct how *how, unsigned i, unsigned round)
{
	unsigned wrong = 0;

	await(i);
	UNIT_EQ_U64(program[i].op->code, 0);
	for (unsigned e = 0; e < elements; e++) {
		float v = slot_sum(how, round, e);

		wrong += memcmp(&v, &program[i].out[e], sizeof(v)) != 0;
	}
	UNIT_EQ_U64(wrong, 0);
}

static void
one_round(const struct how *how, unsigned round)
{
	for (unsigned i = 0; i < how->workers; i++)
		submit(how, i, PBOX_CLIENT_PUSHPULL, round);
	for (unsigned i = 0; i < how->workers; i++)
		check(how, i, round);
}

static struct pbox_client_stats
stats(unsigned i)
{
	struct pbox_client_stats s = {0};

	pbox_worker_stats(peer[i].w, &s);
	return s;
}

/** Bytes of one round, each counted once. */
static uint64_t
useful(unsigned i)
{
	return (uint64_t)pbox_worker_table_nodes(peer[i].w, program[i].table) * elements *
	       sizeof(float);
}

/* ---- frames on their way --------------------------------------------------------------------------- */

/** Contributions of a worker to one fragment, as they arrive at the box, and what is lost. */
static struct {
	unsigned worker;
	uint32_t chunk;
	uint16_t frag;
	struct pbox_hdr sent[64]; /* PUSH and PUSHPULL of the fragment */
	unsigned n;
	uint8_t lose;  /* this type, to or from the worker, and ... */
	unsigned most; /* ... so often */
	bool only;     /* of the fragment alone */
} spy;

static bool
spy_lose(const struct packet *p)
{
	const uint8_t *at = p->data;
	size_t left = p->len;
	bool lose = false;

	if (p->worker != spy.worker)
		return false;
	for (bool first = true; left > 0; first = false) {
		struct pbox_hdr h;
		size_t size = 0;

		if (pbox_frame_decode(at, left, first, &h, &size) != PBOX_WIRE_OK)
			break;
		if (h.chunk == spy.chunk && h.frag == spy.frag &&
			(h.type == PBOX_PUSH || h.type == PBOX_PUSHPULL) && spy.n < 64)
			spy.sent[spy.n++] = h;
		lose |= h.type == spy.lose &&
			(!spy.only || (h.chunk == spy.chunk && h.frag == spy.frag));
		at += size;
		left -= size;
	}
	if (!lose || spy.most == 0)
		return false;
	spy.most--;
	return true;
}

static void
spy_on(unsigned worker, uint8_t lose, unsigned most)
{
	const struct pbox_worker_table *t = program[worker].table;

	memset(&spy, 0, sizeof(spy));
	spy.worker = worker;
	spy.chunk = t->chunk[0].id;
	spy.lose = lose;
	spy.most = most;
	peers_lose = spy_lose;
}

/** A frame of the box for the fragment that is looked at. */
static void
tell(uint8_t type, uint16_t flags, uint32_t round, uint32_t base, uint32_t ts, uint16_t aux)
{
	const struct pbox_worker *w = peer[spy.worker].w;
	const struct session *s = w->box[0];
	const struct pbox_worker_table *t = program[spy.worker].table;
	const struct ep *ep = worker_endpoint(w, &t->chunk[0]);
	uint8_t frame[PBOX_HDR_LEN];

	pbox_frame_encode(frame,
		&(struct pbox_hdr){.type = type,
			.flags = flags,
			.token = s->token,
			.job = s->job_number,
			.worker = w->worker,
			.incarnation = s->incarnation,
			.chunk = spy.chunk,
			.frag = spy.frag,
			.round = round,
			.base = base,
			.map_epoch = t->map_epoch[0],
			.aux = aux,
			.ts = ts},
		0);
	peers_datagram(&peer[spy.worker], ntohs(ep->peer.addr.sin_port), frame, sizeof(frame));
}

/** Until the fragment has sent so many contributions; false: it does not for 5 s. */
static bool
await_sent(unsigned n)
{
	uint64_t until = world.now + 5 * SEC;

	while (spy.n < n && world.now < until)
		step();
	return spy.n >= n;
}

/* Worker 1 of 3 with 8 slots: 2 to 4. */
static const struct how three = {.workers = 3, .slots = 8};
#define NODE_0 (2u | 1u << 16)
#define NODE_1 4u

/** Nothing but time goes on. */
static void
pass(uint64_t ns)
{
	uint64_t until = world.now + ns;

	while (world.now < until) {
		tick = tick < until ? tick : until;
		step();
	}
}

/* ---- tests -------------------------------------------------------------------------------------------- */

static void
test_any_number_of_workers(void)
{
	static const unsigned workers[] = {1, 2, 3, 5}, slots[] = {8, 13};
	static const uint8_t ops[] = {PBOX_OP_SUM, PBOX_OP_MEAN, PBOX_OP_WEIGHTED_MEAN};

	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < 4; i++)
			for (unsigned o = 0; o < 3; o++) {
				struct how how = {
					.workers = workers[i], .slots = slots[k], .op = ops[o]};

				begin(&how);
				for (unsigned round = 1; round <= 3; round++)
					one_round(&how, round);
				for (unsigned w = 0; w < how.workers; w++) {
					UNIT_EQ_U64(stats(w).useful_tx_bytes, 3 * useful(w));
					UNIT_EQ_U64(stats(w).retransmitted_frames, 0);
					UNIT_EQ_U64(stats(w).contributors, how.slots);
					UNIT_EQ_U64(stats(w).partial_results, 0);
				}
				end();
			}
}

/* Only the last node is asked for its result, all are answered, and rounds count once. */
static void
test_frames_of_a_round(void)
{
	begin(&three);
	for (unsigned round = 1; round <= 2; round++) {
		spy_on(1, 0, 0);
		one_round(&three, round);
		UNIT_EQ_U64(spy.n, 2);
		UNIT_EQ_U64(spy.sent[0].type, PBOX_PUSH);
		UNIT_EQ_U64(spy.sent[0].base, NODE_0);
		UNIT_EQ_U64(spy.sent[0].weight, slot_weight(2) + slot_weight(3));
		UNIT_EQ_U64(spy.sent[1].type, PBOX_PUSHPULL);
		UNIT_EQ_U64(spy.sent[1].base, NODE_1);
		UNIT_EQ_U64(spy.sent[1].weight, slot_weight(4));
		for (unsigned i = 0; i < 2; i++) {
			UNIT_EQ_U64(spy.sent[i].round, round);
			CU_ASSERT((spy.sent[i].flags & PBOX_F_LAST) != 0);
		}
	}
	end();
}

static void
test_push_alone(void)
{
	begin(&three);
	spy_on(1, 0, 0);
	for (unsigned i = 0; i < 3; i++)
		submit(&three, i, PBOX_CLIENT_PUSH, 1);
	for (unsigned i = 0; i < 3; i++)
		await(i);
	UNIT_EQ_U64(spy.n, 2);
	UNIT_EQ_U64(spy.sent[1].type, PBOX_PUSH);
	for (unsigned i = 0; i < 3; i++)
		submit(&three, i, PBOX_CLIENT_PULL, 1);
	for (unsigned i = 0; i < 3; i++)
		check(&three, i, 1);
	end();
}

static void
test_lost(uint8_t type)
{
	begin(&three);
	one_round(&three, 1);
	spy_on(1, type, 4);
	one_round(&three, 2);
	UNIT_EQ_U64(spy.most, 0);
	UNIT_EQ_U64(stats(1).useful_tx_bytes, 2 * useful(1));
	CU_ASSERT(type == PBOX_RESULT || stats(1).retransmitted_frames > 0);
	one_round(&three, 3);
	end();
}

static void
test_lost_frames(void)
{
	test_lost(PBOX_PUSH);
	test_lost(PBOX_PUSH_OK);
	test_lost(PBOX_PUSHPULL);
	test_lost(PBOX_RESULT);
}

/** Workers 1 has pushed all, and the others nothing. */
static uint32_t
wait_at_the_last(void)
{
	begin(&three);
	spy_on(1, 0, 0);
	submit(&three, 1, PBOX_CLIENT_PUSHPULL, 1);
	CU_ASSERT_FATAL(await_sent(2));
	pass(MS);
	UNIT_EQ_U64(spy.n, 2);
	return spy.sent[1].ts;
}

static void
finish_round(void)
{
	submit(&three, 0, PBOX_CLIENT_PUSHPULL, 1);
	submit(&three, 2, PBOX_CLIENT_PUSHPULL, 1);
	for (unsigned i = 0; i < 3; i++)
		check(&three, i, 1);
	UNIT_EQ_U64(stats(1).useful_tx_bytes, useful(1));
	one_round(&three, 2);
	end();
}

/* The box has taken the first node back: it comes again, and those after it. */
static void
test_taken_back(void)
{
	uint32_t ts = wait_at_the_last();

	tell(PBOX_WAIT, 0, 1, 3, ts, 0); /* slot 3, of the first node */
	CU_ASSERT(await_sent(4));
	UNIT_EQ_U64(spy.sent[2].type, PBOX_PUSH);
	UNIT_EQ_U64(spy.sent[2].base, NODE_0);
	UNIT_EQ_U64(spy.sent[3].type, PBOX_PUSHPULL);
	UNIT_EQ_U64(spy.sent[3].base, NODE_1);
	CU_ASSERT((spy.sent[3].flags & PBOX_F_RETX) != 0);
	finish_round();
}

/* What the box missed before it had the latest payload says nothing, also to one that waits for other workers. */
static void
test_old_wait(void)
{
	uint32_t ts = wait_at_the_last();

	tell(PBOX_WAIT, 0, 1, 2, ts - 1, 0);
	pass(SEC);
	UNIT_EQ_U64(spy.n, 2);
	tell(PBOX_WAIT, PBOX_F_HAVE, 1, 0, ts, 0);
	tell(PBOX_WAIT, 0, 1, 2, ts - 1, 0);
	pass(SEC);
	UNIT_EQ_U64(spy.n, 2);
	finish_round();
}

/* A WAIT that names a slot of another worker is about the node in flight. */
static void
test_foreign_slot(void)
{
	uint32_t ts = wait_at_the_last();

	tell(PBOX_WAIT, 0, 1, 7, ts, 0);
	CU_ASSERT(await_sent(3));
	UNIT_EQ_U64(spy.sent[2].base, NODE_1);
	finish_round();
}

/* Nothing but its own PUSH_OK takes a worker on to the next node. */
static void
test_never_forward(void)
{
	uint32_t ts;

	begin(&three);
	spy_on(1, PBOX_PUSH, UINT32_MAX);
	submit(&three, 1, PBOX_CLIENT_PUSHPULL, 1);
	CU_ASSERT_FATAL(await_sent(1));
	ts = spy.sent[0].ts;
	tell(PBOX_WAIT, 0, 1, 4, ts, 0);
	tell(PBOX_WAIT, PBOX_F_HAVE, 1, 0, ts, 0);
	tell(PBOX_PUSH_OK, 0, 1, NODE_1, ts, 0);
	tell(PBOX_PUSH_OK, 0, 0, NODE_0, ts, 0);
	CU_ASSERT(await_sent(3));
	for (unsigned i = 0; i < spy.n; i++)
		UNIT_EQ_U64(spy.sent[i].base, NODE_0);
	spy.most = 0;
	finish_round();
}

/* The box is started again when it has some of a worker's nodes. */
static void
test_box_restart(void)
{
	for (unsigned sent = 1; sent <= 2; sent++) {
		begin(&three);
		one_round(&three, 1);
		spy_on(1, sent == 1 ? PBOX_PUSH_OK : 0, UINT32_MAX);
		submit(&three, 1, PBOX_CLIENT_PUSHPULL, 2);
		CU_ASSERT_FATAL(await_sent(sent));
		pass(MS);
		world_box_crash();
		world_box_start();
		spy.most = 0;
		spy.n = 0;
		peers_await_sessions(2, &tick);
		CU_ASSERT_FATAL(await_sent(2));
		UNIT_EQ_U64(spy.sent[0].base, NODE_0);
		submit(&three, 0, PBOX_CLIENT_PUSHPULL, 2);
		submit(&three, 2, PBOX_CLIENT_PUSHPULL, 2);
		for (unsigned i = 0; i < 3; i++)
			check(&three, i, 2);
		one_round(&three, 3);
		end();
	}
}

static void
test_plain_operation(void)
{
	struct how how = three;

	how.plain = true;
	begin(&how);
	spy_on(1, 0, 0);
	one_round(&how, 1);
	UNIT_EQ_U64(spy.n, 2);
	UNIT_EQ_U64(spy.sent[0].weight, 1);
	UNIT_EQ_U64(spy.sent[1].weight, 0);
	UNIT_EQ_U64(spy.sent[1].length, 0);
	CU_ASSERT((spy.sent[1].flags & PBOX_F_ZERO) != 0);
	UNIT_EQ_U64(stats(1).useful_tx_bytes, elements * sizeof(float));
	UNIT_EQ_U64(stats(1).samples, how.workers);
	end();
}

/* It fails when the box has some of its nodes: the next one is the same round. */
static void
test_failing_operation(void)
{
	begin(&three);
	one_round(&three, 1);
	spy_on(1, PBOX_PUSH_OK, 1);
	submit(&three, 1, PBOX_CLIENT_PUSHPULL, 2);
	CU_ASSERT_FATAL(await_sent(1));
	tell(PBOX_ERROR, 0, 2, 0, spy.sent[0].ts, PBOX_E_BAD_REQUEST);
	await(1);
	CU_ASSERT_EQUAL(program[1].op->code, PBOX_C_REFUSED);
	CU_ASSERT_PTR_NOT_NULL(strstr(program[1].op->text, "slots 2 to 3 of 8 from worker 1 of 3"));
	spy_on(1, 0, 0);
	one_round(&three, 2);
	UNIT_EQ_U64(spy.sent[0].base, NODE_0);
	one_round(&three, 3);
	end();
}

/* PUSH_OKs of fragments that were sent later say nothing of those that wait for other workers. */
static void
test_no_needless_probes(void)
{
	struct how how = {.workers = 2, .slots = 3, .large = true};

	begin(&how);
	world.steady = true;
	submit(&how, 1, PBOX_CLIENT_PUSHPULL, 1);
	pass(3 * MS);
	CU_ASSERT(stats(1).tx_frames > 90); /* more than a window of each kind */
	UNIT_EQ_U64(stats(1).probes, 0);
	UNIT_EQ_U64(stats(1).retransmitted_frames, 0);
	end();
}

/* But they show that a PUSH was lost, long before its time is over. */
static void
test_lost_push_among_many(void)
{
	struct how how = three;
	uint64_t from;

	how.large = true;
	begin(&how);
	spy_on(1, PBOX_PUSH, 1);
	spy.only = true;
	from = world.now;
	submit(&how, 1, PBOX_CLIENT_PUSHPULL, 1);
	CU_ASSERT_FATAL(await_sent(2));
	CU_ASSERT(world.now - from < 3 * MS);
	UNIT_EQ_U64(spy.sent[1].base, NODE_0);
	end();
}

/* A box without initial parameters takes no node, and then all. */
static void
test_before_init(void)
{
	struct how how = {.workers = 3, .slots = 8, .mode = PBOX_MODE_OPTIMISER};
	unsigned waited;

	begin(&how);
	peers_set_lr(0, &tick);
	spy_on(1, 0, 0);
	submit(&how, 1, PBOX_CLIENT_PUSHPULL, 1);
	pass(50 * MS);
	waited = spy.n;
	CU_ASSERT(waited >= 2 && waited < 20);
	for (unsigned i = 0; i < waited; i++)
		UNIT_EQ_U64(spy.sent[i].base, NODE_0);
	submit(&how, 0, PBOX_CLIENT_INIT, 7);
	await(0);
	while (spy.sent[spy.n - 1].base != NODE_1)
		CU_ASSERT_FATAL(await_sent(spy.n + 1));
	/* now that nodes were taken, one that is missing was lost, and goes again at once */
	waited = spy.n;
	tell(PBOX_WAIT, 0, 1, 4, spy.sent[spy.n - 1].ts, 0);
	pass(MS);
	UNIT_EQ_U64(spy.n, waited + 1);
	UNIT_EQ_U64(spy.sent[spy.n - 1].base, NODE_1);
	submit(&how, 0, PBOX_CLIENT_PUSHPULL, 1);
	submit(&how, 2, PBOX_CLIENT_PUSHPULL, 1);
	for (unsigned i = 0; i < 3; i++)
		await(i);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned e = 0; e < elements; e++) {
			float v = slot_tree(&how, 0, 1, 7, e, false) - slot_sum(&how, 1, e);

			CU_ASSERT(memcmp(&v, &program[i].out[e], sizeof(v)) == 0);
		}
	end();
}

/* What a program asks for, and the text about an operation that waits. */
static void
test_facts(void)
{
	struct pbox_node node[PBOX_RANGE_NODES];
	struct pbox_worker_wait wait;
	char text[256] = "";

	wait_at_the_last();
	UNIT_EQ_U64(pbox_worker_slots(peer[1].w), 8);
	UNIT_EQ_U64(pbox_worker_nodes(peer[1].w, 0, node), 2);
	UNIT_EQ_U64(pbox_node_code(node[0]), NODE_0);
	UNIT_EQ_U64(pbox_node_code(node[1]), NODE_1);
	pass(SEC); /* until a probe is answered */
	pbox_worker_why(peer[1].w, program[1].op, &wait, text, sizeof(text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "3 of 8 slots are there; missing worker 0"));
	UNIT_EQ_U64(wait.missing, 0);
	finish_round();
	begin(&(struct how){.workers = 2});
	UNIT_EQ_U64(pbox_worker_slots(peer[1].w), 2);
	UNIT_EQ_U64(pbox_worker_nodes(peer[1].w, 0, node), 1);
	UNIT_EQ_U64(pbox_node_code(node[0]), 1);
	end();
}

/* The box has room for the fewest nodes. Where each slot is a frame of its own, fewer fragments are in flight. */
static void
test_window_of_weighted_means(void)
{
	const struct session *s;

	begin(&(struct how){.workers = 2, .slots = 9, .op = PBOX_OP_MEAN});
	s = peer[1].w->box[0];
	UNIT_EQ_U64(s->ep[0].win.max, s->window);
	end();
	begin(&(struct how){.workers = 2, .slots = 9, .op = PBOX_OP_WEIGHTED_MEAN});
	s = peer[1].w->box[0];
	CU_ASSERT_FATAL(s->window >= 5);
	UNIT_EQ_U64(s->ep[0].win.max, s->window * 2 / 5); /* slots 4 to 7, and 8 */
	UNIT_EQ_U64(nodes_window(peer[1].w, 2), 1);
	CU_ASSERT(window_frames(&s->ep[0].win) <= s->ep[0].win.max);
	end();
}

const struct unit_test unit_tests[] = {
	{"the same bits with any number of workers", test_any_number_of_workers},
	{"the frames of a round", test_frames_of_a_round},
	{"pushes alone", test_push_alone},
	{"lost frames", test_lost_frames},
	{"a node that was taken back", test_taken_back},
	{"a WAIT that is older than the payload", test_old_wait},
	{"a WAIT with another worker's slot", test_foreign_slot},
	{"never forward but by PUSH_OK", test_never_forward},
	{"the box is started again between nodes", test_box_restart},
	{"a plain operation", test_plain_operation},
	{"an operation that fails between nodes", test_failing_operation},
	{"PUSH_OKs are no evidence against pushes that wait", test_no_needless_probes},
	{"a lost PUSH among many", test_lost_push_among_many},
	{"before the initial parameters", test_before_init},
	{"facts", test_facts},
	{"the window of weighted means", test_window_of_weighted_means},
	{NULL, NULL},
};
