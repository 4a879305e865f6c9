/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* 6 Add: doc/optimisers.md has the formula. What is pushed is an update already, as of an optimiser at the worker. */

static const char *
add_refuses(const struct pbox_hyper *h)
{
	if (h->weight_decay != 0.0)
		return "add has no weight decay: it is part of the updates that workers push";
	return h->maximize != 0.0 ? "add has no maximize: workers push updates, not gradients"
				  : NULL;
}

INLINE struct element
add_element(struct element e, vec g, const struct pbox_optim_scalars *k)
{
	e.p = e.p + all(k->lr) * final(g, k);
	return e;
}

static void
add_step(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	for_each(p, g, s0, s1, k, elems, 0, add_element);
}

static const struct pbox_optim_def add = {
	.name = "add",
	.defaults = {OPTIM_DEFAULTS, .lr = 1.0, .has_lr = 1},
	.refuses = add_refuses,
	.step = add_step,
};
