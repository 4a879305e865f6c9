/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The workers until they push: lib/worker joins, declares, maps and initialises, through the port as everything. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include <pbox_base.h>

#include <pbox_proof.h>

#include "bench.h"

#define SECOND     UINT64_C(1000000000)
#define DEADLINE_S 120
#define WINDOW     1024
#define BATCH      32

static uint8_t flat[65536 + 256];

__attribute__((noreturn)) static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "bench_box: %s: %s\n", what, why);
	exit(1);
}

uint64_t
join_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

/* ---- datagrams ------------------------------------------------------------------------------ */

static uint64_t
host_random(void *ctx)
{
	static struct pbox_random rnd = {.s = {1, 2, 3, 4}};

	(void)ctx;
	return pbox_random_u64(&rnd);
}

static void
host_send_one(struct bench_host *h, const struct pbox_client_tx *d)
{
	bool control = d->to->addr.sin_port == rte_cpu_to_be_16(PBOX_CONTROL_PORT);
	struct rig *r = h->r;
	uint32_t room, at = PBOX_NET_HEADERS_LEN;
	uint8_t *p;

	while (pbox_mem_peer_room(&r->peer, 1) == 0) {
		box_turn(r);
		if (join_clock_ns() > h->deadline)
			fail("port", "it has no buffers");
	}
	p = pbox_mem_peer_buffer(&r->peer, 0, &room);
	PBOX_ASSERT(at + d->bytes <= room);
	pbox_net_udp_header(control ? &r->control_headers[h->number] : &r->headers[h->number], p,
		(uint16_t)d->bytes, 1);
	for (uint32_t i = 0; i < d->n; i++) {
		memcpy(p + at, d->iov[i].iov_base, d->iov[i].iov_len);
		at += (uint32_t)d->iov[i].iov_len;
	}
	pbox_mem_peer_fill(&r->peer, 0, at, PBOX_MEM_IP_GOOD | PBOX_MEM_L4_GOOD);
	pbox_mem_peer_send(&r->peer, 1);
}

static void
host_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		host_send_one(ctx, &d[i]);
}

/* The next frame that has come back of the box, in flat; its length, 0: none. */
static uint32_t
next_frame(struct rig *r)
{
	uint32_t i = 0, len = 0;
	struct pbox_mem_seg s;

	if (pbox_mem_peer_waiting(&r->peer) == 0)
		return 0;
	do {
		s = pbox_mem_peer_segment(&r->peer, i++);
		PBOX_ASSERT(len + s.len <= sizeof(flat));
		memcpy(flat + len, s.addr, s.len);
		len += s.len;
	} while (!s.end);
	pbox_mem_peer_read(&r->peer, i);
	pbox_mem_peer_release(&r->peer);
	return len;
}

static void
host_receive(struct bench_host *h)
{
	const struct rte_ether_hdr *ether = (const void *)flat;
	const struct rte_ipv4_hdr *ip = (const void *)(ether + 1);
	const struct rte_udp_hdr *udp = (const void *)(ip + 1);
	uint32_t len;

	while ((len = next_frame(h->r)) > 0) {
		struct pbox_client_rx d = {.data = flat + PBOX_NET_HEADERS_LEN,
			.len = len - PBOX_NET_HEADERS_LEN,
			.from = {.sin_family = AF_INET,
				.sin_addr.s_addr = ip->src_addr,
				.sin_port = udp->src_port}};

		/* the control thread says to everybody where the box is (ARP) */
		if (ether->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4))
			pbox_worker_rx(h->w, &d, 1, join_clock_ns());
	}
}

/* Box and worker do what they can. */
static void
turn(struct bench_host *h, const char *what)
{
	uint64_t now;

	box_turn(h->r);
	pbox_control_step(h->r->control);
	now = join_clock_ns();
	host_receive(h);
	pbox_worker_tick(h->w, join_clock_ns(), now);
	if (pbox_worker_state(h->w) == PBOX_WORKER_FAILED)
		fail(what, pbox_worker_error(h->w)->text);
	if (now > h->deadline)
		fail(what, "the box does not answer");
}

/* ---- what they do ---------------------------------------------------------------------------- */

static void
begin(struct bench_host *h)
{
	h->deadline = join_clock_ns() + DEADLINE_S * SECOND;
}

