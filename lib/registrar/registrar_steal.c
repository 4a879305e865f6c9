/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Slots that are stolen within a round (R15.10 of the protocol): who owns them in it, and which were wished of whom. */

#include <string.h>

#include "registrar_work.h"

bool
registrar_steal_is_on(const struct pbox_job *job)
{
	return job->owners.only != 0 && job->owners.only == work_of(job)->round;
}

void
registrar_steal_begin(struct pbox_job *job)
{
	struct pbox_job_owners *o = &job->owners;
	uint32_t round = work_of(job)->round;

	if (registrar_steal_is_on(job))
		return;
	PBOX_ASSERT(o->map[2] != NULL && !work_of(job)->announced);
	memcpy(o->map[2], o->map[work_map_in(job, round)], job->slots * sizeof(*o->map[2]));
	o->only = round;
}

bool
registrar_steal_waits(const struct pbox_job *job, unsigned w)
{
	const struct task_member *m = task_member_of(job, w);

	return task_of(job)->round == work_of(job)->round && m->wish != 0 && m->first < m->end;
}

bool
registrar_steal_is_asking(const struct pbox_job *job)
{
	for (unsigned w = 0; w < job->workers; w++)
		if (registrar_steal_waits(job, w))
			return true;
	return false;
}

static bool
is_wished(const struct pbox_job *job, unsigned slot)
{
	for (unsigned w = 0; w < job->workers; w++)
		if (registrar_steal_waits(job, w) && slot >= task_member_of(job, w)->first &&
			slot < task_member_of(job, w)->end)
			return true;
	return false;
}

void
registrar_steal_settle(struct pbox_job *job, unsigned first, unsigned end)
{
	const uint16_t *owner = pbox_work_owners(work_of(job)->room);

	PBOX_ASSERT(registrar_steal_is_on(job) && end <= job->slots);
	for (unsigned slot = first, stop; slot < end; slot = stop) {
		stop = slot + 1;
		while (stop < end && owner[stop] == owner[slot])
			stop++;
		registrar_owners_give(job->owners.map[2], job->slots,
			&(struct pbox_work_move){
				.first = (uint16_t)slot, .end = (uint16_t)stop, .to = owner[slot]});
	}
}

/* Its slots, but for those that were wished of a victim that lives: they stay that one's until it says more. */
static void
settle_move(struct pbox_job *job, const struct pbox_work_move *m)
{
	for (unsigned slot = m->first, stop; slot < m->end; slot = stop) {
		bool wished = is_wished(job, slot);

		stop = slot + 1;
		while (stop < m->end && is_wished(job, stop) == wished)
			stop++;
		if (!wished)
			registrar_steal_settle(job, slot, stop);
	}
}

bool
registrar_steal_gone(
	struct pbox_job *job, unsigned w, const struct pbox_work_move *move, unsigned n)
{
	struct task_member *m = task_member_of(job, w);

	if (!registrar_steal_is_on(job))
		return false;
	if (registrar_steal_waits(job, w))
		registrar_steal_settle(job, m->first, m->end);
	m->wish = 0;
	for (unsigned i = 0; i < n; i++)
		settle_move(job, &move[i]);
	return true;
}

void
registrar_steal_gone_before(struct pbox_job *job, unsigned w)
{
	struct pbox_job_owners *o = &job->owners;
	const uint16_t *plan;

	if (o->only == 0 || registrar_steal_is_on(job))
		return;
	plan = o->map[work_map_in(job, o->only)];
	for (unsigned slot = 0, stop; slot < job->slots; slot = stop) {
		unsigned to = registrar_owner_at(plan, slot);

		stop = slot + 1;
		if (registrar_owner_at(o->map[2], slot) != w || to == w)
			continue;
		while (stop < job->slots && registrar_owner_at(o->map[2], stop) == w &&
			registrar_owner_at(plan, stop) == to)
			stop++;
		registrar_owners_give(o->map[2], job->slots,
			&(struct pbox_work_move){.first = (uint16_t)slot,
				.end = (uint16_t)stop,
				.to = (uint16_t)to});
	}
}
