/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Answers of a shard: results, also for retransmissions, WAIT, HAVE and ERROR; payloads are sent without a copy (zero copy). */

#include "shard_impl.h"

static inline uint64_t
token(const struct pbox_shard_job *j, unsigned worker)
{
	return atomic_load_explicit(&j->job->token[worker], memory_order_relaxed);
}

/* Congestion that was not reported to the worker yet: once. */
static inline uint16_t
echo_congestion(struct shard_member *m)
{
	if (!m->ce)
		return 0;
	m->ce = false;
	return PBOX_F_ECE;
}

static void
shard_answer_address(
	struct pbox_shard *s, struct pbox_shard_job *j, unsigned worker, struct pbox_send *out)
{
	PBOX_ASSERT(worker < j->job->workers);
	out->hdr.token = token(j, worker);
	out->hdr.job = j->job->id;
	out->hdr.worker = (uint16_t)worker;
	out->hdr.incarnation = s->conf.incarnation;
	out->hdr.flags |= echo_congestion(&j->member[worker]);
	if (__builtin_expect(j->tagged != 0, 0))
		pbox_job_auth_seal(j->job, worker, &s->tag, out);
}

const void *
shard_answer_at(const struct target *g, unsigned format)
{
	const struct pbox_table *t = g->st->t;

	if (g->c->wire != NULL && format == t->pull_format) /* bf16, fp16, blocks */
		return pbox_chunk_frag_wire(t, g->c, g->frag);
	if (g->c->replica != NULL)
		return shard_replica(g);
	return pbox_chunk_frag_param(t, g->c, g->frag);
}

/* Are there codes of the version, and is it asked for as a difference by some, and by others not? */
static bool
may_differ(const struct target *g)
{
	return g->c->replica != NULL && g->fragment->plain == PBOX_PLAIN_NOT;
}

/* What all answers with the current version of a fragment have in common. whole: of one that may differ, in fp32. */
static inline __attribute__((always_inline)) struct pbox_send
shard_answer_result(const struct pbox_shard *s, const struct target *g, bool whole)
{
	unsigned format = whole ? shard_copy_format(g->st->t) : shard_answer_format(g);
	const struct pbox_result_rounds m = {
		.version = g->fragment->version,
		.samples = g->fragment->samples,
		.contributors = g->fragment->contributors,
	};
	struct pbox_send out = {
		.hdr =
			{
				.type = PBOX_RESULT,
				.job = g->j->job->id,
				.incarnation = s->conf.incarnation,
				.chunk = g->chunk,
				.frag = g->frag,
				.length = (uint16_t)pbox_payload_bytes(format, g->elements),
				.map_epoch = g->c->epoch,
				.format = (uint8_t)format,
				.fmt_arg = (uint8_t)pbox_format_arg(format),
				.prio = g->j->edition,
			},
		.payload = shard_answer_at(g, format),
		.payload_crc = g->fragment->payload_crc,
		.shared = true,
	};

	if (__builtin_expect(whole, 0))
		out.payload_crc = pbox_crc32c(0, out.payload, out.hdr.length);
	pbox_result_rounds_put(&out.hdr, &m);
	return out;
}

/* Its address at this endpoint is one of the session that it has now: another process may have the number of one
 * that has gone, and not the right to what that has asked for. */
static inline bool
is_reachable(const struct pbox_shard *s, const struct target *g, unsigned worker)
{
	return peer_of(s, g, worker)->token == token(g->j, worker);
}

/* To the worker's address at this endpoint, if it has one. */
static bool
send_to(struct pbox_shard *s, const struct target *g, struct pbox_send *out, unsigned worker)
{
	if (!is_reachable(s, g, worker))
		return false;
	shard_answer_address(s, g->j, worker, out);
	out->hdr.map_epoch = g->c->epoch;
	out->peer = &peer_of(s, g, worker)->at;
	s->conf.ops->send(s->conf.ctx, out);
	return true;
}

