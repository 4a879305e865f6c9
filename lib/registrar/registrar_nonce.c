/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * A JOIN is good as long as its cookie (R4.2): so long the box knows the nonces of sessions that have ended, so that no
 * copy of their JOIN opens another. A worker that lives has one nonce for all its sessions (R10.1). It differs from a
 * copy by its cookie: who joins again got it after the end of the session, and a copy has the cookie of then. They are
 * kept by job, also beyond its end: what happens in one job says nothing of another. All of a job's count as its heap
 * while it is there.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registrar_impl.h"

/* Of a job: its workers, and those that have come and gone in the life of a cookie. */
#define NONCES_MOST (8u * PBOX_MAX_WORKERS)
/* Of all jobs of [job *] that have ended: what is older goes. */
#define ANY_MOST (16u * PBOX_MAX_WORKERS)

struct ended {
	uint64_t nonce;
	uint64_t tick;     /* when: PBOX_COOKIE_TICK_NS */
	uint64_t made_way; /* with that run, for another one; 0: otherwise */
	bool left;
};

struct registrar_nonces {
	struct registrar_nonces *next;
	char job[PBOX_NAME_LEN];
	bool any; /* of [job *] */
	unsigned n, room;
	struct ended *ended; /* in the order of their ends */
};

/* What the part keeps. */
struct nonces {
	struct registrar_nonces *first;
	uint64_t next_ns;
};

static struct nonces *
all_nonces(const struct pbox_registrar *r)
{
	return registrar_state(r, PART_nonce);
}

static struct registrar_nonces *
find_nonces(const struct pbox_registrar *r, const char *job)
{
	for (struct registrar_nonces *k = all_nonces(r)->first; k != NULL; k = k->next)
		if (strcmp(k->job, job) == 0)
			return k;
	return NULL;
}

/* A JOIN of then has no good cookie any more. */
static bool
is_over(const struct ended *e, uint64_t now_ns)
{
	return now_ns / PBOX_COOKIE_TICK_NS - e->tick >= PBOX_COOKIE_LIFE;
}

static void
forget_old(struct registrar_nonces *k, uint64_t now_ns)
{
	unsigned n = 0;

	for (unsigned i = 0; i < k->n; i++)
		if (!is_over(&k->ended[i], now_ns))
			k->ended[n++] = k->ended[i];
	k->n = n;
}

enum registrar_nonce
registrar_nonce_look(const struct pbox_registrar *r, const char *job, uint64_t nonce,
	uint64_t cookie, uint64_t *made_way)
{
	uint64_t given = pbox_cookie_given(r->now_ns / PBOX_COOKIE_TICK_NS, cookie);
	const struct registrar_nonces *k = find_nonces(r, job);
	enum registrar_nonce found = REGISTRAR_NONCE_NEW;

	*made_way = 0;
	for (unsigned i = 0; k != NULL && i < k->n; i++) {
		const struct ended *e = &k->ended[i];

		if (e->nonce != nonce || is_over(e, r->now_ns))
			continue;
		if (e->left)
			return REGISTRAR_NONCE_LEFT;
		if (given <= e->tick)
			found = REGISTRAR_NONCE_OLD;
		*made_way = e->made_way;
	}
	return found;
}

/* Its record, which counts as the job's heap from now on. */
static struct registrar_nonces *
nonces_of(struct pbox_registrar *r, struct pbox_job *job)
{
	struct registrar_nonces *k = find_nonces(r, job->name);

	if (k == NULL) {
		k = calloc(1, sizeof(*k));
		if (k == NULL)
			return NULL;
		snprintf(k->job, sizeof(k->job), "%s", job->name);
		k->next = all_nonces(r)->first;
		all_nonces(r)->first = k;
	}
	if (!job->remembers)
		job->heap += sizeof(*k) + k->room * sizeof(*k->ended);
	job->remembers = true;
	k->any = strcmp(job->conf->name, "*") == 0;
	return k;
}

