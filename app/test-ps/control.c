/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What workers do beside rounds (sections 4, 5, 7 and 8 of the protocol): each is at a level, and asks
 * one thing after another until it is where main wants all to be. A few requests of a lane are under
 * way at a time, so that a thousand workers do not shout at once.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_proof.h>
#include <sodium.h>

#include "testps.h"

#define AT_ONCE      32
#define INTERVAL     (100 * 1000u) /* us; doubles */
#define INTERVAL_MAX (1000 * 1000u)
#define NOT_READY    (30 * 1000u)
#define COOKIE_LIFE  (7 * US_SECOND) /* R4.2: at least 8 s */
#define INIT_AGAIN   (50 * 1000u)
#define PING_EVERY   4           /* in a lease */
#define PING_ID      0x80000000u /* no request of ours has it */

static const struct pbox_conf_secret *
secret(const struct lane *l)
{
	return &l->t->opt.secret;
}

/* ---- requests --------------------------------------------------------------------------------- */

static struct pbox_hdr
header(const struct lane *l, unsigned worker, enum pbox_type type, uint32_t request)
{
	const struct testps *t = l->t;
	bool session = l->c[worker / t->lanes].level != LEVEL_NONE;

	return (struct pbox_hdr){.type = (uint8_t)type,
		.token = session ? t->token[worker] : 0,
		.job = session ? t->session.job : 0,
		.worker = session ? (uint16_t)worker : 0,
		.incarnation = session ? t->session.incarnation : 0,
		.chunk = request,
		.ts = (uint32_t)l->now};
}

static void
ask(struct lane *l, unsigned worker, enum pbox_type type, const void *payload, size_t len)
{
	struct control *c = &l->c[worker / l->t->lanes];
	struct pbox_hdr h;

	/* a repetition has the same id; an answer clears it */
	if (!c->waiting) {
		c->request++;
		c->interval_us = INTERVAL;
		l->waiting++;
	}
	c->waiting = true;
	c->due_us = l->now + c->interval_us;
	c->interval_us = RTE_MIN(2 * c->interval_us, INTERVAL_MAX);
	h = header(l, worker, type, c->request);
	h.length = (uint16_t)len;
	count(l, LS_CONTROL, 1);
	lane_frame(l, worker, &l->t->control_to[worker], &h, payload);
}

static void
answered(struct lane *l, struct control *c, uint32_t pause_us)
{
	c->waiting = false;
	l->waiting--;
	c->due_us = l->now + pause_us;
}

static void
ask_session(struct lane *l, unsigned worker, struct control *c)
{
	const struct testps *t = l->t;
	struct pbox_join m = {.cookie = c->cookie,
		.nonce = c->nonce,
		.worker = (uint16_t)worker,
		.workers = (uint16_t)t->workers,
		.mtu = t->mtu,
		.window = t->now.window != 0 ? (uint16_t)t->now.window : 4096,
		.auth = pbox_auth_select(NULL) != NULL,
		.revision = PBOX_REVISION,
		.host = "testps"};
	const struct pbox_hello hello = {PBOX_VERSION_WIRE, PBOX_VERSION_WIRE};
	uint8_t buf[PBOX_JOIN_LEN];
	size_t len;

	if (c->have_cookie && l->now - c->cookie_us > COOKIE_LIFE)
		c->have_cookie = false;
	if (!c->have_cookie) {
		len = pbox_hello_encode(buf, sizeof(buf), &hello);
		ask(l, worker, PBOX_HELLO, buf, len);
		return;
	}
	memcpy(m.job, t->opt.job, sizeof(m.job));
	memcpy(m.run, t->run, sizeof(m.run));
	len = pbox_join_encode(buf, sizeof(buf), &m);
	pbox_proof(buf + PBOX_JOIN_PROOF_AT, secret(l)->bytes, secret(l)->len,
		PBOX_JOIN_PROOF_PREFIX, buf, len, PBOX_JOIN_PROOF_AT);
	ask(l, worker, PBOX_JOIN, buf, len);
}

