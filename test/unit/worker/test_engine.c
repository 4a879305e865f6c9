/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include <sodium.h>

#include "worker_impl.h"

#include "unit.h"

#include "world.h"

/*
 * Workers and the engine in virtual time, on a network that loses, repeats, delays and damages, and the box crashes.
 * Nobody has anything but what went over the network, and each result is that of a reference, bit
 * for bit. Everything follows from one seed.
 */

const char unit_suite[] = "worker: with the engine, on a bad network";

#define TENSORS 5
#define TABLES  2
#define ROUNDS  6
#define BEGIN   (1000 * SEC)
#define LR      0.25f

static const uint32_t sizes[TENSORS] = {700, 1, 0, 1000, 299};
#define ELEMENTS 2000

enum stage { OPENING, DECLARING, SETTING, STARTING, WORKING, LEAVING, GONE, WITHOUT_TABLES };

struct peer {
	struct pbox_worker *w;
	struct pbox_worker_port port;
	unsigned number;
	enum stage stage;
	uint64_t due;
	struct pbox_worker_table *table[TABLES];
	unsigned tables;
	struct pbox_worker_declaration d;
	struct pbox_worker_request request;
	uint8_t payload[256], answer[1500];
	uint32_t round; /* the one in progress */
	struct pbox_worker_op *op[TABLES];
	unsigned open; /* of these */
	float in[TABLES][ELEMENTS], out[TABLES][ELEMENTS];
};

static struct peer peer[WORKERS];
static uint64_t restarts, restored, retransmitted;

/* ---- the reference --------------------------------------------------------------------------- */

/* Small whole numbers: their sums are exact, in whatever order. */
static float
contribution(unsigned worker, uint32_t round, uint32_t i)
{
	return (float)((i * 7 + round * 13 + worker * 5) % 32);
}

static float
initial(uint32_t i)
{
	return (float)(i % 100);
}

static float
sum_of(uint32_t round, uint32_t i)
{
	float sum = 0;

	for (unsigned w = 0; w < WORKERS; w++)
		sum += contribution(w, round, i);
	return sum;
}

/* Table 0 is summed; table 1 has its parameters on the box, and SGD. */
static float
expected(unsigned table, uint32_t round, uint32_t i)
{
	float v = initial(i);

	if (table == 0)
		return sum_of(round, i);
	for (uint32_t r = 1; r <= round; r++)
		v -= LR * sum_of(r, i);
	return v;
}

/* ---- a worker and its program --------------------------------------------------------------------- */

static void
port_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	struct peer *p = ctx;
	uint8_t data[2048];

	for (unsigned i = 0; i < n; i++) {
		uint32_t len = 0;

		for (unsigned k = 0; k < d[i].n; k++) {
			CU_ASSERT_FATAL(len + d[i].iov[k].iov_len <= sizeof(data));
			memcpy(data + len, d[i].iov[k].iov_base, d[i].iov[k].iov_len);
			len += (uint32_t)d[i].iov[k].iov_len;
		}
		UNIT_EQ_U64(len, d[i].bytes);
		CU_ASSERT(len <= p->port.mtu - 28);
		world_post(p->number, ntohs(d[i].to->addr.sin_port), 0, data, len);
	}
}

static uint64_t
port_random(void *ctx)
{
	(void)ctx;
	return world_draw();
}

static void
peer_open(struct peer *p)
{
	struct pbox_client_conf conf = {.size = sizeof(conf),
		.job = "job",
		.secret = "key",
		.host = "host",
		.worker = (int)p->number,
		.workers = WORKERS,
		.join_timeout_ms = 60000,
		.keep_copies = 1};
	struct sockaddr_in box = {.sin_family = AF_INET, .sin_port = htons(CONTROL)};

	box.sin_addr.s_addr = htonl(0x0A000001);
	p->port = (struct pbox_worker_port){.path_known = p->port.path_known,
		.send = port_send,
		.random = port_random,
		.ctx = p,
		.mtu = 1500,
		.batch = 8,
		.window = 64};
	p->w = pbox_worker_create(&conf, &box, &p->port);
	CU_ASSERT_FATAL(p->w != NULL);
	p->stage = OPENING;
	p->tables = 0;
	p->round = 0;
	p->open = 0;
	p->due = world.now;
	pbox_worker_open(p->w, world.now, world.now + 60 * SEC);
}

static void
peer_close(struct peer *p)
{
	struct pbox_client_stats stats;

	pbox_worker_stats(p->w, &stats);
	restarts += stats.restarts;
	restored += stats.restored_fragments;
	retransmitted += stats.retransmitted_frames;
	pbox_worker_destroy(p->w);
	p->w = NULL;
	for (unsigned t = 0; t < TABLES; t++) {
		free(p->op[t]);
		p->op[t] = NULL;
	}
}

