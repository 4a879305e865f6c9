/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include <pbox_reduce.h>

#include "law_blocks.h"

/*
 * u = sent + residual, and each residual changes once a version: so the bytes of a contribution follow from what its process
 * has pushed of the fragment before. A process that is started again begins with 0.
 */

#define UNSEEN  3
#define GUESSES 12

struct sim_blocks {
	struct brought {
		bool made;
		uint32_t round; /* of the codes */
		unsigned kills; /* in the job, when its process was seen first */
		unsigned n;     /* residuals that it may have: several may make the same codes */
		float rest[GUESSES][SIM_MTU / 4];
		float value[SIM_MTU / 4]; /* what counts in the round that is summed */
		uint8_t codes[SIM_MTU];
	} of[SIM_WORKERS];
};

bool
blocks_are(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f)
{
	return pbox_format_is_block(sim_spec(sc, job, f)->fixed.push_format);
}

/* The codes of a push of this round, if the residual was `rest`; it is what it is then. */
static void
codes_of_push(struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h,
	float *rest, uint8_t *codes)
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
	pbox_reduce_scalar.encode(codes, d->push_format, in, rest, f->elements);
}

/* Do the codes of a push follow from this residual? unseen: rounds before it that the process has pushed since. Then `rest` is what
 * it is after that. */
static bool
codes_follow(struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload, size_t bytes, float *rest, unsigned unseen)
{
	uint8_t codes[SIM_MTU];

	for (; unseen > 0; unseen--) {
		struct pbox_hdr before = *h;

		before.round -= unseen;
		codes_of_push(s, job, f, &before, rest, codes);
	}
	codes_of_push(s, job, f, h, rest, codes);
	return memcmp(codes, payload, bytes) == 0;
}

/* A push of a round that its process has not sent before; false: it does not follow from what it has sent. */
static bool
is_next(struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload, size_t bytes, struct brought *b, bool old)
{
	unsigned kills = s->job[job].kills, n = 0;
	bool begins;

	for (unsigned i = 0; !old && i < b->n; i++) {
		if (!codes_follow(s, job, f, h, payload, bytes, b->rest[i], 0))
			continue;
		memmove(b->rest[n++], b->rest[i], sizeof(b->rest[0]));
	}
	begins = n == 0 && kills != b->kills;
	/* One that was started again begins with 0, and with rounds that the box may have: a question is answered then, and nothing of
	 * them may have come. */
	for (unsigned i = 0; kills != b->kills && i <= UNSEEN && n < GUESSES; i++) {
		memset(b->rest[n], 0, sizeof(b->rest[n]));
		n += codes_follow(s, job, f, h, payload, bytes, b->rest[n], i);
	}
	if (n == 0)
		return false;
	b->n = n;
	b->kills = begins ? kills : b->kills;
	b->round = h->round;
	b->made = true;
	memcpy(b->codes, payload, bytes);
	return true;
}

void
blocks_contribution(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload, bool first)
{
	unsigned format = sim_spec(&s->sc, job, f)->fixed.push_format;
	static const uint8_t zeros[SIM_MTU];
	size_t bytes = pbox_payload_bytes(format, f->elements);
	struct brought *b;
	bool again, old, good;

	if ((h->flags & PBOX_F_ZERO) != 0 && h->length == 0)
		payload = zeros; /* as the relay has made it of such a payload (sim_noise_zero) */
	else if (h->format != format || h->length != bytes)
		return; /* noise */
	if (f->blocks == NULL)
		f->blocks = calloc(1, sizeof(struct sim_blocks));
	PBOX_ASSERT(f->blocks != NULL && h->worker < SIM_WORKERS);
	b = &((struct sim_blocks *)f->blocks)->of[h->worker];
	again = b->made && b->round == h->round && memcmp(b->codes, payload, bytes) == 0;
	old = b->made && pbox_serial_diff(h->round, b->round) < 0;
	if (!b->made)
		b->n = 1; /* 0 */
	good = again ||
	       is_next(s, job, f, h, payload, bytes, b, old || (b->made && b->round == h->round));
	if (!good && !old)
		sim_fail(s,
			"job %u worker %u: chunk %x frag %u of round %u brings other codes than those that its gradient and residual make",
			job, h->worker, f->chunk, f->frag, h->round);
	if (good && first)
		pbox_reduce_scalar.decode(b->value, payload, format, f->elements);
}

const float *
blocks_value(const struct sim_fragment *f, unsigned slot)
{
	static const float none[SIM_MTU / 4];

	return f->blocks != NULL ? ((struct sim_blocks *)f->blocks)->of[slot].value : none;
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
