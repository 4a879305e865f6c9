/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The workers' control side: one request after another, through the port as everything. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_byteorder.h>
#include <rte_ip.h>

#include <pbox_proof.h>

#include "bench.h"

#define DEADLINE_S 30
#define INIT_BURST 32

struct answer {
	struct pbox_hdr hdr;
	uint8_t payload[65536];
};
static struct answer answer;
static uint8_t flat[65536 + 256];

__attribute__((noreturn)) static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "bench_box: %s: %s\n", what, why);
	exit(1);
}

/* What has come back of the box; true: a frame, in answer. Others are let go. */
static bool
take(struct rig *r)
{
	uint32_t n = pbox_mem_peer_waiting(&r->peer), i = 0, len = 0;
	struct pbox_mem_seg s;
	size_t size;

	if (n == 0)
		return false;
	do {
		s = pbox_mem_peer_segment(&r->peer, i++);
		if (len + s.len <= sizeof(flat))
			memcpy(flat + len, s.addr, s.len);
		len += s.len;
	} while (!s.end);
	pbox_mem_peer_read(&r->peer, i);
	pbox_mem_peer_release(&r->peer);
	if (len < PBOX_NET_HEADERS_LEN || len > sizeof(flat) ||
		pbox_frame_decode(flat + PBOX_NET_HEADERS_LEN, len - PBOX_NET_HEADERS_LEN, true,
			&answer.hdr, &size) != PBOX_WIRE_OK)
		return false;
	memcpy(answer.payload, flat + PBOX_NET_HEADERS_LEN + PBOX_HDR_LEN, answer.hdr.length);
	return true;
}

static void
put(struct rig *r, const struct pbox_net_udp_template *t, const struct bench_job *j,
	struct pbox_hdr *hdr, const void *payload)
{
	bool tag = j->auth != NULL && hdr->token != 0;
	time_t end = time(NULL) + DEADLINE_S;
	uint32_t room;
	uint8_t *p;

	while (pbox_mem_peer_room(&r->peer, 1) == 0) {
		box_turn(r);
		if (time(NULL) > end)
			fail("port", "it has no buffers");
	}
	p = pbox_mem_peer_buffer(&r->peer, 0, &room);
	hdr->flags |= tag ? PBOX_F_AUTH : 0;
	pbox_net_udp_header(
		t, p, (uint16_t)(PBOX_HDR_LEN + hdr->length + pbox_tag_len(hdr->flags)), 1);
	if (hdr->length > 0 && payload != NULL)
		memcpy(p + PBOX_NET_HEADERS_LEN + PBOX_HDR_LEN, payload, hdr->length);
	if (tag)
		pbox_auth_seal(j->keys[hdr->worker].worker, j->auth, p + PBOX_NET_HEADERS_LEN, hdr);
	else
		pbox_frame_seal(p + PBOX_NET_HEADERS_LEN, hdr);
	pbox_mem_peer_fill(&r->peer, 0,
		(uint32_t)PBOX_NET_HEADERS_LEN + PBOX_HDR_LEN + hdr->length +
			pbox_tag_len(hdr->flags),
		PBOX_MEM_IP_GOOD | PBOX_MEM_L4_GOOD);
	pbox_mem_peer_send(&r->peer, 1);
}

/* Until the answer to a request is there. */
static void
await(struct rig *r, uint32_t request)
{
	time_t end = time(NULL) + DEADLINE_S;

	for (;;) {
		box_turn(r);
		pbox_control_step(r->control);
		while (take(r))
			if (answer.hdr.chunk == request)
				return;
		if (time(NULL) > end)
			fail("joining", "the box does not answer");
	}
}

static void
ask(struct rig *r, unsigned job, unsigned worker, enum pbox_type type, const void *payload,
	size_t len, enum pbox_type expected)
{
	const struct bench_job *j = &r->job[job];
	struct pbox_error_msg m;
	struct pbox_hdr h = {.type = (uint8_t)type,
		.token = j->token[worker],
		.job = j->id,
		.worker = (uint16_t)worker,
		.incarnation = j->incarnation,
		.chunk = ++r->request,
		.length = (uint16_t)len};

	put(r, &r->control_headers[worker], j, &h, payload);
	await(r, h.chunk);
	if (answer.hdr.type == expected)
		return;
	if (answer.hdr.type == PBOX_ERROR &&
		pbox_error_decode(answer.payload, answer.hdr.length, &m) == 0)
		fail(pbox_type_name(type), m.text);
	fail(pbox_type_name(type), pbox_type_name(answer.hdr.type));
}

