/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "unit.h"

#include "peers.h"

/*
 * Which round is next, after what the box did not take, has lost, or has finished without this worker: hyper-parameters and
 * checkpoints go by that. And whom a worker waits for. The engine is the box.
 */

const char unit_suite[] = "worker: the next round";

#define WORKERS 2
/* two fragments, and one that two tensors share with the second's end */
static const struct pbox_client_tensor tensor[] = {
	{.elements = 500}, {.elements = 3}, {.elements = 0}, {.elements = 4}};
#define TENSORS  4
#define ELEMENTS 507

static struct program {
	struct pbox_worker_declaration declaration;
	struct pbox_worker_table *table;
	struct pbox_worker_op *op[8];
	bool done[8];
	float in[ELEMENTS], out[ELEMENTS];
} program[WORKERS];
static uint64_t tick;

static void
step(void)
{
	peers_step(&tick);
	for (unsigned i = 0; i < WORKERS; i++) {
		struct pbox_worker_op *op = pbox_worker_finished(peer[i].w);

		for (; op != NULL; op = op->next)
			for (unsigned k = 0; k < 8; k++)
				program[i].done[k] |= program[i].op[k] == op;
	}
}

static uint32_t
next_round(unsigned i)
{
	bool restoring;
	uint32_t round = pbox_worker_next_round(peer[i].w, program[i].table, &restoring);

	while (restoring) {
		step();
		round = pbox_worker_next_round(peer[i].w, program[i].table, &restoring);
	}
	return round;
}

static void
declare(unsigned i, unsigned mode, uint32_t first_round)
{
	static struct pbox_client_table table[WORKERS];

	table[i] = (struct pbox_client_table){.size = sizeof(table[i]),
		.mode = (uint8_t)mode,
		.op = PBOX_OP_SUM,
		.optimiser = mode == PBOX_MODE_OPTIMISER ? PBOX_OPT_SGD : PBOX_OPT_NONE,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = TENSORS,
		.tensors = tensor,
		.first_round = first_round};
	program[i].declaration = (struct pbox_worker_declaration){.what = &table[i]};
	pbox_worker_declare(peer[i].w, &program[i].declaration);
	peer[i].due = world.now;
}

static void
begin(unsigned mode, unsigned policy)
{
	memset(program, 0, sizeof(program));
	peers_begin(&(struct peers_conf){
		.workers = WORKERS, .path_known = true, .policy = (uint8_t)policy});
	tick = world.now;
	peers_await_sessions(1, &tick);
	for (unsigned i = 0; i < WORKERS; i++)
		declare(i, mode, 0);
	for (unsigned i = 0; i < WORKERS; i++) {
		while (program[i].declaration.state == PBOX_WORKER_DECLARING)
			step();
		CU_ASSERT_FATAL(program[i].declaration.state == PBOX_WORKER_DECLARED);
		program[i].table = program[i].declaration.table;
	}
}

static void
end(void)
{
	peers_end();
	for (unsigned i = 0; i < WORKERS; i++)
		for (unsigned k = 0; k < 8; k++)
			free(program[i].op[k]);
}

/* All tensors but those from `n` on, as the worker's operation number `at`; each element brings `value`. */
static void
submit(unsigned i, unsigned at, unsigned kind, float value, unsigned n)
{
	struct program *p = &program[i];
	struct pbox_worker_op *op = calloc(1, sizeof(*op) + TENSORS * sizeof(op->e[0]));
	unsigned from = 0;

	CU_ASSERT_FATAL(op != NULL);
	free(p->op[at]);
	p->op[at] = op;
	p->done[at] = false;
	for (unsigned k = 0; k < ELEMENTS; k++)
		p->in[k] = value;
	*op = (struct pbox_worker_op){
		.table = p->table, .kind = (uint8_t)kind, .weight = 1, .n = n};
	for (unsigned k = 0; k < n; k++) {
		op->e[k] = (struct pbox_worker_entry){.op = op,
			.tensor = k,
			.in = (const uint8_t *)&p->in[from],
			.out = kind == PBOX_CLIENT_PULL || kind == PBOX_CLIENT_PUSHPULL
				       ? (uint8_t *)&p->out[from]
				       : NULL};
		from += (unsigned)tensor[k].elements;
	}
	pbox_worker_submit(peer[i].w, op);
	peer[i].due = world.now;
}

static int
await(unsigned i, unsigned at)
{
	while (!program[i].done[at])
		step();
	return program[i].op[at]->code;
}

static int
run(unsigned i, unsigned kind, float value)
{
	submit(i, 0, kind, value, TENSORS);
	return await(i, 0);
}

/* Both push, and get the result. */
static void
round_of_both(float value)
{
	for (unsigned i = 0; i < WORKERS; i++)
		submit(i, 0, PBOX_CLIENT_PUSHPULL, value, TENSORS);
	for (unsigned i = 0; i < WORKERS; i++)
		UNIT_EQ_U64(await(i, 0), 0);
}

static void
crash(void)
{
	world_box_crash();
	world_box_start();
}

