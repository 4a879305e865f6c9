/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

/* A SET for groups first to end - 1: all of them take it or none does. */
static int
set_groups(struct pbox_table *t, struct pbox_set *m, unsigned first, unsigned end, uint32_t done,
	bool restoring, struct pbox_error *err)
{
	int code = 0;

	for (unsigned g = first; restoring && code == 0 && g < end; g++) {
		m->group = (uint16_t)g;
		code = pbox_schedule_restore(
			&t->schedule[g], (enum pbox_optim_kind)t->optimiser, m, err);
	}
	for (unsigned g = first; !restoring && code == 0 && g < end; g++) {
		m->group = (uint16_t)g;
		code = pbox_schedule_check(
			&t->schedule[g], (enum pbox_optim_kind)t->optimiser, m, done, err);
	}
	for (unsigned g = first; !restoring && code == 0 && g < end; g++) {
		m->group = (uint16_t)g;
		code = pbox_schedule_add(
			&t->schedule[g], (enum pbox_optim_kind)t->optimiser, m, done, err);
	}
	return code;
}

void
registrar_on_set(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	struct pbox_job_table *jt;
	struct pbox_error err;
	struct pbox_set m;
	unsigned first, end;
	int code;

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
	if (m.group != PBOX_ALL_GROUPS && m.group >= jt->t.n_groups) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, jt->t.n_groups,
			"table %u has groups 0 to %u, not %u", m.table, jt->t.n_groups - 1u,
			m.group);
		return;
	}
	first = m.group == PBOX_ALL_GROUPS ? 0 : m.group;
	end = m.group == PBOX_ALL_GROUPS ? jt->t.n_groups : m.group + 1u;
	code = set_groups(&jt->t, &m, first, end, registrar_finished(r, job, m.table),
		registrar_restore_untouched(r, job, jt), &err);
	if (code != 0)
		registrar_refuse(r, f, (enum pbox_errcode)code, m.from_round, "%s", err.text);
	else
		registrar_reply(r, f, PBOX_SET_OK, 0);
}

static void
describe(const struct pbox_job *job, char *text, size_t cap)
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

void
registrar_on_status(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
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
	for (uint32_t i = 0; i < job->n_tables; i++) {
		uint32_t x = registrar_finished(r, job, i);

		if (pbox_serial_diff(x, a.max_round) > 0)
			a.max_round = x;
	}
	a.first = m.first;
	describe(job, a.text, sizeof(a.text));
	if (pbox_status_ok_begin(r->scratch, sizeof(r->scratch), &a, &cur) < 0)
		return;
	for (unsigned w = m.first; w < job->workers; w++) {
		const struct pbox_member *mb = &job->member[w];
		struct pbox_member_entry e = {.worker = (uint16_t)w,
			.state = mb->state,
			.silent_ms = registrar_silent_ms(r, job, w),
			.declared = mb->declared};

		snprintf(e.host, sizeof(e.host), "%.20s", mb->host);
		if (pbox_status_ok_add(r->scratch, &cur, &e) < 0)
			break;
	}
	registrar_reply(r, f, PBOX_STATUS_OK, pbox_page_len(r->scratch, &cur));
}

void
registrar_on_leave(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	struct pbox_frame copy = *f;

	count_control(r, PBOX_RS_RX_LEAVE);
	r->left[r->n_left++ % LEFT_NONCES] = job->member[f->hdr.worker].nonce;
	registrar_end_session(r, job, f->hdr.worker);
	registrar_event(r, PBOX_LOG_INFO, "job '%s': worker %u (%s) left, %u of %u remain",
		job->name, f->hdr.worker, job->member[f->hdr.worker].host, pbox_job_joined(job),
		job->workers);
	registrar_reply(r, &copy, PBOX_LEFT, 0);
	if (pbox_job_joined(job) == 0 && job->state == PBOX_JOB_OPEN)
		registrar_close_job(r, job);
	else if (registrar_remove(r, job, f->hdr.worker))
		registrar_removed(r, job);
}
