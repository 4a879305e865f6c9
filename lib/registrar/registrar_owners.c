/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Maps of owners (section 15 of the protocol): slots go to others, and what a worker has. */

#include <pbox_slots.h>
#include <pbox_work.h>

#include "registrar_owners.h"

/* Slots go to somebody: a range of their own, and those that they were before: a node that spans two of these may have come in
 * parts, which belonged to workers that are gone. */
void
registrar_owners_give(uint16_t *map, unsigned slots, const struct pbox_work_move *m)
{
	unsigned to = m->to == PBOX_WORK_NOBODY ? PBOX_SLOT_NOBODY : m->to;

	PBOX_ASSERT(m->first < m->end && m->end <= slots && to <= PBOX_SLOT_WORKER);
	for (unsigned slot = m->first; slot < m->end; slot++)
		map[slot] = (uint16_t)(to | (map[slot] & PBOX_SLOT_CUT));
	map[m->first] |= PBOX_SLOT_CUT;
	if (m->end < slots)
		map[m->end] |= PBOX_SLOT_CUT;
}

/* The end of the range that begins at that slot. */
static unsigned
range_end(const struct pbox_job *job, const uint16_t *map, unsigned slot)
{
	unsigned end = slot + 1;

	while (end < job->slots && map[end] == registrar_owner_at(map, slot))
		end++;
	return end;
}

/* The next member by turns, but for newcomers that have not begun, if there are others; the job's workers: there is none. */
static unsigned
next_taker(const struct pbox_job *job, const struct pbox_work *room, unsigned from)
{
	unsigned to = from, fresh = job->workers;
	struct pbox_work_view v;

	for (unsigned tries = 0; tries < job->workers; tries++) {
		to = (to + 1) % job->workers;
		pbox_work_view(room, to, &v);
		if (v.member && !v.fresh)
			return to;
		if (v.member && fresh == job->workers)
			fresh = to;
	}
	return fresh;
}

/* Slots of a map that is not the room's: node by node to those that are there, by turns. */
void
registrar_owners_give_by_turns(
	const struct pbox_job *job, const struct pbox_work *room, uint16_t *map, unsigned from)
{
	struct pbox_node node[PBOX_RANGE_NODES];
	unsigned to = from;

	for (unsigned slot = 0, end; slot < job->slots; slot = end) {
		unsigned n;

		end = range_end(job, map, slot);
		if (registrar_owner_at(map, slot) != from)
			continue;
		n = pbox_range_nodes(slot, end, job->slots, node);
		for (unsigned i = 0; i < n; i++) {
			to = next_taker(job, room, to);
			if (to == job->workers)
				return;
			registrar_owners_give(map, job->slots,
				&(struct pbox_work_move){.first = node[i].first,
					.end = (uint16_t)pbox_node_end(node[i], job->slots),
					.to = (uint16_t)to});
		}
	}
}

/* What it has in a map becomes what another one says, in as few ranges as may be. */
void
registrar_owners_give_as(
	const struct pbox_job *job, uint16_t *map, unsigned from, const uint16_t *owner)
{
	for (unsigned slot = 0, end; slot < job->slots; slot = end) {
		struct pbox_work_move m = {.first = (uint16_t)slot, .to = owner[slot]};

		end = slot + 1;
		if (registrar_owner_at(map, slot) != from)
			continue;
		while (end < job->slots && map[end] == from && owner[end] == m.to)
			end++;
		m.end = (uint16_t)end;
		registrar_owners_give(map, job->slots, &m);
	}
}

static bool
is_border(const struct pbox_slot_range *range, unsigned n, unsigned slot)
{
	for (unsigned i = 0; i < n; i++)
		if (slot == range[i].first || slot == range[i].end)
			return true;
	return false;
}

/* Pieces of a worker that are neighbours become one, but for those that it has said to be its own: it may have brought these.
 * (A shard lets parts make way for a node of them.) False: there are none. */
bool
registrar_owners_join(const struct pbox_job *job, uint16_t *map, unsigned w,
	const struct pbox_slot_range *own, unsigned n)
{
	bool any = false;

	for (unsigned slot = 1; slot < job->slots; slot++) {
		if (registrar_owner_at(map, slot) != w || registrar_owner_at(map, slot - 1) != w ||
			(map[slot] & PBOX_SLOT_CUT) == 0 || is_border(own, n, slot))
			continue;
		map[slot] &= (uint16_t)~PBOX_SLOT_CUT;
		any = true;
	}
	return any;
}

/* The ranges of a worker. False: they have more nodes than a worker can bring. */
bool
registrar_owners_ranges(const struct pbox_job *job, const uint16_t *map, unsigned w,
	struct pbox_slot_range *out, uint16_t *ranges)
{
	struct pbox_node node[PBOX_RANGE_NODES];
	unsigned n = 0, nodes = 0;

	for (unsigned slot = 0, end; slot < job->slots; slot = end) {
		end = range_end(job, map, slot);
		if (registrar_owner_at(map, slot) != w)
			continue;
		nodes += pbox_range_nodes(slot, end, job->slots, node);
		if (nodes > PBOX_RANGE_NODES)
			break;
		out[n++] = (struct pbox_slot_range){(uint16_t)slot, (uint16_t)end};
	}
	*ranges = (uint16_t)n;
	return nodes <= PBOX_RANGE_NODES;
}
