/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "shard_impl.h"

static void
address(struct pbox_shard *s, struct pbox_shard_job *j, unsigned worker, struct pbox_send *out)
{
	struct shard_member *m = &j->member[worker];

	out->hdr.token = atomic_load_explicit(&j->job->token[worker], memory_order_relaxed);
	out->hdr.job = j->job->id;
	out->hdr.worker = (uint16_t)worker;
	out->hdr.incarnation = s->conf.incarnation;
	out->hdr.map_epoch = PBOX_MAP_EPOCH;
	if (m->ce) {
		out->hdr.flags |= PBOX_F_ECE;
		m->ce = false;
	}
}

void
shard_send_result(struct pbox_shard *s, const struct target *g, uint32_t chunk, uint16_t frag,
	unsigned worker, uint32_t ts, uint32_t held_us)
{
	const struct pbox_table *t = g->st->t;
	unsigned size = pbox_format_size(t->pull_format);
	size_t first = (size_t)frag * t->frag_elements;
	struct pbox_send out = {
		.hdr =
			{
				.type = PBOX_RESULT,
				.flags = PBOX_F_LAST,
				.chunk = chunk,
				.frag = frag,
				.length = (uint16_t)(g->elements * size),
				.round = g->slot->version,
				.base = g->slot->version,
				.format = t->pull_format,
				.aux = g->slot->contributors,
				.weight = g->slot->samples,
				.ts = ts,
				.held = held_us,
			},
		.payload = g->c->wire != NULL ? g->c->wire + first * size
					      : (const void *)(g->c->param + first),
		.payload_crc = g->slot->payload_crc,
		.shared = true,
	};

	address(s, g->j, worker, &out);
	out.peer = peer_of(s, g, worker);
	count(s, PBOX_SS_TX_RESULT);
	pbox_stat_add(&s->stats[PBOX_SS_TX_RESULT_BYTES], out.hdr.length);
	s->conf.ops->send(s->conf.ctx, &out);
}

/* First worker that has not contributed to the round in progress. */
static uint32_t
first_missing(const struct target *g)
{
	unsigned n = g->j->job->workers;
	const struct pbox_round *r = g->slot->round;

	if (r == NULL || !initialised(g))
		return 0;
	for (unsigned i = 0; i < (n + 63) / 64; i++)
		if (~r->has[i] != 0) {
			unsigned w = i * 64 + (unsigned)__builtin_ctzll(~r->has[i]);

			return w < n ? w : UINT32_MAX;
		}
	return UINT32_MAX;
}

void
shard_send_wait(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_round *r = g->slot->round;
	struct pbox_send out = {
		.hdr =
			{
				.type = PBOX_WAIT,
				.chunk = f->hdr.chunk,
				.frag = f->hdr.frag,
				.round = f->hdr.round,
				.base = g->slot->version,
				.aux = r != NULL ? r->arrived : 0,
				.weight = first_missing(g),
				.ts = f->hdr.ts,
			},
	};

	if (r != NULL && bit_get(r->has, f->hdr.worker))
		out.hdr.flags |= PBOX_F_HAVE;
	address(s, g->j, f->hdr.worker, &out);
	out.peer = &f->peer;
	count(s, PBOX_SS_TX_WAIT);
	s->conf.ops->send(s->conf.ctx, &out);
}

void
shard_send_plain(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f,
	enum pbox_type type)
{
	struct pbox_send out = {
		.hdr =
			{
				.type = (uint8_t)type,
				.chunk = f->hdr.chunk,
				.frag = f->hdr.frag,
				.round = f->hdr.round,
				.base = type == PBOX_INIT_OK ? f->hdr.base : g->slot->version,
				.ts = f->hdr.ts,
			},
	};

	address(s, g->j, f->hdr.worker, &out);
	out.peer = &f->peer;
	count(s, PBOX_SS_TX_OTHER);
	s->conf.ops->send(s->conf.ctx, &out);
}

void
shard_send_error(struct pbox_shard *s, const struct pbox_frame *f, enum pbox_errcode code)
{
	struct pbox_send out = {
		.hdr =
			{
				.type = PBOX_ERROR,
				.token = f->hdr.token,
				.job = f->hdr.job,
				.worker = f->hdr.worker,
				.incarnation = s->conf.incarnation,
				.chunk = f->hdr.chunk,
				.frag = f->hdr.frag,
				.round = f->hdr.round,
				.aux = (uint16_t)code,
				.ts = f->hdr.ts,
			},
		.peer = &f->peer,
	};

	if (code == PBOX_E_SESSION && !error_rate_take(&s->error_rate, s->now_ns))
		return;
	count(s, PBOX_SS_TX_OTHER);
	s->conf.ops->send(s->conf.ctx, &out);
}

void
shard_send_pong(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
{
	struct pbox_send out = {
		.hdr =
			{
				.type = PBOX_PONG,
				.chunk = f->hdr.chunk,
				.length = f->hdr.length,
				.ts = f->hdr.ts,
			},
		.payload = f->payload,
		.payload_crc = pbox_crc32c(0, f->payload, f->hdr.length),
	};

	address(s, j, f->hdr.worker, &out);
	out.peer = &f->peer; /* prove the path that was asked about */
	count(s, PBOX_SS_TX_OTHER);
	s->conf.ops->send(s->conf.ctx, &out);
}
