/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Tables in clocks (section 14 of the protocol): a contribution is applied when it comes, and nobody waits for anybody.
 * Each fragment keeps the clock of the last push of each worker, which makes a push count once. Answers are copied: the
 * next push changes what they would read.
 */

#include <string.h>

#include "clock.h"
#include "verdict.h"

/* Pushes of a burst to one fragment that are applied in one pass. */
#define PUSHES_AT_ONCE 8

/* Do pulls wait for it? */
static bool
counts(const struct pbox_shard_job *j, unsigned worker)
{
	return pbox_bit_get(j->expected, worker) && !pbox_bit_get(j->left, worker);
}

static void
find_slowest(const struct target *g)
{
	const struct pbox_shard_job *j = g->j;
	const uint32_t *clock = clocks_of(g);
	struct slowest *low = slowest_of(g);
	uint32_t least = 0;
	bool any = false;

	low->members = j->members_set;
	low->n = 0;
	for (unsigned w = 0; w < j->job->workers; w++)
		if (counts(j, w) && (!any || pbox_serial_diff(clock[w], least) < 0)) {
			least = clock[w];
			any = true;
		}
	PBOX_ASSERT(low->first == 0 || low->pushes > 0);
	if (any && pbox_serial_diff(least, low->clock) > 0)
		low->clock = least;
	for (unsigned w = 0; w < j->job->workers; w++)
		low->n += counts(j, w) && pbox_serial_diff(clock[w], low->clock) <= 0;
}

static uint32_t
slowest_clock(const struct target *g)
{
	if (slowest_of(g)->members != g->j->members_set)
		find_slowest(g);
	return slowest_of(g)->clock;
}

