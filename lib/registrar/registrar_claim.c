/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>

#include "registrar_impl.h"

/*
 * R4.6: somebody who knows the secret claims the number of a live session. It may be a worker that
 * was killed and started again, long before its lease ends; or a second process with the same
 * number. The session is asked whether it lives: it answers at once, or it is dead.
 */

#define CLAIM_PINGS      5
#define CLAIM_PINGS_MIN  3
#define CLAIM_PING_EVERY (100 * NS_PER_MS)
#define CLAIM_NS         (500 * NS_PER_MS)
#define CLAIM_LOG_EVERY  (10000 * NS_PER_MS)

struct claim {
	uint64_t ns;          /* first PING; 0: nobody claims the number */
	uint64_t listened_ns; /* and on the clock of leases */
	uint64_t next_ns;     /* when the next PING may leave */
	uint64_t logged_ns;   /* when it was last logged */
	uint8_t pings;        /* sent since ns */
};

static struct claim *
number_claim(const struct pbox_job *job, unsigned w)
{
	return registrar_member_state(job, PART_claim, w);
}

static bool
heard_since(const struct pbox_registrar *r, const struct pbox_job *job, unsigned w, uint64_t ns)
{
	return pbox_registrar_silence(r, job, w, r->now_ns) < r->now_ns - ns;
}

void
registrar_ping(struct pbox_registrar *r, const struct pbox_job *job, unsigned w)
{
	struct pbox_send out = {.hdr = {.type = PBOX_PING, .map_epoch = PBOX_MAP_EPOCH}};

	count_control(r, PBOX_RS_PINGS);
	registrar_send(r, job, w, &out);
}

static void
claim_ping(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	struct claim *c = number_claim(job, w);

	c->pings++;
	c->next_ns = r->now_ns + CLAIM_PING_EVERY;
	registrar_ping(r, job, w);
}

static void
claim_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	for (unsigned w = 0; w < job->workers; w++) {
		struct claim *c = number_claim(job, w);

		if (c->ns != 0 && c->pings < CLAIM_PINGS && r->now_ns >= c->next_ns &&
			!heard_since(r, job, w, c->ns))
			claim_ping(r, job, w);
	}
}

/* It lives, and another process has its number: worth a line, not one each time it asks. */
static void
log_claimed(struct pbox_registrar *r, struct pbox_job *job, unsigned w, const struct pbox_frame *f,
	const char *host)
{
	const struct pbox_member *m = &job->member[w];
	struct claim *c = number_claim(job, w);
	char ip[INET_ADDRSTRLEN] = "";

	if (c->logged_ns != 0 && r->now_ns - c->logged_ns < CLAIM_LOG_EVERY)
		return;
	c->logged_ns = r->now_ns;
	inet_ntop(AF_INET, &f->peer.ip, ip, sizeof(ip));
	registrar_event(r, PBOX_LOG_WARN,
		"job '%s': a second process (%s, %s) wants to be worker %u, which %s is and answers: give each worker its own number",
		job->name, host, ip, w, m->host);
}

static bool
beyond_lease(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	return registrar_unheard(r, job, w) > job->member[w].lease_ms * NS_PER_MS;
}

enum registrar_life
registrar_ask(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	struct claim *c = number_claim(job, w);
	bool alive = c->ns != 0 && heard_since(r, job, w, c->ns), over;

	PBOX_ASSERT(registrar_has_session(job, w));
	if (beyond_lease(r, job, w))
		return REGISTRAR_DEAD;
	over = c->ns == 0 || r->listened_ns - c->listened_ns >= CLAIM_NS;
	if (over && c->ns != 0 && !alive && c->pings >= CLAIM_PINGS_MIN)
		return REGISTRAR_DEAD;
	if (over && (c->ns == 0 || alive)) {
		c->ns = r->now_ns;
		c->listened_ns = r->listened_ns;
		c->pings = 0;
		claim_ping(r, job, w);
	}
	return alive ? REGISTRAR_ALIVE : REGISTRAR_ASKED;
}

enum registrar_life
registrar_ask_again(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	struct claim *c = number_claim(job, w);

	if (c->ns != 0 && heard_since(r, job, w, c->ns))
		c->ns = 0;
	return registrar_ask(r, job, w);
}

/* Who restores a table has, by the box before it was started again; but chunks that move wait for all numbers, by number. */
static bool
has_been_given_a_map(const struct pbox_job *job, unsigned w)
{
	bool any = job->member[w].mapped > 0;

	for (uint32_t i = 0; i < job->n_tables; i++)
		any |= !job->table[i]->moving && registrar_is_restorer(job->table[i], w);
	return any;
}

int
registrar_living(struct pbox_registrar *r, struct pbox_job *job, unsigned but, bool mapped)
{
	int first = REGISTRAR_NOBODY;

	for (unsigned w = 0; w < job->workers; w++) {
		enum registrar_life life;

		if (w == but || !registrar_has_session(job, w) ||
			(mapped && !has_been_given_a_map(job, w)))
			continue;
		life = registrar_ask(r, job, w);
		if (life == REGISTRAR_ALIVE && first < 0)
			first = (int)w;
		else if (life == REGISTRAR_ASKED && first == REGISTRAR_NOBODY)
			first = REGISTRAR_ASKING;
	}
	return first;
}

bool
registrar_claim(struct pbox_registrar *r, struct pbox_job *job, unsigned w,
	const struct pbox_frame *f, const char *host, bool any)
{
	const struct pbox_member *m = &job->member[w];
	uint64_t silent = pbox_registrar_silence(r, job, w, r->now_ns);
	enum registrar_life life = registrar_ask(r, job, w);
	bool alive = life == REGISTRAR_ALIVE;

	if (life == REGISTRAR_DEAD && beyond_lease(r, job, w))
		return true;
	if (life == REGISTRAR_DEAD) {
		registrar_event(r, PBOX_LOG_WARN,
			"job '%s': worker %u (%s) answers no PING and has been silent for %llu ms: its number goes to %s",
			job->name, w, m->host, (unsigned long long)(silent / NS_PER_MS), host);
		count_control(r, PBOX_RS_TAKEN_OVER);
		return true;
	}
	if (alive && !any)
		log_claimed(r, job, w, f, host);
	if (any)
		return registrar_refuse(r, f, PBOX_E_WORKER_TAKEN, CLAIM_AGAIN_MS,
			"all %u workers of job '%s' have joined; worker %u (%s), heard %u ms ago, is being asked whether it still lives",
			job->workers, job->name, w, m->host, (unsigned)(silent / NS_PER_MS));
	return registrar_refuse(r, f, PBOX_E_WORKER_TAKEN, CLAIM_AGAIN_MS,
		alive ? "worker %u of job '%s' is taken by %s, which answers (heard %u ms ago): give each worker its own number"
		      : "worker %u of job '%s' is taken by %s, heard %u ms ago: asking whether it still lives",
		w, job->name, m->host, (unsigned)(silent / NS_PER_MS));
}

static void
claim_session_end(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	(void)r;
	number_claim(job, w)->ns = 0;
}

const struct registrar_part registrar_claim_part = {
	.name = "claims",
	.tick = claim_tick,
	.session_end = claim_session_end,
	.member_state = sizeof(struct claim),
};
