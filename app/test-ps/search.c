/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The highest rate that a box carries, as RFC 2544 and CSIT look for it: contributions are offered at
 * a rate; a trial is good if 99 % of them were answered in its time and no more than the limit
 * went again. Which rates are tried, and what the trials say together, is hunt.c's. A trial that fails while
 * others had the CPUs says nothing about the box: it is void. Trials without a limit before, in between and at the end show
 * whether the machine was as fast all the time. Where it was not, or trials contradict each other, the result is a range.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

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
#define SPEED     10   /* so many trials after another one without a limit */
#define CHANGED   1.25 /* between the fastest and the slowest of those */
#define DISAGREE  8    /* one trial in so many may contradict the others: then it is a range */
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
search_verdict(const struct trial *r, char *text, size_t size)
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
	search_verdict(r, said, sizeof(said));
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
	bool polls = t->opt.idle == PBOX_IDLE_POLL;
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

/* What trials have found. */
struct found {
	struct hunt h;
	struct trial best;       /* the trial of hunt_good() */
	double slowest, fastest; /* without a limit */
	double rate, low, high;
	unsigned disagree;
	bool changed, range; /* the machine's speed; no figure, but a range */
};

/* How fast is the machine now? */
static int
speed(struct testps *t, const char *what, struct found *f, json_t *trials, struct pbox_error *err)
{
	struct trial r;
	int ret = trial(t, 0, 1, &r, err);

	if (ret != 0)
		return ret;
	print(what, &r);
	json_array_append_new(trials, as_json(&r));
	if (r.f.v[LS_RESULTS] == 0 && f->fastest == 0)
		return pbox_fail(
			err, ENODATA, "nothing was answered in a trial: --trial is too short");
	if (f->fastest == 0 || r.f.contributions < f->slowest)
		f->slowest = r.f.contributions;
	f->fastest = RTE_MAX(f->fastest, r.f.contributions);
	return 0;
}

/* What the trials say together. */
static void
weigh(struct found *f)
{
	double low, high;

	hunt_between(&f->h, &f->low, &f->high);
	low = f->low;
	high = f->high;
	f->disagree = hunt_disagree(&f->h, &low, &high);
	f->changed = f->fastest > CHANGED * f->slowest;
	f->range = f->changed || f->disagree * DISAGREE > f->h.trials || f->best.rate > f->high;
	f->rate = hunt_best(&f->h);
	if (f->range) {
		f->low = RTE_MIN(low, f->best.rate);
		f->high = RTE_MAX(high, f->best.rate);
		f->rate = f->best.rate;
	}
}

/* Trials until the highest good rate is known. */
static int
search_find(struct testps *t, double limit, struct found *f, json_t *trials, struct pbox_error *err)
{
	static struct trial all[HUNT_TRIALS];
	unsigned voids = 0, since = 0;
	struct trial r;
	double good;
	int ret = speed(t, "saturation", f, trials, err);

	if (ret != 0)
		return ret;
	hunt_begin(&f->h, f->fastest);
	while (!hunt_done(&f->h, PRECISION, TRIALS)) {
		if (++since % SPEED == 0)
			ret = speed(t, "no limit again", f, trials, err);
		if (ret == 0)
			ret = trial(t, hunt_next(&f->h), limit, &r, err);
		if (ret != 0)
			return ret;
		print("trial", &r);
		json_array_append_new(trials, as_json(&r));
		if (r.is_void && ++voids <= TRIALS)
			continue; /* the same rate again */
		all[f->h.trials] = r;
		hunt_add(&f->h, r.rate, r.good);
	}
	ret = speed(t, "no limit again", f, trials, err);
	good = hunt_good(&f->h);
	for (unsigned i = 0; i < f->h.trials; i++)
		if (all[i].good && all[i].rate == good)
			f->best = all[i];
	if (ret == 0 && good == 0)
		return pbox_fail(err, ENODATA,
			"none of %u trials was good, the slowest at %.0f contributions/s: even slow ones lose frames, or --trial is too short",
			f->h.trials, r.rate);
	weigh(f);
	return ret;
}

static void
print_found(const char *name, const struct found *f)
{
	if (!f->range)
		printf("%s: %.0f contributions/s, from %.0f to %.0f; %u of %u trials disagree\n",
			name, f->rate, f->low, f->high, f->disagree, f->h.trials);
	else
		printf("%s: between %.0f and %.0f contributions/s, no figure: %u of %u trials disagree\n",
			name, f->low, f->high, f->disagree, f->h.trials);
	if (f->changed)
		printf("the machine changed its speed: without a limit %.0f to %.0f contributions/s\n",
			f->slowest, f->fastest);
}

/* At parts of the rate that was found. What fails there, where less is offered, contradicts it, too. */
static int
latencies(struct testps *t, double limit, struct found *f, json_t *out, struct pbox_error *err)
{
	static const unsigned percent[POINTS] = {10, 50, 90};
	const double rate = f->rate;
	int ret = 0;

	for (unsigned i = 0; ret == 0 && i < POINTS; i++) {
		struct trial r;
		char what[24];
		json_t *o;

		ret = trial(t, rate * percent[i] / 100, limit, &r, err);
		if (ret != 0)
			break;
		snprintf(what, sizeof(what), "at %u %%", percent[i]);
		print(what, &r);
		if (!r.good && !r.is_void) {
			printf("a lower rate failed, %.0f contributions/s: the result is a range\n",
				r.rate);
			f->low = RTE_MIN(f->low, r.rate);
			f->range = true;
			f->disagree++;
		}
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

/* Half of the rate after an overload is carried as if there had been none. */
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

		session_leave(t);
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
	const double limit = ndr ? NDR_LIMIT : PDR_LIMIT;
	const char *name = ndr ? "NDR" : "PDR";
	static struct found f;
	int ret;

	f = (struct found){0};
	json_object_set_new(o, "search", json_string(ndr ? "ndr" : "pdr"));
	json_object_set_new(o, "trials", trials);
	json_object_set_new(o, "latency", latency);
	json_object_set_new(o, "loss_sweep", loss);
	json_object_set_new(o, "recovery", after);
	ret = search_find(t, limit, &f, trials, err);
	if (ret != 0)
		return ret;
	*best = f.best;
	print(name, best);
	ret = latencies(t, limit, &f, latency, err);
	print_found(name, &f);
	json_object_set_new(o, "rate_per_s", json_real(f.rate));
	json_object_set_new(o, "rate_low_per_s", json_real(f.low));
	json_object_set_new(o, "rate_high_per_s", json_real(f.high));
	json_object_set_new(o, "rate_is_range", json_boolean(f.range));
	json_object_set_new(o, "speed_changed", json_boolean(f.changed));
	json_object_set_new(o, "unlimited_low_per_s", json_real(f.slowest));
	json_object_set_new(o, "unlimited_high_per_s", json_real(f.fastest));
	json_object_set_new(o, "trials_disagree", json_integer(f.disagree));
	json_object_set_new(o, "result", json_figures(&best->f));
	if (ret == 0)
		ret = recovery(t, f.rate, after, err);
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
