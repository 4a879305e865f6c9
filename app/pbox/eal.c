/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_common.h>

#include "box.h"

/*
 * EAL's options are checked before it starts: its own errors do not say what to do.
 */

/* Of those that DPDK 22.11 has. Letters come first. */
static const char *const eal_options[] = {"a", "b", "c", "d", "l", "m", "n", "r", "s", "S", "w",
	"allow", "base-virtaddr", "block", "file-prefix", "huge-dir", "huge-unlink", "in-memory",
	"iova-mode", "lcores", "legacy-mem", "main-lcore", "match-allocations", "no-hpet",
	"no-huge", "no-pci", "no-shconf", "no-telemetry", "proc-type", "single-file-segments",
	"socket-limit", "socket-mem", "telemetry", "vdev", "vfio-intr", "vfio-vf-token"};

/* Is @p word that option: with or without a value after it? */
static bool
is_option(const char *word, const char *name)
{
	size_t n = strlen(name);

	if (n == 1)
		return word[0] == '-' && word[1] == name[0];
	return strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, n) == 0 &&
	       (word[2 + n] == '\0' || word[2 + n] == '=');
}

const char *
eal_misplaced(const char *error)
{
	static const char said[] = "unknown option ";
	const char *word = strstr(error, said);
	size_t n;

	if (word == NULL)
		return NULL;
	word += sizeof(said) - 1 + 1; /* 'vdev' or -l */
	n = strcspn(word, "':");
	for (unsigned i = 0; i < RTE_DIM(eal_options); i++)
		if (strlen(eal_options[i]) == n && memcmp(eal_options[i], word, n) == 0)
			return eal_options[i];
	return NULL;
}

/* The value of an option of EAL's, "" for one without; NULL: it is not given. */
static const char *
value_of(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		const char *eq;

		if (!is_option(argv[i], name))
			continue;
		eq = strchr(argv[i], '=');
		return eq != NULL ? eq + 1 : i + 1 < argc && argv[i + 1] != NULL ? argv[i + 1] : "";
	}
	return NULL;
}

static bool
has_cpu(unsigned long cpu)
{
	char path[80];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%lu/topology/core_id", cpu);
	return access(path, F_OK) == 0;
}

/* Not so in a cpuset without it. */
static bool
may_use(unsigned long cpu)
{
	cpu_set_t was, one;
	bool may;

	if (sched_getaffinity(0, sizeof(was), &was) != 0)
		return true;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	may = sched_setaffinity(0, sizeof(one), &one) == 0;
	sched_setaffinity(0, sizeof(was), &was);
	return may;
}

/* "0-3,8", of those that this process may use. */
static void
usable_cpus(char *out, size_t cap)
{
	size_t at = 0;

	for (unsigned long cpu = 0; cpu < CPU_SETSIZE && at + 16 < cap; cpu++) {
		unsigned long last = cpu;

		if (!has_cpu(cpu) || !may_use(cpu))
			continue;
		while (last + 1 < CPU_SETSIZE && has_cpu(last + 1) && may_use(last + 1))
			last++;
		at += (size_t)snprintf(out + at, cap - at, "%s%lu", at > 0 ? "," : "", cpu);
		if (last > cpu)
			at += (size_t)snprintf(out + at, cap - at, "-%lu", last);
		cpu = last;
	}
}

/* The first CPU of "0-3,8" that this process cannot have; -1: none, or it is written in another way, which is EAL's to judge. */
static long
first_bad_cpu(const char *list)
{
	while (*list != '\0') {
		unsigned long first, last;
		char *end;

		first = last = strtoul(list, &end, 10);
		if (end == list)
			return -1;
		if (*end == '-') {
			list = end + 1;
			last = strtoul(list, &end, 10);
			if (end == list)
				return -1;
		}
		if ((*end != ',' && *end != '\0') || last > CPU_SETSIZE)
			return -1;
		for (unsigned long cpu = first; cpu <= last; cpu++)
			if (!has_cpu(cpu) || !may_use(cpu))
				return (long)cpu;
		list = *end == ',' ? end + 1 : end;
	}
	return -1;
}

