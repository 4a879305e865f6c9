/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <assert.h>

#include "options_rows.h"

/* in the order of the enums of pbox_options.h */
static const char *const snapshot_names[] = {"auto", "no", "yes", NULL};
#define NAME(symbol, number, name) #name,
static const char *const policy_names[] = {"any", PBOX_POLICIES(NAME) NULL};

#define AT(member) PBOX_CONF_AT(struct pbox_job_options, member)
const struct pbox_conf_option conf_job_options[] = {
	{
		.name = "secret",
		.type = PBOX_CONF_SECRET,
		AT(secret),
		.flags = PBOX_CONF_IN_SAMPLE | PBOX_CONF_NEXT,
		.min = 8,
		.example = "file:/etc/pbox/example.secret",
		.brief = "what workers must know to join",
		.more = "At least 8 characters, or file:PATH with the secret in that file, which "
			"only the box should be able to read. Required unless insecure = yes.",
	},
	{
		.name = "insecure",
		.type = PBOX_CONF_BOOL,
		AT(insecure),
		.flags = PBOX_CONF_NEXT,
		.def = "no",
		.example = "yes",
		.brief = "anyone may join, without a secret",
	},
	{
		.name = "auth",
		.type = PBOX_CONF_BOOL,
		AT(auth),
		.flags = PBOX_CONF_NEXT,
		.def = "no",
		.example = "yes",
		.brief = "each frame has a tag that nobody else can make",
		.more = "For networks where others may see the frames, or send. Costs time for "
			"each "
			"byte, on both ends, and 16 bytes a frame.",
	},
	{
		.name = "workers",
		.type = PBOX_CONF_U32,
		AT(workers),
		.flags = PBOX_CONF_NEXT,
		.min = 1,
		.max = 4096,
		.unit = "workers",
		.zero = "any",
		.def = "any",
		.example = "8",
		.brief = "number of workers",
		.more = "any: what the first worker says.",
	},
	{
		.name = "memory",
		.type = PBOX_CONF_SIZE,
		AT(bounds.memory),
		.flags = PBOX_CONF_LIVE,
		.min = M,
		.max = 16384 * G,
		.zero = "all",
		.def = "all",
		.example = "4G",
		.brief = "most memory that it may take",
		.more = "On all NUMA nodes together: parameters, optimiser state, records of "
			"rounds and sessions, and what its workers declare. all: what is free.",
	},
	{
		.name = "rate",
		.type = PBOX_CONF_U32,
		AT(bounds.rate),
		.flags = PBOX_CONF_LIVE,
		.min = 1000,
		.max = 1000000000,
		.unit = "frames/s",
		.zero = "all",
		.def = "all",
		.example = "500000",
		.brief = "most data frames a second, on each data core",
		.more = "Rounds end no faster: results of a job that exceeds it come later. Other "
			"frames beyond as many again are dropped (drop_rate). all: no limit.",
	},
	{
		.name = "repeats",
		.type = PBOX_CONF_U32,
		AT(bounds.repeats),
		.flags = PBOX_CONF_LIVE,
		.min = 1000,
		.max = 100000000,
		.unit = "frames/s",
		.zero = "all",
		.def = "200000",
		.example = "1000000",
		.brief = "most frames without progress, of a worker",
		.more = "Repetitions, pulls and pings a second on each data core, besides as many "
			"as it sends contributions. What exceeds it is dropped (drop_rate). all: "
			"no limit.",
	},
	{
		.name = "requests",
		.type = PBOX_CONF_U32,
		AT(bounds.requests),
		.flags = PBOX_CONF_LIVE,
		.min = 100,
		.max = 1000000,
		.unit = "frames/s",
		.zero = "all",
		.def = "2000",
		.example = "500",
		.brief = "most control frames a second, of a worker",
		.more = "On each data core; ten times as many of all workers together. What "
			"exceeds "
			"it for seconds is dropped (drop_control_rate). all: no limit.",
	},
	{
		.name = "max-jobs",
		.type = PBOX_CONF_U32,
		AT(max_jobs),
		.flags = PBOX_CONF_LIVE,
		.min = 1,
		.max = PBOX_OPTIONS_JOBS,
		.unit = "jobs",
		.zero = "all",
		.def = "all",
		.example = "1",
		.brief = "jobs at the same time; of [job *] alone",
		.more = "Each section with a name keeps one of the box's max-jobs. all: the "
			"others.",
	},
	{
		.name = "lease",
		.type = PBOX_CONF_DURATION,
		AT(bounds.lease_ns),
		.flags = PBOX_CONF_LIVE,
		.min = S,
		.max = 3600 * S,
		.zero = "default",
		.def = "default",
		.example = "10s",
		.brief = "silence after which a worker counts as dead",
		.more = "default: the global lease.",
	},
	{
		.name = "grace",
		.type = PBOX_CONF_DURATION,
		AT(bounds.grace_ns),
		.flags = PBOX_CONF_LIVE,
		.min = S,
		.max = 86400 * S,
		.zero = "default",
		.def = "default",
		.example = "3600s",
		.brief = "how long a run with silent workers only is kept",
		.more = "default: the global grace.",
	},
	{
		.name = "policy",
		.type = PBOX_CONF_ENUM,
		AT(policy),
		.flags = PBOX_CONF_NEXT,
		.names = policy_names,
		.first = PBOX_POLICY_ANY,
		.def = "any",
		.brief = "what happens when a worker is dead",
		.more = "wait: rounds wait until it has joined again. shrink: they go on without "
			"it. any: what the workers ask for, all the same; else it holds whatever "
			"they ask for.",
	},
	{
		.name = "snapshot",
		.type = PBOX_CONF_ENUM,
		AT(snapshot),
		.names = snapshot_names,
		.flags = PBOX_CONF_LIVE,
		.def = "auto",
		.brief = "take snapshots of it, where there is snapshot-dir",
		.more = "Of its tables that are optimised on the box: of all-reduce, workers have "
			"all. auto: yes, but not of [job *], whose names anybody makes up.",
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
		.example = "20G",
		.brief = "most that its snapshots may take",
		.more = "Of [job *]: those of all its jobs together. all: what the box's "
			"snapshot-space leaves.",
	},
};

static_assert(sizeof(conf_job_options) / sizeof(conf_job_options[0]) == CONF_JOB_OPTIONS,
	"options_rows.h says how many there are");
