/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* SET, STATUS and LEAVE of a worker with a session. */

#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

#define ROUND_LOOK_NS (20 * NS_PER_MS)
#define ROUND_TABLES  8
#define UNKNOWN       (-1)
#define WAITS_NS      (2000 * NS_PER_MS) /* R8.3a */

/* A SET for groups first to end - 1: all of them take it or none does. */
static int
set_groups(struct pbox_table *t, struct pbox_set *m, unsigned first, unsigned end,
	const struct pbox_finished *done, struct pbox_error *err)
{
	int code = 0;

	for (unsigned g = first; code == 0 && g < end; g++) {
		m->group = (uint16_t)g;
		code = pbox_schedule_check(&t->schedule[g], t->optimiser, m, done, err);
	}
	for (unsigned g = first; code == 0 && g < end; g++) {
		m->group = (uint16_t)g;
		code = pbox_schedule_add(&t->schedule[g], t->optimiser, m, done, err);
	}
	return code;
}

/* Before any fragment is restored: each SET from its own round on. */
static int
restore_groups(struct pbox_table *t, struct pbox_set *m, unsigned first, unsigned end,
	struct pbox_error *err)
{
	int code = 0;

	for (unsigned g = first; code == 0 && g < end; g++) {
		m->group = (uint16_t)g;
		code = pbox_schedule_restore(&t->schedule[g], t->optimiser, m, err);
	}
	return code;
}

/* 0, an error, or UNKNOWN: no answer now. */
static int
set(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt, struct pbox_set *m,
	struct pbox_error *err)
{
	unsigned first = m->group == PBOX_ALL_GROUPS ? 0 : m->group;
	unsigned end = m->group == PBOX_ALL_GROUPS ? jt->t.n_groups : m->group + 1u;
	uint32_t before = atomic_load_explicit(&jt->t.schedule[first].count, memory_order_relaxed);
	int code;

	PBOX_ASSERT(end <= jt->t.n_groups && jt->t.discipline != PBOX_DISCIPLINE_CLOCK);
	if (registrar_restore_untouched(r, job, jt))
		return restore_groups(&jt->t, m, first, end, err);
	if (!registrar_finished(r, job, jt->t.id, &jt->finished.highest))
		/* a table without elements has no rounds: they are those of the others */
		jt->finished.highest = jt->t.n_fragments > 0 ? 0 : m->from_round - 1;
	code = set_groups(&jt->t, m, first, end, &jt->finished, err);
	if (code == PBOX_E_FULL) {
		/* how far those are that come is known when they have come */
		if (jt->moving || !registrar_rounds_known(r, jt))
			return UNKNOWN;
		code = set_groups(&jt->t, m, first, end, &jt->finished, err);
	}
	if (code == 0 &&
		atomic_load_explicit(&jt->t.schedule[first].count, memory_order_relaxed) != before)
		registrar_rounds_added(r, jt, &jt->t.schedule[first]);
	return code;
}

/* What is no hyper-parameter is taken out. */
static bool
take_decision(struct pbox_set *m, double *value)
{
	unsigned n = 0;
	bool any = false;

	for (unsigned i = 0; i < m->count; i++) {
		if (m->param[i].id != PBOX_SET_DECISION) {
			m->param[n++] = m->param[i];
			continue;
		}
		any = true;
		*value = m->param[i].value;
	}
	m->count = (uint16_t)n;
	return any;
}

