/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define TAKEOVER (2 * SEC) /* R4.6: leases are 5 s and more */

static void next_step(struct sim *s, struct sim_worker *w);

static void
send_request(struct sim *s, struct sim_worker *w)
{
	struct pbox_hdr h = {
		.type = w->type,
		.token = w->token,
		.job = w->job_no,
		.worker = w->token != 0 ? w->id : 0,
		.incarnation = w->incarnation,
		.chunk = w->request,
		.length = (uint16_t)w->len,
		.ts = (uint32_t)(s->now / US),
	};

	sim_worker_send(s, w, &h, w->payload, SIM_CONTROL);
	w->control_deadline = s->now + w->control_backoff + sim_below(s, w->control_backoff / 4);
	if (w->control_backoff < 200 * MS)
		w->control_backoff *= 2;
	sim_worker_wake(s, w, w->control_deadline);
}

/* The payload stands in w->payload. */
void
sim_control_request(struct sim *s, struct sim_worker *w, enum pbox_type type, size_t len)
{
	w->request++;
	w->type = (uint8_t)type;
	w->len = len;
	w->control_backoff = 5 * MS;
	send_request(s, w);
}

/* Ask anew after a while: the same step, another request. */
static void
later(struct sim *s, struct sim_worker *w, uint64_t ns)
{
	w->type = 0;
	w->control_deadline = s->now + ns;
	sim_worker_wake(s, w, w->control_deadline);
}

void
sim_control_resend(struct sim *s, struct sim_worker *w)
{
	w->control_deadline = 0;
	if (w->type == 0)
		next_step(s, w);
	else
		send_request(s, w);
}

static void
request_join(struct sim *s, struct sim_worker *w)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	const struct pbox_job_conf *conf = &s->box.conf[w->job];
	struct pbox_join m = {
		.cookie = w->cookie,
		.nonce = w->nonce,
		.worker = w->id,
		.workers = (uint16_t)spec->workers,
		.mtu = spec->mtu,
		.window = 1000,
		.policy = spec->shrink,
		.auth = 1,
		.revision = PBOX_REVISION,
		.number = w->work != NULL ? w->run : 0,
	};
	size_t len;

	sim_identity(s, w->job, s->job[w->job].life, m.run);
	snprintf(m.job, sizeof(m.job), "%s", conf->name);
	snprintf(m.host, sizeof(m.host), "host%u", w->number);
	len = pbox_join_encode(w->payload, sizeof(w->payload), &m);
	pbox_proof(w->payload + PBOX_JOIN_PROOF_AT, conf->secret, conf->secret_len,
		PBOX_JOIN_PROOF_PREFIX, w->payload, len, PBOX_JOIN_PROOF_AT);
	sim_control_request(s, w, PBOX_JOIN, len);
}

static void
request_declare(struct sim *s, struct sim_worker *w)
{
	const struct sim_table_spec *t = &s->sc.job[w->job].table[w->table];
	size_t cap = 24 + 80 + sim_below(s, SIM_MTU - PBOX_MTU_OVERHEAD - 104);
	struct pbox_declare m = t->fixed;
	struct pbox_cursor cur;

	m.flags = w->rejoins ? PBOX_DECLARE_RESTORE : w->restarted ? PBOX_DECLARE_CONTINUE : 0;
	m.first = w->first;
	m.count = 0;
	if (w->auth != NULL && cap > SIM_MTU - PBOX_MTU_OVERHEAD - PBOX_TAG_LEN)
		cap = SIM_MTU - PBOX_MTU_OVERHEAD - PBOX_TAG_LEN;
	if (pbox_declare_begin(w->payload, cap, &m, &cur) < 0)
		sim_fail(s, "DECLARE does not fit");
	w->declared_to = w->first;
	while (w->declared_to < t->fixed.tensors &&
		pbox_declare_add(w->payload, &cur, &t->tensor[w->declared_to]) == 0)
		w->declared_to++;
	sim_control_request(s, w, PBOX_DECLARE, pbox_page_len(w->payload, &cur));
}

static void
request_map(struct sim *s, struct sim_worker *w)
{
	struct pbox_map m = {.table = w->table, .first = w->first};

	sim_control_request(s, w, PBOX_MAP, pbox_map_encode(w->payload, sizeof(w->payload), &m));
}

