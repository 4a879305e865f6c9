/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <malloc.h>
#include <stdlib.h>

#include "unit.h"
#include "worker_impl.h"

/*
 * A worker whose table has a discipline with two lanes, and the same with rounds. The test is the box: it sees each frame
 * that is sent, and answers what it likes.
 */

const char unit_suite[] = "worker: lanes of pushes and pulls";

#define FRAGMENTS 12
#define ELEMENTS  16 /* in a fragment */
#define BYTES     (ELEMENTS * sizeof(float))
#define WINDOW    8
#define OPS       8
#define SENT      64

/* ---- a discipline as a clock: a push is answered at once, a pull takes whatever version there is ------------- */

static int
lane_begin(struct session *s, struct pbox_worker_table *t, uint32_t first_round,
	struct pbox_client_error *err)
{
	(void)s;
	(void)t;
	(void)first_round;
	(void)err;
	return 0;
}

static void
lane_push(struct frag *f)
{
	f->round++;
}

static void
lane_withdraw(struct frag *f)
{
	f->round--;
}

static void
lane_ask(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f,
	struct pbox_hdr *h)
{
	(void)w;
	(void)t;
	(void)f;
	h->flags |= PBOX_F_LATEST;
}

static void
lane_contribution(const struct pbox_worker *w, const struct pbox_worker_table *t,
	const struct flight *fl, struct pbox_hdr *h)
{
	(void)w;
	(void)t;
	h->round = fl->frag->round;
}

static void
lane_wait(const struct pbox_worker *w, struct flight *fl, const struct pbox_hdr *h)
{
	(void)w;
	fl->wait_missing = h->weight;
}

/** Answers to pulls have the version in round, those to pushes the clock; WAIT to a pull has 0. */
static bool
lane_answers(const struct pbox_worker *w, const struct pbox_worker_table *t,
	const struct flight *fl, const struct pbox_hdr *h)
{
	(void)w;
	(void)t;
	if (fl->type != PBOX_PULL)
		return h->round == fl->frag->round;
	return flight_is_since(fl, h) && (h->type == PBOX_RESULT || h->round == 0);
}

static void
lane_result(struct pbox_worker_table *t, struct frag *f, const struct pbox_hdr *h,
	struct retained *k, struct pbox_client_stats *count)
{
	(void)t;
	(void)k;
	(void)count;
	f->round = h->round;
}

static bool
lane_defers(const struct pbox_worker_table *t, const struct frag *f)
{
	(void)t;
	(void)f;
	return true;
}

static uint32_t
lane_version(const struct pbox_worker_table *t, const struct frag *f)
{
	return t->retained[table_frag_number(t, f)].version;
}

static bool
lane_needs_from(const struct pbox_worker_table *t, uint32_t *round)
{
	(void)t;
	(void)round;
	return false;
}

static const struct worker_discipline by_clock = {
	.survives = true,
	.lanes = 2,
	.unit = "push",
	.begin = lane_begin,
	.push = lane_push,
	.withdraw = lane_withdraw,
	.contribute = lane_contribution,
	.ask = lane_ask,
	.answers = lane_answers,
	.result = lane_result,
	.wait = lane_wait,
	.defers = lane_defers,
	.version = lane_version,
	.needs_from = lane_needs_from,
};

/* ---- the worker, and its box ---------------------------------------------------------------------------------- */

static struct {
	struct pbox_worker *w;
	struct session *s;
	struct pbox_worker_ops port;
	struct pbox_worker_table *t;
	uint64_t now;
	struct pbox_hdr sent[SENT]; /* since the last turn() */
	unsigned n;
	struct pbox_worker_op *op[OPS];
	unsigned ops;
	float in[FRAGMENTS][ELEMENTS], out[FRAGMENTS][ELEMENTS];
} x;

static void
port_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	(void)ctx;
	for (unsigned i = 0; i < n; i++) {
		uint8_t data[1500], *at = data;
		size_t size = 0, left = d[i].bytes;

		for (unsigned k = 0; k < d[i].n; k++) {
			memcpy(at, d[i].iov[k].iov_base, d[i].iov[k].iov_len);
			at += d[i].iov[k].iov_len;
		}
		for (at = data; left > 0; at += size, left -= size) {
			CU_ASSERT_FATAL(x.n < SENT);
			CU_ASSERT_FATAL(pbox_frame_decode(at, left, at == data, &x.sent[x.n++],
						&size) == PBOX_WIRE_OK);
		}
	}
}

