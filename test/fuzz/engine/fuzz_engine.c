/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The engine under any sequence of frames. The input is a program of steps of eight bytes, so that
 * a fuzzer gets through the join to rounds: valid requests of three workers, each field of which
 * can be spoilt, and bytes of the input as payload or as a whole datagram.
 *
 *   [what, who, a, b, c, d, e, f] and after it some f bytes of payload
 */

#include <stdlib.h>
#include <string.h>

#include <pbox_layout.h>

#include "../../join_payload.h"
#include "machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEP    8
#define WORKERS 3
#define STEPS   512

enum step {
	STEP_JOIN, /* HELLO, and JOIN with its cookie: a spoil, b workers, c job (from 128: auth) */
	STEP_DECLARE,  /* a table, b mode and formats, c elements, d tensors, e spoil */
	STEP_MAP,      /* a table, b first */
	STEP_SET,      /* a table, b parameter, c value, d round, e group */
	STEP_CONTROL,  /* a type, b spoil, f bytes of payload */
	STEP_DATA,     /* a type and spoil, b chunk, c fragment, d round, e value */
	STEP_TIME,     /* a: 2^a us; b: and shards' mail is held back, or delivered */
	STEP_DATAGRAM, /* f bytes as they are, their CRCs repaired unless a */
	STEP_SHUTDOWN,
	STEP_KINDS
};

/* Spoils of STEP_DATA (bits 3 to 7 of a); the last two of STEP_CONTROL too, in sessions with auth. */
enum {
	SPOIL_HDR = 1,
	SPOIL_CRC,
	SPOIL_LENGTH,
	SPOIL_TOKEN,
	SPOIL_FORMAT,
	SPOIL_TWICE,
	SPOIL_TAG,
	SPOIL_NO_TAG
};

struct worker {
	struct pbox_peer peer;
	uint64_t token;
	uint32_t request;
	uint16_t job, number;
	uint8_t push[4], pull[4]; /* formats of its tables */
};

static struct worker worker[WORKERS];
static uint8_t out[65536];

static uint32_t
le32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static struct pbox_hdr
header(struct worker *w, unsigned type, size_t len)
{
	return (struct pbox_hdr){
		.type = (uint8_t)type,
		.token = w->token,
		.job = w->job,
		.worker = w->number,
		.incarnation = M_INCARNATION,
		.chunk = ++w->request,
		.length = (uint16_t)len,
		.ts = 77,
	};
}

/* Without the secret: whatever else is right, nothing of it is accepted (R11.5). */
static size_t
forge(unsigned spoil, uint8_t bit, struct pbox_hdr *h, size_t size)
{
	if (spoil == SPOIL_TAG) {
		out[size - 1 - bit / 8 % PBOX_TAG_LEN] ^= 1u << bit % 8;
		return size;
	}
	h->flags &= (uint16_t)~PBOX_F_AUTH;
	return pbox_frame_seal(out, h);
}

/* The payload is in out. */
static void
control_as(struct worker *w, unsigned type, size_t len, unsigned spoil, uint8_t bit)
{
	struct pbox_hdr h = header(w, type, len);
	size_t size = m_seal(out, &h);
	uint64_t before = m_accepted();
	bool forged = (spoil == SPOIL_TAG || spoil == SPOIL_NO_TAG) && (h.flags & PBOX_F_AUTH) != 0;

	if (forged)
		size = forge(spoil, bit, &h, size);
	m_datagram(0, &w->peer, out, size, false);
	PBOX_ASSERT(!forged || m_accepted() == before);
}

static void
control(struct worker *w, unsigned type, size_t len)
{
	control_as(w, type, len, 0, 0);
}

