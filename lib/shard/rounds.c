/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Synchronous rounds: a contribution is new, a duplicate or late; a fragment that has all of them is summed. */

#include <string.h>

#include "hold.h"
#include "verdict.h"

/* Do its rounds have places by age? Where workers PUSH alone they send ahead of what is finished, as far as the table goes. */
static inline bool
is_lined(const struct target *g)
{
	return g->j->named || g->st->t->hold;
}

/* The record of the round in progress; NULL: all are taken. */
static struct pbox_record *
open_round(struct pbox_shard *s, const struct target *g)
{
	struct pbox_shard_job *j = g->j;
	struct pbox_record *r = g->fragment->record;

	if (r != NULL)
		return r;
	r = shard_record_open(s, g);
	if (r == NULL)
		return NULL;
	PBOX_ASSERT(!is_restoring(g) && r->arrived == 0);
	r->round.folded = r->round.unverified = 0;
	r->round.paced = r->round.up = r->round.sick = r->round.mixed = false;
	r->round.need = j->n_expected;
	r->round.partial = j->n_expected != j->slots;
	if (r->round.partial)
		memcpy(r->expect, j->expected, slot_words(j) * sizeof(*r->expect));
	r->level = 0;
	r->listed = false;
	if (__builtin_expect(j->named, 0)) {
		r->level = PBOX_MAX_LEVEL;
		memset(r->nodes, 0, slot_words(j) * sizeof(*r->nodes));
	}
	return r;
}

void
rounds_close(struct pbox_shard *s, const struct target *g)
{
	struct pbox_record *r = g->fragment->record;

	PBOX_ASSERT(!is_restoring(g));
	if (__builtin_expect(r->round.paced, 0))
		rounds_pace_remove(s, g->j, r);
	if (__builtin_expect(is_lined(g), 0) && r->listed)
		rounds_line_leave(g->j, r);
	rounds_unfold(g->j, r, 0);
	shard_record_close(s, g->j, g->fragment);
}

static bool
round_is_ready(const struct pbox_shard *s, const struct target *g)
{
	for (unsigned i = 0; i < s->n_ready; i++)
		if (s->ready[i].fragment == g->fragment)
			return true;
	return g->fragment->record->round.paced;
}

/* Slots that nobody waits for complete nothing, but where nobody is waited for at all: then who has brought all of its
 * own makes a round of what is there. */
static __attribute__((noinline, cold)) bool
completes_alone(const struct pbox_shard *s, const struct target *g, unsigned worker)
{
	const struct pbox_shard_job *j = g->j;
	const struct pbox_record *r = g->fragment->record;
	unsigned end = slots_end(j, worker);

	return bits_next(r->expect, 0, j->slots) == j->slots &&
	       bits_next_clear(r->has, slots_begin(j, worker), end) == end && !round_is_ready(s, g);
}

/* Slots that nobody waits for, of a round that is complete without them and does not end with this burst: it would
 * hold as many packets as its workers like to bring them in. */
static __attribute__((noinline, cold)) bool
is_surplus(const struct pbox_shard *s, const struct target *g, struct slots n, unsigned worker)
{
	const struct pbox_record *r = g->fragment->record;

	return is_extra(r, n.first) && (r->round.paced || !round_is_ready(s, g)) &&
	       !completes_alone(s, g, worker);
}

/* Its payload may be fp32 where others are not. */
static __attribute__((noinline, cold)) void
note_wide(const struct target *g, struct contribution *c, const struct pbox_frame *f)
{
	struct pbox_record *r = g->fragment->record;

	c->wide = f->hdr.length > 0 && f->hdr.format == PBOX_FMT_FP32;
	if (f->hdr.length > 0)
		__atomic_store_n(&g->j->member[f->hdr.worker].wide, c->wide, __ATOMIC_RELAXED);
	r->round.mixed |= c->wide;
}

