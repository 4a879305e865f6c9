/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "sim.h"

/* A binary heap; events of the same time come in the order in which they were pushed. */

static bool
before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void
sim_queue_push(struct sim_queue *q, const struct sim_event *e)
{
	size_t i = q->n++;

	if (q->n > q->cap) {
		q->cap = q->cap == 0 ? 1024 : q->cap * 2;
		q->e = reallocarray(q->e, q->cap, sizeof(*q->e));
		PBOX_ASSERT(q->e != NULL);
	}
	q->e[i] = *e;
	q->e[i].order = q->order++;
	while (i > 0 && before(&q->e[i], &q->e[(i - 1) / 2])) {
		struct sim_event t = q->e[i];

		q->e[i] = q->e[(i - 1) / 2];
		q->e[(i - 1) / 2] = t;
		i = (i - 1) / 2;
	}
}

bool
sim_queue_pop(struct sim_queue *q, struct sim_event *e)
{
	struct sim_event last;
	size_t i = 0;

	if (q->n == 0)
		return false;
	*e = q->e[0];
	last = q->e[--q->n];
	for (;;) {
		size_t c = 2 * i + 1;

		if (c >= q->n)
			break;
		if (c + 1 < q->n && before(&q->e[c + 1], &q->e[c]))
			c++;
		if (!before(&q->e[c], &last))
			break;
		q->e[i] = q->e[c];
		i = c;
	}
	q->e[i] = last;
	return true;
}
