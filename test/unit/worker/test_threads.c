/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "unit.h"
#include "worker_impl.h"

/* A worker of two threads (struct lane) and one box, which the test is: it sees what is pushed, and answers at once. */

const char unit_suite[] = "worker: threads";

#define THREADS   2 /* and endpoints */
#define FRAGMENTS 6 /* of each of two tensors, one chunk each */
#define ELEMENTS  16
#define BYTES     (ELEMENTS * sizeof(float))
#define SENT      64

static struct {
	struct pbox_worker *w;
	struct session *s;
	struct pbox_worker_ops port;
	struct pbox_worker_table *t;
	struct pbox_worker_op *op[2];
	struct pbox_hdr sent[SENT]; /* pushes since the last turn() */
	unsigned n;
	uint64_t now;
	float in[FRAGMENTS * ELEMENTS];
} x;

static void
port_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	(void)ctx;
	for (unsigned i = 0; i < n; i++) {
		uint8_t data[1500], *at = data;
		struct pbox_hdr h;
		size_t size;

		for (unsigned k = 0; k < d[i].n; k++) {
			memcpy(at, d[i].iov[k].iov_base, d[i].iov[k].iov_len);
			at += d[i].iov[k].iov_len;
		}
		CU_ASSERT_FATAL(x.n < SENT && pbox_frame_decode(data, d[i].bytes, true, &h,
						      &size) == PBOX_WIRE_OK);
		if (h.type == PBOX_PUSHPULL)
			x.sent[x.n++] = h;
	}
}

static uint64_t
port_random(void *ctx)
{
	(void)ctx;
	return 7;
}

/** The chunks of the first tensor are at the endpoint of the last thread, those of the other at that of the first. */
static void
add_table(void)
{
	static const struct pbox_client_tensor tensors[] = {
		{"first", FRAGMENTS * ELEMENTS, 0}, {"last", FRAGMENTS * ELEMENTS, 0}};
	const struct pbox_client_table d = {.size = sizeof(d),
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 2,
		.tensors = tensors};
	struct pbox_segment segment[2 * FRAGMENTS];
	uint32_t first[2 * FRAGMENTS];
	uint16_t count[2 * FRAGMENTS];
	struct table_map m = {
		.segment = segment, .first = first, .count = count, .used = 2 * FRAGMENTS};
	struct pbox_client_error err;
	struct pbox_worker_table *t = x.t = table_new(&d, 0, &worker_rounds);

	CU_ASSERT_FATAL(t != NULL);
	t->chunks = 2 * FRAGMENTS;
	t->frag_elements = ELEMENTS;
	t->chunk = calloc(t->chunks, sizeof(*t->chunk));
	CU_ASSERT_FATAL(t->chunk != NULL);
	for (uint32_t i = 0; i < t->chunks; i++) {
		bool last = i >= FRAGMENTS;

		segment[i] = (struct pbox_segment){i % FRAGMENTS * ELEMENTS, last, ELEMENTS};
		first[i] = i;
		count[i] = 1;
		t->chunk[i] =
			(struct chunk){.id = i, .elements = ELEMENTS, .endpoint = last ? 0 : 1};
	}
	UNIT_EQ_U64(table_layout(t, &m, BYTES, &err), 0);
	UNIT_EQ_U64(worker_rounds.begin(x.s, t, 0, &err), 0);
	UNIT_EQ_U64(retained_open(t), 0);
	UNIT_EQ_U64(chunks_add_table(x.w, t), 0);
}

