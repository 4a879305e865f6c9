/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include <pbox_registrar_operator.h>

#include "box_impl.h"

/* The engine behind kernel sockets: life cycle, time, what goes in and out. */

#define FRAME    65536
#define REGION   ((size_t)4 << 30) /* of addresses: what no table touches takes no memory */
#define GRACE_MS 600000
#define MS       UINT64_C(1000000)
#define SEC      UINT64_C(1000000000)

unsigned box_threads = 1;

/* ---- out ---------------------------------------------------------------------------------------- */

static uint64_t
now_ns(const struct box *b)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SEC + (uint64_t)t.tv_nsec + b->skew;
}

uint64_t
box_now(const struct box *b)
{
	return now_ns(b) / 1000;
}

bool
box_chance(struct box *b, double p)
{
	b->random ^= b->random << 13;
	b->random ^= b->random >> 7;
	b->random ^= b->random << 17;
	return p > 0 && (double)(b->random >> 11) < p * 9007199254740992.0;
}

static void
put(struct box *b, unsigned e, const struct sockaddr_in *to, const void *data, size_t len)
{
	if (b->conf.max_datagram != 0 && len > b->conf.max_datagram)
		return;
	while (sendto(b->fd[e], data, len, 0, (const struct sockaddr *)to, sizeof(*to)) < 0 &&
		(errno == EAGAIN || errno == ECONNREFUSED))
		;
}

static void
release_held(struct box *b)
{
	struct box_held h = b->held;

	b->held.data = NULL;
	if (h.data != NULL)
		put(b, h.endpoint, &h.to, h.data, h.len);
	free(h.data);
}

void
box_put(struct box *b, unsigned e, const struct sockaddr_in *to, const uint8_t *frame, size_t len)
{
	if (b->conf.silent || box_chance(b, b->conf.loss))
		return;
	if (b->held.data == NULL && box_chance(b, b->conf.reorder)) {
		b->held = (struct box_held){*to, e, len, malloc(len)};
		memcpy(b->held.data, frame, len);
		return;
	}
	put(b, e, to, frame, len);
	if (box_chance(b, b->conf.dup))
		put(b, e, to, frame, len);
	release_held(b);
}

void
box_say(struct box *b, unsigned e, const struct sockaddr_in *to, struct pbox_hdr *h,
	const void *payload)
{
	uint8_t frame[PBOX_HDR_LEN + 2048];

	memset(frame + PBOX_HDR_LEN, 0x55, PBOX_TAG_LEN); /* a tag, where the header says so */
	if (payload != NULL)
		memcpy(frame + PBOX_HDR_LEN, payload, h->length);
	box_put(b, e, to, frame, pbox_frame_seal(frame, h));
}

static struct sockaddr_in
address_of(const struct pbox_peer *p)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_addr = {p->ip}, .sin_port = htons(p->udp)};
}

static void
engine_send(void *ctx, const struct pbox_send *s)
{
	const struct box_end *end = ctx;
	struct sockaddr_in to = address_of(s->peer);
	struct box *b = end->b;
	struct box_out o = {.h = s->hdr, .to = &to, .endpoint = end->number, .frame = b->tx};
	size_t len = PBOX_HDR_LEN + (size_t)s->hdr.length;

	pbox_send_payload(b->tx + PBOX_HDR_LEN, s);
	if (filter_out(b, &o))
		return;
	if (s->tag_key == NULL) {
		len = pbox_frame_seal(b->tx, &o.h);
	} else {
		pbox_frame_encode(b->tx, &s->hdr, s->payload_crc);
		pbox_auth_tag(s->tag_key, b->tx, s->digest, b->tx + len);
		len += PBOX_TAG_LEN;
	}
	box_put(b, end->number, &to, b->tx, len);
}

static void
engine_release(void *ctx, void *const *handle, unsigned n)
{
	(void)ctx;
	for (unsigned i = 0; i < n; i++)
		free(handle[i]);
}

