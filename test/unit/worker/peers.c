/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdlib.h>

#include <sodium.h>

#include "unit.h"

#include "peers.h"

struct peer peer[WORLD_WORKERS];
bool (*peers_lose)(const struct packet *p);

static unsigned peers;

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
peer_open(struct peer *p, const struct peers_conf *pc)
{
	struct pbox_client_conf conf = {.size = sizeof(conf),
		.job = "job",
		.secret = "key",
		.host = "host",
		.worker = (int)p->number,
		.workers = pc->workers,
		.timeout_ms = 60000,
		.join_timeout_ms = 60000,
		.keep_copies = 1,
		.slots = pc->slots,
		.policy = pc->policy};
	struct sockaddr_in box = {.sin_family = AF_INET, .sin_port = htons(CONTROL)};

	box.sin_addr.s_addr = htonl(0x0A000001);
	p->port = (struct pbox_worker_ops){.path_known = pc->path_known,
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

	CU_ASSERT_FATAL(p->may_fail || pbox_worker_state(p->w) != PBOX_WORKER_FAILED);
	p->due = due > world.now ? due : world.now + 20 * US;
}

void
peers_datagram(struct peer *to, uint16_t from, const uint8_t *data, uint32_t len)
{
	struct pbox_client_rx rx = {.data = data, .len = len};

	rx.from.sin_family = AF_INET;
	rx.from.sin_addr.s_addr = htonl(0x0A000001);
	rx.from.sin_port = htons(from);
	pbox_worker_rx(to->w, &rx, 1, world.now);
	to->due = world.now;
}

/* ---- all of them ------------------------------------------------------------------------------------- */

void
peers_step(uint64_t *tick)
{
	uint64_t next = *tick;

	if (world.net != NULL && world.net->at < next)
		next = world.net->at;
	for (unsigned i = 0; i < peers; i++)
		if (!peer[i].stopped && peer[i].due < next)
			next = peer[i].due;
	if (next > world.now)
		world.now = next;
	while (world.net != NULL && world.net->at <= world.now) {
		struct packet *p = world.net;

		world.net = p->next;
		if (peers_lose == NULL || !peers_lose(p)) {
			if (p->port == 0 && !peer[p->worker].stopped)
				peers_datagram(&peer[p->worker], p->from, p->data, p->len);
			else if (p->port != 0 && world.up)
				world_box_datagram(p);
		}
		free(p);
	}
	for (unsigned i = 0; i < peers; i++)
		if (!peer[i].stopped && peer[i].due <= world.now)
			peer_turn(&peer[i]);
	if (world.now >= *tick) {
		if (world.up)
			world_box_tick();
		*tick = world.now + 10 * MS;
	}
}

void
peers_await_sessions(uint32_t times, uint64_t *tick)
{
	struct pbox_worker_session s;

	for (unsigned i = 0; i < peers; i++)
		while (!pbox_worker_session(peer[i].w, &s) || s.times != times)
			peers_step(tick);
}

void
peers_begin(const struct peers_conf *conf)
{
	CU_ASSERT_FATAL(sodium_init() >= 0 && conf->workers <= WORLD_WORKERS);
	world_begin(conf->tags);
	memset(peer, 0, sizeof(peer));
	peers = conf->workers;
	peers_lose = NULL;
	for (unsigned i = 0; i < peers; i++) {
		peer[i].number = i;
		peer_open(&peer[i], conf);
	}
}

void
peers_end(void)
{
	for (unsigned i = 0; i < peers; i++)
		pbox_worker_destroy(peer[i].w);
	world_end();
}

void
peers_set_lr_from(unsigned i, double lr, uint32_t round, uint64_t *tick)
{
	const struct pbox_set m = {.group = PBOX_ALL_GROUPS,
		.count = 1,
		.from_round = round,
		.param = {{PBOX_HYPER_LR, lr}}};
	uint8_t payload[64], answer[64];
	struct pbox_worker_request r = {.type = PBOX_SET,
		.payload = payload,
		.length = (uint16_t)pbox_set_encode(payload, sizeof(payload), &m),
		.answer = answer,
		.answer_cap = sizeof(answer)};

	pbox_worker_request(peer[i].w, &r);
	peer[i].due = world.now;
	while (pbox_worker_answered(peer[i].w) == NULL)
		peers_step(tick);
	UNIT_EQ_U64(r.answer_type, PBOX_SET_OK);
}

void
peers_set_lr(unsigned i, uint64_t *tick)
{
	peers_set_lr_from(i, 1, 1, tick);
}
