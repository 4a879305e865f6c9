/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <string.h>

#include "options_rows.h"

/* in the order of the enums of pbox_options.h and pbox_base.h */
static const char *const help_names[] = {"none", "short", "all", NULL};
static const char *const idle_names[] = {"auto", PBOX_IDLES(PBOX_MODE_NAME) NULL};
static const char *const level_names[] = {"error", "warn", "info", "debug", NULL};
static const char *const reduce_names[] = {"auto", "scalar", "avx2", "avx512", NULL};
static const char *const steer_names[] = {PBOX_STEERS(PBOX_MODE_NAME) NULL};
static const char *const sandbox_names[] = {"auto", "no", "yes", NULL};

/* clang-format off */
#define TARGET struct pbox_options
static const struct pbox_conf_option global_options[] = {
	ROW(PATH, "config", config,
		.letter = 'c',
		.flags = PBOX_CONF_BASIC | PBOX_CONF_CLI_ONLY,
		.def = PBOX_OPTIONS_FILE,
		.brief = "configuration file",
		.more = "The default one need not exist; none: read no file."),
	ROW(BOOL, "check", check,
		.flags = PBOX_CONF_BASIC | PBOX_CONF_CLI_ONLY,
		.brief = "check the configuration, print it and exit"),
	ROW(ENUM, "help", help, .names = help_names,
		.letter = 'h',
		.flags = PBOX_CONF_BASIC | PBOX_CONF_CLI_ONLY | PBOX_CONF_OPTIONAL_ARG,
		.brief = "print this page, or with 'all' every option"),
	ROW(BOOL, "version", version,
		.letter = 'V',
		.flags = PBOX_CONF_BASIC | PBOX_CONF_CLI_ONLY,
		.brief = "print the version and exit"),
	ROW(BOOL, "counters", counters,
		.flags = PBOX_CONF_CLI_ONLY,
		.brief = "print all counters that there are as JSON and exit"),
	ROW(ENUM, "cores-idle", cores_idle, .names = idle_names,
		.first = PBOX_IDLE_AUTO,
		.flags = PBOX_CONF_BASIC,
		.def = "auto",
		.brief = "what a data core does without packets",
		.more = "poll has the lowest latency and takes a CPU for each data core; yield, sleep and interrupt leave it to others. auto: poll if each data core has a CPU of its own and two more are left, else sleep. After 50 ms without work, sleep and interrupt wait for a packet where the port has interrupts, else look for one every 2 ms."),
	RANGE(SIZE, "memory", memory, M, 1024 * G,
		.flags = PBOX_CONF_BASIC,
		.zero = "auto",
		.def = "auto",
		.example = "8G",
		.brief = "memory for parameters, on each NUMA node",
		.more = "Taken at start, in hugepages where there are any. auto: what is free when the packet buffers have theirs."),
	RANGE(U32, "hold", hold, 64, 1 << 20, .unit = "packets",
		.def = "4096",
		.brief = "received packets that a data core may hold",
		.more = "Gradients wait in their packet buffers until the workers before them have sent theirs. It must be at least max-workers."),
	RANGE(U32, "max-jobs", max_jobs, 1, PBOX_OPTIONS_JOBS, .unit = "jobs",
		.def = "16",
		.brief = "jobs at the same time"),
	RANGE(U32, "max-workers", max_workers, 1, 4096, .unit = "workers",
		.def = "1024",
		.brief = "workers that one job may have"),
	RANGE(SIZE, "chunk-bytes", chunk_bytes, 4 * K, 4 * M, .unit = "bytes",
		.def = "32K",
		.brief = "size of a chunk, the unit that a core owns",
		.more = "In bytes of fp32; a multiple of 64."),
	ROW(STRING, "boxes", boxes,
		.example = "10.0.0.1, 10.0.0.2, 10.0.0.3",
		.brief = "the boxes that its jobs are at",
		.more = "An address of each, in one order at all of them: this box serves a part of each job. They have the same release, number of data cores, chunk-bytes, control-port and secrets. What goes together with several boxes: doc/modes.md."),
	ROW(STRING, "upstream", upstream,
		.example = "10.0.0.9",
		.brief = "this box is a rack's: its upper box",
		.more = "Its address, or ADDRESS:PORT. The box sums what the workers of its rack bring, sends one sum up, and answers them with what comes down. It needs rack. Workers of racks name their run. What goes together with racks: doc/modes.md."),
	ROW(STRING, "rack", rack,
		.example = "1/2",
		.brief = "which rack: NUMBER/RACKS, the first one is 0",
		.more = "Rack 1/2 has the upper half of each job's workers. All racks have as many workers, and the slots of a rack are a power of two."),
	RANGE(U32, "control-port", control_port, 1, 65000,
		.flags = PBOX_CONF_BASIC,
		.def = "7269",
		.brief = "UDP port that workers join at",
		.more = "The data ports follow it."),
	RANGE(DURATION, "lease", lease_ns, S, 3600 * S,
		.flags = PBOX_CONF_BASIC | PBOX_CONF_LIVE,
		.def = "30s",
		.brief = "silence after which a worker counts as dead",
		.more = "For workers that ask for no other, in jobs that say nothing else."),
	RANGE(DURATION, "grace", grace_ns, S, 86400 * S,
		.flags = PBOX_CONF_LIVE,
		.zero = "none",
		.def = "600s",
		.brief = "how long a run with silent workers only is kept",
		.more = "Its parameters stay, and its workers may come back. It ends earlier where another job needs its place. none: with the last lease."),
	RANGE(DURATION, "drain", drain_ns, MS, 60 * S,
		.flags = PBOX_CONF_LIVE,
		.zero = "none",
		.def = "2s",
		.brief = "longest time that a clean stop takes"),
	ROW(ENUM, "reduce", reduce, .names = reduce_names,
		.def = "auto",
		.brief = "kernel that sums gradients",
		.more = "All give the same bits. auto: the fastest that this CPU has."),
	ROW(PATH, "snapshot-dir", snapshot_dir,
		.example = "/var/lib/pbox",
		.brief = "where snapshots are written; none without it",
		.more = "Parameters and optimiser state of tables that are optimised on the box, so that they outlive it. Its file system should be local and have room for snapshot-keep + 1 times all tables."),
	RANGE(SIZE, "snapshot-memory", snapshot_memory, M, 1024 * G,
		.zero = "none",
		.def = "none",
		.example = "2G",
		.brief = "memory for the copy that is being written",
		.more = "As much as the largest table takes: its parameters times 2 with momentum, times 3 with Adam. Taken at start."),
	RANGE(DURATION, "snapshot-interval", snapshot_interval_ns, S, 86400 * S,
		.flags = PBOX_CONF_LIVE,
		.zero = "off",
		.def = "60s",
		.brief = "time between two snapshots of a table",
		.more = "off: only when pbox-ctl asks for one."),
	RANGE(DURATION, "snapshot-final", snapshot_final_ns, 100 * MS, 60 * S,
		.flags = PBOX_CONF_LIVE,
		.zero = "off",
		.def = "10s",
		.brief = "longest time that snapshots of a clean stop take",
		.more = "SIGTERM writes what has moved since the last snapshot, before workers get LEFT. off: it does not."),
	RANGE(U32, "snapshot-keep", snapshot_keep, 1, 1000, .unit = "files",
		.def = "2",
		.brief = "snapshots of a table that are kept"),
	RANGE(SIZE, "snapshot-space", snapshot_space, M, 1048576 * G,
		.flags = PBOX_CONF_LIVE,
		.zero = "all",
		.def = "all",
		.example = "200G",
		.brief = "most that snapshot-dir may hold",
		.more = "To make room for a new one, those set aside go first, then older ones, then the newest of jobs that do not run; those of [job *] before all others. all: what the disk has."),
	RANGE(DURATION, "snapshot-age", snapshot_age_ns, 60 * S, 86400 * 3650 * S,
		.flags = PBOX_CONF_LIVE,
		.zero = "any",
		.def = "any",
		.example = "604800s",
		.brief = "age at which snapshots of jobs that do not run go",
		.more = "By the clock."),
	ROW(STRING, "snapshot-parity", snapshot_parity,
		.def = "16+2",
		.brief = "blocks of data + parity blocks, like 16+2",
		.more = "So many blocks of a stripe may be damaged and are rebuilt: up to 64+16; 16+0 has no parity."),
	ROW(BOOL, "snapshot-compress", snapshot_compress,
		.def = "no",
		.brief = "compress snapshots",
		.more = "Trained parameters hardly shrink; optimiser state with many zeros does."),
	ROW(STRING, "user", user,
		.example = "pbox",
		.brief = "user to become when all is set up",
		.more = "A name or a number; only root can. Ports and memory are taken before. Capabilities are given up with and without it."),
	ROW(ENUM, "sandbox", sandbox, .names = sandbox_names,
		.def = "auto",
		.brief = "refuse system calls that a box has no use for",
		.more = "auto: where the kernel can (seccomp). yes: or the start fails. A refused call is logged with its name."),
	ROW(ENUM, "log-level", log_level, .names = level_names,
		.flags = PBOX_CONF_BASIC | PBOX_CONF_LIVE,
		.def = "info",
		.brief = "how much to log"),
	ROW(PATH, "log-file", log_file,
		.example = "/var/log/pbox.log",
		.brief = "where to log, instead of standard error"),
	RANGE(DURATION, "stats-interval", stats_interval_ns, 100 * MS, 86400 * S,
		.flags = PBOX_CONF_BASIC | PBOX_CONF_LIVE,
		.zero = "off",
		.def = "off",
		.brief = "print a line of statistics this often"),
};
#undef TARGET

