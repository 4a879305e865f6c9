/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>

#include <pbox_proof.h>
#include <sodium.h>

#include "unit.h"
#include "worker_impl.h"

/*
 * What a WELCOME says sizes and indexes what the worker has. Anyone who sees a JOIN to a job without a secret can answer it,
 * so no number ends the process: a WELCOME that is not sound is one that did not come, or ends the join.
 */

const char unit_suite[] = "worker: numbers of a WELCOME";

#define MS    UINT64_C(1000000)
#define WIDTH 1500

static struct {
	struct pbox_worker *w;
	struct pbox_worker_ops port;
	uint64_t now, random;
	uint8_t sent[2048]; /* the last frame */
	struct pbox_hdr hdr;
	struct pbox_join join; /* the last JOIN */
	bool asked;
} one;

static void
port_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	(void)ctx;
	for (unsigned i = 0; i < n; i++) {
		size_t len = 0, size;

		for (unsigned k = 0; k < d[i].n; k++) {
			CU_ASSERT_FATAL(len + d[i].iov[k].iov_len <= sizeof(one.sent));
			memcpy(one.sent + len, d[i].iov[k].iov_base, d[i].iov[k].iov_len);
			len += d[i].iov[k].iov_len;
		}
		CU_ASSERT_EQUAL(
			pbox_frame_decode(one.sent, len, true, &one.hdr, &size), PBOX_WIRE_OK);
		one.asked |= one.hdr.type == PBOX_JOIN;
		if (one.hdr.type == PBOX_JOIN)
			pbox_join_decode(one.sent + PBOX_HDR_LEN, one.hdr.length, &one.join);
	}
}

static uint64_t
port_random(void *ctx)
{
	(void)ctx;
	return ++one.random * UINT64_C(0x9E3779B97F4A7C15);
}

static void
begin(const char *secret, int worker, unsigned slots)
{
	const struct pbox_client_conf conf = {.size = sizeof(conf),
		.box = "10.0.0.1",
		.job = "job",
		.secret = secret,
		.worker = worker,
		.workers = 3,
		.slots = slots,
		.join_timeout_ms = 60000,
		.keep_copies = 1};
	struct sockaddr_in box = {.sin_family = AF_INET, .sin_port = htons(7269)};
	struct pbox_client_error err;

	CU_ASSERT_FATAL(sodium_init() >= 0 && pbox_worker_check(&conf, &err) == 0);
	memset(&one, 0, sizeof(one));
	one.now = 1000 * MS;
	box.sin_addr.s_addr = htonl(0x0A000001);
	one.port = (struct pbox_worker_ops){.send = port_send,
		.random = port_random,
		.mtu = WIDTH,
		.batch = 8,
		.window = 64,
		.path_known = true};
	one.w = pbox_worker_create(&conf, &box, &one.port);
	CU_ASSERT_FATAL(one.w != NULL);
	pbox_worker_open(one.w, one.now, one.now + 60000 * MS);
}

static void
tick(void)
{
	one.now += 100 * MS;
	pbox_worker_tick(one.w, one.now, one.now);
}

/* From the control endpoint; the request id is that of the last frame that was sent. */
static void
answer(unsigned type, const uint8_t *payload, size_t len)
{
	uint8_t frame[2048];
	struct pbox_client_rx rx = {.data = frame, .len = (uint32_t)(PBOX_HDR_LEN + len)};
	struct pbox_hdr h = {
		.type = (uint8_t)type, .chunk = one.hdr.chunk, .length = (uint16_t)len};

	memcpy(frame + PBOX_HDR_LEN, payload, len);
	pbox_frame_seal(frame, &h);
	rx.from.sin_family = AF_INET;
	rx.from.sin_addr.s_addr = htonl(0x0A000001);
	rx.from.sin_port = htons(7269);
	pbox_worker_rx(one.w, &rx, 1, one.now);
}

