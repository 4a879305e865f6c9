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

#define AT(member) PBOX_CONF_AT(struct pbox_options, member)

static const struct pbox_conf_option global_options[] = {
	{
		.name = "config",
		.letter = 'c',
		.type = PBOX_CONF_PATH,
		AT(config),
		.flags = PBOX_CONF_BASIC | PBOX_CONF_CLI_ONLY,
		.def = PBOX_OPTIONS_FILE,
		.brief = "configuration file",
		.more = "The default one need not exist; none: read no file.",
	},
	{
		.name = "check",
		.type = PBOX_CONF_BOOL,
		AT(check),
		.flags = PBOX_CONF_BASIC | PBOX_CONF_CLI_ONLY,
		.brief = "check the configuration, print it and exit",
	},
	{
		.name = "help",
		.letter = 'h',
		.type = PBOX_CONF_ENUM,
		AT(help),
		.names = help_names,
		.flags = PBOX_CONF_BASIC | PBOX_CONF_CLI_ONLY | PBOX_CONF_OPTIONAL_ARG,
		.brief = "print this page, or with 'all' every option",
	},
	{
		.name = "version",
		.letter = 'V',
		.type = PBOX_CONF_BOOL,
		AT(version),
		.flags = PBOX_CONF_BASIC | PBOX_CONF_CLI_ONLY,
		.brief = "print the version and exit",
	},
	{
		.name = "counters",
		.type = PBOX_CONF_BOOL,
		AT(counters),
		.flags = PBOX_CONF_CLI_ONLY,
		.brief = "print all counters that there are as JSON and exit",
	},
	{
		.name = "cores-idle",
		.type = PBOX_CONF_ENUM,
		AT(cores_idle),
		.names = idle_names,
		.first = PBOX_IDLE_AUTO,
		.flags = PBOX_CONF_BASIC,
		.def = "auto",
		.brief = "what a data core does without packets",
		.more = "poll has the lowest latency and takes a CPU for each data core; yield, sleep and interrupt leave it to others. auto: poll if each data core has a CPU of its own and two more are left, else sleep.",
	},
	{
		.name = "memory",
		.type = PBOX_CONF_SIZE,
		AT(memory),
		.min = M,
		.max = 1024 * G,
		.zero = "auto",
		.def = "auto",
		.flags = PBOX_CONF_BASIC,
		.example = "8G",
		.brief = "memory for parameters, on each NUMA node",
		.more = "Taken at start, in hugepages where there are any. auto: what is free when the packet buffers have theirs.",
	},
	{
		.name = "hold",
		.type = PBOX_CONF_U32,
		AT(hold),
		.min = 64,
		.max = 1 << 20,
		.unit = "packets",
		.def = "4096",
		.brief = "received packets that a data core may hold",
		.more = "Gradients wait in their packet buffers until the workers before them have sent theirs. It must be at least max-workers.",
	},
	{
		.name = "max-jobs",
		.type = PBOX_CONF_U32,
		AT(max_jobs),
		.min = 1,
		.max = PBOX_OPTIONS_JOBS,
		.unit = "jobs",
		.def = "16",
		.brief = "jobs at the same time",
	},
	{
		.name = "max-workers",
		.type = PBOX_CONF_U32,
		AT(max_workers),
		.min = 1,
		.max = 4096,
		.unit = "workers",
		.def = "1024",
		.brief = "workers that one job may have",
	},
	{
		.name = "chunk-bytes",
		.type = PBOX_CONF_SIZE,
		AT(chunk_bytes),
		.min = 4 * K,
		.max = 4 * M,
		.def = "32K",
		.unit = "bytes",
		.brief = "size of a chunk, the unit that a core owns",
		.more = "In bytes of fp32; a multiple of 64.",
	},
	{
		.name = "control-port",
		.type = PBOX_CONF_U32,
		AT(control_port),
		.min = 1,
		.max = 65000,
		.def = "7269",
		.flags = PBOX_CONF_BASIC,
		.brief = "UDP port that workers join at",
		.more = "The data ports follow it.",
	},
	{
		.name = "lease",
		.type = PBOX_CONF_DURATION,
		AT(lease_ns),
		.min = S,
		.max = 3600 * S,
		.def = "30s",
		.flags = PBOX_CONF_BASIC | PBOX_CONF_LIVE,
		.brief = "silence after which a worker counts as dead",
		.more = "For workers that ask for no other, in jobs that say nothing else.",
	},
	{
		.name = "grace",
		.type = PBOX_CONF_DURATION,
		AT(grace_ns),
		.min = S,
		.max = 86400 * S,
		.zero = "none",
		.def = "600s",
		.flags = PBOX_CONF_LIVE,
		.brief = "how long a run with silent workers only is kept",
		.more = "Its parameters stay, and its workers may come back. It ends earlier where another job needs its place. none: with the last lease.",
	},
	{
		.name = "drain",
		.type = PBOX_CONF_DURATION,
		AT(drain_ns),
		.flags = PBOX_CONF_LIVE,
		.zero = "none",
		.min = MS,
		.max = 60 * S,
		.def = "2s",
		.brief = "longest time that a clean stop takes",
	},
	{
		.name = "reduce",
		.type = PBOX_CONF_ENUM,
		AT(reduce),
		.names = reduce_names,
		.def = "auto",
		.brief = "kernel that sums gradients",
		.more = "All give the same bits. auto: the fastest that this CPU has.",
	},
	{
		.name = "snapshot-dir",
		.type = PBOX_CONF_PATH,
		AT(snapshot_dir),
		.example = "/var/lib/pbox",
		.brief = "where snapshots are written; none without it",
		.more = "Parameters and optimiser state of tables that are optimised on the box, so that they outlive it. Its file system should be local and have room for snapshot-keep + 1 times all tables.",
	},
	{
		.name = "snapshot-memory",
		.type = PBOX_CONF_SIZE,
		AT(snapshot_memory),
		.min = M,
		.max = 1024 * G,
		.zero = "none",
		.def = "none",
		.example = "2G",
		.brief = "memory for the copy that is being written",
		.more = "As much as the largest table takes: its parameters times 2 with momentum, times 3 with Adam. Taken at start.",
	},
	{
		.name = "snapshot-interval",
		.type = PBOX_CONF_DURATION,
		AT(snapshot_interval_ns),
		.flags = PBOX_CONF_LIVE,
		.zero = "off",
		.min = S,
		.max = 86400 * S,
		.def = "60s",
		.brief = "time between two snapshots of a table",
		.more = "off: only when pbox-ctl asks for one.",
	},
	{
		.name = "snapshot-final",
		.type = PBOX_CONF_DURATION,
		AT(snapshot_final_ns),
		.flags = PBOX_CONF_LIVE,
		.zero = "off",
		.min = 100 * MS,
		.max = 60 * S,
		.def = "10s",
		.brief = "longest time that snapshots of a clean stop take",
		.more = "SIGTERM writes what has moved since the last snapshot, before workers get LEFT. off: it does not.",
	},
	{
		.name = "snapshot-keep",
		.type = PBOX_CONF_U32,
		AT(snapshot_keep),
		.min = 1,
		.max = 1000,
		.unit = "files",
		.def = "2",
		.brief = "snapshots of a table that are kept",
	},
	{
		.name = "snapshot-space",
		.type = PBOX_CONF_SIZE,
		AT(snapshot_space),
		.flags = PBOX_CONF_LIVE,
		.min = M,
		.max = 1048576 * G,
		.zero = "all",
		.def = "all",
		.example = "200G",
		.brief = "most that snapshot-dir may hold",
		.more = "To make room for a new one, those set aside go first, then older ones, then the newest of jobs that do not run; those of [job *] before all others. all: what the disk has.",
	},
	{
		.name = "snapshot-age",
		.type = PBOX_CONF_DURATION,
		AT(snapshot_age_ns),
		.flags = PBOX_CONF_LIVE,
		.zero = "any",
		.min = 60 * S,
		.max = 86400 * 3650 * S,
		.def = "any",
		.example = "604800s",
		.brief = "age at which snapshots of jobs that do not run go",
		.more = "By the clock.",
	},
	{
		.name = "snapshot-parity",
		.type = PBOX_CONF_STRING,
		AT(snapshot_parity),
		.def = "16+2",
		.brief = "blocks of data + parity blocks, like 16+2",
		.more = "So many blocks of a stripe may be damaged and are rebuilt: up to 64+16; 16+0 has no parity.",
	},
	{
		.name = "snapshot-compress",
		.type = PBOX_CONF_BOOL,
		AT(snapshot_compress),
		.def = "no",
		.brief = "compress snapshots",
		.more = "Trained parameters hardly shrink; optimiser state with many zeros does.",
	},
	{
		.name = "user",
		.type = PBOX_CONF_STRING,
		AT(user),
		.example = "pbox",
		.brief = "user to become when all is set up",
		.more = "A name or a number; only root can. Ports and memory are taken before. Capabilities are given up with and without it.",
	},
	{
		.name = "sandbox",
		.type = PBOX_CONF_ENUM,
		AT(sandbox),
		.names = sandbox_names,
		.def = "auto",
		.brief = "refuse system calls that a box has no use for",
		.more = "auto: where the kernel can (seccomp). yes: or the start fails. A refused call is logged with its name.",
	},
	{
		.name = "log-level",
		.type = PBOX_CONF_ENUM,
		AT(log_level),
		.names = level_names,
		.def = "info",
		.flags = PBOX_CONF_BASIC | PBOX_CONF_LIVE,
		.brief = "how much to log",
	},
	{
		.name = "log-file",
		.type = PBOX_CONF_PATH,
		AT(log_file),
		.example = "/var/log/pbox.log",
		.brief = "where to log, instead of standard error",
	},
	{
		.name = "stats-interval",
		.type = PBOX_CONF_DURATION,
		AT(stats_interval_ns),
		.zero = "off",
		.min = 100 * MS,
		.max = 86400 * S,
		.def = "off",
		.flags = PBOX_CONF_BASIC | PBOX_CONF_LIVE,
		.brief = "print a line of statistics this often",
	},
};
#undef AT

