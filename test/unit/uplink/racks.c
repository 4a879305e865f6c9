/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include <pbox_registrar_snapshot.h>

#include "unit.h"

#include "racks.h"

#define CONTROL 7269
#define REGION  (16u << 20)
/* IPv4: 10.0.0.1 + i are boxes, 10.0.1.1 + i workers; an uplink has the address of its box, and port UPLINK - i. */
#define BOX_IP    0x0A000001u
#define WORKER_IP 0x0A000101u
#define UPLINK    7268

struct packet {
	struct packet *next;
	uint64_t at;
	uint32_t from_ip, to_ip;
	uint16_t from, to;
	uint32_t len;
	uint8_t data[];
};

struct racks racks;
static struct packet *net;
static struct pbox_engine_endpoint endpoint[1 + RACKS_MAX][SHARDS];

static uint64_t
draw(void)
{
	racks.x ^= racks.x << 13;
	racks.x ^= racks.x >> 7;
	racks.x ^= racks.x << 17;
	return racks.x;
}

static void
put(const struct packet *from, uint64_t at)
{
	struct packet *p = malloc(sizeof(*p) + from->len), **to = &net;

	CU_ASSERT_FATAL(p != NULL);
	memcpy(p, from, sizeof(*p) + from->len);
	p->at = at;
	while (*to != NULL && (*to)->at <= at)
		to = &(*to)->next;
	p->next = *to;
	*to = p;
}

static void
post(uint32_t from_ip, uint16_t from, uint32_t to_ip, uint16_t to, const uint8_t *data,
	uint32_t len)
{
	struct packet *p;

	racks.datagrams++;
	racks.up_datagrams += to_ip == BOX_IP;
	if (draw() % 100 < racks.conf.loss) {
		racks.lost++;
		return;
	}
	p = malloc(sizeof(*p) + len);
	CU_ASSERT_FATAL(p != NULL);
	*p = (struct packet){
		.from_ip = from_ip, .from = from, .to_ip = to_ip, .to = to, .len = len};
	memcpy(p->data, data, len);
	put(p, racks.now + 20 * US + draw() % (200 * US));
	if (racks.conf.loss > 0 && draw() % 20 == 0) /* a copy, much later */
		put(p, racks.now + draw() % (20 * MS));
	free(p);
}

/* ---- boxes --------------------------------------------------------------------------------------- */

static struct box *
box_of(void *ctx)
{
	return &racks.box[(uintptr_t)ctx >> 16];
}

static void *
ctx_of(const struct box *b, uint16_t udp)
{
	return (void *)((uintptr_t)b->number << 16 | udp);
}

static void
box_send(void *ctx, const struct pbox_send *s)
{
	const struct box *b = box_of(ctx);
	uint8_t frame[PBOX_HDR_LEN + 2048];

	CU_ASSERT_FATAL(s->hdr.length <= 2048 && s->tag_key == NULL);
	pbox_frame_encode(frame, &s->hdr, s->payload_crc);
	pbox_send_payload(frame + PBOX_HDR_LEN, s);
	post(BOX_IP + b->number, (uint16_t)(uintptr_t)ctx, ntohl(s->peer->ip), s->peer->udp, frame,
		PBOX_HDR_LEN + s->hdr.length);
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
	pbox_registrar_mail(box_of(ctx)->registrar, m, racks.now);
}

static void
box_post(void *ctx, const struct pbox_mail *m)
{
	pbox_shard_mail(box_of(ctx)->shard[m->shard], m, racks.now);
}

static void
box_random(void *ctx, void *buf, size_t n)
{
	(void)ctx;
	for (size_t i = 0; i < n; i++)
		((uint8_t *)buf)[i] = (uint8_t)draw();
}

