/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include <pbox_proof.h>

#include "worker_impl.h"

/*
 * Refusals in the handshake: ERROR to a HELLO or JOIN. One that proves the job's secret (R9.2) is the box's. Any other
 * may be from an attacker who sees our requests: it ends the join only if nothing else is heard (R9.3).
 */

#define TAKEN_INTERVAL (250 * NS_PER_MS)
#define TAKEN_MIN      50 /* ms: what the box may say instead */
#define TAKEN_MAX      2000
#define DOUBT_FIRST    (250 * NS_PER_MS)
#define DOUBT_LATER    (500 * NS_PER_MS)
#define DOUBTS         3

static int
code_of(unsigned error)
{
	switch (error) {
	case PBOX_E_VERSION:
	case PBOX_E_UNSUPPORTED:
		return PBOX_C_VERSION;
	case PBOX_E_NO_JOB:
		return PBOX_C_NO_JOB;
	case PBOX_E_SECRET:
		return PBOX_C_SECRET;
	case PBOX_E_WORKERS:
	case PBOX_E_MISMATCH:
	case PBOX_E_SET_CONFLICT:
		return PBOX_C_MISMATCH;
	case PBOX_E_SESSION:
	case PBOX_E_SHUTDOWN:
	case PBOX_E_LOST:
		return PBOX_C_LOST;
	case PBOX_E_NO_MEMORY:
		return PBOX_C_MEMORY;
	case PBOX_E_RUNNING:
		return PBOX_C_RUNNING;
	case PBOX_E_RUN_ENDED:
		return PBOX_C_RUN_ENDED;
	default:
		return PBOX_C_REFUSED;
	}
}

int
refusal_error(struct pbox_client_error *err, const struct pbox_error_msg *m, const char *what)
{
	int code = code_of(m->code);
	char text[sizeof(m->text)];

	snprintf(text, sizeof(text), "%s", m->text);
	pbox_text_tame(text);
	if (strncmp(text, what, strlen(what)) == 0) /* the box has named it already */
		return pbox_client_fail(err, code, "%s", text);
	if (text[0] != 0)
		return pbox_client_fail(err, code, "%s: %s", what, text);
	return pbox_client_fail(err, code, "%s: the box answered %s (%u)", what,
		pbox_errcode_name(m->code), m->code);
}

/** An error that may pass: ask again, ever more rarely. */
static void
put_off(struct join *j, const struct pbox_error_msg *m)
{
	uint64_t wait = TAKEN_INTERVAL;

	j->refused = *m;
	pbox_text_tame(j->refused.text);
	if (j->renew) /* the request was answered before: one answer moves the next */
		return;
	j->renew = true;
	/* this worker was killed and started again: the box finds that out, and says when to ask (R4.6) */
	if (m->code == PBOX_E_WORKER_TAKEN && m->detail >= TAKEN_MIN && m->detail <= TAKEN_MAX)
		wait = m->detail * NS_PER_MS;
	if (m->code != PBOX_E_WORKER_TAKEN) {
		wait = j->interval > TAKEN_INTERVAL ? j->interval : TAKEN_INTERVAL;
		j->interval = wait * 2 < JOIN_INTERVAL_MAX ? wait * 2 : JOIN_INTERVAL_MAX;
	}
	j->next_tx = j->s->w->now + wait;
}

/** R9.2: the sender knows the job's secret, and has seen this JOIN. */
static bool
refusal_is_proven(const struct join *j, const struct rx_frame *f)
{
	const char *secret = j->s->w->secret;
	struct pbox_error_tail t;
	size_t end = pbox_error_tail_decode(f->payload, f->hdr.length, &t);

	return secret[0] != 0 && end != 0 && t.nonce == j->nonce && join_asked(j, t.request) &&
	       pbox_proof_good(secret, strlen(secret), PBOX_ERROR_PROOF_PREFIX, f->payload, end,
		       PBOX_ERROR_PROOF_AT(end));
}

bool
refusal_is_provable(const struct join *j)
{
	return j->s->w->secret[0] != 0 && (j->s->proven || j->proven);
}