/* The page of tensors that begins with c->first. */
static void
ask_declare(struct lane *l, unsigned worker, struct control *c)
{
	const struct testps *t = l->t;
	bool optimise = t->now.optimiser != PBOX_OPT_NONE;
	const struct pbox_declare m = {.tensors = t->model.n,
		.first = c->first,
		.mode = optimise ? PBOX_MODE_OPTIMISER : PBOX_MODE_ALLREDUCE,
		.op = optimise ? PBOX_OP_MEAN : PBOX_OP_SUM,
		.optimiser = t->now.optimiser,
		.push_format = t->now.push,
		.pull_format = t->now.pull,
		.flags = PBOX_DECLARE_CONTINUE | (l->rejoins ? PBOX_DECLARE_RESTORE : 0)};
	size_t cap = RTE_MIN((size_t)t->mtu - PBOX_MTU_OVERHEAD - tag_of(l), (size_t)UINT16_MAX);
	struct pbox_cursor cur;

	if (pbox_declare_begin(l->flat, cap, &m, &cur) != 0)
		return;
	for (uint32_t i = c->first; i < t->model.n; i++) {
		struct pbox_tensor_entry e = {.elements = t->model.tensor[i].elements};

		memcpy(e.name, t->model.tensor[i].name, sizeof(e.name));
		if (pbox_declare_add(l->flat, &cur, &e) != 0)
			break;
	}
	ask(l, worker, PBOX_DECLARE, l->flat, pbox_page_len(l->flat, &cur));
}

/* Worker 0 asks until all have declared, the others behind it. */
static void
ask_map(struct lane *l, unsigned worker, struct control *c)
{
	const struct pbox_map m = {.first = c->first};
	uint8_t buf[64];

	if (worker != 0 && !atomic_load(&l->t->mapped))
		return;
	ask(l, worker, PBOX_MAP, buf, pbox_map_encode(buf, sizeof(buf), &m));
}

static void
ask_set(struct lane *l, unsigned worker)
{
	struct pbox_set m = {.group = PBOX_ALL_GROUPS,
		/* R10.4: a box that was started again begins with version 0 */
		.from_round = l->rejoins ? 1 : l->t->plan.round + 1,
		.count = 1};
	struct pbox_hyper h;
	uint8_t buf[128];

	mirror_hyper(&h, l->t->now.optimiser);
	m.param[0].id = PBOX_HYPER_LR;
	m.param[0].value = h.lr;
	if (h.momentum > 0) {
		m.param[1].id = PBOX_HYPER_MOMENTUM;
		m.param[1].value = h.momentum;
		m.count = 2;
	}
	ask(l, worker, PBOX_SET, buf, pbox_set_encode(buf, sizeof(buf), &m));
}

/* ---- INIT: worker 0 alone --------------------------------------------------------------------- */

static uint32_t
piece_elements(const struct lane *l)
{
	return pbox_init_elements(RTE_MIN(l->t->mtu, l->t->session.mtu) - tag_of(l));
}

static void
send_piece(struct lane *l, struct init_piece *i)
{
	const struct testps *t = l->t;
	const struct fragment *f = &t->plan.f[i->f];
	uint32_t most = piece_elements(l);
	uint32_t n = RTE_MIN(f->elements - i->base, most);
	struct pbox_hdr h = header(l, 0, PBOX_INIT, f->chunk);

	h.flags = PBOX_F_LAST;
	h.frag = f->frag;
	h.base = i->base;
	h.map_epoch = t->plan.map_epoch;
	h.format = PBOX_FMT_FP32;
	h.length = (uint16_t)(n * sizeof(float));
	i->sent = l->now;
	lane_frame(l, 0, &t->data_to[f->endpoint], &h, t->data.init + i->base);
}

static void
initialise(struct lane *l)
{
	const struct plan *p = &l->t->plan;
	uint32_t most = piece_elements(l);

	for (unsigned k = 0; k < RTE_DIM(l->init); k++) {
		struct init_piece *i = &l->init[k];

		if (i->sent != 0) {
			if (l->now - i->sent > INIT_AGAIN)
				send_piece(l, i);
			continue;
		}
		if (l->init_next == p->n)
			continue;
		*i = (struct init_piece){.f = l->init_next, .base = l->init_base};
		l->init_out++;
		l->init_base += most;
		if (l->init_base >= p->f[l->init_next].elements) {
			l->init_next++;
			l->init_base = 0;
		}
		send_piece(l, i);
	}
	if (l->init_next == p->n && l->init_out == 0)
		l->c[0].level = LEVEL_READY;
}

