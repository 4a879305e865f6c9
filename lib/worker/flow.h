/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FLOW_H
#define FLOW_H

/**
 * @file
 * Inside of lib/worker: data. Tables and their fragments, and the congestion window: table.c, chunks.c, window.c, rtt.c.
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

struct encoded;
struct lane;
struct pbox_reduce_ops;
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
	uint8_t half; /* with update: which array has the residual; the other one has that before the last push */
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

/** With block: what goes of a worker's i-th nodes, by fragment (encode.c). */
struct coded {
	uint8_t *codes;
	struct coded_node {
		uint32_t node; /* pbox_node_code() */
		uint8_t as;
	} * of;
};

/** With block: the rounds from which on pushes go in fp32, or in codes again: the last ones that the program has said (R13.10). */
struct plain_from {
	uint32_t round;
	bool plain;
};
#define PLAIN_FROM 16u /* more than rounds are under way */

struct pbox_worker_table {
	const struct worker_discipline *discipline;
	uint32_t number;
	uint8_t mode, op, optimiser; /* op: of DECLARE */
	uint8_t push_format,
		pull_format; /* of the program's buffers; fp32 where frames have a format of blocks */
	uint8_t block; /* of pushes in frames, of a table in rounds: a format of blocks (encode.h); 0: push_format */
	uint8_t value; /* of results in frames, which are of the version itself: a format of blocks; 0: pull_format */
	uint8_t difference; /* of results in frames, which may be differences to the copy: a format of blocks; 0: pull_format */
	uint8_t update; /* of pushes in frames, of a table in clocks: a format of blocks (redo.c); 0: push_format */
	bool weighs; /* with block: the program's op is weighted_mean, and this worker multiplies */
	_Atomic uint32_t plains; /* so many have been said */
	struct plain_from plain_from[PLAIN_FROM];
	uint16_t map_epoch[PBOX_MAX_BOXES]; /* of the last MAPPED of each box, */
	uint16_t mark
		[PBOX_MAX_BOXES]; /* and of the snapshot that it began with there; 0: none (R16.16) */
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
	struct retained *retained;            /* by fragment */
	struct frag_clock *clock;             /* by fragment; NULL: the table is in rounds */
	uint16_t vector;                      /* bytes after the elements of a RESULT */
	uint8_t *retained_vector;             /* by fragment; with retained */
	struct redo *redo;                    /* by fragment; NULL: none is kept */
	uint32_t owing;                       /* fragments of it that owe pushes; of all lanes */
	uint8_t *redo_payload;                /* REDO_MAX models, in the push format, or in codes */
	const struct pbox_reduce_ops *reduce; /* with block, difference or update; */
	float *residual
		[2]; /* with block or update, as retained_payload, which is there, too; with block: */
	struct encoded *encoded; /* by fragment; */
	struct coded *coded;     /* one for each node that the worker may bring; */
	unsigned n_coded;
	struct set_log *sets; /* that the box has answered with SET_OK */
	/* bit by box: RESTORE of it comes before its operations there go on; or FRAGS_MOVING: that of some fragments */
	uint32_t restoring;
	bool large;          /* no cache holds its results */
	bool resumed;        /* its rounds go on where the program says (first_round) */
	bool gained;         /* the worker has got slots in a round (R15.8), which ... */
	uint32_t gained_in;  /* ... is this one, and the program has not asked for them yet */
	uint32_t held_round; /* of two phases: that of the last push that was no repetition */
	bool own_rounds;     /* of each tensor: the host's */
	bool untold; /* its host has not said yet what it holds: nothing of it is reported, and nothing pushed */
	uint32_t flags; /* of its DECLARE: PBOX_DECLARE_CONTINUE, _HOLD, _MIXED */
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

#endif /* FLOW_H */
