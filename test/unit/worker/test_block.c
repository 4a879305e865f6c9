/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdlib.h>

#include <pbox_reduce.h>

#include "unit.h"

#include "peers.h"

/*
 * Tables in formats of blocks (R13.6): what workers get is what a model of the two residuals gets, also where frames get lost and
 * the box is started again. The engine is the box.
 */

const char unit_suite[] = "worker: formats of blocks";

#define WORKERS 2
static const struct pbox_client_tensor tensor[] = {{.elements = 150}, {.elements = 400}};
#define TENSORS  2
#define ELEMENTS 550
#define FRAGMENT 352 /* elements at most */

static struct program {
	struct pbox_worker_declaration declaration;
	struct pbox_client_table what;
	struct pbox_worker_op *op;
	bool done;
	float in[ELEMENTS], out[ELEMENTS];
	float residual[ELEMENTS], before[ELEMENTS],
		sent[ELEMENTS]; /* of the model; before the last round */
} program[WORKERS];
static float box_residual[ELEMENTS], value[ELEMENTS];
static uint64_t tick;
static unsigned format;
static unsigned lose_percent;
static bool refuse; /* contributions */

/* The box answers the frame with ERROR, if it is a contribution. */
static bool
is_refused(const struct packet *p)
{
	struct pbox_frame f = {0};
	uint8_t answer[PBOX_HDR_LEN];
	struct pbox_hdr h;
	size_t size;

	if (p->port == 0 ||
		pbox_frame_decode(p->data, p->len, true, &f.hdr, &size) != PBOX_WIRE_OK ||
		(f.hdr.type != PBOX_PUSHPULL && f.hdr.type != PBOX_PUSH))
		return false;
	h = pbox_engine_error(&f, f.hdr.incarnation, PBOX_E_BAD_REQUEST);
	pbox_frame_encode(answer, &h, 0);
	world_post(p->worker, 0, (uint16_t)p->port, answer, sizeof(answer));
	return true;
}

static bool
lose(const struct packet *p)
{
	return (refuse && is_refused(p)) || world_draw() % 100 < lose_percent;
}

static void
step(void)
{
	peers_step(&tick);
	for (unsigned i = 0; i < WORKERS; i++)
		for (struct pbox_worker_op *op = pbox_worker_finished(peer[i].w); op != NULL;
			op = op->next)
			program[i].done |= op == program[i].op;
}

static void
declare(unsigned i, unsigned op)
{
	struct program *p = &program[i];

	p->what = (struct pbox_client_table){.size = sizeof(p->what),
		.op = (uint8_t)op,
		.push_format = (uint8_t)format,
		.pull_format = (uint8_t)format,
		.n = TENSORS,
		.tensors = tensor};
	p->declaration = (struct pbox_worker_declaration){.what = &p->what};
	CU_ASSERT(pbox_worker_check_table(&p->what, NULL) == 0);
	pbox_worker_declare(peer[i].w, &p->declaration);
	peer[i].due = world.now;
	while (p->declaration.state == PBOX_WORKER_DECLARING && i + 1 == WORKERS)
		step();
}

static void
begin(unsigned in, unsigned op)
{
	format = in;
	lose_percent = 0;
	memset(program, 0, sizeof(program));
	memset(box_residual, 0, sizeof(box_residual));
	peers_begin(&(struct peers_conf){.workers = WORKERS, .path_known = true});
	peers_lose = lose;
	tick = world.now;
	peers_await_sessions(1, &tick);
	for (unsigned i = 0; i < WORKERS; i++)
		declare(i, op);
	while (program[0].declaration.state == PBOX_WORKER_DECLARING)
		step();
	for (unsigned i = 0; i < WORKERS; i++)
		CU_ASSERT_FATAL(program[i].declaration.state == PBOX_WORKER_DECLARED);
}

static void
end(void)
{
	peers_end();
	for (unsigned i = 0; i < WORKERS; i++)
		free(program[i].op);
}

static void
submit(unsigned i, unsigned kind, uint32_t weight)
{
	struct program *p = &program[i];
	unsigned from = 0;

	free(p->op);
	p->op = calloc(1, sizeof(*p->op) + TENSORS * sizeof(p->op->e[0]));
	CU_ASSERT_FATAL(p->op != NULL);
	p->done = false;
	*p->op = (struct pbox_worker_op){.table = p->declaration.table,
		.kind = (uint8_t)kind,
		.weight = weight,
		.n = TENSORS};
	for (unsigned k = 0; k < TENSORS; k++) {
		p->op->e[k] = (struct pbox_worker_entry){.op = p->op,
			.tensor = k,
			.in = (const uint8_t *)&p->in[from],
			.out = kind != PBOX_CLIENT_PUSH ? (uint8_t *)&p->out[from] : NULL};
		from += (unsigned)tensor[k].elements;
	}
	pbox_worker_submit(peer[i].w, p->op);
	peer[i].due = world.now;
}

static int
await(unsigned i)
{
	while (!program[i].done)
		step();
	return program[i].op->code;
}

