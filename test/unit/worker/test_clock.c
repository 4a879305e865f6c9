/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "unit.h"

#include "peers.h"

/*
 * Workers with a table in clocks, and the engine as their box. Worker i pushes 64^i to each element, so that a parameter
 * says how many pushes of each worker are in it.
 */

const char unit_suite[] = "worker: clocks with the engine";

#define TENSORS  3
#define ELEMENTS (700 + 1 + 20000) /* more fragments than the first window has */
#define OPS      400

static const struct pbox_client_tensor tensor[TENSORS] = {
	{"a", 700, 0}, {"b", 1, 0}, {"c", 20000, 0}};
static const uint32_t tensor_at[TENSORS] = {0, 700, 701};

static struct program {
	struct pbox_worker_declaration declaration;
	struct pbox_worker_table *table;
	struct pbox_worker_op *op[OPS];
	unsigned ops;
	unsigned submitted; /* pushes */
	float in[ELEMENTS], out[ELEMENTS], seen[ELEMENTS];
} program[WORLD_WORKERS];
static unsigned workers, losses; /* losses: in 100 */
static unsigned unheard;         /* in 100, of what comes to worker 0 */
static uint64_t tick;

static bool
lose(const struct packet *p)
{
	return world_draw() % 100 <
	       (p->port == 0 && p->worker == 0 && unheard > 0 ? unheard : losses);
}

static void
step(void)
{
	peers_step(&tick);
	for (unsigned i = 0; i < workers; i++)
		pbox_worker_finished(peer[i].w);
}

static struct pbox_client_table
description(void)
{
	return (struct pbox_client_table){.size = sizeof(struct pbox_client_table),
		.mode = PBOX_MODE_OPTIMISER,
		.op = PBOX_OP_SUM,
		.optimiser = PBOX_OPT_ADD,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = TENSORS,
		.tensors = tensor,
		.discipline = PBOX_DISCIPLINE_CLOCK};
}

static struct pbox_worker_op *
submit_from(unsigned i, unsigned kind, uint16_t factor, const float *in)
{
	struct program *p = &program[i];
	struct pbox_worker_op *op = calloc(1, sizeof(*op) + TENSORS * sizeof(op->e[0]));

	CU_ASSERT_FATAL(op != NULL && p->ops < OPS);
	p->op[p->ops++] = op;
	op->table = p->table;
	op->kind = (uint8_t)kind;
	op->weight = 1;
	op->factor = factor;
	op->n = TENSORS;
	for (unsigned t = 0; t < TENSORS; t++)
		op->e[t] = (struct pbox_worker_entry){.op = op,
			.tensor = t,
			.in = (const uint8_t *)&in[tensor_at[t]],
			.out = kind == PBOX_CLIENT_PULL || kind == PBOX_CLIENT_PUSHPULL
				       ? (uint8_t *)&p->out[tensor_at[t]]
				       : NULL};
	p->submitted += kind == PBOX_CLIENT_PUSH || kind == PBOX_CLIENT_PUSHPULL;
	pbox_worker_submit(peer[i].w, op);
	peer[i].due = world.now;
	return op;
}

static struct pbox_worker_op *
submit(unsigned i, unsigned kind, uint16_t factor)
{
	return submit_from(i, kind, factor, program[i].in);
}

static void
await(const struct pbox_worker_op *op)
{
	while (op->open > 0)
		step();
	UNIT_EQ_U64(op->code, 0);
}

static void
begin(unsigned n, const struct pbox_client_table *d)
{
	struct pbox_worker_op *init;

	memset(program, 0, sizeof(program));
	workers = n;
	peers_begin(&(struct peers_conf){.workers = n});
	peers_lose = lose;
	tick = world.now;
	peers_await_sessions(1, &tick);
	for (unsigned i = 0; i < n; i++) {
		program[i].declaration.what = d;
		pbox_worker_declare(peer[i].w, &program[i].declaration);
		peer[i].due = world.now;
	}
	for (unsigned i = 0; i < n; i++) {
		while (program[i].declaration.state == PBOX_WORKER_DECLARING)
			step();
		if (program[i].declaration.state != PBOX_WORKER_DECLARED)
			printf("\n  %s\n", program[i].declaration.err.text);
		CU_ASSERT_FATAL(program[i].declaration.state == PBOX_WORKER_DECLARED);
		program[i].table = program[i].declaration.table;
	}
	init = submit(0, PBOX_CLIENT_INIT, 0); /* zeros */
	await(init);
	for (unsigned i = 0; i < n; i++)
		for (unsigned e = 0; e < ELEMENTS; e++)
			program[i].in[e] = (float)(1u << 6 * i);
}

