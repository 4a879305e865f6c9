/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "law.h"
#include "law_blocks.h"
#include "law_replica.h"

/*
 * The law of rounds. A version is the sum of one contribution of each member, and the checker knows all of them: so it
 * computes the version itself (reference.c). A round ends when the last contribution has arrived, and not before.
 */

/* Policy shrink: a version is of those slots that were there when it was published. */
static void
note_members(const struct sim_job_spec *spec, struct sim_fragment *f, uint32_t version)
{
	if (f->ready ? version != f->version + 1 : version != spec->first_round + 1)
		return;
	for (unsigned i = 0; i < f->slots; i++)
		f->slot[i].member = pbox_serial_diff(f->slot[i].arrived, version) >= 0;
}

/* A job with a rate has a new version: as fast as its rate allows, and what 10 ms save up? After a crash
 * versions are reported that were there before, and where workers push alone or are removed, some are reported
 * later than they end. */
static void
check_rate(struct sim *s, const struct sim_fragment *f, unsigned job, unsigned contributors)
{
	struct sim_shard *sh = &s->box->shard[s->box->endpoint[f->endpoint].shard];
	uint64_t *due = &sh->due[job];

	if (s->sc.rate == 0 || s->box->generation > 0 || s->job[job].life > 0 ||
		s->sc.job[job].push_percent > 0 || f->held != NULL || s->sc.job[job].shrink)
		return;
	if (*due > s->now)
		sim_fail(s, "job %u chunk %x frag %u: RESULT %llu us before the rate allows it",
			job, f->chunk, f->frag, (unsigned long long)((*due - s->now) / US));
	if (*due < s->now - 10 * MS)
		*due = s->now - 10 * MS;
	*due += contributors * SEC / s->sc.rate;
}

static void
rounds_result(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_send *out)
{
	struct sim_job *j = &s->job[job];
	const struct sim_job_spec *spec = &s->sc.job[job];
	uint32_t v = out->hdr.round, weight;
	const uint8_t *want;
	bool first = v == spec->first_round;

	if (spec->shrink && !first)
		note_members(spec, f, v);
	for (unsigned i = 0; !first && !spec->shrink && i < f->slots; i++)
		if (pbox_serial_diff(f->slot[i].arrived, v) < 0) {
			sim_fail(s,
				"job %u chunk %x frag %u: RESULT of round %u before slot %u was brought",
				job, f->chunk, f->frag, v, i);
			return;
		}
	if (pbox_serial_diff(v, f->published) < 0) {
		sim_fail(s, "job %u chunk %x frag %u: RESULT of round %u after %u", job, f->chunk,
			f->frag, v, f->published);
		return;
	}
	if (v != f->published)
		check_rate(s, f, job, spec->slots != 0 ? slots_nodes(f) : out->hdr.aux);
	if (v != f->published)
		s->box->progress_at = s->now;
	hold_result(s, job, f, v);
	f->published = v;
	want = sim_expected(&s->sc, job, j->life, f, v, &weight);
	if (replica_is(&s->sc, job, f)) {
		if (!replica_says(f, sim_spec(&s->sc, job, f)->fixed.pull_format, v, &out->hdr,
			    out->payload, want))
			sim_fail(s,
				"job %u chunk %x frag %u: RESULT of round %u is not the reference's difference, nor its replica",
				job, f->chunk, f->frag, v);
		return;
	}
	if (blocks_answer(&s->sc, job, f)) {
		if (!blocks_says(f, sim_spec(&s->sc, job, f)->fixed.pull_format, &out->hdr,
			    out->payload, want))
			sim_fail(s,
				"job %u chunk %x frag %u: RESULT of round %u does not say the reference",
				job, f->chunk, f->frag, v);
		return;
	}
	if (out->hdr.format != sim_spec(&s->sc, job, f)->fixed.pull_format ||
		out->hdr.length != f->elements * pbox_format_size(out->hdr.format)) {
		sim_fail(s, "RESULT of another format or length");
		return;
	}
	if (first && sim_spec(&s->sc, job, f)->fixed.mode == PBOX_MODE_ALLREDUCE)
		sim_fail(s, "RESULT of version 0 of an all-reduce");
	if (memcmp(want, out->payload, out->hdr.length) != 0)
		sim_fail(s,
			"job %u chunk %x frag %u: RESULT of round %u differs from the reference",
			job, f->chunk, f->frag, v);
	else if (!first && (out->hdr.aux != f->contributors[v & 1] || out->hdr.weight != weight))
		sim_fail(s, "RESULT names %u contributors and %u samples, not %u and %u",
			out->hdr.aux, out->hdr.weight, f->contributors[v & 1], weight);
}

