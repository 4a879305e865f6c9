/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static void
usage(FILE *f)
{
	fputs("Usage: bench_box [options]\n"
	      "The box on an in-memory port, fed by prepared workers. Root is not needed.\n"
	      "  --fragment N    bytes of a payload: 1408, 4096, 8192 or 8896 (8192)\n"
	      "  --workers N     of each job, 1 to 4096 (8)\n"
	      "  --jobs N        1 to 64 (1)\n"
	      "  --model SIZE    fp32 parameters of each job, bytes; K, M, G (an eighth of resident)\n"
	      "  --clock         a table in clocks: each packet is a push, and its answer has no payload\n"
	      "  --optimiser O   none, sgd, momentum, adam (none: the sum)\n"
	      "  --format F      fp32, bf16 or fp16, both ways (fp32)\n"
	      "  --kernel K      avx512, avx2 or scalar (the best here)\n"
	      "  --resident R    payload buffers that take turns: l2 (512K), llc (16M) or a size (llc)\n"
	      "  --slots N       fragments in flight (so many that 128 packets are)\n"
	      "  --train N       fragments that a worker sends in a row (1)\n"
	      "  --shuffle       the packets of as many fragments in random order\n"
	      "  --auth          frames have tags\n"
	      "  --packets N     of each run (as many as take about 0.2 s)\n"
	      "  --runs N        an odd number; the median counts (5)\n"
	      "  --verify N      every Nth answer is checked in full (4096; lockstep 64)\n"
	      "  --lockstep      one core: only the box's turns are timed\n"
	      "  --stages        lockstep, and where the time goes\n"
	      "  --only-rounds   lockstep without anything beside (for callgrind)\n"
	      "  --cpus B[,G]    CPUs of box and generator (0,1)\n"
	      "  --no-huge       4 KiB pages (2 MiB pages where enough are free)\n"
	      "  --telemetry P   lockstep, rounds until SIGTERM, telemetry answers as --file-prefix P\n"
	      "  --json          one object\n",
		f);
}

/* A size, with K, M or G or without; 0: none. */
static uint64_t
size_of(const char *text)
{
	char *end;
	double v = strtod(text, &end);
	uint64_t unit = *end == 'G' ? 1024 * MIB : *end == 'M' ? MIB : *end == 'K' ? KIB : 1;

	if (end == text || v <= 0 || (*end != '\0' && (unit == 1 || end[1] != '\0')))
		return 0;
	return (uint64_t)(v * (double)unit);
}

static int
choose(const char *text, const char *const *names)
{
	for (int i = 0; names[i] != NULL; i++)
		if (strcmp(text, names[i]) == 0)
			return i;
	fprintf(stderr, "bench_box: '%s' is none of", text);
	for (int i = 0; names[i] != NULL; i++)
		fprintf(stderr, " %s", names[i]);
	fputs("\n", stderr);
	exit(2);
}

static void
set_resident(struct options *o, const char *text)
{
	o->resident_name = text;
	if (strcmp(text, "l2") == 0)
		o->resident = 512 * KIB;
	else if (strcmp(text, "llc") == 0)
		o->resident = 16 * MIB;
	else
		o->resident = size_of(text);
}

static void
set(struct options *o, int c)
{
	static const char *const optimisers[] = {"none", PBOX_OPTIMISERS(PBOX_LIST_NAME) NULL};
	static const char *const formats[] = {"", PBOX_FORMATS(PBOX_LIST_NAME) NULL};
	unsigned long n = optarg != NULL ? strtoul(optarg, NULL, 10) : 0;

	switch (c) {
	case 'f':
		o->fragment = (unsigned)n;
		break;
	case 'w':
		o->workers = (unsigned)n;
		break;
	case 'j':
		o->jobs = (unsigned)n;
		break;
	case 'm':
		o->model = size_of(optarg);
		break;
	case 'o':
		o->optimiser = choose(optarg, optimisers);
		break;
	case 'F':
		o->format = choose(optarg, formats);
		break;
	case 'k':
		o->kernel = optarg;
		break;
	case 'r':
		set_resident(o, optarg);
		break;
	case 's':
		o->slots = (unsigned)n;
		break;
	case 't':
		o->train = (unsigned)n;
		break;
	case 'p':
		o->packets = n;
		break;
	case 'R':
		o->runs = (unsigned)n;
		break;
	case 'v':
		o->verify = (unsigned)n;
		break;
	case 'c':
		o->box_cpu = (unsigned)n;
		o->gen_cpu = strchr(optarg, ',') != NULL
				     ? (unsigned)strtoul(strchr(optarg, ',') + 1, NULL, 10)
				     : o->box_cpu;
		break;
	}
}

