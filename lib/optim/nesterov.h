/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* 3 Nesterov: doc/optimisers.md has the formula. State: the buffer of momentum.h. */

static const char *
nesterov_lacks(const struct pbox_hyper *h)
{
	return h->momentum > 0.0 && h->dampening == 0.0
		       ? NULL
		       : "nesterov needs momentum above 0 and dampening 0: set momentum and lr in one SET";
}

INLINE struct element
nesterov_element(struct element e, vec g, const struct pbox_optim_scalars *k)
{
	vec d = decayed(g, e.p, k);

	e.s0 = momentum_buffer(e.s0, d, k);
	e.p = e.p - all(k->lr) * (d + all(k->momentum) * e.s0);
	return e;
}

static void
nesterov_step(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	(void)s1;
	momentum_each(p, g, s0, k, elems, nesterov_element);
}

static const struct pbox_optim_def nesterov = {
	.name = "nesterov",
	.uses = OPTIM_USES(MOMENTUM) | OPTIM_USES(DAMPENING),
	.states = 1,
	.defaults = {OPTIM_DEFAULTS},
	.lacks = nesterov_lacks,
	.scalars = momentum_scalars,
	.step = nesterov_step,
};
