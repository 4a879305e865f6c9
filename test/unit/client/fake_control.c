/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include <sodium.h>

#include "fake_impl.h"

/* Sections 4, 5, 7, 8 of the protocol. */

#define COOKIE         0xC00C1Eull
#define FORGED_RETRIES 20

static uint8_t *
payload_room(struct fake_box *b)
{
	memset(b->tx + PBOX_HDR_LEN, 0, 2048);
	return b->tx + PBOX_HDR_LEN;
}

static void
answer(struct fake_box *b, int fd, const struct sockaddr_in *to, const struct pbox_hdr *q,
	uint8_t type, size_t length)
{
	struct pbox_hdr h = {.type = type,
		.token = q->token,
		.job = q->job,
		.worker = q->worker,
		.incarnation = b->incarnation,
		.chunk = q->chunk,
		.length = (uint16_t)length,
		.map_epoch = type == PBOX_MAPPED ? 7 : 0,
		.ts = q->ts};

	fake_send(b, fd, to, &h);
}

static void
prove(const char *secret, const char *prefix, uint8_t *payload, size_t len, size_t at)
{
	crypto_auth_hmacsha256_state s;
	uint8_t proof[PBOX_PROOF_LEN];

	memset(payload + at, 0, sizeof(proof));
	crypto_auth_hmacsha256_init(&s, (const uint8_t *)secret, strlen(secret));
	crypto_auth_hmacsha256_update(&s, (const uint8_t *)prefix, strlen(prefix));
	crypto_auth_hmacsha256_update(&s, payload, len);
	crypto_auth_hmacsha256_final(&s, proof);
	memcpy(payload + at, proof, sizeof(proof));
}

void
fake_error(struct fake_box *b, int fd, const struct sockaddr_in *to, const struct pbox_hdr *q,
	unsigned code, uint32_t detail, const char *text)
{
	struct pbox_error_msg m = {.code = (uint16_t)code, .type = q->type, .detail = detail};
	const struct pbox_error_tail t = {b->proving, q->chunk};
	uint8_t *payload = payload_room(b);
	size_t len;

	snprintf(m.text, sizeof(m.text), "%s", text);
	len = pbox_error_encode(payload, 1024, &m);
	if (q->type == PBOX_JOIN && b->proving != 0) {
		len = pbox_error_tail_encode(payload, len, &t);
		prove(b->conf.secret, PBOX_ERROR_PROOF_PREFIX, payload, len,
			PBOX_ERROR_PROOF_AT(len));
	}
	answer(b, fd, to, q, PBOX_ERROR, len);
}

static void
welcome(struct fake_box *b, int fd, const struct sockaddr_in *to, const struct pbox_hdr *q,
	unsigned worker)
{
	struct pbox_welcome m = {.token = b->member[worker].token,
		.nonce = b->member[worker].nonce,
		.job = 1,
		.worker = (uint16_t)worker,
		.workers = (uint16_t)b->conf.workers,
		.endpoints = (uint16_t)b->conf.endpoints,
		.incarnation = b->incarnation,
		.lease_ms = b->conf.lease_ms,
		.mtu = (uint16_t)b->conf.mtu,
		.window = (uint16_t)b->conf.window,
		.number = b->number + b->misnumber,
		.flags = (b->conf.auth ? PBOX_WELCOME_AUTH : 0) |
			 (b->conf.insecure ? PBOX_WELCOME_INSECURE : 0) |
			 (b->conf.plans ? 1u << PBOX_CAN_WORK : 0) |
			 (b->conf.no_slots ? 0 : 1u << PBOX_CAN_SLOTS)};
	uint8_t *p = payload_room(b);
	struct pbox_hdr to_member = *q;
	size_t len;

	for (unsigned i = 0; i < b->conf.endpoints; i++)
		m.endpoint[i] = (struct pbox_endpoint){{127, 0, 0, 1}, b->port[1 + i]};
	len = pbox_welcome_encode(p, 2048, &m) - (b->conf.older ? 8 : 0);
	prove(b->conf.other_secret ? "other"
		: b->conf.insecure ? ""
				   : b->conf.secret,
		PBOX_WELCOME_PROOF_PREFIX, p, len, PBOX_WELCOME_PROOF_AT);
	if (b->conf.auth) {
		pbox_auth_job_destroy(b->auth);
		b->auth = pbox_auth_job_create(
			NULL, b->conf.secret, strlen(b->conf.secret), b->incarnation, 1);
		pbox_auth_keys(&b->member[worker].keys, b->conf.secret, strlen(b->conf.secret), &m);
	}
	to_member.token = m.token;
	to_member.worker = m.worker;
	answer(b, fd, to, &to_member, PBOX_WELCOME, len);
}

