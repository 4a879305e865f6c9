/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "law_blocks.h"
#include "law_replica.h"
#include "operations.h"
#include "sim.h"

/*
 * What the box must answer, computed again from doc/protocol.md R5.2 and PyTorch's optimisers, one
 * element after the other, sharing no code with lib/reduce and lib/optim.
 */

#define MAX_ELEMENTS (SIM_MTU / 2)

const struct sim_table_spec *
sim_spec(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f)
{
	return &sc->job[job].table[f->table];
}

static uint64_t
key(const struct sim_scenario *sc, const struct sim_push *k)
{
	uint32_t round = sc->job[k->job].shrink ? 0 : k->round;

	return sim_mix(
		sim_mix(sc->seed, (uint64_t)k->job << 32 | (uint64_t)k->life << 16 | k->table),
		(uint64_t)k->slot << 32 | round);
}

static uint64_t
key_of_piece(const struct sim_scenario *sc, const struct sim_push *k, const struct sim_piece *p)
{
	return sim_mix(key(sc, k), (uint64_t)p->tensor << 32 | p->offset) | 1;
}

static uint64_t
step(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

/* Sign, an exponent within some powers of two of 1 (so that order matters), random mantissa. */
static uint32_t
random_fp32(uint64_t x)
{
	return (uint32_t)(x & 0x807FFFFF) | (119u + (uint32_t)(x >> 40 & 15)) << 23;
}

static uint16_t
random_fp16(uint64_t x)
{
	return (uint16_t)((x & 0x83FF) | (10u + (x >> 40 & 7)) << 10);
}

/* Of plain operations the slots after its worker's first one are zeros. */
static bool
is_brought(const struct sim_scenario *sc, const struct sim_push *k)
{
	const struct sim_job_spec *j = &sc->job[k->job];

	for (unsigned w = 0; j->plain && w < j->workers; w++)
		if (k->slot == sim_slots_of(j, w))
			return true;
	return !j->plain;
}

uint32_t
sim_weight(const struct sim_scenario *sc, const struct sim_push *k)
{
	uint64_t x = key(sc, k);

	return x % 11 == 0 || !is_brought(sc, k) ? 0 : (uint32_t)(x >> 8 & 63);
}

uint16_t
sim_factor(const struct sim_scenario *sc, const struct sim_push *k)
{
	static const uint16_t factor[] = {0x3F80, 0x3F80, 0x3F00, 0xBF80, 0x3EAB};

	return factor[(key(sc, k) >> 20) % 5];
}

bool
sim_is_zero(const struct sim_scenario *sc, const struct sim_push *k)
{
	return !is_brought(sc, k) || (sc->job[k->job].zeros && key(sc, k) % 5 == 0);
}

/* Of a program's buffers: formats of blocks are on the wire alone. */
static bool
is_fp32(unsigned format)
{
	return pbox_format_wide(format) == 4;
}

void
sim_contribution(const struct sim_scenario *sc, const struct sim_push *k, const struct sim_piece *p,
	uint8_t *out)
{
	unsigned format = sc->job[k->job].table[k->table].fixed.push_format;
	uint64_t x = key_of_piece(sc, k, p);

	if (sim_is_zero(sc, k)) {
		memset(out, 0, (size_t)p->elements * (is_fp32(format) ? 4 : 2));
		return;
	}
	for (uint32_t i = 0; i < p->elements; i++) {
		uint32_t bits = random_fp32(step(&x));
		uint16_t half;

		uint32_t bad = hold_bad(sc, k, p->tensor, p->offset + i);

		if ((p->offset + i) % 61 == 7) /* of all workers: an absent one is no +0.0 */
			bits = 0x80000000;
		bits = bad != 0 ? bad : bits;
		half = (uint16_t)(bits >> 16);
		if (format == PBOX_FMT_FP16 && bad != 0)
			half = bad == 0x7F800000 ? 0x7C00 : 0x7E00;
		else if (format == PBOX_FMT_FP16 && bits != 0x80000000)
			half = random_fp16(x);
		if (is_fp32(format))
			memcpy(out + (size_t)i * 4, &bits, 4);
		else
			memcpy(out + (size_t)i * 2, &half, 2);
	}
}

void
sim_initial(const struct sim_scenario *sc, unsigned job, unsigned life, unsigned table,
	const struct sim_piece *p, float *out)
{
	struct sim_push k = {.job = job, .life = life, .table = table, .slot = 0xFFFFFF};
	uint64_t x = key_of_piece(sc, &k, p);

	for (uint32_t i = 0; i < p->elements; i++) {
		uint32_t bits = random_fp32(step(&x));

		memcpy(&out[i], &bits, 4);
	}
}

float
sim_widen(const uint8_t *p, unsigned format, uint32_t i)
{
	uint32_t bits;
	uint16_t half;
	float v;

	if (is_fp32(format)) {
		memcpy(&v, p + (size_t)i * 4, 4);
		return v;
	}
	memcpy(&half, p + (size_t)i * 2, 2);
	if (format == PBOX_FMT_BF16) {
		bits = (uint32_t)half << 16;
		memcpy(&v, &bits, 4);
		return v;
	}
	v = (half >> 10 & 31) != 0 ? ldexpf((float)((half & 0x3FF) + 1024), (half >> 10 & 31) - 25)
				   : ldexpf((float)(half & 0x3FF), -24);
	if ((half >> 10 & 31) == 31) /* parameters may grow beyond what fp16 holds */
		v = (half & 0x3FF) != 0 ? NAN : INFINITY;
	return (half & 0x8000) != 0 ? -v : v;
}

static uint16_t
to_bf16(float v)
{
	uint32_t bits, low;

	if (isnan(v))
		return 0x7FC0;
	memcpy(&bits, &v, 4);
	low = bits & 0xFFFF;
	bits >>= 16;
	if (low > 0x8000 || (low == 0x8000 && (bits & 1) != 0))
		bits++;
	return (uint16_t)bits;
}

static uint16_t
to_fp16(float v)
{
	uint16_t sign = signbit(v) ? 0x8000 : 0;
	float a = fabsf(v), m;
	int e;

	if (isnan(v))
		return sign | 0x7E00;
	if (a < 0x1p-14f)
		return (uint16_t)(sign | (uint16_t)nearbyintf(a * 0x1p24f));
	if (a >= 65520.0f)
		return sign | 0x7C00;
	e = ilogbf(a);
	m = nearbyintf(ldexpf(a, 10 - e)); /* 1024 to 2048; the carry goes into the exponent */
	return (uint16_t)(sign | (((e + 15) << 10) + ((int)m - 1024)));
}

void
sim_narrow(uint8_t *out, unsigned format, const float *v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint16_t half = format == PBOX_FMT_BF16 ? to_bf16(v[i]) : to_fp16(v[i]);

		if (is_fp32(format))
			memcpy(out + (size_t)i * 4, &v[i], 4);
		else
			memcpy(out + (size_t)i * 2, &half, 2);
	}
}

