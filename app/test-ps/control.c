/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What workers do beside rounds. Sessions and tables are those of lib/worker, which joins, declares, repeats requests, and
 * joins again when a session was lost; here each worker is at a level, and asks for one thing after another until it has
 * reached the level that main wants. Only some of a lane's workers ask at a time: a box refuses too many at once.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "testps.h"

#define AT_ONCE 32
#define WINDOW  4096                    /* asked for if the user says nothing */
#define JOIN_NS UINT64_C(3600000000000) /* main has a deadline of its own */

/* lib/worker's clock is never 0. */
static uint64_t
control_clock_ns(const struct lane *l)
{
	return l->now * 1000 | 1;
}

/* ---- what lib/worker sends: all to the control endpoint ------------------------------------------ */

/* The box has named another one: jobs are at several there, and a lane's plan is of one. */
static void
control_fleet(struct lane *l)
{
	const uint8_t *b = (const uint8_t *)&l->t->box_ip;

	lane_fail(l,
		"%u.%u.%u.%u is one of several boxes that share each job ('boxes' in its configuration), and the fast path of rounds tests one box alone: start it without 'boxes' for this test, or take --worker library --box ADDRESS,ADDRESS,..., or measure all of them together with pbox-perf ADDRESS,ADDRESS,...",
		b[0], b[1], b[2], b[3]);
}

static void
control_port_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	const struct control *c = ctx;
	struct lane *l = c->l;

	for (unsigned i = 0; i < n; i++)
		if (d[i].to->addr.sin_addr.s_addr != l->t->box_ip) {
			control_fleet(l);
			return;
		}
	for (unsigned i = 0; i < n; i++) {
		lane_datagram(l, c->worker, &l->t->control_to[c->worker], &d[i]);
		lane_count(l, LS_CONTROL, 1);
	}
}

uint64_t
control_port_random(void *ctx __rte_unused)
{
	uint64_t x;

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
	c->port = (struct pbox_worker_ops){.send = control_port_send,
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
		pbox_worker_table_free(l->c[k].table.table);
		if (l->c[k].w != NULL)
			pbox_worker_destroy(l->c[k].w);
	}
	free(l->c);
	l->c = NULL;
}

/* ---- the table ---------------------------------------------------------------------------------- */

int
control_table(struct testps *t, struct pbox_error *err)
{
	bool optimise = t->now.optimiser != PBOX_OPT_NONE;
	bool clock = t->opt.discipline == PBOX_DISCIPLINE_CLOCK;

	free(t->tensor);
	t->tensor = calloc(t->model.n, sizeof(*t->tensor));
	if (t->tensor == NULL)
		return pbox_fail(err, ENOMEM, "no memory for %u tensors", t->model.n);
	for (unsigned i = 0; i < t->model.n; i++)
		t->tensor[i] = (struct pbox_client_tensor){
			.name = t->model.tensor[i].name, .elements = t->model.tensor[i].elements};
	t->table = (struct pbox_client_table){.size = sizeof(t->table),
		.mode = optimise ? PBOX_MODE_OPTIMISER : PBOX_MODE_ALLREDUCE,
		.op = optimise && !clock ? PBOX_OP_MEAN : PBOX_OP_SUM,
		.discipline = (uint8_t)t->opt.discipline,
		.optimiser = t->now.optimiser,
		.push_format = t->now.push,
		.pull_format = t->now.pull,
		.n = t->model.n,
		.tensors = t->tensor,
		.first_round = t->opt.worker == TESTPS_LIBRARY ? 0 : PBOX_CLIENT_ROUND_ANY};
	return 0;
}

static void
control_declare(struct lane *l, struct control *c)
{
	c->table = (struct pbox_worker_declaration){
		.what = &l->t->table, .own_data = true, .restores = l->rejoins};
	c->asking = ASKING_TABLE;
	c->tick_us = 0;
	l->waiting++;
	pbox_worker_declare(c->w, &c->table);
}

static void
take_map(struct lane *l, const struct pbox_worker_table *table)
{
	struct map *m = &l->t->map;
	struct pbox_worker_chunk *chunk;
	struct pbox_worker_table_info info;

	pbox_worker_table_info(table, &info);
	chunk = calloc(info.chunks, sizeof(*chunk));
	if (chunk == NULL) {
		lane_fail(l, "no memory for a map of %u chunks", info.chunks);
		return;
	}
	for (uint32_t i = 0; i < info.chunks; i++) {
		pbox_worker_chunk(table, i, &chunk[i]);
		if (chunk[i].id != chunk[0].id + i)
			lane_fail(l, "the box's map contradicts itself at chunk %u", i);
	}
	free(m->chunk);
	*m = (struct map){.info = info, .chunk = chunk};
}

static void
control_refused(struct lane *l, const struct control *c, const struct pbox_client_error *err)
{
	lane_fail(l, "worker %u: %s%s", c->worker, err->text,
		err->code == PBOX_C_MEMORY && l->t->loopback != NULL
			? "; the box is in this process: quit, and begin with a larger --memory, and with that much more for EAL (-m)"
			: "");
}

