/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include <pbox_reduce.h>

#include "box.h"
#include "law_blocks.h"
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
		uint32_t round; /* of the codes */
		float rest[SIM_MTU / 4];
		uint8_t codes[SIM_MTU];
	} sent[SIM_WORKERS]; /* by process */
	/* What counts in a round, by slot: of the one that is summed, and of the next one. */
	float value[2][SIM_WORKERS][SIM_MTU / 4];
};

static struct sim_blocks *
blocks_of(struct sim_fragment *f)
{
	if (f->blocks == NULL)
		f->blocks = calloc(1, sizeof(struct sim_blocks));
	PBOX_ASSERT(f->blocks != NULL);
	return f->blocks;
}

bool
blocks_are(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f)
{
	return pbox_format_is_block(sim_spec(sc, job, f)->fixed.push_format);
}

/* A round of which the process has sent nothing so far. */
static void
next_codes(struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h,
	struct sent *b)
{
	const struct pbox_declare *d = &sim_spec(&s->sc, job, f)->fixed;
	struct sim_push k = {.job = job,
		.life = s->job[job].life,
		.table = f->table,
		.slot = h->worker,
		.round = h->round};
	float in[SIM_MTU / 4];
	uint32_t weight = sim_weight(&s->sc, &k);

	for (unsigned i = 0; i < f->pieces; i++)
		sim_contribution(&s->sc, &k, &f->piece[i], (uint8_t *)(in + f->piece[i].at));
	for (uint32_t i = 0; i < f->elements && d->op == PBOX_OP_WEIGHTED_MEAN; i++)
		in[i] = weight == 0 ? 0.0f : (float)weight * in[i];
	pbox_reduce_scalar.encode(b->codes, d->push_format, in, b->rest, f->elements);
	b->round = h->round;
	b->made = true;
}

void
blocks_sent(struct sim *s, const struct sim_worker *w, const uint8_t *frame, uint32_t bytes)
{
	struct sim_fragment *f;
	struct pbox_hdr h;
	struct sent *b;
	unsigned format;
	size_t size;

	if (w->number >= SIM_WORKERS ||
		pbox_frame_decode(frame, bytes, true, &h, &size) != PBOX_WIRE_OK ||
		(h.type != PBOX_PUSH && h.type != PBOX_PUSHPULL))
		return;
	f = sim_find(&s->job[w->job], h.chunk, h.frag);
	if (f == NULL || !blocks_are(&s->sc, w->job, f))
		return;
	b = &blocks_of(f)->sent[w->number];
	format = sim_spec(&s->sc, w->job, f)->fixed.push_format;
	if (b->began != w->began)
		*b = (struct sent){.began = w->began};
	if (b->made && pbox_serial_diff(h.round, b->round) < 0) {
		sim_fail(s, "job %u worker %u: chunk %x frag %u of round %u is sent after round %u",
			w->job, h.worker, h.chunk, h.frag, h.round, b->round);
		return;
	}
	if (!b->made || h.round != b->round)
		next_codes(s, w->job, f, &h, b);
	if (h.format != format || h.length != pbox_payload_bytes(format, f->elements) ||
		memcmp(b->codes, frame + PBOX_HDR_LEN, h.length) != 0)
		sim_fail(s,
			"job %u worker %u: chunk %x frag %u of round %u brings other codes than those that its gradient and residual make",
			w->job, h.worker, h.chunk, h.frag, h.round);
}

/*
 * A contribution comes again. A process that was started again has another residual, and brings other codes for the round than the
 * one that was killed: the box may have refused those for want of room, or put the new ones in the place of some that it has not
 * verified. Frames do not say which; what the box holds does.
 */
static bool
takes_again(
	const struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h)
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
	return r == NULL || !pbox_bit_get(r->has, h->worker) ||
	       (r->from[h->worker].unverified && r->from[h->worker].handle != NULL);
}

void
blocks_contribution(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload, bool first)
{
	unsigned format = sim_spec(&s->sc, job, f)->fixed.push_format;
	float *value = blocks_of(f)->value[h->round & 1][h->worker];
	uint32_t weight;

	if (!first && !takes_again(s, job, f, h))
		return;
	/* it takes the place of what the last round but one was made of, and no RESULT may have been asked for */
	if (f->ready && pbox_serial_diff(h->round - 2, f->version) > 0)
		sim_expected(&s->sc, job, s->job[job].life, f, h->round - 2, &weight);
	if ((h->flags & PBOX_F_ZERO) != 0 && h->length == 0)
		memset(value, 0, f->elements * sizeof(*value));
	else if (h->format == format && h->length == pbox_payload_bytes(format, f->elements))
		pbox_reduce_scalar.decode(value, payload, format, f->elements);
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
	free(f->blocks);
	f->blocks = NULL;
}