/* What a sum is made of: contributions to some elements. seen: which of them are there, and as which nodes they were
 * brought; NULL: all, each by itself. */
struct summed {
	const struct sim_scenario *sc;
	const struct sim_piece *piece;
	unsigned pieces;
	uint32_t elements;
	const struct sim_slot *seen;
	const struct sim_fragment *blocks; /* of a table in a format of blocks, else NULL */
	uint64_t samples;
};

static const struct pbox_declare *
declared(const struct summed *m, const struct sim_push *k)
{
	return &m->sc->job[k->job].table[k->table].fixed;
}

/* What slot k->slot adds to a sum; false: it is not there. */
static bool
leaf(struct summed *m, const struct sim_push *k, float *out)
{
	const struct pbox_declare *d = declared(m, k);
	unsigned size = pbox_format_wide(d->push_format);
	uint32_t weight = sim_weight(m->sc, k);
	bool zero = sim_is_zero(m->sc, k);
	uint8_t bytes[SIM_MTU];

	if (m->seen != NULL && m->sc->job[k->job].shrink && !m->seen[k->slot].member)
		return false;
	for (unsigned i = 0; i < m->pieces && !zero; i++)
		sim_contribution(m->sc, k, &m->piece[i], bytes + m->piece[i].at * size);
	m->samples += weight;
	if (m->blocks != NULL) {
		memcpy(out, blocks_value(m->blocks, k->slot, k->round), m->elements * sizeof(*out));
		return true;
	}
	for (uint32_t i = 0; i < m->elements; i++) {
		out[i] = zero ? 0.0f : sim_widen(bytes, d->push_format, i);
		if (d->op == PBOX_OP_WEIGHTED_MEAN && !zero)
			out[i] = weight == 0 ? 0.0f : (float)weight * out[i];
	}
	return true;
}

