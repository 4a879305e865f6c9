/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Runs (section 12 of the protocol): which one does a JOIN mean, and must the one that is there make way?
 * Nothing of a run enters another, whatever comes late of it.
 */

#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

/* A number is the time: seconds, and of them so many bits. */
#define FRACTION_BITS 20
/* What a worker may say beyond what the box would give: 136 years, by which a clock may have been set back. Numbers that
 * the box gives after it stay within, as each moves both: so none that it has given is ever refused. */
#define NUMBERS_AHEAD (UINT64_C(1) << (FRACTION_BITS + 32))

#define UNNAMED_LOG_EVERY (10000 * NS_PER_MS)

static bool
named(const uint8_t id[PBOX_RUN_LEN])
{
	static const uint8_t none[PBOX_RUN_LEN];

	return memcmp(id, none, PBOX_RUN_LEN) != 0;
}

static bool
run_is_same(const uint8_t a[PBOX_RUN_LEN], const uint8_t b[PBOX_RUN_LEN])
{
	return memcmp(a, b, PBOX_RUN_LEN) == 0;
}

/* ---- what is remembered of a job's runs ---------------------------------------------------- */

static unsigned
records(const struct pbox_registrar *r)
{
	return RUN_RECORDS + r->conf.max_jobs;
}

static struct run_record *
find_record(struct pbox_registrar *r, const char *name)
{
	for (unsigned i = 0; i < records(r); i++)
		if (strcmp(r->run[i].name, name) == 0)
			return &r->run[i];
	return NULL;
}

/* There is one for each job that is there, and for some that were. */
static struct run_record *
record_of(struct pbox_registrar *r, const char *name)
{
	struct run_record *rec = find_record(r, name);

	for (unsigned i = 0; rec == NULL && i < records(r); i++)
		if (registrar_find_job(r, r->run[i].name) == NULL)
			rec = &r->run[i];
	PBOX_ASSERT(rec != NULL); /* they are more than jobs */
	if (strcmp(rec->name, name) != 0) {
		for (unsigned i = 0; i < records(r); i++)
			if (r->run[i].used_ns < rec->used_ns &&
				registrar_find_job(r, r->run[i].name) == NULL)
				rec = &r->run[i];
		*rec = (struct run_record){0};
		snprintf(rec->name, sizeof(rec->name), "%s", name);
	}
	rec->used_ns = r->now_ns;
	return rec;
}

static const struct ended_run *
ended(const struct run_record *rec, const struct pbox_join *m)
{
	for (unsigned i = 0; rec != NULL && i < RUNS_ENDED && i < rec->n_ended; i++) {
		const struct ended_run *e = &rec->ended[(rec->n_ended - 1 - i) % RUNS_ENDED];

		if (m->number != 0 ? m->number == e->number || m->number <= rec->floor
				   : named(m->run) && run_is_same(m->run, e->id))
			return e;
	}
	return NULL;
}

/* id: NULL where the identity may be used again */
static void
put_ended(struct pbox_registrar *r, struct run_record *rec, const uint8_t *id, uint64_t number,
	const char *host)
{
	struct ended_run *e = &rec->ended[rec->n_ended++ % RUNS_ENDED];

	if (e->number > rec->floor)
		rec->floor = e->number;
	*e = (struct ended_run){.number = number, .ns = r->now_ns};
	if (id != NULL)
		memcpy(e->id, id, PBOX_RUN_LEN);
	snprintf(e->host, sizeof(e->host), "%s", host);
}

uint64_t
pbox_registrar_first_run(uint64_t unix_ns)
{
	const uint64_t second = UINT64_C(1000000000);

	return (unix_ns / second << FRACTION_BITS) + (unix_ns % second << FRACTION_BITS) / second;
}

/* Above all that the job has had. Those may be a worker's word, which moves the numbers of no other job. */
static uint64_t
next_number(struct pbox_registrar *r, const struct run_record *rec)
{
	r->runs++;
	return r->runs > rec->highest ? r->runs : rec->highest + 1;
}

/* A run has begun, or goes on under another number. */
static void
put_last(struct run_record *rec, uint64_t number)
{
	PBOX_ASSERT(number != 0); /* R12.2 */
	rec->last = number;
	if (number > rec->highest)
		rec->highest = number;
}

bool
registrar_run_is(const struct pbox_run *run, const struct pbox_join *m)
{
	if (m->number != 0)
		return m->number == run->number;
	return run_is_same(m->run, run->id);
}

