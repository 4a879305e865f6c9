/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What must hold whatever comes:
 * - received = accepted + dropped, of each shard and of the registrar, after every datagram;
 * - a packet that is held is given back exactly once, and the counter of held ones is right;
 * - what is sent has the right CRC and incarnation, and fits the MTU;
 * - all of it has the right tag in a session with auth, and none elsewhere (R11.1);
 * - who has shown no token that the box gave out gets no more bytes than it sent (R4.7);
 * - at the end no job, worker, table, round, packet or byte of parameter memory is left, and the
 *   memory is zero again.
 * Packets are as large as their bytes, so that the address sanitizer sees a read beyond.
 */

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include <pbox_auth.h>
#include <pbox_registrar_view.h>

#include "../reseal.h"
#include "machine.h"

#define ARENA    (256u << 10)
#define MTU      1500
#define TOKENS   64
#define MAILS    256
#define MAX_JOBS 4 /* one more than sections with a name */

struct packet {
	unsigned refs;
	size_t size;
	struct packet *next, **link; /* all that exist */
	uint8_t data[];
};

/* As a worker remembers it. */
struct session {
	uint64_t token;
	struct pbox_auth_job *auth; /* NULL: without tags */
	struct pbox_auth_keys keys;
};

struct m_seen m_seen;
uint64_t m_now;
bool m_hold_mail;
void (*m_sent)(const struct pbox_send *s);

static uint32_t incarnation;
static struct pbox_registrar *registrar;
static struct pbox_shard *shard[M_SHARDS];
static uint64_t rs[PBOX_RS_STATS], ss[M_SHARDS][PBOX_SS_STATS];
static uint64_t rs_given, ss_given[M_SHARDS];
static uint8_t region[ARENA] __attribute__((aligned(PBOX_CACHE_LINE)));
static struct pbox_arena *arena;
static struct packet *packets;
static unsigned held; /* references that shards have */
static struct session session[TOKENS];
static unsigned n_sessions;
static struct pbox_mail mail[MAILS];
static unsigned n_mail;
static uint64_t random_state;
static size_t answered; /* bytes sent since the datagram began */

static const struct pbox_engine_endpoint endpoint[M_SHARDS] = {
	{.addr = {.ipv4 = {10, 0, 0, 1}, .udp = 7270}, .shard = 0},
	{.addr = {.ipv4 = {10, 0, 0, 1}, .udp = 7271}, .shard = 1},
};
static const struct pbox_job_conf job_conf[] = {
	{.name = "a", .secret = "key", .secret_len = 3, .policy = PBOX_POLICY_ANY},
	{.name = "b",
		.secret = "key",
		.secret_len = 3,
		.bounds.memory = 1 << 17,
		.workers = 2,
		.bounds.rate = 1000,
		.bounds.repeats = 1000,
		.bounds.requests = 100},
	{.name = "e", .secret = "key", .secret_len = 3, .auth = true, .policy = PBOX_POLICY_ANY},
	{.name = "*", .secret = ""},
};

static void
packet_drop(struct packet *p)
{
	PBOX_ASSERT(p->refs > 0);
	if (--p->refs > 0)
		return;
	*p->link = p->next;
	if (p->next != NULL)
		p->next->link = p->link;
	free(p);
}

static struct session *
session_of(uint64_t token)
{
	for (unsigned i = 0; i < TOKENS && i < n_sessions; i++)
		if (session[i].token == token)
			return &session[i];
	return NULL;
}

static void
welcome(const struct pbox_welcome *w)
{
	struct session *s;

	if (session_of(w->token) != NULL)
		return;
	s = &session[n_sessions++ % TOKENS];
	pbox_auth_job_destroy(s->auth);
	*s = (struct session){.token = w->token};
	if ((w->flags & PBOX_WELCOME_AUTH) == 0)
		return;
	s->auth = pbox_auth_job_create(NULL, "key", 3, incarnation, w->job);
	PBOX_ASSERT(s->auth != NULL);
	pbox_auth_keys(&s->keys, "key", 3, w);
}

