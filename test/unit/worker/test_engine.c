/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdlib.h>

#include <sodium.h>

#include "worker_impl.h"

#include "unit.h"

#include "world.h"

/*
 * Workers without tables, and the engine as their box, in virtual time: what a host gets to know of its session, and what
 * a worker answers. Rounds, losses and restarts are the simulator's (test/sim).
 */

const char unit_suite[] = "worker: sessions with the engine";

struct peer {
	struct pbox_worker *w;
	struct pbox_worker_ops port;
	unsigned number;
	uint64_t due;
};

static struct peer peer[WORKERS];

/* ---- a worker --------------------------------------------------------------------------------------- */

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
	p->port = (struct pbox_worker_ops){.path_known = p->port.path_known,
		.send = port_send,
		.random = port_random,
		.ctx = p,
		.mtu = 1500,
		.batch = 8,
		.window = 64};
	p->w = pbox_worker_create(&conf, &box, &p->port);
	CU_ASSERT_FATAL(p->w != NULL);
	p->due = world.now;
	pbox_worker_open(p->w, world.now, world.now + 60 * SEC);
}

static void
peer_turn(struct peer *p)
{
	uint64_t due = pbox_worker_tick(p->w, world.now, world.now);

	CU_ASSERT_FATAL(pbox_worker_state(p->w) != PBOX_WORKER_FAILED);
	p->due = due > world.now ? due : world.now + 20 * US;
}

static void
peer_datagram(const struct packet *p)
{
	struct peer *to = &peer[p->worker];
	struct pbox_client_rx rx = {.data = p->data, .len = p->len};

	rx.from.sin_family = AF_INET;
	rx.from.sin_addr.s_addr = htonl(0x0A000001);
	rx.from.sin_port = htons(p->from);
	pbox_worker_rx(to->w, &rx, 1, world.now);
	to->due = world.now;
}

/* ---- the world ------------------------------------------------------------------------------------- */

/* The next thing that happens: a datagram, a worker's deadline, a tick of the box. */
static void
step(uint64_t *tick)
{
	uint64_t next = *tick;

	if (world.net != NULL && world.net->at < next)
		next = world.net->at;
	for (unsigned i = 0; i < WORKERS; i++)
		if (peer[i].due < next)
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
begin(bool tags, bool path_known)
{
	CU_ASSERT_FATAL(sodium_init() >= 0);
	world_begin(tags);
	memset(peer, 0, sizeof(peer));
	for (unsigned i = 0; i < WORKERS; i++) {
		peer[i].number = i;
		peer[i].port.path_known = path_known;
		peer_open(&peer[i]);
	}
}

static void
end(void)
{
	for (unsigned i = 0; i < WORKERS; i++)
		pbox_worker_destroy(peer[i].w);
	world_end();
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

		begin(false, false);
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
		end();
	}
}

static void
await_sessions(uint32_t times, uint64_t *tick)
{
	struct pbox_worker_session s;

	for (unsigned i = 0; i < WORKERS; i++)
		while (!pbox_worker_session(peer[i].w, &s) || s.times != times)
			step(tick);
}

/* Tables of hosts: the workers do not keep them. */
static void
own_tables(bool restores, uint64_t *tick)
{
	static const struct pbox_client_tensor tensor[] = {
		{.elements = 700}, {.elements = 1}, {.elements = 0}, {.elements = 1000}};
	static const struct pbox_client_table table = {.size = sizeof(table),
		.mode = PBOX_MODE_ALLREDUCE,
		.optimiser = PBOX_OPT_NONE,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = sizeof(tensor) / sizeof(tensor[0]),
		.tensors = tensor};
	struct pbox_worker_declaration declaration[WORKERS];
	struct pbox_worker_table_info info;
	struct pbox_worker_chunk chunk;

	for (unsigned i = 0; i < WORKERS; i++) {
		declaration[i] = (struct pbox_worker_declaration){
			.what = &table, .own_data = true, .restores = restores};
		pbox_worker_declare(peer[i].w, &declaration[i]);
		peer[i].due = world.now;
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		const struct pbox_worker_declaration *d = &declaration[i];

		while (d->state == PBOX_WORKER_DECLARING)
			step(tick);
		CU_ASSERT_FATAL(d->state == PBOX_WORKER_DECLARED);
		UNIT_EQ_U64(peer[i].w->tables, 0);
		UNIT_EQ_U64(d->table->flags, restores ? PBOX_DECLARE_RESTORE : 0);
		pbox_worker_table_info(d->table, &info);
		CU_ASSERT_FATAL(info.chunks > 0);
		for (uint32_t k = 0; k < info.chunks; k++) {
			pbox_worker_chunk(d->table, k, &chunk);
			CU_ASSERT(chunk.tensor < table.n && chunk.endpoint < SHARDS);
		}
		pbox_worker_table_free(d->table);
	}
}

/* A host with a data path of its own: what it is granted, and that the box has forgotten it, with its table. */
static void
test_session_of_host(void)
{
	struct pbox_worker_session first, then;
	uint64_t tick = WORLD_BEGIN;

	begin(true, true);
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
	await_sessions(1, &tick);
	own_tables(false, &tick);
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
	await_sessions(2, &tick);
	own_tables(true, &tick);
	end();
}

const struct unit_test unit_tests[] = {
	{"copies of PINGs", test_copies_of_pings},
	{"the session of a host with a data path", test_session_of_host},
	{NULL, NULL},
};
