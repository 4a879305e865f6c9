/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include "pbox_table.h"

/* Rounds by which a SET may run ahead of the work: farther ones would seem to be of the past to a
 * fragment that lags. */
#define AHEAD (1 << 30)

/* After the largest count: the same place in the ring, and no entry of it is the first one. */
#define AFTER_LARGEST (2 * PBOX_SCHEDULE)
_Static_assert((UINT64_C(1) << 32) % PBOX_SCHEDULE == 0, "a count that wraps keeps its place");

static int
schedule_refuse(struct pbox_error *err, int code, const struct pbox_set *m, const char *text)
{
	pbox_fail(err, code, "SET of group %u of table %u from round %u on: %s", m->group, m->table,
		m->from_round, text);
	return code;
}

static inline uint32_t
count_after(uint32_t count)
{
	return count == UINT32_MAX ? AFTER_LARGEST : count + 1;
}

static inline uint32_t
from_of(const struct pbox_schedule_entry *e)
{
	return atomic_load_explicit(&e->from_round, memory_order_relaxed);
}

/*
 * Which of m's hyper-parameters were already set for just this round: 0 with bits in *done, or
 * PBOX_E_SET_CONFLICT for a different value.
 */
static int
find_repeated(struct pbox_schedule *s, uint32_t count, const struct pbox_set *m, uint32_t *done,
	struct pbox_error *err)
{
	uint32_t used = count < PBOX_SCHEDULE ? count : PBOX_SCHEDULE;

	*done = 0;
	for (uint32_t k = 0; k < used; k++) {
		struct pbox_schedule_entry *e = &s->entry[(count - 1 - k) % PBOX_SCHEDULE];

		for (unsigned i = 0; from_of(e) == m->from_round && i < m->count; i++) {
			unsigned id = m->param[i].id;

			if ((e->set & 1u << id) == 0 || (*done & 1u << id) != 0)
				continue;
			if (*pbox_hyper_at(&e->hyper, id) != m->param[i].value) {
				char text[128];

				snprintf(text, sizeof(text),
					"%s is %.9g here, and %.9g by another worker, or an earlier SET",
					pbox_hyper_name(id), m->param[i].value,
					*pbox_hyper_at(&e->hyper, id));
				return schedule_refuse(err, PBOX_E_SET_CONFLICT, m, text);
			}
			*done |= 1u << id;
		}
	}
	return 0;
}

/* Does the entry that the next one overwrites hold for the next round of some fragment? */
static bool
oldest_needed(const struct pbox_schedule *s, uint32_t count, const struct pbox_finished *finished)
{
	const struct pbox_schedule_entry *successor = &s->entry[(count + 1) % PBOX_SCHEDULE];

	if (count < PBOX_SCHEDULE)
		return false;
	return !finished->known || pbox_serial_diff(from_of(successor), finished->lowest + 1) > 0;
}

/* All checks, and the entry to append; none (*repeated) where m says nothing new. */
static int
schedule_prepare(struct pbox_schedule *s, enum pbox_optimiser kind, const struct pbox_set *m,
	const struct pbox_finished *finished, struct pbox_schedule_entry *fresh, bool *repeated,
	struct pbox_error *err)
{
	uint32_t count = atomic_load_explicit(&s->count, memory_order_relaxed), done, want = 0;
	const struct pbox_schedule_entry *last = &s->entry[(count - 1) % PBOX_SCHEDULE];
	const char *wrong;
	int ret;

