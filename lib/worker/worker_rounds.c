/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <limits.h>
#include <stdio.h>

#include "worker_impl.h"

/*
 * The discipline of rounds: each worker contributes once to a version, so a push is the round after the last one, and
 * a pull waits for the version that the last push leads to. One lane: the round of a fragment is that of whatever is
 * in flight.
 */

/* ---- frames and answers (section 6) ---------------------------------------------------------- */

/** A worker that has joined a running job, and has not pushed: any version will do. By plan it takes part in rounds of the
 * whole table, and so it needs one version of all fragments (R15.7a). */
static bool
any_round(const struct pbox_worker *w, const struct frag *f)
{
	return !w->planned && !f->pushed && f->round > 0;
}

static void
round_push(struct frag *f)
{
	f->round++;
	f->pushed = true;
	f->lost = false;
}

static void
round_withdraw(struct frag *f)
{
	assert(f->pushed);
	f->round--;
}

static void
round_contribution(const struct pbox_worker *w, const struct pbox_worker_table *t,
	const struct flight *fl, struct pbox_hdr *h)
{
	const struct frag *f = fl->frag;
	uint32_t samples = table_weight(t, f, fl->node);

	if (w->conf.slots != 0) {
		const struct pbox_push_slots m = {.round = f->round,
			.node = pbox_node_code(nodes_at(w, t, fl->node)),
			.samples = samples};

		pbox_push_slots_put(h, &m);
	} else {
		const struct pbox_push_rounds m = {
			.round = f->round, .from = f->round - 1, .samples = samples};

		pbox_push_rounds_put(h, &m);
	}
	if (t->difference != 0)
		pbox_copy_age_put(h, encode_age(t, f));
}

static void
round_ask(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f,
	struct pbox_hdr *h)
{
	const struct pbox_pull_rounds m = {.round = f->round, .latest = any_round(w, f)};

	pbox_pull_rounds_put(h, &m);
	if (t->difference != 0)
		pbox_copy_age_put(h, encode_age(t, f));
}

static bool
round_answers(const struct pbox_worker *w, const struct pbox_worker_table *t,
	const struct flight *fl, const struct pbox_hdr *h)
{
	(void)t;
	if (h->type == PBOX_RESULT && fl->type == PBOX_PULL && any_round(w, fl->frag))
		return flight_is_since(fl, h);
	return h->round == fl->frag->round;
}

static void
round_result(struct pbox_worker_table *t, struct frag *f, const struct pbox_hdr *h,
	struct retained *k, struct pbox_client_stats *count)
{
	const struct pbox_result_rounds m = pbox_result_rounds_get(h);

	/* who has pushed waits for the version that this leads to, and takes no other */
	assert(!f->pushed || m.version == f->round);
	/* the latest, of a worker that has not pushed */
	if (m.version != f->round)
		table_recounts(t);
	f->round = m.version;
	count->contributors = m.contributors;
	count->samples = m.samples;
	if (k != NULL) {
		k->contributors = m.contributors;
		k->samples = m.samples;
	}
}

static void
round_on_wait(const struct pbox_worker *w, struct flight *fl, const struct pbox_hdr *h)
{
	if (w->conf.slots != 0) {
		const struct pbox_wait_slots m = pbox_wait_slots_get(h);

		fl->wait_have = m.contributors;
		fl->wait_missing = m.missing;
	} else {
		const struct pbox_wait_rounds m = pbox_wait_rounds_get(h);

		fl->wait_have = m.contributors;
		fl->wait_missing = m.missing;
	}
}

static bool
round_defers(const struct pbox_worker_table *t, const struct frag *f)
{
	return t->mode == PBOX_MODE_OPTIMISER && f->round == 1;
}

/* ---- DECLARE: where the rounds of a table begin ------------------------------------------------ */

/** A run that begins has one version of all chunks: 0, or that of the snapshots that all boxes have loaded (R16.16). Chunks of
 * another one would be those of another model. */
