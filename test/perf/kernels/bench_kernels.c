/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* How fast the kernels go on this machine, and against what the memory allows. Figures are for
 * people and for regressions measured as ratios within one run, never for pass or fail. */

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "variants.h"

struct options {
	unsigned workers; /**< 0: the whole programme */
	size_t bytes;
	double seconds;
	enum pbox_format elem;
	const char *kernels; /**< only this implementation, or NULL for the best */
	int json, huge, quick;
	unsigned runs;
	size_t largest;
};

static const char *const elem_names[] = {"", "fp32", "bf16", "fp16"};
static unsigned rows;

/* What a summary is made of. */
static struct summary {
	double sum[2], checked[2], momentum[2], checked_momentum[2], one_by_one[2];
} summary;

static void
note(const struct workload *w, const char *name, int set, double gbit, double ratio)
{
	if (w->workers != 8 || w->elem != PBOX_FMT_FP32 || set < 0)
		return;
	if (strcmp(name, "sum") == 0)
		summary.sum[set] = gbit;
	else if (strcmp(name, "checked sum") == 0)
		summary.checked[set] = gbit;
	else if (strcmp(name, "fused momentum") == 0)
		summary.momentum[set] = ratio;
	else if (strcmp(name, "checked fused momentum") == 0)
		summary.checked_momentum[set] = ratio;
	else if (strcmp(name, "one by one") == 0)
		summary.one_by_one[set] = ratio;
}

static void
report(const struct options *o, const struct workload *w, const struct variant *v, double seconds,
	double ratio, double clock)
{
	double gbytes = (double)(w->bytes * w->workers) / seconds * 1e-9;
	size_t payloads = w->fragments * w->workers * w->bytes;

	if (!o->json) {
		printf("%5zu KB %-6s %-4s %2u  %-23s %9.1f ns/fragment %7.2f GB/s %7.1f Gbit/s %5.1f B/cycle",
			payloads >> 10, v->ctx.reduce->name, elem_names[w->elem], w->workers,
			v->name, seconds * 1e9, gbytes, gbytes * 8, gbytes / clock);
		if (v->base >= 0)
			printf("  %.2f x the %s", ratio, v->base ? "checked sum" : "sum");
		printf("\n");
		fflush(stdout);
		return;
	}
	printf("%s{\"table\":\"%s of %zu bytes, %zu KB of them\",\"what\":\"%s\",\"workers\":%u,\"kernels\":\"%s\",\"format\":\"%s\",\"payload\":%zu,\"working_set_kb\":%zu,\"huge_pages\":%s,\"gbit_per_s\":%.1f,\"gb_per_s\":%.2f,\"bytes_per_cycle\":%.2f,\"ns_per_fragment\":%.1f,",
		rows++ ? ",\n" : "", elem_names[w->elem], w->bytes, payloads >> 10, v->name,
		w->workers, v->ctx.reduce->name, elem_names[w->elem], w->bytes, payloads >> 10,
		o->huge ? "true" : "false", gbytes * 8, gbytes, gbytes / clock, seconds * 1e9);
	if (v->base >= 0)
		printf("\"time_ratio\":%.3f,\"ratio_to\":\"%s\"}", ratio,
			v->base ? "checked sum" : "sum");
	else
		printf("\"time_ratio\":null,\"ratio_to\":null}");
}

/* All variants take turns, so that a ratio compares what ran at the same time. */
static void
bench_set(const struct options *o, size_t kbytes, unsigned workers, size_t bytes,
	enum pbox_format elem, const struct pbox_reduce_ops *reduce, int few)
{
	static struct variant v[VARIANTS_MAX];
	static double t[VARIANTS_MAX][RUNS_MAX], ratio[RUNS_MAX];
	unsigned n = variants_make(v, reduce, workers, few);
	int set = kbytes == 512 ? 0 : kbytes == 16384 ? 1 : -1;
	double clock = core_clock();
	struct workload w;

	workload_make(&w, kbytes << 10, workers, bytes, elem, o->huge);
	for (unsigned run = 0; run < o->runs; run++)
		for (unsigned i = 0; i < n; i++)
			t[i][run] = measure(&w, v[i].run, &v[i].ctx, o->seconds);
	for (unsigned i = 0; i < n; i++) {
		double middle = median(t[i], o->runs);

		for (unsigned run = 0; v[i].base >= 0 && run < o->runs; run++)
			ratio[run] = t[i][run] / t[v[i].base][run];
		if (v[i].ctx.refused > 0) {
			fprintf(stderr, "bench_kernels: %s refused intact frames\n", v[i].name);
			exit(1);
		}
		report(o, &w, &v[i], middle, median(ratio, o->runs), clock);
		note(&w, v[i].name, set, (double)(bytes * workers) / middle * 8e-9,
			median(ratio, o->runs));
	}
	workload_free(&w);
}

