/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef WORKER_IMPL_H
#define WORKER_IMPL_H

/**
 * @file
 * Inside of lib/worker.
 *
 *     worker.c            what the host calls: datagrams and time in, what is due out
 *     worker_lanes.c      the same for hosts with a thread for each lane (struct lane)
 *     session.c           a session, one a box: phases, keep-alive, end
 *     boxes.c             a job at several boxes: which, and are they alike?
 *     join.c refusal.c path.c           how a session begins: handshake, refusals, path MTU
 *     rejoin.c restore.c                failover: a new session after a restart of the box
 *     carry.c                           fragments that are carried from box to box
 *     homes.c spread.c out.c            chunks that move from box to box; boxes that the job goes on without
 *     declare.c pager.c map.c table.c chunks.c  DECLARE and MAP, the first time and after a restart of the box
 *     lane.c              lanes: endpoints that a thread drives by itself
 *     queue.c transfer.c loss_recovery.c flight.c timer.c window.c  operations to fragments to frames to answers, loss
 *                         recovery, congestion window (flow.h)
 *     next_round.c        the round of a table's next push
 *     times.c             how long each box takes (times.h)
 *     request.c           control requests and their repetition
 *     plan.c              work by plan: what is asked of the box, and when (pbox_worker_plan.h)
 *     task.c              slots that others do within a round
 *     nodes.c             which nodes of the tree over the job's slots this worker brings
 *     worker_rounds.c worker_clock.c    the discipline of a table (worker_discipline.h): versions, answers, losses
 *     half.c              elements of 16 bits
 *     redo.c retained.c sets.c       what a restarted box needs: own pushes, last results, hyper-parameters
 *     link.c header.c auth.c            frames in datagrams
 *     why.c text.c check.c              texts, and checks of a program's arguments
 *
 * Calls go down this list, never back up: no two files call each other.
 */

#include <assert.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include <pbox_auth.h>
#include <pbox_wire_data.h>

#include "flow.h"
#include "times.h"
#include "carry.h"
#include "homes.h"
#include "pbox_worker.h"
#include "pbox_worker_plan.h"

/* ---- link.c: frames in datagrams ------------------------------------------------------------ */

#define LINK_IOVS    1024
#define LINK_HDRS    512
#define LINK_ECN_CE  3
#define LINK_MIN_MTU (PBOX_MTU_OVERHEAD + PBOX_JOIN_LEN)

/** Keys of a session with tags (auth.c). */
struct auth {
	struct pbox_auth_job *job;
	struct pbox_auth_keys keys;
};

/** The batch that is being built. */
struct link {
	struct pbox_worker_ops *port;
	unsigned n_tx, n_iovs, n_hdrs;
	size_t head_bytes; /* used of head */
	bool heads;        /* the last datagram has header-only frames */
	struct pbox_client_tx tx[PBOX_CLIENT_TX_BATCH];
	struct iovec iov[LINK_IOVS];
	uint8_t head[LINK_HDRS * (PBOX_HDR_LEN + PBOX_TAG_LEN)]; /* no gap between them */
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes, rx_dropped, rx_drop_auth;
	uint8_t gathered[UINT16_MAX]; /* a payload with a tag that is not in one piece */
};

/** A received frame; payload lives until the handler returns. */
struct rx_frame {
	struct pbox_hdr hdr;
	const uint8_t *payload;
	struct sockaddr_in from;
	bool ce;
	bool sure;         /* its tag is right, or the session has none */
	struct lane *lane; /* whose datagram it was in */
};

/** Queue a frame whose payload is in @p iov; sends the batch when it is full.
 * @param stays  the payload does, as pbox_client_tx.stays has it; else until link_flush */
void link_frame(struct link *l, const struct session *s, struct pbox_client_peer *to,
	const struct pbox_hdr *hdr, const struct iovec *iov, unsigned n, bool stays);
void link_flush(struct link *l);
/** Give @p take the frames of a datagram of the lane. */
void link_datagram(struct lane *lane, struct session *s, const struct pbox_client_rx *d,
	void (*take)(struct session *s, const struct rx_frame *f));

