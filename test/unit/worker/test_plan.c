/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include <pbox_worker_plan.h>

#include "unit.h"

#include "peers.h"

/* The dialogue about plans: what a worker asks, when, and how a question ends. The engine is the box. */

const char unit_suite[] = "worker: plans";

#define WORKERS  2
#define SLOTS    4
#define MOST     16 /* of a test */
#define ELEMENTS 100

static const struct pbox_client_tensor tensor[] = {{.elements = ELEMENTS}};

static struct program {
	struct pbox_worker_declaration declaration;
	struct pbox_worker_table *table;
	struct pbox_worker_op *op;
	struct pbox_worker_question q;
	bool done, replied;
	float in[ELEMENTS], out[ELEMENTS];
	const uint8_t *node_in[MOST];
	uint32_t weight[MOST];
} program[WORKERS];
static uint64_t tick;
static unsigned asked; /* WORKs that have come to the box */
static bool mute;      /* its answers to them get lost */
static uint8_t format; /* of pushes */
static struct {
	unsigned n, wide; /* contributions that leave, and in fp32; */
	uint32_t node;    /* the last of these */
	unsigned of;      /* the worker */
} pushed;

static bool
watch(const struct packet *p)
{
	struct pbox_hdr h;
	size_t size;

	if (pbox_frame_decode(p->data, p->len, true, &h, &size) != PBOX_WIRE_OK)
		return false;
	if (p->port != 0 && (h.type == PBOX_PUSH || h.type == PBOX_PUSHPULL) &&
		p->worker == pushed.of) {
		pushed.n++;
		pushed.wide += h.format == PBOX_FMT_FP32;
		if (h.format == PBOX_FMT_FP32)
			pushed.node = h.base;
	}
	asked += p->port != 0 && h.type == PBOX_WORK && (h.flags & PBOX_F_RETX) == 0;
	return mute && p->port == 0 && h.type == PBOX_WORK_OK;
}

static void
step(void)
{
	peers_step(&tick);
	for (unsigned i = 0; i < WORKERS; i++) {
		struct pbox_worker_question *q = pbox_worker_replied(peer[i].w);
		struct pbox_worker_op *op = pbox_worker_finished(peer[i].w);

		CU_ASSERT_FATAL(q == NULL || q == &program[i].q);
		program[i].replied |= q != NULL;
		program[i].done |= op != NULL;
	}
}

static void
run_for(uint64_t ns)
{
	for (uint64_t until = world.now + ns; world.now < until;)
		step();
}

static void
ask(unsigned i, enum pbox_worker_asks kind, uint32_t round)
{
	program[i].q = (struct pbox_worker_question){.kind = kind,
		.table = program[i].table,
		.deadline = world.now + SEC,
		.most = 100 * MS,
		.work = {.round = round,
			.fits = UINT32_MAX,
			.seed = PBOX_WORK_NONE,
			.samples = PBOX_WORK_NONE}};
	program[i].replied = false;
	pbox_worker_ask(peer[i].w, &program[i].q);
	peer[i].due = world.now;
}

static int
reply(unsigned i)
{
	while (!program[i].replied)
		step();
	return program[i].q.err.code;
}

static int
question(unsigned i, enum pbox_worker_asks kind, uint32_t round)
{
	ask(i, kind, round);
	return reply(i);
}

static void
declare(unsigned i)
{
	static struct pbox_client_table table = {.size = sizeof(table),
		.mode = PBOX_MODE_OPTIMISER,
		.op = PBOX_OP_SUM,
		.optimiser = PBOX_OPT_SGD,
		.pull_format = PBOX_FMT_FP32,
		.n = 1,
		.tensors = tensor};

	table.push_format = format;
	program[i].declaration = (struct pbox_worker_declaration){.what = &table};
	pbox_worker_declare(peer[i].w, &program[i].declaration);
	peer[i].due = world.now;
}

