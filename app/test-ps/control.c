/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What workers do beside rounds. Sessions are those of lib/worker, which joins, repeats requests, and joins again when
 * a session was lost; here each worker is at a level, and asks one thing after another until it is where main wants all
 * to be. A few requests of a lane are under way at a time, so that a thousand workers do not shout at once.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "testps.h"

#define AT_ONCE    32
#define PAUSE      (200 * 1000u) /* us */
#define NOT_READY  (30 * 1000u)
#define INIT_AGAIN (50 * 1000u)
#define WINDOW     4096                    /* asked for without a word of the user */
#define JOIN_NS    UINT64_C(3600000000000) /* main has a deadline of its own */

/* lib/worker's clock is never 0. */
static uint64_t
control_clock_ns(const struct lane *l)
{
	return l->now * 1000 | 1;
}

/* ---- what lib/worker sends: all to the control endpoint ------------------------------------------ */

static void
control_port_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	const struct control *c = ctx;
	struct lane *l = c->l;

	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = lane_packet(l, l->frames);
		uint8_t *p;

		if (m == NULL)
			return; /* lost like any other */
		p = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)(PBOX_NET_HEADERS_LEN + d[i].bytes));
		if (p == NULL) {
			rte_pktmbuf_free(m);
			continue;
		}
		pbox_net_udp_header(
			&l->t->control_to[c->worker], p, (uint16_t)d[i].bytes, l->ip_id++);
		p += PBOX_NET_HEADERS_LEN;
		for (uint32_t k = 0; k < d[i].n; k++) {
			memcpy(p, d[i].iov[k].iov_base, d[i].iov[k].iov_len);
			p += d[i].iov[k].iov_len;
		}
		lane_count(l, LS_CONTROL, 1);
		lane_out(l, c->worker, m);
	}
}

static uint64_t
control_port_random(void *ctx)
{
	uint64_t x;

	(void)ctx;
	randombytes_buf(&x, sizeof(x));
	return x;
}

static int
make(struct lane *l, unsigned k, const struct pbox_client_conf *conf)
{
	const struct testps *t = l->t;
	const struct sockaddr_in box = {.sin_family = AF_INET,
		.sin_port = rte_cpu_to_be_16(t->box_port),
		.sin_addr.s_addr = t->box_ip};
	struct pbox_client_conf own = *conf;
	struct control *c = &l->c[k];

	*c = (struct control){.l = l, .worker = (uint16_t)worker_of(l, k)};
	c->port = (struct pbox_worker_port){.send = control_port_send,
		.random = control_port_random,
		.ctx = c,
		.mtu = t->mtu,
		.batch = 1,
		.window = t->now.window != 0 ? t->now.window : WINDOW,
		.path_known = true};
	own.worker = c->worker;
	c->w = pbox_worker_create(&own, &box, &c->port);
	return c->w != NULL ? 0 : -1;
}

int
control_make(struct lane *l, struct pbox_error *err)
{
	const struct testps *t = l->t;
	char secret[PBOX_CONF_SECRET_MAX + 1] = "";
	struct pbox_client_conf conf = {.size = sizeof(conf),
		.job = t->opt.job,
		.secret = secret,
		.host = "testps",
		.workers = t->workers,
		.window = 1, /* frames of its own: it has none */
		.keep_copies = 1,
		.auth = t->opt.auth,
		.run = t->run};
	int ret = 0;

	memcpy(secret, t->opt.secret.bytes, t->opt.secret.len);
	l->c = calloc(l->workers > 0 ? l->workers : 1, sizeof(*l->c));
	for (unsigned k = 0; l->c != NULL && ret == 0 && k < l->workers; k++)
		ret = make(l, k, &conf);
	sodium_memzero(secret, sizeof(secret));
	return l->c != NULL && ret == 0
		       ? 0
		       : pbox_fail(err, ENOMEM, "no memory for %u workers", t->workers);
}

void
control_free(struct lane *l)
{
	for (unsigned k = 0; l->c != NULL && k < l->workers; k++) {
		free(l->c[k].room);
		if (l->c[k].w != NULL)
			pbox_worker_destroy(l->c[k].w);
	}
	free(l->c);
	l->c = NULL;
}