#define TARGET struct pbox_port_options
static const struct pbox_conf_option port_options[] = {
	ROW(PREFIX, "address", address,
		.flags = PBOX_CONF_REQUIRED,
		.example = "10.0.0.1/24",
		.brief = "IPv4 address of the port and its network's length"),
	ROW(BOOL, "shared", shared,
		.def = "no",
		.brief = "other ports have this address as well",
		.more = "For links that no switch connects: each worker, or each rack, reaches the box by the port that it hangs on. All ports of the address say so, and have the same cores."),
	RANGE(U32, "mtu", mtu, 1500, 65000, .unit = "bytes",
		.zero = "auto",
		.def = "auto",
		.example = "9000",
		.brief = "largest IP packet",
		.more = "The whole way to the workers must carry it; 9000 is much faster than 1500. auto: what the port is set to, or 1500."),
	RANGE(U32, "queues", queues, 1, 64, .unit = "queues",
		.zero = "auto",
		.def = "auto",
		.brief = "receive queues, each polled by one core",
		.more = "auto: as many as there are cores for it and the port has."),
	RANGE(U32, "rx-desc", rx_desc, 64, 32768, .unit = "descriptors",
		.zero = "auto",
		.def = "auto",
		.brief = "length of each receive queue"),
	RANGE(U32, "tx-desc", tx_desc, 64, 32768, .unit = "descriptors",
		.zero = "auto",
		.def = "auto",
		.brief = "length of each transmit queue"),
	ROW(ENUM, "steer", steer, .names = steer_names,
		.def = "auto",
		.brief = "how packets come to their core",
		.more = "flow: the NIC does it by UDP port, or the start fails. ring: cores hand packets to each other. auto: flow where the NIC can."),
	ROW(CORES, "cores", cores,
		.zero = "auto",
		.def = "auto",
		.example = "2-5",
		.brief = "lcores that may poll it, like 2,4-7",
		.more = "auto: all data cores of its NUMA node."),
};
#undef TARGET
/* clang-format on */