static void
box_event(void *ctx, enum pbox_log_level level, const char *text)
{
	if (getenv("RACKS_LOG") != NULL)
		fprintf(stderr, "%9.3f box %u: %s\n", (double)racks.now / 1e6, box_of(ctx)->number,
			text);
	if (level == PBOX_LOG_WARN || level == PBOX_LOG_ERROR)
		snprintf(racks.log, sizeof(racks.log), "%s", text);
}

static int
box_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	struct box *b = box_of(ctx);

	return b->uplinks != NULL ? pbox_uplinks_restore(b->uplinks, job, t, restoring) : -2;
}

static void
box_restore_cancel(void *ctx, const struct pbox_job *job, uint32_t table)
{
	pbox_uplinks_restore_cancel(box_of(ctx)->uplinks, job, table);
}

static int
box_uplink(void *ctx, const struct pbox_registrar_uplink *run, unsigned *window,
	struct pbox_error *err)
{
	return pbox_uplinks_uplink(box_of(ctx)->uplinks, run, racks.now, window, err);
}

static void
box_uplink_begin(void *ctx, const struct pbox_job *job, const uint8_t *run)
{
	pbox_uplinks_begin(box_of(ctx)->uplinks, job, run);
}

static void
box_uplink_restored(void *ctx, const struct pbox_job *job, const struct pbox_table *t)
{
	pbox_uplinks_restored(box_of(ctx)->uplinks, job, t);
}

static void
box_uplink_end(void *ctx, const struct pbox_job *job)
{
	struct box *b = box_of(ctx);

	if (b->uplinks != NULL)
		pbox_uplinks_end(b->uplinks, job, true, racks.now);
}

/* As from a ring: the shard is not entered from within itself. Every fifth time it is full. */
static bool
box_up(void *ctx, const struct pbox_up *up)
{
	if (draw() % 5 == 0)
		return false;
	pbox_uplinks_up(box_of(ctx)->uplinks, up);
	return true;
}

static const struct pbox_shard_ops shard_ops = {
	box_send, box_release, box_shard_mail, NULL, box_up};
static const struct pbox_registrar_ops registrar_ops = {.send = box_send,
	.post = box_post,
	.random = box_random,
	.event = box_event,
	.restore = box_restore,
	.restore_cancel = box_restore_cancel,
	.uplink = box_uplink,
	.uplink_begin = box_uplink_begin,
	.uplink_end = box_uplink_end,
	.uplink_restored = box_uplink_restored};

/* ---- their uplinks ------------------------------------------------------------------------------- */

static void
send_all(uint32_t ip, uint16_t from, const struct pbox_client_tx *d, unsigned n)
{
	uint8_t data[2048];

	for (unsigned i = 0; i < n; i++) {
		uint32_t len = 0;

		for (unsigned k = 0; k < d[i].n; k++) {
			CU_ASSERT_FATAL(len + d[i].iov[k].iov_len <= sizeof(data));
			memcpy(data + len, d[i].iov[k].iov_base, d[i].iov[k].iov_len);
			len += (uint32_t)d[i].iov[k].iov_len;
		}
		post(ip, from, ntohl(d[i].to->addr.sin_addr.s_addr), ntohs(d[i].to->addr.sin_port),
			data, len);
	}
}

static void
link_send(void *ctx, unsigned link, const struct pbox_client_tx *d, unsigned n)
{
	send_all(BOX_IP + ((struct box *)ctx)->number, (uint16_t)(UPLINK - link), d, n);
}

static uint64_t
link_random(void *ctx)
{
	(void)ctx;
	return draw();
}

static bool
link_down(void *ctx, const struct pbox_up *up)
{
	if (draw() % 5 == 0)
		return false;
	pbox_shard_down(((struct box *)ctx)->shard[up->shard], up, racks.now);
	return true;
}

static void
link_loaded(void *ctx, const struct pbox_job *job, uint32_t table, const struct pbox_error *err)
{
	pbox_registrar_loaded(((struct box *)ctx)->registrar, job, table, err, racks.now);
}

