/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What workers of a job measure of its boxes: the one that decides keeps it (/pbox/times), as sums since each worker began. Here
 * become reports to the room of that job of what has come since the last question. Times of rounds in which chunks moved
 * count for nothing.
 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

#define PAGES   16            /* of workers, for one job in one turn */
#define WORKERS 4096          /* as lib/balance */
#define QUIET   (2 * AGENT_S) /* all workers have heard of a new map of chunks by then */
#define SETTLE  3             /* rounds of each worker after that */

void
measure_free(struct load_job *j)
{
	pbox_balance_destroy(j->room);
	free(j->last);
	free(j->from);
	j->room = NULL;
	j->last = NULL;
	j->from = NULL;
}

static int
measure_begin(struct agent *a, struct load_job *j, unsigned workers, struct pbox_error *err)
{
	struct pbox_balance_conf conf = {.boxes = a->box.n,
		.workers = workers,
		.window = a->conf->balance_window,
		.seed = agent_now(),
		.scales = a->conf->balance_scale};

	if (j->room != NULL && j->workers == workers && j->boxes == a->box.n)
		return 0;
	PBOX_ASSERT(a->box.n > 1 && a->box.n <= PBOX_FLEET_BOXES);
	measure_free(j);
	if (workers == 0 || workers > WORKERS)
		return pbox_fail(err, EPROTO, "job '%s' has %u workers", j->job.name, workers);
	j->workers = workers;
	j->boxes = a->box.n;
	j->next = 0;
	j->last = calloc((size_t)workers * (j->boxes + 1), sizeof(*j->last));
	j->from = calloc(workers, sizeof(*j->from));
	if (j->last == NULL || j->from == NULL)
		return pbox_fail(err, ENOMEM, "no memory for the times of %u workers", workers);
	for (unsigned w = 0; w < workers; w++)
		j->from[w] = -1;
	j->room = pbox_balance_create(&conf, err);
	return j->room != NULL ? 0 : -ENOMEM;
}

/* Numbers between spaces; false: there are others, or fewer. */
static bool
measure_numbers(const json_t *d, const char *name, double *out, unsigned n)
{
	char text[512], *at = text;

	box_text(d, name, text, sizeof(text));
	for (unsigned i = 0; i < n; i++) {
		char *end;

		out[i] = strtod(at, &end);
		if (end == at || !isfinite(out[i]) || out[i] < 0)
			return false;
		at = end;
	}
	return true;
}

/* What has come since the last question, as mean and deviation. */
static struct pbox_balance_times
measure_since(const struct load_sums *now, const struct load_sums *then)
{
	struct pbox_balance_times t = {0};
	double n = now->rounds - then->rounds, mean, var;

	if (n < 1)
		return t;
	mean = fmax(0, (now->seconds - then->seconds) / n);
	var = (now->squares - then->squares) / n - mean * mean;
	t.rounds = (uint32_t)n;
	t.mean = mean;
	t.sd = var > 0 ? sqrt(var) : 0;
	t.exposed = fmax(0, (now->exposed - then->exposed) / n);
	return t;
}

static bool
measure_read(const struct load_job *j, const json_t *d, struct load_sums *out)
{
	double v[4];

	if (!measure_numbers(d, "rounds", v, 3))
		return false;
	out[0] = (struct load_sums){.rounds = v[0], .seconds = v[1], .squares = v[2]};
	for (unsigned b = 0; b < j->boxes; b++) {
		char name[16];

		snprintf(name, sizeof(name), "box_%u", b);
		if (!measure_numbers(d, name, v, 4))
			return false;
		out[1 + b] = (struct load_sums){v[0], v[1], v[2], v[3]};
	}
	return true;
}

/* Is what it says now the sequel of what it said last? Not of a new process, nor while chunks move. */
static bool
measure_counts(const struct load_job *j, unsigned w, const struct load_sums *now, uint64_t now_ns)
{
	const struct load_sums *then = &j->last[(size_t)w * (j->boxes + 1)];

	if (j->from[w] < 0 || now_ns < j->quiet_ns || then->rounds < j->from[w])
		return false;
	for (unsigned i = 0; i <= j->boxes; i++)
		if (now[i].rounds < then[i].rounds)
			return false;
	return now->rounds > then->rounds;
}

static void
measure_worker(struct load_job *j, unsigned w, const json_t *d, uint64_t now_ns)
{
	struct load_sums now[PBOX_FLEET_BOXES + 1], *then = &j->last[(size_t)w * (j->boxes + 1)];
	struct pbox_balance_times round, box[PBOX_FLEET_BOXES];
	struct pbox_error err;

	if (!measure_read(j, d, now))
		return;
	if (measure_counts(j, w, now, now_ns)) {
		round = measure_since(&now[0], &then[0]);
		for (unsigned b = 0; b < j->boxes; b++)
			box[b] = measure_since(&now[1 + b], &then[1 + b]);
		if (pbox_balance_report(j->room, w, &round, box, &err) != 0)
			pbox_log(PBOX_LOG_DEBUG, "job '%s': %s", j->job.name, err.text);
	}
	if (j->from[w] < 0 || now->rounds < then->rounds)
		j->from[w] = now->rounds; /* its sums have just begun to be known */
	if (now_ns < j->quiet_ns)
		j->from[w] = now->rounds + SETTLE;
	memcpy(then, now, (j->boxes + 1) * sizeof(*then));
}

void
measure_moved(struct load_job *j)
{
	pbox_balance_discard(j->room);
	j->quiet_ns = agent_now() + QUIET;
}

/* Somebody has moved chunks, or a table is new. */
static void
measure_shares(struct load_job *j, const json_t *answer)
{
	double v[PBOX_FLEET_BOXES];
	bool other = false;

	if (!measure_numbers(answer, "elements", v, j->boxes))
		return;
	for (unsigned b = 0; b < j->boxes; b++) {
		other = other || j->elements[b] != (uint64_t)v[b];
		j->elements[b] = (uint64_t)v[b];
	}
	if (other)
		measure_moved(j);
}

static int
measure_page(struct agent *a, struct load_job *j, struct pbox_error *err)
{
	char command[64];
	const char *name;
	json_t *answer, *d;
	uint64_t now;
	int ret;

	snprintf(command, sizeof(command), "/pbox/times,#%u,%u", j->job.number, j->next);
	ret = box_ask(&a->box, command, &answer, err);
	if (ret != 0)
		return ret;
	ret = measure_begin(
		a, j, (unsigned)json_integer_value(json_object_get(answer, "workers")), err);
	if (ret == 0) {
		measure_shares(j, answer);
		now = agent_now();
		json_object_foreach(answer, name, d)
		{
			unsigned long w;

			if (strncmp(name, "worker_", 7) != 0)
				continue;
			w = strtoul(name + 7, NULL, 10);
			if (w < j->workers)
				measure_worker(j, (unsigned)w, d, now);
		}
		j->next = (unsigned)json_integer_value(json_object_get(answer, "next"));
	}
	json_decref(answer);
	return ret;
}

int
measure_job(struct agent *a, struct load_job *j, struct pbox_error *err)
{
	int ret = 0;

	for (unsigned i = 0; i < PAGES && ret == 0 && (i == 0 || j->next != 0); i++)
		ret = measure_page(a, j, err);
	if (ret != 0) {
		j->next = 0;
		return ret;
	}
	return j->next == 0;
}