static void
rounds_contribution(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload, bool intact)
{
	if (blocks_are(&s->sc, job, f) && intact)
		blocks_contribution(s, job, f, h, payload);
	slots_contribution(s, job, f, h, payload, intact);
}

static void
rounds_wait(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	unsigned n = s->sc.job[job].workers;

	if (h->aux > f->slots || (h->weight >= n && h->weight != UINT32_MAX))
		sim_fail(s, "WAIT names %u contributors and worker %u of %u", h->aux, h->weight, n);
	if ((h->flags & PBOX_F_HAVE) != 0 && h->weight == h->worker)
		sim_fail(s, "WAIT says HAVE and that worker %u is missing", h->worker);
	if (s->sc.job[job].slots != 0)
		slots_wait(s, job, f, h);
}

/* While a worker asks for the latest version it may well be overtaken. */
static void
rounds_overwritten(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	const struct sim_job_spec *spec = &s->sc.job[job];
	bool needed = false;

	if (spec->shrink || h->worker >= spec->workers)
		return;
	/* who has not sent the round after it needs it */
	for (unsigned i = sim_slots_of(spec, h->worker); i < sim_slots_of(spec, h->worker + 1); i++)
		needed |= pbox_serial_diff(f->slot[i].arrived, h->round) <= 0;
	if (needed)
		sim_fail(s,
			"job %u chunk %x frag %u: version %u was overwritten before worker %u had it",
			job, f->chunk, f->frag, h->round, h->worker);
}

static void
rounds_completed(struct sim *s, const struct sim_worker *w, const struct sim_op *o,
	const struct sim_piece *p, const uint8_t *got)
{
	struct sim_job *j = &s->job[w->job];
	struct sim_fragment *f = &j->fragment[p->fragment];
	unsigned size = pbox_format_wide(sim_spec(&s->sc, w->job, f)->fixed.pull_format);
	uint32_t round = s->sc.job[w->job].first_round + o->round, weight;
	const uint8_t *want;

	if (pbox_serial_diff(round, f->published) > 0) {
		sim_fail(s, "job %u worker %u has a result of round %u, which the box never sent",
			w->job, w->id, round);
		return;
	}
	want = sim_expected(&s->sc, w->job, j->life, f, round, &weight);
	if (want != NULL &&
		memcmp(want + (size_t)p->at * size, got, (size_t)p->elements * size) != 0)
		sim_fail(s,
			"job %u worker %u: chunk %x frag %u of round %u completes with other bytes",
			w->job, w->id, f->chunk, f->frag, round);
}

/* Each contribution counts once. */
static void
rounds_end(struct sim *s, unsigned job, const struct sim_fragment *f)
{
	const struct sim_job_spec *spec = &s->sc.job[job];

	s->boxes[f->box].expected_rounds += spec->rounds;
	s->boxes[f->box].expected_contributions += (uint64_t)spec->rounds * slots_nodes(f);
}

const struct sim_law sim_law_rounds = {
	.name = "rounds",
	.contribution = rounds_contribution,
	.result = rounds_result,
	.wait = rounds_wait,
	.pushed = slots_pushed,
	.overwritten = rounds_overwritten,
	.completed = rounds_completed,
	.end = rounds_end,
	.keep = rounds_keep,
	.load = rounds_load,
	.forget = rounds_forget,
	.told = rounds_told,
	.restored = rounds_restored,
};
