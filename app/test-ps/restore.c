/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What the box gets of each fragment before rounds begin: its parameters, from worker 0 (INIT). Before rounds go on, after
 * the box was started again: the version that each worker holds, and its payload if the box asks for it (RESTORE, section
 * 10 of the protocol). Results are made again from the patterns, so nothing is kept for this.
 */

#include "testps.h"

#define AGAIN_US 100000 /* between two frames about one fragment: the box also speaks unasked */

/* The last round of fragment @p f whose result worker @p k of the lane has. */
static uint32_t
version_of(const struct lane *l, unsigned k, uint32_t f)
{
	const struct plan *p = &l->t->plan;
	unsigned e = p->f[f].endpoint, s = k * p->endpoints + e;
	uint32_t n = p->first[e + 1] - p->first[e], j = f - p->first[e];
	uint64_t at;

	if (l->stream[s].next <= j)
		return p->round;
	at = j + (l->stream[s].next - 1 - j) / n * n; /* where it was sent last */
	if (at < l->stream[s].oldest || lane_flight_of(l, s, at)->state == FLIGHT_DONE)
		at += n;
	return p->round + (uint32_t)(at / n);
}

static void
restore_send(struct lane *l, const struct control *c, struct holding *x)
{
	const struct testps *t = l->t;
	const struct fragment *f = &t->plan.f[x->f];
	uint32_t version = version_of(l, c->worker / t->lanes, x->f);
	const struct pbox_restore_rounds m = {.version = version,
		.samples = version > 0 ? t->workers * (t->workers + 1) / 2 : 0,
		.contributors = version > 0 ? (uint16_t)t->workers : 0,
		.have = version > 0 && (t->now.optimiser == PBOX_OPT_NONE || !t->opt.no_check)};
	struct pbox_hdr h = rounds_header(l, c->worker, f, PBOX_RESTORE, version);
	struct wanted want = {0};

	pbox_restore_rounds_put(&h, &m);
	h.format = t->data.pull;
	if (x->give && m.have) {
		data_want(&t->data, &l->reference, &t->plan, x->f, version, c->worker, &want);
		h.length = (uint16_t)pbox_payload_bytes(t->data.pull, f->elements);
	}
	lane_frame(l, c->worker, &t->data_to[c->worker * t->plan.endpoints + f->endpoint], &h,
		want.payload);
}

static void
init_send(struct lane *l, const struct control *c, struct holding *x)
{
	const struct testps *t = l->t;
	const struct fragment *f = &t->plan.f[x->f];
	uint32_t left = f->elements - x->base, most = pbox_init_elements(t->session.mtu);
	const struct pbox_part m = {.offset = x->base};
	struct pbox_hdr h = rounds_header(l, c->worker, f, PBOX_INIT, 0);

	h.flags = PBOX_F_LAST;
	pbox_part_put(&h, &m);
	h.format = PBOX_FMT_FP32;
	h.length = (uint16_t)(RTE_MIN(left, most) * sizeof(float));
	lane_frame(l, c->worker, &t->data_to[c->worker * t->plan.endpoints + f->endpoint], &h,
		t->data.init + x->base);
}

bool
restore_turn(struct lane *l, struct control *c, enum pbox_type type)
{
	struct holdings *r = &c->holdings;

	if (r->type != type)
		*r = (struct holdings){.type = (uint8_t)type};
	for (unsigned i = 0; i < RTE_DIM(r->holding); i++) {
		struct holding *x = &r->holding[i];

		if (!x->open && r->next < l->t->plan.n) {
			*x = (struct holding){.f = r->next++, .open = true};
			r->out++;
		}
		if (!x->open || l->now < x->due)
			continue;
		x->due = l->now + AGAIN_US;
		if (type == PBOX_INIT)
			init_send(l, c, x);
		else
			restore_send(l, c, x);
	}
	return r->out == 0;
}

/* The box has a part of its parameters. */
static void
init_ok(struct lane *l, struct holdings *r, struct holding *x, const struct pbox_hdr *h)
{
	if (r->type != PBOX_INIT || pbox_part_get(h).offset != x->base)
		return;
	x->base += pbox_init_elements(l->t->session.mtu);
	x->due = 0;
	x->open = x->base < l->t->plan.f[x->f].elements;
	r->out -= !x->open;
}

static void
restored(struct lane *l, struct holdings *r, struct holding *x, const struct pbox_hdr *h)
{
	const struct pbox_restore_ok m = pbox_restore_ok_get(h);

	if (r->type != PBOX_RESTORE)
		return;
	if (m.state == PBOX_RESTORE_GIVE) {
		if (!x->give)
			x->due = 0;
		x->give = true;
	} else if (m.state == PBOX_RESTORE_LOST) {
		lane_fail(l,
			"the box was started again, and nobody could give it round %u of fragment %u of chunk %u%s",
			m.version, h->frag, h->chunk,
			l->t->opt.no_check ? ": with --no-check parameters are not kept" : "");
	} else if (m.state == PBOX_RESTORE_DONE) {
		x->open = false;
		r->out--;
		lane_count(l, LS_RESTORED, 1);
		if (l->reference.restored != NULL)
			l->reference.restored[x->f] = m.version;
	}
}

void
restore_ok(struct lane *l, unsigned worker, const struct pbox_hdr *h)
{
	struct control *c = &l->c[worker / l->t->lanes];
	struct holdings *r = &c->holdings;

	if (r->type == 0)
		return;
	for (unsigned i = 0; i < RTE_DIM(r->holding); i++) {
		struct holding *x = &r->holding[i];
		const struct fragment *f = &l->t->plan.f[x->f];

		if (!x->open || f->chunk != h->chunk || f->frag != h->frag)
			continue;
		if (h->type == PBOX_INIT_OK)
			init_ok(l, r, x, h);
		else
			restored(l, r, x, h);
	}
	if (restore_turn(l, c, (enum pbox_type)r->type))
		l->tick_us = 0; /* the next step */
}
