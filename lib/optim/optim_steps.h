/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/**
 * @file
 * The optimisers in terms of `vec`, with the operators of C: the file that includes this one says what
 * a vector is, and what operators do not do (VECTOR, vec, lanes, lanes_of, load, store, load_lanes,
 * store_lanes, all, root, minimum, maximum), and NAME, RANK and USABLE. Included once in each translation
 * unit: scalar.c, the reference, and drivers/optim. Each optimiser is a header of its own, below.
 */

#include <math.h>
#include <string.h>

#include <pbox_optim.h>

/* One element of everything that a step reads and writes, a vector at a time. */
struct element {
	vec p, s0, s1;
};

typedef struct element (*element_step)(struct element e, vec g, const struct pbox_optim_scalars *k);

INLINE void
for_each(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems, unsigned states, element_step step)
{
	struct element e = {all(0.0f), all(0.0f), all(0.0f)};
	const struct pbox_optim_scalars c = *k; /* a store could change what k points to */
	size_t i = 0;

	for (; i + VECTOR <= elems; i += VECTOR) {
		e.p = load(p + i);
		if (states > 0)
			e.s0 = load(s0 + i);
		if (states > 1)
			e.s1 = load(s1 + i);
		e = step(e, load(g + i), &c);
		store(p + i, e.p);
		if (states > 0)
			store(s0 + i, e.s0);
		if (states > 1)
			store(s1 + i, e.s1);
	}
#if VECTOR > 1
	if (i == elems)
		return;
	lanes m = lanes_of(elems - i);

	e.p = load_lanes(p + i, m);
	if (states > 0)
		e.s0 = load_lanes(s0 + i, m);
	if (states > 1)
		e.s1 = load_lanes(s1 + i, m);
	e = step(e, load_lanes(g + i, m), &c);
	store_lanes(p + i, m, e.p);
	if (states > 0)
		store_lanes(s0 + i, m, e.s0);
	if (states > 1)
		store_lanes(s1 + i, m, e.s1);
#endif
}

/* As scale() of lib/reduce does it. Of a NaN and a number minimum and maximum give the second operand: NaN stays NaN. */
INLINE vec
final(vec g, const struct pbox_optim_scalars *k)
{
	if (k->factor != 1.0f)
		g = g * all(k->factor);
	if (k->clip > 0.0f)
		g = minimum(all(k->clip), maximum(all(-k->clip), g));
	return g;
}

/* torch: d_p.add(param, alpha=weight_decay), left out when it is 0 */
INLINE vec
decayed(vec g, vec p, const struct pbox_optim_scalars *k)
{
	g = final(g, k);
	if (k->weight_decay != 0.0f)
		g = g + all(k->weight_decay) * p;
	return g;
}

#define OPTIM_DEFAULTS .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8
#define OPTIM_USES(id) (1u << PBOX_HYPER_##id)

static const struct pbox_optim_def none = {.name = "none", .defaults = {OPTIM_DEFAULTS}};
#include "sgd.h"
#include "momentum.h" /* uses sgd.h */
#include "nesterov.h" /* uses momentum.h */
#include "adam.h"
#include "adamw.h" /* uses adam.h */
#include "add.h"

#define OPTIM_DEF(symbol, number, name) [symbol] = &name,
#define OPTIM_OPS                                             \
	{                                                     \
		.name = NAME, .rank = RANK, .usable = USABLE, \
		.of = { &none,                                \
			PBOX_OPTIMISERS(OPTIM_DEF) }          \
	}
