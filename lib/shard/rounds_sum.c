/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "hold.h"
#include "sick.h"

/* Packets that go back together. */
#define RELEASE_BATCH 64
/* How many packets ahead what their owner keeps of them is fetched. */
#define RELEASE_AHEAD 16

void
rounds_release(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_record *r,
	unsigned first, unsigned end)
{
	void *batch[RELEASE_BATCH];
	unsigned n = 0, total = 0;

	for (unsigned slot = first; slot < end; slot++) {
		struct contribution *c = &r->from[slot];

		/* packets of many workers have left the caches since they came */
		if (slot + RELEASE_AHEAD < end) {
			const char *later = r->from[slot + RELEASE_AHEAD].handle;

			__builtin_prefetch(later, 1);
			__builtin_prefetch(later + PBOX_CACHE_LINE, 1);
		}
		if (!pbox_bit_get(r->nodes, slot) || c->handle == NULL)
			continue;
		batch[n++] = c->handle;
		c->handle = NULL;
		r->round.unverified -= c->unverified;
		total++;
		if (n == RELEASE_BATCH) {
			s->conf.ops->release(s->conf.ctx, batch, n);
			n = 0;
		}
	}
	if (n > 0)
		s->conf.ops->release(s->conf.ctx, batch, n);
	PBOX_ASSERT(j->held >= total);
	j->held -= total;
	pbox_stat_add(&s->stats[PBOX_SS_HELD], (uint64_t)0 - total);
}

/*
 * The payloads of slots r->round.folded to end - 1 that are summed in nodes of level r->level: one payload a node, also where
 * that has no slot that has come, or is a part of a larger one that has come. (The tree over these nodes is the tree over the
 * slots.) Returns how many.
 */
static unsigned
gather(const struct pbox_record *r, unsigned end, const void **out)
{
	unsigned n = (end - r->round.folded + (1u << r->level) - 1) >> r->level;

	PBOX_ASSERT(r->round.folded >> r->level << r->level == r->round.folded);
	for (unsigned i = 0; i < n; i++)
		out[i] = pbox_reduce_absent;
	for (unsigned slot = r->round.folded; (slot = bits_next(r->nodes, slot, end)) < end; slot++)
		out[(slot - r->round.folded) >> r->level] = r->payload[slot];
	return n;
}

/* Which of n sources up to slot end - 1 are fp32: gather() has put them so, and where frames name no nodes r->level is 0. */
static __attribute__((noinline, cold)) const bool *
wide_sources(struct pbox_shard *s, const struct pbox_record *r, unsigned end, unsigned n)
{
	memset(s->wide, 0, n * sizeof(*s->wide));
	for (unsigned slot = r->round.folded; (slot = bits_next(r->nodes, slot, end)) < end; slot++)
		s->wide[(slot - r->round.folded) >> r->level] = r->from[slot].wide;
	return s->wide;
}

/* What a sum of slots `first` to end - 1 is made of: the folded nodes among them, then the contributions. */
static struct pbox_sources
sources(struct pbox_shard *s, const struct target *g, unsigned first, unsigned end)
{
	const struct pbox_record *r = g->fragment->record;
	struct pbox_sources src = {
		.src = r->payload + r->round.folded,
		.n = end - r->round.folded,
		.elem = g->st->t->push_format,
		.base = r->round.folded,
		.intact = r->round.unverified > 0 ? &s->intact : NULL,
		.header = PBOX_HDR_LEN,
		.finite = &s->finite,
	};

	s->finite = true;
	for (unsigned slot = r->round.folded; __builtin_expect(slot > first, 0); src.n_acc++) {
		slot &= slot - 1;
		src.acc = &s->acc[PBOX_NODES_MAX - 1 - src.n_acc];
		s->acc[PBOX_NODES_MAX - 1 - src.n_acc] = r->payload[slot];
	}
	if (__builtin_expect(g->j->named | r->round.partial, 0)) { /* not one payload a slot */
		src.n = gather(r, end, s->present);
		src.src = s->present;
		src.base = r->round.folded >> r->level;
	}
	if (__builtin_expect(r->round.mixed, 0))
		src.wide = wide_sources(s, r, end, src.n);
	if (g->st->t->op == PBOX_OP_WEIGHTED_MEAN) { /* then r->level is 0 */
		for (unsigned i = 0; i < src.n; i++)
			s->weight[i] = (float)r->from[r->round.folded + i].weight;
		src.weight = s->weight;
	}
	return src;
}

