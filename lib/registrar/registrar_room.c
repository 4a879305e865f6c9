/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What a job gets of what all jobs share: a number (max-jobs), packets that the shards may hold (hold), and
 * memory.
 * A section with a name of its own has one number and a part of the packets kept for it as long as its job
 * is not there: whatever other tenants ask for, it finds room.
 */

#include <stdio.h>
#include <string.h>

#include <pbox_slots.h>

#include "registrar_impl.h"

/* Most frames a worker may have in flight at one endpoint. */
#define MAX_WINDOW 1024
/* Heap that any job may have, however small the box is. */
#define HEAP_LEAST ((size_t)4 << 20)

/* The jobs that count for one of section `asker`: those that there are, or those that stay when `ends` has ended, and
 * all that may have made way for it. */
struct counted {
	const struct pbox_registrar *r;
	const struct pbox_job_conf *asker;
	const struct pbox_job *job[PBOX_MAX_JOBS];
	unsigned jobs, of_any;
	uint32_t packets;
};

static void
count_jobs(struct counted *c, struct pbox_registrar *r, const struct pbox_job_conf *asker,
	bool then, const struct pbox_job *ends)
{
	*c = (struct counted){.r = r, .asker = asker};
	for (unsigned i = 0; i < r->conf.max_jobs; i++) {
		struct pbox_job *job = r->job[i];

		if (job == NULL || job == ends || (then && registrar_makes_way(r, job, asker)))
			continue;
		c->job[c->jobs++] = job;
		c->of_any += registrar_is_any(job->conf);
		c->packets += job->hold_share;
	}
}

static bool
is_running(const struct counted *c, const char *name)
{
	for (unsigned i = 0; i < c->jobs; i++)
		if (strcmp(c->job[i]->name, name) == 0)
			return true;
	return false;
}

/* What is kept for sections other than mine whose jobs are not there. */
struct kept {
	unsigned jobs;
	uint32_t packets;
};

static struct kept
kept_of(const struct counted *of, uint32_t part)
{
	const struct pbox_registrar *r = of->r;
	unsigned others = r->conf.max_jobs - of->jobs - 1;
	struct kept k = {0};
	uint64_t exact = 0;

	for (unsigned i = 0; i < r->conf.n_jobs; i++) {
		const struct pbox_job_conf *c = &r->conf.job[i];
		uint64_t unit = (uint64_t)c->workers * r->endpoints_per_shard;

		if (registrar_is_any(c) || strcmp(c->name, of->asker->name) == 0 ||
			is_running(of, c->name))
			continue;
		k.jobs++;
		exact += unit > part ? unit : part;
	}
	/* as many packets as their workers need, if that is no more than half of all; else equal parts */
	k.packets = (k.jobs < others ? k.jobs : others) * part;
	if (k.jobs <= others && exact > k.packets && exact <= r->conf.hold / 2)
		k.packets = (uint32_t)exact;
	return k;
}

/*
 * A job takes at most a quarter of all packets, half of what is free, and of that not what stays for jobs
 * to come: half of all, in equal parts, so that max-jobs find room. Its workers get equal windows of at least
 * one frame, for which it may take what stays for jobs under [job *], but not what is kept for a name.
 */
static uint32_t
share_of(const struct counted *c, uint32_t unit, uint32_t part, uint32_t kept)
{
	uint32_t hold = c->r->conf.hold, left = hold - c->packets, share = hold / 4;
	unsigned jobs = c->jobs + 1;
	uint32_t later = (c->r->conf.max_jobs - jobs) * part, room = left > kept ? left - kept : 0;
	uint32_t mine = left > later ? left - later : 0;

	if (share > left / 2)
		share = left / 2;
	if (share > mine)
		share = mine;
	/* with many jobs half of what is free falls below the part that was kept for this one */
	if (share < part)
		share = part;
	if (share < unit)
		share = unit;
	if (share > room)
		share = room;
	return share < unit ? 0 : share;
}

