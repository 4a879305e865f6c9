/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WORKER_H
#define PBOX_WORKER_H

/**
 * @file
 * A worker of a job, without threads, sockets and clocks: handshake, tables, operations, loss recovery, congestion
 * window, and failover after a restart of the box (doc/protocol.md). lib/client is a host with a thread and a socket.
 *
 * The host brings datagrams and the time, and takes datagrams, deadlines and what is complete:
 *
 *     pbox_worker_rx(w, datagrams, n, now);       what has arrived
 *     ... pbox_worker_submit(), pbox_worker_request(), pbox_worker_declare()
 *     due = pbox_worker_tick(w, now, drained);    sends through the port what is due
 *     pbox_worker_finished(w), pbox_worker_answered(w), d->state, pbox_worker_state(w)
 *     wait until `due`, or a datagram, or more to submit
 *
 * Threads: none. One thread at a time calls any of these for one worker. Times are ns of any monotonic clock that is
 * never 0, and never go back. Texts are for people.
 *
 * Memory is allocated by create and declare, while a session begins (also one after a restart of the box, which fetches
 * the maps again), and for SETs; never for data.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pbox_slots.h>

#include "pbox_client_types.h"

struct pbox_auth_job;
struct pbox_auth_keys;
struct pbox_slot_range;
struct pbox_worker;
struct pbox_worker_table;

/** How datagrams leave; the host's. Fixed after create, with the exceptions below. */
struct pbox_worker_ops {
	/** As pbox_client_transport_ops.send: at most `batch`, none of which is read after it, but for
	 * those with `stays`. */
	void (*send)(void *ctx, const struct pbox_client_tx *d, unsigned n);
	uint64_t (*random)(void *ctx); /**< numbers that nobody can guess */
	void *ctx;
	unsigned mtu;       /**< IP MTU towards the box */
	unsigned batch;     /**< datagrams in one send, 1 to PBOX_CLIENT_TX_BATCH */
	unsigned window;    /**< full datagrams that may arrive at once without a loss */
	unsigned train_max; /**< full datagrams that can leave as one unit; 0 or 1: no such thing */
	bool path_known; /**< no path MTU discovery: full frames reach all endpoints, or the host checks that */
	/* the host sets these when the network has reported something; the worker clears path_errno */
	int path_errno;    /**< latest errno; 0: none */
	unsigned path_mtu; /**< that came with EMSGSIZE; 0: none */
	/* the worker sets this */
	unsigned train; /**< datagrams that may leave as one unit */
};

/* ---- the worker ---------------------------------------------------------------------------------------------- */

/**
 * @param conf  checked (pbox_worker_check); its strings are copied. Those that name a transport are ignored
 * @param box   the control endpoint
 * @param port  the host's; it outlives the worker
 * @return NULL without memory
 */
struct pbox_worker *pbox_worker_create(const struct pbox_client_conf *conf,
	const struct sockaddr_in *box, struct pbox_worker_ops *port);
void pbox_worker_destroy(struct pbox_worker *w);

#define PBOX_WORKER_BOXES 16
/** The program names so many boxes, of which that of pbox_worker_create() is one: they must be those of the job, all or one
 * of them. Before pbox_worker_open(). @p n  up to PBOX_WORKER_BOXES */
void pbox_worker_boxes(struct pbox_worker *w, const struct sockaddr_in *box, unsigned n);

/** Begin to join; pbox_worker_state() says how it ends. @p deadline  ns, for all of it */
void pbox_worker_open(struct pbox_worker *w, uint64_t now, uint64_t deadline);
/** For a host that joins for others (lib/uplink): from now on HELLO and JOIN of a run that this worker has no table of leave when that is
 * called, one of each at most, and never by a clock. So a run joins no later than the last of those others has asked. False: by the clock. */
void pbox_worker_join_asked(struct pbox_worker *w, bool asked_alone);
void pbox_worker_join_ask(struct pbox_worker *w, uint64_t now);

enum pbox_worker_state {
	PBOX_WORKER_OPENING,
	PBOX_WORKER_OPEN,
	PBOX_WORKER_FAILED, /**< pbox_worker_error() says why; all operations have ended, nothing is sent */
	PBOX_WORKER_SHUT, /**< by pbox_worker_shut() */
};
enum pbox_worker_state pbox_worker_state(const struct pbox_worker *w);
/** Of a worker that has failed. */
const struct pbox_client_error *pbox_worker_error(const struct pbox_worker *w);