/* The same of --lcores: "0@1,2@(0,3)", lcores at CPUs; without @ the numbers are both. */
static long
first_bad_cpu_of_lcores(const char *sets)
{
	char set[256];
	long bad = -1;

	while (*sets != '\0' && bad < 0) {
		int depth = 0;
		size_t n = 0;
		const char *at;

		for (; *sets != '\0' && (*sets != ',' || depth > 0); sets++) {
			depth += *sets == '(' ? 1 : *sets == ')' ? -1 : 0;
			if (*sets == '(' || *sets == ')')
				continue;
			if (n + 1 == sizeof(set))
				return -1;
			set[n++] = *sets;
		}
		set[n] = '\0';
		sets += *sets == ',';
		at = strchr(set, '@');
		bad = first_bad_cpu(at != NULL ? at + 1 : set);
	}
	return bad;
}

/* LIST of -l, "-l LIST" or "-lLIST"; NULL: it is not given. */
static const char *
list_of_cores(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strncmp(argv[i], "-l", 2) == 0)
			return argv[i][2] != '\0' ? argv[i] + 2 : i + 1 < argc ? argv[i + 1] : NULL;
	return NULL;
}

/* EAL would print all of its options, and the cause above them; of a CPU that others have, "Cannot set affinity". */
static int
check_lcores(int argc, char **argv, struct pbox_error *err)
{
	const char *list = list_of_cores(argc, argv), *sets = value_of(argc, argv, "lcores");
	char usable[256] = "";
	long cpu;

	if (sets == NULL && list == NULL)
		return 0;
	cpu = sets != NULL ? first_bad_cpu_of_lcores(sets) : first_bad_cpu(list);
	if (cpu < 0)
		return 0;
	usable_cpus(usable, sizeof(usable));
	return pbox_fail(err, EINVAL, "%s %s: %s CPU %ld%s, but CPUs %s: give EAL some of these",
		sets != NULL ? "--lcores" : "-l", sets != NULL ? sets : list,
		has_cpu((unsigned long)cpu) ? "this process may not use" : "this host has no", cpu,
		has_cpu((unsigned long)cpu) ? " (its cpuset, or AllowedCPUs= of its unit)" : "",
		usable);
}

/* As EAL chooses it. */
static const char *
runtime_directory(void)
{
	const char *dir = getenv("RUNTIME_DIRECTORY");

	if (dir == NULL)
		dir = getuid() == 0 ? "/var/run" : getenv("XDG_RUNTIME_DIR");
	return dir != NULL ? dir : "/tmp";
}

/* Its sockets and files are there. EAL would take what is wrong with it for a wrong command line. */
static int
check_runtime(int argc, char **argv, struct pbox_error *err)
{
	const char *prefix = value_of(argc, argv, "file-prefix"), *dir = runtime_directory();
	/* the longest of a name that ends in a socket's */
	size_t room = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1, n;
	char path[PATH_MAX];

	prefix = prefix != NULL ? prefix : "rte";
	n = strlen(dir) + strlen("/dpdk/") + strlen(prefix) + strlen("/dpdk_telemetry.v2");
	if (n > room)
		return pbox_fail(err, ENAMETOOLONG,
			"the paths of sockets in the run-time directory would have %zu bytes with EAL's file prefix '%s', and %zu are possible: set RUNTIME_DIRECTORY to a shorter one than %s, or give a shorter --file-prefix",
			n, prefix, room, dir);
	/* the first part of it that is there already has to take what is missing */
	snprintf(path, sizeof(path), "%s/dpdk/%s", dir, prefix);
	if (access(path, F_OK) != 0)
		snprintf(path, sizeof(path), "%s/dpdk", dir);
	if (access(path, F_OK) != 0)
		snprintf(path, sizeof(path), "%s", dir);
	if (access(path, W_OK | X_OK) != 0)
		return pbox_fail(err, errno,
			"no file can be made in the run-time directory %s: %s: fix that, or set RUNTIME_DIRECTORY to another one",
			path, strerror(errno));
	return 0;
}