/* What has been submitted counts, also before it is sent. */
static void
test_counts(void)
{
	begin(PBOX_MODE_ALLREDUCE, 0);
	UNIT_EQ_U64(next_round(0), 1);
	for (unsigned k = 0; k < 3; k++) {
		submit(0, k, PBOX_CLIENT_PUSHPULL, 1, TENSORS);
		UNIT_EQ_U64(next_round(0), k + 2);
	}
	submit(0, 3, PBOX_CLIENT_PULL, 1, TENSORS);
	UNIT_EQ_U64(next_round(0), 4);
	for (unsigned k = 0; k < 100; k++)
		step();
	UNIT_EQ_U64(next_round(0), 4);
	for (unsigned k = 0; k < 3; k++) {
		UNIT_EQ_U64(run(1, PBOX_CLIENT_PUSHPULL, 1), 0);
		UNIT_EQ_U64(next_round(1), k + 2);
	}
	UNIT_EQ_U64(await(0, 3), 0);
	UNIT_EQ_U64(next_round(0), 4);
	/* some tensors are ahead of others */
	submit(0, 0, PBOX_CLIENT_PUSH, 1, 1);
	UNIT_EQ_U64(next_round(0), 5);
	end();
}

/* A push that the box had taken is lost with it. */
static void
test_lost_push(void)
{
	begin(PBOX_MODE_OPTIMISER, 0);
	UNIT_EQ_U64(run(0, PBOX_CLIENT_INIT, 0), 0);
	peers_set_lr_from(0, 0.5, 1, &tick);
	round_of_both(1);
	UNIT_EQ_U64(next_round(0), 2);
	UNIT_EQ_U64(run(0, PBOX_CLIENT_PUSH, 1), 0);
	UNIT_EQ_U64(next_round(0), 3);
	crash();
	UNIT_EQ_U64((unsigned)-run(0, PBOX_CLIENT_PULL, 0), (unsigned)-PBOX_C_LOST);
	UNIT_EQ_U64(next_round(0), 2);
	/* the program goes on with another rate */
	peers_set_lr_from(0, 0.125, next_round(0), &tick);
	round_of_both(1);
	UNIT_EQ_U64(next_round(0), 3);
	for (unsigned i = 0; i < WORKERS; i++)
		for (unsigned k = 0; k < ELEMENTS; k++)
			CU_ASSERT_EQUAL(program[i].out[k], -2 * 0.5f - 2 * 0.125f);
	end();
}

/* Pushes that were on their way, or wait for others, are sent again: nothing is lost. */
static void
test_sent_again(void)
{
	begin(PBOX_MODE_ALLREDUCE, 0);
	round_of_both(1);
	for (unsigned k = 0; k < 2; k++)
		submit(0, k, PBOX_CLIENT_PUSHPULL, 1, TENSORS);
	for (unsigned k = 0; k < 50; k++)
		step();
	crash();
	UNIT_EQ_U64(next_round(0), 4);
	for (unsigned k = 0; k < 1000; k++) {
		step();
		UNIT_EQ_U64(next_round(0), 4);
	}
	peers_await_sessions(2, &tick);
	UNIT_EQ_U64(next_round(0), 4);
	for (unsigned k = 0; k < 2; k++)
		UNIT_EQ_U64(run(1, PBOX_CLIENT_PUSHPULL, 1), 0);
	UNIT_EQ_U64(await(0, 1), 0);
	UNIT_EQ_U64(next_round(0), 4);
	UNIT_EQ_U64(next_round(1), 4);
	end();
}

/* The box refuses a push: it is no round. */
static void
test_refused_push(void)
{
	begin(PBOX_MODE_OPTIMISER, 0);
	UNIT_EQ_U64(run(0, PBOX_CLIENT_INIT, 0), 0);
	for (unsigned k = 0; k < 3; k++) {
		UNIT_EQ_U64((unsigned)-run(0, PBOX_CLIENT_PUSHPULL, 1), (unsigned)-PBOX_C_REFUSED);
		UNIT_EQ_U64(next_round(0), 1);
	}
	submit(0, 1, PBOX_CLIENT_PUSHPULL, 1, TENSORS); /* and what comes after it is */
	submit(0, 2, PBOX_CLIENT_PUSHPULL, 1, TENSORS);
	UNIT_EQ_U64(next_round(0), 3);
	await(0, 2);
	UNIT_EQ_U64(next_round(0), 1);
	peers_set_lr_from(0, 1, next_round(0), &tick);
	round_of_both(1);
	UNIT_EQ_U64(next_round(0), 2);
	CU_ASSERT_EQUAL(program[1].out[0], -2.0f);
	end();
}

