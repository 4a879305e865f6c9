/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_CLIENT_TYPES_H
#define PBOX_CLIENT_TYPES_H

/**
 * @file
 * Types that programs, transports and the core of a worker (lib/worker) share: codes, configuration, tables,
 * operations, datagrams. Programs include pbox_client.h, transports pbox_client_transport.h.
 */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

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
	PBOX_C_LOST = -10,       /**< the session ended, and its state is lost */
	PBOX_C_MTU = -11,        /**< frames of the configured size do not get through */
	PBOX_C_MEMORY = -12,     /**< out of memory, here or on the box (text says) */
	PBOX_C_CLOSED = -13,     /**< the client was closed while waiting */
	PBOX_C_RUNNING =
		-14, /**< the job's run has begun without this worker, and a worker lives in it */
	PBOX_C_RUN_ENDED = -15, /**< another run of the job has begun; final */
	PBOX_C_MORE =
		-16, /**< policy reassign: the round waits for slots that this worker has got: pbox_client_work() */
};

struct pbox_client_error {
	int code;
	char text[512];
};

/** Configuration; start from pbox_client_conf_init(). Strings are copied by open. */
struct pbox_client_conf {
	size_t size; /**< sizeof(struct pbox_client_conf), for later fields */
	const char *
		box; /**< "10.0.0.1" or "10.0.0.1:7269" or a host name; of a job at several boxes all, with commas, or one */
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
	/** When a worker is dead, rounds 0: wait for it, 1: go on without it, 2: go on with its slots given to others (work by plan). */
	unsigned policy;
	/** Frames have tags that nobody can forge who does not know the secret, 0: if the job has
	 * auth on the box; 1: required, PBOX_C_REFUSED if it has not. */
	unsigned auth;
	/** The time-out above counts from when the worker that is missing was last heard of by the box:
	 * so waits go on while it lives, and computes. They end after this at the latest; init sets
	 * 1800000 (30 minutes). */
	unsigned patience_ms;
	/** A wait ends when the worker that is missing has left (by close, or ended by the operator of the
	 * box), or was refused, for so long, and nobody has taken its number; init sets 1200. Not with policy reassign, where others
	 * do what it had to do. */
	unsigned left_ms;
	/** The run that this worker belongs to, any text; all workers of one start of the job say the same,
	 * and no other start does. The first that comes with another one ends the run that the box has
	 * of this job, at once, and begins from nothing. NULL or empty: it names none, and joins what
	 * there is. If its run has begun already, see pbox_client_table.first_round. */
	const char *run;
	/** Slots of the job: shares of each round's work (micro-batches), `workers` to 4096, the same at all
	 * workers. The sum is a function of what the slots bring, whatever the number of workers. 0: as many
	 * as workers. See pbox_client_op.by_nodes. */
	unsigned slots;
	/** Progress threads, 1 to 64, each with a part of the box's endpoints; no more than it has endpoints. 0 (init): the CPUs of this process,
	 * shared among the workers of its host (LOCAL_WORLD_SIZE of the environment, as torchrun sets it; without: 1). One with
	 * transports that have no lanes (dpdk), and with policy reassign. */
	unsigned threads;
	/** Policy reassign: the training begins with this many workers, worker 0 among them, and `workers` is the most that there may be. Others
	 * join while it runs, with the same `run`, and any may leave. 0: it begins with all. Take worker -1, so that each gets a free number. */
	unsigned least;
};

/** What a worker that comes to a running job asks for (pbox_client_work.newcomer). */
enum pbox_client_newcomer {
	PBOX_CLIENT_IN_JOB = 0, /**< it is none */
	/** What is going on: now, now_trained and hyper. Nobody waits for it yet; `nodes` other than 0: it is none, as it began with the job. */
	PBOX_CLIENT_LOOK = 1,
	/** Slots. Returns when the job is at the first round in which it has some, with that one in `round`: pull, compute, push.
	 * The other workers wait for it then. It must not have pushed. `round` and `trained` are those of the last answer. */
	PBOX_CLIENT_BEGIN = 2,
};