static void
join(struct bench_host *h, struct rig *r, unsigned job, unsigned worker)
{
	char name[PBOX_NAME_LEN];
	const struct pbox_client_conf conf = {.size = sizeof(conf),
		.job = name,
		.secret = r->job_conf.secret,
		.host = "bench",
		.worker = (int)worker,
		.workers = r->o->workers,
		.join_timeout_ms = DEADLINE_S * 1000,
		/* nothing is lost, but a core may wait for its CPU */
		.min_rto_us = DEADLINE_S * 1000000};
	const struct sockaddr_in box = {.sin_family = AF_INET,
		.sin_addr.s_addr = r->port.nif.ip,
		.sin_port = rte_cpu_to_be_16(PBOX_CONTROL_PORT)};

	*h = (struct bench_host){.r = r,
		.number = worker,
		.port = {.send = host_send,
			.random = host_random,
			.ctx = h,
			.mtu = r->mtu,
			.batch = BATCH,
			.window = WINDOW}};
	snprintf(name, sizeof(name), "bench%u", job);
	h->w = pbox_worker_create(&conf, &box, &h->port);
	if (h->w == NULL)
		fail("workers", "out of memory");
	begin(h);
	pbox_worker_open(h->w, join_clock_ns(), h->deadline);
	while (pbox_worker_state(h->w) != PBOX_WORKER_OPEN)
		turn(h, "JOIN");
}

/* Only worker 0 waits for the map, which is that of all; the others are not asked for anything more. */
static struct pbox_worker_table *
declare(struct bench_host *h)
{
	const struct options *o = h->r->o;
	const struct pbox_client_tensor e = {.name = "model", .elements = h->r->elements};
	const struct pbox_client_table what = {.size = sizeof(what),
		.mode = o->optimiser == PBOX_OPT_NONE ? PBOX_MODE_ALLREDUCE : PBOX_MODE_OPTIMISER,
		.op = o->optimiser == PBOX_OPT_NONE || o->clock ? PBOX_OP_SUM : PBOX_OP_MEAN,
		.discipline = o->clock ? PBOX_DISCIPLINE_CLOCK : PBOX_DISCIPLINE_ROUNDS,
		.optimiser = (uint8_t)o->optimiser,
		.push_format = (uint8_t)o->format,
		.pull_format = (uint8_t)o->format,
		.n = 1,
		.tensors = &e};
	struct pbox_worker_declaration d = {.what = &what};

	begin(h);
	pbox_worker_declare(h->w, &d);
	while (d.state == PBOX_WORKER_DECLARING && !(h->number > 0 && d.asks_map))
		turn(h, "DECLARE");
	if (d.state == PBOX_WORKER_REFUSED)
		fail("DECLARE", d.err.text);
	if (d.state == PBOX_WORKER_DECLARING)
		pbox_worker_declare_cancel(h->w, &d);
	return d.table;
}

/* One tensor is cut into equal chunks, in order. */
static void
map(struct bench_job *j, const struct pbox_worker_table *t, uint32_t frag_elements)
{
	struct pbox_worker_table_info info;
	struct pbox_worker_chunk k;

	pbox_worker_table_info(t, &info);
	j->chunks = info.chunks;
	j->map_epoch = info.map_epoch;
	for (uint32_t i = 0; i < info.chunks; i++) {
		uint32_t frags;

		pbox_worker_chunk(t, i, &k);
		frags = k.elements / frag_elements;
		if (i == 0) {
			j->first_chunk = k.id;
			j->per_chunk = frags;
		}
		if (info.frag_elements != frag_elements || k.id != j->first_chunk + i ||
			k.elements % frag_elements != 0 ||
			(frags != j->per_chunk && i + 1 != info.chunks))
			fail("MAPPED", "chunks are not as the generator assumes");
		j->fragments += frags;
	}
}

void
rig_hyper(const struct options *o, struct pbox_hyper *h)
{
	h->lr = 0.01;
	if ((pbox_optim_scalar.of[o->optimiser]->uses & 1u << PBOX_HYPER_MOMENTUM) != 0)
		h->momentum = 0.9;
}