static void
join(struct worker *w, const uint8_t *s)
{
	static const char *const names[] = {"a", "b", "c", "d", "e"};
	struct pbox_hello hello = {1, 1};
	struct pbox_join m = {
		.nonce = s[1] + (s[2] == 1 ? 1000u * s[5] : 0),
		.worker = s[2] == 2   ? s[5]
			  : s[2] == 3 ? UINT16_MAX
				      : (uint16_t)(s[1] % WORKERS),
		.workers = s[3] != 0 ? s[3] % 6 : 2,
		.mtu = s[2] == 4 ? (uint16_t)(s[5] * 40) : 1500,
		.window = s[2] == 5 ? s[5] : 100,
		.policy = s[2] == 6 ? s[5] : 0,
		.auth = s[2] != 11,
		.revision = s[2] != 12,
		.lease_ms = s[2] == 7 ? s[5] * 100u : 0,
		.slots = s[2] == 13 ? s[5] : 0,
		.can = s[2] == 13 ? 1u << PBOX_CAN_SLOTS : 0,
		.needs = s[2] == 13 ? 1u << PBOX_CAN_SLOTS : 0,
	};
	uint64_t before = m_seen.welcome.token;
	unsigned job = s[4] < 128 ? s[4] % 4 : 4;
	const char *secret = job < 2 || job == 4 ? "key" : "";
	uint8_t *p = out + PBOX_HDR_LEN;

	control(w, PBOX_HELLO, pbox_hello_encode(p, PBOX_HELLO_LEN, &hello));
	m.cookie = m_seen.cookie ^ (s[2] == 8);
	memcpy(m.job, names[job], 2);
	memcpy(m.host, "host", 5);
	join_payload(p, &m, secret);
	if (s[2] == 9) {
		p[s[5]] ^= s[6];
		join_payload_prove(p, secret);
	}
	p[PBOX_JOIN_PROOF_AT] ^= s[2] == 10;
	control(w, PBOX_JOIN, PBOX_JOIN_LEN);
	if (m_seen.welcome.token != before) {
		w->token = m_seen.welcome.token;
		w->job = m_seen.welcome.job;
		w->number = m_seen.welcome.worker;
	}
}

static void
declare(struct worker *w, const uint8_t *s)
{
	struct pbox_declare m = {
		.table = s[2] & 3,
		.tensors = 1 + s[5] % 4,
		.mode = s[3] & 1,
		.op = s[3] >> 1 & 3,
		.optimiser = (s[3] & 1) != 0 ? 1 + (s[3] >> 3) % 5 : 0,
		.push_format = 1 + (s[3] >> 5 & 3) % 3,
		.pull_format = (s[3] & 0x80) != 0 ? 2 : 1,
	};
	struct pbox_tensor_entry e = {.elements = s[4] * 5u, .group = s[5] >> 6};
	struct pbox_cursor cur;
	uint8_t *p = out + PBOX_HDR_LEN;

	if (s[6] == 1)
		m.flags = s[7];
	if (s[6] == 2)
		m.first = s[7];
	w->push[m.table] = m.push_format;
	w->pull[m.table] = m.pull_format;
	pbox_declare_begin(p, 1400, &m, &cur);
	for (unsigned i = 0; i < m.tensors; i++) {
		e.name[0] = (char)('a' + i);
		pbox_declare_add(p, &cur, &e);
		e.elements = s[6] == 3 ? UINT64_MAX >> (s[7] & 63) : e.elements / 3;
	}
	if (s[6] == 4)
		p[s[7] % 48] ^= 1u << (s[7] & 7);
	control(w, PBOX_DECLARE, pbox_page_len(p, &cur));
}

static void
set(struct worker *w, const uint8_t *s)
{
	static const double values[] = {0.1, 0, 1, 0.9, 0.999, 1e-8, 1e30, -1, 0.0 / 0.0, 2};
	struct pbox_set m = {.table = s[2] & 3,
		.group = s[6] == 0 ? PBOX_ALL_GROUPS : s[6] & 3u,
		.count = 2,
		.from_round = s[5]};

	m.param[0].id = s[3] & 15;
	m.param[0].value = values[s[4] % 10];
	m.param[1].id = s[3] >> 4;
	m.param[1].value = values[(s[4] / 10) % 10];
	control(w, PBOX_SET, pbox_set_encode(out + PBOX_HDR_LEN, 1400, &m));
}

/* Payload bytes of a fragment, as the map says. */
static size_t
fragment_bytes(unsigned chunk, unsigned frag, unsigned format)
{
	uint64_t from = (uint64_t)frag * m_seen.frag_elements, n = m_seen.chunk[chunk].elements;

	n = n > from ? n - from : 0;
	return (n < m_seen.frag_elements ? n : m_seen.frag_elements) * pbox_format_size(format);
}

