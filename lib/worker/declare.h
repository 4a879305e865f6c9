/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef DECLARE_H
#define DECLARE_H

/* DECLARE and MAP, the first time and after a restart of the box: pager.c, declare.c, map.c, table.c. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <pbox_wire.h>

#include "flow.h"
#include "homes.h"
#include "link.h"

struct session;

/** check.c: is it, beside these uses of the job, what does not go together (doc/modes.md)? @p what begins the message. */
int check_pairs(const struct pbox_client_table *d, uint32_t uses, const char *what,
	struct pbox_client_error *err);

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
	unsigned first,
		box; /* first: the one whose map the others' are compared with; box: that is asked now: one after the other */
	struct map_seen
		agreed; /* chunks of its map that are as the box that was asked first has them */
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

#endif /* DECLARE_H */