void
registrar_run_begin(struct pbox_registrar *r, struct pbox_job *job, const struct pbox_join *m)
{
	struct run_record *rec = record_of(r, job->name);
	struct pbox_run *run = &job->run;

	PBOX_ASSERT(r->job[job->id] == job && run->number == 0);
	/* those of the run that was to begin come later, and this one makes way then */
	if (rec->has_next && registrar_run_is(&rec->next, m))
		*run = rec->next;
	memcpy(run->id, m->run, PBOX_RUN_LEN);
	if (m->number != 0) {
		run->number = m->number;
		run->reported = true;
	}
	if (run->number == 0)
		run->number = next_number(r, rec);
	/* the one before it has ended by itself: its name may come again, its workers may not */
	if (rec->last != 0 && rec->last != run->number)
		put_ended(r, rec, NULL, rec->last, m->host);
	put_last(rec, run->number);
	PBOX_ASSERT(run->number != 0 && run->number <= rec->highest);
	rec->next = (struct pbox_run){0};
	rec->has_next = false;
}

/* ---- which run a JOIN means ------------------------------------------------------------------ */

enum meaning {
	JOINS,     /* the run that is there, or begins */
	TAKES,     /* that one, which gets the worker's number */
	MAKES_WAY, /* another: the run that is there ends */
	UNNAMED, /* another, for the run that is there has an identity: that ends if nobody lives in it */
	TOO_LATE, /* one that was ended */
};

/* mapped: a table is */
static enum meaning
meaning(const struct pbox_run *run, bool mapped, const struct pbox_join *m)
{
	/* by a clock that was set back a number may be given twice */
	if (m->number != 0 && m->number == run->number)
		return run_is_same(m->run, run->id) ? JOINS : TOO_LATE;
	if (m->number != 0 && run->reported)
		return m->number > run->number ? MAKES_WAY : TOO_LATE;
	if (m->number != 0)
		return !mapped && run_is_same(m->run, run->id) ? TAKES : TOO_LATE;
	/* all workers of a run name it, or none does: else they are of two starts */
	if (run_is_same(m->run, run->id))
		return JOINS;
	return named(m->run) ? MAKES_WAY : UNNAMED;
}

/* R12.5: nobody lives in the run that is there, and this worker cannot. */
static bool
is_another(struct pbox_registrar *r, struct pbox_job *job, const struct pbox_join *m)
{
	bool policy = job->conf->policy == PBOX_POLICY_ANY && job->policy != m->policy;

	return m->number == 0 && !named(m->run) &&
	       (policy || job->workers != m->workers || registrar_asked_slots(job) != m->slots) &&
	       registrar_is_kept(r, job);
}

static bool
has_begun(const struct pbox_job *job)
{
	return registrar_has_built(job) || job->resumed;
}

/* R12.5: it was begun by a worker that was started again with the box, and has nothing yet: its session is
 * given another number when it joins again. */
static void
take_number(struct pbox_registrar *r, struct pbox_job *job, uint64_t number)
{
	struct run_record *rec = record_of(r, job->name);

	/* else workers would be in the middle of a run with another number */
	PBOX_ASSERT(!registrar_has_built(job) && number != 0);
	for (unsigned w = 0; w < job->workers; w++)
		if (registrar_has_session(job, w))
			registrar_end_session(r, job, w);
	job->run.number = number;
	job->run.reported = true;
	put_last(rec, number);
	registrar_event(r, PBOX_LOG_INFO,
		"job '%s' goes on with run %llu: a worker of it has come again", job->name,
		(unsigned long long)number);
}

