/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shrink.h"

#define MADE      (1u << 18) /* faults of one run; in the largest scenarios some 100,000 */
#define TELL      2000       /* datagrams: more are not printed unasked */
#define HANGS_FOR 15 /* CPU seconds of a run that comes to no end; others take less than one */

void
sim_case_scenario(const struct sim_case *c, struct sim_scenario *sc)
{
	sim_scenario_make(sc, c->seed, &c->limits);
	for (unsigned i = 0; i < c->n_smaller; i++)
		sim_smaller_apply(sc, &c->smaller[i]);
}

static void
run(const struct sim_case *c, struct sim_outcome *out, bool verbose, bool words)
{
	struct sim_how how = {.verbose = verbose,
		.words = words,
		.salt = c->salt,
		.events = c->events,
		.only = c->listed ? &c->faults : NULL,
		.made = &out->made,
		.live = &out->run};
	struct sim_scenario sc;
	struct sim_result r;

	sim_case_scenario(c, &sc);
	sim_run(&r, &sc, &how);
	out->ok = r.ok;
	out->run = r;
	snprintf(out->why, sizeof(out->why), "%s", r.why);
	snprintf(out->invariant, sizeof(out->invariant), "%s", r.ok ? "" : r.invariant);
}

/* What a process that died has said: a broken assertion, or a sanitizer's summary. */
static void
last_words(int fd, int status, struct sim_outcome *out)
{
	char text[16384];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	char *line;

	text[n > 0 ? n : 0] = 0;
	line = strstr(text, "SUMMARY: ");
	if (line == NULL)
		line = text;
	line[strcspn(line, "\n")] = 0;
	out->ok = false;
	if (line[0] == 0)
		snprintf(text, sizeof(text), "died of signal %d, status %d", status & 0x7F,
			status >> 8);
	snprintf(out->why, sizeof(out->why), "%.500s", line);
	snprintf(out->invariant, sizeof(out->invariant), "%.250s", line);
}

void
sim_isolated(const struct sim_case *c, struct sim_outcome *out)
{
	static struct sim_outcome *shared;
	int fd = memfd_create("said", 0), status = 0;
	pid_t pid;

	PBOX_ASSERT(fd >= 0);
	if (shared == NULL) {
		shared = mmap(NULL, sizeof(*shared) + MADE * sizeof(struct sim_fault),
			PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		PBOX_ASSERT(shared != MAP_FAILED);
	}
	memset(shared, 0, sizeof(*shared));
	shared->made = (struct sim_faults){
		.f = (struct sim_fault *)(shared + 1), .cap = MADE, .fixed = true};
	fflush(stdout);
	pid = fork();
	PBOX_ASSERT(pid >= 0);
	if (pid == 0) {
		setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = HANGS_FOR}, NULL);
		dup2(fd, STDERR_FILENO);
		run(c, shared, false, false);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) != pid)
		;
	if (status != 0)
		last_words(fd, status, shared);
	close(fd);
	*out = *shared;
}

void
sim_case_tell(const struct sim_case *c, bool verbose)
{
	struct sim_outcome out = {0};
	struct sim_scenario sc;

	sim_case_scenario(c, &sc);
	if (!verbose)
		sim_scenario_print(&sc);
	fflush(stdout);
	run(c, &out, verbose, !verbose);
	free(out.made.f);
}

void
sim_case_print(const struct sim_case *c, FILE *to)
{
	fprintf(to, "seed %" PRIu64 " salt %" PRIu64 " limits %u %u %u %a\n", c->seed, c->salt,
		c->limits.jobs, c->limits.workers, c->limits.shards, c->limits.loss);
	if (c->limits.boxes != 0)
		fprintf(to, "boxes %u\n", c->limits.boxes);
	if (c->limits.crashes_shrink)
		fprintf(to, "crashes-shrink\n");
	if (c->limits.fleets)
		fprintf(to, "fleets\n");
	if (c->limits.moves)
		fprintf(to, "moves\n");
	if (c->limits.deciders)
		fprintf(to, "deciders\n");
	if (c->limits.clocks)
		fprintf(to, "clocks\n");
	if (c->limits.blocks)
		fprintf(to, "blocks\n");
	if (c->limits.nodes)
		fprintf(to, "nodes\n");
	if (c->limits.replicas)
		fprintf(to, "replicas\n");
	if (c->limits.updates)
		fprintf(to, "updates\n");
	if (c->limits.hold)
		fprintf(to, "hold\n");
	if (c->limits.recordings)
		fprintf(to, "recordings\n");
	if (sim_planted != 0)
		fprintf(to, "plant %s\n", sim_plants[sim_planted]);
	for (unsigned i = 0; i < c->n_smaller; i++)
		sim_smaller_print(&c->smaller[i], to);
	if (c->listed)
		fprintf(to, "faults\n");
	sim_faults_print(&c->faults, to);
}

