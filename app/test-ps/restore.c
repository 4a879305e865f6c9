/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * A box that was started again learns from the workers what they hold (section 10 of the protocol). Each
 * worker tells the version of each fragment, and gives it where the box asks; the results that it must have
 * are at hand for the checks, so nothing is kept for this.
 */

#include <stdlib.h>

#include "testps.h"

#define AT_ONCE  16     /* fragments of one worker under way */
#define AGAIN_US 100000 /* between two questions about one: the box also speaks unasked */

/* What one worker tells. */
struct restore {
	uint32_t next, out; /* the next fragment; those under way */
	struct told {
		uint32_t f;
		bool open, give;
		uint64_t due;
	} told[AT_ONCE];
};

int
restore_make(struct lane *l)
{
	free(l->restore);
	l->restore = calloc(l->workers > 0 ? l->workers : 1, sizeof(*l->restore));
	return l->restore != NULL ? 0 : -1;
}

void
restore_free(struct lane *l)
{
	free(l->restore);
	l->restore = NULL;
}

void
restore_again(struct lane *l, unsigned worker)
{
	if (l->restore != NULL)
		l->restore[worker / l->t->lanes] = (struct restore){0};
}

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
restore_tell(struct lane *l, unsigned worker, struct told *x)
{
	const struct testps *t = l->t;
	const struct fragment *f = &t->plan.f[x->f];
	uint32_t version = version_of(l, worker / t->lanes, x->f);
	bool have = version > 0 && (t->now.optimiser == PBOX_OPT_NONE || !t->opt.no_check);
	struct pbox_hdr h = rounds_header(l, worker, f, PBOX_RESTORE, version);
	struct wanted want = {0};

	h.flags = have ? PBOX_F_HAVE : 0;
	h.format = t->data.pull;
	h.aux = version > 0 ? (uint16_t)t->workers : 0;
	h.weight = version > 0 ? t->workers * (t->workers + 1) / 2 : 0;
	if (x->give && have) {
		data_want(&t->data, &l->mirror, &t->plan, x->f, version, worker, &want);
		h.length = (uint16_t)pbox_payload_bytes(t->data.pull, f->elements);
	}
	x->due = l->now + AGAIN_US;
	lane_frame(
		l, worker, &t->data_to[worker * t->plan.endpoints + f->endpoint], &h, want.payload);
}

bool
restore_turn(struct lane *l, unsigned worker)
{
	struct restore *r = &l->restore[worker / l->t->lanes];

	for (unsigned i = 0; i < AT_ONCE; i++) {
		struct told *x = &r->told[i];

		if (!x->open && r->next < l->t->plan.n) {
			*x = (struct told){.f = r->next++, .open = true};
			r->out++;
		}
		if (x->open && l->now >= x->due)
			restore_tell(l, worker, x);
	}
	return r->out == 0;
}

void
restore_ok(struct lane *l, unsigned worker, const struct pbox_hdr *h)
{
	struct restore *r = l->restore != NULL ? &l->restore[worker / l->t->lanes] : NULL;

	for (unsigned i = 0; r != NULL && i < AT_ONCE; i++) {
		struct told *x = &r->told[i];
		const struct fragment *f = &l->t->plan.f[x->f];

		if (!x->open || f->chunk != h->chunk || f->frag != h->frag)
			continue;
		if (h->aux == PBOX_RESTORE_GIVE) {
			if (!x->give)
				x->due = 0;
			x->give = true;
		} else if (h->aux == PBOX_RESTORE_LOST) {
			lane_fail(l,
				"the box was started again, and nobody could give it round %u of fragment %u of chunk %u%s",
				h->base, h->frag, h->chunk,
				l->t->opt.no_check ? ": with --no-check parameters are not kept"
						   : "");
		} else if (h->aux == PBOX_RESTORE_DONE) {
			x->open = false;
			r->out--;
			lane_count(l, LS_RESTORED, 1);
			if (l->mirror.restored != NULL)
				l->mirror.restored[x->f] = h->base;
		}
	}
}