static void
submit(unsigned i, unsigned kind)
{
	struct program *p = &program[i];
	unsigned nodes = pbox_worker_table_nodes(peer[i].w, p->table);

	free(p->op);
	p->op = calloc(1, sizeof(*p->op) + sizeof(p->op->e[0]));
	CU_ASSERT_FATAL(p->op != NULL && nodes <= MOST);
	for (unsigned k = 0; k < MOST; k++) {
		p->node_in[k] = (const uint8_t *)p->in;
		p->weight[k] = 1;
	}
	*p->op = (struct pbox_worker_op){
		.table = p->table, .kind = (uint8_t)kind, .weight = 1, .n = 1};
	p->op->e[0] = (struct pbox_worker_entry){.op = p->op,
		.in = (const uint8_t *)p->in,
		.out = kind == PBOX_CLIENT_PUSHPULL ? (uint8_t *)p->out : NULL};
	if (kind == PBOX_CLIENT_PUSHPULL) {
		p->op->nodes = nodes;
		p->op->node_in = p->node_in;
		p->op->node_weight = p->weight;
	}
	p->done = false;
	pbox_worker_submit(peer[i].w, p->op);
	peer[i].due = world.now;
}

static void
await(unsigned i)
{
	while (!program[i].done)
		step();
	UNIT_EQ_U64(program[i].op->code, 0);
}

static void
round_of_both(void)
{
	for (unsigned i = 0; i < WORKERS; i++)
		submit(i, PBOX_CLIENT_PUSHPULL);
	for (unsigned i = 0; i < WORKERS; i++)
		await(i);
}

/* Both know their slots, and the model is there. */
static void
begin_with(unsigned slots, uint8_t push_format)
{
	format = push_format;
	memset(&pushed, 0, sizeof(pushed));
	memset(program, 0, sizeof(program));
	asked = 0;
	mute = false;
	peers_begin(&(struct peers_conf){.workers = WORKERS,
		.slots = slots,
		.path_known = true,
		.policy = PBOX_POLICY_REASSIGN});
	peers_lose = watch;
	tick = world.now;
	peers_await_sessions(1, &tick);
	for (unsigned i = 0; i < WORKERS; i++)
		declare(i);
	for (unsigned i = 0; i < WORKERS; i++) {
		while (program[i].declaration.state == PBOX_WORKER_DECLARING)
			step();
		CU_ASSERT_FATAL(program[i].declaration.state == PBOX_WORKER_DECLARED);
		program[i].table = program[i].declaration.table;
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		CU_ASSERT_EQUAL(question(i, PBOX_WORKER_WORK, 0), PBOX_C_OK);
		CU_ASSERT(program[i].q.changed);
		UNIT_EQ_U64(program[i].q.nodes, 1);
		UNIT_EQ_U64(program[i].q.work.round, 1);
	}
	peers_set_lr(0, &tick);
	submit(0, PBOX_CLIENT_INIT);
	await(0);
}

static void
begin_in(uint8_t push_format)
{
	begin_with(SLOTS, push_format);
}

static void
begin(void)
{
	begin_in(PBOX_FMT_FP32);
}

static void
end(void)
{
	peers_end();
	for (unsigned i = 0; i < WORKERS; i++)
		free(program[i].op);
}

/* After a round there is nothing to ask: the report goes by itself, 20 times a second at the most, and nobody waits for it. */
static void
test_turns(void)
{
	uint64_t from;

	begin();
	run_for(60 * MS);
	asked = 0;
	from = world.now;
	for (uint32_t round = 1; round <= 30; round++) {
		uint64_t before;

		round_of_both();
		before = world.now;
		CU_ASSERT_EQUAL(question(0, PBOX_WORKER_TURN, round + 1), PBOX_C_OK);
		CU_ASSERT(!program[0].q.changed);
		UNIT_EQ_U64(world.now, before); /* it has waited for nothing */
		run_for(5 * MS);
	}
	CU_ASSERT(asked >= 2);
	CU_ASSERT((asked - 1) * 50 * MS <= world.now - from);
	UNIT_EQ_U64(program[0].q.ok.members, WORKERS);
	end();
}

/* What the box thinks of a report is known at the next question. */
static void
test_late_report(void)
{
	begin();
	run_for(60 * MS);
	round_of_both();
	ask(0, PBOX_WORKER_TURN, 2);
	program[0].q.work.slots = 1;
	program[0].q.work.compute = -1;
	CU_ASSERT_EQUAL(reply(0), PBOX_C_OK);
	run_for(60 * MS);
	CU_ASSERT_NOT_EQUAL(question(0, PBOX_WORKER_WORK, 2), PBOX_C_OK);
	CU_ASSERT(program[0].q.err.text[0] != 0);
	CU_ASSERT_EQUAL(question(0, PBOX_WORKER_WORK, 2), PBOX_C_OK); /* it is said once */
	end();
}

