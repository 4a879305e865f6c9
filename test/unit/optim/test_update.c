/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <string.h>

#include <pbox_base.h>
#include <pbox_optim.h>

#include "unit.h"

const char unit_suite[] = "optim: the fused update";

#define ROOM    4224
#define WORKERS 9
#define HEADER  62
#define ALIGNED __attribute__((aligned(64)))

struct fragment {
	float p[ROOM] ALIGNED, s0[ROOM] ALIGNED, s1[ROOM] ALIGNED, x[ROOM] ALIGNED;
	uint8_t wire[ROOM * 4];
};

static struct fragment want, got;
static uint8_t payloads[WORKERS][ROOM * 4 + 128];
static float left[ROOM] ALIGNED, right[ROOM] ALIGNED, gradient[ROOM] ALIGNED, scratch[ROOM] ALIGNED;
static const void *src[WORKERS];
static const float *const acc[] = {left, right};
static const float weight[WORKERS] = {1, 2, 3, 4, 5, 60, 7, 8, 9};

static float
number(struct pbox_random *r)
{
	return (float)(pbox_random_unit(r) * 2 - 1);
}

static void
make_inputs(struct pbox_random *r, enum pbox_format elem)
{
	for (unsigned k = 0; k < WORKERS; k++) {
		uint8_t *p = payloads[k] + HEADER + k * 6;

		for (size_t i = 0; i < ROOM; i++) {
			float x = number(r);

			pbox_reduce_scalar.pack(p + i * pbox_format_size(elem), elem, &x, 1);
		}
		src[k] = pbox_random_below(r, 5) ? p : NULL;
	}
	memset(&want, 0, sizeof(want));
	for (size_t i = 0; i < ROOM; i++) {
		want.p[i] = number(r);
		want.s0[i] = number(r);
		want.s1[i] = fabsf(number(r));
		want.x[i] = number(r);
		left[i] = number(r);
		right[i] = number(r);
	}
	got = want;
}

/* Step by step over the whole fragment, with the scalar kernels. */
static void
naive(const struct pbox_update *u, const struct pbox_sources *s, size_t n)
{
	float *g = u->kind == PBOX_OPT_NONE ? want.p : gradient;

	for (size_t i = 0; i < n; i++) {
		pbox_reduce_scalar.sum(&g[i], s, i, 1);
		g[i] = g[i] * u->factor;
		if (u->clip > 0)
			g[i] = g[i] < -u->clip ? -u->clip : g[i] > u->clip ? u->clip : g[i];
	}
	if (u->kind != PBOX_OPT_NONE)
		pbox_optim_scalar.of[u->kind]->step(want.p, g, want.s0, want.s1, u->k, n);
	if (u->replica != NULL) { /* R13.7 */
		for (size_t i = 0; i < n; i++)
			gradient[i] = want.p[i] - want.x[i];
		pbox_reduce_scalar.encode(want.wire, u->wire_elem, gradient, NULL, n);
		pbox_reduce_scalar.decode(gradient, want.wire, u->wire_elem, n);
		for (size_t i = 0; i < n; i++)
			want.x[i] = want.x[i] + gradient[i];
	} else if (u->wire != NULL) {
		pbox_reduce_scalar.pack(want.wire, u->wire_elem, want.p, n);
	}
}

static uint32_t
crc_of_answer(const struct pbox_update *u, const struct fragment *f, size_t n)
{
	return u->wire == NULL
		       ? pbox_reduce_crc32c(0, f->p, n * 4)
		       : pbox_reduce_crc32c(0, f->wire, pbox_payload_bytes(u->wire_elem, n));
}

static void
seal(const struct pbox_sources *s, size_t bytes)
{
	for (unsigned k = 0; k < s->n; k++) {
		uint8_t *p = (uint8_t *)(uintptr_t)s->src[k];
		uint32_t crc;

		if (p == NULL)
			continue;
		crc = pbox_reduce_crc32c(
			pbox_reduce_crc32c(0, p, bytes), p - HEADER, HEADER - sizeof(crc));
		memcpy(p - sizeof(crc), &crc, sizeof(crc));
	}
}

static bool
damage_any(const struct pbox_sources *s)
{
	for (unsigned k = 0; k < s->n; k++)
		if (s->src[k] != NULL) {
			*((uint8_t *)(uintptr_t)s->src[k] - HEADER) ^= 4;
			return true;
		}
	return false;
}

/* With contributions that are checked while they are summed: refused once, then accepted. */
static bool
update_checked(struct pbox_update *u, struct pbox_sources *s, size_t n)
{
	static struct fragment before;
	uint32_t *answer = u->answer_crc;
	bool intact = true;

	before = got;
	u->scratch = scratch;
	*answer = 77;
	s->intact = &intact;
	s->header = HEADER;
	seal(s, n * pbox_format_size(s->elem));
	if (!damage_any(s))
		return pbox_optim_update(u, s, n);
	if (pbox_optim_update(u, s, n) || *answer != 77 || memcmp(&before, &got, sizeof(got)) != 0)
		CU_FAIL("refused contributions changed something");
	CU_ASSERT_FALSE(intact);
	damage_any(s);
	return pbox_optim_update(u, s, n);
}