static bool
complete(struct fake_box *b, const struct fake_table *t, struct pbox_not_ready *n)
{
	*n = (struct pbox_not_ready){.expected = (uint16_t)b->conf.workers,
		.first_missing = PBOX_NO_WORKER,
		.silent_ms = UINT32_MAX};
	for (unsigned i = 0; i < b->conf.workers; i++) {
		bool done = t->begun[i] && t->declared[i] == t->head.tensors;

		n->joined += b->member[i].live;
		n->declared += done;
		if (!done && n->first_missing == PBOX_NO_WORKER)
			n->first_missing = (uint16_t)i;
	}
	return n->declared == b->conf.workers;
}

/** Is there a table that all have declared? */
static bool
mapped(struct fake_box *b)
{
	struct pbox_not_ready n;

	for (unsigned i = 0; i < b->tables; i++)
		if (complete(b, &b->table[i], &n))
			return true;
	return false;
}

/** Section 12: false if the worker's run has ended. */
static bool
take_run(struct fake_box *b, const struct pbox_join *m)
{
	static const uint8_t none[PBOX_RUN_LEN];
	bool named = memcmp(m->run, none, sizeof(none)) != 0;

	if (b->number == 0) { /* the first since the start of the box */
		b->number = m->number != 0 ? m->number : ++b->numbers;
		memcpy(b->run, m->run, sizeof(b->run));
	}
	if (m->number != 0 && m->number != b->number) {
		if (m->number <= b->ended || mapped(b))
			return false;
		/* a new worker was faster than those that come again: it joins once more (R12.5) */
		for (unsigned i = 0; i < b->conf.workers; i++) {
			b->member[i].live = false;
			b->member[i].joins++; /* its JOIN, repeated, brings no token back that knows
						 another number */
		}
		b->number = m->number;
	} else if (m->number == 0 && named && memcmp(m->run, b->run, sizeof(b->run)) != 0) {
		fake_end_run(b);
		memcpy(b->run, m->run, sizeof(b->run));
	}
	return true;
}

/** The one that does not want the worker. */
static void
refuse(struct fake_box *b, int fd, const struct sockaddr_in *from, const struct pbox_hdr *h,
	uint64_t nonce, unsigned code)
{
	struct pbox_error_msg m = {.code = (uint16_t)code, .type = h->type, .text = "go away"};
	const struct pbox_error_tail t = {nonce, h->chunk};
	uint8_t *payload = payload_room(b);
	size_t len = pbox_error_encode(payload, PBOX_JOIN_LEN - PBOX_ERROR_TAIL_LEN, &m);

	if (b->prover != NULL) {
		len = pbox_error_tail_encode(payload, len, &t);
		prove(b->prover, PBOX_ERROR_PROOF_PREFIX, payload, len, PBOX_ERROR_PROOF_AT(len));
	}
	answer(b, fd, from, h, PBOX_ERROR, len);
}

/** Who sees the requests, and is faster than the box: it is not there, and has another secret. */
static void
forge(struct fake_box *b, int fd, const struct sockaddr_in *from, const struct pbox_hdr *h,
	uint64_t nonce)
{
	struct pbox_welcome m = {.token = 9,
		.nonce = nonce,
		.workers = (uint16_t)b->conf.workers,
		.endpoints = 1,
		.incarnation = b->incarnation,
		.lease_ms = 1000,
		.window = 1,
		.number = 1};

	if (h->type == PBOX_HELLO) {
		for (uint64_t i = 1; i <= FORGED_RETRIES; i++) {
			const struct pbox_retry r = {COOKIE + i, b->incarnation};

			answer(b, fd, from, h, PBOX_RETRY,
				pbox_retry_encode(payload_room(b), 64, &r));
		}
		return;
	}
	refuse(b, fd, from, h, nonce, b->conf.forger);
	answer(b, fd, from, h, PBOX_WELCOME, pbox_welcome_encode(payload_room(b), 2048, &m));
}