static void
engine_answer(void *ctx, const struct pbox_mail *m)
{
	struct box *b = ((const struct box_end *)ctx)->b;

	pbox_registrar_mail(b->registrar, m, b->now);
}

static void
engine_post(void *ctx, const struct pbox_mail *m)
{
	struct box *b = ((const struct box_end *)ctx)->b;

	pbox_shard_mail(b->shard[m->shard], m, b->now);
}

static void
engine_random(void *ctx, void *buf, size_t n)
{
	(void)ctx;
	randombytes_buf(buf, n);
}

/* ---- life ---------------------------------------------------------------------------------------- */

static const struct pbox_shard_ops shard_ops = {engine_send, engine_release, engine_answer};
static const struct pbox_registrar_ops registrar_ops = {
	.send = engine_send, .post = engine_post, .random = engine_random};

static struct pbox_shard *
start_shard(struct box *b, unsigned i)
{
	struct pbox_shard_conf conf = {.id = (uint16_t)i,
		.incarnation = b->incarnation,
		.max_jobs = 1,
		.mtu = (uint16_t)b->mtu,
		.endpoint = b->endpoint,
		.n_endpoints = b->conf.endpoints,
		.reduce = &pbox_reduce_scalar,
		.optim = &pbox_optim_scalar,
		.ops = &shard_ops,
		.ctx = &b->end[1 + i],
		.stats = b->ss[i]};

	return pbox_shard_create(&conf);
}

