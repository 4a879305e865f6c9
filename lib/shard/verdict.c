/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The verdict on a frame, and what one that moves no version may cost (R6.12), whatever the discipline of its table. Copies of old
 * frames use up nothing of the job's rate or of a worker's credit, where these are short. New contributions are not
 * charged here: their discipline bounds them, by the window and by when versions are made.
 */

#include "verdict.h"

/* So often who can only be dropped is looked at for its lease. */
#define HEARD_EVERY_NS UINT64_C(50000000)

bool
verdict_is_intact(const struct pbox_frame *f)
{
	return !f->unverified ||
	       pbox_frame_verify(f->payload, pbox_crc32c(0, f->payload, f->hdr.length));
}

bool
verdict_intact(struct pbox_shard *s, const struct pbox_frame *f)
{
	if (verdict_is_intact(f))
		return true;
	shard_count(s, PBOX_SS_DROP_CRC);
	return false;
}

/* Intact frames: was it recorded some time ago? */
static bool
is_old(const struct pbox_shard *s, const struct pbox_shard_job *j, const struct pbox_frame *f)
{
	uint64_t at = verdict_sent_at(s, j, f);

	return at + PBOX_FRESH_ORDER_US < pbox_shard_newest(j->job, f->hdr.worker, f->hdr.token);
}