int
options_parse(struct options *o, int argc, char **argv)
{
	enum {
		SHUFFLE = 256,
		LOCKSTEP,
		STAGES,
		NO_HUGE,
		JSON,
		HELP,
		ONLY,
		AUTH,
		TELEMETRY,
		PUSHES
	};
	static const struct option table[] = {{"fragment", 1, NULL, 'f'}, {"workers", 1, NULL, 'w'},
		{"jobs", 1, NULL, 'j'}, {"model", 1, NULL, 'm'}, {"optimiser", 1, NULL, 'o'},
		{"format", 1, NULL, 'F'}, {"push-format", 1, NULL, 'F'}, {"kernel", 1, NULL, 'k'},
		{"resident", 1, NULL, 'r'}, {"slots", 1, NULL, 's'}, {"train", 1, NULL, 't'},
		{"packets", 1, NULL, 'p'}, {"runs", 1, NULL, 'R'}, {"verify", 1, NULL, 'v'},
		{"cpus", 1, NULL, 'c'}, {"shuffle", 0, NULL, SHUFFLE},
		{"lockstep", 0, NULL, LOCKSTEP}, {"stages", 0, NULL, STAGES},
		{"no-huge", 0, NULL, NO_HUGE}, {"json", 0, NULL, JSON}, {"help", 0, NULL, HELP},
		{"only-rounds", 0, NULL, ONLY}, {"auth", 0, NULL, AUTH}, {"clock", 0, NULL, PUSHES},
		{"telemetry", 1, NULL, TELEMETRY}, {NULL, 0, NULL, 0}};
	int c;

	*o = (struct options){.fragment = 8192,
		.workers = 8,
		.jobs = 1,
		.train = 1,
		.runs = 5,
		.gen_cpu = 1,
		.format = PBOX_FMT_FP32};
	set_resident(o, "llc");
	while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
		switch (c) {
		case SHUFFLE:
			o->shuffle = true;
			break;
		case ONLY:
			o->only_rounds = o->lockstep = true;
			break;
		case TELEMETRY:
			o->telemetry = optarg;
			o->lockstep = true;
			break;
		case AUTH:
			o->auth = true;
			break;
		case PUSHES:
			o->clock = true;
			o->optimiser = PBOX_OPT_ADD;
			break;
		case STAGES:
			o->stages = o->lockstep = true;
			break;
		case LOCKSTEP:
			o->lockstep = true;
			break;
		case NO_HUGE:
			o->no_huge = true;
			break;
		case JSON:
			o->json = true;
			break;
		case HELP:
			usage(stdout);
			return 0;
		case '?':
			usage(stderr);
			return 2;
		default:
			set(o, c);
		}
	}
	if (optind != argc) {
		usage(stderr);
		return 2;
	}
	return -1;
}

static bool
bad(const char *what)
{
	fprintf(stderr, "bench_box: %s\n", what);
	return false;
}

bool
options_complete(struct options *o)
{
	uint64_t buffers, fragments;

	if (o->fragment < PBOX_JOIN_LEN || o->fragment > 61440 || o->fragment % 64 != 0)
		return bad("--fragment is a multiple of 64, 512 to 61440");
	if (o->workers < 1 || o->workers > PBOX_MAX_WORKERS)
		return bad("--workers is 1 to 4096");
	if (o->jobs < 1 || o->jobs > 64)
		return bad("--jobs is 1 to 64");
	if (o->auth && o->jobs > 1) /* the digest of a payload is kept for one key */
		return bad("--auth takes one job");
	if (o->clock && (o->auth || o->stages))
		return bad("--clock goes with neither --auth nor --stages");
	if (o->resident < 4 * o->fragment)
		return bad("--resident is l2, llc or at least four fragments");
	if (o->runs < 1 || o->runs > MAX_RUNS || o->runs % 2 == 0)
		return bad("--runs is 1, 3, ... 15");
	if (o->train < 1 || o->train > 256 || (uint64_t)o->train * o->workers > 32768)
		return bad("--train times --workers is 1 to 32768");
	buffers = o->resident / o->fragment;
	if (o->slots == 0) {
		o->slots = (unsigned)((buffers < 256 ? buffers / 2 : 128) / o->workers);
		if (o->slots < 2 * o->train)
			o->slots = 2 * o->train;
	}
	if (o->slots < o->jobs * o->train)
		o->slots = o->jobs * o->train;
	o->slots -= o->slots % o->train;
	if (o->slots == 0)
		return bad("--slots is at least --train");
	if (o->model == 0)
		o->model = o->resident / 8;
	fragments = o->model * pbox_format_size(o->format) / 4 / o->fragment;
	/* each fragment is at most once in flight */
	if (fragments < o->slots / o->jobs + o->train)
		fragments = o->slots / o->jobs + o->train;
	o->model = fragments * o->fragment / pbox_format_size(o->format) * 4;
	if (o->packets == 0)
		o->packets = (uint64_t)1 << (o->fragment > 4096 ? 18 : 19);
	if (o->verify == 0)
		o->verify = o->lockstep ? 64 : 4096;
	return true;
}
