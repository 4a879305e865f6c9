/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "registrar_impl.h"

/*
 * How far the fragments of a table are. Shards tell the highest round that they have finished; the
 * lowest is looked up here when it matters, which is rarely: fragments that are summed alike are
 * a round apart, and then one look serves as many SETs as a schedule has entries.
 */

bool
registrar_finished(
	const struct pbox_registrar *r, const struct pbox_job *job, uint32_t table, uint32_t *round)
{
	bool any = false;

	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		struct pbox_shard_table *st = job->shard[i]->table[table];
		uint64_t x =
			st == NULL ? 0 : atomic_load_explicit(&st->max_round, memory_order_relaxed);

		if (x == 0 || (any && pbox_serial_diff((uint32_t)x, *round) <= 0))
			continue;
		*round = (uint32_t)x;
		any = true;
	}
	return any;
}

void
registrar_rounds_begin(struct pbox_shard_table *st, const struct pbox_slot *slot)
{
	uint64_t max = atomic_load_explicit(&st->max_round, memory_order_relaxed);

	if ((slot->version != 0 || slot->contributors > 0) &&
		(max == 0 || pbox_serial_diff(slot->version, (uint32_t)max) > 0))
		atomic_store_explicit(
			&st->max_round, SHARD_ROUND_KNOWN | slot->version, memory_order_relaxed);
}

void
registrar_rounds_begins(struct pbox_job_table *jt, const struct pbox_shard_table *st)
{
	uint64_t max = atomic_load_explicit(&st->max_round, memory_order_relaxed);

	if (max == 0 || (jt->begins_known && pbox_serial_diff((uint32_t)max, jt->begins) <= 0))
		return;
	jt->begins = (uint32_t)max;
	jt->begins_known = true;
}

static uint32_t
version_of(const struct pbox_table *t, uint32_t chunk, unsigned frag)
{
	return __atomic_load_n(&t->chunk[chunk].slot[frag].version, __ATOMIC_RELAXED);
}

bool
registrar_rounds_look(struct pbox_job_table *jt)
{
	const struct pbox_table *t = &jt->t;
	struct pbox_finished *known = &jt->finished;
	uint32_t lowest = 0;
	bool any = false;

	/* versions of fragments that are not restored yet are not told */
	if (jt->restoring || (known->known && t->n_chunks > 0 &&
				     version_of(t, jt->last_chunk, jt->last_frag) == known->lowest))
		return false;
	for (uint32_t i = 0; i < t->n_chunks; i++)
		for (unsigned f = 0; f < t->chunk[i].fragments; f++) {
			uint32_t v = version_of(t, i, f);

			if (any && pbox_serial_diff(v, lowest) >= 0)
				continue;
			lowest = v;
			jt->last_chunk = i;
			jt->last_frag = (uint16_t)f;
			any = true;
		}
	/* without fragments no SET matters */
	known->lowest = any ? lowest : known->highest + (1u << 30);
	known->known = true;
	return true;
}

void
registrar_rounds_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++) {
		struct pbox_job_table *jt = job->table[i];
		uint32_t round;

		if (!jt->built || jt->restoring || jt->shards_open < r->conf.n_shards ||
			!registrar_finished(r, job, i, &round) ||
			round - jt->aged < PBOX_SCHEDULE_AGE)
			continue;
		registrar_rounds_look(jt);
		jt->aged = round;
		for (unsigned g = 0; g < jt->t.n_groups; g++)
			pbox_schedule_age(&jt->t.schedule[g], jt->finished.lowest);
	}
}
