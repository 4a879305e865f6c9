/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_H
#define TESTPS_H

/**
 * @file
 * The workers of a job on DPDK ports.
 *
 *     options.c, options_load.c  the command line         model.c    tensors, fragments in order
 *     ports.c     ports, addresses, packets               check.c    gradients and reference sums
 *     lane.c      the loop of one lcore                   control.c  sessions of lib/worker; declare, map
 *     send.c      what it sends
 *     auth.c      tags of frames                          restore.c  what a new box gets
 *     blocks.c    formats of blocks: residuals
 *     rounds.c    contributions                           results.c  what comes back
 *     timers.c    losses, windows
 *     session.c   all lanes together: start, stop         rejoin.c   a box that was started again
 *     loopback.c  a box in this process                   reflect.c  or a reflector
 *     stats.c     counters, figures                       json.c     results as JSON
 *     compare.c   results against their references
 *     library.c, library_*.c  --worker library: library.h
 *     prompt.c, show.c, set.c  the prompt
 *     run.c       what the options say                   search.c   rates, latency, sweeps; main.c
 *     hunt.c      which rate to try next                 stolen.c   time that others had our CPUs
 *
 * Threads: a *lane* is an lcore that plays every n-th worker, with a queue pair of each port. It owns
 * its workers' state; the main thread sets what to reach in a few atomics, and reads its counters.
 * Times are microseconds since the start, from the TSC.
 */

#include <stdatomic.h>

#include <rte_config.h>
#include <rte_mbuf.h>
#include <rte_memzone.h>
#include <rte_ring.h>

#include <pbox_auth.h>
#include <pbox_net.h>
#include <pbox_optim.h>
#include <pbox_port.h>
#include <pbox_stats.h>
#include <pbox_wire_at.h>
#include <pbox_wire_data.h>
#include <pbox_worker.h>

#include "compare.h"
#include "options.h"

#define TESTPS_PORTS  16
#define TESTPS_HOPS   65 /* the control address, and those of the endpoints */
#define FRAME_HEADERS (PBOX_NET_HEADERS_LEN + PBOX_HDR_LEN)
#define PATTERNS      16 /* different payloads; see check.c */
#define PATTERN_STEP  5  /* from one round to the next */
#define US_SECOND     UINT64_C(1000000)
#define NO_LIMIT      UINT32_MAX
#define LANE_STOCK    32 /* heads */
#define LANE_BATCH    64 /* results */

/** A cache line that is written soon. Compilers ask for it to be read, unless they know that the CPU can do better: then the
 * first store waits until other cores have given it up. Where it cannot the instruction does nothing. */
static inline void
ask_to_write(const uint8_t *p)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/* ---- model.c ------------------------------------------------------------------------------ */

struct tensor {
	uint64_t elements;
	uint32_t compute_us;
	char name[PBOX_NAME_LEN];
};

struct model {
	unsigned n;
	struct tensor *tensor;
	uint64_t elements, compute_us;
};

/** A list of tensors, or one of a size. -errno and @p err. */
int model_read(struct model *m, const char *text, struct pbox_error *err);
void model_free(struct model *m);

/** The table as the box has cut it. */
struct map {
	struct pbox_worker_table_info info;
	struct pbox_worker_chunk *chunk;
};

struct fragment {
	uint32_t chunk, release_us;
	uint16_t frag, elements, length; /**< length: index of its number of elements */
	uint16_t endpoint;
	uint64_t at; /**< in the parameters of the reference: elements */
};

/** What is sent in a round, in this order at each endpoint. Constant while lanes run. */
struct plan {
	uint32_t n, chunks, first_chunk, frag_elements;
	unsigned endpoints;
	uint16_t map_epoch;
	bool timed;                             /**< some release_us is not 0 */
	uint32_t first[PBOX_MAX_ENDPOINTS + 1]; /**< of each endpoint in f */
	struct fragment *f;
	uint32_t *chunk_first; /**< of each chunk, in f */
	unsigned n_lengths;
	uint16_t *length; /**< different numbers of elements */
	uint64_t elements;
	uint32_t round; /**< the last one that is finished */
};