/* Put a first contribution into the round; false when there is no room to hold it. */
static inline __attribute__((always_inline)) bool
keep_contribution(
	struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, struct slots n)
{
	struct pbox_shard_job *j = g->j;
	struct pbox_record *r = g->fragment->record;
	struct contribution *c = &r->from[n.first];
	bool holds = f->hdr.length > 0;

	c->handle = holds ? f->handle : NULL;
	r->payload[n.first] = holds ? f->payload : NULL;
	c->weight = pbox_push_samples(&f->hdr);
	c->unverified = f->unverified;
	c->level = (uint8_t)n.level;
	if (__builtin_expect(g->st->t->mixed, 0))
		note_wide(g, c, f);
	if (n.named)
		c->worker = f->hdr.worker;
	if (n.named && n.level < r->level)
		r->level = c->level;
	if (is_lined(g) && !r->listed)
		rounds_line_enter(j, r);
	r->round.unverified += f->unverified;
	slots_come(r, n);
	if (holds) {
		j->held++;
		pbox_stat_add(&s->stats[PBOX_SS_HELD], 1);
	}
	if (j->held <= j->hold_share ||
		(r->arrived == r->round.need && !(n.named && is_surplus(s, g, n, f->hdr.worker))))
		return true;
	/* the job is at its bound: first what is complete, then the front of this round */
	shard_finish_ready(s);
	if (j->held > j->hold_share && r->arrived != r->round.need)
		rounds_fold(s, g);
	if (j->held <= j->hold_share || !holds || c->handle != f->handle)
		return true;
	c->handle = NULL;
	slots_go(r, n);
	r->round.unverified -= f->unverified;
	j->held--;
	pbox_stat_add(&s->stats[PBOX_SS_HELD], (uint64_t)-1);
	return false;
}

/* R13.7: a difference is of use to who holds the version before the one that it asks for. */
static inline bool
wants_whole(const struct pbox_frame *f)
{
	return (f->hdr.flags & PBOX_F_LATEST) != 0 || pbox_copy_age_get(&f->hdr) != 1;
}

/* Remember whom to answer when the round is finished. */
static void
want_result(struct pbox_shard *s, const struct target *g, struct pbox_record *r,
	const struct pbox_frame *f)
{
	unsigned w = f->hdr.worker;

	/* as it was asked last: another process may have the number */
	if (__builtin_expect(g->c->replica != NULL, 0))
		r->from[w].whole = wants_whole(f);

	if (!pbox_bit_get(r->want, w)) {
		r->from[w].ts = f->hdr.ts;
		r->from[w].at_us = (uint32_t)(s->now_ns / 1000);
	}
	pbox_bit_set(r->want, w);
}

static inline void
count_contribution(const struct pbox_shard *s, struct shard_member *m, uint32_t repeat_ns,
	const struct pbox_frame *f)
{
	/* it counts once: no copy of it keeps the lease */
	atomic_store_explicit(&m->last_seen, s->now_ns, memory_order_relaxed);
	repeat_earn(&m->repeat, repeat_ns);
	pbox_stat_add(&m->contributions, 1);
	pbox_stat_add(&m->bytes, f->hdr.length);
	m->pushpull = f->hdr.type == PBOX_PUSHPULL;
	if (pbox_serial_diff(f->hdr.round, m->round) > 0 || m->contributions == 1)
		__atomic_store_n(&m->round, f->hdr.round, __ATOMIC_RELAXED);
}

/* The others' contributions have waited for this one, as far as somebody was there to see it: it may
 * itself have waited for the core. */
static inline void
count_last(const struct pbox_shard *s, struct shard_member *m, const struct pbox_record *r)
{
	uint64_t waited_ns = s->now_ns - r->since_ns;

	pbox_stat_add(&m->last, 1);
	if (waited_ns > s->away_ns)
		pbox_stat_add(&m->waited_ns, waited_ns - s->away_ns);
}

static struct pbox_record *
open_or_finish(struct pbox_shard *s, const struct target *g)
{
	struct pbox_record *r = open_round(s, g);

	if (r == NULL && s->n_ready > 0) { /* these are about to be free */
		shard_finish_ready(s);
		r = open_round(s, g);
	}
	return r;
}

/* Its worker knows that the box has not taken it, or one that it sent later, for the same round: it may send other
 * values then, and a copy does not come before them. */
static __attribute__((noinline, cold)) bool
was_refused(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct shard_member *m = &g->j->member[f->hdr.worker];

	if (m->refused_at == 0 ||
		atomic_load_explicit(&m->token, memory_order_relaxed) != f->hdr.token)
		return false;
	if (!verdict_intact(s, f))
		return true;
	if (verdict_sent_at(s, g->j, f) > m->refused_at)
		return false;
	shard_count(s, PBOX_SS_DROP_REPLAYED);
	return true;
}

