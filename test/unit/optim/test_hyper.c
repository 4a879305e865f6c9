/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <string.h>

#include <pbox_optim.h>

#include "unit.h"

const char unit_suite[] = "optim: hyper-parameters and registry";

static void
test_defaults_are_pytorchs(void)
{
	struct pbox_hyper h;

	for (int kind = 0; kind <= PBOX_OPT_ADAMW; kind++) {
		int adam = kind == PBOX_OPT_ADAM || kind == PBOX_OPT_ADAMW;

		pbox_hyper_defaults(&h, kind);
		CU_ASSERT_EQUAL(h.has_lr, adam);
		CU_ASSERT_EQUAL(h.lr, adam ? 0.001 : 0.0);
		CU_ASSERT_EQUAL(h.weight_decay, kind == PBOX_OPT_ADAMW ? 0.01 : 0.0);
		CU_ASSERT(h.beta1 == 0.9 && h.beta2 == 0.999 && h.eps == 1e-8);
		CU_ASSERT(h.momentum == 0 && h.dampening == 0 && h.clip_value == 0);
		/* torch.optim.SGD(nesterov=True) wants a momentum too */
		CU_ASSERT((pbox_hyper_check(&h, kind) == NULL) == (kind != PBOX_OPT_NESTEROV));
	}
}

/* One bad value after the other: the message must name the hyper-parameter. */
static void
test_what_is_out_of_range_is_named(void)
{
	static const struct {
		size_t offset;
		const char *name;
		double good, bad[4];
	} cases[] = {
		{offsetof(struct pbox_hyper, lr), "lr", 0.0, {-1e-9, INFINITY, NAN, 1e39}},
		{offsetof(struct pbox_hyper, momentum), "momentum", 0.99,
			{-0.1, INFINITY, NAN, 1e39}},
		{offsetof(struct pbox_hyper, dampening), "dampening", -3.0,
			{INFINITY, -INFINITY, NAN, -1e39}},
		{offsetof(struct pbox_hyper, weight_decay), "weight_decay", 0.5,
			{-0.1, INFINITY, NAN, 1e39}},
		{offsetof(struct pbox_hyper, beta1), "beta1", 0.0, {-0.1, 1.0, NAN, INFINITY}},
		{offsetof(struct pbox_hyper, beta2), "beta2", 0.9999, {-0.1, 1.0, NAN, 2.0}},
		{offsetof(struct pbox_hyper, eps), "eps", 0.0, {-1e-9, INFINITY, NAN, 1e39}},
		{offsetof(struct pbox_hyper, clip_value), "clip_value", 1.0,
			{-1.0, INFINITY, NAN, 1e39}},
		{offsetof(struct pbox_hyper, maximize), "maximize", 1.0, {-1.0, 0.5, NAN, 2.0}},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pbox_hyper h;
		double *value = (double *)(void *)((char *)&h + cases[i].offset);

		pbox_hyper_defaults(&h, PBOX_OPT_MOMENTUM);
		*value = cases[i].good;
		CU_ASSERT_PTR_NULL(pbox_hyper_check(&h, PBOX_OPT_MOMENTUM));
		for (unsigned b = 0; b < 4; b++) {
			const char *text;

			*value = cases[i].bad[b];
			text = pbox_hyper_check(&h, PBOX_OPT_MOMENTUM);
			CU_ASSERT_PTR_NOT_NULL_FATAL(text);
			CU_ASSERT_EQUAL(strncmp(text, cases[i].name, strlen(cases[i].name)), 0);
		}
	}
}

static void
test_what_a_kind_does_not_allow(void)
{
	struct pbox_hyper h;

	pbox_hyper_defaults(&h, PBOX_OPT_NESTEROV);
	h.momentum = 0.9;
	CU_ASSERT_PTR_NULL(pbox_hyper_check(&h, PBOX_OPT_NESTEROV));
	CU_ASSERT_PTR_NULL(pbox_hyper_check(&h, PBOX_OPT_MOMENTUM));
	CU_ASSERT_PTR_NOT_NULL(pbox_hyper_check(&h, PBOX_OPT_SGD));
	h.dampening = 0.1;
	CU_ASSERT_PTR_NOT_NULL(pbox_hyper_check(&h, PBOX_OPT_NESTEROV));
	CU_ASSERT_PTR_NULL(pbox_hyper_check(&h, PBOX_OPT_MOMENTUM));
}

