/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef WORLD_H
#define WORLD_H

/*
 * What is around workers in test_engine.c: virtual time, a network that loses nothing, and the engine as the box, which
 * can crash.
 */

#include <pbox_registrar.h>
#include <pbox_shard.h>

#define WORLD_WORKERS 5
#define SHARDS        2
#define US            UINT64_C(1000)
#define MS            UINT64_C(1000000)
#define SEC           UINT64_C(1000000000)
#define CONTROL       7269

#define WORLD_BEGIN (1000 * SEC)

struct packet {
	struct packet *next;
	uint64_t at;
	unsigned worker, port; /* port: of the box that it goes to; 0: to the worker */
	uint16_t from;         /* port of the box that it comes from */
	uint32_t len;
	uint8_t data[];
};

struct world {
	uint64_t now, x, incarnation;
	bool tags;
	bool steady;        /* the network reorders nothing */
	struct packet *net; /* by time */
	struct pbox_registrar *registrar;
	struct pbox_shard *shard[SHARDS];
	uint64_t rs[PBOX_RS_STATS], ss[SHARDS][PBOX_SS_STATS], heard;
	struct pbox_arena *arena;
	bool up;
};

extern struct world world;

uint64_t world_draw(void);
void world_begin(bool tags);
void world_end(void);
/** To a port of the box, or with @p port 0 from one to the worker. */
void world_post(unsigned worker, unsigned port, uint16_t from, const uint8_t *data, uint32_t len);
void world_box_start(void);
/** As kill -9 would. */
void world_box_crash(void);
void world_box_datagram(const struct packet *p);
void world_box_tick(void);

#endif /* WORLD_H */