/** @p n datagrams have arrived. Their memory is the host's again when it returns. */
void pbox_worker_rx(
	struct pbox_worker *w, const struct pbox_client_rx *d, unsigned n, uint64_t now);
/**
 * Do what is due, and send it.
 * @param drained  all that had arrived by then has been given to pbox_worker_rx; 0: more may be waiting. No time-out
 *                 ends while an answer may be waiting
 * @return when to call again at the latest, ns; 0: at once
 */
uint64_t pbox_worker_tick(struct pbox_worker *w, uint64_t now, uint64_t drained);
/** All operations and requests end with PBOX_C_CLOSED. Only requests of type LEAVE are sent after it. */
void pbox_worker_shut(struct pbox_worker *w);

/* ---- lanes: a worker with several threads -------------------------------------------------------------------- */

#define PBOX_WORKER_LANES 64

/**
 * Cut the endpoints into @p n lanes, each of which another thread may drive; once, while the worker is open and has no tables. The
 * host then has a lock for each lane. It holds all of them, taken in order, for the calls in this file, but for
 *   - pbox_worker_lane_rx, _lane_tick, _lane_gather, _steady: the lane's alone;
 *   - pbox_worker_submit, _finished, _ended, _answered, _state, _error, and what is fixed: that of lane 0.
 * @param port  of lanes 1 to n - 1, at port[1] and on: they have the same local address as that of the first one; they outlive the worker
 * @return 0, -EINVAL (n is not 1 to the endpoints), -ENOMEM
 */
int pbox_worker_cut(struct pbox_worker *w, struct pbox_worker_ops *const *port, unsigned n);
unsigned pbox_worker_lanes(const struct pbox_worker *w); /**< 1 without a cut */
/** The endpoints of all boxes; those of them that are in the lane (@p lane < PBOX_WORKER_LANES), or in any. */
unsigned pbox_worker_endpoints(
	const struct pbox_worker *w, unsigned lane, const struct sockaddr_in **addr, unsigned cap);
/** May the lane go on by itself? If not, all of it is done by the calls with all locks: also what has come for it. False with one
 * lane. */
bool pbox_worker_steady(struct pbox_worker *w, unsigned lane, uint64_t now);
/** All locks are held now: comes before other calls that need them. After those comes pbox_worker_tick. */
void pbox_worker_together(struct pbox_worker *w, uint64_t now);
/** As pbox_worker_rx, of data of the lane. Frames that are not for it alone it keeps: true, if there are some. */
bool pbox_worker_lane_rx(struct pbox_worker *w, unsigned lane, const struct pbox_client_rx *d,
	unsigned n, uint64_t now);
/** These are handled, with all locks, while the datagrams are still there. */
void pbox_worker_lane_rest(struct pbox_worker *w, unsigned lane, uint64_t now);
/** As pbox_worker_tick, of data of the lane; of lane 0 also requests and keep-alive. */
uint64_t pbox_worker_lane_tick(
	struct pbox_worker *w, unsigned lane, uint64_t now, uint64_t drained);
/** After answers of the lane have come: for how long others may gather, ns (0: see them at once). */
uint64_t pbox_worker_lane_gather(const struct pbox_worker *w, unsigned lane);
/** Has some operation ended since the last pbox_worker_finished? Any thread. */
bool pbox_worker_ended(const struct pbox_worker *w);

/** What is fixed once a worker is open. */
unsigned pbox_worker_number(const struct pbox_worker *w);
unsigned pbox_worker_workers(const struct pbox_worker *w);
unsigned pbox_worker_slots(const struct pbox_worker *w); /**< of the job */
/** The nodes that this worker brings in @p round (0: its next one), in order; @p nodes has room for PBOX_RANGE_NODES.
 * Without plans all rounds are alike. @return their number; 1 in jobs without slots of their own */
unsigned pbox_worker_nodes(const struct pbox_worker *w, uint32_t round, struct pbox_node *nodes);
/** Section 15, policy reassign: the worker owns these ranges from its next push on; no push of it may be unfinished.
 * @param edition  of WORK_OK. @return 0; -EBUSY: a push is unfinished; -EINVAL: too many nodes */
