/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Where answers go (R4.9). An address of IPv4 and UDP is proven by the cookie of JOIN, or by an echo of the nonce
 * that the box sends there: nobody directs the answers of a session to a third host, or with copies of frames to
 * himself. Link addresses follow the newest frame.
 */

#include "verdict.h"

static bool
same_address(const struct pbox_peer *a, const struct pbox_peer *b)
{
	return a->ip == b->ip && a->udp == b->udp;
}

static bool
is_home(const struct pbox_shard_job *j, const struct pbox_frame *f)
{
	return atomic_load_explicit(&j->job->fresh[f->hdr.worker].home, memory_order_relaxed) ==
	       pbox_fresh_address(&f->peer);
}

bool
shard_address_is_proven(
	const struct pbox_shard_job *j, const struct shard_peer *p, const struct pbox_frame *f)
{
	return (p != NULL && p->token == f->hdr.token && same_address(&p->at, &f->peer)) ||
	       is_home(j, f);
}

/* Header only, so that no answer is longer than what it answers: PING where nobody has asked for a PONG. */
void
shard_challenge(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
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

bool
shard_has_declared(const struct pbox_shard_job *j, const struct pbox_frame *f)
{
	return atomic_load_explicit(&j->job->fresh[f->hdr.worker].declared, memory_order_relaxed);
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
shard_ping(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_shard_job *j = g->j;
	struct shard_peer *p = endpoint_peer(s, j, f);
	const struct pbox_peer *to = &f->peer;
	uint64_t nonce = 0;

	if (g->verdict.old) {
		shard_count(s, PBOX_SS_DROP_REPLAYED);
		return;
	}
	if (!shard_address_is_proven(j, p, f)) {
		nonce = pbox_job_challenge(j->job, f);
		if (p != NULL && nonce == pbox_nonce_get(&f->hdr) && !verdict_is_before(p, f)) {
			if (shard_has_declared(j, f)) /* else its first data frame is asked again */
				verdict_moved(p, f);
			nonce = 0;
		}
	}
	/* a copy may have another link address than the worker */
	if (!verdict_heard(s, j, f) && p != NULL && p->token == f->hdr.token &&
		same_address(&p->at, &f->peer))
		to = &p->at;
	shard_count(s, PBOX_SS_RX_PING);
	shard_send_pong(s, j, f, to, nonce);
}

bool
shard_keep_alive(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
{
	/* a copy is answered where the worker is: that the control thread knows */
	if (!is_home(j, f) || !verdict_heard(s, j, f))
		return false;
	pbox_stat_add(&s->stats[PBOX_SS_RX_FRAMES], 1);
	shard_count(s, PBOX_SS_RX_PING);
	shard_send_pong(s, j, f, &f->peer, 0);
	return true;
}
