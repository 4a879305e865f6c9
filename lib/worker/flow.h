/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FLOW_H
#define FLOW_H

/**
 * @file
 * Inside of lib/worker: data. Tables and their fragments, endpoints and what is in flight there: window.c, queue.c,
 * transfer.c, flight.c, timer.c, loss_recovery.c.
 */

#include <assert.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include <pbox_wire_data.h>

#include "pbox_worker.h"
#include "pbox_worker_recovery.h"
#include "worker_discipline.h"

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

#define MAX_TABLES   65535
#define WORKER_BOXES PBOX_WORKER_BOXES
#define MAX_WINDOW   4096 /* frames in flight per endpoint */
#define FIRST_WINDOW 16
#define MIN_THRESH   3    /* later answers that make a loss likely, as in TCP */
#define START_BATCH  8192 /* pieces made ready in one turn */

/* One that walks an array: in tests alone (meson.build says in which). */
#ifdef PBOX_WALKS
#define assert_walk(cond) assert(cond)
#else
#define assert_walk(cond) ((void)sizeof(cond))
#endif

struct lane;
struct session;
struct rx_frame;

/** By how much round a is later than round b, modulo 2^32 (R6.1). */
static inline int32_t
rounds_apart(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b);
}

/* ---- window.c: round trip and congestion window of one endpoint -------------------------- */

struct window {
	uint64_t srtt, rttvar, rtt_min, rtt_peak, rto; /* ns; srtt 0: no sample yet */
	uint64_t pto;   /* the rto without its margins: where losses are proven, a probe is cheap */
	uint64_t pause; /* pto, or as long as recent answers have taken */
	uint64_t min_rto;
	uint64_t peak_at, epoch_at;
	double size, ssthresh;
	double loss_rate; /* of recent frames */
	uint32_t max;
	uint32_t answered, lost, marked; /* in this epoch */
};

void window_init(struct window *w, uint32_t max, uint64_t min_rto, uint64_t now);
/** From now on it is no larger than that. */
void window_limit(struct window *w, uint32_t max);
/** rtt.c: an answer to the only copy of a frame came after @p rtt ns. */
void rtt_sample(struct window *w, uint64_t rtt, uint64_t now);
/** An answer came; @p limited: more would have been sent with a larger window. */
void window_answered(struct window *w, bool limited, uint64_t now);
void window_lost(struct window *w, uint64_t now);   /* a loss that was proven */
void window_marked(struct window *w, uint64_t now); /* CE seen, by us or by the box */
void window_silent(struct window *w);               /* a whole time-out without any answer */
static inline uint32_t
window_frames(const struct window *w)
{
	return (uint32_t)w->size;
}
/** How long answers may gather (ns; 0: not at all), with @p out frames in the network. */
uint64_t window_gather(const struct window *w, uint32_t out);

/* ---- tables ---------------------------------------------------------------------------- */

/** The part of a fragment that is of one tensor. */
struct piece {
	uint64_t offset; /* element in the tensor */
	uint32_t tensor, elements;
	uint32_t frag;                   /* index in the table */
	struct pbox_worker_entry *entry; /* the one in progress; NULL: none */
};

enum frag_state { FRAG_IDLE, FRAG_QUEUED, FRAG_FLIGHT };

