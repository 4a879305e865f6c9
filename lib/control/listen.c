/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "control_priv.h"

/*
 * Leases count only time in which the box listened, and had read what came (R8.2). So the registrar gets the time
 * until which all that came has been read: a moment is taken, and then waited until each data core has looked
 * at its queues since; until each has looked again, at what the others had handed over; and until the
 * datagrams of sessions that are there then have been taken: not all that come later as well, or tenants that ask for
 * more than this thread can do would stop the leases of all. While a core is away, or this thread, or the process is
 * stopped, nothing of that happens, and no lease goes on.
 */

enum { BEGIN, RECEIVED, HANDED_OVER, TAKEN };

static void
look_from_now_on(struct pbox_control *c, unsigned phase)
{
	struct listening *l = &c->listening;

	l->phase = phase;
	for (unsigned i = 0; i < c->conf.n_cores; i++)
		l->turns[i] = pbox_dp_turns(c->conf.dp, i);
	l->since_ns = pbox_dp_now(c->conf.dp);
}

static bool
all_have_looked(const struct pbox_control *c)
{
	const struct listening *l = &c->listening;

	for (unsigned i = 0; i < c->conf.n_cores; i++)
		if (!pbox_dp_looked(c->conf.dp, i, l->since_ns, l->turns[i]))
			return false;
	return true;
}

void
control_listen(struct pbox_control *c)
{
	struct listening *l = &c->listening;

	if (l->phase == BEGIN) {
		look_from_now_on(c, RECEIVED);
		l->came_ns = l->since_ns;
	}
	if (l->phase == RECEIVED && all_have_looked(c))
		look_from_now_on(c, HANDED_OVER);
	if (l->phase == HANDED_OVER && all_have_looked(c)) {
		l->phase = TAKEN;
		for (unsigned i = 0; i < c->conf.n_cores; i++)
			l->until[i] = pbox_dp_control_taken(c->conf.dp, i) +
				      pbox_dp_control_waiting(c->conf.dp, i);
	}
}

void
control_listened(struct pbox_control *c)
{
	struct listening *l = &c->listening;

	if (l->phase != TAKEN)
		return;
	for (unsigned i = 0; i < c->conf.n_cores; i++)
		if (pbox_dp_control_taken(c->conf.dp, i) < l->until[i])
			return;
	l->phase = BEGIN;
	pbox_registrar_heard(c->registrar, l->came_ns);
}
