/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* 4 Adam: doc/optimisers.md has the formula. State: both moments. */

static void
adam_scalars(struct pbox_optim_scalars *s, const struct pbox_hyper *h, double t)
{
	s->beta1 = (float)h->beta1;
	s->beta2 = (float)h->beta2;
	s->one_minus_beta1 = (float)(1.0 - h->beta1);
	s->one_minus_beta2 = (float)(1.0 - h->beta2);
	s->step_size = (float)(h->lr / (1.0 - pow(h->beta1, t)));
	s->bias2_sqrt = (float)sqrt(1.0 - pow(h->beta2, t));
	s->eps = (float)h->eps;
}

INLINE struct element
adam_moments(struct element e, vec d, const struct pbox_optim_scalars *k)
{
	e.s0 = e.s0 * all(k->beta1) + all(k->one_minus_beta1) * d;
	e.s1 = e.s1 * all(k->beta2) + all(k->one_minus_beta2) * d * d;
	e.p = e.p - all(k->step_size) * e.s0 / (root(e.s1) / all(k->bias2_sqrt) + all(k->eps));
	return e;
}

INLINE struct element
adam_element(struct element e, vec g, const struct pbox_optim_scalars *k)
{
	return adam_moments(e, decayed(g, e.p, k), k);
}

INLINE void
adam_each(float *p, const float *g, float *m, float *v, const struct pbox_optim_scalars *k,
	size_t elems, element_step step)
{
	if (k->first_step) {
		memset(m, 0, elems * sizeof(*m));
		memset(v, 0, elems * sizeof(*v));
	}
	for_each(p, g, m, v, k, elems, 2, step);
}

static void
adam_step(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	adam_each(p, g, s0, s1, k, elems, adam_element);
}

static const struct pbox_optim_def adam = {
	.name = "adam",
	.uses = OPTIM_USES(BETA1) | OPTIM_USES(BETA2) | OPTIM_USES(EPS),
	.states = 2,
	.defaults = {OPTIM_DEFAULTS, .lr = 1e-3, .has_lr = 1},
	.scalars = adam_scalars,
	.step = adam_step,
};