static int
check_port_name(const char *name, struct pbox_error *err)
{
	size_t n = strlen(name), digits = strspn(name, "0123456789");

	if (digits == n) {
		if (n <= 4 && (name[0] != '0' || n == 1))
			return 0;
		return pbox_fail(err, EINVAL, "port numbers are 0 to 9999, without leading zeros");
	}
	for (size_t i = 0; i < n; i++)
		if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
			    (name[i] >= '0' && name[i] <= '9') || strchr("._:-", name[i]) != NULL))
			return pbox_fail(err, EINVAL,
				"a port is a number or a DPDK device, like 0, net_tap0 or 0000:03:00.0");
	return 0;
}

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct pbox_conf_section sections[] = {
	{
		.name = "",
		.brief = "global options",
		.options = global_options,
		.n_options = N_OF(global_options),
	},
	{
		.name = "port",
		.brief = "A port: NAME is its number or the name of its DPDK device.",
		.more = "Names like net_tap0 and 0000:03:00.0 stay the same when another device comes or goes, numbers do not.",
		.options = port_options,
		.n_options = N_OF(port_options),
		.items_at = offsetof(struct pbox_options, ports),
		.item_size = sizeof(struct pbox_port_options),
		.count_at = offsetof(struct pbox_options, n_ports),
		.max = PBOX_OPTIONS_PORTS,
		.sample_name = "0000:03:00.0",
		.check_name = check_port_name,
	},
	{
		.name = "job",
		.brief =
			"A job: NAME is what its workers join, or * for all names without a section.",
		.more = "A job with a section of its own takes nothing from [job *].",
		.options = conf_job_options,
		.n_options = CONF_JOB_OPTIONS,
		.items_at = offsetof(struct pbox_options, jobs),
		.item_size = sizeof(struct pbox_job_options),
		.count_at = offsetof(struct pbox_options, n_jobs),
		.max = PBOX_OPTIONS_JOBS,
		.sample_name = "example",
	},
	{
		.name = "cluster",
		.brief = "etcd, for several boxes: NAME is the fleet's, alike at all of them.",
		.more = "Of pbox-agent alone, which runs beside each box; a box without it needs no etcd. With it goes 'boxes'.",
		.options = conf_cluster_options,
		.n_options = CONF_CLUSTER_OPTIONS,
		.items_at = offsetof(struct pbox_options, clusters),
		.item_size = sizeof(struct pbox_cluster_options),
		.count_at = offsetof(struct pbox_options, n_clusters),
		.max = PBOX_OPTIONS_CLUSTERS,
		.sample_name = "example",
		.spare = true,
		.check_name = conf_cluster_name,
	},
};

