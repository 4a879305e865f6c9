/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A frame's way through the faults: duplicates, order, delay, a queue that overflows. */

#include <string.h>

#include "fault.h"

const char *const pbox_fault_counter_names[] = {
#define NAME(name) #name,
	PBOX_FAULT_COUNTERS(NAME)
#undef NAME
};

/* The ready ring: what leaves next. */

static inline uint32_t
ready_count(const struct pbox_fault_line *l)
{
	return l->ready_tail - l->ready_head;
}

static inline void
ready_put(struct pbox_fault_line *l, void *frame)
{
	l->ready[l->ready_tail++ % FAULT_READY] = frame;
}

static inline void
update_waiting(struct pbox_fault_line *l)
{
	__atomic_store_n(&l->waiting, l->n_held + l->n_delayed + ready_count(l), __ATOMIC_RELAXED);
}

static void
overflow(struct pbox_fault_line *l, void *frame)
{
	l->ops->drop(l->ctx, frame);
	fault_count(l, PBOX_FAULT_N_overflow, 1);
}

/* The heap of delayed frames. */

static inline bool
before(const struct fault_delayed *a, const struct fault_delayed *b)
{
	return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void
heap_put(struct pbox_fault_line *l, struct fault_delayed d)
{
	uint32_t i = l->n_delayed++;

	for (; i > 0 && before(&d, &l->delayed[(i - 1) / 2]); i = (i - 1) / 2)
		l->delayed[i] = l->delayed[(i - 1) / 2];
	l->delayed[i] = d;
}

static void *
heap_take(struct pbox_fault_line *l)
{
	void *frame = l->delayed[0].frame;
	struct fault_delayed last = l->delayed[--l->n_delayed];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < l->n_delayed) {
		if (child + 1 < l->n_delayed && before(&l->delayed[child + 1], &l->delayed[child]))
			child++;
		if (!before(&l->delayed[child], &last))
			break;
		l->delayed[i] = l->delayed[child];
		i = child;
	}
	l->delayed[i] = last;
	return frame;
}

static void
delay(struct pbox_fault_line *l, void *frame, uint64_t now)
{
	uint64_t us = l->conf.delay_us;

	if (l->conf.jitter_us > 0)
		us += fault_random_below(l, FAULT_DELAY, l->conf.jitter_us + 1);
	if (us == 0) {
		ready_put(l, frame);
		return;
	}
	if (l->n_delayed == l->limit || l->ops->keep(l->ctx, &frame) != 0) {
		overflow(l, frame);
		return;
	}
	heap_put(
		l, (struct fault_delayed){
			   .due = now + us * l->ticks_per_us, .order = l->order++, .frame = frame});
	fault_count(l, PBOX_FAULT_N_delayed, 1);
}

static void
reorder(struct pbox_fault_line *l, void *frame, uint64_t now)
{
	const struct pbox_fault_conf *c = &l->conf;
	uint32_t others;

	if (!fault_strikes(l, FAULT_REORDER, c->reorder)) {
		l->passed++;
		delay(l, frame, now);
		return;
	}
	others = 1 + fault_random_below(l, FAULT_REORDER, c->reorder_window);
	if (l->n_held == l->limit || l->n_held == PBOX_FAULT_WINDOW_MAX ||
		l->ops->keep(l->ctx, &frame) != 0) {
		overflow(l, frame);
		return;
	}
	l->held[l->n_held++] = (struct fault_held){.passed = l->passed + others,
		.due = now + c->reorder_us * l->ticks_per_us,
		.frame = frame};
	fault_count(l, PBOX_FAULT_N_reordered, 1);
}

/* Let go what has waited long enough, while @p reserve places of the ready ring stay free. */
static void
release_held(struct pbox_fault_line *l, uint64_t now, uint32_t reserve)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < l->n_held; i++) {
		struct fault_held h = l->held[i];

		if ((h.passed <= l->passed || h.due <= now) && pbox_fault_line_room(l) > reserve)
			delay(l, h.frame, now);
		else
			l->held[kept++] = h;
	}
	l->n_held = kept;
}