static void
declare(struct peer *p)
{
	static struct pbox_client_tensor tensor[TENSORS];
	static struct pbox_client_table table[TABLES];
	unsigned t = p->tables;

	for (unsigned i = 0; i < TENSORS; i++)
		tensor[i] = (struct pbox_client_tensor){.elements = sizes[i]};
	table[t] = (struct pbox_client_table){.size = sizeof(table[t]),
		.mode = t == 0 ? PBOX_MODE_ALLREDUCE : PBOX_MODE_OPTIMISER,
		.optimiser = t == 0 ? PBOX_OPT_NONE : PBOX_OPT_SGD,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = TENSORS,
		.tensors = tensor};
	p->d = (struct pbox_worker_declaration){.what = &table[t]};
	pbox_worker_declare(p->w, &p->d);
	p->stage = DECLARING;
}

static void
submit(struct peer *p, unsigned t, enum pbox_client_kind kind)
{
	struct pbox_worker_op *op = calloc(1, sizeof(*op) + TENSORS * sizeof(op->e[0]));
	uint32_t at = 0;

	CU_ASSERT_FATAL(op != NULL);
	free(p->op[t]);
	p->op[t] = op;
	op->table = p->table[t];
	op->kind = (uint8_t)kind;
	op->weight = 1;
	op->round = p->round;
	op->n = TENSORS;
	for (unsigned i = 0; i < TENSORS; i++) {
		op->e[i] = (struct pbox_worker_entry){.op = op,
			.tensor = i,
			.in = (const uint8_t *)&p->in[t][at],
			.out = kind == PBOX_CLIENT_INIT ? NULL : (uint8_t *)&p->out[t][at]};
		at += sizes[i];
	}
	p->open++;
	pbox_worker_submit(p->w, op);
}

static void
request(struct peer *p, uint8_t type, size_t length)
{
	p->request = (struct pbox_worker_request){.type = type,
		.payload = p->payload,
		.length = (uint16_t)length,
		.answer = p->answer,
		.answer_cap = sizeof(p->answer)};
	pbox_worker_request(p->w, &p->request);
}

static void
set_lr(struct peer *p)
{
	struct pbox_set m = {.table = 1, .group = PBOX_ALL_GROUPS, .from_round = 1, .count = 1};

	m.param[0].id = 1;
	m.param[0].value = LR;
	p->stage = SETTING;
	request(p, PBOX_SET, pbox_set_encode(p->payload, sizeof(p->payload), &m));
}

static void
next_round(struct peer *p)
{
	if (p->round == ROUNDS) {
		p->stage = LEAVING;
		pbox_worker_shut(p->w);
		request(p, PBOX_LEAVE, 0);
		return;
	}
	p->stage = WORKING;
	p->round++;
	for (unsigned t = 0; t < TABLES; t++) {
		for (uint32_t i = 0; i < ELEMENTS; i++)
			p->in[t][i] = contribution(p->number, p->round, i);
		submit(p, t, PBOX_CLIENT_PUSHPULL);
	}
}

static void
check_round(const struct peer *p)
{
	for (unsigned t = 0; t < TABLES; t++)
		for (uint32_t i = 0; i < ELEMENTS; i++)
			if (p->out[t][i] != expected(t, p->round, i)) {
				printf("\n    worker %u table %u round %u element %u: %g, not %g; ",
					p->number, t, p->round, i, (double)p->out[t][i],
					(double)expected(t, p->round, i));
				CU_FAIL_FATAL("another result");
			}
}

/* What the worker has completed, and the program's next step. */
static void
peer_step(struct peer *p)
{
	struct pbox_worker_request *answered = pbox_worker_answered(p->w);

	if (pbox_worker_state(p->w) == PBOX_WORKER_FAILED && p->stage == LEAVING) {
		p->stage = GONE; /* its session had ended already: LEFT was lost */
		return;
	}
	if (pbox_worker_state(p->w) == PBOX_WORKER_FAILED) {
		printf("\n    worker %u: %s; ", p->number, pbox_worker_error(p->w)->text);
		CU_FAIL_FATAL("a worker has failed");
	}
	for (struct pbox_worker_op *op = pbox_worker_finished(p->w); op != NULL; op = op->next) {
		if (op->code != 0)
			printf("\n    worker %u: %s; ", p->number, op->text);
		CU_ASSERT_EQUAL_FATAL(op->code, 0);
		p->open--;
	}
	switch (p->stage) {
	case OPENING:
		if (pbox_worker_state(p->w) == PBOX_WORKER_OPEN)
			declare(p);
		break;
	case DECLARING:
		if (p->d.state == PBOX_WORKER_REFUSED)
			printf("\n    worker %u: %s; ", p->number, p->d.err.text);
		CU_ASSERT_FATAL(p->d.state != PBOX_WORKER_REFUSED);
		if (p->d.state != PBOX_WORKER_DECLARED)
			break;
		p->table[p->tables++] = p->d.table;
		if (p->tables < TABLES) {
			declare(p);
		} else if (p->number == 0) {
			set_lr(p);
		} else {
			next_round(p);
		}
		break;
	case SETTING:
		if (answered == NULL)
			break;
		UNIT_EQ_U64(answered->answer_type, PBOX_SET_OK);
		for (uint32_t i = 0; i < ELEMENTS; i++)
			p->in[1][i] = initial(i);
		p->stage = STARTING;
		submit(p, 1, PBOX_CLIENT_INIT);
		break;
	case STARTING:
		if (p->open == 0)
			next_round(p);
		break;
	case WORKING:
		if (p->open > 0)
			break;
		check_round(p);
		next_round(p);
		break;
	case LEAVING:
		if (answered != NULL)
			p->stage = GONE;
		break;
	case GONE:
	case WITHOUT_TABLES:
		break;
	}
}