	*fresh = *last;
	for (unsigned i = 0; i < m->count; i++) {
		if (pbox_hyper_at(&fresh->hyper, m->param[i].id) == NULL)
			return schedule_refuse(
				err, PBOX_E_BAD_REQUEST, m, "unknown hyper-parameter");
		want |= 1u << m->param[i].id;
	}
	ret = find_repeated(s, count, m, &done, err);
	*repeated = ret == 0 && done == want;
	if (ret != 0 || *repeated)
		return ret;
	if (pbox_serial_diff(m->from_round, finished->highest) <= 0)
		return schedule_refuse(err, PBOX_E_SET_LATE, m,
			"that round is already finished: set it for a later one. A worker that goes on from its checkpoint leaves it out, as what it had set holds");
	/* the first entry is what holds without a SET, from no round */
	if (count > 1 && pbox_serial_diff(m->from_round, from_of(last)) < 0)
		return schedule_refuse(
			err, PBOX_E_SET_ORDER, m, "an earlier SET holds from a later round on");
	if (pbox_serial_diff(m->from_round, finished->highest) > AHEAD)
		return schedule_refuse(
			err, PBOX_E_FULL, m, "too many rounds ahead of the latest finished one");
	if (oldest_needed(s, count, finished))
		return schedule_refuse(err, PBOX_E_FULL, m,
			"the box keeps 64 SETs of a group, and parts of the table have not finished the rounds of the oldest ones: name several hyper-parameters in one, or set them later");
	for (unsigned i = 0; i < m->count; i++)
		*pbox_hyper_at(&fresh->hyper, m->param[i].id) = m->param[i].value;
	if ((want & 1u << PBOX_HYPER_LR) != 0)
		fresh->hyper.has_lr = 1;
	wrong = pbox_hyper_check(&fresh->hyper, kind);
	if (wrong != NULL)
		return schedule_refuse(err, PBOX_E_BAD_REQUEST, m, wrong);
	fresh->from_round = m->from_round;
	fresh->set = want;
	return 0;
}

int
pbox_schedule_check(struct pbox_schedule *s, enum pbox_optimiser kind, const struct pbox_set *m,
	const struct pbox_finished *finished, struct pbox_error *err)
{
	struct pbox_schedule_entry fresh;
	bool repeated;

	return schedule_prepare(s, kind, m, finished, &fresh, &repeated, err);
}

int
pbox_schedule_add(struct pbox_schedule *s, enum pbox_optimiser kind, const struct pbox_set *m,
	const struct pbox_finished *finished, struct pbox_error *err)
{
	uint32_t count = atomic_load_explicit(&s->count, memory_order_relaxed);
	struct pbox_schedule_entry fresh;
	bool repeated;
	int ret = schedule_prepare(s, kind, m, finished, &fresh, &repeated, err);

	if (ret != 0 || repeated)
		return ret;
	PBOX_ASSERT(count > 0); /* the first entry is what holds without a SET */
	s->entry[count % PBOX_SCHEDULE] = fresh;
	atomic_store_explicit(&s->count, count_after(count), memory_order_release);
	return 0;
}

/* Values that an entry did not set come from the one before it. */
static void
inherit(struct pbox_schedule_entry *e, const struct pbox_schedule_entry *before)
{
	struct pbox_hyper own = e->hyper;

	e->hyper = before->hyper;
	for (unsigned id = 1; id < PBOX_HYPER_IDS; id++)
		if ((e->set & 1u << id) != 0)
			*pbox_hyper_at(&e->hyper, id) = *pbox_hyper_at(&own, id);
	e->hyper.has_lr |= (e->set & 1u << PBOX_HYPER_LR) != 0;
}

/* Put m into s, which is a copy. */
static int
insert(struct pbox_schedule *s, enum pbox_optimiser kind, const struct pbox_set *m,
	struct pbox_error *err)
{
	uint32_t n = atomic_load_explicit(&s->count, memory_order_relaxed), at = n, done;
	struct pbox_schedule_entry *e;
	const char *wrong;
	int ret = find_repeated(s, n, m, &done, err);

	if (ret != 0)
		return ret;
	while (at > 1 && pbox_serial_diff(from_of(&s->entry[at - 1]), m->from_round) > 0)
		at--;
	if (at == 1 || from_of(&s->entry[at - 1]) != m->from_round) {
		if (n >= PBOX_SCHEDULE)
			return schedule_refuse(err, PBOX_E_FULL, m, "too many SETs to restore");
		memmove(&s->entry[at + 1], &s->entry[at], (n - at) * sizeof(s->entry[0]));
		s->entry[at] = (struct pbox_schedule_entry){.from_round = m->from_round};
		atomic_store_explicit(&s->count, ++n, memory_order_relaxed);
		at++;
	}
	e = &s->entry[at - 1];
	for (unsigned i = 0; i < m->count; i++) {
		*pbox_hyper_at(&e->hyper, m->param[i].id) = m->param[i].value;
		e->set |= 1u << m->param[i].id;
	}
	for (uint32_t i = at - 1; i < n; i++) {
		inherit(&s->entry[i], &s->entry[i - 1]);
		/* what belongs together may come from two workers, one after the other */
		wrong = pbox_hyper_check_part(&s->entry[i].hyper, kind);
		if (wrong != NULL)
			return schedule_refuse(err, PBOX_E_BAD_REQUEST, m, wrong);
	}
	return 0;
}

