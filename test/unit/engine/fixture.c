/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "fixture.h"

#define INCARNATION 0xB0B0

struct fx fx;

uint8_t fx_region[FX_ARENA] __attribute__((aligned(PBOX_CACHE_LINE)));
static uint64_t marked[PBOX_SS_STATS];
static struct pbox_engine_endpoint endpoint[FX_SHARDS] = {
	{.addr = {.ipv4 = {10, 0, 0, 1}, .udp = 7270}, .shard = 0},
	{.addr = {.ipv4 = {10, 0, 0, 1}, .udp = 7271}, .shard = 1},
};
static struct pbox_job_conf job_conf[] = {
	{.name = "vision",
		.secret = "key",
		.secret_len = 3,
		.bounds.repeats = 50000,
		.bounds.requests = 1000},
	{.name = "speech", .secret = "key", .secret_len = 3},
	{.name = "three",
		.secret = "key",
		.secret_len = 3,
		.workers = 3,
		.bounds.lease_ns = UINT64_C(4000000000)},
	{.name = "quota", .secret = "key", .secret_len = 3, .bounds.memory = FX_QUOTA},
	{.name = "five", .secret = "key", .secret_len = 3, .policy = PBOX_POLICY_ANY},
	{.name = "six", .secret = "key", .secret_len = 3, .policy = PBOX_POLICY_SHRINK},
	{.name = "seven", .secret = "key", .secret_len = 3},
	{.name = "eight", .secret = "key", .secret_len = 3},
	{.name = "tagged",
		.secret = "key",
		.secret_len = 3,
		.auth = true,
		.bounds.rate = 1000,
		.bounds.requests = 1000},
	{.name = "open", .secret = ""},
	{.name = "brief",
		.secret = "key",
		.secret_len = 3,
		.bounds.grace_ns = UINT64_C(2000000000)},
	{.name = "slow",
		.secret = "key",
		.secret_len = 3,
		.bounds.rate = 1000,
		.bounds.lease_ns = UINT64_C(700000000)},
};

static void
capture(const struct pbox_send *s)
{
	struct fx_sent *c = &fx.sent[fx.n_sent < FX_SENT ? fx.n_sent++ : FX_SENT - 1];

	c->hdr = s->hdr;
	c->peer = *s->peer;
	c->shared = s->shared;
	CU_ASSERT_FATAL(s->hdr.length <= sizeof(c->payload));
	pbox_send_payload(c->payload, s);
	UNIT_EQ_U64(s->payload_crc, pbox_crc32c(0, c->payload, s->hdr.length));
	UNIT_EQ_U64(s->hdr.incarnation, INCARNATION);
	CU_ASSERT_EQUAL((s->hdr.flags & PBOX_F_AUTH) != 0, s->tag_key != NULL);
	if (s->tag_key != NULL) {
		uint8_t head[PBOX_HDR_LEN];

		pbox_frame_encode(head, &s->hdr, s->payload_crc);
		pbox_auth_tag(s->tag_key, head, s->digest, c->tag);
	}
}

static void
on_send(void *ctx, const struct pbox_send *s)
{
	(void)ctx;
	capture(s);
}

static void
on_release(void *ctx, void *const *handle, unsigned n)
{
	(void)ctx;
	fx.released += n;
	fx.last_released = handle[n - 1];
}

static void
on_shard_mail(void *ctx, const struct pbox_mail *m)
{
	(void)ctx;
	pbox_registrar_mail(fx.registrar, m, fx.now);
}

static void
on_post(void *ctx, const struct pbox_mail *m)
{
	(void)ctx;
	CU_ASSERT_FATAL(fx.n_mail < 64);
	fx.mail[fx.n_mail++] = *m;
	if (!fx.hold_mail)
		fx_mail();
}

void
fx_listen(void)
{
	const uint64_t step = 50000000;

	while (fx.heard < fx.now) {
		fx.heard += fx.now - fx.heard < step ? fx.now - fx.heard : step;
		pbox_registrar_heard(fx.registrar, fx.heard);
	}
}

void
fx_tick(void)
{
	fx_listen();
	pbox_registrar_tick(fx.registrar, fx.now);
}