static uint64_t
samples_of(const struct pbox_shard_job *j, const struct pbox_record *r)
{
	bool all = r->arrived == j->slots && !j->named;
	uint64_t samples = 0;

	for (unsigned i = 0; i < j->slots; i++)
		samples += all || pbox_bit_get(r->nodes, i) ? r->from[i].weight : 0;
	return samples;
}

void
rounds_drop_node(struct pbox_shard *s, const struct target *g, unsigned slot)
{
	struct pbox_record *r = g->fragment->record;

	PBOX_ASSERT(slot >= r->round.folded &&
		    pbox_bit_get(r->nodes, slot)); /* what is summed cannot be taken out */
	rounds_release(s, g->j, r, slot, slot + 1);
	r->from[slot].unverified = false;
	slots_go(r, slots_at(g->j, r, slot));
	shard_count(s, PBOX_SS_TAKEN_BACK);
}

/* Forget the contribution that begins with this slot, with all that its worker asked for, and ask for it again. With a plan the
 * slot may be another worker's, or nobody's, by now. */
static void
rounds_forget(struct pbox_shard *s, const struct target *g, unsigned slot)
{
	struct pbox_record *r = g->fragment->record;
	unsigned w = g->j->named ? r->from[slot].worker : slot;

	pbox_bit_clear(r->want, w); /* it may have been this frame's wish: nothing of it stays */
	rounds_drop_node(s, g, slot);
	shard_send_taken_back(s, g, w, r->from[w].ts);
}

/* Take back those contributions of slots first to end - 1 that are not what was sent; true: all are. */
bool
rounds_verify(struct pbox_shard *s, const struct target *g, unsigned first, unsigned end)
{
	struct pbox_record *r = g->fragment->record;
	unsigned had = r->arrived;

	/* what is folded was intact, and its packets are gone */
	for (unsigned i = first > r->round.folded ? first : r->round.folded; i < end; i++)
		if (pbox_bit_get(r->nodes, i) && r->from[i].unverified &&
			!pbox_reduce_intact(r->payload[i],
				pbox_payload_bytes(shard_push_format(g, i), g->elements),
				PBOX_HDR_LEN))
			rounds_forget(s, g, i);
	return r->arrived == had;
}

/* A sum has found that not all of the contributions first .. end-1 are what was sent: take those back that are
 * not. If each by itself is, their memory has changed meanwhile, and none that is unverified can be trusted. */
static void
take_back(struct pbox_shard *s, const struct target *g, unsigned first, unsigned end)
{
	const struct pbox_record *r = g->fragment->record;

	if (!rounds_verify(s, g, first, end))
		return;
	for (unsigned i = first; i < end; i++)
		if (pbox_bit_get(r->nodes, i) && r->from[i].unverified)
			rounds_forget(s, g, i);
}

void
rounds_unfold(struct pbox_shard_job *j, struct pbox_record *r, unsigned first)
{
	for (unsigned slot = r->round.folded; slot > first && (slot & (slot - 1)) >= first;) {
		PBOX_ASSERT(slot <= j->slots);
		void **acc = (void **)(uintptr_t)r->payload[slot &= slot - 1];

		*acc = j->free_acc;
		j->free_acc = acc;
		j->n_free_acc++;
	}
}

/* Up to where it is: the last slot that has come of those that have none before them that is waited for. */
static unsigned
front(const struct pbox_shard_job *j, const struct pbox_record *r)
{
	unsigned end = r->round.folded;

	for (unsigned i = end; i < j->slots; i++) {
		if (pbox_bit_get(r->has, i))
			end = i + 1;
		else if (!is_extra(r, i))
			break;
	}
	return end;
}

/*
 * Sum what is complete at the front of this round and give the packets back: whole nodes of the tree over the slots
 * (R5.2a), the largest first, so the bits are the same.
 */
