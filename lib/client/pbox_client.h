/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_CLIENT_H
#define PBOX_CLIENT_H

/**
 * @file
 * The worker side of PBox: push gradients, get sums or parameters, over a kernel UDP socket or
 * another transport (pbox_client_transport.h).
 *
 * A client is one session: one worker of one job. It owns one progress thread, which does all
 * sending, receiving, retransmission and keep-alive; the functions below hand it work and may be
 * called from any thread. Nothing here prints, exits or raises signals.
 *
 * Every blocking call has a deadline in milliseconds (0: that of the configuration). Each failure
 * returns a negative PBOX_C_* code and fills the caller's `struct pbox_client_error` (may be
 * NULL) with a cause that names what is missing and the next step, such as "round 12 of tensor
 * 'fc.weight': 3 of 4 workers have pushed; missing worker 2 (host gpu7, silent for 9.8 s)".
 *
 * Buffers are the caller's. The library sends from and receives into them directly; between
 * submit and completion the caller must neither change `in`, nor read `out`, nor free either.
 * `in` and `out` may be the same buffer.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PBOX_CLIENT_API __attribute__((visibility("default")))

/** Return codes; negative ones are failures. */
enum pbox_client_code {
	PBOX_C_OK = 0,
	PBOX_C_PENDING = 1,      /**< pbox_client_test: not complete yet */
	PBOX_C_INVALID = -1,     /**< an argument is out of range */
	PBOX_C_SYSTEM = -2,      /**< a system call failed; text has errno's meaning */
	PBOX_C_UNREACHABLE = -3, /**< nothing answered within the deadline */
	PBOX_C_VERSION = -4,     /**< box and library speak different versions */
	PBOX_C_NO_JOB = -5,      /**< the box has no such job */
	PBOX_C_SECRET = -6,      /**< the job's secret differs (ours or the box's) */
	PBOX_C_REFUSED = -7,     /**< the box refused for another reason; text has it */
	PBOX_C_MISMATCH = -8,    /**< workers disagree on tensors or numbers */
	PBOX_C_DEADLINE = -9,    /**< a wait expired; text says what was missing */
	PBOX_C_LOST = -10,       /**< the session ended, and what it held cannot be had again */
	PBOX_C_MTU = -11,        /**< frames of the configured size do not get through */
	PBOX_C_MEMORY = -12,     /**< out of memory, here or on the box (text says) */
	PBOX_C_CLOSED = -13,     /**< the client was closed while waiting */
	PBOX_C_RUNNING =
		-14, /**< the job's run has begun without this worker, and a worker lives in it */
	PBOX_C_RUN_ENDED = -15, /**< another run of the job has begun; final */
};

struct pbox_client_error {
	int code;
	char text[512];
};

/** Configuration; start from pbox_client_conf_init(). Strings are copied by open. */
struct pbox_client_conf {
	size_t size;         /**< sizeof(struct pbox_client_conf), for later fields */
	const char *box;     /**< "10.0.0.1" or "10.0.0.1:7269" or a host name */
	const char *job;     /**< 1 to 63 bytes */
	const char *secret;  /**< the job's; may be empty for jobs marked insecure */
	const char *bind;    /**< local address, or NULL */
	const char *host;    /**< name of this worker in messages; NULL: host name */
	int worker;          /**< 0-based; -1: any free one */
	unsigned workers;    /**< of the job, including this one */
	unsigned mtu;        /**< IP MTU; 0: the interface's, checked end to end at open */
	unsigned window;     /**< frames in flight per endpoint; 0: what box and socket allow */
	unsigned lease_ms;   /**< 0: the box's default */
	unsigned timeout_ms; /**< default deadline of waits; init sets 60000 */
	unsigned join_timeout_ms;   /**< deadline of open; init sets 10000 */
	int gso;                    /**< UDP segmentation offload: 1 on, 0 off, -1 probe (init) */
	int spin_us;                /**< busy-poll this long before sleeping; init sets 0 */
	unsigned min_rto_us;        /**< floor of the retransmission time-out; 0: default 5000 */
	const char *transport;      /**< what carries the datagrams; NULL: "udp", kernel sockets */
	const char *transport_args; /**< for it; see its own page */
	/** 1 (init): keep a copy of the last result of every fragment (memory of one model), so that
	 * this worker goes on after a restart of the box; 0: PBOX_C_LOST then. */
	int keep_copies;
	unsigned policy; /**< when a worker is dead, rounds 0: wait for it, 1: go on without it */
	/** Frames have tags that nobody can forge who does not know the secret, 0: if the job has
	 * auth on the box; 1: required, PBOX_C_REFUSED if it has not. */
	unsigned auth;
	/** The time-out above counts from when the worker that is missing was last heard of by the box:
	 * so waits go on while it lives, and computes. They end after this at the latest; init sets
	 * 1800000 (30 minutes). */
	unsigned patience_ms;
	/** A wait ends when the worker that is missing has left (by close, or ended by the operator of the
	 * box), or was refused, for so long, and nobody has taken its number; init sets 1200. */
	unsigned left_ms;
	/** The run that this worker belongs to, any text; all workers of one start of the job say the same,
	 * and no other start does. The first that comes with another one ends the run that the box has
	 * of this job, at once, and begins from nothing. NULL or empty: it names none, and joins what
	 * there is. If its run has begun already, see pbox_client_table.first_round. */
	const char *run;
};