static void
data_frame(struct worker *w, const uint8_t *s)
{
	static const uint8_t types[] = {PBOX_PUSHPULL, PBOX_PUSH, PBOX_PULL, PBOX_INIT, PBOX_PING,
		PBOX_RESTORE, PBOX_FETCH, PBOX_PUSHPULL};
	unsigned n = m_seen.n_chunks, chunk = n > 0 ? s[3] % n : 0, spoil = s[2] >> 3;
	unsigned table = m_seen.chunk[chunk].table & 3;
	struct pbox_hdr h = header(w, types[s[2] & 7], 0);
	uint64_t before = m_accepted();
	bool forged;
	size_t size;

	if (h.type != PBOX_PING) {
		h.chunk = m_seen.chunk[chunk].id;
		h.frag = s[4];
		h.round = s[5];
		h.base = s[5] - 1u;
		h.map_epoch = PBOX_MAP_EPOCH;
		h.flags = (s[7] & 1) != 0 ? PBOX_F_LAST : 0;
		h.aux = PBOX_LR_MUL_ONE;
		h.weight = 1 + (s[7] >> 4);
	}
	/* what is kept of a fragment, and what is given back: an array, and where in it */
	if (h.type == PBOX_FETCH || (h.type == PBOX_INIT && (s[7] & 2) != 0)) {
		h.flags |= h.type == PBOX_INIT ? PBOX_F_LATEST : 0;
		h.aux = s[7] >> 2 & 3;
		h.base = (s[7] & 16) != 0 ? s[6] * 8u : 0;
	}
	if (h.type == PBOX_PUSH || h.type == PBOX_PUSHPULL)
		h.format = w->push[table];
	if (h.type == PBOX_INIT)
		h.format = PBOX_FMT_FP32;
	if (h.format != 0 && n > 0)
		h.length = (uint16_t)fragment_bytes(chunk, h.frag, h.format);
	if (spoil == SPOIL_LENGTH)
		h.length = (uint16_t)(h.length + s[7] - 128);
	h.length = h.length < 1438 - PBOX_TAG_LEN ? h.length : 1438 - PBOX_TAG_LEN;
	h.token ^= spoil == SPOIL_TOKEN;
	if (spoil == SPOIL_FORMAT)
		h.format = s[7];
	memset(out + PBOX_HDR_LEN, s[6], h.length);
	size = m_seal(out, &h);
	forged = (spoil == SPOIL_TAG || spoil == SPOIL_NO_TAG) && (h.flags & PBOX_F_AUTH) != 0;
	if (forged)
		size = forge(spoil, s[7], &h, size);
	if (spoil == SPOIL_HDR) /* after the CRC's repair: any field */
		out[s[7] % PBOX_HDR_LEN] ^= s[6];
	if (spoil == SPOIL_CRC && h.length > 0)
		out[PBOX_HDR_LEN + s[7] % h.length] ^= 0x55;
	if (spoil == SPOIL_TWICE && size * 2 <= sizeof(out)) {
		memcpy(out + size, out, size);
		size *= 2;
	}
	w->peer.local_udp = 7270;
	m_datagram(n > 0 && (s[7] & 8) == 0 ? m_seen.chunk[chunk].endpoint % M_SHARDS : s[7] & 1u,
		&w->peer, out, size, spoil == SPOIL_HDR);
	PBOX_ASSERT(!forged || m_accepted() == before);
	w->peer.local_udp = 0;
}

/* Returns how many bytes after the step it took. */
static size_t
step(const uint8_t *s, size_t more)
{
	struct worker *w = &worker[s[1] % WORKERS];
	size_t n = s[7] < more ? s[7] : more;
	struct pbox_map map = {s[2] & 3u, s[3]};

	switch (s[0] % STEP_KINDS) {
	case STEP_JOIN:
		join(w, s);
		return 0;
	case STEP_DECLARE:
		declare(w, s);
		return 0;
	case STEP_MAP:
		control(w, PBOX_MAP, pbox_map_encode(out + PBOX_HDR_LEN, 1400, &map));
		return 0;
	case STEP_SET:
		set(w, s);
		return 0;
	case STEP_CONTROL:
		memcpy(out + PBOX_HDR_LEN, s + STEP, n);
		control_as(w, s[2] % PBOX_FIRST_DATA_TYPE, n, s[3], s[4]);
		return n;
	case STEP_DATA:
		data_frame(w, s);
		return 0;
	case STEP_TIME:
		m_tick(UINT64_C(1000) << (s[2] % 23));
		m_hold_mail = s[3] == 1;
		if (!m_hold_mail)
			m_mail();
		return 0;
	case STEP_DATAGRAM:
		m_datagram(s[3] & 1, &w->peer, s + STEP, n, s[2] == 0);
		return n;
	default:
		m_shutdown();
		return 0;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned steps = 0;

	m_begin();
	for (unsigned i = 0; i < WORKERS; i++) {
		worker[i] = (struct worker){
			.peer = {.ip = le32((const uint8_t *)"\x0a\0\0\x0a") + (i << 24),
				.udp = (uint16_t)(4000 + i)}};
		memset(worker[i].push, PBOX_FMT_FP32, sizeof(worker[i].push));
	}
	for (size_t at = 0; at + STEP <= size && steps < STEPS; steps++)
		at += STEP + step(data + at, size - at - STEP);
	m_end();
	return 0;
}
