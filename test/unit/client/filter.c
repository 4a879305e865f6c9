/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include <pbox_proof.h>

#include "box_impl.h"

/*
 * What tests make of the frames between workers and the engine: two tables of rules, one for each direction. A rule is for
 * a set of frame types; what it does, and whether it does it now, its function says.
 */

#define FORGED_RETRIES 20
#define STALE_US       1000000
#define BIT(type)      (UINT64_C(1) << (type))
#define CONTRIBUTION   (BIT(PBOX_PUSH) | BIT(PBOX_PUSHPULL))

/* ---- what is said in the box's name ---------------------------------------------------------------- */

static void
answer(struct box *b, const struct box_in *in, uint8_t type, const void *payload, size_t len)
{
	const struct pbox_hdr *q = &in->f->hdr;
	struct pbox_hdr h = {.type = type,
		.token = q->token,
		.job = q->job,
		.worker = q->worker,
		.incarnation = b->incarnation,
		.chunk = q->chunk,
		.length = (uint16_t)len,
		.ts = q->ts};

	box_say(b, in->endpoint, in->from, &h, payload);
}

/** The length with the proof. */
static size_t
prove(uint8_t *payload, size_t len, const struct pbox_error_tail *t, const char *secret)
{
	size_t end = pbox_error_tail_encode(payload, len, t);

	pbox_proof(payload + PBOX_ERROR_PROOF_AT(end), secret, strlen(secret),
		PBOX_ERROR_PROOF_PREFIX, payload, end, PBOX_ERROR_PROOF_AT(end));
	return end;
}

/** @p secret proves it to the JOIN with that nonce (R9.2); NULL: nobody does. */
static void
refuse(struct box *b, const struct box_in *in, unsigned code, uint32_t detail, const char *text,
	uint64_t nonce, const char *secret)
{
	struct pbox_error_msg m = {
		.code = (uint16_t)code, .type = in->f->hdr.type, .detail = detail};
	const struct pbox_error_tail t = {nonce, in->f->hdr.chunk};
	uint8_t payload[1024];
	size_t len;

	snprintf(m.text, sizeof(m.text), "%s", text);
	len = pbox_error_encode(payload, PBOX_JOIN_LEN - PBOX_ERROR_TAIL_LEN, &m);
	if (secret != NULL)
		len = prove(payload, len, &t, secret);
	answer(b, in, PBOX_ERROR, payload, len);
}

/** Who sees the requests, and is faster than the box: it is not there, and has another secret. */
static void
forge(struct box *b, const struct box_in *in, uint64_t nonce)
{
	const struct pbox_welcome m = {.token = 9,
		.nonce = nonce,
		.workers = (uint16_t)b->conf.workers,
		.endpoints = 1,
		.incarnation = b->incarnation,
		.lease_ms = 1000,
		.window = 1,
		.number = 1};
	uint8_t payload[2048];

	if (in->f->hdr.type == PBOX_JOIN) {
		refuse(b, in, b->conf.forger, 0, "go away", nonce, NULL);
		answer(b, in, PBOX_WELCOME, payload,
			pbox_welcome_encode(payload, sizeof(payload), &m));
		return;
	}
	for (uint64_t i = 1; i <= FORGED_RETRIES; i++) {
		const struct pbox_retry r = {0xC00C1E + i, b->incarnation};

		answer(b, in, PBOX_RETRY, payload, pbox_retry_encode(payload, 64, &r));
	}
}

/** About a fragment. */
static void
about(struct box *b, const struct box_in *in, uint8_t type, uint16_t flags, uint32_t ts,
	uint16_t aux)
{
	const struct pbox_hdr *q = &in->f->hdr;
	struct pbox_hdr h = *q;

	h.type = type;
	h.flags = flags;
	h.length = 0;
	h.format = 0;
	h.weight = b->conf.no_room ? 0 : UINT32_MAX; /* who is missing */
	h.ts = ts;
	h.aux = aux;
	box_say(b, in->endpoint, in->from, &h, NULL);
}