static void
join(struct rig *r, unsigned job, unsigned worker)
{
	const struct pbox_hello hello = {1, 1};
	struct pbox_join m = {.nonce = 1 + worker + (uint64_t)job * PBOX_MAX_WORKERS,
		.worker = (uint16_t)worker,
		.workers = (uint16_t)r->o->workers,
		.mtu = r->mtu,
		.window = 1024,
		.auth = r->o->auth,
		.revision = PBOX_REVISION,
		.host = "bench"};
	struct bench_job *j = &r->job[job];
	struct pbox_welcome w;
	struct pbox_retry retry;
	uint8_t buf[1024];
	size_t len = pbox_hello_encode(buf, sizeof(buf), &hello);

	ask(r, job, worker, PBOX_HELLO, buf, len, PBOX_RETRY);
	if (pbox_retry_decode(answer.payload, answer.hdr.length, &retry) != 0)
		fail("RETRY", "malformed");
	m.cookie = retry.cookie;
	snprintf(m.job, sizeof(m.job), "bench%u", job);
	len = pbox_join_encode(buf, sizeof(buf), &m);
	pbox_proof(buf + PBOX_JOIN_PROOF_AT, r->job_conf.secret, r->job_conf.secret_len,
		PBOX_JOIN_PROOF_PREFIX, buf, len, PBOX_JOIN_PROOF_AT);
	ask(r, job, worker, PBOX_JOIN, buf, len, PBOX_WELCOME);
	if (pbox_welcome_decode(answer.payload, answer.hdr.length, &w) != 0)
		fail("WELCOME", "malformed");
	j->token[worker] = w.token;
	j->id = w.job;
	j->incarnation = w.incarnation;
	j->window = w.window;
	if ((w.flags & PBOX_WELCOME_AUTH) == 0)
		return;
	if (j->auth == NULL)
		j->auth = pbox_auth_job_create(
			NULL, r->job_conf.secret, r->job_conf.secret_len, w.incarnation, w.job);
	if (j->auth == NULL)
		fail("auth", "no memory, or no AES in this CPU");
	pbox_auth_keys(&j->keys[worker], r->job_conf.secret, r->job_conf.secret_len, &w);
}

static void
declare(struct rig *r, unsigned job, unsigned worker)
{
	const struct pbox_declare m = {.tensors = 1,
		.mode = r->o->optimiser == PBOX_OPT_NONE ? PBOX_MODE_ALLREDUCE
							 : PBOX_MODE_OPTIMISER,
		.op = r->o->optimiser == PBOX_OPT_NONE ? PBOX_OP_SUM : PBOX_OP_MEAN,
		.optimiser = (uint8_t)r->o->optimiser,
		.push_format = (uint8_t)r->o->format,
		.pull_format = (uint8_t)r->o->format};
	const struct pbox_tensor_entry e = {.elements = r->elements, .name = "model"};
	struct pbox_cursor cur;
	uint8_t buf[256];

	if (pbox_declare_begin(buf, sizeof(buf), &m, &cur) != 0 ||
		pbox_declare_add(buf, &cur, &e) != 0)
		fail("DECLARE", "does not fit");
	ask(r, job, worker, PBOX_DECLARE, buf, pbox_page_len(buf, &cur), PBOX_DECLARED);
}