struct frag {
	struct frag *next; /* in its endpoint's queue */
	uint64_t order;    /* while it is ready: that of the last entry that it has waited for */
	uint32_t chunk;    /* index in the table */
	uint32_t piece;    /* first of its pieces */
	uint32_t round;    /* of its last push; at first the version at the time of the map */
	uint16_t pieces;
	uint16_t index;                /* in its chunk */
	uint16_t pushes, pulls, inits; /* pieces that want one */
	uint16_t states;               /* FETCH or GIVE */
	uint16_t flight;               /* index at the endpoint while in flight */
	uint16_t table;
	uint8_t prio; /* of its most urgent operation, when it became ready */
	uint8_t state : 2;
	bool pushed : 1; /* by this worker */
	bool lags : 1;   /* its round was before the latest of the table when this worker joined */
	bool lost : 1; /* its last push was lost with the box, and no operation has failed for it */
	bool moving : 1; /* its chunk has moved, and the new box has not heard of all workers what they have */
	bool owes : 1;    /* pushes of its redo log go first (redo.c) */
	bool carried : 1; /* it is carried from box to box (carry.c) */
	/* At several boxes: 1 + the number of the one that has all of it, as far as this worker knows, also if its chunk has moved since,
	 * and the endpoint there; 0: none. */
	uint8_t at_box, at_endpoint;
};

struct chunk {
	uint64_t at;                          /* elements of the chunks before it */
	uint32_t id, elements, version, frag; /* frag: its first */
	uint16_t endpoint;                    /* of its box */
	uint16_t epoch;                       /* of the map that has it there */
	uint16_t
		lane; /* whose queues have its pieces: that of the endpoint when the table was laid out */
	uint8_t box;  /* of the worker's */
	uint8_t home; /* the box by the first map */
};

/** What this worker retains of a fragment (retained.c). */
struct retained {
	uint32_t version; /* the last one that came; what its RESULT said besides: */
	union {
		uint32_t samples; /* in rounds */
		uint32_t slowest; /* in clocks */
	};
	uint16_t contributors; /* in rounds */
	bool have;             /* its payload is in table.retained_payload */
};

#define FRAGS_MOVING (1u << 31)

/** A version that has come, and which of this worker's pushes is the last one in it. */
struct frag_version {
	uint32_t version, own;
};
/** What a worker knows of a fragment of a table in clocks (worker_clock.c). */
struct frag_clock {
	struct frag_version last, before; /* of the last two RESULTs that operations asked for */
	struct frag_version seen;         /* of the last one: what is retained */
	uint32_t slowest;                 /* clock of any member, from the latest answer */
	uint16_t members;
	uint16_t epoch; /* of seen */
	uint8_t pulls;  /* RESULTs that operations asked for, up to 2 */
};

#define REDO_MAX 4
/** Pushes of a fragment that no RESULT has shown, and the box may lose (redo.c): as they were sent, by their clocks. */
struct redo {
	uint32_t first;            /* clock of the first one; the others follow it */
	uint32_t weight[REDO_MAX]; /* by place in the list */
	uint16_t factor[REDO_MAX];
	uint8_t slot[REDO_MAX]; /* where its bytes are */
	uint8_t n, owed; /* owed: the last ones up to frag.round, which a restarted box has not */
	bool counted;    /* the box has the one after frag.round, too */
	bool ended;      /* no operation brings that one again: the box refused it */
};

struct tensor {
	char *name;
	uint64_t elements;
	uint32_t by_first, by_count; /* its part of table.by_tensor */
	uint32_t pushed_to;          /* the round of its last push, sent or not */
	uint16_t group;
};

/** The operations on a tensor, for its pieces in one lane. */
struct queue {
	struct pbox_worker_entry *last; /* of those that have not ended; NULL: none */
	/* the first entry that some pieces have not seen yet, and the number of pieces that have */
	struct pbox_worker_entry *starts;
	uint64_t started_to;       /* all pieces before this element have */
	struct queue *starts_next; /* in the lane's list of queues with such entries */
	uint32_t started;
	uint32_t by_first, by_count; /* its part of table.by_tensor */
};