/* ---- how a session begins: join.c, refusal.c, path.c ------------------------------------------ */

#define JOIN_INTERVAL     (100 * NS_PER_MS)
#define JOIN_INTERVAL_MAX NS_PER_S
#define JOIN_COOKIES      16 /* that are kept (R9.3) */

/** Kinds of refusals without a proof: codes of ERROR, or these, of a bad WELCOME. */
#define REFUSAL_PROOF      0x10000u
#define REFUSAL_INSECURE   0x10001u
#define REFUSAL_UNSOUND    0x10002u
#define REFUSAL_UNREADABLE 0x10003u
#define REFUSAL_INCAPABLE  0x10004u

/** R9.3: a refusal that an attacker may have sent, and how often in a row. */
struct doubt {
	unsigned n, kind;
	uint64_t until; /* the last one counts if nothing better has come by then */
	struct pbox_client_error why;
};

struct join {
	struct session *s;
	struct pbox_client_error err; /* of a failure */
	uint64_t next_tx, interval, nonce;
	uint64_t number; /* of the run that it belongs to; 0: it begins here (R12.2) */
	unsigned hellos, joins;
	/* R9.3: what RETRYs have brought since the last HELLO; one of them is the box's */
	struct pbox_retry cookie[JOIN_COOKIES];
	unsigned follows;               /* of addresses that boxes have given */
	unsigned heard, cookies, tried; /* RETRYs; of them kept; of these, that JOINs went with */
	uint64_t cookie_at;             /* when the first one came */
	uint64_t spree_at;              /* JOINs since then ... */
	unsigned spree;                 /* ... so many */
	uint32_t id, id_before;         /* of its requests; the one before may still be answered */
	int worker;                     /* wanted; -1: any */
	bool answered;
	bool patient; /* ask again after errors that may pass */
	bool done;
	bool renew;                    /* it was refused: the next request has another id */
	bool proven;                   /* a refusal had a proof: the box knows the secret */
	struct doubt doubt;            /* n 0: none */
	bool unproven;                 /* R4.5: the job has no secret, and this worker has one */
	struct auth *auth;             /* of welcome; join_settle takes it */
	int rc;                        /* once done */
	struct pbox_error_msg refused; /* the latest error that was put off; code 0: none */
	struct pbox_welcome welcome;   /* once done with rc 0 */
};

void join_begin(struct join *j, struct session *s, int worker);
/** Send what is due. */
void join_tick(struct join *j);
/** Frames that are not for it are ignored. */
void join_frame(struct join *j, const struct rx_frame *f);
/** Is it the id of a request that may still get an answer? */
static inline bool
join_asked(const struct join *j, uint32_t id)
{
	return id != 0 && (id == j->id || id == j->id_before);
}
static inline void
join_finish(struct join *j, int rc)
{
	j->rc = rc;
	j->done = true;
}
/** Its deadline has passed: what has been missing, in its err. */
int join_expired(struct join *j);
/** Take over what WELCOME says. All endpoints begin as new: nothing may be under way. */
int join_settle(struct join *j);
/** The join is over, and its keys were not taken. */
void join_end(struct join *j);
/** ERROR to a HELLO or JOIN. */
void refusal_frame(struct join *j, const struct rx_frame *f);
/** Without a proof: remember it, and ask again. */
void refusal_doubtful(struct join *j, const struct rx_frame *f, unsigned kind,
	const struct pbox_client_error *why);
/** The box has shown that it knows the secret: it would prove a refusal. */
bool refusal_is_provable(const struct join *j);
/** It was repeated often enough, and nothing better has come. */
bool refusal_holds(const struct join *j);
/** The code of the doubtful refusal, and its text in the join's error. */
int refusal_verdict(struct join *j);
/** What an ERROR means for a program. */
int refusal_error(struct pbox_client_error *err, const struct pbox_error_msg *m, const char *what);

#define PATH_TRAIN_MAX 32