/* A worker has summed it, and sent it in the push format. */
static void
round_once(const struct summed *m, const struct sim_push *k, float *v)
{
	unsigned format = declared(m, k)->push_format;
	uint8_t bytes[SIM_MTU];

	if (is_fp32(format))
		return;
	sim_narrow(bytes, format, v, m->elements);
	for (uint32_t i = 0; i < m->elements; i++)
		v[i] = sim_widen(bytes, format, i);
}

/* R5.2a: the node of `width` slots that begins with k's; false: nothing of it is there. */
static bool
node(struct summed *m, struct sim_push k, unsigned width, float *out)
{
	const struct sim_job_spec *j = &m->sc->job[k.job];
	bool brought = width > 1 && m->seen != NULL && m->seen[k.slot].width == width;
	struct sim_push first = k;
	float other[MAX_ELEMENTS];
	bool left, right;

	if (width == 1 || (brought && j->plain)) /* the sum of one slot and of others' +0.0 */
		return leaf(m, &k, out);
	if (brought && m->blocks != NULL) {
		m->samples += sim_node_weight(m->sc, k, width);
		memcpy(out, blocks_value(m->blocks, k.slot, k.round), m->elements * sizeof(*out));
		return true;
	}
	left = node(m, k, width / 2, out);
	k.slot += width / 2;
	right = k.slot < sim_slots(j) && node(m, k, width / 2, other);
	for (uint32_t i = 0; right && i < m->elements; i++)
		out[i] = left ? out[i] + other[i] : other[i];
	if (brought && left)
		round_once(m, &first, out);
	return left || right;
}

uint32_t
sim_node_weight(const struct sim_scenario *sc, struct sim_push k, unsigned width)
{
	unsigned end = k.slot + width, slots = sim_slots(&sc->job[k.job]);
	uint32_t samples = 0;

	for (; k.slot < end && k.slot < slots; k.slot++)
		samples += sim_weight(sc, &k);
	return samples;
}

void
sim_node(const struct sim_scenario *sc, const struct sim_push *k, unsigned width,
	const struct sim_piece *p, uint8_t *out)
{
	struct sim_piece alone = *p;
	struct summed m = {.sc = sc, .piece = &alone, .pieces = 1, .elements = p->elements};
	float sum[MAX_ELEMENTS];

	alone.at = 0;
	if (width == 1) {
		sim_contribution(sc, k, p, out);
		return;
	}
	node(&m, *k, width, sum);
	sim_narrow(out, declared(&m, k)->push_format, sum, p->elements);
}

/* R5.2, without the factor. */
static void
tree_sum(const struct sim_scenario *sc, unsigned job, unsigned life, const struct sim_fragment *f,
	uint32_t round, float *sum, uint64_t *samples)
{
	struct sim_push k = {.job = job, .life = life, .table = f->table, .round = round};
	struct summed m = {.sc = sc,
		.piece = f->piece,
		.pieces = f->pieces,
		.elements = f->elements,
		.seen = f->slot,
		.blocks = blocks_are(sc, job, f) ? f : NULL};
	unsigned width = 1;

	while (width < sim_slots(&sc->job[job]))
		width *= 2;
	node(&m, k, width, sum);
	*samples = m.samples;
}

