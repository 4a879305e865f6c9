/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Reports of workers: checked, then learnt. */

#include <errno.h>
#include <math.h>

#include "work_impl.h"

/* ten days: no round takes that long, and sums of these stay exact enough */
#define SECONDS_MAX 1e6
/* rounds in which a slot would fit before it does; after one that was soon taken back, twice as many */
#define QUIET_ROUNDS 5
#define QUIET_MOST   160
#define QUIET_SOON   64

static int
check_seconds(unsigned worker, const char *what, double x, struct pbox_error *err)
{
	if (isfinite(x) && x >= 0 && x <= SECONDS_MAX)
		return 0;
	return pbox_fail(err, EINVAL,
		"worker %u reports %g seconds of %s: a figure from 0 to %g is expected, look at its clock",
		worker, x, what, SECONDS_MAX);
}

static int
check_report(const struct pbox_work *work, unsigned worker, const struct pbox_work_report *r,
	struct pbox_error *err)
{
	int ret = 0;

	ret = ret ? ret : check_seconds(worker, "computation", r->compute, err);
	ret = ret ? ret : check_seconds(worker, "fixed work", r->fixed, err);
	ret = ret ? ret : check_seconds(worker, "sending", r->up, err);
	ret = ret ? ret : check_seconds(worker, "receiving", r->down, err);
	if (ret != 0)
		return ret;
	if (r->slots > work->conf.slots || r->payloads > r->slots ||
		(r->slots > 0 && r->payloads == 0))
		return pbox_fail(err, EINVAL,
			"worker %u reports %u slots in %u payloads of %u slots: each payload has a slot at least",
			worker, r->slots, r->payloads, work->conf.slots);
	if (r->slots > 0 && !(r->compute > 0))
		return pbox_fail(err, EINVAL,
			"worker %u reports 0 seconds for %u slots: look at its clock", worker,
			r->slots);
	return 0;
}

static void
learn_times(struct work_worker *w, const struct pbox_work_report *r)
{
	struct work_estimate *f = w->figure;

	if (r->slots > 0) {
		if (f[WORK_SLOT].samples == 0)
			w->since = r->round;
		if (work_estimate_add(&f[WORK_SLOT], r->compute / r->slots)) {
			/* two of the samples before are of the new speed as well */
			w->since = r->round - 2;
			w->changed = true;
		}
		w->changed |= work_estimate_add(&f[WORK_UP], r->up / r->payloads);
		w->changed |= w->probe;
		w->probe = false;
	}
	w->changed |= work_estimate_add(&f[WORK_FIXED], r->fixed);
	w->changed |= work_estimate_add(&f[WORK_DOWN], r->down);
}

static void
learn_memory(struct pbox_work *work, unsigned worker, uint32_t round, bool fits)
{
	struct work_worker *w = &work->worker[worker];
	bool had_none = w->no_memory;

	w->quiet = had_none && fits ? w->quiet + 1 : 0;
	if (!had_none && !fits) {
		/* soon after it has fitted again: the next time it waits for twice as long */
		bool soon = w->quiet_enough > 0 && round - w->grown < QUIET_SOON;

		w->quiet_enough = soon ? 2 * w->quiet_enough : QUIET_ROUNDS;
		if (w->quiet_enough > QUIET_MOST)
			w->quiet_enough = QUIET_MOST;
		w->no_memory = true;
	} else if (had_none && w->quiet >= w->quiet_enough) {
		w->no_memory = false;
		w->grown = round;
		w->quiet = 0;
	}
	if (w->no_memory != had_none)
		work_force(work, PBOX_WORK_MEMORY, worker);
}

int
pbox_work_report(struct pbox_work *work, unsigned worker, const struct pbox_work_report *r,
	struct pbox_error *err)
{
	struct work_worker *w = &work->worker[worker];
	int ret;

	PBOX_ASSERT(worker < work->conf.workers);
	ret = check_report(work, worker, r, err);
	if (ret != 0 || !w->member ||
		(w->reported && pbox_serial_diff(r->round, w->last_round) <= 0))
		return ret;
	w->reported = true;
	w->last_round = r->round;
	learn_times(w, r);
	learn_memory(work, worker, r->round, r->fits);
	if (r->round == work->round) {
		pbox_work_begun(work, worker, 0, work->conf.slots, w->begun_at);
		w->done = true;
	}
	return 0;
}

void
pbox_work_fits(struct pbox_work *work, unsigned worker, uint32_t round, bool fits)
{
	PBOX_ASSERT(worker < work->conf.workers);
	if (work->worker[worker].member)
		learn_memory(work, worker, round, fits);
}

void
pbox_work_begun(struct pbox_work *work, unsigned worker, unsigned first, unsigned end, double at)
{
	struct work_worker *w = &work->worker[worker];

	PBOX_ASSERT(worker < work->conf.workers && first <= end && end <= work->conf.slots);
	for (unsigned s = first; s < end && w->begun < w->slots; s++)
		if (work->owner[s] == worker && !work->begun[s]) {
			work->begun[s] = 1;
			w->begun++;
			w->begun_at = at;
			w->took = false;
		}
}
