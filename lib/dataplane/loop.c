/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <rte_cycles.h>

#include "core.h"

/* One turn: everything that came in, and all that it caused goes out. */
unsigned
pbox_dp_turn(void *core)
{
	struct core *c = core;
	unsigned work;

	c->tsc = rte_rdtsc();
	c->now_ns = ticks_to_ns(c->dp, c->tsc);
	work = core_take_mail(c);
	work += core_take_handed(c);
	work += core_take_received(c);
	frames_flush(c);
	work += core_take_tx(c);
	tx_flush(c);
	count(c, PBOX_CS_LOOPS, 1);
	count(c, PBOX_CS_LOOPS_BUSY, work > 0);
	return work;
}

int
pbox_dp_run(void *core)
{
	struct core *c = core;

	idle_start(c);
	while (!atomic_load_explicit(&c->dp->stop, memory_order_relaxed)) {
		if (pbox_dp_turn(c) > 0) {
			count(c, PBOX_CS_CYCLES_BUSY, rte_rdtsc() - c->tsc);
			c->empty = 0;
		} else {
			count(c, PBOX_CS_CYCLES_IDLE, rte_rdtsc() - c->tsc);
			c->empty++;
			core_idle(c);
		}
	}
	idle_stop(c);
	return 0;
}

void
pbox_dp_stop(struct pbox_dp *dp)
{
	atomic_store_explicit(&dp->stop, true, memory_order_relaxed);
}

bool
pbox_dp_stopping(const struct pbox_dp *dp)
{
	return atomic_load_explicit(&dp->stop, memory_order_relaxed);
}

uint64_t
pbox_dp_now(const struct pbox_dp *dp)
{
	return ticks_to_ns(dp, rte_rdtsc());
}
