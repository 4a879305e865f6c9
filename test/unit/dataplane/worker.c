/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>
#include <time.h>

#include "../../join_payload.h"
#include "rig.h"

#define DEADLINE_S 120 /* of what comes at once: it only bounds a hang */

size_t
worker_frame(unsigned n, uint16_t to, const void *payload, size_t len, uint8_t *out)
{
	return worker_frame_at(0, n, to, payload, len, out);
}

size_t
worker_frame_at(
	unsigned port, unsigned n, uint16_t to, const void *payload, size_t len, uint8_t *out)
{
	const struct pbox_net_if nif = {.mac = {2, 0, 0, 0, 1, (uint8_t)n},
		.ip = 0x0A004E0A + (n << 24) + (port << 16),
		.prefix_len = 24};
	const uint8_t box[6] = RIG_MAC;
	struct pbox_net_udp_template t;

	pbox_net_udp_template(
		&t, &nif, (uint16_t)(5000 + 100 * port + n), box, RIG_IP + (port << 16), to, 0);
	pbox_net_udp_header(&t, out, (uint16_t)len, 1);
	if (len > 0)
		memcpy(out + PBOX_NET_HEADERS_LEN, payload, len);
	return PBOX_NET_HEADERS_LEN + len;
}

void
worker_send(struct worker *w, unsigned queue, uint16_t to, const struct pbox_hdr *hdr,
	const void *payload)
{
	uint8_t frame[2048], bytes[2048];

	CU_ASSERT_FATAL(hdr->length <= 1600);
	if (hdr->length > 0)
		memcpy(frame + PBOX_HDR_LEN, payload, hdr->length);
	rig_put(w->r, queue, bytes,
		worker_frame_at(w->r->o.ports == 2 ? queue : 0, w->n, to, frame,
			pbox_frame_seal(frame, hdr), bytes));
}

const struct rig_datagram *
worker_next(struct worker *w)
{
	struct rig *r = w->r;
	time_t end = time(NULL) + DEADLINE_S;

	while (r->got[w->n] == r->n_inbox[w->n]) {
		rig_pump(r);
		if (r->got[w->n] == r->n_inbox[w->n] && (!r->o.lcores || time(NULL) > end))
			return NULL;
	}
	return &r->inbox[w->n][r->got[w->n]++ % RIG_INBOX];
}

static struct pbox_hdr
header(struct worker *w, enum pbox_type type, size_t length)
{
	return (struct pbox_hdr){.type = (uint8_t)type,
		.token = w->token,
		.job = w->job,
		.worker = (uint16_t)w->n,
		.incarnation = w->incarnation,
		.chunk = ++w->request,
		.ts = w->request,
		.length = (uint16_t)length};
}

/* Ask, and have the payload of the answer; 0: none, or of another type. */
static size_t
request(struct worker *w, enum pbox_type type, const void *payload, size_t len,
	enum pbox_type answer, const uint8_t **out)
{
	time_t end = time(NULL) + DEADLINE_S;
	const struct rig_datagram *d;
	struct pbox_hdr h, a;
	size_t size;

	do { /* a table that is loading is asked for again */
		h = header(w, type, len);
		worker_send(w, 0, PBOX_CONTROL_PORT, &h, payload);
		d = worker_next(w);
		if (d == NULL ||
			pbox_frame_decode(d->bytes, d->len, true, &a, &size) != PBOX_WIRE_OK)
			return 0;
		CU_ASSERT(size == d->len);
		UNIT_EQ_U64(a.chunk, h.chunk);
	} while (w->r->o.lcores && a.type == PBOX_NOT_READY && time(NULL) <= end);
	UNIT_EQ_U64(a.type, answer);
	*out = d->bytes + PBOX_HDR_LEN;
	return a.type == answer ? a.length : 0;
}