unsigned
sim_groups(const struct sim_scenario *sc, unsigned job, unsigned table)
{
	const struct sim_table_spec *t = &sc->job[job].table[table];
	unsigned highest = 0;

	for (uint32_t i = 0; i < t->fixed.tensors; i++)
		if (t->tensor[i].group > highest)
			highest = t->tensor[i].group;
	return highest + 1;
}

static void
add(struct pbox_set *m, unsigned id, double value)
{
	m->param[m->count].id = (uint16_t)id;
	m->param[m->count].value = value;
	m->count++;
}

unsigned
sim_hyper_change(const struct sim_scenario *sc, unsigned job, unsigned table, unsigned group,
	uint32_t round, struct pbox_set *m)
{
	const struct pbox_declare *d = &sc->job[job].table[table].fixed;
	uint64_t x = sim_mix(sc->seed ^ 0x5E7,
		(uint64_t)job << 48 | (uint64_t)table << 40 | (uint64_t)group << 32 | round);
	bool adam = d->optimiser == PBOX_OPT_ADAM || d->optimiser == PBOX_OPT_ADAMW;

	*m = (struct pbox_set){.table = table, .group = (uint16_t)group, .from_round = round};
	if (d->discipline != PBOX_DISCIPLINE_ROUNDS)
		return 0;
	if (d->mode == PBOX_MODE_OPTIMISER && round == 1) {
		if (!adam)
			add(m, PBOX_HYPER_LR, 0.125);
		if (d->optimiser == PBOX_OPT_MOMENTUM || d->optimiser == PBOX_OPT_NESTEROV)
			add(m, PBOX_HYPER_MOMENTUM, 0.9);
		if (d->optimiser == PBOX_OPT_MOMENTUM && x % 2 == 0)
			add(m, PBOX_HYPER_DAMPENING, 0.1);
		if (x % 3 == 0)
			add(m, PBOX_HYPER_WEIGHT_DECAY, 0.01);
		if (sim_is_held(&sc->job[job].table[table]))
			add(m, PBOX_HYPER_MAX_NORM, sim_max_norm(sc, job, table));
		if (adam && x % 5 == 0) {
			add(m, PBOX_HYPER_BETA1, 0.8);
			add(m, PBOX_HYPER_EPS, 1e-6);
		}
	}
	if (sc->job[job].sets && x % 3 == 0) {
		if (d->mode == PBOX_MODE_OPTIMISER && round > 1)
			add(m, PBOX_HYPER_LR, (double)(x >> 8 & 1023) / 4096.0);
		if (x % 2 == 0)
			add(m, PBOX_HYPER_CLIP_VALUE, (double)(x >> 20 & 3) / 2.0);
	}
	if (sc->job[job].sets && pbox_format_is_block(d->pull_format) && (x >> 32) % 4 == 0)
		add(m, PBOX_HYPER_PLAIN, (double)(x >> 40 & 1));
	return m->count;
}

/* The values that hold in a round: PyTorch's defaults and every change up to it. */
static void
hyper_at(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f, uint32_t round,
	double v[PBOX_HYPER_IDS])
{
	const struct pbox_declare *d = &sim_spec(sc, job, f)->fixed;
	bool adam = d->optimiser == PBOX_OPT_ADAM || d->optimiser == PBOX_OPT_ADAMW;

	memset(v, 0, PBOX_HYPER_IDS * sizeof(*v));
	v[PBOX_HYPER_LR] = adam ? 0.001 : 0.0;
	v[PBOX_HYPER_BETA1] = 0.9;
	v[PBOX_HYPER_BETA2] = 0.999;
	v[PBOX_HYPER_EPS] = 1e-8;
	v[PBOX_HYPER_WEIGHT_DECAY] = d->optimiser == PBOX_OPT_ADAMW ? 0.01 : 0.0;
	for (uint32_t r = sc->job[job].first_round; r != round;) {
		struct pbox_set m;

		sim_hyper_change(sc, job, f->table, f->group, ++r, &m);
		for (unsigned i = 0; i < m.count; i++)
			v[m.param[i].id] = m.param[i].value;
	}
}

