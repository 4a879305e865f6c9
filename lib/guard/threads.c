/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "guard_impl.h"

/* glibc does this for setuid() and its like, and for nothing else. */

#define THREADS_MAX 1024
#define ANSWER_MS   30000 /* on a host with other work a thread may not run for seconds */
#define PASSES      16

static struct {
	int (*_Atomic fn)(const void *arg); /* NULL: nobody waits for it any more */
	const void *arg;
	_Atomic int result; /* 1: not yet */
} call;

static void
guard_on_signal(int sig)
{
	int error = errno;
	int (*fn)(const void *arg) = atomic_load(&call.fn);

	(void)sig;
	if (fn != NULL)
		atomic_store(&call.result, fn(call.arg));
	errno = error;
}

/* -ESRCH: the thread has ended meanwhile. */
static int
call_in(pid_t tid)
{
	struct timespec nap = {.tv_nsec = 100000};
	int result = 1;

	atomic_store(&call.result, 1);
	if (syscall(SYS_tgkill, getpid(), tid, SIGRTMIN) != 0)
		return -errno;
	for (unsigned i = 0; i < ANSWER_MS * 10 && result == 1; i++) {
		result = atomic_load(&call.result);
		if (result == 1)
			nanosleep(&nap, NULL);
	}
	return result == 1 ? -ETIMEDOUT : result;
}

static bool
is_done(const pid_t *done, unsigned n, pid_t tid)
{
	while (n-- > 0)
		if (done[n] == tid)
			return true;
	return false;
}

/* One pass over the threads. @return how many were new, or a negative errno. */
static int
pass(pid_t *done, unsigned *n)
{
	DIR *d = opendir("/proc/self/task");
	const struct dirent *e;
	int fresh = 0, ret = 0;

	if (d == NULL)
		return -errno;
	while (ret == 0 && (e = readdir(d)) != NULL) {
		pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);

		if (tid <= 0 || is_done(done, *n, tid))
			continue;
		if (*n == THREADS_MAX) {
			ret = -E2BIG;
			break;
		}
		ret = call_in(tid);
		if (ret == -ESRCH)
			ret = 0;
		done[(*n)++] = tid;
		fresh++;
	}
	closedir(d);
	return ret != 0 ? ret : fresh;
}

int
guard_all_threads(int (*fn)(const void *arg), const void *arg, struct pbox_error *err)
{
	struct sigaction sa = {.sa_handler = guard_on_signal, .sa_flags = SA_RESTART}, old;
	pid_t done[THREADS_MAX] = {(pid_t)syscall(SYS_gettid)};
	unsigned n = 1, passes = 0;
	int ret;

	call.arg = arg;
	atomic_store(&call.fn, fn);
	if (sigaction(SIGRTMIN, &sa, &old) != 0)
		return pbox_fail(err, errno, "no signal for other threads: %s", strerror(errno));
	/* a thread that was not asked yet may have made others */
	do
		ret = pass(done, &n);
	while (ret > 0 && ++passes < PASSES);
	atomic_store(&call.fn, NULL);
	/* the signal of a thread that has not answered may come yet: without a handler it would end the process */
	if (ret != -ETIMEDOUT)
		sigaction(SIGRTMIN, &old, NULL);
	if (ret > 0)
		ret = -EAGAIN;
	if (ret == 0)
		ret = fn(arg);
	if (ret < 0)
		return pbox_fail(err, -ret, "privileges of thread %d cannot be given up: %s",
			(int)done[n - 1], strerror(-ret));
	return 0;
}
