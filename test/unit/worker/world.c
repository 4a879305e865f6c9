/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_auth.h>

#include "unit.h"

#include "world.h"

#define REGION (8u << 20)

struct world world;

static uint8_t region[REGION] __attribute__((aligned(PBOX_CACHE_LINE)));
static const struct pbox_engine_endpoint endpoint[SHARDS] = {
	{.addr = {.ipv4 = {10, 0, 0, 1}, .udp = 7270}, .shard = 0},
	{.addr = {.ipv4 = {10, 0, 0, 1}, .udp = 7271}, .shard = 1},
};

uint64_t
world_draw(void)
{
	world.x ^= world.x << 13;
	world.x ^= world.x >> 7;
	world.x ^= world.x << 17;
	return world.x;
}

/* ---- the network ------------------------------------------------------------------------------ */

static void
put(struct packet *p)
{
	struct packet **at = &world.net;

	p->at = world.now + 20 * US + (world.steady ? 0 : world_draw() % (40 * US));
	while (*at != NULL && (*at)->at <= p->at)
		at = &(*at)->next;
	p->next = *at;
	*at = p;
}

void
world_post(unsigned worker, unsigned port, uint16_t from, const uint8_t *data, uint32_t len)
{
	struct packet *p = malloc(sizeof(*p) + len);

	CU_ASSERT_FATAL(p != NULL);
	*p = (struct packet){.worker = worker, .port = port, .from = from, .len = len};
	memcpy(p->data, data, len);
	put(p);
}

/* ---- the box ------------------------------------------------------------------------------------ */

static void
box_send(void *ctx, const struct pbox_send *s)
{
	uint16_t from = (uint16_t)(uintptr_t)ctx;
	unsigned worker = (ntohl(s->peer->ip) & 0xFF) - 1;
	uint8_t frame[PBOX_HDR_LEN + 2048 + PBOX_TAG_LEN];
	uint32_t len = PBOX_HDR_LEN + s->hdr.length;

	CU_ASSERT_FATAL(worker < WORLD_WORKERS && s->hdr.length <= 2048);
	pbox_frame_encode(frame, &s->hdr, s->payload_crc);
	pbox_send_payload(frame + PBOX_HDR_LEN, s);
	if (s->tag_key != NULL) {
		pbox_auth_tag(s->tag_key, frame, s->digest, frame + len);
		len += PBOX_TAG_LEN;
	}
	world_post(worker, 0, from, frame, len);
}

static void
box_release(void *ctx, void *const *handle, unsigned n)
{
	(void)ctx;
	for (unsigned i = 0; i < n; i++)
		free(handle[i]);
}

static void
box_shard_mail(void *ctx, const struct pbox_mail *m)
{
	(void)ctx;
	pbox_registrar_mail(world.registrar, m, world.now);
}

static void
box_post(void *ctx, const struct pbox_mail *m)
{
	(void)ctx;
	pbox_shard_mail(world.shard[m->shard], m, world.now);
}

static void
box_random(void *ctx, void *buf, size_t n)
{
	(void)ctx;
	for (size_t i = 0; i < n; i++)
		((uint8_t *)buf)[i] = (uint8_t)world_draw();
}

static void
box_event(void *ctx, enum pbox_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	(void)text;
}

static int
box_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	(void)ctx;
	(void)job;
	(void)t;
	(void)restoring;
	return -2; /* no snapshot */
}

static const struct pbox_shard_ops shard_ops = {box_send, box_release, box_shard_mail};
static const struct pbox_registrar_ops registrar_ops = {
	box_send, box_post, box_random, box_event, box_restore};