int plan_make(struct plan *p, const struct map *map, unsigned endpoints, const struct model *m,
	const struct testps_load *load, struct pbox_error *err);
/** For a peer that only reflects: equal chunks at one endpoint. */
int plan_reflected(struct plan *p, uint32_t frag_elements, const struct model *m,
	const struct testps_load *load, struct pbox_error *err);
void plan_free(struct plan *p);

/* ---- check.c ------------------------------------------------------------------------------ */

/** All payloads that there are, and what their sums must be. Constant while lanes run. */
struct data {
	const struct pbox_reduce_ops *reduce;
	const struct pbox_optim_ops *optim;
	compare_fn *same;
	unsigned workers;
	uint8_t push, pull, optimiser;
	uint8_t made; /**< format of the patterns: push, or fp32 where that is one of blocks (blocks.c) */
	bool reflected;
	const struct rte_memzone *zone; /**< of the patterns: devices read them */
	uint8_t *memory;                /**< of the others */
	uint8_t *pattern[PATTERNS];
	float *sum[PATTERNS];    /**< of all workers; [s] for the seed s */
	uint8_t *want[PATTERNS]; /**< the sum in the pull format, or what comes back reflected */
	float *init;             /**< parameters at the beginning */
	uint32_t *pattern_crc, *want_crc; /**< [length * PATTERNS + i] */
	/* in the same way, of a job with auth; else NULL */
	const struct pbox_auth_job *auth;
	uint8_t (*pattern_digest)[PBOX_AUTH_DIGEST_LEN], (*want_digest)[PBOX_AUTH_DIGEST_LEN];
};

/** What a result must be, how its CRC begins and, of a job with auth, its digest (R11.3). */
struct wanted {
	const uint8_t *payload, *digest;
	uint32_t crc;
	unsigned pattern; /**< without an optimiser */
};

/** The parameters as they must be, of one lane. */
struct reference {
	float *param, *s0, *s1;
	uint8_t *wire; /**< in the pull format, or NULL: fp32 */
	uint32_t *round, *crc;
	uint8_t (*digest)[PBOX_AUTH_DIGEST_LEN]; /**< of a job with auth */
	uint32_t *restored; /**< the box has no state from before that round's end; 0 */
	struct pbox_hyper hyper;
	struct pbox_optim_scalars k;
	uint32_t k_round;
};

/** @param auth  of a job with auth, as long as @p d lives; else NULL */
int data_make(struct data *d, const struct plan *p, const struct testps_load *load, bool reflected,
	const struct pbox_auth_job *auth, struct pbox_error *err);
void data_free(struct data *d);
/** Make the digests again: the job has another key. NULL: the job has no auth. */
void data_keys(struct data *d, const struct plan *p, const struct pbox_auth_job *auth);
int reference_make(
	struct reference *m, const struct data *d, const struct plan *p, struct pbox_error *err);
void reference_free(struct reference *m);
/** In the same way. */
void reference_keys(struct reference *m, const struct data *d, const struct plan *p);
/** lr and what else is set, for all groups. */
void reference_hyper(struct pbox_hyper *h, unsigned optimiser);

/** Which of the patterns: of worker @p w it is pattern[(seed + w) % PATTERNS]. */
static inline unsigned
data_seed(uint32_t round, uint32_t f)
{
	return (f * 7 + (f >> 4) + round * PATTERN_STEP) % PATTERNS;
}

/** What the result of fragment @p f in @p round must be, for @p worker. */
void data_want(const struct data *d, struct reference *m, const struct plan *p, uint32_t f,
	uint32_t round, unsigned worker, struct wanted *out);

/* ---- blocks.c: of a lane; in formats of blocks ------------------------------------------------- */

struct blocks;

/** What the workers of a lane send, and get, from the round after p->round on. @p d and @p p live longer. NULL: no memory. */
struct blocks *blocks_make(const struct data *d, const struct plan *p);
void blocks_free(struct blocks *b, const struct plan *p);
/** The contribution of @p worker to @p round, which is one of the last three that any worker has begun here: payload, CRC, digest. */
void blocks_payload(
	struct blocks *b, uint32_t f, uint32_t round, unsigned worker, struct wanted *out);