/** Which slots are this worker's after pbox_client_work() (pbox_client_work.keep). */
enum pbox_client_keep {
	PBOX_CLIENT_OWN = 0, /**< those that the box says */
	/** It is only a report. The slots stay what they are until pbox_client_work_due() says otherwise, and so do edition, nodes
	 * and next; a push may be unfinished. */
	PBOX_CLIENT_KEEP = 1,
	/** The round before `round` has ended: asks where slots may be others from then on, with `changed` 1. Else all is as with KEEP, but
	 * this call does not wait for an answer: the report goes by itself, if the last one was 50 ms ago. */
	PBOX_CLIENT_TURN = 2,
};

/** A node of the tree over the slots of a job: a contribution to a round is the sum over one. */
struct pbox_client_node {
	uint16_t first, slots; /**< the slots first to first + slots - 1 */
};

/** What a worker of a job with policy reassign reports of its last round, and what it gets to do (pbox_client_work). */
struct pbox_client_work {
	size_t size;    /**< sizeof(struct pbox_client_work) */
	uint32_t round; /**< of the round in progress, or the next one; 0: the next one */
	/* of the round before that; slots 0: no report */
	uint32_t slots; /**< that it computed */
	double compute, fixed, up,
		down; /**< seconds: for all these slots; before them; to push; until the result was here after
					  * the last push was taken */
	/* what all workers must have alike; samples 0: nothing is said */
	uint64_t seed, samples; /**< samples: of the data */
	uint32_t batch;
	uint32_t trained; /**< rounds of the training before `round` */
	/* the answer */
	uint32_t edition, plan;
	uint32_t members;   /**< workers that are there */
	uint32_t leads;     /**< the lowest of them */
	uint32_t nodes;     /**< that this worker brings now (pbox_client_nodes) */
	uint32_t next_from; /**< round from which other slots are its own; 0: it is not known */
	uint32_t next_ranges;
	struct pbox_client_node next[24]; /**< as ranges */
	uint32_t keep;                    /**< enum pbox_client_keep */
	uint32_t newcomer;                /**< enum pbox_client_newcomer */
	uint32_t group;                   /**< whose hyper-parameters the answer has */
	/* the answer */
	uint32_t now; /**< the round in progress */
	uint32_t
		now_trained; /**< rounds of the training before that; UINT32_MAX: nobody has said */
	double hyper[9];     /**< ids 1 and on, as they held in the round before that */
	/* of the report */
	uint32_t memory_known; /**< 1: `fits` is said */
	uint32_t
		fits; /**< samples that this worker's memory holds, of which a slot has batch / V (1 where batch is 0); less than that: it gets no
			 * slots by the next plans, until it says more in 5 reports */
	uint32_t
		changed; /**< the answer: 1: which slots are this worker's was asked, and they may be others */
	double hyper_more[4]; /**< as `hyper`: ids 10 to 13 */
	/** The decision before `round` (pbox_client_set() with the id PBOX_CLIENT_DECISION), or the latest one: the round that it is of; 0: none. */
	uint32_t decided;
	double decision;
};

/** An id for pbox_client_set() that is no hyper-parameter: what the workers of a job with policy reassign decide before from_round, which is
 * given. All that send one send the same (PBOX_C_MISMATCH), and no round may begin before they have. */
#define PBOX_CLIENT_DECISION 14

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
	size_t size;       /**< sizeof(struct pbox_client_table) */
	uint8_t mode;      /**< 0 all-reduce, 1 optimiser on the box */
	uint8_t op;        /**< 0 sum, 1 mean, 2 sample mean, 3 weighted mean */
	uint8_t optimiser; /**< 0 none; the others: pbox_client_name(), doc/optimisers.md */
	/** 1 fp32, 2 bf16, 3 fp16: of `in` buffers and on the wire. 16 int8, 20 mxfp4: on the wire; `in` and `out` are fp32, with error
	 * feedback inside. With mode 0 these go both ways; with keep_copies; and with what doc/modes.md says (push, pull). */
	uint8_t push_format;
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
	/** What makes a version: 0 rounds, a contribution of each worker; 1 clock, each push (pbox_client_versions). With clock op
	 * is 0 and optimiser 6 (add): workers push updates, PUSH and PULL do not wait for each other, and none of them for
	 * other workers. Such a table goes on after a restart of the box in
	 * jobs of 256 workers at most; in larger ones it ends (PBOX_C_LOST). */
	uint8_t discipline;
	/** 1: rounds have two phases, for which the box keeps one fp32 array more: pushes (PUSH alone) are summed, pbox_client_norm() says
	 * the norm of the sums, all workers SET the same coefficient (hyper-parameter 12) for the round, and the first PULL after that
	 * makes the step, of coefficient x sum. With mode 1, policy wait.
	 * Between the first push of a round and the end of its last pull nothing of another table is submitted. */
	uint8_t hold;
	/** 1: pushes, in a format of blocks, may also be in fp32, from one round on and back from another (pbox_client_plain). All workers say the
	 * same. In rounds, without hold, with an op other than weighted mean. */
	uint8_t mixed;
};

