/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The reference steps: the order of operations of torch.optim 1.13's single-tensor
 * implementations, element by element (doc/optimisers.md). Every other implementation is held to
 * the bits of these. */

#include <math.h>
#include <string.h>

#include "pbox_optim.h"

/* As scale() of lib/reduce does it. */
static inline float
final(float g, const struct pbox_optim_scalars *k)
{
	if (k->factor != 1.0f)
		g = g * k->factor;
	if (k->clip > 0.0f)
		g = g < -k->clip ? -k->clip : g > k->clip ? k->clip : g;
	return g;
}

/* torch: d_p.add(param, alpha=weight_decay), left out when it is 0 */
static inline float
decayed(float g, float p, const struct pbox_optim_scalars *k)
{
	g = final(g, k);
	return k->weight_decay != 0.0f ? g + k->weight_decay * p : g;
}

static void
sgd(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	(void)s0;
	(void)s1;
	for (size_t i = 0; i < elems; i++)
		p[i] = p[i] - k->lr * decayed(g[i], p[i], k);
}

/*
 * With momentum 0 PyTorch does not look at the buffer: the step is that of SGD. The buffer must
 * hold something all the same for the round in which momentum is switched on.
 */
static int
without_momentum(
	float *p, const float *g, float *b, const struct pbox_optim_scalars *k, size_t elems)
{
	if (k->momentum != 0.0f)
		return 0;
	if (k->first_step)
		memset(b, 0, elems * sizeof(*b));
	sgd(p, g, NULL, NULL, k, elems);
	return 1;
}

static void
momentum(float *p, const float *g, float *b, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	(void)s1;
	if (without_momentum(p, g, b, k, elems))
		return;
	for (size_t i = 0; i < elems; i++) {
		float d = decayed(g[i], p[i], k);

		b[i] = k->first_step ? d : b[i] * k->momentum + k->one_minus_damp * d;
		p[i] = p[i] - k->lr * b[i];
	}
}

static void
nesterov(float *p, const float *g, float *b, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	(void)s1;
	if (without_momentum(p, g, b, k, elems))
		return;
	for (size_t i = 0; i < elems; i++) {
		float d = decayed(g[i], p[i], k);

		b[i] = k->first_step ? d : b[i] * k->momentum + k->one_minus_damp * d;
		p[i] = p[i] - k->lr * (d + k->momentum * b[i]);
	}
}

/* Adam and AdamW after the weight decay. The state need not be cleared before the first step. */
static inline float
adam_element(float p, float d, float *m, float *v, const struct pbox_optim_scalars *k)
{
	float m0 = k->first_step ? 0.0f : *m, v0 = k->first_step ? 0.0f : *v;

	*m = m0 * k->beta1 + k->one_minus_beta1 * d;
	*v = v0 * k->beta2 + k->one_minus_beta2 * d * d;
	return p - k->step_size * *m / (sqrtf(*v) / k->bias2_sqrt + k->eps);
}

static void
adam(float *p, const float *g, float *m, float *v, const struct pbox_optim_scalars *k, size_t elems)
{
	for (size_t i = 0; i < elems; i++)
		p[i] = adam_element(p[i], decayed(g[i], p[i], k), &m[i], &v[i], k);
}

static void
adamw(float *p, const float *g, float *m, float *v, const struct pbox_optim_scalars *k,
	size_t elems)
{
	for (size_t i = 0; i < elems; i++)
		p[i] = adam_element(p[i] * k->decay, final(g[i], k), &m[i], &v[i], k);
}

static int
scalar_usable(void)
{
	return 1;
}

const struct pbox_optim_ops pbox_optim_scalar = {
	.name = "scalar",
	.rank = 0,
	.usable = scalar_usable,
	.step = {NULL, sgd, momentum, nesterov, adam, adamw},
};
