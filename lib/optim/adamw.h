/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* 5 AdamW: doc/optimisers.md has the formula. State: both moments, as Adam's. */

static void
adamw_scalars(struct pbox_optim_scalars *s, const struct pbox_hyper *h, double t)
{
	adam_scalars(s, h, t);
	s->decay = (float)(1.0 - h->lr * h->weight_decay);
	s->weight_decay = 0.0f; /* it is not added to the gradient */
}

INLINE struct element
adamw_element(struct element e, vec g, const struct pbox_optim_scalars *k)
{
	e.p = e.p * all(k->decay);
	return adam_moments(e, final(g, k), k);
}

static void
adamw_step(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	adam_each(p, g, s0, s1, k, elems, adamw_element);
}

static const struct pbox_optim_def adamw = {
	.name = "adamw",
	.uses = OPTIM_USES(BETA1) | OPTIM_USES(BETA2) | OPTIM_USES(EPS),
	.states = 2,
	.defaults = {OPTIM_DEFAULTS, .lr = 1e-3, .weight_decay = 1e-2, .has_lr = 1},
	.scalars = adamw_scalars,
	.step = adamw_step,
};
