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

/* clang-format off */
/** What became of a frame: each received one counts in exactly one of the accepted or dropped
 * counters, so that rx_frames = sum of both (a test checks it). */
#define PBOX_SHARD_VALUES(X) \
	X(PBOX_SS_RX_FRAMES, COUNTER, rx_frames, "frames", "data frames received") \
	/* accepted */ \
	X(PBOX_SS_RX_CONTRIBUTION, COUNTER, rx_contribution, "frames", "first contributions of a worker to a fragment and round") \
	X(PBOX_SS_RX_DUP_PENDING, COUNTER, rx_dup_pending, "frames", "repeated contributions to the round in progress") \
	X(PBOX_SS_RX_DUP_DONE, COUNTER, rx_dup_done, "frames", "repeated contributions to a finished round, answered from memory") \
	X(PBOX_SS_RX_PULL, COUNTER, rx_pull, "frames", "pulls and probes") \
	X(PBOX_SS_RX_INIT, COUNTER, rx_init, "frames", "initial parameters") \
	X(PBOX_SS_RX_FETCH, COUNTER, rx_fetch, "frames", "questions for parameters and optimiser state") \
	X(PBOX_SS_RX_EARLY, COUNTER, rx_early, "frames", "contributions before INIT, without a learning rate or while the fragment is restored: answered, not kept") \
	X(PBOX_SS_RX_PING, COUNTER, rx_ping, "frames", "pings of workers") \
	X(PBOX_SS_RX_RESTORE, COUNTER, rx_restore, "frames", "reports of workers about what they hold, after a restart of the box") \
	/* dropped, in the order of the checks (R6.11) */ \
	X(PBOX_SS_DROP_SESSION_UNKNOWN, COUNTER, drop_session_unknown, "frames", "job or worker does not exist") \
	X(PBOX_SS_DROP_SESSION_TOKEN, COUNTER, drop_session_token, "frames", "token is not that of the worker's session") \
	X(PBOX_SS_DROP_SESSION_INCARNATION, COUNTER, drop_session_incarnation, "frames", "meant for an earlier start of the box") \
	X(PBOX_SS_DROP_AUTH, COUNTER, drop_auth, "frames", "tag missing or wrong (or there, in a job without auth): forged, or replayed") \
	X(PBOX_SS_DROP_RATE, COUNTER, drop_rate, "frames", "more repetitions, pulls and pings than the job's rate, or than their worker has credit for") \
	X(PBOX_SS_DROP_MAP_EPOCH, COUNTER, drop_map_epoch, "frames", "stale chunk map") \
	X(PBOX_SS_DROP_CHUNK_UNKNOWN, COUNTER, drop_chunk_unknown, "frames", "no such chunk, or not at this endpoint") \
	X(PBOX_SS_DROP_FRAG_RANGE, COUNTER, drop_frag_range, "frames", "fragment index beyond the chunk") \
	X(PBOX_SS_DROP_FORMAT, COUNTER, drop_format, "frames", "element format is not the table's") \
	X(PBOX_SS_DROP_LENGTH, COUNTER, drop_length, "frames", "payload length is not the fragment's, or a PING's is beyond the MTU") \
	X(PBOX_SS_DROP_PARTIAL, COUNTER, drop_partial, "frames", "partial contribution, which the job was not granted") \
	X(PBOX_SS_DROP_NODE, COUNTER, drop_node, "frames", "contribution that is none of the nodes that its worker is to bring: answered ERROR BAD_REQUEST") \
	X(PBOX_SS_DROP_ROUND_STALE, COUNTER, drop_round_stale, "frames", "round is older than the current version") \
	X(PBOX_SS_DROP_ROUND_FUTURE, COUNTER, drop_round_future, "frames", "round is beyond the one in progress") \
	X(PBOX_SS_DROP_INIT_FORBIDDEN, COUNTER, drop_init_forbidden, "frames", "INIT of another worker than 0, or of an all-reduce table") \
	X(PBOX_SS_DROP_NO_RECORD, COUNTER, drop_no_record, "frames", "no free round record: a worker exceeds its window") \
	X(PBOX_SS_DROP_NO_BUFFER, COUNTER, drop_no_buffer, "frames", "the job already holds its share of packets") \
	X(PBOX_SS_DROP_CRC, COUNTER, drop_crc, "frames", "CRC is wrong: noticed after the frame was looked at, before it had an effect") \
	X(PBOX_SS_DROP_REPLAYED, COUNTER, drop_replayed, "frames", "an old frame of a worker, from another address than its own, or an old PING") \
	X(PBOX_SS_DROP_UNPROVEN, COUNTER, drop_unproven, "frames", "questions of a worker from an address that is new: it is asked to prove it") \
	X(PBOX_SS_DROP_TYPE, COUNTER, drop_type, "frames", "not a type that workers send here") \
	/* work done */ \
	X(PBOX_SS_ROUNDS, COUNTER, rounds, "fragments", "fragments finished") \
	X(PBOX_SS_FOLDS, COUNTER, folds, "fragments", "nodes of rounds summed early") \
	X(PBOX_SS_TAKEN_BACK, COUNTER, taken_back, "frames", "contributions whose CRC was wrong when they were to be summed; their workers were asked again") \
	X(PBOX_SS_NOT_FINITE, COUNTER, not_finite, "frames", "contributions with a NaN or an infinity that were summed") \
	X(PBOX_SS_OVERFLOWED, COUNTER, overflowed, "fragments", "sums with an infinity or a NaN of contributions that are all finite") \
	X(PBOX_SS_PACED, COUNTER, paced, "fragments", "complete, and finished later: the job is at its rate") \
	X(PBOX_SS_RESTORED, COUNTER, restored, "fragments", "restored from workers or a snapshot after a restart") \
	X(PBOX_SS_RESTORE_LOST, COUNTER, restore_lost, "fragments", "not restored: no worker could give the version that the box had") \
	X(PBOX_SS_RX_BYTES, COUNTER, rx_bytes, "bytes", "payload of first contributions") \
	X(PBOX_SS_TX_RESULT, COUNTER, tx_result, "frames", "results sent") \
	X(PBOX_SS_TX_RESULT_BYTES, COUNTER, tx_result_bytes, "bytes", "payload of results sent") \
	X(PBOX_SS_TX_WAIT, COUNTER, tx_wait, "frames", "hints that a round is not finished") \
	X(PBOX_SS_TX_OTHER, COUNTER, tx_other, "frames", "acknowledgements, pongs and errors sent") \
	/* levels */ \
	X(PBOX_SS_HELD, GAUGE, held, "packets", "packets held until their round is complete") \
	X(PBOX_SS_ROUNDS_OPEN, GAUGE, rounds_open, "fragments", "fragments with a round in progress") \
	X(PBOX_SS_ROUNDS_PACED, GAUGE, rounds_paced, "fragments", "of these, complete, and waiting for the job's rate")
/* clang-format on */
enum pbox_shard_stat { PBOX_SHARD_VALUES(PBOX_STAT_SYMBOL) PBOX_SS_STATS };

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
