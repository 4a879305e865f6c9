/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What lies between the declaration of a table and its shards and takes time: memory that is cleared first, a
 * snapshot that it begins with, fragments that are made ready. The control thread does it in slices; nobody else's
 * requests wait for it. */

#include <errno.h>
#include <stdio.h>

#include "registrar_impl.h"

/* Pages at once. The fragments of a chunk are on pages of their own, which are new: that is what they cost. */
#define SLICE_PAGES    64u
#define PAGE_FRAGMENTS (4096 / sizeof(struct pbox_fragment))
#define RETRY_EVERY    ((size_t)256 * 1024 * 1024) /* bytes cleared: then who waits is tried again */

size_t
pbox_registrar_uncleared(const struct pbox_registrar *r)
{
	return registrar_arenas(r, pbox_arena_uncleared);
}

/* Its shards may have it. */
static void
open_table(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt)
{
	const struct pbox_chunk *own = pbox_table_own_chunk(&jt->t);
	bool gone = jt->restoring && jt->restorers == 0;

	PBOX_ASSERT(jt->built && !jt->loading && !jt->preparing && jt->shards_open == 0);
	jt->stateless = jt->restoring && own != NULL && pbox_table_states(&jt->t) > 0 &&
			own->fragment[0].version == 0;
	if (jt->restoring)
		registrar_event(r, PBOX_LOG_INFO,
			"job '%s': table %u is restored from what %u of %u workers hold", job->name,
			jt->t.id, jt->restorers, job->workers);
	registrar_event(r, PBOX_LOG_INFO,
		"job '%s': table %u is mapped: %u tensors, %llu elements, %u chunks, %zu bytes",
		job->name, jt->t.id, jt->fixed.tensors, (unsigned long long)jt->t.layout.elements,
		jt->t.n_chunks, jt->t.bytes);
	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		struct pbox_mail m = {
			.kind = PBOX_MAIL_OPEN_TABLE, .job = job->shard[i], .table = jt->shard[i]};

		jt->shard[i] = NULL;
		pbox_shard_table_restorers(m.table, jt->restorer);
		registrar_rounds_begins(jt, m.table);
		registrar_mail(r, &m);
	}
	/* all who could restore it have gone while it was made ready */
	if (gone)
		registrar_post(r, job, PBOX_MAIL_RESTORERS);
}

/* A shard has it: one that waits for that may follow. */
static void
opened(struct pbox_registrar *r, const struct pbox_mail *m)
{
	struct pbox_job *job = pbox_shard_job_of(m->job);
	struct pbox_job_table *jt = job->table[pbox_shard_table_number(m->table)];

	jt->shards_open++;
	PBOX_ASSERT(jt->shards_open <= r->conf.n_shards);
	r->unfinished |= job->table_waits;
	job->table_waits = false;
}

void
registrar_open_work(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt)
{
	unsigned done = 0;

	PBOX_ASSERT(jt->preparing && !jt->loading && job->state == PBOX_JOB_OPEN);
	while (jt->next_chunk < jt->t.n_chunks && done < SLICE_PAGES) {
		const struct pbox_chunk *c = &jt->t.chunk[jt->next_chunk++];
		struct pbox_shard_table *st;

		done++;
		if (c->endpoint == PBOX_ELSEWHERE)
			continue;
		st = jt->shard[r->conf.endpoint[c->endpoint].shard];

		if (jt->restoring)
			pbox_shard_table_restores(st, c->fragments);
		for (unsigned f = 0; f < c->fragments; f++) {
			registrar_restore_fragment(jt, &c->fragment[f]);
			if (!jt->restoring)
				registrar_rounds_begin(st, &c->fragment[f]);
		}
		done += c->fragments / PAGE_FRAGMENTS;
	}
	if (jt->next_chunk < jt->t.n_chunks) {
		r->unfinished = true;
		return;
	}
	/* workers may declare many at once: no more are under way to a shard than its queue has room for */
	for (unsigned i = 0; i < r->conf.n_shards; i++)
		if (pbox_shard_inbox(job->shard[i])->mails[PBOX_MAIL_OPEN_TABLE] == PBOX_OPENING) {
			job->table_waits = true;
			return;
		}
	jt->preparing = false;
	open_table(r, job, jt);
}

void
registrar_open_begin(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt)
{
	PBOX_ASSERT(jt->built && !jt->preparing && !jt->loading);
	jt->restoring = jt->restored = jt->restorers > 0;
	jt->preparing = true;
	jt->next_chunk = 0;
	if (jt->t.discipline == PBOX_DISCIPLINE_ROUNDS && r->conf.ops->restore != NULL)
		jt->loading = r->conf.ops->restore(r->conf.ctx, job, &jt->t, jt->restoring) ==
			      -EINPROGRESS;
	if (!jt->loading)
		registrar_open_work(r, job, jt);
}

void
registrar_open_later(struct pbox_registrar *r, struct pbox_job_table *jt)
{
	size_t left = pbox_registrar_uncleared(r);

	jt->waits_memory = true;
	r->unfinished = true;
	r->retry_below = left > RETRY_EVERY ? left - RETRY_EVERY : 0;
}

void
pbox_registrar_loaded(struct pbox_registrar *r, const struct pbox_job *of, uint32_t table,
	const struct pbox_error *err, uint64_t now_ns)
{
	struct pbox_job *job = r->job[of->id];
	struct pbox_job_table *jt;

	PBOX_ASSERT(job == of && table < job->n_tables);
	jt = job->table[table];
	PBOX_ASSERT(jt->built && jt->loading);
	r->now_ns = now_ns;
	jt->loading = false;
	if (job->state == PBOX_JOB_CLOSING)
		registrar_job_done(r, job);
	else if (err != NULL)
		registrar_fail_table(r, job, jt, err, PBOX_E_LOST, PBOX_NO_WORKER);
	else
		registrar_open_work(r, job, jt);
}

static bool
open_why(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_job_table *jt, char *text, size_t cap)
{
	uint32_t table = jt->fixed.table;

	if (jt->loading && r->conf.ops->restore_text != NULL)
		r->conf.ops->restore_text(r->conf.ctx, job, table, text, cap);
	else if (jt->built && jt->preparing)
		snprintf(text, cap, "table %u is made ready: %u of %u chunks", table,
			jt->next_chunk, jt->t.n_chunks);
	else if (jt->waits_memory)
		snprintf(text, cap,
			"table %u waits for memory of jobs that have ended: %zu MB of it are still to be cleared",
			table, (pbox_registrar_uncleared(r) >> 20) + 1);
	else
		return false;
	return true;
}

const struct registrar_part registrar_open_part = {
	.name = "tables being opened",
	.mails = 1u << PBOX_MAIL_OPEN_TABLE,
	.mail = opened,
	.why = open_why,
};