/* Until a JOIN has been sent. */
static void
until_join(void)
{
	const struct pbox_retry retry = {.cookie = 5, .incarnation = 9};
	uint8_t buf[64];

	one.asked = false;
	for (unsigned i = 0; i < 100 && !one.asked; i++) {
		tick();
		if (one.hdr.type == PBOX_HELLO)
			answer(PBOX_RETRY, buf, pbox_retry_encode(buf, sizeof(buf), &retry));
	}
	CU_ASSERT_TRUE_FATAL(one.asked);
}

static struct pbox_welcome
good(void)
{
	return (struct pbox_welcome){.token = 77,
		.nonce = one.join.nonce,
		.job = 1,
		.worker = one.join.worker == PBOX_NO_WORKER ? 2 : one.join.worker,
		.workers = 3,
		.endpoints = 1,
		.incarnation = 9,
		.lease_ms = 5000,
		.mtu = WIDTH,
		.window = 32,
		.flags = 1u << PBOX_CAN_SLOTS | PBOX_WELCOME_INSECURE,
		.number = 1,
		.endpoint = {{{10, 0, 0, 1}, 7270}}};
}

static void
welcome(const struct pbox_welcome *m, const char *secret)
{
	uint8_t buf[1024];
	size_t len = pbox_welcome_encode(buf, sizeof(buf), m);

	CU_ASSERT_FATAL(len > 0);
	pbox_proof(buf + PBOX_WELCOME_PROOF_AT, secret, strlen(secret), PBOX_WELCOME_PROOF_PREFIX,
		buf, len, PBOX_WELCOME_PROOF_AT);
	answer(PBOX_WELCOME, buf, len);
	pbox_worker_tick(one.w, one.now, one.now);
}

enum what { WORKERS, WORKER, ENDPOINTS, UDP, LEASE, WINDOW, TOKEN, NUMBER, MTU };

/* The worker is number 1 of 3. */
static const struct spoil {
	enum what what;
	uint16_t value;
} spoils[] = {
	{WORKERS, 0},
	{WORKERS, 1},
	{WORKERS, 2},
	{WORKERS, 4},
	{WORKERS, 4096},
	{WORKERS, 4097},
	{WORKERS, 65535},
	{WORKER, 0},
	{WORKER, 2},
	{WORKER, 3},
	{WORKER, 4096},
	{WORKER, 65535},
	{ENDPOINTS, 0},
	{UDP, 0},
	{LEASE, 0},
	{WINDOW, 0},
	{TOKEN, 0},
	{NUMBER, 0},
	{MTU, 1},
	{MTU, LINK_MIN_MTU - 1},
};
#define SPOILS (sizeof(spoils) / sizeof(spoils[0]))

static void
spoil(struct pbox_welcome *m, const struct spoil *s)
{
	switch (s->what) {
	case WORKERS:
		m->workers = s->value;
		break;
	case WORKER:
		m->worker = s->value;
		break;
	case ENDPOINTS:
		m->endpoints = s->value;
		break;
	case UDP:
		m->endpoint[0].udp = s->value;
		break;
	case LEASE:
		m->lease_ms = s->value;
		break;
	case WINDOW:
		m->window = s->value;
		break;
	case TOKEN:
		m->token = s->value;
		break;
	case NUMBER:
		m->number = s->value;
		break;
	case MTU:
		m->mtu = s->value;
		break;
	}
}

/* A stranger answers first, in the box's name: the worker asks again, and takes the box's. */
static void
test_from_a_stranger(void)
{
	for (unsigned slots = 0; slots <= 4096; slots += 4096)
		for (unsigned i = 0; i < SPOILS; i++) {
			struct pbox_welcome m;

			begin("", 1, slots);
			until_join();
			m = good();
			spoil(&m, &spoils[i]);
			welcome(&m, "");
			CU_ASSERT_EQUAL(pbox_worker_state(one.w), PBOX_WORKER_OPENING);
			until_join();
			m = good();
			welcome(&m, "");
			CU_ASSERT_EQUAL(pbox_worker_state(one.w), PBOX_WORKER_OPEN);
			UNIT_EQ_U64(pbox_worker_slots(one.w), slots != 0 ? slots : 3);
			pbox_worker_destroy(one.w);
		}
}

