/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pbox_client.h>

#include "box_impl.h"

/* What tests make a box do, and what they read of it. */

void
box_restart(struct box *b)
{
	box_restart_chunk(b, 0);
}

void
box_restart_chunk(struct box *b, unsigned chunk)
{
	pthread_mutex_lock(&b->lock);
	b->conf.deaf = false;
	if (chunk != 0)
		b->conf.chunk = chunk;
	engine_restart(b);
	pthread_mutex_unlock(&b->lock);
}

void
box_restart_after(struct box *b, unsigned restores, unsigned declares)
{
	pthread_mutex_lock(&b->lock);
	b->after_restores = restores;
	b->after_declares = declares;
	pthread_mutex_unlock(&b->lock);
}

/** To a worker that has a session. */
static void
say_to(struct box *b, unsigned worker, unsigned endpoint, struct pbox_hdr h)
{
	const struct box_member *m = &b->member[worker];

	h.token = m->token;
	h.job = m->job;
	h.worker = (uint16_t)worker;
	if (h.incarnation == 0)
		h.incarnation = b->incarnation;
	if (m->live)
		box_say(b, endpoint, &m->addr, &h, NULL);
}

void
box_forge(struct box *b)
{
	pthread_mutex_lock(&b->lock);
	for (unsigned i = 0; i < b->conf.workers; i++)
		say_to(b, i, 0,
			(struct pbox_hdr){.type = PBOX_ERROR,
				.incarnation = b->incarnation + 5,
				.aux = PBOX_E_SESSION});
	pthread_mutex_unlock(&b->lock);
}

void
box_attack(struct box *b)
{
	static const struct pbox_hdr forged[] = {
		{.type = PBOX_LEFT, .aux = 1},
		{.type = PBOX_ERROR, .aux = PBOX_E_SHUTDOWN},
		{.type = PBOX_ERROR, .aux = PBOX_E_NO_LR, .round = 1},
		{.type = PBOX_PING},
		{.type = PBOX_RESULT, .round = 1, .flags = PBOX_F_ZERO, .format = PBOX_FMT_FP32},
		{.type = PBOX_RESULT,
			.round = 2,
			.flags = PBOX_F_ZERO | PBOX_F_AUTH, /* what is there is its tag */
			.format = PBOX_FMT_FP32},
		{.type = PBOX_PUSH_OK, .round = 1},
	};

	pthread_mutex_lock(&b->lock);
	for (unsigned i = 0; i < b->conf.workers; i++)
		for (unsigned k = 0; k < sizeof(forged) / sizeof(forged[0]); k++)
			say_to(b, i, forged[k].type >= PBOX_FIRST_DATA_TYPE, forged[k]);
	pthread_mutex_unlock(&b->lock);
}

void
box_refuse(struct box *b, unsigned code, unsigned joins, const char *secret)
{
	pthread_mutex_lock(&b->lock);
	b->prover = secret;
	b->refusal = code;
	b->refusals = joins;
	pthread_mutex_unlock(&b->lock);
}

void
box_end_sessions(struct box *b)
{
	pthread_mutex_lock(&b->lock);
	engine_leases_end(b, false);
	pthread_mutex_unlock(&b->lock);
}

void
box_silent_leases(struct box *b)
{
	pthread_mutex_lock(&b->lock);
	engine_leases_end(b, true);
	pthread_mutex_unlock(&b->lock);
}

void
box_run_begins(struct box *b)
{
	struct pbox_client_conf conf;
	struct pbox_client *c = NULL;

	box_end_sessions(b);
	pbox_client_conf_init(&conf);
	conf.box = box_address(b);
	conf.job = b->conf.job;
	conf.secret = b->conf.secret;
	conf.workers = b->conf.workers;
	conf.worker = 0;
	conf.host = conf.run = BOX_ANOTHER;
	if (pbox_client_open(&c, &conf, NULL) == 0)
		pbox_client_close(c);
}

void
box_running(struct box *b, bool on)
{
	pthread_mutex_lock(&b->lock);
	b->running = on;
	pthread_mutex_unlock(&b->lock);
}

void
box_misnumber(struct box *b)
{
	pthread_mutex_lock(&b->lock);
	b->misnumber = true;
	pthread_mutex_unlock(&b->lock);
}

struct box_said
box_said(struct box *b)
{
	struct box_said said;

	pthread_mutex_lock(&b->lock);
	said = b->said;
	pthread_mutex_unlock(&b->lock);
	return said;
}

void
box_silence(struct box *b, bool on)
{
	pthread_mutex_lock(&b->lock);
	b->conf.silent = on;
	pthread_mutex_unlock(&b->lock);
}

void
box_no_data(struct box *b, bool on)
{
	pthread_mutex_lock(&b->lock);
	b->conf.no_data = on;
	pthread_mutex_unlock(&b->lock);
}

void
box_ping(struct box *b, unsigned worker, unsigned endpoint, uint64_t nonce)
{
	struct box_member *m = &b->member[worker];
	uint8_t frame[PBOX_HDR_LEN + PBOX_TAG_LEN];
	struct pbox_hdr h = {
		.type = PBOX_PING, .round = (uint32_t)nonce, .base = (uint32_t)(nonce >> 32)};

	pthread_mutex_lock(&b->lock);
	if (b->auth == NULL) {
		say_to(b, worker, endpoint, h);
	} else if (m->live) {
		h.token = m->token;
		h.job = m->job;
		h.worker = (uint16_t)worker;
		h.incarnation = b->incarnation;
		h.flags = PBOX_F_AUTH;
		box_put(b, endpoint, &m->addr, frame,
			pbox_auth_seal(m->keys.box, b->auth, frame, &h));
	}
	pthread_mutex_unlock(&b->lock);
}

void
box_shutdown(struct box *b)
{
	pthread_mutex_lock(&b->lock);
	pbox_registrar_shutdown(b->registrar, b->now);
	b->conf.deaf = true;
	pthread_mutex_unlock(&b->lock);
}

void
engine_counters(const struct box *b, struct box_counts *c)
{
	c->malformed += b->rs[PBOX_RS_DROP_MALFORMED];
	for (unsigned i = 0; i < b->conf.endpoints; i++) {
		c->rounds += b->ss[i][PBOX_SS_ROUNDS];
		c->malformed += b->ss[i][PBOX_SS_DROP_FORMAT] +
				b->ss[i][PBOX_SS_DROP_CHUNK_UNKNOWN] +
				b->ss[i][PBOX_SS_DROP_FRAG_RANGE];
	}
}

struct box_counts
box_counts(struct box *b)
{
	struct box_counts c;

	pthread_mutex_lock(&b->lock);
	c = b->counts;
	engine_counters(b, &c);
	pthread_mutex_unlock(&b->lock);
	return c;
}
