/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_wire.h>

#include "perf.h"

/* ---- model -------------------------------------------------------------------------------- */

static int
model_add(struct model *m, const char *name, uint64_t elements)
{
	if ((m->n & (m->n - 1)) == 0) {
		unsigned cap = m->n > 0 ? m->n * 2 : 1;
		void *t = reallocarray(m->tensor, cap, sizeof(*m->tensor));
		void *f = t != NULL ? reallocarray(m->first, cap, sizeof(*m->first)) : NULL;

		if (t != NULL)
			m->tensor = t;
		if (f == NULL)
			return -1;
		m->first = f;
	}
	m->tensor[m->n] = (struct pbox_client_tensor){strdup(name), elements, 0};
	m->first[m->n++] = m->elements;
	m->elements += elements;
	return 0;
}

/** Lines "name,elements"; a first line without a number is the header, # begins a comment. */
int
model_load(struct model *m, const struct options *o, char *err, size_t cap)
{
	char line[1024];
	unsigned at = 0;
	FILE *f;

	memset(m, 0, sizeof(*m));
	if (o->model == NULL)
		return model_add(m, "data", o->elements);
	f = fopen(o->model, "r");
	if (f == NULL) {
		snprintf(err, cap, "%s: %s", o->model, strerror(errno));
		return -1;
	}
	while (fgets(line, sizeof(line), f) != NULL) {
		char *comma = strrchr(line, ','), *end;
		unsigned long long n;

		at++;
		line[strcspn(line, "\r\n")] = 0;
		if (line[0] == 0 || line[0] == '#')
			continue;
		n = comma != NULL ? strtoull(comma + 1, &end, 10) : 0;
		if (comma == NULL || end == comma + 1 || *end != 0) {
			if (comma != NULL && m->n == 0 && at == 1)
				continue;
			snprintf(err, cap, "%s line %u: 'tensor,elements' is wanted", o->model, at);
			goto fail;
		}
		*comma = 0;
		if (model_add(m, line, n) != 0) {
			snprintf(err, cap, "no memory for the model");
			goto fail;
		}
	}
	if (at == 0) {
		snprintf(err, cap, "%s: the file is empty: not even a header", o->model);
		goto fail;
	}
	fclose(f);
	return 0;
fail:
	fclose(f);
	model_free(m);
	return -1;
}

void
model_free(struct model *m)
{
	for (unsigned i = 0; i < m->n; i++)
		free((void *)(uintptr_t)m->tensor[i].name);
	free(m->tensor);
	free(m->first);
	memset(m, 0, sizeof(*m));
}

/* ---- formats ------------------------------------------------------------------------------------
 *
 * pbox-perf checks the box, so it does not convert as the box does: a mistake in the reference of lib/reduce, which all
 * kernels of the box follow, shows here. */