void
rounds_fold(struct pbox_shard *s, const struct target *g)
{
	struct pbox_shard_job *j = g->j;
	struct pbox_record *r = g->fragment->record;
	unsigned end = front(j, r);

	PBOX_ASSERT(end <= j->slots);
	PBOX_ASSERT_WALK(bits_count(r->has, 0, j->slots) == r->arrived);
	while (r->round.folded < end) {
		/* end has this bit; so the node may take in some that are folded */
		unsigned level = 31 - (unsigned)__builtin_clz(r->round.folded ^ end),
			 until = end >> level << level, first = until - (1u << level);
		void *acc = r->round.folded > first ? (void *)(uintptr_t)r->payload[first]
						    : rounds_free_acc(j, r);
		struct pbox_sources src;

		if (acc == NULL)
			return;
		src = sources(s, g, first, until);
		s->conf.reduce->sum(s->scratch, &src, 0, g->elements);
		if (src.intact != NULL && !*src.intact) {
			take_back(s, g, r->round.folded, until);
			return;
		}
		if (__builtin_expect(!s->finite, 0))
			sick_look(s, g, &src, until, g->fragment->version + 1);
		if (r->round.folded > first) {
			rounds_unfold(j, r, first + 1);
		} else {
			j->free_acc = *(void **)acc;
			j->n_free_acc--;
		}
		memcpy(acc, s->scratch, g->elements * sizeof(*s->scratch));
		rounds_release(s, j, r, r->round.folded, until);
		r->payload[first] = acc;
		r->round.folded = (uint16_t)until;
		shard_count(s, PBOX_SS_FOLDS);
	}
}

/* R5.2. The samples are 64 bit: 4096 workers x 2^32 do not fit the header, the factor is exact. */
static float
factor(const struct pbox_table *t, unsigned workers, uint64_t samples)
{
	switch (t->op) {
	case PBOX_OP_MEAN:
		return (float)(1.0 / workers);
	case PBOX_OP_SAMPLE_MEAN:
	case PBOX_OP_WEIGHTED_MEAN:
		return samples == 0 ? 0.0f : (float)(1.0 / (double)samples);
	default:
		return 1.0f;
	}
}

/* Workers wait for so long before they ask: where a round took longer, their questions and its result
 * may meet on the way. */
#define LATE_NS (5 * 1000000ull)

/* What rounds_finish() does in the end: the fragment has a new version. */
static void
rounds_publish(struct pbox_shard *s, const struct target *g, uint32_t round, unsigned contributors,
	uint64_t samples)
{
	struct pbox_fragment *fragment = g->fragment;

	/* a version never falls, and none is left out (R6.1) */
	PBOX_ASSERT(round == fragment->version + 1 && contributors > 0);
	fragment->version = round;
	fragment->samples = samples > UINT32_MAX ? UINT32_MAX : (uint32_t)samples;
	fragment->contributors = (uint16_t)contributors;
	fragment->has_result = 1;
	fragment->plain = 0;
	fragment->late = s->now_ns - fragment->record->since_ns > LATE_NS;
	shard_count(s, PBOX_SS_ROUNDS);
	shard_finished(g->st, round);
}

/*
 * A sum that is only sent is made in the spare room of its extent, and its fragment takes that in
 * exchange for its own: nobody needs the version before any more, as all have proven by intact
 * contributions. If one is damaged, that version still holds. NULL: the last fragment of a chunk may be
 * shorter than the others, and keeps its place.
 */
static float *
spare_for(const struct target *g)
{
	return g->elements == g->st->t->frag_elements ? g->st->spare[g->c->endpoint] : NULL;
}

/* R13.7: the version that was published has no codes, or they are of no use: answers are of the replica itself. Where there
 * are none it is the parameters. */
static __attribute__((noinline, cold)) void
publish_whole(const struct target *g, bool codes)
{
	if (!codes)
		shard_replica_begins(g);
	g->fragment->plain = PBOX_PLAIN_THIS;
	g->fragment->payload_crc = pbox_crc32c(0, shard_replica(g), g->elements * sizeof(float));
}

/* All that are waited for have contributed: sum, optimise, publish, answer. False: some of them
 * were damaged, and are waited for again. */
