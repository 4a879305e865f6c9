/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A table that all workers have declared is laid out, placed and gets its memory. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

/* Smallest MTU of the box and all workers; they are all there when a table is complete. */
static unsigned
job_mtu(const struct pbox_registrar *r, const struct pbox_job *job)
{
	unsigned mtu = r->conf.mtu;

	for (unsigned w = 0; w < job->workers; w++)
		if (job->member[w].mtu != 0 && job->member[w].mtu < mtu)
			mtu = job->member[w].mtu;
	return mtu;
}

/* What its parameters are not: descriptions of chunks, schedules, what each shard keeps of it. */
static int
charge_table(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt,
	struct pbox_shard_table **st, struct pbox_error *err)
{
	size_t heap = jt->t.heap + r->conf.n_shards * pbox_shard_table_bytes(&jt->t, job->workers);
	char what[48];

	snprintf(what, sizeof(what), "the map of table %u", jt->t.id);
	memset(st, 0, r->conf.n_shards * sizeof(*st));
	if (!pbox_job_charge(job, heap))
		return pbox_job_short(job, heap, what, err);
	for (unsigned i = 0; i < r->conf.n_shards; i++)
		st[i] = pbox_shard_table_create(
			&jt->t, job->workers, r->conf.arena[registrar_node_of_shard(r, i)]);
	for (unsigned i = 0; i < r->conf.n_shards; i++)
		if (st[i] == NULL) {
			bool later = pbox_registrar_uncleared(r) > 0;

			registrar_free_shard_tables(r, st);
			pbox_job_refund(job, heap);
			return later ? -EAGAIN : pbox_job_short(job, heap, what, err);
		}
	jt->heap += heap;
	return 0;
}

/* All workers have declared it: lay out, place, allocate. */
static int
lay_out(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt,
	struct pbox_shard_table **st, struct pbox_error *err)
{
	const struct pbox_declare *d = &jt->fixed;
	int ret = pbox_table_build(&jt->t, jt->tensor, d->tensors, r->conf.chunk_elements, r->place,
		r->conf.n_endpoints, r->conf.arena, r->load, pbox_job_left(job), err);

	if (ret < 0)
		return ret;
	job->bytes += jt->t.bytes;
	ret = charge_table(r, job, jt, st, err);
	if (ret < 0) {
		job->bytes -= jt->t.bytes;
		pbox_table_release(&jt->t, r->load);
	}
	return ret;
}

/*
 * The map_epoch of a table in clocks: versions of a later one are later (R14.11). It is above all that its restorers had, and
 * follows the time, so that boxes that were restored by different workers do not give the same.
 */
static uint16_t
epoch_of(const struct pbox_registrar *r, const struct pbox_job_table *jt)
{
	uint16_t epoch = (uint16_t)(r->conf.first_run >> 22), next = (uint16_t)(jt->epoch + 1);

	if (jt->fixed.discipline != PBOX_DISCIPLINE_CLOCK)
		return PBOX_MAP_EPOCH;
	if (jt->epoch != 0 && (int16_t)(uint16_t)(next - epoch) > 0)
		epoch = next;
	return epoch != 0 ? epoch : 1;
}

/* The map by which a job goes on with homes of a snapshot is GIVEN_AFTER the snapshot's: frames that are by that one, or by the next ones of
 * the same run, are of none that there is now. It begins again at the lowest numbers, so that a job may begin with snapshots as often as it
 * likes: maps after it must be comparable with PBOX_MAP_EPOCH (R16.9). */
#define GIVEN_AFTER 512
#define GIVEN_MOST  16384

/* Does the table begin with a snapshot of a job whose chunks had moved? Then it is laid out just so (R16.16). */
static void
given_homes(const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_job_table *jt)
{
	uint32_t epoch;

	jt->t.begun_map = PBOX_MAP_EPOCH;
	if (r->conf.boxes.boxes < 2 || jt->restorers > 0 || r->conf.ops->homes == NULL ||
		jt->t.discipline != PBOX_DISCIPLINE_ROUNDS)
		return;
	jt->t.given =
		r->conf.ops->homes(r->conf.ctx, job, jt->t.id, &jt->t.n_given, &jt->t.begun_map);
	epoch = (uint32_t)jt->t.begun_map + GIVEN_AFTER;
	jt->t.given_epoch = (uint16_t)(epoch > GIVEN_MOST ? epoch % GIVEN_AFTER + 2 : epoch);
}

