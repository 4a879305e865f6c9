/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * One or two workers (lib/worker), what their program does with them, and the engine as the box, all in virtual time.
 * The input: [flags, number of the program's steps, steps of two bytes, job, what becomes of the box's frames
 * (network.c)]. Whatever comes, what is sent is sound; what fails has a code and a text; nothing of the host's is used
 * after it was given back; and a result is exact, unless somebody who knows the keys has changed a frame.
 */

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include <pbox_worker_plan.h>

#include "network.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TABLES  4
#define TENSORS 6
#define OPS     32 /* of a worker */
#define SLOTS   5
#define STEPS   48
#define TURNS   1500
#define MS      UINT64_C(1000000)
#define CONTENT 0x30 /* bytes of what is pushed, and the number of the push of its tensor */

enum step {
	STEP_PUSHPULL, /* which tensors, of which table */
	STEP_PUSH,
	STEP_PULL,
	STEP_INIT,
	STEP_WAIT,    /* at most so many 50 ms */
	STEP_CANCEL,  /* the request */
	STEP_RESTART, /* of the box */
	STEP_DECLARE, /* shape */
	STEP_SET,
	STEP_ASK,      /* status, why, statistics */
	STEP_YIELD,    /* so many ms */
	STEP_QUESTION, /* about the plan: which */
	STEP_SLOT,     /* which one begins */
	STEP_STOP,     /* the last worker, for so many 20 ms: others may get its slots */
	STEPS_KINDS
};

static const uint32_t sizes[] = {1, 100, 700, 3000, 0, 64, 365, 5000};

struct table {
	struct pbox_worker_table *t;
	struct pbox_client_table what;
	struct pbox_client_tensor tensor[TENSORS];
	uint8_t pushed[TENSORS];
};

struct peer {
	unsigned number;
	struct pbox_worker *w;
	struct pbox_worker_ops port;
	struct table table[TABLES];
	unsigned tables;
	struct pbox_worker_declaration d;
	bool declaring, asking;
	struct pbox_worker_request q;
	uint8_t payload[256], *answer;
	unsigned ops, open;
	struct pbox_worker_question plan;
	bool planned, questioning;
	bool more;        /* the round wants more of it */
	uint64_t stopped; /* until then */
};

struct mem {
	struct mem *next;
	uint8_t data[];
};

static struct peer peer[NET_WORKERS];
static unsigned peers, turns;
static struct mem *mem;
static uint64_t numbers;

/* Of exactly that size, until all has ended. */
static void *
memory(size_t size, uint8_t content)
{
	struct mem *m = malloc(sizeof(*m) + size);

	REQUIRE(m != NULL);
	memset(m->data, content, size);
	m->next = mem;
	mem = m;
	return m->data;
}

static void
judge(int code, const char *text, size_t cap)
{
	REQUIRE(code <= PBOX_C_OK && code >= PBOX_C_RUN_ENDED);
	REQUIRE(memchr(text, '\0', cap) != NULL && (code == PBOX_C_OK || text[0] != '\0'));
}

/* ---- the port ---------------------------------------------------------------------------------- */

static uint64_t
port_random(void *ctx)
{
	(void)ctx;
	return ++numbers * UINT64_C(0x9E3779B97F4A7C15);
}

static void
port_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	const struct peer *p = ctx;
	static uint8_t buf[NET_MTU];

	REQUIRE(n > 0 && n <= p->port.batch);
	for (unsigned i = 0; i < n; i++) {
		size_t len = 0, size;

		for (uint32_t k = 0; k < d[i].n; k++) {
			REQUIRE(len + d[i].iov[k].iov_len <= NET_MTU - 28);
			memcpy(buf + len, d[i].iov[k].iov_base, d[i].iov[k].iov_len);
			len += d[i].iov[k].iov_len;
		}
		REQUIRE(len == d[i].bytes);
		for (size_t at = 0; at < len; at += size) {
			struct pbox_hdr h;

			REQUIRE(pbox_frame_decode(buf + at, len - at, at == 0, &h, &size) ==
				PBOX_WIRE_OK);
		}
		net_to_box(p->number, &d[i].to->addr, buf, len);
	}
}

/* ---- what has ended ---------------------------------------------------------------------------- */