/** What its result must be, as data_want. */
void blocks_want(struct blocks *b, uint32_t f, uint32_t round, unsigned worker, struct wanted *out);

/* ---- counters ------------------------------------------------------------------------------ */

/* clang-format off */
#define LANE_STATS(X) \
	X(LS_TX_PACKETS, COUNTER, tx_packets, "packets", "packets sent") \
	X(LS_TX_BYTES, COUNTER, tx_bytes, "bytes", "bytes of packets sent") \
	X(LS_RX_PACKETS, COUNTER, rx_packets, "packets", "packets received") \
	X(LS_RX_BYTES, COUNTER, rx_bytes, "bytes", "bytes of packets received") \
	X(LS_CONTRIBUTIONS, COUNTER, contributions, "frames", "contributions sent for the first time") \
	X(LS_RESULTS, COUNTER, results, "frames", "results that were waited for") \
	X(LS_PUSH_BYTES, COUNTER, push_bytes, "bytes", "elements of contributions, each once") \
	X(LS_PULL_BYTES, COUNTER, pull_bytes, "bytes", "elements of results, each once") \
	X(LS_REPEATED, COUNTER, repeated, "frames", "contributions that were lost and sent again") \
	X(LS_LOST_RESULTS, COUNTER, lost_results, "frames", "results that were lost and came when asked for") \
	X(LS_PROBES, COUNTER, probes, "frames", "questions after a suspected loss, or a slow worker") \
	X(LS_WAITS, COUNTER, waits, "frames", "answers that the result is not there yet") \
	X(LS_DUPLICATES, COUNTER, duplicates, "frames", "answers to what was answered already") \
	X(LS_CHECKED, COUNTER, checked, "frames", "results compared with the reference sum") \
	X(LS_WRONG, COUNTER, wrong, "frames", "results that were not the reference sum") \
	X(LS_RESTORED, COUNTER, restored, "frames", "fragments restored to a box that was started again, of each worker") \
	X(LS_ROUNDS, COUNTER, rounds, "rounds", "rounds finished, of each worker") \
	X(LS_CONTROL, COUNTER, control, "frames", "requests sent to the control endpoint") \
	X(LS_ECN, COUNTER, ecn_ce, "packets", "packets that a switch marked as congested") \
	X(LS_DROP_NET, COUNTER, drop_net, "packets", "packets for others, or not understood") \
	X(LS_DROP_FRAME, COUNTER, drop_frame, "frames", "damaged frames") \
	X(LS_DROP_SESSION, COUNTER, drop_session, "frames", "frames of another session") \
	X(LS_DROP_AUTH, COUNTER, drop_auth, "frames", "frames without the right tag, of a job with auth") \
	X(LS_LOSS, COUNTER, loss, "packets", "packets thrown away here, by set loss") \
	X(LS_TX_FULL, COUNTER, tx_full, "bursts", "bursts that found a transmit queue full") \
	X(LS_NO_MBUF, COUNTER, no_mbuf, "packets", "packets that no buffer was there for") \
	X(LS_TURNS, COUNTER, turns, "turns", "turns of the loop") \
	X(LS_TURNS_BUSY, COUNTER, turns_busy, "turns", "turns that had something to do") \
	X(LS_STOOD_STILL, COUNTER, stood_still, "us", "pauses of 1 ms and longer while rounds ran: others had the CPU")
/* clang-format on */
enum lane_stat { LANE_STATS(PBOX_STAT_SYMBOL) LS_STATS };
extern const struct pbox_stat_def lane_stat_defs[LS_STATS];

/* ---- lanes --------------------------------------------------------------------------------- */

/** What a worker has reached; main wants all at one of these. */
enum level { LEVEL_LEFT = -1, LEVEL_NONE, LEVEL_JOINED, LEVEL_MAPPED, LEVEL_READY };

enum flight_state {
	FLIGHT_DONE,
	FLIGHT_SENT,
	FLIGHT_ASKED,  /**< a timer asked about it: late, or the last of many */
	FLIGHT_PROBED, /**< asked about while answers to later ones are here: it is lost */
	FLIGHT_AT_BOX  /**< the box has it */
};