static void
build(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt)
{
	const struct pbox_declare *d = &jt->fixed;
	unsigned mtu = job_mtu(r, job);
	unsigned vector = pbox_shard_vector(d->discipline, job->workers);
	unsigned beside = vector + (job->auth != NULL ? PBOX_TAG_LEN : 0);
	unsigned room = mtu > beside ? mtu - beside : 0;
	struct pbox_error err;
	int ret;

	PBOX_ASSERT(!jt->built && !jt->failed && jt->shards_open == 0);
	jt->t = (struct pbox_table){
		.id = d->table,
		.mode = d->mode,
		.op = d->op,
		.optimiser = d->optimiser,
		.discipline = d->discipline,
		.hold = (d->flags & PBOX_DECLARE_HOLD) != 0,
		.mixed = (d->flags & PBOX_DECLARE_MIXED) != 0,
		.clocks = (uint16_t)pbox_shard_clocks(d->discipline, job->workers),
		.vector = (uint16_t)vector,
		.epoch = epoch_of(r, jt),
		.push_format = d->push_format,
		.pull_format = d->pull_format,
		.frag_elements = pbox_frag_elements(room, d->push_format, d->pull_format),
		.init_elements = pbox_init_elements(room),
		.first_chunk_id = d->table << PBOX_CHUNK_BITS,
	};
	if (jt->t.frag_elements == 0) {
		pbox_fail(&err, PBOX_E_BAD_REQUEST,
			"table %u is in clocks, and an MTU of %u has no room for elements beside the clocks of %u workers: give the job an MTU of %u at least",
			d->table, mtu, job->workers, beside + PBOX_MTU_OVERHEAD + 64);
		registrar_fail_table(r, job, jt, &err, PBOX_E_BAD_REQUEST, PBOX_NO_WORKER);
		return;
	}
	given_homes(r, job, jt);
	ret = registrar_boxes_share(r, job, &jt->t) ? lay_out(r, job, jt, jt->shard, &err)
						    : -EAGAIN;
	jt->t.box_load = NULL;
	jt->t.given = NULL;
	if (ret == -ENOSPC && registrar_make_room(r, job->conf, job, jt->t.needs))
		ret = -EAGAIN;
	jt->waits_memory = ret == -EAGAIN;
	if (ret == -EAGAIN) {
		registrar_open_later(r, jt);
		return;
	}
	if (ret < 0) {
		registrar_fail_table(r, job, jt, &err,
			ret == -E2BIG    ? PBOX_E_FULL
			: ret == -EINVAL ? PBOX_E_BAD_REQUEST
					 : PBOX_E_NO_MEMORY,
			PBOX_NO_WORKER);
		return;
	}
	if (d->discipline == PBOX_DISCIPLINE_CLOCK && vector == 0)
		registrar_event(r, PBOX_LOG_WARN,
			"job '%s': table %u is in clocks in a job of more than %u workers: a restart of the box ends it",
			job->name, d->table, PBOX_CLOCK_VECTOR);
	PBOX_ASSERT(jt->t.n_chunks > 0 || jt->t.n_fragments == 0);
	jt->built = true;
	if (jt->t.begun_map != PBOX_MAP_EPOCH)
		registrar_homes_begin(job, jt->t.given_epoch);
	registrar_share_new(r, job, d->table);
	if (mtu > job->map_mtu)
		job->map_mtu = (uint16_t)mtu;
	pbox_stat_add(&r->stats[PBOX_RS_TABLES], 1);
	pbox_job_table_settle(jt);
	registrar_open_begin(r, job, jt);
}

/* R15.1a: those that come later go on in what is there. Worker 0 gives the parameters. */
static bool
enough_declared(const struct pbox_job *job, uint32_t table)
{
	unsigned n = 0;

	for (unsigned w = 0; w < job->workers; w++)
		n += registrar_has_session(job, w) && job->member[w].declared > table;
	return n >= job->least && registrar_has_session(job, 0) && job->member[0].declared > table;
}

/* All workers are here and have declared it. Counted again each time: workers come and go. Those that
 * the job goes on without, or has waited for in vain, are not waited for, but there must be somebody.
 *
 * R16.7: nor is a new process, where others restore. It waits for chunks of earlier tables that have moved, at their boxes, and those who have
 * them report them there only when they have this box's maps. */
static bool
all_declared(const struct pbox_registrar *r, const struct pbox_job *job, uint32_t table)
{
	bool restored = r->conf.boxes.boxes > 1 && job->table[table]->restorers > 0;
	unsigned n = 0;

	if (registrar_is_planned(job) && job->least != 0 && !job->resumed)
		return enough_declared(job, table);

	for (unsigned w = 0; w < job->workers; w++) {
		const struct pbox_member *mb = &job->member[w];

		if (mb->removed)
			continue;
		if ((mb->state == PBOX_MEMBER_JOINED || mb->state == PBOX_MEMBER_SILENT) &&
			mb->declared > table)
			n++;
		else if (!mb->missed && !(restored && mb->holds_none && mb->declared > 0))
			return false;
	}
	return n > 0;
}

void
registrar_build_table(struct pbox_registrar *r, struct pbox_job *job, uint32_t table)
{
	struct pbox_job_table *jt = job->table[table];

	if (!jt->built && !jt->failed && all_declared(r, job, table))
		build(r, job, jt);
}

void
registrar_build_tables(struct pbox_registrar *r, struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++)
		registrar_build_table(r, job, i);
}