/* Room for so many, from what there is. */
static unsigned
room_for(unsigned room, unsigned need)
{
	room = room > 0 ? room : 8;
	while (room < need)
		room *= 2;
	return room < NONCES_MOST ? room : NONCES_MOST;
}

static bool
nonce_grow(struct registrar_nonces *k, struct pbox_job *job, unsigned need)
{
	unsigned room = room_for(k->room, need);
	struct ended *ended;

	if (need > room || !pbox_job_charge(job, (room - k->room) * sizeof(*ended)))
		return false;
	ended = reallocarray(k->ended, room, sizeof(*ended));
	if (ended == NULL) {
		pbox_job_refund(job, (room - k->room) * sizeof(*ended));
		return false;
	}
	k->ended = ended;
	k->room = room;
	return true;
}

size_t
registrar_nonce_heap(const struct pbox_registrar *r, const char *job)
{
	struct registrar_nonces *k = find_nonces(r, job);
	unsigned room = 0, need = 1;

	if (k != NULL) {
		forget_old(k, r->now_ns);
		room = k->room;
		need += k->n;
	}
	return sizeof(*k) + room_for(room, need) * sizeof(*k->ended);
}

bool
registrar_nonce_room(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	struct registrar_nonces *k = nonces_of(r, job);
	unsigned live = pbox_job_joined(job) + 1;

	if (k != NULL && k->n + live > k->room)
		forget_old(k, r->now_ns);
	if (k != NULL && (k->n + live <= k->room || nonce_grow(k, job, k->n + live)))
		return true;
	return registrar_refuse(r, f, PBOX_E_WORKER_TAKEN, NONCE_AGAIN_MS,
		"%u sessions of job '%s' have ended within seconds, and the box may remember no more of them: join again later",
		k != NULL ? k->n : 0, job->name);
}

void
registrar_nonce_keep(struct pbox_registrar *r, const struct pbox_job *job, unsigned worker)
{
	struct registrar_nonces *k = find_nonces(r, job->name);

	if (k == NULL)
		return;
	if (k->n == k->room)
		forget_old(k, r->now_ns);
	PBOX_ASSERT(k->n < k->room); /* registrar_nonce_room(), when it joined */
	k->ended[k->n++] = (struct ended){.nonce = job->member[worker].nonce,
		.tick = r->now_ns / PBOX_COOKIE_TICK_NS,
		.made_way = job->made_way ? job->run.number : 0};
}

void
registrar_nonce_left(struct pbox_registrar *r, const struct pbox_job *job)
{
	struct registrar_nonces *k = find_nonces(r, job->name);

	if (k == NULL)
		return;
	PBOX_ASSERT(k->n > 0); /* registrar_nonce_keep() */
	k->ended[k->n - 1].left = true;
}

static void
nonce_release(struct registrar_nonces *k)
{
	free(k->ended);
	free(k);
}

/* Those that have nothing to say; and of names that anybody makes up, no more than so many: the longest ended is
 * last. */
static void
nonce_tick(struct pbox_registrar *r)
{
	struct nonces *n = all_nonces(r);
	struct registrar_nonces **at = &n->first, *k;
	unsigned any = 0;

	if (r->now_ns < n->next_ns)
		return;
	n->next_ns = r->now_ns + 1000 * NS_PER_MS;
	while ((k = *at) != NULL) {
		bool live = registrar_find_job(r, k->job) != NULL;

		forget_old(k, r->now_ns);
		any += k->any && !live ? k->n + 1 : 0;
		if (live || (k->n > 0 && any <= ANY_MOST)) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		nonce_release(k);
	}
}

static void
nonce_end(struct pbox_registrar *r)
{
	struct nonces *n = all_nonces(r);
	struct registrar_nonces *k;

	while ((k = n->first) != NULL) {
		n->first = k->next;
		nonce_release(k);
	}
}

const struct registrar_part registrar_nonce_part = {
	.name = "nonces",
	.tick_all = nonce_tick,
	.end = nonce_end,
	.state = sizeof(struct nonces),
};
