/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Gradients that cost nothing to make, and results that are compared bit for bit at the speed of a
 * memory comparison.
 *
 * There are 16 payloads of random numbers. Fragment f of round r has a seed s(f, r), and worker w
 * sends pattern (s + w) mod 16 of it, or its beginning. So there are 16 different sums over all
 * workers, and they are made once by the scalar reference. A result must be its
 * seed's sum, every bit of it, and its frame must have that sum's CRC; neighbours in f and in r have
 * different seeds. Contributions that were lost, or counted twice, are among 16 (mod 16 the same for
 * workers far apart), so their sample counts differ too: worker w says w + 1, and the result their
 * sum.
 *
 * With an optimiser the parameters are kept beside, and get one step for each fragment and round. In formats of blocks there are
 * residuals, too: blocks.c.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "testps.h"

static size_t
padded(size_t bytes)
{
	return (bytes + 63) & ~(size_t)63;
}

void
reference_hyper(struct pbox_hyper *h, unsigned optimiser)
{
	pbox_hyper_defaults(h, optimiser);
	h->lr = 0.01;
	if ((pbox_optim_scalar.of[optimiser]->uses & 1u << PBOX_HYPER_MOMENTUM) != 0)
		h->momentum = 0.9;
}

static void
make_patterns(struct data *d, uint32_t n)
{
	struct pbox_random r;
	float *x = d->init;

	pbox_random_seed(&r, 20261);
	for (unsigned i = 0; i < PATTERNS; i++) {
		for (uint32_t k = 0; k < n; k++)
			x[k] = (float)pbox_random_unit(&r) - 0.5f;
		pbox_reduce_scalar.pack(d->pattern[i], d->made, x, n);
	}
}

static int
make_sums(struct data *d, uint32_t n)
{
	const void **src = calloc(d->workers, sizeof(*src));

	if (src == NULL)
		return -ENOMEM;
	for (unsigned s = 0; s < PATTERNS; s++) {
		struct pbox_sources from = {.src = src, .n = d->workers, .elem = d->push};

		for (unsigned w = 0; w < d->workers; w++)
			src[w] = d->pattern[(s + w) % PATTERNS];
		pbox_reduce_scalar.sum(d->sum[s], &from, 0, n);
		if (d->reflected)
			memcpy(d->want[s], d->pattern[s], pbox_payload_bytes(d->push, n));
		else
			pbox_reduce_scalar.pack(d->want[s], d->pull, d->sum[s], n);
	}
	free(src);
	return 0;
}