/** Packets on their way to one port. */
struct out {
	uint16_t id, queue;
	unsigned n;
	struct rte_mbuf *m[TESTPS_BURST_MAX + 64];
};

/** What the box gets of each fragment before rounds begin or go on: its parameters, or what the worker holds. */
struct holdings {
	uint8_t type;       /**< PBOX_INIT or PBOX_RESTORE; 0: neither yet */
	uint32_t next, out; /**< the next fragment; those under way */
	struct holding {
		uint32_t f, base; /**< base: element from which INIT goes on */
		bool open, give;
		uint64_t due;
	} holding[16];
};

enum asking { ASKING_NOTHING, ASKING_TABLE, ASKING_REQUEST };

/** The control side of one worker: session and table are lib/worker's, its data the lane's. */
struct control {
	struct pbox_worker *w;
	struct pbox_worker_ops port;
	struct lane *l;
	uint16_t worker;
	uint64_t tick_us; /**< of w */
	struct pbox_worker_declaration table;
	struct pbox_worker_request request;
	uint8_t payload[128], answer[512]; /**< of request */
	struct holdings holdings;
	uint32_t sessions; /**< of w, so far */
	int8_t level;
	uint8_t asking; /**< enum asking */
	bool opened, leaving, left;
};

/** Round trip and losses at one endpoint, of all workers of a lane. */
struct path {
	uint32_t srtt, rttvar, peak;
	uint64_t peak_us;
	double window; /**< of each worker */
	double threshold;
	uint32_t answered, lost, marked;
	uint32_t rtt_min, rtt_least; /**< of the latest two epochs, of this one */
	double holds;                /**< frames that the way holds, of all workers */
	uint32_t thresh;             /**< so many later answers are evidence of a loss */
	uint64_t epoch_us, lossy_us;
	bool full;
};

/** What a worker sends to an endpoint: from oldest to next some are under way, and those before oldest are done. */
struct stream {
	uint64_t next, oldest, newest, due;
	uint64_t judged; /**< all before it is done, or was asked about */
	uint32_t next_round, next_frag;
	uint32_t
		quiet_us; /**< since then nothing has come that is final, and timers have asked for nothing new */
	uint16_t under_way, at_box; /**< fragments; and of these what the box has */
	uint16_t k, e;              /**< worker of the lane, endpoint */
	bool queued;
} __rte_cache_aligned;

/** A fragment under way. */
struct flight {
	uint32_t sent, begun; /**< us */
	uint32_t
		behind; /**< position of what was sent next for the first time: evidence when it was sent last */
	uint8_t state, tries; /**< state: enum flight_state */
};

/** What a result is about. */
struct answer {
	unsigned s, e;
	uint32_t i; /**< fragment */
	uint64_t position;
	struct flight *flight;
};

/** A result that has come: its payload is not looked at yet. */
struct result {
	struct answer a;
	struct wanted want;
	const uint8_t *head, *payload;
	uint32_t length;
	uint16_t worker;
	bool ce, intact; /**< intact: the CRC is that of the wanted payload */
	uint8_t next;    /**< of the same pattern, + 1 */
};

/** Those of a burst. */
struct batch {
	unsigned n;
	uint8_t first[PATTERNS]; /**< + 1 */
	struct result result[LANE_BATCH];
};

struct lane {
	struct testps *t;
	struct library *library; /**< NULL: the fast path of rounds */
	unsigned index, lcore;
	unsigned workers; /**< its own: index, index + lanes, ... */
	uint64_t now;     /**< us, of this turn */
	uint64_t stats[LS_STATS] __rte_cache_aligned;
	struct pbox_hist latency; /**< ns, from the contribution to its result */

	/* from main */
	_Atomic int level_wanted; /**< enum level */
	_Atomic bool running, frozen, end;
	_Atomic bool forget; /**< begin at HELLO again; the lane clears it */
	_Atomic bool again;  /**< all that was under way is to be asked about; the lane clears it */
	/* to main */
	_Atomic int level;     /**< what all have reached */
	_Atomic unsigned left; /**< workers that have no session (any more) */
	_Atomic bool failed, idle, acknowledged;
	_Atomic bool lost;           /**< the box does not have the sessions (any more) */
	_Atomic uint32_t round;      /**< the highest that was begun */
	_Atomic uint32_t hop_wanted; /**< an address that main does not know the way to; 0: none */
	struct pbox_error err;