static void
end(void)
{
	peers_end();
	for (unsigned i = 0; i < workers; i++)
		for (unsigned k = 0; k < program[i].ops; k++)
			free(program[i].op[k]);
	losses = 0;
}

static unsigned
pushes_in(float x, unsigned i)
{
	return (unsigned)x >> 6 * i & 63;
}

/* What a pull brought: all own pushes, and of no worker fewer than before, or more than it has submitted. */
static void
check_pull(unsigned i)
{
	struct program *p = &program[i];
	unsigned bad = 0;

	for (unsigned e = 0; e < ELEMENTS; e++) {
		bad += pushes_in(p->out[e], i) != p->submitted;
		for (unsigned w = 0; w < workers; w++)
			bad += pushes_in(p->out[e], w) < pushes_in(p->seen[e], w) ||
			       pushes_in(p->out[e], w) > program[w].submitted;
	}
	UNIT_EQ_U64(bad, 0);
	memcpy(p->seen, p->out, sizeof(p->seen));
}

/* A pull has all own pushes, whatever is still on its way, and is no older than the one before. */
static void
test_own_pushes(void)
{
	static const unsigned lossy[] = {0, 5, 30};

	for (unsigned k = 0; k < 3; k++) {
		struct pbox_client_table d = description();
		struct pbox_worker_op *pull[3] = {NULL};
		unsigned pulls[3] = {0}, left = 3;

		begin(3, &d);
		losses = lossy[k];
		while (left > 0) {
			for (unsigned i = 0; i < 3; i++) {
				if (pulls[i] == 12 || (pull[i] != NULL && pull[i]->open > 0))
					continue;
				if (pull[i] != NULL) {
					check_pull(i);
					pulls[i]++;
				}
				if (pulls[i] == 12) {
					left--;
					continue;
				}
				/* none, one or several before each pull, which nobody waits for */
				for (unsigned n = (unsigned)(world_draw() % 4); n > 0; n--)
					submit(i, PBOX_CLIENT_PUSH, 0);
				pull[i] = submit(i, PBOX_CLIENT_PULL, 0);
			}
			step();
		}
		for (unsigned i = 0; i < 3; i++)
			for (unsigned n = 0; n < program[i].ops; n++)
				await(program[i].op[n]);
		for (unsigned i = 0; i < 3; i++) {
			await(submit(i, PBOX_CLIENT_PULL, 0));
			check_pull(i);
			for (unsigned w = 0; w < 3; w++)
				UNIT_EQ_U64(pushes_in(program[i].out[ELEMENTS - 1], w),
					program[w].submitted);
			CU_ASSERT(memcmp(program[i].out, program[0].out, sizeof(program[i].out)) ==
				  0);
		}
		end();
	}
}

static void
test_pushpull(void)
{
	struct pbox_client_table d = description();

	begin(2, &d);
	losses = 30;
	for (unsigned k = 0; k < 10; k++) {
		struct pbox_worker_op *a = submit(0, PBOX_CLIENT_PUSHPULL, 0);
		struct pbox_worker_op *b = submit(1, PBOX_CLIENT_PUSHPULL, 0);

		await(a);
		check_pull(0);
		await(b);
		check_pull(1);
	}
	end();
}