static uint32_t
data_bits_of(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static float
data_float_of(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static uint16_t
data_to_bf16(float f)
{
	uint32_t u = data_bits_of(f);

	if ((u & 0x7FFFFFFF) > 0x7F800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

static uint16_t
data_to_fp16(float f)
{
	uint32_t u = data_bits_of(f), sign = u >> 16 & 0x8000, rest, half;
	int e;

	u &= 0x7FFFFFFF;
	if (u >= 0x7F800000)
		return (uint16_t)(sign | 0x7C00 | (u > 0x7F800000 ? 0x200 | (u >> 13 & 0x3FF) : 0));
	e = (int)(u >> 23) - 127 + 15;
	if (e >= 31)
		return (uint16_t)(sign | 0x7C00);
	if (e <= 0) {
		if (e < -10)
			return (uint16_t)sign;
		u = (u & 0x7FFFFF) | 0x800000;
		rest = u & ((1u << (14 - e)) - 1);
		half = u >> (14 - e);
		e = 13 - e; /* position of the rounding bit */
	} else {
		rest = u & 0x1FFF;
		half = (uint32_t)e << 10 | (u >> 13 & 0x3FF);
		e = 12;
	}
	if (rest > 1u << e || (rest == 1u << e && (half & 1) != 0))
		half++; /* may carry into the exponent, up to infinity: as it should */
	return (uint16_t)(sign | half);
}

static float
from_fp16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3FF;

	if (e == 31)
		return data_float_of(sign | 0x7F800000 | m << 13);
	if (e == 0) {
		float f = (float)m * 0x1p-24f;

		return sign != 0 ? -f : f;
	}
	return data_float_of(sign | (e + 112) << 23 | m << 13);
}

unsigned
wire_size(unsigned format)
{
	return pbox_format_wide(format);
}

float
from_wire(const void *p, unsigned format, uint64_t i)
{
	uint16_t h;

	if (wire_size(format) == 4)
		return ((const float *)p)[i];
	h = ((const uint16_t *)p)[i];
	return format == PBOX_FMT_BF16 ? data_float_of((uint32_t)h << 16) : from_fp16(h);
}

void
to_wire(void *p, unsigned format, uint64_t i, float f)
{
	if (wire_size(format) == 4)
		((float *)p)[i] = f;
	else
		((uint16_t *)p)[i] = format == PBOX_FMT_BF16 ? data_to_bf16(f) : data_to_fp16(f);
}

/* ---- data ------------------------------------------------------------------------------------ */

static uint32_t
mix(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x = a * 0x9E3779B97F4A7C15ull ^ b * 0xC2B2AE3D27D4EB4Full ^ c;

	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ x >> 27) * 0x94D049BB133111EBull;
	return (uint32_t)(x ^ x >> 31);
}

/** In [-1, 1); any order of summation but the right one shows in the last bits. */
static inline float
data_value(uint32_t base, uint32_t i)
{
	uint32_t x = i * 0x9E3779B1u ^ base;

	x = (x ^ x >> 15) * 0x85EBCA77u;
	x = (x ^ x >> 13) * 0xC2B2AE3Du;
	x ^= x >> 16;
	return (float)(int32_t)x * 0x1p-31f;
}

#define BLOCK 1024 /* whole units of formats of blocks */

static inline uint64_t
place_of(struct place at, uint64_t i)
{
	return at.scattered != NULL ? at.scattered[i] : at.first + i;
}

static struct place
place_after(struct place at, uint64_t n)
{
	return (struct place){at.first + n, at.scattered != NULL ? at.scattered + n : NULL};
}

/** What a slot brings. */
static void
data_slot(const struct options *o, unsigned slot, unsigned round, struct place at, uint64_t n,
	float *g)
{
	uint32_t base = mix(o->seed, slot + 1, round);

	for (uint64_t i = 0; i < n; i++)
		g[i] = data_value(base, (uint32_t)place_of(at, i));
}

static uint32_t
slot_weight(const struct options *o, unsigned slot, unsigned round)
{
	return o->op < PBOX_OP_SAMPLE_MEAN ? 1 : 1 + (slot * 7 + round) % 64;
}

/** R5.2b */
static unsigned
slot_owner(const struct options *o, unsigned slot)
{
	return (unsigned)((((uint64_t)slot + 1) * o->workers - 1) / perf_slots(o));
}

/** Is it one contribution, or a part of one? */
static bool
node_is_pushed(const struct options *o, unsigned first, unsigned end)
{
	return slot_owner(o, first) == slot_owner(o, end - 1) &&
	       (end - first == 1 || o->op != PBOX_OP_WEIGHTED_MEAN);
}

/** What is sent in a format of blocks decodes to this; @p residual: of all elements, as result is. */
static void
pass_blocks(unsigned format, float *residual, struct place at, uint64_t n, float *g)
{
	float kept[BLOCK];

	for (uint64_t i = 0; i < n; i++)
		kept[i] = residual[place_of(at, i)];
	block_pass(format, g, kept, n);
	for (uint64_t i = 0; i < n; i++)
		residual[place_of(at, i)] = kept[i];
}

/** What the box makes of the contribution that begins with slot s: BLOCK elements at most. */
static void
take_pushed(const struct reference *r, unsigned s, unsigned round, struct place at, uint64_t n,
	float *g)
{
	const struct options *o = r->o;
	float weight = (float)slot_weight(o, s, round);
	bool blocks = pbox_format_is_block(o->push_format);
	uint8_t buf[BLOCK * 4];

	for (uint64_t i = 0; o->push_format != PBOX_FMT_FP32 && !blocks && i < n; i++) {
		to_wire(buf, o->push_format, i, g[i]);
		g[i] = from_wire(buf, o->push_format, i);
	}
	for (uint64_t i = 0; o->op == PBOX_OP_WEIGHTED_MEAN && i < n; i++)
		g[i] = weight == 0 ? 0 : g[i] * weight; /* R5.2 */
	if (blocks)                                     /* the worker has weighed them (R13.6) */
		pass_blocks(o->push_format, r->up + s * r->elements, at, n, g);
}

/**
 * R5.2a: the node of `span` slots, cut to those of the job, that begins with slot s; n elements, BLOCK at most. What a worker
 * pushes is rounded to the push format; @p pushed: the node is a part of that.
 */
static void
sum_node(const struct reference *r, unsigned s, unsigned span, bool pushed, unsigned round,
	struct place at, uint64_t n, float *g)
{
	const struct options *o = r->o;
	unsigned slots = perf_slots(o), end = s + span < slots ? s + span : slots;
	bool here = !pushed && node_is_pushed(o, s, end);
	float right[BLOCK];

	if (span == 1) {
		data_slot(o, s, round, at, n, g);
	} else {
		sum_node(r, s, span / 2, pushed || here, round, at, n, g);
		if (s + span / 2 < slots) {
			sum_node(r, s + span / 2, span / 2, pushed || here, round, at, n, right);
			for (uint64_t i = 0; i < n; i++)
				g[i] += right[i];
		}
	}
	if (here)
		take_pushed(r, s, round, at, n, g);
}

static unsigned
span_of(unsigned slots)
{
	unsigned span = 1;

	while (span < slots)
		span *= 2;
	return span;
}

void
data_fill(const struct options *o, struct pbox_client_node node, unsigned round, uint64_t first,
	uint64_t n, void *out)
{
	const struct reference r = {.o = o};
	unsigned size = wire_size(o->push_format);
	float g[BLOCK];

	for (uint64_t at = 0; at < n; at += BLOCK) {
		uint64_t m = n - at < BLOCK ? n - at : BLOCK;
		float *to = size == 4 ? (float *)out + at : g;

		sum_node(&r, node.first, span_of(node.slots), true, round,
			(struct place){.first = first + at}, m, to);
		for (uint64_t i = 0; to == g && i < m; i++)
			to_wire((uint8_t *)out + at * size, o->push_format, i, g[i]);
	}
}

uint32_t
data_weight(const struct options *o, struct pbox_client_node node, unsigned round)
{
	uint32_t sum = 0;

	for (unsigned s = node.first; s < node.first + node.slots; s++)
		sum += slot_weight(o, s, round);
	return o->op < PBOX_OP_SAMPLE_MEAN ? 1 : sum;
}

void
data_init(const struct options *o, uint64_t first, uint64_t n, float *out)
{
	uint32_t base = mix(o->seed, 0, 0);

	for (uint64_t i = 0; i < n; i++)
		out[i] = data_value(base, (uint32_t)(first + i));
}

/* ---- reference --------------------------------------------------------------------------------- */

int
reference_open(struct reference *r, const struct options *o, uint64_t elements)
{
	unsigned states = pbox_optim_states(o->optimiser);
	bool blocks = pbox_format_is_block(o->push_format);

	*r = (struct reference){
		.o = o, .elements = elements, .result = calloc(elements + 1, sizeof(float))};
	if (blocks) {
		r->up = calloc(elements * o->workers + 1, sizeof(float));
		r->down = calloc(elements + 1, sizeof(float));
	}
	if (states > 0)
		r->s0 = calloc(elements + 1, sizeof(float));
	if (states > 1)
		r->s1 = calloc(elements + 1, sizeof(float));
	if (r->result == NULL || (states > 0 && r->s0 == NULL) || (states > 1 && r->s1 == NULL) ||
		(blocks && (r->up == NULL || r->down == NULL))) {
		reference_close(r);
		return -1;
	}
	if (o->optimiser != PBOX_OPT_NONE)
		data_init(o, 0, elements, r->result);
	return 0;
}

void
reference_close(struct reference *r)
{
	free(r->result);
	free(r->s0);
	free(r->s1);
	free(r->up);
	free(r->down);
	free(r->blocks.packed);
	memset(r, 0, sizeof(*r));
}

/** One block of R5.2: what the round makes of the contributions. */
static void
reduce(const struct reference *r, unsigned round, struct place at, uint64_t n, float *g)
{
	const struct options *o = r->o;
	double by = o->op == PBOX_OP_MEAN ? perf_slots(o) : 0;
	float scale;

	sum_node(r, 0, span_of(perf_slots(o)), false, round, at, n, g);
	for (unsigned s = 0; o->op >= PBOX_OP_SAMPLE_MEAN && s < perf_slots(o); s++)
		by += slot_weight(o, s, round);
	if (o->op == PBOX_OP_SUM)
		return;
	scale = (float)(1.0 / by);
	for (uint64_t i = 0; i < n; i++)
		g[i] *= scale;
}

struct round_of {
	struct reference *r;
	unsigned round;
};

/** R13.6: a fragment of a table in a format of blocks. */
static void
reference_fragment(void *arg, struct place at, uint64_t n)
{
	const struct round_of *x = arg;
	struct reference *r = x->r;
	float g[BLOCK];

	for (uint64_t done = 0; done < n; done += BLOCK) {
		uint64_t m = n - done < BLOCK ? n - done : BLOCK;
		struct place here = place_after(at, done);

		reduce(r, x->round, here, m, g);
		pass_blocks(r->o->pull_format, r->down, here, m, g);
		for (uint64_t i = 0; i < m; i++)
			r->result[place_of(here, i)] = g[i];
	}
}

void
reference_round(struct reference *r, unsigned round, unsigned step, unsigned part, unsigned parts)
{
	const struct options *o = r->o;
	uint64_t first = r->elements / parts * part;
	uint64_t end = part + 1 == parts ? r->elements : first + r->elements / parts;
	struct round_of x = {r, round};
	struct pbox_optim_scalars k;
	float g[BLOCK];

	if (pbox_format_is_block(o->push_format)) {
		blocks_each(&r->blocks, part, parts, reference_fragment, &x);
		return;
	}
	pbox_optim_scalars(&k, &o->hyper, o->optimiser, step);

	for (uint64_t at = first; at < end; at += BLOCK) {
		uint64_t m = end - at < BLOCK ? end - at : BLOCK;
		struct place here = {.first = at};

		if (o->optimiser == PBOX_OPT_NONE) {
			reduce(r, round, here, m, r->result + at);
			continue;
		}
		reduce(r, round, here, m, g);
		pbox_optim_scalar.of[o->optimiser]->step(r->result + at, g,
			r->s0 != NULL ? r->s0 + at : NULL, r->s1 != NULL ? r->s1 + at : NULL, &k,
			m);
	}
}

uint64_t
reference_compare(const struct reference *r, const void *got, uint64_t first, uint64_t n,
	uint64_t *bad, double *off)
{
	const struct options *o = r->o;
	unsigned size = wire_size(o->pull_format);
	uint64_t wrong = 0;

	if (size == 4 && memcmp(got, r->result + first, n * 4) == 0)
		return 0;
	for (uint64_t i = 0; i < n; i++) {
		uint32_t want = 0;
		double d;

		to_wire(&want, o->pull_format, 0, r->result[first + i]);
		if (memcmp(&want, (const uint8_t *)got + i * size, size) == 0)
			continue;
		d = fabs((double)from_wire(got, o->pull_format, i) -
			 (double)from_wire(&want, o->pull_format, 0));
		*off = fmax(*off, isnan(d) ? INFINITY : d);
		if (wrong++ == 0)
			*bad = i;
	}
	return wrong;
}