/* If the job that is there is ending already, the run that was to begin after it makes way. */
static void
make_way(struct pbox_registrar *r, const struct registrar_join *q)
{
	const struct pbox_join *m = &q->m;
	struct pbox_job *job = q->job;
	bool ending = job == NULL || job->state == PBOX_JOB_CLOSING;
	struct run_record *rec = record_of(r, m->job);
	const struct pbox_run *run = ending ? &rec->next : &job->run;
	uint64_t number = run->number;

	PBOX_ASSERT(job == NULL || !job->made_way || ending); /* a run ends once */
	/* no run ends for one that cannot begin */
	if (!registrar_may_begin(r, q))
		return;
	/* R16.3: at another box than the first one a run that has nothing here may be the one that goes on */
	if (registrar_boxes_gives(r) || m->number == 0 || ending || has_begun(job))
		put_ended(r, rec, run->id, number, m->host);
	if (rec->last == number)
		rec->last = 0;
	rec->next = (struct pbox_run){.number = m->number, .reported = m->number != 0};
	memcpy(rec->next.id, m->run, PBOX_RUN_LEN);
	rec->has_next = true;
	registrar_refuse(r, q->f, PBOX_E_WORKER_TAKEN, ENDING_AGAIN_MS,
		"run %llu of job '%s' makes way for this one: its memory is being released",
		(unsigned long long)number, m->job);
	if (ending)
		return;
	count_control(r, PBOX_RS_RUNS_ENDED);
	job->made_way = true;
	registrar_close_job(r, job);
	registrar_event(r, PBOX_LOG_WARN,
		"run %llu of job '%s' ended: a new run began from host %s (two trainings at once want two names of jobs)",
		(unsigned long long)number, m->job, m->host);
}

/* R12.5: no member of a run that has an identity names none. So this worker is of another start, and knows less of it than
 * one that names it. */
static void
unnamed(struct pbox_registrar *r, const struct registrar_join *q)
{
	struct pbox_job *job = q->job;
	int w = registrar_living(r, job, PBOX_NO_WORKER, false);

	if (w == REGISTRAR_NOBODY) {
		make_way(r, q);
		return;
	}
	if (w == REGISTRAR_ASKING) {
		registrar_refuse(r, q->f, PBOX_E_WORKER_TAKEN, CLAIM_AGAIN_MS,
			"the run of job '%s' has a name, and this worker names none: asking whether its workers still live",
			job->name);
		return;
	}
	registrar_refuse(r, q->f, PBOX_E_WORKER_TAKEN, CLAIM_AGAIN_MS,
		"the run of job '%s' has a name, this worker names none, and worker %d (%s) lives in it: give all workers of a start the same name (run=, PBOX_RUN, --run), or stop those of the other start first",
		job->name, w, job->member[w].host);
	if (job->dead_logged_ns != 0 && r->now_ns - job->dead_logged_ns < UNNAMED_LOG_EVERY)
		return;
	job->dead_logged_ns = r->now_ns;
	registrar_event(r, PBOX_LOG_WARN,
		"job '%s': a worker (%s) that names no run wants to join, and the run that is there has a name and worker %d (%s) alive in it",
		job->name, q->m.host, w, job->member[w].host);
}

/* R16.3: the number is of the first box, which may have been started again, and not know yet that the run that is there goes on:
 * its workers bring its number back. So it ends when none of those that have a map lives, or had one before this box was started
 * again. */
static void
another_box(struct pbox_registrar *r, const struct registrar_join *q)
{
	struct pbox_job *job = q->job;
	int w;

	/* this worker is in it no more, and may be the one that has the map */
	for (unsigned i = 0; i < job->workers; i++)
		if (registrar_has_session(job, i) && job->member[i].nonce == q->m.nonce)
			registrar_end_session(r, job, i);
	w = registrar_living(r, job, PBOX_NO_WORKER, true);
	if (w == REGISTRAR_NOBODY)
		make_way(r, q);
	else if (w == REGISTRAR_ASKING)
		registrar_refuse(r, q->f, PBOX_E_WORKER_TAKEN, CLAIM_AGAIN_MS,
			"run %llu of job '%s' is later than the one that is here: asking whether its workers still live",
			(unsigned long long)q->m.number, job->name);
	/* R16.17: the number is of a box that this run goes on without */
	else if (job->decider != 0 && run_is_same(q->m.run, job->run.id))
		registrar_boxes_refer(r, q, job->decider);
	else
		registrar_refuse(r, q->f, PBOX_E_WORKER_TAKEN, CLAIM_AGAIN_MS,
			"run %llu of job '%s' is later than the one that is here, and worker %d (%s) lives in that: stop those of the other start first",
			(unsigned long long)q->m.number, job->name, w, job->member[w].host);
}

/* R16.17: where it decides, a JOIN that names another run ends the one that is there (R12.3), although its number is of box 0. */
static bool
is_of_another_start(
	const struct pbox_registrar *r, const struct pbox_job *live, const struct pbox_join *m)
{
	return registrar_decides(r, live) && named(m->run) && !run_is_same(m->run, live->run.id);
}

/* R16.3: and both may have been started again. Then a later run that has nothing here was begun by a worker that had to begin
 * again, and this one goes on. */