static void
link_failed(void *ctx, const struct pbox_job *job, const char *why)
{
	if (getenv("RACKS_LOG") != NULL)
		fprintf(stderr, "uplink failed: %s\n", why);
	pbox_registrar_uplink_failed(((struct box *)ctx)->registrar, job, why, racks.now);
}

static const struct pbox_uplinks_ops uplinks_ops = {
	link_send, link_random, link_down, link_loaded, link_failed};

static void
box_uplinks(struct box *b)
{
	struct pbox_uplinks_conf c = {
		.rack = {(uint16_t)(b->number - 1), (uint16_t)racks.conf.racks},
		.upper = {.sin_family = AF_INET, .sin_port = htons(CONTROL)},
		.mtu = 1500,
		.window = 64,
		.host = "rack",
		.ops = &uplinks_ops,
		.ctx = b};

	c.upper.sin_addr.s_addr = htonl(BOX_IP);
	b->uplinks = pbox_uplinks_create(&c);
	CU_ASSERT_FATAL(b->uplinks != NULL);
}

void
racks_start(unsigned number)
{
	static const struct pbox_job_conf job = {
		.name = "job", .secret = "key", .secret_len = 3, .policy = PBOX_POLICY_ANY};
	struct box *b = &racks.box[number];
	struct pbox_registrar_conf conf = {
		.incarnation = b->incarnation + 1,
		.first_run = pbox_registrar_first_run(racks.now),
		.max_jobs = 4,
		.max_workers = 64,
		.chunk_elements = 512,
		.lease_ms = 5000,
		.mtu = 1500,
		.hold = 512,
		.n_shards = SHARDS,
		.endpoint = endpoint[number],
		.n_endpoints = SHARDS,
		.job = &job,
		.n_jobs = 1,
		.ops = &registrar_ops,
		.stats = b->rs,
	};

	b->number = number;
	b->incarnation++;
	if (b->region == NULL)
		b->region = aligned_alloc(PBOX_CACHE_LINE, REGION);
	CU_ASSERT_FATAL(b->region != NULL);
	memset(b->region, 0, REGION);
	memset(b->rs, 0, sizeof(b->rs));
	memset(b->ss, 0, sizeof(b->ss));
	conf.ctx = ctx_of(b, CONTROL);
	conf.arena[0] = b->arena = pbox_arena_create(b->region, REGION);
	if (number > 0) {
		conf.rack = (struct pbox_registrar_rack){
			(uint16_t)(number - 1), (uint16_t)racks.conf.racks};
		box_uplinks(b);
	}
	for (unsigned i = 0; i < SHARDS; i++) {
		struct pbox_shard_conf sc = {
			.id = (uint16_t)i,
			.incarnation = conf.incarnation,
			.max_jobs = conf.max_jobs,
			.mtu = conf.mtu,
			.endpoint = endpoint[number],
			.n_endpoints = SHARDS,
			.reduce = &pbox_reduce_scalar,
			.optim = &pbox_optim_scalar,
			.ops = &shard_ops,
			.ctx = ctx_of(b, endpoint[number][i].addr.udp),
			.stats = b->ss[i],
		};

		b->shard[i] = pbox_shard_create(&sc);
		CU_ASSERT_FATAL(b->shard[i] != NULL);
	}
	b->registrar = pbox_registrar_create(&conf);
	CU_ASSERT_FATAL(b->registrar != NULL);
	b->heard = racks.now;
	b->up = true;
}

void
racks_crash(unsigned number)
{
	struct box *b = &racks.box[number];
	struct pbox_uplinks *u = b->uplinks;

	if (!b->up)
		return;
	b->uplinks = NULL;
	pbox_uplinks_destroy(u);
	for (unsigned i = 0; i < SHARDS; i++)
		pbox_shard_destroy(b->shard[i]);
	pbox_registrar_destroy(b->registrar);
	pbox_arena_destroy(b->arena);
	b->up = false;
}

