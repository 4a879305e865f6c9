/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fake_impl.h"

/* Sockets, chaos, life cycle. */

uint64_t
fake_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static bool
chance(struct fake_box *b, double p)
{
	b->random ^= b->random << 13;
	b->random ^= b->random >> 7;
	b->random ^= b->random << 17;
	return p > 0 && (double)(b->random >> 11) < p * 9007199254740992.0;
}

static void
put(struct fake_box *b, int fd, const struct sockaddr_in *to, const void *data, size_t len)
{
	b->counts.tx_frames++;
	b->counts.tx_bytes += len;
	if (b->conf.max_datagram != 0 && len > b->conf.max_datagram)
		return;
	while (sendto(fd, data, len, 0, (const struct sockaddr *)to, sizeof(*to)) < 0 &&
		(errno == EAGAIN || errno == ECONNREFUSED))
		;
}

static void
release_held(struct fake_box *b)
{
	struct held_frame h = b->held;

	b->held.data = NULL;
	if (h.data != NULL)
		put(b, h.fd, &h.to, h.data, h.len);
	free(h.data);
}

/** Somebody sends a result before the box does, with another element: its CRC is wrong, or its token. */
static void
shadow(struct fake_box *b, int fd, const struct sockaddr_in *to, const struct pbox_hdr *h,
	size_t len)
{
	uint8_t *element = b->tx + PBOX_HDR_LEN + h->length / 2;
	struct pbox_hdr forged = *h;

	*element ^= 0x40;
	put(b, fd, to, b->tx, len);
	forged.token ^= 1;
	pbox_frame_seal(b->tx, &forged);
	put(b, fd, to, b->tx, len);
	*element ^= 0x40;
	pbox_frame_seal(b->tx, h);
}

void
fake_send(struct fake_box *b, int fd, const struct sockaddr_in *to, struct pbox_hdr *h)
{
	const struct fake_member *m = h->worker < b->conf.workers ? &b->member[h->worker] : NULL;
	bool tag = b->auth != NULL && !b->attacking && m != NULL && m->live &&
		   h->token == m->token && h->incarnation == b->incarnation;
	size_t len;

	if (tag) {
		h->flags |= PBOX_F_AUTH;
		len = pbox_auth_seal(m->keys.box, b->auth, b->tx, h);
	} else {
		len = pbox_frame_seal(b->tx, h);
	}
	if (b->conf.silent || chance(b, b->conf.loss)) {
		b->counts.lost++;
		return;
	}
	if (b->conf.shadows && h->type == PBOX_RESULT && h->length > 0 && !tag)
		shadow(b, fd, to, h, len);
	if (b->held.data == NULL && chance(b, b->conf.reorder)) {
		b->held = (struct held_frame){*to, fd, len, malloc(len)};
		memcpy(b->held.data, b->tx, len);
		return;
	}
	put(b, fd, to, b->tx, len);
	if (chance(b, b->conf.dup))
		put(b, fd, to, b->tx, len);
	release_held(b);
}

static void count_down(struct fake_box *b, unsigned *left);

/* The answer to a frame of a session that the box has not. */
static void
deny(struct fake_box *b, unsigned e, const struct sockaddr_in *from, const struct pbox_hdr *h)
{
	struct pbox_hdr a = {.type = PBOX_ERROR,
		.token = h->token,
		.job = h->job,
		.worker = h->worker,
		.incarnation = b->incarnation,
		.chunk = h->chunk,
		.frag = h->frag,
		.round = h->round,
		.aux = PBOX_E_SESSION};

	fake_send(b, b->fd[e], from, &a);
}