/* Two programs with one prefix would share, and destroy, each other's memory: EAL keeps a lock. */
static int
check_prefix(int argc, char **argv, struct pbox_error *err)
{
	const char *prefix = value_of(argc, argv, "file-prefix"), *dir = runtime_directory();
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char path[512], name[64] = "another program";
	int fd, ret;
	FILE *f;

	if (value_of(argc, argv, "in-memory") != NULL || value_of(argc, argv, "no-shconf") != NULL)
		return 0;
	prefix = prefix != NULL ? prefix : "rte";
	snprintf(path, sizeof(path), "%s/dpdk/%s/config", dir, prefix);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ret = fcntl(fd, F_GETLK, &lock);
	close(fd);
	if (ret != 0 || lock.l_type == F_UNLCK)
		return 0;
	snprintf(path, sizeof(path), "/proc/%ld/comm", (long)lock.l_pid);
	f = fopen(path, "re");
	if (f != NULL && fgets(name, sizeof(name), f) != NULL)
		name[strcspn(name, "\n")] = '\0';
	if (f != NULL)
		fclose(f);
	return pbox_fail(err, EBUSY,
		"%s (process %ld) runs with EAL's file prefix '%s': stop it, or give this one another, --file-prefix NAME",
		name, (long)lock.l_pid, prefix);
}

/* Of all sizes; -1: the kernel does not say. */
static long
eal_hugepages(const char *what)
{
	char pattern[80];
	glob_t found;
	long n = -1;

	snprintf(pattern, sizeof(pattern), "/sys/kernel/mm/hugepages/hugepages-*/%s", what);
	if (glob(pattern, 0, NULL, &found) != 0)
		return n;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		FILE *f = fopen(found.gl_pathv[i], "re");
		long pages;

		if (f == NULL)
			continue;
		if (fscanf(f, "%ld", &pages) == 1)
			n = (n < 0 ? 0 : n) + pages;
		fclose(f);
	}
	globfree(&found);
	return n;
}

static int
check_hugepages(int argc, char **argv, struct pbox_error *err)
{
	long all = eal_hugepages("nr_hugepages");

	if (value_of(argc, argv, "no-huge") != NULL || eal_hugepages("nr_overcommit_hugepages") > 0)
		return 0;
	if (all == 0)
		return pbox_fail(err, ENOMEM,
			"this host has no hugepages: reserve some ('pbox-setup plan' says how many), or go without them: --no-huge -m 512");
	if (all > 0 && eal_hugepages("free_hugepages") == 0)
		return pbox_fail(err, ENOMEM,
			"all %ld hugepages of this host are in use: stop who has them (another pbox?), reserve more ('pbox-setup plan'), or go without: --no-huge -m 512",
			all);
	return 0;
}

/* EAL says that it is wrong, and starts. What is before the last colon names whose lines it is for. */
static bool
is_log_level(const char *value)
{
	static const char *const name[] = {"emergency", "alert", "critical", "error", "warning",
		"notice", "info", "debug", "help"};
	const char *colon = strrchr(value, ':'), *level = colon != NULL ? colon + 1 : value;
	size_t n = strlen(level);

	for (unsigned i = 0; i < RTE_DIM(name); i++)
		if (n > 0 && strncmp(name[i], level, n) == 0)
			return true;
	/* a number, and an older form with a comma, are EAL's to judge */
	return strspn(level, "0123456789") > 0 || strchr(level, ',') != NULL;
}

static int
check_log_level(int argc, char **argv, struct pbox_error *err)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		const char *value = value_of(argc - i + 1, argv + i - 1, "log-level");

		if (value == NULL)
			return 0;
		if (is_option(argv[i], "log-level") && !is_log_level(value))
			return pbox_fail(err, EINVAL,
				"--log-level=%s: the level is error, warning, info or debug, as in --log-level=pbox:debug",
				value);
	}
	return 0;
}

int
eal_check(int argc, char **argv, struct pbox_error *err)
{
	int ret = check_lcores(argc, argv, err);

	if (ret == 0)
		ret = check_log_level(argc, argv, err);
	if (ret == 0)
		ret = check_runtime(argc, argv, err);
	if (ret == 0)
		ret = check_prefix(argc, argv, err);
	if (ret == 0)
		ret = check_hugepages(argc, argv, err);
	return ret;
}