/* p: its address here, of its session. */
static inline struct pbox_send_to
receiver(struct shard_member *m, const struct shard_peer *p, unsigned worker, uint32_t ts,
	uint32_t held)
{
	return (struct pbox_send_to){
		.hdr = {.token = p->token,
			.ts = ts,
			.held = held,
			.worker = (uint16_t)worker,
			.flags = PBOX_F_LAST | echo_congestion(m)},
		.peer = &p->at,
	};
}

static void
send_result(struct pbox_shard *s, const struct target *g, const struct pbox_send *out,
	const struct pbox_send_to *to, unsigned n)
{
	bool tagged = g->j->tagged != 0;
	const uint8_t *digest = NULL;

	pbox_stat_add(&s->stats[PBOX_SS_TX_RESULT], n);
	pbox_stat_add(&s->stats[PBOX_SS_TX_RESULT_BYTES], (uint64_t)n * out->hdr.length);
	if (s->conf.ops->send_all != NULL && !tagged) {
		s->conf.ops->send_all(s->conf.ctx, out, to, n);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		struct pbox_send one = pbox_send_for(out, &to[i]);

		if (tagged) {
			one.digest = digest; /* one for all */
			pbox_job_auth_seal(g->j->job, to[i].hdr.worker, &s->tag, &one);
			digest = one.digest;
		}
		s->conf.ops->send(s->conf.ctx, &one);
	}
}

void
shard_send_batch(struct pbox_shard *s)
{
	struct pbox_send out;

	if (s->n_batched == 0)
		return;
	PBOX_ASSERT(s->n_batched <= SHARD_RECEIVERS && !is_restoring(&s->batch));
	out = shard_answer_result(s, &s->batch, s->batch_whole);
	send_result(s, &s->batch, &out, s->batch_to, s->n_batched);
	s->n_batched = 0;
}

void
shard_send_result(
	struct pbox_shard *s, const struct target *g, unsigned worker, uint32_t ts, bool whole)
{
	whole = whole && may_differ(g);
	if (!is_reachable(s, g, worker))
		return;
	if (s->n_batched == SHARD_RECEIVERS ||
		(s->n_batched > 0 && (s->batch.fragment != g->fragment || s->batch_whole != whole)))
		shard_send_batch(s);
	if (s->n_batched == 0) {
		s->batch = *g;
		s->batch_whole = whole;
	}
	PBOX_ASSERT(s->batch.fragment == g->fragment && s->batch.j == g->j);
	s->batch_to[s->n_batched++] =
		receiver(&g->j->member[worker], peer_of(s, g, worker), worker, ts, 0);
}

/* To those that want it; differs: of these to those that want it whole, or not. */
static inline __attribute__((always_inline)) void
send_wanted(struct pbox_shard *s, const struct target *g, bool differs, bool whole)
{
	const struct pbox_record *r = g->fragment->record;
	unsigned n = 0;
	uint32_t now_us = (uint32_t)(s->now_ns / 1000);
	struct pbox_send out = shard_answer_result(s, g, whole);
	const struct shard_peer *peer = peer_of(s, g, 0);
	struct pbox_send_to to[SHARD_RECEIVERS];

	for (unsigned i = 0; i < words_of(g->j); i++)
		for (uint64_t left = r->want[i]; left != 0; left &= left - 1) {
			unsigned w = i * 64 + (unsigned)__builtin_ctzll(left);
			const struct shard_peer *p = &peer[w * g->j->peers];
			struct shard_member *m = &g->j->member[w];

			if (__builtin_expect(p->token != token(g->j, w), 0))
				continue;
			if (differs && r->from[w].whole != whole)
				continue;
			atomic_store_explicit(&m->ts, r->from[w].ts, memory_order_relaxed);
			to[n++] = receiver(m, p, w, r->from[w].ts, now_us - r->from[w].at_us);
			if (n == SHARD_RECEIVERS) {
				send_result(s, g, &out, to, n);
				n = 0;
			}
		}
	if (n > 0)
		send_result(s, g, &out, to, n);
}

/* As differences, and whole. */
static __attribute__((noinline, cold)) void
send_wanted_differing(struct pbox_shard *s, const struct target *g)
{
	const struct pbox_record *r = g->fragment->record;
	bool any = false;

	send_wanted(s, g, true, false);
	for (unsigned w = 0; w < g->j->job->workers; w++)
		any |= pbox_bit_get(r->want, w) && r->from[w].whole;
	if (any)
		send_wanted(s, g, true, true);
}

