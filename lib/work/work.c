/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The room: its memory, its plans, and the round in progress. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "work_impl.h"

#define PROBE_FIRST 50
#define PROBE_LAST  800

static int
check_conf(const struct pbox_work_conf *c, struct pbox_error *err)
{
	if (c->workers < 1 || c->workers > PBOX_WORK_MAX_WORKERS)
		return pbox_fail(err, EINVAL, "%u workers: a plan is for 1 to %u", c->workers,
			PBOX_WORK_MAX_WORKERS);
	if (c->slots < c->workers || c->slots > PBOX_MAX_SLOTS)
		return pbox_fail(err, EINVAL,
			"%u slots for %u workers: give as many as workers, and %u at most",
			c->slots, c->workers, PBOX_MAX_SLOTS);
	return 0;
}

static bool
make_memory(struct pbox_work *w)
{
	unsigned n = w->conf.workers, v = w->conf.slots;
	bool ok = true;

	for (unsigned i = 0; i < 2; i++) {
		w->plan[i].owner = calloc(v, sizeof(uint16_t));
		w->plan[i].finish = calloc(n, sizeof(double));
		ok &= w->plan[i].owner != NULL && w->plan[i].finish != NULL;
		w->plan[i].pub.owner = w->plan[i].owner;
		w->plan[i].pub.finish = w->plan[i].finish;
	}
	w->owner = calloc(v, sizeof(*w->owner));
	w->begun = calloc(v, sizeof(*w->begun));
	w->move = calloc(v, sizeof(*w->move));
	w->worker = calloc(n, sizeof(*w->worker));
	w->cost = calloc(n, sizeof(*w->cost));
	w->load = calloc(n, sizeof(*w->load));
	w->first = calloc(n + 1, sizeof(*w->first));
	w->spare = calloc(3 * (n + 1), sizeof(*w->spare));
	w->count = calloc(n, sizeof(*w->count));
	w->nodes = calloc(n, sizeof(*w->nodes));
	return ok && w->owner != NULL && w->begun != NULL && w->move != NULL && w->worker != NULL &&
	       w->cost != NULL && w->load != NULL && w->first != NULL && w->spare != NULL &&
	       w->count != NULL && w->nodes != NULL;
}

/* Plan 0. */
static void
share_first(struct pbox_work *w)
{
	const struct pbox_work_conf *c = &w->conf;
	unsigned here = 0, n = 0;

	for (unsigned i = 0; i < c->workers; i++)
		here += c->here == NULL || c->here[i];
	PBOX_ASSERT(here > 0);
	for (unsigned i = 0; i < c->workers; i++) {
		w->worker[i].probe_after = PROBE_FIRST;
		w->worker[i].member = c->here == NULL || c->here[i];
		if (!w->worker[i].member)
			continue;
		for (unsigned s = pbox_slots_of(n, here, c->slots);
			s < pbox_slots_of(n + 1, here, c->slots); s++)
			w->plan[0].owner[s] = (uint16_t)i;
		n++;
	}
}

struct pbox_work *
pbox_work_create(const struct pbox_work_conf *conf, struct pbox_error *err)
{
	struct pbox_work *w;

	if (check_conf(conf, err) < 0)
		return NULL;
	w = calloc(1, sizeof(*w));
	if (w != NULL)
		w->conf = *conf;
	if (w == NULL || !make_memory(w)) {
		pbox_work_destroy(w);
		pbox_fail(err, ENOMEM, "no memory for the plans of %u workers and %u slots",
			conf->workers, conf->slots);
		return NULL;
	}
	share_first(w);
	w->conf.here = NULL;
	pbox_work_round(w, 0);
	return w;
}

void
pbox_work_destroy(struct pbox_work *w)
{
	if (w == NULL)
		return;
	for (unsigned i = 0; i < 2; i++) {
		free(w->plan[i].owner);
		free(w->plan[i].finish);
	}
	free(w->owner);
	free(w->begun);
	free(w->move);
	free(w->worker);
	free(w->cost);
	free(w->load);
	free(w->first);
	free(w->spare);
	free(w->count);
	free(w->nodes);
	free(w);
}

const struct pbox_work_plan *
pbox_work_plan(const struct pbox_work *w)
{
	return &w->plan[w->current].pub;
}

const struct pbox_work_plan *
pbox_work_next(const struct pbox_work *w)
{
	return w->pending ? &w->plan[!w->current].pub : NULL;
}

const uint16_t *
pbox_work_owners(const struct pbox_work *w)
{
	return w->owner;
}

void
pbox_work_postpone(struct pbox_work *w, uint32_t from_round)
{
	PBOX_ASSERT(w->pending);
	w->plan[!w->current].pub.from_round = from_round;
}

void
pbox_work_adopt(struct pbox_work *w, const uint16_t *owner, uint16_t mask)
{
	PBOX_ASSERT(!w->pending);
	w->decision.phase = WORK_NOT_DECIDING;
	for (unsigned s = 0; s < w->conf.slots; s++) {
		PBOX_ASSERT((owner[s] & mask) < w->conf.workers);
		w->plan[w->current].owner[s] = owner[s] & mask;
	}
	pbox_work_round(w, w->round);
}

