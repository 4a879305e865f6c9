/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sodium.h>

#include "racks.h"
#include "shrink.h"

#define MILLION UINT64_C(1000000)
#define EFFORT  20 /* to shrink a seed: million events */
#define NO_END \
	(20 * MILLION) /* events of a run with a planted bug: the longest without one has a tenth */
/* What a planted bug must become: a person reads this. Most take 0 to 3 faults, below 100 datagrams. */
#define FEW_FAULTS 200
#define FEW_FRAMES 4000

static const char help[] =
	"pbox_sim: engine and workers in virtual time, on a bad network\n"
	"\n"
	"  --seeds A:B         run seeds A to B-1 (default 1:1001)\n"
	"  --seed N            run one seed\n"
	"  --regressions FILE  run the seeds of a file first: one a line, '#' begins a comment\n"
	"  --plant NAME        run with a planted bug; 'list' names them\n"
	"  --boxes N --jobs N --workers N --shards N --loss P\n"
	"                      instead of what the seed says\n"
	"  --crashes-shrink    jobs keep policy shrink where a box crashes\n"
	"  --recordings        somebody sends copies of old frames, and workers change their addresses\n"
	"  --fleets            jobs are at several boxes\n"
	"  --moves             ... and their chunks move from box to box\n"
	"  --deciders          ... and the box that decides dies, or is cut off\n"
	"  --clocks            ... or they have tables in clocks\n"
	"  --blocks            tables that sum alone are in formats of blocks\n"
	"  --nodes             pushes to tables in rounds are in formats of blocks, also in jobs with slots\n"
	"  --replicas          results of tables with an optimiser are differences in formats of blocks\n"
	"  --updates           pushes to tables in clocks are in formats of blocks\n"
	"  --hold              rounds of tables with an optimiser have two phases\n"
	"  --racks             boxes of racks, an upper box, and their workers (never shrunk)\n"
	"  --caught            the planted bug must make a seed fail; that seed must pass without it, and\n"
	"                      shrink to a short trace (--effort 0: it is not shrunk)\n"
	"  --shrink N          make seed N, if it fails, small enough to be read; done of itself with\n"
	"                      the first seed that fails\n"
	"  --effort N          million events that shrinking may take (default 20; 0: no shrinking)\n"
	"  --replay FILE       run what was shrunk, and say in words what happens (-v: everything)\n"
	"  --keep-going        do not stop at the first seed that fails\n"
	"  --twice             run every seed twice and compare the traces' hashes\n"
	"  --alone             run each box without the others too, where there are several and nothing\n"
	"                      goes astray: its trace must be the same\n"
	"  --stats             print the counters of all boxes and of each, summed over all seeds\n"
	"  -v                  print the scenario and the trace\n"
	"\n"
	"A run ends with '<n> passed, <n> failed' and fails if a seed does.\n";

struct options {
	uint64_t first, end;
	const char *regressions;
	struct sim_limits limits;
	bool verbose, keep_going, twice, alone, stats, caught, shrink, racks;
	uint64_t effort;
	const char *replay;
};

struct totals {
	unsigned passed, failed;
	uint64_t hash, events, frames;
	double virtual_s;
	struct sim_box_result box[SIM_BOXES];
};

/* Shrink a seed that fails, print what is left of it, and check that it is the same each time. */
static bool
shrink(uint64_t seed, const struct options *o, bool short_one)
{
	struct sim_case c = {.seed = seed, .limits = o->limits}, d = c;
	struct sim_outcome out, again;
	bool good = sim_shrink(&c, o->effort, &out);

	if (!good) {
		printf("seed %llu does not fail\n", (unsigned long long)seed);
		return false;
	}
	good = sim_case_report(&c, &out);
	if (good && o->twice) {
		sim_shrink(&d, o->effort, &again);
		good = again.run.hash == out.run.hash && again.run.events == out.run.events &&
		       c.faults.n == d.faults.n && strcmp(again.why, out.why) == 0;
		printf("shrunk a second time, it %s\n", good ? "is the same" : "is another one");
	}
	if (short_one && (c.faults.n > FEW_FAULTS || out.run.moving > FEW_FRAMES)) {
		printf("this is too long: %d faults and %d datagrams were to be enough\n",
			FEW_FAULTS, FEW_FRAMES);
		good = false;
	}
	free(c.faults.f);
	free(d.faults.f);
	return good;
}