/* From somebody who knows the secret: there is nobody else to ask. */
static void
test_proven(void)
{
	for (unsigned i = 0; i < SPOILS; i++) {
		struct pbox_welcome m;

		begin("secret", 1, 7);
		until_join();
		m = good();
		m.flags &= ~PBOX_WELCOME_INSECURE;
		spoil(&m, &spoils[i]);
		welcome(&m, "secret");
		CU_ASSERT_EQUAL(pbox_worker_state(one.w), PBOX_WORKER_FAILED);
		CU_ASSERT_PTR_NOT_NULL(strstr(pbox_worker_error(one.w)->text, "is not sound"));
		pbox_worker_destroy(one.w);
	}
}

/* All numbers at once, of any value, and any that is good for this worker. */
static void
test_any_numbers(void)
{
	static const uint64_t edge[] = {
		0, 1, 2, 3, 4, 63, 64, 600, 1500, 4095, 4096, 65535, UINT32_MAX, UINT64_MAX};
	uint64_t x = 1;
	unsigned open = 0;

	for (unsigned i = 0; i < 3000; i++) {
		struct pbox_welcome m;
		uint64_t v[12];

		begin("", i % 2 == 0 ? -1 : 1, i % 3 == 0 ? 4096 : 0);
		until_join();
		m = good();
		for (unsigned k = 0; k < 12; k++) {
			x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
			v[k] = (x >> 33) % 3 == 0 ? edge[(x >> 40) % 14] : UINT64_MAX - 1;
		}
#define ANY(k, field, type)         \
	if (v[k] != UINT64_MAX - 1) \
	m.field = (type)v[k]
		ANY(0, token, uint64_t);
		ANY(1, job, uint16_t);
		ANY(2, worker, uint16_t);
		ANY(3, workers, uint16_t);
		ANY(5, incarnation, uint32_t);
		ANY(6, lease_ms, uint32_t);
		ANY(7, mtu, uint16_t);
		ANY(8, window, uint16_t);
		ANY(9, number, uint64_t);
		ANY(10, endpoint[0].udp, uint16_t);
		if (v[4] <= PBOX_MAX_ENDPOINTS)
			m.endpoints = (uint16_t)v[4];
		for (unsigned k = 1; k < m.endpoints; k++)
			m.endpoint[k] = m.endpoint[0];
		welcome(&m, "");
		for (unsigned k = 0; k < 3; k++)
			tick();
		open += pbox_worker_state(one.w) == PBOX_WORKER_OPEN;
		pbox_worker_destroy(one.w);
	}
	CU_ASSERT(open > 10);
}

/* What a host sends of a join for others: nothing for 3 s, and one frame of its kind when it asks. */
static void
silent_till_asked(unsigned type)
{
	one.hdr.type = 0;
	for (unsigned k = 0; k < 30; k++)
		tick();
	CU_ASSERT_EQUAL(one.hdr.type, 0);
	pbox_worker_join_ask(one.w, one.now);
	CU_ASSERT_EQUAL(one.hdr.type, type);
}

/* R18.3: each HELLO and JOIN follows one who asks, until the host says that it goes by the clock. */
static void
test_asked(void)
{
	const struct pbox_retry retry = {.cookie = 5, .incarnation = 9};
	uint8_t buf[64];

	begin("", 1, 0);
	pbox_worker_join_asked(one.w, true);
	silent_till_asked(PBOX_HELLO);
	silent_till_asked(PBOX_HELLO);
	answer(PBOX_RETRY, buf, pbox_retry_encode(buf, sizeof(buf), &retry));
	silent_till_asked(PBOX_JOIN);
	silent_till_asked(PBOX_JOIN);
	pbox_worker_join_asked(one.w, false);
	until_join();
	pbox_worker_destroy(one.w);
}

const struct unit_test unit_tests[] = {
	{"asked", test_asked},
	{"from a stranger", test_from_a_stranger},
	{"proven", test_proven},
	{"any numbers", test_any_numbers},
	{NULL, NULL},
};
