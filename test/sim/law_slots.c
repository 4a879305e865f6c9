/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "law.h"

/*
 * Slots of rounds (R5.2b): which of them have been brought, in which nodes, and what the box may say about that. All of it
 * is read out of frames, with arithmetic of its own.
 */

unsigned
sim_slots(const struct sim_job_spec *j)
{
	return j->slots != 0 ? j->slots : j->workers;
}

unsigned
sim_slots_of(const struct sim_job_spec *j, unsigned worker)
{
	return worker * sim_slots(j) / j->workers;
}

/* The slot after the last one of the node that begins with `first`. */
static unsigned
end_of(const struct sim_job_spec *spec, unsigned first, unsigned level)
{
	unsigned end = first + (1u << level);

	return end < spec->slots ? end : spec->slots;
}

/* Where jobs name no slots, `base` means nothing. */
static unsigned
level_of(const struct sim_job_spec *spec, const struct pbox_hdr *h)
{
	return spec->slots != 0 ? h->base >> 16 : 0;
}

bool
slots_of_frame(
	const struct sim_job_spec *spec, const struct pbox_hdr *h, unsigned *first, unsigned *end)
{
	unsigned level = level_of(spec, h);

	if (h->worker >= spec->workers)
		return false;
	*first = h->worker;
	*end = h->worker + 1u;
	if (spec->slots == 0)
		return true;
	*first = h->base & 0xFFFF;
	if (level > 12 || *first % (1u << level) != 0 || *first >= spec->slots)
		return false;
	*end = end_of(spec, *first, level);
	return *first >= sim_slots_of(spec, h->worker) && *end <= sim_slots_of(spec, h->worker + 1);
}

/* Is it one of the fewest nodes that its worker's slots consist of? Of a node above it, it has either all slots, or its worker
 * has not all. */
static bool
is_fewest(const struct sim_job_spec *spec, unsigned op, const struct pbox_hdr *h)
{
	unsigned first = h->base & 0xFFFF, level = h->base >> 16, end = end_of(spec, first, level);
	unsigned low = sim_slots_of(spec, h->worker), high = sim_slots_of(spec, h->worker + 1);

	if (level > 0 && first + (1u << (level - 1)) >= end)
		return false; /* its left half has the same slots */
	if (op == PBOX_OP_WEIGHTED_MEAN)
		return level == 0;
	while (++level <= 12) {
		unsigned f = first >> level << level, e = end_of(spec, f, level);

		if (f >= low && e <= high && (f < first || e > end))
			return false;
	}
	return true;
}

void
slots_contribution(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload, bool intact)
{
	const struct sim_job_spec *spec = &s->sc.job[job];
	unsigned first, end;
	bool good = slots_of_frame(spec, h, &first, &end);

	(void)payload;
	if (intact && spec->slots != 0 &&
		(!good || !is_fewest(spec, sim_spec(&s->sc, job, f)->fixed.op, h)))
		sim_fail(s, "job %u worker %u brings node %x of %u slots", job, h->worker, h->base,
			spec->slots);
	if (!good || end > f->slots)
		return;
	if (intact)
		f->slot[first].width = (uint16_t)(1u << level_of(spec, h));
	for (struct sim_slot *l = f->slot + first; l < f->slot + end; l++) {
		if (pbox_serial_diff(h->round, l->opened) > 0)
			l->opened = h->round;
		if (!intact || pbox_serial_diff(h->round, l->arrived) <= 0)
			continue;
		l->arrived = h->round;
		l->at = s->now;
		if (spec->slots !=
			0) /* where most frames are lost, a round of many nodes takes long */
			s->box->progress_at = s->now;
	}
}

bool
slots_opened(const struct sim_fragment *f, unsigned first, unsigned end, uint32_t round)
{
	for (unsigned i = first; i < end; i++)
		if (pbox_serial_diff(f->slot[i].opened, round) < 0)
			return false;
	return true;
}

void
slots_pushed(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	unsigned first, end;

	if (s->sc.job[job].slots == 0)
		return;
	if (!slots_of_frame(&s->sc.job[job], h, &first, &end) ||
		!slots_opened(f, first, end, h->round))
		sim_fail(s,
			"job %u chunk %x frag %u: PUSH_OK of round %u to worker %u names node %x, which has not come",
			job, f->chunk, f->frag, h->round, h->worker, h->base);
}

bool
slots_all_taken(const struct sim *s, unsigned job, const struct sim_fragment *f, uint32_t round)
{
	const struct sim_job_spec *spec = &s->sc.job[job];
	uint64_t refused = 0;

	for (unsigned i = 0; i < s->sc.shards; i++) {
		const uint64_t *v = s->box->shard[i].stats;

		refused += v[PBOX_SS_DROP_NO_RECORD] + v[PBOX_SS_DROP_NO_BUFFER] +
			   v[PBOX_SS_DROP_REPLAYED] + v[PBOX_SS_TAKEN_BACK];
	}
	/* before INIT every contribution is early; who is dead or moves is not heard */
	return refused == 0 && s->box->generation == 0 && s->job[job].life == 0 && !spec->shrink &&
	       spec->restarts == 0 && round != spec->first_round + 1 && f->published == round - 1;
}

void
slots_wait(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	const struct sim_job_spec *spec = &s->sc.job[job];
	uint32_t next = f->published + 1; /* not after the round in progress */
	uint32_t round = pbox_serial_diff(h->round, next) > 0 ? h->round : next;
	unsigned low, high, there = 0;

	if (h->worker >= spec->workers)
		return;
	low = sim_slots_of(spec, h->worker);
	high = sim_slots_of(spec, h->worker + 1);
	for (unsigned i = 0; i < f->slots; i++)
		there += slots_opened(f, i, i + 1, next);
	if (h->aux > there)
		sim_fail(s, "job %u chunk %x frag %u: WAIT counts %u slots, of which %u have come",
			job, f->chunk, f->frag, h->aux, there);
	if (h->weight < spec->workers && !spec->shrink &&
		!slots_opened(f, 0, sim_slots_of(spec, h->weight), next))
		sim_fail(s,
			"job %u chunk %x frag %u: WAIT names worker %u, and a slot before its own is missing",
			job, f->chunk, f->frag, h->weight);
	if ((h->flags & PBOX_F_HAVE) != 0) {
		if (!slots_opened(f, low, high, round))
			sim_fail(s,
				"job %u chunk %x frag %u: WAIT of round %u says HAVE, and worker %u has not brought all its slots",
				job, f->chunk, f->frag, h->round, h->worker);
		return;
	}
	if (h->base < low || h->base >= high || !slots_opened(f, low, h->base, round))
		sim_fail(s,
			"job %u chunk %x frag %u: WAIT says that slot %u is the first that worker %u has to bring",
			job, f->chunk, f->frag, h->base, h->worker);
	else if (pbox_serial_diff(f->slot[h->base].arrived, round) >= 0 &&
		 f->slot[h->base].at < s->now && slots_all_taken(s, job, f, round))
		sim_fail(s,
			"job %u chunk %x frag %u: WAIT says that slot %u is missing in round %u, and it has come",
			job, f->chunk, f->frag, h->base, h->round);
}

unsigned
slots_nodes(const struct sim_fragment *f)
{
	unsigned n = 0;

	for (unsigned i = 0; i < f->slots; n++)
		i += f->slot[i].width != 0 ? f->slot[i].width : 1;
	return n;
}

void
slots_reset(struct sim_fragment *f, uint32_t round)
{
	for (unsigned i = 0; i < f->slots; i++)
		f->slot[i].arrived = f->slot[i].opened = round;
}
