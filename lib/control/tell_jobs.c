/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include "health_priv.h"
#include "tell.h"

/* Telemetry of jobs, their workers and tables. */

/* a name may be four times as long as it is (ascii.h), and an answer has 16 KiB */
#define JOBS_PAGE    24
#define WORKERS_PAGE 20
#define TABLES_PAGE  48

static const char *const member_state[] = {
	[PBOX_MEMBER_ABSENT] = "absent",
	[PBOX_MEMBER_JOINED] = "joined",
	[PBOX_MEMBER_LEFT] = "left",
	[PBOX_MEMBER_SILENT] = "silent",
};
static const char *const job_state[] = {
	[PBOX_JOB_OPENING] = "opening",
	[PBOX_JOB_OPEN] = "open",
	[PBOX_JOB_CLOSING] = "closing",
};

/* Adds up: WORKER_COUNTERS values. */
static void
count_worker(struct pbox_control *c, const struct pbox_job *job, unsigned w, uint64_t *v,
	uint32_t *round)
{
	struct pbox_worker_stats s;

	pbox_registrar_worker(c->registrar, job, w, &s);
	v[WORKER_CONTRIBUTIONS] += s.contributions;
	v[WORKER_CONTRIBUTED_BYTES] += s.bytes;
	v[WORKER_REPEATS] += s.repeats;
	v[WORKER_PULLS] += s.pulls;
	v[WORKER_LAST] += s.last;
	v[WORKER_WAITED_NS] += s.waited_ns;
	*round = s.round;
}

static void
add_job(struct pbox_control *c, const struct pbox_job *job, struct rte_tel_data *d)
{
	uint64_t v[JOB_STATS] = {0};
	uint32_t round;

	_Static_assert((int)JOB_WAITED_NS == (int)WORKER_WAITED_NS, "in the same order");
	for (unsigned w = 0; w < job->workers; w++) {
		count_worker(c, job, w, v, &round);
		v[JOB_SILENT] += job->member[w].state == PBOX_MEMBER_SILENT;
	}
	v[JOB_WORKERS] = job->workers;
	v[JOB_JOINED] = pbox_job_joined(job);
	v[JOB_TABLES] = job->n_tables;
	v[JOB_BYTES] = job->bytes;
	v[JOB_WINDOW] = job->window;
	v[JOB_ROUND] = health_job_round(c, job);
	v[JOB_AGE_MS] = (pbox_dp_now(c->conf.dp) - job->begun_ns) / NS_PER_MS;
	tell_text(d, "name", "%s", job->name);
	if (job->kept_ns != 0)
		v[JOB_KEPT_MS] = (pbox_dp_now(c->conf.dp) - job->kept_ns) / NS_PER_MS;
	tell_text(d, "state", "%s",
		job->kept_ns != 0 && job->state == PBOX_JOB_OPEN ? "kept" : job_state[job->state]);
	rte_tel_data_add_dict_u64(d, "run", job->run.number);
	tell_text(d, "policy", "%s", pbox_policy_name(job->policy));
	tell_values(d, PBOX_COUNTERS_JOB, v);
}

static void
on_jobs(struct pbox_control *c, int n, char word[][TELL_WORD], struct rte_tel_data *d)
{
	const struct pbox_job *job;
	unsigned first = 0, i;

	if (n > 0 && !tell_number(word[0], PBOX_MAX_JOBS, &first)) {
		tell_error(d, "FIRST is a number, what next was in the page before");
		return;
	}
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	rte_tel_data_add_dict_u64(d, "jobs", pbox_registrar_jobs(c->registrar));
	rte_tel_data_add_dict_int(d, "draining", pbox_registrar_draining(c->registrar));
	for (i = first; (job = pbox_registrar_job(c->registrar, i)) != NULL; i++) {
		struct rte_tel_data *e;

		if (i == first + JOBS_PAGE) {
			rte_tel_data_add_dict_u64(d, "next", i);
			return;
		}
		e = tell_dict();
		add_job(c, job, e);
		tell_add_numbered(d, "job", job->id, e);
	}
}

static void
add_worker(struct pbox_control *c, const struct pbox_job *job, unsigned w, uint32_t newest,
	struct rte_tel_data *d)
{
	const struct pbox_member *m = &job->member[w];
	uint64_t silent = pbox_registrar_silence(c->registrar, job, w, pbox_dp_now(c->conf.dp));
	uint64_t v[WORKER_STATS] = {0};
	char address[TELL_ADDRESS];
	uint32_t round;

	count_worker(c, job, w, v, &round);
	v[WORKER_SILENT_MS] = silent != UINT64_MAX ? silent / NS_PER_MS : 0;
	v[WORKER_LEASE_MS] = m->lease_ms;
	v[WORKER_WINDOW] = m->window;
	v[WORKER_TABLES] = m->declared;
	v[WORKER_ROUND] = round;
	if (pbox_serial_diff(newest, round) > 0)
		v[WORKER_LAG] = (uint64_t)pbox_serial_diff(newest, round);
	v[WORKER_RTT_US] = m->rtt_us;
	tell_text(d, "host", "%s", m->host);
	tell_text(d, "address", "%s",
		m->peer.ip != 0 ? tell_address(m->peer.ip, m->peer.udp, address) : "");
	tell_text(d, "state", "%s", m->removed ? "removed" : member_state[m->state]);
	tell_values(d, PBOX_COUNTERS_WORKER, v);
}

