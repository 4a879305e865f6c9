/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>

#include "pbox_sick.h"
#include "sick.h"

/* Elements that are looked at together: whole units. */
#define LOOK (4 * PBOX_UNIT)

/* The first element of the fragment that is not finite in a sum of these; its number of elements: none is. */
static uint32_t
first_bad(struct pbox_shard *s, const struct target *g, struct pbox_sources src, uint32_t *kind)
{
	float x[LOOK] __attribute__((aligned(PBOX_CACHE_LINE)));
	bool finite = true;

	src.intact = NULL;
	src.crc_dst = NULL;
	src.next = NULL;
	src.finite = &finite;
	for (uint32_t at = 0; at < g->elements; at += LOOK) {
		uint32_t n = g->elements - at < LOOK ? g->elements - at : LOOK;

		s->conf.reduce->sum(x, &src, at, n);
		for (uint32_t i = 0; !finite && i < n; i++) {
			if (isfinite(x[i]))
				continue;
			*kind = isnan(x[i]) ? PBOX_SICK_NAN
				: x[i] > 0  ? PBOX_SICK_INFINITE
					    : PBOX_SICK_MINUS_INFINITE;
			return at + i;
		}
	}
	return g->elements;
}

/* Its reader may be in the middle of it: pbox_shard_sick(). */
static void
note(struct pbox_shard *s, const struct target *g, struct shard_sick *k, uint32_t round,
	uint32_t element, uint32_t kind)
{
	uint32_t seq = atomic_load_explicit(&k->seq, memory_order_relaxed);
	uint32_t last = atomic_load_explicit(&k->last, memory_order_relaxed);
	uint64_t n = atomic_load_explicit(&k->fragments, memory_order_relaxed);
	int32_t since = pbox_serial_diff(round, last);

#define SET(member, value) atomic_store_explicit(&k->member, value, memory_order_relaxed)
	SET(seq, seq + 1);
	atomic_thread_fence(memory_order_release);
	if (n == 0 || since > 1 || since < -1) {
		SET(begun_ns, s->now_ns);
		SET(first, round);
		SET(chunk, g->chunk);
		SET(element, g->frag * g->st->t->frag_elements + element);
		SET(kind, kind);
	}
	if (n == 0 || since > 0 || since < -1)
		SET(last, round);
	SET(last_ns, s->now_ns);
	SET(fragments, n + 1);
	atomic_store_explicit(&k->seq, seq + 2, memory_order_release);
#undef SET
	n = atomic_load_explicit(&g->j->sick_all, memory_order_relaxed);
	atomic_store_explicit(&g->j->sick_all, n + 1, memory_order_release);
}

/* Not looked at: what is not in the sum, as its weight is 0. */
static bool
sick_counts(const struct target *g, unsigned slot)
{
	const struct pbox_record *r = g->fragment->record;

	return r->payload[slot] != NULL &&
	       (g->st->t->op != PBOX_OP_WEIGHTED_MEAN || r->from[slot].weight != 0);
}

void
sick_look(struct pbox_shard *s, const struct target *g, const struct pbox_sources *src,
	unsigned end, uint32_t round)
{
	struct pbox_record *r = g->fragment->record;
	uint32_t kind = 0, element;

	for (unsigned slot = r->round.folded; (slot = bits_next(r->nodes, slot, end)) < end;
		slot++) {
		const struct pbox_sources one = {.src = &r->payload[slot],
			.n = 1,
			.elem = (enum pbox_format)shard_push_format(g, slot)};
		unsigned w = g->j->named ? r->from[slot].worker : slot;

		if (!sick_counts(g, slot) || (element = first_bad(s, g, one, &kind)) == g->elements)
			continue;
		note(s, g, &g->j->sick[w], round, element, kind);
		shard_count(s, PBOX_SS_NOT_FINITE);
		r->round.sick = true;
	}
	/* or what was folded before is not finite: that was looked at then */
	if (r->round.sick)
		return;
	r->round.sick = true;
	element = first_bad(s, g, *src, &kind);
	if (element == g->elements) /* their memory has changed meanwhile */
		return;
	note(s, g, &g->j->sick[g->j->job->workers], round, element, kind);
	shard_count(s, PBOX_SS_OVERFLOWED);
}

/* ---- the registrar's side ---------------------------------------------------------------- */

uint64_t
pbox_shard_sick_all(const struct pbox_shard_job *j)
{
	return atomic_load_explicit(&j->sick_all, memory_order_acquire);
}

bool
pbox_shard_sick(const struct pbox_shard_job *j, unsigned worker, struct pbox_sick *out)
{
	const struct shard_sick *k = &j->sick[worker];
	uint32_t before, after;

#define GET(member) atomic_load_explicit(&k->member, memory_order_relaxed)
	do {
		before = atomic_load_explicit(&k->seq, memory_order_acquire);
		*out = (struct pbox_sick){
			.fragments = GET(fragments),
			.begun_ns = GET(begun_ns),
			.last_ns = GET(last_ns),
			.first = GET(first),
			.last = GET(last),
			.chunk = GET(chunk),
			.element = GET(element),
			.kind = GET(kind),
		};
		atomic_thread_fence(memory_order_acquire);
		after = GET(seq);
	} while (before != after || (before & 1) != 0);
#undef GET
	return out->fragments > 0;
}
