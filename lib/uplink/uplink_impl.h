/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef UPLINK_IMPL_H
#define UPLINK_IMPL_H

#include <pbox_table.h>
#include <pbox_wire.h>

#include "pbox_uplink.h"

/* A table of the rack. */
struct uplink_table {
	enum { TABLE_NONE, TABLE_WAITS, TABLE_ASKED, TABLE_MAPPED, TABLE_REFUSED } state;
	bool restored;
	uint8_t op;
	uint32_t number, frag_elements, n;
	uint32_t n_chunks, *first; /* of each chunk: the tensor of its first fragment */
	uint64_t *begun;           /* bitmap: tensors that were pushed */
	struct pbox_client_tensor *tensor;
	/* what its workers declare: racks whose workers declare otherwise do not go together */
	char meaning[64];
	struct pbox_client_table what;
	struct pbox_worker_declaration d;
};

/* A sum on its way. */
struct uplink_flight {
	struct uplink_flight *next; /* of those that are free, answered, or wait */
	struct pbox_up up;
	struct pbox_worker_op op; /* with one entry after it */
};

struct pbox_uplink {
	struct pbox_worker *w;
	unsigned rack, racks;
	struct uplink_table **table; /* by number */
	uint32_t n_tables, asked;    /* asked: tables below it are mapped, or asked for */
	struct uplink_flight *free, *answered, **answered_tail, *waiting, **waiting_tail;
	unsigned pending;
	bool failed, left, was_member;
	char error[600];
	struct pbox_worker_request leave;
	/* eyes.c: the question that is under way, and what the last answer said */
	struct {
		struct pbox_worker_request status;
		uint8_t payload[PBOX_STATUS_RACK_MAX], answer[1500];
		bool asked;
		int about; /* the rack that it asks for; -1: none */
		uint64_t next_ns;
		char says[256];
		struct pbox_uplink_view seen;
	} eyes;
	uint64_t leave_at;
};

/* fail.c: it ends, for good. */
void uplink_fail(struct pbox_uplink *u, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* eyes.c: say what the rack waits for, and ask whom the upper box waits for; when to do that again. */
uint64_t uplink_eyes_step(struct pbox_uplink *u, uint64_t now);
/* True: it was the answer to that. */
bool uplink_eyes_answer(struct pbox_uplink *u, struct pbox_worker_request *r, uint64_t now);

/* table.c: ask for the next table, and look what has become of the one before; */
void uplink_tables_step(struct pbox_uplink *u);
void uplink_tables_free(struct pbox_uplink *u);
/* the tensor of a fragment. */
uint32_t uplink_tensor(const struct uplink_table *t, uint32_t chunk, unsigned frag);

#endif /* UPLINK_IMPL_H */