/* What there is for a job of c->asker with so many workers, and which limit it is that leaves nothing. */
struct room {
	enum { ROOM, NO_JOB, NO_JOB_OF_ANY, NO_JOB_BUT_NAMED, NO_PACKETS } lack;
	unsigned jobs;
	uint32_t share, kept, free;
};

static struct room
room_of(const struct counted *c, uint32_t unit)
{
	const struct pbox_registrar *r = c->r;
	const struct pbox_job_conf *asker = c->asker;
	uint32_t part = r->conf.hold / 2 / r->conf.max_jobs;
	struct room room = {.jobs = c->jobs, .free = r->conf.hold - c->packets};
	struct kept kept;

	if (room.jobs == r->conf.max_jobs) {
		room.lack = NO_JOB;
		return room;
	}
	kept = kept_of(c, part);
	room.kept = kept.packets;
	if (registrar_is_any(asker) && asker->max_jobs != 0 && c->of_any >= asker->max_jobs)
		room.lack = NO_JOB_OF_ANY;
	else if (registrar_is_any(asker) && r->conf.max_jobs - room.jobs <= kept.jobs)
		room.lack = NO_JOB_BUT_NAMED;
	else if ((room.share = share_of(c, unit, part, kept.packets)) == 0)
		room.lack = NO_PACKETS;
	return room;
}

/* That, with the jobs that there are, or (then) with those that stay. */
static struct room
room_if(struct pbox_registrar *r, const struct pbox_job_conf *asker, uint32_t unit, bool then,
	const struct pbox_job *ends)
{
	struct counted c;

	count_jobs(&c, r, asker, then, ends);
	return room_of(&c, unit);
}

/* Whom there is no room for: slots take it, too. */
struct asker_text {
	char text[40];
};

static struct asker_text
asker_text(const struct pbox_join *m)
{
	struct asker_text t;

	if (m->slots == 0)
		snprintf(t.text, sizeof(t.text), "%u workers", m->workers);
	else
		snprintf(t.text, sizeof(t.text), "%u workers with %u slots", m->workers, m->slots);
	return t;
}

static bool
refuse_room(struct pbox_registrar *r, const struct registrar_join *q, const struct room *room)
{
	unsigned most = room->lack == NO_JOB_OF_ANY ? q->conf->max_jobs : r->conf.max_jobs;
	const struct pbox_frame *f = q->f;
	char more[96] = "";

	if (room->lack == NO_JOB)
		return registrar_refuse(r, f, PBOX_E_FULL, most,
			"the box has its %u jobs already: raise max-jobs", most);
	if (room->lack == NO_JOB_OF_ANY)
		return registrar_refuse(r, f, PBOX_E_FULL, most,
			"[job *] has its %u jobs already: raise max-jobs in [job *], or give this job a section",
			most);
	if (room->lack == NO_JOB_BUT_NAMED)
		return registrar_refuse(r, f, PBOX_E_FULL, most,
			"the box has %u of its %u jobs, and keeps the others for sections with a name: raise max-jobs, or give this job a section",
			room->jobs, most);
	if (room->kept > 0 && room->free > 0)
		snprintf(more, sizeof(more), ", %u of them kept for sections with a name",
			room->kept < room->free ? room->kept : room->free);
	if (q->m.slots == 0)
		return registrar_refuse(r, f, PBOX_E_FULL, room->free,
			"no packet buffers left for %u workers (%u free%s): raise 'hold'",
			q->m.workers, room->free, more);
	return registrar_refuse(r, f, PBOX_E_FULL, room->free,
		"no packet buffers left for %u workers that bring %u nodes of %u slots a round (%u free%s): raise 'hold', or let the slots be the workers times a power of 2",
		q->m.workers, registrar_nodes(&q->m), q->m.slots, room->free, more);
}

size_t
registrar_heap_most(const struct pbox_registrar *r)
{
	size_t most = registrar_arenas(r, pbox_arena_size) / r->conf.max_jobs;

	return most > HEAP_LEAST ? most : HEAP_LEAST;
}

