/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <glob.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_ethdev.h>

#include "box.h"

/* As that user, in a process of its own: the kernel judges, with all that it knows. Exit status: errno. */
static int
try_directory(const char *dir, const struct pbox_guard_user *u)
{
	char pattern[512];
	glob_t found;
	int ret = 0;

	if (u->uid != geteuid() &&
		(initgroups(u->name, u->gid) != 0 || setgid(u->gid) != 0 || setuid(u->uid) != 0))
		return errno;
	if (access(dir, R_OK | W_OK | X_OK) != 0)
		return errno;
	snprintf(pattern, sizeof(pattern), "%s/*.snap", dir);
	if (glob(pattern, 0, NULL, &found) != 0)
		return 0;
	for (size_t i = 0; ret == 0 && i < found.gl_pathc; i++)
		ret = access(found.gl_pathv[i], R_OK) != 0 ? EEXIST : 0;
	globfree(&found);
	return ret;
}

/* Can who the box will be write to snapshot-dir, and read what is there? */
static int
check_snapshot_dir(const struct box *b, struct pbox_error *err)
{
	const char *dir = b->opt.snapshot_dir, *user = b->user.name;
	struct stat st;
	pid_t pid;
	int status = 0;

	if (dir[0] == '\0')
		return 0;
	if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
		return pbox_fail(err, ENOTDIR,
			"snapshot-dir = %s: there is no such directory: install -d -m 750 -o %s %s",
			dir, user, dir);
	pid = fork();
	if (pid == 0)
		_exit(try_directory(dir, &b->user));
	while (pid > 0 && waitpid(pid, &status, 0) != pid)
		;
	if (pid < 0 || !WIFEXITED(status))
		return pbox_fail(err, EAGAIN, "snapshot-dir = %s cannot be examined", dir);
	if (WEXITSTATUS(status) == EEXIST)
		return pbox_fail(err, EACCES,
			"snapshot-dir = %s: user %s cannot read snapshots that are there: chown -R %s %s",
			dir, user, user, dir);
	if (WEXITSTATUS(status) != 0)
		return pbox_fail(err, WEXITSTATUS(status),
			"snapshot-dir = %s (mode %o, of user %u): user %s cannot read and write there: %s: chown %s %s, and mode 750",
			dir, (unsigned)st.st_mode & 07777, (unsigned)st.st_uid, user,
			strerror(WEXITSTATUS(status)), user, dir);
	return 0;
}

/* Before anything is touched: does that user exist, and can the box become it? */
int
guard_prepare(struct box *b, struct pbox_error *err)
{
	const char *name = b->opt.user;
	int ret;

	if (name[0] == '\0')
		return 0;
	ret = pbox_guard_find_user(name, &b->user, err);
	if (ret == 0 && geteuid() != 0 && geteuid() != b->user.uid)
		ret = pbox_fail(err, EPERM,
			"user = %s: only root can become another user: start pbox as root, or as %s",
			name, name);
	return ret != 0 ? ret : check_snapshot_dir(b, err);
}

static void
guard_own(const char *path, mode_t mode, const struct pbox_guard_user *u)
{
	/* what fails here fails where it matters as well, with a message */
	if (chmod(path, mode) != 0)
		pbox_log(PBOX_LOG_WARN, "%s: mode %o cannot be set: %s", path, (unsigned)mode,
			strerror(errno));
	if (u->name[0] != '\0' && lchown(path, u->uid, u->gid) != 0)
		pbox_log(PBOX_LOG_WARN, "%s cannot be given to user %s: %s", path, u->name,
			strerror(errno));
}

/* EAL's run-time directory, with the telemetry socket in it, is the owner's alone; who the box will
 * be can use and remove it. */
void
guard_files(const struct box *b)
{
	const char *dir = rte_eal_get_runtime_dir();
	char pattern[512];
	glob_t found;

	if (dir == NULL || dir[0] == '\0')
		return;
	guard_own(dir, 0700, &b->user);
	snprintf(pattern, sizeof(pattern), "%s/*", dir);
	if (glob(pattern, 0, NULL, &found) != 0)
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		guard_own(found.gl_pathv[i], 0600, &b->user);
	globfree(&found);
}

/* All devices, also those that another one drives. */
static void
needs_of_ports(struct pbox_guard_needs *needs)
{
	struct rte_eth_dev_info info;

	for (uint16_t id = 0; id < RTE_MAX_ETHPORTS; id++)
		if (rte_eth_dev_is_valid_port(id) && rte_eth_dev_info_get(id, &info) == 0)
			pbox_guard_add_driver(needs, info.driver_name);
}

/* When the ports run and before anybody is served; threads that are made later inherit it. */
int
guard_on(struct box *b, struct pbox_error *err)
{
	struct pbox_guard_needs needs = {0};
	struct pbox_error why = {0};
	int ret;

	needs_of_ports(&needs);
	ret = pbox_guard_privileges(b->user.name[0] != '\0' ? &b->user : NULL, needs.caps, err);
	if (ret != 0)
		return ret;
	b->guarded = true;
	if (b->opt.sandbox == PBOX_OPTION_SANDBOX_NO)
		return 0;
	ret = pbox_guard_sandbox(&needs, &why);
	if (ret != 0 && b->opt.sandbox == PBOX_OPTION_SANDBOX_YES)
		return pbox_fail(err, -ret, "sandbox = yes: %s", why.text);
	b->sandboxed = ret == 0;
	snprintf(b->no_sandbox, sizeof(b->no_sandbox), "%s", why.text);
	return 0;
}
