/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "shard_impl.h"

struct pbox_round *
shard_round_open(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_slot *slot)
{
	struct pbox_round *r = slot->round;
	unsigned words = (j->job->workers + 63u) / 64;

	if (r != NULL)
		return r;
	r = j->free_round;
	if (r == NULL)
		return NULL;
	j->free_round = r->next;
	r->arrived = r->folded = 0;
	r->acc = NULL;
	r->open = true;
	memset(r->has, 0, words * sizeof(*r->has));
	memset(r->want, 0, words * sizeof(*r->want));
	slot->round = r;
	pbox_stat_add(&s->stats[PBOX_SS_ROUNDS_OPEN], 1);
	return r;
}

static void
acc_free(struct pbox_shard_job *j, struct pbox_round *r)
{
	if (r->acc == NULL)
		return;
	*(void **)(void *)r->acc = j->free_acc;
	j->free_acc = r->acc;
	r->acc = NULL;
}

void
shard_round_close(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_slot *slot)
{
	struct pbox_round *r = slot->round;

	acc_free(j, r);
	r->open = false;
	r->next = j->free_round;
	j->free_round = r;
	slot->round = NULL;
	pbox_stat_add(&s->stats[PBOX_SS_ROUNDS_OPEN], (uint64_t)-1);
}

/* Give back the packets of workers first .. end-1. */
static void
release(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_round *r, unsigned first,
	unsigned end)
{
	void *batch[64];
	unsigned n = 0, total = 0;

	for (unsigned w = first; w < end; w++) {
		if (!bit_get(r->has, w) || r->handle[w] == NULL)
			continue;
		batch[n++] = r->handle[w];
		r->handle[w] = NULL;
		total++;
		if (n == 64) {
			s->conf.ops->release(s->conf.ctx, batch, n);
			n = 0;
		}
	}
	if (n > 0)
		s->conf.ops->release(s->conf.ctx, batch, n);
	j->held -= total;
	pbox_stat_add(&s->stats[PBOX_SS_HELD], (uint64_t)0 - total);
}

static struct pbox_sources
sources(struct pbox_shard *s, const struct target *g, unsigned end)
{
	const struct pbox_round *r = g->slot->round;
	struct pbox_sources src = {
		.src = r->payload + r->folded,
		.n = end - r->folded,
		.elem = (enum pbox_elem)g->st->t->push_format,
		.acc = r->acc,
	};

	if (g->st->t->op == PBOX_OP_WEIGHTED_MEAN) {
		for (unsigned i = 0; i < src.n; i++)
			s->weight[i] = (float)r->weight[r->folded + i];
		src.weight = s->weight;
	}
	return src;
}

/*
 * The job is at the bound of what it may hold here: sum what stands complete at the front of
 * this round and give the packets back. Same order, same bits.
 */
static void
fold(struct pbox_shard *s, const struct target *g)
{
	struct pbox_shard_job *j = g->j;
	struct pbox_round *r = g->slot->round;
	unsigned end = r->folded;
	struct pbox_sources src;

	while (end < j->job->workers && bit_get(r->has, end))
		end++;
	if (end == r->folded || (r->acc == NULL && j->free_acc == NULL))
		return;
	src = sources(s, g, end);
	if (r->acc == NULL) {
		r->acc = j->free_acc;
		j->free_acc = *(void **)j->free_acc;
	}
	s->conf.reduce->sum(r->acc, &src, 0, g->elements);
	release(s, j, r, r->folded, end);
	r->folded = (uint16_t)end;
	count(s, PBOX_SS_FOLDS);
}

static struct shard_group *
scalars(struct pbox_shard_table *st, unsigned group, uint32_t round)
{
	struct shard_group *k = &st->group[group][round & 1];
	struct pbox_schedule *sched = &st->t->schedule[group];
	uint32_t sets = atomic_load_explicit(&sched->count, memory_order_acquire);
	const struct pbox_hyper *h;

	/* a SET for this round may come after the first contribution to it */
	if (k->valid && k->round == round && k->sets == sets)
		return k;
	h = pbox_schedule_at(sched, round);
	k->round = round;
	k->sets = sets;
	k->valid = true;
	k->has_lr = h->has_lr != 0;
	k->clip = (float)h->clip_value;
	if (st->t->mode == PBOX_MODE_OPTIMISER && k->has_lr)
		pbox_optim_scalars(&k->k, h, (enum pbox_optim_kind)st->t->optimiser, round);
	return k;
}

/* R5.2. The samples are 64 bit: 4096 workers x 2^32 do not fit the header, the factor is exact. */
static float
factor(const struct pbox_table *t, unsigned workers, uint64_t samples)
{
	switch (t->op) {
	case PBOX_OP_MEAN:
		return (float)(1.0 / workers);
	case PBOX_OP_SAMPLE_MEAN:
	case PBOX_OP_WEIGHTED_MEAN:
		return samples == 0 ? 0.0f : (float)(1.0 / (double)samples);
	default:
		return 1.0f;
	}
}