struct work_plan *
work_newest(struct pbox_work *w)
{
	return &w->plan[w->pending ? !w->current : w->current];
}

void
work_force(struct pbox_work *work, enum pbox_work_cause cause, unsigned worker)
{
	work->decision.phase = WORK_NOT_DECIDING;
	work->forced = true;
	work->force = (struct pbox_work_reason){
		.cause = cause, .worker = (uint16_t)worker, .since = work->round};
}

/* A worker without slots is not measured: after a while it gets one. */
static void
count_idle(struct pbox_work *work, unsigned i)
{
	struct work_worker *w = &work->worker[i];

	if (w->slots > 0 || !work_is_able(w)) {
		if (!w->probe && w->slots > 1)
			w->probe_after = PROBE_FIRST;
		w->idle = 0;
		return;
	}
	if (w->probe || ++w->idle < w->probe_after)
		return;
	w->probe = true;
	w->probe_after =
		(uint16_t)(2 * w->probe_after < PROBE_LAST ? 2 * w->probe_after : PROBE_LAST);
	for (unsigned f = 0; f < WORK_FIGURES; f++)
		work_estimate_forget(&w->figure[f]);
	if (!work->forced)
		work_force(work, PBOX_WORK_PROBE, i);
}

void
pbox_work_round(struct pbox_work *work, uint32_t round)
{
	unsigned n = work->conf.workers, v = work->conf.slots;

	if (work->pending &&
		pbox_serial_diff(round, work->plan[!work->current].pub.from_round) >= 0) {
		work->current = !work->current;
		work->pending = false;
	}
	work->round = round;
	work->parted = false;
	memcpy(work->owner, work->plan[work->current].owner, v * sizeof(*work->owner));
	memset(work->begun, 0, v);
	work_count_owned(work, work->owner);
	for (unsigned i = 0; i < n; i++) {
		struct work_worker *w = &work->worker[i];

		w->done = false;
		w->slots = work->count[i];
		w->begun = 0;
		w->begun_at = 0;
		w->took = false;
		count_idle(work, i);
	}
}

void
pbox_work_hand(struct pbox_work *work, unsigned first, unsigned end, unsigned to)
{
	PBOX_ASSERT(first < end && end <= work->conf.slots && to < work->conf.workers);
	work->parted = true;
	work_hand_over(work, first, end, to);
}

void
pbox_work_keeps(struct pbox_work *work, unsigned worker, bool keeps)
{
	PBOX_ASSERT(worker < work->conf.workers);
	work->worker[worker].keeps = keeps;
}

void
work_count_owned(struct pbox_work *work, const uint16_t *owner)
{
	unsigned v = work->conf.slots;

	memset(work->count, 0, work->conf.workers * sizeof(*work->count));
	memset(work->nodes, 0, work->conf.workers * sizeof(*work->nodes));
	for (unsigned first = 0, end; first < v; first = end) {
		end = first + 1;
		while (end < v && owner[end] == owner[first])
			end++;
		if (owner[first] == PBOX_WORK_NOBODY)
			continue;
		work->count[owner[first]] += (uint16_t)(end - first);
		work->nodes[owner[first]] += (uint16_t)work_nodes(first, end, v);
	}
}

void
work_hand_over(struct pbox_work *work, unsigned first, unsigned end, unsigned to)
{
	for (unsigned s = first; s < end; s++) {
		unsigned from = work->owner[s];

		if (from != PBOX_WORK_NOBODY) {
			work->worker[from].slots--;
			work->worker[from].begun -= work->begun[s];
		}
		work->begun[s] = 0;
		work->owner[s] = (uint16_t)to;
		if (to != PBOX_WORK_NOBODY)
			work->worker[to].slots++;
	}
}

void
work_cost_of(const struct pbox_work *work, unsigned worker, struct pbox_work_cost *cost)
{
	const struct work_worker *w = &work->worker[worker];

	cost->slot = work_max(w->figure[WORK_SLOT].value, WORK_SLOT_LEAST);
	cost->fixed = w->figure[WORK_FIXED].value;
	cost->up = w->figure[WORK_UP].value;
	cost->down = w->figure[WORK_DOWN].value;
	cost->most = work_is_able(w) ? (uint16_t)work->conf.slots : 0;
	cost->least = (w->probe || work->conf.everyone) && cost->most > 0;
}

void
pbox_work_view(const struct pbox_work *work, unsigned worker, struct pbox_work_view *view)
{
	const struct work_worker *w = &work->worker[worker];

	PBOX_ASSERT(worker < work->conf.workers);
	memset(view, 0, sizeof(*view));
	view->member = w->member;
	view->fresh = w->fresh;
	view->fits_none = w->no_memory;
	work_cost_of(work, worker, &view->cost);
	view->noise = w->figure[WORK_SLOT].noise;
	view->since = w->since;
	view->slots = w->slots;
	view->begun = w->begun;
}
