/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Where answers go (R4.9). An address of IPv4 and UDP is proven by the cookie of JOIN, or by an echo of the nonce
 * that the box sends there: nobody directs the answers of a session to a third host, or with copies of frames to
 * himself. Link addresses follow the newest frame.
 */

#include "shard_impl.h"

static bool
shard_same_address(const struct pbox_peer *a, const struct pbox_peer *b)
{
	return a->ip == b->ip && a->udp == b->udp;
}

static bool
is_home(const struct pbox_shard_job *j, const struct pbox_frame *f)
{
	return atomic_load_explicit(&j->job->fresh[f->hdr.worker].home, memory_order_relaxed) ==
	       pbox_fresh_address(&f->peer);
}

static bool
shard_address_is_proven(
	const struct pbox_shard_job *j, const struct shard_peer *p, const struct pbox_frame *f)
{
	return (p != NULL && p->token == f->hdr.token && shard_same_address(&p->at, &f->peer)) ||
	       is_home(j, f);
}

bool
shard_heard(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
{
	struct shard_member *m = &j->member[f->hdr.worker];
	uint64_t at =
		pbox_fresh_time(&j->job->fresh[f->hdr.worker], f->hdr.ts, f->hdr.held, s->now_ns);
	uint64_t heard_ns;

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

void
shard_heard_of(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
{
	const struct shard_member *m = &j->member[f->hdr.worker];

	if (f->unverified && (s->now_ns - atomic_load_explicit(&m->heard_ns, memory_order_relaxed) <
					     HEARD_EVERY_NS ||
				     !shard_verify(f)))
		return;
	shard_heard(s, j, f);
}

/* Header only, so that no answer is longer than what it answers: PING where nobody has asked for a PONG. */
static void
challenge_sender(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
{
	uint64_t nonce = pbox_job_challenge(j->job, f);
	struct shard_member *m = &j->member[f->hdr.worker];
	struct pbox_send out = {.hdr = {.type = PBOX_PING, .ts = f->hdr.ts}};

	if (m->challenged_ns != 0 && s->now_ns - m->challenged_ns < PBOX_FRESH_ASK_NS)
		return;
	m->challenged_ns = s->now_ns;
	pbox_nonce_put(&out.hdr, nonce);
	shard_send_at(s, j, &out, f->hdr.worker, &f->peer);
}

/* Is it one of those whose tables these are? A worker may have been refused that (R12.6). */
static bool
has_declared(const struct pbox_shard_job *j, const struct pbox_frame *f)
{
	return atomic_load_explicit(&j->job->fresh[f->hdr.worker].declared, memory_order_relaxed);
}

bool
shard_from_elsewhere(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct shard_peer *p = peer_of(s, g, f->hdr.worker);
	bool contribution = f->hdr.type == PBOX_PUSHPULL || f->hdr.type == PBOX_PUSH;

	if (f->unverified && !shard_verify(f)) {
		shard_count(s, PBOX_SS_DROP_CRC);
		return false;
	}
	/* each session passes here with its first frame to each endpoint, and on until it moves there */
	if (!has_declared(g->j, f)) {
		shard_heard(s, g->j, f);
		shard_count(s, PBOX_SS_DROP_CHUNK_UNKNOWN);
		return false;
	}
	if (!shard_address_is_proven(g->j, p, f)) {
		bool old = shard_is_old(s, g->j, f);

		shard_heard(s, g->j, f);
		if (!old)
			challenge_sender(s, g->j, f);
		if (!contribution)
			shard_count(s, old ? PBOX_SS_DROP_REPLAYED : PBOX_SS_DROP_UNPROVEN);
		return contribution;
	}
	if (shard_heard(s, g->j, f) || p->token != f->hdr.token) {
		shard_moved(peer_of(s, g, f->hdr.worker), f);
	} else if (f->hdr.type == PBOX_PULL || f->hdr.type == PBOX_RESTORE ||
		   f->hdr.type == PBOX_FETCH) {
		shard_count(s, PBOX_SS_DROP_REPLAYED);
		return false;
	}
	return true;
}

bool
shard_may_move(const struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	return shard_address_is_proven(g->j, peer_of(s, g, f->hdr.worker), f);
}

/* The endpoint that a frame came to, which names no chunk; NULL: none of this core's. */
static struct shard_peer *
endpoint_peer(
	const struct pbox_shard *s, const struct pbox_shard_job *j, const struct pbox_frame *f)
{
	for (unsigned e = 0; e < s->conf.n_endpoints; e++) {
		const struct pbox_endpoint *a = &s->conf.endpoint[e].addr;

		if (s->own_endpoint[e] && a->udp == f->peer.local_udp &&
			memcmp(a->ipv4, &f->peer.local_ip, 4) == 0)
			return &j->peer[f->hdr.worker * j->peers + s->own_index[e]];
	}
	return NULL;
}

void
shard_ping(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
{
	struct shard_peer *p = endpoint_peer(s, j, f);
	const struct pbox_peer *to = &f->peer;
	uint64_t nonce = 0;

	if (shard_is_old(s, j, f)) {
		shard_count(s, PBOX_SS_DROP_REPLAYED);
		return;
	}
	if (!shard_address_is_proven(j, p, f)) {
		nonce = pbox_job_challenge(j->job, f);
		if (p != NULL && nonce == pbox_nonce_get(&f->hdr) && !shard_is_before(p, f)) {
			if (has_declared(j, f)) /* else its first data frame is asked again */
				shard_moved(p, f);
			nonce = 0;
		}
	}
	/* a copy may have another link address than the worker */
	if (!shard_heard(s, j, f) && p != NULL && p->token == f->hdr.token &&
		shard_same_address(&p->at, &f->peer))
		to = &p->at;
	shard_count(s, PBOX_SS_RX_PING);
	shard_send_pong(s, j, f, to, nonce);
}

bool
shard_keep_alive(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
{
	/* a copy is answered where the worker is: that the control thread knows */
	if (!is_home(j, f) || !shard_heard(s, j, f))
		return false;
	pbox_stat_add(&s->stats[PBOX_SS_RX_FRAMES], 1);
	shard_count(s, PBOX_SS_RX_PING);
	shard_send_pong(s, j, f, &f->peer, 0);
	return true;
}
