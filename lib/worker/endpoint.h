/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef ENDPOINT_H
#define ENDPOINT_H

/* Endpoints and what is in flight there: queue.c, transfer.c, flight.c, timer.c, loss_recovery.c; and what a restarted box needs:
 * redo.c, retained.c, sets.c. */

#include "flow.h"

/* ---- endpoints ------------------------------------------------------------------------- */

enum flight_state {
	FLIGHT_FREE,
	FLIGHT_SENT,     /* waiting for the answer */
	FLIGHT_PROBED,   /* a loss is likely: a PULL of the round has probed */
	FLIGHT_WAITING,  /* WAIT with HAVE: the box has our part and waits for other workers */
	FLIGHT_DEFERRED, /* WAIT without HAVE: the box cannot take it yet; retransmit later */
};

/** A fragment between its first transmission and its answer; or several in a run (run.c). */
struct flight {
	struct flight *prev, *next; /* in order of last transmission; next: also free list */
	struct frag *frag;
	uint64_t seq;   /* of the last transmission at this endpoint */
	uint64_t order; /* seq of the first transmission of what it carries now */
	uint64_t left;  /* bit i: frag + i has no answer yet; 1: it is no run */
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
/** Where that was put off: what the fragments say. */
void next_recount(const struct pbox_worker *w, struct pbox_worker_table *t);

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
/** Take those after @p f, which was popped, that may be in one run with it, so that it has @p most at most; returns how many it has. */
unsigned queue_follow(
	struct ep *ep, const struct pbox_worker_table *t, const struct frag *f, unsigned most);
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

/** Is a push of this operation one of the round of the last one (R15.8)? Where the box has lost that, it is a first one; where rounds have
 * two phases (R6.15), it is one also if the round had not come to the fragment when its pushes were begun again. */
static inline bool
table_is_again(
	const struct pbox_worker_table *t, const struct frag *f, const struct pbox_worker_op *op)
{
	return op->again && !f->lost &&
	       ((t->flags & PBOX_DECLARE_HOLD) == 0 || f->round == t->held_round);
}
static inline bool
table_pushes_again(const struct pbox_worker_table *t, const struct frag *f)
{
	return table_is_again(t, f, table_first_op(t, f));
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
/** An operation of the push after f->round has ended without it: what was sent of that in codes is void. */
void redo_withdrawn(struct pbox_worker_table *t, const struct frag *f);
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
/** Bytes of the push with that clock, as it was sent; NULL: it is not kept. */
const uint8_t *redo_find(
	const struct pbox_worker_table *t, const struct frag *f, uint32_t clock, float *factor);

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
/** The same for @p n fragments, from @p f on, in a run. */
void flight_launch_run(struct ep *ep, struct frag *f, unsigned n, uint8_t type, bool overtakes);
void flight_land(struct ep *ep, struct flight *fl);
/** The box did not take the push that the flight may carry: the next one is it again. */
void flight_withdraw(struct pbox_worker_table *t, struct flight *fl);
/** The session is lost: land all flights, and withdraw their pushes. */
void flight_withdraw_all(struct session *s);

/* run.c: fragments in one record */
#define RUN_MOST 64 /* bits of flight.left */
unsigned run_most(const struct ep *ep, const struct pbox_worker_table *t, const struct frag *f,
	uint8_t type, bool overtakes);
bool run_is_next(const struct pbox_worker_table *t, const struct frag *f);
/** The place of the fragment in the run; of one that is alone: 0. */
static inline unsigned
run_place(const struct flight *fl, const struct frag *f)
{
	return (unsigned)(f - fl->frag);
}
/** The fragment has its answer, and is not the last one. */
void run_land(struct ep *ep, struct flight *fl, struct frag *f);
/** Each of its fragments gets a flight: the first one this, the others those after it in the list. Returns the last. */
struct flight *run_cut(struct ep *ep, struct flight *fl);
void run_cut_all(struct session *s);

/* timer.c: the flights of an endpoint, in order of last transmission */
#define TIMER_WAITING   (PBOX_RECOVERY_HELD * NS_PER_MS)
#define TIMER_PROBED    (PBOX_RECOVERY_PROBED * NS_PER_MS)
#define TIMER_MAX_SHIFT PBOX_RECOVERY_SHIFT
/** Make it the last of the list, with a new timer. */
void timer_append(struct ep *ep, struct flight *fl, uint64_t now);
/** Take it out of the list; its own links stay. */
void timer_unlist(struct ep *ep, struct flight *fl);
/** After that one, with its own timer. */
void timer_insert(struct ep *ep, struct flight *fl, struct flight *after);
/** Timer and evidence for the state that the flight is in. */
void timer_arm(struct ep *ep, struct flight *fl, uint64_t now);
/** How long an answer may take, ns. */
uint64_t timer_patience(const struct ep *ep, bool lossy);
bool timer_is_lossy(const struct ep *ep, uint64_t now);
uint64_t timer_shifted(uint64_t base, unsigned shift, uint64_t max);

/* loss_recovery.c: loss recovery, probes and retransmission */
/** @p place  of the fragment, in a run */
void loss_answer(struct ep *ep, const struct flight *fl, unsigned place, const struct pbox_hdr *h,
	uint64_t now);
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
/** Where the elements of the copy are, in the format of the program's results. */
uint8_t *retained_place(const struct pbox_worker_table *t, const struct frag *f);
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

#endif /* ENDPOINT_H */