int pbox_worker_own(
	struct pbox_worker *w, uint32_t edition, const struct pbox_slot_range *range, unsigned n);
/** As pbox_worker_own, of the round in progress alone, after TASK (R15.10): the edition stays. */
int pbox_worker_gain(struct pbox_worker *w, const struct pbox_slot_range *range, unsigned n);
/** R15.10: the program begins a slot of this round now. From the first call for a round on, slots of it that are not begun may be given
 * up to others; then its nodes are fewer (pbox_worker_nodes). @return false: this one was, or is not the worker's */
bool pbox_worker_slot_begin(struct pbox_worker *w, uint32_t round, unsigned slot, uint64_t now);
/** R15.7a: a table of which nothing was pushed goes on with this round: what is pulled is the version before it.
 * @return 0; -EBUSY: an operation of it is unfinished; -EINVAL: it has pushed */
int pbox_worker_begin_at(struct pbox_worker *w, struct pbox_worker_table *t, uint32_t round);
/** Has a RESULT said another edition than that of the ranges, or were some stolen or given up in this round? Without a plan: no. */
bool pbox_worker_owners_changed(const struct pbox_worker *w);
const char *pbox_worker_job(const struct pbox_worker *w);
const char *pbox_worker_box(const struct pbox_worker *w); /**< "10.0.0.1:7269" */
/** All counters but those of the port (tx_by_ref, tx_copied, tx_failed, rx_failed, gro_active). */
void pbox_worker_stats(const struct pbox_worker *w, struct pbox_client_stats *stats);

/* ---- sessions -------------------------------------------------------------------------------------------------- */

/**
 * What the box has granted, for hosts that have a data path of their own, with a table of their own (own_data). They take
 * the data frames (R2.2) out of what has arrived, and send their own, with this token; all other frames are the worker's.
 * A worker without a table joins again whenever its session is lost, and increments `times`: the host then has to declare
 * its table again, and to say what it holds.
 */
struct pbox_worker_session {
	uint64_t token;
	uint32_t incarnation, lease_ms;
	uint16_t job, endpoints;
	uint16_t window; /**< frames in flight per endpoint */
	uint16_t mtu;    /**< IP MTU of the smaller side, less the tag of each frame */
	uint32_t times;  /**< this is the so many-th one */
	/* the worker's, until the next session; NULL: frames have no tags */
	struct pbox_auth_job *auth;
	const struct pbox_auth_keys *keys;
};
/** False: there is none, or the box has ended it, and the worker joins again. */
bool pbox_worker_session(const struct pbox_worker *w, struct pbox_worker_session *out);
/** One of its endpoints; the worker's, until the next session. */
const struct sockaddr_in *pbox_worker_endpoint(const struct pbox_worker *w, unsigned endpoint);

/* ---- tables -------------------------------------------------------------------------------------------------- */

enum pbox_worker_declare_state {
	PBOX_WORKER_DECLARING,
	PBOX_WORKER_DECLARED,
	PBOX_WORKER_REFUSED, /**< err says why */
};

/**
 * A declaration, one at a time; the caller's memory until it is no longer DECLARING, or has been cancelled. While the
 * job's run has begun without this worker, the worker asks again.
 */
struct pbox_worker_declaration {
	const struct pbox_client_table *what; /**< checked (pbox_worker_check_table) */
	/** The host makes the data frames itself (pbox_worker_session), in formats of blocks codes and residuals (R13.6) as well. This is its
	 * only table: it has no operations here, the host frees it (pbox_worker_table_free) and declares it again in each session. */
	bool own_data;
	bool restores; /**< the box may have been started again: the host says what it holds (R10.2). Without own_data it does so by
			    pbox_worker_tensor_holds() and pbox_worker_table_told(), with copies (keep_copies) at a single box */
	/** Its tensors' rounds are the host's (pbox_worker_tensor_begin), which sees to it that all fits the window in any order: none is
	 * sent before others, nor held back for them, because it lags (R6.9, R18.6). */
	bool own_rounds;
	enum pbox_worker_declare_state state;
	struct pbox_client_error err;
	/** Once DECLARED: the worker's, as long as it lives; with own_data the host's. */
	struct pbox_worker_table *table;

