/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef BOX_H
#define BOX_H

/* The appliance: what its start makes, in order, and its stop unmakes in reverse. */

#include <sched.h>

#include <pbox_arena.h>
#include <pbox_control.h>
#include <pbox_dataplane.h>
#include <pbox_guard.h>
#include <pbox_options.h>
#include <pbox_port.h>
#include <pbox_proof.h>

struct box {
	int argc; /* ours, from "--" on */
	char **argv;
	struct pbox_options opt;
	struct pbox_conf *conf;    /* where options came from */
	struct reloaded *reloaded; /* what holds of them since the last SIGHUP, or NULL */
	cpu_set_t cpus;            /* that this process may use, before EAL pins it */
	bool eal, capture;
	struct pbox_notify notify; /* the service manager */

	/* data cores; NUMA nodes of these, in order of appearance */
	struct pbox_port_core core[PBOX_PORT_CORES];
	unsigned lcore_of[PBOX_PORT_CORES];
	uint8_t node_of[PBOX_PORT_CORES];
	unsigned n_cores;
	int node[PBOX_MAX_NODES];
	unsigned n_nodes;
	bool cpu_shared;
	enum pbox_idle idle;

	struct pbox_port port[PBOX_OPTIONS_PORTS];
	char where[PBOX_OPTIONS_PORTS][128], steer_where[PBOX_OPTIONS_PORTS][256];
	unsigned n_ports; /* open */
	struct pbox_engine_endpoint endpoint[PBOX_MAX_ENDPOINTS];
	unsigned n_endpoints;
	uint16_t mtu; /* smallest of the ports */

	/* NULL: no endpoint's core is on that node */
	void *memory[PBOX_MAX_NODES];
	size_t memory_size[PBOX_MAX_NODES];
	int memory_far[PBOX_MAX_NODES]; /* another node that it lies on, or -1 */
	struct pbox_arena *arena[PBOX_MAX_NODES];
	void *snapshot; /* memory of the copy that is being written, or NULL */

	uint32_t incarnation;
	uint8_t cookie_key[PBOX_COOKIE_KEY_LEN];
	const struct pbox_reduce_ops *reduce;
	const struct pbox_optim_ops *optim;
	struct pbox_job_conf job[PBOX_OPTIONS_JOBS]; /* as it started */
	struct pbox_dp *dp;
	struct pbox_control *control;
	struct pbox_budget budget;
	struct pbox_guard_user user; /* name "": none to become */
	bool guarded, sandboxed;
	char no_sandbox[sizeof(((struct pbox_error *)NULL)->text)]; /* why */
	char report[16384];
};

/* host.c: EAL. */
int host_start(struct box *b, int argc, char **argv, struct pbox_error *err);
/* eal.c: what EAL would say less clearly. The option of EAL that an error about ours names as unknown, or NULL. */
int eal_check(int argc, char **argv, struct pbox_error *err);
const char *eal_misplaced(const char *error);
void host_capture(struct box *b);
void host_stop(struct box *b);
/* guard.c: who the box becomes; its run-time files; then all privileges go. */
int guard_prepare(struct box *b, struct pbox_error *err);
void guard_files(const struct box *b);
int guard_on(struct box *b, struct pbox_error *err);
/* cores.c: data cores, nodes, idle mode. */
int cores_find(struct box *b, struct pbox_error *err);
/* ports.c: configure all ports, plan endpoints; then their pools and queues. */
int ports_prepare(struct box *b, struct pbox_error *err);
int ports_open(struct box *b, struct pbox_error *err);
int ports_start(struct box *b, struct pbox_error *err);
void ports_close(struct box *b);
void ports_free(struct box *b);
/* parameter_memory.c: what the box takes altogether, and is it there; parameter arenas. */
int memory_plan(struct box *b, struct pbox_error *err);
void memory_budget(const struct box *b, struct pbox_budget *budget);
int memory_take(struct box *b, struct pbox_error *err);
void memory_give_back(struct box *b);
/* serve.c: data plane and control; the report. */
int planes_create(struct box *b, struct pbox_error *err);
void planes_destroy(struct box *b);
int serve(struct box *b, struct pbox_error *err);
/* SIGTERM or SIGINT has come. */
bool serve_stop_wanted(void);
int stopped_line(struct box *b);
/* What the registrar knows of [job] sections; out has room for all. Points into o. */
void jobs_conf(const struct pbox_options *o, struct pbox_job_conf *out);
void jobs_warn(const struct pbox_options *o, const struct pbox_conf *conf, bool check);
void cluster_warn(const struct pbox_options *o, const struct pbox_conf *conf, bool check);
void report_make(struct box *b);
void report_print(const struct box *b, bool check);
/* reload.c: SIGHUP. On the control thread. */
void reload(void *box, struct pbox_control *c);
/* The same files against what holds, and nothing changes. Any thread. */
int reload_compare(void *box, void (*differs)(void *to, bool restart, const char *text), void *to,
	struct pbox_error *err);
void reload_free(struct box *b);
/* log.c */
int log_open(const struct pbox_options *o, struct pbox_error *err);
/* EAL has started: its --log-level=pbox:LEVEL, where it was given, is the level. */
void log_level_of_eal(void);
/* The first error of DPDK's since the start, "" for none. */
const char *log_error_of_eal(void);
/* From now on a thread writes, and nobody who logs waits for it; until the end, which takes 2 s at most. */
int log_begin(struct pbox_error *err);
void log_end(void);
/* The file again, which may have been renamed. */
void log_reopen(const struct pbox_options *o);
void log_close(void);

#endif /* BOX_H */