static bool
tagged(const struct pbox_hdr *h, const struct session *s)
{
	return s != NULL && s->auth != NULL && h->type > PBOX_JOIN;
}

size_t
m_seal(uint8_t *buf, struct pbox_hdr *h)
{
	const struct session *s = session_of(h->token);

	if (!tagged(h, s))
		return pbox_frame_seal(buf, h);
	h->flags |= PBOX_F_AUTH;
	return pbox_auth_seal(s->keys.worker, s->auth, buf, h);
}

size_t
m_seal_answer(uint8_t *buf, struct pbox_hdr *h, uint64_t token)
{
	const struct session *s = session_of(token);

	if ((h->flags & PBOX_F_AUTH) == 0 || s == NULL || s->auth == NULL)
		return pbox_frame_seal(buf, h);
	return pbox_auth_seal(s->keys.box, s->auth, buf, h);
}

static void
check_tag(const struct pbox_send *s)
{
	const struct session *to = session_of(s->hdr.token);
	uint8_t head[PBOX_HDR_LEN], digest[PBOX_AUTH_DIGEST_LEN];
	uint8_t is[PBOX_TAG_LEN], should[PBOX_TAG_LEN];

	PBOX_ASSERT((s->tag_key != NULL) == ((s->hdr.flags & PBOX_F_AUTH) != 0));
	if (s->tag_key == NULL) {
		/* but for errors to who has no session (R11.1): to HELLO, JOIN, a wrong token */
		bool to_nobody =
			s->hdr.type == PBOX_ERROR &&
			(s->hdr.length == 0 ? s->hdr.aux == PBOX_E_SESSION
					    : ((const uint8_t *)s->payload)[2] <= PBOX_JOIN);

		PBOX_ASSERT(to_nobody || !tagged(&s->hdr, to));
		return;
	}
	if (to == NULL) /* the box stops before its WELCOME could leave */
		return;
	PBOX_ASSERT(to->auth != NULL);
	pbox_frame_encode(head, &s->hdr, s->payload_crc);
	pbox_auth_tag(s->tag_key, head, s->digest, is);
	pbox_auth_digest(to->auth, s->payload, s->hdr.length, digest);
	pbox_auth_tag(to->keys.box, head, digest, should);
	PBOX_ASSERT(memcmp(is, should, sizeof(is)) == 0);
}

static void
see(const struct pbox_send *s)
{
	struct pbox_mapped m;
	struct pbox_chunk_entry e;
	struct pbox_cursor cur;
	struct pbox_retry retry;

	if (s->hdr.type == PBOX_RETRY) {
		PBOX_ASSERT(pbox_retry_decode(s->payload, s->hdr.length, &retry) == 0);
		m_seen.cookie = retry.cookie;
	}
	if (s->hdr.type == PBOX_WELCOME) {
		PBOX_ASSERT(pbox_welcome_decode(s->payload, s->hdr.length, &m_seen.welcome) == 0);
		welcome(&m_seen.welcome);
	}
	if (s->hdr.type != PBOX_MAPPED)
		return;
	PBOX_ASSERT(pbox_mapped_decode(s->payload, s->hdr.length, &m, &cur) == 0);
	m_seen.frag_elements = m.frag_elements;
	if (m.first == 0)
		m_seen.n_chunks = 0;
	while (pbox_mapped_next(&cur, &e) == 0)
		if (m_seen.n_chunks < M_CHUNKS) {
			m_seen.chunk[m_seen.n_chunks].id = e.chunk_id;
			m_seen.chunk[m_seen.n_chunks].elements = e.elements;
			m_seen.chunk[m_seen.n_chunks].endpoint = e.endpoint;
			m_seen.chunk[m_seen.n_chunks++].table = (uint16_t)m.table;
		}
}

