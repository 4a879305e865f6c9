/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef RESTART_H
#define RESTART_H

/**
 * @file
 * What makes a client outlive its session (section 10 of the protocol). All of it belongs to the
 * progress thread, unless it says otherwise.
 */

#include "join.h"

/* map.c: pages */
struct table_map;
struct map_again { /* the map of a table that we have */
	struct pbox_chunk_entry entry;
	uint8_t *got; /* by chunk */
	uint32_t n_got;
};
/** Fill a page from tensor @p first on; returns how many fit. */
unsigned page_declare(const struct table *t, uint32_t flags, unsigned first, uint8_t *payload,
	size_t cap, size_t *length);
/** Take a page; *count is how many chunks stood in it. */
int page_mapped(struct table *t, struct table_map *m, const struct request *r, unsigned endpoints,
	uint32_t *count, struct pbox_client_error *err);
/** The same for a table that is laid out already: only endpoints and epoch may differ. */
int page_compare(struct pbox_client *c, struct table *t, struct map_again *m,
	const struct request *r, uint32_t *count, struct pbox_client_error *err);

/* rejoin.c: a session that was lost */
enum rejoin_cause { REJOIN_SILENT, REJOIN_RESTARTED, REJOIN_FORGOTTEN, REJOIN_SHUTDOWN };

/** How far a new session has been told of the old one. */
enum rejoin_stage {
	STAGE_NONE, /* all of it */
	STAGE_DECLARE,
	STAGE_MAP,
	STAGE_SET,
	STAGE_RESTORE,
};

#define REJOIN_PAGES 16 /* requests in flight */

struct rejoin_page {
	struct request request;
	uint8_t *payload, *answer;
	uint32_t first;
	bool busy;
};

struct rejoin {
	struct join join;
	struct pbox_client_error err;
	uint64_t lost_ns; /* when the session was missed */
	enum rejoin_cause cause;
	enum rejoin_stage stage;
	bool joining; /* whether there is a session is being asked; stage goes on afterwards */
	uint32_t table, next; /* being told; its next tensor, chunk, or SET */
	/* MAP */
	uint64_t ask_ns, pause;
	uint32_t stride;            /* chunks in the first page; 0: it is not here */
	struct pbox_not_ready wait; /* the latest answer, if ... */
	bool waits;
	struct map_again map;
	/* RESTORE */
	struct table *told;                                           /* NULL: none is */
	uint32_t left;                                                /* fragments of it */
	uint32_t chunk[PBOX_MAX_ENDPOINTS], frag[PBOX_MAX_ENDPOINTS]; /* next one, by endpoint */
	uint8_t *room;                                                /* of the pages */
	size_t cap;
	struct rejoin_page page[REJOIN_PAGES];
};

int rejoin_open(struct pbox_client *c);
/** May the client outlive its session? It has what it needs, or has nothing yet. */
static inline bool
rejoin_possible(const struct pbox_client *c)
{
	return !c->shut && (c->conf.keep_copies || c->tables == 0);
}
void rejoin_close(struct pbox_client *c);
void rejoin_begin(struct pbox_client *c, enum rejoin_cause cause);
/** A frame before it is looked at as one of the session: true if it was for us. */
bool rejoin_frame(struct pbox_client *c, const struct rx_frame *f);
/** A valid frame of the session came. */
void rejoin_heard(struct pbox_client *c);
void rejoin_tick(struct pbox_client *c);
uint64_t rejoin_due(const struct pbox_client *c);
/** May data frames go? */
bool rejoin_pauses(const struct pbox_client *c);
/** May this request go? */
bool rejoin_admits(const struct pbox_client *c, const struct request *r);
bool rejoin_restoring(const struct pbox_client *c);
/** If @p t (NULL: anything) waits for the session, say so; sets *missing to a worker or -1. */
bool rejoin_why(
	const struct pbox_client *c, const struct table *t, int *missing, char *text, size_t cap);
/** The same from any thread; empty if nothing does. */
void rejoin_text(struct pbox_client *c, char *text, size_t cap);

/* restore.c: the box learns what we hold (R10.5) */
void restore_begin(struct pbox_client *c, struct table *t);
/** The table is, or no more is wanted of it. */
void restore_end(struct pbox_client *c);
bool restore_done(const struct pbox_client *c);
/** Put up to @p most RESTOREs on their way; their number. */
unsigned restore_pump(struct pbox_client *c, struct ep *ep, unsigned most);
void restore_answer(struct pbox_client *c, struct table *t, struct ep *ep, struct flight *fl,
	const struct pbox_hdr *h);

/* copy.c: the last result of every fragment, and the SETs that hold */
int copy_open(struct table *t);
void copy_result(struct table *t, struct frag *f, const struct pbox_hdr *h, const uint8_t *payload);
/** Version 0 is what we send, not what we get. */
void copy_init(struct table *t, struct frag *f);
/** The version that this worker holds of a fragment, or knows to be finished. */
uint32_t copy_version(const struct table *t, const struct frag *f);
/** The RESTORE of a fragment; entries of @p iov that were filled. */
unsigned copy_restore(const struct table *t, const struct frag *f, const struct flight *fl,
	struct pbox_hdr *h, struct iovec *iov);
int sets_add(struct table *t, const struct pbox_set *m);
/** Keep what still matters; returns how many there are. */
unsigned sets_compact(struct table *t);
unsigned sets_count(const struct table *t);
const struct pbox_set *sets_at(const struct table *t, unsigned i);
void sets_free(struct table *t);

#endif /* RESTART_H */