static void
note_refused(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct shard_member *m = &g->j->member[f->hdr.worker];
	uint64_t at = verdict_sent_at(s, g->j, f);

	if (at <= m->refused_at)
		return;
	m->refused_at = at;
	m->refused = f->hdr.round;
}

/* Slots that are not in the round in progress so far. True: the packet is held. */
static inline __attribute__((always_inline)) bool
contribute_now(
	struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, struct slots n)
{
	struct pbox_record *r;

	if (__builtin_expect(g->j->member[f->hdr.worker].refused == f->hdr.round, 0) &&
		was_refused(s, g, f))
		return false;
	r = open_or_finish(s, g);
	if (r == NULL) {
		verdict_no_room(s, g, f, PBOX_SS_DROP_NO_RECORD);
		return false;
	}
	/* the node that these would belong to is summed without them; the round ends so */
	if (__builtin_expect(n.first < r->round.folded, 0) || !keep_contribution(s, g, f, n)) {
		verdict_no_room(s, g, f, PBOX_SS_DROP_NO_BUFFER);
		if (r->arrived == 0)
			rounds_close(s, g);
		return false;
	}
	shard_count(s, PBOX_SS_RX_CONTRIBUTION);
	pbox_stat_add(&s->stats[PBOX_SS_RX_BYTES], f->hdr.length);
	if (!pbox_bit_get(r->has, n.first)) /* folded, found damaged, and taken back already */
		return true;
	verdict_counts(s, g, f, g->verdict);
	count_contribution(s, &g->j->member[f->hdr.worker], g->j->repeat_ns, f);
	if (f->hdr.type == PBOX_PUSHPULL) {
		want_result(s, g, r, f);
	} else { /* no result will say when it was sent, and copies of it keep no lease */
		verdict_heard(s, g->j, f);
		rounds_push_ok(s, g, f);
	}
	if (r->arrived == r->round.need &&
		(!is_extra(r, n.first) || completes_alone(s, g, f->hdr.worker))) {
		count_last(s, &g->j->member[f->hdr.worker], r);
		rounds_complete(s, g);
	}
	return f->hdr.length > 0; /* if no longer held, it has come back through release */
}

/* A repetition that is intact, of a contribution that nobody has verified yet: it takes its place, for
 * that one may be damaged, and would cost its worker another round trip. True: the packet is held. */
static bool
replace_contribution(
	struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, struct slots n)
{
	struct pbox_record *r = g->fragment->record;
	struct contribution *c = &r->from[n.first];

	if (!c->unverified || c->handle == NULL || f->hdr.length == 0)
		return false;
	/* with a plan it may be a part of what is there, which another worker has brought */
	if (n.named && (!pbox_bit_get(r->nodes, n.first) || c->level != n.level))
		return false;
	PBOX_ASSERT(pbox_bit_get(r->has, n.first) &&
		    n.first >= r->round.folded); /* it counts already, and counts once */
	rounds_release(s, g->j, r, n.first, n.first + 1);
	c->handle = f->handle;
	c->weight = pbox_push_samples(&f->hdr);
	c->unverified = false;
	if (g->st->t->mixed)
		note_wide(g, c, f);
	if (n.named)
		c->worker = f->hdr.worker;
	r->payload[n.first] = f->payload;
	/* what the other one wished may be damaged, too */
	pbox_bit_clear(r->want, f->hdr.worker);
	g->j->held++;
	pbox_stat_add(&s->stats[PBOX_SS_HELD], 1);
	return true;
}

static bool
repeated_now(
	struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, struct slots n)
{
	bool held = replace_contribution(s, g, f, n);

	PBOX_ASSERT(!n.late && n.n > 0);

	shard_count(s, PBOX_SS_RX_DUP_PENDING);
	pbox_stat_add(&g->j->member[f->hdr.worker].repeats, 1);
	if (f->hdr.type == PBOX_PUSH) {
		rounds_push_ok(s, g, f);
	} else {
		want_result(s, g, g->fragment->record, f);
		shard_send_wait(s, g, f);
	}
	return held;
}

/* Is the version one that nobody had when it was restored (R10.6)? */
static bool
is_void(const struct pbox_fragment *fragment)
{
	return !fragment->has_result && fragment->version != 0;
}

