/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Workers go and come: who takes slots at once. */

#include <string.h>

#include "work_impl.h"

/* The nodes of a worker's ranges, in the order of their slots. */
static unsigned
nodes_of_owner(struct pbox_work *work, const uint16_t *owner, unsigned worker)
{
	unsigned v = work->conf.slots, n = 0;

	for (unsigned s = 0, end; s < v; s = end) {
		end = s + 1;
		if (owner[s] != worker)
			continue;
		while (end < v && owner[end] == worker)
			end++;
		for (unsigned first = s; first < end;) {
			unsigned stop = pbox_node_end(pbox_node_at(first, end, v), v);

			work->move[n++] = (struct pbox_work_move){.first = (uint16_t)first,
				.end = (uint16_t)stop,
				.from = (uint16_t)worker,
				.to = PBOX_WORK_NOBODY};
			first = stop;
		}
	}
	return n;
}

/* Who may take slots: of the round in progress those that have begun, if there are some. */
static bool
takes(const struct pbox_work *work, unsigned worker, bool round)
{
	bool able = work_is_able(&work->worker[worker]);

	if (!able || !round || !work->worker[worker].fresh)
		return able;
	for (unsigned i = 0; i < work->conf.workers; i++)
		if (work_is_able(&work->worker[i]) && !work->worker[i].fresh)
			return false;
	return true;
}

/* Who has finished earliest with so many slots more, in one node; its load grows by them. */
static unsigned
earliest_with(struct pbox_work *work, unsigned slots, bool round)
{
	unsigned best = PBOX_WORK_NOBODY;
	double least = 0;

	for (unsigned i = 0; i < work->conf.workers; i++) {
		const struct work_estimate *f = work->worker[i].figure;
		double end = work->load[i] + slots * work_max(f[WORK_SLOT].value, 1e-9) +
			     f[WORK_UP].value;

		if (takes(work, i, round) && (best == PBOX_WORK_NOBODY || end < least)) {
			best = i;
			least = end;
		}
	}
	if (best != PBOX_WORK_NOBODY)
		work->load[best] = least;
	return best;
}

/* A taker for each of n moves, the largest first. load[] says when each worker ends without them. */
static void
find_takers(struct pbox_work *work, unsigned n, bool round)
{
	for (unsigned size = PBOX_MAX_SLOTS; size > 0; size /= 2)
		for (unsigned m = 0; m < n; m++) {
			unsigned k = work->move[m].end - work->move[m].first;

			if (k >= size && k < 2 * size)
				work->move[m].to = (uint16_t)earliest_with(work, k, round);
		}
}

/* Nodes become their halves until there are some for each taker. A move is a node: its halves are nodes, too. */
static unsigned
split_moves(struct pbox_work *work, unsigned n)
{
	unsigned able = 0, slots = 0, nodes = 0, largest;

	for (unsigned i = 0; i < work->conf.workers; i++)
		able += takes(work, i, true);
	for (unsigned m = 0; m < n; m++)
		slots += work->move[m].end - work->move[m].first;
	work_count_owned(work, work->owner);
	for (unsigned i = 0; i < work->conf.workers; i++)
		nodes += takes(work, i, true) ? work->nodes[i] : 0;
	largest = able > 0 ? (slots + able - 1) / able : slots;
	for (unsigned m = 0; m < n;) {
		struct pbox_work_move *x = &work->move[m];
		unsigned size = x->end - x->first, half = 1;

		/* each half is a payload more, and may be one too many */
		if (size <= largest ||
			(work->conf.nodes_most != 0 && nodes + n >= work->conf.nodes_most)) {
			m++;
			continue;
		}
		while (half * 2 < size)
			half *= 2;
		memmove(x + 1, x, (n - m) * sizeof(*x));
		x[0].end = x[1].first = (uint16_t)(x->first + half);
		n++;
	}
	return n;
}