	/* packets */
	struct out out[TESTPS_PORTS];
	struct rte_mempool *frames, *heads;     /**< whole ones; headers before a payload */
	struct rte_mbuf *stock[2 * LANE_STOCK]; /**< heads to be used next, in order */
	uint32_t stock_next, stock_end;
	struct rte_mbuf **payload; /**< [length * PATTERNS + pattern], shared; or NULL */
	struct batch batch;
	struct rte_ring *mail; /**< packets that came to another lane's queue */
	uint16_t ip_id;
	uint8_t *flat; /**< a datagram in one piece */
	struct pbox_random random;

	/* control */
	struct control *c;
	unsigned waiting; /**< joins, declarations and requests that have no answer */
	uint64_t tick_us, arp_us;
	bool set_done;
	bool rejoins; /**< after forget: tables are declared to be restored */

	unsigned streams, flights; /**< flights of each, a power of two */
	unsigned most;             /**< fragments of each under way (R6.9) */
	struct stream *stream;     /**< [worker of the lane * endpoints + endpoint] */
	struct flight *flight;     /**< [stream * flights + position % flights] */
	uint32_t *ready;           /**< ring of streams that may send */
	uint32_t ready_head, ready_tail, ready_mask;
	uint32_t *left_of_round; /**< of each worker: results until the end of its round */
	uint32_t *round_of;
	uint64_t *start_us; /**< its round began, or may begin */
	uint32_t *slowest_us;
	struct path path[PBOX_MAX_ENDPOINTS];
	struct reference reference;
	struct blocks *blocks; /**< NULL: another format */
	double tokens;
	double allowance; /**< at the rate: what each worker may have sent since pace_from; INFINITY */
	double need;      /**< allowance at which the next stream may send; 0: look */
	uint64_t paced;                         /**< what all have sent since then */
	uint64_t pace_from[PBOX_MAX_ENDPOINTS]; /**< positions of streams */
	uint64_t tokens_us, scan_us, gate_us;
	uint64_t turn_us; /**< the latest turn of a run */
	uint32_t cap;     /**< last round to be begun by this lane */
} __rte_cache_aligned;

/** One address that frames go to, from one port. */
struct hop {
	uint32_t ip; /**< of the next host: network order */
	uint8_t mac[6];
	_Atomic bool known;
};

/** What WELCOME said; the same for all workers. */
struct session {
	uint16_t job, endpoints, window, mtu;
	uint32_t incarnation, lease_ms;
	struct sockaddr_in endpoint[PBOX_MAX_ENDPOINTS];
	bool tags;
};

struct testps {
	struct testps_options opt;
	struct testps_load load; /**< of the next start */
	struct testps_load now;  /**< of the session */
	_Atomic uint32_t loss;   /**< of 2^32 */
	_Atomic uint64_t rate;
	_Atomic int straggler;
	_Atomic uint32_t straggler_us;
	_Atomic uint32_t limit; /**< last round to be begun */
	uint32_t box_ip;        /**< network order */
	uint16_t box_port;
	struct sockaddr_in boxes[PBOX_WORKER_BOXES]; /**< of --box; the first one is that */
	unsigned n_boxes;
	unsigned n_ports;
	struct pbox_port port[TESTPS_PORTS];
	struct hop hop[TESTPS_PORTS][TESTPS_HOPS];
	_Atomic unsigned hops;
	bool copy; /**< payloads are copied into packets */
	uint16_t mtu;
	uint64_t tsc0;
	double us_tick;

	unsigned lanes;
	struct lane *lane[TESTPS_CORES_MAX];

	/* workers, by number */
	unsigned workers; /**< with an address */
	struct pbox_net_if *nif;
	uint16_t *udp;
	uint64_t *token;
	struct pbox_auth_keys *keys;
	struct pbox_auth_job *auth; /**< NULL: no auth, or not joined */
	struct {
		uint32_t incarnation;
		uint16_t job;
	} auth_of;
	struct pbox_net_udp_template *control_to, *data_to; /**< data: [worker * endpoints + e] */

