/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SLOTS_H
#define SLOTS_H

/* A job whose workers bring nodes of the tree over its slots (R5.2b). */

#include <pbox_slots.h>

#include "fixture.h"

#define MS       UINT64_C(1000000)
#define ELEMENTS 16
#define WORKERS  8

struct datagram {
	uint8_t hdr[PBOX_HDR_LEN];
	uint8_t payload[4 * ELEMENTS];
};

extern struct fx_worker w[WORKERS];
extern unsigned n_workers, slots, seed;
/* What is computed for a slot. */
extern float value[PBOX_MAX_SLOTS][ELEMENTS];

unsigned chance(unsigned below);
void join_all(const char *job, unsigned workers, unsigned v);
void declare_all(uint32_t table, const struct fx_table *t);
void begin_with(const char *job, unsigned workers, unsigned v, const struct fx_table *t);
void begin(const char *job, unsigned workers, unsigned v);
void sum_of(float *dst, unsigned first, unsigned end, int gone);
bool push_at(unsigned i, enum pbox_type type, uint32_t chunk, uint16_t frag, uint32_t round,
	struct pbox_node n, bool late, bool damaged);
bool push(unsigned i, enum pbox_type type, uint32_t round, unsigned first, unsigned level);
bool late(unsigned i, uint16_t frag, uint32_t round, unsigned first, unsigned level, bool damaged);
unsigned nodes_of(unsigned i, struct pbox_node *n);
void bring(unsigned i, uint32_t chunk, uint16_t frag, uint32_t round);
void expect_result(uint32_t round, int gone);
void expect_wait(bool have, uint32_t base, unsigned there, uint32_t missing);
void ask(unsigned i, uint32_t round);

#endif /* SLOTS_H */