static uint64_t
port_random(void *ctx)
{
	(void)ctx;
	return 7;
}

/** One chunk a fragment, and a tensor for all but the last two of them, which has two pieces. */
static void
add_table(const struct worker_discipline *discipline)
{
	static const struct pbox_client_tensor tensors[] = {
		{"all", (FRAGMENTS - 2) * ELEMENTS, 0}, {"last", 2 * ELEMENTS, 0}};
	const struct pbox_client_table d = {.size = sizeof(d),
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 2,
		.tensors = tensors};
	struct pbox_segment segment[FRAGMENTS];
	uint32_t first[FRAGMENTS];
	uint16_t count[FRAGMENTS];
	struct table_map m = {
		.segment = segment, .first = first, .count = count, .used = FRAGMENTS};
	struct pbox_client_error err;
	struct pbox_worker_table *t = x.t = table_new(&d, 0, discipline);

	CU_ASSERT_FATAL(t != NULL);
	t->chunks = FRAGMENTS;
	t->frag_elements = ELEMENTS;
	t->chunk = calloc(FRAGMENTS, sizeof(*t->chunk));
	CU_ASSERT_FATAL(t->chunk != NULL);
	for (unsigned i = 0; i < FRAGMENTS; i++) {
		bool last = i >= FRAGMENTS - 2;

		segment[i] = (struct pbox_segment){
			(i - (last ? FRAGMENTS - 2 : 0)) * ELEMENTS, last, ELEMENTS};
		first[i] = i;
		count[i] = 1;
		t->chunk[i] = (struct chunk){.id = i, .elements = ELEMENTS};
	}
	UNIT_EQ_U64(table_layout(t, &m, BYTES, &err), 0);
	UNIT_EQ_U64(discipline->begin(x.s, t, 0, &err), 0);
	UNIT_EQ_U64(retained_open(t), 0);
	if (discipline->lanes > 1)
		UNIT_EQ_U64(queue_open_pulls(x.s), 0);
	UNIT_EQ_U64(chunks_add_table(x.w, t), 0);
}

static void
begin(const struct worker_discipline *discipline, uint16_t window)
{
	const struct pbox_client_conf conf = {
		.size = sizeof(conf), .job = "job", .workers = 2, .keep_copies = 1};
	struct sockaddr_in box = {.sin_family = AF_INET};

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
		.welcome = {.endpoints = 1,
			.window = window,
			.workers = 2,
			.lease_ms = 30000,
			.endpoint = {{.ipv4 = {10, 0, 0, 1}, .udp = 7270}}}};
	CU_ASSERT_FATAL(join_settle(&x.s->join) == 0);
	x.s->phase = SESSION_OPEN;
	x.s->last_rx = x.s->pinged_ns = x.now;
	add_table(discipline);
}

static void
end(void)
{
	pbox_worker_destroy(x.w);
	for (unsigned i = 0; i < x.ops; i++)
		free(x.op[i]);
}

/** All elements of a tensor. */
static struct pbox_worker_op *
submit(unsigned kind, unsigned tensor, uint8_t prio)
{
	struct pbox_worker_op *op = calloc(1, sizeof(*op) + sizeof(op->e[0]));
	unsigned first = tensor == 0 ? 0 : FRAGMENTS - 2;

	CU_ASSERT_FATAL(op != NULL && x.ops < OPS);
	x.op[x.ops++] = op;
	op->table = x.t;
	op->kind = (uint8_t)kind;
	op->prio = prio;
	op->weight = 1;
	op->n = 1;
	op->e[0] = (struct pbox_worker_entry){.op = op, .tensor = tensor};
	if (kind == PBOX_CLIENT_PULL)
		op->e[0].out = (uint8_t *)x.out[first];
	else
		op->e[0].in = (const uint8_t *)x.in[first];
	pbox_worker_submit(x.w, op);
	return op;
}

/** Time passes, and what is due is sent. */
static void
turn(uint64_t ns)
{
	x.now += ns;
	x.n = 0;
	pbox_worker_tick(x.w, x.now, x.now);
}

static unsigned
count(uint8_t type)
{
	unsigned n = 0;

	for (unsigned i = 0; i < x.n; i++)
		n += x.sent[i].type == type;
	return n;
}