bool
verdict_heard(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
{
	struct shard_member *m = &j->member[f->hdr.worker];
	uint64_t at = verdict_sent_at(s, j, f), heard_ns;

	if (at <= shard_newest_of(j->job, m, f->hdr.worker, f->hdr.token, &heard_ns))
		return false;
	if (atomic_load_explicit(&m->token, memory_order_relaxed) != f->hdr.token) {
		atomic_store_explicit(&m->ts, f->hdr.ts, memory_order_relaxed);
		m->refused_at = 0;
	}
	atomic_store_explicit(&m->newest, at, memory_order_relaxed);
	atomic_store_explicit(&m->heard_ns, s->now_ns, memory_order_relaxed);
	atomic_store_explicit(&m->token, f->hdr.token, memory_order_release);
	return true;
}

static bool
may_ask(struct job_rate *r, const struct pbox_frame *f, uint64_t now_ns)
{
	return f->hdr.length == 0 && f->hdr.type != PBOX_PING ? job_rate_ask(r, now_ns)
							      : job_rate_take(r, now_ns);
}

enum pbox_shard_stat
verdict_question(struct pbox_shard *s, struct target *g, const struct pbox_frame *f)
{
	PBOX_ASSERT(!verdict_is_contribution(f->hdr.type) && !f->unverified);
	g->verdict.old = is_old(s, g->j, f);
	/* who has recorded its workers uses up nothing of it */
	if (g->verdict.old && g->j->rate.interval != 0)
		return PBOX_SS_DROP_REPLAYED;
	return may_ask(&g->j->rate, f, s->now_ns) ? 0 : PBOX_SS_DROP_RATE;
}

/* Of its worker's credit. */
static bool
has_credit(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct repeat_credit *credit = &g->j->member[f->hdr.worker].repeat;

	if (g->verdict.old && repeat_is_low(credit, g->j->repeat_ns, s->now_ns))
		shard_count(s, PBOX_SS_DROP_REPLAYED);
	else if (!repeat_spend(credit, g->j->repeat_ns, s->now_ns))
		shard_count(s, PBOX_SS_DROP_RATE);
	else
		return true;
	return false;
}

bool
verdict_of_question(struct pbox_shard *s, struct target *g, const struct pbox_frame *f)
{
	if (!has_credit(s, g, f))
		return false;
	if (f->hdr.type == PBOX_PING) /* of no fragment: shard_ping() */
		return true;
	if (verdict_is_elsewhere(s, g, f))
		return verdict_from_elsewhere(s, g, f);
	verdict_heard(s, g->j, f);
	return true;
}

/* Without a proof contributions count, for their worker is one of the job; questions wait for it. */
static bool
unproven(struct pbox_shard *s, struct target *g, const struct pbox_frame *f)
{
	bool contribution = verdict_is_contribution(f->hdr.type);
	bool old = contribution ? is_old(s, g->j, f) : g->verdict.old;

	verdict_heard(s, g->j, f);
	if (!old)
		shard_challenge(s, g->j, f);
	if (!contribution)
		shard_count(s, old ? PBOX_SS_DROP_REPLAYED : PBOX_SS_DROP_UNPROVEN);
	g->verdict.from = VERDICT_UNPROVEN;
	return contribution;
}

bool
verdict_from_elsewhere(struct pbox_shard *s, struct target *g, const struct pbox_frame *f)
{
	struct shard_peer *p = peer_of(s, g, f->hdr.worker);

	if (!verdict_intact(s, f))
		return false;
	/* each session passes here with its first frame to each endpoint, and on until it moves there */
	if (!shard_has_declared(g->j, f)) {
		verdict_heard(s, g->j, f);
		shard_count(s, PBOX_SS_DROP_CHUNK_UNKNOWN);
		return false;
	}
	if (!shard_address_is_proven(g->j, p, f))
		return unproven(s, g, f);
	if (verdict_heard(s, g->j, f) || p->token != f->hdr.token) {
		verdict_moved(p, f);
		return true;
	}
	if (f->hdr.type == PBOX_PULL || f->hdr.type == PBOX_NORM || f->hdr.type == PBOX_RESTORE ||
		f->hdr.type == PBOX_FETCH) {
		shard_count(s, PBOX_SS_DROP_REPLAYED);
		return false;
	}
	g->verdict.from = VERDICT_FOLLOW;
	return true;
}

void
verdict_no_room(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f,
	enum pbox_shard_stat why)
{
	const struct shard_member *m = &g->j->member[f->hdr.worker];
	uint64_t heard_ns = atomic_load_explicit(&m->heard_ns, memory_order_relaxed);

	shard_count(s, why);
	if (f->unverified && s->now_ns - heard_ns < HEARD_EVERY_NS)
		return;
	if (verdict_is_intact(f))
		verdict_heard(s, g->j, f);
}

/* A copy from long ago, where it would cost what others need: the rate of the job, or what its worker may repeat. Without
 * a tag nobody knows yet whether the frame says what was sent. */
static bool
is_recorded(const struct pbox_shard *s, const struct pbox_shard_job *j, const struct pbox_frame *f)
{
	const struct shard_member *m = &j->member[f->hdr.worker];

	return (j->rate.interval != 0 || repeat_is_low(&m->repeat, j->repeat_ns, s->now_ns)) &&
	       (!f->unverified || j->tagged != 0) && is_old(s, j, f);
}

bool
verdict_repeat(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	bool credit;

	if (is_recorded(s, g->j, f)) {
		shard_count(s, PBOX_SS_DROP_REPLAYED);
		return false;
	}
	if (!job_rate_take(&g->j->rate, s->now_ns)) {
		shard_count(s, PBOX_SS_DROP_RATE);
		return false;
	}
	if (!verdict_intact(s, f))
		return false;
	credit = repeat_spend(&g->j->member[f->hdr.worker].repeat, g->j->repeat_ns, s->now_ns);
	if (!credit)
		shard_count(s, PBOX_SS_DROP_RATE);
	verdict_heard(s, g->j, f);
	return credit;
}

bool
verdict_payload(struct pbox_shard *s, const struct target *g)
{
	if (g->verdict.old) /* a full frame for each copy of a header */
		shard_count(s, PBOX_SS_DROP_REPLAYED);
	else if (!job_rate_answer(&g->j->rate, s->now_ns))
		shard_count(s, PBOX_SS_DROP_RATE);
	else
		return true;
	return false;
}