/* ---- what comes ------------------------------------------------------------------------------------- */

static bool
on_hello(struct box *b, const struct box_in *in, const uint8_t *payload)
{
	(void)payload;
	b->counts.hellos++;
	if (b->conf.forger != 0)
		forge(b, in, 0);
	if (b->conf.version_error || (b->conf.hello_damaged && b->hellos++ == 0)) {
		refuse(b, in, PBOX_E_VERSION, b->conf.version_error ? 9 : PBOX_VERSION_WIRE, "", 0,
			NULL);
		return true;
	}
	return false;
}

static bool
on_join(struct box *b, const struct box_in *in, const uint8_t *payload)
{
	const struct pbox_hdr *h = &in->f->hdr;
	struct pbox_join m;

	if (h->length < PBOX_JOIN_LEN || pbox_join_decode(payload, h->length, &m) != 0 ||
		strcmp(m.host, BOX_ANOTHER) == 0)
		return false;
	b->said.asked += h->chunk != b->last_join;
	b->last_join = h->chunk;
	if (b->refusals > 0) {
		b->refusals--;
		refuse(b, in, b->refusal, 0, "go away", m.nonce, b->prover);
		return true;
	}
	if (b->conf.forger != 0)
		forge(b, in, m.nonce);
	memcpy(b->said.run, m.run, sizeof(m.run));
	b->said.number = m.number;
	b->said.joins++;
	if (b->conf.ending)
		refuse(b, in, PBOX_E_WORKER_TAKEN, 60,
			"job 'job' is ending: its memory is being released", m.nonce,
			b->conf.secret);
	else if (b->conf.full)
		refuse(b, in, PBOX_E_FULL, 0, "limit of jobs reached (max_jobs = 1)", m.nonce,
			b->conf.secret);
	return b->conf.ending || b->conf.full;
}

static bool
on_declare(struct box *b, const struct box_in *in, const uint8_t *payload)
{
	struct pbox_declare m;
	struct pbox_cursor cur;

	if (pbox_declare_decode(payload, in->f->hdr.length, &m, &cur) != 0)
		return false;
	if (b->after_declares > 0 && --b->after_declares == 0) {
		b->restart_then = true;
		return true;
	}
	b->said.flags = m.flags;
	b->said.declares++;
	if (!b->running || m.flags != 0)
		return false;
	refuse(b, in, PBOX_E_RUNNING, 37,
		"the run of job 'job' is past round 37, and worker 1 (gpu1) lives in it", 0, NULL);
	return true;
}

static bool
on_status(struct box *b, const struct box_in *in, const uint8_t *payload)
{
	struct pbox_status q;

	if (pbox_status_decode(payload, in->f->hdr.length, &q) == 0)
		b->counts.waits += (q.flags & PBOX_STATUS_WAITS) != 0 && q.round == 1;
	return false;
}

static bool
on_ping(struct box *b, const struct box_in *in, const uint8_t *payload)
{
	const struct pbox_hdr *h = &in->f->hdr;
	struct box_member *m = &b->member[h->worker % BOX_WORKERS];

	(void)payload;
	if (m->token != h->token)
		return false;
	if (b->conf.denier > 0) {
		about(b, in, PBOX_ERROR, 0, h->ts, PBOX_E_SESSION);
		if (++m->denied < b->conf.denier)
			return true;
	}
	if ((h->round | h->base) != 0) {
		b->counts.echoes++;
		b->counts.echo = (uint64_t)h->base << 32 | h->round;
		b->counts.echo_at = in->endpoint;
	}
	b->counts.pings += in->endpoint == 0;
	return false;
}

static bool
on_leave(struct box *b, const struct box_in *in, const uint8_t *payload)
{
	struct box_member *m = &b->member[in->f->hdr.worker % BOX_WORKERS];

	(void)payload;
	if (m->token == in->f->hdr.token)
		m->live = false;
	return false;
}