struct pbox_worker_table {
	const struct worker_discipline *discipline;
	uint32_t number;
	uint8_t mode, op, optimiser, push_format, pull_format;
	uint16_t map_epoch;
	unsigned n;
	uint32_t chunks, frags, pieces;
	uint32_t frag_elements, init_elements, first_chunk_id;
	struct tensor *tensor;
	struct queue *queue; /* by lane, and in it by tensor */
	struct chunk *chunk;
	struct frag *frag;
	struct piece *piece;
	uint32_t *by_tensor; /* indices of pieces, grouped by tensor and lane, in order of offset */
	uint32_t base_version; /* at the time of the map */
	uint32_t pushed_to;    /* of all its tensors the latest one; true unless ... */
	bool recount;          /* ... something was lost since */
	uint8_t *
		retained_payload; /* chunk after chunk in the pull format; NULL: none is retained */
	struct retained *retained; /* by fragment */
	struct frag_clock *clock;  /* by fragment; NULL: the table is in rounds */
	uint16_t vector;           /* bytes after the elements of a RESULT */
	uint8_t *retained_vector;  /* by fragment; with retained */
	struct redo *redo;         /* by fragment; NULL: none is kept */
	uint32_t owing;            /* fragments of it that owe pushes; of all lanes */
	uint8_t *redo_payload;     /* REDO_MAX models, in the push format */
	struct set_log *sets;      /* that the box has answered with SET_OK */
	/* bit by box: RESTORE of it comes before its operations there go on; or FRAGS_MOVING: that of some fragments */
	uint32_t restoring;
	bool large;         /* no cache holds its results */
	bool resumed;       /* its rounds go on where the program says (first_round) */
	bool gained;        /* the worker has got slots in a round (R15.8), which ... */
	uint32_t gained_in; /* ... is this one, and the program has not asked for them yet */
	uint32_t flags;     /* of its DECLARE: PBOX_DECLARE_CONTINUE */
};

/*
 * A table whose discipline has two lanes has everything that operations wait in twice: after its tensors (as queues),
 * fragments and pieces come those of the pulls, of the same elements and in the same order. So a lane is serialised,
 * queued and sent as a table with one lane is, and each fragment has one flight.
 */

/** The tensor as the operation sees it: one of those of the pull lane, or of the others. */
static inline uint32_t
table_tensor(const struct pbox_worker_table *t, const struct pbox_worker_op *op, uint32_t tensor)
{
	return op->kind == PBOX_CLIENT_PULL && t->discipline->lanes > 1 ? t->n + tensor : tensor;
}
/** The queue of a tensor, which table_tensor() or a piece says, in a lane of the worker. */
static inline struct queue *
table_queue(const struct pbox_worker_table *t, unsigned lane, uint32_t tensor)
{
	return &t->queue[(size_t)lane * t->n * t->discipline->lanes + tensor];
}
static inline struct queue *
table_queue_of(const struct pbox_worker_table *t, const struct piece *p)
{
	return table_queue(t, t->chunk[t->frag[p->frag].chunk].lane, p->tensor);
}
/** Is the fragment that of the pulls? */
static inline bool
table_is_pull_lane(const struct pbox_worker_table *t, const struct frag *f)
{
	return f->piece >= t->pieces;
}
/** Its number among those of its lane. */
static inline uint32_t
table_frag_number(const struct pbox_worker_table *t, const struct frag *f)
{
	uint32_t i = (uint32_t)(f - t->frag);

	return i < t->frags ? i : i - t->frags;
}

/** Waits the fragment until the worker has reported the table to a box that was restarted? */
static inline bool
frag_restoring(const struct pbox_worker_table *t, const struct frag *f)
{
	return t->restoring != 0 &&
	       ((t->restoring >> t->chunk[f->chunk].box & 1) != 0 || f->moving);
}

static inline uint32_t
frag_elements(const struct pbox_worker_table *t, const struct frag *f)
{
	uint32_t done = f->index * t->frag_elements, e = t->chunk[f->chunk].elements;

	return e - done < t->frag_elements ? e - done : t->frag_elements;
}

/* ---- endpoints ------------------------------------------------------------------------- */

