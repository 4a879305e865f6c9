/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CLIENT_IMPL_H
#define CLIENT_IMPL_H

/**
 * @file
 * Inside of libpbox-client; not installed.
 *
 * Who may touch what:
 *   - the *progress thread* alone: sockets (after open), endpoints, windows, flights, fragments,
 *     the queues of tensors, unfinished operations;
 *   - *under client.lock*: lists of commands and submitted operations, handles, done flags, the
 *     published statistics, the list of tables;
 *   - *fixed after open or declare*: configuration, names, sizes, map.
 * Everything else reaches the progress thread as a command (struct cmd).
 */

#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include <time.h>

#include <pbox_auth.h>
#include <pbox_wire.h>

#include "pbox_client.h"
#include "pbox_client_transport.h"

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

#define MAX_TABLES     65535
#define MAX_WINDOW     4096 /* frames in flight per endpoint */
#define FIRST_WINDOW   16
#define MIN_THRESH     3     /* later answers that make a loss likely, as in TCP */
#define ACTIVATE_BATCH 8192  /* pieces made ready in one turn of the loop */
#define RX_TURNS       4     /* receive bursts in one turn of the loop */
#define MAX_FRAME      65507 /* largest UDP payload */

static inline uint64_t
clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/** Fill @p err (may be NULL) and return @p code. */
int client_fail(struct pbox_client_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/** Append to a text of @p cap bytes, cutting what does not fit. */
void text_add(char *text, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#define TEXT_NAME (4 * PBOX_NAME_LEN)
/** A name that another host has chosen, for a text: what would end a quotation or a line, or steer a
 * terminal, as \' or \x1b. Returns @p out, of TEXT_NAME bytes. */
const char *text_name(char *out, const char *name);
/** The same for what the box says: it may quote, but not steer. In place. */
void text_tame(char *text);

/** By how much round a is later than round b, modulo 2^32 (R6.1). */
static inline int32_t
rounds_apart(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b);
}

/* ---- window.c: round trip and window of one endpoint ----------------------------------- */

struct window {
	uint64_t srtt, rttvar, rtt_min, rtt_peak, rto; /* ns; srtt 0: no sample yet */
	uint64_t pto;   /* the rto without its margins: where losses are proven, a probe is cheap */
	uint64_t pause; /* that, and as long as answers have taken of late */
	uint64_t min_rto;
	uint64_t peak_at, epoch_at;
	double size, ssthresh;
	double share; /* of frames that were lost, of late */
	uint32_t max;
	uint32_t answered, lost, marked; /* in this epoch */
};

void window_init(struct window *w, uint32_t max, uint64_t min_rto, uint64_t now);
void window_sample(struct window *w, uint64_t rtt, uint64_t now);
/** An answer came; @p limited: the window was what kept more from being sent. */
void window_answered(struct window *w, bool limited, uint64_t now);
void window_lost(struct window *w, uint64_t now);   /* a loss that was proven */
void window_marked(struct window *w, uint64_t now); /* CE seen, by us or by the box */
void window_silent(struct window *w);               /* a whole time-out without any answer */
static inline uint32_t
window_frames(const struct window *w)
{
	return (uint32_t)w->size;
}
/** For how long answers may gather (ns; 0: not at all), with @p out frames in the network. */
uint64_t window_gather(const struct window *w, uint32_t out);
/** Frames of @p mtu that a receive buffer of @p rcvbuf bytes (as the kernel counts) holds. */
uint32_t window_of_buffer(size_t rcvbuf, unsigned mtu);

/* ---- operations ------------------------------------------------------------------------ */

struct op;
struct table;

/** One tensor of an operation. */
struct entry {
	struct entry *next; /* in the tensor's queue */
	struct op *op;
	const uint8_t *in;
	uint8_t *out;
	uint32_t tensor;
};

struct op {
	struct op *next;                /* in the list that it is in: submitted, finished */
	struct op *all_next, *all_prev; /* unfinished ones, oldest first; progress thread */
	struct table *table;
	pbox_client_handle handle;
	uint64_t submitted_ns;
	uint32_t round; /* for messages */
	uint32_t weight;
	uint32_t open;  /* entries not finished; progress thread */
	uint32_t order; /* of submission */
	uint8_t kind, prio;
	bool failing;     /* progress thread: nothing more is sent for it */
	int code;         /* valid once done */
	char *text;       /* of a failure; NULL: none, or no memory for it */
	bool done;        /* lock */
	unsigned waiters; /* lock */
	void (*notify)(void *ctx, int code, const char *text); /* lock until done */
	void *notify_ctx;
	unsigned n;
	struct entry e[];
};

/** What a fragment holds of one tensor. */
struct piece {
	uint64_t offset; /* element in the tensor */
	uint32_t tensor, elements;
	uint32_t frag; /* index in the table */
	bool want;     /* the tensor's first entry still waits for it */
};

enum frag_state { FRAG_IDLE, FRAG_QUEUED, FRAG_FLIGHT };

struct frag {
	struct frag *next; /* in its endpoint's queue */
	uint32_t chunk;    /* index in the table */
	uint32_t piece;    /* first of its pieces */
	uint32_t round;    /* last one sent; at first the version at the time of the map */
	uint32_t order;    /* of the operation that made it ready */
	uint16_t pieces;
	uint16_t index;                /* in its chunk */
	uint16_t pushes, pulls, inits; /* pieces that want one */
	uint16_t states;               /* FETCH or GIVE */
	uint16_t flight;               /* slot at the endpoint while in flight */
	uint16_t table;
	uint8_t prio;
	uint8_t state : 2;
	bool pushed : 1; /* by this client */
};

struct chunk {
	uint64_t at;                          /* elements of the chunks before it */
	uint32_t id, elements, version, frag; /* frag: its first */
	uint16_t endpoint;
};

/** What this worker holds of a fragment (copy.c). */
struct held {
	uint32_t version; /* the last one that came */
	uint32_t samples;
	uint16_t contributors;
	bool have; /* its payload stands in table.copy */
};

struct tensor {
	char *name;
	uint64_t elements;
	struct entry *head, **tail;
	struct tensor *active_next;  /* list of those with pieces to make ready */
	uint32_t by_first, by_count; /* its part of table.by_tensor */
	uint32_t active_at;          /* first of them not yet made ready */
	uint32_t left;               /* pieces the first entry waits for */
	uint32_t submitted;          /* rounds pushed so far; lock */
	uint16_t group;
};

struct table {
	uint32_t number;
	uint8_t mode, op, optimiser, push_format, pull_format, push_size, pull_size;
	uint16_t map_epoch;
	unsigned n;
	uint32_t chunks, frags, pieces;
	uint32_t frag_elements, init_elements, first_chunk_id;
	struct tensor *tensor;
	struct chunk *chunk;
	struct frag *frag;
	struct piece *piece;
	uint32_t *by_tensor; /* indices of pieces, grouped by tensor, in order of offset */
	uint32_t base_version, max_submitted; /* lock */
	/* progress thread */
	uint8_t *copy;        /* chunk after chunk in the pull format; NULL: none are kept */
	struct held *held;    /* by fragment */
	struct set_log *sets; /* that the box has answered with SET_OK */
	bool restoring;       /* the box must be told what we hold, before operations go on */
	bool resumed;         /* its rounds go on where the program says (first_round) */
	uint32_t flags;       /* of its DECLARE: PBOX_DECLARE_CONTINUE */
};

static inline uint32_t
frag_elements(const struct table *t, const struct frag *f)
{
	uint32_t done = f->index * t->frag_elements, e = t->chunk[f->chunk].elements;

	return e - done < t->frag_elements ? e - done : t->frag_elements;
}

/* ---- endpoints ------------------------------------------------------------------------- */

enum flight_state {
	FLIGHT_FREE,
	FLIGHT_SENT,   /* waiting for the answer */
	FLIGHT_PROBED, /* a loss is likely: a PULL of the round has asked for it */
	FLIGHT_HELD,   /* the box has our part and waits for others */
	FLIGHT_UNKEPT, /* the box cannot take it yet: repeat later */
};

/** A fragment between its first transmission and its answer. */
struct flight {
	struct flight *prev, *next; /* in order of last transmission; next: also free list */
	struct frag *frag;
	uint64_t seq;   /* of the last transmission at this endpoint */
	uint64_t order; /* of the first one of what it carries now */
	uint64_t first_ns, sent_ns, due_ns;
	uint32_t ts, payload_ts; /* of the last transmission; of the last with payload */
	uint32_t gap;            /* later answers after which it is suspected lost */
	uint32_t base;           /* INIT: element offset */
	uint32_t wait_missing;   /* from the latest WAIT */
	uint64_t wait_ns;        /* when it came */
	uint16_t wait_have;
	uint8_t type; /* PBOX_PUSHPULL, PUSH, PULL, INIT, RESTORE */
	uint8_t state, backoff, tries, losses;
	bool waited; /* wait_* are valid */
	bool urgent; /* has overtaken older fragments */
	bool give;   /* RESTORE: with the payload */
};

struct ep {
	struct pbox_client_peer peer;
	struct window win;
	struct flight *flight; /* room for `flights`; win.max of them are used */
	uint32_t flights;
	struct flight *free, *first, *last;
	uint32_t in_flight, held, urgent; /* all; of these: in FLIGHT_HELD; with urgent set */
	uint32_t thresh;                  /* of loss detection, adapted to reordering */
	uint64_t seq, answered_seq;       /* answered: the highest order with a final answer */
	uint64_t next_due, last_rx, silent_at;
	uint64_t asked_ns;   /* first transmission after last_rx */
	uint64_t lost_ns;    /* last proven loss; 0: none */
	uint64_t final_ns;   /* last final answer: RESULT, PUSH_OK, INIT_OK */
	uint64_t doubt_ns;   /* since then timers have run out ... */
	uint32_t doubts;     /* ... for so many flights; */
	uint8_t doubt_shift; /* what is allowed at once, ever more rarely */
	bool paused;         /* some flight's time-outs have grown long */
	bool ece;            /* tell the box that CE was seen */
	bool limited;        /* the window kept something from being sent */
	uint64_t ready_map[4];
	struct frag *ready[256], *ready_last[256];
	uint32_t ready_order[256]; /* of the first of each */
};

/* ---- link.c: frames in datagrams; transport.c: who carries them ---------------------------- */

#define LINK_IOVS    1024
#define LINK_HDRS    512
#define LINK_ECN_CE  3
#define LINK_MIN_MTU (PBOX_MTU_OVERHEAD + PBOX_JOIN_LEN)

/** Keys of a session with tags (auth.c). */
struct auth {
	struct pbox_auth_job *job;
	struct pbox_auth_keys keys;
	uint8_t gathered[UINT16_MAX]; /* a payload that does not stand in one piece */
};

struct link {
	struct pbox_client_transport *t;
	struct auth *auth; /* NULL: frames have no tags */
	/* batch being built */
	unsigned n_tx, n_iovs, n_hdrs;
	size_t head_bytes; /* used of head */
	bool heads;        /* the last datagram has header-only frames */
	struct pbox_client_tx tx[PBOX_CLIENT_TX_BATCH];
	struct iovec iov[LINK_IOVS];
	uint8_t head[LINK_HDRS * (PBOX_HDR_LEN + PBOX_TAG_LEN)]; /* no gap between them */
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes, rx_dropped, rx_drop_auth;
};

/** A received frame; payload lives until the handler returns. */
struct rx_frame {
	struct pbox_hdr hdr;
	const uint8_t *payload;
	struct sockaddr_in from;
	bool ce;
	bool sure; /* its tag is right, or the session has none */
};
typedef void (*rx_handler)(void *ctx, const struct rx_frame *f);

int link_open(struct link *l, const struct pbox_client_conf *conf, const struct sockaddr_in *box,
	struct pbox_client_error *err);
void link_close(struct link *l);
/** Queue a frame whose payload stands in @p iov; sends the batch when it is full.
 * @param stays  the payload does, as pbox_client_tx.stays has it; else until link_flush */
void link_frame(struct link *l, struct pbox_client_peer *to, const struct pbox_hdr *hdr,
	const struct iovec *iov, unsigned n, bool stays);
void link_flush(struct link *l);
/** Up to @p turns bursts; returns how many datagrams came. link.t->more: there may be others. */
unsigned link_receive(struct link *l, unsigned turns, rx_handler handler, void *ctx);
/** Wait for input, @p ns, or link_wake. */
static inline void
link_wait(struct link *l, uint64_t ns)
{
	l->t->ops->wait(l->t, ns);
}

extern const struct pbox_client_transport_ops transport_udp;
/** By name (NULL or empty: udp), loaded if need be; NULL with @p err. */
const struct pbox_client_transport_ops *transport_find(
	const char *name, struct pbox_client_error *err);

/* ---- commands, requests ------------------------------------------------------------------ */

/** Runs in the progress thread; the issuer waits for done, or does not free it until it is. */
struct cmd {
	struct cmd *next;
	void (*run)(struct pbox_client *c, struct cmd *cmd);
	bool done; /* lock */
	bool hold; /* not done when run returns: somebody else will say so */
};

/** A control request; done when answered, cancelled, or the session is lost. */
struct request {
	struct cmd cmd;
	struct request *next;
	/* progress thread, before it is done; may be NULL */
	void (*answered)(struct pbox_client *c, struct request *r);
	uint32_t generation; /* of the session that it belongs to; 0: any */
	const uint8_t *payload;
	uint8_t *answer; /* caller's, of answer_cap bytes */
	size_t answer_cap;
	uint64_t next_tx;
	unsigned tries;
	uint32_t id;
	uint16_t length, answer_len, map_epoch;
	uint8_t type, answer_type; /* 0: none came */
	uint16_t answer_aux;
	bool listed;
	bool own;     /* of rejoin.c: goes while others wait */
	bool renewed; /* not answered, because that session is gone and there is a new one */
};

/** Internal result: the session was renewed meanwhile, begin again. */
#define CLIENT_RENEWED 100

struct chunk_ref {
	uint32_t id, chunk;
	struct table *table; /* NULL: empty */
};

struct slot {
	struct op *op;
	uint32_t generation;
	uint32_t next; /* free list: index + 1 */
};

/** Memory that the caller gave back while an operation, maybe of this memory, was in flight. */
struct freed {
	struct freed *next;
	void *memory;
};

struct pbox_client {
	/* fixed after open */
	struct pbox_client_conf conf;
	char *box_name, *job, *secret, *host;
	struct pbox_client_peer box; /* control endpoint */
	uint64_t nonce;              /* of all its sessions */
	uint8_t run[PBOX_RUN_LEN];   /* identity of its run; zeros: none */
	bool has_run;
	bool goes_on;  /* the program said the round of a table (first_round) */
	struct ep *ep; /* room for PBOX_MAX_ENDPOINTS */

	/* of the session: progress thread; written under lock */
	uint64_t token;
	uint64_t number; /* of the run */
	uint32_t incarnation, lease_ms;
	uint16_t job_number, worker, workers, endpoints, window;
	unsigned mtu;        /* the smaller one of ours and the box's, less tag */
	unsigned tag;        /* bytes behind each payload */
	uint32_t generation; /* how many sessions there have been */

	/* progress thread (open uses link before it starts) */
	struct link link;
	uint64_t now;
	uint64_t last_tx, last_rx;
	uint64_t doubt_ns;       /* since when the session may be gone; 0: it is not (R11.6) */
	uint64_t tx_seen;        /* link.tx_frames when last_tx was set */
	struct table **table_of; /* by frag.table */
	uint32_t table_of_cap;
	struct chunk_ref *refs;
	uint32_t refs_cap, refs_used; /* cap: a power of two */
	struct tensor *activating;
	struct op *ops, *ops_last; /* unfinished */
	uint32_t next_order;
	struct op *finished, **finished_tail; /* to be published */
	struct request *requests;
	struct pbox_client_stats count; /* its own copy; published under lock */
	uint64_t published_at;
	uint64_t spin_until;
	struct rejoin *rejoin;
	bool failed;   /* the session is lost for good */
	bool shut;     /* closing: all operations have been failed */
	bool ending;   /* the thread leaves its loop */
	bool proven;   /* the box has once proven that it knows the secret */
	bool unproven; /* the job is insecure, the worker has a secret */
	pthread_t thread;

	pthread_mutex_t declare_lock; /* one declare at a time; taken before lock */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct cmd *cmds, **cmds_tail;
	struct op *submitted, **submitted_tail;
	atomic_bool kicked; /* the thread has been woken and not yet looked */
	atomic_uint next_id;
	unsigned users; /* calls inside */
	bool closing;
	int fatal; /* lock; code of the lost session */
	char fatal_text[512];
	struct slot *slot;         /* of handles */
	uint32_t slots, free_slot; /* free_slot: index + 1, 0: none */
	struct table **table;      /* those mapped, by number */
	uint32_t tables, tables_cap;
	char refusal[512]; /* why a declare asks again; empty: none does */
	struct pbox_client_stats stats;
	struct freed *freed;
};

/* client.c */
int client_enter(struct pbox_client *c, struct pbox_client_error *err);
void client_leave(struct pbox_client *c);
/** Deadline in ns for a time-out in ms; 0 means the configuration's. */
uint64_t client_deadline(const struct pbox_client *c, unsigned timeout_ms);
/** Wait on the condition variable until @p deadline; false when it has passed. Lock held. */
bool client_sleep(struct pbox_client *c, uint64_t deadline);
void client_kick(struct pbox_client *c);
/** Release the handle and the memory of an operation that is done. */
void op_free(struct pbox_client *c, struct op *op);
struct table *client_table(struct pbox_client *c, uint32_t table);

/* auth.c */
struct join;
void auth_end(struct auth *a);
bool auth_possible(void);
/** What WELCOME (j->welcome, of frame @p f) says of tags: 0 with j->auth as it shall be, a failure, or
 * AUTH_IGNORE: it is not from the box, or of another time. */
#define AUTH_IGNORE 1
int auth_welcome(struct join *j, const struct rx_frame *f);
bool auth_good(const struct auth *a, const struct rx_frame *f);
/** Write the tag of the frame with this header and the payload in @p iov. */
void auth_tag(
	struct auth *a, const void *header, const struct iovec *iov, unsigned n, uint8_t *tag);
/** An ERROR SESSION without a tag: not to be believed yet (R11.6)? */
bool auth_doubts(struct pbox_client *c);

/* join.c */
int join_session(struct pbox_client *c, struct pbox_client_error *err);
int join_error(struct pbox_client_error *err, const struct pbox_error_msg *m, const char *what);

/* control.c */
void request_begin(struct pbox_client *c, struct request *r, uint8_t type, const void *payload,
	size_t length, void *answer, size_t cap);            /* progress thread */
void request_drop(struct pbox_client *c, struct request *r); /* progress thread */
/** A new session: what belonged to the old one ends, the rest goes again. */
void control_renewed(struct pbox_client *c);
void cmd_issue(struct pbox_client *c, struct cmd *cmd);
void cmd_call(struct pbox_client *c, struct cmd *cmd); /* issue and wait */
/** Issue; completion is seen by request.cmd.done under the lock.
 * @param generation  of the session that it belongs to; 0: any */
void request_issue(struct pbox_client *c, struct request *r, uint32_t generation, uint8_t type,
	const void *payload, size_t length, void *answer, size_t cap);
void request_cancel(struct pbox_client *c, struct request *r);
/** Issue, wait until answered or @p deadline. 0, or a failure with its text. */
int request_call(struct pbox_client *c, uint8_t type, uint8_t want, const void *payload,
	size_t length, void *answer, size_t cap, size_t *answer_len, uint64_t deadline,
	struct pbox_client_error *err);
int request_result(struct pbox_client *c, const struct request *r, uint8_t want, const char *what,
	struct pbox_client_error *err);
void control_tick(struct pbox_client *c); /* progress thread */
void control_frame(struct pbox_client *c, const struct rx_frame *f);
void control_fail_all(struct pbox_client *c);
uint64_t control_due(const struct pbox_client *c);

/* path.c */
/** @param ended  why the session has ended, with CLIENT_RENEWED; the text may be empty */
int path_check(struct pbox_client *c, uint64_t deadline, struct pbox_error_msg *ended,
	struct pbox_client_error *err);

/* table.c */
struct table_map { /* the map as it comes, chunk by chunk */
	struct pbox_segment *segment;
	uint32_t *first; /* of chunk i, in segment */
	uint16_t *count;
	uint8_t *got;
	uint32_t n_got;
	size_t used, cap;
	struct pbox_chunk_entry entry; /* room to decode one */
};
struct table *table_new(const struct pbox_client_table *d, uint32_t number);
void table_free(struct table *t);
/** Has a frame with room for @p cap bytes room for so many elements, sent and received? */
bool table_fits(const struct table *t, uint32_t frag_elements, uint32_t cap);
/** Fragments and pieces, once all chunks are here; a frame has room for @p cap bytes. */
int table_layout(
	struct table *t, const struct table_map *m, uint32_t cap, struct pbox_client_error *err);

/* session.c */
void *session_main(void *arg);
void session_fail(struct pbox_client *c, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void session_header(const struct pbox_client *c, struct pbox_hdr *h, uint8_t type);
/** A PING or PONG with a nonce that proves the address where it arrives (R4.9). */
static inline bool
session_asks(const struct pbox_hdr *h)
{
	return (h->type == PBOX_PING || h->type == PBOX_PONG) && (h->round | h->base) != 0;
}
/** A PING that gives it back, to the endpoint that sent it; with the next flush. */
void session_echo(struct pbox_client *c, const struct rx_frame *f);
int refs_add(struct pbox_client *c, struct table *t);
const struct chunk_ref *refs_find(const struct pbox_client *c, uint32_t id);

/* queue.c: operations -> ready fragments */
void queue_op(struct pbox_client *c, struct op *op);
void queue_activate(struct pbox_client *c, unsigned budget);
void queue_check(struct pbox_client *c, struct table *t, struct frag *f);
/** Forget what is ready. */
void queue_clear(struct pbox_client *c);
/** Find again what is ready, in the order of operations. */
void queue_rebuild(struct pbox_client *c);
/** The fragment to send next, and whether it overtakes older ones; NULL: none may go now. */
struct frag *queue_pop(struct pbox_client *c, struct ep *ep, bool *urgent);
void piece_finish(struct pbox_client *c, struct table *t, struct piece *p);
void op_fail(struct pbox_client *c, struct op *op, int code, const char *text);
void op_finish(struct pbox_client *c, struct op *op);

/* transfer.c: ready fragments -> frames -> answers */
void transfer_pump(struct pbox_client *c);
void transfer_frame(struct pbox_client *c, const struct rx_frame *f);
/** Send the flight's payload or, for @p probe, a PULL of its round. */
void transfer_send(struct pbox_client *c, struct ep *ep, struct flight *fl, bool probe, bool again);
/** The bytes of @p count elements of the fragment from element @p from on, in @p iov; returns
 * how many entries, or 0 when @p cap is too small. */
unsigned transfer_gather(const struct table *t, const struct frag *f, uint32_t from, uint32_t count,
	unsigned size, struct iovec *iov, unsigned cap);
#define MAX_PIECES PBOX_MAX_SEGMENTS
/** Take a flight for the fragment, and send. */
struct flight *transfer_launch(
	struct pbox_client *c, struct ep *ep, struct frag *f, uint8_t type, bool urgent);
void transfer_land(struct ep *ep, struct flight *fl);
/** The session is gone: nothing is under way any more, all that was is to be done again. */
void transfer_withdraw_all(struct pbox_client *c);
/** Fail all that waits for the fragment. */
void transfer_fail(
	struct pbox_client *c, struct table *t, struct frag *f, int code, const char *text);

/* recover.c: lost frames */
/** The last in the list of what is under way, with a new timer. */
void recover_armed(struct ep *ep, struct flight *fl, uint64_t now);
/** Out of that list; its own links stay. */
void recover_unlist(struct ep *ep, struct flight *fl);
void recover_answer(struct ep *ep, struct flight *fl, const struct pbox_hdr *h, uint64_t now);
void recover_result(struct ep *ep, struct flight *fl, const struct pbox_hdr *h, uint64_t now);
void recover_wait(
	struct pbox_client *c, struct ep *ep, struct flight *fl, const struct pbox_hdr *h);
/** The box has it, and waits for others. */
void recover_hold(struct ep *ep, struct flight *fl, uint64_t now);
/** Somebody wants to know who is missing now: the box is asked soon. */
void recover_ask(struct ep *ep, struct flight *fl, uint64_t now);
void recover_evidence(struct pbox_client *c, struct ep *ep);
/** @p now: what had come by then has been looked at. That is earlier than c->now by what the processor
 * did meanwhile, or did for others: answers may stand in the socket since. */
void recover_timers(struct pbox_client *c, struct ep *ep, uint64_t now);

/* waiting.c: how long a wait goes on */
struct waiting {
	uint64_t began, deadline; /* ns; deadline moves while the one that is missing lives, */
	uint64_t last;            /* until then at most */
	uint64_t next_ask, timeout;
	bool exact; /* the time-out was given for this wait */
};
void waiting_begin(const struct pbox_client *c, struct waiting *w, unsigned timeout_ms);
/** The box's view of a worker; any thread but the progress thread. */
struct pbox_member_entry;
bool waiting_member(struct pbox_client *c, unsigned worker, struct pbox_member_entry *e, char *told,
	size_t cap);
/** What is waited for. */
struct waiting_for {
	int missing;      /* worker; -1: nobody */
	uint64_t told_ns; /* when the box said so */
	uint32_t table;
};
/** To be called at next_ask. True: it has left @p left_ms ago or more, or was refused, and waiting is in vain. */
bool waiting_ask(
	struct pbox_client *c, struct waiting *w, const struct waiting_for *f, unsigned left_ms);
double waiting_seconds(const struct waiting *w);

/* why.c */
/** What the operation waits for (progress thread); returns the missing worker, or -1. */
int why_op(struct pbox_client *c, struct op *op, uint64_t *told_ns, char *text, size_t cap);
/** Append what the box knows of a member; any other thread. */
void why_member(struct pbox_client *c, unsigned worker, char *text, size_t cap);

#endif /* CLIENT_IMPL_H */