static void
on_send(void *ctx, const struct pbox_send *s)
{
	uint8_t *copy = malloc(s->hdr.length + 1u); /* all of it can be read */

	(void)ctx;
	PBOX_ASSERT(copy != NULL);
	pbox_send_payload(copy, s);
	PBOX_ASSERT(
		s->payload_crc == (s->hdr.length > 0 ? pbox_crc32c(0, copy, s->hdr.length) : 0));
	free(copy);
	PBOX_ASSERT(s->hdr.incarnation == incarnation);
	PBOX_ASSERT(
		s->hdr.length + PBOX_HDR_LEN + (s->tag_key != NULL ? PBOX_TAG_LEN : 0) + 28 <= MTU);
	PBOX_ASSERT(s->peer != NULL && pbox_type_name(s->hdr.type)[0] != '?');
	/* WELCOME has proof of the secret before it */
	if (s->hdr.type != PBOX_WELCOME)
		answered += s->hdr.length + PBOX_HDR_LEN;
	see(s);
	check_tag(s);
	if (m_sent != NULL)
		m_sent(s);
}

static void
on_release(void *ctx, void *const *handle, unsigned n)
{
	(void)ctx;
	for (unsigned i = 0; i < n; i++) {
		PBOX_ASSERT(held > 0);
		held--;
		packet_drop(handle[i]);
	}
}

static void
on_shard_mail(void *ctx, const struct pbox_mail *m)
{
	(void)ctx;
	pbox_registrar_mail(registrar, m, m_now);
}

void
m_mail(void)
{
	while (n_mail > 0) {
		struct pbox_mail m = mail[0];

		memmove(mail, mail + 1, --n_mail * sizeof(m));
		pbox_shard_mail(shard[m.shard], &m, m_now);
	}
}

static void
on_post(void *ctx, const struct pbox_mail *m)
{
	(void)ctx;
	PBOX_ASSERT(n_mail < MAILS);
	mail[n_mail++] = *m;
	if (!m_hold_mail)
		m_mail();
}

static void
on_random(void *ctx, void *buf, size_t n)
{
	uint8_t *p = buf;

	(void)ctx;
	for (size_t i = 0; i < n; i++) {
		random_state = random_state * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(random_state >> 56);
	}
}

static void
on_event(void *ctx, enum pbox_log_level level, const char *text)
{
	(void)ctx;
	PBOX_ASSERT(level <= PBOX_LOG_DEBUG && strlen(text) > 0);
}

static const struct pbox_shard_ops shard_ops = {
	.send = on_send, .release = on_release, .mail = on_shard_mail};
static const struct pbox_registrar_ops registrar_ops = {
	.send = on_send, .post = on_post, .random = on_random, .event = on_event};

static void
start(void)
{
	struct pbox_registrar_conf conf = {
		.incarnation = incarnation,
		.max_jobs = MAX_JOBS,
		.max_workers = 4,
		.chunk_elements = 512,
		.lease_ms = 1000,
		.mtu = MTU,
		.hold = 32,
		.n_shards = M_SHARDS,
		.endpoint = endpoint,
		.n_endpoints = M_SHARDS,
		.job = job_conf,
		.n_jobs = sizeof(job_conf) / sizeof(job_conf[0]),
		.first_run = pbox_registrar_first_run(m_now),
		.ops = &registrar_ops,
		.stats = rs,
	};

	PBOX_ASSERT(sodium_init() >= 0);
	memset(rs, 0, sizeof(rs));
	memset(ss, 0, sizeof(ss));
	memset(ss_given, 0, sizeof(ss_given));
	memset(&m_seen, 0, sizeof(m_seen));
	rs_given = 0;
	m_hold_mail = false;
	arena = pbox_arena_create(region, ARENA);
	conf.arena[0] = arena;
	for (unsigned i = 0; i < M_SHARDS; i++) {
		struct pbox_shard_conf sc = {
			.id = (uint16_t)i,
			.incarnation = incarnation,
			.max_jobs = conf.max_jobs,
			.mtu = conf.mtu,
			.endpoint = endpoint,
			.n_endpoints = M_SHARDS,
			.reduce = &pbox_reduce_scalar,
			.optim = &pbox_optim_scalar,
			.ops = &shard_ops,
			.stats = ss[i],
		};

		shard[i] = pbox_shard_create(&sc);
		PBOX_ASSERT(shard[i] != NULL);
	}
	registrar = pbox_registrar_create(&conf);
	PBOX_ASSERT(registrar != NULL && arena != NULL);
}