static void
publish(struct pbox_shard *s, const struct target *g, uint16_t frag)
{
	const struct pbox_table *t = g->st->t;
	unsigned size = pbox_format_size(t->pull_format);
	size_t first = (size_t)frag * t->frag_elements;
	const void *answer = g->c->wire != NULL ? g->c->wire + first * size
						: (const void *)(g->c->param + first);

	(void)s;
	g->slot->payload_crc = pbox_crc32c(0, answer, (size_t)g->elements * size);
	g->slot->has_result = 1;
}

/* All have contributed: sum, optimise, publish, answer. */
static void
finish(struct pbox_shard *s, const struct target *g, const struct pbox_frame *last)
{
	struct pbox_shard_job *j = g->j;
	struct pbox_table *t = g->st->t;
	struct pbox_round *r = g->slot->round;
	unsigned n = j->job->workers;
	uint32_t round = g->slot->version + 1, now_us = (uint32_t)(s->now_ns / 1000);
	struct shard_group *k = scalars(g->st, g->c->group, round);
	struct pbox_sources src = sources(s, g, n);
	size_t first = (size_t)last->hdr.frag * t->frag_elements;
	uint64_t samples = 0;
	struct pbox_update u = {
		.reduce = s->conf.reduce,
		.optim = s->conf.optim,
		.kind = (enum pbox_optim_kind)t->optimiser,
		.k = t->mode == PBOX_MODE_OPTIMISER ? &k->k : NULL,
		.clip = k->clip,
		.param = g->c->param + first,
		.s0 = g->c->s0 != NULL ? g->c->s0 + first : NULL,
		.s1 = g->c->s1 != NULL ? g->c->s1 + first : NULL,
		.wire = g->c->wire != NULL ? g->c->wire + first * 2 : NULL,
		.wire_elem = (enum pbox_elem)t->pull_format,
	};

	for (unsigned w = 0; w < n; w++)
		samples += r->weight[w];
	u.factor = factor(t, n, samples);
	pbox_optim_update(&u, &src, g->elements);
	g->slot->version = round;
	g->slot->samples = samples > UINT32_MAX ? UINT32_MAX : (uint32_t)samples;
	g->slot->contributors = (uint16_t)n;
	publish(s, g, last->hdr.frag);
	release(s, j, r, r->folded, n);
	count(s, PBOX_SS_ROUNDS);
	if (pbox_serial_diff(round, atomic_load_explicit(&g->st->max_round, memory_order_relaxed)) >
		0)
		atomic_store_explicit(&g->st->max_round, round, memory_order_relaxed);
	for (unsigned w = 0; w < n; w++)
		if (bit_get(r->want, w))
			shard_send_result(s, g, last->hdr.chunk, last->hdr.frag, w, r->ts[w],
				now_us - r->at_us[w]);
	shard_round_close(s, j, g->slot);
}

/* Put a first contribution into the round; false when there is no room to hold it. */
static bool
keep(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_shard_job *j = g->j;
	struct pbox_round *r = g->slot->round;
	unsigned w = f->hdr.worker;
	bool holds = f->hdr.length > 0;

	r->handle[w] = holds ? f->handle : NULL;
	r->payload[w] = holds ? f->payload : NULL;
	r->weight[w] = f->hdr.weight;
	bit_set(r->has, w);
	r->arrived++;
	if (holds) {
		j->held++;
		pbox_stat_add(&s->stats[PBOX_SS_HELD], 1);
	}
	if (r->arrived < j->job->workers && j->held > j->hold_share) {
		fold(s, g);
		if (j->held > j->hold_share && r->handle[w] == f->handle && holds) {
			r->handle[w] = NULL;
			bit_clear(r->has, w);
			r->arrived--;
			j->held--;
			pbox_stat_add(&s->stats[PBOX_SS_HELD], (uint64_t)-1);
			return false;
		}
	}
	return true;
}

/* Remember whom to answer when the round is finished. */
static void
want(struct pbox_shard *s, struct pbox_round *r, const struct pbox_frame *f)
{
	unsigned w = f->hdr.worker;

	if (!bit_get(r->want, w)) {
		r->ts[w] = f->hdr.ts;
		r->at_us[w] = (uint32_t)(s->now_ns / 1000);
	}
	bit_set(r->want, w);
}

static void
answer_pending(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	if (f->hdr.type == PBOX_PUSH) {
		shard_send_plain(s, g, f, PBOX_PUSH_OK);
	} else {
		want(s, g->slot->round, f);
		shard_send_wait(s, g, f);
	}
}

