/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef BENCH_H
#define BENCH_H

/**
 * @file
 * bench_box: the box's own libraries on an in-memory port (drivers/net/mem), and a generator that
 * plays prepared workers at its other side.
 *
 *     options.c  what to measure            rig.c     EAL, port, data plane, control; joining
 *     gen.c      the workers' packets       run.c     timed runs, the bare kernel, the stages
 *     join.c     workers until they push    result.c  figures and their output
 *     alloc.c    counts allocations         watch.c   rounds while somebody asks
 *     bench      the list of configurations
 *
 * Two ways of running. With two cores the box turns on the first and the generator on the second,
 * as a NIC would: gbit_per_s is what comes through. In lockstep both take turns on one core, and only
 * the box's turns are timed: exact, on machines with one free core too, and under callgrind.
 */

#include <stdatomic.h>

#include <pbox_auth.h>
#include <pbox_control.h>
#include <pbox_mem_peer.h>
#include <pbox_worker.h>

#define MAX_RUNS 15

enum traffic {
	T_ROUNDS,  /**< PUSHPULL of all workers: what the box is for */
	T_FOREIGN, /**< not PBox frames: received, parsed, dropped at the first look */
	T_EMPTY,   /**< contributions to a finished round without payload: dropped by the shard */
	T_PULL,    /**< header-only requests, each answered with a fragment */
	T_KINDS
};

struct options {
	unsigned fragment, workers, jobs, train, slots, runs, verify;
	unsigned box_cpu, gen_cpu;
	uint64_t model, resident, packets;
	enum pbox_optimiser optimiser;
	enum pbox_format format;
	const char *kernel; /**< NULL: the best one */
	const char *resident_name;
	const char *telemetry; /**< the --file-prefix under which it answers; NULL: it does not */
	bool shuffle, lockstep, no_huge, json, stages;
	bool auth;        /**< frames have tags */
	bool clock;       /**< a table in clocks, and PUSH alone */
	bool only_rounds; /**< lockstep: nothing but the rounds, for callgrind */
};

int options_parse(struct options *o, int argc, char **argv);
/* What follows from others; false and a message when it cannot be. */
bool options_complete(struct options *o);

/* A worker until it pushes: what carries its datagrams, and its place. */
struct bench_host {
	struct rig *r;
	struct pbox_worker *w;
	struct pbox_worker_ops port;
	unsigned number;
	uint64_t deadline; /* of what it does now, ns */
};

/* A job as its workers know it. */
struct bench_job {
	uint16_t id;
	uint32_t incarnation, first_chunk, fragments, per_chunk, chunks, window;
	uint16_t map_epoch;
	uint64_t *token;             /**< of each worker */
	struct bench_host host;      /**< of worker 0, which stays for: */
	struct pbox_auth_job *auth;  /**< NULL: no tags */
	struct pbox_auth_keys *keys; /**< of each worker */
};

struct rig {
	const struct options *o;
	uint16_t port_id;
	uint16_t mtu;
	uint32_t frag_elements, chunk_elements, hold, rx_desc, tx_desc;
	uint64_t elements; /**< of one job's model */
	bool huge;
	struct pbox_port port;
	struct pbox_port_core core;
	struct pbox_engine_endpoint endpoint;
	struct pbox_job_conf job_conf;
	void *memory;
	size_t memory_size;
	struct pbox_arena *arena;
	struct pbox_reduce_ops
		reduce; /**< a copy of the driver's, so that it can be switched off */
	struct pbox_optim_ops optim;
	const struct pbox_reduce_ops *real_reduce;
	const struct pbox_optim_ops *real_optim;
	struct pbox_dp *dp;
	struct pbox_control *control;
	struct pbox_mem_peer peer;
	struct bench_job *job;
	struct pbox_net_udp_template *headers; /**< towards the box, of each worker: data */
	struct pbox_net_udp_template *control_headers;
};

/* The box turns: in lockstep at once, else its core does (run.c). */
void box_turn(struct rig *r);

