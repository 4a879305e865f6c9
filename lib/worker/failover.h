/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FAILOVER_H
#define FAILOVER_H

/* A new session after a restart of the box: rejoin.c, restore.c. flow.h has retained.c and sets.c. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "declare.h"

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
	struct pbox_worker_table
		*unreported; /* the last one, if it is new and was declared with RESTORE */
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
/** A worker without a table has the number of its run from the box that decides alone: while that is asked, the others are not. */
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

#endif /* FAILOVER_H */