size_t
pbox_fault_line_size(uint32_t limit)
{
	return sizeof(struct pbox_fault_line) + (size_t)limit * sizeof(struct fault_delayed);
}

struct pbox_fault_line *
pbox_fault_line_init(void *memory, const struct pbox_fault_line_conf *conf)
{
	struct pbox_fault_line *l = memory;

	l->ops = conf->ops;
	l->ctx = conf->ctx;
	l->target_left = conf->target_left;
	l->ticks_per_us = conf->ticks_per_us;
	l->stream = (uint64_t)conf->dir << 32 | (uint64_t)conf->number << 8;
	l->limit = conf->limit;
	pbox_fault_conf_defaults(&l->conf);
	fault_seed(l);
	return l;
}

void
pbox_fault_line_set(struct pbox_fault_line *l, const struct pbox_fault_conf *conf)
{
	bool again = conf->reseed != l->conf.reseed;

	l->conf = *conf;
	l->active = pbox_fault_conf_active(conf);
	if (again)
		fault_seed(l);
}

void
pbox_fault_line_reset(struct pbox_fault_line *l)
{
	for (uint32_t i = 0; i < l->n_held; i++)
		l->ops->drop(l->ctx, l->held[i].frame);
	for (uint32_t i = 0; i < l->n_delayed; i++)
		l->ops->drop(l->ctx, l->delayed[i].frame);
	while (ready_count(l) > 0)
		l->ops->drop(l->ctx, l->ready[l->ready_head++ % FAULT_READY]);
	l->n_held = 0;
	l->n_delayed = 0;
	l->order = 0;
	update_waiting(l);
	fault_seed(l);
}

bool
pbox_fault_line_passive(const struct pbox_fault_line *l)
{
	return !l->active && l->n_held + l->n_delayed + ready_count(l) == 0;
}

uint32_t
pbox_fault_line_room(const struct pbox_fault_line *l)
{
	return FAULT_READY - ready_count(l);
}

void
pbox_fault_line_put(struct pbox_fault_line *l, void *frame, uint64_t now, uint32_t reserve)
{
	enum pbox_fault_counter cause = fault_cause_of_death(l, frame);
	void *copy = NULL;

	if (cause != PBOX_FAULT_COUNTER_MAX) {
		l->ops->drop(l->ctx, frame);
		fault_count(l, cause, 1);
	} else {
		if (fault_strikes(l, FAULT_DUP, l->conf.dup)) {
			copy = l->ops->copy(l->ctx, frame);
			fault_count(
				l, copy != NULL ? PBOX_FAULT_N_duplicated : PBOX_FAULT_N_nombuf, 1);
		}
		reorder(l, fault_spoil(l, frame), now);
		if (copy != NULL)
			reorder(l, fault_spoil(l, copy), now);
	}
	release_held(l, now, reserve);
}

void
pbox_fault_line_release(struct pbox_fault_line *l, uint64_t now)
{
	release_held(l, now, 0);
	while (l->n_delayed > 0 && l->delayed[0].due <= now && pbox_fault_line_room(l) > 0)
		ready_put(l, heap_take(l));
	update_waiting(l);
}

uint32_t
pbox_fault_line_ready(struct pbox_fault_line *l, void ***frames)
{
	uint32_t at = l->ready_head % FAULT_READY, n = ready_count(l);

	*frames = &l->ready[at];
	return n < FAULT_READY - at ? n : FAULT_READY - at;
}

void
pbox_fault_line_taken(struct pbox_fault_line *l, uint32_t n)
{
	l->ready_head += n;
	update_waiting(l);
}

uint32_t
pbox_fault_line_waiting(const struct pbox_fault_line *l)
{
	return __atomic_load_n(&l->waiting, __ATOMIC_RELAXED);
}

uint64_t
pbox_fault_line_count(const struct pbox_fault_line *l, enum pbox_fault_counter c)
{
	return __atomic_load_n(&l->n[c], __ATOMIC_RELAXED);
}

void
pbox_fault_line_add(struct pbox_fault_line *l, enum pbox_fault_counter c, uint64_t n)
{
	fault_count(l, c, n);
}
