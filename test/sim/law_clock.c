/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "law.h"
#include "law_updates.h"

/*
 * The law of tables in clocks. A version is one more push. The checker applies a push itself when the box says that it has:
 * by the PUSH_OK that names the version, or by the RESULT of the next version that answers a PUSHPULL. So the box
 * and the checker have the same pushes in the same order, or the run fails:
 *
 * L1 a push counts once, and those of a worker in their order, without gaps;
 * L2 what is acknowledged has arrived intact;
 * L3 a RESULT is what follows from the pushes so far, bit for bit;
 * L4 it says how many of them are the addressee's, and who is slowest;
 * L5 it is of the version that is there when it is sent;
 * L6 with a bound, no member's clock is below that: at the box, and for what the program gets;
 * L7 its memory does not change before it is read;
 * L8 after a restart of the box the pushes so far are those of the newest version that a restorer holds, and then each worker's
 *    after those, in order: who lives loses none.
 *
 * What a program gets is one of these versions, none before one that it had, with all pushes of its own added.
 */

#define ARRIVALS 6 /* intact pushes of one worker that are kept */
#define PAST \
	128 /* versions: with a restart, more than all workers may have pushed since one was shown */
#define ASKED 16 /* PULLs of one worker */

struct arrival {
	uint32_t clock, ts;
	uint16_t aux;
	uint8_t type;
	bool zero;
};

struct asked {
	uint32_t ts, bound;
	bool latest;
};

struct past {
	uint32_t version, last[SIM_WORKERS];
};

/* What a worker has reported to a box that was started again. */
struct told {
	uint64_t token;
	uint32_t version, own;
	uint16_t epoch;
	bool have;
};

/* Of a fragment. */
struct clock {
	uint32_t version, first, last[SIM_WORKERS];
	/* By piece: the version that the latest round has got; the least and the highest where several have the same bytes.
	 * An operation of an earlier round may end later. */
	struct {
		uint32_t round, least, most;
	} delivered[SIM_WORKERS][PBOX_MAX_SEGMENTS];
	struct arrival arrival[SIM_WORKERS][ARRIVALS];
	unsigned arrivals[SIM_WORKERS];
	struct asked asked[SIM_WORKERS][ASKED];
	unsigned n_asked[SIM_WORKERS];
	struct told told[SIM_WORKERS];
	struct told given; /* what was given with its payload */
	uint8_t given_payload[SIM_MTU];
	/* It was away when the box was restored: what it had pushed may be lost, and its clocks are others then. */
	bool away[SIM_WORKERS];
	struct past past[PAST]; /* by version */
	float memory[];         /* of past versions, then payloads of arrivals */
};

static unsigned
workers_of(const struct sim *s, unsigned job)
{
	return s->sc.job[job].workers;
}

static float *
past_param(const struct sim_fragment *f, struct clock *c, uint32_t version)
{
	return c->memory + (size_t)(version % PAST) * f->elements;
}

static uint8_t *
payload_of(const struct sim_fragment *f, struct clock *c, unsigned worker, unsigned i)
{
	return (uint8_t *)(c->memory + (size_t)PAST * f->elements +
			   (size_t)(worker * ARRIVALS + i) * (f->elements + 1));
}

static void
remember(const struct sim_fragment *f, struct clock *c)
{
	struct past *p = &c->past[c->version % PAST];

	p->version = c->version;
	memcpy(p->last, c->last, sizeof(p->last));
	memcpy(past_param(f, c, c->version), f->param, f->elements * sizeof(*f->param));
	if (c->version - c->first >= PAST)
		c->first = c->version - PAST + 1;
}

static struct clock *
clock_of(struct sim *s, unsigned job, struct sim_fragment *f)
{
	/* codes of few elements are longer than these */
	size_t floats = (size_t)PAST * f->elements +
			(size_t)workers_of(s, job) * ARRIVALS * (f->elements + 1);

	sim_reference_begin(&s->sc, job, s->job[job].life, f);
	if (f->clock != NULL)
		return f->clock;
	f->clock = calloc(1, sizeof(struct clock) + floats * sizeof(float));
	PBOX_ASSERT(f->clock != NULL);
	remember(f, f->clock);
	return f->clock;
}

bool
clock_was_away(const struct sim_fragment *f, unsigned worker)
{
	return f->clock != NULL && ((const struct clock *)f->clock)->away[worker];
}