	/* meanwhile: what it waits for */
	bool asks_map; /**< it has been declared, and now the map is asked for */
	bool waits;    /**< the box has answered NOT_READY, at wait_ns: */
	uint64_t wait_ns;
	unsigned joined, expected, declared, first_missing; /**< first_missing >= workers: nobody */
	char box_says[512];
	struct pbox_client_error running; /**< why the box did not take it last; code 0: it did */
	uint64_t running_ns; /**< it has said that in this session since then; 0: it has not */
};
void pbox_worker_declare(struct pbox_worker *w, struct pbox_worker_declaration *d);
void pbox_worker_declare_cancel(struct pbox_worker *w, struct pbox_worker_declaration *d);

/** What is fixed of a table. */
struct pbox_worker_table_info {
	uint32_t number;
	uint8_t mode, op, discipline;
	unsigned tensors;
	uint32_t
		base; /**< its version when it was declared: the first push is the round after it */
	bool resumed; /**< the program said that round (first_round) */
	bool hold;    /**< its rounds have two phases */
	/* its layout, for a host that makes data frames itself */
	uint16_t map_epoch;
	uint32_t chunks;
	uint32_t frag_elements; /**< of all fragments of a chunk but its last */
};
void pbox_worker_table_info(const struct pbox_worker_table *t, struct pbox_worker_table_info *info);
/** How many nodes this worker brings in a round of the table. With op 3 (weighted mean) each of its slots is one, else
 * they are those of pbox_worker_nodes. */
unsigned pbox_worker_table_nodes(const struct pbox_worker *w, const struct pbox_worker_table *t);
/** The @p i th of them, i < pbox_worker_table_nodes. */
struct pbox_node pbox_worker_table_node(
	const struct pbox_worker *w, const struct pbox_worker_table *t, unsigned i);
struct pbox_worker_chunk {
	uint32_t id, elements;
	uint32_t tensor; /**< of its first element */
	uint16_t endpoint;
};
/** @p i  0 to chunks - 1, in the order of their numbers */
void pbox_worker_chunk(
	const struct pbox_worker_table *t, uint32_t i, struct pbox_worker_chunk *chunk);
/** Of a declaration with own_data; NULL: nothing. */
void pbox_worker_table_free(struct pbox_worker_table *t);
/** The round of the next push to a table of the worker, after those that were submitted. What the box did not take, or has lost,
 * is none of these.
 * @param restoring  the box was started again, and does not know yet what of them it has, or has not got all of it again: ask again */
uint32_t pbox_worker_next_round(
	const struct pbox_worker *w, struct pbox_worker_table *t, bool *restoring);
/** Has a box that was started again not got all that the worker holds of its pushes to tables in clocks (R14.12)? They are lost if
 * the worker leaves. False once it has failed or is shut. */
bool pbox_worker_owes(const struct pbox_worker *w);
/** A factor as frames have it (bf16, to nearest, ties to even), and what that is. */
uint16_t pbox_worker_factor_code(float factor);
float pbox_worker_factor(uint16_t code);
/** Of a tensor (PBOX_CLIENT_ALL_TENSORS: of all). False: the table is not in clocks, or there is no such tensor. `size` is
 * left to the caller. */
bool pbox_worker_versions(
	const struct pbox_worker_table *t, uint32_t tensor, struct pbox_client_versions *out);
/** Its elements; *name lives as long as the table. */
uint64_t pbox_worker_tensor(const struct pbox_worker_table *t, unsigned tensor, const char **name);

/**
 * For a host that has its own tables, of which each tensor here is a fragment (lib/uplink): the tensor's next push is that of
 * @p round. Nothing of it was pushed in this worker. @p may_have  the box may have that round already: this worker's number brought it
 * before.
 * @return 0; -EAGAIN: it is reported to a box that was started again, ask later; -ERANGE: the box is at another version, which is in
 *         *version; -EINVAL: it was pushed, or is in no chunk
 */
int pbox_worker_tensor_begin(struct pbox_worker_table *t, uint32_t tensor, uint32_t round,
	bool may_have, uint32_t *version);
/** What the last RESULT of a tensor said besides; false: none has come, or none is retained (keep_copies). */
struct pbox_worker_tensor_result {
	uint32_t version, samples;
	uint16_t contributors;
};
/**
 * Of a table that was declared with `restores`, before pbox_worker_table_told(): the host holds this version of a tensor.
 * @param value  @p elements in the pull format, which is fp32; those after them are 0. NULL: it cannot give them
 */
