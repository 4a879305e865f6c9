/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <sodium.h>

#include "worker_impl.h"

/* The interface to the host: create and destroy, datagrams and time in, what is due out. */

#define LONGEST_SLEEP NS_PER_S

/** R12.1 */
static void
run_identity(uint8_t *run, const char *text)
{
	static const char prefix[] = "PBOX-RUN-1";
	uint8_t hash[crypto_hash_sha256_BYTES];
	crypto_hash_sha256_state s;

	crypto_hash_sha256_init(&s);
	crypto_hash_sha256_update(&s, (const uint8_t *)prefix, strlen(prefix));
	crypto_hash_sha256_update(&s, (const uint8_t *)text, strlen(text));
	crypto_hash_sha256_final(&s, hash);
	memcpy(run, hash, PBOX_RUN_LEN);
}

/* ---- create, destroy --------------------------------------------------------------------- */

static bool
worker_copy_conf(struct pbox_worker *w, const struct pbox_client_conf *conf)
{
	w->conf = *conf;
	if (w->conf.min_rto_us == 0)
		w->conf.min_rto_us = 5000;
	w->has_run = conf->run != NULL && conf->run[0] != 0;
	if (w->has_run)
		run_identity(w->run, conf->run);
	w->job = strdup(conf->job);
	w->secret = strdup(conf->secret != NULL ? conf->secret : "");
	w->host = strdup(conf->host != NULL ? conf->host : "");
	return w->job != NULL && w->secret != NULL && w->host != NULL;
}

static const struct worker_part *const all_parts[] = {
	&boxes_part, &homes_part, &carry_part, &plan_part, &norm_part, NULL};

struct pbox_worker *
pbox_worker_create(const struct pbox_client_conf *conf, const struct sockaddr_in *box,
	struct pbox_worker_ops *port)
{
	struct pbox_worker *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return NULL;
	w->finished_tail = &w->finished;
	w->answered_tail = &w->answered;
	w->lane[0] = lane_new(w, 0, port);
	w->lanes = 1;
	w->nonce = port->random(port->ctx);
	w->next_id = (uint32_t)port->random(port->ctx) | 1;
	w->named[0] = *box;
	part_begin(w, all_parts);
	if (w->lane[0] == NULL || boxes_session(w, box) == NULL || !worker_copy_conf(w, conf)) {
		pbox_worker_destroy(w);
		return NULL;
	}
	return w;
}

void
pbox_worker_destroy(struct pbox_worker *w)
{
	declare_free(w); /* of a session */
	if (w->part != NULL)
		part_end(w);
	for (unsigned i = 0; i < w->boxes; i++) {
		session_close(w->box[i]);
		free(w->box[i]);
	}
	for (uint32_t i = 0; i < w->tables; i++)
		table_free(w->table[i]);
	free(w->table);
	free(w->refs);
	if (w->secret != NULL)
		sodium_memzero(w->secret, strlen(w->secret));
	free(w->secret);
	free(w->job);
	free(w->host);
	for (unsigned i = 0; i < w->lanes; i++)
		free(w->lane[i]);
	free(w);
}

void
pbox_worker_boxes(struct pbox_worker *w, const struct sockaddr_in *box, unsigned n)
{
	assert(n <= WORKER_BOXES);
	memcpy(w->named, box, n * sizeof(*box));
	w->n_named = n;
}

void
pbox_worker_open(struct pbox_worker *w, uint64_t now, uint64_t deadline)
{
	lane_gather_all(w, now);
	for (unsigned i = 0; i < w->boxes; i++)
		session_open(w->box[i], deadline);
}

void
pbox_worker_join_asked(struct pbox_worker *w, bool asked_alone)
{
	w->asked_alone = asked_alone;
}

void
pbox_worker_join_ask(struct pbox_worker *w, uint64_t now)
{
	w->asked = true;
	pbox_worker_tick(w, now, now);
	w->asked = false;
}

enum pbox_worker_state
pbox_worker_state(const struct pbox_worker *w)
{
	if (w->failed)
		return PBOX_WORKER_FAILED;
	if (w->shut)
		return PBOX_WORKER_SHUT;
	return w->opened ? PBOX_WORKER_OPEN : PBOX_WORKER_OPENING;
}

