/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The handshake of a session: HELLO, RETRY, JOIN with its checks, WELCOME (section 4). */

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

/* Of a job with a rate: what all its workers send in this time, but not less than so many each. */
#define RATE_WINDOW_MS  20
#define RATE_WINDOW_MIN 4

/* Workers ask a box that is silent once a second at least: in this time each has seen that it was started
 * again, and has come back. */
#define KEEP_NUMBERS  (2000 * NS_PER_MS)
#define KEEP_AGAIN_MS 200

/* Anybody may send these, in any number: a line in this time. */
#define VERSION_LOG_NS UINT64_C(10000000000)

/* What it has instead of this box's release, in words; and how many of them were left out. */
static void
log_version(struct pbox_registrar *r, const struct pbox_peer *peer, const char *has)
{
	char ip[INET_ADDRSTRLEN], more[48] = "";

	r->versions_unlogged++;
	if (r->version_logged_ns != 0 && r->now_ns - r->version_logged_ns < VERSION_LOG_NS)
		return;
	inet_ntop(AF_INET, &peer->ip, ip, sizeof(ip));
	if (r->versions_unlogged > 1)
		snprintf(more, sizeof(more), " (and %u more before it)", r->versions_unlogged - 1);
	registrar_event(r, PBOX_LOG_WARN, "%s:%u %s%s", ip, peer->udp, has, more);
	r->version_logged_ns = r->now_ns;
	r->versions_unlogged = 0;
}

void
registrar_other_version(
	struct pbox_registrar *r, const struct registrar_addressee *to, unsigned min, unsigned max)
{
	char versions[32], text[128];

	snprintf(versions, sizeof(versions), min == max ? "%u" : "%u to %u", min, max);
	snprintf(text, sizeof(text),
		"speaks protocol version %s, this box version %u: install the same release there",
		versions, PBOX_VERSION_WIRE);
	log_version(r, &to->peer, text);
	snprintf(text, sizeof(text), "this box speaks version %u", PBOX_VERSION_WIRE);
	registrar_refuse_text(r, to, PBOX_E_VERSION, PBOX_VERSION_WIRE, text);
}

void
registrar_on_hello(struct pbox_registrar *r, const struct pbox_frame *f)
{
	struct pbox_hello m;
	struct pbox_retry a = {.incarnation = r->conf.incarnation};

	if (pbox_hello_decode(f->payload, f->hdr.length, &m) < 0 ||
		f->hdr.length < PBOX_HELLO_LEN) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	count_control(r, PBOX_RS_RX_HELLO);
	if (f->follows) /* R4.7: headers below ours make a train of answers longer than its requests */
		return;
	if (m.min_version > PBOX_VERSION_WIRE || m.max_version < PBOX_VERSION_WIRE) {
		const struct registrar_addressee to = registrar_sender(r, f);

		registrar_other_version(r, &to, m.min_version, m.max_version);
		return;
	}
	a.cookie = pbox_cookie(
		r->cookie_key, pbox_job_from(&f->peer), r->now_ns / PBOX_COOKIE_TICK_NS);
	registrar_reply(r, f, PBOX_RETRY, pbox_retry_encode(r->scratch, sizeof(r->scratch), &a));
}

/* Its part of every shard; false after answering why not. */
static bool
create_on_shards(struct pbox_registrar *r, const struct registrar_join *q, struct pbox_job *job,
	const struct registrar_rounds *rounds)
{
	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		unsigned node = registrar_node_of_shard(r, i);

		job->shard[i] = pbox_shard_job_create(
			job, (uint16_t)i, &rounds->shard, r->conf.arena[node]);
		if (job->shard[i] != NULL)
			continue;
		/* no answer: it asks again, and memory of ended jobs is cleared by then */
		if (pbox_arena_uncleared(r->conf.arena[node]) == 0 &&
			!registrar_room_comes(r, q->f, job->conf, rounds->arena))
			registrar_no_memory_on(r, q, node);
		while (i-- > 0)
			pbox_shard_job_free(job->shard[i]);
		return false;
	}
	job->round_bytes = rounds->arena;
	return true;
}