/* A seed must pass without the planted bug: else it is not the bug that it catches. */
static bool
passes_without(const struct sim_case *c, struct sim_outcome *out)
{
	int planted = sim_planted;

	sim_planted = 0;
	sim_isolated(c, out);
	sim_planted = planted;
	return out->ok;
}

/* A planted bug: the first seed that it makes fail, perhaps by the death of the process. */
static int catch (const struct options *o)
{
	struct sim_case c = {.limits = o->limits, .events = NO_END};
	struct sim_outcome out = {.ok = true}, without;
	unsigned passed = 0, failed = 0;

	for (c.seed = o->first; c.seed < o->end; c.seed++) {
		sim_isolated(&c, &out);
		if (!out.ok)
			break;
	}
	printf("the planted bug was %s by seed %llu\n%s\n", out.ok ? "missed" : "caught",
		(unsigned long long)c.seed, out.why);
	*(out.ok ? &failed : &passed) += 1;
	if (!out.ok) {
		bool good = passes_without(&c, &without);

		if (!good)
			printf("seed %llu fails without the planted bug as well: %s\n",
				(unsigned long long)c.seed, without.why);
		*(good ? &passed : &failed) += 1;
	}
	if (!out.ok && o->effort > 0)
		*(shrink(c.seed, o, true) ? &passed : &failed) += 1;
	printf("%u passed, %u failed\n", passed, failed);
	return failed > 0;
}

static int
replay(const struct options *o)
{
	FILE *f = fopen(o->replay, "r");
	struct sim_case c;
	int rc = 2;

	if (f == NULL) {
		fprintf(stderr, "pbox_sim: cannot read %s\n", o->replay);
		return rc;
	}
	if (sim_case_read(&c, f)) {
		sim_case_tell(&c, o->verbose);
		rc = 0;
	}
	free(c.faults.f);
	fclose(f);
	return rc;
}

/* No box, and no crash of one, has a part in what happens at another. */
static void
check_alone(const struct sim_scenario *sc, struct sim_result *r)
{
	struct sim_how how = {.alone = (1u << SIM_BOXES) - 1};
	struct sim_result all, alone;

	sim_run(&all, sc, &how);
	for (unsigned b = 0; b < sc->boxes && r->ok; b++) {
		how.alone = 1u << b;
		sim_run(&alone, sc, &how);
		r->ok = alone.ok && all.ok && alone.box[b].hash == all.box[b].hash;
		if (!r->ok)
			snprintf(r->why, sizeof(r->why), "box %u without the others: %.400s", b,
				alone.ok ? "it took another way" : alone.why);
	}
}

static bool
run_one(uint64_t seed, const struct options *o, struct totals *t)
{
	struct sim_how how = {.verbose = o->verbose}, silent = {0};
	struct sim_result r, again;
	struct sim_scenario sc;

	sim_scenario_make(&sc, seed, &o->limits);
	sim_run(&r, &sc, &how);
	if (o->twice && r.ok) {
		sim_run(&again, &sc, &silent);
		if (again.hash != r.hash) {
			r.ok = false;
			snprintf(r.why, sizeof(r.why), "a second run took another way");
		}
	}
	if (o->alone && sc.boxes > 1 && r.ok)
		check_alone(&sc, &r);
	for (unsigned b = 0; b < SIM_BOXES; b++) {
		for (unsigned i = 0; i < PBOX_SS_STATS; i++)
			t->box[b].shard[i] += r.box[b].shard[i];
		for (unsigned i = 0; i < PBOX_RS_STATS; i++)
			t->box[b].registrar[i] += r.box[b].registrar[i];
	}
	t->hash = sim_mix(t->hash, r.hash);
	t->events += r.events;
	t->frames += r.frames;
	t->virtual_s += (double)r.virtual_ns * 1e-9;
	if (o->verbose)
		printf("seed %llu: hash %016llx, %llu events, %.3f s of virtual time\n",
			(unsigned long long)seed, (unsigned long long)r.hash,
			(unsigned long long)r.events, (double)r.virtual_ns * 1e-9);
	if (r.ok) {
		t->passed++;
		return true;
	}
	printf("seed %llu failed: %s\n", (unsigned long long)seed, r.why);
	if (t->failed++ == 0 && o->effort > 0 && !o->verbose)
		shrink(seed, o, false);
	return false;
}