static void
draw(unsigned i)
{
	for (unsigned k = 0; k < ELEMENTS; k++)
		program[i].in[k] =
			(float)((double)(int64_t)world_draw() * 0x1p-63) * (k % 7 == 0 ? 100 : 1);
}

/* Elements of x that the fragment has, to `to`; or, back, from there. */
static void
move(const struct frag *f, float *x, float *to, bool back)
{
	const struct pbox_worker_table *t = program[0].declaration.table;

	for (unsigned i = 0; i < f->pieces; i++) {
		const struct piece *p = &t->piece[f->piece + i];
		float *at = x + p->offset + (p->tensor > 0 ? tensor[0].elements : 0);

		memcpy(back ? at : to, back ? to : at, p->elements * sizeof(*to));
		to += p->elements;
	}
}

/* Code what is in x, fragment after fragment, with the residual; x is what the codes say. */
static void
code(float *x, float *residual)
{
	const struct pbox_worker_table *t = program[0].declaration.table;
	uint8_t payload[4 * FRAGMENT];
	float in[FRAGMENT], rest[FRAGMENT];

	for (uint32_t i = 0; i < t->frags; i++) {
		const struct frag *f = &t->frag[i];
		uint32_t n = frag_elements(t, f);

		move(f, x, in, false);
		move(f, residual, rest, false);
		pbox_reduce_scalar.encode(payload, format, in, rest, n);
		pbox_reduce_scalar.decode(in, payload, format, n);
		move(f, x, in, true);
		move(f, residual, rest, true);
	}
}

static void
model_push(unsigned i)
{
	struct program *p = &program[i];

	memcpy(p->before, p->residual, sizeof(p->before));
	memcpy(p->sent, p->in, sizeof(p->sent));
	code(p->sent, p->residual);
}

static void
model_sum(float factor)
{
	for (unsigned k = 0; k < ELEMENTS; k++) {
		value[k] = program[0].sent[k] + program[1].sent[k];
		value[k] *= factor;
	}
	code(value, box_residual);
}

static void
check(unsigned i)
{
	unsigned wrong = 0;

	for (unsigned k = 0; k < ELEMENTS; k++)
		wrong += memcmp(&program[i].out[k], &value[k], sizeof(value[k])) != 0;
	UNIT_EQ_U64(wrong, 0);
}

static void
round_of_both(void)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		draw(i);
		model_push(i);
		submit(i, PBOX_CLIENT_PUSHPULL, 1);
	}
	model_sum(program[0].what.op == PBOX_OP_MEAN ? 0.5f : 1);
	for (unsigned i = 0; i < WORKERS; i++) {
		UNIT_EQ_U64(await(i), 0);
		check(i);
	}
}

static void
test_rounds(void)
{
	static const unsigned in[] = {PBOX_FMT_INT8, PBOX_FMT_MXFP4};

	for (unsigned k = 0; k < 2; k++) {
		begin(in[k], k == 0 ? PBOX_OP_SUM : PBOX_OP_MEAN);
		for (unsigned round = 0; round < 20; round++) {
			lose_percent = round % 2 * 20;
			round_of_both();
		}
		end();
	}
}

/* Whatever is sent again is what was sent before, and the program may bring something else. */
static void
test_again(void)
{
	begin(PBOX_FMT_INT8, PBOX_OP_SUM);
	round_of_both();
	/* it is taken, and lost with the box */
	draw(0);
	model_push(0);
	submit(0, PBOX_CLIENT_PUSH, 1);
	UNIT_EQ_U64(await(0), 0);
	world_box_crash();
	world_box_start();
	memset(box_residual, 0, sizeof(box_residual));
	peers_await_sessions(2, &tick);
	for (unsigned k = 0; k < 2000; k++)
		step();
	draw(0);
	draw(1);
	model_push(1);
	model_sum(1);
	submit(0, PBOX_CLIENT_PUSHPULL, 1);
	submit(1, PBOX_CLIENT_PUSHPULL, 1);
	for (unsigned i = 0; i < WORKERS; i++) {
		UNIT_EQ_U64(await(i), 0);
		check(i);
	}
	/* what was brought then is not in the residual */
	round_of_both();
	end();
}

/* A version has one value, also where a box that was started again has it from a worker's copy. */
static void
test_restart(void)
{
	begin(PBOX_FMT_MXFP4, PBOX_OP_SUM);
	for (unsigned k = 0; k < 3; k++)
		round_of_both();
	for (unsigned k = 0; k < 4; k++) {
		world_box_crash();
		world_box_start();
		memset(box_residual, 0, sizeof(box_residual));
		peers_await_sessions(2 + k, &tick);
		for (unsigned i = 0; i < WORKERS; i++) {
			memset(program[i].out, 0, sizeof(program[i].out));
			submit(i, PBOX_CLIENT_PULL, 1);
			UNIT_EQ_U64(await(i), 0);
			check(i);
		}
		lose_percent = 10;
		round_of_both();
		round_of_both();
		lose_percent = 0;
	}
	end();
}

