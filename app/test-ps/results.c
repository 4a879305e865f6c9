/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What comes back: results, each compared with what it must be, and the box's word on what is missing. */

#include <stdio.h>
#include <string.h>

#include "rounds.h"

/* What an answer is about; false: nothing that is under way. */
static bool
results_find(struct lane *l, unsigned worker, uint32_t chunk, uint32_t frag, uint32_t round,
	struct answer *a)
{
	const struct plan *p = &l->t->plan;
	const struct stream *x;
	uint32_t c = chunk - p->first_chunk;

	if (c >= p->chunks || l->stream == NULL)
		return false;
	a->i = p->chunk_first[c] + frag;
	if (a->i >= p->n || p->f[a->i].chunk != chunk)
		return false;
	a->e = p->f[a->i].endpoint;
	a->s = (l->t->lanes > 1 ? worker / l->t->lanes : worker) * p->endpoints + a->e;
	x = &l->stream[a->s];
	a->position =
		(uint64_t)(round - 1 - p->round) * fragments_at(p, a->e) + (a->i - p->first[a->e]);
	if (a->position - x->oldest >= x->next - x->oldest)
		return false;
	a->flight = lane_flight_of(l, a->s, a->position);
	return a->flight->state != FLIGHT_DONE;
}

static void
sample(struct lane *l, struct path *p, uint32_t ts, uint32_t held)
{
	uint32_t rtt = (uint32_t)l->now - ts - held, dev;

	if (rtt > 60 * US_SECOND) /* held is rounded up */
		rtt = 0;
	p->rtt_least = RTE_MIN(p->rtt_least, rtt);
	p->rtt_min = RTE_MIN(p->rtt_min, rtt);
	if (p->srtt == 0) {
		p->srtt = rtt;
		p->rttvar = rtt / 2;
	}
	dev = rtt > p->srtt ? rtt - p->srtt : p->srtt - rtt;
	p->rttvar = p->rttvar - p->rttvar / 4 + dev / 4;
	p->srtt = p->srtt - p->srtt / 8 + rtt / 8;
	if (l->now - p->peak_us > PBOX_RECOVERY_PEAK * US_MS) {
		p->peak -= p->peak / 8;
		p->peak_us = l->now;
	}
	if (rtt > p->peak) {
		p->peak = rtt;
		p->peak_us = l->now;
	}
}

static void
results_lost(struct lane *l, unsigned e)
{
	l->path[e].lost++;
	l->path[e].lossy_us = l->now + PBOX_RECOVERY_LOSSY * US_MS;
	if (l->path[e].thresh > EVIDENCE)
		l->path[e].thresh--;
}

static void
asked_too_early(struct path *p)
{
	if (p->thresh < p->window / 2)
		p->thresh++;
}

/* A worker's result is complete: its round may be. */
static void
land(struct lane *l, const struct answer *a)
{
	const struct plan *p = &l->t->plan;
	struct stream *x = &l->stream[a->s];
	unsigned k = x->k;

	flight_enter(x, a->flight, FLIGHT_DONE);
	x->quiet_us = (uint32_t)l->now;
	if (a->position > x->newest)
		x->newest = a->position;
	while (x->oldest != x->next && lane_flight_of(l, a->s, x->oldest)->state == FLIGHT_DONE)
		x->oldest++;
	timers_evidence(l, a->s);
	if (--l->left_of_round[k] == 0) {
		l->left_of_round[k] = p->n;
		l->round_of[k]++;
		l->start_us[k] = l->now + l->slowest_us[k];
		lane_count(l, LS_ROUNDS, 1);
	}
	if (!x->queued && rounds_may_send(l, a->s))
		rounds_ready(l, a->s);
}

enum verdict { RIGHT, WRONG, DAMAGED, FORGED };

/* The payload is what it must be, and CRC and tag say so too; or it was damaged on its way, or the tag is
 * none of the box: both are as if it had not come. */
