/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef DISCIPLINE_H
#define DISCIPLINE_H

/*
 * The discipline of a table says what a contribution does to a fragment, and which version answers a
 * question. Sessions, addresses, quotas, INIT, FETCH, records, answers and copies are the shard's: they call
 * the discipline through the table, and no file of the shard asks which one it is.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pbox_frame;
struct pbox_hdr;
struct pbox_restore_ok;
struct pbox_shard;
struct pbox_fragment;
struct pbox_staging;
struct pbox_table;
struct pbox_why_round;
struct target;

/* Where a fragment is, seen from the version that a snapshot copies. */
enum discipline_cut {
	CUT_LAGS,  /* before it, and too far to wait for */
	CUT_AHEAD, /* before it: the fragment comes to it */
	CUT_HERE,
	CUT_PASSED, /* the fragment has no such version any more */
};

/* g is a fragment that is not being restored, except in report. contribute, pull, burst and norm are called for packets. */
struct discipline {
	/* A PUSH or PUSHPULL, of a format and length that fit; its fragment may be closed. True: the packet is
	 * held. */
	bool (*contribute)(
		struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
	/* A PULL, also before INIT. */
	void (*pull)(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
	/* A fragment of pbox_shard.ready, where contribute or members have put it, at the end of the burst or
	 * sooner (shard_finish_ready). next: what follows it there, of the same job and discipline; or NULL. */
	void (*burst)(struct pbox_shard *s, const struct target *g, const struct target *next);
	/* A NORM (R6.15). NULL: there is none. */
	void (*norm)(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
	/* The workers that its record waits for: set their bits of `set`, which is empty. */
	void (*missing)(const struct target *g, uint64_t *set);
	/* What `why` says of it besides; NULL: nothing. */
	void (*why)(const struct target *g, struct pbox_why_round *out);
	/* What WAIT says to a worker of the fragment and of what the worker has brought (R6.6). */
	void (*wait)(const struct target *g, unsigned worker, struct pbox_hdr *h);
	/* The job expects other workers (R8.5), and the fragment has a record. */
	void (*members)(struct pbox_shard *s, const struct target *g);
	/* Its slots are about to have other owners (section 15), and the fragment has a record: what is not intact must not
	 * be taken for theirs. */
	void (*owners)(struct pbox_shard *s, const struct target *g);
	/* It is being restored: a worker reports what it holds (RESTORE), or, f NULL, fewer workers have to. */
	void (*report)(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
	/* Its chunk leaves this box, and it has a record, of no restoring: what goes on there is given up. NULL: chunks of such
	 * tables do not move. */
	void (*leave)(struct pbox_shard *s, const struct target *g);
	/* A worker brings a part of what the fragment's former home has of it (INIT with HAVE). NULL: there are no such tables. */
	void (*bring)(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
	/* It is not being restored, and a worker whose session was lost reports what it holds. NULL: that says nothing new. */
	void (*late)(const struct target *g, const struct pbox_frame *f);
	/* What RESTORE_OK done says of the worker's own contributions (R14.11), or of what is lost (R16.13). */
	void (*done)(const struct target *g, unsigned worker, struct pbox_restore_ok *m);
	/* Is it what a snapshot copies? */
	enum discipline_cut (*at_cut)(
		const struct pbox_fragment *fragment, const struct pbox_staging *staging);
	/* Its job ends: the packets that its record holds go back. */
	void (*drop)(struct pbox_shard *s, const struct target *g);
	/* What a shard keeps of a table for it, in pbox_shard_table.state. */
	size_t (*bytes)(const struct pbox_table *t, unsigned workers);
	/* And the words that it keeps beside each fragment (pbox_table.clocks). NULL: none. */
	unsigned (*clocks)(unsigned workers);
	/* Bytes after the elements of RESULT and RESTORE. NULL: none. */
	unsigned (*vector)(unsigned workers);
	/* Versions do not wait for any worker: so none of them stays for FETCH, or INIT with LATEST. */
	bool moves_on;
} __attribute__((aligned(64)));

/* rounds.c: a version is the sum of one contribution of each worker (R6.1). */
extern const struct discipline rounds_discipline;
/* clock.c: a version is one more push (section 14). */
extern const struct discipline clock_discipline;

#endif /* DISCIPLINE_H */
