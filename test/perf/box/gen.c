/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The workers' data side. A packet is 104 bytes of headers, written in front of a payload that lies
 * in the posted buffer already: the random numbers that were put there at its first use, and whose
 * CRC is after them in the buffer. So a payload is never moved, as with DMA it would not be by
 * any CPU, and it is resident wherever the box's last pass over it left it.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ether.h>

#include <pbox_base.h>
#include <pbox_wire_at.h>

#include "bench.h"

#define HEADERS (PBOX_NET_HEADERS_LEN + PBOX_HDR_LEN)
#define BURST   64
#define MAGIC   UINT64_C(0x7062656e63683031)

/* What the generator notes at the end of a buffer, where no frame reaches. */
struct mark {
	uint64_t magic;
	uint32_t crc, unused;
	uint8_t digest[PBOX_AUTH_DIGEST_LEN];
};

static void *
must(void *p)
{
	if (p == NULL) {
		fprintf(stderr, "bench_box: out of memory for the generator\n");
		exit(1);
	}
	return p;
}

void
gen_start(struct gen *g, struct rig *r)
{
	const struct options *o = r->o;
	size_t slots = o->slots, places = (size_t)o->train * o->workers, k = 0;
	struct pbox_random rnd;

	memset(g, 0, sizeof(*g));
	g->r = r;
	g->groups = o->slots / o->train;
	g->order = must(calloc(places, sizeof(*g->order)));
	g->flight = must(calloc(slots, sizeof(*g->flight)));
	for (size_t i = 0; i < slots; i++)
		g->flight[i].payload = must(calloc(o->workers, sizeof(void *)));
	g->log.cap = o->packets / o->workers + slots;
	g->log.payload = must(calloc(g->log.cap * o->workers, sizeof(void *)));
	g->log.result = must(calloc(g->log.cap, sizeof(float *)));
	g->scratch = must(aligned_alloc(64, 2 * (size_t)r->frag_elements * sizeof(float) + 64));
	g->flat = must(aligned_alloc(64, 65536 + 256));
	for (unsigned i = 0; o->verify == 1 && !o->stages && !o->clock &&
			     o->optimiser != PBOX_OPT_NONE && i <= pbox_optim_states(o->optimiser);
		i++) {
		size_t bytes = o->jobs * r->elements * sizeof(float);

		g->mirror[i] = must(aligned_alloc(64, bytes));
		memset(g->mirror[i], 0, bytes);
	}
	/* a fragment of all workers, or with trains a train of each worker */
	for (unsigned w = 0; w < o->workers; w++)
		for (unsigned f = 0; f < o->train; f++)
			g->order[k++] = (uint16_t)(f * o->workers + w);
	pbox_random_seed(&rnd, 7);
	for (size_t i = places; o->shuffle && i > 1; i--) {
		size_t j = pbox_random_below(&rnd, i);
		uint16_t t = g->order[j];

		g->order[j] = g->order[i - 1];
		g->order[i - 1] = t;
	}
}

void
gen_free(struct gen *g)
{
	for (unsigned i = 0; i < g->r->o->slots; i++)
		free(g->flight[i].payload);
	free(g->flight);
	free(g->order);
	free(g->log.payload);
	free(g->log.result);
	free(g->scratch);
	free(g->flat);
	for (unsigned i = 0; i < 3; i++)
		free(g->mirror[i]);
}

void
gen_begin(struct gen *g, enum traffic kind, uint64_t packets)
{
	uint64_t unit = (uint64_t)g->r->o->workers * g->r->o->train;

	g->kind = kind;
	g->sent = g->answered = 0;
	g->limit = kind == T_ROUNDS ? (packets + unit - 1) / unit * unit : packets;
	g->log.n = 0;
}

static bool
answered(const struct gen *g)
{
	return g->kind == T_ROUNDS || g->kind == T_PULL;
}