/** The norm of a round (pbox_client_norm). */
struct pbox_client_norm {
	size_t size; /**< sizeof(struct pbox_client_norm) */
	/** The sum of the squares of all elements, scaled as op says: the norm is its root. With non-finite ones, of the others. */
	double square;
	uint64_t non_finite; /**< elements that are none, or beyond 2^55 x max_norm */
	double coefficient;  /**< that the box has of this round already; 0: none */
	/** 0: square and non_finite are not known any more, as the box was restarted after the coefficient was set: that holds, or, if it
	 * is 0, the box has the version of the round, and it is there to be pulled. */
	uint32_t known;
};

/** See pbox_client_versions. */
#define PBOX_CLIENT_ALL_TENSORS UINT32_MAX
/** What a worker knows of its tensors in a table in clocks. Versions and clocks are counted by fragment. */
struct pbox_client_versions {
	size_t size;    /**< set by the caller to sizeof(struct pbox_client_versions) */
	double version; /**< of what the last pull brought: the mean over fragments, */
	uint32_t lowest,
		highest; /**< and its range. A version is the number of pushes that are in it */
	/** Pushes of other workers between the last two pulls, the mean over fragments: how old the first of them has become. */
	double others;
	uint32_t own;      /**< this worker's pushes that have begun */
	uint32_t own_seen; /**< those of them that were in what the last pull brought, at least */
	uint32_t slowest;  /**< pushes of the worker that has made fewest, as the box said last */
	uint32_t members;  /**< workers that the job goes on with */
	uint32_t pulls;    /**< 0: nothing was pulled yet, 1: once, 2: more often */
};

/** One tensor of a submitted operation. */
struct pbox_client_io {
	uint32_t tensor; /**< index in its table */
	const void *in;  /**< elements in the push format; NULL for pull */
	void *out;       /**< elements in the pull format; NULL for push and init */
};

enum pbox_client_kind {
	PBOX_CLIENT_PUSHPULL = 0,
	PBOX_CLIENT_PUSH = 1, /**< not with policy reassign */
	PBOX_CLIENT_PULL =
		2, /**< the version that this client's last push leads to; at first: initial */
	PBOX_CLIENT_INIT = 3, /**< fp32 `in`; worker 0 only */
	/** Optimiser on the box, fp32, all tensors of the table at once; `weight` says which array: 0
	 * parameters, 1 and 2 the optimiser's state (momentum; Adam's first and second moment). Of the version
	 * that this client's last push led to. The workers must not push meanwhile. */
	PBOX_CLIENT_FETCH = 4, /**< to `out` */
	PBOX_CLIENT_GIVE = 5,  /**< from `in`, in place of what the box has; worker 0 only */
};

