/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_SHARD_H
#define PBOX_SHARD_H

/**
 * @file
 * The data side of the engine on one core: fragments, rounds, sums, answers.
 *
 * All functions: only the core that owns the shard, except the reading of counters. Nothing here
 * allocates, locks, blocks or logs.
 */

#include <pbox_engine.h>
#include <pbox_optim.h>
#include <pbox_stats.h>

/** Frames of one call of pbox_shard_rx(). */
#define PBOX_SHARD_BURST 64

/** What became of a frame: each received one counts in exactly one of the accepted or dropped
 * counters, so that rx_frames = sum of both (a test checks it). */
enum pbox_shard_stat {
	PBOX_SS_RX_FRAMES,
	/* accepted */
	PBOX_SS_RX_CONTRIBUTION, /**< first one of its worker, round and fragment */
	PBOX_SS_RX_DUP_PENDING,  /**< repeated, round in progress */
	PBOX_SS_RX_DUP_DONE,     /**< repeated, round finished: answered from memory */
	PBOX_SS_RX_PULL,
	PBOX_SS_RX_INIT,
	PBOX_SS_RX_FETCH,
	PBOX_SS_RX_EARLY, /**< contribution before INIT or without lr: answered, not kept */
	PBOX_SS_RX_PING,
	PBOX_SS_RX_RESTORE,
	/* dropped, in the order of the checks (R6.11) */
	PBOX_SS_DROP_SESSION_UNKNOWN,
	PBOX_SS_DROP_SESSION_TOKEN,
	PBOX_SS_DROP_SESSION_INCARNATION,
	PBOX_SS_DROP_AUTH, /**< no tag, a wrong one, or one in a session without (R11.5) */
	PBOX_SS_DROP_RATE, /**< beyond what a job or a worker may ask (R6.12) */
	PBOX_SS_DROP_MAP_EPOCH,
	PBOX_SS_DROP_CHUNK_UNKNOWN,
	PBOX_SS_DROP_FRAG_RANGE,
	PBOX_SS_DROP_FORMAT,
	PBOX_SS_DROP_LENGTH,
	PBOX_SS_DROP_PARTIAL,
	PBOX_SS_DROP_NODE, /**< none of the nodes that its sender brings: answered so (R5.2b) */
	PBOX_SS_DROP_ROUND_STALE,
	PBOX_SS_DROP_ROUND_FUTURE,
	PBOX_SS_DROP_INIT_FORBIDDEN,
	PBOX_SS_DROP_NO_RECORD,
	PBOX_SS_DROP_NO_BUFFER,
	PBOX_SS_DROP_CRC,      /**< of a frame that came unverified */
	PBOX_SS_DROP_REPLAYED, /**< an old frame, from another address (R4.9) */
	PBOX_SS_DROP_UNPROVEN, /**< a question from an address that has proven nothing yet */
	PBOX_SS_DROP_TYPE,
	/* work done */
	PBOX_SS_ROUNDS,     /**< fragments finished */
	PBOX_SS_FOLDS,      /**< nodes folded early */
	PBOX_SS_TAKEN_BACK, /**< contributions forgotten again: damaged (R2.5) */
	PBOX_SS_NOT_FINITE, /**< contributions with a NaN or an infinity (R6.16) */
	PBOX_SS_OVERFLOWED, /**< fragments whose sum has one, though all contributions are finite */
	PBOX_SS_PACED,      /**< fragments that were complete and waited for the job's rate */
	PBOX_SS_RESTORED,   /**< fragments restored after a restart (R10.6) */
	PBOX_SS_RESTORE_LOST,
	PBOX_SS_RX_BYTES, /**< payload of first contributions */
	PBOX_SS_TX_RESULT,
	PBOX_SS_TX_RESULT_BYTES,
	PBOX_SS_TX_WAIT,
	PBOX_SS_TX_OTHER,
	/* levels */
	PBOX_SS_HELD,         /**< packets held now */
	PBOX_SS_ROUNDS_OPEN,  /**< fragments with contributions, not finished */
	PBOX_SS_ROUNDS_PACED, /**< of these, complete, and waiting for the job's rate */
	PBOX_SS_STATS
};

#define PBOX_SS_FIRST_ACCEPT PBOX_SS_RX_CONTRIBUTION
#define PBOX_SS_FIRST_DROP   PBOX_SS_DROP_SESSION_UNKNOWN
#define PBOX_SS_LAST_DROP    PBOX_SS_DROP_TYPE

extern const struct pbox_stat_def pbox_shard_stat_defs[PBOX_SS_STATS];

/** The sum of a rack's part of a round of one fragment, on its way to the upper box; then the version that came of it. */
struct pbox_up {
	uint64_t begun_ns; /**< of its job: a number of a job may be another one's later */
	float *value; /**< fp32; a whole fragment of the table, with zeros where the fragment is shorter */
	uint64_t samples; /**< of the rack; then of the version */
	uint32_t chunk, round;
	uint16_t frag, job;
	uint16_t shard;
	uint16_t contributors; /**< of the version */
};

