/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_errno.h>

#include "dpdk.h"

/* Start of EAL, once a process, with the arguments before the "--". */

#define MAX_ARGS 62

static pthread_mutex_t eal_lock = PTHREAD_MUTEX_INITIALIZER;
static char *eal_text; /* what it was started with; EAL keeps pointers into eal_words */
static char *eal_words;

static bool
has(char **argv, int argc, const char *const *names)
{
	for (int i = 1; i < argc; i++)
		for (const char *const *n = names; *n != NULL; n++)
			if (strncmp(argv[i], *n, strlen(*n)) == 0)
				return true;
	return false;
}

/** rte_eal_init() pins the calling thread, which is not ours. */
static int
dpdk_eal_init(int argc, char **argv)
{
	cpu_set_t mine;
	bool know = pthread_getaffinity_np(pthread_self(), sizeof(mine), &mine) == 0;
	int rc = rte_eal_init(argc, argv);

	if (know)
		pthread_setaffinity_np(pthread_self(), sizeof(mine), &mine);
	return rc;
}

static int
dpdk_eal_begin(struct pbox_client_error *err)
{
	static const char *const lcores[] = {"-l", "-c", "--lcores", NULL};
	static const char *const logs[] = {"--log-level", NULL};
	static char name[] = "pbox-client", level[] = "--log-level=warning", l[] = "-l";
	static char cpu[16];
	char *argv[MAX_ARGS + 6] = {name}, *save = NULL;
	int argc = 1;

	for (char *w = strtok_r(eal_words, DPDK_BLANKS, &save); w != NULL;
		w = strtok_r(NULL, DPDK_BLANKS, &save)) {
		if (argc > MAX_ARGS)
			return dpdk_fail(err, PBOX_C_INVALID,
				"transport_args: more than %d arguments of EAL", MAX_ARGS);
		argv[argc++] = w;
	}
	if (!has(argv, argc, lcores)) {
		snprintf(cpu, sizeof(cpu), "%d", sched_getcpu() >= 0 ? sched_getcpu() : 0);
		argv[argc++] = l;
		argv[argc++] = cpu;
	}
	if (!has(argv, argc, logs))
		argv[argc++] = level;
	if (dpdk_eal_init(argc, argv) >= 0)
		return 0;
	if (rte_errno == EALREADY)
		return dpdk_fail(err, PBOX_C_INVALID,
			"transport_args: this program has started EAL already: give no arguments before the '--'");
	return dpdk_fail(err, PBOX_C_SYSTEM,
		"EAL does not start with '%.200s': %s; its own lines on standard error say more",
		eal_text, rte_strerror(rte_errno));
}

int
dpdk_eal_start(const char *text, size_t len, struct pbox_client_error *err)
{
	int rc = 0;

	while (len > 0 && strchr(DPDK_BLANKS, text[len - 1]) != NULL)
		len--;
	if (len == 0)
		return 0; /* the application has, or an earlier open */
	pthread_mutex_lock(&eal_lock);
	if (eal_text != NULL) {
		if (strlen(eal_text) != len || memcmp(eal_text, text, len) != 0)
			rc = dpdk_fail(err, PBOX_C_INVALID,
				"transport_args: EAL runs in this process with '%.200s'; give the same, or nothing before the '--'",
				eal_text);
		goto out;
	}
	eal_text = strndup(text, len);
	eal_words = strndup(text, len);
	rc = eal_text != NULL && eal_words != NULL
		     ? dpdk_eal_begin(err)
		     : dpdk_fail(err, PBOX_C_MEMORY, "no memory for arguments");
	if (rc != 0) {
		free(eal_text);
		eal_text = NULL; /* eal_words: EAL may have kept some */
	}
out:
	pthread_mutex_unlock(&eal_lock);
	return rc;
}
