/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include <pbox_reduce.h>

#include "box.h"
#include "law.h"
#include "law_blocks.h"
#include "operations.h"
#include "shard_impl.h"

/*
 * u = sent + residual, and each residual changes once a version: so the bytes of a contribution follow from what its process
 * has sent of the fragment before. They are computed where a process sends, for there nothing is lost and each frame is of a process
 * that is known. One that is started again begins with 0.
 */

struct sim_blocks {
	struct sent {
		uint64_t began; /* the process */
		bool made;
		uint32_t round;                            /* of the codes */
		float rest[SIM_MTU / 4], was[SIM_MTU / 4]; /* after that, and before it */
	} sent[SIM_WORKERS];                               /* by process */
	/* What counts in a round, by its first slot: of the one that is summed, and of the next one. */
	float (*value[2])[SIM_MTU / 4];
};

/* Pushes, whatever the table is; a result is another matter. */
static void
nodes_scenario(struct sim_scenario *sc, uint64_t seed)
{
	for (unsigned i = 0; i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];

		for (unsigned t = 0; !j->plan && !j->shrink && t < j->tables; t++) {
			struct pbox_declare *d = &j->table[t].fixed;
			uint64_t x = sim_mix(seed, i * SIM_TABLES + t);

			if (j->table[t].law != &sim_law_rounds ||
				(j->slots != 0 && d->op == PBOX_OP_WEIGHTED_MEAN))
				continue;
			d->push_format = x % 2 == 0 ? PBOX_FMT_INT8 : PBOX_FMT_MXFP4;
			if (d->mode == PBOX_MODE_ALLREDUCE)
				d->pull_format = d->push_format;
			if (d->op != PBOX_OP_WEIGHTED_MEAN && (x >> 16) % 2 == 0)
				d->flags |= PBOX_DECLARE_MIXED;
			if (d->mode == PBOX_MODE_OPTIMISER && j->slots == 0 && x >> 8 & 1)
				d->pull_format = x >> 9 & 1 ? PBOX_FMT_INT8 : PBOX_FMT_MXFP4;
		}
	}
}

/* At one box, where nobody is given up. */
void
blocks_scenario(struct sim_scenario *sc, uint64_t seed, const struct sim_limits *limits)
{
	if (limits->nodes)
		nodes_scenario(sc, seed);
	for (unsigned i = 0; (limits->blocks || limits->replicas) && i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];

		for (unsigned t = 0; j->slots == 0 && !j->shrink && t < j->tables; t++) {
			struct pbox_declare *d = &j->table[t].fixed;
			unsigned format = sim_mix(seed, i * SIM_TABLES + t) % 2 == 0
						  ? PBOX_FMT_INT8
						  : PBOX_FMT_MXFP4;

			if (j->table[t].law != &sim_law_rounds)
				continue;
			if (limits->replicas && d->mode == PBOX_MODE_OPTIMISER)
				d->pull_format = (uint8_t)format;
			if (!limits->blocks)
				continue;
			d->mode = PBOX_MODE_ALLREDUCE;
			d->optimiser = PBOX_OPT_NONE;
			d->push_format = d->pull_format = (uint8_t)format;
		}
	}
}

bool
blocks_plain(const struct sim_scenario *sc, unsigned job, unsigned table, unsigned worker,
	uint32_t round)
{
	uint64_t x = sim_mix(sc->seed ^ 0x9A1,
		(uint64_t)job << 48 | (uint64_t)table << 40 | (uint64_t)worker << 32 | round >> 1);

	return (sc->job[job].table[table].fixed.flags & PBOX_DECLARE_MIXED) != 0 && x % 3 == 0;
}

static struct sim_blocks *
blocks_of(struct sim_fragment *f)
{
	struct sim_blocks *b = f->blocks;

	if (b != NULL)
		return b;
	b = f->blocks = calloc(1, sizeof(*b));
	PBOX_ASSERT(b != NULL);
	for (unsigned i = 0; i < 2; i++) {
		b->value[i] = calloc(f->slots, sizeof(*b->value[i]));
		PBOX_ASSERT(b->value[i] != NULL);
	}
	return b;
}

bool
blocks_are(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f)
{
	const struct pbox_declare *d = &sim_spec(sc, job, f)->fixed;

	return d->discipline == PBOX_DISCIPLINE_ROUNDS && pbox_format_is_block(d->push_format);
}

