/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "registrar_impl.h"

/* A SET that was not answered because the box looked is repeated within that time. */
#define LOOK_AGAIN (5000 * NS_PER_MS)
/* Rounds: what was found is good enough to age schedules by. */
#define RECENT (1u << 20)

/*
 * How far the fragments of a table are. Shards report the highest round that they have finished; the
 * lowest is looked up here when it matters, which is rarely: fragments that are summed alike are
 * a round apart, and then one look serves as many SETs as a schedule has entries. A large table has a million of
 * them: they are looked at in slices, and others are answered in between.
 */

bool
registrar_finished(
	const struct pbox_registrar *r, const struct pbox_job *job, uint32_t table, uint32_t *round)
{
	bool any = false;

	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		const struct pbox_shard_table *st = pbox_shard_table_of(job->shard[i], table);
		uint32_t x;

		if (st == NULL || !pbox_shard_table_round(st, &x) ||
			(any && pbox_serial_diff(x, *round) <= 0))
			continue;
		*round = x;
		any = true;
	}
	return any;
}

void
registrar_rounds_begin(struct pbox_shard_table *st, const struct pbox_fragment *fragment)
{
	if (fragment->version != 0 || fragment->contributors > 0)
		pbox_shard_table_begins(st, fragment->version);
}

void
registrar_rounds_begins(struct pbox_job_table *jt, const struct pbox_shard_table *st)
{
	uint32_t round;

	if (!pbox_shard_table_round(st, &round) ||
		(jt->begins_known && pbox_serial_diff(round, jt->begins) <= 0))
		return;
	jt->begins = round;
	jt->begins_known = true;
}

/* What is known from now on. */
static void
looked(struct pbox_job_table *jt)
{
	/* without fragments no SET matters */
	jt->finished.lowest = jt->look.any ? jt->look.lowest : jt->finished.highest + (1u << 30);
	jt->finished.known = true;
	jt->last_chunk = jt->look.last_chunk;
	jt->last_frag = jt->look.last_frag;
	jt->look.last_round = jt->look.round;
	jt->look.on = false;
}

static void
rounds_look_at(struct pbox_job_table *jt)
{
	uint32_t v = pbox_chunk_frag_version(&jt->t.chunk[jt->look.chunk], jt->look.frag);

	if (jt->look.any && pbox_serial_diff(v, jt->look.lowest) >= 0)
		return;
	jt->look.lowest = v;
	jt->look.last_chunk = jt->look.chunk;
	jt->look.last_frag = (uint16_t)jt->look.frag;
	jt->look.any = true;
}

/* What has moved to another box has the version that it had then. */
static bool
is_here(const struct pbox_table *t, uint32_t chunk)
{
	return t->home == NULL || t->home[chunk].box == t->box;
}

enum registrar_look
registrar_rounds_look(struct pbox_job_table *jt)
{
	const struct pbox_table *t = &jt->t;
	const struct pbox_finished *known = &jt->finished;

	PBOX_ASSERT(jt->built);
	/* versions of fragments that are not restored yet are not reported */
	if (jt->restoring || (!jt->look.on && known->known && t->n_fragments > 0 &&
				     pbox_chunk_frag_version(&t->chunk[jt->last_chunk],
					     jt->last_frag) == known->lowest))
		return REGISTRAR_LOOK_SAME;
	if (!jt->look.on) {
		jt->look.on = true;
		jt->look.any = false;
		jt->look.chunk = jt->look.frag = 0;
		jt->look.round = known->highest;
	}
	/* who was looked at goes on meanwhile: what is found is true of when it began, which is enough */
	for (unsigned n = 0; jt->look.chunk < t->n_chunks && n < REGISTRAR_LOOK_SLICE; n++) {
		if (jt->look.frag < t->chunk[jt->look.chunk].fragments &&
			is_here(t, jt->look.chunk))
			rounds_look_at(jt);
		if (++jt->look.frag < t->chunk[jt->look.chunk].fragments)
			continue;
		jt->look.frag = 0;
		jt->look.chunk++;
	}
	if (jt->look.chunk < t->n_chunks)
		return REGISTRAR_LOOK_GOES_ON;
	looked(jt);
	return REGISTRAR_LOOK_DONE;
}

void
registrar_rounds_work(struct pbox_registrar *r, struct pbox_job_table *jt)
{
	if (!jt->look.on)
		return;
	if (registrar_rounds_look(jt) == REGISTRAR_LOOK_GOES_ON) {
		r->unfinished = true;
	} else if (jt->look.asked) {
		jt->look.asked = false;
		jt->look.waited_ns = r->now_ns;
	}
}

bool
registrar_rounds_known(struct pbox_registrar *r, struct pbox_job_table *jt)
{
	bool looked = jt->look.waited_ns != 0 && r->now_ns - jt->look.waited_ns < LOOK_AGAIN;

	jt->look.waited_ns = 0;
	if (looked || registrar_rounds_look(jt) != REGISTRAR_LOOK_GOES_ON)
		return true;
	jt->look.asked = r->unfinished = true;
	return false;
}

void
registrar_rounds_added(
	struct pbox_registrar *r, struct pbox_job_table *jt, const struct pbox_schedule *s)
{
	uint32_t n = atomic_load_explicit(&s->count, memory_order_relaxed);

	if (n % (PBOX_SCHEDULE / 2) == 0 && !jt->look.on &&
		registrar_rounds_look(jt) == REGISTRAR_LOOK_GOES_ON)
		r->unfinished = true;
}

static void
rounds_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++) {
		struct pbox_job_table *jt = job->table[i];
		uint32_t round;

		if (!jt->built || jt->restoring || jt->shards_open < r->conf.n_shards ||
			!registrar_finished(r, job, i, &round) ||
			round - jt->aged < PBOX_SCHEDULE_AGE)
			continue;
		jt->finished.highest = round;
		if ((!jt->finished.known || round - jt->look.last_round > RECENT) &&
			registrar_rounds_look(jt) == REGISTRAR_LOOK_GOES_ON) {
			r->unfinished = true;
			continue;
		}
		jt->aged = round;
		for (unsigned g = 0; g < jt->t.n_groups; g++)
			pbox_schedule_age(&jt->t.schedule[g], jt->finished.lowest);
	}
}

const struct registrar_part registrar_rounds_part = {
	.name = "rounds",
	.tick = rounds_tick,
};