void
fx_work(void)
{
	while (pbox_registrar_work(fx.registrar, fx.now))
		;
}

void
fx_mail(void)
{
	struct pbox_mail m;

	while (fx.n_mail > 0) {
		m = fx.mail[0];
		memmove(fx.mail, fx.mail + 1, --fx.n_mail * sizeof(m));
		pbox_shard_mail(fx.shard[m.shard], &m, fx.now);
	}
}

static void
on_random(void *ctx, void *buf, size_t n)
{
	uint8_t *p = buf;

	(void)ctx;
	fx.random = fx.random * 6364136223846793005u + 1442695040888963407u;
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(fx.random >> (8 * (i % 8)));
}

static void
on_event(void *ctx, enum pbox_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	snprintf(fx.event, sizeof(fx.event), "%s", text);
	fx.events++;
}

static const struct pbox_shard_ops shard_ops = {on_send, on_release, on_shard_mail};
static int
on_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	(void)ctx;
	return fx.restore != NULL ? fx.restore(job, t, restoring) : -ENOENT;
}

/* Of a rack, whose upper box is not there: the uplink is a member, and no table of the rack is ever complete. */
static int
on_uplink(void *ctx, const struct pbox_registrar_uplink *run, unsigned *window,
	struct pbox_error *err)
{
	(void)ctx;
	(void)run;
	(void)err;
	*window = 64;
	return 0;
}

static void
on_uplink_begin(void *ctx, const struct pbox_job *job, const uint8_t *run)
{
	(void)ctx;
	(void)job;
	(void)run;
}

static const struct pbox_registrar_ops registrar_ops = {on_send, on_post, on_random, on_event,
	on_restore, .uplink = on_uplink, .uplink_begin = on_uplink_begin};

void
fx_begin(void)
{
	static const uint8_t cookie_key[PBOX_COOKIE_KEY_LEN] = {17};
	struct pbox_registrar_conf conf = {
		.boxes = fx.boxes,
		.rack = fx.rack,
		.incarnation = INCARNATION,
		.cookie_key = cookie_key,
		.first_run = fx.first_run,
		.grace_ms = fx.grace_ms,
		.max_jobs = fx.max_jobs != 0 ? fx.max_jobs : 4,
		.max_workers = 64,
		.chunk_elements = fx.chunk_elements != 0 ? fx.chunk_elements : 64,
		.lease_ms = fx.lease_ms != 0 ? fx.lease_ms : 10000,
		.mtu = fx.mtu != 0 ? fx.mtu : 1500,
		.hold = fx.hold != 0 ? fx.hold : 256,
		.n_shards = FX_SHARDS,
		.endpoint = endpoint,
		.n_endpoints = FX_SHARDS,
		.job = job_conf,
		.n_jobs = sizeof(job_conf) / sizeof(job_conf[0]),
		.ops = &registrar_ops,
		.stats = fx.rs,
	};

	if (fx.memory != 0)
		job_conf[3].bounds.memory = fx.memory;
	CU_ASSERT_FATAL(sodium_init() >= 0);
	fx.now = UINT64_C(100000000000);
	fx.heard = fx.now - 1;
	fx.arena = pbox_arena_create(fx_region, fx.nodes             ? FX_ARENA / 2
						: fx.arena_size != 0 ? fx.arena_size
								     : FX_ARENA);
	conf.arena[0] = fx.arena;
	endpoint[1].node = fx.nodes;
	if (fx.nodes)
		conf.arena[1] = fx.arena_1 =
			pbox_arena_create(fx_region + FX_ARENA / 2, FX_ARENA / 2);
	for (unsigned i = 0; i < FX_SHARDS; i++) {
		struct pbox_shard_conf sc = {
			.id = (uint16_t)i,
			.incarnation = INCARNATION,
			.cookie_key = cookie_key,
			.max_jobs = conf.max_jobs,
			.mtu = conf.mtu,
			.endpoint = endpoint,
			.n_endpoints = FX_SHARDS,
			.reduce = fx.reduce != NULL ? fx.reduce : &pbox_reduce_scalar,
			.optim = &pbox_optim_scalar,
			.ops = &shard_ops,
			.stats = fx.ss[i],
		};

		fx.shard[i] = pbox_shard_create(&sc);
		CU_ASSERT_PTR_NOT_NULL_FATAL(fx.shard[i]);
	}
	fx.registrar = pbox_registrar_create(&conf);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.registrar);
}