#define AT(member) PBOX_CONF_AT(struct pbox_port_options, member)
static const struct pbox_conf_option port_options[] = {
	{
		.name = "address",
		.type = PBOX_CONF_PREFIX,
		AT(address),
		.flags = PBOX_CONF_REQUIRED,
		.example = "10.0.0.1/24",
		.brief = "IPv4 address of the port and its network's length",
	},
	{
		.name = "shared",
		.type = PBOX_CONF_BOOL,
		AT(shared),
		.def = "no",
		.brief = "other ports have this address as well",
		.more = "For links that no switch connects: each worker, or each rack, reaches the box by the port that it hangs on. All ports of the address say so, and have the same cores.",
	},
	{
		.name = "mtu",
		.type = PBOX_CONF_U32,
		AT(mtu),
		.min = 1500,
		.max = 65000,
		.unit = "bytes",
		.zero = "auto",
		.def = "auto",
		.example = "9000",
		.brief = "largest IP packet",
		.more = "The whole way to the workers must carry it; 9000 is much faster than 1500. auto: what the port is set to, or 1500.",
	},
	{
		.name = "queues",
		.type = PBOX_CONF_U32,
		AT(queues),
		.min = 1,
		.max = 64,
		.unit = "queues",
		.zero = "auto",
		.def = "auto",
		.brief = "receive queues, each polled by one core",
		.more = "auto: as many as there are cores for it and the port has.",
	},
	{
		.name = "rx-desc",
		.type = PBOX_CONF_U32,
		AT(rx_desc),
		.min = 64,
		.max = 32768,
		.unit = "descriptors",
		.zero = "auto",
		.def = "auto",
		.brief = "length of each receive queue",
	},
	{
		.name = "tx-desc",
		.type = PBOX_CONF_U32,
		AT(tx_desc),
		.min = 64,
		.max = 32768,
		.unit = "descriptors",
		.zero = "auto",
		.def = "auto",
		.brief = "length of each transmit queue",
	},
	{
		.name = "steer",
		.type = PBOX_CONF_ENUM,
		AT(steer),
		.names = steer_names,
		.def = "auto",
		.brief = "how packets come to their core",
		.more = "flow: the NIC does it by UDP port, or the start fails. ring: cores hand packets to each other. auto: flow where the NIC can.",
	},
	{
		.name = "cores",
		.type = PBOX_CONF_CORES,
		AT(cores),
		.zero = "auto",
		.def = "auto",
		.example = "2-5",
		.brief = "lcores that may poll it, like 2,4-7",
		.more = "auto: all data cores of its NUMA node.",
	},
};
#undef AT

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
};

const struct pbox_conf_table pbox_options_table = {
	.program = "pbox",
	.usage = "pbox [EAL options] -- [options]",
	.summary = "Parameter server: sums the gradients of training jobs at line rate.",
	.see = "'--help all' has all options, pbox(8) more, pbox.conf.sample is a start.",
	.sections = sections,
	.n_sections = N_OF(sections),
};

const struct pbox_job_options *
pbox_options_job(const struct pbox_options *o, const char *name)
{
	const struct pbox_job_options *any = NULL;

	for (unsigned i = 0; i < o->n_jobs; i++) {
		if (strcmp(o->jobs[i].name, "*") == 0)
			any = &o->jobs[i];
		else if (strcmp(o->jobs[i].name, name) == 0)
			return &o->jobs[i];
	}
	return any;
}

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