static int
run_regressions(const struct options *o, struct totals *t)
{
	FILE *f = fopen(o->regressions, "r");
	char line[256];

	if (f == NULL) {
		fprintf(stderr, "pbox_sim: cannot read %s\n", o->regressions);
		return -1;
	}
	while (fgets(line, sizeof(line), f) != NULL) {
		char *end;
		unsigned long long seed = strtoull(line, &end, 0);

		if (end != line)
			run_one(seed, o, t);
	}
	fclose(f);
	return 0;
}

static int
choose_plant(const char *name)
{
	for (int i = 1; sim_plants[i] != NULL; i++) {
		if (strcmp(name, "list") == 0)
			puts(sim_plants[i]);
		if (strcmp(name, sim_plants[i]) == 0) {
			sim_planted = i;
			return 0;
		}
	}
	if (strcmp(name, "list") == 0)
		exit(0);
	fprintf(stderr, "pbox_sim: no bug is called '%s'; --plant list names them\n", name);
	return -1;
}

static int
parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{"seeds", required_argument, NULL, 's'},
		{"seed", required_argument, NULL, 'n'},
		{"regressions", required_argument, NULL, 'r'},
		{"plant", required_argument, NULL, 'p'},
		{"boxes", required_argument, NULL, 'b'},
		{"jobs", required_argument, NULL, 'j'},
		{"workers", required_argument, NULL, 'w'},
		{"shards", required_argument, NULL, 'h'},
		{"loss", required_argument, NULL, 'l'},
		{"caught", no_argument, NULL, 'c'},
		{"recordings", no_argument, NULL, 'C'},
		{"fleets", no_argument, NULL, 'F'},
		{"moves", no_argument, NULL, 'M'},
		{"deciders", no_argument, NULL, 'E'},
		{"clocks", no_argument, NULL, 'D'},
		{"blocks", no_argument, NULL, 'B'},
		{"nodes", no_argument, NULL, 'O'},
		{"replicas", no_argument, NULL, 'L'},
		{"updates", no_argument, NULL, 'V'},
		{"hold", no_argument, NULL, 'H'},
		{"racks", no_argument, NULL, 'U'},
		{"crashes-shrink", no_argument, NULL, 'K'},
		{"shrink", required_argument, NULL, 'm'},
		{"effort", required_argument, NULL, 'T'},
		{"replay", required_argument, NULL, 'R'},
		{"keep-going", no_argument, NULL, 'k'},
		{"twice", no_argument, NULL, 't'},
		{"alone", no_argument, NULL, 'A'},
		{"stats", no_argument, NULL, 'S'},
		{"help", no_argument, NULL, '?'},
		{NULL, 0, NULL, 0},
	};
	char *rest;
	int c;

	while ((c = getopt_long(argc, argv, "v", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			o->first = strtoull(optarg, &rest, 0);
			o->end = *rest == ':' ? strtoull(rest + 1, NULL, 0) : o->first + 1;
			break;
		case 'n':
			o->first = strtoull(optarg, NULL, 0);
			o->end = o->first + 1;
			break;
		case 'r':
			o->regressions = optarg;
			break;
		case 'p':
			if (choose_plant(optarg) < 0)
				return -1;
			break;
		case 'b':
			o->limits.boxes = (unsigned)atoi(optarg) % (SIM_BOXES + 1);
			break;
		case 'j':
			o->limits.jobs = (unsigned)atoi(optarg) % (SIM_JOBS + 1);
			break;
		case 'w':
			o->limits.workers = (unsigned)atoi(optarg) % (SIM_WORKERS + 1);
			break;
		case 'h':
			o->limits.shards = (unsigned)atoi(optarg) % (SIM_SHARDS + 1);
			break;
		case 'l':
			o->limits.loss = atof(optarg);
			break;
		case 'c':
			o->caught = true;
			break;
		case 'C':
			o->limits.recordings = true;
			break;
		case 'M':
			o->limits.fleets = o->limits.moves = true;
			break;
		case 'E':
			o->limits.fleets = o->limits.moves = o->limits.deciders = true;
			break;
		case 'D':
			o->limits.fleets = o->limits.clocks = true;
			break;
		case 'B':
			o->limits.blocks = true;
			break;
		case 'O':
			o->limits.nodes = true;
			break;
		case 'L':
			o->limits.replicas = true;
			break;
		case 'V':
			o->limits.updates = true;
			break;
		case 'H':
			o->limits.hold = true;
			break;
		case 'U':
			o->racks = true;
			break;
		case 'F':
			o->limits.fleets = true;
			break;
		case 'K':
			o->limits.crashes_shrink = true;
			break;
		case 'm':
			o->first = strtoull(optarg, NULL, 0);
			o->shrink = true;
			break;
		case 'T':
			o->effort = strtoull(optarg, NULL, 0) * MILLION;
			break;
		case 'R':
			o->replay = optarg;
			break;
		case 'k':
			o->keep_going = true;
			break;
		case 't':
			o->twice = true;
			break;
		case 'A':
			o->alone = true;
			break;
		case 'S':
			o->stats = true;
			break;
		case 'v':
			o->verbose = true;
			break;
		default:
			fputs(help, stderr);
			return -1;
		}
	}
	return 0;
}