/** An operation (pbox_client_submit); zeroed but for what it is. */
struct pbox_client_op {
	size_t size; /**< sizeof(struct pbox_client_op) */
	uint32_t table;
	enum pbox_client_kind kind;
	const struct pbox_client_io *io; /**< some or all tensors of the table, */
	unsigned n;                      /**< so many */
	/** Sample count of this contribution; 1 where it does not matter. FETCH and GIVE: which array. Not by nodes. */
	uint32_t weight;
	uint8_t priority; /**< 0 goes first; lower ones overtake queued fragments, not those in flight */
	/** 1: a PUSHPULL or PUSH by nodes: `nodes`, node_in and node_weight are what it brings, and `in` of io is not looked at. */
	uint8_t by_nodes;
	/** 1: all nodes in the round of the last push once more. After a PUSHPULL by nodes has ended with PBOX_C_MORE, and pbox_client_work()
	 * has said which slots this worker has got; or after pbox_client_norm() has ended with PBOX_C_LOST, with PUSH. By nodes. */
	uint8_t again;
	/** Of a table in clocks, 1: a PULL waits until no worker is more than `bound` pushes behind this one's, those that were submitted
	 * before it; 0: it brings the latest at once. With bound 0 all have pushed as often as this worker. */
	uint8_t bounded;
	uint32_t bound; /**< below 2^30 */
	/** As many as pbox_client_nodes says, in its order; in a table with op 3 (weighted mean) as many as the worker has slots. Another
	 * number is PBOX_C_INVALID, and the text says which they are. */
	unsigned nodes;
	/** nodes x n pointers: node_in[node * n + i] is the sum over that node for tensor io[i].tensor, its elements in the push format.
	 * The list is copied; the elements are the caller's, unchanged, until the operation ends. */
	const void *const *node_in;
	const uint32_t *node_weight; /**< sample count by node (the sum over its slots); copied */
	/** Of a push to a table in clocks: the box adds it times this, rounded to bf16 (pbox_client_factor); 0: 1. Tensors that share a
	 * frame (small ones) need the same. */
	float factor;
	/** And 1: it was computed on the version before the one that the last pull brought; 0: on that. For people. */
	uint32_t pulls_ago;
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
	uint64_t held_ns_sum; /**< time for which the box held answers for other workers */
	uint32_t window, window_max;
	uint32_t gso_active, gro_active, mtu, endpoints;
	uint32_t contributors;         /**< of the latest result: slots, where the job has them */
	uint64_t samples;              /**< of the latest result */
	uint64_t tx_by_ref, tx_copied; /**< payload bytes that the transport took from the caller's
					  memory, and those that it copied; udp: 0, 0 */
	uint64_t tx_failed, rx_failed; /**< datagrams that the transport lost */
	uint64_t
		restarts; /**< new sessions after the first one, mostly after restarts of the box */
	uint64_t restored_fragments; /**< that were reported to the box after those */
	uint64_t restore_ms;         /**< from the loss of the session on until all is reported, the
					  last time */
	uint64_t
		rx_drop_auth; /**< frames that are not from the box: without a tag, or a wrong one */
	uint64_t auth;        /**< 1: frames have tags */
	uint64_t
		unproven; /**< 1: the job is insecure: the box has not proven that it knows the secret */
	uint64_t
		partial_results; /**< of fragments, without the contributions of all workers (policy shrink) */
	/** Of tables in clocks, after restarts of the box, by fragment: own pushes that it had lost, and has got again; and those
	 * that are lost, as this worker did not keep them any more. */
	uint64_t redone_pushes, lost_pushes;
	/** Of a job at several boxes: fragments that have gone on at another box, or a restarted one, without what the optimiser had
	 * gathered, and with parameters as precise as results. */
	uint64_t stateless_fragments;
};

/* ---- datagrams ---- */

/** Datagrams in one send, at most. */
#define PBOX_CLIENT_TX_BATCH 512

/** An address that is sent to; the library's memory, the same pointer for the same endpoint. */
struct pbox_client_peer {
	struct sockaddr_in addr;
	uintptr_t cookie; /**< the back end's own; 0 at first */
};

/**
 * A datagram to send. The entries of a batch are one after the other in one array:
 * d[i + 1].iov == d[i].iov + d[i].n.
 */
struct pbox_client_tx {
	struct pbox_client_peer *to;
	const struct iovec *iov;
	uint32_t n;     /**< entries, at least 1 */
	uint32_t bytes; /**< of all of them */
	/**
	 * iov[1] and on stay readable until the datagram has left: the back end may send from
	 * there instead of copying. That holds until something is received that answers it or a
	 * datagram after it, or until quiesce. A back end that uses it must take datagrams out
	 * of memory in the order of send. If clear (and for iov[0] always), nothing may be read
	 * once send has returned.
	 */
	bool stays;
};

/** A received datagram: valid until the next recv or close. */
struct pbox_client_rx {
	const uint8_t *data;
	uint32_t len;
	uint8_t ecn; /**< the two bits of the IP header; 3: congestion experienced */
	struct sockaddr_in from;
};

#ifdef __cplusplus
}
#endif

#endif /* PBOX_CLIENT_TYPES_H */
