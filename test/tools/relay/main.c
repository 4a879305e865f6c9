/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "relay.h"

#define EVENTS  64
#define WAIT_NS UINT64_C(1000000000) /* at most, whatever happens */

static volatile sig_atomic_t asked_to_end;

static void
ask_to_end(int signal)
{
	(void)signal;
	asked_to_end = 1;
}

uint64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

int
failed(const char *format, ...)
{
	va_list args;

	fputs("pbox-relay: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return EXIT_FAILED;
}

/* All sockets are open, and the namespace of the box entered: nothing more is needed of root. */
static int
drop_capabilities(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_capset, &head, none) != 0)
		return failed("cannot drop capabilities: %s", strerror(errno));
	return 0;
}

/* Until something comes or is due. */
static int
wait_for(struct relay *r, struct epoll_event *events, uint64_t now, uint64_t end)
{
	uint64_t until = now + WAIT_NS, due;
	struct timespec t;

	until = end < until ? end : until;
	for (int d = 0; d < PBOX_FAULT_DIRS; d++) {
		due = pbox_fault_line_due(r->line[d]);
		until = due < until ? due : until;
	}
	until = until > now ? until - now : 0;
	t = (struct timespec){.tv_sec = (time_t)(until / UINT64_C(1000000000)),
		.tv_nsec = (long)(until % UINT64_C(1000000000))};
	return epoll_pwait2(r->poll, events, EVENTS, &t, NULL);
}

static int
serve(struct relay *r)
{
	uint64_t now = now_ns(), end = UINT64_MAX;
	struct epoll_event events[EVENTS];

	if (r->o.seconds > 0)
		end = now + r->o.seconds * UINT64_C(1000000000);
	while (!r->stop && !asked_to_end && now < end) {
		int n = wait_for(r, events, now, end);

		if (n < 0 && errno != EINTR)
			return failed("cannot wait for events: %s", strerror(errno));
		now = now_ns();
		for (int i = 0; i < n; i++) {
			enum source source = (enum source)(events[i].data.u32 >> 16);
			unsigned index = events[i].data.u32 & 0xFFFF;

			if (source == SOURCE_CONTROL)
				console_accept(r);
			else if (source == SOURCE_CONSOLE)
				console_read(r, index);
			else
				sockets_receive(r, source, index, now);
			sockets_send(r, now);
		}
		sockets_send(r, now);
	}
	return EXIT_GOOD;
}

int
main(int argc, char **argv)
{
	static struct relay r = {.control = -1};
	static char text[RELAY_TEXT];
	struct sigaction on_end = {.sa_handler = ask_to_end};
	int status = options_parse(&r.o, argc, argv);

	if (status >= 0)
		return status;
	sigaction(SIGINT, &on_end, NULL);
	sigaction(SIGTERM, &on_end, NULL);
	signal(SIGPIPE, SIG_IGN);
	r.poll = epoll_create1(EPOLL_CLOEXEC);
	if (r.poll < 0)
		return failed("no epoll: %s", strerror(errno));
	status = frames_open(&r);
	if (status == 0)
		status = sockets_open(&r);
	if (status == 0)
		status = console_open(&r);
	if (status == 0)
		status = drop_capabilities();
	if (status == 0) {
		printf("ready: %u ports, %u flows\n", r.n_ears, r.o.flows);
		fflush(stdout);
		status = serve(&r);
		console_counters(&r, text, sizeof(text));
		fputs(text, stdout);
	}
	console_close(&r);
	return status;
}