/* A job with its memory on every shard, if it is not there yet. */
static bool
join_begins(struct pbox_registrar *r, struct registrar_join *q)
{
	const struct pbox_job_conf *conf = q->conf;
	struct registrar_rounds rounds = {0};
	struct pbox_job *job;
	uint16_t id = 0;
	char slots[16] = "";

	if (q->job != NULL)
		return true;
	if (!registrar_room(r, q, &rounds))
		return false;
	while (r->job[id] != NULL)
		id++;
	job = pbox_job_create(id, q->m.job, conf, q->m.workers);
	if (job == NULL)
		return registrar_refuse(r, q->f, PBOX_E_NO_MEMORY, 0, "out of memory for the job");
	job->begun_ns = r->now_ns;
	job->begun_listened_ns = r->listened_ns;
	r->conf.ops->random(r->conf.ctx, job->challenge, sizeof(job->challenge));
	job->heap_most = registrar_heap_most(r);
	if (conf->auth) {
		job->auth = pbox_auth_job_create(
			NULL, conf->secret, conf->secret_len, r->conf.incarnation, id);
		if (job->auth == NULL) {
			pbox_job_free(job);
			return registrar_refuse(r, q->f, PBOX_E_NO_MEMORY, 0,
				"no memory for the keys of the job, or no AES in this CPU");
		}
	}
	if (!registrar_parts_job_begin(r, job)) {
		pbox_job_free(job);
		return registrar_refuse(r, q->f, PBOX_E_NO_MEMORY, 0, "out of memory for the job");
	}
	job->heap += registrar_parts_heap(r, job->workers);
	job->window = rounds.window;
	if (q->up_window > 0 && q->up_window < job->window)
		job->window = (uint16_t)q->up_window;
	job->policy = conf->policy == PBOX_POLICY_ANY ? q->m.policy : conf->policy;
	job->slots = (uint16_t)rounds.shard.slots;
	job->names_slots = rounds.shard.named;
	job->least = q->m.least;
	job->nodes = registrar_nodes(&q->m);
	job->hold_share = rounds.shard.hold;
	PBOX_ASSERT(job->window > 0 && job->slots >= job->workers); /* R5.2b */
	if (!create_on_shards(r, q, job, &rounds)) {
		registrar_parts_job_end(r, job);
		pbox_job_free(job);
		return false;
	}
	r->job[id] = q->job = job;
	registrar_run_begin(r, job, &q->m);
	registrar_rack_begin(r, q, job);
	pbox_stat_add(&r->stats[PBOX_RS_JOBS], 1);
	if (job->names_slots)
		snprintf(slots, sizeof(slots), "%u slots, ", job->slots);
	registrar_event(r, PBOX_LOG_INFO,
		"job '%s' begins: run %llu, %u workers, %spolicy %s, window %u frames per endpoint",
		job->name, (unsigned long long)job->run.number, job->workers, slots,
		pbox_policy_name(job->policy), job->window);
	registrar_post(r, job, PBOX_MAIL_OPEN_JOB);
	return true;
}

