/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_proof.h>

#include "network.h"

#define STEP     4
#define QUEUE    256
#define HELD     8
#define FRAMES   4000 /* then nothing comes through */
#define RESTARTS 8    /* each costs a join */
#define ROOM     1400

enum act {
	ACT_RIGHT,
	ACT_LOSE,
	ACT_HEADER,  /* a: which byte, b: xor; the CRC is right */
	ACT_PAYLOAD, /* a, c: which byte, b: its value */
	ACT_LENGTH,  /* a, c: how long the payload is */
	ACT_TYPE,    /* a */
	ACT_ERROR,   /* a code, b detail, c: with a text */
	ACT_REFUSE,  /* ERROR without payload, a code: of data frames */
	ACT_TWICE,   /* a: how much later */
	ACT_WAIT,    /* a: HAVE, b: missing worker, c: how many are there */
	ACT_HOLD,    /* a: how much later it comes */
	ACT_RESTART,
	ACT_SHUTDOWN,
	ACT_RAW,  /* a bytes of the script as payload, c: type */
	ACT_BITS, /* a, b: spoilt on the way */
	ACT_FROM, /* a: another sender */
	ACT_CE,
	ACT_TIME, /* 2^a us until the next */
	ACT_PING,
	ACT_NOT_READY,
	ACT_RESTORE, /* a: outcome, b: version */
	ACT_JOINED,  /* a, b: into WELCOME's fields, and the proof is right */
	ACT_PLAN, /* a: field of WORK_OK or TASK_OK, b: its value; c: of another one, or what a box wishes */
	ACTS
};

/* Who does it: step[0] / ACTS. In a session with tags, the last two do not know its keys. */
enum { FORGED_TAG = 1, FORGED_NO_TAG };

struct datagram {
	uint8_t *data;
	size_t len;
	struct pbox_peer peer;    /* the worker, and the box's side */
	uint8_t ecn, host, turns; /* turns: until it comes */
};

static struct {
	const uint8_t *script;
	size_t len, at;
	const uint8_t *step; /* of this frame */
	unsigned frames, restarts;
	struct datagram queue[QUEUE], held[HELD], last;
	unsigned n_queue, n_held;
	uint64_t pass;
	bool restart, shutdown, dishonest;
} net;
static uint8_t out[65536];
static uint8_t *const payload = out + PBOX_HDR_LEN;

/* ---- what is done to a frame ------------------------------------------------------------------ */

static unsigned
act(void)
{
	return net.step[0] % ACTS;
}

static void
become(struct pbox_hdr *h, enum pbox_type type, size_t length)
{
	h->type = (uint8_t)type;
	h->length = (uint16_t)length;
	h->format = 0;
}

static void
error(struct pbox_hdr *h, unsigned code, unsigned detail, bool text)
{
	struct pbox_error_msg m = {.code = (uint16_t)code,
		.type = (uint8_t)(h->type - 1),
		.detail = detail,
		.text = "why"};

	h->aux = (uint16_t)code;
	if (!text)
		m.text[0] = '\0';
	become(h, PBOX_ERROR, pbox_error_encode(payload, ROOM, &m));
}

static void
bend_header(struct pbox_hdr *h, const uint8_t *s)
{
	uint16_t length = h->length;

	((uint8_t *)h)[s[1] % sizeof(*h)] ^= s[2];
	if (h->length > ROOM)
		h->length = length;
}

static void
bend_welcome(struct pbox_hdr *h, const uint8_t *s)
{
	struct pbox_welcome m;

	REQUIRE(pbox_welcome_decode(payload, h->length, &m) == 0);
	m.endpoints = s[1] % (PBOX_MAX_ENDPOINTS + 1);
	m.mtu = (uint16_t)(s[2] * 16);
	m.window = s[3];
	m.worker = s[3] >> 6;
	h->length = (uint16_t)pbox_welcome_encode(payload, ROOM, &m);
	pbox_proof(payload + PBOX_WELCOME_PROOF_AT, "key", 3, PBOX_WELCOME_PROOF_PREFIX, payload,
		h->length, PBOX_WELCOME_PROOF_AT);
}

static void
bend_raw(struct pbox_hdr *h, const uint8_t *s)
{
	size_t n = s[1] < net.len - net.at ? s[1] : net.len - net.at;

	memcpy(payload, net.script + net.at, n);
	net.at += n;
	h->length = (uint16_t)n;
	h->type = s[3] != 0 ? s[3] % 0x2A : h->type;
}

static void
bend_ranges(struct pbox_slot_range *range, uint16_t *ranges, const uint8_t *s)
{
	*ranges = s[2] & 3;
	for (unsigned i = 0; i < *ranges; i++)
		range[i] = (struct pbox_slot_range){
			(uint16_t)(2 * i), (uint16_t)(2 * i + 1 + (s[2] >> 2 & 3))};
}