static void
request_extra(struct sim *s, struct sim_worker *w)
{
	/* to the one after the last: none follow */
	struct pbox_status m = {
		.first = (uint16_t)(sim_below(s, 4) % (s->sc.job[w->job].workers + 1u))};

	if (w->extras == 1) {
		memset(w->payload, 0x55, 100);
		sim_control_request(s, w, PBOX_PING, sim_below(s, 100));
	} else {
		sim_control_request(
			s, w, PBOX_STATUS, pbox_status_encode(w->payload, sizeof(w->payload), &m));
	}
}

static void
next_step(struct sim *s, struct sim_worker *w)
{
	struct pbox_hello hello = {.min_version = 1, .max_version = 1};

	switch (w->state) {
	case SIM_HELLO:
		sim_control_request(s, w, PBOX_HELLO,
			pbox_hello_encode(w->payload, sizeof(w->payload), &hello));
		break;
	case SIM_JOIN:
		request_join(s, w);
		break;
	case SIM_DECLARE:
		request_declare(s, w);
		break;
	case SIM_MAP:
		request_map(s, w);
		break;
	case SIM_EXTRAS:
		request_extra(s, w);
		break;
	case SIM_WORK:
		sim_data_go(s, w);
		break;
	default:
		break;
	}
}

static void
go(struct sim *s, struct sim_worker *w, enum sim_worker_state state)
{
	w->state = state;
	w->control_deadline = 0;
	w->type = 0;
	next_step(s, w);
}

/* A network on which a worker that was killed is back long before its lease ends. */
static bool
calm(const struct sim *s)
{
	const struct sim_network_spec *n = &s->sc.net;

	return s->sc.crashes == 0 && n->loss < 0.05 && n->corrupt < 0.05 && n->holes == 0 &&
	       n->reorder_ns < 50 * MS;
}

static void
on_welcome(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h, const uint8_t *payload)
{
	const struct pbox_job_conf *conf = &s->box.conf[w->job];
	struct pbox_welcome m;

	if (pbox_welcome_decode(payload, h->length, &m) < 0 || m.nonce != w->nonce)
		return; /* an answer to an earlier life */
	if (!pbox_proof_good(conf->secret, conf->secret_len, PBOX_WELCOME_PROOF_PREFIX, payload,
		    h->length, PBOX_WELCOME_PROOF_AT))
		sim_fail(s, "WELCOME with a wrong proof");
	if (m.number == 0)
		sim_fail(s, "WELCOME without a run");
	if ((w->id != PBOX_NO_WORKER && m.worker != w->id) || m.window == 0 ||
		m.endpoints != s->sc.endpoints || m.workers != s->sc.job[w->job].workers)
		sim_fail(
			s, "WELCOME for worker %u of %u, window %u", m.worker, m.workers, m.window);
	if (w->restarted && calm(s) && s->now - w->began > TAKEOVER)
		sim_fail(s, "job %u worker %u came back only after %llu ms", w->job, w->id,
			(unsigned long long)((s->now - w->began) / MS));
	if (!sim_worker_keys(s, w, &m, h, payload))
		return;
	w->token = m.token;
	w->job_no = m.job;
	w->id = m.worker;
	w->incarnation = m.incarnation;
	w->window = m.window;
	w->run = m.number;
	w->endpoints = m.endpoints;
	w->table = w->first = 0;
	s->job[w->job].down -= w->was_down;
	w->was_down = false;
	go(s, w, SIM_DECLARE);
}

static void
on_declared(struct sim *s, struct sim_worker *w)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];

	w->first = w->declared_to;
	if (w->first >= spec->table[w->table].fixed.tensors) {
		w->first = 0;
		w->table++;
	}
	if (w->table < spec->tables) {
		go(s, w, SIM_DECLARE);
		return;
	}
	w->table = 0;
	go(s, w, SIM_MAP);
}

static void
on_mapped(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h, const uint8_t *payload)
{
	struct sim_job *j = &s->job[w->job];
	struct pbox_mapped m;
	struct pbox_cursor cur;

	if (pbox_mapped_decode(payload, h->length, &m, &cur) < 0 || m.table != w->table ||
		m.first != w->first) {
		sim_fail(s, "MAPPED cannot be read");
		return;
	}
	sim_map_page(s, w->job, &m, &cur, h->incarnation);
	w->first += m.count;
	if (m.count == 0 && w->first < m.chunks)
		sim_fail(s, "MAPPED without a chunk");
	if (w->first >= m.chunks) {
		w->first = 0;
		w->table++;
	}
	if (w->table < s->sc.job[w->job].tables) {
		go(s, w, SIM_MAP);
		return;
	}
	j->mapped = true;
	if (w->rejoins) {
		w->control_deadline = 0;
		w->type = 0;
		w->state = SIM_WORK;
		sim_restore_begin(s, w);
		return;
	}
	w->extras = 0;
	go(s, w, SIM_EXTRAS);
}