static int
round_differs(const struct pbox_worker *w, const struct pbox_worker_table *t, uint32_t low,
	uint32_t high, struct pbox_client_error *err)
{
	unsigned a = 0, b = 0;

	for (uint32_t i = 0; i < t->chunks; i++)
		if (t->chunk[i].version == low)
			a = t->chunk[i].box;
		else if (t->chunk[i].version == high)
			b = t->chunk[i].box;
	return pbox_client_fail(err, PBOX_C_MISMATCH,
		"table %u begins at different rounds: the box at %s has round %u of it, and that at %s round %u: let all boxes begin with their snapshots of one round (pbox-ctl restore %s --round R at each), or all without (--withdraw)",
		t->number, w->box[a]->name, low, w->box[b]->name, high, w->job);
}

/** The same round of two runs is of two models as well, and by two maps a chunk may be at two boxes, or at none. */
static int
round_marks(const struct pbox_worker *w, const struct pbox_worker_table *t,
	struct pbox_client_error *err)
{
	unsigned a = 0;

	/* a box that was started again before the first round of the run has ended has none */
	for (unsigned b = 0; b < w->boxes; b++) {
		if (t->mark[a] == 0)
			a = b;
		if (t->mark[b] != 0 && t->mark[b] != t->mark[a])
			return pbox_client_fail(err, PBOX_C_MISMATCH,
				"table %u begins with snapshots of different runs, or by different maps, at the boxes %s and %s: let all boxes begin with one set (pbox-snapshot inspect says run and map of a file; move the others away, then pbox-ctl restore %s --round R at each)",
				t->number, w->box[a]->name, w->box[b]->name, w->job);
	}
	return 0;
}

/** Does the table begin with the run? Then it has one version of all chunks at all boxes. */
static bool
round_is_new(const struct session *s, const struct pbox_worker_table *t, uint32_t first_round)
{
	return s->w->boxes > 1 && first_round == 0 && t->chunks > 0 &&
	       (t->flags & (PBOX_DECLARE_CONTINUE | PBOX_DECLARE_RESTORE)) == 0;
}

/* Before anybody is asked which box has what: boxes that have begun with other sets contradict each other. */
static int
round_alike(const struct session *s, const struct pbox_worker_table *t, uint32_t first_round,
	struct pbox_client_error *err)
{
	return round_is_new(s, t, first_round) ? round_marks(s->w, t, err) : 0;
}

/** Some box has begun with a snapshot, and those that have the chunks have none. */
static int
round_nowhere(const struct pbox_worker *w, const struct pbox_worker_table *t,
	struct pbox_client_error *err)
{
	for (unsigned b = 0; b < w->boxes; b++)
		if (t->mark[b] != 0)
			return pbox_client_fail(err, PBOX_C_MISMATCH,
				"table %u begins with a snapshot at the box %s, and at the others, which have its chunks, with none: let all boxes begin with their snapshots of one round (pbox-ctl restore %s --round R at each), or all without (--withdraw)",
				t->number, w->box[b]->name, w->job);
	return 0;
}

/* A resumed worker goes on where its program says (pbox_client_table.first_round). */
static int
round_begin(struct session *s, struct pbox_worker_table *t, uint32_t first_round,
	struct pbox_client_error *err)
{
	uint32_t low = t->chunks > 0 ? t->chunk[0].version : 0, high = low;
	int rc;

	for (uint32_t i = 1; i < t->chunks; i++) {
		uint32_t version = t->chunk[i].version;

		low = rounds_apart(version, low) < 0 ? version : low;
		high = rounds_apart(version, high) > 0 ? version : high;
	}
	if (round_is_new(s, t, first_round)) {
		rc = low != high ? round_differs(s->w, t, low, high, err)
		     : low == 0  ? round_nowhere(s->w, t, err)
				 : 0;
		if (rc != 0)
			return rc;
	}
	t->base_version = high;
	for (uint32_t i = 0; s->w->planned && i < t->frags; i++)
		t->frag[i].round = high;
	if (first_round == 0 || first_round == PBOX_CLIENT_ROUND_ANY || high == 0) {
		for (uint32_t i = 0; i < t->frags && !t->own_rounds; i++) {
			t->frag[i].lags = rounds_apart(t->frag[i].round, high) < 0;
			s->w->lagging += t->frag[i].lags;
		}
		return 0;
	}
	if (rounds_apart(high, first_round) > 0)
		return pbox_client_fail(err, PBOX_C_MISMATCH,
			"table %u: this worker wants to go on with round %u, but the box at %s has finished round %u: the checkpoint is too old for a job that goes on; start all workers from one of the same round",
			t->number, first_round, s->name, high);
	if (rounds_apart(low + 1, first_round) < 0)
		return pbox_client_fail(err, PBOX_C_MISMATCH,
			"table %u: this worker wants to go on with round %u, but the box at %s has finished round %u only: the checkpoint is newer than what the box and the other workers have; start all workers from one of the same round",
			t->number, first_round, s->name, low);
	for (uint32_t i = 0; i < t->frags; i++)
		t->frag[i].round = first_round - 1;
	t->base_version = first_round - 1;
	t->resumed = true;
	return 0;
}

