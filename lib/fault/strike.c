/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Which frames are lost, corrupted, cut short or marked: random draws of a seed for each fault. */

#include "fault.h"

void
fault_seed(struct pbox_fault_line *l)
{
	for (unsigned f = 0; f < FAULT_KINDS; f++) {
		uint64_t s = l->conf.seed ^ (l->stream | f) * UINT64_C(0xD6E8FEB86659FD93);

		l->rng[f] = fault_random(&s);
	}
	l->burst_left = 0;
	l->gilbert_bad = false;
	l->passed = 0;
}

static bool
matches(const struct pbox_fault_line *l, const void *frame)
{
	for (uint32_t t = 0; t < l->conf.target_terms; t++) {
		const struct pbox_fault_term *term = &l->conf.target[t];
		uint8_t copy[PBOX_FAULT_TERM_BYTES];
		const uint8_t *p = l->ops->read(frame, term->offset, term->len, copy);

		if (p == NULL)
			return false;
		for (uint32_t i = 0; i < term->len; i++)
			if ((p[i] & term->mask[i]) != term->value[i])
				return false;
	}
	return true;
}

/* The first so many over all lines of the direction. */
static bool
is_target(struct pbox_fault_line *l, const void *frame)
{
	uint32_t left;

	if (l->conf.target_first == 0 || !matches(l, frame))
		return false;
	left = __atomic_load_n(l->target_left, __ATOMIC_RELAXED);
	while (left > 0)
		if (__atomic_compare_exchange_n(l->target_left, &left, left - 1, true,
			    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
	return false;
}

enum pbox_fault_counter
fault_cause_of_death(struct pbox_fault_line *l, const void *frame)
{
	const struct pbox_fault_conf *c = &l->conf;

	if (c->blackhole)
		return PBOX_FAULT_N_blackholed;
	if (is_target(l, frame))
		return PBOX_FAULT_N_target_dropped;
	if (fault_strikes(l, FAULT_LOSS, c->loss))
		return PBOX_FAULT_N_lost;
	if (l->burst_left == 0 && fault_strikes(l, FAULT_BURST, c->burst))
		l->burst_left = c->burst_len;
	if (l->burst_left > 0) {
		l->burst_left--;
		return PBOX_FAULT_N_burst_lost;
	}
	if (c->gilbert_bad > 0) {
		if (fault_strikes(
			    l, FAULT_GILBERT, l->gilbert_bad ? c->gilbert_good : c->gilbert_bad))
			l->gilbert_bad = !l->gilbert_bad;
		if (l->gilbert_bad && fault_strikes(l, FAULT_GILBERT, c->gilbert_loss))
			return PBOX_FAULT_N_gilbert_lost;
	}
	return PBOX_FAULT_COUNTER_MAX;
}

static void
corrupt(struct pbox_fault_line *l, void **frame)
{
	uint32_t at = l->conf.corrupt_from, len = l->ops->length(*frame);
	uint8_t change = (uint8_t)(1 + fault_random_below(l, FAULT_CORRUPT, 255));

	if (at >= len)
		return;
	at += fault_random_below(l, FAULT_CORRUPT, len - at);
	fault_count(l,
		l->ops->corrupt(l->ctx, frame, at, change) == 0 ? PBOX_FAULT_N_corrupted
								: PBOX_FAULT_N_nombuf,
		1);
}

static void
cut_short(struct pbox_fault_line *l, void **frame)
{
	uint32_t min = l->conf.truncate_min > 0 ? l->conf.truncate_min : 1;
	uint32_t full = l->ops->length(*frame), len;

	len = fault_random_below(l, FAULT_TRUNCATE, full > min ? full - min : 1) + min;
	if (len >= full)
		return;
	fault_count(l,
		l->ops->truncate(l->ctx, frame, len) == 0 ? PBOX_FAULT_N_truncated
							  : PBOX_FAULT_N_nombuf,
		1);
}

/* What a switch does instead of losing a packet (RFC 3168). */
static void
mark(struct pbox_fault_line *l, void **frame)
{
	int ret = l->ops->mark(l->ctx, frame);

	if (ret != 0)
		fault_count(l, ret > 0 ? PBOX_FAULT_N_marked : PBOX_FAULT_N_nombuf, 1);
}

void *
fault_spoil(struct pbox_fault_line *l, void *frame)
{
	if (fault_strikes(l, FAULT_MARK, l->conf.mark))
		mark(l, &frame);
	if (fault_strikes(l, FAULT_CORRUPT, l->conf.corrupt))
		corrupt(l, &frame);
	if (fault_strikes(l, FAULT_TRUNCATE, l->conf.truncate))
		cut_short(l, &frame);
	return frame;
}