void pbox_worker_tensor_holds(struct pbox_worker_table *t, uint32_t tensor,
	const struct pbox_worker_tensor_result *what, const float *value, uint32_t elements);
/** It has said so of all tensors: they are reported, and then pushed. */
void pbox_worker_table_told(struct pbox_worker_table *t);
bool pbox_worker_tensor_result(
	const struct pbox_worker_table *t, uint32_t tensor, struct pbox_worker_tensor_result *out);

/* ---- operations ---------------------------------------------------------------------------------------------- */

struct pbox_worker_op;
/** One tensor of an operation. */
struct pbox_worker_entry {
	struct pbox_worker_entry *next; /* the worker's: in the tensor's queue */
	struct pbox_worker_op *op;
	const uint8_t *in; /**< elements in the push format; GIVE, INIT: fp32 */
	uint8_t *out;      /**< elements in the pull format; FETCH: fp32 */
	uint32_t tensor;
	uint32_t left;  /* pieces that have not ended */
	uint32_t index; /* in the operation */
	bool started;   /* all pieces have seen it */
};

/** An operation: the host's memory, the worker's from submit until it is one of the finished. The host fills table,
 * kind, prio, weight, n and its entries; the rest is zero.
 *
 * A PUSH or PUSHPULL of several nodes has them in node_in and node_weight, as many as pbox_worker_table_nodes says; `in`
 * of its entries and weight are not looked at then. A plain one brings `in` and weight at the first of the worker's
 * nodes, and zeros with a weight of 0 at the others. */
struct pbox_worker_op {
	struct pbox_worker_op *next; /**< in the list that it is in; the host's before and after */
	struct pbox_worker_op *all_next, *all_prev; /* unfinished ones, oldest first */
	struct pbox_worker_table *table;
	uint32_t weight; /**< samples; FETCH and GIVE: which array */
	uint32_t open;   /* entries not finished, of all lanes */
	uint64_t order;  /* of the first entry; they are in the order of submission */
	uint8_t kind;    /**< enum pbox_client_kind */
	uint8_t prio;
	bool failing; /* nothing more is sent for it */
	bool again; /**< the host's: its nodes are of the round of the last push, once more (R15.8) */
	bool more; /**< once finished: this worker has got slots in the round, which has not ended (R15.8) */
	int code;        /**< once finished: PBOX_C_OK or a failure */
	char text[512];  /**< of a failure */
	uint16_t factor; /**< of a push to a table in clocks, as bf16; 0: 1 */
	bool pulls_ago;  /**< pbox_client_op.pulls_ago */
	bool bounded;    /**< a pull that waits for the slowest worker: pbox_client_op.bounded, */
	uint32_t bound;  /**< and bound */
	unsigned nodes;  /**< 0: a plain operation */
	/** node_in[node * n + i] is `in` of entry i for that node; the host's memory until the operation ends. */
	const uint8_t *const *node_in;
	const uint32_t *node_weight; /**< by node; as node_in */
	unsigned n;
	/** n, filled by the host; after them the worker's own of other lanes: room for n * pbox_worker_lanes() in all. */
	struct pbox_worker_entry e[];
};
void pbox_worker_submit(struct pbox_worker *w, struct pbox_worker_op *op);
/** A list of those that have ended since the last call. The port may still send the memory of a failed one (zero copy:
 * datagrams with `stays`). */
struct pbox_worker_op *pbox_worker_finished(struct pbox_worker *w);
/** Unfinished ones, oldest first, by all_next. */
struct pbox_worker_op *pbox_worker_oldest(const struct pbox_worker *w);

/** What an operation (NULL: the session) waits for. */
struct pbox_worker_wait {
	int missing;          /**< worker; -1: nobody that is known */
	uint64_t answered_ns; /**< when the box said so */
	uint32_t table;
	uint32_t chunk,
		round; /**< of the fragment that waits; round 0: of none, and chunk is the table's number */
	uint16_t frag;
	uint64_t bytes,
		left; /**< of the operation, in its format: all, and those that are not through; 0: not known */
};
/** Into @p text, which is empty when nothing is waited for. The worker probes soon. */
void pbox_worker_why(struct pbox_worker *w, struct pbox_worker_op *op,
	struct pbox_worker_wait *wait, char *text, size_t cap);