void
control_init_ok(struct lane *l, const struct pbox_hdr *h)
{
	for (unsigned k = 0; k < RTE_DIM(l->init); k++) {
		struct init_piece *i = &l->init[k];
		const struct fragment *f = i->sent != 0 ? &l->t->plan.f[i->f] : NULL;

		if (f != NULL && f->chunk == h->chunk && f->frag == h->frag && i->base == h->base) {
			i->sent = 0;
			l->init_out--;
		}
	}
	l->tick_us = 0; /* the next ones */
}

/* ---- a worker's next step ---------------------------------------------------------------------- */

static void
leave(struct lane *l, unsigned worker, struct control *c)
{
	if (c->level == LEVEL_NONE) {
		c->waiting = false;
		return;
	}
	c->leaving = true;
	ask(l, worker, PBOX_LEAVE, NULL, 0);
}

static void
step(struct lane *l, unsigned worker, struct control *c)
{
	switch ((enum level)c->level) {
	case LEVEL_NONE:
		ask_session(l, worker, c);
		break;
	case LEVEL_JOINED:
		ask_declare(l, worker, c);
		break;
	case LEVEL_DECLARED:
		ask_map(l, worker, c);
		break;
	case LEVEL_MAPPED:
		if (worker == 0 && l->t->now.optimiser != PBOX_OPT_NONE && !l->set_done)
			ask_set(l, worker);
		else if (l->rejoins && !restore_turn(l, worker))
			break;
		else if (worker == 0 && l->t->now.optimiser != PBOX_OPT_NONE)
			initialise(l);
		else
			c->level = LEVEL_READY;
		break;
	case LEVEL_READY:
		break;
	}
}

void
control_ping(struct lane *l, unsigned worker, const struct pbox_hdr *asked)
{
	struct pbox_hdr h;

	/* worker 0 may be welcomed last, and in another lane */
	if (!atomic_load(&l->t->session.known))
		return;
	h = header(l, worker, PBOX_PING, PING_ID);
	if (asked != NULL) { /* it may be for a proof (R4.9) */
		h.round = asked->round;
		h.base = asked->base;
	}
	lane_frame(l, worker, &l->t->control_to[worker], &h, NULL);
}

/* A worker that has nothing to do keeps its session. */
static void
keep(struct lane *l, unsigned worker, struct control *c)
{
	uint64_t every = (uint64_t)l->t->session.lease_ms * 1000 / PING_EVERY;

	if (c->level == LEVEL_NONE || every == 0 || l->now - c->heard_us < every)
		return;
	c->heard_us = l->now;
	control_ping(l, worker, NULL);
}

/* All sessions are gone. A session keeps its nonce: if the box still has it, it is the same (R10.1). */
static void
forget(struct lane *l)
{
	for (unsigned k = 0; k < l->workers; k++) {
		struct control *c = &l->c[k];

		*c = (struct control){.nonce = c->nonce, .request = c->request + 1};
	}
	l->waiting = l->init_next = l->init_base = l->init_out = 0;
	memset(l->init, 0, sizeof(l->init));
	l->set_done = false;
	lane_auth_end(l);
	l->rejoins = true;
	atomic_store(&l->level, LEVEL_NONE);
	atomic_store(&l->lost, false);
	atomic_store(&l->forget, false);
}

/* The box does not have the session: with rounds under way, that can be mended. */
static void
session_gone(struct lane *l, unsigned worker, const char *why)
{
	if (l->c[worker / l->t->lanes].level == LEVEL_READY)
		atomic_store(&l->lost, true);
	else if (!atomic_load(&l->t->rejoining))
		lane_fail(l, "%s", why);
}

void
control_tick(struct lane *l)
{
	int wanted = atomic_load(&l->level_wanted);
	unsigned lowest = LEVEL_READY, gone = 0;

	if (l->t->opt.reflected || l->c == NULL)
		return;
	if (atomic_load(&l->forget))
		forget(l);
	for (unsigned k = 0; k < l->workers; k++) {
		struct control *c = &l->c[k];
		bool leaves = wanted == LEVEL_NONE && c->level != LEVEL_NONE;

		if (l->now >= c->due_us && (c->waiting || l->waiting < AT_ONCE)) {
			if (leaves)
				leave(l, worker_of(l, k), c);
			else if ((int)c->level < wanted)
				step(l, worker_of(l, k), c);
		}
		keep(l, worker_of(l, k), c);
		if (c->level < lowest)
			lowest = c->level;
		gone += c->level == LEVEL_NONE;
	}
	atomic_store(&l->level, lowest);
	atomic_store(&l->left, gone);
}

