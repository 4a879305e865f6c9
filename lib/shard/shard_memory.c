/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "shard_slots.h"

/* Place the arrays of n slots after the record; returns the size of all of it. */
static size_t
record_layout(struct pbox_record *r, unsigned n, bool named)
{
	size_t at = pbox_pad_line(sizeof(*r)), words = (n + 63u) / 64;
	uint8_t *base = (uint8_t *)r;

	if (r != NULL) {
		r->payload = (const void **)(void *)(base + at);
		r->from = (struct contribution *)(void *)(base + at + n * sizeof(void *));
		r->has = (uint64_t *)(void *)(r->from + n);
		r->want = r->has + words;
		r->expect = r->want + words;
		r->nodes = named ? r->expect + words : r->has;
	}
	return pbox_pad_line(at + n * (sizeof(void *) + sizeof(struct contribution)) +
			     (named ? 4 : 3) * words * sizeof(uint64_t));
}

void
shard_job_quota(struct pbox_shard_job *j, const struct pbox_job_bounds *b)
{
	job_rate_set(&j->rate, b->rate, j->hold_share);
	j->repeat_ns = b->repeats != 0 ? 1000000000 / b->repeats : 0;
	j->request_ns = b->requests != 0 ? 1000000000 / b->requests : 0;
}

/* Place what the shard keeps of a job and its members after the job; returns the size of all of it. */
static size_t
job_layout(struct pbox_shard_job *j, const struct pbox_shard_room *room)
{
	unsigned workers = room->workers, peers = room->peers;
	size_t member = pbox_pad_line(sizeof(*j));
	size_t slot_words = (room->slots + 63u) / 64, words = (workers + 63u) / 64;
	size_t peer = member + workers * sizeof(*j->member);
	size_t table = peer + (size_t)workers * peers * sizeof(*j->peer);
	size_t set = table + PBOX_MAX_TABLES * sizeof(*j->table);
	size_t map = set + (slot_words + 3 * words) * sizeof(uint64_t);
	size_t map_bytes = room->planned ? room->slots * sizeof(uint16_t) : 0;
	size_t stale = pbox_pad_line(map + 2 * PBOX_OWNER_MAPS * map_bytes);
	size_t sick = pbox_pad_line(stale + workers * PBOX_STALE_CLASSES * sizeof(*j->stale));
	uint8_t *base = (uint8_t *)j;

	_Static_assert(sizeof(*j->member) % PBOX_CACHE_LINE == 0, "no line is of two members");
	if (j != NULL) {
		j->member = (struct shard_member *)(void *)(base + member);
		j->peer = (struct shard_peer *)(void *)(base + peer);
		j->stale = (uint64_t *)(void *)(base + stale);
		j->sick = (struct shard_sick *)(void *)(base + sick);
		j->table = (struct pbox_shard_table **)(void *)(base + table);
		j->expected = (uint64_t *)(void *)(base + set);
		j->inbox.members = j->expected + slot_words;
		j->inbox.left = j->inbox.members + words;
		j->left = j->inbox.left + words;
		for (unsigned i = 0; room->planned && i < PBOX_OWNER_MAPS; i++) {
			j->owners.map[i] = (uint16_t *)(void *)(base + map + i * map_bytes);
			j->inbox.owners.map[i] =
				(uint16_t *)(void *)(base + map +
						     (PBOX_OWNER_MAPS + i) * map_bytes);
		}
	}
	return pbox_pad_line(sick + (workers + 1) * sizeof(*j->sick));
}

/* Beside each record, of a rack: a sum that is on its way up. */
static size_t
up_bytes(const struct pbox_shard_room *room)
{
	return room->rack_slots > 0 ? pbox_pad_line(room->acc_bytes) : 0;
}

size_t
pbox_shard_job_bytes(const struct pbox_shard_room *room)
{
	return job_layout(NULL, room) +
	       room->records * (record_layout(NULL, room->slots, room->named) + up_bytes(room)) +
	       room->folded * pbox_pad_line(room->acc_bytes);
}

struct pbox_shard_job *
pbox_shard_job_create(struct pbox_job *job, uint16_t shard, const struct pbox_shard_room *room,
	struct pbox_arena *arena)
{
	struct pbox_shard_job *j = pbox_arena_alloc(arena, job_layout(NULL, room));
	size_t acc_bytes = pbox_pad_line(room->acc_bytes);

