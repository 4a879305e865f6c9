/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef RACKS_H
#define RACKS_H

/*
 * An upper box, the boxes of its racks, and their workers, in virtual time on a network that loses, repeats and reorders. Or one flat
 * box: then the workers are its own.
 */

#include <pbox_uplinks.h>

#define RACKS_MAX   4
#define WORKERS_MAX 16
#define SHARDS      2
#define US          UINT64_C(1000)
#define MS          UINT64_C(1000000)
#define SEC         UINT64_C(1000000000)

struct racks_conf {
	unsigned racks; /* 0: one flat box */
	unsigned workers, slots;
	unsigned loss; /* of 100 datagrams */
	uint64_t seed;
	const char *run;
};

struct box {
	bool up;
	unsigned number; /* 0: the upper one, or the flat one; i: of rack i - 1 */
	uint32_t incarnation;
	struct pbox_registrar *registrar;
	struct pbox_shard *shard[SHARDS];
	struct pbox_uplinks *uplinks;
	struct pbox_arena *arena;
	uint64_t rs[PBOX_RS_STATS], ss[SHARDS][PBOX_SS_STATS], heard;
	uint8_t *region;
};

struct peer {
	struct pbox_worker *w;
	struct pbox_worker_ops port;
	unsigned number, box;
	uint64_t due;
	bool may_fail;
};

struct racks {
	struct racks_conf conf;
	uint64_t now, tick, x;
	struct box box[1 + RACKS_MAX];
	struct peer peer[WORKERS_MAX];
	uint64_t datagrams, lost;
	uint64_t up_datagrams; /* to the upper box */
	char log[512];         /* the latest line of a box */
};
extern struct racks racks;

void racks_begin(const struct racks_conf *conf);
void racks_end(void);
/* The next thing that happens. */
void racks_step(void);
/* kill -9; and started again. */
void racks_crash(unsigned box);
void racks_start(unsigned box);
/* A worker's process is started again, with this number. */
void racks_worker_open(unsigned worker, const char *run);

#endif /* RACKS_H */
