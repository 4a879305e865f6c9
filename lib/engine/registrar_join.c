/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

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
#define VERSION_TOLD_NS UINT64_C(10000000000)

/* What it has instead of this box's release, in words; and how many of them were left out. */
static void
tell_version(struct pbox_registrar *r, const struct pbox_peer *peer, const char *has)
{
	char ip[INET_ADDRSTRLEN], more[48] = "";

	r->versions_untold++;
	if (r->version_told_ns != 0 && r->now_ns - r->version_told_ns < VERSION_TOLD_NS)
		return;
	inet_ntop(AF_INET, &peer->ip, ip, sizeof(ip));
	if (r->versions_untold > 1)
		snprintf(more, sizeof(more), " (and %u more before it)", r->versions_untold - 1);
	registrar_event(r, PBOX_LOG_WARN, "%s:%u %s%s", ip, peer->udp, has, more);
	r->version_told_ns = r->now_ns;
	r->versions_untold = 0;
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
	tell_version(r, &to->peer, text);
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
	a.cookie =
		pbox_cookie(r->cookie_key, engine_from(&f->peer), r->now_ns / PBOX_COOKIE_TICK_NS);
	registrar_reply(r, f, PBOX_RETRY, pbox_retry_encode(r->scratch, sizeof(r->scratch), &a));
}

/* Its part of every shard; false after answering why not. */
static bool
create_on_shards(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job,
	const struct registrar_rounds *rounds)
{
	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		unsigned node = registrar_node_of_shard(r, i);

		job->shard[i] = shard_job_create(job, (uint16_t)i, r->endpoints_per_shard,
			rounds->records, rounds->records, rounds->folded, rounds->acc_bytes,
			r->conf.arena[node]);
		if (job->shard[i] != NULL)
			continue;
		/* no answer: it asks again, and memory of ended jobs is cleared by then */
		if (pbox_arena_uncleared(r->conf.arena[node]) == 0 &&
			!registrar_room_comes(r, f, job->conf, rounds->arena))
			registrar_no_memory_on(r, f, node, job->workers);
		while (i-- > 0)
			shard_job_free(job->shard[i]);
		return false;
	}
	job->round_bytes = rounds->arena;
	job->heap += rounds->heap;
	return true;
}

/* A job with its memory on every shard; NULL after answering why not. */
static struct pbox_job *
create_job(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_join *m,
	const struct pbox_job_conf *conf)
{
	struct registrar_rounds rounds = {0};
	struct pbox_job *job = NULL;
	uint16_t id = 0;

	if (!registrar_room(r, f, conf, m, &rounds))
		return NULL;
	while (r->job[id] != NULL)
		id++;
	if (r->conf.ops->room == NULL || r->conf.ops->room(r->conf.ctx))
		job = pbox_job_create(id, m->job, conf, m->workers);
	if (job == NULL) {
		registrar_refuse(r, f, PBOX_E_NO_MEMORY, 0, "out of memory for the job");
		return NULL;
	}
	job->begun_ns = r->now_ns;
	job->begun_listened_ns = r->listened_ns;
	r->conf.ops->random(r->conf.ctx, job->challenge, sizeof(job->challenge));
	job->heap_most = registrar_heap_most(r);
	if (conf->auth) {
		job->auth = pbox_auth_job_create(
			NULL, conf->secret, conf->secret_len, r->conf.incarnation, id);
		if (job->auth == NULL) {
			registrar_refuse(r, f, PBOX_E_NO_MEMORY, 0,
				"no memory for the keys of the job, or no AES in this CPU");
			pbox_job_free(job);
			return NULL;
		}
	}
	job->window = rounds.window;
	job->policy = conf->policy == PBOX_POLICY_ANY ? m->policy : conf->policy;
	job->hold_share = rounds.records;
	if (!create_on_shards(r, f, job, &rounds)) {
		pbox_job_free(job);
		return NULL;
	}
	r->job[id] = job;
	registrar_run_begin(r, job, m);
	pbox_stat_add(&r->stats[PBOX_RS_JOBS], 1);
	registrar_event(r, PBOX_LOG_INFO,
		"job '%s' begins: run %llu, %u workers, policy %s, window %u frames per endpoint",
		job->name, (unsigned long long)job->run.number, job->workers,
		pbox_policy_name(job->policy), job->window);
	registrar_post(r, job, PBOX_MAIL_OPEN_JOB);
	return job;
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
			 (job->conf->secret_len == 0 ? PBOX_WELCOME_INSECURE : 0),
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

	for (unsigned e = 0; e < r->conf.n_endpoints; e++)
		m.endpoint[e] = r->conf.endpoint[e].addr;
	len = pbox_welcome_encode(r->scratch, sizeof(r->scratch), &m);
	PBOX_ASSERT(len > 0);
	pbox_proof(r->scratch + PBOX_WELCOME_PROOF_AT, job->conf->secret, job->conf->secret_len,
		PBOX_WELCOME_PROOF_PREFIX, r->scratch, len, PBOX_WELCOME_PROOF_AT);
	mb->welcome_owed = false;
	registrar_answer(r, &to, PBOX_WELCOME, r->scratch, len);
}

