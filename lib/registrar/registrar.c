/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The control thread's entry points of the protocol: frames by type, mails of shards, leases at each tick, the end. */

#include <stdlib.h>
#include <string.h>

#include "registrar_impl.h"

const struct pbox_stat_def pbox_registrar_stat_defs[PBOX_RS_STATS] = {
	PBOX_REGISTRAR_VALUES(PBOX_STAT_DEF)};

void
pbox_engine_places(const struct pbox_engine_endpoint *endpoint, unsigned n, struct pbox_place *out)
{
	for (unsigned e = 0; e < n; e++) {
		unsigned port = 0;

		while (memcmp(endpoint[port].addr.ipv4, endpoint[e].addr.ipv4, 4) != 0)
			port++;
		out[e] = (struct pbox_place){
			.node = endpoint[e].node, .port = (uint8_t)port, .core = endpoint[e].shard};
	}
}

struct pbox_registrar *
pbox_registrar_create(const struct pbox_registrar_conf *conf)
{
	struct pbox_registrar *r = calloc(1, sizeof(*r));
	unsigned per_shard[PBOX_MAX_SHARDS] = {0};

	if (r == NULL)
		return NULL;
	PBOX_ASSERT(conf->n_endpoints > 0 && conf->n_endpoints <= PBOX_MAX_ENDPOINTS);
	PBOX_ASSERT(conf->n_shards > 0 && conf->n_shards <= PBOX_MAX_SHARDS);
	r->conf = *conf;
	r->stats = conf->stats;
	r->runs = conf->first_run;
	r->job = calloc(conf->max_jobs, sizeof(*r->job));
	r->run = calloc(RUN_RECORDS + conf->max_jobs, sizeof(*r->run));
	if (r->job == NULL || r->run == NULL || !registrar_parts_create(r, registrar_parts)) {
		free(r->job);
		free(r->run);
		free(r);
		return NULL;
	}
	for (unsigned e = 0; e < conf->n_endpoints; e++) {
		unsigned n = ++per_shard[conf->endpoint[e].shard];

		if (n > r->endpoints_per_shard)
			r->endpoints_per_shard = n;
	}
	pbox_engine_places(conf->endpoint, conf->n_endpoints, r->place);
	if (conf->cookie_key != NULL)
		memcpy(r->cookie_key, conf->cookie_key, sizeof(r->cookie_key));
	else
		conf->ops->random(conf->ctx, r->cookie_key, sizeof(r->cookie_key));
	return r;
}

void
pbox_registrar_destroy(struct pbox_registrar *r)
{
	if (r == NULL)
		return;
	for (unsigned i = 0; i < r->conf.max_jobs; i++)
		if (r->job[i] != NULL)
			registrar_free_job(r, r->job[i]);
	registrar_parts_destroy(r);
	explicit_bzero(r->cookie_key, sizeof(r->cookie_key));
	free(r->job);
	free(r->run);
	free(r);
}

/* The job of an established session, or NULL after answering ERROR SESSION (R4.8). */
static struct pbox_job *
session(struct pbox_registrar *r, const struct pbox_frame *f)
{
	struct pbox_job *job = f->hdr.job < r->conf.max_jobs ? r->job[f->hdr.job] : NULL;
	enum pbox_registrar_stat drop = 0;
	uint64_t token = 0;

	if (job != NULL && f->hdr.worker < job->workers)
		token = registrar_token(job, f->hdr.worker);
	if (token == 0)
		drop = PBOX_RS_DROP_SESSION_UNKNOWN;
	else if (token != f->hdr.token)
		drop = PBOX_RS_DROP_SESSION_TOKEN;
	else if (f->hdr.incarnation != r->conf.incarnation)
		drop = PBOX_RS_DROP_SESSION_INCARNATION;
	if (drop != 0) {
		struct pbox_send out = {
			.hdr = pbox_engine_error(f, r->conf.incarnation, PBOX_E_SESSION),
			.peer = &f->peer,
		};

		count_control(r, drop);
		if (pbox_error_rate_take(&r->error_rate, f->peer.ip, r->now_ns))
			r->conf.ops->send(r->conf.ctx, &out);
		return NULL;
	}
	if (!pbox_job_auth_good(job, f)) {
		count_control(r, PBOX_RS_DROP_AUTH);
		return NULL;
	}
	return job;
}

