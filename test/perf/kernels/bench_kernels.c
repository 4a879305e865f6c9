/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* How fast the kernels go on this machine, and against what the memory allows. Figures are for
 * people and for regressions measured as ratios within one run, never for pass or fail. */

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

struct options {
	unsigned workers;
	size_t bytes;
	double seconds;
	enum pbox_elem elem;
	const char *kernels; /**< only this implementation, or NULL for all */
	int json, huge;
	size_t largest;
};

struct context {
	const struct pbox_reduce_ops *reduce;
	struct pbox_update update;
	struct pbox_optim_scalars scalars;
	uint64_t sink;
};

static void
one_pass(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX];
	struct pbox_sources s = {src, NULL, w->workers, w->elem, NULL};

	fragment_sources(w, f, src);
	c->reduce->sum(w->param + f * w->elems, &s, 0, w->elems);
}

/* As a box does that adds each packet when it comes. */
static void
one_by_one(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX];
	float *dst = w->param + f * w->elems;

	fragment_sources(w, f, src);
	for (unsigned k = 0; k < w->workers; k++) {
		struct pbox_sources s = {&src[k], NULL, 1, w->elem, k == 0 ? NULL : dst};

		c->reduce->sum(dst, &s, 0, w->elems);
	}
}

/* All payloads copied to one place: what a copying receiver pays before it sums. */
static void
copy(const struct workload *w, size_t f, void *ctx)
{
	const void *src[WORKERS_MAX];

	(void)ctx;
	fragment_sources(w, f, src);
	for (unsigned k = 0; k < w->workers; k++)
		memcpy(w->param + f * w->elems, src[k], w->bytes);
}

/* One load a cache line and nothing else: what the memory gives, without prefetching of our own. */
static void
read_only(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX];
	uint64_t x = 0, word;

	fragment_sources(w, f, src);
	for (unsigned k = 0; k < w->workers; k++)
		for (size_t i = 0; i < w->bytes; i += 64) {
			memcpy(&word, (const uint8_t *)src[k] + i, sizeof(word));
			x |= word;
		}
	c->sink += x;
}

static void
fused(const struct workload *w, size_t f, void *ctx)
{
	struct context *c = ctx;
	const void *src[WORKERS_MAX];
	struct pbox_sources s = {src, NULL, w->workers, w->elem, NULL};
	struct pbox_update u = c->update;

	fragment_sources(w, f, src);
	u.k = &c->scalars;
	u.param = w->param + f * w->elems;
	if (pbox_optim_states(u.kind) > 0)
		u.s0 = w->s0 + f * w->elems;
	if (pbox_optim_states(u.kind) > 1)
		u.s1 = w->s1 + f * w->elems;
	pbox_optim_update(&u, &s, w->elems);
}

static void
report(const struct options *o, const struct workload *w, const char *kernels, const char *what,
	double seconds, double bare)
{
	double gbytes = (double)(w->bytes * w->workers) / seconds * 1e-9;

	if (o->json) {
		printf("{\"kernels\":\"%s\",\"what\":\"%s\",\"working_set\":%zu,\"workers\":%u,"
		       "\"payload\":%zu,\"huge_pages\":%s,\"ns_per_fragment\":%.1f,"
		       "\"gbytes_per_s\":%.2f,\"gbit_per_s\":%.1f",
			kernels, what, w->mapped, w->workers, w->bytes, o->huge ? "true" : "false",
			seconds * 1e9, gbytes, gbytes * 8);
		if (bare > 0)
			printf(",\"ratio_to_bare_sum\":%.3f", seconds / bare);
		printf("}\n");
	} else {
		printf("%6zu MB  %-8s %-16s %9.1f ns/fragment %8.2f GB/s %8.1f Gbit/s",
			w->mapped >> 20, kernels, what, seconds * 1e9, gbytes, gbytes * 8);
		if (bare > 0)
			printf("  %.2f x the bare sum", seconds / bare);
		printf("\n");
	}
	fflush(stdout);
}