static inline __attribute__((always_inline)) bool
finish_round(struct pbox_shard *s, const struct target *g, const struct pbox_record *next)
{
	struct pbox_shard_job *j = g->j;
	struct pbox_table *t = g->st->t;
	struct pbox_record *r = g->fragment->record;
	unsigned n = j->slots;
	uint32_t round = g->fragment->version + 1;
	struct rounds_group *k = rounds_scalars(g->st, g->c->group, round);
	struct pbox_sources src = sources(s, g, 0, n);
	float *now = pbox_chunk_frag_param(t, g->c, g->frag), *spare = spare_for(g);
	size_t first = (size_t)g->frag * t->frag_elements;
	uint64_t samples = samples_of(j, r);
	bool differs = g->c->replica != NULL, codes = false, plain = k->plain,
	     strange = differs && g->fragment->plain == PBOX_PLAIN_NEXT;
	struct pbox_update u = {
		.reduce = s->conf.reduce,
		.optim = s->conf.optim,
		.kind = t->optimiser,
		.k = t->mode == PBOX_MODE_OPTIMISER ? &k->k : NULL,
		.clip = k->clip,
		.param = spare != NULL ? spare : now,
		.s0 = g->c->s0 != NULL ? g->c->s0 + first : NULL,
		.s1 = g->c->s1 != NULL ? g->c->s1 + first : NULL,
		.wire = plain ? NULL : pbox_chunk_frag_wire(t, g->c, g->frag),
		.wire_elem = t->pull_format,
		.residual = t->optimiser == PBOX_OPT_NONE && g->c->s0 != NULL && !plain
				    ? g->c->s0 + first
				    : NULL,
		.replica = differs && !plain ? shard_replica(g) : NULL,
		.codes = &codes,
		.scratch = spare != NULL ? spare : s->scratch,
		.answer_crc = &g->fragment->payload_crc,
	};

	if (next != NULL && j->named) {
		src.next = s->ahead;
		src.n_next = gather(next, n, s->ahead);
	} else if (next != NULL) {
		src.next = next->payload + next->round.folded;
		src.n_next = n - next->round.folded;
	}
	u.factor = factor(t, r->arrived, samples);
	if (__builtin_expect(k->maximize, 0))
		u.factor = -u.factor;
	if (!pbox_optim_update(&u, &src, g->elements)) {
		take_back(s, g, r->round.folded, n);
		return false;
	}
	if (__builtin_expect(!s->finite, 0))
		sick_look(s, g, &src, n, round);
	if (spare != NULL) {
		pbox_chunk_frag_move(t, g->c, g->frag, spare);
		g->st->spare[g->c->endpoint] = now;
	}
	PBOX_ASSERT(r->arrived == r->round.need && r->arrived <= n && !is_restoring(g));
	rounds_publish(s, g, round, r->arrived, samples);
	if (__builtin_expect(differs && (strange || !codes), 0))
		publish_whole(g, codes);
	else if (
		__builtin_expect(plain,
			0)) /* of a sum: what codes have not said waits for those of a later version */
		g->fragment->plain = PBOX_PLAIN_THIS;
	rounds_release(s, j, r, r->round.folded, n);
	shard_send_results(s, g);
	rounds_close(s, g);
	return true;
}

/* The same in a table with two phases: the sum waits, and the packets go back. */
static __attribute__((noinline, cold)) bool
finish_sum(struct pbox_shard *s, const struct target *g)
{
	struct pbox_table *t = g->st->t;
	struct pbox_record *r = g->fragment->record;
	unsigned n = g->j->slots, arrived = r->arrived;
	struct pbox_sources src = sources(s, g, 0, n);
	uint64_t samples = samples_of(g->j, r);
	float *to = hold_store(g), by = factor(t, arrived, samples);

	if (rounds_scalars(g->st, g->c->group, g->fragment->version + 1)->maximize)
		by = -by;
	s->conf.reduce->sum(to, &src, 0, g->elements);
	if (src.intact != NULL && !*src.intact) {
		take_back(s, g, r->round.folded, n);
		return false;
	}
	if (!s->finite)
		sick_look(s, g, &src, n, g->fragment->version + 1);
	if (by != 1.0f)
		s->conf.reduce->scale(to, by, 0.0f, g->elements);
	PBOX_ASSERT(arrived == r->round.need && arrived <= n && !is_restoring(g));
	rounds_release(s, g->j, r, r->round.folded, n);
	hold_summed(s, g, arrived, samples);
	rounds_close(s, g);
	return true;
}

/* A rack's part of the round (section 18): its sum goes up, and the packets go back. */
static __attribute__((noinline, cold)) bool
finish_part(struct pbox_shard *s, const struct target *g)
{
	struct pbox_record *r = g->fragment->record;
	unsigned n = g->j->slots;
	struct pbox_sources src = sources(s, g, 0, n);
	uint64_t samples = samples_of(g->j, r);
	float *to = up_value(g->j, r);

	PBOX_ASSERT(!r->round.up && r->round.partial && r->arrived == r->round.need);
	s->conf.reduce->sum(to, &src, 0, g->elements);
	if (src.intact != NULL && !*src.intact) {
		take_back(s, g, r->round.folded, n);
		return false;
	}
	if (!s->finite)
		sick_look(s, g, &src, n, g->fragment->version + 1);
	memset(to + g->elements, 0, (g->st->t->frag_elements - g->elements) * sizeof(*to));
	rounds_release(s, g->j, r, r->round.folded, n);
	rounds_unfold(g->j, r, 0);
	r->round.folded = 0;
	if (r->round.paced)
		rounds_pace_remove(s, g->j, r);
	if (g->j->named && r->listed)
		rounds_line_leave(g->j, r);
	rounds_up(s, g, samples);
	return true;
}

