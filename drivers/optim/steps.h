/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/**
 * @file
 * The steps in terms of `vec`: the file that includes this one says what a vector and its
 * operations are (VECTOR, vec, lanes, lanes_of, load, store, load_lanes, store_lanes, all, add, sub,
 * mul, divide, root, minimum, maximum), and NAME, RANK and usable(). Included once in each translation
 * unit.
 */

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
	lanes m;

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
	if (i == elems)
		return;
	m = lanes_of(elems - i);
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
}

/* Of a NaN and a number minimum and maximum give the second operand: NaN stays NaN. */
INLINE vec
final(vec g, const struct pbox_optim_scalars *k)
{
	if (k->factor != 1.0f)
		g = mul(g, all(k->factor));
	if (k->clip > 0.0f)
		g = minimum(all(k->clip), maximum(all(-k->clip), g));
	return g;
}

INLINE vec
decayed(vec g, vec p, const struct pbox_optim_scalars *k)
{
	g = final(g, k);
	return k->weight_decay != 0.0f ? add(g, mul(all(k->weight_decay), p)) : g;
}

INLINE struct element
sgd_element(struct element e, vec g, const struct pbox_optim_scalars *k)
{
	e.p = sub(e.p, mul(all(k->lr), decayed(g, e.p, k)));
	return e;
}

INLINE vec
buffer(vec b, vec d, const struct pbox_optim_scalars *k)
{
	return k->first_step ? d : add(mul(b, all(k->momentum)), mul(all(k->one_minus_damp), d));
}

INLINE struct element
momentum_element(struct element e, vec g, const struct pbox_optim_scalars *k)
{
	e.s0 = buffer(e.s0, decayed(g, e.p, k), k);
	e.p = sub(e.p, mul(all(k->lr), e.s0));
	return e;
}

INLINE struct element
nesterov_element(struct element e, vec g, const struct pbox_optim_scalars *k)
{
	vec d = decayed(g, e.p, k);

	e.s0 = buffer(e.s0, d, k);
	e.p = sub(e.p, mul(all(k->lr), add(d, mul(all(k->momentum), e.s0))));
	return e;
}

INLINE struct element
adam_moments(struct element e, vec d, const struct pbox_optim_scalars *k)
{
	vec denominator;

	e.s0 = add(mul(e.s0, all(k->beta1)), mul(all(k->one_minus_beta1), d));
	e.s1 = add(mul(e.s1, all(k->beta2)), mul(mul(all(k->one_minus_beta2), d), d));
	denominator = add(divide(root(e.s1), all(k->bias2_sqrt)), all(k->eps));
	e.p = sub(e.p, divide(mul(all(k->step_size), e.s0), denominator));
	return e;
}

INLINE struct element
adam_element(struct element e, vec g, const struct pbox_optim_scalars *k)
{
	return adam_moments(e, decayed(g, e.p, k), k);
}

INLINE struct element
adamw_element(struct element e, vec g, const struct pbox_optim_scalars *k)
{
	e.p = mul(e.p, all(k->decay));
	return adam_moments(e, final(g, k), k);
}

static void
sgd(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	for_each(p, g, s0, s1, k, elems, 0, sgd_element);
}

/* Without momentum the buffer is left alone, as lib/optim/scalar.c explains. */
INLINE void
with_buffer(float *p, const float *g, float *b, const struct pbox_optim_scalars *k, size_t elems,
	element_step step)
{
	if (k->momentum != 0.0f) {
		for_each(p, g, b, NULL, k, elems, 1, step);
		return;
	}
	if (k->first_step)
		memset(b, 0, elems * sizeof(*b));
	sgd(p, g, NULL, NULL, k, elems);
}

static void
momentum(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	(void)s1;
	with_buffer(p, g, s0, k, elems, momentum_element);
}

static void
nesterov(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	(void)s1;
	with_buffer(p, g, s0, k, elems, nesterov_element);
}

INLINE void
with_moments(float *p, const float *g, float *m, float *v, const struct pbox_optim_scalars *k,
	size_t elems, element_step step)
{
	if (k->first_step) {
		memset(m, 0, elems * sizeof(*m));
		memset(v, 0, elems * sizeof(*v));
	}
	for_each(p, g, m, v, k, elems, 2, step);
}

static void
adam(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	with_moments(p, g, s0, s1, k, elems, adam_element);
}

static void
adamw(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	with_moments(p, g, s0, s1, k, elems, adamw_element);
}

static const struct pbox_optim_ops ops = {
	.name = NAME,
	.rank = RANK,
	.usable = usable,
	.step = {NULL, sgd, momentum, nesterov, adam, adamw},
};

__attribute__((constructor)) static void
enrol(void)
{
	pbox_optim_register(&ops);
}