/* ts: of the JOIN that it answers; 0: of one that came some time ago. */
static void
send_welcome(struct pbox_registrar *r, struct pbox_job *job, unsigned w, uint32_t ts)
{
	struct pbox_member *mb = &job->member[w];
	struct pbox_welcome m = {
		.token = registrar_token(job, w),
		.nonce = mb->nonce,
		.job = job->id,
		.worker = (uint16_t)w,
		.workers = job->workers,
		.endpoints = (uint16_t)r->conf.n_endpoints,
		.incarnation = r->conf.incarnation,
		.lease_ms = mb->lease_ms,
		.mtu = r->conf.mtu,
		.window = mb->window,
		.number = job->run.number,
		.flags = (job->auth != NULL ? PBOX_WELCOME_AUTH : 0) |
			 (job->conf->secret_len == 0 ? PBOX_WELCOME_INSECURE : 0) |
			 registrar_can(r),
	};
	const struct registrar_addressee to = {
		.peer = mb->peer,
		.token = m.token,
		.request = mb->join_request,
		.ts = ts,
		.job = job->id,
		.worker = (uint16_t)w,
		.tagged = job->auth != NULL,
	};
	size_t len;

	PBOX_ASSERT(job->state == PBOX_JOB_OPEN && m.token != 0 && m.number != 0);
	for (unsigned e = 0; e < r->conf.n_endpoints; e++)
		m.endpoint[e] = r->conf.endpoint[e].addr;
	len = pbox_welcome_encode(r->scratch, sizeof(r->scratch), &m);
	PBOX_ASSERT(len > 0);
	pbox_proof(r->scratch + PBOX_WELCOME_PROOF_AT, job->conf->secret, job->conf->secret_len,
		PBOX_WELCOME_PROOF_PREFIX, r->scratch, len, PBOX_WELCOME_PROOF_AT);
	mb->welcome_owed = false;
	registrar_answer(r, &to, PBOX_WELCOME, r->scratch, len);
}

/* A shard knows the job: with the last one its workers are welcome. */
static void
job_opened(struct pbox_registrar *r, const struct pbox_mail *m)
{
	struct pbox_job *job = pbox_shard_job_of(m->job);

	job->shards_open++;
	PBOX_ASSERT(job->shards_open <= r->conf.n_shards);
	if (job->shards_open < r->conf.n_shards || job->state != PBOX_JOB_OPENING)
		return;
	job->state = PBOX_JOB_OPEN;
	for (unsigned w = 0; w < job->workers; w++)
		if (job->member[w].welcome_owed)
			send_welcome(r, job, w, 0);
}

/* The frames of a worker: those that the job has room for, but of a job with a rate no more than it sends
 * in a while. What waits longer is asked about, and nothing comes sooner of it. */
static uint16_t
window_of(const struct pbox_registrar *r, const struct pbox_job *job, uint16_t wanted)
{
	uint64_t window = job->window;

	if (job->conf->bounds.rate != 0) {
		uint64_t paced = (uint64_t)job->conf->bounds.rate * RATE_WINDOW_MS / 1000 /
				 (job->nodes * r->endpoints_per_shard);

		if (paced < RATE_WINDOW_MIN)
			paced = RATE_WINDOW_MIN;
		window = paced < window ? paced : window;
	}
	return wanted > 0 && wanted < window ? wanted : (uint16_t)window;
}

/* Is it the nonce of a session that the job has now? */
static bool
is_live(const struct pbox_job *job, uint64_t nonce)
{
	for (unsigned w = 0; job != NULL && w < job->workers; w++)
		if (registrar_has_session(job, w) && job->member[w].nonce == nonce)
			return true;
	return false;
}

/* Any number: one without a session, or that of who has been silent for longest. */
static unsigned
any_worker(const struct pbox_registrar *r, const struct pbox_job *job)
{
	uint64_t longest = 0;
	unsigned chosen = 0;

	for (unsigned w = 0; w < job->workers; w++) {
		uint64_t silent;

		if (!registrar_has_session(job, w))
			return w;
		silent = pbox_registrar_silence(r, job, w, r->now_ns);
		if (silent > longest) {
			longest = silent;
			chosen = w;
		}
	}
	return chosen;
}

/* R4.6b: after a restart of the box workers come with the numbers that they had. Who wants any number waits
 * for them, so that it gets none of theirs. */