enum flight_state {
	FLIGHT_FREE,
	FLIGHT_SENT,     /* waiting for the answer */
	FLIGHT_PROBED,   /* a loss is likely: a PULL of the round has probed */
	FLIGHT_WAITING,  /* WAIT with HAVE: the box has our part and waits for other workers */
	FLIGHT_DEFERRED, /* WAIT without HAVE: the box cannot take it yet; retransmit later */
};

/** A fragment between its first transmission and its answer. */
struct flight {
	struct flight *prev, *next; /* in order of last transmission; next: also free list */
	struct frag *frag;
	uint64_t seq;   /* of the last transmission at this endpoint */
	uint64_t order; /* seq of the first transmission of what it carries now */
	uint64_t first_ns, sent_ns, due_ns;
	uint32_t ts, payload_ts; /* of the last transmission; of the last with payload */
	uint32_t gap;            /* later answers after which it is suspected lost */
	uint32_t base;           /* INIT: element offset */
	uint16_t node;           /* of a push: which of the worker's nodes it brings now */
	uint16_t fresh;          /* the first node that was never sent */
	uint32_t wait_missing;   /* from the latest WAIT */
	uint64_t wait_ns;        /* when it came */
	union {
		uint16_t wait_have;  /* in rounds: contributors so far */
		uint16_t wait_lacks; /* in clocks: those that the slowest member lacks */
	};
	uint8_t type; /* PBOX_PUSHPULL, PUSH, PULL, INIT, RESTORE */
	uint8_t state, backoff, tries, losses;
	bool waited;    /* wait_* are valid */
	bool overtakes; /* earlier fragments */
	bool give;      /* RESTORE: with the payload */
	bool again;     /* a push of a round that was pushed before */
	bool redo;      /* a push of the redo log, and of no operation */
};

static inline bool
flight_is_push(const struct flight *fl)
{
	return fl->type == PBOX_PUSH || fl->type == PBOX_PUSHPULL;
}
/** Does the answer echo the time of the flight, and not of an earlier one (another array, the same piece, an older
 * version)? */
static inline bool
flight_is_since(const struct flight *fl, const struct pbox_hdr *h)
{
	return (int32_t)(h->ts - (uint32_t)(fl->first_ns / NS_PER_US)) >= 0;
}

/** Fragments that may go, by priority; those of a priority in order. */
struct ready {
	uint64_t map[4];
	uint32_t n;
	struct frag *first[256], *last[256];
};

/** What an endpoint has done in a round (times.c). */
struct busy {
	uint64_t from, ns;    /* since when frames are under way; how long they were before that */
	uint64_t asked, held; /* ns from first transmissions to RESULTs; of these, at the box */
	uint64_t answers, last; /* RESULTs; when the last one came */
};

struct ep {
	struct session *s;
	struct lane *lane; /* that it is of */
	struct pbox_client_peer peer;
	struct window win;
	struct flight *flight; /* room for `flights`; win.max of them are used */
	uint32_t flights;
	struct flight *free, *first, *last;
	uint32_t in_flight;         /* all flights */
	uint32_t waiting;           /* of these: in FLIGHT_WAITING */
	uint32_t overtaking;        /* of these: that overtake, or are in a pull lane */
	uint32_t reports;           /* and RESTOREs of fragments that have moved */
	uint32_t thresh;            /* of loss detection, adapted to reordering */
	uint64_t seq, answered_seq; /* answered: the highest order with a final answer, */
	uint64_t taken_seq;         /* or with a PUSH_OK in the middle of a fragment's nodes */
	uint64_t next_due, silent_at;
	uint64_t last_rx;    /* the session reads it without the lane's lock (ep_heard) */
	uint64_t asked_ns;   /* first transmission after last_rx */
	uint64_t lost_ns;    /* last proven loss; 0: none yet */
	uint64_t final_ns;   /* last final answer: RESULT, PUSH_OK, INIT_OK */
	uint64_t doubt_ns;   /* since then timers have probed ... */
	uint32_t doubts;     /* ... so many flights, */
	uint8_t doubt_shift; /* and may again after a pause that doubles */
	bool paused;         /* the time-outs of some flight have become long */
	bool ece;            /* CE was seen: the next frame says so to the box */
	bool limited;        /* something is ready, and the window is full */
	struct busy busy;
	struct ready ready;
};