static void
on_extra(struct sim *s, struct sim_worker *w)
{
	if (++w->extras < 2) {
		go(s, w, SIM_EXTRAS);
		return;
	}
	w->type = 0;
	w->control_deadline = 0;
	w->state = SIM_WORK;
	sim_data_begin(s, w);
}

/* A worker that has copies is on its way back to its number. */
static bool
somebody_rejoins(const struct sim *s, unsigned job)
{
	bool any = false;

	for (unsigned i = 0; i < s->sc.job[job].workers; i++)
		any |= s->job[job].worker[i].work != NULL &&
		       s->job[job].worker[i].token != s->job[job].token[s->job[job].worker[i].id];
	return any;
}

/* Not its own earlier life, which the box still asks whether it lives. */
static bool
another_has(const struct sim *s, const struct sim_worker *w)
{
	bool any = false;

	for (unsigned i = 0; i < s->sc.job[w->job].workers; i++)
		any |= i != w->number && s->job[w->job].worker[i].id == w->id;
	return any;
}

static void
on_error(struct sim *s, struct sim_worker *w, const struct pbox_hdr *h, const uint8_t *payload)
{
	struct pbox_error_msg m = {.code = h->aux};

	if (h->length > 0 && pbox_error_decode(payload, h->length, &m) < 0) {
		sim_fail(s, "ERROR cannot be read");
		return;
	}
	if (m.code == PBOX_E_COOKIE && w->state == SIM_JOIN) {
		go(s, w, SIM_HELLO);
	} else if ((m.code == PBOX_E_WORKER_TAKEN || m.code == PBOX_E_FULL ||
			   m.code == PBOX_E_NO_MEMORY) &&
		   w->state == SIM_JOIN) {
		/* its number went to another that took any, while the box was down */
		if (s->box.generation > 0 && s->sc.job[w->job].any_number &&
			w->id != PBOX_NO_WORKER && another_has(s, w) &&
			!somebody_rejoins(s, w->job))
			w->id = PBOX_NO_WORKER;
		w->state = SIM_HELLO;
		later(s, w, 100 * MS + sim_below(s, 200 * MS));
	} else if (m.code == PBOX_E_SESSION && w->state == SIM_LEAVE) {
		sim_worker_finished(s, w); /* LEFT was lost */
	} else if (m.code == PBOX_E_RUNNING && sim_replaces(s, w) && !s->sc.job[w->job].named) {
		later(s, w, 50 * MS + sim_below(s, 200 * MS));
	} else if (m.code == PBOX_E_SESSION && sim_replaces(s, w)) {
		sim_restore_rejoin(s, w);
	} else if (m.code == PBOX_E_SET_LATE && w->type == PBOX_SET && w->restarted) {
		w->control_deadline = 0; /* done in an earlier life */
		w->type = 0;
		w->set_group++;
		w->set_busy = false;
		sim_data_go(s, w);
	} else {
		sim_fail(s, "job %u worker %u in state %u gets ERROR %s to %s: %s", w->job, w->id,
			w->state, pbox_errcode_name(m.code), pbox_type_name(w->type), m.text);
	}
}

/* R4.6, and R4.9: with what the box asked for, if it asked. */
static void
send_ping(struct sim *s, struct sim_worker *w, const struct pbox_hdr *asked)
{
	struct pbox_hdr h = {
		.type = PBOX_PING,
		.token = w->token,
		.job = w->job_no,
		.worker = w->id,
		.incarnation = w->incarnation,
		.round = asked->round,
		.base = asked->base,
	};

	sim_worker_send(s, w, &h, NULL, SIM_CONTROL);
	for (uint16_t e = 0; e < s->sc.endpoints && (h.round | h.base) != 0; e++)
		sim_worker_send(s, w, &h, NULL, e);
}