static void
bench_optimisers(const struct options *o, const struct workload *w, struct context *c, double bare)
{
	for (int kind = PBOX_OPTIM_NONE; kind < PBOX_OPTIM_KINDS; kind++) {
		struct pbox_hyper h;
		char what[32];

		pbox_hyper_defaults(&h, kind);
		h.lr = 1e-6;
		h.momentum = kind == PBOX_OPTIM_SGD ? 0.0 : 0.9;
		pbox_optim_scalars(&c->scalars, &h, kind, 10);
		c->update = (struct pbox_update){
			.reduce = c->reduce,
			.optim = pbox_optim_select(c->reduce->name),
			.kind = kind,
			.factor = kind == PBOX_OPTIM_NONE ? 1.0f : 1.0f / (float)w->workers,
		};
		if (c->update.optim == NULL)
			c->update.optim = &pbox_optim_scalar;
		snprintf(what, sizeof(what), "fused %s", pbox_optim_kind_name(kind));
		report(o, w, c->reduce->name, what, measure(w, fused, c, o->seconds), bare);
	}
}

static void
bench_working_set(const struct options *o, size_t working_set)
{
	struct context c = {0};
	struct workload w;

	workload_make(&w, working_set, o->workers, o->bytes, o->elem, o->huge);
	report(o, &w, "-", "read only", measure(&w, read_only, &c, o->seconds), 0);
	report(o, &w, "-", "memcpy", measure(&w, copy, &c, o->seconds), 0);
	for (unsigned i = 0; pbox_reduce_at(i) != NULL; i++) {
		double bare;

		c.reduce = pbox_reduce_at(i);
		if (!c.reduce->usable() ||
			(o->kernels != NULL && strcmp(o->kernels, c.reduce->name) != 0))
			continue;
		bare = measure(&w, one_pass, &c, o->seconds);
		report(o, &w, c.reduce->name, "one pass", bare, 0);
		report(o, &w, c.reduce->name, "one by one", measure(&w, one_by_one, &c, o->seconds),
			bare);
		bench_optimisers(o, &w, &c, bare);
	}
	if (c.sink == 1)
		printf("\n"); /* so that reading is not optimised away */
	workload_free(&w);
}

static void
usage(FILE *f)
{
	fprintf(f, "Usage: bench_kernels [options]\n"
		   "Times the summation and optimiser kernels on payloads at random places.\n"
		   "  --workers N      payloads a fragment (8)\n"
		   "  --payload BYTES  of each, a multiple of 64 (8192)\n"
		   "  --format F       fp32, bf16 or fp16 (fp32)\n"
		   "  --kernels NAME   only scalar, avx2 or avx512 (all that this CPU can run)\n"
		   "  --largest MB     leave out larger working sets (1024)\n"
		   "  --seconds S      of each of the 5 runs a median is taken of (0.1)\n"
		   "  --huge           transparent huge pages (4 KiB pages)\n"
		   "  --json           one object a line\n");
}

static enum pbox_elem
format_of(const char *name)
{
	if (strcmp(name, "bf16") == 0)
		return PBOX_ELEM_BF16;
	if (strcmp(name, "fp16") == 0)
		return PBOX_ELEM_FP16;
	if (strcmp(name, "fp32") == 0)
		return PBOX_ELEM_FP32;
	fprintf(stderr, "bench_kernels: no format %s: choose fp32, bf16 or fp16\n", name);
	exit(2);
}

static void
parse(struct options *o, int argc, char **argv)
{
	static const struct option table[] = {
		{"workers", 1, NULL, 'w'},
		{"payload", 1, NULL, 'p'},
		{"format", 1, NULL, 'f'},
		{"kernels", 1, NULL, 'k'},
		{"largest", 1, NULL, 'l'},
		{"seconds", 1, NULL, 's'},
		{"huge", 0, NULL, 'H'},
		{"json", 0, NULL, 'j'},
		{"help", 0, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
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
		case 'H':
			o->huge = 1;
			break;
		case 'j':
			o->json = 1;
			break;
		default:
			usage(c == 'h' ? stdout : stderr);
			exit(c == 'h' ? 0 : 2);
		}
	}
	if (o->workers == 0 || o->workers > WORKERS_MAX || o->bytes == 0 || o->bytes % 64 != 0) {
		fprintf(stderr, "bench_kernels: --workers is 1 to %d, --payload a multiple of 64\n",
			WORKERS_MAX);
		exit(2);
	}
}

int
main(int argc, char **argv)
{
	static const size_t sets[] = {1, 16, 64, 1024}; /* MB: L2, last-level cache, memory */
	struct options o = {8, 8192, 0.1, PBOX_ELEM_FP32, NULL, 0, 0, 1024};

	parse(&o, argc, argv);
	for (unsigned i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		if (sets[i] <= o.largest)
			bench_working_set(&o, sets[i] << 20);
	return 0;
}
