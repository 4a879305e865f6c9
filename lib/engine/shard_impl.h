/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SHARD_IMPL_H
#define SHARD_IMPL_H

/* What the files of the shard share, and what the registrar allocates for it. */

#include <pbox_optim.h>

#include "error_rate.h"
#include "pbox_shard.h"

/* One worker of a job, as a shard sees it. */
struct shard_member {
	_Atomic uint64_t last_seen; /* ns; read by the registrar */
	bool ce;                    /* to be echoed with the next answer */
};

/*
 * The contributions of one fragment to the round in progress. The arrays, one entry a worker,
 * stand behind it in one piece of memory (round_layout).
 */
struct pbox_round {
	struct pbox_round *next; /* free list */
	float *acc;              /* sum of workers 0 .. folded-1, or NULL */
	uint16_t arrived, folded;
	bool open;
	void **handle;
	const void **payload; /* NULL: all zeros */
	uint32_t *weight, *ts, *at_us;
	uint64_t *has, *want; /* bitmaps: contributed; wants the result */
};

struct pbox_shard_job {
	struct pbox_job *job;
	uint16_t shard;
	struct shard_member *member;
	/* Where a worker's frames to each endpoint of the shard come from: its answers leave through
	 * the port of the chunk, to the worker's address there. */
	struct pbox_peer *peer;
	unsigned peers;                  /* of one worker */
	struct pbox_shard_table **table; /* PBOX_MAX_TABLES */
	struct pbox_round *free_round;
	uint8_t *round_mem;
	size_t round_size;
	uint32_t n_rounds;
	void *free_acc; /* list through the first word */
	uint32_t held, hold_share;
	struct pbox_arena *arena; /* of round_mem and acc_mem */
	void *acc_mem;
};

/* Scalars of one group, derived once a round; two, because fragments may be one round apart. */
struct shard_group {
	uint32_t round, sets; /* sets: length of the schedule they were derived from */
	bool valid, has_lr;
	float clip;
	struct pbox_optim_scalars k;
};

struct pbox_shard_table {
	struct pbox_table *t;
	_Atomic uint32_t max_round; /* highest finished one; read by the registrar */
	struct shard_group group[][2];
};

struct pbox_shard {
	struct pbox_shard_conf conf;
	struct pbox_shard_job **job; /* max_jobs, by number */
	uint64_t *stats;
	float *weight; /* PBOX_MAX_WORKERS: factors of one sum */
	uint64_t now_ns;
	struct error_rate error_rate;
	bool own_endpoint[PBOX_MAX_ENDPOINTS];
	uint8_t own_index[PBOX_MAX_ENDPOINTS]; /* among the shard's own */
};

/* Where a frame goes, after all checks but those of the round. */
struct target {
	struct pbox_shard_job *j;
	struct pbox_shard_table *st;
	struct pbox_chunk *c;
	struct pbox_slot *slot;
	uint32_t elements; /* of the fragment */
};

static inline struct pbox_peer *
peer_of(const struct pbox_shard *s, const struct target *g, unsigned worker)
{
	return &g->j->peer[worker * g->j->peers + s->own_index[g->c->endpoint]];
}

static inline bool
bit_get(const uint64_t *map, unsigned i)
{
	return map[i / 64] >> i % 64 & 1;
}

static inline void
bit_set(uint64_t *map, unsigned i)
{
	map[i / 64] |= UINT64_C(1) << i % 64;
}

static inline void
bit_clear(uint64_t *map, unsigned i)
{
	map[i / 64] &= ~(UINT64_C(1) << i % 64);
}

static inline void
count(struct pbox_shard *s, enum pbox_shard_stat what)
{
	pbox_stat_add(&s->stats[what], 1);
}

/* In mode 1 a fragment without parameters takes nothing and gives nothing. */
static inline bool
initialised(const struct target *g)
{
	return g->st->t->mode == PBOX_MODE_ALLREDUCE || g->slot->has_result;
}

/* Memory of one job's rounds (shard_memory.c); the registrar calls these. */
struct pbox_shard_job *shard_job_create(struct pbox_job *job, uint16_t shard, unsigned peers,
	uint32_t n_rounds, uint32_t hold_share, size_t acc_bytes, struct pbox_arena *arena);
void shard_job_free(struct pbox_shard_job *j);
struct pbox_shard_table *shard_table_create(struct pbox_table *t);

/* Rounds (shard_round.c). */
struct pbox_round *shard_round_open(
	struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_slot *slot);
void shard_round_close(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_slot *slot);
bool shard_contribute(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
void shard_initialise(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
void shard_drop_rounds(struct pbox_shard *s, struct pbox_shard_job *j);

/* Answers (shard_answer.c). ts_of: the frame whose ts is echoed. */
void shard_send_result(struct pbox_shard *s, const struct target *g, uint32_t chunk, uint16_t frag,
	unsigned worker, uint32_t ts, uint32_t held_us);
void shard_send_wait(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
void shard_send_plain(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f,
	enum pbox_type type);
void shard_send_error(struct pbox_shard *s, const struct pbox_frame *f, enum pbox_errcode code);
void shard_send_pong(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f);

#endif /* SHARD_IMPL_H */