static void
repeated_done(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	shard_count(s, PBOX_SS_RX_DUP_DONE);
	pbox_stat_add(&g->j->member[f->hdr.worker].repeats, 1);
	if (f->hdr.type == PBOX_PUSH)
		rounds_push_ok(s, g, f);
	else if (is_void(g->fragment))
		shard_send_error(s, g, f, PBOX_E_LOST);
	else
		shard_send_result(s, g, f->hdr.worker, f->hdr.ts, wants_whole(f));
}

static bool
has_rate(const struct target *g, uint32_t round)
{
	return g->st->t->mode != PBOX_MODE_OPTIMISER ||
	       rounds_scalars(g->st, g->c->group, round)->has_lr;
}

/* The slots that a frame brings, if it names one of the nodes that its worker is to bring (R5.2b): so no two that come have
 * a slot in common, also of two processes that had the number one after the other. Nodes that are cut to the slots that the
 * job has are of many levels; of these it gets the highest, so that what can be summed in large nodes is; not where slots
 * have weights, which are one each. */
static __attribute__((noinline)) bool
named_slots(const struct target *g, const struct pbox_frame *f, struct slots *n)
{
	const struct pbox_shard_job *j = g->j;
	unsigned first, last, end;
	bool leaves = g->st->t->op == PBOX_OP_WEIGHTED_MEAN;
	struct pbox_node node;

	if (!pbox_node_decode(pbox_push_slots_get(&f->hdr).node, j->slots, &node))
		return false;
	n->first = node.first;
	end = pbox_node_end(node, j->slots);
	if (!j->policy->range(g, f, node, &first, &last, n))
		return false;
	if (n->first < first || end > last)
		return false;
	if (leaves ? node.level > 0 : !pbox_node_is_of(node, first, last, j->slots))
		return false;
	while (end == j->slots && !leaves && node.level < PBOX_MAX_LEVEL &&
		(node.first >> node.level & 1) == 0)
		node.level++;
	n->n = (uint16_t)(end - node.first);
	n->level = node.level;
	return true;
}

/* Does the contribution name slots that its worker is to bring? */
static bool
names_own(const struct target *g, const struct pbox_frame *f)
{
	struct slots n = {.named = true};

	return !g->j->named || named_slots(g, f, &n);
}

/* All of a node come together. */
static inline bool
is_there(const struct pbox_record *r, struct slots n)
{
	return r != NULL && pbox_bit_get(r->has, n.first);
}

/* No slot counts twice: nodes that are a part of this one make way for it. False: some are summed already. */
static __attribute__((noinline, cold)) bool
parts_make_way(struct pbox_shard *s, const struct target *g, struct slots n)
{
	struct pbox_record *r = g->fragment->record;
	unsigned end = n.first + n.n;

	PBOX_ASSERT(g->j->policy == &slots_by_plan && n.named && !n.late);
	if (n.first < r->round.folded)
		return false;
	for (unsigned slot = n.first; (slot = bits_next(r->nodes, slot, end)) < end; slot++)
		rounds_drop_node(s, g, slot);
	return true;
}

/* A node of slots that were given to others: it counts for nothing, and its worker waits as if it did (R15.7). */
static __attribute__((noinline, cold)) bool
late_now(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_record *r = open_round(s, g);

	PBOX_ASSERT(g->j->policy ==
		    &slots_by_plan); /* else slots have the owners that they began with */
	shard_count(s, PBOX_SS_RX_DUP_PENDING);
	pbox_stat_add(&g->j->member[f->hdr.worker].repeats, 1);
	if (f->hdr.type == PBOX_PUSH) {
		rounds_push_ok(s, g, f);
		return false;
	}
	if (r != NULL)
		want_result(s, g, r, f);
	shard_send_wait(s, g, f);
	return false;
}

/* What is no first contribution to the round in progress, or comes too early: answered or counted by what the
 * frame says. True: the packet is held. */
static bool
repeated(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, int32_t ahead,
	struct slots n)
{
	bool ready = initialised(g), now = ahead == 1;

