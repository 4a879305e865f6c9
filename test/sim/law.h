/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef LAW_H
#define LAW_H

#include "sim.h"

/*
 * What must hold for the fragments of a table: one law for each discipline, in files of its own. A law sees what reaches
 * the box and what leaves it, and what completes at a worker; it computes what must be, fails the run with sim_fail(), and
 * says with progress_at that something has moved. It uses nothing of lib/shard, lib/registrar and lib/worker but the layout of
 * structures.
 */
struct sim_law {
	const char *name;
	/* A contribution of a session that there is reaches the box; it may be damaged, and the box may not know that yet. */
	void (*contribution)(struct sim *s, unsigned job, struct sim_fragment *f,
		const struct pbox_hdr *h, const uint8_t *payload, bool intact);
	/* A PULL of such a session does. NULL: that is of no interest. */
	void (*asked)(
		struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h);
	/* The box answers RESULT; WAIT; PUSH_OK. */
	void (*result)(
		struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_send *out);
	void (*wait)(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h);
	void (*pushed)(
		struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h);
	/* The memory of a RESULT has changed before it was read. */
	void (*overwritten)(
		struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h);
	/* The program has got the bytes of a piece. */
	void (*completed)(struct sim *s, const struct sim_worker *w, const struct sim_op *o,
		const struct sim_piece *p, const uint8_t *got);
	/* All workers have done their rounds: add to what the box must have counted. */
	void (*end)(struct sim *s, unsigned job, const struct sim_fragment *f);
	/* A snapshot is written; is loaded (false: there is none); another run begins. */
	void (*keep)(struct sim *s, unsigned job, struct sim_fragment *f);
	bool (*load)(struct sim *s, unsigned job, struct sim_fragment *f, struct pbox_table *t,
		struct pbox_chunk *c);
	void (*forget)(struct sim_fragment *f);
	/* After a restart: RESTORE reaches the box; it answers RESTORE_OK. */
	void (*told)(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
		const uint8_t *payload);
	void (*restored)(
		struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h);
};

/* Rounds (law_rounds.c, law_rounds_restart.c, law_slots.c). */
extern const struct sim_law sim_law_rounds;
/* The same by plan (law_plan.c). */
extern const struct sim_law sim_law_plan;
/* Clocks (law_clock.c). */
extern const struct sim_law sim_law_clock;

/* The slots of a contribution; false: it names no node that its worker may bring. */
bool slots_of_frame(
	const struct sim_job_spec *spec, const struct pbox_hdr *h, unsigned *first, unsigned *end);
void slots_contribution(struct sim *s, unsigned job, struct sim_fragment *f,
	const struct pbox_hdr *h, const uint8_t *payload, bool intact);
/* Has the box heard of contributions to this round, for all these slots? */
bool slots_opened(const struct sim_fragment *f, unsigned first, unsigned end, uint32_t round);
/* Whatever came intact was taken: nothing in this run makes the box refuse it. */
bool slots_all_taken(
	const struct sim *s, unsigned job, const struct sim_fragment *f, uint32_t round);
void slots_wait(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h);
void slots_pushed(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h);
/* Nodes that a round of it is made of. */
unsigned slots_nodes(const struct sim_fragment *f);
/* From now on no contribution to a round after this one has come. */
void slots_reset(struct sim_fragment *f, uint32_t round);

void rounds_keep(struct sim *s, unsigned job, struct sim_fragment *f);
bool rounds_load(struct sim *s, unsigned job, struct sim_fragment *f, struct pbox_table *t,
	struct pbox_chunk *c);
void rounds_forget(struct sim_fragment *f);
void rounds_told(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload);
/* The reference goes on from version v as a worker has given it, without the optimiser's state. */
void rounds_from_worker(struct sim *s, unsigned job, struct sim_fragment *f, uint32_t v);
/* Has a box more of it than workers have (R16.13)? */
bool rounds_has_more(const struct sim *s, unsigned job, const struct sim_fragment *f);
void rounds_note_given(struct sim_fragment *f, const struct pbox_hdr *h, const uint8_t *payload);
void rounds_restored(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h);
/* Has the box heard nothing of it in its session for a lease? Then it may have ended that (R10.7). */
bool sim_restart_may_end(const struct sim *s, unsigned job, unsigned w);

#endif /* LAW_H */