static void
start(struct box *b)
{
	struct pbox_registrar_conf conf = {.incarnation = b->incarnation,
		.first_run = b->incarnation - 900,
		.max_jobs = 1,
		.max_workers = 64,
		.chunk_elements = b->conf.chunk,
		.lease_ms = b->conf.lease_ms,
		.grace_ms = GRACE_MS,
		.mtu = (uint16_t)b->mtu,
		.hold = 65536,
		.n_shards = b->conf.endpoints,
		.endpoint = b->endpoint,
		.n_endpoints = b->conf.endpoints,
		.job = &b->job,
		.n_jobs = 1,
		.ops = &registrar_ops,
		.ctx = &b->end[0],
		.stats = b->rs};

	b->region = mmap(NULL, REGION, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (b->region == MAP_FAILED)
		abort();
	memset(b->rs, 0, sizeof(b->rs));
	memset(b->ss, 0, sizeof(b->ss));
	conf.arena[0] = b->arena = pbox_arena_create(b->region, REGION);
	for (unsigned i = 0; i < b->conf.endpoints; i++) {
		b->endpoint[i] = (struct pbox_engine_endpoint){
			.addr = {{127, 0, 0, 1}, b->port[1 + i]}, .shard = (uint16_t)i};
	}
	for (unsigned i = 0; i < b->conf.endpoints; i++)
		if ((b->shard[i] = start_shard(b, i)) == NULL)
			abort();
	b->registrar = pbox_registrar_create(&conf);
	if (b->registrar == NULL)
		abort();
	b->heard = b->now = now_ns(b);
}

/** As kill -9 would. */
static void
crash(struct box *b)
{
	engine_counters(b, &b->counts);
	for (unsigned i = 0; i < b->conf.endpoints; i++)
		pbox_shard_destroy(b->shard[i]);
	pbox_registrar_destroy(b->registrar);
	pbox_arena_destroy(b->arena);
	munmap(b->region, REGION);
	memset(b->member, 0, sizeof(b->member));
	pbox_auth_job_destroy(b->auth);
	b->auth = NULL;
}

/** The first data endpoint takes the port of the last one, and each other one that of the one before. */
static void
turn_ports(struct box *b)
{
	unsigned n = b->conf.endpoints;
	int fd = b->fd[n];
	uint16_t port = b->port[n];

	for (unsigned i = n; i > 1; i--) {
		b->fd[i] = b->fd[i - 1];
		b->port[i] = b->port[i - 1];
	}
	b->fd[1] = fd;
	b->port[1] = port;
}

void
engine_restart(struct box *b)
{
	crash(b);
	if (b->conf.turns)
		turn_ports(b);
	b->incarnation++;
	start(b);
}

/** The time until which leases have been looked at, in the steps in which they go on. */
static void
hear(struct box *b, uint64_t now)
{
	while (b->heard < now) {
		uint64_t left = now - b->heard;

		b->heard += left < 50 * MS ? left : 50 * MS;
		pbox_registrar_heard(b->registrar, b->heard);
	}
	pbox_registrar_tick(b->registrar, now);
	while (pbox_registrar_work(b->registrar, now))
		;
}

void
engine_leases_end(struct box *b, bool kept)
{
	pbox_registrar_tick(b->registrar, b->now); /* whom it has heard until now */
	b->skew += (b->conf.lease_ms + 2000) * MS;
	b->now = now_ns(b);
	pbox_registrar_reload(
		b->registrar, &b->job, 1, b->conf.lease_ms, kept ? GRACE_MS : 0, b->now);
	hear(b, b->now);
	pbox_registrar_reload(b->registrar, &b->job, 1, b->conf.lease_ms, GRACE_MS, b->now);
	memset(b->member, 0, sizeof(b->member));
}

/* ---- in ------------------------------------------------------------------------------------------ */

static void
frame(struct box *b, unsigned e, const struct sockaddr_in *from, const struct pbox_hdr *h,
	const uint8_t *at, size_t size)
{
	struct pbox_frame f = {.hdr = *h,
		.peer = {.ip = from->sin_addr.s_addr,
			.udp = ntohs(from->sin_port),
			.local_ip = htonl(INADDR_LOOPBACK),
			.local_udp = b->port[e]}};
	struct box_in in = {&f, from, e};
	uint8_t *copy;

	b->counts.rx_frames++;
	if (filter_in(b, &in, at + PBOX_HDR_LEN))
		return;
	copy = malloc(size);
	memcpy(copy, at, size);
	f.payload = copy + PBOX_HDR_LEN;
	f.handle = copy;
	if (e == 0 || (h->type < PBOX_FIRST_DATA_TYPE && h->type != PBOX_PING)) {
		pbox_registrar_rx(b->registrar, &f, b->now);
		free(copy);
	} else if ((pbox_shard_rx(b->shard[e - 1], &f, 1, b->now) & 1) == 0) {
		free(copy);
	}
}

static void
datagram(struct box *b, unsigned e, const struct sockaddr_in *from, const uint8_t *buf, size_t len)
{
	struct pbox_hdr h;
	bool first = true;

	if (b->conf.silent || b->conf.deaf || (b->conf.no_data && e != 0) ||
		(b->conf.max_datagram != 0 && len > b->conf.max_datagram))
		return;
	while (len > 0) {
		size_t size = 0;
		enum pbox_wire_drop drop = pbox_frame_decode(buf, len, first, &h, &size);

		if (drop != PBOX_WIRE_OK) {
			b->counts.malformed++;
			return;
		}
		for (bool again = !box_chance(b, b->conf.loss); again;
			again = box_chance(b, b->conf.dup))
			frame(b, e, from, &h, buf, size);
		buf += size;
		len -= size;
		first = false;
	}
}

static void
receive(struct box *b, unsigned e)
{
	for (unsigned k = 0; k < 64; k++) {
		struct sockaddr_in from;
		socklen_t flen = sizeof(from);
		ssize_t len = recvfrom(
			b->fd[e], b->rx, FRAME, MSG_DONTWAIT, (struct sockaddr *)&from, &flen);

		if (len < 0)
			return;
		b->now = now_ns(b);
		datagram(b, e, &from, b->rx, (size_t)len);
		filter_later(b);
	}
}

static void *
box_main(void *arg)
{
	struct box *b = arg;
	unsigned n = 1 + b->conf.endpoints;
	uint64_t since = box_now(b);

	for (;;) {
		struct pollfd p[1 + BOX_ENDPOINTS];

		pthread_mutex_lock(&b->lock);
		for (unsigned i = 0; i < n; i++)
			p[i] = (struct pollfd){.fd = b->fd[i], .events = POLLIN};
		pthread_mutex_unlock(&b->lock);
		poll(p, n, 5);
		if (b->conf.pause_ms != 0 && box_now(b) - since > b->conf.work_ms * 1000) {
			usleep(b->conf.pause_ms * 1000);
			since = box_now(b);
		}
		pthread_mutex_lock(&b->lock);
		if (b->stop) {
			pthread_mutex_unlock(&b->lock);
			return NULL;
		}
		for (unsigned i = 0; i < n; i++)
			if ((p[i].revents & (POLLIN | POLLERR)) != 0)
				receive(b, i);
		release_held(b);
		b->now = now_ns(b);
		hear(b, b->now);
		pthread_mutex_unlock(&b->lock);
	}
}

/* ---- begin and end -------------------------------------------------------------------------------- */

static int
open_port(struct box *b, unsigned i)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(a);
	int size = 8 << 20;

	b->end[i] = (struct box_end){b, i};
	b->fd[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (b->fd[i] < 0 || bind(b->fd[i], (struct sockaddr *)&a, sizeof(a)) != 0 ||
		getsockname(b->fd[i], (struct sockaddr *)&a, &len) != 0)
		return -1;
	setsockopt(b->fd[i], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	setsockopt(b->fd[i], SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	b->port[i] = ntohs(a.sin_port);
	return 0;
}

struct box *
box_start(const struct box_conf *conf)
{
	struct box *b = calloc(1, sizeof(*b));

	b->conf = *conf;
	b->conf.job = conf->job != NULL ? conf->job : "job";
	b->conf.secret = conf->insecure ? "" : conf->secret != NULL ? conf->secret : "secret";
	b->conf.endpoints = conf->endpoints != 0 ? conf->endpoints : box_threads;
	b->conf.window = conf->window != 0 ? conf->window : 64;
	b->mtu = conf->mtu >= 576 ? conf->mtu : 1500;
	b->conf.lease_ms = conf->lease_ms != 0 ? conf->lease_ms : 10000;
	b->conf.chunk = conf->chunk != 0 ? conf->chunk : 8192;
	b->job = (struct pbox_job_conf){.name = b->conf.job,
		.secret = b->conf.secret,
		.secret_len = strlen(b->conf.secret),
		.workers = conf->workers,
		.auth = conf->auth,
		.policy = PBOX_POLICY_ANY};
	b->random = conf->seed * 0x9E3779B97F4A7C15ull + 88172645463325252ull;
	b->incarnation = 1000;
	b->rx = malloc(FRAME);
	b->tx = malloc(FRAME);
	pthread_mutex_init(&b->lock, NULL);
	if (sodium_init() < 0)
		abort();
	for (unsigned i = 0; i <= b->conf.endpoints; i++)
		if (open_port(b, i) != 0)
			abort();
	snprintf(b->address, sizeof(b->address), "127.0.0.1:%u", b->port[0]);
	start(b);
	pthread_create(&b->thread, NULL, box_main, b);
	return b;
}

const char *
box_address(const struct box *b)
{
	return b->address;
}

const void *
box_ctx(const struct box *b)
{
	return b->conf.ctx;
}

void
box_stop(struct box *b)
{
	pthread_mutex_lock(&b->lock);
	b->stop = true;
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL);
	crash(b);
	release_held(b);
	for (unsigned i = 0; i <= b->conf.endpoints; i++)
		close(b->fd[i]);
	pthread_mutex_destroy(&b->lock);
	free(b->rx);
	free(b->tx);
	free(b);
}