/* All workers have pushed the same. */
static void
check_sum(const struct pbox_client_table *t, const struct pbox_worker_entry *e, uint8_t content,
	uint64_t elements)
{
	uint8_t in[4], right[4];
	struct pbox_sources s = {
		.n = peers, .elem = t->push_format, .src = (const void *[]){in, in}};
	float sum;

	memset(in, content, sizeof(in));
	pbox_reduce_scalar.sum(&sum, &s, 0, 1);
	if (t->pull_format == PBOX_FMT_FP32)
		memcpy(right, &sum, sizeof(sum));
	else
		pbox_reduce_scalar.pack(right, t->pull_format, &sum, 1);
	for (uint64_t i = 0; i < elements; i++)
		REQUIRE(memcmp(e->out + i * pbox_format_size(t->pull_format), right,
				pbox_format_size(t->pull_format)) == 0);
}

static void
check_op(const struct peer *p, const struct pbox_worker_op *op)
{
	const struct table *t = p->table;

	judge(op->code, op->text, sizeof(op->text));
	while (t->t != op->table)
		t++;
	if (op->code != PBOX_C_OK || !net_honest() || t->what.mode != PBOX_MODE_ALLREDUCE ||
		t->what.op != PBOX_OP_SUM)
		return;
	for (unsigned i = 0; i < op->n; i++)
		if (op->e[i].out != NULL)
			check_sum(&t->what, &op->e[i], ((const uint8_t *)&op->e[TENSORS])[i],
				t->tensor[op->e[i].tensor].elements);
}

static void
end_declaring(struct peer *p)
{
	struct table *t = &p->table[p->tables];

	p->declaring = false;
	if (p->d.state == PBOX_WORKER_DECLARED) {
		t->t = p->d.table;
		p->tables++;
	} else {
		judge(p->d.err.code, p->d.err.text, sizeof(p->d.err.text));
	}
}

/* What it owns is slots of the job, in order, and none twice. */
static void
check_nodes(const struct peer *p)
{
	unsigned end = 0;

	for (unsigned i = 0; i < pbox_worker_table_nodes(p->w, p->plan.table); i++) {
		struct pbox_node n = pbox_worker_table_node(p->w, p->plan.table, i);

		REQUIRE(n.first >= end && n.first < SLOTS);
		end = pbox_node_end(n, SLOTS);
	}
}

static void
collect_question(struct peer *p)
{
	if (pbox_worker_replied(p->w) == NULL)
		return;
	REQUIRE(p->questioning);
	p->questioning = false;
	REQUIRE(p->plan.err.code != PBOX_C_OK || !p->plan.changed ||
		p->plan.nodes == pbox_worker_table_nodes(p->w, p->plan.table));
	if (p->plan.err.code != PBOX_C_DEADLINE) /* a text of the host's */
		judge(p->plan.err.code, p->plan.err.text, sizeof(p->plan.err.text));
	check_nodes(p);
}

static void
collect(struct peer *p)
{
	for (struct pbox_worker_op *op = pbox_worker_finished(p->w), *next; op != NULL; op = next) {
		next = op->next;
		REQUIRE(p->open > 0);
		p->open--;
		p->more |= op->more;
		check_op(p, op);
	}
	collect_question(p);
	if (pbox_worker_answered(p->w) != NULL) {
		REQUIRE(p->asking && p->q.answer_len <= p->q.answer_cap);
		p->asking = false;
	}
	if (p->declaring && p->d.state != PBOX_WORKER_DECLARING)
		end_declaring(p);
}

/* ---- time -------------------------------------------------------------------------------------- */

static bool
busy(void)
{
	bool any = false;

	for (unsigned i = 0; i < peers; i++)
		any |= peer[i].open > 0 || peer[i].asking || peer[i].questioning ||
		       peer[i].declaring || pbox_worker_state(peer[i].w) == PBOX_WORKER_OPENING;
	return any;
}

static uint64_t
tick_all(void)
{
	uint64_t due = UINT64_MAX;

	for (unsigned i = 0; i < peers; i++) {
		uint64_t t;

		if (m_now < peer[i].stopped)
			continue;
		t = pbox_worker_tick(peer[i].w, m_now, m_now);
		due = t < due ? t : due;
		collect(&peer[i]);
	}
	return due > m_now ? due - m_now : 0;
}