/* PUSH or PUSHPULL of the round in progress. True: the packet is held. */
static bool
contribute_now(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_round *r = g->slot->round;

	if (r != NULL && bit_get(r->has, f->hdr.worker)) {
		count(s, PBOX_SS_RX_DUP_PENDING);
		answer_pending(s, g, f);
		return false;
	}
	if (g->st->t->mode == PBOX_MODE_OPTIMISER &&
		!scalars(g->st, g->c->group, f->hdr.round)->has_lr) {
		count(s, PBOX_SS_RX_EARLY);
		shard_send_error(s, f, PBOX_E_NO_LR);
		return false;
	}
	r = shard_round_open(s, g->j, g->slot);
	if (r == NULL) {
		count(s, PBOX_SS_DROP_NO_SLOT);
		return false;
	}
	if (!keep(s, g, f)) {
		count(s, PBOX_SS_DROP_NO_BUFFER);
		if (r->arrived == 0)
			shard_round_close(s, g->j, g->slot);
		return false;
	}
	count(s, PBOX_SS_RX_CONTRIBUTION);
	pbox_stat_add(&s->stats[PBOX_SS_RX_BYTES], f->hdr.length);
	if (f->hdr.type == PBOX_PUSHPULL)
		want(s, r, f);
	else
		shard_send_plain(s, g, f, PBOX_PUSH_OK);
	if (r->arrived == g->j->job->workers)
		finish(s, g, f);
	return f->hdr.length > 0; /* if no longer held, it has come back through release */
}

bool
shard_contribute(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	int32_t ahead = pbox_serial_diff(f->hdr.round, g->slot->version);

	if (!initialised(g)) {
		count(s, PBOX_SS_RX_EARLY);
		shard_send_wait(s, g, f);
		return false;
	}
	if (ahead == 1)
		return contribute_now(s, g, f);
	if (ahead > 1) {
		count(s, PBOX_SS_DROP_ROUND_FUTURE);
	} else if (ahead < 0 || g->slot->contributors == 0) {
		count(s, PBOX_SS_DROP_ROUND_STALE); /* round 0 is nobody's contribution */
	} else {
		count(s, PBOX_SS_RX_DUP_DONE);
		if (f->hdr.type == PBOX_PUSH)
			shard_send_plain(s, g, f, PBOX_PUSH_OK);
		else
			shard_send_result(
				s, g, f->hdr.chunk, f->hdr.frag, f->hdr.worker, f->hdr.ts, 0);
	}
	return false;
}

void
shard_initialise(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_table *t = g->st->t;
	unsigned piece = f->hdr.base / t->init_elements;
	unsigned pieces = (g->elements + t->init_elements - 1) / t->init_elements;
	size_t first = (size_t)f->hdr.frag * t->frag_elements;
	struct pbox_round *r = g->slot->round;

	count(s, PBOX_SS_RX_INIT);
	if (!g->slot->has_result && (g->slot->init & 1u << piece) == 0) {
		float *at = g->c->param + first + f->hdr.base;

		if ((f->hdr.flags & PBOX_F_ZERO) != 0)
			memset(at, 0,
				sizeof(float) * (g->elements - f->hdr.base < t->init_elements
								? g->elements - f->hdr.base
								: t->init_elements));
		else
			memcpy(at, f->payload, f->hdr.length);
		g->slot->init |= (uint8_t)(1u << piece);
		if (g->slot->init == (1u << pieces) - 1) {
			if (g->c->wire != NULL)
				s->conf.reduce->pack(g->c->wire + first * 2,
					(enum pbox_elem)t->pull_format, g->c->param + first,
					g->elements);
			publish(s, g, f->hdr.frag);
			for (unsigned w = 0; r != NULL && w < g->j->job->workers; w++)
				if (bit_get(r->want, w))
					shard_send_result(s, g, f->hdr.chunk, f->hdr.frag, w,
						r->ts[w],
						(uint32_t)(s->now_ns / 1000) - r->at_us[w]);
			if (r != NULL)
				shard_round_close(s, g->j, g->slot);
		}
	}
	shard_send_plain(s, g, f, PBOX_INIT_OK);
}

void
shard_drop_rounds(struct pbox_shard *s, struct pbox_shard_job *j)
{
	for (uint32_t i = 0; i < j->n_rounds; i++) {
		struct pbox_round *r =
			(struct pbox_round *)(void *)(j->round_mem + i * j->round_size);

		if (!r->open)
			continue;
		release(s, j, r, r->folded, j->job->workers);
		r->open = false;
		pbox_stat_add(&s->stats[PBOX_SS_ROUNDS_OPEN], (uint64_t)-1);
	}
	PBOX_ASSERT(j->held == 0);
}
