/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Admission: what a frame that moves no version may cost (R6.12), whatever the discipline of its table. Copies of old
 * frames use up nothing of the job's rate or of a worker's credit, where these are short. New contributions are not
 * charged here: their discipline bounds them, by the window and by when versions are made.
 */

#include "shard_impl.h"

static bool
may_ask(struct job_rate *r, const struct pbox_frame *f, uint64_t now_ns)
{
	return f->hdr.length == 0 && f->hdr.type != PBOX_PING ? job_rate_ask(r, now_ns)
							      : job_rate_take(r, now_ns);
}

enum pbox_shard_stat
shard_admit_question(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
{
	/* who has recorded its workers uses up nothing of it */
	if (j->rate.interval != 0 && shard_is_old(s, j, f))
		return PBOX_SS_DROP_REPLAYED;
	return may_ask(&j->rate, f, s->now_ns) ? 0 : PBOX_SS_DROP_RATE;
}

bool
shard_admit_credit(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f)
{
	struct shard_member *m = &j->member[f->hdr.worker];

	if (repeat_is_low(&m->repeat, j->repeat_ns, s->now_ns) && shard_is_old(s, j, f))
		shard_count(s, PBOX_SS_DROP_REPLAYED);
	else if (!repeat_spend(&m->repeat, j->repeat_ns, s->now_ns))
		shard_count(s, PBOX_SS_DROP_RATE);
	else
		return true;
	return false;
}

/* A copy from long ago, where it would cost what others need: the rate of the job, or what its worker may repeat. Without
 * a tag nobody knows yet whether the frame says what was sent. */
static bool
is_recorded(const struct pbox_shard *s, const struct pbox_shard_job *j, const struct pbox_frame *f)
{
	const struct shard_member *m = &j->member[f->hdr.worker];

	return (j->rate.interval != 0 || repeat_is_low(&m->repeat, j->repeat_ns, s->now_ns)) &&
	       (!f->unverified || j->tagged != 0) && shard_is_old(s, j, f);
}

bool
shard_admit_repeat(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	if (is_recorded(s, g->j, f)) {
		shard_count(s, PBOX_SS_DROP_REPLAYED);
	} else if (!job_rate_take(&g->j->rate, s->now_ns)) {
		shard_count(s, PBOX_SS_DROP_RATE);
	} else if (f->unverified && !shard_verify(f)) {
		shard_count(s, PBOX_SS_DROP_CRC);
	} else if (!repeat_spend(&g->j->member[f->hdr.worker].repeat, g->j->repeat_ns, s->now_ns)) {
		shard_count(s, PBOX_SS_DROP_RATE);
		shard_heard(s, g->j, f);
	} else {
		shard_heard(s, g->j, f);
		return true;
	}
	return false;
}

bool
shard_admit_answer(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f)
{
	if (shard_is_old(s, g->j, f)) /* a full frame for each copy of a header */
		shard_count(s, PBOX_SS_DROP_REPLAYED);
	else if (!job_rate_answer(&g->j->rate, s->now_ns))
		shard_count(s, PBOX_SS_DROP_RATE);
	else
		return true;
	return false;
}