/** Of the fragment, among those just sent; NULL: there is none. */
static const struct pbox_hdr *
sent(uint8_t type, uint32_t chunk)
{
	for (unsigned i = 0; i < x.n; i++)
		if (x.sent[i].type == type && x.sent[i].chunk == chunk)
			return &x.sent[i];
	return NULL;
}

static void
answer(const struct pbox_hdr *to, uint8_t type, uint32_t round, const float *payload)
{
	struct pbox_hdr h = *to;
	uint8_t data[PBOX_HDR_LEN + BYTES];
	const struct pbox_client_rx d = {
		.data = data, .len = PBOX_HDR_LEN + (payload != NULL ? BYTES : 0)};

	h.type = type;
	h.flags = type == PBOX_RESULT && payload == NULL ? PBOX_F_ZERO : 0;
	h.format = type == PBOX_RESULT ? PBOX_FMT_FP32 : 0;
	h.round = round;
	h.length = (uint16_t)(d.len - PBOX_HDR_LEN);
	h.held = 0;
	if (payload != NULL)
		memcpy(data + PBOX_HDR_LEN, payload, BYTES);
	pbox_frame_encode(data, &h, payload != NULL ? pbox_crc32c(0, payload, BYTES) : 0);
	pbox_worker_rx(x.w, &d, 1, x.now);
}