const struct pbox_conf_table pbox_options_table = {
	.program = "pbox",
	.usage = "pbox [EAL options] -- [options]",
	.summary = "Parameter server: sums the gradients of training jobs at line rate.",
	.see = "'--help all' has all options, pbox(8) more, pbox.conf.sample is a start.",
	.sections = sections,
	.n_sections = N_OF(sections),
};

static bool
options_are_ours(const char *name, size_t n)
{
	for (unsigned s = 1; s < N_OF(sections); s++)
		if (strncmp(sections[s].name, name, n) == 0 && sections[s].name[n] == '\0')
			return true;
	for (unsigned i = 0; i < N_OF(global_options); i++)
		if (strncmp(global_options[i].name, name, n) == 0 &&
			global_options[i].name[n] == '\0')
			return true;
	return false;
}

const char *
pbox_options_misplaced(int argc, char *const argv[])
{
	static const char *const also_eal[] = {"help", "version", "log-level"};
	static char found[PBOX_CONF_NAME_MAX];

	for (int i = 1; i < argc; i++) {
		const char *name = argv[i] + 2;
		size_t n = strcspn(argv[i], "="), k = 0;

		if (strncmp(argv[i], "--", 2) != 0 || n < 3 || n >= sizeof(found))
			continue;
		while (k < N_OF(also_eal) &&
			(strncmp(also_eal[k], name, n - 2) != 0 || also_eal[k][n - 2] != '\0'))
			k++;
		if (k == N_OF(also_eal) && options_are_ours(name, n - 2)) {
			memcpy(found, argv[i], n);
			found[n] = '\0';
			return found;
		}
	}
	return NULL;
}

void
pbox_options_wipe(struct pbox_options *o)
{
	explicit_bzero(o, sizeof(*o));
}
