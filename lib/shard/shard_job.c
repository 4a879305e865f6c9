/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What the registrar reads and writes of a shard's jobs and tables (pbox_shard_job.h). */

#include "shard_impl.h"

struct pbox_shard_table *
pbox_shard_table_of(const struct pbox_shard_job *j, uint32_t table)
{
	return j->table[table];
}

uint32_t
pbox_shard_table_number(const struct pbox_shard_table *st)
{
	return st->t->id;
}

void
pbox_shard_table_begins(struct pbox_shard_table *st, uint32_t round)
{
	shard_finished(st, round);
}

void
pbox_shard_table_restores(struct pbox_shard_table *st, uint32_t fragments)
{
	uint32_t n = atomic_load_explicit(&st->restoring, memory_order_relaxed);

	atomic_store_explicit(&st->restoring, n + fragments, memory_order_relaxed);
}

void
pbox_shard_table_restorers(struct pbox_shard_table *st, const _Atomic uint64_t *restorer)
{
	st->restorer = restorer;
}

bool
pbox_shard_table_round(const struct pbox_shard_table *st, uint32_t *round)
{
	uint64_t known = atomic_load_explicit(&st->max_round, memory_order_relaxed);

	if (known != 0)
		*round = (uint32_t)known;
	return known != 0;
}

struct pbox_shard_restoring
pbox_shard_table_restoring(const struct pbox_shard_table *st)
{
	uint32_t left = atomic_load_explicit(&st->restoring, memory_order_acquire);

	return (struct pbox_shard_restoring){
		.left = left,
		.lost = atomic_load_explicit(&st->lost, memory_order_acquire),
		.lost_chunk = st->lost_chunk,
		.lost_frag = st->lost_frag,
		.lost_late = st->lost_late,
		.stateless = atomic_load_explicit(&st->stateless, memory_order_acquire),
		.stateless_chunk = st->stateless_chunk,
		.needed = atomic_load_explicit(&st->needed, memory_order_acquire),
	};
}

struct pbox_job *
pbox_shard_job_of(const struct pbox_shard_job *j)
{
	return j->job;
}

struct pbox_shard_inbox *
pbox_shard_inbox(struct pbox_shard_job *j)
{
	return &j->inbox;
}

uint64_t
pbox_shard_last_seen(const struct pbox_shard_job *j, unsigned worker)
{
	return atomic_load_explicit(&j->member[worker].last_seen, memory_order_relaxed);
}

void
pbox_shard_session(struct pbox_shard_job *j, unsigned worker)
{
	atomic_store_explicit(&j->member[worker].last_seen, 0, memory_order_relaxed);
}

void
pbox_shard_worker(const struct pbox_shard_job *j, unsigned worker, struct pbox_worker_stats *out)
{
	const struct shard_member *m = &j->member[worker];
	uint64_t contributions = pbox_stat_get(&m->contributions);
	uint32_t round = __atomic_load_n(&m->round, __ATOMIC_RELAXED);

	if (contributions > 0 &&
		(out->contributions == 0 || pbox_serial_diff(round, out->round) > 0))
		out->round = round;
	out->wide |= __atomic_load_n(&m->wide, __ATOMIC_RELAXED);
	out->contributions += contributions;
	out->bytes += pbox_stat_get(&m->bytes);
	out->repeats += pbox_stat_get(&m->repeats);
	out->pulls += pbox_stat_get(&m->pulls);
	out->last += pbox_stat_get(&m->last);
	out->waited_ns += pbox_stat_get(&m->waited_ns);
	for (unsigned i = 0; i < PBOX_STALE_CLASSES; i++)
		out->stale[i] += pbox_stat_get(&j->stale[worker * PBOX_STALE_CLASSES + i]);
}
