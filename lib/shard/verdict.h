/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef VERDICT_H
#define VERDICT_H

/*
 * The verdict on a frame of a session: each part is found once, where the frame comes in, and is kept in its target. Handlers act
 * on it, and ask none of it again. In the order of R6.11:
 *
 *   old    recorded some time ago (R4.9), compared with what came before its burst. Of a question (all but contributions) found by
 *          verdict_question(), before its fragment is looked up; of a contribution only where that matters, as it counts once anyway.
 *   from   may answers go to where it comes from? Found by verdict() when its turn comes: a frame before it in the burst may have
 *          moved its worker.
 *   intact the part that waits. The checksum of a payload is made where the payload is read, so a contribution may come
 *          unverified, and who acts on it calls verdict_intact() first. Questions are verified when they come.
 *   heard  what keeps the lease of its worker: of a question noted by verdict(), of a contribution by who finds it intact.
 */

#include "shard_impl.h"

static inline bool
verdict_is_contribution(unsigned type)
{
	return type == PBOX_PUSHPULL || type == PBOX_PUSH;
}

/* When an intact frame was sent, by its worker's clock. */
static inline uint64_t
verdict_sent_at(
	const struct pbox_shard *s, const struct pbox_shard_job *j, const struct pbox_frame *f)
{
	return pbox_fresh_time(&j->job->fresh[f->hdr.worker], f->hdr.ts, f->hdr.held, s->now_ns);
}

/* From elsewhere than the worker's earlier frames to this endpoint, in this session? */
static inline bool
verdict_is_elsewhere(const struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct shard_peer *p = peer_of(s, g, f->hdr.worker);
	uint64_t x[2], y[2];
	uint32_t u, v;

	_Static_assert(sizeof(struct pbox_peer) == 20, "compared as two words and a half");
	memcpy(x, &p->at, 16);
	memcpy(y, &f->peer, 16);
	memcpy(&u, (const uint8_t *)&p->at + 16, 4);
	memcpy(&v, (const uint8_t *)&f->peer + 16, 4);
	return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (u ^ v) | (p->token ^ f->hdr.token)) != 0;
}

/* Was a frame that is not old sent before the one that answers have followed? */
static inline bool
verdict_is_before(const struct shard_peer *p, const struct pbox_frame *f)
{
	return p->token == f->hdr.token && p->since - f->hdr.ts - 1 < PBOX_FRESH_ORDER_US;
}

/* Answers go there from now on. The frame is verified, and no copy of an earlier one (R4.9). */
static inline void
verdict_moved(struct shard_peer *p, const struct pbox_frame *f)
{
	*p = (struct shard_peer){.token = f->hdr.token,
		.at = f->peer,
		.since = verdict_is_before(p, f) ? p->since : f->hdr.ts};
}

/* Is the frame what was sent? Without a side effect. */
bool verdict_is_intact(const struct pbox_frame *f);
/* The same; false: it was counted. */
bool verdict_intact(struct pbox_shard *s, const struct pbox_frame *f);

/* Intact frames: the newest of its session here? Then it is what keeps the lease. */
bool verdict_heard(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f);

/* Of a question, before its fragment is looked up: is it old, and does the job's rate have room for it (R6.12)? 0 or the drop. */
enum pbox_shard_stat verdict_question(
	struct pbox_shard *s, struct target *g, const struct pbox_frame *f);
/* What verdict() finds of a question, and of a frame from elsewhere. */
bool verdict_of_question(struct pbox_shard *s, struct target *g, const struct pbox_frame *f);
bool verdict_from_elsewhere(struct pbox_shard *s, struct target *g, const struct pbox_frame *f)
	__attribute__((cold));

/* May the frame be acted upon? False: it was counted, and answered as far as may be. */
static inline bool
verdict(struct pbox_shard *s, struct target *g, const struct pbox_frame *f)
{
	if (!verdict_is_contribution(f->hdr.type))
		return verdict_of_question(s, g, f);
	return !verdict_is_elsewhere(s, g, f) || verdict_from_elsewhere(s, g, f);
}

/* What handlers do with it: */
/* The contribution counts: answers follow it, where they may. */
static inline void
verdict_counts(const struct pbox_shard *s, const struct target *g, const struct pbox_frame *f,
	struct verdict v)
{
	if (__builtin_expect(v.from == VERDICT_FOLLOW, 0))
		verdict_moved(peer_of(s, g, f->hdr.worker), f);
}
/* There is no room for the contribution, which may not be intact: count that; its worker is alive. */
void verdict_no_room(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f,
	enum pbox_shard_stat why);
/* A contribution that its discipline finds not to be new, or too early: may it be answered? It is intact then. False: it was
 * counted, as in the next one. */
bool verdict_repeat(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
/* A question: may its answer have a payload? */
bool verdict_payload(struct pbox_shard *s, const struct target *g);

#endif /* VERDICT_H */