static void
on_join(struct fake_box *b, int fd, const struct sockaddr_in *from, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	uint8_t copy[PBOX_JOIN_LEN];
	struct fake_member *w;
	struct pbox_join m;
	unsigned i;

	if (h->length < PBOX_JOIN_LEN || pbox_join_decode(payload, h->length, &m) != 0)
		return;
	b->said.asked += h->chunk != b->last_join;
	b->last_join = h->chunk;
	if (b->refusals > 0) {
		b->refusals--;
		refuse(b, fd, from, h, m.nonce, b->refusal);
		return;
	}
	if (b->conf.forger != 0)
		forge(b, fd, from, h, m.nonce);
	memcpy(b->said.run, m.run, sizeof(m.run));
	b->said.number = m.number;
	b->said.joins++;
	memcpy(copy, payload, sizeof(copy));
	prove(b->conf.secret, PBOX_JOIN_PROOF_PREFIX, copy, sizeof(copy), PBOX_JOIN_PROOF_AT);
	/* R9.2: what is refused from here on by who knows the secret */
	b->proving = memcmp(copy + PBOX_JOIN_PROOF_AT, m.proof, PBOX_PROOF_LEN) == 0 &&
				     m.cookie == COOKIE && strcmp(m.job, b->conf.job) == 0 &&
				     !b->conf.other_secret && !b->conf.insecure
			     ? m.nonce
			     : 0;
	if (m.cookie != COOKIE)
		fake_error(b, fd, from, h, PBOX_E_COOKIE, 0, "cookie");
	else if (strcmp(m.job, b->conf.job) != 0)
		fake_error(b, fd, from, h, PBOX_E_NO_JOB, 0, "no job of that name is configured");
	else if (memcmp(copy + PBOX_JOIN_PROOF_AT, m.proof, PBOX_PROOF_LEN) != 0 &&
		 !b->conf.other_secret && !b->conf.insecure)
		fake_error(b, fd, from, h, PBOX_E_SECRET, 0, "");
	else if (m.slots != b->conf.slots ||
		 (m.can & m.needs) != ((m.slots != 0 ? 1u << PBOX_CAN_SLOTS : 0) |
					      (b->conf.plans ? 1u << PBOX_CAN_WORK : 0)))
		fake_error(b, fd, from, h, PBOX_E_BAD_REQUEST, 0, "slots");
	else if (m.workers != b->conf.workers)
		fake_error(b, fd, from, h, PBOX_E_WORKERS, b->conf.workers, "");
	else if (b->conf.ending)
		fake_error(b, fd, from, h, PBOX_E_WORKER_TAKEN, 60,
			"job 'job' is ending: its memory is being released");
	else if (!take_run(b, &m))
		fake_error(b, fd, from, h, PBOX_E_RUN_ENDED, 0,
			"the run of this worker ended 0.2 s ago: another one began on host 'gpu7'");
	else if (b->conf.full)
		fake_error(b, fd, from, h, PBOX_E_FULL, 0, "limit of jobs reached (max_jobs = 1)");
	else {
		for (i = 0; m.worker == PBOX_NO_WORKER && i < b->conf.workers; i++)
			if (!b->member[i].live || b->member[i].nonce == m.nonce)
				break;
		if (m.worker != PBOX_NO_WORKER)
			i = m.worker;
		if (i >= b->conf.workers || (b->member[i].live && b->member[i].nonce != m.nonce)) {
			fake_error(b, fd, from, h, PBOX_E_WORKER_TAKEN, 0, "");
			return;
		}
		w = &b->member[i];
		w->live = true;
		w->left = false;
		w->nonce = m.nonce;
		w->denied = 0;
		w->token = m.nonce * 31 + 7 + b->incarnation + (w->joins << 32);
		w->addr = *from;
		w->mtu = m.mtu;
		w->heard = fake_now();
		memcpy(w->host, m.host, sizeof(w->host));
		welcome(b, fd, from, h, i);
		if (b->conf.short_lived > 0) {
			b->conf.short_lived--;
			w->live = false;
		}
	}
}

/* ---- tables ---------------------------------------------------------------------------- */

static bool
mismatch(struct fake_box *b, const char *what, unsigned i, unsigned worker)
{
	if (b->mismatch[0] == 0)
		snprintf(b->mismatch, sizeof(b->mismatch), "tensor %u of worker %u differs: %s", i,
			worker, what);
	return true;
}

/** Take a page; true when it differs from what others declared. */
static bool
take_page(struct fake_box *b, struct fake_table *t, unsigned w, const struct pbox_declare *m,
	struct pbox_cursor *cur)
{
	bool any = false;