/** When something came from there. */
static inline uint64_t
ep_heard(const struct ep *ep)
{
	return __atomic_load_n(&ep->last_rx, __ATOMIC_RELAXED);
}

static inline bool
op_pushes(const struct pbox_worker_op *op)
{
	return op->kind == PBOX_CLIENT_PUSHPULL || op->kind == PBOX_CLIENT_PUSH;
}
/* What several lanes of the worker may say of an operation, or a table, at the same time. */
static inline bool
op_fails(const struct pbox_worker_op *op)
{
	return __atomic_load_n(&op->failing, __ATOMIC_RELAXED);
}
static inline void
table_recounts(struct pbox_worker_table *t)
{
	__atomic_store_n(&t->recount, true, __ATOMIC_RELAXED);
}

/* next_round.c */
/** The table has its map. */
void next_begin(struct pbox_worker_table *t);
/** A push of the tensor was submitted. */
void next_push(struct pbox_worker_table *t, unsigned tensor);

/* queue.c: operations -> ready fragments */
/** Take what was submitted for the lane. */
void queue_inbox(struct lane *l);
void queue_start(struct lane *l, unsigned budget);
void queue_check(struct pbox_worker *w, struct pbox_worker_table *t, struct frag *f);
/** Empty the list of ready fragments. */
void queue_clear(struct session *s);
/** Fill it again. */
void queue_rebuild(struct pbox_worker *w);
/** The session has a table with a lane for pulls; -ENOMEM. */
int queue_open_pulls(struct session *s);
/** Is anything ready? */
bool queue_has(const struct ep *ep);
/** The most urgent fragment that may go now, and whether it overtakes earlier ones; NULL: none. */
struct frag *queue_pop(struct ep *ep, bool *overtakes);
void queue_piece_finish(struct pbox_worker *w, struct pbox_worker_table *t, struct piece *p);
void queue_fail(struct pbox_worker_op *op, int code, const char *text);
void queue_finish(struct pbox_worker *w, struct pbox_worker_op *op);
/** Those that have ended are no longer among the unfinished ones: the lanes' locks are held, or the first one's. */
void queue_collect(struct pbox_worker *w);

/** Fail all that waits for the fragment. */
void queue_fail_fragment(struct pbox_worker_table *t, struct frag *f, int code, const char *text);

/* table.c: elements of a fragment */
#define MAX_PIECES PBOX_MAX_SEGMENTS
/** The bytes, in @p format, of @p count elements of the fragment from element @p from on, for the worker's node
 * @p node, in @p iov; returns how many entries, or 0 when @p cap is too small. */
unsigned table_gather(const struct pbox_worker_table *t, const struct frag *f, unsigned node,
	uint32_t from, uint32_t count, unsigned format, struct iovec *iov, unsigned cap);
/** Is it zeros, all of it: do plain operations alone push to the fragment, and is it not their node? */
bool table_is_zero(const struct pbox_worker_table *t, const struct frag *f, unsigned node);
/** What the entry pushes at a node; NULL: zeros. */
const uint8_t *table_in(const struct pbox_worker_entry *e, unsigned node);
/** Samples of the contribution. */
uint32_t table_weight(const struct pbox_worker_table *t, const struct frag *f, unsigned node);
/** Copy a payload in fp32, @p count elements of the fragment from element @p from on, to its tensors. */
void table_scatter(const struct pbox_worker_table *t, const struct frag *f, uint32_t from,
	uint32_t count, const uint8_t *payload);
/** The operation that its first piece works on. */
const struct pbox_worker_op *table_first_op(
	const struct pbox_worker_table *t, const struct frag *f);