void
sim_control_answer(
	struct sim *s, struct sim_worker *w, const struct pbox_hdr *h, const uint8_t *payload)
{
	/* to a data frame: header only, with chunk and frag */
	if (h->type == PBOX_ERROR && (h->aux == PBOX_E_NO_LR || h->aux == PBOX_E_LOST) &&
		h->length == 0) {
		if (h->token == w->token && w->state == SIM_WORK)
			sim_data_answer(s, w, h, payload);
		return;
	}
	if (h->type == PBOX_ERROR && h->aux == PBOX_E_SESSION && h->token == w->token &&
		w->token != 0 && w->state != SIM_LEAVE) {
		/* R12.5: or it began beside a worker that came again; R12.7: in a dead run */
		if (sim_replaces(s, w) ||
			(s->box.generation > 0 &&
				(h->incarnation != w->incarnation || w->work == NULL))) {
			sim_restore_rejoin(s, w);
			return;
		}
		if (s->sc.noise > 0)
			return; /* forged frames of ours are answered so as well */
		sim_fail(s, "job %u worker %u in state %u: its session is gone", w->job, w->id,
			w->state);
		return;
	}
	if (h->type == PBOX_ERROR && h->aux == PBOX_E_SESSION && h->token != w->token)
		return;             /* to a frame of a session that is no more */
	if (h->type == PBOX_PING) { /* R4.6; no request of ours */
		if (w->token != 0 && h->token == w->token)
			send_ping(s, w, h);
		return;
	}
	if (h->chunk != w->request || w->type == 0 || (w->token != 0 && h->token != w->token))
		return; /* answered before, or to a forged frame */
	if (h->type == PBOX_ERROR) {
		on_error(s, w, h, payload);
	} else if (h->type == PBOX_RETRY && w->type == PBOX_HELLO) {
		struct pbox_retry m;

		if (pbox_retry_decode(payload, h->length, &m) < 0)
			sim_fail(s, "RETRY cannot be read");
		w->cookie = m.cookie;
		w->incarnation = m.incarnation;
		go(s, w, SIM_JOIN);
	} else if (h->type == PBOX_WELCOME && w->type == PBOX_JOIN) {
		on_welcome(s, w, h, payload);
	} else if (h->type == PBOX_DECLARED && w->type == PBOX_DECLARE) {
		on_declared(s, w);
	} else if (h->type == PBOX_NOT_READY && w->type == PBOX_MAP) {
		later(s, w, 5 * MS + sim_below(s, 50 * MS));
	} else if (h->type == PBOX_MAPPED && w->type == PBOX_MAP) {
		on_mapped(s, w, h, payload);
	} else if ((h->type == PBOX_STATUS_OK && w->type == PBOX_STATUS) ||
		   (h->type == PBOX_PONG && w->type == PBOX_PING)) {
		if (h->type == PBOX_PONG && h->length != w->len)
			sim_fail(s, "PONG of another length");
		if (w->state == SIM_WORK)
			later(s, w, 500 * MS);
		else
			on_extra(s, w);
	} else if (h->type == PBOX_SET_OK && w->type == PBOX_SET) {
		w->control_deadline = 0;
		w->type = 0;
		w->set_group++;
		w->set_busy = false;
		sim_data_go(s, w);
	} else if (h->type == PBOX_LEFT && w->type == PBOX_LEAVE) {
		sim_worker_finished(s, w);
	}
}

/*
 * Make sure that the hyper-parameters of rounds up to this one are set: true when they are, else
 * the next SET is under way and sim_data_go() follows.
 */
bool
sim_control_set(struct sim *s, struct sim_worker *w, uint32_t round)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	struct pbox_set m;

	while (w->set_round < round - spec->first_round) {
		if (w->set_busy)
			return false;
		if (w->set_table == spec->tables) {
			w->set_round++;
			w->set_table = w->set_group = 0;
			continue;
		}
		if (w->set_group == sim_groups(&s->sc, w->job, w->set_table)) {
			w->set_table++;
			w->set_group = 0;
			continue;
		}
		if (sim_hyper_change(&s->sc, w->job, w->set_table, w->set_group,
			    spec->first_round + w->set_round + 1, &m) == 0) {
			w->set_group++;
			continue;
		}
		w->set_busy = true;
		sim_control_request(
			s, w, PBOX_SET, pbox_set_encode(w->payload, sizeof(w->payload), &m));
		return false;
	}
	return true;
}

void
sim_control_leave(struct sim *s, struct sim_worker *w)
{
	w->state = SIM_LEAVE;
	sim_control_request(s, w, PBOX_LEAVE, 0);
}