	for (unsigned i = 0; i < b->conf.workers; i++)
		any |= t->begun[i];
	if (!any) {
		t->head = *m;
		t->tensor = calloc(m->tensors + 1, sizeof(*t->tensor));
		for (unsigned i = 0; i < m->tensors; i++)
			t->tensor[i].elements = UINT64_MAX; /* not known yet */
	}
	t->begun[w] = true;
	if ((m->flags & PBOX_DECLARE_RESTORE) != 0 && !t->mapped)
		t->restorers |= 1u << w;
	if (m->tensors != t->head.tensors || m->mode != t->head.mode || m->op != t->head.op ||
		m->push_format != t->head.push_format || m->pull_format != t->head.pull_format)
		return mismatch(b, "number, mode, op or format", m->first, w);
	for (unsigned i = 0; i < m->count; i++) {
		struct pbox_tensor_entry e, *have = &t->tensor[m->first + i];

		if (pbox_declare_next(cur, &e) != 0)
			return mismatch(b, "malformed", m->first + i, w);
		if (have->elements == UINT64_MAX)
			*have = e;
		else if (have->elements != e.elements || have->group != e.group)
			return mismatch(b, "elements or group", m->first + i, w);
	}
	if (m->first == t->declared[w])
		t->declared[w] += m->count;
	return false;
}

static void
on_declare(struct fake_box *b, int fd, const struct sockaddr_in *from, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct pbox_declare m;
	struct pbox_cursor cur;
	struct pbox_declared d;
	struct fake_table *t;

	if (pbox_declare_decode(payload, h->length, &m, &cur) != 0 || m.table >= FAKE_TABLES) {
		fake_error(b, fd, from, h, PBOX_E_BAD_REQUEST, 0, "DECLARE");
		return;
	}
	b->said.flags = m.flags;
	b->said.declares++;
	if (b->running && m.flags == 0) {
		fake_error(b, fd, from, h, PBOX_E_RUNNING, 37,
			"the run of job 'job' is past round 37, and worker 1 (gpu1) lives in it");
		return;
	}
	t = &b->table[m.table];
	if (m.table >= b->tables)
		b->tables = m.table + 1;
	/* pages come in order here: a later one waits for the repetition of the earlier one */
	if (m.first > t->declared[h->worker] && m.first < m.tensors)
		return;
	if (take_page(b, t, h->worker, &m, &cur)) {
		fake_error(b, fd, from, h, PBOX_E_MISMATCH, 0, b->mismatch);
		return;
	}
	d = (struct pbox_declared){m.table, m.first, m.count};
	answer(b, fd, from, h, PBOX_DECLARED, pbox_declared_encode(payload_room(b), 64, &d));
}

static void
on_map(struct fake_box *b, int fd, const struct sockaddr_in *from, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct pbox_mapped head;
	struct pbox_not_ready n;
	struct pbox_cursor cur;
	struct fake_table *t;
	struct pbox_map m;
	uint8_t *p;

	if (pbox_map_decode(payload, h->length, &m) != 0 || m.table >= b->tables)
		return;
	t = &b->table[m.table];
	if (b->mismatch[0] != 0) {
		fake_error(b, fd, from, h, PBOX_E_MISMATCH, 0, b->mismatch);
		return;
	}
	p = payload_room(b);
	if (!complete(b, t, &n)) {
		answer(b, fd, from, h, PBOX_NOT_READY, pbox_not_ready_encode(p, 1024, &n));
		return;
	}
	if (!t->mapped) {
		fake_map(b, t);
		t->left = t->restorers != 0 ? t->n_frags : 0;
	}
	if (t->lost && (t->restorers >> h->worker & 1) == 0) {
		fake_error(b, fd, from, h, PBOX_E_LOST, 0, "nobody has all of the table");
		return;
	}
	if (t->left > 0 && (t->restorers >> h->worker & 1) == 0) {
		snprintf(n.text, sizeof(n.text), "table %u is being restored", m.table);
		answer(b, fd, from, h, PBOX_NOT_READY, pbox_not_ready_encode(p, 1024, &n));
		return;
	}
	head = (struct pbox_mapped){.table = m.table,
		.chunks = t->n_chunks,
		.first = m.first,
		.frag_elements = t->frag_elements,
		.first_chunk_id = m.table << 20};
	pbox_mapped_begin(p, b->conf.mtu - PBOX_MTU_OVERHEAD - (b->conf.auth ? PBOX_TAG_LEN : 0),
		&head, &cur);
	for (uint32_t i = m.first; i < t->n_chunks; i++) {
		struct fake_chunk *k = &t->chunk[i];

		k->e.version = t->frag[k->frag].version;
		for (uint32_t f = 1; f < k->frags; f++)
			if (t->frag[k->frag + f].version < k->e.version)
				k->e.version = t->frag[k->frag + f].version;
		if (pbox_mapped_add(p, &cur, &k->e) != 0)
			break;
	}
	answer(b, fd, from, h, PBOX_MAPPED, pbox_page_len(p, &cur));
}