/* A factor is the same in what the box does, and in what is added to a pull; in narrow formats as well. */
static void
test_factors(void)
{
	static const uint8_t formats[] = {PBOX_FMT_FP32, PBOX_FMT_BF16, PBOX_FMT_FP16};

	for (unsigned k = 0; k < 3; k++) {
		struct pbox_client_table d = description();
		uint16_t half = pbox_worker_factor_code(0.5f);
		struct pbox_worker_op *pull;
		float first, second;

		CU_ASSERT(half == 0x3F00 && pbox_worker_factor(half) == 0.5f);
		d.push_format = d.pull_format = formats[k];
		begin(1, &d);
		for (unsigned e = 0; e < ELEMENTS; e++) {
			uint16_t x = half_narrow(3.25f, formats[k]);

			if (formats[k] == PBOX_FMT_FP32)
				program[0].in[e] = 3.25f;
			else
				memcpy((uint8_t *)program[0].in + 2 * e, &x, 2);
		}
		submit(0, PBOX_CLIENT_PUSH, half);
		pull = submit(0, PBOX_CLIENT_PULL, 0);
		await(pull);
		if (formats[k] == PBOX_FMT_FP32) {
			first = program[0].out[5];
		} else {
			uint16_t x;

			memcpy(&x, (uint8_t *)program[0].out + 10, 2);
			first = half_widen(x, formats[k]);
		}
		CU_ASSERT(first == 1.625f);
		await(submit(0, PBOX_CLIENT_PULL, 0));
		if (formats[k] == PBOX_FMT_FP32) {
			second = program[0].out[5];
		} else {
			uint16_t x;

			memcpy(&x, (uint8_t *)program[0].out + 10, 2);
			second = half_widen(x, formats[k]);
		}
		CU_ASSERT(second == 1.625f);
		end();
	}
}

static void
test_versions(void)
{
	struct pbox_client_table d = description();
	struct pbox_client_versions v;

	begin(2, &d);
	CU_ASSERT_FALSE(pbox_worker_versions(program[0].table, TENSORS, &v));
	CU_ASSERT_TRUE(pbox_worker_versions(program[0].table, 0, &v));
	UNIT_EQ_U64(v.pulls, 0);
	await(submit(0, PBOX_CLIENT_PULL, 0));
	await(submit(0, PBOX_CLIENT_PUSH, 0));
	for (unsigned k = 0; k < 3; k++)
		await(submit(1, PBOX_CLIENT_PUSH, 0));
	await(submit(0, PBOX_CLIENT_PULL, 0));
	for (uint32_t t = 0; t <= TENSORS; t++) {
		CU_ASSERT_TRUE(pbox_worker_versions(
			program[0].table, t < TENSORS ? t : PBOX_CLIENT_ALL_TENSORS, &v));
		UNIT_EQ_U64(v.pulls, 2);
		CU_ASSERT(v.version == 4 && v.others == 3);
		UNIT_EQ_U64(v.lowest, 4);
		UNIT_EQ_U64(v.highest, 4);
		UNIT_EQ_U64(v.own, 1);
		UNIT_EQ_U64(v.own_seen, 1);
		UNIT_EQ_U64(v.slowest, 1);
		UNIT_EQ_U64(v.members, 2);
	}
	end();
}

/* A box that is started again gets all pushes once, whatever it had of them, and whatever each worker has pulled. */
static void
test_restarted_box(void)
{
	static const unsigned lossy[] = {0, 20};
	uint64_t redone = 0;

	for (unsigned k = 0; k < 2; k++) {
		struct pbox_client_table d = description();
		struct pbox_client_stats m;

		begin(3, &d);
		losses = lossy[k];
		for (unsigned crash = 0; crash < 6; crash++) {
			for (unsigned i = 0; i < 3; i++) {
				for (unsigned n = (unsigned)(world_draw() % 7); n > 0; n--)
					submit(i, PBOX_CLIENT_PUSH, 0);
				if (world_draw() % 2 == 0)
					submit(i, PBOX_CLIENT_PULL, 0);
			}
			for (uint64_t to = world.now + world_draw() % 4000 * 1000000;
				world.now < to;)
				step();
			world_box_crash();
			world_box_start();
		}
		losses = 0;
		for (unsigned i = 0; i < 3; i++)
			for (unsigned n = 0; n < program[i].ops; n++)
				await(program[i].op[n]);
		for (unsigned i = 0; i < 3; i++)
			do
				step();
			while (pbox_worker_owes(peer[i].w));
		for (unsigned i = 0; i < 3; i++) {
			await(submit(i, PBOX_CLIENT_PULL, 0));
			check_pull(i);
			for (unsigned w = 0; w < 3; w++)
				UNIT_EQ_U64(pushes_in(program[i].out[ELEMENTS - 1], w),
					program[w].submitted);
			CU_ASSERT(memcmp(program[i].out, program[0].out, sizeof(program[i].out)) ==
				  0);
			m.size = sizeof(m);
			pbox_worker_stats(peer[i].w, &m);
			UNIT_EQ_U64(m.lost_pushes, 0);
			redone += m.redone_pushes;
		}
		end();
	}
	CU_ASSERT(redone > 0);
}