void
m_begin(void)
{
	incarnation = M_INCARNATION;
	random_state = 1;
	m_now = UINT64_C(100000000000);
	start();
}

void
m_restart(void)
{
	void (*sent)(const struct pbox_send *s) = m_sent;

	m_sent = NULL; /* it says nothing of its end */
	m_end();
	m_sent = sent;
	incarnation++;
	start();
}

static void
check_sum(const uint64_t *v, unsigned first, unsigned last, uint64_t given)
{
	uint64_t sum = 0;

	for (unsigned i = first; i <= last; i++)
		sum += v[i];
	PBOX_ASSERT(v[0] == given && sum == given);
}

uint64_t
m_accepted(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < M_SHARDS; i++)
		for (unsigned k = PBOX_SS_FIRST_ACCEPT; k < PBOX_SS_FIRST_DROP; k++)
			n += ss[i][k];
	for (unsigned k = PBOX_RS_FIRST_ACCEPT; k < PBOX_RS_FIRST_DROP; k++)
		n += rs[k];
	return n;
}

static void
check(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < M_SHARDS; i++) {
		check_sum(ss[i], PBOX_SS_FIRST_ACCEPT, PBOX_SS_LAST_DROP, ss_given[i]);
		PBOX_ASSERT(pbox_shard_held(shard[i]) == ss[i][PBOX_SS_HELD]);
		n += ss[i][PBOX_SS_HELD];
	}
	PBOX_ASSERT(n == held);
	check_sum(rs, PBOX_RS_FIRST_ACCEPT, PBOX_RS_LAST_DROP, rs_given);
	PBOX_ASSERT(pbox_registrar_jobs(registrar) <= MAX_JOBS);
	for (unsigned i = 0; i < pbox_registrar_jobs(registrar); i++)
		PBOX_ASSERT(pbox_registrar_job(registrar, i) != NULL);
}

void
m_end(void)
{
	pbox_registrar_close(registrar, m_now);
	m_hold_mail = false;
	m_mail();
	check();
	PBOX_ASSERT(pbox_registrar_jobs(registrar) == 0);
	for (unsigned i = 0; i < M_SHARDS; i++) {
		PBOX_ASSERT(ss[i][PBOX_SS_HELD] == 0 && ss[i][PBOX_SS_ROUNDS_OPEN] == 0);
		pbox_shard_destroy(shard[i]);
	}
	PBOX_ASSERT(rs[PBOX_RS_JOBS] == 0 && rs[PBOX_RS_WORKERS] == 0 && rs[PBOX_RS_TABLES] == 0);
	pbox_registrar_destroy(registrar);
	PBOX_ASSERT(held == 0 && packets == NULL);
	PBOX_ASSERT(pbox_arena_used(arena) == 0);
	pbox_arena_destroy(arena);
	for (size_t i = 0; i < ARENA; i += 8)
		PBOX_ASSERT(*(const uint64_t *)(const void *)(region + i) == 0);
	for (unsigned i = 0; i < TOKENS && i < n_sessions; i++)
		pbox_auth_job_destroy(session[i].auth);
	memset(session, 0, sizeof(session));
	n_sessions = 0;
}