/* ---- the rest -------------------------------------------------------------------------- */

static void
on_status(struct fake_box *b, int fd, const struct sockaddr_in *from, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct pbox_status_ok m = {.workers = (uint16_t)b->conf.workers, .tables = b->tables};
	struct pbox_status q;
	struct pbox_cursor cur;
	uint8_t *p = payload_room(b);

	if (pbox_status_decode(payload, h->length, &q) != 0)
		return;
	for (unsigned i = 0; i < b->conf.workers; i++)
		m.joined += b->member[i].live;
	m.first = q.first;
	b->counts.waits += (q.flags & PBOX_STATUS_WAITS) != 0 && q.round == 1;
	if (b->conf.circle) {
		m.flags = PBOX_STATUS_CIRCLE;
		snprintf(m.text, sizeof(m.text), "worker %u waits for worker 0, with 'other'",
			q.first);
	}
	pbox_status_ok_begin(p, 1024, &m, &cur);
	for (unsigned i = q.first; i < b->conf.workers; i++) {
		const struct fake_member *w = &b->member[i];
		struct pbox_member_entry e = {.worker = (uint16_t)i,
			.state = w->live   ? PBOX_MEMBER_JOINED
				 : w->left ? PBOX_MEMBER_LEFT
					   : PBOX_MEMBER_ABSENT,
			.reason = !w->live && w->left ? PBOX_LEFT_ITSELF : 0,
			.silent_ms = (uint32_t)((fake_now() - w->heard) / 1000)};

		snprintf(e.host, sizeof(e.host), "%.20s", w->host);
		if (pbox_status_ok_add(p, &cur, &e) != 0)
			break;
	}
	answer(b, fd, from, h, PBOX_STATUS_OK, pbox_page_len(p, &cur));
}

static void
on_set(struct fake_box *b, int fd, const struct sockaddr_in *from, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct pbox_set m;

	if (pbox_set_decode(payload, h->length, &m) != 0 || m.table >= b->tables)
		return;
	b->counts.sets++;
	for (unsigned i = 0; i < m.count; i++)
		if (m.param[i].id == PBOX_HYPER_LR)
			b->table[m.table].lr = m.param[i].value;
	answer(b, fd, from, h, PBOX_SET_OK, 0);
}

void
fake_control(struct fake_box *b, int fd, const struct sockaddr_in *from, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct pbox_retry r = {COOKIE, b->incarnation};

	switch (h->type) {
	case PBOX_HELLO:
		b->counts.hellos++;
		if (b->conf.forger != 0)
			forge(b, fd, from, h, 0);
		if (b->conf.version_error)
			fake_error(b, fd, from, h, PBOX_E_VERSION, 9, "");
		else if (b->conf.hello_damaged && b->hellos++ == 0)
			fake_error(b, fd, from, h, PBOX_E_VERSION, PBOX_VERSION_WIRE, "");
		else
			answer(b, fd, from, h, PBOX_RETRY,
				pbox_retry_encode(payload_room(b), 64, &r));
		break;
	case PBOX_JOIN:
		on_join(b, fd, from, h, payload);
		break;
	case PBOX_DECLARE:
		on_declare(b, fd, from, h, payload);
		break;
	case PBOX_MAP:
		on_map(b, fd, from, h, payload);
		break;
	case PBOX_STATUS:
		on_status(b, fd, from, h, payload);
		break;
	case PBOX_SET:
		on_set(b, fd, from, h, payload);
		break;
	case PBOX_PING:
		b->counts.pings++;
		memcpy(b->tx + PBOX_HDR_LEN, payload, h->length);
		answer(b, fd, from, h, PBOX_PONG, h->length);
		break;
	case PBOX_LEAVE:
		answer(b, fd, from, h, PBOX_LEFT, 0);
		b->member[h->worker].live = false;
		b->member[h->worker].left = true;
		break;
	default:
		break;
	}
}
