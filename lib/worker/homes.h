/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef HOMES_H
#define HOMES_H

#include <stdbool.h>
#include <stdint.h>

#include <netinet/in.h>

#include <pbox_wire.h>

#include "pbox_worker.h"

struct pbox_worker;
struct pbox_worker_table;
struct session;

/* ---- a job at several boxes: boxes.c (section 16) ------------------------------------------- */

#define BOXES_ANSWER 512

/** The question which boxes there are, under way if `asked`. */
struct boxes_ask {
	struct pbox_worker_request request;
	uint8_t answer[BOXES_ANSWER];
	bool asked;
};

/** One more box of the worker, at that control endpoint; its session is not open. NULL: no memory. */
struct session *boxes_session(struct pbox_worker *w, const struct sockaddr_in *at);
/** Ask a box for the list, as long as it is not s->listed, and compare the answer. */
void boxes_tick(struct session *s);
/** All sessions are there, and their boxes alike. */
bool boxes_ready(const struct pbox_worker *w);

/* refer.c, decider.c: which box a worker without tables joins first (R16.3, R16.17) */
struct join;
/** A box has answered ELSEWHERE with that address. False: this worker cannot join there, and asks again. */
bool decider_refer(struct join *j, uint32_t address);
/** Before there is a list: the join begins again at that address. */
void refer_to(struct join *j, const struct sockaddr_in *at);
/** How long to wait before the JOIN that follows so many referrals, ns. */
uint64_t refer_pause(unsigned refers);
/** Join at another box: a box has said so, or the one that is asked is silent. */
void decider_tick(struct pbox_worker *w);

/* out.c: boxes that the job goes on without (R16.12) */
/** Those with a bit in @p out are boxes that the job goes on without, and @p decider decides (R16.14); session_tick() does what follows. */
void out_set(struct pbox_worker *w, uint16_t out, unsigned decider);
/** A box does not answer: what can be done about it, in words. */
void out_why(const struct session *s, char *text, size_t cap);
/** Ask no longer. */
void out_drop(struct session *s);

/* ---- chunks that move: spread.c, homes.c (R16.9 to R16.11) ---------------------------------- */

enum spread_phase {
	SPREAD_ASK,     /* the box that decides: which has which */
	SPREAD_PREPARE, /* all: take what comes to you */
	SPREAD_SHOW,    /* all: close what you have no more */
};

/** What is asked and shown of some tables. */
struct spread {
	struct pbox_worker_table **table;
	struct pbox_home **next; /* by table and chunk; NULL: nothing is under way */
	uint32_t tables;
	uint16_t flags, epoch; /* epoch: of the map */
	uint16_t out,
		out_epoch; /* boxes that are out (bits), by the latest map that was heard of, */
	uint8_t decider;   /* and which one decides, by that one */
	uint16_t
		learned; /* the latest that a box knew, and the one that decides perhaps not; 0: none */
	enum spread_phase phase;
	bool only;           /* one box is shown what is known */
	bool changed, newer; /* there is another map now; a box knows of it */
	unsigned box;        /* that is shown it, */
	uint32_t at, first;  /* of which table, and from which chunk on */
	uint64_t again_ns, pause;
	uint64_t since_ns; /* the last answer, or the first question */
	unsigned asks;     /* the box that is asked */
	bool asked;        /* request is under way, at s, or answered */
	struct session *s;
	struct pbox_worker_request request;
	uint8_t payload[20 + 8 * PBOX_HOMES_MOST], answer[1500 - PBOX_MTU_OVERHEAD];
};

/** From what is known of these tables on; -1: no memory. */
int spread_begin(const struct pbox_worker *w, struct spread *x, struct pbox_worker_table **table,
	uint32_t tables, uint16_t flags);
/** After that: show it to one box, by the map of that epoch. */
void spread_only(struct spread *x, const struct session *s, uint16_t epoch);
/** 1: there is more to do, 0: done, -1: the session has failed. */
int spread_step(struct pbox_worker *w, struct spread *x);
uint64_t spread_due(const struct pbox_worker *w, const struct spread *x);
/** Ask again; what is known stays. */
void spread_again(struct spread *x);
/** A box that decides may be silent, and another one know who has taken its place: for so long it alone is asked (R16.17). */
#define SPREAD_PATIENT (250 * NS_PER_MS)
/** Does it give chunks to a box that is out? Then the one that decides was started again, and has not heard that yet. */
bool spread_is_out(const struct spread *x);
#define SPREAD_OUT_AGAIN (20 * NS_PER_MS)
void spread_end(struct spread *x);

#define HOMES_FIRST 1 /* epoch of a map from which nothing has moved */

/** Of a worker. */
struct homes {
	uint16_t epoch; /* the chunks of its tables are by the map of that */
	uint16_t seen;  /* the latest that a box has said, */
	unsigned from;  /* and which one */
	uint16_t first; /* the latest that the box that decides has said, since its session began */
	uint16_t out;   /* by that of `epoch`: boxes that the job goes on without (bits), */
	uint8_t decider;  /* and which one decides (R16.14) */
	uint16_t decided; /* without a table: the map of the box that has said so */
	bool again;       /* some table is by an earlier one */
	uint64_t left;    /* fragments that move */
	struct spread spread;
};
/** Of a session: fragments that have moved to its box, and which is reported next, by endpoint. */
struct moving {
	uint64_t left;
	uint32_t table[PBOX_MAX_ENDPOINTS], chunk[PBOX_MAX_ENDPOINTS], frag[PBOX_MAX_ENDPOINTS];
};

static inline bool
homes_behind(const struct homes *h)
{
	return h->again || (int16_t)(h->seen - h->epoch) > 0;
}
/** A box, which decides or does not, has said the epoch of a map. */
static inline void
homes_heard(struct homes *h, uint16_t epoch, unsigned box, bool decides)
{
	if (decides && (int16_t)(epoch - h->first) > 0)
		h->first = epoch;
	if ((int16_t)(epoch - h->seen) <= 0)
		return;
	h->seen = epoch;
	h->from = box;
}
/** Nothing moves. */
static inline bool
homes_steady(const struct homes *h)
{
	return !homes_behind(h) && h->spread.next == NULL && h->left == 0;
}
/** The box of the session has another session for the worker. */
void homes_renew(struct session *s);

#endif /* HOMES_H */
