/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What a service manager hears, and what it hears no more when a data core does not turn. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../dataplane/rig.h"

const char unit_suite[] = "service";

#define WATCHDOG_US 20000
/* More than the longest time between two looks. */
#define LATER 1100000

static struct rig rig;
static int manager = -1;
static char heard[4096];

/* All that has come; messages are separated by a bar. */
static const char *
hear(void)
{
	size_t at = 0;
	ssize_t n;

	heard[0] = '\0';
	while (at < sizeof(heard) - 2 &&
		(n = recv(manager, heard + at, sizeof(heard) - 2 - at, MSG_DONTWAIT)) > 0) {
		at += (size_t)n;
		memcpy(heard + at++, "|", 2);
	}
	return heard;
}

/* Of this process: the same program may run beside it, with sanitizers. */
static const char *
name_of_manager(void)
{
	static char name[64];

	snprintf(name, sizeof(name), "@pbox-unit-service.%d", (int)getpid());
	return name;
}

static void
listen_at(const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memcpy(a.sun_path, name, strlen(name));
	if (name[0] == '@')
		a.sun_path[0] = '\0';
	unlink(name);
	CU_ASSERT_FATAL(
		bind(manager, (struct sockaddr *)&a,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))) == 0);
	setenv("NOTIFY_SOCKET", name, 1);
}

static void
step(useconds_t later)
{
	usleep(later);
	pbox_control_step(rig.control);
}

static char wrong[sizeof(heard)]; /* what was heard first that was not wanted; "" nothing was */

static void
hears(const char *want)
{
	if (strcmp(hear(), want) != 0 && wrong[0] == '\0')
		snprintf(wrong, sizeof(wrong), "'%.1000s', not '%.1000s'", heard, want);
}

/* Seconds that it took. */
static double
turns_and_signs(void)
{
	struct timespec begin, end;

	wrong[0] = '\0';
	clock_gettime(CLOCK_MONOTONIC, &begin);
	/* not ready while a core has never turned */
	step(WATCHDOG_US);
	pbox_dp_turn(pbox_dp_core(rig.dp, 0));
	step(WATCHDOG_US);
	hears("");
	rig_turn(&rig);
	step(0);
	hears("READY=1|STATUS=serving: 0 jobs, 0 workers; 1 of 1 ports have a link|");
	/* one sign for all turns; none without a turn of all */
	rig_turn(&rig);
	step(WATCHDOG_US);
	hears("WATCHDOG=1|");
	step(WATCHDOG_US);
	pbox_dp_turn(pbox_dp_core(rig.dp, 0));
	step(WATCHDOG_US);
	step(LATER);
	hears("STATUS=data core 1 (lcore 2) does not turn|");
	pbox_dp_turn(pbox_dp_core(rig.dp, 1));
	step(LATER);
	hears("WATCHDOG=1|STATUS=serving: 0 jobs, 0 workers; 1 of 1 ports have a link|");
	clock_gettime(CLOCK_MONOTONIC, &end);
	return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

static void
signs_of_life(void)
{
	struct pbox_error err = {0};
	struct pbox_notify n;
	bool late;

	for (unsigned i = 0; i < 30; i++) {
		listen_at(name_of_manager());
		setenv("WATCHDOG_USEC", "20000", 1);
		unsetenv("WATCHDOG_PID");
		CU_ASSERT_FATAL(pbox_notify_open(&n, &err) == 0);
		UNIT_EQ_U64(n.watchdog_ns, WATCHDOG_US * 1000);
		rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 2, .notify = &n});
		/* a process that got no CPU for so long has looked at other times: that says nothing */
		late = turns_and_signs() > 2 * LATER * 1e-6 + 0.5;
		rig_stop(&rig);
		pbox_notify_close(&n);
		CU_ASSERT_FALSE(pbox_notify_send(&n, "READY=1"));
		close(manager);
		if (wrong[0] == '\0' || !late)
			break;
	}
	CU_ASSERT_STRING_EQUAL(wrong, "");
}