/** Is the push that comes next one of the round of the last one (R15.8)? Where the box has lost that, it is a first one. */
static inline bool
table_pushes_again(const struct pbox_worker_table *t, const struct frag *f)
{
	return table_first_op(t, f)->again && !f->lost;
}

/* redo.c: own pushes that a restarted box may lack (R14.12) */
int redo_open(struct pbox_worker_table *t);
/** Elements of the fragment's chunk that are before it, and all before that. */
static inline uint64_t
table_frag_at(const struct pbox_worker_table *t, const struct frag *f)
{
	return t->chunk[f->chunk].at + (uint64_t)f->index * t->frag_elements;
}
static inline struct redo *
redo_of(const struct pbox_worker_table *t, const struct frag *f)
{
	return &t->redo[table_frag_number(t, f)];
}
/** Pushes that the fragment's next flight brings first. */
static inline unsigned
redo_owed(const struct pbox_worker_table *t, const struct frag *f)
{
	return f->owes ? redo_of(t, f)->owed : 0;
}
/** Does the next push leave room for no other? Then it asks for a RESULT, which shows them. */
bool redo_is_last(const struct pbox_worker_table *t, const struct frag *f);
/** The push of clock f->round goes for the first time, or for the first time in a session. */
void redo_keep(struct pbox_worker_table *t, const struct frag *f);
/** The box has refused the push after f->round: the clock is free, unless a box that is started again says that it counts. */
void redo_refused(struct pbox_worker_table *t, const struct frag *f);
/** Does the box that was started again have the push after f->round, which was on its way? */
bool redo_counted(const struct pbox_worker_table *t, const struct frag *f);
/** A version came that has own pushes up to that clock. */
void redo_shown(struct pbox_worker_table *t, const struct frag *f, uint32_t own);
/** The box has restored own pushes up to @p clock. How many are lost that this worker did not keep. */
uint32_t redo_begin(struct pbox_worker_table *t, struct frag *f, uint32_t clock);
/** The box has the first one that is owed. */
void redo_done(struct pbox_worker_table *t, struct frag *f);
/** What that one says, by its clock; and its payload: the length in the header, entries of @p iov that were filled. */
void redo_push(const struct pbox_worker_table *t, const struct frag *f, struct pbox_push_clock *m);
unsigned redo_payload(const struct pbox_worker_table *t, const struct frag *f, struct pbox_hdr *h,
	struct iovec *iov);
/** Bytes of the push with that clock; NULL: it is not kept. */
const uint8_t *redo_find(
	const struct pbox_worker_table *t, const struct frag *f, uint32_t clock, uint16_t *factor);

/* transfer.c: ready fragments -> flights; answers -> finished pieces */
/** What the endpoints of the lane may send. */
void transfer_pump(struct session *s, const struct lane *l);
void transfer_frame(struct session *s, const struct rx_frame *f);

/* flight.c */
/** Send the flight's payload or, for @p probe, a PULL of its round. */
void flight_send(struct ep *ep, struct flight *fl, bool probe, bool again);
/** Go on with the next node. */
void flight_next_node(struct ep *ep, struct flight *fl);
/** Take a flight for the fragment, and send. */
struct flight *flight_launch(struct ep *ep, struct frag *f, uint8_t type, bool overtakes);
void flight_land(struct ep *ep, struct flight *fl);
/** The box did not take the push that the flight may carry: the next one is it again. */
void flight_withdraw(struct pbox_worker_table *t, struct flight *fl);
/** The session is lost: land all flights, and withdraw their pushes. */
void flight_withdraw_all(struct session *s);

