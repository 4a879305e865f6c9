/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A box with one job of one worker that answers at once and rightly, and then what the script does
 * to its answers. Its first byte says how many endpoints there are and, from 128 on, that the job has
 * auth: then what is done to an answer is done by somebody with the keys, or without. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include <pbox_auth.h>

#include "world.h"

#define STEP    4
#define TABLES  4
#define TENSORS 64
#define CHUNK   2048 /* elements */
#define CHUNKS  256
#define FRAMES  4000 /* then it is silent */
#define HELD    8
#define EPOCH   7

enum act {
	ACT_RIGHT,
	ACT_LOSE,
	ACT_HEADER,  /* a: which byte, b: xor; the CRC is right */
	ACT_PAYLOAD, /* a, c: which byte, b: its value */
	ACT_LENGTH,  /* a, c: how long the payload is */
	ACT_TYPE,    /* a */
	ACT_ERROR,   /* a code, b detail, c: with a text */
	ACT_REFUSE,  /* ERROR without payload, a code: of data frames */
	ACT_TWICE,
	ACT_WAIT, /* a: HAVE, b: missing worker, c: how many are there */
	ACT_HOLD, /* comes later */
	ACT_RESTART,
	ACT_SHUTDOWN,
	ACT_RAW,  /* a bytes of the script as payload, c: type */
	ACT_BITS, /* a, b: spoilt on the way */
	ACT_FROM, /* a: another sender */
	ACT_CE,
	ACT_TIME, /* 2^a us until the answer */
	ACT_PING,
	ACT_NOT_READY,
	ACT_RESTORE, /* a: how it stands, b: version */
	ACT_JOINED,  /* a, b: into WELCOME's fields, and the proof is right */
	ACTS
};

/* Who does it: step[0] / ACTS. */
enum { FORGED_TAG = 1, FORGED_NO_TAG };

struct table {
	struct pbox_declare head;
	struct pbox_tensor_entry tensor[TENSORS];
	struct pbox_chunk_entry chunk[CHUNKS];
	unsigned n_chunks;
	uint32_t frag_elements;
};

static struct {
	const uint8_t *script;
	size_t len, at;
	const uint8_t *step; /* of this frame */
	unsigned frames;
	uint32_t incarnation, restarts;
	uint64_t token;
	bool auth; /* its job has it; the session, once there is job_auth */
	struct pbox_auth_job *job_auth;
	struct pbox_auth_keys keys;
	unsigned endpoints;
	struct table table[TABLES];
	struct {
		uint8_t data[2048];
		size_t len;
	} held[HELD];
	unsigned n_held;
} box;
static uint8_t out[65536];
static uint8_t *const payload = out + PBOX_HDR_LEN;

static void
prove(uint8_t *p, size_t len)
{
	crypto_auth_hmacsha256_state s;

	memset(p + PBOX_WELCOME_PROOF_AT, 0, PBOX_PROOF_LEN);
	crypto_auth_hmacsha256_init(&s, (const uint8_t *)"key", 3);
	crypto_auth_hmacsha256_update(
		&s, (const uint8_t *)PBOX_WELCOME_PROOF_PREFIX, strlen(PBOX_WELCOME_PROOF_PREFIX));
	crypto_auth_hmacsha256_update(&s, p, len);
	crypto_auth_hmacsha256_final(&s, p + PBOX_WELCOME_PROOF_AT);
}

static size_t
welcome(const uint8_t *q, size_t len)
{
	struct pbox_join j;
	struct pbox_welcome m = {.job = 1,
		.workers = 1,
		.endpoints = (uint16_t)box.endpoints,
		.incarnation = box.incarnation,
		.lease_ms = 10000,
		.mtu = WORLD_MTU,
		.window = 32,
		.number = 1};

	if (pbox_join_decode(q, len, &j) != 0)
		return 0;
	m.nonce = j.nonce;
	m.token = box.token = j.nonce * 31 + box.incarnation;
	if (box.step[0] % ACTS == ACT_JOINED) {
		m.endpoints = box.step[1] % (PBOX_MAX_ENDPOINTS + 1);
		m.mtu = (uint16_t)(box.step[2] * 16);
		m.window = box.step[3];
		m.worker = box.step[3] >> 6;
	}
	for (unsigned i = 0; i < m.endpoints; i++)
		m.endpoint[i] = (struct pbox_endpoint){{127, 0, 0, 1}, (uint16_t)(7270 + i)};
	if (box.auth) {
		REQUIRE(j.auth == 1);
		m.flags = PBOX_WELCOME_AUTH;
		pbox_auth_job_destroy(box.job_auth);
		box.job_auth = pbox_auth_job_create(NULL, "key", 3, m.incarnation, m.job);
		REQUIRE(box.job_auth != NULL);
		pbox_auth_keys(&box.keys, "key", 3, &m);
	}
	len = pbox_welcome_encode(payload, 1400, &m);
	prove(payload, len);
	return len;
}