/* So long, or until nothing is waited for. */
static void
run(uint64_t ns, bool all)
{
	for (uint64_t end = m_now + ns; m_now < end && (all || busy()) && turns < TURNS; turns++) {
		struct pbox_client_rx d;
		unsigned to;
		uint64_t due;

		while (net_receive(&d, &to))
			if (m_now >= peer[to].stopped)
				pbox_worker_rx(peer[to].w, &d, 1, m_now);
		due = tick_all();
		due = due < 20 * MS ? due : 20 * MS;
		net_pass(due < end - m_now ? due : end - m_now);
	}
}

/* ---- steps: what one worker does, the others do ------------------------------------------------- */

static void
declare(struct peer *p, uint8_t shape)
{
	static const char *const names[TENSORS] = {"a", "b", NULL, "d", "e", "f"};
	struct table *t = &p->table[p->tables];
	struct pbox_client_error err;

	if (p->tables == TABLES || p->declaring)
		return;
	t->what = (struct pbox_client_table){.size = sizeof(t->what),
		.mode = shape & 1,
		.op = shape >> 1 & 3,
		.optimiser = (shape & 1) != 0 ? 1 + (shape >> 1 & 3) : 0,
		.push_format = 1 + (shape >> 3 & 3) % 3,
		.pull_format = 1 + (shape >> 5 & 3) % 3,
		.first_round = shape >> 7,
		.n = 1 + shape % TENSORS,
		.tensors = t->tensor};
	memset(t->pushed, 0, sizeof(t->pushed));
	for (unsigned i = 0; i < t->what.n; i++)
		t->tensor[i] = (struct pbox_client_tensor){names[i],
			sizes[(shape + i * 3) % (sizeof(sizes) / sizeof(sizes[0]))], i & 1};
	if (pbox_worker_check_table(&t->what, &err) != 0)
		return;
	p->d = (struct pbox_worker_declaration){.what = &t->what};
	p->declaring = true;
	pbox_worker_declare(p->w, &p->d);
}

static void
declare_all(uint8_t shape)
{
	for (unsigned i = 0; i < peers; i++)
		declare(&peer[i], shape);
	run(500 * MS, false);
	for (unsigned i = 0; i < peers; i++)
		if (peer[i].declaring) {
			pbox_worker_declare_cancel(peer[i].w, &peer[i].d);
			peer[i].declaring = false;
		}
}

/* What lib/client does not let pass does not come to a worker. */
static bool
may(const struct peer *p, const struct table *t, unsigned kind, unsigned tensor)
{
	if (kind == PBOX_CLIENT_INIT)
		return pbox_worker_number(p->w) == 0 && t->what.mode == PBOX_MODE_OPTIMISER;
	return kind != PBOX_CLIENT_PULL || t->pushed[tensor] > 0 ||
	       (t->what.mode == PBOX_MODE_OPTIMISER && t->what.first_round == 0);
}

/* Each node of its slots brings what the first does. False: it has none. */
static bool
by_nodes(struct peer *p, struct pbox_worker_op *op)
{
	unsigned nodes = pbox_worker_table_nodes(p->w, op->table);
	uint32_t *weight = memory(nodes * sizeof(*weight), 0);
	const uint8_t **in = memory(sizeof(*in) * nodes * op->n, 0);

	for (unsigned k = 0; k < nodes; k++)
		for (unsigned i = 0; i < op->n; i++)
			in[k * op->n + i] = op->e[i].in;
	op->nodes = nodes;
	op->node_in = in;
	op->node_weight = weight;
	op->again = p->more;
	p->more = false;
	return nodes > 0;
}