	if (n.late && ready && now)
		return late_now(s, g, f);
	if (ready && ahead < 0 && g->j->policy->overtaken(s, g, f))
		return false;
	if (n.n == 0) {
		shard_count(s, PBOX_SS_DROP_NODE);
		shard_send_error(s, g, f, PBOX_E_BAD_REQUEST);
		return false;
	}
	if (!ready) {
		note_refused(s, g, f);
		shard_send_unready(s, g, f);
	} else if (now && is_there(g->fragment->record, n)) {
		return repeated_now(s, g, f, n);
	} else if (now) {
		shard_count(s, PBOX_SS_RX_EARLY);
		note_refused(s, g, f);
		shard_send_error(s, g, f, PBOX_E_NO_LR);
	} else if (ahead > 1) {
		shard_count(s, PBOX_SS_DROP_ROUND_FUTURE);
	} else if (ahead < 0 || (f->hdr.round == 0 && g->fragment->contributors == 0)) {
		shard_count(s, PBOX_SS_DROP_ROUND_STALE); /* round 0 is nobody's contribution */
	} else {
		repeated_done(s, g, f);
	}
	return false;
}

/* All else (a duplicate or retransmission: its bit is set) is rare, and answered or counted by what
 * the frame says; but who sends too much is not worth a look at the payload. */
static __attribute__((noinline)) bool
not_new(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, int32_t ahead,
	struct slots n)
{
	return verdict_repeat(s, g, f) && repeated(s, g, f, ahead, n);
}

static inline __attribute__((always_inline)) bool
contribute(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, struct slots n)
{
	int32_t ahead = pbox_serial_diff(f->hdr.round, g->fragment->version);

	if (ahead == 2 && s->n_ready > 0) { /* the round before it may be complete */
		shard_finish_ready(s);
		ahead = pbox_serial_diff(f->hdr.round, g->fragment->version);
	}
	if (ahead == 1 && initialised(g) && n.n > 0 && !n.late &&
		!is_there(g->fragment->record, n) && has_rate(g, f->hdr.round))
		return contribute_now(s, g, f, n);
	return not_new(s, g, f, ahead, n);
}

static __attribute__((noinline)) bool
contribute_named(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct slots n = {.named = true};

	if (!named_slots(g, f, &n)) {
		n = (struct slots){.named = true};
	} else if (!n.late && g->j->policy->partly_there(g, f, n)) {
		if (!verdict_intact(s, f))
			return false;
		if (!parts_make_way(s, g, n))
			n = (struct slots){.named = true};
	}
	return contribute(s, g, f, n);
}

static bool
rounds_contribute(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	if (__builtin_expect(g->st->t->hold, 0) && hold_contribute(s, g, f, names_own(g, f)))
		return false;
	if (__builtin_expect(g->j->named, 0))
		return contribute_named(s, g, f);
	return contribute(s, g, f, (struct slots){.first = f->hdr.worker, .n = 1});
}

/* Somebody whose contributions ask for results needs no PULL, unless a packet was lost: its
 * contribution to the round in progress, or the result of the one before. Or the result was late, and
 * the question was under way when it came. */
static bool
has_lost(const struct target *g, const struct pbox_frame *f, int32_t ahead)
{
	if ((f->hdr.flags & PBOX_F_LATEST) != 0 || !g->j->member[f->hdr.worker].pushpull)
		return false;
	return ahead == 0 ? g->fragment->has_result != 0 && !g->fragment->late
			  : !rounds_has_brought(g, f->hdr.worker);
}

static void
rounds_pull(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	int32_t ahead = pbox_serial_diff(f->hdr.round, g->fragment->version);
	bool latest = (f->hdr.flags & PBOX_F_LATEST) != 0;
	bool answer = g->fragment->has_result && (latest || ahead == 0);
	bool none = (latest || ahead == 0) && is_void(g->fragment);
	bool nothing = ahead == 0 && f->hdr.round == 0 && !g->fragment->has_result &&
		       g->st->t->mode == PBOX_MODE_ALLREDUCE;
	struct pbox_record *r = g->fragment->record;

	if (__builtin_expect(g->st->t->hold, 0) && hold_pull(s, g, f))
		return;
	if (!latest && ahead > 1) {
		shard_count(s, PBOX_SS_DROP_ROUND_FUTURE);
		return;
	}
	if (!latest && (ahead < 0 || nothing)) {
		if (nothing || !initialised(g) || !g->j->policy->overtaken(s, g, f))
			shard_count(s, PBOX_SS_DROP_ROUND_STALE);
		return;
	}
	if (answer && !verdict_payload(s, g))
		return;
	shard_count(s, PBOX_SS_RX_PULL);
	pbox_stat_add(&g->j->member[f->hdr.worker].pulls, 1);
	pbox_stat_add(&g->j->member[f->hdr.worker].repeats, has_lost(g, f, ahead));
	if (answer) {
		shard_send_result(s, g, f->hdr.worker, f->hdr.ts, wants_whole(f));
		return;
	}
	if (none) {
		shard_send_error(s, g, f, PBOX_E_LOST);
		return;
	}
	/* the result follows when it is there, unless all records are taken: then the worker's
	 * next probe gets it. Before INIT only version 0 can be waited for. LATEST takes no record:
	 * a restarted worker asks so for all fragments at once, far beyond its window. */
	if (!latest && (initialised(g) || ahead == 0))
		r = open_round(s, g);
	if (r != NULL && (initialised(g) || latest || ahead == 0))
		want_result(s, g, r, f);
	shard_send_wait(s, g, f);
}

