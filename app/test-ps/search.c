/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The highest rate that a box carries, as RFC 2544 and CSIT look for it: contributions are offered at
 * a rate; a trial is good if 99 % of them were answered in its time and no more than the limit
 * went again. Which rates are tried, and what the trials say together, is hunt.c's. A trial that fails while
 * others had the CPUs says nothing about the box: it is void.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hunt.h"
#include "json.h"
#include "run.h"
#include "testps.h"

#define NDR_LIMIT 0.0
#define PDR_LIMIT 0.005
#define DELIVERED 0.99
#define EDGE      64   /* contributions that a trial's ends may cut off */
#define PRECISION 0.02 /* of the rate */
#define WARM_PART 4    /* of a trial */
#define TRIALS    40   /* that count, and as many void ones */
#define PAUSE_US  1000 /* may cost a packet */
#define EXPLAINS  4    /* times as long as others had the CPU it takes until all is as before */
#define OVERLOAD  1.2
#define POINTS    3

struct trial {
	double rate; /* offered: contributions a second; 0: no limit */
	struct figures f;
	uint64_t stolen_us;
	bool good, is_void;
};

/* What a trial is called, and why. */
static void
verdict(const struct trial *r, char *text, size_t size)
{
	double answered = r->rate > 0 ? r->f.contributions / r->rate : 1;
	int n = snprintf(text, size, "%s", r->good ? "good" : r->is_void ? "void" : "-");

	if (r->good)
		return;
	if (r->f.again > 0)
		n += snprintf(text + n, size - (size_t)n,
			", %" PRIu64 " repeated, %" PRIu64 " results lost", r->f.v[LS_REPEATED],
			r->f.v[LS_LOST_RESULTS]);
	if (answered < DELIVERED)
		n += snprintf(text + n, size - (size_t)n, ", %.1f %% answered", answered * 100);
	if (r->stolen_us > 0)
		snprintf(text + n, size - (size_t)n, ", CPU taken for %.1f ms",
			(double)r->stolen_us * 1e-3);
}

static void
print(const char *what, const struct trial *r)
{
	char offered[32] = "no limit", said[160];

	if (r->rate > 0)
		snprintf(offered, sizeof(offered), "%.0f", r->rate);
	verdict(r, said, sizeof(said));
	printf("%-14s %12s %12.0f %9.2f %9.4f %9.1f %9.1f  %s\n", what, offered, r->f.contributions,
		r->f.push_gbit, r->f.again * 100, (double)r->f.p50 * 1e-3, (double)r->f.p99 * 1e-3,
		said);
}

static json_t *
as_json(const struct trial *r)
{
	json_t *o = json_figures(&r->f);

	json_object_set_new(o, "offered_per_s", json_real(r->rate));
	json_object_set_new(o, "good", json_boolean(r->good));
	json_object_set_new(o, "void", json_boolean(r->is_void));
	json_object_set_new(o, "stolen_us", json_integer((json_int_t)r->stolen_us));
	return o;
}

/* Others had the CPUs, for long enough to explain that a trial failed. */
static bool
explained(const struct trial *r, double limit)
{
	double missing = 1 - r->f.contributions / r->rate, stolen = (double)r->stolen_us;

	if (r->rate == 0 || r->stolen_us < PAUSE_US)
		return false;
	return (missing <= 1 - DELIVERED ||
		       missing * r->f.seconds * US_SECOND < EXPLAINS * stolen) &&
	       (r->f.again <= limit || r->f.again * r->f.seconds * US_SECOND < EXPLAINS * stolen);
}

static int
trial(struct testps *t, double rate, double limit, struct trial *r, struct pbox_error *err)
{
	/* who sleeps waits for a CPU each time that he wakes up */
	bool polls = t->opt.idle == TESTPS_POLL;
	uint64_t us = t->opt.trial_ns / 1000, stolen = polls ? run_stolen_us() : 0;
	int ret;

	*r = (struct trial){.rate = rate};
	atomic_store(&t->rate, (uint64_t)rate);
	ret = run_trial(t, us / WARM_PART, us, &r->f, err);
	stolen = polls ? run_stolen_us() - stolen : 0;
	r->stolen_us = RTE_MAX(stolen, r->f.v[LS_STOOD_STILL]);
	r->good =
		ret == 0 && r->f.again <= limit &&
		(rate == 0 || (double)r->f.v[LS_RESULTS] + EDGE >= DELIVERED * rate * r->f.seconds);
	r->is_void = !r->good && explained(r, limit);
	return ret;
}

/* Trials until the highest good rate is known; *best: the highest one up to it that was good. */
static int
find(struct testps *t, double limit, struct hunt *h, struct trial *best, json_t *trials,
	struct pbox_error *err)
{
	static struct trial all[TRIALS];
	unsigned voids = 0;
	struct trial r;
	int ret = trial(t, 0, limit, &r, err);

	if (ret != 0)
		return ret;
	print("saturation", &r);
	json_array_append_new(trials, as_json(&r));
	if (r.f.v[LS_RESULTS] == 0)
		return pbox_fail(
			err, ENODATA, "nothing was answered in a trial: --trial is too short");
	hunt_begin(h, r.f.contributions);
	while (!hunt_done(h, PRECISION, TRIALS)) {
		ret = trial(t, hunt_next(h), limit, &r, err);
		if (ret != 0)
			return ret;
		print("trial", &r);
		json_array_append_new(trials, as_json(&r));
		if (r.is_void && ++voids <= TRIALS)
			continue; /* the same rate again */
		all[h->trials] = r;
		hunt_told(h, r.rate, r.good);
	}
	*best = (struct trial){0};
	for (unsigned i = 0; i < h->trials; i++)
		if (all[i].good && all[i].rate <= hunt_best(h) && all[i].rate >= best->rate)
			*best = all[i];
	if (best->rate == 0)
		return pbox_fail(err, ENODATA,
			"no rate was good: even slow trials lose frames, or --trial is too short");
	return 0;
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
	const bool ndr = t->opt.search == TESTPS_NDR;
	double limit = ndr ? NDR_LIMIT : PDR_LIMIT, rate, low, high;
	const char *name = ndr ? "NDR" : "PDR";
	static struct hunt h;
	int ret;

	json_object_set_new(o, "search", json_string(ndr ? "ndr" : "pdr"));
	json_object_set_new(o, "trials", trials);
	json_object_set_new(o, "latency", latency);
	json_object_set_new(o, "loss_sweep", loss);
	json_object_set_new(o, "recovery", after);
	ret = find(t, limit, &h, best, trials, err);
	if (ret != 0)
		return ret;
	rate = hunt_best(&h);
	hunt_between(&h, &low, &high);
	print(name, best);
	printf("%s: %.0f contributions/s, from %.0f to %.0f\n", name, rate, low, high);
	json_object_set_new(o, "rate_per_s", json_real(rate));
	json_object_set_new(o, "rate_low_per_s", json_real(low));
	json_object_set_new(o, "rate_high_per_s", json_real(high));
	json_object_set_new(o, "result", json_figures(&best->f));
	ret = latencies(t, rate, latency, err);
	if (ret == 0)
		ret = recovery(t, rate, after, err);
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