/* What it has asked for has an answer, or is not wanted any more. */
static void
end_asking(struct lane *l, struct control *c)
{
	if (c->asking == ASKING_REQUEST)
		pbox_worker_request_cancel(c->w, &c->request);
	if (c->asking == ASKING_TABLE) {
		pbox_worker_declare_cancel(c->w, &c->table);
		pbox_worker_table_free(c->table.table);
		c->table.table = NULL;
	}
	l->waiting -= c->asking != ASKING_NOTHING;
	c->asking = ASKING_NOTHING;
}

/* The map is the same for all, and comes when all have declared: worker 0 waits for it, the others have done their part. */
static void
look_at_table(struct lane *l, struct control *c)
{
	if (c->table.state == PBOX_WORKER_REFUSED)
		control_refused(l, c, &c->table.err);
	else if (c->table.state == PBOX_WORKER_DECLARING && (c->worker == 0 || !c->table.asks_map))
		return;
	else if (c->worker == 0)
		take_map(l, c->table.table);
	if (c->table.state != PBOX_WORKER_REFUSED)
		c->level = LEVEL_MAPPED;
	end_asking(l, c);
}

/* ---- requests --------------------------------------------------------------------------------- */

static void
control_ask(struct lane *l, struct control *c, enum pbox_type type, size_t len)
{
	c->request = (struct pbox_worker_request){.type = (uint8_t)type,
		.payload = c->payload,
		.length = (uint16_t)len,
		.answer = c->answer,
		.answer_cap = sizeof(c->answer)};
	c->asking = ASKING_REQUEST;
	c->tick_us = 0;
	l->waiting++;
	pbox_worker_request(c->w, &c->request);
}

static void
ask_set(struct lane *l, struct control *c)
{
	struct pbox_set m = {.group = PBOX_ALL_GROUPS,
		/* R10.4: a box that was started again begins with version 0 */
		.from_round = l->rejoins ? 1 : l->t->plan.round + 1,
		.count = 1};
	struct pbox_hyper h;

	reference_hyper(&h, l->t->now.optimiser);
	m.param[0].id = PBOX_HYPER_LR;
	m.param[0].value = h.lr;
	if (h.momentum > 0) {
		m.param[1].id = PBOX_HYPER_MOMENTUM;
		m.param[1].value = h.momentum;
		m.count = 2;
	}
	control_ask(l, c, PBOX_SET, pbox_set_encode(c->payload, sizeof(c->payload), &m));
}

static void
look_at_answer(struct lane *l, struct control *c)
{
	struct pbox_client_error err;
	struct pbox_error_msg m;

	if (c->leaving) {
		c->left = true;
	} else if (pbox_worker_result(&c->request, PBOX_SET_OK, "setting the learning rate",
			   pbox_worker_error(c->w), &err) == 0) {
		l->set_done = true;
	} else if (l->rejoins && pbox_error_decode(c->answer, c->request.answer_len, &m) == 0 &&
		   (m.code == PBOX_E_SET_LATE || m.code == PBOX_E_SET_ORDER)) {
		l->set_done = true; /* a box that was not started again has it */
	} else {
		control_refused(l, c, &err);
	}
	end_asking(l, c);
}

/* ---- a worker's next step ---------------------------------------------------------------------- */

static void
leave(struct lane *l, struct control *c)
{
	struct pbox_worker_session s;

	c->leaving = true;
	end_asking(l, c);
	l->waiting -= c->sessions == 0;
	c->left = !pbox_worker_session(c->w, &s);
	pbox_worker_shut(c->w);
	if (!c->left)
		control_ask(l, c, PBOX_LEAVE, 0);
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
		control_declare(l, c);
		break;
	case LEVEL_MAPPED:
		if (optimises && !l->set_done)
			ask_set(l, c);
		else if (l->rejoins && c->holdings.type != PBOX_INIT &&
			 !restore_turn(l, c, PBOX_RESTORE))
			break;
		else if (!optimises || restore_turn(l, c, PBOX_INIT))
			c->level = LEVEL_READY;
		break;
	default:
		break;
	}
}

/* ---- sessions ----------------------------------------------------------------------------------- */

/* What was reached in a session is lost with it. If rounds are under way main has the workers join again (rejoin.c). */
static void
fall(struct lane *l, struct control *c)
{
	if (c->level == LEVEL_READY)
		atomic_store(&l->lost, true);
	end_asking(l, c);
	c->level = LEVEL_NONE;
	c->holdings = (struct holdings){0};
	if (c->worker == 0)
		l->set_done = false;
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

	if (pbox_worker_answered(c->w) != NULL) /* it has no other */
		look_at_answer(l, c);
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
		if (c->level == LEVEL_NONE)
			c->level = LEVEL_JOINED;
		if (c->asking == ASKING_TABLE)
			look_at_table(l, c);
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
	return c->asking == ASKING_NOTHING && c->level < wanted && l->waiting < AT_ONCE &&
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
			 (l->waiting < AT_ONCE || c->asking != ASKING_NOTHING || c->sessions == 0))
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