static void
box_frame(struct box *b, const struct packet *p, const uint8_t *at, const struct pbox_hdr *h,
	size_t size)
{
	struct pbox_frame f = {.hdr = *h, .peer = {.ip = htonl(p->from_ip), .udp = p->from}};
	uint8_t *copy = malloc(size);

	CU_ASSERT_FATAL(copy != NULL);
	memcpy(copy, at, size);
	f.payload = copy + PBOX_HDR_LEN;
	f.handle = copy;
	f.peer.local_ip = htonl(BOX_IP + b->number);
	f.peer.local_udp = p->to;
	if (p->to == CONTROL) {
		pbox_registrar_rx(b->registrar, &f, racks.now);
		free(copy);
	} else if ((pbox_shard_rx(b->shard[p->to - 7270], &f, 1, racks.now) & 1) == 0) {
		free(copy);
	}
}

static void
datagram(void *data, uint32_t len, const struct packet *p, struct pbox_client_rx *rx)
{
	*rx = (struct pbox_client_rx){.data = data, .len = len};
	rx->from.sin_family = AF_INET;
	rx->from.sin_addr.s_addr = htonl(p->from_ip);
	rx->from.sin_port = htons(p->from);
}

static void
box_datagram(struct box *b, struct packet *p)
{
	const uint8_t *at = p->data;
	size_t len = p->len;

	if (!b->up)
		return;
	if (p->to <= UPLINK) {
		struct pbox_client_rx rx;

		datagram(p->data, p->len, p, &rx);
		if (b->uplinks != NULL)
			pbox_uplinks_rx(b->uplinks, UPLINK - p->to, &rx, 1, racks.now);
		return;
	}
	for (bool first = true; len > 0; first = false) {
		struct pbox_hdr h;
		size_t size = 0;

		if (pbox_frame_decode(at, len, first, &h, &size) != PBOX_WIRE_OK || size > len)
			return;
		box_frame(b, p, at, &h, size);
		at += size;
		len -= size;
	}
}

static void
box_tick(struct box *b)
{
	while (b->heard < racks.now) {
		uint64_t left = racks.now - b->heard;

		b->heard += left < 50 * MS ? left : 50 * MS;
		pbox_registrar_heard(b->registrar, b->heard);
	}
	pbox_registrar_tick(b->registrar, racks.now);
	while (pbox_registrar_work(b->registrar, racks.now))
		;
}

static void
box_turn(struct box *b)
{
	for (unsigned i = 0; i < SHARDS; i++)
		pbox_shard_pace(b->shard[i], racks.now);
	if (b->uplinks != NULL)
		pbox_uplinks_step(b->uplinks, racks.now);
}

/* ---- workers --------------------------------------------------------------------------------------- */

static void
port_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	const struct peer *p = ctx;

	send_all(WORKER_IP + p->number, 5000, d, n);
}

static uint64_t
port_random(void *ctx)
{
	(void)ctx;
	return draw();
}

void
racks_worker_open(unsigned i, const char *run)
{
	struct peer *p = &racks.peer[i];
	unsigned per = racks.conf.racks > 0 ? racks.conf.workers / racks.conf.racks : 1;
	struct pbox_client_conf conf = {.size = sizeof(conf),
		.job = "job",
		.secret = "key",
		.host = "host",
		.worker = (int)i,
		.workers = racks.conf.workers,
		.timeout_ms = 600000,
		.join_timeout_ms = 600000,
		.keep_copies = 1,
		.slots = racks.conf.slots,
		.run = run};
	struct sockaddr_in box = {.sin_family = AF_INET, .sin_port = htons(CONTROL)};

	p->number = i;
	p->box = racks.conf.racks > 0 ? 1 + i / per : 0;
	box.sin_addr.s_addr = htonl(BOX_IP + p->box);
	p->port = (struct pbox_worker_ops){.send = port_send,
		.random = port_random,
		.ctx = p,
		.mtu = 1500,
		.batch = 8,
		.window = 64};
	p->w = pbox_worker_create(&conf, &box, &p->port);
	CU_ASSERT_FATAL(p->w != NULL);
	p->due = racks.now;
	pbox_worker_open(p->w, racks.now, racks.now + 600 * SEC);
}