/** Path MTU discovery: does the path carry full frames, and trains of them? */
struct path {
	uint64_t began, deadline, next;
	uint64_t answered; /* all small ones are; 0: not yet */
	bool small[PBOX_MAX_ENDPOINTS], full[PBOX_MAX_ENDPOINTS], train[PATH_TRAIN_MAX];
	bool trains;    /* sizes are done */
	unsigned tries; /* trains sent */
	uint32_t full_length;
	uint8_t *payload;
	bool ended;                      /* the session has, for the reason ... */
	struct pbox_error_msg why_ended; /* ... which may have no text */
	bool done;
	int rc; /* once done and not ended */
	struct pbox_client_error err;
};
int path_begin(struct session *s, uint64_t deadline);
void path_frame(struct session *s, const struct rx_frame *f);
void path_tick(struct session *s);
void path_end(struct session *s);

/* auth.c */
void auth_end(struct auth *a);
bool auth_possible(void);
/** What WELCOME (j->welcome, of frame @p f) says of tags: 0 with j->auth as it shall be, a failure, or
 * AUTH_IGNORE: it is not from the box, or of another time. */
#define AUTH_IGNORE 1
int auth_welcome(struct join *j, const struct rx_frame *f);
bool auth_good(const struct auth *a, const struct rx_frame *f);
/** Write the tag of the frame with this header and the payload in @p iov; @p gathered: room for a payload. */
void auth_tag(const struct auth *a, const void *header, const struct iovec *iov, unsigned n,
	uint8_t *gathered, uint8_t *tag);
/** An ERROR SESSION without a tag: not to be believed yet (R11.6)? */
bool auth_doubts(struct session *s);

/* ---- DECLARE and MAP: pager.c, declare.c, map.c, table.c --------------------------------- */

#define PAGES 32 /* requests in flight */

struct page {
	struct pbox_worker_request request;
	uint8_t *payload, *answer;
	uint32_t first;
	bool busy;
};

/** Requests of one kind, several in flight, and what is asked for next. */
struct pager {
	struct session *s;
	struct page page[PAGES];
	uint8_t *room; /* of the pages */
	size_t cap, answer_cap;
	uint32_t next;      /* tensor, chunk or SET */
	uint16_t map_epoch; /* in the headers of requests */
	uint32_t stride;    /* chunks in the first page of a map; 0: it is not here */
	uint64_t ask_ns, pause;
	struct pbox_not_ready wait; /* the latest answer to MAP, if ... */
	bool waits;
	uint64_t wait_ns;
};
int pager_open(struct pager *g, struct session *s);
/** No request of it is on its way any more. */
void pager_drop(struct pager *g);
void pager_close(struct pager *g);
/** From the start, with another table or kind. */
void pager_reset(struct pager *g);
struct page *pager_free(struct pager *g);
unsigned pager_busy(const struct pager *g);
void pager_send(struct pager *g, struct page *p, uint8_t type, size_t length);
/** A page that was answered, no longer busy; NULL: none. */
struct page *pager_answered(struct pager *g);
/** DECLARE: true when all tensors are declared, or with *refused: the page that was not taken. */
bool pager_declare(
	struct pager *g, const struct pbox_worker_table *t, uint32_t flags, struct page **refused);
/** Chunks of a map that are here. */
struct map_seen {
	uint8_t *got; /* by chunk; NULL: the first page is not here, nor the number of chunks */
	uint32_t n_got;
};
/** MAP: gives each page to @p take, until all chunks are here. True when it has ended: with *rc (of take), *refused,
 * or all of it. NOT_READY is asked again. */
typedef int (*pager_take)(void *ctx, const struct page *p, uint32_t *count);
bool pager_map(struct pager *g, const struct pbox_worker_table *t, const struct map_seen *seen,
	pager_take take, void *ctx, int *rc, struct page **refused);
uint64_t pager_due(const struct pager *g);