static bool
numbers_free(struct pbox_registrar *r, const struct registrar_join *q)
{
	uint64_t listened_ns = r->listened_ns - q->job->begun_listened_ns;

	return !q->job->numbered || listened_ns >= KEEP_NUMBERS ||
	       registrar_refuse(r, q->f, PBOX_E_WORKER_TAKEN, KEEP_AGAIN_MS,
		       "job '%s' has begun %u ms ago with a worker that has a number: for %u ms the others are kept for workers that had one before a restart of the box",
		       q->job->name, (unsigned)(listened_ns / NS_PER_MS),
		       (unsigned)(KEEP_NUMBERS / NS_PER_MS));
}

/* A repeated JOIN keeps its number, also when it asked for any. */
static bool
join_number(struct pbox_registrar *r, struct registrar_join *q)
{
	struct pbox_job *job = q->job;
	bool any = q->m.worker == PBOX_NO_WORKER;

	for (unsigned w = 0; w < job->workers && !q->repeated; w++)
		if (registrar_has_session(job, w) && job->member[w].nonce == q->m.nonce &&
			(any || q->m.worker == w)) {
			q->worker = w;
			q->repeated = true;
		}
	if (q->repeated)
		return true;
	if (!registrar_mtu_fits(r, q, job))
		return false;
	q->worker = any ? any_worker(r, job) : q->m.worker;
	PBOX_ASSERT(q->worker < job->workers && q->m.workers == job->workers);
	if (registrar_has_session(job, q->worker))
		return registrar_claim(r, job, q->worker, q->f, q->m.host, any);
	return !any || numbers_free(r, q);
}

/* One session more can be remembered, when it ends. */
static bool
join_remembered(struct pbox_registrar *r, struct registrar_join *q)
{
	return q->repeated || registrar_nonce_room(r, q->f, q->job);
}

static void
session_begin(struct pbox_registrar *r, const struct registrar_join *q)
{
	const struct pbox_join *m = &q->m;
	struct pbox_job *job = q->job;
	unsigned w = q->worker;
	struct pbox_member *mb = &job->member[w];
	bool had_left = mb->left == PBOX_LEFT_ITSELF;
	uint64_t lease_ns = job->conf->bounds.lease_ns, token = 0;
	uint32_t lease_ms = lease_ns != 0 ? (uint32_t)(lease_ns / NS_PER_MS) : r->conf.lease_ms;

	PBOX_ASSERT(w < job->workers && job->state != PBOX_JOB_CLOSING);
	if (registrar_has_session(job, w))
		registrar_end_session(r, job, w);
	if (mb->state == PBOX_MEMBER_LEFT)
		registrar_forgive_tables(job);
	job->numbered |= m->worker != PBOX_NO_WORKER;
	while (token == 0)
		r->conf.ops->random(r->conf.ctx, &token, sizeof(token));
	*mb = (struct pbox_member){
		.removed = mb->removed,
		.mapped_before = mb->mapped > mb->mapped_before ? mb->mapped : mb->mapped_before,
		.nonce = m->nonce,
		.state = PBOX_MEMBER_JOINED,
		.lease_ms = m->lease_ms == 0 || m->lease_ms > lease_ms ? lease_ms : m->lease_ms,
		.mtu = m->mtu,
		.window = window_of(r, job, m->window),
		.peer = q->f->peer,
		.last_seen = r->now_ns,
	};
	snprintf(mb->host, sizeof(mb->host), "%s", m->host);
	registrar_lease_begin(r, mb);
	for (unsigned i = 0; i < r->conf.n_shards; i++)
		pbox_shard_session(job->shard[i], w);
	pbox_fresh_begin(&job->fresh[w], &q->f->peer, r->now_ns);
	if (job->auth != NULL)
		pbox_job_auth_begin(job, w, token, r->conf.incarnation);
	atomic_store_explicit(&job->token[w], token, memory_order_release);
	if (had_left && !mb->removed)
		registrar_clocks_members(r, job);
	registrar_parts_session_begin(r, job, w);
	pbox_stat_add(&r->stats[PBOX_RS_WORKERS], 1);
	registrar_event(r, PBOX_LOG_INFO, "job '%s': worker %u (%s) joined, %u of %u", job->name, w,
		mb->host, pbox_job_joined(job), job->workers);
}