static bool
on_restore(struct box *b, const struct box_in *in, const uint8_t *payload)
{
	(void)payload;
	b->counts.restores++;
	b->counts.given += in->f->hdr.length > 0;
	if (b->after_restores == 0 || --b->after_restores > 0)
		return false;
	b->restart_then = true;
	return true;
}

static struct box_damaged *
damaged(struct box *b, const struct pbox_hdr *h)
{
	for (unsigned i = 0; i < BOX_DAMAGED; i++) {
		struct box_damaged *d = &b->damaged[i];

		if ((d->is || d->told) && d->worker == h->worker && d->chunk == h->chunk &&
			d->frag == h->frag && d->round == h->round)
			return d;
	}
	return NULL;
}

/** Each so-manieth PUSHPULL does not come; a repetition in time takes its place. */
static bool
damage(struct box *b, const struct box_in *in)
{
	const struct pbox_hdr *h = &in->f->hdr;
	struct box_damaged *d = damaged(b, h);

	if (d != NULL)
		*d = (struct box_damaged){0};
	if ((h->flags & PBOX_F_RETX) != 0 || ++b->contributions % b->conf.take_back != 0)
		return false;
	for (unsigned i = 0; i < BOX_DAMAGED; i++)
		if (!b->damaged[i].is) {
			b->damaged[i] = (struct box_damaged){.is = true,
				.worker = h->worker,
				.frag = h->frag,
				.chunk = h->chunk,
				.round = h->round,
				.ts = h->ts};
			return true;
		}
	return false;
}

static bool
on_contribution(struct box *b, const struct box_in *in, const uint8_t *payload)
{
	const struct pbox_hdr *h = &in->f->hdr;

	(void)payload;
	if (b->conf.stale)
		about(b, in, PBOX_ERROR, 0, h->ts - STALE_US, PBOX_E_NO_LR);
	if (b->conf.no_room && h->worker == 0) {
		about(b, in, PBOX_WAIT, 0, h->ts, 1);
		return true;
	}
	return b->conf.take_back != 0 && h->type == PBOX_PUSHPULL && damage(b, in);
}

/** The worker asks about a contribution that is damaged, or was. */
static bool
on_pull(struct box *b, const struct box_in *in, const uint8_t *payload)
{
	const struct pbox_hdr *h = &in->f->hdr;
	struct box_damaged *d = damaged(b, h);
	uint32_t now = (uint32_t)box_now(b);

	(void)payload;
	b->latest = (h->flags & PBOX_F_LATEST) != 0;
	if (d == NULL)
		return false;
	if (d->told) {
		b->counts.asked_after += (int32_t)(now - d->told_us) >= 10000;
		return false;
	}
	about(b, in, PBOX_WAIT, PBOX_F_HAVE, h->ts, 0);
	about(b, in, PBOX_WAIT, 0, d->ts ^ (b->conf.take_back_ts ? 1u << 20 : 0), 0);
	d->is = false;
	d->told = true;
	d->told_us = now;
	b->counts.taken_back++;
	return true;
}

/** INIT in place of what is there is lost at first, and what seems to be its answer is that to an earlier one. */
static bool
on_init(struct box *b, const struct box_in *in, const uint8_t *payload)
{
	const struct pbox_hdr *h = &in->f->hdr;

	(void)payload;
	if (!b->conf.stale || (h->flags & PBOX_F_LATEST) == 0 || (h->flags & PBOX_F_RETX) != 0)
		return false;
	about(b, in, PBOX_INIT_OK, 0, h->ts - STALE_US, h->aux);
	return true;
}

