/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What a round waits for, and what a worker is to bring; and that it has brought something. */

#include "rounds.h"

bool
rounds_has_brought(const struct target *g, unsigned worker)
{
	return g->fragment->record != NULL && g->j->policy->own_missing(g, worker) == g->j->slots;
}

/* The first slot from `at` on that the round waits for; j->slots: it waits for none of these. */
static unsigned
next_missing(const struct target *g, unsigned at)
{
	const struct pbox_record *r = g->fragment->record;
	unsigned slots = g->j->slots;

	for (unsigned i = at / 64; at < slots; i++) {
		uint64_t left = bits_in(i, at, slots) & ~r->has[i];

		if (r->round.partial)
			left &= r->expect[i];
		if (left != 0)
			return i * 64 + (unsigned)__builtin_ctzll(left);
		at = (i + 1) * 64;
	}
	return slots;
}

void
rounds_missing(const struct target *g, uint64_t *set)
{
	const struct pbox_shard_job *j = g->j;

	PBOX_ASSERT(g->fragment->record->open && !is_restoring(g));
	for (unsigned at = 0; (at = next_missing(g, at)) < j->slots;) {
		unsigned w = slots_owner(g, at);

		if (w < j->job->workers)
			pbox_bit_set(set, w);
		at++;
	}
}

/* The worker whose slot is the first one that the round waits for. */
static uint32_t
first_missing(const struct target *g)
{
	unsigned slot = next_missing(g, 0), w;

	if (slot == g->j->slots)
		return PBOX_WAIT_NOBODY;
	w = slots_owner(g, slot);
	return w < g->j->job->workers ? w : PBOX_WAIT_NOBODY;
}

void
rounds_wait_says(const struct target *g, unsigned worker, struct pbox_hdr *h)
{
	const struct pbox_shard_job *j = g->j;
	const struct pbox_record *r = initialised(g) ? g->fragment->record : NULL;
	unsigned own = g->j->policy->own_missing(g, worker);
	/* who owns none has nothing to bring */
	bool have = own == j->slots;
	uint16_t arrived = r != NULL ? r->arrived : 0;
	uint32_t missing = r != NULL ? first_missing(g) : 0;

	if (j->named) {
		const struct pbox_wait_slots m = {.version = g->fragment->version,
			.slot = own,
			.missing = missing,
			.contributors = arrived,
			.have = have};

		pbox_wait_slots_put(h, &m);
	} else {
		const struct pbox_wait_rounds m = {.version = g->fragment->version,
			.missing = missing,
			.contributors = arrived,
			.have = have};

		pbox_wait_rounds_put(h, &m);
	}
}

void
rounds_push_ok(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_send out = shard_answer(g, PBOX_PUSH_OK, f->hdr.ts);

	if (g->j->named) {
		const struct pbox_push_slots push = pbox_push_slots_get(&f->hdr);
		const struct pbox_push_ok_slots m = {.round = push.round, .node = push.node};

		pbox_push_ok_slots_put(&out.hdr, &m);
	} else {
		const struct pbox_push_ok_rounds m = {
			.round = f->hdr.round, .version = g->fragment->version};

		pbox_push_ok_rounds_put(&out.hdr, &m);
	}
	shard_send_to(s, g, &out, f->hdr.worker);
}
