/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <rte_cycles.h>

#include "core.h"

/* A turn with a look at the clock between its stages; those that are done within others subtract
 * themselves (counted_tsc). */
static __attribute__((noinline)) unsigned
sampled_turn(struct core *c)
{
	uint64_t mail, receive, transmit;
	unsigned work;

	c->engine_tsc = c->answer_tsc = c->transmit_tsc = 0;
	c->sampled = true;
	work = core_take_mail(c);
	mail = rte_rdtsc() - counted_tsc(c);
	work += core_take_handed(c);
	work += core_take_received(c);
	receive = rte_rdtsc() - counted_tsc(c);
	frames_flush(c);
	work += pbox_shard_pace(c->shard, c->now_ns);
	transmit = rte_rdtsc() - counted_tsc(c);
	work += core_take_tx(c);
	tx_flush(c);
	c->sampled = false;
	if (work == 0)
		return 0;
	transmit = rte_rdtsc() - counted_tsc(c) - transmit;
	core_count(c, PBOX_CS_STAGE_TURNS, 1);
	core_count(c, PBOX_CS_STAGE_PACKETS, work);
	core_count(c, PBOX_CS_STAGE_MAIL, mail - c->tsc);
	core_count(c, PBOX_CS_STAGE_RECEIVE, receive - mail);
	core_count(c, PBOX_CS_STAGE_ENGINE, c->engine_tsc);
	core_count(c, PBOX_CS_STAGE_ANSWER, c->answer_tsc);
	core_count(c, PBOX_CS_STAGE_TRANSMIT, c->transmit_tsc + transmit);
	return work;
}

static inline unsigned
turn(struct core *c)
{
	unsigned work = core_take_mail(c);

	work += core_take_handed(c);
	work += core_take_received(c);
	frames_flush(c);
	work += pbox_shard_pace(c->shard, c->now_ns);
	work += core_take_tx(c);
	tx_flush(c);
	return work;
}

/* One turn: everything that came in, and all that it caused goes out. */
unsigned
pbox_dp_turn(void *core)
{
	struct core *c = core;
	uint32_t turns = atomic_load_explicit(&c->turns, memory_order_relaxed) + 1;
	unsigned work;

	c->tsc = rte_rdtsc();
	/* a thread that sees these sees what the turn before has handed over */
	atomic_store_explicit(&c->turns, turns, memory_order_release);
	if (!c->left)
		atomic_store_explicit(&c->emptied_ns, c->now_ns, memory_order_release);
	c->left = false;
	c->payload = NULL; /* what is served now is timed by this turn */
	c->looked_ns = atomic_load_explicit(&c->emptied_ns, memory_order_relaxed);
	c->now_ns = ticks_to_ns(c->dp, c->tsc);
	work = unlikely(turns % PBOX_DP_SAMPLE == 0) ? sampled_turn(c) : turn(c);
	core_count(c, PBOX_CS_LOOPS, 1);
	core_count(c, PBOX_CS_LOOPS_BUSY, work > 0);
	return work;
}

int
pbox_dp_run(void *core)
{
	struct core *c = core;

	atomic_store_explicit(&c->running, true, memory_order_relaxed);
	idle_start(c);
	while (!atomic_load_explicit(&c->dp->stop, memory_order_relaxed)) {
		if (pbox_dp_turn(c) > 0) {
			core_count(c, PBOX_CS_CYCLES_BUSY, rte_rdtsc() - c->tsc);
			c->empty = 0;
			c->worked_ns = c->now_ns;
		} else {
			core_count(c, PBOX_CS_CYCLES_IDLE, rte_rdtsc() - c->tsc);
			c->empty++;
			core_idle(c);
		}
	}
	idle_stop(c);
	/* a thread that sees it sees all that the core did */
	atomic_store_explicit(&c->running, false, memory_order_release);
	return 0;
}

void
pbox_dp_stop(struct pbox_dp *dp)
{
	atomic_store_explicit(&dp->stop, true, memory_order_relaxed);
	for (unsigned i = 0; i < dp->conf.n_cores; i++)
		core_call(dp->core[i]);
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
