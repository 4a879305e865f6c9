/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef OPERATIONS_H
#define OPERATIONS_H

/* What programs ask of their workers (operations.c), and the part of a program that works by plan (plans.c). */

#include <pbox_slots.h>

#include "sim.h"

const struct sim_table_spec *sim_table_spec_of(
	const struct sim *s, const struct sim_worker *w, unsigned table);
/* A contribution of the node (reference.c) that begins with slot k->slot and is `width` slots wide, or less at the end: its samples; bytes of a
 * piece of its sum along the tree. */
uint32_t sim_node_weight(const struct sim_scenario *sc, struct sim_push k, unsigned width);
void sim_node(const struct sim_scenario *sc, const struct sim_push *k, unsigned width,
	const struct sim_piece *p, uint8_t *out);
void sim_op_free(struct sim_op *o);
/* One operation on all tensors of a table. */
void sim_submit_table(struct sim *s, struct sim_worker *w, unsigned table,
	enum pbox_client_kind kind, uint32_t round);
/* The pushes and pulls of a round; again: it is that of the last push (R15.8). */
void sim_submit_round(
	struct sim *s, struct sim_worker *w, unsigned table, uint32_t round, bool again);
/* The payload is in w->payload; its answer will be in w->answer. */
void sim_request(struct sim *s, struct sim_worker *w, enum pbox_type type, size_t length);

/* True: the worker has something new to do. */
bool sim_plan_step(struct sim *s, struct sim_worker *w);
/* A question about plans has ended: true. */
bool sim_plan_replied(struct sim *s, struct sim_worker *w);
/* Is it a newcomer that waits for slots? */
bool sim_plan_enters(const struct sim_worker *w);
/* An operation has failed, or the worker: the others go on without it. False: they have no reason to. */
bool sim_plan_ends(struct sim *s, struct sim_worker *w, int code);

#endif /* OPERATIONS_H */
