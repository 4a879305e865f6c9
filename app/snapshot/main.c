/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Snapshots of the box: look at them, check and repair them, take tensors out. */

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tool.h"

static const char help[] =
	"Usage: pbox-snapshot COMMAND FILE [options]\n"
	"Looks at snapshots of a box, checks and repairs them, takes tensors out.\n"
	"\n"
	"Commands:\n"
	"  list DIR                  the snapshots in a directory, newest first, also those\n"
	"                            of earlier runs\n"
	"  inspect FILE              job, round, declaration, hyper-parameters and tensors\n"
	"  verify FILE               read all of it; counts what parity can rebuild, names\n"
	"                            what is beyond repair: array, tensor, elements\n"
	"  repair FILE               write it again with everything rebuilt; a file that is\n"
	"                            damaged beyond repair stays as it is\n"
	"  extract FILE TENSOR       one tensor, as fp32, also if others are damaged\n"
	"\n"
	"Options:\n"
	"  -o, --output OUT          where extract writes (required there)\n"
	"  -f, --format npy|raw      NumPy's format, or the bytes alone (default npy)\n"
	"  -a, --array NAME          parameters (default), s0 (the momentum, or Adam's first\n"
	"                            moment), s1 (its second) or replica (what workers have,\n"
	"                            where results are in int8 or mxfp4)\n"
	"  -h, --help                print this page\n"
	"  -V, --version             print the version\n"
	"\n"
	"Exit status: 0 good, 1 damaged beyond repair, not there or not written, 2 wrong usage.\n";

static int
snapshot_usage(const char *wrong)
{
	fprintf(stderr, "pbox-snapshot: %s: see pbox-snapshot --help\n", wrong);
	return USAGE;
}

static const char *const array_names[] = {"parameters", "s0", "s1", "replica"};

static const char *
snapshot_array_of(const char *name)
{
	for (unsigned i = 0; i < sizeof(array_names) / sizeof(array_names[0]); i++)
		if (strcmp(name, array_names[i]) == 0)
			return name;
	return NULL;
}

/* -1: go on */
static int
snapshot_options(int argc, char **argv, struct tool *t)
{
	static const struct option known[] = {{"format", required_argument, NULL, 'f'},
		{"array", required_argument, NULL, 'a'}, {"output", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {0}};
	int c;

	while ((c = getopt_long(argc, argv, "f:a:o:hV", known, NULL)) != -1) {
		switch (c) {
		case 'f':
			if (strcmp(optarg, "npy") != 0 && strcmp(optarg, "raw") != 0)
				return snapshot_usage("--format is npy or raw");
			t->npy = optarg[0] == 'n';
			break;
		case 'a':
			t->array = snapshot_array_of(optarg);
			if (t->array == NULL)
				return snapshot_usage("--array is parameters, s0, s1 or replica");
			break;
		case 'o':
			t->output = optarg;
			break;
		case 'h':
			fputs(help, stdout);
			return GOOD;
		case 'V':
			puts("pbox-snapshot " PBOX_VERSION);
			return GOOD;
		default:
			return USAGE;
		}
	}
	return -1;
}

int
main(int argc, char **argv)
{
	struct tool t = {.array = array_names[0], .npy = true};
	int status = snapshot_options(argc, argv, &t), n;
	const char *command;

	if (status >= 0)
		return status;
	n = argc - optind;
	if (n < 2)
		return snapshot_usage("a command and a file");
	command = argv[optind];
	t.file = argv[optind + 1];
	if (strcmp(command, "extract") == 0) {
		if (n != 3 || t.output == NULL)
			return snapshot_usage("extract FILE TENSOR -o OUT");
		t.tensor = argv[optind + 2];
		return extract(&t);
	}
	if (n != 2)
		return snapshot_usage("one file");
	if (strcmp(command, "list") == 0)
		return show_list(t.file);
	if (strcmp(command, "inspect") == 0)
		return show_inspect(&t);
	if (strcmp(command, "verify") == 0)
		return show_verify(&t);
	if (strcmp(command, "repair") == 0)
		return show_repair(&t);
	return snapshot_usage("unknown command");
}
