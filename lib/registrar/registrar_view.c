/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What is to be seen of jobs. */

#include <stdlib.h>
#include <string.h>

#include "registrar_impl.h"

const struct pbox_job *
pbox_registrar_job_named(const struct pbox_registrar *r, const char *name)
{
	return registrar_find_job(r, name);
}

const struct pbox_job *
pbox_registrar_job_numbered(const struct pbox_registrar *r, unsigned id)
{
	return id < r->conf.max_jobs ? r->job[id] : NULL;
}

void
pbox_registrar_view_job(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_job_view *out)
{
	(void)r;
	*out = (struct pbox_job_view){
		.job = job,
		.name = job->name,
		.begun_ns = job->begun_ns,
		.kept_ns = registrar_kept_ns(job),
		.run = job->run.number,
		.bytes = job->bytes,
		.tables = job->n_tables,
		.hold = job->hold_share,
		.id = job->id,
		.workers = job->workers,
		.slots = job->slots,
		.joined = (uint16_t)pbox_job_joined(job),
		.window = job->window,
		.map_epoch = job->map_epoch,
		.policy = job->policy,
		.snapshots = job->conf->snapshot,
		.state = job->state,
	};
	for (unsigned w = 0; w < job->workers; w++)
		out->silent += job->member[w].state == PBOX_MEMBER_SILENT;
}

void
pbox_registrar_view_member(const struct pbox_registrar *r, const struct pbox_job *job,
	unsigned worker, uint64_t now_ns, struct pbox_member_view *out)
{
	const struct pbox_member *m = &job->member[worker];

	*out = (struct pbox_member_view){
		.host = m->host,
		.silent_ns = pbox_registrar_silence(r, job, worker, now_ns),
		.ip = m->peer.ip,
		.udp = m->peer.udp,
		.window = m->window,
		.lease_ms = m->lease_ms,
		.rtt_us = registrar_rtt_us(job, worker),
		.declared = m->declared,
		.state = m->state,
		.removed = m->removed,
		.rack = job->rack != NULL && job->rack[worker].at_ns != 0,
		.rack_waits = registrar_rack_waits(job, worker, now_ns),
	};
}

static enum pbox_table_state
state_of(const struct pbox_job_table *jt)
{
	return jt->failed      ? PBOX_TABLE_FAILED
	       : !jt->built    ? PBOX_TABLE_DECLARED
	       : jt->loading   ? PBOX_TABLE_LOADING
	       : jt->preparing ? PBOX_TABLE_PREPARING
	       : jt->restoring ? PBOX_TABLE_RESTORING
			       : PBOX_TABLE_MAPPED;
}

void
pbox_registrar_view_table(const struct pbox_registrar *r, const struct pbox_job *job,
	uint32_t table, struct pbox_table_view *out)
{
	const struct pbox_job_table *jt = job->table[table];
	const struct pbox_table *t = &jt->t;
	struct pbox_shard_restoring restoring;

	*out = (struct pbox_table_view){
		.state = state_of(jt),
		.error = jt->failed ? jt->error.text : NULL,
		.built = jt->built,
	};
	if (!jt->built)
		return;
	out->open = jt->shards_open == r->conf.n_shards;
	out->mode = t->mode;
	out->optimiser = t->optimiser;
	out->push_format = t->push_format;
	out->pull_format = t->pull_format;
	out->mixed = t->mixed;
	out->chunks = t->n_chunks;
	out->fragments = t->n_fragments;
	out->frag_elements = t->frag_elements;
	out->elements = t->layout.elements;
	out->bytes = t->bytes;
	/* before that its fragments are the loader's, or are being made ready */
	if (out->open && t->n_fragments > 0)
		out->version = pbox_chunk_frag_version(pbox_table_own_chunk(t), 0);
	out->round = pbox_registrar_round(r, job, table);
	if (out->open && t->n_groups > 0) /* before that it is the loader's */
		out->plain = (unsigned)pbox_schedule_at(&t->schedule[0], out->round + 1)->plain;
	restoring = registrar_restoring_of(r, job, table);
	out->restoring = restoring.left;
	out->lost = restoring.lost;
}

void
pbox_registrar_worker(const struct pbox_registrar *r, const struct pbox_job *job, unsigned worker,
	struct pbox_worker_stats *out)
{
	*out = (struct pbox_worker_stats){0};
	for (unsigned i = 0; i < r->conf.n_shards; i++)
		if (job->shard[i] != NULL)
			pbox_shard_worker(job->shard[i], worker, out);
}

