/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <sodium.h>

#include "json.h"
#include "loopback.h"
#include "run.h"
#include "testps.h"

#define EXIT_WRONG 1
#define EXIT_USAGE 2
#define EXIT_START 3

static struct testps testps;
/* Index of "--"; without it a lone --help and the like are ours. */
static int
testps_split(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--") == 0)
			return i;
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
				strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0))
		return 0;
	return argc;
}

/* -1: go on; else the exit status. */
static int
testps_parse(struct testps *t, int argc, char **argv, struct pbox_conf **conf)
{
	struct pbox_error err = {0};

	if (argc == 0) {
		fprintf(stderr,
			"pbox-testps: there is no --: EAL's options come before it, those of pbox-testps after it: pbox-testps -l 0-2 -- -i --loopback\n");
		return EXIT_USAGE;
	}
	*conf = testps_options_load(&t->opt, argc, argv, &err);
	if (*conf == NULL || testps_load_of(&t->load, &t->opt, &err) != 0) {
		fprintf(stderr, "pbox-testps: %s\n", err.text);
		return EXIT_USAGE;
	}
	if (t->opt.help != TESTPS_HELP_NONE) {
		pbox_conf_help(&testps_options_table, t->opt.help == TESTPS_HELP_ALL, stdout);
		puts("Exit status: 0 all right, 1 wrong results or a run that failed, 2 wrong options, 3 no start.");
		return EXIT_SUCCESS;
	}
	if (t->opt.version) {
		puts("pbox-testps " PBOX_VERSION);
		return EXIT_SUCCESS;
	}
	/* here, so that it is found before EAL starts */
	if (model_read(&t->model, t->load.model, &err) != 0) {
		fprintf(stderr, "pbox-testps: %s\n", err.text);
		return EXIT_USAGE;
	}
	model_free(&t->model);
	if (t->opt.json[0] != '\0' && json_try(t->opt.json, &err) != 0) {
		fprintf(stderr, "pbox-testps: %s\n", err.text);
		return EXIT_USAGE;
	}
	return -1;
}

static int
eal(struct testps *t, int argc, char **argv, struct pbox_error *err)
{
	unsigned need;

	if (rte_eal_init(argc, argv) < 0)
		return pbox_fail(err, rte_errno,
			"EAL does not start (%s): its first error above says why; its options come before --%s",
			rte_strerror(rte_errno),
			rte_errno == EACCES || rte_errno == ENOMEM
				? ". Without hugepages: --no-huge -m 1024"
				: "");
	need = 1 + t->opt.nb_cores + t->opt.loopback;
	if (rte_lcore_count() < need)
		return pbox_fail(err, EINVAL,
			"%u lcores are too few: the main one, %u for workers%s: -l 0-%u, or more of them on a CPU: --lcores '0@0,1@0%s'",
			rte_lcore_count(), t->opt.nb_cores,
			t->opt.loopback ? " and one for the box of --loopback" : "", need - 1,
			t->opt.loopback ? ",2@1" : "");
	return 0;
}

static void
to_standard_error(enum pbox_log_level level __rte_unused, const char *line, void *ctx __rte_unused)
{
	fprintf(stderr, "pbox-testps: %s\n", line);
}

static int
testps_start(struct testps *t, int argc, char **argv, struct pbox_error *err)
{
	int ret = eal(t, argc, argv, err);

	if (ret != 0)
		return ret;
	/* what the box of --loopback warns of is its workers' business, which is said here, too */
	pbox_log_to(to_standard_error, NULL,
		t->opt.loopback && t->opt.interactive ? PBOX_LOG_ERROR : PBOX_LOG_WARN);
	if (sodium_init() < 0)
		return pbox_fail(err, EIO, "libsodium does not start: no random numbers");
	t->tsc0 = rte_rdtsc();
	t->us_tick = 1e6 / (double)rte_get_tsc_hz();
	t->lanes = t->opt.nb_cores;
	run_settings(t);
	for (unsigned i = 0; i < TESTPS_BOXES_MAX; i++) {
		uint32_t ip;
		uint16_t port;

		if (testps_box_at(t->opt.box, i, &ip, &port, err) <= 0)
			break;
		t->boxes[t->n_boxes++] = (struct sockaddr_in){
			.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = ip};
	}
	t->box_ip = t->boxes[0].sin_addr.s_addr;
	t->box_port = ntohs(t->boxes[0].sin_port);
	if (ret == 0 && t->opt.loopback)
		ret = loopback_open(t, err);
	if (ret == 0)
		ret = ports_open(t, err);
	if (ret == 0)
		ret = ports_lanes(t, err);
	if (ret == 0 && t->opt.loopback)
		ret = loopback_start(t, err);
	return ret;
}

static void
testps_stop(struct testps *t)
{
	session_leave(t);
	loopback_stop(t);
	ports_close(t);
	rte_eal_cleanup();
}

int
main(int argc, char **argv)
{
	int ours = testps_split(argc, argv), status;
	struct testps *t = &testps;
	struct pbox_error err = {0};
	struct pbox_conf *conf;

	setvbuf(stdout, NULL, _IOLBF, 0);
	pbox_keep_heap();
	status = testps_parse(t, argc - ours, argv + ours, &conf);
	if (status >= 0)
		return status;
	run_stop_signals();
	if (testps_start(t, ours > 0 ? ours : 1, argv, &err) != 0) {
		fprintf(stderr, "pbox-testps: %s\n", err.text);
		status = EXIT_START;
	} else {
		run_ports(t, stdout);
		status = run(t);
	}
	testps_stop(t);
	pbox_conf_free(conf);
	return status;
}