static uint32_t
slowest_of(const struct sim *s, unsigned job, const uint32_t *last)
{
	uint32_t low = last[0];

	for (unsigned w = 1; w < workers_of(s, job); w++)
		low = last[w] < low ? last[w] : low;
	return low;
}

static uint32_t
slowest(const struct sim *s, unsigned job, const struct clock *c)
{
	return slowest_of(s, job, c->last);
}

/* What a process that has begun with the job sends as push s is what its program has pushed as that: also when it is sent again. */
static void
check_content(struct sim *s, unsigned job, const struct sim_fragment *f, const struct clock *c,
	const struct pbox_hdr *h, const uint8_t *payload)
{
	struct sim_push k = {.job = job,
		.life = s->job[job].life,
		.table = f->table,
		.slot = h->worker,
		.round = h->round};
	uint8_t push[SIM_MTU];
	size_t at = 0;

	if (c->away[h->worker] || s->sc.job[job].restarts > 0 || s->box->forging ||
		updates_are(&s->sc, job, f))
		return;
	for (unsigned i = 0; i < f->pieces; i++) {
		const struct sim_piece *p = &f->piece[i];
		struct sim_piece alone = *p;
		size_t bytes = (size_t)p->elements *
			       pbox_format_size(sim_spec(&s->sc, job, f)->fixed.push_format);

		alone.at = 0;
		sim_contribution(&s->sc, &k, &alone, push);
		if ((h->flags & PBOX_F_ZERO) == 0 && memcmp(push, payload + at, bytes) != 0)
			sim_fail(s,
				"job %u chunk %x frag %u: what worker %u sends as push %u is not that",
				job, f->chunk, f->frag, h->worker, h->round);
		at += bytes;
	}
}

static void
clock_contribution(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload, bool intact)
{
	struct clock *c;
	unsigned at;

	if (!intact || h->worker >= workers_of(s, job) ||
		h->length > (f->elements + 1) * sizeof(float))
		return;
	c = clock_of(s, job, f);
	at = c->arrivals[h->worker]++ % ARRIVALS;
	check_content(s, job, f, c, h, payload);
	c->arrival[h->worker][at] = (struct arrival){.clock = h->round,
		.ts = h->ts,
		.aux = h->aux,
		.type = h->type,
		.zero = (h->flags & PBOX_F_ZERO) != 0};
	memcpy(payload_of(f, c, h->worker, at), payload, h->length);
}

static void
clock_asked(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	struct clock *c;

	if (h->worker >= workers_of(s, job))
		return;
	c = clock_of(s, job, f);
	c->asked[h->worker][c->n_asked[h->worker]++ % ASKED] = (struct asked){
		.ts = h->ts, .bound = h->base, .latest = (h->flags & PBOX_F_LATEST) != 0};
}

/* Does a PULL of that time wait for members that are slower? */
static bool
is_bound(struct sim *s, unsigned job, const struct clock *c, unsigned worker, uint32_t ts)
{
	bool bound = false;

	for (unsigned i = 0; i < ARRIVALS && i < c->arrivals[worker]; i++)
		if (c->arrival[worker][i].type == PBOX_PUSHPULL && c->arrival[worker][i].ts == ts)
			return false; /* it may be the answer to that */
	for (unsigned i = 0; i < ASKED && i < c->n_asked[worker]; i++) {
		const struct asked *a = &c->asked[worker][i];

		if (a->ts != ts)
			continue;
		if (a->latest || pbox_serial_diff(slowest(s, job, c), a->bound) >= 0)
			return false;
		bound = true;
	}
	return bound;
}

/* The next push of the worker, which came intact in a frame of that time: apply it. False: there is none. */
static bool
clock_apply(struct sim *s, unsigned job, struct sim_fragment *f, unsigned worker, uint8_t type,
	uint32_t ts)
{
	struct clock *c = clock_of(s, job, f);
	unsigned format = sim_spec(&s->sc, job, f)->fixed.push_format;

	for (unsigned i = 0; i < ARRIVALS && i < c->arrivals[worker]; i++) {
		const struct arrival *a = &c->arrival[worker][i];

		if (a->clock != c->last[worker] + 1 || a->type != type || a->ts != ts)
			continue;
		updates_add(f->param, payload_of(f, c, worker, i), format, a->aux, a->zero,
			f->elements);
		c->last[worker]++;
		f->published = ++c->version;
		remember(f, c);
		s->box->progress_at = s->now;
		return true;
	}
	return false;
}