/* ---- requests --------------------------------------------------------------------------------- */

static void
control_ask(struct lane *l, struct control *c, enum pbox_type type, const void *payload, size_t len)
{
	size_t cap = l->t->mtu;

	c->room = malloc(len + cap);
	if (c->room == NULL) {
		lane_fail(l, "no memory for a request");
		return;
	}
	if (len > 0)
		memcpy(c->room, payload, len);
	c->request = (struct pbox_worker_request){.type = (uint8_t)type,
		.payload = c->room,
		.length = (uint16_t)len,
		.answer = c->room + len,
		.answer_cap = cap};
	c->asking = true;
	c->tick_us = 0;
	l->waiting++;
	pbox_worker_request(c->w, &c->request);
}

static void
end_request(struct lane *l, struct control *c)
{
	l->waiting -= c->asking;
	c->asking = false;
	free(c->room);
	c->room = NULL;
}

static void
drop_request(struct lane *l, struct control *c)
{
	if (c->asking)
		pbox_worker_request_cancel(c->w, &c->request);
	end_request(l, c);
}

/* The page of tensors that begins with c->first. */
static void
ask_declare(struct lane *l, struct control *c)
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
	struct pbox_worker_session s;
	struct pbox_cursor cur;

	if (!pbox_worker_session(c->w, &s) ||
		pbox_declare_begin(l->flat, (size_t)s.mtu - PBOX_MTU_OVERHEAD, &m, &cur) != 0)
		return;
	for (uint32_t i = c->first; i < t->model.n; i++) {
		struct pbox_tensor_entry e = {.elements = t->model.tensor[i].elements};

		memcpy(e.name, t->model.tensor[i].name, sizeof(e.name));
		if (pbox_declare_add(l->flat, &cur, &e) != 0)
			break;
	}
	control_ask(l, c, PBOX_DECLARE, l->flat, pbox_page_len(l->flat, &cur));
}

/* Worker 0 asks until all have declared, the others behind it. */
static void
ask_map(struct lane *l, struct control *c)
{
	const struct pbox_map m = {.first = c->first};
	uint8_t buf[64];

	if (c->worker != 0 && !atomic_load(&l->t->mapped))
		return;
	control_ask(l, c, PBOX_MAP, buf, pbox_map_encode(buf, sizeof(buf), &m));
}

static void
ask_set(struct lane *l, struct control *c)
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
	control_ask(l, c, PBOX_SET, buf, pbox_set_encode(buf, sizeof(buf), &m));
}

/* ---- INIT: worker 0 alone --------------------------------------------------------------------- */

static uint32_t
control_piece_elements(const struct lane *l)
{
	return pbox_init_elements(l->t->session.mtu);
}

static void
send_piece(struct lane *l, struct init_piece *i)
{
	const struct testps *t = l->t;
	const struct fragment *f = &t->plan.f[i->f];
	uint32_t most = control_piece_elements(l);
	uint32_t n = RTE_MIN(f->elements - i->base, most);
	struct pbox_hdr h = rounds_header(l, 0, f, PBOX_INIT, 0);

	h.flags = PBOX_F_LAST;
	h.base = i->base;
	h.format = PBOX_FMT_FP32;
	h.length = (uint16_t)(n * sizeof(float));
	i->sent = l->now;
	lane_frame(l, 0, &t->data_to[f->endpoint], &h, t->data.init + i->base);
}