void
pbox_registrar_rx(struct pbox_registrar *r, const struct pbox_frame *f, uint64_t now_ns)
{
	unsigned type = f->hdr.type;
	registrar_handler on = registrar_parts_handler(r, type);
	struct pbox_job *job;

	PBOX_ASSERT(!r->inside);
	r->inside = true;
	r->now_ns = now_ns;
	r->request = (struct request){.answer_at = f->peer};
	count_control(r, PBOX_RS_RX_FRAMES);
	if (type == PBOX_HELLO) {
		registrar_on_hello(r, f);
	} else if (type == PBOX_JOIN) {
		registrar_on_join(r, f);
		registrar_gone_join(r, f);
		registrar_refused_join(r, f);
	} else if (on == NULL) {
		count_control(r, PBOX_RS_DROP_TYPE);
	} else {
		job = session(r, f);
		if (job != NULL && registrar_address(r, job, f, &r->request.answer_at))
			on(r, f, job);
	}
	r->inside = false;
}

void
pbox_registrar_version(struct pbox_registrar *r, const struct pbox_frame *f, unsigned version)
{
	struct registrar_addressee to;

	/* it is counted: as a frame of another version */
	r->request = (struct request){.answer_at = f->peer, .uncounted = true};
	to = registrar_sender(r, f);
	to.type = PBOX_HELLO; /* what it says besides is of another version */
	to.token = 0;
	to.tagged = false;
	registrar_other_version(r, &to, version, version);
}

void
pbox_registrar_mail(struct pbox_registrar *r, const struct pbox_mail *m, uint64_t now_ns)
{
	struct pbox_shard_job *j = m->job;
	struct pbox_job *job = pbox_shard_job_of(j);
	struct pbox_shard_inbox *in = pbox_shard_inbox(j);
	bool again = (in->mail_again >> m->kind & 1) != 0 && job->state == PBOX_JOB_OPEN;

	PBOX_ASSERT(m->kind < PBOX_MAIL_KINDS && in->mails[m->kind] > 0);
	/* a job lives until all shards have let go of it (a host may bring this at once, from within a call) */
	PBOX_ASSERT(job->id < r->conf.max_jobs && r->job[job->id] == job);
	r->now_ns = now_ns;
	in->mails[m->kind]--;
	if (!registrar_parts_mail(r, m) && again)
		registrar_mail_latest(r, j, m->kind);
}

void
pbox_registrar_tick(struct pbox_registrar *r, uint64_t now_ns)
{
	pbox_registrar_work(r, now_ns);
	PBOX_ASSERT(!r->inside);
	r->inside = true;
	registrar_parts_tick(r);
	r->inside = false;
}

void
pbox_registrar_shutdown(struct pbox_registrar *r, uint64_t now_ns)
{
	r->now_ns = now_ns;
	r->stopping = true;
	for (unsigned i = 0; i < r->conf.max_jobs; i++) {
		struct pbox_job *job = r->job[i];

		for (unsigned w = 0; job != NULL && w < job->workers; w++) {
			struct pbox_send out = {.hdr = {.type = PBOX_LEFT}};

			pbox_shutdown_put(&out.hdr);
			if (registrar_has_session(job, w))
				registrar_send(r, job, w, &out);
		}
	}
}

void
pbox_registrar_close(struct pbox_registrar *r, uint64_t now_ns)
{
	r->now_ns = now_ns;
	r->stopping = true;
	for (unsigned i = 0; i < r->conf.max_jobs; i++)
		if (r->job[i] != NULL)
			registrar_close_job(r, r->job[i]);
}
