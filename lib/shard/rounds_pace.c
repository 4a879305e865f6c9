/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "rounds.h"

/*
 * The rate of a job (R6.12). Frames that are dropped for being too many come again, are asked about
 * first, and make their sender wait for a timer: a job that is refused so gets far less than its rate.
 * So what has come is kept, which the windows bound, and the round of a fragment ends when the rate has
 * room for its contributions. Complete rounds wait in a line, in the order in which they became complete.
 */

bool
rounds_pace(struct pbox_shard *s, const struct target *g)
{
	struct pbox_shard_job *j = g->j;
	struct pbox_record *r = g->fragment->record;

	if (r->round.paced) /* it was complete before */
		return true;
	if (j->paced == NULL && job_rate_due(&j->rate, s->now_ns)) {
		job_rate_ended(&j->rate, rounds_contributions(j, r), s->now_ns);
		return false;
	}
	if (j->paced == NULL) {
		j->next_paced = s->paced;
		s->paced = j;
		j->paced = r;
	} else {
		j->paced_last->round.later = r;
	}
	j->paced_last = r;
	r->round.later = NULL;
	r->round.paced = true;
	shard_count(s, PBOX_SS_PACED);
	shard_count(s, PBOX_SS_ROUNDS_PACED);
	return true;
}

/* The job has no such rounds any more. */
static void
job_remove(struct pbox_shard *s, struct pbox_shard_job *j)
{
	struct pbox_shard_job **at = &s->paced;

	while (*at != j)
		at = &(*at)->next_paced;
	*at = j->next_paced;
}

static void
take_out(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_record *r,
	struct pbox_record *before)
{
	PBOX_ASSERT(r->round.paced && r->open);
	*(before != NULL ? &before->round.later : &j->paced) = r->round.later;
	if (r->round.later == NULL)
		j->paced_last = before;
	r->round.paced = false;
	pbox_stat_add(&s->stats[PBOX_SS_ROUNDS_PACED], (uint64_t)-1);
	if (j->paced == NULL)
		job_remove(s, j);
}

void
rounds_pace_remove(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_record *r)
{
	struct pbox_record *before = NULL;

	for (struct pbox_record *at = j->paced; at != r; at = at->round.later)
		before = at;
	take_out(s, j, r, before);
}

void
rounds_pace_clear(struct pbox_shard *s, struct pbox_shard_job *j)
{
	while (j->paced != NULL)
		take_out(s, j, j->paced, NULL);
}

/* Those of one job that are due, and not so many that others wait for them. */
static unsigned
pace_job(struct pbox_shard *s, struct pbox_shard_job *j)
{
	unsigned n = 0;

	while (j->paced != NULL && n < PBOX_SHARD_BURST && job_rate_due(&j->rate, s->now_ns)) {
		struct pbox_record *r = j->paced;

		take_out(s, j, r, NULL);
		if (r->arrived == 0 ||
			r->arrived != r->round.need) /* some were damaged, and taken back */
			continue;
		job_rate_ended(&j->rate, rounds_contributions(j, r), s->now_ns);
		shard_target_of(j, r, &s->ready[s->n_ready++]);
		n++;
	}
	shard_finish_ready(s);
	return n;
}

bool
pbox_shard_paces(const struct pbox_shard *s)
{
	return s->paced != NULL || s->up.first != NULL;
}

unsigned
pbox_shard_pace(struct pbox_shard *s, uint64_t now_ns)
{
	unsigned n = 0;

	for (struct pbox_shard_job *j = s->paced, *next; j != NULL; j = next) {
		s->now_ns = now_ns;
		next = j->next_paced;
		n += pace_job(s, j);
	}
	return __builtin_expect(s->up.first != NULL, 0) ? n + rounds_up_again(s) : n;
}
