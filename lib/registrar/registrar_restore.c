/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* After a restart of the box: whose copies a table is restored from (section 10 of the protocol). */

#include <errno.h>
#include <stdio.h>

#include "registrar_impl.h"

bool
registrar_is_restorer(const struct pbox_job_table *jt, unsigned worker)
{
	return (atomic_load_explicit(&jt->restorer[worker / 64], memory_order_relaxed) >>
			       worker % 64 &
		       1) != 0;
}

static void
set_restorer(struct pbox_job_table *jt, unsigned worker, bool on)
{
	if (registrar_is_restorer(jt, worker) == on)
		return;
	atomic_fetch_xor_explicit(
		&jt->restorer[worker / 64], UINT64_C(1) << worker % 64, memory_order_release);
	PBOX_ASSERT(on || jt->restorers > 0);
	jt->restorers += on ? 1u : -1u;
}

int
registrar_restore_page(struct pbox_job_table *jt, unsigned worker, bool first, uint32_t flags,
	struct pbox_error *err)
{
	bool restores = (flags & PBOX_DECLARE_RESTORE) != 0;

	if (jt->built && !(jt->loading && jt->restoring))
		return 0; /* its session was lost, the box was not */
	if (!first && registrar_is_restorer(jt, worker) != restores)
		return pbox_fail(err, EINVAL,
			"table %u: worker %u declares pages with and without RESTORE",
			jt->fixed.table, worker);
	set_restorer(jt, worker, restores);
	return 0;
}

void
registrar_restore_epoch(struct pbox_job_table *jt, const struct pbox_hdr *h, uint32_t flags)
{
	if ((flags & PBOX_DECLARE_RESTORE) != 0 && !jt->built && h->map_epoch != 0 &&
		(jt->epoch == 0 || (int16_t)(uint16_t)(h->map_epoch - jt->epoch) > 0))
		jt->epoch = h->map_epoch;
}

void
registrar_restore_fragment(const struct pbox_job_table *jt, struct pbox_fragment *fragment)
{
	if (jt->t.mode == PBOX_MODE_OPTIMISER && !fragment->has_result)
		fragment->closed = PBOX_FRAGMENT_UNINITIALISED;
	if (jt->restoring)
		fragment->closed |= PBOX_FRAGMENT_RESTORING;
}

void
registrar_restore_moves(struct pbox_job *job, struct pbox_job_table *jt)
{
	PBOX_ASSERT(jt->built && jt->shards_open > 0);
	for (unsigned w = 0; w < job->workers; w++)
		set_restorer(jt, w, true);
}

void
registrar_restore_moving(struct pbox_job_table *jt)
{
	jt->moving |= !jt->restoring;
	jt->restoring = true;
}

void
registrar_restore_without(
	struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt, unsigned worker)
{
	if (!registrar_is_restorer(jt, worker))
		return;
	set_restorer(jt, worker, false);
	registrar_post(r, job, PBOX_MAIL_RESTORERS);
}

static struct pbox_shard_table *
shard_table(const struct pbox_job *job, unsigned shard, const struct pbox_job_table *jt)
{
	return pbox_shard_table_of(job->shard[shard], jt->fixed.table);
}

static uint32_t
left_of(const struct pbox_registrar *r, const struct pbox_job *job, const struct pbox_job_table *jt)
{
	uint32_t left = 0;

	for (unsigned i = 0; i < r->conf.n_shards; i++)
		left += pbox_shard_table_restoring(shard_table(job, i, jt)).left;
	return left;
}

bool
registrar_restore_untouched(
	const struct pbox_registrar *r, const struct pbox_job *job, const struct pbox_job_table *jt)
{
	/* (more while chunks come, of a table that no fragment is restored of) */
	return jt->restoring && !jt->moving && left_of(r, job, jt) >= jt->t.n_fragments;
}

/* Nobody else says so: parameters are right, and the next steps are not those of an undisturbed run. */
static void
stateless(struct pbox_registrar *r, const struct pbox_job *job, const struct pbox_job_table *jt)
{
	uint32_t round = pbox_chunk_frag_version(pbox_table_own_chunk(&jt->t), 0);

	if (round != 0)
		registrar_event(r, PBOX_LOG_WARN,
			"job '%s': table %u goes on from round %u, but what %s is 0: no snapshot of this run is there (snapshot-dir, snapshot)",
			job->name, jt->t.id, round,
			pbox_optim_states(jt->t.optimiser) == 0
				? "its answers had not said yet (residual)"
				: "its optimiser had gathered");
}