/* A question ends at its deadline, without a text: whom its session waits for is for the host to say. */
static void
test_silent_box(void)
{
	uint64_t from;

	begin();
	mute = true;
	from = world.now;
	CU_ASSERT_EQUAL(question(0, PBOX_WORKER_WORK, 1), PBOX_C_DEADLINE);
	CU_ASSERT_STRING_EQUAL(program[0].q.err.text, "");
	CU_ASSERT(world.now >= from + SEC && world.now < from + SEC + 100 * MS);
	mute = false;
	CU_ASSERT_EQUAL(question(0, PBOX_WORKER_WORK, 1), PBOX_C_OK);
	end();
}

/* A worker that has slots, or has pushed, is no newcomer; slots do not change under a push. */
static void
test_wrong_time(void)
{
	begin();
	CU_ASSERT_EQUAL(question(1, PBOX_WORKER_LOOK, 1), PBOX_C_OK);
	CU_ASSERT(!program[1].q.changed && program[1].q.ok.ranges == 1);
	submit(1, PBOX_CLIENT_PUSHPULL);
	CU_ASSERT_EQUAL(question(1, PBOX_WORKER_WORK, 1), PBOX_C_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(program[1].q.err.text, "a push is unfinished"));
	CU_ASSERT_EQUAL(question(1, PBOX_WORKER_REPORT, 1), PBOX_C_OK);
	submit(0, PBOX_CLIENT_PUSHPULL);
	await(0);
	await(1);
	CU_ASSERT_EQUAL(question(1, PBOX_WORKER_ENTER, 2), PBOX_C_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(program[1].q.err.text, "no newcomer"));
	end();
}

/* A worker that is done gets slots that the other has not begun; in the next round they are whose they were. */
static void
test_steal(void)
{
	begin();
	CU_ASSERT(pbox_worker_slot_begin(peer[1].w, 1, 2, world.now));
	CU_ASSERT(pbox_worker_slot_begin(peer[0].w, 1, 0, world.now));
	CU_ASSERT(pbox_worker_slot_begin(peer[0].w, 1, 1, world.now));
	for (unsigned turns = 0; turns < 20; turns++) {
		run_for(10 * MS);
		CU_ASSERT_EQUAL(question(0, PBOX_WORKER_STEAL, 1), PBOX_C_OK);
		if (program[0].q.gained > 0)
			break;
	}
	if (program[0].q.gained > 0)
		CU_ASSERT(!pbox_worker_slot_begin(peer[1].w, 1, 3, world.now));
	round_of_both();
	for (unsigned i = 0; i < WORKERS; i++) {
		CU_ASSERT_EQUAL(question(i, PBOX_WORKER_TURN, 2), PBOX_C_OK);
		CU_ASSERT(program[i].q.changed == (program[0].q.gained > 0) || i > 0);
		UNIT_EQ_U64(pbox_worker_table_nodes(peer[i].w, program[i].table), 1);
	}
	end();
}

/* A worker of 8 slots, one node, gives up the last one: what is left is more nodes than it ever had, and each has its codes. */
static void
test_gives_up_in_codes(void)
{
	struct pbox_task wish = {.round = 1, .wish = 1, .first = MOST - 1, .end = MOST};
	uint8_t payload[PBOX_TASK_MOST];
	struct rx_frame f = {.hdr = {.type = PBOX_TASK}, .payload = payload};

	begin_with(MOST, PBOX_FMT_INT8);
	f.hdr.length = (uint16_t)pbox_task_encode(payload, sizeof(payload), &wish);
	CU_ASSERT(pbox_worker_slot_begin(peer[1].w, 1, MOST / 2, world.now));
	CU_ASSERT(task_frame(peer[1].w->box[0], &f));
	CU_ASSERT(!pbox_worker_slot_begin(peer[1].w, 1, MOST - 1, world.now));
	UNIT_EQ_U64(pbox_worker_table_nodes(peer[1].w, program[1].table), 3);
	pushed.of = 1;
	submit(1, PBOX_CLIENT_PUSHPULL);
	run_for(10 * MS);
	CU_ASSERT(pushed.n >= 3);
	UNIT_EQ_U64(pushed.wide, 0);
	end();
}

