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
 *     part.c              the parts of a worker (part.h): boxes.c, homes.c, carry.c and plan.c with the files beside them
 *     boxes.c decider.c   a job at several boxes: which, are they alike, and which one decides?
 *     join.c refusal.c refer.c path.c   how a session begins: handshake, refusals, path MTU
 *     rejoin.c restore.c                failover: a new session after a restart of the box
 *     carry.c                           fragments that are carried from box to box
 *     homes.c spread.c out.c            chunks that move from box to box; boxes that the job goes on without
 *     declare.c pager.c map.c table.c chunks.c  DECLARE and MAP, the first time and after a restart of the box
 *     lane.c              lanes: endpoints that a thread drives by itself
 *     queue.c transfer.c loss_recovery.c flight.c timer.c window.c  operations to fragments to frames to answers, loss
 *                         recovery, congestion window (flow.h)
 *     run.c               runs: neighbouring fragments in one record
 *     next_round.c        the round of a table's next push
 *     times.c             how long each box takes (times.h)
 *     request.c           control requests and their repetition
 *     plan.c              work by plan: what is asked of the box, and when (pbox_worker_plan.h)
 *     norm.c              the norm of a round (pbox_worker_norm.h)
 *     task.c              slots that others do within a round
 *     nodes.c             which nodes of the tree over the job's slots this worker brings
 *     worker_rounds.c worker_clock.c    the discipline of a table (worker_discipline.h): versions, answers, losses
 *     redo.c              own pushes that a restarted box needs
 *     encode.c            formats of blocks: codes, residuals, what results say
 *     half.c              elements of 16 bits
 *     retained.c sets.c   what a restarted box needs besides: last results, hyper-parameters
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

#include "carry.h"
#include "declare.h"
#include "encode.h"
#include "endpoint.h"
#include "failover.h"
#include "handshake.h"
#include "homes.h"
#include "link.h"
#include "norm.h"
#include "part.h"
#include "pbox_worker.h"
#include "plan.h"
#include "times.h"

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
	uint64_t first_number;                 /* of the run of its first session */
	bool again;                            /* a box has begun again in the run that goes on */
	const struct worker_part *const *part; /* all of them, then NULL */

	struct session *box[WORKER_BOXES]; /* a session a box, by its place in the list */
	unsigned boxes;
	bool opened;             /* all of them were open */
	bool asked_alone, asked; /* fresh JOINs leave when the host asks; it does */
	bool renumbered;         /* the box that decides has given another run: the others follow */
	bool astray;             /* another box has a later run than that one gave */
	uint8_t turn; /* without tables: 1 + the box that is to be asked for number and run; 0: the same */
	bool turned;               /* it is another one, and has not answered yet */
	unsigned refers;           /* how often that was so */
	struct pbox_boxes_ok list; /* of the box that was asked first, if there are several */
	struct homes homes;
	struct carries carries;
	struct norms norms;
	struct sockaddr_in named[WORKER_BOXES]; /* by the program; n_named 0: one, the first */
	unsigned n_named;
	uint16_t worker, workers; /* of the first WELCOME */
	uint16_t slots;           /* of the job, named or not */
	uint16_t slot, slot_end;  /* the worker's first one, and the one after its last */
	uint16_t nodes;           /* that these consist of */
	struct pbox_node node[PBOX_RANGE_NODES];
	struct {
		uint32_t
			round; /* by plan: the last one that may have begun with other slots than it ends with */
		uint64_t slot[PBOX_MAX_SLOTS / 64]; /* bitmap: with which */
	} kept;
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

/** The first one of them. */
static inline unsigned
worker_first_box(const struct pbox_worker *w)
{
	unsigned box = 0;

	while (box < w->boxes && w->box[box]->out)
		box++;
	return box;
}
/** The box that decides (R16.14): numbers of workers and runs, homes, and what one box alone is asked. */
static inline struct session *
worker_decider(const struct pbox_worker *w)
{
	return w->box[w->homes.decider];
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
/** Has the worker had all slots of the node since that round began? */
static inline bool
nodes_are_kept(const struct pbox_worker *w, uint32_t round, struct pbox_node n)
{
	bool changed = w->planned && w->kept.round == round;

	for (unsigned i = n.first; changed && i < pbox_node_end(n, w->slots); i++)
		if ((w->kept.slot[i / 64] >> i % 64 & 1) == 0)
			return false;
	return true;
}
/** That round has begun, with the slots that the worker has, if it is not known yet: those that come later are no longer its own. */
void nodes_begin_round(struct pbox_worker *w, uint32_t round);
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