static void
rounds_owners(struct pbox_shard *s, const struct target *g)
{
	PBOX_ASSERT(g->j->policy == &slots_by_plan && g->fragment->record->open);
	rounds_verify(s, g, 0, g->j->slots);
}

/* Nobody waits for their slots any more, so they are sent nothing of this round. */
static void
forget_wishes(struct pbox_shard_job *j, struct pbox_record *r)
{
	for (unsigned i = 0; i < words_of(j); i++)
		for (uint64_t left = r->want[i] & ~j->inbox.members[i]; left != 0;
			left &= left - 1) {
			unsigned w = i * 64 + (unsigned)__builtin_ctzll(left);

			if (pbox_bit_get(r->expect, slots_begin(j, w)))
				pbox_bit_clear(r->want, w);
		}
}

/*
 * Policy shrink (R8.5): which slots a round waits for, those of the members. All of them is the rule, and
 * then a round has no set of its own: it is complete when as many have come as the job has. Else
 * (partial) it has one, and `need` counts those of the set and all others that have come,
 * so that the comparison stays the same. Who comes back is waited for from the next round on.
 */
static void
rounds_members(struct pbox_shard *s, const struct target *g)
{
	struct pbox_shard_job *j = g->j;
	struct pbox_record *r = g->fragment->record;
	bool fewer = false;

	PBOX_ASSERT(r->open && r->arrived <= r->round.need && r->round.need <= j->slots);
	if (!r->round.partial) {
		memset(r->expect, 0, slot_words(j) * sizeof(*r->expect));
		bits_set(r->expect, 0, j->slots);
		r->round.partial = true;
	}
	forget_wishes(j, r);
	for (unsigned i = 0; i < slot_words(j); i++) {
		uint64_t gone = r->expect[i] & ~j->expected[i];

		/* what they have contributed counts: they are some of the others now */
		r->round.need -= (uint16_t)__builtin_popcountll(gone & ~r->has[i]);
		r->expect[i] &= ~gone;
		fewer |= gone != 0;
	}
	if (!fewer || r->arrived != r->round.need)
		return;
	if (r->arrived == 0) { /* who comes back begins another, and is waited for */
		rounds_close(s, g);
		return;
	}
	if (s->n_ready == PBOX_SHARD_BURST)
		shard_finish_ready(s);
	rounds_complete(s, g);
}

/* Its workers bring their contributions again, where the chunk is. */
static void
rounds_leave(struct pbox_shard *s, const struct target *g)
{
	rounds_release(
		s, g->j, g->fragment->record, g->fragment->record->round.folded, g->j->slots);
	rounds_close(s, g);
}

static void
rounds_drop(struct pbox_shard *s, const struct target *g)
{
	struct pbox_record *r = g->fragment->record;

	if (r->round.paced) /* all that are there end with their job */
		rounds_pace_clear(s, g->j);
	if (r->round.up)
		rounds_up_remove(s, r);
	rounds_release(s, g->j, r, r->round.folded, g->j->slots);
}

static size_t
rounds_bytes(const struct pbox_table *t, unsigned workers)
{
	(void)workers;
	return t->n_groups * sizeof(struct rounds_group[2]) + hold_bytes_of(t);
}

const struct discipline rounds_discipline = {
	.contribute = rounds_contribute,
	.pull = rounds_pull,
	.burst = rounds_burst,
	.norm = hold_norm,
	.missing = rounds_missing,
	.wait = rounds_wait_says,
	.members = rounds_members,
	.owners = rounds_owners,
	.report = rounds_report,
	.leave = rounds_leave,
	.bring = rounds_bring,
	.done = rounds_done,
	.at_cut = rounds_at_cut,
	.drop = rounds_drop,
	.bytes = rounds_bytes,
};
