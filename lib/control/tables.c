/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "tables.h"

#define COUNTER(name, unit, help)                   \
	{                                           \
		name, unit, help, PBOX_STAT_COUNTER \
	}
#define GAUGE(name, unit, help)                   \
	{                                         \
		name, unit, help, PBOX_STAT_GAUGE \
	}

#define CONTRIBUTIONS COUNTER("contributions", "fragments", "fragments brought to a round")
#define CONTRIBUTED   COUNTER("contributed_bytes", "bytes", "payload of these")
#define REPEATS                         \
	COUNTER("repeats", "fragments", \
		"contributions and results that it sent or asked for again: packets were lost")
#define PULLS COUNTER("pulls", "frames", "pulls and probes")
#define LAST  COUNTER("last", "fragments", "fragments that were complete with its contribution")
#define WAITED                                                                                  \
	COUNTER("waited_ns", "ns",                                                              \
		"sum over these: how long they had waited since the first one when their core " \
		"last looked")

static const struct pbox_stat_def job_defs[JOB_STATS] = {
	[JOB_CONTRIBUTIONS] = CONTRIBUTIONS,
	[JOB_CONTRIBUTED_BYTES] = CONTRIBUTED,
	[JOB_REPEATS] = REPEATS,
	[JOB_PULLS] = PULLS,
	[JOB_LAST] = COUNTER("last", "fragments", "fragments that were complete"),
	[JOB_WAITED_NS] = WAITED,
	[JOB_WORKERS] = GAUGE("workers", "workers", "workers that the job has"),
	[JOB_JOINED] = GAUGE("joined", "workers", "workers with a session"),
	[JOB_SILENT] = GAUGE("silent", "workers", "workers silent beyond their lease"),
	[JOB_TABLES] = GAUGE("tables", "tables", "tables that were declared"),
	[JOB_BYTES] = GAUGE("bytes", "bytes", "parameter memory of its tables"),
	[JOB_WINDOW] =
		GAUGE("window", "frames", "frames that a worker may have under way to an endpoint"),
	[JOB_ROUND] = GAUGE("round", "", "newest round of which a fragment is finished"),
	[JOB_AGE_MS] = GAUGE("age_ms", "ms", "since its first worker came"),
	[JOB_KEPT_MS] = GAUGE("kept_ms", "ms",
		"since its run is kept, all its workers being silent; 0: one lives"),
};

static const struct pbox_stat_def worker_defs[WORKER_STATS] = {
	[WORKER_CONTRIBUTIONS] = CONTRIBUTIONS,
	[WORKER_CONTRIBUTED_BYTES] = CONTRIBUTED,
	[WORKER_REPEATS] = REPEATS,
	[WORKER_PULLS] = PULLS,
	[WORKER_LAST] = LAST,
	[WORKER_WAITED_NS] = WAITED,
	[WORKER_SILENT_MS] = GAUGE("silent_ms", "ms", "since it was heard"),
	[WORKER_LEASE_MS] = GAUGE("lease_ms", "ms", "silence after which it counts as dead"),
	[WORKER_WINDOW] = GAUGE("window", "frames", "frames that it may have under way"),
	[WORKER_TABLES] = GAUGE("tables", "tables", "tables that it declared"),
	[WORKER_ROUND] = GAUGE("round", "", "newest round that it contributed to"),
	[WORKER_LAG] = GAUGE("lag", "rounds", "rounds behind the furthest worker"),
	[WORKER_RTT_US] = GAUGE("rtt_us", "us",
		"round trip of a PING that the box sent when it was last asked; 0: not known yet"),
};

static const struct pbox_stat_def pool_defs[POOL_STATS] = {
	[POOL_SIZE] = GAUGE("size", "packets", "packet buffers of the pool"),
	[POOL_IN_USE] = GAUGE("in_use", "packets", "those with a packet in them"),
	[POOL_FREE] = GAUGE("free", "packets", "those without"),
	[POOL_CACHED] = GAUGE("cached", "packets", "free ones that one core keeps for itself"),
	[POOL_LOW_WATER] = GAUGE("low_water", "packets", "fewest free ones ever seen"),
};

static const struct pbox_stat_def load_defs[LOAD_STATS] = {
	[LOAD_HEARTBEAT_MS] = GAUGE("heartbeat_ms", "ms", "since it was seen turning"),
	[LOAD_BUSY] = GAUGE("busy_permille", "permille", "share of time with work"),
	[LOAD_STOLEN] = GAUGE(
		"stolen_permille", "permille", "share of time that its CPU ran something else"),
	[LOAD_CYCLES_PER_PACKET] =
		GAUGE("cycles_per_packet", "cycles", "TSC cycles with work for a packet"),
	[LOAD_MAIL] = GAUGE("share_mail", "permille", "of the time with work: mail of control"),
	[LOAD_RECEIVE] = GAUGE("share_receive", "permille", "receiving and parsing"),
	[LOAD_ENGINE] = GAUGE("share_engine", "permille", "look-up, sums, optimiser"),
	[LOAD_ANSWER] = GAUGE("share_answer", "permille", "making answers"),
	[LOAD_TRANSMIT] = GAUGE("share_transmit", "permille", "giving packets to ports"),
	[LOAD_STOLEN_NS] = COUNTER("stolen_ns", "ns", "time that its CPU ran something else"),
};

const struct pbox_stats_table pbox_control_tables[PBOX_COUNTERS_TABLES] = {
	[PBOX_COUNTERS_PORT] = {"port", "a port, as its device counts", control_port_stat_defs,
		PORT_STATS},
	[PBOX_COUNTERS_CORE] = {"core", "packets and time of a data core", pbox_core_stat_defs,
		PBOX_CS_STATS},
	[PBOX_COUNTERS_SHARD] = {"shard", "data frames of a data core", pbox_shard_stat_defs,
		PBOX_SS_STATS},
	[PBOX_COUNTERS_REGISTRAR] = {"registrar", "control frames: sessions and tables",
		pbox_registrar_stat_defs, PBOX_RS_STATS},
	[PBOX_COUNTERS_CONTROL] = {"control", "the control thread", pbox_control_stat_defs,
		PBOX_CT_STATS},
	[PBOX_COUNTERS_LOAD] = {"load", "a data core in the last half to whole second", load_defs,
		LOAD_STATS},
	[PBOX_COUNTERS_POOL] = {"pool", "a pool of packet buffers", pool_defs, POOL_STATS},
	[PBOX_COUNTERS_JOB] = {"job", "a job", job_defs, JOB_STATS},
	[PBOX_COUNTERS_WORKER] = {"worker", "a worker of a job", worker_defs, WORKER_STATS},
};
