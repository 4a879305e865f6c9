/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Runs that are kept (R8.2b): all their workers are silent, because of a network that was cut or a cluster that was
 * stopped. What they have stays for a while, but needs no room that somebody else asks for.
 */

#include "registrar_impl.h"

struct keep {
	uint64_t ns,
		listened_ns; /* since when, by the clock and by that of leases; 0: a worker lives */
	bool gives_way;      /* it was, and ends because somebody needs its place */
};

static struct keep *
keep_of(const struct pbox_job *job)
{
	return registrar_job_state(job, PART_keep);
}

static uint64_t
grace_of(const struct pbox_registrar *r, const struct pbox_job *job)
{
	uint64_t ns = job->conf->bounds.grace_ns;

	return r->draining ? 0 : ns != 0 ? ns : r->conf.grace_ms * NS_PER_MS;
}

/* One that has no parameters is not worth it; nor one that all workers have left. */
static bool
worth_it(const struct pbox_job *job)
{
	bool silent = false;

	for (unsigned w = 0; w < job->workers; w++)
		silent |= job->member[w].state == PBOX_MEMBER_SILENT;
	return silent && registrar_has_built(job);
}

bool
registrar_is_kept(struct pbox_registrar *r, struct pbox_job *job)
{
	bool silent = true;

	if (job->state != PBOX_JOB_OPEN || keep_of(job)->ns == 0)
		return false;
	for (unsigned w = 0; w < job->workers; w++)
		if (registrar_has_session(job, w))
			silent &=
				registrar_unheard(r, job, w) > job->member[w].lease_ms * NS_PER_MS;
	return silent;
}

void
registrar_nobody_lives(struct pbox_registrar *r, struct pbox_job *job)
{
	uint64_t grace = grace_of(r, job);

	PBOX_ASSERT(job->state == PBOX_JOB_OPEN);
	if (grace == 0 || !worth_it(job) ||
		(keep_of(job)->ns != 0 && r->listened_ns - keep_of(job)->listened_ns >= grace)) {
		registrar_close_job(r, job);
		return;
	}
	if (keep_of(job)->ns != 0)
		return;
	keep_of(job)->ns = r->now_ns;
	keep_of(job)->listened_ns = r->listened_ns;
	registrar_event(r, PBOX_LOG_WARN,
		"job '%s': all its workers are silent; run %llu is kept for %llu s, unless somebody needs its place",
		job->name, (unsigned long long)job->run.number,
		(unsigned long long)(grace / (1000 * NS_PER_MS)));
}

void
registrar_somebody_lives(struct pbox_registrar *r, struct pbox_job *job)
{
	if (keep_of(job)->ns == 0)
		return;
	registrar_event(r, PBOX_LOG_INFO, "job '%s': run %llu goes on, after %llu s", job->name,
		(unsigned long long)job->run.number,
		(unsigned long long)((r->now_ns - keep_of(job)->ns) / (1000 * NS_PER_MS)));
	keep_of(job)->ns = 0;
	/* the others may come back as it did, before they are judged */
	for (unsigned w = 0; w < job->workers; w++)
		if (job->member[w].state == PBOX_MEMBER_SILENT) {
			job->member[w].state = PBOX_MEMBER_JOINED;
			registrar_lease_begin(r, &job->member[w]);
		}
}

bool
registrar_makes_way(
	struct pbox_registrar *r, struct pbox_job *job, const struct pbox_job_conf *asker)
{
	if (registrar_is_any(asker) && !registrar_is_any(job->conf))
		return false;
	return job->state == PBOX_JOB_CLOSING ? keep_of(job)->gives_way : registrar_is_kept(r, job);
}

/* Parameter memory that is free when all that may has made way, as if it were one piece. */
static size_t
memory_then(struct pbox_registrar *r, const struct pbox_job_conf *asker, const struct pbox_job *but)
{
	size_t bytes = registrar_arenas(r, pbox_arena_size) - registrar_arenas(r, pbox_arena_used);

	for (unsigned i = 0; i < r->conf.max_jobs; i++)
		if (r->job[i] != NULL && r->job[i] != but &&
			registrar_makes_way(r, r->job[i], asker))
			bytes += r->job[i]->bytes + r->job[i]->round_bytes;
	return bytes;
}

bool
registrar_make_room(struct pbox_registrar *r, const struct pbox_job_conf *asker,
	const struct pbox_job *but, size_t bytes)
{
	struct pbox_job *oldest = NULL;

	if (bytes > memory_then(r, asker, but))
		return false;
	for (unsigned i = 0; i < r->conf.max_jobs; i++) {
		struct pbox_job *job = r->job[i];

		if (job == NULL || job == but || !registrar_makes_way(r, job, asker))
			continue;
		if (job->state == PBOX_JOB_CLOSING)
			return true;
		if (oldest == NULL || keep_of(job)->ns < keep_of(oldest)->ns)
			oldest = job;
	}
	if (oldest == NULL)
		return false;
	registrar_event(r, PBOX_LOG_WARN,
		"run %llu of job '%s', kept for %llu s, ends: another job needs its place",
		(unsigned long long)oldest->run.number, oldest->name,
		(unsigned long long)((r->now_ns - keep_of(oldest)->ns) / (1000 * NS_PER_MS)));
	PBOX_ASSERT(oldest != but &&
		    keep_of(oldest)->ns != 0); /* no run ends in which a worker lives */
	count_control(r, PBOX_RS_RUNS_ENDED);
	keep_of(oldest)->gives_way = true;
	registrar_close_job(r, oldest);
	return true;
}

bool
registrar_room_comes(struct pbox_registrar *r, const struct pbox_frame *f,
	const struct pbox_job_conf *asker, size_t bytes)
{
	if (!registrar_make_room(r, asker, NULL, bytes))
		return false;
	registrar_refuse(r, f, PBOX_E_WORKER_TAKEN, ENDING_AGAIN_MS,
		"the box makes room for this job: a run that was kept ends");
	return true;
}

uint64_t
registrar_kept_ns(const struct pbox_job *job)
{
	return keep_of(job)->ns;
}

const struct registrar_part registrar_keep_part = {
	.name = "runs that are kept",
	.job_state = sizeof(struct keep),
};
