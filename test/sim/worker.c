/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* A model worker: what doc/protocol.md asks of one, and little more. */

void
sim_worker_flush(struct sim *s, struct sim_worker *w)
{
	struct sim_packet *p = w->train;

	w->train = NULL;
	w->in_train = 0;
	if (p != NULL)
		sim_net_send(s, p, true);
}

/* Append to the train that is being made up, or begin the next. */
void
sim_worker_send(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h, const void *payload,
	uint16_t endpoint)
{
	bool tag = w->auth != NULL && h->type != PBOX_HELLO && h->type != PBOX_JOIN;
	uint32_t size = PBOX_HDR_LEN + h->length + (tag ? PBOX_TAG_LEN : 0), at = 0;
	struct pbox_hdr mine = *h;
	struct sim_packet *p;

	if (w->train != NULL && (w->train_to != endpoint || w->in_train == s->sc.train ||
					w->train->len + size > SIM_MTU - 28))
		sim_worker_flush(s, w);
	p = sim_packet_new((w->train != NULL ? w->train->len : 0) + size);
	if (w->train != NULL) {
		at = w->train->len;
		memcpy(p->data, w->train->data, at);
		sim_packet_free(w->train);
	}
	p->ip = w->ip;
	p->udp = w->udp;
	p->endpoint = endpoint;
	if (h->length > 0)
		memcpy(p->data + at + PBOX_HDR_LEN, payload, h->length);
	mine.ts = sim_us(s);
	if (tag) {
		mine.flags |= PBOX_F_AUTH;
		pbox_auth_seal(w->keys.worker, w->auth, p->data + at, &mine);
	} else {
		pbox_frame_seal(p->data + at, &mine);
	}
	w->train = p;
	w->train_to = endpoint;
	w->in_train++;
	sim_trace(s, "%u/%u sends %s chunk %x frag %u round %u flags %x", w->job, w->number,
		pbox_type_name(h->type), h->chunk, h->frag, h->round, h->flags);
	if (endpoint == SIM_CONTROL || w->in_train == s->sc.train)
		sim_worker_flush(s, w);
}

void
sim_worker_wake(struct sim *s, struct sim_worker *w, uint64_t at)
{
	if (at < s->now)
		at = s->now;
	if (w->timer != 0 && w->timer <= at)
		return;
	w->timer = at;
	sim_at(s, at, SIM_WORKER_TIMER, w->job, w->number, NULL);
}

void
sim_worker_timer(struct sim *s, struct sim_worker *w)
{
	uint64_t next = UINT64_MAX;

	if (w->timer != s->now)
		return; /* a later one was replaced by an earlier one that has run */
	w->timer = 0;
	if (w->state == SIM_OFF || w->state == SIM_DONE || w->state == SIM_DEAD)
		return;
	if (w->control_deadline != 0 && w->control_deadline <= s->now)
		sim_control_resend(s, w);
	if (w->state == SIM_WORK)
		next = sim_data_timer(s, w);
	sim_worker_flush(s, w);
	if (w->control_deadline != 0 && w->control_deadline < next)
		next = w->control_deadline;
	if (next != UINT64_MAX)
		sim_worker_wake(s, w, next);
}

static void
clear(struct sim_worker *w)
{
	for (uint32_t i = 0; w->copy != NULL && i < w->n_copies; i++)
		free(w->copy[i].bytes);
	free(w->copy);
	free(w->work);
	free(w->flying);
	for (unsigned e = 0; e < 2 * SIM_SHARDS; e++)
		free(w->lane[e].order);
	if (w->train != NULL)
		sim_packet_free(w->train);
	pbox_auth_job_destroy(w->auth);
	*w = (struct sim_worker){
		.job = w->job, .number = w->number, .id = w->id, .ip = w->ip, .timer = w->timer};
}

void
sim_worker_start(struct sim *s, struct sim_worker *w, bool restarted)
{
	struct pbox_hello m = {.min_version = 1, .max_version = 1};

	if (w->state == SIM_DEAD)
		return;
	clear(w);
	w->restarted = w->was_down = restarted;
	w->began = s->now;
	w->udp = (uint16_t)(1024 + sim_below(s, 60000));
	w->nonce = pbox_random_u64(&s->random);
	if (!restarted)
		w->id = s->sc.job[w->job].any_number ? PBOX_NO_WORKER : (uint16_t)w->number;
	w->state = SIM_HELLO;
	w->srtt_us = 1000;
	sim_control_request(
		s, w, PBOX_HELLO, pbox_hello_encode(w->payload, sizeof(w->payload), &m));
	sim_worker_flush(s, w);
}

void
sim_worker_kill(struct sim *s, struct sim_worker *w)
{
	(void)s;
	clear(w);
}

bool
sim_worker_keys(struct sim *s, struct sim_worker *w, const struct pbox_welcome *m,
	const struct pbox_hdr *h, const uint8_t *payload)
{
	bool good;

	const struct pbox_job_conf *conf = &s->box.conf[w->job];
	bool tags = (m->flags & PBOX_WELCOME_AUTH) != 0;

	if (tags != s->sc.job[w->job].auth || tags != ((h->flags & PBOX_F_AUTH) != 0)) {
		sim_fail(s, "WELCOME of job %u says %s auth", w->job, tags ? "" : "no");
		return false;
	}
	pbox_auth_job_destroy(w->auth);
	w->auth = NULL;
	if (!tags)
		return true;
	w->auth =
		pbox_auth_job_create(NULL, conf->secret, conf->secret_len, m->incarnation, m->job);
	PBOX_ASSERT(w->auth != NULL);
	pbox_auth_keys(&w->keys, conf->secret, conf->secret_len, m);
	good = pbox_auth_good(w->keys.box, w->auth, payload, h->length);
	if (!good && !w->damaged)
		sim_fail(s, "WELCOME with a wrong tag");
	return good; /* R11.7 */
}

/* R11.5; what has the session's token and another tag is the box's mistake. */
static bool
authentic(
	struct sim *s, const struct sim_worker *w, const struct pbox_hdr *h, const uint8_t *payload)
{
	bool tag = (h->flags & PBOX_F_AUTH) != 0;

	if (w->auth == NULL || h->type == PBOX_RETRY || h->type == PBOX_WELCOME ||
		(h->type == PBOX_ERROR && !tag))
		return true;
	if (tag && pbox_auth_good(w->keys.box, w->auth, payload, h->length))
		return true;
	if (h->token == w->token && !w->damaged)
		sim_fail(s, "a %s with %s tag", pbox_type_name(h->type), tag ? "a wrong" : "no");
	return false;
}

void
sim_worker_receive(struct sim *s, struct sim_worker *w, const struct sim_packet *p)
{
	struct pbox_hdr h;
	size_t size;
	enum pbox_wire_drop drop;

	if (w->state == SIM_OFF || w->state == SIM_DEAD || w->state == SIM_DONE ||
		p->udp != w->udp || p->ip != w->ip)
		return;
	drop = pbox_frame_decode(p->data, p->len, true, &h, &size);
	if (drop != PBOX_WIRE_OK)
		return; /* damaged, or its memory was overwritten: both are checked elsewhere */
	w->damaged = p->damaged;
	if (!authentic(s, w, &h, p->data + PBOX_HDR_LEN))
		return;
	if (h.type < PBOX_FIRST_DATA_TYPE)
		sim_control_answer(s, w, &h, p->data + PBOX_HDR_LEN);
	else if (w->state == SIM_WORK && h.token == w->token)
		sim_data_answer(s, w, &h, p->data + PBOX_HDR_LEN);
	sim_worker_flush(s, w);
}
