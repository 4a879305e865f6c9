/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guard_impl.h"

#ifndef CAP_BPF
#define CAP_BPF 39
#endif

/* Names as capabilities(7) has them, for the report. */
static const char *const cap_name[] = {"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER",
	"FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE",
	"NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO",
	"SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE",
	"AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM",
	"BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE"};

/*
 * What a driver needs after its start. Sockets, rings and mapped devices that are open stay usable
 * without: that is most of them.
 */
static const struct {
	const char *driver;
	struct pbox_guard_needs needs;
} drivers[] = {
	/* takes its interface down at the stop */
	{"net_tap", {.caps = PBOX_GUARD_CAP(CAP_NET_ADMIN)}},
	{"net_tun", {.caps = PBOX_GUARD_CAP(CAP_NET_ADMIN)}},
	/* takes its program off the interface at the stop: finding it is privileged of its own */
	{"net_af_xdp", {.caps = PBOX_GUARD_CAP(CAP_NET_ADMIN) | PBOX_GUARD_CAP(CAP_BPF) |
				PBOX_GUARD_CAP(CAP_SYS_ADMIN),
			       .bpf = true}},
	/* flow rules and counters through the kernel's driver */
	{"mlx5_pci", {.caps = PBOX_GUARD_CAP(CAP_NET_ADMIN) | PBOX_GUARD_CAP(CAP_NET_RAW)}},
	{"net_mlx4", {.caps = PBOX_GUARD_CAP(CAP_NET_ADMIN) | PBOX_GUARD_CAP(CAP_NET_RAW)}},
};

void
pbox_guard_add_driver(struct pbox_guard_needs *needs, const char *name)
{
	for (unsigned i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
		if (strcmp(drivers[i].driver, name) == 0) {
			needs->caps |= drivers[i].needs.caps;
			needs->bpf |= drivers[i].needs.bpf;
		}
}

int
pbox_guard_find_user(const char *name, struct pbox_guard_user *u, struct pbox_error *err)
{
	const struct passwd *pw = getpwnam(name);
	char *end;
	unsigned long id = strtoul(name, &end, 10);

	if (pw == NULL && name[0] >= '0' && name[0] <= '9' && *end == '\0' && id < UINT32_MAX) {
		pw = getpwuid((uid_t)id);
		if (pw == NULL) { /* a number that nobody has a name for is good as well */
			*u = (struct pbox_guard_user){.uid = (uid_t)id, .gid = (gid_t)id};
			snprintf(u->name, sizeof(u->name), "%lu", id);
			return 0;
		}
	}
	if (pw == NULL)
		return pbox_fail(err, ENOENT,
			"there is no user '%s': make it with 'useradd --system %s', or take another for user",
			name, name);
	*u = (struct pbox_guard_user){.uid = pw->pw_uid, .gid = pw->pw_gid};
	snprintf(u->name, sizeof(u->name), "%s", pw->pw_name);
	return 0;
}

static int
cap_get(uint64_t *effective, uint64_t *permitted)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2] = {{0}};

	if (syscall(SYS_capget, &h, d) != 0)
		return -errno;
	*effective = d[0].effective | (uint64_t)d[1].effective << 32;
	*permitted = d[0].permitted | (uint64_t)d[1].permitted << 32;
	return 0;
}

/* Of the calling thread, both; async-signal-safe. First, while it may. */
static int
privileges_bound(const void *arg)
{
	uint64_t keep = *(const uint64_t *)arg;

	/* for programs that it would execute; without CAP_SETPCAP no_new_privs has to do */
	for (unsigned long cap = 0; cap < 64; cap++)
		if ((keep >> cap & 1) == 0 && prctl(PR_CAPBSET_DROP, cap, 0UL, 0UL, 0UL) != 0)
			break;
	if (keep != 0 && prctl(PR_SET_KEEPCAPS, 1UL, 0UL, 0UL, 0UL) != 0)
		return -errno;
	return 0;
}

static int
strip(const void *arg)
{
	uint64_t keep = *(const uint64_t *)arg, effective = 0, permitted = 0;
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2] = {{0}};
	int ret = cap_get(&effective, &permitted);

	if (ret != 0)
		return ret;
	prctl(PR_CAP_AMBIENT, (unsigned long)PR_CAP_AMBIENT_CLEAR_ALL, 0UL, 0UL, 0UL);
	keep &= permitted;
	d[0].effective = d[0].permitted = (uint32_t)keep;
	d[1].effective = d[1].permitted = (uint32_t)(keep >> 32);
	if (syscall(SYS_capset, &h, d) != 0)
		return -errno;
	return prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL) == 0 ? 0 : -errno;
}

/* glibc takes care of the other threads. */
static int
become(const struct pbox_guard_user *u, struct pbox_error *err)
{
	int ret = 0;

	if (geteuid() == u->uid && getuid() == u->uid)
		return 0;
	if (geteuid() != 0)
		return pbox_fail(err, EPERM,
			"user = %s: only root can become another user: start pbox as root, or as %s without this option",
			u->name, u->name);
	if (getpwuid(u->uid) != NULL ? initgroups(u->name, u->gid) != 0 : setgroups(0, NULL) != 0)
		ret = errno;
	if (ret == 0 && setresgid(u->gid, u->gid, u->gid) != 0)
		ret = errno;
	if (ret == 0 && setresuid(u->uid, u->uid, u->uid) != 0)
		ret = errno;
	return ret == 0 ? 0
			: pbox_fail(err, ret, "cannot become user %s: %s", u->name, strerror(ret));
}

int
pbox_guard_privileges(const struct pbox_guard_user *user, uint64_t keep, struct pbox_error *err)
{
	int ret = guard_all_threads(privileges_bound, &keep, err);

	if (ret == 0 && user != NULL)
		ret = become(user, err);
	return ret != 0 ? ret : guard_all_threads(strip, &keep, err);
}

void
pbox_guard_report(char *buf, size_t size)
{
	uint64_t effective = 0, permitted = 0;
	const struct passwd *pw = getpwuid(geteuid());
	char who[64];
	size_t at;

	snprintf(who, sizeof(who), "%u", (unsigned)geteuid());
	at = (size_t)snprintf(buf, size, "user %s, capabilities", pw != NULL ? pw->pw_name : who);
	if (cap_get(&effective, &permitted) != 0 || permitted == 0) {
		if (at < size)
			snprintf(buf + at, size - at, " none");
		return;
	}
	for (unsigned i = 0; i < sizeof(cap_name) / sizeof(cap_name[0]) && at < size; i++)
		if ((permitted >> i & 1) != 0)
			at += (size_t)snprintf(buf + at, size - at, " %s", cap_name[i]);
}
