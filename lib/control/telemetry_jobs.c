/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stdio.h>

#include "health_priv.h"
#include "reply.h"

/* Telemetry of jobs, their workers and tables. */

/* a name may be four times as long as it is (utf7.h), and an answer has 16 KiB */
#define JOBS_PAGE    24
#define WORKERS_PAGE 16
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
static const char *const table_state[] = {
	[PBOX_TABLE_DECLARED] = "declared",
	[PBOX_TABLE_LOADING] = "loading",
	[PBOX_TABLE_PREPARING] = "preparing",
	[PBOX_TABLE_RESTORING] = "restoring",
	[PBOX_TABLE_MAPPED] = "mapped",
	[PBOX_TABLE_FAILED] = "failed",
};

/* Adds up: the values before WORKER_SILENT_MS. */
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

/* Which box has how many of its chunks. */
static void
add_homes(const struct pbox_control *c, const struct pbox_job *job, struct rte_tel_data *d)
{
	unsigned boxes = c->conf.registrar.boxes.boxes;
	struct pbox_homes_view v;
	char text[24 * PBOX_MAX_BOXES] = "";
	size_t n = 0;

	if (boxes < 2)
		return;
	pbox_registrar_view_homes(job, &v);
	for (unsigned i = 0; i < boxes; i++)
		n += (size_t)snprintf(
			text + n, sizeof(text) - n, i > 0 ? " %u" : "%u", v.chunks[i]);
	rte_tel_data_add_dict_u64(d, "map", v.epoch);
	reply_text(d, "homes", "%s", text);
	n = 0;
	for (unsigned i = 0; i < boxes; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, i > 0 ? " %" PRIu64 : "%" PRIu64,
			v.elements[i]);
	reply_text(d, "elements_at", "%s", text);
	n = 0;
	text[0] = '\0';
	for (unsigned i = 0; i < boxes; i++)
		if ((v.out >> i & 1) != 0)
			n += (size_t)snprintf(text + n, sizeof(text) - n, n > 0 ? " %u" : "%u", i);
	reply_text(d, "out", "%s", text);
	rte_tel_data_add_dict_u64(d, "decides", v.decider);
}

static void
add_job(struct pbox_control *c, const struct pbox_job_view *j, struct rte_tel_data *d)
{
	uint64_t v[JOB_STATS] = {0};
	uint32_t round;

	_Static_assert((int)JOB_WAITED_NS == (int)WORKER_WAITED_NS, "in the same order");
	for (unsigned w = 0; w < j->workers; w++)
		count_worker(c, j->job, w, v, &round);
	v[JOB_SILENT] = j->silent;
	v[JOB_WORKERS] = j->workers;
	v[JOB_SLOTS] = j->slots;
	v[JOB_JOINED] = j->joined;
	v[JOB_TABLES] = j->tables;
	v[JOB_BYTES] = j->bytes;
	v[JOB_WINDOW] = j->window;
	v[JOB_ROUND] = pbox_registrar_job_round(c->registrar, j->job);
	v[JOB_AGE_MS] = (pbox_dp_now(c->conf.dp) - j->begun_ns) / NS_PER_MS;
	v[JOB_STATELESS] = pbox_registrar_stateless(c->registrar, j->job);
	reply_text(d, "name", "%s", j->name);
	if (j->kept_ns != 0)
		v[JOB_KEPT_MS] = (pbox_dp_now(c->conf.dp) - j->kept_ns) / NS_PER_MS;
	reply_text(d, "state", "%s",
		j->kept_ns != 0 && j->state == PBOX_JOB_OPEN ? "kept" : job_state[j->state]);
	rte_tel_data_add_dict_u64(d, "run", j->run);
	reply_text(d, "policy", "%s", pbox_policy_name(j->policy));
	add_homes(c, j->job, d);
	reply_values(d, PBOX_COUNTERS_JOB, v);
}

/* A page of jobs, each by add(). */
static void
job_page(struct pbox_control *c, unsigned first, struct rte_tel_data *d,
	void (*add)(struct pbox_control *c, const struct pbox_job_view *j, struct rte_tel_data *d))
{
	const struct pbox_job *job;

	for (unsigned i = first; (job = pbox_registrar_job(c->registrar, i)) != NULL; i++) {
		struct pbox_job_view j;
		struct rte_tel_data *e;

		if (i == first + JOBS_PAGE) {
			rte_tel_data_add_dict_u64(d, "next", i);
			return;
		}
		pbox_registrar_view_job(c->registrar, job, &j);
		e = reply_dict();
		add(c, &j, e);
		reply_add_numbered(d, "job", j.id, e);
	}
}

static bool
first_job(int n, char word[][PARAM_SIZE], unsigned *first, struct rte_tel_data *d)
{
	if (n == 0 || params_number(word[0], PBOX_MAX_JOBS, first))
		return true;
	reply_error(d, "FIRST is a number, what next was in the page before");
	return false;
}