int
pbox_schedule_restore(struct pbox_schedule *s, enum pbox_optimiser kind, const struct pbox_set *m,
	struct pbox_error *err)
{
	uint32_t n = atomic_load_explicit(&s->count, memory_order_relaxed);
	struct pbox_schedule copy;
	int ret;

	for (unsigned i = 0; i < m->count; i++)
		if (pbox_hyper_at(&copy.entry[0].hyper, m->param[i].id) == NULL)
			return schedule_refuse(
				err, PBOX_E_BAD_REQUEST, m, "unknown hyper-parameter");
	if (n > PBOX_SCHEDULE) /* a table that begins has no history */
		return schedule_refuse(err, PBOX_E_FULL, m, "too many SETs to restore");
	memcpy(copy.entry, s->entry, sizeof(copy.entry));
	atomic_init(&copy.count, n);
	ret = insert(&copy, kind, m, err);
	if (ret != 0)
		return ret;
	memcpy(s->entry, copy.entry, sizeof(copy.entry));
	n = atomic_load_explicit(&copy.count, memory_order_relaxed);
	atomic_store_explicit(&s->count, n, memory_order_release);
	return 0;
}

void
pbox_schedule_age(struct pbox_schedule *s, uint32_t lowest)
{
	uint32_t count = atomic_load_explicit(&s->count, memory_order_relaxed);
	uint32_t used = count < PBOX_SCHEDULE ? count : PBOX_SCHEDULE;
	uint32_t old = lowest - PBOX_SCHEDULE_AGE;

	/* of those that then hold from the same round on the latest is still found first */
	for (uint32_t k = used; k > 0; k--) {
		struct pbox_schedule_entry *e = &s->entry[(count - k) % PBOX_SCHEDULE];
		bool first = k == used && count <= PBOX_SCHEDULE; /* of no round */

		if (first || pbox_serial_diff(from_of(e), old) < 0)
			atomic_store_explicit(&e->from_round, old, memory_order_relaxed);
	}
}

bool
pbox_schedule_reaches(const struct pbox_schedule *s, uint32_t round)
{
	uint32_t count = atomic_load_explicit(&s->count, memory_order_acquire);

	return count <= PBOX_SCHEDULE ||
	       pbox_serial_diff(from_of(&s->entry[count % PBOX_SCHEDULE]), round) <= 0;
}

bool
pbox_schedule_exact(const struct pbox_schedule *s, uint32_t round, unsigned id, double *value)
{
	uint32_t count = atomic_load_explicit(&s->count, memory_order_acquire);
	uint32_t used = count < PBOX_SCHEDULE ? count : PBOX_SCHEDULE;

	for (uint32_t k = 0; k < used; k++) {
		const struct pbox_schedule_entry *e = &s->entry[(count - 1 - k) % PBOX_SCHEDULE];

		if (from_of(e) != round || (e->set & 1u << id) == 0)
			continue;
		*value = *pbox_hyper_at((struct pbox_hyper *)(uintptr_t)&e->hyper, id);
		return true;
	}
	return false;
}

const struct pbox_hyper *
pbox_schedule_at(struct pbox_schedule *s, uint32_t round)
{
	uint32_t count = atomic_load_explicit(&s->count, memory_order_acquire);
	uint32_t used = count < PBOX_SCHEDULE ? count : PBOX_SCHEDULE;

	for (uint32_t k = 0; k < used; k++) {
		const struct pbox_schedule_entry *e = &s->entry[(count - 1 - k) % PBOX_SCHEDULE];

		if (pbox_serial_diff(from_of(e), round) <= 0)
			return &e->hyper;
	}
	return &s->entry[(count - used) % PBOX_SCHEDULE].hyper;
}