static void
reassign_plan(struct pbox_work *work, struct work_plan *p, unsigned worker)
{
	unsigned n = nodes_of_owner(work, p->owner, worker);
	struct pbox_work_cost cost;

	work_count_owned(work, p->owner);
	for (unsigned i = 0; i < work->conf.workers; i++) {
		work_cost_of(work, i, &cost);
		work->load[i] = work_time(&cost, work->count[i], work->nodes[i]);
	}
	find_takers(work, n, false);
	for (unsigned m = 0; m < n; m++)
		for (unsigned s = work->move[m].first; s < work->move[m].end; s++)
			p->owner[s] = work->move[m].to;
	if (worker < work->conf.workers)
		p->finish[worker] = 0;
	for (unsigned i = 0; p->pub.seconds > 0 && i < work->conf.workers; i++)
		if (work->worker[i].member && p->finish[i] > 0)
			p->finish[i] = work->load[i];
}

static unsigned
reassign_round(struct pbox_work *work, unsigned worker, double at)
{
	unsigned n = split_moves(work, nodes_of_owner(work, work->owner, worker));

	for (unsigned i = 0; i < work->conf.workers; i++)
		work->load[i] = work_finish(work, i, at);
	find_takers(work, n, true);
	for (unsigned m = 0; m < n; m++)
		work_hand_over(work, work->move[m].first, work->move[m].end, work->move[m].to);
	return n;
}

static unsigned
reassign(struct pbox_work *work, unsigned worker, double at, const struct pbox_work_move **moves)
{
	struct work_plan *now = &work->plan[work->current];
	unsigned n;

	if (work->pending)
		reassign_plan(work, &work->plan[!work->current], worker);
	if (work->parted)
		reassign_plan(work, now, worker);
	n = reassign_round(work, worker, at);
	/* rounds until the next plan go as this one does: pieces that were begun stay whose they are. What was stolen is of this
	 * round alone. */
	for (unsigned m = 0; m < n && !work->parted; m++)
		for (unsigned s = work->move[m].first; s < work->move[m].end; s++)
			now->owner[s] = work->move[m].to;
	if (worker < work->conf.workers)
		now->finish[worker] = 0;
	*moves = work->move;
	return n;
}

unsigned
pbox_work_gone(struct pbox_work *work, unsigned worker, double at,
	const struct pbox_work_move **moves, struct pbox_work_reason *why)
{
	PBOX_ASSERT(worker < work->conf.workers && work->worker[worker].member);
	*why = (struct pbox_work_reason){.cause = PBOX_WORK_GONE,
		.worker = (uint16_t)worker,
		.since = work->round,
		.before = work->worker[worker].slots};
	work->worker[worker].member = false;
	work_force(work, PBOX_WORK_GONE, worker);
	return reassign(work, worker, at, moves);
}

void
pbox_work_absent(struct pbox_work *work, unsigned worker)
{
	PBOX_ASSERT(worker < work->conf.workers && work->worker[worker].slots == 0);
	work->worker[worker].member = false;
	work->decision.phase = WORK_NOT_DECIDING;
}

unsigned
pbox_work_join(struct pbox_work *work, unsigned worker, const struct pbox_work_move **moves)
{
	struct work_worker *w = &work->worker[worker];

	PBOX_ASSERT(worker < work->conf.workers && !w->member);
	for (unsigned f = 0; f < WORK_FIGURES; f++) {
		double value;
		unsigned n = 0;

		for (unsigned i = 0; i < work->conf.workers; i++)
			if (work->worker[i].member)
				work->load[n++] = work->worker[i].figure[f].value;
		value = n > 0 ? work_median(work->load, n) : w->figure[f].value;
		work_estimate_begin(&w->figure[f], value, 0.1 * value);
	}
	w->member = true;
	w->fresh = false;
	w->reported = w->no_memory = w->probe = w->done = w->changed = false;
	w->idle = w->quiet = w->quiet_enough = 0;
	w->since = work->round;
	work_force(work, PBOX_WORK_JOINED, worker);
	return reassign(work, PBOX_WORK_NOBODY, 0, moves);
}

void
pbox_work_fresh(struct pbox_work *work, unsigned worker, bool fresh)
{
	PBOX_ASSERT(worker < work->conf.workers && work->worker[worker].member);
	work->worker[worker].fresh = fresh;
}