static void
admit(struct pbox_registrar *r, const struct registrar_join *q)
{
	struct pbox_member *mb = &q->job->member[q->worker];
	const struct pbox_frame *f = q->f;

	PBOX_ASSERT(q->job->state != PBOX_JOB_CLOSING && q->worker < q->job->workers);
	if (!q->repeated)
		session_begin(r, q);
	/* a copy of the first one comes from no other address, as its cookie says, and keeps no lease */
	else if (pbox_fresh_address(&mb->peer) != pbox_fresh_address(&f->peer))
		mb->peer = f->peer;
	atomic_store_explicit(
		&q->job->fresh[q->worker].home, pbox_fresh_address(&f->peer), memory_order_relaxed);
	mb->join_request = f->hdr.chunk;
	mb->welcome_owed = true;
	if (q->job->state == PBOX_JOB_OPEN)
		send_welcome(r, q->job, q->worker, f->hdr.ts);
}

/* The copy of a JOIN whose session has ended opens no other, and ends no run (R4.6). A worker that is back asks with
 * a newer cookie, or gets one now. */
static bool
join_is_new(struct pbox_registrar *r, struct registrar_join *q)
{
	enum registrar_nonce nonce =
		registrar_nonce_look(r, q->m.job, q->m.nonce, q->m.cookie, &q->made_way);
	struct pbox_job *job = q->job;

	if (is_live(job, q->m.nonce) || nonce == REGISTRAR_NONCE_NEW)
		return true;
	if (job != NULL && job->state != PBOX_JOB_CLOSING && !registrar_agrees(r, q, job))
		; /* it was answered */
	else if (nonce == REGISTRAR_NONCE_LEFT)
		registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, 0,
			"the session of this JOIN has left: join with a new nonce");
	else
		registrar_refuse(r, q->f, PBOX_E_COOKIE, 0,
			"the session of this JOIN has ended: HELLO again");
	r->request.refusal.code = 0; /* nobody was refused */
	return false;
}

static bool
join_not_drained(struct pbox_registrar *r, struct registrar_join *q)
{
	return q->job != NULL || !r->draining ||
	       registrar_refuse(r, q->f, PBOX_E_FULL, 0,
		       "the box takes no new jobs: its operator drains it");
}

static bool
join_not_ending(struct pbox_registrar *r, struct registrar_join *q)
{
	return q->job == NULL || q->job->state != PBOX_JOB_CLOSING ||
	       registrar_refuse(r, q->f, PBOX_E_WORKER_TAKEN, ENDING_AGAIN_MS,
		       "job '%s' is ending: its memory is being released", q->m.job);
}

static bool
join_cookie(struct pbox_registrar *r, struct registrar_join *q)
{
	bool good = pbox_cookie_good(r->cookie_key, pbox_job_from(&q->f->peer),
		r->now_ns / PBOX_COOKIE_TICK_NS, q->m.cookie);

	count_control(r, good ? PBOX_RS_RX_JOIN : PBOX_RS_DROP_COOKIE);
	return good ||
	       registrar_refuse(r, q->f, PBOX_E_COOKIE, 0, "cookie wrong or too old: HELLO again");
}

/* A worker of a release before runs speaks version 1, and would take the run's number in WELCOME for an endpoint. What
 * one of a later revision means by the bytes of its JOIN is not known here. */
static bool
join_revision(struct pbox_registrar *r, struct registrar_join *q)
{
	if (q->m.revision == PBOX_REVISION)
		return true;
	if (q->m.revision < PBOX_REVISION) {
		log_version(r, &q->f->peer,
			"has the library of an earlier release: install this box's there");
		return registrar_refuse(r, q->f, PBOX_E_VERSION, PBOX_VERSION_WIRE,
			"this library is of an earlier release than the box: install the box's there");
	}
	log_version(r, &q->f->peer, "has the library of a later release: install that here");
	return registrar_refuse(r, q->f, PBOX_E_VERSION, PBOX_VERSION_WIRE,
		"this library is of a later release than the box: install the box's there, or the library's at the box");
}

