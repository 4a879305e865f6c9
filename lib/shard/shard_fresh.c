/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "shard_impl.h"

/* What is newest of a session, at whatever core, for registrar and shards (R4.9). */

/* When a contribution was sent that has been summed; seen_ns: when the newest one came. That may be any time later, and
 * then the same lower bits come again: what seems to be of the future is of long ago. The slack is so small that no
 * frame is old (verdict.c) for what it lets pass. */
static uint64_t
summed_at(const struct pbox_job_fresh *c, uint32_t ts, uint64_t seen_ns)
{
	uint64_t latest = seen_ns / PBOX_FRESH_NS_PER_US +
			  atomic_load_explicit(&c->ahead, memory_order_relaxed) +
			  PBOX_FRESH_ORDER_US / 2;

	return latest - (uint32_t)((uint32_t)latest - ts);
}

uint64_t
shard_newest_of(const struct pbox_job *job, const struct shard_member *m, unsigned worker,
	uint64_t token, uint64_t *heard_ns)
{
	uint64_t newest, summed, seen;

	if (m == NULL || atomic_load_explicit(&m->token, memory_order_acquire) != token)
		return 0;
	newest = atomic_load_explicit(&m->newest, memory_order_relaxed);
	*heard_ns = atomic_load_explicit(&m->heard_ns, memory_order_relaxed);
	seen = atomic_load_explicit(&m->last_seen, memory_order_relaxed);
	if (seen == 0)
		return newest;
	summed = summed_at(
		&job->fresh[worker], atomic_load_explicit(&m->ts, memory_order_relaxed), seen);
	if (summed <= newest)
		return newest;
	*heard_ns = seen;
	return summed;
}

/* On any core but the control thread. */
uint64_t
pbox_shard_newest_of_cores(
	const struct pbox_job *job, unsigned worker, uint64_t token, uint64_t *heard_ns)
{
	uint64_t newest = 0;

	for (unsigned i = 0; i < PBOX_MAX_SHARDS && job->shard[i] != NULL; i++) {
		uint64_t heard = 0, at = shard_newest_of(job, &job->shard[i]->member[worker],
					    worker, token, &heard);

		/* a copy of it at another core is not when it came */
		if (at < newest || at == 0 || (at == newest && heard >= *heard_ns))
			continue;
		newest = at;
		*heard_ns = heard;
	}
	return newest;
}

uint64_t
pbox_shard_newest(const struct pbox_job *job, unsigned worker, uint64_t token)
{
	uint64_t heard, newest = pbox_shard_newest_of_cores(job, worker, token, &heard);
	uint64_t here = atomic_load_explicit(&job->fresh[worker].newest, memory_order_relaxed);

	return here > newest ? here : newest;
}