static void
check_sum(const uint64_t *v, unsigned first, unsigned last)
{
	uint64_t sum = 0;

	for (unsigned i = first; i <= last; i++)
		sum += v[i];
	UNIT_EQ_U64(sum, v[0]);
}

void
fx_end(void)
{
	bool dirty = false;

	pbox_registrar_close(fx.registrar, fx.now);
	fx_mail();
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	for (unsigned i = 0; i < FX_SHARDS; i++) {
		check_sum(fx.ss[i], PBOX_SS_FIRST_ACCEPT, PBOX_SS_LAST_DROP);
		UNIT_EQ_U64(fx.ss[i][PBOX_SS_HELD], 0);
		UNIT_EQ_U64(fx.ss[i][PBOX_SS_ROUNDS_OPEN], 0);
		UNIT_EQ_U64(pbox_shard_held(fx.shard[i]), 0);
		pbox_shard_destroy(fx.shard[i]);
	}
	check_sum(fx.rs, PBOX_RS_FIRST_ACCEPT, PBOX_RS_LAST_DROP);
	UNIT_EQ_U64(fx.rs[PBOX_RS_JOBS], 0);
	UNIT_EQ_U64(fx.rs[PBOX_RS_WORKERS], 0);
	UNIT_EQ_U64(fx.rs[PBOX_RS_TABLES], 0);
	pbox_registrar_destroy(fx.registrar);
	UNIT_EQ_U64(pbox_arena_used(fx.arena), 0);
	pbox_arena_destroy(fx.arena);
	if (fx.nodes)
		UNIT_EQ_U64(pbox_arena_used(fx.arena_1), 0);
	pbox_arena_destroy(fx.arena_1);
	for (size_t i = 0; i < sizeof(fx_region); i++)
		dirty |= fx_region[i] != 0;
	CU_ASSERT_FALSE(dirty);
	job_conf[3].bounds.memory = FX_QUOTA;
	pbox_auth_job_destroy(fx.auth);
	memset(&fx, 0, sizeof(fx));
}

void
fx_clear(void)
{
	fx.n_sent = 0;
}

struct fx_sent *
fx_nth(unsigned i)
{
	static struct fx_sent none;

	CU_ASSERT(i < fx.n_sent);
	return i < fx.n_sent ? &fx.sent[i] : &none;
}

struct fx_sent *
fx_last(void)
{
	return fx_nth(fx.n_sent - 1);
}

unsigned
fx_count(enum pbox_type type)
{
	unsigned n = 0;

	for (unsigned i = 0; i < fx.n_sent; i++)
		n += fx.sent[i].hdr.type == type;
	return n;
}

static struct pbox_error_msg *
error_message(void)
{
	static struct pbox_error_msg m;
	struct fx_sent *s = fx_last();

	memset(&m, 0, sizeof(m));
	if (s->hdr.type == PBOX_ERROR)
		CU_ASSERT_EQUAL(pbox_error_decode(s->payload, s->hdr.length, &m), 0);
	return &m;
}

unsigned
fx_error(void)
{
	return error_message()->code;
}

const char *
fx_error_text(void)
{
	return error_message()->text;
}

uint32_t
fx_ts(void)
{
	return (uint32_t)(fx.now / 1000) + ++fx.stamps;
}

uint32_t
fx_upper(void)
{
	return fx.tells ? 1 + (uint32_t)((fx.now / 1000 + fx.stamps) >> 32) : 0;
}