int
data_make(struct data *d, const struct plan *p, const struct testps_load *load, bool reflected,
	const struct pbox_auth_job *auth, struct pbox_error *err)
{
	uint32_t n = p->frag_elements;
	size_t wire, fp32 = padded(n * sizeof(float)), at = 0;

	*d = (struct data){.reduce = pbox_reduce_select(NULL),
		.optim = pbox_optim_select(NULL),
		.same = compare_select(),
		.workers = load->workers,
		.push = load->push,
		.pull = reflected ? load->push : load->pull,
		.made = pbox_format_is_block(load->push) ? PBOX_FMT_FP32 : load->push,
		.optimiser = load->optimiser,
		.reflected = reflected};
	wire = pbox_payload_bytes(d->made, n);
	if (wire < pbox_payload_bytes(d->pull, n))
		wire = pbox_payload_bytes(d->pull, n);
	wire = padded(wire);
	d->zone = rte_memzone_reserve_aligned(
		"testps_patterns", PATTERNS * wire, SOCKET_ID_ANY, RTE_MEMZONE_IOVA_CONTIG, 64);
	d->memory = aligned_alloc(64, PATTERNS * (wire + fp32) + fp32);
	d->pattern_crc = calloc((size_t)p->n_lengths * PATTERNS, sizeof(uint32_t));
	d->want_crc = calloc((size_t)p->n_lengths * PATTERNS, sizeof(uint32_t));
	d->pattern_digest = calloc((size_t)p->n_lengths * PATTERNS, PBOX_AUTH_DIGEST_LEN);
	d->want_digest = calloc((size_t)p->n_lengths * PATTERNS, PBOX_AUTH_DIGEST_LEN);
	if (d->zone == NULL || d->memory == NULL || d->pattern_crc == NULL || d->want_crc == NULL ||
		d->pattern_digest == NULL || d->want_digest == NULL) {
		data_free(d);
		return pbox_fail(err, ENOMEM, "no memory for gradients: give EAL more with -m");
	}
	for (unsigned i = 0; i < PATTERNS; i++) {
		d->pattern[i] = (uint8_t *)d->zone->addr + i * wire;
		d->want[i] = d->memory + at;
		at += wire;
	}
	for (unsigned i = 0; i < PATTERNS; i++, at += fp32)
		d->sum[i] = (float *)(void *)(d->memory + at);
	d->init = (float *)(void *)(d->memory + at);
	make_patterns(d, n);
	if (d->made != d->push) { /* what is sent, and what comes back, is that of blocks.c */
		d->auth = auth;
		return 0;
	}
	if (make_sums(d, n) != 0) {
		data_free(d);
		return pbox_fail(err, ENOMEM, "no memory for the reference sums");
	}
	for (unsigned k = 0; k < p->n_lengths * PATTERNS; k++) {
		d->pattern_crc[k] = pbox_crc32c(0, d->pattern[k % PATTERNS],
			pbox_payload_bytes(d->push, p->length[k / PATTERNS]));
		d->want_crc[k] = pbox_crc32c(0, d->want[k % PATTERNS],
			pbox_payload_bytes(d->pull, p->length[k / PATTERNS]));
	}
	data_keys(d, p, auth);
	return 0;
}

void
data_keys(struct data *d, const struct plan *p, const struct pbox_auth_job *auth)
{
	d->auth = auth;
	for (unsigned k = 0; auth != NULL && k < p->n_lengths * PATTERNS; k++) {
		pbox_auth_digest(auth, d->pattern[k % PATTERNS],
			pbox_payload_bytes(d->push, p->length[k / PATTERNS]), d->pattern_digest[k]);
		pbox_auth_digest(auth, d->want[k % PATTERNS],
			pbox_payload_bytes(d->pull, p->length[k / PATTERNS]), d->want_digest[k]);
	}
}

void
data_free(struct data *d)
{
	rte_memzone_free(d->zone);
	free(d->memory);
	free(d->pattern_crc);
	free(d->want_crc);
	free(d->pattern_digest);
	free(d->want_digest);
	*d = (struct data){0};
}

int
reference_make(
	struct reference *m, const struct data *d, const struct plan *p, struct pbox_error *err)
{
	size_t bytes = padded(p->elements * sizeof(float));
	unsigned states = pbox_optim_states(d->optimiser);

	*m = (struct reference){0};
	if (d->optimiser == PBOX_OPT_NONE)
		return 0;
	reference_hyper(&m->hyper, d->optimiser);
	m->param = aligned_alloc(64, bytes);
	m->s0 = states > 0 ? aligned_alloc(64, bytes) : NULL;
	m->s1 = states > 1 ? aligned_alloc(64, bytes) : NULL;
	m->wire = d->pull != PBOX_FMT_FP32 ? aligned_alloc(64, bytes) : NULL;
	m->round = calloc(p->n, sizeof(*m->round));
	m->crc = calloc(p->n, sizeof(*m->crc));
	m->digest = calloc(d->auth != NULL ? p->n : 1, sizeof(*m->digest));
	m->restored = calloc(p->n, sizeof(*m->restored));
	if (m->param == NULL || (states > 0 && m->s0 == NULL) || (states > 1 && m->s1 == NULL) ||
		(d->pull != PBOX_FMT_FP32 && m->wire == NULL) || m->round == NULL ||
		m->crc == NULL || m->digest == NULL || m->restored == NULL) {
		reference_free(m);
		return pbox_fail(err, ENOMEM,
			"no memory to keep the parameters (%zu MiB): use a smaller model or --no-check",
			bytes >> 20);
	}
	memset(m->param, 0, bytes);
	if (m->s0 != NULL)
		memset(m->s0, 0, bytes);
	if (m->s1 != NULL)
		memset(m->s1, 0, bytes);
	for (uint32_t f = 0; f < p->n; f++)
		memcpy(m->param + p->f[f].at, d->init, p->f[f].elements * sizeof(float));
	return 0;
}