/* What a worker gets within a round others may have brought: it goes in fp32, and what was its own as codes. In the next round all that it has is
 * its own. */
static void
test_gained(void)
{
	static const struct pbox_slot_range own[] = {{0, 2}}, more[] = {{0, 2}, {3, 4}};

	begin_in(PBOX_FMT_INT8);
	memset(&pushed, 0, sizeof(pushed));
	CU_ASSERT_EQUAL(pbox_worker_gain(peer[0].w, more, 2), 0);
	submit(0, PBOX_CLIENT_PUSHPULL);
	while (!program[0].done)
		step();
	/* the engine knows nothing of that slot, and refuses it */
	CU_ASSERT_EQUAL(program[0].op->code, PBOX_C_REFUSED);
	CU_ASSERT(pushed.wide > 0 && pushed.n > pushed.wide);
	UNIT_EQ_U64(pushed.node, 3);
	CU_ASSERT_EQUAL(pbox_worker_gain(peer[0].w, own, 1), 0);
	memset(&pushed, 0, sizeof(pushed));
	round_of_both();
	CU_ASSERT_EQUAL(question(0, PBOX_WORKER_TURN, 2), PBOX_C_OK);
	round_of_both();
	CU_ASSERT(pushed.n >= 2);
	UNIT_EQ_U64(pushed.wide, 0);
	end();
}

/* The box was started again (R15.8a): one worker asks about a round that all fragments have finished, and owns in the round in progress what
 * it had. It hears of that round, and goes on to have its slots in the one before. */
static void
test_round_over(void)
{
	begin();
	round_of_both();
	world_box_crash();
	world_box_start();
	for (unsigned i = 0; i < WORKERS; i++) {
		ask(i, PBOX_WORKER_WORK, 1 + i);
		program[i].q.deadline = world.now + 60 * SEC;
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		CU_ASSERT_EQUAL(reply(i), PBOX_C_OK);
		CU_ASSERT(program[i].q.changed);
		UNIT_EQ_U64(program[i].q.work.round, 1 + i);
		UNIT_EQ_U64(program[i].q.ok.now, 2);
		UNIT_EQ_U64(program[i].q.nodes, 1);
		UNIT_EQ_U64(program[i].q.ok.range[0].first, i * SLOTS / WORKERS);
	}
	UNIT_EQ_U64(program[0].q.ok.next_from, 2);
	UNIT_EQ_U64(program[0].q.ok.next_ranges, 1);
	UNIT_EQ_U64(program[0].q.ok.next_range[0].end, SLOTS / WORKERS);
	UNIT_EQ_U64(program[1].q.ok.next_from, 0);
	/* so it asks before the round in progress, and both bring that */
	CU_ASSERT_EQUAL(question(0, PBOX_WORKER_TURN, 2), PBOX_C_OK);
	CU_ASSERT(program[0].q.changed);
	round_of_both();
	end();
}

/* Nothing waits for a worker that was shut. */
static void
test_shut(void)
{
	begin();
	mute = true;
	ask(0, PBOX_WORKER_WORK, 1);
	run_for(10 * MS);
	CU_ASSERT(!program[0].replied);
	pbox_worker_shut(peer[0].w);
	CU_ASSERT(pbox_worker_replied(peer[0].w) == &program[0].q);
	CU_ASSERT_EQUAL(program[0].q.err.code, PBOX_C_CLOSED);
	pbox_worker_ask(peer[0].w, &program[0].q);
	CU_ASSERT(pbox_worker_replied(peer[0].w) == &program[0].q);
	end();
}

const struct unit_test unit_tests[] = {
	{"a round has ended", test_turns},
	{"slots that are got within a round", test_gained},
	{"a report that is wrong", test_late_report},
	{"a silent box", test_silent_box},
	{"a wrong time", test_wrong_time},
	{"steal", test_steal},
	{"what is left in codes", test_gives_up_in_codes},
	{"a round that is over", test_round_over},
	{"shut", test_shut},
	{NULL, NULL},
};
