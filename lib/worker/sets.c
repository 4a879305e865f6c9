/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>

#include "worker_impl.h"

/*
 * The SETs of a table (hyper-parameters) that the box has taken, in their order. A restarted box gets those that still
 * matter (R10.4): the values of the next round of the fragment that lags most, and all later ones.
 */

#define COMPACT_AT 64

struct set_log {
	unsigned n, cap, compact_at;
	struct pbox_set set[];
};

void
sets_free(struct pbox_worker_table *t)
{
	free(t->sets);
	t->sets = NULL;
}

unsigned
sets_count(const struct pbox_worker_table *t)
{
	return t->sets != NULL ? t->sets->n : 0;
}

const struct pbox_set *
sets_at(const struct pbox_worker_table *t, unsigned i)
{
	assert(i < sets_count(t));
	return &t->sets->set[i];
}

/** A coefficient (R6.15) and a decision (R15.11) are of one round alone: with a later one they would be that one's. */
static void
drop_of_round(struct pbox_set *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->count; i++)
		if (m->param[i].id != PBOX_HYPER_COEFFICIENT && m->param[i].id != PBOX_SET_DECISION)
			m->param[n++] = m->param[i];
	m->count = (uint16_t)n;
}

/** The values of @p from replace those of @p to. */
static void
sets_merge(struct pbox_set *to, const struct pbox_set *from)
{
	if (to->from_round != from->from_round)
		drop_of_round(to);
	for (unsigned i = 0; i < from->count; i++) {
		unsigned k = 0;

		while (k < to->count && to->param[k].id != from->param[i].id)
			k++;
		if (k == PBOX_SET_MAX)
			continue; /* there are fewer ids than that */
		to->param[k] = from->param[i];
		if (k == to->count)
			to->count++;
	}
	to->from_round = from->from_round;
}

static bool
concerns(const struct pbox_set *m, uint16_t group)
{
	return m->group == group || m->group == PBOX_ALL_GROUPS;
}

/** The first @p n entries as one, for @p group (which may be "all"). */
static void
fold(const struct set_log *l, unsigned n, uint16_t group, struct pbox_set *out)
{
	*out = (struct pbox_set){.table = l->set[0].table, .group = group};
	for (unsigned i = 0; i < n; i++)
		if (concerns(&l->set[i], group))
			sets_merge(out, &l->set[i]);
}

static bool
named_before(const struct set_log *l, unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (l->set[k].group == l->set[i].group)
			return true;
	return false;
}

/** Does one for all groups come after one for a single group, among the first @p n? */
static bool
all_after_one(const struct set_log *l, unsigned n)
{
	bool one = false;

	for (unsigned i = 0; i < n; i++) {
		if (l->set[i].group == PBOX_ALL_GROUPS && one)
			return true;
		one |= l->set[i].group != PBOX_ALL_GROUPS;
	}
	return false;
}

static unsigned
groups_of(const struct pbox_worker_table *t)
{
	unsigned most = 0;

	for (unsigned i = 0; i < t->n; i++)
		most = t->tensor[i].group > most ? t->tensor[i].group : most;
	return most + 1;
}

/** The first @p old entries as few: @p out has room for one more, and for one a group. @return how many */
static unsigned
fold_all(const struct pbox_worker_table *t, const struct set_log *l, unsigned old,
	struct pbox_set *out)
{
	unsigned n;

	/* The last one for all groups may make sense only with what single groups have: a box that has nothing yet would refuse it. So
	 * each group gets all that it has at once. */
	if (all_after_one(l, old)) {
		n = 0;
		for (unsigned g = 0; g < groups_of(t); g++) {
			fold(l, old, (uint16_t)g, &out[n]);
			n += out[n].count > 0;
		}
		return n;
	}
	/* that of all groups first: the values of single groups replace it */
	fold(l, old, PBOX_ALL_GROUPS, &out[0]);
	n = out[0].count > 0;
	for (unsigned i = 0; i < old; i++)
		if (l->set[i].group != PBOX_ALL_GROUPS && !named_before(l, i))
			fold(l, old, l->set[i].group, &out[n++]);
	return n;
}

static struct set_log *
sets_room(struct pbox_worker_table *t, unsigned cap)
{
	struct set_log *l = realloc(t->sets, sizeof(*l) + cap * sizeof(l->set[0]));

	if (l == NULL)
		return NULL;
	if (t->sets == NULL)
		*l = (struct set_log){.compact_at = COMPACT_AT};
	l->cap = cap;
	t->sets = l;
	return l;
}

unsigned
sets_compact(struct pbox_worker_table *t)
{
	struct set_log *l = t->sets;
	unsigned old = 0, n;
	struct pbox_set *folded;
	uint32_t next;

	if (l == NULL)
		return 0;
	if (!t->discipline->needs_from(t, &next)) /* all that holds from the same first round on */
		next = l->n > 0 ? l->set[0].from_round : 0;
	/* A coefficient (R6.15) of the round before counts as well: who has not heard of that round asks for it. It would be dropped for
	 * what holds in the next one. */
	if ((t->flags & PBOX_DECLARE_HOLD) != 0)
		next--;
	while (old < l->n && rounds_apart(l->set[old].from_round, next) <= 0)
		old++;
	folded = calloc(old + 1 + groups_of(t), sizeof(*folded));
	if (folded == NULL)
		return l->n; /* more than needed: harmless */
	n = fold_all(t, l, old, folded);
	if (l->n - old + n > l->cap)
		l = sets_room(t, l->n - old + n);
	if (l != NULL) {
		memmove(&l->set[n], &l->set[old], (l->n - old) * sizeof(*folded));
		memcpy(l->set, folded, n * sizeof(*folded));
		l->n = l->n - old + n;
	}
	free(folded);
	return t->sets->n;
}

int
sets_add(struct pbox_worker_table *t, const struct pbox_set *m)
{
	struct set_log *l = t->sets;
	unsigned at;

	if (l != NULL && l->n >= l->compact_at) {
		sets_compact(t);
		l->compact_at = 2 * l->n > COMPACT_AT ? 2 * l->n : COMPACT_AT;
	}
	if (l == NULL || l->n == l->cap) {
		l = sets_room(t, l != NULL ? 2 * l->cap : COMPACT_AT);
		if (l == NULL)
			return -ENOMEM;
	}
	/* answers may come in another order than the box took them; it takes none that is earlier
	 * than the last of its group */
	for (at = l->n; at > 0 && rounds_apart(l->set[at - 1].from_round, m->from_round) > 0; at--)
		l->set[at] = l->set[at - 1];
	assert(l->n < l->cap && m->table == t->number);
	l->set[at] = *m;
	l->n++;
	return 0;
}