bool
blocks_answer(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f)
{
	return blocks_are(sc, job, f) && sim_spec(sc, job, f)->fixed.mode == PBOX_MODE_ALLREDUCE;
}

/* What a process pushes of a node. */
static void
node_of(const struct sim *s, const struct sim_fragment *f, const struct sim_push *k, unsigned width,
	float *in)
{
	const struct pbox_declare *d = &sim_spec(&s->sc, k->job, f)->fixed;
	uint32_t weight = sim_weight(&s->sc, k);

	for (unsigned i = 0; i < f->pieces; i++)
		sim_node(&s->sc, k, width, &f->piece[i], (uint8_t *)(in + f->piece[i].at));
	for (uint32_t i = 0; i < f->elements && d->op == PBOX_OP_WEIGHTED_MEAN; i++)
		in[i] = weight == 0 ? 0.0f : (float)weight * in[i];
}

/* The nodes of a round, in the order of their slots, the residual going from one to the next: as codes those of the node that begins with
 * slot `wanted`. Of plain operations all nodes but the first are zeros, and have none. In fp32 nothing is taken from the residual, or left. */
static void
codes_of_round(struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h,
	unsigned wanted, float *rest, uint8_t *codes, bool fp32)
{
	const struct sim_job_spec *spec = &s->sc.job[job];
	const struct pbox_declare *d = &sim_spec(&s->sc, job, f)->fixed;
	unsigned first = h->worker, end = h->worker + 1u;
	struct sim_push k = {
		.job = job, .life = s->job[job].life, .table = f->table, .round = h->round};
	float in[SIM_MTU / 4];
	uint8_t made[SIM_MTU];

	if (spec->slots != 0) {
		first = sim_slots_of(spec, h->worker);
		end = spec->plain ? first + 1 : sim_slots_of(spec, h->worker + 1);
	}
	while (first < end) {
		unsigned width = 1;

		while (first % (2 * width) == 0 && first + width < spec->slots &&
			(first + 2 * width <= end || end == spec->slots))
			width *= 2;
		k.slot = first;
		node_of(s, f, &k, width, in);
		if (!fp32)
			pbox_reduce_scalar.encode(made, d->push_format, in, rest, f->elements);
		if (first == wanted && fp32)
			memcpy(codes, in, f->elements * sizeof(*in));
		else if (first == wanted)
			memcpy(codes, made, pbox_payload_bytes(d->push_format, f->elements));
		first += width;
	}
}

/* Is the frame what its process must bring? */
static bool
brings_codes(struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload, struct sent *b)
{
	const struct sim_job_spec *spec = &s->sc.job[job];
	bool fp32 = blocks_plain(&s->sc, job, f->table, h->worker, h->round);
	unsigned format = fp32 ? PBOX_FMT_FP32 : sim_spec(&s->sc, job, f)->fixed.push_format, first,
		 end;
	float rest[SIM_MTU / 4];
	uint8_t codes[SIM_MTU];

	if (!slots_of_frame(spec, h, &first, &end))
		return false;
	if (!b->made || h->round != b->round) {
		memcpy(b->was, b->rest, sizeof(b->was));
		codes_of_round(s, job, f, h, first, b->rest, codes, fp32);
		b->round = h->round;
		b->made = true;
	}
	if (h->format != format)
		return false;
	if (spec->plain && first != sim_slots_of(spec, h->worker))
		return (h->flags & PBOX_F_ZERO) != 0 && h->length == 0;
	memcpy(rest, b->was, sizeof(rest));
	codes_of_round(s, job, f, h, first, rest, codes, fp32);
	return h->length == pbox_payload_bytes(format, f->elements) &&
	       memcmp(codes, payload, h->length) == 0;
}

void
blocks_sent(struct sim *s, const struct sim_worker *w, const uint8_t *frame, uint32_t bytes)
{
	struct sim_fragment *f;
	struct pbox_hdr h;
	struct sent *b;
	size_t size;

	if (w->number >= SIM_WORKERS ||
		pbox_frame_decode(frame, bytes, true, &h, &size) != PBOX_WIRE_OK ||
		(h.type != PBOX_PUSH && h.type != PBOX_PUSHPULL))
		return;
	f = sim_find(&s->job[w->job], h.chunk, h.frag);
	if (f == NULL || !blocks_are(&s->sc, w->job, f))
		return;
	b = &blocks_of(f)->sent[w->number];
	if (b->began != w->began)
		*b = (struct sent){.began = w->began};
	if (b->made && pbox_serial_diff(h.round, b->round) < 0) {
		sim_fail(s, "job %u worker %u: chunk %x frag %u of round %u is sent after round %u",
			w->job, h.worker, h.chunk, h.frag, h.round, b->round);
		return;
	}
	if (!brings_codes(s, w->job, f, &h, frame + PBOX_HDR_LEN, b))
		sim_fail(s,
			"job %u worker %u: chunk %x frag %u of round %u brings other codes than those that its gradient and residual make (base %x)",
			w->job, h.worker, h.chunk, h.frag, h.round, h.base);
}