/** Is it worth to ask again? A session that continues an earlier one has time. */
static bool
may_pass(const struct join *j, unsigned code)
{
	if (code == PBOX_E_WORKER_TAKEN || code == PBOX_E_ELSEWHERE)
		return true;
	return j->patient && code != PBOX_E_NO_JOB && code != PBOX_E_SECRET &&
	       code != PBOX_E_WORKERS && code != PBOX_E_MISMATCH && code != PBOX_E_VERSION &&
	       code != PBOX_E_RUN_ENDED && code != PBOX_E_UNSUPPORTED;
}

void
refusal_doubtful(struct join *j, const struct rx_frame *f, unsigned kind,
	const struct pbox_client_error *why)
{
	struct doubt *d = &j->doubt;

	if (refusal_is_provable(j) || f->hdr.chunk != j->id)
		return;
	if (j->renew) { /* a second refusal of the same request: one of them is not the box's */
		if (d->kind != kind)
			d->n = 0;
		return;
	}
	d->n = d->n > 0 && d->kind == kind ? d->n + 1 : 1;
	d->kind = kind;
	d->why = *why;
	j->renew = true;
	j->interval = JOIN_INTERVAL;
	j->next_tx = d->until = j->s->w->now + (d->n == 1 ? DOUBT_FIRST : DOUBT_LATER);
}

bool
refusal_holds(const struct join *j)
{
	return j->doubt.n >= DOUBTS && j->s->w->now >= j->doubt.until;
}

int
refusal_verdict(struct join *j)
{
	return pbox_client_fail(&j->err, j->doubt.why.code, "%s", j->doubt.why.text);
}

/** A text for the refusal, where the box gives none. */
static int
in_words(const struct join *j, struct pbox_error_msg *m, struct pbox_client_error *err)
{
	struct session *s = j->s;
	char what[192];

	snprintf(what, sizeof(what), "joining job '%s' at %s", s->w->job, s->name);
	if (m->code == PBOX_E_VERSION && m->text[0] == 0)
		snprintf(m->text, sizeof(m->text),
			"the box speaks protocol version %u, this library %u: install the release that fits",
			m->detail, PBOX_VERSION_WIRE);
	else if (m->code == PBOX_E_SECRET && m->text[0] == 0)
		snprintf(m->text, sizeof(m->text),
			"the secret is wrong: compare it with the job's in the box's configuration");
	else if (m->code == PBOX_E_WORKERS && m->text[0] == 0)
		snprintf(m->text, sizeof(m->text), "this worker says %u workers, the others say %u",
			s->w->conf.workers, m->detail);
	return refusal_error(err, m, what);
}

/** The box takes none of those that were tried. */
static void
drop_cookies(struct join *j)
{
	if (j->tried == 0)
		return;
	j->cookies -= j->tried;
	memmove(j->cookie, j->cookie + j->tried, j->cookies * sizeof(j->cookie[0]));
	j->tried = 0;
	if (j->cookies == 0)
		j->next_tx = j->s->w->now + JOIN_INTERVAL;
}

void
refusal_frame(struct join *j, const struct rx_frame *f)
{
	struct pbox_client_error why;
	struct pbox_error_msg m;
	bool proven;

	if (pbox_error_decode(f->payload, f->hdr.length, &m) != 0)
		return;
	if (m.code ==
		PBOX_E_COOKIE) { /* a box that refuses the cookie has not looked at the rest */
		j->doubt.n = 0;
		drop_cookies(j);
		return;
	}
	if (m.code == PBOX_E_VERSION && m.detail == PBOX_VERSION_WIRE)
		return; /* it speaks our version: the HELLO was damaged on its way, and is repeated */
	proven = refusal_is_proven(j, f);
	if (proven) {
		j->proven = true;
		j->doubt.n = 0;
	}
	if (m.code == PBOX_E_ELSEWHERE && (proven || j->s->w->secret[0] == 0) &&
		decider_refer(j, m.detail))
		return;
	if (may_pass(j, m.code) || (!proven && refusal_is_provable(j))) {
		put_off(j, &m);
	} else if (proven) {
		join_finish(j, in_words(j, &m, &j->err));
	} else {
		in_words(j, &m, &why);
		refusal_doubtful(j, f, m.code, &why);
	}
}