const struct pbox_client_error *
pbox_worker_error(const struct pbox_worker *w)
{
	return &w->fatal;
}

/* Nothing is sent any more: all operations end here, also those that were sent in part. */
static void
end_all(struct pbox_worker *w, int code, const char *text)
{
	declare_fail(w, code, text);
	lane_gather_all(w, w->now);
	for (unsigned i = 0; i < w->boxes; i++)
		request_fail_all(w->box[i]);
	part_fail(w);
	while (w->ops != NULL) {
		struct pbox_worker_op *op = w->ops;

		queue_fail(op, code, text);
		queue_finish(w, op);
		queue_collect(w);
	}
}

static void
end_if_failed(struct pbox_worker *w)
{
	if (w->failed && !w->ended)
		end_all(w, w->fatal.code, w->fatal.text);
	w->ended = w->failed;
	lane_settle_all(w);
}

void
pbox_worker_shut(struct pbox_worker *w)
{
	w->shut = true;
	for (unsigned i = 0; i < w->boxes; i++)
		w->box[i]->rejoin.reporting = NULL;
	end_all(w, PBOX_C_CLOSED, "the client was closed");
	lane_settle_all(w);
}

/* ---- datagrams and time --------------------------------------------------------------------- */

void
pbox_worker_rx(struct pbox_worker *w, const struct pbox_client_rx *d, unsigned n, uint64_t now)
{
	lane_gather_all(w, now);
	for (unsigned i = 0; i < n; i++) {
		w->lane[0]->link.rx_bytes += d[i].len;
		link_datagram(w->lane[0], session_of(w, &d[i]), &d[i], session_frame);
	}
	if (w->lanes > 1) /* the next to send may be one lane alone */
		lane_flush_all(w);
	end_if_failed(w);
}

void
pbox_worker_lane_rest(struct pbox_worker *w, unsigned lane, uint64_t now)
{
	struct lane *l = w->lane[lane];

	lane_gather_all(w, now);
	for (unsigned i = 0; i < l->rests; i++)
		session_frame(l->rest_of[i], &l->rest[i]);
	l->rests = 0;
	lane_flush_all(w);
	end_if_failed(w);
}

uint64_t
pbox_worker_tick(struct pbox_worker *w, uint64_t now, uint64_t drained)
{
	uint64_t due = now + LONGEST_SLEEP;

	assert(now != 0 && (now >= w->now || w->lanes > 1));
	lane_gather_all(w, now);
	for (unsigned i = 0; i < w->boxes && !w->failed; i++)
		session_tick(w->box[i]);
	part_tick(w, drained);
	w->opened |= boxes_ready(w);
	/* the fragments of a lane may be for endpoints of any other one (mixed): all start before one sends */
	for (unsigned k = 0; k < w->lanes && !w->failed && !w->shut; k++)
		queue_start(w->lane[k], START_BATCH);
	for (unsigned k = 0; k < w->lanes && !w->failed; k++)
		for (unsigned i = 0; i < w->boxes && !w->failed; i++)
			session_after(w->box[i], w->lane[k], drained);
	lane_flush_all(w);
	end_if_failed(w);
	if (w->failed)
		return due;
	if (part_due(w) < due)
		due = part_due(w);
	for (unsigned k = 0; k < w->lanes; k++) {
		if (w->lane[k]->starting != NULL && !w->shut)
			return 0;
		for (unsigned i = 0; i < w->boxes; i++) {
			uint64_t t = session_due(w->box[i], w->lane[k]);

			due = t < due ? t : due;
		}
	}
	return due;
}

/* ---- sessions --------------------------------------------------------------------------------- */

bool
pbox_worker_session(const struct pbox_worker *w, struct pbox_worker_session *out)
{
	const struct session *s = worker_decider(w);

	if (s->phase != SESSION_OPEN || w->failed || rejoin_pauses(s))
		return false;
	*out = (struct pbox_worker_session){.token = s->token,
		.incarnation = s->incarnation,
		.lease_ms = s->lease_ms,
		.job = s->job_number,
		.endpoints = s->endpoints,
		.window = s->granted,
		.mtu = (uint16_t)s->mtu,
		.times = 1 + (uint32_t)w->count.restarts,
		.auth = s->auth != NULL ? s->auth->job : NULL,
		.keys = s->auth != NULL ? &s->auth->keys : NULL};
	return true;
}