/*
 * A contribution comes again. A process that was started again has another residual, and brings other codes for the round than the
 * one that was killed: the box may have refused those for want of room, or put the new ones in the place of some that it has not
 * verified. Frames do not say which; what the box holds does.
 */
static bool
takes_again(const struct sim *s, unsigned job, const struct sim_fragment *f,
	const struct pbox_hdr *h, unsigned first)
{
	const struct pbox_table *t = sim_box_table(s, job, f->table);
	const struct pbox_fragment *e;
	const struct pbox_record *r;

	if (t == NULL)
		return false;
	e = &t->chunk[f->chunk - t->first_chunk_id].fragment[f->frag];
	r = e->record;
	if ((e->closed & PBOX_FRAGMENT_RESTORING) != 0 || h->round != e->version + 1)
		return false;
	return r == NULL || !pbox_bit_get(r->has, first) ||
	       (r->from[first].unverified && r->from[first].handle != NULL);
}

void
blocks_contribution(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	unsigned format = sim_spec(&s->sc, job, f)->fixed.push_format, first, end;
	uint32_t weight;
	float *value;

	if (!slots_of_frame(&s->sc.job[job], h, &first, &end) || end > f->slots)
		return;
	if (pbox_serial_diff(h->round, f->slot[first].arrived) <= 0 &&
		!takes_again(s, job, f, h, first))
		return;
	value = blocks_of(f)->value[h->round & 1][first];
	/* it takes the place of what the last round but one was made of, and no RESULT may have been asked for */
	if (f->ready && pbox_serial_diff(h->round - 2, f->version) > 0)
		sim_expected(&s->sc, job, s->job[job].life, f, h->round - 2, &weight);
	if ((h->flags & PBOX_F_ZERO) != 0 && h->length == 0)
		memset(value, 0, f->elements * sizeof(*value));
	else if (h->format == format && h->length == pbox_payload_bytes(format, f->elements))
		pbox_reduce_scalar.decode(value, payload, format, f->elements);
	else if (h->format == PBOX_FMT_FP32 && h->length == f->elements * sizeof(*value))
		memcpy(value, payload, h->length); /* MIXED (R13.10) */
}

const float *
blocks_value(const struct sim_fragment *f, unsigned slot, uint32_t round)
{
	static const float none[SIM_MTU / 4];

	return f->blocks != NULL ? ((struct sim_blocks *)f->blocks)->value[round & 1][slot] : none;
}

void
blocks_version(const struct sim_scenario *sc, unsigned job, struct sim_fragment *f, float *sum)
{
	unsigned format = sim_spec(sc, job, f)->fixed.pull_format;
	uint8_t codes[SIM_MTU];

	pbox_reduce_scalar.encode(codes, format, sum, f->s0, f->elements);
	pbox_reduce_scalar.decode(f->param, codes, format, f->elements);
}

bool
blocks_says(const struct sim_fragment *f, unsigned format, const struct pbox_hdr *h,
	const void *payload, const uint8_t *want)
{
	float value[SIM_MTU / 4];

	if (h->length != pbox_payload_bytes(h->format, f->elements))
		return false;
	if (h->format == PBOX_FMT_FP32)
		return memcmp(want, payload, h->length) == 0;
	if (h->format != format || h->fmt_arg != pbox_format_arg(format))
		return false;
	pbox_reduce_scalar.decode(value, payload, format, f->elements);
	return memcmp(want, value, f->elements * sizeof(*value)) == 0;
}

void
blocks_forget(struct sim_fragment *f)
{
	struct sim_blocks *b = f->blocks;

	for (unsigned i = 0; b != NULL && i < 2; i++)
		free(b->value[i]);
	free(f->blocks);
	f->blocks = NULL;
}
