/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <ucontext.h>
#include <unistd.h>

#include "guard_impl.h"

#define CALLS_MAX 512

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

static struct {
	char *name[CALLS_MAX]; /* by number: a signal handler cannot look them up */
	atomic_bool reported[CALLS_MAX];
	_Atomic unsigned refused;
} filter;

/* The kernel has not made the call: it fails. Synchronous, so the thread was in no other function
 * than the one that calls. */
static void
on_refused(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	int nr = info->si_syscall, error = errno;
	bool known = nr >= 0 && nr < CALLS_MAX;

	(void)sig;
	uc->uc_mcontext.gregs[REG_RAX] = -EPERM;
	atomic_fetch_add(&filter.refused, 1);
	if (!known || !atomic_exchange(&filter.reported[nr], true))
		pbox_log(PBOX_LOG_ERROR,
			"the sandbox refused system call %s (%d): if pbox or a driver needs it, report that, and start with sandbox = no meanwhile",
			known && filter.name[nr] != NULL ? filter.name[nr] : "?", nr);
	errno = error;
}

unsigned
pbox_guard_refused(void)
{
	return atomic_load(&filter.refused);
}

/* Those that depend on an argument. */
static int
add_conditional(scmp_filter_ctx ctx)
{
	static const int options[] = {PR_SET_NAME, PR_GET_NAME, PR_SET_TIMERSLACK, PR_GET_DUMPABLE,
		PR_SET_VMA, PR_GET_NO_NEW_PRIVS};
	int ret;

	/* the kinds of sockets: telemetry and shared-memory ports; asking for an interface's state */
	ret = seccomp_rule_add(
		ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
	ret |= seccomp_rule_add(
		ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, AF_NETLINK));
	ret |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
		SCMP_A0(SCMP_CMP_EQ, AF_INET), SCMP_A1(SCMP_CMP_MASKED_EQ, 0xF, SOCK_DGRAM));
	ret |= seccomp_rule_add(
		ctx, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1, SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
	/* memory, but none to be run */
	ret |= seccomp_rule_add(
		ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	ret |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
		SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	/* threads, but no processes. clone3 has its flags in memory: libc takes clone instead */
	ret |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
		SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
	ret |= seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	/* signals to oneself: abort() */
	ret |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
		SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
	/* own limits, to be read */
	ret |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2,
		SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A2(SCMP_CMP_EQ, 0));
	for (unsigned i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		ret |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1,
			SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)options[i]));
	return ret;
}

static int
add_rules(scmp_filter_ctx ctx, const struct pbox_guard_needs *needs)
{
	int ret = add_conditional(ctx);

	for (unsigned i = 0; i < guard_allowed_count; i++)
		if (guard_allowed[i] >= 0)
			ret |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, guard_allowed[i], 0);
	if (needs->bpf)
		ret |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(bpf), 0);
	/* all threads at once, and 32-bit calls not at all */
	ret |= seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	ret |= seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	/* a search by halves: data cores that sleep make calls often */
	ret |= seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	return ret;
}

static void *
wait_for_cancel(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* Ending a thread makes libc load code, the first time: now, while it may. EAL's end does it. */
static void
load_unwinder(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, wait_for_cancel, NULL) != 0)
		return;
	pthread_cancel(t);
	pthread_join(t, NULL);
}

int
pbox_guard_sandbox(const struct pbox_guard_needs *needs, struct pbox_error *err)
{
	struct sigaction sa = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_NODEFER};
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_TRAP);
	int ret;

	if (ctx == NULL)
		return pbox_fail(err, ENOMEM, "out of memory for the filter of system calls");
	for (int i = 0; i < CALLS_MAX && filter.name[i] == NULL; i++)
		filter.name[i] = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, i);
	load_unwinder();
	if (add_rules(ctx, needs) != 0) {
		seccomp_release(ctx);
		return pbox_fail(
			err, ENOTSUP, "libseccomp does not take the filter of system calls");
	}
	if (sigaction(SIGSYS, &sa, NULL) != 0) {
		seccomp_release(ctx);
		return pbox_fail(
			err, errno, "no signal for refused system calls: %s", strerror(errno));
	}
	ret = seccomp_load(ctx);
	seccomp_release(ctx);
	if (ret != 0)
		return pbox_fail(err, ENOTSUP, "this kernel takes no filter of system calls: %s",
			strerror(-ret));
	return 0;
}
