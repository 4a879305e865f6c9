/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * pbox-perf's own codec of formats of blocks against that of lib/reduce, and its replica against workers and a box that are
 * made of lib/reduce here: right ones, and such as err in one thing. Each of these must be found.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_base.h>
#include <pbox_reduce.h>

#include "perf.h"
#include "unit.h"

const char unit_suite[] = "pbox-perf: formats of blocks";

#define LENGTHS  300
#define FRAGMENT 352
#define WORKERS  5
#define ROUNDS   12
#define MOST     16384

static const unsigned formats[] = {PBOX_FMT_INT8, PBOX_FMT_MXFP4};

/* ---- the codec -------------------------------------------------------------------------------- */

static float
from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

/* Numbers of all kinds: of one magnitude, of all, in the middle between codes, none. */
static float
any(struct pbox_random *r, unsigned kind)
{
	float u = (float)pbox_random_unit(r) * 2 - 1;

	switch (kind) {
	case 0:
		return u;
	case 1:
		return ldexpf(u, (int)(pbox_random_u64(r) % 20) - 10);
	case 2: /* middles, of a scale of 1 */
		return (float)((int)(pbox_random_u64(r) % 49) - 24) / 4;
	case 3: /* about the least that has a code, and subnormal */
		return ldexpf(u, -99 - (int)(pbox_random_u64(r) % 50));
	case 4: /* about the largest */
		return ldexpf(u, 126 + (int)(pbox_random_u64(r) % 2));
	default:
		return pbox_random_u64(r) % 40 == 0 ? from_bits((uint32_t)pbox_random_u64(r)) : u;
	}
}

static void
test_codec(void)
{
	float in[LENGTHS], own[LENGTHS], want[LENGTHS], kept[LENGTHS], left[LENGTHS];
	uint8_t codes[2 * LENGTHS];
	struct pbox_random r;

	pbox_random_seed(&r, 53);
	for (unsigned f = 0; f < LENGTH(formats); f++)
		for (unsigned n = 0; n < 6 * LENGTHS; n++) {
			unsigned wrong = 0, m = n % LENGTHS;

			for (unsigned i = 0; i < m; i++) {
				in[i] = any(&r, n / LENGTHS);
				kept[i] = left[i] = any(&r, n / LENGTHS) * 0x1p-6f;
			}
			memcpy(own, in, sizeof(own));
			block_pass(formats[f], own, left, m);
			pbox_reduce_scalar.encode(codes, formats[f], in, kept, m);
			pbox_reduce_scalar.decode(want, codes, formats[f], m);
			for (unsigned i = 0; i < m; i++)
				wrong += (memcmp(&own[i], &want[i], 4) != 0 &&
						 !(isnan(own[i]) && isnan(want[i]))) ||
					 memcmp(&left[i], &kept[i], 4) != 0;
			UNIT_EQ_U64(wrong, 0);
		}
}

/* ---- the replica ------------------------------------------------------------------------------- */

/* What a box, or a worker, does wrong. */
enum error {
	RIGHT,
	WORKER_FORGETS,    /* worker 3 has no residual */
	WORKER_TWICE,      /* its residual is updated again by a repetition, in round 4 */
	WORKER_GIVES_BACK, /* and so, the gradient is added to the residual */
	BOX_FORGETS,       /* the box has no residual */
	BOX_SUM,           /* it answers what the sum is, not what its codes are */
	BOX_RESTARTS,      /* its residual is 0 in round 6 */
	OTHER_FORMAT,      /* worker 1 sends the other format */
	NO_FRAGMENTS,      /* units go on from one fragment to the next */
	LEFT_OUT,          /* worker 2 is left out in round 5 */
	ONE_BIT,           /* of the last element of the last round */
	ERRORS
};

struct play {
	enum error error;
	unsigned format, op;
	const uint32_t *fragment; /* elements of each; they end with 0 */
	uint64_t at[64];          /* where the elements of each begin in the program's order */
	float up[WORKERS][MOST], down[MOST];
};

