/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_CONTROL_H
#define PBOX_CONTROL_H

/**
 * @file
 * The control thread: joining and all that is not data, watching, statistics, and the clean stop.
 *
 * It may allocate and log; the data cores never wait for it.
 */

#include <pbox_dataplane.h>
#include <pbox_registrar.h>

#include "pbox_notify.h"

struct pbox_control;

/** Snapshots of parameters and optimiser state. */
struct pbox_control_snapshot {
	const char *dir; /**< NULL: none */
	void *memory;    /**< 64-byte aligned, for a copy of the largest table */
	size_t size;
	uint64_t interval_ns; /**< 0: only when asked for */
	uint64_t final_ns;    /**< for those of a clean stop, at most; 0: none are taken then */
	unsigned keep;        /**< of each table */
	uint64_t space;       /**< bytes in dir; 0: no bound */
	uint64_t age_ns;      /**< of those of jobs that do not run; 0: no bound */
	unsigned stripe_data, stripe_parity;
	bool compress;
};

/** What data cores get to return in when all is stopped. */
#define PBOX_CONTROL_LATE_NS UINT64_C(5000000000)

struct pbox_control_conf {
	struct pbox_dp *dp;
	struct pbox_port *port; /**< those of dp */
	unsigned n_ports, n_cores;
	const struct pbox_port_core *core;
	/** ops, ctx and stats are filled in here; what it points to must live as long. */
	struct pbox_registrar_conf registrar;
	/** Of a rack's box (registrar.rack): its upper box, network order. */
	uint32_t upper_ip;
	uint16_t upper_udp;
	const char *host;           /**< name of this box there; lives as long */
	uint64_t stats_interval_ns; /**< a line of statistics this often; 0: never */
	uint64_t drain_ns;          /**< longest time that a clean stop may take */
	/** A data core had PBOX_CONTROL_LATE_NS to return and did not: nothing of the box can be closed. The control
	 * thread's; need not return. NULL: the thread ends as usual. */
	void (*late)(unsigned core);
	const struct pbox_notify *notify; /**< the service manager; lives as long; NULL: none */
	const char *report;               /**< for telemetry; lives as long */
	bool capture;                     /**< pdump runs: telemetry says so */
	bool cluster; /**< pbox-agent is to run beside this box: health says when it does not */
	struct pbox_control_snapshot snapshot; /**< its strings and memory live as long */
	/** On a thread of its own, when pbox_control_reload() has been called; NULL: never. */
	void (*reload)(void *ctx, struct pbox_control *c);
	void *reload_ctx;
	/** What the files say now against what holds: @p differs is called for each difference, with what is there now;
	 * restart: it does not hold before one. A thread of telemetry's, which may wait for a disk; with reload_ctx.
	 * 0, or -errno with @p err: the files cannot be read. NULL: not known. */
	int (*compare)(void *ctx, void (*differs)(void *to, bool restart, const char *text),
		void *to, struct pbox_error *err);
};

/** What can change while a box runs. */
struct pbox_control_live {
	const struct pbox_job_conf *job; /**< lives until it is replaced */
	unsigned n_jobs;
	uint32_t lease_ms, grace_ms;
	uint64_t stats_interval_ns, drain_ns, snapshot_interval_ns, snapshot_final_ns;
	uint64_t snapshot_space, snapshot_age_ns;
};

/* Values of the control thread; after those that it TAKES come the frames that lib/wire refuses. */
/* clang-format off */
#define PBOX_CONTROL_TAKES(X) \
	X(PBOX_CT_DATAGRAMS, COUNTER, datagrams, "packets", "datagrams taken from data cores") \
	X(PBOX_CT_FRAMES, COUNTER, frames, "frames", "frames found in them") \
	X(PBOX_CT_TO_REGISTRAR, COUNTER, to_registrar, "frames", "control frames worked on")
