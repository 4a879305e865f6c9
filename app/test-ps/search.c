/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The highest rate that a box carries, as RFC 2544 and CSIT look for it: contributions are offered at
 * a rate; a trial is good if 99 % of them were answered in its time and no more than the limit
 * went again. The first trial offers as much as the windows let through; what was reached is the
 * upper bound, and halving the interval leads to the rate. A trial that fails is tried once more: on
 * a shared machine others fail it, too, while what is too fast fails twice.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "run.h"
#include "testps.h"

#define NDR_LIMIT 0.0
#define PDR_LIMIT 0.005
#define DELIVERED 0.99
#define EDGE      64   /* contributions that a trial's ends may cut off */
#define PRECISION 0.01 /* of the rate */
#define WARM_PART 4    /* of a trial */
#define TRIALS    24
#define OVERLOAD  1.2
#define POINTS    3

struct trial {
	double rate; /* offered: contributions a second; 0: no limit */
	struct figures f;
	bool good;
};

static void
print(const char *what, const struct trial *r)
{
	char offered[32] = "no limit";

	if (r->rate > 0)
		snprintf(offered, sizeof(offered), "%.0f", r->rate);
	printf("%-14s %12s %12.0f %9.2f %9.4f %9.1f %9.1f  %s\n", what, offered, r->f.contributions,
		r->f.push_gbit, r->f.again * 100, (double)r->f.p50 * 1e-3, (double)r->f.p99 * 1e-3,
		r->good ? "good" : "-");
}

static json_t *
as_json(const struct trial *r)
{
	json_t *o = json_figures(&r->f);

	json_object_set_new(o, "offered_per_s", json_real(r->rate));
	json_object_set_new(o, "good", json_boolean(r->good));
	return o;
}

static int
trial(struct testps *t, double rate, double limit, struct trial *r, struct pbox_error *err)
{
	uint64_t us = t->opt.trial_ns / 1000;
	int ret;

	*r = (struct trial){.rate = rate};
	atomic_store(&t->rate, (uint64_t)rate);
	ret = run_trial(t, us / WARM_PART, us, &r->f, err);
	r->good =
		ret == 0 && r->f.again <= limit &&
		(rate == 0 || (double)r->f.v[LS_RESULTS] + EDGE >= DELIVERED * rate * r->f.seconds);
	return ret;
}

static int
trial_twice(struct testps *t, double rate, double limit, struct trial *r, struct pbox_error *err)
{
	int ret = trial(t, rate, limit, r, err);

	if (ret == 0 && !r->good) {
		print("trial", r);
		ret = trial(t, rate, limit, r, err);
	}
	return ret;
}

/* The highest good rate, in *best. */
static int
find(struct testps *t, double limit, struct trial *best, json_t *trials, struct pbox_error *err)
{
	struct trial r, most;
	double low = 0, high;
	int ret = trial(t, 0, limit, &most, err);

	if (ret != 0)
		return ret;
	print("saturation", &most);
	json_array_append_new(trials, as_json(&most));
	*best = (struct trial){0};
	high = most.f.contributions;
	for (unsigned i = 0; ret == 0 && i < TRIALS && high - low > PRECISION * high; i++) {
		double rate = i == 0 ? high : (low + high) / 2;

		if (rate < 1)
			break;
		ret = trial_twice(t, rate, limit, &r, err);
		if (ret != 0)
			return ret;
		print("trial", &r);
		json_array_append_new(trials, as_json(&r));
		if (r.good) {
			low = rate;
			*best = r;
			if (i == 0)
				break; /* all that goes through */
		} else {
			high = rate;
		}
	}
	if (best->rate == 0)
		return pbox_fail(err, ENODATA,
			"no rate was good: even slow trials lose frames, or --trial is too short");
	return ret;
}

static int
latencies(struct testps *t, double rate, json_t *out, struct pbox_error *err)
{
	static const unsigned percent[POINTS] = {10, 50, 90};
	int ret = 0;

	for (unsigned i = 0; ret == 0 && i < POINTS; i++) {
		struct trial r;
		char what[24];
		json_t *o;

		ret = trial(t, rate * percent[i] / 100, 1, &r, err);
		if (ret != 0)
			break;
		snprintf(what, sizeof(what), "at %u %%", percent[i]);
		print(what, &r);
		o = as_json(&r);
		json_object_set_new(o, "percent", json_integer(percent[i]));
		json_array_append_new(out, o);
	}
	return ret;
}

