/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Each test gives up what it tests in a process of its own, with threads that were there before. */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <pbox_guard.h>

#include "unit.h"

const char unit_suite[] = "guard";

#define THREADS 3

static _Atomic int go;
static int (*thread_check)(void);
static pthread_t thread[THREADS];
static char logged[4096];

static void
sink(enum pbox_log_level level, const char *line, void *ctx)
{
	(void)level;
	(void)ctx;
	snprintf(logged + strlen(logged), sizeof(logged) - strlen(logged), "%s\n", line);
}

/* Where it fails is its exit status: the line. */
#define NEED(cond)                                 \
	do {                                       \
		if (!(cond))                       \
			_exit(__LINE__ % 250 + 1); \
	} while (0)

/* Not on the stack: a cancelled thread never leaves this function, and the address sanitizer would
 * find the borders of its variables in the way of the thread's end. */
static const struct timespec nap_1ms = {.tv_nsec = 1000000};

static void *
thread_main(void *arg)
{
	(void)arg;
	while (atomic_load(&go) == 0)
		nanosleep(&nap_1ms, NULL);
	return (void *)(intptr_t)thread_check();
}

static void
threads_begin(int (*check)(void))
{
	thread_check = check;
	for (unsigned i = 0; i < THREADS; i++)
		NEED(pthread_create(&thread[i], NULL, thread_main, NULL) == 0);
}

static void
threads_end(void)
{
	void *ret;

	atomic_store(&go, 1);
	for (unsigned i = 0; i < THREADS; i++) {
		NEED(pthread_join(thread[i], &ret) == 0);
		NEED(ret == NULL);
	}
}

static void
in_child(void (*body)(void))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CU_ASSERT_FATAL(pid >= 0);
	if (pid == 0) {
		body();
		_exit(0);
	}
	CU_ASSERT_EQUAL_FATAL(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		printf("the child says 0x%x (line %% 250 + 1 = %d)\n", (unsigned)status,
			WEXITSTATUS(status));
	CU_ASSERT_EQUAL(status, 0);
}

static uint64_t
caps(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2];

	NEED(syscall(SYS_capget, &h, d) == 0);
	return (d[0].permitted | d[0].effective) | (uint64_t)(d[1].permitted | d[1].effective)
							   << 32;
}

static int
thread_has_none(void)
{
	if (geteuid() == 0 &&
		prctl(PR_CAPBSET_READ, (unsigned long)CAP_SYS_ADMIN, 0UL, 0UL, 0UL) != 0)
		return 2;
	return caps() == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0UL, 0UL, 0UL, 0UL) == 1 ? 0 : 1;
}

static void
all_dropped(void)
{
	struct pbox_error err = {0};
	char text[256];

	threads_begin(thread_has_none);
	NEED(pbox_guard_privileges(NULL, 0, &err) == 0);
	NEED(thread_has_none() == 0);
	threads_end();
	pbox_guard_report(text, sizeof(text));
	NEED(strstr(text, "capabilities none") != NULL);
}