	/* the session */
	bool open; /**< all workers are ready */
	/* R12.1: what a process left that was killed is not ours, and its rounds are not the checker's */
	char run[33];
	_Atomic bool rejoining;
	unsigned rejoined; /**< times */
	bool lanes_run;
	struct model model;
	struct session session;
	struct pbox_client_table table;
	struct pbox_client_tensor *tensor; /**< of table */
	struct map map;                    /**< lane 0's until it is mapped */
	struct plan plan;
	struct data data;
	uint64_t begun_us, ended_us; /**< of the last run */
	struct loopback *loopback;
};

/* lane.c */
int lane_main(void *lane);
uint64_t testps_now(const struct testps *t);

/* send.c */
/** A packet to be sent after a header; NULL: none left (counted). */
struct rte_mbuf *lane_packet(struct lane *l, struct rte_mempool *pool);
/** One that only has headers; its memory is asked for long before. */
struct rte_mbuf *lane_head(struct lane *l);
/** Send a control frame, or one whose payload is copied; NULL payload: it has none. */
void lane_frame(struct lane *l, unsigned worker, const struct pbox_net_udp_template *to,
	const struct pbox_hdr *h, const void *payload);
void lane_out(struct lane *l, unsigned worker, struct rte_mbuf *m);
/** What lib/worker sends, as a packet. */
void lane_datagram(struct lane *l, unsigned worker, const struct pbox_net_udp_template *to,
	const struct pbox_client_tx *d);