static void
check(const struct pbox_reduce_ops *reduce, const struct pbox_optim_ops *optim, unsigned turn,
	bool checked)
{
	uint32_t answer = 0;
	static const size_t lengths[] = {0, 1, 15, 352, 1151, 1152, 1153, 2048, 2304, 4200};
	struct pbox_hyper h = {.lr = 0.1,
		.momentum = 0.9,
		.weight_decay = 0.01,
		.beta1 = 0.9,
		.beta2 = 0.999,
		.eps = 1e-8,
		.clip_value = turn / 2 % 2 ? 0.2 : 0};
	struct pbox_sources s = {
		.src = src,
		.weight = turn % 4 == 3 ? weight : NULL,
		.n = 1 + turn % WORKERS,
		.elem = 1 + turn % 3,
		.acc = acc,
		.n_acc = turn / 5 % 2 ? 2 : 0,
		.base = turn / 5 % 2 ? 6 : 0,
	};
	struct pbox_update u = {
		.reduce = reduce, .optim = optim, .kind = turn % PBOX_OPTIMISERS_END};
	size_t n = lengths[turn / 3 % 10];
	bool codes = false;
	struct pbox_optim_scalars k;
	struct pbox_random r;

	pbox_random_seed(&r, turn);
	make_inputs(&r, s.elem);
	pbox_optim_scalars(&k, &h, u.kind, 1 + turn % 2);
	u.k = u.kind == PBOX_OPT_NONE ? NULL : &k;
	u.factor = turn % 7 < 2 ? 1.0f : 1.0f / 3;
	u.clip = k.clip;
	u.param = got.p;
	u.s0 = pbox_optim_states(u.kind) > 0 ? got.s0 : NULL;
	u.s1 = pbox_optim_states(u.kind) > 1 ? got.s1 : NULL;
	u.wire = turn / 6 % 4 ? got.wire : NULL;
	u.wire_elem = 1 + turn / 7 % 3;
	if (turn % 5 == 2 && u.kind != PBOX_OPT_NONE) {
		u.wire = got.wire;
		u.wire_elem = turn / 5 % 2 ? PBOX_FMT_INT8 : PBOX_FMT_MXFP4;
		u.replica = got.x;
		u.codes = &codes;
	}
	naive(&u, &s, n);
	u.answer_crc = checked || turn % 3 ? &answer : NULL;
	s.next = src;
	s.n_next = s.n;
	CU_ASSERT_TRUE(checked ? update_checked(&u, &s, n) : pbox_optim_update(&u, &s, n));
	CU_ASSERT(codes == (u.replica != NULL));
	if (u.answer_crc != NULL)
		UNIT_EQ_U64(answer, crc_of_answer(&u, &want, n));
	if (memcmp(&want, &got, sizeof(want)) != 0) {
		printf("\n  %s: turn %u, checked %d\n", reduce->name, turn, checked);
		CU_FAIL("the fused update is not the separate steps");
	}
}

static void
fused_equals_naive(bool checked)
{
	for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++) {
		const struct pbox_optim_ops *optim = pbox_optim_select(pbox_reduce_at(j)->name);

		for (unsigned turn = 0; turn < 1000; turn++)
			if (pbox_reduce_at(j)->usable())
				check(pbox_reduce_at(j), optim ? optim : &pbox_optim_scalar, turn,
					checked);
	}
}

static void
test_fused_equals_naive(void)
{
	fused_equals_naive(false);
}

static void
test_checked_equals_naive(void)
{
	fused_equals_naive(true);
}

/* All-reduce of a fragment whose first contributions were folded into param itself. */
static void
test_folded_in_place(void)
{
	struct pbox_sources all = {src, NULL, WORKERS, PBOX_FMT_FP32, NULL};
	struct pbox_update u = {
		.reduce = pbox_reduce_select(NULL), .factor = 0.25f, .param = got.p};
	const float *const sum[] = {got.p};
	struct pbox_random r;

	pbox_random_seed(&r, 5);
	make_inputs(&r, PBOX_FMT_FP32);
	for (unsigned folded = 1; folded <= WORKERS; folded *= 2) {
		struct pbox_sources first = {src, NULL, folded, PBOX_FMT_FP32, NULL},
				    rest = {src + folded, NULL, WORKERS - folded, PBOX_FMT_FP32,
					    NULL, sum, 1, folded};

		u.param = want.p;
		pbox_optim_update(&u, &all, 3000);
		u.param = got.p;
		u.reduce->sum(got.p, &first, 0, 3000);
		pbox_optim_update(&u, &rest, 3000);
		CU_ASSERT_EQUAL(memcmp(&want, &got, sizeof(want)), 0);
	}
}

const struct unit_test unit_tests[] = {
	{"the fused update is sum, scale, clip, step and pack", test_fused_equals_naive},
	{"the same with contributions checked on the way", test_checked_equals_naive},
	{"contributions folded in place", test_folded_in_place},
	{NULL, NULL},
};