static void
request_set(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	struct pbox_job_table *jt;
	struct pbox_error err;
	struct pbox_set m;
	bool decides;
	double value = 0;
	int code = 0;

	if (pbox_set_decode(f->payload, f->hdr.length, &m) < 0) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	count_control(r, PBOX_RS_RX_SET);
	jt = m.table < job->n_tables ? job->table[m.table] : NULL;
	if (jt == NULL || !jt->built || jt->shards_open < r->conf.n_shards) {
		registrar_refuse(
			r, f, PBOX_E_BAD_REQUEST, m.table, "table %u is not mapped yet", m.table);
		return;
	}
	if (jt->t.discipline == PBOX_DISCIPLINE_CLOCK) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m.table,
			"table %u is in clocks, and has no hyper-parameters: its optimiser runs at the workers",
			m.table);
		return;
	}
	if (m.group != PBOX_ALL_GROUPS && m.group >= jt->t.n_groups) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, jt->t.n_groups,
			"table %u has groups 0 to %u, not %u", m.table, jt->t.n_groups - 1u,
			m.group);
		return;
	}
	for (unsigned i = 0; i < m.count && !pbox_format_is_block(jt->t.pull_format); i++)
		if (m.param[i].id == PBOX_HYPER_PLAIN) {
			registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m.table,
				"table %u: its results have no format of blocks that they could be without (plain)",
				m.table);
			return;
		}
	for (unsigned i = 0; i < m.count && !jt->t.hold; i++)
		if (m.param[i].id == PBOX_HYPER_COEFFICIENT ||
			m.param[i].id == PBOX_HYPER_MAX_NORM) {
			registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m.from_round,
				"table %u has no two phases a round (HOLD), and no %s", m.table,
				pbox_hyper_name(m.param[i].id));
			return;
		}
	if (!registrar_rack_set(r, f))
		return;
	decides = take_decision(&m, &value);
	if (decides)
		code = registrar_decision_check(job, m.table, m.from_round, value, &err);
	if (code == 0 && (m.count > 0 || !decides))
		code = set(r, job, jt, &m, &err);
	if (code == UNKNOWN)
		return; /* a worker repeats what is not answered */
	if (code == 0 && decides)
		registrar_decision_take(job, m.from_round, value);
	if (code != 0)
		registrar_refuse(r, f, (enum pbox_errcode)code, m.from_round, "%s", err.text);
	else
		registrar_reply(r, f, PBOX_SET_OK, 0);
}

static void
requests_describe(const struct pbox_job *job, char *text, size_t cap)
{
	unsigned joined = pbox_job_joined(job), missing = 0;

	if (joined == job->workers) {
		snprintf(text, cap, "job '%s': all %u workers have joined", job->name, joined);
		return;
	}
	while (job->member[missing].state == PBOX_MEMBER_JOINED ||
		job->member[missing].state == PBOX_MEMBER_SILENT)
		missing++;
	snprintf(text, cap, "job '%s': %u of %u workers have joined; first missing: worker %u (%s)",
		job->name, joined, job->workers, missing,
		job->member[missing].state == PBOX_MEMBER_LEFT ? "left" : "never joined");
}

/* Of all tables: looked at now and then, for there may be many of them, and of cores. */
static uint32_t
max_round(const struct pbox_registrar *r, struct pbox_job *job)
{
	bool any = false;

	if (job->round_looked_ns != 0 && r->now_ns - job->round_looked_ns < ROUND_LOOK_NS)
		return job->max_round;
	job->max_round = 0;
	for (uint32_t i = 0; i < job->n_tables; i++) {
		uint32_t x;

		if (!registrar_finished(r, job, i, &x) ||
			(any && pbox_serial_diff(x, job->max_round) <= 0))
			continue;
		job->max_round = x;
		any = true;
	}
	/* few tables cost no more than this does */
	job->round_looked_ns = job->n_tables < ROUND_TABLES ? 0 : r->now_ns;
	return job->max_round;
}

/* Whom worker w waits for, if it has said so lately (R8.3a). */
static int
requests_waits_for(const struct pbox_registrar *r, const struct pbox_job *job, unsigned w)
{
	const struct pbox_member *m = &job->member[w];

	return m->state == PBOX_MEMBER_JOINED && m->waits.at_ns != 0 &&
			       r->now_ns - m->waits.at_ns <= WAITS_NS
		       ? m->waits.worker
		       : -1;
}

static bool
requests_circle(const struct pbox_registrar *r, const struct pbox_job *job, unsigned first)
{
	int w = (int)first;

	for (unsigned i = 0; w >= 0 && i < job->workers; i++)
		w = requests_waits_for(r, job, (unsigned)w);
	return w >= 0;
}

static void
requests_describe_wait(const struct pbox_job *job, unsigned w, char *text, size_t cap)
{
	const struct pbox_member *m = &job->member[w];

	if (m->waits.round == 0)
		snprintf(text, cap, "worker %u waits for worker %u, with table %u", w,
			m->waits.worker, m->waits.chunk);
	else
		snprintf(text, cap,
			"worker %u waits for worker %u, with round %u of tensor '%s' of table %u",
			w, m->waits.worker, m->waits.round,
			pbox_job_tensor(job, m->waits.chunk, m->waits.frag),
			m->waits.chunk >> PBOX_CHUNK_BITS);
}