static void *
late_main(void *arg)
{
	sigset_t set;

	(void)arg;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	NEED(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	atomic_store(&go, 1);
	for (unsigned i = 0; i < 2500; i++)
		nanosleep(&nap_1ms, NULL);
	NEED(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
	while (atomic_load(&go) == 1)
		nanosleep(&nap_1ms, NULL);
	return (void *)(intptr_t)thread_has_none();
}

/* On a busy host a thread may not run for seconds. */
static void
late_dropped(void)
{
	struct pbox_error err = {0};
	void *ret;

	NEED(pthread_create(&thread[0], NULL, late_main, NULL) == 0);
	while (atomic_load(&go) == 0)
		nanosleep(&nap_1ms, NULL);
	NEED(pbox_guard_privileges(NULL, 0, &err) == 0);
	atomic_store(&go, 2);
	NEED(pthread_join(thread[0], &ret) == 0);
	NEED(ret == NULL);
}

static void
test_late(void)
{
	in_child(late_dropped);
}

static void
test_drop(void)
{
	in_child(all_dropped);
}

static int
thread_is_user(void)
{
	uid_t r, e, s;

	NEED(getresuid(&r, &e, &s) == 0);
	return r == 65534 && e == 65534 && s == 65534 && caps() == PBOX_GUARD_CAP(CAP_NET_ADMIN)
		       ? 0
		       : 1;
}

static void
becomes_user(void)
{
	struct pbox_guard_user u;
	struct pbox_error err = {0};
	char text[256];

	threads_begin(thread_is_user);
	NEED(pbox_guard_find_user("65534", &u, &err) == 0 && u.uid == 65534);
	NEED(pbox_guard_privileges(&u, PBOX_GUARD_CAP(CAP_NET_ADMIN), &err) == 0);
	NEED(thread_is_user() == 0);
	threads_end();
	/* no way back */
	NEED(setuid(0) != 0 && getgroups(0, NULL) <= 1);
	pbox_guard_report(text, sizeof(text));
	NEED(strstr(text, "capabilities NET_ADMIN") != NULL);
}

static void
test_user(void)
{
	struct pbox_guard_user u;
	struct pbox_error err = {0};

	CU_ASSERT_EQUAL(pbox_guard_find_user("no-such-user-here", &u, &err), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "no-such-user-here"));
	CU_ASSERT_EQUAL(pbox_guard_find_user("root", &u, &err), 0);
	CU_ASSERT_EQUAL(u.uid, 0);
	CU_ASSERT_STRING_EQUAL(u.name, "root");
	CU_ASSERT_EQUAL(pbox_guard_find_user("4123456789", &u, &err), 0);
	CU_ASSERT_EQUAL(u.uid, 4123456789u);
	if (geteuid() == 0)
		in_child(becomes_user);
}

static void
cannot_become(void)
{
	struct pbox_guard_user root = {"root", 0, 0};
	struct pbox_error err = {0};

	if (geteuid() == 0)
		NEED(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
	NEED(pbox_guard_privileges(&root, 0, &err) == -EPERM);
	NEED(strstr(err.text, "only root") != NULL);
}

static void
test_not_root(void)
{
	in_child(cannot_become);
}

static int
thread_is_filtered(void)
{
	char *const argv[] = {(char *)"true", NULL};
	void *p;

	if (syscall(SYS_mount, "none", "/", "tmpfs", 0UL, NULL) != -1 || errno != EPERM)
		return 1;
	if (execv("/bin/true", argv) != -1 || errno != EPERM)
		return 2;
	if (socket(AF_PACKET, SOCK_RAW, 0) != -1 || errno != EPERM)
		return 3;
	if (socket(AF_INET, SOCK_STREAM, 0) != -1 || errno != EPERM)
		return 4;
	p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p != MAP_FAILED || errno != EPERM)
		return 5;
	return syscall(SYS_kill, getppid(), 0) == -1 && errno == EPERM ? 0 : 6;
}

static void *
nothing(void *arg)
{
	return arg;
}

static void
filtered(void)
{
	struct pbox_guard_needs none = {0};
	struct pbox_error err = {0};
	struct timespec nap = {.tv_nsec = 1000};
	pthread_t t;
	void *p;
	int fd;

	pbox_log_to(sink, NULL, PBOX_LOG_DEBUG);
	threads_begin(thread_is_filtered);
	NEED(pbox_guard_privileges(NULL, 0, &err) == 0);
	NEED(pbox_guard_sandbox(&none, &err) == 0);
	NEED(thread_is_filtered() == 0);
	threads_end();
	NEED(pbox_guard_refused() == 6 * (1 + THREADS));
	/* named, and each once */
	NEED(strstr(logged, "system call mount (") != NULL && strstr(logged, "execve") != NULL);
	NEED(strstr(strstr(logged, "system call mount (") + 1, "system call mount (") == NULL);
	/* what a box does goes on: threads, memory, files, sockets of shared-memory ports */
	NEED(pthread_create(&t, NULL, nothing, NULL) == 0 && pthread_join(t, &p) == 0);
	p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(p != MAP_FAILED && munmap(p, 1 << 20) == 0);
	fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	NEED(fd >= 0 && close(fd) == 0);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	NEED(fd >= 0 && close(fd) == 0);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	NEED(fd >= 0 && close(fd) == 0);
	NEED(nanosleep(&nap, NULL) == 0);
	NEED(pbox_guard_refused() == 6 * (1 + THREADS));
}

static void
ends_threads(void)
{
	struct pbox_guard_needs none = {0};
	struct pbox_error err = {0};

	atomic_store(&go, 0);
	threads_begin(thread_is_filtered);
	NEED(pbox_guard_sandbox(&none, &err) == 0);
	/* EAL ends its threads so */
	for (unsigned i = 0; i < THREADS; i++)
		NEED(pthread_cancel(thread[i]) == 0 && pthread_join(thread[i], NULL) == 0);
	NEED(pbox_guard_refused() == 0);
}

static void
test_sandbox(void)
{
	in_child(filtered);
	in_child(ends_threads);
}

static void
test_needs(void)
{
	struct pbox_guard_needs n = {0};

	pbox_guard_add_driver(&n, "net_af_packet");
	pbox_guard_add_driver(&n, "net_packet");
	pbox_guard_add_driver(&n, "net_e1000_igb");
	UNIT_EQ_U64(n.caps, 0);
	CU_ASSERT_FALSE(n.bpf);
	pbox_guard_add_driver(&n, "net_tap");
	UNIT_EQ_U64(n.caps, PBOX_GUARD_CAP(CAP_NET_ADMIN));
	pbox_guard_add_driver(&n, "net_af_xdp");
	CU_ASSERT_TRUE(n.bpf);
	CU_ASSERT_TRUE((n.caps & PBOX_GUARD_CAP(CAP_NET_ADMIN)) != 0);
}

const struct unit_test unit_tests[] = {
	{"all threads drop their capabilities", test_drop},
	{"a thread that runs late", test_late},
	{"all threads become a user", test_user},
	{"others cannot", test_not_root},
	{"system calls are refused and named", test_sandbox},
	{"drivers' needs", test_needs},
	{NULL, NULL},
};