bool
gen_done(const struct gen *g)
{
	return g->sent == g->limit && (!answered(g) || g->answered == g->limit);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void
wrong(struct gen *g, const char *why, const uint8_t *frame)
{
	if (g->wrong++ == 0)
		snprintf(g->why, sizeof(g->why), "%s (%s, round %u, fragment %u of chunk %u)", why,
			pbox_type_name(frame[PBOX_AT_TYPE]), pbox_ld32(frame + PBOX_AT_ROUND),
			pbox_ld16(frame + PBOX_AT_FRAG), pbox_ld32(frame + PBOX_AT_CHUNK));
}

/* Is the payload the sum of the flight's payloads, bit for bit? */
static bool
sum_right(struct gen *g, const struct flight *f, const void *payload, size_t len)
{
	const struct rig *r = g->r;
	struct pbox_sources s = {
		.src = f->payload, .n = r->o->workers, .elem = r->o->format, .acc = NULL};
	float *sum = g->scratch;
	void *packed = g->scratch + r->frag_elements;

	pbox_reduce_scalar.sum(sum, &s, 0, r->frag_elements);
	g->elements_verified += r->frag_elements;
	if (r->o->format == PBOX_FMT_FP32)
		return len == r->frag_elements * sizeof(float) && memcmp(sum, payload, len) == 0;
	pbox_reduce_scalar.pack(packed, r->o->format, sum, r->frag_elements);
	return len == r->frag_elements * 2u && memcmp(packed, payload, len) == 0;
}

/* With every answer checked, the optimiser's parameters are kept beside: one step for the flight. */
static void
mirror_step(struct gen *g, const struct flight *f)
{
	const struct rig *r = g->r;
	const struct options *o = r->o;
	size_t at = f->job * r->elements + (size_t)f->fragment * r->frag_elements;
	struct pbox_sources s = {.src = f->payload, .n = o->workers, .elem = o->format};
	struct pbox_optim_scalars k;
	struct pbox_hyper h;
	struct pbox_update u = {.reduce = &pbox_reduce_scalar,
		.optim = &pbox_optim_scalar,
		.kind = o->optimiser,
		.k = &k,
		.factor = (float)(1.0 / o->workers),
		.param = g->mirror[0] + at,
		.s0 = g->mirror[1] != NULL ? g->mirror[1] + at : NULL,
		.s1 = g->mirror[2] != NULL ? g->mirror[2] + at : NULL};

	pbox_hyper_defaults(&h, o->optimiser);
	rig_hyper(o, &h);
	pbox_optim_scalars(&k, &h, o->optimiser, f->round);
	pbox_optim_update(&u, &s, r->frag_elements);
}

static bool
step_right(struct gen *g, const struct flight *f, const void *payload, size_t len)
{
	const struct rig *r = g->r;
	const float *p =
		g->mirror[0] + f->job * r->elements + (size_t)f->fragment * r->frag_elements;

	if (r->o->format == PBOX_FMT_FP32)
		return len == r->frag_elements * sizeof(float) && memcmp(p, payload, len) == 0;
	pbox_reduce_scalar.pack(g->scratch, r->o->format, p, r->frag_elements);
	return len == r->frag_elements * 2u && memcmp(g->scratch, payload, len) == 0;
}

static bool
tag_right(const struct gen *g, const struct flight *f, const struct pbox_hdr *h)
{
	const struct bench_job *j = &g->r->job[f != NULL ? f->job : 0];

	return j->auth == NULL ||
	       ((h->flags & PBOX_F_AUTH) != 0 && pbox_auth_good(j->keys[h->worker].box, j->auth,
							 g->flat + HEADERS, h->length));
}

/* A frame in full: the CRC, and the sum. @p n segments from @p i on. */
static void
verify(struct gen *g, uint32_t i, uint32_t n, const struct flight *f)
{
	enum pbox_wire_drop why;
	struct pbox_hdr h;
	size_t len = 0, size = 0;

	for (uint32_t k = i; k < i + n; k++) {
		struct pbox_mem_seg s = pbox_mem_peer_segment(&g->r->peer, k);

		if (len + s.len > 65536)
			return;
		memcpy(g->flat + len, s.addr, s.len);
		len += s.len;
	}
	g->verified++;
	why = pbox_frame_decode(
		g->flat + PBOX_NET_HEADERS_LEN, len - PBOX_NET_HEADERS_LEN, true, &h, &size);
	if (why == PBOX_WIRE_CRC && !g->check_sums) /* kernels that do nothing make no CRC */
		return;
	if (why != PBOX_WIRE_OK || size != len - PBOX_NET_HEADERS_LEN)
		wrong(g, "the frame is damaged", g->flat + PBOX_NET_HEADERS_LEN);
	else if (!tag_right(g, f, &h))
		wrong(g, "a wrong tag", g->flat + PBOX_NET_HEADERS_LEN);
	else if (h.length != g->r->o->fragment)
		wrong(g, "another length", g->flat + PBOX_NET_HEADERS_LEN);
	else if (f != NULL && g->mirror[0] != NULL &&
		 !step_right(g, f, g->flat + HEADERS, h.length))
		wrong(g, "not the parameters after this step", g->flat + PBOX_NET_HEADERS_LEN);
	else if (f != NULL && g->check_sums && g->r->o->optimiser == PBOX_OPT_NONE &&
		 !sum_right(g, f, g->flat + HEADERS, h.length))
		wrong(g, "not the sum of its payloads", g->flat + PBOX_NET_HEADERS_LEN);
}

static void
note(struct gen *g, const struct flight *f, const float *result)
{
	unsigned n = g->r->o->workers;

	if (g->log.n == g->log.cap)
		return;
	memcpy(&g->log.payload[g->log.n * n], f->payload, n * sizeof(void *));
	g->log.result[g->log.n++] = (float *)(uintptr_t)result;
}

static void
finish_groups(struct gen *g)
{
	const struct options *o = g->r->o;

	for (; g->oldest < g->group; g->oldest++) {
		const struct flight *f = &g->flight[g->oldest % g->groups * o->train];

		for (unsigned k = 0; k < o->train; k++)
			if (f[k].answers < o->workers)
				return;
	}
}

/* The control thread says where the box is (ARP), and answers may still come to what joining repeated. */
static bool
before_rounds(const uint8_t *frame)
{
	const struct rte_ether_hdr *ether = (const void *)frame;
	uint8_t type = frame[PBOX_NET_HEADERS_LEN + PBOX_AT_TYPE];

	return ether->ether_type != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) || type == PBOX_INIT_OK ||
	       (type < PBOX_FIRST_DATA_TYPE && type != PBOX_ERROR);
}