static void
initialise(struct lane *l)
{
	const struct plan *p = &l->t->plan;
	uint32_t most = control_piece_elements(l);

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
leave(struct lane *l, struct control *c)
{
	struct pbox_worker_session s;

	c->leaving = true;
	drop_request(l, c);
	l->waiting -= c->sessions == 0;
	c->left = !pbox_worker_session(c->w, &s);
	pbox_worker_shut(c->w);
	if (!c->left)
		control_ask(l, c, PBOX_LEAVE, NULL, 0);
}

static void
control_step(struct lane *l, struct control *c)
{
	bool optimises = c->worker == 0 && l->t->now.optimiser != PBOX_OPT_NONE;

	switch ((enum level)c->level) {
	case LEVEL_NONE:
		if (!c->opened) {
			l->waiting++;
			pbox_worker_open(c->w, control_clock_ns(l), control_clock_ns(l) + JOIN_NS);
		}
		c->opened = true;
		break;
	case LEVEL_JOINED:
		ask_declare(l, c);
		break;
	case LEVEL_DECLARED:
		ask_map(l, c);
		break;
	case LEVEL_MAPPED:
		if (optimises && !l->set_done)
			ask_set(l, c);
		else if (l->rejoins && !restore_turn(l, c->worker))
			break;
		else if (optimises)
			initialise(l);
		else
			c->level = LEVEL_READY;
		break;
	default:
		break;
	}
}

/* ---- answers ------------------------------------------------------------------------------------ */

static void
on_mapped(struct lane *l, struct control *c)
{
	const struct pbox_worker_request *r = &c->request;
	struct testps *t = l->t;
	struct pbox_chunk_entry e;
	struct pbox_mapped m;
	struct pbox_cursor cur;

	if (pbox_mapped_decode(r->answer, r->answer_len, &m, &cur) != 0 || m.first != c->first)
		return;
	/* the map is the same for all: worker 0 reads it, for the others it is the sign to begin */
	if (c->worker != 0) {
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
	t->map_epoch = r->map_epoch;
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
control_on_error(struct lane *l, struct control *c)
{
	struct pbox_error_msg m = {.code = c->request.answer_aux, .type = c->request.type};

	if (c->request.answer_len > 0 &&
		pbox_error_decode(c->request.answer, c->request.answer_len, &m) != 0)
		return;
	if (atomic_load(&l->t->rejoining) && passes(m.code)) {
		c->due_us = l->now + PAUSE;
		return;
	}
	lane_fail(l, "worker %u: the box answered %s to %s%s%s%s", c->worker,
		pbox_errcode_name(m.code), pbox_type_name(m.type), m.text[0] != '\0' ? ": " : "",
		m.text,
		m.code == PBOX_E_NO_MEMORY && l->t->loopback != NULL
			? "; the box is in this process: quit, and begin with a larger --memory, and with that much more for EAL (-m)"
			: "");
}

static void
on_declared(struct lane *l, struct control *c)
{
	struct pbox_declared m;

	if (pbox_declared_decode(c->request.answer, c->request.answer_len, &m) != 0 ||
		m.first != c->first)
		return;
	c->first += m.count;
	if (c->first < l->t->model.n)
		return;
	c->level = LEVEL_DECLARED;
	c->first = 0;
}

static void
on_answer(struct lane *l, struct control *c)
{
	c->due_us = l->now;
	if (c->leaving)
		c->left = true;
	else if (c->request.answer_type == PBOX_ERROR)
		control_on_error(l, c);
	else if (c->request.answer_type == PBOX_DECLARED)
		on_declared(l, c);
	else if (c->request.answer_type == PBOX_MAPPED)
		on_mapped(l, c);
	else if (c->request.answer_type == PBOX_NOT_READY)
		c->due_us = l->now + NOT_READY;
	else if (c->request.answer_type == PBOX_SET_OK)
		l->set_done = true;
	end_request(l, c);
}

/* ---- sessions ----------------------------------------------------------------------------------- */

/* What was reached in a session is gone with it. With rounds under way, that can be mended. */
static void
fall(struct lane *l, struct control *c)
{
	if (c->level == LEVEL_READY)
		atomic_store(&l->lost, true);
	drop_request(l, c);
	c->level = LEVEL_NONE;
	c->due_us = 0;
	restore_again(l, c->worker);
	if (c->worker == 0) {
		l->init_next = l->init_base = l->init_out = 0;
		memset(l->init, 0, sizeof(l->init));
		l->set_done = false;
	}
}

static void
take_session(struct lane *l, struct control *c, const struct pbox_worker_session *s)
{
	struct testps *t = l->t;
	struct session *x = &t->session;

	if (c->sessions == 0)
		l->waiting--; /* for the first one */
	c->sessions = s->times;
	t->token[c->worker] = s->token;
	if (s->keys != NULL)
		t->keys[c->worker] = *s->keys;
	if (c->worker != 0)
		return;
	*x = (struct session){.job = s->job,
		.endpoints = s->endpoints,
		.window = s->window,
		.mtu = s->mtu,
		.incarnation = s->incarnation,
		.lease_ms = s->lease_ms,
		.tags = s->keys != NULL};
	for (unsigned e = 0; e < s->endpoints; e++)
		x->endpoint[e] = *pbox_worker_endpoint(c->w, e);
}

static void
control_look(struct lane *l, struct control *c)
{
	enum pbox_worker_state state = pbox_worker_state(c->w);
	struct pbox_worker_session s;

	for (struct pbox_worker_request *r = pbox_worker_answered(c->w); r != NULL; r = NULL)
		on_answer(l, c); /* it has no other */
	if (c->leaving || state == PBOX_WORKER_OPENING)
		return;
	if (state == PBOX_WORKER_FAILED) {
		lane_fail(l, "worker %u: %s", c->worker, pbox_worker_error(c->w)->text);
	} else if (!pbox_worker_session(c->w, &s)) {
		fall(l, c);
	} else {
		if (c->sessions != s.times) {
			fall(l, c);
			take_session(l, c, &s);
		}
		if (c->level == LEVEL_NONE) {
			c->level = LEVEL_JOINED;
			c->first = 0;
		}
	}
}

static void
control_serve(struct lane *l, struct control *c)
{
	uint64_t due = pbox_worker_tick(c->w, control_clock_ns(l), control_clock_ns(l));

	c->tick_us = due / 1000 + 1;
	control_look(l, c);
	if (c->leaving && pbox_worker_state(c->w) == PBOX_WORKER_FAILED)
		c->left = true;
}

/* Once a session is lost nobody declares anything until main has said that it is to be restored. */
static bool
may_step(const struct lane *l, const struct control *c, int wanted)
{
	return !c->asking && c->due_us <= l->now && c->level < wanted && l->waiting < AT_ONCE &&
	       !atomic_load(&l->failed) && !atomic_load(&l->lost);
}

/* Levels are reached again, by who has a session: what was declared in one that is there is declared again. */
static void
control_forget(struct lane *l)
{
	for (unsigned k = 0; k < l->workers; k++)
		fall(l, &l->c[k]);
	l->rejoins = true;
	atomic_store(&l->level, LEVEL_NONE);
	atomic_store(&l->lost, false);
	atomic_store(&l->forget, false);
}

void
control_tick(struct lane *l)
{
	int wanted = atomic_load(&l->level_wanted), lowest = LEVEL_READY;
	unsigned gone = 0;

	if (l->c == NULL)
		return;
	if (atomic_load(&l->forget))
		control_forget(l);
	for (unsigned k = 0; k < l->workers; k++) {
		struct control *c = &l->c[k];

		if (wanted != LEVEL_LEFT && may_step(l, c, wanted))
			control_step(l, c);
		else if (wanted == LEVEL_LEFT && c->opened && !c->leaving &&
			 (l->waiting < AT_ONCE || c->asking || c->sessions == 0))
			leave(l, c);
		if (c->opened && !c->left &&
			(l->now >= c->tick_us || (c->level == LEVEL_NONE && wanted > LEVEL_NONE)))
			control_serve(l, c);
		if (c->level < lowest)
			lowest = c->level;
		gone += c->left || !c->opened;
	}
	atomic_store(&l->level, lowest);
	atomic_store(&l->left, gone);
}

void
control_frame(struct lane *l, unsigned worker, const uint8_t *frame, size_t len,
	const struct sockaddr_in *from)
{
	struct control *c = l->c != NULL ? &l->c[worker / l->t->lanes] : NULL;
	const struct pbox_client_rx rx = {.data = frame, .len = (uint32_t)len, .from = *from};
	int wanted = atomic_load(&l->level_wanted);

	if (c == NULL || !c->opened || c->left)
		return;
	pbox_worker_rx(c->w, &rx, 1, control_clock_ns(l));
	control_serve(l, c);
	/* the next step at once, not at the next tick */
	if (wanted != LEVEL_LEFT && c->level != LEVEL_MAPPED && may_step(l, c, wanted)) {
		control_step(l, c);
		control_serve(l, c);
	}
}
