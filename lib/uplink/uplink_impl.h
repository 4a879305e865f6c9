/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef UPLINK_IMPL_H
#define UPLINK_IMPL_H

#include <pbox_table.h>

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
	struct pbox_client_table what;
	struct pbox_worker_declaration d;
};

/* A sum on its way. */
struct uplink_flight {
	struct uplink_flight *next; /* of those that are free, or answered */
	struct pbox_up up;
	struct pbox_worker_op op; /* with one entry after it */
};

struct pbox_uplink {
	struct pbox_worker *w;
	unsigned racks;
	struct uplink_table **table; /* by number */
	uint32_t n_tables, asked;    /* asked: tables below it are mapped, or asked for */
	struct uplink_flight *free, *answered, **answered_tail;
	unsigned pending;
	bool failed, left;
	char error[600];
	struct pbox_worker_request leave;
	uint64_t leave_at;
};

/* fail.c: it ends, for good. */
void uplink_fail(struct pbox_uplink *u, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* table.c: ask for the next table, and look what has become of the one before; */
void uplink_tables_step(struct pbox_uplink *u);
void uplink_tables_free(struct pbox_uplink *u);
/* the tensor of a fragment. */
uint32_t uplink_tensor(const struct uplink_table *t, uint32_t chunk, unsigned frag);

#endif /* UPLINK_IMPL_H */
