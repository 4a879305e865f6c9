/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* An agent asks its box for all jobs that there are, page by page. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"

#include "../unit.h"

const char unit_suite[] = "agent: its box";

#define PAGE 30

static unsigned jobs; /* that the box has */
static int listener;

uint64_t
agent_now(void)
{
	return 100 * AGENT_S;
}

static void
answer(const char *command, char *out, size_t cap)
{
	unsigned first = 0, i;
	size_t n;

	if (strcmp(command, "/pbox/boxes") == 0) {
		snprintf(out, cap,
			"{\"/pbox/boxes\":{\"boxes\":2,\"box\":0,\"release\":\"1\",\"box_0\":\"10.0.0.1:1\",\"box_1\":\"10.0.0.2:1\"}}");
		return;
	}
	CU_ASSERT_EQUAL(sscanf(command, "/pbox/jobs,%u", &first), 1);
	n = (size_t)snprintf(out, cap, "{\"/pbox/jobs\":{\"jobs\":%u", jobs);
	for (i = first; i < jobs && i < first + PAGE; i++)
		n += (size_t)snprintf(out + n, cap - n,
			",\"job_%u\":{\"name\":\"j%u\",\"tables\":1,\"age_ms\":1000,\"out\":\"%s\"}",
			i, i, i % 2 != 0 ? "1" : "");
	if (i < jobs)
		n += (size_t)snprintf(out + n, cap - n, ",\"next\":%u", i);
	snprintf(out + n, cap - n, "}}");
}

/* One agent after the other. */
static void *
box(void *arg)
{
	static char text[16384];
	char command[128];
	ssize_t n;
	int fd;

	(void)arg;
	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		send(fd, "{}", 2, MSG_NOSIGNAL);
		while ((n = recv(fd, command, sizeof(command) - 1, 0)) > 0) {
			command[n] = '\0';
			answer(command, text, sizeof(text));
			send(fd, text, strlen(text), MSG_NOSIGNAL);
		}
		close(fd);
	}
	return NULL;
}

static void
test_all_jobs(void)
{
	static const unsigned counts[] = {0, 1, 64, 65, 80, 120, AGENT_JOBS};
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	char dir[] = "/tmp/unit_agent_box.XXXXXX", path[64];
	static struct box b = {.prefix = "p", .fd = -1};
	struct pbox_error err = {0};
	pthread_t thread;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/dpdk%s", dir, i > 0 ? "/p" : "");
		CU_ASSERT_EQUAL_FATAL(mkdir(path, 0700), 0);
	}
	snprintf(at.sun_path, sizeof(at.sun_path), "%s/dpdk_telemetry.v2", path);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CU_ASSERT_EQUAL_FATAL(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	CU_ASSERT_EQUAL_FATAL(listen(listener, 1), 0);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, box, NULL), 0);
	setenv("RUNTIME_DIRECTORY", dir, 1);
	for (unsigned k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
		jobs = counts[k];
		CU_ASSERT_EQUAL_FATAL(box_look(&b, &err), 0);
		UNIT_EQ_U64(b.n_jobs, jobs);
		for (unsigned i = 0; i < b.n_jobs; i++) {
			UNIT_EQ_U64(b.job[i].number, i);
			UNIT_EQ_U64(b.job[i].out, i % 2 != 0 ? 2 : 0);
		}
	}
	/* more than a box can have */
	jobs = AGENT_JOBS + 9;
	UNIT_EQ_U64(box_look(&b, &err), 0);
	UNIT_EQ_U64(b.n_jobs, AGENT_JOBS);
	box_close(&b);
	shutdown(listener, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(listener);
	unlink(at.sun_path);
	rmdir(path);
	path[strlen(path) - 2] = '\0';
	rmdir(path);
	rmdir(dir);
}

const struct unit_test unit_tests[] = {
	{"all jobs of a box", test_all_jobs},
	{NULL, NULL},
};