/* It may die of it. */
static void
tell_apart(const struct sim_case *c)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	PBOX_ASSERT(pid >= 0);
	if (pid == 0) {
		setvbuf(stdout, NULL, _IOLBF, 0);
		sim_case_tell(c, false);
		fflush(stdout);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) != pid)
		;
}

static bool
find_plant(const char *name)
{
	for (sim_planted = 1; sim_plants[sim_planted] != NULL; sim_planted++)
		if (strcmp(sim_plants[sim_planted], name) == 0)
			return true;
	sim_planted = 0;
	return false;
}

bool
sim_case_read(struct sim_case *c, FILE *from)
{
	char line[512], name[64];
	bool good = true, recordings = false, crashes_shrink = false, fleets = false, moves = false,
	     deciders = false, clocks = false, blocks = false, nodes = false, replicas = false,
	     updates = false, hold = false;
	unsigned boxes = 0;

	*c = (struct sim_case){0};
	while (good && fgets(line, sizeof(line), from) != NULL) {
		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (sscanf(line, "plant %63s", name) == 1)
			good = find_plant(name);
		else if (sscanf(line, "boxes %u", &boxes) == 1)
			good = boxes <= SIM_BOXES;
		else if (strcmp(line, "crashes-shrink\n") == 0)
			crashes_shrink = true;
		else if (strcmp(line, "fleets\n") == 0)
			fleets = true;
		else if (strcmp(line, "moves\n") == 0)
			moves = true;
		else if (strcmp(line, "deciders\n") == 0)
			deciders = true;
		else if (strcmp(line, "clocks\n") == 0)
			clocks = true;
		else if (strcmp(line, "blocks\n") == 0)
			blocks = true;
		else if (strcmp(line, "nodes\n") == 0)
			nodes = true;
		else if (strcmp(line, "replicas\n") == 0)
			replicas = true;
		else if (strcmp(line, "updates\n") == 0)
			updates = true;
		else if (strcmp(line, "hold\n") == 0)
			hold = true;
		else if (strcmp(line, "recordings\n") == 0)
			recordings = true;
		else if (strcmp(line, "faults\n") == 0)
			c->listed = true;
		else if (strncmp(line, "seed ", 5) == 0)
			good = sscanf(line, "seed %" SCNu64 " salt %" SCNu64 " limits %u %u %u %la",
				       &c->seed, &c->salt, &c->limits.jobs, &c->limits.workers,
				       &c->limits.shards, &c->limits.loss) == 6;
		else if (strncmp(line, "set ", 4) == 0)
			good = c->n_smaller < SIM_SMALLER &&
			       sim_smaller_line(&c->smaller[c->n_smaller++], line);
		else
			good = sim_faults_line(&c->faults, line);
	}
	c->limits.recordings = recordings;
	c->limits.crashes_shrink = crashes_shrink;
	c->limits.fleets = fleets;
	c->limits.moves = moves;
	c->limits.deciders = deciders;
	c->limits.clocks = clocks;
	c->limits.blocks = blocks;
	c->limits.nodes = nodes;
	c->limits.replicas = replicas;
	c->limits.updates = updates;
	c->limits.hold = hold;
	c->limits.boxes = boxes;
	sim_faults_sort(&c->faults);
	if (!good)
		fprintf(stderr, "pbox_sim: this line is none of a shrunk case: %s", line);
	return good;
}

/* The file must bring the same run back. */
static bool
same_again(const char *path, const struct sim_outcome *out)
{
	FILE *f = fopen(path, "r");
	struct sim_outcome again;
	struct sim_case c;
	bool same = f != NULL && sim_case_read(&c, f);

	if (f != NULL)
		fclose(f);
	if (!same)
		return false;
	sim_isolated(&c, &again);
	free(c.faults.f);
	return !again.ok && again.run.hash == out->run.hash &&
	       again.run.events == out->run.events && strcmp(again.why, out->why) == 0;
}

bool
sim_case_report(const struct sim_case *c, const struct sim_outcome *out)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "sim-seed-%" PRIu64 ".case", c->seed);
	printf("seed %" PRIu64 " shrunk: %zu faults, %" PRIu64 " events, %" PRIu64
	       " datagrams, %" PRIu64 " of them while something moved\n  %s\n",
		c->seed, c->faults.n, out->run.events, out->run.frames, out->run.moving, out->why);
	sim_faults_print(&c->faults, stdout);
	if (out->run.moving <= TELL)
		tell_apart(c);
	f = fopen(path, "w");
	if (f == NULL) {
		printf("cannot write %s\n", path);
		return false;
	}
	fprintf(f, "# %s\n", out->why);
	sim_case_print(c, f);
	fclose(f);
	printf("again, in words: pbox_sim --replay %s (-v: everything)\n", path);
	if (same_again(path, out))
		return true;
	printf("%s does not bring the same run back\n", path);
	return false;
}
