/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The sums of a rack (section 18). A fragment with all contributions of the rack's part is verified and summed beside its record,
 * which stays open: a repetition hears WAIT with HAVE, and the version before it stays. The sum is the host's until the upper
 * box has answered; the answer is written over it, and becomes the version.
 */

#include "rounds.h"

static struct pbox_up
up_of(struct pbox_shard *s, const struct target *g, uint64_t samples)
{
	return (struct pbox_up){
		.begun_ns = g->j->job->begun_ns,
		.value = up_value(g->j, g->fragment->record),
		.samples = samples,
		.chunk = g->chunk,
		.round = g->fragment->version + 1,
		.frag = g->frag,
		.job = g->j->job->id,
		.shard = s->conf.id,
	};
}

/* In its record, while it waits for room; the slots' samples are in no use any more. */
static void
samples_put(struct pbox_record *r, uint64_t samples)
{
	r->from[0].weight = (uint32_t)samples;
	r->from[0].worker = (uint16_t)(samples >> 32);
}

static uint64_t
samples_get(const struct pbox_record *r)
{
	return (uint64_t)r->from[0].worker << 32 | r->from[0].weight;
}

static bool
hand_up(struct pbox_shard *s, struct pbox_record *r, struct pbox_shard_job *j)
{
	struct target g;
	struct pbox_up up;

	shard_target_of(j, r, &g);
	up = up_of(s, &g, samples_get(r));
	return s->conf.ops->up(s->conf.ctx, &up);
}

void
rounds_up(struct pbox_shard *s, const struct target *g, uint64_t samples)
{
	struct pbox_record *r = g->fragment->record;

	PBOX_ASSERT(s->conf.ops->up != NULL && r->round.unverified == 0);
	r->round.up = true;
	samples_put(r, samples);
	if (s->up.first == NULL && hand_up(s, r, g->j))
		return;
	r->round.later = NULL;
	*(s->up.first != NULL ? &s->up.last->round.later : &s->up.first) = r;
	s->up.last = r;
}

/* Of which job a record is: it has its chunk's number alone. */
static struct pbox_shard_job *
job_of(const struct pbox_shard *s, const struct pbox_record *r)
{
	const uint8_t *at = (const uint8_t *)r;

	for (unsigned i = 0; i < s->conf.max_jobs; i++) {
		struct pbox_shard_job *j = s->job[i];

		if (j != NULL && at >= j->record_mem &&
			at < j->record_mem + j->n_records * j->record_size)
			return j;
	}
	return NULL;
}

unsigned
rounds_up_again(struct pbox_shard *s)
{
	unsigned n = 0;

	while (s->up.first != NULL) {
		struct pbox_record *r = s->up.first;

		if (!hand_up(s, r, job_of(s, r)))
			break;
		s->up.first = r->round.later;
		n++;
	}
	return n;
}

void
rounds_up_remove(struct pbox_shard *s, struct pbox_record *r)
{
	struct pbox_record *before = NULL, *at = s->up.first;

	for (; at != NULL && at != r; at = at->round.later)
		before = at;
	if (at == NULL)
		return;
	*(before != NULL ? &before->round.later : &s->up.first) = r->round.later;
	if (s->up.last == r)
		s->up.last = before;
}
