/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* 2 momentum: doc/optimisers.md has the formula. State: the buffer. */

static void
momentum_scalars(struct pbox_optim_scalars *s, const struct pbox_hyper *h, double t)
{
	(void)t;
	s->momentum = (float)h->momentum;
	s->one_minus_damp = (float)(1.0 - h->dampening);
}

INLINE vec
momentum_buffer(vec b, vec d, const struct pbox_optim_scalars *k)
{
	if (k->first_step)
		return d;
	return b * all(k->momentum) + all(k->one_minus_damp) * d;
}

INLINE struct element
momentum_element(struct element e, vec g, const struct pbox_optim_scalars *k)
{
	e.s0 = momentum_buffer(e.s0, decayed(g, e.p, k), k);
	e.p = e.p - all(k->lr) * e.s0;
	return e;
}

/*
 * With momentum 0 PyTorch does not look at the buffer: the step is that of SGD. The buffer must
 * hold something all the same for the round in which momentum is switched on.
 */
INLINE void
momentum_each(float *p, const float *g, float *b, const struct pbox_optim_scalars *k, size_t elems,
	element_step step)
{
	if (k->momentum != 0.0f) {
		for_each(p, g, b, NULL, k, elems, 1, step);
		return;
	}
	if (k->first_step)
		memset(b, 0, elems * sizeof(*b));
	sgd_step(p, g, NULL, NULL, k, elems);
}

static void
momentum_step(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	(void)s1;
	momentum_each(p, g, s0, k, elems, momentum_element);
}

static const struct pbox_optim_def momentum = {
	.name = "momentum",
	.uses = OPTIM_USES(MOMENTUM) | OPTIM_USES(DAMPENING),
	.states = 1,
	.defaults = {OPTIM_DEFAULTS},
	.scalars = momentum_scalars,
	.step = momentum_step,
};