/** The map as it comes, chunk by chunk. */
struct table_map {
	struct pbox_segment *segment;
	uint32_t *first; /* of chunk i, in segment */
	uint16_t *count;
	struct map_seen seen;
	size_t used, cap;
	struct pbox_chunk_entry entry; /* room to decode one */
};
struct map_again { /* the map of a table that we have */
	struct pbox_chunk_entry entry;
	struct map_seen seen;
};
/** Fill a page from tensor @p first on; returns how many fit. */
unsigned map_declare(const struct pbox_worker_table *t, uint32_t flags, unsigned first,
	uint8_t *payload, size_t cap, size_t *length);
/** Take a page; *count is how many chunks were in it. */
int map_take(const struct session *s, struct pbox_worker_table *t, struct table_map *m,
	const struct pbox_worker_request *r, uint32_t *count, struct pbox_client_error *err);
/** The map of another box than the first: it must be the same. Versions and endpoints of its chunks are taken. */
int map_agree(const struct session *s, struct pbox_worker_table *t, struct table_map *m,
	struct map_seen *seen, const struct pbox_worker_request *r, uint32_t *count,
	struct pbox_client_error *err);
/** The same for a table that is laid out already: only endpoints and epoch may differ. */
int map_compare(struct session *s, struct pbox_worker_table *t, struct map_again *m,
	const struct pbox_worker_request *r, uint32_t *count, struct pbox_client_error *err);

struct pbox_worker_table *table_new(const struct pbox_client_table *d, uint32_t number,
	const struct worker_discipline *discipline);
void table_free(struct pbox_worker_table *t);
/** Has a frame with room for @p cap bytes room for so many elements, sent and received? */
bool table_fits(const struct pbox_worker_table *t, uint32_t frag_elements, uint32_t cap);
/** Fragments and pieces, once all chunks are here; a frame has room for @p cap bytes. */
int table_layout(struct pbox_worker_table *t, const struct table_map *m, uint32_t cap,
	struct pbox_client_error *err);

/** Fragments of the chunks that a box has, but for those that move there. */
uint32_t table_frags_at(const struct pbox_worker_table *t, unsigned box);

/** The declaration under way. */
struct declaring {
	struct pbox_worker_declaration *d; /* NULL: none is */
	struct pbox_worker_table *t;
	struct table_map map;
	struct pager pages;
	unsigned box;             /* that is asked now: one after the other */
	struct map_seen agreed;   /* chunks of its map that are as the first box has them */
	struct spread homes;      /* which box has which of them */
	uint64_t again_ns, again; /* after RUNNING: when, and the pause after that */
	uint64_t mapped;          /* the run in which it has asked for the map already; 0: none */
	bool mapping;
};
void declare_tick(struct session *s);
uint64_t declare_due(const struct session *s);
/** Another session: it begins again there. */
void declare_renew(struct pbox_worker *w);
/** It ends, if there is one. */
void declare_fail(struct pbox_worker *w, int code, const char *text);
void declare_free(struct pbox_worker *w);

/* ---- failover: rejoin.c, restore.c; flow.h has retained.c and sets.c --------------------------------- */

#define REJOIN_SILENCE (2 * NS_PER_S)

enum rejoin_cause {
	REJOIN_SILENT,
	REJOIN_RESTARTED,
	REJOIN_FORGOTTEN,
	REJOIN_SHUTDOWN,
	REJOIN_BACK, /* the box was out, and is one of the job's again */
};

/** How much the new session has of the old one. */
enum rejoin_phase {
	PHASE_NONE, /* all of it; or there is no new one */
	PHASE_DECLARE,
	PHASE_MAP,
	PHASE_HOMES,
	PHASE_SET,
	PHASE_RESTORE,
};

struct rejoin {
	uint64_t lost_ns; /* when the worker noticed that the session is lost */
	enum rejoin_cause cause;
	enum rejoin_phase phase;
	bool joining;   /* the box is asked for the session; then phase goes on */
	uint32_t table; /* under way */
	struct pager pages;
	struct map_again map;
	struct spread homes;
	/* RESTORE */
	struct pbox_worker_table *reporting; /* NULL: none is */
	uint32_t left;                       /* fragments of it at this box */
	uint32_t chunk[PBOX_MAX_ENDPOINTS], frag[PBOX_MAX_ENDPOINTS]; /* next one, by endpoint */
};