static void
peer_turn(struct peer *p)
{
	uint64_t due;

	if (p->stage == GONE)
		return;
	peer_step(p);
	if (p->stage == GONE)
		return;
	due = pbox_worker_tick(p->w, world.now, world.now);
	peer_step(p);
	p->due = due > world.now ? due : world.now + 20 * US;
}

static void
peer_datagram(const struct packet *p)
{
	struct peer *to = &peer[p->worker];
	struct pbox_client_rx rx = {.data = p->data, .len = p->len};

	if (to->stage == GONE)
		return;
	rx.from.sin_family = AF_INET;
	rx.from.sin_addr.s_addr = htonl(0x0A000001);
	rx.from.sin_port = htons(p->from);
	pbox_worker_rx(to->w, &rx, 1, world.now);
	to->due = world.now;
}

/* ---- the world ------------------------------------------------------------------------------------- */

static bool
all_gone(void)
{
	for (unsigned i = 0; i < WORKERS; i++)
		if (peer[i].stage != GONE)
			return false;
	return true;
}

/* The next thing that happens: a datagram, a worker's deadline, a tick of the box. */
static void
step(uint64_t *tick)
{
	uint64_t next = *tick;

	if (world.net != NULL && world.net->at < next)
		next = world.net->at;
	for (unsigned i = 0; i < WORKERS; i++)
		if (peer[i].stage != GONE && peer[i].due < next)
			next = peer[i].due;
	if (next > world.now)
		world.now = next;
	while (world.net != NULL && world.net->at <= world.now) {
		struct packet *p = world.net;

		world.net = p->next;
		if (p->port == 0)
			peer_datagram(p);
		else if (world.up)
			world_box_datagram(p);
		free(p);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		if (peer[i].due <= world.now)
			peer_turn(&peer[i]);
	if (world.now >= *tick) {
		if (world.up)
			world_box_tick();
		*tick = world.now + 10 * MS;
	}
}

static void
run(uint64_t seed, const struct chaos *chaos)
{
	uint64_t tick, crash_at = 0, up_at = 0;
	unsigned crashes = 0;

	world_begin(seed, chaos, BEGIN);
	memset(peer, 0, sizeof(peer));
	restarts = restored = retransmitted = 0;
	for (unsigned i = 0; i < WORKERS; i++) {
		peer[i].number = i;
		peer_open(&peer[i]);
	}
	tick = world.now;
	while (!all_gone()) {
		if (world.now > BEGIN + 600 * SEC) {
			printf("\n    seed %llu: still at it after ten minutes; ",
				(unsigned long long)seed);
			CU_FAIL_FATAL("no progress");
		}
		/* when it has something to lose: in some round of worker 1 */
		if (crashes < chaos->crashes && world.up && crash_at == 0 &&
			peer[1].stage == WORKING && peer[1].round > crashes * 2)
			crash_at = world.now + world_draw() % (2 * MS);
		if (crash_at != 0 && world.now >= crash_at && world.up) {
			world_box_crash();
			crashes++;
			crash_at = 0;
			up_at = world.now + 100 * MS + world_draw() % (3 * SEC);
		}
		if (!world.up && world.now >= up_at)
			world_box_start();
		step(&tick);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		peer_close(&peer[i]);
	world_end();
}

static void
seeds(unsigned n, const struct chaos *chaos)
{
	CU_ASSERT_FATAL(sodium_init() >= 0);
	for (unsigned seed = 1; seed <= n; seed++)
		run(seed, chaos);
}

static void
test_calm(void)
{
	seeds(3, &(struct chaos){.loss = 0});
	UNIT_EQ_U64(restarts, 0);
}

static void
test_losses(void)
{
	seeds(100, &(struct chaos){.loss = 0.1, .repeat = 0.05, .late = 0.05});
	CU_ASSERT(retransmitted > 0);
}

static void
test_damage(void)
{
	seeds(50, &(struct chaos){.loss = 0.02, .damage = 0.1});
}

static void
test_tags(void)
{
	seeds(50, &(struct chaos){.loss = 0.05, .damage = 0.05, .tags = true});
}

static void
test_crashes(void)
{
	seeds(100, &(struct chaos){.crashes = 2});
	CU_ASSERT(restarts >= 2);
	CU_ASSERT(restored > 0);
}

static void
test_crashes_and_losses(void)
{
	seeds(200, &(struct chaos){
			   .loss = 0.1, .repeat = 0.05, .late = 0.05, .crashes = 2, .tags = true});
	CU_ASSERT(restored > 0);
}

/* A PING of the box that somebody has recorded, and sends forever: with and without a nonce to give back. */
static void
test_copies_of_pings(void)
{
	for (uint32_t nonce = 0; nonce < 2; nonce++) {
		struct peer *p = &peer[0];
		const struct session *s;
		uint8_t frame[PBOX_HDR_LEN];
		uint64_t tick, sent, until;

		world_begin(1, &(struct chaos){.loss = 0}, BEGIN);
		memset(peer, 0, sizeof(peer));
		for (unsigned i = 0; i < WORKERS; i++) {
			peer[i].number = i;
			peer_open(&peer[i]);
		}
		tick = world.now;
		while (pbox_worker_state(p->w) != PBOX_WORKER_OPEN)
			step(&tick);
		s = &p->w->box[0];
		pbox_frame_encode(frame,
			&(struct pbox_hdr){.type = PBOX_PING,
				.token = s->token,
				.job = s->job_number,
				.worker = p->w->worker,
				.incarnation = s->incarnation,
				.base = nonce},
			0);
		sent = p->w->link.tx_frames;
		until = world.now + SEC;
		for (; world.now < until; world.now += 100 * US) {
			struct pbox_client_rx rx = {.data = frame, .len = sizeof(frame)};

			rx.from = s->box.addr;
			pbox_worker_rx(p->w, &rx, 1, world.now);
		}
		pbox_worker_tick(p->w, world.now, world.now);
		sent = p->w->link.tx_frames - sent;
		CU_ASSERT(sent >= 50);  /* the box gets its answer */
		CU_ASSERT(sent <= 500); /* of 10,000 */
		for (unsigned i = 0; i < WORKERS; i++)
			peer_close(&peer[i]);
		world_end();
	}
}

/* A host with a data path of its own: what it is granted, and that the box has forgotten it. */
static void
test_session_of_host(void)
{
	struct pbox_worker_session first, then;
	uint64_t tick = BEGIN;

	world_begin(1, &(struct chaos){.tags = true}, BEGIN);
	memset(peer, 0, sizeof(peer));
	for (unsigned i = 0; i < WORKERS; i++) {
		peer[i].number = i;
		peer[i].port.path_known = true;
		peer_open(&peer[i]);
		peer[i].stage = WITHOUT_TABLES;
	}
	CU_ASSERT_FALSE(pbox_worker_session(peer[0].w, &first));
	while (!pbox_worker_session(peer[0].w, &first))
		step(&tick);
	UNIT_EQ_U64(peer[0].w->box[0].path.began, 0); /* nothing was asked of the path */
	UNIT_EQ_U64(first.times, 1);
	UNIT_EQ_U64(first.endpoints, SHARDS);
	UNIT_EQ_U64(first.incarnation, world.incarnation);
	UNIT_EQ_U64(first.mtu, 1500 - PBOX_TAG_LEN);
	CU_ASSERT(first.window > 0 && first.token != 0 && first.keys != NULL);
	UNIT_EQ_U64(ntohs(pbox_worker_endpoint(peer[0].w, 1)->sin_port), 7271);
	world_box_crash();
	world_box_start();
	while (pbox_worker_session(peer[0].w, &then) && then.times == 1)
		step(&tick);
	CU_ASSERT_FALSE(pbox_worker_session(peer[0].w, &then)); /* the old one is none */
	while (!pbox_worker_session(peer[0].w, &then))
		step(&tick);
	UNIT_EQ_U64(then.times, 2);
	UNIT_EQ_U64(then.incarnation, world.incarnation);
	CU_ASSERT(then.token != first.token);
	for (unsigned i = 0; i < WORKERS; i++)
		peer_close(&peer[i]);
	world_end();
}

const struct unit_test unit_tests[] = {
	{"a calm network", test_calm},
	{"losses, copies, delays", test_losses},
	{"damaged frames", test_damage},
	{"tags", test_tags},
	{"the box crashes", test_crashes},
	{"it crashes on a bad network", test_crashes_and_losses},
	{"copies of PINGs", test_copies_of_pings},
	{"the session of a host with a data path", test_session_of_host},
	{NULL, NULL},
};