void rig_start(struct rig *r, const struct options *o);
/* Everything joined, declared, mapped and initialised; the box must turn by itself or by box_turn. */
void rig_join(struct rig *r);
/** That of the sessions of the joined workers. */
uint64_t join_clock_ns(void);
/* The hyper-parameters that the jobs are given. */
void rig_hyper(const struct options *o, struct pbox_hyper *h);
/* true: all packets came back, all counters add up. */
bool rig_stop(struct rig *r);
uint64_t rig_core(const struct rig *r, enum pbox_core_stat what);
uint64_t rig_shard(const struct rig *r, enum pbox_shard_stat what);

/* One fragment in flight. */
struct flight {
	uint32_t round, fragment; /**< of the job */
	uint16_t job, answers, sent;
	const void **payload; /**< of each worker */
};

/* The slots of a run and the payloads that went into them, for the bare kernel. */
struct gen_log {
	size_t n, cap;        /**< slots */
	const void **payload; /**< workers a slot */
	float **result;
};

struct gen {
	struct rig *r;
	enum traffic kind;
	uint64_t group;                 /**< next to be sent */
	uint64_t oldest;                /**< first that is not answered */
	unsigned groups;                /**< in flight at most */
	unsigned at;                    /**< place in the group being sent */
	uint16_t *order;                /**< places of a group: fragment * workers + worker */
	struct flight *flight;          /**< groups x train */
	uint64_t sent, answered, limit; /**< packets of this run */
	uint64_t verified, wrong, elements_verified, since_verified;
	struct gen_log log;
	bool logging, check_sums;
	uint64_t buffers; /**< different ones used */
	float *scratch;
	float *mirror[3]; /**< parameters and states of all jobs, or NULL */
	uint8_t *flat;
	char why[160]; /**< of the first wrong answer */
};

void gen_start(struct gen *g, struct rig *r);
void gen_free(struct gen *g);
/* A run of @p packets of one kind begins. */
void gen_begin(struct gen *g, enum traffic kind, uint64_t packets);
/* Take answers, send up to @p burst packets; true: something was done. */
bool gen_step(struct gen *g, unsigned burst);
/* All packets of the run sent and answered. */
bool gen_done(const struct gen *g);

/* Times of one run, in TSC ticks. Turns in which another program had the CPU count nowhere. */
struct run_times {
	uint64_t total, total_packets; /**< from the end of a busy turn to the end of the next */
	uint64_t busy, packets;        /**< turns with work */
	uint64_t all_busy, all_packets;
	uint64_t kernel, slots; /**< the bare kernel over the same slots */
	uint64_t allocations;
};

struct result {
	struct options o;
	char kernel[16], optim[16];
	bool huge, ok;
	char why[200];
	unsigned n_runs;
	double core_ghz, tsc_ghz;
	double resident_bytes, window, slots, rx_desc;
	/* medians */
	double gbit, mpps, kernel_gbit, share, busy_share;
	double ns_fragment, tsc_fragment, real_fragment;
	double kernel_tsc;                 /**< of the bare kernel, a received fragment */
	double checked_tsc, checked_share; /**< the same for the kernel that computes CRCs too */
	/* stages, TSC cycles a received fragment; < 0: not measured */
	double receive, lookup, crc, engine, sum, answer;
	double outside;     /**< kernel, CRC of payloads and answer taken off */
	double optim_ratio; /**< fused time over that of the sum alone */
	uint64_t copied, shared, allocations, verified, wrong, folds, dropped, packets;
};

/* Rounds of @p packets, timed; false: they do not come to their end. */
bool run_rounds(struct rig *r, struct gen *g, uint64_t packets, struct run_times *t);
/* Until SIGTERM: lines "nanoseconds, ticks of turns with work, packets, nanoseconds that its thread had a CPU";
 * false: a run did not end. */
bool watch_run(struct rig *r, struct gen *g);
void run_all(const struct options *o, struct result *res);
void result_print(const struct result *res, bool json, bool first);

/* alloc.c: calls of this thread. */
uint64_t alloc_count(void);

#endif /* BENCH_H */