static void
frame(struct fake_box *b, unsigned e, const struct sockaddr_in *from, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct fake_member *m = h->worker < b->conf.workers ? &b->member[h->worker] : NULL;

	b->counts.rx_frames++;
	if (h->type == PBOX_HELLO || h->type == PBOX_JOIN) {
		fake_control(b, b->fd[0], from, h, payload);
		return;
	}
	if (m == NULL || !m->live || m->token != h->token || h->incarnation != b->incarnation) {
		deny(b, e, from, h);
		return;
	}
	if (b->conf.auth && ((h->flags & PBOX_F_AUTH) == 0 ||
				    !pbox_auth_good(m->keys.worker, b->auth, payload, h->length))) {
		b->counts.malformed++;
		return;
	}
	m->heard = fake_now();
	if (b->conf.denier > 0 && h->type == PBOX_PING) {
		b->attacking = true;
		deny(b, e, from, h);
		b->attacking = false;
		if (++m->denied < b->conf.denier)
			return;
	}
	if (h->type == PBOX_PING && (h->round | h->base) != 0) {
		b->counts.echoes++;
		b->counts.echo = (uint64_t)h->base << 32 | h->round;
		b->counts.echo_at = e;
	}
	if (h->type == PBOX_RESTORE)
		count_down(b, &b->after_restores);
	else if (h->type == PBOX_DECLARE)
		count_down(b, &b->after_declares);
	if (!m->live)
		return;
	if (h->type >= PBOX_FIRST_DATA_TYPE) {
		if (!b->conf.no_data)
			fake_data(b, b->fd[e], h, payload);
	} else if (!b->conf.no_data || e == 0) {
		fake_control(b, b->fd[e], from, h, payload);
	}
}

static void
datagram(struct fake_box *b, unsigned e, const struct sockaddr_in *from, const uint8_t *buf,
	size_t len)
{
	struct pbox_hdr h;
	bool first = true;

	b->counts.rx_bytes += len;
	if (b->conf.silent || b->conf.deaf ||
		(b->conf.max_datagram != 0 && len > b->conf.max_datagram))
		return;
	while (len > 0) {
		size_t size = 0;
		enum pbox_wire_drop drop = pbox_frame_decode(buf, len, first, &h, &size);

		if (drop != PBOX_WIRE_OK) {
			b->counts.malformed++;
			return;
		}
		if (chance(b, b->conf.loss)) {
			b->counts.lost++;
		} else {
			frame(b, e, from, &h, buf + PBOX_HDR_LEN);
			if (chance(b, b->conf.dup))
				frame(b, e, from, &h, buf + PBOX_HDR_LEN);
		}
		buf += size;
		len -= size;
		first = false;
	}
}

static void *
fake_main(void *arg)
{
	struct fake_box *b = arg;
	unsigned n = 1 + b->conf.endpoints;
	uint64_t since = fake_now();

	for (;;) {
		struct pollfd p[1 + FAKE_ENDPOINTS];

		pthread_mutex_lock(&b->lock);
		for (unsigned i = 0; i < n; i++)
			p[i] = (struct pollfd){.fd = b->fd[i], .events = POLLIN};
		pthread_mutex_unlock(&b->lock);
		poll(p, n, 5);
		if (b->conf.pause_ms != 0 && fake_now() - since > b->conf.work_ms * 1000) {
			usleep(b->conf.pause_ms * 1000);
			since = fake_now();
		}
		pthread_mutex_lock(&b->lock);
		if (b->stop) {
			pthread_mutex_unlock(&b->lock);
			return NULL;
		}
		for (unsigned i = 0; i < n; i++)
			for (unsigned k = 0; (p[i].revents & (POLLIN | POLLERR)) != 0 && k < 64;
				k++) {
				struct sockaddr_in from;
				socklen_t flen = sizeof(from);
				ssize_t len = recvfrom(b->fd[i], b->rx, FAKE_FRAME, MSG_DONTWAIT,
					(struct sockaddr *)&from, &flen);

				if (len < 0)
					break;
				datagram(b, i, &from, b->rx, (size_t)len);
			}
		release_held(b);
		pthread_mutex_unlock(&b->lock);
	}
}