/* ---- tables ------------------------------------------------------------------------------------- */

static size_t
declared(const uint8_t *q, size_t len)
{
	struct pbox_declare m;
	struct pbox_declared d;
	struct pbox_cursor cur;
	struct table *t;

	REQUIRE(pbox_declare_decode(q, len, &m, &cur) == 0 && m.table < TABLES);
	REQUIRE(m.tensors <= TENSORS && m.first + m.count <= m.tensors);
	t = &box.table[m.table];
	t->head = m;
	t->n_chunks = 0;
	for (unsigned i = 0; i < m.count; i++)
		REQUIRE(pbox_declare_next(&cur, &t->tensor[m.first + i]) == 0);
	d = (struct pbox_declared){m.table, m.first, m.count};
	return pbox_declared_encode(payload, 1400, &d);
}

/* Small tensors share a chunk. */
static void
place(struct table *t, unsigned number)
{
	struct pbox_chunk_entry *k = NULL;

	t->frag_elements = pbox_frag_elements(WORLD_MTU - (box.auth ? PBOX_TAG_LEN : 0),
		t->head.push_format, t->head.pull_format);
	for (unsigned i = 0; i < t->head.tensors; i++)
		for (uint64_t at = 0; at < t->tensor[i].elements;) {
			uint64_t n = t->tensor[i].elements - at;

			if (k == NULL || at > 0 || k->segments == PBOX_MAX_SEGMENTS ||
				k->elements + n > CHUNK) {
				REQUIRE(t->n_chunks < CHUNKS);
				k = &t->chunk[t->n_chunks];
				*k = (struct pbox_chunk_entry){
					.chunk_id = number << 16 | t->n_chunks,
					.endpoint = (uint16_t)(t->n_chunks % box.endpoints)};
				t->n_chunks++;
			}
			n = n < CHUNK ? n : CHUNK;
			k->segment[k->segments++] = (struct pbox_segment){at, i, (uint32_t)n};
			k->elements += (uint32_t)n;
			at += n;
		}
}

static size_t
mapped(const uint8_t *q, size_t len)
{
	struct pbox_cursor cur;
	struct pbox_map m;
	struct table *t;
	struct pbox_mapped head;

	REQUIRE(pbox_map_decode(q, len, &m) == 0 && m.table < TABLES);
	t = &box.table[m.table];
	if (t->n_chunks == 0)
		place(t, m.table);
	head = (struct pbox_mapped){.table = m.table,
		.chunks = t->n_chunks,
		.first = m.first,
		.frag_elements = t->frag_elements,
		.first_chunk_id = m.table << 16};
	pbox_mapped_begin(payload, box.auth ? 1394 : 1410, &head, &cur);
	for (unsigned i = m.first; i < t->n_chunks; i++)
		if (pbox_mapped_add(payload, &cur, &t->chunk[i]) != 0)
			break;
	return pbox_page_len(payload, &cur);
}

/* Bytes of a fragment in the pull format; 0: there is none. */
static size_t
fragment(const struct pbox_hdr *q, uint8_t *format)
{
	unsigned number = q->chunk >> 16, i = q->chunk & 0xFFFF;
	const struct table *t = &box.table[number % TABLES];
	uint64_t from = (uint64_t)q->frag * t->frag_elements;

	if (number >= TABLES || i >= t->n_chunks || from >= t->chunk[i].elements)
		return 0;
	from = t->chunk[i].elements - from;
	*format = t->head.pull_format;
	return (from < t->frag_elements ? from : t->frag_elements) * pbox_format_size(*format);
}

/* ---- the right answer ----------------------------------------------------------------------- */

