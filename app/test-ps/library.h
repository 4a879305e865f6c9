/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_LIBRARY_H
#define TESTPS_LIBRARY_H

/**
 * @file
 * --worker library: the workers of a lane are those of lib/worker, which has slots, plans, clocks and several boxes.
 *
 *     lane.c   packets -> library_datagram()    library_port.c  frames <-> packets, addresses
 *              each turn  library_turn()        library.c       each worker's program: join, declare, rounds, leave
 *                                               library_data.c  what slots bring, and what results must be
 *                                               library_make.c  memory
 *
 * A lane's own thread, but for make, ready and free, while main waits for it or it does not run.
 */

#include <pbox_worker_plan.h>

#include "testps.h"

#define SEEDS 16 /* different data of rounds and tensors, */
#define SHIFT 64 /* elements apart */

/** A way that datagrams of a worker take; datagrams name it by its number + 1. */
struct route {
	struct sockaddr_in to;
	struct pbox_net_udp_template headers;
};

enum program {
	PROGRAM_CLOSED,
	PROGRAM_OPENING,
	PROGRAM_JOINED,
	PROGRAM_DECLARING,
	PROGRAM_MAPPED,
	PROGRAM_SETTING, /* worker 0: hyper-parameters, */
	PROGRAM_GIVING,  /* and the first parameters */
	PROGRAM_RESTS,   /* and may begin a round */
	PROGRAM_ASKS,    /* which slots are its own */
	PROGRAM_COMPUTES,
	PROGRAM_EXCHANGES,
	PROGRAM_SETTLES, /* in clocks: pulls what has the pushes of all, at the end of a run */
	PROGRAM_LEAVING,
	PROGRAM_LEFT
};

/** A worker of the lane. */
struct library_worker {
	struct pbox_worker *w;
	struct pbox_worker_ops port;
	struct lane *l;
	uint16_t number;
	uint8_t program; /**< enum program */
	bool dirty, again, measured;
	unsigned routes, open; /**< open: operations */
	struct route *route;
	uint64_t due_ns, compute_ns, not_before_ns, begun_ns;
	uint32_t round, settled; /**< the last ones that have ended */
	unsigned slots, nodes;   /**< of this round */
	uint64_t all_slots;      /**< of all rounds that have ended */
	struct pbox_worker_declaration declaration;
	struct pbox_worker_request request;
	uint8_t payload[128], answer[512];
	struct pbox_worker_question question;
	struct pbox_worker_op *op, *pull;
	const uint8_t **node_in;
	uint32_t node_weight[PBOX_RANGE_NODES];
	float *out;
	struct pbox_client_stats counted;
};

/** Of a lane. */
struct library {
	struct library_worker *x;
	unsigned *dirty[2], side, n_dirty; /**< to be served in this turn, and in the next one */
	uint64_t scan_us;
	uint32_t plan; /**< the latest that a worker has heard of */
	uint32_t base; /**< version of the table when it was declared */
	/* data: [t] of each tensor */
	unsigned slots;
	size_t longest;
	float *sum[PBOX_MAX_SLOTS +
		   1]; /**< over so many slots, from any one on: sum[n][i + SHIFT * (slot + seed)] */
	uint64_t *at;  /**< in the model, elements */
	uint64_t elements;
	uint32_t *crc; /**< all-reduce: [t * SEEDS + seed]; else [t * SEEDS + round % SEEDS] */
	bool *known;
	struct reference reference;
	uint32_t stepped; /**< the last round that reference has */
};

/* library_make.c */
/** Workers of a lane that is not running. -errno and @p err. */
int library_make(struct lane *l, struct pbox_error *err);
/** Memory of rounds: the table is mapped. */
int library_ready(struct lane *l, struct pbox_error *err);
void library_free(struct lane *l);
/* library.c */
/** @param more  frames may have come that it does not know yet */
void library_turn(struct lane *l, bool running, bool more);
/** "--slot-time": of a worker, ns. */
uint64_t library_slot_ns(const struct testps *t, unsigned worker);

/* library_port.c */
void library_send(void *ctx, const struct pbox_client_tx *d, unsigned n);
void library_datagram(
	struct lane *l, unsigned worker, const struct rte_mbuf *m, const struct pbox_net_pkt *k);
/** It has something to do in this turn. */
void library_wake(struct lane *l, struct library_worker *x);
/** lib/worker's clock is never 0. */
uint64_t library_clock_ns(const struct lane *l);

/* library_data.c */
int library_data_make(struct lane *l, struct pbox_error *err);
void library_data_free(struct library *b);
/** What @p slots slots, from @p first on, bring for a tensor in a round. NULL: no memory */
const float *library_data(
	struct library *b, unsigned tensor, uint32_t round, unsigned first, unsigned slots);
/** The parameters at the beginning. */
const float *library_init(const struct library *b, unsigned tensor);
/** Is it what the round's result must be, tensor by tensor? In clocks: with all pushes up to that round.
 * @return how many are not, and the first of them; -1: it is not known, as other workers are many rounds ahead */
int library_wrong(struct lane *l, const float *out, uint32_t round, unsigned *first);

#endif /* TESTPS_LIBRARY_H */