/* A fragment of what worker w pushes, as its payload decodes to. */
static void
played_worker(struct play *p, const struct options *o, unsigned w, unsigned round, uint64_t at,
	unsigned n, float *value)
{
	struct pbox_client_node node = {(uint16_t)w, 1};
	unsigned format = p->format;
	float in[FRAGMENT], *residual = p->up[w] + at;
	uint8_t codes[2 * FRAGMENT];

	data_fill(o, node, round, at, n, in);
	for (unsigned i = 0; o->op == PBOX_OP_WEIGHTED_MEAN && i < n; i++)
		in[i] *= (float)data_weight(o, node, round);
	if (p->error == OTHER_FORMAT && w == 1)
		format = format == PBOX_FMT_INT8 ? PBOX_FMT_MXFP4 : PBOX_FMT_INT8;
	pbox_reduce_scalar.encode(
		codes, format, in, p->error == WORKER_FORGETS && w == 3 ? NULL : residual, n);
	pbox_reduce_scalar.decode(value, codes, format, n);
	if (round == 4 && w == 3 && p->error == WORKER_TWICE)
		pbox_reduce_scalar.encode(codes, format, in, residual, n);
	for (unsigned i = 0; round == 4 && w == 3 && p->error == WORKER_GIVES_BACK && i < n; i++)
		residual[i] += in[i];
}

static void
played_fragment(struct play *p, const struct options *o, unsigned round, uint64_t at, unsigned n,
	float *out)
{
	float value[WORKERS][FRAGMENT], sum[FRAGMENT];
	const void *src[WORKERS];
	struct pbox_sources s = {.src = src, .n = WORKERS, .elem = PBOX_FMT_FP32};
	uint8_t codes[2 * FRAGMENT];
	double by = 0;

	for (unsigned w = 0; w < WORKERS; w++) {
		struct pbox_client_node node = {(uint16_t)w, 1};

		played_worker(p, o, w, round, at, n, value[w]);
		src[w] = p->error == LEFT_OUT && round == 5 && w == 2
				 ? (const void *)pbox_reduce_absent
				 : value[w];
		by += o->op == PBOX_OP_MEAN ? 1 : data_weight(o, node, round);
	}
	pbox_reduce_scalar.sum(sum, &s, 0, n);
	if (o->op != PBOX_OP_SUM)
		pbox_reduce_scalar.scale(sum, (float)(1.0 / by), 0, n);
	if (p->error == BOX_RESTARTS && round == 6)
		memset(p->down + at, 0, n * sizeof(float));
	pbox_reduce_scalar.encode(
		codes, p->format, sum, p->error == BOX_FORGETS ? NULL : p->down + at, n);
	pbox_reduce_scalar.decode(out, codes, p->format, n);
	if (p->error == BOX_SUM)
		memcpy(out, sum, n * sizeof(float));
}

/* Wrong elements that the replica has found in all rounds. */
static uint64_t
play(enum error error, unsigned format, unsigned op, const uint32_t *tensors,
	const uint32_t *fragments)
{
	static struct play p;
	static float got[MOST];
	struct options o = {.workers = WORKERS,
		.op = op,
		.push_format = format,
		.pull_format = format,
		.seed = 7};
	struct model m = {0};
	struct pbox_client_tensor tensor[16] = {{0}};
	uint64_t first[16], wrong = 0, bad;
	struct reference r;
	double off = 0;
	char err[256];

	p = (struct play){.error = error, .format = format, .op = op};
	m.tensor = tensor;
	m.first = first;
	for (; tensors[m.n] != 0; m.n++) {
		tensor[m.n].elements = tensors[m.n];
		first[m.n] = m.elements;
		m.elements += tensors[m.n];
	}
	CU_ASSERT_FATAL(reference_open(&r, &o, m.elements) == 0);
	CU_ASSERT_FATAL(blocks_cut(&r.blocks, &m, FRAGMENT, err, sizeof(err)) == 0);
	for (unsigned round = 1; round <= ROUNDS; round++) {
		uint64_t at = 0;

		for (unsigned k = 0; fragments[k] != 0; at += fragments[k++])
			played_fragment(&p, &o, round, at, fragments[k], got + at);
		UNIT_EQ_U64(at, m.elements);
		if (error == ONE_BIT && round == ROUNDS)
			((uint8_t *)&got[m.elements - 1])[0] ^= 1;
		for (unsigned part = 0; part < 3; part++)
			reference_round(&r, round, round, part, 3);
		wrong += reference_compare(&r, got, 0, m.elements, &bad, &off);
	}
	reference_close(&r);
	return wrong;
}