/* The same of chunks that have moved, or that a box of several has got back (R16.13). */
static void
say_stateless(struct pbox_registrar *r, const struct pbox_job *job, struct pbox_job_table *jt,
	uint32_t n, uint32_t chunk)
{
	uint32_t said = n < jt->stateless_said ? 0 : jt->stateless_said;

	jt->stateless_said = n;
	if (n == said)
		return;
	registrar_event(r, PBOX_LOG_WARN,
		"job '%s': table %u (optimiser %s, results in %s): %u fragments, the first of them of chunk %u, go on with parameters as workers had them and with state 0: the box that had the rest was restarted, or is out, before it was fetched from there",
		job->name, jt->t.id, pbox_optimiser_name(jt->t.optimiser),
		pbox_format_name(jt->t.pull_format), n - said, chunk);
}

/* All is restored: say so, and what is lost. */
static void
end_restoring(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt)
{
	struct pbox_error err;
	struct pbox_shard_restoring first = {0};
	uint32_t lost = 0, without = 0, chunk = 0;
	bool moving = jt->moving;

	PBOX_ASSERT(jt->restoring && jt->shards_open == r->conf.n_shards);
	jt->restoring = jt->moving = false;
	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		struct pbox_shard_restoring x = pbox_shard_table_restoring(shard_table(job, i, jt));

		if (x.lost > 0 && lost == 0)
			first = x;
		lost += x.lost;
		if (x.stateless > 0 && without == 0)
			chunk = x.stateless_chunk;
		without += x.stateless;
	}
	say_stateless(r, job, jt, without, chunk);
	if (lost == 0) {
		registrar_event(r, PBOX_LOG_INFO,
			moving ? "job '%s': chunks of table %u have come here"
			       : "job '%s': table %u is restored",
			job->name, jt->t.id);
		registrar_rack_restored(r, job, jt);
		if (jt->stateless && r->conf.boxes.boxes < 2) /* at several: R16.13 */
			stateless(r, job, jt);
		return;
	}
	pbox_fail(&err, EIO,
		first.lost_late
			? "table %u: %u of %u fragments are lost in a move, the first is fragment %u of chunk %u: its version is more than %u SETs earlier than those of the other fragments here, and its hyper-parameters are gone: start the job again from a checkpoint, and push all tensors of a table in each round"
			: "table %u: %u of %u fragments are lost in a restart or a move, the first is fragment %u of chunk %u: no worker that is left can give the version that it had",
		jt->t.id, lost, jt->t.n_fragments, first.lost_frag, first.lost_chunk,
		PBOX_SCHEDULE);
	registrar_fail_table(r, job, jt, &err, PBOX_E_LOST, PBOX_NO_WORKER);
}

/* Its shards restore it. */
static bool
is_with_shards(const struct pbox_registrar *r, const struct pbox_job_table *jt)
{
	return jt->restoring && jt->shards_open == r->conf.n_shards;
}

uint32_t
registrar_restoring(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt)
{
	uint32_t left;

	if (!is_with_shards(r, jt))
		return 0;
	left = left_of(r, job, jt);
	if (left == 0)
		end_restoring(r, job, jt);
	return left;
}

static bool
restore_why(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_job_table *jt, char *text, size_t cap)
{
	uint32_t left = is_with_shards(r, jt) ? left_of(r, job, jt) : 0;

	if (left > 0)
		snprintf(text, cap,
			"table %u is being restored from what %u of %u workers hold: %u of %u fragments are left",
			jt->fixed.table, jt->restorers, job->workers, left, jt->t.n_fragments);
	return left > 0;
}

/* Who has left by itself has no more to say; who is gone otherwise may be with the box that had the chunk. */
static void
moves_go_on(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt)
{
	for (unsigned w = 0; w < job->workers; w++)
		if (!registrar_has_session(job, w) && job->member[w].left == PBOX_LEFT_ITSELF)
			registrar_restore_without(r, job, jt, w);
}

static void
restore_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++) {
		if (job->table[i]->moving)
			moves_go_on(r, job, job->table[i]);
		registrar_restoring(r, job, job->table[i]);
	}
}

/* A session ends, or its worker is not expected any more (R10.7). */
static void
restorer_gone(struct pbox_registrar *r, struct pbox_job *job, unsigned worker)
{
	bool any = false;

	for (uint32_t i = 0; i < job->n_tables; i++) {
		struct pbox_job_table *jt = job->table[i];

		if (jt->moving)
			continue;
		if (!registrar_is_restorer(jt, worker))
			continue;
		set_restorer(jt, worker, false);
		if (!jt->restoring || job->state != PBOX_JOB_OPEN)
			continue;
		any = true;
		registrar_event(r, PBOX_LOG_WARN,
			"job '%s': worker %u is gone while table %u is restored: what it holds is not waited for",
			job->name, worker, jt->t.id);
	}
	if (any)
		registrar_post(r, job, PBOX_MAIL_RESTORERS);
}

const struct registrar_part registrar_restore_part = {
	.name = "restore",
	.session_end = restorer_gone,
	.tick = restore_tick,
	.why = restore_why,
};
