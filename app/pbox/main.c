/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "box.h"

#define EXIT_USAGE 2

static struct box box;

/* Where our options begin: after "--". Without it all are EAL's, except a lone --help or so. */
static int
box_split(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--") == 0)
			return i;
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
				strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 ||
				strcmp(argv[1], "--counters") == 0))
		return 0;
	return argc;
}

/* -1: go on; else the exit status. @p ours: index of "--". */
static int
box_options(int all, char **argv, int ours)
{
	const char *wrong = pbox_options_misplaced(ours, argv);
	struct pbox_error err = {0};
	int argc = all - ours;

	if (wrong != NULL) {
		fprintf(stderr,
			"pbox: %s is an option of pbox, not of EAL: they belong after --: pbox [EAL options] -- %s ...\n",
			wrong, wrong);
		return EXIT_USAGE;
	}
	argv += ours;
	box.argc = argc;
	box.argv = argv;
	box.conf = pbox_options_load(&box.opt, argc, argv, &err);
	if (box.conf == NULL) {
		wrong = eal_misplaced(err.text);
		fprintf(stderr, "pbox: %s%s\n", err.text,
			wrong != NULL
				? ". That is an option of EAL: they belong before --: pbox [EAL options] -- [options]"
				: "");
		return EXIT_USAGE;
	}
	if (box.opt.help != PBOX_OPTION_HELP_NONE) {
		pbox_conf_help(&pbox_options_table, box.opt.help == PBOX_OPTION_HELP_ALL, stdout);
		puts("Exit status: 0 stopped cleanly, 1 could not serve, 2 wrong options.");
		return EXIT_SUCCESS;
	}
	if (box.opt.version) {
		puts("pbox " PBOX_VERSION);
		return EXIT_SUCCESS;
	}
	if (box.opt.counters) {
		pbox_stats_defs_json(pbox_control_tables, PBOX_COUNTERS_TABLES, stdout);
		return EXIT_SUCCESS;
	}
	return -1;
}

/* In this order; box_stop() undoes it in reverse. */
static int
box_start(int eal_argc, char **eal_argv, struct pbox_error *err)
{
	struct pbox_error unheard = {0};
	int ret = log_open(&box.opt, err);

	if (pbox_notify_open(&box.notify, &unheard) != 0)
		pbox_log(PBOX_LOG_WARN, "%s: nothing is reported to the service manager",
			unheard.text);
	pbox_notify_send(&box.notify, "STATUS=starting: EAL");
	if (ret == 0)
		ret = guard_prepare(&box, err);
	if (ret == 0)
		ret = host_start(&box, eal_argc, eal_argv, err);
	if (ret == 0)
		ret = cores_find(&box, err);
	if (ret == 0)
		ret = ports_prepare(&box, err);
	if (ret == 0)
		ret = memory_plan(&box, err);
	pbox_notify_send(&box.notify, "STATUS=starting: memory");
	if (ret == 0)
		ret = memory_take(&box, err);
	pbox_notify_send(&box.notify, "STATUS=starting: ports");
	if (ret == 0)
		ret = ports_open(&box, err);
	if (ret == 0)
		ret = planes_create(&box, err);
	return ret;
}

static int
box_stop(bool served)
{
	int ret = 0;

	if (box.dp != NULL)
		pbox_dp_drain(box.dp);
	ports_close(&box);
	if (served)
		ret = stopped_line(&box);
	planes_destroy(&box);
	memory_give_back(&box);
	ports_free(&box);
	host_stop(&box);
	pbox_notify_close(&box.notify);
	log_close();
	reload_free(&box);
	pbox_conf_free(box.conf);
	pbox_options_wipe(&box.opt);
	return ret;
}

int
main(int argc, char **argv)
{
	int ours = box_split(argc, argv), status;
	struct pbox_error err = {0};
	bool served = false;
	int ret;

	setvbuf(stdout, NULL, _IOLBF, 0);
	pbox_keep_heap();
	status = box_options(argc, argv, ours);
	if (status >= 0)
		return status;
	if (sched_getaffinity(0, sizeof(box.cpus), &box.cpus) != 0)
		CPU_ZERO(&box.cpus);
	if (box.opt.check) {
		pbox_conf_dump(box.conf, stdout);
		putchar('\n');
	}
	ret = box_start(ours > 0 ? ours : 1, argv, &err);
	/* links, interrupts and flow rules show only then */
	if (ret == 0 && box.opt.check)
		ret = ports_start(&box, &err);
	if (ret == 0 && box.opt.check) {
		report_make(&box);
		report_print(&box, true);
	} else if (ret == 0) {
		served = true;
		ret = serve(&box, &err);
	}
	if (ret != 0 && box.opt.check) {
		printf("FAIL %s\n", err.text);
	} else if (ret != 0) {
		pbox_log(PBOX_LOG_ERROR, "%s", err.text);
		pbox_notify_send(&box.notify, "STATUS=%s", err.text);
	}
	status = box_stop(served && ret == 0);
	return ret == 0 && status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