bool
worker_join(struct rig *r, struct worker *w, unsigned n, unsigned workers)
{
	static uint64_t joins; /* each asks for a session of its own */
	const struct pbox_hello hello = {1, 1};
	struct pbox_join join = {.nonce = 1000 + joins++,
		.worker = (uint16_t)n,
		.workers = (uint16_t)workers,
		.mtu = 1500,
		.window = 64,
		.revision = PBOX_REVISION,
		.job = "j",
		.host = "unit"};
	struct pbox_welcome welcome;
	struct pbox_retry retry;
	const uint8_t *a;
	uint8_t buf[1024];
	size_t len;

	memset(w, 0, sizeof(*w));
	w->r = r;
	w->n = n;
	len = pbox_hello_encode(buf, sizeof(buf), &hello);
	len = request(w, PBOX_HELLO, buf, len, PBOX_RETRY, &a);
	if (len == 0 || pbox_retry_decode(a, len, &retry) != 0)
		return false;
	join.cookie = retry.cookie;
	join_payload(buf, &join, RIG_SECRET);
	len = request(w, PBOX_JOIN, buf, PBOX_JOIN_LEN, PBOX_WELCOME, &a);
	if (len == 0 || pbox_welcome_decode(a, len, &welcome) != 0)
		return false;
	w->token = welcome.token;
	w->job = welcome.job;
	w->workers = welcome.workers;
	w->incarnation = welcome.incarnation;
	w->endpoints = welcome.endpoints;
	memcpy(w->endpoint, welcome.endpoint, sizeof(w->endpoint));
	return true;
}

bool
worker_declare(struct worker *w, uint64_t elements)
{
	const struct pbox_declare m = {.tensors = 1,
		.mode = PBOX_MODE_ALLREDUCE,
		.op = PBOX_OP_SUM,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32};
	const struct pbox_tensor_entry e = {.elements = elements, .name = "t"};
	struct pbox_cursor cur;
	const uint8_t *a;
	uint8_t buf[512];

	if (pbox_declare_begin(buf, sizeof(buf), &m, &cur) != 0 ||
		pbox_declare_add(buf, &cur, &e) != 0)
		return false;
	return request(w, PBOX_DECLARE, buf, pbox_page_len(buf, &cur), PBOX_DECLARED, &a) > 0;
}

/* R4.9: its address at the other port is another one, and answers go there once it has echoed what came there. */
static bool
prove(struct worker *w)
{
	for (unsigned e = 0; w->r->o.ports == 2 && e < w->endpoints; e++) {
		struct pbox_hdr h = header(w, PBOX_PING, 0), a = {0};
		unsigned port = w->endpoint[e].ipv4[2];

		do {
			const struct rig_datagram *d;
			size_t size;

			h.round = a.round;
			h.base = a.base;
			worker_send(w, port, w->endpoint[e].udp, &h, NULL);
			d = worker_next(w);
			if (d == NULL || pbox_frame_decode(d->bytes, d->len, true, &a, &size) !=
						 PBOX_WIRE_OK)
				return false;
			h = header(w, PBOX_PING, 0);
		} while ((a.round | a.base) != 0);
	}
	return true;
}

bool
worker_map(struct worker *w)
{
	const struct pbox_map m = {0};
	struct pbox_mapped mapped;
	struct pbox_cursor cur;
	const uint8_t *a;
	uint8_t buf[64];
	size_t len = pbox_map_encode(buf, sizeof(buf), &m);

	len = request(w, PBOX_MAP, buf, len, PBOX_MAPPED, &a);
	if (len == 0 || pbox_mapped_decode(a, len, &mapped, &cur) != 0 || mapped.count > 64)
		return false;
	CU_ASSERT_FATAL(mapped.count == mapped.chunks); /* one page */
	w->frag_elements = mapped.frag_elements;
	w->n_chunks = mapped.count;
	for (unsigned i = 0; i < w->n_chunks; i++)
		if (pbox_mapped_next(&cur, &w->chunk[i]) != 0)
			return false;
	return prove(w);
}