static void
test_scalars_are_computed_in_binary64(void)
{
	struct pbox_hyper h;
	struct pbox_optim_scalars s;

	pbox_hyper_defaults(&h, PBOX_OPT_ADAM);
	pbox_optim_scalars(&s, &h, PBOX_OPT_ADAM, 1);
	CU_ASSERT_EQUAL(s.first_step, 1);
	/* in fp32 1 - 0.999f is 0.00099998713 */
	CU_ASSERT_EQUAL(s.one_minus_beta2, 0.001f);
	CU_ASSERT_EQUAL(s.one_minus_beta1, 0.1f);
	CU_ASSERT_EQUAL(s.step_size, (float)(0.001 / (1.0 - 0.9)));
	CU_ASSERT_EQUAL(s.bias2_sqrt, (float)sqrt(1.0 - 0.999));
	pbox_optim_scalars(&s, &h, PBOX_OPT_ADAM, 3);
	CU_ASSERT_EQUAL(s.first_step, 0);
	CU_ASSERT_EQUAL(s.bias2_sqrt, (float)sqrt(1.0 - pow(0.999, 3.0)));
	pbox_optim_scalars(&s, &h, PBOX_OPT_ADAM, UINT32_MAX);
	CU_ASSERT(s.step_size == 0.001f && s.bias2_sqrt == 1.0f);

	pbox_hyper_defaults(&h, PBOX_OPT_ADAMW);
	h.clip_value = 2.5;
	pbox_optim_scalars(&s, &h, PBOX_OPT_ADAMW, 1);
	CU_ASSERT_EQUAL(s.decay, (float)(1.0 - 0.001 * 0.01));
	CU_ASSERT_EQUAL(s.weight_decay, 0.0f); /* not added to the gradient */
	CU_ASSERT_EQUAL(s.clip, 2.5f);

	pbox_hyper_defaults(&h, PBOX_OPT_MOMENTUM);
	h.lr = 0.1, h.momentum = 0.9, h.dampening = 0.3, h.weight_decay = 0.2;
	pbox_optim_scalars(&s, &h, PBOX_OPT_MOMENTUM, 2);
	CU_ASSERT(s.lr == 0.1f && s.momentum == 0.9f && s.weight_decay == 0.2f);
	CU_ASSERT_EQUAL(s.one_minus_damp, (float)(1.0 - 0.3));
}

static void
test_kinds(void)
{
	static const unsigned states[] = {0, 0, 1, 1, 2, 2};

	for (int kind = 0; kind <= PBOX_OPT_ADAMW; kind++)
		UNIT_EQ_U64(pbox_optim_states(kind), states[kind]);
	CU_ASSERT_STRING_EQUAL(pbox_optimiser_name(PBOX_OPT_NESTEROV), "nesterov");
}

static int
no(void)
{
	return 0;
}

/* The last test: what is registered stays. */
static void
test_registry(void)
{
	static const struct pbox_optim_ops cannot = {.name = "cannot", .rank = 1000, .usable = no};
	const struct pbox_optim_ops *ops;
	unsigned n = 0;

	CU_ASSERT_PTR_EQUAL(pbox_optim_at(0), &pbox_optim_scalar);
	CU_ASSERT_PTR_EQUAL(pbox_optim_select("scalar"), &pbox_optim_scalar);
	CU_ASSERT_PTR_NULL(pbox_optim_select("nonesuch"));
	pbox_optim_register(&cannot);
	CU_ASSERT_PTR_NULL(pbox_optim_select("cannot"));
	for (; (ops = pbox_optim_at(n)) != NULL; n++) {
		CU_ASSERT(!ops->usable() || ops->rank <= pbox_optim_select(NULL)->rank);
		for (unsigned k = 0; ops != &cannot && k < PBOX_OPTIMISERS_END; k++) {
			CU_ASSERT_STRING_EQUAL(ops->of[k]->name, pbox_optimiser_name(k));
			UNIT_EQ_U64(ops->of[k]->states, pbox_optim_states(k));
			CU_ASSERT((ops->of[k]->step == NULL) == (k == PBOX_OPT_NONE));
		}
	}
#ifdef __x86_64__
	CU_ASSERT_EQUAL(n, 4); /* scalar, avx2, avx512 and the one above */
#endif
}

const struct unit_test unit_tests[] = {
	{"defaults are PyTorch's", test_defaults_are_pytorchs},
	{"what is out of range is named", test_what_is_out_of_range_is_named},
	{"what a kind does not allow", test_what_a_kind_does_not_allow},
	{"scalars are computed in binary64", test_scalars_are_computed_in_binary64},
	{"kinds, states and names", test_kinds},
	{"registry", test_registry},
	{NULL, NULL},
};