/* What another box would say, or a plan that changes. */
static void
bend_work(struct pbox_hdr *h, const uint8_t *s)
{
	struct pbox_work_ok m;

	if (pbox_work_ok_decode(payload, h->length, &m) != 0)
		return;
	if (s[1] == 0)
		m.again_ms = s[2];
	else if (s[1] == 1)
		bend_ranges(m.range, &m.ranges, s);
	else if (s[1] == 2)
		bend_ranges(m.next_range, &m.next_ranges, s);
	else if (s[1] == 3)
		m.edition = s[2];
	else if (s[1] == 4)
		m.now = s[2];
	m.next_from = s[3];
	h->length = (uint16_t)pbox_work_ok_encode(payload, ROOM, &m);
}

/* A box that wishes slots of the worker, in place of an answer, or another answer to its TASK. */
static void
bend_task(struct pbox_hdr *h, const uint8_t *s)
{
	struct pbox_task wish = {.round = s[1], .wish = s[2], .first = s[3] & 7, .end = 5};
	struct pbox_task_ok m;

	if (h->type != PBOX_TASK_OK) {
		become(h, PBOX_TASK, pbox_task_encode(payload, ROOM, &wish));
		h->chunk = 0;
		return;
	}
	if (pbox_task_ok_decode(payload, h->length, &m) != 0)
		return;
	m.again_ms = s[1];
	bend_ranges(m.range, &m.ranges, s);
	h->length = (uint16_t)pbox_task_ok_encode(payload, ROOM, &m);
}

/* What only fits one kind of answer. */
static void
bend_answer(struct pbox_hdr *h, const uint8_t *s)
{
	struct pbox_not_ready wait = {.expected = 1, .first_missing = s[1]};

	if (act() == ACT_WAIT && (h->type == PBOX_RESULT || h->type == PBOX_PUSH_OK)) {
		become(h, PBOX_WAIT, 0);
		h->flags =
			(uint16_t)((h->flags & PBOX_F_AUTH) | ((s[1] & 1) != 0 ? PBOX_F_HAVE : 0));
		h->weight = s[2];
		h->aux = s[3];
	} else if (act() == ACT_NOT_READY && h->type == PBOX_MAPPED) {
		become(h, PBOX_NOT_READY, pbox_not_ready_encode(payload, ROOM, &wait));
	} else if (act() == ACT_RESTORE && h->type == PBOX_RESTORE_OK) {
		h->aux = s[1] % 5;
		h->base = s[2];
	} else if (act() == ACT_JOINED && h->type == PBOX_WELCOME) {
		bend_welcome(h, s);
	} else if (act() == ACT_PLAN && h->type == PBOX_WORK_OK) {
		bend_work(h, s);
	} else if (act() == ACT_PLAN) {
		bend_task(h, s);
	}
}

/* Before it is sealed. */
static void
bend(struct pbox_hdr *h)
{
	const uint8_t *s = net.step;
	unsigned at = s[1] | (s[3] & 7u) << 8;

	switch (act()) {
	case ACT_HEADER:
		bend_header(h, s);
		break;
	case ACT_PAYLOAD:
		if (h->length > 0)
			payload[at % h->length] = s[2];
		break;
	case ACT_LENGTH:
		if (at > h->length && at <= ROOM)
			memset(payload + h->length, s[2], at - h->length);
		h->length = (uint16_t)(at % (ROOM + 1));
		break;
	case ACT_TYPE:
		h->type = s[1];
		break;
	case ACT_ERROR:
		error(h, s[1] % 20, s[2], (s[3] & 1) != 0);
		break;
	case ACT_REFUSE:
		become(h, PBOX_ERROR, 0);
		h->aux = s[1] % 20;
		break;
	case ACT_RAW:
		bend_raw(h, s);
		break;
	default:
		bend_answer(h, s);
		break;
	}
}

static bool
bends(void)
{
	switch (act()) {
	case ACT_RIGHT:
	case ACT_LOSE:
	case ACT_TWICE:
	case ACT_HOLD:
	case ACT_RESTART:
	case ACT_SHUTDOWN:
	case ACT_BITS:
	case ACT_FROM:
	case ACT_CE:
	case ACT_TIME:
	case ACT_PING:
		return false;
	default:
		return true;
	}
}

/* ---- queues ------------------------------------------------------------------------------------ */

static void
put(struct datagram *list, unsigned *n, unsigned most, const struct datagram *d, size_t len)
{
	if (*n == most)
		return;
	list[*n] = *d;
	list[*n].len = len;
	list[*n].data = malloc(len);
	REQUIRE(list[*n].data != NULL);
	memcpy(list[(*n)++].data, out, len);
}

static void
forget(struct datagram *list, unsigned *n)
{
	for (unsigned i = 0; i < *n; i++)
		free(list[i].data);
	*n = 0;
}

static size_t
seal(struct pbox_hdr *h, uint64_t token)
{
	unsigned who = net.step[0] / ACTS;
	bool tagged = (h->flags & PBOX_F_AUTH) != 0;
	size_t size;

	if (who == FORGED_NO_TAG)
		h->flags &= (uint16_t)~PBOX_F_AUTH;
	size = m_seal_answer(out, h, token);
	if (who == FORGED_TAG && tagged)
		out[size - 1] ^= 1;
	return size;
}