/* An answer of @p n segments from @p i on. */
static void
answer(struct gen *g, uint32_t i, uint32_t n)
{
	const struct options *o = g->r->o;
	struct pbox_mem_seg s = pbox_mem_peer_segment(&g->r->peer, i);
	const uint8_t *p = (const uint8_t *)s.addr + PBOX_NET_HEADERS_LEN;
	unsigned worker = pbox_ld16(p + PBOX_AT_WORKER);
	struct flight *f = NULL;

	if (before_rounds(s.addr))
		return;
	g->answered++;
	if (g->kind == T_ROUNDS) {
		uint32_t ts = pbox_ld32(p + PBOX_AT_TS);

		if (p[PBOX_AT_TYPE] != (o->clock ? PBOX_PUSH_OK : PBOX_RESULT) ||
			worker >= o->workers || ts >= o->slots) {
			wrong(g, "not an answer to what was sent", p);
			return;
		}
		f = &g->flight[ts];
		if (pbox_ld32(p + PBOX_AT_ROUND) != f->round ||
			pbox_ld64(p + PBOX_AT_TOKEN) != g->r->job[f->job].token[worker]) {
			wrong(g, "another round, or another worker's", p);
			return;
		}
		if (f->answers == 0 && g->mirror[0] != NULL)
			mirror_step(g, f);
		if (++f->answers == o->workers && g->logging)
			note(g, f,
				n > 1 && o->format == PBOX_FMT_FP32
					? pbox_mem_peer_segment(&g->r->peer, i + 1).addr
					: NULL);
	} else if (p[PBOX_AT_TYPE] != PBOX_RESULT) {
		wrong(g, "a pull was not answered", p);
		return;
	}
	if (!o->clock && ++g->since_verified >= o->verify) {
		g->since_verified = 0;
		verify(g, i, n, f);
	}
}

