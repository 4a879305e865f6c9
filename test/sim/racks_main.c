/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "racks.h"

/* Many seeds of racks. */

#define HANGS_FOR 30 /* CPU seconds of a run that comes to no end; others take less than one */

struct racks_totals {
	unsigned passed, failed;
	uint64_t hash, events, frames;
	double virtual_s;
};

/* In a process of its own, so that one that dies is an outcome too. */
static void
isolated(const struct racks_spec *sp, struct racks_result *out)
{
	static struct racks_result *shared;
	int status = 0;
	pid_t pid;

	if (shared == NULL) {
		shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		PBOX_ASSERT(shared != MAP_FAILED);
	}
	memset(shared, 0, sizeof(*shared));
	fflush(stdout);
	pid = fork();
	PBOX_ASSERT(pid >= 0);
	if (pid == 0) {
		setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = HANGS_FOR}, NULL);
		if (freopen("/dev/null", "w", stderr) == NULL)
			_exit(1);
		racks_run(shared, sp, false);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) != pid)
		;
	if (status != 0) {
		shared->ok = false;
		snprintf(shared->why, sizeof(shared->why), "it died of signal %d, status %d",
			status & 0x7F, status >> 8);
	}
	*out = *shared;
}

/* A planted bug: the first seed that it makes fail must pass without it. */
static int
caught(const struct racks_options *o)
{
	struct racks_result out = {.ok = true}, without = {.ok = true};
	int planted = sim_planted;
	struct racks_spec sp;
	uint64_t seed = o->first;

	for (; seed < o->end; seed++) {
		racks_spec_make(&sp, seed, o->loss);
		isolated(&sp, &out);
		if (!out.ok)
			break;
	}
	printf("the planted bug was %s by seed %llu\n%s\n", out.ok ? "missed" : "caught",
		(unsigned long long)seed, out.why);
	if (!out.ok) {
		sim_planted = 0;
		isolated(&sp, &without);
		sim_planted = planted;
	}
	if (!without.ok)
		printf("seed %llu fails without the planted bug as well: %s\n",
			(unsigned long long)seed, without.why);
	printf("%u passed, %u failed\n", (unsigned)!out.ok + (unsigned)(!out.ok && without.ok),
		(unsigned)out.ok + (unsigned)!without.ok);
	return out.ok || !without.ok;
}

static void
run_one(uint64_t seed, const struct racks_options *o, struct racks_totals *t)
{
	struct racks_result r, again;
	struct racks_spec sp;

	racks_spec_make(&sp, seed, o->loss);
	racks_run(&r, &sp, o->verbose);
	if (o->twice && r.ok) {
		racks_run(&again, &sp, false);
		if (again.hash != r.hash) {
			r.ok = false;
			snprintf(r.why, sizeof(r.why), "a second run took another way");
		}
	}
	t->hash = sim_mix(t->hash, r.hash);
	t->events += r.events;
	t->frames += r.frames;
	t->virtual_s += (double)r.virtual_ns * 1e-9;
	*(r.ok ? &t->passed : &t->failed) += 1;
	if (!r.ok)
		printf("seed %llu failed: %s\n", (unsigned long long)seed, r.why);
}

static bool
run_regressions(const struct racks_options *o, struct racks_totals *t)
{
	FILE *f = fopen(o->regressions, "r");
	char line[256];

	if (f == NULL) {
		fprintf(stderr, "pbox_sim: cannot read %s\n", o->regressions);
		return false;
	}
	while (fgets(line, sizeof(line), f) != NULL) {
		char *end;
		unsigned long long seed = strtoull(line, &end, 0);

		if (end != line)
			run_one(seed, o, t);
	}
	fclose(f);
	return true;
}

int
racks_main(const struct racks_options *o)
{
	struct racks_totals t = {0};
	struct timespec a, b;
	double s;

	if (o->caught)
		return caught(o);
	clock_gettime(CLOCK_MONOTONIC, &a);
	if (o->regressions != NULL && !run_regressions(o, &t))
		return 2;
	for (uint64_t seed = o->first; seed < o->end && (t.failed == 0 || o->keep_going); seed++)
		run_one(seed, o, &t);
	clock_gettime(CLOCK_MONOTONIC, &b);
	s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
	printf("%u seeds in %.1f s (%.0f a second), %.0f s of virtual time, %llu events, %llu datagrams, hash %016llx\n",
		t.passed + t.failed, s, (t.passed + t.failed) / (s > 0 ? s : 1), t.virtual_s,
		(unsigned long long)t.events, (unsigned long long)t.frames,
		(unsigned long long)t.hash);
	printf("%u passed, %u failed\n", t.passed, t.failed);
	return t.failed > 0 ? 1 : 0;
}