static void
print_stat(const char *who, const char *name, const uint64_t *v)
{
	uint64_t sum = 0;

	for (unsigned b = 0; b < SIM_BOXES; b++)
		sum += v[b];
	printf("%s%-*s %12llu", who, 30 - (int)strlen(who), name, (unsigned long long)sum);
	for (unsigned b = 0; b < SIM_BOXES; b++)
		printf(" %12llu", (unsigned long long)v[b]);
	putchar('\n');
}

static void
print_stats(const struct totals *t)
{
	uint64_t v[SIM_BOXES];

	printf("%-30s %12s", "", "all");
	for (unsigned b = 0; b < SIM_BOXES; b++)
		printf("        box %u", b);
	putchar('\n');
	for (unsigned i = 0; i < PBOX_SS_STATS; i++) {
		for (unsigned b = 0; b < SIM_BOXES; b++)
			v[b] = t->box[b].shard[i];
		print_stat("", pbox_shard_stat_defs[i].name, v);
	}
	for (unsigned i = 0; i < PBOX_RS_STATS; i++) {
		for (unsigned b = 0; b < SIM_BOXES; b++)
			v[b] = t->box[b].registrar[i];
		print_stat("registrar ", pbox_registrar_stat_defs[i].name, v);
	}
}

int
main(int argc, char **argv)
{
	struct options o = {
		.first = 1, .end = 1001, .limits = {.loss = -1.0}, .effort = EFFORT * MILLION};
	struct totals t = {0};
	struct timespec a, b;
	double s;

	if (parse(argc, argv, &o) < 0)
		return 2;
	if (sodium_init() < 0)
		return 2;
	if (o.racks)
		return racks_main(&(struct racks_options){.first = o.first,
			.end = o.end,
			.regressions = o.regressions,
			.loss = o.limits.loss,
			.verbose = o.verbose,
			.keep_going = o.keep_going,
			.twice = o.twice,
			.caught = o.caught});
	if (o.replay != NULL)
		return replay(&o);
	if (o.shrink)
		return shrink(o.first, &o, false) ? 0 : 1;
	if (o.caught)
		return catch (&o);
	clock_gettime(CLOCK_MONOTONIC, &a);
	if (o.regressions != NULL && run_regressions(&o, &t) < 0)
		return 2;
	for (uint64_t seed = o.first; seed < o.end && (t.failed == 0 || o.keep_going); seed++)
		run_one(seed, &o, &t);
	clock_gettime(CLOCK_MONOTONIC, &b);
	s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
	if (o.stats)
		print_stats(&t);
	printf("%u seeds in %.1f s (%.0f a second), %.0f s of virtual time, %llu events, %llu datagrams, hash %016llx\n",
		t.passed + t.failed, s, (t.passed + t.failed) / (s > 0 ? s : 1), t.virtual_s,
		(unsigned long long)t.events, (unsigned long long)t.frames,
		(unsigned long long)t.hash);
	printf("%u passed, %u failed\n", t.passed, t.failed);
	return t.failed > 0 ? 1 : 0;
}