/* ERROR voids what was sent: the residual is what it was, and the gradient is the program's to bring again. */
static void
test_refused(void)
{
	begin(PBOX_FMT_INT8, PBOX_OP_SUM);
	round_of_both();
	draw(0);
	refuse = true;
	submit(0, PBOX_CLIENT_PUSHPULL, 1);
	UNIT_EQ_U64((unsigned)-await(0), (unsigned)-PBOX_C_REFUSED);
	refuse = false;
	round_of_both();
	round_of_both();
	end();
}

/* weighted_mean: the worker multiplies, and who brings no samples brings its residual alone. */
static void
test_weights(void)
{
	static const uint32_t weight[][WORKERS] = {{3, 5}, {0, 4}, {7, 0}, {1, 1}};

	begin(PBOX_FMT_INT8, PBOX_OP_WEIGHTED_MEAN);
	for (unsigned k = 0; k < 4; k++) {
		for (unsigned i = 0; i < WORKERS; i++) {
			struct program *p = &program[i];
			float in[ELEMENTS];

			draw(i);
			if (weight[k][i] == 0)
				p->in[3] = NAN;
			memcpy(in, p->in, sizeof(in));
			for (unsigned e = 0; e < ELEMENTS; e++)
				p->in[e] = weight[k][i] == 0 ? 0 : (float)weight[k][i] * in[e];
			model_push(i);
			memcpy(p->in, in, sizeof(in));
			submit(i, PBOX_CLIENT_PUSHPULL, weight[k][i]);
		}
		model_sum((float)(1.0 / (weight[k][0] + weight[k][1])));
		for (unsigned i = 0; i < WORKERS; i++) {
			UNIT_EQ_U64(await(i), 0);
			check(i);
		}
	}
	end();
}

/* A block that is not finite: NaN for all, and the residuals stay. */
static void
test_not_finite(void)
{
	unsigned finite = 0;

	begin(PBOX_FMT_INT8, PBOX_OP_SUM);
	round_of_both();
	for (unsigned i = 0; i < WORKERS; i++) {
		draw(i);
		program[i].in[5] = i == 0 ? INFINITY : 1;
		model_push(i);
		submit(i, PBOX_CLIENT_PUSHPULL, 1);
	}
	model_sum(1);
	for (unsigned i = 0; i < WORKERS; i++) {
		UNIT_EQ_U64(await(i), 0);
		for (unsigned k = 0; k < ELEMENTS; k++) {
			finite += !isnan(program[i].out[k]);
			CU_ASSERT(isnan(program[i].out[k]) == isnan(value[k]));
		}
	}
	UNIT_EQ_U64(finite, WORKERS * (ELEMENTS - PBOX_UNIT));
	round_of_both();
	end();
}

/* What such a table cannot be. */
static void
test_refusals(void)
{
	struct pbox_client_table d = {
		.size = sizeof(d), .push_format = PBOX_FMT_INT8, .pull_format = PBOX_FMT_FP32};
	struct pbox_client_error err;

	CU_ASSERT(pbox_worker_check_table(&d, &err) == PBOX_C_INVALID);
	CU_ASSERT(strstr(err.text, "push format int8 and pull format fp32") != NULL);
	d.pull_format = PBOX_FMT_INT8;
	d.mode = PBOX_MODE_OPTIMISER;
	d.optimiser = PBOX_OPT_SGD;
	CU_ASSERT(pbox_worker_check_table(&d, &err) == 0);
	d.hold = 1;
	CU_ASSERT(pbox_worker_check_table(&d, &err) == PBOX_C_INVALID);
	CU_ASSERT(strstr(err.text, "format int8: pushes in blocks with two phases") != NULL);
	d.hold = 0;
	d.push_format = PBOX_FMT_BF16;
	CU_ASSERT(pbox_worker_check_table(&d, &err) == 0);
	d.hold = 1;
	CU_ASSERT(pbox_worker_check_table(&d, &err) == PBOX_C_INVALID);
	CU_ASSERT(strstr(err.text, "format int8: results in blocks with two phases") != NULL);
	d.hold = 0;
	d.discipline = PBOX_DISCIPLINE_CLOCK;
	d.optimiser = PBOX_OPT_ADD;
	CU_ASSERT(pbox_worker_check_table(&d, &err) == PBOX_C_INVALID);
	CU_ASSERT(strstr(err.text, "format int8: clocks with results in blocks") != NULL);
	d.push_format = PBOX_FMT_INT8;
	d.pull_format = PBOX_FMT_BF16;
	CU_ASSERT(pbox_worker_check_table(&d, &err) == 0);
	d.discipline = PBOX_DISCIPLINE_ROUNDS;
	d.push_format = d.pull_format = 17;
	CU_ASSERT(pbox_worker_check_table(&d, &err) == PBOX_C_INVALID);
	CU_ASSERT(strstr(err.text, "int4 is one of a later release") != NULL);
}

const struct unit_test unit_tests[] = {
	{"rounds, with losses", test_rounds},
	{"what was sent goes again", test_again},
	{"restarts of the box", test_restart},
	{"a push that was refused", test_refused},
	{"weighted mean", test_weights},
	{"NaN and infinity", test_not_finite},
	{"what such a table cannot be", test_refusals},
	{NULL, NULL},
};
