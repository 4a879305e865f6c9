/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CARRY_H
#define CARRY_H

#include <stdbool.h>
#include <stdint.h>

/*
 * carry.c: what a box alone has of a fragment (parameters in fp32, the state of the optimiser) is fetched from the box that the fragment's
 * chunk has left, and brought to the one that has it now (R16.13). All locks are held, but where a function says otherwise.
 */

struct frag;
struct flight;
struct pbox_hdr;
struct pbox_worker;
struct pbox_worker_table;
struct rx_frame;
struct session;

/** One fragment's. */
struct carry {
	struct carry *next;
	struct pbox_worker_table *t;
	struct frag *f;
	uint64_t due_ns;    /* when what was sent is sent again */
	uint32_t version;   /* of the parts that have come; if `known` */
	uint32_t samples;   /* of that */
	uint32_t base;      /* of the part that is under way: its first element, */
	uint16_t array;     /* its array, */
	uint16_t arrays;    /* of so many */
	uint8_t tries;      /* that it was sent again */
	bool known, giving; /* giving: the part is here, and is being brought; else it is fetched */
	uint8_t *part;      /* its bytes; NULL: not begun */
};

/** Of a worker, in the order in which boxes asked. The first few are under way. */
struct carries {
	struct carry *first, **tail;
};

void carry_init(struct carries *k);
/** The fragment's box asks for all of it, @p arrays arrays; nothing if that is under way. -ENOMEM. */
int carry_begin(
	struct pbox_worker *w, struct pbox_worker_table *t, struct frag *f, unsigned arrays);
/** An answer of a carry, of fragment @p f? Then it is taken, or dropped. Any lane, with its lock: in steady times there is no carry. */
bool carry_frame(
	struct session *s, struct pbox_worker_table *t, struct frag *f, const struct rx_frame *r);
/** The fragment is at its box. */
void carry_end(struct pbox_worker *w, const struct frag *f);
/** All that go to the box of @p s, or come from it; s NULL: all. */
void carry_drop(struct pbox_worker *w, const struct session *s);
/** The box has lost all that it had: nothing is to be had there. */
void carry_lost(struct pbox_worker *w, const struct session *s);
/** The fragment's home has all of it. */
void carry_is_home(const struct pbox_worker *w, const struct pbox_worker_table *t, struct frag *f);
/** 1 + the number of the box that still has all of the fragment, which its home has not; 0: none. */
uint32_t carry_source(
	const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f);
/** A box that the worker fetches from, and waits for; NULL: none. */
const struct session *carry_waits(const struct pbox_worker *w);

#endif /* CARRY_H */