static void
sgd_family(struct sim_fragment *f, unsigned kind, const double v[PBOX_HYPER_IDS], const float *g,
	uint32_t round)
{
	float lr = (float)v[PBOX_HYPER_LR], wd = (float)v[PBOX_HYPER_WEIGHT_DECAY];
	float mu = (float)v[PBOX_HYPER_MOMENTUM];
	float keep = (float)(1.0 - v[PBOX_HYPER_DAMPENING]);

	for (uint32_t i = 0; i < f->elements; i++) {
		float d = g[i], decay = wd * f->param[i], part;

		if (wd != 0.0f)
			d = d + decay;
		if (kind != PBOX_OPT_SGD) {
			if (round == 1) {
				f->s0[i] = d;
			} else {
				float old = mu * f->s0[i], fresh = keep * d;

				f->s0[i] = old + fresh;
			}
			part = mu * f->s0[i];
			d = kind == PBOX_OPT_NESTEROV ? d + part : f->s0[i];
		}
		part = lr * d;
		f->param[i] = f->param[i] - part;
	}
}

static void
adam_family(struct sim_fragment *f, unsigned kind, const double v[PBOX_HYPER_IDS], const float *g,
	uint32_t round)
{
	double b1 = v[PBOX_HYPER_BETA1], b2 = v[PBOX_HYPER_BETA2], lr = v[PBOX_HYPER_LR];
	float step_size = (float)(lr / (1.0 - pow(b1, round)));
	float root = (float)sqrt(1.0 - pow(b2, round));
	float wd = (float)v[PBOX_HYPER_WEIGHT_DECAY];
	float shrink = (float)(1.0 - lr * v[PBOX_HYPER_WEIGHT_DECAY]);

	for (uint32_t i = 0; i < f->elements; i++) {
		float d = g[i], p = f->param[i], a, b;

		if (kind == PBOX_OPT_ADAMW) {
			p = p * shrink;
		} else if (wd != 0.0f) {
			a = wd * p;
			d = d + a;
		}
		a = (float)b1 * (round == 1 ? 0.0f : f->s0[i]);
		b = (float)(1.0 - b1) * d;
		f->s0[i] = a + b;
		a = (float)b2 * (round == 1 ? 0.0f : f->s1[i]);
		b = (float)(1.0 - b2) * d;
		b = b * d;
		f->s1[i] = a + b;
		a = sqrtf(f->s1[i]) / root;
		a = a + (float)v[PBOX_HYPER_EPS];
		b = step_size * f->s0[i];
		f->param[i] = p - b / a;
	}
}

unsigned
sim_mean(const struct sim_scenario *sc, unsigned job, unsigned life, const struct sim_fragment *f,
	uint32_t round, float *g, uint64_t *samples)
{
	const struct pbox_declare *d = &sim_spec(sc, job, f)->fixed;
	float factor = 1.0f;
	unsigned n = f->slots;

	for (unsigned i = 0; sc->job[job].shrink && i < f->slots; i++)
		n -= !f->slot[i].member;
	tree_sum(sc, job, life, f, round, g, samples);
	if (d->op == PBOX_OP_MEAN)
		factor = (float)(1.0 / n);
	else if (d->op != PBOX_OP_SUM)
		factor = *samples == 0 ? 0.0f : (float)(1.0 / (double)*samples);
	for (uint32_t i = 0; i < f->elements; i++)
		g[i] = factor * g[i];
	return n;
}