/* The one text that an answer has room for: what the sender asks for, else what it should know. */
static void
status_text(const struct pbox_registrar *r, const struct pbox_job *job, const struct pbox_status *m,
	struct pbox_status_ok *a)
{
	const char *why = registrar_gone_why(job, m->first), *waits = NULL;
	struct pbox_sick_view sick;

	if ((m->flags & PBOX_STATUS_RACK) != 0 && m->first < job->workers)
		waits = registrar_rack_waits(job, m->first, r->now_ns);
	if ((m->flags & PBOX_STATUS_FINITE) != 0 && pbox_registrar_sick(r, job, &sick)) {
		a->flags |= PBOX_STATUS_FINITE;
		a->max_round = sick.round;
		a->tables = sick.last;
		snprintf(a->text, sizeof(a->text), "%s", sick.text);
	} else if (waits != NULL) {
		a->flags |= PBOX_STATUS_RACK;
		snprintf(a->text, sizeof(a->text), "%s", waits);
	} else if (why != NULL)
		snprintf(a->text, sizeof(a->text), "%s", why);
	else if (a->flags != 0)
		requests_describe_wait(job, m->first, a->text, sizeof(a->text));
	else
		requests_describe(job, a->text, sizeof(a->text));
}

static void
request_status(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	struct pbox_status_ok a = {.workers = job->workers,
		.joined = (uint16_t)pbox_job_joined(job),
		.tables = job->n_tables};
	struct pbox_status m;
	struct pbox_cursor cur;

	if (pbox_status_decode(f->payload, f->hdr.length, &m) < 0) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	count_control(r, PBOX_RS_RX_STATUS);
	if (m.first > job->workers) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, job->workers,
			"worker %u of a job with %u workers: numbers begin at 0", m.first,
			job->workers);
		return;
	}
	a.max_round = max_round(r, job);
	a.first = m.first;
	if ((m.flags & PBOX_STATUS_WAITS) != 0 && m.first < job->workers) {
		struct pbox_member *mb = &job->member[f->hdr.worker];

		mb->waits.at_ns = r->now_ns;
		mb->waits.worker = m.first;
		mb->waits.chunk = m.chunk;
		mb->waits.round = m.round;
		mb->waits.frag = m.frag;
	}
	if (m.first < job->workers && requests_circle(r, job, m.first))
		a.flags = PBOX_STATUS_CIRCLE;
	if ((m.flags & PBOX_STATUS_RACK) != 0)
		registrar_rack_says(r, job, f->hdr.worker, m.rack);
	status_text(r, job, &m, &a);
	if (pbox_status_ok_begin(r->scratch, sizeof(r->scratch), &a, &cur) < 0)
		return;
	for (unsigned w = m.first; w < job->workers; w++) {
		const struct pbox_member *mb = &job->member[w];
		struct pbox_member_entry e = {.worker = (uint16_t)w,
			.state = mb->state,
			.reason = mb->left,
			.silent_ms = registrar_silent_ms(r, job, w),
			.declared = mb->declared};

		snprintf(e.host, sizeof(e.host), "%.20s", mb->host);
		if (pbox_status_ok_add(r->scratch, &cur, &e) < 0)
			break;
	}
	registrar_reply(r, f, PBOX_STATUS_OK, pbox_page_len(r->scratch, &cur));
}

static void
request_leave(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	count_control(r, PBOX_RS_RX_LEAVE);
	registrar_end_session(r, job, f->hdr.worker);
	registrar_nonce_left(r, job);
	registrar_left(&job->member[f->hdr.worker], PBOX_LEFT_ITSELF);
	registrar_event(r, PBOX_LOG_INFO, "job '%s': worker %u (%s) left, %u of %u remain",
		job->name, f->hdr.worker, job->member[f->hdr.worker].host, pbox_job_joined(job),
		job->workers);
	registrar_reply(r, f, PBOX_LEFT, 0);
	if (pbox_job_joined(job) == 0 && job->state == PBOX_JOB_OPEN)
		registrar_close_job(r, job);
	else if (registrar_remove(r, job, f->hdr.worker))
		registrar_removed(r, job);
	else if (job->state == PBOX_JOB_OPEN)
		registrar_clocks_members(r, job);
}

const struct registrar_part registrar_requests_part = {
	.name = "requests",
	.types = {{request_set, PBOX_SET}, {request_status, PBOX_STATUS},
		{request_leave, PBOX_LEAVE}},
};
