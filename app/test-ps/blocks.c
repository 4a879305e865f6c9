/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Formats of blocks (R13.6): what each worker sends, and what must come back, depend on the residuals of all rounds before.
 *
 * The gradients are the 16 patterns of check.c, in fp32. From one round to the next the seed of a fragment grows by the same step,
 * so all workers and fragments whose pattern was the same in the first round have had the same patterns ever since. They are a *class*: one residual
 * is that of each of them, at fragments of one length, and so are the codes of a round. So there are 16 residuals of workers and 16 of the
 * box for each length, however many workers and fragments there are, and they are exactly what each would have. Endpoints go
 * on independently of each other, so each has its own.
 *
 * At an endpoint a worker sends a fragment of a round when it has the result of the round before. So three rounds are under way at most,
 * and codes of four are kept. What is sent is copied into packets: it may wait in a device when its memory gets the codes of a
 * later round.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "testps.h"

#define KEPT 4 /* rounds */

/** Codes of a class in a round, or what the box must say of it. */
struct codes {
	uint8_t *payload;
	uint32_t crc;
	uint8_t digest[PBOX_AUTH_DIGEST_LEN]; /**< of a job with auth */
};

/** Of the fragments of one length at one endpoint. */
struct length {
	uint32_t elements;
	uint32_t made;             /**< round of which there are codes, and those before it */
	uint32_t summed[PATTERNS]; /**< round whose result was made, by class of worker 0 */
	float *up[PATTERNS], *down[PATTERNS]; /**< residuals */
	struct codes sent[KEPT][PATTERNS], want[KEPT][PATTERNS];
	uint8_t *memory;
};

struct blocks {
	const struct data *d;
	const struct plan *p;
	uint32_t first; /**< round */
	const void **src;
	float *sum;
	struct length **of; /**< [endpoint * lengths + length] */
};

static size_t
blocks_padded(size_t bytes)
{
	return (bytes + 63) & ~(size_t)63;
}

static struct length *
length_make(const struct data *d, uint32_t elements, uint32_t round)
{
	size_t fp32 = blocks_padded(elements * sizeof(float));
	size_t wire = blocks_padded(pbox_payload_bytes(d->push, elements));
	struct length *x = calloc(1, sizeof(*x));
	uint8_t *at;

	if (x == NULL)
		return NULL;
	x->elements = elements;
	x->made = round;
	x->memory = at = aligned_alloc(64, PATTERNS * (2 * fp32 + 2 * KEPT * wire));
	if (at == NULL) {
		free(x);
		return NULL;
	}
	for (unsigned c = 0; c < PATTERNS; c++) {
		x->summed[c] = round;
		x->up[c] = memset(at, 0, fp32);
		x->down[c] = memset(at + fp32, 0, fp32);
		at += 2 * fp32;
		for (unsigned k = 0; k < KEPT; k++) {
			x->sent[k][c].payload = at;
			x->want[k][c].payload = at + wire;
			at += 2 * wire;
		}
	}
	return x;
}

struct blocks *
blocks_make(const struct data *d, const struct plan *p)
{
	size_t n = (size_t)p->endpoints * p->n_lengths;
	struct blocks *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	*b = (struct blocks){.d = d,
		.p = p,
		.first = p->round + 1,
		.src = calloc(d->workers, sizeof(*b->src)),
		.sum = aligned_alloc(64, blocks_padded(p->frag_elements * sizeof(float))),
		.of = calloc(n, sizeof(struct length *))};
	if (b->src == NULL || b->sum == NULL || b->of == NULL) {
		blocks_free(b, p);
		return NULL;
	}
	for (uint32_t i = 0; i < p->n; i++) {
		const struct fragment *f = &p->f[i];
		struct length **x = &b->of[f->endpoint * p->n_lengths + f->length];

		if (*x == NULL)
			*x = length_make(d, f->elements, p->round);
		if (*x == NULL) {
			blocks_free(b, p);
			return NULL;
		}
	}
	return b;
}

void
blocks_free(struct blocks *b, const struct plan *p)
{
	size_t n = (size_t)p->endpoints * p->n_lengths;

	if (b == NULL)
		return;
	for (size_t i = 0; b->of != NULL && i < n; i++)
		if (b->of[i] != NULL) {
			free(b->of[i]->memory);
			free(b->of[i]);
		}
	free(b->of);
	free(b->src);
	free(b->sum);
	free(b);
}

static void
codes_make(const struct data *d, struct codes *c, const float *in, float *residual, uint32_t n)
{
	size_t bytes = pbox_payload_bytes(d->push, n);

	d->reduce->encode(c->payload, d->push, in, residual, n);
	c->crc = pbox_crc32c(0, c->payload, bytes);
	if (d->auth != NULL)
		pbox_auth_digest(d->auth, c->payload, bytes, c->digest);
}

/* The codes of all classes in @p round; those of the rounds before were made in order. */
static void
length_reach(const struct blocks *b, struct length *x, uint32_t round)
{
	PBOX_ASSERT((int32_t)(x->made - round) < KEPT);
	while ((int32_t)(round - x->made) > 0) {
		uint32_t r = ++x->made;

		for (unsigned c = 0; c < PATTERNS; c++) {
			const uint8_t *pattern =
				b->d->pattern[(c + PATTERN_STEP * (r - b->first)) % PATTERNS];

			codes_make(b->d, &x->sent[r % KEPT][c],
				(const float *)(const void *)pattern, x->up[c], x->elements);
		}
	}
}

static struct length *
blocks_length(const struct blocks *b, const struct fragment *f)
{
	return b->of[f->endpoint * b->p->n_lengths + f->length];
}

static void
codes_wanted(const struct data *d, const struct codes *c, unsigned class, struct wanted *out)
{
	*out = (struct wanted){
		c->payload, d->auth != NULL ? c->digest : NULL, c->crc, class % PATTERNS};
}

void
blocks_payload(struct blocks *b, uint32_t f, uint32_t round, unsigned worker, struct wanted *out)
{
	struct length *x = blocks_length(b, &b->p->f[f]);
	unsigned class = (data_seed(b->first, f) + worker) % PATTERNS;

	length_reach(b, x, round);
	codes_wanted(b->d, &x->sent[round % KEPT][class], class, out);
}

void
blocks_want(struct blocks *b, uint32_t f, uint32_t round, unsigned worker, struct wanted *out)
{
	const struct data *d = b->d;
	struct length *x = blocks_length(b, &b->p->f[f]);
	unsigned class = data_seed(b->first, f);
	struct codes *want = &x->want[round % KEPT][class];
	struct pbox_sources s = {.src = b->src, .n = d->workers, .elem = d->push};

	if (d->reflected) { /* its own */
		blocks_payload(b, f, round, worker, out);
		return;
	}
	/* the first result of a round: all workers have sent theirs */
	if (x->summed[class] + 1 == round) {
		length_reach(b, x, round);
		for (unsigned w = 0; w < d->workers; w++)
			b->src[w] = x->sent[round % KEPT][(class + w) % PATTERNS].payload;
		d->reduce->sum(b->sum, &s, 0, x->elements);
		codes_make(d, want, b->sum, x->down[class], x->elements);
		x->summed[class] = round;
	}
	PBOX_ASSERT(x->summed[class] - round < KEPT);
	codes_wanted(d, want, class, out);
}