static void
clock_pushed(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	struct clock *c = clock_of(s, job, f);

	if (h->worker >= workers_of(s, job))
		return;
	if ((h->flags & PBOX_F_HAVE) != 0) {
		if (h->round != c->last[h->worker] || h->base != c->version)
			sim_fail(s,
				"job %u chunk %x frag %u: PUSH_OK with HAVE of clock %u at version %u to worker %u, whose last is %u of version %u",
				job, f->chunk, f->frag, h->round, h->base, h->worker,
				c->last[h->worker], c->version);
	} else if (h->round != c->last[h->worker] + 1 || h->base != c->version + 1) {
		sim_fail(s,
			"job %u chunk %x frag %u: clock %u of worker %u becomes version %u, after clock %u and version %u",
			job, f->chunk, f->frag, h->round, h->worker, h->base, c->last[h->worker],
			c->version);
	} else if (!clock_apply(s, job, f, h->worker, PBOX_PUSH, h->ts)) {
		sim_fail(s,
			"job %u chunk %x frag %u: PUSH_OK of clock %u to worker %u, which has not come intact",
			job, f->chunk, f->frag, h->round, h->worker);
	}
	if (h->weight != slowest(s, job, c))
		sim_fail(s, "PUSH_OK says that the slowest clock is %u, and it is %u", h->weight,
			slowest(s, job, c));
}

/* After a restart of the box a table that nobody restores begins again, and no RESTORE_OK says so: those that had it are gone, before any had
 * reported. */
static void
nobody_restores(struct sim *s, unsigned job, struct sim_fragment *f)
{
	const struct sim_part *j = sim_part(s, job);

	if (s->box->generation == 0 || f->restored_in == s->box->incarnation)
		return;
	for (unsigned w = 0; w < workers_of(s, job); w++)
		if (j->restorer[f->table][w] == j->token[w] && j->token[w] != 0)
			return;
	f->restored_in = s->box->incarnation;
	sim_reference_forget(f);
	f->published = 0;
}

static void
clock_result(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_send *out)
{
	const struct pbox_declare *d = &sim_spec(&s->sc, job, f)->fixed;
	struct clock *c;
	const struct pbox_hdr *h = &out->hdr;
	uint8_t want[SIM_MTU], got[SIM_MTU];

	if (h->round == 0)
		nobody_restores(s, job, f);
	c = clock_of(s, job, f);
	if (h->worker >= workers_of(s, job))
		return;
	if (h->round == c->version + 1 &&
		!clock_apply(s, job, f, h->worker, PBOX_PUSHPULL, h->ts)) {
		sim_fail(s,
			"job %u chunk %x frag %u: RESULT of version %u to worker %u, without a push that came intact",
			job, f->chunk, f->frag, h->round, h->worker);
		return;
	}
	if (h->round != c->version) {
		sim_fail(s, "job %u chunk %x frag %u: RESULT of version %u while it is %u", job,
			f->chunk, f->frag, h->round, c->version);
		return;
	}
	if (is_bound(s, job, c, h->worker, h->ts))
		sim_fail(s,
			"job %u chunk %x frag %u: RESULT to worker %u, while the slowest clock is %u, before its bound",
			job, f->chunk, f->frag, h->worker, slowest(s, job, c));
	if (h->format != d->pull_format ||
		h->length != f->elements * pbox_format_size(d->pull_format) + workers_of(s, job)) {
		sim_fail(s, "RESULT of another format or length");
		return;
	}
	sim_narrow(want, d->pull_format, f->param, f->elements);
	for (unsigned w = 0; w < workers_of(s, job); w++)
		want[h->length - workers_of(s, job) + w] = (uint8_t)c->last[w];
	pbox_send_payload(got, out);
	if (memcmp(want, got, h->length) != 0)
		sim_fail(s,
			"job %u chunk %x frag %u: RESULT of version %u differs from the reference",
			job, f->chunk, f->frag, h->round);
	if (updates_are(&s->sc, job, f))
		updates_shown(f, h->worker, h->round);
	if (h->base != c->last[h->worker])
		sim_fail(s, "RESULT says that %u pushes of worker %u are in it, and it is %u",
			h->base, h->worker, c->last[h->worker]);
	if (h->weight != slowest(s, job, c) || h->aux != workers_of(s, job))
		sim_fail(s, "RESULT names %u members and the slowest clock %u, not %u and %u",
			h->aux, h->weight, workers_of(s, job), slowest(s, job, c));
}