static void
peer_datagram(struct peer *p, struct packet *packet)
{
	struct pbox_client_rx rx;

	if (p->w == NULL)
		return;
	datagram(packet->data, packet->len, packet, &rx);
	pbox_worker_rx(p->w, &rx, 1, racks.now);
	p->due = racks.now;
}

static void
peer_turn(struct peer *p)
{
	uint64_t due = pbox_worker_tick(p->w, racks.now, racks.now);

	if (!p->may_fail && pbox_worker_state(p->w) == PBOX_WORKER_FAILED) {
		fprintf(stderr, "worker %u: %s\n", p->number, pbox_worker_error(p->w)->text);
		CU_FAIL_FATAL("a worker has failed");
	}
	p->due = due > racks.now ? due : racks.now + 20 * US;
}

/* ---- all of it --------------------------------------------------------------------------------------- */

void
racks_step(void)
{
	uint64_t next = racks.tick;

	if (net != NULL && net->at < next)
		next = net->at;
	for (unsigned i = 0; i < racks.conf.workers; i++)
		if (racks.peer[i].w != NULL && racks.peer[i].due < next)
			next = racks.peer[i].due;
	if (next > racks.now)
		racks.now = next;
	while (net != NULL && net->at <= racks.now) {
		struct packet *p = net;

		net = p->next;
		if (p->to_ip >= WORKER_IP && p->to_ip < WORKER_IP + racks.conf.workers)
			peer_datagram(&racks.peer[p->to_ip - WORKER_IP], p);
		else if (p->to_ip >= BOX_IP && p->to_ip <= BOX_IP + racks.conf.racks)
			box_datagram(&racks.box[p->to_ip - BOX_IP], p);
		free(p);
	}
	for (unsigned i = 0; i < racks.conf.workers; i++)
		if (racks.peer[i].w != NULL && racks.peer[i].due <= racks.now)
			peer_turn(&racks.peer[i]);
	for (unsigned i = 0; i <= racks.conf.racks; i++)
		if (racks.box[i].up)
			box_turn(&racks.box[i]);
	if (racks.now >= racks.tick) {
		for (unsigned i = 0; i <= racks.conf.racks; i++)
			if (racks.box[i].up)
				box_tick(&racks.box[i]);
		racks.tick = racks.now + 1 * MS;
	}
}

void
racks_begin(const struct racks_conf *conf)
{
	CU_ASSERT_FATAL(sodium_init() >= 0 && conf->workers <= WORKERS_MAX);
	memset(&racks, 0, sizeof(racks));
	racks.conf = *conf;
	racks.now = racks.tick = 1000 * SEC;
	racks.x = UINT64_C(0x9E3779B97F4A7C15) * (conf->seed + 1);
	for (unsigned b = 0; b <= conf->racks; b++)
		for (unsigned i = 0; i < SHARDS; i++)
			endpoint[b][i] = (struct pbox_engine_endpoint){
				.addr = {.ipv4 = {10, 0, 0, (uint8_t)(1 + b)},
					.udp = (uint16_t)(7270 + i)},
				.shard = (uint16_t)i};
	for (unsigned b = 0; b <= conf->racks; b++)
		racks_start(b);
	for (unsigned i = 0; i < conf->workers; i++)
		racks_worker_open(i, conf->run);
}

void
racks_end(void)
{
	for (unsigned i = 0; i < racks.conf.workers; i++)
		pbox_worker_destroy(racks.peer[i].w);
	for (unsigned b = 0; b <= racks.conf.racks; b++) {
		racks_crash(b);
		free(racks.box[b].region);
	}
	for (struct packet *p; (p = net) != NULL; free(p))
		net = p->next;
}