static void
on_jobs(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	unsigned first = 0;

	if (!first_job(n, word, &first, d))
		return;
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	rte_tel_data_add_dict_u64(d, "jobs", pbox_registrar_jobs(c->registrar));
	rte_tel_data_add_dict_int(d, "draining", pbox_registrar_draining(c->registrar));
	job_page(c, first, d, add_job);
}

static void
add_moving(struct pbox_control *c, const struct pbox_job_view *j, struct rte_tel_data *d)
{
	struct pbox_moving_view m;

	pbox_registrar_view_moving(c->registrar, j->job, &m);
	reply_text(d, "name", "%s", j->name);
	rte_tel_data_add_dict_u64(d, "map", m.epoch);
	rte_tel_data_add_dict_u64(d, "here", m.here);
	rte_tel_data_add_dict_u64(d, "planned", m.planned);
	rte_tel_data_add_dict_u64(d, "restoring", m.restoring);
	rte_tel_data_add_dict_u64(d, "needed", m.needed);
	rte_tel_data_add_dict_u64(d, "unshown", m.unshown);
	rte_tel_data_add_dict_u64(d, "stateless", m.stateless);
	rte_tel_data_add_dict_u64(d, "more", m.more || m.busy);
}

/* What would be lost, or would wait, if the box stopped now; and how far moves are. */
static void
on_moving(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	unsigned first = 0;

	if (!first_job(n, word, &first, d))
		return;
	rte_tel_data_add_dict_u64(d, "jobs", pbox_registrar_jobs(c->registrar));
	job_page(c, first, d, add_moving);
}

/* Only of one that has pushed to tables in clocks: most jobs have none, and the answer has a limit. */
static void
add_stale(const struct pbox_control *c, const struct pbox_job *job, unsigned w,
	struct rte_tel_data *d)
{
	struct pbox_worker_stats s;
	char text[PBOX_STALE_CLASSES * 21] = "";
	uint64_t any = 0;
	size_t n = 0;

	pbox_registrar_worker(c->registrar, job, w, &s);
	for (unsigned i = 0; i < PBOX_STALE_CLASSES; i++) {
		any |= s.stale[i];
		n += (size_t)snprintf(
			text + n, sizeof(text) - n, i > 0 ? " %" PRIu64 : "%" PRIu64, s.stale[i]);
	}
	if (any != 0)
		reply_text(d, "stale", "%s", text);
}

/* What results are in now, of a table whose pull format is one of blocks, and why (R13.10). */
static void
add_results(const struct pbox_table_view *t, struct rte_tel_data *d)
{
	unsigned why = t->plain >> 1;

	if (!pbox_format_is_block(t->pull_format))
		return;
	reply_text(d, "results", "%s",
		pbox_format_name(
			(t->plain & PBOX_PLAIN_SET) != 0 ? PBOX_FMT_FP32 : t->pull_format));
	if (why != PBOX_WHY_NOTHING)
		reply_text(d, "why", "%s", pbox_plain_why_name(why));
}

/* The format of pushes that may be fp32 as well, of the first such table; 0: there is none. With that one's results. */
static unsigned
mixed_format(
	struct pbox_control *c, const struct pbox_job *job, unsigned tables, struct rte_tel_data *d)
{
	for (unsigned i = 0; i < tables; i++) {
		struct pbox_table_view t;

		pbox_registrar_view_table(c->registrar, job, i, &t);
		if (!t.built || !t.mixed)
			continue;
		add_results(&t, d);
		return t.push_format;
	}
	return 0;
}

static void
add_worker(struct pbox_control *c, const struct pbox_job *job, unsigned w, uint32_t newest,
	struct rte_tel_data *d)
{
	uint64_t v[WORKER_STATS] = {0};
	struct pbox_member_view m;
	char address[REPLY_ADDRESS];
	uint32_t round;

	pbox_registrar_view_member(c->registrar, job, w, pbox_dp_now(c->conf.dp), &m);
	count_worker(c, job, w, v, &round);
	v[WORKER_SILENT_MS] = m.silent_ns != UINT64_MAX ? m.silent_ns / NS_PER_MS : 0;
	v[WORKER_LEASE_MS] = m.lease_ms;
	v[WORKER_WINDOW] = m.window;
	v[WORKER_TABLES] = m.declared;
	v[WORKER_ROUND] = round;
	if (pbox_serial_diff(newest, round) > 0)
		v[WORKER_LAG] = (uint64_t)pbox_serial_diff(newest, round);
	v[WORKER_RTT_US] = m.rtt_us;
	reply_text(d, "host", "%s", m.host);
	reply_text(d, "address", "%s", m.ip != 0 ? reply_address(m.ip, m.udp, address) : "");
	reply_text(d, "state", "%s", m.removed ? "removed" : member_state[m.state]);
	reply_values(d, PBOX_COUNTERS_WORKER, v);
	add_stale(c, job, w, d);
}