/** May the worker go on after a lost session? It retains its results, or has none yet. */
bool rejoin_possible(const struct session *s);
/** Free what a return after a restart needs while it goes on. */
void rejoin_close(struct session *s);
void rejoin_begin(struct session *s, enum rejoin_cause cause);
/** A worker without a table has the number of its run from the first box alone: while that is asked, the others are not. */
bool rejoin_waits(const struct session *s);
/** It joins another run than before (boxes.c). */
void rejoin_renew(struct session *s);
/** A frame before it is looked at as one of the session: true if it was for us. */
bool rejoin_frame(struct session *s, const struct rx_frame *f);
/** A valid frame of the session came. */
void rejoin_heard(struct session *s);
void rejoin_tick(struct session *s);
/** s->out has changed: the session ends, or another one begins. */
void rejoin_turn(struct session *s);
uint64_t rejoin_due(const struct session *s);
/** If @p t (NULL: anything) waits for the session, say so; sets *missing to a worker or -1. */
bool rejoin_why(const struct session *s, const struct pbox_worker_table *t, int *missing,
	char *text, size_t cap);

/* restore.c: the worker reports its versions to a restarted box (R10.5) */
void restore_begin(struct session *s, struct pbox_worker_table *t);
/** Put up to @p most RESTOREs on their way; their number. */
unsigned restore_pump(struct ep *ep, unsigned most);
void restore_answer(
	struct pbox_worker_table *t, struct ep *ep, struct flight *fl, const struct pbox_hdr *h);

/* ---- session.c: one a box ------------------------------------------------------------------------- */

enum session_phase {
	SESSION_CLOSED,
	SESSION_JOINING,
	SESSION_PATH, /* it has been welcomed: does the path carry its frames? */
	SESSION_OPEN, /* also while it is lost, and comes back (rejoin.c) */
};

struct session {
	struct pbox_worker *w;
	unsigned index;              /* of the worker's boxes */
	struct pbox_client_peer box; /* control endpoint */
	char name[64];               /* of it */
	enum session_phase phase;
	uint64_t deadline; /* of its beginning */

	uint64_t token;
	uint64_t number; /* of the run */
	uint32_t incarnation, lease_ms;
	uint32_t can; /* the box (R4.10) */
	uint16_t job_number, endpoints;
	uint16_t window, granted; /* ours; granted: by the box */
	unsigned mtu;             /* the smaller one of ours and the box's, less tag */
	unsigned tag;             /* bytes after each payload */
	struct auth *auth;        /* NULL: frames have no tags */
	bool proven;              /* the box has once proven that it knows the secret */
	bool unproven;            /* the job is insecure, the worker has a secret */

	struct ep *ep;       /* room for PBOX_MAX_ENDPOINTS */
	struct ready *pulls; /* the same, of pull lanes; NULL: no table has one */
	struct pbox_worker_request *requests;
	uint64_t pinged_ns, last_rx;
	uint64_t doubt_ns; /* since when the session may be gone; 0: it is not (R11.6) */
	uint64_t asked_ns; /* PINGs of the box: since then ... */
	unsigned asked;    /* ... so many */
	bool listed;       /* it has said which boxes there are, or needs not */
	bool out, retired; /* the job goes on without its box (R16.12); and so does the session */
	struct boxes_ask boxes;
	struct join join;
	struct path path;
	struct rejoin rejoin;
	struct moving moving;
};

void session_open(struct session *s, uint64_t deadline);
/** A PING or PONG with a nonce that proves the address where it arrives (R4.9). */
static inline bool
session_asks(const struct pbox_hdr *h)
{
	return (h->type == PBOX_PING || h->type == PBOX_PONG) && pbox_nonce_get(h) != 0;
}
void session_frame(struct session *s, const struct rx_frame *f);
/** May it be its box that sends from there? */
bool session_from(const struct session *s, const struct sockaddr_in *a);
/** What is due of the session itself; then, once operations have become fragments, data of a lane, and, of the first one,
 * requests and keep-alive. */
