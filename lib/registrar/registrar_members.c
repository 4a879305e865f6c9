/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "registrar_impl.h"

/* Membership under policy shrink (R8.5): eviction of workers that are silent or have left, and their return, decided
 * once for all shards. */

bool
registrar_members_settled(const struct pbox_registrar *r, const struct pbox_job *job)
{
	for (unsigned i = 0; i < r->conf.n_shards; i++)
		if (pbox_shard_inbox(job->shard[i])->mails[PBOX_MAIL_MEMBERS] > 0)
			return false;
	return true;
}

/* Before its first table is mapped a job waits for everybody; but for one that had begun before the box
 * was started again. */
bool
registrar_remove(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	struct pbox_member *m = &job->member[w];
	bool left = m->state == PBOX_MEMBER_LEFT, absent = m->state == PBOX_MEMBER_ABSENT;
	unsigned remain = 0;

	if (job->policy != PBOX_POLICY_SHRINK || (job->map_mtu == 0 && !job->resumed) ||
		m->removed || job->state != PBOX_JOB_OPEN)
		return false;
	m->removed = true;
	if (registrar_has_session(job, w))
		registrar_end_session(r, job, w);
	for (unsigned i = 0; i < job->workers; i++)
		remain += !job->member[i].removed;
	count_control(r, PBOX_RS_REMOVED);
	registrar_event(r, left ? PBOX_LOG_INFO : PBOX_LOG_WARN,
		"job '%s' goes on without worker %u (%s), which %s: %u of %u contribute", job->name,
		w, absent ? "its host is not known" : m->host,
		left     ? "left"
		: absent ? "has not come back after a restart of the box"
			 : "is silent",
		remain, job->workers);
	return true;
}

void
registrar_removed(struct pbox_registrar *r, struct pbox_job *job)
{
	PBOX_ASSERT(job->policy == PBOX_POLICY_SHRINK); /* R8.5 */
	registrar_post(r, job, PBOX_MAIL_MEMBERS);
	registrar_parts_members(r, job);
}

void
registrar_expect(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	PBOX_ASSERT(job->member[w].removed && job->policy == PBOX_POLICY_SHRINK);
	job->member[w].removed = false;
	registrar_event(r, PBOX_LOG_INFO,
		"job '%s': worker %u (%s) is waited for again from the next round on", job->name, w,
		job->member[w].host);
	registrar_post(r, job, PBOX_MAIL_MEMBERS);
}

void
registrar_clocks_members(struct pbox_registrar *r, struct pbox_job *job)
{
	bool any = false;

	for (uint32_t t = 0; t < job->n_tables; t++)
		any |= job->table[t]->built && job->table[t]->t.discipline == PBOX_DISCIPLINE_CLOCK;
	if (any)
		registrar_post(r, job, PBOX_MAIL_MEMBERS);
}

/* How long a job is waited for after a restart of the box, at least: R4.6b. */
#define COME_BACK (2000 * NS_PER_MS)

static bool
has_waited(const struct pbox_registrar *r, const struct pbox_job *job)
{
	uint64_t lease = COME_BACK;

	for (unsigned w = 0; w < job->workers; w++)
		if (job->member[w].lease_ms * NS_PER_MS > lease)
			lease = job->member[w].lease_ms * NS_PER_MS;
	return job->resumed && r->listened_ns - job->begun_listened_ns > lease;
}

bool
registrar_remove_absent(struct pbox_registrar *r, struct pbox_job *job)
{
	bool removed = false;

	if (job->policy != PBOX_POLICY_SHRINK || !has_waited(r, job))
		return false;
	for (unsigned w = 0; w < job->workers; w++)
		if (job->member[w].state == PBOX_MEMBER_ABSENT)
			removed |= registrar_remove(r, job, w);
	return removed;
}

/* Its session is there, and nobody hears from it: what it holds is not waited for, either. */
static void
miss_silent(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	registrar_event(r, PBOX_LOG_WARN,
		"job '%s': worker %u (%s) has come back after a restart of the box, and is silent: its session ends",
		job->name, w, job->member[w].host);
	registrar_end_session(r, job, w);
}

void
registrar_miss_absent(struct pbox_registrar *r, struct pbox_job *job)
{
	bool restored = job->n_tables > 0 && job->table[0]->built && !job->table[0]->restoring;
	bool any = false;

	if (job->policy != PBOX_POLICY_REASSIGN || restored || job->state != PBOX_JOB_OPEN ||
		!has_waited(r, job))
		return;
	for (unsigned w = 0; w < job->workers; w++) {
		struct pbox_member *m = &job->member[w];

		if (m->state == PBOX_MEMBER_SILENT)
			miss_silent(r, job, w);
		any |= !m->missed && !registrar_has_session(job, w);
		m->missed |= !registrar_has_session(job, w);
	}
	if (any)
		registrar_parts_members(r, job);
}
