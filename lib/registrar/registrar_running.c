/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * R12.6 and R12.7: a worker begins, and its table is past its beginning. Either it is a worker that was started
 * again, and does not say so; or the whole job was, and what is there is a dead run's. Those who are in it are asked.
 */

#include <string.h>

#include "registrar_impl.h"

#define LOG_EVERY (10000 * NS_PER_MS)

/* Has a fragment finished a round since the table was built, or was it restored at one? */
static bool
past_beginning(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_job_table *jt, uint32_t *round)
{
	*round = 0;
	if (!jt->built || jt->shards_open < r->conf.n_shards ||
		!registrar_finished(r, job, jt->t.id, round))
		return false;
	return *round != (jt->begins_known ? jt->begins : 0);
}

/* It is all that is left of a run, and keeps others from beginning. */
static void
end_dead(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job, uint32_t round)
{
	registrar_refuse(r, f, PBOX_E_SESSION, 0,
		"the run of job '%s' is over after round %u, none of its workers lives: join again",
		job->name, round);
	count_control(r, PBOX_RS_RUNS_ENDED);
	registrar_event(r, PBOX_LOG_WARN,
		"run %llu of job '%s' ended after round %u: none of its workers lives, and host %s begins again",
		(unsigned long long)job->run.number, job->name, round,
		job->member[f->hdr.worker].host);
	registrar_close_job(r, job);
}

static bool
answer_running(
	struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job, uint32_t round)
{
	int w = registrar_living(r, job, f->hdr.worker, true);

	if (w == REGISTRAR_NOBODY) {
		end_dead(r, f, job, round);
		return true;
	}
	if (w < 0)
		return !registrar_refuse(r, f, PBOX_E_RUNNING, round,
			"the run of job '%s' is past its beginning (round %u): asking its workers whether they still live",
			job->name, round);
	registrar_refuse(r, f, PBOX_E_RUNNING, round,
		"the run of job '%s' is past round %u and worker %d (%s) lives in it: a worker that goes on in it with its checkpoint says first_round; else stop the old run first",
		job->name, round, w, job->member[w].host);
	if (job->dead_logged_ns != 0 && r->now_ns - job->dead_logged_ns < LOG_EVERY)
		return true;
	job->dead_logged_ns = r->now_ns;
	registrar_event(r, PBOX_LOG_WARN,
		"job '%s': worker %u (%s) begins, and the run is past round %u with worker %d (%s) alive in it",
		job->name, f->hdr.worker, job->member[f->hdr.worker].host, round, w,
		job->member[w].host);
	return true;
}

bool
registrar_running_declare(struct pbox_registrar *r, const struct pbox_frame *f,
	struct pbox_job *job, const struct pbox_declare *m)
{
	const struct pbox_member *mb = &job->member[f->hdr.worker];
	uint32_t round;

	if ((m->flags & (PBOX_DECLARE_RESTORE | PBOX_DECLARE_CONTINUE)) != 0 ||
		m->table >= job->n_tables || m->table < mb->declared)
		return false;
	if (!past_beginning(r, job, job->table[m->table], &round) &&
		(!job->table[m->table]->built || m->table >= mb->mapped_before))
		return false;
	return answer_running(r, f, job, round);
}

bool
registrar_running_map(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job,
	struct pbox_job_table *jt)
{
	uint32_t round;

	if (!jt->restored || pbox_bit_get(jt->goes_on, f->hdr.worker) ||
		job->member[f->hdr.worker].mapped > jt->t.id || !past_beginning(r, job, jt, &round))
		return false;
	return answer_running(r, f, job, round);
}

void
registrar_running_note(struct pbox_job_table *jt, unsigned worker, uint32_t flags)
{
	if ((flags & (PBOX_DECLARE_RESTORE | PBOX_DECLARE_CONTINUE)) != 0)
		pbox_bit_set(jt->goes_on, worker);
	else
		pbox_bit_clear(jt->goes_on, worker);
}