static void
data_answer(const struct pbox_hdr *q, struct pbox_hdr *h)
{
	const uint8_t *s = box.step;

	h->frag = q->frag;
	h->round = h->base = q->round;
	h->map_epoch = EPOCH;
	h->weight = h->aux = 1;
	if (s[0] % ACTS == ACT_WAIT && q->type != PBOX_INIT && q->type != PBOX_RESTORE) {
		h->type = PBOX_WAIT;
		h->flags = (s[1] & 1) != 0 ? PBOX_F_HAVE : 0;
		h->weight = s[2];
		h->aux = s[3];
	} else if (q->type == PBOX_PUSH) {
		h->type = PBOX_PUSH_OK;
	} else if (q->type == PBOX_INIT) {
		h->type = PBOX_INIT_OK;
		h->base = q->base;
	} else if (q->type == PBOX_RESTORE) {
		h->type = PBOX_RESTORE_OK;
		h->aux = s[0] % ACTS == ACT_RESTORE ? s[1] % 5 : PBOX_RESTORE_DONE;
		h->base = s[0] % ACTS == ACT_RESTORE ? s[2] : q->round;
	} else {
		h->type = PBOX_RESULT;
		h->length = (uint16_t)fragment(q, &h->format);
		memset(payload, 0x11, h->length);
	}
}

/* In out; false: there is none. */
static bool
answer(const struct pbox_hdr *q, const uint8_t *p, struct pbox_hdr *h)
{
	struct pbox_retry retry = {0xC00C1E, box.incarnation};
	struct pbox_status_ok status = {.workers = 1, .joined = 1};
	struct pbox_member_entry member = {.state = PBOX_MEMBER_JOINED, .host = "host"};
	struct pbox_not_ready wait = {.expected = 1, .first_missing = box.step[1]};
	struct pbox_cursor cur;

	*h = (struct pbox_hdr){.token = q->token,
		.job = q->job,
		.worker = q->worker,
		.incarnation = box.incarnation,
		.chunk = q->chunk,
		.ts = q->ts,
		.type = (uint8_t)(q->type + 1)};
	if (q->type >= PBOX_FIRST_DATA_TYPE) {
		data_answer(q, h);
		return true;
	}
	switch (q->type) {
	case PBOX_HELLO:
		h->length = (uint16_t)pbox_retry_encode(payload, 1400, &retry);
		return true;
	case PBOX_JOIN:
		h->length = (uint16_t)welcome(p, q->length);
		return true;
	case PBOX_DECLARE:
		h->length = (uint16_t)declared(p, q->length);
		return true;
	case PBOX_MAP:
		h->map_epoch = EPOCH;
		h->length = (uint16_t)mapped(p, q->length);
		if (box.step[0] % ACTS == ACT_NOT_READY) {
			h->type = PBOX_NOT_READY;
			h->length = (uint16_t)pbox_not_ready_encode(payload, 1400, &wait);
		}
		return true;
	case PBOX_STATUS:
		pbox_status_ok_begin(payload, 1400, &status, &cur);
		pbox_status_ok_add(payload, &cur, &member);
		h->length = (uint16_t)pbox_page_len(payload, &cur);
		return true;
	case PBOX_PING:
		memcpy(payload, p, q->length);
		h->length = q->length;
		return true;
	default:
		return q->type == PBOX_SET || q->type == PBOX_LEAVE;
	}
}

/* R11.1 */
static bool
tagged(const struct pbox_hdr *h)
{
	return box.job_auth != NULL && h->type > PBOX_JOIN &&
	       !(h->type == PBOX_ERROR && h->aux == PBOX_E_SESSION);
}

static size_t
seal(struct pbox_hdr *h)
{
	unsigned who = box.step[0] / ACTS;
	size_t size;

	if (!tagged(h) || who == FORGED_NO_TAG)
		return pbox_frame_seal(out, h);
	h->flags |= PBOX_F_AUTH;
	size = pbox_auth_seal(box.keys.box, box.job_auth, out, h);
	out[size - 1] ^= who == FORGED_TAG;
	return size;
}

/* A frame of the client's; a wrong tag where it has taken another WELCOME than the last. */
static bool
authentic(const struct pbox_hdr *q, const uint8_t *p)
{
	if (!box.auth || q->type <= PBOX_JOIN)
		return true;
	REQUIRE((q->flags & PBOX_F_AUTH) != 0);
	return pbox_auth_good(box.keys.worker, box.job_auth, p, q->length);
}

/* ---- what is done to it ---------------------------------------------------------------------- */

static void
error(struct pbox_hdr *h, const struct pbox_hdr *q, unsigned code, unsigned detail, bool text)
{
	struct pbox_error_msg m = {
		.code = (uint16_t)code, .type = q->type, .detail = detail, .text = "why"};

	h->type = PBOX_ERROR;
	h->aux = (uint16_t)code;
	if (!text)
		m.text[0] = '\0';
	h->length = (uint16_t)pbox_error_encode(payload, 1400, &m);
}