static void
the_stop(void)
{
	struct pbox_error err = {0};
	struct pbox_notify n;

	listen_at(name_of_manager());
	setenv("WATCHDOG_USEC", "20000", 1);
	CU_ASSERT_FATAL(pbox_notify_open(&n, &err) == 0);
	rig_start(
		&rig, &(struct rig_options){.queues = 1, .cores = 2, .lcores = true, .notify = &n});
	UNIT_EQ_U64(pbox_control_start(rig.control, &err), 0);
	for (unsigned i = 0; i < 12000 && strstr(hear(), "WATCHDOG=1|") == NULL; i++)
		usleep(10000);
	CU_ASSERT_PTR_NOT_NULL(strstr(heard, "WATCHDOG=1|"));
	pbox_control_stop(rig.control);
	pbox_control_join(rig.control);
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FALSE(pbox_dp_running(rig.dp, i));
	CU_ASSERT_PTR_NOT_NULL(strstr(hear(), "STOPPING=1|STATUS=stopping: 0 jobs|"));
	CU_ASSERT_PTR_NULL(strstr(strstr(heard, "STOPPING") + 1, "STOPPING"));
	rig_stop(&rig);
	pbox_notify_close(&n);
	close(manager);
}

/* A manager that does not read keeps nobody waiting; what it did not hear is said again. */
static void
a_deaf_manager(void)
{
	struct pbox_error err = {0};
	struct pbox_notify n;
	unsigned sent = 0;

	listen_at(name_of_manager());
	unsetenv("WATCHDOG_USEC");
	CU_ASSERT_FATAL(pbox_notify_open(&n, &err) == 0);
	UNIT_EQ_U64(n.watchdog_ns, 0);
	while (sent < 100000 && pbox_notify_send(&n, "X=%u", sent))
		sent++;
	CU_ASSERT(sent > 0 && sent < 100000);
	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1, .notify = &n});
	rig_turn(&rig);
	step(0);
	while (strstr(hear(), "X=") != NULL)
		CU_ASSERT_PTR_NULL(strstr(heard, "READY"));
	step(LATER);
	CU_ASSERT_PTR_NOT_NULL(strstr(hear(), "READY=1|"));
	rig_turn(&rig);
	step(LATER);
	CU_ASSERT_STRING_EQUAL(hear(), ""); /* it has not asked for signs of life */
	rig_stop(&rig);
	pbox_notify_close(&n);
	close(manager);
}

static void
environment(void)
{
	struct pbox_error err = {0};
	struct pbox_notify n;
	char path[64], pid[16], text[600];

	unsetenv("NOTIFY_SOCKET");
	UNIT_EQ_U64(pbox_notify_open(&n, &err), 0);
	UNIT_EQ_U64(n.fd, -1);
	CU_ASSERT_FALSE(pbox_notify_send(&n, "READY=1"));
	setenv("NOTIFY_SOCKET", "vsock:2:1", 1);
	CU_ASSERT(pbox_notify_open(&n, &err) < 0 && n.fd == -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "vsock:2:1"));
	memset(text, 'a', sizeof(text) - 1);
	text[0] = '/';
	text[sizeof(text) - 1] = '\0';
	setenv("NOTIFY_SOCKET", text, 1);
	CU_ASSERT(pbox_notify_open(&n, &err) < 0);
	snprintf(path, sizeof(path), "/tmp/pbox-unit-service.%d", (int)getpid());
	listen_at(path);
	setenv("WATCHDOG_USEC", "3000000", 1);
	setenv("WATCHDOG_PID", "1", 1);
	UNIT_EQ_U64(pbox_notify_open(&n, &err), 0);
	UNIT_EQ_U64(n.watchdog_ns, 0); /* another one's */
	CU_ASSERT(pbox_notify_send(&n, "STATUS=%s %d", "a path", 1));
	CU_ASSERT_STRING_EQUAL(hear(), "STATUS=a path 1|");
	CU_ASSERT_FALSE(
		pbox_notify_send(&n, "STATUS=%s", text)); /* too long: nothing, not a part */
	CU_ASSERT_STRING_EQUAL(hear(), "");
	pbox_notify_close(&n);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	UNIT_EQ_U64(pbox_notify_open(&n, &err), 0);
	UNIT_EQ_U64(n.watchdog_ns, 3000000000);
	pbox_notify_close(&n);
	setenv("WATCHDOG_USEC", "soon", 1);
	UNIT_EQ_U64(pbox_notify_open(&n, &err), 0);
	UNIT_EQ_U64(n.watchdog_ns, 0);
	pbox_notify_close(&n);
	unsetenv("WATCHDOG_PID");
	close(manager);
	unlink(path);
}

const struct unit_test unit_tests[] = {
	{"signs of life", signs_of_life},
	{"the stop", the_stop},
	{"a deaf manager", a_deaf_manager},
	{"environment", environment},
	{NULL, NULL},
};