/* ---- control requests ---------------------------------------------------------------------------------------- */

/** A request to the control endpoint (R3.1), repeated until it is answered; the host's memory, the worker's until it
 * is one of the answered. The host fills type, payload, length, answer and answer_cap, and may fill box; the rest is zero. */
struct pbox_worker_request {
	struct pbox_worker_request *next;
	const uint8_t *payload;
	uint8_t *answer;
	size_t answer_cap;
	uint64_t next_tx; /* these are the worker's */
	unsigned tries;
	uint32_t id;
	uint16_t length;
	uint16_t answer_len, answer_code;
	uint16_t map_epoch; /* of the header, and then of that of the answer */
	uint8_t type;
	uint8_t box; /**< 1 + number of the box that is asked; one that the job does not have, or goes on without, gives no answer. 0: as R3.1 and R16.4 say */
	uint8_t answer_type; /**< once answered; 0: it has no answer, as the worker has failed or was shut */
	uint8_t taken; /* SET: 1 + the box that has taken it first; 0: none yet */
	bool listed;
	bool own;     /* the worker's: it goes while others wait for a new session */
	bool watched; /* the worker's: who has asked looks whether it is still listed */
};
void pbox_worker_request(struct pbox_worker *w, struct pbox_worker_request *r);
/** It is the host's again. */
void pbox_worker_request_cancel(struct pbox_worker *w, struct pbox_worker_request *r);
/** A list of those that have ended since the last call, with an answer or without. */
struct pbox_worker_request *pbox_worker_answered(struct pbox_worker *w);
/** 0 if the answer is of type @p want, or a failure with its text; any thread.
 * @param ended  why there is no answer, if there is none */
int pbox_worker_result(const struct pbox_worker_request *r, uint8_t want, const char *what,
	const struct pbox_client_error *ended, struct pbox_client_error *err);

/** Payloads of requests, into @p buf; their length.
 * SET of @p n hyper-parameters (1 to PBOX_SET_MAX) of a group from @p round on (R7.1). */
size_t pbox_worker_set(void *buf, size_t cap, const struct pbox_worker_table *t, uint16_t group,
	uint32_t round, const struct pbox_client_hyper *h, unsigned n);
/** Pushes of a table with pushes in two formats go in fp32 from a round on, or in codes again (R13.10). False: it has one format, or something has
 * been said from a later round on. The host's thread, before it pushes in that round. */
bool pbox_worker_plain(struct pbox_worker_table *t, uint32_t round, bool plain);
/** STATUS (R8.3) from worker @p first on. @p on  what this worker waits for, of that one (R8.3a); NULL: nothing */
size_t pbox_worker_status(void *buf, size_t cap, unsigned first, const struct pbox_worker_wait *on);

/* ---- memory -------------------------------------------------------------------------------------------------- */

/** For tensors, or as much: aligned to 64 bytes, not cleared, in hugepages where the kernel has them and it is large. NULL: there is
 * not enough. The caller's until free(). Any thread. */
void *pbox_worker_room(size_t bytes);

/* ---- checks, texts ------------------------------------------------------------------------------------------- */

/** Arguments of programs: PBOX_C_OK, or PBOX_C_INVALID with its reason. */
int pbox_worker_check(const struct pbox_client_conf *conf, struct pbox_client_error *err);
int pbox_worker_check_mtu(unsigned mtu, struct pbox_client_error *err);
int pbox_worker_check_table(const struct pbox_client_table *d, struct pbox_client_error *err);

/** Fill @p err (may be NULL) and return @p code. */
int pbox_client_fail(struct pbox_client_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/** Append to a text of @p cap bytes, cutting what does not fit. */
void pbox_text_add(char *text, size_t cap, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#define PBOX_TEXT_NAME (4 * 64)
/** A name that another host has chosen, for a text: characters that would end a quotation or a line, or control a
 * terminal, are escaped. Returns @p out, of PBOX_TEXT_NAME bytes. */
const char *pbox_text_name(char *out, const char *name);
/** The same for a text of the box, in place: quotation marks stay, control characters go. */
void pbox_text_tame(char *text);

#endif /* PBOX_WORKER_H */