static bool
earlier_goes_on(const struct pbox_registrar *r, const struct pbox_job *live,
	const struct pbox_run *run, const struct pbox_join *m)
{
	return !registrar_boxes_gives(r) && (live == NULL || !has_begun(live)) && m->number != 0 &&
	       m->number < run->number && run_is_same(m->run, run->id);
}

/* The run with whose end its session ended, whatever the worker says of it. */
static const struct ended_run *
ended_with(const struct run_record *rec, uint64_t made_way)
{
	const struct pbox_join m = {.number = made_way};

	return made_way != 0 ? ended(rec, &m) : NULL;
}

static bool
too_late(struct pbox_registrar *r, const struct registrar_join *q, const struct ended_run *e,
	const struct pbox_run *now)
{
	const struct pbox_join *m = &q->m;

	if (e != NULL)
		return registrar_refuse(r, q->f, PBOX_E_RUN_ENDED, 0,
			"the run of job '%s' that this worker belongs to was ended %llu s ago: a new run began from host %s (two trainings at once want two names of jobs)",
			m->job, (unsigned long long)((r->now_ns - e->ns) / (1000 * NS_PER_MS)),
			e->host);
	if (m->number == now->number)
		return registrar_refuse(r, q->f, PBOX_E_RUN_ENDED, 0,
			"the run of job '%s' that this worker belongs to has ended: another has its number (%llu), for the clock of the box was set back",
			m->job, (unsigned long long)m->number);
	return registrar_refuse(r, q->f, PBOX_E_RUN_ENDED, 0,
		"the run of job '%s' that this worker belongs to (%llu) has ended: run %llu has begun",
		m->job, (unsigned long long)m->number, (unsigned long long)now->number);
}

bool
registrar_run_join(struct pbox_registrar *r, struct registrar_join *q)
{
	const struct pbox_join *m = &q->m;
	struct pbox_job *job = q->job;
	struct pbox_job *live = job != NULL && job->state != PBOX_JOB_CLOSING ? job : NULL;
	const struct run_record *rec = find_record(r, m->job);
	const struct pbox_run *run = live != NULL                   ? &live->run
				     : rec != NULL && rec->has_next ? &rec->next
								    : NULL;
	const struct ended_run *e = ended(rec, m);
	enum meaning what = JOINS;

	/* a worker that is of a later run by now says so */
	if (e == NULL && m->number <= q->made_way)
		e = ended_with(rec, q->made_way);
	if (m->number > r->runs && m->number - r->runs > NUMBERS_AHEAD)
		return registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, 0,
			"no run has the number %llu: by the clock of this box they are at %llu",
			(unsigned long long)m->number, (unsigned long long)r->runs);
	if (e != NULL)
		what = TOO_LATE;
	else if (run != NULL)
		/* racks that were started again with this box are fresh, and restore what their workers hold (R18.7) */
		what = meaning(run, live == NULL || registrar_has_built(live), m);
	if (what == JOINS && live != NULL && is_another(r, live, m))
		what = MAKES_WAY;
	if (what == TOO_LATE && e == NULL && earlier_goes_on(r, live, run, m))
		what = live != NULL ? TAKES : JOINS;
	if (what == TOO_LATE)
		return too_late(r, q, e, run);
	if (what == UNNAMED && live != NULL) {
		unnamed(r, q);
		return false;
	}
	if (what == MAKES_WAY && m->number != 0 && live != NULL && !registrar_boxes_gives(r) &&
		!is_of_another_start(r, live, m)) {
		another_box(r, q);
		return false;
	}
	if (what == MAKES_WAY) {
		make_way(r, q);
		return false;
	}
	/* before it changes anything of the run */
	if (live != NULL && !registrar_agrees(r, q, live))
		return false;
	if (what == TAKES)
		take_number(r, live, m->number);
	return true;
}

/* ---- a run that has begun ------------------------------------------------------------------ */

/*
 * R12.6 and R12.7: a worker begins, and its table is past its beginning. Either it is a worker that was started
 * again, and does not say so; or the whole job was, and what is there is a dead run's. Those who are in it are asked.
 */

#define RUNNING_LOG_EVERY (10000 * NS_PER_MS)

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
	PBOX_ASSERT(job->state != PBOX_JOB_CLOSING);
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
	if (job->dead_logged_ns != 0 && r->now_ns - job->dead_logged_ns < RUNNING_LOG_EVERY)
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
