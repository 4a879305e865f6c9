/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_OPTIONS_H
#define PBOX_OPTIONS_H

/**
 * @file
 * The options of the pbox daemon. The table of each says what it means (pbox_options.c, job_options.c), from which
 * --help, config/pbox.conf.sample and pbox(8) are made.
 */

#include <pbox_bounds.h>
#include <pbox_modes.h>
#include <pbox_wire_enums.h>

#include "pbox_conf.h"

/** Ports and jobs that a configuration may name. */
#define PBOX_OPTIONS_PORTS 32
#define PBOX_OPTIONS_JOBS  256
/** A box is of one fleet. */
#define PBOX_OPTIONS_CLUSTERS 1

/** Read when there is no --config; it need not exist. */
#define PBOX_OPTIONS_FILE "/etc/pbox/pbox.conf"

/** In the order of the names in the table. */
enum pbox_opt_help { PBOX_OPTION_HELP_NONE, PBOX_OPTION_HELP_SHORT, PBOX_OPTION_HELP_ALL };
enum pbox_opt_reduce {
	PBOX_OPTION_REDUCE_AUTO,
	PBOX_OPTION_REDUCE_SCALAR,
	PBOX_OPTION_REDUCE_AVX2,
	PBOX_OPTION_REDUCE_AVX512,
};
enum pbox_opt_snapshot {
	PBOX_OPTION_SNAPSHOT_AUTO,
	PBOX_OPTION_SNAPSHOT_NO,
	PBOX_OPTION_SNAPSHOT_YES
};

enum pbox_opt_sandbox {
	PBOX_OPTION_SANDBOX_AUTO, /**< where the kernel has it */
	PBOX_OPTION_SANDBOX_NO,
	PBOX_OPTION_SANDBOX_YES, /**< or the start fails */
};

/** [port NAME] */
struct pbox_port_options {
	char name[PBOX_CONF_NAME_MAX + 1]; /**< port number or DPDK device name */
	struct pbox_conf_prefix address;
	bool shared;               /* by several ports */
	uint32_t mtu;              /**< 0: what the port has, or 1500 */
	uint32_t queues;           /**< 0: as many as cores poll it */
	uint32_t rx_desc, tx_desc; /**< 0: auto */
	enum pbox_steer steer;
	struct pbox_conf_cores cores; /**< lcores; empty: all of the port's NUMA node */
};

/** [job NAME]; [job *] is for all names that have no section of their own. */
struct pbox_job_options {
	char name[PBOX_CONF_NAME_MAX + 1];
	struct pbox_conf_secret secret; /**< len 0 only if insecure */
	bool insecure;
	bool auth;        /**< frames have tags; needs a secret */
	uint32_t workers; /**< 0: what the first worker says */
	struct pbox_job_bounds bounds;
	uint32_t max_jobs; /**< of [job *]: at the same time; 0: no limit but the box's */
	enum pbox_policy policy;
	enum pbox_opt_snapshot snapshot; /**< of its tables with an optimiser */
	uint64_t snapshot_space;         /**< bytes; 0: no bound */
};

/** etcd may have so many endpoints in a configuration. */
#define PBOX_OPTIONS_ETCDS 9
#define PBOX_OPTIONS_URL   160

/** [cluster NAME]: pbox-agent's. */
struct pbox_cluster_options {
	char name[PBOX_CONF_NAME_MAX + 1]; /**< of the fleet */
	char etcd[1000];                   /**< "http://10.0.0.9:2379, ...": pbox_options_etcd() */
	char ca[256], cert[256], key[256]; /**< of TLS; "": none */
	char user[64];
	struct pbox_conf_secret password;
	uint64_t lease_ns;
	bool balance, balance_scale;
	uint64_t failover_ns;    /**< 0: none */
	uint32_t balance_window; /**< rounds */
};

/** About 100 KiB: not for a stack. Holds secrets: pbox_options_wipe() when done. */
struct pbox_options {
	enum pbox_opt_help help;
	bool version;
	bool counters;    /**< print the table of counters and exit */
	bool check;       /**< validate and exit */
	char config[256]; /**< "none": read no file */