	PBOX_ASSERT(room->records > 0 && room->peers > 0 && room->workers == job->workers &&
		    room->slots >= room->workers && room->slots <= PBOX_MAX_SLOTS);
	if (j == NULL)
		return NULL;
	job_layout(j, room);
	j->job = job;
	j->inbox.shard = shard;
	j->tagged = job->auth != NULL ? PBOX_F_AUTH : 0;
	j->arena = arena;
	j->slots = (uint16_t)room->slots;
	j->named = room->named;
	j->policy = room->planned ? &slots_by_plan : &slots_fixed;
	if (room->planned)
		shard_owners_begin(j);
	j->hold_share = room->hold;
	j->n_free_acc = room->folded;
	j->acc_kept = room->kept;
	shard_job_quota(j, &job->conf->bounds);
	j->n_records = room->records;
	j->up_bytes = up_bytes(room);
	j->record_size = record_layout(NULL, room->slots, room->named) + j->up_bytes;
	j->peers = room->peers;
	j->record_mem = pbox_arena_alloc(arena, room->records * j->record_size);
	j->acc_mem = pbox_arena_alloc(arena, room->folded * acc_bytes);
	if (j->record_mem == NULL || (room->folded > 0 && j->acc_mem == NULL)) {
		pbox_shard_job_free(j);
		return NULL;
	}
	if (room->rack_slots > 0) {
		bits_set(j->expected, room->rack_first, room->rack_first + room->rack_slots);
		j->n_expected = room->rack_slots;
	} else {
		bits_set(j->expected, 0, j->slots);
		j->n_expected = j->slots;
	}
	j->members_set = 1;
	for (uint32_t i = room->records; i-- > 0;) {
		struct pbox_record *r = record_at(j, i);

		record_layout(r, room->slots, room->named);
		r->next = j->free_record;
		j->free_record = r;
	}
	for (uint32_t i = room->folded; i-- > 0;) {
		void **acc = (void **)(void *)((uint8_t *)j->acc_mem + i * acc_bytes);

		*acc = j->free_acc;
		j->free_acc = acc;
	}
	return j;
}

void
pbox_shard_job_free(struct pbox_shard_job *j)
{
	struct pbox_arena *arena;

	if (j == NULL)
		return;
	arena = j->arena;
	for (unsigned i = 0; i < PBOX_MAX_TABLES; i++)
		pbox_arena_free(arena, j->table[i]);
	pbox_arena_free(arena, j->record_mem);
	pbox_arena_free(arena, j->acc_mem);
	pbox_arena_free(arena, j);
}

/* By enum pbox_discipline; those of a later release are not there. */
static const struct discipline *const discipline_of[] = {
	[PBOX_DISCIPLINE_ROUNDS] = &rounds_discipline,
	[PBOX_DISCIPLINE_CLOCK] = &clock_discipline,
};

bool
pbox_shard_has_discipline(unsigned discipline)
{
	return discipline < sizeof(discipline_of) / sizeof(*discipline_of) &&
	       discipline_of[discipline] != NULL;
}

unsigned
pbox_shard_clocks(unsigned discipline, unsigned workers)
{
	const struct discipline *d = discipline_of[discipline];

	return d->clocks != NULL ? d->clocks(workers) : 0;
}

unsigned
pbox_shard_vector(unsigned discipline, unsigned workers)
{
	const struct discipline *d = discipline_of[discipline];

	return d->vector != NULL ? d->vector(workers) : 0;
}

size_t
pbox_shard_table_bytes(const struct pbox_table *t, unsigned workers)
{
	return sizeof(struct pbox_shard_table) + discipline_of[t->discipline]->bytes(t, workers);
}

struct pbox_shard_table *
pbox_shard_table_create(struct pbox_table *t, unsigned workers, struct pbox_arena *arena)
{
	struct pbox_shard_table *st = pbox_arena_alloc(arena, pbox_shard_table_bytes(t, workers));

	if (st == NULL)
		return NULL;
	st->t = t;
	st->discipline = discipline_of[t->discipline];
	memcpy(st->spare, t->spare, sizeof(st->spare));
	return st;
}