static bool
join_known(struct pbox_registrar *r, struct registrar_join *q)
{
	q->job = registrar_find_job(r, q->m.job);
	/* a job that runs goes on as it began, whatever its section says by now */
	q->conf = q->job != NULL && q->job->state != PBOX_JOB_CLOSING
			  ? q->job->conf
			  : pbox_registrar_section(r, q->m.job);
	if (!pbox_utf8_good(q->m.job))
		return registrar_refuse(
			r, q->f, PBOX_E_NO_JOB, 0, "the job's name is not UTF-8 (R3.4)");
	return (q->conf != NULL && q->m.job[0] != '\0' && strcmp(q->m.job, "*") != 0) ||
	       registrar_refuse(
		       r, q->f, PBOX_E_NO_JOB, 0, "no job '%s' is configured here", q->m.job);
}

static bool
join_proves(struct pbox_registrar *r, struct registrar_join *q)
{
	if (!registrar_proves(r, q))
		return false;
	r->request.prover = q->conf->secret_len > 0 ? q->conf : NULL;
	r->request.nonce = q->m.nonce;
	return true;
}

static bool
join_not_stopping(struct pbox_registrar *r, struct registrar_join *q)
{
	return !r->stopping || registrar_refuse(r, q->f, PBOX_E_SHUTDOWN, 0, "the box is stopping");
}

static bool
join_supported(struct pbox_registrar *r, struct registrar_join *q)
{
	struct pbox_error later;

	return !registrar_unsupported_join(r, &q->m, &later) ||
	       registrar_unsupported(r, q->f, later.text);
}

/* R4.4: what a JOIN has to pass, in this order. */
static const struct registrar_check join_check[] = {
	{join_cookie, PBOX_E_COOKIE},           /* R4.2 */
	{join_revision, PBOX_E_VERSION},        /* R4.10 */
	{join_known, PBOX_E_NO_JOB},            /* R3.4 */
	{join_proves, PBOX_E_SECRET},           /* R4.3 */
	{join_not_stopping, PBOX_E_SHUTDOWN},   /* R4.4, SHUTDOWN */
	{registrar_not_kicked, PBOX_E_NO_JOB},  /* by an operator */
	{join_supported, PBOX_E_UNSUPPORTED},   /* R4.10 */
	{registrar_boxes_join, 0},              /* R16.2, R16.3 */
	{registrar_asks, 0},                    /* its fields: registrar_check.c */
	{join_is_new, 0},                       /* R4.6 */
	{registrar_rack_join, 0},               /* R18.2, R18.3 */
	{registrar_run_join, 0},                /* R12.3 to R12.5, and the other workers */
	{join_not_drained, PBOX_E_FULL},        /* by an operator */
	{join_not_ending, PBOX_E_WORKER_TAKEN}, /* R4.6c */
	{join_begins, 0},                       /* room: FULL, NO_MEMORY */
	{join_number, 0},                       /* R4.6, R4.6a, R4.6b */
	{join_remembered, PBOX_E_WORKER_TAKEN}, /* R4.6 */
	{NULL, 0},
};

void
registrar_on_join(struct pbox_registrar *r, const struct pbox_frame *f)
{
	struct registrar_join q = {.f = f};

	if (f->hdr.length < PBOX_JOIN_LEN ||
		pbox_join_decode(f->payload, f->hdr.length, &q.m) < 0) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	if (registrar_checks(r, &q, join_check))
		admit(r, &q);
	r->request.prover = NULL;
}

const struct registrar_part registrar_join_part = {
	.name = "sessions",
	.mails = 1u << PBOX_MAIL_OPEN_JOB,
	.mail = job_opened,
};