/** A tensor as declared. */
struct pbox_client_tensor {
	const char *name;  /**< for messages; NULL: its number */
	uint64_t elements; /**< 0 is allowed */
	uint16_t group;    /**< hyper-parameter group */
};

/** See pbox_client_table.first_round. */
#define PBOX_CLIENT_ROUND_ANY UINT32_MAX

/** Numbers are those of the protocol (R2.3, R5.1 to R5.3). */
struct pbox_client_table {
	size_t size;         /**< sizeof(struct pbox_client_table) */
	uint8_t mode;        /**< 0 all-reduce, 1 optimiser on the box */
	uint8_t op;          /**< 0 sum, 1 mean, 2 sample mean, 3 weighted mean */
	uint8_t optimiser;   /**< 0 none; the others: pbox_client_name(), doc/optimisers.md */
	uint8_t push_format; /**< 1 fp32, 2 bf16, 3 fp16: of `in` buffers and on the wire */
	uint8_t pull_format; /**< of `out` buffers and on the wire */
	unsigned n;
	const struct pbox_client_tensor *tensors;
	/** Round of the first push. 0: the one after the box's version. A worker that was killed and
	 * goes on from its own checkpoint of round s says s + 1: fragments that have had its
	 * contribution to that round answer with their result, the others take it. In a job that
	 * has not begun rounds count from 1 whatever this says. A worker that has said it of no table takes
	 * no part in one that has begun (PBOX_C_RUNNING), but with policy shrink, if it names the run
	 * (conf.run). PBOX_CLIENT_ROUND_ANY: whatever round comes, for programs whose contributions are
	 * right in each: they have no state of their own, or get it from another worker. */
	uint32_t first_round;
};

/** One tensor of a submitted operation. */
struct pbox_client_io {
	uint32_t tensor; /**< index in its table */
	const void *in;  /**< elements in the push format; NULL for pull */
	void *out;       /**< elements in the pull format; NULL for push and init */
};

enum pbox_client_kind {
	PBOX_CLIENT_PUSHPULL = 0,
	PBOX_CLIENT_PUSH = 1,
	PBOX_CLIENT_PULL =
		2, /**< the version that this client's last push leads to; at first: initial */
	PBOX_CLIENT_INIT = 3, /**< fp32 `in`; worker 0 only */
	/** Optimiser on the box, fp32, all tensors of the table at once; `weight` says which array: 0
	 * parameters, 1 and 2 the optimiser's state (momentum; Adam's first and second moment). Of the version
	 * that this client's last push led to. The workers must not push meanwhile. */
	PBOX_CLIENT_FETCH = 4, /**< to `out` */
	PBOX_CLIENT_GIVE = 5,  /**< from `in`, in place of what the box has; worker 0 only */
};

struct pbox_client_hyper {
	uint16_t id; /**< R7.1 */
	double value;
};