void session_tick(struct session *s);
void session_after(struct session *s, const struct lane *l, uint64_t drained);
/** When something of the lane is due, and, of the first one, of the session. */
uint64_t session_due(const struct session *s, const struct lane *l);
/** The session whose box it may be from. */
struct session *session_of(const struct pbox_worker *w, const struct pbox_client_rx *d);
void session_close(struct session *s);

/** May data frames go? A box that is only silent may answer what was sent to it. */
static inline bool
rejoin_pauses(const struct session *s)
{
	return s->rejoin.joining && s->rejoin.cause != REJOIN_SILENT;
}
static inline bool
rejoin_restoring(const struct session *s)
{
	return s->rejoin.phase != PHASE_NONE;
}
/** ... and not all its tables are declared there again? */
static inline bool
rejoin_declares(const struct session *s)
{
	return s->rejoin.phase == PHASE_DECLARE;
}
/** May this request go? */
static inline bool
rejoin_admits(const struct session *s, const struct pbox_worker_request *r)
{
	if (r->type == PBOX_LEAVE)
		return true;
	if (rejoin_pauses(s))
		return false;
	return r->own || r->type == PBOX_STATUS || s->rejoin.phase == PHASE_NONE;
}

/* header.c */
void header_fill(const struct session *s, struct pbox_hdr *h, uint8_t type, uint64_t now);
/** A PING that gives its nonce back, to the endpoint that sent it; with the next flush. */
void header_echo(struct session *s, const struct rx_frame *f);
/** To the control endpoint. */
void header_ping(struct session *s);
/** LEAVE, twice, as one may get lost: nobody waits for the answer. */
void header_leave(struct session *s);

/* request.c */
/** One of our own, which goes while those of the host wait. */
void request_begin(struct session *s, struct pbox_worker_request *r, uint8_t type,
	const void *payload, size_t length, uint16_t map_epoch, void *answer, size_t cap);
/** A watched one, which waits for a new session as those of the host do. It goes with the next tick. */
void request_ask(struct session *s, struct pbox_worker_request *r);
void request_drop(struct session *s, struct pbox_worker_request *r);
/** A new session: what waits goes again, at once. */
void request_renew(struct session *s);
void request_tick(struct session *s);
void request_frame(struct session *s, const struct rx_frame *f);
void request_fail_all(struct session *s);
/** Nothing is asked of the box any more: what all boxes are asked goes on with the next one. */
void request_retire(struct session *s);
uint64_t request_due(const struct session *s);

/* plan.c */
struct worker_plan {
	struct pbox_worker_question *first,
		*last; /* those that are not answered; the first one is under way */
	struct pbox_worker_question *replied, **replied_tail; /* for the host */
	struct pbox_worker_question report;                   /* that nobody waits for */
	bool reporting;                                       /* it is under way */
	struct pbox_client_error late;   /* of the last one: it ends the next question */
	uint64_t asked_at;               /* the last WORK */
	uint32_t edition, next_from;     /* of the answer that the slots are from */
	uint32_t number, members, leads; /* of the last answer */
	bool again; /* the round of the last push was pushed again: its slots have changed in it */
};
void plan_tick(struct pbox_worker *w, uint64_t drained);
uint64_t plan_due(const struct pbox_worker *w);
/** The worker has failed or was shut: all questions end. */
void plan_fail(struct pbox_worker *w);

/* ---- lanes ---------------------------------------------------------------------------------------- */

