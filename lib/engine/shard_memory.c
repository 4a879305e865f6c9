/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "shard_impl.h"

/* Place the arrays of n workers after the record; returns the size of all of it. */
static size_t
record_layout(struct pbox_record *r, unsigned n)
{
	size_t at = pbox_pad_line(sizeof(*r)), words = (n + 63u) / 64;
	uint8_t *base = (uint8_t *)r;

	if (r != NULL) {
		r->payload = (const void **)(void *)(base + at);
		r->from = (struct contribution *)(void *)(base + at + n * sizeof(void *));
		r->has = (uint64_t *)(void *)(r->from + n);
		r->want = r->has + words;
		r->expect = r->want + words;
	}
	return pbox_pad_line(at + n * (sizeof(void *) + sizeof(struct contribution)) +
			     3 * words * sizeof(uint64_t));
}

void
shard_job_quota(struct pbox_shard_job *j, const struct pbox_job_bounds *b)
{
	job_rate_set(&j->rate, b->rate, j->hold_share);
	j->repeat_ns = b->repeats != 0 ? 1000000000 / b->repeats : 0;
	j->request_ns = b->requests != 0 ? 1000000000 / b->requests : 0;
}

size_t
shard_job_arena(unsigned workers, uint32_t n_records, uint32_t n_acc, size_t acc_bytes)
{
	return n_records * record_layout(NULL, workers) + n_acc * pbox_pad_line(acc_bytes);
}

size_t
shard_job_heap(unsigned workers, unsigned peers)
{
	return sizeof(struct pbox_shard_job) + PBOX_MAX_TABLES * sizeof(void *) +
	       workers * (sizeof(struct shard_member) + peers * sizeof(struct shard_peer)) +
	       2 * ((workers + 63u) / 64) * sizeof(uint64_t);
}

struct pbox_shard_job *
shard_job_create(struct pbox_job *job, uint16_t shard, unsigned peers, uint32_t n_records,
	uint32_t hold_share, uint32_t n_acc, size_t acc_bytes, struct pbox_arena *arena)
{
	struct pbox_shard_job *j = calloc(1, sizeof(*j));

	if (j == NULL)
		return NULL;
	acc_bytes = pbox_pad_line(acc_bytes);
	j->job = job;
	j->shard = shard;
	j->tagged = job->auth != NULL ? PBOX_F_AUTH : 0;
	j->arena = arena;
	j->hold_share = hold_share;
	shard_job_quota(j, &job->conf->bounds);
	j->n_records = n_records;
	j->record_size = record_layout(NULL, job->workers);
	j->member = aligned_alloc(PBOX_CACHE_LINE, job->workers * sizeof(*j->member));
	j->peers = peers;
	j->peer = calloc((size_t)job->workers * peers, sizeof(*j->peer));
	j->table = calloc(PBOX_MAX_TABLES, sizeof(*j->table));
	j->expected = calloc((job->workers + 63u) / 64, sizeof(*j->expected));
	j->members = calloc((job->workers + 63u) / 64, sizeof(*j->members));
	j->record_mem = pbox_arena_alloc(arena, n_records * j->record_size);
	j->acc_mem = pbox_arena_alloc(arena, n_acc * acc_bytes);
	if (j->member == NULL || j->peer == NULL || j->table == NULL || j->record_mem == NULL ||
		(n_acc > 0 && j->acc_mem == NULL) || j->expected == NULL || j->members == NULL) {
		shard_job_free(j);
		return NULL;
	}
	memset(j->member, 0, job->workers * sizeof(*j->member));
	shard_members_all(j, j->expected);
	j->n_expected = job->workers;
	for (uint32_t i = n_records; i-- > 0;) {
		struct pbox_record *r = record_at(j, i);

		record_layout(r, job->workers);
		r->next = j->free_record;
		j->free_record = r;
	}
	for (uint32_t i = n_acc; i-- > 0;) {
		void **acc = (void **)(void *)((uint8_t *)j->acc_mem + i * acc_bytes);

		*acc = j->free_acc;
		j->free_acc = acc;
	}
	return j;
}

void
shard_job_free(struct pbox_shard_job *j)
{
	if (j == NULL)
		return;
	pbox_arena_free(j->arena, j->record_mem);
	pbox_arena_free(j->arena, j->acc_mem);
	for (unsigned i = 0; j->table != NULL && i < PBOX_MAX_TABLES; i++)
		free(j->table[i]);
	free(j->table);
	free(j->expected);
	free(j->members);
	free(j->member);
	free(j->peer);
	free(j);
}

size_t
shard_table_heap(const struct pbox_table *t, unsigned workers)
{
	return sizeof(struct pbox_shard_table) + rounds_discipline.bytes(t, workers);
}

struct pbox_shard_table *
shard_table_create(struct pbox_table *t, unsigned workers)
{
	struct pbox_shard_table *st = calloc(1, shard_table_heap(t, workers));

	if (st == NULL)
		return NULL;
	st->t = t;
	st->discipline = &rounds_discipline;
	memcpy(st->spare, t->spare, sizeof(st->spare));
	return st;
}