static const struct {
	uint64_t types;
	bool (*rule)(struct box *b, const struct box_in *in, const uint8_t *payload);
} rules_in[] = {
	{BIT(PBOX_HELLO), on_hello},
	{BIT(PBOX_JOIN), on_join},
	{BIT(PBOX_DECLARE), on_declare},
	{BIT(PBOX_STATUS), on_status},
	{BIT(PBOX_PING), on_ping},
	{BIT(PBOX_LEAVE), on_leave},
	{BIT(PBOX_RESTORE), on_restore},
	{CONTRIBUTION, on_contribution},
	{BIT(PBOX_PULL), on_pull},
	{BIT(PBOX_INIT), on_init},
};

bool
filter_in(struct box *b, const struct box_in *in, const uint8_t *payload)
{
	if (b->restart_then) /* of a datagram of the box that is to go */
		return true;
	b->latest = false;
	for (unsigned i = 0; i < sizeof(rules_in) / sizeof(rules_in[0]); i++)
		if ((rules_in[i].types & BIT(in->f->hdr.type)) != 0 &&
			rules_in[i].rule(b, in, payload))
			return true;
	return false;
}

void
filter_later(struct box *b)
{
	if (b->restart_then)
		engine_restart(b);
	else if (b->sessions_end)
		engine_leases_end(b, false);
	b->restart_then = b->sessions_end = false;
}

/* ---- what the engine sends --------------------------------------------------------------------------- */

/** What a box says of itself that is another one than the engine; whose keys depend on it, it must be left as it is. */
static void
welcome_changed(struct box *b, struct box_out *o, struct pbox_welcome *m)
{
	const char *secret = b->conf.other_secret ? "other" : b->conf.secret;
	uint8_t *payload = o->frame + PBOX_HDR_LEN;
	size_t len;

	if (b->conf.window != 0 && b->conf.window < m->window)
		m->window = (uint16_t)b->conf.window;
	if (b->conf.mtu != 0)
		m->mtu = (uint16_t)b->conf.mtu;
	if (b->conf.no_slots)
		m->flags &= ~(1u << PBOX_CAN_SLOTS);
	m->number += b->misnumber;
	len = pbox_welcome_encode(payload, 2048, m) - (b->conf.older ? 8 : 0);
	memset(payload + PBOX_WELCOME_PROOF_AT, 0, PBOX_PROOF_LEN);
	pbox_proof(payload + PBOX_WELCOME_PROOF_AT, secret, strlen(secret),
		PBOX_WELCOME_PROOF_PREFIX, payload, len, PBOX_WELCOME_PROOF_AT);
	o->h.length = (uint16_t)len;
}

static bool
out_welcome(struct box *b, struct box_out *o)
{
	struct box_member *w;
	struct pbox_welcome m;

	if (pbox_welcome_decode(o->frame + PBOX_HDR_LEN, o->h.length, &m) != 0)
		return false;
	w = &b->member[m.worker % BOX_WORKERS];
	*w = (struct box_member){.live = true,
		.denied = w->token == m.token ? w->denied : 0,
		.job = m.job,
		.token = m.token,
		.addr = *o->to};
	if (b->conf.auth) {
		pbox_auth_job_destroy(b->auth);
		b->auth = pbox_auth_job_create(
			NULL, b->conf.secret, strlen(b->conf.secret), b->incarnation, m.job);
		pbox_auth_keys(&w->keys, b->conf.secret, strlen(b->conf.secret), &m);
	} else {
		welcome_changed(b, o, &m);
	}
	if (b->conf.short_lived > 0) {
		b->conf.short_lived--;
		b->sessions_end = true;
	}
	return false;
}

/** A box that says no more than the code. */
static bool
out_error(struct box *b, struct box_out *o)
{
	uint8_t *payload = o->frame + PBOX_HDR_LEN;
	struct pbox_error_tail t;
	struct pbox_error_msg m;
	size_t len, end;

	if (!b->conf.terse || pbox_error_decode(payload, o->h.length, &m) != 0)
		return false;
	end = pbox_error_tail_decode(payload, o->h.length, &t);
	m.text[0] = 0;
	len = pbox_error_encode(payload, 1024, &m);
	o->h.length = (uint16_t)(end != 0 ? prove(payload, len, &t, b->conf.secret) : len);
	return false;
}