static enum verdict
judge(struct lane *l, const struct result *r, const uint8_t *ahead)
{
	const struct testps *t = l->t;
	const uint8_t *head = r->head;
	uint32_t sum = t->workers * (t->workers + 1) / 2, crc = pbox_ld32(head + PBOX_AT_CRC);

	/* as fast as can be: nobody reads the payload; what the port lets pass is believed */
	if (t->opt.no_check && t->auth == NULL)
		return RIGHT;
	if (r->intact && t->data.same(r->payload, r->want.payload, r->length, ahead)) {
		if (!auth_tag_good(l, r->worker, head, r->payload, r->length, r->want.digest))
			return FORGED;
		lane_count(l, LS_CHECKED, 1);
		return t->opt.reflected || (pbox_ld16(head + PBOX_AT_AUX) == t->workers &&
						   pbox_ld32(head + PBOX_AT_WEIGHT) == sum)
			       ? RIGHT
			       : WRONG;
	}
	if (pbox_crc32c(pbox_crc32c(0, r->payload, r->length), head, PBOX_AT_CRC) != crc)
		return DAMAGED;
	if (!auth_tag_good(l, r->worker, head, r->payload, r->length, NULL))
		return FORGED;
	return t->opt.no_check ? RIGHT : WRONG;
}

static void
results_finish(struct lane *l, const struct result *r, const uint8_t *ahead)
{
	const struct answer *a = &r->a;
	const uint8_t *head = r->head;
	struct flight *flight = a->flight;
	enum verdict verdict;
	uint32_t ts = pbox_ld32(head + PBOX_AT_TS);

	if (flight->state == FLIGHT_DONE) { /* twice in a burst */
		lane_count(l, LS_DUPLICATES, 1);
		return;
	}
	verdict = judge(l, r, ahead);
	if (verdict == DAMAGED || verdict == FORGED) { /* it is asked for again */
		lane_count(l, verdict == FORGED ? LS_DROP_AUTH : LS_DROP_FRAME, 1);
		return;
	}
	if (verdict == WRONG) {
		if (l->stats[LS_WRONG] == 0)
			snprintf(l->err.text, sizeof(l->err.text),
				"worker %u, round %u, fragment %u of chunk %u: not the sum",
				r->worker, pbox_ld32(head + PBOX_AT_ROUND),
				pbox_ld16(head + PBOX_AT_FRAG), pbox_ld32(head + PBOX_AT_CHUNK));
		lane_count(l, LS_WRONG, 1);
	}
	if (flight->state == FLIGHT_PROBED && ts == flight->sent) {
		lane_count(l, LS_LOST_RESULTS, 1);
		results_lost(l, a->e);
	} else if (flight->state == FLIGHT_PROBED) {
		asked_too_early(&l->path[a->e]);
	}
	l->path[a->e].answered++;
	l->path[a->e].marked += r->ce || (pbox_ld16(head + PBOX_AT_FLAGS) & PBOX_F_ECE) != 0;
	sample(l, &l->path[a->e], ts, pbox_ld32(head + PBOX_AT_HELD));
	pbox_hist_add(&l->latency, (uint64_t)((uint32_t)l->now - flight->begun) * 1000);
	lane_count(l, LS_RESULTS, 1);
	lane_count(l, LS_PULL_BYTES, r->length);
	land(l, a);
}

/* What a frame is about, and what its payload must be; false: nothing that is waited for. */
static bool
expected(struct lane *l, unsigned worker, const uint8_t *head, const uint8_t *payload, bool ce,
	struct result *r)
{
	const struct testps *t = l->t;
	uint32_t round = pbox_ld32(head + PBOX_AT_ROUND);