static bool
is_finished(const struct pbox_worker_op *op)
{
	return op->open == 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void
test_pull_beside_push(void)
{
	for (unsigned pull_first = 0; pull_first < 2; pull_first++) {
		struct pbox_worker_op *push, *pull;
		struct pbox_hdr a, b;
		float result[2][ELEMENTS];

		for (unsigned i = 0; i < 2 * ELEMENTS; i++)
			result[i / ELEMENTS][i % ELEMENTS] = (float)i;
		begin(&by_clock, WINDOW);
		push = submit(PBOX_CLIENT_PUSH, 1, 0);
		pull = submit(PBOX_CLIENT_PULL, 1, 0);
		turn(0);
		UNIT_EQ_U64(count(PBOX_PUSH), 2);
		UNIT_EQ_U64(count(PBOX_PULL), 2);
		UNIT_EQ_U64(x.s->ep[0].in_flight, 4); /* each in the window */
		for (uint32_t i = 0; i < 2; i++) {
			a = *sent(PBOX_PUSH, FRAGMENTS - 2 + i);
			b = *sent(PBOX_PULL, FRAGMENTS - 2 + i);
			UNIT_EQ_U64(a.round, 1);
			CU_ASSERT((b.flags & PBOX_F_LATEST) != 0);
			if (pull_first)
				answer(&b, PBOX_RESULT, 5, result[i]);
			CU_ASSERT(!is_finished(push));
			answer(&a, PBOX_PUSH_OK, 1, NULL);
			CU_ASSERT(is_finished(push) == (i == 1));
			CU_ASSERT(is_finished(pull) == (pull_first && i == 1));
			/* the same once more is a duplicate, and no answer to the pull */
			answer(&a, PBOX_PUSH_OK, 1, NULL);
			if (!pull_first)
				answer(&b, PBOX_RESULT, 5, result[i]);
			CU_ASSERT(is_finished(pull) == (i == 1));
			answer(&b, PBOX_RESULT, 5, result[i]);
			UNIT_EQ_U64(x.w->lane[0]->count.rx_duplicates, 2 * (i + 1));
			/* what came is retained for the fragment of both lanes */
			UNIT_EQ_U64(x.t->retained[FRAGMENTS - 2 + i].version, 5);
			CU_ASSERT(x.t->retained[FRAGMENTS - 2 + i].have);
		}
		CU_ASSERT(memcmp(x.out[FRAGMENTS - 2], result, sizeof(result)) == 0);
		UNIT_EQ_U64(x.s->ep[0].in_flight, 0);
		end();
	}
}

static void
test_rounds_have_one_lane(void)
{
	struct pbox_worker_op *push, *pull;
	struct pbox_hdr a, b;

	begin(&worker_rounds, WINDOW);
	push = submit(PBOX_CLIENT_PUSH, 1, 0);
	pull = submit(PBOX_CLIENT_PULL, 1, 0);
	turn(0);
	UNIT_EQ_U64(count(PBOX_PUSH), 2);
	UNIT_EQ_U64(count(PBOX_PULL), 0);
	a = *sent(PBOX_PUSH, FRAGMENTS - 1);
	b = *sent(PBOX_PUSH, FRAGMENTS - 2);
	answer(&a, PBOX_PUSH_OK, 1, NULL);
	answer(&b, PBOX_PUSH_OK, 1, NULL);
	CU_ASSERT(is_finished(push));
	turn(0);
	UNIT_EQ_U64(count(PBOX_PULL), 2);
	a = *sent(PBOX_PULL, FRAGMENTS - 1);
	b = *sent(PBOX_PULL, FRAGMENTS - 2);
	UNIT_EQ_U64(a.round, 1);
	answer(&a, PBOX_RESULT, 2, NULL); /* of another round */
	answer(&a, PBOX_RESULT, 1, NULL);
	answer(&b, PBOX_RESULT, 1, NULL);
	CU_ASSERT(is_finished(pull));
	UNIT_EQ_U64(x.w->lane[0]->count.rx_duplicates, 1);
	CU_ASSERT(x.s->pulls == NULL); /* rounds do without */
	end();
}

static void
test_lanes_are_serialised(void)
{
	struct pbox_hdr a, b;

	begin(&by_clock, WINDOW);
	for (unsigned i = 0; i < 2; i++) {
		submit(PBOX_CLIENT_PULL, 1, 0);
		submit(PBOX_CLIENT_PUSH, 1, 0);
	}
	turn(0);
	UNIT_EQ_U64(count(PBOX_PUSH), 2);
	UNIT_EQ_U64(count(PBOX_PULL), 2);
	a = *sent(PBOX_PUSH, FRAGMENTS - 1);
	b = *sent(PBOX_PULL, FRAGMENTS - 1);
	answer(&a, PBOX_PUSH_OK, 1, NULL);
	turn(0);
	UNIT_EQ_U64(x.n, 1);
	UNIT_EQ_U64(sent(PBOX_PUSH, FRAGMENTS - 1)->round, 2); /* the next clock */
	answer(&b, PBOX_RESULT, 3, NULL);
	turn(0);
	UNIT_EQ_U64(x.n, 1);
	CU_ASSERT(sent(PBOX_PULL, FRAGMENTS - 1) != NULL);
	end();
}

/* Pulls wait for other workers, and these may wait for a push of this one: half of the window is for pushes. */
static void
test_waiting_pulls_leave_room(void)
{
	struct pbox_worker_op *push;
	struct pbox_hdr pull[WINDOW];
	unsigned pulls, pushed = 0;

	begin(&by_clock, WINDOW);
	submit(PBOX_CLIENT_PULL, 0, 0); /* the most urgent ones */
	turn(0);
	pulls = x.n;
	memcpy(pull, x.sent, pulls * sizeof(*pull));
	UNIT_EQ_U64(pulls, WINDOW / 2);
	UNIT_EQ_U64(count(PBOX_PULL), pulls);
	for (unsigned i = 0; i < pulls; i++)
		answer(&pull[i], PBOX_WAIT, 0, NULL);
	turn(0);
	UNIT_EQ_U64(x.n, 0);
	push = submit(PBOX_CLIENT_PUSH, 0, 9);
	for (unsigned k = 0; k < FRAGMENTS && !is_finished(push); k++) {
		turn(0);
		UNIT_EQ_U64(count(PBOX_PULL), 0);
		CU_ASSERT(x.n > 0 && x.n <= WINDOW / 2);
		pushed += x.n;
		for (unsigned i = 0, n = x.n; i < n; i++)
			answer(&x.sent[i], PBOX_PUSH_OK, 1, NULL);
	}
	CU_ASSERT(is_finished(push));
	UNIT_EQ_U64(pushed, FRAGMENTS - 2);
	for (unsigned i = 0; i < pulls; i++)
		answer(&pull[i], PBOX_RESULT, 2, NULL);
	turn(0);
	UNIT_EQ_U64(count(PBOX_PULL), WINDOW / 2);
	end();
}

/* Of tables in clocks: an answer that is older than one that was taken, and one without a push that was confirmed. */
static void
test_clock_never_goes_back(void)
{
	struct pbox_worker_op *push, *pull;
	const struct frag_clock *k;
	struct pbox_hdr a, b;

	begin(&worker_clock, WINDOW);
	push = submit(PBOX_CLIENT_PUSHPULL, 1, 0);
	pull = submit(PBOX_CLIENT_PULL, 1, 0);
	turn(0);
	k = &x.t->clock[FRAGMENTS - 1];
	a = *sent(PBOX_PUSHPULL, FRAGMENTS - 1);
	b = *sent(PBOX_PULL, FRAGMENTS - 1);
	UNIT_EQ_U64(a.round, 1);
	UNIT_EQ_U64(b.round, 0);
	CU_ASSERT((b.flags & PBOX_F_LATEST) != 0);
	a.base = b.base = 1; /* of RESULTs: the push is in them */
	answer(&b, PBOX_RESULT, 6, NULL);
	UNIT_EQ_U64(push->open, 1); /* the other fragment */
	UNIT_EQ_U64(x.s->ep[0].in_flight, 3);
	UNIT_EQ_U64(k->last.version, 6);
	answer(&a, PBOX_RESULT, 5, NULL);
	UNIT_EQ_U64(x.w->lane[0]->count.rx_duplicates, 1);
	UNIT_EQ_U64(k->last.version, 6);
	b.base = 0;
	answer(&b, PBOX_RESULT, 7, NULL); /* and without the push */
	UNIT_EQ_U64(x.w->lane[0]->count.rx_duplicates, 2);
	b.base = 1;
	answer(&b, PBOX_RESULT, 7, NULL);
	UNIT_EQ_U64(k->last.version, 7);
	UNIT_EQ_U64(k->before.version, 6);
	UNIT_EQ_U64(x.s->ep[0].in_flight, 2);
	CU_ASSERT(!is_finished(push) && !is_finished(pull));
	end();
}

/* The session is lost, and the box is not: the push goes again as it was. */
static void
test_clock_lost_session(void)
{
	begin(&worker_clock, WINDOW);
	submit(PBOX_CLIENT_PUSH, 1, 0);
	submit(PBOX_CLIENT_PUSH, 1, 0);
	turn(0);
	answer(sent(PBOX_PUSH, FRAGMENTS - 1), PBOX_PUSH_OK, 1, NULL);
	turn(0);
	UNIT_EQ_U64(sent(PBOX_PUSH, FRAGMENTS - 1)->round, 2);
	flight_withdraw_all(x.s);
	queue_clear(x.s);
	queue_rebuild(x.w);
	turn(0);
	UNIT_EQ_U64(sent(PBOX_PUSH, FRAGMENTS - 1)->round, 2);
	UNIT_EQ_U64(sent(PBOX_PUSH, FRAGMENTS - 2)->round, 1);
	end();
}

/* Neither lane has the window of the other when all of it is one frame. */
static void
test_window_of_one(void)
{
	struct pbox_hdr a;

	begin(&by_clock, 1);
	submit(PBOX_CLIENT_PULL, 1, 0);
	turn(0);
	UNIT_EQ_U64(x.n, 1);
	a = x.sent[0];
	submit(PBOX_CLIENT_PUSH, 1, 0);
	turn(0);
	UNIT_EQ_U64(x.n, 0);
	answer(&a, PBOX_RESULT, 1, NULL);
	turn(0);
	UNIT_EQ_U64(x.n, 1);
	end();
}

static void
test_lost_session(void)
{
	begin(&by_clock, WINDOW);
	submit(PBOX_CLIENT_PUSH, 1, 0);
	submit(PBOX_CLIENT_PULL, 1, 0);
	submit(PBOX_CLIENT_PULL, 0, 9); /* some of it is ready, and does not fit */
	turn(0);
	UNIT_EQ_U64(x.n, 2 + WINDOW / 2);
	flight_withdraw_all(x.s);
	queue_clear(x.s);
	UNIT_EQ_U64(x.s->ep[0].in_flight, 0);
	CU_ASSERT(!queue_has(&x.s->ep[0]));
	queue_rebuild(x.w);
	turn(0);
	UNIT_EQ_U64(x.n, 2 + WINDOW / 2);
	UNIT_EQ_U64(sent(PBOX_PUSH, FRAGMENTS - 1)->round, 1); /* it has not counted */
	CU_ASSERT(sent(PBOX_PULL, FRAGMENTS - 1) != NULL);
	end();
}

/* WAIT without HAVE is "not now" where the discipline says so, and no loss; an unanswered push is one. */
static void
test_deferred_and_lost(void)
{
	struct pbox_hdr a;

	begin(&by_clock, WINDOW);
	submit(PBOX_CLIENT_PUSH, 1, 0);
	turn(0);
	a = *sent(PBOX_PUSH, FRAGMENTS - 1);
	answer(sent(PBOX_PUSH, FRAGMENTS - 2), PBOX_PUSH_OK, 1, NULL);
	answer(&a, PBOX_WAIT, 1, NULL);
	UNIT_EQ_U64(x.s->ep[0].lost_ns, 0);
	turn(3 * NS_PER_MS);
	UNIT_EQ_U64(x.n, 0);
	turn(2 * NS_PER_MS);
	UNIT_EQ_U64(count(PBOX_PUSH), 1);
	UNIT_EQ_U64(x.sent[0].round, 1);
	CU_ASSERT((x.sent[0].flags & PBOX_F_RETX) != 0);
	UNIT_EQ_U64(x.s->ep[0].lost_ns, 0);
	answer(&x.sent[0], PBOX_PUSH_OK, 1, NULL);
	submit(PBOX_CLIENT_PUSHPULL, 1, 0);
	turn(0);
	UNIT_EQ_U64(count(PBOX_PUSHPULL), 2);
	turn(NS_PER_S);
	UNIT_EQ_U64(count(PBOX_PUSHPULL),
		2); /* and no probe, which another lane would take for its own */
	UNIT_EQ_U64(count(PBOX_PULL), 0);
	end();
}

static size_t
allocated(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* Nothing is allocated for data. (A sanitizer's allocator counts nothing here.) */
static void
test_no_memory_for_data(void)
{
	const struct worker_discipline *const both[] = {&worker_rounds, &by_clock};

	for (unsigned k = 0; k < 2; k++) {
		size_t before = 0;

		begin(both[k], WINDOW);
		for (uint32_t round = 1; round <= 100; round++) {
			struct pbox_worker_op *op = submit(PBOX_CLIENT_PUSHPULL, 1, 0);

			if (round == 1)
				before = allocated();
			UNIT_EQ_U64(allocated(), before);
			turn(0);
			UNIT_EQ_U64(x.n, 2);
			for (unsigned i = 0; i < x.n; i++)
				answer(&x.sent[i], PBOX_RESULT, round, x.in[0]);
			CU_ASSERT_FATAL(is_finished(op));
			UNIT_EQ_U64(allocated(), before);
			pbox_worker_finished(x.w);
			free(x.op[--x.ops]);
		}
		end();
	}
}

/* Another worker has pushed before what worker 0 loads was given to the box: that ends with the reason, and at once. */
static void
test_given_too_late(void)
{
	struct pbox_worker_op *op;
	struct pbox_hdr h;

	begin(&worker_rounds, WINDOW);
	op = submit(PBOX_CLIENT_GIVE, 1, 0);
	turn(0);
	UNIT_EQ_U64(count(PBOX_INIT), 2);
	for (uint32_t i = 0; i < 2; i++) {
		h = *sent(PBOX_INIT, FRAGMENTS - 2 + i);
		h.aux = PBOX_E_BAD_REQUEST;
		answer(&h, PBOX_ERROR, h.round, NULL);
	}
	CU_ASSERT(is_finished(op));
	UNIT_EQ_U64(op->code, PBOX_C_REFUSED);
	CU_ASSERT_PTR_NOT_NULL(strstr(op->text, "another worker has pushed round 1 of it before"));
	end();
}

/* All that it sends to the endpoint of its data is lost: it keeps its lease with PINGs to another one. */
static void
test_busy_and_lost(void)
{
	unsigned pings = 0, pulls = 0;

	begin(&worker_rounds, WINDOW);
	submit(PBOX_CLIENT_PULL, 0, 0);
	for (unsigned ms = 0; ms < 1900; ms++) {
		turn(1000000);
		pulls += count(PBOX_PULL);
		pings += count(PBOX_PING);
	}
	CU_ASSERT(pulls > 10);
	UNIT_EQ_U64(pings, 1);
	end();
}

const struct unit_test unit_tests[] = {
	{"a pull beside a push", test_pull_beside_push},
	{"rounds have one lane", test_rounds_have_one_lane},
	{"each lane is serialised", test_lanes_are_serialised},
	{"waiting pulls leave room for pushes", test_waiting_pulls_leave_room},
	{"clocks never go back", test_clock_never_goes_back},
	{"clocks, and a lost session", test_clock_lost_session},
	{"a window of one", test_window_of_one},
	{"a lost session", test_lost_session},
	{"deferred, and lost", test_deferred_and_lost},
	{"given too late", test_given_too_late},
	{"busy, and all is lost", test_busy_and_lost},
	{"no memory for data", test_no_memory_for_data},
	{NULL, NULL},
};