static void
clock_wait(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	const struct clock *c = clock_of(s, job, f);

	if (h->base != c->version || (h->flags & PBOX_F_HAVE) != 0 ||
		(h->round != 0 && h->weight != 0 && h->weight != UINT32_MAX) ||
		(h->round != 0 && c->version > 0 && h->weight == 0) ||
		(h->round == 0 && h->weight < workers_of(s, job) &&
			c->last[h->weight] != slowest(s, job, c)))
		sim_fail(s, "WAIT at version %u says %u, flags %x, missing %u", c->version, h->base,
			h->flags, h->weight);
}

static void
clock_overwritten(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	sim_fail(s,
		"job %u chunk %x frag %u: a RESULT of version %u has changed before it was read",
		job, f->chunk, f->frag, h->round);
}

/* What the worker adds of a push: of one in a format of blocks what it has sent, up to the push `sent`. False: nobody knows that. */
static bool
add_own(struct sim *s, const struct sim_worker *w, const struct sim_fragment *f,
	const struct sim_push *k, const struct sim_piece *p, uint32_t sent, float *value)
{
	unsigned format = sim_spec(&s->sc, w->job, f)->fixed.push_format;
	bool block = pbox_format_is_block(format);
	struct sim_piece alone = *p;
	float codes[SIM_MTU / 4];
	uint8_t push[SIM_MTU];

	alone.at = 0;
	if (!block || pbox_serial_diff(k->round, sent) > 0)
		sim_contribution(&s->sc, k, &alone, push);
	else if (updates_value(s, w->job, f, w->id, k->round, p, codes))
		memcpy(push, codes, p->elements * sizeof(*codes));
	else
		return false;
	updates_add(value, push, block ? PBOX_FMT_FP32 : format, sim_factor(&s->sc, k), false,
		p->elements);
	return true;
}

/* Is it what that version was, with all later pushes of the worker up to that clock? */
static bool
is_version(struct sim *s, const struct sim_worker *w, struct sim_fragment *f, struct clock *c,
	const struct sim_piece *p, uint32_t version, uint32_t own, uint32_t sent,
	const uint8_t *got)
{
	const struct pbox_declare *d = &sim_spec(&s->sc, w->job, f)->fixed;
	struct sim_push k = {
		.job = w->job, .life = s->job[w->job].life, .table = f->table, .slot = w->id};
	uint8_t want[SIM_MTU];
	float value[SIM_MTU];

	memcpy(value, past_param(f, c, version) + p->at, p->elements * sizeof(*value));
	sim_narrow(want, d->pull_format, value, p->elements);
	for (uint32_t i = c->past[version % PAST].last[w->id] + 1; i <= own; i++) {
		k.round = i;
		for (uint32_t e = 0; e < p->elements; e++)
			value[e] = sim_widen(want, d->pull_format, e);
		if (!add_own(s, w, f, &k, p, sent, value))
			return false;
		sim_narrow(want, d->pull_format, value, p->elements);
	}
	return memcmp(want, got, (size_t)p->elements * pbox_format_size(d->pull_format)) == 0;
}

/* What was sent when the box sent that version the worker has as it was sent; of later ones it may be so. */
static bool
is_some_version(struct sim *s, const struct sim_worker *w, struct sim_fragment *f, struct clock *c,
	const struct sim_piece *p, uint32_t version, uint32_t own, const uint8_t *got)
{
	uint32_t sent = own;

	if (updates_are(&s->sc, w->job, f))
		sent = updates_known(f, w->id, version, c->past[version % PAST].last[w->id]);
	do {
		if (is_version(s, w, f, c, p, version, own, sent, got))
			return true;
	} while (pbox_serial_diff(own, sent++) > 0);
	return false;
}

static unsigned
piece_number(const struct sim_fragment *f, const struct sim_piece *p)
{
	unsigned i = 0;

	while (f->piece[i].at != p->at)
		i++;
	return i;
}