	enum pbox_idle cores_idle;
	uint64_t memory;      /**< bytes of parameter memory per NUMA node; 0: auto */
	uint32_t hold;        /**< received packets held per core */
	uint32_t max_jobs;    /**< at the same time */
	uint32_t max_workers; /**< per job */
	uint64_t chunk_bytes;
	char upstream[64]; /**< "": no rack; "10.0.0.9:7269": pbox_options_upstream() */
	char rack[16];     /**< "1/2": pbox_options_rack() */
	char boxes[512];   /**< "": this one alone; "10.0.0.1, 10.0.0.2": pbox_options_boxes() */
	uint32_t control_port;
	uint64_t lease_ns;
	uint64_t grace_ns; /**< 0: runs are not kept */
	uint64_t drain_ns;
	enum pbox_log_level log_level;
	char log_file[256];         /**< "": standard error */
	uint64_t stats_interval_ns; /**< 0: off */
	enum pbox_opt_reduce reduce;
	char snapshot_dir[256];   /**< "": no snapshots */
	uint64_t snapshot_memory; /**< bytes for a copy of the largest table; 0: no snapshots */
	uint64_t snapshot_interval_ns; /**< 0: only when asked for */
	uint64_t snapshot_final_ns;    /**< 0: none at a clean stop */
	uint32_t snapshot_keep;
	uint64_t snapshot_space;  /**< bytes in snapshot_dir; 0: no bound */
	uint64_t snapshot_age_ns; /**< of those of jobs that do not run; 0: no bound */
	char snapshot_parity[16]; /**< "16+2": pbox_options_parity() */
	bool snapshot_compress;
	char user[64]; /**< to become after the start; "": stay */
	enum pbox_opt_sandbox sandbox;

	unsigned n_ports, n_jobs, n_clusters;
	struct pbox_port_options ports[PBOX_OPTIONS_PORTS];
	struct pbox_job_options jobs[PBOX_OPTIONS_JOBS];
	struct pbox_cluster_options clusters[PBOX_OPTIONS_CLUSTERS];
};

/** The table: for pbox_conf_help(), pbox_conf_sample(), pbox_conf_man(). */
extern const struct pbox_conf_table pbox_options_table;

/**
 * Read command line and file, and check all.
 *
 * With --help or --version nothing else is read or checked: look at o->help and o->version first.
 * The file is o->config; only the default one may be missing.
 *
 * @param o  the caller's; all of it is set. On error wiped.
 * @return  where the values come from, for pbox_conf_where() and pbox_conf_dump(), to be freed with
 *   pbox_conf_free() (before @p o is freed); NULL and @p err on errors.
 */
struct pbox_conf *pbox_options_load(
	struct pbox_options *o, int argc, char *const argv[], struct pbox_error *err);

/**
 * The first of EAL's arguments (all before "--") that is an option of pbox, without its value; NULL:
 * there is none. Short options and those that EAL has too are taken for EAL's.
 */
const char *pbox_options_misplaced(int argc, char *const argv[]);

/** Check what options mean together; pbox_options_load() has done that. */
int pbox_options_check(
	const struct pbox_options *o, const struct pbox_conf *conf, struct pbox_error *err);

#define PBOX_OPTIONS_BOXES 16
/** Addresses of boxes, from "10.0.0.1, 10.0.0.2": their number, 2 at least. -EINVAL with @p err. */
int pbox_options_boxes(
	const char *text, uint8_t addr[PBOX_OPTIONS_BOXES][4], struct pbox_error *err);
/** Which of them is this box, by the addresses of its ports? -EINVAL with @p err. */
int pbox_options_box(const struct pbox_options *o, struct pbox_error *err);

/** An upper box, from "10.0.0.9" or "10.0.0.9:7269". -EINVAL with @p err. */
int pbox_options_upstream(
	const char *text, uint8_t addr[4], uint16_t *port, struct pbox_error *err);
/** Which rack of how many, from "1/2". -EINVAL with @p err. */
int pbox_options_rack(const char *text, unsigned *rack, unsigned *racks, struct pbox_error *err);

/** The rule between lease, failover and the time limit of workers: this must be longer than so many ns, or an operation that waits for a
 * dead box ends before its job goes on without that. 0: failover is none. */
uint64_t pbox_options_timeout(const struct pbox_cluster_options *c);
/** Endpoints of etcd, from "http://10.0.0.9:2379, http://10.0.0.10:2379": their number, each without a / at its end. -EINVAL
 * with @p err. */
int pbox_options_etcd(
	const char *text, char url[PBOX_OPTIONS_ETCDS][PBOX_OPTIONS_URL], struct pbox_error *err);

/** Blocks of data and of parity in a stripe, from "K+M". -EINVAL with @p err. */
int pbox_options_parity(const char *text, unsigned *data, unsigned *parity, struct pbox_error *err);

/** Overwrite everything, secrets first of all, with zeros. */
void pbox_options_wipe(struct pbox_options *o);

#endif /* PBOX_OPTIONS_H */
