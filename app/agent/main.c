/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* pbox-agent: command line, configuration, log. */

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

#define WORKER_TIMEOUT 60 /* s, where a program says no other */

#define EXIT_USAGE 2

static const char help[] =
	"Usage: pbox-agent [options] [COMMAND]\n"
	"Registers the box beside it at etcd, and makes it do what the fleet's map says.\n"
	"\n"
	"Commands:\n"
	"  drain BOX                 take a box out of the map: its chunks move to others\n"
	"  serve BOX                 take it in again\n"
	"  weigh JOB W,W,...         the share of a job's bytes of each box, 0 to 1000000: it stays\n"
	"  balance JOB [W,W,...]     leave these shares to pbox-agent, as they are or beginning with these\n"
	"  snapshot JOB              a snapshot of one round at each box, and wait for it\n"
	"  restore JOB [ROUND]       let the next run of a job begin with that set, or the last whole one\n"
	"  withdraw JOB              end a snapshot or restore that is under way\n"
	"  sets                      what became of these, and the rounds of which a set is whole\n"
	"\n"
	"Options:\n"
	"  -c, --config FILE         the box's configuration, with a section [cluster NAME]\n"
	"                            (default /etc/pbox/pbox.conf)\n"
	"  -f, --file-prefix PREFIX  EAL's --file-prefix of the box (default rte)\n"
	"      --check               ask all endpoints of etcd, print what they say, and exit\n"
	"  -h, --help                print this page\n"
	"  -V, --version             print the version\n"
	"\n"
	"Exit status: 0 stopped, or done, 1 refused, or etcd does not answer, 2 wrong options or configuration.\n";

static struct pbox_options opt;
static struct agent agent;
static volatile int quit;

static void
on_signal(int signal)
{
	(void)signal;
	quit = 1;
}

static void
main_log(enum pbox_log_level level, const char *line, void *ctx)
{
	struct timespec now;
	struct tm tm;
	char when[32], text[1200];

	(void)ctx;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, sizeof(text), "%s", line);
	pbox_mask(text);
	fprintf(stderr, "%s.%03ldZ pbox-agent %s: %s\n", when, now.tv_nsec / 1000000,
		pbox_log_level_name(level), text);
}

static int
main_usage(const char *wrong)
{
	fprintf(stderr, "pbox-agent: %s: see pbox-agent --help\n", wrong);
	return EXIT_USAGE;
}

/* -1: go on */
static int
main_options(int argc, char **argv, const char **file, bool *check)
{
	static const struct option known[] = {{"config", required_argument, NULL, 'c'},
		{"file-prefix", required_argument, NULL, 'f'}, {"check", no_argument, NULL, 'k'},
		{"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {0}};
	int c;

	while ((c = getopt_long(argc, argv, "c:f:hV", known, NULL)) != -1) {
		switch (c) {
		case 'c':
			*file = optarg;
			break;
		case 'f':
			agent.box.prefix = optarg;
			break;
		case 'k':
			*check = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'V':
			puts("pbox-agent " PBOX_VERSION);
			return 0;
		default:
			return main_usage(
				"the options are -c, --config FILE, -f, --file-prefix PREFIX, --check, -h, --help and -V, --version; 'etcd' of [cluster NAME] in the configuration says where etcd is");
		}
	}
	if (agent.box.prefix[0] == '\0' || strchr(agent.box.prefix, '/') != NULL)
		return main_usage("-f is a name, as EAL's --file-prefix");
	if (*check && optind < argc)
		return main_usage("--check has no command");
	return -1;
}

static int
main_file(const char *path, const char *what)
{
	if (path[0] == '\0' || access(path, R_OK) == 0)
		return 0;
	fprintf(stderr, "pbox-agent: %s of [cluster]: %s cannot be read: %s\n", what, path,
		strerror(errno));
	return EXIT_USAGE;
}

/* 0, or the exit status */
static int
main_configuration(const char *file)
{
	char *argv[] = {(char *)"pbox-agent", (char *)"--config", (char *)file};
	const struct pbox_cluster_options *c = &opt.clusters[0];
	struct pbox_error err;
	struct pbox_conf *conf = pbox_options_load(&opt, 3, argv, &err);
	int status;

	if (conf == NULL) {
		fprintf(stderr, "pbox-agent: %s%s\n", err.text,
			access(file, R_OK) == 0 ? "" : ": -c names the configuration of the box");
		return EXIT_USAGE;
	}
	pbox_conf_free(conf);
	if (opt.n_clusters == 0) {
		fprintf(stderr,
			"pbox-agent: %s has no section [cluster NAME]: a box without one needs no agent\n",
			file);
		return EXIT_USAGE;
	}
	status = main_file(c->ca, "ca");
	if (status == 0)
		status = main_file(c->cert, "cert");
	return status == 0 ? main_file(c->key, "key") : status;
}

/* Nobody else sees both: a worker's time limit is its program's, the other two are of this file. */
static void
main_say_timeout(const struct pbox_cluster_options *c)
{
	unsigned least = (unsigned)(pbox_options_timeout(c) / AGENT_S);

	if (least == 0)
		printf("WARN failover = none: operations that wait for a dead box end at their timeout (60 s unless a program says another)\n");
	else if (least >= WORKER_TIMEOUT)
		printf("WARN a job goes on without a dead box after %u s (lease, failover and 10 s), and operations end after 60 s unless a program says another timeout: give workers a timeout of more than %u s, or a shorter failover\n",
			least, least);
	else
		printf("OK   a job goes on without a dead box after %u s: workers need a timeout of more than that (60 s unless a program says another)\n",
			least);
}

/* Of a signal's handler: it may write, and nothing else. */
static void
says_restart(int number)
{
	static const char text[] =
		"pbox-agent: SIGHUP changes nothing: the agent reads its configuration when it starts (systemctl restart pbox-agent; no job stops)\n";
	int kept = errno;
	ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)number;
	(void)n;
	errno = kept;
}

int
main(int argc, char **argv)
{
	struct sigaction end = {.sa_handler = on_signal},
			 hangup = {.sa_handler = says_restart, .sa_flags = SA_RESTART};
	const char *file = PBOX_OPTIONS_FILE;
	struct pbox_error err = {0};
	bool check = false;
	int status;

	agent.box = (struct box){.prefix = "rte", .fd = -1};
	status = main_options(argc, argv, &file, &check);
	if (status >= 0)
		return status;
	status = main_configuration(file);
	if (status != 0)
		return status;
	agent.opt = &opt;
	agent.conf = &opt.clusters[0];
	agent.fleet = agent.conf->name;
	pbox_log_to(main_log, NULL, opt.log_level);
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
		etcd_open(&agent.etcd, agent.conf, &err) != 0) {
		fprintf(stderr, "pbox-agent: %s\n",
			err.code != 0 ? err.text : "curl does not start");
		return 1;
	}
	if (check) {
		status = ask_check(&agent.etcd, &opt);
		main_say_timeout(agent.conf);
	} else if (optind < argc) {
		status = command_run(&agent.etcd, &opt, argc - optind, argv + optind);
	} else {
		sigaction(SIGTERM, &end, NULL);
		sigaction(SIGINT, &end, NULL);
		sigaction(SIGHUP, &hangup, NULL);
		status = agent_run(&agent, &quit);
	}
	etcd_close(&agent.etcd);
	box_close(&agent.box);
	curl_global_cleanup();
	pbox_options_wipe(&opt);
	return status;
}