static void
programme(const struct options *o, const struct pbox_reduce_ops *best)
{
	static const size_t sets[] = {512, 16 << 10, 64 << 10, 1 << 20}; /* KB */
	static const unsigned workers[] = {1, 2, 4, 16, 64};
	const struct pbox_reduce_ops *avx2 = pbox_reduce_select("avx2");

	for (unsigned i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		if (sets[i] <= o->largest << 10)
			bench_set(o, sets[i], 8, o->bytes, PBOX_FMT_FP32, best, 0);
	for (unsigned set = 0; set < 2 && !o->quick; set++) {
		for (unsigned i = 0; i < sizeof(workers) / sizeof(workers[0]); i++)
			bench_set(o, sets[set], workers[i], o->bytes, PBOX_FMT_FP32, best, 1);
		for (enum pbox_format e = PBOX_FMT_BF16; e <= PBOX_FMT_FP16; e++)
			bench_set(o, sets[set], 8, o->bytes, e, best, 1);
		bench_set(o, sets[set], 8, 1408, PBOX_FMT_FP32, best, 1);
		if (avx2 != NULL && avx2 != best)
			bench_set(o, sets[set], 8, o->bytes, PBOX_FMT_FP32, avx2, 1);
		bench_set(o, sets[set], 8, o->bytes, PBOX_FMT_FP32, &pbox_reduce_scalar, 1);
	}
}

static void
one_case(const struct options *o, const struct pbox_reduce_ops *best)
{
	static const size_t sets[] = {512, 16 << 10, 64 << 10, 1 << 20};

	for (unsigned i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		if (sets[i] <= o->largest << 10)
			bench_set(o, sets[i], o->workers, o->bytes, o->elem, best, 0);
}

static void
usage(FILE *f)
{
	fprintf(f, "Usage: bench_kernels [options]\n"
		   "Times the summation and optimiser kernels on payloads at random places.\n"
		   "  --workers N      payloads a fragment, and nothing else (a whole programme)\n"
		   "  --payload BYTES  of each, a multiple of 64 (8192)\n"
		   "  --format F       with --workers: fp32, bf16 or fp16 (fp32)\n"
		   "  --kernels NAME   scalar, avx2 or avx512 (the best that this CPU can run)\n"
		   "  --largest MB     leave out larger working sets (1024)\n"
		   "  --seconds S      of each run (0.05)\n"
		   "  --runs N         the median is taken of (5)\n"
		   "  --small-pages    4 KiB pages (transparent hugepages)\n"
		   "  --quick          least that shows that all works\n"
		   "  --json           one object\n");
}

static enum pbox_format
format_of(const char *name)
{
	for (int e = PBOX_FMT_FP32; e <= PBOX_FMT_FP16; e++)
		if (strcmp(name, elem_names[e]) == 0)
			return e;
	fprintf(stderr, "bench_kernels: no format %s: choose fp32, bf16 or fp16\n", name);
	exit(2);
}

static void
check(const struct options *o)
{
	if (o->workers > WORKERS_MAX || o->bytes == 0 || o->bytes % 64 != 0) {
		fprintf(stderr, "bench_kernels: --workers is 1 to %d, --payload a multiple of 64\n",
			WORKERS_MAX);
		exit(2);
	}
	if (o->runs == 0 || o->runs > RUNS_MAX) {
		fprintf(stderr, "bench_kernels: --runs is 1 to %d\n", RUNS_MAX);
		exit(2);
	}
}

static void
parse(struct options *o, int argc, char **argv)
{
	static const struct option table[] = {{"workers", 1, NULL, 'w'}, {"payload", 1, NULL, 'p'},
		{"format", 1, NULL, 'f'}, {"kernels", 1, NULL, 'k'}, {"largest", 1, NULL, 'l'},
		{"seconds", 1, NULL, 's'}, {"runs", 1, NULL, 'r'}, {"small-pages", 0, NULL, 'S'},
		{"quick", 0, NULL, 'q'}, {"json", 0, NULL, 'j'}, {"help", 0, NULL, 'h'},
		{NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "h", table, NULL)) != -1) {
		switch (c) {
		case 'w':
			o->workers = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'p':
			o->bytes = strtoul(optarg, NULL, 10);
			break;
		case 'f':
			o->elem = format_of(optarg);
			break;
		case 'k':
			o->kernels = optarg;
			break;
		case 'l':
			o->largest = strtoul(optarg, NULL, 10);
			break;
		case 's':
			o->seconds = strtod(optarg, NULL);
			break;
		case 'r':
			o->runs = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'S':
			o->huge = 0;
			break;
		case 'q':
			o->quick = 1;
			o->largest = 16;
			o->seconds = 0.01;
			break;
		case 'j':
			o->json = 1;
			break;
		default:
			usage(c == 'h' ? stdout : stderr);
			exit(c == 'h' ? 0 : 2);
		}
	}
	check(o);
}

static void
print_summary(const struct pbox_reduce_ops *best, double clock)
{
	static const char *const where[] = {"l2", "llc"};

	printf("],\n\"summary\":{\"kernels\":\"%s\",\"core_ghz\":%.2f", best->name, clock);
	for (int i = 0; i < 2; i++)
		printf(",\"sum_%s_gbit_per_s\":%.1f,\"checked_sum_%s_gbit_per_s\":%.1f,\"momentum_to_sum_%s\":%.3f,\"checked_momentum_to_checked_sum_%s\":%.3f,\"one_by_one_to_sum_%s\":%.3f",
			where[i], summary.sum[i], where[i], summary.checked[i], where[i],
			summary.momentum[i], where[i], summary.checked_momentum[i], where[i],
			summary.one_by_one[i]);
	printf("}}\n");
}

int
main(int argc, char **argv)
{
	struct options o = {
		.bytes = 8192,
		.seconds = 0.05,
		.elem = PBOX_FMT_FP32,
		.huge = 1,
		.runs = 5,
		.largest = 1024,
	};
	const struct pbox_reduce_ops *best;

	parse(&o, argc, argv);
	best = pbox_reduce_select(o.kernels);
	if (best == NULL) {
		fprintf(stderr, "bench_kernels: no kernels %s on this CPU\n", o.kernels);
		return 2;
	}
	if (o.json)
		printf("{\"benchmark\":\"kernels\",\"results\":[\n");
	if (o.workers > 0)
		one_case(&o, best);
	else
		programme(&o, best);
	if (o.json)
		print_summary(best, core_clock());
	return 0;
}