/*
 * A worker's endpoints (of all its boxes) are cut into lanes, so that a host may drive each lane with a thread of its own.
 * A lane has: its endpoints, with flights, windows, timers and ready fragments; their fragments, and so the queues of operations
 * for these; what was submitted for it and not seen yet; a batch of datagrams and the port that these leave by; its
 * time; its counters.
 *
 * A host has a lock for each lane, and holds
 *   - the lane's while it calls pbox_worker_lane_rx() and pbox_worker_lane_tick(), which do nothing but data of this lane, and are
 *     for steady times alone (pbox_worker_steady);
 *   - that of the first lane for pbox_worker_submit(), _finished(), _answered(), and what asks for facts of the worker;
 *   - those of all lanes, in their order, for everything else: join, DECLARE, requests, failover, plans, texts. So that code
 *     is the same as with one lane.
 * In steady times two lanes write nothing in common but what is atomic, and seldom written: an operation's `open` (once for each
 * entry and lane), `failing`, `recount` of a table, `edition_seen`, the list of operations that have ended, the inboxes. Everything that
 * would make a time unsteady is a call with all locks, so `steady` itself needs no more than any lane's lock to be read.
 *
 * The order of R6.9 is one of the fragments of an endpoint, so of a lane: each lane's inbox gets all operations in the order of
 * submission. An operation has its entries once for each lane. The queues of a chunk stay in the lane in which they were laid out; when a
 * box comes back with other endpoints for them, all goes on under all locks (`mixed`).
 *
 * With one lane there are no locks, and nothing of this costs anything.
 */
#define LANE_REST 64

struct lane {
	struct pbox_worker *w;
	unsigned number;
	uint64_t now;
	struct queue *starting; /* with entries that not all pieces know of, most urgent first */
	struct pbox_client_stats count;
	unsigned rests; /* frames that are not for the lane alone */
	struct rx_frame rest[LANE_REST];
	struct session *rest_of[LANE_REST];
	struct link link;
	/* first entries of operations that were submitted, the latest first, linked by next; any lane may look */
	struct pbox_worker_entry *inbox __attribute__((aligned(64)));
};

struct lane *lane_new(struct pbox_worker *w, unsigned number, struct pbox_worker_ops *port);
/** The lane of endpoint @p i of a session. */
struct lane *lane_of(const struct session *s, unsigned i);
/** All locks are held, or there is one lane: all lanes have one time, and nothing in their inboxes. */
void lane_gather_all(struct pbox_worker *w, uint64_t now);
/** After that, and what was done then: is it a steady time? */
void lane_settle_all(struct pbox_worker *w);
void lane_flush_all(struct pbox_worker *w);
/** A box has come back with an endpoint for the chunk: w->mixed is true from then on, also before it is a steady time again. */
void lane_moved(struct pbox_worker *w, const struct chunk *k);
/** When something came from the box of the session, in any lane. */
uint64_t lane_heard(struct session *s);
/** Add the counters of the lane. */
void lane_stats(const struct lane *l, struct pbox_client_stats *m);

/* ---- worker.c ------------------------------------------------------------------------------------- */

struct chunk_ref {
	uint32_t id, chunk;
	struct pbox_worker_table *table; /* NULL: empty */
};

struct pbox_worker {
	/* fixed after create */
	struct pbox_client_conf conf;
	char *job, *secret, *host;
	uint64_t nonce;            /* of all its sessions */
	uint8_t run[PBOX_RUN_LEN]; /* identity of its run; zeros: none */
	bool has_run;

	struct session
		*box[WORKER_BOXES]; /* a session a box; the first one gives the run its number */
	unsigned boxes;
	bool opened;               /* all of them were open */
	bool renumbered;           /* the first box has given another run: the others follow */
	bool astray;               /* another box has a later run than the first one gave */
	struct pbox_boxes_ok list; /* of the first box, if there are several */
	struct homes homes;
	struct carries carries;
	struct sockaddr_in named[WORKER_BOXES]; /* by the program; n_named 0: one */
	unsigned n_named;
	uint16_t worker, workers; /* of the first WELCOME */
	uint16_t slots;           /* of the job, named or not */
	uint16_t slot, slot_end;  /* the worker's first one, and the one after its last */
	uint16_t nodes;           /* that these consist of */
	struct pbox_node node[PBOX_RANGE_NODES];
	uint16_t settled_as;           /* the worker whose nodes these are, if settled */
	bool settled, planned;         /* the nodes are known; they change (section 15) */
	uint8_t edition, edition_seen; /* of the owners: of node, of the last RESULT */
	struct worker_task task;
	struct worker_plan plan;