/* timer.c: the flights of an endpoint, in order of last transmission */
#define TIMER_WAITING   (PBOX_RECOVERY_HELD * NS_PER_MS)
#define TIMER_PROBED    (PBOX_RECOVERY_PROBED * NS_PER_MS)
#define TIMER_MAX_SHIFT PBOX_RECOVERY_SHIFT
/** Make it the last of the list, with a new timer. */
void timer_append(struct ep *ep, struct flight *fl, uint64_t now);
/** Take it out of the list; its own links stay. */
void timer_unlist(struct ep *ep, struct flight *fl);
/** Timer and evidence for the state that the flight is in. */
void timer_arm(struct ep *ep, struct flight *fl, uint64_t now);
/** How long an answer may take, ns. */
uint64_t timer_patience(const struct ep *ep, bool lossy);
bool timer_is_lossy(const struct ep *ep, uint64_t now);
uint64_t timer_shifted(uint64_t base, unsigned shift, uint64_t max);

/* loss_recovery.c: loss recovery, probes and retransmission */
void loss_answer(struct ep *ep, struct flight *fl, const struct pbox_hdr *h, uint64_t now);
void loss_result(struct ep *ep, struct flight *fl, const struct pbox_hdr *h, uint64_t now);
void loss_wait(struct ep *ep, struct flight *fl, const struct pbox_hdr *h);
/** The box has it, and waits for other workers. */
void loss_waiting(struct ep *ep, struct flight *fl, uint64_t now);
/** A program asks who is missing now: probe soon. */
void loss_ask(struct ep *ep, struct flight *fl, uint64_t now);
void loss_evidence(struct ep *ep);
/** @p now: all that had arrived by then has been handled. The worker's own now is later, and more answers may have arrived
 * since. */
void loss_timers(struct ep *ep, uint64_t now);
/* Work by plan, and a PING has come: have owners changed? A few that wait ask now (R15.8). */
void loss_asked(struct ep *ep, uint64_t now);

/* aside.c: past the caches */
/** Copy what nobody reads soon. Other threads see it after aside_end(). */
void aside_copy(void *to, const void *from, size_t n);
/** What this thread has copied so is there before what it writes from now on. */
void aside_end(void);

/* retained.c, sets.c: the last result of every fragment, and the SETs */
int retained_open(struct pbox_worker_table *t);
/** Keep a RESULT; what is to be filled of it by the discipline, or NULL. */
struct retained *retained_result(struct pbox_worker_table *t, const struct frag *f,
	const struct pbox_hdr *h, const uint8_t *payload);
/** Version 0 is the one that this worker has sent. */
void retained_init(struct pbox_worker_table *t, struct frag *f);
/** What is retained of that version; NULL: nothing. */
const struct retained *retained_at(
	const struct pbox_worker_table *t, const struct frag *f, uint32_t version);
/** Its payload, for RESTORE, and the length in the header; entries of @p iov that were filled. */
unsigned retained_give(const struct pbox_worker_table *t, const struct frag *f, struct pbox_hdr *h,
	struct iovec *iov);
int sets_add(struct pbox_worker_table *t, const struct pbox_set *m);
/** Keep what still matters; returns how many there are. */
unsigned sets_compact(struct pbox_worker_table *t);
unsigned sets_count(const struct pbox_worker_table *t);
const struct pbox_set *sets_at(const struct pbox_worker_table *t, unsigned i);
void sets_free(struct pbox_worker_table *t);

/* half.c: between fp32 and bf16 or fp16 */
uint16_t half_narrow(float x, unsigned format);
float half_widen(uint16_t half, unsigned format);

/** Slots that others may do (R15.10). */
struct worker_task {
	bool on; /* the program says which slots it begins, in ... */
	uint32_t round;
	bool moved;                                    /* its nodes are those of this round alone */
	uint64_t begun[PBOX_MAX_SLOTS / 64], begun_at; /* the last one */
	/* the last wish of the box, in that session, and what was given up for it */
	uint32_t wish;
	uint64_t token;
	uint16_t first, end;
};
/** task.c: the box wishes to know which slots the program has begun, or for some of the others. */
void task_frame(struct session *s, const struct rx_frame *f);

#endif /* FLOW_H */