struct fx_sent *
fx_control(struct fx_worker *w, enum pbox_type type, const void *payload, size_t len)
{
	struct pbox_frame f = {
		.hdr = {.type = (uint8_t)type,
			.token = w->token,
			.job = w->job_no,
			.worker = w->worker,
			.incarnation = INCARNATION,
			.chunk = ++w->request,
			.length = (uint16_t)len,
			.map_epoch = fx.map_epoch,
			.ts = fx_ts(),
			.held = fx_upper()},
		.payload = payload != NULL ? payload : (const void *)"",
		.peer = {.ip = htonl(w->ip), .udp = w->udp},
	};

	if (w->tagged)
		f.payload = fx_tagged(w, &f.hdr, payload);
	fx_listen();
	fx_clear();
	fx.request = PBOX_HDR_LEN + len;
	pbox_registrar_rx(fx.registrar, &f, fx.now);
	for (unsigned i = 0; i < fx.n_sent; i++) {
		/* to another session (R4.6, R15.10), or of a shard that knows of it */
		if (fx.sent[i].hdr.type == PBOX_PING || fx.sent[i].hdr.type == PBOX_TASK ||
			fx.sent[i].hdr.type >= PBOX_FIRST_DATA_TYPE)
			continue;
		UNIT_EQ_U64(fx.sent[i].hdr.chunk, w->request);
		if (w->token == 0 && fx.sent[i].hdr.type != PBOX_WELCOME) /* R4.7 */
			CU_ASSERT((size_t)fx.sent[i].hdr.length + PBOX_HDR_LEN <= fx.request);
	}
	return fx.n_sent > 0 ? fx_last() : NULL;
}

void
fx_hello(struct fx_worker *w)
{
	uint8_t payload[PBOX_HELLO_LEN];
	struct pbox_hello m = {1, 1};
	struct pbox_retry a;
	struct fx_sent *s;

	pbox_hello_encode(payload, sizeof(payload), &m);
	s = fx_control(w, PBOX_HELLO, payload, sizeof(payload));
	CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_RETRY);
	CU_ASSERT_EQUAL_FATAL(pbox_retry_decode(s->payload, s->hdr.length, &a), 0);
	UNIT_EQ_U64(a.incarnation, INCARNATION);
	w->cookie = a.cookie;
}

struct pbox_join
fx_join_message(const struct fx_worker *w)
{
	struct pbox_join m = {
		.cookie = w->cookie,
		.nonce = w->nonce,
		.worker = w->worker,
		.workers = w->workers,
		.mtu = w->mtu,
		.window = 100,
		.auth = 1,
		.revision = PBOX_REVISION,
		.policy = w->policy,
		.number = w->number,
	};

	memcpy(m.run, w->run, sizeof(m.run));
	m.slots = w->slots;
	m.least = w->least;
	m.can = m.needs = w->slots != 0 ? 1u << PBOX_CAN_SLOTS : 0;
	if (w->policy == PBOX_POLICY_REASSIGN)
		m.can = m.needs |= 1u << PBOX_CAN_WORK;
	m.can |= w->boxes ? 1u << PBOX_CAN_BOXES : 0;
	snprintf(m.job, sizeof(m.job), "%s", w->job);
	snprintf(m.host, sizeof(m.host), "host%u", w->worker);
	return m;
}

struct fx_sent *
fx_join_with(struct fx_worker *w, const struct pbox_join *m, const char *secret)
{
	uint8_t payload[PBOX_JOIN_LEN];

	join_payload(payload, m, secret);
	return fx_control(w, PBOX_JOIN, payload, sizeof(payload));
}

static void
welcome(struct fx_worker *w, const struct fx_sent *s)
{
	CU_ASSERT_FATAL(s != NULL && s->hdr.type == PBOX_WELCOME);
	CU_ASSERT_EQUAL_FATAL(pbox_welcome_decode(s->payload, s->hdr.length, &w->welcome), 0);
	CU_ASSERT_TRUE(pbox_proof_good("key", 3, PBOX_WELCOME_PROOF_PREFIX, s->payload,
		s->hdr.length, PBOX_WELCOME_PROOF_AT));
	UNIT_EQ_U64(w->welcome.nonce, w->nonce);
	w->token = w->welcome.token;
	w->job_no = w->welcome.job;
	w->worker = w->welcome.worker;
	w->tagged = (w->welcome.flags & PBOX_WELCOME_AUTH) != 0;
	CU_ASSERT_EQUAL(w->tagged, (s->hdr.flags & PBOX_F_AUTH) != 0);
	if (!w->tagged)
		return;
	pbox_auth_keys(&w->keys, "key", 3, &w->welcome);
	if (fx.auth == NULL)
		fx.auth = pbox_auth_job_create(NULL, "key", 3, INCARNATION, w->job_no);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.auth);
}