/*
 * A push fails when parts of it are on their way, and the box is started again. Nobody knows which parts have counted; the pushes after it
 * count once each, whatever.
 */
static void
test_failed_push_and_restart(void)
{
	struct pbox_client_table d = description();
	static float in[ELEMENTS];
	unsigned failed = 0, parts = 0, bad = 0;

	for (unsigned e = 0; e < ELEMENTS; e++)
		in[e] = (float)(1u << 12);
	begin(2, &d);
	for (unsigned crash = 0; crash < 20; crash++) {
		struct pbox_worker_op *op, *pull;

		unheard = 20 + 20 * (crash % 4);
		if (world_draw() % 2 == 0)
			submit(0, PBOX_CLIENT_PUSH, 0);
		op = submit_from(0, PBOX_CLIENT_PUSH, 0, in);
		submit(0, PBOX_CLIENT_PUSH, 0);
		submit(1, PBOX_CLIENT_PUSH, 0);
		program[0].submitted--;
		for (uint64_t to = world.now + world_draw() % 60 * 1000000; world.now < to;)
			step();
		pull = submit(1, PBOX_CLIENT_PULL, 0);
		if (op->open > 0) {
			queue_fail(op, PBOX_C_REFUSED, "as another fragment of it was");
			failed++;
		} else {
			parts++;
		}
		await(pull);
		world_box_crash();
		world_box_start();
		unheard = 0;
		for (unsigned n = 0; n < program[0].ops; n++)
			while (program[0].op[n]->open > 0)
				step();
	}
	for (unsigned n = 0; n < program[1].ops; n++)
		await(program[1].op[n]);
	for (unsigned i = 0; i < 2; i++)
		await(submit(i, PBOX_CLIENT_PULL, 0));
	CU_ASSERT(failed > 4);
	for (unsigned e = 0; e < ELEMENTS; e++) {
		for (unsigned w = 0; w < 2; w++)
			bad += pushes_in(program[0].out[e], w) != program[w].submitted;
		bad += pushes_in(program[0].out[e], 2) < parts ||
		       pushes_in(program[0].out[e], 2) > parts + failed;
	}
	UNIT_EQ_U64(bad, 0);
	end();
}

/* One that goes on does not know which of its number's pushes the box has had. */
static void
test_going_on(void)
{
	struct pbox_client_table d = description();
	struct pbox_worker_op *push;

	d.first_round = PBOX_CLIENT_ROUND_ANY;
	begin(1, &d);
	push = submit(0, PBOX_CLIENT_PUSH, 0);
	while (push->open > 0)
		step();
	UNIT_EQ_U64(push->code, PBOX_C_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(push->text, "before its first pull"));
	await(submit(0, PBOX_CLIENT_PULL, 0));
	await(submit(0, PBOX_CLIENT_PUSH, 0));
	end();
}

static void
test_checks(void)
{
	struct pbox_client_table d = description();
	struct pbox_client_error err;

	UNIT_EQ_U64(pbox_worker_check_table(&d, &err), 0);
	d.op = PBOX_OP_MEAN;
	UNIT_EQ_U64(pbox_worker_check_table(&d, &err), PBOX_C_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "takes op sum and optimiser add"));
	d = description();
	d.optimiser = PBOX_OPT_ADAM;
	UNIT_EQ_U64(pbox_worker_check_table(&d, &err), PBOX_C_INVALID);
	d = description();
	d.discipline = PBOX_DISCIPLINE_TURN;
	UNIT_EQ_U64(pbox_worker_check_table(&d, &err), PBOX_C_INVALID);
}

const struct unit_test unit_tests[] = {
	{"a pull has all own pushes", test_own_pushes},
	{"pushpull", test_pushpull},
	{"factors and narrow formats", test_factors},
	{"versions", test_versions},
	{"a restarted box", test_restarted_box},
	{"a push fails, and the box is started again", test_failed_push_and_restart},
	{"going on in a run", test_going_on},
	{"checks", test_checks},
	{NULL, NULL},
};
