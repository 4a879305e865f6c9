/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef WORKER_DISCIPLINE_H
#define WORKER_DISCIPLINE_H

/*
 * The discipline of a table says which version a frame names, which answer completes it, and what a restart of the
 * box means for a fragment. Queues, window, timers, loss recovery and datagrams are the same for all tables: they
 * call the discipline through the table, and none of their files asks which one it is.
 *
 * Pure: a discipline has the state of the fragment and of the table, and nothing is allocated after DECLARE.
 */

#include <stdbool.h>
#include <stdint.h>

struct flight;
struct iovec;
struct frag;
struct piece;
struct pbox_client_error;
struct pbox_client_stats;
struct pbox_hdr;
struct pbox_restore_ok;
struct pbox_worker;
struct pbox_worker_table;
struct retained;
struct session;

struct worker_discipline {
	unsigned number; /* of DECLARE */
	uint32_t needs;  /* capabilities of a box that has it (R4.10) */
	/* A restarted box gets such a table back from its workers (section 10), of a job of so many at most. */
	unsigned survives;
	/* Bytes after the elements of a RESULT. NULL: none. */
	unsigned (*vector)(unsigned workers);
	/* 1: the operations on a tensor go one after the other. 2: pulls have a lane of their own. A pull may then be
	 * in flight while a push of the same tensor is, and the fragment of each lane has a flight (flow.h). */
	unsigned lanes;
	/* A PULL with the round of a PUSHPULL asks what became of it: a probe. False: the payload is repeated. */
	bool probes;
	/* Neighbours of one round may be in a run (run.c): frames say of a fragment nothing else that is its own, `pushed` is NULL, and there
	 * is one lane. */
	bool runs;
	const char *unit; /* what frag.round counts, in texts */
	/* Does the pull of the fragment wait for a push of this worker itself that has not been answered? NULL: none does. */
	bool (*waits_for_own)(const struct pbox_worker *w, const struct pbox_worker_table *t,
		const struct frag *f);
	/* Its chunks stay where the first map has them, and each box gives them an epoch of its own (R16.15). */
	bool stays;

	/* All boxes have said how they lay the table out: may it begin with what they have? NULL: it may. */
	int (*alike)(const struct session *s, const struct pbox_worker_table *t,
		uint32_t first_round, struct pbox_client_error *err);
	/* The map is here. @p first_round as pbox_client_table has it. 0, or a failure with its text. */
	int (*begin)(struct session *s, struct pbox_worker_table *t, uint32_t first_round,
		struct pbox_client_error *err);
	/* Before the first transmission of a PUSH or PUSHPULL. */
	void (*push)(struct frag *f);
	/* The box did not take it: it refused it, or the operation has failed, or the session was lost. */
	void (*withdraw)(struct frag *f);
	/* May the fragment be pushed now? False: why not, and its operations fail. NULL: always. */
	bool (*may_push)(struct pbox_worker_table *t, const struct frag *f, char *why, size_t cap);
	/* What a PUSH or PUSHPULL says, at the node that is due; */
	void (*contribute)(const struct pbox_worker *w, const struct pbox_worker_table *t,
		const struct flight *fl, struct pbox_hdr *h);
	/* and what a PULL does (a probe as well). */
	void (*ask)(const struct pbox_worker *w, const struct pbox_worker_table *t,
		const struct frag *f, struct pbox_hdr *h);
	/* A RESULT, PUSH_OK, WAIT, FETCHED or ERROR that may answer the type of the flight: is it of the version that
	 * the flight asks for? */
	bool (*answers)(const struct pbox_worker *w, const struct pbox_worker_table *t,
		const struct flight *fl, const struct pbox_hdr *h);
	/* The RESULT that did: what it says is retained (k, or NULL), and counted; */
	void (*result)(struct pbox_worker_table *t, struct frag *f, const struct pbox_hdr *h,
		struct retained *k, struct pbox_client_stats *count);
	/* the PUSH_OK, or NULL. */
	void (*pushed)(struct pbox_worker_table *t, struct frag *f, const struct pbox_hdr *h);
	/* What a WAIT says goes into the flight. */
	void (*wait)(const struct pbox_worker *w, struct flight *fl, const struct pbox_hdr *h);
	/* What a PULL brought is in the buffer of the piece: what is still to be done there. NULL: nothing. */
	void (*deliver)(
		const struct pbox_worker *w, struct pbox_worker_table *t, const struct piece *p);
	/* Whom a PULL waits for, as its WAIT has said; false: rounds know. NULL: always false. */
	bool (*why)(const struct pbox_worker *w, const struct pbox_worker_table *t,
		const struct flight *fl, char *text, size_t cap);
	/* WAIT without HAVE for a contribution that was sent once: can it be that the box takes none yet (R6.8)? */
	bool (*defers)(const struct pbox_worker_table *t, const struct frag *f);

	/* The version that RESTORE reports: the one that this worker retains, or a later one that it knows to be
	 * finished. */
	uint32_t (*version)(const struct pbox_worker_table *t, const struct frag *f);
	/* What RESTORE says of a fragment; true: its payload is retained, and can be given. */
	bool (*report)(const struct pbox_worker *w, const struct pbox_worker_table *t,
		const struct frag *f, struct pbox_hdr *h);
	/* The box has restored a version: what this worker has lost by that fails, or is counted. */
	void (*restored)(struct session *s, struct pbox_worker_table *t, struct frag *f,
		const struct pbox_restore_ok *m);
	/* The first round whose hyper-parameters a restarted box needs (R10.4). False: all do. */
	bool (*needs_from)(const struct pbox_worker_table *t, uint32_t *round);
};

/* worker_rounds.c: a version is the sum of one contribution of each worker (R6.1). */
extern const struct worker_discipline worker_rounds;
/* worker_clock.c: a version is one more push (section 14). */
extern const struct worker_discipline worker_clock;

#endif /* WORKER_DISCIPLINE_H */
