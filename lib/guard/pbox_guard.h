/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_GUARD_H
#define PBOX_GUARD_H

/**
 * @file
 * Least privilege: what a process gives up when it has all that it needed privileges for.
 *
 * Privileges are those of threads, not of processes, and EAL's threads exist before anything can be
 * given up: everything here is done to all threads of the process, or fails. Threads that are made
 * later inherit it. Nothing can be taken back.
 *
 * All functions: one thread, before the process serves. Not to be called again after success.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <pbox_base.h>

/** A capability (capabilities(7), <linux/capability.h>) as a bit of a set. */
#define PBOX_GUARD_CAP(cap) (UINT64_C(1) << (cap))

struct pbox_guard_user {
	char name[64];
	uid_t uid;
	gid_t gid;
};

/** What a port's driver still needs when it runs. */
struct pbox_guard_needs {
	uint64_t caps; /**< of PBOX_GUARD_CAP() */
	bool bpf;      /**< the system call */
};

/** Look a user up by name or number. -ENOENT: there is none. */
int pbox_guard_find_user(const char *name, struct pbox_guard_user *u, struct pbox_error *err);

/** Add what driver @p name (as ethdev names it) needs after its start to @p needs. */
void pbox_guard_add_driver(struct pbox_guard_needs *needs, const char *name);

/**
 * Become @p user (NULL: stay who one is), keep the capabilities of @p keep at most, in all threads,
 * and let no program that is executed gain any (no_new_privs).
 *
 * @return 0, or a negative errno: the process may be half stripped then, and should end.
 */
int pbox_guard_privileges(
	const struct pbox_guard_user *user, uint64_t keep, struct pbox_error *err);

/**
 * From now on the kernel refuses all system calls of all threads but those that a running box makes
 * (seccomp). A refused call fails with EPERM and is logged with its name, each once.
 *
 * @return 0; -ENOTSUP: this kernel, or what the process runs in, has no filters; nothing is changed.
 */
int pbox_guard_sandbox(const struct pbox_guard_needs *needs, struct pbox_error *err);

/** Calls that were refused since. Any thread. */
unsigned pbox_guard_refused(void);

/** What it has now, as text for the report: "user pbox, capabilities none, system calls filtered". */
void pbox_guard_report(char *buf, size_t size);

#endif /* PBOX_GUARD_H */