void
reference_free(struct reference *m)
{
	free(m->param);
	free(m->s0);
	free(m->s1);
	free(m->wire);
	free(m->round);
	free(m->crc);
	free(m->digest);
	free(m->restored);
	*m = (struct reference){0};
}

/* What is sent of a fragment's parameters. */
static const void *
wire_of(const struct reference *m, const struct data *d, const struct fragment *x)
{
	return m->wire != NULL ? (const void *)(m->wire + pbox_payload_bytes(d->pull, x->at))
			       : m->param + x->at;
}

void
reference_keys(struct reference *m, const struct data *d, const struct plan *p)
{
	for (uint32_t f = 0; m->param != NULL && d->auth != NULL && f < p->n; f++)
		pbox_auth_digest(d->auth, wire_of(m, d, &p->f[f]),
			pbox_payload_bytes(d->pull, p->f[f].elements), m->digest[f]);
}

/* R10.8: parameters as the pull format has them, and no state. */
static void
start_again(const struct data *d, struct reference *m, const struct fragment *x)
{
	if (m->s0 != NULL)
		memset(m->s0 + x->at, 0, x->elements * sizeof(float));
	if (m->s1 != NULL)
		memset(m->s1 + x->at, 0, x->elements * sizeof(float));
	if (m->wire != NULL)
		pbox_reduce_scalar.unpack(m->param + x->at, wire_of(m, d, x), d->pull, x->elements);
}

/* The first result of a round is here: all workers have sent theirs, so nobody wants the one before. */
static void
check_step(
	const struct data *d, struct reference *m, const struct plan *p, uint32_t f, uint32_t round)
{
	const struct fragment *x = &p->f[f];
	const void *src = d->sum[data_seed(round, f)];
	const struct pbox_sources s = {.src = &src, .n = 1, .elem = PBOX_FMT_FP32};
	struct pbox_update u = {.reduce = d->reduce,
		.optim = d->optim,
		.kind = d->optimiser,
		.k = &m->k,
		.factor = (float)(1.0 / d->workers),
		.param = m->param + x->at,
		.s0 = m->s0 != NULL ? m->s0 + x->at : NULL,
		.s1 = m->s1 != NULL ? m->s1 + x->at : NULL,
		.wire = m->wire != NULL ? m->wire + pbox_payload_bytes(d->pull, x->at) : NULL,
		.wire_elem = d->pull};

	if (m->restored[f] != 0 && m->restored[f] + 1 == round)
		start_again(d, m, x);
	if (m->k_round != round) {
		pbox_optim_scalars(&m->k, &m->hyper, d->optimiser, round);
		m->k_round = round;
	}
	pbox_optim_update(&u, &s, x->elements);
	m->crc[f] = pbox_crc32c(0, wire_of(m, d, x), pbox_payload_bytes(d->pull, x->elements));
	if (d->auth != NULL)
		pbox_auth_digest(d->auth, wire_of(m, d, x),
			pbox_payload_bytes(d->pull, x->elements), m->digest[f]);
	m->round[f] = round;
}

void
data_want(const struct data *d, struct reference *m, const struct plan *p, uint32_t f,
	uint32_t round, unsigned worker, struct wanted *out)
{
	const struct fragment *x = &p->f[f];
	unsigned s = data_seed(round, f), at;

	if (d->reflected) /* its own */
		s = (s + worker) % PATTERNS;
	if (d->optimiser == PBOX_OPT_NONE) {
		at = x->length * PATTERNS + s;
		*out = (struct wanted){d->want[s], d->want_digest[at], d->want_crc[at], s};
		return;
	}
	if (m->round[f] + 1 == round)
		check_step(d, m, p, f, round);
	*out = (struct wanted){.payload = wire_of(m, d, x),
		.digest = m->digest[d->auth != NULL ? f : 0],
		.crc = m->crc[f]};
}