static void
clock_completed(struct sim *s, const struct sim_worker *w, const struct sim_op *o,
	const struct sim_piece *p, const uint8_t *got)
{
	struct sim_fragment *f = &s->job[w->job].fragment[p->fragment];
	struct clock *c = clock_of(s, w->job, f);
	unsigned piece = piece_number(f, p);
	uint32_t round = c->delivered[w->id][piece].round;
	uint32_t least = c->first, most = c->version;
	bool any = false;

	if (w->restarted ||
		c->away[w->id]) /* it does not know how many pushes the box had of it before */
		return;
	if (o->round > round && c->delivered[w->id][piece].least > least)
		least = c->delivered[w->id][piece].least;
	else if (o->round < round)
		most = c->delivered[w->id][piece].most;
	for (uint32_t v = least; v <= most; v++) {
		if (!is_some_version(s, w, f, c, p, v, o->round, got))
			continue;
		if (o->op.bounded && pbox_serial_diff(slowest_of(s, w->job, c->past[v % PAST].last),
					     o->round - o->op.bound) < 0)
			continue;
		if (o->round > round && !any)
			c->delivered[w->id][piece].least = v;
		if (o->round > round)
			c->delivered[w->id][piece].most = v;
		any = true;
	}
	if (any && o->round > round)
		c->delivered[w->id][piece].round = o->round;
	if (any)
		return;
	if (c->first == 0) /* else it may be one that is not known any more */
		sim_fail(s,
			"job %u worker %u: chunk %x frag %u in round %u is no version from %u to %u with its own pushes, within its bound",
			w->job, w->id, f->chunk, f->frag, o->round, least, most);
}

/* It did not wait, as others had left, until a box that was started again had its pushes. */
static bool
left_owing(const struct sim *s, unsigned job, unsigned id)
{
	bool any = false;

	for (unsigned i = 0; i < s->sc.job[job].workers; i++)
		any |= s->job[job].worker[i]->id == id && s->job[job].worker[i]->owed;
	return any;
}

static void
clock_end(struct sim *s, unsigned job, const struct sim_fragment *f)
{
	const struct sim_job_spec *spec = &s->sc.job[job];
	const struct clock *c = f->clock;

	if (c == NULL)
		return;
	s->boxes[f->box].expected_rounds += c->version;
	s->boxes[f->box].expected_contributions += c->version;
	for (unsigned w = 0; w < spec->workers && spec->restarts == 0; w++)
		if (c->last[w] != spec->rounds && !c->away[w] && !left_owing(s, job, w))
			sim_fail(s,
				"job %u chunk %x frag %u: %u pushes of worker %u have counted, of %u",
				job, f->chunk, f->frag, c->last[w], w, spec->rounds);
}

/* There are no snapshots of them. */
static void
clock_keep(struct sim *s, unsigned job, struct sim_fragment *f)
{
	(void)s;
	(void)job;
	(void)f;
}

static bool
clock_load(struct sim *s, unsigned job, struct sim_fragment *f, struct pbox_table *t,
	struct pbox_chunk *c)
{
	(void)s;
	(void)job;
	(void)f;
	(void)t;
	(void)c;
	return false;
}

/* ---- a restart of the box -------------------------------------------------------------------------- */

static void
clock_told(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct clock *c = clock_of(s, job, f);
	struct told *t = &c->told[h->worker];

	*t = (struct told){.token = h->token,
		.version = h->round,
		.own = h->base,
		.epoch = h->aux,
		.have = (h->flags & PBOX_F_HAVE) != 0};
	if (h->length == 0)
		return;
	c->given = *t;
	memcpy(c->given_payload, payload, h->length);
}

static bool
is_later(const struct told *a, const struct told *b)
{
	int16_t epochs = (int16_t)(uint16_t)(a->epoch - b->epoch);

	return epochs != 0 ? epochs > 0 : pbox_serial_diff(a->version, b->version) > 0;
}

/* The newest version that a restorer has; NULL: nobody has any. */
static const struct told *
newest(struct sim *s, unsigned job, const struct sim_fragment *f, const struct clock *c)
{
	const struct sim_part *j = sim_part(s, job);
	const struct told *best = NULL;

	for (unsigned w = 0; w < workers_of(s, job); w++) {
		const struct told *t = &c->told[w];

		if (j->token[w] == 0 || j->restorer[f->table][w] != j->token[w])
			continue;
		if (t->token != j->token[w] && !sim_restart_may_end(s, job, w))
			sim_fail(s,
				"job %u chunk %x frag %u is restored before worker %u has reported",
				job, f->chunk, f->frag, w);
		if (t->have && (best == NULL || is_later(t, best)))
			best = t;
	}
	return best;
}