static int
open_port(struct fake_box *b, unsigned i)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(a);
	int size = 8 << 20;

	b->fd[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (b->fd[i] < 0 || bind(b->fd[i], (struct sockaddr *)&a, sizeof(a)) != 0 ||
		getsockname(b->fd[i], (struct sockaddr *)&a, &len) != 0)
		return -1;
	setsockopt(b->fd[i], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	setsockopt(b->fd[i], SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	b->port[i] = ntohs(a.sin_port);
	return 0;
}

unsigned fake_threads = 1;

struct fake_box *
fake_start(const struct fake_conf *conf)
{
	struct fake_box *b = calloc(1, sizeof(*b));

	b->conf = *conf;
	b->conf.job = conf->job != NULL ? conf->job : "job";
	b->conf.secret = conf->secret != NULL ? conf->secret : "secret";
	b->conf.endpoints = conf->endpoints != 0 ? conf->endpoints : fake_threads;
	b->conf.mtu = conf->mtu != 0 ? conf->mtu : 1500;
	b->conf.window = conf->window != 0 ? conf->window : 64;
	b->conf.lease_ms = conf->lease_ms != 0 ? conf->lease_ms : 10000;
	b->conf.chunk = conf->chunk != 0 ? conf->chunk : 8192;
	b->random = conf->seed * 0x9E3779B97F4A7C15ull + 88172645463325252ull;
	b->incarnation = 1000;
	b->numbers = 100;
	b->rx = malloc(FAKE_FRAME);
	b->tx = malloc(FAKE_FRAME);
	pthread_mutex_init(&b->lock, NULL);
	for (unsigned i = 0; i <= b->conf.endpoints; i++)
		if (open_port(b, i) != 0)
			abort();
	snprintf(b->address, sizeof(b->address), "127.0.0.1:%u", b->port[0]);
	pthread_create(&b->thread, NULL, fake_main, b);
	return b;
}

const char *
fake_address(const struct fake_box *b)
{
	return b->address;
}

static void
forget(struct fake_box *b)
{
	for (unsigned i = 0; i < b->tables; i++)
		fake_table_free(&b->table[i]);
	memset(b->table, 0, sizeof(b->table));
	memset(b->member, 0, sizeof(b->member));
	b->tables = 0;
	b->mismatch[0] = 0;
}

/** The first data endpoint takes the port of the last one, and each other one that of the one before. */
static void
turn_ports(struct fake_box *b)
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

/** As after kill and start. */
static void
restart(struct fake_box *b)
{
	forget(b);
	if (b->conf.turns)
		turn_ports(b);
	b->number = b->ended = 0;
	b->incarnation++;
}

void
fake_restart(struct fake_box *b)
{
	fake_restart_chunk(b, 0);
}

void
fake_restart_chunk(struct fake_box *b, unsigned chunk)
{
	pthread_mutex_lock(&b->lock);
	restart(b);
	b->conf.deaf = false;
	if (chunk != 0)
		b->conf.chunk = chunk;
	pthread_mutex_unlock(&b->lock);
}

void
fake_restart_after(struct fake_box *b, unsigned restores, unsigned declares)
{
	pthread_mutex_lock(&b->lock);
	b->after_restores = restores;
	b->after_declares = declares;
	pthread_mutex_unlock(&b->lock);
}

/** The restart that was asked for, if this frame is the one. */
static void
count_down(struct fake_box *b, unsigned *left)
{
	if (*left == 0 || --*left > 0)
		return;
	restart(b);
}

void
fake_forge(struct fake_box *b)
{
	pthread_mutex_lock(&b->lock);
	for (unsigned i = 0; i < b->conf.workers; i++) {
		struct pbox_hdr h = {.type = PBOX_ERROR,
			.token = b->member[i].token,
			.job = 1,
			.worker = (uint16_t)i,
			.incarnation = b->incarnation + 5,
			.aux = PBOX_E_SESSION};

		if (b->member[i].live)
			fake_send(b, b->fd[0], &b->member[i].addr, &h);
	}
	pthread_mutex_unlock(&b->lock);
}

void
fake_refuse(struct fake_box *b, unsigned code, unsigned joins, const char *secret)
{
	pthread_mutex_lock(&b->lock);
	b->prover = secret;
	b->refusal = code;
	b->refusals = joins;
	pthread_mutex_unlock(&b->lock);
}

void
fake_attack(struct fake_box *b)
{
	const struct pbox_hdr forged[] = {
		{.type = PBOX_LEFT, .aux = 1},
		{.type = PBOX_ERROR, .aux = PBOX_E_SHUTDOWN},
		{.type = PBOX_ERROR, .aux = PBOX_E_NO_LR, .round = 1},
		{.type = PBOX_PING},
		{.type = PBOX_RESULT, .round = 1, .flags = PBOX_F_ZERO, .format = PBOX_FMT_FP32},
		{.type = PBOX_RESULT,
			.round = 2,
			.flags = PBOX_F_ZERO | PBOX_F_AUTH, /* what is there is its tag */
			.format = PBOX_FMT_FP32},
		{.type = PBOX_PUSH_OK, .round = 1},
	};

	pthread_mutex_lock(&b->lock);
	b->attacking = true;
	for (unsigned i = 0; i < b->conf.workers; i++)
		for (unsigned k = 0; k < sizeof(forged) / sizeof(forged[0]); k++) {
			struct pbox_hdr h = forged[k];

			h.token = b->member[i].token;
			h.job = 1;
			h.worker = (uint16_t)i;
			h.incarnation = b->incarnation;
			memset(b->tx + PBOX_HDR_LEN, 0x55, PBOX_TAG_LEN);
			if (b->member[i].live)
				fake_send(b, b->fd[h.type >= PBOX_FIRST_DATA_TYPE],
					&b->member[i].addr, &h);
		}
	b->attacking = false;
	pthread_mutex_unlock(&b->lock);
}

void
fake_end_sessions(struct fake_box *b)
{
	pthread_mutex_lock(&b->lock);
	for (unsigned i = 0; i < b->conf.workers; i++) {
		b->member[i].live = false;
		b->member[i].joins++; /* the next token is another one */
	}
	pthread_mutex_unlock(&b->lock);
}

void
fake_end_run(struct fake_box *b)
{
	forget(b);
	b->ended = b->number;
	b->number = ++b->numbers;
}

void
fake_run_begins(struct fake_box *b)
{
	pthread_mutex_lock(&b->lock);
	fake_end_run(b);
	memset(b->run, 0xAA, sizeof(b->run));
	pthread_mutex_unlock(&b->lock);
}

void
fake_running(struct fake_box *b, bool on)
{
	pthread_mutex_lock(&b->lock);
	b->running = on;
	pthread_mutex_unlock(&b->lock);
}

void
fake_misnumber(struct fake_box *b)
{
	pthread_mutex_lock(&b->lock);
	b->misnumber = true;
	pthread_mutex_unlock(&b->lock);
}

struct fake_said
fake_said(struct fake_box *b)
{
	struct fake_said said;

	pthread_mutex_lock(&b->lock);
	said = b->said;
	pthread_mutex_unlock(&b->lock);
	return said;
}

void
fake_silence(struct fake_box *b, bool on)
{
	pthread_mutex_lock(&b->lock);
	b->conf.silent = on;
	pthread_mutex_unlock(&b->lock);
}

void
fake_no_data(struct fake_box *b, bool on)
{
	pthread_mutex_lock(&b->lock);
	b->conf.no_data = on;
	pthread_mutex_unlock(&b->lock);
}

void
fake_ping(struct fake_box *b, unsigned worker, unsigned endpoint, uint64_t nonce)
{
	struct pbox_hdr h = {.type = PBOX_PING,
		.job = 1,
		.worker = (uint16_t)worker,
		.round = (uint32_t)nonce,
		.base = (uint32_t)(nonce >> 32)};

	pthread_mutex_lock(&b->lock);
	h.token = b->member[worker].token;
	h.incarnation = b->incarnation;
	fake_send(b, b->fd[endpoint], &b->member[worker].addr, &h);
	pthread_mutex_unlock(&b->lock);
}

void
fake_shutdown(struct fake_box *b)
{
	pthread_mutex_lock(&b->lock);
	for (unsigned i = 0; i < b->conf.workers; i++) {
		struct pbox_hdr h = {.type = PBOX_LEFT,
			.token = b->member[i].token,
			.job = 1,
			.worker = (uint16_t)i,
			.incarnation = b->incarnation,
			.aux = 1};

		if (b->member[i].live)
			fake_send(b, b->fd[0], &b->member[i].addr, &h);
	}
	b->conf.deaf = true;
	pthread_mutex_unlock(&b->lock);
}

struct fake_counts
fake_counts(struct fake_box *b)
{
	struct fake_counts c;

	pthread_mutex_lock(&b->lock);
	c = b->counts;
	pthread_mutex_unlock(&b->lock);
	return c;
}

uint32_t
fake_first_chunk(struct fake_box *b)
{
	uint32_t chunk;

	pthread_mutex_lock(&b->lock);
	chunk = b->first_chunk;
	b->first_seen = false;
	pthread_mutex_unlock(&b->lock);
	return chunk;
}

void
fake_stop(struct fake_box *b)
{
	pthread_mutex_lock(&b->lock);
	b->stop = true;
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL);
	forget(b);
	release_held(b);
	for (unsigned i = 0; i <= b->conf.endpoints; i++)
		close(b->fd[i]);
	pthread_mutex_destroy(&b->lock);
	pbox_auth_job_destroy(b->auth);
	free(b->rx);
	free(b->tx);
	free(b);
}