static bool
take_answers(struct gen *g)
{
	struct pbox_mem_peer *p = &g->r->peer;
	uint32_t n = pbox_mem_peer_waiting(p), from = 0;

	if (n == 0)
		return false;
	if (n > 4 * BURST)
		n = 4 * BURST; /* frames of two segments; a cut one is left */
	for (uint32_t i = 0; i < n; i++) {
		struct pbox_mem_seg s = pbox_mem_peer_segment(p, i);

		if (i + 8 < n)
			__builtin_prefetch(
				(const uint8_t *)pbox_mem_peer_segment(p, i + 8).addr + 64);
		if (!s.end)
			continue;
		answer(g, from, i + 1 - from);
		from = i + 1;
	}
	pbox_mem_peer_read(p, from);
	pbox_mem_peer_release(p);
	if (g->kind == T_ROUNDS)
		finish_groups(g);
	return true;
}

/* ---- packets -------------------------------------------------------------------------------- */

/* A buffer that is used for the first time gets its numbers. */
static void
fill(struct gen *g, const struct bench_job *j, uint8_t *payload, struct mark *m)
{
	const struct rig *r = g->r;
	struct pbox_random rnd;

	pbox_random_seed(&rnd, ++g->buffers);
	for (size_t i = 0; i < r->frag_elements; i++) {
		float x = (float)pbox_random_unit(&rnd) - 0.5f;

		pbox_reduce_scalar.pack(
			payload + i * pbox_format_size(r->o->format), r->o->format, &x, 1);
	}
	m->crc = pbox_crc32c(0, payload, r->o->fragment);
	if (j->auth != NULL)
		pbox_auth_digest(j->auth, payload, r->o->fragment, m->digest);
	m->magic = MAGIC;
}

static inline struct mark *
mark_of(const struct gen *g, uint8_t *buffer, uint32_t room)
{
	PBOX_ASSERT(room >= HEADERS + g->r->o->fragment + PBOX_TAG_LEN + sizeof(struct mark) + 8);
	return (struct mark *)(void *)(buffer + ((room - sizeof(struct mark)) & ~7u));
}

/* Write headers into the i-th posted buffer; returns the payload after them. */
static inline const void *
frame(struct gen *g, uint32_t i, const struct bench_job *j, struct pbox_hdr *h)
{
	static const uint8_t nothing[PBOX_AUTH_DIGEST_LEN];
	struct pbox_mem_peer *p = &g->r->peer;
	uint32_t tag = j->auth != NULL ? PBOX_TAG_LEN : 0;
	uint32_t room;
	uint8_t *at = pbox_mem_peer_buffer(p, i, &room);
	struct mark *m = mark_of(g, at, room);

	if (__builtin_expect(m->magic != MAGIC, 0))
		fill(g, j, at + HEADERS, m);
	pbox_net_udp_header(&g->r->headers[h->worker], at,
		(uint16_t)(PBOX_HDR_LEN + h->length + tag), (uint16_t)g->sent);
	h->flags |= tag > 0 ? PBOX_F_AUTH : 0;
	pbox_frame_encode(at + PBOX_NET_HEADERS_LEN, h, h->length > 0 ? m->crc : 0);
	if (tag > 0)
		pbox_auth_tag(j->keys[h->worker].worker, at + PBOX_NET_HEADERS_LEN,
			h->length > 0 ? m->digest : nothing, at + HEADERS + h->length);
	if (g->kind == T_FOREIGN)
		at[PBOX_NET_HEADERS_LEN] ^= 0xFF; /* the magic */
	pbox_mem_peer_fill(p, i, HEADERS + h->length + tag, PBOX_MEM_IP_GOOD | PBOX_MEM_L4_GOOD);
	g->sent++;
	return at + HEADERS;
}