/** Totals since open; a snapshot. */
struct pbox_client_stats {
	size_t size; /**< set by the caller to sizeof(struct pbox_client_stats) */
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes; /**< UDP payload bytes */
	uint64_t useful_tx_bytes, useful_rx_bytes;         /**< element bytes, each counted once */
	uint64_t retransmitted_frames, retransmitted_bytes, probes;
	uint64_t rx_duplicates, rx_dropped;
	uint64_t fragments_done, operations_done;
	uint64_t srtt_ns, rttvar_ns, min_rtt_ns;
	uint64_t held_ns_sum; /**< time answers were held for other workers */
	uint32_t window, window_max;
	uint32_t gso_active, gro_active, mtu, endpoints;
	uint32_t contributors;         /**< of the latest result */
	uint64_t samples;              /**< of the latest result */
	uint64_t tx_by_ref, tx_copied; /**< payload bytes that the transport took from the caller's
					  memory, and those that it copied; udp: 0, 0 */
	uint64_t tx_failed, rx_failed; /**< datagrams that the transport lost */
	uint64_t restarts;             /**< sessions begun anew: of the box, mostly */
	uint64_t restored_fragments;   /**< that the box was told of then */
	uint64_t restore_ms;           /**< from the loss of the session on until all was told, the
					  last time */
	uint64_t rx_drop_auth; /**< frames of somebody else: without a tag, or a wrong one */
	uint64_t auth;         /**< 1: frames have tags */
	uint64_t
		unproven; /**< 1: the job is insecure: the box has not proven that it knows the secret */
};

struct pbox_client;
typedef uint64_t pbox_client_handle; /**< 0 is never valid */

PBOX_CLIENT_API const char *pbox_client_version(void);
PBOX_CLIENT_API const char *pbox_client_code_name(int code); /**< "SECRET" */

/** What the protocol calls a number that structures here have: @p what is "format", "op", "optimiser", "hyper" or
 * "policy". NULL: there is no such number. */
PBOX_CLIENT_API const char *pbox_client_name(const char *what, unsigned number);

/** The defaults, into as many bytes as the caller's structure has. */
PBOX_CLIENT_API void pbox_client_conf_init_sized(struct pbox_client_conf *conf, size_t size);
/** For programs that were built before there was keep_copies: fills what they know. */
PBOX_CLIENT_API void pbox_client_conf_init(struct pbox_client_conf *conf);
#define pbox_client_conf_init(conf) pbox_client_conf_init_sized((conf), sizeof(*(conf)))

/** Join. On success *out owns the session until pbox_client_close. */
PBOX_CLIENT_API int pbox_client_open(struct pbox_client **out, const struct pbox_client_conf *conf,
	struct pbox_client_error *err);

/** Memory for tensors that the client's transport can send from without copying (with kernel
 * sockets: any memory), aligned to 64 bytes, not cleared. NULL: there is not enough. Any thread.
 * The caller's until pbox_client_free(), which must come before pbox_client_close(); while operations are
 * in flight, those too whose wait has expired, it stays until they have ended. */
PBOX_CLIENT_API void *pbox_client_alloc(struct pbox_client *c, size_t bytes);
PBOX_CLIENT_API void pbox_client_free(struct pbox_client *c, void *memory);

/** Number given to this worker, and the job's number of workers. */
PBOX_CLIENT_API unsigned pbox_client_worker(const struct pbox_client *c);
PBOX_CLIENT_API unsigned pbox_client_workers(const struct pbox_client *c);

/**
 * Declare a table and wait until all workers have declared it and the map is here. While the job's run has
 * begun, and may be that of workers that are dead, it is asked again until the deadline (PBOX_C_RUNNING).
 * @param table  set to its number: 0, 1, ... in the order of calls, which must be the same on
 *               all workers
 */
PBOX_CLIENT_API int pbox_client_declare(struct pbox_client *c, const struct pbox_client_table *t,
	unsigned timeout_ms, uint32_t *table, struct pbox_client_error *err);