static void
on_workers(struct pbox_control *c, int n, char word[][TELL_WORD], struct rte_tel_data *d)
{
	const struct pbox_job *job;
	unsigned first = 0, end;
	uint32_t newest = 0;

	if (n == 0) {
		tell_error(d, "which job? /pbox/workers,JOB[,FIRST]");
		return;
	}
	job = tell_job(c, word[0], d);
	if (job == NULL)
		return;
	if (n > 1 && !tell_number(word[1], job->workers - 1u, &first)) {
		tell_error(d, "FIRST is a worker of the job, 0 to %u", job->workers - 1u);
		return;
	}
	for (unsigned w = 0; w < job->workers; w++) {
		struct pbox_worker_stats s;

		pbox_registrar_worker(c->registrar, job, w, &s);
		if (pbox_serial_diff(s.round, newest) > 0)
			newest = s.round;
	}
	end = first + WORKERS_PAGE < job->workers ? first + WORKERS_PAGE : job->workers;
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	tell_text(d, "job", "%s", job->name);
	rte_tel_data_add_dict_u64(d, "workers", job->workers);
	if (end < job->workers)
		rte_tel_data_add_dict_u64(d, "next", end);
	for (unsigned w = first; w < end; w++) {
		struct rte_tel_data *e = tell_dict();

		add_worker(c, job, w, newest, e);
		pbox_registrar_measure(c->registrar, job->id, w);
		tell_add_numbered(d, "worker", w, e);
	}
}

static void
add_table(struct pbox_control *c, const struct pbox_job *job, unsigned i, struct rte_tel_data *d)
{
	const struct pbox_job_table *jt = job->table[i];
	uint32_t restoring, lost;
	uint64_t fragments = 0, elements = 0;

	tell_text(d, "state", "%s",
		jt->failed      ? "failed"
		: !jt->built    ? "declared"
		: jt->loading   ? "loading"
		: jt->preparing ? "preparing"
		: jt->restoring ? "restoring"
				: "mapped");
	if (jt->failed)
		tell_text(d, "error", "%s", jt->error.text);
	if (!jt->built)
		return;
	for (uint32_t k = 0; k < jt->t.n_chunks; k++) {
		fragments += jt->t.chunk[k].fragments;
		elements += jt->t.chunk[k].elements;
	}
	pbox_registrar_restoring(c->registrar, job, i, &restoring, &lost);
	tell_text(d, "mode", "%s", jt->t.mode == PBOX_MODE_OPTIMISER ? "optimiser" : "allreduce");
	tell_text(d, "optimiser", "%s", pbox_optimiser_name(jt->t.optimiser));
	rte_tel_data_add_dict_u64(d, "elements", elements);
	rte_tel_data_add_dict_u64(d, "bytes", jt->t.bytes);
	rte_tel_data_add_dict_u64(d, "chunks", jt->t.n_chunks);
	rte_tel_data_add_dict_u64(d, "slots", fragments);
	rte_tel_data_add_dict_u64(d, "slot_elements", jt->t.frag_elements);
	rte_tel_data_add_dict_u64(d, "round", pbox_registrar_round(c->registrar, job, i));
	rte_tel_data_add_dict_u64(d, "restoring", restoring);
	rte_tel_data_add_dict_u64(d, "lost", lost);
}

static void
on_slots(struct pbox_control *c, int n, char word[][TELL_WORD], struct rte_tel_data *d)
{
	const struct pbox_job *job;
	unsigned first = 0, end;

	if (n == 0) {
		tell_error(d, "which job? /pbox/slots,JOB[,FIRST]");
		return;
	}
	job = tell_job(c, word[0], d);
	if (job == NULL)
		return;
	if (n > 1 && !tell_number(word[1], PBOX_MAX_TABLES, &first)) {
		tell_error(d, "FIRST is the number of a table");
		return;
	}
	end = first + TABLES_PAGE < job->n_tables ? first + TABLES_PAGE : job->n_tables;
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	tell_text(d, "job", "%s", job->name);
	rte_tel_data_add_dict_u64(d, "tables", job->n_tables);
	/* on each data core: packets that it may hold, and rounds that may be open */
	rte_tel_data_add_dict_u64(d, "hold_per_core", job->hold_share);
	if (end < job->n_tables)
		rte_tel_data_add_dict_u64(d, "next", end);
	for (unsigned i = first; i < end; i++) {
		struct rte_tel_data *e = tell_dict();

		add_table(c, job, i, e);
		tell_add_numbered(d, "table", i, e);
	}
}

const struct tell_command tell_job_commands[] = {
	{"/pbox/jobs", 1, on_jobs, "Jobs. Parameter: FIRST, of a later page."},
	{"/pbox/workers", 2, on_workers,
		"Workers of a job: state, rounds, lag, repeats. Parameters: JOB[,FIRST]."},
	{"/pbox/slots", 2, on_slots,
		"Tables of a job: slots (fragments), rounds. Parameters: JOB[,FIRST]."},
	{0},
};
