/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Within a round: slots of the worker that would end last, for one that has none left. */

#include "work_impl.h"

/* it must help by so much of the round; a border may move for so much of the finish */
#define STEAL_GAIN 0.05
#define STEAL_MOVE 0.05
/* slots of another one are not taken again before the first is begun, or that many could have been computed */
#define TAKEN_SLOTS 2

/* The first run of not-begun slots of an owner. */
static bool
first_run(const struct pbox_work *work, unsigned owner, unsigned *first, unsigned *end)
{
	unsigned v = work->conf.slots, s = 0;

	while (s < v && (work->owner[s] != owner || work->begun[s]))
		s++;
	*first = s;
	while (s < v && work->owner[s] == owner && !work->begun[s])
		s++;
	*end = s;
	return *first < *end;
}

/* The last one: it does these at the end. */
static bool
last_run(const struct pbox_work *work, unsigned owner, unsigned *first, unsigned *end)
{
	unsigned s = work->conf.slots;

	while (s > 0 && (work->owner[s - 1] != owner || work->begun[s - 1]))
		s--;
	*end = s;
	while (s > 0 && work->owner[s - 1] == owner && !work->begun[s - 1])
		s--;
	*first = s;
	return *first < *end;
}

/* What it took it keeps for a while, or two that have none left would give each other the same slots without end. */
static bool
keeps_slots(const struct work_worker *w, double at)
{
	return w->keeps || w->begun == w->slots ||
	       (w->took && at - w->took_at < TAKEN_SLOTS * w->figure[WORK_SLOT].value);
}

static unsigned
find_victim(const struct pbox_work *work, double at, double *finish)
{
	unsigned last = PBOX_WORK_NOBODY;

	*finish = 0;
	for (unsigned i = 0; i < work->conf.workers; i++) {
		const struct work_worker *w = &work->worker[i];
		double end = work_finish(work, i, at);

		if (!keeps_slots(w, at) && end > *finish) {
			*finish = end;
			last = i;
		}
	}
	return last;
}

/* Where to cut the run [first, end) of a worker that would finish so late, for a thief that can begin at `at`. */
struct cut {
	unsigned first, end, slots;
	double at, finish;
	double pace;     /* seconds a slot that it loses */
	double slot, up; /* of the thief */
};

static double
later_of(const struct cut *c, unsigned border)
{
	double thief =
		c->at + (c->end - border) * c->slot + work_nodes(border, c->end, c->slots) * c->up;

	return work_max(thief, c->finish - (c->end - border) * c->pace);
}

static unsigned
find_cut(const struct cut *c, double *later)
{
	unsigned best = c->end, chosen;
	int nodes;

	*later = c->finish;
	for (unsigned b = c->first; b < c->end; b++) {
		double t = later_of(c, b);

		if (t < *later) {
			*later = t;
			best = b;
		}
	}
	chosen = best;
	nodes = best < c->end ? __builtin_ctz(best | 1u << PBOX_MAX_LEVEL) : 0;
	for (unsigned b = c->first; best < c->end && b < c->end; b++)
		if (later_of(c, b) <= *later * (1 + STEAL_MOVE) &&
			__builtin_ctz(b | 1u << PBOX_MAX_LEVEL) > nodes) {
			nodes = __builtin_ctz(b | 1u << PBOX_MAX_LEVEL);
			chosen = b;
		}
	if (chosen < c->end)
		*later = later_of(c, chosen);
	return chosen;
}

static bool
steal(struct pbox_work *work, unsigned thief, double at, struct pbox_work_move *move,
	struct pbox_work_reason *why)
{
	const struct work_estimate *f = work->worker[thief].figure;
	struct cut c = {.slots = work->conf.slots,
		.at = at,
		.slot = work_max(f[WORK_SLOT].value, 1e-9),
		.up = f[WORK_UP].value};
	unsigned from = find_victim(work, at, &c.finish), before, border;
	double later;

	if (from == PBOX_WORK_NOBODY || c.finish - at < STEAL_GAIN * c.finish ||
		!last_run(work, from, &c.first, &c.end))
		return false;
	c.pace = work_pace(&work->worker[from], at);
	border = find_cut(&c, &later);
	if (border == c.end || c.finish - later < STEAL_GAIN * c.finish)
		return false;
	before = work->worker[from].slots;
	pbox_work_hand(work, border, c.end, thief);
	work->worker[thief].took = true;
	work->worker[thief].took_at = at;
	*move = (struct pbox_work_move){
		(uint16_t)border, (uint16_t)c.end, (uint16_t)from, (uint16_t)thief};
	*why = (struct pbox_work_reason){.cause = PBOX_WORK_STOLEN,
		.worker = (uint16_t)from,
		.to = (uint16_t)thief,
		.before = (uint16_t)before,
		.after = work->worker[from].slots,
		.since = work->round,
		.gain = 1 - later / c.finish};
	return true;
}

/* Slots that lost their owner while no other could take them. */
static bool
take_orphans(struct pbox_work *work, unsigned worker, struct pbox_work_move *move)
{
	unsigned first, end;

	if (!first_run(work, PBOX_WORK_NOBODY, &first, &end))
		return false;
	pbox_work_hand(work, first, end, worker);
	*move = (struct pbox_work_move){
		(uint16_t)first, (uint16_t)end, (uint16_t)worker, (uint16_t)worker};
	return true;
}

bool
pbox_work_task(struct pbox_work *work, unsigned worker, double at, struct pbox_work_move *move,
	struct pbox_work_reason *why)
{
	struct work_worker *w = &work->worker[worker];
	unsigned first, end;

	PBOX_ASSERT(worker < work->conf.workers && w->member);
	if (first_run(work, worker, &first, &end)) {
		*move = (struct pbox_work_move){
			(uint16_t)first, (uint16_t)end, (uint16_t)worker, (uint16_t)worker};
		return true;
	}
	if (!work_is_able(w) || w->done)
		return false;
	if (take_orphans(work, worker, move))
		return true;
	/* nothing is known of its speed: it might be the slowest */
	return w->figure[WORK_SLOT].value > 0 && steal(work, worker, at, move, why);
}