static void
emit(struct pbox_hdr *h, uint64_t token, const struct pbox_peer *peer)
{
	struct datagram d = {.peer = *peer, .host = 1, .turns = net.step[1]};
	const uint8_t *s = net.step;
	size_t len = seal(h, token);

	if (act() == ACT_BITS)
		out[(s[1] | s[3] << 8) % len] ^= s[2];
	if (act() == ACT_FROM)
		d.host = s[1];
	if (act() == ACT_CE)
		d.ecn = 3;
	if (act() == ACT_HOLD) {
		put(net.held, &net.n_held, HELD, &d, len);
		return;
	}
	put(net.queue, &net.n_queue, QUEUE, &d, len);
	if (act() == ACT_TWICE)
		put(net.held, &net.n_held, HELD, &d, len);
}

static void
on_sent(const struct pbox_send *s)
{
	static const uint8_t right[STEP];
	struct pbox_hdr h = s->hdr;
	bool tagged = (h.flags & PBOX_F_AUTH) != 0;

	net.step = right;
	if (++net.frames > FRAMES)
		return;
	if (net.len - net.at >= STEP) {
		net.step = net.script + net.at;
		net.at += STEP;
	}
	net.restart |= act() == ACT_RESTART && ++net.restarts <= RESTARTS;
	net.shutdown |= act() == ACT_SHUTDOWN;
	if (act() == ACT_LOSE)
		return;
	if (act() == ACT_TIME)
		net.pass += UINT64_C(1000) << net.step[1] % 23;
	if (act() == ACT_PING) {
		struct pbox_hdr ping = h;

		become(&ping, PBOX_PING, 0);
		emit(&ping, s->hdr.token, s->peer);
	}
	if (h.length > 0)
		memcpy(payload, s->payload, h.length);
	if (bends()) {
		/* nobody else can change what has a tag (R11.5) */
		net.dishonest |=
			!tagged || net.step[0] / ACTS == 0 || net.step[0] / ACTS > FORGED_NO_TAG;
		bend(&h);
	}
	emit(&h, s->hdr.token, s->peer);
}

/* ---- for the program --------------------------------------------------------------------------- */

void
net_begin(const uint8_t *script, size_t len)
{
	memset(&net, 0, sizeof(net));
	net.script = script;
	net.len = len;
	m_begin();
	m_sent = on_sent;
}

void
net_end(void)
{
	m_sent = NULL;
	m_end();
	forget(net.queue, &net.n_queue);
	forget(net.held, &net.n_held);
	free(net.last.data);
}

void
net_to_box(unsigned worker, const struct sockaddr_in *to, const uint8_t *data, size_t len)
{
	uint16_t udp = ntohs(to->sin_port);
	struct pbox_peer from = {.ip = htonl(0x0A00000Au + worker),
		.udp = (uint16_t)(4000 + worker),
		.local_ip = htonl(0x0A000001)};

	if (udp != PBOX_CONTROL_PORT) { /* no others are the box's */
		if (udp < 7270 || udp >= 7270 + M_SHARDS || to->sin_addr.s_addr != from.local_ip)
			return;
		from.local_udp = udp;
	}
	m_datagram(udp != PBOX_CONTROL_PORT ? udp - 7270u : 0, &from, data, len, false);
}

bool
net_receive(struct pbox_client_rx *d, unsigned *worker)
{
	const struct pbox_peer *p = &net.last.peer;

	free(net.last.data);
	net.last.data = NULL;
	if (net.n_queue == 0)
		return false;
	net.last = net.queue[0];
	memmove(net.queue, net.queue + 1, --net.n_queue * sizeof(net.queue[0]));
	*worker = ntohl(p->ip) - 0x0A00000Au;
	*d = (struct pbox_client_rx){
		.data = net.last.data, .len = (uint32_t)net.last.len, .ecn = net.last.ecn};
	d->from.sin_family = AF_INET;
	d->from.sin_addr.s_addr = htonl(0x0A000000u | net.last.host);
	d->from.sin_port = htons(p->local_udp != 0 ? p->local_udp : PBOX_CONTROL_PORT);
	return true;
}

/* What has been held back for long enough. */
static void
release(void)
{
	unsigned left = 0;

	for (unsigned i = 0; i < net.n_held; i++)
		if (net.held[i].turns-- > 0)
			net.held[left++] = net.held[i];
		else if (net.n_queue < QUEUE)
			net.queue[net.n_queue++] = net.held[i];
		else
			free(net.held[i].data);
	net.n_held = left;
}

void
net_pass(uint64_t ns)
{
	release();
	ns += net.pass;
	net.pass = 0;
	if (net.restart)
		m_restart();
	else if (net.shutdown)
		m_shutdown();
	net.restart = net.shutdown = false;
	m_tick(ns > 1000 ? ns : 1000);
}

bool
net_honest(void)
{
	return !net.dishonest;
}
