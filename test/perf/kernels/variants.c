/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include "variants.h"

static void
one_pass(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX];
	struct pbox_sources s = {src, NULL, w->workers, w->elem, NULL};

	fragment_sources(w, f, src);
	c->reduce->sum(w->param + f * w->elems, &s, 0, w->elems);
}

static void
one_pass_hinted(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX], *next[WORKERS_MAX];
	struct pbox_sources s = {src, NULL, w->workers, w->elem, NULL};

	fragment_sources(w, f, src);
	fragment_sources(w, f + 1 == w->fragments ? 0 : f + 1, next);
	s.next = next;
	s.n_next = w->workers;
	c->reduce->sum(w->param + f * w->elems, &s, 0, w->elems);
}

/* As a box does that adds each packet when it comes. */
static void
one_by_one(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX];
	float *dst = w->param + f * w->elems;

	fragment_sources(w, f, src);
	for (unsigned k = 0; k < w->workers; k++) {
		const void *const two[] = {dst, src[k]};
		const float *const sum = dst;
		struct pbox_sources s = {&src[k], NULL, 1, w->elem, NULL};

		if (k > 0 && w->elem == PBOX_FMT_FP32)
			s.src = two, s.n = 2;
		else if (k > 0)
			s.acc = &sum, s.n_acc = s.base = 1;
		c->reduce->sum(dst, &s, 0, w->elems);
	}
}

/* The frames verified in the pass that sums them. */
static void
checked(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX], *next[WORKERS_MAX];
	bool intact;
	struct pbox_sources s = {src, NULL, w->workers, w->elem, NULL};

	fragment_sources(w, f, src);
	fragment_sources(w, f + 1 == w->fragments ? 0 : f + 1, next);
	s.next = next;
	s.n_next = w->workers;
	s.intact = &intact;
	s.header = HEADER;
	c->reduce->sum(w->param + f * w->elems, &s, 0, w->elems);
	c->refused += !intact;
}

/* Each frame verified by itself, then the sum: two passes. */
static void
verified_then_summed(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX];
	struct pbox_sources s = {src, NULL, w->workers, w->elem, NULL};

	fragment_sources(w, f, src);
	for (unsigned k = 0; k < w->workers; k++)
		c->refused += !pbox_reduce_intact(src[k], w->bytes, HEADER);
	c->reduce->sum(w->param + f * w->elems, &s, 0, w->elems);
}

/* Pushes to a table in clocks, verified and applied in one pass, and all of one fragment in one. */
static void
pushed(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX];
	float factor[WORKERS_MAX];
	const float *param = w->param + f * w->elems;
	bool intact = true;
	struct pbox_sources s = {.src = src,
		.weight = factor,
		.n = w->workers,
		.elem = w->elem,
		.acc = &param,
		.n_acc = 1,
		.intact = &intact,
		.header = HEADER};

	for (unsigned k = 0; k < w->workers; k++)
		factor[k] = 1e-6f;
	fragment_sources(w, f, src);
	c->reduce->add(w->scratch, &s, w->elems);
	c->refused += !intact;
}

/* Each push verified, then applied, and the CRC of the parameters made. */
static void
verified_then_pushed(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX];
	struct pbox_optim_scalars k = {.lr = 1.0f};
	struct pbox_update u = {.reduce = c->reduce,
		.optim = pbox_optim_select(c->reduce->name),
		.kind = PBOX_OPT_ADD,
		.k = &k,
		.factor = 1e-6f,
		.param = w->param + f * w->elems};
	uint32_t crc;

	u.answer_crc = &crc;
	fragment_sources(w, f, src);
	for (unsigned i = 0; i < w->workers; i++) {
		struct pbox_sources s = {&src[i], NULL, 1, w->elem, NULL};

		c->refused += !pbox_reduce_intact(src[i], w->bytes, HEADER);
		pbox_optim_update(&u, &s, w->elems);
	}
}