const struct sockaddr_in *
pbox_worker_endpoint(const struct pbox_worker *w, unsigned endpoint)
{
	assert(endpoint < worker_decider(w)->endpoints);
	return &worker_decider(w)->ep[endpoint].peer.addr;
}

/* ---- tables ----------------------------------------------------------------------------------- */

void
pbox_worker_table_info(const struct pbox_worker_table *t, struct pbox_worker_table_info *info)
{
	*info = (struct pbox_worker_table_info){.number = t->number,
		.mode = t->mode,
		.op = t->weighs ? PBOX_OP_WEIGHTED_MEAN : t->op,
		.discipline = (uint8_t)t->discipline->number,
		.tensors = t->n,
		.base = t->base_version,
		.resumed = t->resumed,
		.hold = (t->flags & PBOX_DECLARE_HOLD) != 0,
		.map_epoch = t->map_epoch[0],
		.chunks = t->chunks,
		.frag_elements = t->frag_elements};
}

void
pbox_worker_chunk(const struct pbox_worker_table *t, uint32_t i, struct pbox_worker_chunk *chunk)
{
	const struct chunk *k = &t->chunk[i];

	assert(i < t->chunks);
	*chunk = (struct pbox_worker_chunk){.id = k->id,
		.elements = k->elements,
		.tensor = t->piece[t->frag[k->frag].piece].tensor,
		.endpoint = k->endpoint};
}

void
pbox_worker_table_free(struct pbox_worker_table *t)
{
	table_free(t);
}

uint64_t
pbox_worker_tensor(const struct pbox_worker_table *t, unsigned tensor, const char **name)
{
	assert(tensor < t->n);
	*name = t->tensor[tensor].name;
	return t->tensor[tensor].elements;
}

/* ---- operations ------------------------------------------------------------------------------- */

struct pbox_worker_op *
pbox_worker_finished(struct pbox_worker *w)
{
	struct pbox_worker_op *op;

	queue_collect(w);
	op = w->finished;
	w->finished = NULL;
	w->finished_tail = &w->finished;
	return op;
}

struct pbox_worker_op *
pbox_worker_oldest(const struct pbox_worker *w)
{
	return w->ops;
}

/* ---- facts ------------------------------------------------------------------------------------ */

unsigned
pbox_worker_number(const struct pbox_worker *w)
{
	return w->worker;
}

unsigned
pbox_worker_workers(const struct pbox_worker *w)
{
	return w->workers;
}

const char *
pbox_worker_job(const struct pbox_worker *w)
{
	return w->job;
}

const char *
pbox_worker_box(const struct pbox_worker *w)
{
	return worker_decider(w)->name;
}

void
pbox_worker_stats(const struct pbox_worker *w, struct pbox_client_stats *out)
{
	const struct session *first = worker_decider(w);
	struct pbox_client_stats *m = out;
	double window = 0, srtt = 0, rttvar = 0;
	unsigned endpoints = 0;

	for (unsigned b = 0; b < w->boxes; b++)
		endpoints += w->box[b]->endpoints;
	*m = w->count;
	for (unsigned i = 0; i < w->lanes; i++)
		lane_stats(w->lane[i], m);
	m->gso_active = w->lane[0]->link.port->train > 1;
	m->mtu = first->mtu + first->tag;
	m->auth = first->tag > 0;
	m->unproven = first->unproven;
	m->endpoints = endpoints;
	m->window_max = first->window;
	m->min_rtt_ns = 0;
	for (unsigned b = 0; b < w->boxes; b++)
		for (unsigned i = 0; i < w->box[b]->endpoints; i++) {
			const struct window *win = &w->box[b]->ep[i].win;

			window += win->size / endpoints;
			srtt += (double)win->srtt / endpoints;
			rttvar += (double)win->rttvar / endpoints;
			if (m->min_rtt_ns == 0 ||
				(win->rtt_min > 0 && win->rtt_min < m->min_rtt_ns))
				m->min_rtt_ns = win->rtt_min;
		}
	m->window = (uint32_t)window;
	m->srtt_ns = (uint64_t)srtt;
	m->rttvar_ns = (uint64_t)rttvar;
}