/* Rounds go on without a worker that was stopped for longer than its lease (R8.5). */
static void
test_stopped(void)
{
	uint64_t until;

	begin(PBOX_MODE_ALLREDUCE, 1);
	round_of_both(1);
	peer[1].stopped = true;
	until = world.now + 8 * SEC;
	while (world.now < until)
		step();
	for (unsigned k = 0; k < 93; k++)
		UNIT_EQ_U64(run(0, PBOX_CLIENT_PUSHPULL, 1), 0);
	UNIT_EQ_U64(next_round(0), 95);
	peer[1].stopped = false;
	until = world.now + 5 * SEC;
	while (world.now < until)
		step();
	UNIT_EQ_U64(next_round(1), 95);
	round_of_both(2);
	UNIT_EQ_U64(next_round(0), 96);
	UNIT_EQ_U64(next_round(1), 96);
	CU_ASSERT_EQUAL(program[1].out[0], 4.0f);
	end();
}

/* The session is over: what was not finished is no round. */
static void
test_after_the_end(void)
{
	begin(PBOX_MODE_ALLREDUCE, 0);
	round_of_both(1);
	submit(0, 1, PBOX_CLIENT_PUSHPULL, 1, TENSORS);
	submit(0, 2, PBOX_CLIENT_PUSHPULL, 1, TENSORS);
	for (unsigned k = 0; k < 50; k++)
		step();
	UNIT_EQ_U64(next_round(0), 4);
	pbox_worker_shut(peer[0].w);
	UNIT_EQ_U64(next_round(0), 2);
	end();
}

/* A table of 0 elements has rounds of this worker alone. A box that was started again has nothing of it to ask for: who goes by
 * the next round does not wait for one that has left. */
static void
test_no_elements(void)
{
	static const struct pbox_client_tensor none[] = {{.elements = 0}, {.elements = 0}};

	for (unsigned discipline = 0; discipline <= PBOX_DISCIPLINE_CLOCK; discipline++) {
		struct pbox_client_table table = {.size = sizeof(table),
			.mode = discipline == PBOX_DISCIPLINE_CLOCK ? PBOX_MODE_OPTIMISER
								    : PBOX_MODE_ALLREDUCE,
			.op = PBOX_OP_SUM,
			.optimiser =
				discipline == PBOX_DISCIPLINE_CLOCK ? PBOX_OPT_ADD : PBOX_OPT_NONE,
			.push_format = PBOX_FMT_FP32,
			.pull_format = PBOX_FMT_FP32,
			.n = 2,
			.tensors = none,
			.discipline = (uint8_t)discipline};
		uint64_t until;

		peers_begin(&(struct peers_conf){.workers = WORKERS, .path_known = true});
		memset(program, 0, sizeof(program));
		tick = world.now;
		peers_await_sessions(1, &tick);
		for (unsigned i = 0; i < WORKERS; i++) {
			program[i].declaration = (struct pbox_worker_declaration){.what = &table};
			pbox_worker_declare(peer[i].w, &program[i].declaration);
			peer[i].due = world.now;
		}
		for (unsigned i = 0; i < WORKERS; i++) {
			while (program[i].declaration.state == PBOX_WORKER_DECLARING)
				step();
			CU_ASSERT_FATAL(program[i].declaration.state == PBOX_WORKER_DECLARED);
			program[i].table = program[i].declaration.table;
		}
		for (unsigned i = 0; i < WORKERS; i++) {
			submit(i, 0, PBOX_CLIENT_PUSH, 1, 2);
			UNIT_EQ_U64(await(i, 0), 0);
			UNIT_EQ_U64(next_round(i), 2);
		}
		peer[1].stopped = true;
		crash();
		until = world.now + 10 * SEC;
		while (world.now < until) {
			bool restoring;

			step();
			UNIT_EQ_U64(
				pbox_worker_next_round(peer[0].w, program[0].table, &restoring), 2);
			CU_ASSERT_FALSE_FATAL(restoring);
		}
		submit(0, 0, PBOX_CLIENT_PUSH, 1, 2);
		UNIT_EQ_U64(await(0, 0), 0);
		UNIT_EQ_U64(next_round(0), 3);
		end();
	}
}

/* Worker 0 has pushed before it has given what the round begins with: it waits for itself, and the other for it. */
static void
test_waits_for_init(void)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		struct pbox_worker_wait wait;
		char text[512];

		begin(PBOX_MODE_OPTIMISER, 0);
		peers_set_lr(0, &tick);
		submit(i, 0, PBOX_CLIENT_PUSHPULL, 1, TENSORS);
		for (unsigned k = 0; k < 300; k++)
			step();
		pbox_worker_why(peer[i].w, program[i].op[0], &wait, text, sizeof(text));
		CU_ASSERT_EQUAL(wait.missing, i == 0 ? -1 : 0);
		CU_ASSERT_PTR_NOT_NULL(strstr(text, "no initial parameters"));
		CU_ASSERT_PTR_NOT_NULL(strstr(text, i == 0 ? "this worker gives" : "worker 0's"));
		end();
	}
}

const struct unit_test unit_tests[] = {
	{"pushes count when they are submitted", test_counts},
	{"a push that was lost", test_lost_push},
	{"pushes that are sent again", test_sent_again},
	{"a push that was refused", test_refused_push},
	{"rounds without a worker", test_stopped},
	{"after the end", test_after_the_end},
	{"a table of 0 elements", test_no_elements},
	{"waits for initial parameters", test_waits_for_init},
	{NULL, NULL},
};