static struct packet *
packet_of(const uint8_t *data, size_t size)
{
	struct packet *p = malloc(sizeof(*p) + size);

	PBOX_ASSERT(p != NULL);
	*p = (struct packet){.refs = 1, .size = size, .next = packets, .link = &packets};
	if (packets != NULL)
		packets->link = &p->next;
	packets = p;
	memcpy(p->data, data, size);
	return p;
}

static void
to_shard(unsigned at, struct packet *p, struct pbox_frame *frame, unsigned n)
{
	uint64_t taken;

	ss_given[at] += n;
	/* each has a reference of its own: the shard's, or ours to drop */
	p->refs += n;
	held += n;
	taken = pbox_shard_rx(shard[at], frame, n, m_now);
	PBOX_ASSERT(n == 64 || taken >> n == 0);
	for (unsigned i = 0; i < n; i++)
		if ((taken >> i & 1) == 0) {
			held--;
			packet_drop(p);
		}
}

void
m_datagram(unsigned at, const struct pbox_peer *from, const uint8_t *data, size_t size, bool repair)
{
	struct packet *p = packet_of(data, size);
	struct pbox_frame frame[PBOX_SHARD_BURST];
	unsigned n = 0;
	enum pbox_gate gate = PBOX_GATE_QUIET;
	bool proven = false;

	answered = 0;
	/* what comes to the control port passes the core that has received it */
	if (from->local_udp == 0 && size > 0) {
		gate = pbox_shard_gate(shard[at], p->data, size, from, m_now);
		ss_given[at] += gate == PBOX_GATE_ANSWERED;
		if (gate == PBOX_GATE_RATE) {
			packet_drop(p);
			check();
			return;
		}
	}
	for (size_t pos = 0; pos < size && n < PBOX_SHARD_BURST;) {
		struct pbox_frame *f = &frame[n];
		enum pbox_wire_drop why;
		size_t step = 0;

		if (repair)
			reseal(p->data + pos, size - pos);
		*f = (struct pbox_frame){.payload = p->data + pos + PBOX_HDR_LEN,
			.handle = p,
			.peer = *from,
			.ce = (p->data[pos] & 1) != 0,
			.follows = pos > 0,
			.answered = gate == PBOX_GATE_ANSWERED};
		why = pos == 0
			      ? pbox_frame_open(p->data, size, &f->hdr, &step, &f->unverified)
			      : pbox_frame_decode(p->data + pos, size - pos, false, &f->hdr, &step);
		proven |= why == PBOX_WIRE_OK && session_of(f->hdr.token) != NULL;
		if (why == PBOX_WIRE_VERSION && pos == 0 && size >= PBOX_HDR_LEN + PBOX_HELLO_LEN) {
			f->hdr.length = (uint16_t)(size - PBOX_HDR_LEN);
			pbox_registrar_version(registrar, f, data[1]);
		}
		if (why != PBOX_WIRE_OK && step == 0)
			break;
		pos += step;
		if (why != PBOX_WIRE_OK)
			continue;
		if (f->hdr.type >= PBOX_FIRST_DATA_TYPE ||
			(f->hdr.type == PBOX_PING && from->local_udp != 0)) {
			n++;
		} else {
			rs_given++;
			pbox_registrar_rx(registrar, f, m_now);
		}
	}
	if (n > 0)
		to_shard(at, p, frame, n);
	packet_drop(p);
	PBOX_ASSERT(proven || answered <= size);
	check();
}

void
m_tick(uint64_t ns)
{
	for (uint64_t end = m_now + ns; m_now < end;) { /* it listened all the while */
		m_now += end - m_now < 100000000 ? end - m_now : 100000000;
		pbox_registrar_heard(registrar, m_now);
	}
	for (unsigned i = 0; i < M_SHARDS; i++)
		pbox_shard_pace(shard[i], m_now);
	pbox_registrar_tick(registrar, m_now);
	check();
}

void
m_shutdown(void)
{
	pbox_registrar_shutdown(registrar, m_now);
	check();
}