uint8_t *
fx_tagged(const struct fx_worker *w, struct pbox_hdr *h, const void *payload)
{
	/* payloads are aligned, as in packets */
	uint8_t *at = fx.frame[fx.n_frames++ % 32] + 2;

	CU_ASSERT_FATAL(h->length + PBOX_HDR_LEN + PBOX_TAG_LEN + 2u <= sizeof(fx.frame[0]));
	if (h->length > 0)
		memcpy(at + PBOX_HDR_LEN, payload, h->length);
	h->flags |= PBOX_F_AUTH;
	pbox_auth_seal(w->keys.worker, fx.auth, at, h);
	return at + PBOX_HDR_LEN;
}

void
fx_join(struct fx_worker *w, const char *job, uint16_t worker, uint16_t workers)
{
	struct pbox_join m;

	*w = (struct fx_worker){.job = job,
		.worker = worker,
		.workers = workers,
		.ip = 0x0A000100u + worker,
		.udp = (uint16_t)(5000 + worker),
		.mtu = 1500,
		.nonce = 1000u + worker + 64 * ++fx.joins};
	fx_hello(w);
	m = fx_join_message(w);
	welcome(w, fx_join_with(w, &m, "key"));
}

bool
fx_try_join(struct fx_worker *w)
{
	const struct fx_sent *s;
	struct pbox_join m;

	w->ip = 0x0A000100u + w->worker;
	w->udp = (uint16_t)(5000 + w->worker);
	w->mtu = 1500;
	w->token = 0;
	w->tagged = false;
	w->nonce = 1000u + w->worker + 64 * ++fx.joins;
	fx_hello(w);
	m = fx_join_message(w);
	s = fx_join_with(w, &m, "key");
	if (s->hdr.type != PBOX_WELCOME)
		return false;
	welcome(w, s);
	return true;
}

void
fx_leave(struct fx_worker *w)
{
	fx_control(w, PBOX_LEAVE, NULL, 0);
	UNIT_EQ_U64(fx_count(PBOX_LEFT), 1); /* others may have got something as well */
}

struct fx_sent *
fx_declare_list(struct fx_worker *w, const struct pbox_declare *fixed,
	const struct pbox_tensor_entry *e, unsigned n)
{
	uint8_t payload[1400];
	struct pbox_cursor cur;

	CU_ASSERT_EQUAL(pbox_declare_begin(payload, sizeof(payload), fixed, &cur), 0);
	for (unsigned i = 0; i < n; i++)
		CU_ASSERT_EQUAL_FATAL(pbox_declare_add(payload, &cur, &e[i]), 0);
	return fx_control(w, PBOX_DECLARE, payload, pbox_page_len(payload, &cur));
}

struct fx_sent *
fx_declare(struct fx_worker *w, uint32_t table, const struct fx_table *t)
{
	struct pbox_tensor_entry e = {.elements = t->elements, .group = t->group, .name = "weight"};
	struct pbox_declare d = {
		.table = table,
		.tensors = 1,
		.mode = t->mode,
		.op = t->op,
		.optimiser = t->optimiser,
		.discipline = t->discipline,
		.push_format = t->push != 0 ? t->push : PBOX_FMT_FP32,
		.pull_format = t->pull != 0 ? t->pull : PBOX_FMT_FP32,
		.flags = t->flags,
	};

	return fx_declare_list(w, &d, &e, 1);
}

struct fx_sent *
fx_map(struct fx_worker *w, uint32_t table, uint32_t first)
{
	struct pbox_map m = {table, first};
	uint8_t payload[16];

	return fx_control(w, PBOX_MAP, payload, pbox_map_encode(payload, sizeof(payload), &m));
}

struct fx_sent *
fx_set(struct fx_worker *w, uint32_t table, uint32_t round, unsigned id, double value)
{
	struct pbox_set m = {
		.table = table, .group = PBOX_ALL_GROUPS, .count = 1, .from_round = round};
	uint8_t payload[64];

	m.param[0].id = (uint16_t)id;
	m.param[0].value = value;
	return fx_control(w, PBOX_SET, payload, pbox_set_encode(payload, sizeof(payload), &m));
}