static void
submit(struct peer *p, unsigned kind, uint8_t a)
{
	struct table *t = &p->table[a & 3];
	bool in = kind != PBOX_CLIENT_PULL;
	bool back = kind == PBOX_CLIENT_PULL || kind == PBOX_CLIENT_PUSHPULL;
	struct pbox_worker_op *op;
	unsigned which = 1 + (a >> 2) % 63;

	if ((a & 3u) >= p->tables || p->ops == OPS)
		return;
	/* after it: what has been pushed of each */
	op = memory(sizeof(*op) + TENSORS * sizeof(op->e[0]) + TENSORS, 0);
	for (unsigned i = 0; i < t->what.n; i++) {
		struct pbox_worker_entry *e = &op->e[op->n];
		size_t bytes = t->tensor[i].elements;
		uint8_t content;

		if ((which >> i & 1) == 0 || !may(p, t, kind, i))
			continue;
		t->pushed[i] += kind <= PBOX_CLIENT_PUSH;
		content = CONTENT + (t->pushed[i] & 15);
		((uint8_t *)&op->e[TENSORS])[op->n] = content;
		e->op = op;
		e->tensor = i;
		e->in = in ? memory(bytes * (kind == PBOX_CLIENT_INIT
							    ? 4
							    : pbox_format_size(
								      t->what.push_format)),
				     content)
			   : NULL;
		e->out = back ? memory(bytes * pbox_format_size(t->what.pull_format), 0) : NULL;
		op->n++;
	}
	if (op->n == 0)
		return;
	op->table = t->t;
	if (p->planned && kind <= PBOX_CLIENT_PUSH && !by_nodes(p, op))
		return;
	op->kind = (uint8_t)kind;
	op->prio = a;
	op->weight = 1 + (a & 7);
	p->ops++;
	p->open++;
	pbox_worker_submit(p->w, op);
}

static void
request(struct peer *p, enum pbox_type type, size_t length)
{
	size_t cap = 600;

	if (p->asking)
		return;
	p->q = (struct pbox_worker_request){.type = (uint8_t)type,
		.payload = p->payload,
		.length = (uint16_t)length,
		.answer = memory(cap, 0),
		.answer_cap = cap};
	p->asking = true;
	pbox_worker_request(p->w, &p->q);
}

static void
set(struct peer *p, uint8_t a)
{
	struct pbox_set m = {.table = a & 3,
		.group = a & 4 ? PBOX_ALL_GROUPS : 0,
		.count = 1 + (a >> 6 & 1),
		.from_round = 1 + (a >> 7),
		.param = {{.id = 1 + (a >> 3 & 7), .value = 0.1}, {.id = 1, .value = 0.9}}};

	if (!p->asking)
		request(p, PBOX_SET, pbox_set_encode(p->payload, sizeof(p->payload), &m));
}

static void
ask(struct peer *p, uint8_t a)
{
	struct pbox_client_stats stats = {.size = sizeof(stats)};
	struct pbox_worker_wait wait;
	size_t size = 1 + a * 4u;
	char *text = memory(size, 0);

	pbox_worker_why(p->w, a & 1 ? NULL : pbox_worker_oldest(p->w), &wait, text, size);
	REQUIRE(memchr(text, '\0', size) != NULL);
	pbox_worker_stats(p->w, &stats);
	REQUIRE(stats.retransmitted_frames <= stats.tx_frames);
	memset(p->payload, 0, 4);
	request(p, PBOX_STATUS, 4);
}

static void
question(struct peer *p, uint8_t a)
{
	bool reports = (a & 8) != 0;

	if (!p->planned || p->questioning || p->tables == 0)
		return;
	p->plan = (struct pbox_worker_question){.kind = (a & 7) % (PBOX_WORKER_STEAL + 1),
		.table = p->table[0].t,
		.deadline = m_now + (1 + (a >> 4)) * 100 * MS,
		.most = 50 * MS,
		.work = {.round = (a >> 6) < 3 ? 0 : a >> 6,
			.slots = reports ? 1 + (a >> 4 & 1) : 0,
			.fits = UINT32_MAX,
			.compute = 0.01,
			.up = 0.001,
			.down = 0.001,
			.seed = PBOX_WORK_NONE,
			.samples = PBOX_WORK_NONE}};
	p->questioning = true;
	pbox_worker_ask(p->w, &p->plan);
}

static void
slot(struct peer *p, uint8_t a)
{
	bool restoring;

	if (p->planned && p->tables > 0)
		pbox_worker_slot_begin(p->w,
			pbox_worker_next_round(p->w, p->table[0].t, &restoring), a % SLOTS, m_now);
}