struct pbox_shard_ops {
	/** Send one frame. Must not fail: what cannot be sent is lost, and the worker asks again. */
	void (*send)(void *ctx, const struct pbox_send *s);
	/** Give back packet buffers held since pbox_shard_rx(). */
	void (*release)(void *ctx, void *const *handle, unsigned n);
	/** Answer a mail. */
	void (*mail)(void *ctx, const struct pbox_mail *m);
	/** Send one frame to @p n receivers, as send() of pbox_send_for() would to each. NULL: that is
	 * done. */
	void (*send_all)(
		void *ctx, const struct pbox_send *s, const struct pbox_send_to *to, unsigned n);
	/** A rack's sum is ready to go up (section 18): its memory is the receiver's until pbox_shard_down(), or until the job has
	 * closed. False: there is no room now, and pbox_shard_pace() tries again. NULL: there are no racks. */
	bool (*up)(void *ctx, const struct pbox_up *up);
};

struct pbox_shard_conf {
	uint16_t id;
	/** pbox_shard_bytes(), on the NUMA node of the shard's core, aligned to a cache line, and the shard's until its
	 * end. NULL: from the heap, wherever that is. */
	void *memory;
	uint32_t incarnation;
	const uint8_t *cookie_key; /**< as the registrar's; NULL: not known */
	uint16_t max_jobs;
	uint16_t mtu;                                /**< as the registrar's: no PONG is larger */
	const struct pbox_engine_endpoint *endpoint; /**< all of the box; lives as long */
	unsigned n_endpoints;
	const struct pbox_reduce_ops *reduce;
	const struct pbox_optim_ops *optim;
	const struct pbox_shard_ops *ops;
	void *ctx; /**< for ops */
	uint64_t *
		stats; /**< PBOX_SS_STATS values, zeroed; the shard's to write, the caller's memory */
};

struct pbox_shard;

/** What a shard takes, but for what it keeps of jobs, which is in the arena of its node. */
size_t pbox_shard_bytes(void);
/** Control thread, before the core starts. NULL: out of memory. */
struct pbox_shard *pbox_shard_create(const struct pbox_shard_conf *conf);
/** After the core has stopped. Releases what is still held. */
void pbox_shard_destroy(struct pbox_shard *s);

/**
 * Take up to PBOX_SHARD_BURST data frames or PINGs.
 *
 * @param frame   read during the call only, payloads excepted
 * @param now_ns  monotonic, any origin
 * @return bit i set: frame[i].handle is held, and comes back through ops->release. The other
 *         handles stay the caller's.
 */
uint64_t pbox_shard_rx(
	struct pbox_shard *s, const struct pbox_frame *frame, unsigned n, uint64_t now_ns);

/**
 * The frames of what pbox_shard_rx() takes from now on may have come up to @p ns before: so long nobody
 * looked. Of a worker that came last nothing is said that may have been this.
 */
void pbox_shard_away(struct pbox_shard *s, uint64_t ns);

/**
 * Finish rounds that are complete, and that the rate of their job lets end now (R6.12). To be called
 * again and again; how often says how far results of such a job lag, up to 10 ms without loss of rate.
 *
 * @return how many have ended
 */
unsigned pbox_shard_pace(struct pbox_shard *s, uint64_t now_ns);
/** Are there such rounds, of which some end without another frame? */
bool pbox_shard_paces(const struct pbox_shard *s);

/** What becomes of a datagram for the control thread. */
enum pbox_gate {
	PBOX_GATE_STRANGER, /**< of no session: as far as there is time */
	PBOX_GATE_SESSION,  /**< of a live session: ahead of strangers */
	PBOX_GATE_QUIET, /**< the same of one that has asked little: also while others must wait */
	PBOX_GATE_ANSWERED, /**< a keep-alive: its PONG was sent, and the control thread may hear of it */
	PBOX_GATE_RATE, /**< more than its session, job or address may ask: to be dropped */
};

/**
 * To whose account does a datagram with control frames go (R6.12)? It begins with a frame at @p at, and has
 * not been looked at.
 */
enum pbox_gate pbox_shard_gate(struct pbox_shard *s, const uint8_t *at, size_t len,
	const struct pbox_peer *peer, uint64_t now_ns);

/**
 * The upper box has answered: value has version @p up->round, contributors and samples are those of its RESULT. It becomes the
 * fragment's version, and all who wait for it are answered. What is of a job that has ended changes nothing.
 */
void pbox_shard_down(struct pbox_shard *s, const struct pbox_up *up, uint64_t now_ns);

/** Take a mail from the registrar. */
void pbox_shard_mail(struct pbox_shard *s, const struct pbox_mail *m, uint64_t now_ns);

/** Packets held now. Any thread. */
uint32_t pbox_shard_held(const struct pbox_shard *s);

#endif /* PBOX_SHARD_H */