static void
set_lr(struct bench_host *h)
{
	struct pbox_set m = {.group = PBOX_ALL_GROUPS, .from_round = 1};
	struct pbox_hyper hyper = {0};
	struct pbox_client_error err, ended = {0};
	uint8_t payload[128], answer[512];
	struct pbox_worker_request q = {.type = PBOX_SET,
		.payload = payload,
		.answer = answer,
		.answer_cap = sizeof(answer)};

	rig_hyper(h->r->o, &hyper);
	m.param[0].id = PBOX_HYPER_LR;
	m.param[0].value = hyper.lr;
	m.param[1].id = PBOX_HYPER_MOMENTUM;
	m.param[1].value = hyper.momentum;
	m.count = hyper.momentum > 0 ? 2 : 1;
	q.length = (uint16_t)pbox_set_encode(payload, sizeof(payload), &m);
	begin(h);
	pbox_worker_request(h->w, &q);
	while (pbox_worker_answered(h->w) == NULL)
		turn(h, "SET");
	if (pbox_worker_result(&q, PBOX_SET_OK, "SET", &ended, &err) != 0)
		fail("SET", err.text);
}

/* Parameters begin at zero. */
static void
initialise(struct bench_host *h, struct pbox_worker_table *t)
{
	struct pbox_worker_op *op = calloc(1, sizeof(*op) + sizeof(op->e[0]));
	void *zeros = calloc(h->r->elements, sizeof(float));

	if (op == NULL || zeros == NULL)
		fail("INIT", "out of memory");
	op->table = t;
	op->kind = PBOX_CLIENT_INIT;
	op->n = 1;
	op->e[0].op = op;
	op->e[0].in = zeros;
	begin(h);
	pbox_worker_submit(h->w, op);
	while (pbox_worker_finished(h->w) == NULL)
		turn(h, "INIT");
	if (op->code != PBOX_C_OK)
		fail("INIT", op->text);
	free(zeros);
	free(op);
}

/* Each worker is a host of its own. */
static void
make_headers(struct rig *r)
{
	size_t size = r->o->workers * sizeof(*r->headers);

	r->headers = aligned_alloc(64, size);
	r->control_headers = aligned_alloc(64, size);
	if (r->headers == NULL || r->control_headers == NULL)
		fail("workers", "out of memory");
	for (unsigned w = 0; w < r->o->workers; w++) {
		const struct pbox_net_if nif = {.mac = {2, 0, 0, 1, (uint8_t)(w >> 8), (uint8_t)w},
			.ip = rte_cpu_to_be_32(RTE_IPV4(10, 78, 1 + w / 250, 1 + w % 250)),
			.prefix_len = 16};

		pbox_net_udp_template(&r->headers[w], &nif, 5000, r->port.nif.mac, r->port.nif.ip,
			r->endpoint.addr.udp, 0);
		pbox_net_udp_template(&r->control_headers[w], &nif, 5000, r->port.nif.mac,
			r->port.nif.ip, PBOX_CONTROL_PORT, 0);
	}
}

/* What the generator needs of a worker. */
static void
take_session(struct bench_job *j, const struct bench_host *h)
{
	struct pbox_worker_session s;

	if (!pbox_worker_session(h->w, &s))
		fail("session", "a worker has none");
	j->token[h->number] = s.token;
	j->id = s.job;
	j->incarnation = s.incarnation;
	j->window = s.window;
	j->auth = s.auth;
	if (s.keys != NULL)
		j->keys[h->number] = *s.keys;
}

/* The map comes when all have declared: worker 0 is the last, and stays. */
static void
join_job(struct rig *r, unsigned job)
{
	const struct options *o = r->o;
	struct bench_job *j = &r->job[job];
	struct pbox_worker_table *t = NULL;
	struct bench_host *h = &j->host;

	j->token = calloc(o->workers, sizeof(*j->token));
	j->keys = calloc(o->workers, sizeof(*j->keys));
	if (j->token == NULL || j->keys == NULL)
		fail("workers", "out of memory");
	for (unsigned w = o->workers; w-- > 0;) {
		join(h, r, job, w);
		t = declare(h);
		take_session(j, h);
		if (w > 0)
			pbox_worker_destroy(h->w);
	}
	map(j, t, r->frag_elements);
	if (j->window < o->slots / o->jobs)
		fail("jobs", "their windows are too small for so many slots");
	if (o->optimiser != PBOX_OPT_NONE) {
		if (!o->clock)
			set_lr(h);
		initialise(h, t);
	}
}

void
rig_join(struct rig *r)
{
	make_headers(r);
	r->job = calloc(r->o->jobs, sizeof(*r->job));
	for (unsigned j = 0; r->job != NULL && j < r->o->jobs; j++)
		join_job(r, j);
}
