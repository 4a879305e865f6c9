/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Whose the slots of a job are, where a plan says it (section 15 of the protocol): the policy, and how owners change. */

#include "shard_slots.h"

/* Who owns each slot in that round. */
static const uint16_t *
map_of(const struct pbox_shard_job *j, uint32_t round)
{
	bool newer;

	if (__builtin_expect(j->owners.only != 0 && round == j->owners.only, 0))
		return j->owners.map[2]; /* slots were stolen */
	newer = j->owners.from != 0 && pbox_serial_diff(round, j->owners.from) >= 0;

	return j->owners.map[newer];
}

static unsigned
plan_owner(const struct target *g, unsigned slot)
{
	return map_of(g->j, g->fragment->version + 1)[slot] & PBOX_SLOT_WORKER;
}

/* All slots of the node are its worker's in the round of the frame, or nobody's: after a restart of the
 * box, before workers have said what they own, anyone may bring them. How they were cut does not matter: a worker may not have
 * heard yet. Or some were its worker's, and have been given to others (late). */
static bool
plan_range(const struct target *g, const struct pbox_frame *f, struct pbox_node node,
	unsigned *first, unsigned *last, struct slots *n)
{
	const struct pbox_shard_job *j = g->j;
	const uint16_t *map = map_of(j, f->hdr.round);
	unsigned w = f->hdr.worker, end = pbox_node_end(node, j->slots);

	for (unsigned slot = node.first; slot < end; slot++) {
		unsigned owner = map[slot] & PBOX_SLOT_WORKER;

		n->late |= owner != w && owner != PBOX_SLOT_NOBODY;
	}
	*first = node.first;
	*last = end;
	return !n->late || j->member[w].passed_over;
}

/* Slots may have been cut otherwise by who had them before, also after a restart of the box, when they are
 * nobody's. */
static bool
plan_partly_there(const struct target *g, const struct pbox_frame *f, struct slots n)
{
	const struct pbox_record *r = g->fragment->record;
	unsigned there;

	if (r == NULL || !initialised(g) ||
		pbox_serial_diff(f->hdr.round, g->fragment->version) != 1)
		return false;
	there = bits_count(r->has, n.first, n.first + n.n);
	return there > 0 && there < n.n;
}

static unsigned
plan_own_missing(const struct target *g, unsigned worker)
{
	const struct pbox_record *r = initialised(g) ? g->fragment->record : NULL;
	unsigned slot;

	for (slot = 0; slot < g->j->slots; slot++) {
		unsigned owner = plan_owner(g, slot);

		if ((owner == worker || owner == PBOX_SLOT_NOBODY) &&
			(r == NULL || !pbox_bit_get(r->has, slot)))
			break;
	}
	return slot; /* also who owns none has nothing to bring */
}

/* The job has finished rounds after the one that a worker asks about, for others did its slots (R15.7). */
static bool
plan_overtaken(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	shard_count(s, PBOX_SS_DROP_ROUND_STALE);
	shard_send_error(s, g, f, PBOX_E_RUNNING);
	return true;
}

const struct slots_policy slots_by_plan = {
	.owner = plan_owner,
	.range = plan_range,
	.partly_there = plan_partly_there,
	.own_missing = plan_own_missing,
	.overtaken = plan_overtaken,
};

/* ---- owners change ------------------------------------------------------------------------------- */

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

	PBOX_ASSERT(j->policy == &slots_by_plan);
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