static void
step_of(struct peer *p, uint8_t what, uint8_t a)
{
	if (what <= STEP_INIT)
		submit(p, what, a);
	else if (what == STEP_SET)
		set(p, a);
	else if (what == STEP_ASK)
		ask(p, a);
	else if (what == STEP_QUESTION)
		question(p, a);
	else if (what == STEP_SLOT)
		slot(p, a);
	else if (what == STEP_CANCEL && p->asking)
		pbox_worker_request_cancel(p->w, &p->q);
	p->asking &= what != STEP_CANCEL;
}

static void
step(uint8_t what, uint8_t a)
{
	what %= STEPS_KINDS;
	for (unsigned i = 0; i < peers; i++)
		step_of(&peer[i], what, a);
	if (what == STEP_WAIT)
		run(1 + a * 50 * MS, false);
	else if (what == STEP_YIELD)
		run(a * MS, true);
	else if (what == STEP_DECLARE)
		declare_all(a);
	else if (what == STEP_RESTART)
		m_restart();
	else if (what == STEP_STOP)
		peer[peers - 1].stopped = m_now + a * 20 * MS;
}

/* ---- all of it --------------------------------------------------------------------------------- */

static void
begin(struct peer *p, unsigned number, uint8_t flags, uint8_t job)
{
	static const char *const names[] = {"a", "b", "c"};
	const struct pbox_client_conf conf = {.size = sizeof(conf),
		.box = "10.0.0.1",
		.job = job >= 128 ? "e" : names[job % 3],
		.secret = job < 128 && job % 3 == 2 ? "" : "key",
		.host = "host",
		.worker = (flags & 1) != 0 ? (int)number : -1,
		.workers = peers,
		.timeout_ms = 3000,
		.join_timeout_ms = 5000,
		.gso = (flags & 8) != 0 ? 0 : -1,
		.keep_copies = (flags & 2) == 0,
		/* plain pushes: zeros but for one node */
		.slots = (job & 64) != 0 ? SLOTS : 0,
		.policy = (job & 96) == 96 ? PBOX_POLICY_REASSIGN : 0,
		.least = (job & 112) == 112 ? 1 : 0,
		.run = (job & 112) == 112 ? "run" : NULL};
	const struct sockaddr_in box = {.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(0x0A000001),
		.sin_port = htons(PBOX_CONTROL_PORT)};
	struct pbox_client_error err;

	REQUIRE(pbox_worker_check(&conf, &err) == 0);
	*p = (struct peer){.number = number,
		.planned = conf.policy == PBOX_POLICY_REASSIGN,
		.port = {.send = port_send,
			.random = port_random,
			.ctx = p,
			.mtu = NET_MTU,
			.batch = 64,
			.window = 64,
			.train_max = 8}};
	p->w = pbox_worker_create(&conf, &box, &p->port);
	REQUIRE(p->w != NULL);
	pbox_worker_open(p->w, m_now, m_now + 5000 * MS);
}

static void
end(struct peer *p)
{
	const struct pbox_client_error *err = pbox_worker_error(p->w);

	if (pbox_worker_state(p->w) == PBOX_WORKER_FAILED)
		judge(err->code, err->text, sizeof(err->text));
	pbox_worker_shut(p->w);
	collect(p);
	REQUIRE(p->open == 0 && !p->asking && !p->questioning && !p->declaring);
	pbox_worker_destroy(p->w);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned steps;
	uint8_t flags, job;

	if (size < 2)
		return 0;
	flags = data[0];
	steps = data[1] % STEPS;
	if (steps > (size - 2) / 2)
		steps = (unsigned)((size - 2) / 2);
	data += 2;
	size -= 2 + 2 * steps;
	job = size > 0 ? data[2 * steps] : 0;
	peers = (flags & 4) != 0 ? 2 : 1;
	turns = 0;
	numbers = 0;
	net_begin(data + 2 * steps + (size > 0), size - (size > 0));
	for (unsigned i = 0; i < peers; i++)
		begin(&peer[i], i, flags, job);
	run(6000 * MS, false);
	declare_all(flags >> 4 | (flags << 4 & 0x80));
	for (unsigned i = 0; i < steps; i++)
		step(data[2 * i], data[2 * i + 1]);
	for (unsigned i = 0; i < peers; i++)
		end(&peer[i]);
	net_end();
	while (mem != NULL) {
		struct mem *next = mem->next;

		free(mem);
		mem = next;
	}
	return 0;
}