#define PBOX_CONTROL_OTHERS(X) \
	X(PBOX_CT_FRAME_ENDPOINT, COUNTER, frame_endpoint, "frames", "data frame at the control port") \
	X(PBOX_CT_TX, COUNTER, tx, "frames", "frames sent") \
	X(PBOX_CT_TX_LOST, COUNTER, tx_lost, "frames", "not sent: no packet or no room") \
	X(PBOX_CT_MAILS, COUNTER, mails, "mails", "answers of shards") \
	X(PBOX_CT_STUCK, COUNTER, stuck, "seconds", "seconds that a data core did not turn") \
	X(PBOX_CT_SNAPSHOTS, COUNTER, snapshots, "files", "snapshots of tables written") \
	X(PBOX_CT_SNAPSHOTS_FAILED, COUNTER, snapshots_failed, "files", "snapshots that could not be taken or written") \
	X(PBOX_CT_TURNS, COUNTER, turns, "turns", "times that the control thread came by") \
	X(PBOX_CT_LONGEST_TURN, GAUGE, longest_turn, "us", "longest turn of the control thread since the start: so long nobody was answered")
#define PBOX_CONTROL_FRAME_DROP(symbol, number, name, help) PBOX_CT_FRAME_##symbol,

/** Counters of the control thread. Frames: frames = to_registrar + version + drops. */
enum pbox_control_stat {
	PBOX_CONTROL_TAKES(PBOX_STAT_SYMBOL)
	PBOX_WIRE_REFUSALS(PBOX_CONTROL_FRAME_DROP)
	PBOX_CONTROL_OTHERS(PBOX_STAT_SYMBOL)
	PBOX_CT_STATS
};
/* clang-format on */
#define PBOX_CT_FIRST_DROP PBOX_CT_FRAME_MAGIC
#define PBOX_CT_LAST_DROP  PBOX_CT_FRAME_ENDPOINT
extern const struct pbox_stat_def pbox_control_stat_defs[PBOX_CT_STATS];

/** All counters that a box has: every block of pbox_control_stats() is of one of these, and those from
 * LOAD on are made when telemetry is asked. */
enum pbox_control_table {
	PBOX_COUNTERS_PORT,
	PBOX_COUNTERS_CORE,
	PBOX_COUNTERS_SHARD,
	PBOX_COUNTERS_REGISTRAR,
	PBOX_COUNTERS_CONTROL,
	PBOX_COUNTERS_LOAD,
	PBOX_COUNTERS_POOL,
	PBOX_COUNTERS_JOB,
	PBOX_COUNTERS_WORKER,
	PBOX_COUNTERS_TABLES
};
extern const struct pbox_stats_table pbox_control_tables[PBOX_COUNTERS_TABLES];

/** Everything but the thread. NULL and @p err. */
struct pbox_control *pbox_control_create(
	const struct pbox_control_conf *conf, struct pbox_error *err);
/** Start the thread. The cores may run before or after. */
int pbox_control_start(struct pbox_control *c, struct pbox_error *err);
/** Ask for the clean stop: workers get LEFT, jobs end, then the data cores stop. Any thread, also
 * a signal handler. */
void pbox_control_stop(struct pbox_control *c);
/** Ask for conf.reload. Any thread, also a signal handler. */
void pbox_control_reload(struct pbox_control *c);
/** From conf.reload: this holds from now on (pbox_registrar_reload() says of which jobs). */
void pbox_control_change(struct pbox_control *c, const struct pbox_control_live *live);
/** Wait for the thread; the data cores have been asked to stop by then. */
void pbox_control_join(struct pbox_control *c);
/** After pbox_dp_drain(). */
void pbox_control_destroy(struct pbox_control *c);

/** All counters: blocks "core", "shard", "port", "registrar", "control". Any control thread. */
struct pbox_stats *pbox_control_stats(struct pbox_control *c);
/** One step of what the thread does, for programs with a loop of their own (tests): returns the
 * number of frames and mails. Never while the thread runs. */
unsigned pbox_control_step(struct pbox_control *c);
/** Packets that all cores received, accepted and dropped; true if they add up. */
bool pbox_control_conserved(
	const struct pbox_dp *dp, uint64_t *received, uint64_t *accepted, uint64_t *dropped);

#endif /* PBOX_CONTROL_H */