/* No version was retained: it begins again. */
static void
begin_again(struct sim *s, unsigned job, struct sim_fragment *f)
{
	sim_reference_forget(f);
	f->published = 0;
	clock_of(s, job, f);
}

/* The pushes so far are those of that version. */
static void
restore(struct sim *s, unsigned job, struct sim_fragment *f, const struct told *t)
{
	const struct pbox_declare *d = &sim_spec(&s->sc, job, f)->fixed;
	const struct sim_part *j = sim_part(s, job);
	struct clock *c = clock_of(s, job, f);
	const struct past *p = &c->past[t->version % PAST];
	size_t bytes = (size_t)f->elements * pbox_format_size(d->pull_format);
	uint8_t want[SIM_MTU];

	if (p->version != t->version || pbox_serial_diff(t->version, c->version) > 0) {
		sim_fail(s,
			"job %u chunk %x frag %u is restored at version %u, which there was not",
			job, f->chunk, f->frag, t->version);
		return;
	}
	sim_narrow(want, d->pull_format, past_param(f, c, t->version), f->elements);
	for (unsigned w = 0; w < workers_of(s, job); w++)
		want[bytes + w] = (uint8_t)p->last[w];
	if (c->given.epoch != t->epoch || c->given.version != t->version)
		sim_fail(s, "version %u is restored without its payload", t->version);
	else if (memcmp(want, c->given_payload, bytes + workers_of(s, job)) != 0)
		sim_fail(s,
			"job %u chunk %x frag %u: a worker gives other bytes of version %u than it was sent",
			job, f->chunk, f->frag, t->version);
	for (uint32_t i = 0; i < f->elements; i++)
		f->param[i] = sim_widen(want, d->pull_format, i);
	c->version = t->version;
	f->published = c->version;
	memcpy(c->last, p->last, sizeof(c->last));
	memset(c->arrivals, 0, sizeof(c->arrivals));
	memset(c->n_asked, 0, sizeof(c->n_asked));
	for (unsigned w = 0; w < workers_of(s, job); w++)
		c->away[w] |= j->token[w] == 0 || j->restorer[f->table][w] != j->token[w];
	remember(f, c);
}

static void
clock_restored(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	struct clock *c = clock_of(s, job, f);
	const struct told *t;

	if (h->aux != PBOX_RESTORE_DONE && h->aux != PBOX_RESTORE_LOST)
		return;
	if (s->box->generation > 0 && f->restored_in != s->box->incarnation) {
		f->restored_in = s->box->incarnation;
		t = newest(s, job, f, c);
		if (t == NULL)
			begin_again(s, job, f);
		else if (h->aux == PBOX_RESTORE_LOST)
			sim_fail(s, "job %u chunk %x frag %u is lost, and a worker has it", job,
				f->chunk, f->frag);
		else
			restore(s, job, f, t);
		c = clock_of(s, job, f);
	}
	if (h->aux == PBOX_RESTORE_LOST || s->failed || h->worker >= workers_of(s, job))
		return;
	if (h->base != c->version)
		sim_fail(s, "job %u chunk %x frag %u is restored at version %u, not %u", job,
			f->chunk, f->frag, h->base, c->version);
	if (h->weight != c->last[h->worker])
		sim_fail(s,
			"job %u chunk %x frag %u: RESTORE says that %u pushes of worker %u are in version %u, and it is %u",
			job, f->chunk, f->frag, h->weight, h->worker, h->base, c->last[h->worker]);
}

const struct sim_law sim_law_clock = {
	.name = "clock",
	.contribution = clock_contribution,
	.asked = clock_asked,
	.result = clock_result,
	.wait = clock_wait,
	.pushed = clock_pushed,
	.overwritten = clock_overwritten,
	.completed = clock_completed,
	.end = clock_end,
	.keep = clock_keep,
	.load = clock_load,
	.forget = sim_reference_forget,
	.told = clock_told,
	.restored = clock_restored,
};
