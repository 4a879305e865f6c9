/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <string.h>

#include <pbox_base.h>
#include <pbox_optim.h>

#include "unit.h"

const char unit_suite[] = "optim: steps";

#define ELEMS 257
#define ROOM  288
#define STEPS 30

#define ALIGNED __attribute__((aligned(64)))

struct state {
	float p[ROOM] ALIGNED, s0[ROOM] ALIGNED, s1[ROOM] ALIGNED;
};

/* Sets of hyper-parameters; each is tried with each kind that accepts it. */
static const struct pbox_hyper sets[] = {
	{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
	{.lr = 0.1, .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
	{.lr = 0.01,
		.momentum = 0.9,
		.dampening = 0.5,
		.weight_decay = 0.1,
		.beta1 = 0.5,
		.beta2 = 0.9,
		.eps = 1e-3},
	{.lr = 0.02,
		.momentum = 0.5,
		.weight_decay = 0.01,
		.beta1 = 0.0,
		.beta2 = 0.99,
		.eps = 1e-10},
	{.lr = 0.0, .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
	{.lr = 0.05, .weight_decay = 0.3, .dampening = 0.2, .beta1 = 0.9, .beta2 = 0.0, .eps = 1.0},
};
#define SETS (sizeof(sets) / sizeof(sets[0]))

static void
random_numbers(struct pbox_random *r, float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(pbox_random_unit(r) * 2 - 1);
}

/*
 * The formulas of the torch.optim documentation in binary64, written down once more, not in the
 * order of operations of the code under test.
 */
static void
reference(enum pbox_optimiser kind, const struct pbox_hyper *h, unsigned t, double *p, double g,
	double *s0, double *s1)
{
	if (kind == PBOX_OPT_ADD) {
		*p += h->lr * g;
		return;
	}
	if (kind == PBOX_OPT_ADAM || kind == PBOX_OPT_ADAMW) {
		if (kind == PBOX_OPT_ADAMW)
			*p -= h->lr * h->weight_decay * *p;
		else
			g += h->weight_decay * *p;
		*s0 = h->beta1 * *s0 + (1 - h->beta1) * g;
		*s1 = h->beta2 * *s1 + (1 - h->beta2) * g * g;
		*p -= h->lr * (*s0 / (1 - pow(h->beta1, t))) /
		      (sqrt(*s1 / (1 - pow(h->beta2, t))) + h->eps);
		return;
	}
	g += h->weight_decay * *p;
	if (kind != PBOX_OPT_SGD && h->momentum != 0) {
		*s0 = t == 1 ? g : h->momentum * *s0 + (1 - h->dampening) * g;
		g = kind == PBOX_OPT_NESTEROV ? g + h->momentum * *s0 : *s0;
	}
	*p -= h->lr * g;
}

static void
check_against_reference(enum pbox_optimiser kind, const struct pbox_hyper *h)
{
	static struct state s;
	static float g[ROOM] ALIGNED;
	static double p[ELEMS], s0[ELEMS], s1[ELEMS];
	struct pbox_random r;
	double worst = 0;

	pbox_random_seed(&r, 3);
	random_numbers(&r, s.p, ROOM);
	for (unsigned i = 0; i < ELEMS; i++) {
		p[i] = s.p[i];
		s0[i] = s1[i] = 0;
		s.s0[i] = s.s1[i] = NAN; /* the first step must not look at it */
	}
	for (unsigned t = 1; t <= STEPS; t++) {
		struct pbox_optim_scalars k;

		pbox_optim_scalars(&k, h, kind, t);
		random_numbers(&r, g, ROOM);
		pbox_optim_scalar.of[kind]->step(s.p, g, s.s0, s.s1, &k, ELEMS);
		for (unsigned i = 0; i < ELEMS; i++)
			reference(kind, h, t, &p[i], g[i], &s0[i], &s1[i]);
	}
	for (unsigned i = 0; i < ELEMS; i++)
		worst = fmax(worst, fabs(s.p[i] - p[i]) / fmax(fabs(p[i]), 0.1));
	if (!(worst < 2e-5)) {
		printf("\n  %s, set %d: %g from the formula\n", pbox_optimiser_name(kind),
			(int)(h - sets), worst);
		CU_FAIL("a step is not what the formula says");
	}
	CU_ASSERT_TRUE(worst < 2e-5);
}

static void
test_steps_are_the_formulas(void)
{
	for (unsigned i = 0; i < SETS; i++)
		for (int kind = PBOX_OPT_SGD; kind < PBOX_OPTIMISERS_END; kind++)
			if (pbox_hyper_check(&sets[i], kind) == NULL)
				check_against_reference(kind, &sets[i]);
}

/* Worked by hand, in numbers that fp32 holds exactly. */
static void
test_two_steps_by_hand(void)
{
	struct pbox_hyper h = {.lr = 0.5, .momentum = 0.5, .weight_decay = 1.0};
	struct pbox_optim_scalars k;
	float p[] = {4}, g[] = {2}, b[] = {99};

	pbox_optim_scalars(&k, &h, PBOX_OPT_MOMENTUM, 1);
	pbox_optim_scalar.of[PBOX_OPT_MOMENTUM]->step(p, g, b, NULL, &k, 1);
	CU_ASSERT(b[0] == 6 && p[0] == 1); /* d = 2 + 4; b = d; p = 4 - 3 */
	pbox_optim_scalars(&k, &h, PBOX_OPT_MOMENTUM, 2);
	pbox_optim_scalar.of[PBOX_OPT_MOMENTUM]->step(p, g, b, NULL, &k, 1);
	CU_ASSERT(b[0] == 6 && p[0] == -2); /* d = 2 + 1; b = 3 + 3; p = 1 - 3 */

	p[0] = 4;
	pbox_optim_scalars(&k, &h, PBOX_OPT_NESTEROV, 1);
	pbox_optim_scalar.of[PBOX_OPT_NESTEROV]->step(p, g, b, NULL, &k, 1);
	CU_ASSERT(b[0] == 6 && p[0] == -0.5f); /* d = 6 + 0.5 * 6 */
}

static void
test_without_momentum_the_buffer_is_left_alone(void)
{
	struct pbox_hyper h = {.lr = 0.5, .dampening = 0.5};
	struct pbox_optim_scalars k;

	for (unsigned j = 0; pbox_optim_at(j) != NULL; j++) {
		pbox_optim_step step = pbox_optim_at(j)->of[PBOX_OPT_MOMENTUM]->step;
		float p[] = {4}, g[] = {2}, b[] = {NAN};

		if (!pbox_optim_at(j)->usable())
			continue;
		pbox_optim_scalars(&k, &h, PBOX_OPT_MOMENTUM, 1);
		step(p, g, b, NULL, &k, 1);
		CU_ASSERT(p[0] == 3 && b[0] == 0); /* no dampening either */
		b[0] = 7;
		pbox_optim_scalars(&k, &h, PBOX_OPT_MOMENTUM, 2);
		step(p, g, b, NULL, &k, 1);
		CU_ASSERT(p[0] == 2 && b[0] == 7);
	}
}

/* Ordinary numbers, and among them zeros, subnormal and huge ones. */
static void
awkward_numbers(struct pbox_random *r, float *x, size_t n)
{
	static const float odd[] = {0.0f, -0.0f, 1e-40f, -1e-42f, 1e30f, -1e38f, 1e-30f, INFINITY};

	random_numbers(r, x, n);
	for (size_t i = 0; i < n; i += 1 + pbox_random_below(r, 9))
		x[i] = odd[pbox_random_below(r, sizeof(odd) / sizeof(odd[0]))];
}

/* x86 gives one NaN for invalid operations, so NaNs have equal bits here too. */
static void
check_alike(const struct pbox_optim_ops *ops, enum pbox_optimiser kind, const struct pbox_hyper *h,
	size_t n, uint64_t seed)
{
	static struct state want, got;
	static float g[ROOM] ALIGNED;
	struct pbox_random r;

	pbox_random_seed(&r, seed);
	awkward_numbers(&r, want.p, ROOM);
	random_numbers(&r, want.s0, ROOM);
	random_numbers(&r, want.s1, ROOM);
	got = want;
	for (unsigned t = 1; t <= 3; t++) {
		struct pbox_optim_scalars k;

		pbox_optim_scalars(&k, h, kind, t);
		awkward_numbers(&r, g, ROOM);
		pbox_optim_scalar.of[kind]->step(want.p, g, want.s0, want.s1, &k, n);
		ops->of[kind]->step(got.p, g, got.s0, got.s1, &k, n);
		if (memcmp(&want, &got, sizeof(want)) != 0) {
			printf("\n  %s %s, set %d, %zu elements, step %u\n", ops->name,
				pbox_optimiser_name(kind), (int)(h - sets), n, t);
			CU_FAIL("an implementation differs from the reference");
			return;
		}
	}
}

static void
test_every_implementation_is_alike(void)
{
	uint64_t seed = 1;

	for (unsigned j = 1; pbox_optim_at(j) != NULL; j++)
		for (int kind = PBOX_OPT_SGD; kind < PBOX_OPTIMISERS_END; kind++)
			for (unsigned i = 0; i < SETS; i++)
				for (size_t n = 0; n <= ELEMS; n++)
					if (pbox_optim_at(j)->usable())
						check_alike(pbox_optim_at(j), kind, &sets[i], n,
							seed++);
	CU_ASSERT(seed > 1 || pbox_optim_at(1) == NULL || !pbox_optim_at(1)->usable());
}

const struct unit_test unit_tests[] = {
	{"steps are the formulas of the documentation", test_steps_are_the_formulas},
	{"two steps by hand", test_two_steps_by_hand},
	{"without momentum the buffer is left alone",
		test_without_momentum_the_buffer_is_left_alone},
	{"all implementations alike: every length", test_every_implementation_is_alike},
	{NULL, NULL},
};