/* ---- answers ------------------------------------------------------------------------------------ */

static void
on_welcome(struct lane *l, unsigned worker, struct control *c, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct testps *t = l->t;
	struct pbox_welcome w;

	if (c->level != LEVEL_NONE || pbox_welcome_decode(payload, h->length, &w) != 0 ||
		w.nonce != c->nonce || w.worker != worker || w.endpoints == 0)
		return;
	if (!pbox_proof_good(secret(l)->bytes, secret(l)->len, PBOX_WELCOME_PROOF_PREFIX, payload,
		    PBOX_WELCOME_LEN + PBOX_ENDPOINT_LEN * w.endpoints, PBOX_WELCOME_PROOF_AT)) {
		lane_fail(l,
			"the box could not prove that it knows the secret of job '%s': compare "
			"--secret with the box's configuration",
			t->opt.job);
		return;
	}
	if (!auth_welcome(l, worker, h, payload, &w))
		return;
	t->token[worker] = w.token;
	if (worker == 0) {
		t->session.job = w.job;
		t->session.incarnation = w.incarnation;
		t->session.lease_ms = w.lease_ms;
		t->session.mtu = w.mtu;
		t->session.window = w.window;
		t->session.endpoints = w.endpoints;
		memcpy(t->session.endpoint, w.endpoint, sizeof(w.endpoint));
		atomic_store(&t->session.known, true);
	}
	answered(l, c, 0);
	c->heard_us = l->now;
	c->level = LEVEL_JOINED;
	c->first = 0;
}

static void
on_mapped(struct lane *l, unsigned worker, struct control *c, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct testps *t = l->t;
	struct pbox_chunk_entry e;
	struct pbox_mapped m;
	struct pbox_cursor cur;

	if (pbox_mapped_decode(payload, h->length, &m, &cur) != 0 || m.first != c->first)
		return;
	answered(l, c, 0);
	/* the map is the same for all: worker 0 reads it, for the others it is the sign to begin */
	if (worker != 0) {
		c->level = LEVEL_MAPPED;
		return;
	}
	if (t->chunk == NULL && m.chunks > 0)
		t->chunk = calloc(m.chunks, sizeof(*t->chunk));
	if (t->chunk == NULL || m.chunks > 1u << 20 || (m.count == 0 && m.chunks > 0)) {
		lane_fail(l, "the box's map of %u chunks cannot be taken", m.chunks);
		return;
	}
	for (unsigned i = 0; i < m.count; i++) {
		if (pbox_mapped_next(&cur, &e) != 0 || e.endpoint >= t->session.endpoints ||
			e.segments == 0 || e.chunk_id != m.first_chunk_id + m.first + i) {
			lane_fail(l, "the box's map contradicts itself at chunk %u", m.first + i);
			return;
		}
		t->chunk[m.first + i] = (struct map_chunk){.id = e.chunk_id,
			.elements = e.elements,
			.version = e.version,
			.endpoint = e.endpoint,
			.first_tensor = e.segment[0].tensor,
			.last_tensor = e.segment[e.segments - 1].tensor};
	}
	c->first += m.count;
	if (c->first < m.chunks)
		return;
	t->n_chunks = m.chunks;
	t->frag_elements = m.frag_elements;
	t->map_epoch = h->map_epoch;
	c->level = LEVEL_MAPPED;
	atomic_store(&t->mapped, true);
}

/* Errors of a box that comes, or goes (R10.1). */
static bool
passes(unsigned code)
{
	return code != PBOX_E_NO_JOB && code != PBOX_E_SECRET && code != PBOX_E_WORKERS &&
	       code != PBOX_E_MISMATCH && code != PBOX_E_BAD_REQUEST && code != PBOX_E_RUN_ENDED &&
	       code != PBOX_E_UNSUPPORTED;
}

