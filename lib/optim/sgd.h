/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* 1 SGD: doc/optimisers.md has the formula. */

static const char *
sgd_refuses(const struct pbox_hyper *h)
{
	return h->momentum != 0.0
		       ? "sgd keeps no momentum: declare the table with momentum or nesterov"
		       : NULL;
}

INLINE struct element
sgd_element(struct element e, vec g, const struct pbox_optim_scalars *k)
{
	e.p = e.p - all(k->lr) * decayed(g, e.p, k);
	return e;
}

static void
sgd_step(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	for_each(p, g, s0, s1, k, elems, 0, sgd_element);
}

static const struct pbox_optim_def sgd = {
	.name = "sgd",
	.defaults = {OPTIM_DEFAULTS},
	.refuses = sgd_refuses,
	.step = sgd_step,
};