void
registrar_on_job_open(struct pbox_registrar *r, struct pbox_job *job)
{
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
				 (job->workers * r->endpoints_per_shard);

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
 * for them, lest it gets one of theirs. */
static bool
keeps_numbers(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_job *job)
{
	uint64_t listened_ns = r->listened_ns - job->begun_listened_ns;

	if (!job->numbered || listened_ns >= KEEP_NUMBERS)
		return false;
	registrar_refuse(r, f, PBOX_E_WORKER_TAKEN, KEEP_AGAIN_MS,
		"job '%s' has begun %u ms ago with a worker that has a number: for %u ms the others are kept for workers that had one before a restart of the box",
		job->name, (unsigned)(listened_ns / NS_PER_MS),
		(unsigned)(KEEP_NUMBERS / NS_PER_MS));
	return true;
}

/* The worker number for a JOIN, or -1 after answering why not. */
static int
choose_worker(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_join *m,
	struct pbox_job *job)
{
	unsigned chosen = m->worker;

	/* a repeated JOIN keeps its number, also when it asked for any */
	for (unsigned w = 0; w < job->workers; w++)
		if (registrar_has_session(job, w) && job->member[w].nonce == m->nonce &&
			(m->worker == PBOX_NO_WORKER || m->worker == w))
			return (int)w;
	if (job->map_mtu != 0 && m->mtu < job->map_mtu) {
		registrar_event(r, PBOX_LOG_WARN,
			"job '%s': a worker (%s) with an MTU of %u wants to join, and the tables are mapped for %u",
			job->name, m->host, m->mtu, job->map_mtu);
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, job->map_mtu,
			"the tables of job '%s' are mapped for an MTU of %u, and this worker (%s) has %u: raise it there, or end the job",
			job->name, job->map_mtu, m->host, m->mtu);
		return -1;
	}
	if (m->worker == PBOX_NO_WORKER) {
		chosen = any_worker(r, job);
		if (!registrar_has_session(job, chosen) && keeps_numbers(r, f, job))
			return -1;
	}
	if (registrar_has_session(job, chosen) &&
		!registrar_claim(r, job, chosen, f, m->host, m->worker == PBOX_NO_WORKER))
		return -1;
	return (int)chosen;
}

static void
admit(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_join *m,
	struct pbox_job *job, unsigned w)
{
	struct pbox_member *mb = &job->member[w];
	bool repeated = registrar_has_session(job, w) && mb->nonce == m->nonce;
	uint64_t lease_ns = job->conf->bounds.lease_ns;
	uint32_t lease_ms = lease_ns != 0 ? (uint32_t)(lease_ns / NS_PER_MS) : r->conf.lease_ms;
	uint64_t token = 0;

	if (!repeated && !registrar_nonce_room(r, f, job))
		return;
	if (!repeated) {
		if (registrar_has_session(job, w))
			registrar_end_session(r, job, w);
		if (mb->state == PBOX_MEMBER_LEFT)
			registrar_forgive_tables(job);
		job->numbered |= m->worker != PBOX_NO_WORKER;
		while (token == 0)
			r->conf.ops->random(r->conf.ctx, &token, sizeof(token));
		*mb = (struct pbox_member){
			.removed = mb->removed,
			.mapped_before =
				mb->mapped > mb->mapped_before ? mb->mapped : mb->mapped_before,
			.nonce = m->nonce,
			.state = PBOX_MEMBER_JOINED,
			.lease_ms =
				m->lease_ms == 0 || m->lease_ms > lease_ms ? lease_ms : m->lease_ms,
			.mtu = m->mtu,
			.window = window_of(r, job, m->window),
		};
		snprintf(mb->host, sizeof(mb->host), "%s", m->host);
		registrar_lease_begin(r, mb);
		for (unsigned i = 0; i < r->conf.n_shards; i++)
			atomic_store_explicit(
				&job->shard[i]->member[w].last_seen, 0, memory_order_relaxed);
		fresh_begin(&job->fresh[w], &f->peer, r->now_ns);
		if (job->auth != NULL)
			engine_auth_begin(job, w, token, r->conf.incarnation);
		atomic_store_explicit(&job->token[w], token, memory_order_release);
		pbox_stat_add(&r->stats[PBOX_RS_WORKERS], 1);
		registrar_event(r, PBOX_LOG_INFO, "job '%s': worker %u (%s) joined, %u of %u",
			job->name, w, mb->host, pbox_job_joined(job), job->workers);
	}
	/* a copy of the first one comes from no other address, as its cookie says, and keeps no lease */
	if (!repeated || fresh_address(&mb->peer) != fresh_address(&f->peer))
		mb->peer = f->peer;
	atomic_store_explicit(&job->fresh[w].home, fresh_address(&f->peer), memory_order_relaxed);
	if (!repeated)
		mb->last_seen = r->now_ns;
	mb->join_request = f->hdr.chunk;
	mb->welcome_owed = true;
	if (job->state == PBOX_JOB_OPEN)
		send_welcome(r, job, w, f->hdr.ts);
}