static void
spoil_header(struct pbox_hdr *h, const uint8_t *s)
{
	struct pbox_hdr old = *h;

	((uint8_t *)h)[s[1] % sizeof(*h)] ^= s[2];
	if (h->length > 1400)
		h->length = old.length;
}

static void
restart(const struct pbox_hdr *q, struct pbox_hdr *h)
{
	/* not for ever: each costs a join */
	if (++box.restarts <= 8)
		box.incarnation++;
	h->incarnation = box.incarnation;
	error(h, q, PBOX_E_SESSION, 0, false);
}

/* Before it is sealed. */
static void
bend(const struct pbox_hdr *q, struct pbox_hdr *h)
{
	const uint8_t *s = box.step;
	unsigned at = s[1] | (s[3] & 7u) << 8;

	switch (s[0] % ACTS) {
	case ACT_HEADER:
		spoil_header(h, s);
		break;
	case ACT_PAYLOAD:
		if (h->length > 0)
			payload[at % h->length] = s[2];
		break;
	case ACT_LENGTH:
		if (at > h->length && at <= 1400)
			memset(payload + h->length, s[2], at - h->length);
		h->length = (uint16_t)(at % 1401);
		break;
	case ACT_TYPE:
		h->type = s[1];
		break;
	case ACT_ERROR:
		error(h, q, s[1] % 20, s[2], (s[3] & 1) != 0);
		break;
	case ACT_REFUSE:
		h->type = PBOX_ERROR;
		h->aux = s[1] % 20;
		h->length = 0;
		h->format = 0;
		break;
	case ACT_RESTART:
		restart(q, h);
		break;
	case ACT_SHUTDOWN:
		h->type = PBOX_LEFT;
		h->chunk = 0;
		h->aux = 1;
		h->length = 0;
		break;
	case ACT_RAW:
		at = s[1] < box.len - box.at ? s[1] : (unsigned)(box.len - box.at);
		memcpy(payload, box.script + box.at, at);
		box.at += at;
		h->length = (uint16_t)at;
		h->type = s[3] != 0 ? s[3] % 0x2A : h->type;
		break;
	default:
		break;
	}
}

static void
emit(struct pbox_hdr *h)
{
	const uint8_t *s = box.step;
	size_t len = seal(h);
	unsigned act = s[0] % ACTS;

	if (act == ACT_BITS)
		out[(s[1] | s[3] << 8) % len] ^= s[2];
	if (act == ACT_HOLD && box.n_held < HELD && len <= sizeof(box.held[0].data)) {
		memcpy(box.held[box.n_held].data, out, len);
		box.held[box.n_held++].len = len;
		return;
	}
	world_deliver(out, len, act == ACT_FROM ? s[1] : 1, act == ACT_CE ? 3 : 0);
	if (act == ACT_TWICE)
		world_deliver(out, len, 1, 0);
}

void
box_frame(const struct pbox_hdr *q, const uint8_t *p)
{
	static const uint8_t right[STEP];
	struct pbox_hdr h;

	if (++box.frames > FRAMES || !authentic(q, p))
		return;
	box.step = right;
	if (box.len - box.at >= STEP) {
		box.step = box.script + box.at;
		box.at += STEP;
	}
	if (box.step[0] % ACTS == ACT_LOSE || !answer(q, p, &h))
		return;
	if (box.step[0] % ACTS == ACT_TIME)
		world_pass(UINT64_C(1000) << box.step[1] % 23);
	if (box.step[0] % ACTS == ACT_PING) {
		struct pbox_hdr ping = h;

		ping.type = PBOX_PING;
		ping.length = ping.format = 0;
		world_deliver(out, seal(&ping), 1, 0);
		if (!answer(q, p, &h))
			return;
	}
	bend(q, &h);
	emit(&h);
}

void
box_idle(void)
{
	for (unsigned i = 0; i < box.n_held; i++)
		world_deliver(box.held[i].data, box.held[i].len, 1, 0);
	box.n_held = 0;
}

void
box_begin(const uint8_t *script, size_t len)
{
	pbox_auth_job_destroy(box.job_auth);
	memset(&box, 0, sizeof(box));
	box.script = script;
	box.len = len;
	box.incarnation = 0xB0B0;
	box.endpoints = 1;
	if (len > 0)
		box.endpoints = 1 + script[0] % WORLD_ENDPOINTS;
	box.auth = len > 0 && script[0] >= 128;
	box.at = len > 0;
}