void
fx_job(struct fx_worker *w, const char *job, uint16_t n, const struct fx_table *t)
{
	for (uint16_t i = 0; i < n; i++)
		fx_join(&w[i], job, i, n);
	for (uint16_t i = 0; i < n; i++)
		CU_ASSERT_EQUAL_FATAL(fx_declare(&w[i], 0, t)->hdr.type, PBOX_DECLARED);
	fx_work();
	CU_ASSERT_EQUAL_FATAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_clear();
}

struct pbox_hdr
fx_data(const struct fx_worker *w, enum pbox_type type, uint32_t chunk, uint16_t frag,
	uint32_t round)
{
	return (struct pbox_hdr){
		.type = (uint8_t)type,
		.flags = PBOX_F_LAST,
		.token = w->token,
		.job = w->job_no,
		.worker = w->worker,
		.incarnation = INCARNATION,
		.chunk = chunk,
		.frag = frag,
		.round = round,
		.map_epoch = PBOX_MAP_EPOCH,
		.aux = PBOX_LR_MUL_ONE,
		.weight = 1,
		.ts = fx_ts(),
		.held = fx_upper(),
	};
}

void
fx_at(unsigned shard, struct pbox_peer *peer)
{
	memcpy(&peer->local_ip, endpoint[shard].addr.ipv4, 4);
	peer->local_udp = endpoint[shard].addr.udp;
}

void
fx_prove(unsigned shard, const struct fx_worker *w)
{
	const struct fx_sent *s = fx_last();
	struct pbox_hdr h = fx_data(w, PBOX_PING, 0, 0, s->hdr.round);

	CU_ASSERT_EQUAL(s->hdr.type, PBOX_PING);
	UNIT_EQ_U64(s->hdr.chunk, 0);
	UNIT_EQ_U64(s->hdr.length, 0);
	CU_ASSERT(s->hdr.round != 0 || s->hdr.base != 0);
	UNIT_EQ_U64(s->peer.udp, w->udp);
	h.base = s->hdr.base;
	h.flags = 0;
	CU_ASSERT_FALSE(fx_rx(shard, w, &h, NULL));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PONG);
	UNIT_EQ_U64(fx_last()->hdr.round, 0);
	fx_clear();
}

bool
fx_rx(unsigned shard, const struct fx_worker *w, const struct pbox_hdr *h, const void *payload)
{
	struct pbox_frame f = {
		.hdr = *h,
		.payload = payload != NULL ? payload : (const void *)"",
		.handle = (void *)(uintptr_t)payload,
		.peer = {.ip = htonl(w->ip), .udp = w->udp},
	};

	fx_at(shard, &f.peer);
	fx_listen();
	if (w->tagged)
		f.payload = fx_tagged(w, &f.hdr, payload);
	return pbox_shard_rx(fx.shard[shard], &f, 1, fx.now) != 0;
}

bool
fx_pushpull(const struct fx_worker *w, uint32_t round, const float *v, unsigned n)
{
	struct pbox_hdr h = fx_data(w, PBOX_PUSHPULL, 0, 0, round);

	h.format = PBOX_FMT_FP32;
	h.length = (uint16_t)(n * 4);
	return fx_rx(0, w, &h, v);
}

void
fx_mark(void)
{
	memcpy(marked, fx.ss[0], sizeof(marked));
}

void
fx_only(enum pbox_shard_stat what, const char *file, int line)
{
	char text[256];

	for (unsigned i = 0; i <= PBOX_SS_LAST_DROP; i++) {
		uint64_t d = fx.ss[0][i] - marked[i], want = i == PBOX_SS_RX_FRAMES || i == what;

		snprintf(text, sizeof(text), "%s counted %llu times, not %llu",
			pbox_shard_stat_defs[i].name, (unsigned long long)d,
			(unsigned long long)want);
		CU_assertImplementation(d == want, (unsigned)line, text, file, "", CU_FALSE);
	}
}