/** Round of this client's next push to a table; 0: there is no such table. */
PBOX_CLIENT_API uint32_t pbox_client_next_round(struct pbox_client *c, uint32_t table);

/** Hyper-parameters of a group (0xFFFF: all) from a round on; returns when they hold (R7.3).
 * @param from_round  0: from this client's next round of the table on */
PBOX_CLIENT_API int pbox_client_set(struct pbox_client *c, uint32_t table, uint16_t group,
	uint32_t from_round, const struct pbox_client_hyper *h, unsigned n,
	struct pbox_client_error *err);

/**
 * Submit an operation on some or all tensors of a table; returns at once.
 *
 * Each PUSHPULL or PUSH of a tensor is its next round. Small tensors may share a fragment, which
 * goes when all of them have been submitted for that round. All workers must submit their tensors
 * in the same order; priorities change the order on the wire, not that of submission.
 *
 * @param priority  0 goes first; lower ones overtake queued fragments, not those in flight
 * @param weight    sample count of this contribution (1 where it does not matter)
 */
PBOX_CLIENT_API int pbox_client_submit(struct pbox_client *c, uint32_t table,
	enum pbox_client_kind kind, const struct pbox_client_io *io, unsigned n, uint8_t priority,
	uint32_t weight, pbox_client_handle *handle, struct pbox_client_error *err);

/** Wait for a handle and release it. @p timeout_ms 0: those of the configuration (timeout_ms, patience_ms). Ends early
 * (left_ms) when the worker that is missing has left or was refused: the text has the box's words. After DEADLINE the handle is still valid: wait again, or
 * close. Any number of handles may be in flight, completed in any order. */
PBOX_CLIENT_API int pbox_client_wait(struct pbox_client *c, pbox_client_handle handle,
	unsigned timeout_ms, struct pbox_client_error *err);
/** A wait in slices; zeroed before the first one. */
struct pbox_client_waiting {
	unsigned timeout_ms; /**< as of pbox_client_wait */
	uint64_t state[8];
};
/** As pbox_client_wait, but PBOX_C_PENDING after @p slice_ms: call it again, with the same @p waiting.
 * @p handle 0: has waiting for the oldest operation been in vain? At once PENDING, or DEADLINE with the reason. */
PBOX_CLIENT_API int pbox_client_wait_on(struct pbox_client *c, pbox_client_handle handle,
	struct pbox_client_waiting *waiting, unsigned slice_ms, struct pbox_client_error *err);
/** PBOX_C_PENDING, or as wait, and then the handle is released. */
PBOX_CLIENT_API int pbox_client_test(
	struct pbox_client *c, pbox_client_handle handle, struct pbox_client_error *err);
/** Call @p done from the progress thread when the operation ends (at once, from this thread, if
 * it has). It may submit, but must not wait or close. The handle is released when it returns. For bindings that complete futures. */
PBOX_CLIENT_API int pbox_client_notify(struct pbox_client *c, pbox_client_handle handle,
	void (*done)(void *ctx, int code, const char *text), void *ctx);

/** submit and wait in one. After DEADLINE the operation goes on, and uses its memory, until the box has
 * answered it, or pbox_client_close(). */
PBOX_CLIENT_API int pbox_client_run(struct pbox_client *c, uint32_t table,
	enum pbox_client_kind kind, const struct pbox_client_io *io, unsigned n, uint32_t weight,
	unsigned timeout_ms, struct pbox_client_error *err);

/** What the job looks like from the box: members, silent ones, tables; text for a person. */
PBOX_CLIENT_API int pbox_client_status(
	struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err);
/** What this client waits for right now, in words; "nothing" when idle. */
PBOX_CLIENT_API int pbox_client_why(
	struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err);

PBOX_CLIENT_API void pbox_client_stats(
	const struct pbox_client *c, struct pbox_client_stats *stats);

/** Leave (told to the box, bounded by 1 s), stop the thread, fail what is in flight with
 * PBOX_C_CLOSED, free everything. NULL is allowed. */
PBOX_CLIENT_API void pbox_client_close(struct pbox_client *c);

#ifdef __cplusplus
}
#endif

#endif /* PBOX_CLIENT_H */