void
shard_send_results(struct pbox_shard *s, const struct target *g)
{
	if (__builtin_expect(may_differ(g), 0))
		send_wanted_differing(s, g);
	else
		send_wanted(s, g, false, false);
}

static void
send_wait(
	struct pbox_shard *s, const struct target *g, unsigned worker, uint32_t round, uint32_t ts)
{
	struct pbox_send out = shard_answer(g, PBOX_WAIT, ts);

	PBOX_ASSERT(worker < g->j->job->workers);
	out.hdr.round = round;
	g->st->discipline->wait(g, worker, &out.hdr);
	if (send_to(s, g, &out, worker)) /* or it is gone, and with it what it sent */
		shard_count(s, PBOX_SS_TX_WAIT);
}

void
shard_send_wait(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	send_wait(s, g, f->hdr.worker, f->hdr.round, f->hdr.ts);
}

void
shard_send_taken_back(struct pbox_shard *s, const struct target *g, unsigned worker, uint32_t ts)
{
	send_wait(s, g, worker, g->fragment->version + 1, ts);
}

void
shard_send_to(struct pbox_shard *s, const struct target *g, struct pbox_send *out, unsigned worker)
{
	if (send_to(s, g, out, worker))
		shard_count(s, PBOX_SS_TX_OTHER);
}

void
shard_send_copy(
	struct pbox_shard *s, const struct target *g, struct pbox_send *out, unsigned worker)
{
	if (!send_to(s, g, out, worker))
		return;
	shard_count(s, PBOX_SS_TX_RESULT);
	pbox_stat_add(&s->stats[PBOX_SS_TX_RESULT_BYTES], out->hdr.length);
}

void
shard_send_at(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_send *out,
	unsigned worker, const struct pbox_peer *peer)
{
	shard_answer_address(s, j, worker, out);
	out->hdr.map_epoch = atomic_load_explicit(&j->job->map_epoch, memory_order_relaxed);
	out->peer = peer;
	shard_count(s, PBOX_SS_TX_OTHER);
	s->conf.ops->send(s->conf.ctx, out);
}

void
shard_send_error(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f,
	enum pbox_errcode code)
{
	struct pbox_send out = {
		.hdr = pbox_engine_error(f, s->conf.incarnation, code),
		.peer = g != NULL ? &peer_of(s, g, f->hdr.worker)->at : &f->peer,
	};

	if (g != NULL && !is_reachable(s, g, f->hdr.worker))
		return;
	if (code == PBOX_E_SESSION && !pbox_error_rate_take(&s->error_rate, f->peer.ip, s->now_ns))
		return;
	if (code != PBOX_E_SESSION && (f->hdr.flags & PBOX_F_AUTH) != 0)
		pbox_job_auth_seal(s->job[f->hdr.job]->job, f->hdr.worker, &s->tag, &out);
	shard_count(s, PBOX_SS_TX_OTHER);
	s->conf.ops->send(s->conf.ctx, &out);
}

void
shard_send_unready(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	shard_count(s, PBOX_SS_RX_EARLY);
	if ((g->fragment->closed & PBOX_FRAGMENT_LOST) != 0)
		shard_send_error(s, g, f, PBOX_E_LOST);
	else
		shard_send_wait(s, g, f);
}

void
shard_send_pong(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f,
	const struct pbox_peer *to, uint64_t nonce)
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

	pbox_nonce_put(&out.hdr, nonce);
	/* prove the path that was asked about */
	shard_send_at(s, j, &out, f->hdr.worker, to);
}

void
shard_finish_ready(struct pbox_shard *s)
{
	shard_send_batch(s); /* while their versions are the current ones */
	for (unsigned i = 0; i < s->n_ready; i++) {
		const struct target *g = &s->ready[i], *next = g + 1;
		const struct discipline *d = g->st->discipline;
		bool follows = i + 1 < s->n_ready && next->j == g->j && next->st->discipline == d;

		d->burst(s, g, follows ? next : NULL);
	}
	s->n_ready = 0;
}
