/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "tables.h"

static const struct pbox_stat_def job_defs[JOB_STATS] = {JOB_VALUES(PBOX_STAT_DEF)};
static const struct pbox_stat_def worker_defs[WORKER_STATS] = {WORKER_VALUES(PBOX_STAT_DEF)};
static const struct pbox_stat_def pool_defs[POOL_STATS] = {POOL_VALUES(PBOX_STAT_DEF)};
static const struct pbox_stat_def load_defs[LOAD_STATS] = {LOAD_VALUES(PBOX_STAT_DEF)};

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