bool
worker_map_refused(struct worker *w, const char *why)
{
	const struct pbox_map m = {0};
	struct pbox_error_msg e;
	const uint8_t *a;
	uint8_t buf[64];
	size_t len =
		request(w, PBOX_MAP, buf, pbox_map_encode(buf, sizeof(buf), &m), PBOX_ERROR, &a);

	return len > 0 && pbox_error_decode(a, len, &e) == 0 && strstr(e.text, why) != NULL;
}

float
worker_value(unsigned n, uint32_t round, uint64_t i)
{
	return (float)((i * 7 + n * 1000 + round * 13) % 4096); /* sums are exact */
}

void
worker_push(struct worker *w, unsigned queue, uint32_t round)
{
	for (unsigned c = 0; c < w->n_chunks; c++) {
		const struct pbox_chunk_entry *k = &w->chunk[c];
		uint16_t frag = 0;

		for (uint32_t at = 0; at < k->elements; at += w->frag_elements, frag++) {
			uint32_t n = k->elements - at < w->frag_elements ? k->elements - at
									 : w->frag_elements;
			struct pbox_hdr h = header(w, PBOX_PUSHPULL, 4 * n);
			float v[512];

			for (uint32_t i = 0; i < n; i++)
				v[i] = worker_value(w->n, round, k->segment[0].offset + at + i);
			h.chunk = k->chunk_id;
			h.frag = frag;
			h.round = round;
			h.flags = PBOX_F_LAST;
			h.map_epoch = 1;
			h.format = PBOX_FMT_FP32;
			h.aux = PBOX_LR_MUL_ONE;
			h.weight = 1;
			worker_send(w,
				w->r->o.ports == 2 ? w->endpoint[k->endpoint].ipv4[2] : queue,
				w->endpoint[k->endpoint].udp, &h, v);
		}
	}
}

void
worker_pull(struct worker *w, unsigned queue)
{
	struct pbox_hdr h = header(w, PBOX_PULL, 0);

	h.chunk = w->chunk[0].chunk_id;
	h.flags = PBOX_F_LATEST;
	h.map_epoch = 1;
	h.ts = w->request;
	worker_send(w, queue, w->endpoint[w->chunk[0].endpoint].udp, &h, NULL);
}

uint64_t
worker_results(struct worker *w, uint32_t round, unsigned workers)
{
	uint64_t right = 0, total = 0, seen = 0;
	const struct rig_datagram *d;

	for (unsigned c = 0; c < w->n_chunks; c++)
		total += w->chunk[c].elements;
	while (seen < total && (d = worker_next(w)) != NULL) {
		const struct pbox_chunk_entry *k = NULL;
		struct pbox_hdr h;
		size_t size;

		if (pbox_frame_decode(d->bytes, d->len, true, &h, &size) != PBOX_WIRE_OK ||
			h.type != PBOX_RESULT || h.round != round)
			continue;
		for (unsigned c = 0; c < w->n_chunks; c++)
			if (w->chunk[c].chunk_id == h.chunk)
				k = &w->chunk[c];
		if (k == NULL)
			continue;
		CU_ASSERT(w->r->o.copy == (d->payload_at == NULL));
		if (w->r->o.ports == 2)
			UNIT_EQ_U64(d->ring, w->endpoint[k->endpoint].ipv4[2]);
		for (uint32_t i = 0; i < h.length / 4u; i++) {
			uint64_t e = k->segment[0].offset + h.frag * (uint64_t)w->frag_elements + i;
			float got, want = 0;

			for (unsigned n = 0; n < workers; n++)
				want += worker_value(n, round, e);
			memcpy(&got, d->bytes + PBOX_HDR_LEN + 4 * i, 4);
			right += got == want;
			seen++;
		}
	}
	return right;
}

bool
worker_leave(struct worker *w)
{
	struct pbox_hdr h = header(w, PBOX_LEAVE, 0), a = {0};
	const struct rig_datagram *d;
	size_t size;

	worker_send(w, 0, PBOX_CONTROL_PORT, &h, NULL);
	d = worker_next(w);
	return d != NULL && pbox_frame_decode(d->bytes, d->len, true, &a, &size) == PBOX_WIRE_OK &&
	       a.type == PBOX_LEFT;
}