static bool
out_status(struct box *b, struct box_out *o)
{
	struct pbox_member_entry e[BOX_WORKERS];
	struct pbox_status_ok m;
	struct pbox_cursor cur;
	unsigned n = 0;

	if (!b->conf.circle ||
		pbox_status_ok_decode(o->frame + PBOX_HDR_LEN, o->h.length, &m, &cur) != 0)
		return false;
	while (n < BOX_WORKERS && pbox_status_ok_next(&cur, &e[n]) == 0)
		n++;
	m.flags = PBOX_STATUS_CIRCLE;
	snprintf(m.text, sizeof(m.text), "worker %u waits for worker 0, with 'other'", m.first);
	pbox_status_ok_begin(o->frame + PBOX_HDR_LEN, 1400, &m, &cur);
	for (unsigned i = 0; i < n; i++)
		pbox_status_ok_add(o->frame + PBOX_HDR_LEN, &cur, &e[i]);
	o->h.length = (uint16_t)pbox_page_len(o->frame + PBOX_HDR_LEN, &cur);
	return false;
}

static void
invert(struct box_out *o)
{
	for (size_t i = 0; i < o->h.length; i++)
		o->frame[PBOX_HDR_LEN + i] ^= 0x55;
}

/** The same of a second ago, with other elements. */
static void
stale(struct box *b, struct box_out *o)
{
	struct pbox_hdr h = o->h;

	h.ts -= STALE_US;
	if (h.type == PBOX_RESULT) {
		h.round--;
		h.base--;
	}
	invert(o);
	box_put(b, o->endpoint, o->to, o->frame, pbox_frame_seal(o->frame, &h));
	invert(o);
}

/** Somebody sends a result before the box does: with another element and a wrong CRC or token, or half of it. */
static void
shadow(struct box *b, struct box_out *o)
{
	uint8_t *element = o->frame + PBOX_HDR_LEN + o->h.length / 2;
	struct pbox_hdr forged = o->h;
	size_t len = pbox_frame_seal(o->frame, &forged);

	*element ^= 0x40;
	box_put(b, o->endpoint, o->to, o->frame, len);
	forged.token ^= 1;
	box_put(b, o->endpoint, o->to, o->frame, pbox_frame_seal(o->frame, &forged));
	*element ^= 0x40;
	forged = o->h;
	forged.length /= 2;
	box_put(b, o->endpoint, o->to, o->frame, pbox_frame_seal(o->frame, &forged));
}

static bool
out_result(struct box *b, struct box_out *o)
{
	if (b->conf.stale && b->latest)
		stale(b, o);
	if (b->conf.shadows && o->h.length > 0)
		shadow(b, o);
	return false;
}

static bool
out_fetched(struct box *b, struct box_out *o)
{
	if (b->conf.stale)
		stale(b, o);
	return false;
}

static bool
out_restored(struct box *b, struct box_out *o)
{
	b->counts.gone += o->h.aux == PBOX_RESTORE_LOST;
	return false;
}

static const struct {
	uint64_t types;
	bool (*rule)(struct box *b, struct box_out *o);
} rules_out[] = {
	{BIT(PBOX_WELCOME), out_welcome},
	{BIT(PBOX_ERROR), out_error},
	{BIT(PBOX_STATUS_OK), out_status},
	{BIT(PBOX_RESULT), out_result},
	{BIT(PBOX_FETCHED), out_fetched},
	{BIT(PBOX_RESTORE_OK), out_restored},
};

bool
filter_out(struct box *b, struct box_out *o)
{
	if (b->restart_then)
		return true;
	for (unsigned i = 0; i < sizeof(rules_out) / sizeof(rules_out[0]); i++)
		if ((rules_out[i].types & BIT(o->h.type)) != 0 && rules_out[i].rule(b, o))
			return true;
	return false;
}