static void
on_error(struct lane *l, unsigned worker, struct control *c, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct pbox_error_msg m = {0};

	if (h->length == 0) { /* to a frame of a session */
		if (c->leaving && h->aux == PBOX_E_SESSION) {
			if (c->waiting)
				answered(l, c, 0);
			c->level = LEVEL_NONE;
		} else if (h->aux == PBOX_E_SESSION && h->token == l->t->token[worker]) {
			session_gone(l, worker,
				"the box knows the sessions no more: it was started again, or the "
				"lease ended: start again");
		} else if (h->token == l->t->token[worker]) {
			lane_fail(l, "worker %u: the box answered %s", worker,
				pbox_errcode_name(h->aux));
		}
		return;
	}
	if (!c->waiting || h->chunk != c->request || pbox_error_decode(payload, h->length, &m) != 0)
		return;
	answered(l, c, 0);
	if (c->leaving) {
		c->level = LEVEL_NONE;
	} else if (m.code == PBOX_E_COOKIE) {
		c->have_cookie = false;
		c->due_us = l->now + INTERVAL;
	} else if (m.code == PBOX_E_WORKER_TAKEN && m.detail > 0 && m.detail <= 2000) {
		c->due_us = l->now + m.detail * 1000;
	} else if (atomic_load(&l->t->rejoining) && passes(m.code)) {
		c->due_us = l->now + 2 * INTERVAL;
	} else {
		lane_fail(l, "worker %u: the box answered %s to %s%s%s%s", worker,
			pbox_errcode_name(m.code), pbox_type_name(m.type),
			m.text[0] != '\0' ? ": " : "", m.text,
			m.code == PBOX_E_NO_MEMORY && l->t->loopback != NULL
				? "; the box is in this process: quit, and begin with a larger "
				  "--memory, and with that much more for EAL (-m)"
				: "");
	}
}

static void
on_retry(struct lane *l, struct control *c, const uint8_t *payload, size_t len)
{
	struct pbox_retry m;

	if (c->level != LEVEL_NONE || pbox_retry_decode(payload, len, &m) != 0)
		return;
	c->cookie = m.cookie;
	c->cookie_us = l->now;
	c->have_cookie = true;
	answered(l, c, 0);
}

static void
on_declared(struct lane *l, struct control *c, const uint8_t *payload, size_t len)
{
	struct pbox_declared m;

	if (c->level != LEVEL_JOINED || pbox_declared_decode(payload, len, &m) != 0 ||
		m.first != c->first)
		return;
	answered(l, c, 0);
	c->first += m.count;
	if (c->first < l->t->model.n)
		return;
	c->level = LEVEL_DECLARED;
	c->first = 0;
}

/* Of the box, unasked. */
static void
unasked(struct lane *l, unsigned worker, const struct pbox_hdr *h)
{
	if (h->token != l->t->token[worker])
		return;
	if (h->type == PBOX_PING)
		control_ping(l, worker, h);
	else if (h->type == PBOX_LEFT && h->aux == 1)
		session_gone(l, worker, "the box is stopping");
}

void
control_frame(struct lane *l, unsigned worker, const struct pbox_hdr *h, const uint8_t *payload)
{
	struct control *c = l->c != NULL ? &l->c[worker / l->t->lanes] : NULL;
	int wanted = atomic_load(&l->level_wanted);

	if (c == NULL)
		return;
	if (h->type == PBOX_ERROR) {
		on_error(l, worker, c, h, payload);
	} else if (h->chunk == 0) {
		unasked(l, worker, h);
	} else if (c->waiting && h->chunk == c->request) {
		if (h->type == PBOX_RETRY)
			on_retry(l, c, payload, h->length);
		else if (h->type == PBOX_WELCOME)
			on_welcome(l, worker, c, h, payload);
		else if (h->type == PBOX_DECLARED)
			on_declared(l, c, payload, h->length);
		else if (h->type == PBOX_MAPPED && c->level == LEVEL_DECLARED)
			on_mapped(l, worker, c, h, payload);
		else if (h->type == PBOX_NOT_READY)
			answered(l, c, NOT_READY);
		else if (h->type == PBOX_SET_OK) {
			answered(l, c, 0);
			l->set_done = true;
		} else if (h->type == PBOX_LEFT) {
			answered(l, c, 0);
			c->level = LEVEL_NONE;
		}
	}
	/* the next step at once, not at the next tick */
	if (!c->waiting && c->due_us <= l->now && (int)c->level < wanted && l->waiting < AT_ONCE &&
		c->level != LEVEL_MAPPED && !atomic_load(&l->failed))
		step(l, worker, c);
}