void
rounds_down(struct pbox_shard *s, const struct target *g, const struct pbox_up *up)
{
	struct pbox_table *t = g->st->t;
	const void *value = up->value;
	struct pbox_update u = {
		.reduce = s->conf.reduce,
		.optim = s->conf.optim,
		.kind = t->optimiser,
		.param = pbox_chunk_frag_param(t, g->c, g->frag),
		.wire = pbox_chunk_frag_wire(t, g->c, g->frag),
		.wire_elem = t->pull_format,
		.scratch = s->scratch,
		.factor = 1.0f,
		.answer_crc = &g->fragment->payload_crc,
	};
	/* one contribution: the value itself */
	const struct pbox_sources src = {.src = &value, .n = 1, .elem = PBOX_FMT_FP32};

	pbox_optim_update(&u, &src, g->elements);
	rounds_publish(s, g, up->round, up->contributors, up->samples);
	shard_send_results(s, g);
	rounds_close(s, g);
}

static bool
rounds_finish(struct pbox_shard *s, const struct target *g, const struct pbox_record *next)
{
	struct pbox_staging *staging = g->st->staging;
	bool done;

	if (__builtin_expect(g->st->t->hold, 0))
		return finish_sum(s, g);
	if (__builtin_expect(g->j->up_bytes > 0, 0))
		return finish_part(s, g);
	if (__builtin_expect(staging != NULL, 0))
		shard_staging_before(staging, g);
	done = finish_round(s, g, next);
	if (__builtin_expect(staging != NULL, 0) && done)
		shard_staging_after(s, staging, g);
	return done;
}

void
rounds_burst(struct pbox_shard *s, const struct target *g, const struct target *next)
{
	const struct pbox_record *r = g->fragment->record, *ahead = NULL;
	unsigned had;

	PBOX_ASSERT(r != NULL && r->open && r->arrived == r->round.need);
	if (next != NULL && next->fragment->record->arrived == g->j->slots)
		ahead = next->fragment->record;
	do { /* where the damage was of one that is gone, the others are complete without it */
		had = r->arrived;
		if (rounds_finish(s, g, ahead))
			return;
	} while (r->arrived == r->round.need && r->arrived > 0 && r->arrived < had);
	if (r->round.need == 0) /* nobody is waited for, and nothing is there */
		rounds_close(s, g);
}

/*
 * Which round is the oldest. A worker that uses PUSH alone sends ahead of the others, and its contributions fill what the
 * job may hold. Then rounds end only if what comes is folded into sums, and if many rounds had a few of these each,
 * none could end. So some are kept for the oldest round, as many as it can need: all workers send in the same order, each
 * sends its contribution to that round until the box takes it, and the front of the round always has room.
 */

void
rounds_line_enter(struct pbox_shard_job *j, struct pbox_record *r)
{
	PBOX_ASSERT(!r->listed);
	/* its first table in two phases: what one round needs, as in a job with slots */
	if (j->acc_kept == 0)
		j->acc_kept = j->slots > 1 ? 32 - (unsigned)__builtin_clz(j->slots - 1u) : 1;
	r->listed = true;
	r->newer = NULL;
	r->older = j->newest;
	*(j->newest != NULL ? &j->newest->newer : &j->oldest) = r;
	j->newest = r;
}

void
rounds_line_leave(struct pbox_shard_job *j, struct pbox_record *r)
{
	PBOX_ASSERT(r->listed);
	r->listed = false;
	*(r->older != NULL ? &r->older->newer : &j->oldest) = r->newer;
	*(r->newer != NULL ? &r->newer->older : &j->newest) = r->older;
}

void *
rounds_free_acc(const struct pbox_shard_job *j, const struct pbox_record *r)
{
	return r == j->oldest || j->n_free_acc > j->acc_kept ? j->free_acc : NULL;
}
