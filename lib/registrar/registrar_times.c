/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What workers measure of the boxes of their job (STATS, R16.8): kept for who decides which box is slow. */

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "registrar_impl.h"

/* A box that a worker has ended a round with lives: for so many times as it is between rounds, within bounds. */
#define LIVES_ROUNDS 3
#define LIVES_LEAST  (3000 * NS_PER_MS)
#define LIVES_MOST   (60000 * NS_PER_MS)

struct job_times {
	struct pbox_stats_msg *of; /* of each worker; NULL: none has said anything */
	/* when some worker has said last that a box took part in a round of its, which one, and how long before that it was so the last time */
	struct {
		uint64_t ns, apart_ns;
		uint16_t worker;
	} heard[PBOX_MAX_BOXES];
	/* At a box that does not decide: the latest round that has ended here, when that was, and how long after the one before. */
	uint32_t round;
	uint64_t ended_ns, apart_ns;
	uint64_t took_ns; /* since when this box decides, if another one did before; else 0 */
};

static struct job_times *
times_of(const struct pbox_job *job)
{
	return registrar_job_state(job, PART_times);
}

static bool
is_sum(double x)
{
	return isfinite(x) && x >= 0;
}

static bool
are_sums(const struct pbox_stats_msg *m)
{
	bool good = is_sum(m->seconds) && is_sum(m->squares);

	for (unsigned i = 0; i < m->boxes; i++)
		good &= is_sum(m->box[i].seconds) && is_sum(m->box[i].squares) &&
			is_sum(m->box[i].exposed);
	return good;
}

static size_t
heap_of_times(const struct pbox_job *job)
{
	return job->workers * sizeof(struct pbox_stats_msg);
}

static bool
have_room(struct pbox_job *job)
{
	struct job_times *k = times_of(job);

	if (k->of != NULL)
		return true;
	if (!pbox_job_charge(job, heap_of_times(job)))
		return false;
	k->of = calloc(job->workers, sizeof(*k->of));
	if (k->of == NULL)
		pbox_job_refund(job, heap_of_times(job));
	return k->of != NULL;
}

/* Of growth alone: what this box hears first may be long ago. */
static void
note_heard(struct pbox_registrar *r, struct job_times *k, unsigned worker,
	const struct pbox_stats_msg *m)
{
	const struct pbox_stats_msg *before = &k->of[worker];

	for (unsigned b = 0; b < m->boxes && before->boxes == m->boxes; b++) {
		if (m->box[b].rounds <= before->box[b].rounds)
			continue;
		if (k->heard[b].ns != 0)
			k->heard[b].apart_ns = r->now_ns - k->heard[b].ns;
		k->heard[b].ns = r->now_ns;
		k->heard[b].worker = (uint16_t)worker;
	}
}

int
registrar_times_lives(const struct pbox_registrar *r, const struct pbox_job *job, unsigned box,
	struct pbox_error *err)
{
	const struct job_times *k = times_of(job);
	uint64_t patience = LIVES_ROUNDS * k->heard[box].apart_ns, ago;

	/* Workers say it some time after a round: a box of which nobody has said anything may well live. */
	if (k->heard[box].ns == 0) {
		ago = r->now_ns - (k->took_ns != 0 ? k->took_ns : job->begun_ns);
		if (ago >= LIVES_LEAST)
			return 0;
		return pbox_fail(err, EBUSY,
			"box %u of job '%s' may live: this box has had the job, or has decided in it, for %.1f s, and no worker has said yet which boxes it ends rounds with. If box %u is dead: again in %.0f s, or with --force",
			box, job->name, (double)ago / 1e9, box,
			(double)(LIVES_LEAST - ago) / 1e9 + 1);
	}
	if (patience < LIVES_LEAST)
		patience = LIVES_LEAST;
	if (patience > LIVES_MOST)
		patience = LIVES_MOST;
	ago = r->now_ns - k->heard[box].ns;
	if (ago >= patience)
		return 0;
	return pbox_fail(err, EBUSY,
		"box %u of job '%s' lives: worker %u has ended a round with it %.1f s ago, and what its optimiser has gathered there would be lost. To empty it: pbox-ctl drain %s %u. If it is dead: again in %.0f s, or with --force",
		box, job->name, k->heard[box].worker, (double)ago / 1e9, job->name, box,
		(double)(patience - ago) / 1e9 + 1);
}

void
registrar_times_take(const struct pbox_registrar *r, struct pbox_job *job)
{
	times_of(job)->took_ns = r->now_ns;
}

void
registrar_times_ended(const struct pbox_registrar *r, struct pbox_job *job, uint32_t round)
{
	struct job_times *k = times_of(job);

	if (round == k->round)
		return;
	k->apart_ns = k->ended_ns != 0 ? r->now_ns - k->ended_ns : 0;
	k->ended_ns = r->now_ns;
	k->round = round;
}

int
registrar_times_still(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_error *err)
{
	const struct job_times *k = times_of(job);
	uint64_t since = k->ended_ns != 0 ? k->ended_ns : job->begun_ns, ago = r->now_ns - since;
	uint64_t patience = LIVES_ROUNDS * k->apart_ns;

	if (patience < LIVES_LEAST)
		patience = LIVES_LEAST;
	if (patience > LIVES_MOST)
		patience = LIVES_MOST;
	if (ago >= patience)
		return 0;
	return pbox_fail(err, EBUSY,
		"box %u of job '%s' may live: round %u has ended %.1f s ago. If it is dead: again in %.0f s, or with --force",
		job->decider, job->name, k->round, (double)ago / 1e9,
		(double)(patience - ago) / 1e9 + 1);
}

static void
on_box_times(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	const struct pbox_registrar_boxes *b = &r->conf.boxes;
	struct pbox_stats_msg m;

	if (b->boxes < 2) {
		count_control(r, PBOX_RS_DROP_TYPE);
		registrar_unsupported(r, f, pbox_type_name(f->hdr.type));
		return;
	}
	if (pbox_stats_decode(f->payload, f->hdr.length, &m) != 0) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	count_control(r, PBOX_RS_RX_STATS);
	if (!registrar_decides(r, job)) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, b->box,
			"STATS are for the box that decides, which is number %u, and this is number %u",
			job->decider + 1u, b->box + 1u);
		return;
	}
	if (m.boxes != b->boxes || !are_sums(&m)) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m.boxes,
			"STATS of %u boxes, of which there are %u, or with a sum that is no sum of seconds",
			m.boxes, b->boxes);
		return;
	}
	if (!have_room(job)) {
		registrar_refuse(r, f, PBOX_E_NO_MEMORY, 0,
			"no memory for the times of the boxes of job '%s'", job->name);
		return;
	}
	note_heard(r, times_of(job), f->hdr.worker, &m);
	times_of(job)->of[f->hdr.worker] = m;
	registrar_reply(r, f, PBOX_STATS_OK, 0);
}

bool
pbox_registrar_view_times(const struct pbox_registrar *r, const struct pbox_job *job,
	unsigned worker, struct pbox_stats_msg *out)
{
	const struct job_times *k = times_of(job);

	(void)r;
	if (k->of == NULL || worker >= job->workers || k->of[worker].boxes == 0)
		return false;
	*out = k->of[worker];
	return true;
}

static void
times_job_end(struct pbox_registrar *r, struct pbox_job *job)
{
	(void)r;
	free(times_of(job)->of);
	times_of(job)->of = NULL;
}

const struct registrar_part registrar_times_part = {
	.name = "times of boxes",
	.types = {{on_box_times, PBOX_STATS}},
	.job_end = times_job_end,
	.job_state = sizeof(struct job_times),
};
