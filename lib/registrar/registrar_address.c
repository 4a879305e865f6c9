/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "registrar_impl.h"

/* What is new of a session, and where its answers go (R4.9), at the control endpoint. */

/* The newest frame of a session, and when it came; 0: none but JOIN. */
static uint64_t
newest_of(const struct pbox_job *job, unsigned worker, uint64_t *heard_ns)
{
	uint64_t token = registrar_token(job, worker);
	uint64_t heard = 0;
	uint64_t newest = pbox_shard_newest_of_cores(job, worker, token, &heard);
	uint64_t here = atomic_load_explicit(&job->fresh[worker].newest, memory_order_relaxed);
	uint64_t last = job->member[worker].last_seen;

	/* the same frame in both places: it came when it came first */
	*heard_ns = newest > here || (newest == here && newest != 0 && heard < last) ? heard : last;
	return newest > here ? newest : here;
}

/* When the newest frame of the session came, or the newest contribution: copies of others keep no lease. */
uint64_t
registrar_last_seen(const struct pbox_registrar *r, const struct pbox_job *job, unsigned worker)
{
	uint64_t last;

	newest_of(job, worker, &last);
	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		uint64_t seen =
			job->shard[i] == NULL ? 0 : pbox_shard_last_seen(job->shard[i], worker);

		last = seen > last ? seen : last;
	}
	return last;
}

/* A clock that is slower than the box's lags what pbox_fresh_time() takes for the present: that follows, slowly,
 * so that frames which have waited in a queue mean nothing. */
#define DRIFT_EVERY (1000 * NS_PER_MS)
#define DRIFT_US    UINT64_C(1000)

static void
address_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	if (r->now_ns < job->drift_next_ns)
		return;
	job->drift_next_ns = r->now_ns + DRIFT_EVERY;
	for (unsigned w = 0; w < job->workers; w++) {
		struct pbox_job_fresh *c = &job->fresh[w];
		uint64_t heard_ns, newest = newest_of(job, w, &heard_ns), latest;
		uint64_t ahead = atomic_load_explicit(&c->ahead, memory_order_relaxed);

		latest = heard_ns / NS_PER_US + ahead;
		if (newest == 0 || ahead == 0 || latest <= newest)
			continue;
		latest -= newest;
		atomic_compare_exchange_strong_explicit(&c->ahead, &ahead,
			ahead - (latest < DRIFT_US ? latest : DRIFT_US), memory_order_relaxed,
			memory_order_relaxed);
	}
}

static void
challenge_worker(struct pbox_registrar *r, const struct pbox_job *job, const struct pbox_frame *f,
	uint64_t nonce)
{
	struct pbox_member *m = &job->member[f->hdr.worker];
	struct pbox_send out = {
		.hdr = {.type = PBOX_PING, .map_epoch = PBOX_MAP_EPOCH, .ts = f->hdr.ts},
		.peer = &f->peer,
	};

	if (m->challenged_ns != 0 && r->now_ns - m->challenged_ns < PBOX_FRESH_ASK_NS)
		return;
	m->challenged_ns = r->now_ns;
	pbox_nonce_put(&out.hdr, nonce);
	registrar_send(r, job, f->hdr.worker, &out);
}

/* A frame that is new keeps the lease, wherever it comes from. */
static bool
is_newest(struct pbox_registrar *r, struct pbox_job *job, const struct pbox_frame *f, uint64_t at)
{
	struct pbox_job_fresh *c = &job->fresh[f->hdr.worker];
	struct pbox_member *m = &job->member[f->hdr.worker];

	if (at <= atomic_load_explicit(&c->newest, memory_order_relaxed))
		return false;
	atomic_store_explicit(&c->newest, at, memory_order_relaxed);
	m->last_seen = r->now_ns;
	if (m->state == PBOX_MEMBER_SILENT)
		m->state = PBOX_MEMBER_JOINED;
	return true;
}

bool
registrar_address(struct pbox_registrar *r, struct pbox_job *job, const struct pbox_frame *f,
	struct pbox_peer *to)
{
	struct pbox_job_fresh *c = &job->fresh[f->hdr.worker];
	struct pbox_member *m = &job->member[f->hdr.worker];
	uint64_t at = pbox_fresh_time(c, f->hdr.ts, f->hdr.held, r->now_ns),
		 here = pbox_fresh_address(&f->peer), nonce;
	bool old = at + PBOX_FRESH_ORDER_US < pbox_shard_newest(job, f->hdr.worker, f->hdr.token),
	     newest;

	newest = is_newest(r, job, f, at);
	*to = f->peer;
	if (here != atomic_load_explicit(&c->home, memory_order_relaxed)) {
		nonce = pbox_job_challenge(job, f);
		if (old) {
			count_control(r, PBOX_RS_DROP_REPLAYED);
			return false;
		}
		/* an echo from an address that the worker has left says nothing */
		if (f->hdr.type != PBOX_PING || pbox_nonce_get(&f->hdr) != nonce ||
			at < atomic_load_explicit(&c->newest, memory_order_relaxed)) {
			count_control(r, PBOX_RS_DROP_UNPROVEN);
			challenge_worker(r, job, f, nonce);
			return false;
		}
		atomic_store_explicit(&c->home, here, memory_order_relaxed);
		m->peer = f->peer;
	}
	if (newest)
		m->peer = f->peer;
	else
		*to = m->peer;
	return true;
}

const struct registrar_part registrar_address_part = {
	.name = "addresses",
	.tick = address_tick,
};