/* ---- a restart of the box (section 10) --------------------------------------------------------- */

static uint32_t
round_version(const struct pbox_worker_table *t, const struct frag *f)
{
	uint32_t version = t->retained[f - t->frag].version;

	/* who pushes and never pulls knows from each push that was taken that the round before
	 * it had ended */
	return f->pushed && f->round - version > 1 ? f->round - 1 : version;
}

static bool
round_report(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f,
	struct pbox_hdr *h)
{
	struct pbox_restore_rounds m = {
		.version = round_version(t, f), .source = carry_source(w, t, f)};
	const struct retained *k = retained_at(t, f, m.version);

	if (k != NULL) {
		m.have = true;
		m.contributors = k->contributors;
		m.samples = k->samples;
	}
	pbox_restore_rounds_put(h, &m);
	return m.have;
}

/** Is version a later than b? 0 is no finished version; others are compared modulo 2^32. */
static bool
round_is_later(uint32_t a, uint32_t b)
{
	return a != 0 && (b == 0 || rounds_apart(a, b) > 0);
}

static void
round_restored(struct session *s, struct pbox_worker_table *t, struct frag *f,
	const struct pbox_restore_ok *m)
{
	uint32_t version = m->version;
	const char *name = t->tensor[t->piece[f->piece].tensor].name;
	char text[300];

	if (s->w->planned && !f->pushed && round_is_later(f->round, version))
		return; /* it waits for the version with which it begins */
	if (round_is_later(f->round, version)) {
		/* a push whose result was not asked for: only the box had it, and so
		 * it is lost */
		snprintf(text, sizeof(text),
			"round %u of tensor '%s': the box at %s was restarted after this worker's push of it and before the round ended, or its chunk moved there, and has lost it: push it again",
			f->round, name, s->name);
		if (f->pulls > 0 || !f->pushed)
			queue_fail_fragment(t, f, PBOX_C_LOST, text);
		f->lost = f->pushed; /* brought again it is a push of its own */
		f->round = version;
	} else if (s->w->planned) {
		/* Rounds that others have ended without it: the box answers the next push, as it would have done before its restart
		 * (R15.7). What this worker computes meanwhile is of a model that nobody has any more */
		return;
	} else if (round_is_later(version, f->round + 1)) {
		snprintf(text, sizeof(text),
			"rounds %u to %u of tensor '%s' ended without this worker, whose session was lost: the next push is round %u",
			f->round + 1, version, name, version + 1);
		queue_fail_fragment(t, f, PBOX_C_LOST, text);
		f->round = version;
	}
}

/** The round that comes next for the fragment that lags most; false: some have had none. */
static bool
round_needs_from(const struct pbox_worker_table *t, uint32_t *round)
{
	uint32_t low = 0;

	for (uint32_t i = 0; i < t->frags; i++) {
		uint32_t done = t->frag[i].round;

		if (t->retained != NULL && round_is_later(done, t->retained[i].version))
			done = t->retained[i].version;
		if (done == 0)
			return false;
		if (i == 0 || rounds_apart(done, low) < 0)
			low = done;
	}
	*round = low + 1;
	return t->frags > 0;
}

const struct worker_discipline worker_rounds = {
	.number = PBOX_DISCIPLINE_ROUNDS,
	.survives = UINT_MAX,
	.lanes = 1,
	.probes = true,
	.runs = true,
	.unit = "round",
	.alike = round_alike,
	.begin = round_begin,
	.push = round_push,
	.withdraw = round_withdraw,
	.contribute = round_contribution,
	.ask = round_ask,
	.answers = round_answers,
	.result = round_result,
	.wait = round_on_wait,
	.defers = round_defers,
	.version = round_version,
	.report = round_report,
	.restored = round_restored,
	.needs_from = round_needs_from,
};
