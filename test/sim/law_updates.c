/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_reduce.h>

#include "law.h"
#include "law_updates.h"

/*
 * The residual is of what the box adds: it is divided by the factor of the push that takes it. So the bytes of a push follow from what
 * its process has pushed of the fragment before. They are computed where a process sends, for there nothing is lost. A push that was
 * sent once is sent with the same bytes again, whatever has happened.
 */

#define ELEMENTS (SIM_MTU / 4)
#define KEPT     16 /* pushes of a process: more than a program waits for */
#define SHOWN    128

struct pushed {
	uint32_t clock;
	uint16_t factor;
	uint8_t codes[SIM_MTU];
};

struct sim_updates {
	struct from {
		uint64_t began; /* the process */
		uint32_t last;  /* clock */
		float rest[ELEMENTS];
		struct pushed push[KEPT];
	} from[SIM_WORKERS];
	struct {
		uint32_t version, last[SIM_WORKERS];
	} shown[SHOWN];
};

void
updates_scenario(struct sim_scenario *sc, uint64_t seed, const struct sim_limits *limits)
{
	for (unsigned i = 0; limits->updates && i < sc->jobs; i++)
		for (unsigned t = 0; t < sc->job[i].tables; t++)
			if (sc->job[i].table[t].law == &sim_law_clock)
				sc->job[i].table[t].fixed.push_format =
					sim_mix(seed, i * SIM_TABLES + t) % 2 == 0 ? PBOX_FMT_INT8
										   : PBOX_FMT_MXFP4;
}

static struct sim_updates *
updates_of(struct sim_fragment *f)
{
	if (f->updates == NULL)
		f->updates = calloc(1, sizeof(struct sim_updates));
	PBOX_ASSERT(f->updates != NULL && f->elements <= ELEMENTS);
	return f->updates;
}

bool
updates_are(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f)
{
	const struct pbox_declare *d = &sim_spec(sc, job, f)->fixed;

	return d->discipline == PBOX_DISCIPLINE_CLOCK && pbox_format_is_block(d->push_format);
}

static float
factor_of(uint16_t code)
{
	uint32_t bits = (uint32_t)code << 16;
	float a;

	memcpy(&a, &bits, sizeof(a));
	return a;
}

/* The next push of the process. */
static void
next_push(struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h,
	struct from *b)
{
	unsigned format = sim_spec(&s->sc, job, f)->fixed.push_format;
	struct sim_push k = {.job = job,
		.life = s->job[job].life,
		.table = f->table,
		.slot = h->worker,
		.round = h->round};
	struct pushed *p = &b->push[h->round % KEPT];
	float in[ELEMENTS], rest[ELEMENTS], a;

	p->clock = b->last = h->round;
	p->factor = sim_factor(&s->sc, &k);
	a = factor_of(p->factor);
	for (unsigned i = 0; i < f->pieces; i++)
		sim_contribution(&s->sc, &k, &f->piece[i], (uint8_t *)(in + f->piece[i].at));
	for (uint32_t i = 0; i < f->elements; i++) {
		rest[i] = b->rest[i] / a;
		if (!(fabsf(rest[i]) < 0x1p100f))
			rest[i] = 0;
		else
			b->rest[i] = 0;
	}
	pbox_reduce_scalar.encode(p->codes, format, in, rest, f->elements);
	for (uint32_t i = 0; i < f->elements; i++) {
		volatile float left = a * rest[i];

		b->rest[i] = b->rest[i] != 0 ? b->rest[i] + left : left;
	}
}

void
updates_sent(struct sim *s, const struct sim_worker *w, const uint8_t *frame, uint32_t bytes)
{
	struct sim_fragment *f;
	const struct pushed *p;
	struct pbox_hdr h;
	struct from *b;
	unsigned format;
	size_t size;

	if (w->restarted || pbox_frame_decode(frame, bytes, true, &h, &size) != PBOX_WIRE_OK ||
		(h.type != PBOX_PUSH && h.type != PBOX_PUSHPULL) || h.worker >= SIM_WORKERS)
		return;
	f = sim_find(&s->job[w->job], h.chunk, h.frag);
	if (f == NULL || !updates_are(&s->sc, w->job, f) || clock_was_away(f, h.worker))
		return;
	b = &updates_of(f)->from[h.worker];
	format = sim_spec(&s->sc, w->job, f)->fixed.push_format;
	if (b->began != w->began)
		*b = (struct from){.began = w->began};
	if (h.round == b->last + 1)
		next_push(s, w->job, f, &h, b);
	p = &b->push[h.round % KEPT];
	if (p->clock != h.round)
		sim_fail(s, "job %u worker %u: chunk %x frag %u: push %u is sent after push %u",
			w->job, h.worker, h.chunk, h.frag, h.round, b->last);
	else if (h.aux != p->factor || h.format != format || h.fmt_arg != pbox_format_arg(format) ||
		 h.length != pbox_payload_bytes(format, f->elements) ||
		 memcmp(p->codes, frame + PBOX_HDR_LEN, h.length) != 0)
		sim_fail(s,
			"job %u worker %u: chunk %x frag %u: push %u brings other codes than those that its update, factor and residual make",
			w->job, h.worker, h.chunk, h.frag, h.round);
}

void
updates_shown(struct sim_fragment *f, unsigned worker, uint32_t version)
{
	struct sim_updates *u = updates_of(f);

	if (u->shown[version % SHOWN].version != version)
		memset(&u->shown[version % SHOWN], 0, sizeof(u->shown[0]));
	u->shown[version % SHOWN].version = version;
	if (u->shown[version % SHOWN].last[worker] == 0)
		u->shown[version % SHOWN].last[worker] = u->from[worker].last;
}

uint32_t
updates_known(const struct sim_fragment *f, unsigned worker, uint32_t version, uint32_t least)
{
	const struct sim_updates *u = f->updates;
	uint32_t last;

	if (u == NULL || u->shown[version % SHOWN].version != version)
		return least;
	last = u->shown[version % SHOWN].last[worker];
	return pbox_serial_diff(last, least) > 0 ? last : least;
}

bool
updates_value(const struct sim *s, unsigned job, const struct sim_fragment *f, unsigned worker,
	uint32_t clock, const struct sim_piece *p, float *out)
{
	unsigned format = sim_spec(&s->sc, job, f)->fixed.push_format;
	const struct sim_updates *u = f->updates;
	float value[ELEMENTS];

	if (u == NULL || u->from[worker].push[clock % KEPT].clock != clock)
		return false;
	pbox_reduce_scalar.decode(
		value, u->from[worker].push[clock % KEPT].codes, format, f->elements);
	memcpy(out, value + p->at, p->elements * sizeof(*out));
	return true;
}

void
updates_add(float *to, const uint8_t *push, unsigned format, uint16_t aux, bool zero, uint32_t n)
{
	uint32_t bits = (uint32_t)aux << 16;
	float a, value[SIM_MTU / 4];
	bool block = pbox_format_is_block(format);

	memcpy(&a, &bits, sizeof(a));
	if (block && !zero)
		pbox_reduce_scalar.decode(value, push, format, n);
	for (uint32_t i = 0; i < n; i++) {
		volatile float product = a * (zero           ? 0.0f
						     : block ? value[i]
							     : sim_widen(push, format, i));

		to[i] = to[i] + product;
	}
}

void
updates_free(struct sim_fragment *f)
{
	free(f->updates);
	f->updates = NULL;
}