/* The rest of each tensor is a fragment of its own; the two small ones share theirs, and are neighbours here. */
static const uint32_t tensors[] = {5000, 100, 300, 3001, 0};
static const uint32_t cut[] = {352, 352, 352, 352, 352, 352, 352, 352, 352, 352, 352, 352, 352, 352,
	72, 352, 48, 352, 352, 352, 352, 352, 352, 352, 352, 185, 0};
static const uint32_t one[] = {352, 352, 352, 352, 352, 352, 352, 352, 352, 352, 352, 352, 352, 352,
	352, 352, 352, 352, 352, 352, 352, 352, 352, 305, 0};

static void
test_right(void)
{
	static const unsigned ops[] = {
		PBOX_OP_SUM, PBOX_OP_MEAN, PBOX_OP_SAMPLE_MEAN, PBOX_OP_WEIGHTED_MEAN};

	for (unsigned f = 0; f < LENGTH(formats); f++)
		for (unsigned i = 0; i < LENGTH(ops); i++)
			UNIT_EQ_U64(play(RIGHT, formats[f], ops[i], tensors, cut), 0);
}

static void
test_found(void)
{
	for (unsigned f = 0; f < LENGTH(formats); f++)
		for (enum error e = RIGHT + 1; e < ERRORS; e++) {
			uint64_t wrong = play(e, formats[f], PBOX_OP_MEAN, tensors,
				e == NO_FRAGMENTS ? one : cut);

			CU_ASSERT(wrong > 0);
			if (e == ONE_BIT)
				UNIT_EQ_U64(wrong, 1);
		}
}

/* Small tensors that are no neighbours share fragments as well; with too many of them it depends on the box. */
static void
test_cut(void)
{
	struct pbox_client_tensor tensor[80] = {{0}};
	uint64_t first[80];
	struct model m = {.tensor = tensor, .first = first};
	struct blocks b = {0};
	char err[256] = "";

	for (unsigned i = 0; i < 64; i++, m.n++) {
		tensor[i].elements = i == 30 ? FRAGMENT : 10 + i;
		first[i] = m.elements;
		m.elements += tensor[i].elements;
	}
	CU_ASSERT_FATAL(blocks_cut(&b, &m, FRAGMENT, err, sizeof(err)) == 0);
	UNIT_EQ_U64(b.n_packed, m.elements - FRAGMENT);
	UNIT_EQ_U64(b.packed[first[30] - 1], first[30] - 1);
	UNIT_EQ_U64(b.packed[first[30]], first[31]);
	free(b.packed);
	for (unsigned i = 64; i < 67; i++, m.n++)
		tensor[i].elements = 5, first[i] = m.elements++;
	CU_ASSERT(blocks_cut(&b, &m, FRAGMENT, err, sizeof(err)) == -1);
	CU_ASSERT(strstr(err, "66 tensors are smaller than a fragment of 352") != NULL);
}

const struct unit_test unit_tests[] = {
	{"the codec is that of lib/reduce", test_codec},
	{"right workers and a right box", test_right},
	{"what errs in one thing is found", test_found},
	{"where fragments begin", test_cut},
	{NULL, NULL},
};
