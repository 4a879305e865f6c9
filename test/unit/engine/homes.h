/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef HOMES_H
#define HOMES_H

/* A job of two workers at one of three boxes, with a table of 12 chunks of one fragment (R16.9). */

#include "fixture.h"

#define MS UINT64_C(1000000)
#define F  352 /* elements of a fragment, and of a chunk */

extern const struct fx_table reduce;
extern struct fx_worker w[2];
extern float v[F], sum[F];  /* what a worker brings, and what comes of two */
extern uint8_t home[12];    /* of each chunk by the first map */
extern struct pbox_homes m; /* the answer to the last say() */

void begin(uint8_t box, const struct fx_table *t);
/* The first box, after a restart: both workers have joined it again. */
void join_again(void);
/* ... and restore the table. */
void begin_again(void);
uint32_t chunk_of(uint8_t box, unsigned n);
enum pbox_type say(unsigned worker, uint32_t chunk, uint8_t box, uint16_t epoch, uint16_t flags);
bool send(unsigned worker, enum pbox_type type, uint32_t chunk, uint32_t round, uint16_t epoch,
	uint16_t flags, const float *payload);
bool push(unsigned worker, uint32_t chunk, uint32_t round, uint16_t epoch);
/* What the command of pbox-agent answers: these are dead as well. */
uint64_t homes_take(unsigned box, uint16_t dead, bool only_try);

#endif /* HOMES_H */