static void
advance_clock(const struct target *g, unsigned w)
{
	struct slowest *low = slowest_of(g);
	uint32_t *clock = clocks_of(g), had = clock[w];

	PBOX_ASSERT(w < g->j->job->workers);
	clock[w] = had + 1;
	if (had == low->clock && low->members == g->j->members_set && counts(g->j, w) &&
		--low->n == 0)
		find_slowest(g);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* What it is of the answer now: pushes do not make it, as most are followed by others. */
static uint32_t
answer_crc(struct pbox_shard *s, const struct target *g)
{
	const struct pbox_table *t = g->st->t;

	if (g->fragment->crc_is_old)
		g->fragment->payload_crc =
			s->conf.reduce->crc32c(0, shard_answer_at(g, t->pull_format),
				pbox_payload_bytes(t->pull_format, g->elements));
	g->fragment->crc_is_old = false;
	return g->fragment->payload_crc;
}

static void
answer_push(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, bool had)
{
	const struct pbox_push_ok_clock m = {.clock = f->hdr.round,
		.version = g->fragment->version,
		.slowest = slowest_clock(g),
		.had = had};
	struct pbox_send out = shard_answer(g, PBOX_PUSH_OK, f->hdr.ts);

	pbox_push_ok_clock_put(&out.hdr, &m);
	shard_send_to(s, g, &out, f->hdr.worker);
}

/* held: for how long it was waited for, microseconds. */
static void
answer_result(
	struct pbox_shard *s, const struct target *g, unsigned worker, uint32_t ts, uint32_t held)
{
	const struct pbox_table *t = g->st->t;
	size_t bytes = pbox_payload_bytes(t->pull_format, g->elements);
	const struct pbox_result_clock m = {.version = g->fragment->version,
		.own = clocks_of(g)[worker],
		.slowest = slowest_clock(g),
		.members = g->j->n_expected};
	struct pbox_send out = shard_answer(g, PBOX_RESULT, ts);

	out.hdr.flags = PBOX_F_LAST;
	out.hdr.length = (uint16_t)(bytes + t->vector);
	out.hdr.format = t->pull_format;
	out.hdr.held = held;
	out.payload = shard_answer_at(g, t->pull_format);
	out.payload_crc = answer_crc(s, g);
	out.n_tail = t->vector;
	out.tail = s->vector;
	pbox_result_clock_put(&out.hdr, &m);
	for (unsigned w = 0; w < t->vector; w++)
		s->vector[w] = (uint8_t)clocks_of(g)[w];
	out.payload_crc = s->conf.reduce->crc32c(out.payload_crc, s->vector, t->vector);
	if (g->j->tagged != 0) { /* a digest is of one piece of memory */
		pbox_send_payload(s->scratch, &out);
		out.payload = s->scratch;
		out.n_tail = 0;
	}
	shard_send_copy(s, g, &out, worker);
}

/* ---- pulls that wait ---------------------------------------------------------------------------- */

/* They are in the fragment's record: bits of want, and by worker what they are about. */

/* How many clocks the slowest member lacks for a pull that waits. */
static uint32_t
lacks(const struct target *g, unsigned worker)
{
	return g->fragment->record->from[worker].bound - slowest_clock(g);
}

static bool
is_waiting(const struct target *g, unsigned worker)
{
	const struct pbox_record *r = g->fragment->record;

	return r != NULL && pbox_bit_get(r->want, worker);
}

/* Without a record it is only asked again, later. */
static void
wait_for(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct pbox_record *r = g->fragment->record;
	struct contribution *c;

	if (r == NULL)
		r = shard_record_open(s, g);
	if (r == NULL)
		return;
	c = &r->from[f->hdr.worker];
	if (!pbox_bit_get(r->want, f->hdr.worker))
		r->arrived++;
	pbox_bit_set(r->want, f->hdr.worker);
	c->bound = pbox_pull_clock_get(&f->hdr).bound;
	c->ts = f->hdr.ts;
	c->at_us = (uint32_t)(s->now_ns / 1000);
}

static void
waits_no_more(struct pbox_shard *s, const struct target *g, unsigned worker)
{
	struct pbox_record *r = g->fragment->record;

	PBOX_ASSERT(is_waiting(g, worker));
	pbox_bit_clear(r->want, worker);
	PBOX_ASSERT(r->arrived > 0);
	if (--r->arrived == 0)
		shard_record_close(s, g->j, g->fragment);
}

/* The slowest clock may have moved: answer those that have waited for it. */
static void
serve(struct pbox_shard *s, const struct target *g)
{
	const struct pbox_record *r = g->fragment->record;
	uint32_t now_us = (uint32_t)(s->now_ns / 1000);

	for (unsigned w = 0; r != NULL && r->open && w < g->j->job->workers; w++)
		if (pbox_bit_get(r->want, w) && (int32_t)lacks(g, w) <= 0) {
			answer_result(s, g, w, r->from[w].ts, now_us - r->from[w].at_us);
			waits_no_more(s, g, w);
		}
}

/* ---- pushes ------------------------------------------------------------------------------------ */

static float
factor_of(const struct pbox_frame *f)
{
	uint32_t bits = (uint32_t)pbox_push_clock_get(&f->hdr).factor << 16;
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/*
 * Add n pushes, one after the other, and verify them on the way: the new version is made beside the one that is there, and takes
 * its place if all are intact. False: they are not, and nothing has changed.
 */
static bool
add_pushes(struct pbox_shard *s, const struct target *g, const struct pbox_frame *const *f,
	unsigned n, const void *const *next, unsigned n_next)
{
	const struct pbox_table *t = g->st->t;
	float *now = pbox_chunk_frag_param(t, g->c, g->frag);
	/* the last fragment of a chunk may be shorter than the others, and keeps its place */
	float *spare = g->elements == t->frag_elements ? g->st->spare[g->c->endpoint] : NULL;
	float *to = spare != NULL ? spare : s->scratch;
	const float *acc = now;
	const void *payload[PUSHES_AT_ONCE];
	float factor[PUSHES_AT_ONCE];
	struct pbox_sources src = {
		.src = payload,
		.weight = factor,
		.n = n,
		.elem = (enum pbox_format)t->push_format,
		.acc = &acc,
		.header = PBOX_HDR_LEN,
		.next = next,
		.n_next = n_next,
	};

	for (unsigned i = 0; i < n; i++) {
		payload[i] = f[i]->hdr.length > 0 ? f[i]->payload : NULL;
		factor[i] = factor_of(f[i]);
		if (f[i]->unverified)
			src.intact = &s->intact;
		/* one without a payload has only its header, which this does not look at */
		if (payload[i] == NULL && !verdict_is_intact(f[i]))
			return false;
	}
	s->conf.reduce->add(to, &src, g->elements);
	if (src.intact != NULL && !*src.intact)
		return false;
	if (spare != NULL) {
		pbox_chunk_frag_move(t, g->c, g->frag, spare);
		g->st->spare[g->c->endpoint] = now;
	} else {
		memcpy(now, to, g->elements * sizeof(*now));
		to = now;
	}
	if (g->c->wire != NULL)
		s->conf.reduce->pack(
			pbox_chunk_frag_wire(t, g->c, g->frag), t->pull_format, to, g->elements);
	g->fragment->crc_is_old = true;
	return true;
}

static void
count_push(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct shard_member *m = &g->j->member[f->hdr.worker];

	shard_count(s, PBOX_SS_RX_CONTRIBUTION);
	pbox_stat_add(&s->stats[PBOX_SS_RX_BYTES], f->hdr.length);
	atomic_store_explicit(&m->last_seen, s->now_ns, memory_order_relaxed);
	atomic_store_explicit(&m->ts, f->hdr.ts, memory_order_relaxed);
	repeat_earn(&m->repeat, g->j->repeat_ns);
	pbox_stat_add(&m->contributions, 1);
	pbox_stat_add(&m->bytes, f->hdr.length);
	if (pbox_serial_diff(f->hdr.round, m->round) > 0 || m->contributions == 1)
		__atomic_store_n(&m->round, f->hdr.round, __ATOMIC_RELAXED);
}

/* Before its version is counted: how many pushes came after the one from which it was made? */
static void
count_stale(const struct target *g, const struct pbox_frame *f)
{
	int32_t by = pbox_serial_diff(g->fragment->version, pbox_push_clock_get(&f->hdr).from);
	unsigned class = by > 0 ? 32 - (unsigned)__builtin_clz((unsigned)by) : 0;

	if (class >= PBOX_STALE_CLASSES)
		class = PBOX_STALE_CLASSES - 1;
	pbox_stat_add(&g->j->stale[f->hdr.worker * PBOX_STALE_CLASSES + class], 1);
}

/* It is intact, and applied. */
static void
taken(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, struct verdict v)
{
	/* the next one of its worker, and so it counts once (R14.3) */
	PBOX_ASSERT(f->hdr.round == clocks_of(g)[f->hdr.worker] + 1 && initialised(g));
	verdict_counts(s, g, f, v);
	verdict_heard(s, g->j, f);
	count_stale(g, f);
	g->fragment->version++;
	shard_finished(g->st, g->fragment->version);
	shard_count(s, PBOX_SS_ROUNDS);
	advance_clock(g, f->hdr.worker);
	count_push(s, g, f);
	if (g->j->rate.interval != 0)
		job_rate_ended(&g->j->rate, 1, s->now_ns);
	if (f->hdr.type == PBOX_PUSHPULL)
		answer_result(s, g, f->hdr.worker, f->hdr.ts, 0);
	else
		answer_push(s, g, f, false);
}

/* The payloads of what is applied next, to be fetched meanwhile. */
static unsigned
pushed_next(const struct pbox_shard *s, const struct target *next, const void **payload)
{
	unsigned n = 0;

	for (unsigned i = next != NULL ? slowest_of(next)->first : 0; i != 0;
		i = s->pushed[i - 1].next)
		payload[n++] = s->pushed[i - 1].f->payload;
	return n;
}

/* Apply the pushes of this burst to the fragment. Only the last one may be a PUSHPULL: its RESULT is of all. */
static void
apply_pushed(struct pbox_shard *s, const struct target *g, const struct target *next)
{
	struct slowest *low = slowest_of(g);
	const struct pbox_frame *f[PUSHES_AT_ONCE];
	struct verdict v[PUSHES_AT_ONCE];
	const void *ahead[PUSHES_AT_ONCE];
	unsigned n = 0, n_ahead = pushed_next(s, next, ahead);
	uint32_t had = low->clock;

	for (unsigned i = low->first; i != 0; i = s->pushed[i - 1].next) {
		f[n] = s->pushed[i - 1].f;
		v[n++] = s->pushed[i - 1].verdict;
	}
	PBOX_ASSERT(n == low->pushes && n <= PUSHES_AT_ONCE);
	low->first = low->last = low->pushes = 0;
	if (n > 1 && add_pushes(s, g, f, n, ahead, n_ahead)) {
		for (unsigned i = 0; i < n; i++)
			taken(s, g, f[i], v[i]);
		n = 0;
	}
	/* one is damaged: each by itself */
	for (unsigned i = 0; i < n; i++) {
		if (add_pushes(s, g, &f[i], 1, ahead, n_ahead))
			taken(s, g, f[i], v[i]);
		else
			shard_count(s, PBOX_SS_DROP_CRC);
	}
	if (low->clock != had)
		serve(s, g);
}

/* A push of this worker waits for the end of the burst: it has not moved its clock yet. */
static bool
has_pushed(const struct pbox_shard *s, const struct target *g, unsigned worker)
{
	for (unsigned i = slowest_of(g)->first; i != 0; i = s->pushed[i - 1].next)
		if (s->pushed[i - 1].f->hdr.worker == worker)
			return true;
	return false;
}

/* The next one of its worker: applied at the end of the burst, with others to the fragment, or now if somebody waits for
 * what follows from it. */
static void
take(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	struct slowest *low = slowest_of(g);

	PBOX_ASSERT(s->n_pushed < PBOX_SHARD_BURST && low->pushes < PUSHES_AT_ONCE &&
		    !has_pushed(s, g, f->hdr.worker));
	s->pushed[s->n_pushed++] = (struct clock_push){.f = f, .verdict = g->verdict};
	if (low->first == 0) {
		low->first = (uint8_t)s->n_pushed;
		s->ready[s->n_ready++] = *g;
	} else {
		s->pushed[low->last - 1].next = s->n_pushed;
	}
	low->last = (uint8_t)s->n_pushed;
	low->pushes++;
	if (low->pushes == PUSHES_AT_ONCE || f->hdr.type == PBOX_PUSHPULL ||
		g->j->rate.interval != 0)
		apply_pushed(s, g, NULL);
}

/* What changes nothing: it was taken before, or comes too early; or the job's rate has no room for it. */
static void
not_taken(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f, int32_t ahead)
{
	if (!initialised(g)) {
		shard_send_unready(s, g, f);
	} else if (ahead == 1) {
		shard_count(s, PBOX_SS_RX_EARLY);
		shard_send_wait(s, g, f);
	} else if (ahead > 1) {
		shard_count(s, PBOX_SS_DROP_ROUND_FUTURE);
	} else if (ahead < 0 || (f->hdr.round == 0 && g->fragment->version == 0)) {
		shard_count(s, PBOX_SS_DROP_ROUND_STALE);
	} else {
		shard_count(s, PBOX_SS_RX_DUP_DONE);
		pbox_stat_add(&g->j->member[f->hdr.worker].repeats, 1);
		if (f->hdr.type == PBOX_PUSHPULL)
			answer_result(s, g, f->hdr.worker, f->hdr.ts, 0);
		else
			answer_push(s, g, f, true);
	}
}

static bool
clock_contribute(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	int32_t ahead;

	if (slowest_of(g)->first != 0 && has_pushed(s, g, f->hdr.worker))
		apply_pushed(s, g, NULL);
	ahead = pbox_serial_diff(f->hdr.round, clocks_of(g)[f->hdr.worker]);
	if (ahead == 1 && initialised(g) &&
		(g->j->rate.interval == 0 || job_rate_due(&g->j->rate, s->now_ns)))
		take(s, g, f);
	else if (verdict_repeat(s, g, f))
		not_taken(s, g, f, ahead);
	return false;
}

/* ---- questions ---------------------------------------------------------------------------------- */

static void
clock_pull(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	const struct pbox_pull_clock m = pbox_pull_clock_get(&f->hdr);
	bool answer;

	apply_pushed(s, g, NULL);
	answer = initialised(g) && (m.latest || pbox_serial_diff(slowest_clock(g), m.bound) >= 0);
	if (answer && !verdict_payload(s, g))
		return;
	shard_count(s, PBOX_SS_RX_PULL);
	pbox_stat_add(&g->j->member[f->hdr.worker].pulls, 1);
	if (answer) {
		if (is_waiting(g, f->hdr.worker))
			waits_no_more(s, g, f->hdr.worker);
		answer_result(s, g, f->hdr.worker, f->hdr.ts, 0);
		return;
	}
	if (initialised(g))
		wait_for(s, g, f);
	shard_send_wait(s, g, f);
}

/* The first of the slowest members. */
static unsigned
first_behind(const struct target *g)
{
	uint32_t low = slowest_clock(g);

	for (unsigned w = 0; w < g->j->job->workers; w++)
		if (counts(g->j, w) && pbox_serial_diff(clocks_of(g)[w], low) <= 0)
			return w;
	return PBOX_NO_WORKER;
}

/* A pull, which has round 0, waits for the slowest member; all else before INIT, or beyond the rate: nobody is missing then. */
static void
clock_wait(const struct target *g, unsigned worker, struct pbox_hdr *h)
{
	bool pull = h->round == 0 && is_waiting(g, worker);
	struct pbox_wait_clock m = {.version = g->fragment->version};

	m.missing = !initialised(g) ? 0 : pull ? first_behind(g) : PBOX_WAIT_NOBODY;
	if (pull)
		m.lacks = (uint16_t)(lacks(g, worker) < UINT16_MAX ? lacks(g, worker) : UINT16_MAX);
	pbox_wait_clock_put(h, &m);
}

/* ---- what rounds have ---------------------------------------------------------------------------- */

/* Records are of pulls that wait, or of a restart of the box (clock_restore.c). */
static void
clock_burst(struct pbox_shard *s, const struct target *g, const struct target *next)
{
	apply_pushed(s, g, next);
}

static void
clock_missing(const struct target *g, uint64_t *set)
{
	uint32_t low = slowest_clock(g);

	for (unsigned w = 0; w < g->j->job->workers; w++)
		if (counts(g->j, w) && pbox_serial_diff(clocks_of(g)[w], low) <= 0)
			pbox_bit_set(set, w);
}

/* Of the pull that lacks most. */
static void
clock_why(const struct target *g, struct pbox_why_round *out)
{
	uint32_t most = 0;

	out->round = g->fragment->version;
	out->clocks = true;
	out->clock = slowest_clock(g);
	for (unsigned w = 0; w < g->j->job->workers; w++)
		if (is_waiting(g, w) && lacks(g, w) > most) {
			most = lacks(g, w);
			out->lag = clocks_of(g)[w] - out->clock;
			out->bound = out->lag - most;
		}
}

static void
clock_members(struct pbox_shard *s, const struct target *g)
{
	serve(s, g);
}

static enum discipline_cut
clock_at_cut(const struct pbox_fragment *fragment, const struct pbox_staging *staging)
{
	(void)fragment;
	(void)staging;
	return CUT_PASSED;
}

static void
clock_drop(struct pbox_shard *s, const struct target *g)
{
	(void)s;
	(void)g;
}

static size_t
clock_state_bytes(const struct pbox_table *t, unsigned workers)
{
	(void)t;
	(void)workers;
	return 0;
}

static unsigned
clock_clocks(unsigned workers)
{
	return workers + (unsigned)(sizeof(struct slowest) / sizeof(uint32_t));
}

const struct discipline clock_discipline = {
	.contribute = clock_contribute,
	.pull = clock_pull,
	.burst = clock_burst,
	.missing = clock_missing,
	.why = clock_why,
	.wait = clock_wait,
	.members = clock_members,
	.report = clock_report,
	.late = clock_late,
	.done = clock_done,
	.vector = pbox_clock_vector,
	.at_cut = clock_at_cut,
	.drop = clock_drop,
	.bytes = clock_state_bytes,
	.clocks = clock_clocks,
	.moves_on = true,
};
