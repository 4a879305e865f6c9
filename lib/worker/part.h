/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PART_H
#define PART_H

/*
 * What a worker has beside its sessions and the data of its tables is in parts, each with its own state and files: worker.c, lane.c and
 * session.c call them all, in the order of worker.c's table, and know none by name: calls go by that table, so that no file needs one above it. A member that is NULL has nothing to do.
 *
 * All locks are held; see `struct lane`.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pbox_hdr;
struct pbox_worker;
struct pbox_worker_table;
struct rx_frame;
struct session;

struct worker_part {
	const char *name;
	void (*begin)(struct pbox_worker *w);
	/** The worker is destroyed. */
	void (*end)(struct pbox_worker *w);
	/** A sound frame of an open session has come. */
	void (*heard)(struct session *s, const struct pbox_hdr *h);
	/** One of its types that is no answer. False: it is not for this part. */
	bool (*frame)(struct session *s, const struct rx_frame *f);
	/** After the sessions' own, and before operations become fragments. @p drained as pbox_worker_tick() */
	void (*tick)(struct pbox_worker *w, uint64_t drained);
	uint64_t (*due)(const struct pbox_worker *w);
	/** May lanes go on by themselves? */
	bool (*steady)(const struct pbox_worker *w);
	/** The worker has failed or was shut: what hosts wait for ends. */
	void (*fail)(struct pbox_worker *w);
	/** An operation of the table waits for this part: why, in words. */
	bool (*why)(const struct pbox_worker *w, const struct pbox_worker_table *t, char *text,
		size_t cap);
};

extern const struct worker_part boxes_part;
extern const struct worker_part homes_part;
extern const struct worker_part carry_part;
extern const struct worker_part plan_part;
extern const struct worker_part norm_part;

/** @p part  all of them, then NULL */
void part_begin(struct pbox_worker *w, const struct worker_part *const *part);
void part_end(struct pbox_worker *w);
void part_heard(struct session *s, const struct pbox_hdr *h);
bool part_frame(struct session *s, const struct rx_frame *f);
void part_tick(struct pbox_worker *w, uint64_t drained);
uint64_t part_due(const struct pbox_worker *w);
bool part_steady(const struct pbox_worker *w);
void part_fail(struct pbox_worker *w);
bool part_why(
	const struct pbox_worker *w, const struct pbox_worker_table *t, char *text, size_t cap);

#endif /* PART_H */
