/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Rounds without an end, a line for each piece of them, and telemetry that answers: what does it cost
 * the box's core to be watched? */

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rte_lcore.h>

#include "bench.h"

static volatile sig_atomic_t ended;
static _Atomic bool joined;

static void
on_signal(int sig)
{
	(void)sig;
	ended = 1;
}

static void *
join(void *control)
{
	pbox_control_join(control);
	atomic_store(&joined, true);
	return NULL;
}

/* The control thread takes leave of the jobs, and the box must turn for that. */
static void
stop(struct rig *r)
{
	pthread_t t;

	pbox_control_stop(r->control);
	if (rte_ctrl_thread_create(&t, "join", NULL, join, r->control) != 0)
		exit(1);
	while (!atomic_load(&joined))
		box_turn(r);
	pthread_join(t, NULL);
}

static uint64_t
now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

bool
watch_run(struct rig *r, struct gen *g)
{
	struct pbox_error err = {0};
	struct run_times t;
	bool ok = true;

	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	if (pbox_control_start(r->control, &err) != 0) {
		fprintf(stderr, "bench_box: %s\n", err.text);
		return false;
	}
	while (ended == 0 && ok) {
		ok = run_rounds(r, g, r->o->packets, &t);
		printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", now_ns(CLOCK_MONOTONIC),
			t.all_busy, t.all_packets, now_ns(CLOCK_THREAD_CPUTIME_ID));
		/* the reader may have gone */
		ok = ok && fflush(stdout) == 0;
	}
	stop(r);
	return ok;
}