/* The map is the same for all workers; one tensor is cut into equal chunks, in order. */
static void
map(struct rig *r, unsigned job)
{
	struct bench_job *j = &r->job[job];
	struct pbox_chunk_entry e;
	struct pbox_mapped mapped;
	struct pbox_map m = {0};
	struct pbox_cursor cur;
	uint8_t buf[64];

	do {
		ask(r, job, 0, PBOX_MAP, buf, pbox_map_encode(buf, sizeof(buf), &m), PBOX_MAPPED);
		if (pbox_mapped_decode(answer.payload, answer.hdr.length, &mapped, &cur) != 0 ||
			mapped.count == 0 || mapped.frag_elements != r->frag_elements)
			fail("MAPPED", "not as expected");
		for (unsigned i = 0; i < mapped.count; i++) {
			uint32_t frags;

			if (pbox_mapped_next(&cur, &e) != 0)
				fail("MAPPED", "malformed");
			frags = e.elements / r->frag_elements;
			if (m.first + i == 0)
				j->per_chunk = frags;
			if (e.chunk_id != mapped.first_chunk_id + m.first + i ||
				e.elements % r->frag_elements != 0 ||
				(frags != j->per_chunk && m.first + i + 1 != mapped.chunks))
				fail("MAPPED", "chunks are not as the generator assumes");
			j->fragments += frags;
		}
		m.first += mapped.count;
	} while (m.first < mapped.chunks);
	j->first_chunk = mapped.first_chunk_id;
	j->chunks = mapped.chunks;
	j->map_epoch = answer.hdr.map_epoch;
}

void
rig_hyper(const struct options *o, struct pbox_hyper *h)
{
	h->lr = 0.01;
	if ((pbox_optim_scalar.of[o->optimiser]->uses & 1u << PBOX_HYPER_MOMENTUM) != 0)
		h->momentum = 0.9;
}

static void
set_lr(struct rig *r, unsigned job)
{
	struct pbox_set m = {.group = PBOX_ALL_GROUPS, .count = 2, .from_round = 1};
	struct pbox_hyper h = {0};
	uint8_t buf[128];

	rig_hyper(r->o, &h);
	m.param[0].id = PBOX_HYPER_LR;
	m.param[0].value = h.lr;
	m.param[1].id = PBOX_HYPER_MOMENTUM;
	m.param[1].value = h.momentum;
	m.count = h.momentum > 0 ? 2 : 1;
	ask(r, job, 0, PBOX_SET, buf, pbox_set_encode(buf, sizeof(buf), &m), PBOX_SET_OK);
}

/* Parameters begin at zero: INIT without payload, in bursts. */
static void
initialise(struct rig *r, unsigned job)
{
	const struct bench_job *j = &r->job[job];
	uint32_t piece = pbox_init_elements(r->mtu - (j->auth != NULL ? PBOX_TAG_LEN : 0)),
		 sent = 0, back = 0;
	time_t end = time(NULL) + DEADLINE_S;

	for (uint32_t f = 0; f < j->fragments; f++)
		for (uint32_t base = 0; base < r->frag_elements; base += piece) {
			struct pbox_hdr h = {.type = PBOX_INIT,
				.flags = PBOX_F_ZERO | PBOX_F_LAST,
				.token = j->token[0],
				.job = j->id,
				.incarnation = j->incarnation,
				.chunk = j->first_chunk + f / j->per_chunk,
				.frag = (uint16_t)(f % j->per_chunk),
				.base = base,
				.map_epoch = j->map_epoch,
				.format = PBOX_FMT_FP32};

			put(r, &r->headers[0], j, &h, NULL);
			sent++;
			while (sent - back == INIT_BURST) {
				box_turn(r);
				while (take(r))
					back += answer.hdr.type == PBOX_INIT_OK;
				if (time(NULL) > end)
					fail("INIT", "not answered");
			}
		}
	while (back < sent) {
		box_turn(r);
		while (take(r))
			back += answer.hdr.type == PBOX_INIT_OK;
		if (time(NULL) > end)
			fail("INIT", "not answered");
	}
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

void
rig_join(struct rig *r)
{
	const struct options *o = r->o;

	make_headers(r);
	r->job = calloc(o->jobs, sizeof(*r->job));
	for (unsigned j = 0; j < o->jobs; j++) {
		r->job[j].token = calloc(o->workers, sizeof(*r->job[j].token));
		r->job[j].keys = calloc(o->workers, sizeof(*r->job[j].keys));
		for (unsigned w = 0; w < o->workers; w++)
			join(r, j, w);
		for (unsigned w = 0; w < o->workers; w++)
			declare(r, j, w);
		map(r, j);
		if (r->job[j].window < o->slots / o->jobs)
			fail("jobs", "their windows are too small for so many slots");
		if (o->optimiser != PBOX_OPT_NONE) {
			set_lr(r, j);
			initialise(r, j);
		}
	}
}