static int
losses(struct testps *t, json_t *out, struct pbox_error *err)
{
	static const double percent[] = {0, 0.1, 0.5, 1, 2, 5};
	uint32_t before = atomic_load(&t->loss);
	int ret = 0;

	for (unsigned i = 0; ret == 0 && i < RTE_DIM(percent); i++) {
		struct trial r;
		char what[24];
		json_t *o;

		atomic_store(&t->loss, (uint32_t)(percent[i] / 100 * UINT32_MAX));
		ret = trial(t, 0, 1, &r, err);
		if (ret != 0)
			break;
		snprintf(what, sizeof(what), "loss %.1f %%", percent[i]);
		print(what, &r);
		o = as_json(&r);
		json_object_set_new(o, "loss_percent", json_real(percent[i]));
		json_array_append_new(out, o);
	}
	atomic_store(&t->loss, before);
	return ret;
}

/* Half of the rate behind an overload is carried as if there had been none. */
static int
recovery(struct testps *t, double rate, json_t *out, struct pbox_error *err)
{
	struct trial over, after;
	int ret = trial(t, rate * OVERLOAD, 1, &over, err);

	if (ret == 0)
		ret = trial(t, rate / 2, NDR_LIMIT, &after, err);
	if (ret != 0)
		return ret;
	print("overload", &over);
	print("recovery", &after);
	json_object_set_new(out, "overload", as_json(&over));
	json_object_set_new(out, "after", as_json(&after));
	return 0;
}

static int
workers(struct testps *t, json_t *out, struct pbox_error *err)
{
	unsigned number[16], before = t->load.workers;
	int n = testps_numbers(t->opt.sweep_workers, number, RTE_DIM(number), err), ret = 0;

	for (int i = 0; ret == 0 && i < n; i++) {
		struct trial r;
		char what[24];
		json_t *o;

		session_close(t);
		t->load.workers = number[i];
		ret = trial(t, 0, 1, &r, err);
		if (ret != 0)
			break;
		snprintf(what, sizeof(what), "%u workers", number[i]);
		print(what, &r);
		o = as_json(&r);
		json_object_set_new(o, "workers", json_integer(number[i]));
		json_array_append_new(out, o);
	}
	t->load.workers = before;
	return n < 0 ? n : ret;
}

static int
search_rate(struct testps *t, json_t *o, struct trial *best, struct pbox_error *err)
{
	json_t *trials = json_array(), *latency = json_array(), *loss = json_array();
	json_t *after = json_object();
	double limit = t->opt.search == TESTPS_NDR ? NDR_LIMIT : PDR_LIMIT;
	int ret;

	json_object_set_new(o, "search", json_string(t->opt.search == TESTPS_NDR ? "ndr" : "pdr"));
	json_object_set_new(o, "trials", trials);
	json_object_set_new(o, "latency", latency);
	json_object_set_new(o, "loss_sweep", loss);
	json_object_set_new(o, "recovery", after);
	ret = find(t, limit, best, trials, err);
	if (ret != 0)
		return ret;
	print(t->opt.search == TESTPS_NDR ? "NDR" : "PDR", best);
	json_object_set_new(o, "rate_per_s", json_real(best->rate));
	json_object_set_new(o, "result", json_figures(&best->f));
	ret = latencies(t, best->rate, latency, err);
	if (ret == 0)
		ret = recovery(t, best->rate, after, err);
	if (ret == 0)
		ret = losses(t, loss, err);
	return ret;
}

int
search(struct testps *t, struct pbox_error *err)
{
	uint64_t rate = atomic_load(&t->rate);
	struct trial best = {0};
	json_t *found = json_object(), *o, *sweep = json_array();
	int ret = run_start(t, err), saved = 0;

	if (ret == 0)
		printf("%-14s %12s %12s %9s %9s %9s %9s\n", "", "offered/s", "answered/s", "Gbit/s",
			"again %", "p50 us", "p99 us");
	if (ret == 0 && t->opt.search != TESTPS_SEARCH_NONE)
		ret = search_rate(t, found, &best, err);
	o = json_results(t); /* of this session: the sweep has others */
	json_object_update(o, found);
	json_decref(found);
	json_counters(o, &best.f);
	if (ret == 0 && t->opt.sweep_workers[0] != '\0') {
		ret = workers(t, sweep, err);
		json_object_set(o, "worker_sweep", sweep);
	}
	json_decref(sweep);
	atomic_store(&t->rate, rate);
	if (t->opt.json[0] != '\0')
		saved = json_save(o, t->opt.json, ret == 0 ? err : NULL);
	else
		json_decref(o);
	return ret != 0 ? ret : saved;
}
