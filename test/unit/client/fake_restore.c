/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "fake_impl.h"

/* Section 10 of the protocol: what workers hold. */

static void
answer(struct fake_box *b, int fd, const struct pbox_hdr *q, const struct fake_frag *g,
	enum pbox_restore how, uint32_t missing)
{
	struct pbox_hdr h = {.type = PBOX_RESTORE_OK,
		.token = q->token,
		.job = 1,
		.worker = q->worker,
		.incarnation = b->incarnation,
		.chunk = q->chunk,
		.frag = q->frag,
		.round = q->round,
		.base = g->version,
		.map_epoch = 7,
		.aux = (uint16_t)how,
		.weight = missing,
		.ts = q->ts};

	fake_send(b, fd, &b->member[q->worker].addr, &h);
}

/** Take the payload, in the pull format. */
static void
take(struct fake_table *t, struct fake_frag *g, const uint8_t *payload)
{
	unsigned size = pbox_format_size(t->head.pull_format);
	uint16_t narrow;

	memcpy(t->out + (size_t)g->at * size, payload, (size_t)g->elements * size);
	for (uint32_t i = 0; i < g->elements; i++) {
		if (size == 4) {
			memcpy(&t->param[g->at + i], payload + 4 * (size_t)i, 4);
		} else {
			memcpy(&narrow, payload + 2 * (size_t)i, 2);
			t->param[g->at + i] = from_bf16(narrow);
		}
	}
	g->payload = true;
}

static bool
needed(const struct fake_box *b, const struct fake_table *t, const struct fake_frag *g)
{
	return g->havers != 0 ||
	       (g->version > 0 && (t->head.mode == PBOX_MODE_OPTIMISER || g->behind ||
					  t->restorers != (1u << b->conf.workers) - 1));
}

void
fake_restore(struct fake_box *b, struct fake_table *t, struct fake_frag *g, int fd,
	const struct pbox_hdr *q, const uint8_t *payload)
{
	uint32_t me = 1u << q->worker, missing;

	b->counts.restores++;
	if (!fake_restoring(t, g)) {
		answer(b, fd, q, g, PBOX_RESTORE_DONE, 0);
		return;
	}
	if (q->format != t->head.pull_format ||
		(q->length != 0 &&
			q->length != g->elements * pbox_format_size(t->head.pull_format))) {
		b->counts.malformed++;
		return;
	}
	if (q->round != g->version && g->tellers != 0)
		g->behind = true;
	if (q->round > g->version) {
		g->version = q->round;
		g->havers = 0;
		g->payload = false;
	}
	g->tellers |= me;
	if (q->round == g->version && (q->flags & PBOX_F_HAVE) != 0) {
		g->havers |= me;
		g->samples = q->weight;
		g->contributors = q->aux;
		if (q->length > 0 && !g->payload) {
			b->counts.given++;
			take(t, g, payload);
		}
	}
	missing = t->restorers & ~g->tellers;
	if (missing != 0) {
		answer(b, fd, q, g, PBOX_RESTORE_NOTED, (uint32_t)__builtin_ctz(missing));
	} else if (needed(b, t, g) && !g->payload) {
		if ((g->havers & me) != 0) {
			answer(b, fd, q, g, PBOX_RESTORE_GIVE, 0);
		} else if (g->havers != 0) {
			answer(b, fd, q, g, PBOX_RESTORE_NOTED, (uint32_t)__builtin_ctz(g->havers));
		} else {
			b->counts.gone++;
			t->lost = true;
			answer(b, fd, q, g, PBOX_RESTORE_LOST, 0);
		}
	} else {
		g->restored = true;
		g->ready |= g->version > 0 || g->payload;
		t->left--;
		answer(b, fd, q, g, PBOX_RESTORE_DONE, 0);
	}
}
