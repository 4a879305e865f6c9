/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What the registrar sends: answers, frames in sessions, mails to all shards. It decides nothing. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

static void
send_tagged(struct pbox_registrar *r, const struct pbox_job *job, struct pbox_send *out)
{
	if (job->auth != NULL)
		pbox_job_auth_seal(job, out->hdr.worker, &r->tag, out);
	r->conf.ops->send(r->conf.ctx, out);
}

void
registrar_send(
	struct pbox_registrar *r, const struct pbox_job *job, unsigned w, struct pbox_send *out)
{
	PBOX_ASSERT(w < job->workers && registrar_has_session(job, w));
	out->hdr.token = registrar_token(job, w);
	out->hdr.job = job->id;
	out->hdr.worker = (uint16_t)w;
	out->hdr.incarnation = r->conf.incarnation;
	out->hdr.map_epoch = job->map_epoch;
	if (out->peer == NULL)
		out->peer = &job->member[w].peer;
	send_tagged(r, job, out);
}

struct registrar_addressee
registrar_sender(const struct pbox_registrar *r, const struct pbox_frame *f)
{
	return (struct registrar_addressee){
		.peer = r->request.answer_at,
		.token = f->hdr.token,
		.request = f->hdr.chunk,
		.ts = f->hdr.ts,
		.job = f->hdr.job,
		.worker = f->hdr.worker,
		.length = f->hdr.length,
		.type = f->hdr.type,
		/* a request with a tag got here because that is right */
		.tagged = (f->hdr.flags & PBOX_F_AUTH) != 0,
	};
}

void
registrar_answer(struct pbox_registrar *r, const struct registrar_addressee *to,
	enum pbox_type type, const void *payload, size_t len)
{
	struct pbox_send out = {
		.hdr =
			{
				.type = (uint8_t)type,
				.token = to->token,
				.job = to->job,
				.worker = to->worker,
				.incarnation = r->conf.incarnation,
				.map_epoch = to->epoch != 0 ? to->epoch : PBOX_MAP_EPOCH,
				.chunk = to->request,
				.ts = to->ts,
				.length = (uint16_t)len,
			},
		.peer = &to->peer,
		.payload = len > 0 ? payload : NULL,
		.payload_crc = pbox_crc32c(0, payload, len),
	};

	PBOX_ASSERT(payload != r->scratch || len <= sizeof(r->scratch));
	if ((type == PBOX_PONG || type == PBOX_HOMES_OK || type == PBOX_BOXES_OK) &&
		r->job[to->job] != NULL)
		out.hdr.map_epoch = r->job[to->job]->map_epoch;
	if (to->tagged)
		send_tagged(r, r->job[to->job], &out);
	else
		r->conf.ops->send(r->conf.ctx, &out);
}

void
registrar_reply(
	struct pbox_registrar *r, const struct pbox_frame *f, enum pbox_type type, size_t len)
{
	const struct registrar_addressee to = registrar_sender(r, f);

	registrar_answer(r, &to, type, r->scratch, len);
}

void
registrar_refuse_text(struct pbox_registrar *r, const struct registrar_addressee *to,
	enum pbox_errcode code, uint32_t detail, const char *text)
{
	struct pbox_error_msg m = {.code = (uint16_t)code, .type = to->type, .detail = detail};
	const struct pbox_error_tail tail = {r->request.nonce, to->request};
	size_t cap = sizeof(r->scratch), len;

	/* a request without a session may be forged: no answer is longer than it */
	if ((to->type == PBOX_HELLO || to->type == PBOX_JOIN || to->token == 0) && cap > to->length)
		cap = to->length;
	snprintf(m.text, sizeof(m.text), "%s", text);
	pbox_fail(&r->request.refusal, (int)code, "%.380s", m.text);
	PBOX_ASSERT(code != 0);
	if (!r->request.uncounted)
		count_control(r, PBOX_RS_REFUSED);
	if (r->request.prover == NULL) {
		len = pbox_error_encode(r->scratch, cap, &m);
	} else {
		len = pbox_error_encode(r->scratch, cap - PBOX_ERROR_TAIL_LEN, &m);
		len = pbox_error_tail_encode(r->scratch, len, &tail);
		pbox_proof(r->scratch + PBOX_ERROR_PROOF_AT(len), r->request.prover->secret,
			r->request.prover->secret_len, PBOX_ERROR_PROOF_PREFIX, r->scratch, len,
			PBOX_ERROR_PROOF_AT(len));
	}
	registrar_answer(r, to, PBOX_ERROR, r->scratch, len);
}

bool
registrar_refuse(struct pbox_registrar *r, const struct pbox_frame *f, enum pbox_errcode code,
	uint32_t detail, const char *fmt, ...)
{
	const struct registrar_addressee to = registrar_sender(r, f);
	char text[sizeof(((struct pbox_error_msg *)NULL)->text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	registrar_refuse_text(r, &to, code, detail, text);
	return false;
}

void
registrar_mail(struct pbox_registrar *r, struct pbox_mail *m)
{
#define MOST(symbol, most) [PBOX_MAIL_##symbol] = (most),
	static const uint8_t most[] = {PBOX_MAILS(MOST)};
#undef MOST
	struct pbox_shard_inbox *in = pbox_shard_inbox(m->job);

	PBOX_ASSERT(in->mails[m->kind] < most[m->kind]);
	in->mails[m->kind]++;
	m->shard = in->shard;
	r->conf.ops->post(r->conf.ctx, m);
}

void
registrar_mail_latest(struct pbox_registrar *r, struct pbox_shard_job *j, enum pbox_mail_kind kind)
{
	const struct pbox_job *job = pbox_shard_job_of(j);
	struct pbox_shard_inbox *in = pbox_shard_inbox(j);

	in->mail_again &= (uint16_t) ~(1u << kind);
	if (in->mails[kind] > 0) {
		in->mail_again |= (uint16_t)(1u << kind);
		return;
	}
	if (kind == PBOX_MAIL_QUOTA)
		in->bounds = job->conf->bounds;
	if (kind == PBOX_MAIL_OWNERS) {
		in->owners.edition = job->owners.edition;
		in->owners.from = job->owners.from;
		in->owners.plan = job->owners.plan;
		in->owners.only = job->owners.only;
		for (unsigned i = 0; i < PBOX_OWNER_MAPS; i++)
			memcpy(in->owners.map[i], job->owners.map[i],
				job->slots * sizeof(*job->owners.map[i]));
	}
	for (unsigned w = 0; kind == PBOX_MAIL_MEMBERS && w < job->workers; w++)
		if (job->member[w].removed)
			pbox_bit_clear(in->members, w);
		else
			pbox_bit_set(in->members, w);
	for (unsigned w = 0; kind == PBOX_MAIL_MEMBERS && w < job->workers; w++)
		if (job->member[w].state == PBOX_MEMBER_LEFT &&
			job->member[w].left == PBOX_LEFT_ITSELF)
			pbox_bit_set(in->left, w);
		else
			pbox_bit_clear(in->left, w);
	registrar_mail(r, &(struct pbox_mail){.kind = kind, .job = j});
}

void
registrar_post(struct pbox_registrar *r, struct pbox_job *job, enum pbox_mail_kind kind)
{
	for (unsigned i = 0; i < r->conf.n_shards; i++)
		registrar_mail_latest(r, job->shard[i], kind);
}