uint32_t
registrar_nodes(const struct pbox_join *m)
{
	struct pbox_node node[PBOX_RANGE_NODES];
	uint32_t nodes = 0;

	if (m->slots == 0)
		return m->workers;
	for (unsigned w = 0; w < m->workers; w++)
		nodes += pbox_range_nodes(pbox_slots_of(w, m->workers, m->slots),
			pbox_slots_of(w + 1, m->workers, m->slots), m->slots, node);
	/* plans may cut ranges again, and give away what a worker has in pieces (R15.9) */
	if (m->policy == PBOX_POLICY_REASSIGN)
		nodes = 2 * nodes + 8 < m->slots ? 2 * nodes + 8 : m->slots;
	return nodes;
}

/* Packets of a fragment of each endpoint, while its round lasts. */
static uint32_t
unit_of(const struct pbox_registrar *r, const struct pbox_join *m)
{
	return registrar_nodes(m) * r->endpoints_per_shard;
}

/* Whether no job would have more than its part of a NUMA node that many shards are on, with so many bytes in each. */
static bool
nodes_fit(const struct pbox_registrar *r, size_t bytes)
{
	size_t taken[PBOX_MAX_NODES] = {0};

	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		unsigned node = registrar_node_of_shard(r, i);

		taken[node] += bytes;
		if (taken[node] > pbox_arena_size(r->conf.arena[node]) / r->conf.max_jobs)
			return false;
	}
	return true;
}

/* The slots of a rack's part. */
static void
rack_room(const struct pbox_registrar *r, struct pbox_shard_room *room)
{
	unsigned part;

	if (r->conf.rack.racks == 0)
		return;
	part = room->slots / r->conf.rack.racks;
	room->rack_first = (uint16_t)(r->conf.rack.rack * part);
	room->rack_slots = (uint16_t)part;
}

/* Its section and the box let it have what it takes before its first table, with its first session; out->window: the
 * largest that it may have, and then the one for which memory is there. False after answering why not. */
static bool
room_fit(struct pbox_registrar *r, const struct registrar_join *q, struct registrar_rounds *out)
{
	const struct pbox_job_conf *conf = q->conf;
	const struct pbox_join *m = &q->m;
	unsigned shards = r->conf.n_shards;
	size_t most = conf->bounds.memory != 0
			      ? conf->bounds.memory / 4
			      : registrar_arenas(r, pbox_arena_size) / r->conf.max_jobs;
	size_t folded, heap;
	/* of each round, the nodes that a part of its slots consists of */
	uint32_t nodes;
	struct pbox_shard_room *room = &out->shard;

	*room = (struct pbox_shard_room){
		.workers = m->workers,
		.slots = m->slots != 0 ? m->slots : m->workers,
		.named = m->slots != 0,
		.planned = m->policy == PBOX_POLICY_REASSIGN,
		.peers = r->endpoints_per_shard,
		/* a 2-byte format makes fragments of twice as many elements as fp32 */
		.acc_bytes = 2 * (size_t)r->conf.mtu,
	};
	rack_room(r, room);
	nodes = room->slots > 1 ? 32 - (uint32_t)__builtin_clz(room->slots - 1u) : 1;
	/* what one round needs of them: without it the rounds of workers that send ahead would wait for each other */
	room->kept = room->named ? nodes : 0;
	folded = most / 2 / shards / pbox_pad_line(room->acc_bytes);
	for (;; out->window /= 2) {
		room->records = m->workers * r->endpoints_per_shard * out->window;
		room->hold = unit_of(r, m) * out->window;
		room->folded = room->records < PBOX_SHARD_FOLDED / nodes ? room->records * nodes
									 : PBOX_SHARD_FOLDED;
		room->folded += room->kept;
		if (room->folded > folded)
			room->folded = (uint32_t)(folded > room->kept ? folded : room->kept);
		out->arena = shards * pbox_shard_job_bytes(room);
		if ((out->arena <= most && nodes_fit(r, out->arena / shards)) || out->window == 1)
			break;
	}
	heap = pbox_job_heap(conf, m->workers) + registrar_parts_heap(r, m->workers) +
	       registrar_nonce_heap(r, m->job);
	if (conf->bounds.memory != 0 && out->arena + heap > conf->bounds.memory)
		return registrar_refuse(r, q->f, PBOX_E_NO_MEMORY, m->workers,
			"%s need %zu bytes for sessions and rounds before the first tensor, and section [job %s] has memory = %llu: raise it",
			asker_text(m).text, out->arena + heap, conf->name,
			(unsigned long long)conf->bounds.memory);
	if (heap > registrar_heap_most(r))
		return registrar_refuse(r, q->f, PBOX_E_NO_MEMORY, m->workers,
			"%u workers need %zu bytes for sessions before the first tensor, and this box lets a job take %zu beside its parameters: raise the box's 'memory'",
			m->workers, heap, registrar_heap_most(r));
	return true;
}