/* The next packet of the rounds. */
static inline bool
round_packet(struct gen *g, uint32_t i)
{
	const struct rig *r = g->r;
	const struct options *o = r->o;
	unsigned train = o->train, workers = o->workers, place, worker, k;
	struct bench_job *j;
	struct flight *f;
	uint64_t number;

	if (g->group - g->oldest == g->groups)
		return false;
	place = g->order[g->at];
	worker = place % workers;
	k = place / workers;
	j = &r->job[g->group % o->jobs];
	f = &g->flight[g->group % g->groups * train + k];
	if (g->at == 0)
		for (unsigned x = 0; x < train; x++) {
			struct flight *n = f - k + x;

			number = g->group / o->jobs * train + x;
			n->round = (uint32_t)(number / j->fragments) + 1;
			n->fragment = (uint32_t)(number % j->fragments);
			n->job = (uint16_t)(g->group % o->jobs);
			n->answers = 0;
		}
	f->payload[worker] = frame(g, i, j,
		&(struct pbox_hdr){.type = o->clock ? PBOX_PUSH : PBOX_PUSHPULL,
			.flags = PBOX_F_LAST,
			.token = j->token[worker],
			.job = j->id,
			.worker = (uint16_t)worker,
			.incarnation = j->incarnation,
			.chunk = j->first_chunk + f->fragment / j->per_chunk,
			.frag = (uint16_t)(f->fragment % j->per_chunk),
			.length = (uint16_t)o->fragment,
			.round = f->round,
			.map_epoch = j->map_epoch,
			.format = (uint8_t)o->format,
			.aux = PBOX_LR_MUL_ONE,
			.weight = 1,
			.ts = (uint32_t)(f - g->flight)});
	if (++g->at == train * workers) {
		g->at = 0;
		g->group++;
	}
	return true;
}

/* The next of the packets that measure a part of the way; no round goes on meanwhile. */
static inline bool
part_packet(struct gen *g, uint32_t i)
{
	const struct options *o = g->r->o;
	const struct bench_job *j = &g->r->job[0];
	uint64_t done = g->group / o->jobs * o->train, slot = g->sent / o->workers;
	unsigned worker = (unsigned)(g->sent % o->workers);
	uint32_t fragment;
	bool pull = g->kind == T_PULL, payload = g->kind == T_FOREIGN;
	/* A PULL that is older than the session's other frames is not answered (R4.9). This is the clock of the worker
	 * that has joined, whose upper half is never 0: without its origin it is 71 minutes old once the host has been up
	 * for longer than that. */
	uint64_t us = pull ? (UINT64_C(1) << 32) + join_clock_ns() / 1000 : 0;

	if (pull && g->sent - g->answered >= (uint64_t)o->slots * o->workers)
		return false;
	fragment = (uint32_t)(slot % (done < j->fragments ? done : j->fragments));
	frame(g, i, j,
		&(struct pbox_hdr){.type = pull ? PBOX_PULL : PBOX_PUSHPULL,
			.flags = pull      ? PBOX_F_LATEST
				 : payload ? PBOX_F_LAST
					   : PBOX_F_LAST | PBOX_F_ZERO,
			.token = j->token[worker],
			.job = j->id,
			.worker = (uint16_t)worker,
			.incarnation = j->incarnation,
			.chunk = j->first_chunk + fragment / j->per_chunk,
			.frag = (uint16_t)(fragment % j->per_chunk),
			.length = (uint16_t)(payload ? o->fragment : 0),
			.round = 0, /* before all that is finished */
			.map_epoch = j->map_epoch,
			.format = pull ? 0 : (uint8_t)o->format,
			.aux = PBOX_LR_MUL_ONE,
			.weight = 1,
			.ts = (uint32_t)us,
			.held = (uint32_t)(us >> 32)});
	return true;
}

static bool
send_packets(struct gen *g, unsigned burst)
{
	struct pbox_mem_peer *p = &g->r->peer;
	uint32_t room = pbox_mem_peer_room(p, burst), n = 0;

	if (room > burst)
		room = burst;
	if (room > g->limit - g->sent)
		room = (uint32_t)(g->limit - g->sent);
	for (uint32_t i = 0; i < room; i++) {
		uint32_t size;
		uint8_t *at = pbox_mem_peer_buffer(p, i, &size);

		__builtin_prefetch(at, 1);
		__builtin_prefetch(at + 64, 1);
		__builtin_prefetch(mark_of(g, at, size));
	}
	while (n < room && (g->kind == T_ROUNDS ? round_packet(g, n) : part_packet(g, n)))
		n++;
	if (n > 0)
		pbox_mem_peer_send(p, n);
	return n > 0;
}

bool
gen_step(struct gen *g, unsigned burst)
{
	bool took = take_answers(g);

	return send_packets(g, burst) || took;
}
