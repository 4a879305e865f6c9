/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef ROUNDS_H
#define ROUNDS_H

/*
 * The discipline of rounds: version r + 1 of a fragment is made when each worker that is waited for has
 * contributed to round r + 1. What its files share.
 */

#include "shard_slots.h"

/* Scalars of one group, derived once a round; two, because fragments may be one round apart. */
struct rounds_group {
	uint32_t round, sets; /* sets: length of the schedule they were derived from */
	bool valid, has_lr, maximize, plain;
	float clip;
	struct pbox_optim_scalars k;
};

/* Does the round wait for nobody to bring the slot? */
static inline bool
is_extra(const struct pbox_record *r, unsigned slot)
{
	return r->round.partial && !pbox_bit_get(r->expect, slot);
}

/* How many slots are beyond those that the round waits for: all of a worker are, or none. */
static inline unsigned
n_extra(const struct pbox_record *r, struct slots n)
{
	return is_extra(r, n.first) ? n.n : 0u;
}

/* The contribution that begins with slot `first`. */
static inline struct slots
slots_at(const struct pbox_shard_job *j, const struct pbox_record *r, unsigned first)
{
	unsigned level = r->from[first].level, end = first + (1u << level);

	return (struct slots){.first = (uint16_t)first,
		.n = (uint16_t)((end < j->slots ? end : j->slots) - first),
		.level = (uint16_t)level,
		.named = j->named};
}

/* Its slots are there now, or not any more. */
static inline __attribute__((always_inline)) void
slots_come(struct pbox_record *r, struct slots n)
{
	if (n.named) {
		bits_set(r->has, n.first, n.first + n.n);
		pbox_bit_set(r->nodes, n.first);
	} else {
		pbox_bit_set(r->has, n.first);
	}
	r->arrived += n.n;
	r->round.need += n_extra(r, n);
}

static inline void
slots_go(struct pbox_record *r, struct slots n)
{
	bits_clear(r->has, n.first, n.first + n.n);
	if (n.named)
		pbox_bit_clear(r->nodes, n.first);
	r->arrived -= n.n;
	r->round.need -= n_extra(r, n);
}

/* How many contributions the slots that are there came with. */
static inline unsigned
rounds_contributions(const struct pbox_shard_job *j, const struct pbox_record *r)
{
	return j->named ? bits_count(r->nodes, 0, j->slots) : r->arrived;
}

/* rounds.c */
void rounds_close(struct pbox_shard *s, const struct target *g);
/* rounds_pace.c: complete rounds of a job with a rate */
bool rounds_pace(struct pbox_shard *s, const struct target *g);
/* Out of the line: it is closed before its time; all of the job's. */
void rounds_pace_remove(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_record *r);
void rounds_pace_clear(struct pbox_shard *s, struct pbox_shard_job *j);
/* A round is complete: it ends with this burst, or when the job's rate has room for it. */
static inline void
rounds_complete(struct pbox_shard *s, const struct target *g)
{
	if (__builtin_expect(g->j->rate.interval == 0, 1) || !rounds_pace(s, g))
		s->ready[s->n_ready++] = *g;
}

/* rounds_sum.c: in a job with slots a round enters the line with its first contribution. */
void rounds_line_enter(struct pbox_shard_job *j, struct pbox_record *r);
void rounds_line_leave(struct pbox_shard_job *j, struct pbox_record *r);
/* The first of j->free_acc; NULL: there is none for this round. */
void *rounds_free_acc(const struct pbox_shard_job *j, const struct pbox_record *r);

/* rounds_wait.c: the discipline's; and are all slots of the worker there? */
void rounds_missing(const struct target *g, uint64_t *set);
void rounds_wait_says(const struct target *g, unsigned worker, struct pbox_hdr *h);
bool rounds_has_brought(const struct target *g, unsigned worker);
void rounds_push_ok(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);

/* rounds_sum.c */
/* The contribution that begins with this slot counts no more. */
void rounds_drop_node(struct pbox_shard *s, const struct target *g, unsigned slot);
void rounds_fold(struct pbox_shard *s, const struct target *g);
/* Give back the sums of the folded nodes that begin with slot `first` or after it. */
void rounds_unfold(struct pbox_shard_job *j, struct pbox_record *r, unsigned first);
bool rounds_verify(struct pbox_shard *s, const struct target *g, unsigned first, unsigned end);
void rounds_burst(struct pbox_shard *s, const struct target *g, const struct target *next);
/* Give back the packets of slots first .. end-1. */
void rounds_release(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_record *r,
	unsigned first, unsigned end);

/* rounds_up.c: a rack's sums. */
/* Where the sum of the record's round is. */
static inline float *
up_value(const struct pbox_shard_job *j, struct pbox_record *r)
{
	return (float *)(void *)((uint8_t *)r + j->record_size - j->up_bytes);
}
/* It is made: to the upper box with it. */
void rounds_up(struct pbox_shard *s, const struct target *g, uint64_t samples);
/* Those for which there was no room, in order; how many have gone. */
unsigned rounds_up_again(struct pbox_shard *s);
/* The record closes before an answer has come: it is in no line. */
void rounds_up_remove(struct pbox_shard *s, struct pbox_record *r);
/* rounds_sum.c: the answer is the fragment's next version. */
void rounds_down(struct pbox_shard *s, const struct target *g, const struct pbox_up *up);

/* rounds_scalars.c */
struct rounds_group *rounds_scalars(struct pbox_shard_table *st, unsigned group, uint32_t round);

/* rounds_restore.c */
void rounds_report(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
enum discipline_cut rounds_at_cut(
	const struct pbox_fragment *fragment, const struct pbox_staging *staging);
/* The highest version that a restorer holds; all have reported. */
uint32_t rounds_highest(const struct target *g);

/* rounds_carry.c */
/* Nobody has reported yet; or a worker names another source (RESTORE) than in its report before. */
void rounds_carry_begin(const struct target *g);
void rounds_carry_report(const struct target *g, unsigned worker, uint32_t source);
/* All have reported, and somebody can bring what the fragment's former home has: one is asked to. f: the last report, or NULL. */
void rounds_carry_ask(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
/* Can somebody? */
bool rounds_may_be_carried(const struct target *g);
/* The fragment goes on without that: count it. */
void rounds_carry_none(const struct target *g);
/* What RESTORE_OK says of that. */
void rounds_done(const struct target *g, unsigned worker, struct pbox_restore_ok *m);
void rounds_bring(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);

#endif /* ROUNDS_H */