static uint16_t
window_in(const struct room *room, uint32_t unit)
{
	return (uint16_t)(room->share / unit < MAX_WINDOW ? room->share / unit : MAX_WINDOW);
}

bool
registrar_room(
	struct pbox_registrar *r, const struct registrar_join *q, struct registrar_rounds *out)
{
	uint32_t unit = unit_of(r, &q->m);
	struct room room = room_if(r, q->conf, unit, false, NULL), after;

	if (room.lack == ROOM) {
		out->window = window_in(&room, unit);
		return room_fit(r, q, out);
	}
	/* nobody ends for who would be refused all the same */
	after = room_if(r, q->conf, unit, true, NULL);
	out->window = window_in(&after, unit);
	if (after.lack == ROOM && !room_fit(r, q, out))
		return false;
	if (after.lack != ROOM || !registrar_room_comes(r, q->f, q->conf, 0))
		refuse_room(r, q, &room);
	return false;
}

bool
registrar_no_memory_on(struct pbox_registrar *r, const struct registrar_join *q, unsigned node)
{
	return registrar_refuse(r, q->f, PBOX_E_NO_MEMORY, node,
		"NUMA node %u has no memory for the rounds of %s: raise 'memory'", node,
		asker_text(&q->m).text);
}

/* Of a job, on that node. */
static size_t
memory_on(const struct pbox_registrar *r, const struct pbox_job *job, unsigned node)
{
	size_t bytes = 0;

	for (unsigned i = 0; i < r->conf.n_shards; i++)
		if (registrar_node_of_shard(r, i) == node)
			bytes += job->round_bytes / r->conf.n_shards;
	for (uint32_t i = 0; i < job->n_tables; i++)
		if (job->table[i]->built)
			bytes += pbox_table_bytes_on(&job->table[i]->t, node);
	return bytes;
}

/* Each shard's part of it, on the shard's node; of what is free there as if it were one piece. */
static bool
has_memory_then(struct pbox_registrar *r, const struct registrar_join *q,
	const struct registrar_rounds *rounds)
{
	size_t need[PBOX_MAX_NODES] = {0};

	for (unsigned i = 0; i < r->conf.n_shards; i++)
		need[registrar_node_of_shard(r, i)] += rounds->arena / r->conf.n_shards;
	for (unsigned node = 0; node < PBOX_MAX_NODES; node++) {
		const struct pbox_arena *a = r->conf.arena[node];
		size_t free;

		if (need[node] == 0)
			continue;
		free = pbox_arena_size(a) - pbox_arena_used(a);
		for (unsigned i = 0; i < r->conf.max_jobs; i++)
			if (r->job[i] != NULL &&
				(r->job[i] == q->job || registrar_makes_way(r, r->job[i], q->conf)))
				free += memory_on(r, r->job[i], node);
		if (need[node] > free)
			return registrar_no_memory_on(r, q, node);
	}
	return true;
}

bool
registrar_room_then(struct pbox_registrar *r, const struct registrar_join *q)
{
	uint32_t unit = unit_of(r, &q->m);
	struct room room = room_if(r, q->conf, unit, true, q->job);
	struct registrar_rounds rounds = {0};

	if (room.lack != ROOM)
		return refuse_room(r, q, &room);
	rounds.window = window_in(&room, unit);
	return room_fit(r, q, &rounds) && has_memory_then(r, q, &rounds);
}