void
world_box_start(void)
{
	static struct pbox_job_conf job = {
		.name = "job", .secret = "key", .secret_len = 3, .policy = PBOX_POLICY_ANY};
	struct pbox_registrar_conf conf = {
		.incarnation = (uint32_t)++world.incarnation,
		.first_run = pbox_registrar_first_run(world.now),
		.max_jobs = 4,
		.max_workers = 64,
		.chunk_elements = 512,
		.lease_ms = 5000,
		.mtu = 1500,
		.hold = 256,
		.n_shards = SHARDS,
		.endpoint = endpoint,
		.n_endpoints = SHARDS,
		.job = &job,
		.n_jobs = 1,
		.ops = &registrar_ops,
		.ctx = (void *)(uintptr_t)CONTROL,
		.stats = world.rs,
	};

	job.auth = world.tags;
	memset(region, 0, sizeof(region));
	memset(world.rs, 0, sizeof(world.rs));
	memset(world.ss, 0, sizeof(world.ss));
	conf.arena[0] = world.arena = pbox_arena_create(region, sizeof(region));
	for (unsigned i = 0; i < SHARDS; i++) {
		struct pbox_shard_conf sc = {
			.id = (uint16_t)i,
			.incarnation = conf.incarnation,
			.max_jobs = conf.max_jobs,
			.mtu = conf.mtu,
			.endpoint = endpoint,
			.n_endpoints = SHARDS,
			.reduce = &pbox_reduce_scalar,
			.optim = &pbox_optim_scalar,
			.ops = &shard_ops,
			.ctx = (void *)(uintptr_t)endpoint[i].addr.udp,
			.stats = world.ss[i],
		};

		world.shard[i] = pbox_shard_create(&sc);
		CU_ASSERT_FATAL(world.shard[i] != NULL);
	}
	world.registrar = pbox_registrar_create(&conf);
	CU_ASSERT_FATAL(world.registrar != NULL);
	world.heard = world.now;
	world.up = true;
}

void
world_box_crash(void)
{
	if (!world.up)
		return;
	for (unsigned i = 0; i < SHARDS; i++)
		pbox_shard_destroy(world.shard[i]);
	pbox_registrar_destroy(world.registrar);
	pbox_arena_destroy(world.arena);
	world.up = false;
}

static void
box_frame(const struct packet *p, const uint8_t *at, const struct pbox_hdr *h, size_t size)
{
	struct pbox_frame f = {.hdr = *h,
		.peer = {.ip = htonl(0x0A000100u + p->worker + 1),
			.udp = (uint16_t)(5000 + p->worker)}};
	uint8_t *copy = malloc(size);

	CU_ASSERT_FATAL(copy != NULL);
	memcpy(copy, at, size);
	f.payload = copy + PBOX_HDR_LEN;
	f.handle = copy;
	memcpy(&f.peer.local_ip, endpoint[0].addr.ipv4, 4);
	if (p->port == CONTROL) {
		pbox_registrar_rx(world.registrar, &f, world.now);
		free(copy);
	} else if ((pbox_shard_rx(world.shard[p->port - 7270], &f, 1, world.now) & 1) == 0) {
		free(copy);
	}
}

void
world_box_datagram(const struct packet *p)
{
	const uint8_t *at = p->data;
	size_t len = p->len;

	for (bool first = true; len > 0; first = false) {
		struct pbox_hdr h;
		size_t size = 0;

		if (pbox_frame_decode(at, len, first, &h, &size) != PBOX_WIRE_OK || size > len)
			return;
		box_frame(p, at, &h, size);
		at += size;
		len -= size;
	}
}

void
world_box_tick(void)
{
	while (world.heard < world.now) {
		uint64_t left = world.now - world.heard;

		world.heard += left < 50 * MS ? left : 50 * MS;
		pbox_registrar_heard(world.registrar, world.heard);
	}
	pbox_registrar_tick(world.registrar, world.now);
	while (pbox_registrar_work(world.registrar, world.now))
		;
}

/* ---- all of it ---------------------------------------------------------------------------------- */

void
world_begin(bool tags)
{
	world = (struct world){.x = UINT64_C(0x9E3779B97F4A7C15),
		.now = WORLD_BEGIN,
		.tags = tags,
		.incarnation = 0xB000};
	world_box_start();
}

void
world_end(void)
{
	world_box_crash();
	for (struct packet *p; (p = world.net) != NULL; free(p))
		world.net = p->next;
}