/** As many of a port's as it takes. */
void lane_flush(struct lane *l, struct out *o);
/** The first failure stays. */
void lane_fail(struct lane *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline struct flight *
lane_flight_of(const struct lane *l, unsigned s, uint64_t position)
{
	return &l->flight[(size_t)s * l->flights + (position & (l->flights - 1))];
}

static inline unsigned
worker_of(const struct lane *l, unsigned k)
{
	return k * l->t->lanes + l->index;
}

static inline unsigned
lane_port_of(const struct testps *t, unsigned worker)
{
	return t->n_ports > 1 ? worker % t->n_ports : 0; /* a division costs */
}

static inline void
lane_count(struct lane *l, enum lane_stat what, uint64_t n)
{
	pbox_stat_add(&l->stats[what], n);
}

/** Of a data frame of a worker. */
static inline struct pbox_hdr
rounds_header(const struct lane *l, unsigned worker, const struct fragment *f, enum pbox_type type,
	uint32_t round)
{
	const struct testps *t = l->t;

	return (struct pbox_hdr){.type = (uint8_t)type,
		.token = t->token[worker],
		.job = t->session.job,
		.worker = (uint16_t)worker,
		.incarnation = t->session.incarnation,
		.chunk = f->chunk,
		.frag = f->frag,
		.round = round,
		.map_epoch = t->plan.map_epoch,
		.ts = (uint32_t)l->now};
}

/* control.c */
/** Workers of a lane that is not running. -errno and @p err. */
int control_make(struct lane *l, struct pbox_error *err);
/** The table that all workers declare: of t->model and t->now. -errno and @p err. */
int control_table(struct testps *t, struct pbox_error *err);
void control_free(struct lane *l);
uint64_t control_port_random(void *ctx);
void control_tick(struct lane *l);
/** A frame that is not one of data, from @p from. */
void control_frame(struct lane *l, unsigned worker, const uint8_t *frame, size_t len,
	const struct sockaddr_in *from);

/* restore.c */
/** Give the box parameters (PBOX_INIT), or what the worker holds (PBOX_RESTORE): true when it has all of it. */
bool restore_turn(struct lane *l, struct control *c, enum pbox_type type);
/** INIT_OK, RESTORE_OK. */
void restore_ok(struct lane *l, unsigned worker, const struct pbox_hdr *h);

/* auth.c */
/** Bytes after the payload of each frame of the session. */
static inline unsigned
tag_of(const struct lane *l)
{
	return l->t->auth != NULL ? PBOX_TAG_LEN : 0;
}
/** The digests of the job that worker 0 has joined, if it has auth. Main; -errno and @p err. */
int auth_make(struct testps *t, struct pbox_error *err);
void auth_free(struct testps *t);
/** R11.5: is a data frame, its header before the payload, to be taken? */
bool auth_data_good(
	const struct lane *l, unsigned worker, const struct pbox_hdr *h, const uint8_t *payload);
/** The tag after @p payload, which may be apart from its header; NULL digest: not known. */
bool auth_tag_good(const struct lane *l, unsigned worker, const uint8_t *head,
	const uint8_t *payload, uint32_t length, const uint8_t *digest);

/* rounds.c */
int rounds_make(struct lane *l, struct pbox_error *err);
void rounds_free(struct lane *l);
/** A run begins: all streams may send. */
void rounds_begin(struct lane *l);
void rounds_turn(struct lane *l);
/** A result for @p worker whose length was checked; its payload may be apart from its header. */
void rounds_result(
	struct lane *l, unsigned worker, const uint8_t *head, const uint8_t *payload, bool ce);
/** The same; it may wait until rounds_results(), and so may its memory. */
void rounds_result_later(
	struct lane *l, unsigned worker, const uint8_t *head, const uint8_t *payload, bool ce);
void rounds_results(struct lane *l);
void rounds_wait(struct lane *l, unsigned worker, const struct pbox_hdr *h);
void rounds_error(struct lane *l, const struct pbox_hdr *h);
/* ports.c */
int ports_open(struct testps *t, struct pbox_error *err);
int ports_lanes(struct testps *t, struct pbox_error *err);
/** The payloads as packets, of each lane. */
int ports_payloads(struct testps *t, struct pbox_error *err);
void ports_payloads_free(struct testps *t);
void ports_close(struct testps *t);
int workers_address(struct testps *t, struct pbox_error *err);
void workers_free(struct testps *t);

/* session.c: main */
int session_lanes_start(struct testps *t, struct pbox_error *err);
void session_lanes_stop(struct testps *t);
/** Join, declare, map, initialise: as t->load says. */
int session_join(struct testps *t, struct pbox_error *err);
void session_leave(struct testps *t);
/** Begin rounds, up to @p rounds more (0: no limit). */
int session_run(struct testps *t, uint32_t rounds, struct pbox_error *err);
bool session_running(const struct testps *t);
/** All rounds that were begun are finished. */
int session_stop(struct testps *t, struct pbox_error *err);
/** Has the box forgotten the workers? Then session_rejoin(), or an end. */
bool session_lost(const struct testps *t);
/** Addresses that lanes want to send to: their next hops are asked for. */
void session_hops(struct testps *t);
/** Join again, restore, go on. -errno and @p err: all lanes have failed. */
int session_rejoin(struct testps *t, struct pbox_error *err);
/** Has a lane failed? */
bool session_failed(struct testps *t, struct pbox_error *err);

/* stats.c */
struct figures {
	uint64_t v[LS_STATS];
	uint64_t at_us;
	unsigned workers;
	double seconds;                                            /**< since the other */
	double push_gbit, pull_gbit, contributions, rounds, again; /**< a second; share */
	double busy;
	uint64_t p50, p90, p99, max; /**< ns */
};
/** Sums over all lanes, now. */
void figures_take(const struct testps *t, struct figures *f);
/** Rates since @p from. */
void figures_since(struct figures *f, const struct figures *from, unsigned workers);
void figures_latency(const struct testps *t, struct figures *f);
/** Rounds, bytes and contributions of a second, a line's end. */
void figures_rates(const struct figures *f, FILE *to);
void stats_clear(struct testps *t);
void stats_clear_latency(struct testps *t);
/** The lines of --stats-period: each of what was since the one before. */
struct stats_lines {
	struct figures last;
	uint64_t next_us; /* when the next one is due */
};
/** Where a run begins: the heading. */
void stats_lines_begin(const struct testps *t, struct stats_lines *l, FILE *to);
void stats_lines_next(const struct testps *t, struct stats_lines *l, FILE *to);

#endif /* TESTPS_H */
