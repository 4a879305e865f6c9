/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* After a restart of the box workers say what slots they own (R15.8a of the protocol). */

#include <string.h>

#include "registrar_work.h"

#define RESTART_WAIT (2000 * NS_PER_MS) /* for what workers claim: R4.6b */

/* The longest lease, and as long as workers may take to come back. */
static uint64_t
claims_most(const struct pbox_job *job)
{
	uint64_t ns = RESTART_WAIT;

	for (unsigned w = 0; w < job->workers; w++)
		if (job->member[w].lease_ms * NS_PER_MS > ns)
			ns = job->member[w].lease_ms * NS_PER_MS;
	return ns;
}

/* Who owns nothing is a newcomer, or was never there. */
static void
drop_idle(struct pbox_job *job)
{
	struct work *k = work_of(job);

	for (unsigned w = 0; w < job->workers; w++) {
		struct pbox_work_view v;

		pbox_work_view(k->room, w, &v);
		work_member_of(job, w)->entered = v.slots > 0;
		if (v.slots == 0)
			pbox_work_absent(k->room, w);
	}
}

/* After a restart of the box: all that live have said what they own, and the others had the time to. One may live and have no
 * reason to ask, as its training has ended. */
bool
registrar_claims_end(const struct pbox_registrar *r, struct pbox_job *job, bool waits)
{
	struct work *k = work_of(job);
	struct pbox_job_owners *o = &job->owners;
	bool all = true, any = false, after_claimed = false;

	PBOX_ASSERT(k->claiming);
	if (job->table[TABLE]->restoring) /* nobody has got to that */
		k->begun_ns = r->now_ns;
	for (unsigned w = 0; w < job->workers; w++) {
		all &= work_member_of(job, w)->claimed;
		any |= work_member_of(job, w)->claimed;
	}
	if (!any || (!all && r->now_ns - k->begun_ns < (waits ? claims_most(job) : RESTART_WAIT)))
		return false;
	k->claiming = false;
	/* they are no part of what their owner has claimed, and perhaps brought: it had given them up (R15.10) */
	for (unsigned slot = 0; slot < job->slots; slot++) {
		bool claimed = registrar_owner_at(o->map[0], slot) != PBOX_SLOT_NOBODY;

		if (!claimed)
			o->map[0][slot] = (uint16_t)(pbox_work_owners(k->room)[slot] |
						     (after_claimed ? PBOX_SLOT_CUT : 0));
		after_claimed = claimed;
	}
	memcpy(o->map[1], o->map[0], job->slots * sizeof(*o->map[0]));
	pbox_work_adopt(k->room, o->map[0], PBOX_SLOT_WORKER);
	drop_idle(job);
	return true;
}

/* Of two workers that claim a slot the one has it that claims for a later round: the other has pushed nothing of that one. Then the one that
 * has heard of later owners, then the one of the lower number. */
static bool
claims_more(const struct pbox_job *job, unsigned w, const struct pbox_work_ask *m, unsigned other)
{
	const struct work_member *o;
	int32_t later;

	if (other == PBOX_SLOT_NOBODY)
		return true;
	o = work_member_of(job, other);
	later = pbox_serial_diff(m->round, o->claim_round);
	if (later == 0)
		later = pbox_serial_diff(m->edition, o->edition);
	return later > 0 || (later == 0 && w < other);
}

uint32_t
registrar_claims_round(struct pbox_job *job, uint32_t otherwise)
{
	const struct pbox_job_table *jt = job->table[TABLE];

	if (jt->t.n_fragments == 0 || jt->restoring ||
		registrar_rounds_look(job->table[TABLE]) == REGISTRAR_LOOK_GOES_ON ||
		!jt->finished.known)
		return otherwise;
	return jt->finished.lowest + 1;
}

void
registrar_claims_take(struct pbox_job *job, unsigned w, const struct pbox_work_ask *m)
{
	struct work_member *member = work_member_of(job, w);
	uint16_t *map = job->owners.map[0];

	PBOX_ASSERT(work_of(job)->claiming);
	/* what it says once holds: it computes by that */
	if (member->claimed || job->table[TABLE]->restoring ||
		(m->ranges > 0 && registrar_claims_round(job, m->round) != m->round))
		return;
	for (unsigned i = 0; i < m->ranges; i++) {
		if (m->range[i].end > job->slots)
			continue;
		for (unsigned slot = m->range[i].first; slot < m->range[i].end; slot++)
			if (claims_more(job, w, m, registrar_owner_at(map, slot)))
				map[slot] =
					(uint16_t)(w |
						   (slot == m->range[i].first ? PBOX_SLOT_CUT : 0));
	}
	member->claim_round = m->round;
	member->edition = m->edition;
	if (pbox_serial_diff(m->edition, job->owners.edition) > 0)
		job->owners.edition = m->edition;
	member->claimed = true;
}