/* The copy of a JOIN whose session has ended opens no other, and ends no run. A worker that is back asks with a newer
 * cookie, or gets one now. */
static bool
registrar_join_is_copy(struct pbox_registrar *r, const struct pbox_frame *f,
	const struct pbox_join *m, const struct pbox_job *job)
{
	enum registrar_nonce nonce = registrar_nonce_look(r, m->job, m->nonce, m->cookie);
	bool answered;

	if (is_live(job, m->nonce) || nonce == REGISTRAR_NONCE_NEW)
		return false;
	answered = job != NULL && job->state != PBOX_JOB_CLOSING && !registrar_agrees(r, f, m, job);
	if (!answered && nonce == REGISTRAR_NONCE_LEFT)
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, 0,
			"the session of this JOIN has left: join with a new nonce");
	else if (!answered)
		registrar_refuse(
			r, f, PBOX_E_COOKIE, 0, "the session of this JOIN has ended: HELLO again");
	r->refusal.code = 0; /* nobody was refused */
	return true;
}

/* The job is there, or may begin; false after answering why not. */
static bool
open_to(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_join *m,
	struct pbox_job *job)
{
	if (registrar_join_is_copy(r, f, m, job) || !registrar_run_join(r, f, m, job))
		return false;
	if (job == NULL && r->draining) {
		registrar_refuse(
			r, f, PBOX_E_FULL, 0, "the box takes no new jobs: its operator drains it");
		return false;
	}
	if (job != NULL && job->state == PBOX_JOB_CLOSING) {
		registrar_refuse(r, f, PBOX_E_WORKER_TAKEN, ENDING_AGAIN_MS,
			"job '%s' is ending: its memory is being released", m->job);
		return false;
	}
	return true;
}

/* A JOIN that knows the job's secret. */
static void
join_proven(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_join *m,
	const struct pbox_job_conf *conf, struct pbox_job *job)
{
	struct pbox_error later;
	int w;

	if (r->stopping) {
		registrar_refuse(r, f, PBOX_E_SHUTDOWN, 0, "the box is stopping");
		return;
	}
	if (registrar_was_kicked(r, f, m->job, m->nonce))
		return;
	if (registrar_unsupported_join(m, &later)) {
		registrar_unsupported(r, f, later.text);
		return;
	}
	if (!registrar_possible(r, f, m, conf) || !open_to(r, f, m, job))
		return;
	if (job == NULL)
		job = create_job(r, f, m, conf);
	if (job == NULL)
		return;
	w = choose_worker(r, f, m, job);
	if (w >= 0)
		admit(r, f, m, job, (unsigned)w);
}

/* A worker of a release before runs: it speaks version 1, and cannot read this WELCOME. */
static void
refuse_revision(struct pbox_registrar *r, const struct pbox_frame *f)
{
	tell_version(
		r, &f->peer, "has the library of an earlier release: install this box's there");
	registrar_refuse(r, f, PBOX_E_VERSION, PBOX_VERSION_WIRE,
		"this library is of an earlier release than the box: install the box's there");
}

void
registrar_on_join(struct pbox_registrar *r, const struct pbox_frame *f)
{
	const struct pbox_job_conf *conf;
	struct pbox_join m;
	struct pbox_job *job;

	if (f->hdr.length < PBOX_JOIN_LEN || pbox_join_decode(f->payload, f->hdr.length, &m) < 0) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	if (!pbox_cookie_good(r->cookie_key, engine_from(&f->peer), r->now_ns / PBOX_COOKIE_TICK_NS,
		    m.cookie)) {
		count_control(r, PBOX_RS_DROP_COOKIE);
		registrar_refuse(r, f, PBOX_E_COOKIE, 0, "cookie wrong or too old: HELLO again");
		return;
	}
	count_control(r, PBOX_RS_RX_JOIN);
	if (m.revision == 0) { /* it would take the run's number for an endpoint */
		refuse_revision(r, f);
		return;
	}
	job = registrar_find_job(r, m.job);
	/* a job that runs goes on as it began, whatever its section says by now */
	conf = job != NULL && job->state != PBOX_JOB_CLOSING ? job->conf
							     : pbox_registrar_section(r, m.job);
	if (!pbox_utf8_good(m.job)) {
		registrar_refuse(r, f, PBOX_E_NO_JOB, 0, "the job's name is not UTF-8 (R3.4)");
		return;
	}
	if (conf == NULL || m.job[0] == '\0' || strcmp(m.job, "*") == 0) {
		registrar_refuse(r, f, PBOX_E_NO_JOB, 0, "no job '%s' is configured here", m.job);
		return;
	}
	if (!registrar_proves(r, f, &m, conf))
		return;
	r->prover = conf->secret_len > 0 ? conf : NULL;
	r->join_nonce = m.nonce;
	join_proven(r, f, &m, conf, job);
	r->prover = NULL;
}
