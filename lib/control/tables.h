/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TABLES_H
#define TABLES_H

/* Figures that are not counted in blocks, but made when somebody asks: each answer of telemetry has all of
 * its table. */

#include "control_priv.h"

/* Of a job, and of a worker: kind is JOB or WORKER. */
/* clang-format off */
#define CONTRIBUTION_VALUES(X, kind, of_last) \
	X(kind##_CONTRIBUTIONS, COUNTER, contributions, "fragments", "fragments brought to a round") \
	X(kind##_CONTRIBUTED_BYTES, COUNTER, contributed_bytes, "bytes", "payload of these") \
	X(kind##_REPEATS, COUNTER, repeats, "fragments", "contributions and results that it sent or asked for again: packets were lost") \
	X(kind##_PULLS, COUNTER, pulls, "frames", "pulls and probes") \
	X(kind##_LAST, COUNTER, last, "fragments", of_last) \
	X(kind##_WAITED_NS, COUNTER, waited_ns, "ns", "sum over these: how long they had waited since the first one when their core last looked")
#define JOB_VALUES(X) \
	CONTRIBUTION_VALUES(X, JOB, "fragments that were complete") \
	X(JOB_WORKERS, GAUGE, workers, "workers", "workers that the job has") \
	X(JOB_SLOTS, GAUGE, slots, "slots", "slots of a round: as many as workers, or what these ask for") \
	X(JOB_JOINED, GAUGE, joined, "workers", "workers with a session") \
	X(JOB_SILENT, GAUGE, silent, "workers", "workers silent beyond their lease") \
	X(JOB_TABLES, GAUGE, tables, "tables", "tables that were declared") \
	X(JOB_BYTES, GAUGE, bytes, "bytes", "parameter memory of its tables") \
	X(JOB_WINDOW, GAUGE, window, "frames", "frames that a worker may have under way to an endpoint") \
	X(JOB_ROUND, GAUGE, round, "", "newest round of which a fragment is finished") \
	X(JOB_AGE_MS, GAUGE, age_ms, "ms", "since its first worker came") \
	X(JOB_KEPT_MS, GAUGE, kept_ms, "ms", "since its run is kept, all its workers being silent; 0: one lives") \
	X(JOB_STATELESS, COUNTER, stateless, "fragments", "fragments that went on here without what their optimiser had gathered, for the box that had it was stopped or lost")
#define WORKER_VALUES(X) \
	CONTRIBUTION_VALUES(X, WORKER, "fragments that were complete with its contribution") \
	X(WORKER_SILENT_MS, GAUGE, silent_ms, "ms", "since it was heard") \
	X(WORKER_LEASE_MS, GAUGE, lease_ms, "ms", "silence after which it counts as dead") \
	X(WORKER_WINDOW, GAUGE, window, "frames", "frames that it may have under way") \
	X(WORKER_TABLES, GAUGE, tables, "tables", "tables that it declared") \
	X(WORKER_ROUND, GAUGE, round, "", "newest round that it contributed to") \
	X(WORKER_LAG, GAUGE, lag, "rounds", "rounds behind the furthest worker") \
	X(WORKER_RTT_US, GAUGE, rtt_us, "us", "round trip of a PING that the box sent when it was last asked; 0: not known yet")
#define POOL_VALUES(X) \
	X(POOL_SIZE, GAUGE, size, "packets", "packet buffers of the pool") \
	X(POOL_IN_USE, GAUGE, in_use, "packets", "those with a packet in them") \
	X(POOL_FREE, GAUGE, free, "packets", "those without") \
	X(POOL_CACHED, GAUGE, cached, "packets", "free ones that one core keeps for itself") \
	X(POOL_LOW_WATER, GAUGE, low_water, "packets", "fewest free ones ever seen")
#define LOAD_VALUES(X) \
	X(LOAD_HEARTBEAT_MS, GAUGE, heartbeat_ms, "ms", "since it was seen turning") \
	X(LOAD_BUSY, GAUGE, busy_permille, "permille", "share of time with work") \
	X(LOAD_STOLEN, GAUGE, stolen_permille, "permille", "share of time that its CPU ran something else") \
	X(LOAD_CYCLES_PER_PACKET, GAUGE, cycles_per_packet, "cycles", "TSC cycles with work for a packet") \
	/* the stages, in the order of the core's counters */ \
	X(LOAD_MAIL, GAUGE, share_mail, "permille", "of the time with work: mail of control") \
	X(LOAD_RECEIVE, GAUGE, share_receive, "permille", "receiving and parsing") \
	X(LOAD_ENGINE, GAUGE, share_engine, "permille", "look-up, sums, optimiser") \
	X(LOAD_ANSWER, GAUGE, share_answer, "permille", "making answers") \
	X(LOAD_TRANSMIT, GAUGE, share_transmit, "permille", "giving packets to ports") \
	X(LOAD_STOLEN_NS, COUNTER, stolen_ns, "ns", "time that its CPU ran something else")
/* clang-format on */
enum job_stat { JOB_VALUES(PBOX_STAT_SYMBOL) JOB_STATS };
enum worker_stat { WORKER_VALUES(PBOX_STAT_SYMBOL) WORKER_STATS };
enum pool_stat { POOL_VALUES(PBOX_STAT_SYMBOL) POOL_STATS };
enum load_stat { LOAD_VALUES(PBOX_STAT_SYMBOL) LOAD_STATS };

#endif /* TABLES_H */