/** With a window of one. */
static void
begin(void)
{
	const struct pbox_client_conf conf = {
		.size = sizeof(conf), .job = "job", .workers = 2, .keep_copies = 1};
	struct sockaddr_in box = {.sin_family = AF_INET};
	struct pbox_worker_ops *port[THREADS] = {&x.port, &x.port};

	memset(&x, 0, sizeof(x));
	x.now = NS_PER_S;
	x.port = (struct pbox_worker_ops){.send = port_send,
		.random = port_random,
		.mtu = 1500,
		.batch = PBOX_CLIENT_TX_BATCH,
		.window = 4096};
	x.w = pbox_worker_create(&conf, &box, &x.port);
	CU_ASSERT_FATAL(x.w != NULL);
	x.w->now = x.now;
	x.s = x.w->box[0];
	x.s->join = (struct join){.s = x.s,
		.welcome = {.endpoints = THREADS,
			.window = 1,
			.workers = 2,
			.lease_ms = 30000,
			.endpoint = {{.ipv4 = {10, 0, 0, 1}, .udp = 7270},
				{.ipv4 = {10, 0, 0, 1}, .udp = 7271}}}};
	CU_ASSERT_FATAL(join_settle(&x.s->join) == 0);
	x.s->phase = SESSION_OPEN;
	x.s->last_rx = x.s->pinged_ns = x.now;
	UNIT_EQ_U64(pbox_worker_cut(x.w, port, THREADS), 0);
	add_table();
}

static void
end(void)
{
	pbox_worker_destroy(x.w);
	for (unsigned i = 0; i < 2; i++)
		free(x.op[i]);
}

static void
submit(unsigned tensor)
{
	struct pbox_worker_op *op = calloc(1, sizeof(*op) + THREADS * sizeof(op->e[0]));

	CU_ASSERT_FATAL(op != NULL);
	x.op[tensor] = op;
	op->table = x.t;
	op->kind = PBOX_CLIENT_PUSHPULL;
	op->weight = 1;
	op->n = 1;
	op->e[0] =
		(struct pbox_worker_entry){.op = op, .tensor = tensor, .in = (const uint8_t *)x.in};
	pbox_worker_submit(x.w, op);
}

static void
turn(void)
{
	x.n = 0;
	pbox_worker_tick(x.w, x.now, x.now);
}

/** A result of zeros. */
static void
answer(const struct pbox_hdr *to)
{
	struct pbox_hdr h = *to;
	uint8_t data[PBOX_HDR_LEN];
	const struct pbox_client_rx d = {.data = data, .len = sizeof(data)};

	h.type = PBOX_RESULT;
	h.flags = PBOX_F_ZERO;
	h.format = PBOX_FMT_FP32;
	h.length = 0;
	pbox_frame_encode(data, &h, 0);
	pbox_worker_rx(x.w, &d, 1, x.now);
}

/*
 * A box comes back with all chunks of one thread at the endpoint of the other one, which has chunks of its own. What was
 * submitted first goes first all the same: other workers push in that order, and the endpoint has a window of one (R6.9).
 */
static void
test_chunks_of_another_thread(void)
{
	begin();
	for (uint32_t i = 0; i < FRAGMENTS; i++) {
		UNIT_EQ_U64(x.t->chunk[i].lane, 1);
		x.t->chunk[i].endpoint = 0;
		lane_moved(x.w, &x.t->chunk[i]);
	}
	CU_ASSERT(x.w->mixed);
	CU_ASSERT(!pbox_worker_steady(x.w, 1, x.now));
	submit(0);
	submit(1);
	for (uint32_t i = 0; i < 2 * FRAGMENTS; i++) {
		turn();
		UNIT_EQ_U64(x.n, 1);
		UNIT_EQ_U64(x.sent[0].chunk, i);
		answer(&x.sent[0]);
		UNIT_EQ_U64(x.op[0]->open == 0, i >= FRAGMENTS - 1);
	}
	UNIT_EQ_U64(x.op[1]->open, 0);
	end();
}

/** Where they are their own, each endpoint has one. */
static void
test_own_chunks(void)
{
	begin();
	CU_ASSERT(!x.w->mixed);
	submit(0);
	submit(1);
	for (uint32_t i = 0; i < FRAGMENTS; i++) {
		struct pbox_hdr both[2];

		turn();
		UNIT_EQ_U64(x.n, 2);
		memcpy(both, x.sent, sizeof(both));
		UNIT_EQ_U64(both[0].chunk, FRAGMENTS + i);
		UNIT_EQ_U64(both[1].chunk, i);
		answer(&both[0]);
		answer(&both[1]);
	}
	UNIT_EQ_U64(x.op[0]->open + x.op[1]->open, 0);
	end();
}

const struct unit_test unit_tests[] = {
	{"chunks of another thread", test_chunks_of_another_thread},
	{"own chunks", test_own_chunks},
	{NULL, NULL},
};