	if (pbox_ld64(head + PBOX_AT_TOKEN) != t->token[worker] ||
		pbox_ld16(head + PBOX_AT_WORKER) != worker) {
		lane_count(l, LS_DROP_SESSION, 1);
		return false;
	}
	if (!results_find(l, worker, pbox_ld32(head + PBOX_AT_CHUNK),
		    pbox_ld16(head + PBOX_AT_FRAG), round, &r->a)) {
		lane_count(l, LS_DUPLICATES, 1);
		return false;
	}
	r->length = pbox_ld16(head + PBOX_AT_LENGTH);
	if (head[PBOX_AT_FORMAT] != t->data.pull ||
		r->length != pbox_payload_bytes(t->data.pull, t->plan.f[r->a.i].elements)) {
		if (l->stats[LS_WRONG] == 0)
			snprintf(l->err.text, sizeof(l->err.text),
				"worker %u, round %u, fragment %u of chunk %u: %u bytes of format %u",
				worker, round, pbox_ld16(head + PBOX_AT_FRAG),
				pbox_ld32(head + PBOX_AT_CHUNK), r->length, head[PBOX_AT_FORMAT]);
		lane_count(l, LS_WRONG, 1);
		return false;
	}
	r->head = head;
	r->payload = payload;
	r->worker = (uint16_t)worker;
	r->ce = ce;
	r->intact = false;
	if (!t->opt.no_check) {
		if (l->blocks != NULL)
			blocks_want(l->blocks, r->a.i, round, worker, &r->want);
		else
			data_want(
				&t->data, &l->reference, &t->plan, r->a.i, round, worker, &r->want);
		r->intact = pbox_frame_verify(head + PBOX_HDR_LEN, r->want.crc);
	}
	return true;
}

void
rounds_result(struct lane *l, unsigned worker, const uint8_t *head, const uint8_t *payload, bool ce)
{
	struct result r;

	if (expected(l, worker, head, payload, ce, &r))
		results_finish(l, &r, payload);
}

/* Payloads are compared when the headers of a burst have been read, those of one reference together: it stays in
 * the nearest cache, which has to bring in the payloads alone. With an optimiser each fragment has its own. */
void
rounds_result_later(
	struct lane *l, unsigned worker, const uint8_t *head, const uint8_t *payload, bool ce)
{
	struct batch *b = &l->batch;
	struct result *r = &b->result[b->n];
	uint8_t *first;

	if (l->t->opt.no_check || l->t->data.optimiser != PBOX_OPT_NONE ||
		b->n == RTE_DIM(b->result)) {
		rounds_result(l, worker, head, payload, ce);
		return;
	}
	if (!expected(l, worker, head, payload, ce, r))
		return;
	first = &b->first[r->want.pattern];
	r->next = *first;
	*first = (uint8_t)++b->n;
}

void
rounds_results(struct lane *l)
{
	struct batch *b = &l->batch;
	const struct result *order[LANE_BATCH + 1];
	unsigned n = 0;

	if (b->n == 0)
		return;
	for (unsigned pattern = 0; pattern < PATTERNS; pattern++)
		for (unsigned i = b->first[pattern]; i != 0; i = b->result[i - 1].next)
			order[n++] = &b->result[i - 1];
	order[n] = order[0]; /* nothing is asked for after the last */
	for (unsigned i = 0; i < n; i++)
		results_finish(l, order[i], order[i + 1]->payload);
	memset(b->first, 0, sizeof(b->first));
	b->n = 0;
}

void
rounds_wait(struct lane *l, unsigned worker, const struct pbox_hdr *h)
{
	struct rte_mbuf *m;
	struct answer a;

	lane_count(l, LS_WAITS, 1);
	if (!results_find(l, worker, h->chunk, h->frag, h->round, &a)) {
		lane_count(l, LS_DUPLICATES, 1);
		return;
	}
	if (h->flags & PBOX_F_HAVE) {
		if (a.flight->state != FLIGHT_AT_BOX)
			a.flight->tries = 0;
		flight_enter(&l->stream[a.s], a.flight, FLIGHT_AT_BOX);
		if (!l->stream[a.s].queued && rounds_may_send(l, a.s))
			rounds_ready(l, a.s);
		return;
	}
	/* the contribution was results_lost (R6.4), or found damaged (R2.5) */
	m = rounds_contribution(l, worker, a.i, h->round, PBOX_F_RETX);
	if (m == NULL)
		return;
	a.flight->sent = (uint32_t)l->now;
	a.flight->behind = (uint32_t)l->stream[a.s].next;
	flight_enter(&l->stream[a.s], a.flight, FLIGHT_SENT);
	a.flight->tries = 1; /* nothing later is evidence for it */
	l->stream[a.s].due = 0;
	lane_count(l, LS_REPEATED, 1);
	results_lost(l, a.e);
	lane_out(l, worker, m);
}