/* What its newest push was in. */
static void
add_push_format(struct pbox_control *c, const struct pbox_job *job, unsigned w, unsigned format,
	struct rte_tel_data *d)
{
	struct pbox_worker_stats s;

	pbox_registrar_worker(c->registrar, job, w, &s);
	if (s.contributions > 0)
		reply_text(d, "pushes", "%s", pbox_format_name(s.wide ? PBOX_FMT_FP32 : format));
}

static void
on_workers(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	const struct pbox_job *job;
	struct pbox_job_view j;
	unsigned first = 0, end, mixed;
	uint32_t newest = 0;

	job = reply_job_workers(c, "workers", n, word, &j, &first, d);
	if (job == NULL)
		return;
	for (unsigned w = 0; w < j.workers; w++) {
		struct pbox_worker_stats s;

		pbox_registrar_worker(c->registrar, job, w, &s);
		if (pbox_serial_diff(s.round, newest) > 0)
			newest = s.round;
	}
	end = first + WORKERS_PAGE < j.workers ? first + WORKERS_PAGE : j.workers;
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	reply_text(d, "job", "%s", j.name);
	rte_tel_data_add_dict_u64(d, "workers", j.workers);
	mixed = mixed_format(c, job, j.tables, d);
	if (end < j.workers)
		rte_tel_data_add_dict_u64(d, "next", end);
	for (unsigned w = first; w < end; w++) {
		struct rte_tel_data *e = reply_dict();

		add_worker(c, job, w, newest, e);
		if (mixed != 0)
			add_push_format(c, job, w, mixed, e);
		pbox_registrar_measure(c->registrar, j.id, w);
		reply_add_numbered(d, "worker", w, e);
	}
}

static void
add_table(struct pbox_control *c, const struct pbox_job *job, unsigned i, struct rte_tel_data *d)
{
	struct pbox_table_view t;

	pbox_registrar_view_table(c->registrar, job, i, &t);
	reply_text(d, "state", "%s", table_state[t.state]);
	if (t.error != NULL)
		reply_text(d, "error", "%s", t.error);
	if (!t.built)
		return;
	reply_text(d, "mode", "%s", t.mode == PBOX_MODE_OPTIMISER ? "optimiser" : "allreduce");
	reply_text(d, "optimiser", "%s", pbox_optimiser_name(t.optimiser));
	reply_text(d, "push", "%s", pbox_format_name(t.push_format));
	reply_text(d, "pull", "%s", pbox_format_name(t.pull_format));
	add_results(&t, d);
	rte_tel_data_add_dict_u64(d, "elements", t.elements);
	rte_tel_data_add_dict_u64(d, "bytes", t.bytes);
	rte_tel_data_add_dict_u64(d, "chunks", t.chunks);
	rte_tel_data_add_dict_u64(d, "fragments", t.fragments);
	rte_tel_data_add_dict_u64(d, "fragment_elements", t.frag_elements);
	rte_tel_data_add_dict_u64(d, "round", t.round);
	rte_tel_data_add_dict_u64(d, "restoring", t.restoring);
	rte_tel_data_add_dict_u64(d, "lost", t.lost);
}

static void
on_tables(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	const struct pbox_job *job;
	struct pbox_job_view j;
	unsigned first = 0, end;

	if (n == 0) {
		reply_error(d, "which job? /pbox/tables,JOB[,FIRST]");
		return;
	}
	job = reply_job(c, word[0], d);
	if (job == NULL)
		return;
	if (n > 1 && !params_number(word[1], PBOX_MAX_TABLES, &first)) {
		reply_error(d, "FIRST is the number of a table");
		return;
	}
	pbox_registrar_view_job(c->registrar, job, &j);
	end = first + TABLES_PAGE < j.tables ? first + TABLES_PAGE : j.tables;
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	reply_text(d, "job", "%s", j.name);
	rte_tel_data_add_dict_u64(d, "tables", j.tables);
	/* on each data core: packets that it may hold, and rounds that may be open */
	rte_tel_data_add_dict_u64(d, "hold_per_core", j.hold);
	if (end < j.tables)
		rte_tel_data_add_dict_u64(d, "next", end);
	for (unsigned i = first; i < end; i++) {
		struct rte_tel_data *e = reply_dict();

		add_table(c, job, i, e);
		reply_add_numbered(d, "table", i, e);
	}
}

const struct telemetry_command telemetry_job_commands[] = {
	{"/pbox/jobs", 1, on_jobs, "Jobs. Parameter: FIRST, of a later page."},
	{"/pbox/moving", 1, on_moving,
		"What of jobs comes and leaves, and is needed here. Parameter: FIRST."},
	{"/pbox/workers", 2, on_workers,
		"Workers of a job: state, rounds, lag, repeats. Parameters: JOB[,FIRST]."},
	{"/pbox/tables", 2, on_tables,
		"Tables of a job: fragments, rounds. Parameters: JOB[,FIRST]."},
	{0},
};