uint32_t
pbox_registrar_round(const struct pbox_registrar *r, const struct pbox_job *job, uint32_t table)
{
	uint32_t round = 0;

	registrar_finished(r, job, table, &round);
	return round;
}

struct pbox_table_parts
pbox_registrar_parts(const struct pbox_job *job, uint32_t table)
{
	struct pbox_job_table *jt = job->table[table];

	return (struct pbox_table_parts){
		.job = job,
		.name = job->name,
		.run = job->run.number,
		.run_reported = job->run.reported,
		.workers = job->workers,
		.map_epoch = job->map_epoch,
		.t = &jt->t,
		.tensor = jt->tensor,
		.n_tensors = jt->fixed.tensors,
	};
}

uint32_t
pbox_registrar_job_round(const struct pbox_registrar *r, const struct pbox_job *job)
{
	uint32_t max = 0;

	for (uint32_t t = 0; t < job->n_tables; t++) {
		uint32_t round = job->table[t]->built ? pbox_registrar_round(r, job, t) : 0;

		if (pbox_serial_diff(round, max) > 0)
			max = round;
	}
	return max;
}

const char *
pbox_registrar_tensor(
	const struct pbox_registrar *r, const struct pbox_job *job, uint32_t chunk, unsigned frag)
{
	(void)r;
	return pbox_job_tensor(job, chunk, frag);
}

struct pbox_why *
pbox_registrar_why(struct pbox_registrar *r, const struct pbox_job *job)
{
	unsigned n = r->conf.n_shards;
	struct pbox_why *why;
	bool few = true;

	for (unsigned i = 0; i < n && job->state == PBOX_JOB_OPEN; i++)
		few &= pbox_shard_inbox(job->shard[i])->mails[PBOX_MAIL_WHY] < 2;
	if (job->state != PBOX_JOB_OPEN || !few)
		return NULL;
	why = calloc(1, sizeof(*why) + n * sizeof(why->page[0]));
	if (why == NULL)
		return NULL;
	why->shards = n;
	for (unsigned i = 0; i < n; i++) {
		struct pbox_mail m = {
			.kind = PBOX_MAIL_WHY, .job = job->shard[i], .why = &why->page[i]};

		why->page[i].of = why;
		registrar_mail(r, &m);
	}
	return why;
}

void
pbox_registrar_why_end(struct pbox_why *why)
{
	if (why == NULL)
		return;
	why->abandoned = true;
	if (why->answered == why->shards)
		free(why);
}

/* A shard has said what it waits for. */
static void
why_back(struct pbox_registrar *r, const struct pbox_mail *m)
{
	struct pbox_why *why = m->why->of;

	(void)r;
	why->answered++;
	if (why->abandoned && why->answered == why->shards)
		free(why);
}

unsigned
pbox_why_oldest(const struct pbox_why *why, unsigned max, const struct pbox_why_round **out)
{
	unsigned n = 0;

	for (unsigned s = 0; s < why->shards; s++)
		for (unsigned i = 0; i < why->page[s].n; i++) {
			const struct pbox_why_round *r = &why->page[s].round[i];
			unsigned k;

			for (k = n; k > 0 && out[k - 1]->since_ns > r->since_ns; k--)
				if (k < max)
					out[k] = out[k - 1];
			if (k == max)
				break; /* those after it are younger */
			out[k] = r;
			n += n < max;
		}
	return n;
}

void
pbox_registrar_view_homes(const struct pbox_job *job, struct pbox_homes_view *out)
{
	*out = (struct pbox_homes_view){
		.epoch = job->map_epoch, .out = job->out, .decider = job->decider};
	for (uint32_t k = 0; k < job->n_tables; k++) {
		const struct pbox_table *t = &job->table[k]->t;

		for (uint32_t i = 0; job->table[k]->built && t->plan != NULL && i < t->n_chunks;
			i++) {
			out->chunks[t->plan[i].box]++;
			out->elements[t->plan[i].box] += t->layout.chunk[i].elements;
		}
	}
}

const struct registrar_part registrar_view_part = {
	.name = "questions",
	.mails = 1u << PBOX_MAIL_WHY,
	.mail = why_back,
};