	uint64_t now; /* of what is not data */
	struct lane *lane[PBOX_WORKER_LANES];
	unsigned lanes;
	bool steady;      /* the time is for lanes alone; false with one lane */
	bool mixed;       /* some chunk's endpoint is of another lane than its queues */
	uint32_t next_id; /* of requests */
	struct pbox_worker_table **table; /* those mapped, by number; a fragment's table too */
	uint32_t tables, tables_cap;
	uint64_t lagging; /* fragments that do */
	bool goes_on;     /* the program said the round of a table (first_round) */
	struct declaring declaring;
	struct chunk_ref *refs;
	uint32_t refs_cap, refs_used;          /* cap: a power of two */
	struct pbox_worker_op *ops, *ops_last; /* unfinished */
	struct pbox_worker_op *ended_ops; /* the latest first; not taken out of that list yet */
	struct pbox_worker_op *finished, **finished_tail; /* for the host */
	struct pbox_worker_request *answered, **answered_tail;
	uint64_t next_order;
	struct pbox_client_stats count;
	struct times times;
	bool failed; /* the session is lost for good, ... */
	bool ended;  /* ... and so have all operations */
	bool shut;   /* closing: all operations have been failed */
	struct pbox_client_error fatal;
};

/** The next box after that one that the job does not go on without; w->boxes: none. */
static inline unsigned
worker_next_box(const struct pbox_worker *w, unsigned box)
{
	do
		box++;
	while (box < w->boxes && w->box[box]->out);
	return box;
}

/* nodes.c */
/** The numbers of the worker and of the workers are known. */
void nodes_settle(struct pbox_worker *w);
/** How many nodes the worker brings in a round of the table: with weighted means each slot is one (R5.2b). */
static inline unsigned
nodes_of(const struct pbox_worker *w, const struct pbox_worker_table *t)
{
	return t->op == PBOX_OP_WEIGHTED_MEAN ? w->slot_end - w->slot : w->nodes;
}
static inline struct pbox_node
nodes_at(const struct pbox_worker *w, const struct pbox_worker_table *t, unsigned i)
{
	return t->op == PBOX_OP_WEIGHTED_MEAN ? (struct pbox_node){(uint16_t)(w->slot + i), 0}
					      : w->node[i];
}
/** How many fragments may be in flight at an endpoint, of @p window that the box has granted: it has room for as many of the
 * fewest nodes, and those of some tables are more. */
uint32_t nodes_window(const struct pbox_worker *w, uint32_t window);
/** The index of the node that has the slot; if it is none of the worker's: @p otherwise. */
unsigned nodes_find(const struct pbox_worker *w, const struct pbox_worker_table *t, uint32_t slot,
	unsigned otherwise);

/** A push that waits for the PUSH_OK of a node after which others come. */
static inline bool
flight_is_between(const struct pbox_worker *w, const struct flight *fl)
{
	return flight_is_push(fl) && fl->node + 1u < nodes_of(w, w->table[fl->frag->table]);
}
/** The type of its frame with payload. */
static inline uint8_t
flight_frame_type(const struct pbox_worker *w, const struct flight *fl)
{
	return flight_is_between(w, fl) ? PBOX_PUSH : fl->type;
}

/** The endpoint of a chunk. */
static inline struct ep *
worker_endpoint(const struct pbox_worker *w, const struct chunk *k)
{
	return &w->box[k->box]->ep[k->endpoint];
}

/** Is a push of an operation on its way? */
static inline bool
flight_pushes(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f)
{
	const struct flight *fl = &worker_endpoint(w, &t->chunk[f->chunk])->flight[f->flight];

	return f->state == FRAG_FLIGHT && flight_is_push(fl) && !fl->redo;
}

/** text.c: the session is lost for good. Its operations end when the host's call does. */
void text_fail(struct pbox_worker *w, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* chunks.c */
/** The table becomes one of the worker, and its pieces get their lanes; -ENOMEM. */
int chunks_add_table(struct pbox_worker *w, struct pbox_worker_table *t);
const struct chunk_ref *chunks_find(const struct pbox_worker *w, uint32_t id);

#endif /* WORKER_IMPL_H */
