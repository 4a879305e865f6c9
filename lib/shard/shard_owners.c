/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Whose the slots of a job are, where a plan says it (section 15 of the protocol). */

#include "shard_slots.h"

static void
plan_0(const struct pbox_shard_job *j, uint16_t *map)
{
	for (unsigned w = 0; w < j->job->workers; w++)
		for (unsigned slot = slots_begin(j, w); slot < slots_end(j, w); slot++)
			map[slot] = (uint16_t)w;
}

void
shard_owners_begin(struct pbox_shard_job *j)
{
	for (unsigned i = 0; i < PBOX_OWNER_MAPS; i++)
		plan_0(j, j->owners.map[i]);
}

/* Slots that changed hands within a plan, perhaps more than once: what their earlier owners bring late is no error. A plan that only begins later
 * than was said is the same. When another plan is there map[0] is that of the older rounds, which was the newest one. */
static void
note_passed_over(struct pbox_shard_job *j, const struct pbox_job_owners *now)
{
	bool same = now->from == 0 || (j->owners.from != 0 && now->plan == j->owners.plan);
	unsigned maps = same ? 2 : 1, newest = !same && j->owners.from != 0;

	for (unsigned slot = 0; slot < j->slots; slot++)
		for (unsigned i = 0; i < maps; i++) {
			unsigned was = j->owners.map[same ? i : newest][slot] & PBOX_SLOT_WORKER;
			unsigned is = now->map[i][slot] & PBOX_SLOT_WORKER;

			if (was != is && was != PBOX_SLOT_NOBODY)
				j->member[was].passed_over = true;
		}
}

/* Slots of one round that were stolen: who had them before, and who has had them when that round is over, may bring them late. */
static void
note_stolen(struct pbox_shard_job *j, const struct pbox_job_owners *now)
{
	const struct pbox_job_owners *had = &j->owners;
	bool newer = now->from != 0 && pbox_serial_diff(now->only, now->from) >= 0;

	for (unsigned slot = 0; slot < j->slots; slot++) {
		unsigned by_plan = now->map[newer][slot] & PBOX_SLOT_WORKER;
		unsigned is = now->map[2][slot] & PBOX_SLOT_WORKER;
		unsigned was = (had->only != 0 ? had->map[2][slot] : by_plan) & PBOX_SLOT_WORKER;

		if (is != by_plan && by_plan != PBOX_SLOT_NOBODY)
			j->member[by_plan].passed_over = true;
		if (is != was && was != PBOX_SLOT_NOBODY)
			j->member[was].passed_over = true;
	}
}

void
shard_owners_changed(struct pbox_shard *s, struct pbox_shard_job *j)
{
	const struct pbox_job_owners *now = &j->inbox.owners;
	size_t bytes = j->slots * sizeof(*now->map[0]);
	struct target g;
	bool other;

	PBOX_ASSERT(j->planned);
	other = memcmp(now->map[0], j->owners.map[0], bytes) != 0 ||
		memcmp(now->map[1], j->owners.map[1], bytes) != 0;
	note_passed_over(j, now);
	if (now->only != 0) {
		other |= memcmp(now->map[2], j->owners.map[2], bytes) != 0;
		note_stolen(j, now);
	}
	for (unsigned i = 0; i < PBOX_OWNER_MAPS; i++)
		memcpy(j->owners.map[i], now->map[i], bytes);
	/* an edition says of which owners a contribution was made: it never falls (R15.8) */
	PBOX_ASSERT(pbox_serial_diff(now->edition, j->owners.edition) >= 0 && !s->inside);
	j->owners.only = now->only;
	j->owners.from = now->from;
	j->owners.plan = now->plan;
	j->owners.edition = now->edition;
	j->edition = (uint8_t)now->edition;
	/* what is damaged is asked for again by what holds from now on */
	for (uint32_t i = 0; other && shard_record_next(j, &i, &g) != NULL;)
		g.st->discipline->owners(s, &g);
	shard_finish_ready(s);
}