/* All payloads copied to one place: what a copying receiver pays before it sums. */
static void
copy(const struct workload *w, size_t f, void *ctx)
{
	const void *src[WORKERS_MAX];

	(void)ctx;
	fragment_sources(w, f, src);
	for (unsigned k = 0; k < w->workers; k++)
		memcpy(w->scratch, src[k], w->bytes);
}

/* One load a cache line and nothing else: what the memory gives, without prefetching of our own. */
static void
read_only(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX];
	uint64_t x = 0, word;

	fragment_sources(w, f, src);
	for (unsigned k = 0; k < w->workers; k++)
		for (size_t i = 0; i < w->bytes; i += 64) {
			memcpy(&word, (const uint8_t *)src[k] + i, sizeof(word));
			x |= word;
		}
	c->sink += x;
}

static void
fused(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX];
	bool intact = true;
	struct pbox_sources s = {src, NULL, w->workers, w->elem, NULL};
	struct pbox_update u = c->update;

	fragment_sources(w, f, src);
	if (c->checked) {
		s.intact = &intact;
		s.header = HEADER;
	}
	u.scratch = w->scratch;
	u.k = &c->scalars;
	u.param = w->param + f * w->elems;
	if (pbox_optim_states(u.kind) > 0)
		u.s0 = w->s0 + f * w->elems;
	if (pbox_optim_states(u.kind) > 1)
		u.s1 = w->s1 + f * w->elems;
	c->refused += !pbox_optim_update(&u, &s, w->elems);
}

static void
make_fused(struct context *c, enum pbox_optimiser kind, unsigned workers, int check)
{
	struct pbox_hyper h;

	pbox_hyper_defaults(&h, kind);
	h.lr = 1e-6;
	h.momentum = kind == PBOX_OPT_SGD ? 0.0 : 0.9;
	pbox_optim_scalars(&c->scalars, &h, kind, 10);
	c->checked = check;
	c->update = (struct pbox_update){
		.reduce = c->reduce,
		.optim = pbox_optim_select(c->reduce->name),
		.kind = kind,
		.factor = kind == PBOX_OPT_NONE ? 1.0f : 1.0f / (float)workers,
	};
	if (c->update.optim == NULL)
		c->update.optim = &pbox_optim_scalar;
}

unsigned
variants_make(struct variant *v, const struct pbox_reduce_ops *reduce, unsigned workers, int few)
{
	static const struct {
		const char *name;
		work run;
		int base;
	} sums[] = {
		{"sum", one_pass, -1},
		{"checked sum", checked, 0},
		{"sum, next fetched", one_pass_hinted, 0},
		{"one by one", one_by_one, 0},
		{"verify, then sum", verified_then_summed, 0},
		{"pushes", pushed, 1},
		{"verify, then push", verified_then_pushed, 1},
		{"read only", read_only, 0},
		{"memcpy", copy, 0},
	};
	unsigned n = 0, count = few ? 7 : sizeof(sums) / sizeof(sums[0]);

	memset(v, 0, VARIANTS_MAX * sizeof(*v));
	for (; n < count; n++) {
		snprintf(v[n].name, sizeof(v[n].name), "%s", sums[n].name);
		v[n].run = sums[n].run;
		v[n].base = sums[n].base;
		v[n].ctx.reduce = reduce;
	}
	for (int check = 0; check < 2 && !few; check++)
		for (int kind = PBOX_OPT_NONE; kind < PBOX_OPTIMISERS_END; kind++, n++) {
			snprintf(v[n].name, sizeof(v[n].name), "%s %s",
				check ? "checked fused" : "fused", pbox_optimiser_name(kind));
			v[n].run = fused;
			v[n].base = check;
			v[n].optimiser = kind != PBOX_OPT_NONE;
			v[n].ctx.reduce = reduce;
			make_fused(&v[n].ctx, kind, workers, check);
		}
	return n;
}