/* The step of mode 1. */
static void
optimise(const struct sim_scenario *sc, unsigned job, struct sim_fragment *f,
	const double v[PBOX_HYPER_IDS], float *g, uint32_t round)
{
	const struct pbox_declare *d = &sim_spec(sc, job, f)->fixed;
	const struct sim_round *r = f->held != NULL ? hold_round(f, round) : NULL;

	if (r != NULL && r->coefficient < 0.0)
		return; /* it is left out */
	if (r != NULL)
		round -= r->steps;
	if (d->optimiser <= PBOX_OPT_NESTEROV)
		sgd_family(f, d->optimiser, v, g, round);
	else
		adam_family(f, d->optimiser, v, g, round);
}

/* One round further. */
static void
advance(const struct sim_scenario *sc, unsigned job, unsigned life, struct sim_fragment *f)
{
	const struct pbox_declare *d = &sim_spec(sc, job, f)->fixed;
	unsigned fragment = (f->version + 1) & 1;
	uint32_t round = f->version + 1;
	double v[PBOX_HYPER_IDS];
	float g[MAX_ELEMENTS], clip;
	uint64_t samples;
	bool plain;
	unsigned n = sim_mean(sc, job, life, f, round, g, &samples);

	hyper_at(sc, job, f, round, v);
	clip = (float)v[PBOX_HYPER_CLIP_VALUE];
	plain = v[PBOX_HYPER_PLAIN] != 0;
	for (uint32_t i = 0; i < f->elements; i++) {
		if (f->held != NULL)
			g[i] = (float)hold_round(f, round)->coefficient * g[i];
		if (clip > 0.0f && fabsf(g[i]) > clip)
			g[i] = copysignf(clip, g[i]);
	}
	if (blocks_answer(sc, job, f) && !plain)
		blocks_version(sc, job, f, g);
	else if (d->mode == PBOX_MODE_ALLREDUCE)
		memcpy(f->param, g, f->elements * sizeof(float));
	else
		optimise(sc, job, f, v, g, round);
	sim_narrow(f->answer[fragment], d->pull_format,
		replica_is(sc, job, f) ? replica_version(sc, job, f, plain) : f->param,
		f->elements);
	f->weight[fragment] = (uint32_t)samples;
	f->contributors[fragment] = n;
	f->version = round;
}

void
sim_reference_forget(struct sim_fragment *f)
{
	free(f->clock);
	f->clock = NULL;
	free(f->param);
	free(f->s0);
	free(f->s1);
	free(f->answer[0]);
	free(f->answer[1]);
	f->param = f->s0 = f->s1 = NULL;
	f->answer[0] = f->answer[1] = NULL;
	f->ready = false;
}

void
sim_reference_begin(
	const struct sim_scenario *sc, unsigned job, unsigned life, struct sim_fragment *f)
{
	unsigned fragment;

	if (f->ready)
		return;
	f->param = calloc(f->elements, sizeof(float));
	f->s0 = calloc(f->elements, sizeof(float));
	f->s1 = calloc(f->elements, sizeof(float));
	f->answer[0] = calloc(f->elements, 4);
	f->answer[1] = calloc(f->elements, 4);
	f->version = sc->job[job].first_round;
	f->ready = true;
	fragment = f->version & 1;
	if (sim_spec(sc, job, f)->fixed.mode == PBOX_MODE_OPTIMISER)
		for (unsigned i = 0; i < f->pieces; i++)
			sim_initial(
				sc, job, life, f->table, &f->piece[i], f->param + f->piece[i].at);
	if (replica_is(sc, job, f))
		replica_begins(f);
	sim_narrow(f->answer[fragment], sim_spec(sc, job, f)->fixed.pull_format, f->param,
		f->elements);
}

const uint8_t *
sim_expected(const struct sim_scenario *sc, unsigned job, unsigned life, struct sim_fragment *f,
	uint32_t version, uint32_t *weight)
{
	sim_reference_begin(sc, job, life, f);
	while (pbox_serial_diff(version, f->version) > 0)
		advance(sc, job, life, f);
	if (pbox_serial_diff(f->version, version) > 1)
		return NULL; /* too old to be known */
	*weight = f->weight[version & 1];
	return f->answer[version & 1];
}
